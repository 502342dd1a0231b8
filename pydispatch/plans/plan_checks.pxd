# Checks of plans: each step uses only the memory that it is given.

cdef double MOST_BYTES          # more bytes than an address can have

cdef struct Room:
    double first, after         # the bytes that may be used, relative to the address. None may if these are equal
    bint is_written             # whether they may be written to

cdef int check_arrays(tuple inputs, tuple constants, tuple results, tuple donated) except -1
# raise ValueError for a step that reads or writes outside its memory. Store the bytes of each operand in `used`, at the
# index of its buffer among the numbers of the plan
cdef int check_steps(Plan plan, tuple described, Room* used) except -1
cdef int n_written(tuple loop) except -1

cdef enum:
    FIRST_REPEATED = 6          # index in the numbers of a repetition: the first that describes an address that moves
