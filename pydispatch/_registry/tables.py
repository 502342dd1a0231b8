"""Dispatch tables: the kernel that an operator runs under each runtime key.

A table is a pure function of the registrations in force. It is never patched. A change marks the operator as stale. The
next call computes the whole table from the precedence declared here and publishes it as an immutable snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from pydispatch import _core
from pydispatch._core import OpOverload, Signature, Table, TableEntry
from pydispatch._registry import registrations
from pydispatch._registry.backends import BACKENDS, kernel_provided
from pydispatch._registry.kernels import Kernel, fallthrough_kernel
from pydispatch._registry.messages import describe
from pydispatch._registry.operators import schema_of, undefined
from pydispatch.exceptions import AmbiguousKernelError, RegistrationError
from pydispatch.keys import DispatchKey, backend_keys_of, covers, on_new_key, parse_key, runtime_keys, slot_of
from pydispatch.schema import Argument, Schema
from pydispatch.schema.base_types import DeviceType
from pydispatch.schema.compound_types import OptionalType
from pydispatch.schema.fitting import EXACT, Fit
from pydispatch.schema.parser import parse_declared_signature

CIA = DispatchKey.CompositeImplicitAutograd
CEA = DispatchKey.CompositeExplicitAutograd
CEANF = DispatchKey.CompositeExplicitAutogradNonFunctional

# The precedence of a table entry. Each row has a label and a function. The function takes a runtime key, the keys that
# have a kernel, and the keys whose backends provide one. It returns the key whose kernel the entry gets, or None. The
# first row that returns a key decides.


class Label(Enum):
    """A row of the precedence, with its text in dumps of table entries and the reason that `explain` prints."""

    KERNEL = "kernel", "it is registered under {key} itself"
    NAMESPACE = "namespace kernel", "no kernel is registered for {key}, and its backend's namespace has the operator"
    DEFAULT_BACKEND = "default backend kernel", "it is registered for all backends (CompositeExplicitAutograd)"
    AMBIGUOUS = "ambiguous autogradother", "a composite and a sparse kernel both claim AutogradOther"
    COMPOSITE = (
        "math kernel", "it is registered as a composite (CompositeImplicitAutograd), and {key} has no other", True
    )
    DECOMPOSITION = (
        "decomposition", "the namespace of {key} lacks the operator, but has those that its decomposition calls"
    )
    PACK = "pack kernel", "it was registered together with {key}, whose namespace lacks the operator"
    AUTOGRAD = "autograd kernel", "it is registered under the alias Autograd"
    FALLBACK = "backend fallback", "the operator has no kernel for {key}, and this is the fallback of that key"

    def __init__(self, text: str, reason: str, is_composite: bool = False) -> None:
        self.text = text
        self.reason = reason
        self.is_composite = is_composite    # interpreters and the tape see the calls that its kernels make

    __hash__ = object.__hash__      # in C and so faster than that of Enum

    def __str__(self) -> str:
        return self.text


Keys = frozenset[DispatchKey]
Labelled = frozenset[tuple[DispatchKey, Label]]
"""The keys whose backends provide a kernel, each with the row of that kernel."""
NOTHING_PROVIDED: Labelled = frozenset()
Row = Callable[[DispatchKey, Keys, Labelled], DispatchKey | None]


def _provided(label: Label) -> Row:
    return lambda key, keys, provided: key if (key, label) in provided else None


def _explicit(alias: DispatchKey) -> Row:
    return lambda key, keys, provided: alias if alias in keys and covers(alias, key) else None


def _ambiguous(key: DispatchKey, keys: Keys, provided: Labelled) -> DispatchKey | None:
    is_claimed = key is DispatchKey.AutogradOther and CIA in keys and any(k in keys for k in backend_keys_of(key))
    return key if is_claimed else None


def _implicit(key: DispatchKey, keys: Keys, provided: Labelled) -> DispatchKey | None:
    return CIA if CIA in keys and covers(CIA, key) and not is_claimed(key, keys, provided) else None


def is_claimed(key: DispatchKey, keys: Keys, provided: Labelled) -> bool:
    """Return whether a backend behind this autograd key has a kernel, which a composite must not bypass."""
    return any(k in keys or (CEA in keys and covers(CEA, k)) or (k, Label.NAMESPACE) in provided
               for k in backend_keys_of(key))


PRECEDENCE: tuple[tuple[Label, Row], ...] = (
    (Label.KERNEL, lambda key, keys, provided: key if key in keys else None),
    (Label.NAMESPACE, _provided(Label.NAMESPACE)),
    (Label.DEFAULT_BACKEND, _explicit(CEANF)),
    (Label.DEFAULT_BACKEND, _explicit(CEA)),
    (Label.AMBIGUOUS, _ambiguous),
    (Label.COMPOSITE, _implicit),
    (Label.DECOMPOSITION, _provided(Label.DECOMPOSITION)),
    (Label.PACK, _provided(Label.PACK)),
    (Label.AUTOGRAD, _explicit(DispatchKey.Autograd)),
)


class Choice(NamedTuple):
    """The origin of a table entry: its key, the key that its kernel is registered under, and the label of the row."""

    key: DispatchKey
    source: DispatchKey | None      # None: a fallback
    label: Label


@lru_cache(maxsize=4096)
def choices_for(keys: Keys, provided: Labelled = NOTHING_PROVIDED) -> tuple[Choice, ...]:
    """Choose the kernel of every runtime key, for an operator with kernels under these keys. A pure function."""
    choices = []
    for key in runtime_keys():
        for label, source_of in PRECEDENCE:
            source = source_of(key, keys, provided)
            if source is not None:
                choices.append(Choice(key, source, label))
                break
        else:
            choices.append(Choice(key, None, Label.FALLBACK))
    return tuple(choices)


def _raise_ambiguous(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    backends = backend_keys_of(DispatchKey.AutogradOther)
    sparse = ", ".join(key.name for key in registrations.kernels_of(op) if key in backends)
    raise AmbiguousKernelError(
        f"operator {op.name}: AutogradOther is claimed both by its CompositeImplicitAutograd kernel and by {sparse}\n"
        f'register a kernel for it: lib.impl("{op.name}", kernel, "AutogradOther"), or call inside below_autograd()\n'
        f"{describe(op)}"
    )


def _select_backend(*args: Any, **kwargs: Any) -> Any:
    """Mark the entry that selects a backend: the device argument of the call, or the ambient default. Never called."""
    raise AssertionError("the call path chooses the backend itself")


def _handlers_of_classes(*args: Any, **kwargs: Any) -> Any:
    """Mark the entry that calls the handlers of the arguments' classes. Never called."""
    raise AssertionError("the call path calls the handlers itself")


