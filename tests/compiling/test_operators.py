"""Every operator of the library in a compiled function: the bits of the operator itself, and its errors."""

import numpy as np
import pytest

from pydispatch import Tensor, compile, ops
from pydispatch.compiling.plan import compile_to_plan
from pydispatch.exceptions import DataDependentError, OverrideWarning
from pydispatch.library import impl
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten
from tests.compiling.same import check_same
from tests.operators.oracles import IN_PLACE, NAMES, UNDEFINED
from tests.operators.samples import Sample, samples
from tests.properties.programs import same_bits
from tests.together import together
from tests.warning_filters import quiet


class Call:
    """A call of an operator as a function of the arrays among its arguments."""

    def __init__(self, operator, sample: Sample):
        self.operator = operator
        self.leaves, self.spec = tree_flatten((sample.args, sample.kwargs))
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, np.ndarray)]
        self.arrays = [self.leaves[i] for i in self.places]

    def __call__(self, *arrays):
        leaves = list(self.leaves)
        for i, array in zip(self.places, arrays, strict=True):
            leaves[i] = array
        args, kwargs = tree_unflatten(leaves, self.spec)
        return self.operator(*args, **kwargs)


class Refusal:
    """An error."""

    def __init__(self, error: Exception):
        self.error = error


def outcome(function, *arguments):
    with quiet():
        try:
            return function(*arguments)
        except Exception as error:
            return Refusal(error)



def check_call(name, call, compiled, arrays, what):
    expected, found = outcome(call, *call.arrays), outcome(compiled, *arrays)
    if isinstance(found, Refusal):
        if isinstance(found.error, DataDependentError):
            assert "mask" in str(found.error), what
            assert name in ("index", "index_put"), what
        else:
            assert isinstance(expected, Refusal), (what, found.error)
            assert isinstance(found.error, type(expected.error)) or isinstance(expected.error, ValueError), what
        return
    assert not isinstance(expected, Refusal), (what, found)
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        check_result(name, call, one, other, what)


def check_result(name, call, found, expected, what):
    found, expected = (np.asarray(value.array if isinstance(value, Tensor) else value) for value in (found, expected))
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
    assert found.flags.c_contiguous, what
    assert not any(np.may_share_memory(found, array) for array in call.arrays), what
    if name not in UNDEFINED:
        same = same_bits(found, expected) or ("pointwise" in DECLARATIONS[name].tags and is_of_another_layout(
            call, found, expected))
        assert same, (what, found, expected)


def is_of_another_layout(call, found, expected):
    """Return whether NumPy computes these elements, to the bit, when it is called with each of them.

    Its loops take a shorter way for an operand that is repeated, such as a square root for a power of one half.
    Which operand a loop repeats depends on the order in which NumPy goes through the axes.
    """
    operands = np.broadcast_arrays(*call.arrays)
    for i in np.ndindex(found.shape):
        alone = [operand[i] for operand in operands]
        possible = [expected[i], np.asarray(outcome(call, *map(np.asarray, alone)))]
        if not any(same_bits(np.asarray(found[i]), np.asarray(value)) for value in possible):
            return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_samples(name):
    # Operators of a kind have the same samples. Of two neighbours, each is called with every other one.
    check_samples(name, samples(name)[NAMES.index(name) % 2::2], "plan")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_other_samples(name):
    check_samples(name, samples(name)[(NAMES.index(name) + 1) % 2::2], "plan")


@pytest.mark.parametrize("name", NAMES)
def test_samples_in_python(name):
    check_samples(name, samples(name)[::10], "python")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_samples_in_python(name):
    check_samples(name, samples(name), "python")


def check_samples(name, chosen, backend):
    for sample in chosen:
        call = Call(getattr(ops.np, name), sample)
        compiled = compile(call, backend=backend)
        for _ in range(2):
            check_call(name, call, compiled, call.arrays, (name, sample))


@pytest.mark.parametrize("name", NAMES)
def test_samples_of_tensors(name):
    for sample in samples(name)[::8]:
        call = Call(getattr(ops.np, name), sample)
        compiled = compile(call)
        for _ in range(2):
            tensors = [*map(Tensor, call.arrays)]
            check_call(name, call, compiled, tensors, (name, sample))
            found = outcome(compiled, *tensors)
            if tensors and not isinstance(found, Refusal):
                assert all(type(leaf) is Tensor for leaf in tree_leaves(found))


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_on_a_copy(name):
    for sample in samples(name)[::3]:
        if not isinstance(sample.args[0], np.ndarray):
            continue
        call = Call(on_a_copy(getattr(ops.np, VARIANTS[name].in_place)), sample)
        compiled = compile(call)
        for _ in range(2):
            check_call(name, call, compiled, call.arrays, (name, sample))


