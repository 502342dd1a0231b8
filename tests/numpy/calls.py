"""Calls of functions: their arrays replaced, without warnings, and their results compared."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor
from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.samples.sample import Sample
from tests.together import together


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def mapped(function: Callable[[np.ndarray], Any], tree: Any) -> Any:
    return tree_map(lambda leaf: function(leaf) if is_array(leaf) else leaf, tree)


class case_named:  # noqa: N801
    """One of several cases of a test, which its failure names. What names it is printed only then."""

    def __init__(self, *name: Any) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None:
            error.add_note(f"in the case {', '.join(map(str, self.name))}")


def for_each_sample(calls: list[Any]) -> Callable[[Callable[[Sample], None]], Callable[..., None]]:
    """Run a check of one sample on all samples of a module's functions, as one case that reports each failing sample.

    `calls` are parameters of pytest. Samples with marks, "slow" say, are a case of their own.
    """
    groups: dict[tuple[str, ...], list[Sample]] = {}
    for call in calls:
        module, dot, _ = call.values[0].name.partition(".")
        key = (module if dot else "numpy", *[mark.name for mark in call.marks])
        groups.setdefault(key, []).append(call.values[0])
    cases = [pytest.param(samples, id=name, marks=[getattr(pytest.mark, mark) for mark in marks])
             for (name, *marks), samples in groups.items()]

    def decorated(check: Callable[[Sample], None]) -> Callable[..., None]:
        def test(samples: list[Sample]) -> None:
            together("sample", samples, ids=str)(check)()

        test.__name__, test.__qualname__, test.__doc__ = check.__name__, check.__qualname__, check.__doc__
        return pytest.mark.parametrize("samples", cases)(test)

    return decorated


def quietly(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def copies(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments that a function may write to."""
    return mapped(np.copy, (sample.args, sample.kwargs))


def check_same(found: Any, expected: Any, tolerance: float) -> None:
    """Assert equal structure, shapes, dtypes and values."""
    found_leaves, expected_leaves = tree_leaves(found), tree_leaves(expected)
    assert len(found_leaves) == len(expected_leaves)
    assert isinstance(found, (list, tuple)) == isinstance(expected, (list, tuple))
    for left, right in zip(found_leaves, expected_leaves, strict=True):
        left, right = np.asarray(left), np.asarray(right)
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        if left.dtype.kind in "OUSMm":
            assert left.tolist() == right.tolist()
        else:
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


def is_differentiable(leaf: Any) -> bool:
    return is_array(leaf) and leaf.dtype.kind in "fc"


def examples(x: np.ndarray) -> list[np.ndarray]:
    return [x.copy(), np.roll(x, 1), np.flip(x).copy()]


def check_stacked(found: Any, expected: list[Any], tolerance: float) -> None:
    """Assert that each result is the stack of those of the examples."""
    for i, leaf in enumerate(found):
        check_same(leaf, np.stack([np.asarray(each[i]) for each in expected]), max(tolerance, 1e-12))


def function_of_arrays(called: Callable[..., Any], sample: Sample) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Return a call as a function of its arrays, and these. It gives the arrays among the results."""
    def function(*values: Any) -> Any:
        left = list(values)
        args, kwargs = mapped(lambda leaf: left.pop(0), (sample.args, sample.kwargs))
        return [leaf for leaf in tree_leaves(called(*args, **kwargs)) if hasattr(leaf, "dtype")]

    return function, [leaf for leaf in tree_leaves((sample.args, sample.kwargs)) if is_array(leaf)]


def function_of_tensors(called: Callable[..., Any], sample: Sample) -> tuple[Callable[..., Any], list[Tensor]]:
    """Return a call as a function of what it can be differentiated by, and this, tracked, in double precision."""
    def function(*values: Any) -> Any:
        left = list(values)
        args, kwargs = tree_map(lambda leaf: left.pop(0) if is_differentiable(leaf) else leaf,
                                (sample.args, sample.kwargs))
        return [leaf for leaf in tree_leaves(called(*args, **kwargs))
                if isinstance(leaf, Tensor) and leaf.dtype.kind in "fc"]

    places = [leaf for leaf in tree_leaves((sample.args, sample.kwargs)) if is_differentiable(leaf)]
    return function, [Tensor(leaf.astype(complex if leaf.dtype.kind == "c" else float), requires_grad=True)
                      for leaf in places]
