# Operators and their overloads: what users call.

cdef class Stack(list):                 # arguments on the way in, results on the way out
    pass

cdef class OpOverload:
    cdef vectorcallfunc vectorcall
    cdef Table table                    # None: stale, computed by the next call
    cdef readonly str removed_at        # where the last registration went away, else None
    cdef object declaration             # of the library, until `complete` makes registrations of it; or None
    cdef object own_name                # read with `operator_name`
    cdef list own_registrations         # the operator is complete where they are read
    cdef object __weakref__

cdef class OpOverloadPacket:
    cdef vectorcallfunc vectorcall
    cdef readonly str name
    cdef readonly tuple overloads       # those with a schema, in order of definition
    cdef object __weakref__

cdef int complete(OpOverload op) except -1          # before its registrations are read
cdef object operator_name(OpOverload op)            # its OperatorName
# a call of a packet
cdef object call_packet(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames)
# the error of a call that no overload takes: why each of them does not
cdef object refusal(OpOverloadPacket packet, PyObject* const* args, size_t nargsf, PyObject* kwnames)
# give a class the slot that Cython has no syntax for
cdef int make_vectorcallable(type cls, Py_ssize_t offset) except -1
cdef tuple flatten_call(tuple args, dict kwargs)    # (values, names) as vectorcall wants them
