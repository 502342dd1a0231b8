"""Sample autograd Functions, each for one difficulty of transforms or the engine, and the list of them.

Forward computes with NumPy, so it is opaque to transforms. Backward, jvp and vmap call operators, so they can be
differentiated and batched in turn. `FUNCTIONS` says what each sample supports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from pydispatch._core import Tensor
from pydispatch.autograd import Function, once_differentiable
from pydispatch.ops import ops

__all__ = ["FUNCTIONS", "FunctionSample"]


@dataclass(frozen=True)
class FunctionSample:
    """One Function, arguments for it, and what it supports."""

    function: type[Function]
    arguments: Callable[[], Iterator[tuple[Any, ...]]]      # new raw arrays at every call, always the same values
    reference: Callable[..., Any]                           # computes the same as forward, in NumPy
    vmap: Literal["own", "generated"] | None                # where the batching rule comes from
    double_backward: bool = True
    forward_mode: bool = True
    transforms: bool = True                                 # works under pydispatch.func
    in_place: bool = False                                  # overwrites its first argument
    deterministic: bool = True
    slope: float | None = None                              # the gradient that it returns, if that is not the true one

    @property
    def name(self) -> str:
        return self.function.__name__


class Stateless(Function):
    """A Function that saves nothing."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass


def normal(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    """Return an array of normal deviates for each shape, the same ones at every call."""
    generator = np.random.default_rng(2023)
    return tuple(generator.normal(size=shape) for shape in shapes)


def batch_in_front(value: Any, dim: int | None, ndim: int) -> Any:
    """Move the batch axis of `value` to the front, before `ndim` axes. Return an unbatched value unchanged."""
    if dim is None:
        return value
    value = ops.np.moveaxis(value, dim, 0)
    size, *shape = value.shape
    return value.reshape((size, *(1,) * (ndim - len(shape)), *shape))


def repeated_in_front(value: Any, dim: int | None, size: int) -> Any:
    """Move the batch axis of `value` to the front. Repeat an unbatched value `size` times along a new axis."""
    if dim is None:
        return ops.np.broadcast_to(value, (size, *value.shape))
    return ops.np.moveaxis(value, dim, 0)


def logical_ndim(value: Any, dim: int | None) -> int:
    """Return the number of axes that one example has."""
    ndim: int = value.ndim
    return ndim - (dim is not None)


def scattered(g: Any, shape: tuple[int, ...], key: Any) -> Any:
    """Return zeros of `shape`, made from `g` so that they are batched where `g` is, with `g` at `key`."""
    result = ops.np.zeros_like(g, shape=shape)
    result[key] = g
    return result


class MultiplyGenerated(Function):
    """The product of two arrays that broadcast. Its gradients have the broadcast shape, the engine sums them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return np.asarray(x) * np.asarray(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        needs_x, needs_y = ctx.needs_input_grad
        return Multiply.apply(g, y) if needs_x else None, Multiply.apply(g, x) if needs_y else None

    @staticmethod
    def jvp(ctx: Any, x_tangent: Any, y_tangent: Any) -> Any:
        x, y = ctx.saved_tensors
        return x_tangent * y + x * y_tangent


class Multiply(MultiplyGenerated):
    """The same with its own batching rule: examples of different ranks are aligned behind the batch axis."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
        ndim = max(map(logical_ndim, (x, y), in_dims))
        x, y = (batch_in_front(value, dim, ndim) for value, dim in zip((x, y), in_dims, strict=True))
        return Multiply.apply(x, y), 0


class CubeGenerated(Function):
    """x³ and 3x²: what backward needs is computed in forward, so it is an output, and differentiable."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        x = np.asarray(x)
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        (x,), (_, slope) = inputs, output
        ctx.save_for_backward(x, slope)
        ctx.save_for_forward(x, slope)

    @staticmethod
    def backward(ctx: Any, g: Any, g_slope: Any) -> Any:
        x, slope = ctx.saved_tensors
        return Multiply.apply(g, slope) + 6 * Multiply.apply(g_slope, x)

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        x, slope = ctx.saved_tensors
        return Multiply.apply(tangent, slope), 6 * Multiply.apply(tangent, x)


class Cube(CubeGenerated):
    """The same with its own batching rule: the batch axis stays where it is."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return Cube.apply(x), (in_dims[0], in_dims[0])


class ExponentialInPlace(Function):
    """Overwrites x with exp(x) and returns it: the object must stay the same through every interpreter."""

    @staticmethod
    def forward(x: Any) -> Any:
        array = x.numpy() if isinstance(x, Tensor) else x
        np.exp(array, out=array)
        return x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (output,) = ctx.saved_tensors
        return g * output

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        (output,) = ctx.saved_tensors
        return tangent * output

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any) -> Any:
        return ExponentialInPlace.apply(x), in_dims[0]


