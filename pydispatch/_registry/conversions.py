"""Errors for tracked or transformed values that code converts to a number or a NumPy array.

The first line has the same form everywhere: the value, its use, the loss, and the place. The second line shows what to
write there instead. It is derived from the source of the call.
"""

# tests: tests/test_conversions.py
from __future__ import annotations

import linecache
import re
import sys
import sysconfig
from importlib.util import find_spec
from opcode import opmap
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import BatchedTensor, PythonWrapper, Tensor, Wrapper
from pydispatch._sites import describe_interpreter, is_ours
from pydispatch.exceptions import (
    AutogradError,
    ConversionError,
    DataDependentError,
    DispatchError,
    DispatchTypeError,
    VmapError,
)

FACE = "pydispatch.numpy"
COPY = "a copy for pickle or copy.deepcopy"
ARGUMENT = "an argument of your universal function"
ARRAYS = ("a NumPy array", "an array, its `.array`", COPY, ARGUMENT)
"""Uses that convert a whole array, not one number."""
STORING = ("float()", "int()", "complex()", "a NumPy array")
"""Conversions by NumPy when a value is assigned to a part of a NumPy array."""
NAMES = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
         "atan2": "arctan2", "atanh": "arctanh", "ceil": "ceil", "dist": "linalg.norm", "fabs": "abs", "fsum": "sum",
         "ldexp": "ldexp", "pow": "power", "sumprod": "vdot"}
"""Functions of `math` that have another name in NumPy."""
SPECIAL = {"erf": "erf", "erfc": "erfc", "gamma": "gamma", "lgamma": "gammaln", "comb": "comb",
           "factorial": "factorial"}
"""Functions of `math` that are in `scipy.special`."""
NAME = r"([\w.]+(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\])*)"
"""A variable, an attribute, or a part of one, such as `fn.buffer[0, index[i]]`."""
AUGMENTED = re.compile(NAME + r"\s*(?:[-+*/%@&|^]|\*\*|//|<<|>>)=(?!=)")
"""Augmented assignments such as `fn.buffer += x`."""
NO_CALL = r"(?![\w.\[(])"
"""The end of a name that is not called, unlike in `out=np.empty(3)`."""
OUT = re.compile(r"\bout=\(?" + NAME + NO_CALL)
WRITING = re.compile(r"[\w.]*\b(?:at|copyto|put|place|putmask|fill_diagonal|put_along_axis)\(\s*(?:\w+=)?" + NAME
                     + NO_CALL)
"""Functions that write to their first argument."""
UNNAMED = "array"
"""The name in messages of an array whose name the source does not show."""
LIBRARIES = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib"))


class UserCall(NamedTuple):
    """A call in the user's source code."""

    place: str          # the file and line
    text: str           # the source of the expression, empty if it is unknown
    written: str        # the array that the call writes to, as in `written_by`
    module: str         # the module of another library that converted the value, "" if the user's code did
    names: dict[str, Any]


def conversion_error(value: Tensor, use: str) -> DispatchError:
    """Return the error for this use of a value that an interpreter or the tape tracks."""
    call = user_call()
    what = described_value(value)
    if isinstance(value, BatchedTensor) and not value.interpreter.alive:
        return VmapError(f"{what}, was used as {use}: it escaped from the function under vmap\n"
                         "return it from that function")
    kind = kind_of_error(value, use)
    if call.written and use in STORING and value.dtype.kind in "fc":
        return kind(held_in_array(value, call))
    return kind(f"{what} was used as {use}: {loss(value)} (at {call.place})\n{remedy(value, use, call)}")


def storing_error(value: Tensor) -> DispatchTypeError:
    """Return the error for a value that is written to a NumPy array by `out=`, `+=` or a function such as copyto."""
    return DispatchTypeError(held_in_array(value, user_call()))


def held_in_array(value: Tensor, call: UserCall) -> str:
    """Return the message for a value that is written to a NumPy array."""
    if not _core.is_followed(value) and not isinstance(value, BatchedTensor):
        return written_in_trace(call)
    target = call.written or UNNAMED
    return (f"{call.place}: {named(target, 'a NumPy array')} cannot hold {described_value(value)}: "
            f"{way_to_hold(value, target, call)}\n"
            f"{loss(value)}. An array that can hold it: {FACE}.zeros(shape, like=tensor){by_itself(value)}")


