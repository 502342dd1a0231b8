# Functions in C as universal functions.

cdef extern from *:
    """
    typedef struct {
        void* function;
        void* user_data;
        int n_in, size, has_user_data;
    } CFunction;
    """
    ctypedef struct CFunction:      # one loop of a ufunc
        void* function
        void* user_data                 # its last argument, if it has one
        int n_in
        int size                        # of an element
        bint has_user_data

cdef struct CFunctions:             # the loops of one ufunc
    CFunction loops[2]                  # for float32, for float64
    PyUFuncGenericFunction functions[2]
    void* data[2]
    char types[8]
