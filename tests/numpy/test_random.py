"""`pydispatch.numpy.random` against `numpy.random`: the same numbers from the same seed, and what Tensors add."""

import copy
import inspect
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import special, stats

from pydispatch import Tensor, compile, ops
from pydispatch.autograd import grad
from pydispatch.exceptions import DispatchTypeError, VmapError
from pydispatch.func import functionalize, jvp, vmap
from pydispatch.func import grad as func_grad
from pydispatch.higher_order import cond, scan
from pydispatch.numpy import random
from pydispatch.testing import gradcheck, gradgradcheck
from pydispatch.tracing import FakeMode, make_fx
from pydispatch.tree import tree_map
from tests.together import together

SEED = 11
A, B = np.array([0.5, 1.5, 4.0]), np.array([[2.0], [0.75]])
COUNTS, MATRIX = np.array([3, 10, 7]), np.arange(12.0).reshape(3, 4)
COV = np.array([[2.0, 0.5, -0.25], [0.5, 1.0, 0.25], [-0.25, 0.25, 1.5]])
PVALS = np.array([[0.25, 0.5, 0.25], [0.1, 0.3, 0.6]])


class Call(NamedTuple):
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __repr__(self) -> str:
        shown = [str(np.shape(value)) if isinstance(value, np.ndarray) else repr(value)
                 for value in (*self.args, *self.kwargs.values())]
        return f"{self.name}-{'-'.join(shown)}".replace(" ", "")


def call(name: str, *args: Any, **kwargs: Any) -> Call:
    return Call(name, args, kwargs)


PARAMETERS: dict[str, tuple[Any, ...]] = {
    "uniform": (A, A + B), "normal": (A, B), "exponential": (A,), "laplace": (A, B), "logistic": (A, B),
    "gumbel": (A, B), "rayleigh": (A,), "lognormal": (A, B), "weibull": (A,), "pareto": (A,), "power": (A,),
    "triangular": (-A, A / 2, A + B), "gamma": (A, B), "standard_gamma": (A,), "beta": (A, B), "chisquare": (A,),
    "noncentral_chisquare": (A, B), "f": (A, B), "noncentral_f": (A, B, 2.0), "standard_t": (A,), "wald": (A, B),
    "vonmises": (A - 1, B), "binomial": (COUNTS, A / 5), "negative_binomial": (COUNTS, A / 5), "poisson": (A,),
    "geometric": (A / 5,), "hypergeometric": (COUNTS, 5, COUNTS[::-1] // 2), "logseries": (A / 5,), "zipf": (A + 1,),
}
"""Parameters that broadcast, for every distribution of numbers that has some."""
SMOOTH = ["uniform", "normal", "exponential", "laplace", "logistic", "gumbel", "rayleigh", "lognormal", "weibull",
          "pareto", "power", "triangular", "gamma", "standard_gamma", "beta", "chisquare", "f", "standard_t", "wald",
          "vonmises", "noncentral_chisquare", "noncentral_f"]
"""Distributions with a derivative."""
INTEGERS = ["binomial", "negative_binomial", "poisson", "geometric", "hypergeometric", "logseries", "zipf", "integers",
            "multinomial", "multivariate_hypergeometric"]
STANDARD = ["random", "standard_normal", "standard_exponential", "standard_cauchy"]
CALLS = [
    *(call(name, *parameters) for name, parameters in PARAMETERS.items()),
    *(call(name, *parameters, size=(4, 2, 3)) for name, parameters in PARAMETERS.items()),
    *(call(name, *(np.asarray(value).flat[0].item() for value in parameters)) for name, parameters in
      PARAMETERS.items()),
    *(call(name, *(np.asarray(value).flat[-1] for value in parameters), size=3) for name, parameters in
      PARAMETERS.items()),
    *(call(name, *(np.asarray(value).tolist() for value in parameters), size=(0, 2, 3)) for name, parameters in
      PARAMETERS.items()),
    *(call(name, size=size) for name in (*STANDARD, "normal", "uniform", "laplace", "lognormal", "rayleigh", "poisson")
      for size in (None, (), 3, (2, 3), [2, 3], np.int64(2), (0,))),
    *(call(name, size=(2, 3), dtype=dtype) for name in STANDARD[:3] for dtype in (np.float32, "float64", np.float64)),
    call("standard_gamma", A, dtype=np.float32), call("standard_gamma", 2.0, (2, 3), "f"),
    call("standard_exponential", (3,), method="inv"), call("standard_exponential", (3,), np.float32, "inv"),
    call("integers", 5), call("integers", 2, 7, 3), call("integers", 0, COUNTS), call("integers", [3, 4], size=(2, 2)),
    call("integers", 9, size=4, dtype=np.uint8), call("integers", 0, 1, (2,), bool, True),
    call("integers", 0, 3, endpoint=True, size=5), call("integers", 0, 9, dtype="int32"),
    call("dirichlet", A), call("dirichlet", A, 4), call("dirichlet", A / 50, (2, 2)), call("dirichlet", [1, 2.0], (0,)),
    call("multinomial", 5, PVALS[0]), call("multinomial", 5, PVALS), call("multinomial", COUNTS[:2], PVALS, (3, 2)),
    call("multinomial", 5, [0.5, 0.5], 3), call("multinomial", COUNTS[:, None], PVALS),
    call("multivariate_normal", A, COV), call("multivariate_normal", A, COV, (2, 2)),
    call("multivariate_normal", A, COV, 3, method="cholesky"), call("multivariate_normal", [0, 1], np.eye(2).tolist()),
    call("multivariate_normal", A, COV, check_valid="raise", tol=1e-6, method="eigh"),
    call("multivariate_hypergeometric", COUNTS, 4), call("multivariate_hypergeometric", COUNTS, 4, (2, 2)),
    call("multivariate_hypergeometric", [3, 4], 2, 3, "count"),
    call("choice", 5), call("choice", 5, 3), call("choice", 5, (2, 2), p=[0.1, 0.2, 0.3, 0.2, 0.2]), call("choice", A),
    call("choice", A, 2, False), call("choice", A, (2, 2), p=A / 6), call("choice", A, 2, False, A / 6),
    call("choice", MATRIX, 2, axis=1), call("choice", MATRIX, (2, 2), axis=-1), call("choice", MATRIX),
    call("choice", [1.0, 2, 3], 2), call("choice", 7, 4, replace=False, shuffle=False), call("choice", 3, 0),
    call("permutation", 5), call("permutation", A), call("permutation", MATRIX), call("permutation", MATRIX, 1),
    call("permutation", MATRIX, axis=-1), call("permutation", [3, 1, 2]), call("permutation", np.int8(4)),
    call("permuted", A), call("permuted", MATRIX), call("permuted", MATRIX, axis=0), call("permuted", MATRIX, axis=1),
    call("permuted", MATRIX, axis=-1), call("permuted", [[3, 1, 2]], axis=1), call("permuted", MATRIX[:0], axis=1),
]
EACH = together("sample", CALLS, ids=repr)


def rng() -> random.Generator:
    return random.default_rng(SEED)


def state_of(generator: np.random.Generator) -> Any:
    return generator.bit_generator.state


def theirs(sample: Call) -> tuple[Any, Any]:
    """Return NumPy's draws, and the state of the generator afterwards."""
    generator = np.random.default_rng(SEED)
    return getattr(generator, sample.name)(*sample.args, **sample.kwargs), state_of(generator)


def replaced(function: Callable[[np.ndarray], Any], sample: Call) -> Call:
    return Call(sample.name, *tree_map(
        lambda leaf: function(leaf) if isinstance(leaf, np.ndarray) else leaf, (sample.args, sample.kwargs)))


def drawn(generator: Any, sample: Call) -> Any:
    return getattr(generator, sample.name)(*sample.args, **sample.kwargs)


def check_same(found: Any, expected: Any) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected, strict=True)


