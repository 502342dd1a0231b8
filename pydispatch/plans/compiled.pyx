# Calls of compiled graphs and functions: guards find the plan for the arguments.


def is_like(value not None, tuple shape, cnp.dtype dtype):
    """Return whether an array, or a value that behaves as one, has this shape and dtype."""
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
    """A callable that calls `fast` for the expected arguments, and `general` for all others.

    Expected are positional NumPy arrays only. `expected` has a (shape, dtype) for each argument, or None if any array
    will do.
    """

    def __cinit__(self, fast not None, general not None, tuple expected):
        self.vectorcall = <vectorcallfunc>call_guarded
        for spec in expected:
            if spec is not None:
                shape, dtype = spec
                if type(spec) is not tuple or type(shape) is not tuple or not isinstance(dtype, numpy.dtype):
                    raise TypeError(f"expected contains {spec!r}, which is not a (shape, dtype)")
        self.fast, self.general, self.expected = fast, general, expected

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))


cdef GuardedCall some_guarded_call = GuardedCall(len, len, ())
make_vectorcallable(GuardedCall, <char*>&some_guarded_call.vectorcall - <char*><PyObject*>some_guarded_call)


# --- compiled functions -----------------------------------------------------------------------------------------------

cdef enum:              # kinds of expected values
    EXPECTED_ARRAY = 0
    EXPECTED_TUPLE = 1
    EXPECTED_LIST = 2
    EXPECTED_DICT = 3
    EXPECTED_VALUE = 4
    EXPECTED_SCALAR = 5
    EXPECTED_NUMBER = 6

cdef enum:
    MOST_LEAVES = 64        # that fit on the C stack
    MOST_TRIED = 8          # variants that are tried one after another. Among more, a key finds those to try

cdef dict EXPECTED_KINDS = {"array": EXPECTED_ARRAY, "tuple": EXPECTED_TUPLE, "list": EXPECTED_LIST,
                            "dict": EXPECTED_DICT, "value": EXPECTED_VALUE, "scalar": EXPECTED_SCALAR,
                            "number": EXPECTED_NUMBER}

cdef long long LARGEST_INT = 2**53      # up to which float64 holds every int


@cython.final
cdef class Variant:
    """A plan, and the guard that specifies its arguments.

    `guard` describes the `n_arguments` positional arguments, depth first. An array is ("array", shape, dtype), or
    ("array", shape, dtype, strides) if the plan requires this layout in memory. A scalar is ("scalar", shape, dtype). A
    pytree node is ("tuple", n) or ("list", n), followed by its n items, or ("dict", keys), followed by its values.
    ("value", object) requires a value of that type that is equal. ("number", float or int, sign) is any number of this
    type and sign, 1 or -1, that is finite and at most 2**53 if it is an int. The plan gets it as an array.

    `output` describes the pytree of results in the same way, with ("array",) for each array. None describes a single
    array. `output` may also be a function from the tuple of arrays to the output.

    The plan is for calls that capture the values that the traced call captured: each of the `links` must still hold its
    value. A link is (cell, None, value), (dict, key, value), (list, index, value), (class, name, value), or (dict or
    list, LENGTH, number of items). (array, None, sample) is for an array of which `sample_of` must still return that
    sample, and (Tensor, version, None) for a Tensor that must be untracked and have that version.
    """

    def __cinit__(self, Plan plan not None, Py_ssize_t n_arguments, tuple guard, output, tuple links not None=()):
        cdef Expected* expected
        cdef cnp.npy_intp* free
        cdef Py_ssize_t n_extents = 1, i
        self.plan, self.n_arguments, self.guard, self.output = plan, n_arguments, guard, output
        self.links = links
        check_guard(plan, n_arguments, guard)
        check_output(plan, output)
        check_links(links)
        if type(output) is tuple:
            items = []
            for item in <tuple>output:
                items.append((EXPECTED_KINDS[item[0]], *item[1:]))
            self.output_items = tuple(items)
        for item in guard:
            self.has_numbers |= item[0] == "number"
            if item[0] in ("array", "scalar"):
                n_extents += 2 * len(item[1])
        self.expected = <Expected*>PyMem_RawMalloc((len(guard) + 1) * sizeof(Expected))
        self.extents = free = <cnp.npy_intp*>PyMem_RawMalloc(n_extents * sizeof(cnp.npy_intp))
        if self.expected == NULL or self.extents == NULL:
            raise MemoryError()
        for i, item in enumerate(guard):
            expected = &self.expected[i]
            expected.kind = EXPECTED_KINDS[item[0]]
            expected.what = NULL
            expected.shape, expected.strides = free, NULL
            if expected.kind == EXPECTED_ARRAY or expected.kind == EXPECTED_SCALAR:
                _, shape, dtype, *strides = item
                expected.n = len(shape)
                expected.what = <PyObject*>dtype
                for extent in shape:
                    free[0] = extent
                    free += 1
                if strides:
                    expected.strides = free
                    for stride in strides[0]:
                        free[0] = stride
                        free += 1
                self.n_arrays += 1
            elif expected.kind == EXPECTED_VALUE:
                expected.n = 0
                expected.what = PyTuple_GET_ITEM(<PyObject*>item, 1)
            elif expected.kind == EXPECTED_DICT:
                expected.n = len(item[1])
                expected.what = PyTuple_GET_ITEM(<PyObject*>item, 1)
            elif expected.kind == EXPECTED_NUMBER:
                expected.n = item[2]
                expected.what = PyTuple_GET_ITEM(<PyObject*>item, 1)
                self.n_arrays += 1
            else:
                expected.n = item[1]
            add_expected_to_key(&self.key, expected)

    @property
    def is_in_force(self):
        """Return whether all links hold their values."""
        return holds_all(<PyObject*>self.links)

    def __dealloc__(self):
        PyMem_RawFree(self.expected)
        PyMem_RawFree(self.extents)