class CubeInNumPy(Function):
    """x³ with a NumPy array on ctx and NumPy in backward: first order only, and not under a transform."""

    @staticmethod
    def forward(x: Any) -> Any:
        return np.asarray(x) ** 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.x = np.asarray(inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        return 3 * np.asarray(g) * ctx.x**2


class TakeAlongGenerated(Function):
    """Elements of x at `indices` along an axis, with the inverse permutation for backward: arrays of integers in."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, indices: Any, inverse: Any, axis: int) -> Any:
        return np.take_along_axis(np.asarray(x), np.asarray(indices), axis)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, indices, inverse, ctx.axis = inputs
        ctx.save_for_backward(indices, inverse)
        ctx.save_for_forward(indices, inverse)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        indices, inverse = ctx.saved_tensors
        return TakeAlong.apply(g, inverse, indices, ctx.axis), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
        indices, inverse = ctx.saved_tensors
        return TakeAlong.apply(tangent, indices, inverse, ctx.axis)


class TakeAlong(TakeAlongGenerated):
    """The same with its own batching rule: all three arrays get a batch axis."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, indices: Any, inverse: Any, axis: int) -> Any:
        arrays = zip((x, indices, inverse), in_dims[:3], strict=True)
        x, indices, inverse = (repeated_in_front(value, dim, info.batch_size) for value, dim in arrays)
        return TakeAlong.apply(x, indices, inverse, axis + 1 if axis >= 0 else axis), 0


class SortGenerated(Function):
    """The sorted array, the permutation, and its inverse: two outputs of integers, and an argument that is no array."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, axis: int) -> Any:
        x = np.asarray(x)
        order = np.argsort(x, axis)
        return np.take_along_axis(x, order, axis), order, np.argsort(order, axis)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        (_, ctx.axis), (_, order, inverse) = inputs, output
        ctx.mark_non_differentiable(order, inverse)
        ctx.save_for_backward(order, inverse)
        ctx.save_for_forward(order, inverse)

    @staticmethod
    def backward(ctx: Any, g: Any, *_: Any) -> Any:
        order, inverse = ctx.saved_tensors
        return TakeAlong.apply(g, inverse, order, ctx.axis), None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, _: Any) -> Any:
        order, inverse = ctx.saved_tensors
        return TakeAlong.apply(tangent, order, inverse, ctx.axis), None, None


class Sort(SortGenerated):
    """The same with its own batching rule: the axis moves behind the batch axis."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, axis: int) -> Any:
        x = ops.np.moveaxis(x, in_dims[0], 0)
        return Sort.apply(x, axis + 1 if axis >= 0 else axis), (0, 0, 0)


class SelectGenerated(Function):
    """x[i]: zeros that backward makes must be batched where its cotangent is."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, i: int) -> Any:
        return np.array(np.asarray(x)[i])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.index = inputs
        ctx.shape = x.shape

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return scattered(g, ctx.shape, ctx.index), None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, _: Any = None) -> Any:
        return tangent[ctx.index]


class Select(SelectGenerated):
    """The same with its own batching rule: the batch axis goes behind the one that is selected from."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, i: int) -> Any:
        return Select.apply(ops.np.moveaxis(x, in_dims[0], 1), i), 0


class ScaleGradient(Stateless):
    """A copy whose gradient is 3.14 times the true one: shows that the user's formula is the one in use."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return np.array(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 3.14

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return tangent * 3.14


class ZeroGradient(Function):
    """A copy whose gradient is zeros, returned with more axes than the argument has: they are summed away."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return np.array(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return ops.np.zeros_like(g, shape=(3, 4, *ctx.shape))

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return ops.np.zeros_like(tangent)


class SelectByDefault(SelectGenerated):
    """x[index] where the index has a default: setup_context finds it among its inputs."""

    @staticmethod
    def forward(x: Any, index: Any = (2,)) -> Any:
        return np.array(np.asarray(x)[index])


class SineCosine(Function):
    """sin(x) and cos(x), saved as outputs. A cotangent of an unused output stays None."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return np.sin(np.asarray(x)), np.cos(np.asarray(x))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx: Any, g_sine: Any, g_cosine: Any) -> Any:
        sine, cosine = ctx.saved_tensors
        terms = ((g_sine, cosine), (g_cosine, -sine))
        products = [g * slope for g, slope in terms if g is not None]
        return sum(products) if products else None

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        sine, cosine = ctx.saved_tensors
        return tangent * cosine, -tangent * sine


class Identity(Stateless):
    """Returns its argument itself: the result must be another object all the same."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return tangent


class WeightedSum(Function):
    """1·a + 2·b + 3·c + … of a list of arrays: arrays in a pytree are arguments too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(arrays: Any) -> Any:
        return sum(n * np.asarray(array) for n, array in enumerate(arrays, 1))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.length = len(inputs[0])

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return [n * g for n in range(1, ctx.length + 1)]

    @staticmethod
    def jvp(ctx: Any, tangents: Any) -> Any:
        return sum(n * tangent for n, tangent in enumerate(tangents, 1))


class RandomMask(Function):
    """x where a random mask is True, and the mask: forward draws from a generator that is an argument."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, generator: Any) -> Any:
        mask = generator.random(x.shape) < 0.5
        return np.asarray(x) * mask, mask

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[1])
        ctx.save_for_forward(output[1])

    @staticmethod
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        return g * ctx.saved_tensors[0], None

    @staticmethod
    def jvp(ctx: Any, tangent: Any, _: Any) -> Any:
        return tangent * ctx.saved_tensors[0], None


