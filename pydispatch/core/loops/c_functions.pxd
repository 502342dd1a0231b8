# Functions in C as universal functions.

cdef extern from "core/src/c_functions.h":
    ctypedef struct CFunction:      # one loop of a ufunc
        AnyFunction function
        void* user_data                 # the last argument of the function, if it takes one
        int n_in
        int size                        # bytes per element
        bint has_user_data

cdef struct CFunctions:             # the loops of one ufunc
    CFunction loops[2]                  # for float32 and for float64
    PyUFuncGenericFunction functions[2]
    void* data[2]
    char types[8]
