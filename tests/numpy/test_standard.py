"""The Python array API standard: every name, the information that namespaces give, and libraries that use it."""

import inspect
import subprocess
import sys

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile, func
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy import tensors
from pydispatch.tracing import make_fx
from tests.together import together

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
cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose
outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()     # noqa: SIM905  a list of 170 quoted names reads worse
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift".split()   # noqa: SIM905
ALIASES = {"abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
           "atan": "arctan", "atan2": "arctan2", "atanh": "arctanh", "bitwise_invert": "invert",
           "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "concat": "concatenate",
           "conj": "conjugate", "permute_dims": "transpose", "pow": "power"}


@together("name", [*NAMES, *[f"linalg.{name}" for name in LINALG], *[f"fft.{name}" for name in FFT]])
def test_every_name_of_the_standard_is_there(name):
    namespace = Tensor(np.ones(1)).__array_namespace__()
    for part in name.split("."):
        namespace = getattr(namespace, part)


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_are_the_same_objects(alias):
    assert getattr(pnp, alias) is getattr(pnp, ALIASES[alias])


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"])
def test_the_namespace_of_a_tensor(version):
    assert Tensor(np.ones(1)).__array_namespace__(api_version=version) is tensors


def test_an_unknown_version_is_refused():
    with pytest.raises(ValueError, match=r"2019\.12"):
        Tensor(np.ones(1)).__array_namespace__(api_version="2019.12")


def test_what_the_namespace_tells_about_itself():
    info = pnp.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"]
    assert info.default_device() == "cpu"
    assert info.devices() == ("cpu",)
    assert info.default_dtypes()["indexing"] == np.intp
    assert info.dtypes(kind="real floating") == {"float32": np.dtype("f4"), "float64": np.dtype("f8")}
    assert len(info.dtypes(kind=("bool", "integral"))) == 9
    assert len(info.dtypes()) == 13
    with pytest.raises(ValueError, match="argument kind"):
        info.dtypes(kind="decimal")
    with pytest.raises(ValueError, match="argument device"):
        info.dtypes(device="gpu")


def test_the_namespace_of_tensors_tells_the_device_of_tensors():
    x = Tensor(np.ones(2))
    info = x.__array_namespace__().__array_namespace_info__()
    assert info.default_device() == x.device
    assert info.devices() == (x.device,)
    assert info.dtypes(device=x.device, kind="bool") == {"bool": np.dtype(bool)}


@pytest.mark.parametrize("make", [
    lambda xp, device: xp.asarray([1.0, 2.0], device=device), lambda xp, device: xp.zeros(2, device=device),
    lambda xp, device: xp.arange(3, device=device), lambda xp, device: xp.full(2, 1.5, device=device),
    lambda xp, device: xp.linspace(0, 1, 3, device=device), lambda xp, device: xp.eye(2, device=device),
    lambda xp, device: xp.fft.fftfreq(4, device=device), lambda xp, device: xp.empty((0, 2), device=device),
])
@pytest.mark.parametrize("x", [np.ones(1), Tensor(np.ones(1))], ids=["array", "Tensor"])
def test_arrays_are_made_on_the_device_of_another(make, x):
    namespace = pnp if isinstance(x, np.ndarray) else x.__array_namespace__()
    found, expected = make(namespace, x.device), make(np, "cpu")
    assert type(found) is type(x)
    assert found.device == x.device
    np.testing.assert_array_equal(np.asarray(found), expected, strict=True)
    assert type(make(pnp, x.device)) is np.ndarray


@pytest.mark.parametrize("function", [pnp.zeros_like, pnp.ones_like, pnp.empty_like,
                                      lambda x, device: pnp.full_like(x, 2.0, device=device),
                                      lambda x, device: pnp.astype(x, pnp.float32, device=device)])
def test_tensors_are_made_on_the_device_of_another(function):
    x = Tensor(np.ones(2))
    assert type(function(x, device=x.device)) is Tensor
    with pytest.raises(ValueError, match="cpu"):
        function(x, device="gpu")


def test_lists_of_tensors_become_tensors_with_gradients():
    x = Tensor(np.ones(2), requires_grad=True)
    namespace = x.__array_namespace__()
    assert namespace.asarray(x) is x
    assert namespace.array([x, x]).requires_grad


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


ATTRIBUTES = """
T mT device dtype ndim shape size to_device __abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__
__dlpack_device__ __eq__ __float__ __floordiv__ __ge__ __getitem__ __gt__ __iadd__ __iand__ __ifloordiv__ __ilshift__
__imod__ __imul__ __index__ __int__ __invert__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__ __ixor__
__le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rand__
__rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__
__rxor__ __setitem__ __sub__ __truediv__ __xor__
""".split()     # noqa: SIM905  a list of 70 quoted names reads worse


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_tensor_has_every_attribute_of_the_standard(name):
    assert hasattr(Tensor(np.ones((1, 1))), name)


SIGNATURES = """
from inspect import signature
import numpy
from pydispatch import Tensor
x = Tensor(numpy.ones(1))
assert list(signature(x.__array_namespace__).parameters) == ["api_version"]
assert list(signature(x.__dlpack__).parameters) == ["stream", "max_version", "dl_device", "copy"]
assert list(signature(x.to_device).parameters) == ["device", "stream"]
assert list(signature(Tensor.sort).parameters) == ["self", "axis", "kind", "order", "stable"]
"""


def test_methods_tell_their_signatures_before_they_are_used():
    subprocess.run([sys.executable, "-c", SIGNATURES], check=True)


def test_functions_name_the_arguments_of_the_standard():
    assert inspect.signature(pnp.vecdot).parameters["axis"].default == -1


