# Calls of compiled graphs and functions, guarded by what was traced.


cdef bint is_array_like(PyArrayObject* array, PyObject* shape, PyObject* dtype) except -1:
    """Has an array of NumPy's this shape, a tuple of ints, and this dtype?"""
    cdef Py_ssize_t ndim = PyTuple_GET_SIZE(shape), axis
    if PyArray_NDIM(array) != ndim:
        return False
    for axis in range(ndim):
        if PyArray_DIMS(array)[axis] != <Py_ssize_t>(<object>PyTuple_GET_ITEM(shape, axis)):
            return False
    return <void*>PyArray_DESCR(array) == <void*>dtype or <object>PyArray_DESCR(array) == <object>dtype


def is_like(value not None, tuple shape, cnp.dtype dtype):
    """Has an array, or a value that stands for one, this shape and dtype?"""
    cdef object array = (<Tensor>value).array if type(value) is Tensor else value
    if cnp.PyArray_Check(array):
        return is_array_like(<PyArrayObject*><PyObject*>array, <PyObject*>shape, <PyObject*>dtype)
    return tuple(value.shape) == shape and value.dtype == dtype


cdef PyObject* call_guarded(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef PyObject* function = <PyObject*>(<GuardedCall>self).fast
    cdef PyObject* expected = <PyObject*>(<GuardedCall>self).expected
    cdef PyObject* spec
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(expected)
    if PyVectorcall_NARGS(nargsf) != n or kwnames != NULL:
        function = <PyObject*>(<GuardedCall>self).general
        n = 0
    for i in range(n):
        spec = PyTuple_GET_ITEM(expected, i)
        if Py_TYPE(args[i]) != &PyArray_Type or spec != Py_None and not is_array_like(
                <PyArrayObject*>args[i], PyTuple_GET_ITEM(spec, 0), PyTuple_GET_ITEM(spec, 1)):
            function = <PyObject*>(<GuardedCall>self).general
            break
    return PyObject_Vectorcall(function, args, nargsf, kwnames)


@cython.final
cdef class GuardedCall:
    """Calls `fast` with positional arguments that are all arrays of NumPy's as expected, `general` with any others.

    `expected` has for each argument its shape and dtype, or None where any will do.
    """

    def __cinit__(self, fast not None, general not None, tuple expected):
        self.vectorcall = <vectorcallfunc>call_guarded
        for spec in expected:
            if spec is not None:
                shape, dtype = spec
                if type(spec) is not tuple or type(shape) is not tuple or not isinstance(dtype, numpy.dtype):
                    raise TypeError(f"expected has {spec!r} for an argument, which is no (shape, dtype)")
        self.fast, self.general, self.expected = fast, general, expected

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))


cdef GuardedCall some_guarded_call = GuardedCall(len, len, ())
make_vectorcallable(GuardedCall, <char*>&some_guarded_call.vectorcall - <char*><PyObject*>some_guarded_call)


# --- compiled functions -----------------------------------------------------------------------------------------------

cdef enum:              # kinds of what is expected
    EXPECTED_ARRAY = 0
    EXPECTED_TUPLE = 1
    EXPECTED_LIST = 2
    EXPECTED_DICT = 3
    EXPECTED_VALUE = 4

cdef enum:
    MOST_LEAVES = 64        # on the stack

cdef dict EXPECTED_KINDS = {"array": EXPECTED_ARRAY, "tuple": EXPECTED_TUPLE, "list": EXPECTED_LIST,
                            "dict": EXPECTED_DICT, "value": EXPECTED_VALUE}


