# Operations: the NumPy loops for which we have code that gives the same bits.


cdef tuple read_table():
    """Return the lines of the table: (name, class, flags, cost, identity, expressions), as `_core.pyi` describes."""
    rows = []
    for line in TABLE_OF_ARITHMETIC.decode().splitlines():
        rows.append(tuple(line.split("\t")))
    return tuple(rows)


ELEMENTARY_OPERATIONS = read_table()
OPERATIONS = {getattr(numpy, row[0]): number for number, row in enumerate(ELEMENTARY_OPERATIONS)}


cdef tuple row_of(function):
    """Return (class, flags) of a universal function in the table, or empty strings."""
    number = OPERATIONS.get(function)
    return ("", "") if number is None else ELEMENTARY_OPERATIONS[number][1:3]


cdef bint find_operation(tuple loop, int* type, int* operation) except -1:
    """Return whether an operation does the work of a universal function's loop. Set which one, and on which type."""
    cdef int number = loop[2][0]
    found = OPERATIONS.get(loop[1])
    if found is None or found >= N_ON_ELEMENTS or loop[2][loop[1].nin - 1] != number:
        return False
    operation[0] = found
    if number == cnp.NPY_DOUBLE:
        type[0] = OF_FLOAT64
    elif number == cnp.NPY_FLOAT:
        type[0] = OF_FLOAT32
    elif number == cnp.NPY_BOOL:
        type[0] = OF_BOOL
    elif number == cnp.NPY_INT64 or number == cnp.NPY_LONGLONG:
        type[0] = OF_INT64
    else:
        return False
    return has_code(operation[0], type[0])


cdef bint may_report_by_call(tuple loop) except -1:
    """Return whether a universal function's loop may raise flags that `flags_of_arithmetic` does not report."""
    for number in loop[2]:
        if PyTypeNum_ISCOMPLEX(number):
            return True
    # The processor has the flags of arithmetic. In other loops glibc's `feraiseexcept` may set overflow or underflow in
    # the x87 unit. It sets division by zero and invalid where arithmetic sets them.
    flags = row_of(loop[1])[1]
    return not (flags == "ARITHMETIC" or GLIBC and flags == "GLIBC")


cdef bint is_exact(tuple loop) except -1:
    """Return whether a universal function's loop does a processor's arithmetic, which rounds alike in any layout."""
    for number in loop[2]:
        # complex products are contracted in some layouts only, and sums of float16 are rounded once
        if PyTypeNum_ISCOMPLEX(number) or number == NPY_HALF:
            return False
    kind, flags = row_of(loop[1])
    return flags == "ARITHMETIC" and kind != "EXTREME"


cdef frozenset UFUNCS_OF_NUMPY = frozenset([value for value in vars(numpy).values() if type(value) is numpy.ufunc])


cdef bint may_raise(tuple loop) except -1:
    """Return whether a universal function's loop may raise an exception. Of NumPy's, only powers of integers may."""
    return (loop[1] not in UFUNCS_OF_NUMPY
            or loop[1] is numpy.power and not PyTypeNum_ISFLOAT(loop[2][0]) and not PyTypeNum_ISCOMPLEX(loop[2][0]))


# Arithmetic clears no flags, nor does C's library. NumPy's own loops may, so each of these is tested.
cdef frozenset MAY_KEEP_FLAGS = frozenset(["TWO", "TWO_FLOATS", "ROOT", "LIBRARY", "FUNCTION"])
cdef dict KEEPS_FLAGS = {}      # by loop: the result of the test


cdef bint keeps_flags(tuple loop, LoopCall* call) except -1:
    """Return whether flags that were raised before a call of a universal function's loop stay raised.

    Reading flags before each call would be safe, but takes as long as ten operations.
    """
    cdef int number = loop[2][0]
    if number != cnp.NPY_DOUBLE and number != cnp.NPY_FLOAT or set(loop[2]) != {number} or (
            row_of(loop[1])[0] not in MAY_KEEP_FLAGS):
        return False
    found = KEEPS_FLAGS.get(loop)
    if found is None:
        found = KEEPS_FLAGS[loop] = loop_keeps_flags(call, loop[1].nin, number == cnp.NPY_FLOAT)
    return found


cdef dict CALLS_LIBRARY = {}    # by universal function: the result of the test
# The test calls a loop on one number at a time. It proves nothing for NumPy 2.0, whose loops gave other bits for some
# numbers of a plan on processors with AVX-512. There, plans call the loops themselves: slower, with NumPy's bits.
IS_NUMPY_2_0 = numpy.__version__.startswith("2.0.")


cdef bint find_library_function(tuple loop, LoopCall* call, LibraryFunction* function) except -1:
    """Find the function of C's library that a universal function's loop calls for each element.

    It depends on the processor: NumPy has its own vector instructions for some functions.
    """
    function[0] = library_function(OPERATIONS.get(loop[1], -1))
    if function[0] == NULL or loop[2][0] != cnp.NPY_DOUBLE or IS_NUMPY_2_0:
        return False
    known = CALLS_LIBRARY.get(loop[1])
    if known is None:
        known = CALLS_LIBRARY[loop[1]] = loop_is_function(call, function[0])
    return known
