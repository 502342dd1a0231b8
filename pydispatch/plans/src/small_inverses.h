/* Determinants and inverses of stacked matrices of 2 x 2 to 4 x 4 float64, with the bits of LAPACK's. A call of LAPACK
   for each takes two to six times as long. */
#ifndef PYDISPATCH_SMALL_INVERSES_H
#define PYDISPATCH_SMALL_INVERSES_H

#include <fenv.h>
#include <math.h>

#include "core/src/loops.h"
#include "plans/src/small_products.h"

/* A macro that makes code, which clang-format would break. */
/* clang-format off */
#if defined(__x86_64__) && HAS_GNU_C
#define WITH_FMA static inline __attribute__((always_inline, target("fma")))
#define SWAP(x, y) { double swapped = x; x = y; y = swapped; }

/* Factor a matrix by columns, as OpenBLAS does. Return 0 if NumPy's loop has to do it: a pivot is zero, nan, or far
   from 1. Infinities and nans anywhere reach the last pivot. */
WITH_FMA int factor_small(double a[4][4], int* rows, int n) {
    int column, i, k;
    for (column = 0; column < n; column++) {
        double *b = a[column], pivot;
        for (i = 0; i < column; i++) SWAP(b[i], b[rows[i]])
        for (i = 1; i < n; i++) {
            double sum = 0;
            for (k = 0; k < i && k < column; k++) sum = __builtin_fma(a[k][i], b[k], sum);
            b[i] -= sum;
        }
        rows[column] = column;
        for (i = column + 1; i < n; i++) if (fabs(b[i]) > fabs(b[rows[column]])) rows[column] = i;
        pivot = b[rows[column]];
        if (!(fabs(pivot) > 1e-280 && fabs(pivot) < 1e280)) return 0;
        for (k = 0; k <= column; k++) SWAP(a[k][column], a[k][rows[column]])
        for (i = column + 1; i < n; i++) b[i] *= 1 / pivot;
    }
    return 1;
}

WITH_FMA int find_determinant(double a[4][4], double x[4][4], int n) {
    int rows[4], i, is_negative = 0;
    double sum = 0;
    if (!factor_small(a, rows, n)) return 0;
    for (i = 0; i < n; i++) {
        is_negative ^= (rows[i] != i) ^ (a[i][i] < 0);
        sum += log(fabs(a[i][i]));
    }
    x[0][0] = (is_negative ? -1.0 : 1.0) * exp(sum);
    return 1;
}

WITH_FMA int find_inverse(double a[4][4], double x[4][4], int n) {
    int rows[4], column, i, k;
    double sum = 0, inverted[4];
    if (!factor_small(a, rows, n)) return 0;
    for (i = 0; i < n; i++) inverted[i] = 1 / a[i][i];
    for (column = 0; column < n; column++) {
        double* b = x[column];
        for (i = 0; i < n; i++) b[i] = i == column;
        for (i = 0; i < n; i++) SWAP(b[i], b[rows[i]])
        for (i = 0; i < n; i++) for (k = i + 1; k < n; k++) b[k] = __builtin_fma(-b[i], a[i][k], b[k]);
        for (i = n - 1; i >= 0; i--) {
            b[i] *= inverted[i];
            sum += fabs(b[i]);
            for (k = 0; k < i; k++)     /* pairs of rows are solved together, and the third row before them */
                b[k] = n == 3 && i == 2 ? b[k] - b[i] * a[i][k] : __builtin_fma(-b[i], a[i][k], b[k]);
        }
    }
    return sum < INFINITY;
}

/* NumPy's inverses leave no flag raised but that of an invalid operation, if a matrix is singular or it was raised. */
#define DEFINE_SMALL_INVERSE(name, find, n, is_inverse) \
    __attribute__((target("fma"))) LOOP_NAMED(name##_##n) { \
        npy_intp at, end = extents[0], one[2] = {1, n}; \
        int i, j, was_invalid = is_inverse && errors_of_flags(flags_of_arithmetic()) & 8; \
        for (at = 0; at < end; at++) { \
            char *from = args[0] + at * strides[0], *to = args[1] + at * strides[1]; \
            double a[4][4], x[4][4]; \
            FOR_EACH(i, n) FOR_EACH(j, n) a[j][i] = NUMBER_AT(from, i, j, 2); \
            if (!find(a, x, n)) { \
                char* p[2] = {from, to}; \
                if (is_inverse) forget_errors(); \
                ((LoopFunction)function_at(data))(p, one, strides, NULL); \
                was_invalid |= is_inverse && errors_of_flags(flags_of_arithmetic()) & 8; } \
            else if (!is_inverse) *(any_npy_double*)to = x[0][0]; \
            else FOR_EACH(i, n) FOR_EACH(j, n) NUMBER_AT(to, i, j, 4) = x[j][i]; } \
        if (is_inverse) forget_errors(); \
        if (was_invalid) feraiseexcept(FE_INVALID); }
#define DEFINE_SMALL_INVERSES(n) \
    DEFINE_SMALL_INVERSE(determinants, find_determinant, n, 0) DEFINE_SMALL_INVERSE(inverses, find_inverse, n, 1)
DEFINE_SMALL_INVERSES(2) DEFINE_SMALL_INVERSES(3) DEFINE_SMALL_INVERSES(4)

/* Return the loop, or NULL if LAPACK computes in another order. Half of the matrices have equal numbers and zeros. */
static LoopFunction small_inverse_loop(int n, int is_inverse, LoopFunction numpys) {
    static const LoopFunction own[2][3] = {{determinants_2, determinants_3, determinants_4},
                                           {inverses_2, inverses_3, inverses_4}};
    static signed char agrees[2][3] = {{0}};     /* 0: unknown */
    signed char* known = &agrees[is_inverse][n - 2];
    LoopFunction loop = own[is_inverse][n - 2];
    if (!*known) {
        enum { N_TRIED = 256, LONGEST = N_TRIED * 16 };
        double x[LONGEST], found[LONGEST] = {0}, expected[LONGEST] = {0};
        npy_intp extents[2] = {N_TRIED, n}, size = 8 * n * n, row = 8 * n, i;
        npy_intp strides[6] = {size, is_inverse ? size : 8, row, 8, row, 8};
        char *ours[2] = {(char*)x, (char*)found}, *theirs[2] = {(char*)x, (char*)expected};
        npy_uint64 state = 1;
        for (i = 0; i < LONGEST; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            x[i] = (double)(state >> 11) / (double)(1ull << 52) - 1;
            if (i < LONGEST / 2) x[i] = floor(4 * x[i]);
        }
        *known = -1;
        if (__builtin_cpu_supports("fma")) {
            loop(ours, extents, strides, address_of_function(numpys));
            numpys(theirs, extents, strides, NULL);
            if (!memcmp(found, expected, sizeof found)) *known = 1;
            forget_errors();
        }
    }
    return *known > 0 ? loop : NULL;
}
#else
static LoopFunction small_inverse_loop(int n, int is_inverse, LoopFunction numpys) { return NULL; }
#endif
/* clang-format on */

#endif
