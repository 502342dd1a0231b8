# Operators and their overloads, which users call.

cdef class Stack(list):                 # arguments of a boxed kernel, then its results
    pass

cdef class OpOverload:
    cdef vectorcallfunc vectorcall
    cdef Table table                    # None if stale: the next call computes it
    cdef readonly str removed_at        # site where the last registration was removed, else None
    cdef object declaration             # in the library, until `complete` makes registrations of it, or None
    cdef object own_name                # read it with `operator_name`
    cdef list own_registrations         # read it after `complete`
    cdef object __weakref__

cdef class OpOverloadPacket:
    cdef vectorcallfunc vectorcall
    cdef readonly str name
    cdef readonly tuple overloads       # overloads with a schema, in order of definition
    cdef object __weakref__

# make the registrations of an operator from its declaration. Call it before reading them
cdef int complete(OpOverload op) except -1
cdef object operator_name(OpOverload op)
cdef object call_packet(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames)
cdef object refusal(OpOverloadPacket packet, PyObject* const* args, size_t nargsf, PyObject* kwnames)
cdef tuple flatten_call(tuple args, dict kwargs)
