"""Every function of NumPy's on Dask arrays, alone and under transforms: lazy, and equal to NumPy's."""

import operator
import re
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor
from pydispatch.exceptions import DispatchTypeError, UnsupportedError
from pydispatch.func import grad, jvp, vmap
from pydispatch.numpy.declare import FUNCTIONS
from pydispatch.operators.declare import LIBRARY
from pydispatch.ops import ops
from pydispatch.schema import parse_schema
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves
from tests.backends.dask.lazy import CUTS, ComputedError, check_lazy, computed, da, lazily, uneven
from tests.numpy.calls import (
    case_named,
    check_same,
    copies,
    examples,
    function_of_arrays,
    is_array,
    is_differentiable,
    mapped,
    quietly,
)
from tests.numpy.samples import SAMPLES
from tests.numpy.samples.sample import Sample

READING = ("array2string(", "asarray_chkfinite(", "bincount(", "ix_(bool", "linalg.lstsq(", "may_share_memory(",
           "polyfit(float64[6], float64[6], 2, full", "real_if_close(complex", "shares_memory(", "trim_zeros(")
"""Calls that have to know elements before they return, such as the greatest one or the rank: they compute."""
OPEN_SIZES = ("intersect1d(", "setdiff1d(", "setxor1d(", "argwhere(int64[])")
"""Calls that go on with an array of unknown size."""
OTHERWISE = ("array_str(", "linalg.eig(float64[2, 2]", "linalg.eigvals(float64[2, 2]", "poly(complex128[2]",
             "poly(float64[2, 2]", "polydiv(float64[", "polymul(float64[4]", "roots(")
"""Calls whose result NumPy shortens, or makes real, where elements allow it: `READ_OFF` has them."""
OF_SHAPES = ("diag_indices_from(", "histogram(float64[8], 4, [", "histogram(float64[8], [",
             "histogram2d(float64[8], float64[8], [2", "histogram_bin_edges(complex64[0]", "ix_(int64",
             "meshgrid(float64[2], [1", "tril_indices_from(", "triu_indices_from(")
"""Calls with results that depend on no element of a lazy array: NumPy arrays."""


def function(name: str) -> Callable[..., Any]:
    return operator.attrgetter(name)(pnp)


def in_numpy(name: str) -> Callable[..., Any]:
    return operator.attrgetter(name)(np)


def exists(name: str) -> bool:
    found = FUNCTIONS.get(name)
    return found is None or found.numpy_function is not None


WITH_ARRAYS = [sample for samples in SAMPLES.values() for sample in samples
               if exists(sample.name) and any(map(is_array, tree_leaves((sample.args, sample.kwargs))))]


def first_of_each(samples: list[Sample]) -> list[Sample]:
    return list({sample.name: sample for sample in reversed(samples)}.values())[::-1]


def check_call(sample: Sample, cut: str) -> None:
    """Check the call on arrays in these chunks, or the error that it has to raise."""
    args, kwargs = mapped(CUTS[cut], (sample.args, sample.kwargs))
    error = ERRORS.get(next((prefix for prefix in ERRORS if repr(sample).startswith(prefix)), ""))
    if error is not None:
        with pytest.raises(error):
            lazily(function(sample.name), *args, **kwargs)
        return
    found, expected = lazily(function(sample.name), *args, **kwargs), quietly(in_numpy(sample.name), *copies(sample))
    if repr(sample).startswith(OF_SHAPES):
        found = [da.asarray(leaf) for leaf in tree_leaves(found)]
        expected = [np.asarray(leaf) for leaf in tree_leaves(expected)]
    check_lazy(found, expected, sample.tolerance)


ERRORS = {**dict.fromkeys(READING, ComputedError), "from_dlpack(": AttributeError,
          **dict.fromkeys(OPEN_SIZES, (ValueError, TypeError, UnsupportedError))}
CALLS = [sample for sample in WITH_ARRAYS if not repr(sample).startswith(OTHERWISE)]


@pytest.mark.parametrize("sample", first_of_each(CALLS), ids=lambda sample: sample.name)
def test_functions_are_lazy_and_equal_numpys(sample):
    check_call(sample, "uneven")


