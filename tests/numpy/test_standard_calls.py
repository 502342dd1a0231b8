"""Functions and operators of the array API standard on Tensors, against `array-api-strict`. Special cases."""

import cmath
import itertools
import math
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor
from pydispatch.exceptions import AutogradError
from pydispatch.numpy import tensors
from pydispatch.operators.declare import IS_NUMPY_2_0
from tests.numpy.standard_calls import CALLS, FLOATING
from tests.together import together

OTHERWISE_IN_NUMPY_2_0 = ("ceil", "floor", "trunc", "clip")
"""Functions of which NumPy 2.0 gives floating-point numbers for integers, or that it calls with a bound only."""


@pytest.fixture(autouse=True)
def newest_version_quietly():
    with array_api_strict.ArrayAPIStrictFlags(api_version="2025.12"), np.errstate(all="ignore"):
        yield


def parts_of(result: Any) -> Any:
    return result if isinstance(result, (list, tuple)) else [result]


def check(found: Any, expected: Any) -> None:
    """Assert Tensors where the strict namespace gives arrays, of equal shape, dtype and values, else equal objects."""
    if not isinstance(expected, type(array_api_strict.ones(1))):
        assert type(found) is type(expected)
        assert found == expected or found != found
        return
    assert isinstance(found, Tensor)
    array, found = np.asarray(expected), found.numpy()
    assert found.dtype == array.dtype
    tolerance = 1e-5 if array.dtype in ("float32", "complex64") else 1e-10
    np.testing.assert_allclose(found, array, rtol=tolerance, atol=tolerance, strict=True)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("name", [name for name in CALLS if not (IS_NUMPY_2_0 and name in OTHERWISE_IN_NUMPY_2_0)])
def test_calls_give_what_the_strict_namespace_gives(name):
    compared = 0
    for call in CALLS[name]:
        try:
            expected = call.function(array_api_strict, *map(array_api_strict.asarray, call.arrays))
        except (TypeError, ValueError, IndexError):
            continue        # the standard leaves it open
        found = call.function(tensors, *[Tensor(array.copy()) for array in call.arrays])
        if name == "can_cast":
            assert found or not expected        # casts between kinds are left open
        else:
            for one, other in zip(parts_of(found), parts_of(expected), strict=True):
                check(one, other)
        compared += 1
    assert compared


# --- special cases ---------------------------------------------------------------------------------------------------

nan, inf = math.nan, math.inf
ODD_AT_ZERO = ("asin", "asinh", "atan", "atanh", "expm1", "log1p", "sin", "sinh", "tan", "tanh", "sqrt", "ceil",
               "floor", "trunc", "round")
