# Functions that take what NumPy's take, and call NumPy's own or operators.

cdef class ArrayFunction:
    cdef vectorcallfunc vectorcall
    cdef readonly object numpy_function     # NumPy's own; None where the installed NumPy has none
    cdef readonly object implementation     # the same, written with operators
    cdef readonly OpOverloadPacket operator     # which it is for simple calls; or None
    cdef Py_ssize_t n_arrays                # leading arguments that have to be arrays for that,
    cdef Py_ssize_t n_positional            # how many arguments it takes by position,
    cdef frozenset keywords                 # and which by keyword
    cdef frozenset added                    # those that NumPy's own function does not have; or None
    cdef dict __dict__                      # its name, documentation and signature

# one of NumPy's functions, called with a Tensor
cdef object call_function_of_numpy(function, types, tuple args, dict kwargs)
