# What the core uses of C, of Python and of NumPy.

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames)
    void Py_DECREF(PyObject*)
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*)
    PyObject* PyVectorcall_Call(PyObject*, PyObject*, PyObject*)
    vectorcallfunc PyVectorcall_Function(PyObject*)
    bint PyCFunction_Check(PyObject*) noexcept
    int PyCFunction_GET_FLAGS(PyObject*) noexcept
    void* PyCFunction_GET_FUNCTION(PyObject*) noexcept
    PyObject* PyCFunction_GET_SELF(PyObject*) noexcept
    ctypedef struct PyMethodDef:
        const char* ml_name
        void* ml_meth
        int ml_flags
        const char* ml_doc
    object PyCFunction_NewEx(PyMethodDef*, PyObject*, object)
    object PyDescr_NewClassMethod(PyTypeObject*, PyMethodDef*)
    int METH_FASTCALL, METH_KEYWORDS
    Py_ssize_t PY_SSIZE_T_MAX
    Py_ssize_t PyVectorcall_NARGS(size_t) nogil
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    unsigned long Py_TPFLAGS_HAVE_VECTORCALL
    void PyType_Modified(PyTypeObject*)
    PyObject* PyContextVar_New(const char*, PyObject*)
    int PyContextVar_Get(PyObject*, PyObject*, PyObject**) except -1
    PyObject* set_quietly "PyContextVar_Set" (PyObject*, PyObject*)     # NULL for an error, not raised
    void PyErr_Clear()
    int PyErr_CheckSignals() except -1
    PyObject* PyErr_Occurred()
    void PyErr_Fetch(PyObject**, PyObject**, PyObject**)
    void PyErr_Restore(PyObject*, PyObject*, PyObject*)
    void PyErr_NormalizeException(PyObject**, PyObject**, PyObject**)
    int PyObject_GenericSetAttr(object, object, object) except -1
    int PyObject_RichCompareBool(object, object, int) except -1
    int Py_EQ, Py_LT, Py_LE, Py_NE, Py_GT, Py_GE
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PyTuple_GET_SIZE(PyObject*)
    bint PyTuple_CheckExact(PyObject*)
    PyObject* PyList_GET_ITEM(PyObject*, Py_ssize_t)
    bint PyDict_Next(PyObject*, Py_ssize_t*, PyObject**, PyObject**)
    PyObject* PySequence_Fast_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject*)
    PyObject* PyDict_GetItemWithError(PyObject*, PyObject*) except? NULL
    PyTypeObject PyDict_Type
    void* PyMem_RawMalloc(size_t) nogil
    void PyMem_RawFree(void*) nogil
    double PyFloat_AS_DOUBLE(PyObject*)
    PyTypeObject* Py_TYPE(PyObject*)
    bint PyType_IsSubtype(PyTypeObject*, PyTypeObject*)
    PyTypeObject PySlice_Type, PyTuple_Type, PyList_Type, PyType_Type
    PyTypeObject PyLong_Type, PyFloat_Type, PyBool_Type, PyComplex_Type, PyUnicode_Type
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_Ellipsis
    bint PyUnicode_CHECK_INTERNED(PyObject*) noexcept
    str PyUnicode_FromObject(object)
    ctypedef struct vectorcallable "PyTypeObject":
        Py_ssize_t tp_vectorcall_offset
        PyObject* (*tp_call)(PyObject*, PyObject*, PyObject*)
        unsigned long tp_flags
        vectorcallfunc tp_vectorcall
        void* tp_init
        PyObject* (*tp_new)(PyTypeObject*, PyObject*, PyObject*)
        void (*tp_dealloc)(PyObject*) noexcept
        PyObject* tp_dict
        Py_ssize_t tp_basicsize
        PyObject* (*tp_alloc)(PyTypeObject*, Py_ssize_t) noexcept
        void (*tp_free)(void*) noexcept
    ctypedef struct PyTupleObject:
        PyObject** ob_item
    int PyErr_ExceptionMatches(object) noexcept
    PyObject* PyObject_VectorcallMethod(PyObject* name, PyObject* const* args, size_t nargsf, PyObject* kwnames)
    PyObject* lookup_on_type "_PyType_Lookup" (PyTypeObject* cls, PyObject* name)   # borrowed
    PyTypeObject PyClassMethod_Type
    object PySequence_GetItem(object, Py_ssize_t)
    tuple PyTuple_New(Py_ssize_t)
    void PyTuple_SET_ITEM(tuple, Py_ssize_t, object)

