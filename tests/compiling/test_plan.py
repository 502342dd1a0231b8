"""The text of plans, what becomes a loop and what is called, and reports on compiled functions."""

import numpy as np
import pytest

from pydispatch import compile, func, ops
from pydispatch.higher_order import cond, scan, while_loop
from tests.compiling.same import check_same

X = np.random.default_rng(0).standard_normal((3, 4))
V = X[0]


def lines(function, *arguments):
    return compile(function).plan(*arguments).splitlines()


@pytest.mark.parametrize(("function", "expected"), [
    (lambda x: x * 2 + 1, ["@0:float64[3,4] = multiply(input0:float64[3,4], 2.0)",
                           "result0:float64[3,4] = add(@0:float64[3,4], 1.0)"]),
    (lambda x: x, ["result0:float64[3,4] = copy(input0:float64[3,4])"]),
    (lambda x: x.T[1:], ["result0:float64[3,3] = copy(input0+8:float64[3,3] strided)"]),
    (lambda x: x[1] + x[:, 2:3], ["result0:float64[3,4] = add(input0+32:float64[4], input0+16:float64[3,1] strided)"]),
    (lambda x: ops.np.astype(x, np.dtype(np.float32)), ["result0:float32[3,4] = cast(input0:float64[3,4])"]),
    (lambda x: x.sum(), ["result0:float64[1,1] = copy(0.0)",
                         "result0:float64[1,1] = add.reduce(result0:float64[1,1], input0:float64[3,4])"]),
    (lambda x: ops.np.covariance(x, 3.0), [
        "@0:float64[3,1] = copy(0.0)",
        "@0:float64[3,1] = add.reduce(@0:float64[3,1], input0:float64[3,4])",
        "@0:float64[3,1] = divide(@0:float64[3,1], 4.0)",
        "@64:float64[3,4] = subtract(input0:float64[3,4], @0:float64[3,1])",
        "@192:float64[3,3] = matmul(@64:float64[3,4], @64:float64[4,3] strided)",
        "result0:float64[3,3] = divide(@192:float64[3,3], 3.0)",
    ]),
    (lambda x: x @ x[0], ["result0:float64[3] = matmul(input0:float64[3,4], input0:float64[4])"]),
    (lambda x: ops.np.i0(x), ["result0:float64[3,4] = call np::i0(input0:float64[3,4])"]),
    (lambda x: ops.np.sort(x), ["result0:float64[3,4] = sort(input0:float64[3,4])"]),
    (lambda x: ops.np.ones((2,)), ["result0:float64[2] = copy(constant0:float64[2] strided)"]),
], ids=range(11))
def test_lines(function, expected):
    found = lines(function, X)
    assert [line.replace("float64[]", "float64[1,1]") for line in found[:-1]] + found[-1:] == expected


def test_loops_and_branches_are_indented():
    text = compile(lambda x: scan(
        lambda c, y: (cond(c.sum() > 0, lambda c: c * 2, lambda c: c - y, (c,)), None), x[0] * 1, x)[0]).plan(X)
    assert [line.strip() for line in text.splitlines() if line.rstrip().endswith(":")] == [
        "repeat 3 times, carrying 1, over part of input0:", *[line.strip() for line in text.splitlines()
                                                             if line.strip().startswith("if ")], "else:"]
    loop = compile(lambda x: while_loop(lambda x: x.sum() < 9, lambda x: (x * 2,), (x,))).plan(V)
    assert "while, carrying 1:" in loop
    assert "    ? " in loop


def test_blocks_say_how_large_they_are():
    text = compile(lambda x: ops.np.sin(x) * 2).plan(np.ones(20_000))
    assert text.splitlines()[0].endswith("of 20000 elements:")
    rows = compile(lambda x: (x - x.max(1, keepdims=True)) * 2).plan(np.ones((2000, 30)))
    assert "of 2000 rows:" in rows


LOOPS = {
    "views": lambda x: (x.T, x[1:], x[..., None], ops.np.flip(x), ops.np.reshape(x, -1),
                        ops.np.broadcast_to(x, (2, 3, 4)), ops.np.squeeze(x[:1]),
                        ops.np.moveaxis(x, 0, 1), ops.np.split(x, 3), ops.np.real(x)),
    "elementwise": lambda x: ops.np.where(x > 0, ops.np.exp(x), ops.np.clip(x, -0.5, 0.5)) ** 2,
    "joins": lambda x: (ops.np.concatenate([x, x[:1]]), ops.np.stack([x, x], 1)),
    "reductions": lambda x: (x.sum(0), x.mean(), x.max(1), x.min(), x.prod(0), (x > 0).any(), (x > 0).all(1)),
    "rows": lambda x: (ops.np.sort(x), ops.np.argsort(x, 0), ops.np.interp(x, np.arange(3.0), np.ones(3)),
                       ops.np.searchsorted(np.arange(3.0), x), ops.np.fft_fft(x), ops.np.fft_irfft(x, 5, 0)),
    "matrices": lambda x: (ops.np.linalg_inv(x[:, :3]), ops.np.linalg_slogdet(x[:, :3]), ops.np.linalg_svd(x),
                           ops.np.linalg_cholesky(x @ x.T), ops.np.linalg_solve(x[:, :3], x[:, 3])),
    "products": lambda x: (x @ x.T, x[0] @ x[1], x @ x[0]),
    "gathers": lambda x: (ops.np.take(x, np.array([0, 2]), 1), x[np.array([1, 1])]),
    "assignments": lambda x: ops.np.setitem(x, (slice(None), 1), 0.0),
    "new arrays": lambda x: (ops.np.zeros((2,)), ops.np.full_like(x, 3.0), ops.np.arange(5), ops.np.eye(2)),
}
CALLS = {
    "pinv": lambda x: ops.np.linalg_pinv(x), "i0": lambda x: ops.np.i0(x),
    "backward reductions": lambda x: x[::-1].sum(0),
    "powers of integers": lambda x: ops.np.astype(x, np.dtype(int)) ** 2,
    "reductions with where": lambda x: ops.np.sum(x, where=x > 0), "half precision": lambda x: ops.np.astype(
        x, np.dtype(np.float16)) * 2,
}


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_a_loop(name):
    compiled = compile(LOOPS[name])
    assert " 0 calls of Python" in compiled.explain(X)
    check_same(compiled(X), LOOPS[name](X))


