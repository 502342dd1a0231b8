"""Registrations: add them, remove them, and find the ones in force.

The state is a list of registrations per operator, in the order of registration, and one fallback per key. Everything
else (schema, active kernels, counts, tables) is computed from these lists on demand.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from pydispatch import _core
from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._registry.kernels import Kernel, check_function, check_kernel
from pydispatch._sites import RegistrationSite, caller_site, frames_to_caller, is_again, warn_again
from pydispatch.exceptions import OverrideWarning, RegistrationError
from pydispatch.keys import DispatchKey
from pydispatch.schema import OperatorName, Schema
from pydispatch.schema.fitting import EXACT
from pydispatch.schema.parser import parse_declared_signature

H = TypeVar("H", bound="OperatorHandle")
K = TypeVar("K")

lock = _core.registering                                    # held while any of the following changes
operators: dict[str, OpOverload] = {}                       # by full name, overload included
packets: dict[str, dict[str, OpOverloadPacket]] = {}        # namespace -> name -> packet
fallbacks: list[FallbackHandle] = []
outside: set[str] = set()                                   # operators that have or had registrations by other code
shared_parts: dict[Any, Any] = {}                           # of tables (`tables.parts_of`), cleared with the tables
_kernels_declared: dict[Any, tuple[Kernel, Kernel]] = {}    # by declaration


# --- handles ---------------------------------------------------------------------------------------------------------


class Handle:
    """One registration. `remove()` undoes exactly this one, and so does the end of a `with` block."""

    __slots__ = ("__weakref__", "active", "site")

    def __init__(self, site: str) -> None:
        self.site = site
        self.active = False

    def remove(self) -> None:
        """Undo this registration. A second call does nothing."""
        with lock:
            if self.active:
                self._undo()

    def _undo(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class OperatorHandle(Handle):
    """A registration that belongs to one operator."""

    __slots__ = ("operator",)
    operator: OpOverload

    def _undo(self) -> None:
        name = self.operator.name
        packet = None
        if isinstance(self, DefinitionHandle):
            packet = packets[name.namespace or ""][name.name]
        _core.put_out_of_force(operators, packets, str(name), self, packet, caller_site())


class DefinitionHandle(OperatorHandle):
    """The definition of an operator, which gives it a schema."""

    __slots__ = ("_schema", "alias_analysis", "left_out", "tags", "vmap")

    def __init__(
        self, schema: Schema | Callable[[], Schema], site: str, alias_analysis: str | None,
        tags: tuple[str, ...], left_out: Mapping[str, str], vmap: Any = None,
    ) -> None:
        super().__init__(site)
        self._schema = schema
        self.alias_analysis = alias_analysis    # None: unset
        self.tags = tags
        self.vmap = vmap                        # the batching rule of a library operator
        self.left_out = left_out                # unsupported NumPy parameters: name -> remedy

    @property
    def schema(self) -> Schema:
        """The schema. For an operator of the library, it is parsed on first use."""
        schema = self._schema       # read once: another thread may replace it
        if not isinstance(schema, Schema):
            schema = self._schema = schema()
        return schema

    @property
    def is_parsed(self) -> bool:
        """Whether the schema has been parsed."""
        return isinstance(self._schema, Schema)


class KernelHandle(OperatorHandle):
    """A kernel under one dispatch key."""

    __slots__ = ("kernel", "key")

    def __init__(self, key: DispatchKey, kernel: Kernel, site: str) -> None:
        super().__init__(site)
        self.key = key
        self.kernel = kernel


class DerivativeHandle(OperatorHandle):
    """The derivative of an operator: a CustomDerivative, or the declaration of a library operator with its formulas."""

    __slots__ = ("derivative",)

    def __init__(self, derivative: Any, site: str) -> None:
        super().__init__(site)
        self.derivative = derivative


class RuleHandle(OperatorHandle):
    """The rule of an operator for one class of Tensors, modes or transforms."""

    __slots__ = ("cls", "rule")

    def __init__(self, cls: type, rule: Callable[..., Any], site: str) -> None:
        super().__init__(site)
        self.cls = cls
        self.rule = rule


class SwitchHandle(OperatorHandle):
    """A choice between an operator's kernels for one backend and another kernel that replaces them."""

    __slots__ = ("backend", "enabled", "kernel")

    def __init__(self, backend: str, enabled: bool, kernel: Kernel, site: str) -> None:
        super().__init__(site)
        self.backend = backend      # in lower case
        self.enabled = enabled
        self.kernel = kernel


