"""Sample custom operators, each for one difficulty of formulas, fakes or batching rules, and the list of them.

Every operator computes with NumPy, so it is opaque to transforms. Each exists in two namespaces: in `samples`, defined
by `library.custom_op` with formulas by position, and in `samples_by_name`, defined by `custom_ops` with formulas by
name.
Formulas and batching rules call operators only, so they can be differentiated and batched in turn.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from pydispatch._core import OpOverload, Tensor
from pydispatch.backends import MetaArray
from pydispatch.compat import custom_ops
from pydispatch.library import CustomOpDef, custom_op, get_ctx
from pydispatch.ops import ops
from tests.functions import repeated_in_front

__all__ = ["CUSTOM_OPERATORS", "CustomOperatorSample"]

Arguments = Callable[[], Iterator[tuple[tuple[Any, ...], dict[str, Any]]]]


@dataclass(frozen=True)
class CustomOperatorSample:
    """One operator in both namespaces, arguments for it, and what it supports."""

    definition: CustomOpDef
    arguments: Arguments                        # new raw arrays at every call, always the same values
    reference: Callable[..., Any]               # computes the results in another way
    differentiable: tuple[bool, ...] = (True,)  # which results are differentiable, none without a formula
    has_fake: bool = True                       # if not, the shape of the result depends on data
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.definition.name.name)

    @property
    def operator(self) -> OpOverload:
        """The operator whose formula is by position."""
        return self.definition.operator

    @property
    def by_name(self) -> OpOverload:
        """The operator whose formula is by name."""
        operator: OpOverload = getattr(ops.samples_by_name, self.name).default
        return operator


def also_by_name(
    definition: CustomOpDef, fake: Callable[..., Any], save: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None, output_differentiability: list[bool] | None = None,
) -> None:
    """Define the same operator in the other namespace."""
    qualname = f"samples_by_name::{definition.name.name}"
    custom_ops.custom_op(qualname, definition.function)
    custom_ops.impl(qualname, func=definition.function)
    custom_ops.impl_abstract(qualname, func=fake)
    if save is not None and backward is not None:
        custom_ops.impl_save_for_backward(qualname, func=save)
        custom_ops.impl_backward(qualname, output_differentiability, func=backward)


def logical_axis(axis: int, x: Any, batch: int | None) -> int:
    """Return the axis of an example, counted from the front."""
    return int(axis % (x.ndim - (batch is not None)))


def batch_last(x: Any, batch: int | None) -> Any:
    """Return the array with its batch axis last, of length 1 if it has none, so that broadcasting aligns the examples.
    """
    return ops.np.expand_dims(x, -1) if batch is None else ops.np.moveaxis(x, batch, -1)


def requires_grad(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad


# --- multiply: broadcasts, and the residuals depend on which gradients are needed -------------------------------------


@custom_op("samples::numpy_mul", mutates_args=())
def numpy_mul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    product: np.ndarray = x * y
    return product


@numpy_mul.register_fake
def numpy_mul_fake(x: Any, y: Any) -> Any:
    return ops.np.multiply(x, y)


def numpy_mul_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)
    ctx.save_for_forward(*inputs)


def numpy_mul_backward(ctx: Any, g: Any) -> Any:
    """Return gradients of the broadcast shape. The engine sums them to the shapes of the arguments."""
    x, y = ctx.saved_tensors
    needs_x, needs_y = ctx.needs_input_grad
    return numpy_mul(g, y) if needs_x else None, numpy_mul(g, x) if needs_y else None


def numpy_mul_jvp(ctx: Any, x_tangent: Any, y_tangent: Any) -> Any:
    x, y = ctx.saved_tensors
    terms = [numpy_mul(t, other) for t, other in ((x_tangent, y), (y_tangent, x)) if t is not None]
    return terms[0] + terms[1] if len(terms) == 2 else terms[0]


numpy_mul.register_autograd(numpy_mul_backward, setup_context=numpy_mul_setup, jvp=numpy_mul_jvp)


@numpy_mul.register_vmap
def numpy_mul_vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
    product = numpy_mul(batch_last(x, in_dims[0]), batch_last(y, in_dims[1]))
    return ops.np.moveaxis(product, -1, 0), 0


def save_mul(inputs: Any, output: Any) -> Any:
    needs_x, needs_y = requires_grad(inputs.x), requires_grad(inputs.y)
    return {"needs": (needs_x, needs_y), "x": inputs.x if needs_y else None, "y": inputs.y if needs_x else None}


def backward_mul(ctx: Any, saved: Any, g: Any) -> Any:
    mul = ops.samples_by_name.numpy_mul
    needs_x, needs_y = saved["needs"]
    return {"x": mul(g, saved["y"]) if needs_x else None, "y": mul(g, saved["x"]) if needs_y else None}


also_by_name(numpy_mul, numpy_mul_fake, save_mul, backward_mul)


# --- cube: a result that backward needs is itself differentiable -----------------------------------------------------


@custom_op("samples::numpy_cube", mutates_args=())
def numpy_cube(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x * x * x, (3 * x * x).astype(x.dtype)


@numpy_cube.register_fake
def numpy_cube_fake(x: Any) -> Any:
    return ops.np.empty_like(x), ops.np.empty_like(x)


def numpy_cube_setup(ctx: Any, inputs: Any, output: Any) -> None:
    (x,), (_, slope) = inputs, output
    ctx.save_for_backward(x, slope)
    ctx.save_for_forward(x, slope)


def numpy_cube_backward(ctx: Any, g: Any, g_slope: Any) -> Any:
    x, slope = ctx.saved_tensors
    return numpy_mul(g, slope) + 6 * numpy_mul(g_slope, x)


def numpy_cube_jvp(ctx: Any, tangent: Any) -> Any:
    x, slope = ctx.saved_tensors
    return numpy_mul(tangent, slope), 6 * numpy_mul(tangent, x)


numpy_cube.register_autograd(numpy_cube_backward, setup_context=numpy_cube_setup, jvp=numpy_cube_jvp)


@numpy_cube.register_vmap
def numpy_cube_vmap(info: Any, in_dims: Any, x: Any) -> Any:
    return numpy_cube(x), (in_dims[0], in_dims[0])


def save_cube(inputs: Any, output: Any) -> Any:
    return inputs.x, output[1]


def backward_cube(ctx: Any, saved: Any, g: Any, g_slope: Any) -> Any:
    x, slope = saved
    mul = ops.samples_by_name.numpy_mul
    return {"x": mul(g, slope) + 6 * mul(g_slope, x)}


also_by_name(numpy_cube, numpy_cube_fake, save_cube, backward_cube)


# --- multiply by a number: a keyword-only argument -------------------------------------------------------------------


@custom_op("samples::numpy_mul_scalar", mutates_args=())
def numpy_mul_scalar(x: np.ndarray, *, scalar: float) -> np.ndarray:
    return x * scalar


@numpy_mul_scalar.register_fake
def numpy_mul_scalar_fake(x: Any, *, scalar: float) -> Any:
    return ops.np.multiply(x, scalar)


def numpy_mul_scalar_setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.scalar = keyword_only_inputs["scalar"]


def numpy_mul_scalar_backward(ctx: Any, g: Any) -> Any:
    return numpy_mul_scalar(g, scalar=ctx.scalar)


numpy_mul_scalar.register_autograd(
    numpy_mul_scalar_backward, setup_context=numpy_mul_scalar_setup, jvp=numpy_mul_scalar_backward)


@numpy_mul_scalar.register_vmap
def numpy_mul_scalar_vmap(info: Any, in_dims: Any, x: Any, *, scalar: float) -> Any:
    return numpy_mul_scalar(x, scalar=scalar), in_dims[0]


def save_mul_scalar(inputs: Any, output: Any) -> Any:
    return inputs.scalar


def backward_mul_scalar(ctx: Any, saved: Any, g: Any) -> Any:
    return {"x": ops.samples_by_name.numpy_mul_scalar(g, scalar=saved)}


also_by_name(numpy_mul_scalar, numpy_mul_scalar_fake, save_mul_scalar, backward_mul_scalar)


# --- take along an axis: arrays of integers among the arguments ------------------------------------------------------


@custom_op("samples::numpy_take", mutates_args=())
def numpy_take(x: np.ndarray, ind: np.ndarray, ind_inv: np.ndarray, dim: int) -> np.ndarray:
    """Return elements of x along an axis, at `ind`, a permutation of each line. `ind_inv` is its inverse."""
    return np.take_along_axis(x, ind, dim)


@numpy_take.register_fake
def numpy_take_fake(x: Any, ind: Any, ind_inv: Any, dim: int) -> Any:
    assert ind.dtype == ind_inv.dtype == np.int64
    return ops.np.empty_like(x)


def numpy_take_setup(ctx: Any, inputs: Any, output: Any) -> None:
    _, ind, ind_inv, ctx.dim = inputs
    ctx.save_for_backward(ind, ind_inv)
    ctx.save_for_forward(ind, ind_inv)


def numpy_take_backward(ctx: Any, g: Any) -> Any:
    ind, ind_inv = ctx.saved_tensors
    return numpy_take(g, ind_inv, ind, ctx.dim), None, None, None


def numpy_take_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    ind, ind_inv = ctx.saved_tensors
    return numpy_take(tangent, ind, ind_inv, ctx.dim)


numpy_take.register_autograd(numpy_take_backward, setup_context=numpy_take_setup, jvp=numpy_take_jvp)


@numpy_take.register_vmap
def numpy_take_vmap(info: Any, in_dims: Any, x: Any, ind: Any, ind_inv: Any, dim: int) -> Any:
    axis = logical_axis(dim, x, in_dims[0])
    x, ind, ind_inv = (
        repeated_in_front(value, batch, info.batch_size)
        for value, batch in zip((x, ind, ind_inv), in_dims[:3], strict=True))
    return numpy_take(x, ind, ind_inv, axis + 1), 0


def save_take(inputs: Any, output: Any) -> Any:
    return {"ind": inputs.ind, "ind_inv": inputs.ind_inv, "dim": inputs.dim}


def backward_take(ctx: Any, saved: Any, g: Any) -> Any:
    x = ops.samples_by_name.numpy_take(g, saved["ind_inv"], saved["ind"], saved["dim"])
    return {"x": x, "ind": None, "ind_inv": None}


also_by_name(numpy_take, numpy_take_fake, save_take, backward_take)


# --- sort: results that are not differentiable -----------------------------------------------------------------------


@custom_op("samples::numpy_sort", mutates_args=())
def numpy_sort(x: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort x along an axis. Return also the permutation that sorts, and its inverse."""
    ind = np.argsort(x, axis=dim)
    return np.take_along_axis(x, ind, dim), ind, np.argsort(ind, axis=dim)


