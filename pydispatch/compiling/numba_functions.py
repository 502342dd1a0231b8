"""The functions that sources of loops call, for numba.

They access memory by address, and compute elements where numba lacks a function or differs from NumPy. This module
needs numba, so it is loaded only when the backend is named.
"""

# tests: tests/compiling/test_numba.py
from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# --- memory ----------------------------------------------------------------------------------------------------------


@intrinsic(prefer_literal=True)
def load(typing: Any, pointer: Any, offset: Any, kind: Any, scope: Any, n_scopes: Any) -> Any:
    """Load the element at an offset in bytes. Memories with different numbers in `scope` share no bytes."""
    dtype = kind.instance_type

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = builder.load(_place(context, builder, arguments, dtype))
        _note_scope(builder, found, scope, n_scopes)
        return found

    return dtype(pointer, types.int64, kind, scope, n_scopes), generate


@intrinsic(prefer_literal=True)
def store(typing: Any, pointer: Any, offset: Any, value: Any, scope: Any, n_scopes: Any) -> Any:
    """Write an element. See load."""
    dtype = types.unliteral(value)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        done = builder.store(arguments[2], _place(context, builder, arguments, dtype))
        _note_scope(builder, done, scope, n_scopes)

    return types.void(pointer, types.int64, dtype, scope, n_scopes), generate


def _place(context: Any, builder: Any, arguments: Any, dtype: Any) -> Any:
    byte = builder.bitcast(arguments[0], ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(byte, [arguments[1]]), context.get_data_type(dtype).as_pointer())


def _note_scope(builder: Any, instruction: Any, scope: Any, n_scopes: Any) -> None:
    """Mark for LLVM which memories do not overlap, so that it vectorizes loops over many arrays."""
    module = builder.module
    domain = module.add_metadata(["memories"])
    scopes = [module.add_metadata([f"memory {i}", domain]) for i in range(n_scopes.literal_value)]
    own = scopes.pop(scope.literal_value)
    instruction.set_metadata("alias.scope", module.add_metadata([own]))
    if scopes:
        instruction.set_metadata("noalias", module.add_metadata(scopes))


@intrinsic
def add_in_any_order(typing: Any, total: Any, value: Any) -> Any:
    """Add a value to a sum in an order that LLVM may choose, such as that of several partial sums."""
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments, flags=("reassoc",))

    return total(total, total), generate


def _choice(name: str) -> Any:
    """Return a function for the larger or smaller number. NaN wins. The sign of a zero is open, as in NumPy."""
    @intrinsic
    def choose(typing: Any, x: Any, y: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = context.get_data_type(x)
            function = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(kind, [kind, kind]), f"llvm.{name}.f{x.bitwidth}")
            return builder.call(function, arguments, fastmath=("nsz",))

        return x(x, x), generate

    return choose


maximum, minimum = _choice("maximum"), _choice("minimum")


# --- elements --------------------------------------------------------------------------------------------------------


@njit(error_model="numpy")
def sign(x):
    """Return -1, 0 or 1, or NaN for NaN."""
    return x if x != x else x - x if x == 0 else math.copysign(1.0, x)


@njit(error_model="numpy")
def clip(x, low, high):
    """Clip like NumPy: return NaN if one of the three is NaN."""
    above = x if (x >= low) | (x != x) else low
    return above if (above <= high) | (above != above) else high


@njit(error_model="numpy")
def remainder_floor(x, y):
    """Return the remainder with the sign of the divisor."""
    rest = np.fmod(x, y)
    if y == 0:
        return rest
    if rest == 0:
        return math.copysign(x - x, y)
    return rest + y if (y < 0) != (rest < 0) else rest


@njit(error_model="numpy")
def floor_divide(x, y):
    """Return the exact floor of the quotient."""
    if y == 0:
        return x / y
    rest = np.fmod(x, y)
    quotient = (x - rest) / y
    if rest != 0 and (y < 0) != (rest < 0):
        quotient = quotient - 1
    if quotient == 0:
        return math.copysign(x - x, x / y)
    lower = np.floor(quotient)
    return lower + 1 if quotient - lower > 0.5 else lower


