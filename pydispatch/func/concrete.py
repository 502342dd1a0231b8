"""`concrete_value`: the numbers at the bottom of a value, for people and for decisions, not for computing on."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import BatchedTensor, Shell, Tensor
from pydispatch.exceptions import DataDependentError
from pydispatch.ops import ops
from pydispatch.registry.messages import describe_interpreter
from pydispatch.tree import tree_map


def concrete_value(value: Any, *, batches: bool = False) -> Any:
    """The array at the bottom of a Tensor, under the tape and all transforms: to print, to log, to decide when to stop.

    It is a constant: what is computed from it has no derivative. Arrays of NumPy are read-only views. In a container
    every Tensor is replaced; what is none stays as it is. A value of `vmap` raises DataDependentError; with `batches`
    the array of all examples is given, with one axis for each `vmap` in front, the outermost first. Modes are told by
    `on_conversion`: in a trace, what depends on its arguments is refused, with DataDependentError, as it would be the
    same number in every run. What has no data, as a FakeTensor, raises NoDataError.
    """
    return tree_map(lambda leaf: _array_of(leaf, batches) if isinstance(leaf, Tensor) else leaf, value)


def _array_of(tensor: Tensor, batches: bool) -> Any:
    for mode in _core.active_modes():
        mode.on_conversion(tensor, "a concrete value")
    array = _core.settled(tensor)
    if isinstance(array, Tensor) and (array.dispatches_to_python or _core.is_processed_in_python(array)):
        array = ops.np.detach(array)
    while isinstance(array, Tensor):
        if isinstance(array, BatchedTensor) and not batches:
            raise _batch_error(array)
        array = _core.value_below(array, array.interpreter) if isinstance(array, BatchedTensor) else array.array
    if isinstance(array, Shell):
        raise array.no_data("concrete_value")
    if not isinstance(array, np.ndarray):
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _batch_error(value: BatchedTensor) -> DataDependentError:
    return DataDependentError(
        f"concrete_value: the value is batched in {describe_interpreter(value.interpreter)}, so each example has its "
        "own\n"
        "for the array of all examples: concrete_value(value, batches=True)")
