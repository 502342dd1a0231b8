"""The values that a function captures, which are constants of its plans: numbers, text, arrays, functions.

    variables of the function -> entries (holder, key, value) -> tokens, which are compared, and links, which the core
                                                                 compares at each call

Variables of closures, globals, defaults, attributes, elements of containers and attributes of modules count, through
all functions in reach. Attributes and globals count if their name occurs in the code in reach, so that a counter of a
training loop compiles nothing again. A function that itself changes what it captures, such as a counter of traces, is
compared without that.
"""

# tests: tests/compiling/test_captured.py
from __future__ import annotations

import dis
import functools
import marshal
import sys
from array import array
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from types import BuiltinFunctionType, BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import FunctionBase, OpOverload, OpOverloadPacket, Tensor, Wrapper
from pydispatch.autograd.captures import (
    PROXIES,
    attributes_of,
    classes_of,
    is_of_a_library,
    is_users,
    names_in,
    slots_of,
)
from pydispatch.compiling.fingerprints import BY_COMPUTED_NAMES
from pydispatch.func.functions import is_found_by_name
from pydispatch.ops import Namespace, Ops
from pydispatch.tree import is_pytree_node_type, tree_leaves

Place = tuple[int, Any]
"""The id of a holder, and the key of what it holds."""

Link = tuple[Any, Any, Any]
"""What the core compares: see its `Variant`."""

MOST_LINKS = 1 << 16
"""The most links that the core checks. Python checks more, at each call."""

ANY = "*"
"""Among names: code in reach computes names."""

ATTRIBUTE = "the attribute {!r} of {}"

GLOBALS = "LOAD_GLOBAL", "LOAD_NAME"
"""The operations that load global variables."""

_VALUES = frozenset((int, bool, str, type(None), bytes, range, np.dtype, type(Ellipsis)))
_BY_TEXT = frozenset((float, complex, slice))      # 0.0 and -0.0 differ, and NaN equals NaN
_BUFFERS = (bytearray, memoryview, array)
_UNORDERED = (set, frozenset, deque)
_BY_NAME = frozenset((BuiltinFunctionType, np.ufunc, OpOverload, OpOverloadPacket))     # that are compared and pickled
_WRAPPERS = (staticmethod, classmethod)
_NOTHING_MORE = frozenset((*_VALUES, *_BY_TEXT, *_BUFFERS, *PROXIES, OpOverload, OpOverloadPacket, np.ufunc))
_FIXED = frozenset((ModuleType, Namespace, Ops, BuiltinFunctionType, np.ufunc, OpOverload, OpOverloadPacket))
_LINK_NOTHING = frozenset((*_VALUES, *_BY_TEXT, *PROXIES, *_FIXED, FunctionType, MethodType, type, tuple))
_LENGTH = len       # the core's key of a link to the number of items
_MISSING = object()

CapturedValue = tuple[Any, ...]
"""A holder, the key of a value that it holds, the value, and a template of its description with arguments.

The holder is None for what cannot come to hold another value.
"""


class NamesNeededError(Exception):
    """An object in reach has attributes, so the names in the code are needed."""


class Captured:
    """The values that functions capture, the functions included.

    `key` is equal for equal values. `links` are those of the core, or None if it cannot compare something, or too much.
    Without `names`, NamesNeededError may be raised.
    """

    def __init__(self, roots: Collection[Any], names: Collection[str] | None, ignored: Collection[Place] = (),
                 arguments: Sequence[Tensor] = ()) -> None:
        ids = set(map(id, arguments))
        self.links: tuple[Link, ...] | None = None
        self._entries: list[CapturedValue] = []
        tokens: list[Hashable] = []
        links: list[Link | None] = []
        for entry in entries_in_reach(roots, names, ignored):
            holder, key, value = entry[:3]
            is_argument = bool(ids) and id(value) in ids
            self._entries.append(entry)
            tokens.append("an argument" if is_argument else _token(value))
            if holder is not None and type(value) not in _FIXED:
                links.append((holder, key, value))
            if type(value) not in _LINK_NOTHING and not is_argument:
                links += _links_to(value)
        self.key = tuple(tokens)
        if len(links) <= MOST_LINKS and None not in links:
            self.links = tuple(links)       # type: ignore[arg-type]    # without None

    def changed(self, later: Captured) -> dict[Place, Any]:
        """Return the places that hold other values later, with their holders."""
        before, after = self._tokens, later._tokens
        holders = {id(entry[0]): entry[0] for entry in (*self._entries, *later._entries)}
        found = {}
        for place in before.keys() | after.keys():
            holder = holders[place[0]]
            if holder is not None and before.get(place, _MISSING) != after.get(place, _MISSING):
                found[place] = holder
                if isinstance(holder, list) or (isinstance(holder, dict) and place not in before):
                    found[place[0], _LENGTH] = holder
        return found

    @property
    def _tokens(self) -> dict[Place, Hashable]:
        return {(id(entry[0]), entry[1]): token for entry, token in zip(self._entries, self.key, strict=True)}

    def difference(self, old: tuple[Hashable, ...]) -> str:
        """Describe the first value that differs from those with an old key."""
        for entry, token, before in zip(self._entries, self.key, old, strict=False):
            if token != before:
                return f"{entry[3].format(*entry[4:])} {_as_change(token, before)}"
        return "the function captures more or less than before"


