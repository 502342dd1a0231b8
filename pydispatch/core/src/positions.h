/* Layers of arrays at given positions. A layer is a slice along an axis. */
#ifndef PYDISPATCH_POSITIONS_H
#define PYDISPATCH_POSITIONS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"

/* Lists of macros that make code, which clang-format would break. */
/* clang-format off */

/* Numbers wherever they lie: arrays that plans take need not be aligned. */
#if HAS_GNU_C
#define AT_ANY_ADDRESS __attribute__((aligned(1)))
#else
#define AT_ANY_ADDRESS
#endif
#define DEFINE_ANY(kind) typedef kind any_##kind AT_ANY_ADDRESS;
DEFINE_ANY(npy_bool) DEFINE_ANY(npy_byte) DEFINE_ANY(npy_ubyte) DEFINE_ANY(npy_short) DEFINE_ANY(npy_ushort)
DEFINE_ANY(npy_int) DEFINE_ANY(npy_uint) DEFINE_ANY(npy_long) DEFINE_ANY(npy_ulong) DEFINE_ANY(npy_longlong)
DEFINE_ANY(npy_ulonglong) DEFINE_ANY(npy_float) DEFINE_ANY(npy_double) DEFINE_ANY(npy_int64) DEFINE_ANY(npy_uint64)

typedef void (*LoopFunction)(char**, const npy_intp*, const npy_intp*, void*);
#define LOOP_NAMED(name) static void name( \
    char** args, const npy_intp* extents, const npy_intp* strides, void* data)

/* A position out of range is noted for the thread, and replaced by the first one. */
static THREAD_LOCAL npy_intp position_out_of_range, extent_out_of_range;
static THREAD_LOCAL int is_out_of_range = 0;
static npy_intp from_end(npy_int64 k, npy_intp extent) {
    if (k >= -extent && k < 0) return k + extent;
    position_out_of_range = k; extent_out_of_range = extent; is_out_of_range = 1;
    return 0;
}
static inline npy_intp from_start(npy_int64 k, npy_intp extent) {
    return (npy_uint64)k < (npy_uint64)extent ? k : from_end(k, extent);
}
/* Single elements at given positions along some axes. `data` has the number of these axes, then the extent and the
   stride of each. After the array, or the values to put there, the loop gets an operand of positions for each axis. */
static inline npy_intp offset_of_positions(char** positions, const npy_intp* axes) {
    npy_intp axis, offset = 0;
    for (axis = 0; axis < axes[0]; axis++)
        offset += from_start(*(any_npy_int64*)positions[axis], axes[1 + 2 * axis]) * axes[2 + 2 * axis];
    return offset;
}
static inline int take_out_of_range(npy_intp* position, npy_intp* extent) {    /* return whether one was noted */
    int found = is_out_of_range;
    *position = position_out_of_range; *extent = extent_out_of_range; is_out_of_range = 0;
    return found;
}
static int are_inside(const char* positions, npy_intp n, npy_intp extent) {
    npy_intp i; int is_outside = 0;
    for (i = 0; i < n; i++)
        is_outside |= (npy_uint64)(((const npy_int64*)positions)[i] + extent) >= 2 * (npy_uint64)extent;
    return !is_outside;
}

/* Sizes are 1, outer, positions, layers, and the bytes of a layer. */
LOOP_NAMED(gather_layers) {
    npy_intp outer, i, n = extents[2], layers = extents[3], size = extents[4];
    const any_npy_int64* positions = (const any_npy_int64*)args[1];
    char *source = args[0], *target = args[2];
    for (outer = 0; outer < extents[1]; outer++, source += layers * size)
        for (i = 0; i < n; i++, target += size) {
            npy_intp k = from_start(positions[i], layers);
            if (size == 8) *(any_npy_uint64*)target = *(any_npy_uint64*)(source + 8 * k);
            else memcpy(target, source + size * k, size);
        }
}

/* The same sizes, but with the elements of a layer, each of which consists of `parts` numbers. Operands are the target,
   positions, values, and the target. The last stride is that of the values: 0 if there is one for all elements. The
   sum of numbers at equal positions that follow each other stays in a register. */
