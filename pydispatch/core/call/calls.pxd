# A call, from bound arguments to its result. `calls.pyx` lists the steps.

cdef enum CallKind:         # how a call was made, for tracers: `CALL_KINDS` has the words
    BY_CALL = 0                 # op(...)
    BY_STACK = 1                # op.call_boxed(stack)
    BY_REDISPATCH = 2           # op.redispatch(keyset, ...)
    BY_KERNEL = 3               # get_kernel(op, key)(...)
    BY_SELECTION = 4            # BackendSelect has chosen the backend

cdef class Callee:
    cdef vectorcallfunc vectorcall
    cdef public object target

cdef Callee some_callee    # for the offset of its vectorcall slot

cdef bint is_default(PyObject* signature, Py_ssize_t i, PyObject* value) except -1
# return whether a value equals the default and is of the same kind
cdef bint equals_default(unsigned char kind, PyObject* value, PyObject* default) except -1
cdef object run(OpOverload op, Table table, Frame* frame, uint64_t keys, State state, CallKind kind)
cdef object run_entry(
    OpOverload op, Table table, TableEntry entry, Frame* frame, uint64_t keys, State state, CallKind kind)
cdef uint64_t keys_on_backend(Table table, Frame* frame, uint64_t keys, State state) except? 1
cdef bint is_plain(PyObject* entry) noexcept
# run steps 5 and 6, recorded by recorders, for a frame whose values can go unchanged, except for a shorter count
cdef PyObject* call_directly_or_recorded(
    PyObject* op, PyObject* table, PyObject* state, PyObject* entry, Frame* frame) except NULL
# call an operator: its vectorcall slot
cdef PyObject* call_operator(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL
cdef bint fast_path(
     PyObject* op, PyObject* const* args, size_t nargsf, PyObject* kwnames, PyObject** result
) except -1
cdef bint all_constant(Frame* frame, Signature signature) except -1
# run a call from binding on, for any calling convention
cdef object call_in_general(OpOverload op, PyObject* const* args, size_t nargsf, PyObject* kwnames)
cdef object call_bound(OpOverload op, Table table, Frame* frame)    # run steps 2 to 7 and release the frame
cdef object dispatch(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
cdef object dispatch_as_meant(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
cdef int check_raised(function) except -1
cdef bint is_for(TableEntry entry, Signature signature, Frame* frame) except -1
