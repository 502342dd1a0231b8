# `vmap`: interpreter, wrapper, batching, and entry point.

cdef class BatchedTensor(Wrapper):      # of `vmap`: a batch, along the first axis of its array
    cdef object layout                  # an array that lies in memory as one example does; made on demand

cdef class Vmap(Interpreter):           # of `vmap`
    cdef readonly Py_ssize_t batch_size
    cdef readonly str randomness        # "error", "same" or "different"

cdef class BatchingRule:                    # how a batch of calls is done at once
    cdef Signature signature
    cdef int kind
    cdef tuple changes                  # (position of an argument, function)
    cdef object rule
    cdef int max_other_ndim             # see BatchingRule in vmap.pyx; -1 for none

cdef PyObject* layout_of(BatchedTensor tensor) except NULL    # an array that lies in memory as one example does
cdef list keep_in(list kept, value)    # append to a list, made on demand
# call an operator anew, on one value per argument of the schema, or NULL
cdef object call_with_values(OpOverload op, Signature signature, bint direct, Py_ssize_t count, PyObject** values)
# a fast path for batches: an operator on batches in NumPy's memory, at the only interpreter of the stack
cdef bint batching_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result) except -1