#define DEFINE_ADD_LAYERS(name, kind, parts) LOOP_NAMED(add_layers_##name) { \
    npy_intp outer, i, j, n = extents[2], layers = extents[3], inner = extents[4] * parts, step = strides[4]; \
    const any_npy_int64* positions = (const any_npy_int64*)args[1]; \
    const char* value = args[2]; \
    any_##kind* target = (any_##kind*)args[3]; \
    if (inner == 1 && extents[1] == 1 && n) { \
        npy_intp k = from_start(positions[0], layers); \
        kind sum = target[k]; \
        for (i = 0; i < n; i++, value += step) { \
            npy_intp next = from_start(positions[i], layers); \
            if (next != k) { target[k] = sum; k = next; sum = target[k]; } \
            sum += *(const any_##kind*)value; } \
        target[k] = sum; \
        return; } \
    for (outer = 0; outer < extents[1]; outer++, target += layers * inner) \
        for (i = 0; i < n; i++, value += extents[4] * step) { \
            any_##kind* layer = target + from_start(positions[i], layers) * inner; \
            const any_##kind* added = (const any_##kind*)value; \
            if (step) for (j = 0; j < inner; j++) layer[j] += added[j]; \
            else for (j = 0; j < inner; j++) layer[j] += added[j % parts]; \
        } }
DEFINE_ADD_LAYERS(ubyte, npy_ubyte, 1) DEFINE_ADD_LAYERS(ushort, npy_ushort, 1) DEFINE_ADD_LAYERS(uint, npy_uint, 1)
DEFINE_ADD_LAYERS(ulonglong, npy_ulonglong, 1) DEFINE_ADD_LAYERS(float, npy_float, 1)
DEFINE_ADD_LAYERS(double, npy_double, 1) DEFINE_ADD_LAYERS(cfloat, npy_float, 2)
DEFINE_ADD_LAYERS(cdouble, npy_double, 2)

/* Numbers times elements of a source, which are added at positions of the target, as by a sparse matrix in coordinates.
   Operands are the target, positions, factors, the source, positions in it, and the target. Sizes are 1, positions,
   and the extents of target and source. */
#define DEFINE_ADD_PRODUCTS(name, kind) LOOP_NAMED(add_products_##name) { \
    npy_intp i, n = extents[1], layers = extents[2], extent = extents[3]; \
    const any_npy_int64 *rows = (const any_npy_int64*)args[1], *columns = (const any_npy_int64*)args[4]; \
    const any_##kind *factors = (const any_##kind*)args[2], *source = (const any_##kind*)args[3]; \
    any_##kind* target = (any_##kind*)args[5]; \
    npy_intp k = from_start(rows[0], layers); \
    kind sum = target[k]; \
    for (i = 0; i < n; i++) { \
        npy_intp next = from_start(rows[i], layers); \
        if (next != k) { target[k] = sum; k = next; sum = target[k]; } \
        sum += factors[i] * source[from_start(columns[i], extent)]; } \
    target[k] = sum; }
DEFINE_ADD_PRODUCTS(float, npy_float) DEFINE_ADD_PRODUCTS(double, npy_double)
static LoopFunction add_products_loop(int type) {
    return type == NPY_FLOAT ? add_products_float : type == NPY_DOUBLE ? add_products_double : NULL;
}

static LoopFunction add_layers_loop(int type) {     /* NULL where there is none */
    switch (type) {
        case NPY_BYTE: case NPY_UBYTE: return add_layers_ubyte;
        case NPY_SHORT: case NPY_USHORT: return add_layers_ushort;
        case NPY_INT: case NPY_UINT: return add_layers_uint;
        case NPY_LONG: case NPY_ULONG: return sizeof(npy_long) == 8 ? add_layers_ulonglong : add_layers_uint;
        case NPY_LONGLONG: case NPY_ULONGLONG: return add_layers_ulonglong;
        case NPY_FLOAT: return add_layers_float;
        case NPY_DOUBLE: return add_layers_double;
        case NPY_CFLOAT: return add_layers_cfloat;
        case NPY_CDOUBLE: return add_layers_cdouble;
    }
    return NULL;
}
/* clang-format on */

#endif
