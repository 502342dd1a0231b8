"""The documentation of operators, for `help(ops.np.add)`, and for `ops.np.add?` in a notebook."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._registry.derivatives import CustomDerivative, Joint
from pydispatch._registry.registrations import definition_of, derivative_of, kernels_of
from pydispatch.keys import DispatchKey
from pydispatch.library.batching import batching_of
from pydispatch.library.derived import BATCHABLE
from pydispatch.operators.declare import Declaration, declaration_of
from pydispatch.operators.examples import ARGUMENTS, LINES, OTHERS

Call = tuple[str, tuple[Any, ...], dict[str, Any], Any]
"""An example: its arguments as text and as values, and the result."""

SHAPES = {
    "pointwise": "the arguments broadcast, and the result has their common shape",
    "reduction": "the first argument's shape without the reduced axes (by default, all axes)",
    "view": "a view, which shares the memory of the first argument wherever NumPy's view does",
}
OUR_FAMILIES = {"linalg": np.linalg, "fft": np.fft, "random": np.random.Generator}
TRIED = (np.bool_, np.int64, np.float32, np.float64, np.complex128)


def documentation(op: OpOverload | OpOverloadPacket) -> str:
    """Return the documentation of an operator: schema, description, shapes, dtypes, gradient, an example.

    For an operator of a user, it has the schema and the docstring of its kernel.
    """
    main = op if isinstance(op, OpOverload) else _main_overload(op)
    if main is None or definition_of(main) is None:
        return f"{op.name}: an operator without a definition."
    overloads = (op,) if isinstance(op, OpOverload) else op.overloads
    schemas = [str(each.schema) for each in overloads if definition_of(each) is not None]
    declaration = declaration_of(main)
    facts = list(_facts(main, declaration))
    body = _docstring_of(main) if declaration is None else line_of(declaration)
    if declaration is not None and declaration.variant == "inplace":
        written = main.schema.arguments[0].name
        body += f" In place: writes the result to {written} and returns it."
    return "\n\n".join(filter(None, ["\n".join(schemas), body, "\n".join(facts), _example(main, declaration)]))


def _main_overload(packet: OpOverloadPacket) -> OpOverload | None:
    """Return the overload that the documentation is about: the default one, else the first."""
    return next((op for op in packet.overloads if not op.overload_name), next(iter(packet.overloads), None))


def line_of(declaration: Declaration) -> str:
    """Return a sentence that describes an operator of a pack, or "" if there is none."""
    name = declaration.operation.variants.functional
    line = LINES.get(name, "") if declaration.namespace == "np" else ""
    line = line or _first_sentence(_namesake(declaration.namespace, name))
    kernel = declaration.operation.kernel
    if not line and kernel.__doc__ is not type(kernel).__doc__:
        line = _first_sentence(kernel)
    return line


def _namesake(namespace: str, name: str) -> Any:
    """Return the function of NumPy or SciPy that an operator corresponds to."""
    family, _, rest = name.partition("_")
    if namespace == "scipy":
        return getattr(sys.modules.get(f"scipy.{family}"), rest, None)
    if namespace != "np":
        return None
    return getattr(np, name, None) or getattr(OUR_FAMILIES.get(family), rest, None)


def _first_sentence(documented: Any) -> str:
    """Return the first paragraph of a docstring that is not a signature."""
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
    for paragraph in text.split("\n\n"):
        line = " ".join(paragraph.split())
        if line and not line.partition("(")[0].isidentifier():
            return line if line.endswith(".") else f"{line}."
    return ""


def _docstring_of(op: OpOverload) -> str:
    """Return the docstring of the first of a user's kernels that has one."""
    for kernels in kernels_of(op).values():
        text = inspect.getdoc(kernels[0].kernel.written)
        if text and inspect.isroutine(kernels[0].kernel.written):
            return text
    return ""


def _facts(op: OpOverload, declaration: Declaration | None) -> Iterator[str]:
    if declaration is not None and declaration.variant == "functional":
        call = _example_call(declaration)
        category = next(iter(op.tags), "")
        if category in SHAPES:
            yield f"Shapes: {SHAPES[category]}."
        elif call is not None:
            shapes = ", ".join(str(np.shape(value)) for value in _arrays(call[1:3]))
            yield f"Shapes: {f'{shapes} -> ' if shapes else ''}{_each(np.shape, call[3])} in the example."
        dtypes = "" if call is None else _dtypes(declaration, call)
        if dtypes:
            yield f"Dtypes: {dtypes}."
    yield f"Gradient: {_gradient(op, declaration)}."
    if declaration is not None:
        _, in_place, out = declaration.operation.variants
        variants = [f"ops.{declaration.namespace}.{in_place}, in place"] if in_place else []
        variants += ["out=, into an array"] if out else []
        if variants and declaration.variant == "functional":
            yield f"Variants: {'; '.join(variants)}."


