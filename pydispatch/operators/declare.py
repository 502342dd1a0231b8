"""The grammar of the operator library: one declaration per operator, and the variants derived from it.

A declaration gives the schema's arguments, the NumPy kernel, the meta kernel and the derivative. A kernel is called
with the arguments that differ from their defaults, positional ones by position and keyword-only ones by keyword. Where
NumPy's own function understands that call, it is the kernel. A meta kernel is called the same way, with MetaArrays,
ndarrays and Python scalars, and returns a MetaArray. If the operator writes to `out`, the meta kernel takes `out=` to
check its dtype.

`vjp` has one formula per array argument, in the order of the schema, None for an argument without a gradient; a single
formula belongs to the first argument, one in a `Joint` gives the gradients of all. The names of its parameters say what
it needs; `registry/derivatives.py` lists them. A formula returns the gradient of its argument, as a linear map that is
transposed but not conjugated. `jvp` is
"linear", "multilinear", or formulas too; a pointwise operator needs none, since the formulas of `vjp` serve. Values are
raw arrays, scalars of NumPy or Python, or Tensors. So formulas use Python's operators, the methods that ndarray and
Tensor share, and operators of the library, which `operators` finds.

`differentiated_as`, in place of `vjp` and `jvp`, is for an operator whose derivative needs something that the forward
pass computes anyway, such as the order in which it sorts. It is a composite: a function of the arguments that calls
operators. When a derivative is needed it runs in place of the operator, so the formulas of the operators that it calls
are the derivative, and their residuals are its residuals.

`vmap` is the batching rule: "pointwise", a mapping from arguments to functions, or a function. In a mapping,
`function(value, ndim, n)` returns the value of that argument for the operator on the whole batch, from the value for
one example (its default if it was not passed), the number of axes that the first argument has in an example, and the
size of the batch. The batch axis of the first argument is then its first axis, other batched arguments are aligned with
it, and the batch axis of each result is its first axis. A function is called as `rule(op, info, in_dims, *args)`, with
the variant, an object with `batch_size` and `randomness`, and for every argument of the schema its batch axis (0, or
None without one; a tuple of these for a list) and its value for the whole batch. It returns (results, out_dims);
out_dims is 0, None, or a tuple of these. Mutated arguments have a batch axis whenever another argument has one.

`put` writes a changed view back to its source: it returns the changed source. Its first parameters are the source and
the changed view; the others name arguments, or `piece`, the position of the view in a list of several. It calls only
operators, so that transforms see what it does. A view without `put` cannot be written to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from pydispatch._core import MetaArray, OpOverloadPacket, OutKernel
from pydispatch.operators.meta import broadcastable, meta_like
from pydispatch.registry.messages import unwritable_error
from pydispatch.registry.operators import find_or_raise
from pydispatch.registry.registrations import packets, register_library

NAMESPACE = "np"
IS_NUMPY_2_0 = np.__version__.startswith("2.0.")
LAYOUT = {
    "order": "results have no particular memory layout; use np.asarray(result, order=...)",
    "subok": "the kernel determines the type of a result; use np.asarray(result)",
}


Formulas = Callable | tuple[Callable | None, ...] | None
BatchingDeclaration = str | Mapping[str, Callable] | Callable | None


class SharedDeclaration(NamedTuple):
    """What the variants of an operation have in common.

    `broadcasts`: the arguments broadcast to the shape of the result, and gradients are summed to the arguments' shapes.
    """

    left_out: Mapping[str, str]
    tags: tuple[str, ...]
    vjp: Formulas
    jvp: Formulas | str
    differentiable: bool
    broadcasts: bool
    put: Callable | None = None
    vmap: BatchingDeclaration = None
    differentiated_as: Callable | None = None


class Declaration:
    """An operator as the registry takes it; `schema_text` is a text, or a function that returns one."""

    __slots__ = ("broadcasts", "differentiable", "differentiated_as", "jvp", "kernels", "left_out", "name", "put",
                 "schema_text", "tags", "variant", "vjp", "vmap")

    def __init__(self, name: str, variant: str, schema_text: str | Callable[[], str], kernels: dict[str, Callable],
                 shared: SharedDeclaration):
        self.name = name
        self.variant = variant      # "functional", "inplace" or "out"
        self.schema_text = schema_text
        self.kernels = kernels
        self.left_out = shared.left_out
        self.tags = shared.tags if variant == "functional" else (*shared.tags, variant)
        self.vjp = shared.vjp
        self.jvp = shared.jvp
        self.differentiable = shared.differentiable
        self.broadcasts = shared.broadcasts
        self.put = shared.put
        self.vmap = shared.vmap
        self.differentiated_as = shared.differentiated_as if variant == "functional" else None

    def __repr__(self) -> str:
        return f"Declaration({self.name})"


class Variants(NamedTuple):
    """The names of one operation: as a function, in place, and into `out`; None for a variant that does not exist."""

    functional: str
    in_place: str | None
    out: str | None


DECLARATIONS: dict[str, Declaration] = {}
VARIANTS: dict[str, Variants] = {}
"""From every name in DECLARATIONS to the variants of its operation."""
FAMILIES = {"linalg": "decompositions", "fft": "fourier", "random": "distributions", "searchsorted": "searching"}
"""Operators that are declared when one of them is first asked for, by the first word of their names, `np::linalg_inv`,
and the module that declares them. Those of such a name that another module declares are there from the beginning."""
OF_FAMILIES: dict[str, Declaration] = {}
"""Their declarations."""


def operators(*names: str) -> tuple[OpOverloadPacket, ...]:
    """Operators of the library, for formulas; they may be declared later."""
    family = packets.setdefault(NAMESPACE, {})
    return tuple([family.setdefault(name, OpOverloadPacket(f"{NAMESPACE}::{name}")) for name in names])


def install(family: str | None = None) -> None:
    """Register the operators of a family, by default all others, once they are declared."""
    declared = DECLARATIONS.values() if family is None else [
        declaration for name, declaration in OF_FAMILIES.items() if name.partition("_")[0] == family]
    register_library(NAMESPACE, declared)


def is_plain(g) -> bool:
    """Is this a NumPy array? Then a formula may call NumPy where operators would take more calls and a copy."""
    return type(g) is np.ndarray or isinstance(g, np.generic)


def range_like(g, n: int):
    """0, 1, ..., n - 1, on the device of `g`, and without data if `g` has none."""
    if is_plain(g):
        return np.arange(n)
    ones_like, = operators("ones_like")
    return ones_like(g, shape=(n,), dtype=np.dtype(int)).cumsum() - 1


def declare(name: str, arguments: str, kernel: Callable, meta: Callable, *, returns: str = "Tensor",
            out: Callable | None = None, in_place: bool = False, fills_out: bool = False, tags: Iterable[str] = (),
            left_out: Mapping[str, str] | None = None, vjp: Formulas = None, jvp: Formulas | str = None,
            differentiable: bool = True, broadcasts: bool = False, put: Callable | None = None,
            vmap: BatchingDeclaration = None, differentiated_as: Callable | None = None) -> None:
    """Declare an operator.

    `out`, a kernel that takes `out=`, adds the variant `name.out`, and with `in_place` also `name_`, which writes to
    the first argument. `fills_out`: NumPy repeats the result to fill a larger `out`. The results of an operator that
    is not `differentiable` are constants.
    """
    shared = SharedDeclaration(
        left_out or {}, tuple(tags), vjp, jvp, differentiable, broadcasts, put, vmap, differentiated_as)
    in_place_name, out_name = f"{name}_", f"{name}.out"
    variants = Variants(name, in_place_name if in_place else None, out_name if out else None)
    _add(variants, name, "functional", f"{name}({arguments}) -> {returns}", kernel, meta, shared)
    if out is None:
        return
    meta_out = _meta_out(out_name, meta, fills_out)
    _add(variants, out_name, "out", partial(_out_schema, name, arguments), out, meta_out, shared)
    if in_place:
        meta_out = _meta_out(in_place_name, meta, fills_out)
        _add(variants, in_place_name, "inplace", partial(_in_place_schema, name, arguments),
             OutKernel(in_place_name, out, np.ndarray, _refusal, as_out=True),
             OutKernel(in_place_name, meta_out, MetaArray, _refusal, as_out=True), shared)


def declare_writer(name: str, arguments: str, write: Callable, meta: Callable, *, tags: Iterable[str] = (),
                   left_out: Mapping[str, str] | None = None, vjp: Formulas = None, jvp: Formulas | str = None,
                   vmap: BatchingDeclaration = None) -> None:
    """Declare an operator that is in place by nature: `write` changes its first argument, `meta` checks it.

    That is the variant `name_`. The functional variant `name`, which changes a copy, is derived from it.
    """
    shared = SharedDeclaration(left_out or {}, tuple(tags), vjp, jvp, differentiable=True, broadcasts=False, vmap=vmap)
    in_place_name = f"{name}_"
    variants = Variants(name, in_place_name, None)
    _add(variants, name, "functional", f"{name}({arguments}) -> Tensor", _on_copy(write, np.array),
         _on_copy(meta, meta_like), shared)
    _add(variants, in_place_name, "inplace", partial(_in_place_schema, name, arguments),
         OutKernel(in_place_name, write, np.ndarray, _refusal),
         OutKernel(in_place_name, meta, MetaArray, _refusal), shared)


def _add(variants: Variants, name: str, variant: str, schema_text: str | Callable[[], str], cpu: Callable,
         meta: Callable, shared: SharedDeclaration) -> None:
    declaration = Declaration(name, variant, schema_text, {"CPU": cpu, "Meta": meta}, shared)
    module = FAMILIES.get(name.partition("_")[0])
    if module is not None and f"pydispatch.operators.{module}" in sys.modules:
        OF_FAMILIES[name] = declaration
    else:
        DECLARATIONS[name] = declaration
        VARIANTS[name] = variants


def _out_schema(name: str, arguments: str) -> str:
    separator = ", " if "*, " in arguments else ", *, "
    return f"{name}.out({arguments}{separator}Tensor(a!) out) -> Tensor(a!)"


def _in_place_schema(name: str, arguments: str) -> str:
    return f"{name}_({arguments.replace('Tensor', 'Tensor(a!)', 1)}) -> Tensor(a!)"


def _on_copy(write: Callable, copy: Callable) -> Callable:
    """The functional kernel: a copy of the first argument, changed by `write`."""
    def kernel(source, *args, **options):
        target = copy(source)
        write(target, *args, **options)
        return target
    return kernel


def _meta_out(name: str, meta: Callable, fills_out: bool) -> Callable:
    """The meta kernel of a variant with `out`: check that the result fits, and return `out`."""
    def kernel(*args, out, **options):
        if not isinstance(out, MetaArray):
            raise _refusal(name, out, MetaArray)
        check_fit(name, meta(*args, out=out, **options).shape, out, fills_out)
        return out
    return named(kernel, name)


def copying(name: str, function: Callable) -> Callable:
    """`function` with an `out=` like NumPy's: of exactly the same shape, with dtypes cast within the same kind."""
    def kernel(*args, out=None, **options):
        result = function(*args, **options)
        if out is None:
            return result
        check_fit(f"{name}.out", np.shape(result), out)
        np.copyto(out, result)
        return out
    return named(kernel, f"{name}.out")


def exact(name: str, function: Callable, result_shape: Callable) -> Callable:
    """`function`, which takes `out=`, with a check that `out` has the shape `result_shape(first argument, ...)`."""
    def kernel(a, *args, out=None, **options):
        if out is None:
            return function(a, *args, **options)
        check_fit(f"{name}.out", result_shape(np.shape(a), *args), out)
        return function(a, *args, out=out, **options)
    return named(kernel, f"{name}.out")


def named(kernel: Callable, name: str) -> Callable:
    """`kernel` with a name that is recognizable in tables and traces."""
    kernel.__name__ = kernel.__qualname__ = name
    return kernel


def check_fit(name: str, shape: tuple[int, ...], out, repeats: bool = False) -> None:
    """ValueError unless a result of this shape fills `out`, repeated where the operator `repeats` it."""
    fits = broadcastable(shape, out.shape) if repeats else shape == out.shape
    if not fits:
        raise ValueError(f"{name}: argument out has shape {out.shape}, the result has shape {shape}\n"
                         f"pass out=np.empty({shape}, ...)")


def _refusal(name: str, found: object, expected: type) -> Exception:
    return unwritable_error(find_or_raise(f"{NAMESPACE}::{name}"), found, expected)
