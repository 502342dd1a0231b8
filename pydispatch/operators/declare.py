"""The grammar of packs of operators: one declaration per operator, and the variants derived from it.

A declaration gives the schema's arguments, the NumPy kernel, the meta kernel and the derivative. A kernel is called
with the arguments that differ from their defaults, positional ones by position and keyword-only ones by keyword. Where
NumPy's own function understands that call, it is the kernel. A meta kernel is called the same way, with MetaArrays,
ndarrays and Python scalars, and returns a MetaArray. If the operator writes to `out`, the meta kernel takes `out=` to
check its dtype.

`vjp` has one formula per array argument, in the order of the schema, with None for an argument without a gradient. A
single formula belongs to the first argument. A formula in a `Joint` returns the gradients of all arguments. The names
of a formula's parameters specify which values it needs; `_registry/derivatives.py` lists them. A formula returns the
gradient of its argument, as a linear map that is transposed but not conjugated. `jvp` is "linear", "multilinear", or
formulas too. An operator that `broadcasts` needs no `jvp`, since the formulas of `vjp` serve for it. The values that a
formula receives are raw arrays, scalars of NumPy or Python, or Tensors. Formulas therefore use Python's operators, the
methods that ndarray and Tensor share, and operators of the library, which `operators` finds.

`differentiated_as`, given instead of `vjp` and `jvp`, is for an operator whose derivative needs something that the
forward pass computes anyway, such as the order in which it sorts. It is a composite: a function of the arguments that
calls operators. When a derivative is needed, the composite runs instead of the operator. The formulas of the operators
that it calls are the derivative, and their residuals are its residuals.

`planned_as` is the composite that a compiled plan uses where it would otherwise call the kernel. Its operators do the
same as the kernel, in the same order, so that the bits are the same. For arguments without such operators it raises
NotImplementedError with the reason. Then, and where one of its operators becomes a call, the plan calls the kernel.

`vmap` is the batching rule: "pointwise", a mapping from arguments to functions, or a function. In a mapping,
`function(value, ndim, n)` returns the value of that argument for the operator on the whole batch. It receives the value
for one example (the default if it was not passed), the number of axes that the first argument has in an example, and
the size of the batch. The batch axis of the first argument is then its first axis, other batched arguments are aligned
with it, and the batch axis of each result is its first axis. A function is called as `rule(op, info, in_dims, *args)`,
with the variant and an object with `batch_size` and `randomness`. For every argument of the schema it receives the
batch axis (0, or None without one; a tuple of these for a list) and the value for the whole batch. It returns (results,
out_dims); out_dims is 0, None, or a tuple of these. Mutated arguments have a batch axis whenever another argument has
one.

`put` writes a changed view back to its source: it returns the changed source. Its first parameters are the source and
the changed view. The others name arguments, or `piece`, the position of the view in a list of several. It calls only
operators, so that transforms see its calls. A view without `put` cannot be written to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from pydispatch._core import MetaArray, OpOverload, OpOverloadPacket, OutKernel, is_array, is_of_numpy
from pydispatch._registry.messages import unwritable_error
from pydispatch._registry.operators import find_or_raise
from pydispatch._registry.packs import load_on_demand
from pydispatch._registry.registrations import packets, register_pack
from pydispatch.exceptions import RegistrationError
from pydispatch.operators.checking import check
from pydispatch.operators.meta import broadcastable, meta_like, pointwise_meta
from pydispatch.ops import ops
from pydispatch.schema.names import validate_namespace
from pydispatch.tree import tree_map

IS_NUMPY_2_0 = np.__version__.startswith("2.0.")
HAS_NUMPY_2_5 = np.lib.NumpyVersion(np.__version__) >= "2.5.0"
LAYOUT = {
    "order": "use np.asarray(result, order=...): operators do not specify a memory layout",
    "subok": "use np.asarray(result): the kernel determines the type of a result",
}


Formulas = Callable | tuple[Callable | None, ...] | None
BatchingDeclaration = str | Mapping[str, Callable] | Callable | None


class Variants(NamedTuple):
    """The names of one operation's variants.

    Attributes
    ----------
    functional : str
        The name of the function.
    in_place : str or None
        The name of the variant that writes to its first argument, None if it does not exist.
    out : str or None
        The name of the variant that writes to `out`, None if it does not exist.
    """

    functional: str
    in_place: str | None
    out: str | None


_kernels: dict[Declaration, dict[str, Callable]] = {}


class Operation:
    """The properties that the variants of an operation share, as `declare` takes them.

    `out` is a kernel that takes `out=`. With `fills_out`, NumPy repeats the result to fill a larger `out`. `in_place`
    is the in-place kernel, where that is not `out` with the first argument as `out=`. With `broadcasts`, the arguments
    broadcast to the shape of the result, and gradients are summed to the arguments' shapes. The results of an operator
    that is not `differentiable` are constants.
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
        """Return the two kernels of a variant: for arrays and for MetaArrays."""
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
        """Return the two kernels of a variant: for arrays and for MetaArrays."""
        if variant == "functional":
            return _on_copy(self.kernel, np.array), _on_copy(self.meta, meta_like)
        return (OutKernel(name, self.kernel, np.ndarray, self.pack.refusal),
                OutKernel(name, self.meta, MetaArray, self.pack.refusal))


