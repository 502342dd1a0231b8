/* Wide loops: arithmetic on many elements with wider instructions than NumPy's own loops have, and the same bits. */
#ifndef PYDISPATCH_WIDE_LOOPS_H
#define PYDISPATCH_WIDE_LOOPS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"
#include "core/src/loops.h"
#include "plans/src/steps.h"
#include "plans/src/operations.h"

/* Lists of macros that make code, which clang-format would break. */
/* clang-format off */

/* NumPy takes 256 bits at a time for arithmetic, 128 for square roots, and single numbers for the maximum of an
   array and a number. A wide loop has NumPy's own as its data, and leaves to it all that does not lie as it
   expects: elements next to each other, or one number that is repeated. */
#define LEAVE_TO_NUMPY(condition) \
    if (condition) { ((LoopFunction)function_at(data))(args, extents, strides, NULL); return; }

static inline int are_rows(char** args, npy_intp n, const npy_intp* strides, npy_intp size, int n_in) {
    int k, n_repeated = 0;
    if (strides[n_in] != size) return 0;
    for (k = 0; k < n_in; k++) {    /* nor may an element be overwritten before it is read */
        npy_intp distance = args[k] - args[n_in];
        n_repeated += strides[k] == 0;
        if (strides[k] == size ? distance && distance < n * size && -distance < n * size
                               : strides[k] || (distance > -size && distance < n * size)) return 0;
    }
    return n_repeated < n_in;
}

#if defined(__x86_64__) && HAS_GNU_C
#define WIDE_LOOP(isa, bits, name, kind, n_in) \
    __attribute__((target(isa))) LOOP_NAMED(name) { \
        typedef kind Vector __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
        typedef kind Number __attribute__((may_alias, aligned(1))); \
        enum { WIDTH = bits / 8 / sizeof(kind) }; \
        npy_intp i = 0, n = extents[0], whole = n - n % WIDTH, end = n - WIDTH; \
        Number *x = (Number*)args[0], *y = (Number*)args[1], *z = (Number*)args[n_in]; \
        Vector last = {0}, result; \
        LEAVE_TO_NUMPY(end < 0 || !are_rows(args, n, strides, sizeof(kind), n_in))
#define AT(p, i) (*(Vector*)(p + (i)))

/* If some elements are left, the last ones are a vector, too, with some of the one before. It is computed first,
   since the result may take the place of an operand. */
#define TAKE(instruction, left, right) { \
    if (n > whole) \
        __asm__ (instruction " %2, %1, %0" : "=v"(last) : "v"(left(x, end)), "v"(right(y, end))); \
    for (; i < whole; i += WIDTH) { \
        __asm__ (instruction " %2, %1, %0" : "=v"(result) : "v"(left(x, i)), "v"(right(y, i))); \
        AT(z, i) = result; } }
#define REPEATED(p, i) number
#define WIDE_LOOP_OF_TWO(name, kind, instruction) \
    WIDE_LOOP("avx512f", 512, name, kind, 2) \
        Vector number = (strides[0] ? *y : *x) - (Vector){0}; \
        if (!strides[0]) TAKE(instruction, REPEATED, AT) \
        else if (!strides[1]) TAKE(instruction, AT, REPEATED) \
        else TAKE(instruction, AT, AT) \
        if (n > whole) AT(z, end) = last; }
#define WIDE_LOOP_OF_ONE(isa, bits, name, kind, instruction) \
    WIDE_LOOP(isa, bits, name, kind, 1) \
        (void)y; \
        if (n > whole) __asm__ (instruction " %1, %0" : "=v"(last) : "v"(AT(x, end))); \
        for (; i < whole; i += WIDTH) { \
            __asm__ (instruction " %1, %0" : "=v"(result) : "v"(AT(x, i))); \
            AT(z, i) = result; } \
        if (n > whole) AT(z, end) = last; }