cdef int check_links(tuple links) except -1:
    """Raise unless these are links."""
    for link in links:
        if type(link) is not tuple or len(<tuple>link) != 3 or (
                isinstance(link[0], numpy.ndarray) and type(link[2]) is not bytes) or (
                isinstance(link[0], type) and type(link[1]) is not str):
            raise TypeError(f"a link is {link!r}, expected a holder, a key and the value under that key, or a sample")
    return 0


def are_linked(tuple links not None):
    """Return whether all links of a Variant still hold their values."""
    check_links(links)
    return holds_all(<PyObject*>links)


cdef bint holds_all(PyObject* links) except -1:
    """Return whether each link holds its value."""
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(links)):
        if not is_linked(PyTuple_GET_ITEM(links, i)):
            return False
    return True


cdef object LENGTH = len        # the key of a link to the number of items


cdef bint is_linked(PyObject* link) except -1:
    """Return whether a link holds its value."""
    cdef PyObject* holder = PyTuple_GET_ITEM(link, 0)
    cdef PyObject* key = PyTuple_GET_ITEM(link, 1)
    cdef PyObject* value = PyTuple_GET_ITEM(link, 2)
    cdef Py_ssize_t position
    if Py_TYPE(holder) == &PyCell_Type:
        return PyCell_GET(holder) == value
    if Py_TYPE(holder) == &PyArray_Type:
        return has_sample(<PyArrayObject*>holder, value)
    if key == <PyObject*>LENGTH:
        return len(<object>holder) == <Py_ssize_t><object>value
    if isinstance(<object>holder, dict):
        return PyDict_GetItemWithError(holder, key) == value
    if isinstance(<object>holder, list):
        position = <object>key
        return 0 <= position < len(<list>holder) and PyList_GET_ITEM(holder, position) == value
    if isinstance(<object>holder, type):
        return lookup_on_type(<PyTypeObject*>holder, key) == value
    return isinstance(<object>holder, Tensor) and (<Tensor>holder).edge is None \
        and not (<Tensor>holder).word & TRACKED_FLAG and total_version(<Tensor>holder) == <long long><object>key


# A sample tells whether an array has been written to: all bytes of up to 4 KiB, else 64 pieces of 64 bytes.

cdef enum:
    WHOLE_SAMPLE = 4096
    PIECES = 64
    BYTES_OF_PIECE = 64


