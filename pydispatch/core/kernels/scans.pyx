# Loops whose steps each call one operator.


@cython.final
cdef class Rows:
    """An iterator over the slices of a NumPy array along its first axis, as Tensors."""

    def __init__(self, array):
        self.array = array
        self.n = len(array)

    def __iter__(self):
        return self

    def __next__(self):
        if self.i == self.n:
            raise StopIteration
        row = PySequence_GetItem(self.array, self.i)
        self.i += 1
        return steal(wrap_ndarray(new_reference(row))) if Py_TYPE(<PyObject*>row) == &PyArray_Type else Tensor(row)


@cython.final
cdef class StackedRows:
    """The rows that the steps of a loop return beside its carry, stacked along axis 0 as they come, as far as possible.

    Untracked Tensors over arrays of numbers are copied, if each has the shape and dtype of the first one in its column.
    From the first other row on, rows are kept as they are. With `reverse`, the row of the last step comes first.
    """

    def __init__(self, Py_ssize_t length, bint reverse=False):
        self.length, self.reverse = length, reverse
        self.columns, self.kept = [], None

    def append(self, tuple row not None):
        """Add the row that the next step returned."""
        cdef Py_ssize_t k
        if self.kept is None and self.n < self.length and self.can_copy(row):
            for k in range(len(row)):
                copy_row(self.columns[k], self.place(self.n), (<Tensor>row[k]).array)
            self.n += 1
            return
        if self.kept is None:
            self.kept = self.copied()
        self.kept.append(row)

    cdef bint can_copy(self, tuple row) except -1:
        cdef Py_ssize_t k
        cdef list columns = []
        for value in row:
            if not is_plain_constant(<PyObject*>value) or Py_TYPE(<PyObject*>value) != TENSOR_TYPE or (
                    readable_type(<PyObject*>(<Tensor>value).array) < 0):
                return False
        if self.n == 0:
            for value in row:
                array = (<Tensor>value).array
                columns.append(numpy_empty((self.length,) + array.shape, array.dtype))
            self.columns = columns
        if len(row) != len(self.columns):
            return False
        for k in range(len(row)):
            if not is_row_of(<PyArrayObject*><PyObject*>self.columns[k],
                             <PyArrayObject*><PyObject*>(<Tensor>row[k]).array):
                return False
        return True

    cdef Py_ssize_t place(self, Py_ssize_t i):
        return self.length - 1 - i if self.reverse else i

    cdef list copied(self):
        cdef Py_ssize_t i
        cdef list rows = [], row
        for i in range(self.n):
            row = []
            for column in self.columns:
                row.append(Tensor(column[self.place(i), ...]))
            rows.append(tuple(row))
        return rows

    def in_order(self):
        """Return the rows in the order in which they are stacked."""
        rows = self.copied() if self.kept is None else self.kept
        return rows[::-1] if self.reverse else rows

    def stacks(self):
        """Return the stack of each column, or None if rows were kept or there were none."""
        if self.kept is not None or self.n == 0 or self.n != self.length:
            return None
        return tuple(map(Tensor, self.columns))


cdef object numpy_empty = numpy.empty


cdef bint is_row_of(PyArrayObject* column, PyArrayObject* array) noexcept:
    """Return whether this array has the type and shape of a row of the column."""
    cdef int axis
    if PyArray_TYPE(column) != PyArray_TYPE(array) or PyArray_NDIM(column) != PyArray_NDIM(array) + 1:
        return False
    for axis in range(PyArray_NDIM(array)):
        if PyArray_DIMS(column)[axis + 1] != PyArray_DIMS(array)[axis]:
            return False
    return True


cdef int copy_row(column, Py_ssize_t place, array) except -1:
    cdef PyArrayObject* source = <PyArrayObject*><PyObject*>array
    cdef Py_ssize_t size = PyArray_NBYTES(source)
    if is_in_c_order(source):
        memcpy(<char*>PyArray_DATA(<PyArrayObject*><PyObject*>column) + place * size, PyArray_DATA(source), size)
    else:
        column[place] = array
    return 0


def run_steps(tuple step, tuple init, slices, check, rows):
    """Run a loop over slices and return its last carry. A step returns the next carry, then a row, which may be empty.

    `rows` is the list, or another object with `append`, for rows that are not empty. `check(init, carry)` is called if
    a carry may have other shapes and dtypes than the first one.
    """
    cdef tuple carry = init, results
    cdef Py_ssize_t n = len(init)
    for x in slices:
        results = results_of(step, carry + <tuple>x)
        carry = results
        if len(results) != n:
            carry = results[:n]
            rows.append(results[n:])
        if not are_alike(carry, init):
            check(init, carry)
    return carry


def run_steps_while(tuple test, tuple step, tuple init, holds, check, bint keeps):
    """Run steps while a test of the carry holds. Return (last carry, the carries before each step if `keeps`).

    `holds(results)` is called if the test may have returned something other than one bool.
    """
    cdef tuple carry = init
    cdef tuple results
    cdef list rows = []
    cdef PyObject* array
    while True:
        results = results_of(test, carry)
        array = array_of_interpreter(PyTuple_GET_ITEM(<PyObject*>results, 0)) if len(results) == 1 else Py_None
        if is_one_bool(array):
            if not (<cnp.npy_bool*>PyArray_DATA(<PyArrayObject*>array))[0]:
                break
        elif not holds(results):
            break
        if keeps:
            rows.append(carry)
        carry = results_of(step, carry)
        if not are_alike(carry, init):
            check(init, carry)
    return carry, rows


def stack_of_arrays(column, bint detaches):
    """Return the stack of Tensors over NumPy's arrays of one shape as an untracked Tensor, or None for others.

    The Tensors must be untracked too, unless the stack `detaches` from the tape, or from the innermost `grad`.
    """
    cdef list arrays = []
    cdef Tensor tensor
    for value in column:
        if Py_TYPE(<PyObject*>value) != TENSOR_TYPE and not (detaches and Py_TYPE(<PyObject*>value) == GRAD_TYPE):
            return None
        tensor = <Tensor>value
        if Py_TYPE(<PyObject*>tensor.array) != &PyArray_Type or not detaches and requires_grad_of(tensor):
            return None
        if arrays and not same_shape(<PyObject*>tensor.array, <PyObject*>arrays[0]):
            return None
        arrays.append(tensor.array)
    return steal(wrap_ndarray(new_reference(stack(tuple(arrays))))) if arrays else None


cdef inline bint is_one_bool(PyObject* value) noexcept:
    return (Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value) == 0
            and PyArray_TYPE(<PyArrayObject*>value) == cnp.NPY_BOOL)


cdef bint are_alike(tuple values, tuple models) except -1:
    """Return whether each array has the shape and dtype of its model. On False, use a slower check."""
    cdef PyObject* one
    cdef PyObject* other
    cdef Py_ssize_t i
    if len(values) != len(models):
        return False
    for i in range(len(models)):
        one = array_of_interpreter(PyTuple_GET_ITEM(<PyObject*>values, i))
        other = array_of_interpreter(PyTuple_GET_ITEM(<PyObject*>models, i))
        if (Py_TYPE(one) != &PyArray_Type or Py_TYPE(other) != &PyArray_Type
                or not same_shape(one, other) or not same_dtype(one, other)):
            return False
    return True


cdef PyObject* array_of_interpreter(PyObject* value) noexcept:
    """Return the array under interpreters of `grad`. It has the same shape."""
    while Py_TYPE(value) == <PyTypeObject*>Tensor or Py_TYPE(value) == <PyTypeObject*>GradTensor:
        value = <PyObject*>(<Tensor>value).array
    return value
