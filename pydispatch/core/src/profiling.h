/* Profiling: which operators run, how long they take and how much memory NumPy allocates meanwhile. */
#ifndef PYDISPATCH_PROFILING_H
#define PYDISPATCH_PROFILING_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include <time.h>

#include "core/src/seam.h"

static inline int64_t nanoseconds_now(void) {
    struct timespec now;
#if defined(CLOCK_MONOTONIC)
    clock_gettime(CLOCK_MONOTONIC, &now);
#else
    timespec_get(&now, TIME_UTC);
#endif
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A memory handler (NEP 49) that counts and leaves the work to NumPy's own. The size lies before the first byte,
   since NumPy does not pass it when memory is resized. NumPy calls handlers with the GIL held. */
enum { COUNTED_HEADER = 16 };
static int64_t live_bytes_now = 0, peak_bytes_now = 0, allocated_bytes_now = 0, allocations_now = 0;
static PyDataMemAllocator* numpys_allocator;

/* Return a total after adding to it. Without the GIL, a peak that two threads reach at once may come out too low. */
#if defined(Py_GIL_DISABLED)
#define add_to_total(total, more) (atomic_fetch_add((volatile _Atomic int64_t*)(total), (more)) + (more))
#else
#define add_to_total(total, more) (*(total) += (more))
#endif

static inline size_t* size_before(void* memory) { return (size_t*)((char*)memory - COUNTED_HEADER); }

static inline void* count_memory(void* memory, size_t size) {
    int64_t live;
    if (memory == NULL) return NULL;
    *(size_t*)memory = size;
    live = add_to_total(&live_bytes_now, (int64_t)size);
    add_to_total(&allocated_bytes_now, (int64_t)size);
    add_to_total(&allocations_now, 1);
    if (live > peak_bytes_now) peak_bytes_now = live;
    return (char*)memory + COUNTED_HEADER;
}

static void* counted_malloc(void* context, size_t size) {
    if (size > (size_t)PY_SSIZE_T_MAX - COUNTED_HEADER) return NULL;
    return count_memory(numpys_allocator->malloc(numpys_allocator->ctx, size + COUNTED_HEADER), size);
}

static void* counted_calloc(void* context, size_t count, size_t size) {
    if (size && count > ((size_t)PY_SSIZE_T_MAX - COUNTED_HEADER) / size) return NULL;
    size *= count;
    return count_memory(numpys_allocator->calloc(numpys_allocator->ctx, 1, size + COUNTED_HEADER), size);
}

static void counted_free(void* context, void* memory, size_t size) {
    if (memory == NULL) return;
    size = *size_before(memory);
    add_to_total(&live_bytes_now, -(int64_t)size);
    numpys_allocator->free(numpys_allocator->ctx, size_before(memory), size + COUNTED_HEADER);
}

static void* counted_realloc(void* context, void* memory, size_t size) {
    size_t before;
    if (memory == NULL) return counted_malloc(context, size);
    if (size > (size_t)PY_SSIZE_T_MAX - COUNTED_HEADER) return NULL;
    before = *size_before(memory);
    memory = numpys_allocator->realloc(numpys_allocator->ctx, size_before(memory), size + COUNTED_HEADER);
    if (memory != NULL) add_to_total(&live_bytes_now, -(int64_t)before);
    return count_memory(memory, size);
}

static PyDataMem_Handler counting_handler = {
    "pydispatch_counting", 1, {NULL, counted_malloc, counted_calloc, counted_realloc, counted_free}};
static PyObject* counting_handler_capsule(void) {
    PyDataMem_Handler* numpys = PyCapsule_GetPointer(PyDataMem_DefaultHandler, "mem_handler");
    if (numpys == NULL) return NULL;
    numpys_allocator = &numpys->allocator;
    return PyCapsule_New(&counting_handler, "mem_handler", NULL);
}

#endif
