"""Functions that several batching rules share; each rule is part of the declaration of its operator.

A batch has its examples along axis 0. Functions of `(value, ndim, n)` are for mappings. They return the argument of the
operator for a batch of `n` examples with `ndim` axes. Cached results depend on numbers of axes only.
"""

from __future__ import annotations

from functools import lru_cache, partial
from math import prod

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch import _core
from pydispatch._core import MetaArray
from pydispatch._registry.operators import schema_of
from pydispatch.operators.declare import operators
from pydispatch.tree import tree_map

copy, getitem, reshape, transpose = operators("copy", "getitem", "reshape", "transpose")

ALL = slice(None)

# arguments that are axes


@lru_cache(maxsize=1024)
def axis_behind(axis, ndim, n):
    """Return the axis of the batch that corresponds to an axis of an example."""
    return normalize_axis_index(axis, ndim) + 1


@lru_cache(maxsize=1024)
def axes_behind(axes, ndim, n):
    """Return the axes of the batch that correspond to axes of an example. None means all of them."""
    return tuple([normalize_axis_index(axis, ndim) + 1 for axis in (range(ndim) if axes is None else axes)])


@lru_cache(maxsize=1024)
def order_behind(axes, ndim, n):
    """Convert a permutation of an example's axes to one of the batch's axes. None means the reversed order."""
    axes = range(ndim)[::-1] if axes is None else axes
    return 0, *[normalize_axis_index(axis, ndim) + 1 for axis in axes]


@lru_cache(maxsize=1024)
def new_axes_behind(axes, ndim, n):
    """Return the new axes of the batch's result that correspond to new axes of an example's result."""
    return axes_behind(axes, ndim + len(axes), n)


def shape_behind(shape, ndim, n):
    """Return the shape of a batch of arrays of this shape, or None if `shape` is None."""
    return None if shape is None else (n, *shape)


# arguments that are arrays


def rank(x):
    """Return the number of axes of an array, 0 for a number."""
    return getattr(x, "ndim", 0)


def reshaped(x, shape):
    return x.reshape(shape) if type(x) is np.ndarray else reshape(x, shape)


def permuted(x, order):
    return x.transpose(order) if type(x) is np.ndarray else transpose(x, order)


def batch_of(x, dim, n):
    """Return `x` as a batch of `n` examples. Without a batch axis it is repeated, as a view."""
    return x if dim == 0 else _core.expand(x, (n, *getattr(x, "shape", ())))


def batch_of_one(x, dim):
    """Return `x` as a batch. Without a batch axis it becomes a batch of one example, which broadcasts."""
    return x if dim == 0 else reshaped(x, (1, *x.shape))


def padded(batch, ndim):
    """Return a batch whose examples have at least `ndim` axes. Added axes have length 1 and come first."""
    missing = ndim + 1 - batch.ndim
    if missing <= 0:
        return batch
    shape = tuple(batch.shape)
    return reshaped(batch, (*shape[:1], *(1,) * missing, *shape[1:]))


def fitted(values, dim, ndim):
    """Reshape values to assign to a batch of targets with `ndim` axes, so that they broadcast example by example.

    As in NumPy, values may have more axes than a target if the extra axes have length 1. Otherwise, raise ValueError.
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
    """Reshape a batch to a batch of vectors, each with all elements of one example."""
    if batch.ndim == 2:
        return batch
    shape = tuple(batch.shape)
    return reshaped(batch, (shape[0], prod(shape[1:])))


def rows_along(batch, axis):
    """Return the batch and the axis of it that a function along one axis works on.

    Without an axis the examples are flattened. A scalar counts as a vector of one element.
    """
    if axis is None:
        return flat(batch), 1
    if batch.ndim == 1:
        return flat(batch), normalize_axis_index(axis, 1) + 1
    return batch, axis_behind(axis, batch.ndim - 1, None)


@lru_cache(maxsize=256)
def order_with_first(axis, ndim):
    """Return the permutation of `ndim` axes that moves `axis` to the front."""
    return axis, *[i for i in range(ndim) if i != axis]


def to_front(x, axis):
    """Move an axis of `x` to the front."""
    return permuted(x, order_with_first(axis, x.ndim)) if axis else x


@lru_cache(maxsize=256)
def order_with_first_at(axis, ndim):
    """Return the permutation of `ndim` axes that moves the first one to position `axis`."""
    return *range(1, axis + 1), 0, *range(axis + 1, ndim)


def from_front(x, axis):
    """Move the first axis of `x` to position `axis`."""
    return permuted(x, order_with_first_at(axis, x.ndim)) if axis else x


def each_example(n, ndim):
    """Return 0, 1, ..., n - 1, as a batch of numbers with `ndim` axes of length 1 each."""
    return np.arange(n).reshape((n, *(1,) * ndim))


def into(out):
    """Return the keyword argument `out` for a variant that has it. Rules receive it after the functional arguments."""
    return {"out": out[0]} if out else {}


def same_operator_on_batch(max_other_ndim):
    """Mark a rule that calls the operator on the batch with all other arguments unchanged.

    The mark applies where only the first argument is a batch and the others have at most `max_other_ndim` axes. The
    core then calls the operator directly, without the rule.
    """
    def mark(rule):
        rule.max_other_ndim = max_other_ndim
        return rule
    return mark


def with_options(op, out, dtype, casting):
    """Bind the options to the variant, without those at their defaults, which makes the call faster."""
    if not out and dtype is None and casting == "same_kind":
        return op
    return partial(op, dtype=dtype, casting=casting, **into(out))


# errors of batched calls


def example_error(op, interpreter, args, kwargs, error):
    """Return the error of the first example on which the operator raises, or None if it raises on none.

    The message of a failing batch then has the shapes and numbers of the call that the user wrote. A note names the
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
    """Return example `i` of a value of the interpreter.

    It is a copy if it is written to, and has no data if the batch is empty.
    """
    owned = _core.is_owned_by(leaf, interpreter)
    if owned and not interpreter.batch_size:
        return MetaArray(tuple(leaf.shape), leaf.dtype)
    if owned:
        leaf = getitem(_core.value_below(leaf, interpreter), (i, Ellipsis))
    return copy(leaf) if written else leaf


_core.connect(example_error=example_error)
