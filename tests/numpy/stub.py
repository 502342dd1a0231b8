"""What type checkers see of `pydispatch.numpy` and `pydispatch.scipy`: `python -m tests.numpy.stub` writes the stubs.

A function that is an operator has the operator's arrays and results, by its schema; of others, checkers know the names
of parameters. Modules import what loops define in them from stubs of `pydispatch/namespaces`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import keyword
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import pydispatch.numpy as pnp
from pydispatch._core import ArrayFunction, OpOverloadPacket
from pydispatch.cli.stubs import has_arrays, hint, results
from pydispatch.numpy.declare import FUNCTIONS, Adapter
from pydispatch.registry.operators import load_all
from pydispatch.registry.registrations import packets
from pydispatch.schema import Argument, Schema

STUB = Path(pnp.__file__).with_suffix(".pyi")
HIDDEN = {name: STUB.parents[1] / "namespaces" / f"{name.replace('.', '_')}.pyi" for name in (
    "numpy.linalg", "numpy.fft", "scipy.special", "scipy.linalg", "scipy.signal")}
MODULES = ("fft", "lib", "linalg", "random")
CLASSES = {"vectorize": "mapping", "r_": "indexing", "c_": "indexing"}


TENSOR, ARRAY, RAW = "Tensor", "NDArray[Any]", "_Raw"
OF_NUMBERS = {"reduction", "interp", "linalg_det", "matmul", "searchsorted", "take"}
"""Operators, and a tag, for which arrays often give a number: checkers would refuse it as a float were it an array."""
OTHER_RESULTS = {"retstep", "disp", "return_sign"}
"""Parameters with which a function gives more than its operator."""
NOT_THE_OPERATORS = {"linalg_cho_factor"}       # gives a pair, unlike the operator of its name
HEAD = """\
# Written by `python -m tests.numpy.stub`.  # ruff: noqa: I001

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from pydispatch._core import Tensor
"""
TYPES = """\
_Raw: TypeAlias = NDArray[Any] | complex | np.generic
_Out = TypeVar("_Out", bound=Tensor | NDArray[Any])
"""


def described(function: ArrayFunction) -> Any:
    """The function whose parameters it has."""
    return function.numpy_function if isinstance(function.implementation, Adapter) else function.implementation


def names_of(ufunc: np.ufunc) -> list[str]:
    """What NumPy calls the arrays that a ufunc takes."""
    return ["x"] if ufunc.nin == 1 else [f"x{i}" for i in range(1, ufunc.nin + 1)]


def parameters_of(function: ArrayFunction, hints: dict[str, str], *, out: bool) -> str:
    """Its parameters, Any where `hints` says nothing; with `out` that is needed, and everything after it a keyword."""
    if isinstance(function.numpy_function, np.ufunc):
        names = names_of(function.numpy_function)
        rest = ["/", "*", "out: _Out"] if out else ["/"] if hints else ["/", "*out: Any"]
        return ", ".join([*[f"{name}: {hints.get(name, 'Any')}" for name in names], *rest, "**kwargs: Any"])
    found: list[str] = []
    parameters = list(inspect.signature(described(function)).parameters.values())
    for parameter, following in zip(parameters, [*parameters[1:], None], strict=True):
        kind = parameter.kind
        is_result = out and parameter.name == "out"
        if (kind is kind.KEYWORD_ONLY or is_result) and not any(text.startswith("*") for text in found):
            found.append("*")
        prefix = {kind.VAR_POSITIONAL: "*", kind.VAR_KEYWORD: "**"}.get(kind, "")
        is_needed = parameter.default is parameter.empty or is_result or hints.get(parameter.name, "None") != "None"
        default = "" if is_needed else " = ..."
        found.append(f"{prefix}{parameter.name}: {hints.get(parameter.name, 'Any')}{default}")
        if kind is kind.POSITIONAL_ONLY and (following is None or following.kind is not kind):
            found.append("/")
    if isinstance(function.implementation, Adapter):
        found += [f"{name}: Any = ..." for name in sorted(function.implementation.added or ())]
    return ", ".join(found)


def arrays_of(packet: OpOverloadPacket | None, function: ArrayFunction) -> tuple[Schema | None, dict[str, Argument]]:
    """The schema of an operator, and its arguments that are arrays, by the parameters of its function."""
    schema = packet.default.schema if packet is not None else None
    if packet is None or schema is None or packet.__name__ in NOT_THE_OPERATORS:
        return None, {}
    if isinstance(function.numpy_function, np.ufunc):
        names = names_of(function.numpy_function)
    else:
        names = [parameter.name for parameter in inspect.signature(described(function)).parameters.values()
                 if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    if OTHER_RESULTS & set(names):
        return None, {}
    return schema, {parameter: argument for parameter, argument in zip(names, schema.arguments, strict=False)
                    if has_arrays(argument.type) and not argument.has_default}


def calls(packet: OpOverloadPacket | None, function: ArrayFunction) -> list[str]:
    """Its calls: those with Tensors, those with NumPy's arrays, and any other, of which nothing is known."""
    schema, arrays = arrays_of(packet, function)
    found = []
    if packet is not None and schema is not None and arrays:
        takes_out = isinstance(function.numpy_function, np.ufunc) or "out" in inspect.signature(
            described(function)).parameters
        written = {"out": "None"} if takes_out and not isinstance(function.numpy_function, np.ufunc) else {}
        for parameter, argument in arrays.items():
            hints = dict.fromkeys(arrays, "Any") | {parameter: hint(argument.type, TENSOR)} | written
            found.append(f"({parameters_of(function, hints, out=False)}) -> {given(schema, TENSOR)}")
        if takes_out:
            hints = {"out": "_Out"} | dict.fromkeys(arrays, "Any")
            found.insert(0, f"({parameters_of(function, hints, out=True)}) -> _Out")
        if not OF_NUMBERS & {packet.__name__, *packet.default.tags}:
            for array in arrays:        # numbers alone give a number
                hints = {parameter: hint(argument.type, ARRAY if parameter == array else RAW)
                         for parameter, argument in arrays.items()} | written
                found.append(f"({parameters_of(function, hints, out=False)}) -> {given(schema, ARRAY)}")
    return [*found, f"({parameters_of(function, {}, out=False)}) -> Any"]


