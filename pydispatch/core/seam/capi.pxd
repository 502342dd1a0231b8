# Declarations of C, Python and NumPy that the core uses.

cdef extern from "Python.h":
    ctypedef PyObject* (*vectorcallfunc)(PyObject* callable, PyObject* const* args, size_t nargsf, PyObject* kwnames)
    ctypedef void (*destructor)(PyObject*) noexcept
    void Py_DECREF(PyObject*)
    PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*)
    vectorcallfunc PyVectorcall_Function(PyObject*)
    bint PyCFunction_Check(PyObject*) noexcept
    int PyCFunction_GetFlags(PyObject*) noexcept
    ctypedef PyObject* (*PyCFunction)(PyObject*, PyObject*)
    PyCFunction PyCFunction_GetFunction(PyObject*) noexcept
    PyObject* PyCFunction_GetSelf(PyObject*) noexcept
    ctypedef struct PyMethodDef:
        const char* ml_name
        PyCFunction ml_meth
        int ml_flags
        const char* ml_doc
    object PyCFunction_NewEx(PyMethodDef*, PyObject*, object)
    object PyDescr_NewClassMethod(PyTypeObject*, PyMethodDef*)
    int METH_FASTCALL, METH_KEYWORDS
    Py_ssize_t PY_SSIZE_T_MAX
    Py_ssize_t PyVectorcall_NARGS(size_t) nogil
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    void PyType_Modified(PyTypeObject*)
    PyObject* PyContextVar_New(const char*, PyObject*)
    int get_quietly "PyContextVar_Get" (PyObject*, PyObject*, PyObject**)   # -1 for an error, which is not raised
    PyObject* set_quietly "PyContextVar_Set" (PyObject*, PyObject*)     # NULL for an error, which is not raised
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
    Py_ssize_t PyList_GET_SIZE(PyObject*)
    bint PyDict_Next(PyObject*, Py_ssize_t*, PyObject**, PyObject**)
    PyObject* PySequence_Fast_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject*)
    PyObject* PyDict_GetItemWithError(PyObject*, PyObject*) except? NULL
    PyObject* PyCell_GET(PyObject*)
    PyTypeObject PyDict_Type, PyCell_Type
    void* PyMem_RawMalloc(size_t) nogil
    void* PyMem_RawCalloc(size_t, size_t) nogil
    void PyMem_RawFree(void*) nogil
    double PyFloat_AS_DOUBLE(PyObject*)
    PyTypeObject* Py_TYPE(PyObject*)
    bint PyType_IsSubtype(PyTypeObject*, PyTypeObject*)
    PyTypeObject PySlice_Type, PyTuple_Type, PyList_Type, PyType_Type
    PyTypeObject PyLong_Type, PyFloat_Type, PyBool_Type, PyComplex_Type, PyUnicode_Type
    PyObject* Py_None
    PyObject* Py_True
    PyObject* Py_Ellipsis
    str PyUnicode_FromObject(object)
    int PyObject_GetBuffer(object exporter, Py_buffer* view, int flags) except -1
    ctypedef struct buffer_functions "PyBufferProcs":
        int (*bf_getbuffer)(PyObject*, Py_buffer*, int) except -1
        void (*bf_releasebuffer)(PyObject*, Py_buffer*)
    ctypedef struct sequence_functions "PySequenceMethods":
        PyObject* (*sq_item)(PyObject*, Py_ssize_t)
    ctypedef struct vectorcallable "PyTypeObject":
        PyObject* (*tp_call)(PyObject*, PyObject*, PyObject*)
        int (*tp_init)(PyObject*, PyObject*, PyObject*)
        PyObject* (*tp_new)(PyTypeObject*, PyObject*, PyObject*)
        destructor tp_dealloc
        PyObject* tp_dict
        Py_ssize_t tp_basicsize
        buffer_functions* tp_as_buffer
        sequence_functions* tp_as_sequence
        PyObject* (*tp_alloc)(PyTypeObject*, Py_ssize_t) noexcept
        void (*tp_free)(void*) noexcept
    int PyErr_ExceptionMatches(object) noexcept
    PyObject* PyObject_VectorcallMethod(PyObject* name, PyObject* const* args, size_t nargsf, PyObject* kwnames)
    PyTypeObject PyClassMethod_Type
    object PySequence_GetItem(object, Py_ssize_t)
    tuple PyTuple_New(Py_ssize_t)
    void PyTuple_SET_ITEM(tuple, Py_ssize_t, object)

