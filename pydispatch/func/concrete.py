"""`concrete_value`: the array under all transforms, for printing and for decisions, not for computing."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import BatchedTensor, Shell, Tensor
from pydispatch.exceptions import DataDependentError
from pydispatch.ops import ops
from pydispatch.registry.sites import describe_interpreter
from pydispatch.tensor import read_only
from pydispatch.tree import tree_map


def concrete_value(value: Any, *, batches: bool = False) -> Any:
    """Return the array under the tape and all transforms: to print, to log, to decide when to stop.

    It is a constant: what is computed from it has no derivative. NumPy arrays come as read-only views. In a pytree
    every Tensor is replaced; other leaves stay. A value of `vmap` raises DataDependentError; with `batches`, the result
    is the array of all examples, with one axis for each `vmap` first, the outermost leading. Modes learn of it through
    `on_conversion`: a trace refuses a value that depends on its arguments with DataDependentError, since it would be
    the same number in every run. A value without data, such as a FakeTensor, raises NoDataError.
    """
    return tree_map(lambda leaf: _array_of(leaf, batches) if isinstance(leaf, Tensor) else leaf, value)


def _array_of(tensor: Tensor, batches: bool) -> Any:
    for mode in _core.active_modes():
        mode.on_conversion(tensor, "a concrete value")
    array = _core.unwrap_dead_value(tensor)
    if isinstance(array, Tensor) and (array.dispatches_to_python or _core.is_processed_in_python(array)):
        array = ops.np.detach(array)
    while isinstance(array, Tensor):
        if isinstance(array, BatchedTensor) and not batches:
            raise _batch_error(array)
        array = _core.value_below(array, array.interpreter) if isinstance(array, BatchedTensor) else array.array
    if isinstance(array, Shell):
        raise array.no_data("concrete_value")
    return read_only(array) if isinstance(array, np.ndarray) else array


def _batch_error(value: BatchedTensor) -> DataDependentError:
    return DataDependentError(
        f"concrete_value: the value is batched in {describe_interpreter(value.interpreter)}, so each example has its "
        "own\n"
        "for the array of all examples: concrete_value(value, batches=True)")