def has_arrays(sample: Call) -> bool:
    return any(isinstance(value, np.ndarray) for value in (*sample.args, *sample.kwargs.values()))


# --- values ----------------------------------------------------------------------------------------------------------


def test_every_method_of_numpys_generator_is_there_with_its_signature():
    methods = {name for name in dir(np.random.Generator) if callable(getattr(np.random.Generator, name))
               and not name.startswith("_")}
    ours = {name for name, value in vars(random.Generator).items() if isinstance(value, random.GeneratorMethod)}
    assert methods - ours == {"spawn"}
    assert ours - {sample.name for sample in CALLS} == {"bytes", "shuffle"}
    for name in ours:
        try:
            expected = inspect.signature(getattr(np.random.default_rng(0), name))
        except ValueError:
            continue
        found = inspect.signature(getattr(rng(), name))
        assert list(found.parameters) == list(expected.parameters), name
        for parameter, of_numpy in zip(found.parameters.values(), expected.parameters.values(), strict=True):
            assert (parameter.kind, parameter.default) == (of_numpy.kind, of_numpy.default), name
        assert getattr(rng(), name).__doc__ == getattr(np.random.Generator, name).__doc__


@EACH
def test_arrays_go_in_and_out(sample):
    expected, state = theirs(sample)
    for function in ("__call__", "on_tensors"):
        generator = rng()
        found = getattr(getattr(generator, sample.name), function)(*sample.args, **sample.kwargs)
        assert not isinstance(found, Tensor)
        check_same(found, expected)
        assert state_of(generator) == state


@EACH
def test_tensors_give_tensors_with_the_same_values(sample):
    if not has_arrays(sample):
        return
    expected, state = theirs(sample)
    generator = rng()
    found = drawn(generator, replaced(Tensor, sample))
    assert type(found) is Tensor
    check_same(found.array, expected)
    assert state_of(generator) == state


@EACH
def test_in_fake_mode_the_shape_is_known_and_nothing_is_drawn(sample):
    expected = np.asarray(theirs(sample)[0])
    generator = rng()
    with FakeMode(allow_real_inputs=True) as mode:
        found = drawn(generator, replaced(mode.from_array, sample))
    assert (tuple(found.shape), found.dtype) == (expected.shape, expected.dtype)
    assert state_of(generator) == state_of(rng())


@pytest.mark.parametrize("mode", ["real", "fake"])
@EACH
def test_draws_stay_in_traces(sample, mode):
    places = [i for i, value in enumerate(sample.args) if isinstance(value, np.ndarray)]

    def f(generator: Any, *arrays: Any) -> Any:
        args = list(sample.args)
        for i, array in zip(places, arrays, strict=True):
            args[i] = array
        return getattr(generator, sample.name)(*args, **sample.kwargs)

    arrays = [sample.args[i] for i in places]
    graph = make_fx(f, tracing_mode=mode)(random.default_rng(0), *arrays)
    assert any("random_" in str(node.target) for node in graph.find_nodes(op="call_function"))
    expected, state = theirs(sample)
    generator = rng()
    check_same(graph(generator, *arrays), expected)
    assert state_of(generator) == state


@EACH
def test_vmap_asks_whether_examples_share_a_draw(sample):
    with pytest.raises(VmapError, match="randomness"):
        vmap(lambda x: drawn(rng(), sample))(np.zeros(3))
    found = vmap(lambda x: drawn(rng(), sample), randomness="same")(np.zeros(3))
    check_same(found, np.stack([theirs(sample)[0]] * 3))


