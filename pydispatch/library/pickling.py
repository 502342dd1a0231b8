"""Pickling of operators: by the modules that register them, or by value if no module does.

An operator of a script or a notebook is pickled with its registrations: schema, kernels, derivative, fake, batching
rule. `cloudpickle` pickles their functions. The receiving process defines the operator once. Another definition
replaces it.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from pydispatch import _core
from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._registry import registrations
from pydispatch._registry.kernels import make_kernel
from pydispatch._registry.operators import find_or_raise, find_packet, packet
from pydispatch._registry.packs import namespaces_of_packs
from pydispatch._sites import RegistrationSite, frames_to_caller, this_process
from pydispatch.exceptions import OperatorNotFoundError, OverrideWarning, StaleOperatorError
from pydispatch.keys import DispatchKey
from pydispatch.library.batching import BatchingHandle, add_batching
from pydispatch.library.custom_operator import CustomOpDef, define_custom, definitions, register_for
from pydispatch.library.derivatives import ContextDerivative, NamedDerivative
from pydispatch.library.derived import DerivedDefinition, derived_operator
from pydispatch.library.fakes import FakeKernel, add_fake
from pydispatch.ops import ops
from pydispatch.schema import Schema, parse_name

logger = logging.getLogger("pydispatch.library")
Step = Callable[[OpOverload], object]       # makes one registration
_under_way: ContextVar[frozenset[str]] = ContextVar("pydispatch_pickled", default=frozenset())
"""The operators whose registrations are being pickled, since kernels may call their own operator. EVERY means all."""
EVERY = "*"
_arrived: dict[str, Parcel] = {}
"""The parcel that arrived last, by name of the operator."""


class Parcel(NamedTuple):
    """The registrations of an operator that are pickled by value."""

    process: str            # in which the registrations were made
    number: int             # of the latest registration
    site: str               # of the first registration
    defines: bool           # whether the definition is among them
    pickled: bytes          # a list of steps
    digest: str
    problem: str            # why it has no steps, or ""


# --- sending ---------------------------------------------------------------------------------------------------------


def reduce_operator(op: OpOverload) -> tuple[Any, ...]:
    """Return the function and arguments that unpickle an operator."""
    definition = registrations.definition_of(op)
    if isinstance(definition, DerivedDefinition):
        return derived_operator, (definition.parent, definition.batch.dims, definition.batch.randomness)
    name = str(op.name)
    if name in _under_way.get():
        return operator_to_be, (name,)
    name, modules, parcel = _sent(op)
    if parcel is not None:
        return arrived_operator, (name, modules, parcel)
    return (operator_of_modules, (name, modules)) if modules else (find_or_raise, (name,))


def reduce_packet(packet: OpOverloadPacket) -> tuple[Any, ...]:
    """Return the function and arguments that unpickle the packet of a name."""
    if any(any(_origins(op)) for op in packet.overloads):
        return packet_of, (packet.name, packet.overloads)
    return find_packet, (packet.name,)


def reduce_custom_operator(definition: CustomOpDef[..., Any]) -> tuple[Any, ...]:
    """Return the function and arguments that unpickle a custom operator. Inside its kernels, that is the operator."""
    if str(definition.name) in _under_way.get():
        return operator_to_be, (str(definition.name),)
    return custom_operator_of, (definition.operator,)


def reduce_namespace(namespace: str | None) -> tuple[Any, ...]:
    """Return the function and arguments that unpickle `ops.<namespace>`, or `ops` if the namespace is None.

    They include all operators of the namespace, for the code that uses it. Operators of packs are left out, because the
    receiving process finds them.
    """
    under_way = _under_way.get()
    found: list[tuple[str, tuple[str, ...], Parcel | None]] = []
    if EVERY not in under_way:
        token = _under_way.set(under_way | {EVERY})
        try:
            found = [_sent(op) for op in list(registrations.operators.values())
                     if namespace in (None, op.namespace) and str(op.name) not in under_way
                     and op.namespace != "np" and op.namespace not in namespaces_of_packs() and any(_origins(op))]
        finally:
            _under_way.reset(token)
    return namespace_with, (namespace, found)


def _sent(op: OpOverload) -> tuple[str, tuple[str, ...], Parcel | None]:
    """Return an operator's name, the modules that make its registrations, and a parcel of the other registrations."""
    modules, own = _origins(op)
    return str(op.name), modules, _parcel(op, own) if own else None


def _origins(op: OpOverload) -> tuple[tuple[str, ...], list[registrations.OperatorHandle]]:
    """Return the modules that make an operator's registrations, and the registrations that no module makes."""
    modules: dict[str, None] = {}
    own: list[registrations.OperatorHandle] = []
    by_value = _modules_by_value()
    for handle in op.registrations:
        site = handle.site
        if not isinstance(site, RegistrationSite):      # from a pack: the site is its module
            modules[site] = None
        elif site.module and site.module not in by_value:
            modules[site.module] = None
        else:
            own.append(handle)
    return tuple([module for module in modules if not module.startswith("pydispatch.")]), own


