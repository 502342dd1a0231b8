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

/* Code is a row of words. A word says what to do with the elements in registers, numbered as in operations.h, and has
   the address of an operand: elements in a row, or one number. Code runs on 8 vectors of elements at a time. The last
   ones are taken by 4 vectors, then one by one. Each operation rounds as that of a separate loop: nothing is
   contracted, since operations are separate cases. `step` is the distance from one element to the next, or 0 if the
   current vectors are at the address. `move` is the distance from one row to the next.

   All elements in registers have 8 bytes, or all have 4: floats or integers. A second row of registers holds the other
   operand of an operation without forms (VV). Bools, and elements of half the size, are in memory. A complex number is
   a pair of elements. */
typedef struct { npy_intp code; char* address; npy_intp step, move; } FusedWord;
enum { OF_FLOATS = OF_FLOAT64, OF_UNSIGNED = OF_FLOAT32, OF_SIGNED = OF_INT64 };     /* types, of either size */
#define CODE_OF_ROWS(type, operation, form) CODE(type, operation, form)

/* What an operation takes in fused loops. Of floats it may have a code for each form. */
typedef enum { NOT_FUSED, BY_FORMS, ON_ONE, ON_TWO, AS_TEST, ON_BOOLS, AS_CHOICE, AS_MOVE } FusedWay;
static FusedWay fused_way(int operation, int type) {
    switch (class_of(operation)) {
        case TWO: return type == OF_FLOATS ? BY_FORMS : type == OF_BOOL ? NOT_FUSED : ON_TWO;
        case TWO_FLOATS: return type == OF_FLOATS ? BY_FORMS : NOT_FUSED;
        case ONE: return type == OF_BOOL ? NOT_FUSED : ON_ONE;
        case ROOT: case ONE_BY_ONE: case SIGN: return type == OF_FLOATS ? ON_ONE : NOT_FUSED;
        case EXTREME: return type == OF_BOOL ? NOT_FUSED : ON_TWO;
        case COMPARISON: return type == OF_BOOL ? NOT_FUSED : AS_TEST;
        case BITWISE: return type == OF_BOOL ? ON_BOOLS : type == OF_FLOATS ? NOT_FUSED : ON_TWO;
        case LOGICAL: return type == OF_BOOL ? ON_BOOLS : NOT_FUSED;
        case NOT: return type == OF_BOOL ? ON_BOOLS
            : type != OF_FLOATS && operation == DO_invert ? ON_ONE : NOT_FUSED;
        case SHIFT: return type == OF_SIGNED || type == OF_UNSIGNED ? ON_TWO : NOT_FUSED;
    }
    return NOT_FUSED;
}
/* The same for complex numbers. Sets the code, of BY_FORMS the operation. Conjugates change the sign of every second
   part: the other operand has that bit. */
enum { CONJUGATE_PAIRS = CODE_OF_ROWS(OF_SIGNED, DO_bitwise_xor, VV) };
static FusedWay fused_way_of_pairs(int operation, int* code) {
    *code = operation;
    switch (operation) {
        case DO_add: case DO_subtract: return BY_FORMS;
        case DO_multiply: *code = MULTIPLY_PAIRS; return ON_TWO;
        case DO_square: *code = MULTIPLY_PAIRS; return ON_ONE;
        case DO_negative: *code = CODE_OF_ROWS(OF_FLOATS, DO_negative, VV); return ON_ONE;
        case DO_conjugate: *code = CONJUGATE_PAIRS; return ON_ONE;
    }
    return NOT_FUSED;
}

#if defined(__x86_64__) && HAS_GNU_C
/* Each operation jumps to the next by itself: the processor guesses where to from where the jump is. */
#define FUSED_NOW operand = w->address + at * w->step; goto *(&&end + labels[w->code]);
#define FUSED_VECTOR(k, ...) { enum { K = k }; if (k < AT_ONCE) { __VA_ARGS__; } }
#define FUSED_EACH(...) \
    FUSED_VECTOR(0, __VA_ARGS__) FUSED_VECTOR(1, __VA_ARGS__) FUSED_VECTOR(2, __VA_ARGS__) \
    FUSED_VECTOR(3, __VA_ARGS__) FUSED_VECTOR(4, __VA_ARGS__) FUSED_VECTOR(5, __VA_ARGS__) \
    FUSED_VECTOR(6, __VA_ARGS__) FUSED_VECTOR(7, __VA_ARGS__) w++; FUSED_NOW