def on_a_copy(operator):
    def function(x, *others, **kwargs):
        return operator(ops.np.copy(x), *others, **kwargs)

    return function


@pytest.mark.parametrize("function", [
    lambda x: ops.np.full((3,), x), lambda x: ops.np.full((), x[..., :1]), lambda x: ops.np.full_like(x, x[None]),
    lambda x: ops.np.setitem(ops.np.zeros((2, 3)), 0, x[None]),
    lambda x: ops.np.setitem(ops.np.zeros((2, 3)), (0, slice(1)), x[..., 0]),
], ids=range(5))
def test_values_with_first_axes_of_length_one(function):
    x = np.array([[[0.5, 1.5, -2.0]]])
    check_same(compile(function)(x), function(x))


# --- layouts ---------------------------------------------------------------------------------------------------------

BASE = np.random.default_rng(0).standard_normal((4, 6, 5))


def readonly(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def unaligned(x):
    memory = np.zeros(x.nbytes + 1, np.uint8)
    found = memory[1:].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


LAYOUTS = {
    "in C order": np.ascontiguousarray,
    "in Fortran order": np.asfortranarray,
    "every second": lambda x: np.repeat(x, 2, 1)[:, ::2],
    "backward": lambda x: x[:, ::-1][:, ::-1].copy()[:, ::-1],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "a view of a view": lambda x: x.transpose(2, 0, 1)[1:, ::-1].transpose(1, 2, 0),
    "read-only": readonly,
    "of another byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "unaligned": unaligned,
    "empty": lambda x: x[:, :0],
    "without axes": lambda x: x[0, 0, 0, ...],
    "a NumPy scalar": lambda x: x[0, 0, 0],
}
FUNCTIONS = {
    "the same": lambda x: x,
    "elements": lambda x: ops.np.sin(x) * 2 + ops.np.exp(x / 3),
    "a view": lambda x: ops.np.transpose(x),
    "views of views": lambda x: ops.np.flip(ops.np.transpose(x))[..., None][..., ::2] + 1,
    "numbers of one sign": lambda x: ops.np.max(ops.np.absolute(x), keepdims=True, initial=0) - x,
    "comparisons": lambda x: ops.np.where(x > 0, x, -x),
    "in one row": lambda x: ops.np.reshape(x, -1) * 3,
    "running totals": lambda x: ops.np.cumsum(x),
}


@pytest.mark.parametrize("dtype", ["float64", "float32", "int16"])
@pytest.mark.parametrize("function", FUNCTIONS)
@together("layout", LAYOUTS)
def test_layouts(layout, function, dtype):
    x = LAYOUTS[layout]((10 * BASE).astype(dtype))
    with quiet():
        compiled = compile(FUNCTIONS[function])
        expected = FUNCTIONS[function](np.array(x, x.dtype.newbyteorder("="), order="C"))
        for found in (compiled(x), compiled(x), compiled(Tensor(x))):
            check_same(found, expected)
            array = np.asarray(found.array if isinstance(found, Tensor) else found)
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert not np.may_share_memory(array, x)


@together("name", ["sum", "prod", "mean", "max", "min", "any", "all", "var", "argmax"])
@together("axis", [None, 0, 1, 2, (0, 1), (0, 2), (1, 2), (2, 0)], ids=str)
@together("dtype", ["float64", "complex64", "int8"])
def test_reductions_have_the_bits_of_numpys(name, axis, dtype):
    if name == "argmax" and isinstance(axis, tuple):
        axis = axis[0]
    values = np.random.default_rng(1).standard_normal((3, 70, 130))
    x = (20 * values + (1j * values[::-1] if dtype == "complex64" else 0)).astype(dtype)
    operator = getattr(ops.np, name)
    for view in (lambda x: x, lambda x: x[:, 3:, 1:], lambda x: x[:, ::2], lambda x: x.transpose(1, 0, 2),
                 lambda x: x.transpose(2, 1, 0), lambda x: x[0, :, None], lambda x: x[:, :1]):
        with quiet():
            expected = operator(view(x), axis)
            check_same(compile(lambda x, view=view: operator(view(x), axis))(x), np.asarray(expected))


SHORT = {
    "sums of two": lambda x, y: x + y,
    "differences from a column": lambda x, y: x - y[..., :1],
    "products with a row": lambda x, y: x * y[:1],
    "quotients of parts": lambda x, y: x[:, 1:] / y[:, :-1],
    "differences of turned ones": lambda x, y: ops.np.transpose(x, (1, 0, 2)) - ops.np.transpose(y, (1, 0, 2)),
    "numbers of another kind": lambda x, y: ops.np.astype(x[:, ::2], np.dtype("f4")),
    "comparisons": lambda x, y: ops.np.where(x[:, 1:] < y[:, :-1], x[:, 1:], 2.0),
    "largest": lambda x, y: ops.np.maximum(x[:, ::2], y[:, ::2]),
    "totals": lambda x, y: ops.np.sum(x, -1),
    "totals of every second": lambda x, y: ops.np.sum(x[:, ::2] * 2, (0, 2)),
    "running totals": lambda x, y: ops.np.cumsum(x, 1) + ops.np.cumsum(y, -1),
    "into a part": lambda x, y: ops.np.setitem(x, (slice(None), slice(1, None)), y[:, 1:]),
}


@together("function", SHORT.values(), ids=SHORT)
@together("n", [1, 2, 3, 7, 8, 9])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int16", "complex128"])
def test_arrays_with_a_short_last_axis(function, n, dtype):
    values = 20 * np.random.default_rng(1).standard_normal((2, 60, 5, n))
    values[0, :8] = np.array([-0.0, 0.0, np.nan, np.inf] * 2)[:, None, None] if dtype[0] in "fc" else 0
    x, y = values.astype(dtype)
    with quiet():
        for one, other in ((x, y), (x.transpose(1, 0, 2).copy().transpose(1, 0, 2), y)):
            check_same(compile(function)(one, other), function(one, other))


@pytest.mark.parametrize("dtype", ["datetime64[s]", "timedelta64[ms]", "S3", "U5", "V7", "float16", "longdouble",
                                   "clongdouble", [("x", "f8"), ("n", "i2")], [("swapped", ">f8")]], ids=str)
def test_elements_that_loops_do_not_know(dtype):
    x = np.arange(6, dtype=np.int64).astype(dtype) if dtype != "V7" and isinstance(dtype, str) else np.zeros(6, dtype)
    if not isinstance(dtype, str):
        x[x.dtype.names[0]] = np.arange(6.0)
    condition = np.arange(6) % 2 == 0
    for function in (lambda x, c: x[:], lambda x, c: ops.np.reshape(x, (2, 3)).T, lambda x, c: x[::-2],
                     lambda x, c: ops.np.where(c, x, ops.np.flip(x)), lambda x, c: ops.np.concatenate([x[1:], x]),
                     lambda x, c: ops.np.stack([x, x[::-1]], 1), lambda x, c: ops.np.take(x, np.array([3, 1]))):
        compiled = compile(function)
        for given in (x, Tensor(x)):
            expected = np.asarray(function(Tensor(x), Tensor(condition)).array)
            found = np.asarray(compiled(given, condition))
            assert found.dtype == expected.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found, expected)