@pytest.mark.slow
@pytest.mark.parametrize("sample", first_of_each(CALLS), ids=repr)
def test_functions_in_all_cuts_are_lazy_and_equal_numpys(sample):
    for cut in CUTS:
        with case_named(cut):
            check_call(sample, cut)


@pytest.mark.slow
@pytest.mark.parametrize("sample", CALLS, ids=repr)
def test_calls_are_lazy_and_equal_numpys(sample):
    cut = ("several", "uneven")[zlib.crc32(repr(sample).encode()) % 2]
    with case_named(cut):
        check_call(sample, cut)


def of_unknown_sizes(x: np.ndarray) -> Any:
    """Return the same elements in chunks whose numbers of rows Dask does not know."""
    rows = uneven(x)
    return rows[da.from_array(np.ones(len(x), bool), chunks=rows.chunks[:1])] if x.ndim else rows


def check_unknown_sizes(sample: Sample) -> None:
    """Check that the call computes the same on arrays of unknown sizes, or refuses them."""
    args, kwargs = mapped(of_unknown_sizes, (sample.args, sample.kwargs))
    message, found = "", None
    call = quietly if repr(sample).startswith(READING) else lambda f, args, kwargs: lazily(f, *args, **kwargs)
    try:
        found = call(function(sample.name), args, kwargs)
    except UnsupportedError as error:
        message = str(error)
    if message:
        assert "found an array of unknown sizes" in message
        assert re.search(r"\ncall array\.compute_chunk_sizes\(\) first$", message)
    else:
        found, expected = tree_leaves(computed(found)), tree_leaves(quietly(in_numpy(sample.name), *copies(sample)))
        check_same(found, expected, max(sample.tolerance, 1e-9))


SIZED = [sample for sample in CALLS if not repr(sample).startswith((
    "argwhere(int64[])", "from_dlpack(",        # they raise for arrays of known sizes, too
    "shape(",                                   # nan is the answer
    "nanmax(float64[0",                         # whether there are elements at all is seen when they are computed
    *OF_SHAPES))]


@pytest.mark.parametrize("sample", first_of_each(SIZED), ids=lambda sample: sample.name)
def test_functions_of_unknown_sizes_are_right_or_refused(sample):
    check_unknown_sizes(sample)


@pytest.mark.slow
@pytest.mark.parametrize("sample", SIZED, ids=repr)
def test_calls_of_unknown_sizes_are_right_or_refused(sample):
    check_unknown_sizes(sample)


NEEDS_SIZES = {
    "array_equal": lambda x: pnp.array_equal(x, x), "number of elements": lambda x: pnp.average(x, 0, returned=True),
    "freedom": lambda x: pnp.cov(x, rowvar=False), "core axis": pnp.linalg.svdvals,
    "sorted axis": lambda x: pnp.sort(x, 0),
    "fft": lambda x: pnp.fft.fft(x, axis=0), "operator": lambda x: ops.np.reshape(x, (3, -1)), "composite": pnp.tril,
}


@pytest.mark.parametrize("program", NEEDS_SIZES.values(), ids=list(NEEDS_SIZES))
def test_what_needs_sizes_is_refused(program):
    with pytest.raises(UnsupportedError, match="found an array of unknown sizes"):
        lazily(program, of_unknown_sizes(np.arange(12.0).reshape(6, 2)))


MISTAKES = {
    "operator": lambda x: ops.np.sum(x, axis=5),
    "composite": lambda x: pnp.cross(x, x, axis=7),
    "pointwise": lambda x: ops.np.add(x, x, dtype="int8"),
    "dtype": lambda x: pnp.bitwise_and(x, x),
    "known axis": lambda x: pnp.matmul(x, np.ones(3)),
    "index": lambda x: x[0, 5],
    "method": lambda x: Tensor(x)[:, 5],
    "axes": lambda x: pnp.transpose(x, (0, 1, 2)),
    "function of the user's": lambda x: pnp.apply_over_axes(lambda x, axis: x.missing, x, 0),
    "under grad": grad(lambda x: pnp.sum(pnp.cross(x, x, axis=7))),
}


