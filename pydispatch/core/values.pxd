# Tensors, and what is read off a value: its keys and its array.
#
# A Tensor wraps one value of the interpreter below. The tape is the lowest interpreter, so below an ordinary Tensor is
# a raw array; below the wrapper of a transform is an ordinary Tensor, a raw array, or a wrapper of the next transform.

cdef enum:
    MAX_NESTING = 64        # of lists and tuples: what lies deeper takes the general path

cdef class Tensor:                      # 72 bytes with the collector's header
    cdef uint64_t word                  # the keys it brings to a call, and its flags
    cdef readonly object array          # the value below; never replaced
    cdef object edge                    # where its gradient goes: None, a TapeNode (its only result), or a GradientSlot
    cdef Memory memory                  # None until it is written to or shared
    cdef object __weakref__

cdef PyTypeObject* TENSOR_TYPE    # addresses of types, to compare with
cdef PyTypeObject* GRAD_TYPE
cdef PyTypeObject* JVP_TYPE
cdef PyTypeObject* BATCHED_TYPE
cdef PyTypeObject* PYTHON_WRAPPER_TYPE
cdef tuple NO_ARGUMENTS    # an empty tuple
cdef PyObject* FLOAT64    # the dtype
cdef PyTypeObject* FLOAT64_SCALAR    # numpy.float64

# the union over the arrays in a value: an array, or a pytree of such
cdef uint64_t word_of_value(PyObject* value) except? 1
cdef bint holds_nothing(PyObject* value) noexcept    # is this of a type whose objects are no arrays and contain none?
# is this, down to the items of tuples, nothing that binding would convert?
cdef bint needs_no_conversion(PyObject* value, bint arrays, int depth) noexcept
cdef bint are_arrays(PyObject* value) noexcept    # is this a tuple of ndarrays and Tensors?
cdef object array_of_scalar(value)    # a new 0-d array of a NumPy scalar
cdef Tensor wrap(array)    # a new Tensor around an array
cdef Tensor wrap_of_word(array, uint64_t word)    # the same of one that brings this word
cdef PyObject* wrap_ndarray(PyObject* array) except NULL    # a new Tensor of an exact ndarray
