"""The public interface: the names that programs import, with the parameters that they pass.

`tools/regenerate.py` writes it to `tests/packaging/api.txt`. A change of that file is a change of the interface:
it needs an entry in the changelog, and a name that goes away is deprecated for a version first (docs/versions.md).
NumPy's and SciPy's names are in the tables of docs/numpy.md and docs/scipy.md, and `compat` has those of others.
"""

import inspect
import re
import types
from collections.abc import Iterator

from pydispatch import Tensor
from tests.test_loading import public_modules

ELSEWHERE = ("pydispatch.numpy", "pydispatch.scipy", "pydispatch.compat.")


def parameters(value: object) -> str:
    """Return the parameters of a callable without their annotations, or `(...)` for one without a signature."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    bare = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    return re.sub(r"=<[^>]*>", "=...", str(signature.replace(parameters=bare, return_annotation=signature.empty)))


def members(cls: type) -> Iterator[str]:
    """Yield a line for each public attribute that is not Tensor's, a builtin's or an instance of the class itself."""
    known = [base for base in cls.__mro__[1:] if base is Tensor or base.__module__ == "builtins"]
    inherited = {name for base in known for name in dir(base)}
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        if name.startswith("_") or name in inherited or isinstance(value, cls):
            continue
        if isinstance(value, (staticmethod, classmethod)):
            yield f"{name}{parameters(getattr(cls, name))}"
        elif callable(value):
            yield f"{name}{parameters(value)}"
        else:
            yield name


def lines(path: str, value: object) -> Iterator[str]:
    """Yield the lines of one public name."""
    if isinstance(value, types.ModuleType):
        return
    if isinstance(value, type):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {path}({bases})" if bases else f"class {path}"
        if not issubclass(value, BaseException):
            yield f"    {parameters(value)}"
            yield from (f"    .{line}" for line in members(value))
    elif callable(value):
        yield f"{path}{parameters(value)}"
    else:
        yield path


def text() -> str:
    """Return the whole interface, modules and names in alphabetical order."""
    found = ["# Written by `python tools/regenerate.py`, compared by its `--check`.", ""]
    for path, module in sorted(public_modules().items()):
        if not path.startswith(ELSEWHERE):
            found += [path, *(f"    {line}" for name in dir(module) if not name.startswith("_")
                              for line in lines(name, getattr(module, name))), ""]
    return "\n".join(found)
