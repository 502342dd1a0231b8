"""Solutions of equations as higher-order operators: linear systems, and the implicit function theorem.

`LINEAR_SOLVE` solves a linear system that is given as a function. `implicit_operator` makes operators that
solve F(x, args) = 0 by any method. Their derivatives are solutions of a linear system with the Jacobian of F.
Nothing is unrolled. The rules of both call `LINEAR_SOLVE`, whose own rules call it again, so there are
derivatives of every order.

A batch remains a batch of problems. Its `levels` specify, from the innermost `vmap` outward, the number of
examples and which arguments differ between them. The function itself is that of one example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydispatch._core import Interpreter, Jvp, Tensor, Vmap
from pydispatch.autograd.custom_derivatives import materialized
from pydispatch.autograd.values import meta_of
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import Arrays, Flat
from pydispatch.higher_order.cond import COND
from pydispatch.higher_order.map import MAP
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.ops import ops
from pydispatch.scipy.krylov import conjugate_gradients, gmres

Level = tuple[int, tuple[bool, ...]]
"""One `vmap`: the number of examples, and which arguments of the function, after its own ones, differ between them."""
Levels = tuple[Level, ...]
Options = dict[str, Any]
Index = tuple[int, ...]

DENSE_SIZE = 500
"""The largest number of unknowns for which a Jacobian is formed. Larger systems are solved by iteration."""


# --- batches of problems ---------------------------------------------------------------------------------------------


def over_levels(function: Flat, n_own: int, levels: Levels) -> Flat:
    """Turn a function of one example into one of all examples. Its first `n_own` arguments differ at every level."""
    for size, flags in levels:
        function = rules.batched(function, ((True,) * n_own + flags), Vmap(size))
    return function


def batch_of(levels: Levels) -> tuple[int, ...]:
    """Return the shape of the batch."""
    return tuple([size for size, _ in reversed(levels)])


def example_of(value: Any, flags: Sequence[bool], index: Index) -> Any:
    """Return the part of an argument that belongs to one example. `flags` mark the levels at which it has several."""
    place = tuple([i for i, flag in zip(index, reversed(flags), strict=True) if flag])
    return ops.np.getitem(value, place) if place else value


def examples_of(own: Arrays, args: Arrays, levels: Levels, index: Index) -> Arrays:
    """Return the arguments of the function for one example."""
    everywhere = (True,) * len(levels)
    return (*[example_of(value, everywhere, index) for value in own],
            *[example_of(arg, [flags[i] for _, flags in levels], index) for i, arg in enumerate(args)])


def described_example(index: Index) -> str:
    """Return the text that names the example of a batch that failed, for messages."""
    return f" (example {', '.join(map(str, index))} of the batch)" if index else ""


# --- arrays as vectors -----------------------------------------------------------------------------------------------


def raw(value: Any) -> Any:
    """Return the NumPy array that a kernel works on."""
    return np.asarray(value.array if isinstance(value, Tensor) else value)


def packed(values: Sequence[Any], n_batch: int = 0) -> Any:
    """Join arrays to one vector for each example."""
    parts = [array if array.ndim == n_batch + 1 else array.reshape((*array.shape[:n_batch], -1))
             for array in map(raw, values)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def joined(values: Sequence[Any], n_batch: int = 0) -> Any:
    """Join arrays to one new vector for each example, by operators."""
    return ops.np.concatenate(tuple([
        ops.np.reshape(value, (*value.shape[:n_batch], -1)) for value in values]), axis=-1)


def unpacked(vector: Any, likes: Sequence[Any], n_batch: int = 0) -> Arrays:
    """Split vectors into arrays with the shapes and dtypes of others, which have the same axes of the batch."""
    found, start = [], 0
    for like in likes:
        shape = tuple(like.shape)[n_batch:]
        size = math.prod(shape)
        part = vector[..., start: start + size]
        if len(shape) != 1:
            part = part.reshape((*vector.shape[:-1], *shape))
        if part.dtype.kind == "c" and like.dtype.kind != "c":       # complex because another array is
            part = part.real
        found.append(part if part.dtype == like.dtype else part.astype(like.dtype))
        start += size
    return tuple(found)


def fitted(who: str, values: Sequence[Any], likes: Sequence[Any]) -> Arrays:
    """Reshape the results of a function like its unknowns, which are as many numbers. Messages name it `who`."""
    shapes = [tuple(like.shape) for like in likes]
    if [tuple(value.shape) for value in values] == shapes:
        return tuple(values)
    check_count(who, values, likes)
    parts = [ops.np.reshape(value, (-1,)) for value in values]
    vector = parts[0] if len(parts) == 1 else ops.np.concatenate(tuple(parts))
    found, start = [], 0
    for shape in shapes:
        size = math.prod(shape)
        found.append(ops.np.reshape(ops.np.getitem(vector, slice(start, start + size)), shape))
        start += size
    return tuple(found)


def check_count(who: str, values: Sequence[Any], likes: Sequence[Any]) -> None:
    """Raise DispatchTypeError unless there are as many equations as unknowns."""
    n_found, n_unknown = [sum([math.prod(value.shape) for value in group]) for group in (values, likes)]
    if n_found != n_unknown:
        raise DispatchTypeError(f"{who} returns {n_found} numbers for {n_unknown} unknowns\n"
                                "return one equation for each unknown")


# --- linear functions ------------------------------------------------------------------------------------------------


def transposed(matvec: Flat, n: int) -> Flat:
    """Return the transpose of a function, linear in its first `n` arguments: (*cotangents, *args) -> cotangents."""
    known: Flat | None = getattr(matvec, "transpose", None)
    if known is not None:
        return known

    def back(*values: Any) -> Arrays:
        flags = (True,) * n + (False,) * (len(values) - n)
        pull = rules.gradients_of(matvec, flags, (True,) * n, "linear_solve")
        return pull(*[ops.np.zeros_like(value) for value in values[:n]], *values[n:], *values[:n])

    return paired(back, matvec)


def paired(function: Flat, transpose: Flat) -> Flat:
    """Store the transpose of a function on it, and return the function."""
    function.transpose = transpose      # type: ignore[attr-defined]
    return function


def jacobian_products(residual: Flat, n: int, is_symmetric: bool) -> tuple[Flat, Flat]:
    """Return functions for the products J v and v J with the Jacobian J of F: (*v, *x, *args) -> product."""
    def forward(*values: Any) -> Arrays:
        flags = (True,) * n + (False,) * (len(values) - 2 * n)
        return rules.jvp_of(residual, flags, Jvp("jvp"))(*values[n:], *values[:n])[n:]

    if is_symmetric:
        return paired(forward, forward), forward

    def back(*values: Any) -> Arrays:
        flags = (True,) * n + (False,) * (len(values) - 2 * n)
        return rules.gradients_of(residual, flags, (True,) * n, "grad")(*values[n:], *values[:n])

    return paired(forward, back), paired(back, forward)


def matrix_of(matvec: Flat, likes: Sequence[Any], args: Arrays, levels: Levels = ()) -> Any:
    """Return the matrix of a linear function for each example. Levels at which no argument differs have length 1."""
    n = len(likes)
    dtype = np.result_type(*[like.dtype for like in likes])
    shapes = [np.empty(tuple(like.shape)[len(levels):], like.dtype) for like in likes]
    size = sum([like.size for like in shapes])
    function = rules.batched(matvec, (True,) * n + (False,) * len(args), Vmap(size))
    varying = [(count, flags) for count, flags in levels if any(flags)]
    for count, flags in varying:
        function = rules.batched(function, (False,) * n + flags, Vmap(count))
    rows = joined(function(*unpacked(np.eye(size, dtype=dtype), shapes), *args), len(varying) + 1)
    if rows.shape[-1] != size:
        raise DispatchTypeError(f"linear_solve: the function returns {rows.shape[-1]} numbers for {size} unknowns\n"
                                "return arrays of the shapes of b")
    counts = [count if any(flags) else 1 for count, flags in reversed(levels)]
    return ops.np.reshape(ops.np.swapaxes(rows, -1, -2), (*counts, size, size))


# --- linear systems --------------------------------------------------------------------------------------------------


Loops = Callable[[Flat, Arrays, Arrays, Options], tuple[Arrays, Any]]
"""`loops(function, given, args, options)` calls operators. It returns results and whether they are a solution.