@numpy_sort.register_fake
def numpy_sort_fake(x: Any, dim: int) -> Any:
    return ops.np.empty_like(x), ops.np.empty_like(x, dtype="int64"), ops.np.empty_like(x, dtype="int64")


def numpy_sort_setup(ctx: Any, inputs: Any, output: Any) -> None:
    (_, ctx.dim), (_, ind, ind_inv) = inputs, output
    ctx.mark_non_differentiable(ind, ind_inv)
    ctx.save_for_backward(ind, ind_inv)
    ctx.save_for_forward(ind, ind_inv)


def numpy_sort_backward(ctx: Any, g: Any, *_: Any) -> Any:
    ind, ind_inv = ctx.saved_tensors
    return numpy_take(g, ind_inv, ind, ctx.dim), None


def numpy_sort_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    ind, ind_inv = ctx.saved_tensors
    return numpy_take(tangent, ind, ind_inv, ctx.dim), None, None


numpy_sort.register_autograd(numpy_sort_backward, setup_context=numpy_sort_setup, jvp=numpy_sort_jvp)


@numpy_sort.register_vmap
def numpy_sort_vmap(info: Any, in_dims: Any, x: Any, dim: int) -> Any:
    axis = logical_axis(dim, x, in_dims[0])
    return numpy_sort(repeated_in_front(x, in_dims[0], info.batch_size), axis + 1), (0, 0, 0)


