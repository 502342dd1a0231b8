"""What the batching rules of several operators share; a rule itself stands in the declaration of its operator.

A batch has the examples along axis 0. Functions of `(value, ndim, n)` are for mappings: they give the argument of the
operator on a batch of `n` examples of `ndim` axes. What is cached depends on numbers of axes only.
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
    """An axis of an example, as one of the batch."""
    return normalize_axis_index(axis, ndim) + 1


@lru_cache(maxsize=1024)
def axes_behind(axes, ndim, n):
    """Axes of an example, as those of the batch; None stands for all of them."""
    return tuple([normalize_axis_index(axis, ndim) + 1 for axis in (range(ndim) if axes is None else axes)])


@lru_cache(maxsize=1024)
def order_behind(axes, ndim, n):
    """A permutation of the axes of an example, as one of those of the batch; None stands for the reversed order."""
    axes = range(ndim)[::-1] if axes is None else axes
    return 0, *[normalize_axis_index(axis, ndim) + 1 for axis in axes]


@lru_cache(maxsize=1024)
def new_axes_behind(axes, ndim, n):
    """Axes that an example gets, as those that the batch gets."""
    return axes_behind(axes, ndim + len(axes), n)


def shape_behind(shape, ndim, n):
    """The shape of a batch of arrays of this shape, where one is given."""
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
    """`x` as a batch; what is the same for all of its `n` examples is repeated, as a view."""
    return x if dim == 0 else _core.expand(x, (n, *getattr(x, "shape", ())))


def batch_of_one(x, dim):
    """`x` as a batch; of one example, which broadcasts, where it is the same for all."""
    return x if dim == 0 else reshaped(x, (1, *x.shape))


def padded(batch, ndim):
    """A batch whose examples have `ndim` axes, or more; those that are added have one element and come first."""
    missing = ndim + 1 - batch.ndim
    if missing <= 0:
        return batch
    shape = tuple(batch.shape)
    return reshaped(batch, (*shape[:1], *(1,) * missing, *shape[1:]))


def fitted(values, dim, ndim):
    """Values to assign to a batch of targets of `ndim` axes, so that they broadcast to them example by example.

    They may have more axes than a target, of one element each, as in NumPy; else ValueError.
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
    """A batch of vectors of all elements of an example."""
    if batch.ndim == 2:
        return batch
    shape = tuple(batch.shape)
    return reshaped(batch, (shape[0], prod(shape[1:])))


def rows_along(batch, axis):
    """The batch and the axis of it that a function along one axis works on.

    Without an axis that is the only one of the flattened examples, and a scalar is a vector of one element to it.
    """
    if axis is None:
        return flat(batch), 1
    if batch.ndim == 1:
        return flat(batch), normalize_axis_index(axis, 1) + 1
    return batch, axis_behind(axis, batch.ndim - 1, None)


@lru_cache(maxsize=256)
def order_with_first(axis, ndim):
    """The permutation of `ndim` axes that puts one of them first."""
    return axis, *[i for i in range(ndim) if i != axis]


def to_front(x, axis):
    """`x` with the axis first."""
    return permuted(x, order_with_first(axis, x.ndim)) if axis else x


@lru_cache(maxsize=256)
def order_with_first_at(axis, ndim):
    """The permutation of `ndim` axes that puts the first of them at another place."""
    return *range(1, axis + 1), 0, *range(axis + 1, ndim)


def from_front(x, axis):
    """`x` with its first axis at another place."""
    return permuted(x, order_with_first_at(axis, x.ndim)) if axis else x


def each_example(n, ndim):
    """0, 1, ..., n - 1, as a batch of numbers that have `ndim` axes."""
    return np.arange(n).reshape((n, *(1,) * ndim))


def into(out):
    """The keyword arguments of a variant that takes `out`, of which a rule gets all arguments after its own."""
    return {"out": out[0]} if out else {}


def same_operator_on_batch(max_other_ndim):
    """Mark a rule that calls the operator on a batch and others as they stand: only the first argument is a batch.

    The others have at most so many axes. The core need not ask the rule then.
    """
    def mark(rule):
        rule.max_other_ndim = max_other_ndim
        return rule
    return mark


def with_options(op, out, dtype, casting):
    """The variant with these options given, as far as they are not the defaults: a call without is faster."""
    if not out and dtype is None and casting == "same_kind":
        return op
    return partial(op, dtype=dtype, casting=casting, **into(out))


# what is wrong with a call


def example_error(op, interpreter, args, kwargs, error):
    """The error that the operator raises on one of the examples, the first that does; None if all of them work.

    So a batch fails with the words, and the numbers, of the call that the user wrote.
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
            return error
    return None


def _example_of(leaf, interpreter, i, written):
    """Example `i` of a value of the interpreter, a copy where that is written to; without data where there is none."""
    owned = _core.is_owned_by(leaf, interpreter)
    if owned and not interpreter.batch_size:
        return MetaArray(tuple(leaf.shape), leaf.dtype)
    if owned:
        leaf = getitem(_core.value_below(leaf, interpreter), i)
    return copy(leaf) if written else leaf


_core.connect(example_error=example_error)