#define WIDE_OF_TWO(name, class, by, ...) \
    WIDE_LOOP_OF_TWO(wide_##name##_of_doubles, double, #by "pd") \
    WIDE_LOOP_OF_TWO(wide_##name##_of_floats, float, #by "ps")
#define WIDE_ROOT(name, class, by, ...) \
    WIDE_LOOP_OF_ONE("avx512f", 512, wide_##name##_of_doubles, double, #by "pd") \
    WIDE_LOOP_OF_ONE("avx512f", 512, wide_##name##_of_floats, float, #by "ps") \
    WIDE_LOOP_OF_ONE("avx2", 256, narrow_##name##_of_doubles, double, #by "pd") \
    WIDE_LOOP_OF_ONE("avx2", 256, narrow_##name##_of_floats, float, #by "ps")
OF_TWO_NUMBERS(WIDE_OF_TWO) BY_INSTRUCTION(WIDE_ROOT)

#define SUM_OR_LOOP(name, kind, of_two) \
    LOOP_NAMED(name) { \
        if (strides[0] || strides[2] || args[0] != args[2] || strides[1] != sizeof(kind) \
                || extents[0] <= SHORTEST_PART || !may_sum_npy_##kind((LoopFunction)function_at(data))) \
            of_two(args, extents, strides, data); \
        else *(any_npy_##kind*)args[2] += wide_sum_npy_##kind((any_npy_##kind*)args[1], extents[0]); }
SUM_OR_LOOP(add_or_sum_doubles, double, wide_add_of_doubles)
SUM_OR_LOOP(add_or_sum_floats, float, wide_add_of_floats)

#define CASE_OF_WIDTH(width, name) \
    case DO_##name: return is_double ? width##_##name##_of_doubles : width##_##name##_of_floats;
#define WIDE_CASE(name, ...) CASE_OF_WIDTH(wide, name)
#define NARROW_CASE(name, ...) CASE_OF_WIDTH(narrow, name)
static LoopFunction wide_loop(int operation, int is_double) {
    if (!__builtin_cpu_supports("avx512f")) {
        if (__builtin_cpu_supports("avx2")) switch (operation) { BY_INSTRUCTION(NARROW_CASE) }
        return NULL;
    }
    if (operation == DO_add) return is_double ? add_or_sum_doubles : add_or_sum_floats;
    switch (operation) { OF_TWO_NUMBERS(WIDE_CASE) BY_INSTRUCTION(WIDE_CASE) }
    return NULL;
}
#else
static LoopFunction wide_loop(int operation, int is_double) { return NULL; }
#endif

/* NumPy's loop for two arrays, on an array and a number that is laid out as one. */
enum { LAID_OUT = 256 };
#define DEFINE_LAID_OUT(name, kind) \
    LOOP_NAMED(name) { \
        static const npy_intp rows[3] = {sizeof(kind), sizeof(kind), sizeof(kind)}; \
        npy_intp i, n = extents[0], length = n < LAID_OUT ? n : LAID_OUT; \
        int repeated = strides[0] != 0; \
        kind numbers[LAID_OUT]; \
        LEAVE_TO_NUMPY(n < 16 || strides[repeated] || !are_rows(args, n, strides, sizeof(kind), 2)) \
        for (i = 0; i < length; i++) numbers[i] = *(kind*)args[repeated]; \
        for (i = 0; i < n; i += length) { \
            char* p[3] = {args[0] + i * sizeof(kind), args[1] + i * sizeof(kind), args[2] + i * sizeof(kind)}; \
            p[repeated] = (char*)numbers; \
            if (n - i < length) length = n - i; \
            ((LoopFunction)function_at(data))(p, &length, rows, NULL); } }
DEFINE_LAID_OUT(laid_out_double, double) DEFINE_LAID_OUT(laid_out_float, float)

/* Return whether a loop gives the same bits for a repeated number and for an array of it. */
#define DEFINE_TRIAL(name, kind, loop) \
    static int name(LoopFunction function) { \
        static const kind special[8] = {0, (kind)-0.0, 1, -1, INFINITY, -INFINITY, NAN, -NAN}; \
        kind x[64], z[64], others[64]; \
        npy_intp i, k, n = 64, strides[3] = {0, sizeof(kind), sizeof(kind)}; \
        int alike = 1; \
        for (i = 0; i < n; i++) x[i] = special[i % 8]; \
        for (i = 0; i < 16; i++) { \
            char *p[3], *q[3]; \
            for (k = 0; k < 2; k++) { \
                strides[k] = k == i % 2 ? 0 : sizeof(kind); \
                p[k] = q[k] = (char*)(k == i % 2 ? special + i / 2 : x); } \
            p[2] = (char*)z; q[2] = (char*)others; \
            function(p, &n, strides, NULL); \
            loop(q, &n, strides, address_of_function(function)); \
            alike = alike && memcmp(z, others, sizeof z) == 0; } \
        forget_errors(); \
        return alike; }
DEFINE_TRIAL(doubles_are_alike, double, laid_out_double) DEFINE_TRIAL(floats_are_alike, float, laid_out_float)
static LoopFunction laid_out_loop(LoopFunction function, int is_double) {       /* NULL: bits would differ */
    if (is_double) return doubles_are_alike(function) ? laid_out_double : NULL;
    return floats_are_alike(function) ? laid_out_float : NULL;
}

#endif
