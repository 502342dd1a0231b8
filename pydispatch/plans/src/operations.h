/* Operations: loops over few elements as our own code, and the function that runs it. */
#ifndef PYDISPATCH_OPERATIONS_H
#define PYDISPATCH_OPERATIONS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"
#include "core/src/loops.h"

/* Lists of macros that make code, which clang-format would break. */
/* clang-format off */

/* Code is a row of words: an operation with the number of its elements, then the addresses of its operands. What an
   operation on single numbers computes stays in a register, too: the next one may take it from there, not from
   memory, where it would have to wait for it. */
#include <math.h>
#if defined(__GLIBC__)
#define GLIBC 1
#else
#define GLIBC 0
#endif
#if HAS_GNU_C
#define ANY_TYPE __attribute__((may_alias, aligned(1)))
#define NO_OTHER_CODE __builtin_unreachable();      /* so that nothing compares */
#else
#define ANY_TYPE
#define NO_OTHER_CODE return 0;
#endif
typedef struct {
    void (*function)(char**, const npy_intp*, const npy_intp*, void*);
    const npy_intp *sizes, *steps;
    void* data;
} LoopCall;
typedef double (*LibraryFunction)(double);
typedef union {
    struct { npy_int32 code, n; } operation; char* address; npy_intp number; LoopCall* call;
    LibraryFunction function;
} CodeWord;

/* An operation on elements of a type has a code for each form. Of single numbers: where each operand is, in memory
   (M) or in the register (R). Of vectors: which operand is one (V), which a single number (S). */
enum { MM, RM, MR, RR, VV, VS, SV, N_FORMS };
enum { OF_FLOAT64, OF_FLOAT32, OF_INT64, OF_BOOL };
enum {
    DO_ADD, DO_SUBTRACT, DO_MULTIPLY, DO_DIVIDE, DO_MAXIMUM, DO_MINIMUM, DO_LESS, DO_LESS_EQUAL, DO_GREATER,
    DO_GREATER_EQUAL, DO_EQUAL, DO_NOT_EQUAL, DO_NEGATIVE, DO_ABSOLUTE, DO_SQRT, DO_SQUARE, DO_AND, DO_OR,
    DO_NOT, N_ON_ELEMENTS
};
#define CODE(type, operation, form) (((type) * N_ON_ELEMENTS + (operation)) * N_FORMS + (form))
enum {
    COPY_1 = CODE(4, 0, 0), COPY_4, COPY_8, COPY_SINGLE_RESULT, COPY_RESULT, COPY_BYTES, FILL_4, FILL_8,
    CHOOSE_4, CHOOSE_8, CHOOSE_AMONG_4, CHOOSE_AMONG_8, CALL_LOOP, CALL_AFTER_ARITHMETIC, CALL_AFTER_CALLS,
    LIBRARY_OF_MEMORY, LIBRARY_OF_RESULT, NEXT_REPETITION, NEXT_TWO, END_OF_CODE,
    PAIRS_OF_RESULT, PAIRS_OF_MEMORY = PAIRS_OF_RESULT + 16, TRIPLES_OF_RESULT = PAIRS_OF_MEMORY + 16,
    TRIPLES_OF_MEMORY = TRIPLES_OF_RESULT + 64, N_CODES = TRIPLES_OF_MEMORY + 64
};
static inline void put_operation(CodeWord* word, int code, npy_intp n) {
    word->operation.code = code; word->operation.n = (npy_int32)n;
}

typedef double ANY_TYPE Any_double; typedef float ANY_TYPE Any_float; typedef npy_int64 ANY_TYPE Any_int;
typedef npy_uint64 ANY_TYPE Any_word; typedef npy_bool ANY_TYPE Any_bool;
#define VALUE(kind, k) (*(kind*)w[k].address)
#define ELEMENTS(kind, name, k) kind* name = (kind*)w[k].address;

/* After an operation comes the next one. GNU's compilers can go there directly if it is a frequent one: then each
   operation has a jump of its own, which takes fewer instructions than one for all, and is easier to foresee. */