def written_in_trace(call: UserCall) -> str:
    """Return the message for a traced function that writes to an array from outside of it."""
    target = call.written or UNNAMED
    return (f"{call.place}: {named(target, 'an array from outside of the traced function')} cannot hold a value of it: "
            "graphs and compiled functions do not write to captured arrays\n"
            f"return the new value, or write to a copy: {name_of_face(call)}.copy({target})")


def named(target: str, kind: str) -> str:
    """Return the subject of a message about an array: its name in the source, if any, and its kind."""
    return kind if target == UNNAMED else f"{target}, {kind},"


def described_value(value: Tensor) -> str:
    """Describe a value by the transform that it belongs to, or as a Tensor that requires grad."""
    if isinstance(value, Wrapper):
        return f"a value of {describe_interpreter(value.interpreter)}"
    return "a Tensor that requires grad"


def loss(value: Tensor) -> str:
    """Return the clause that names what the conversion would lose."""
    if isinstance(value, BatchedTensor):
        return "each example has its own value"
    return "its transform would be lost" if isinstance(value, PythonWrapper) else "its gradient would be lost"


def kind_of_error(value: Tensor, use: str) -> type[DispatchError]:
    """Return the class of the error for this use of a value.

    Converting a batch to a number is branching on data. After a ConversionError, batching rules run a loop.
    """
    if not isinstance(value, Wrapper):
        return AutogradError
    return DataDependentError if isinstance(value, BatchedTensor) and use not in ARRAYS else ConversionError


def by_itself(value: Tensor) -> str:
    """Return a clause that shows how to get the untracked value. It is empty for a batch."""
    if isinstance(value, BatchedTensor):
        return ""
    way = "pydispatch.func.concrete_value(tensor)" if isinstance(value, Wrapper) else "tensor.detach()"
    return f". For the plain value: {way}"


def remedy(value: Tensor, use: str, call: UserCall) -> str:
    """Return the line of the message that shows what to write instead of the call."""
    return way_instead(use, call, isinstance(value, BatchedTensor)) + by_itself(value)


def way_instead(use: str, call: UserCall, is_batch: bool) -> str:
    """Return what to write instead of a call that uses a value as a number or a NumPy array."""
    function = re.match(r"c?math\.(\w+)\(", call.text)
    if use in ("bool()", "a truth value", "a format"):
        way = ("choose with np.where(condition, a, b) or pydispatch.higher_order.cond, or call the function on one "
               "example")
    elif use == COPY:
        way = "use the operator: tensor.copy()"
    elif use == ARGUMENT:
        way = "make an operator of the function: pydispatch.library.custom_op"
    elif call.module and not (call.module.startswith("numpy") and name_in_face(call)):
        way = way_around(call.module)
    elif function is not None and (ours := name_in_numpy(function[1])):
        way = f"write {ours} instead of math.{function[1]}"
    elif use in ("int()", "an index") or use.startswith("math."):
        way = ("select with np.take(array, x, axis=0)" if is_batch
               else "an index or a count has no gradient. To continue with a whole number: np.floor(x)")
    elif use == "round()":
        way = "write np.round(x)"
    elif use == "hash()":
        way = "use a position or a name as the key, or id(x) for this object. To count equal values: np.equal(a, b)"
    elif use in ("item()", "tolist()"):
        way = f"leave out .{use}: NumPy's functions and operators take the array itself"
    elif use in ARRAYS and (ours := name_in_face(call)):
        way = f"use {ours}. To make an array of several: numpy.stack([...]), not numpy.array([...])"
    elif use in ARRAYS:
        way = (f"use the functions of {FACE}. To make an array of several: numpy.stack([...]), not "
               "numpy.array([...])")
    elif use == "a Python number":
        way = ("use NumPy's functions, such as np.sin(x). To choose: np.where(condition, a, b) or "
               "pydispatch.higher_order.cond")
    else:
        way = f"use NumPy's functions, such as np.sin(x). An array that can hold it: {FACE}.zeros(shape, like=tensor)"
    return way


def name_in_face(call: UserCall) -> str:
    """Return the pydispatch.numpy function with the name of the NumPy function that was called, or an empty string."""
    found = re.match(r"(\w+)\.([\w.]+)\(", call.text)
    if found is None or call.names.get(found[1]) is not np or not hasattr(np, found[2]) or found[2] == "array":
        return ""
    return f"{FACE}.{found[2]}"