def save_sort(inputs: Any, output: Any) -> Any:
    return [inputs.dim, output[1], output[2]]


def backward_sort(ctx: Any, saved: Any, g: Any, *_: Any) -> Any:
    dim, ind, ind_inv = saved
    return {"x": ops.samples_by_name.numpy_take(g, ind_inv, ind, dim)}


also_by_name(numpy_sort, numpy_sort_fake, save_sort, backward_sort, [True, False, False])


# --- a copy of another shape: the residual is not an array -----------------------------------------------------------


@custom_op("samples::numpy_view_copy", mutates_args=())
def numpy_view_copy(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    return x.reshape(shape).copy()


@numpy_view_copy.register_fake
def numpy_view_copy_fake(x: Any, shape: Sequence[int]) -> Any:
    return ops.np.copy(ops.np.reshape(x, shape))


def numpy_view_copy_setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.to_shape = inputs
    ctx.from_shape = x.shape


def numpy_view_copy_backward(ctx: Any, g: Any) -> Any:
    return numpy_view_copy(g, ctx.from_shape), None


def numpy_view_copy_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    return numpy_view_copy(tangent, ctx.to_shape)


numpy_view_copy.register_autograd(
    numpy_view_copy_backward, setup_context=numpy_view_copy_setup, jvp=numpy_view_copy_jvp)


@numpy_view_copy.register_vmap
def numpy_view_copy_vmap(info: Any, in_dims: Any, x: Any, shape: Sequence[int]) -> Any:
    return numpy_view_copy(repeated_in_front(x, in_dims[0], info.batch_size), (info.batch_size, *shape)), 0


def save_view_copy(inputs: Any, output: Any) -> Any:
    return inputs.x.shape


def backward_view_copy(ctx: Any, saved: Any, g: Any) -> Any:
    return {"x": ops.samples_by_name.numpy_view_copy(g, saved)}


also_by_name(numpy_view_copy, numpy_view_copy_fake, save_view_copy, backward_view_copy)


# --- pieces of an array: a list of results ---------------------------------------------------------------------------


@custom_op("samples::numpy_split_copy", mutates_args=())
def numpy_split_copy(x: np.ndarray, sections: Sequence[int], dim: int) -> list[np.ndarray]:
    """Return the pieces of x between these indices of an axis, copied."""
    return [piece.copy() for piece in np.split(x, sections, dim)]


@numpy_split_copy.register_fake
def numpy_split_copy_fake(x: Any, sections: Sequence[int], dim: int) -> Any:
    return [ops.np.copy(piece) for piece in ops.np.split(x, sections, dim)]


def numpy_split_copy_setup(ctx: Any, inputs: Any, output: Any) -> None:
    _, ctx.sections, ctx.dim = inputs


def numpy_split_copy_backward(ctx: Any, grads: Any) -> Any:
    return numpy_cat(grads, ctx.dim), None, None


def numpy_split_copy_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    return numpy_split_copy(tangent, ctx.sections, ctx.dim)


numpy_split_copy.register_autograd(
    numpy_split_copy_backward, setup_context=numpy_split_copy_setup, jvp=numpy_split_copy_jvp)


@numpy_split_copy.register_vmap
def numpy_split_copy_vmap(info: Any, in_dims: Any, x: Any, sections: Sequence[int], dim: int) -> Any:
    axis = logical_axis(dim, x, in_dims[0])
    return numpy_split_copy(repeated_in_front(x, in_dims[0], info.batch_size), sections, axis + 1), 0


def save_split_copy(inputs: Any, output: Any) -> Any:
    return inputs.dim


def backward_split_copy(ctx: Any, saved: Any, grads: Any) -> Any:
    return {"x": ops.samples_by_name.numpy_cat(grads, saved)}


also_by_name(numpy_split_copy, numpy_split_copy_fake, save_split_copy, backward_split_copy)


@custom_op("samples::numpy_split_copy_with_int", mutates_args=())
def numpy_split_copy_with_int(x: np.ndarray, sections: Sequence[int], dim: int) -> tuple[list[np.ndarray], int]:
    """Return the same, and the number of indices: a number beside a list of arrays."""
    return [piece.copy() for piece in np.split(x, sections, dim)], len(sections)


@numpy_split_copy_with_int.register_fake
def numpy_split_copy_with_int_fake(x: Any, sections: Sequence[int], dim: int) -> Any:
    return numpy_split_copy_fake(x, sections, dim), len(sections)


def numpy_split_copy_with_int_backward(ctx: Any, grads: Any, _: None) -> Any:
    return numpy_cat(grads, ctx.dim), None, None


def numpy_split_copy_with_int_jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
    return numpy_split_copy(tangent, ctx.sections, ctx.dim), None


numpy_split_copy_with_int.register_autograd(
    numpy_split_copy_with_int_backward, setup_context=numpy_split_copy_setup, jvp=numpy_split_copy_with_int_jvp)


@numpy_split_copy_with_int.register_vmap
def numpy_split_copy_with_int_vmap(info: Any, in_dims: Any, x: Any, sections: Sequence[int], dim: int) -> Any:
    axis = logical_axis(dim, x, in_dims[0])
    pieces, n = numpy_split_copy_with_int(repeated_in_front(x, in_dims[0], info.batch_size), sections, axis + 1)
    return (pieces, n), (0, None)


def backward_split_copy_with_int(ctx: Any, saved: Any, grads: Any, _: None) -> Any:
    return {"x": ops.samples_by_name.numpy_cat(grads, saved)}


also_by_name(numpy_split_copy_with_int, numpy_split_copy_with_int_fake, save_split_copy, backward_split_copy_with_int,
             [True, False])


# --- concatenate: a list among the arguments -------------------------------------------------------------------------


@custom_op("samples::numpy_cat", mutates_args=())
def numpy_cat(xs: Sequence[np.ndarray], dim: int) -> np.ndarray:
    """Return arrays of one dtype, concatenated along an axis. ValueError for an empty list."""
    if len({x.dtype for x in xs}) > 1:
        raise ValueError(f"numpy_cat: arrays of one dtype, found {', '.join(sorted(str(x.dtype) for x in xs))}")
    return np.concatenate(xs, dim)


@numpy_cat.register_fake
def numpy_cat_fake(xs: Sequence[Any], dim: int) -> Any:
    return ops.np.concatenate(xs, dim)


def ends_of_pieces(lengths: Sequence[int]) -> list[int]:
    """Return the indices between pieces of these lengths."""
    return [sum(lengths[: i + 1]) for i in range(len(lengths) - 1)]


def numpy_cat_setup(ctx: Any, inputs: Any, output: Any) -> None:
    xs, ctx.dim = inputs
    ctx.lengths = [x.shape[ctx.dim] for x in xs]


def numpy_cat_backward(ctx: Any, g: Any) -> Any:
    return numpy_split_copy(g, ends_of_pieces(ctx.lengths), ctx.dim), None


def numpy_cat_jvp(ctx: Any, tangents: Any, *_: Any) -> Any:
    return numpy_cat(tangents, ctx.dim)


numpy_cat.register_autograd(numpy_cat_backward, setup_context=numpy_cat_setup, jvp=numpy_cat_jvp)


@numpy_cat.register_vmap
def numpy_cat_vmap(info: Any, in_dims: Any, xs: Sequence[Any], dim: int) -> Any:
    batches, _ = in_dims
    axis = logical_axis(dim, xs[0], batches[0])
    return numpy_cat([repeated_in_front(x, d, info.batch_size) for x, d in zip(xs, batches, strict=True)], axis + 1), 0


def save_cat(inputs: Any, output: Any) -> Any:
    return [x.shape[inputs.dim] for x in inputs.xs], inputs.dim


def backward_cat(ctx: Any, saved: Any, g: Any) -> Any:
    lengths, dim = saved
    return {"xs": ops.samples_by_name.numpy_split_copy(g, ends_of_pieces(lengths), dim)}


also_by_name(numpy_cat, numpy_cat_fake, save_cat, backward_cat)


# --- results whose shape depends on data: no fake on arrays without data, no formula, no batching --------------------


@custom_op("samples::numpy_nonzero", mutates_args=())
def numpy_nonzero(x: np.ndarray) -> np.ndarray:
    """Return the indices of the elements that are not 0, one per row."""
    return np.stack(np.nonzero(x), axis=1)


@numpy_nonzero.register_fake
def numpy_nonzero_fake(x: Any) -> Any:
    return MetaArray((get_ctx().new_dynamic_size(), x.ndim), np.int64)    # type: ignore[union-attr]


also_by_name(numpy_nonzero, numpy_nonzero_fake)


@custom_op("samples::numpy_nms", mutates_args=())
def numpy_nms(boxes: np.ndarray, scores: np.ndarray, iou_threshold: numbers.Number) -> np.ndarray:
    """Return the boxes to keep, by descending score: each overlaps the former ones by at most a share of their union.

    A box is a row x1, y1, x2, y2 of pixels, both ends included.
    """
    areas = (boxes[:, 2] - boxes[:, 0] + 1) * (boxes[:, 3] - boxes[:, 1] + 1)
    order = np.argsort(-scores)
    kept = []
    while order.size:
        best, order = order[0], order[1:]
        kept.append(best)
        corner = np.maximum(boxes[best, :2], boxes[order, :2])
        extent = np.minimum(boxes[best, 2:], boxes[order, 2:]) - corner + 1
        common = np.maximum(extent, 0).prod(axis=1)
        order = order[common <= float(iou_threshold) * (areas[best] + areas[order] - common)]  # type: ignore[arg-type]
    return np.array(kept, np.int64)


@numpy_nms.register_fake
def numpy_nms_fake(boxes: Any, scores: Any, iou_threshold: Any) -> Any:
    return MetaArray((get_ctx().new_dynamic_size(),), np.int64)    # type: ignore[union-attr]


also_by_name(numpy_nms, numpy_nms_fake)


@numpy_nonzero.register_vmap
def numpy_nonzero_vmap(info: Any, in_dims: Any, x: Any) -> Any:
    raise NotImplementedError("numpy_nonzero: the examples of a batch have results of different shapes")


@numpy_nms.register_vmap
def numpy_nms_vmap(info: Any, in_dims: Any, boxes: Any, scores: Any, iou_threshold: Any) -> Any:
    raise NotImplementedError("numpy_nms: the examples of a batch have results of different shapes")


# --- arguments -------------------------------------------------------------------------------------------------------


def drawn(low: float, high: float, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Return arrays of these shapes with uniform random values, the same ones at every call."""
    generator = np.random.default_rng(0)
    return [generator.uniform(low, high, shape) for shape in shapes]


def numbers_to_cube() -> Iterator[Any]:
    yield (*drawn(0.8, 2, (1,)),), {}
    yield (*drawn(-2, 2, (2, 3)),), {}


def broadcast_factors() -> Iterator[Any]:
    yield (*drawn(0.9, 2, (4,), (3, 4)),), {}
    yield (*drawn(0.9, 2, (2, 1), (3,)),), {}


def array_and_number() -> Iterator[Any]:
    yield (*drawn(0.9, 2, (4,)),), {"scalar": 3.14}


def array_and_axis() -> Iterator[Any]:
    yield (*drawn(-1, 1, (3, 5)), 1), {}
    yield (*drawn(-1, 1, (2, 3, 2)), -2), {}


def array_and_permutation() -> Iterator[Any]:
    for (x, dim), _ in array_and_axis():
        order = np.argsort(x, axis=dim)
        yield (x, order, np.argsort(order, axis=dim), dim), {}


def some_zeros() -> Iterator[Any]:
    (x,) = drawn(-1, 1, (10,))
    yield (np.where(np.arange(10) % 3 == 0, 0, x),), {}
    yield (np.zeros((2, 3)),), {}


def array_and_shape() -> Iterator[Any]:
    yield (*drawn(-1, 1, (2, 3, 4)), (2, 12)), {}


def list_and_axis() -> Iterator[Any]:
    yield (drawn(-1, 1, (2, 3, 4), (4, 3, 4), (5, 3, 4)), 0), {}
    yield (drawn(-1, 1, (2, 1), (2, 3)), -1), {}


def array_and_sections() -> Iterator[Any]:
    yield (*drawn(-1, 1, (2, 9)), (1, 3, 6), 1), {}
    yield (*drawn(-1, 1, (4, 2)), (3,), -2), {}


def boxes_and_scores() -> Iterator[Any]:
    corners, sizes, scores = drawn(0, 1, (64, 2), (64, 2), (64,))
    boxes = np.concatenate([28 * corners, 28 * corners + 4 * sizes], axis=1)
    for threshold in (0.1, 0.7):
        yield (boxes, scores, threshold), {}


# --- references ------------------------------------------------------------------------------------------------------


def sorted_by_counting(x: Any, dim: int) -> Any:
    """Return the results of numpy_sort: ranks are counts of smaller elements."""
    dim %= x.ndim
    ranks = (np.expand_dims(x, dim) < np.expand_dims(x, dim + 1)).sum(dim + 1)
    return np.sort(x, dim), np.argsort(ranks, dim), ranks


def pieces_by_slicing(x: Any, sections: Sequence[int], dim: int) -> Any:
    ends = [0, *sections, x.shape[dim]]
    lines = np.moveaxis(x, dim, 0)
    return [np.moveaxis(lines[start:stop], 0, dim) for start, stop in pairwise(ends)]


def kept_by_pairs(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """Return the results of numpy_nms, box by box."""
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        if all(overlap(boxes[i], boxes[j]) <= iou_threshold for j in kept):
            kept.append(i)
    return np.array(kept)


def overlap(a: Any, b: Any) -> float:
    """Return the intersection of two boxes over their union."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]) + 1)
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]) + 1)
    areas = [(box[2] - box[0] + 1) * (box[3] - box[1] + 1) for box in (a, b)]
    return float(width * height / (sum(areas) - width * height))