#if HAS_GNU_C
#define DONE(n_words) w += n_words; goto *places[w->operation.code];
#define OPERATION(type, does, form) case CODE(type, does, form): type##does##form
#define COMMON(code) case code: LABEL_OF_##code
#define LABELS_OF_TWO(type, does) \
    LABELS_OF_ONE(type, does) [CODE(type, does, MR)] = &&type##does##MR, [CODE(type, does, RR)] = &&type##does##RR,
#define LABELS_OF_ONE(type, does) \
    [CODE(type, does, MM)] = &&type##does##MM, [CODE(type, does, RM)] = &&type##does##RM,
#define LABELS_OF_TYPE(type) \
    LABELS_OF_TWO(type, DO_ADD) LABELS_OF_TWO(type, DO_SUBTRACT) LABELS_OF_TWO(type, DO_MULTIPLY) \
    LABELS_OF_TWO(type, DO_DIVIDE) LABELS_OF_ONE(type, DO_NEGATIVE) LABELS_OF_ONE(type, DO_ABSOLUTE) \
    LABELS_OF_ONE(type, DO_SQRT) LABELS_OF_ONE(type, DO_SQUARE)
#define LABEL(code) [code] = &&LABEL_OF_##code
#define PLACE(name) name:
#define LABELS_OF_PAIR(a, b) \
    [PAIRS_OF_RESULT + PAIR(a, b)] = &&PAIR_##a##b, [PAIRS_OF_MEMORY + PAIR(a, b)] = &&PAIR_OF_MEMORY_##a##b,
#define LABELS_OF_TRIPLE(a, b, c) \
    [TRIPLES_OF_RESULT + TRIPLE(a, b, c)] = &&TRIPLE_##a##b##c, \
    [TRIPLES_OF_MEMORY + TRIPLE(a, b, c)] = &&TRIPLE_OF_MEMORY_##a##b##c,
#define LABELS \
    static const void* const labels[] = { \
        [0 ... N_CODES - 1] = &&any_code, LABELS_OF_TYPE(OF_FLOAT64) LABELS_OF_TYPE(OF_FLOAT32) LABEL(COPY_8), \
        LABEL(COPY_RESULT), LABEL(LIBRARY_OF_MEMORY), LABEL(LIBRARY_OF_RESULT), \
        LABEL(NEXT_TWO), ALL_PAIRS(LABELS_OF_PAIR) ALL_TRIPLES(LABELS_OF_TRIPLE)}; \
    const void* const* places = labels; \
    __asm__ ("" : "+r"(places));        /* it is in a register now */
#else
#define DONE(n_words) w += n_words; continue;
#define OPERATION(type, does, form) case CODE(type, does, form)
#define COMMON(code) case code
#define PLACE(name)
#define LABELS
#endif

/* Two numbers for one of the same type: `f` of them. */
#define IN_MEMORY(type, does, kind, result_kind, f) \
    case CODE(type, does, MM): VALUE(result_kind, 3) = f(VALUE(kind, 1), VALUE(kind, 2)); DONE(4)
#define IN_REGISTER(type, does, kind, last, f) \
    OPERATION(type, does, MM): last = f(VALUE(kind, 1), VALUE(kind, 2)); VALUE(kind, 3) = last; DONE(4) \
    OPERATION(type, does, RM): last = f(last, VALUE(kind, 2)); VALUE(kind, 3) = last; DONE(4) \
    OPERATION(type, does, MR): last = f(VALUE(kind, 1), last); VALUE(kind, 3) = last; DONE(4) \
    OPERATION(type, does, RR): last = f(last, last); VALUE(kind, 3) = last; DONE(4)
#define FROM_REGISTER(type, does, kind, last, f) \
    IN_MEMORY(type, does, kind, Any_bool, f) \
    case CODE(type, does, RM): VALUE(Any_bool, 3) = f(last, VALUE(kind, 2)); DONE(4) \
    case CODE(type, does, MR): VALUE(Any_bool, 3) = f(VALUE(kind, 1), last); DONE(4)
