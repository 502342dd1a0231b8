/* A cache of buffers for large results. */
#ifndef PYDISPATCH_BUFFER_CACHE_H
#define PYDISPATCH_BUFFER_CACHE_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

enum { KEPT_HEADER = 64, KEPT_PIECES = 256 };
static const size_t SMALLEST_KEPT = 1 << 16, LARGEST_KEPT = 1 << 28; /* bytes: of a piece, of all together */

#if defined(__linux__)
#include <sys/mman.h>
#endif
/* Ask for large pages, as NumPy does for its arrays: there are fewer to wait for. `size` bytes were allocated. */
static inline void take_large_pages(char* memory, size_t size) {
#if defined(MADV_HUGEPAGE)
    static const size_t PAGE = 4096;
    size_t before = (PAGE - (size_t)memory % PAGE) % PAGE;
    if (size >= (size_t)1 << 22) madvise(memory + before, size - before, MADV_HUGEPAGE);
#endif
}

typedef struct {
    void* allocated;
    size_t capacity;
} KeptPiece; /* before the first byte of an array */
#if defined(Py_GIL_DISABLED)
static PyMutex keeping; /* held while the pieces change */
#define lock_pieces() PyMutex_Lock(&keeping)
#define unlock_pieces() PyMutex_Unlock(&keeping)
#else
#define lock_pieces() ((void)0)
#define unlock_pieces() ((void)0)
#endif
static char* kept_pieces[KEPT_PIECES]; /* oldest first */
static int n_kept_pieces = 0;
static size_t kept_bytes = 0;

static inline KeptPiece* piece_of(char* memory) { return (KeptPiece*)(memory - KEPT_HEADER); }

static char* take_kept_piece(int i) {
    char* memory = kept_pieces[i];
    kept_bytes -= piece_of(memory)->capacity;
    memmove(kept_pieces + i, kept_pieces + i + 1, (--n_kept_pieces - i) * sizeof(char*));
    return memory;
}

static void drop_pieces(size_t at_most) {
    while (n_kept_pieces && kept_bytes > at_most) free(piece_of(take_kept_piece(0))->allocated);
}

static void drop_kept_pieces(size_t at_most) {
    lock_pieces();
    drop_pieces(at_most);
    unlock_pieces();
}

static void* kept_malloc(void* context, size_t size) {
    char *allocated, *memory = NULL;
    int i;
    lock_pieces();
    for (i = n_kept_pieces - 1; size >= SMALLEST_KEPT && i >= 0 && memory == NULL; i--) {
        size_t capacity = piece_of(kept_pieces[i])->capacity;
        if (size <= capacity && capacity - size <= size / 8) memory = take_kept_piece(i);
    }
    unlock_pieces();
    if (memory != NULL) return memory;
    if (size > (size_t)PY_SSIZE_T_MAX - 2 * KEPT_HEADER) return NULL;
    allocated = malloc(size + 2 * KEPT_HEADER);
    if (allocated == NULL) return NULL;
    take_large_pages(allocated, size);
    memory = (char*)(((size_t)allocated + 2 * KEPT_HEADER - 1) & ~(size_t)(KEPT_HEADER - 1));
    piece_of(memory)->allocated = allocated;
    piece_of(memory)->capacity = size;
    return memory;
}

static void* kept_calloc(void* context, size_t count, size_t size) {
    void* memory = size && count > (size_t)PY_SSIZE_T_MAX / size ? NULL : kept_malloc(context, count * size);
    return memory == NULL ? NULL : memset(memory, 0, count * size);
}

static void kept_free(void* context, void* memory, size_t size) {
    KeptPiece* piece;
    if (memory == NULL) return;
    piece = piece_of(memory);
    if (piece->capacity < SMALLEST_KEPT || piece->capacity > LARGEST_KEPT) {
        free(piece->allocated);
        return;
    }
    lock_pieces();
    drop_pieces(LARGEST_KEPT - piece->capacity);
    if (n_kept_pieces == KEPT_PIECES) free(piece_of(take_kept_piece(0))->allocated);
    kept_pieces[n_kept_pieces++] = memory;
    kept_bytes += piece->capacity;
    unlock_pieces();
}

static void* kept_realloc(void* context, void* memory, size_t size) {
    void* larger = kept_malloc(context, size);
    if (larger != NULL && memory != NULL) {
        size_t capacity = piece_of(memory)->capacity;
        memcpy(larger, memory, capacity < size ? capacity : size);
        kept_free(context, memory, 0);
    }
    return larger;
}

static PyDataMem_Handler kept_handler = {"pydispatch", 1, {NULL, kept_malloc, kept_calloc, kept_realloc, kept_free}};
static PyObject* kept_handler_capsule(void) { return PyCapsule_New(&kept_handler, "mem_handler", NULL); }

#endif