@EACH
def test_vmap_gives_examples_draws_of_their_own(sample):
    expected = np.asarray(theirs(sample)[0])
    places = [i for i, value in enumerate(sample.args) if isinstance(value, np.ndarray)]

    def f(*arrays: Any) -> Any:
        args = list(sample.args)
        for i, array in zip(places, arrays, strict=True):
            args[i] = array
        return getattr(generator, sample.name)(*args, **sample.kwargs)

    for chosen in ([], places, places[:1]):
        batches = [np.stack([sample.args[i]] * 3) if i in chosen else sample.args[i] for i in places]
        generator = rng()
        in_dims = (0, *(0 if i in chosen else None for i in places))
        found = vmap(lambda x, *arrays: f(*arrays), in_dims, randomness="different")(np.zeros(3), *batches)
        assert (found.shape, found.dtype) == ((3, *expected.shape), expected.dtype)
        assert state_of(generator) != state_of(rng()) or not expected.size
        n = len(PARAMETERS.get(sample.name, ()))
        if not chosen and len(sample.args) <= n and sample.name in (*PARAMETERS, *STANDARD):
            larger = Call(sample.name, sample.args, {**sample.kwargs, "size": (3, *expected.shape)})
            check_same(found, theirs(larger)[0])


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_batch_of_parameters_is_one_draw(name):
    parameters = [np.broadcast_to(value, (2, 3)) for value in PARAMETERS[name]]
    generator = rng()
    found = vmap(lambda *values: getattr(generator, name)(*values), randomness="different")(*parameters)
    check_same(found, getattr(np.random.default_rng(SEED), name)(*parameters))
    with pytest.raises(VmapError, match="randomness='same'"):
        vmap(lambda *values: getattr(rng(), name)(*values), randomness="same")(*parameters)


@pytest.mark.parametrize(("name", "parameters"), [
    ("dirichlet", (np.stack([A, B[0] * A]),)),
    ("multivariate_normal", (np.stack([A, A + 1]), np.stack([COV, 2 * COV]))),
    ("multinomial", (np.array([4, 9]), PVALS)), ("choice", (np.stack([A, -A]),)), ("permutation", (MATRIX,)),
    ("permuted", (MATRIX,)),
], ids=lambda value: value if isinstance(value, str) else "")
def test_vectors_of_a_batch_are_drawn_one_after_the_other(name, parameters):
    generator, expected = rng(), np.random.default_rng(SEED)
    found = vmap(lambda *values: getattr(generator, name)(*values), randomness="different")(*parameters)
    check_same(found, np.stack([getattr(expected, name)(*values) for values in zip(*parameters, strict=True)]))
    assert state_of(generator) == state_of(expected)


@EACH
def test_functionalize_draws_alike(sample):
    one, other = rng(), rng()
    check_same(functionalize(lambda: drawn(one, sample))(), drawn(other, sample))
    assert state_of(one) == state_of(other)


@pytest.mark.parametrize("sample", [
    call("normal", A, size=2), call("gamma", 1j), call("gamma", A, size=(2,)), call("choice", [], 2),
    call("choice", 5, p=[0.5, 0.5]), call("choice", 3, 5, False), call("permuted", MATRIX, axis=2),
    call("permutation", MATRIX, 3), call("dirichlet", [[1.0]]), call("multivariate_normal", [[0.0]], [[1.0]]),
    call("multivariate_normal", [0.0, 1], [[1.0]]), call("multinomial", 3, []), call("multinomial", 3, 0.5),
    call("random", dtype=int), call("random", (2,), out=np.zeros(3)), call("gamma", -1.0), call("integers", 3, 2),
    call("multivariate_hypergeometric", [[3]], 1), call("beta"), call("normal", 1, 2, 3, 4), call("shuffle", 3),
], ids=repr)
def test_what_numpy_refuses_is_refused(sample):
    with pytest.raises((TypeError, ValueError, IndexError)) as expected:
        theirs(sample)
    with pytest.raises(expected.type):
        drawn(rng(), sample)
    if len(sample.args) < 4 and sample.name != "beta":
        with pytest.raises((TypeError, ValueError, IndexError)):
            getattr(rng(), sample.name).on_tensors(*sample.args, **sample.kwargs)
        with pytest.raises((TypeError, ValueError, IndexError)):
            drawn(rng(), replaced(Tensor, Call(sample.name, tuple(
                np.asarray(value) if isinstance(value, list) else value for value in sample.args), sample.kwargs)))


# --- out, in place ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["random", "standard_normal", "standard_exponential", "standard_gamma"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_out(name, dtype):
    args = (2.0,) if name == "standard_gamma" else ()
    expected = getattr(np.random.default_rng(SEED), name)(*args, size=(2, 3), dtype=dtype)
    for make in (np.asarray, Tensor):
        out = make(np.zeros((2, 3), dtype))
        for size in (None, (2, 3)):
            assert getattr(rng(), name)(*args, size=size, dtype=dtype, out=out) is out
            check_same(out if isinstance(out, np.ndarray) else out.array, expected)
    out = Tensor(np.zeros((2, 3)))
    assert rng().permuted(Tensor(MATRIX[:2, :3]), axis=1, out=out) is out
    check_same(out.array, np.random.default_rng(SEED).permuted(MATRIX[:2, :3], axis=1))


@pytest.mark.parametrize(("x", "axis"), [(A, 0), (MATRIX, 0), (MATRIX, 1), (MATRIX, -1)], ids=["1", "0", "2", "-1"])
def test_shuffle(x, axis):
    expected = x.copy()
    np.random.default_rng(SEED).shuffle(expected, axis)
    for make in (np.copy, lambda x: Tensor(x.copy())):
        found = make(x)
        assert rng().shuffle(found, axis) is None
        check_same(found if isinstance(found, np.ndarray) else found.array, expected)
    values = [Tensor(value) for value in x]
    rng().shuffle(values)
    check_same(np.stack([value.array for value in values]), np.random.default_rng(SEED).permutation(x))

    def f(x: Any) -> Any:
        y = ops.np.copy(x)
        rng().shuffle(y, axis)
        return y

    check_same(make_fx(f)(x)(x), expected)
    check_same(functionalize(f)(x), expected)
    check_same(vmap(f, randomness="same")(np.stack([x, -x])), np.stack([expected, -expected]))


# --- derivatives -----------------------------------------------------------------------------------------------------