It raises NotImplementedError for options that it does not have.
"""


def _example_by_example(
    loops: Loops, function: Flat, given: Arrays, args: Arrays, levels: Levels, options: Options
) -> tuple[Arrays, Any]:
    """Return the results of loops for all examples, and whether all are solutions."""
    if not levels:
        return loops(function, given, args, options)
    *inner, (size, flags) = levels
    n = len(given)
    moving = (*given, *rules.chosen(args, flags))

    def of_one(*values: Any) -> Arrays:
        of_example, others = iter(values[n: len(moving)]), iter(values[len(moving):])
        args = tuple([next(of_example if flag else others) for flag in flags])
        results, is_solution = _example_by_example(loops, function, values[:n], args, tuple(inner), options)
        return (*results, is_solution)

    *results, are_solutions = MAP(of_one, moving, rules.chosen(args, [not flag for flag in flags]), size)
    return tuple(results), ops.np.all(are_solutions)


def solving_operator(name: str, loops: Loops) -> HigherOrderOperator:
    """Make an operator `name(function, given, args, levels, options)` whose results are like `given`.

    Plans run the loops. Where these find no solution, the plan calls the operator.
    """

    def examples(function: Flat, given: Arrays, args: Arrays, levels: Levels, options: Options) -> dict[int, Arrays]:
        return {0: examples_of(given, args, levels, (0,) * len(levels))}

    def planned(function: Flat, given: Arrays, args: Arrays, levels: Levels, options: Options) -> Arrays:
        if not options.get("is_planned", True) or not all(math.prod(value.shape) for value in given) or not all(
                any(flags) for _, flags in levels):
            raise NotImplementedError
        n = len(given)

        def in_python(*values: Any) -> Arrays:
            results: Arrays = operator(
                function, values[n: 2 * n], values[2 * n:], levels, {**options, "is_planned": False})
            return results

        results, are_solutions = _example_by_example(loops, function, given, args, levels, options)
        return COND(are_solutions, lambda *values: values[:n], in_python, (*results, *given, *args))

    operator = HigherOrderOperator(
        name, examples=examples, transforms=True, n_results=lambda function, given, *rest: len(given),
        planned_as=planned, is_quiet=True)
    rules.register_common_rules(operator)

    @operator.py_impl("Meta")
    def run_without_data(function: Flat, given: Arrays, args: Arrays, levels: Levels, options: Options) -> Arrays:
        """Return meta arrays like `given`."""
        return tuple(map(rules.without_data, given))

    @operator.py_impl(Vmap)
    def run_on_batches(
        interpreter: Vmap, function: Flat, given: Arrays, args: Arrays, levels: Levels, options: Options
    ) -> Arrays:
        """Add a level to the batch."""
        level = (interpreter.batch_size, tuple(rules.owned(args, interpreter)))
        values = rules.batches(given, interpreter, (True,) * len(given))
        results = operator(function, values, rules.below(args, interpreter), (*levels, level), options)
        return rules.wrapped(results, interpreter)

    return operator


def norm(vector: Any) -> Any:
    """Return the length of a vector."""
    return ops.np.sqrt(ops.np.sum(ops.np.square(ops.np.absolute(vector))))


def quotient(a: Any, b: Any) -> Any:
    """Return a / b, or nan if b is 0."""
    return a / ops.np.where(b == 0, np.nan, b)


def dense_loops(matvec: Flat, b: Arrays, args: Arrays, options: Options) -> tuple[Arrays, Any]:
    """Solve a system by its matrix."""
    vector = joined(b)
    if options["method"] != "dense" or vector.shape[0] > DENSE_SIZE:
        raise NotImplementedError
    x = unpacked(ops.np.linalg_solve(matrix_of(matvec, b, args), ops.np.expand_dims(vector, 1))[:, 0], b)
    return x, norm(joined(matvec(*x, *args)) - vector) <= MOST_MISSED * norm(vector)


MOST_MISSED = 1e-3      # of the right-hand side, by a solution
LINEAR_SOLVE = solving_operator("linear_solve", dense_loops)


@LINEAR_SOLVE.py_impl("CPU")
def solve(matvec: Flat, b: Arrays, args: Arrays, levels: Levels, options: Options) -> Arrays:
    """Solve the system of every example, each to its own tolerance."""
    n_batch = len(levels)
    if not sum([raw(value).size for value in b]):
        return tuple([np.zeros_like(raw(value)) for value in b])
    vector = packed(b, n_batch)
    who = options["who"]
    _check_finite(who, vector)
    system = over_levels(matvec, len(b), levels)

    def product(x: Any) -> Any:
        return packed(system(*unpacked(x, b, n_batch), *args), n_batch)

    if options["method"] == "dense":
        x = _dense_solution(who, matrix_of(matvec, b, args, levels), vector)
    else:
        iterate = conjugate_gradients if options["method"] == "cg" else gmres
        x = iterate(product, vector, options, _refuse)
    _check_solution(who, product(x), vector, x)
    return unpacked(x, b, n_batch)


def _dense_solution(who: str, matrix: Any, vector: Any) -> Any:
    n = vector.shape[-1]
    try:
        if matrix.size == n * n:        # one matrix for all examples
            columns = vector.reshape(-1, n).T
            return np.linalg.solve(matrix.reshape(n, n), columns).T.reshape(vector.shape)
        return np.linalg.solve(matrix, vector[..., None])[..., 0]
    except np.linalg.LinAlgError as error:
        index = _first_singular(np.broadcast_to(matrix, (*vector.shape[:-1], n, n)))
        raise np.linalg.LinAlgError(
            f"{who}: {error}{described_example(index)}\n{remedy_for(who)}") from None


REMEDIES = {
    "linear_solve": "the equation has no solution, or several: add a condition, or add a multiple of x to matvec",
    "root": "the root is not isolated, so it is not a differentiable function of parameters: add an equation",
    "minimize": "the minimum is not isolated, so it is not a differentiable function of parameters: regularize fun",
    "fixed_point": "the fixed point is not isolated, so it is not a differentiable function of parameters",
}


OTHER_REMEDY = ("the solution is not a differentiable function of parameters: it is not isolated, or more constraints "
                "are active than determine it")
OTHER_LIMIT = "change tolerances and limits"


def remedy_for(who: str) -> str:
    return REMEDIES.get(who, OTHER_REMEDY)


def _first_singular(matrices: Any) -> Index:
    for index in np.ndindex(matrices.shape[:-2]):
        try:
            np.linalg.inv(matrices[index])
        except np.linalg.LinAlgError:
            return index
    return ()


def _check_finite(who: str, vector: Any) -> None:
    bad = ~np.isfinite(vector).all(axis=-1)
    if bad.any():
        raise ValueError(f"{who}: array must not contain infs or NaNs{described_example(_first(bad))}\n"
                         "the right-hand side of a linear system has some: check b, or the incoming gradient")


def _check_solution(who: str, found: Any, vector: Any, x: Any) -> None:
    """Raise ConvergenceError if a solution does not satisfy the equations, for example if the function is nonlinear."""
    misses = np.linalg.norm(found - vector, axis=-1)
    scale = np.linalg.norm(vector, axis=-1)
    bad = ~(misses <= MOST_MISSED * scale)
    if bad.any():
        index = _first(bad)
        remedy = ("the function is not linear, or close to singular: check that matvec(x + y) equals "
                  "matvec(x) + matvec(y)")
        raise ConvergenceError(
            f"{who}: the solution misses the right-hand side by {misses[index]:.2g} of {scale[index]:.2g}"
            f"{described_example(index)}\n{remedy if who == 'linear_solve' else remedy_for(who)}")


def _refuse(options: Options, problem: str, bad: Any) -> None:
    """Raise ConvergenceError for examples that are not solved."""
    who = options["who"]
    remedy = 'pass another method ("gmres", "dense"), a larger maxiter, or a larger rtol'
    raise ConvergenceError(f"{who}: {problem}{described_example(_first(bad))}\n"
                           f"{remedy if who == 'linear_solve' else remedy_for(who)}")


def _first(bad: Any) -> Index:
    """Return the index of the first example whose flag is set."""
    return tuple([int(i) for i in np.argwhere(bad)[0]]) if bad.ndim else ()


@LINEAR_SOLVE.py_impl(Jvp)
def solve_with_tangents(
    interpreter: Jvp, matvec: Flat, b: Arrays, args: Arrays, levels: Levels, options: Options
) -> Arrays:
    """Solve for tangents also: A x = b, so A dx = db - dA x."""
    n = len(b)
    tangents = rules.tangents_of(args, interpreter)
    flags = [tangent is not None for tangent in tangents]
    args_below = rules.below(args, interpreter)
    x = LINEAR_SOLVE(matvec, rules.below(b, interpreter), args_below, levels, options)
    right = rules.tangents_or_zeros(b, interpreter)
    if any(flags):
        moved = rules.jvp_of(over_levels(matvec, n, levels), (*(False,) * n, *flags), interpreter)(
            *x, *args_below, *rules.chosen(tangents, flags))[n:]
        right = [one - other for one, other in zip(right, moved, strict=True)]
    return rules.with_tangents(x, LINEAR_SOLVE(matvec, tuple(right), args_below, levels, options), interpreter)


@rules.recording_rule(LINEAR_SOLVE)
def solve_and_record(
    interpreter: Interpreter | None, matvec: Flat, b: Arrays, args: Arrays, levels: Levels, options: Options
) -> Arrays:
    """Solve below and record one node, whose backward pass solves the transposed system for b's gradient."""
    n = len(b)
    results = rules.wrapped(
        LINEAR_SOLVE(matvec, rules.below(b, interpreter), rules.below(args, interpreter), levels, options), interpreter)
    metas = [meta_of(result) for result in results]

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        x, args = saved[:n], saved[n:]
        back = matvec if options["symmetric"] else transposed(matvec, n)
        of_b = LINEAR_SOLVE(back, materialized(grads, metas), args, levels, options)
        of_args = ()
        if any(wanted[n:]):
            found = rules.gradients_of(over_levels(matvec, n, levels), (*(False,) * n, *wanted[n:]), (True,) * n,
                                       "linear_solve")
            of_args = found(*x, *args, *[ops.np.negative(part) for part in of_b])
        return (*rules.chosen(of_b, wanted[:n]), *of_args)

    rules.record(LINEAR_SOLVE, interpreter, (*b, *args), results, (*results, *args), pull)
    return results


