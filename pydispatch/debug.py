"""Looking inside: states, tables, invariants, explanations of a call, and a trace of calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from pydispatch import _core
from pydispatch._core import DispatchKeySet, OpOverload, OpOverloadPacket, TableEntry, Tensor
from pydispatch.autograd.levels import values_below
from pydispatch.exceptions import DispatchError
from pydispatch.keys import DispatchKey, runtime_keys, slot_of
from pydispatch.modes import Guard
from pydispatch.registry import kernels, registrations
from pydispatch.registry.messages import describe, describe_table, shorten
from pydispatch.registry.operators import find
from pydispatch.registry.registrations import (
    DefinitionHandle,
    KernelHandle,
    RuleHandle,
    definition_of,
    derivative_of,
    kernels_of,
)
from pydispatch.registry.tables import ASKS_HANDLERS, build_table, compute_table, has_device, is_autograd, makes_arrays
from pydispatch.tree import tree_leaves, tree_map

# --- states and tables -----------------------------------------------------------------------------------------------


def _overload(op: str | OpOverload | OpOverloadPacket) -> OpOverload | None:
    if isinstance(op, OpOverload):
        return op
    if isinstance(op, OpOverloadPacket):
        return op.overloads[0] if op.overloads else find(op.name)
    return find(op)


def dump_state(op: str | OpOverload | OpOverloadPacket | None = None) -> str:
    """The registrations of an operator as text, nothing derived; of all operators without one; "" for an unknown one.

    A line for the name, the schema, the definition site and the alias-analysis kind, then one per kernel: runtime keys
    before aliases, within a key the newest first and the others marked inactive. Then one per rule for a class.
    """
    if op is None:
        return "\n".join(describe(registrations.operators[name]) for name in sorted(registrations.operators))
    found = _overload(op)
    return "" if found is None else describe(found)


def dump_table(op: str | OpOverload | OpOverloadPacket, which: str = "computed") -> str:
    """The table of an operator as text: "computed" from its registrations, "live", or the "difference" of the two.

    The live table is empty until the first call after a change; a stale one never differs.
    """
    found = _overload(op)
    if found is None or definition_of(found) is None:
        return ""
    computed = describe_table(compute_table(found).rows)
    if which == "computed":
        return computed
    live = describe_table(found.live_table.rows) if found.live_table is not None else ""
    if which == "live":
        return live
    if which != "difference":
        raise ValueError(f'which is "computed", "live" or "difference", not {which!r}')
    if found.live_table is None:
        return ""
    old, new = live.splitlines(), computed.splitlines()
    return "".join(f"- {line}\n" for line in old if line not in new) + "".join(
        f"+ {line}\n" for line in new if line not in old)


# --- invariants ------------------------------------------------------------------------------------------------------


def check_invariants(op: str | OpOverload | None = None) -> None:
    """Raise AssertionError, naming the operator and the invariant, if the registry contradicts itself.

    I1 name and array arguments agree with the schema; I2 nothing is registered under Undefined; I3 no empty operator;
    I4, I8 the live table is the recomputed one, the Undefined slot included; I5 the masks follow from the table;
    I6 registrations are active and belong to their operator; I7 names and packets are a bijection; I9 kernels are in
    order of arrival; I10 at most one definition; I11 every fallback is in every table; I12 kernels fit the schema.
    """
    with registrations.lock:
        found = None if op is None else _overload(op)
        if op is not None and found is None:
            raise ValueError(f"no operator {op}: nothing to check")
        for each in registrations.operators.values() if found is None else (found,):
            for name, problem in _violations(each):
                raise AssertionError(f"operator {each.name} violates {name}: {problem}")
        for name, problem in _index_violations() if found is None else ():
            raise AssertionError(f"the registry violates {name}: {problem}")


def _violations(op: OpOverload) -> Iterator[tuple[str, str]]:
    definition = definition_of(op)
    if not op.registrations:
        yield "I3", "it has no registration"
    if registrations.operators.get(str(op.name)) is not op:
        yield "I7", "it is not the operator that its name leads to"
    packet = registrations.packets.get(op.name.namespace or "", {}).get(op.name.name)
    if (packet is not None and op in packet.overloads) != (definition is not None):
        yield "I7", "it has a schema and is not in its packet, or the reverse"
    for handle in op.registrations:
        if not handle.active or handle.operator is not op:
            yield "I6", f"{handle} is inactive, or belongs to another operator"
        if isinstance(handle, KernelHandle) and handle.key is DispatchKey.Undefined:
            yield "I2", f"{handle.kernel.debug} is registered under Undefined"
    if sum(isinstance(handle, DefinitionHandle) for handle in op.registrations) > 1:
        yield "I10", "it has two definitions"
    for key, handles in kernels_of(op).items():
        positions = [op.registrations.index(handle) for handle in handles]
        if not handles or positions != sorted(positions, reverse=True):
            yield "I9", f"the kernels under {key.name} are not in order of arrival"
    table = op.live_table
    if definition is None:
        if table is not None:
            yield "I1", "it has a table and no schema"
        return
    if not definition.is_parsed:
        return
    schema = definition.schema
    if str(schema.name) != str(op.name):
        yield "I1", f"its schema is that of {schema.name}"
    for handle in op.registrations:
        if isinstance(handle, KernelHandle):
            try:
                kernels.check_kernel(schema, definition.site, handle.kernel)
            except DispatchError as error:
                yield "I12", str(error)
    if table is not None:
        yield from _table_violations(op, table)


def _table_violations(op: OpOverload, table: _core.Table) -> Iterator[tuple[str, str]]:
    fresh = compute_table(op)
    arrays = tuple(a.name for a in op.schema.arguments if a.type.contains_arrays)
    if table.array_arguments != arrays:
        yield "I1", f"it dispatches on {table.array_arguments}, its schema says {arrays}"
    by_slot = {key.slot: key for key in runtime_keys()}
    for slot, (live, computed) in enumerate(zip(table.rows, fresh.rows, strict=True)):
        if (live and (live.kernel, live.label)) != (computed and (computed.kernel, computed.label)):
            words = [f"{entry.kernel.debug} [{entry.label}]" if entry else "nothing" for entry in (live, computed)]
            yield "I8" if slot == 0 else "I4", f"{by_slot[slot].name} is live {words[0]}, computed {words[1]}"
    if table.masks_by_backend() != expected_masks(table.rows, has_device(op.schema)):
        yield "I5", "its fall-through masks do not follow from its table"
    for handle in registrations.fallbacks:
        for key in handle.key.members:
            entry = table.rows[slot_of(key)]
            if entry is None or (entry.label == "backend fallback" and entry.kernel is not handle.kernel):
                yield "I11", f"the fallback of {key.name} is not in its table"


def expected_masks(rows: tuple[TableEntry | None, ...], asks_device: bool) -> tuple[int, ...]:
    """The fall-through masks of a table, worked out slot by slot."""
    functionalities, backends = sum({word & ~0xFFFF for word in _core.slots()}), range(17)
    masks = []
    for length in backends:
        backend = 1 << length >> 1
        mask = functionalities
        for word, entry in zip(_core.slots(), rows, strict=True):
            if word & 0xFFFF and length == 0:
                mask &= ~(word & ~0xFFFF)
            elif entry is not None and word & 0xFFFF in (0, backend):
                waits = entry.asks_device and length > 0 and not asks_device
                mask &= ~(word & ~0xFFFF) if entry.is_fallthrough or entry.asks_handlers or waits else mask
        masks.append(mask)
    return tuple(masks)


def _index_violations() -> Iterator[tuple[str, str]]:
    for name, op in registrations.operators.items():
        if str(op.name) != name:
            yield "I7", f"{name} leads to {op.name}"
    for family in registrations.packets.values():
        for packet in family.values():
            for op in packet.overloads:
                if registrations.operators.get(str(op.name)) is not op or definition_of(op) is None:
                    yield "I7", f"the packet {packet.name} holds {op.name}, which is not defined"
    for handle in registrations.fallbacks:
        if not handle.active:
            yield "I6", f"the fallback {handle.kernel.debug} is inactive"


# --- explaining a call -----------------------------------------------------------------------------------------------


class Explanation:
    """What a call would do, and why; prints as a tree.

    `brought` says which argument or guard brought which keys, `excluded` which guard took which, `passed_over` why a
    key was passed over; `keyset` is what remained, `key` the highest of it, `entry` the table's answer (None: the call
    raises), `kernel` that entry's kernel; `handlers` are those that the Python key asks, in this order; `levels` says
    what modes, running transforms and the tape do with the call before it comes there.
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
        self.keyset = _core.effective_keyset(op, table, state, arguments)
        self.passed_over = [
            (key, _why_passed_over(key, table.rows[slot_of(key)], state)) for key in union
            if key not in self.keyset
        ]
        self.key: DispatchKey = self.keyset.highest
        found = table.rows[slot_of(self.key)]
        self.entry: TableEntry | None = None if found is None or found.is_fallthrough else found
        self.kernel = None if self.entry is None else self.entry.kernel
        self.stripped = op.strip_defaults(values)
        arrays = [value for name, value in self.arguments if name in table.array_arguments]
        self.handlers = _handlers_asked(op, arrays) if self.kernel is ASKS_HANDLERS else ()
        self.levels = _describe_levels(op, values, self.entry, self.key)

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
        lines.append(f"├─ chosen because {_why_chosen(self.key, self.entry)}")
        if self.kernel is ASKS_HANDLERS:
            asked = ", then ".join(self.handlers) or "nobody, no class has a handler, and goes on to the next key"
            lines.append(f"├─ asks {asked}")
        lines.append(f"├─ {self.levels}")
        args, kwargs = _unwrap(self.stripped) if self.entry.is_raw else self.stripped
        if self.kernel is ASKS_HANDLERS:
            args, kwargs = tree_map(_below_transforms, (args, kwargs))
        given = [_describe_value(value) for value in args] + [
            f"{name}={_describe_value(value)}" for name, value in kwargs.items()]
        view = "raw arrays" if self.entry.is_raw else "what was passed"
        lines.append(f"└─ gets {view}: ({', '.join(given)})")
        return "\n".join(lines)

    __repr__ = __str__


