"""Bad input raises SciPy's error with the name of the function, of arrays and Tensors, in eager and transformed."""

from operator import attrgetter

import numpy as np
import pytest
import scipy
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.special
import scipy.stats

import pydispatch
from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func import functionalize, grad, jvp, vmap
from pydispatch.scipy import linalg, ndimage, signal, special, stats
from tests.together import together

OURS = {"linalg": linalg, "ndimage": ndimage, "signal": signal, "special": special, "stats": stats}
THREE, SQUARE, WIDE = np.array([0.2, 0.3, 0.5]), np.eye(3), np.ones((3, 2))
INDEFINITE, SINGULAR, NAN = np.diag([1.0, -1.0, 1.0]), np.diag([1.0, 0.0, 1.0]), np.full((3, 3), np.nan)
ROUNDED = np.outer([1.0, 0.3, 0.7], [1.0, 0.3, 0.7]) + np.outer([0.2, 1.0, 0.1], [0.2, 1.0, 0.1])
"""A matrix that is singular, of which an eigenvalue is not quite 0."""
SHAPES = {      # the function, a call of it, and what is no argument for it
    "linalg.cholesky": (lambda f, x: f(x), WIDE),
    "linalg.inv": (lambda f, x: f(x), WIDE),
    "linalg.expm": (lambda f, x: f(x), WIDE),
    "linalg.solve_triangular": (lambda f, x: f(x, THREE), WIDE),
    "linalg.cho_solve": (lambda f, x: f((SQUARE, True), x), np.ones(4)),
    "linalg.solve_sylvester": (lambda f, x: f(SQUARE, SQUARE, x), WIDE),
    "linalg.block_diag": (lambda f, x: f(x, np.ones((3, 2, 2))), np.ones((2, 2, 2))),
    "ndimage.convolve": (lambda f, x: f(SQUARE, x), THREE),
    "ndimage.convolve1d": (lambda f, x: f(x, THREE, axis=7), SQUARE),
    "ndimage.gaussian_filter": (lambda f, x: f(x, (1.0, 1.0, 1.0)), SQUARE),
    "ndimage.map_coordinates": (lambda f, x: f(SQUARE, x, order=1), np.ones((3, 4))),
    "signal.convolve": (lambda f, x: f(x, SQUARE), THREE),
    "signal.fftconvolve": (lambda f, x: f(x, SQUARE), THREE),
    "signal.convolve2d": (lambda f, x: f(x, SQUARE), THREE),
    "signal.lfilter": (lambda f, x: f(THREE, THREE, x, axis=4), THREE),
    "signal.sosfilt": (lambda f, x: f(x, THREE), np.ones((1, 5))),
    "special.beta": (lambda f, x: f(x, np.ones(4)), THREE),
    "special.gammainc": (lambda f, x: f(x, np.ones(4)), THREE),
    "special.logsumexp": (lambda f, x: f(x, axis=5), SQUARE),
    "special.softmax": (lambda f, x: f(x, axis=5), SQUARE),
    "stats.norm.logpdf": (lambda f, x: f(x, np.ones(4)), THREE),
    "stats.multivariate_normal.pdf": (lambda f, x: f(THREE, THREE, x), WIDE),
    "stats.dirichlet.logpdf": (lambda f, x: f(x, THREE), np.ones(7)),
}
VALUES = {      # likewise, with what is an argument
    "linalg.cholesky": (lambda f, x: f(x), SQUARE, INDEFINITE),
    "linalg.cho_factor": (lambda f, x: f(x)[0], SQUARE, NAN),
    "linalg.inv": (lambda f, x: f(x), SQUARE, SINGULAR),
    "linalg.solve": (lambda f, x: f(x, THREE), SQUARE, SINGULAR),
    "linalg.solve_triangular": (lambda f, x: f(x, THREE), SQUARE, SINGULAR),
    "linalg.solve_sylvester": (lambda f, x: f(x, SQUARE, SQUARE), SQUARE, NAN),
    "signal.lfilter": (lambda f, x: f(THREE, x, THREE), THREE, 0 * THREE),
    "signal.sosfilt": (lambda f, x: f(x, THREE), np.array([[1.0, 0, 0, 1, 0, 0]]), np.ones((1, 6)) * 2),
    "stats.dirichlet.logpdf": (lambda f, x: f(x, THREE), THREE, np.array([0.0, 0.5, 0.5])),
    "stats.dirichlet.pdf": (lambda f, x: f(THREE, x), THREE, -THREE),
}
COVARIANCES = {"nan": NAN, "indefinite": INDEFINITE, "singular": SINGULAR, "singular but for rounding": ROUNDED}


def total(function):
    return lambda x: ops.np.sum(ops.np.real(function(x)))