@pytest.mark.parametrize(("limits", "named", "expected"), [
    ((0.0,), {}, [0.0, 0.5, 2.0]), ((0.0,), {"max": 1.0}, [0.0, 0.5, 1.0]), ((), {"max": 1.0}, [-1.0, 0.5, 1.0]),
    ((0.0, 1.0), {}, [0.0, 0.5, 1.0]), ((None, 1.0), {}, [-1.0, 0.5, 1.0]), ((), {}, [-1.0, 0.5, 2.0]),
])
def test_the_standards_clip_takes_one_limit(limits, named, expected):
    assert tensors.clip(Tensor(np.array([-1.0, 0.5, 2.0])), *limits, **named).tolist() == expected


def test_the_standards_argsort_keeps_the_order_of_equal_elements():
    x = np.arange(64, dtype=np.int32) % 3
    np.testing.assert_array_equal(tensors.argsort(Tensor(x)).numpy(), np.argsort(x, stable=True))
    np.testing.assert_array_equal(tensors.argsort(Tensor(x), descending=True).numpy(), np.argsort(-x, stable=True))
    assert not tensors.argsort(Tensor(x), kind="quicksort").requires_grad


def standardized(x):
    """Standardize like a library that takes arrays of any kind."""
    xp = x.__array_namespace__()
    centered = x - xp.mean(x, axis=0, keepdims=True)
    scale = xp.sqrt(xp.mean(centered * centered, axis=0, keepdims=True))
    order = xp.argsort(scale[0, :], stable=True)
    return xp.take(centered / xp.where(scale == 0, xp.asarray(1.0), scale), order, axis=1)


def test_a_function_written_for_the_standard_runs_on_both():
    x = np.random.default_rng(0).standard_normal((5, 3))
    np.testing.assert_allclose(standardized(Tensor(x)).numpy(), standardized(x))


def assigned(x, key, value):
    """Assign as libraries do: to what they have computed, unless it is a NumPy or JAX scalar."""
    assert x.__array_namespace__() is tensors
    x[key] = value
    return x


def corrected(x):
    """Return functions, operators and elements whose results are scalars in NumPy, and arrays in the standard."""
    xp = x.__array_namespace__()
    total = assigned(xp.vecdot(x, x), xp.asarray(False), 7.0)
    square = assigned(total * total, (), x[1] ** 3 + total)
    element = assigned(x[0], ..., x[0] * square)
    held = element
    element += x[2]                 # rebinds, as in NumPy
    return element * total + held


def expected_of_corrected(x):
    element = x[0] * (x[1] ** 3 + x @ x)
    return (element + x[2]) * (x @ x) + element


RUNS = {
    "Tensor": lambda f: lambda x: f(Tensor(x)), "functionalize": func.functionalize, "grad": func.grad,
    "hessian": func.hessian, "compile": compile, "compile grad": lambda f: compile(func.grad(f)),
    "grad compile": lambda f: func.grad(compile(f)), "grad functionalize": lambda f: func.grad(func.functionalize(f)),
    "jvp": lambda f: lambda x: func.jvp(f, (x,), (x,))[1], "linearize": lambda f: lambda x: func.linearize(f, x)[1](x),
    "vmap": lambda f: lambda x: func.vmap(f)(np.stack([x * 2, x]))[1],
    "vmap grad": lambda f: lambda x: func.vmap(func.grad(f))(np.stack([x * 2, x]))[1],
    "make_fx": lambda f: lambda x: make_fx(f)(Tensor(x * 0))(Tensor(x)),
}


@pytest.mark.parametrize("name", RUNS)
def test_scalars_are_arrays_to_code_for_the_standard(name):
    run, x = RUNS[name], np.array([1.0, 2.0, 3.0])
    found = run(lambda x: corrected(x if isinstance(x, Tensor) else Tensor(x)))(x)
    np.testing.assert_allclose(np.asarray(found), np.asarray(run(expected_of_corrected)(x)), rtol=1e-12)


def test_a_scalar_takes_no_writes_where_nothing_asked_for_its_namespace():
    x = Tensor(np.array([1.0, 2.0]))
    asked = x.sum()
    assert asked.__array_namespace__() is tensors
    for scalar in (x[0], x.sum(), x[0] * 2, asked * 1, asked.detach()):
        with pytest.raises(DispatchTypeError, match="immutable"):
            scalar[...] = 3.0
    view = x[0, ...]
    assert view.__array_namespace__() is tensors
    view += 1
    assert x.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["sort", "argsort"])
@pytest.mark.parametrize(("shape", "axis"), [((7,), -1), ((3, 4), 0), ((3, 4), None), ((0,), 0), ((2, 0), 1)])
@together("dtype", [float, np.float32, complex, int, np.uint8, bool])
def test_descending_order_has_nan_last_and_keeps_equal_elements_in_order(name, dtype, shape, axis):
    x = np.random.default_rng(0).integers(0, 3, shape).astype(dtype)
    if np.issubdtype(dtype, np.inexact):
        x[x == 1] = np.nan
    vectors = np.moveaxis(x.reshape(-1) if axis is None else x, axis or 0, -1)
    order = np.empty(vectors.shape, int)
    for i in np.ndindex(vectors.shape[:-1]):
        order[i] = sorted(range(vectors.shape[-1]), key=lambda j, row=vectors[i]: (bool(np.isnan(row[j])), -float(
            0 if np.isnan(row[j]) else row[j].real)))
    expected = order if name == "argsort" else np.take_along_axis(vectors, order, -1)
    for way in (np.asarray, Tensor):
        found = getattr(pnp, name)(way(x), axis, descending=True, stable=True)
        found = found.numpy() if isinstance(found, Tensor) else found
        np.testing.assert_array_equal(np.moveaxis(found, axis or 0, -1), expected)
        assert found.dtype == expected.dtype