QUANTILES: dict[str, Callable[..., Any]] = {
    "standard_gamma": lambda q, shape: special.gammaincinv(shape, q),
    "gamma": lambda q, shape, scale: scale * special.gammaincinv(shape, q),
    "beta": lambda q, a, b: special.betaincinv(a, b, q),
    "chisquare": lambda q, df: 2 * special.gammaincinv(df / 2, q),
    "f": lambda q, dfnum, dfden: special.fdtri(dfnum, dfden, q),
    "standard_t": lambda q, df: special.stdtrit(df, q),
}
CUMULATIVE: dict[str, Callable[..., Any]] = {
    "standard_gamma": lambda x, shape: special.gammainc(shape, x),
    "gamma": lambda x, shape, scale: special.gammainc(shape, x / scale),
    "beta": lambda x, a, b: special.betainc(a, b, x),
    "chisquare": lambda x, df: special.gammainc(df / 2, x / 2),
    "f": lambda x, dfnum, dfden: special.fdtr(dfnum, dfden, x),
    "standard_t": lambda x, df: special.stdtr(df, x),
}
"""SciPy's, of the distributions that are differentiated implicitly."""


def shifted(parameters: tuple[Any, ...], i: int, step: float) -> list[Any]:
    return [value + step if k == i else value for k, value in enumerate(parameters)]


def moved(name: str, parameters: tuple[Any, ...], i: int, size: Any, step: float) -> np.ndarray:
    """Return the draw for a changed parameter: by the same random numbers, or at the same quantile."""
    if name in QUANTILES:
        drawn = getattr(np.random.default_rng(SEED), name)(*parameters, size=size)
        return QUANTILES[name](CUMULATIVE[name](drawn, *parameters), *shifted(parameters, i, step))
    return getattr(np.random.default_rng(SEED), name)(*shifted(parameters, i, step), size=size)


BY_DENSITY = ("wald", "vonmises", "noncentral_chisquare", "noncentral_f")


@pytest.mark.parametrize("name", [name for name in SMOOTH if name not in BY_DENSITY])
def test_derivatives_are_those_of_the_draw_for_the_same_random_numbers(name):
    parameters = tuple(np.broadcast_to(value, (2, 3)) for value in PARAMETERS[name])
    step = 1e-5
    for i in range(len(parameters)):
        with np.errstate(all="ignore"):
            expected = (moved(name, parameters, i, None, step) - moved(name, parameters, i, None, -step)) / (2 * step)
        direction = [np.ones((2, 3)) * (k == i) for k in range(len(parameters))]
        _, tangent = jvp(lambda *values: getattr(rng(), name)(*values), parameters, tuple(direction))
        np.testing.assert_allclose(tangent, expected, rtol=2e-6, atol=1e-8)
        leaves = [Tensor(value.copy(), requires_grad=True) for value in parameters]
        found = grad(getattr(rng(), name)(*leaves).sum(), leaves)
        np.testing.assert_allclose(found[i].array, expected, rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("name", SMOOTH)
def test_parameters_that_broadcast_get_gradients_of_their_shape(name):
    leaves = [Tensor(np.asarray(value), requires_grad=True) for value in PARAMETERS[name]]
    whole = [Tensor(np.broadcast_to(value, (5, 2, 3)).copy(), requires_grad=True) for value in PARAMETERS[name]]
    found = grad(getattr(rng(), name)(*leaves, size=(5, 2, 3)).sum(), leaves)
    expected = grad(getattr(rng(), name)(*whole).sum(), whole)
    for gradient, leaf, parts in zip(found, leaves, expected, strict=True):
        assert gradient.shape == leaf.shape
        axes = tuple(range(3 - leaf.ndim)) + tuple(3 - leaf.ndim + i for i, n in enumerate(leaf.shape) if n == 1)
        summed = parts.array.sum(axes, keepdims=True).reshape(leaf.shape)
        np.testing.assert_allclose(gradient.array, summed, rtol=1e-12)


EXPLICIT = [name for name in SMOOTH if name not in (*QUANTILES, *BY_DENSITY)]


@pytest.mark.parametrize("name", EXPLICIT)
def test_gradcheck(name):
    leaves = [Tensor(np.asarray(value, float).copy(), requires_grad=True) for value in PARAMETERS[name]]
    gradcheck(lambda *values: getattr(rng(), name)(*values), leaves, check_forward_ad=True)
    gradgradcheck(lambda *values: getattr(rng(), name)(*values) ** 2, leaves, check_fwd_over_rev=True)


def test_gradcheck_of_vectors():
    factor, mean = Tensor(np.linalg.cholesky(COV), requires_grad=True), Tensor(A.copy(), requires_grad=True)

    def f(mean: Any, factor: Any) -> Any:
        return rng().multivariate_normal(mean, factor @ factor.T, 4, method="cholesky")

    gradcheck(f, (mean, factor), check_forward_ad=True)
    gradgradcheck(lambda *values: f(*values) ** 2, (mean, factor))


GRIDS: dict[str, list[np.ndarray]] = {
    "random_gamma_slope": [np.array([1e-3, 0.1, 0.7, 1.0, 3.0, 30.0, 1e3, 1e5])],
    "random_beta_slope": [np.array([0.05, 0.4, 1.0, 2.5, 40.0, 1e3])] * 2,
}


def tails(name: str) -> list[np.ndarray]:
    """Return parameters of all sizes, and draws from the whole range, for a beta variable also 1 minus the draw."""
    *parameters, quantile = (grid.ravel() for grid in np.meshgrid(
        *GRIDS[name], [1e-6, 0.01, 0.2, 0.5, 0.8, 0.99, 1 - 1e-6]))
    if name == "random_gamma_slope":
        drawn = [special.gammaincinv(*parameters, quantile)]
    else:
        drawn = [special.betaincinv(*parameters, quantile), special.betaincinv(*parameters[::-1], 1 - quantile)]
    kept = np.all([x > 1e-200 for x in drawn], axis=0)
    return [value[kept] for value in (*parameters, *drawn)]


def differences(function: Callable[..., Any], args: list[np.ndarray], i: int, step: float) -> Any:
    """Return the derivative in the i-th argument by differences of fourth order, for steps relative to it."""
    def at(n: int) -> Any:
        return function(*[value * (1 + n * step) if k == i else value for k, value in enumerate(args)])

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step * args[i])


