"""Python numbers beside arrays of every dtype, and `out` of every dtype, in calls of all functions that take them.

NumPy itself is the oracle for values, dtypes, errors and for what is written.
"""

import pickle
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as face
from pydispatch import Tensor
from tests.numpy.recorded_calls import Call, by_numpy, differences, look_up, on_tensors, stop
from tests.together import together

SMALL, LARGE = ("i1", "u1", "f2", "f4"), ("?", "i2", "u2", "i4", "u4", "i8", "u8", "f8", "F", "D")
NUMBERS, MORE_NUMBERS = (1, 300, 0.1, float("nan"), 1j), (True, -1, 3, 2.5, float("inf"))
PAIRS = """
    add subtract multiply divide floor_divide remainder power fmod maximum minimum fmax fmin arctan2 hypot copysign
    logaddexp logaddexp2 equal not_equal less greater less_equal greater_equal logical_and logical_or logical_xor
    bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm heaviside nextafter ldexp float_power divmod
    isclose allclose dot inner outer vdot kron convolve correlate append full_like searchsorted digitize isin
    array_equal array_equiv union1d intersect1d setdiff1d setxor1d polyval percentile quantile nanpercentile
    nanquantile cross tensordot trapezoid ediff1d polyadd polysub polymul polydiv add.outer meshgrid broadcast_arrays
"""
KNOWN = {
    "geomspace warnings", "histogram warnings", "lstsq warnings", "vecdot warnings",
    # 0 times an infinite element is nan in NumPy, which interpolates where the quantile is an element, too
    "percentile value", "nanquantile value",
    # NumPy's nanmax with initial=nan ignores the initial value, in ours a nan is a nan
    "nanmax value",
    # np.select casts its default of 0 before it looks at the numbers
    "select passes",
    # NumPy has no LAPACK for float16, and a complex cutoff has no order
    "lstsq passes", "pinv raises", "nanpercentile raises",
    # numpy refuses to take the slope of truth values, and a number of times that is no integer
    "gradient passes", "diff passes",
}
"""Differences that docs/numpy.md lists, by the function and the first word of the kind."""