def explain(self: OpOverload, /, *args: Any, **kwargs: Any) -> Explanation:
    """What a call with these arguments would do now, and why, without doing it."""
    return Explanation(self, args, kwargs)


def explain_packet(self: OpOverloadPacket, /, *args: Any, **kwargs: Any) -> Explanation:
    """What a call with these arguments would do now, and why, without doing it."""
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
    """What the guard of a state changed; a transform changes no keys."""
    return node.guard.changes if isinstance(node.guard, Guard) else {}


def _keys_brought(value: Any) -> DispatchKeySet:
    """The keys of an array argument; Python too for a value of a transform below which there is one with a handler."""
    return DispatchKeySet(
        _core.keys_of(value), *(_core.keys_of(_below_transforms(leaf)) for leaf in tree_leaves(value)
                                if isinstance(leaf, _core.Wrapper)))


def _below_transforms(value: Any) -> Any:
    while isinstance(value, _core.Wrapper):
        value = _core.array_of(value)
    return value


def _handlers_asked(op: OpOverload, arrays: list[Any]) -> tuple[str, ...]:
    """What the Python key asks, in order: subclasses before superclasses, else from left to right; rules first."""
    classes: list[type] = []
    for leaf in map(_below_transforms, tree_leaves(arrays)):
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
    """The rule in force for a class, in words."""
    sites = [rule.site for rule in op.registrations if isinstance(rule, RuleHandle) and rule.cls is cls]
    return f"the rule for {cls.__qualname__} registered at {sites[-1]}" if sites else None


