/* Functions in C as universal functions. */
#ifndef PYDISPATCH_C_FUNCTIONS_H
#define PYDISPATCH_C_FUNCTIONS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"

typedef struct {
    AnyFunction function;
    void* user_data;
    int n_in, size, has_user_data;
} CFunction;

#define ELEMENT(T, k) (*(T*)(args[k] + i * steps[k]))

/* The loops over functions of single numbers: of one, two and three of them, without and with user data. */
#define POINTWISE_LOOP(NAME, T, N_IN, TYPES, VALUES) \
    static void NAME(char** args, npy_intp const* n, npy_intp const* steps, void* data) { \
        const CFunction* loop = (const CFunction*)data; \
        npy_intp i; \
        if (loop->has_user_data) \
            for (i = 0; i < n[0]; i++) \
                ELEMENT(T, N_IN) = ((T (*)(TYPES(T), void*))loop->function)(VALUES(T), loop->user_data); \
        else \
            for (i = 0; i < n[0]; i++) ELEMENT(T, N_IN) = ((T (*)(TYPES(T)))loop->function)(VALUES(T)); \
    }
#define TYPES_1(T) T
#define TYPES_2(T) T, T
#define TYPES_3(T) T, T, T
#define VALUES_1(T) ELEMENT(T, 0)
#define VALUES_2(T) ELEMENT(T, 0), ELEMENT(T, 1)
#define VALUES_3(T) ELEMENT(T, 0), ELEMENT(T, 1), ELEMENT(T, 2)

POINTWISE_LOOP(map_double_1, double, 1, TYPES_1, VALUES_1)
POINTWISE_LOOP(map_double_2, double, 2, TYPES_2, VALUES_2)
POINTWISE_LOOP(map_double_3, double, 3, TYPES_3, VALUES_3)
POINTWISE_LOOP(map_float_1, float, 1, TYPES_1, VALUES_1)
POINTWISE_LOOP(map_float_2, float, 2, TYPES_2, VALUES_2)
POINTWISE_LOOP(map_float_3, float, 3, TYPES_3, VALUES_3)

static const PyUFuncGenericFunction pointwise_loops[2][3] = {{map_float_1, map_float_2, map_float_3},
                                                             {map_double_1, map_double_2, map_double_3}};

static void call_on_block(const CFunction* loop, char** p, npy_intp n) {
    switch (2 * loop->n_in + loop->has_user_data) {
    case 2: ((void (*)(void*, void*, intptr_t))loop->function)(p[0], p[1], n); break;
    case 3: ((void (*)(void*, void*, intptr_t, void*))loop->function)(p[0], p[1], n, loop->user_data); break;
    case 4: ((void (*)(void*, void*, void*, intptr_t))loop->function)(p[0], p[1], p[2], n); break;
    case 5:
        ((void (*)(void*, void*, void*, intptr_t, void*))loop->function)(p[0], p[1], p[2], n, loop->user_data);
        break;
    case 6: ((void (*)(void*, void*, void*, void*, intptr_t))loop->function)(p[0], p[1], p[2], p[3], n); break;
    default:
        ((void (*)(void*, void*, void*, void*, intptr_t, void*))loop->function)(p[0], p[1], p[2], p[3], n,
                                                                                loop->user_data);
    }
}

#endif
