"""Every operator of the library under `vmap` against a loop over the examples, over sample calls.

An operator that is added to the library is covered by its samples. Every non-empty set of the arrays of a call is
mapped once, along the first axis, the last one, or one counted from the end. The others are the same for all examples.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import combinations, count, islice
from typing import Any, NamedTuple

import numpy as np
import pytest

from pydispatch import ops
from pydispatch._core import BatchingRule, Signature
from pydispatch.backends.meta import MetaArray
from pydispatch.func import functionalize, hessian, jacfwd, jacrev, jvp, vjp, vmap
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten
from tests.operators.oracles import (
    DIFFERENTIABLE,
    UNDEFINED,
    Case,
    agreeing,
    assert_near,
    cases,
    is_error,
    is_single,
    likewise,
    numpy_in_place,
    numpy_out,
    outcome,
    outs_for,
    precise_cases,
    quiet,
    weights,
)
from tests.operators.samples import Sample, functional_names, numpy_function, samples, schema_of
from tests.together import together

NAMES = [
    name for name in functional_names() if any(argument.type.contains_arrays for argument in schema_of(name).arguments)
    and "random" not in DECLARATIONS[name].tags
]
WITH_OUT = [name for name in NAMES if VARIANTS[name].out]
IN_PLACE = [name for name in NAMES if VARIANTS[name].in_place]
SMOOTH = [name for name in NAMES if name in DIFFERENTIABLE]
EXACT = {"view", "rearrangement", "join", "indexing", "creation", "conversion", "predicate"}
"""The categories whose results are those of the loop to the bit."""


class Mapped(NamedTuple):
    """A call with some of its arrays mapped: the leaves of its arguments, and the axis of each along which they are."""

    name: str
    leaves: tuple[Any, ...]
    spec: Any
    dims: tuple[int | None, ...]
    n: int

    @property
    def in_dims(self) -> tuple[int, ...]:
        return tuple([dim for dim in self.dims if dim is not None])

    @property
    def values(self) -> list[np.ndarray]:
        return [leaf for leaf, dim in zip(self.leaves, self.dims, strict=True) if dim is not None]

    def call(self, function: Callable[..., Any], values: Any) -> Any:
        """Return the call with `values` in place of what is mapped."""
        values = iter(values)
        args, kwargs = self.sample([leaf if dim is None else next(values)
                                    for leaf, dim in zip(self.leaves, self.dims, strict=True)])
        return function(*args, **kwargs)

    def batched(self, operator: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call as a function of what is mapped."""
        return vmap(lambda *values: self.call(operator, values), in_dims=self.in_dims)

    def sample(self, leaves: list[Any]) -> Sample:
        return Sample(*tree_unflatten(leaves, self.spec))

    def example(self, i: int) -> Sample:
        return self.sample([leaf if dim is None else np.asarray(np.take(leaf, i, dim))
                            for leaf, dim in zip(self.leaves, self.dims, strict=True)])

    def __repr__(self) -> str:
        args, kwargs = self.sample(list(self.leaves))
        return f"{self.name}(*{args}, **{kwargs}) mapped along {self.dims}"


def is_mappable(name: str, leaf: Any) -> bool:
    """Return whether a value can be mapped: arrays can. Masks and numbers in a basic key cannot."""
    if not isinstance(leaf, (np.ndarray, np.generic)) or (name == "getitem" and isinstance(leaf, np.generic)):
        return False
    return leaf.dtype.kind != "b" or not name.startswith("index")


def examples_like(leaf: Any, n: int) -> np.ndarray:
    """Stack `n` arrays with the values of this one in other orders. Ints of one element go down to -1."""
    values = np.asarray(leaf)
    if values.dtype.kind == "b" and values.size == 1:
        return np.stack([values ^ bool(i % 2) for i in range(n)])
    if values.size == 1:
        kind = values.dtype.kind
        turned = [values - i if kind in "fc" else np.maximum(values.astype(int) - i, -(kind == "i")) for i in range(n)]
        return np.stack(turned).astype(values.dtype)
    return values.ravel()[turned_places(values.size, n)].reshape(n, *values.shape)


@cache
def turned_places(size: int, n: int) -> np.ndarray:
    """Return the places of `size` elements in a row, and in each further row rotated by one more."""
    return (np.arange(size) - np.arange(n)[:, None]) % size


def axes_to_map(ndim: int) -> list[int]:
    """Return the first and the last axis of an array of `ndim` axes, counted from both ends."""
    return [0, -1, -ndim - 1, ndim]


def subsets(places: list[int]) -> Iterator[tuple[int, ...]]:
    return (chosen for size in range(1, len(places) + 1) for chosen in combinations(places, size))


