"""The Tensors that users' functions capture: those reachable from their variables."""

# tests: tests/compiling/test_captures.py
from __future__ import annotations

import dis
import functools
import gc
import sys
import weakref
from collections import deque
from collections.abc import Container, Iterable, Iterator
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import FunctionBase, OpOverload, OpOverloadPacket, State, Tensor, Wrapper
from pydispatch.autograd.randomness import sources
from pydispatch.tree import is_pytree_node_type, tree_leaves

MAX_DEPTH = 8
PROXIES = weakref.ProxyType, weakref.CallableProxyType     # each use of a dead one raises
_ATOMS = frozenset((*PROXIES, int, float, bool, str, bytes, NoneType, CodeType, State))
"""Types whose objects lead to no source of a user. A State leads to the draws of functions that run at present."""
_HOLD_NOTHING = frozenset((
    *PROXIES, OpOverload, OpOverloadPacket, np.ufunc, int, float, bool, str, bytes, ModuleType, NoneType))
_FIXED = (FunctionType, BuiltinMethodType, MethodType, functools.partial, type, tuple, frozenset)
_BIND = frozenset(("STORE_DEREF", "DELETE_DEREF", "STORE_GLOBAL", "DELETE_GLOBAL"))
_LIBRARIES = ("pydispatch.", "numpy", "scipy", "numba", "llvmlite", "pandas", "torch", "jax")
"""The first words of modules whose functions and objects hold no Tensors of a user, and may lead far."""
_COMPILERS = ("numba", "llvmlite")
"""The first words of modules whose objects hold compiled code, which has no sources, and whole modules."""


def tensors_in_reach(function: Any) -> Iterator[Tensor]:
    """Find the Tensors reachable from the variables of a function.

    Search closures, globals, defaults, bound objects and pytrees.
    """
    return (value for value in in_reach(function) if isinstance(value, Tensor))


def in_reach(function: Any) -> Iterator[Any]:
    """Find all objects reachable from the variables of a function, itself first, then in order of distance."""
    seen: dict[int, Any] = {}
    found: list[Any] = [function]
    for _ in range(MAX_DEPTH + 1):
        parts: list[Any] = []
        for value in found:
            if type(value) in _HOLD_NOTHING or id(value) in seen:
                continue
            seen[id(value)] = value
            yield value
            if type(value) is not np.ndarray and not isinstance(value, Tensor):
                parts += _parts(value)
        found = parts


def sources_in_reach(roots: Any, packs: Container[str]) -> Iterator[Any]:
    """Find the sources of random numbers that existed before functions ran, as far as can be determined.

    This search is slower than `in_reach`, and goes further: through objects of this package, modules and classes. It
    finds near sources first, and leaves out the operators of `packs`: their kernels lead to all of a backend's modules.
    """
    seen: dict[int, Any] = {}
    left = deque([roots])
    while left:
        value = left.popleft()
        if (type(value) in _ATOMS or id(value) in seen
                or (isinstance(value, OpOverload) and value.namespace in packs)):
            continue
        seen[id(value)] = value
        if isinstance(value, sources()):
            yield value
        elif type(value) is FunctionType:       # variables of a library may lead to what runs at present
            left += _parts(value) if is_users(value.__module__ or "") else contents(value.__closure__ or ())
        elif isinstance(value, ModuleType):
            left += vars(value).values() if is_users(value.__name__) else ()
        elif isinstance(value, type):
            left += vars(value).values() if is_users(value.__module__) else ()
        elif not type(value).__module__.startswith(_COMPILERS):
            left += gc.get_referents(value)


def _parts(value: Any) -> Iterable[Any]:
    """Return the objects that an object holds."""
    cls = type(value)
    if cls is FunctionType:
        found = contents(value.__closure__ or ())
        found += _globals_of(value).values()
        found += value.__defaults__ or ()
        found += (value.__kwdefaults__ or {}).values()
        return found
    if cls is dict:
        return value.values()       # type: ignore[no-any-return]
    if cls is list or cls is tuple:
        return value                # type: ignore[no-any-return]
    if isinstance(value, type):
        return _static_parts(value)
    is_node = is_pytree_node_type(cls)
    if is_of_a_library(cls):
        if hasattr(cls, "reachable"):
            return value.reachable  # type: ignore[no-any-return]
        if not is_node:
            return ()
    if isinstance(value, (np.ndarray, str, bytes, ModuleType)):
        return ()
    if isinstance(value, (MethodType, BuiltinMethodType)):
        return getattr(value, "__func__", None), value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (tuple, list, set, frozenset)):
        return value
    if is_node:
        return tree_leaves(value)
    held = attributes_of(value)
    return () if held is None else held.values()


def attributes_of(value: Any) -> dict[str, Any] | None:
    """Return the `__dict__` of a user's object, even if its class redefines it, or None if it has none."""
    if is_of_a_library(type(value)) and not is_pytree_node_type(type(value)):
        return None
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None