# --- the implicit function theorem -----------------------------------------------------------------------------------


Solver = Callable[[Flat, Arrays, Arrays, Options], Arrays]
"""`solver(fun, x0, args, options)` works on NumPy arrays of one example. It raises ConvergenceError."""


def implicit_operator(
    name: str, residual: Callable[[Flat, int], Flat], solver: Solver, loops: Loops, *, is_symmetric: bool = False
) -> HigherOrderOperator:
    """Make the operator `name(fun, x0, args, levels, options)`, whose result x solves F(*x, *args) = 0.

    `residual(fun, n)` is F, a function of `n` unknowns and args. `is_symmetric` specifies that its Jacobian is
    symmetric. The solution does not depend on `x0`.
    """
    operator = solving_operator(name, loops)
    _register_solving(operator, solver)
    _register_derivatives(operator, residual, is_symmetric)
    operator.trust_rules()
    return operator


def _register_solving(operator: HigherOrderOperator, solver: Solver) -> None:
    """Register the rule of an implicit operator for arrays."""

    @operator.py_impl("CPU")
    def run(fun: Flat, x0: Arrays, args: Arrays, levels: Levels, options: Options) -> Arrays:
        """Solve example by example, so that each converges as it would without the others."""
        x0 = tuple(map(raw, x0))
        n, batch = len(x0), batch_of(levels)
        if not batch:
            return _solved(operator.name, solver, fun, x0, args, options, ())
        args = tuple(map(raw, args))
        results = [np.empty_like(value) for value in x0]
        for index in np.ndindex(batch):
            values = tuple(map(raw, examples_of(x0, args, levels, index)))
            found = _solved(operator.name, solver, fun, values[:n], values[n:], options, index)
            for result, value in zip(results, found, strict=True):
                result[index] = value
        return tuple(results)


