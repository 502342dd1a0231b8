/* Sines and cosines of many float64 numbers at a time, with the bits of glibc's functions. */
#ifndef PYDISPATCH_TRIGONOMETRIC_LOOPS_H
#define PYDISPATCH_TRIGONOMETRIC_LOOPS_H

#include "core/src/seam_compiler.h"
#include "plans/src/operations.h"
#include "plans/src/wide_loops.h"

/* Lists of macros that make code, which clang-format would break. */
/* clang-format off */

/* A vector is computed to about 2^-62, as the sum of two numbers. glibc's results are within 0.518 units in the last
   place: its sources say so, and 10^8 random numbers do not exceed 0.516. Both round to the same number unless the sum
   is within 0.018 units of the middle between two numbers. Numbers within 1/32 of it, a sixteenth of all, are left to
   glibc's function, as are |x| > 2^20, |x| < 2^-24, infinities, nans, and numbers close to multiples of pi/2. The
   vectors raise no floating-point flag but that of inexact results. */
#if defined(__x86_64__) && HAS_GNU_C && GLIBC
/* By columns: with h the rest of x modulo pi/2 and z = h * h, sin(x) = h (1 + S1 z + S2 z^2 + z^3 P(z)), and
   cos(x) = 1 + C1 z + C2 z^2 + z^3 Q(z). */
static const double OF_QUARTERS[][2] = {
    {0x1.8a8dc85a456e3p-49, 0x1.a168870c7b02dp-45}, {-0x1.ae69a3390d138p-41, -0x1.937c78c9c3e2cp-37},
    {0x1.61244d7c3f25ap-33, 0x1.1eed766ade7a0p-29}, {-0x1.ae64566c49b8fp-26, -0x1.27e4fb5fcae06p-22},
    {0x1.71de3a5562806p-19, 0x1.a01a01a0012a8p-16}, {-0x1.a01a01a019fc6p-13, -0x1.6c16c16c16b45p-10},
    {0x1.1111111111111p-7, 0x1.5555555555555p-5}, {-0x1.5555555555555p-3, -0.5}, {-0x1.5555555555555p-57, 0},
    {3, 2}, {0, 1}};
enum { SECOND = 6, FIRST, REST_OF_FIRST, OF_BOTH_PARTS, ONE_OR_NONE };
static const double HALF_PI[] = {0x1.921fb54400000p+0, 0x1.0b4611a600000p-34, 0x1.3198a2e037073p-69};   /* in parts */
#define BITS_OF(number) (((union { double number_; npy_int64 bits; }){number}).bits)
#define MULTIPLIED(operation, x, y, z) ({ \
    Vector product = x; \
    __asm__ (operation "213pd %2, %1, %0" : "+v"(product) : "v"((Vector)(y)), "v"((Vector)(z))); \
    product; })
#define MULTIPLY_ADD(x, y, z) MULTIPLIED("vfmadd", x, y, z)             /* x * y + z, rounded once */
#define MULTIPLY_SUBTRACT(x, y, z) MULTIPLIED("vfmsub", x, y, z)
#define BROADCAST_PAIR(instruction, pair, row) \
    __asm__ (instruction " %1, %0\n\tvpermilpd %2, %0, %0" : "=&v"(pair) : "m"(OF_QUARTERS[row]), "v"(column))
#define CONSTANT(row) ({ \
    Vector pair; \
    if (WIDTH == 8) BROADCAST_PAIR("vbroadcastf64x2", pair, row); else BROADCAST_PAIR("vbroadcastf128", pair, row); \
    pair; })
enum { AT_A_TIME = 64 };
/* Write results for `n` numbers at most AT_A_TIME, and those up to a whole vector. Return the set of those that are
   left to glibc's function. A quarter is a rounded multiple of pi/2. */
