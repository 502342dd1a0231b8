/* The elementary operations: one line each. No other place specifies what they compute.

   The code for few elements (operations.h), for rows in registers (fused_loops.h) and for wide vectors
   (wide_loops.h) is made from these lines. Plans also take floating-point flags (operations.pyx), costs and
   identities (compiling/arithmetic.py), and the text of numba's sources (compiling/expressions.py) from them. To add an
   operation, add a line to the list of its class. Plans have code for the operations in the lists of CODED, and call
   NumPy's loops for those in the lists of CALLED.

   OPERATION(name, class, by, kinds, expression, others, flags, cost, identity)

   name        NumPy's
   class       TWO         two floats or int64, or two vectors of floats
               TWO_FLOATS  two floats, or two vectors of floats
               ONE         a float, or a vector of floats
               ROOT        a float, or a vector of floats by an instruction, since C has no such expression
               ONE_BY_ONE  a float, or a vector of floats by another expression
               EXTREME     two floats, of which x is the result if `by` is true, else y. NumPy's loop decides if one
                           is nan, or both are zero
               COMPARISON  two floats or int64, or two vectors of numbers
               BITWISE     two bools, or two vectors of bools or integers
               LOGICAL     two bools, or two vectors of bools
               NOT         a bool, or a vector of bools. `invert` also takes integers
               SHIFT       two vectors of integers
               SIGN        a vector of floats
               LIBRARY     NumPy's loop may call a function of C's library, which code can call as well
               FUNCTION    NumPy's loop may call a function of C's library
               LOOP        NumPy's loop
   by          of TWO, TWO_FLOATS and ROOT the instruction for vectors, without its type. Of LIBRARY the function. Of
               COMPARISON and EXTREME the test for floats, which raises no flags for nan. Of the classes from BITWISE to
               SIGN, and of ONE_BY_ONE, the expression for vectors
   kinds       the kinds of dtypes with this expression: f, i (signed), u (unsigned), b, c. `_` if none has
   expression  in C, of x, y and z. Numba's sources have the same functions. T is the type of the result
   others      ON(kinds, expression) for other kinds. k is f if y is a known number, but not nan
   flags       ARITHMETIC if only the processor's arithmetic raises floating-point flags, GLIBC if that is so with
               glibc's function, else CALLS
   cost        about how many additions take as long
   identity    the number that leaves x as it is: EITHER(number) on either side, RIGHT(number) on the right */
#ifndef PYDISPATCH_ARITHMETIC_H
#define PYDISPATCH_ARITHMETIC_H

/* Lists of macros, which clang-format would break. */
/* clang-format off */
#define OF_TWO_NUMBERS(OPERATION) \
    OPERATION(add, TWO, vadd, fiuc, x + y, ON(b, x || y), ARITHMETIC, 1, ) \
    OPERATION(subtract, TWO, vsub, fiuc, x - y, , ARITHMETIC, 1, RIGHT(0)) \
    OPERATION(multiply, TWO, vmul, fiu, x * y, ON(b, x && y) ON(c, multiply_complex(x, y)), ARITHMETIC, 1, EITHER(1)) \
    OPERATION(divide, TWO_FLOATS, vdiv, f, x / y, ON(c, divide_complex(x, y)), ARITHMETIC, 1, RIGHT(1))

#define TESTS_OF_NUMBERS(OPERATION) \
    OPERATION(maximum, EXTREME, isgreater(x, y), f, maximum(x, y), \
        ON(k, y > x ? y : x) ON(iu, x >= y ? x : y) ON(b, x || y), ARITHMETIC, 1, ) \
    OPERATION(minimum, EXTREME, isless(x, y), f, minimum(x, y), \
        ON(k, y < x ? y : x) ON(iu, x <= y ? x : y) ON(b, x && y), ARITHMETIC, 1, ) \
    OPERATION(less, COMPARISON, isless(x, y), fiu, x < y, ON(b, y && !x), ARITHMETIC, 1, ) \
    OPERATION(less_equal, COMPARISON, islessequal(x, y), fiu, x <= y, ON(b, y || !x), ARITHMETIC, 1, ) \
    OPERATION(greater, COMPARISON, isgreater(x, y), fiu, x > y, ON(b, x && !y), ARITHMETIC, 1, ) \
    OPERATION(greater_equal, COMPARISON, isgreaterequal(x, y), fiu, x >= y, ON(b, x || !y), ARITHMETIC, 1, ) \
    OPERATION(equal, COMPARISON, x == y, fiub, x == y, ON(c, (x.real == y.real) && (x.imag == y.imag)), \
        ARITHMETIC, 1, ) \
    OPERATION(not_equal, COMPARISON, x != y, fiub, x != y, ON(c, (x.real != y.real) || (x.imag != y.imag)), \
        ARITHMETIC, 1, )

