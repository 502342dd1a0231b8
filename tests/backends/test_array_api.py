"""JAX, PyTorch and array-api-strict under the operators: results, gradients, batches, and what they do not take."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile, func, higher_order, ops
from pydispatch._registry.backends import dtype_like
from pydispatch.exceptions import (
    AutogradError,
    DataDependentError,
    DispatchError,
    DispatchTypeError,
    NoKernelError,
    UnsupportedError,
)
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves, tree_map
from tests.backends.libraries import LIBRARIES, library_named
from tests.backends.programs import PROGRAMS, X
from tests.numpy.calls import quietly
from tests.numpy.samples import SAMPLES

IN_DEFAULT_RUN = ("torch", "array_api_strict")
SLOW_JAX = pytest.param("jax", marks=pytest.mark.slow)      # it compiles each operator for each shape


@pytest.fixture(params=[*IN_DEFAULT_RUN, SLOW_JAX])
def library(request):
    return library_named(request.param)


MAKES_NUMPYS = {"tril_indices_from", "triu_indices_from", "diag_indices_from", "ix_", "meshgrid", "histogram",
                "histogram2d", "histogramdd", "histogram_bin_edges", "from_dlpack"}
"""Functions of shapes, of lists and of given edges, and conversions, whose results are NumPy's."""
DEPENDS_ON_VALUES = {"linalg.eig", "linalg.eigvals", "roots", "polydiv", "poly", "polymul", "trim_zeros"}
"""Functions whose dtype or shape NumPy reads off the values."""
OTHERWISE = {
    ("Torch", "linalg.eigh"): "the signs of eigenvectors are the library's",
    ("Torch", "linalg.svd"): "the signs of singular vectors are the library's",
    ("Torch", "searchsorted"): "nan has no last place",
    ("JAX", "linalg.eigh"): "the other triangle is read",
    ("JAX", "linalg.eigvalsh"): "the other triangle is read",
    ("JAX", "around"): "integers are not rounded to tens",
    ("JAX", "linalg.lstsq"): "the rank is a number",
    ("JAX", "polyfit"): "the rank is a number",
    ("JAX", "median"): "truth values have single precision",
    ("JAX", "convolve"): "lists are of floating-point numbers",
}
"""Functions of libraries that do something else than NumPy's for a sample, and what."""
NUMERIC = "biufc"


def named(name):
    found = pnp
    for part in name.split("."):
        found = getattr(found, part)
    return found


def samples_of_arrays(name):
    for sample in SAMPLES[name]:
        arrays = [leaf for leaf in tree_leaves((sample.args, sample.kwargs)) if isinstance(leaf, np.ndarray)]
        if arrays and all(array.dtype.kind in NUMERIC for array in arrays):
            yield sample


def check_leaf(library, name, found, expected, tolerance):
    if not isinstance(expected, (np.ndarray, np.generic)):
        return
    if not isinstance(found, library.array_type):
        assert name in MAKES_NUMPYS
        return
    found = library.numpy(found)
    if name not in DEPENDS_ON_VALUES:
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=max(tolerance, 1e-9), atol=max(tolerance, 1e-9))


def is_as_numpys(library, sample):
    """Return whether a call with the library's arrays equals NumPy's, or False if an error of ours explains why not."""
    function = named(sample.name)
    args, kwargs = tree_map(lambda leaf: library.array(leaf) if isinstance(leaf, np.ndarray) else leaf,
                            (sample.args, sample.kwargs))
    try:
        expected = quietly(function, sample.args, sample.kwargs)
    except (ValueError, BufferError):       # NumPy 2.0 exports no read-only array
        return True
    try:
        found = quietly(function, args, kwargs)
    except DispatchError:
        return False
    for left, right in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        check_leaf(library, sample.name, left, right, sample.tolerance)
    return True


LEAST = {"Torch": 1050, "ArrayAPIStrict": 1000, "JAX": 1110}
"""Samples that give what NumPy's do, at least; the others are errors that say why."""


