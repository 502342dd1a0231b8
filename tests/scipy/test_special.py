"""Special functions: derivatives at edges and far out, orders that have none, sums of exponentials, classification."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.special

import pydispatch
from pydispatch import DispatchMode, Tensor, _core, func, ops
from pydispatch import compile as compile_function
from pydispatch.backends import MetaArray
from pydispatch.exceptions import NoDerivativeError
from pydispatch.higher_order import scan
from pydispatch.operators.declare import IS_NUMPY_2_0
from pydispatch.scipy import special
from pydispatch.scipy.pack import FACE, PASSED_ON
from tests.numpy.calls import check_same, quietly
from tests.together import together
from tests.warning_filters import all_warnings


def slope(name: str, i: int, *args: Any) -> Any:
    """Return the derivative of a function of numbers in its i-th argument."""
    args = tuple([np.float64(x) if isinstance(x, float) else x for x in args])
    return quietly(func.grad(getattr(special, name), i), args, {})


@together("name", [name for name in scipy.special.__all__ if not name.startswith("_")])
def test_every_name_of_scipys_is_one_thing(name):
    assert (f"special.{name}" in FACE.functions) + (name in PASSED_ON["special"]) == 1
    assert hasattr(special, name)


# Computed with 40 digits, by mpmath.
BY_MANY_DIGITS = [
    ("gammaln", 0, (10000000000.0,), 23.025850929890456),
    ("digamma", 0, (100000000.0,), 1.000000005e-08),
    ("polygamma", 1, (170, 10.0), 1.2410181644579104e+137),
    ("polygamma", 1, (155, 3.0), -9.233054590891422e+200),
    ("polygamma", 1, (3, -1.5), -0.3137559995067314),
    ("rgamma", 0, (-3.0,), -6.0), ("rgamma", 0, (0.0,), 1.0),
    ("rgamma", 0, (-170.0,), 7.257415615307999e+306),
    ("gamma", 0, (1e-05,), -9999999999.01096),
    ("beta", 0, (0.001, 300.0), -999979.5575954113),
    ("poch", 0, (0.0, 1.0), 1.0),
    ("poch", 0, (1000.0, 0.5), 0.015813364353414138),
    ("poch", 1, (0.5, 2.0), 0.5273674804839323),
    ("poch", 0, (-0.5, 2.5), -0.10897162736353884),
    ("binom", 1, (3.0, 5.0), 0.05),
    ("binom", 1, (1000.0, 10.0), 1.1975803241995696e+24),
    ("binom", 0, (3.0, 5.0), -0.05),
    ("zeta", 0, (1.0001, 1.0), -99999999.92720716),
    ("zeta", 0, (30.0, 0.01), 4.605170185988089e+60),
    ("zeta", 0, (2.0, 100000.0), -0.00012512983029781103),
    ("zetac", 0, (-2.0,), -0.03044845705839327),
    ("zetac", 0, (-7.3,), 0.0023055775627049534),
    ("zetac", 0, (0.0,), -0.9189385332046728),
    ("zetac", 0, (-0.3,), -0.5089726696918256),
    ("zetac", 0, (0.5,), -3.9226461392091516),
    ("erfcx", 0, (30.0,), -0.0006258354105074841),
    ("erfcx", 0, (24.9,), -0.0009077758482472252),
    ("dawsn", 0, (24.0,), -0.0008703259884508466),
    ("dawsn", 0, (-26.0,), -0.0007412922957129724),
    ("log_ndtr", 0, (-40.0,), 40.02496884720726),
    ("log_ndtr", 0, (40.0,), 0.0),
    ("log_ndtr", 0, (3.0,), 0.004437839042125664),
    ("expit", 0, (40.0,), 4.248354255291589e-18),
    ("pseudo_huber", 0, (1.0, 0.001), 2.499997500002344e-13),
    ("pseudo_huber", 0, (1.0, 1000.0), 998.001499999375),
    ("boxcox", 1, (2.0, 0.0), 0.24022650695910072),
    ("boxcox", 1, (2.0, 1e-08), 0.2402265080691829),
    ("boxcox", 1, (100000.0, -3.0), 0.11111111111110716),
    ("boxcox", 1, (10000000000.0, 3.0), 7.564172532202375e+30),
    ("inv_boxcox", 1, (2.0, 1e-05), -14.777422576269672),
    ("inv_boxcox", 1, (1000000.0, 0.5), -12122415866916.328),
    ("exprel", 0, (1e-05,), 0.5000033333458334),
    ("exprel", 0, (-40.0,), 0.0006249999999999999),
    ("exprel", 0, (29.0,), 130888656742.01448),
    ("exprel", 0, (300.0,), 6.453172135301506e+127),
    ("exprel", 0, (-1.1,), 0.2487361357306057),
    ("expm1", 0, (-50.0,), 1.9287498479639178e-22),
    ("jv", 1, (1, 10000.0), -0.007096525098464354),
    ("i0e", 0, (10000.0,), -1.9947862106984187e-07),
    ("i0e", 0, (700.0,), -1.0776206814510638e-05),
    ("kv", 1, (0.5, 600.0), -1.3572408819940354e-262),
    ("spherical_jn", 1, (2, 0.001), 0.0001333333142857151),
    ("ellipk", 0, (0.0,), 0.39269908169872414),
    ("ellipk", 0, (0.999999,), 499998.3014712779),
    ("ellipe", 0, (0.0,), -0.39269908169872414),
    ("ellipe", 0, (0.9999,), -2.495906969735168),
    ("ellipe", 0, (-100000.0,), -0.0015810863146579308),
    ("ellipk", 0, (-100000.0,), 9.71248287382496e-08),
    ("ellipkinc", 1, (0.5, 0.0), 0.019816126899012937),
    ("ellipkinc", 1, (1.5, 0.999), 42.6678715760656),
    ("ellipkinc", 1, (7.5, 0.3), 2.6414635017200516),
    ("ellipkinc", 1, (0.0, 0.3), 0.0),
    ("ellipeinc", 1, (-2.5, 0.3), 0.853131075655765),
    ("ellipeinc", 1, (1.0, 0.0), -0.1363378216467898),
    ("ellipkinc", 1, (0.5, 1.0), 0.025067566595210033),
    ("elliprf", 0, (1e-05, 1.0, 2.0), -111.32754569590564),
    ("elliprd", 2, (1.0, 2.0, 0.0001), -1060504.3374873775),
    ("elliprd", 0, (1e-08, 2.0, 3.0), -2040.947392469879),
    ("elliprg", 0, (1.0, 1.0, 1.0), 0.16666666666666666),
    ("elliprg", 0, (1e-06, 1.0, 1000000.0), 0.0020730132405722998),
    ("elliprj", 3, (1.0, 2.0, 3.0, 0.1), -5.08329015632267),
    ("elliprc", 1, (1.0, 1.0), -0.3333333333333333),
    ("elliprc", 0, (0.5, 100.0), -0.006350927058050931),
    ("agm", 1, (1.0, 1.0), 0.5),
    ("agm", 0, (1.0, 100000.0), 944.0456355885286),
    ("hyp2f1", 3, (1.0, 1.0, 2.0, 0.9), 8.268413465439451),
    ("expi", 0, (0.001,), 1001.0005001667083),
    ("expn", 1, (0, 1.0), -0.7357588823428847),
    ("spence", 0, (0.9,), -1.053605156578263),
    ("gammainc", 0, (0.5, 0.01), -0.522514337797483),
    ("gammainc", 0, (100.0, 90.0), -0.02461191684397991),
    ("gammainc", 0, (3.0, 30.0), -1.131008131742054e-10),
    ("gammaincc", 0, (3.0, 60.0), 5.1959295826872727e-23),
    ("betainc", 0, (0.5, 0.7, 0.01), -0.3938318455607312),
    ("betainc", 1, (0.5, 0.7, 0.99), 0.11601413246173023),
    ("betainc", 0, (50.0, 70.0, 0.4), -0.041199785991006876),
    ("stdtr", 0, (5.0, -8.0), -0.00022972169310838338),
    ("exprel", 0, (712.0,), 2.3151584978796849e+306),
    ("k1", 0, (700.0,), -4.6764523042521025e-306),
    ("powm1", 1, (1e-200, 0.1), -4.6051701859880796e-18),
    ("pseudo_huber", 1, (1e200, 1e200), 7.0710678118654752e+199),
    ("fdtr", 2, (2.0, 1.0, 1e160), 3.5355339059327376e-241),
    ("chndtr", 0, (2000.0, 3.0, 2000.0), 0.0044603102903819278),
    ("voigt_profile", 0, (1.0, 1e-6, 1.0), -0.15915494309189534),
]


@pytest.mark.parametrize(("name", "i", "args", "expected"), BY_MANY_DIGITS)
def test_derivatives_by_many_digits(name, i, args, expected):
    assert slope(name, i, *args) == pytest.approx(expected, rel=5e-12, abs=0)


@pytest.mark.parametrize(("name", "expected"), [
    ("wofz", -1.128379167096641e-18 - 5.6418958354691e-13j),
    ("erfcx", -5.6418958354521743e-13 + 1.1283791670898707e-18j),
])
def test_derivatives_of_complex_functions_far_out(name, expected):
    _, tangent = func.jvp(getattr(special, name), (np.complex128(1e6 + 1j),), (1.0 + 0j,))
    assert tangent == pytest.approx(expected, rel=1e-12, abs=0)


LIMITS = [
    ("expit", 0, (800.0,), 0), ("expit", 0, (-800.0,), 0), ("log_expit", 0, (-800.0,), 1),
    ("exprel", 0, (math.inf,), math.inf), ("owens_t", 1, (0.0, 1e200), 0),
    ("log_expit", 0, (800.0,), 0), ("softplus", 0, (800.0,), 1), ("softplus", 0, (-800.0,), 0),
    ("xlogy", 0, (0.0, 0.0), 0), ("xlogy", 1, (0.0, 0.0), 0), ("xlogy", 0, (0.0, 2.0), math.log(2)),
    ("xlogy", 1, (0.0, 2.0), 0), ("xlog1py", 0, (0.0, -1.0), 0), ("xlog1py", 1, (0.0, -1.0), 0),
    ("entr", 0, (0.0,), math.inf), ("entr", 0, (1.0,), -1), ("rel_entr", 1, (0.0, 0.0), 0),
    ("rel_entr", 1, (0.0, 1.0), 0), ("kl_div", 1, (0.0, 0.0), 0), ("kl_div", 1, (0.0, 2.0), 1),
    ("kl_div", 0, (1e-300, 1e-300), 0),
    ("powm1", 1, (0.0, 2.0), 0), ("powm1", 0, (0.0, 2.0), 0), ("huber", 1, (1.0, 0.0), 0), ("huber", 0, (1.0, 0.5), 0),
    ("pseudo_huber", 0, (0.0, 0.0), 0), ("pseudo_huber", 1, (0.0, 0.0), 0), ("pseudo_huber", 1, (1.0, 1e200), 1),
    ("boxcox", 0, (0.0, 1.0), 1), ("boxcox", 1, (0.0, 2.0), 0.25), ("inv_boxcox", 0, (-2.0, 0.5), 0),
    ("inv_boxcox", 1, (2.0, 0.0), -2 * math.exp(2)), ("exprel", 0, (0.0,), 0.5), ("cosm1", 0, (0.0,), 0),
    ("tklmbda", 0, (5.0, 0.5), 0), ("diric", 0, (0.0, 3), 0), ("sinc", 0, (0.0,), 0),
    ("erfcx", 0, (1e6,), -1e-12 / math.sqrt(math.pi)), ("log_ndtr", 0, (-1e6,), 1e6), ("ndtr", 0, (-40.0,), 0),
    ("ndtri", 0, (0.5,), math.sqrt(2 * math.pi)), ("owens_t", 1, (0.0, 1.0), 1 / (4 * math.pi)),
    ("voigt_profile", 0, (0.0, 1.0, 1.0), 0),
    ("j0", 0, (0.0,), 0), ("j1", 0, (0.0,), 0.5), ("i1", 0, (0.0,), 0.5), ("jv", 1, (0, 0.0), 0),
    ("jv", 1, (2, 0.0), 0),
    ("spherical_jn", 1, (0, 0.0), 0), ("spherical_jn", 1, (1, 0.0), 1 / 3), ("beip", 0, (0.0,), 0.5),
    ("ellipk", 0, (0.0,), math.pi / 8), ("ellipe", 0, (0.0,), -math.pi / 8), ("ellipkinc", 1, (0.0, 0.3), 0),
    ("agm", 1, (1.0, 1.0), 0.5), ("elliprc", 0, (1.0, 1.0), -1 / 6), ("eval_legendre", 1, (3, 1.0), 6),
    ("eval_legendre", 1, (0, 0.5), 0), ("eval_legendre", 1, (30, -1.0), -465), ("eval_chebyt", 1, (5, 1.0), 25),
    ("eval_hermite", 1, (0, 0.5), 0), ("expn", 1, (3, 0.0), -1), ("spence", 0, (1.0,), -1),
    ("gammainc", 1, (1.0, 0.0), 1), ("gammainc", 0, (2.0, 0.0), 0), ("betainc", 0, (2.0, 3.0, 0.0), 0),
    ("betainc", 2, (1.0, 1.0, 0.0), 1), ("betainc", 1, (2.0, 3.0, 1.0), 0), ("stdtr", 0, (5.0, 0.0), 0),
    ("stdtr", 1, (5.0, 0.0), 8 / (3 * math.pi * math.sqrt(5))), ("kolmogorov", 0, (0.0,), 0), ("round", 0, (2.4,), 0),
    ("smirnov", 1, (1, 0.25), -1), ("chndtr", 2, (3.0, 2.0, 0.0), -0.75 * math.exp(-1.5)),
]


@pytest.mark.parametrize(("name", "i", "args", "expected"), [row for row in LIMITS if hasattr(scipy.special, row[0])])
def test_derivatives_at_edges(name, i, args, expected):
    assert slope(name, i, *args) == pytest.approx(expected, rel=2e-12, abs=1e-15)


N_ARGUMENTS = {"sici": 1, "shichi": 1, "fresnel": 1, "airy": 1, "airye": 1, "itairy": 1, "ellipj": 2, "it2j0y0": 1,
               "iti0k0": 1, "itj0y0": 1, "it2i0k0": 1, "pbdv": 2, "pbvv": 2, "pbwa": 2}


@pytest.mark.parametrize("name", N_ARGUMENTS)
def test_gradients_of_several_results_have_the_dtype_of_the_argument(name):
    n, function = N_ARGUMENTS[name], getattr(special, name)
    x = np.array([0.25, 0.5], "f4")
    others = [np.array([[1.0], [1.5], [0.5]], "f4")] * (n - 1)
    place = n - 1 if name.startswith("pb") else 0

    def total(x):
        args = [*others, x] if place else [x, *others]
        return function(*args)[0].sum()

    gradient = func.grad(total)(x)
    assert (gradient.dtype, gradient.shape) == (np.float32, (2,))
    tensor = Tensor(x, requires_grad=True)
    total(tensor).backward()
    np.testing.assert_array_equal(tensor.grad.numpy(), gradient)


def test_derivatives_of_a_pair_of_results():
    assert quietly(func.grad(lambda x: special.sici(x)[0]), (0.0,), {}) == 1
    assert func.grad(lambda x: special.fresnel(x)[1])(np.float64(0.0)) == 1
    assert func.grad(lambda x: special.ellipj(x, 0.3)[3])(np.float64(0.0)) == 1
    assert func.jvp(lambda x: special.airy(x)[1], (np.float64(0.0),), (np.float64(1.0),))[1] == 0


@pytest.mark.parametrize(("name", "args", "n_slopes"), [
    ("bdtrik", (0.4, 7.3, 0.3), (2, 3, 2)), ("bdtrin", (2.2, 0.4, 0.3), (3, 1, 1)),
    ("nbdtrik", (0.4, 5.3, 0.3), (1, 2, 1)), ("nbdtrin", (2.2, 0.4, 0.3), (2, 1, 1)),
    ("btdtria", (0.4, 2.3, 0.3), (1, 2, 1)), ("betainc", (1.5, 2.5, 0.3), (1, 1, 0))])
def test_a_derivative_computes_no_slopes_of_other_arguments(name, args, n_slopes):
    class Log(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            calls.append(str(func.name))
            return func(*args, **kwargs or {})

    for i, n in enumerate(n_slopes):
        calls = []
        x = Tensor(np.array(args[i]), requires_grad=True)
        with Log():
            getattr(special, name)(*args[:i], x, *args[i + 1:]).backward()
        assert len([call for call in calls if "beta_slope" in call]) == n, (name, i, calls)


FLAT = {        # arguments where SciPy's function does not move with any of them, and one where it does
    "bdtrik": ((0.2, 0.25, 0.2), (0.75, 0.5, 0.5)), "nbdtrik": ((0.3, 0.45, 0.45), (0.7, 0.6, 0.5)),
    "pdtrik": ((0.1, 2.0), (0.5, 2.0)), "fdtridfd": ((0.83, 0.81, 0.51), (0.83, 0.5, 0.51)),
    "stdtridf": ((0.27, 0.8), (0.6, 0.8)), "tklmbda": ((2.0, 1.5), (0.2, 1.5)),
}


@pytest.mark.parametrize("name", FLAT)
def test_slopes_where_a_function_is_constant_are_0(name):
    flat, sloping = FLAT[name]
    for i in range(len(flat)):
        slope = func.grad(getattr(special, name), i)
        assert slope(*map(np.float64, flat)) == 0
        assert func.grad(lambda *args, slope=slope: slope(*args), i)(*map(np.float64, flat)) == 0
        assert slope(*map(np.float64, sloping)) != 0


@pytest.mark.filterwarnings("ignore:.*truncated to an integer:RuntimeWarning")
@pytest.mark.parametrize("name", ["kn", "yn", "expn"])
def test_orders_that_scipy_makes_whole_numbers_of(name):
    found = func.grad(getattr(special, name), 1)(np.float64(2.7), np.float64(0.8))
    assert found == func.grad(getattr(special, name), 1)(np.float64(2.0), np.float64(0.8))


def test_lambertw_is_complex():
    slope = func.grad(lambda x: ops.np.real(special.lambertw(x)))
    assert slope(np.float64(0.0)) == 1
    assert slope(np.float64(math.e)) == pytest.approx(1 / (2 * math.e))
    assert func.grad(lambda x: ops.np.real(special.lambertw(x, -1)))(np.float64(-0.1)) == pytest.approx(
        -1 / 0.1 * (-3.577152063957297 / (1 - 3.577152063957297)))


OF_ORDER = [("jv", (1.5, 2.0)), ("kn", (1.0, 2.0)), ("polygamma", (1.0, 2.0)), ("eval_legendre", (2.0, 0.5)),
            ("struve", (0.5, 2.0)), ("pdtr", (2.0, 1.5)), ("hyp1f1", (1.0, 2.0, 0.5)), ("pbdv", (1.0, 0.5))]


@pytest.mark.parametrize(("name", "args"), OF_ORDER)
def test_a_derivative_in_an_order_is_refused_by_name(name, args):
    def value(order: Any) -> Any:
        found = getattr(special, name)(order, *args[1:])
        return found[0] if isinstance(found, tuple) else found

    with pytest.raises(NoDerivativeError, match=f"operator scipy::special_{name} has no derivative in its argument '"):
        func.grad(value)(np.float64(args[0]))
    with pytest.raises(NoDerivativeError, match="pass it as a constant"):
        func.jvp(value, (np.float64(args[0]),), (np.float64(1.0),))


@pytest.mark.parametrize("name", ["jve", "ive", "log_ndtr"])
def test_functions_that_are_not_holomorphic_refuse_complex_arguments(name):
    args = (1, 1.0 + 1j) if name != "log_ndtr" else (1.0 + 1j,)
    x = Tensor(np.array(args[-1]), requires_grad=True)
    result = getattr(special, name)(*args[:-1], x)
    with pytest.raises(NoDerivativeError, match=f"special_{name} has a derivative for real arguments only"):
        ops.np.real(result).backward()


@pytest.mark.parametrize("name", ["legendre_p", "mathieu_a", "ncfdtr"])
def test_refused_functions_take_arrays_and_say_why_they_take_no_tensors(name):
    args = {"legendre_p": (2, 0.5), "mathieu_a": (1, 0.5), "ncfdtr": (2, 3, 0.5, 1)}
    if not hasattr(scipy.special, name):
        return
    np.testing.assert_array_equal(getattr(special, name)(*args[name]), getattr(scipy.special, name)(*args[name]))
    with pytest.raises(pydispatch.exceptions.DispatchTypeError, match=f"scipy.special.{name} does not take a Tensor"):
        getattr(special, name)(*args[name][:-1], Tensor(np.array(args[name][-1])))


# --- sums of exponentials --------------------------------------------------------------------------------------------

INF = math.inf
SPECIAL_SUMS = [[0.0, 1.0, -2.0], [0.0, -INF, 1.0], [-INF, -INF], [INF, 1.0], [INF, INF, 0.0], [1e4, 1e4 + 1],
                [0.0, -40.0], [0.0, -745.0], [-1e308, -1e308], [5.0]]


@pytest.mark.parametrize("values", SPECIAL_SUMS)
def test_logsumexp_is_scipys(values):
    a = np.array(values)
    for axis in (None, 0):
        expected = quietly(scipy.special.logsumexp, (a, axis), {})
        for x in (a, np.stack([a, a], 1)):
            found = quietly(ops.scipy.special_logsumexp, (x, 0 if x.ndim == 2 else axis), {})
            np.testing.assert_allclose(found, np.broadcast_to(expected, np.shape(found)), rtol=1e-15, atol=0)


@pytest.mark.parametrize(("values", "expected"), [
    ([0.0, -INF], [1, 0]), ([-INF, -INF], [0, 0]), ([INF, 1.0], [1, 0]), ([INF, INF, 0.0], [0.5, 0.5, 0]),
    ([1e4, 1e4], [0.5, 0.5]), ([0.0, -745.0], [1, 5e-324]), ([3.0], [1]),
])
def test_shares_of_logsumexp(values, expected):
    a = np.array(values)
    rounding = 4e-16 * max(1, np.abs(a[np.isfinite(a)]).max(initial=0))      # that of the logarithm
    rows = np.stack([a, np.zeros_like(a)])
    for found in (quietly(func.grad(special.logsumexp), (a,), {}),
                  quietly(func.vmap(func.grad(special.logsumexp)), (rows,), {})[0]):
        np.testing.assert_allclose(found, expected, rtol=rounding, atol=0)
    _, tangent = quietly(func.jvp, (special.logsumexp, (a,), (np.ones_like(a),)), {})
    assert tangent == pytest.approx(sum(expected))
    hessian = quietly(func.jacfwd(func.grad(special.logsumexp)), (a,), {})
    assert np.all(np.isfinite(hessian))


def test_weights_of_logsumexp():
    a, b = np.array([0.0, INF, 1.0]), np.array([2.0, 0.0, -1.0])
    of_a, of_b = quietly(func.grad(lambda a, b: special.logsumexp(a, b=b, return_sign=True)[0], (0, 1)),
                         (np.where(b == 0, 5.0, a), b), {})
    total = 2 - math.e
    np.testing.assert_allclose(of_a, [2 / total, 0, -math.e / total], rtol=1e-14)
    np.testing.assert_allclose(of_b, [1 / total, math.exp(5) / total, math.e / total], rtol=1e-14)
    of_a = quietly(func.grad(lambda a: special.logsumexp(a, b=np.array([2.0, 0.0, 1.0]))), (a,), {})
    np.testing.assert_allclose(of_a, [2 / (2 + math.e), 0, math.e / (2 + math.e)], rtol=1e-14)
    spread = func.grad(lambda b: special.logsumexp(np.zeros((2, 3)), 1, b).sum())(np.ones(3))
    np.testing.assert_allclose(spread, [2 / 3] * 3)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("values", [[0.0, 1.0, -2.0], [0.0, -INF, 1.0], [1e4, 1e4 + 1], [0.0, -800.0], [-1e300, 0.0]])
def test_softmax_is_scipys(name, values):
    a = np.array(values)
    operator = getattr(ops.scipy, f"special_{name}")
    np.testing.assert_array_equal(quietly(operator, (a,), {}), quietly(getattr(scipy.special, name), (a,), {}))
    jacobian = quietly(func.jacrev(operator), (a,), {})
    shares = scipy.special.softmax(a)
    expected = np.eye(len(a)) - shares if name == "log_softmax" else np.diag(shares) - np.outer(shares, shares)
    np.testing.assert_allclose(jacobian, expected, rtol=1e-14, atol=1e-300)


def with_warnings(function, *args):
    """Return the result, and what NumPy warns of, without lines."""
    with all_warnings() as caught:
        result = function(*args)
    return np.asarray(result), [str(warning.message).partition(" (at")[0] for warning in caught]


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "log_softmax"])
@together("values", [*SPECIAL_SUMS, [math.nan, 1.0]], ids=str)
def test_they_warn_as_scipys(name, values):
    for axis in (None, 0):
        _, expected = with_warnings(getattr(scipy.special, name), np.array(values), axis)
        found = with_warnings(getattr(ops.scipy, f"special_{name}"), np.array(values), axis)
        assert found[1] == expected


LAST_BITS = 1e-14 if np.lib.NumpyVersion(np.__version__) < "2.3.0" else 0
"""Older versions cut large sums into other parts than plans do."""
IN_PLANS = {
    **{str(values): np.array(values) for values in [*SPECIAL_SUMS, [math.nan, 1.0], [-0.0, 0.0]]},
    "rows": np.arange(12.0).reshape(3, 4) ** 2, "integers": np.arange(6),
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3), "complex": np.array([1 + 2j, 2 - 1j]),
    "blocks": np.random.default_rng(0).standard_normal((3000, 5)), "axes of length 1": np.ones((1, 3, 2)),
}


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@together("kind", IN_PLANS)
def test_they_are_steps_of_a_plan(name, kind):
    operator, a = getattr(ops.scipy, f"special_{name}"), IN_PLANS[kind]
    for axis in (None, -1, *range(a.ndim - 1), tuple(range(a.ndim))):
        compiled = compile_function(lambda x: operator(x, axis))        # noqa: B023
        expected, messages = with_warnings(operator, a, axis)
        for _ in range(2):
            found, also = with_warnings(compiled, a)
            assert (found.dtype, also) == (expected.dtype, messages)
            np.testing.assert_allclose(found, expected, rtol=LAST_BITS, atol=0)
        assert IS_NUMPY_2_0 or ", 0 calls of Python," in compiled.explain(a)


@pytest.mark.parametrize("kind", IN_PLANS)
def test_logsumexp_is_scipys_to_the_bit(kind):
    a = IN_PLANS[kind]
    infinite = a.copy()
    if a.dtype.kind == "f":
        infinite[..., ::2], infinite[..., 1::3] = -INF, INF
    for axis in (None, -1, *range(a.ndim - 1), tuple(range(a.ndim))):
        for keepdims in (False, True):
            def operator(x, axis=axis, keepdims=keepdims):
                return ops.scipy.special_logsumexp(x, axis, keepdims=keepdims)

            slopes = func.grad(lambda x: ops.np.sum(operator(x) / 2))
            functions = [operator, slopes] if a.dtype.kind == "f" else [operator]
            compiled_functions = {function: compile_function(function) for function in functions}
            for (function, compiled), x in itertools.product(compiled_functions.items(), (a, infinite)):
                expected = with_warnings(function, x)
                if function is operator:
                    scipys = with_warnings(scipy.special.logsumexp, x, axis, None, keepdims)
                    check_same((expected[0],), (scipys[0],), 0)
                    assert expected[1] == scipys[1] == with_warnings(compiled, x)[1]
                for found in (with_warnings(compiled, x), with_warnings(compiled, x)):
                    assert found[0].dtype == expected[0].dtype
                    np.testing.assert_allclose(found[0], expected[0], rtol=LAST_BITS, atol=0)
                assert IS_NUMPY_2_0 or a.dtype.kind == "c" or ", 0 calls of Python," in compiled.explain(x)


def test_weights_and_signs_of_logsumexp_are_calls():
    a, b = np.array([0.5, 1.0, -2.0]), np.array([1.0, -2.0, 3.0])
    compiled = compile_function(lambda a, b: (
        special.logsumexp(a, b=b, return_sign=True), special.logsumexp(a, b=b * b), special.logsumexp(a.sum())))
    expected = (scipy.special.logsumexp(a, b=b, return_sign=True), scipy.special.logsumexp(a, b=b * b), a.sum())
    check_same(compiled(a, b), expected, 0)


def test_sums_of_numbers_and_of_nothing():
    assert special.logsumexp(2.0) == special.logsumexp(Tensor(np.array(2.0))).item() == 2
    assert func.vmap(special.logsumexp)(np.array([1.0, 2.0])).tolist() == [1, 2]
    assert func.vmap(special.softmax)(np.array([1.0, 2.0])).tolist() == [1, 1]


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "log_softmax"])
def test_an_axis_that_there_is_not(name):
    for x in (np.ones(3), MetaArray((3,), np.float64)):
        with pytest.raises(np.exceptions.AxisError):
            getattr(special, name)(Tensor(x) if isinstance(x, np.ndarray) else x, 1)


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["jvp", "yvp", "ivp", "kvp", "h1vp", "h2vp"])
def test_a_derivative_of_no_order(name):
    with pytest.raises(ValueError, match=f"{name}: n is -1, expected a non-negative integer"):
        getattr(special, name)(1, Tensor(np.array(0.5)), -1)


def test_multigammaln_of_too_small_a_number():
    for function in (special.multigammaln, func.grad(special.multigammaln), lambda x, d: func.jvp(
            lambda x: special.multigammaln(x, d), (x,), (x,))):
        with pytest.raises(ValueError, match=r"multigammaln: condition a .* met"):
            function(Tensor(np.array(0.5)), 3)
    with pytest.raises(ValueError, match=r"multigammaln: condition a .* met") as caught:
        func.vmap(special.multigammaln, in_dims=(0, None))(np.array([3.0, 0.5]), 3)
    assert "in example 1 of a batch of 2" in caught.value.__notes__


@pytest.mark.parametrize("name", [
    "gammaln", "erf", "logit", "j0", "log_ndtr", "ellipk", "spence", "logsumexp", "softmax"])
def test_nan_stays_nan(name):
    function = getattr(special, name)
    x = np.array([np.nan])
    assert np.isnan(quietly(function, (Tensor(x),), {}).numpy()).all()
    assert np.isnan(quietly(func.grad(lambda x: function(x).sum()), (x,), {})).all()


@pytest.mark.parametrize(("name", "n"), [("gammaln", 1), ("beta", 2)])
def test_errors_for_what_is_no_number_name_the_function(name, n):
    with pytest.raises(TypeError, match=f"ufunc '{name}' not supported for the input types"):
        getattr(special, name)(*[Tensor(np.array(["a"]))] * n)


def test_numbers_choose_the_loop_as_they_do_in_scipy():
    x = np.linspace(0.1, 0.9, 9)
    for name, *args in (("eval_legendre", 7), ("bdtr", 2, 5), ("expn", 2), ("beta", 1.5), ("xlogy", 1.5)):
        for z in (x, x.astype(np.float32)):
            expected = quietly(getattr(scipy.special, name), (*args, z), {})
            compiled = pydispatch.compile(lambda z, name=name, args=args: getattr(special, name)(*args, z))
            for function, value in ((getattr(special, name), Tensor(z)), (getattr(ops.scipy, f"special_{name}"), z)):
                found = quietly(function, (*args, value), {})
                check_same(found.numpy() if isinstance(found, Tensor) else found, expected, 0)
            check_same(quietly(compiled, (z,), {}), expected, 0)


SEVERAL = {name: getattr(scipy.special, name) for name in scipy.special.__all__
           if isinstance(getattr(scipy.special, name), np.ufunc) and getattr(scipy.special, name).nout > 1
           and FACE.kinds.get(f"special.{name}") not in (None, "refused")}


@pytest.mark.parametrize("n", [0, 3, 20_000])
@pytest.mark.parametrize("name", SEVERAL)
def test_functions_of_several_results_are_steps_of_a_plan(name, n):
    ufunc, ours = SEVERAL[name], getattr(special, name)
    if name.startswith("mathieu"):
        n = min(n, 200)     # a millisecond for each
    rng = np.random.default_rng(0)
    x = [rng.integers(1, 4, n).astype(float)] * name.startswith("mathieu")
    x += [rng.uniform(0.1, 0.9, n) for _ in range(ufunc.nin - len(x))]
    for threads, dtype in ((1, float), (2, float), (1, np.float32)):
        arrays = [array.astype(dtype) for array in x]
        compiled = compile_function(lambda *arrays: [ours(*[1 * array for array in arrays]), ours(*arrays[::-1])[-1]],
                                    threads=threads)
        expected = quietly(lambda *arrays: [ufunc(*arrays), ufunc(*arrays[::-1])[-1]], arrays, {})
        for _ in range(2):
            check_same(quietly(compiled, arrays, {}), expected, 0)
        assert ", 0 calls of Python," in compiled.explain(*arrays)


@pytest.mark.parametrize("n", [5, 20_000])
def test_results_that_nothing_uses_have_a_place_of_their_own(n):
    x = np.random.default_rng(0).uniform(0.1, 0.9, n)
    for i in range(4):
        compiled = compile_function(lambda x, i=i: special.ellipj(x * 2, x)[i] * 3 + special.fresnel(x)[i % 2])
        np.testing.assert_array_equal(
            compiled(x), scipy.special.ellipj(x * 2, x)[i] * 3 + scipy.special.fresnel(x)[i % 2])


def test_one_loop_writes_what_two_operators_give():
    x = np.random.default_rng(0).standard_normal(5000) * 10.0 ** np.arange(-50, 50).repeat(50)
    compiled = compile_function(lambda x: (ops.np.frexp_mantissa(x), ops.np.frexp_exponent(x)))
    check_same(compiled(x), np.frexp(x), 0)
    assert " 1 loops, 0 calls of Python," in compiled.explain(x)


def test_gradients_of_functions_of_several_results_are_compiled():
    def loss(x):
        (sine, cosine), (s, c), (sn, cn, dn, _) = special.shichi(x), special.fresnel(x), special.ellipj(x, x / 2)
        return (sine * cosine + s * c + sn * cn * dn).sum()

    x = np.random.default_rng(0).uniform(0.1, 0.9, (7, 3))
    for function in (func.grad(loss), func.vmap(func.grad(loss))):
        np.testing.assert_array_equal(compile_function(function)(x), function(x))
    np.testing.assert_array_equal(func.grad(compile_function(loss))(x), func.grad(loss)(x))


def test_where_leaves_elements_out():
    x = np.array([0.5, 1.0, -1.0])
    mask = np.array([True, False, False])
    for name in ("erfinv", "logit", "ndtri", "ellipk"):
        found = func.grad(lambda x, name=name: getattr(special, name)(x, where=mask, out=ops.np.zeros(3)).sum())(x)
        assert found.tolist() == [slope(name, 0, 0.5), 0, 0]


# --- other libraries -------------------------------------------------------------------------------------------------

BY_TORCH = {"gammaln": (0.3, 5), "digamma": (0.3, 5), "erf": (-2, 2), "erfc": (-2, 2), "erfinv": (-0.9, 0.9),
            "erfcx": (-1, 3), "expit": (-3, 3), "logit": (0.1, 0.9), "i0": (-2, 3), "i0e": (-2, 3), "i1": (-2, 3),
            "i1e": (-2, 3), "ndtr": (-3, 3), "ndtri": (0.1, 0.9), "log_ndtr": (-30, 3), "entr": (0.1, 2),
            "exp2": (-1, 2), "expm1": (-1, 2), "log1p": (0.1, 2), "sinc": (0.1, 2)}
BY_JAX = {"gammainc": ((0.5, 4), (0.5, 4)), "gammaincc": ((0.5, 4), (0.5, 4)), "beta": ((0.5, 3), (0.5, 3)),
          "betaln": ((0.5, 3), (0.5, 3)), "xlogy": ((0.1, 2), (0.1, 2)), "xlog1py": ((0.1, 2), (0.1, 2)),
          "rel_entr": ((0.1, 2), (0.1, 2)), "kl_div": ((0.1, 2), (0.1, 2)), "expi": ((0.3, 3),), "exp1": ((0.3, 3),),
          "poch": ((0.5, 3), (0.5, 3)), "gamma": ((0.3, 4),)}


def points(*intervals: tuple[float, float]) -> list[np.ndarray]:
    return [np.random.default_rng(i).uniform(low, high, 5) for i, (low, high) in enumerate(intervals)]


@pytest.mark.parametrize("name", BY_TORCH)
def test_gradients_are_torchs(name):
    torch = pytest.importorskip("torch")
    x, = points(BY_TORCH[name])
    value = torch.from_numpy(x).requires_grad_()
    expected, = torch.autograd.grad(getattr(torch.special, name)(value).sum(), value)
    np.testing.assert_allclose(func.grad(lambda x: getattr(special, name)(x).sum())(x), expected.numpy(), rtol=1e-8)


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "log_softmax"])
def test_sums_of_exponentials_are_torchs(name):
    torch = pytest.importorskip("torch")
    x, w = np.random.default_rng(0).standard_normal((2, 3, 4))
    value = torch.from_numpy(x).requires_grad_()
    result = getattr(torch.special, name)(value, 1)
    w = w if result.ndim == 2 else w[:, 0]
    expected, = torch.autograd.grad((result * torch.from_numpy(w)).sum(), value)
    found = func.grad(lambda x: ops.np.sum(ops.np.multiply(getattr(special, name)(x, 1), w)))(x)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", BY_JAX)
def test_gradients_are_jaxs(name):
    jax = pytest.importorskip("jax")
    jspecial = pytest.importorskip("jax.scipy.special")
    arrays = points(*BY_JAX[name])
    every = tuple(range(len(arrays)))
    with jax.enable_x64(True):
        expected = jax.grad(lambda *args: getattr(jspecial, name)(*args).sum(), every)(*arrays)
    found = func.grad(lambda *args: getattr(special, name)(*args).sum(), every)(*arrays)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-8)


# --- which loop takes a call -----------------------------------------------------------------------------------------

BOTH = ("beta", "eval_chebys", "eval_laguerre", "gammainc", "kn", "log_ndtr", "pdtri", "smirnov", "xlogy", "zetac")
"""With loops for whole numbers, with float64 before float32, and without both."""
OPERANDS = {"float64": np.array([1.0, 2.0]), "float32": np.array([1.0, 2.0], "f4"), "matrix": np.array([[1.0], [3.0]]),
            "ints": np.array([1, 2]), "int": 2, "float": 2.0, "numpy.float64": np.float64(2.0), "0-d": np.array(2.0),
            "bools": np.array([True, False]), "strided": np.arange(1.0, 5.0)[::2], "float32 scalar": np.float32(2.0)}


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:.*truncated")
@pytest.mark.parametrize("name", BOTH)
def test_numpy_says_which_loop(name):
    function = getattr(scipy.special, name)
    taken = 0
    for args in itertools.product(OPERANDS.values(), repeat=function.nin):
        expected = function(*args)
        for found in (_core.loop_result(function, *args), getattr(special, name)(*args)):
            if found is not NotImplemented:
                taken += 1
                assert (type(found), found.dtype, found.shape) == (type(expected), expected.dtype, expected.shape)
                np.testing.assert_array_equal(found, expected)
    assert taken > len(OPERANDS) ** function.nin


@pytest.mark.parametrize("call", [
    lambda x: _core.loop_result(scipy.special.gammaln, x), lambda x: _core.loop_result(scipy.special.gammaln, x[::2]),
    lambda x: special.gammaln(x), compile_function(lambda x: special.gammaln(x) + 1.0),
], ids=["loop", "strided", "function", "plan"])
@pytest.mark.parametrize("n", [3, 200_000])
def test_the_errors_of_scipy_are_raised(call, n):
    x = np.ones(n)
    call(x)
    x[0] = 0.0
    if n <= 4096 or call(x) is not NotImplemented:
        error = scipy.special.SpecialFunctionError
        with scipy.special.errstate(all="raise"), pytest.raises(error, match="singularity"):
            call(x)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("n", [1, 200, 200_000])
@pytest.mark.parametrize("where", ["first", "last"])
def test_errors_of_loops_in_plans_name_the_function(n, threads, where):
    compiled = compile_function(lambda x: special.erf(x) + special.gammaln(x - 0.5) + special.ellipk(x / 4),
                                threads=threads)
    x = np.full(n, 1.5)
    compiled(x)
    x[0 if where == "first" else -1] = 0.5
    for _ in range(2):
        with scipy.special.errstate(all="raise"), pytest.raises(
                scipy.special.SpecialFunctionError, match=r"^special\.gammaln: scipy\.special/\w+: sing") as caught:
            compiled(x)
        note, = caught.value.__notes__
        assert note.startswith("in gammaln, which the compiled function calls at ")
    with scipy.special.errstate(all="raise"):
        compiled(np.full(n, 1.5))


def test_errors_of_loops_that_repeat_name_the_function():
    def sums(x):
        return scan(lambda total, x: (total + special.gammaln(x), None), np.zeros(()), x)[0]

    x = np.full(1000, 1.5)
    x[500] = 0.0
    with scipy.special.errstate(all="raise"), pytest.raises(
            scipy.special.SpecialFunctionError, match=r"^special\.gammaln: "):
        compile_function(sums)(x)
