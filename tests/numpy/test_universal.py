"""Universal functions: their methods and options on Tensors."""

from itertools import product

import numpy as np
import pytest
from numpy.exceptions import AxisError

import pydispatch.numpy as pnp
from pydispatch import Tensor, _core
from pydispatch.autograd import grad
from pydispatch.func import grad as func_grad
from pydispatch.func import jvp, vmap
from pydispatch.numpy.declare import FUNCTIONS
from tests.together import together

IS_NUMPY_2_3 = np.lib.NumpyVersion(np.__version__) >= "2.3.0"
BINARY = [name for name, function in FUNCTIONS.items() if "outer" in function.__dict__ and name != "ldexp"]
"""Less the one whose result is not its own argument again: NumPy reduces nothing with it."""
ARRAY = np.array([[3, 1, 2], [1, 2, 5], [7, 1, 1], [2, 6, 4]])
DTYPES = {"logical": bool, "equal": bool, "not": bool, "less": bool, "greater": bool, "bit": int, "left": int,
          "right": int, "gcd": int, "lcm": int}
"""By the first word of the name; float for others."""
METHODS = {
    "reduce": lambda ufunc, x: ufunc.reduce(x),
    "reduce, axis=1, keepdims": lambda ufunc, x: ufunc.reduce(x, axis=1, keepdims=True),
    "accumulate": lambda ufunc, x: ufunc.accumulate(x, axis=1),
    "outer": lambda ufunc, x: ufunc.outer(x, x[0].tolist()),
    "reduceat": lambda ufunc, x: ufunc.reduceat(x, [0, 2, 1], axis=0),
}


def one_by_one(method, name, array):
    """Return the method's results in NumPy, in its dtype there, pair of elements by pair of elements.

    NumPy's own loops for arctan2 and power take the first and the last element of a row alone on some processors.
    """
    ufunc = getattr(np, name)
    of_scalars = np.frompyfunc(lambda x, y: ufunc(array.dtype.type(x), array.dtype.type(y)), 2, 1)
    return np.asarray(method(of_scalars, array.astype(object))).astype(method(ufunc, array).dtype)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", BINARY)
@together("method", METHODS.values(), ids=list(METHODS))
def test_methods_of_binary_functions(name, method):
    array = ARRAY.astype(DTYPES.get(name.split("_")[0].removesuffix("wise"), float))
    expected = one_by_one(method, name, array)
    for ufunc in (getattr(np, name), getattr(pnp, name)):
        found = method(ufunc, Tensor(array))
        assert type(found) is Tensor
        np.testing.assert_allclose(found.array, expected, rtol=1e-15)
        assert found.dtype == expected.dtype
    assert type(method(getattr(pnp, name), array)) is np.ndarray


SHAPES = [(), (0,), (1,), (3,), (4, 0), (2, 3), (1, 2, 2)]
REDUCED = [{}, {"keepdims": True}, {"initial": 2}, {"initial": None}, {"dtype": "f8"}, {"dtype": "u1"}, {"dtype": "i8"},
           {"where": np.array(True)}, {"where": np.array(False), "initial": 3}]
WITHOUT_LOOPS_OF_THEIR_OWN = {"arctan2", "atan2", "power", "pow", "ldexp"}
"""NumPy's loops for these take the first and the last element of a row alone on some processors, or exponents."""


def outcome(method, array, **options):
    """Return values and dtype of a call, or the kind of error."""
    try:
        found = method(array, **options)
    except (TypeError, ValueError) as error:
        return AxisError if isinstance(error, AxisError) else type(error)
    found = np.asarray(found.array if isinstance(found, Tensor) else found)
    return found.dtype, found.shape, (np.round(found.astype(complex), 5) + 0).tolist()      # no negative zeros


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("name", [name for name in BINARY if name not in WITHOUT_LOOPS_OF_THEIR_OWN])
@together("dtype", ["f8", "i4", "u1", "?", "c16"])
def test_folds_are_numpys_in_value_dtype_and_error(name, dtype):
    numpys, ours = getattr(np, name), getattr(pnp, name)
    for shape in SHAPES:
        array = np.resize([3, 0, 2, 5, 1, 7, 4], shape).astype(dtype)
        array = -array if dtype in ("f8", "i4", "c16") else array
        for axis, options in product((0, -1, None, (), (0, 1)), REDUCED):
            case = name, dtype, shape, axis, options
            expected = outcome(numpys.reduce, array, axis=axis, **options)
            assert str(outcome(ours.reduce, Tensor(array), axis=axis, **options)) == str(expected), case
        for axis, options in product((0, -1), ({}, {"dtype": "f8"}, {"dtype": "u1"})):
            case = name, dtype, shape, axis, options
            expected = outcome(numpys.accumulate, array, axis=axis, **options)
            assert str(outcome(ours.accumulate, Tensor(array), axis=axis, **options)) == str(expected), case


