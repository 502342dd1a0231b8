# Functions that take what NumPy's take, and call NumPy's own or operators.

ctypedef PyObject* (*FunctionInC)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)

cdef class ArrayFunction:
    cdef vectorcallfunc vectorcall
    cdef readonly object numpy_function     # NumPy's own; None where the installed NumPy has none
    cdef object numpys_own                  # the same without asking arguments for `__array_function__`,
    cdef vectorcallfunc call_numpys_own     # and its entry point
    cdef FunctionInC function_in_c          # and where that is a function in C, this one itself,
    cdef PyObject* self_in_c                # with what it gets as its first argument
    cdef readonly object implementation     # the same, written with operators
    cdef readonly OpOverloadPacket operator     # what simple calls go to; or None
    cdef Py_ssize_t n_arrays                # how many leading arguments have to be arrays for that,
    cdef Py_ssize_t n_positional            # how many may be positional,
    cdef frozenset keywords                 # and which keywords there may be
    cdef tuple added                        # keywords that NumPy's own function does not have; or None
    cdef int kept_flags                     # those of an array that is its own result; negative where none is
    cdef bint numpy_first                   # does NumPy's own function take arrays, and the operator only Tensors?
    cdef bint joins                         # is the first argument a list of arrays?
    cdef bint of_vectors                    # have those arrays to have one axis?
    cdef bint after_text                    # is the first argument a text, which those arrays follow?
    cdef bint creates                         # does it make arrays of shapes and numbers, for the default backend?
    cdef int maker                          # what is called in place of NumPy's own where the arguments are simple
    cdef object on_error                    # gets the errors of calls, to name the function in them; or None
    cdef object builtin                     # what stands for it in the namespace, if that is not itself; or None
    cdef dict __dict__                      # its name, documentation and signature

# one of NumPy's functions, called with a Tensor
cdef object call_function_of_numpy(function, types, tuple args, dict kwargs)
