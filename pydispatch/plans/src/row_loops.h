/* Loops whose elements are rows or matrices: searches, sorts, and solutions by LAPACK. */
#ifndef PYDISPATCH_ROW_LOOPS_H
#define PYDISPATCH_ROW_LOOPS_H

#include <Python.h>
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <numpy/arrayobject.h>

#include "core/src/loops.h"
#include "core/src/positions.h"

/* Lists of macros that make code, which clang-format would break. */
/* clang-format off */

/* Searches as NumPy's, also in arrays that are not sorted. Sizes are searches and elements. NaN comes last. */
#define IS_LESS_int(a, b) ((a) < (b))
#define IS_LESS_float(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#define IS_LEFT(less, a, b) less(a, b)
#define IS_RIGHT(less, a, b) (!less(b, a))
#define DEFINE_SEARCH(name, kind, side, less) LOOP_NAMED(name) { \
    npy_intp i, low = 0, high = extents[1], n = extents[1]; \
    char *v = args[1], *result = args[2]; \
    kind last = *(any_##kind*)v; \
    for (i = 0; i < extents[0]; i++, v += strides[1], result += strides[2]) { \
        kind key = *(any_##kind*)v; \
        if (side(less, last, key)) high = n; else { low = 0; high = high < n ? high + 1 : n; } \
        last = key; \
        while (low < high) { \
            npy_intp middle = low + ((high - low) >> 1); \
            if (side(less, *(any_##kind*)(args[0] + middle * strides[3]), key)) low = middle + 1; \
            else high = middle; } \
        *(any_npy_int64*)result = low; } }
#define DEFINE_SEARCHES(kind, less) \
    DEFINE_SEARCH(search_left_##kind, kind, IS_LEFT, less) DEFINE_SEARCH(search_right_##kind, kind, IS_RIGHT, less)
DEFINE_SEARCHES(npy_double, IS_LESS_float) DEFINE_SEARCHES(npy_float, IS_LESS_float)
DEFINE_SEARCHES(npy_int64, IS_LESS_int)
#define SEARCH_OF(kind) is_right ? search_right_##kind : search_left_##kind
static LoopFunction search_loop(int type, int is_right) {       /* NULL where there is none */
    return type == NPY_DOUBLE ? SEARCH_OF(npy_double) : type == NPY_FLOAT ? SEARCH_OF(npy_float)
        : (type == NPY_LONG && sizeof(npy_long) == 8) || type == NPY_LONGLONG ? SEARCH_OF(npy_int64) : NULL;
}

/* NumPy's search from a guess: the number of the segment of `key`, -1 before all, `n` behind all. */
#define POINT(i) (*(any_npy_double*)(points + (i) * stride))
static npy_intp segment_of(npy_double key, const char* points, npy_intp stride, npy_intp n, npy_intp guess) {
    npy_intp low = 0, high = n, i;
    if (key > POINT(n - 1)) return n;
    if (key < POINT(0)) return -1;
    if (n <= 4) {
        for (i = 1; i < n && key >= POINT(i); i++) {}
        return i - 1; }
    if (guess > n - 3) guess = n - 3;
    if (guess < 1) guess = 1;
    if (key < POINT(guess)) {
        if (key >= POINT(guess - 1)) return guess - 1;
        high = guess - 1;
        if (guess > 8 && key >= POINT(guess - 8)) low = guess - 8;
    } else {
        if (key < POINT(guess + 1)) return guess;
        if (key < POINT(guess + 2)) return guess + 1;
        low = guess + 2;
        if (guess < n - 8 - 1 && key < POINT(guess + 8)) high = guess + 8; }
    while (low < high) {
        i = low + ((high - low) >> 1);
        if (key >= POINT(i)) low = i + 1; else high = i; }
    return low - 1;
}

/* NumPy's linear interpolation: x, points, samples, left, right, result. */
LOOP_NAMED(interpolate) {
    npy_intp i, k, j = 0, n = extents[1], stride = strides[6];
    const char *points = args[1], *samples = args[2];
    char* p[6];
    for (k = 0; k < 6; k++) p[k] = args[k];
    for (i = 0; i < extents[0]; i++) {
        npy_double x = *(any_npy_double*)p[0], y;
        if (x != x && n > 1) y = x;
        else {
            if (n == 1) j = x < POINT(0) ? -1 : x > POINT(0) ? 1 : 0;
            else j = segment_of(x, points, stride, n, j);
            if (j == -1) y = *(any_npy_double*)p[3];
            else if (j == n) y = *(any_npy_double*)p[4];
            else {
                npy_double start = *(any_npy_double*)(samples + j * strides[7]);
                if (j == n - 1 || POINT(j) == x) y = start;     /* else the slope may not be finite */
                else {
                    npy_double end = *(any_npy_double*)(samples + (j + 1) * strides[7]);
                    npy_double slope = (end - start) / (POINT(j + 1) - POINT(j));
                    y = slope * (x - POINT(j)) + start;
                    if (y != y) {
                        y = slope * (x - POINT(j + 1)) + end;
                        if (y != y && start == end) y = start; } } } }
        *(any_npy_double*)p[5] = y;
        for (k = 0; k < 6; k++) p[k] += strides[k]; }
}

/* Sorts by NumPy's functions: of rows that follow each other in memory. `data` is the function. */
LOOP_NAMED(sort_rows) {
    npy_intp i, k, size = strides[3];
    for (i = 0; i < extents[0]; i++) {
        char *source = args[0] + i * strides[0], *target = args[1] + i * strides[1];
        if (strides[2] == size) memcpy(target, source, extents[1] * size);
        else for (k = 0; k < extents[1]; k++) memcpy(target + k * size, source + k * strides[2], size);
        ((PyArray_SortFunc*)function_at(data))(target, extents[1], NULL); }
}
LOOP_NAMED(argsort_rows) {
    npy_intp i, k;
    for (i = 0; i < extents[0]; i++) {
        any_npy_int64* order = (any_npy_int64*)(args[1] + i * strides[1]);
        for (k = 0; k < extents[1]; k++) order[k] = k;
        ((PyArray_ArgSortFunc*)function_at(data))(args[0] + i * strides[0], (npy_intp*)order, extents[1], NULL); }
}
/* Filters as SciPy's: sums of shifted rows times weights. `data` has 1 for weights along one axis, else 0, and the
   offset in bytes of the elements that each weight belongs to. Sizes are rows, columns and weights. */
#define WEIGHT(k) (*(any_npy_double*)(args[1] + (k) * strides[4]))
static int symmetry_of(char** args, const npy_intp* strides, npy_intp n) {      /* 1, -1 for antisymmetry, or 0 */
    npy_intp i, half = n / 2;
    int even = 1, odd = 1;
    if (n % 2 == 0) return 0;
    for (i = 1; i <= half; i++) {
        even &= !(fabs(WEIGHT(half + i) - WEIGHT(half - i)) > DBL_EPSILON);
        odd &= !(fabs(WEIGHT(half + i) + WEIGHT(half - i)) > DBL_EPSILON); }
    return even ? 1 : odd ? -1 : 0;
}
#define SHIFTED(vector, k) (*(const vector*)(source + offsets[k] + j * sizeof(vector)))
#define DEFINE_FILTER(name, attributes, vector, number) attributes void name( \
    char** args, const npy_intp* extents, const npy_intp* strides, void* data) { \
    const npy_intp *offsets = (const npy_intp*)data + 1, n = extents[2], at_once = number * sizeof(vector) / 8; \
    const npy_intp is_line = offsets[-1], symmetry = is_line ? symmetry_of(args, strides, n) : 0; \
    const npy_intp first = symmetry ? n / 2 : n - 1;        /* the weight of the first term along one axis */ \
    npy_intp row, i, j, k; \
    for (row = 0; row < extents[0]; row++) \
        for (i = 0; i < extents[1]; i = i + at_once < extents[1] && i + 2 * at_once > extents[1] \
                ? extents[1] - at_once : i + at_once) { \
            const char* source = args[0] + row * strides[0] + 8 * i; \
            vector sums[number]; \
            double w = is_line ? WEIGHT(first) : 0; \
            memset(sums, 0, sizeof sums); \
            for (j = 0; j < (is_line ? number : 0); j++) sums[j] = SHIFTED(vector, first) * w; \
            for (k = 0; k < (is_line ? first : n); k++) { \
                w = WEIGHT(k); \
                if (symmetry > 0) for (j = 0; j < number; j++) \
                    sums[j] += (SHIFTED(vector, k) + SHIFTED(vector, n - 1 - k)) * w; \
                else if (symmetry < 0) for (j = 0; j < number; j++) \
                    sums[j] += (SHIFTED(vector, k) - SHIFTED(vector, n - 1 - k)) * w; \
                else if (is_line || fabs(w) > DBL_EPSILON) for (j = 0; j < number; j++) \
                    sums[j] += SHIFTED(vector, k) * w; } \
            for (j = 0; j < number; j++) \
                *(vector*)(args[2] + row * strides[2] + 8 * i + j * sizeof(vector)) = sums[j]; } }
DEFINE_FILTER(filter_by_element, static, any_npy_double, 1)
#if defined(__x86_64__) && HAS_GNU_C
typedef double FourDoubles __attribute__((vector_size(32), aligned(1), may_alias));
DEFINE_FILTER(filter_by_vector, __attribute__((target("avx2"))) static, FourDoubles, 4)
LOOP_NAMED(filter_rows) {
    if (extents[1] >= 16 && __builtin_cpu_supports("avx2")) filter_by_vector(args, extents, strides, data);
    else filter_by_element(args, extents, strides, data);
}
#else
#define filter_rows filter_by_element
#endif

#define ROW_FUNCTION(loops, type, kind) row_function(type, kind, offsetof(PyArray_ArrFuncs, loops))
static void* row_function(int type, int kind, size_t offset) {  /* of NumPy, by type number, and NULL where there is none */
    PyArray_Descr* dtype = kind < 0 || kind >= NPY_NSORTS ? NULL : PyArray_DescrFromType(type);
    void* found = NULL;
    if (dtype == NULL) return NULL;
    memcpy(&found, (char*)PyDataType_GetArrFuncs(dtype) + offset + kind * sizeof(AnyFunction), sizeof found);
    Py_DECREF(dtype);
    return found;
}
static void* sort_function(int type, int kind) { return ROW_FUNCTION(sort, type, kind); }
static void* argsort_function(int type, int kind) { return ROW_FUNCTION(argsort, type, kind); }

/* LAPACK of the library that NumPy calls, with integers of 4 or 8 bytes. Matrices have columns that follow each other
   in memory. A singular matrix raises the flag of invalid operations, as in NumPy's own loops. */
typedef void (*Getrf)(void*, void*, char*, void*, char*, void*);
typedef void (*Getrs)(const char*, void*, void*, char*, void*, char*, char*, void*, void*, size_t);
typedef void (*Trtrs)(const char*, const char*, const char*, void*, void*, char*, void*, char*, void*, void*, size_t,
                      size_t, size_t);
static struct { Getrf getrf; Getrs getrs; Trtrs trtrs; int size; } lapack = {NULL, NULL, NULL, 0};
typedef union { npy_int64 wide; npy_int32 narrow; } LapackNumber;

static LapackNumber lapack_number(npy_intp value) {
    LapackNumber number;
    number.wide = 0;
    if (lapack.size == 8) number.wide = value; else number.narrow = (npy_int32)value;
    return number;
}
static void end_lapack(LapackNumber report) {
    forget_errors();
    if (lapack.size == 8 ? report.wide != 0 : report.narrow != 0) feraiseexcept(FE_INVALID);
}
/* LAPACK needs aligned arrays that share no memory. Only a plan that was made by hand has others. */
static int are_apart(char** args, const npy_intp* bytes, int n) {
    int i, k;
    for (i = 0; i < n; i++) {
        if ((size_t)args[i] % sizeof(npy_double)) return feraiseexcept(FE_INVALID), 0;
        for (k = 0; k < i; k++)
            if (args[i] < args[k] + bytes[k] && args[k] < args[i] + bytes[i]) return feraiseexcept(FE_INVALID), 0;
    }
    return 1;
}
/* Matrix in C order, factors, and the rows that were exchanged. Sizes are 1 and rows. */
LOOP_NAMED(factor_matrix) {
    npy_intp n = extents[1], i, k;
    const any_npy_double* matrix = (any_npy_double*)args[0];
    any_npy_double* columns = (any_npy_double*)args[1];
    LapackNumber size = lapack_number(n), report = lapack_number(0);
    npy_intp bytes[3] = {n * n * 8, n * n * 8, n * lapack.size};
    if (!are_apart(args, bytes, 3)) return;
    for (i = 0; i < n; i++) for (k = 0; k < n; k++) columns[k * n + i] = matrix[i * n + k];
    lapack.getrf(&size, &size, args[1], &size, args[2], &report);
    end_lapack(report);
}
/* Factors, exchanged rows, and the right-hand sides, which become the solutions. Sizes are 1, rows and their number. */
LOOP_NAMED(solve_factored) {
    LapackNumber size = lapack_number(extents[1]), number = lapack_number(extents[2]), report = lapack_number(0);
    npy_intp i, row, n = extents[1], bytes[3] = {n * n * 8, n * lapack.size, n * extents[2] * 8};
    if (!are_apart(args, bytes, 3)) return;
    for (i = 0; i < extents[1]; i++) {      /* only a plan that was made by hand has other rows */
        row = lapack.size == 8 ? (npy_intp)((any_npy_int64*)args[1])[i] : ((any_npy_int*)args[1])[i];
        if (row < 1 || row > extents[1]) { feraiseexcept(FE_INVALID); return; } }
    lapack.getrs(data == NULL ? "N" : "T", &size, &number, args[0], &size, args[1], args[2], &size, &report, 1);
    end_lapack(report);
}
/* A matrix in C order, of which the lower triangle is used, and the right-hand sides, as above. */
LOOP_NAMED(solve_lower) {
    LapackNumber size = lapack_number(extents[1]), number = lapack_number(extents[2]), report = lapack_number(0);
    npy_intp n = extents[1], bytes[2] = {n * n * 8, n * extents[2] * 8};
    if (!are_apart(args, bytes, 2)) return;
    lapack.trtrs("U", data == NULL ? "T" : "N", "N", &size, &number, args[0], &size, args[1], &size, &report, 1, 1, 1);
    end_lapack(report);
}
static LoopFunction lapack_loop(int routine) {          /* NULL where there is none */
    return lapack.size == 0 ? NULL : routine == 0 ? factor_matrix : routine == 1 ? solve_factored : solve_lower;
}
static void set_lapack(size_t getrf, size_t getrs, size_t trtrs, int size) {
    void *first = (void*)getrf, *second = (void*)getrs, *third = (void*)trtrs;
    lapack.getrf = (Getrf)function_at(first), lapack.getrs = (Getrs)function_at(second);
    lapack.trtrs = (Trtrs)function_at(third), lapack.size = size;
}

#endif
