/* Fused loops: consecutive loops of a block that are carried out together, on some elements at a time, in registers. */
#ifndef PYDISPATCH_FUSED_LOOPS_H
#define PYDISPATCH_FUSED_LOOPS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"

/* Lists of macros that make code, which clang-format would break. */
/* clang-format off */

/* Code is a row of words: what to do with the elements that the registers hold, and the address of the other
   operand, elements in a row or one number. It is taken for 8 vectors of elements, then for the next ones. Each
   operation rounds as that of a loop by itself does: nothing is contracted, since operations are cases of their
   own. `follows` has all bits set where the address is that of the first of all elements, none where the vectors
   of the moment lie there. */
typedef struct { npy_intp code; char* address; npy_intp follows; } FusedWord;
enum { FUSED_END, FUSED_LEAVE, FUSED_STREAM, FUSED_TAKE, FUSED_TAKE_NUMBER, FUSED_NEGATIVE, FUSED_SQRT,
       FUSED_TWICE, FUSED_SQUARE, FUSED_ARITHMETIC };
/* where the other operand is, of an operation on two: to the right or to the left */
enum { RIGHT_ROW, RIGHT_NUMBER, LEFT_ROW, LEFT_NUMBER, N_SIDES };
#define FUSED_CODE(operation, side) (FUSED_ARITHMETIC + ((operation) - DO_ADD) * N_SIDES + (side))

#if defined(__x86_64__) && HAS_GNU_C
/* Each operation jumps to the next by itself: the processor guesses where to from where the jump is. */
#define FUSED_NOW operand = w->address + (at & w->follows); goto *labels[w->code];
#define FUSED_VECTOR(k, e) { enum { K = k }; e; }
#define FUSED_EACH(e) \
    FUSED_VECTOR(0, e) FUSED_VECTOR(1, e) FUSED_VECTOR(2, e) FUSED_VECTOR(3, e) \
    FUSED_VECTOR(4, e) FUSED_VECTOR(5, e) FUSED_VECTOR(6, e) FUSED_VECTOR(7, e) w++; FUSED_NOW
#define IN_MEMORY_NOW (*(Vector*)(operand + K * sizeof(Vector)))
/* so many bytes ahead: measured on arrays that no cache holds */
#define ASK_FOR_LATER __builtin_prefetch(operand + 2048 + K * sizeof(Vector))
#define NUMBER_NOW (*(Number*)w->address - (Vector){0})
#define FUSED_OPERATION(name, sign) \
    name##_right_row: FUSED_EACH(ASK_FOR_LATER; a[K] = a[K] sign IN_MEMORY_NOW) \
    name##_right_number: { Vector number = NUMBER_NOW; FUSED_EACH(a[K] = a[K] sign number) } \
    name##_left_row: FUSED_EACH(ASK_FOR_LATER; a[K] = IN_MEMORY_NOW sign a[K]) \
    name##_left_number: { Vector number = NUMBER_NOW; FUSED_EACH(a[K] = number sign a[K]) }
#define FUSED_LABELS(operation, name) \
    [FUSED_CODE(operation, RIGHT_ROW)] = &&name##_right_row, \
    [FUSED_CODE(operation, RIGHT_NUMBER)] = &&name##_right_number, \
    [FUSED_CODE(operation, LEFT_ROW)] = &&name##_left_row, \
    [FUSED_CODE(operation, LEFT_NUMBER)] = &&name##_left_number
#define DEFINE_FUSED(isa, bits, name, kind, root, move) \
    __attribute__((target(isa))) static void name(const FusedWord* first, npy_intp n) { \
        typedef kind Number __attribute__((may_alias, aligned(1))); \
        typedef kind Vector __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
        static const void* const labels[] = { \
            [FUSED_END] = &&end, [FUSED_LEAVE] = &&leave, [FUSED_STREAM] = &&stream, \
            [FUSED_TAKE] = &&take, [FUSED_TAKE_NUMBER] = &&take_number, [FUSED_NEGATIVE] = &&negative, \
            [FUSED_SQRT] = &&square_root, [FUSED_TWICE] = &&twice, [FUSED_SQUARE] = &&square, \
            FUSED_LABELS(DO_ADD, add), FUSED_LABELS(DO_SUBTRACT, subtract), \
            FUSED_LABELS(DO_MULTIPLY, multiply), FUSED_LABELS(DO_DIVIDE, divide) }; \
        Vector a[8] = {{0}}; \
        npy_intp at, stop = n * (npy_intp)sizeof(kind); \
        for (at = 0; at < stop; at += 8 * (npy_intp)sizeof(Vector)) { \
            const FusedWord* w = first; \
            char* operand; \
            FUSED_NOW \
            leave: FUSED_EACH(IN_MEMORY_NOW = a[K]) \
            stream: FUSED_EACH(__asm__ (move " %1, %0" : "=m"(IN_MEMORY_NOW) : "v"(a[K]))) \
            take: FUSED_EACH(ASK_FOR_LATER; a[K] = IN_MEMORY_NOW) \
            take_number: { Vector number = NUMBER_NOW; FUSED_EACH(a[K] = number) } \
            negative: FUSED_EACH(a[K] = -a[K]) \
            square_root: FUSED_EACH(__asm__ (root " %1, %0" : "=v"(a[K]) : "v"(a[K]))) \
            twice: FUSED_EACH(a[K] = a[K] + a[K]) \
            square: FUSED_EACH(a[K] = a[K] * a[K]) \
            FUSED_OPERATION(add, +) FUSED_OPERATION(subtract, -) \
            FUSED_OPERATION(multiply, *) FUSED_OPERATION(divide, /) \
            end:; \
        } }
DEFINE_FUSED("avx2", 256, fused_doubles, double, "vsqrtpd", "vmovntpd")
DEFINE_FUSED("avx2", 256, fused_floats, float, "vsqrtps", "vmovntps")
DEFINE_FUSED("avx512f", 512, wide_fused_doubles, double, "vsqrtpd", "vmovntpd")
DEFINE_FUSED("avx512f", 512, wide_fused_floats, float, "vsqrtps", "vmovntps")

/* Other threads see what was streamed before what comes after this. */
static void finish_streams(void) { __builtin_ia32_sfence(); }
static int bytes_of_fused(void) {      /* that the registers hold; 0 where there are no such loops */
    return __builtin_cpu_supports("avx512f") ? 512 : __builtin_cpu_supports("avx2") ? 256 : 0;
}
static void run_fused_words(const FusedWord* words, npy_intp n, int bytes, int is_double) {
    if (bytes == 512) (is_double ? wide_fused_doubles : wide_fused_floats)(words, n);
    else (is_double ? fused_doubles : fused_floats)(words, n);
}
#else
static int bytes_of_fused(void) { return 0; }
static void finish_streams(void) {}
static void run_fused_words(const FusedWord* words, npy_intp n, int bytes, int is_double) {}
#endif

#endif
