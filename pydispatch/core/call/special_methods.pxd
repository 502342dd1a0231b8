# Methods of a Tensor that Python and NumPy call: operators of the language, `__array_ufunc__`, operators as methods.

cdef enum:
    ADD, IADD, SUB, ISUB, MUL, IMUL, TRUEDIV, ITRUEDIV, FLOORDIV, IFLOORDIV, MOD, IMOD
    POW, IPOW, SQUARE, ISQUARE, SQRT, ISQRT, RECIPROCAL, IRECIPROCAL, MATMUL, IMATMUL
    AND, IAND, OR, IOR, XOR, IXOR, LSHIFT, ILSHIFT, RSHIFT, IRSHIFT
    NEG, POS, ABS, INVERT, LT, LE, EQ, NE, GT, GE, GETITEM, INDEX, SETITEM, INDEX_PUT
    N_SPECIAL_METHODS

cdef class Method:
    cdef vectorcallfunc vectorcall
    cdef readonly object operator
    cdef readonly str __name__

cdef object binary(int method, left, right)    # call a special method with two operands
cdef object equality(int method, left, right)  # call EQ or NE, where text and numbers are not equal
# call an in-place special method, or for a scalar the one that returns a new value
cdef object augmented(int method, Tensor left, right)
# call POW or IPOW, or the function that NumPy calls for an exponent
cdef object power(int method, Tensor left, exponent)
cdef object call_method(int method, first, second, PyObject* third)
cdef object unary(int method, value)    # call a special method with one operand
cdef object divide_with_remainder(left, right)    # return the result of divmod
cdef object key_of_arrays(key)