def mapped_calls(name: str, found: Any, step: int = 1) -> Iterator[Mapped]:
    return (make() for make in islice(mappings(name, found), 0, None, step))


def mappings(name: str, found: Any) -> Iterator[Callable[[], Mapped]]:
    """Yield a function that makes each call. Making all calls takes longer than finding them."""
    turn = count()
    for sample in found:
        leaves, spec = tree_flatten(tuple(sample))
        places = [i for i, leaf in enumerate(leaves) if is_mappable(name, leaf)]
        for chosen in subsets(places):
            yield partial(mapped_call, name, leaves, spec, chosen, next(turn))


def mapped_call(name: str, leaves: list[Any], spec: Any, chosen: Any, turn: int) -> Mapped:
    """Return the call with the chosen leaves mapped. Two examples or three, which are lengths of axes in samples too.
    """
    n = 2 + turn % 2
    values, dims = list(leaves), [None] * len(leaves)
    for place in chosen:
        dims[place] = axes_to_map(np.ndim(leaves[place]))[(turn + place) % 4]
        values[place] = np.moveaxis(examples_like(leaves[place], n), 0, dims[place])
    return Mapped(name, tuple(values), spec, tuple(dims), n)


def stacked(results: list[Any]) -> Any:
    """Return the results of examples as those of a batch: an array, a list of them, or the class of the first error."""
    errors = [result for result in results if is_error(result)]
    if errors:
        return errors[0]
    if isinstance(results[0], list):
        return [np.stack(parts) for parts in zip(*results, strict=True)]
    return np.stack(results)


def looped(call: Mapped) -> Any:
    return stacked([outcome(numpy_function(call.name), *call.example(i)) for i in range(call.n)])


def tolerance(name: str, dtype: Any) -> float:
    if dtype.kind not in "fc" or not EXACT.isdisjoint(DECLARATIONS[name].tags):
        return 0
    return 1e-12 if dtype in (np.float64, np.complex128) else 1e-5


