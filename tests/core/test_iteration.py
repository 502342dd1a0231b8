"""Loops are taken as NumPy takes them: a ufunc that notes each loop sees the same, whoever calls it.

Before 2.3 NumPy cut iterations into loops in another way. There, only results and their layouts are compared.
"""

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pydispatch import _core

POINTERS = ctypes.POINTER(ctypes.c_void_p)
SIZES = ctypes.POINTER(ctypes.c_ssize_t)
LOOP = ctypes.CFUNCTYPE(None, POINTERS, SIZES, SIZES, ctypes.c_void_p)
DOUBLE, ZERO, NO_IDENTITY = 12, 0, -2
NEW_UFUNC = 1       # index of PyUFunc_FromFuncAndData in NumPy's table of functions


class Noting:
    """A ufunc of float64 that adds up its arguments, and notes the length, strides and numbers of every loop."""

    def __init__(self, n_in, identity=ZERO):
        self.seen = []
        self.n_in = n_in
        self.loop = LOOP(self.take)
        self.loops = (LOOP * 1)(self.loop)
        self.data = (ctypes.c_void_p * 1)(None)
        self.types = (ctypes.c_char * (n_in + 1))(*[DOUBLE] * (n_in + 1))
        table = np._core._multiarray_umath._UFUNC_API
        ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.POINTER(ctypes.c_void_p)
        ctypes.pythonapi.PyCapsule_GetPointer.argtypes = ctypes.py_object, ctypes.c_char_p
        make = ctypes.PYFUNCTYPE(
            ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int] * 4, ctypes.c_char_p,
            ctypes.c_char_p, ctypes.c_int)(ctypes.pythonapi.PyCapsule_GetPointer(table, None)[NEW_UFUNC])
        self.ufunc = make(self.loops, self.data, self.types, 1, n_in, 1, identity, b"noting", b"", 0)

    def take(self, pointers, sizes, strides, data):
        n, steps = sizes[0], strides[:self.n_in + 1]
        numbers = [
            [ctypes.c_double.from_address(pointers[i] + k * steps[i]).value for k in range(n)]
            for i in range(self.n_in)
        ]
        self.seen.append((n, steps if n > 1 else None, numbers))
        for k in range(n):
            total = sum(ctypes.c_double.from_address(pointers[i] + k * steps[i]).value for i in range(self.n_in))
            ctypes.c_double.from_address(pointers[self.n_in] + k * steps[self.n_in]).value = total

    def noted(self, call, *args, **kwargs):
        """Return the result of the call, its layout, and the loops that ran."""
        self.seen = []
        result = call(*args, **kwargs)
        assert result is not NotImplemented
        return np.asarray(result).tolist(), result.shape, result.strides, self.seen if TAKES_THE_SAME_LOOPS else None


NOTING = {n_in: Noting(n_in) for n_in in (1, 2, 3)}
REDUCING = {"from zero": Noting(2), "from the first": Noting(2, NO_IDENTITY)}
TAKES_THE_SAME_LOOPS = np.lib.NumpyVersion(np.__version__) >= "2.3.0"


def laid_out(array, order, steps):
    """Return an array with these elements, its axes in memory in this order, with gaps and backwards as `steps` say."""
    order = [axis for axis in order if axis < array.ndim]
    sizes = [array.shape[axis] * abs(steps[axis]) for axis in order]
    memory = np.ones(sizes, array.dtype)[(*[slice(None, None, steps[axis]) for axis in order], ...)]
    turned = memory.transpose(np.argsort(order))
    turned[...] = array
    return turned


layouts = st.tuples(st.permutations(range(4)), st.tuples(*[st.sampled_from([1, 1, 1, 2, -1])] * 4))


@st.composite
def operands(draw, n):
    """Draw arrays of many layouts that can be broadcast together, at least one of them with an axis."""
    shapes = draw(arrays.mutually_broadcastable_shapes(num_shapes=n, min_dims=0, max_dims=4, max_side=5))
    values = iter(range(10**6))
    found = []
    for shape in shapes.input_shapes:
        array = np.array([next(values) for _ in range(int(np.prod(shape)))], float).reshape(shape)
        found.append(laid_out(array, *draw(layouts)))
    return found


def is_taken(args):
    shape = np.broadcast_shapes(*[array.shape for array in args])
    return len(shape) > 0 and np.prod(shape) > 0


@pytest.mark.parametrize("n_in", NOTING)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_loops_element_by_element(n_in, data):
    args = data.draw(operands(n_in).filter(is_taken))
    noting = NOTING[n_in]
    ours, theirs = noting.noted(_core.loop_result, noting.ufunc, *args), noting.noted(noting.ufunc, *args)
    assert ours == theirs


@pytest.mark.parametrize("start", REDUCING)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_loops_that_reduce(start, data):
    (array,) = data.draw(operands(1).filter(is_taken))
    axes = data.draw(st.lists(st.integers(0, array.ndim - 1), min_size=1, unique=True).map(tuple))
    keepdims = data.draw(st.booleans())
    noting = REDUCING[start]
    fold = _core.Reduction(noting.ufunc)
    ours = noting.noted(fold, array, axes, keepdims=keepdims)
    theirs = noting.noted(noting.ufunc.reduce, array, axes, keepdims=keepdims)
    assert ours == theirs