#define ROW_OF(vectors, address) (*(vectors*)((address) + K * sizeof(vectors)))
#define IN_MEMORY_NOW ROW_OF(Vector, operand)
/* as integers, since an operation on floats may change the bits of a nan */
#define NUMBER_NOW (Vector)(*(Int*)w->address - (Ints){0})

/* The operations, by their class. */
#define FUSED_TWO(name, by, kinds, e, ...) \
    FUSED_TWO_FLOATS(name, by, kinds, e, ) FUSED_ON(Ints, name##_OF_SIGNED, e)
#define FUSED_TWO_FLOATS(name, by, kinds, e, ...) \
    name##_RM: FUSED_EACH(PUT_OF_TWO(Vector, a[K], IN_MEMORY_NOW, a[K], e)) \
    name##_MR: FUSED_EACH(PUT_OF_TWO(Vector, IN_MEMORY_NOW, a[K], a[K], e)) \
    name##_RR: FUSED_EACH(PUT_OF_TWO(Vector, a[K], a[K], a[K], e)) \
    name##_VS: { Vector number = NUMBER_NOW; FUSED_EACH(PUT_OF_TWO(Vector, a[K], number, a[K], e)) } \
    name##_SV: { Vector number = NUMBER_NOW; FUSED_EACH(PUT_OF_TWO(Vector, number, a[K], a[K], e)) }
#define FUSED_ON(kind, label, e) label: FUSED_EACH(kind x = (kind)a[K], y = (kind)b[K]; (void)y; a[K] = (Vector)(e))
#define FUSED_ONE(name, by, kinds, e, ...) \
    FUSED_ON(Vector, name##_OF_FLOATS, e) FUSED_ON(Ints, name##_OF_SIGNED, e)
#define FUSED_ROOT(name, by, ...) \
    name##_OF_FLOATS: FUSED_EACH( \
        if (OF_DOUBLES) __asm__ (#by "pd %1, %0" : "=v"(a[K]) : "v"(a[K])); \
        else __asm__ (#by "ps %1, %0" : "=v"(a[K]) : "v"(a[K])))
#define FUSED_ONE_BY_ONE(name, by, ...) FUSED_ON(Vector, name##_OF_FLOATS, by)
#define FUSED_SIGN(name, by, ...) FUSED_ON(Vector, name##_OF_FLOATS, by)
#define FUSED_SHIFT(name, by, ...) FUSED_ON(Ints, name##_OF_SIGNED, by) FUSED_ON(Words, name##_OF_UNSIGNED, by)
#define FUSED_BITWISE(name, by, ...) FUSED_ON(Ints, name##_OF_SIGNED, by) FUSED_LOGICAL(name, by, )
#define FUSED_LOGICAL(name, by, ...) \
    name##_OF_BOOL: { \
        char *one = operand, *other = w[1].address + at * w[1].step, *result = w[2].address + at * w[2].step; \
        w += 2; \
        FUSED_EACH(Bools x = ROW_OF(Bools, one) != 0, y = ROW_OF(Bools, other) != 0; (void)y; \
                   ROW_OF(Bools, result) = (by) & 1) }
#define FUSED_NOT FUSED_BITWISE
#define FUSED_TEST(kind, label, e) \
    label: FUSED_EACH(kind x = (kind)a[K], y = (kind)b[K]; PUT_TRUTHS(e))
/* Bytes of 0 or 1. GCC 12 would take the elements of narrow vectors one by one: here their bits are spread. */
#define PUT_TRUTHS(mask) { \
    Ints truths = (Ints)(mask); \
    npy_uint64 spread = 0x0101010101010101; \
    if (IS_WIDE) ROW_OF(Bools, operand) = __builtin_convertvector(truths & 1, Bools); \
    else { \
        int truth; \
        if (OF_DOUBLES) __asm__ ("vmovmskpd %1, %0" : "=r"(truth) : "x"(truths)); \
        else __asm__ ("vmovmskps %1, %0" : "=r"(truth) : "x"(truths)); \
        spread = ((spread * (npy_uint64)truth & 0x8040201008040201) + 0x7f7f7f7f7f7f7f7f) >> 7 & spread; \
        memcpy(operand + K * WIDTH, &spread, WIDTH); } }
#define FUSED_COMPARISON(name, by, kinds, e, ...) \
    name##_OF_FLOATS: FUSED_EACH(Ints is; QUIETLY(QUIET_##name, is, a[K], b[K]); PUT_TRUTHS(is)) \
    FUSED_TEST(Ints, name##_OF_SIGNED, e) FUSED_TEST(Words, name##_OF_UNSIGNED, e)
/* Either of two numbers that are alike, to the bit. NumPy's loop decides on other zeros, and nan. */
#define FUSED_EXTREME(name, ...) \
    name##_OF_FLOATS: FUSED_EACH( \
        Ints first, last; Vector x = a[K], y = b[K]; \
        QUIETLY(QUIET_##name, first, x, y); QUIETLY(QUIET_##name, last, y, x); \
        is_ordinary &= first | last | ((Ints)x == (Ints)y); \
        a[K] = CHOSEN(first, x, y)) \
    FUSED_ON(Ints, name##_OF_SIGNED, CHOSEN(FIRST_##name(x, y), x, y)) \
    FUSED_ON(Words, name##_OF_UNSIGNED, CHOSEN(FIRST_##name(x, y), x, y))
#define FUSED_OPERATION(name, class, ...) FUSED_##class(name, __VA_ARGS__)
#define CHOSEN(mask, x, y) (Vector)(((mask) & (Ints)(x)) | (~(mask) & (Ints)(y)))
#define FIRST_maximum(x, y) ((x) > (y))
#define FIRST_minimum(x, y) ((x) < (y))
#define QUIET_maximum "gt_oq"
#define QUIET_minimum "lt_oq"
#define QUIET_less "lt_oq"
#define QUIET_less_equal "le_oq"
#define QUIET_greater "gt_oq"
#define QUIET_greater_equal "ge_oq"
#define QUIET_equal "eq_oq"
#define QUIET_not_equal "neq_uq"
/* Tests that raise no flags for nan. C's own operators do. */
#define QUIETLY(test, result, x, y) \
    if (IS_WIDE && OF_DOUBLES) QUIET_WIDE(test "pd", "q", result, x, y); \
    else if (IS_WIDE) QUIET_WIDE(test "ps", "d", result, x, y); \
    else if (OF_DOUBLES) __asm__ ("vcmp" test "pd %2, %1, %0" : "=v"(result) : "v"(x), "v"(y)); \
    else __asm__ ("vcmp" test "ps %2, %1, %0" : "=v"(result) : "v"(x), "v"(y))
#define QUIET_WIDE(test, size, result, x, y) \
    __asm__ ("vcmp" test " %2, %1, %%k1\n\tvpmovm2" size " %%k1, %0" : "=v"(result) : "v"(x), "v"(y) : "k1")
#define SIGN_BIT ((Ints){0} + ((Int)1 << (FUSED_BITS - 1)))
#define FUSED_BITS (8 * (Int)sizeof(Int))
#define without_sign(x) (Vector)((Ints)(x) & ~SIGN_BIT)
#define sign_of(x) ({ \
    Vector zero = {0}; Ints above, below, is_number; \
    QUIETLY("gt_oq", above, x, zero); QUIETLY("lt_oq", below, x, zero); QUIETLY("ord_q", is_number, x, x); \
    CHOSEN(is_number, (above & (Ints)(zero + 1)) | (below & (Ints)(zero - 1)), x); })
#define IS_SHORT(y) ((Words)(y) < (UnsignedInt)FUSED_BITS)      /* NumPy shifts by more bits to 0 or -1 */
#define shift_left(x, y) ((x << (y & (FUSED_BITS - 1))) & (__typeof__(x))IS_SHORT(y))
#define shift_right(x, y) (((__typeof__(x)){0} - 1)[0] < 0 \
    ? (Vector)(x >> ((y & (__typeof__(x))IS_SHORT(y)) | ((FUSED_BITS - 1) & (__typeof__(x))~IS_SHORT(y)))) \
    : (Vector)((x >> (y & (FUSED_BITS - 1))) & (__typeof__(x))IS_SHORT(y)))

/* Where the code for each is: a distance, since an address is a relocation of 24 bytes, for the loader. */
#define JUMP(label) &&label - &&end
#define FUSED_LABEL(type, name, form, label) [CODE_OF_ROWS(type, DO_##name, form)] = JUMP(name##_##label),
#define FUSED_LABEL_OF(type, name) FUSED_LABEL(type, name, VV, type)
#define FUSED_LABELS_OF_TWO_FLOATS(name) \
    FUSED_LABEL(OF_FLOATS, name, RM, RM) FUSED_LABEL(OF_FLOATS, name, MR, MR) FUSED_LABEL(OF_FLOATS, name, RR, RR) \
    FUSED_LABEL(OF_FLOATS, name, VS, VS) FUSED_LABEL(OF_FLOATS, name, SV, SV)
#define FUSED_LABELS_OF_TWO_NUMBERS(name) FUSED_LABELS_OF_TWO_FLOATS(name) FUSED_LABELS_OF_INTS(name)
#define FUSED_LABELS_OF_INTS(name) \
    FUSED_LABEL_OF(OF_SIGNED, name) FUSED_LABEL(OF_UNSIGNED, name, VV, OF_SIGNED)
#define FUSED_LABELS_OF_FLOATS(name) FUSED_LABEL_OF(OF_FLOATS, name)
#define FUSED_LABELS_OF_NUMBERS(name) FUSED_LABELS_OF_FLOATS(name) FUSED_LABELS_OF_INTS(name)
#define FUSED_LABELS_OF_BOTH(name) FUSED_LABEL_OF(OF_SIGNED, name) FUSED_LABEL_OF(OF_UNSIGNED, name)
#define FUSED_LABELS_OF_BOOLS(name) FUSED_LABEL_OF(OF_BOOL, name)
#define FUSED_LABELS(name, class, ...) FUSED_LABELS_OF_CLASS_##class(name)
#define FUSED_LABELS_OF_CLASS_TWO FUSED_LABELS_OF_TWO_NUMBERS
#define FUSED_LABELS_OF_CLASS_TWO_FLOATS FUSED_LABELS_OF_TWO_FLOATS
#define FUSED_LABELS_OF_CLASS_ONE FUSED_LABELS_OF_NUMBERS
#define FUSED_LABELS_OF_CLASS_ROOT FUSED_LABELS_OF_FLOATS
#define FUSED_LABELS_OF_CLASS_ONE_BY_ONE FUSED_LABELS_OF_FLOATS
#define FUSED_LABELS_OF_CLASS_SIGN FUSED_LABELS_OF_FLOATS
#define FUSED_LABELS_OF_CLASS_COMPARISON(name) FUSED_LABELS_OF_FLOATS(name) FUSED_LABELS_OF_BOTH(name)
#define FUSED_LABELS_OF_CLASS_EXTREME(name) FUSED_LABELS_OF_FLOATS(name) FUSED_LABELS_OF_BOTH(name)
#define FUSED_LABELS_OF_CLASS_BITWISE(name) FUSED_LABELS_OF_INTS(name) FUSED_LABELS_OF_BOOLS(name)
#define FUSED_LABELS_OF_CLASS_LOGICAL FUSED_LABELS_OF_BOOLS
#define FUSED_LABELS_OF_CLASS_NOT FUSED_LABELS_OF_CLASS_BITWISE
#define FUSED_LABELS_OF_CLASS_SHIFT FUSED_LABELS_OF_BOTH

#define CONVERTED(value, to) __builtin_convertvector(value, to)
/* GCC 12 takes such elements one by one. */
#define WIDEN(instruction, result, bytes) \
    if (OF_DOUBLES) __asm__ (instruction "q %1, %0" : "=v"(result) : "m"(ROW_OF(bytes, operand))); \
    else __asm__ (instruction "d %1, %0" : "=v"(result) : "m"(ROW_OF(bytes, operand)))
#define CONVERT(given, result) \
    if (IS_WIDE || !OF_DOUBLES) result = CONVERTED(given, __typeof__(result)); \
    else for (i = 0; i < WIDTH; i++) result[i] = (__typeof__(result[0]))given[i]  /* GCC 12 fails to compile others */
/* Every second element of two vectors in memory, of which `x` is the first. The other one is read one element earlier,
   since nothing behind the last element may be read. */
#define LAST_OF_TWO "m"(ROW_OF(Vector, operand + (K + 1) * sizeof(Vector) - sizeof(Int)))
#define EVERY_SECOND(x, type) \
    if (IS_WIDE) __asm__ ("vpermt2" #type " %2, %1, %0" : "+v"(x) : "v"(*(const Ints*)order), LAST_OF_TWO); \
    else if (OF_DOUBLES) __asm__ ("vshufpd $10, %1, %0, %0\n\tvpermpd $216, %0, %0" : "+x"(x) : LAST_OF_TWO); \
    else __asm__ ("vshufps $216, %1, %0, %0\n\tvpermpd $216, %0, %0" : "+x"(x) : LAST_OF_TWO)
#define ORDER_pd {0, 2, 4, 6, 9, 11, 13, 15}
#define ORDER_ps {0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31}
/* NumPy's products of complex numbers round once less than its products of parts. */
#define MULTIPLY(x, y, parts, swapped, firsts, type) { \
    Vector seconds, others; \
    __asm__ ("vpermil" #type " $" #parts ", %0, %1\n\tvpermil" #type " $" #swapped ", %3, %2\n\t" \
             "vmul" #type " %2, %1, %1\n\t" firsts " %0, %0\n\tvfmaddsub213" #type " %1, %3, %0" \
             : "+v"(x), "=&v"(seconds), "=&v"(others) : "v"(y)); }
#define MULTIPLY_pd(x, y) MULTIPLY(x, y, 255, 85, "vmovddup", pd)
#define MULTIPLY_ps(x, y) MULTIPLY(x, y, 245, 177, "vmovsldup", ps)
#define TWICE(widen) \
    __asm__ ("vmovq %1, %x0\n\tvpunpcklbw %x0, %x0, %x0\n\t" widen " %x0, %0" : "=v"(bools) : "r"(bytes))
#define DEFINE_FUSED(isa, bits, at_once, name, kind, half, int_kind, half_int, type) \
    __attribute__((target(isa))) static int name(const FusedWord* first, npy_intp start, npy_intp stop) { \
        enum { AT_ONCE = at_once, IS_WIDE = bits == 512, OF_DOUBLES = sizeof(kind) == 8 }; \
        enum { WIDTH = bits / 8 / sizeof(kind) }; \
        typedef npy_##int_kind Int __attribute__((may_alias, aligned(1))); \
        typedef npy_u##int_kind UnsignedInt; \
        typedef kind Vector __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
        typedef npy_##int_kind Ints __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
        typedef npy_u##int_kind Words __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
        typedef half Halves __attribute__((vector_size(sizeof(half) * WIDTH), aligned(1), may_alias)); \
        typedef half_int HalfInts __attribute__((vector_size(sizeof(half_int) * WIDTH), aligned(1), may_alias)); \
        typedef signed char Bools __attribute__((vector_size(WIDTH), aligned(1), may_alias)); \
        static const int labels[] = { \
            [END_OF_CODE] = JUMP(end), [TAKE_ROW] = JUMP(take), [TAKE_NUMBER] = JUMP(take_number), \
            [LEAVE_ROW] = JUMP(leave), [STREAM_ROW] = JUMP(stream), [FETCH_ROW] = JUMP(fetch), \
            [OTHER_ROW] = JUMP(other), [OTHER_NUMBER] = JUMP(other_number), [OTHER_SAME] = JUMP(other_same), \
            [CHOOSE] = JUMP(choose), [CHOOSE_OTHER] = JUMP(choose_other), [CHOOSE_ONE] = JUMP(choose_one), \
            [TAKE_BOOLS] = JUMP(take_bools), [TAKE_BOOLS_AS_FLOATS] = JUMP(take_bools_as_floats), \
            [TAKE_BYTES] = JUMP(take_bytes), [TAKE_HALF_FLOATS] = JUMP(take_half_floats), \
            [TAKE_HALF_INTS] = JUMP(take_half_ints), [TO_FLOATS] = JUMP(to_floats), [TO_INTS] = JUMP(to_ints), \
            [LEAVE_TRUTH_OF_FLOATS] = JUMP(leave_truth_of_floats), [LEAVE_TRUTH_OF_INTS] = JUMP(leave_truth_of_ints), \
            [LEAVE_BYTES] = JUMP(leave_bytes), [LEAVE_HALF_FLOATS] = JUMP(leave_half_floats), \
            [LEAVE_HALF_INTS] = JUMP(leave_half_ints), [TAKE_APART] = JUMP(take_apart), \
            [MULTIPLY_PAIRS] = JUMP(multiply_pairs), [CHOOSE_PAIRS] = JUMP(choose_pairs), CODED(FUSED_LABELS) }; \
        static const Int order[] = ORDER_##type; \
        Vector a[8] = {{0}}, b[8] = {{0}}; \
        Ints is_ordinary = (Ints){0} - 1; \
        npy_intp at, i; \
        int ordinary = 1; \
        for (at = start; at < stop; at += AT_ONCE * WIDTH) { \
            const FusedWord* w = first; \
            char* operand; \
            FUSED_NOW \
            leave: FUSED_EACH(IN_MEMORY_NOW = a[K]) \
            fetch: FUSED_EACH(__builtin_prefetch(operand + 2048 + K * sizeof(Vector)))      /* measured */ \
            stream: FUSED_EACH(__asm__ ("vmovnt" #type " %1, %0" : "=m"(IN_MEMORY_NOW) : "v"(a[K]))) \
            take: FUSED_EACH(a[K] = IN_MEMORY_NOW) \
            take_number: { Vector number = NUMBER_NOW; FUSED_EACH(a[K] = number) } \
            other: FUSED_EACH(b[K] = IN_MEMORY_NOW) \
            other_number: { Vector number = NUMBER_NOW; FUSED_EACH(b[K] = number) } \
            other_same: FUSED_EACH(b[K] = a[K]) \
            choose: FUSED_EACH( \
                Ints bools; WIDEN("vpmovsxb", bools, Bools); a[K] = CHOSEN(bools != 0, a[K], b[K])) \
            choose_other: FUSED_EACH( \
                Ints bools; WIDEN("vpmovsxb", bools, Bools); a[K] = CHOSEN(bools != 0, b[K], a[K])) \
            choose_one: if (*operand) { w++; FUSED_NOW } FUSED_EACH(a[K] = b[K]) \
            take_bools: FUSED_EACH( \
                Ints bools; WIDEN("vpmovsxb", bools, Bools); a[K] = (Vector)((bools != 0) & 1)) \
            take_bools_as_floats: FUSED_EACH( \
                Ints bools; Vector one = (Vector){0} + 1; \
                WIDEN("vpmovsxb", bools, Bools); a[K] = (Vector)((bools != 0) & (Ints)one)) \
            take_bytes: FUSED_EACH(Ints bytes; WIDEN("vpmovzxb", bytes, Bools); a[K] = (Vector)bytes) \
            take_half_floats: FUSED_EACH( \
                if (OF_DOUBLES) __asm__ ("vcvtps2pd %1, %0" : "=v"(a[K]) : "m"(ROW_OF(Halves, operand)))) \
            take_half_ints: FUSED_EACH( \
                if (OF_DOUBLES) __asm__ ("vpmovsxdq %1, %0" : "=v"(a[K]) : "m"(ROW_OF(HalfInts, operand)))) \
            to_floats: FUSED_EACH(Ints given = (Ints)a[K]; Vector result; CONVERT(given, result); a[K] = result) \
            to_ints: FUSED_EACH(Vector given = a[K]; Ints result; CONVERT(given, result); a[K] = (Vector)result) \
            leave_truth_of_floats: FUSED_EACH( \
                Ints is; Vector zero = {0}; QUIETLY("neq_uq", is, a[K], zero); PUT_TRUTHS(is)) \
            leave_truth_of_ints: FUSED_EACH(PUT_TRUTHS((Ints)a[K] != 0)) \
            leave_bytes: FUSED_EACH(ROW_OF(Bools, operand) = CONVERTED((Ints)a[K] & 255, Bools)) \
            leave_half_floats: FUSED_EACH(ROW_OF(Halves, operand) = CONVERTED(a[K], Halves)) \
            leave_half_ints: FUSED_EACH(ROW_OF(HalfInts, operand) = CONVERTED((Ints)a[K], HalfInts)) \
            take_apart: FUSED_EACH(a[K] = ROW_OF(Vector, operand + K * sizeof(Vector)); EVERY_SECOND(a[K], type)) \
            multiply_pairs: FUSED_EACH(MULTIPLY_##type(a[K], b[K])) \
            choose_pairs: FUSED_EACH( \
                npy_uint64 bytes = 0; Ints bools; memcpy(&bytes, w->address + (at + K * WIDTH) / 2, WIDTH / 2); \
                if (OF_DOUBLES) TWICE("vpmovsxbq"); else TWICE("vpmovsxbd"); \
                a[K] = CHOSEN(bools != 0, a[K], b[K])) \
            CODED(FUSED_OPERATION) \
            end:; \
        } \
        for (i = 0; i < WIDTH; i++) ordinary &= is_ordinary[i] != 0; \
        return ordinary; }
#define DEFINE_FUSED_OF_SIZES(isa, bits, at_once, name) \
    DEFINE_FUSED(isa, bits, at_once, name##_of_8, double, float, int64, npy_int32, pd) \
    DEFINE_FUSED(isa, bits, at_once, name##_of_4, float, float, int32, npy_int32, ps)
DEFINE_FUSED_OF_SIZES("avx2", 256, 8, fused_8_times)
DEFINE_FUSED_OF_SIZES("avx2", 256, 1, fused_once)
#define WIDE "avx512f,avx512bw,avx512dq,avx512vl"
DEFINE_FUSED_OF_SIZES(WIDE, 512, 8, wide_fused_8_times)
DEFINE_FUSED_OF_SIZES(WIDE, 512, 1, wide_fused_once)

/* Other threads see what was streamed before what comes after this. */
static void finish_streams(void) { __builtin_ia32_sfence(); }
static int bytes_of_fused(void) {      /* of a register, or 0 without such loops */
    static int known = -1;
    if (read_shared(&known) < 0)
        write_shared(&known, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
            && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") ? 512
            : __builtin_cpu_supports("avx2") ? 256 : 0);
    return read_shared(&known);
}
static inline npy_intp width_of_fused(int size) { return bytes_of_fused() / 8 / size; }
/* Take the first of `n` elements of 8 or 4 bytes in each row, as many as are whole vectors. Returns whether NumPy's
   loops give the same bits, too. */
#define FUSED_FUNCTION(name) \
    (size == 8 ? is_wide ? wide_fused_##name##_of_8 : fused_##name##_of_8 \
               : is_wide ? wide_fused_##name##_of_4 : fused_##name##_of_4)
static int run_fused_words(FusedWord* words, npy_intp n_words, npy_intp n_rows, npy_intp n, int size) {
    int (*functions[2])(const FusedWord*, npy_intp, npy_intp);
    int is_wide = bytes_of_fused() == 512, is_usual = 1, i;
    npy_intp width = width_of_fused(size), stops[3] = {0}, k;
    functions[0] = FUSED_FUNCTION(8_times); functions[1] = FUSED_FUNCTION(once);
    stops[1] = n - n % (8 * width); stops[2] = n - n % width;
    for (;;) {
        for (i = 0; i < 2; i++)
            if (stops[i] < stops[i + 1]) is_usual &= functions[i](words, stops[i], stops[i + 1]);
        if (--n_rows <= 0) return is_usual;
        for (k = 0; k < n_words; k++) words[k].address += words[k].move;
    }
}
/* Return whether NumPy's loop for products of complex numbers, whose parts have `size` bytes, gives the same bits. */
__attribute__((cold)) static int multiplies_pairs(LoopFunction function, void* data, int size) {
    static int known[2];        /* 0 before the test, then 1 or -1 */
    int *found = &known[size == 4], alike = 0;
    union { double of_8[16]; float of_4[16]; } x, y, product, expected;
    char* operands[3] = {(char*)&x, (char*)&y, (char*)&expected};
    npy_intp i, n = 8, strides[3] = {2 * size, 2 * size, 2 * size};
    FusedWord words[5] = {
        {TAKE_ROW, (char*)&x, size, 0}, {OTHER_ROW, (char*)&y, size, 0}, {MULTIPLY_PAIRS, NULL, 0, 0},
        {LEAVE_ROW, (char*)&product, size, 0}, {END_OF_CODE, NULL, 0, 0}};
    if (read_shared(found) == 0) {
        for (i = 0; i < 16; i++)
            if (size == 8) x.of_8[i] = 1 / (i + 3.), y.of_8[i] = 1 / (i + 19.);
            else x.of_4[i] = 1 / (i + 3.f), y.of_4[i] = 1 / (i + 19.f);
        if (__builtin_cpu_supports("fma")) {
            function(operands, &n, strides, data);
            run_fused_words(words, 4, 1, 16, size);
            alike = memcmp(&product, &expected, 16 * size) == 0;
            forget_errors();
        }
        write_shared(found, alike ? 1 : -1);
    }
    return read_shared(found) > 0;
}
#else
static int multiplies_pairs(LoopFunction function, void* data, int size) { return 0; }
static int bytes_of_fused(void) { return 0; }
static void finish_streams(void) {}
static inline npy_intp width_of_fused(int size) { return 1; }
static int run_fused_words(FusedWord* words, npy_intp n_words, npy_intp n_rows, npy_intp n, int size) { return 1; }
#endif

/* A loop that is a row of words by itself where its operands lie in rows, else, and for the elements that are left,
   the loop that it has instead of its own `function` and `data`. */
typedef struct {
    LoopFunction function;
    void* data;
    int n_words, n_operands, size, codes[4], operands[4], sizes[4];
} StandaloneLoop;
static int lie_in_rows(const StandaloneLoop* loop, char** args, npy_intp n, const npy_intp* strides) {
    int k, last = loop->n_operands - 1;
    char *result = args[last], *after = result + n * loop->sizes[last];
    for (k = 0; k <= last; k++) {       /* nor may an element be overwritten before it is read */
        int is_number = !strides[k] && k < last && (loop->sizes[k] == loop->size || loop->n_operands == 4);
        if (strides[k] != loop->sizes[k] && !is_number) return 0;
        if (k < last && args[k] < after && result < args[k] + (is_number ? 1 : n) * loop->sizes[k]
                && (args[k] != result || strides[k] != strides[last])) return 0;
    }
    return n >= width_of_fused(loop->size);
}
LOOP_NAMED(run_standalone) {
    const StandaloneLoop* loop = (const StandaloneLoop*)data;
    npy_intp n = extents[0], done = 0;
    if (lie_in_rows(loop, args, n, strides)) {
        FusedWord words[5];
        int k;
        for (k = 0; k < loop->n_words; k++) {
            int operand = loop->operands[k], code = loop->codes[k];
            words[k].code = strides[operand] ? code
                : code == OTHER_ROW ? OTHER_NUMBER : code == CHOOSE ? CHOOSE_ONE : TAKE_NUMBER;
            words[k].address = args[operand]; words[k].step = strides[operand]; }
        words[k].code = END_OF_CODE; words[k].address = NULL; words[k].step = 0;
        run_fused_words(words, k, 1, n, loop->size);
        done = n - n % width_of_fused(loop->size);
    }
    if (done < n) {
        char* rest[4];
        int k;
        for (k = 0; k < loop->n_operands; k++) rest[k] = args[k] + done * strides[k];
        n -= done;
        loop->function(rest, &n, strides, loop->data);
    }
}

#endif