def sample_of(array):
    """Return a sample of an array's bytes, or None for one that is not contiguous."""
    cdef PyArrayObject* sampled = <PyArrayObject*><PyObject*>array
    cdef char pieces[WHOLE_SAMPLE]
    cdef Py_ssize_t n, i
    if not cnp.PyArray_Check(array) or not is_contiguous(sampled):
        return None
    n = PyArray_NBYTES(sampled)
    if n <= WHOLE_SAMPLE:
        return (<char*>PyArray_DATA(sampled))[:n]
    for i in range(PIECES):
        memcpy(pieces + i * BYTES_OF_PIECE, piece_of(sampled, n, i), BYTES_OF_PIECE)
    return pieces[:WHOLE_SAMPLE]


cdef inline bint is_contiguous(PyArrayObject* array) noexcept:
    return PyArray_FLAGS(array) & (cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_F_CONTIGUOUS) != 0


cdef inline char* piece_of(PyArrayObject* array, Py_ssize_t n, Py_ssize_t i) noexcept:
    """Return one of the pieces, which lie evenly from the first of n bytes to the last."""
    return <char*>PyArray_DATA(array) + (n - BYTES_OF_PIECE) // (PIECES - 1) * i


cdef bint has_sample(PyArrayObject* array, PyObject* sample) except -1:
    cdef const char* expected = <bytes>sample
    cdef Py_ssize_t n = PyArray_NBYTES(array)
    cdef Py_ssize_t i
    if min(n, WHOLE_SAMPLE) != len(<bytes>sample) or not is_contiguous(array):
        return False
    if n <= WHOLE_SAMPLE:
        return memcmp(PyArray_DATA(array), expected, n) == 0
    for i in range(PIECES):
        if memcmp(piece_of(array, n, i), expected + i * BYTES_OF_PIECE, BYTES_OF_PIECE):
            return False
    return True


cdef int check_guard(Plan plan, Py_ssize_t n_arguments, tuple guard) except -1:
    """Raise unless a guard describes this number of arguments, whose arrays are the inputs of a plan."""
    cdef Py_ssize_t place = 0
    arrays = []
    for _ in range(n_arguments):
        place = check_described(guard, place, arrays)
    if place != len(guard) or tuple(arrays) != plan.inputs:
        raise ValueError(f"a guard has {n_arguments} arguments and the arrays {arrays}, "
                         f"but the plan has the inputs {plan.inputs}")
    return 0


cdef int check_output(Plan plan, output) except -1:
    """Raise unless this describes an output made of the results of a plan."""
    arrays = []
    if output is None:
        arrays.append(())
    elif type(output) is tuple:
        if check_described(output, 0, arrays) != len(output):
            raise ValueError(f"an output has more than {len(output)} items")
    elif callable(output):
        return 0
    else:
        raise TypeError(f"an output is {output!r}, expected a tuple, a function or None")
    if len(arrays) != len(plan.results):
        raise ValueError(f"an output has {len(arrays)} arrays, but the plan has {len(plan.results)} results")
    return 0


cdef Py_ssize_t check_described(tuple items, Py_ssize_t place, list arrays) except -1:
    """Check an item of a guard or output with its children, and note the arrays. Return the place after them."""
    cdef Py_ssize_t n = 0
    if place >= len(items):
        raise ValueError(f"an item is missing after {place}")
    item = items[place]
    if type(item) is not tuple or not item or EXPECTED_KINDS.get(item[0]) is None:
        raise TypeError(f"item {place} is {item!r}, expected one of {', '.join(EXPECTED_KINDS)} with its description")
    kind, *rest = item
    if kind in ("array", "scalar"):
        if len(rest) > 2 and (len(rest) > 3 or len(rest[2]) != len(rest[0])):
            raise ValueError(f"item {place} is {item!r}, expected a stride for each axis after the dtype")
        arrays.append(tuple(rest[:2]))
    elif kind == "number":
        if len(rest) != 2 or rest[0] not in (float, int) or rest[1] not in (1, -1):
            raise ValueError(f"item {place} is {item!r}, expected float or int, and the sign, 1 or -1")
        arrays.append(((), numpy.dtype(rest[0])))
    elif len(rest) != 1 or kind == "dict" and type(rest[0]) is not tuple:
        raise TypeError(f"item {place} is {item!r}, which lacks its number of items, its keys in a tuple, or its value")
    elif kind == "dict":
        n = len(rest[0])
    elif kind != "value":
        n = rest[0]
    if n < 0:
        raise ValueError(f"item {place} is {item!r}, which has a negative number of items")
    place += 1
    enter_recursive_call()
    try:
        for _ in range(n):
            place = check_described(items, place, arrays)
    finally:
        leave_recursive_call()
    return place


