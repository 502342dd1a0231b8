# Functions with the signatures of NumPy's, which call NumPy's functions or operators.

ctypedef PyObject* (*FunctionInC)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)

cdef class ArrayFunction:
    cdef vectorcallfunc vectorcall
    cdef readonly object numpy_function     # NumPy's function, or None if the installed NumPy has none
    cdef object numpys_own                  # NumPy's function below its `__array_function__` dispatch
    cdef vectorcallfunc call_numpys_own     # the vectorcall function of `numpys_own`
    cdef FunctionInC function_in_c          # the C function of `numpys_own`, or NULL if it is not a builtin
    cdef PyObject* self_in_c                # the first argument of `function_in_c`
    cdef readonly object implementation     # the same function, written with operators
    cdef readonly OpOverloadPacket operator     # the operator that serves simple calls, or None
    cdef Py_ssize_t n_arrays                # how many leading arguments of a simple call have to be arrays
    cdef Py_ssize_t n_positional            # how many arguments of a simple call may be positional
    cdef frozenset keywords                 # the keywords that a simple call may have
    cdef tuple added                        # keywords that NumPy's function does not have, or None
    cdef int kept_flags                     # flags of an array that is its own result, or negative if there is none
    cdef bint numpy_first                   # whether the operator gets only calls that NumPy's function does not get
    cdef bint joins                         # whether the first argument is a list of arrays
    cdef bint of_vectors                    # whether the leading arrays must have one axis
    cdef bint after_text                    # whether the first argument is a string, which the arrays follow
    cdef bint creates                         # whether it makes arrays from shapes and numbers, on the default backend
    cdef int maker                          # the maker to call instead of NumPy's function if the arguments are simple
    cdef object on_error                    # called with each error of a call, to name the function in it, or None
    cdef object builtin                     # the builtin that the namespace holds instead of this object, or None
    cdef dict __dict__                      # its name, documentation and signature

# return the result of one of NumPy's functions that was called with a Tensor
cdef object call_function_of_numpy(function, types, tuple args, dict kwargs)
