"""Every function of `pydispatch.scipy` against SciPy's: values, gradients, batches, shapes, traces, plans."""

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy

import pydispatch
import pydispatch.scipy
from pydispatch import Tensor, ops
from pydispatch._registry.operators import load_all
from pydispatch.backends import MetaArray
from pydispatch.func import functionalize, grad, vmap
from pydispatch.scipy.pack import FACE, SCIPY
from pydispatch.testing import gradcheck, gradgradcheck, opcheck
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.calls import (
    case_named,
    check_same,
    check_stacked,
    for_each_sample,
    function_of_arrays,
    function_of_tensors,
    is_array,
    is_differentiable,
    mapped,
    quietly,
)
from tests.numpy.samples.sample import Sample
from tests.scipy import families  # noqa: F401  declares all functions
from tests.scipy.samples import SAMPLES
from tests.scipy.test_classes import CALLS as CALLS_OF_CLASSES
from tests.scipy.test_distributions import CALLS as CALLS_OF_POINTS
from tests.scipy.test_distributions import CALLS_OF_PARAMETERS
from tests.scipy.test_spatial import CALLS as CALLS_OF_VECTORS
from tests.scipy.test_statistics import CALLS as CALLS_OF_TESTS
from tests.scipy.test_statistics import OF_RANKS, OTHERS
from tests.together import together

load_all("scipy")

CALLS = [pytest.param(sample, id=repr(sample)) for samples in SAMPLES.values() for sample in samples]
WITH_ARRAYS = [call for call in CALLS if any(map(is_array, tree_leaves(call.values[0][1:3])))]
SMOOTH = [call for call in WITH_ARRAYS if call.values[0].smooth]
BATCHED = [call for call in WITH_ARRAYS if call.values[0].batches]
WITH_SHAPE = [call for call in WITH_ARRAYS if call.values[0].has_shape]
FIRST = {id(call) for call in {call.values[0].name: call for call in reversed(WITH_ARRAYS)}.values()}


def in_depth(calls: list[Any]) -> list[Any]:
    """Return the calls, of which those after the first of a function are for slow tests."""
    return [call if id(call) in FIRST else pytest.param(*call.values, id=call.id, marks=pytest.mark.slow)
            for call in calls]


FIRST_SMOOTH = list({call.values[0].name: call for call in reversed(SMOOTH)}.values())
FULLY_CHECKED = {id(call.values[0]) for call in FIRST_SMOOTH}
"""Samples whose Jacobians are compared element by element. Of others, and of second derivatives, a projection is."""
TAKEN = sorted([name for name, kind in FACE.kinds.items() if kind not in ("refused", "for arrays")])
"""The functions that take Tensors."""
ELSEWHERE = {*[f"stats.{name}.{method}" for name, method in CALLS_OF_POINTS + CALLS_OF_PARAMETERS],
             *[name.partition(" ")[0] for name in CALLS_OF_CLASSES],
             *[f"spatial.distance.{name}" for name, _ in CALLS_OF_VECTORS],
             *[f"stats.{name}" for name, *_ in CALLS_OF_TESTS + OF_RANKS], *[f"stats.{name}" for name in OTHERS]}
"""Those that `test_classes`, `test_distributions`, `test_spatial` and `test_statistics` call."""


def ours(name: str) -> Callable[..., Any]:
    return operator.attrgetter(name)(pydispatch.scipy)


def scipys(name: str) -> Callable[..., Any]:
    return operator.attrgetter(name)(scipy)


def examples(x: np.ndarray) -> list[np.ndarray]:
    """Return three arrays like this one: positive, triangular or definite where it is."""
    return [x * factor if is_differentiable(x) else x.copy() for factor in (1.0, 0.95, 0.9)]


@together("name", TAKEN)
def test_every_function_has_a_sample(name):
    if name in ELSEWHERE and name not in SAMPLES:
        return
    assert name in SAMPLES
    assert FACE.kinds[name] == "constant" or any(each.smooth for each in SAMPLES[name])