@njit(error_model="numpy")
def logaddexp(x, y):
    """Return log(exp(x) + exp(y))."""
    if x == y:
        return x + 0.6931471805599453
    difference = x - y
    if difference > 0:
        return x + math.log1p(math.exp(-difference))
    if difference <= 0:
        return y + math.log1p(math.exp(difference))
    return difference


@njit(error_model="numpy")
def divide_signed(x, y):
    """Return the floor of the quotient, or 0 for a division by 0."""
    if y == 0:
        return x - x
    return -x if y == -1 else x // y


@njit(error_model="numpy")
def remainder_signed(x, y):
    """Return the remainder with the sign of the divisor, or 0 for a division by 0."""
    return x - x if y == 0 or y == -1 else x % y


@njit(error_model="numpy")
def fmod_signed(x, y):
    """Return the remainder with the sign of the dividend, or 0 for a division by 0."""
    if y == 0 or y == -1:
        return x - x
    rest = x % y
    return rest - y if rest != 0 and (x < 0) != (y < 0) else rest


@njit(error_model="numpy")
def divide_unsigned(x, y):
    """Return the floor of the quotient, or 0 for a division by 0."""
    return x - x if y == 0 else x // y


@njit(error_model="numpy")
def remainder_unsigned(x, y):
    """Return the remainder, or 0 for a division by 0."""
    return x - x if y == 0 else x % y


@njit(error_model="numpy")
def left_shift(x, n, bits):
    """Shift left. Return 0 if all bits are shifted out."""
    return x << n if (n >= 0) & (n < bits) else x - x


@njit(error_model="numpy")
def right_shift(x, n, bits):
    """Shift right. Return 0 or -1 if all bits are shifted out."""
    if (n >= 0) & (n < bits):
        return x >> n
    return x - x - (x < 0)


@njit(error_model="numpy")
def multiply_complex(x, y):
    """Multiply like NumPy, without a case for infinities."""
    return complex(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


@njit(error_model="numpy")
def divide_complex(x, y):
    """Divide by Smith's algorithm, like NumPy."""
    if abs(y.real) >= abs(y.imag):
        if y.real == 0 and y.imag == 0:
            return complex(x.real / abs(y.real), x.imag / abs(y.real))
        ratio = y.imag / y.real
        scale = 1 / (y.real + y.imag * ratio)
        return complex((x.real + x.imag * ratio) * scale, (x.imag - x.real * ratio) * scale)
    ratio = y.real / y.imag
    scale = 1 / (y.imag + y.real * ratio)
    return complex((x.real * ratio + x.imag) * scale, (x.imag * ratio - x.real) * scale)


@njit(error_model="numpy")
def position(k, n):
    """Return the position from the start, or 0 for one that is out of range, which another step refuses."""
    return k if (k >= 0) & (k < n) else k + n if (k < 0) & (k >= -n) else 0


NAMES: dict[str, Any] = {
    "np": np, "inf": math.inf, "nan": math.nan, "load": load, "store": store, "add_in_any_order": add_in_any_order,
    "maximum": maximum, "minimum": minimum, "sign": sign, "clip": clip, "remainder_floor": remainder_floor,
    "floor_divide": floor_divide, "logaddexp": logaddexp, "position": position,
    "divide_signed": divide_signed, "remainder_signed": remainder_signed, "fmod_signed": fmod_signed,
    "divide_unsigned": divide_unsigned, "remainder_unsigned": remainder_unsigned, "left_shift": left_shift,
    "right_shift": right_shift, "multiply_complex": multiply_complex, "divide_complex": divide_complex,
    **{name: getattr(math, name) for name in (
        "exp", "expm1", "log", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "asinh", "acosh", "atanh", "atan2", "hypot", "copysign", "sqrt")},
    **{name: getattr(np, name) for name in ("exp2", "log2", "floor", "ceil", "trunc", "rint", "fmod")},
    "fabs": abs, "INFINITY": math.inf, "RADIAN": math.pi / 180, "DEGREE": 180 / math.pi,
    **{f"{dtype.kind}{dtype.itemsize}": dtype.type for dtype in map(np.dtype, "bBhHiIqQfdFD")},
}
"""The names that sources can use."""
