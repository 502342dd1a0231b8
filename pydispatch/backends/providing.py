"""Kernels that a backend provides for operators without a registered kernel.

They are sought in this order: a function of the backend's namespace, a method of its arrays (such as indexing), a
decomposition into operators that it has, a kernel that it was registered with. If there is none, the reason is kept.
"""

# tests: tests/backends/test_coverage.py
from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import DispatchKeySet, OpOverload, Tensor
from pydispatch._registry.backends import Backend, Missing, kernel_provided
from pydispatch._registry.operators import find, schema_of
from pydispatch._registry.registrations import kernels_of
from pydispatch._registry.tables import CEA, CEANF, CIA, Label, ProvidedKernel
from pydispatch.backends.fitting import fitted
from pydispatch.exceptions import NoKernelError, UnsupportedError
from pydispatch.keys import parse_key
from pydispatch.operators.declare import LIBRARY, Declaration, declaration_of
from pydispatch.ops import ops
from pydispatch.schema.fitting import EXACT
from pydispatch.tracing.decompositions import decomposition_of
from pydispatch.tree import tree_leaves, tree_map


def provided(
    op: OpOverload, backend: Backend, asked: frozenset[OpOverload] = frozenset()
) -> ProvidedKernel | Missing:
    """Return the kernel that a backend provides for an operator, or why it has none.

    `asked` are the operators that are being decomposed, which its decomposition must not call.
    """
    declaration = declaration_of(op)
    given = backend.kernels.get(str(op.name))
    found: ProvidedKernel | Missing = Missing("it is not an operator of NumPy")
    if declaration is not None and declaration.namespace == "np":
        found = _of_declaration(op, declaration, backend)
        if isinstance(found, Missing) and declaration.variant == "functional":
            found = _decomposed(op, declaration, backend, asked | {op}, found)
    if isinstance(found, Missing) and given is not None:
        return ProvidedKernel(given, given, Label.PACK)
    return found


def _of_declaration(op: OpOverload, declaration: Declaration, backend: Backend) -> ProvidedKernel | Missing:
    if backend.functions is None:
        return Missing("it has no namespace")
    name = declaration.operation.variants.functional
    if declaration.variant != "functional":
        return _writing(op, declaration, backend)
    if declaration.name.startswith("random_"):
        return Missing("the generators of pydispatch.numpy.random draw random numbers, and take only NumPy's "
                       "parameters: the next number depends on their values. Draw standard ones, and scale them: "
                       "loc + scale * z")
    found = _of_namespace(op, name, backend)
    if isinstance(found, ProvidedKernel):
        return found
    function = _of_arrays(name, backend.array_type)
    return found if function is None else ProvidedKernel(function, function, Label.NAMESPACE)


# --- functions of the namespace --------------------------------------------------------------------------------------


def _of_namespace(op: OpOverload, name: str, backend: Backend) -> ProvidedKernel | Missing:
    names = names_of(name)
    for each in names:
        function: Any = backend.functions
        for part in each.split("."):
            function = getattr(function, part, None)
        if callable(function):
            try:
                kernel, fit = fitted(name, schema_of(op), function)
            except ValueError as error:
                return Missing(f"{_namespace_name(backend)}.{each} does not fit: {error}")
            return ProvidedKernel(kernel, function, Label.NAMESPACE, fit)
    return Missing(f"{_namespace_name(backend)} has no {' or '.join(names)}" if names else "NumPy has no such function")


def _namespace_name(backend: Backend) -> str:
    return str(getattr(backend.functions, "__name__", None) or backend.namespace)


def names_of(name: str) -> tuple[str, ...]:
    """Return the public names of an operator's function in NumPy and the Array API, the operator's own first."""
    family, _, rest = name.partition("_")
    if family in LIBRARY.families and rest:
        return tuple([f"{family}.{each}" for each in _spellings(f"numpy.{family}").get(rest, (rest,))])
    return _spellings("numpy").get(name, (name,))


@cache
def _spellings(module: str) -> dict[str, tuple[str, ...]]:
    """Return all names of each function in a module of NumPy, which has those of the Array API as aliases."""
    names: dict[int, list[str]] = {}
    functions = {name: value for name, value in vars(_module(module)).items()
                 if callable(value) and not name.startswith("_")}
    for name, function in functions.items():
        names.setdefault(id(function), []).append(name)
    return {name: (name, *[other for other in names[id(function)] if other != name])
            for name, function in functions.items()}


def _module(name: str) -> types.ModuleType:
    return {"numpy": np, "numpy.linalg": np.linalg, "numpy.fft": np.fft, "numpy.random": np.random}[name]


# --- methods of arrays -----------------------------------------------------------------------------------------------


def _itself(a: Any) -> Any:
    return a


