"""Functions that several batching rules share; each rule is part of the declaration of its operator.

A batch has its examples along axis 0. Functions of `(value, ndim, n)` are for mappings: they return the argument of the
operator for a batch of `n` examples with `ndim` axes. Cached results depend on numbers of axes only.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch import _core
from pydispatch._core import MetaArray
from pydispatch.operators.declare import operators
from pydispatch.registry.operators import schema_of
from pydispatch.tree import tree_map

copy, getitem, reshape, transpose = operators("copy", "getitem", "reshape", "transpose")

ALL = slice(None)

# arguments that are axes


@lru_cache(maxsize=1024)
def axis_behind(axis, ndim, n):
    """An axis of an example, as an axis of the batch."""
    return normalize_axis_index(axis, ndim) + 1


@lru_cache(maxsize=1024)
def axes_behind(axes, ndim, n):
    """Axes of an example, as axes of the batch; None stands for all of them."""
    return tuple([normalize_axis_index(axis, ndim) + 1 for axis in (range(ndim) if axes is None else axes)])


@lru_cache(maxsize=1024)
def order_behind(axes, ndim, n):
    """A permutation of the axes of an example, as one of the axes of the batch; None stands for the reversed order."""
    axes = range(ndim)[::-1] if axes is None else axes
    return 0, *[normalize_axis_index(axis, ndim) + 1 for axis in axes]


@lru_cache(maxsize=1024)
def new_axes_behind(axes, ndim, n):
    """New axes of the result for one example, as new axes of the result for the batch."""
    return axes_behind(axes, ndim + len(axes), n)


def shape_behind(shape, ndim, n):
    """The shape of a batch of arrays of this shape, if a shape is given."""
    return None if shape is None else (n, *shape)


# arguments that are arrays


def rank(x):
    """The number of axes of an array or a number."""
    return getattr(x, "ndim", 0)


def reshaped(x, shape):
    return x.reshape(shape) if type(x) is np.ndarray else reshape(x, shape)


def permuted(x, order):
    return x.transpose(order) if type(x) is np.ndarray else transpose(x, order)


def batch_of(x, dim, n):
    """`x` as a batch of `n` examples; without a batch axis it is repeated, as a view."""
    return x if dim == 0 else _core.expand(x, (n, *getattr(x, "shape", ())))


def batch_of_one(x, dim):
    """`x` as a batch; without a batch axis it becomes a batch of one example, which broadcasts."""
    return x if dim == 0 else reshaped(x, (1, *x.shape))


def padded(batch, ndim):
    """A batch whose examples have at least `ndim` axes; added axes have length 1 and come first."""
    missing = ndim + 1 - batch.ndim
    if missing <= 0:
        return batch
    shape = tuple(batch.shape)
    return reshaped(batch, (*shape[:1], *(1,) * missing, *shape[1:]))


def fitted(values, dim, ndim):
    """Values to assign to a batch of targets with `ndim` axes, shaped so that they broadcast example by example.

    As in NumPy they may have more axes than a target if these have length 1; else ValueError.
    """
    shape = tuple(getattr(values, "shape", ()))
    batch, example = (shape[:1], shape[1:]) if dim == 0 else ((), shape)
    extra = len(example) - ndim
    if extra > 0:
        if prod(example[:extra]) != 1:
            raise ValueError(f"values of shape {example} do not broadcast to a target of {ndim} axes")
        return reshaped(values, batch + example[extra:])
    return padded(values, ndim) if dim == 0 else values


def flat(batch):
    """A batch of vectors, each with all elements of one example."""
    if batch.ndim == 2:
        return batch
    shape = tuple(batch.shape)
    return reshaped(batch, (shape[0], prod(shape[1:])))


def rows_along(batch, axis):
    """The batch, and its axis that a function along one axis works on.

    Without an axis the examples are flattened, and a scalar counts as a vector of one element.
    """
    if axis is None:
        return flat(batch), 1
    if batch.ndim == 1:
        return flat(batch), normalize_axis_index(axis, 1) + 1
    return batch, axis_behind(axis, batch.ndim - 1, None)


@lru_cache(maxsize=256)
def order_with_first(axis, ndim):
    """The permutation of `ndim` axes that moves one of them to the front."""
    return axis, *[i for i in range(ndim) if i != axis]


def to_front(x, axis):
    """`x` with this axis moved to the front."""
    return permuted(x, order_with_first(axis, x.ndim)) if axis else x


@lru_cache(maxsize=256)
def order_with_first_at(axis, ndim):
    """The permutation of `ndim` axes that moves the first one to another position."""
    return *range(1, axis + 1), 0, *range(axis + 1, ndim)


def from_front(x, axis):
    """`x` with its first axis moved to another position."""
    return permuted(x, order_with_first_at(axis, x.ndim)) if axis else x


def each_example(n, ndim):
    """0, 1, ..., n - 1, as a batch of numbers with `ndim` axes of length 1 each."""
    return np.arange(n).reshape((n, *(1,) * ndim))


def into(out):
    """The keyword argument `out` for a variant that has it; rules get it after the functional arguments."""
    return {"out": out[0]} if out else {}


def same_operator_on_batch(max_other_ndim):
    """Mark a rule that calls the operator on the batch with all other arguments unchanged.

    It applies where only the first argument is a batch and the others have at most `max_other_ndim` axes. The core then
    calls the operator directly, without the rule.
    """
    def mark(rule):
        rule.max_other_ndim = max_other_ndim
        return rule
    return mark


def with_options(op, out, dtype, casting):
    """The variant with these options, without those at their defaults: such a call is faster."""
    if not out and dtype is None and casting == "same_kind":
        return op
    return partial(op, dtype=dtype, casting=casting, **into(out))


# errors of batched calls


def example_error(op, interpreter, args, kwargs, error):
    """The error of the first example on which the operator raises; None if it raises on none.

    So the message of a failing batch has the shapes and numbers of the call that the user wrote. A note names the
    example.
    """
    mutable = {argument.name for argument in schema_of(op).arguments if argument.mutable}
    names = [argument.name for argument in schema_of(op).arguments]
    for i in range(max(interpreter.batch_size, 1)):
        def example(value, written, i=i):
            return tree_map(lambda leaf: _example_of(leaf, interpreter, i, written), value)
        try:
            op(*[example(value, name in mutable) for name, value in zip(names, args, strict=False)],
               **{name: example(value, name in mutable) for name, value in kwargs.items()})
        except Exception as error:
            error.add_note(f"in example {i} of a batch of {interpreter.batch_size}")
            return error
    return None


def _example_of(leaf, interpreter, i, written):
    """Example `i` of a value of the interpreter; a copy if it is written to; without data if the batch is empty."""
    owned = _core.is_owned_by(leaf, interpreter)
    if owned and not interpreter.batch_size:
        return MetaArray(tuple(leaf.shape), leaf.dtype)
    if owned:
        leaf = getitem(_core.value_below(leaf, interpreter), i)
    return copy(leaf) if written else leaf


_core.connect(example_error=example_error)