def _why_passed_over(key: DispatchKey, entry: TableEntry | None, state: _core.State) -> str:
    if key in state.excluded:
        return "excluded"
    if entry is not None and entry.is_fallthrough:
        return f"its kernel falls through ({entry.label})"
    if entry is not None and entry.asks_device:
        return "an argument says the backend"
    return "the call is on another backend"


def _why_chosen(key: DispatchKey, entry: TableEntry) -> str:
    reasons = {
        "kernel": f"it is registered under {key.name} itself",
        "default backend kernel": "it is registered for all backends (CompositeExplicitAutograd)",
        "math kernel": f"it is registered as a composite (CompositeImplicitAutograd), and {key.name} has no other",
        "autograd kernel": "it is registered under the alias Autograd",
        "ambiguous autogradother": "a composite and a sparse kernel both claim AutogradOther",
        "backend fallback": f"the operator has no kernel for {key.name}, and this is the fallback of that key",
    }
    return f"{reasons[entry.label]} [{entry.label}]"


def _describe_levels(op: OpOverload, values: tuple[Any, ...], entry: TableEntry | None, key: DispatchKey) -> str:
    """What each mode and running transform, the innermost first, and the tape under them do with a call."""
    state = _core.current_state()
    level = state.top
    if level is not None and _acts_in_python(op, values, level):
        return _describe_python_level(op, values, entry, key, level)
    name = "the tape" if level is None else repr(level).strip("<>")
    if entry is not None and is_autograd(key):
        return f"{name} sees what the kernel calls, not the call itself"
    if level is None:
        return f"{name}: {_what_is_recorded(op, values, state)}"
    if not any(_core.is_owned_by(leaf, level) for leaf in tree_leaves(values)):
        here = "passed down, no argument is one of its values"
    elif isinstance(level, _core.Grad):
        here = _what_is_recorded(op, values, state)
    else:
        here = _what_is_propagated(op, values, state)
    below = values_below(values, level)
    return f"{name}: {here}; {_core.lowered(level, _describe_levels, op, below, entry, key)}"