@cython.final
cdef class Variant:
    """A plan, and the arguments that it is for.

    `guard` says what they are, depth first: ("array", shape, dtype); ("tuple", n) or ("list", n), then the n items;
    ("dict", keys), then the values; ("value", object), of that type and equal to it. `n_arguments` come as such.
    `nest` says how the results are nested, likewise, with ("array",) for each; None for one alone. It may be a function
    of the tuple of arrays.
    """

    def __cinit__(self, Plan plan not None, Py_ssize_t n_arguments, tuple guard, nest):
        cdef Expected* expected
        cdef cnp.npy_intp* free
        cdef Py_ssize_t n_extents = 1, i
        self.plan, self.n_arguments, self.guard, self.nest = plan, n_arguments, guard, nest
        for item in guard:
            if item[0] == "array":
                n_extents += len(item[1])
        self.expected = <Expected*>PyMem_RawMalloc((len(guard) + 1) * sizeof(Expected))
        self.extents = free = <cnp.npy_intp*>PyMem_RawMalloc(n_extents * sizeof(cnp.npy_intp))
        if self.expected == NULL or self.extents == NULL:
            raise MemoryError()
        for i, item in enumerate(guard):
            expected = &self.expected[i]
            expected.kind = EXPECTED_KINDS[item[0]]
            expected.what = NULL
            expected.shape = free
            if expected.kind == EXPECTED_ARRAY:
                _, shape, dtype = item
                expected.n = len(shape)
                expected.what = <PyObject*>dtype
                for extent in shape:
                    free[0] = extent
                    free += 1
                self.n_arrays += 1
            elif expected.kind == EXPECTED_VALUE:
                expected.n = 0
                expected.what = PyTuple_GET_ITEM(<PyObject*>item, 1)
            elif expected.kind == EXPECTED_DICT:
                expected.n = len(item[1])
                expected.what = PyTuple_GET_ITEM(<PyObject*>item, 1)
            else:
                expected.n = item[1]
        if self.n_arrays != len(plan.inputs):
            raise ValueError(f"a guard of {self.n_arrays} arrays, for a plan of {len(plan.inputs)}")

    def __dealloc__(self):
        PyMem_RawFree(self.expected)
        PyMem_RawFree(self.extents)


cdef bint is_expected(Expected** place, PyObject* value, PyObject*** leaves, bint* has_tensors) except -1:
    """Is this the value that is expected at this place? The arrays in it are added to the leaves."""
    cdef Expected* expected = place[0]
    cdef PyObject* dtype
    cdef PyObject* part
    cdef Py_ssize_t i
    place[0] += 1
    if expected.kind == EXPECTED_ARRAY:
        if Py_TYPE(value) == TENSOR_TYPE:
            if (<Tensor>value).word & SPECIAL_FLAGS or (<Tensor>value).edge is not None:
                return False
            value = <PyObject*>(<Tensor>value).array
            has_tensors[0] = True
        if Py_TYPE(value) != &PyArray_Type or PyArray_NDIM(<PyArrayObject*>value) != expected.n:
            return False
        for i in range(expected.n):
            if PyArray_DIMS(<PyArrayObject*>value)[i] != expected.shape[i]:
                return False
        dtype = PyArray_DESCR(<PyArrayObject*>value)
        if dtype != expected.what and not PyObject_RichCompareBool(<object>dtype, <object>expected.what, Py_EQ):
            return False
        leaves[0][0] = value
        leaves[0] += 1
        return True
    if expected.kind == EXPECTED_VALUE:
        return is_same_value(value, expected.what)
    if expected.kind == EXPECTED_TUPLE:
        if Py_TYPE(value) != &PyTuple_Type or PyTuple_GET_SIZE(value) != expected.n:
            return False
        for i in range(expected.n):
            if not is_expected(place, PyTuple_GET_ITEM(value, i), leaves, has_tensors):
                return False
        return True
    if expected.kind == EXPECTED_LIST:
        if Py_TYPE(value) != &PyList_Type or len(<list>value) != expected.n:
            return False
        for i in range(expected.n):
            if not is_expected(place, PyList_GET_ITEM(value, i), leaves, has_tensors):
                return False
        return True
    if Py_TYPE(value) != &PyDict_Type or len(<dict>value) != expected.n:
        return False
    for i in range(expected.n):
        part = PyDict_GetItemWithError(value, PyTuple_GET_ITEM(expected.what, i))
        if part == NULL:
            return False
        if not is_expected(place, part, leaves, has_tensors):
            return False
    return True