cdef extern from *:
    """
    #define IN_OPERATOR " while calling an operator"
    #if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030E0000
    /* These let C code be 10,000 calls deep, too many for frames of ours; 3.11 counts calls of C and Python together,
       and 3.14 looks at the stack itself. */
    static __thread int depth = 0;
    static inline int enter_recursive_call(void) {
        if (depth >= Py_GetRecursionLimit()) {
            PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded" IN_OPERATOR);
            return -1;
        }
        depth++;
        return 0;
    }
    #define leave_recursive_call() (depth--)
    #else
    #define enter_recursive_call() (Py_EnterRecursiveCall(IN_OPERATOR) ? -1 : 0)
    #define leave_recursive_call() Py_LeaveRecursiveCall()
    #endif
    #define own(result) (result)
    /* when the list cannot grow, Cython 3.3 releases what a comprehension has computed once too often: write a loop */
    #pragma GCC poison __Pyx_ListComp_AppendAndDecref
    #define new_object(type, arguments) ((type)->tp_new((type), (arguments), NULL))
    #if PY_VERSION_HEX >= 0x030C0000
        #define is_compact(number) PyUnstable_Long_IsCompact((PyLongObject*)(number))
        #define compact_value(number) PyUnstable_Long_CompactValue((PyLongObject*)(number))
    #else
        #define is_compact(number) (Py_SIZE(number) >= -1 && Py_SIZE(number) <= 1)
        #define compact_value(number) (Py_SIZE(number) * (Py_ssize_t)((PyLongObject*)(number))->ob_digit[0])
    #endif
    static inline PyObject* give(PyObject* value) { Py_INCREF(value); return value; }
    #define bit_length16(word) ((word) ? 32 - __builtin_clz((unsigned int)(word)) : 0)
    #define highest_bit(word) (63 - __builtin_clzll(word))
    #define lowest_bit(word) __builtin_ctzll(word)
    #define number_of_bits(word) __builtin_popcountll(word)
    """
    int enter_recursive_call() except -1
    void leave_recursive_call()
    PyObject* new_object(PyTypeObject* type, PyObject* arguments) except NULL
    PyObject* new_or_null "new_object" (PyTypeObject* type, PyObject* arguments)
    bint is_compact(PyObject* number) noexcept      # is this int of one digit at most?
    Py_ssize_t compact_value(PyObject* number) noexcept
    PyObject* give(object value)        # a new reference
    object own(PyObject* result)        # takes over a new reference, or raises what the C call raised
    int bit_length16(uint64_t word) noexcept nogil
    int highest_bit(uint64_t word) noexcept nogil
    int lowest_bit(uint64_t word) noexcept nogil
    int number_of_bits(uint64_t word) noexcept nogil

cdef extern from *:
    """
    #define PyArray_IsScalarOfNumPy(value) PyObject_TypeCheck(value, &PyGenericArrType_Type)
    #define descr_of(array) ((PyObject*)PyArray_DESCR(array))
    #define number_of_descr(descr) (((PyArray_Descr*)(descr))->type_num)
    #define intp_of_scalar(scalar) (*(npy_intp*)&((PyLongScalarObject*)(scalar))->obval)     /* laid out like any */
    #define new_from_descr(type, descr, ndim, dims, strides, data, flags, like) \
        PyArray_NewFromDescr(type, (PyArray_Descr*)(descr), ndim, dims, strides, data, flags, like)
    #define array_of_type(array, type) \
        PyArray_FromArray((PyArrayObject*)(array), PyArray_DescrFromType(type), NPY_ARRAY_FORCECAST)
    #define new_scalar(data, descr, base) PyArray_Scalar(data, (PyArray_Descr*)(descr), base)
    """