def _acts_in_python(op: OpOverload, values: tuple[Any, ...], level: _core.Interpreter) -> bool:
    """Is it a mode, or a transform that is written in Python or has a rule, and to be asked about this call?"""
    if isinstance(level, _core.ActiveMode):
        return True
    concerns = op.schema.is_mutable or makes_arrays(op, op.schema) or any(
        _core.is_owned_by(leaf, level) for leaf in tree_leaves(values))
    return concerns and (isinstance(level, _core.Transform) or _rule_for(op, type(level)) is not None)


def _describe_python_level(
    op: OpOverload, values: tuple[Any, ...], entry: TableEntry | None, key: DispatchKey, level: _core.Interpreter
) -> str:
    is_mode = isinstance(level, _core.ActiveMode)
    owner = type(level.mode) if isinstance(level, _core.ActiveMode) else type(level)
    name = f"the mode {owner.__qualname__}" if is_mode else repr(level).strip("<>")
    rule = _rule_for(op, owner)
    in_pieces = _runs_in_pieces(op, values) and not (is_mode and getattr(owner, "composites", None) == "whole")
    if in_pieces and rule is None:
        return f"{name} sees what the kernel calls, not the call itself"
    if in_pieces and is_mode:
        return f"{name}: {rule} handles the call; where it declines, the mode sees what the kernel calls"
    handler = "__pydispatch__" if is_mode else "process"
    here = f"its {handler}" if rule is None else f"{rule}, then its {handler}," if is_mode else rule
    below = values_below(values, level)
    rest = _core.lowered(level, _describe_levels, op, below, entry, key)
    return f"{name}: {here} handles the call and may pass it on; {rest}"