cdef bint is_same_value(PyObject* value, PyObject* expected) except -1:
    """Are both of one type and equal? 0.0 and -0.0 differ, NaN equals NaN."""
    cdef double one, other
    if value == expected:
        return True
    if Py_TYPE(value) != Py_TYPE(expected):
        return False
    if Py_TYPE(value) == &PyFloat_Type:
        one, other = PyFloat_AS_DOUBLE(value), PyFloat_AS_DOUBLE(expected)
        return memcmp(&one, &other, sizeof(double)) == 0
    if Py_TYPE(value) == &PyComplex_Type:
        return repr(<object>value) == repr(<object>expected)
    return PyObject_RichCompareBool(<object>value, <object>expected, Py_EQ)


cdef object call_variant(Variant variant, PyObject* const* args, bint* is_for_these):
    """The result of a call where the arguments are as the variant expects."""
    cdef PyObject* small[MOST_LEAVES]
    cdef PyObject** leaves = small
    cdef PyObject** free
    cdef Expected* place = variant.expected
    cdef bint has_tensors = False
    cdef Py_ssize_t i, free_place
    cdef tuple results
    if variant.n_arrays > MOST_LEAVES:
        leaves = <PyObject**>PyMem_RawMalloc(variant.n_arrays * sizeof(PyObject*))
        if leaves == NULL:
            raise MemoryError()
    try:
        free = leaves
        for i in range(variant.n_arguments):
            if not is_expected(&place, args[i], &free, &has_tensors):
                return None
        is_for_these[0] = True
        results = run_plan(variant.plan, leaves, True)
    finally:
        if leaves != small:
            PyMem_RawFree(leaves)
    if has_tensors:
        results = tuple(map(tensor_of_result, results))
    if variant.nest is None:
        return results[0]
    i = 0
    if type(variant.nest) is tuple:
        free_place = 0
        return nested_results(<tuple>variant.nest, &i, results, &free_place)
    return variant.nest(results)


cdef object nested_results(tuple nest, Py_ssize_t* place, tuple results, Py_ssize_t* taken):
    """The results from the one number `taken` on, as the nest says from this place on."""
    cdef tuple item = nest[place[0]]
    cdef str kind = item[0]
    cdef list parts
    cdef Py_ssize_t i
    place[0] += 1
    if kind == "array":
        taken[0] += 1
        return results[taken[0] - 1]
    if kind == "value":
        return item[1]
    parts = []
    for i in range(len(<tuple>item[1]) if kind == "dict" else <Py_ssize_t>item[1]):
        parts.append(nested_results(nest, place, results, taken))
    if kind == "tuple":
        return tuple(parts)
    return parts if kind == "list" else dict(zip(<tuple>item[1], parts))


def tensor_of_result(array):
    """A new Tensor around an array."""
    return wrap(array)


cdef PyObject* call_compiled(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef CompiledFunction function = <CompiledFunction>self
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf), i
    cdef Variant variant
    cdef bint found = False
    if kwnames == NULL and (<State>borrowed_state()).plain:
        for i in range(len(function.variants)):
            variant = function.variants[i]
            if variant.n_arguments != n:
                continue
            result = call_variant(variant, args, &found)
            if found:
                function.hits += 1
                if i and i < len(function.variants):
                    function.variants[i] = function.variants[0]
                    function.variants[0] = variant
                return give(result)
    return PyObject_Vectorcall(<PyObject*>function.general, args, nargsf, kwnames)


cdef class CompiledFunction:
    """Runs the plan of the first of its `variants` that expects such arguments; calls `general` for any others.

    Raw arrays and untracked Tensors go to plans, where no transform, mode or guard is active; `hits` counts that.
    """

    def __cinit__(self, *args, **kwargs):
        self.vectorcall = <vectorcallfunc>call_compiled
        self.variants = []
        self.general = refuse_any_call

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))

    def add_variant(self, Variant variant not None):
        """Add a variant, which is tried first."""
        self.variants.insert(0, variant)

    def clear_variants(self):
        """Forget all variants, and the hits."""
        self.variants.clear()
        self.hits = 0


def refuse_any_call(*args, **kwargs):
    raise TypeError("the compiled function has no function to call")


cdef CompiledFunction some_compiled_function = CompiledFunction()


cdef Py_ssize_t vectorcall_offset_of_compiled() noexcept:
    return <char*>&some_compiled_function.vectorcall - <char*><PyObject*>some_compiled_function


make_vectorcallable(CompiledFunction, vectorcall_offset_of_compiled())