class NameHandle(OperatorHandle):
    """A registration that keeps an operator's name known without a schema or a kernel."""

    __slots__ = ()


class FallbackHandle(Handle):
    """A kernel for every operator under one key, or under each member of an alias key."""

    __slots__ = ("kernel", "key")

    def __init__(self, key: DispatchKey, kernel: Kernel, site: str) -> None:
        super().__init__(site)
        self.key = key
        self.kernel = kernel

    def _undo(self) -> None:
        if self in fallbacks:
            fallbacks.remove(self)
        mark_all_stale()
        self.active = False     # last, so that an interrupted call can be repeated


class HandleGroup(Handle):
    """Registrations made by one call, which are undone together."""

    __slots__ = ("handles",)

    def __init__(self, handles: list[Handle]) -> None:
        super().__init__(caller_site())
        self.active = True
        self.handles = handles

    def remove(self) -> None:
        """Undo all registrations of the group. An interrupted call can be repeated."""
        try:
            call_each(handle.remove for handle in self.handles)
        finally:
            self.active = any(handle.active for handle in self.handles)


def mark_all_stale() -> None:
    """Mark all operators as stale, so that each computes its table again."""
    with lock:
        shared_parts.clear()
        for op in operators.values():
            op.install_table(None)


# --- the registrations of one operator -------------------------------------------------------------------------------


def definition_of(op: OpOverload) -> DefinitionHandle | None:
    """Return the definition in force, or None."""
    for registration in op.registrations:
        if isinstance(registration, DefinitionHandle):
            return registration
    return None


def kernels_of(op: OpOverload) -> dict[DispatchKey, list[KernelHandle]]:
    """Return the kernels under each key, newest first. The first one is active."""
    kernels: dict[DispatchKey, list[KernelHandle]] = {}
    for registration in reversed(op.registrations):
        if isinstance(registration, KernelHandle):
            kernels.setdefault(registration.key, []).append(registration)
    return kernels


def switched_off(op: OpOverload) -> dict[str, SwitchHandle]:
    """Return, by backend in lower case, the switches that turn kernels off. The newest switch of a backend decides."""
    newest = {r.backend: r for r in op.registrations if isinstance(r, SwitchHandle)}
    return {backend: switch for backend, switch in newest.items() if not switch.enabled}


class InForce(NamedTuple):
    """The registrations of an operator that are in force, by kind."""

    definition: DefinitionHandle | None
    kernels: dict[DispatchKey, Kernel]      # the newest under each key, or its replacement if it is switched off
    derivative: DerivativeHandle | None
    rules: dict[type, Callable[..., Any]] | None    # the newest for each class, None if there are none


def in_force(op: OpOverload) -> InForce:
    """Find the registrations in force, in one pass, as the first call of an operator needs all of them."""
    definition, derivative, is_switched = None, None, False
    kernels: dict[DispatchKey, Kernel] = {}
    rules: dict[type, Callable[..., Any]] = {}
    for registration in op.registrations:
        if isinstance(registration, KernelHandle):
            kernels[registration.key] = registration.kernel
        elif isinstance(registration, DefinitionHandle):
            definition = definition or registration
        elif isinstance(registration, DerivativeHandle):
            derivative = registration
        elif isinstance(registration, RuleHandle):
            rules[registration.cls] = registration.rule
        elif isinstance(registration, SwitchHandle):
            is_switched = True
    if is_switched:
        kernels = replaced(kernels, switched_off(op))
    return InForce(definition, kernels, derivative, rules or None)


