# Checks of plans: each step stays in the memory that it is given.

cdef double MOST_BYTES          # that an address has room for

cdef struct Room:
    double first, after         # of the bytes that may be used, from the address; nothing may where these are equal
    bint is_written             # may they be written to?

# raise ValueError or TypeError for the arrays of a plan that are none
cdef int check_arrays(tuple inputs, tuple constants, tuple results, tuple donated) except -1
# raise ValueError for a step that reads or writes outside of what is there; `used` gets the bytes of each operand, at
# the place of its buffer among the numbers of the plan
cdef int check_steps(Plan plan, tuple described, Room* used) except -1
# how many operands a loop writes to, the last ones
cdef int n_written(tuple loop) except -1

cdef enum:
    FIRST_REPEATED = 6          # of the numbers of a repetition: where what moves begins
