# Operators and their overloads: what users call.

cdef class Stack(list):                 # arguments on the way in, results on the way out
    pass

cdef class OpOverload:
    cdef vectorcallfunc vectorcall
    cdef Table table                    # None: stale, computed by the next call
    cdef readonly object name
    cdef readonly str removed_at        # where the last registration went away, else None
    cdef public list registrations
    cdef object __weakref__

cdef class OpOverloadPacket:
    cdef vectorcallfunc vectorcall
    cdef readonly str name
    cdef readonly tuple overloads       # those with a schema, in order of definition
    cdef object __weakref__

# the error of a call that no overload takes: why each of them does not
cdef object refusal(OpOverloadPacket packet, PyObject* const* args, size_t nargsf, PyObject* kwnames)
# give a class the slot that Cython has no syntax for
cdef int make_vectorcallable(type cls, Py_ssize_t offset) except -1
