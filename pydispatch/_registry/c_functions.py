"""Kernels in C: functions with a C signature, turned into universal functions."""

# tests: tests/library/test_c_functions.py
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from pydispatch import _core
from pydispatch.exceptions import RegistrationError

MOST_INPUTS = 3
INTEGERS = {"intptr_t", "npy_intp", "Py_ssize_t", "ssize_t", "ptrdiff_t", "long", "int64_t"}
"""The C types of the number of elements. They are the same type on the machines that the package is built for."""
EXPECTED = '"double (double)", "void (double *, double *, intptr_t)"'


class CallingConvention(NamedTuple):
    """The way to call a function in C."""

    is_double: bool         # T is double, not float
    n_in: int
    takes_blocks: bool      # it takes addresses and a number of elements, not numbers
    has_user_data: bool


def c_function(*functions: Any, name: str = "") -> Callable[..., Any]:
    """Make a universal function of functions in C.

    It broadcasts, converts and copies as NumPy universal functions do. Functions for double and for float become one
    universal function.

    The functions run without the GIL and on elements in any order. The result may have the address of an input.

    Parameters
    ----------
    *functions
        One function for double or for float, or one for each. Each is a PyCapsule or a `scipy.LowLevelCallable`. The
        name of the capsule is the signature, where T is `double` or `float`. `T (T)` is called for each element.
        `void (T *, T *, intptr_t)` is called with the address of the input, the address of the result and the number
        of elements. Both forms may have up to three inputs, and `void *` as their last argument, for the user data.
    name
        The `__name__` of the universal function.

    Returns
    -------
    numpy.ufunc
        The universal function.

    Raises
    ------
    RegistrationError
        If a function is neither a PyCapsule nor a LowLevelCallable, if it has another signature, or if the functions
        do not fit together.

    Examples
    --------
    >>> import ctypes
    >>> from pydispatch import library
    >>> new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ...     ("PyCapsule_New", ctypes.pythonapi))
    >>> signature = b"double (double)"
    >>> capsule = new_capsule(ctypes.cast(ctypes.CDLL(None).cbrt, ctypes.c_void_p), signature, None)
    >>> cbrt = library.c_function(capsule, name="cbrt")
    >>> cbrt([8, 27])
    array([2., 3.])
    """
    return universal("c_function", functions, name)


def universal(what: str, functions: tuple[Any, ...], name: str = "") -> Callable[..., Any]:
    """Make a universal function of functions in C as `c_function` does, with `what` at the start of error messages."""
    remedy = f"name the capsule by a signature such as {EXPECTED}"
    capsules = tuple(map(capsule_of, functions))
    layouts, signatures = [], []
    for function, capsule in zip(functions, capsules, strict=True):
        signature = _core.name_of_capsule(capsule)
        if signature is None:
            raise RegistrationError(f"{what}: found {type(function).__name__} {function!r}, expected a C function: a "
                                    f"PyCapsule or a scipy.LowLevelCallable\n{remedy}")
        layout = layout_of(signature)
        if layout is None:
            raise RegistrationError(f"{what}: the C function has the signature {signature!r}, expected one such as "
                                    f"{EXPECTED}, with double or float and 1 to {MOST_INPUTS} inputs\n{remedy}")
        layouts.append(layout)
        signatures.append(signature)
    types, numbers = {layout.is_double for layout in layouts}, {layout.n_in for layout in layouts}
    if len(types) != len(layouts) or len(numbers) != 1:
        raise RegistrationError(f"{what}: found C functions with the signatures {signatures}, expected one for double "
                                "or float, or one for each with the same number of inputs\n"
                                "make a universal function of each set")
    order = sorted(range(len(layouts)), key=lambda i: layouts[i].is_double)     # float first: float32 stays float32
    return _core.universal_of_capsules(
        tuple([functions[i] for i in order]), tuple([capsules[i] for i in order]), [layouts[i] for i in order],
        name or signatures[order[-1]])


def layout_of(signature: str) -> CallingConvention | None:
    """Return the calling convention of a C signature, or None if such functions cannot be kernels."""
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
    n_in = len(arguments) - takes_blocks        # without the address of the result
    element = f"{result} *" if takes_blocks else result
    if result not in ("double", "float") or not 1 <= n_in <= MOST_INPUTS or {*arguments} != {element}:
        return None
    return CallingConvention(result == "double", n_in, takes_blocks, has_user_data)


def _plain(argument: str) -> str:
    """Remove `const` from a C type and put one space before each asterisk."""
    return " ".join(re.sub(r"\bconst\b", " ", argument).replace("*", " * ").split())


def is_c_function(value: Any) -> bool:
    """Return whether this is a PyCapsule or a `scipy.LowLevelCallable`."""
    return _core.name_of_capsule(capsule_of(value)) is not None


def capsule_of(value: Any) -> Any:
    """Return the capsule in a `scipy.LowLevelCallable`, or any other value unchanged."""
    if isinstance(value, tuple) and type(value).__name__ == "LowLevelCallable":
        return tuple.__getitem__(value, 0)      # LowLevelCallable's __getitem__ raises
    return value
