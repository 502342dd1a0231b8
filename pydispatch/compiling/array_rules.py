"""Lowering rules of operators whose loops go over rows or matrices: NumPy's, our own, and LAPACK's.

A rule gets the builder, the ArraySpec of the result, and the arguments of a call by name, as in `rules.py`.
"""

# tests: tests/compiling/test_array_rules.py
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.linalg import _umath_linalg as linalg

from pydispatch.compiling.builder import Builder, CannotLowerError, QuietSite, check_loop, common_shape
from pydispatch.compiling.rules import Rule, Shape, batch_strides, gathered, lowers, matmul, reshape
from pydispatch.compiling.steps import LoopStep
from pydispatch.compiling.values import Value
from pydispatch.operators import lapack
from pydispatch.operators.calculus import PADDING
from pydispatch.operators.products import arranged, products_of_call, taken_off
from pydispatch.operators.sorting import PARTITIONED

fourier: Any = getattr(np.fft, "_pocketfft_umath", None)
DOUBLE = np.dtype(np.float64)
POSITION = np.dtype(np.intp)
SINGULAR = "Singular matrix"
NOT_CONVERGED = "Eigenvalues did not converge"


def add_core_loop(
    builder: Builder, loop: tuple[Any, ...], operands: Sequence[Value], core: Sequence[int], sizes: Sequence[int],
    n_out: int = 1
) -> None:
    """Add a loop whose elements are arrays, along as many last axes of each operand as `core` has."""
    check_loop(loop)
    if not all(value.template.size for value in operands):
        raise CannotLowerError("it has no elements")
    if n_out == 1 and builder.can_fold(operands[:-1], operands[-1].shape, operands[-1].dtype):
        raise CannotLowerError("its arguments are known")
    templates = [value.template for value in operands]
    shape = common_shape([array.shape[:array.ndim - n] for array, n in zip(templates, core, strict=True)])
    builder.steps.append(LoopStep(
        loop, tuple(operands), shape,
        tuple([batch_strides(array, n, len(shape)) for array, n in zip(templates, core, strict=True)]),
        loop[1].__name__ if loop[0] == "ufunc" else loop[0], builder.site, core_sizes=tuple(sizes),
        core_strides=tuple([stride for array, n in zip(templates, core, strict=True)
                            for stride in array.strides[array.ndim - n:]]),
        n_out=n_out, is_elementwise=False))


# --- linear algebra --------------------------------------------------------------------------------------------------


def of_matrices(
    builder: Builder, spec: Any, function: np.ufunc | None, message: str | None, operands: Sequence[Any],
    core: Sequence[int], sizes: Sequence[int]
) -> Any:
    """Return the results of NumPy's loop over stacks of matrices, which it runs in double precision.

    An invalid operation raises LinAlgError with the message, unless the line is quiet: results then contain nan.
    """
    specs = spec if isinstance(spec, tuple) else (spec,)
    if function is None:
        raise CannotLowerError("this version of NumPy has no such loop")
    operands = [builder.as_value(value) for value in operands]
    is_complex = any(value.dtype.kind == "c" for value in operands)
    operands = [builder.cast(value, np.dtype(complex if is_complex else float)) for value in operands]
    results = [builder.fresh(one.shape, np.dtype(complex if one.dtype.kind == "c" else float)) for one in specs]
    types = tuple([value.dtype.num for value in (*operands, *results)])
    n_batch = max([len(value.shape) - n for value, n in zip(operands, core, strict=True)])
    core = (*core, *[len(one.shape) - n_batch for one in specs])
    loop: tuple[Any, ...] = ("ufunc", function, types)
    if message is not None and not isinstance(builder.site, QuietSite):
        loop = (*loop, message)
    add_core_loop(builder, loop, (*operands, *results), core, sizes, len(results))
    found = tuple([builder.cast(result, one.dtype) for result, one in zip(results, specs, strict=True)])
    return found if isinstance(spec, tuple) else found[0]


def _matrix_rule(function: np.ufunc, message: str | None) -> Rule:
    def rule(builder: Builder, spec: Any, a: Any, UPLO: str = "L") -> Any:  # NumPy's name
        if UPLO != "L":
            raise CannotLowerError("it reads the upper triangle")
        return of_matrices(builder, spec, function, message, [a], [2], a.shape[-1:])

    return rule