def _register_derivatives(
    operator: HigherOrderOperator, residual: Callable[[Flat, int], Flat], is_symmetric: bool
) -> None:
    """Register the rules of an implicit operator for tangents and tapes, by systems with the residual's Jacobian."""

    def linear_options(x: Arrays, levels: Levels, who: str) -> Options:
        size = sum([math.prod(value.shape[len(levels):]) for value in x])
        iterative = "cg" if is_symmetric else "gmres"
        return {"who": who, "method": "dense" if size <= DENSE_SIZE else iterative, "symmetric": is_symmetric,
                "rtol": 1e-10, "atol": 0.0, "maxiter": None}

    def linear_levels(n: int, levels: Levels) -> Levels:
        return tuple([(size, (*(True,) * n, *flags)) for size, flags in levels])

    @operator.py_impl(Jvp)
    def run_with_tangents(
        interpreter: Jvp, fun: Flat, x0: Arrays, args: Arrays, levels: Levels, options: Options
    ) -> Arrays:
        """Solve for tangents also: F(x, args) = 0, so F_x dx = -F_args dargs."""
        n = len(x0)
        tangents = rules.tangents_of(args, interpreter)
        flags = [tangent is not None for tangent in tangents]
        args_below = rules.below(args, interpreter)
        x = operator(fun, rules.below(x0, interpreter), args_below, levels, options)
        if not any(flags):
            return rules.with_tangents(x, [None] * n, interpreter)
        function = residual(fun, n)
        moved = rules.jvp_of(over_levels(function, n, levels), (*(False,) * n, *flags), interpreter)(
            *x, *args_below, *rules.chosen(tangents, flags))[n:]
        forward, _ = jacobian_products(function, n, is_symmetric)
        moves = LINEAR_SOLVE(forward, tuple(map(ops.np.negative, moved)), (*x, *args_below), linear_levels(n, levels),
                             linear_options(x, levels, options.get("who", operator.name)))
        return rules.with_tangents(x, moves, interpreter)

    @rules.recording_rule(operator)
    def run_and_record(
        interpreter: Interpreter | None, fun: Flat, x0: Arrays, args: Arrays, levels: Levels, options: Options
    ) -> Arrays:
        """Solve below and record one node, whose backward pass solves one linear system, whichever method is used."""
        n = len(x0)
        results = rules.wrapped(
            operator(fun, rules.below(x0, interpreter), rules.below(args, interpreter), levels, options), interpreter)
        metas = [meta_of(result) for result in results]

        def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
            x, args = saved[:n], saved[n:]
            of_args = ()
            if any(wanted[n:]):
                function = residual(fun, n)
                _, back = jacobian_products(function, n, is_symmetric)
                sent = LINEAR_SOLVE(back, materialized(grads, metas), saved, linear_levels(n, levels),
                                    linear_options(x, levels, options.get("who", operator.name)))
                found = rules.gradients_of(over_levels(function, n, levels), (*(False,) * n, *wanted[n:]), (True,) * n,
                                           operator.name)
                of_args = found(*x, *args, *map(ops.np.negative, sent))
            return (*[ops.np.zeros_like(value) for value in rules.chosen(x, wanted[:n])], *of_args)

        rules.record(operator, interpreter, (*x0, *args), results, (*results, *args), pull)
        return results


