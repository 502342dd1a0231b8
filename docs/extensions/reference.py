"""Reference pages for every operator of the library, and every function of `pydispatch.numpy` and `pydispatch.scipy`.

They are made of what the package knows: signatures, schemas, variants, whether there is a gradient. Examples are run.
"""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

from pydispatch import ops
from pydispatch._registry.operators import load_all
from pydispatch.operators import DECLARATIONS
from pydispatch.operators.declare import OF_FAMILIES
from pydispatch.scipy.stats.distributions import Distribution

from .examples import MADE, write

load_all("np")      # declares `OF_FAMILIES`
NAMESPACES = ("numpy", "numpy.linalg", "numpy.fft", "numpy.random", "numpy.lib.stride_tricks", "scipy.special",
              "scipy.fft", "scipy.linalg", "scipy.signal", "scipy.ndimage", "scipy.stats", "scipy.sparse",
              "scipy.sparse.linalg", "scipy.interpolate", "scipy.spatial", "scipy.spatial.distance", "scipy.cluster.vq")
"""The faces whose functions have pages. SciPy's solvers are in docs/reference.md."""
TITLES = {
    "pointwise": "element by element", "reduction": "along axes", "accumulation": "running sums and products",
    "sorting": "sorting and searching", "linalg": "linear algebra", "calculus": "calculus", "view": "views",
    "join": "joining and splitting", "rearrangement": "rearranging", "indexing": "indexing",
    "creation": "making arrays", "conversion": "conversion", "random": "random numbers", "fft": "Fourier transforms",
}
SIGNATURE = re.compile(r"[\w.]+\(.*?\)(?:\s*->.*?)?(?:\n\n|$)", re.DOTALL)


def summary(function: Any) -> str:
    """The first sentence of a docstring, without the signature that functions in C put before it."""
    text = inspect.getdoc(function) or ""
    match = SIGNATURE.match(text)
    if match:
        text = text[match.end():]
    return code_in(" ".join(text.lstrip().partition("\n\n")[0].split()))


def code_in(line: str) -> str:
    """A line of NumPy's with code as Markdown marks it."""
    return re.sub(r"`{1,2}([^`]+)`{1,2}", r"`\1`", line)


def arguments(function: Any) -> str:
    """A signature without annotations; defaults that are no literals are dots."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    shown = [parameter.replace(annotation=parameter.empty,
                               default=Dots() if "<" in repr(parameter.default) and parameter.default is not
                               parameter.empty else parameter.default)
             for parameter in signature.parameters.values()]
    return str(signature.replace(parameters=shown, return_annotation=signature.empty))


class Dots:
    """A default that the reference does not spell."""

    def __repr__(self) -> str:
        return "..."


def declared(name: str) -> Any:
    """The declaration of an operator of the library."""
    return DECLARATIONS.get(name) or OF_FAMILIES[name]


def operator_entry(name: str) -> str:
    """The entry of one operator and its variants: the text of `help`."""
    operation = declared(name).operation
    variants = [variant.partition(".") for variant in operation.variants if variant]
    schemas = [getattr(getattr(ops.np, packet), overload or "default").schema for packet, _, overload in variants]
    packet = getattr(ops.np, name)
    _, line, facts, *example = packet.__doc__.split("\n\n", 3)
    told = [fact for fact in facts.splitlines() if not fact.startswith("Variants: ")]      # whose schemas are listed
    listed = "\n".join(f"- {item}" for item in [*[f"`{schema}`" for schema in schemas], *told])
    code = textwrap.dedent("".join(example).removeprefix("Example:\n\n"))
    body = "\n\n".join(filter(None, [code_in(line), listed, f"```python\n{code}\n```" if code else ""]))
    return f"````{{py:function}} pydispatch.ops.np.{name}{arguments(packet.default)}\n{body}\n````\n"


def public(namespace: str) -> list[str]:
    """The names of a namespace that are no modules."""
    module = importlib.import_module(f"pydispatch.{namespace}")
    return [name for name in module.__all__ if not isinstance(getattr(module, name), types.ModuleType)]


def function_entries(namespace: str) -> Iterator[str]:
    """An entry for each public function of a namespace; of distributions, for their methods."""
    module = importlib.import_module(f"pydispatch.{namespace}")
    for name in sorted(public(namespace), key=lambda name: (name.lower(), name)):
        value = getattr(module, name)
        address = f"pydispatch.{namespace}.{name}"
        if callable(value) and not isinstance(value, Distribution):
            yield entry(address, value)
        elif isinstance(value, Distribution):
            yield f"````{{py:data}} {address}\n{summary(value)}\n````\n"
            shared = set(dir(value)) & set(dir(getattr(importlib.import_module(namespace), name)))
            methods = ((part, getattr(value, part)) for part in sorted(shared) if not part.startswith("_"))
            yield from (entry(f"{address}.{part}", method) for part, method in methods if callable(method))
        else:
            yield f"````{{py:data}} {address}\n````\n"


def entry(name: str, function: Any) -> str:
    """The entry of one function."""
    shown = "" if isinstance(function, type) else arguments(function)
    kind = "class" if isinstance(function, type) else "function"
    return f"````{{py:{kind}}} {name}{shown}\n{summary(function)}\n````\n"


def make(app: Sphinx) -> None:
    """Write the pages that Sphinx reads."""
    MADE.mkdir(exist_ok=True)
    by_category: dict[str, list[str]] = {}
    everything = {**DECLARATIONS, **OF_FAMILIES}.values()
    for name in sorted({item.operation.variants.functional for item in everything if item.namespace == "np"}):
        category = next(iter(declared(name).tags), name.partition("_")[0])
        by_category.setdefault(category, []).append(name)
    for category, names in by_category.items():
        title = f"# Operators: {TITLES.get(category, category)}\n\n"
        intro = "[Operators](../operators.md) explains variants, and gradients where a function is not smooth.\n\n"
        write(MADE / f"operators-{category}.md", title + intro + "\n".join(map(operator_entry, names)))
    for namespace in NAMESPACES:
        family = namespace.partition(".")[0]
        intro = (f"# `pydispatch.{namespace}`\n\nArguments and meaning are those of `{namespace}`, and so is the "
                 f"sentence about each. [This page](../{family}.md) lists gradients and differences.\n\n")
        write(MADE / f"functions-{namespace.replace('.', '-')}.md", intro + "\n".join(function_entries(namespace)))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", make)
    return {"parallel_read_safe": True}
