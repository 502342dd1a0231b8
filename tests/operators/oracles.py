"""Oracles that tests of operators share: what NumPy gives for a call, and derivatives by finite differences.

What is perturbed for a derivative are all floating-point and complex arrays in a call, whatever the operator says is
differentiable. A gradient is dL/dRe + i dL/dIm of a real L, which here is Re(sum(conj(weights) * result)).
"""

import operator
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from pydispatch import ops
from pydispatch.backends.meta import MetaArray
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten
from tests.operators.samples import Sample, functional_names, numpy_function, smooth_samples

# --- what NumPy gives -------------------------------------------------------------------------------------------------

NAMES = functional_names()
WITH_OUT = [name for name in NAMES if VARIANTS[name].out]
IN_PLACE = [name for name in NAMES if VARIANTS[name].in_place]
UNDEFINED = {"empty", "empty_like"}
"""Operators whose results have no values to compare."""


def outcome(function: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of a call, or the class of its error."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return type(error)


def is_error(result: Any) -> bool:
    return isinstance(result, type)


def to_meta(leaf: Any) -> Any:
    return MetaArray(leaf.shape, leaf.dtype) if isinstance(leaf, np.ndarray) else leaf


def unless_mask(leaf: Any) -> Any:
    return leaf if getattr(leaf, "dtype", None) == np.dtype(bool) else to_meta(leaf)


def copied(leaf: Any) -> Any:
    return leaf.copy(order="K") if isinstance(leaf, np.ndarray) else leaf


def identical(one: Any, other: Any) -> bool:
    """Return whether two arrays have the same dtype, shape and values."""
    one, other = np.asarray(one), np.asarray(other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one.tobytes() == other.tobytes() or np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def check(found: Any, expected: Any, what: tuple[Any, ...], *, values: bool = True) -> None:
    """Assert the same error, or the same array, or the same arrays."""
    if is_error(expected) or is_error(found):
        agrees = is_error(expected) and is_error(found) and issubclass(found, agreeing(expected))
        assert agrees, f"{what}: found {found!r}, expected {expected!r}"
    elif isinstance(expected, list):
        assert len(found) == len(expected), what
        for one, other in zip(found, expected, strict=True):
            check(one, other, what, values=values)
    elif values:
        assert identical(found, expected), f"{what}: found {found!r}, expected {expected!r}"
    else:
        same = (found.shape, found.dtype) == (np.shape(expected), np.asarray(expected).dtype)
        assert same, f"{what}: found {found!r}, expected {expected!r}"


def agreeing(error: type) -> tuple[type, ...]:
    """Return the classes of which ours must be one, for an error of NumPy's, whose own subclasses are private."""
    builtins = (TypeError, ValueError, IndexError, OverflowError)
    return tuple(base for base in builtins if issubclass(error, base)) or (error,)


ABOUT_VALUES = {
    ("index", IndexError),
    ("index_put", IndexError),
    ("power", ValueError),
    ("scatter_add", IndexError),
    ("slice_sums", IndexError),
    ("take", IndexError),
    ("take_along_axis", IndexError),
}
"""Errors about the values of the samples, which Meta cannot know."""


def outs_for(result: Any) -> list[np.ndarray]:
    """Return arrays to write such a result to: fitting ones, of other dtypes, and of shapes that do not fit."""
    shape, dtype = np.shape(result), np.asarray(result).dtype
    fitting = [np.zeros(shape, other) for other in (dtype, np.int8, np.float32, np.complex128)]
    return [*fitting, np.zeros((2, *shape), dtype), np.zeros((*shape, 2), dtype), np.zeros((), dtype)]


def numpy_out(name: str, args: Any, kwargs: Any, out: np.ndarray) -> np.ndarray:
    """Return the `out` that NumPy wrote, or a copy of the result of the same kind and shape."""
    function = numpy_function(name)
    if name in EXACT and np.shape(function(*args, **kwargs)) != out.shape:
        raise ValueError("out")
    if name not in OUT_OF_OUR_OWN:
        return function(*args, **kwargs, out=out)
    np.copyto(out, function(*args, **kwargs))
    return out


OUT_OF_OUR_OWN = {"where"}
"""Operators that have an `out` although NumPy's function has none."""
EXACT = {"cumsum", "cumprod", "round", "where"}
"""Operators that want an `out` of the very shape of the result; NumPy's cumsum crashes on a 0-d one."""


def numpy_in_place(name: str, sample: Sample) -> np.ndarray:
    """Return the first argument after NumPy wrote the result to it."""
    target = copied(sample.args[0])
    if name == "matmul" and not sample.kwargs:
        return operator.imatmul(target, *sample.args[1:])
    if VARIANTS[name].out is None:
        return numpy_function(name)(target, *sample.args[1:], **sample.kwargs)
    return numpy_out(name, (target, *sample.args[1:]), sample.kwargs, target)


# --- derivatives by differences ---------------------------------------------------------------------------------------

DIFFERENTIABLE = [name for name in NAMES if DECLARATIONS[name].differentiable]
STEP = 1e-6
PRECISE = {np.dtype(np.float32): np.dtype(np.float64), np.dtype(np.complex64): np.dtype(np.complex128)}


class Case(NamedTuple):
    """A call as a function of the arrays in it that are floating-point or complex."""

    name: str
    leaves: list[Any]
    spec: Any
    places: list[int]       # of those arrays

    @property
    def values(self) -> list[np.ndarray]:
        return [np.asarray(self.leaves[i]) for i in self.places]

    def call(self, function: Callable[..., Any], values: Any) -> list[Any]:
        """Return the results of `function`, with these values in place of those of the arrays."""
        leaves = list(self.leaves)
        for i, value in zip(self.places, values, strict=True):
            leaves[i] = value
        args, kwargs = tree_unflatten(leaves, self.spec)
        return tree_leaves(function(*args, **kwargs))

    def ours(self, *values: Any) -> list[Any]:
        return self.call(getattr(ops.np, self.name), values)

    def theirs(self, values: Any) -> list[np.ndarray]:
        """Return NumPy's results, in double precision."""
        precise = self._replace(leaves=[in_double_precision(leaf) for leaf in self.leaves])
        return [np.asarray(result) for result in precise.call(numpy_function(self.name), values)]

    def __repr__(self) -> str:
        args, kwargs = tree_unflatten(self.leaves, self.spec)
        return f"{self.name}(*{args}, **{kwargs})"

    def difference(self, directions: Any) -> list[np.ndarray]:
        """Return the derivative along `directions`, by central differences."""
        values = [in_double_precision(value) for value in self.values]
        up, down = (self.theirs(moved(values, directions, step)) for step in (STEP, -STEP))
        return [(one - other) / (2 * STEP) for one, other in zip(up, down, strict=True)]


def moved(values: Any, directions: Any, step: float) -> list[np.ndarray]:
    return [value + step * along for value, along in zip(values, directions, strict=True)]


def in_double_precision(leaf: Any) -> Any:
    if isinstance(leaf, np.dtype):
        return PRECISE.get(leaf, leaf)
    dtype = PRECISE.get(leaf.dtype) if isinstance(leaf, (np.ndarray, np.generic)) else None
    return leaf if dtype is None else leaf.astype(dtype)


def is_inexact(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind in "fc"


def case_of(name: str, sample: Sample) -> Case:
    leaves, spec = tree_flatten(tuple(sample))
    return Case(name, leaves, spec, [i for i, leaf in enumerate(leaves) if is_inexact(leaf)])


def is_usable(case: Case) -> bool:
    """Return whether a call has differentiable arguments and a finite result of floating-point or complex numbers."""
    if not case.places:
        return False
    results = outcome(case.call, (numpy_function(case.name), case.values), {})
    return not is_error(results) and all(
        np.asarray(result).dtype.kind in "fc" and np.isfinite(result).all() for result in results)


@cache
def cases(name: str) -> list[Case]:
    return [case for sample in smooth_samples(name) if is_usable(case := case_of(name, sample))]


@cache
def weights(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    """Return a reproducible array that nobody may write to, with gaps in memory."""
    generator = np.random.default_rng(seed)
    values = generator.uniform(-1, 1, (*shape, 2))
    values = (values + 1j * generator.uniform(-1, 1, values.shape) if np.dtype(dtype).kind == "c" else values)
    values = values.astype(dtype)
    values.flags.writeable = False
    return values[..., 0]


def likewise(values: Any, seed: int) -> list[np.ndarray]:
    return [weights(value.shape, value.dtype, seed + i) for i, value in enumerate(values)]


def is_single(case: Case) -> bool:
    """Return whether the call has a value in single precision."""
    return any(in_double_precision(leaf) is not leaf for leaf in case.leaves)


def assert_near(found: Any, expected: Any, case: Case, what: str, scale: float = 1.0) -> None:
    tolerance = 2e-4 if is_single(case) else 1e-6
    found, expected = np.asarray(found), np.asarray(expected)
    largest = max(np.max(np.abs(expected), initial=0), scale)
    assert np.allclose(found, expected, rtol=tolerance, atol=tolerance * largest), (
        f"{what} of {case}: found {found}, expected {expected}")


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings of derivatives at points where operators warn like NumPy."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        yield


def precise_cases(name: str) -> list[Case]:
    """Return the cases in double precision. Finite differences of our own gradients say nothing in single precision."""
    return [case for case in cases(name) if not is_single(case)]
