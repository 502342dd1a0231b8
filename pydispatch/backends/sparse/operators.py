"""Operators between a sparse array and its stored values, from which derivatives of sparse arrays are made.

A sparse array consists of a constant structure, which specifies the stored positions, and of the values there. The
gradient of a sparse array has its structure. `values` and `from_values` are therefore each other's derivative, and so
are `to_dense` and `sample`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch import _core, library
from pydispatch._core import OpOverload
from pydispatch._registry.derivatives import Joint
from pydispatch.backends.sparse.layouts import is_sparse, layout_of
from pydispatch.exceptions import UnsupportedError, VmapError
from pydispatch.func.concrete import concrete_value
from pydispatch.operators.declare import Pack
from pydispatch.ops import ops

SPARSE = Pack("sparse")
values, from_values, sample, to_dense, product = SPARSE.operators(
    "values", "from_values", "sample", "to_dense", "product")


def is_sparse_value(value: Any) -> bool:
    """Return whether a value is a sparse array, or a Tensor over one."""
    return any(key.is_sparse for key in _core.keys_of(value))


def _values(a: Any) -> np.ndarray:
    return layout_of(a, "sparse::values", "a").values_of(a).copy()


def _from_values(a: Any, values: Any) -> Any:
    layout = layout_of(a, "sparse::from_values", "a")
    n = len(layout.values_of(a))
    values = np.array(values)
    if values.shape != (n,):
        raise ValueError(f"sparse::from_values: argument values has shape {values.shape}, expected ({n},)\n"
                         "pass one value for each value that a stores")
    return layout.with_values(a, values)


def _sample(a: Any, x: Any) -> np.ndarray:
    """Return the elements of `x` at the positions that `a` stores. `x` may have axes before those of `a`."""
    coordinates = layout_of(a, "sparse::sample", "a").coordinates_of(a)
    if tuple(x.shape)[-len(a.shape):] != tuple(a.shape):
        expected = ", ".join(["...", *map(str, a.shape)])
        raise ValueError(f"sparse::sample: argument x has shape {tuple(x.shape)}, expected ({expected})\n"
                         "pass an array of the shape of a, or a stack of them")
    if is_sparse(x):
        return layout_of(x, "sparse::sample", "x").sample(x, coordinates)
    return np.asarray(x)[(..., *coordinates)]  # type: ignore[arg-type]


def _to_dense(a: Any) -> np.ndarray:
    return layout_of(a, "sparse::to_dense", "a").to_dense(a)


def _product(a: Any, b: Any) -> Any:
    layout_of(a, "sparse::product", "a"), layout_of(b, "sparse::product", "b")
    return a @ b


def _no_meta(*args: Any) -> Any:
    raise UnsupportedError("an array without data does not specify where a sparse array has values\n"
                           "trace a function of the values: pydispatch.backends.sparse.from_values(a, values)")


def batch_error(operator: str, batch: Any) -> VmapError:
    """Return the error for an operator on a batch of a sparse array, whose examples differ in structure."""
    kind = type(concrete_value(batch, batches=True)).__name__
    return VmapError(f"operator {operator}: found a {kind}, which vmap maps over, but the examples of a sparse array "
                     "do not share a structure\nmap over array.todense(), or pass the array with in_dims=None. For "
                     "matrices of one structure, map over the values of pydispatch.scipy.sparse.csr_array")


def _of_one_structure(op: OpOverload, info: Any, in_dims: Any, *args: Any) -> Any:
    batch = concrete_value(next(arg for arg, dim in zip(args, in_dims, strict=True) if dim is not None), batches=True)
    if is_sparse(batch):
        raise batch_error(str(op.name), batch)
    raise VmapError(f"operator {op.name}: a batch of sparse arrays of one structure is not a sparse array\n"
                    "map over the values, and use pydispatch.scipy.sparse.csr_array, which is a pytree")


def _batch_of_samples(op: OpOverload, info: Any, in_dims: Any, a: Any, x: Any) -> Any:
    if in_dims[0] is not None:
        return _of_one_structure(op, info, in_dims, a, x)
    return op(a, x), 0


def like(a: Any, g: Any) -> Any:
    """Return a gradient with the structure of the sparse array that it belongs to."""
    return from_values(a, sample(a, g))


def _scattered(g: Any, a: Any, x: Any) -> Any:
    """Return the gradient of `x` from that of its elements at the positions that `a` stores."""
    found = from_values(a, g)
    return like(x, found) if is_sparse_value(x) else to_dense(found)


def _product_vjp(g: Any, a: Any, b: Any) -> Any:
    return like(a, product(g, ops.np.transpose(b))), like(b, product(ops.np.transpose(a), g))


DECLARED: list[tuple[str, str, Callable[..., Any], dict[str, Any]]] = [
    ("values", "Tensor a", _values, {"vjp": lambda g, a: from_values(a, g), "jvp": lambda t, a: sample(a, t)}),
    ("from_values", "Tensor a, Tensor values", _from_values,
     {"vjp": (None, lambda g, a: sample(a, g)), "jvp": (None, lambda t, a: from_values(a, t))}),
    ("sample", "Tensor a, Tensor x", _sample,
     {"vjp": (None, _scattered), "jvp": (None, lambda t, a: sample(a, t)), "vmap": _batch_of_samples}),
    ("to_dense", "Tensor a", _to_dense, {"vjp": lambda g, a: like(a, g), "jvp": "linear"}),
    ("product", "Tensor a, Tensor b", _product, {"vjp": Joint(_product_vjp), "jvp": "multilinear"}),
]
for name, arguments, kernel, entry in DECLARED:
    SPARSE.declare(name, arguments, kernel, _no_meta, **{"vmap": _of_one_structure} | entry)
SPARSE.install()
for name, _arguments, kernel, _entry in DECLARED:
    library.impl(f"sparse::{name}", "SparseCPU", kernel)
