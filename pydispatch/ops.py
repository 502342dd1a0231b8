"""The namespace of all operators: `pydispatch.ops.<namespace>.<operator>[.<overload>]`."""

# tests: tests/registry/test_registrations.py
from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydispatch import _core, _loading
from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._registry import registrations
from pydispatch._registry.operators import find, find_or_raise, load_all, nearest_names, schema_of
from pydispatch._registry.packs import namespaces_of_packs
from pydispatch._registry.registrations import definition_of, kernels_of
from pydispatch._registry.tables import table_entry
from pydispatch.exceptions import OperatorNotFoundError, PackError
from pydispatch.keys import DispatchKey, parse_key
from pydispatch.schema import Schema

if TYPE_CHECKING:
    from pydispatch._stubs.masked import Operators as MaskedOperators
    from pydispatch._stubs.np import Operators as NumPyOperators
    from pydispatch._stubs.scipy import Operators as SciPyOperators
    from pydispatch._stubs.sparse import Operators as SparseOperators


class Namespace:
    """The operators of one namespace, as attributes."""

    __slots__ = ("__dict__", "__name")

    def __init__(self, name: str) -> None:
        self.__name = name
        self.__refer()

    def __refer(self) -> None:
        """Use the registry's dict, so that a look-up is a plain attribute access and always up to date."""
        self.__dict__ = registrations.packets.setdefault(self.__name, {})

    def __getattr__(self, attribute: str) -> OpOverloadPacket:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        name = f"{self.__name}::{attribute}"
        self.__refer()      # closing the namespace's library drops an empty dict
        if find(name) is not None:
            loaded: OpOverloadPacket | None = self.__dict__.get(attribute)
            if loaded is not None:
                return loaded
            find_or_raise(name)
        raise OperatorNotFoundError(f"no operator {name}\n{nearest_names(name)}")

    def __dir__(self) -> list[str]:
        """List all names, after loading the operators that are loaded on demand, so that editors complete them."""
        self.__refer()
        with suppress(PackError):       # the first use raises it
            load_all(self.__name)
        return sorted(self.__dict__)

    def __repr__(self) -> str:
        return f"<Namespace {self.__name}: {', '.join(sorted(registrations.packets.get(self.__name, ())))}>"

    def __copy__(self) -> Namespace:
        return self

    def __deepcopy__(self, memo: object) -> Namespace:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = reduce_namespace(self.__name)
        return reduced


class Ops:
    """The namespaces that have operators, as attributes."""

    if TYPE_CHECKING:
        masked: MaskedOperators
        np: NumPyOperators
        scipy: SciPyOperators
        sparse: SparseOperators

    def __getattr__(self, name: str) -> Any:      # users' stubs have classes for their namespaces
        if name.startswith("__"):
            raise AttributeError(name)
        namespace = self.__dict__[name] = Namespace(name)
        return namespace

    def __dir__(self) -> list[str]:
        let_ipython_complete()
        known = [name for name, family in list(registrations.packets.items()) if family]
        return sorted({*known, *namespaces_of_packs()})

    def __repr__(self) -> str:
        return f"<pydispatch.ops: {', '.join(dir(self))}>"

    def __copy__(self) -> Ops:
        return self

    def __deepcopy__(self, memo: object) -> Ops:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = reduce_namespace(None)
        return reduced


def drop_namespace(name: str) -> None:
    """Drop a namespace without operators. Its next use creates it again."""
    if not registrations.packets.get(name):
        registrations.packets.pop(name, None)
        vars(ops).pop(name, None)


def let_ipython_complete() -> None:
    """Let IPython complete names in `ops.np.` without jedi. Otherwise it distrusts classes with `__getattr__`."""
    evaluation = sys.modules.get("IPython.core.guarded_eval")
    policy = getattr(evaluation, "EVALUATION_POLICIES", {}).get("limited")
    if isinstance(known := getattr(policy, "allowed_getattr", None), set):
        known.update((Ops, Namespace, OpOverloadPacket))


ops: Ops = Ops()
let_ipython_complete()      # IPython is loaded before any module that a notebook imports
reduce_namespace = _loading.deferred("library.pickling", "reduce_namespace")


# --- attributes of an operator object --------------------------------------------------------------------------------


def _tags(op: OpOverload) -> tuple[str, ...]:
    """Return the tags that the operator was defined with."""
    definition = definition_of(op)
    return () if definition is None else definition.tags