WAYS = {
    "array": lambda function: function,
    "Tensor": lambda function: lambda x: function(Tensor(x)),
    "tracked": lambda function: lambda x: function(Tensor(x, requires_grad=True)),
    "grad": lambda function: grad(total(function)),
    "jvp": lambda function: lambda x: jvp(function, (x,), (np.ones_like(x),)),
    "functionalize": functionalize,
    "compile": pydispatch.compile,
}
BATCHES = {"vmap": vmap, "vmap of grad": lambda function: vmap(grad(total(function)))}


def call_of(name, call):
    """Return the call of our function, and the class of the error that SciPy's raises for such an argument."""
    function = attrgetter(name)(pydispatch.scipy)

    def error_for(bad):
        try:
            call(attrgetter(name)(scipy), bad)
        except Exception as error:
            return type(error)
        raise AssertionError(f"scipy.{name} takes it")
    return lambda x: call(function, x), error_for


@together("way", {**WAYS, **BATCHES})
@together("name", SHAPES)
def test_wrong_shapes(name, way):
    call, bad = SHAPES[name]
    function, error_for = call_of(name, call)
    run = WAYS[way](function) if way in WAYS else lambda x: BATCHES[way](function)(np.stack([x, x]))
    with pytest.raises(Exception, match=rf"^{name}\b") as caught:
        run(bad)
    expected = error_for(bad)
    assert issubclass(caught.type, ValueError if issubclass(expected, ValueError) else expected)


@pytest.mark.parametrize("name", VALUES)
@together("way", {**WAYS, **BATCHES})
def test_bad_values(name, way):
    call, good, bad = VALUES[name]
    function, error_for = call_of(name, call)
    kind = np.linalg.LinAlgError if error_for(bad) is np.linalg.LinAlgError else ValueError
    who = name.rpartition(".")[0] if name.startswith("stats") else name
    with pytest.raises(kind, match=rf"^{who}\b") as caught:
        WAYS[way](function)(bad) if way in WAYS else BATCHES[way](function)(np.stack([good, bad]))
    if way in BATCHES:
        assert caught.value.__notes__ == ["in example 1 of a batch of 2"]


@pytest.mark.parametrize("name", COVARIANCES)
@together("way", {**WAYS, **BATCHES})
def test_covariances(name, way):
    bad = COVARIANCES[name]
    function, error_for = call_of("stats.multivariate_normal.logpdf", lambda f, x: f(THREE, 0 * THREE, x))
    assert issubclass(error_for(bad), ValueError)
    operator = "linalg.cholesky" if way == "compile" and name != "singular but for rounding" else (
        "stats.multivariate_normal")
    with pytest.raises(ValueError, match=rf"^{operator}\b") as caught:
        WAYS[way](function)(bad) if way in WAYS else BATCHES[way](function)(np.stack([SQUARE, bad]))
    if way in BATCHES:
        assert caught.value.__notes__ == ["in example 1 of a batch of 2"]


def test_functions_of_scipys_own_that_get_a_tensor():
    with pytest.raises(ValueError, match=r"^special.beta: operands could not be broadcast"):
        scipy.special.beta(Tensor(THREE), np.ones(4))


def test_the_number_of_axes_is_still_told():
    with pytest.raises(np.exceptions.AxisError, match=r"^special.softmax: axis 5 is out of bounds") as caught:
        special.softmax(SQUARE, axis=5)
    assert (caught.value.axis, caught.value.ndim) == (5, 2)


def test_errors_that_name_the_function_stay_what_they_are():
    with pytest.raises(TypeError, match=r"^convolve\(\) got an unexpected keyword argument 'boundary'"):
        signal.convolve(THREE, THREE, boundary="fill")
    with pytest.raises(DispatchTypeError, match=r"^scipy\.special\.bernoulli does not take a Tensor"):
        special.bernoulli(Tensor(THREE))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "call"), {
    "lu_solve": lambda f, lu: f((lu, np.array([1, 1, 2])), THREE),
    "lu_solve transposed": lambda f, lu: f((lu, np.array([1, 1, 2])), THREE, trans=1),
    "cho_solve": lambda f, c: f((c, True), THREE),
}.items())
def test_singular_factors_give_infinite_solutions_as_scipys(way, name, call):
    singular = np.array([[2.0, 1.0, 3.0], [0.5, 0.0, 2.0], [0.25, 0.5, 1.0]])
    theirs, ours = [getattr(module, name.partition(" ")[0]) for module in (scipy.linalg, linalg)]
    with np.errstate(all="ignore"):
        expected, found = call(theirs, singular), WAYS[way](lambda lu: call(ours, lu))(singular)
    assert not np.isfinite(expected).all()
    if way not in ("grad", "jvp"):
        np.testing.assert_allclose(found.detach().numpy() if isinstance(found, Tensor) else found, expected, 1e-14)
