# Tensors, and the keys and arrays of values.
#
# A Tensor wraps one value of the interpreter below. The tape is the lowest interpreter, so the value below an ordinary
# Tensor is a raw array. The value below the wrapper of a transform is an ordinary Tensor, a raw array, or a wrapper of
# the next transform.

cdef enum:
    MAX_NESTING = 64        # of lists and tuples. Deeper ones take the general path

cdef class Tensor:                      # 80 bytes, with the header for garbage collection
    cdef uint64_t word                  # the keys that it brings to a call, and its flags
    cdef readonly object array          # the value below, never replaced
    cdef object edge                    # None, a TapeNode (its only result) or GradientSlot: its gradient's destination
    cdef Memory memory                  # None until it is written to or shared
    cdef unsigned int saves             # the number of nodes that save it. See residuals.pyx
    cdef unsigned int place             # its index in its memory's list of saved Tensors
    cdef object __weakref__

cdef class Wrapper(Tensor):             # a value of a transform's interpreter
    cdef readonly Interpreter interpreter

cdef PyTypeObject* TENSOR_TYPE    # its address, for comparison
cdef tuple NO_ARGUMENTS    # an empty tuple

cdef uint64_t word_of_value(PyObject* value) except? 1
cdef bint holds_nothing(PyObject* value) noexcept
cdef bint needs_no_conversion(PyObject* value, bint arrays, int depth) noexcept
cdef bint are_arrays(PyObject* value) noexcept
cdef object array_of_scalar(value)
# set the array of a Tensor, the word of which brings its keys
cdef int fill_tensor(Tensor tensor, array, uint64_t word) except -1
cdef Tensor wrap(array)    # return a new Tensor around an array
cdef Tensor wrap_of_word(array, uint64_t word)
cdef Tensor wrap_scalar(value)
cdef PyObject* wrap_ndarray(PyObject* array) except NULL

cdef Interpreter interpreter_of(Tensor tensor)    # return the interpreter of a Tensor, None for the tape
cdef bint is_batched(Tensor tensor) noexcept
cdef bint owned_by(PyObject* value, Interpreter interpreter) noexcept
cdef object whole_below(Tensor tensor)
cdef object below(value, Interpreter interpreter)
cdef tuple all_below(values, Interpreter interpreter)