def test_samples_are_as_numpys_or_refused_by_name(library):
    refused, n_equal = [], 0
    for name in SAMPLES:
        if (library.name, name) in OTHERWISE:
            continue
        for sample in samples_of_arrays(name):
            try:
                equal = is_as_numpys(library, sample)
            except np.linalg.LinAlgError:
                equal = name in DEPENDS_ON_VALUES
            except BaseException as error:
                error.add_note(f"{library.name}: {sample!r}")
                raise
            n_equal += equal
            refused += [] if equal else [repr(sample)]
    assert n_equal >= LEAST[library.name], refused


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_of_programs(library, name):
    program, args = PROGRAMS[name]
    arrays = [library.array(arg) for arg in args]
    check = lambda found, expected: (np.testing.assert_allclose(  # noqa: E731
        library.numpy(found), expected, rtol=1e-9, atol=1e-12))
    value, gradient = func.value_and_grad(program)(*arrays)
    expected = func.grad(program)(*args)
    assert isinstance(gradient, library.array_type)
    check(value, program(*args))
    check(gradient, expected)
    check(func.grad(program)(*arrays), expected)
    tangent = np.ones_like(args[0])
    found = func.jvp(lambda w: program(w, *arrays[1:]), (arrays[0],), (library.array(tangent),))[1]
    check(found, np.sum(expected * tangent))
    batch = np.stack([args[0], 1.1 * args[0]])
    found = func.vmap(func.grad(lambda w: program(w, *arrays[1:])))(library.array(batch))
    assert isinstance(found, library.array_type)
    check(found, np.stack([func.grad(program)(each, *args[1:]) for each in batch]))


def cubes(v):
    return pnp.sum(v * v * v)


def halved(w):
    return higher_order.while_loop(lambda v: pnp.sum(v) > 1, lambda v: (v / 2,), (w,))


