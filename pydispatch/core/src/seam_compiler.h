/* Extensions of compilers to C11. */

#ifndef PYDISPATCH_SEAM_COMPILER_H
#define PYDISPATCH_SEAM_COMPILER_H

#include <stdint.h>
#include <string.h>

#if defined(PYDISPATCH_PORTABLE)
#define IS_PORTABLE 1
#else
#define IS_PORTABLE 0
#endif

/* Whether to use what only GNU's compilers and their likes have. */
#if defined(__GNUC__) && !defined(PYDISPATCH_PORTABLE)
#define HAS_GNU_C 1
#else
#define HAS_GNU_C 0
#endif

/* A variable per thread. One that every call reads is found without a call of a function. */
#if HAS_GNU_C
#define THREAD_LOCAL __thread
#define HOT_THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))
#elif defined(_MSC_VER)
#define THREAD_LOCAL __declspec(thread)
#define HOT_THREAD_LOCAL THREAD_LOCAL
#else
#define THREAD_LOCAL _Thread_local
#define HOT_THREAD_LOCAL THREAD_LOCAL
#endif

/* Bits of a word. All but `bit_length16` and `number_of_bits` need a word with a bit set. */
#if HAS_GNU_C
#define bit_length16(word) ((word) ? 32 - __builtin_clz((unsigned int)(word)) : 0)
#define highest_bit(word) (63 - __builtin_clzll(word))
#define lowest_bit(word) __builtin_ctzll(word)
#define number_of_bits(word) __builtin_popcountll(word)
#else
static inline int number_of_bits(uint64_t word) {
    int n = 0;
    for (; word; word &= word - 1) n++;
    return n;
}

static inline int bit_length(uint64_t word) {
    int n = 0;
    for (; word; word >>= 1) n++;
    return n;
}

static inline int bit_length16(uint64_t word) { return bit_length(word); }
static inline int highest_bit(uint64_t word) { return bit_length(word) - 1; }
static inline int lowest_bit(uint64_t word) { return number_of_bits((word & -word) - 1); }
#endif

/* NumPy passes functions as void*, between which and pointers to functions C has no conversion. */
typedef void (*AnyFunction)(void);

static inline AnyFunction function_at(const void* address) {
    AnyFunction function;
    memcpy(&function, &address, sizeof function);
    return function;
}

static inline void* address_of(AnyFunction function) {
    void* address;
    memcpy(&address, &function, sizeof address);
    return address;
}
#define address_of_function(function) address_of((AnyFunction)(function))

/* Numbers that threads share. */
#if HAS_GNU_C
static inline int read_shared(const int* number) { return __atomic_load_n(number, __ATOMIC_SEQ_CST); }
static inline void write_shared(int* number, int value) { __atomic_store_n(number, value, __ATOMIC_SEQ_CST); }
static inline int exchange_shared(int* number, int expected, int value) {
    return __atomic_compare_exchange_n(number, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static inline unsigned int add_to_shared(unsigned int* number, unsigned int more) {
    return __atomic_add_fetch(number, more, __ATOMIC_SEQ_CST);
}
static inline int exchange_pointer(void** place, void** expected, void* value) {
    return __atomic_compare_exchange_n(place, expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
#else
#include <stdatomic.h>
static inline int read_shared(const int* number) { return atomic_load((const volatile atomic_int*)number); }
static inline void write_shared(int* number, int value) { atomic_store((volatile atomic_int*)number, value); }
static inline int exchange_shared(int* number, int expected, int value) {
    return atomic_compare_exchange_strong((volatile atomic_int*)number, &expected, value);
}
static inline unsigned int add_to_shared(unsigned int* number, unsigned int more) {
    return atomic_fetch_add((volatile atomic_uint*)number, more) + more;
}
static inline int exchange_pointer(void** place, void** expected, void* value) {
    return atomic_compare_exchange_strong((void* _Atomic*)place, expected, value);
}
#endif

/* The next number of a sequence, flags of a word, and states that are written after what they describe (release) and
   read before it (acquire). With the GIL, plain reads and writes do. */
#if defined(Py_GIL_DISABLED)
#define number_after(last) (atomic_fetch_add((volatile _Atomic uint64_t*)(last), 1) + 1)
#define add_flags(word, flags) ((void)atomic_fetch_or((volatile _Atomic uint64_t*)(word), (flags)))
#define remove_flags(word, flags) ((void)atomic_fetch_and((volatile _Atomic uint64_t*)(word), ~(uint64_t)(flags)))
#define read_state(place) atomic_load_explicit((const volatile _Atomic char*)(place), memory_order_acquire)
#define write_state(place, state) atomic_store_explicit((volatile _Atomic char*)(place), (state), memory_order_release)
#else
#define number_after(last) (++*(last))
#define add_flags(word, flags) ((void)(*(word) |= (flags)))
#define remove_flags(word, flags) ((void)(*(word) &= ~(uint64_t)(flags)))
#define read_state(place) (*(place))
#define write_state(place, state) ((void)(*(place) = (state)))
#endif

#endif