class ScaleByCaptured(Stateless):
    """x times an array that is no argument: right for a constant, an error for a value of a live transform."""

    captured: ClassVar[Any] = np.array([2.0, 3.0, 4.0])

    @staticmethod
    def forward(x: Any) -> Any:
        return x * ScaleByCaptured.captured

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ScaleByCaptured.captured

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return tangent * ScaleByCaptured.captured


class SumOfSquares(Function):
    """Σx²: a gradient that is not elementwise, with as many examples as elements a wrong axis has the right shape."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        return np.sum(np.asarray(x) ** 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * g * x

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        (x,) = ctx.saved_tensors
        return (2 * x * tangent).sum()


class ComplexCube(Function):
    """z³ of complex numbers: backward conjugates, jvp does not."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Any) -> Any:
        return np.asarray(z) ** 3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (z,) = ctx.saved_tensors
        return g * (3 * z**2).conj()

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        (z,) = ctx.saved_tensors
        return tangent * (3 * z**2)


def one_array() -> Iterator[tuple[Any, ...]]:
    yield normal((3,))
    yield normal((2, 3))


def one_number() -> Iterator[tuple[Any, ...]]:
    yield normal(())
    yield from one_array()


def two_arrays() -> Iterator[tuple[Any, ...]]:
    yield normal((3,), (3,))
    yield normal((4,), (3, 4))
    yield normal((3, 1), ())


def array_and_axis() -> Iterator[tuple[Any, ...]]:
    for axis in (0, 1, -1):
        yield *normal((3, 4)), axis


def array_and_permutation() -> Iterator[tuple[Any, ...]]:
    for x, axis in array_and_axis():
        order = np.argsort(-x, axis)
        yield x, order, np.argsort(order, axis), axis


