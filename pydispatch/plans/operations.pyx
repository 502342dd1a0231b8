# Operations: the NumPy loops for which we have code that gives the same bits.

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

# Loops that raise flags only by the processor's arithmetic. In other loops glibc's `feraiseexcept` may set overflow or
# underflow in the x87 unit. It sets division by zero and invalid where arithmetic sets them.
cdef frozenset OF_ARITHMETIC = frozenset(OPERATIONS) | frozenset((numpy.reciprocal, numpy.positive))
cdef frozenset WITHOUT_OVERFLOW = frozenset((numpy.sin, numpy.cos, numpy.tanh, numpy.arctan, numpy.log))


cdef bint find_operation(tuple loop, int* type, int* operation) except -1:
    """Return whether an operation does the work of a universal function's loop. Set which one, and on which type."""
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
    """Return whether a universal function's loop may raise flags that `flags_of_arithmetic` does not report."""
    for number in loop[2]:
        if PyTypeNum_ISCOMPLEX(number):
            return True
    return not (loop[1] in OF_ARITHMETIC or GLIBC and loop[1] in WITHOUT_OVERFLOW)


cdef frozenset UFUNCS_OF_NUMPY = frozenset([value for value in vars(numpy).values() if type(value) is numpy.ufunc])


cdef bint may_raise(tuple loop) except -1:
    """Return whether a universal function's loop may raise an exception. Of NumPy's, only powers of integers may."""
    return (loop[1] not in UFUNCS_OF_NUMPY
            or loop[1] is numpy.power and not PyTypeNum_ISFLOAT(loop[2][0]) and not PyTypeNum_ISCOMPLEX(loop[2][0]))


# Functions of C's library, which clears no flags, and arithmetic. NumPy's own loops may clear flags, so each of these
# is tested.
cdef frozenset OF_LIBRARY = frozenset((
    numpy.sin, numpy.cos, numpy.tan, numpy.arcsin, numpy.arccos, numpy.arctan, numpy.sinh, numpy.cosh, numpy.tanh,
    numpy.exp, numpy.exp2, numpy.expm1, numpy.log, numpy.log2, numpy.log10, numpy.log1p, numpy.sqrt, numpy.cbrt,
    numpy.add, numpy.subtract, numpy.multiply, numpy.divide))
cdef dict KEEPS_FLAGS = {}      # by loop: the result of the test


cdef bint keeps_flags(tuple loop, LoopCall* call) except -1:
    """Return whether flags that were raised before a call of a universal function's loop stay raised.

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
cdef dict CALLS_LIBRARY = {}    # by universal function: the result of the test
# The test calls a loop on one number at a time. It proves nothing for NumPy 2.0, whose loops gave other bits for some
# numbers of a plan on processors with AVX-512. There, plans call the loops themselves: slower, with NumPy's bits.
cdef bint IS_NUMPY_2_0 = numpy.__version__.startswith("2.0.")


cdef bint find_library_function(tuple loop, LoopCall* call, LibraryFunction* function) except -1:
    """Find the function of C's library that a universal function's loop calls for each element.

    It depends on the processor: NumPy has its own vector instructions for some functions.
    """
    number = LIBRARY_FUNCTIONS.get(loop[1])
    if number is None or loop[2][0] != cnp.NPY_DOUBLE or IS_NUMPY_2_0:
        return False
    function[0] = library_function(number)
    known = CALLS_LIBRARY.get(loop[1])
    if known is None:
        known = CALLS_LIBRARY[loop[1]] = loop_is_function(call, function[0])
    return known