lowers("linalg_inv")(_matrix_rule(linalg.inv, SINGULAR))
lowers("linalg_det")(_matrix_rule(linalg.det, None))
lowers("linalg_slogdet")(_matrix_rule(linalg.slogdet, None))
lowers("linalg_eigh")(_matrix_rule(linalg.eigh_lo, NOT_CONVERGED))
lowers("linalg_eigvalsh")(_matrix_rule(linalg.eigvalsh_lo, NOT_CONVERGED))


@lowers("linalg_cholesky")
def cholesky(builder: Builder, spec: Any, a: Value, *, upper: bool = False) -> Value:
    """Lower to NumPy's loop for the lower triangle."""
    if upper:
        a = builder.viewed(a, lambda array: array.mT)
        if a.dtype.kind == "c":
            raise CannotLowerError("it reads the upper triangle of complex matrices")
    found: Value = of_matrices(builder, spec, linalg.cholesky_lo, "Matrix is not positive definite", [a], [2],
                               a.shape[-1:])
    return builder.copied(builder.viewed(found, lambda array: array.mT)) if upper else found


def _singular_value_rule(names: Sequence[str]) -> Rule:
    def rule(builder: Builder, spec: Any, a: Value, full_matrices: bool = True, hermitian: bool = False) -> Any:
        if hermitian:
            raise CannotLowerError("the matrices are Hermitian")
        shape = a.shape[-2:]
        return of_matrices(builder, spec, getattr(linalg, names[not full_matrices], None), "SVD did not converge", [a],
                           [2], (*shape, min(shape)))

    return rule


lowers("linalg_svd")(_singular_value_rule(["svd_f", "svd_s"]))
lowers("linalg_svdvals")(_singular_value_rule(["svd"]))


@lowers("linalg_solve")
def solve(builder: Builder, spec: Any, a: Any, b: Any) -> Value:
    """Lower to LAPACK with factors that other solutions share, or to NumPy's loop."""
    a, b = builder.as_value(a), builder.as_value(b)
    if lapack.is_solved_as_by_numpy(a.template, b.template) and not isinstance(builder.site, QuietSite):
        return solved_by_factors(builder, a, b, False)
    return solved_by_numpy(builder, spec, a, b)


@lowers("linalg_solve_with")
def solve_with(
    builder: Builder, spec: Any, a: Any, b: Any, *, transposed: bool = False, lower: bool = False
) -> Value:
    """Lower to LAPACK, or to NumPy's loop for the matrix that the flags describe."""
    a, b = builder.as_value(a), builder.as_value(b)
    if lapack.is_solved_here(a.template, b.template, lapack.SMALLEST_TRIANGLE if lower else lapack.SMALLEST):
        if not lower:
            return solved_by_factors(builder, a, b, transposed)
        return solved_in_place(builder, ("solve_lower", int(transposed)), (a,), b)
    if lower:
        kept = builder.constant(np.tri(a.shape[-1], dtype=bool))
        loop = "choose", a.dtype.itemsize
        check_loop(loop)
        a = builder.elementwise(loop, (kept, a, builder.constant(np.zeros((), a.dtype))),
                                builder.fresh(a.shape, a.dtype), "where")
    return solved_by_numpy(builder, spec, builder.viewed(a, lambda array: array.mT) if transposed else a, b)


def solved_by_numpy(builder: Builder, spec: Any, a: Value, b: Value) -> Value:
    """Return the solution by NumPy's loop."""
    is_vector = len(b.shape) == 1
    found: Value = of_matrices(
        builder, spec, linalg.solve1 if is_vector else linalg.solve, SINGULAR, [a, b], [2, 1 if is_vector else 2],
        b.shape if is_vector else (a.shape[-1], b.shape[-1]))
    return found


def solved_by_factors(builder: Builder, a: Value, b: Value, transposed: bool) -> Value:
    """Return the solution by the factors of a matrix, which are computed once."""
    assert lapack.LAPACK is not None
    key = "factors", *a.place
    factors = builder.known_result(key)
    if factors is None and a.constant is not None:
        known = lapack.factors_of(np.ascontiguousarray(a.constant))
        if known is None:
            raise CannotLowerError("a known matrix is singular")
        factors = builder.constant(known.lu.T), builder.constant(known.pivots)
    elif factors is None:
        n = len(a.template)
        factors = builder.fresh(a.shape, DOUBLE), builder.fresh((n,), np.dtype(lapack.LAPACK.integer))
        add_lapack(builder, ("factor", 0), (a, *factors), (n,), 2)
    builder.note_result(key, factors)
    return solved_in_place(builder, ("solve_factored", int(transposed)), factors, b)