#define OF_ONE_NUMBER(OPERATION) \
    OPERATION(negative, ONE, , fic, -x, ON(u, T(0) - x), ARITHMETIC, 1, ) \
    OPERATION(square, ONE, , fiu, x * x, ON(c, multiply_complex(x, x)), ARITHMETIC, 1, )

#define BY_INSTRUCTION(OPERATION) \
    OPERATION(sqrt, ROOT, vsqrt, f, sqrt(x), , ARITHMETIC, 1, )

#define ONE_AT_A_TIME(OPERATION) \
    OPERATION(absolute, ONE_BY_ONE, without_sign(x), f, fabs(x), \
        ON(i, x < 0 ? -x : x) ON(ub, x) ON(c, hypot(x.real, x.imag)), ARITHMETIC, 1, )

#define OF_BOOLS(OPERATION) \
    OPERATION(logical_and, LOGICAL, x & y, b, x && y, ON(fiu, (x != 0) && (y != 0)), CALLS, 1, ) \
    OPERATION(logical_or, LOGICAL, x | y, b, x || y, ON(fiu, (x != 0) || (y != 0)), CALLS, 1, ) \
    OPERATION(bitwise_and, BITWISE, x & y, b, x && y, ON(iu, x & y), CALLS, 1, ) \
    OPERATION(bitwise_or, BITWISE, x | y, b, x || y, ON(iu, x | y), CALLS, 1, ) \
    OPERATION(bitwise_xor, BITWISE, x ^ y, b, (x != 0) != (y != 0), ON(iu, x ^ y), CALLS, 1, ) \
    OPERATION(logical_not, NOT, ~x, b, !x, ON(fiu, x == 0), CALLS, 1, ) \
    OPERATION(invert, NOT, ~x, b, !x, ON(iu, ~x), CALLS, 1, )

#define ON_VECTORS(OPERATION) \
    OPERATION(left_shift, SHIFT, shift_left(x, y), iu, left_shift(x, y, BITS), , CALLS, 1, ) \
    OPERATION(right_shift, SHIFT, shift_right(x, y), iu, right_shift(x, y, BITS), , CALLS, 1, ) \
    OPERATION(sign, SIGN, sign_of(x), f, sign(x), \
        ON(i, x > 0 ? 1 : x < 0 ? -1 : 0) ON(u, T(x != 0)), CALLS, 8, )

#define IN_LIBRARY(OPERATION) \
    OPERATION(sin, LIBRARY, sin, f, sin(x), , GLIBC, 8, ) \
    OPERATION(cos, LIBRARY, cos, f, cos(x), , GLIBC, 8, ) \
    OPERATION(tan, LIBRARY, tan, f, tan(x), , CALLS, 8, ) \
    OPERATION(exp, LIBRARY, exp, f, exp(x), , CALLS, 8, ) \
    OPERATION(log, LIBRARY, log, f, log(x), , GLIBC, 8, ) \
    OPERATION(tanh, LIBRARY, tanh, f, tanh(x), , GLIBC, 8, ) \
    OPERATION(arctan, LIBRARY, atan, f, atan(x), , GLIBC, 8, ) \
    OPERATION(sinh, LIBRARY, sinh, f, sinh(x), , CALLS, 8, ) \
    OPERATION(cosh, LIBRARY, cosh, f, cosh(x), , CALLS, 8, ) \
    OPERATION(expm1, LIBRARY, expm1, f, expm1(x), , CALLS, 8, ) \
    OPERATION(log1p, LIBRARY, log1p, f, log1p(x), , CALLS, 8, )

