"""`backward` and `grad`: from Tensors to the edges that the engine starts from and stops at.

Calls that need no conversion go straight to the engine, in C.
"""

# tests: tests/autograd/test_tape.py
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor, grad
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.hooks import after_leaf, kept
from pydispatch.autograd.values import as_raw_constant, as_tensor, one_beside
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.ops import ops

__all__ = ["backward", "grad"]

Tensors: TypeAlias = Tensor | Sequence[Tensor]


def backward(
    tensors: Tensors, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Add the gradients of `tensors` to the `grad` of every leaf, or only of `inputs`.

    Parameters
    ----------
    tensors : Tensor or sequence of Tensors
        The results to differentiate.
    grad_tensors : array or sequence, optional
        One cotangent per Tensor, of its shape. None means 1 if the Tensor has one real element.
    retain_graph : bool, optional
        Whether to keep the residuals, which are released otherwise. The default is `create_graph`.
    create_graph : bool, optional
        With True, the gradients can be differentiated again.
    inputs : Tensor or sequence of Tensors, optional
        The Tensors to accumulate gradients in, instead of all leaves.

    Raises
    ------
    AutogradError
        If a Tensor does not require grad, or if its residuals were released.

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> autograd.backward(np.sum(x ** 2))
    >>> x.grad
    Tensor([2., 4.])
    """
    outputs = _as_tuple(tensors)
    keep = create_graph if retain_graph is None else retain_graph
    interpreter, roots, gradients = _start(outputs, grad_tensors, create_graph)
    if interpreter is not None and interpreter.alive:
        raise AutogradError(f"backward() does not work on values of {interpreter.name}, which have no leaves\n"
                            "use autograd.grad, or differentiate with the transform")
    if inputs is None:
        _core.run_backward(roots, gradients, create_graph=create_graph, keep_graph=keep, inputs=None,
                           interpreter=interpreter)
        return
    wanted = _as_tuple(inputs)
    if not wanted:
        raise AutogradError("backward: inputs is an empty sequence\n"
                            "leave it out, or pass the Tensors whose grad to accumulate")
    edges = tuple([_edge_of_input(tensor, i) for i, tensor in enumerate(wanted)])
    found = _core.run_backward(roots, gradients, create_graph=create_graph, keep_graph=keep, inputs=edges,
                               interpreter=interpreter, runs_inputs=True)
    for tensor, gradient in zip(wanted, found, strict=True):
        if gradient is not None:
            _accumulate(tensor, gradient, create_graph)


def _accumulate(tensor: Tensor, gradient: Any, create_graph: bool) -> None:
    slot = _core.gradient_slot_of(tensor)
    with _core.accumulating:
        slot.grad = _core.below_transforms(_core.with_grad_mode, create_graph, kept, gradient, slot.grad)
    if slot.is_leaf and slot.hooks is not None:
        after_leaf(slot)


def grad_in_general(
    outputs: Tensors, inputs: Tensors, grad_outputs: Any, retain_graph: bool | None, create_graph: bool,
    allow_unused: bool | None, materialize_grads: bool,
) -> tuple[Tensor | None, ...]:
    """Compute `grad` for calls that need more than a run of the engine."""
    if materialize_grads and allow_unused is False:
        raise ValueError("materialize_grads returns zeros for unused inputs, so allow_unused cannot be False\n"
                         "leave allow_unused out")
    sources, wanted = _as_tuple(outputs), _as_tuple(inputs)
    keep = create_graph if retain_graph is None else retain_graph
    interpreter, roots, gradients = _start(sources, grad_outputs, create_graph)
    edges = tuple([_edge_of_input(tensor, i) for i, tensor in enumerate(wanted)])
    found = _core.run_backward(roots, gradients, create_graph=create_graph, keep_graph=keep, inputs=edges,
                               interpreter=interpreter)
    return grad_results(wanted, found, interpreter, create_graph, allow_unused, materialize_grads)


def grad_results(
    wanted: tuple[Tensor, ...], found: list[Any], interpreter: Any, create_graph: bool, allow_unused: bool | None,
    materialize_grads: bool,
) -> tuple[Tensor | None, ...]:
    """Return the gradients as the user gets them, or raise for an input that the outputs do not depend on."""
    results: list[Tensor | None] = []
    for i, (tensor, gradient) in enumerate(zip(wanted, found, strict=True)):
        if gradient is not None:
            results.append(_result(gradient, interpreter, create_graph))
        elif materialize_grads:
            results.append(_at(interpreter, ops.np.zeros_like, tensor.detach()))
        elif allow_unused:
            results.append(None)
        else:
            raise AutogradError(
                f"grad: one of the differentiated Tensors, at index {i}, appears to not have been used in the graph\n"
                "pass allow_unused=True to get None for it, or materialize_grads=True to get zeros"
            )
    return tuple(results)


def edges_at(interpreter: Any, values: Iterable[Any]) -> list[Any]:
    """Return the edge of each value that an active interpreter tracks, and None for other values."""
    return [_core.edge_of_tensor(value) if _core.is_tracked_at(value, interpreter) else None for value in values]


def gradients_of_inputs(
    interpreter: Any, edges: Iterable[Any], cotangents: Iterable[Any], inputs: tuple[Any, ...], *, keep: bool = False
) -> list[Any]:
    """Return the gradient for each input of a transform from cotangents of its results, None if no gradient arrives.

    `edges` has None for a result that depends on no input. `inputs` are the edges of the inputs. `keep` retains the
    graph.
    """
    pairs = [(edge, cotangent) for edge, cotangent in zip(edges, cotangents, strict=True) if edge is not None]
    if not pairs or not inputs:
        return [None] * len(inputs)
    roots, sent = zip(*pairs, strict=True)
    return _core.run_backward(roots, sent, create_graph=False, keep_graph=keep, inputs=inputs, interpreter=interpreter)


def gradients_in_interpreter(
    name: str, function: Callable[..., Sequence[tuple[Any, Any]]], values: Sequence[Any]
) -> list[Any]:
    """Return the gradient of each argument of a function at a separate interpreter, None where there is none.

    The function returns pairs of a result and its gradient. The interpreters below see all of this as operators.
    """
    interpreter = _core.Grad(name)

    def run() -> tuple[Any, ...]:
        entered = [_core.tracked_leaf(interpreter, value) for value in values]
        pairs = function(*entered)
        edges = edges_at(interpreter, [result for result, _ in pairs])
        return edges, [as_raw_constant(gradient) for _, gradient in pairs], tuple(map(_core.edge_of_tensor, entered))

    return gradients_of_inputs(interpreter, *_core.run_under(interpreter, run))


def _result(gradient: Any, interpreter: Any, create_graph: bool) -> Tensor:
    """Return a gradient in separate memory, as a Tensor of the interpreter."""
    tensor = _in_interpreter(gradient, interpreter)
    if not create_graph:
        return tensor
    if isinstance(tensor, _core.Wrapper):       # of a cotangent that is a value of another transform
        interpreter = tensor.interpreter
    copy: Tensor = _at(interpreter, _core.with_grad_mode, True, ops.np.copy, tensor)
    return copy


def _at(interpreter: Any, function: Any, *args: Any) -> Any:
    """Call a function so that its results are values of the interpreter. For the tape, run it below all transforms."""
    return _core.below_transforms(function, *args) if interpreter is None else function(*args)


def _in_interpreter(value: Any, interpreter: Any) -> Tensor:
    if interpreter is None or not interpreter.alive or _core.is_owned_by(value, interpreter):
        return as_tensor(value)
    wrapper: Tensor = _core.wrap_value_at(interpreter, value)
    return wrapper


def _as_tuple(tensors: Any) -> tuple[Tensor, ...]:
    sequence = tuple(tensors) if isinstance(tensors, Iterable) and not _core.is_array(tensors) else (tensors,)
    for i, tensor in enumerate(sequence):
        if not isinstance(tensor, Tensor):
            raise DispatchTypeError(f"expected Tensors, found {_core.a_type(tensor)} at index {i}\n"
                                    "only Tensors have gradients: Tensor(array, requires_grad=True)")
    return tuple([_without_vmap(tensor) for tensor in sequence])    # `tuple` would allocate twice for a `map`


def _without_vmap(tensor: Tensor) -> Tensor:
    """Return the Tensor on the tape for a value that all examples of a vmap share."""
    while _core.is_uniform_value(tensor) and isinstance(_core.array_of(tensor), Tensor):
        tensor = _core.array_of(tensor)
    return tensor


def _edge_of_input(tensor: Tensor, i: int) -> Any:
    if isinstance(tensor, _core.BatchedTensor):
        raise _no_graph(f"the differentiated Tensor at index {i}", tensor)
    if not tensor.requires_grad:
        raise AutogradError(f"grad: One of the differentiated Tensors does not require grad: the one at index {i}\n"
                            "make it require grad before you use it: tensor.requires_grad_()")
    return _core.edge_of_tensor(tensor)


def _start(
    outputs: tuple[Tensor, ...], cotangents: Any, create_graph: bool
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Return the interpreter of the outputs, their edges, and a gradient for each output."""
    given = _cotangents(outputs, cotangents)
    interpreters = {output.interpreter if isinstance(output, _core.Wrapper) else None for output in outputs}
    if len(interpreters) > 1:
        raise AutogradError("the outputs belong to different transforms\ndifferentiate them one by one")
    interpreter = interpreters.pop() if interpreters else None
    edges, gradients = [], []
    for i, (output, cotangent) in enumerate(zip(outputs, given, strict=True)):
        if isinstance(output, _core.BatchedTensor):
            raise _no_graph(f"element {i} of the Tensors", output)
        if not output.requires_grad:
            raise AutogradError(
                f"element {i} of the Tensors does not require grad and does not have a grad_fn\n"
                "compute it from a Tensor with requires_grad=True, in grad mode"
            )
        edges.append(_core.edge_of_tensor(output))
        gradients.append(_cotangent_for(output, cotangent, i, interpreter, create_graph))
    return interpreter, tuple(edges), tuple(gradients)


def _no_graph(which: str, tensor: _core.BatchedTensor) -> AutogradError:
    return AutogradError(f"{which} is a value of {describe_interpreter(tensor.interpreter)}: the tape does not "
                         "record the single examples of a batch\n"
                         "use pydispatch.func.grad in the function under vmap, or call backward on vmap's result")


def _cotangents(outputs: tuple[Tensor, ...], cotangents: Any) -> tuple[Any, ...]:
    if cotangents is None:
        return (None,) * len(outputs)
    given = (cotangents,) if _core.is_array(cotangents) else tuple(cotangents)
    if len(given) != len(outputs):
        raise AutogradError(f"{len(given)} cotangents were given for {len(outputs)} outputs\n"
                            "pass one cotangent or None for each output")
    return given


def _cotangent_for(output: Tensor, cotangent: Any, i: int, interpreter: Any, create_graph: bool) -> Any:
    if cotangent is None:
        return _implicit_cotangent(output, interpreter, create_graph)
    if not _core.is_array(cotangent):
        raise DispatchTypeError(f"cotangent {i} is {_core.a_type(cotangent)}, expected a Tensor, an array or None\n"
                                "pass Tensor(numpy.asarray(...))")
    if isinstance(cotangent, np.matrix):
        raise DispatchTypeError(f"cotangent {i} is a numpy.matrix, expected a Tensor, an array or None\n"
                                "pass numpy.asarray(matrix)")
    if tuple(cotangent.shape) != tuple(output.shape):
        raise AutogradError(f"Mismatch in shape: cotangent {i} has shape {tuple(cotangent.shape)}, but the output has "
                            f"shape {tuple(output.shape)}\npass a cotangent of the output's shape")
    if cotangent.dtype != output.dtype:
        if cotangent.dtype.kind == "c" and output.dtype.kind != "c":
            raise AutogradError(f"cotangent {i} is complex, but the output has dtype {output.dtype}\n"
                                "pass a real cotangent")
        cotangent = cotangent.astype(output.dtype)
    if create_graph:
        return _in_interpreter(cotangent, interpreter)
    return _core.value_below(cotangent, interpreter)


def _implicit_cotangent(output: Tensor, interpreter: Any, create_graph: bool) -> Any:
    if output.size != 1:
        raise AutogradError(
            f"grad can be implicitly created only for scalar outputs, but this one has shape {tuple(output.shape)}\n"
            "pass a cotangent of that shape, or differentiate a sum"
        )
    if output.dtype.kind != "f":
        raise AutogradError(f"grad can be implicitly created only for real scalar outputs, but this one has dtype "
                            f"{output.dtype}\npass a cotangent")
    if output.dispatches_to_python:
        return ops.np.ones_like(output.detach() if create_graph else _core.value_below(output, interpreter))
    one = one_beside(output)
    return _in_interpreter(one, interpreter) if create_graph else _core.value_below(one, interpreter)


_core.connect(backward=backward, grad=grad_in_general, grad_results=grad_results)