class Declaration:
    """An operator in the form that the registry takes: one variant of an operation, whose attributes it shares.

    `variant` is "functional", "inplace" or "out". Kernels and the text of the schema are made on first use.
    """

    __slots__ = ("name", "operation", "variant")

    def __init__(self, operation: Operation, variant: str, name: str):
        self.operation = operation
        self.variant = variant
        self.name = name

    @property
    def namespace(self) -> str:
        """The namespace of the pack."""
        return self.operation.pack.namespace

    @property
    def kernels(self) -> dict[str, Callable]:
        """The kernels, by the names of their keys. They are always the same objects."""
        kernels = _kernels.get(self)
        if kernels is None:
            kernels = dict(zip(("CPU", "Meta"), self.operation.kernels_of(self.variant, self.name), strict=True))
            kernels = _kernels.setdefault(self, kernels)    # another thread may have been first
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
        """The tags of the operation, and the name of the variant if it is not the functional one."""
        return self.operation.tags if self.variant == "functional" else (*self.operation.tags, self.variant)

    @property
    def differentiated_as(self) -> Callable | None:
        """The composite that runs instead of this operator when a derivative is needed."""
        if self.variant == "out" and self.differentiable:
            return FunctionalThenWrite(self)
        return self.operation.differentiated_as if self.variant == "functional" else None

    @property
    def planned_as(self) -> Callable | None:
        """The composite that a plan uses instead of this operator."""
        return self.operation.planned_as if self.variant == "functional" else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operation, name)

    def __repr__(self) -> str:
        return f"Declaration({self.name})"


class FunctionalThenWrite:
    """A variant with `out=` as two operators that have derivatives: the function, and a write of its result."""

    __slots__ = ("declaration",)
    kinds = ""      # dtypes for which a backend can use it instead of a kernel: none

    def __init__(self, declaration: Declaration):
        self.declaration = declaration

    def __eq__(self, other: object) -> bool:
        return type(other) is FunctionalThenWrite and other.declaration is self.declaration

    def __hash__(self) -> int:
        return hash(self.declaration)

    def __call__(self, *args: Any, out: Any, **options: Any) -> Any:
        return ops.np.setitem_(out, ..., written_result(self.declaration, args, {**options, "out": out}, out))