cdef inline bint is_expected(Expected** place, PyObject* value, PyObject*** leaves, bint* has_tensors) except -1:
    """Return whether a value is the one expected at this place. Add its arrays to `leaves`, which own them."""
    cdef Expected* expected = place[0]
    place[0] += 1
    if expected.kind != EXPECTED_ARRAY:
        return is_expected_otherwise(place, value, leaves, has_tensors)
    if Py_TYPE(value) == TENSOR_TYPE:
        if (<Tensor>value).word & (SPECIAL_FLAGS | SCALAR_FLAG) or (<Tensor>value).edge is not None:
            return False
        value = <PyObject*>(<Tensor>value).array
        has_tensors[0] = True
    if Py_TYPE(value) != &PyArray_Type or not has_layout(<PyArrayObject*>value, expected) or (
            PyArray_DESCR(<PyArrayObject*>value) != expected.what
            and not PyObject_RichCompareBool(
                <object>PyArray_DESCR(<PyArrayObject*>value), <object>expected.what, Py_EQ)):
        return False
    leaves[0][0] = new_reference(<object>value)      # comparing keys may remove the value from where it is
    leaves[0] += 1
    return True


cdef inline bint has_layout(PyArrayObject* array, Expected* expected) noexcept:
    """Return whether an array has the expected shape, and the strides if they are given."""
    cdef Py_ssize_t i
    if PyArray_NDIM(array) != expected.n:
        return False
    for i in range(expected.n):
        if PyArray_DIMS(array)[i] != expected.shape[i]:
            return False
    if expected.strides != NULL:
        for i in range(expected.n):
            if expected.shape[i] > 1 and PyArray_STRIDES(array)[i] != expected.strides[i]:
                return False
    return True


cdef bint is_expected_otherwise(
        Expected** place, PyObject* value, PyObject*** leaves, bint* has_tensors) except -1:
    """Return whether a value is the one expected before this place, which is not an array."""
    cdef Expected* expected = place[0] - 1
    cdef PyObject* part
    cdef PyObject* key
    cdef Py_ssize_t i, position = 0
    if expected.kind == EXPECTED_SCALAR:
        return is_expected_scalar(expected, value, leaves, has_tensors)
    if expected.kind == EXPECTED_NUMBER:
        return is_expected_number(expected, value, leaves)
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
        if Py_TYPE(value) != &PyList_Type:
            return False
        for i in range(expected.n):         # comparing keys may shorten the list
            if len(<list>value) != expected.n or not is_expected(
                    place, PyList_GET_ITEM(value, i), leaves, has_tensors):
                return False
        return len(<list>value) == expected.n
    if Py_TYPE(value) != &PyDict_Type or len(<dict>value) != expected.n:
        return False
    for i in range(expected.n):         # in the same order, which functions can see
        if not PyDict_Next(value, &position, &key, &part) or (
                key != PyTuple_GET_ITEM(expected.what, i)
                and not is_same_value(key, PyTuple_GET_ITEM(expected.what, i))):
            return False
        if not is_expected(place, part, leaves, has_tensors):
            return False
    return True


