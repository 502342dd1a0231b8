"""Python numbers among the arguments of compiled functions: those that vary become arguments of the plan."""

import math
import pickle

import numpy as np
import pytest

import pydispatch.numpy as face
from pydispatch import Tensor, compile, func, ops
from pydispatch.compiling import functions
from pydispatch.higher_order import scan
from pydispatch.operators.declare import IS_NUMPY_2_0
from tests.compiling.same import check_same
from tests.together import together

X = np.random.default_rng(0).uniform(-2, 2, 40)
TABLE = [np.zeros(40), np.zeros(40), np.ones(40)]
DTYPES = (np.float64, np.float32, np.complex64, np.int64, np.int8, np.bool_)


def written(x, a):
    y = face.copy(x)
    y[1:3] *= a
    y += a
    return y


def stepped(x, h):
    return scan(lambda state, _: (state + h * face.sin(state), ops.np.copy(state)), x, None, length=3)[1]


def repeated(x, n):
    for _ in range(n):
        x = face.sin(x)
    return x


FLOATS = (0.25, 0.5, 1.75, 2.0, 1e-300, 3.0)

# The function, and numbers of which the second makes the plan take any other of its type and sign.
AS_VALUES = {
    "product": (lambda x, a: x * a, FLOATS),
    "sides": (lambda x, a: a - x + a * x - x / a, FLOATS),
    "negative": (lambda x, a: face.exp(-a * x) - a, FLOATS),
    "negative numbers": (lambda x, a: x * a + a, (-0.25, -0.5, -1e300)),
    "computed numbers": (lambda x, a: x * (1 - a / 2) + 1.0 / a, FLOATS),
    "comparisons": (lambda x, a: (x > a) * 1.0 + (a >= x) * 2.0 + (x != a), FLOATS),
    "choice": (lambda x, a: face.where(x < a, a, x), FLOATS),
    "bounds": (lambda x, a: face.clip(face.maximum(x, 0.1), 0.0, a), FLOATS),
    "powers": (lambda x, a: face.power(face.abs(x), a) + a**x, FLOATS),
    "divisions": (lambda x, a: x // a + x % a, FLOATS[:4]),
    "NumPy's functions": (lambda x, a: np.multiply(a, x) + np.maximum(x, a), FLOATS),
    "reductions": (lambda x, a: face.mean(x * a) + face.sum(x + a), FLOATS),
    "several": (lambda x, a: {"x": x + a, "n": 3}, FLOATS),
    "loop": (stepped, FLOATS[:3]),
    "batch": (lambda x, a: func.vmap(lambda y: face.sin(y * a) - a)(x), FLOATS),
    "ints": (lambda x, n: x * n + n, (1, 2, 70, 2**53)),
}
OF_FLOATS = {
    "written": (written, FLOATS),
    "gradient": (lambda x, a: func.grad(lambda y: face.sum(face.sin(y * a) / a))(x), FLOATS),
    "hessian": (lambda x, a: func.hessian(lambda y: face.sum(face.sin(y * a)))(x[:3]), FLOATS),
    "tangents": (lambda x, a: func.jvp(lambda y: face.sin(y * a) - a, (x,), (x,)), FLOATS),
}
WHOSE_VALUES_MATTER = {
    "branch": (lambda x, a: x * a if a > 0.3 else x - a, FLOATS),
    "truth": (lambda x, a: x * a if a else x, (1.0, 2.0, 0.0)),
    "read by C": (lambda x, a: x if math.isclose(a, 2.0) else x * a, FLOATS),
    "type": (lambda x, a: x * a if type(a) is float else x, FLOATS),
    "rounded": (lambda x, a: x * round(a), FLOATS),
    "look-up": (lambda x, a: x * {0.5: 2.0}.get(a, 1.0), FLOATS),
    "text": (lambda x, a: x * float(f"{a:.1f}"), FLOATS),
    "exponent": (lambda x, a: face.abs(x) ** a, FLOATS),
    "not exact": (lambda x, a: x * a**2, FLOATS),
    "number of Python's": (lambda x, a: x * math.sqrt(a), FLOATS),
    "number of NumPy's": (lambda x, a: x * np.sqrt(a), FLOATS),
    "computed divisor": (lambda x, a: x * (1.0 / (2 - a)), (0.5, 0.25, 1.75)),
    "zero": (lambda x, a: x * a, (0.0, -0.0)),
    "not finite": (lambda x, a: x * a, (np.inf, -np.inf, np.nan)),
    "result": (lambda x, a: (x, a), FLOATS),
    "gradient": (lambda x, a: func.grad(lambda b: face.sum(x * b))(a), FLOATS),
    "constants": (lambda x, a: x + TABLE[2] * a, FLOATS),
    "count": (repeated, (1, 2, 3)),
    "position": (lambda x, n: x * n + TABLE[n], (0, 1, 2)),
    "index": (lambda x, n: x[n], (1, 2, 3)),
    "slice": (lambda x, n: x[:n], (50, 60, 3)),
    "size": (lambda x, n: face.reshape(x, (n, -1)), (2, 4, 5)),
    "large int": (lambda x, n: x * n, (2**53 + 1, 2**60, 2**62)),
}


def called(function, *args):
    """Return the result of a call, or the class of its error."""
    try:
        with np.errstate(all="ignore"):
            return function(*args)
    except Exception as error:
        return type(error)


def check_calls(f, numbers, dtype):
    """Check calls with these numbers, twice, against calls of the function itself. Return how many compiled."""
    compiled, x = compile(f), X.astype(dtype)
    for number in (*numbers, *numbers):
        check_same(called(compiled, x, number), called(f, Tensor(x), number), number)
    return compiled.cache_info().misses



@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")
@pytest.mark.parametrize("name", [*AS_VALUES, *OF_FLOATS, *WHOSE_VALUES_MATTER])
@together("dtype", DTYPES)
def test_results_are_those_of_the_function(name, dtype):
    f, numbers = {**AS_VALUES, **OF_FLOATS, **WHOSE_VALUES_MATTER}[name]
    check_calls(f, numbers, dtype)


@pytest.mark.parametrize("name", [*AS_VALUES, *OF_FLOATS])
def test_the_second_number_becomes_an_argument_of_the_plan(name):
    f, numbers = {**AS_VALUES, **OF_FLOATS}[name]
    reads = IS_NUMPY_2_0 and name in ("comparisons", "choice")      # NumPy 2.0 compares with the value of a number
    assert check_calls(f, numbers, np.float64) == (len(numbers) if reads else 2)


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")
@pytest.mark.parametrize("name", WHOSE_VALUES_MATTER)
def test_a_number_whose_value_matters_compiles_again(name):
    f, numbers = WHOSE_VALUES_MATTER[name]
    assert check_calls(f, numbers, np.float64) == len(numbers)


def test_python_reports_a_division_by_zero():
    compiled = compile(lambda x, a: x * (1.0 / a))
    for a in (0.5, 0.25):
        compiled(X, a)
    with pytest.raises(ZeroDivisionError):
        compiled(X, 0.0)


def test_explain_says_it_once():
    compiled = compile(lambda x, a, label: x * a)
    for a in (0.1, 0.2, 0.3, 0.4):
        compiled(X, a, "x")
    text = compiled.explain(X, 0.5, "x")
    assert text.count("argument 1 is 0.2 and was 0.1, and is an argument of the plan from now on") == 1
    assert "compilation 3" not in text
    assert compiled.plan(X, 0.6, "x") == "result0:float64[40] = multiply(input0:float64[40], input1:float64[])"


def test_graphs_have_the_numbers_of_their_arguments():
    compiled = compile(lambda x, a: x * a + a)
    for a in (0.1, 0.2, 0.3):
        compiled(X, a)
    check_same(compiled.graph(X, 0.5)(X), (X * 0.5 + 0.5,))


def test_each_of_several_numbers_is_judged_by_itself():
    compiled = compile(lambda x, a, b, n: x * a + b if n > 1 else x)
    for i in range(1, 5):
        for n in (2, 3):
            check_same(compiled(X, 0.1 * i, b=0.2 * i, n=n), X * (0.1 * i) + 0.2 * i)
    assert compiled.cache_info().misses <= 5


def test_signs_and_types_have_plans_of_their_own():
    compiled = compile(lambda x, a: x * a)
    for a in (0.5, 0.25, -0.5, -0.25, 3, 4, 5, -3, -4, 0.0, True):
        check_same(compiled(X, a), X * a)
    assert compiled.cache_info().misses == 2 + 1 + 2 + 1 + 2


def test_values_of_levels_and_of_the_tape_keep_numbers_in_the_guard():
    compiled = compile(lambda x, a: face.sum(face.sin(x * a)))
    for a in (0.5, 0.25, 0.125):
        compiled(X, a)
        check_same(func.grad(compiled)(X, a), a * np.cos(X * a))
        x = Tensor(X, requires_grad=True)
        compiled(x, a).backward()
        check_same(x.grad, a * np.cos(X * a))


@pytest.mark.parametrize("copied", [lambda f: pickle.loads(pickle.dumps(f)), lambda f: f])
def test_a_copy_learns_again(copied):
    compiled = compile(product)
    compiled(X, 0.5)
    compiled(X, 0.25)
    again = copied(compiled)
    check_same(again(X, 0.75), X * 0.75)
    again.cache_clear()
    check_same(again(X, 0.125), X * 0.125)
    assert again.cache_info().misses == 1


def product(x, a):
    return x * a


def test_donated_arguments_beside_numbers():
    compiled = compile(lambda a, x: x * a, donate=1)
    for a in (0.5, 0.25, 0.75):
        x = X.copy()
        result = compiled(a, x)
        check_same(result, X * a)
    assert result is x


def test_there_is_a_bound_on_plans(monkeypatch):
    monkeypatch.setattr(functions, "MOST_PROGRAMS", 5)
    monkeypatch.setattr(functions, "MANY_VARIANTS", 20)
    compiled = compile(lambda x, a: x * a if a > 0 else x)
    for i in range(1, 10):
        compiled(X, float(i))
    assert compiled.cache_info() == (0, 9, 5)
    assert len(compiled.variants) == 5
    compiled(X, 9.0)
    compiled(X, 1.0)
    assert compiled.cache_info() == (1, 10, 5)


def test_numbers_in_machine_code():
    pytest.importorskip("numba")
    compiled = compile(lambda x, a: face.sum(x * a - x), backend="numba")
    x = np.linspace(0, 1, 1000)
    for a in (0.5, 0.25, 0.75):
        np.testing.assert_allclose(compiled(x, a), np.sum(x * a - x))
    assert compiled.cache_info().misses == 2
