# The C API of pydispatch, for packages in Cython: `from pydispatch cimport c_api`. docs/cython-api.md explains it.
#
# It needs only this file when it is compiled, and finds the rest when the module that uses it is imported. A
# release that adds to it raises MINOR; one that changes what is there raises MAJOR.

from cpython.object cimport PyObject, PyTypeObject
from cpython.pycapsule cimport PyCapsule_Import, PyCapsule_New

cdef extern from *:
    """
    #ifndef PYDISPATCH_C_API_MAJOR
    #define PYDISPATCH_C_API_MAJOR 1
    #define PYDISPATCH_C_API_MINOR 0
    #define PYDISPATCH_C_API_NAME "pydispatch._core.C_API"

    typedef struct {
        int major, minor;
        PyTypeObject* tensor_type;
        PyObject* (*make_tensor)(PyObject* array);
        PyObject* (*array_of)(PyObject* value);
        PyObject* (*call)(PyObject* op, PyObject* const* args, size_t nargsf, PyObject* kwnames);
    } PydispatchCApi;

    #ifdef __GNUC__
    __attribute__((unused))
    #endif
    static const PydispatchCApi* pydispatch_c_api = NULL;       /* one per module that uses it */
    #endif
    """
    int PYDISPATCH_C_API_MAJOR, PYDISPATCH_C_API_MINOR
    const char* PYDISPATCH_C_API_NAME
    ctypedef struct PydispatchCApi:
        int major, minor
        PyTypeObject* tensor_type
        object (*make_tensor)(object)
        object (*array_of)(object)
        object (*call)(object, PyObject* const*, size_t, PyObject*)
    const PydispatchCApi* pydispatch_c_api
    bint PyObject_TypeCheck(object, PyTypeObject*) noexcept
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET


cdef inline int import_pydispatch() except -1:
    """Find the C API; ImportError if the installed pydispatch's differs from the one that this module was compiled with."""
    global pydispatch_c_api
    cdef const PydispatchCApi* found = <const PydispatchCApi*>PyCapsule_Import(PYDISPATCH_C_API_NAME, False)
    if found.major != PYDISPATCH_C_API_MAJOR or found.minor < PYDISPATCH_C_API_MINOR:
        raise ImportError(
            f"this module was compiled with version {PYDISPATCH_C_API_MAJOR}.{PYDISPATCH_C_API_MINOR} of the C API of "
            f"pydispatch, and the installed pydispatch-numpy has version {found.major}.{found.minor}\n"
            "compile the module with the installed pydispatch-numpy, or install the one that it was compiled with")
    pydispatch_c_api = found
    return 0


cdef inline const PydispatchCApi* c_api() except NULL:
    if pydispatch_c_api == NULL:
        import_pydispatch()
    return pydispatch_c_api


cdef inline bint is_tensor(value) except -1:
    """Is this a Tensor, of any subclass?"""
    return PyObject_TypeCheck(value, c_api().tensor_type)


cdef inline object make_tensor(array):
    """Tensor(array), which shares its memory."""
    return c_api().make_tensor(array)


cdef inline object array_of(value):
    """The NumPy array that a Tensor wraps, as `tensor.numpy()` gives it; of an ndarray, itself."""
    return c_api().array_of(value)


cdef inline object call(op, PyObject* const* args, size_t n):
    """op(*args), for an operator and an array of n arguments."""
    return c_api().call(op, args, n, NULL)


cdef inline object call_1(op, x):
    """op(x), for an operator."""
    cdef PyObject* args[2]
    args[1] = <PyObject*>x
    return c_api().call(op, &args[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)


cdef inline object call_2(op, x, y):
    """op(x, y), for an operator."""
    cdef PyObject* args[3]
    args[1] = <PyObject*>x
    args[2] = <PyObject*>y
    return c_api().call(op, &args[1], 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)


cdef inline object register_kernel(str operator, str key, void* function, const char* signature):
    """Register a function in C for an operator, as `library.impl` does, and return the handle.

    The signature must stay where it is, as a literal does. `library.c_function` lists the valid ones.
    """
    from pydispatch import library
    return library.impl(operator, key, PyCapsule_New(function, signature, NULL))
