"""Products of matrices."""

from __future__ import annotations

import numpy as np

from pydispatch.backends.meta import MetaArray, broadcast, dtype_of, shape_of
from pydispatch.operators.declare import declare
from pydispatch.operators.pointwise import UFUNC_LEFT_OUT, UFUNC_OPTIONS

MATMUL_LEFT_OUT = {
    "axes": "use ops.np.moveaxis on the arguments and the result",
    "axis": "NumPy's matmul has the name but refuses every value",
    "keepdims": "NumPy's matmul has the name but refuses every value",
    **UFUNC_LEFT_OUT,
}
del MATMUL_LEFT_OUT["where"]


def matmul_meta(x1, x2, *, out=None, **options):
    """The rule: the dtype by np.matmul on matrices without elements; the shape from rows, columns and the loop."""
    probes = [np.empty((0, 0), dtype_of(x)) for x in (x1, x2)]
    if out is not None:
        options["out"] = np.empty((0, 0), out.dtype)
    dtype = np.matmul(*probes, **options).dtype
    loop, core = matmul_shape(shape_of(x1), shape_of(x2))
    if out is not None and core != out.shape[len(out.shape) - len(core):]:
        raise ValueError(f"matmul.out: argument out has shape {out.shape}, the result has shape {loop + core}")
    return MetaArray(loop + core, dtype)


def matmul_shape(left, right):
    """The shape of a product, that of the loop and that of a matrix; ValueError where the arguments do not match."""
    if not left or not right:
        raise ValueError(f"matmul: arguments of shapes {left} and {right}; a scalar is no matrix\nuse ops.np.multiply")
    inner = right[-2] if len(right) > 1 else right[0]
    if left[-1] != inner:
        raise ValueError(f"matmul: argument x1 has {left[-1]} columns, x2 has {inner} rows (shapes {left} and {right})")
    return broadcast((left[:-2], right[:-2])), left[-2:-1] + (right[-1:] if len(right) > 1 else ())


declare("matmul", f"Tensor x1, Tensor x2{UFUNC_OPTIONS}", np.matmul, matmul_meta, out=np.matmul, fills_out=True,
        tags=("linalg",), left_out=MATMUL_LEFT_OUT)