def test_folds_are_differentiated_by_elements_and_initial_values():
    x = np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(func_grad(pnp.hypot.reduce)(x), x / np.hypot.reduce(x))
    found = func_grad(lambda initial: pnp.hypot.reduce(x, initial=initial))(2.0)
    np.testing.assert_allclose(found, 2 / np.hypot.reduce(x, initial=2.0))
    masks = np.array([[True, False, True], [False, False, True]])
    np.testing.assert_allclose(vmap(lambda mask: pnp.hypot.reduce(x, where=mask, initial=1.0))(masks),
                               [np.hypot.reduce(x, where=mask, initial=1.0) for mask in masks])


def test_where_leaves_elements_out_of_the_gradient():
    x = Tensor(np.array([4.0, 0.0]), requires_grad=True)
    result = np.sqrt(x, where=[True, False], out=None)
    assert grad(result[0], x)[0].tolist() == [0.25, 0.0]


@pytest.mark.parametrize("namespace", [np, pnp])
def test_results_written_into_a_tensor_pass_gradients_on(namespace):
    x = np.array([1.0, 2.0, 3.0])

    def function(x):
        out, total = namespace.zeros_like(x), namespace.zeros_like(x)
        namespace.exp(x, out=out)
        namespace.add(out, x, out=total)
        return namespace.sum(total * x)

    slope = np.exp(x) * (1 + x) + 2 * x
    np.testing.assert_allclose(func_grad(function)(x), slope)
    tensor = Tensor(x, requires_grad=True)
    function(tensor).backward()
    np.testing.assert_allclose(tensor.grad.numpy(), slope)
    np.testing.assert_allclose(jvp(function, (x,), (np.ones(3),))[1], slope.sum())
    np.testing.assert_allclose(vmap(func_grad(function))(np.stack([x, x])), np.stack([slope, slope]))
    with pytest.raises(TypeError, match="cast"):
        namespace.add(tensor, 1.0, out=Tensor(np.zeros(3, int)))


ARRAYS_ASKED_FOR = {
    "exp": lambda np, x: np.exp(x[0], out=...),
    "masked": lambda np, x: np.exp(x[0], out=..., where=True),
    "divmod": lambda np, x: np.divmod(x[1], 2, out=...)[1],
    "reduce": lambda np, x: np.add.reduce(x, out=...),
    "vector": lambda np, x: np.add(x, 1, out=...),
}


@pytest.mark.parametrize("name", ARRAYS_ASKED_FOR)
def test_an_ellipsis_as_out_asks_for_an_array(name):
    call, x = ARRAYS_ASKED_FOR[name], np.array([1.0, 2.0, 3.0])
    found = call(pnp, Tensor(x))
    assert not _core.is_scalar(found)
    expected = np.exp(x[0]) if name == "masked" else call(np, x) if IS_NUMPY_2_3 else None
    if expected is not None:
        np.testing.assert_array_equal(found.numpy(), expected)


def test_one_axis_need_not_be_named():
    for call in (lambda np, x: np.add.accumulate(x, axis=None), lambda np, x: np.add.reduceat(x, [0, 1], axis=None)):
        np.testing.assert_array_equal(call(pnp, Tensor(np.arange(4.0))).numpy(), call(np, np.arange(4.0)))
        with pytest.raises(ValueError, match="does not allow multiple axes"):
            call(pnp, Tensor(np.ones((2, 2))))