#define ONE_IN_REGISTER(type, does, kind, last, f) \
    OPERATION(type, does, MM): last = f(VALUE(kind, 1)); VALUE(kind, 2) = last; DONE(3) \
    OPERATION(type, does, RM): last = f(last); VALUE(kind, 2) = last; DONE(3)

/* Vectors, some elements at once where the compiler has types for that. */
#define ALONG(kind, result_kind, one, other, at_once) { \
    ELEMENTS(kind, x, 1) ELEMENTS(kind, y, 2) ELEMENTS(result_kind, z, 3) \
    npy_intp i = 0, n = w->operation.n; \
    at_once \
    for (; i < n; i++) { z[i] = one other; } \
    DONE(4) }
#define EACH(type, does, kind, result_kind, f) \
    case CODE(type, does, VV): ALONG(kind, result_kind, f, (x[i], y[i]), ) \
    case CODE(type, does, VS): { kind s = VALUE(kind, 2); ALONG(kind, result_kind, f, (x[i], s), (void)y;) } \
    case CODE(type, does, SV): { kind s = VALUE(kind, 1); ALONG(kind, result_kind, f, (s, y[i]), (void)x;) }
#if HAS_GNU_C
typedef double Two_doubles __attribute__((vector_size(16), aligned(1), may_alias));
typedef float Four_floats __attribute__((vector_size(16), aligned(1), may_alias));
#define SOME(pack, width, first, second, f) \
    for (; i + width <= n; i += width) *(pack*)(z + i) = f(first, second);
#define PACKED(type, does, kind, pack, width, splat, f) \
    case CODE(type, does, VV): \
        ALONG(kind, kind, f, (x[i], y[i]), SOME(pack, width, *(pack*)(x + i), *(pack*)(y + i), f)) \
    case CODE(type, does, VS): { kind s = VALUE(kind, 2); pack t = splat; \
        ALONG(kind, kind, f, (x[i], s), (void)y; SOME(pack, width, *(pack*)(x + i), t, f)) } \
    case CODE(type, does, SV): { kind s = VALUE(kind, 1); pack t = splat; \
        ALONG(kind, kind, f, (s, y[i]), (void)x; SOME(pack, width, t, *(pack*)(y + i), f)) }
#define EACH_DOUBLE(does, f) \
    PACKED(OF_FLOAT64, does, Any_double, Two_doubles, 2, ((Two_doubles){s, s}), f)
#define EACH_FLOAT(does, f) \
    PACKED(OF_FLOAT32, does, Any_float, Four_floats, 4, ((Four_floats){s, s, s, s}), f)
#else
#define EACH_DOUBLE(does, f) EACH(OF_FLOAT64, does, Any_double, Any_double, f)
#define EACH_FLOAT(does, f) EACH(OF_FLOAT32, does, Any_float, Any_float, f)
#endif
#define EACH_OF_ONE(type, does, kind, f) \
    case CODE(type, does, VV): { \
        ELEMENTS(kind, x, 1) ELEMENTS(kind, z, 2) npy_intp i, n = w->operation.n; \
        for (i = 0; i < n; i++) { z[i] = f(x[i]); } \
        DONE(3) }

#define SUM_OF(x, y) ((x) + (y))
#define DIFFERENCE_OF(x, y) ((x) - (y))
#define PRODUCT_OF(x, y) ((x) * (y))
#define QUOTIENT_OF(x, y) ((x) / (y))
#define IS_LESS(x, y) ((x) < (y))
#define IS_LESS_EQUAL(x, y) ((x) <= (y))
#define IS_GREATER(x, y) ((x) > (y))
#define IS_GREATER_EQUAL(x, y) ((x) >= (y))
#define IS_EQUAL(x, y) ((x) == (y))
#define IS_NOT_EQUAL(x, y) ((x) != (y))
#define BOTH_OF(x, y) ((x) && (y))
#define ANY_OF(x, y) ((x) || (y))
#define NEGATIVE_OF(x) (-(x))
#define SQUARE_OF(x) ((x) * (x))
#define NOT_OF(x) (!(x))

