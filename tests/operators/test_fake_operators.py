"""Every operator of the library without data: the shapes, dtypes, errors and gradients' shapes of a run with data."""

import warnings
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.autograd import grad
from pydispatch.exceptions import DataDependentError
from pydispatch.func import jvp
from pydispatch.operators import VARIANTS
from pydispatch.tracing import FakeMode, FakeTensor
from pydispatch.tree import tree_leaves, tree_map
from tests.comparing import to_tensor
from tests.operators import oracles
from tests.operators.samples import Sample, functional_names, samples, schema_of

NAMES = functional_names()
DATA_DEPENDENT = {
    "item": [lambda x, mask: (x[0, 0],)],
    "index": [lambda x, mask: (x, mask), lambda x, mask: (x, (slice(None), mask[0]))],
    "index_put": [lambda x, mask: (x, mask, ops.np.ravel(x))],
}
"""The operators for which shapes are not enough: the calls, with masks without data say, that are refused."""


def some(samples: list[Sample]) -> list[Sample]:
    """Return samples of all sorts, where each is tried in many ways."""
    return samples[::5]


def fake_call(mode: FakeMode, name: str, sample: Sample) -> Sample:
    """Return the call on fakes. Masks in a key stay arrays, since the shape of the result depends on their values."""
    names = [argument.name for argument in schema_of(name).arguments]

    def faked(leaf: Any) -> Any:
        return mode.from_array(leaf) if isinstance(leaf, np.ndarray) else leaf

    def faked_argument(argument: str, value: Any) -> Any:
        if argument == "key":
            return tree_map(lambda leaf: leaf if oracles.unless_mask(leaf) is leaf else faked(leaf), value)
        return tree_map(faked, value)

    args = tuple(faked_argument(*pair) for pair in zip(names, sample.args, strict=False))
    return Sample(args, {key: faked_argument(key, value) for key, value in sample.kwargs.items()})


def twice(mode: FakeMode, operator: Any, fakes: Sample) -> Any:
    """Return the outcome of a call. The second time, which may be answered from memory, is to be like the first."""
    with mode:
        first, second = oracles.outcome(operator, *fakes), oracles.outcome(operator, *fakes)
    if oracles.is_error(first):
        assert second is first
    else:
        pairs = zip(tree_leaves(first), tree_leaves(second), strict=True)
        assert all((one.shape, one.dtype) == (other.shape, other.dtype) for one, other in pairs), (operator, fakes)
    return first


def listed(result: Any) -> Any:
    return list(result) if isinstance(result, tuple) else result


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_dtypes(name):
    operator, mode = getattr(ops.np, name), FakeMode(allow_real_inputs=True)
    for sample in samples(name):
        expected = oracles.outcome(operator, *sample)
        found = twice(mode, operator, fake_call(mode, name, sample))
        if oracles.is_error(expected) and not oracles.is_error(found) and (name, expected) in oracles.ABOUT_VALUES:
            continue
        oracles.check(listed(found), listed(expected), (name, sample), values=False)
        assert oracles.is_error(found) or all(type(leaf) is FakeTensor for leaf in tree_leaves(found)), (name, sample)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_dtypes_outside_of_the_mode(name):
    operator, mode = getattr(ops.np, name), FakeMode(allow_real_inputs=True)
    for sample in some(samples(name)):
        fakes = fake_call(mode, name, sample)
        if not any(type(leaf) is FakeTensor for leaf in tree_leaves(tuple(fakes))):
            continue
        with mode:
            expected = oracles.outcome(operator, *fakes)
        found = oracles.outcome(operator, *fakes)
        assert oracles.is_error(found) == oracles.is_error(expected), (name, sample)
        assert oracles.is_error(found) or [(x.shape, x.dtype, x.fake_mode) for x in tree_leaves(found)] == [
            (x.shape, x.dtype, mode) for x in tree_leaves(expected)], (name, sample)


@pytest.mark.parametrize("name", oracles.WITH_OUT)
def test_out(name):
    operator, mode = getattr(ops.np, name), FakeMode(allow_real_inputs=True)
    for sample in some(samples(name)):
        result = oracles.outcome(operator, *sample)
        for out in [] if oracles.is_error(result) else oracles.outs_for(result):
            target = oracles.copied(out)
            expected = oracles.outcome(operator, sample.args, {**sample.kwargs, "out": target})
            fakes, fake_out = fake_call(mode, name, sample), mode.from_array(out)
            found = twice(mode, operator, Sample(fakes.args, {**fakes.kwargs, "out": fake_out}))
            what = (name, sample, out)
            assert found is fake_out if expected is target else oracles.is_error(found), what
            assert (fake_out.shape, fake_out.dtype) == (out.shape, out.dtype), what