def _copy(a: Any) -> Any:
    return a.copy()


def _real(val: Any) -> Any:
    return val if is_real(val) else val.real


def _imag(val: Any) -> Any:
    return ops.np.zeros_like(val) if is_real(val) else val.imag


def _conjugate(x: Any) -> Any:
    return x if is_real(x) else x.conj()


def is_real(x: Any) -> bool:
    """Return whether an array has no complex numbers, as far as a dtype like NumPy's shows."""
    return getattr(x.dtype, "kind", "c") != "c"


def _item(a: Any) -> Any:
    return a.item()


def _getitem(x: Any, key: Any) -> Any:
    return x[key]


def _setitem(x: Any, key: Any, value: Any) -> Any:
    changed = ops.np.copy(x)
    changed[key] = value
    return changed


def _index_put(x: Any, key: Any, values: Any, *, accumulate: bool = False) -> Any:
    return _accumulated(x, key, values) if accumulate else _setitem(x, key, values)


def _accumulated(x: Any, key: Any, values: Any) -> Any:
    op = ops.np.index_put.default
    function = decomposition_of(op)
    assert function is not None
    return decomposed(op, function, (x, key, values), {"accumulate": True})


def _write_item(x: Any, key: Any, value: Any, *, accumulate: bool = False) -> Any:
    x[key] = _accumulated(x, key, value)[key] if accumulate else value
    return x