@pytest.mark.parametrize("name", GRIDS)
def test_slopes_at_a_quantile_in_all_tails(name):
    *parameters, x = tails(name)[:len(GRIDS[name]) + 1]
    y = tails(name)[-1]
    found = getattr(ops.np, name)(*tails(name))
    if name == "random_gamma_slope":
        lower, upper = lambda a: special.gammainc(a, x), lambda a: special.gammaincc(a, x)
        density = np.exp((parameters[0] - 1) * np.log(x) - x - special.gammaln(parameters[0]))
    else:
        lower, upper = lambda a, b: special.betainc(a, b, x), lambda a, b: special.betainc(b, a, y)
        density = np.exp((parameters[0] - 1) * np.log(x) + (parameters[1] - 1) * np.log(y)
                         - special.betaln(*parameters))
    low = lower(*parameters) < 0.5
    with np.errstate(all="ignore"):
        expected = np.where(low, -differences(lower, parameters, 0, 1e-3),
                            differences(upper, parameters, 0, 1e-3)) / density
    usable = np.isfinite(expected) & np.all([value < 500 for value in parameters], axis=0)  # SciPy is rounded, too
    np.testing.assert_allclose(found[usable], expected[usable], rtol=1e-6)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", GRIDS)
def test_slopes_have_derivatives_of_every_order(name):
    args = [value[::5] for value in tails(name)][:len(GRIDS[name]) + 1]
    near = np.all([(value > 1e-8) & (value < 200) for value in args], axis=0)
    near &= (args[-1] < 0.99) | (name == "random_gamma_slope")
    args = [value[near] for value in args]

    def slope(*args: Any) -> Any:
        complement = () if name == "random_gamma_slope" else (1 - args[-1],)
        return getattr(ops.np, name)(*args, *complement)

    leaves = [Tensor(value, requires_grad=True) for value in args]
    first = grad(slope(*leaves).sum(), leaves, create_graph=True)
    for i, gradient in enumerate(first):
        np.testing.assert_allclose(gradient.array, differences(slope, args, i, 1e-4), rtol=1e-5, atol=1e-9)
    second = grad(first[0].sum(), leaves)
    assert all(np.isfinite(gradient.array).all() for gradient in second)


@pytest.mark.parametrize("order", range(-1, 4))
def test_polygamma(order):
    x = np.logspace(-4, 6, 50)
    expected = special.gammaln(x) if order < 0 else special.polygamma(order, x)
    np.testing.assert_allclose(ops.np.random_polygamma(x, order), expected, rtol=1e-12, atol=1e-13)


def inverse_gaussian(x: Any, mean: Any, scale: Any) -> Any:
    root = np.sqrt(scale / x)
    return special.ndtr(root * (x / mean - 1)) + np.exp(2 * scale / mean + special.log_ndtr(-root * (x / mean + 1)))


@pytest.mark.parametrize(("name", "cumulative", "parameters"), [
    ("wald", inverse_gaussian, (1.5, 2.0)), ("wald", inverse_gaussian, (4.0, 0.5)),
    ("vonmises", lambda x, mu, kappa: von_mises(x - mu, kappa), (0.25, 0.5)),
    ("vonmises", lambda x, mu, kappa: von_mises(x - mu, kappa), (0.0, 6.0)),
    ("vonmises", lambda x, mu, kappa: von_mises(x - mu, kappa), (-0.125, 60.0)),
    *(("noncentral_chisquare", stats.ncx2.cdf, parameters)
      for parameters in ((2.0, 3.0), (0.5, 0.125), (5.0, 80.0), (3.0, 400.0))),
    *(("noncentral_f", stats.ncf.cdf, parameters)
      for parameters in ((2.0, 3.0, 1.0), (5.0, 40.0, 30.0), (0.75, 0.9, 100.0), (3.0, 300.0, 300.0))),
], ids=lambda value: None if callable(value) else str(value))
def test_draws_stay_at_their_quantile(name, cumulative, parameters):
    # dx/dp = -(dF/dp) / (dF/dx), the latter two by differences.
    x = getattr(np.random.default_rng(SEED), name)(*parameters, size=30)
    values = [np.full(30, value) for value in parameters]
    density = differences(cumulative, [x, *values], 0, 1e-4)
    for i, value in enumerate(values, 1):
        if not value.any():
            continue
        direction = [np.ones(30) * (k == i) for k in range(1, len(values) + 1)]
        _, tangent = jvp(lambda *args: getattr(rng(), name)(*args), tuple(values), tuple(direction))
        np.testing.assert_allclose(
            tangent, -differences(cumulative, [x, *values], i, 1e-3) / density, rtol=1e-5, atol=1e-8)
    leaves = [Tensor(value, requires_grad=True) for value in values]
    first = grad(getattr(rng(), name)(*leaves).sum(), leaves, create_graph=True)
    assert all(np.isfinite(gradient.array).all() for gradient in grad(first[1].sum(), leaves))