@pytest.mark.parametrize("name", CALLS)
def test_what_is_called(name):
    compiled = compile(CALLS[name])
    assert " 0 calls of Python" not in compiled.explain(X)
    assert " call np::" in compiled.plan(X)
    check_same(compiled(X), CALLS[name](X))


def test_the_report():
    def function(x, n):
        return ops.np.power(ops.np.astype(x, np.dtype(int)), n) + ops.np.sin(ops.np.arange(4.0))

    compiled = compile(function)
    compiled(X, 2)
    compiled(X[0], 2)
    report = compiled.explain(X[0], 2)
    assert report.splitlines()[0] == "<compiled test_the_report.<locals>.function> for (float64[4])"
    assert "traced: 5 calls" in report
    assert " folded" in report
    assert "not in C: np::power is called: " in report
    assert "compilation 1: the first call" in report
    assert "compilation 2: argument 0 is float64[4] and was float64[3, 4]" in report


def test_the_report_lists_each_call_of_python():
    def function(x, generator):
        y = ops.np.i0(x) + ops.np.linalg_pinv(ops.np.eye(4) + x @ x)
        y = y + ops.np.random_normal(generator, size=(4,))
        return scan(lambda carry, _: (ops.np.i0(carry), ops.np.copy(carry)), y, None, length=2)[0]

    first = function.__code__.co_firstlineno
    report = compile(function).explain(np.eye(4), np.random.default_rng(0))
    lines = [line.strip() for line in report.splitlines() if "not in C" in line]
    assert [(line.split()[3], line.split(": ")[2].partition(" (at ")[0], int(line.rpartition(":")[2][:-1]) - first)
            for line in lines] == [
        ("np::i0", "no loop computes it", 1), ("np::linalg_pinv", "no loop computes it", 1),
        ("np::random_normal", "it draws random numbers", 2), ("np::i0", "no loop computes it", 3)]
    assert "4 calls of Python" in report


@pytest.mark.parametrize(("one", "other", "words"), [
    ((X, 1), (X, 2), "argument 1 is 2 and was 1"), ((X, "a"), (X, None), "argument 1 is None and was a"),
    ((X, X), (X, (X,)), "another|nested|structure"), ((X, 0.0), (X, -0.0), "argument 1 is -0.0 and was 0.0"),
    ((X, slice(1)), (X, slice(2)), "argument 1 is "),
], ids=["number", "type", "structure", "sign", "slice"])
def test_reasons(one, other, words):
    compiled = compile(lambda x, n: x)
    compiled(*one)
    compiled(*other)
    reason = next(line for line in compiled.explain(*other).splitlines() if "compilation 2: " in line)
    assert any(word in reason for word in words.split("|")), reason


@pytest.mark.parametrize("transform", [
    func.hessian, func.jacrev, func.jacfwd, lambda f: func.vmap(func.hessian(f)),
], ids=["hessian", "jacrev", "jacfwd", "vmap of hessian"])
def test_derivatives_in_all_directions_are_plans_throughout(transform):
    compiled = compile(transform(lambda x: ops.np.sum(ops.np.sin(x) * x)))
    x = np.random.default_rng(0).standard_normal((2, 3))
    assert ", 0 calls of Python, " in compiled.explain(x)
    np.testing.assert_allclose(compiled(x), transform(lambda x: ops.np.sum(ops.np.sin(x) * x))(x), rtol=1e-13)


def test_calls_of_what_is_known_are_made_once():
    kept = np.array([3.0, 1.0, 2.0])
    compiled = compile(lambda x: x + ops.np.cumsum(ops.np.sort(kept)))
    check_same(compiled(kept), kept + np.array([1.0, 3.0, 6.0]))
    assert ", 0 calls of Python, 2 constants folded" in compiled.explain(kept)


def test_errors_of_what_is_known_are_those_of_a_run():
    singular, large = np.zeros((2, 2)), np.full(2, 1e308)
    inverse = compile(lambda x: x + ops.np.linalg_inv(singular))
    assert ", 1 calls of Python, 0 constants folded" in inverse.explain(singular)
    with pytest.raises(np.linalg.LinAlgError):
        inverse(singular)
    overflowing = compile(lambda x: x + ops.np.cumsum(large))
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="overflow"):
            overflowing(large * 0.0)


def test_a_reason_names_the_difference_to_arguments_of_the_same_structure():
    compiled = compile(lambda x, n=1: x * n)
    for args, kwargs in (((X,), {}), ((X,), {"n": 2}), ((X.astype(np.float32),), {})):
        compiled(*args, **kwargs)
    assert "compilation 3: argument 0 is float32[3, 4] and was float64[3, 4]" in compiled.explain(X)


def test_the_graph_is_a_copy_of_nothing_in_the_arguments():
    graph = compile(lambda x, y: x * y + V).graph(X, X)
    assert [node.name for node in graph.placeholders] == ["x_1", "y_1"]
    check_same(graph(X, X), (X * X + V,))