def _astype(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    return x if not copy and x.dtype == dtype else x.astype(dtype)


OF_ARRAYS: dict[str, tuple[str, Callable[..., Any]]] = {
    "getitem": ("__getitem__", _getitem),
    "index": ("__getitem__", _getitem),
    "setitem": ("__setitem__", _setitem),
    "index_put": ("__setitem__", _index_put),
    "astype": ("astype", _astype),
    "copy": ("copy", _copy),
    "real": ("dtype", _real),
    "imag": ("dtype", _imag),
    "conjugate": ("dtype", _conjugate),
    "detach": ("shape", _itself),
    "item": ("item", _item),
}
"""For each operator, the attribute that arrays need and the kernel."""


def _of_arrays(name: str, array_type: type) -> Callable[..., Any] | None:
    if name == "copy" and not is_writable(array_type):
        return _itself
    attribute, kernel = OF_ARRAYS.get(name, ("", _itself))
    return kernel if attribute and hasattr(array_type, attribute) else None


def is_writable(array_type: type) -> bool:
    """Return whether elements of arrays of this type can be assigned."""
    return hasattr(array_type, "__setitem__")


# --- writing ---------------------------------------------------------------------------------------------------------


def _writing(op: OpOverload, declaration: Declaration, backend: Backend) -> ProvidedKernel | Missing:
    """Return the kernel of a variant that writes. It copies the result of the functional variant into the argument."""
    if not is_writable(backend.array_type):
        return Missing(f"arrays of {backend.name} are read-only. Call {_functional(declaration)}")
    functional = find(f"np::{declaration.operation.variants.functional}")
    assert functional is not None
    if declaration.name in ("setitem_", "index_put_"):
        return ProvidedKernel(_write_item, _write_item, Label.NAMESPACE)
    found = kernel_provided(functional, backend)
    if isinstance(found, Missing) and parse_key(backend.name) not in kernels_of(functional):
        return found
    kernel = partial(_into_out if declaration.variant == "out" else _into_first, functional)
    return ProvidedKernel(kernel, functional, Label.NAMESPACE, EXACT)


def _functional(declaration: Declaration) -> str:
    return f"ops.np.{declaration.operation.variants.functional}, which returns a new one"


def _into_first(functional: OpOverload, x: Any, *args: Any, **options: Any) -> Any:
    return _copied(functional(x, *args, **options), x)


def _into_out(functional: OpOverload, *args: Any, out: Any, **options: Any) -> Any:
    return _copied(functional(*args, **options), out)


def _copied(result: Any, target: Any) -> Any:
    if tuple(result.shape) != tuple(target.shape):
        raise ValueError(f"the array to write into has shape {tuple(target.shape)}, the result has shape "
                         f"{tuple(result.shape)}\npass an array of that shape")
    try:
        target[...] = result
    except (TypeError, NotImplementedError) as error:
        raise UnsupportedError(f"an array of type {type(target).__name__} cannot be written to: {error}\n"
                               "call the functional operator, which returns a new one") from error
    return target


# --- decompositions --------------------------------------------------------------------------------------------------


class Decomposed:
    """A kernel that calls a decomposition with Tensors, whose methods and operators are those of pydispatch.

    If the decomposition declines, it calls the kernel that the backend was registered with.
    """

    __slots__ = ("function", "given", "operator")

    def __init__(self, operator: OpOverload, function: Callable[..., Any], given: Callable[..., Any] | None) -> None:
        self.operator = operator
        self.function = function
        self.given = given

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the decomposition and return arrays of the backend."""
        return decomposed(self.operator, self.function, args, options, self.given)


def decomposed(
    op: OpOverload, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any],
    given: Callable[..., Any] | None = None,
) -> Any:
    """Return a decomposition's result as arrays of the backend. If it declines, call the given kernel or raise."""
    result = function(*tree_map(_as_tensor, args), **tree_map(_as_tensor, options))
    if result is not NotImplemented:
        return tree_map(_as_array, result)
    if given is not None:
        return given(*args, **options)
    keys = [_core.keys_of(leaf) for leaf in tree_leaves((args, options)) if _core.is_array(leaf)]
    key = DispatchKeySet(*keys).highest.name
    raise NoKernelError(
        f"operator {op.name}: no kernel for the key {key}, and its decomposition does not support these arguments: it "
        f"requires known index arrays, and certain dtypes\n"
        f'register a kernel: library.impl("{op.name}", "{key}", kernel)')


def _as_tensor(leaf: Any) -> Any:
    return Tensor(leaf) if _core.is_array(leaf) and not isinstance(leaf, (np.ndarray, np.generic)) else leaf


def _as_array(leaf: Any) -> Any:
    return _core.array_of(leaf) if isinstance(leaf, Tensor) else leaf


CALLED = {
    "zeros_like": "full_like", "ones_like": "full_like", "ravel": "reshape", "swapaxes": "transpose",
    "moveaxis": "transpose", "expand_dims": "reshape", "squeeze": "reshape", "flip": "getitem", "split": "getitem",
    "diagonal": "index transpose", "sliding_window_view": "moveaxis take", "read_only": "",
    "stack": "concatenate expand_dims", "setitem": "astype broadcast_to copy full_like index reshape where",
    "index_put": "add astype broadcast_to copy full_like index reshape where",
    "take_along_axis": "add equal expand_dims full_like less sum where",
    "scatter_add": "add broadcast_to equal expand_dims full_like less sum where", "positive": "copy",
    "fabs": "absolute", "square": "multiply", "reciprocal": "divide", "exp2": "exp multiply", "log2": "log multiply",
    "log10": "log multiply", "hypot": "add multiply sqrt", "tan": "cos divide sin", "deg2rad": "multiply",
    "radians": "multiply", "rad2deg": "multiply", "degrees": "multiply", "cosh": "add divide exp negative",
    "clip": "maximum minimum", "not_equal": "equal logical_not", "greater": "less", "greater_equal": "less_equal",
    "mean": "divide sum", "var": "divide mean multiply subtract sum", "std": "sqrt var",
    "slice_sums": "concatenate equal full_like getitem less logical_and logical_or moveaxis sum take where zeros_like",
    "slices_filled": "concatenate equal full_like getitem less logical_and logical_or moveaxis sum swapaxes take where "
                     "zeros_like",
    "argpartition": "argsort", "sort": "argsort take_along_axis", "linalg_eigvalsh": "linalg_eigh",
    "linalg_eigvals": "linalg_eig", "linalg_solve_with": "linalg_solve", "linalg_svdvals": "linalg_svd",
}
"""The operators that each operator's decomposition calls for floating-point numbers.

The decomposition can also be the composite that an operator is differentiated as. A test compares this table with the
calls for samples. A backend has an operator if it has those listed here. Decompositions that users registered are not
listed. They are assumed to work, and a call of a missing operator raises.
"""


def _decomposed(
    op: OpOverload, declaration: Declaration, backend: Backend, asked: frozenset[OpOverload], missing: Missing
) -> ProvidedKernel | Missing:
    for function in (decomposition_of(op), declaration.differentiated_as):
        if function is None or "f" not in getattr(function, "kinds", "f"):
            continue
        called = CALLED.get(declaration.name, "").split()
        lacking = [f"np::{name}" for name in called if not _has(getattr(ops.np, name).default, backend, asked)]
        if not lacking:
            fit = ProvidedKernel(function, function, Label.DECOMPOSITION).fit(schema_of(op))
            given = backend.kernels.get(str(op.name))
            return ProvidedKernel(Decomposed(op, function, given), function, Label.DECOMPOSITION, fit)
        missing = Missing(f"{missing.reason}, and its decomposition calls {', '.join(lacking)}, which is also missing")
    return missing


def _has(op: OpOverload, backend: Backend, asked: frozenset[OpOverload]) -> bool:
    """Return whether a backend runs this operator without those that are being decomposed."""
    registered = kernels_of(op)
    if any(key in registered for key in (parse_key(backend.name), CEA, CEANF, CIA)):
        return True
    return op not in asked and isinstance(provided(op, backend, asked), ProvidedKernel)