def _modules_by_value() -> Iterable[str]:
    """Return the modules that the user registered with cloudpickle for pickling by value."""
    cloudpickle = sys.modules.get("cloudpickle")
    return () if cloudpickle is None else cloudpickle.list_registry_pickle_by_value()


def _parcel(op: OpOverload, own: Sequence[registrations.OperatorHandle]) -> Parcel:
    sites = [handle.site for handle in own if isinstance(handle.site, RegistrationSite)]
    defines = any(isinstance(handle, registrations.DefinitionHandle) for handle in own)
    described = partial(Parcel, sites[0].process, max(site.number for site in sites), str(sites[0]), defines)
    token = _under_way.set(_under_way.get() | {str(op.name)})
    try:
        steps = [step for handle in own if (step := _step_of(op, handle)) is not None]
        pickled: bytes = import_module("cloudpickle").dumps(steps)
    except Exception as error:      # harmless if the receiving process knows the operator
        return described(b"", "", f"{type(error).__name__}: {error}")
    finally:
        _under_way.reset(token)
    return described(pickled, hashlib.sha256(pickled).hexdigest(), "")


def _step_of(op: OpOverload, handle: registrations.OperatorHandle) -> Step | None:
    """Return a function that makes the same registration elsewhere, or None if another step makes it."""
    site = handle.site
    custom = definitions.get(str(op.name))
    if isinstance(handle, registrations.DefinitionHandle):
        if custom is None:
            return partial(_define, handle.schema, handle.alias_analysis, handle.tags, site)
        return partial(_define_custom, handle.schema, custom.function, _keys_of_definition(custom), handle.tags, site)
    if isinstance(handle, registrations.KernelHandle):
        return _step_of_kernel(handle, custom)
    if isinstance(handle, BatchingHandle):
        return partial(_add_batching, handle.kernel.function, site)
    if isinstance(handle, registrations.RuleHandle):
        return partial(_add_rule, handle.cls, handle.rule, site)
    derivative = handle.derivative if isinstance(handle, registrations.DerivativeHandle) else None
    if isinstance(derivative, (ContextDerivative, NamedDerivative)):
        return partial(_add_derivative, type(derivative), derivative.given, site)
    return None


def _step_of_kernel(handle: registrations.KernelHandle, custom: CustomOpDef[..., Any] | None) -> Step | None:
    kernel = handle.kernel
    if isinstance(kernel, FakeKernel):
        return partial(_add_fake, kernel.written, handle.site)
    if custom is None or not custom.owns(handle):
        return partial(_add_kernel, handle.key, kernel.written, kernel.with_keyset, kernel.boxed, handle.site)
    if kernel.written is custom.function:
        return None
    return partial(_add_custom_kernel, handle.key, kernel.written, handle.site)


def _keys_of_definition(custom: CustomOpDef[..., Any]) -> tuple[DispatchKey, ...]:
    """Return the keys under which the decorated function is registered."""
    return tuple([key for key, handles in registrations.kernels_of(custom.operator).items()
                  if any(custom.owns(handle) and handle.kernel.written is custom.function for handle in handles)])


# --- steps -----------------------------------------------------------------------------------------------------------


def _define(
    schema: Schema, alias_analysis: str | None, tags: tuple[str, ...], site: str, op: OpOverload
) -> None:
    registrations.add_definition(schema, site, alias_analysis=alias_analysis, tags=tags)


def _define_custom(
    schema: Schema, function: Callable[..., Any], keys: tuple[DispatchKey, ...], tags: tuple[str, ...],
    site: str, op: OpOverload,
) -> None:
    define_custom(schema, function, keys, tags, site)


def _add_kernel(
    key: DispatchKey, function: Callable[..., Any], with_keyset: bool, boxed: bool, site: str,
    op: OpOverload,
) -> None:
    registrations.add_kernel(op.name, key, make_kernel(function, with_keyset=with_keyset, boxed=boxed), site)


def _add_custom_kernel(
    key: DispatchKey, function: Callable[..., Any], site: str, op: OpOverload
) -> None:
    definitions[str(op.name)].add_kernels((key,), function, site)


def _add_fake(function: Callable[..., Any], site: str, op: OpOverload) -> None:
    register_for(op, "fake", partial(add_fake, op, function, site))


def _add_batching(function: Callable[..., Any], site: str, op: OpOverload) -> None:
    register_for(op, "vmap", partial(add_batching, op, function, site))


def _add_rule(cls: type, rule: Callable[..., Any], site: str, op: OpOverload) -> None:
    registrations.add_rule(op.name, cls, rule, site)


def _add_derivative(
    kind: Callable[..., Any], given: tuple[Any, ...], site: str, op: OpOverload
) -> None:
    register_for(op, "autograd", partial(registrations.add_derivative, op.name, kind(op, *given), site))


# --- arriving --------------------------------------------------------------------------------------------------------


def operator_to_be(name: str) -> OpOverload:
    """Return the operator of a name, which may not be defined yet."""
    return registrations.operators.get(name) or registrations.add_name(parse_name(name)).operator


