# Checks of plans: each step uses only the memory that it is given.

cdef double MOST_BYTES          # more bytes than an address can have
cdef frozenset ROW_LOOPS        # kinds of our own loops over rows and matrices
cdef tuple LAPACK_LOOPS         # those that call LAPACK
cdef frozenset LAYER_LOOPS      # kinds of loops over layers at positions, which cannot share rows

cdef struct Room:
    double first, after         # the bytes that may be used, relative to the address. None may if these are equal
    bint is_written             # whether they may be written to

cdef class PlanChecker:
    cdef Plan plan
    cdef tuple described
    cdef Room* rooms            # of each address in the plan's table
    cdef Room* used
    cdef list moving            # indices of the addresses that the steps so far have set
    cdef int check(self, Py_ssize_t i, Py_ssize_t after) except -1
    cdef int check_use(
        self, Py_ssize_t i, Py_ssize_t number, double first, double after, bint is_written=*
    ) except -1
    # check a loop. In blocks, check `rows` rows from `start`, for a thread whose memory is at `locals_from`
    cdef int check_loop(self, Py_ssize_t i, Py_ssize_t rows, Py_ssize_t start, Py_ssize_t locals_from) except -1
    cdef int share_room(self, Py_ssize_t one, Py_ssize_t other) except -1
    cdef int set_room(self, Py_ssize_t i, Py_ssize_t number, Room* room) except -1
    cdef int forget(self, Py_ssize_t known) except -1

cdef int check_shape(shape) except -1
cdef bint is_plain_dtype(dtype) except -1
cdef void widen_room(Room* room, double span) noexcept
cdef void narrow_room(Room* room, double span) noexcept
cdef void shift_room(Room* room, double offset) noexcept
cdef int check_arrays(tuple inputs, tuple constants, tuple results, tuple donated) except -1
# raise ValueError for a step that reads or writes outside its memory. Store the bytes of each operand in `used`, at the
# index of its buffer among the numbers of the plan
cdef int check_steps(Plan plan, tuple described, Room* used) except -1
cdef int n_written(tuple loop) except -1
cdef object itemsize_of_type(int number)