def given(schema: Schema, array: str) -> str:
    """What a call gives; NumPy's functions put several arrays in a list, where operators put them in a tuple."""
    return re.sub(r"^tuple\[(.+), \.\.\.\]$", r"list[\1]", results(schema, array))


def stub_of(name: str, value: Any) -> str:
    """The lines for one name."""
    if not isinstance(value, ArrayFunction):
        return f"from numpy import {name} as {name}"
    if value.__name__ != name:
        return f"{name} = {value.__name__}"
    found = calls(packets["np"].get(name), value)
    return overloads(name, found)


def overloads(name: str, found: list[str]) -> str:
    """The definitions of a function, one for each of its calls."""
    return "\n".join(("@overload\n" if len(found) > 1 else "") + definition(name, call) for call in found)


def definition(name: str, call: str) -> str:
    """A function of this name, its parameters on lines of their own where they are long."""
    head = f"def {name}{call}: ..."
    if len(head) <= 120:
        return head
    parameters, _, result = call[1:].rpartition(") -> ")
    kept = f"{parameters},".replace(": ", ":\xa0").replace(" = ", "\xa0=\xa0")     # lines end after commas
    inner = "\n    ".join(textwrap.wrap(kept, 112)).replace("\xa0", " ")
    return f"def {name}(\n    {inner}\n) -> {result}: ..."


def text() -> str:
    """The whole file."""
    load_all("np")
    names = [name for name in pnp.__all__ if not name.startswith("_") and not keyword.iskeyword(name)
             and name not in (*MODULES, *CLASSES)]
    lines = {name: stub_of(name, FUNCTIONS.get(name, getattr(pnp, name))) for name in names}
    imports = sorted(line for line in lines.values() if line.startswith("from"))
    functions = [line for line in lines.values() if line.startswith(("def", "@"))]
    aliases = [line for line in lines.values() if " = " in line and not line.startswith(("def", "from", "@"))]
    return "\n".join([
        HEAD,
        *imports, "",
        *[f"from pydispatch.numpy import {name} as {name}" for name in MODULES],
        *[f"from pydispatch.numpy.{module} import {name} as {name}" for name, module in CLASSES.items()],
        "from pydispatch.numpy.standard import ArrayNamespaceInfo", "", TYPES,
        "__array_namespace_info__ = ArrayNamespaceInfo", "__array_api_version__: str", "", *functions, "", *aliases, "",
    ])


def of_module(name: str) -> str:
    """What checkers cannot see in a module of functions, since loops and tables define it."""
    module = importlib.import_module(f"pydispatch.{name}")
    face, _, family = name.partition(".")
    namespace, functions = ("np", FUNCTIONS)
    if face == "scipy":
        from pydispatch.scipy.pack import FACE  # needs SciPy, which not everybody has
        namespace, functions = "scipy", FACE.functions
    load_all(namespace)
    defined = {node.name for node in ast.parse(Path(str(module.__file__)).read_text()).body
               if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names = getattr(module, "__all__", [each.partition(".")[2] for each in functions if each.startswith(f"{family}.")])
    lines = []
    for each in sorted(set(names) - defined - {"LinAlgError", "LinAlgWarning"}):
        function = functions.get(f"{family}.{each}")
        if not isinstance(function, ArrayFunction):
            lines.append(f"{each}: Any")
        else:
            lines.append(overloads(each, calls(packets[namespace].get(f"{family}_{each}"), function)))
    return "\n".join([HEAD.replace("noqa: I001", "noqa", 1), TYPES, *lines, ""])


if __name__ == "__main__":
    STUB.write_text(text())
    for name, path in HIDDEN.items():
        path.write_text(of_module(name))
