# A call, from bound arguments to its result.

cdef enum CallKind:         # how a call was made, for tracers; `CALL_KINDS` has the words
    BY_CALL = 0                 # op(...)
    BY_STACK = 1                # op.call_boxed(stack)
    BY_REDISPATCH = 2           # op.redispatch(keyset, ...)
    BY_KERNEL = 3               # get_kernel(op, key)(...)
    BY_SELECTION = 4            # BackendSelect has chosen the backend

cdef class Callee:
    cdef vectorcallfunc vectorcall
    cdef public object target

# is a value that was passed, and converted, the default?
cdef bint is_default(PyObject* signature, Py_ssize_t i, PyObject* value) except -1
# does it equal the default, and is it of the same kind?
cdef bint equals_default(unsigned char kind, PyObject* value, PyObject* default) except -1
# steps 4 to 7, for a frame that is bound and a key set that is chosen
cdef object run(OpOverload op, Table table, Frame* frame, uint64_t keys, State state, CallKind kind)
# steps 5 to 7, and telling a tracer
cdef object run_entry(
    OpOverload op, Table table, TableEntry entry, Frame* frame, uint64_t keys, State state, CallKind kind)
# the keys below BackendSelect, where that has chosen the backend: the device asked for, else the ambient default
cdef uint64_t keys_on_backend(Table table, Frame* frame, uint64_t keys, State state) except? 1
cdef bint is_plain(PyObject* entry) noexcept    # does the kernel get the arguments and nothing else?
# steps 5 and 6 for a frame whose values can go as they are, but for a shorter count; recorders are told
cdef PyObject* call_directly_or_recorded(
    PyObject* op, PyObject* table, PyObject* state, PyObject* entry, Frame* frame) except NULL
# the vectorcall slot of operators
cdef PyObject* call_operator(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL
# a common call: the steps below, without counting a reference at each of them
cdef bint fast_path(
     PyObject* op, PyObject* const* args, size_t nargsf, PyObject* kwnames, PyObject** result
) except -1
# has nothing among the arguments ever been on the tape?
cdef bint all_constant(Frame* frame, Signature signature) except -1
# a call from binding on, any convention
cdef object call_in_general(OpOverload op, PyObject* const* args, size_t nargsf, PyObject* kwnames)
cdef object call_bound(OpOverload op, Table table, Frame* frame)    # steps 2 to 7 of a bound call; releases the frame
cdef object dispatch(OpOverload op, Table table, Frame* frame, State state, CallKind kind)    # steps 2 to 7
# the same, where captured values mean themselves
cdef object dispatch_as_meant(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
cdef int check_raised(function) except -1    # there is an exception, as a function has returned NULL