cdef extern from "core/src/seam.h":
    # each call of the first needs one of the second, unless it raised
    int enter_recursive_call() except -1
    void leave_recursive_call()
    object steal(PyObject* result)        # take over a new reference, or raise the exception of the C call
    PyObject* new_reference(object value)        # return a new reference
    void put_reference(PyObject** place, PyObject* value)
    bint has_references(PyObject* object, Py_ssize_t n) noexcept        # return whether it has just n
    bint has_more_references(PyObject* object, Py_ssize_t n) noexcept   # return whether it has more than n
    bint is_temporary(PyObject* object) noexcept    # return whether only the current expression holds it
    const bint IS_FREE_THREADED         # whether threads run without the GIL
    bint is_only_thread() noexcept      # whether Python has just one thread
    # set a field that is None and stays as it is from then on. Return what it holds, borrowed
    PyObject* publish_once(PyObject** place, object value) noexcept
    void share_freely(object) noexcept              # no thread counts references to an object of this thread any longer
    enum:
        N_PLACES                        # for objects that threads keep for their next use
    PyObject** own_place(PyObject** places) noexcept        # return the place of this thread
    PyObject* take_object(PyObject** place) noexcept        # return the object of a place, which is empty then, or NULL
    void give_object(PyObject** place, PyObject* value) noexcept
    uint64_t number_after(uint64_t* last) noexcept
    void add_flags(uint64_t* word, uint64_t flags) noexcept
    void remove_flags(uint64_t* word, uint64_t flags) noexcept
    char read_state(const char* place) noexcept
    void write_state(char* place, char state) noexcept
    bint is_compact(PyObject* number) noexcept      # return whether an int has at most one digit
    Py_ssize_t compact_value(PyObject* number) noexcept
    bint is_interned(PyObject* string) noexcept
    PyObject* const* items_of(tuple values)
    PyObject* function_of(PyObject* method) noexcept    # return the function of a classmethod, borrowed
    PyObject* new_object(PyTypeObject* type, PyObject* arguments) except NULL
    PyObject* new_or_null "new_object" (PyTypeObject* type, PyObject* arguments)
    # return what `__mro__` has under a name, borrowed, or NULL
    PyObject* lookup_on_type(PyTypeObject* cls, PyObject* name) noexcept
    void set_vectorcall_slot(PyTypeObject* cls, Py_ssize_t offset) noexcept
    # call the function in the slot, for `__call__`
    PyObject* call_by_slot(PyObject* self, vectorcallfunc slot, PyObject* args, PyObject* kwargs)
    void set_call_of_class(PyTypeObject* cls, vectorcallfunc make) noexcept
    void clear_exporter(Py_buffer* view) noexcept  # set the exporter to NULL, as a refused request for a buffer has to
    const bint IS_PORTABLE              # whether only public parts of CPython and NumPy are used
    const bint HAS_FREE_LISTS           # whether freed objects are reused
    # for `tp_alloc` and `tp_free`: the collector knows the objects, but counts only every eighth
    PyObject* allocate_seldom_counted(PyTypeObject* type, Py_ssize_t items) noexcept
    void free_seldom_counted(void* object) noexcept
    bint was_just_left_uncounted(PyObject* object) noexcept     # return whether the last one is it, and does not count
    void count_object(PyObject* object) noexcept
    const bint KNOWS_CONTEXTS           # whether the current context can be identified
    PyObject* context_now() noexcept    # return the current context, borrowed, or NULL
    # return the state last found in the context, or NULL if the context has changed
    PyObject* remembered_state() noexcept
    # remember the state in the context. NULL: it is about to change
    void remember_state(PyObject* state) noexcept
    PyObject** variables_at(PyObject* context) noexcept
    void count_context_version() noexcept       # cached values of context variables are no longer valid
    bint has_raised() noexcept nogil
    ctypedef void (*AnyFunction)() noexcept nogil
    AnyFunction function_at(void* address) noexcept nogil
    void* address_of(AnyFunction function) noexcept nogil
    int read_shared(const int* number) noexcept nogil
    void write_shared(int* number, int value) noexcept nogil
    int bit_length16(uint64_t word) noexcept nogil
    int highest_bit(uint64_t word) noexcept nogil
    int lowest_bit(uint64_t word) noexcept nogil
    int number_of_bits(uint64_t word) noexcept nogil

cdef extern from *:
    """
    /* when the list cannot grow, Cython 3.3 releases what a comprehension has computed once too often: write a loop */
    #pragma GCC poison __Pyx_ListComp_AppendAndDecref
    """

cdef extern from "numpy/arrayobject.h":
    PyTypeObject PyArray_Type
    ctypedef struct PyArrayObject:
        pass
    PyObject* PyArray_BASE(PyArrayObject*) nogil
    object PyArray_FromScalar(object, PyObject*)
    # return the array itself if it has this type, else a converted copy
    object array_of_type(PyObject* array, int type)
    object PyArray_NewFromDescr "new_from_descr" (PyTypeObject*, PyObject* descr, int, cnp.npy_intp*, cnp.npy_intp*,
                                                  void*, int, PyObject*)     # takes over the reference to the descr
    PyObject* new_from_descr(PyTypeObject*, PyObject* descr, int, cnp.npy_intp*, cnp.npy_intp*, void*, int,
                             PyObject*) except NULL     # takes over the reference to the descr
    int PyArray_SetBaseObject(PyArrayObject*, PyObject*) except -1
    object PyArray_TakeFrom(PyArrayObject*, object, int, PyArrayObject* out, cnp.NPY_CLIPMODE)
    PyObject* PyArray_NewCopy(PyArrayObject*, int order) except NULL
    int NPY_KEEPORDER, NPY_CORDER
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

cdef extern from "core/src/seam.h":
    cnp.npy_intp PyArray_SIZE "size_of_array" (PyArrayObject*) nogil     # NumPy's macro calls a function
    bint may_have_weak_references(PyArrayObject*) noexcept

# Each of these is looked up once.
cdef object as_index
cdef object numpy_asarray
cdef object numpy_dtype
cdef object numpy_integer
cdef PyObject* FLOAT64    # the dtype
cdef PyTypeObject* FLOAT64_SCALAR    # numpy.float64
cdef object numpy_umath          # the module of universal functions. Some, such as `clip`, have no public name
cdef void keep_for_readers(value) noexcept      # keep the former object of a field that was changed, without the GIL
cdef list keep_in(list kept, value)    # append to a list, which is made on first use
cdef tuple tuple_of(PyObject* const* values, Py_ssize_t n)    # return a tuple of the first n values
cdef int make_vectorcallable(type cls, Py_ssize_t offset) except -1