"""Functions that give back 0 with its sign."""
UNARY = {
    "abs": [(nan, nan), (-0.0, 0.0), (-inf, inf)],
    "acos": [(nan, nan), (1.5, nan), (-1.5, nan), (1.0, 0.0)],
    "acosh": [(nan, nan), (0.5, nan), (1.0, 0.0), (inf, inf)],
    "asin": [(nan, nan), (1.5, nan), (-1.5, nan)],
    "asinh": [(nan, nan), (inf, inf), (-inf, -inf)],
    "atan": [(nan, nan), (inf, math.pi / 2), (-inf, -math.pi / 2)],
    "atanh": [(nan, nan), (-1.5, nan), (1.5, nan), (-1.0, -inf), (1.0, inf)],
    "ceil": [(nan, nan), (inf, inf), (-inf, -inf), (3.0, 3.0), (-0.5, -0.0)],
    "cos": [(nan, nan), (0.0, 1.0), (-0.0, 1.0), (inf, nan), (-inf, nan)],
    "cosh": [(nan, nan), (0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, inf)],
    "exp": [(nan, nan), (0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0)],
    "expm1": [(nan, nan), (inf, inf), (-inf, -1.0)],
    "floor": [(nan, nan), (inf, inf), (-inf, -inf), (3.0, 3.0), (-0.5, -1.0)],
    "isfinite": [(nan, False), (inf, False), (-inf, False), (-0.0, True)],
    "isinf": [(nan, False), (inf, True), (-inf, True), (1.0, False)],
    "isnan": [(nan, True), (inf, False), (1.0, False)],
    "log": [(nan, nan), (-1.0, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "log10": [(nan, nan), (-1.0, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "log1p": [(nan, nan), (-1.5, nan), (-1.0, -inf), (inf, inf)],
    "log2": [(nan, nan), (-1.0, nan), (0.0, -inf), (-0.0, -inf), (1.0, 0.0), (inf, inf)],
    "reciprocal": [(nan, nan), (inf, 0.0), (-inf, -0.0), (0.0, inf), (-0.0, -inf)],
    "round": [(nan, nan), (inf, inf), (-inf, -inf), (0.5, 0.0), (1.5, 2.0), (-0.5, -0.0), (2.5, 2.0)],
    "sign": [(nan, nan), (-2.0, -1.0), (3.0, 1.0)],
    "signbit": [(0.0, False), (-0.0, True), (inf, False), (-inf, True), (-1.0, True)],
    "sin": [(nan, nan), (inf, nan), (-inf, nan)],
    "sinh": [(nan, nan), (inf, inf), (-inf, -inf)],
    "sqrt": [(nan, nan), (-1.0, nan), (inf, inf)],
    "square": [(nan, nan), (-inf, inf), (-0.0, 0.0)],
    "tan": [(nan, nan), (inf, nan), (-inf, nan)],
    "tanh": [(nan, nan), (inf, 1.0), (-inf, -1.0)],
    "trunc": [(nan, nan), (inf, inf), (-inf, -inf), (-0.5, -0.0)],
}
BINARY = {
    "add": [(nan, 1.0, nan), (inf, -inf, nan), (inf, 1.0, inf), (-0.0, -0.0, -0.0), (-0.0, 0.0, 0.0)],
    "atan2": [(nan, 1.0, nan), (1.0, 0.0, math.pi / 2), (1.0, -0.0, math.pi / 2), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0),
              (0.0, -0.0, math.pi), (0.0, -1.0, math.pi), (-0.0, 1.0, -0.0), (-0.0, 0.0, -0.0),
              (-0.0, -0.0, -math.pi), (-0.0, -1.0, -math.pi), (1.0, inf, 0.0), (1.0, -inf, math.pi),
              (-1.0, inf, -0.0), (inf, 1.0, math.pi / 2), (-inf, 1.0, -math.pi / 2), (inf, inf, math.pi / 4),
              (inf, -inf, 3 * math.pi / 4), (-inf, inf, -math.pi / 4), (-inf, -inf, -3 * math.pi / 4)],
    "copysign": [(1.0, -0.0, -1.0), (-1.0, 0.0, 1.0), (nan, -1.0, nan), (inf, -1.0, -inf)],
    "divide": [(nan, 1.0, nan), (inf, inf, nan), (0.0, -0.0, nan), (0.0, 1.0, 0.0), (0.0, -1.0, -0.0),
               (1.0, 0.0, inf), (1.0, -0.0, -inf), (-1.0, 0.0, -inf), (inf, -2.0, -inf), (2.0, -inf, -0.0)],
    "equal": [(nan, nan, False), (inf, inf, True), (0.0, -0.0, True), (inf, -inf, False)],
    "floor_divide": [(nan, 1.0, nan), (inf, -inf, nan), (0.0, 0.0, nan), (0.0, 1.0, 0.0), (0.0, -1.0, -0.0),
                     (1.0, 0.0, inf), (1.0, -0.0, -inf), (1.0, inf, 0.0), (-1.0, -inf, 0.0)],
    "greater": [(nan, 1.0, False), (inf, 1.0, True), (0.0, -0.0, False)],
    "greater_equal": [(nan, nan, False), (-inf, -inf, True), (-0.0, 0.0, True)],
    "hypot": [(inf, nan, inf), (nan, -inf, inf), (nan, 1.0, nan), (0.0, -2.0, 2.0)],
    "less": [(nan, 1.0, False), (-inf, 1.0, True)],
    "less_equal": [(nan, nan, False), (0.0, -0.0, True)],
    "logaddexp": [(nan, 1.0, nan), (1.0, nan, nan), (inf, 1.0, inf), (-inf, -inf, -inf)],
    "maximum": [(nan, 1.0, nan), (1.0, nan, nan), (inf, 1.0, inf)],
    "minimum": [(nan, 1.0, nan), (1.0, nan, nan), (-inf, 1.0, -inf)],
    "multiply": [(nan, 1.0, nan), (inf, 0.0, nan), (inf, -2.0, -inf), (-0.0, 2.0, -0.0)],
    "nextafter": [(nan, 1.0, nan), (1.0, nan, nan), (0.0, -0.0, -0.0), (-0.0, 0.0, 0.0), (inf, inf, inf)],
    "not_equal": [(nan, nan, True), (0.0, -0.0, False)],
    "pow": [(1.0, nan, 1.0), (nan, 0.0, 1.0), (nan, -0.0, 1.0), (nan, 2.0, nan), (2.0, inf, inf), (2.0, -inf, 0.0),
            (1.0, inf, 1.0), (-1.0, -inf, 1.0), (0.5, inf, 0.0), (0.5, -inf, inf), (inf, 2.0, inf), (inf, -2.0, 0.0),
            (-inf, 3.0, -inf), (-inf, 2.0, inf), (-inf, -3.0, -0.0), (-inf, -2.0, 0.0), (0.0, 2.0, 0.0),
            (0.0, -2.0, inf), (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, -3.0, -inf), (-0.0, -2.0, inf),
            (-2.0, 0.5, nan)],
    "remainder": [(nan, 1.0, nan), (inf, 1.0, nan), (1.0, 0.0, nan), (1.0, -0.0, nan), (0.0, 2.0, 0.0),
                  (0.0, -2.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, -2.0, -0.0), (1.0, inf, 1.0), (-1.0, -inf, -1.0)],
    "subtract": [(nan, 1.0, nan), (inf, inf, nan), (1.0, inf, -inf), (-0.0, -0.0, 0.0), (-0.0, 0.0, -0.0)],
}


def same_to_the_sign(found: Any, expected: Any) -> bool:
    """Return whether values are equal, with the sign of 0. Any nan equals any nan."""
    if isinstance(expected, bool):
        return found is expected
    if expected != expected:
        return found != found
    return math.isclose(found, expected, rel_tol=1e-6) and math.copysign(1, found) == math.copysign(1, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_special_cases(name, dtype):
    rows: list[tuple[Any, ...]] = [*UNARY.get(name, ()), *BINARY.get(name, ())]
    if name in ODD_AT_ZERO:
        rows += [(0.0, 0.0), (-0.0, -0.0)]
    columns = [np.array(column, dtype) for column in list(zip(*rows, strict=True))[:-1]]
    found = getattr(pnp, name)(*map(Tensor, columns)).tolist()
    wrong = [(row, each) for row, each in zip(rows, found, strict=True) if not same_to_the_sign(each, row[-1])]
    assert not wrong


OF_COMPLEX = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log", "sin", "sinh", "sqrt",
              "tan", "tanh")
SPECIAL = (nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.0)
OPEN = {"tanh", "tan", "exp", "cosh", "sinh", "cos", "sin"}
"""Functions of which the signs of zeros and infinities at infinite numbers differ with the library of C."""


@pytest.mark.parametrize("name", OF_COMPLEX)
def test_special_cases_of_complex_numbers(name):
    function = getattr(cmath, name)
    for real, imaginary in itertools.product(SPECIAL, SPECIAL):
        z = complex(real, imaginary)
        try:
            expected = function(z)
        except (ValueError, OverflowError):     # which cmath raises where C99 gives nan or an infinity with a flag
            continue
        found = getattr(pnp, name)(Tensor(np.array(z))).item()
        for one, other in ((found.real, expected.real), (found.imag, expected.imag)):
            if cmath.isnan(z) and math.isnan(other):
                continue        # later editions of C have numbers there
            loose = cmath.isnan(z) or (name in OPEN and cmath.isinf(z))
            assert same_to_the_sign(one, other) or (loose and abs(one) == abs(other)), (z, found, expected)


# --- what is told, and what is refused -------------------------------------------------------------------------------


def test_constants():
    namespace = Tensor(np.ones(1)).__array_namespace__()
    assert (namespace.e, namespace.pi, namespace.inf, namespace.newaxis) == (math.e, math.pi, inf, None)
    assert namespace.nan != namespace.nan
    assert namespace.__array_api_version__ == "2025.12"


@pytest.mark.skipif(IS_NUMPY_2_0, reason="NumPy 2.0 warns, and takes it for a vector")
def test_a_number_has_no_indices_that_are_not_zero():
    with pytest.raises(ValueError, match="0d"):
        pnp.nonzero(Tensor(np.array(1.0)))


def test_a_mask_of_another_shape_is_refused():
    with pytest.raises(IndexError):
        Tensor(np.ones((2, 3)))[Tensor(np.ones((3, 3), bool))]


@pytest.mark.parametrize("call", [
    lambda x: pnp.broadcast_to(x, (2, 2)), lambda x: pnp.reshape(x, (2, 2)), lambda x: pnp.squeeze(x, axis=0),
    lambda x: pnp.expand_dims(x, axis=5), lambda x: pnp.concat([x, pnp.ones((2, 2))]),
    lambda x: pnp.asarray(x, dtype=pnp.int8, copy=False), lambda x: pnp.asarray(x, device="gpu"),
    lambda x: pnp.zeros(2, device="gpu"), lambda x: x.to_device("gpu"), lambda x: pnp.from_dlpack(x, device="gpu"),
    lambda x: pnp.linalg.cholesky(x), lambda x: pnp.searchsorted(x, x, side="middle"), lambda x: bool(x),
])
def test_what_the_standard_refuses(call):
    with pytest.raises((ValueError, IndexError, TypeError)):
        call(Tensor(np.ones(3)))


@pytest.mark.parametrize("dtype", ["bool", "int8", *FLOATING])
@together("options", [{}, {"stream": None}, {"max_version": (0, 8)}, {"max_version": (1, 0)}, {"max_version": (2, 0)},
                      {"copy": True}, {"copy": False}, {"copy": None, "dl_device": (1, 0)}], ids=str)
def test_dlpack(dtype, options):
    x = Tensor(np.ones((2, 3), dtype))
    assert type(x.__dlpack__(**options)).__name__ == "PyCapsule"
    assert x.__dlpack_device__() == (1, 0)


def test_from_dlpack_shares_memory_unless_told_to_copy():
    x = Tensor(np.ones(3))
    shared, copied = pnp.from_dlpack(x), pnp.from_dlpack(x, copy=True)
    assert type(shared) is type(copied) is Tensor
    x[0] = 5.0
    assert (shared[0].item(), copied[0].item()) == (5.0, 1.0)
    assert isinstance(pnp.from_dlpack(np.ones(3)), np.ndarray)


def test_from_dlpack_refuses_what_is_tracked():
    with pytest.raises(AutogradError, match="detach"):
        pnp.from_dlpack(Tensor(np.ones(3), requires_grad=True))


def test_what_is_told_of_the_dtype_of_a_tensor():
    assert pnp.finfo(Tensor(np.ones(2, np.complex64))).dtype == np.float32
    assert pnp.iinfo(Tensor(np.ones(2, np.uint8))).max == 255


def test_what_is_told_of_the_dtype_of_an_array():
    assert pnp.finfo(np.ones(2, np.complex64)).dtype == np.float32
    assert pnp.iinfo(np.ones(2, np.uint8)).max == 255


@pytest.mark.parametrize("dtype", ["int8", "float32", "complex64"])
def test_conversions_to_numbers(dtype):
    x = Tensor(np.array(3, dtype))
    assert complex(x) == 3
    assert int(pnp.real(x)) == 3
    if dtype == "int8":
        assert range(5)[x] == 3
    else:
        with pytest.raises(TypeError):
            range(5)[x]


def test_in_place_operators_keep_dtype_and_object():
    x = Tensor(np.ones(3, np.float32))
    same = x
    x += Tensor(np.ones(3, np.float32))
    x *= 2
    assert same is x
    assert (x.dtype, x.tolist()) == (np.float32, [4.0, 4.0, 4.0])
    with pytest.raises(TypeError):
        x += 1j


SKIPS = (Path(__file__).parent / "array-api-skips.txt").read_text().split("\n\n")[1:]


@pytest.mark.parametrize("group", SKIPS, ids=lambda group: group.split("\n")[0][2:60])
def test_what_is_skipped_of_the_suite_has_a_reason(group):
    reason, *skipped = group.strip().splitlines()
    assert reason.startswith("# ")
    assert len(reason.split()) > 8
    assert skipped
    assert all(line.startswith("array_api_tests/") for line in skipped)


def test_the_namespace_of_tensors_makes_tensors():
    assert type(tensors.linspace(0, 1, 3)) is type(tensors.fft.rfftfreq(4)) is Tensor
    assert tensors.add is pnp.add
    assert tensors.linalg is pnp.linalg
    assert "matmul" in dir(tensors)