def _site(op: OpOverload) -> str | None:
    """Return the file:line of the definition."""
    definition = definition_of(op)
    return None if definition is None else definition.site


def _alias_analysis(op: OpOverload) -> str:
    """Return CONSERVATIVE, FROM_SCHEMA or PURE_FUNCTION."""
    definition = definition_of(op)
    return (definition and definition.alias_analysis) or "CONSERVATIVE"


def has_kernel(self: OpOverload, key: str | DispatchKey | None = None) -> bool:
    """Return whether a kernel is registered under exactly this key, or without a key, under any."""
    kernels = kernels_of(self)
    return bool(kernels) if key is None else parse_key(key) in kernels


def has_computed_kernel(self: OpOverload, key: str | DispatchKey) -> bool:
    """Return whether a call with this runtime key would find a kernel. Raise UnknownKeyError for an alias."""
    entry = table_entry(self, parse_key(key))
    return entry is not None and not entry.is_fallthrough


def _signature(op: OpOverload) -> inspect.Signature:
    """Return the schema of an operator as a Python signature."""
    return signature_of(schema_of(op))


def signature_of(schema: Schema) -> inspect.Signature:
    """Return a schema as a Python signature, annotated with the schema's types."""
    parameters = [
        inspect.Parameter(
            argument.name,
            inspect.Parameter.KEYWORD_ONLY if argument.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.default if argument.has_default else inspect.Parameter.empty,
            annotation=str(argument.type),
        )
        for argument in schema.arguments
    ]
    returns = [str(result.type) for result in schema.returns]
    text = returns[0] if len(returns) == 1 else f"({', '.join(returns)})"
    return inspect.Signature(parameters, return_annotation=text)


def _packet_signature(packet: OpOverloadPacket) -> inspect.Signature:
    """Return the signature of the default overload, with the keywords that the others add.

    If the others take other arguments, the signature accepts anything.
    """
    main = next((op for op in packet.overloads if not op.overload_name or len(packet.overloads) == 1), None)
    if main is not None:
        signature = _signature(main)
        added: dict[str, inspect.Parameter] = {}
        others = [_signature(op) for op in packet.overloads if op is not main]
        if all(_adds(signature, other, added) for other in others):
            return signature.replace(parameters=[*signature.parameters.values(), *added.values()])
    anything = [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]
    return inspect.Signature(anything)


def _adds(signature: inspect.Signature, other: inspect.Signature, added: dict[str, inspect.Parameter]) -> bool:
    """Return whether another signature only adds keywords, and add them, with the default None if required."""
    more = {name: parameter for name, parameter in other.parameters.items() if name not in signature.parameters}
    same = all(other.parameters.get(name) == parameter for name, parameter in signature.parameters.items())
    if not same or any(parameter.kind is not parameter.KEYWORD_ONLY for parameter in more.values()):
        return False
    for name, parameter in more.items():
        is_required = parameter.default is parameter.empty
        added[name] = parameter.replace(
            default=None, annotation=f"{parameter.annotation}?") if is_required else parameter
    return True


def _identifier(op: OpOverload | OpOverloadPacket) -> str:
    name = str(op.name)
    return name if isinstance(op, OpOverload) and op.name.namespace is None else name.partition("::")[2]


def _module(op: OpOverload | OpOverloadPacket) -> str:
    """Return the module path under which the operator is reached."""
    return f"pydispatch.ops.{op.namespace or ''}"


documentation = _loading.deferred("debug.describing", "documentation")


_core.extend(
    OpOverload,
    schema=property(schema_of), tags=property(_tags), site=property(_site), alias_analysis=property(_alias_analysis),
    namespace=property(lambda op: op.name.namespace), overload_name=property(lambda op: op.name.overload),
    has_kernel=has_kernel, has_computed_kernel=has_computed_kernel,
    explain=_loading.deferred("debug.explain", "explain"),
    __signature__=property(_signature), __name__=property(_identifier), __qualname__=property(_identifier),
    __module__=property(_module), __doc__=property(documentation),
    __copy__=lambda op: op, __deepcopy__=lambda op, memo: op,
)
_core.extend(
    OpOverloadPacket,
    __signature__=property(_packet_signature), __name__=property(_identifier), __qualname__=property(_identifier),
    __module__=property(_module), __doc__=property(documentation),
    namespace=property(lambda packet: packet.name.partition("::")[0]),
    explain=_loading.deferred("debug.explain", "explain_packet"),
    __copy__=lambda packet: packet, __deepcopy__=lambda packet, memo: packet,
)
