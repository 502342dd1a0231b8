# Operations: which loops of NumPy's are code of our own, and gives the same bits.

cdef dict OPERATIONS = {
    numpy.add: DO_ADD, numpy.subtract: DO_SUBTRACT, numpy.multiply: DO_MULTIPLY, numpy.divide: DO_DIVIDE,
    numpy.maximum: DO_MAXIMUM, numpy.minimum: DO_MINIMUM, numpy.less: DO_LESS, numpy.less_equal: DO_LESS_EQUAL,
    numpy.greater: DO_GREATER, numpy.greater_equal: DO_GREATER_EQUAL, numpy.equal: DO_EQUAL,
    numpy.not_equal: DO_NOT_EQUAL, numpy.negative: DO_NEGATIVE, numpy.absolute: DO_ABSOLUTE, numpy.sqrt: DO_SQRT,
    numpy.square: DO_SQUARE,
}
cdef dict OPERATIONS_ON_BOOLS = {
    numpy.logical_and: DO_AND, numpy.bitwise_and: DO_AND, numpy.logical_or: DO_OR, numpy.bitwise_or: DO_OR,
    numpy.logical_not: DO_NOT, numpy.invert: DO_NOT,
}
cdef frozenset ON_INTEGERS = frozenset([DO_ADD, DO_SUBTRACT, DO_MULTIPLY, DO_LESS, DO_LESS_EQUAL, DO_GREATER,
                                        DO_GREATER_EQUAL, DO_EQUAL, DO_NOT_EQUAL])

# Loops whose flags the processor's arithmetic raises. In other ones glibc's `feraiseexcept` may note an overflow or an
# underflow, in the x87 unit; a division by zero, and what is invalid, it notes where arithmetic does.
cdef frozenset OF_ARITHMETIC = frozenset(OPERATIONS) | frozenset((numpy.reciprocal, numpy.positive))
cdef frozenset WITHOUT_OVERFLOW = frozenset((numpy.sin, numpy.cos, numpy.tanh, numpy.arctan, numpy.log))


cdef bint find_operation(tuple loop, int* type, int* operation) except -1:
    """Is there an operation that does what a loop of a universal function does? Which, and on which type?"""
    cdef int number = loop[2][0]
    cdef dict operations = OPERATIONS_ON_BOOLS if number == cnp.NPY_BOOL else OPERATIONS
    if loop[1] not in operations or loop[2][loop[1].nin - 1] != number:
        return False
    operation[0] = operations[loop[1]]
    if number == cnp.NPY_DOUBLE:
        type[0] = OF_FLOAT64
    elif number == cnp.NPY_FLOAT:
        type[0] = OF_FLOAT32
    elif number == cnp.NPY_BOOL:
        type[0] = OF_BOOL
    elif number == cnp.NPY_INT64 or number == cnp.NPY_LONGLONG:
        type[0] = OF_INT64
        return operation[0] in ON_INTEGERS
    else:
        return False
    return True


cdef bint may_report_by_call(tuple loop) except -1:
    """May the loop of a universal function raise flags that `flags_of_arithmetic` does not tell?"""
    for number in loop[2]:
        if PyTypeNum_ISCOMPLEX(number):
            return True
    return not (loop[1] in OF_ARITHMETIC or GLIBC and loop[1] in WITHOUT_OVERFLOW)


cdef frozenset UFUNCS_OF_NUMPY = frozenset([value for value in vars(numpy).values() if type(value) is numpy.ufunc])


cdef bint may_raise(tuple loop) except -1:
    """May the loop of a universal function raise an exception? None of NumPy's does, but that of powers of integers."""
    return (loop[1] not in UFUNCS_OF_NUMPY
            or loop[1] is numpy.power and not PyTypeNum_ISFLOAT(loop[2][0]) and not PyTypeNum_ISCOMPLEX(loop[2][0]))


# Functions of C's library, which clears no flags, and arithmetic. Loops of NumPy's own may, so each of these is tried.
cdef frozenset OF_LIBRARY = frozenset((
    numpy.sin, numpy.cos, numpy.tan, numpy.arcsin, numpy.arccos, numpy.arctan, numpy.sinh, numpy.cosh, numpy.tanh,
    numpy.exp, numpy.exp2, numpy.expm1, numpy.log, numpy.log2, numpy.log10, numpy.log1p, numpy.sqrt, numpy.cbrt,
    numpy.add, numpy.subtract, numpy.multiply, numpy.divide))
cdef dict KEEPS_FLAGS = {}      # of loops: what a trial has shown


cdef bint keeps_flags(tuple loop, LoopCall* call) except -1:
    """Does a call of the loop of a universal function leave flags raised?

    Reading flags before each call would be safe, but takes as long as ten operations.
    """
    cdef int number = loop[2][0]
    if loop[1] not in OF_LIBRARY or number != cnp.NPY_DOUBLE and number != cnp.NPY_FLOAT or set(loop[2]) != {number}:
        return False
    found = KEEPS_FLAGS.get(loop)
    if found is None:
        found = KEEPS_FLAGS[loop] = loop_keeps_flags(call, loop[1].nin, number == cnp.NPY_FLOAT)
    return found


cdef dict LIBRARY_FUNCTIONS = {function: number for number, function in enumerate((
    numpy.sin, numpy.cos, numpy.tan, numpy.exp, numpy.log, numpy.tanh, numpy.arctan, numpy.sinh, numpy.cosh,
    numpy.expm1, numpy.log1p))}
cdef dict CALLS_LIBRARY = {}    # of universal functions: what a trial has shown
# A trial calls a loop on one number after the other. It proves nothing about NumPy 2.0, whose loops gave other bits for
# some numbers of a plan on processors with AVX-512. There, plans call the loops themselves: slower, with NumPy's bits.
cdef bint IS_NUMPY_2_0 = numpy.__version__.startswith("2.0.")


cdef LibraryFunction function_of_loop(tuple loop, LoopCall* call) except? NULL:
    """The function of C's library that the loop of a universal function calls for each element; NULL: none is known.

    It depends on the processor: NumPy has vector instructions of its own for some.
    """
    cdef LibraryFunction function
    number = LIBRARY_FUNCTIONS.get(loop[1])
    if number is None or loop[2][0] != cnp.NPY_DOUBLE or IS_NUMPY_2_0:
        return NULL
    function = library_function(number)
    known = CALLS_LIBRARY.get(loop[1])
    if known is None:
        known = CALLS_LIBRARY[loop[1]] = loop_is_function(call, function)
    return function if known else NULL
