"""Kernels in C: functions with a signature, which become universal functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pydispatch import _core
from pydispatch.exceptions import RegistrationError
from pydispatch.registry.kernels import capsule_of

MOST_INPUTS = 3
INTEGERS = {"intptr_t", "npy_intp", "Py_ssize_t", "ssize_t", "ptrdiff_t", "long", "int64_t"}
"""The types of a count, which are one on the machines that the package is built for."""
EXPECTED = '"double (double)", "void (double *, double *, intptr_t)"'


class CallingConvention(NamedTuple):
    """How a function in C is called."""

    is_double: bool         # else it computes with float
    n_in: int
    takes_blocks: bool      # is it called with addresses and a count, not with numbers?
    has_user_data: bool


def c_function(*functions: Any, name: str = "") -> Callable[..., Any]:
    """The universal function whose loops are functions in C; each is a PyCapsule or a `scipy.LowLevelCallable`.

    The capsule's name is the signature: `T (T)`, called for each element, or `void (T *, T *, intptr_t)`, called with
    the addresses of the input and of the result, and with their number of elements. T is `double` or `float`. Both may
    have up to three inputs, and `void *` as their last argument, for the user data. Functions for both types become one
    universal function. It broadcasts, converts and copies as NumPy's do, and its `__name__` is `name`.

    The functions need neither the GIL nor any order of elements; the result may lie where an input does. Raises
    RegistrationError for anything else.
    """
    return universal("c_function", functions, name)


def universal(what: str, functions: tuple[Any, ...], name: str = "") -> Callable[..., Any]:
    """`c_function`; `what` begins the messages."""
    remedy = f"name the capsule by a signature such as {EXPECTED}"
    capsules = tuple(map(capsule_of, functions))
    layouts, signatures = [], []
    for function, capsule in zip(functions, capsules, strict=True):
        signature = _core.name_of_capsule(capsule)
        if signature is None:
            raise RegistrationError(f"{what}: {type(function).__name__} {function!r} is no function in C, expected a "
                                    f"PyCapsule or a scipy.LowLevelCallable\n{remedy}")
        layout = layout_of(signature)
        if layout is None:
            raise RegistrationError(f"{what}: the function in C has the signature {signature!r}, expected one such as "
                                    f"{EXPECTED}, with double or float and 1 to {MOST_INPUTS} inputs\n{remedy}")
        layouts.append(layout)
        signatures.append(signature)
    types, numbers = {layout.is_double for layout in layouts}, {layout.n_in for layout in layouts}
    if len(types) != len(layouts) or len(numbers) != 1:
        raise RegistrationError(f"{what}: found functions in C of the signatures {signatures}, expected one for double "
                                "or float, or one for each, of as many inputs\nmake a universal function of each set")
    order = sorted(range(len(layouts)), key=lambda i: layouts[i].is_double)     # float32 stays what it is
    return _core.universal_of_capsules(
        tuple([functions[i] for i in order]), tuple([capsules[i] for i in order]), [layouts[i] for i in order],
        name or signatures[order[-1]])


def layout_of(signature: str) -> CallingConvention | None:
    """The layout that a signature tells; None if functions of that signature are no kernels."""
    found = re.fullmatch(r"\s*(\w+)\s*\(([\w\s*,]*)\)\s*", signature)
    if found is None:
        return None
    result, arguments = found[1], [_plain(argument) for argument in found[2].split(",")]
    has_user_data = arguments[-1] == "void *"
    if has_user_data:
        arguments.pop()
    takes_blocks = result == "void"
    if takes_blocks:
        if len(arguments) < 3 or arguments.pop() not in INTEGERS:
            return None
        result = arguments[0].removesuffix(" *")
    n_in = len(arguments) - takes_blocks        # the address of the result is among them
    element = f"{result} *" if takes_blocks else result
    if result not in ("double", "float") or not 1 <= n_in <= MOST_INPUTS or {*arguments} != {element}:
        return None
    return CallingConvention(result == "double", n_in, takes_blocks, has_user_data)


def _plain(argument: str) -> str:
    """A type without `const`, its asterisk after one space."""
    return " ".join(re.sub(r"\bconst\b", " ", argument).replace("*", " * ").split())
