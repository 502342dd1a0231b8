/* NumPy's inner loops, called directly on small arrays. */
#ifndef PYDISPATCH_LOOPS_H
#define PYDISPATCH_LOOPS_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "core/src/seam_compiler.h"

#if defined(__x86_64__) && HAS_GNU_C
#include <xmmintrin.h>
#define ERROR_FLAGS 0x1Du
static inline unsigned int flags_of_x87(void) { /* where feraiseexcept notes overflow, which loops call */
    unsigned short status;
    __asm__ __volatile__("fnstsw %0" : "=a"(status));
    return status;
}

static inline unsigned int flags_of_arithmetic(void) { /* of all calculations before, whose results are in memory */
    __asm__ __volatile__("" ::: "memory");
    return _mm_getcsr() & ERROR_FLAGS;
}
static inline unsigned int flags_of_calls(void) { return flags_of_x87() & ERROR_FLAGS; }

static inline int errors_of_flags(unsigned int raised) { /* as NumPy's NPY_FPE_ flags */
    return !raised ? 0 : (raised & 4 ? 1 : 0) | (raised & 8 ? 2 : 0) | (raised & 16 ? 4 : 0) | (raised & 1 ? 8 : 0);
}

static inline void raise_all_flags(void) { _mm_setcsr(_mm_getcsr() | ERROR_FLAGS); }

static inline void forget_errors(void) { /* writing costs much more than reading */
    unsigned int flags = _mm_getcsr();
    if (flags & ERROR_FLAGS) _mm_setcsr(flags & ~ERROR_FLAGS);
    if (flags_of_x87() & ERROR_FLAGS) __asm__ __volatile__("fnclex");
}
#else
#include <fenv.h>
static inline unsigned int flags_of_arithmetic(void) {
    return (unsigned int)fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID);
}
static inline unsigned int flags_of_calls(void) { return 0; } /* there is one place for flags */

static inline int errors_of_flags(unsigned int raised) {
    return !raised ? 0
                   : (raised & FE_DIVBYZERO ? 1 : 0) | (raised & FE_OVERFLOW ? 2 : 0) |
                         (raised & FE_UNDERFLOW ? 4 : 0) | (raised & FE_INVALID ? 8 : 0);
}

static inline void raise_all_flags(void) { feraiseexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID); }

static inline void forget_errors(void) {
    if (flags_of_arithmetic()) feclearexcept(FE_ALL_EXCEPT);
}
#endif
static inline int raised_errors(void) { return errors_of_flags(flags_of_arithmetic() | flags_of_calls()); }

#endif