#define BY_LOOPS(OPERATION) \
    OPERATION(arcsin, FUNCTION, , f, asin(x), , CALLS, 8, ) \
    OPERATION(arccos, FUNCTION, , f, acos(x), , CALLS, 8, ) \
    OPERATION(exp2, FUNCTION, , f, exp2(x), , CALLS, 8, ) \
    OPERATION(log2, FUNCTION, , f, log2(x), , CALLS, 8, ) \
    OPERATION(log10, FUNCTION, , f, log10(x), , CALLS, 8, ) \
    OPERATION(cbrt, FUNCTION, , _, , , CALLS, 8, ) \
    OPERATION(arcsinh, LOOP, , f, asinh(x), , CALLS, 8, ) \
    OPERATION(arccosh, LOOP, , f, acosh(x), , CALLS, 8, ) \
    OPERATION(arctanh, LOOP, , f, atanh(x), , CALLS, 8, ) \
    OPERATION(arctan2, LOOP, , f, atan2(x, y), , CALLS, 8, ) \
    OPERATION(hypot, LOOP, , f, hypot(x, y), , CALLS, 8, ) \
    OPERATION(power, LOOP, , f, pow(x, y), , CALLS, 8, ) \
    OPERATION(float_power, LOOP, , f, pow(x, y), , CALLS, 8, ) \
    OPERATION(logaddexp, LOOP, , f, logaddexp(x, y), , CALLS, 8, ) \
    OPERATION(reciprocal, LOOP, , f, T(1) / x, , ARITHMETIC, 8, ) \
    OPERATION(positive, LOOP, , fiuc, x, , ARITHMETIC, 8, ) \
    OPERATION(conjugate, LOOP, , fiu, x, ON(c, complex(x.real, -x.imag)), CALLS, 8, ) \
    OPERATION(fabs, LOOP, , f, fabs(x), , CALLS, 8, ) \
    OPERATION(floor, LOOP, , f, floor(x), , CALLS, 8, ) \
    OPERATION(ceil, LOOP, , f, ceil(x), , CALLS, 8, ) \
    OPERATION(trunc, LOOP, , f, trunc(x), , CALLS, 8, ) \
    OPERATION(rint, LOOP, , f, rint(x), , CALLS, 8, ) \
    OPERATION(deg2rad, LOOP, , f, x * T(RADIAN), , CALLS, 8, ) \
    OPERATION(radians, LOOP, , f, x * T(RADIAN), , CALLS, 8, ) \
    OPERATION(rad2deg, LOOP, , f, x * T(DEGREE), , CALLS, 8, ) \
    OPERATION(degrees, LOOP, , f, x * T(DEGREE), , CALLS, 8, ) \
    OPERATION(copysign, LOOP, , f, copysign(x, y), , CALLS, 8, ) \
    OPERATION(signbit, LOOP, , f, copysign(1.0, x) < 0.0, ON(i, x < 0), CALLS, 8, ) \
    OPERATION(isnan, LOOP, , f, x != x, , CALLS, 8, ) \
    OPERATION(isinf, LOOP, , f, fabs(x) == INFINITY, , CALLS, 8, ) \
    OPERATION(isfinite, LOOP, , f, fabs(x) < INFINITY, , CALLS, 8, ) \
    OPERATION(fmax, LOOP, , f, (x >= y) || (y != y) ? x : y, ON(iu, x >= y ? x : y) ON(b, x || y), CALLS, 8, ) \
    OPERATION(fmin, LOOP, , f, (x <= y) || (y != y) ? x : y, ON(iu, x <= y ? x : y) ON(b, x && y), CALLS, 8, ) \
    OPERATION(clip, LOOP, , fiu, clip(x, y, z), , CALLS, 8, ) \
    OPERATION(fmod, LOOP, , f, fmod(x, y), ON(i, fmod_signed(x, y)) ON(u, remainder_unsigned(x, y)), CALLS, 8, ) \
    OPERATION(remainder, LOOP, , f, remainder_floor(x, y), \
        ON(i, remainder_signed(x, y)) ON(u, remainder_unsigned(x, y)), CALLS, 8, ) \
    OPERATION(floor_divide, LOOP, , f, floor_divide(x, y), \
        ON(i, divide_signed(x, y)) ON(u, divide_unsigned(x, y)), CALLS, 8, ) \
    OPERATION(logical_xor, LOOP, , fiu, (x != 0) != (y != 0), ON(b, x != y), CALLS, 1, )

#define CODED(OPERATION) \
    OF_TWO_NUMBERS(OPERATION) OF_ONE_NUMBER(OPERATION) BY_INSTRUCTION(OPERATION) ONE_AT_A_TIME(OPERATION) \
    TESTS_OF_NUMBERS(OPERATION) OF_BOOLS(OPERATION) ON_VECTORS(OPERATION)
#define CALLED(OPERATION) IN_LIBRARY(OPERATION) BY_LOOPS(OPERATION)

#endif