CUSTOM_OPERATORS = [
    CustomOperatorSample(numpy_cube, numbers_to_cube, lambda x: (x**3, 3 * x**2), (True, True)),
    CustomOperatorSample(numpy_mul, broadcast_factors, np.multiply),
    CustomOperatorSample(numpy_mul_scalar, array_and_number, lambda x, *, scalar: np.multiply(x, scalar)),
    CustomOperatorSample(numpy_sort, array_and_axis, sorted_by_counting, (True, False, False)),
    CustomOperatorSample(numpy_take, array_and_permutation, lambda x, ind, ind_inv, dim: np.sort(x, dim)),
    CustomOperatorSample(numpy_view_copy, array_and_shape, lambda x, shape: np.resize(x, shape)),
    CustomOperatorSample(numpy_cat, list_and_axis, lambda xs, dim: np.hstack(xs) if dim == -1 else np.vstack(xs)),
    CustomOperatorSample(numpy_split_copy, array_and_sections, pieces_by_slicing),
    CustomOperatorSample(
        numpy_split_copy_with_int, array_and_sections,
        lambda x, sections, dim: (pieces_by_slicing(x, sections, dim), len(sections)), (True, False)),
    CustomOperatorSample(numpy_nonzero, some_zeros, np.argwhere, (), has_fake=False),
    CustomOperatorSample(numpy_nms, boxes_and_scores, kept_by_pairs, (), has_fake=False),
]
"""The samples; the docstring of each operator says what it is for."""