cdef bint is_expected_scalar(Expected* expected, PyObject* value, PyObject*** leaves, bint* has_tensors) except -1:
    """Return whether a value is the expected scalar: one of NumPy's, or a Tensor that is one."""
    cdef PyObject* array
    if Py_TYPE(value) == TENSOR_TYPE:
        if (<Tensor>value).word & (SPECIAL_FLAGS | SCALAR_FLAG) != SCALAR_FLAG or (<Tensor>value).edge is not None:
            return False
        scalar = (<Tensor>value).array
        has_tensors[0] = True
    elif is_numpy_scalar(<object>value):
        scalar = array_of_scalar(<object>value)
    else:
        return False
    array = <PyObject*>scalar
    if Py_TYPE(array) != &PyArray_Type or not PyObject_RichCompareBool(
            <object>PyArray_DESCR(<PyArrayObject*>array), <object>expected.what, Py_EQ):
        return False
    leaves[0][0] = new_reference(scalar)
    leaves[0] += 1
    return True


cdef bint is_expected_number(Expected* expected, PyObject* value, PyObject*** leaves) except -1:
    """Return whether a value is a number of the expected type, sign and size. Add an array that holds it."""
    cdef double number
    cdef int overflows = 0
    if <PyObject*>Py_TYPE(value) != expected.what:
        return False
    if Py_TYPE(value) == &PyFloat_Type:
        number = PyFloat_AS_DOUBLE(value) * expected.n
        if not 0 < number < INFINITY:
            return False
    else:
        number = PyLong_AsLongLongAndOverflow(<object>value, &overflows) * <double>expected.n
        if overflows or not 0 < number <= LARGEST_INT:
            return False
    array = cnp.PyArray_EMPTY(0, NULL, cnp.NPY_DOUBLE if Py_TYPE(value) == &PyFloat_Type else cnp.NPY_INT64, 0)
    if Py_TYPE(value) == &PyFloat_Type:
        (<double*>PyArray_DATA(<PyArrayObject*><PyObject*>array))[0] = PyFloat_AS_DOUBLE(value)
    else:
        (<long long*>PyArray_DATA(<PyArrayObject*><PyObject*>array))[0] = <long long>(number * expected.n)
    leaves[0][0] = new_reference(array)
    leaves[0] += 1
    return True


cdef bint is_same_value(PyObject* value, PyObject* expected) except -1:
    """Return whether two values are of one type and equal. 0.0 and -0.0 differ, NaN equals NaN."""
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


# A key is a hash of what guards compare: equal for all arguments of a variant that does not take numbers.

cdef inline void add_to_key(size_t* key, size_t part) noexcept:
    key[0] = (key[0] ^ part) * <size_t>1000003


cdef int add_expected_to_key(size_t* key, Expected* expected) except -1:
    """Add what a guard expects at one place."""
    cdef Py_ssize_t i
    if expected.kind == EXPECTED_VALUE:
        add_value_to_key(key, expected.what)
        return 0
    add_to_key(key, expected.n)
    if expected.kind == EXPECTED_ARRAY:
        for i in range(expected.n):
            add_to_key(key, expected.shape[i])
    elif expected.kind == EXPECTED_DICT:
        for i in range(expected.n):
            add_value_to_key(key, PyTuple_GET_ITEM(expected.what, i))
    return 0


cdef int add_argument_to_key(size_t* key, PyObject* value) except -1:
    """Add an argument, or a part of one."""
    cdef PyObject* part
    cdef PyObject* name
    cdef PyObject* array = <PyObject*>(<Tensor>value).array if Py_TYPE(value) == TENSOR_TYPE else value
    cdef Py_ssize_t i, position = 0
    if Py_TYPE(array) == &PyArray_Type:
        add_to_key(key, PyArray_NDIM(<PyArrayObject*>array))
        for i in range(PyArray_NDIM(<PyArrayObject*>array)):
            add_to_key(key, PyArray_DIMS(<PyArrayObject*>array)[i])
        return 0
    if Py_TYPE(value) != &PyTuple_Type and Py_TYPE(value) != &PyList_Type and Py_TYPE(value) != &PyDict_Type:
        return add_value_to_key(key, value)
    enter_recursive_call()
    try:
        if Py_TYPE(value) == &PyDict_Type:
            add_to_key(key, len(<dict>value))
            while PyDict_Next(value, &position, &name, &part):
                add_value_to_key(key, name)
            position = 0
            while PyDict_Next(value, &position, &name, &part):
                add_argument_to_key(key, part)
        else:
            add_to_key(key, PySequence_Fast_GET_SIZE(value))
            for i in range(PySequence_Fast_GET_SIZE(value)):
                add_argument_to_key(key, PySequence_Fast_GET_ITEM(value, i))
    finally:
        leave_recursive_call()
    return 0