def test_numbers_that_are_objects_to_numpy_have_the_outcome_of_plain_calls():
    with pytest.raises(TypeError, match="expected Tensor, found"):
        compile(ops.np.negative)(2**64)
    assert compile(lambda x: ops.np.clip(x, -np.inf, 1.0))(2**70) == ops.np.clip(2**70, -np.inf, 1.0) == 1.0


def test_a_number_that_is_written_to_is_copied():
    assert compile(lambda x: ops.np.setitem(x, (), 3))(-1) == 3


def test_a_kernel_is_not_overlooked_though_nobody_calls_the_operator():
    # Without a call there is no table, before or after the registration, that could tell them apart.
    op, x = ops.np.cosh.default, np.array([1.0, 2.0])
    graph = make_fx(lambda x: (ops.np.cosh(x),))(x)
    op.install_table(None)
    compile_to_plan(graph)
    op.install_table(None)
    check_same(compile_to_plan(graph)(x), (np.cosh(x),))
    op.install_table(None)
    with pytest.warns(OverrideWarning):
        handle = impl("np::cosh", "CPU", lambda x: x * 3.0)
    with handle:
        check_same(compile_to_plan(graph)(x), (x * 3.0,))
    check_same(compile_to_plan(graph)(x), (np.cosh(x),))


@pytest.mark.parametrize("function", [np.negative, np.conjugate])
def test_functions_that_undo_themselves_are_left_out(function):
    op = getattr(ops.np, function.__name__)
    x = np.array([[1.0 + 2.0j, complex(-0.0, np.nan)], [complex(np.inf, -0.0), 0.0j]])
    compiled = compile(lambda x: (op(op(x)) + 1.0, op(op(x)[::-1]), op(op(op(x)).T)))
    check_same(compiled(x), (function(function(x)) + 1.0, function(function(x)[::-1]), function(x.T)))
    assert compiled.plan(x).count(f"= {function.__name__}(") == 3
