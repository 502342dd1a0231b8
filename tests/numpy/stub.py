"""What type checkers see of `pydispatch.numpy`: `python -m tests.numpy.stub` writes `pydispatch/numpy/__init__.pyi`."""

from __future__ import annotations

import inspect
import keyword
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

import pydispatch.numpy as pnp
from pydispatch._core import ArrayFunction
from pydispatch.numpy.declare import FUNCTIONS, Adapter

STUB = Path(pnp.__file__).with_suffix(".pyi")
MODULES = ("fft", "lib", "linalg", "random")
CLASSES = {"vectorize": "mapping", "r_": "indexing", "c_": "indexing"}


def parameters_of(function: ArrayFunction) -> str:
    """Its parameters, all of them Any."""
    if isinstance(function.numpy_function, np.ufunc):
        names = ["x"] if function.numpy_function.nin == 1 else ["x1", "x2"]
        return ", ".join([*[f"{name}: Any" for name in names], "/", "*out: Any", "**kwargs: Any"])
    found: list[str] = []
    described = (function.numpy_function if isinstance(function.implementation, Adapter) else
                 function.implementation)
    parameters = list(inspect.signature(described).parameters.values())
    for parameter, following in zip(parameters, [*parameters[1:], None], strict=True):
        kind = parameter.kind
        if kind is kind.KEYWORD_ONLY and not any(text.startswith("*") for text in found):
            found.append("*")
        prefix = {kind.VAR_POSITIONAL: "*", kind.VAR_KEYWORD: "**"}.get(kind, "")
        default = " = ..." if parameter.default is not parameter.empty else ""
        found.append(f"{prefix}{parameter.name}: Any{default}")
        if kind is kind.POSITIONAL_ONLY and (following is None or following.kind is not kind):
            found.append("/")
    if isinstance(function.implementation, Adapter):
        found += [f"{name}: Any = ..." for name in sorted(function.implementation.added or ())]
    return ", ".join(found)


def stub_of(name: str, value: Any) -> str:
    """The lines for one name."""
    if isinstance(value, ArrayFunction):
        if value.__name__ != name:
            return f"{name} = {value.__name__}"
        head = f"def {name}({parameters_of(value)}) -> Any: ..."
        if len(head) <= 120:
            return head
        inner = "\n    ".join(textwrap.wrap(f"{parameters_of(value)},", 112))
        return f"def {name}(\n    {inner}\n) -> Any: ..."
    return f"from numpy import {name} as {name}"


def text() -> str:
    """The whole file."""
    names = [name for name in pnp.__all__ if not name.startswith("_") and not keyword.iskeyword(name)
             and name not in (*MODULES, *CLASSES)]
    lines = {name: stub_of(name, FUNCTIONS.get(name, getattr(pnp, name))) for name in names}
    imports = sorted(line for line in lines.values() if line.startswith("from"))
    functions = [line for line in lines.values() if line.startswith("def")]
    aliases = [line for line in lines.values() if " = " in line and not line.startswith(("def", "from"))]
    return "\n".join([
        "# Written by `python -m tests.numpy.stub`.  # ruff: noqa: I001", "", "from typing import Any", "",
        *imports, "",
        *[f"from pydispatch.numpy import {name} as {name}" for name in MODULES],
        *[f"from pydispatch.numpy.{module} import {name} as {name}" for name, module in CLASSES.items()],
        "from pydispatch.numpy.standard import ArrayNamespaceInfo", "",
        "__array_namespace_info__ = ArrayNamespaceInfo", "__array_api_version__: str", "", *functions, "", *aliases, "",
    ])


if __name__ == "__main__":
    STUB.write_text(text())