def tells_parameters(name: str) -> bool:
    """Return whether the parameters are known: universal functions of older versions of NumPy hide them."""
    try:
        return bool(inspect.signature(scipys(name)))
    except ValueError:
        return False


@together("name", list(filter(tells_parameters, TAKEN)))
def test_parameters_are_scipys(name):
    theirs = inspect.signature(scipys(name)).parameters.values()
    assert [(each.name, each.kind, each.default) for each in inspect.signature(ours(name)).parameters.values()] == [
        (each.name, each.kind, each.default) for each in theirs]


@for_each_sample(CALLS)
def test_arrays_go_in_and_out(sample):
    expected = quietly(scipys(sample.name), sample.args, sample.kwargs)
    for function in (ours(sample.name), ours(sample.name).on_tensors):
        found = quietly(function, sample.args, sample.kwargs)
        assert not any(isinstance(leaf, Tensor) for leaf in tree_leaves(found))
        check_same(found, expected, sample.tolerance)


@for_each_sample(WITH_ARRAYS)
def test_tensors_go_in_and_out(sample):
    args, kwargs = mapped(Tensor, (sample.args, sample.kwargs))
    expected = quietly(scipys(sample.name), sample.args, sample.kwargs)
    found = quietly(ours(sample.name), args, kwargs)
    assert all(isinstance(leaf, Tensor) for leaf, other in
               zip(tree_leaves(found), tree_leaves(expected), strict=True) if is_array(other))
    check_same(tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf, found), expected,
               sample.tolerance)


@for_each_sample([call for call in WITH_ARRAYS if isinstance(scipys(call.values[0].name), np.ufunc)])
def test_universal_functions_of_scipy_take_tensors(sample):
    found = quietly(scipys(sample.name), *mapped(Tensor, (sample.args, sample.kwargs)))
    assert all(isinstance(leaf, Tensor) for leaf in tree_leaves(found))
    check_same(mapped_tensors(found), quietly(scipys(sample.name), sample.args, sample.kwargs), 0)


def in_single(x: np.ndarray) -> np.ndarray:
    """Return the array with floating-point numbers in single precision."""
    return x.astype(np.result_type(np.float32, x.dtype) if x.dtype.kind == "c" else np.float32
                    ) if is_differentiable(x) else x


@for_each_sample(WITH_ARRAYS)
def test_single_precision_is_scipys(sample):
    args, kwargs = mapped(in_single, (sample.args, sample.kwargs))
    expected = quietly(scipys(sample.name), args, kwargs)
    found = quietly(ours(sample.name), *mapped(Tensor, (args, kwargs)))
    check_same(tree_map(np.asarray, mapped_tensors(found)), tree_map(np.asarray, expected), max(sample.tolerance, 2e-5))


def mapped_tensors(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf, tree)


@for_each_sample(SMOOTH)
def test_gradients_are_those_of_finite_differences(sample):
    function, tensors = function_of_tensors(ours(sample.name), sample)
    gradcheck(function, tensors, check_forward_ad=True, fast_mode=id(sample) not in FULLY_CHECKED)
    gradgradcheck(function, tensors, fast_mode=True)


@for_each_sample(BATCHED)
def test_vmap_is_a_loop(sample):
    function, arrays = function_of_arrays(ours(sample.name), sample)
    every = range(len(arrays))
    for batched in [{i} for i in every] + [set(every)] * (len(arrays) > 1):
        calls = [[examples(x)[k] if i in batched else x for i, x in enumerate(arrays)] for k in range(3)]
        stacked = [np.stack(examples(x)) if i in batched else x for i, x in enumerate(arrays)]
        in_dims = tuple([0 if i in batched else None for i in every])
        found = quietly(vmap(function, in_dims=in_dims), stacked, {})
        check_stacked(found, [quietly(function, call, {}) for call in calls], sample.tolerance)


