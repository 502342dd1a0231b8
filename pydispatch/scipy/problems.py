"""Calls of solvers: the user's function as one of flat arrays, the unknowns, and the result as in SciPy."""

# tests: tests/scipy/test_optimize.py
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order.closures import (
    Arrays,
    Flat,
    FlatFunction,
    Nesting,
    abstract_result,
    first_run_of,
    lift,
    show,
)
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.scipy.implicit import Options
from pydispatch.tree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten


class SolverFunction(FlatFunction):
    """A function of a solver. It may return numbers instead of arrays."""

    def _outputs(self, result: Any) -> Arrays:
        return super()._outputs(tree_map(
            lambda leaf: np.asarray(leaf) if isinstance(leaf, (bool, int, float, complex)) else leaf, result))


class Problem(NamedTuple):
    """The parts of a call of a solver: its function, the unknowns, and all other arrays."""

    body: FlatFunction
    function: Flat              # takes the values that it captures as arguments
    unknowns: Arrays
    arguments: Arrays
    spec: TreeSpec
    results: Arrays | None          # results of the function, without data

    def solve(self, operator: HigherOrderOperator, options: Options) -> Any:
        """Run the operator and return the unknowns, nested as they were given."""
        with first_run_of(self.body):
            results = operator(self.function, self.unknowns, self.arguments, (), options)
        return tree_unflatten(all_as_passed(results, self.unknowns, self.arguments), self.spec)


def problem(
    who: str, name: str, function: Callable[..., Any], unknowns: Any, args: Any, nesting: Nesting | None = None
) -> Problem:
    """Return the parts of a call `who(function, unknowns, args)`. `name` is the function's name in messages."""
    leaves, spec = tree_flatten(unknowns)
    args = as_arguments(args)
    arrays = tuple([leaf for leaf in tree_leaves(args) if _core.is_array(leaf)])
    flat = SolverFunction(f"{who}: {name}", function, (unknowns, *args), nesting or Nesting(), keeps_inputs=True)
    found = abstract_result(flat, (*leaves, *arrays))
    (lifted,), captured = lift([flat], [found])
    return Problem(flat, lifted, tuple(leaves), (*arrays, *captured), spec, found.results)


def as_unknowns(who: str, name: str, value: Any) -> Any:
    """Return unknowns as floating-point arrays. Lists of numbers become one array, as in SciPy."""
    leaves, spec = tree_flatten(value)
    if not any(map(_core.is_array, leaves)) and not isinstance(value, dict):
        try:
            leaves, spec = tree_flatten(np.asarray(value))
        except ValueError as error:
            raise DispatchTypeError(f"{who}: {name} is not an array: {error}\n"
                                    "pass an array, or a pytree of arrays") from None
    if not leaves:
        raise DispatchTypeError(f"{who}: {name} holds no array, expected at least one\npass an array")
    return tree_unflatten([_as_floats(who, name, leaf) for leaf in leaves], spec)


def as_real_unknowns(who: str, value: Any) -> Any:
    """Return unknowns as floating-point arrays. Raise DispatchTypeError for complex ones, which SciPy rejects."""
    unknowns = as_unknowns(who, "x0", value)
    for leaf in tree_leaves(unknowns):
        if leaf.dtype.kind == "c":
            raise DispatchTypeError(f"{who}: x0 holds {show(leaf)}, expected real numbers\n"
                                    "solve for real and imaginary parts")
    return unknowns


def _as_floats(who: str, name: str, leaf: Any) -> Any:
    array = np.asarray(leaf) if isinstance(leaf, (bool, int, float, complex)) and not _core.is_array(leaf) else leaf
    if not _core.is_array(array) or array.dtype.kind not in "biufc":
        found = show(array) if _core.is_array(array) else type(leaf).__name__
        raise DispatchTypeError(f"{who}: {name} holds {found}, expected arrays of numbers\n"
                                "pass an array, or a pytree of arrays")
    if isinstance(array, np.generic):
        array = np.asarray(array)
    return array if array.dtype.kind in "fc" else array.astype(np.float64)


def check_shapes(who: str, name: str, results: Arrays | None, unknowns: Arrays, unknown: str) -> None:
    """Raise DispatchTypeError unless a function returns arrays of the shapes of its unknowns."""
    if results is None:
        return
    for i, (result, value) in enumerate(zip(results, unknowns, strict=True)):
        if tuple(result.shape) != tuple(value.shape):
            raise DispatchTypeError(f"{who}: {name} returns {show(result)} as array {i}, where {unknown} is "
                                    f"{show(value)}\nreturn arrays of the shapes of {unknown}")


class Solution(OptimizeResult):     # type: ignore[misc]
    """The result of a solver, as in `scipy.optimize`: `x`, and values there, which are computed on first access."""

    def __init__(self, x: Any, later: dict[str, Callable[[], Any]], **about: Any) -> None:
        super().__init__({"x": x, "success": True, **about})
        self.__dict__["later"] = later

    def __missing__(self, name: str) -> Any:
        if name not in self.__dict__["later"]:
            raise KeyError(name)
        value = self[name] = self.__dict__["later"][name]()
        return value


def as_arguments(args: Any) -> tuple[Any, ...]:
    """Return further arguments of a function as a tuple. A single one may stand alone, as in SciPy."""
    return args if isinstance(args, tuple) else (args,)


def call_scipys(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call SciPy's own function, for arguments that only it takes. Raise DispatchTypeError for Tensors."""
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves((args, options))):
        raise DispatchTypeError(f"{function.__name__}: SciPy's own function takes arrays for these options, and an "
                                "argument is a Tensor\npass arrays: tensor.detach().numpy()")
    return function(*args, **options)
