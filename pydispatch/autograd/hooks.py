"""Hooks on Tensors and nodes, and retained gradients.

A hook on a Tensor that an operator made belongs to the node that made it, at the time of registration. If the Tensor is
later written to in place, the old hooks still see the gradient of the old value.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import BackwardPass, GradientSlot, TapeNode, Tensor
from pydispatch.autograd.values import as_raw_constant, as_tensor
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.ops import ops

_numbers = count()


def _ignore(gradients: Any) -> None:
    return None


def _as_meant_here(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return the hook with the active substitution for its captured Tensors."""
    substitute = _core.current_state().substitute
    return hook if substitute is None else partial(_core.substituting, substitute, hook)


class HookHandle:
    """One registered hook. `remove()` removes it, and so does leaving its `with` block."""

    __slots__ = ("_hooks", "_number")

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        if not callable(hook):
            raise DispatchTypeError(f"the hook is {_core.a_type(hook)}, expected a function\npass a callable")
        self._hooks = hooks
        self._number = next(_numbers)
        with _core.registering as block:
            block.note(self.remove)
            hooks[self._number] = hook if isinstance(hook, OneOfSeveral) else _as_meant_here(hook)

    def remove(self) -> None:
        """Remove the hook. Removing it twice is harmless."""
        self._hooks.pop(self._number, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


class Notes:
    """The data of a node other than its formulas: hooks, retained gradients, the place where it was made."""

    __slots__ = ("after", "before", "origin", "parent", "retained", "saved", "tensors")

    def __init__(self) -> None:
        self.tensors: dict[int, dict[int, Any]] = {}    # result -> hooks
        self.before: dict[int, Any] = {}
        self.after: dict[int, Any] = {}
        self.retained: dict[int, weakref.ref[GradientSlot]] = {}
        self.origin: str | None = None
        self.parent: TapeNode | None = None
        self.saved: list[tuple[np.ndarray[Any, Any], int]] = []     # raw arrays, and the checksum of each


class LeafHooks:
    """The hooks of a leaf: on its gradient before it is accumulated, and on the Tensor afterwards."""

    __slots__ = ("after", "before", "owner")

    def __init__(self, owner: Tensor) -> None:
        self.before: dict[int, Any] = {}
        self.after: dict[int, Any] = {}
        self.owner = weakref.ref(owner)


def notes_of(node: TapeNode) -> Notes:
    """Return the notes of a node, creating them if needed."""
    if node.notes is None:
        node.notes = Notes()
    notes: Notes = node.notes
    return notes


def leaf_hooks_of(tensor: Tensor) -> LeafHooks:
    """Return the hooks of a leaf, creating them if needed."""
    slot = _core.gradient_slot_of(tensor)
    if slot.hooks is None:
        slot.hooks = LeafHooks(tensor)
    hooks: LeafHooks = slot.hooks
    return hooks


def register_hook(tensor: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call `hook(gradient)` whenever the gradient of this Tensor is known, and replace it by the hook's result.

    Raises AutogradError for a Tensor that does not require grad.
    """
    _refuse_untracked(tensor, "register_hook")
    if tensor.is_leaf:
        return HookHandle(leaf_hooks_of(tensor).before, hook)
    node, index = node_and_index(_core.edge_of_tensor(tensor))
    return HookHandle(notes_of(node).tensors.setdefault(index, {}), hook)


def register_post_accumulate_grad_hook(tensor: Tensor, hook: Callable[[Tensor], None]) -> HookHandle:
    """Call `hook(tensor)` whenever a backward pass has added to `tensor.grad`. The Tensor must be a leaf."""
    _refuse_untracked(tensor, "register_post_accumulate_grad_hook")
    if not tensor.is_leaf:
        raise AutogradError("post accumulate grad hooks cannot be registered on non-leaf Tensors\n"
                            "use tensor.register_hook, which receives the gradient")
    return HookHandle(leaf_hooks_of(tensor).after, hook)


def _refuse_untracked(tensor: Tensor, method: str) -> None:
    if isinstance(tensor, _core.BatchedTensor):
        raise AutogradError(f"{method} does not work on values of {tensor.interpreter.name}: the tape computes "
                            "gradients only of the whole batch\n"
                            "register the hook on vmap's result, or under grad inside vmap")
    if not tensor.requires_grad:
        raise AutogradError(f"{method}: this Tensor does not require grad, so it gets no gradient\n"
                            "make it require grad: tensor.requires_grad_()")


def retain_grad(tensor: Tensor) -> None:
    """Keep the gradient of a result in `tensor.grad`. Raise AutogradError if the Tensor does not require grad."""
    if not tensor.requires_grad:
        raise AutogradError("retain_grad: this Tensor does not require grad\nuse tensor.requires_grad_()")
    if isinstance(tensor, _core.Wrapper):
        raise AutogradError(f"retain_grad does not work on values of {tensor.interpreter.name}\n"
                            "return the value, or use a hook: tensor.register_hook")
    if tensor.is_leaf:
        return
    slot = _core.gradient_slot_of(tensor)
    _core.retain(slot)
    node, index = node_and_index(slot)
    notes_of(node).retained[index] = weakref.ref(slot)


def move_retained(tensor: Tensor, old: GradientSlot, new: GradientSlot) -> None:
    """Move the retained gradient of a Tensor that was written to in place to its new value."""
    node, index = node_and_index(old)
    if node is not None and node.notes is not None:
        node.notes.retained.pop(index, None)
    _core.retain(new)
    new_node, new_index = node_and_index(new)
    notes_of(new_node).retained[new_index] = weakref.ref(new)


def node_and_index(edge: Any) -> tuple[Any, int]:
    """Return the node that an edge leads to, and the number of its result."""
    return (edge, 0) if isinstance(edge, TapeNode) else (edge.node, edge.index)


def register_node_hook(node: TapeNode, hook: Callable[[tuple[Any, ...], tuple[Any, ...]], Any]) -> HookHandle:
    """Call `hook(grad_inputs, grad_outputs)` after the node. A tuple that it returns replaces grad_inputs."""
    return HookHandle(notes_of(node).after, hook)


def register_node_prehook(node: TapeNode, hook: Callable[[tuple[Any, ...]], Any]) -> HookHandle:
    """Call `hook(grad_outputs)` before the node. A tuple that it returns replaces grad_outputs."""
    return HookHandle(notes_of(node).before, hook)


# --- called by the engine --------------------------------------------------------------------------------------------


def before_node(node: TapeNode, gradient: Any, run: BackwardPass, runs: bool) -> Any:
    """Return the gradients of a node's results after the hooks of its Tensors, and its prehooks if it runs."""
    notes: Notes = node.notes
    run.node = node
    several, create_graph = node.has_result_list, run.create_graph
    gradients = list(gradient or [None] * node.n_results) if several else [gradient]
    for index, hooks in notes.tensors.items():
        gradients[index] = _through_hooks(hooks, gradients[index], f"a hook on a result of {node.name}", run)
    if runs and notes.before:
        gradients = _through_prehooks(node, notes, gradients, create_graph)
    for index, reference in notes.retained.items():
        slot = reference()
        if slot is not None and gradients[index] is not None:
            with _core.accumulating:
                slot.grad = kept(gradients[index], slot.grad)
    return gradients if several else gradients[0]


def _through_hooks(hooks: dict[int, Any], gradient: Any, who: str, run: BackwardPass) -> Any:
    for hook in list(hooks.values()):
        given = None if gradient is None else as_tensor(gradient)
        replacement = hook.arrive(run, given) if isinstance(hook, OneOfSeveral) else hook(given)
        if replacement is not None:
            gradient = _replacement(who, gradient, replacement, run.create_graph)
    return gradient


def _replacement(who: str, old: Any, new: Any, create_graph: bool) -> Any:
    """Check that a gradient that a hook returned has the shape and dtype of the old one."""
    if not isinstance(new, Tensor):
        raise DispatchTypeError(f"{who} returned {_core.a_type(new)}, expected a Tensor or None\n"
                                "return the new gradient as a Tensor")
    if old is not None and (tuple(new.shape) != tuple(old.shape) or new.dtype != old.dtype):
        raise AutogradError(f"{who} returned a gradient of shape {new.shape} and dtype {new.dtype}, expected "
                            f"{tuple(old.shape)} and {old.dtype}\nreturn a gradient of that shape and dtype")
    return new if create_graph else as_raw_constant(new)


def _replacements(who: str, old: list[Any], new: Any, create_graph: bool) -> list[Any]:
    """Check the gradients that a hook of a node returned, one by one."""
    new = new if isinstance(new, tuple) else (new,)
    if len(new) != len(old):
        raise AutogradError(f"{who} returned {len(new)} gradients, expected {len(old)}\n"
                            "return a tuple with one for each")
    return [
        None if after is None else _replacement(who, before, after, create_graph)
        for before, after in zip(old, new, strict=True)
    ]


def _as_tensors(gradients: list[Any]) -> tuple[Any, ...]:
    return tuple([None if gradient is None else as_tensor(gradient) for gradient in gradients])


def _through_prehooks(node: TapeNode, notes: Notes, gradients: list[Any], create_graph: bool) -> list[Any]:
    for hook in list(notes.before.values()):
        replaced = hook(_as_tensors(gradients))
        if replaced is not None:
            gradients = _replacements(f"a prehook of {node.name}", gradients, replaced, create_graph)
    return gradients


def after_node(node: TapeNode, gradients: list[Any], results: Any, run: BackwardPass) -> list[Any]:
    """Return the gradients that a node sends on, after its hooks."""
    run.node = None
    if not node.notes.after:
        return gradients
    who = f"a hook of {node.name}"
    positions = argument_positions(node)
    spread: list[Any] = [None] * n_arguments(node)
    for position, gradient in zip(positions, gradients, strict=True):
        spread[position] = gradient
    for hook in list(node.notes.after.values()):
        replaced = hook(_as_tensors(spread), _as_tensors(results if isinstance(results, list) else [results]))
        if replaced is None:
            continue
        new = _replacements(who, spread, replaced, run.create_graph)
        for i, (before, after) in enumerate(zip(spread, new, strict=True)):
            if before is None and after is not None:
                raise AutogradError(f"{who} returned a gradient at index {i}, where it got None\nreturn None there")
        spread = new
    return [spread[position] for position in positions]


def argument_positions(node: TapeNode) -> list[int]:
    """Return, for every edge of a node, its position among the differentiable arguments of the operator."""
    derivative, tracked = node.derivative, node.tracked_arguments
    if derivative is None or len(tracked) != len(node.edges_out):
        return list(range(len(node.edges_out)))
    differentiable = [i for i, formula in enumerate(derivative.formulas) if formula is not None]
    return [differentiable.index(i) for i in tracked]


def n_arguments(node: TapeNode) -> int:
    """Return how many differentiable arguments, or elements of them, the operator of a node has."""
    if node.derivative is None or len(node.tracked_arguments) != len(node.edges_out):
        return len(node.edges_out)
    return sum(formula is not None for formula in node.derivative.formulas)


def before_leaf(slot: GradientSlot, gradient: Any, run: BackwardPass) -> Any:
    """Return the gradient of a leaf after its hooks."""
    return _through_hooks(slot.hooks.before, gradient, "a hook on a leaf", run)


def after_leaf(slot: GradientSlot) -> None:
    """Call the hooks of a leaf whose gradient was accumulated."""
    owner = slot.hooks.owner()
    for hook in list(slot.hooks.after.values()):
        if owner is not None and hook(owner) is not None:
            raise AutogradError("a post accumulate grad hook returned a value, expected None\n"
                                "set tensor.grad in the hook instead")


def kept(gradient: Any, old: Any) -> Tensor:
    """Return a gradient as `tensor.grad` keeps it: in separate memory, added to the old gradient."""
    return as_tensor(ops.np.copy(gradient)) if old is None else old + gradient


def register_multi_grad_hook(
    tensors: Iterable[Tensor], hook: Callable[..., None], *, mode: str = "all"
) -> MultiHandle:
    """Call `hook` once per backward pass with the gradients of several Tensors.

    Parameters
    ----------
    tensors : iterable of Tensors
        Tensors that require grad.
    hook : callable
        With mode "all" it receives a list of gradients, None for Tensors that do not take part. With "any" it receives
        one gradient.
    mode : {"all", "any"}, optional
        With "all", the hook is called when every Tensor that takes part has its gradient. With "any", it is called at
        the first gradient.

    Returns
    -------
    MultiHandle
        A handle whose `remove()` removes the hook.

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> handle = autograd.register_multi_grad_hook([x], print)
    >>> autograd.backward(np.sum(x ** 2))
    [Tensor([2., 4.])]
    >>> handle.remove()
    """
    if mode not in ("all", "any"):
        raise DispatchTypeError(f'mode is {mode!r}, expected "all" or "any"\nwrite mode="all"')
    return MultiHandle(list(tensors), hook, mode)


class Arrivals:
    """The gradients that have arrived, in one backward pass, at the Tensors of one `register_multi_grad_hook`."""

    __slots__ = ("gradients", "missing", "reported")

    def __init__(self, gradients: list[Any], missing: int) -> None:
        self.gradients = gradients
        self.missing = missing
        self.reported = False


class OneOfSeveral:
    """The hook on one Tensor of a `register_multi_grad_hook`. The engine calls `arrive`, which also takes the pass."""

    __slots__ = ("_arrived", "_position")

    def __init__(self, arrived: Callable[[int, BackwardPass, Tensor | None], None], position: int) -> None:
        self._arrived = arrived
        self._position = position

    def __call__(self, gradient: Tensor) -> Tensor | None:
        raise AssertionError("a hook of several Tensors is called with the pass")

    def arrive(self, run: BackwardPass, gradient: Tensor | None) -> Tensor | None:
        """Note the gradient that a pass has brought, and leave it unchanged."""
        self._arrived(self._position, run, gradient)
        return None


class MultiHandle:
    """The handle of one `register_multi_grad_hook`, which holds its hooks."""

    def __init__(self, tensors: list[Tensor], hook: Callable[..., None], mode: str) -> None:
        self._hook = _as_meant_here(hook)
        self._mode = mode
        self._size = len(tensors)
        self._edges = [_core.edge_of_tensor(tensor) for tensor in tensors]
        self._runs: weakref.WeakKeyDictionary[BackwardPass, Arrivals] = weakref.WeakKeyDictionary()
        with _core.registering:     # all or none
            self._handles = [
                register_hook(tensor, OneOfSeveral(self._arrived, i))
                for i, tensor in enumerate(tensors)
            ]

    def _arrived(self, i: int, run: BackwardPass, gradient: Tensor | None) -> None:
        state = self._runs.get(run)
        if state is None:
            expected = 1 + sum(run.reaches(edge) for k, edge in enumerate(self._edges) if k != i)
            state = self._runs[run] = Arrivals([None] * self._size, expected)
        state.gradients[i] = gradient
        state.missing -= 1
        if self._mode == "any":
            if not state.reported:
                state.reported = True
                self._hook(gradient)
        elif state.missing == 0:
            self._hook(state.gradients)

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._hook = _ignore


_core.connect(before_node=before_node, after_node=after_node, before_leaf=before_leaf, after_leaf=after_leaf,
              move_retained=move_retained)