def beside_number(dtype: str, x: Any) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yield calls with an array of a dtype and a number."""
    a = np.array([1, 0, 1, 1] if dtype == "?" else [1, 2, 3, 2], dtype)
    m, mask, zero = a.reshape(2, 2), np.array([False, True, True, False]), a[:1].reshape(())
    for name in PAIRS.split():
        yield name, (a, x), {}
        yield name, (x, a), {}
    for options in ({"rtol": 0, "atol": 0}, {"rtol": 0.5, "atol": 0}, {"rtol": 0, "atol": 0.5}):
        yield "isclose", (np.full(2, x).astype(dtype, casting="unsafe") if isinstance(x, (int, float)) and x == x and
                          abs(x) < 100 else a, x), options
        yield "isclose", (zero, x), options
        yield "allclose", (zero, x), options
    for limits in ((x, None), (None, x), (x, 3)):
        yield "clip", (a, *limits), {}
    yield "where", (mask, a, x), {}
    yield "where", (mask, x, a), {}
    yield "select", ([mask], [a]), {"default": x}
    yield "select", ([mask, ~mask], [a, x]), {}
    yield "choose", ([0, 1, 0, 1], [a, x]), {}
    yield "choose", ([0, 1, 0, 1], (x, a)), {}
    yield "concatenate", ((a, x), None), {}
    yield "concatenate", ((a, [x]),), {}
    yield "stack", ((a, [x] * 4),), {}
    yield "hstack", ((a, x),), {}
    for values in (x, [x, x]):
        yield "insert", (a, [1, 2], values), {}
        yield "put", (a, [0, 2], values), {}
        yield "putmask", (a, mask, values), {}
        yield "place", (a, mask, values), {}
        yield "put_along_axis", (a, np.array([0, 1]), values, 0), {}
        yield "fill_diagonal", (m, values), {}
    yield "insert", (a, 1, x), {}
    yield "piecewise", (a, [mask], [x]), {}
    yield "piecewise", (a, [mask], [x, x]), {}
    yield "copyto", (a, x), {}
    yield "copyto", (a, x), {"casting": "unsafe"}
    yield "copyto", (a, x), {"where": mask}
    yield "copyto", (a, [x] * 4), {}
    yield "pad", (a, 1), {"constant_values": x}
    yield "pad", (a, 1), {"constant_values": (x, 1)}
    yield "nan_to_num", (a,), {"nan": x}
    yield "nan_to_num", (a,), {"posinf": x}
    for option in ("to_end", "to_begin"):
        yield "ediff1d", (a,), {option: x}
    for option in ("append", "prepend"):
        yield "diff", (a,), {option: x}
    for option in ("period", "discont"):
        yield "unwrap", (a,), {option: x}
    yield "interp", (a, [1, 2], [3, 4]), {"left": x}
    yield "interp", (x, a[:3], a[:3]), {}
    yield "trapezoid", (a,), {"dx": x}
    yield "gradient", (a, x), {}
    for name in ("linspace", "logspace", "geomspace"):
        yield name, (a, x, 5), {}
        yield name, (x, a, 5), {}
    yield "logspace", (1, 2, 5), {"base": a}
    yield "full", (3, x, a.dtype), {}
    for name in ("sum", "prod", "max", "min", "nansum", "nanmax"):
        yield name, (a,), {"initial": x}
    yield "add.at", (a, [0, 0], x), {}
    yield "var", (a,), {"mean": x}
    yield "average", (a,), {"weights": [x] * 4}
    yield "linalg.norm", (a, x), {}
    yield "linalg.norm", (m, x), {}
    yield "polyint", (a,), {"k": x}
    yield "vecdot", (a, [x] * 4), {}
    yield "histogram", (a,), {"range": (0, x)}
    yield "histogram", (a, [0, x]), {}
    yield "var", (a,), {"ddof": x}
    yield "std", (a,), {"correction": x}
    yield "linalg.matrix_rank", (m, x), {}
    yield "linalg.matrix_power", (m, x), {}
    yield "linalg.lstsq", (m, [x, x]), {}
    yield "linalg.cond", (m, x), {}
    yield "bincount", (np.array([0, 1, 1, 2]), a), {}
    yield "kaiser", (4, x), {}


def compared(calls: Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]], known: set[str]) -> list[str]:
    """Return the calls that give something else on Tensors than in NumPy."""
    old = signal.signal(signal.SIGALRM, stop)
    found = []
    try:
        for written in map(pickle.dumps, calls):
            call = Call(written)
            if not hasattr(np, call.name.split(".")[0]):
                continue
            kind = differences(by_numpy(call), on_tensors(call))
            name = call.name.split(".")[-1]
            if kind not in (None, "refused") and known.isdisjoint((f"{name} {kind.split()[0]}", f"{name} {kind}")):
                found.append(f"{call}: {kind}")
    finally:
        signal.signal(signal.SIGALRM, old)
    return found


@pytest.mark.parametrize("dtype", [*SMALL, *[pytest.param(dtype, marks=pytest.mark.slow) for dtype in LARGE]])
def test_numbers_beside(dtype):
    numbers = (*NUMBERS, *MORE_NUMBERS) if dtype in LARGE else NUMBERS
    assert not compared((call for x in numbers for call in beside_number(dtype, x)), KNOWN)


KNOWN_OF_OUT = {
    # NumPy's hfft takes no notice of `out`
    "hfft dtype", "hfft raises", "hfft arguments",
    # the last bits: NumPy computes in the dtype of `out`, which exceeds that of the argument
    "irfft value", "nanstd value", "einsum value",
    # an imaginary part that is 0 is discarded
    "add warnings", "median warnings", "nanmean warnings", "nanstd warnings", "nanvar warnings",
    # the same, of what `out` held: NumPy 2.0 converts that first
    "choose warnings ['ComplexWarning']: []", "fix warnings ['ComplexWarning']: []",
    # NumPy refuses `out` for one of two reasons that both hold
    "nanargmin raises", "nanargmax raises", "choose raises", "compress raises",
    "percentile raises", "quantile raises", "dot raises", "dot passes",
    # NumPy's nan-quantiles write to whatever `out` their results can be broadcast to
    "nanpercentile raises", "nanquantile raises", "nanmedian raises",
}


def with_out(dtype: str) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yield calls with `out` of other dtypes, and of another shape."""
    a = np.array([3, 1, 2, 2], dtype)
    m, n = a.reshape(2, 2), np.array([1.0, np.nan, 2.0, 3.0]) if dtype == "f8" else a
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("concatenate", ((a, a),), {}), ("stack", ((a, a),), {}), ("dot", (m, m), {}),
        ("einsum", ("ij,jk->ik", m, m), {}), ("einsum", ("ij->ji", m), {}), ("outer", (a, a), {}),
        ("quantile", (m, 0.4, 0), {}), ("quantile", (m, 0.4, 0), {"method": "lower"}), ("round", (a,), {}),
        ("trace", (np.stack([m, m], 2),), {}), ("compress", ([True, False, True, False], a), {}),
        ("take", (a, [0, 2]), {}), ("choose", ([0, 1, 0, 1], [a, a]), {}), ("around", (a, 1), {}), ("fix", (a,), {}),
        ("clip", (a, 1, 2), {}), ("isposinf", (a,), {}), ("isneginf", (a,), {}), ("add", (a, a), {}),
        ("matmul", (m, m), {}), ("vecdot", (m, m), {}), ("matvec", (m, m[0]), {}), ("vecmat", (m[0], m), {}),
        ("linalg.multi_dot", ([m, m, m],), {}),
        ("sin", (a,), {}), ("equal", (a, a), {}), ("add.reduceat", (a, [0, 2]), {}), ("add.outer", (a, a), {}),
        *[(f"fft.{name}", (a,), {}) for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")],
        *[(f"fft.{name}", (m,), {}) for name in ("fft2", "rfftn", "irfftn")],
        *[(name, (m, 0), {}) for name in (
            "median", "nanmedian", "ptp", "nanargmin", "nanargmax", "sum", "prod", "max", "min", "all", "any", "mean",
            "var", "std", "argmax", "argmin")],
        *[(name, (m, 40, 0), {}) for name in ("percentile", "nanpercentile")],
        *[(name, (n,), {}) for name in (
            "nanmean", "nansum", "nanprod", "nanvar", "nanstd", "nanmin", "nanmax", "nancumsum", "nancumprod")],
        *[(name, (a,), {}) for name in ("cumulative_sum", "cumulative_prod", "cumsum", "cumprod", "divide.accumulate")],
        *[(f"{name}.{method}", (m,), {}) for name in ("add", "multiply", "logical_or", "maximum")
          for method in ("reduce", "accumulate") if (name, method) != ("logical_or", "accumulate")],
    ]
    for name, args, options in calls:
        try:
            shape = np.shape(look_up(name)(*args, **options))
        except (AttributeError, TypeError, ValueError):     # of another version, or not for this dtype
            continue
        for out in ("?", "i1", "i8", "f4", "f8", "F", "D"):
            yield name, args, {**options, "out": np.zeros(shape, out)}
        yield name, args, {**options, "out": np.zeros((9, *shape))}