cdef int add_value_to_key(size_t* key, PyObject* value) except -1:
    """Add a value, or 0 for one whose hash may depend on more than guards compare."""
    cdef double number
    cdef size_t part = 0
    if Py_TYPE(value) == &PyFloat_Type:
        number = PyFloat_AS_DOUBLE(value)
        memcpy(&part, &number, sizeof(part))
    elif Py_TYPE(value) == &PyLong_Type or Py_TYPE(value) == &PyUnicode_Type:
        part = hash(<object>value)
    add_to_key(key, part)
    return 0


cdef object call_variant(PyObject* variant, PyObject* const* args, bint* is_for_these):
    """Run the plan of a variant and set `is_for_these`, if the guard holds for these arguments, else return None."""
    cdef PyObject* small[MOST_LEAVES]
    cdef PyObject** leaves = small
    cdef PyObject** free = small
    cdef Expected* place = (<Variant>variant).expected
    cdef bint has_tensors = False
    cdef Py_ssize_t i, free_place
    cdef tuple results
    if (<Variant>variant).n_arrays > MOST_LEAVES:
        leaves = <PyObject**>PyMem_RawMalloc((<Variant>variant).n_arrays * sizeof(PyObject*))
        if leaves == NULL:
            raise MemoryError()
        free = leaves
    try:
        for i in range((<Variant>variant).n_arguments):
            if not is_expected(&place, args[i], &free, &has_tensors):
                return None
        if not holds_all(<PyObject*>(<Variant>variant).links):
            return None
        is_for_these[0] = True
        results = run_plan(<PyObject*>(<Variant>variant).plan, leaves, True)
    finally:
        while free > leaves:
            free -= 1
            Py_DECREF(free[0])
        if leaves != small:
            PyMem_RawFree(leaves)
    if has_tensors:
        results = tuple(map(tensor_of_result, results))
    if (<Variant>variant).output is None:
        return results[0]
    if (<Variant>variant).output_items is None:
        return (<Variant>variant).output(results)
    i = free_place = 0
    return pytree_of_results((<Variant>variant).output_items, &i, results, &free_place)


cdef object pytree_of_results(tuple output, Py_ssize_t* place, tuple results, Py_ssize_t* taken):
    """Build the pytree that `output` describes from this place on, of the results that are not taken yet."""
    cdef tuple item = output[place[0]]
    cdef int kind = item[0]
    cdef list parts
    cdef Py_ssize_t i
    place[0] += 1
    if kind == EXPECTED_ARRAY or kind == EXPECTED_SCALAR:
        taken[0] += 1
        return results[taken[0] - 1] if kind == EXPECTED_ARRAY else to_scalar(results[taken[0] - 1])
    if kind == EXPECTED_VALUE:
        return item[1]
    parts = []
    for i in range(len(<tuple>item[1]) if kind == EXPECTED_DICT else <Py_ssize_t>item[1]):
        parts.append(pytree_of_results(output, place, results, taken))
    if kind == EXPECTED_TUPLE:
        return tuple(parts)
    return parts if kind == EXPECTED_LIST else dict(zip(<tuple>item[1], parts))


def tensor_of_result(array):
    """Wrap an array in a new Tensor."""
    return wrap(array)


cdef PyObject* call_compiled(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf)
    cdef bint found = False
    if kwnames == NULL and (<State>borrowed_state()).plain:
        if PyList_GET_SIZE(<PyObject*>(<CompiledFunction>self).in_order) <= MOST_TRIED:
            result = call_first(<CompiledFunction>self, <PyObject*>(<CompiledFunction>self).in_order, args, n, &found)
        else:
            result = call_by_key(<CompiledFunction>self, args, n, &found)
        if found:
            return new_reference(result)
    # bound each time: a kept one would keep the function and its memory alive
    general = (<CompiledFunction>self).general
    return PyObject_Vectorcall(<PyObject*>general, args, nargsf, kwnames)


