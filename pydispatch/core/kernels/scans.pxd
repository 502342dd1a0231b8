# Loops whose steps each call one operator.

cdef class Rows:            # an iterator
    cdef object array
    cdef Py_ssize_t i, n        # the index of the next row, and the number of rows

cdef class StackedRows:
    cdef Py_ssize_t length, n       # how many rows there will be, and how many have been copied
    cdef bint reverse
    cdef list columns               # the arrays that rows are copied to
    cdef list kept                  # all rows, in the order of the steps, or None while they are copied
    cdef bint can_copy(self, tuple row) except -1
    cdef Py_ssize_t place(self, Py_ssize_t i)
    cdef list copied(self)

# Only Python calls `run_steps` and `run_steps_while`.