def name_in_numpy(function: str) -> str:
    """Return the NumPy or SciPy counterpart of a function of `math`, or an empty string."""
    name = NAMES.get(function, function)
    if hasattr(np, name.partition(".")[0]):
        return f"np.{name}"
    return f"pydispatch.scipy.special.{SPECIAL[function]}" if function in SPECIAL else ""


def way_around(module: str) -> str:
    """Return the remedy for a call of a library that computes with NumPy arrays only."""
    family = ".".join(module.split(".")[:2])
    operator = "make an operator of the call: pydispatch.library.custom_op"
    if family.startswith("scipy.") and find_spec(f"pydispatch.{family}") is not None:
        return f"{family} computes with NumPy arrays: use pydispatch.{family}, or {operator}"
    return f"{family.partition('.')[0]} computes with NumPy arrays: {operator}"


# --- where it happened -----------------------------------------------------------------------------------------------


def user_call() -> UserCall:
    """Find the innermost call in the user's code, and the library that it called, if any."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    module, inner = "", frame
    while frame is not None and (is_of_library(frame) or is_ours(frame)):
        module = module or frame.f_globals.get("__name__", "")
        frame = frame.f_back
    if frame is None:
        module, frame = "", inner
    if frame is None:
        return UserCall("an unknown place", "", "", "", {})
    text = text_at(frame)
    written = "" if module else written_by(text, frame.f_code.co_code[frame.f_lasti] == opmap["STORE_SUBSCR"])
    return UserCall(f"{frame.f_code.co_filename}:{frame.f_lineno}", text, written, module,
                    frame.f_globals | frame.f_locals)


def written_by(text: str, is_assignment: bool) -> str:
    """Return the array that a line writes to, UNNAMED if the source does not show it, or an empty string if none."""
    if is_assignment:
        return target_of(text)
    found = AUGMENTED.match(text) or OUT.search(text) or WRITING.match(text)
    return found[1] if found else ""


def is_of_library(frame: FrameType) -> bool:
    """Return whether a frame runs code of Python's standard library or of an installed package."""
    filename = frame.f_code.co_filename
    return filename.startswith(LIBRARIES) or filename.startswith("<frozen") or "site-packages" in filename


def text_at(frame: FrameType) -> str:
    """Return the source of the expression that a frame evaluates. It is empty if unknown or longer than a line."""
    positions = [*frame.f_code.co_positions()][frame.f_lasti // 2]
    line, end_line, start, end = positions
    if line is None or line != end_line or start is None or end is None:
        return ""
    source = linecache.getline(frame.f_code.co_filename, line, frame.f_globals).encode()
    return source[start:end].decode(errors="replace")


def target_of(text: str) -> str:
    """Return the array that the target of an assignment, such as `out[i]`, writes to."""
    name = text.rpartition("[")[0] if text.endswith("]") else ""
    while name.count("[") != name.count("]"):       # out[index[i]]
        name = name.rpartition("[")[0]
    return name or UNNAMED


def way_to_hold(value: Tensor, target: str, call: UserCall) -> str:
    """Return the remedy for an array that cannot hold a value: to change the import of NumPy, or to write to a copy."""
    modules = {name: module for name, module in call.names.items() if isinstance(module, ModuleType)}
    face = name_of_face(call)
    ways = []
    if any(module.__name__ == FACE for module in modules.values()):
        ways.append(f"write to a copy, {face}.copy({target})" if isinstance(value, Wrapper)
                    else f"write to a copy, {face}.array({target}, like=tensor)")
    if not ways or np in modules.values():
        alias = next((name for name, module in modules.items() if module is np), "np")
        former = "import numpy" if alias == "numpy" else f"import numpy as {alias}"
        ways.append(f"change `{former}` to `import {FACE} as {alias}`")
    return ", or ".join(ways)


def name_of_face(call: UserCall) -> str:
    """Return the name by which the user's module imports pydispatch.numpy, or its full name."""
    return next((name for name, module in call.names.items()
                 if isinstance(module, ModuleType) and module.__name__ == FACE), FACE)


_core.connect(conversion_error=conversion_error)