def von_mises(x: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    """Return the integral of the density from 0, by its Fourier series."""
    n = np.arange(1, 80)
    ratios = special.ive(n, kappa[:, None]) / special.i0e(kappa[:, None])
    return (x / 2 + (ratios * np.sin(n * x[:, None]) / n).sum(-1)) / np.pi


def test_dirichlet_moves_like_its_beta_variables():
    alpha = np.array([0.75, 2.0])
    x = np.random.default_rng(SEED).dirichlet(alpha, 5)
    one, other = Tensor(alpha, requires_grad=True), Tensor(alpha, requires_grad=True)
    found, = grad(rng().dirichlet(one, 5)[:, 0].sum(), one)
    slopes = [ops.np.random_beta_slope(alpha[0], alpha[1], x[:, 0], x[:, 1]),
              -ops.np.random_beta_slope(alpha[1], alpha[0], x[:, 1], x[:, 0])]
    np.testing.assert_allclose(found.array, np.sum(slopes, axis=1), rtol=1e-10)
    by_reverse = grad((rng().dirichlet(other, 5) * x).sum(), other)[0].array
    by_forward = [(jvp(lambda alpha: rng().dirichlet(alpha, 5), (alpha,), (direction,))[1] * x).sum()
                  for direction in np.eye(2)]
    np.testing.assert_allclose(by_reverse, by_forward, rtol=1e-10)


def test_dirichlet_gradients_are_those_of_the_expectation():
    alpha = np.array([0.75, 2.0, 1.25])
    leaf = Tensor(alpha, requires_grad=True)
    found, = grad((rng().dirichlet(leaf, 50000)[:, 0] ** 2).mean(), leaf)

    def mean(total: Any, first: Any) -> Any:
        return first * (first + 1) / (total * (total + 1))

    of_total = differences(mean, [alpha.sum(), alpha[0]], 0, 1e-3)
    expected = of_total + np.array([1, 0, 0]) * differences(mean, [alpha.sum(), alpha[0]], 1, 1e-3)
    np.testing.assert_allclose(found.array, expected, atol=2e-3)


@pytest.mark.parametrize("method", ["svd", "eigh", "cholesky"])
def test_gradients_of_normal_vectors_are_those_of_the_expectation(method):
    # The mean of exp(w @ x) is exp(w @ cov @ w / 2).
    cov, weights = Tensor(COV, requires_grad=True), np.array([0.5, -0.25, 0.125])
    found, = grad(np.exp(rng().multivariate_normal(np.zeros(3), cov, 50000, method=method) @ weights).mean(), cov)
    expected = np.outer(weights, weights) / 2 * np.exp(weights @ COV @ weights / 2)
    np.testing.assert_allclose(found.array, expected, atol=5e-3)


@pytest.mark.parametrize("name", INTEGERS)
def test_draws_of_integers_are_constants(name):
    sample = next(sample for sample in CALLS if sample.name == name and has_arrays(sample))
    leaves = replaced(lambda value: Tensor(value.astype(float) if value.dtype.kind == "f" else value,
                                           requires_grad=value.dtype.kind == "f"), sample)
    assert not drawn(rng(), leaves).requires_grad


def test_elements_that_are_chosen_get_gradients():
    x, weights = Tensor(A.copy(), requires_grad=True), np.array([1.0, 2.0, 4.0])
    order = np.random.default_rng(SEED).permutation(3)
    for f in (lambda g: g.permutation(x), lambda g: g.permuted(x), lambda g: g.choice(x, 3, False, shuffle=True)):
        result = f(rng())
        found, = grad((result * weights).sum(), x)
        np.testing.assert_array_equal(found.array, [weights[result.array == value].sum() for value in A])
    assert sorted(order) == [0, 1, 2]


def test_draws_of_zero_have_finite_gradients():
    shape = Tensor(np.array([1e-5, 0.0]), requires_grad=True)
    result = rng().standard_gamma(shape)
    assert result.array.tolist() == [0, 0]
    found, = grad(result.sum(), shape)
    assert found.array.tolist() == [0, 0]
    a = Tensor(np.array([1e-5, 1e4]), requires_grad=True)
    b = Tensor(np.array([1e4, 1e-5]), requires_grad=True)
    assert rng().beta(a, b).array.tolist() == [0, 1]
    assert all(np.isfinite(gradient.array).all() for gradient in grad(rng().beta(a, b).sum(), (a, b)))
    nonc = Tensor(np.zeros(3), requires_grad=True)
    draws = rng().noncentral_chisquare(A, nonc)
    np.testing.assert_allclose(grad(draws.sum(), nonc)[0].array, draws.array / A)
    for name in ("weibull", "power", "lognormal"):
        parameter = Tensor(np.array([1e-3, 1.0]), requires_grad=True)
        args = (-1e5, parameter) if name == "lognormal" else (parameter,)
        assert np.isfinite(grad(getattr(rng(), name)(*args).sum(), parameter)[0].array).all()


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("i", range(3))
def test_single_draws_and_parameters_that_are_numbers(name, i):
    numbers = [float(np.asarray(value).flat[-1]) for value in PARAMETERS[name]]
    if i >= len(numbers):
        return

    def f(value: Any) -> Any:
        return getattr(rng(), name)(*numbers[:i], value, *numbers[i + 1:])

    vectors = [np.array([number]) for number in numbers]
    directions = [np.array([float(k == i)]) for k in range(len(numbers))]
    expected = jvp(lambda *values: getattr(rng(), name)(*values), tuple(vectors), tuple(directions))[1][0]
    leaf = Tensor(np.array(numbers[i]), requires_grad=True)
    found, = grad(f(leaf), leaf)
    assert np.isclose(found.array, expected, rtol=1e-12)
    gradient = func_grad(f)
    assert np.isclose(gradient(np.array(numbers[i])), expected, rtol=1e-12)
    assert np.isclose(jvp(f, (np.array(numbers[i]),), (np.array(1.0),))[1], expected, rtol=1e-12)
    for mode in ("real", "fake"):
        graph = make_fx(gradient, tracing_mode=mode)(np.array(numbers[i]))
        assert np.isclose(graph(np.array(numbers[i])), expected, rtol=1e-12)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_have_the_dtypes_of_the_parameters(name):
    values = [np.asarray(value, np.float32) for value in PARAMETERS[name]]
    leaves = [Tensor(value, requires_grad=True) for value in values]
    dtype = {"dtype": np.float32} if name == "standard_gamma" else {}
    first = grad((getattr(rng(), name)(*leaves, **dtype) ** 2).sum(), leaves, create_graph=True)
    second = grad(sum(gradient.sum() for gradient in first), leaves)
    assert {gradient.dtype for gradient in (*first, *second)} == {np.dtype(np.float32)}
    tangents = jvp(lambda *values: jvp(lambda *values: getattr(rng(), name)(*values, **dtype), values, values)[1],
                   tuple(values), tuple(values))
    assert all(np.isfinite(tangent).all() for tangent in tangents)


# --- generators ------------------------------------------------------------------------------------------------------


def test_generators_are_numpys():
    generator = rng()
    assert isinstance(generator, np.random.Generator)
    assert random.default_rng(generator) is generator
    assert np.random.default_rng(generator) is generator
    of_numpy = np.random.default_rng(SEED)
    shared = random.default_rng(of_numpy)
    assert shared.bit_generator is of_numpy.bit_generator
    for seed in (3, [1, 2], np.array([1, 2]), np.random.SeedSequence(4), np.random.PCG64(5), np.int64(7), None):
        twin = copy.deepcopy(seed)
        found = random.default_rng(seed)
        assert type(found) is random.Generator
        assert seed is None or found.normal() == np.random.default_rng(twin).normal()
    assert random.default_rng(Tensor(np.array(3))).normal() == np.random.default_rng(3).normal()
    children = rng().spawn(2)
    assert [type(child) for child in children] == [random.Generator] * 2
    assert [child.normal() for child in children] == [child.normal() for child in np.random.default_rng(SEED).spawn(2)]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))],
                         ids=["copy", "deepcopy", "pickle"])