#define DEFINE_TURNS(name, isa, bits) \
    __attribute__((target(isa))) static npy_uint64 name( \
            const double* given, double* results, npy_intp n, int is_cosine) { \
        typedef double Vector __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
        typedef npy_int64 Ints __attribute__((vector_size(bits / 8), aligned(1), may_alias)); \
        enum { WIDTH = bits / 64 }; \
        const Ints sign = (Ints){0} + BITS_OF(-0.0); \
        const Vector zero = {0}; \
        npy_uint64 left = 0; \
        npy_intp i; \
        for (i = 0; i < n; i += WIDTH) { \
            Vector x = *(const Vector*)(given + i), turns, h, low, z, z_low, p, base, v, v_low, w, w_low, first, second, \
                   sum, constant, gap; \
            Ints size = (Ints)x & ~sign, quarter, column, is_left, is_sine; \
            unsigned int lanes; \
            is_left = (size > BITS_OF(0x1p20)) | (size < BITS_OF(0x1p-24)); \
            x = (Vector)((Ints)x & ~is_left); \
            turns = MULTIPLY_ADD(x, zero + 0x1.45f306dc9c883p-1, zero + 0x1.8p52);      /* rounds to an integer */ \
            quarter = (Ints)turns + is_cosine, column = quarter << 1, is_sine = (quarter & 1) - 1; \
            turns = 0x1.8p52 - turns; \
            p = MULTIPLY_ADD(turns, zero + HALF_PI[0], x);                              /* exact */ \
            h = MULTIPLY_ADD(turns, zero + HALF_PI[1], p); \
            low = MULTIPLY_ADD(turns, zero + HALF_PI[1], p - h); \
            low = MULTIPLY_ADD(turns, zero + HALF_PI[2], low); \
            p = h, h += low, low += p - h; \
            z = h * h; \
            z_low = MULTIPLY_ADD(h * low, CONSTANT(OF_BOTH_PARTS), MULTIPLY_SUBTRACT(h, h, z)); \
            p = MULTIPLY_ADD(CONSTANT(0), z, CONSTANT(1)); \
            p = MULTIPLY_ADD(p, z, CONSTANT(2)); \
            p = MULTIPLY_ADD(p, z, CONSTANT(3)); \
            p = MULTIPLY_ADD(p, z, CONSTANT(4)); \
            p = MULTIPLY_ADD(p, z, CONSTANT(5)); \
            base = (Vector)(((Ints)h & is_sine) | (Ints)CONSTANT(ONE_OR_NONE)); \
            v = base * z, v_low = MULTIPLY_ADD(base, z_low, MULTIPLY_SUBTRACT(base, z, v)); \
            w = v * z, w_low = MULTIPLY_ADD(v_low, z, MULTIPLY_ADD(v, z_low, MULTIPLY_SUBTRACT(v, z, w))); \
            low = MULTIPLY_ADD(w * z, p, (Vector)((Ints)low & is_sine)); \
            constant = CONSTANT(FIRST); \
            first = v * constant; \
            low = MULTIPLY_ADD(v_low, constant, low + MULTIPLY_SUBTRACT(v, constant, first)); \
            low = MULTIPLY_ADD(v, CONSTANT(REST_OF_FIRST), low); \
            constant = CONSTANT(SECOND); \
            second = w * constant; \
            low = MULTIPLY_ADD(w_low, constant, low + MULTIPLY_SUBTRACT(w, constant, second)); \
            p = base + first, sum = p + second; \
            low += (base - p) + first; \
            low += (p - sum) + second; \
            gap = (Vector)((Ints)sum & BITS_OF(INFINITY)) * 0x1p-57; \
            p = sum + (low + gap), sum += low - gap; \
            is_left |= (((Ints)h & ~sign) < BITS_OF(0x1p-24)) | ((Ints)p != (Ints)sum); \
            *(Vector*)(results + i) = (Vector)((Ints)p ^ ((quarter & 2) << 62)); \
            if (WIDTH == 8) __asm__ ("vpmovq2m %1, %%k1\n\tkmovb %%k1, %0" : "=r"(lanes) : "v"(is_left) : "k1"); \
            else __asm__ ("vmovmskpd %1, %0" : "=r"(lanes) : "x"(is_left)); \
            left |= (npy_uint64)lanes << i; } \
        return left; }
DEFINE_TURNS(wide_turns, "avx512f,avx512dq", 512) DEFINE_TURNS(narrow_turns, "avx2,fma", 256)

static npy_uint64 (*take_turns)(const double*, double*, npy_intp, int) = NULL;
#define TURNING_LOOP(name, function, is_cosine) \
    LOOP_NAMED(name) { \
        double given[AT_A_TIME] = {0}, results[AT_A_TIME]; \
        npy_intp i, n = extents[0], part = AT_A_TIME; \
        LEAVE_TO_NUMPY(n < 8 || !are_rows(args, n, strides, sizeof(double), 1)) \
        for (i = 0; i < n; i += AT_A_TIME) { \
            char *from = args[0] + i * sizeof(double), *to = args[1] + i * sizeof(double); \
            npy_uint64 left; \
            if (n - i < part) part = n - i; \
            memcpy(given, from, part * sizeof(double)); \
            left = take_turns(given, results, part, is_cosine) & (~(npy_uint64)0 >> (AT_A_TIME - part)); \
            for (; left; left &= left - 1) results[lowest_bit(left)] = function(given[lowest_bit(left)]); \
            memcpy(to, results, part * sizeof(double)); } }
TURNING_LOOP(sines, sin, 0) TURNING_LOOP(cosines, cos, 1)

/* Return the loop for an operation on float64, or NULL if there is none or NumPy's loop gives other bits. */
static LoopFunction trigonometric_loop(int operation, LoopFunction numpys) {
    LoopFunction loop = operation == DO_sin ? sines : operation == DO_cos ? cosines : NULL;
    double given[512], results[512], others[512];
    npy_intp i, n = 512, strides[2] = {sizeof(double), sizeof(double)};
    npy_uint64 random = 1;
    char *p[2] = {(char*)given, (char*)results}, *q[2] = {(char*)given, (char*)others};
    if (__builtin_cpu_supports("avx512dq")) take_turns = wide_turns;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) take_turns = narrow_turns;
    else return NULL;
    if (!loop) return NULL;
    for (i = 0; i < n; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        given[i] = ((double)(random >> 11) / 4503599627370496.0 - 1) * (i % 4 ? i % 64 : 700);
    }
    loop(p, &n, strides, address_of_function(numpys));
    numpys(q, &n, strides, NULL);
    return memcmp(results, others, sizeof results) ? NULL : loop;
}
#else
static LoopFunction trigonometric_loop(int operation, LoopFunction numpys) { return NULL; }
#endif

#endif