def written_result(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any], old: Any) -> Any:
    """Return the value that a declared operator writes over `old`, computed by its functional variant."""
    options = {name: value for name, value in kwargs.items() if name != "out"}
    variants = declaration.operation.variants
    twin = getattr(getattr(ops, declaration.namespace), variants.functional).default
    is_ufunc = isinstance(declaration.operation.kernel, np.ufunc)
    if variants.out is not None and not is_ufunc:
        _check_written(declaration, args, kwargs)
    if "out" in kwargs and {"reduction", "accumulation"} & set(declaration.tags):
        # NumPy computes in a dtype that holds both
        args = (_promoted(args[0], old.dtype), *args[1:])
    result = twin(*args, **options)
    if result.dtype == old.dtype and tuple(result.shape) == tuple(old.shape):
        return result
    if is_ufunc:
        _check_written(declaration, args, kwargs)
    if tuple(result.shape) != tuple(old.shape):
        return ops.np.setitem(old, Ellipsis, result)
    return ops.np.astype(result, old.dtype)


def _promoted(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert an array to the dtype that holds both its own dtype and `dtype`."""
    common = np.result_type(value.dtype, dtype) if is_array(value) else None
    return value if common is None or common == value.dtype else ops.np.astype(value, common)


def _check_written(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the error that NumPy raises for a result that does not fit its target."""
    args, kwargs = tree_map(
        lambda leaf: MetaArray(tuple(leaf.shape), leaf.dtype) if is_array(leaf) else leaf, (args, kwargs))
    declaration.kernels["Meta"](*args, **kwargs)


class Pack:
    """The operators of a namespace: declared one by one, then registered by `install`.

    Parameters
    ----------
    namespace : str
        The namespace of the operators, which are `pydispatch.ops.<namespace>.<name>`.
    families : mapping of str to str, optional
        Operators that are declared when one of them is first requested. It maps the first words of their names
        (`linalg` of `linalg_inv`) to the module that declares them and calls `install` with these words.

    Raises
    ------
    RegistrationError
        If another module has a pack of this namespace.
    SchemaError
        If the namespace is not valid.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import func, ops
    >>> from pydispatch.packs import Pack
    >>> pack = Pack("pack_example")
    >>> pack.pointwise("cube", lambda x: x ** 3, "Tensor x", vjp=lambda g, x: g * (3 * x * x))
    >>> pack.install()
    >>> ops.pack_example.cube(np.array([1.0, 2.0]))
    array([1., 8.])
    >>> func.grad(lambda x: ops.pack_example.cube(x).sum())(np.array([1.0, 2.0]))
    array([ 3., 12.])
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
            raise RegistrationError(f"Pack: namespace {namespace!r} already belongs to {known.module}\n"
                                    "choose another")
        PACKS[namespace] = self
        load_on_demand({f"{namespace}::{family}": module for family, module in self.families.items()})

    def operators(self, *names: str) -> tuple[OpOverloadPacket, ...]:
        """Return operators of the pack, for formulas. They may be declared later.

        Parameters
        ----------
        names : str
            The names of the operators, without the namespace.

        Returns
        -------
        tuple of OpOverloadPacket
            The operators, in the order of the names.
        """
        family = packets.get(self.namespace, {})
        return tuple([family.get(name) or self.named.setdefault(name, OpOverloadPacket(f"{self.namespace}::{name}"))
                      for name in names])

    def declare(self, name: str, arguments: str, kernel: Callable, meta: Callable, *, out: Callable | None = None,
                in_place: bool | Callable = False, **parts: Any) -> None:
        """Declare an operator.

        Parameters
        ----------
        name : str
            The name of the operator, without the namespace.
        arguments : str
            The arguments of the schema, such as "Tensor x, int axis=-1".
        kernel : callable
            Computes the result from NumPy arrays. It is called with the arguments that differ from their defaults.
        meta : callable
            Computes the metadata of the result. It is called like the kernel, with MetaArrays, and returns a MetaArray.
        out : callable, optional
            A kernel that takes `out=`. It adds the variant `name.out`.
        in_place : bool or callable, optional
            With `out`, adds the variant `name_`, which writes to the first argument. The kernel is `in_place` if that
            is callable, else `out`.
        parts
            The other parts of a declaration: `returns`, `tags`, `vjp`, `jvp`, `vmap`, ...

        Raises
        ------
        RegistrationError
            If a declaration does not have one of the parts.
        """
        variants = Variants(name, f"{name}_" if in_place else None, f"{name}.out" if out else None)
        self._add(Operation, variants, arguments, kernel, meta, out=out,
                  in_place=in_place if callable(in_place) else None, **parts)

    def pointwise(self, name: str, kernel: Callable, arguments: str, *, tags: Iterable[str] = (), **parts: Any) -> None:
        """Declare an operator whose result has one element for each element of the arguments, which broadcast.

        The meta kernel and the batching rule follow from the kernel.

        Parameters
        ----------
        name : str
            The name of the operator, without the namespace.
        kernel : callable
            A universal function like NumPy's, or any function that broadcasts, also empty arrays.
        arguments : str
            The arguments of the schema, such as "Tensor x, float width=1.0".
        tags : iterable of str, optional
            Tags of the operator, in addition to "pointwise".
        parts
            The other parts of a declaration, as in `declare`.

        Raises
        ------
        RegistrationError
            If a declaration does not have one of the parts.
        """
        self.declare(name, arguments, kernel, pointwise_meta(kernel), tags=("pointwise", *tags), broadcasts=True,
                     vmap="pointwise", **parts)

    def declare_writer(self, name: str, arguments: str, write: Callable, meta: Callable, **parts: Any) -> None:
        """Declare an operator that is in place by nature.

        This declares the variant `name_`. The functional variant `name`, which changes a copy, is derived from it.

        Parameters
        ----------
        name : str
            The name of the functional variant, without the namespace.
        arguments : str
            The arguments of the schema. The first one is the array to write to.
        write : callable
            Changes its first argument.
        meta : callable
            Checks the arguments. It is called like `write`, with MetaArrays.
        parts
            The other parts of a declaration, as in `declare`.

        Raises
        ------
        RegistrationError
            If a declaration does not have one of the parts.
        """
        tags = (*parts.pop("tags", ()), "zero_d_array")
        self._add(Writer, Variants(name, f"{name}_", None), arguments, write, meta, tags=tags, **parts)

    def _add(self, kind: type[Operation], variants: Variants, *required: Any, **parts: Any) -> None:
        try:
            operation = kind(self, variants, *required, **parts)
        except TypeError as error:
            known = Operation.__init__.__kwdefaults__ or {}
            unknown = [part for part in parts if part not in known]
            if not unknown:
                raise
            raise RegistrationError(f"operator {self.namespace}::{variants.functional}: unknown parameter "
                                    f"`{unknown[0]}`, expected some of {', '.join(known)}\nleave it out") from error
        is_of_family = self.families.get(self.family_of(variants.functional)) in sys.modules
        for variant, name in zip(("functional", "inplace", "out"), variants, strict=True):
            if name is not None:
                declaration = Declaration(operation, variant, name)
                (self.of_families if is_of_family else self.declarations)[name] = declaration

    def install(self, family: str | None = None) -> None:
        """Register the declared operators of a family, by default those without a family.

        Parameters
        ----------
        family : str, optional
            The words that the names of the family's operators begin with.

        Raises
        ------
        RegistrationError
            If a declaration cannot work.
        SchemaError
            If the arguments of a declaration are not a valid schema.
        """
        declared = self.declarations if family is None else {
            name: each for name, each in self.of_families.items() if self.family_of(name) == family}
        if self is not LIBRARY:     # tests check the declarations of the library
            for declaration in declared.values():
                check(declaration)
        register_pack(self.namespace, declared, self.named)

    def family_of(self, name: str) -> str:
        """Return the family whose name an operator's name begins with, the longest one, or an empty string."""
        return max((family for family in self.families if f"{name}_".startswith(f"{family}_")), key=len, default="")

    def declaration(self, name: str) -> Declaration | None:
        """Return the declaration of the operator of this name, its overload included, or None if there is none."""
        return self.declarations.get(name) or self.of_families.get(name)

    def refusal(self, name: str, found: object, expected: type) -> Exception:
        """Return the error for an argument that the operator of that name cannot write to."""
        return unwritable_error(find_or_raise(f"{self.namespace}::{name}"), found, expected)


PACKS: dict[str, Pack] = {}
"""The packs, by namespace."""


def declaration_of(op: OpOverload) -> Declaration | None:
    """Return the declaration of an operator, or None if no pack has declared it."""
    pack = PACKS.get(op.namespace or "")
    if pack is None:
        return None
    full = op.name
    return pack.declaration(f"{full.name}.{full.overload}" if full.overload else full.name)


LIBRARY = Pack("np", {
    "linalg": "pydispatch.operators.decompositions", "fft": "pydispatch.operators.fourier",
    "random": "pydispatch.operators.distributions", "random_default_rng": "pydispatch.numpy.random",
})
"""The operators that correspond to functions of NumPy. Those with a family's name that another module declares exist
from the beginning."""
DECLARATIONS, OF_FAMILIES = LIBRARY.declarations, LIBRARY.of_families
declare, declare_writer = LIBRARY.declare, LIBRARY.declare_writer
operators, install = LIBRARY.operators, LIBRARY.install


def range_like(g, n: int):
    """Return 0, 1, ..., n - 1, on the device of `g`, and without data if `g` has none."""
    if is_of_numpy(g):
        return np.arange(n)
    cumsum, ones_like, subtract = operators("cumsum", "ones_like", "subtract")
    return subtract(cumsum(ones_like(g, shape=(n,), dtype=np.dtype(int)), 0), 1)


def _on_copy(write: Callable, copy: Callable) -> Callable:
    """Return a functional kernel that changes a copy of the first argument by `write`."""
    def kernel(source, *args, **options):
        target = copy(source)
        write(target, *args, **options)
        return target
    return kernel


def _meta_out(name: str, meta: Callable, fills_out: bool, refusal: Callable) -> Callable:
    """Return the meta kernel of a variant with `out`: it checks that the result fits, and returns `out`."""
    def kernel(*args, out, **options):
        if not isinstance(out, MetaArray):
            raise refusal(name, out, MetaArray)
        check_fit(name, meta(*args, out=out, **options).shape, out, fills_out)
        return out
    return named(kernel, name)


def copying(name: str, function: Callable) -> Callable:
    """Add an `out=` like NumPy's to `function`: of exactly the same shape, with dtypes cast within the same kind."""
    def kernel(*args, out=None, **options):
        result = function(*args, **options)
        if out is None:
            return result
        check_fit(f"{name}.out", np.shape(result), out)
        np.copyto(out, result)
        return out
    return named(kernel, f"{name}.out")


def exact(name: str, function: Callable, result_shape: Callable) -> Callable:
    """Add a check to `function`, which takes `out=`, that `out` has the shape `result_shape(first argument, ...)`."""
    def kernel(a, *args, out=None, **options):
        if out is None:
            return function(a, *args, **options)
        check_fit(f"{name}.out", result_shape(np.shape(a), *args), out)
        return function(a, *args, out=out, **options)
    return named(kernel, f"{name}.out")


def named(kernel: Callable, name: str) -> Callable:
    """Give `kernel` a name that is recognizable in tables and traces."""
    kernel.__name__ = kernel.__qualname__ = name
    return kernel


def check_fit(name: str, shape: tuple[int, ...], out, repeats: bool = False) -> None:
    """Raise ValueError unless a result of this shape fills `out`, repeated where the operator `repeats` it."""
    fits = broadcastable(shape, out.shape) if repeats else shape == out.shape
    if not fits:
        raise ValueError(f"{name}: argument out has shape {out.shape}, the result has shape {shape}\n"
                         f"pass out=np.empty({shape}, ...)")