def parts_of(op: OpOverload) -> Iterator[str]:
    """Yield a line about each part of an operator: derivative, batching rule, fake, backends."""
    declaration = declaration_of(op)
    kernels = kernels_of(op)
    through = "through the operators that its kernel calls" if DispatchKey.CompositeImplicitAutograd in kernels else ""
    yield f"derivative: {_gradient(op, declaration)}"
    rule = batching_of(op)
    if rule is not None:
        batching = f"registered at {rule.site}"
    elif declaration is not None and declaration.vmap is not None:
        batching = "declared with the operator"
    else:
        batching = through or ("runs its kernel once for the batch" if BATCHABLE in op.tags else
                               "none, and vmap calls the kernel once per example")
    yield f"batching rule: {batching}"
    fake = kernels.get(DispatchKey.Meta)
    yield f"fake: {fake[0].kernel.debug if fake else through or 'none, and compile needs one'}"
    backends = [key.name for key in kernels if key.is_dense and key is not DispatchKey.Meta]
    if kernels.keys() & {DispatchKey.CompositeExplicitAutograd, DispatchKey.CompositeImplicitAutograd}:
        backends.append("all others" if backends else "all")
    yield f"backends: {', '.join(backends) or 'none'}"


def _arrays(arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> list[Any]:
    values = [*arguments[0], *arguments[1].values()]
    flat = [leaf for value in values for leaf in (value if isinstance(value, list) else [value])]
    return [value for value in flat if isinstance(value, np.ndarray)]


def _each(function: Callable[[Any], Any], result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return ", ".join(str(function(part)) for part in result)
    return str(function(result))


def _dtypes(declaration: Declaration, call: Call) -> str:
    """Return, for each dtype of the arguments that the kernel accepts, the dtype of the result."""
    _, args, kwargs, _ = call
    if not _arrays((args, {})) or "random" in declaration.tags:
        return ""
    found = []
    is_pointwise = "pointwise" in declaration.tags
    for dtype in TRIED:
        result = _quietly(declaration, [_cast(value, dtype, is_pointwise) for value in args], kwargs)
        if result is not None:
            kinds = _each(lambda part: np.asarray(part).dtype, result)
            found.append(f"{np.dtype(dtype)} -> {kinds}")
    return "; ".join(found)


def _cast(value: Any, dtype: Any, with_numbers: bool) -> Any:
    """Cast an argument of an example to another dtype. Also cast numbers if they are passed for arrays."""
    if isinstance(value, list):
        return [_cast(part, dtype, with_numbers) for part in value]
    if isinstance(value, np.ndarray) or (with_numbers and isinstance(value, float)):
        return np.asarray(value).astype(dtype)
    return value


def _gradient(op: OpOverload, declaration: Declaration | None) -> str:
    handle = derivative_of(op)
    if handle is not None and isinstance(handle.derivative, CustomDerivative):
        if not handle.derivative.missing:
            return f"by the functions registered at {handle.site}"
        what = "a call with a tracked argument" if handle.derivative.refuses_calls else "a backward pass through it"
        return f"none is registered, and {what} raises NoDerivativeError"
    if declaration is None:
        kernels = kernels_of(op)
        if any(key.is_autograd or key is DispatchKey.Autograd for key in kernels):
            return "by a kernel for an autograd key"
        if DispatchKey.CompositeImplicitAutograd in kernels:
            return "through the operators that its kernel calls"
        return "none is registered"
    if not declaration.differentiable:
        return "none, since the results are constants"
    if declaration.vjp is None and declaration.operation.differentiated_as is None:
        return "none, and a call with a tracked argument raises NoDerivativeError"
    names = ", ".join(_differentiable(op, declaration))
    return f"of {names}, of every order, in reverse and forward mode"


def _differentiable(op: OpOverload, declaration: Declaration) -> list[str]:
    """Return the names of the arguments with gradients: all arrays if one formula serves all."""
    arguments = [argument for argument in op.schema.arguments if argument.type.contains_arrays
                 and not (declaration.variant == "out" and argument.mutable)]
    vjp = declaration.vjp
    if declaration.operation.differentiated_as is not None or isinstance(vjp, Joint):
        return [argument.name for argument in arguments if str(argument.type) != "Any"]
    formulas = vjp if isinstance(vjp, tuple) else (vjp,)
    return [argument.name for argument, formula in zip(arguments, formulas, strict=False) if formula is not None]


# --- an example ------------------------------------------------------------------------------------------------------


def _example(op: OpOverload, declaration: Declaration | None) -> str:
    if declaration is None or declaration.variant != "functional":
        return ""
    call = _example_call(declaration)
    if call is None:
        return ""
    name = f"ops.{declaration.namespace}.{declaration.operation.variants.functional}"
    shown = repr(call[3]).replace("\n", "\n    ")
    return f"Example:\n\n    >>> {name}({call[0]})\n    {shown}"


def _example_call(declaration: Declaration) -> Call | None:
    """Return arguments that the kernel accepts, and its result. Run only kernels of the package."""
    if not declaration.operation.pack.module.startswith("pydispatch."):
        return None
    name, tags = declaration.operation.variants.functional, declaration.tags
    for text in ARGUMENTS.get(name, ()) or (*OTHERS.get(next(iter(tags), ""), ()), *OTHERS[""]):
        # the text comes from this package
        args, kwargs = eval(f"(lambda *args, **kwargs: (args, kwargs))({text})", {"np": np})
        result = _quietly(declaration, args, kwargs)
        if result is not None:
            return text, args, kwargs, result
    return None


def _quietly(declaration: Declaration, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return the result of the kernel for arrays, or None if it raises."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = declaration.kernels["CPU"](*args, **kwargs)
    except Exception:       # the example fits other operators
        return None
    return tuple(result) if isinstance(result, list) else result
