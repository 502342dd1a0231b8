"""Calls of every function and operator of the Python array API standard, written for any namespace.

A call is a function of a namespace and of arrays. `CALLS` has, by name, calls with the arrays that they are made for.
Source: "Python array API standard", version 2025.12.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

BOOL, SIGNED, UNSIGNED = ("bool",), ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
REAL, COMPLEX = ("float32", "float64"), ("complex64", "complex128")
INTEGRAL, FLOATING = SIGNED + UNSIGNED, REAL + COMPLEX
NUMERIC, REAL_NUMERIC = INTEGRAL + FLOATING, INTEGRAL + REAL
ALL = BOOL + NUMERIC


class Call(NamedTuple):
    function: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]


CALLS: dict[str, list[Call]] = {}


def values(dtype: str, *shape: int, shift: int = 0) -> np.ndarray:
    """Return different numbers that every dtype has. Small enough for powers of them."""
    n = int(np.prod(shape))
    numbers = np.roll(np.arange(n), shift).reshape(shape)
    if dtype == "bool":
        return numbers % 3 == 0
    if dtype.startswith("u"):
        return (numbers % 7).astype(dtype)
    if dtype.startswith("int"):
        return np.asarray(numbers % 7 - 3).astype(dtype)
    found = (numbers % 7 - 3) / 4
    return (found + 0.5j * np.flip(found) if dtype.startswith("c") else found).astype(dtype)


def add(name: str, function: Callable[..., Any], *arrays: np.ndarray) -> None:
    CALLS.setdefault(name, []).append(Call(function, arrays))


def of(name: str) -> Callable[[Any], Any]:
    """Return the function of this name in a namespace."""
    return operator.attrgetter(name)


# --- functions of every element --------------------------------------------------------------------------------------

UNARY = {
    "abs": NUMERIC, "acos": FLOATING, "acosh": FLOATING, "asin": FLOATING, "asinh": FLOATING, "atan": FLOATING,
    "atanh": FLOATING, "bitwise_invert": BOOL + INTEGRAL, "ceil": REAL_NUMERIC, "conj": FLOATING, "cos": FLOATING,
    "cosh": FLOATING, "exp": FLOATING, "expm1": FLOATING, "floor": REAL_NUMERIC, "imag": COMPLEX,
    "isfinite": NUMERIC, "isinf": NUMERIC, "isnan": NUMERIC, "log": FLOATING, "log10": FLOATING, "log1p": FLOATING,
    "log2": FLOATING, "logical_not": BOOL, "negative": NUMERIC, "positive": NUMERIC, "real": FLOATING,
    "reciprocal": FLOATING, "round": NUMERIC, "sign": NUMERIC, "signbit": REAL, "sin": FLOATING, "sinh": FLOATING,
    "sqrt": FLOATING, "square": NUMERIC, "tan": FLOATING, "tanh": FLOATING, "trunc": REAL_NUMERIC,
}
BINARY = {
    "add": NUMERIC, "atan2": REAL, "bitwise_and": BOOL + INTEGRAL, "bitwise_left_shift": INTEGRAL,
    "bitwise_or": BOOL + INTEGRAL, "bitwise_right_shift": INTEGRAL, "bitwise_xor": BOOL + INTEGRAL, "copysign": REAL,
    "divide": FLOATING, "equal": ALL, "floor_divide": REAL_NUMERIC, "greater": REAL_NUMERIC,
    "greater_equal": REAL_NUMERIC, "hypot": REAL, "less": REAL_NUMERIC, "less_equal": REAL_NUMERIC, "logaddexp": REAL,
    "logical_and": BOOL, "logical_or": BOOL, "logical_xor": BOOL, "maximum": REAL_NUMERIC, "minimum": REAL_NUMERIC,
    "multiply": NUMERIC, "nextafter": REAL, "not_equal": ALL, "pow": NUMERIC, "remainder": REAL_NUMERIC,
    "subtract": NUMERIC,
}
SYMBOLS = {
    "add": operator.add, "bitwise_and": operator.and_, "bitwise_left_shift": operator.lshift,
    "bitwise_or": operator.or_, "bitwise_right_shift": operator.rshift, "bitwise_xor": operator.xor,
    "divide": operator.truediv, "equal": operator.eq, "floor_divide": operator.floordiv, "greater": operator.gt,
    "greater_equal": operator.ge, "less": operator.lt, "less_equal": operator.le, "multiply": operator.mul,
    "not_equal": operator.ne, "pow": operator.pow, "remainder": operator.mod, "subtract": operator.sub,
}
IN_PLACE = {"add": operator.iadd, "bitwise_and": operator.iand, "bitwise_left_shift": operator.ilshift,
            "bitwise_or": operator.ior, "bitwise_right_shift": operator.irshift, "bitwise_xor": operator.ixor,
            "divide": operator.itruediv, "floor_divide": operator.ifloordiv, "multiply": operator.imul,
            "pow": operator.ipow, "remainder": operator.imod, "subtract": operator.isub}
UNARY_SYMBOLS = {"abs": operator.abs, "bitwise_invert": operator.invert, "negative": operator.neg,
                 "positive": operator.pos}


def positive(name: str, dtype: str, *shape: int, shift: int) -> np.ndarray:
    """Return the second argument, where it has to be positive: exponents and shifts of integers, divisors."""
    found = values(dtype, *shape, shift=shift)
    if dtype in INTEGRAL and name in ("pow", "bitwise_left_shift", "bitwise_right_shift"):
        return (np.abs(found) % 3).astype(dtype)
    return np.where(found == 0, 1, found).astype(dtype) if name in ("floor_divide", "remainder", "divide") else found


def scalars(dtype: str) -> tuple[Any, ...]:
    """Return Python numbers that promote with this dtype."""
    if dtype == "bool":
        return (True,)
    return (2,) if dtype in INTEGRAL else (2, 1.5) if dtype in REAL else (2, 1.5, 0.5 + 1j)


def declare_elementwise() -> None:
    for name, dtypes in UNARY.items():
        for dtype in dtypes:
            for x in (values(dtype, 2, 3), values(dtype, 0), values(dtype)):
                add(name, lambda xp, x, name=name: of(name)(xp)(x), x)
                if name in UNARY_SYMBOLS:
                    add(name, lambda xp, x, name=name: UNARY_SYMBOLS[name](x), x)
    for name, dtypes in BINARY.items():
        for left in dtypes:
            for right in dtypes:
                x, y = values(left, 2, 3), positive(name, right, 3, shift=1)
                add(name, lambda xp, x, y, name=name: of(name)(xp)(x, y), x, y)
                if name in SYMBOLS:
                    add(name, lambda xp, x, y, name=name: SYMBOLS[name](x, y), x, y)
                if name in IN_PLACE and np.can_cast(right, left) and (name != "divide" or left in FLOATING):
                    add(name, lambda xp, x, y, name=name: IN_PLACE[name](xp.asarray(x, copy=True), y), x, y)
            for number in scalars(left):
                x = positive(name, left, 2, 3, shift=0)
                add(name, lambda xp, x, name=name, number=number: of(name)(xp)(x, number), x)
                add(name, lambda xp, x, name=name, number=number: of(name)(xp)(number, x), x)
                if name in SYMBOLS:
                    add(name, lambda xp, x, name=name, number=number: SYMBOLS[name](x, number), x)
                    add(name, lambda xp, x, name=name, number=number: SYMBOLS[name](number, x), x)
                if name in IN_PLACE and (name != "divide" or left in FLOATING):
                    add(name, lambda xp, x, name=name, number=number:
                        IN_PLACE[name](xp.asarray(x, copy=True), number), x)
    for dtype in REAL_NUMERIC:
        x = values(dtype, 2, 3)
        add("clip", lambda xp, x: xp.clip(x, 0, 1), x)
        add("clip", lambda xp, x: xp.clip(x, min=1), x)
        add("clip", lambda xp, x: xp.clip(x, max=xp.asarray(1, dtype=x.dtype)), x)
        add("clip", lambda xp, x: xp.clip(x), x)


declare_elementwise()


# --- making arrays ---------------------------------------------------------------------------------------------------

for dtype in (None, *NUMERIC):
    for numbers in ((4,), (1, 5), (0, 9, 2), (5, 0, -2), (3, 1)):
        add("arange", lambda xp, numbers=numbers, dtype=dtype: xp.arange(
            *numbers, dtype=dtype and getattr(xp, dtype)) if dtype not in COMPLEX else xp.arange(3))
add("arange", lambda xp: xp.arange(0.5, 3.0, 0.5))
add("arange", lambda xp: xp.arange(3, stop=None, step=1, dtype=None, device=None))
for dtype in (None, *ALL):
    for name in ("ones", "zeros", "empty"):
        for shape in ((), 3, (2, 0), (2, 3)):
            add(name, lambda xp, name=name, shape=shape, dtype=dtype: describe(name, of(name)(xp)(
                shape, dtype=dtype and getattr(xp, dtype), device=None)))
        add(f"{name}_like", lambda xp, x, name=name, dtype=dtype: describe(name, of(f"{name}_like")(xp)(
            x, dtype=dtype and getattr(xp, dtype), device=None)), values("float32", 2, 3))
    add("eye", lambda xp, dtype=dtype: xp.eye(3, 4, k=1, dtype=dtype and getattr(xp, dtype), device=None))
    add("eye", lambda xp, dtype=dtype: xp.eye(2, k=-1, dtype=dtype and getattr(xp, dtype)))
    add("full", lambda xp, dtype=dtype: xp.full((2, 3), 1, dtype=dtype and getattr(xp, dtype), device=None))
    add("full_like", lambda xp, x, dtype=dtype: xp.full_like(x, 1, dtype=dtype and getattr(xp, dtype), device=None),
        values("float32", 2, 3))
for value in (True, 3, 2.5, 1j):
    add("full", lambda xp, value=value: xp.full(2, value))
    add("asarray", lambda xp, value=value: xp.asarray(value))
    add("asarray", lambda xp, value=value: xp.asarray([[value, value], [value, value]]))
for copy in (None, True):
    for dtype in ALL:
        add("asarray", lambda xp, x, copy=copy, dtype=dtype: xp.asarray(
            x, dtype=getattr(xp, dtype), copy=copy, device=None), values("bool", 2, 3))
add("asarray", lambda xp, x: xp.asarray(x, copy=False), values("float64", 2))
add("asarray", lambda xp: xp.asarray([1, 2.5, 3]))
for dtype in (None, *FLOATING):
    for endpoint in (True, False):
        add("linspace", lambda xp, dtype=dtype, endpoint=endpoint: xp.linspace(
            0, 2, 5, dtype=dtype and getattr(xp, dtype), endpoint=endpoint, device=None))
add("linspace", lambda xp: xp.linspace(0.0, 1.0, num=1))
add("meshgrid", lambda xp, x, y: xp.meshgrid(x, y), values("float32", 2), values("float32", 3))
add("meshgrid", lambda xp, x, y: xp.meshgrid(x, y, indexing="ij"), values("int8", 2), values("int8", 3))
for k in (-1, 0, 2):
    add("tril", lambda xp, x, k=k: xp.tril(x, k=k), values("int32", 2, 3, 4))
    add("triu", lambda xp, x, k=k: xp.triu(x, k=k), values("bool", 3, 4))
add("from_dlpack", lambda xp, x: xp.from_dlpack(x), values("float32", 2, 3))
add("from_dlpack", lambda xp, x: xp.from_dlpack(x, copy=True), values("int16", 2, 3))


def describe(name: str, x: Any) -> Any:
    """Return the array, or the metadata of an empty one."""
    return x if "empty" not in name else [x.shape, str(x.dtype).rpartition(".")[2]]


# --- dtypes ----------------------------------------------------------------------------------------------------------

for left in ALL:
    add("finfo" if left in FLOATING else "iinfo", lambda xp, dtype=left: told(
        xp.finfo(getattr(xp, dtype)) if dtype in FLOATING else
        xp.iinfo(getattr(xp, dtype if dtype != "bool" else "int8"))))
    for right in ALL:
        if {left, right} <= {*BOOL} or {left, right} <= {*INTEGRAL} or {left, right} <= {*FLOATING}:
            add("result_type", lambda xp, left=left, right=right: str(np.dtype(str(xp.result_type(
                getattr(xp, left), getattr(xp, right))).rpartition(".")[2])))
        add("can_cast", lambda xp, left=left, right=right: xp.can_cast(getattr(xp, left), getattr(xp, right)))
        if left not in COMPLEX or right in COMPLEX:
            add("astype", lambda xp, x, right=right: xp.astype(x, getattr(xp, right)), values(left, 2, 3) * 1)
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating",
                 "numeric", ("bool", "real floating")):
        add("isdtype", lambda xp, left=left, kind=kind: xp.isdtype(getattr(xp, left), kind))
add("astype", lambda xp, x: xp.astype(x, xp.float64, copy=False), values("float64", 2))
add("result_type", lambda xp, x: str(xp.result_type(x, 1.0, xp.int8 if False else x)).rpartition(".")[2],
    values("float32", 2))
add("isdtype", lambda xp: xp.isdtype(xp.int8, (xp.int8, "bool")))


def told(info: Any) -> list[Any]:
    """Return the contents of finfo or iinfo."""
    names = ("bits", "max", "min", "eps", "smallest_normal") if hasattr(info, "eps") else ("bits", "max", "min")
    return [*[float(getattr(info, name)) for name in names], str(info.dtype).rpartition(".")[2]]


# --- indexing --------------------------------------------------------------------------------------------------------

KEYS = [0, -1, (0, 1), (1, ..., 2), slice(None), slice(2, 0, -1), (slice(0, 1), slice(None, None, 2)), ..., None,
        (None, 0), (slice(None), None, -1), (..., slice(1, None)), (), (0, 0, slice(3, 1))]
for key in KEYS:
    add("getitem", lambda xp, x, key=key: x[key], values("int64", 2, 3, 4))
    add("setitem", lambda xp, x, key=key: written(xp, x, key, 9), values("float32", 2, 3, 4))
add("getitem", lambda xp, x: x[x > 0], values("float64", 2, 3))
add("getitem", lambda xp, x: x[xp.asarray([True, False])], values("float64", 2, 3))
add("getitem", lambda xp, x, i: x[i, i], values("int16", 3, 3), np.array([0, 2, 1]))
add("getitem", lambda xp, x, i: x[i, 1], values("int16", 3, 3), np.array([0, 2, 1]))
add("setitem", lambda xp, x: written(xp, x, x > 0, 0.5), values("float64", 2, 3))
add("setitem", lambda xp, x: written(xp, x, (0, slice(None)), xp.asarray([1.0, 2.0, 3.0])), values("float64", 2, 3))
for name, dtype in (("bool", "bool"), ("int", "int8"), ("float", "float32"), ("complex", "complex64"),
                    ("index", "uint16")):
    function = getattr(operator, name, None) or {"bool": bool, "int": int, "float": float, "complex": complex}[name]
    add(name, lambda xp, x, function=function: function(x), np.asarray(values(dtype, 2)[1]))
add("complex", lambda xp, x: complex(x), np.asarray(1.5))
add("int", lambda xp, x: int(x), np.asarray(-2.5))
add("attributes", lambda xp, x: [x.shape, x.ndim, x.size, x.device == xp.asarray(1).device], values("int8", 2, 3))
add("attributes", lambda xp, x: x.T, values("int8", 2, 3))
add("attributes", lambda xp, x: x.mT, values("int8", 2, 3, 4))
add("attributes", lambda xp, x: x.to_device(x.device), values("int8", 2))
add("matmul", lambda xp, x, y: xp.matmul(x, y), values("float32", 2, 3), values("float64", 3, 2))
add("matmul", lambda xp, x, y: x @ y, values("int8", 2, 2, 3), values("int16", 3))
add("matmul", lambda xp, x, y: operator.imatmul(xp.asarray(x, copy=True), y), values("float64", 3, 3),
    values("float32", 3, 3))


def written(xp: Any, x: Any, key: Any, value: Any) -> Any:
    x = xp.asarray(x, copy=True)
    x[key] = value
    return x


# --- shapes ----------------------------------------------------------------------------------------------------------

A, B, V = values("float32", 2, 3, 4), values("float64", 2, 3, 4, shift=5), values("int32", 6)
for axis in (0, -1, None):
    add("concat", lambda xp, x, y, axis=axis: xp.concat([x, y], axis=axis), A, B)
    add("flip", lambda xp, x, axis=axis: xp.flip(x, axis=axis), A)
    add("roll", lambda xp, x, axis=axis: xp.roll(x, 2, axis=axis), A)
    add("repeat", lambda xp, x, axis=axis: xp.repeat(x, 2, axis=axis), A)
for axis in (0, 1, -1):
    add("stack", lambda xp, x, y, axis=axis: xp.stack((x, y), axis=axis), A, B)
    add("unstack", lambda xp, x, axis=axis: xp.unstack(x, axis=axis), A)
    add("expand_dims", lambda xp, x, axis=axis: xp.expand_dims(x, axis=axis), A)
add("expand_dims", lambda xp, x: xp.expand_dims(x, axis=(0, 2)), A)
add("broadcast_arrays", lambda xp, x, y: xp.broadcast_arrays(x, y), values("int8", 2, 1), values("bool", 3))
add("broadcast_to", lambda xp, x: xp.broadcast_to(x, (2, 3, 6)), V)
add("broadcast_shapes", lambda xp: xp.broadcast_shapes((2, 1), (3,), (1, 1, 1)))
add("moveaxis", lambda xp, x: xp.moveaxis(x, (0, 1), (-1, 0)), A)
add("permute_dims", lambda xp, x: xp.permute_dims(x, (2, 0, 1)), A)
for copy in (None, True, False):
    add("reshape", lambda xp, x, copy=copy: xp.reshape(x, (2, -1), copy=copy), V)
add("repeat", lambda xp, x, n: xp.repeat(x, n, axis=1), A, np.array([0, 2, 1]))
add("roll", lambda xp, x: xp.roll(x, (1, -1), axis=(0, 2)), A)
add("squeeze", lambda xp, x: xp.squeeze(x, axis=(0, 2)), values("int8", 1, 3, 1))
add("tile", lambda xp, x: xp.tile(x, (2, 1, 2, 1)), A)

# --- searching, sorting, sets ----------------------------------------------------------------------------------------

for dtype in REAL_NUMERIC:
    x = values(dtype, 3, 5, shift=3)
    for axis in (0, -1):
        for descending in (False, True):
            for name in ("sort", "argsort"):
                add(name, lambda xp, x, name=name, axis=axis, descending=descending: of(name)(xp)(
                    x, axis=axis, descending=descending, stable=True), x)
    for name in ("argmax", "argmin"):
        add(name, lambda xp, x, name=name: of(name)(xp)(x, axis=1, keepdims=True), x)
        add(name, lambda xp, x, name=name: of(name)(xp)(x), x)
    add("searchsorted", lambda xp, x, y: xp.searchsorted(xp.sort(x), y, side="right"), x[0], x[1])
    add("searchsorted", lambda xp, x, y: xp.searchsorted(x, y, sorter=xp.argsort(x)), x[0], x[1])
    add("searchsorted", lambda xp, x: xp.searchsorted(xp.sort(x), 2), x[0])
for dtype in ALL:
    x = values(dtype, 3, 5, shift=3)
    add("count_nonzero", lambda xp, x: xp.count_nonzero(x, axis=0, keepdims=True), x)
    add("count_nonzero", lambda xp, x: xp.count_nonzero(x), x)
    add("nonzero", lambda xp, x: xp.nonzero(x), x)
    add("where", lambda xp, x, y: xp.where(xp.not_equal(x, y), x, y), x, values(dtype, 5))
    if dtype != "bool":
        add("where", lambda xp, x: xp.where(xp.not_equal(x, 1), x, 1), x)
    add("take", lambda xp, x, i: xp.take(x, i, axis=1), x, np.array([4, 0, 0]))
    add("take_along_axis", lambda xp, x, i: xp.take_along_axis(x, i, axis=1), x, np.array([[4, 0], [1, 1], [0, 2]]))
    add("any", lambda xp, x: xp.any(x, axis=(0, 1), keepdims=True), x)
    add("all", lambda xp, x: xp.all(x, axis=0), x)
    add("isin", lambda xp, x, y: xp.isin(x, y), x, values(dtype, 2))
    add("isin", lambda xp, x: xp.isin(x, 1), x)
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        add(name, lambda xp, x, name=name: of(name)(xp)(x), x)
add("unique_all", lambda xp, x: xp.unique_all(x).counts, V)
add("diff", lambda xp, x, y: xp.diff(x, axis=0, n=2, prepend=y, append=y), values("int64", 4, 2), values("int64", 1, 2))

# --- statistics ------------------------------------------------------------------------------------------------------

for dtype in NUMERIC:
    x = values(dtype, 3, 4)
    for name in ("sum", "prod"):
        add(name, lambda xp, x, name=name: of(name)(xp)(x, axis=0), x)
        add(name, lambda xp, x, name=name: of(name)(xp)(x, keepdims=True), x)
        add(name, lambda xp, x, name=name: of(name)(xp)(x, dtype=xp.float64) if "complex" not in str(x.dtype) else
            of(name)(xp)(x, dtype=xp.complex128), x)
    for name in ("cumulative_sum", "cumulative_prod"):
        add(name, lambda xp, x, name=name: of(name)(xp)(x, axis=1), x)
        add(name, lambda xp, x, name=name: of(name)(xp)(x, axis=0, include_initial=True), x)
    if dtype in FLOATING:
        add("mean", lambda xp, x: xp.mean(x, axis=(0, 1), keepdims=True), x)
    if dtype in REAL:
        for name in ("var", "std"):
            add(name, lambda xp, x, name=name: of(name)(xp)(x, axis=0, correction=1, keepdims=True), x)
            add(name, lambda xp, x, name=name: of(name)(xp)(x, correction=0.5), x)
    if dtype in REAL_NUMERIC:
        for name in ("max", "min"):
            add(name, lambda xp, x, name=name: of(name)(xp)(x, axis=(0, 1), keepdims=True), x)
            add(name, lambda xp, x, name=name: of(name)(xp)(x, axis=1), x)

# --- products, linalg, fft -------------------------------------------------------------------------------------------

for dtype in NUMERIC:
    x, y = values(dtype, 2, 3), values(dtype, 2, 3, shift=1)
    add("vecdot", lambda xp, x, y: xp.vecdot(x, y, axis=-1), x, y)
    add("tensordot", lambda xp, x, y: xp.tensordot(x, y, axes=((0,), (0,))), x, y)
    add("matrix_transpose", lambda xp, x: xp.matrix_transpose(x), x)
    add("linalg.outer", lambda xp, x, y: xp.linalg.outer(x, y), x[0], y[0])
    add("linalg.cross", lambda xp, x, y: xp.linalg.cross(x, y, axis=-1), x, y)
    add("linalg.trace", lambda xp, x: xp.linalg.trace(x, offset=1), x)
    add("linalg.trace", lambda xp, x: xp.linalg.trace(x, dtype=x.dtype), x)
    add("linalg.diagonal", lambda xp, x: xp.linalg.diagonal(x, offset=-1), x)
    for name in ("matmul", "tensordot", "vecdot"):
        add(f"linalg.{name}", lambda xp, x, y, name=name: of(f"linalg.{name}")(xp)(
            x, y if name == "vecdot" else xp.matrix_transpose(y), **{"axes": 1} if name == "tensordot" else {}), x, y)
for dtype in FLOATING:
    square = (values(dtype, 2, 3, 3) + 3 * np.eye(3)).astype(dtype)
    definite = (square @ square.conj().swapaxes(-1, -2) + np.eye(3)).astype(dtype)
    wide = values(dtype, 2, 3, 4, shift=2)
    for name in ("det", "inv", "slogdet"):
        add(f"linalg.{name}", lambda xp, x, name=name: of(f"linalg.{name}")(xp)(x), square)
    add("linalg.cholesky", lambda xp, x: xp.linalg.cholesky(x), definite)
    add("linalg.cholesky", lambda xp, x: xp.linalg.cholesky(x, upper=True), definite)
    for name in ("eigh", "eigvalsh"):
        add(f"linalg.{name}", lambda xp, x, name=name: of(f"linalg.{name}")(xp)(x), definite)
    for name in ("eig", "eigvals"):
        add(f"linalg.{name}", lambda xp, x, name=name: of(f"linalg.{name}")(xp)(x), square)
    add("linalg.solve", lambda xp, a, b: xp.linalg.solve(a, b), square, values(dtype, 2, 3, 2))
    add("linalg.solve", lambda xp, a, b: xp.linalg.solve(a, b), square[0], values(dtype, 3))
    add("linalg.pinv", lambda xp, x: xp.linalg.pinv(x, rtol=1e-3), wide)
    for mode in ("reduced", "complete"):
        add("linalg.qr", lambda xp, x, mode=mode: xp.linalg.qr(x, mode=mode), wide)
    for full in (True, False):
        add("linalg.svd", lambda xp, x, full=full: xp.linalg.svd(x, full_matrices=full).S, wide)
        add("linalg.svd", lambda xp, x, full=full: [part.shape for part in xp.linalg.svd(x, full_matrices=full)], wide)
    add("linalg.svdvals", lambda xp, x: xp.linalg.svdvals(x), wide)
    add("linalg.matrix_rank", lambda xp, x: xp.linalg.matrix_rank(x, rtol=1e-2), wide)
    add("linalg.matrix_power", lambda xp, x: xp.linalg.matrix_power(x, 3), square)
    add("linalg.matrix_power", lambda xp, x: xp.linalg.matrix_power(x, -1), square)
    add("linalg.matrix_transpose", lambda xp, x: xp.linalg.matrix_transpose(x), wide)
    for order in ("fro", "nuc", 2, -2, 1, np.inf):
        add("linalg.matrix_norm", lambda xp, x, order=order: xp.linalg.matrix_norm(x, ord=order, keepdims=True), wide)
    for order in (2, 1, np.inf, -np.inf, 0, 3.5):
        add("linalg.vector_norm", lambda xp, x, order=order: xp.linalg.vector_norm(x, axis=1, ord=order), wide)
    add("linalg.vector_norm", lambda xp, x: xp.linalg.vector_norm(x, axis=(0, 2), keepdims=True), wide)
for dtype in COMPLEX:
    for norm in ("backward", "ortho", "forward"):
        for name in ("fft", "ifft", "hfft", "irfft"):
            add(f"fft.{name}", lambda xp, x, name=name, norm=norm: of(f"fft.{name}")(xp)(x, n=5, axis=0, norm=norm),
                values(dtype, 4, 3))
        for name in ("fftn", "ifftn", "irfftn"):
            add(f"fft.{name}", lambda xp, x, name=name, norm=norm: of(f"fft.{name}")(xp)(
                x, s=(4, 2), axes=(0, 1), norm=norm), values(dtype, 4, 3))
    add("fft.fftshift", lambda xp, x: xp.fft.fftshift(x, axes=0), values(dtype, 4, 3))
    add("fft.ifftshift", lambda xp, x: xp.fft.ifftshift(x), values(dtype, 4, 3))
for dtype in REAL:
    for name in ("rfft", "ihfft"):
        add(f"fft.{name}", lambda xp, x, name=name: of(f"fft.{name}")(xp)(x, n=5, axis=0), values(dtype, 4, 3))
    add("fft.rfftn", lambda xp, x: xp.fft.rfftn(x), values(dtype, 4, 3))
for dtype in (None, *REAL):
    for name in ("fftfreq", "rfftfreq"):
        add(f"fft.{name}", lambda xp, name=name, dtype=dtype: of(f"fft.{name}")(xp)(
            5, d=0.5, dtype=dtype and getattr(xp, dtype), device=None))
