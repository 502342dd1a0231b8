/* Kernels in C, for operators whose work in NumPy takes less time than a call of a Python function. */
#ifndef PYDISPATCH_KERNELS_H
#define PYDISPATCH_KERNELS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"

#define SHORT_VECTOR 11 /* elements of a vector for whose correlation NumPy also has a special loop */

/* The sum of products of the m numbers `taken` with those of `given` from each of n places on, in NumPy's order.
   Eight places are computed at once where the compiler has vector types. */
static void sum_windows(const double* given, const double* taken, int m, double* sums, npy_intp n) {
    npy_intp i = 0;
    int k;
#if HAS_GNU_C
    typedef double Pair __attribute__((vector_size(16), aligned(8), may_alias));
    Pair factors[SHORT_VECTOR];
    if (n >= 8)
        for (k = 0; k < m; k++) factors[k] = (Pair){taken[k], taken[k]};
    for (; i + 8 <= n; i += 8) {
        Pair a = {0, 0}, b = a, c = a, d = a;
        for (k = 0; k < m; k++) {
            const Pair* pairs = (const Pair*)(given + i + k);
            a += pairs[0] * factors[k];
            b += pairs[1] * factors[k];
            c += pairs[2] * factors[k];
            d += pairs[3] * factors[k];
        }
        Pair* found = (Pair*)(sums + i);
        found[0] = a;
        found[1] = b;
        found[2] = c;
        found[3] = d;
    }
#endif
    for (; i < n; i++) {
        double sum = 0;
        for (k = 0; k < m; k++) sum += given[i + k] * taken[k];
        sums[i] = sum;
    }
}

#endif
