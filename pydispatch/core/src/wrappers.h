/* Free lists of wrappers, by their sizes. */
#ifndef PYDISPATCH_WRAPPERS_H
#define PYDISPATCH_WRAPPERS_H

#include <Python.h>
#include <numpy/arrayobject.h>

enum { MOST_FREED = 256, SIZES_OF_WRAPPERS = 8 };
typedef struct {
    int count;
    PyObject* freed[MOST_FREED];
} FreeList;
static FreeList free_lists[SIZES_OF_WRAPPERS]; /* by size, from that of the smallest */
#define free_list(type) (&free_lists[((type)->tp_basicsize - smallest_wrapper) / sizeof(PyObject*)])
static Py_ssize_t smallest_wrapper;

static PyObject* allocate_wrapper(PyTypeObject* type, Py_ssize_t items) {
    FreeList* list = free_list(type);
    PyObject* wrapper;
    if (list->count == 0) return PyType_GenericAlloc(type, items);
    wrapper = list->freed[--list->count];
    memset(wrapper, 0, type->tp_basicsize);
    (void)PyObject_Init(wrapper, type);
    PyObject_GC_Track(wrapper);
    return wrapper;
}

static void free_wrapper(void* wrapper) {
    FreeList* list = free_list(Py_TYPE((PyObject*)wrapper));
    if (list->count < MOST_FREED) list->freed[list->count++] = (PyObject*)wrapper;
    else PyObject_GC_Del(wrapper);
}

#endif
