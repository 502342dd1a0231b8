/* Fused loops: consecutive loops of a block that are carried out together, on some elements at a time, in registers. */
#ifndef PYDISPATCH_FUSED_LOOPS_H
#define PYDISPATCH_FUSED_LOOPS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"
#include "plans/src/operations.h"

/* Lists of macros that make code, which clang-format would break. */
/* clang-format off */

/* Code is a row of words: what to do with the elements that the registers hold, numbered as in operations.h, and the
   address of the other operand, elements in a row or one number. It is taken for 8 vectors of elements, then for the
   next ones. Each operation rounds as that of a loop by itself does: nothing is contracted, since operations are
   cases of their own. `follows` has all bits set where the address is that of the first of all elements, none where
   the vectors of the moment lie there. */
typedef struct { npy_intp code; char* address; npy_intp follows; } FusedWord;
#define CODE_OF_ROWS(operation, form) CODE(OF_FLOAT64, operation, form)      /* floats have the same codes */
static int is_fused(int operation) { return class_of(operation) <= ROOT; }

#if defined(__x86_64__) && HAS_GNU_C
/* Each operation jumps to the next by itself: the processor guesses where to from where the jump is. */
#define FUSED_NOW operand = w->address + (at & w->follows); goto *labels[w->code];
#define FUSED_VECTOR(k, ...) { enum { K = k }; __VA_ARGS__; }
#define FUSED_EACH(...) \
    FUSED_VECTOR(0, __VA_ARGS__) FUSED_VECTOR(1, __VA_ARGS__) FUSED_VECTOR(2, __VA_ARGS__) \
    FUSED_VECTOR(3, __VA_ARGS__) FUSED_VECTOR(4, __VA_ARGS__) FUSED_VECTOR(5, __VA_ARGS__) \
    FUSED_VECTOR(6, __VA_ARGS__) FUSED_VECTOR(7, __VA_ARGS__) w++; FUSED_NOW
#define IN_MEMORY_NOW (*(Vector*)(operand + K * sizeof(Vector)))
/* so many bytes ahead: measured on arrays that no cache holds */
#define ASK_FOR_LATER __builtin_prefetch(operand + 2048 + K * sizeof(Vector))
#define NUMBER_NOW (*(Number*)w->address - (Vector){0})
#define FUSED_OF_TWO(name, class, by, kinds, e, ...) \
    name##_RM: FUSED_EACH(ASK_FOR_LATER; PUT_OF_TWO(Vector, a[K], IN_MEMORY_NOW, a[K], e)) \
    name##_MR: FUSED_EACH(ASK_FOR_LATER; PUT_OF_TWO(Vector, IN_MEMORY_NOW, a[K], a[K], e)) \
    name##_RR: FUSED_EACH(PUT_OF_TWO(Vector, a[K], a[K], a[K], e)) \
    name##_VS: { Vector number = NUMBER_NOW; FUSED_EACH(PUT_OF_TWO(Vector, a[K], number, a[K], e)) } \
    name##_SV: { Vector number = NUMBER_NOW; FUSED_EACH(PUT_OF_TWO(Vector, number, a[K], a[K], e)) }
#define FUSED_OF_ONE(name, class, by, kinds, e, ...) name##_RM: FUSED_EACH(PUT_OF_ONE(Vector, a[K], a[K], e))
#define FUSED_ROOT(name, root) name##_RM: FUSED_EACH(__asm__ (root " %1, %0" : "=v"(a[K]) : "v"(a[K])))
#define FUSED_ROOT_pd(name, class, by, ...) FUSED_ROOT(name, #by "pd")
#define FUSED_ROOT_ps(name, class, by, ...) FUSED_ROOT(name, #by "ps")
#define FUSED_LABEL(name, form) [CODE_OF_ROWS(DO_##name, form)] = &&name##_##form,
#define LABEL_OF_FUSED_ONE(name, ...) FUSED_LABEL(name, RM)
#define LABELS_OF_FUSED_TWO(name, ...) \
    FUSED_LABEL(name, RM) FUSED_LABEL(name, MR) FUSED_LABEL(name, RR) FUSED_LABEL(name, VS) FUSED_LABEL(name, SV)
#define DEFINE_FUSED(isa, bits, name, kind, type) \
    __attribute__((target(isa))) static void name(const FusedWord* first, npy_intp n) { \
        typedef kind Number __attribute__((may_alias, aligned(1))); \
        typedef kind Vector __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
        static const void* const labels[] = { \
            [END_OF_CODE] = &&end, [TAKE_ROW] = &&take, [TAKE_NUMBER] = &&take_number, [LEAVE_ROW] = &&leave, \
            [STREAM_ROW] = &&stream, OF_TWO_NUMBERS(LABELS_OF_FUSED_TWO) OF_ONE_NUMBER(LABEL_OF_FUSED_ONE) \
            BY_INSTRUCTION(LABEL_OF_FUSED_ONE) }; \
        Vector a[8] = {{0}}; \
        npy_intp at, stop = n * (npy_intp)sizeof(kind); \
        for (at = 0; at < stop; at += 8 * (npy_intp)sizeof(Vector)) { \
            const FusedWord* w = first; \
            char* operand; \
            FUSED_NOW \
            leave: FUSED_EACH(IN_MEMORY_NOW = a[K]) \
            stream: FUSED_EACH(__asm__ ("vmovnt" #type " %1, %0" : "=m"(IN_MEMORY_NOW) : "v"(a[K]))) \
            take: FUSED_EACH(ASK_FOR_LATER; a[K] = IN_MEMORY_NOW) \
            take_number: { Vector number = NUMBER_NOW; FUSED_EACH(a[K] = number) } \
            OF_TWO_NUMBERS(FUSED_OF_TWO) OF_ONE_NUMBER(FUSED_OF_ONE) BY_INSTRUCTION(FUSED_ROOT_##type) \
            end:; \
        } }
DEFINE_FUSED("avx2", 256, fused_doubles, double, pd)
DEFINE_FUSED("avx2", 256, fused_floats, float, ps)
DEFINE_FUSED("avx512f", 512, wide_fused_doubles, double, pd)
DEFINE_FUSED("avx512f", 512, wide_fused_floats, float, ps)

/* Other threads see what was streamed before what comes after this. */
static void finish_streams(void) { __builtin_ia32_sfence(); }
static int bytes_of_fused(void) {      /* of a register, or 0 without such loops */
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
