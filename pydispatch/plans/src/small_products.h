/* Products of stacked matrices of 2 x 2 to 4 x 4 float64, each of which takes less time than a call of BLAS. */
#ifndef PYDISPATCH_SMALL_PRODUCTS_H
#define PYDISPATCH_SMALL_PRODUCTS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/positions.h"
#include "core/src/seam_compiler.h"

/* A macro that makes code, which clang-format would break. */
/* clang-format off */
#if defined(__x86_64__) && HAS_GNU_C
#define FOR_EACH(i, n) _Pragma("GCC unroll 4") for (i = 0; i < n; i++)
#define NUMBER_AT(matrix, i, j, k) (*(any_npy_double*)((matrix) + (i) * strides[k] + (j) * strides[k + 1]))
/* Sums begin with 0 and are contracted, as those of BLAS are. */
#define DEFINE_SMALL_PRODUCT(n) __attribute__((target("fma"))) LOOP_NAMED(small_product_##n) { \
    char *left = args[0], *right = args[1], *result = args[2]; \
    npy_intp at, end = extents[0]; \
    for (at = 0; at < end; at++, left += strides[0], right += strides[1], result += strides[2]) { \
        double x[n][n], y[n][n]; \
        int i, j, k; \
        FOR_EACH(i, n) FOR_EACH(j, n) { x[i][j] = NUMBER_AT(left, i, j, 3); y[i][j] = NUMBER_AT(right, i, j, 5); } \
        FOR_EACH(i, n) FOR_EACH(j, n) { \
            double sum = 0; \
            FOR_EACH(k, n) sum = __builtin_fma(x[i][k], y[k][j], sum); \
            NUMBER_AT(result, i, j, 7) = sum; } } }
DEFINE_SMALL_PRODUCT(2) DEFINE_SMALL_PRODUCT(3) DEFINE_SMALL_PRODUCT(4)

/* Libraries may add in another order: return the loop if it gives the same bits as NumPy's, for each layout. */
static LoopFunction small_product_loop(int n, LoopFunction numpys, void* data) {
    static signed char agrees[5] = {0, 0, 0, 0, 0};     /* 0: unknown */
    enum { N_TRIED = 64, LONGEST = N_TRIED * 16 };
    LoopFunction own = n == 2 ? small_product_2 : n == 3 ? small_product_3 : small_product_4;
    if (!agrees[n]) {
        double x[LONGEST], y[LONGEST], found[LONGEST], expected[LONGEST];
        npy_intp extents[4] = {N_TRIED, n, n, n}, size = 8 * n * n, row = 8 * n;
        npy_uint64 state = 1;
        int layout, i;
        for (i = 0; i < 2 * LONGEST; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            (i % 2 ? x : y)[i / 2] = (double)(state >> 11) / (double)(1ull << 52) - 1;
        }
        agrees[n] = __builtin_cpu_supports("fma") ? 1 : -1;
        for (layout = 0; layout < 4 && agrees[n] > 0; layout++) {
            npy_intp strides[9] = {size, size, size, layout & 1 ? 8 : row, layout & 1 ? row : 8,
                                   layout & 2 ? 8 : row, layout & 2 ? row : 8, row, 8};
            char *ours[3] = {(char*)x, (char*)y, (char*)found}, *theirs[3] = {(char*)x, (char*)y, (char*)expected};
            own(ours, extents, strides, NULL);
            numpys(theirs, extents, strides, data);
            if (memcmp(found, expected, N_TRIED * size)) agrees[n] = -1;
        }
    }
    return agrees[n] > 0 ? own : NULL;
}
#else
static LoopFunction small_product_loop(int n, LoopFunction numpys, void* data) {
    (void)n; (void)numpys; (void)data; return NULL; }
#endif
/* clang-format on */

#endif