def array_and_index() -> Iterator[tuple[Any, ...]]:
    for shape, i in (((3,), 1), ((4, 2), -1), ((2, 3, 2), 0)):
        yield *normal(shape), i


def array_with_and_without_index() -> Iterator[tuple[Any, ...]]:
    yield normal((4, 2))
    yield *normal((4, 2)), (1,)
    yield *normal((4, 2)), (1, 0)


def lists_of_arrays() -> Iterator[tuple[Any, ...]]:
    yield (list(normal((3,))),)
    yield (list(normal((2, 2), (2, 2), (2, 2))),)


def array_and_generator() -> Iterator[tuple[Any, ...]]:
    yield *normal((5,)), np.random.default_rng(7)


def one_vector() -> Iterator[tuple[Any, ...]]:
    yield normal((3,))


def complex_arrays() -> Iterator[tuple[Any, ...]]:
    for shape in ((), (3,)):
        real, imaginary = normal(shape, shape)
        yield (real + 1j * imaginary,)


def sorted_with_permutations(x: Any, axis: int) -> tuple[Any, Any, Any]:
    """Return the results of Sort, computed in another way: ranks are counts of smaller elements."""
    axis %= x.ndim
    inverse = (np.expand_dims(x, axis) < np.expand_dims(x, axis + 1)).sum(axis + 1)
    return np.sort(x, axis), np.argsort(inverse, axis), inverse


FUNCTIONS = [
    FunctionSample(Cube, one_number, lambda x: (x * x * x, 3 * x * x), "own"),
    FunctionSample(CubeGenerated, one_number, lambda x: (x * x * x, 3 * x * x), "generated"),
    FunctionSample(ExponentialInPlace, one_array, np.exp, "own", in_place=True),
    FunctionSample(Multiply, two_arrays, np.multiply, "own"),
    FunctionSample(MultiplyGenerated, two_arrays, np.multiply, "generated"),
    FunctionSample(CubeInNumPy, one_number, lambda x: x * x * x, None,
                   double_backward=False, forward_mode=False, transforms=False),
    FunctionSample(Sort, array_and_axis, sorted_with_permutations, "own"),
    FunctionSample(SortGenerated, array_and_axis, sorted_with_permutations, "generated"),
    FunctionSample(TakeAlong, array_and_permutation, lambda x, order, _, axis: -np.sort(-x, axis), "own"),
    FunctionSample(TakeAlongGenerated, array_and_permutation, lambda x, order, _, axis: -np.sort(-x, axis),
                   "generated"),
    FunctionSample(Select, array_and_index, lambda x, i: np.take(x, i, axis=0), "own"),
    FunctionSample(SelectGenerated, array_and_index, lambda x, i: np.take(x, i, axis=0), "generated"),
    FunctionSample(ScaleGradient, one_array, np.copy, "generated", slope=3.14),
    FunctionSample(ZeroGradient, one_array, np.copy, "generated", slope=0.0),
    FunctionSample(SelectByDefault, array_with_and_without_index, lambda x, index=(2,): x[index], "generated"),
    FunctionSample(SineCosine, one_number, lambda x: (np.sin(x), np.cos(x)), "generated"),
    FunctionSample(Identity, one_array, np.copy, "generated"),
    FunctionSample(WeightedSum, lists_of_arrays,
                   lambda arrays: np.tensordot(np.arange(1.0, len(arrays) + 1), arrays, 1), "generated"),
    FunctionSample(RandomMask, array_and_generator,
                   lambda x, generator: (np.where(mask := generator.random(x.shape) < 0.5, x, 0.0), mask),
                   "generated", deterministic=False),
    FunctionSample(ScaleByCaptured, one_vector, lambda x: x * [2.0, 3.0, 4.0], None),
    FunctionSample(SumOfSquares, one_vector, lambda x: np.dot(x, x), "generated"),
    FunctionSample(ComplexCube, complex_arrays, lambda z: z * z * z, "generated"),
]
"""The samples; the docstring of each class says what it is for."""
