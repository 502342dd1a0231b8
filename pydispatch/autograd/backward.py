"""`backward` and `grad`: from Tensors to the edges that the engine starts from and stops at.

What needs no conversion goes straight there, in C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from pydispatch import _core
from pydispatch._core import Tensor, grad
from pydispatch.autograd.hooks import after_leaf, kept
from pydispatch.autograd.values import as_raw_constant, as_tensor, one_beside
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.ops import ops
from pydispatch.registry.sites import describe_interpreter

__all__ = ["backward", "grad"]

Tensors: TypeAlias = Tensor | Sequence[Tensor]


def backward(
    tensors: Tensors, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Add the gradients of `tensors` to the `grad` of every leaf, or of `inputs` alone.

    `grad_tensors` has one cotangent per Tensor, of its shape; None stands for 1 if the Tensor has one real element.
    Residuals are released unless `retain_graph`, whose default is `create_graph`. With `create_graph` the gradients can
    be differentiated again. Raises AutogradError if a Tensor requires no grad, or its residuals were released.
    """
    outputs = _as_tuple(tensors)
    keep = create_graph if retain_graph is None else retain_graph
    interpreter, roots, gradients = _start(outputs, grad_tensors, create_graph)
    if interpreter is not None and interpreter.alive:
        raise AutogradError(f"backward() does not work on values of {interpreter.name}, which have no leaf\n"
                            "use autograd.grad, or let the transform differentiate")
    if inputs is None:
        _core.run_backward(roots, gradients, create_graph=create_graph, keep_graph=keep, inputs=None,
                           interpreter=interpreter)
        return
    wanted = _as_tuple(inputs)
    if not wanted:
        raise AutogradError("backward: inputs is an empty sequence\nleave it out, or name the Tensors to accumulate in")
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
    """`grad` for calls that take more than running the engine."""
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
    """The gradients as the user gets them; raises for an input that the outputs do not depend on."""
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
    """The edge of each value that an interpreter tracks, None for the others; while the interpreter is active."""
    return [_core.edge_of_tensor(value) if _core.is_tracked_at(value, interpreter) else None for value in values]


def gradients_of_inputs(
    interpreter: Any, edges: Iterable[Any], cotangents: Iterable[Any], inputs: tuple[Any, ...], *, keep: bool = False
) -> list[Any]:
    """The gradient for each input of a transform, from cotangents of its results; None where nothing arrives.

    `edges` has None for a result that depends on no input; `inputs` are the edges of the inputs. `keep` retains the
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
    """The gradient of each value, None where there is none, for a function of them, at an interpreter of its own.

    The function returns pairs of a result and the gradient of that. The interpreters below see all of this as
    operators.
    """
    interpreter = _core.Grad(name)

    def run() -> tuple[Any, ...]:
        entered = [_core.tracked_leaf(interpreter, value) for value in values]
        pairs = function(*entered)
        edges = edges_at(interpreter, [result for result, _ in pairs])
        return edges, [as_raw_constant(gradient) for _, gradient in pairs], tuple(map(_core.edge_of_tensor, entered))

    return gradients_of_inputs(interpreter, *_core.run_under(interpreter, run))


def _result(gradient: Any, interpreter: Any, create_graph: bool) -> Tensor:
    """A gradient in memory of its own, as a Tensor of the interpreter."""
    tensor = _in_interpreter(gradient, interpreter)
    if not create_graph:
        return tensor
    if isinstance(tensor, _core.Wrapper):       # of a cotangent that is a value of another transform
        interpreter = tensor.interpreter
    copy: Tensor = _at(interpreter, _core.with_grad_mode, True, ops.np.copy, tensor)
    return copy


def _at(interpreter: Any, function: Any, *args: Any) -> Any:
    """Call a function so that its results are values of the interpreter; for the tape, where no transform is active."""
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
    return sequence


def _edge_of_input(tensor: Tensor, i: int) -> Any:
    if isinstance(tensor, _core.BatchedTensor):
        raise _no_graph(f"the differentiated Tensor at index {i}", tensor)
    if not tensor.requires_grad:
        raise AutogradError(f"grad: One of the differentiated Tensors does not require grad: the one at index {i}\n"
                            "make it a leaf that does: tensor.requires_grad_()")
    return _core.edge_of_tensor(tensor)


def _start(
    outputs: tuple[Tensor, ...], cotangents: Any, create_graph: bool
) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """The interpreter that the outputs are of, their edges, and a gradient for each."""
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
    return AutogradError(f"{which} is a value of {describe_interpreter(tensor.interpreter)}: a batch has no tape of "
                         "single examples\n"
                         "use pydispatch.func.grad in the function under vmap, or call backward on vmap's result")


def _cotangents(outputs: tuple[Tensor, ...], cotangents: Any) -> tuple[Any, ...]:
    if cotangents is None:
        return (None,) * len(outputs)
    given = (cotangents,) if _core.is_array(cotangents) else tuple(cotangents)
    if len(given) != len(outputs):
        raise AutogradError(f"{len(given)} cotangents were given for {len(outputs)} outputs\n"
                            "pass one for each, or None")
    return given


def _cotangent_for(output: Tensor, cotangent: Any, i: int, interpreter: Any, create_graph: bool) -> Any:
    if cotangent is None:
        return _implicit_cotangent(output, interpreter, create_graph)
    if not _core.is_array(cotangent):
        raise DispatchTypeError(f"cotangent {i} is {_core.a_type(cotangent)}, expected a Tensor, an array or None\n"
                                "pass Tensor(numpy.asarray(...))")
    if tuple(cotangent.shape) != tuple(output.shape):
        raise AutogradError(f"Mismatch in shape: cotangent {i} has shape {tuple(cotangent.shape)}, the output has "
                            f"shape {tuple(output.shape)}\npass one of the shape of the output")
    if cotangent.dtype != output.dtype:
        if cotangent.dtype.kind == "c" and output.dtype.kind != "c":
            raise AutogradError(f"cotangent {i} is complex, the output is of dtype {output.dtype}\npass a real one")
        cotangent = cotangent.astype(output.dtype)
    if create_graph:
        return _in_interpreter(cotangent, interpreter)
    return _core.value_below(cotangent, interpreter)


def _implicit_cotangent(output: Tensor, interpreter: Any, create_graph: bool) -> Any:
    if output.size != 1:
        raise AutogradError(
            f"grad can be implicitly created only for scalar outputs, this one has shape {tuple(output.shape)}\n"
            "pass a cotangent of that shape, or differentiate a sum"
        )
    if output.dtype.kind != "f":
        raise AutogradError(f"grad can be implicitly created only for real scalar outputs, this one has dtype "
                            f"{output.dtype}\npass a cotangent")
    if output.dispatches_to_python:
        return ops.np.ones_like(output.detach() if create_graph else _core.value_below(output, interpreter))
    one = one_beside(output)
    return _in_interpreter(one, interpreter) if create_graph else _core.value_below(one, interpreter)


_core.connect(backward=backward, grad=grad_in_general, grad_results=grad_results)
