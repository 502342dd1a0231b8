"""Operators that draw from a numpy.random.Generator, which they advance.

Under `vmap`, the `randomness` of the interpreter decides whether a draw raises an error, is one draw for all examples,
or one per example. Draws per example are the parts of one draw for the whole batch.

None for a parameter means NumPy's default, since a schema has no literals for arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import AnyDevice, MetaArray
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.randomness import check_shared, randomness_of
from pydispatch.exceptions import VmapError
from pydispatch.operators.batching import padded
from pydispatch.operators.creation import MADE
from pydispatch.operators.declare import declare, declare_writer, named, operators
from pydispatch.operators.meta import broadcast, broadcastable, dtype_of, shape_of

blank, pile, select, set_item, where, zeros, zeros_like = operators(
    "empty_like", "stack", "getitem", "setitem_", "where", "zeros", "zeros_like")

TAGS = ("random", "creation")


# --- kernels and meta kernels ----------------------------------------------------------------------------------------


def drawing(name, defaults=()):
    """Return a kernel that calls a method of Generator. A single draw is a NumPy scalar."""
    def kernel(generator, *args, dtype=None, **options):
        drawn = getattr(numpys(generator), name)(*filled(args, defaults), **options)
        if not isinstance(drawn, np.ndarray):
            drawn = np.asarray(drawn)[()]
        return drawn if dtype is None else drawn.astype(dtype, casting="same_kind", copy=False)
    return named(kernel, f"random_{name}")


def numpys(generator):
    """Return the generator with NumPy's own methods.

    Those of `pydispatch.numpy.random.Generator` call operators.
    """
    return getattr(generator, "numpys", generator)


def filled(args, defaults):
    """Return the arguments, with defaults for the first ones where they are None or missing."""
    passed = [default if value is None else value for value, default in zip(args, defaults, strict=False)]
    return *passed, *defaults[len(args):], *args[len(defaults):]


def drawing_meta(name, n_parameters, dtype_of_draws):
    """Return a meta kernel: the requested shape, else that of the parameters, and a dtype that holds the draws."""
    def kernel(generator, *args, dtype=None, endpoint=False):
        parameters, rest = args[:n_parameters], args[n_parameters:]
        size = rest[0] if rest else None
        check_real(name, parameters)
        shape = drawn_shape(name, map(shape_of, parameters), size)
        return MetaArray(shape, dtype_of_draws(name, rest[1] if len(rest) > 1 else dtype))
    return named(kernel, name)


def check_real(name, parameters):
    """Raise TypeError for parameters that are not real numbers."""
    for value in parameters:
        if value is not None and dtype_of(value).kind not in "biuf":
            raise TypeError(f"{name}: a parameter has dtype {dtype_of(value)}, expected real numbers\n"
                            "convert it: parameter.astype(float)")


def drawn_shape(name, shapes, size):
    """Return the shape of a draw, which is `size` if it is given.

    Raises ValueError if the parameters do not broadcast to it.
    """
    shapes = tuple(shapes)
    if size is None:
        return broadcast(shapes)
    for shape in shapes:
        if not broadcastable(shape, size):
            raise ValueError(f"{name}: a parameter has shape {shape}, which does not broadcast to size {size}\n"
                             "pass size=None for the shape of the parameters")
    return size


def cast_from(natural):
    """Return a function that gives the dtype of the result, for numbers drawn as `natural` and then converted."""
    natural = np.dtype(natural)

    def dtype_of_draws(name, dtype):
        if dtype is None:
            return natural
        if not np.can_cast(natural, dtype, "same_kind"):
            raise TypeError(f"{name}: dtype is {dtype}, but draws are {natural}\n"
                            "convert the result: result.astype(dtype)")
        return dtype
    return dtype_of_draws


def drawn_as_integers(name, dtype):
    if dtype is None:
        return np.dtype(int)
    if dtype.kind not in "biu":
        raise TypeError(f"{name}: dtype is {dtype}, expected an integer dtype\n"
                        "convert the result: result.astype(dtype)")
    return dtype


def permutation_meta(generator, x, axis=0):
    if isinstance(x, (int, np.integer)):
        return MetaArray((max(x, 0),), np.dtype(int))
    normalize_axis_index(axis, len(shape_of(x)))
    return MetaArray(shape_of(x), dtype_of(x))


def filling(name, defaults):
    """Return a function that fills an array by a method of Generator."""
    def write(a, generator, *parameters):
        np.copyto(a, getattr(numpys(generator), name)(*filled(parameters, defaults), size=a.shape))
    return write


def filling_meta(name):
    check_dtype = cast_from(float)

    def write(a, generator, *parameters):
        check_real(name, parameters)
        drawn_shape(name, map(shape_of, parameters), a.shape)
        check_dtype(name, a.dtype)
    return write


# --- under vmap ------------------------------------------------------------------------------------------------------


def example_shape(value, dim):
    """Return the shape of an argument for one example."""
    shape = tuple(getattr(value, "shape", ()))
    return shape if dim is None else shape[1:]


def aligned(parameters, in_dims, ndim):
    """Return parameters for the whole batch, shaped so that they broadcast with examples of `ndim` axes."""
    pairs = zip(parameters, in_dims, strict=True)
    return [value if dim is None else padded(value, ndim) for value, dim in pairs]


def called(op, args):
    """Call the operator on one value per argument of its schema."""
    pairs = list(zip(op.schema.arguments, args, strict=True))
    return op(*[value for argument, value in pairs if not argument.kw_only],
              **{argument.name: value for argument, value in pairs if argument.kw_only})


def vmap_of_draw(op, info, in_dims, *args):
    """Apply a draw to a batch. Its parameters come between the generator and the size."""
    if randomness_of(op, info) == "same":
        check_shared(op, info, in_dims, args)
        return called(op, args), None
    place = next(i for i, argument in enumerate(op.schema.arguments) if argument.name == "size")
    parameters, dims = args[1:place], in_dims[1:place]
    shape = drawn_shape(op.name.name, map(example_shape, parameters, dims), args[place])
    parameters = aligned(parameters, dims, len(shape))
    return called(op, (args[0], *parameters, (info.batch_size, *shape), *args[place + 1:])), 0


def vmap_of_permutation(op, info, in_dims, generator, x, axis, device):
    """Apply permutations of an array or of a range to a batch. Different ones are drawn in a loop."""
    dim = in_dims[1]
    if randomness_of(op, info) == "same":
        if dim is None:
            return op(generator, x, axis, device=device), None
        return op(generator, x, normalize_axis_index(axis, len(x.shape) - 1) + 1, device=device), 0
    if info.batch_size == 0:
        return no_permutations(x, dim), 0
    examples = [x if dim is None else select(x, i) for i in range(info.batch_size)]
    return pile([op(generator, example, axis, device=device) for example in examples]), 0


def no_permutations(x, dim):
    """Return the permutations of `x` in an empty batch."""
    if isinstance(x, (int, np.integer)):
        return zeros((0, max(x, 0)), dtype=np.dtype(int))
    return blank(x, shape=(0, *example_shape(x, dim)))


def vmap_of_fill(op, info, in_dims, a, generator, *parameters):
    """Apply a draw of the shape of `a`, or into `a`, to a batch."""
    dim, dims = in_dims[0], in_dims[2:]
    shape, writes = example_shape(a, dim), op.schema.is_mutable
    name = op.name.name.removesuffix("_")
    if randomness_of(op, info) == "different":
        if dim is None and writes:
            raise VmapError(
                f"operator {op.name}: argument 'a', of shape {shape}, is unbatched and cannot hold a draw for each "
                f"example of {describe_interpreter(info)}, whose randomness is 'different'\n"
                f"call ops.np.{name}, which returns a new array"
            )
        drawn_shape(name, map(example_shape, parameters, dims), shape)
        target = blank(a, shape=(info.batch_size, *shape)) if dim is None else a
        return op(target, generator, *aligned(parameters, dims, len(shape))), 0
    check_shared(op, info, (None, *in_dims[1:]), (a, generator, *parameters))
    if dim is None:
        return op(a, generator, *parameters), None
    if not writes:
        return op(blank(a, shape=shape), generator, *parameters), None
    if info.batch_size:
        set_item(a, Ellipsis, op(select(a, 0), generator, *parameters))
    return a, 0


# --- derivatives: of the result as a function of the parameters, for the numbers that were drawn ---------------------


def quotient(part, whole, otherwise):
    """Return part / whole, or `otherwise` where whole is 0.

    There the result does not determine the draw, and `otherwise` is the draw's expectation.
    """
    if type(whole) is float and whole:
        return part / whole
    nothing = whole == 0
    return where(nothing, otherwise, part / where(nothing, 1.0, whole))


def standardized(result, loc, scale, mean=0.0):
    """Return the draw with loc 0 and scale 1, of mean `mean`, that gave `result`."""
    return quotient(result if loc is None else result - loc, scale, mean)


def position(result, low, high):
    """Return the draw between 0 and 1 that gave `result`."""
    low, high = 0.0 if low is None else low, 1.0 if high is None else high
    return quotient(result - low, high - low, 0.5)


def overwritten(g):
    """Return the gradient, or the tangent, of an array that a draw overwrites."""
    return zeros_like(g)


# Formulas of reverse mode also serve in forward mode, where the first parameter is the tangent of the formula's
# parameter.


def by_location(mean):
    """Return the formulas of loc + scale * z, for a random number z of this mean."""
    return lambda g: g, lambda g, result, loc, scale: g * standardized(result, loc, scale, mean)


def by_scale(mean):
    """Return the formula of scale * z, for a random number z of this mean."""
    return lambda g, result, scale: g * quotient(result, scale, mean)


NORMAL = by_location(0.0)
UNIFORM = (
    lambda g, result, low, high: g * (1 - position(result, low, high)),
    lambda g, result, low, high: g * position(result, low, high),
)


# --- the operators ---------------------------------------------------------------------------------------------------


def distribution(name, parameters, dtype_of_draws, *, defaults=(), options=f"*, {MADE}", vjp=None, jvp=None):
    """Declare the operator that draws from a distribution by the method of Generator of that name.

    Without formulas, draws are constants.
    """
    arguments = [argument for argument in (parameters, "int[1]? size=None", options) if argument]
    meta = drawing_meta(f"random_{name}", parameters.count("Tensor"), dtype_of_draws)
    declare(f"random_{name}", ", ".join(["Generator generator", *arguments]), AnyDevice(drawing(name, defaults)),
            AnyDevice(meta), tags=TAGS, vjp=vjp, jvp=jvp, differentiable=vjp is not None, broadcasts=True,
            vmap=vmap_of_draw)


def fill(name, parameters, defaults, vjp):
    """Declare draws into an array, and draws of the shape and dtype of one, by the method of Generator of that name."""
    declare_writer(f"random_{name}_like", f"Tensor a, Generator generator, {parameters}", filling(name, defaults),
                   filling_meta(f"random_{name}_like_"), tags=TAGS, vjp=(overwritten, *vjp), broadcasts=True,
                   vmap=vmap_of_fill)


LIMITS = "Tensor? low=None, Tensor? high=None"
LOCATION = "Tensor? loc=None, Tensor? scale=None"

distribution("uniform", LIMITS, cast_from(float), defaults=(0.0, 1.0), vjp=UNIFORM)
distribution("normal", LOCATION, cast_from(float), defaults=(0.0, 1.0), vjp=NORMAL)
distribution("exponential", "Tensor? scale=None", cast_from(float), defaults=(1.0,), vjp=by_scale(1.0))
distribution("poisson", "Tensor? lam=None", cast_from(int), defaults=(1.0,))
distribution("binomial", "Tensor n, Tensor p", cast_from(int))
distribution("integers", "Tensor low, Tensor? high=None", drawn_as_integers,
             options="ScalarType? dtype=None, *, bool endpoint=False, Device? device=None")
declare("random_permutation", "Generator generator, Tensor x, int axis=0, *, Device? device=None",
        AnyDevice(drawing("permutation")), AnyDevice(permutation_meta), tags=TAGS, vmap=vmap_of_permutation)
fill("uniform", LIMITS, (0.0, 1.0), UNIFORM)
fill("normal", LOCATION, (0.0, 1.0), NORMAL)
