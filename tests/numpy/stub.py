"""Stubs of `pydispatch.numpy` and `pydispatch.scipy` for type checkers.

A function that is an operator has the operator's arrays and results, by its schema. `results.py` says what those give
that are written with operators. Of others, checkers know the names of parameters. `pydispatch.scipy` imports what loops
define in it from stubs of `pydispatch/_stubs`. Universal functions of as many arguments and results have one class.
"""

import ast
import importlib
import inspect
import keyword
import re
import textwrap
from collections import Counter
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pydispatch.numpy as pnp
from pydispatch._core import ArrayFunction, OpOverloadPacket
from pydispatch._registry.operators import load_all
from pydispatch._registry.registrations import packets
from pydispatch.cli.stubs import has_arrays, hint, results
from pydispatch.numpy.declare import FUNCTIONS, NUMPY, Adapter, Face
from tests.numpy.results import (
    AS_TOLD,
    NAMED,
    NO_ARRAYS,
    NUMBER,
    OF_NUMBERS_TOO,
    ONE_OR_MORE,
    OPTIONAL_ARRAYS,
    RESULTS,
    SEQUENCES,
)

HIDDEN = ("scipy.special", "scipy.linalg", "scipy.signal")
MODULES = ("fft", "lib", "linalg", "polynomial", "random")
CLASSES = {"vectorize": "mapping", "r_": "indexing", "c_": "indexing"}


TENSOR, ARRAY, EITHER, RAW = "Tensor", "NDArray[Any]", "_Array", "_Raw"
OF_NUMBERS = {"reduction", "interp", "linalg_det", "matmul", "searchsorted", "take"}
"""Operators, and a tag, for which arrays often give a number: checkers would refuse it as a float were it an array."""
NOT_THE_OPERATORS = {"linalg_cho_factor"}       # gives a pair, unlike the operator of its name
HEAD = """\
# Written by `python tools/regenerate.py`.  # ruff: noqa

import builtins
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, overload

from numpy.typing import NDArray

from pydispatch._core import Tensor
from pydispatch._stubs.arrays import _Array, _Out, _Raw, _T
"""
METHODS = """\
class Methods:
    nin: int
    nout: int
    nargs: int
    ntypes: int
    types: list[str]
    identity: Any
    signature: str | None
    @overload
    def reduce(self, array: Tensor, /, *args: Any, **kwargs: Any) -> Tensor: ...
    @overload
    def reduce(self, array: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def accumulate(self, array: Tensor, /, *args: Any, **kwargs: Any) -> Tensor: ...
    @overload
    def accumulate(self, array: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def reduceat(self, array: Tensor, /, *args: Any, **kwargs: Any) -> Tensor: ...
    @overload
    def reduceat(self, array: Any, /, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def outer(self, A: Tensor, B: Any, /, **kwargs: Any) -> Tensor: ...
    @overload
    def outer(self, A: Any, B: Tensor, /, **kwargs: Any) -> Tensor: ...
    @overload
    def outer(self, A: Any, B: Any, /, **kwargs: Any) -> Any: ...
    def at(self, a: Any, indices: Any, b: Any = ..., /) -> None: ...
"""


def described(function: ArrayFunction) -> Any:
    """Return the function whose parameters it has."""
    return function.numpy_function if isinstance(function.implementation, Adapter) else function.implementation


class Typed(NamedTuple):
    """Types of a function: its result, its arrays, and the values of other parameters for which these hold.

    `{}` stands for an array, or a Tensor. `raw` has the parameters that could make a Tensor of the result, `as_told`
    those for which it is another one.
    """

    result: str
    arrays: dict[str, str]
    raw: dict[str, str]
    as_told: dict[str, str]
    gives_numbers: bool = False
    takes_numbers: bool = False


def positional(function: ArrayFunction) -> list[inspect.Parameter]:
    """Return its parameters but those that come by keyword only. NumPy's names of the arrays of a universal function.
    """
    ufunc = function.numpy_function
    if isinstance(ufunc, np.ufunc):
        names = ["x"] if ufunc.nin == 1 else [f"x{i}" for i in range(1, ufunc.nin + 1)]
        return [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
    return [parameter for parameter in inspect.signature(described(function)).parameters.values()
            if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)]