def test_copies_go_on_from_the_same_state(copied):
    generator = rng()
    generator.normal()
    twin = copied(generator)
    assert type(twin) is random.Generator
    assert state_of(twin) == state_of(generator)


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_a_generator_that_a_traced_function_makes_is_made_in_each_run(mode):
    def f(x: Any) -> Any:
        one, other = random.default_rng(3), random.default_rng(3)
        return x + one.normal(size=3) * other.normal(size=3) + one.random()

    graph = make_fx(f, tracing_mode=mode)(A)
    for run in (graph, graph, graph.compile(), pickle.loads(pickle.dumps(graph))):
        check_same(run(A), f(A))


def made_outside() -> tuple[Any, Any, Any, Any]:
    return rng(), np.random.default_rng(SEED), np.random.MT19937(SEED), np.random.SeedSequence(SEED)


OUTSIDE = {
    "generator": lambda x, ours, theirs, bits, seeds: x * ours.normal(size=3),
    "generator of NumPy": lambda x, ours, theirs, bits, seeds: x * ops.np.random_normal(theirs, size=3),
    "shared": lambda x, ours, theirs, bits, seeds: x * random.default_rng(theirs).normal(size=3) * theirs_of(theirs),
    "bit generator": lambda x, ours, theirs, bits, seeds: x * random.Generator(bits).normal(size=3),
    "bit generator as a seed": lambda x, ours, theirs, bits, seeds: x * random.default_rng(bits).normal(size=3),
    "sequence": lambda x, ours, theirs, bits, seeds: x * random.default_rng(seeds).normal(size=3),
    "sequence of a seed": lambda x, ours, theirs, bits, seeds: x * random.default_rng(
        np.random.SeedSequence(SEED)).normal(size=3) * random.default_rng(seeds).normal(size=3),
    "sequences of a seed": lambda x, ours, theirs, bits, seeds: sum(
        x * random.default_rng(one).normal(size=3) for one in np.random.SeedSequence([1, 2]).spawn(2)),
    "loop": lambda x, ours, theirs, bits, seeds: scan(
        lambda c, _: (c * random.default_rng(theirs).normal(size=3) * ours.normal(), None), x, length=2)[0],
}


def theirs_of(generator: Any) -> Any:
    return random.default_rng(generator).normal(size=3)


