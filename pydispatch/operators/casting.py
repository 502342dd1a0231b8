"""Copies and conversions: the same elements in new memory or of another dtype."""

from __future__ import annotations

import numpy as np

from pydispatch._core import ArrayMethod, MetaArray, Tensor, times_minus_i
from pydispatch._sites import describe_interpreter
from pydispatch.exceptions import DataDependentError
from pydispatch.operators.declare import LAYOUT, declare, operators
from pydispatch.operators.meta import sample, shape_of, view_of

complex_of, detach, imag, isfinite, real, where, zeros_like = operators(
    "complex", "detach", "imag", "isfinite", "real", "where", "zeros_like")


def conversion(name, arguments, kernel, *, returns="Tensor(a)", tags=(), **parts):
    """Declare an operator that converts every element.

    If nothing is to be converted, the result may be the argument.
    """
    declare(name, arguments, kernel, conversion_meta(kernel), returns=returns, tags=("conversion", *tags),
            vmap="pointwise", **parts)


def conversion_meta(kernel):
    """Return a meta kernel: the argument's shape, and the dtype from running the kernel on a sample.

    The result is a view if the kernel returns one.
    """
    def meta(a, *args, **options):
        probe = sample(a)
        result = np.asarray(kernel(probe, *args, **options))    # the parts of a bool are ints
        shared = result is probe or result.base is probe
        return view_of(a, shape_of(a), result.dtype) if shared else MetaArray(shape_of(a), result.dtype)
    return meta


def with_gradient_of(a, part):
    """Return `part` with the gradient of `a`: a write to a detached array changes values but not gradients."""
    if not isinstance(a, Tensor) or a.dtype.kind not in "fc":
        return part
    part, finite = detach(part), isfinite(a)
    moved = where(finite, a, 0.0)
    # subtract 0.0, since adding it would turn -0.0 into 0.0
    return where(finite, part - (detach(moved) - moved), part)


def imag_vjp(g, val_dtype):
    if val_dtype.kind != "c":
        return zeros_like(g)
    found = times_minus_i(g)
    return g * -1j if found is None else found


ELSEWHERE = {"device": "arrays do not move between devices: convert them with the backends' own functions"}

conversion("astype", "Tensor(a) x, ScalarType dtype, *, bool copy=True", ArrayMethod("astype"), left_out=ELSEWHERE,
           tags=("zero_d_as_first",),
           vjp=lambda g: g, jvp=lambda t: t, put=lambda x, part: part)
conversion("copy", "Tensor a", np.array, returns="Tensor", tags=("creation",), left_out=LAYOUT, vjp=lambda g: g,
           jvp="linear")
conversion("real", "Tensor(a) val", np.real, tags=("zero_d_as_first",), vjp=lambda g: g, jvp="linear",
           put=lambda val, part: complex_of(part, imag(val)) if val.dtype.kind == "c" else part)
conversion("imag", "Tensor(a) val", np.imag, tags=("zero_d_as_first",), jvp="linear",
           vjp=imag_vjp,
           put=lambda val, part: complex_of(real(val), part))
conversion("detach", "Tensor(a) a", ArrayMethod("view"), tags=("view", "zero_d_as_first"), differentiable=False,
           put=with_gradient_of)


def no_number(a):
    raise DataDependentError(
        f"np::item: an array without data has no value (its shape is {shape_of(a)})\n"
        "compute with operators, such as ops.np.where, where the program needs a value"
    )


def numbers_batch(op, info, in_dims, a):
    raise DataDependentError(
        f"{op.name}: each example of {describe_interpreter(info)} has its own number, but the function runs only once\n"
        "choose between results with ops.np.where(condition, x, y), or call the function on one example"
    )


declare("item", "Tensor a", ArrayMethod("item"), no_number, returns="Scalar", tags=("conversion",),
        differentiable=False, vmap=numbers_batch)