@for_each_sample(in_depth(BATCHED))
def test_vmap_of_vmap_is_a_loop_of_loops(sample):
    function, (first, *others) = function_of_arrays(ours(sample.name), sample)
    alone = (None,) * len(others)
    rows = [examples(first), examples(examples(first)[1])]
    grid = np.stack([np.stack(row, -1) for row in rows])
    found = quietly(vmap(vmap(function, in_dims=(-1, *alone)), in_dims=(0, *alone)), (grid, *others), {})
    expected = [[quietly(function, (each, *others), {}) for each in row] for row in rows]
    for i, leaf in enumerate(found):
        loops = np.stack([np.stack([np.asarray(each[i]) for each in row]) for row in expected])
        check_same(leaf, loops, max(sample.tolerance, 1e-12))


@for_each_sample(WITH_SHAPE)
def test_meta_arrays_have_the_shape_and_dtype_of_the_result(sample):
    args, kwargs = mapped(lambda x: MetaArray(x.shape, x.dtype), (sample.args, sample.kwargs))
    expected = tree_leaves(quietly(scipys(sample.name), sample.args, sample.kwargs))
    found = tree_leaves(ours(sample.name)(*args, **kwargs))
    assert [(leaf.shape, leaf.dtype) for leaf in found if hasattr(leaf, "dtype")] == [
        (np.shape(leaf), np.asarray(leaf).dtype) for leaf in expected if hasattr(leaf, "dtype")]


TRANSFORMS = {
    "make_fx": lambda function, arrays: quietly(make_fx(function), arrays, {}),
    "functionalize": lambda function, arrays: functionalize(function),
    "compile": lambda function, arrays: pydispatch.compile(function),
}


@for_each_sample(in_depth(WITH_SHAPE))
def test_traced_functionalized_and_compiled_is_eager(sample):
    function, arrays = function_of_arrays(ours(sample.name), sample)
    others = [examples(x)[1] for x in arrays]
    expected = [np.asarray(leaf) for leaf in quietly(function, others, {})]
    for name, transform in TRANSFORMS.items():
        with case_named(name):
            found = quietly(transform(function, arrays), others, {})
            check_same([np.asarray(leaf) for leaf in found], expected, max(sample.tolerance, 1e-12))


@pytest.mark.parametrize("sample", [call for call in FIRST_SMOOTH if call.values[0].has_shape])
def test_compiled_gradient_is_the_gradient(sample):
    function, arrays = function_of_arrays(ours(sample.name), sample)
    places = tuple([i for i, x in enumerate(arrays) if is_differentiable(x)])

    def loss(*values: Any) -> Any:
        return sum(ops.np.sum(ops.np.square(ops.np.absolute(leaf))) for leaf in function(*values)
                   if leaf.dtype.kind in "fc")

    expected = quietly(grad(loss, places), arrays, {})
    check_same(quietly(pydispatch.compile(grad(loss, places)), arrays, {}), expected, 1e-9)


def call_of_operator(name: str) -> tuple[Any, Sample]:
    """Return an operator, and the first sample of its function."""
    family, _, base = name.partition("_")
    return getattr(ops.scipy, name), SAMPLES[f"{family}.{base}"][0]


WITH_FUNCTION = [name for name in SCIPY.of_families if name.replace("_", ".", 1) in FACE.functions]
"""Operators that a function stands for; the others belong to formulas."""


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_FUNCTION)
def test_operators_pass_opcheck(name):
    op, sample = call_of_operator(name)
    args, kwargs = mapped(lambda x: Tensor(x.copy(), requires_grad=True) if is_differentiable(x) else x,
                          (sample.args, sample.kwargs))
    outcome = opcheck(op, args, kwargs)
    assert set(outcome.values()) == {"SUCCESS"}


@together("name", sorted(SCIPY.of_families))
def test_no_operator_loops_over_a_batch(name):
    assert SCIPY.of_families[name].vmap is not None
