# Subclasses of Tensor that handle calls themselves.

cdef class WrapperTensor(Tensor):       # around another Tensor, for subclasses with a handler
    cdef object inner

cdef str HANDLER    # the name of the method that handles calls
cdef int set_base_handler(handler) except -1    # set the handler of Tensor

# return whether a class has its own handler
cdef bint has_handler(PyTypeObject* cls) noexcept
# return the positional arguments for a handler: without trailing ones that equal their defaults
cdef tuple stripped_positionals(Signature signature, Frame* frame)
# return the keyword-only arguments that do not equal their defaults, in the order of the schema
cdef dict stripped_keywords(Signature signature, Frame* frame)
# return the classes with a handler among the arguments, in the order in which their handlers are called
cdef tuple types_in(Signature signature, Frame* frame)
# apply step 7 to the result of a handler: Tensors stay as they are, and views of arguments share their memory
cdef object finish_handled(OpOverload op, Signature signature, Frame* frame, handler, result)
# call `owner.__pydispatch__(op, types, args, kwargs)`
cdef object call_handler(PyObject* owner, op, tuple types, tuple args, dict kwargs)
# return the number of writes so far to the Tensors that a call will write to, or -1 if there are none
cdef long long writes_to_mutable(Signature signature, Frame* frame) except -2
# count a handler's write, unless a call in it was counted. `writes` is the earlier result of writes_to_mutable
cdef int count_unseen_write(Signature signature, Frame* frame, long long writes) except -1
# return whether handlers or modes control access to the value of this Tensor
cdef bint is_handled(Tensor tensor) noexcept
# return an object that Python can convert to a number: the array, or the result of `item` if handlers control access
cdef object number_of(Tensor tensor)
cdef object number_for(kind, Tensor tensor)    # return the same for a conversion that takes no array with axes