def assert_same(found: Any, expected: Any, call: Any) -> None:
    """Assert the same error, or the same arrays in values, dtype and shape."""
    if is_error(found) or is_error(expected):
        agrees = is_error(found) and is_error(expected) and issubclass(found, agreeing(expected))
        assert agrees, f"{call}: found {found!r}, expected {expected!r}"
    elif isinstance(expected, list):
        assert len(found) == len(expected), call
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, call)
    else:
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), (call, found, expected)
        near = tolerance(call.name, expected.dtype)
        same = call.name in UNDEFINED or np.allclose(found, expected, rtol=near, atol=near, equal_nan=True)
        assert same, (call, found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_is_a_loop(name):
    for call in mapped_calls(name, samples(name)):
        assert_same(outcome(call.batched(getattr(ops.np, name)), call.values, {}), looped(call), call)


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_arrays_to_map(name):
    # Otherwise the tests above would check nothing.
    assert any(not is_error(looped(call)) for call in mapped_calls(name, samples(name)))


@together("name", [name for name in DECLARATIONS if "random" not in DECLARATIONS[name].tags])
def test_every_operator_says_what_a_batch_of_it_is(name):
    takes_arrays = any(argument.type.contains_arrays for argument in schema_of(name).arguments)
    assert (DECLARATIONS[name].vmap is not None) == takes_arrays
    assert DECLARATIONS[name].vmap is DECLARATIONS[VARIANTS[name].functional].vmap


def error_of(function: Callable[..., Any], args: Any, kwargs: Any) -> Exception | None:
    try:
        with quiet():
            function(*args, **kwargs)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_those_of_an_example(name):
    operator = getattr(ops.np, name)
    for call in mapped_calls(name, samples(name), 5):
        found = error_of(call.batched(operator), call.values, {})
        errors = [error_of(operator, *call.example(i)) for i in range(call.n)]
        expected = next((error for error in errors if error is not None), None)
        assert (type(found), str(found)) == (type(expected), str(expected)), call


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_no_examples(name):
    operator = getattr(ops.np, name)
    for call in mapped_calls(name, samples(name), 5):
        expected = looped(call)
        if not is_error(expected):
            empty = [value.take([], dim) for value, dim in zip(call.values, call.in_dims, strict=True)]
            found = outcome(call.batched(operator), empty, {})
            for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
                assert (one.shape, one.dtype) == ((0, *other.shape[1:]), other.dtype), call


@pytest.mark.parametrize("name", NAMES)
def test_batches_without_data(name):
    operator = getattr(ops.np, name)
    for call in mapped_calls(name, samples(name), 5):
        expected = looped(call)
        if not is_error(expected):
            metas = [MetaArray(value.shape, value.dtype) for value in call.values]
            found = outcome(call.batched(operator), metas, {})
            for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
                assert isinstance(one, MetaArray)
                assert (one.shape, one.dtype) == (other.shape, other.dtype), call


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_traced_and_functionalized(name):
    for call in mapped_calls(name, samples(name), 23):
        function = call.batched(getattr(ops.np, name))
        expected = outcome(function, call.values, {})
        if is_error(expected):
            continue
        graph = outcome(make_fx(lambda *values, f=function: f(*values)), call.values, {})
        for again in (graph, functionalize(function)):
            for one, other in zip(tree_leaves(outcome(again, call.values, {})), tree_leaves(expected), strict=True):
                assert_same(one, other, call)


# --- two interpreters
# ------------------------------------------------------------------------------------------------------

LEVELS = ((0, 1), (0,), (1,))
"""At which interpreters, the outer one being 0, an array is mapped."""


class MappedTwice(NamedTuple):
    """A call whose arrays are mapped by one of two interpreters, or by both: axes first, the outer one's first."""

    name: str
    leaves: tuple[Any, ...]
    spec: Any
    interpreters: tuple[tuple[int, ...], ...]     # of each leaf

    def run(self, function: Callable[..., Any]) -> Any:
        return self.inner(function, self.leaves, 0)

    def inner(self, function: Callable[..., Any], leaves: Any, interpreter: int) -> Any:
        """Return the call at an interpreter and those inside of it."""
        if interpreter == 2:
            args, kwargs = tree_unflatten(list(leaves), self.spec)
            return function(*args, **kwargs)
        places = [i for i, interpreters in enumerate(self.interpreters) if interpreter in interpreters]

        def example(*values: Any) -> Any:
            found = list(leaves)
            for place, value in zip(places, values, strict=True):
                found[place] = value
            return self.inner(function, found, interpreter + 1)

        return vmap(example)(*[leaves[i] for i in places])

    def looped(self) -> Any:
        return stacked([stacked([
            outcome(numpy_function(self.name), *tree_unflatten([
                self.example(leaf, interpreters, (i, j))
                for leaf, interpreters in zip(self.leaves, self.interpreters, strict=True)
            ], self.spec)) for j in range(2)]) for i in range(3)])

    def example(self, leaf: Any, interpreters: tuple[int, ...], position: tuple[int, int]) -> Any:
        return leaf[tuple([position[interpreter] for interpreter in interpreters])] if interpreters else leaf


def mapped_twice(name: str, sample: Sample, turn: int) -> MappedTwice | None:
    leaves, spec = tree_flatten(tuple(sample))
    places = [i for i, leaf in enumerate(leaves) if is_mappable(name, leaf)]
    if not places:
        return None
    interpreters: list[tuple[int, ...]] = [()] * len(leaves)
    for i, place in enumerate(places):
        interpreters[place] = LEVELS[(turn + i) % 3] if len(places) > 1 else (0, 1)
        sizes = [(3, 2)[interpreter] for interpreter in interpreters[place]]
        leaves[place] = examples_like(leaves[place], int(np.prod(sizes))).reshape((*sizes, *np.shape(leaves[place])))
    return MappedTwice(name, tuple(leaves), spec, tuple(interpreters))


def check_twice(name: str, step: int) -> None:
    for turn, sample in enumerate(samples(name)[::step]):
        call = mapped_twice(name, sample, turn)
        if call is not None:
            assert_same(outcome(call.run, (getattr(ops.np, name),), {}), call.looped(), call)


@pytest.mark.parametrize("name", NAMES)
def test_vmap_of_vmap_is_a_loop_of_loops(name):
    check_twice(name, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_vmap_of_vmap_of_all_samples(name):
    check_twice(name, 1)


# --- variants that write ---------------------------------------------------------------------------------------------


def check_out(call: Mapped, out: np.ndarray) -> None:
    """Check a mapped `out`, whose examples lie along the last axis."""
    if out.ndim == 0:
        return          # one example of a vector is a scalar, which cannot be written to
    def written(i: int) -> np.ndarray:
        target = out.copy()
        numpy_out(call.name, *call.example(i), target)
        return target

    expected = stacked([outcome(written, (i,), {}) for i in range(call.n)])
    outs = np.repeat(out[..., None], call.n, -1)
    operator = getattr(ops.np, call.name)
    found = outcome(vmap(lambda out, *values: call.call(partial(operator, out=out), values),
                         in_dims=(-1, *call.in_dims)), [outs, *call.values], {})
    if is_error(found) or is_error(expected):
        assert_same(found, expected, call)
    else:
        assert_same(np.moveaxis(outs, -1, 0), expected, call)
        assert_same(found, expected, call)


def unmapped_call(name: str, sample: Sample, n: int) -> Mapped:
    leaves, spec = tree_flatten(tuple(sample))
    return Mapped(name, tuple(leaves), spec, (None,) * len(leaves), n)


def check_outs(name: str, step: int) -> None:
    """Check several `out`, with some of the arrays mapped, or with none."""
    calls = [*mappings(name, samples(name)), *[partial(unmapped_call, name, sample, 2) for sample in samples(name)]]
    for make in calls[::step]:
        call = make()
        result = outcome(numpy_function(name), *call.example(0))
        for out in [] if is_error(result) else outs_for(result):
            # what NumPy makes of an integer of nan is not defined
            if out.dtype.kind != "i" or np.isfinite(result).all():
                check_out(call, out)


@pytest.mark.parametrize("name", WITH_OUT)
def test_what_is_written_to_a_mapped_out_is_a_loop(name):
    check_outs(name, 13)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_OUT)
def test_what_more_samples_write_to_a_mapped_out(name):
    check_outs(name, 5)     # so that all choices of arrays and numbers of examples occur


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_is_written_in_place_is_a_loop(name):
    operator = getattr(ops.np, VARIANTS[name].in_place)
    for call in mapped_calls(name, samples(name)):
        if call.dims[0] is None or not isinstance(call.example(0).args[0], np.ndarray) or call.values[0].ndim == 1:
            continue        # one example of a vector is a scalar, which cannot be written to
        expected = stacked([outcome(numpy_in_place, (name, call.example(i)), {}) for i in range(call.n)])
        target = np.array(call.values[0])
        found = outcome(call.batched(operator), [target, *call.values[1:]], {})
        if not is_error(found):
            found = np.moveaxis(target, call.dims[0], 0)
        assert_same(found, expected, call)


# --- with derivatives ------------------------------------------------------------------------------------------------


class MappedCase(NamedTuple):
    """A differentiable call with some of its values mapped, along the first axis. `batches` holds None for others."""

    case: Case
    batches: list[np.ndarray | None]
    n: int

    @property
    def values(self) -> list[np.ndarray]:
        """All values, those that are mapped with their batch axis."""
        return [value if batch is None else batch for value, batch in zip(self.case.values, self.batches, strict=True)]

    @property
    def in_dims(self) -> tuple[int | None, ...]:
        return tuple([None if batch is None else 0 for batch in self.batches])

    def function(self, *values: Any) -> tuple[Any, ...]:
        return tuple(self.case.ours(*values))

    def batched(self, *values: Any) -> tuple[Any, ...]:
        return vmap(self.function, in_dims=self.in_dims)(*values)

    def example(self, values: Any, i: int) -> list[Any]:
        return [value if dim is None else value[i] for value, dim in zip(values, self.in_dims, strict=True)]


def varied(value: np.ndarray, n: int) -> np.ndarray:
    """Stack `n` arrays with the values of this one in other orders and a little larger."""
    return np.stack([(np.roll(value, i) * (1 + 0.01 * i)).astype(value.dtype) for i in range(n)])


def mapped_cases(name: str, found: list[Case]) -> Iterator[MappedCase]:
    """Yield the cases with all values mapped, and with one of them, where results and gradients are finite."""
    for turn, case in enumerate(found):
        places = range(len(case.places))
        for chosen in {tuple(places), (turn % len(places),)}:
            batches = [varied(value, 2) if i in chosen else None for i, value in enumerate(case.values)]
            call = MappedCase(case, batches, 2)
            results = [outcome(case.theirs, (call.example(call.values, i),), {}) for i in range(2)]
            if not any(is_error(result) or not np.isfinite(result[0]).all() for result in results):
                yield call


def spread_out(found: list[Any], n: int) -> list[Any]:
    """Select `n` of them, from first to last."""
    return found[::max(len(found) // n, 1)]


def transposed(function: Callable[..., Any], values: Any, cotangents: Any) -> Any:
    _, run_vjp = vjp(function, *values)
    return run_vjp(tuple(cotangents))


def check_all(found: Any, expected: Any, call: MappedCase, what: str) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), (what, call, one, other)
        near = 1e-4 if is_single(call.case) else 1e-11
        largest = np.max(np.abs(other), initial=1)
        assert np.allclose(one, other, rtol=near, atol=near * largest), (what, call, one, other)


def check_derivatives(call: MappedCase) -> None:
    """Assert that tangents and gradients of batches, and batches of them, are those of the loop over examples."""
    values, dims = call.values, call.in_dims
    examples = [call.example(values, i) for i in range(call.n)]
    directions = likewise(values, 1)
    pairs = [jvp(call.function, tuple(example), tuple(call.example(directions, i)))
             for i, example in enumerate(examples)]
    results, tangents = ([np.stack(parts) for parts in zip(*sides, strict=True)] for sides in zip(*pairs, strict=True))
    cotangents = likewise(results, 7)
    gradients = [np.stack(parts) for parts in zip(*[
        transposed(call.function, example, [cotangent[i] for cotangent in cotangents])
        for i, example in enumerate(examples)], strict=True)]

    n = len(values)
    found = vmap(lambda *both: jvp(call.function, both[:n], both[n:]), in_dims=dims * 2)(*values, *directions)
    check_all(found[0], results, call, "results of vmap(jvp)")
    check_all(found[1], tangents, call, "vmap(jvp)")
    check_all(jvp(call.batched, tuple(values), tuple(directions))[1], tangents, call, "jvp(vmap)")
    found = vmap(lambda *both: transposed(call.function, both[:n], both[n:]),
                 in_dims=dims + (0,) * len(cotangents))(*values, *cotangents)
    check_all(found, gradients, call, "vmap(vjp)")
    shared = [cotangent[0] for cotangent in cotangents]     # no batch, as the 1 that grad begins with
    expected = [np.stack(parts) for parts in zip(*[
        transposed(call.function, example, shared) for example in examples], strict=True)]
    check_all(vmap(lambda *values: transposed(call.function, values, shared), in_dims=dims)(*values), expected, call,
              "vmap(vjp) of one cotangent")
    summed = [gradient.sum(0, gradient.dtype) if dim is None else gradient
              for gradient, dim in zip(gradients, dims, strict=True)]
    check_all(transposed(call.batched, values, cotangents), summed, call, "vjp(vmap)")


@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_of_batches(name):
    found = list(mapped_cases(name, spread_out(cases(name), 4 if "pointwise" in DECLARATIONS[name].tags else 16)))
    assert found, f"no case of {name} that is finite"
    for call in found:
        with quiet():
            check_derivatives(call)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_derivatives_of_batches_of_all_samples(name):
    for call in mapped_cases(name, cases(name)):
        with quiet():
            check_derivatives(call)


def hessians(case: Case) -> Any:
    """Return the Hessian of a weighted sum of squared results by the first value, in four ways, and by differences."""
    values = case.values

    def function(value: Any) -> Any:
        return sum([ops.np.sum(weights(result.shape, float, 5) * result * result)
                    for result in case.ours(value, *values[1:])])

    by_gradient = jacrev(function)
    step = 1e-6
    columns = [(np.asarray(by_gradient(values[0] + step * unit)) - np.asarray(by_gradient(values[0] - step * unit)))
               / (2 * step) for unit in np.eye(values[0].size).reshape(-1, *values[0].shape)]
    found = {
        "jacfwd(jacrev)": jacfwd(jacrev(function)), "jacrev(jacfwd)": jacrev(jacfwd(function)),
        "jacrev(jacrev)": jacrev(jacrev(function)), "jacfwd(jacfwd)": jacfwd(jacfwd(function)),
        "hessian": hessian(function),
    }
    return {name: transform(values[0]) for name, transform in found.items()}, np.stack(columns, -1)


def has_small_hessian(case: Case) -> bool:
    """Return whether all its numbers are real, and few of them in its first value."""
    with quiet():
        numbers = [*case.values, *case.theirs(case.values)]
    return 0 < case.values[0].size <= 6 and all(value.dtype == np.float64 for value in numbers)


@pytest.mark.parametrize("name", [name for name in SMOOTH if name not in ("astype", "complex")])
def test_hessians_by_all_compositions(name):
    found = [case for case in precise_cases(name) if has_small_hessian(case)]
    assert found, f"no case of {name} in real numbers"
    for case in spread_out(found, 2)[:2]:
        with quiet():
            matrices, expected = hessians(case)
        assert np.isfinite(expected).all(), case
        for composition, matrix in matrices.items():
            assert_near(np.asarray(matrix).reshape(expected.shape), expected, case, composition)


def test_a_misspelt_batching_rule_says_what_is_taken():
    signature = Signature(ops.np.sin.default.schema)
    with pytest.raises(TypeError, match=r"vmap='pointwize' is not a batching rule\npass \"pointwise\""):
        BatchingRule("pointwize", signature)
