/* Operations: loops over few elements as our own code, and the function that runs it. */
#ifndef PYDISPATCH_OPERATIONS_H
#define PYDISPATCH_OPERATIONS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"
#include "core/src/loops.h"
#include "core/src/positions.h"
#include "plans/src/arithmetic.h"

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
    LibraryFunction function; const npy_intp* axes;
} CodeWord;
typedef struct { char* address; npy_intp size; char before[16]; } Overwritten;   /* an element, and its old bytes */

enum { OF_FLOAT64, OF_FLOAT32, OF_INT64, OF_BOOL, N_ELEMENT_TYPES };

/* The numbers of the operations, and the properties of their classes that C needs. */
#define NUMBER_OF(name, ...) DO_##name,
enum { CODED(NUMBER_OF) N_ON_ELEMENTS, LAST_CODED = N_ON_ELEMENTS - 1, CALLED(NUMBER_OF) N_OPERATIONS };
typedef enum {
    TWO, TWO_FLOATS, ONE, ROOT, ONE_BY_ONE, COMPARISON, EXTREME, BITWISE, LOGICAL, NOT, SHIFT, SIGN
} OperationClass;
#define CLASS_OF(name, class, ...) class,
static const unsigned char CLASSES[] = {CODED(CLASS_OF)};
static inline OperationClass class_of(int operation) { return (OperationClass)CLASSES[operation]; }
static int has_code(int operation, int type) {      /* for single elements */
    switch (class_of(operation)) {
        case BITWISE: case LOGICAL: case NOT: return type == OF_BOOL;
        case TWO: case COMPARISON: case EXTREME: return type != OF_BOOL;
        case SHIFT: case SIGN: return 0;
        default: return type == OF_FLOAT64 || type == OF_FLOAT32;
    }
}

/* The table as text for Python: a line for each operation, tabs between name, class, flags, cost, identity, and
   expressions, each with its kinds before it and a semicolon behind it. */
#define ON(kinds, expression) #kinds " " #expression ";"
#define AS_TEXT(name, class, by, kinds, expression, others, flags, cost, identity) \
    #name "\t" #class "\t" #flags "\t" #cost "\t" #identity "\t" #kinds " " #expression ";" others "\n"
static const char TABLE_OF_ARITHMETIC[] = CODED(AS_TEXT) CALLED(AS_TEXT);
#undef ON

/* One numbering of codes serves small loops and fused loops. An operation on elements has a code for each form. Of
   single numbers: where each operand is, in memory (M) or in the register (R). Of vectors: which operand is one (V),
   which a single number (S). In fused loops, which hold vectors in registers, M is a row of elements in memory. */
