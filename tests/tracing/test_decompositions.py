"""Decompositions: each one gives what its operator gives, or declines. The table of them. What make_fx does with it."""

import warnings

import numpy as np
import pytest

from pydispatch import _sites, ops
from pydispatch._core import Tensor, is_array
from pydispatch._registry.operators import find_or_raise, schema_of
from pydispatch.backends.providing import CALLED
from pydispatch.exceptions import DispatchTypeError, RegistrationError
from pydispatch.modes import DispatchMode
from pydispatch.operators.declare import declaration_of
from pydispatch.tracing.decompositions import _table, decomposition_of, get_decompositions, register_decomposition
from pydispatch.tree import tree_leaves, tree_map
from tests.operators.samples import samples

# Private, since the public `get_decompositions` neither lists nor removes.
NAMES = sorted(str(op.name).removeprefix("np::") for op in _table)


def answers(name):
    """Yield (sample, result of the operator, result of its decomposition) for each call that both understand."""
    op = find_or_raise(f"np::{name}")
    decomposition = get_decompositions([op])[op]
    for sample in samples(name):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                expected = op(*sample.args, **sample.kwargs)
            except (TypeError, ValueError, IndexError, ArithmeticError):
                continue        # what the decomposition does with an error is its own affair
            args, kwargs = op.strip_defaults(op.bind(sample.args, sample.kwargs))
            yield sample, expected, decomposition(*args, **kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_is_its_operator(name):
    taken = 0
    for sample, expected, found in answers(name):
        if found is NotImplemented:
            continue
        taken += 1
        for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            assert is_array(one), sample
            assert one.dtype == other.dtype, sample
            assert one.shape == other.shape, sample
            finite = np.isfinite(other)     # which infinity or nan it is otherwise is a matter of formulas
            np.testing.assert_array_equal(np.isfinite(one), finite)
            np.testing.assert_allclose(np.where(finite, one, 0), np.where(finite, other, 0), rtol=2e-5)
    assert taken >= 3


class Recording(DispatchMode):
    def __init__(self):
        super().__init__()
        self.names = set()

    def __pydispatch__(self, func, types, args, kwargs):
        self.names.add(str(func.name).removeprefix("np::"))
        return func(*args, **kwargs)


def as_of_a_backend(leaf):
    """Return a Tensor in C order: results in other orders are NumPy's alone."""
    return Tensor(leaf.copy("C")) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" else leaf


def pieces_of(name):
    op = find_or_raise(f"np::{name}")
    return [each for each in (decomposition_of(op), declaration_of(op).differentiated_as) if each is not None]


def samples_of_real_numbers(name):
    """Return arguments of the operator, of a function of matrices, the same matrix for each."""
    if name.startswith("linalg_"):
        arguments = schema_of(find_or_raise(f"np::{name}")).arguments
        return [((np.array([[2.0, 1.0], [1.0, 3.0]]),) * sum(not argument.has_default for argument in arguments), {})]
    return [(sample.args, sample.kwargs) for sample in samples(name)
            if not any(is_array(leaf) and leaf.dtype.kind == "c" for leaf in tree_leaves((sample.args, sample.kwargs)))]


def test_what_decompositions_call_is_told_of_each():
    found = {name: decomposition_of(find_or_raise(f"np::{name}")) for name in NAMES}
    assert {name for name, each in found.items() if "f" in getattr(each, "kinds", "f")} <= set(CALLED)
    assert all(len(pieces_of(name)) == 1 for name in CALLED)


@pytest.mark.parametrize("name", list(CALLED))
def test_decompositions_call_what_is_told(name):
    op, called = find_or_raise(f"np::{name}"), set()
    function, = pieces_of(name)
    for sample in samples_of_real_numbers(name):
        with warnings.catch_warnings(), np.errstate(all="ignore"), Recording() as recording:
            warnings.simplefilter("ignore")
            try:
                args, kwargs = tree_map(as_of_a_backend, op.strip_defaults(op.bind(*sample)))
                function(*args, **kwargs)
            except (TypeError, ValueError, IndexError, ArithmeticError):
                continue
            called |= recording.names
    assert called == set(CALLED[name].split())


@pytest.mark.parametrize("name", ["swapaxes", "flip", "ravel", "moveaxis", "expand_dims", "squeeze"])
def test_view_is_decomposed_to_views(name):
    x = np.arange(6.0).reshape(2, 3)
    args = {"swapaxes": (x, 0, 1), "flip": (x,), "ravel": (x,), "moveaxis": (x, (0,), (1,)),
            "expand_dims": (x, (1,)), "squeeze": (x[:, None],)}[name]
    op = find_or_raise(f"np::{name}")
    assert np.shares_memory(get_decompositions([op])[op](*args), x)


DECLINED = {
    "square of ints": ("square", (np.arange(3),), {}),
    "square with a dtype": ("square", (np.arange(3.0),), {"dtype": np.dtype("f4")}),
    "number for an array": ("square", (2.0,), {}),
    "absolute of reals": ("absolute", (np.arange(3.0),), {}),
    "hypot, float16 and complex": ("hypot", (np.ones(2), np.ones(2, complex)), {}),
    "mean with a mask": ("mean", (np.ones(2),), {"where": np.array([True, False])}),
    "mean of float16": ("mean", (np.ones(2, "f2"),), {}),
    "mean of nothing": ("mean", (np.ones(0),), {}),
    "mean to ints": ("mean", (np.ones(2), None, np.dtype(int)), {}),
    "var with a dtype": ("var", (np.ones(2),), {"dtype": np.dtype("f4")}),
    "clip without limits": ("clip", (np.ones(2),), {}),
    "clip with two lower limits": ("clip", (np.ones(2), 0), {"min": 0}),
    "stack of unlike shapes": ("stack", ((np.ones(2), np.ones(3)),), {}),
    "stack of numbers": ("stack", ((1.0, 2.0),), {}),
}


@pytest.mark.parametrize(("name", "args", "kwargs"), DECLINED.values(), ids=DECLINED)
def test_declines(name, args, kwargs):
    op = find_or_raise(f"np::{name}")
    assert get_decompositions([op])[op](*args, **kwargs) is NotImplemented


# --- the table -------------------------------------------------------------------------------------------------------


def test_packet_stands_for_its_overloads():
    assert list(get_decompositions([ops.np.square])) == [ops.np.square.default]
    assert get_decompositions([ops.np.square]) == get_decompositions([ops.np.square.default])


def test_several_at_once():
    assert list(get_decompositions([ops.np.std, ops.np.var.default, ops.np.mean])) == [
        ops.np.std.default, ops.np.var.default, ops.np.mean.default]


def test_table_is_a_copy():
    get_decompositions([ops.np.square]).clear()
    assert ops.np.square.default in get_decompositions([ops.np.square])


@pytest.mark.parametrize("operator", [ops.np.sin, ops.np.sin.default, ops.np.square.out], ids=str)
def test_without_a_decomposition(operator):
    with pytest.raises(DispatchTypeError, match=r"^np::\w+(\.out)?: no decomposition is registered\nregister one"):
        get_decompositions([operator])


def test_no_operator():
    with pytest.raises(DispatchTypeError, match=r"<ufunc 'sin'> is not an operator\npass ops.np.square"):
        get_decompositions([np.sin])


@pytest.fixture
def negative():
    """Provide the overload np::negative, whose decomposition is gone after the test."""
    yield ops.np.negative.default
    _table.pop(ops.np.negative.default, None)
    _sites._sites.pop(("decomposition of", ops.np.negative.default), None)     # a cache of plans would not be used


def test_register(negative):
    def formula(x):
        return 0 - x

    assert register_decomposition(negative, formula) is formula
    assert get_decompositions([ops.np.negative]) == {negative: formula}


def test_register_as_decorator(negative):
    @register_decomposition(negative)
    def formula(x):
        return 0 - x

    assert formula(2) == -2
    assert get_decompositions([negative]) == {negative: formula}


def test_register_twice():
    before = get_decompositions([ops.np.square])
    with pytest.raises(RegistrationError, match="np::square: a decomposition is already registered\npass another one"):
        register_decomposition(ops.np.square.default, lambda x: x)
    assert get_decompositions([ops.np.square]) == before


def test_register_for_a_packet():
    with pytest.raises(DispatchTypeError, match=r"expected an OpOverload\npass the overload: ops.np.square.default"):
        register_decomposition(ops.np.square, lambda x: x)