cdef extern from "numpy/arrayobject.h":
    PyTypeObject PyArray_Type
    ctypedef struct PyArrayObject:
        pass
    PyObject* PyArray_BASE(PyArrayObject*) nogil
    object PyArray_FromScalar(object, PyObject*)
    # the array itself where it has this type, else a converted copy
    object array_of_type(PyObject* array, int type)
    object PyArray_NewFromDescr "new_from_descr" (PyTypeObject*, PyObject* descr, int, cnp.npy_intp*, cnp.npy_intp*,
                                                  void*, int, PyObject*)     # takes over the descr
    PyObject* new_from_descr(PyTypeObject*, PyObject* descr, int, cnp.npy_intp*, cnp.npy_intp*, void*, int,
                             PyObject*) except NULL     # the same
    int PyArray_SetBaseObject(PyArrayObject*, PyObject*) except -1
    void PyArray_CLEARFLAGS(PyArrayObject*, int) noexcept
    void* PyArray_DATA(PyArrayObject*) nogil
    cnp.npy_intp* PyArray_STRIDES(PyArrayObject*) nogil
    bint is_numpy_scalar "PyArray_IsScalarOfNumPy" (object) noexcept
    int PyArray_NDIM(PyArrayObject*) nogil
    cnp.npy_intp* PyArray_DIMS(PyArrayObject*) nogil
    int PyArray_TYPE(PyArrayObject*) nogil
    int PyArray_FLAGS(PyArrayObject*) nogil
    PyObject* PyArray_DESCR "descr_of" (PyArrayObject*) nogil
    bint PyArray_DescrCheck(PyObject*) noexcept
    int number_of_descr(PyObject* descr) noexcept
    cnp.npy_intp intp_of_scalar(PyObject*) noexcept
    bint PyTypeNum_ISCOMPLEX(int) nogil
    bint PyTypeNum_ISFLOAT(int) nogil
    int NPY_ARRAY_OWNDATA, NPY_ARRAY_WRITEABLE, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_F_CONTIGUOUS
    enum:
        MAX_AXES "NPY_MAXDIMS"
        NPY_HALF
    PyObject* PyArray_New(PyTypeObject*, int, cnp.npy_intp*, int, cnp.npy_intp*, void*, int, int, PyObject*) except NULL
    PyObject* PyArray_Scalar "new_scalar" (void*, PyObject* descr, PyObject*) except NULL
    bint PyArray_ISCARRAY_RO(PyArrayObject*) nogil      # C-contiguous, aligned, not byte-swapped
    bint PyArray_ISBEHAVED_RO(PyArrayObject*) nogil     # aligned, not byte-swapped
    bint PyArray_ISCARRAY(PyArrayObject*) nogil         # C-contiguous, aligned, not byte-swapped, writeable
    cnp.npy_intp PyArray_ITEMSIZE(PyArrayObject*) nogil
    cnp.npy_intp PyArray_NBYTES(PyArrayObject*) nogil

cdef extern from *:
    """
    static inline npy_intp size_of_array(PyArrayObject* array)
    {
        npy_intp size = 1;
        int axis;
        for (axis = 0; axis < PyArray_NDIM(array); axis++) size *= PyArray_DIM(array, axis);
        return size;
    }
    """
    cnp.npy_intp PyArray_SIZE "size_of_array" (PyArrayObject*) nogil     # NumPy's macro calls a function

cdef extern from *:
    """
    #define items_of(tuple) (((PyTupleObject*)(tuple))->ob_item)
    """
    PyObject* const* items_of(tuple values)

cdef extern from *:
    """
    static inline void put_reference(PyObject** place, PyObject* value)
    {
        PyObject* old = *place;
        Py_INCREF(value);
        *place = value;
        Py_XDECREF(old);        /* NULL after `del` */
    }
    """
    void put_reference(PyObject** place, PyObject* value)

cdef extern from *:
    """
    #define reference_count(object) Py_REFCNT(object)
    """
    Py_ssize_t reference_count(PyObject* object) noexcept

# These are looked up once.
cdef object as_index
cdef object numpy_asarray
cdef object numpy_dtype
cdef object numpy_generic
cdef object numpy_integer
