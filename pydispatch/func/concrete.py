"""`concrete_value` and `is_traced`: read the array under all transforms, and find out whether a value depends on them.

`concrete_value` is for printing and for decisions, not for computing. A value that `is_traced` cannot be converted to a
number or a NumPy array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import BatchedTensor, Shell, Tensor
from pydispatch._sites import describe_interpreter
from pydispatch.exceptions import DataDependentError
from pydispatch.ops import ops
from pydispatch.tensor import read_only, values_in_modes
from pydispatch.tree import tree_leaves, tree_map


def concrete_value(value: Any, *, batches: bool = False) -> Any:
    """Return the array under the tape and all transforms.

    Use it to print, to log, or to decide when to stop. The result is a constant: values computed from it have no
    derivative. Modes are notified through `on_conversion`.

    Parameters
    ----------
    value : array or pytree of arrays
        In a pytree every Tensor is replaced. Other leaves are returned unchanged.
    batches : bool, optional
        With True, the result for a batched value is the array of all examples, with one leading axis for each `vmap`,
        that of the outermost `vmap` first.

    Returns
    -------
    array or pytree of arrays
        NumPy arrays are read-only views.

    Raises
    ------
    DataDependentError
        If the value is batched and `batches` is False. Also if a trace is active and the value depends on its
        arguments, since the number would be the same in every run.
    NoDataError
        If the value has no data, such as a FakeTensor.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import func
    >>> def loss(x):
    ...     value = np.sum(x ** 2)
    ...     print(func.concrete_value(value))
    ...     return value
    >>> func.grad(loss)(numpy.array([1.0, 2.0]))
    5.0
    array([2., 4.])
    """
    return tree_map(lambda leaf: _array_of(leaf, batches) if isinstance(leaf, Tensor) else leaf, value)


def is_traced(value: Any) -> bool:
    """Return whether a value depends on a value that is being differentiated, batched or traced.

    Constants are not traced, including Tensors that a transform made of constants. Those convert to numbers and NumPy
    arrays.

    Parameters
    ----------
    value : object
        An array or a pytree.

    Returns
    -------
    bool
        True for a value computed from an argument of a running transform, or from an argument of a function that is
        being compiled or traced. True also for a value computed from a Tensor that requires grad, while the tape
        records. For a pytree, whether any leaf is traced.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import func
    >>> def loss(x):
    ...     print(func.is_traced(x))
    ...     return np.sum(x)
    >>> func.grad(loss)(numpy.zeros(2))
    True
    array([1., 1.])
    >>> func.is_traced(numpy.zeros(2))
    False
    """
    return _is_traced(value) if isinstance(value, Tensor) else any(_is_traced(leaf) for leaf in tree_leaves(value))


def _is_traced(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (
        _core.is_followed(leaf) or any(mode.follows(leaf) for mode in _core.active_modes()))


def _array_of(tensor: Tensor, batches: bool) -> Any:
    known = values_in_modes(tensor, "a concrete value")
    if known is not None:
        return read_only(known)
    array = _core.unwrap_dead_value(tensor)
    if isinstance(array, Tensor) and (array.dispatches_to_python or _core.is_processed_in_python(array)):
        array = ops.np.detach(array)
    while isinstance(array, Tensor):
        if isinstance(array, BatchedTensor) and not (batches or _core.is_uniform_value(array)):
            raise _batch_error(array)
        array = _core.array_of(array)
    if isinstance(array, Shell):
        raise array.no_data("concrete_value")
    return read_only(array) if isinstance(array, np.ndarray) else array


def _batch_error(value: BatchedTensor) -> DataDependentError:
    return DataDependentError(
        f"concrete_value: the value is batched in {describe_interpreter(value.interpreter)}, so each example has its "
        "own value\n"
        "get the array of all examples: concrete_value(value, batches=True)")
