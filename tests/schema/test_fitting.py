"""Functions against the schema that they are kernels of."""

import functools
import inspect
import itertools
import math

import numpy as np
import pytest

from pydispatch.schema import fitting, parse_signature
from pydispatch.schema.fitting import Fit, compare_signature, first_difference
from tests.schema.samples import ARRAY, assert_says
from tests.together import together


@pytest.mark.parametrize(("real", "inferred", "difference"), [
    ("(Tensor x) -> Tensor", "(Tensor _0) -> Tensor", None),
    ("(Tensor x) -> Tensor", "(Tensor _0, int _1) -> Tensor", "number of arguments: expected 1, inferred 2"),
    ("(Tensor x) -> (Tensor, int)", "(Tensor _0) -> Tensor", "number of returns: expected 2, inferred 1"),
    ("(int x) -> (Tensor, int)", "() -> Tensor", "number of arguments: expected 1, inferred 0"),
    ("(int x) -> (Tensor, int)", "(str _0) -> Tensor", "number of returns: expected 2, inferred 1"),
    ("(int x, Tensor? y) -> int", "(int _0, Tensor _1) -> str", "argument 2: expected Tensor?, inferred Tensor"),
    ("(Any x) -> ()", "(Tensor _0) -> ()", "argument 1: expected Any, inferred Tensor"),
    ("(int x) -> (int, str)", "(int _0) -> (int, bool)", "return 2: expected str, inferred bool"),
    ("(int a=1, *, int[2] b=1) -> Tensor y", "(int _0, int[] _1) -> Tensor", None),
    ("(Tensor(a!) x) -> Tensor(a!)", "(Tensor _0) -> Tensor", None),
    ("(ScalarType x) -> ()", "(int _0) -> ()", "argument 1: expected ScalarType, inferred int"),
    ("(Device? x) -> ()", "(str? _0) -> ()", None),
    ("(Device[] x) -> ()", "(str[] _0) -> ()", None),
    ("(str x) -> ()", "(Device _0) -> ()", "argument 1: expected str, inferred Device"),
    ("(Tensor x, int n) -> (Tensor, int)", "(Any _0, int _1) -> Any", None),
    ("(Tensor x, int n) -> (Tensor, int)", "(Any _0, Any _1) -> (Tensor, Any)", None),
    ("(Tensor x) -> (Tensor, int)", "(Any _0, Any _1) -> Any", "number of arguments: expected 1, inferred 2"),
    ("(Tensor x, int n=1, *, str s='a') -> Tensor", "(Tensor _0) -> Tensor", None),
    ("(Tensor x, int n=1, *, str s='a') -> Tensor", "(Tensor _0, *, str s) -> Tensor", None),
    ("(Tensor x, int n=1) -> ()", "(Tensor _0, str _1) -> ()", "argument 2: expected int, inferred str"),
    ("(Tensor x, *, int n=1, str s='a') -> ()", "(Tensor _0, *, int s) -> ()",
     "argument 2: expected str, inferred int"),
    ("(int x, *, int a, str b) -> ()", "(int _0, *, str b, int a) -> ()", None),
    ("(int x, *, int a) -> ()", "(int _0, *, str a) -> ()", "argument 2: expected int, inferred str"),
])
def test_first_difference(real, inferred, difference):
    assert first_difference(parse_signature(real), parse_signature(inferred)) == difference


SCHEMA = "(Tensor x, Tensor y, int n=1, *, Scalar alpha=1, Tensor out) -> Tensor"


def wrapped(x, y, n, *, alpha, out): ...


@functools.wraps(wrapped)
def wrapper(*args, **kwargs): ...


class Method:
    def kernel(self, x, y, n=1, *, alpha=1, out): ...

    def __call__(self, x, y, n, *, alpha=1, out): ...


@together("schema, function, fill", [
    (SCHEMA, lambda x, y, n=1, *, alpha=1, out: x, ""),
    (SCHEMA, lambda a, b, c=1, *, out, alpha=1: a, ""),
    (SCHEMA, lambda x, y, n, *, alpha=1, out: x, "n"),
    (SCHEMA, lambda x, y, n, *, alpha, out: x, "n alpha"),
    (SCHEMA, lambda x, y, n=True, *, alpha=1, out: x, ""),
    (SCHEMA, lambda x, y, n=1, alpha=1, out=None: x, ""),
    (SCHEMA, lambda x, y, n=1, alpha=1, out=None, more=3: x, ""),
    (SCHEMA, lambda x, y, /, n, *, alpha, out: x, "n alpha"),
    (SCHEMA, lambda *args, **kwargs: args, ""),
    (SCHEMA, lambda x, *args, **kwargs: args, ""),
    (SCHEMA, lambda x, *args, out, **kwargs: args, ""),
    (SCHEMA, wrapped, "n alpha"), (SCHEMA, wrapper, "n alpha"), (SCHEMA, Method().kernel, ""), (SCHEMA, Method(), "n"),
    (SCHEMA, functools.partial(lambda k, x, y, n=1, *, alpha=1, out: x, None), ""),
    ("(Tensor x, Tensor y) -> Tensor", np.add, ""),
    ("(Tensor x) -> Tensor", np.nditer, ""),
    ("() -> ()", lambda: None, ""),
    ("(int[] l=[1, 2]) -> ()", lambda l=[1, 2]: None, ""),  # noqa: E741
    ("(int[] l=[1, 2]) -> ()", lambda l=(1, 2): None, ""),  # noqa: E741
    ("(int[2] l=1) -> ()", lambda l=1: None, ""),  # noqa: E741
    ("(float f=nan) -> ()", lambda f=float("nan"): None, ""),
    ("(float f=1) -> ()", lambda f=1: None, ""),
    ("(ScalarType d=float32) -> ()", lambda d=np.float32: None, ""),
    ("(Device d='cpu') -> ()", lambda d="cpu": None, ""),
    ("(Tensor? t=None, int? i=None) -> ()", lambda t=None, i=None: None, ""),
])
def test_signature_of_a_kernel(schema, function, fill):
    assert compare_signature(parse_signature(schema), function) == Fit(frozenset(fill.split()))


