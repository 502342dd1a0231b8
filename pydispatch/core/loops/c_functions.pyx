# Functions in C as universal functions.
#
# NumPy then broadcasts, converts and copies as for its own functions, and the core finds their loops as it does
# NumPy's. Small arrays of the function's type reach it without a call of Python, in plans too.

cdef extern from "core/src/c_functions.h":
    const PyUFuncGenericFunction pointwise_loops[2][3]
    void call_on_block(const CFunction* loop, char** pointers, cnp.npy_intp n) noexcept nogil

cdef extern from "numpy/ufuncobject.h":
    object PyUFunc_FromFuncAndData(PyUFuncGenericFunction*, void**, char*, int, int, int, int, const char*, const char*,
                                   int)
    int PyUFunc_None
    ctypedef struct UFuncWithOwner "PyUFuncObject":
        PyObject* obj

cdef enum:
    BLOCK = 256         # elements that are copied together


cdef void map_blocks(char** args, const cnp.npy_intp* n, const cnp.npy_intp* steps, void* data) noexcept nogil:
    """Call a function of contiguous elements along arrays. Copy other elements, one block at a time."""
    cdef CFunction* loop = <CFunction*>data
    cdef double copies[4][BLOCK]
    cdef char* pointers[4]
    cdef cnp.npy_intp done, k, some
    cdef int i
    for i in range(loop.n_in + 1):
        if steps[i] != loop.size:
            break
    else:
        call_on_block(loop, args, n[0])
        return
    for i in range(4):
        pointers[i] = <char*>copies[i]
    done = 0
    while done < n[0]:
        some = min(n[0] - done, BLOCK)
        for i in range(loop.n_in):
            for k in range(some):
                memcpy(pointers[i] + k * loop.size, args[i] + (done + k) * steps[i], loop.size)
        call_on_block(loop, pointers, some)
        for k in range(some):
            memcpy(args[loop.n_in] + (done + k) * steps[loop.n_in], pointers[loop.n_in] + k * loop.size, loop.size)
        done += some


cdef extern from "Python.h":
    void* PyCapsule_GetPointer(object, const char*) except NULL
    const char* PyCapsule_GetName(object)
    void* PyCapsule_GetContext(object)


def name_of_capsule(capsule):
    """Return the name of a PyCapsule, "" if it has none, or None for anything else."""
    if type(capsule).__name__ != "PyCapsule":
        return None
    cdef const char* name = PyCapsule_GetName(capsule)
    return "" if name == NULL else (<bytes>name).decode()


def universal_of_capsules(tuple sources, tuple capsules, list layouts, str name):
    """Return the ufunc whose loops are functions in C. It keeps them and their sources alive.

    A layout is (is_double, n_in, takes_blocks, has_user_data). User data is the last argument of a function.
    """
    cdef CFunctions* self
    cdef CFunction* loop
    cdef int i, k, n_in = 0
    cdef bint is_double, takes_blocks
    cdef bytes as_bytes = name.encode()
    cdef bytearray memory = bytearray(sizeof(CFunctions))      # read by the ufunc, which does not own it
    self = <CFunctions*><char*>memory
    for i in range(len(layouts)):
        loop = &self.loops[i]
        is_double, n_in, takes_blocks, loop.has_user_data = layouts[i]
        loop.function = function_at(PyCapsule_GetPointer(capsules[i], PyCapsule_GetName(capsules[i])))
        loop.user_data = PyCapsule_GetContext(capsules[i])
        loop.n_in = n_in
        loop.size = sizeof(double) if is_double else sizeof(float)
        self.functions[i] = <PyUFuncGenericFunction>map_blocks if takes_blocks else pointwise_loops[is_double][n_in - 1]
        self.data[i] = loop
        for k in range(n_in + 1):
            self.types[i * (n_in + 1) + k] = cnp.NPY_DOUBLE if is_double else cnp.NPY_FLOAT
    ufunc = PyUFunc_FromFuncAndData(self.functions, self.data, self.types, <int>len(layouts), n_in, 1, PyUFunc_None,
                                    as_bytes, b"A function in C.", 0)
    (<UFuncWithOwner*><PyObject*>ufunc).obj = new_reference((memory, as_bytes, sources, capsules))
    return ufunc