def takes_out(function: ArrayFunction) -> bool:
    ufunc = function.numpy_function
    return ufunc.nout == 1 if isinstance(ufunc, np.ufunc) else "out" in inspect.signature(
        described(function)).parameters


def parameters_of(function: ArrayFunction, hints: dict[str, str], needed: Collection[str]) -> str:
    """Return its parameters, Any where `hints` says nothing. After `out`, if that is needed, everything is a keyword.
    """
    if isinstance(function.numpy_function, np.ufunc):
        names = [parameter.name for parameter in positional(function)]
        out = "out: _Out | tuple[_Out]" if "out" in needed else "out: None = ..."
        return ", ".join([*[f"{name}: {hints.get(name, 'Any')}" for name in names], "/",
                          *(["*", out] if hints else ["*out: Any"]), "**kwargs: Any"])
    found: list[str] = []
    parameters = list(inspect.signature(described(function)).parameters.values())
    for parameter, following in zip(parameters, [*parameters[1:], None], strict=True):
        kind = parameter.kind
        if (kind is kind.KEYWORD_ONLY or (parameter.name == "out" and "out" in needed)) and not any(
                text.startswith("*") for text in found):
            found.append("*")
        prefix = {kind.VAR_POSITIONAL: "*", kind.VAR_KEYWORD: "**"}.get(kind, "")
        is_needed = parameter.default is parameter.empty or parameter.name in needed
        default = "" if is_needed else " = ..."
        found.append(f"{prefix}{parameter.name}: {hints.get(parameter.name, 'Any')}{default}")
        if kind is kind.POSITIONAL_ONLY and (following is None or following.kind is not kind):
            found.append("/")
    if isinstance(function.implementation, Adapter):
        found += [f"{name}: Any = ..." for name in sorted(function.implementation.added or ())]
    return ", ".join(found)


def as_told(function: ArrayFunction) -> dict[str, str]:
    """Return the values of its parameters for which it gives what checkers are told."""
    if isinstance(function.numpy_function, np.ufunc):
        return {}
    names = inspect.signature(described(function)).parameters
    return {name: told for name, told in AS_TOLD.items()
            if name in names and (name != "mode" or function.numpy_function is np.linalg.qr)}


