"""`python -m pydispatch stubs`: the operators of a namespace as a stub for type checkers."""

# tests: tests/types/test_types.py
from __future__ import annotations

import argparse
import keyword
from collections.abc import Collection, Iterator
from pathlib import Path

from pydispatch._registry.operators import load_all
from pydispatch._registry.packs import namespaces_of_packs
from pydispatch._registry.registrations import definition_of, packets
from pydispatch.cli.console import Plain, Rich
from pydispatch.cli.names import FACES, object_named
from pydispatch.exceptions import DispatchError
from pydispatch.schema import Argument, Schema
from pydispatch.schema.base_types import Type
from pydispatch.schema.compound_types import DictType, ListType, OptionalType, TupleType, UnionType

HEAD = '''\
# Written by `python -m pydispatch stubs`.
# ruff: noqa

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike, NDArray

from pydispatch._core import OpOverload, Tensor
from pydispatch._stubs.arrays import Packet, _Array, _Number, _Raw, _T, _Value
'''
NAMES = {"int": "int", "float": "float", "bool": "bool", "str": "str", "complex": "complex", "Scalar": "_Number",
         "ScalarType": "DTypeLike", "Device": "str", "Generator": "Any", "Any": "Any"}
RAW, VALUE, TENSOR, ARRAY = "_Raw", "_Value", "Tensor", "_Array"