@pytest.mark.parametrize("program", MISTAKES.values(), ids=list(MISTAKES))
def test_an_error_that_sizes_have_no_part_in_is_that_of_known_sizes(program):
    x = np.arange(12.0).reshape(6, 2)
    with pytest.raises(Exception) as expected:      # noqa: PT011, of whichever class
        program(uneven(x))
    with pytest.raises(expected.type) as caught:
        program(of_unknown_sizes(x))
    assert str(caught.value).replace("nan", "6") == str(expected.value)
    assert "unknown sizes" not in str(caught.value)


OPTIONS = ({"dtype": "complex128"}, {"dtype": "float32"}, {"casting": "safe"}, {"dtype": "int8", "casting": "unsafe"})


@pytest.mark.parametrize("name", [name for name, declaration in LIBRARY.declarations.items() if {
    argument.name for argument in parse_schema(declaration.schema_text).arguments} >= {"dtype", "casting"}
    and declaration.variant == "functional" and "pointwise" in declaration.tags and name != "clip"])
def test_pointwise_operators_take_what_numpys_take(name):
    op = getattr(ops.np, name)
    n = sum(argument.type.contains_arrays for argument in op.default.schema.arguments)
    for options in OPTIONS:
        for x in (np.arange(1.0, 5.0), np.arange(1, 5), np.array([True, False])):
            with case_named(f"{options}, {x.dtype}"):
                check_as_numpys(op, [x] * n, options)


def check_as_numpys(op: Any, arrays: list[np.ndarray], options: dict[str, str]) -> None:
    """Assert that the result is NumPy's, or an error of the same class."""
    try:
        expected = quietly(op, arrays, options)
    except TypeError as error:
        with pytest.raises(type(error)):
            lazily(op, *map(uneven, arrays), **options)
    else:
        check_lazy(lazily(op, *map(uneven, arrays), **options), expected)


BLAMED = {
    "broadcasting": lambda x: pnp.add(x, np.ones((6, 2))), "parts": lambda x: pnp.split(x, 3),
    "a length of another": lambda x: pnp.matmul(np.ones((3, 6)), x), "shape": lambda x: pnp.reshape(x, (2, -1)),
    "lengths that differ": lambda x: pnp.tensordot(pnp.concatenate([x, x], 1), of_unknown_sizes(np.ones((4, 3))),
                                                   [[1], [0]]),
}


@pytest.mark.parametrize("program", BLAMED.values(), ids=list(BLAMED))
def test_an_error_that_sizes_have_a_part_in_names_them(program):
    with pytest.raises(UnsupportedError) as caught:
        lazily(program, of_unknown_sizes(np.arange(12.0).reshape(6, 2)))
    assert re.search(r"found an array of unknown sizes, \(nan, \d\): .*\n"
                     r"call array\.compute_chunk_sizes\(\) first$", str(caught.value))