#define ARITHMETIC(does, f) \
    IN_REGISTER(OF_FLOAT64, does, Any_double, last_double, f) EACH_DOUBLE(does, f) \
    IN_REGISTER(OF_FLOAT32, does, Any_float, last_float, f) EACH_FLOAT(does, f)
#define OF_ONE(does, f_double, f_float) \
    ONE_IN_REGISTER(OF_FLOAT64, does, Any_double, last_double, f_double) \
    EACH_OF_ONE(OF_FLOAT64, does, Any_double, f_double) \
    ONE_IN_REGISTER(OF_FLOAT32, does, Any_float, last_float, f_float) \
    EACH_OF_ONE(OF_FLOAT32, does, Any_float, f_float)
#define COMPARISON(does, f, quiet_f) /* C's own raise flags for nan, where NumPy clears them */ \
    FROM_REGISTER(OF_FLOAT64, does, Any_double, last_double, quiet_f) \
    EACH(OF_FLOAT64, does, Any_double, Any_bool, quiet_f) \
    FROM_REGISTER(OF_FLOAT32, does, Any_float, last_float, quiet_f) \
    EACH(OF_FLOAT32, does, Any_float, Any_bool, quiet_f) \
    IN_MEMORY(OF_INT64, does, Any_int, Any_bool, f) EACH(OF_INT64, does, Any_int, Any_bool, f)
#define OF_INTEGERS(does, f)       /* without signs overflow is defined, and the bits are the same */ \
    IN_MEMORY(OF_INT64, does, Any_word, Any_word, f) EACH(OF_INT64, does, Any_word, Any_word, f)
#define OF_BOOLS(does, f) \
    IN_MEMORY(OF_BOOL, does, Any_bool, Any_bool, f) EACH(OF_BOOL, does, Any_bool, Any_bool, f)

/* The greater or the less of two numbers. Which zero of two, or which nan, is NumPy's to say: by its loop. */
#define IS_ORDINARY(x, y) (isgreater(x, y) || isless(x, y) || ((x) == (y) && (x) != 0))
#define EXTREME(type, does, kind, last, is_first) \
    case CODE(type, does, MM): { \
        kind x = VALUE(kind, 1), y = VALUE(kind, 2); \
        if (!IS_ORDINARY(x, y)) goto ask_numpy; \
        last = is_first(x, y) ? x : y; VALUE(kind, 3) = last; DONE(5) } \
    case CODE(type, does, VV): case CODE(type, does, VS): case CODE(type, does, SV): { \
        int form = w->operation.code % N_FORMS; \
        npy_intp i, n = w->operation.n, dx = form != SV, dy = form != VS; \
        ELEMENTS(kind, x, 1) ELEMENTS(kind, y, 2) ELEMENTS(kind, z, 3) \
        for (i = 0; i < n; i++) if (!IS_ORDINARY(x[i * dx], y[i * dy])) goto ask_numpy; \
        for (i = 0; i < n; i++) z[i] = is_first(x[i * dx], y[i * dy]) ? x[i * dx] : y[i * dy]; \
        DONE(5) }
#define CHOICES(code, kind) \
    case code: { /* strides in bytes are in the last word: of the condition, of both others */ \
        npy_intp i, n = w->operation.n, steps = w[5].number; \
        const char *c = w[1].address, *x = w[2].address, *y = w[3].address; kind* z = (kind*)w[4].address; \
        npy_intp dc = steps & 1, dx = (steps >> 1 & 1) * sizeof(kind), dy = (steps >> 2 & 1) * sizeof(kind); \
        for (i = 0; i < n; i++, c += dc, x += dx, y += dy) { z[i] = *c ? *(kind*)x : *(kind*)y; } \
        DONE(6) }

/* Links: sums, differences and products of single numbers, each with the result of the one before. Two or three of
   them are one operation, by a code for all that they do, since a jump takes longer than an addition. A link has
   the words of its operation. The other number is the second operand, but the first where it is subtracted from. */