cdef inline object call_first(
        CompiledFunction function, PyObject* variants, PyObject* const* args, Py_ssize_t n, bint* found):
    """Run the first of these variants that is for these arguments, move it to the front, and set `found`."""
    cdef PyObject* variant
    cdef object held = None
    cdef Py_ssize_t i
    for i in range(PyList_GET_SIZE(variants)):
        variant = PyList_GET_ITEM(variants, i)
        if not IS_FREE_THREADED:        # there it is in the list for good
            held = <object>variant
        if (<Variant>variant).n_arguments != n:
            continue
        result = call_variant(variant, args, found)
        if found[0]:
            number_after(<uint64_t*>&function.hits)
            if i and i < PyList_GET_SIZE(variants) and not IS_FREE_THREADED:
                (<list>variants)[i] = (<list>variants)[0]
                (<list>variants)[0] = held
            return result
    return None


cdef object call_by_key(CompiledFunction function, PyObject* const* args, Py_ssize_t n, bint* found):
    """Run the one of many variants that is for these arguments, and set `found`."""
    cdef size_t key = 0
    cdef Py_ssize_t i
    for i in range(n):
        add_argument_to_key(&key, args[i])
    for variants in (function.by_key.get(key), function.with_numbers):
        if variants is not None:
            result = call_first(function, <PyObject*>variants, args, n, found)
            if found[0]:
                return result
    return None


cdef class CompiledFunction:
    """A function that runs the plan of the first of its `variants` whose guard holds.

    If no guard holds, it calls `general`, which the subclass defines. Plans get raw arrays and untracked Tensors, and
    run only while no transform, mode or guard of the ambient state is active. `hits` counts these calls.
    """

    def __cinit__(self, *args, **kwargs):
        self.vectorcall = <vectorcallfunc>call_compiled
        self.in_order, self.with_numbers, self.by_key = [], [], {}

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))

    def general(self, *args, **kwargs):
        """Run a call that no variant is for."""
        raise TypeError("the compiled function has no function to call")

    @property
    def variants(self):
        """The variants. Of a few, the most recently used one is first, else the most recently added one."""
        return tuple(self.in_order)

    def add_variant(self, Variant variant not None):
        """Add a variant, which is tried first."""
        if IS_FREE_THREADED:        # readers may be in the lists
            self.replace_variants([variant, *self.in_order])
            return
        self.in_order.insert(0, variant)
        variants = self.with_numbers if variant.has_numbers else self.by_key.setdefault(variant.key, [])
        variants.insert(0, variant)

    def remove_variant(self, Variant variant not None):
        """Remove a variant if it is present."""
        if IS_FREE_THREADED:
            self.replace_variants([other for other in self.in_order if other is not variant])
            return
        for variants in (self.in_order, self.with_numbers, self.by_key.get(variant.key, [])):
            if variant in variants:
                variants.remove(variant)
        if not self.by_key.get(variant.key, True):
            del self.by_key[variant.key]

    cdef int replace_variants(self, list variants) except -1:
        """Replace the lists of variants, without the GIL. The old ones live as long as the function, for readers."""
        cdef Variant variant
        cdef list with_numbers = []
        cdef dict by_key = {}
        for variant in variants:
            (with_numbers if variant.has_numbers else by_key.setdefault(variant.key, [])).append(variant)
        self.replaced = (self.replaced, self.in_order, self.with_numbers, self.by_key)
        self.in_order, self.with_numbers, self.by_key = variants, with_numbers, by_key
        return 0

    def clear_variants(self):
        """Remove all variants, and reset `hits`."""
        if IS_FREE_THREADED:
            self.replace_variants([])
            self.hits = 0
            return
        self.in_order.clear()
        self.with_numbers.clear()
        self.by_key.clear()
        self.hits = 0


cdef CompiledFunction some_compiled_function = CompiledFunction()


cdef Py_ssize_t vectorcall_offset_of_compiled() noexcept:
    return <char*>&some_compiled_function.vectorcall - <char*><PyObject*>some_compiled_function


make_vectorcallable(CompiledFunction, vectorcall_offset_of_compiled())