TRANSFORMS = {
    "hessian": func.hessian(cubes), "vmap of hessian": lambda w: func.vmap(func.hessian(cubes))(pnp.stack([w, w])),
    "jacrev": func.jacrev(pnp.sin), "jacfwd": func.jacfwd(pnp.sin),
    "linearize": lambda w: func.linearize(pnp.sin, w)[1](w),
    "scan": lambda w: higher_order.scan(lambda c, v: (c + v * v, c * v), w[0], w),
    "grad of scan": func.grad(lambda w: higher_order.scan(lambda c, v: (c + v * v, c * v), w[0], w)[0]),
    "map": lambda w: higher_order.map(lambda v: v * 2, w), "while_loop": halved,
    "associative_scan": lambda w: higher_order.associative_scan(lambda a, b: a * b, w),
    "graph": lambda w: make_fx(func.grad(cubes))(w)(w),
    "graph of fakes": lambda w: make_fx(cubes, tracing_mode="fake")(w)(w),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_as_on_numpys_arrays(library, name):
    w = np.array([1.0, 2.0, 0.5])
    found, expected = TRANSFORMS[name](library.array(w)), TRANSFORMS[name](w)
    for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        assert isinstance(one, library.array_type)
        np.testing.assert_allclose(library.numpy(one), other, rtol=1e-12)


SELECTED = {
    "one array": lambda x: x[np.array([1, 1])], "two arrays": lambda x: x[np.array([0, 1]), np.array([1, 1])],
    "a row twice": lambda x: pnp.take(x, np.array([0, 2, 2]), axis=0),
    "of a vector": lambda x: pnp.ravel(x)[np.array([3, 3, 1])],
    "of two axes": lambda x: x[np.array([[0, 1], [1, 3]])],
    "written": lambda x: ops.np.index_put(x, np.array([0, 2]), 1.0),
}


@pytest.mark.parametrize("name", SELECTED)
def test_gradients_of_what_index_arrays_select(library, name):
    def loss(x):
        return pnp.sum(SELECTED[name](x) ** 2)

    np.testing.assert_allclose(library.numpy(func.grad(loss)(library.array(X))), func.grad(loss)(X))


@pytest.mark.parametrize("name", ["var", "std"])
def test_spread_takes_the_correction(library, name):
    def loss(x):
        return pnp.sum(getattr(pnp, name)(x, axis=0, ddof=1, keepdims=True) * x)

    np.testing.assert_allclose(library.numpy(loss(library.array(X))), loss(X))
    np.testing.assert_allclose(library.numpy(func.grad(loss)(library.array(X))), func.grad(loss)(X))


def test_what_depends_on_values_is_refused_in_a_batch(library):
    with pytest.raises(DataDependentError, match=r"how many elements numpy\.nonzero, unique and the like return"):
        func.vmap(lambda row: pnp.sum(pnp.unique(row)))(library.array(X))


def test_cotangents_take_the_dtype_of_results(library):
    x, g = library.array(np.ones(3)), library.array(np.ones(3, "f4"))
    found, = func.vjp(pnp.sin, x)[1](g)
    np.testing.assert_allclose(library.numpy(found), np.cos(np.ones(3)), rtol=1e-12)
    with pytest.raises(DispatchTypeError, match="expected a NumPy array"):
        compile(cubes)(x)
    with pytest.raises(AutogradError, match="dtype"):
        func.linearize(pnp.sin, x)[1](g)
    with pytest.raises(DispatchTypeError, match="trace again"):
        make_fx(cubes)(x)(g)


def test_jax_in_a_few_calls():
    jax = library_named("jax")
    x = jax.array(np.array([0.5, 1.0, 2.0]))
    assert isinstance(ops.np.sin(x), jax.array_type)
    np.testing.assert_allclose(ops.np.sin(x), np.sin([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(func.grad(lambda x: pnp.sum(x[1:] * pnp.sin(x[:2])))(x),
                               func.grad(lambda x: pnp.sum(x[1:] * pnp.sin(x[:2])))(np.array([0.5, 1.0, 2.0])))
    with pytest.raises(UnsupportedError, match="cannot be written to"):
        ops.np.add_(x, x)


def test_our_functions_under_jax():
    library_named("jax")
    import jax
    x = jax.numpy.asarray([0.5, 1.0, 2.0])
    np.testing.assert_allclose(jax.jit(lambda x: pnp.cos(x))(x), np.cos(np.asarray(x)), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: pnp.sum(pnp.sin(x)))(x), np.cos(np.asarray(x)), rtol=1e-6)


SINGLE = np.array([0.5, 1.0], np.float32)


@pytest.mark.parametrize("name", ["torch", "array_api_strict"])
def test_dtypes_stay(name):
    library = library_named(name)
    x = library.array(SINGLE)
    gradient = func.grad(lambda x: pnp.sum(pnp.sin(x) * 2.0))(x)
    assert gradient.dtype == x.dtype
    assert Tensor(x).dtype == np.float32
    assert ops.np.astype(x, library.array(np.ones(1)).dtype).dtype == library.array(np.ones(1)).dtype
    assert ops.np.add(library.array(np.arange(2)), 1.5).dtype == library.array(np.ones(1)).dtype


def test_dtypes_go_by_name():
    assert dtype_like("library.float32") == np.float32
    with pytest.raises(DispatchTypeError, match=r"library.float99: NumPy has no dtype.*\n.*convert"):
        dtype_like("library.float99")


def test_numpys_arrays_join_in(library):
    x = library.array(SINGLE.astype(float))
    found = ops.np.multiply(x, np.array([2.0, 3.0]))
    assert isinstance(found, library.array_type)
    assert library.numpy(found).tolist() == [1.0, 3.0]


def test_two_libraries_in_one_call():
    torch, strict = library_named("torch"), library_named("array_api_strict")
    with pytest.raises(DispatchTypeError, match=r"(?s)Torch.*ArrayAPIStrict.*above=|ArrayAPIStrict.*Torch.*above="):
        ops.np.add(torch.array(SINGLE), strict.array(SINGLE))


def test_what_is_missing_is_named():
    strict = library_named("array_api_strict")
    with pytest.raises(NoKernelError, match=r"np::i0: no kernel for the key ArrayAPIStrict(?s:.*)has no i0"):
        pnp.i0(strict.array(SINGLE))


def test_what_a_library_refuses_is_named():
    torch = library_named("torch")
    with pytest.raises(UnsupportedError, match=r"array_api_compat.torch.sort: (?s:.*)register a kernel"):
        ops.np.sort(torch.array(np.array([1j, 2.0])))


def test_nothing_is_imported_by_us():
    code = ("import sys, pydispatch, pydispatch.numpy, pydispatch.backends as b, numpy as np\n"
            "pydispatch.numpy.sum(np.ones(3))\n"
            "print(*[name for name in sys.modules if name in "
            "('jax', 'torch', 'array_api_strict', 'array_api_compat', 'numpy.ma')])")
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


@pytest.mark.parametrize("name", LIBRARIES)
def test_each_library_has_an_entry_point(name):
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'{name} = "pydispatch.backends.{name}"' in project
