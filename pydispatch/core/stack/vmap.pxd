# `vmap`: interpreter, wrapper, batching, and entry point.

cdef class BatchedTensor(Wrapper):      # a value of `vmap`: a batch along the first axis, or a uniform value
    cdef object layout                  # an array with the memory layout of one example, made on first use
    cdef Uniform uniform                # None for a batch
    cdef bint is_diagonal               # whether the array has two rows: see `diagonal_batch`
    cdef bint is_fresh                  # whether its memory was allocated inside the function
    cdef bint has_moved                 # whether the layout has the memory address from when it was uniform

cdef class Uniform:                     # of a value that all examples share
    cdef BatchedTensor source           # of a view: its source
    cdef tuple call                     # of a view: its maker as operator, args, kwargs, and which of the results
    cdef list views                     # of an array in its own memory: weak references to its views
    cdef Py_ssize_t limit               # the number of views at which dead references are dropped

cdef class Vmap(Interpreter):           # the interpreter of `vmap`
    cdef readonly Py_ssize_t batch_size
    cdef readonly str randomness        # "error", "same" or "different"
    cdef bint has_diagonals             # whether one of its batches may be diagonal
    cdef Vmap continued                 # the interpreter whose batch this one computes further below, or None

cdef bint is_uniform(PyObject* value) noexcept
cdef BatchedTensor diagonal_batch(array, Vmap interpreter)
# return all examples of a diagonal batch, along the first or the last axis
cdef object expanded(BatchedTensor tensor, bint last)
cdef enum:
    FEWEST_EXAMPLES = 8             # of a diagonal batch. An array of two rows is never mistaken for the whole batch
cdef bint is_batch(PyObject* value, Interpreter interpreter) noexcept
cdef object detached_uniform(BatchedTensor tensor)    # return a detached uniform value on the same memory
cdef object call_with_values(OpOverload op, Signature signature, bint direct, Py_ssize_t count, PyObject** values)