enum { MM, RM, MR, RR, VV, VS, SV, N_FORMS };
enum {
    END_OF_CODE, TAKE_ROW, TAKE_NUMBER, LEAVE_ROW, STREAM_ROW, FETCH_ROW, OTHER_ROW, OTHER_NUMBER, OTHER_SAME,
    CHOOSE, CHOOSE_OTHER, CHOOSE_ONE, TAKE_BOOLS, TAKE_BOOLS_AS_FLOATS, TAKE_BYTES, TAKE_HALF_FLOATS, TAKE_HALF_INTS,
    TO_FLOATS, TO_INTS, LEAVE_TRUTH_OF_FLOATS, LEAVE_TRUTH_OF_INTS, LEAVE_BYTES, LEAVE_HALF_FLOATS,
    LEAVE_HALF_INTS, TAKE_APART, MULTIPLY_PAIRS, CHOOSE_PAIRS, FIRST_ON_ELEMENTS
};
#define CODE(type, operation, form) (FIRST_ON_ELEMENTS + ((type) * N_ON_ELEMENTS + (operation)) * N_FORMS + (form))
#define FORM_OF(code) (((code) - FIRST_ON_ELEMENTS) % N_FORMS)
#define TYPE_OF(code) (((code) - FIRST_ON_ELEMENTS) / (N_ON_ELEMENTS * N_FORMS))
enum {
    COPY_1 = CODE(N_ELEMENT_TYPES, 0, 0), COPY_4, COPY_8, COPY_SINGLE_RESULT, COPY_RESULT, COPY_BYTES, FILL_4, FILL_8,
    CHOOSE_4, CHOOSE_8, CHOOSE_AMONG_4, CHOOSE_AMONG_8, CALL_LOOP, CALL_AFTER_ARITHMETIC, CALL_AFTER_CALLS,
    LIBRARY_OF_MEMORY, LIBRARY_OF_RESULT, PICK_ANY, PICK_8, PUT_ANY, PUT_SUM, QUOTIENT, REMAINDER,
    NEXT_REPETITION, NEXT_TWO,
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
   operation has its own jump, which takes fewer instructions than one for all, and is easier to foresee. */
#if HAS_GNU_C
#define DONE(n_words) w += n_words; goto *places[w->operation.code];
#define OPERATION(type, does, form) case CODE(type, DO_##does, form): type##does##form
#define COMMON(code) case code: LABEL_OF_##code
#define LABEL_OF_FORM(type, does, form) [CODE(type, DO_##does, form)] = &&type##does##form,
#define LABELS_OF_FLOATS(does, form) LABEL_OF_FORM(OF_FLOAT64, does, form) LABEL_OF_FORM(OF_FLOAT32, does, form)
#define LABELS_OF_ONE(does, ...) LABELS_OF_FLOATS(does, MM) LABELS_OF_FLOATS(does, RM)
#define LABELS_OF_TWO(does, ...) LABELS_OF_ONE(does) LABELS_OF_FLOATS(does, MR) LABELS_OF_FLOATS(does, RR)
#define LABEL(code) [code] = &&LABEL_OF_##code
#define PLACE(name) name:
#define LABELS_OF_PAIR(a, b) \
    [PAIRS_OF_RESULT + PAIR(a, b)] = &&PAIR_##a##b, [PAIRS_OF_MEMORY + PAIR(a, b)] = &&PAIR_OF_MEMORY_##a##b,
#define LABELS_OF_TRIPLE(a, b, c) \
    [TRIPLES_OF_RESULT + TRIPLE(a, b, c)] = &&TRIPLE_##a##b##c, \
    [TRIPLES_OF_MEMORY + TRIPLE(a, b, c)] = &&TRIPLE_OF_MEMORY_##a##b##c,
#define LABELS \
    static const void* const labels[] = { \
        [0 ... N_CODES - 1] = &&any_code, OF_TWO_NUMBERS(LABELS_OF_TWO) OF_ONE_NUMBER(LABELS_OF_ONE) \
        BY_INSTRUCTION(LABELS_OF_ONE) ONE_AT_A_TIME(LABELS_OF_ONE) LABEL(COPY_8), LABEL(COPY_RESULT), \
        LABEL(LIBRARY_OF_MEMORY), LABEL(LIBRARY_OF_RESULT), LABEL(PICK_8), LABEL(PUT_ANY), \
        LABEL(NEXT_TWO), ALL_PAIRS(LABELS_OF_PAIR) ALL_TRIPLES(LABELS_OF_TRIPLE)}; \
    const void* const* places = labels; \
    __asm__ ("" : "+r"(places));        /* it is in a register now */
#else
#define DONE(n_words) w += n_words; continue;
#define OPERATION(type, does, form) case CODE(type, DO_##does, form)
#define COMMON(code) case code
#define PLACE(name)
#define LABELS
#endif

/* Each template computes an expression `e` of x and y. Single numbers: */
#define PUT_OF_ONE(kind, one, result, e) { kind x = one; result = e; }
#define PUT_OF_TWO(kind, one, other, result, e) { kind x = one, y = other; result = e; }
#define IN_MEMORY(type, does, kind, result_kind, e) \
    case CODE(type, DO_##does, MM): \
        PUT_OF_TWO(kind, VALUE(kind, 1), VALUE(kind, 2), VALUE(result_kind, 3), e) DONE(4)
#define LEAVING_RESULT(type, does, form, kind, last, one, other, e) \
    OPERATION(type, does, form): PUT_OF_TWO(kind, one, other, last, e) VALUE(kind, 3) = last; DONE(4)
#define IN_REGISTER(type, does, kind, last, e) \
    LEAVING_RESULT(type, does, MM, kind, last, VALUE(kind, 1), VALUE(kind, 2), e) \
    LEAVING_RESULT(type, does, RM, kind, last, last, VALUE(kind, 2), e) \
    LEAVING_RESULT(type, does, MR, kind, last, VALUE(kind, 1), last, e) \
    LEAVING_RESULT(type, does, RR, kind, last, last, last, e)
#define FROM_REGISTER(type, does, kind, last, e) \
    case CODE(type, DO_##does, RM): PUT_OF_TWO(kind, last, VALUE(kind, 2), VALUE(Any_bool, 3), e) DONE(4) \
    case CODE(type, DO_##does, MR): PUT_OF_TWO(kind, VALUE(kind, 1), last, VALUE(Any_bool, 3), e) DONE(4)
#define ONE_IN_REGISTER(type, does, kind, last, e) \
    OPERATION(type, does, MM): PUT_OF_ONE(kind, VALUE(kind, 1), last, e) VALUE(kind, 2) = last; DONE(3) \
    OPERATION(type, does, RM): PUT_OF_ONE(kind, last, last, e) VALUE(kind, 2) = last; DONE(3)

/* Vectors, some elements at once where the compiler has types for that, and as far as the operation takes them. */
#if HAS_GNU_C
typedef double Two_doubles __attribute__((vector_size(16), aligned(1), may_alias));
typedef float Four_floats __attribute__((vector_size(16), aligned(1), may_alias));
#define SOME(pack, one, other, e) \
    for (; i + (npy_intp)(sizeof(pack) / sizeof *result) <= n; i += sizeof(pack) / sizeof *result) \
        PUT_OF_TWO(pack, one, other, *(pack*)(result + i), e)
#else
typedef double Two_doubles; typedef float Four_floats;
#define SOME(pack, one, other, e)
#endif
#define NONE(pack, one, other, e)
#define ALONG(kind, result_kind, one, other, e, at_once) \
    { ELEMENTS(kind, left, 1) ELEMENTS(kind, right, 2) ELEMENTS(result_kind, result, 3) \
    npy_intp i = 0, n = w->operation.n; \
    (void)left; (void)right; \
    at_once \
    for (; i < n; i++) PUT_OF_TWO(kind, one, other, result[i], e) \
    DONE(4) }
#define EACH(type, does, kind, result_kind, pack, some, e) \
    case CODE(type, DO_##does, VV): ALONG( \
        kind, result_kind, left[i], right[i], e, some(pack, *(pack*)(left + i), *(pack*)(right + i), e)) \
    case CODE(type, DO_##does, VS): { kind s = VALUE(kind, 2); pack all = s - (pack){0}; (void)all; \
        ALONG(kind, result_kind, left[i], s, e, some(pack, *(pack*)(left + i), all, e)) } \
    case CODE(type, DO_##does, SV): { kind s = VALUE(kind, 1); pack all = s - (pack){0}; (void)all; \
        ALONG(kind, result_kind, s, right[i], e, some(pack, all, *(pack*)(right + i), e)) }
#define EACH_OF_ONE(type, does, kind, e) \
    case CODE(type, DO_##does, VV): { \
        ELEMENTS(kind, given, 1) ELEMENTS(kind, result, 2) npy_intp i, n = w->operation.n; \
        for (i = 0; i < n; i++) PUT_OF_ONE(kind, given[i], result[i], e) \
        DONE(3) }

/* The greater or the less of two numbers. NumPy's loop decides between two zeros or two nans. */
#define IS_ORDINARY(x, y) (isgreater(x, y) || isless(x, y) || ((x) == (y) && (x) != 0))
#define EXTREME_OF(type, does, kind, last, is_first) \
    case CODE(type, DO_##does, MM): { \
        kind x = VALUE(kind, 1), y = VALUE(kind, 2); \
        if (!IS_ORDINARY(x, y)) goto ask_numpy; \
        last = is_first ? x : y; VALUE(kind, 3) = last; DONE(5) } \
    case CODE(type, DO_##does, VV): case CODE(type, DO_##does, VS): case CODE(type, DO_##does, SV): { \
        int form = FORM_OF(w->operation.code); \
        npy_intp i, n = w->operation.n, dx = form != SV, dy = form != VS; \
        ELEMENTS(kind, left, 1) ELEMENTS(kind, right, 2) ELEMENTS(kind, result, 3) \
        for (i = 0; i < n; i++) if (!IS_ORDINARY(left[i * dx], right[i * dy])) goto ask_numpy; \
        for (i = 0; i < n; i++) { kind x = left[i * dx], y = right[i * dy]; result[i] = is_first ? x : y; } \
        DONE(5) }

/* The cases of an operation, by its class. */
#define CASES_OF_TWO(does, by, e) \
    CASES_OF_TWO_FLOATS(does, by, e)    /* without signs overflow is defined, and the bits are the same */ \
    IN_MEMORY(OF_INT64, does, Any_word, Any_word, e) EACH(OF_INT64, does, Any_word, Any_word, Any_word, NONE, e)
#define CASES_OF_TWO_FLOATS(does, by, e) \
    IN_REGISTER(OF_FLOAT64, does, Any_double, last_double, e) \
    EACH(OF_FLOAT64, does, Any_double, Any_double, Two_doubles, SOME, e) \
    IN_REGISTER(OF_FLOAT32, does, Any_float, last_float, e) \
    EACH(OF_FLOAT32, does, Any_float, Any_float, Four_floats, SOME, e)
#define CASES_OF_ONE(does, by, e) \
    ONE_IN_REGISTER(OF_FLOAT64, does, Any_double, last_double, e) EACH_OF_ONE(OF_FLOAT64, does, Any_double, e) \
    ONE_IN_REGISTER(OF_FLOAT32, does, Any_float, last_float, e) EACH_OF_ONE(OF_FLOAT32, does, Any_float, e)
#define CASES_OF_ROOT CASES_OF_ONE
#define CASES_OF_ONE_BY_ONE CASES_OF_ONE
#define COMPARED(type, does, kind, last, e) \
    IN_MEMORY(type, does, kind, Any_bool, e) FROM_REGISTER(type, does, kind, last, e) \
    EACH(type, does, kind, Any_bool, kind, NONE, e)
#define CASES_OF_COMPARISON(does, by, e) /* C's own raise flags for nan, where NumPy clears them */ \
    COMPARED(OF_FLOAT64, does, Any_double, last_double, by) COMPARED(OF_FLOAT32, does, Any_float, last_float, by) \
    IN_MEMORY(OF_INT64, does, Any_int, Any_bool, e) EACH(OF_INT64, does, Any_int, Any_bool, Any_int, NONE, e)
#define CASES_OF_EXTREME(does, by, e) /* of integers, any of two equal numbers */ \
    IN_MEMORY(OF_INT64, does, Any_int, Any_int, (DO_##does == DO_maximum) == (x > y) ? x : y) \
    EXTREME_OF(OF_FLOAT64, does, Any_double, last_double, by) EXTREME_OF(OF_FLOAT32, does, Any_float, last_float, by)
#define CASES_OF_SHIFT(does, by, e)
#define CASES_OF_SIGN(does, by, e)
#define CASES_OF_BITWISE CASES_OF_LOGICAL
#define CASES_OF_LOGICAL(does, by, e) \
    IN_MEMORY(OF_BOOL, does, Any_bool, Any_bool, e) EACH(OF_BOOL, does, Any_bool, Any_bool, Any_bool, NONE, e)
#define CASES_OF_NOT(does, by, e) \
    case CODE(OF_BOOL, DO_##does, MM): PUT_OF_ONE(Any_bool, VALUE(Any_bool, 1), VALUE(Any_bool, 2), e) DONE(3) \
    EACH_OF_ONE(OF_BOOL, does, Any_bool, e)
#define CASES_OF(name, class, by, kinds, e, ...) CASES_OF_##class(name, by, e)

#define CHOICES(code, kind) \
    case code: { /* strides in bytes are in the last word: of the condition, of both others */ \
        npy_intp i, n = w->operation.n, steps = w[5].number; \
        const char *c = w[1].address, *x = w[2].address, *y = w[3].address; kind* z = (kind*)w[4].address; \
        npy_intp dc = steps & 1, dx = (steps >> 1 & 1) * sizeof(kind), dy = (steps >> 2 & 1) * sizeof(kind); \
        for (i = 0; i < n; i++, c += dc, x += dx, y += dy) { z[i] = *c ? *(kind*)x : *(kind*)y; } \
        DONE(6) }

/* Links: sums, differences and products of single numbers, each with the result of the one before. Two or three of
   them are one operation, with a code for all of them, since a jump takes longer than an addition. A link has
   the words of its operation. The other number is the second operand, but the first where it is subtracted from. */
enum { WORDS_OF_LINK = 4 };
#define LINKS(does) does(0, add, RM) does(1, subtract, RM) does(2, multiply, RM) does(3, subtract, MR)
#define IS_LINK(k, name, which) if (operation == DO_##name && (form == MR) == (which == MR)) return k;
static int link_of(int operation, int form) { LINKS(IS_LINK) return -1; }     /* -1: it is none */
#define ON_DOUBLES(name, class, by, kinds, e, ...) \
    static inline double name##_of_doubles(double x, double y) { return e; }
OF_TWO_NUMBERS(ON_DOUBLES)
#define PAIR(a, b) (4 * (a) + (b))
#define TRIPLE(a, b, c) (16 * (a) + 4 * (b) + (c))
#define EACH_PAIR(a, does) does(a, 0) does(a, 1) does(a, 2) does(a, 3)
#define ALL_PAIRS(does) EACH_PAIR(0, does) EACH_PAIR(1, does) EACH_PAIR(2, does) EACH_PAIR(3, does)
#define EACH_TRIPLE(a, b, does) does(a, b, 0) does(a, b, 1) does(a, b, 2) does(a, b, 3)
#define TRIPLES_AFTER(a, does) \
    EACH_TRIPLE(a, 0, does) EACH_TRIPLE(a, 1, does) EACH_TRIPLE(a, 2, does) EACH_TRIPLE(a, 3, does)
#define ALL_TRIPLES(does) \
    TRIPLES_AFTER(0, does) TRIPLES_AFTER(1, does) TRIPLES_AFTER(2, does) TRIPLES_AFTER(3, does)
#define LINK_0(k) last_double = add_of_doubles(last_double, VALUE(Any_double, WORDS_OF_LINK * (k) + 2));
#define LINK_1(k) last_double = subtract_of_doubles(last_double, VALUE(Any_double, WORDS_OF_LINK * (k) + 2));
#define LINK_2(k) last_double = multiply_of_doubles(last_double, VALUE(Any_double, WORDS_OF_LINK * (k) + 2));
#define LINK_3(k) last_double = subtract_of_doubles(VALUE(Any_double, WORDS_OF_LINK * (k) + 1), last_double);
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

/* Single elements at positions. Addresses are those of the array, of the value to put there, and of the positions. */
static inline void move_element(char* target, const char* source, npy_intp size) {
    switch (size) {
        case 8: memcpy(target, source, 8); break;
        case 16: memcpy(target, source, 16); break;
        case 4: memcpy(target, source, 4); break;
        case 2: memcpy(target, source, 2); break;
        default: *target = *source; }
}
#define PICKED (w[2].address + offset_of_positions(&w[3].address, w[1].axes))
#define PUTTING(size_of_element) \
    npy_intp n_axes = w[1].axes[0], size = size_of_element; \
    char *target = w[2].address + offset_of_positions(&w[4].address, w[1].axes), *value = w[3].address; \
    (*log)->address = target; (*log)->size = size; move_element((*log)->before, target, size); (*log)++;
#define ADD_TO_TARGET(kind) *(kind*)target += *(kind*)value
static void undo(const Overwritten* first, const Overwritten* after) {
    while (after-- != first) move_element(after->address, after->before, after->size);
}

/* Run code, `count` times if it has repetitions. Return the flags that were raised, as the processor numbers
   them. `last` is what the registers hold at the beginning: an address, or NULL. Elements that are put into arrays are
   added to the log. */
static unsigned int run_operations(CodeWord* w, npy_intp count, const char* last, int is_single, Overwritten** log) {
    unsigned int flags = 0;
    double last_double = 0;
    float last_float = 0;
    CodeWord* first = w;
    LABELS
    if (last != NULL) {
        if (is_single) last_float = *(const Any_float*)last; else last_double = *(const Any_double*)last; }
    for (;;) PLACE(any_code) switch (w->operation.code) {
        CODED(CASES_OF)

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

        COMMON(PICK_8): last_double = *(Any_double*)PICKED; VALUE(Any_double, 3 + w[1].axes[0]) = last_double;
            DONE(4 + w[1].axes[0])
        case PICK_ANY: move_element(w[3 + w[1].axes[0]].address, PICKED, w->operation.n); DONE(4 + w[1].axes[0])
        COMMON(PUT_ANY): { PUTTING(w->operation.n) move_element(target, value, size); DONE(5 + n_axes) }
        case PUT_SUM: {
            PUTTING(w->operation.n == OF_FLOAT32 ? 4 : 8)
            if (w->operation.n == OF_FLOAT64) ADD_TO_TARGET(Any_double);
            else if (w->operation.n == OF_FLOAT32) ADD_TO_TARGET(Any_float);
            else ADD_TO_TARGET(Any_word);
            DONE(5 + n_axes) }

        case QUOTIENT: case REMAINDER: {    /* of integers, rounded down. NumPy's loop has the other cases */
            npy_int64 x = VALUE(Any_int, 1), y = VALUE(Any_int, 2), quotient;
            if (y <= 0) goto ask_numpy;
            quotient = x / y - (x % y < 0);
            VALUE(Any_int, 3) = w->operation.code == QUOTIENT ? quotient : x - quotient * y;
            DONE(5) }

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
            if (TYPE_OF(w->operation.code) == OF_FLOAT32) last_float = VALUE(Any_float, 3);
            else last_double = VALUE(Any_double, 3);
            DONE(5) }

        case NEXT_REPETITION:
            if (--count == 0) return flags | flags_of_arithmetic();
            DONE(1)
        COMMON(NEXT_TWO): {     /* then pairs: an address, as words back from here, and its step */
            npy_intp i, n = w->operation.n;
            for (i = 0; i < n; i++) w[-w[1 + 2 * i].number].address += w[2 + 2 * i].number;
            if (--count == 0) return flags | flags_of_arithmetic();
            w = first; DONE(0) }
        case END_OF_CODE: return flags | flags_of_arithmetic();
        default: NO_OTHER_CODE
    }
}

/* The function of C's library that an operation's loop may call for each element, or NULL. */
#define CASE_OF_LIBRARY(name, class, by, ...) case DO_##name: return by;
static LibraryFunction library_function(int operation) {
    switch (operation) { IN_LIBRARY(CASE_OF_LIBRARY) default: return NULL; }
}
/* Return whether a loop gives the bits of the function. NumPy's vector instructions round about a tenth differently. */
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

/* Return whether a loop keeps flags that were raised before. All its operands are of one type. */
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
