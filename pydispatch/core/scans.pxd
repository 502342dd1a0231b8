# Steps of loops that are one operator.

cdef class Rows:            # an iterator
    cdef object array
    cdef Py_ssize_t i, n        # the next row; and how many there are

# Only Python calls `take_steps` and `take_steps_while`.
