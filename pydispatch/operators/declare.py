"""The grammar of packs of operators: one declaration per operator, and the variants derived from it.

A declaration gives the schema's arguments, the NumPy kernel, the meta kernel and the derivative. A kernel is called
with the arguments that differ from their defaults, positional ones by position and keyword-only ones by keyword. Where
NumPy's own function understands that call, it is the kernel. A meta kernel is called the same way, with MetaArrays,
ndarrays and Python scalars, and returns a MetaArray. If the operator writes to `out`, the meta kernel takes `out=` to
check its dtype.

`vjp` has one formula per array argument, in the order of the schema, None for an argument without a gradient; a single
formula belongs to the first argument, one in a `Joint` gives the gradients of all. The names of its parameters say what
it needs; `registry/derivatives.py` lists them. A formula returns the gradient of its argument, as a linear map that is
transposed but not conjugated. `jvp` is "linear", "multilinear", or formulas too; one that `broadcasts` needs none,
since the formulas of `vjp` serve. Values are raw arrays, scalars of NumPy or Python, or Tensors. So formulas use
Python's operators, the methods that ndarray and Tensor share, and operators of the library, which `operators` finds.

`differentiated_as`, in place of `vjp` and `jvp`, is for an operator whose derivative needs something that the forward
pass computes anyway, such as the order in which it sorts. It is a composite: a function of the arguments that calls
operators. When a derivative is needed it runs in place of the operator, so the formulas of the operators that it calls
are the derivative, and their residuals are its residuals.

`planned_as` is what a compiled plan has in the place of the operator, where it would call the kernel otherwise: a
composite whose operators do what the kernel does, in the same order, so that the bits are the same. For arguments
without such operators it raises NotImplementedError, which says why; then, and where one of them is a call, the plan
calls the kernel.

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
from typing import Any, NamedTuple

import numpy as np

from pydispatch._core import MetaArray, OpOverload, OpOverloadPacket, OutKernel, is_of_numpy
from pydispatch.exceptions import RegistrationError
from pydispatch.loading import deferred
from pydispatch.operators.meta import broadcastable, meta_like, pointwise_meta
from pydispatch.registry.operators import find_or_raise, load_on_demand
from pydispatch.registry.registrations import packets, register_pack
from pydispatch.schema.names import validate_namespace

IS_NUMPY_2_0 = np.__version__.startswith("2.0.")
HAS_NUMPY_2_5 = np.lib.NumpyVersion(np.__version__) >= "2.5.0"
LAYOUT = {
    "order": "results have no particular memory layout; use np.asarray(result, order=...)",
    "subok": "the kernel determines the type of a result; use np.asarray(result)",
}


check = deferred("operators.checking", "check")
unwritable_error = deferred("registry.messages", "unwritable_error")

Formulas = Callable | tuple[Callable | None, ...] | None
BatchingDeclaration = str | Mapping[str, Callable] | Callable | None


class Variants(NamedTuple):
    """The names of one operation: as a function, in place, and into `out`; None for a variant that does not exist."""

    functional: str
    in_place: str | None
    out: str | None


_kernels: dict[Declaration, dict[str, Callable]] = {}


class Operation:
    """What the variants of an operation have in common, as `declare` takes it.

    `out` is a kernel that takes `out=`; `fills_out`: NumPy repeats the result to fill a larger `out`. `in_place` is the
    kernel in place, where that is not `out` with the first argument as `out=`. `broadcasts`: the arguments broadcast to
    the shape of the result, and gradients are summed to the arguments' shapes. The results of an operator that is not
    `differentiable` are constants.
    """

    __slots__ = ("arguments", "broadcasts", "differentiable", "differentiated_as", "fills_out", "in_place", "jvp",
                 "kernel", "left_out", "meta", "out", "pack", "planned_as", "put", "returns", "tags", "variants", "vjp",
                 "vmap")

    def __init__(self, pack: Pack, variants: Variants, arguments: str, kernel: Callable, meta: Callable, *,
                 returns: str = "Tensor", out: Callable | None = None, fills_out: bool = False,
                 in_place: Callable | None = None, tags: Iterable[str] = (),
                 left_out: Mapping[str, str] | None = None, vjp: Formulas = None, jvp: Formulas | str = None,
                 differentiable: bool = True, broadcasts: bool = False, put: Callable | None = None,
                 vmap: BatchingDeclaration = None, differentiated_as: Callable | None = None,
                 planned_as: Callable | None = None):
        self.pack = pack
        self.variants = variants
        self.arguments = arguments
        self.returns = returns
        self.kernel = kernel
        self.meta = meta
        self.out = out
        self.fills_out = fills_out
        self.in_place = in_place or out
        self.tags = tuple(tags)
        self.left_out = left_out or {}
        self.vjp = vjp
        self.jvp = jvp
        self.differentiable = differentiable
        self.broadcasts = broadcasts
        self.put = put
        self.vmap = vmap
        self.differentiated_as = differentiated_as
        self.planned_as = planned_as

    def kernels_of(self, variant: str, name: str) -> tuple[Callable, Callable]:
        """The kernels of a variant: of arrays, and of MetaArrays."""
        if variant == "functional":
            return self.kernel, self.meta
        assert self.out is not None
        assert self.in_place is not None
        refusal = self.pack.refusal
        meta = _meta_out(name, self.meta, self.fills_out and variant == "out", refusal)
        if variant == "out":
            return self.out, meta
        return (OutKernel(name, self.in_place, np.ndarray, refusal, as_out=True),
                OutKernel(name, meta, MetaArray, refusal, as_out=True))


class Writer(Operation):
    """An operation that is in place by nature: `kernel` changes its first argument, `meta` checks it."""

    __slots__ = ()

    def kernels_of(self, variant: str, name: str) -> tuple[Callable, Callable]:
        """The kernels of a variant: of arrays, and of MetaArrays."""
        if variant == "functional":
            return _on_copy(self.kernel, np.array), _on_copy(self.meta, meta_like)
        return (OutKernel(name, self.kernel, np.ndarray, self.pack.refusal),
                OutKernel(name, self.meta, MetaArray, self.pack.refusal))


class Declaration:
    """An operator as the registry takes it: one of the variants of an operation, whose attributes it has too.

    `variant` is "functional", "inplace" or "out". Kernels and the text of the schema are made when they are asked for.
    """

    __slots__ = ("name", "operation", "variant")

    def __init__(self, operation: Operation, variant: str, name: str):
        self.operation = operation
        self.variant = variant
        self.name = name

    @property
    def namespace(self) -> str:
        """That of the pack."""
        return self.operation.pack.namespace

    @property
    def kernels(self) -> dict[str, Callable]:
        """By the names of their keys; always the same objects."""
        kernels = _kernels.get(self)
        if kernels is None:
            kernels = dict(zip(("CPU", "Meta"), self.operation.kernels_of(self.variant, self.name), strict=True))
            kernels = _kernels.setdefault(self, kernels)    # another thread may have been faster
        return kernels

    @property
    def schema_text(self) -> str:
        """The schema, without a namespace."""
        return self.name + self.signature_text

    @property
    def signature_text(self) -> str:
        """The schema, without its name."""
        arguments, returns = self.operation.arguments, self.operation.returns
        if self.variant == "inplace":
            arguments, returns = arguments.replace("Tensor", "Tensor(a!)", 1), "Tensor(a!)"
        elif self.variant == "out":
            separator = ", " if "*, " in arguments else ", *, "
            arguments, returns = f"{arguments}{separator}Tensor(a!) out", "Tensor(a!)"
        return f"({arguments}) -> {returns}"

    @property
    def tags(self) -> tuple[str, ...]:
        """Those of the operation, and the variant where it is not the function."""
        return self.operation.tags if self.variant == "functional" else (*self.operation.tags, self.variant)

    @property
    def differentiated_as(self) -> Callable | None:
        """The composite that runs in its place when a derivative is needed."""
        return self.operation.differentiated_as if self.variant == "functional" else None

    @property
    def planned_as(self) -> Callable | None:
        """The composite that a plan has in its place."""
        return self.operation.planned_as if self.variant == "functional" else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operation, name)

    def __repr__(self) -> str:
        return f"Declaration({self.name})"


class Pack:
    """The operators of a namespace: declared one by one, then registered by `install`.

    Raises RegistrationError where another module has a pack of this namespace, SchemaError for what cannot be one.

    `families` are operators that are declared when one of them is first asked for: from the first word of their names
    (`linalg` of `linalg_inv`) to the module that declares them and calls `install` with that word.
    """

    __slots__ = ("declarations", "families", "module", "named", "namespace", "of_families")

    def __init__(self, namespace: str, families: Mapping[str, str] | None = None):
        self.namespace = validate_namespace(namespace)
        self.families = dict(families or {})
        scope = sys._getframe(1).f_globals
        self.module = scope.get("__package__") or scope.get("__name__", "__main__")
        self.declarations: dict[str, Declaration] = {}
        self.of_families: dict[str, Declaration] = {}
        self.named: dict[str, OpOverloadPacket] = {}
        known = PACKS.get(namespace)
        if known is not None and known.module != self.module:
            raise RegistrationError(f"Pack: namespace {namespace!r} belongs to {known.module} already\n"
                                    "choose another one")
        PACKS[namespace] = self
        load_on_demand({f"{namespace}::{family}": module for family, module in self.families.items()})

    def operators(self, *names: str) -> tuple[OpOverloadPacket, ...]:
        """Operators of the pack, for formulas; they may be declared later."""
        family = packets.get(self.namespace, {})
        return tuple([family.get(name) or self.named.setdefault(name, OpOverloadPacket(f"{self.namespace}::{name}"))
                      for name in names])

    def declare(self, name: str, arguments: str, kernel: Callable, meta: Callable, *, out: Callable | None = None,
                in_place: bool | Callable = False, **parts: Any) -> None:
        """Declare an operator. `parts` are what else a declaration has: `returns`, `tags`, `vjp`, `jvp`, `vmap`, ...

        `out`, a kernel that takes `out=`, adds the variant `name.out`, and with `in_place` also `name_`, which writes
        to the first argument, by the kernel that `in_place` is or by `out`.
        """
        variants = Variants(name, f"{name}_" if in_place else None, f"{name}.out" if out else None)
        self._add(Operation, variants, arguments, kernel, meta, out=out,
                  in_place=in_place if callable(in_place) else None, **parts)

    def pointwise(self, name: str, kernel: Callable, arguments: str, *, tags: Iterable[str] = (), **parts: Any) -> None:
        """Declare an operator whose result has, for each element of the arguments, which broadcast, one element.

        `kernel` is a universal function of NumPy's kind, or any function that broadcasts, also empty arrays. Its meta
        kernel and its batching rule follow from that.
        """
        self.declare(name, arguments, kernel, pointwise_meta(kernel), tags=("pointwise", *tags), broadcasts=True,
                     vmap="pointwise", **parts)

    def declare_writer(self, name: str, arguments: str, write: Callable, meta: Callable, **parts: Any) -> None:
        """Declare an operator that is in place by nature: `write` changes its first argument, `meta` checks it.

        That is the variant `name_`. The functional variant `name`, which changes a copy, is derived from it.
        """
        self._add(Writer, Variants(name, f"{name}_", None), arguments, write, meta, **parts)

    def _add(self, kind: type[Operation], variants: Variants, *required: Any, **parts: Any) -> None:
        try:
            operation = kind(self, variants, *required, **parts)
        except TypeError as error:
            known = Operation.__init__.__kwdefaults__ or {}
            unknown = [part for part in parts if part not in known]
            if not unknown:
                raise
            raise RegistrationError(f"operator {self.namespace}::{variants.functional}: a declaration has no "
                                    f"`{unknown[0]}`, expected some of {', '.join(known)}\nleave it out") from error
        module = self.families.get(variants.functional.partition("_")[0])
        is_of_family = module is not None and module in sys.modules
        for variant, name in zip(("functional", "inplace", "out"), variants, strict=True):
            if name is not None:
                declaration = Declaration(operation, variant, name)
                (self.of_families if is_of_family else self.declarations)[name] = declaration

    def install(self, family: str | None = None) -> None:
        """Register the operators of a family, by default all others, once they are declared.

        Raises RegistrationError for a declaration that cannot work, SchemaError where its arguments make no schema.
        """
        declared = self.declarations if family is None else {
            name: each for name, each in self.of_families.items() if name.partition("_")[0] == family}
        if self is not LIBRARY:     # whose declarations the tests check
            for declaration in declared.values():
                check(declaration)
        register_pack(self.namespace, declared, self.named)

    def declaration(self, name: str) -> Declaration | None:
        """That of the operator of this name, its overload included; None if there is none."""
        return self.declarations.get(name) or self.of_families.get(name)

    def refusal(self, name: str, found: object, expected: type) -> Exception:
        """The error for an argument that the operator of that name cannot write to."""
        return unwritable_error(find_or_raise(f"{self.namespace}::{name}"), found, expected)


PACKS: dict[str, Pack] = {}
"""By namespace."""


def declaration_of(op: OpOverload) -> Declaration | None:
    """The declaration of an operator; None if no pack has declared it."""
    pack = PACKS.get(op.namespace or "")
    if pack is None:
        return None
    full = op.name
    return pack.declaration(f"{full.name}.{full.overload}" if full.overload else full.name)


LIBRARY = Pack("np", {
    "linalg": "pydispatch.operators.decompositions", "fft": "pydispatch.operators.fourier",
    "random": "pydispatch.operators.distributions",
})
"""The operators that stand for functions of NumPy. Those of a family's name that another module declares are there from
the beginning."""
DECLARATIONS, OF_FAMILIES = LIBRARY.declarations, LIBRARY.of_families
declare, declare_writer = LIBRARY.declare, LIBRARY.declare_writer
operators, install = LIBRARY.operators, LIBRARY.install


def range_like(g, n: int):
    """0, 1, ..., n - 1, on the device of `g`, and without data if `g` has none."""
    if is_of_numpy(g):
        return np.arange(n)
    cumsum, ones_like, subtract = operators("cumsum", "ones_like", "subtract")
    return subtract(cumsum(ones_like(g, shape=(n,), dtype=np.dtype(int)), 0), 1)


def _on_copy(write: Callable, copy: Callable) -> Callable:
    """The functional kernel: a copy of the first argument, changed by `write`."""
    def kernel(source, *args, **options):
        target = copy(source)
        write(target, *args, **options)
        return target
    return kernel


def _meta_out(name: str, meta: Callable, fills_out: bool, refusal: Callable) -> Callable:
    """The meta kernel of a variant with `out`: check that the result fits, and return `out`."""
    def kernel(*args, out, **options):
        if not isinstance(out, MetaArray):
            raise refusal(name, out, MetaArray)
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