def run_stubs(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """Write a stub for each namespace."""
    names = [*arguments.packs, *map(namespace_named, arguments.names)] or ["np", *namespaces_of_packs()]
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        load_all(name)
        if not packets.get(name):
            raise DispatchError(f"no operator is registered in namespace {name!r}\n"
                                "import the module that defines it: --import MODULE")
        path = folder / f"{name}.pyi"
        text = stub(name)
        path.write_text(text)
        out.line(f"{path}: {len(packets[name])} operators")


def namespace_named(text: str) -> str:
    """Return the namespace of a name, which is its own or that of an operator."""
    name = FACES.get(text, text)
    load_all(name)
    if packets.get(name):
        return name
    found: str = object_named(text).namespace
    return found


def stub(namespace: str, helpers: Collection[str] = ()) -> str:
    """Return the stub of a namespace: a class per kind of signature, and one with an attribute per operator.

    The calls of `helpers` are not described.
    """
    classes: dict[str, str] = {}        # from the body of a class to its name
    attributes: list[str] = []
    for name, packet in sorted(packets[namespace].items()):
        schemas = {op.overload_name or "default": op.schema for op in packet.overloads if definition_of(op) is not None}
        if not schemas or keyword.iskeyword(name):
            continue
        kind = "Packet" if name in helpers else classes.setdefault("\n".join(_body(schemas)), f"_{name}")
        attributes.append(f"    {name}: {kind}")
    kinds = [f"class {name}(Packet):  # type: ignore[misc]\n{body}" for body, name in classes.items()]
    whole = f"class Operators:\n    \"\"\"The operators of {namespace}.\"\"\"\n\n" + "\n".join(attributes)
    return "\n\n".join([HEAD, *kinds, whole]) + "\n"


def _body(schemas: dict[str, Schema]) -> Iterator[str]:
    """Yield the other overloads of a packet, and its calls: with Tensors, NumPy arrays, then other arrays."""
    for overload in schemas:
        if overload != "default":       # which `Packet` has
            yield f"    {overload}: OpOverload"
    calls: dict[str, None] = {}
    for schema in schemas.values():
        calls |= dict.fromkeys(_calls(schema))
    calls |= dict.fromkeys([call for schema in schemas.values() for call in _other_calls(schema)])
    for call in calls:
        if len(calls) > 1:
            yield "    @overload"
        yield f"    def __call__({call}: ..."


def _calls(schema: Schema) -> Iterator[str]:
    written = next((argument.name for argument in schema.arguments if argument.mutable), None)
    if written is not None:
        yield _call(schema, {written: "_T"}, "_T")
        return
    arrays = [argument for argument in schema.arguments if has_arrays(argument.type)]
    required = [argument.name for argument in arrays if not argument.has_default]
    if len(required) == len(arrays) == 1:
        yield _call(schema, {required[0]: ARRAY}, results(schema, ARRAY))
        return
    for name in required:
        yield _call(schema, {name: TENSOR}, results(schema, TENSOR))
    yield _call(schema, dict.fromkeys([argument.name for argument in arrays], RAW), results(schema, "NDArray[Any]"))


def _other_calls(schema: Schema) -> Iterator[str]:
    """Yield the call with arrays of other libraries, or with Tensors for optional arguments."""
    arrays = _arrays_by_position(schema)
    if arrays and len(arrays) == len(schema.arguments):
        yield f"self, *arrays: {VALUE}, **named: {VALUE}) -> Any"
    elif arrays:
        yield "self, generator: Any, *values: Any, **named: Any) -> Any"
    elif not any(argument.mutable for argument in schema.arguments) and any(
            has_arrays(argument.type) for argument in schema.arguments):
        yield _call(schema, {}, "Any")


def _arrays_by_position(schema: Schema) -> list[Argument]:
    """Return the arrays if they are required and are all arguments, or the parameters of a distribution.

    Such operators share classes, in which these arguments have no names.
    """
    arrays = [argument for argument in schema.arguments if has_arrays(argument.type)]
    is_distribution = str(schema.arguments[0].type) == "Generator" if schema.arguments else False
    return arrays if (is_distribution or len(arrays) == len(schema.arguments) > 1) and not any(
        str(argument.type) != "Tensor" or argument.has_default or argument.kw_only or argument.mutable
        for argument in arrays) else []


def _call(schema: Schema, arrays: dict[str, str], result: str) -> str:
    parts = ["self"]
    unnamed = _arrays_by_position(schema)
    for argument in schema.arguments:
        if argument.kw_only and "*" not in parts:
            parts.append("*")
        if argument in unnamed:
            parts.append(f"x{unnamed.index(argument) + 1}: {arrays.get(argument.name, VALUE)}")
        else:
            parts.append(_parameter(argument, arrays))
        if unnamed and argument is unnamed[-1]:
            parts.append("/")
    return f"{', '.join(parts)}) -> {result}"


def _parameter(argument: Argument, arrays: dict[str, str]) -> str:
    written = hint(argument.type, arrays.get(argument.name, VALUE))
    name = f"{argument.name}_" if keyword.iskeyword(argument.name) else argument.name
    return f"{name}: {written}{' = ...' if argument.has_default else ''}"


def has_arrays(type_: Type) -> bool:
    """Return whether a type names arrays. `Any` may be an array, but does not name it."""
    return type_.contains_arrays and "Any" not in str(type_)


def hint(type_: Type, array: str) -> str:
    """Return a type of the schema as a hint, with `array` for arrays."""
    if isinstance(type_, OptionalType):
        return f"{hint(type_.inner, array)} | None"
    if isinstance(type_, ListType):
        inner = hint(type_.inner, array)
        if has_arrays(type_):
            return f"Sequence[{inner}]"
        return f"{inner} | Sequence[{inner}]"
    if isinstance(type_, TupleType):
        return f"tuple[{', '.join(hint(item, array) for item in type_.items)}]"
    if isinstance(type_, DictType):
        return f"dict[{hint(type_.key, array)}, {hint(type_.value, array)}]"
    if isinstance(type_, UnionType):
        return " | ".join(dict.fromkeys(hint(member, array) for member in type_.members))
    return array if str(type_) == "Tensor" else NAMES.get(str(type_), "Any")


def results(schema: Schema, array: str) -> str:
    hints = [f"tuple[{array}, ...]" if isinstance(result.type, ListType) and has_arrays(result.type)
             else "Any" if str(result.type) == "Scalar" else hint(result.type, array) for result in schema.returns]
    return "None" if not hints else hints[0] if len(hints) == 1 else f"tuple[{', '.join(hints)}]"
