"""Names of types in other dispatchers and in NumPy, and their equivalents in schemas."""

# tests: tests/schema/test_parser.py
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydispatch.schema.base_types import BASE_TYPES

TYPE_CONSTRUCTORS: Final = ("Dict", "Union")

_NO_MEANING: Final = "NumPy has no counterpart: leave it out"
_NOT_A_TYPE: Final = {
    "SymInt": "Sizes are always known: write `int`",
    "SymBool": "Conditions are always known: write `bool`",
    "DeviceIndex": "Write `int`",
    "Layout": _NO_MEANING,
    "MemoryFormat": f"{_NO_MEANING}, or write `str order`",
    "Stream": _NO_MEANING,
    "Storage": "Write `Tensor`",
    "QScheme": _NO_MEANING,
    "Quantizer": _NO_MEANING,
    "ConstQuantizerPtr": _NO_MEANING,
    "Capsule": "Register the Python class: register_opaque_type(cls)",
    "Future": "Write `Any`, or register the class: register_opaque_type(cls)",
    "RRef": "Write `Any`, or register the class: register_opaque_type(cls)",
    "Await": "Write `Any`, or register the class: register_opaque_type(cls)",
    "AnyClassType": "Write `Any`",
    "AnyEnumType": "Register the enumeration: register_opaque_type(cls)",
    "__torch__": "Register the Python class: register_opaque_type(cls)",
}
_SPELLED: Final = {
    "double": "float", "half": "float", "single": "float", "float64": "float", "float32": "float",
    "int64_t": "int", "int64": "int", "int32": "int", "uint64": "int", "size_t": "int", "integer": "int", "long": "int",
    "boolean": "bool", "string": "str", "number": "Scalar", "dtype": "ScalarType",
    "array": "Tensor", "ndarray": "Tensor", "tensorlist": "Tensor[]", "intlist": "int[]",
    "optional": "T?", "none": "T?", "nonetype": "T?", "list": "T[]", "sequence": "T[]", "tuple": "(A, B)",
    "object": "Any", "callable": "Any", "void": "()",
}
_SPELLED.update((name.lower(), name) for name in (*BASE_TYPES, *TYPE_CONSTRUCTORS))


def is_taken(name: str) -> bool:
    """Return whether this name is a type of the language, or one that has an explanation."""
    return name in BASE_TYPES or name in TYPE_CONSTRUCTORS or name in _NOT_A_TYPE


def why_unknown(name: str, following: list[str], registered: Iterable[str]) -> tuple[str, str]:
    """Return the error and the remedy for a name that is not a type. `following` are the three tokens after it."""
    outermost = name.partition(".")[0]
    if outermost in _NOT_A_TYPE:
        return f"type {outermost!r} is not supported", _NOT_A_TYPE[outermost]
    spelling = _SPELLED.get(name.lower())
    if spelling is not None:
        match following:
            case ["[", inner, "]"] if inner in BASE_TYPES and spelling in ("T?", "T[]"):  # Optional[int], List[int]
                spelling = spelling.replace("T", inner)
        return f"unknown type {name!r}", f"Write `{spelling}`"
    if len(name) == 1 or (name.islower() and len(name) <= 2):
        return f"unknown type {name!r}: type variables are not supported", "Write `Any`"
    known = ", ".join((*BASE_TYPES, *registered))
    return f"unknown type {name!r}", f"Types: {known}, T?, T[], (A, B), Dict(K, V), Union(A, B)"
