# What Python and NumPy call of a Tensor: operators of the language, `__array_ufunc__`, methods that are operators.

cdef enum:
    ADD, IADD, SUB, ISUB, MUL, IMUL, TRUEDIV, ITRUEDIV, FLOORDIV, IFLOORDIV, MOD, IMOD, POW, IPOW, MATMUL, IMATMUL
    AND, IAND, OR, IOR, XOR, IXOR, LSHIFT, ILSHIFT, RSHIFT, IRSHIFT
    NEG, POS, ABS, INVERT, LT, LE, EQ, NE, GT, GE, GETITEM, INDEX, SETITEM, INDEX_PUT
    N_SPECIAL_METHODS

cdef class Method:
    cdef vectorcallfunc vectorcall
    cdef readonly object operator
    cdef readonly str __name__

cdef object binary(int method, left, right)    # a special method of two operands
# call the operator behind one of the language, of two or three arguments
cdef object call_method(int method, first, second, PyObject* third)
cdef object unary(int method, value)    # a special method of one operand
cdef object divide_with_remainder(left, right)    # divmod
cdef object key_of_arrays(key)    # a key with arrays in place of sequences
cdef object without_sequence(value)    # an array in place of a sequence
