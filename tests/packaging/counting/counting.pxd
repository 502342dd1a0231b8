# `counting`: interpreter and wrapper.

cdef class Counting(Interpreter):       # of `counting`
    cdef readonly dict calls            # name of an operator -> how often it was called on a value of this interpreter

cdef class CountedTensor(Wrapper):      # a value that it watches
    pass