READ_OFF = {
    "polymul": (([0.0, 1.0, 2.0], [3.0, 4.0]), lambda found: np.trim_zeros(found, "f")),
    "poly": (([1 + 2j, 1 - 2j],), np.real),
    "linalg.eigvals": (([[2.0, 0.0], [0.0, 3.0]],), np.real),
    "roots": (([1.0, -6.0, 11.0, -6.0],), np.real),
    "polydiv": (([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), lambda found: found[:1]),
    "array_str": (([1.0, 2.0],), None),
}


@pytest.mark.parametrize(("name", "args", "shown"), [(name, *row) for name, row in READ_OFF.items()], ids=READ_OFF)
def test_what_numpy_reads_off_elements_is_left_as_it_is(name, args, shown):
    found = lazily(function(name), *[uneven(np.asarray(arg)) for arg in args])
    if shown is None:
        assert str(found).startswith("dask.array<")
        return
    found, expected = tree_leaves(computed(found)), tree_leaves(in_numpy(name)(*args))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(shown(one), other, atol=1e-12)


# --- transforms ------------------------------------------------------------------------------------------------------


def differentiated(sample: Sample) -> tuple[Callable[..., Any], tuple[np.ndarray, ...]]:
    """Return a call as a function of the arrays that it can be differentiated by, and these."""
    call, values = function_of_arrays(function(sample.name), sample)
    places = [i for i, value in enumerate(values) if is_differentiable(value)]

    def of_those(*chosen: Any) -> Any:
        args = list(values)
        for place, value in zip(places, chosen, strict=True):
            args[place] = value
        return call(*args)

    return of_those, tuple([values[i] for i in places])


def total_of(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return the sum of the squares of the results."""
    def total(*args: Any) -> Any:
        found = [leaf for leaf in call(*args) if leaf.dtype.kind in "fc"]
        return sum(pnp.sum(pnp.real(pnp.multiply(leaf, pnp.conj(leaf)))) for leaf in found)
    return total


def gradient(sample: Sample) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    call, values = differentiated(sample)
    return grad(total_of(call), tuple(range(len(values)))), values


def tangent(sample: Sample) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    call, values = differentiated(sample)
    return lambda *args: jvp(call, args, args), values


def batch(sample: Sample) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    call, (first, *others) = function_of_arrays(function(sample.name), sample)
    return vmap(call, (0, *(None,) * len(others))), (np.stack(examples(first)), *others)


def trace(sample: Sample) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    call, values = function_of_arrays(function(sample.name), sample)
    return lambda *args: make_fx(call)(*args)(*args), tuple(values)


LAZY = [sample for sample in CALLS if not repr(sample).startswith((*ERRORS, *OF_SHAPES))]
SMOOTH = [sample for sample in first_of_each([each for each in LAZY if each.smooth])
          if any(map(is_differentiable, tree_leaves((sample.args, sample.kwargs))))]
UNKNOWN_SHAPES = ("compress", "extract", "union1d", "unique")
"""Functions whose result has unknown sizes, which its sum cannot be differentiated by."""
BATCHED = [sample for sample in first_of_each([each for each in LAZY if each.batches])
           if sample.name != "broadcast_arrays"]
WITH_SHAPE = first_of_each([each for each in LAZY if each.has_shape])
TRANSFORMED = {
    "grad": (gradient, [sample for sample in SMOOTH if sample.name not in UNKNOWN_SHAPES]),
    "jvp": (tangent, [sample for sample in SMOOTH if sample.name not in UNKNOWN_SHAPES]),
    "vmap": (batch, BATCHED), "make_fx": (trace, WITH_SHAPE),
}
CASES = [pytest.param(prepare, sample, id=f"{name}-{sample.name}",
                      marks=() if sample.name in ("matmul", "sort", "where", "linalg.svd") else pytest.mark.slow)
         for name, (prepare, samples) in TRANSFORMED.items() for sample in samples]


@pytest.mark.parametrize(("prepare", "sample"), CASES)
def test_transforms_are_lazy_and_equal_those_of_numpys_arrays(prepare, sample):
    transformed, values = prepare(sample)
    found = lazily(transformed, *map(uneven, values))
    check_lazy(found, quietly(transformed, values, {}), sample.tolerance)


def test_a_sum_over_an_unknown_size_has_no_gradient():
    x = uneven(np.arange(4.0))
    with pytest.raises(DispatchTypeError, match="nan"):
        grad(lambda x: pnp.sum(x[x > 1]))(x)
    found = lazily(grad(lambda x: pnp.sum(pnp.where(x > 1, x, 0))), x)
    check_lazy(found, np.array([0.0, 0.0, 1.0, 1.0]))


def test_gradients_with_unknown_sizes():
    data = np.arange(8.0).reshape(4, 2)
    x = da.from_array(data, chunks=2)
    part, known = x[x[:, 0] > 1], data[data[:, 0] > 1]
    for function in (lambda x: pnp.sum(pnp.max(x ** 2, axis=0)), lambda x: pnp.min(x)):
        check_lazy(lazily(grad(function), part), grad(function)(known))


@pytest.mark.parametrize("function", [pnp.sum, pnp.mean])
def test_gradients_of_reductions_of_unknown_sizes_say_what_to_do(function):
    data = np.arange(8.0).reshape(4, 2)
    x = da.from_array(data, chunks=2)
    part = x[x[:, 0] > 1]
    with pytest.raises(DispatchTypeError, match=r"found tuple \(nan, 2\)(?s:.*)\n.*call array\.compute_chunk_sizes"):
        grad(lambda x: function(x ** 2))(part)
    known = part.compute_chunk_sizes()
    check_lazy(lazily(grad(lambda x: function(x ** 2)), known), grad(lambda x: function(x ** 2))(data[data[:, 0] > 1]))