def operator_of_modules(name: str, modules: Sequence[str]) -> OpOverload:
    """Import the modules that register something for an operator, and return the operator."""
    for module in modules:
        import_module(module)
    return find_or_raise(name)


def packet_of(name: str, overloads: Sequence[OpOverload]) -> OpOverloadPacket:
    """Return the packet of a name. Its overloads have arrived or will be defined."""
    parsed = parse_name(name)
    return packet(parsed.namespace or "", parsed.name)


def namespace_with(namespace: str | None, sent: Sequence[tuple[str, tuple[str, ...], Parcel | None]]) -> Any:
    """Return `ops.<namespace>`, or `ops` if the namespace is None, after these operators have arrived.

    The code that holds the namespace need not use all of them. An operator that fails to arrive therefore raises only
    when it is called.
    """
    for name, modules, parcel in sent:
        try:
            if parcel is None:
                operator_of_modules(name, modules)
            else:
                arrived_operator(name, modules, parcel)
        except Exception as error:
            logger.warning("operator %s did not arrive: %s: %s", name, type(error).__name__, error)
    return ops if namespace is None else getattr(ops, namespace)


def custom_operator_of(op: OpOverload) -> CustomOpDef[..., Any]:
    """Return the custom operator of an operator that has arrived.

    Raises StaleOperatorError if it is not a custom operator any more.
    """
    definition = definitions.get(str(op.name))
    if definition is None:
        raise StaleOperatorError(f"operator {op.name} is no longer a custom operator\n"
                                 "define it by custom_op before unpickling")
    return definition


def arrived_operator(name: str, modules: Sequence[str], parcel: Parcel) -> OpOverload:
    """Return the operator of a name with the registrations in the parcel and those that the modules make.

    In the process that made them, the operator is found by its name, and removed registrations stay removed. Elsewhere,
    those that arrived earlier stay, as do later ones of the same process. Others are replaced, with an OverrideWarning
    if they were made in another process. Raises OperatorNotFoundError if the operator is unknown and the parcel has a
    problem.
    """
    if parcel.process == this_process():
        return find_or_raise(name)
    if not parcel.defines:
        operator_of_modules(name, modules)
    if parcel.problem:
        _check_known(name, parcel.problem)
    elif not _is_in_force(name, parcel):
        steps = pickle.loads(parcel.pickled)        # not under the lock: this may import modules that register
        with registrations.lock:
            if not _is_in_force(name, parcel):
                _put_in_force(name, parcel, steps)
    return operator_of_modules(name, modules if parcel.defines else ())


def _check_known(name: str, problem: str) -> None:
    with suppress(OperatorNotFoundError):
        find_or_raise(name)
        return
    raise OperatorNotFoundError(
        f"no operator {name}: its definition could not be pickled, and this process does not have it: {problem}\n"
        "install cloudpickle where it is defined, or define it in a module that both processes import")


def _is_in_force(name: str, parcel: Parcel) -> bool:
    """Return whether these registrations, or later ones of the same process, are in force here."""
    op = registrations.operators.get(name)
    sites = [] if op is None else [handle.site for handle in op.registrations]
    numbers = [site.number for site in sites if isinstance(site, RegistrationSite) and site.process == parcel.process]
    latest = max(numbers, default=-1)
    is_same = name not in _arrived or _arrived[name].digest == parcel.digest
    return latest > parcel.number or (latest == parcel.number and is_same)


def _put_in_force(name: str, parcel: Parcel, steps: Sequence[Step]) -> None:
    op = operator_to_be(name)
    keeper = registrations.add_name(op.name)        # keeps the object for functions that arrived before
    previous = definitions.get(name)
    _make_room(op, parcel)
    for step in steps:
        step(op)
    if previous is not None:
        registrations.assign(previous, "target", op)
    registrations.assign_item(_arrived, name, parcel)
    for handle in [handle for handle in op.registrations if type(handle) is type(keeper)]:
        handle.remove()


def _make_room(op: OpOverload, parcel: Parcel) -> None:
    """Undo what the parcel replaces: earlier registrations from its process.

    If the parcel defines the operator, this includes all registrations of another definition.
    """
    definition = registrations.definition_of(op)
    known = [(handle, handle.site) for handle in op.registrations if isinstance(handle.site, RegistrationSite)]
    replaced = [handle for handle, site in known if site.process == parcel.process]
    if parcel.defines and definition is not None:
        if definition not in replaced:
            if parcel.site != definition.site:      # equal if this process ran the same script, as with `spawn`
                warnings.warn(f"operator {op.name}: the definition made at {parcel.site} in another process replaces "
                              f"the one made at {definition.site}", OverrideWarning, stacklevel=frames_to_caller())
            replaced = [handle for handle, site in known if not site.module or site.module == _module_of(definition)]
        if str(op.name) in definitions:
            definitions[str(op.name)].retire(parcel.site)
    for handle in reversed(replaced):
        handle.remove()


def _module_of(handle: registrations.OperatorHandle) -> str:
    return handle.site.module if isinstance(handle.site, RegistrationSite) else handle.site


_core.connect(reduce_operator=reduce_operator, reduce_packet=reduce_packet)