def solved_in_place(builder: Builder, loop: tuple[Any, ...], matrix: tuple[Value, ...], b: Value) -> Value:
    """Return the solution by a routine that overwrites the right-hand sides, as columns that follow each other."""
    columns = builder.copied(b if len(b.shape) == 1 else builder.viewed(b, lambda array: array.T))
    add_lapack(builder, loop, (*matrix, columns, columns), (len(b.template), b.template.size // len(b.template)), 1)
    return columns if len(b.shape) == 1 else builder.copied(builder.viewed(columns, lambda array: array.T))


def add_lapack(
    builder: Builder, loop: tuple[Any, ...], operands: tuple[Value, ...], sizes: tuple[int, ...], n_out: int
) -> None:
    check_loop(loop)
    builder.steps.append(LoopStep(
        loop, operands, (), ((),) * len(operands), "solve", builder.site, core_sizes=sizes, n_out=n_out,
        is_elementwise=False))


@lowers("linalg_cofactor")
def cofactor(builder: Builder, spec: Any, a: Value) -> Value:
    """Lower to products of elements, for stacks of 2 by 2 and 3 by 3 matrices."""
    a = builder.cast(a, spec.dtype)
    if a.shape[-1] == 2:
        signs = builder.constant(np.array([[1, -1], [-1, 1]], a.dtype))
        return builder.ufunc(np.multiply, (builder.viewed(a, lambda array: array[..., ::-1, ::-1]), signs))
    if a.shape[-1] != 3:
        raise CannotLowerError("its way depends on the condition of the matrices")
    ahead, behind = builder.constant(np.array([1, 2, 0])), builder.constant(np.array([2, 0, 1]))
    last = len(a.shape) - 1
    x, y = (gathered(builder, a, positions, last - 1) for positions in (ahead, behind))
    one, other = (builder.ufunc(np.multiply, (
        gathered(builder, x, first, last), gathered(builder, y, second, last)))
        for first, second in ((ahead, behind), (behind, ahead)))
    return builder.ufunc(np.subtract, (one, other))


# --- Fourier transforms ----------------------------------------------------------------------------------------------


def _transform_rule(name: str) -> Rule:
    def rule(
        builder: Builder, spec: Any, a: Value, n: int | None = None, axis: int = -1, norm: str | None = None
    ) -> Value:
        """Lower to the loop that np.fft calls, with the same factor."""
        if fourier is None or spec.dtype.char not in "dD" or a.dtype.char not in ("d" if name == "rfft" else "dD"):
            raise CannotLowerError("it has another dtype, or this version of NumPy has no such loop")
        axis = normalize_axis_index(axis, len(a.shape))
        extent = spec.shape[axis]
        points = (a.shape[axis] if n is None else n) if name == "rfft" else extent
        factor = np.ones(())
        if norm == "ortho":
            factor = np.reciprocal(np.sqrt(points, dtype=DOUBLE))
        elif (norm == "forward") != (name in ("ifft", "irfft")):
            factor = np.reciprocal(points, dtype=DOUBLE)
        function = getattr(fourier, name if name != "rfft" else "rfft_n_odd" if points % 2 else "rfft_n_even")
        given = builder.cast(a, np.dtype(float if name == "rfft" else complex))
        result = builder.fresh(spec.shape, spec.dtype)
        source = builder.viewed(given, lambda array: np.moveaxis(array, axis, -1))
        target = result.viewed(np.moveaxis(result.template, axis, -1))
        loop = "ufunc", function, (given.dtype.num, DOUBLE.num, spec.dtype.num)
        add_core_loop(builder, loop, (source, builder.constant(factor), target), (1, 0, 1), (a.shape[axis], extent))
        return result

    return rule


for _name in ("fft", "ifft", "rfft", "irfft"):
    lowers(f"fft_{_name}")(_transform_rule(_name))


# --- sorting and searching -------------------------------------------------------------------------------------------

KINDS = {None: 0, "quicksort": 0, "mergesort": 2, "stable": 2}     # NumPy sorts by heaps in another way


def _sort_rule(name: str) -> Rule:
    def rule(
        builder: Builder, spec: Any, a: Any, axis: int | None = -1, kind: str | None = None, *,
        stable: bool | None = None,
    ) -> Value:
        """Lower to NumPy's function for rows, on the rows along the axis."""
        a = builder.as_value(a)
        if not a.shape or kind not in KINDS:
            raise CannotLowerError("it has a single element, or another kind of sort is requested")
        if axis is None:
            a, axis = reshape(builder, spec, a), 0
        axis = normalize_axis_index(axis, len(a.shape))
        rows = builder.viewed(a, lambda array: np.moveaxis(array, axis, -1))
        rows = builder.contiguous(rows) if name == "argsort" else rows
        result = builder.fresh(rows.shape, spec.dtype)
        add_core_loop(builder, (name, a.dtype.num, 2 if stable else KINDS[kind]), (rows, result), (1, 1),
                      (rows.shape[-1],))
        return builder.contiguous(builder.viewed(result, lambda array: np.moveaxis(array, -1, axis)))

    return rule


sort, argsort = _sort_rule("sort"), _sort_rule("argsort")
lowers("sort")(sort)
lowers("argsort")(argsort)


@lowers("argpartition")
def argpartition(builder: Builder, spec: Any, a: Any, kth: Any, axis: int | None = -1) -> Value:
    """Lower to the order of all elements, as the kernel does for few."""
    a = builder.as_value(a)
    if not a.shape or (a.template.size if axis is None else a.shape[axis]) >= PARTITIONED:
        raise CannotLowerError("a partition is faster")
    return argsort(builder, spec, a, axis)      # type: ignore[no-any-return]


@lowers("searchsorted")
def searchsorted(builder: Builder, spec: Any, a: Any, v: Any, side: str = "left") -> Value:
    """Lower to a binary search for each value."""
    a, v = builder.as_value(a), builder.as_value(v)
    dtype = np.result_type(a.dtype, v.dtype)
    if dtype.kind in "iu" and dtype != np.uint64:
        dtype = POSITION
    loop = "search", dtype.num, side == "right"
    check_loop(loop)
    result = builder.fresh(v.shape, POSITION)
    add_core_loop(builder, loop, (builder.cast(a, dtype), builder.cast(v, dtype), result), (1, 0, 0), a.shape)
    return result


@lowers("interval")
def interval(builder: Builder, spec: Any, x: Any, xp: Any) -> Value:
    """Lower to a search, and the position of the sample point before."""
    xp = builder.as_value(xp)
    if len(xp.shape) != 1:
        raise CannotLowerError("each row has its own sample points")
    found = builder.ufunc(np.subtract, (searchsorted(builder, spec, xp, x, "right"), 1))
    found = builder.ufunc(np.maximum, (found, 0))
    return builder.ufunc(np.minimum, (found, max(xp.shape[0] - 2, 0)))


@lowers("interp")
def interp(builder: Builder, spec: Any, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Value:
    """Lower to our own loop, which interpolates as NumPy does."""
    xp, fp = builder.as_value(xp), builder.as_value(fp)
    if len(xp.shape) != 1 or spec.dtype != DOUBLE:
        raise CannotLowerError("each row has its own sample points, or they are complex")
    x = builder.contiguous(builder.cast(builder.as_value(x), DOUBLE))     # each search begins at the one before
    xp, fp = builder.cast(xp, DOUBLE), builder.cast(fp, DOUBLE)
    ends = [builder.viewed(fp, lambda array, i=i: array[i, ...]) if end is None         # type: ignore[misc]
            else builder.as_value(end, DOUBLE) for i, end in ((0, left), (-1, right))]
    if any(end.shape for end in ends):
        raise CannotLowerError("the values outside are not numbers")
    result = builder.fresh(spec.shape, DOUBLE)
    add_core_loop(builder, ("interpolate",), (x, xp, fp, *ends, result), (0, 1, 1, 0, 0, 0), xp.shape)
    return result


# --- sums of products ------------------------------------------------------------------------------------------------


@lowers("einsum")
def einsum(
    builder: Builder, spec: Any, subscripts: str, x1: Any, x2: Any = None, others: Any = None, **options: Any
) -> Value:
    """Lower to products of matrices, where the kernel computes only these."""
    operands = [builder.as_value(x) for x in (x1, x2, *(others or ())) if x is not None]
    steps = products_of_call(subscripts, [value.template for value in operands], **options)
    if steps is None:
        raise CannotLowerError("NumPy's loop over all axes is faster, or it has no product of matrices")
    for positions, product in steps:
        left, right = taken_off(operands, positions)
        operands.append(_product(builder, spec.dtype, product, left, right))
    return builder.contiguous(operands[0])


def _arranged(builder: Builder, value: Value, order: Any, shape: Any) -> Value:
    """Return an operand as matrices: a view where NumPy makes one, since BLAS may round otherwise in other layouts."""
    try:
        return builder.viewed(value, lambda array: arranged(array, order, shape))
    except CannotLowerError:
        return reshape(builder, Shape(shape), builder.viewed(value, lambda array: arranged(array, order, None)))


def _product(builder: Builder, dtype: np.dtype[Any], product: Any, left: Value, right: Value) -> Value:
    """Return a sum of products as one of matrices. See `MatrixProduct.of`."""
    one, other = _arranged(builder, left, *product.left), _arranged(builder, right, *product.right)
    result = matmul(builder, Shape((*one.shape[:-1], other.shape[-1]), dtype), one, other)
    if product.shape is not None:
        result = reshape(builder, Shape(product.shape), result)
    return result if product.order is None else builder.viewed(result, lambda array: array.transpose(product.order))


# --- filters ---------------------------------------------------------------------------------------------------------

@lowers("scipy::ndimage_convolve")
def filtered(
    builder: Builder, spec: Any, input: Value, weights: Value, mode: str = "reflect", cval: float = 0.0,
    origin: Any = None, *, batch_ndim: int = 0,
) -> Value:
    """Lower to our own loop, which adds in SciPy's order, on the extended image."""
    shape = weights.shape
    if math.prod(shape[:batch_ndim]) != 1 or any(value.dtype != DOUBLE for value in (input, weights, spec)):
        raise CannotLowerError("each image has its own weights, or another dtype")
    wide = builder.contiguous(extended(builder, input, shape, mode, cval, origin, batch_ndim))
    strides = wide.template.strides
    offsets = [sum([k * stride for k, stride in zip(place, strides, strict=True)]) for place in np.ndindex(*shape)]
    is_line = len([m for m in shape[batch_ndim:] if m > 1]) <= 1
    first = builder.viewed(wide, lambda array: array[tuple(map(slice, spec.shape))])
    backwards = builder.viewed(builder.contiguous(weights), lambda array: array.reshape(-1)[::-1])
    result = builder.fresh(spec.shape, DOUBLE)
    add_core_loop(builder, ("filter", 8, (int(is_line), *offsets)), (first, backwards, result), (1, 1, 1),
                  (spec.shape[-1], len(offsets)))
    return result


@lowers("scipy::ndimage_transposed")
def filtered_back(
    builder: Builder, spec: Any, g: Value, weights: Value, mode: str = "reflect", origin: Any = None, *,
    batch_ndim: int = 0,
) -> Value:
    """Lower to a filter over the extended image, of which elements beyond the ends are added where they repeat some."""
    shape, ndim = weights.shape[batch_ndim:], len(g.shape)
    axes = tuple([axis for axis in range(batch_ndim, ndim) if weights.shape[axis] > 1])
    befores = [(m - 1) // 2 - shift for m, shift in zip(shape, origin or (0,) * len(shape), strict=True)]
    backwards = builder.viewed(weights, lambda array: np.flip(array, axes))
    if PADDING[mode] in (None, "wrap"):
        shifts = [(m - 1) // 2 - (m - 1 - before) for m, before in zip(shape, befores, strict=True)]
        return filtered(builder, spec, g, backwards, mode, 0.0, shifts, batch_ndim=batch_ndim)
    extents = [n + m - 1 for n, m in zip(g.shape[batch_ndim:], shape, strict=True)]
    wide = builder.copied(builder.viewed(builder.constant(np.zeros((), g.dtype)), lambda array: np.broadcast_to(
        array, (*g.shape[:batch_ndim], *extents))))
    extents_of_g = zip(g.shape[batch_ndim:], shape, strict=True)
    inner: tuple[Any, ...] = (..., *[slice(m // 2, m // 2 + n) for n, m in extents_of_g])
    builder.copy_into(wide.viewed(wide.template[inner]), g)
    found = filtered(builder, Shape(wide.shape, spec.dtype), wide, backwards, "constant", batch_ndim=batch_ndim)
    for axis in axes:
        before, n = befores[axis - batch_ndim], g.shape[axis]
        places = np.pad(np.arange(n), (before, weights.shape[axis] - 1 - before), PADDING[mode])  # type: ignore[call-overload]

        def layer(value: Value, i: int, axis: int = axis) -> Value:
            return value.viewed(np.moveaxis(value.template, axis, 0)[i, ...])

        result = builder.copied(builder.viewed(
            found, lambda array: array[(slice(None),) * axis + (slice(before, before + n),)]))  # noqa: B023
        for i in (*range(before), *range(before + n, len(places))):
            target = layer(result, places[i])
            builder.add_loop(("ufunc", np.add, (DOUBLE.num,) * 3), (target, layer(found, i), target), target.shape,
                             "add", is_elementwise=False)
        found = result
    return found


MOST_WEIGHED = 64       # weights. The kernel transforms more of them


@lowers("scipy::ndimage_weigh")
def weighed(
    builder: Builder, spec: Any, input: Value, g: Value, shape: Sequence[int], mode: str = "reflect",
    cval: float = 0.0, origin: Any = None, *, batch_ndim: int = 0,
) -> Value:
    """Lower to scalar products, as the kernel computes them."""
    if batch_ndim or math.prod(shape) > MOST_WEIGHED or any(value.dtype != DOUBLE for value in (input, g)):
        raise CannotLowerError("it filters a batch, has many weights, or has another dtype")
    wide = extended(builder, input, shape, mode, cval, origin, 0)
    flat, result, n = reshape(builder, Shape((g.template.size,)), g), builder.fresh(spec.shape, DOUBLE), g.template.size
    row = n // g.shape[0]
    for place in np.ndindex(*shape[1:]):
        window = (..., *[slice(k, k + extent) for k, extent in zip(place, g.shape[1:], strict=True)])
        shifted = builder.viewed(wide, lambda array, window=window: array[window])      # type: ignore[misc]
        shifted = reshape(builder, Shape((shifted.template.size,)), shifted)
        for k in range(shape[0]):
            part = builder.viewed(shifted, lambda array, k=k: array[k * row:k * row + n])       # type: ignore[misc]
            at = (-1 - k, *[-1 - i for i in place], ...)
            builder.copy_into(result.viewed(result.template[at]), matmul(builder, Shape((), DOUBLE), part, flat))
    return result


def extended(
    builder: Builder, value: Value, shape: Sequence[int], mode: str, cval: float, origin: Any, batch_ndim: int
) -> Value:
    """Return an image that is extended along each axis for weights of this shape."""
    for axis, shift in zip(range(batch_ndim, len(shape)), origin or (0,) * len(shape), strict=False):
        before = (shape[axis] - 1) // 2 - shift
        value = extended_along(builder, value, axis, before, shape[axis] - 1 - before, mode, cval)
    return value


def extended_along(
    builder: Builder, value: Value, axis: int, before: int, after: int, mode: str, cval: float
) -> Value:
    """Return an array that is extended at both ends of an axis."""
    n = value.shape[axis]
    if max(before, after) > n:
        raise CannotLowerError("the weights are longer than the image")
    if not before and not after:
        return value
    kind = PADDING[mode]
    if kind is not None:
        sources = np.pad(np.arange(n), (before, after), kind)   # type: ignore[call-overload]
        return gathered(builder, value, builder.constant(sources), axis)
    result = builder.fresh((*value.shape[:axis], before + n + after, *value.shape[axis + 1:]), value.dtype)
    outside = builder.as_value(cval, value.dtype)
    for start, stop, part in ((0, before, outside), (before, before + n, value), (before + n, None, outside)):
        place = (*[slice(None)] * axis, slice(start, stop))
        builder.copy_into(result.viewed(result.template[place]), part)
    return result