@pytest.mark.parametrize("way", ["compile", "fake", "compile of grad"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_source_that_a_traced_function_captures_goes_on(name, way):
    def function() -> Callable[[Any], Any]:
        sources = made_outside()
        f = lambda x: OUTSIDE[name](x, *sources)  # noqa: E731
        return func_grad(lambda x: f(x).sum()) if way == "compile of grad" else f

    plain = function()
    traced = make_fx(function(), tracing_mode="fake")(A) if way == "fake" else compile(function())
    for _ in range(3):
        np.testing.assert_allclose(traced(A), plain(A))


def test_generators_that_share_the_stream_of_an_argument():
    def f(x: Any, source: Any) -> Any:
        shared = random.default_rng(source)
        return x * shared.normal(size=3) * ops.np.random_normal(source, size=3) * shared.normal(size=3)

    graph = make_fx(f, tracing_mode="fake")(A, np.random.default_rng(0))
    np.testing.assert_array_equal(graph(A, np.random.default_rng(SEED)), f(A, np.random.default_rng(SEED)))


BEHIND_THE_TRACE = {
    "PCG64": lambda x, rng: x * random.Generator(np.random.PCG64(4)).normal(size=3),
    "MT19937": lambda x, rng: x * random.Generator(np.random.MT19937(4)).normal(size=3),
    "bit generator as a seed": lambda x, rng: x * random.default_rng(np.random.PCG64(4)).normal(size=3),
    "RandomState as a seed": lambda x, rng: x * random.default_rng(np.random.RandomState(4)).normal(size=3),
    "generator of NumPy": lambda x, rng: x * random.default_rng(np.random.default_rng(4)).normal(size=3),
    "operator on one of NumPy": lambda x, rng: x * ops.np.random_normal(np.random.default_rng(4), size=3),
    "jumped": lambda x, rng: x * random.Generator(BITS.jumped()).normal(size=3),
    "spawn": lambda x, rng: x * random.default_rng(4).spawn(1)[0].normal(size=3),
    "spawn of a captured one": lambda x, rng: x * rng.spawn(1)[0].normal(size=3),
    "spawn of a captured sequence": lambda x, rng: x * random.default_rng(SEEDS.spawn(1)[0]).normal(size=3),
    "deepcopy": lambda x, rng: x * copy.deepcopy(rng).normal(size=3),
    "pickle": lambda x, rng: x * pickle.loads(pickle.dumps(rng)).normal(size=3),
    "seed of the system": lambda x, rng: x * random.default_rng(np.random.SeedSequence()).normal(size=3),
    "state": lambda x, rng: (rng.bit_generator.state, x * rng.normal(size=3))[1],
    "advance": lambda x, rng: (rng.bit_generator.advance(5), x * rng.normal(size=3))[1],
    "raw": lambda x, rng: (rng.bit_generator.random_raw(5), x * rng.normal(size=3))[1],
    "beside": lambda x, rng: x * random.Generator(rng.bit_generator).normal(size=3) * rng.normal(size=3),
}
"""Changes of generators in a traced function that a trace does not record."""
if np.lib.NumpyVersion(np.__version__) < "2.2.0":       # which does not take it
    del BEHIND_THE_TRACE["RandomState as a seed"]
BITS, SEEDS = np.random.PCG64(SEED), np.random.SeedSequence(SEED)
TRACES = {
    "compile": lambda f: compile(f)(A), "make_fx": lambda f: make_fx(f)(A),
    "fake": lambda f: make_fx(f, tracing_mode="fake")(A), "grad": lambda f: compile(func_grad(lambda x: f(x).sum()))(A),
    "loop": lambda f: compile(lambda x: scan(lambda c, _: (c + f(x), None), x, length=2)[0])(A),
    "branch": lambda f: make_fx(lambda x: cond(x[0] > 0, f, lambda x: x * 1, (x,)))(A),
}


@pytest.mark.parametrize("name", BEHIND_THE_TRACE)
@together("trace", TRACES)
def test_what_a_trace_does_not_record_of_a_generator_is_refused(name, trace):
    outer = rng()
    with pytest.raises(DispatchTypeError, match=r"trace(.|\n)*np\.random\.default_rng\(seed\)(.|\n)*argument"):
        TRACES[trace](lambda x: BEHIND_THE_TRACE[name](x, outer))
    with pytest.raises(DispatchTypeError, match="trace"):
        TRACES[trace](lambda x: BEHIND_THE_TRACE[name](x, random.default_rng(4)))


def test_a_value_of_an_ended_trace_does_not_hide_a_source():
    held: list[Any] = []
    graph = make_fx(func_grad(lambda x: (held.append(x), (x * 2.0).sum())[1]))(A)
    np.testing.assert_array_equal(graph(A), np.full_like(A, 2.0))
    with pytest.raises(DispatchTypeError, match="made a Generator"):
        TRACES["loop"](lambda x: x * random.Generator(np.random.PCG64(len(held))).normal(size=3))


def test_a_source_that_the_function_around_a_loop_makes_is_refused():
    def f(x: Any) -> Any:
        source = random.Generator(np.random.PCG64(4))
        return scan(lambda c, _: (c * source.normal(size=3), None), x, length=2)[0]

    with pytest.raises(DispatchTypeError, match="made a Generator"):
        compile(f)(A)


class Settings:
    generator = np.random.default_rng(SEED)


@pytest.mark.parametrize("find", [
    lambda: Settings.generator, lambda: MODULE.settings.generator, lambda: HELD[0]["one"]])
def test_a_source_may_lie_in_classes_modules_and_containers(find):
    find().bit_generator.state = np.random.default_rng(SEED).bit_generator.state
    compiled, plain = compile(lambda x: x * ops.np.random_normal(find(), size=3)), np.random.default_rng(SEED)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(A), A * plain.normal(size=3))


MODULE = ModuleType("module")
vars(MODULE)["settings"] = Settings()
HELD = [{"one": Settings.generator}]


def test_a_generator_is_one_for_all_examples():
    found = vmap(lambda x: random.default_rng(3).normal(size=2) + x, randomness="different")(np.zeros(3))
    check_same(found, np.random.default_rng(3).normal(size=(3, 2)))
    chunks = vmap(lambda x: random.default_rng(3).normal(size=2) + x, randomness="same", chunk_size=2)(np.zeros(3))
    check_same(chunks, np.stack([np.random.default_rng(3).normal(size=2)] * 3))
    with pytest.raises(VmapError, match="all examples share one generator"):
        vmap(random.default_rng)(np.arange(3))


def test_bytes():
    assert rng().bytes(5) == np.random.default_rng(SEED).bytes(5)
    for run in (lambda: make_fx(lambda x: rng().bytes(3) and x)(A), lambda: vmap(lambda x: rng().bytes(3) and x)(A)):
        with pytest.raises(DispatchTypeError, match="integers"):
            run()


# --- NumPy's hidden generator ----------------------------------------------------------------------------------------


def test_every_name_of_numpys_is_there():
    assert {name for name in np.random.__all__ if not hasattr(random, name)} == set()
    for name in np.random.__all__:
        if isinstance(getattr(np.random, name), type) and name != "Generator":
            assert getattr(random, name) is getattr(np.random, name)


def test_legacy_functions_are_numpys_for_arrays():
    random.seed(5)
    found = random.rand(2), random.normal(A), random.get_state()[2]
    np.random.seed(5)
    check_same(found[0], np.random.rand(2))
    check_same(found[1], np.random.normal(A))
    assert found[2] == np.random.get_state()[2]
    jvp(lambda x: x * random.rand(3), (A,), (A,))


@pytest.mark.parametrize("run", [
    lambda: random.normal(Tensor(A)), lambda: random.normal(loc=[Tensor(A[0])]), lambda: random.shuffle(Tensor(A)),
    lambda: vmap(lambda x: x + random.rand())(A), lambda: make_fx(lambda x: x + random.rand(3))(A),
    lambda: make_fx(lambda x: random.seed(3) or x)(A),
], ids=["Tensor", "Tensor in a list", "in place", "vmap", "trace", "seed"])
def test_legacy_functions_refuse_tensors_batches_and_traces(run):
    with pytest.raises(DispatchTypeError, match="default_rng"):
        run()