@pytest.mark.parametrize("dtype", ["f8", *[pytest.param(dtype, marks=pytest.mark.slow) for dtype in (
    "?", "i1", "i8", "f4", "F")]])
def test_out_of_another_dtype(dtype):
    assert not compared(with_out(dtype), KNOWN_OF_OUT)


STATEMENTS = """
    t[0] = 300
    t[0] = float("nan")
    t[[0, 1]] = 300
    t[0:2] = [300, 1]
    t[0:2] = [float("nan"), 1]
    t[0:2] = [1.5, 1]
    t[[0, 1]] = [300, 1]
    r = np.sum(3, axis=0)
    r = np.prod(3.0, axis=-1)
    r = np.max(True, axis=0)
    r = np.any(t[0, ...], axis=0)
    r = np.sum(3, axis=1)
    t[t > 1] = 300
    t.fill(300)
    t.flat = 300
    t += 300
    np.add(t, 1.5, out=t)
    np.clip(t, 0, 2.5, out=t)
    np.copyto(t, 300)
    np.copyto(t, 0.1)
    np.copyto(t, [300, 1, 2])
    np.copyto(t, numpy.array([1.5, 2, 3]))
    np.put(t, [0], numpy.array([1.5]))
    np.place(t, t > 1, numpy.array([1.5]))
    np.putmask(t, t > 1, numpy.array([1.5]))
    np.put_along_axis(t, numpy.array([0]), numpy.array([1.5]), 0)
    np.fill_diagonal(m, numpy.array([1.5, 300]))
    r = np.r_[t, 300]
    r = np.r_[300, t]
    r = np.r_[t, 1.5]
    r = np.r_["0,2", t, 3]
    r = np.c_[t, t]
    r = np.where(t > 1, t, 300)
    r = np.full_like(t, 300)
    r = np.append(t, 300)
    r = np.concatenate([t, numpy.array([300])], dtype="i1")
    r = np.concatenate([t, numpy.array([300])], dtype="i1", casting="unsafe")
    r = np.concatenate([t, numpy.array([1.5])], dtype="i1")
    r = np.stack([t, t], dtype="f4")
    r = np.linspace(t, 300, 3, dtype="i1")
    r = np.insert(t, 0, numpy.array([300]))
    r = np.choose([0, 1, 0], [t, 300])
    r = np.diff(t, prepend=300)
    r = np.ediff1d(t, to_end=300)
    r = np.sum(t, dtype="i1")
    r = np.cumsum(t, dtype="i1")
    r = np.trace(m, dtype="i1")
    r = np.nansum(t, dtype="i1")
    r = np.cumulative_sum(t, dtype="i1")
    r = np.einsum("i->", t, dtype="i1")
    r = np.vecdot(t, t, dtype="f4")
"""


@together("statement", [line.strip() for line in STATEMENTS.strip().splitlines()])
def test_writes_and_dtypes(statement):
    def run(library: Any, made: Any) -> Any:
        names = {"np": library, "numpy": np, "t": made(np.array([1, 2, 3], "i1")),
                 "m": made(np.array([[1, 2], [3, 4]], "i1")), "r": 0}
        try:
            exec(statement, names)
        except Exception as error:
            return type(error).__mro__[-4]      # ValueError, TypeError, ArithmeticError, ...
        return [(np.asarray(names[name]).tolist(), np.asarray(names[name]).dtype) for name in "rtm"]

    # NumPy has cumulative_sum since version 2.1
    numpys = np if hasattr(np, "cumulative_sum") else SimpleNamespace(**vars(np), cumulative_sum=np.cumsum)
    assert run(face, Tensor) == run(numpys, np.copy)