class ProvidedKernel(Kernel):
    """A kernel that a backend provides, with its row of the precedence."""

    __slots__ = ("label",)

    def __init__(self, function: Callable[..., Any], written: Any, label: Label, fitting: Fit | None = None) -> None:
        super().__init__(function, fitting=fitting)
        self.written = written
        self.label = label

    def __eq__(self, other: object) -> bool:
        """Return whether both call the same function in the same way. Every table computes separate objects."""
        return isinstance(other, ProvidedKernel) and (self.written, self.label, self.fitting) == (
            other.written, other.label, other.fitting)

    def __hash__(self) -> int:
        return hash((self.written, self.label))


FALLS_THROUGH = Kernel(fallthrough_kernel, fallthrough=True)
ASKS_HANDLERS = Kernel(_handlers_of_classes)
SELECTS_BACKEND = Kernel(_select_backend)
IS_AMBIGUOUS = Kernel(_raise_ambiguous)


def _raise_dead_derivative(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    derivative, composite = registrations.derivative_of(op), registrations.kernels_of(op)[CIA][0]
    assert derivative is not None
    raise RegistrationError(
        f"operator {op.name}: the derivative registered at {derivative.site} would never be used: Tensors run the "
        f"CompositeImplicitAutograd kernel {composite.kernel.debug}, registered at {composite.site}, and the tape "
        "records the operators that it calls\n"
        'remove one of them, or register the kernel under "CompositeExplicitAutograd" or a backend'
    )


HAS_DEAD_DERIVATIVE = Kernel(_raise_dead_derivative)


@cache
def framework_fallback(key: DispatchKey) -> Kernel | None:
    """Return the built-in fallback of a key, used if it has neither a kernel nor a registered fallback."""
    if key is DispatchKey.BackendSelect:
        return SELECTS_BACKEND
    if key is DispatchKey.Python:
        return ASKS_HANDLERS
    if key is DispatchKey.Undefined or key.is_dense or key.is_sparse:
        return None
    return FALLS_THROUGH


def what_schema_tells(op: OpOverload, key: DispatchKey) -> Kernel | None:
    """Return the meta kernel that the schema implies, or None.

    It exists if the operator writes to an argument, and returns only such arguments or nothing. An operator that
    neither writes nor returns may have any effect.
    """
    if key is not DispatchKey.Meta:
        return None
    schema = schema_of(op)
    return RETURNS_ARGUMENTS if schema.is_mutable and None not in _returned_arguments(schema) else None


def _returned_arguments(schema: Schema) -> list[Argument | None]:
    return [
        next((argument for argument in schema.arguments if argument.mutable and argument.alias == result.alias), None)
        for result in schema.returns
    ]


def _return_arguments(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    given = dict(zip([argument.name for argument in op.schema.arguments if not argument.kw_only], args, strict=False))
    given |= kwargs
    results = tuple([given.get(argument.name) for argument in _returned_arguments(op.schema) if argument is not None])
    return results[0] if len(results) == 1 else results or None


RETURNS_ARGUMENTS = Kernel(_return_arguments)


def sees_raw_arrays(key: DispatchKey) -> bool:
    """Return whether kernels registered under this key get raw arrays instead of Tensors."""
    return key.is_dense or key.is_sparse or key in (CEA, CEANF)


Part = tuple[Choice, tuple[int, ...], TableEntry | None]
"""The slots of a table that one kernel fills, in all operators with kernels under the same keys.

The elements are the choice of the first slot, the slots, and the entry. All these operators share the entry. It is None
for a kernel of the operator itself.
"""


NO_ARGUMENTS = Signature(Schema(None, (), ()))
"""The signature of a fallback, which takes the arguments of every operator as they are."""


def shared_entry(kernel: Kernel, choice: Choice) -> TableEntry:
    """Make the entry of a fallback, which all operators share."""
    return TableEntry(kernel.function, convention=_convention(kernel, choice.source or choice.key, True, choice.label),
                      fill=(), signature=NO_ARGUMENTS, kernel=kernel, label=choice.label)


def parts_of(keys: Keys, provided: Labelled, has_derivative: bool) -> tuple[Part, ...]:
    """Return the parts of a table for all operators with kernels under these keys. They are computed once."""
    found: tuple[Part, ...] | None = registrations.shared_parts.get((keys, provided, has_derivative))
    if found is None:
        with registrations.lock:      # so that no fallback changes meanwhile
            found = parts_for(keys, provided, has_derivative)
            registrations.shared_parts[keys, provided, has_derivative] = found
    return found


def parts_for(keys: Keys, provided: Labelled, has_derivative: bool) -> tuple[Part, ...]:
    """Compute the parts of a table from the precedence and the fallbacks in force."""
    fallback_under = {key: handle.kernel for handle in registrations.fallbacks for key in handle.key.members}
    slots: dict[Any, list[int]] = {}
    firsts: dict[Any, tuple[Choice, Kernel | None]] = {}
    for choice in choices_for(keys, provided):
        if choice.label is Label.AMBIGUOUS:
            kernel: Kernel | None = IS_AMBIGUOUS
        elif choice.label.is_composite and choice.key.is_autograd and has_derivative:
            kernel = HAS_DEAD_DERIVATIVE
        elif choice.source is not None:
            kernel = None
        else:
            kernel = fallback_under.get(choice.key) or framework_fallback(choice.key)
            if kernel is None and choice.key is not DispatchKey.Meta:
                continue
        # keys share the entry of a fallback if it gets raw arrays under all of them, or Tensors
        identity = (choice.source, choice.label, kernel, kernel is not None and sees_raw_arrays(choice.key))
        slots.setdefault(identity, []).append(slot_of(choice.key))
        firsts.setdefault(identity, (choice, kernel))
    return tuple([
        (choice, tuple(slots[identity]), None if kernel is None else shared_entry(kernel, choice))
        for identity, (choice, kernel) in firsts.items()])


def compute_table(op: OpOverload) -> Table:
    """Compute the table of an operator. This is a pure function of the registrations in force."""
    declaration = op.sole_declaration
    if declaration is not None and declaration.operation.pack.namespace == "np" and not BACKENDS:
        return table_of_declaration(declaration)
    definition, active, handle, rules = registrations.in_force(op)
    if definition is None:
        raise undefined(op)
    schema = definition.schema
    signature = _core.Signature(schema)
    provided = provided_kernels(op, active) if BACKENDS else {}
    labelled = frozenset([(key, kernel.label) for key, kernel in provided.items()]) if provided else NOTHING_PROVIDED
    rows: list[TableEntry | None] = [None] * len(_core.slots())
    for choice, slots, entry in parts_of(frozenset(active), labelled, handle is not None):
        if entry is None:
            entry = own_entry(op, choice, active | provided, signature)
        for slot in slots:
            rows[slot] = entry
    derivative = None if handle is None else handle.derivative
    return Table(signature, tuple(rows), signature.device >= 0, derivative,
                 is_factory="creation" in definition.tags or not signature.brings_arrays, rules=rules,
                 batching=None if definition.vmap is None else _core.BatchingRule(definition.vmap, signature),
                 is_random="random" in definition.tags, is_stateful=has_state(schema, definition.tags),
                 differentiated_as=composite_for_derivatives(derivative, signature, schema),
                 zero_d=zero_d_of(definition.tags, signature.may_be_view))


STATEFUL_TAGS = frozenset({"random", "states", "nondeterministic", "nondeterministic_seeded"})


def has_state(schema: Schema, tags: Iterable[str]) -> bool:
    """Return whether two calls with equal arguments may differ.

    Such an operator draws random numbers or changes an opaque argument.
    """
    return (schema.takes_generator and "generators" not in tags) or not STATEFUL_TAGS.isdisjoint(tags) or any(
        not schema.arguments[i].type.contains_arrays for i in schema.written)


def table_of_declaration(declaration: Any) -> Table:
    """Compute the table of a library operator that has no registrations except its declaration.

    Most first calls are of such operators. Their tables share all equal parts, and neither their names, their schemas
    nor their registrations are created. Through `compute_table` the first call in a process takes 0.9 ms instead of
    0.3, and that of each further operator 0.08 ms instead of 0.04.
    """
    operation, tags = declaration.operation, declaration.tags
    signature = signature_declared(declaration)
    dense, meta = registrations.kernels_declared(declaration)
    rows = list(rows_beside_kernels())
    rows[CPU_SLOT] = TableEntry(dense.function, convention="raw", fill=(), signature=signature, kernel=dense,
                                label=Label.KERNEL)
    rows[META_SLOT] = TableEntry(meta.function, convention="raw", fill=(), signature=signature, kernel=meta,
                                 label=Label.KERNEL)
    vmap, composite = operation.vmap, declaration.differentiated_as
    return Table(signature, tuple(rows), signature.device >= 0, declaration,
                 is_factory="creation" in tags or not signature.brings_arrays,
                 batching=None if vmap is None else _core.BatchingRule(vmap, signature), is_random="random" in tags,
                 is_stateful="states" in tags, differentiated_as=None if composite is None else TableEntry(
                     composite, convention="composite", fill=(), signature=signature, label=Label.COMPOSITE,
                     kernel=Kernel(composite, is_of_user=False, fitting=EXACT)),
                 zero_d=zero_d_of(tags, signature.may_be_view))


def zero_d_of(tags: Collection[str], may_be_view: bool) -> str:
    """Return what NumPy makes of results without axes: a scalar, which is a value, or an array.

    By default views and new arrays of factories are arrays, and all else is a scalar. Tags specify other cases:
    `zero_d_scalar`, `zero_d_array`, `zero_d_as_first` (a scalar if the first argument is one), `zero_d_by_key` (a
    scalar unless the key, the second argument, has an Ellipsis).
    """
    for tag, zero_d in TAGS_OF_ZERO_D.items():
        if tag in tags:
            return zero_d
    return "an array" if may_be_view or ("creation" in tags and "random" not in tags) else "a scalar"


TAGS_OF_ZERO_D = {"zero_d_scalar": "a scalar", "zero_d_array": "an array", "zero_d_as_first": "as first",
                  "zero_d_by_key": "by key"}


CPU_SLOT, META_SLOT = slot_of(DispatchKey.CPU), slot_of(DispatchKey.Meta)


def rows_beside_kernels() -> tuple[TableEntry | None, ...]:
    """Return the table rows, except CPU and Meta, of operators with kernels for these two keys and a derivative."""
    found: tuple[TableEntry | None, ...] | None = registrations.shared_parts.get("beside kernels")
    if found is None:
        with registrations.lock:
            rows: list[TableEntry | None] = [None] * len(_core.slots())
            for _, slots, entry in parts_of(frozenset((DispatchKey.CPU, DispatchKey.Meta)), NOTHING_PROVIDED, True):
                for slot in slots:
                    rows[slot] = entry
            found = registrations.shared_parts["beside kernels"] = tuple(rows)
    return found


def signature_declared(declaration: Any) -> Signature:
    """Make the signature of a library operator, with a layout that all operators with the same text share."""
    return Signature(partial(registrations.schema_declared, declaration), signature_of_text(declaration.signature_text),
                     declaration.name == "detach")


@cache
def signature_of_text(text: str) -> Signature:
    """Return the signature of a schema without a name."""
    return _core.simple_signature(text, partial(parse_declared_signature, text)) or Signature(
        parse_declared_signature(text))


def own_entry(
    op: OpOverload, choice: Choice, active: dict[DispatchKey, Kernel], signature: Signature
) -> TableEntry | None:
    """Make the entry of the operator's kernel, or of the kernel that its schema implies. Return None without one."""
    if choice.source is None:
        kernel = what_schema_tells(op, choice.key)
        return None if kernel is None else shared_entry(kernel, choice)
    kernel = active[choice.source]
    fit = kernel.fit(signature.schema)
    convention = _convention(kernel, choice.source, False, choice.label)
    if has_state(signature.schema, op.tags):
        convention += " stateful"
    return TableEntry(kernel.function, convention=convention, fill=fit.filled, unsupported=fit.unsupported,
                      signature=signature, kernel=kernel, label=choice.label)


def provided_kernels(op: OpOverload, active: dict[DispatchKey, Kernel]) -> dict[DispatchKey, ProvidedKernel]:
    """Return the kernels that backends provide, by dense keys, except for keys that have an active kernel."""
    found = {}
    for name, backend in list(BACKENDS.items()):
        key = parse_key(name)
        if backend.provides and key not in active:
            kernel = kernel_provided(op, backend)
            if isinstance(kernel, ProvidedKernel):
                found[key] = kernel
    return found


def composite_for_derivatives(derivative: Any, signature: Signature, schema: Schema) -> TableEntry | None:
    """Make the entry of the composite that runs instead of an operator if a derivative is needed, or return None."""
    function = getattr(derivative, "differentiated_as", None)
    if function is None:
        return None
    kernel = Kernel(function, is_of_user=False)
    fit = kernel.fit(schema)
    return TableEntry(function, convention="composite", fill=fit.filled, unsupported=fit.unsupported,
                      signature=signature, kernel=kernel, label=Label.COMPOSITE)


def is_factory(op: OpOverload, schema: Schema) -> bool:
    """Return whether an operator is a factory.

    Its result belongs to the innermost interpreter, although none of its arguments may.
    """
    definition = registrations.definition_of(op)
    return not any(argument.type.contains_arrays for argument in schema.arguments) or (
        definition is not None and "creation" in definition.tags
    )


def is_device(argument: Argument) -> bool:
    """Return whether this argument names a backend."""
    kind = argument.type
    return type(kind) is DeviceType or (type(kind) is OptionalType and type(kind.inner) is DeviceType)


def _convention(kernel: Kernel, key: DispatchKey, is_fallback: bool, label: Label) -> str:
    return _words(key, is_fallback, label.is_composite or kernel.is_composite, kernel.fallthrough,
                  kernel.with_keyset, kernel.boxed, kernel.is_of_user, kernel.checks_aliasing,
                  kernel is SELECTS_BACKEND, kernel is ASKS_HANDLERS, kernel.applies is not None)


@cache
def _words(
    key: DispatchKey, is_fallback: bool, is_composite: bool, fallthrough: bool, with_keyset: bool, boxed: bool,
    is_of_user: bool, checks_aliasing: bool, asks_device: bool, asks_handlers: bool,
    is_conditional: bool,
) -> str:
    is_raw = sees_raw_arrays(key)
    words = {
        "fallthrough": fallthrough,
        "raw": is_raw,
        "keyset": with_keyset,
        "boxed": boxed,
        "operator": is_fallback and not boxed,
        "asks_device": asks_device,
        "handlers": asks_handlers,
        "composite": is_composite,
        "conditional": is_conditional,
        "of_user": is_of_user,
        "fresh": checks_aliasing and is_raw,
    }
    return " ".join([word for word, holds in words.items() if holds])


def build_table(op: OpOverload) -> Table:
    """Compute the table of a stale operator and publish it."""
    with registrations.lock:
        table = op.live_table
        if table is None:
            table = compute_table(op)
            op.install_table(table)
        return table


def table_entry(op: OpOverload, key: DispatchKey) -> TableEntry | None:
    """Return the entry that a call on this runtime key runs. Raise UnknownKeyError for an alias key."""
    return build_table(op).rows[slot_of(key)]


def _forget() -> None:
    """Forget all choices after a new key was registered, before any table is computed from old ones."""
    with registrations.lock:
        choices_for.cache_clear()
        registrations.mark_all_stale()


on_new_key(_forget)
_core.connect(build_table=build_table)