def entries_in_reach(
    roots: Collection[Any], names: Collection[str] | None, ignored: Collection[Place] = ()
) -> Iterator[CapturedValue]:
    """Yield what is in reach of functions by these names, once for each place, in order of distance."""
    seen: set[int] = set()
    found = [(None, None, root, "the function") for root in roots]
    while found:
        following: list[CapturedValue] = []
        for entry in found:
            if ignored and ((id(entry[0]), entry[1]) in ignored or (id(entry[0]), _LENGTH) in ignored):
                continue
            yield entry
            value = entry[2]
            if type(value) not in _NOTHING_MORE and id(value) not in seen:
                seen.add(id(value))
                following += _entries_of(value, names)
        found = following


def names_in_reach(roots: Collection[Any]) -> frozenset[str]:
    """Return the names in the code that a call of these functions may run, and ANY if it may compute names."""
    names: frozenset[str] = frozenset()
    while True:
        codes = {value.__code__ for _, _, value, *_ in entries_in_reach(roots, names)
                 if type(value) is FunctionType and _is_local(value.__module__)}
        found = names.union(*map(_loaded_in, codes))
        if found & BY_COMPUTED_NAMES:
            found |= {ANY}
        if found == names:
            return names
        names = found


def _entries_of(value: Any, names: Collection[str] | None) -> list[CapturedValue]:
    """Return what an object holds, as far as code with these names reads it."""
    cls = type(value)
    if cls is FunctionType:
        found = list(_variables_of(value))
        if value.__dict__:
            found += _named(value, value.__dict__, names)
        if value.__defaults__ or value.__kwdefaults__:
            found += _fixed((*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()), "a default")
        return found
    if isinstance(value, ModuleType):
        return _data_of(value, names) if _is_local(value.__name__) else []
    if isinstance(value, type):
        return _class_attributes(value, names)
    if isinstance(value, dict):
        return [(value, key, part, "the key {!r} of a dict", key) for key, part in value.items()]
    if isinstance(value, list):
        return [(value, i, part, "element {} of a list", i) for i, part in enumerate(value)]
    if isinstance(value, (tuple, *_UNORDERED)):
        return _fixed(value, "an element of a tuple or set")
    if isinstance(value, (MethodType, BuiltinMethodType)):
        return _fixed((getattr(value, "__func__", None), value.__self__), "a part of a method")
    if isinstance(value, functools.partial):
        return _fixed((value.func, value.args, value.keywords), "a part of a partial")
    if isinstance(value, _WRAPPERS):
        return _fixed((value.__func__,), "a method")
    if isinstance(value, property):
        return _fixed((value.fget,), "a property")
    if is_pytree_node_type(cls):
        return _fixed(tree_leaves(value), "a leaf of a pytree")
    if is_of_a_library(cls):
        return _fixed(value.reachable, "a function") if hasattr(cls, "reachable") else []
    held = attributes_of(value)
    slots = [(value, name, getattr(value, name), ATTRIBUTE, name, cls.__name__)
             for name in slots_of(value) if _is_named(name, names) and hasattr(value, name)]
    return [*([] if held is None else _named(value, held, names)), *slots, *_class_attributes(cls, names)]


def _fixed(values: Collection[Any], description: str) -> list[CapturedValue]:
    return [(None, None, value, description) for value in values]


def _named(value: Any, held: dict[str, Any], names: Collection[str] | None) -> list[CapturedValue]:
    owner = value.__name__ if isinstance(value, FunctionType) else type(value).__name__
    return [(held, name, part, ATTRIBUTE, name, owner) for name, part in held.items()
            if name == "__wrapped__" or _is_named(name, names)]


def _is_named(name: str, names: Collection[str] | None) -> bool:
    if names is None:
        raise NamesNeededError
    return name in names or ANY in names