def replaced(
    kernels: dict[DispatchKey, Kernel], off: dict[str, SwitchHandle]
) -> dict[DispatchKey, Kernel]:
    """Return these kernels, with those that are switched off replaced. Fake kernels stay."""
    return {key: off[backend_of(key)].kernel if backend_of(key) in off and not kernel.is_fake else kernel
            for key, kernel in kernels.items()}


def backend_of(key: DispatchKey) -> str:
    """Return the backend of a dense key, in lower case, or an empty string for other keys."""
    return key.backend.lower() if key.backend is not None and key.is_dense else ""


def derivative_of(op: OpOverload) -> DerivativeHandle | None:
    """Return the derivative in force, which is the newest one, or None."""
    return next((r for r in reversed(op.registrations) if isinstance(r, DerivativeHandle)), None)


def fallback_of(key: DispatchKey) -> FallbackHandle | None:
    """Return the fallback registered for a runtime key, directly or under an alias, or None."""
    return next((handle for handle in fallbacks if key in handle.key.members), None)


# --- registering -----------------------------------------------------------------------------------------------------


def add_definition(
    schema: Schema, site: str, *, alias_analysis: str | None = "FROM_SCHEMA", tags: tuple[str, ...] = (),
    left_out: Mapping[str, str] | None = None,
) -> DefinitionHandle:
    """Define an operator by its schema.

    If the code of the former definition runs again, the new schema replaces the former one, with an OverrideWarning.
    Raises RegistrationError if other code has defined the operator, or if one of its kernels does not fit.
    """
    assert schema.name is not None
    if hasattr(OpOverloadPacket, schema.name.overload):
        raise RegistrationError(
            f"operator {schema.name}: the overload name {schema.name.overload!r} is an attribute of every packet, so "
            f"the overload could not be reached\nchoose another: {schema.name.qualified}.{schema.name.overload}_1"
        )
    with lock:
        op = operators.get(str(schema.name))
        keeper = None
        if op is not None:
            first = definition_of(op)
            if first is not None and is_again(site, first.site):
                keeper = _make_way(op, first, schema, site)
            elif first is not None:
                relation = "repeats the one" if schema == first.schema else f"conflicts with {first.schema},"
                raise RegistrationError(
                    f"operator {schema.name} is defined already\n"
                    f"the schema {schema}, defined at {site}, {relation} defined at {first.site}. Remove that one "
                    f"first (handle.remove()), or add an overload: {schema.name.qualified}.<name>"
                )
            for registration in op.registrations:
                if isinstance(registration, KernelHandle):
                    check_kernel(schema, site, registration.kernel)
        handle = DefinitionHandle(schema, site, alias_analysis, tags, left_out or {})
        install(schema.name, handle)
        if keeper is not None:
            keeper.remove()
        return handle


def _make_way(op: OpOverload, first: DefinitionHandle, schema: Schema, site: str) -> NameHandle:
    """Remove a definition whose code runs again, and the kernels beside it that do not fit the new schema.

    Kernels of other modules must fit, because the code that registered them does not run again. The returned
    registration keeps the operator's name known meanwhile.
    """
    warn_again(f"operator {schema.name}", site, first.site)     # before anything is changed
    keeper = install(op.name, NameHandle(site))
    first.remove()
    for registration in tuple(op.registrations):
        if isinstance(registration, KernelHandle) and _is_beside(registration.site, site):
            try:
                check_kernel(schema, site, registration.kernel)
            except RegistrationError:
                registration.remove()
    return keeper


def _is_beside(one: str, other: str) -> bool:
    if not (isinstance(one, RegistrationSite) and isinstance(other, RegistrationSite)):
        return False
    return one.run is not None and other.run is not None and one.run.is_beside(other.run)


