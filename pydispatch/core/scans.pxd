# Steps of loops that are one operator.

cdef class Rows:            # an iterator
    cdef object array
    cdef Py_ssize_t i, n        # the next row; and how many there are

cdef class StackedRows:
    cdef Py_ssize_t length, n       # how many rows there will be, and how many have been copied
    cdef bint reverse
    cdef list columns               # the arrays that they are copied to
    cdef list kept                  # all rows, in the order of the steps; None while they are copied
    cdef bint can_copy(self, tuple row) except -1
    cdef Py_ssize_t place(self, Py_ssize_t i)
    cdef list copied(self)

# Only Python calls `take_steps` and `take_steps_while`.