def _runs_in_pieces(op: OpOverload, values: tuple[Any, ...]) -> bool:
    """Do the arguments, raw or not, run a composite kernel on the tape?"""
    table = build_table(op)
    arrays = [value for argument, value in zip(op.schema.arguments, values, strict=True)
              if argument.name in table.array_arguments]
    keys = DispatchKeySet(*map(_core.keys_of, arrays))
    if not any(map(is_autograd, keys)):
        is_sparse = any(key.functionality == "Sparse" for key in keys)
        keys |= DispatchKeySet("AutogradOther" if is_sparse else "AutogradCPU")
    autograd = [key for key in table.mask(keys) if is_autograd(key)]
    entry = table.rows[slot_of(autograd[-1])] if autograd else None
    return entry is not None and entry.is_composite


def _what_is_recorded(op: OpOverload, values: tuple[Any, ...], state: _core.State) -> str:
    if not state.grad or state.inference:
        return "not recorded, recording is off"
    return _what_is_done(op, values, "recorded", lambda leaf: _core.is_tracked_at(leaf, state.top))


def _what_is_propagated(op: OpOverload, values: tuple[Any, ...], state: _core.State) -> str:
    if not state.forward or state.inference:
        return "no tangents, forward mode is off"
    return _what_is_done(
        op, values, "with tangents",
        lambda leaf: _core.is_owned_by(leaf, state.top) and _core.tangent_of(leaf) is not None,
    )


def _what_is_done(op: OpOverload, values: tuple[Any, ...], word: str, takes_part: Callable[[Any], bool]) -> str:
    """By which formulas, and for which arguments; or why not."""
    names = [
        argument.name for argument, value in zip(op.schema.arguments, values, strict=True)
        if any(map(takes_part, tree_leaves(value)))
    ]
    if not names:
        return f"not {word}, no argument is differentiated"
    handle = derivative_of(op)
    if handle is None:
        return "the call raises, the operator has no formula"
    rule = handle.rule
    missing = getattr(rule, "missing", None)
    if missing and rule.when_missing == "backward":
        return f"{word}, but the operator has no formula, and its gradients will raise"
    if missing or getattr(rule, "variant", None) == "out":
        return "the call raises, the operator writes to an argument and has no formula"
    if not getattr(rule, "differentiable", True):
        return f"not {word}, the results are constants"
    source = "the library's formulas" if hasattr(rule, "vjp") else f"the formula registered at {handle.site}"
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


# --- tracing calls ---------------------------------------------------------------------------------------------------


class CallPrinter:
    """Prints a line per kernel that runs, indented by depth: how it was reached, operator, key, kernel, rule."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file
        self._threads = threading.local()

    def enter(self, how: str, op: OpOverload, key: DispatchKey, entry: TableEntry) -> None:
        """A kernel is about to run."""
        depth = getattr(self._threads, "depth", 0)
        file = _open_stderr() if self.file is None else self.file
        if file is not None:
            print(f"{'  ' * depth}{how} {op.name} on {key.name}: {entry.kernel.debug} [{entry.label}]", file=file)
        self._threads.depth = depth + 1

    def leave(self) -> None:
        """It has returned or raised."""
        self._threads.depth -= 1


def _open_stderr() -> TextIO | None:
    """Standard error; None in a process that has none or has closed it, such as a daemon."""
    return None if sys.stderr is None or sys.stderr.closed else sys.stderr


def trace(file: TextIO | None = None) -> Guard:
    """Print every kernel that runs inside the block, to `file` or standard error if there is one.

    The environment variable PYDISPATCH_TRACE=1 does so from the start of the process.
    """
    return Guard("trace()", tracer=CallPrinter(file))


def trace_from_start() -> None:
    """Print every kernel that runs, in every thread; to be called before any has run."""
    _core.trace_from_start(CallPrinter())
