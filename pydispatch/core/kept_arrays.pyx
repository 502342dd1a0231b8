# Small arrays of float64 that are used again when they are no longer held.

# To make and free an array takes NumPy longer than to compute a few numbers. So what Tensors and the backward pass let
# go of is kept, as whole arrays, by number of axes and elements; the next result of that size takes the place of one.
# No program can tell: such an array has no other reference, no weak one either, and owns its memory.

cdef extern from *:
    """
    enum {
        MOST_AXES_KEPT = 2,
        MOST_ELEMENTS_KEPT = 256,
        MOST_ARRAYS_KEPT = 2048,                /* some 4 MB at most */
        FRESH_FLAGS = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE | NPY_ARRAY_OWNDATA
    };
    static PyObject* kept_arrays[MOST_AXES_KEPT + 1][MOST_ELEMENTS_KEPT + 1];  /* each has the next one in its memory */
    static int n_kept_arrays = 0;

    static inline int is_like_fresh(PyArrayObject* array, PyObject* float64) {
        return (PyArray_FLAGS(array) & ~NPY_ARRAY_F_CONTIGUOUS) == FRESH_FLAGS
            && (PyObject*)PyArray_DESCR(array) == float64 && PyArray_BASE(array) == NULL
            && ((PyArrayObject_fields*)array)->weakreflist == NULL;
    }

    static inline int keep_array(PyArrayObject* array, PyObject* float64) {
        npy_intp size;
        PyObject** place;
        if (PyArray_NDIM(array) > MOST_AXES_KEPT || n_kept_arrays == MOST_ARRAYS_KEPT) return 0;
        size = size_of_array(array);
        if (size < 1 || size > MOST_ELEMENTS_KEPT || !is_like_fresh(array, float64)) return 0;
        place = &kept_arrays[PyArray_NDIM(array)][size];
        *(PyObject**)PyArray_DATA(array) = *place;
        *place = (PyObject*)array;
        n_kept_arrays++;
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
        place = &kept_arrays[ndim][size];
        array = (PyArrayObject*)*place;
        if (array == NULL) return NULL;
        *place = *(PyObject**)PyArray_DATA(array);
        n_kept_arrays--;
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
    """
    bint keep_array(PyArrayObject* array, PyObject* float64) noexcept       # False: it is not of the kind
    PyObject* take_kept_array(int ndim, cnp.npy_intp* extents) noexcept     # NULL: there is none


cdef inline PyObject* new_array_of_double(int ndim, cnp.npy_intp* extents) except NULL:
    cdef PyObject* array = take_kept_array(ndim, extents)
    if array != NULL:
        return array
    return new_from_descr(&PyArray_Type, give(<object>FLOAT64), ndim, extents, NULL, NULL, 0, NULL)


cdef inline void let_go(PyObject* value) noexcept:
    if (reference_count(value) != 1 or Py_TYPE(value) != &PyArray_Type
            or not keep_array(<PyArrayObject*>value, FLOAT64)):
        Py_DECREF(value)


# --- the arrays of Tensors --------------------------------------------------------------------------------------------

ctypedef void (*destructor)(PyObject*) noexcept
cdef destructor free_tensor = (<vectorcallable*>Tensor).tp_dealloc
cdef destructor free_grad_tensor = (<vectorcallable*>GradTensor).tp_dealloc


cdef void dealloc_tensor(PyObject* tensor) noexcept:
    cdef PyObject* array = give((<Tensor>tensor).array)
    free_tensor(tensor)
    let_go(array)


cdef void dealloc_grad_tensor(PyObject* tensor) noexcept:
    cdef PyObject* array = give((<Tensor>tensor).array)
    free_grad_tensor(tensor)
    let_go(array)


(<vectorcallable*>Tensor).tp_dealloc = dealloc_tensor
(<vectorcallable*>GradTensor).tp_dealloc = dealloc_grad_tensor
