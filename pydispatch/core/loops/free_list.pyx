# A free list of small arrays of float64.

# NumPy takes longer to make and free an array than to compute a few numbers. Arrays that Tensors and the backward pass
# release are therefore kept as they are, by number of axes and elements. The next result of that size reuses one. No
# program can observe this: a kept array has no other reference, no weak reference either, and owns its memory.

cdef extern from "core/src/free_list.h":
    bint keep_array(PyArrayObject* array, PyObject* float64) noexcept       # False if it is another kind of array
    PyObject* take_kept_array(int ndim, cnp.npy_intp* extents) noexcept     # NULL if there is none


cdef inline PyObject* new_array_of_double(int ndim, cnp.npy_intp* extents) except NULL:
    cdef PyObject* array = take_kept_array(ndim, extents)
    if array != NULL:
        return array
    return new_from_descr(&PyArray_Type, new_reference(<object>FLOAT64), ndim, extents, NULL, NULL, 0, NULL)


cdef inline void release_reference(PyObject* value) noexcept:
    if (IS_FREE_THREADED or not has_references(value, 1) or Py_TYPE(value) != &PyArray_Type
            or not keep_array(<PyArrayObject*>value, FLOAT64)):
        Py_DECREF(value)
