"""Explanations of calls: the kernels and rules that a call would run, and why."""

# tests: tests/debug/test_debug.py
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydispatch import _core
from pydispatch._core import DispatchKeySet, OpOverload, OpOverloadPacket, TableEntry, Tensor
from pydispatch._registry.messages import shorten
from pydispatch._registry.registrations import RuleHandle, derivative_of
from pydispatch._registry.tables import ASKS_HANDLERS, build_table, is_factory
from pydispatch.autograd.values import values_below
from pydispatch.debug import html
from pydispatch.func.values import below_interpreters
from pydispatch.keys import DispatchKey, runtime_keys, slot_of
from pydispatch.modes import Guard
from pydispatch.tree import tree_leaves, tree_map


class Explanation:
    """The explanation of a call: what it would run, and why. It prints as a tree.

    Attributes
    ----------
    brought
        The argument or guard that brought each key.
    excluded
        The guard that removed each excluded key.
    passed_over
        The reasons why keys were passed over.
    keyset
        The remaining key set.
    key
        The highest key of the key set.
    entry
        The table entry for that key, or None if the call raises.
    kernel
        The kernel of the entry.
    handlers
        The handlers that the Python key calls, in order.
    interpreters
        How modes, transforms and the tape process the call before the table is consulted.
    """

    def __init__(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        state = _core.current_state()
        table = build_table(op)
        values = op.bind(args, kwargs)
        self.operator = op
        self.arguments = tuple(zip([argument.name for argument in op.schema.arguments], values, strict=True))
        self.brought: list[tuple[str, DispatchKeySet]] = []
        for name, value in self.arguments:
            if name in table.array_arguments:
                self.brought.append((f"argument {name} ({_describe_value(value)})", _keys_brought(value)))
        arguments = DispatchKeySet(*(keys for _, keys in self.brought))
        self.excluded: list[tuple[str, tuple[DispatchKey, ...]]] = []
        for guard, included, excluded in _ambient_changes(state):
            if included:
                self.brought.append((guard, included))
            if excluded:
                self.excluded.append((guard, excluded))
        union = DispatchKeySet(*(keys for _, keys in self.brought))
        self.stripped = op.strip_defaults(values)
        self.keyset = _core.effective_keyset(op, table, state, arguments)
        if not _is_for(table.rows[slot_of(self.keyset.highest)], self.stripped):
            self.keyset = DispatchKeySet(*[key for key in self.keyset if not key.is_autograd])
        self.passed_over = [
            (key, _why_passed_over(key, table.rows[slot_of(key)], state)) for key in union
            if key not in self.keyset
        ]
        self.key: DispatchKey = self.keyset.highest
        found = table.rows[slot_of(self.key)]
        self.entry: TableEntry | None = None if found is None or found.is_fallthrough else found
        self.kernel = None if self.entry is None else self.entry.kernel
        arrays = [value for name, value in self.arguments if name in table.array_arguments]
        self.handlers = _handlers_asked(op, arrays) if self.kernel is ASKS_HANDLERS else ()
        self.interpreters = _describe_interpreters(op, values, self.entry, self.key)

    def __str__(self) -> str:
        lines = [f"{self.operator.schema}", "├─ keys"]
        parts = [f"{source}: {_list(keys)}" for source, keys in self.brought]
        parts += [f"excluded by {guard}: {_list(keys)}" for guard, keys in self.excluded]
        parts += [f"passed over: {key.name}, {reason}" for key, reason in self.passed_over]
        lines += [f"│  {'└─' if i == len(parts) - 1 else '├─'} {part}" for i, part in enumerate(parts)]
        lines.append(f"├─ dispatched on {self.key.name}, the highest of {{{_list(self.keyset)}}}")
        if self.entry is None or self.kernel is None:
            lines.append("└─ no kernel: the call raises NoKernelError")
            return "\n".join(lines)
        lines.append(f"├─ kernel {self.kernel.debug}")
        if self.entry.unsupported_names:
            lines.append(f"├─ does not take {', '.join(self.entry.unsupported_names)}: an error unless at the default")
        lines.append(f"├─ chosen because {_why_chosen(self.key, self.entry)}")
        if self.kernel is ASKS_HANDLERS:
            asked = ", then ".join(self.handlers)
            lines.append(f"├─ calls {asked}" if asked else "├─ no class has a handler: the call goes to the next key")
        lines.append(f"├─ {self.interpreters}")
        args, kwargs = _unwrap(self.stripped) if self.entry.is_raw else self.stripped
        if self.kernel is ASKS_HANDLERS:
            args, kwargs = tree_map(below_interpreters, (args, kwargs))
        given = [_describe_value(value) for value in args] + [
            f"{name}={_describe_value(value)}" for name, value in kwargs.items()]
        view = "raw arrays" if self.entry.is_raw else "the arguments as passed"
        lines.append(f"└─ gets {view}: ({', '.join(given)})")
        return "\n".join(lines)

    __repr__ = __str__
    _repr_html_ = html.explanation_html


def explain(self: OpOverload, /, *args: Any, **kwargs: Any) -> Explanation:
    """Explain what a call with these arguments would run now, and why, without running it."""
    return Explanation(self, args, kwargs)


def explain_packet(self: OpOverloadPacket, /, *args: Any, **kwargs: Any) -> Explanation:
    """Explain what a call with these arguments would run now, and why, without running it."""
    return Explanation(self.resolve(*args, **kwargs), args, kwargs)


def _ambient_changes(
    state: _core.State,
) -> Iterator[tuple[str, DispatchKeySet, tuple[DispatchKey, ...]]]:
    chain = []
    node: _core.State | None = state
    while node is not None:
        chain.append(node)
        node = node.parent
    forced = next((i for i, node in enumerate(chain) if _changes(node).get("replace")), None)
    for node in reversed(chain if forced is None else chain[: forced + 1]):
        if node.guard is None:
            yield "the initial state", node.included, ()
        else:
            changes = _changes(node)
            slots = set(changes.get("removed", ()))
            yield (
                f"the guard {node.guard!r}", changes.get("added") or DispatchKeySet(),
                tuple(key for key in runtime_keys() if key.slot in slots),
            )
    by_guards = {slot for node in chain for slot in _changes(node).get("removed", ())}
    rest = tuple(key for key in state.excluded if key.slot not in by_guards)
    if rest:
        yield "the handler that is running", DispatchKeySet(), rest


def _changes(node: _core.State) -> Mapping[str, Any]:
    """Return the keys that the guard of a state includes and excludes. A transform changes none."""
    return node.guard.changes if isinstance(node.guard, Guard) else {}


def _keys_brought(value: Any) -> DispatchKeySet:
    """Return the keys of an array argument, with Python for a wrapper around a value that has a handler."""
    return DispatchKeySet(
        _core.keys_of(value), *(_core.keys_of(below_interpreters(leaf)) for leaf in tree_leaves(value)
                                if isinstance(leaf, _core.Wrapper)))


def _handlers_asked(op: OpOverload, arrays: list[Any]) -> tuple[str, ...]:
    """List the handlers and rules that the Python key calls, in order.

    Subclasses precede superclasses, else the order is left to right. A rule precedes the handler of its class.
    """
    classes: list[type] = []
    for leaf in map(below_interpreters, tree_leaves(arrays)):
        cls = type(leaf)
        if isinstance(leaf, Tensor) and leaf.dispatches_to_python and cls not in classes:
            place = next((i for i, other in enumerate(classes) if issubclass(cls, other)), len(classes))
            classes.insert(place, cls)
    asked = []
    for cls in classes:
        if _core.has_own_handler(cls):
            rule = _rule_for(op, cls)
            asked += ([] if rule is None else [rule]) + [f"{cls.__qualname__}.__pydispatch__"]
    return tuple(asked)


def _rule_for(op: OpOverload, cls: type) -> str | None:
    """Describe the rule in force for a class."""
    sites = [rule.site for rule in op.registrations if isinstance(rule, RuleHandle) and rule.cls is cls]
    return f"the rule for {cls.__qualname__} registered at {sites[-1]}" if sites else None


def _why_passed_over(key: DispatchKey, entry: TableEntry | None, state: _core.State) -> str:
    if key in state.excluded:
        return "excluded"
    if entry is not None and entry.is_fallthrough:
        return f"its kernel falls through ({entry.label})"
    if entry is not None and entry.kernel.applies is not None:
        return "its kernel is for other arguments"
    if entry is not None and entry.asks_device:
        return "an argument names the backend"
    return "the call is on another backend"


def _why_chosen(key: DispatchKey, entry: TableEntry) -> str:
    return f"{entry.label.reason.format(key=key.name)} [{entry.label}]"


def _describe_interpreters(op: OpOverload, values: tuple[Any, ...], entry: TableEntry | None, key: DispatchKey) -> str:
    """Describe what each interpreter, innermost first, and then the tape do with a call."""
    state = _core.current_state()
    interpreter = state.innermost
    if interpreter is not None and _acts_in_python(op, values, interpreter):
        return _describe_python_interpreter(op, values, entry, key, interpreter)
    name = "the tape" if interpreter is None else repr(interpreter).strip("<>")
    if entry is not None and key.is_autograd:
        return f"{name} sees what the kernel calls, not the call itself"
    if interpreter is None:
        return f"{name}: {_what_is_recorded(op, values, state)}"
    if not any(_core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(values)):
        here = "passed down, since no argument is one of its values"
    elif isinstance(interpreter, _core.Grad):
        here = _what_is_recorded(op, values, state)
    else:
        here = _what_is_propagated(op, values, state)
    below = values_below(values, interpreter)
    return f"{name}: {here}; {_core.lowered(interpreter, _describe_interpreters, op, below, entry, key)}"


def _acts_in_python(op: OpOverload, values: tuple[Any, ...], interpreter: _core.Interpreter) -> bool:
    """Return whether Python code of this interpreter sees the call: a mode, a transform in Python, or a rule."""
    if isinstance(interpreter, _core.ActiveMode):
        return True
    concerns = op.schema.is_mutable or is_factory(op, op.schema) or any(
        _core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(values))
    return concerns and (isinstance(interpreter, _core.PythonInterpreter)
                         or _rule_for(op, type(interpreter)) is not None)


def _describe_python_interpreter(
    op: OpOverload, values: tuple[Any, ...], entry: TableEntry | None, key: DispatchKey, interpreter: _core.Interpreter
) -> str:
    is_mode = isinstance(interpreter, _core.ActiveMode)
    owner = type(interpreter.mode) if isinstance(interpreter, _core.ActiveMode) else type(interpreter)
    name = f"the mode {owner.__qualname__}" if is_mode else repr(interpreter).strip("<>")
    rule = _rule_for(op, owner)
    in_pieces = _runs_in_pieces(op, values) and not (is_mode and not getattr(owner, "decompose_composites", True))
    if in_pieces and rule is None:
        return f"{name} sees what the kernel calls, not the call itself"
    if in_pieces and is_mode:
        return f"{name}: {rule} handles the call. If it declines, the mode sees what the kernel calls"
    handler = "__pydispatch__" if is_mode else "process"
    here = f"its {handler}" if rule is None else f"{rule}, then its {handler}," if is_mode else rule
    below = values_below(values, interpreter)
    rest = _core.lowered(interpreter, _describe_interpreters, op, below, entry, key)
    return f"{name}: {here} handles the call and can pass it on; {rest}"


def _runs_in_pieces(op: OpOverload, values: tuple[Any, ...]) -> bool:
    """Return whether these arguments run a composite, so that the tape sees the calls that it makes."""
    table = build_table(op)
    arrays = [value for argument, value in zip(op.schema.arguments, values, strict=True)
              if argument.name in table.array_arguments]
    keys = DispatchKeySet(*map(_core.keys_of, arrays))
    if not any(key.is_autograd for key in keys):
        is_sparse = any(key.is_sparse for key in keys)
        keys |= DispatchKeySet("AutogradOther" if is_sparse else "AutogradCPU")
    autograd = [key for key in table.mask(keys) if key.is_autograd]
    entry = table.rows[slot_of(autograd[-1])] if autograd else None
    return entry is not None and entry.is_composite and _is_for(entry, op.strip_defaults(values))


def _is_for(entry: TableEntry | None, stripped: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
    """Return whether the kernel serves a call with these arguments. Only a composite can be limited to some calls."""
    applies = None if entry is None else entry.kernel.applies
    return applies is None or applies(*stripped[0], **stripped[1])


def _what_is_recorded(op: OpOverload, values: tuple[Any, ...], state: _core.State) -> str:
    if not state.grad or state.inference:
        return "not recorded, since recording is off"
    return _what_is_done(op, values, "recorded", lambda leaf: _core.is_tracked_at(leaf, state.innermost))


def _what_is_propagated(op: OpOverload, values: tuple[Any, ...], state: _core.State) -> str:
    if not state.forward or state.inference:
        return "no tangents, since forward mode is off"
    return _what_is_done(
        op, values, "with tangents",
        lambda leaf: _core.is_owned_by(leaf, state.innermost) and _core.tangent_of(leaf) is not None,
    )


def _what_is_done(op: OpOverload, values: tuple[Any, ...], word: str, takes_part: Callable[[Any], bool]) -> str:
    """Describe the formulas that differentiate the call, and for which arguments, or why it is not differentiated."""
    names = [
        argument.name for argument, value in zip(op.schema.arguments, values, strict=True)
        if any(map(takes_part, tree_leaves(value)))
    ]
    if not names:
        return f"not {word}, since no argument is differentiated"
    handle = derivative_of(op)
    if handle is None:
        return "the call raises, since the operator has no formula"
    derivative = handle.derivative
    missing = getattr(derivative, "missing", None)
    if missing and not derivative.refuses_calls:
        return f"{word}, but the operator has no formula, and its gradients will raise"
    if missing or getattr(derivative, "variant", None) == "out":
        return "the call raises, since the operator writes to an argument and has no formula"
    if not getattr(derivative, "differentiable", True):
        return f"not {word}, since the results are constants"
    source = "the library's formulas" if hasattr(derivative, "vjp") else f"the derivative registered at {handle.site}"
    return f"{word} by {source}, for {', '.join(names)}"


def _describe_value(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None and hasattr(value, "dtype"):
        return f"{type(value).__name__} {value.dtype}{list(shape)}"
    if type(value) is tuple and len(value) > 1:
        return f"({', '.join(map(_describe_value, value))})"
    return shorten(value)


def _unwrap(values: Any) -> Any:
    return tree_map(lambda leaf: _core.bottom_array(leaf) if isinstance(leaf, Tensor) else leaf, values)


def _list(keys: Any) -> str:
    return ", ".join(key.name for key in keys) or "nothing"