def _variables_of(function: FunctionType) -> Iterator[CapturedValue]:
    """Yield the variables of enclosing functions and the globals that a function reads."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield (cell, None, cell.cell_contents, "the variable {!r}", name)
        except ValueError:
            continue        # it has no value yet
    if _is_local(function.__module__):
        known, code = function.__globals__, function.__code__
        for name in names_in(code):
            if name in known and (type(known[name]) in _FIXED or name in _loaded_in(code, GLOBALS)):
                yield (known, name, known[name], "the global variable {!r}", name)


@functools.cache
def _loaded_in(code: CodeType, operations: tuple[str, ...] = ("LOAD_",)) -> frozenset[str]:
    """Return the names that code loads by these operations, also in functions that it defines."""
    own = [step.argval for step in dis.get_instructions(code)
           if step.opcode in dis.hasname and step.opname.startswith(operations)]
    inner = [_loaded_in(part, operations) for part in code.co_consts if isinstance(part, CodeType)]
    return frozenset(own).union(*inner)


def _data_of(module: ModuleType, names: Collection[str] | None) -> list[CapturedValue]:
    """Return the variables of a module. Its functions and classes stay as they are, except in a notebook or script."""
    if names is None:
        raise NamesNeededError
    held, is_main = vars(module), module.__name__ == "__main__"
    return [(held if is_main or not callable(part) else None, name, part, "{1}.{0}", name, module.__name__)
            for name in names if (part := held.get(name)) is not None]


def _class_attributes(cls: type, names: Collection[str] | None) -> list[CapturedValue]:
    """Return the attributes of a user's class: special methods, and by name. Classes of libraries may call all."""
    found: dict[str, Any] = {}
    is_all = any(map(is_of_a_library, cls.__mro__)) or issubclass(cls, FunctionBase)
    for base in classes_of(cls):
        for name, part in vars(base).items():
            is_code = isinstance(part, (FunctionType, *_WRAPPERS, property))
            if name not in found and (_is_named(name, names) or (is_code and (is_all or name.startswith("__")))):
                found[name] = part
    return [(cls, name, part, ATTRIBUTE, name, cls.__name__) for name, part in found.items()
            if name not in ("__dict__", "__weakref__", "__doc__", "__module__")]


@functools.cache
def _is_local(module: str | None) -> bool:
    """Return whether a module is a user's, and not an installed one, whose variables stay as they are."""
    name = str(module)
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return is_users(name) and "site-packages" not in file and "dist-packages" not in file


class _Same:
    """A token that is equal only to that of the same object."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is _Same and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if isinstance(self._value, type) and is_found_by_name(self._value):
            return _Same, (self._value,)
        return object, ()       # in another process, it is another object


def _token(value: Any) -> Hashable:
    """Return what is equal for values that make no difference to a trace, apart from what they hold."""
    cls = type(value)
    if cls in _VALUES:
        return cls, value
    if cls is FunctionType:
        return _bytes_of(value.__code__)
    if cls in _BY_NAME:
        return value        # type: ignore[no-any-return]
    if cls in PROXIES:
        return _Same(value)
    if cls in _BY_TEXT:
        return cls, repr(value)
    if cls is ModuleType:
        return "module", value.__name__
    if cls in (Namespace, Ops):
        return cls, getattr(value, "_Namespace__name", None)
    if isinstance(value, np.generic):
        return cls, value.dtype, value.tobytes()
    if isinstance(value, _BUFFERS):
        return cls, bytes(value)
    if isinstance(value, Tensor):
        return _Same(value), value._version, _token(value.array)
    if isinstance(value, np.ndarray):
        owner, sample = _sampled(value)
        is_whole = owner is value and len(sample) == value.nbytes and not value.dtype.hasobject
        return value.shape, value.dtype, None if is_whole else _Same(value), sample
    if isinstance(value, dict):
        return cls, tuple([key if type(key) in _VALUES else _Same(key) for key in value])
    if isinstance(value, (list, tuple, *_UNORDERED)):
        return cls, len(value)
    if cls in (MethodType, functools.partial, *_WRAPPERS, property) or attributes_of(value) is not None:
        return _Same(cls)
    return _Same(value)


@functools.cache
def _bytes_of(code: CodeType) -> bytes:
    return marshal.dumps(code)


def _sampled(value: np.ndarray) -> tuple[np.ndarray | None, bytes]:
    """Return the first contiguous one of an array and the arrays that it is a view of, and a sample of its bytes."""
    owner: Any = value
    while isinstance(owner, np.ndarray):
        sample = _core.sample_of(owner)
        if sample is not None:
            return owner, sample
        owner = owner.base
    return None, b""


def _links_to(value: Any) -> list[Link | None]:
    """Return the links to what a value holds itself, with None for what the core cannot compare."""
    if isinstance(value, Tensor):
        array = value.array
        is_known = not isinstance(value, Wrapper) and type(value) is Tensor
        return [(value, value._version, None) if is_known else None, *_links_to(array)]
    if isinstance(value, np.ndarray):
        owner, sample = _sampled(value)
        return [(owner, None, sample) if type(owner) is np.ndarray else None]
    if isinstance(value, (list, dict)):
        return [(value, _LENGTH, len(value))]
    if isinstance(value, (*_UNORDERED, *_BUFFERS)) or is_pytree_node_type(type(value)) or slots_of(value):
        return [] if isinstance(value, (tuple, frozenset)) else [None]
    return []


def _as_change(token: Any, before: Any) -> str:
    """Describe a change by two tokens."""
    values = [_shown(part) for part in (token, before)]
    return f"is {values[0]} and was {values[1]}" if None not in values else "has changed"


def _shown(token: Any) -> str | None:
    if not isinstance(token, tuple) or not isinstance(token[0], type) or len(token) != 2:
        return None
    cls, value = token
    if cls in _VALUES:
        return repr(value)
    return str(value) if cls in _BY_TEXT else None
