# Binding: the arguments of a call, one value per schema argument, types checked.

cdef void begin_frame(Frame* frame) noexcept    # own nothing yet, and have no keyword-only arguments
cdef struct Frame:
    PyObject* const* values     # one per schema argument; NULL, or past the count: not passed
    Py_ssize_t count
    size_t offset_flag          # PY_VECTORCALL_ARGUMENTS_OFFSET when values[-1] may be written to
    bint direct                 # values can go to a kernel as they are: none missing, none of them a pytree
    PyObject* names             # NULL, or the names of keyword-only values that follow the `count` positional ones
    Py_ssize_t n_names
    uint64_t word               # union of the arguments' words
    uint64_t owned              # which of `storage` hold a reference of their own
    PyObject* kept              # what was made for the kernel, or NULL
    PyObject* original          # the state of a call that modes have declined; NULL before
    PyObject* storage[MAX_ARGUMENTS + 1]
    PyObject* raw[MAX_ARGUMENTS + 1]    # of a direct frame: the values with raw arrays in place of Tensors

cdef void release(Frame* frame) noexcept    # drop what binding has kept
cdef dict known_dtypes      # of classes and names
cdef bint are_ints(PyObject* values) noexcept    # are these a list or tuple of plain ints?
# steps 1 and 3 at once for the common call: nothing to convert, arrays and no pytrees
cdef bint bind_directly(
     Frame* frame, PyObject* signature, PyObject* const* args, size_t nargsf, PyObject* kwnames
) noexcept
# step 1, and the arguments' part of step 3
cdef int bind(Frame* frame, op, Signature signature, PyObject* const* args, size_t nargsf, PyObject* kwnames) except -1
# step 1 for a boxed call: every argument has a value
cdef int bind_values(Frame* frame, op, Signature signature, tuple values) except -1
# step 3, the arguments' part: the union of their words
cdef int collect_keys(Frame* frame, Signature signature) except -1
# of the argument of this name; -1 where there is none
cdef Py_ssize_t position_of(Signature signature, PyObject* name) except -2
cdef PyObject* value_at(Frame* frame, Py_ssize_t i) noexcept    # the value of an argument; NULL where it was not passed
