"""The Python array API standard: every name, what a namespace tells about itself, and libraries that speak it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor

NAMES = """
abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan atan2 atanh bitwise_and
bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor bool broadcast_arrays broadcast_shapes
broadcast_to can_cast ceil clip complex128 complex64 concat conj copysign cos cosh count_nonzero cumulative_prod
cumulative_sum diff divide e empty empty_like equal exp expand_dims expm1 eye finfo flip float32 float64 floor
floor_divide from_dlpack full full_like greater greater_equal hypot iinfo imag inf int16 int32 int64 int8 isdtype
isfinite isin isinf isnan less less_equal linspace log log10 log1p log2 logaddexp logical_and logical_not logical_or
logical_xor matmul matrix_transpose max maximum mean meshgrid min minimum moveaxis multiply nan negative newaxis
nextafter nonzero not_equal ones ones_like permute_dims pi positive pow prod real reciprocal remainder repeat reshape
result_type roll round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std subtract sum take
take_along_axis tan tanh tensordot tile tril triu trunc uint16 uint32 uint64 uint8 unique_all unique_counts
unique_inverse unique_values unstack var vecdot where zeros zeros_like __array_namespace_info__
""".split()     # noqa: SIM905  a list of 170 quoted names reads worse
LINALG = """
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr
slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()     # noqa: SIM905  a list of 170 quoted names reads worse
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift".split()   # noqa: SIM905
ALIASES = {
    "abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atan2": "arctan2", "atanh": "arctanh", "bitwise_invert": "invert", "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift", "concat": "concatenate", "conj": "conjugate", "permute_dims": "transpose",
    "pow": "power",
}


@pytest.mark.parametrize("name", [*NAMES, *[f"linalg.{name}" for name in LINALG], *[f"fft.{name}" for name in FFT]])
def test_every_name_of_the_standard_is_there(name):
    namespace = Tensor(np.ones(1)).__array_namespace__()
    for part in name.split("."):
        namespace = getattr(namespace, part)


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_the_same_objects(alias):
    assert getattr(pnp, alias) is getattr(pnp, ALIASES[alias])


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"])
def test_the_namespace_of_a_tensor(version):
    assert Tensor(np.ones(1)).__array_namespace__(api_version=version) is pnp


def test_an_unknown_version_is_refused():
    with pytest.raises(ValueError, match=r"2019\.12"):
        Tensor(np.ones(1)).__array_namespace__(api_version="2019.12")


def test_what_the_namespace_tells_about_itself():
    info = pnp.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"]
    assert info.default_device() == "cpu"
    assert info.devices() == ["cpu"]
    assert info.default_dtypes()["indexing"] == np.intp
    assert info.dtypes(kind="real floating") == {"float32": np.dtype("f4"), "float64": np.dtype("f8")}
    assert len(info.dtypes(kind=("bool", "integral"))) == 9
    assert len(info.dtypes()) == 13
    with pytest.raises(ValueError, match="argument kind"):
        info.dtypes(kind="decimal")
    with pytest.raises(ValueError, match="argument device"):
        info.dtypes(device="gpu")


OPERATORS = {
    "abs": abs, "add": lambda x, y: x + y, "and": lambda x, y: (x > 0) & (y > 0), "floordiv": lambda x, y: x // y,
    "matmul": lambda x, y: x @ y, "mod": lambda x, y: x % y, "pow": lambda x, y: x ** y, "lt": lambda x, y: x < y,
    "neg": lambda x: -x, "invert": lambda x: ~(x > 0), "radd": lambda x: 2 + x, "rpow": lambda x: 2 ** x,
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_those_of_arrays(name):
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 1.0, 2.0])
    arguments = (x, y)[:len(inspect.signature(OPERATORS[name]).parameters)] if name != "abs" else (x,)
    found = OPERATORS[name](*map(Tensor, arguments))
    np.testing.assert_array_equal(found.numpy(), OPERATORS[name](*arguments))


def standardized(x):
    """As a library writes it that takes arrays of any kind."""
    xp = x.__array_namespace__()
    centered = x - xp.mean(x, axis=0, keepdims=True)
    scale = xp.sqrt(xp.mean(centered * centered, axis=0, keepdims=True))
    order = xp.argsort(scale[0, :], stable=True)
    return xp.take(centered / xp.where(scale == 0, xp.asarray(1.0), scale), order, axis=1)


def test_a_function_written_for_the_standard_runs_on_both():
    x = np.random.default_rng(0).standard_normal((5, 3))
    np.testing.assert_allclose(standardized(Tensor(x)).numpy(), standardized(x))