enum { ADD_OTHER, SUBTRACT_OTHER, MULTIPLY_BY_OTHER, SUBTRACT_FROM_OTHER, WORDS_OF_LINK = 4 };
#define PAIR(a, b) (4 * (a) + (b))
#define TRIPLE(a, b, c) (16 * (a) + 4 * (b) + (c))
#define EACH_PAIR(a, does) does(a, 0) does(a, 1) does(a, 2) does(a, 3)
#define ALL_PAIRS(does) EACH_PAIR(0, does) EACH_PAIR(1, does) EACH_PAIR(2, does) EACH_PAIR(3, does)
#define EACH_TRIPLE(a, b, does) does(a, b, 0) does(a, b, 1) does(a, b, 2) does(a, b, 3)
#define TRIPLES_AFTER(a, does) \
    EACH_TRIPLE(a, 0, does) EACH_TRIPLE(a, 1, does) EACH_TRIPLE(a, 2, does) EACH_TRIPLE(a, 3, does)
#define ALL_TRIPLES(does) \
    TRIPLES_AFTER(0, does) TRIPLES_AFTER(1, does) TRIPLES_AFTER(2, does) TRIPLES_AFTER(3, does)
#define LINK_0(k) last_double = last_double + VALUE(Any_double, WORDS_OF_LINK * (k) + 2);
#define LINK_1(k) last_double = last_double - VALUE(Any_double, WORDS_OF_LINK * (k) + 2);
#define LINK_2(k) last_double = last_double * VALUE(Any_double, WORDS_OF_LINK * (k) + 2);
#define LINK_3(k) last_double = VALUE(Any_double, WORDS_OF_LINK * (k) + 1) - last_double;
#define TAKE_LINK(does, k) LINK_##does(k) VALUE(Any_double, WORDS_OF_LINK * (k) + 3) = last_double;
#define TAKE_PAIR(a, b) \
    case PAIRS_OF_MEMORY + PAIR(a, b): PLACE(PAIR_OF_MEMORY_##a##b) last_double = VALUE(Any_double, 1); \
        /* fallthrough */ \
    case PAIRS_OF_RESULT + PAIR(a, b): PLACE(PAIR_##a##b) TAKE_LINK(a, 0) TAKE_LINK(b, 1) DONE(2 * WORDS_OF_LINK)
#define TAKE_TRIPLE(a, b, c) \
    case TRIPLES_OF_MEMORY + TRIPLE(a, b, c): PLACE(TRIPLE_OF_MEMORY_##a##b##c) \
        last_double = VALUE(Any_double, 1); \
        /* fallthrough */ \
    case TRIPLES_OF_RESULT + TRIPLE(a, b, c): PLACE(TRIPLE_##a##b##c) \
        TAKE_LINK(a, 0) TAKE_LINK(b, 1) TAKE_LINK(c, 2) DONE(3 * WORDS_OF_LINK)

/* Run code, as often as `count` says where it has repetitions; returns the flags that were raised as the processor
   numbers them. `last` is what the registers hold at the beginning: an address, or NULL. */
static unsigned int run_operations(CodeWord* w, npy_intp count, const char* last, int is_single) {
    unsigned int flags = 0;
    double last_double = 0;
    float last_float = 0;
    CodeWord* first = w;
    LABELS
    if (last != NULL) {
        if (is_single) last_float = *(const Any_float*)last; else last_double = *(const Any_double*)last; }
    for (;;) PLACE(any_code) switch (w->operation.code) {
        ARITHMETIC(DO_ADD, SUM_OF) ARITHMETIC(DO_SUBTRACT, DIFFERENCE_OF) ARITHMETIC(DO_MULTIPLY, PRODUCT_OF)
        ARITHMETIC(DO_DIVIDE, QUOTIENT_OF)
        OF_INTEGERS(DO_ADD, SUM_OF) OF_INTEGERS(DO_SUBTRACT, DIFFERENCE_OF) OF_INTEGERS(DO_MULTIPLY, PRODUCT_OF)
        COMPARISON(DO_LESS, IS_LESS, isless) COMPARISON(DO_LESS_EQUAL, IS_LESS_EQUAL, islessequal)
        COMPARISON(DO_GREATER, IS_GREATER, isgreater) COMPARISON(DO_GREATER_EQUAL, IS_GREATER_EQUAL, isgreaterequal)
        COMPARISON(DO_EQUAL, IS_EQUAL, IS_EQUAL) COMPARISON(DO_NOT_EQUAL, IS_NOT_EQUAL, IS_NOT_EQUAL)
        OF_ONE(DO_NEGATIVE, NEGATIVE_OF, NEGATIVE_OF) OF_ONE(DO_ABSOLUTE, fabs, fabsf) OF_ONE(DO_SQRT, sqrt, sqrtf)
        OF_ONE(DO_SQUARE, SQUARE_OF, SQUARE_OF)
        EXTREME(OF_FLOAT64, DO_MAXIMUM, Any_double, last_double, isgreater)
        EXTREME(OF_FLOAT64, DO_MINIMUM, Any_double, last_double, isless)
        EXTREME(OF_FLOAT32, DO_MAXIMUM, Any_float, last_float, isgreater)
        EXTREME(OF_FLOAT32, DO_MINIMUM, Any_float, last_float, isless)
        OF_BOOLS(DO_AND, BOTH_OF) OF_BOOLS(DO_OR, ANY_OF)
        case CODE(OF_BOOL, DO_NOT, MM): VALUE(Any_bool, 2) = !VALUE(Any_bool, 1); DONE(3)
        EACH_OF_ONE(OF_BOOL, DO_NOT, Any_bool, NOT_OF)

        case COPY_1: *w[2].address = *w[1].address; DONE(3)
        case COPY_4: memcpy(w[2].address, w[1].address, 4); DONE(3)
        COMMON(COPY_8): memcpy(w[2].address, w[1].address, 8); DONE(3)
        case COPY_SINGLE_RESULT: VALUE(Any_float, 2) = last_float; DONE(3)
        COMMON(COPY_RESULT): VALUE(Any_double, 2) = last_double; DONE(3)
        case COPY_BYTES: {
            npy_intp i = 0, n = w->operation.n;
            for (; i + 8 <= n; i += 8) memcpy(w[2].address + i, w[1].address + i, 8);
            for (; i < n; i++) w[2].address[i] = w[1].address[i];
            DONE(3) }
        case FILL_4: {
            npy_intp i; npy_uint32 value; memcpy(&value, w[1].address, 4);
            for (i = 0; i < w->operation.n; i++) memcpy(w[2].address + 4 * i, &value, 4);
            DONE(3) }
        case FILL_8: {
            npy_intp i; npy_uint64 value; memcpy(&value, w[1].address, 8);
            for (i = 0; i < w->operation.n; i++) memcpy(w[2].address + 8 * i, &value, 8);
            DONE(3) }
        case CHOOSE_4: memcpy(w[4].address, *w[1].address ? w[2].address : w[3].address, 4); DONE(6)
        case CHOOSE_8: memcpy(w[4].address, *w[1].address ? w[2].address : w[3].address, 8); DONE(6)
        CHOICES(CHOOSE_AMONG_4, Any_float) CHOICES(CHOOSE_AMONG_8, Any_word)

        COMMON(LIBRARY_OF_MEMORY): last_double = VALUE(Any_double, 2);
            /* fallthrough */
        COMMON(LIBRARY_OF_RESULT):
            last_double = w[1].function(last_double); last_float = 0; VALUE(Any_double, 3) = last_double; DONE(4)

        ALL_PAIRS(TAKE_PAIR) ALL_TRIPLES(TAKE_TRIPLE)

        case CALL_AFTER_CALLS: flags |= flags_of_calls();       /* loops of NumPy's may clear flags */
            /* fallthrough */
        case CALL_AFTER_ARITHMETIC: flags |= flags_of_arithmetic();
            /* fallthrough */
        case CALL_LOOP: {
            char* operands[4];      /* a loop may write to the array of pointers that it gets */
            LoopCall* call = w[1].call;
            int k;
            for (k = 0; k < 4; k++) operands[k] = w[2 + k].address;     /* or more words, of no use */
            call->function(operands, call->sizes, call->steps, call->data);
            last_double = 0; last_float = 0;
            w += 2 + w->operation.n; continue; }
        ask_numpy: {
            char* operands[4];
            LoopCall* call = w[4].call;
            int k;
            flags |= flags_of_calls() | flags_of_arithmetic();
            for (k = 0; k < 3; k++) operands[k] = w[1 + k].address;
            call->function(operands, call->sizes, call->steps, call->data);
            if (w->operation.code / (N_ON_ELEMENTS * N_FORMS) == OF_FLOAT32) last_float = VALUE(Any_float, 3);
            else last_double = VALUE(Any_double, 3);
            DONE(5) }

        case NEXT_REPETITION:
            if (--count == 0) return flags | flags_of_arithmetic();
            DONE(1)
        COMMON(NEXT_TWO): {     /* pairs follow: the word of an address, counted backwards; how far it moves */
            npy_intp i, n = w->operation.n;
            for (i = 0; i < n; i++) w[-w[1 + 2 * i].number].address += w[2 + 2 * i].number;
            if (--count == 0) return flags | flags_of_arithmetic();
            w = first; DONE(0) }
        case END_OF_CODE: return flags | flags_of_arithmetic();
        default: NO_OTHER_CODE
    }
}

/* Functions of C's library, by number, that loops of NumPy's may call for each element. */
static LibraryFunction library_function(int k) {
    static const LibraryFunction functions[] = {sin, cos, tan, exp, log, tanh, atan, sinh, cosh, expm1, log1p};
    return functions[k];
}
/* Does a loop give the bits of the function? Vector instructions of NumPy's own round one of some ten otherwise. */
static int loop_is_function(LoopCall* call, LibraryFunction function) {
    static const double special[8] = {0, -0.0, INFINITY, -INFINITY, 5e-324, 1e300, -1e300, 1e22};
    npy_intp i, one = 1, steps[2] = {8, 8};
    npy_uint64 random = 1;
    int alike = 1;
    for (i = 0; i < 4096 && alike; i++) {
        double x, y, z;
        char* operands[2] = {(char*)&x, (char*)&y};
        random = random * 6364136223846793005u + 1442695040888963407u;
        x = i < 8 ? special[i] : ((double)(random >> 11) / 4503599627370496.0 - 1) * (i % 4 ? i % 64 : 700);
        z = function(x);
        call->function(operands, &one, steps, call->data);
        alike = memcmp(&y, &z, 8) == 0 || (y != y && z != z);
    }
    forget_errors();
    return alike;
}

/* Does a loop leave the flags raised that were raised before? All its operands are of one type. */
static int loop_keeps_flags(LoopCall* call, int n_in, int is_single) {
    static const double doubles[16] = {
        0.5, 2, -3, 0, -0.0, INFINITY, -INFINITY, NAN, 1e300, -1e300, 5e-324, 1e-30, 700, -750, 1e5, 1};
    float floats[16]; double results[16];
    npy_intp i, n, size = is_single ? 4 : 8, steps[3] = {size, size, size};
    int keeps = 1;
    for (i = 0; i < 16; i++) floats[i] = i < 8 || i > 10 ? (float)doubles[i] : i == 8 ? 3e38f : 1e-45f;
    for (n = 1; n <= 16; n += 5)
        for (i = 0; i + n <= 16; i++) {
            char* source = is_single ? (char*)(floats + i) : (char*)(doubles + i);
            char* operands[3] = {source, n_in == 2 ? source : (char*)results, (char*)results};
            unsigned int before;
            raise_all_flags();
            before = flags_of_arithmetic();
            call->function(operands, &n, steps, call->data);
            keeps = keeps && (flags_of_arithmetic() & before) == before;
        }
    forget_errors();
    return keeps;
}

#endif
