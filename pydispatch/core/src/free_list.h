/* A free list of small arrays of float64. */
#ifndef PYDISPATCH_FREE_LIST_H
#define PYDISPATCH_FREE_LIST_H

#include <Python.h>
#include <numpy/arrayobject.h>

#include "core/src/seam.h"

enum {
    MOST_AXES_KEPT = 2,
    MOST_ELEMENTS_KEPT = 256,
    MOST_ARRAYS_KEPT = 2048, /* some 4 MB at most */
    FRESH_FLAGS = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE | NPY_ARRAY_OWNDATA
};
static PyObject* free_list[MOST_AXES_KEPT + 1][MOST_ELEMENTS_KEPT + 1]; /* each has the next one in its memory */
static int n_free_arrays = 0;

static inline int is_like_fresh(PyArrayObject* array, PyObject* float64) {
    return (PyArray_FLAGS(array) & ~NPY_ARRAY_F_CONTIGUOUS) == FRESH_FLAGS &&
           (PyObject*)PyArray_DESCR(array) == float64 && PyArray_BASE(array) == NULL &&
           !may_have_weak_references(array);
}

static inline int keep_array(PyArrayObject* array, PyObject* float64) {
    npy_intp size;
    PyObject** place;
    if (PyArray_NDIM(array) > MOST_AXES_KEPT || n_free_arrays == MOST_ARRAYS_KEPT) return 0;
    size = size_of_array(array);
    if (size < 1 || size > MOST_ELEMENTS_KEPT || !is_like_fresh(array, float64)) return 0;
    place = &free_list[PyArray_NDIM(array)][size];
    *(PyObject**)PyArray_DATA(array) = *place;
    *place = (PyObject*)array;
    n_free_arrays++;
    return 1;
}

static inline PyObject* take_kept_array(int ndim, npy_intp* extents) {
    npy_intp size = 1;
    PyArrayObject* array;
    PyObject** place;
    int axis;
    if (ndim > MOST_AXES_KEPT) return NULL;
    for (axis = 0; axis < ndim; axis++) {
        if (extents[axis] > MOST_ELEMENTS_KEPT) return NULL;
        size *= extents[axis];
    }
    if (size < 1 || size > MOST_ELEMENTS_KEPT) return NULL;
    place = &free_list[ndim][size];
    array = (PyArrayObject*)*place;
    if (array == NULL) return NULL;
    *place = *(PyObject**)PyArray_DATA(array);
    n_free_arrays--;
    size = sizeof(double);
    for (axis = ndim - 1; axis >= 0; axis--) {
        PyArray_DIMS(array)[axis] = extents[axis];
        PyArray_STRIDES(array)[axis] = size;
        size *= extents[axis];
    }
    if (ndim < 2 || extents[0] == 1 || extents[1] == 1) PyArray_ENABLEFLAGS(array, NPY_ARRAY_F_CONTIGUOUS);
    else PyArray_CLEARFLAGS(array, NPY_ARRAY_F_CONTIGUOUS);
    return (PyObject*)array;
}

#endif
