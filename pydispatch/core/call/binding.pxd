# Binding: the arguments of a call, one value per schema argument, types checked.

cdef void begin_frame(Frame* frame) noexcept
cdef struct Frame:
    PyObject* const* values     # one per schema argument, not passed if NULL or past the count
    Py_ssize_t count
    size_t offset_flag          # PY_VECTORCALL_ARGUMENTS_OFFSET when values[-1] may be written to
    bint direct                 # the values can go to a kernel unchanged: none is missing, none is a pytree
    PyObject* names             # NULL, or the names of keyword-only values that follow the `count` positional ones
    Py_ssize_t n_names
    uint64_t word               # union of the arguments' words
    uint64_t owned              # which items of `storage` own a reference
    PyObject* kept              # objects made for the kernel, or NULL
    PyObject* original          # the state of a call that modes have declined, NULL before that
    PyObject* storage[MAX_ARGUMENTS + 1]
    PyObject* raw[MAX_ARGUMENTS + 1]    # of a direct frame: the values, with raw arrays instead of Tensors

cdef void release(Frame* frame) noexcept    # release the references that binding has taken
cdef dict known_dtypes      # dtypes by class and by name
cdef bint bind_directly(
     Frame* frame, PyObject* signature, PyObject* const* args, size_t nargsf, PyObject* kwnames
) noexcept
cdef int bind(Frame* frame, op, Signature signature, PyObject* const* args, size_t nargsf, PyObject* kwnames) except -1
cdef int bind_values(Frame* frame, op, Signature signature, tuple values) except -1
cdef int collect_keys(Frame* frame, Signature signature) except -1
# return the position of the argument of this name, or -1 if there is none
cdef Py_ssize_t position_of(Signature signature, PyObject* name) except -2
cdef PyObject* value_at(Frame* frame, Py_ssize_t i) noexcept    # return the value of an argument, or NULL if not passed
cdef tuple arguments_with(Frame* frame, Signature signature, change)
cdef PyObject* value_or_default(Frame* frame, Signature signature, Py_ssize_t i) except NULL
cdef bint is_argument(Frame* frame, value) noexcept    # return whether this object is among the arguments