def is_of_a_library(value: Any) -> bool:
    """Return whether a class or function belongs to a known library."""
    return _is_named_as_a_library(str(value.__module__))


@functools.cache
def _is_named_as_a_library(module: str) -> bool:
    return module.startswith(_LIBRARIES)


@functools.cache
def is_users(module: str) -> bool:
    """Return whether a module belongs neither to Python nor to a known library."""
    return not _is_named_as_a_library(module) and module not in sys.stdlib_module_names


def _static_parts(cls: type) -> list[Any]:
    """Return the objects that the functions of a Function use. Other classes hold nothing."""
    if not issubclass(cls, FunctionBase) or is_of_a_library(cls):
        return []
    held = [value for base in cls.__mro__ if not is_of_a_library(base) for value in vars(base).values()]
    return [value.__func__ if isinstance(value, (staticmethod, classmethod)) else value for value in held
            if isinstance(value, (staticmethod, classmethod, Tensor))]


def closed_over(function: Any) -> list[Any]:
    """Return the values of the variables of a closure, or nothing for any other object."""
    return contents(getattr(function, "__closure__", None) or ())


def contents(cells: Iterable[CellType]) -> list[Any]:
    """Return the values of these variables, skipping those that have no value yet."""
    found = []
    for cell in cells:
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue
    return found


def _globals_of(function: FunctionType) -> dict[str, Any]:
    """Return the globals of a user's function that names in its code refer to, names of attributes included."""
    if not is_users(str(function.__module__)):
        return {}
    known = function.__globals__
    return {name: known[name] for name in names_in(function.__code__) if name in known}


@functools.cache
def names_in(code: CodeType) -> tuple[str, ...]:
    """Return the names in the code of a function, and of functions that it defines."""
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in names_in(part)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))


def variables_of(function: FunctionType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the variables of enclosing functions, and of the globals, that a function reads or binds.

    Modules are left out, unless it binds them.
    """
    code = function.__code__
    if not is_users(str(function.__module__)):
        return code.co_freevars, ()
    known, rebound = function.__globals__, _rebound_in(code)
    return code.co_freevars, tuple([name for name in names_in(code) if name in rebound or (
        name in known and not isinstance(known[name], ModuleType))])


def classes_of(value: Any) -> list[type]:
    """Return the users' classes whose attributes an object has, the object itself included if it is a class."""
    cls = value if isinstance(value, type) else type(value)
    return [base for base in cls.__mro__ if is_users(str(base.__module__))]


def slots_of(value: Any) -> tuple[str, ...]:
    """Return the names of the attributes of a user's object that are slots."""
    return tuple([name for cls in classes_of(value) if "__slots__" in vars(cls)
                  for name, part in vars(cls).items() if type(part) is MemberDescriptorType])


@functools.cache
def _rebound_in(code: CodeType) -> frozenset[str]:
    """Return the variables that a function, or one that it defines, binds outside itself."""
    inner = {name for part in code.co_consts if isinstance(part, CodeType) for name in _rebound_in(part)}
    own = {step.argval for step in dis.get_instructions(code) if step.opname in _BIND}
    return frozenset((own | inner) - set(code.co_cellvars))


def may_capture(functions: Iterable[Any]) -> bool:
    """Return whether these functions could ever reach Tensors.

    Functions without closures cannot, if globals never change inside.
    """
    seen: set[int] = set()
    left = list(functions)
    while left:
        value = left.pop()
        if type(value) in _HOLD_NOTHING or id(value) in seen:
            continue
        seen.add(id(value))
        is_fixed = isinstance(value, _FIXED) or is_of_a_library(type(value))
        if isinstance(value, Tensor) or getattr(value, "__closure__", None) or not is_fixed:
            return True
        left += _parts(value)
    return False


def captured_by(functions: Any) -> tuple[Tensor, ...]:
    """Return the captured Tensors that belong to an active level: a transform, a trace, a body, the tape."""
    return tuple(captures_of_levels(in_reach(functions)).values())


def captures_of_levels(reach: Iterable[Any]) -> dict[int, Tensor]:
    """Return the captured Tensors of active levels among the objects in reach, by their positions among all Tensors."""
    state = _core.current_state()
    follows_all = state.substitute is not None or any(mode._follows_tensors for mode in _core.active_modes())
    return {place: tensor for place, tensor in enumerate([value for value in reach if isinstance(value, Tensor)])
            if _is_of_a_level(tensor, follows_all, state)}


def _is_of_a_level(tensor: Tensor, follows_all: bool, state: State) -> bool:
    value = _core.live_value(tensor)
    if isinstance(value, Wrapper):
        return value.interpreter in state.stack
    return follows_all or (value.requires_grad and state.grad)


def may_differ_by_level() -> bool:
    """Return whether functions could capture Tensors of an active level."""
    state = _core.current_state()
    return state.innermost is not None or state.substitute is not None or state.grad
