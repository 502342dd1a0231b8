/* The steps of a plan: loops over arrays, run in order without Python. */
#ifndef PYDISPATCH_STEPS_H
#define PYDISPATCH_STEPS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/positions.h"
#include "core/src/seam_compiler.h"

/* Lists of macros that make code, which clang-format would break. */
/* clang-format off */

/* Loops of our own, called as NumPy's are: casts as NumPy's own, copies, and the choice that `where` makes. */

/* The addresses of the moment are in p. What the loop writes cannot change them, so they stay in registers. */
#define LOOP_OVER(n_in, ...) \
    char *p0 = args[0], *p1 = args[1], *p2 = args[n_in > 1 ? 2 : 0], *p3 = args[n_in > 2 ? 3 : 0]; \
    npy_intp i, end = extents[0], by0 = strides[0], by1 = strides[1], by2 = n_in > 1 ? strides[2] : 0, \
             by3 = n_in > 2 ? strides[3] : 0; \
    for (i = 0; i < end; i++, p0 += by0, p1 += by1, p2 += by2, p3 += by3) { \
        char* p[4] = {p0, p1, p2, p3}; \
        __VA_ARGS__; }

#define AS_IT_IS(value) (value)
#define TRUTH(value) ((value) != 0)         /* any byte but 0 is true in NumPy: `x.view(bool)` */
#define DEFINE_CAST(from, to, OF) \
    LOOP_NAMED(cast_##from##_to_##to) { LOOP_OVER(1, *(any_##to*)p[1] = (to)OF(*(any_##from*)p[0])) }
#define DEFINE_CAST_TO_COMPLEX(from, part, name, OF) \
    LOOP_NAMED(cast_##from##_to_##name) { \
        LOOP_OVER(1, \
            any_##part* target = (any_##part*)p[1]; target[0] = (part)OF(*(any_##from*)p[0]); target[1] = 0) }
#define DEFINE_CASTS(from, OF) \
    LOOP_NAMED(cast_##from##_to_bool) { LOOP_OVER(1, *(npy_bool*)p[1] = *(any_##from*)p[0] != 0) } \
    DEFINE_CAST(from, npy_byte, OF) DEFINE_CAST(from, npy_ubyte, OF) DEFINE_CAST(from, npy_short, OF) \
    DEFINE_CAST(from, npy_ushort, OF) DEFINE_CAST(from, npy_int, OF) DEFINE_CAST(from, npy_uint, OF) \
    DEFINE_CAST(from, npy_long, OF) DEFINE_CAST(from, npy_ulong, OF) DEFINE_CAST(from, npy_longlong, OF) \
    DEFINE_CAST(from, npy_ulonglong, OF) DEFINE_CAST(from, npy_float, OF) DEFINE_CAST(from, npy_double, OF) \
    DEFINE_CAST_TO_COMPLEX(from, npy_float, cfloat, OF) DEFINE_CAST_TO_COMPLEX(from, npy_double, cdouble, OF)
DEFINE_CASTS(npy_bool, TRUTH)
DEFINE_CASTS(npy_byte, AS_IT_IS) DEFINE_CASTS(npy_ubyte, AS_IT_IS) DEFINE_CASTS(npy_short, AS_IT_IS)
DEFINE_CASTS(npy_ushort, AS_IT_IS) DEFINE_CASTS(npy_int, AS_IT_IS) DEFINE_CASTS(npy_uint, AS_IT_IS)
DEFINE_CASTS(npy_long, AS_IT_IS) DEFINE_CASTS(npy_ulong, AS_IT_IS) DEFINE_CASTS(npy_longlong, AS_IT_IS)
DEFINE_CASTS(npy_ulonglong, AS_IT_IS) DEFINE_CASTS(npy_float, AS_IT_IS) DEFINE_CASTS(npy_double, AS_IT_IS)
#define DEFINE_COMPLEX_CAST(from, to, name) \
    LOOP_NAMED(name) { \
        LOOP_OVER(1, \
            to real = (to)((any_##from*)p[0])[0], imaginary = (to)((any_##from*)p[0])[1]; \
            ((any_##to*)p[1])[0] = real; ((any_##to*)p[1])[1] = imaginary) }
DEFINE_COMPLEX_CAST(npy_float, npy_double, cast_cfloat_to_cdouble)
DEFINE_COMPLEX_CAST(npy_double, npy_float, cast_cdouble_to_cfloat)
LOOP_NAMED(cast_cfloat_to_bool) {
    LOOP_OVER(1, *(npy_bool*)p[1] = ((any_npy_float*)p[0])[0] != 0 || ((any_npy_float*)p[0])[1] != 0) }
LOOP_NAMED(cast_cdouble_to_bool) {
    LOOP_OVER(1, *(npy_bool*)p[1] = ((any_npy_double*)p[0])[0] != 0 || ((any_npy_double*)p[0])[1] != 0) }

#define CASE_TO(from, number, name) case number: return cast_##from##_to_##name;
#define CASE_FROM(from, number) case number: switch (to) { \
    CASE_TO(from, NPY_BOOL, bool) CASE_TO(from, NPY_BYTE, npy_byte) CASE_TO(from, NPY_UBYTE, npy_ubyte) \
    CASE_TO(from, NPY_SHORT, npy_short) CASE_TO(from, NPY_USHORT, npy_ushort) CASE_TO(from, NPY_INT, npy_int) \
    CASE_TO(from, NPY_UINT, npy_uint) CASE_TO(from, NPY_LONG, npy_long) CASE_TO(from, NPY_ULONG, npy_ulong) \
    CASE_TO(from, NPY_LONGLONG, npy_longlong) CASE_TO(from, NPY_ULONGLONG, npy_ulonglong) \
    CASE_TO(from, NPY_FLOAT, npy_float) CASE_TO(from, NPY_DOUBLE, npy_double) \
    CASE_TO(from, NPY_CFLOAT, cfloat) CASE_TO(from, NPY_CDOUBLE, cdouble) } return NULL;
static LoopFunction cast_loop(int from, int to) {       /* NULL where there is none */
    switch (from) {
        CASE_FROM(npy_bool, NPY_BOOL) CASE_FROM(npy_byte, NPY_BYTE) CASE_FROM(npy_ubyte, NPY_UBYTE)
        CASE_FROM(npy_short, NPY_SHORT) CASE_FROM(npy_ushort, NPY_USHORT) CASE_FROM(npy_int, NPY_INT)
        CASE_FROM(npy_uint, NPY_UINT) CASE_FROM(npy_long, NPY_LONG) CASE_FROM(npy_ulong, NPY_ULONG)
        CASE_FROM(npy_longlong, NPY_LONGLONG) CASE_FROM(npy_ulonglong, NPY_ULONGLONG)
        CASE_FROM(npy_float, NPY_FLOAT) CASE_FROM(npy_double, NPY_DOUBLE)
        case NPY_CFLOAT: return to == NPY_CDOUBLE ? cast_cfloat_to_cdouble
                                : to == NPY_BOOL ? cast_cfloat_to_bool : NULL;
        case NPY_CDOUBLE: return to == NPY_CFLOAT ? cast_cdouble_to_cfloat
                                 : to == NPY_BOOL ? cast_cdouble_to_bool : NULL;
    }
    return NULL;
}

/* Where the operands of a loop are: two or three mostly, for which vector instructions would only be overhead. */
#if HAS_GNU_C
#define NO_VECTORS __asm__ __volatile__ ("")
#else
#define NO_VECTORS
#endif
static inline void find_operands(char** operands, char** table, const npy_intp* buffers, const npy_intp* offsets,
                                 int n) {
    int i;
    for (i = 0; i < n; i++) { operands[i] = table[buffers[i]] + offsets[i]; NO_VECTORS; }
}

static inline void fetch_ahead(const char* start, npy_intp size) {      /* to the cache, while others compute */
    #if HAS_GNU_C
    npy_intp i;
    for (i = 0; i < size; i += 64) __builtin_prefetch(start + i);
    #endif
}
static inline void copy_addresses(char** operands, char** first, int n) {
    int i;
    for (i = 0; i < n; i++) { operands[i] = first[i]; NO_VECTORS; }
}
static inline void addresses_at(char** operands, char** first, const npy_intp* strides, npy_intp k, int n) {
    int i;
    for (i = 0; i < n; i++) { operands[i] = first[i] + strides[i] * k; NO_VECTORS; }
}
static inline void move_addresses(char** operands, const npy_intp* strides, npy_intp times, int n) {
    int i;
    for (i = 0; i < n; i++) { operands[i] += strides[i] * times; NO_VECTORS; }
}

static inline void fill_8(char* target, const char* value, npy_intp n) {
    npy_uint64 numbers[4]; npy_intp i = 0;
    for (; i < 4; i++) memcpy(numbers + i, value, 8);
    for (i = 0; i + 4 <= n; i += 4) memcpy(target + 8 * i, numbers, 32);
    for (; i < n; i++) memcpy(target + 8 * i, numbers, 8);
}

/* Moves of elements of `size` bytes, wherever these lie: numbers are aligned, text is not. */
#define DEFINE_MOVES(name, size) \
    LOOP_NAMED(copy_##name) { \
        if (extents[0] > 1 && strides[0] == size && strides[1] == size) { \
            memmove(args[1], args[0], extents[0] * size); return; } \
        if (size == 8 && strides[0] == 0 && strides[1] == 8) { fill_8(args[1], args[0], extents[0]); return; } \
        LOOP_OVER(1, memmove(p[1], p[0], size)) } \
    LOOP_NAMED(choose_##name) { LOOP_OVER(3, memmove(p[3], *(npy_bool*)p[0] ? p[1] : p[2], size)) }
DEFINE_MOVES(1, 1) DEFINE_MOVES(2, 2) DEFINE_MOVES(4, 4) DEFINE_MOVES(8, 8) DEFINE_MOVES(16, 16)
DEFINE_MOVES(any, (npy_intp)data)
#define CASE_SIZE(kind, size) case size: return kind##_##size;
#define LOOP_BY_SIZE(kind, otherwise) static LoopFunction kind##_loop(int size) { switch (size) { \
    CASE_SIZE(kind, 1) CASE_SIZE(kind, 2) CASE_SIZE(kind, 4) CASE_SIZE(kind, 8) CASE_SIZE(kind, 16) } \
    return otherwise; }
LOOP_BY_SIZE(copy, copy_any) LOOP_BY_SIZE(choose, choose_any)
enum { MAX_LOOP_OPERANDS = 8 };
static inline void next_of(char** p, const npy_intp* strides, int n) { for (; n >= 0; n--) p[n] += strides[n]; }
#define DEFINE_AT_POSITIONS(name, n, ...) LOOP_NAMED(name) { \
    const npy_intp* axes = (const npy_intp*)data; \
    if (axes[0] == 1) { \
        npy_intp extent = axes[1], stride = axes[2]; \
        LOOP_OVER(n + 1, \
            npy_intp offset = from_start(*(any_npy_int64*)p[n], extent) * stride; \
            char* target = p[n + 1]; \
            __VA_ARGS__) \
    } else { \
        npy_intp last = n + axes[0], i, k; \
        char* p[MAX_LOOP_OPERANDS]; \
        for (k = 0; k <= last; k++) p[k] = args[k]; \
        for (i = 0; i < extents[0]; i++, next_of(p, strides, (int)last)) { \
            npy_intp offset = offset_of_positions(p + n, axes); \
            char* target = p[last]; \
            __VA_ARGS__; } \
    } }
#define DEFINE_PICKS(size) \
    DEFINE_AT_POSITIONS(pick_##size, 1, memcpy(target, p[0] + offset, size)) \
    DEFINE_AT_POSITIONS(put_##size, 2, memcpy(target + offset, p[1], size))
DEFINE_PICKS(1) DEFINE_PICKS(2) DEFINE_PICKS(4) DEFINE_PICKS(8) DEFINE_PICKS(16)
LOOP_BY_SIZE(pick, NULL) LOOP_BY_SIZE(put, NULL)
#define DEFINE_PUT_SUM(kind) \
    DEFINE_AT_POSITIONS(put_sum_##kind, 2, *(any_##kind*)(target + offset) += *(any_##kind*)p[1])
DEFINE_PUT_SUM(npy_float) DEFINE_PUT_SUM(npy_double) DEFINE_PUT_SUM(npy_int64)
static LoopFunction put_sum_loop(int type) {        /* NULL where there is none */
    return type == NPY_FLOAT ? put_sum_npy_float : type == NPY_DOUBLE ? put_sum_npy_double
        : (type == NPY_LONG && sizeof(npy_long) == 8) || type == NPY_LONGLONG ? put_sum_npy_int64 : NULL;
}

/* NumPy adds contiguous numbers by halves, in multiples of eight, as long as these are longer than 128. Sums of parts
   that come from halving therefore make the sum of all, to the bit. */
enum { SHORTEST_PART = 128 };
static inline npy_intp half_of(npy_intp n) { return n / 2 - n / 2 % 8; }
static npy_intp end_of_part(npy_intp position, npy_intp n, npy_intp longest) {
    npy_intp start = 0, half;
    while (n > longest) {
        half = half_of(n);
        if (position < start + half) n = half; else { start += half; n -= half; }
    }
    return start + n;
}
/* A sum of rows, which NumPy adds one by one, holds some of its elements in registers meanwhile. Returns whether it was
   computed. */
typedef int (*RowSum)(char* sums, const char* rows, npy_intp n_rows, npy_intp stride, npy_intp n);
/* Up to 128 it adds up every eighth one, and then the eight sums. Here four such parts go through registers
   together, which would wait for the sum before otherwise. */
#if defined(__x86_64__) && HAS_GNU_C
#define DEFINE_WIDE_SUM(kind, isa) \
    typedef kind Eight_##kind __attribute__((vector_size(8 * sizeof(kind)), aligned(1), may_alias)); \
    __attribute__((target(isa))) \
    static inline kind sum_from_##kind(const any_##kind* x, npy_intp i, npy_intp n, const Eight_##kind* first) { \
        Eight_##kind r = *first; \
        kind sum; \
        for (; i < n - n % 8; i += 8) r += *(const Eight_##kind*)(x + i); \
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7])); \
        for (; i < n; i++) sum += x[i]; \
        return sum; } \
    __attribute__((target(isa))) \
    static kind wide_sum_##kind(const any_##kind* x, npy_intp n) { \
        npy_intp half = half_of(n), left = half_of(half), right = half_of(n - half), i; \
        const any_##kind *p[4] = {x, x + left, x + half, x + half + right}; \
        npy_intp sizes[4] = {left, half - left, right, n - half - right}, least = left < right ? left : right; \
        if (n <= SHORTEST_PART) return sum_from_##kind(x, 8, n, (const Eight_##kind*)x); \
        if (half <= SHORTEST_PART || sizes[1] > SHORTEST_PART || sizes[3] > SHORTEST_PART) \
            return wide_sum_##kind(x, half) + wide_sum_##kind(x + half, n - half); \
        { \
            Eight_##kind r0 = *(const Eight_##kind*)p[0], r1 = *(const Eight_##kind*)p[1]; \
            Eight_##kind r2 = *(const Eight_##kind*)p[2], r3 = *(const Eight_##kind*)p[3]; \
            for (i = 8; i < least; i += 8) { \
                r0 += *(const Eight_##kind*)(p[0] + i); r1 += *(const Eight_##kind*)(p[1] + i); \
                r2 += *(const Eight_##kind*)(p[2] + i); r3 += *(const Eight_##kind*)(p[3] + i); } \
            return (sum_from_##kind(p[0], i, sizes[0], &r0) + sum_from_##kind(p[1], i, sizes[1], &r1)) \
                + (sum_from_##kind(p[2], i, sizes[2], &r2) + sum_from_##kind(p[3], i, sizes[3], &r3)); \
        } } \
    __attribute__((target(isa))) \
    static int add_rows_##kind(char* to, const char* rows, npy_intp n_rows, npy_intp stride, npy_intp n) { \
        any_##kind* sums = (any_##kind*)to; \
        npy_intp i = 0, k; \
        for (; i + 32 <= n; i += 32) { \
            Eight_##kind* p = (Eight_##kind*)(sums + i), s0 = p[0], s1 = p[1], s2 = p[2], s3 = p[3]; \
            for (k = 0; k < n_rows; k++) { \
                const Eight_##kind* x = (const Eight_##kind*)(rows + k * stride + i * sizeof(kind)); \
                s0 += x[0]; s1 += x[1]; s2 += x[2]; s3 += x[3]; } \
            p[0] = s0; p[1] = s1; p[2] = s2; p[3] = s3; } \
        for (; i + 8 <= n; i += 8) { \
            Eight_##kind *p = (Eight_##kind*)(sums + i), s = *p; \
            for (k = 0; k < n_rows; k++) s += *(const Eight_##kind*)(rows + k * stride + i * sizeof(kind)); \
            *p = s; } \
        for (; i < n; i++) { \
            kind s = sums[i]; \
            for (k = 0; k < n_rows; k++) s += *(const any_##kind*)(rows + k * stride + i * sizeof(kind)); \
            sums[i] = s; } \
        return 1; } \
    static RowSum row_sum_of_##kind(void) { return __builtin_cpu_supports(isa) ? add_rows_##kind : NULL; } \
    static int may_sum_##kind(LoopFunction add) {     /* whether NumPy's loop gives the same bits */ \
        static int known = -1; \
        kind x[1000], sum; \
        char* operands[3] = {(char*)&sum, (char*)x, (char*)&sum}; \
        npy_intp n, i, strides[3] = {0, sizeof(kind), 0}; \
        int alike = __builtin_cpu_supports(isa) != 0; \
        if (read_shared(&known) >= 0) return read_shared(&known); \
        for (i = 0; i < 1000; i++) x[i] = (i % 3 - 1) / (kind)(i * i % 1013 + 1); \
        for (n = SHORTEST_PART + 1; n <= 1000; n++) { \
            sum = 0; \
            add(operands, &n, strides, NULL); \
            alike = alike && sum == 0 + wide_sum_##kind(x, n); } \
        write_shared(&known, alike); \
        return alike; }
#else
#define DEFINE_WIDE_SUM(kind, isa) \
    static kind wide_sum_##kind(const any_##kind* x, npy_intp n) { return 0; } \
    static int may_sum_##kind(LoopFunction add) { return 0; } \
    static RowSum row_sum_of_##kind(void) { return NULL; }
#endif
#define DEFINE_SUMS(kind, isa) \
    DEFINE_WIDE_SUM(kind, isa) \
    static void add_up_##kind(char** args, npy_intp n, npy_intp stride, LoopFunction add) { /* elements, sum */ \
        char* operands[3] = {args[1], args[0], args[1]}; \
        npy_intp steps[3] = {0, stride, 0}; \
        if (n > SHORTEST_PART && stride == sizeof(kind) && may_sum_##kind(add)) \
            *(any_##kind*)args[1] += wide_sum_##kind((any_##kind*)args[0], n); \
        else add(operands, &n, steps, NULL); } \
    LOOP_NAMED(sum_part_##kind) {   /* in place of the first element. `data` is NumPy's loop */ \
        *(any_##kind*)args[1] = 0; \
        add_up_##kind(args, extents[0], strides[0], (LoopFunction)function_at(data)); } \
    static kind sum_of_parts_##kind(const any_##kind* sums, npy_intp n, npy_intp longest) { \
        npy_intp half = half_of(n); \
        return n <= longest ? *sums : (kind)(sum_of_parts_##kind(sums, half, longest) \
                                             + sum_of_parts_##kind(sums + half, n - half, longest)); } \
    LOOP_NAMED(add_parts_##kind) {  /* first term, sums, result. `data` is the length limit of a part */ \
        *(any_##kind*)args[2] = *(any_##kind*)args[0] \
            + sum_of_parts_##kind((any_##kind*)args[1], extents[0], (npy_intp)data); }
DEFINE_SUMS(npy_float, "avx2") DEFINE_SUMS(npy_double, "avx512f")
static RowSum row_sum_of(int type) {
    return type == NPY_FLOAT ? row_sum_of_npy_float() : type == NPY_DOUBLE ? row_sum_of_npy_double() : NULL; }
/* Extremes of rows. NumPy's loop decides on nan and unlike zeros. Elements may be compared twice: the last vector
   overlaps the one before, and NumPy's loop begins with what is found so far. */
#if defined(__x86_64__) && HAS_GNU_C
#define DEFINE_EXTREMES(name, kind, int_kind, instruction) \
    __attribute__((target("avx2"))) \
    static int name(char* to, const char* rows, npy_intp n_rows, npy_intp stride, npy_intp n) { \
        typedef kind Floats __attribute__((vector_size(32), aligned(1), may_alias)); \
        typedef int_kind Ints __attribute__((vector_size(32))); \
        const unsigned int flags = _mm_getcsr(); \
        const npy_intp last = (n - 1) * sizeof(kind) - (32 - sizeof(kind)); \
        npy_intp i, k; \
        for (i = 0;; i = i + 32 < last ? i + 32 : last) { \
            Floats found = *(Floats*)(to + i); \
            Ints ordinary = found == found; \
            for (k = 0; k < n_rows; k++) { \
                Floats x = *(const Floats*)(rows + k * stride + i); \
                ordinary &= (x == x) & ((found != x) | ((Ints)found == (Ints)x)); \
                __asm__ (instruction " %1, %0, %0" : "+x"(found) : "x"(x)); } \
            if (__builtin_ia32_pmovmskb256((AllBytes)ordinary) != -1) return _mm_setcsr(flags), 0; \
            *(Floats*)(to + i) = found; \
            if (i == last) return 1; } }
typedef char AllBytes __attribute__((vector_size(32)));
DEFINE_EXTREMES(largest_of_doubles, npy_double, npy_int64, "vmaxpd")
DEFINE_EXTREMES(smallest_of_doubles, npy_double, npy_int64, "vminpd")
DEFINE_EXTREMES(largest_of_floats, npy_float, npy_int32, "vmaxps")
DEFINE_EXTREMES(smallest_of_floats, npy_float, npy_int32, "vminps")
static RowSum extreme_of_rows(int type, int is_largest, npy_intp n) {       /* NULL if there is none for `n` elements */
    if (!__builtin_cpu_supports("avx2") || n < 8) return NULL;
    return type == NPY_DOUBLE ? is_largest ? largest_of_doubles : smallest_of_doubles
        : type == NPY_FLOAT ? is_largest ? largest_of_floats : smallest_of_floats : NULL;
}
#else
static RowSum extreme_of_rows(int type, int is_largest, npy_intp n) { return NULL; }
#endif
static LoopFunction sum_part_loop(int type) {
    return type == NPY_FLOAT ? sum_part_npy_float : type == NPY_DOUBLE ? sum_part_npy_double : NULL; }
static LoopFunction add_parts_loop(int type) {
    return type == NPY_FLOAT ? add_parts_npy_float : type == NPY_DOUBLE ? add_parts_npy_double : NULL; }

#endif
