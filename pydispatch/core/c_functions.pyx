# Functions in C as universal functions.
#
# NumPy then broadcasts, converts and copies as for its own, and the core finds their loops as it does NumPy's: small
# arrays of the function's own type reach it without a call of Python's, in plans too.

cdef extern from *:
    """
    #define ELEMENT(T, k) (*(T*)(args[k] + i * steps[k]))

    /* The loops over functions of single numbers: of one, two and three of them, without and with user data. */
    #define POINTWISE_LOOP(NAME, T, N_IN, TYPES, VALUES) \\
    static void NAME(char** args, npy_intp const* n, npy_intp const* steps, void* data) { \\
        const CFunction* loop = (const CFunction*)data; \\
        npy_intp i; \\
        if (loop->has_user_data) \\
            for (i = 0; i < n[0]; i++) \\
                ELEMENT(T, N_IN) = ((T (*)(TYPES(T), void*))loop->function)(VALUES(T), loop->user_data); \\
        else \\
            for (i = 0; i < n[0]; i++) ELEMENT(T, N_IN) = ((T (*)(TYPES(T)))loop->function)(VALUES(T)); \\
    }
    #define TYPES_1(T) T
    #define TYPES_2(T) T, T
    #define TYPES_3(T) T, T, T
    #define VALUES_1(T) ELEMENT(T, 0)
    #define VALUES_2(T) ELEMENT(T, 0), ELEMENT(T, 1)
    #define VALUES_3(T) ELEMENT(T, 0), ELEMENT(T, 1), ELEMENT(T, 2)

    POINTWISE_LOOP(map_double_1, double, 1, TYPES_1, VALUES_1)
    POINTWISE_LOOP(map_double_2, double, 2, TYPES_2, VALUES_2)
    POINTWISE_LOOP(map_double_3, double, 3, TYPES_3, VALUES_3)
    POINTWISE_LOOP(map_float_1, float, 1, TYPES_1, VALUES_1)
    POINTWISE_LOOP(map_float_2, float, 2, TYPES_2, VALUES_2)
    POINTWISE_LOOP(map_float_3, float, 3, TYPES_3, VALUES_3)

    static const PyUFuncGenericFunction pointwise_loops[2][3] = {
        {map_float_1, map_float_2, map_float_3}, {map_double_1, map_double_2, map_double_3}};

    static void call_on_block(const CFunction* loop, char** p, npy_intp n) {
        switch (2 * loop->n_in + loop->has_user_data) {
        case 2: ((void (*)(void*, void*, intptr_t))loop->function)(p[0], p[1], n); break;
        case 3: ((void (*)(void*, void*, intptr_t, void*))loop->function)(p[0], p[1], n, loop->user_data); break;
        case 4: ((void (*)(void*, void*, void*, intptr_t))loop->function)(p[0], p[1], p[2], n); break;
        case 5: ((void (*)(void*, void*, void*, intptr_t, void*))loop->function)(p[0], p[1], p[2], n,
                                                                                loop->user_data); break;
        case 6: ((void (*)(void*, void*, void*, void*, intptr_t))loop->function)(p[0], p[1], p[2], p[3], n); break;
        default: ((void (*)(void*, void*, void*, void*, intptr_t, void*))loop->function)(p[0], p[1], p[2], p[3], n,
                                                                                        loop->user_data);
        }
    }
    """
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
    """The loop over functions of contiguous elements; others are copied, some at a time."""
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
    """The name of a PyCapsule, "" if it has none; None for anything else."""
    if type(capsule).__name__ != "PyCapsule":
        return None
    cdef const char* name = PyCapsule_GetName(capsule)
    return "" if name == NULL else (<bytes>name).decode()


def universal_of_capsules(tuple sources, tuple capsules, list layouts, str name):
    """The ufunc whose loops are functions in C, which it holds with their sources.

    A layout is (is it double precision? how many inputs? does it take whole blocks? is user data its last argument?).
    """
    cdef CFunctions* self
    cdef CFunction* loop
    cdef int i, k, n_in = 0
    cdef bint is_double, takes_blocks
    cdef bytes as_bytes = name.encode()
    cdef bytearray memory = bytearray(sizeof(CFunctions))      # which the ufunc reads, and does not own itself
    self = <CFunctions*><char*>memory
    for i in range(len(layouts)):
        loop = &self.loops[i]
        is_double, n_in, takes_blocks, loop.has_user_data = layouts[i]
        loop.function = PyCapsule_GetPointer(capsules[i], PyCapsule_GetName(capsules[i]))
        loop.user_data = PyCapsule_GetContext(capsules[i])
        loop.n_in = n_in
        loop.size = sizeof(double) if is_double else sizeof(float)
        self.functions[i] = <PyUFuncGenericFunction>map_blocks if takes_blocks else pointwise_loops[is_double][n_in - 1]
        self.data[i] = loop
        for k in range(n_in + 1):
            self.types[i * (n_in + 1) + k] = cnp.NPY_DOUBLE if is_double else cnp.NPY_FLOAT
    ufunc = PyUFunc_FromFuncAndData(self.functions, self.data, self.types, <int>len(layouts), n_in, 1, PyUFunc_None,
                                    as_bytes, b"A function in C.", 0)
    (<UFuncWithOwner*><PyObject*>ufunc).obj = give((memory, as_bytes, sources, capsules))
    return ufunc