def of_operator(packet: OpOverloadPacket | None, function: ArrayFunction) -> Typed | None:
    """Return the contents of an operator's schema."""
    schema = packet.default.schema if packet is not None else None
    parameters = positional(function)
    if packet is None or schema is None or packet.__name__ in NOT_THE_OPERATORS or any(
            parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    arguments = [(parameter.name, argument) for parameter, argument in zip(parameters, schema.arguments, strict=False)
                 if has_arrays(argument.type)]
    arrays = {name: hint(argument.type, "{}") for name, argument in arguments if not argument.has_default}
    # NumPy's functions put several arrays in a list, where operators put them in a tuple
    result = re.sub(r"^tuple\[(.+), \.\.\.\]$", r"list[\1]", results(schema, "{}"))
    raw = {name: hint(argument.type, RAW) for name, argument in arguments if argument.has_default}
    return Typed(result, arrays, raw, as_told(function), bool(OF_NUMBERS & {packet.__name__, *packet.default.tags}))


def of_composed(name: str, function: ArrayFunction) -> Typed | None:
    """Return the entry of `GIVES` for a function that is written with operators."""
    result = RESULTS.get(name)
    if result is None:
        return None
    parameters = [parameter for parameter in positional(function) if parameter.name != "out"]
    arrays = {parameter.name: "{} | Sequence[{}]" if parameter.name in SEQUENCES else "{}" for parameter in parameters
              if parameter.default is parameter.empty and parameter.name not in NO_ARRAYS}
    raw = {parameter.name: f"{RAW} | None" for parameter in parameters
           if parameter.default is not parameter.empty and parameter.name in OPTIONAL_ARRAYS}
    return Typed(result.replace(NUMBER, "{}"), arrays, raw, as_told(function), NUMBER in result, name in OF_NUMBERS_TOO)


def calls(name: str, packet: OpOverloadPacket | None, function: ArrayFunction) -> list[str]:
    """Return its calls: those with Tensors, those with NumPy arrays, and any other, of which nothing is known."""
    typed = of_composed(name, function) or of_operator(packet, function)

    def call(result: str, hints: dict[str, str], needed: Collection[str] = ()) -> str:
        return f"({parameters_of(function, hints, needed)}) -> {result}"

    if name in ONE_OR_MORE:
        return [f"(ary: {EITHER}, /) -> {EITHER}", call("Any", {})]
    if typed is None or "{}" not in typed.result:
        return [call("Any" if typed is None else typed.result, {})]
    found = []
    arrays, no_out = typed.arrays, {"out": "None"} if takes_out(function) else {}
    others = typed.as_told | no_out
    if no_out:
        found.append(call("_Out", dict.fromkeys(arrays, "Any") | {"out": "_Out"}, {*arrays, "out"}))
    is_unary = len(arrays) == 1 and not (typed.raw or typed.gives_numbers or typed.takes_numbers)
    tensor = EITHER if is_unary else TENSOR
    for array, template in arrays.items():
        hints = dict.fromkeys(arrays, "Any") | {array: template.format(*[tensor] * 2)} | others
        found.append(call(typed.result.replace("{}", tensor), hints, arrays))
    if not is_unary and not typed.gives_numbers:
        for array in arrays if arrays and not typed.takes_numbers else [None]:      # numbers alone give a number
            hints = {name: template.format(*[ARRAY if name == array else RAW] * 2) for name, template in arrays.items()}
            found.append(call(typed.result.replace("{}", ARRAY), hints | typed.raw | others, arrays))
    if arrays or others or typed.raw:
        found.append(call("Any", {}))
    return found


def stub_of(name: str, value: Any) -> str:
    """Return the lines for one name."""
    if not isinstance(value, ArrayFunction):
        return f"from numpy import {name} as {name}"
    if value.__name__ != name:
        return f"{name} = {value.__name__}"
    return function_of(name, calls(name, packets["np"].get(name), value), "Universal")


def function_of(name: str, found: list[str], kind: str) -> str:
    """Return a function by its class, if it shares one, else by its definitions."""
    return f"{name}: {kind}{shared()[tuple(found)]}" if tuple(found) in shared() else overloads(name, found)


def overloads(name: str, found: Collection[str]) -> str:
    """Return the definitions of a function, one for each of its calls."""
    return "\n".join(("@overload\n" if len(found) > 1 else "") + f"def {name}{call}: ..." for call in found)


def without_repeats(lines: dict[str, str]) -> dict[str, str]:
    """Return the lines of names, with a reference for each function that has the calls of one before."""
    known: dict[str, str] = {}
    found = {}
    for name, line in lines.items():
        calls = line.replace(f"def {name}(", "def (")
        first = known.setdefault(calls, name) if "@overload" in line else name
        found[name] = line if first == name else f"{name} = {first}"
    return found


@cache
def shared() -> dict[tuple[str, ...], str]:
    """Return the calls that many universal functions share, and the numbers of their arguments and results."""
    from pydispatch.scipy.pack import FACE  # needs SciPy, which not everybody has
    for family in HIDDEN:
        importlib.import_module(f"pydispatch.{family}")
    for namespace in ("np", "scipy"):
        load_all(namespace)
    found = Counter()
    for face in (NUMPY, FACE):
        for name, function in face.functions.items():
            ufunc = function.numpy_function if isinstance(function, ArrayFunction) else None
            if isinstance(ufunc, np.ufunc):
                full_name = name if face is NUMPY else ""
                packet = packets[face.namespace].get(name.replace(".", "_"))
                found[f"{ufunc.nin}{ufunc.nout}", tuple(calls(full_name, packet, function))] += 1
    return {each: numbers for (numbers, each), n in found.items() if n > 2 and len(each) > 1}


def universal() -> str:
    """Return the stub with the classes of universal functions. Those of NumPy have its methods besides."""
    lines = []
    for found, numbers in sorted(shared().items(), key=lambda item: item[1]):
        inner = overloads("__call__", [f"(self, {call.removeprefix('(')}" for call in found])
        lines += [f"class Function{numbers}:\n{textwrap.indent(inner, '    ')}",
                  f"class Universal{numbers}(Function{numbers}, Methods): ...\n"]
    return "\n".join([HEAD, METHODS, *lines])


def imported_classes(lines: Collection[str]) -> list[str]:
    """Return the import of the classes that lines like `add: Universal21` name."""
    names = sorted({match[1] for line in lines if (match := re.fullmatch(r"\w+: ((?:Universal|Function)\d+)", line))})
    return [f"from pydispatch._stubs.universal import {', '.join(names)}\n"] if names else []


def in_lines(items: str) -> str:
    """Return items in lines that end after commas."""
    return "\n    ".join(textwrap.wrap(re.sub(r"(?<!,) ", "\xa0", items), 112)).replace("\xa0", " ")


def named_results(lines: Collection[str]) -> list[str]:
    """Return the named tuples that functions give."""
    return [f"class {name}(NamedTuple, Generic[_T]):\n" + "".join(f"    {field}: _T\n" for field in each._fields)
            for name, each in NAMED.items() if any(f"{name}[" in line for line in lines)]


def text() -> str:
    load_all("np")
    names = [name for name in pnp.__all__ if not name.startswith("_") and not keyword.iskeyword(name)
             and name not in (*MODULES, *CLASSES)]
    lines = without_repeats({name: stub_of(name, FUNCTIONS.get(name, getattr(pnp, name))) for name in names})
    imports = sorted(line.removeprefix("from numpy import ") for line in lines.values() if line.startswith("from"))
    classes = [line for line in lines.values() if re.match(r"\w+: Universal", line)]
    functions = [line for line in lines.values() if line.startswith(("def", "@"))]
    defined = {name for name, line in lines.items() if not re.match(r"\w+ = ", line)}
    aliases = sorted([line for line in lines.values() if re.match(r"\w+ = ", line)],
                     key=lambda line: line.partition(" = ")[2] not in defined)      # those of aliases last
    return "\n".join([
        HEAD,
        f"from numpy import (\n    {in_lines(', '.join(imports))},\n)", "",
        *[f"from pydispatch.numpy import {name} as {name}" for name in MODULES],
        *[f"from pydispatch.numpy.{module} import {name} as {name}" for name, module in CLASSES.items()],
        "from pydispatch.numpy.standard import ArrayNamespaceInfo", *imported_classes(classes),
        "__array_namespace_info__ = ArrayNamespaceInfo", "__array_api_version__: str", "",
        *named_results(functions), *classes, *functions, "", *aliases, "",
    ])


def of_functions(face: Face, module: str, names: Collection[str]) -> list[str]:
    """Return the lines for functions of a module, "linalg" say."""
    lines = {}
    for name in sorted(names):
        function = face.functions.get(f"{module}.{name}")
        packet = packets[face.namespace].get(f"{module}_{name}")
        full_name = f"{module}.{name}" if face is NUMPY else ""
        lines[name] = (function_of(name, calls(full_name, packet, function), "Function")
                       if isinstance(function, ArrayFunction) else f"{name}: Any")
    return list(without_repeats(lines).values())


def of_module(name: str) -> str:
    """Return the whole stub of a module of `pydispatch.numpy`."""
    load_all("np")
    module = importlib.import_module(f"pydispatch.{name}")
    errors = ["from numpy.linalg import LinAlgError as LinAlgError\n"] if hasattr(module, "LinAlgError") else []
    lines = of_functions(NUMPY, name.partition(".")[2], set(module.__all__) - {"LinAlgError"})
    return "\n".join([HEAD, *errors, "__all__: list[str]\n", *named_results(lines), *lines, ""])


def helpers() -> set[str]:
    """Return the operators that functions of `pydispatch.scipy` call, but that are not themselves such a function."""
    from pydispatch.scipy.pack import FACE, FAMILIES  # needs SciPy, which not everybody has
    for name in FAMILIES:
        importlib.import_module(f"pydispatch.scipy.{name}")
    return set(packets["scipy"]) - {name.replace(".", "_") for name in FACE.functions}


def hidden_in(name: str) -> str:
    """Return the names of `pydispatch.scipy` that checkers cannot see, since loops and tables define them."""
    from pydispatch.scipy.pack import FACE  # needs SciPy, which not everybody has
    load_all("scipy")
    module = importlib.import_module(f"pydispatch.{name}")
    defined = {node.name for node in ast.parse(Path(str(module.__file__)).read_text()).body
               if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    family = name.partition(".")[2]
    names = set(getattr(module, "__all__", [
        each.partition(".")[2] for each in FACE.functions if each.startswith(f"{family}.")]))
    lines = of_functions(FACE, family, names - defined - {"LinAlgError", "LinAlgWarning"})
    return "\n".join([HEAD, *imported_classes(lines), *lines, ""])