def add_kernel(
    name: OperatorName, key: DispatchKey, kernel: Kernel, site: str, *, allow_override: bool = True
) -> KernelHandle:
    """Register a kernel under a key. The operator need not be defined yet. The newest kernel under a key is active."""
    if key is DispatchKey.Undefined:
        key = DispatchKey.CompositeImplicitAutograd
    with lock:
        op = operators.get(str(name))
        former = None
        if op is not None:
            definition = definition_of(op)
            if definition is not None:
                check_kernel(definition.schema, definition.site, kernel)
            former = _announce_override(op, key, kernel, site, allow_override)
        handle = install(name, KernelHandle(key, kernel, site))
        if former is not None:
            former.remove()
        return handle


def add_derivative(name: OperatorName, derivative: Any, site: str) -> DerivativeHandle:
    """Register a derivative of an operator. The newest one is in force from the next call on."""
    with lock:
        return install(name, DerivativeHandle(derivative, site))


def add_rule(name: OperatorName, cls: type, rule: Callable[..., Any], site: str) -> RuleHandle:
    """Register a rule of an operator for objects of exactly this class. The newest rule is in force."""
    check_function(f"operator {name}: argument rule", "a rule", rule,
                   f"write library.register_pydispatch({str(name)!r}, {cls.__name__}, rule)")
    with lock:
        op = operators.get(str(name))
        if op is not None and cls in (in_force(op).rules or {}):
            warnings.warn(f"operator {name}: the rule registered at {site} now shadows another for {cls.__name__}",
                          OverrideWarning, stacklevel=frames_to_caller())
        return install(name, RuleHandle(cls, rule, site))


def add_name(name: OperatorName) -> NameHandle:
    """Keep the name of an operator known."""
    with lock:
        return install(name, NameHandle(caller_site()))


def register_pack(namespace: str, declarations: dict[str, Any], named: dict[str, OpOverloadPacket]) -> None:
    """Register the operators of a pack, by name. The registrations of each operator are created on first use.

    `named` holds the packets for names that have no packet in force.

    A declaration has `name`, `signature_text`, `kernels` by "CPU" and "Meta", `tags`, and an `operation`, which has
    `left_out`, `vmap` and the `pack`.
    """
    with lock:
        _core.declare_in_force(operators, packets, namespace, declarations, named)


def declared(op: OpOverload, declaration: Any) -> list[OperatorHandle]:
    """Make the registrations of an operator that a pack declares. The schema is parsed on first use."""
    operation = declaration.operation
    pack = operation.pack
    dense, meta = kernels_declared(declaration)
    handles: list[OperatorHandle] = [
        DefinitionHandle(partial(schema_declared, declaration), pack.module, "FROM_SCHEMA", declaration.tags,
                         operation.left_out, operation.vmap),
        KernelHandle(DispatchKey.CPU, dense, pack.module),
        KernelHandle(DispatchKey.Meta, meta, pack.module),
        DerivativeHandle(declaration, pack.module)]
    for handle in handles:
        handle.operator = op
        handle.active = True
    return handles


@cache
def name_declared(declaration: Any) -> OperatorName:
    """Return the full name of the operator of a declaration."""
    base, _, overload = declaration.name.partition(".")
    return OperatorName(declaration.operation.pack.namespace, base, overload)


@cache
def schema_declared(declaration: Any) -> Schema:
    """Parse the schema of a declaration."""
    return parse_declared_signature(declaration.signature_text).with_name(name_declared(declaration))


def kernels_declared(declaration: Any) -> tuple[Kernel, Kernel]:
    """Return the CPU and Meta kernels of a declaration. Every call returns the same objects."""
    found = _kernels_declared.get(declaration)
    if found is None:
        kernels = declaration.kernels
        # no check for the library: its tests compare the kernels with the schemas
        fitting = EXACT if declaration.operation.pack.namespace == "np" else None
        made = (Kernel(kernels["CPU"], is_of_user=False, fitting=fitting),
                Kernel(kernels["Meta"], is_of_user=False, fitting=fitting))
        found = _kernels_declared.setdefault(declaration, made)     # another thread may have set it first
    return found


