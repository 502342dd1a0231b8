/* Private parts of NumPy. */

#ifndef PYDISPATCH_SEAM_NUMPY_H
#define PYDISPATCH_SEAM_NUMPY_H

#include <Python.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

/* --- names for macros -------------------------------------------------------------------------------------------- */

#define PyArray_IsScalarOfNumPy(value) PyObject_TypeCheck(value, &PyGenericArrType_Type)
#define descr_of(array) ((PyObject*)PyArray_DESCR(array))
#define number_of_descr(descr) (((PyArray_Descr*)(descr))->type_num)
#define new_from_descr(type, descr, ndim, dims, strides, data, flags, like) \
    PyArray_NewFromDescr(type, (PyArray_Descr*)(descr), ndim, dims, strides, data, flags, like)
#define array_of_type(array, type) \
    PyArray_FromArray((PyArrayObject*)(array), PyArray_DescrFromType(type), NPY_ARRAY_FORCECAST)
#define new_scalar(data, descr, base) PyArray_Scalar(data, (PyArray_Descr*)(descr), base)

static inline npy_intp size_of_array(PyArrayObject* array) {
    npy_intp size = 1;
    int axis;
    for (axis = 0; axis < PyArray_NDIM(array); axis++) size *= PyArray_DIM(array, axis);
    return size;
}

/* --- the layout of objects --------------------------------------------------------------------------------------- */

/* The number in a scalar of 64 bits, which are all laid out as the one for long is. */
static inline npy_intp intp_of_scalar(PyObject* scalar) {
#if defined(PYDISPATCH_PORTABLE)
    npy_intp number;
    PyArray_ScalarAsCtype(scalar, &number);
    return number;
#else
    return *(npy_intp*)&((PyLongScalarObject*)scalar)->obval;
#endif
}

/* Whether weak references to an array may exist. */
#if defined(PYDISPATCH_PORTABLE)
#define may_have_weak_references(array) 1
#else
#define may_have_weak_references(array) (((PyArrayObject_fields*)(array))->weakreflist != NULL)
#endif

#endif