@pytest.mark.parametrize(("schema", "function", "fill", "unsupported"), [
    (SCHEMA, lambda x, y, *, alpha=1, out: x, "", "n"),
    (SCHEMA, lambda x, y, *, out: x, "", "n alpha"),
    (SCHEMA, lambda x, y, n, *, out: x, "n", "alpha"),
    (SCHEMA, lambda x, y, n=1, out=None: x, "", "alpha"),
    (SCHEMA, lambda x, y, *, out, **rest: x, "", "n"),
    (SCHEMA, lambda x, y, *rest, out: x, "", "alpha"),
    ("(int a=1, int b=2) -> ()", lambda: None, "", "a b"),
    ("(Tensor x, *, ScalarType? dtype=None) -> Tensor", np.linalg.inv, "", "dtype"),
])
def test_arguments_that_a_kernel_does_not_take(schema, function, fill, unsupported):
    fit = compare_signature(parse_signature(schema), function)
    assert fit == Fit(frozenset(fill.split()), frozenset(unsupported.split()))


@pytest.mark.parametrize(("schema", "function", "parts"), [
    (SCHEMA, lambda x: x, ["takes 1 positional arguments (x)", "passes 3 (x, y, n)"]),
    (SCHEMA, lambda x, y, *, n=1, alpha=1, out: x, ["takes 'n' by keyword only", "by position"]),
    ("(Tensor x, *, int a=1) -> ()", lambda x, a=1, /: None, ["does not take a keyword argument 'a'"]),
    (SCHEMA, lambda x, y, n=1, *, alpha=1: x, ["does not take a keyword argument 'out'"]),
    (SCHEMA, lambda x, out, n=1, *, alpha=1, **kwargs: x, ["does not take a keyword argument 'out'"]),
    (SCHEMA, lambda x, y, n=1, out=1, /, *, alpha=1: x, ["does not take a keyword argument 'out'"]),
    (SCHEMA, lambda x, y, n=1, *, alpha=1, out, z: x, ["requires a parameter 'z'"]),
    ("(Tensor x) -> ()", lambda x, y: x, ["requires a parameter 'y'"]),
    ("(Tensor x, *, int a) -> ()", lambda x, y, /, *, a: x, ["requires a parameter 'y'"]),
    (SCHEMA, lambda x, y, n=2, *, alpha=1, out: x, ["'n'", "is 2", "schema's is 1"]),
    (SCHEMA, lambda x, y, n=None, *, alpha=1, out: x, ["'n'", "is None", "schema's is 1"]),
    (SCHEMA, lambda x, y, n=1, *, alpha=1.0, out: x, ["'alpha'", "is 1.0", "schema's is 1"]),
    (SCHEMA, lambda x, y, n=1, *, alpha=True, out: x, ["'alpha'", "is True", "schema's is 1"]),
    ("(int[]? l=None) -> ()", lambda l=(): None, ["'l'", "is ()", "schema's is None"]),  # noqa: E741
    ("(Tensor? t=None) -> ()", lambda t=1.0: None, ["'t'", "is 1.0", "schema's is None"]),
    ("(Tensor x) -> Tensor", np.add, ["requires a parameter 'x1'"]),
    ("(Tensor x) -> Tensor", lambda: None, ["takes 0 positional arguments ()"]),
])
def test_signature_that_does_not_fit(schema, function, parts):
    with pytest.raises(ValueError, match="it") as raised:
        compare_signature(parse_signature(schema), function)
    assert_says(str(raised.value), *parts)


def test_key_set_is_not_compared():
    schema = parse_signature("(Tensor x, int n=1) -> Tensor")
    assert compare_signature(schema, lambda keys, x, n: x, with_keyset=True) == Fit(frozenset("n"))
    assert compare_signature(schema, lambda keys, /, x, n=1: x, with_keyset=True) == Fit()
    assert compare_signature(schema, lambda keys, x: x, with_keyset=True) == Fit(unsupported=frozenset("n"))
    with pytest.raises(ValueError, match="takes 0 positional"):
        compare_signature(schema, lambda keys: keys, with_keyset=True)


def test_what_fills_is_callable():
    schema = parse_signature("(Tensor x, int n=1, str s='a', *, int k=2, int m=3) -> ()")
    for n, k in itertools.product(["n", "n=1"], ["k", "k=2"]):
        kernel = eval(f"lambda x, {n}, s{n[1:] and '=' + repr('a')}, *, {k}, m=3: 0")
        fill = compare_signature(schema, kernel).filled
        positional = [a.default for a in schema.arguments[1:3] if a.name in fill]
        keywords = {a.name: a.default for a in schema.arguments[3:] if a.name in fill}
        assert kernel(ARRAY, *positional, **keywords) == 0


@pytest.mark.parametrize("function", [np.array, np._core.multiarray.where, math.hypot, sorted, sum, pow, dict.get, len],
                         ids=lambda function: function.__name__)
def test_signatures_of_functions_in_c_are_those_of_inspect(function):
    try:
        expected = fitting._parameters_of_signature(inspect.signature(function))
    except ValueError:
        assert fitting.parameters_of(function) is None
        return
    found = fitting.parameters_of(function)
    assert (found.positional, found.keywords, found.has_varargs, found.has_varkw) == (
        expected.positional, expected.keywords, expected.has_varargs, expected.has_varkw)
