# Steps of loops that are one operator.


@cython.final
cdef class Rows:
    """The slices of an array of NumPy's along its first axis, as Tensors, one after the other."""

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
        return wrap(row) if Py_TYPE(<PyObject*>row) == &PyArray_Type else Tensor(row)


def take_steps(tuple step, tuple init, slices, check):
    """(last carry, what each step returned besides) of a loop over slices; first a step returns the carry of the next.

    Where it returns nothing besides, there is an empty list.

    `check(init, carry)` is called where a carry may have other shapes and dtypes than the first one.
    """
    cdef tuple carry = init, results
    cdef list rows = []
    cdef Py_ssize_t n = len(init)
    for x in slices:
        results = results_of(step, carry + <tuple>x)
        carry = results
        if len(results) != n:
            carry = results[:n]
            rows.append(results[n:])
        if not are_alike(carry, init):
            check(init, carry)
    return carry, rows


def take_steps_while(tuple test, tuple step, tuple init, holds, check, bint keeps):
    """The same as long as a test of the carry holds: (last carry, those that steps started with if `keeps`).

    `holds(results)` is called where the test may have returned something else than one bool.
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
    """The stack of Tensors over NumPy's arrays of one shape, an untracked Tensor; None for others.

    The Tensors are untracked too, or the stack `detaches` from the tape, or from the innermost level of `grad`.
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
    return own(wrap_ndarray(give(stack(tuple(arrays))))) if arrays else None


cdef inline bint is_one_bool(PyObject* value) noexcept:
    return (Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value) == 0
            and PyArray_TYPE(<PyArrayObject*>value) == cnp.NPY_BOOL)


cdef bint are_alike(tuple values, tuple models) except -1:
    """Has each array the shape and dtype of its model? No may mean that this takes longer to tell."""
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
    """What is under interpreters of `grad`, which has the same shape."""
    while Py_TYPE(value) == <PyTypeObject*>Tensor or Py_TYPE(value) == <PyTypeObject*>GradTensor:
        value = <PyObject*>(<Tensor>value).array
    return value