@pytest.mark.parametrize("name", oracles.IN_PLACE)
def test_in_place(name):
    operator, mode = getattr(ops.np, VARIANTS[name].in_place), FakeMode(allow_real_inputs=True)
    for sample in samples(name):
        fakes = fake_call(mode, name, sample)
        target = fakes.args[0]
        if type(target) is not FakeTensor:
            continue
        described = target.shape, target.dtype
        expected = oracles.outcome(operator, (oracles.copied(sample.args[0]), *sample.args[1:]), sample.kwargs)
        found = twice(mode, operator, fakes)
        if oracles.is_error(expected) and not oracles.is_error(found) and (name, expected) in oracles.ABOUT_VALUES:
            continue
        if oracles.is_error(expected):
            oracles.check(found, expected, (name, sample))
        else:
            assert found is target, (name, sample)
        assert (target.shape, target.dtype) == described, (name, sample)


@pytest.mark.parametrize("name", NAMES)
def test_views_share_a_version(name):
    operator, mode = getattr(ops.np, name), FakeMode(allow_real_inputs=True)
    if not any(result.alias for result in schema_of(name).returns):
        return
    for sample in samples(name):
        tensors, fakes = tree_map(to_tensor, tuple(sample)), fake_call(mode, name, sample)
        results, found = oracles.outcome(operator, *tensors), oracles.outcome(operator, *fakes)
        if oracles.is_error(results) or not isinstance(sample.args[0], np.ndarray):
            continue
        for real, fake in zip(tree_leaves(results), tree_leaves(found), strict=True):
            if np.shares_memory(real.array, sample.args[0]):
                before = fakes.args[0]._version
                fake[...] = 0
                assert fakes.args[0]._version == before + 1, (name, sample)


def faked(case: oracles.Case) -> tuple[FakeMode, oracles.Case]:
    """Return the case on fakes, but for masks with data, which are let in where there are any."""
    mode = FakeMode(allow_real_inputs=any(
        isinstance(leaf, np.ndarray) and oracles.unless_mask(leaf) is leaf for leaf in case.leaves))
    leaves = [leaf if i in case.places or oracles.unless_mask(leaf) is leaf else mode.from_array(leaf)
              for i, leaf in enumerate(case.leaves)]
    return mode, case._replace(leaves=leaves)


def gradients(case: oracles.Case, values: Any) -> Any:
    """Return the gradient of a sum of all results by each value, and None where there is none."""
    results = case.ours(*values)
    total = sum(ops.np.sum(ops.np.real(result)) for result in results if result.requires_grad)
    return grad(total, values, allow_unused=True)


@pytest.mark.parametrize("name", oracles.DIFFERENTIABLE)
def test_gradients(name):
    n_found = 0
    for case in oracles.cases(name):
        mode, fake_case = faked(case)
        tensors = [Tensor(np.array(value), requires_grad=True) for value in case.values]
        expected = oracles.outcome(gradients, (case, tensors), {})
        if oracles.is_error(expected):
            continue
        with mode, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = gradients(fake_case, [mode.from_array(tensor) for tensor in tensors])
        n_found += 1
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None), case
            assert one is None or type(one) is FakeTensor, case
            assert one is None or (one.shape, one.dtype) == (other.shape, other.dtype), case
    assert n_found


@pytest.mark.parametrize("name", oracles.DIFFERENTIABLE)
def test_tangents(name):
    n_found = 0
    for case in oracles.cases(name):
        mode, fake_case = faked(case)
        values = [np.array(value) for value in case.values]
        expected = oracles.outcome(jvp, (case.ours, tuple(values), tuple(values)), {})
        if oracles.is_error(expected):
            continue
        fakes = tuple(mode.from_array(value) for value in values)
        with mode, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = jvp(fake_case.ours, fakes, fakes)
        n_found += 1
        for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            assert type(one) is FakeTensor, case
            assert (one.shape, one.dtype) == (other.shape, other.dtype), case
    assert n_found


@pytest.mark.parametrize(("name", "place"), [
    (name, place) for name, calls in DATA_DEPENDENT.items() for place in range(len(calls))])
def test_what_depends_on_data_is_refused(name, place):
    mode = FakeMode()
    x, mask = mode.from_array(np.ones((3, 4))), mode.from_array(np.ones((3, 4), bool))
    pattern = rf"^(operator np::)?{name.split('_')[0]}(.|\n)*np\.where\("
    with mode, pytest.raises(DataDependentError, match=pattern):
        getattr(ops.np, name)(*DATA_DEPENDENT[name][place](x, mask))
