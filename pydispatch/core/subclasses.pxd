# Subclasses of Tensor that handle calls themselves.

cdef extern from *:
    """
    /* the first member of a classmethod, in every CPython; checked below */
    #define function_of(method) (*(PyObject**)((char*)(method) + sizeof(PyObject)))
    """
    PyObject* function_of(PyObject* method) noexcept

cdef class WrapperTensor(Tensor):       # around another Tensor, for subclasses with a handler
    cdef object inner

cdef str HANDLER    # the name of the method that handles calls

cdef bint has_handler(PyTypeObject* cls) noexcept    # does a class say itself what operators do with its objects?
# the positional arguments as a handler gets them: without those at the end that equal their defaults
cdef tuple stripped_positionals(Signature signature, Frame* frame)
# the keyword-only arguments that do not equal their defaults, in the order of the schema
cdef dict stripped_keywords(Signature signature, Frame* frame)
# the classes with a handler among the arguments, in the order in which they are asked
cdef tuple types_in(Signature signature, Frame* frame)
# step 7 for what a handler returned: Tensors stay as they are, and views of arguments share their memory
cdef object finish_handled(OpOverload op, Signature signature, Frame* frame, handler, result)
# what the Python key runs: the handlers of the arguments' classes, until one does not decline
cdef object call_handlers(OpOverload op, Table table, Frame* frame, uint64_t keys, State state, CallKind kind)
# `owner.__pydispatch__(op, types, args, kwargs)`
cdef object call_handler(PyObject* owner, op, tuple types, tuple args, dict kwargs)
# the writes so far to the Tensors that a call is to write to; -1 for none
cdef long long writes_to_mutable(Signature signature, Frame* frame) noexcept
# count a handler's write, unless what it called has: `writes` is what writes_to_mutable was before
cdef int count_unseen_write(Signature signature, Frame* frame, long long writes) except -1
cdef bint is_argument(Frame* frame, value) noexcept    # is this object among the arguments?
cdef void disable_modes(State state) noexcept    # those that are on the stack now
cdef bint is_handled(Tensor tensor) noexcept    # do handlers or modes have a say in what this Tensor holds?
# the Tensor as what Python can make a number of: its array, or where handlers have a say the result of `item`
cdef object number_of(Tensor tensor)