def add_fallback(key: DispatchKey, kernel: Kernel, site: str) -> FallbackHandle:
    """Register a kernel under a key for all operators. Raise RegistrationError if other code has registered one."""
    with lock:
        handle = FallbackHandle(key, kernel, site)
        for member in key.members:
            taken = fallback_of(member)
            if taken is not None and is_again(site, taken.site):
                warn_again(f"fallback of {member.name}", site, taken.site)
                taken.remove()
            elif taken is not None:
                raise RegistrationError(
                    f"the key {member.name} has a fallback already\n"
                    f"{kernel.debug}, registered at {site}, repeats {taken.kernel.debug}, registered at {taken.site}. "
                    "Remove that one first: handle.remove()"
                )
        handle.active = True
        lock.note(handle.remove)
        fallbacks.append(handle)
        mark_all_stale()
        return handle


def all_or_none(registering: Iterable[Callable[[], Handle]]) -> Handle:
    """Make these registrations in order. If one is refused, undo those before it."""
    with lock:
        handles = [register() for register in registering]
        return handles[0] if len(handles) == 1 else HandleGroup(handles)


def call_each(functions: Iterable[Callable[[], object]]) -> None:
    """Call every function, even if another one raises. Then raise the first error."""
    raise_first(errors_of(functions))


def errors_of(functions: Iterable[Callable[[], object]]) -> list[BaseException]:
    """Call every function and return the errors that they raised."""
    errors: list[BaseException] = []
    for function in tuple(functions):
        try:
            function()
        except BaseException as error:
            errors.append(error)
    return errors


def raise_first(errors: list[BaseException]) -> None:
    """Raise the first of these errors, if there is one."""
    if errors:
        raise errors[0]


def assign(owner: object, attribute: str, value: object) -> None:
    """Set an attribute. If an exception leaves the block that holds the lock, restore the old value."""
    lock.note(partial(setattr, owner, attribute, getattr(owner, attribute)))
    setattr(owner, attribute, value)


def assign_item(items: dict[K, Any], name: K, value: object) -> None:
    """Set an item of a dict. If an exception leaves the block that holds the lock, restore the old value."""
    lock.note(partial(items.__setitem__, name, items[name]) if name in items else partial(items.pop, name, None))
    items[name] = value


def install(name: OperatorName, handle: H, *others: OperatorHandle) -> H:
    """Add registrations to one operator, mark its table as stale, and return the first registration."""
    text = str(name)
    if is_outside(handle):
        outside.add(text)
    handles: tuple[OperatorHandle, ...] = (handle, *others)
    op = operators.get(text) or OpOverload(name)
    shown = None
    if any(isinstance(handle, DefinitionHandle) for handle in handles):
        shown = packets.get(name.namespace or "", {}).get(name.name) or OpOverloadPacket(name.qualified)
    _core.put_in_force(operators, packets, text, op, handles, shown)
    return handle


def is_outside(handle: Handle) -> bool:
    """Return whether code outside this package made a registration."""
    return not str(getattr(handle.site, "module", "") or handle.site).startswith("pydispatch.")


def _announce_override(
    op: OpOverload, key: DispatchKey, kernel: Kernel, site: str, allow_override: bool
) -> KernelHandle | None:
    """Warn about the kernel that a new one shadows. Return it if the same code registers it again, else None."""
    previous = kernels_of(op).get(key)
    if not previous:
        return None
    is_made_again = is_again(site, previous[0].site, has_its_name=kernel.name == previous[0].kernel.name)
    former = previous[0] if is_made_again else None
    if not allow_override and former is None:
        raise RegistrationError(
            f"operator {op.name} has a kernel under {key.name} already: {previous[0].kernel.debug}\n"
            "remove it first (handle.remove()), or pass allow_override=True"
        )
    if key.backend != "Meta":
        # before anything is changed, so that a warning turned into an error leaves no trace
        warnings.warn(
            f"operator {op.name}: the kernel {kernel.debug} now shadows {previous[0].kernel.debug} under {key.name}",
            OverrideWarning, stacklevel=frames_to_caller(),
        )
    return former


_core.connect(declared=declared, name_declared=name_declared)