def _solved(
    name: str, solver: Solver, fun: Flat, x0: Arrays, args: Arrays, options: Options, index: Index
) -> Arrays:
    """Solve one example. Raise ConvergenceError if the solver fails, or if the solution is not finite."""
    name = options.get("who", name)
    try:
        found = _with_known_method(name, solver, fun, x0, args, options)
        if not all(np.isfinite(value).all() for value in found):
            raise ConvergenceError("x is not finite")
    except ConvergenceError as error:
        raise ConvergenceError(f"{name}: {error}{described_example(index)}\n"
                               f"try another x0 or method, or {LIMITS.get(name, OTHER_LIMIT)}") from error.__cause__
    return tuple([np.asarray(value, start.dtype).reshape(start.shape)
                  for value, start in zip(found, x0, strict=True)])


def _with_known_method(
    name: str, solver: Solver, fun: Flat, x0: Arrays, args: Arrays, options: Options
) -> Arrays:
    try:
        return solver(fun, x0, args, options)
    except ValueError as error:
        if not str(error).startswith("Unknown solver"):
            raise
        raise ValueError(f"{name}: method is {options['method']!r}, which scipy.optimize.{name} does not have\n"
                         "pass a method that it documents, or leave it out") from None


LIMITS = {
    "root": 'change tol and options={"maxfev": ...}',
    "minimize": 'change tol and options={"maxiter": ...}',
    "fixed_point": "change xtol and maxiter",
}
