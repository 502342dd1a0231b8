/* Iteration over small arrays of any layout, with loops in NumPy's order. */
#ifndef PYDISPATCH_ITERATION_H
#define PYDISPATCH_ITERATION_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#define COPY_ELEMENTS(bytes) \
    for (i = 0; i < n; i++) { \
        memcpy(target, source, bytes); \
        source += stride; \
        target += bytes; \
    } \
    return

static inline void copy_elements(const char* source, npy_intp stride, char* target, npy_intp n, npy_intp size) {
    npy_intp i;
    if (stride == size) {
        memcpy(target, source, n * size);
        return;
    }
    switch (size) { /* known to the compiler, a size is a move */
    case 1: COPY_ELEMENTS(1);
    case 2: COPY_ELEMENTS(2);
    case 4: COPY_ELEMENTS(4);
    case 8: COPY_ELEMENTS(8);
    default: COPY_ELEMENTS(16);
    }
}

#endif
