"""Conversions to Python's and NumPy's values: one check, one first line, and a remedy that fits the call."""

import array
import cmath
import hashlib
import math
import operator
import pickle
import re
import statistics
import struct
import subprocess
import sys
import traceback
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func, higher_order, ops
from pydispatch.exceptions import AutogradError, ConversionError, DataDependentError, DispatchError, DispatchTypeError
from pydispatch.tracing import make_fx
from tests.together import together

X = np.array([1.5, 2.0])

INSIDE = {
    "grad": lambda f: func.grad(lambda x: f(x[0]) or x.sum())(X),
    "vjp": lambda f: func.vjp(lambda x: f(x[0]) or x, X),
    "jvp": lambda f: func.jvp(lambda x: f(x[0]) or x, (X,), (X,)),
    "jacrev": lambda f: func.jacrev(lambda x: f(x[0]) or x)(X),
    "linearize": lambda f: func.linearize(lambda x: f(x[0]) or x, X),
    "grad of grad": lambda f: func.grad(lambda x: func.grad(lambda x: f(x[0]) or x.sum())(x).sum())(X),
    "tape": lambda f: f(Tensor(X, requires_grad=True)[0]),
    "vmap": lambda f: func.vmap(lambda x: f(x) or x)(X),
    "vmap of grad": lambda f: func.vmap(func.grad(lambda x: f(x) or x * 1.0))(X),
}
BATCHED = ("vmap", "vmap of grad")


def into_an_array(x):
    out = np.zeros(3)
    out[1] = x


def into_a_slice(x):
    out = np.zeros(3)
    out[1:] = x


def into_an_item(x):
    rows = [np.zeros(3)]
    rows[0][1] = x


STORED = {"out": into_an_array, "out[1:]": into_a_slice, "rows[0]": into_an_item}

FLOAT, INT, INDEX, ARRAY = "float()", "int()", "an index", "a NumPy array"
MISTAKES = {
    # name: the mistake, what it uses the value as, what to write
    "float": (float, FLOAT, "np.sin(x)"),
    "complex": (complex, "complex()", "np.sin(x)"),
    "int": (int, INT, None),
    "item": (lambda x: x.item(), "item()", "leave out .item()"),
    "item of an index": (lambda x: x.item(0), "item()", "leave out .item()"),
    "tolist": (lambda x: x.tolist(), "tolist()", "leave out .tolist()"),
    "the operator item": (lambda x: ops.np.item(x), "np.item()", None),
    "math.sin": (lambda x: math.sin(x), FLOAT, "np.sin instead of math.sin"),
    "math.pow": (lambda x: math.pow(x, 2), FLOAT, "np.power instead of math.pow"),
    "math.acos": (lambda x: math.acos(x), FLOAT, "np.arccos instead of math.acos"),
    "math.lgamma": (lambda x: math.lgamma(x), FLOAT, "pydispatch.scipy.special.gammaln instead of math.lgamma"),
    "math.hypot": (lambda x: math.hypot(x, 2.0), FLOAT, "np.hypot instead of math.hypot"),
    "math.fsum": (lambda x: math.fsum([x, x]), FLOAT, "np.sum instead of math.fsum"),
    "math.dist": (lambda x: math.dist([x], [0.0]), FLOAT, "np.linalg.norm instead of math.dist"),
    "math.isclose": (lambda x: math.isclose(x, 1.5), FLOAT, "np.isclose instead of math.isclose"),
    "math.floor": (lambda x: math.floor(x), "math.floor()", "np.floor instead of math.floor"),
    "math.ceil": (lambda x: math.ceil(x), "math.ceil()", "np.ceil instead of math.ceil"),
    "math.trunc": (lambda x: math.trunc(x), "math.trunc()", "np.trunc instead of math.trunc"),
    "cmath.exp": (lambda x: cmath.exp(x), "complex()", "np.exp instead of math.exp"),
    "round": (round, "round()", "np.round(x)"),
    "a member of a set": (lambda x: {x}, "hash()", "id(x)"),
    "a key of a dict": (lambda x: {}.get(x), "hash()", "id(x)"),
    "an index of a list": (lambda x: [1, 2, 3][x], INDEX, None),
    "a slice of a list": (lambda x: [1, 2, 3][:x], INDEX, None),
    "range": (lambda x: range(x), INDEX, None),
    "operator.index": (operator.index, INDEX, None),
    "chr": (chr, INDEX, None),
    "numpy.asarray": (lambda x: np.asarray(x), ARRAY, "pydispatch.numpy.asarray"),
    "numpy.array of several": (lambda x: np.array([x, x]), ARRAY, "numpy.stack([...]), not numpy.array([...])"),
    "numpy.ascontiguousarray": (lambda x: np.ascontiguousarray(x), ARRAY, "pydispatch.numpy.ascontiguousarray"),
    "numpy.full": (lambda x: np.full(3, x), ARRAY, "pydispatch.numpy.full"),
    "numpy.float64": (lambda x: np.float64(x), ARRAY, "pydispatch.numpy"),
    "numpy.nditer": (lambda x: list(np.nditer(x)), ARRAY, "pydispatch.numpy"),
    "numpy()": (lambda x: x.numpy(), ARRAY, "pydispatch.numpy"),
    "memoryview": (lambda x: memoryview(x), ARRAY, None),
    "hashlib": (lambda x: hashlib.sha256(x), ARRAY, None),
    "dlpack": (lambda x: np.from_dlpack(x), ARRAY, None),
    "the array interface": (lambda x: x.__array_interface__, ARRAY, None),
    "tobytes": (lambda x: x.tobytes(), ARRAY, None),
    "flat": (lambda x: [float(item) for item in x.flat], FLOAT, None),
    "array.array": (lambda x: array.array("d", [x]), FLOAT, None),
    "a percent format": (lambda x: "%.3f" % x, FLOAT, None),  # noqa: UP031  the mistake
    "fill": (lambda x: np.zeros(3).fill(x), FLOAT, "pydispatch.numpy.zeros(shape, like=tensor)"),
    "a draw": (lambda x: np.random.default_rng(0).normal(x), ARRAY, None),
}


def error_of(run, mistake):
    errors = []

    def f(x):
        try:
            mistake(x)
        except Exception as error:
            errors.append(error)

    run(f)
    assert errors, "nothing was raised"
    return errors[0]


@together("name", INSIDE)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_value_that_is_followed_becomes_no_constant(mistake, name):
    call, use, remedy = MISTAKES[mistake]
    if mistake == "the operator item" and name in BATCHED:
        return      # its batching rule refuses
    error = error_of(INSIDE[name], call)
    first, second = str(error).split("\n")
    lost = "each example has its own value" if name in BATCHED else "its gradient would be lost"
    who = "a Tensor that requires grad" if name == "tape" else r"a value of \w+, called at .*test_conversions\.py:\d+"
    pattern = rf"{who} was used as {re.escape(use)}: {lost} \(at .*test_conversions\.py:\d+\)"
    assert re.fullmatch(pattern, first), first
    assert remedy is None or remedy in second, second
    if name not in BATCHED:
        alone = "tensor.detach()" if name == "tape" else "pydispatch.func.concrete_value(tensor)"
        assert f"For the plain value: {alone}" in second


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("target", STORED)
def test_an_array_that_numpy_made_is_named_with_the_import_to_change(target, name):
    error = error_of(INSIDE[name], STORED[target])
    code = STORED[target].__code__
    first = str(error).split("\n")[0]
    assert first.startswith(f"{code.co_filename}:{code.co_firstlineno + 2}: {target.split('[')[0]}"), first
    assert ", a NumPy array, cannot hold a" in first
    copy = r"pnp\.array\([\w\[\]]+, like=tensor\)" if name == "tape" else r"pnp\.copy\([\w\[\]]+\)"
    assert re.search(f": write to a copy, {copy}, or change `import numpy as np` to `import pydispatch.numpy as np`$",
                     first), first
    assert "pydispatch.numpy.zeros(shape, like=tensor)" in str(error).split("\n")[1]
    assert "sequence" not in "".join(traceback.format_exception(error))


def test_without_the_source_it_is_an_array_that_numpy_made():
    names = {"np": np}
    exec("def store(x):\n    out = np.zeros(3)\n    out[0] = x", names)
    error = error_of(INSIDE["grad"], names["store"])
    first = str(error).split("\n")[0]
    assert ": a NumPy array cannot hold a value of grad" in first
    assert first.endswith(": change `import numpy as np` to `import pydispatch.numpy as np`")


def test_with_the_face_imported_alone_the_remedy_is_a_copy():
    names = {"np": pnp}
    exec("def store(x, out):\n    out[0] = x", names)
    error = error_of(INSIDE["grad"], lambda x: names["store"](x, np.zeros(3)))
    assert str(error).split("\n")[0].endswith("write to a copy, np.copy(array)")


# --- writes by functions and augmented assignments name what is written, too ------------------------------------------


class Buffers:
    def __init__(self):
        self.buf = np.zeros(3)


HELD = Buffers()
FILLS = {
    "augmented": ("HELD.buf", lambda x: operator.setitem({}, 0, augment(x))),
    "out": ("HELD.buf", lambda x: pnp.add(HELD.buf, x, out=HELD.buf)),
    "out of NumPy's": ("HELD.buf", lambda x: np.multiply(x, 2, out=(HELD.buf,))),
    "copyto": ("HELD.buf", lambda x: pnp.copyto(HELD.buf, x)),
    "at": ("HELD.buf", lambda x: np.add.at(HELD.buf, [0], x[0])),
    "put": ("HELD.buf", lambda x: pnp.put(HELD.buf, [0], x[0])),
    "element": ("HELD.buf", lambda x: store(x)),
    "slice": ("HELD.buf", lambda x: store_slice(x)),
    "out with a key": ("HELD.buf[0, ...]", lambda x: np.sum(x, out=HELD.buf[0, ...])),
    "nested keys": ("PARTS[ORDER[0], :]", lambda x: np.copyto(PARTS[ORDER[0], :], x)),
    "keyword": ("HELD.buf", lambda x: np.copyto(dst=HELD.buf, src=x)),
}
PARTS, ORDER = np.zeros((2, 3)), [1, 0]


def augment(x):
    HELD.buf += x


def store(x):
    HELD.buf[0] = x[0]


def store_slice(x):
    HELD.buf[1:] = x[1:]


THREE = np.ones(3)
OF_GRAD, COPY = "a value of grad, called at", "write to a copy, pnp.copy("
WAYS = {
    "grad": (lambda f: func.grad(lambda x: f(x) or x.sum())(THREE), OF_GRAD, COPY),
    "vmap": (lambda f: func.vmap(lambda x: f(x) or x)(np.ones((2, 3))), "a value of vmap, called at", COPY),
    "tape": (lambda f: f(Tensor(THREE, requires_grad=True)), "a Tensor that requires grad", "like=tensor"),
    "compile": (lambda f: compile(lambda x: f(x) or x * 1)(THREE), "cannot hold a value of it", "return the new value"),
    "make_fx": (lambda f: make_fx(lambda x: f(x) or x * 1)(THREE), "cannot hold a value of it", "return the new value"),
    "compile of grad": (lambda f: compile(func.grad(lambda x: f(x) or x.sum()))(THREE), OF_GRAD, COPY),
}


@pytest.mark.parametrize("way", WAYS)
@together("fill", FILLS)
def test_what_the_user_writes_to_is_named(fill, way):
    target, call = FILLS[fill]
    run, what, remedy = WAYS[way]
    if way == "make_fx" and fill in ("out", "copyto", "at", "put"):
        return      # the graph writes to its copy
    HELD.buf[:] = 0
    error = error_of(run, call)
    text = str(error)
    assert re.search(rf"test_conversions\.py:\d+: {re.escape(target)}, an? ", text), text
    assert what in text
    assert remedy in text
    assert "passed as out" not in text
    assert HELD.buf.tolist() == [0, 0, 0]


@pytest.mark.parametrize("way", ["grad", "jvp", "functionalize"])
def test_constants_of_a_transform_are_written_to_arrays_of_numpy(way):
    def f(x):
        buffer = np.zeros(3)
        buffer += pnp.ones(3)
        pnp.add(buffer, pnp.arange(3.0), out=buffer)
        buffer[1] = 5 * pnp.ones(())
        return (x * buffer).sum()

    run = {"grad": lambda: func.value_and_grad(f)(THREE), "jvp": lambda: func.jvp(f, (THREE,), (THREE,)),
           "functionalize": lambda: [func.functionalize(f)(THREE)]}[way]
    assert float(run()[0]) == 1.0 + 5.0 + 3.0


def test_a_function_of_scipy_is_named_with_the_one_to_use():
    stats = pytest.importorskip("scipy.stats")
    for name, run in INSIDE.items():
        error = error_of(run, lambda x: stats.norm.logpdf(x))
        assert "was used as a NumPy array" in str(error), name
        assert "use pydispatch.scipy.stats, or make an operator of the call" in str(error).split("\n")[1], name
        assert "test_conversions.py" in str(error).split("\n")[0].rpartition("(at ")[2], name


@pytest.mark.parametrize("name", INSIDE)
def test_values_of_transforms_are_not_pickled_without_their_gradient(name):
    error = error_of(INSIDE[name], pickle.dumps)
    assert isinstance(error, DispatchError)
    assert "tensor.copy()" in str(error)


@pytest.mark.parametrize("name", INSIDE)
def test_what_python_refuses_by_its_own_words(name):
    for mistake in (lambda x: struct.pack("d", x), lambda x: statistics.fmean([x]) and None):
        assert isinstance(error_of(INSIDE[name], mistake), (struct.error, DispatchError))


def test_the_classes_of_the_errors():
    assert type(error_of(INSIDE["tape"], float)) is AutogradError
    assert type(error_of(INSIDE["grad"], float)) is ConversionError
    assert type(error_of(INSIDE["vmap"], float)) is DataDependentError
    assert type(error_of(INSIDE["vmap"], np.asarray)) is ConversionError


def test_a_branch_under_vmap_says_what_to_write():
    def branch(x):
        return 1 if x > 0 else 2

    first, second = str(error_of(INSIDE["vmap"], branch)).split("\n")
    assert "was used as bool(): each example has its own value" in first
    assert "np.where(condition, a, b) or pydispatch.higher_order.cond" in second


def test_the_loss_of_the_issue_is_refused():
    for mistake in (lambda p: p[0].item() * p[1], lambda p: p.tolist()[0] * p[1], lambda p: int(p[0]) * p[1],
                    lambda p: ops.np.item(p[0]) * p[1]):
        with pytest.raises(ConversionError, match="its gradient would be lost"):
            func.grad(mistake)(np.array([1.0, 2.0]))
        with pytest.raises(ConversionError, match="its gradient would be lost"):
            func.jvp(mistake, (np.array([1.0, 2.0]),), (np.array([1.0, 2.0]),))
        with pytest.raises(AutogradError, match="its gradient would be lost"):
            mistake(Tensor(np.array([1.0, 2.0]), requires_grad=True))


@pytest.mark.parametrize("name", [name for name in INSIDE if name not in BATCHED])
def test_what_has_no_gradient_goes_on(name):
    found = []
    INSIDE[name](lambda x: found.append((
        1 if x > 0 else 2, bool(x), float(x > 1), int(np.argmax(x)), (x == 1.5).item(), f"{x}", f"{x:.3f}", str(x),
        "%s" % x, 1.5 in x)))  # noqa: UP031
    assert found[0] == (1, True, 1.0, 0, True, "1.5", "1.500", "1.5", "1.5", True)


def test_on_purpose():
    taken = []

    def f(x):
        taken.append((float(x.detach()), float(func.concrete_value(x)), x.detach().tolist()))
        return x * x.detach()

    np.testing.assert_array_equal(func.grad(f)(3.0), 3.0)
    x = Tensor(np.array(3.0), requires_grad=True)
    f(x)
    with autograd.no_grad():
        taken.append((float(x), x.item(), np.asarray(x).tolist()))
    assert taken == [(3.0, 3.0, 3.0)] * 3


# --- constants of a transform ----------------------------------------------------------------------------------------

CONSTANTS = {
    "arange": lambda x: pnp.arange(3.0), "zeros": lambda x: pnp.zeros(2), "floor": lambda x: pnp.floor(x) * 2.0,
    "floor_divide": lambda x: x // 1, "zeros_like": pnp.zeros_like, "ones_like": np.ones_like,
    "computed": lambda x: pnp.sin(pnp.arange(3.0)) + 1, "comparison": lambda x: (x > 1) * 1.0,
    "detached": lambda x: pnp.sin(x.detach()), "written": lambda x: written(pnp.zeros(3)),
}


def written(y):
    y[1] = 2.0
    return y


@pytest.mark.parametrize("name", [name for name in INSIDE if name not in ("tape", *BATCHED)])
@together("constant", CONSTANTS)
def test_constants_made_inside_are_given_to_any_library(constant, name):
    found = []

    def convert(x):
        value = CONSTANTS[constant](x)
        assert not func.is_traced(value)
        found.append((np.asarray(value), value.tolist(), bytes(memoryview(value))))
        assert value.ndim or float(value) == value.item()

    INSIDE[name](convert)
    expected = np.asarray(CONSTANTS[constant](Tensor(X)[0]))
    for converted, listed, content in found:
        np.testing.assert_array_equal(converted, expected, strict=True)
        assert listed == expected.tolist()
        assert content == expected.tobytes()


def test_a_gradient_through_what_a_library_made_of_constants():
    sparse = pytest.importorskip("scipy.sparse")

    def f(x):
        bands = sparse.spdiags(pnp.ones((1, 3)), 0, 3, 3).toarray()
        return pnp.sum(bands @ x)

    np.testing.assert_array_equal(func.grad(f)(np.arange(3.0)), np.ones(3))


def test_results_of_piecewise_constant_functions_have_zeros_for_gradients_still():
    for step in (pnp.floor, pnp.ceil, pnp.trunc, pnp.rint, lambda x: x // 0.3):
        np.testing.assert_array_equal(func.grad(lambda x, step=step: step(x).sum())(X), np.zeros(2))
        np.testing.assert_array_equal(func.grad(lambda x, step=step: (x * step(x)).sum())(X), step(X))
        np.testing.assert_array_equal(func.jvp(step, (X,), (X,))[1], np.zeros(2))
        np.testing.assert_array_equal(func.hessian(lambda x, step=step: (x * step(x)).sum())(X), np.zeros((2, 2)))
        x = Tensor(X, requires_grad=True)
        step(x).sum().backward()
        np.testing.assert_array_equal(x.grad.array, np.zeros(2))

    def in_place(x):
        y = x * 2.0
        pnp.floor(y, out=y)
        return (y + x).sum()

    np.testing.assert_array_equal(func.grad(in_place)(X), np.ones(2))
    np.testing.assert_array_equal(func.jvp(in_place, (X,), (X,))[1], X.sum())


def test_functionalize_follows_no_values():
    def f(x):
        view = x[:1]
        x += 1
        return x * float(view[0]) + view.item() + np.asarray(view)[0]

    x = np.array([1.0, 2.0])
    np.testing.assert_array_equal(func.functionalize(f)(x), np.array([2.0, 3.0]) * 2.0 + 4.0)


# --- is_traced -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INSIDE)
def test_is_traced(name):
    found = []
    INSIDE[name](lambda x: found.append((func.is_traced(x), func.is_traced([1.0, {"a": x * 2}]), func.is_traced(
        (1.0, None, X, Tensor(X), pnp.zeros(2))))))
    assert set(found) == {(True, True, False)}


def test_is_traced_in_traces_and_outside():
    found = []
    make_fx(lambda x: found.append(func.is_traced(x)) or x * 2)(X)
    compile(lambda x: found.append(func.is_traced(x)) or x * 2)(X)
    compile(func.grad(lambda x: found.append(func.is_traced(x)) or x.sum()))(X)
    assert found
    assert all(found)
    kept = []
    func.grad(lambda x: kept.append(x) or x.sum())(X)
    leaf = Tensor(X, requires_grad=True)
    with autograd.no_grad():
        assert not func.is_traced(leaf)
    assert not any(map(func.is_traced, (X, 1.0, Tensor(X), kept[0], leaf.detach(), leaf > 0)))
    assert func.is_traced(leaf)


# --- arrays under Tensors that nothing follows -----------------------------------------------------------------------


def test_an_untracked_tensor_converts_to_its_array():
    raw = np.arange(3.0)
    t = Tensor(raw)
    for convert in (np.asarray, lambda t: t.numpy(), lambda t: np.asarray(memoryview(t))):
        convert(t)[1] += 1.0
    assert raw.tolist() == [0.0, 4.0, 2.0]
    through_dlpack = np.from_dlpack(t)
    assert np.shares_memory(through_dlpack, raw)
    assert through_dlpack.flags.writeable == np.from_dlpack(raw).flags.writeable    # NumPy 2.0 makes it read-only
    view = t[1:]
    np.asarray(view)[:] = 7.0
    assert raw.tolist() == [0.0, 7.0, 7.0]
    assert np.asarray(t).dtype == np.float64
    assert np.asarray(t, dtype="f4").dtype == np.float32
    assert np.array(t).flags.owndata


def test_what_a_gradient_may_follow_is_read_only():
    x = Tensor(np.arange(3.0), requires_grad=True)
    y = x * 2.0
    with autograd.no_grad():
        assert not np.asarray(y).flags.writeable
    assert not np.asarray(x.detach()).flags.writeable
    assert not np.asarray(x.detach()[1:]).flags.writeable
    (x * x.detach()).sum().backward()
    np.testing.assert_array_equal(x.grad.array, np.arange(3.0))


def test_a_conversion_counts_as_a_write_where_a_gradient_has_saved_the_memory():
    w, x = Tensor(np.ones(3), requires_grad=True), Tensor(np.arange(3.0))
    loss = (w * x).sum()
    np.asarray(x)[:] = 7.0
    loss.backward()
    np.testing.assert_array_equal(w.grad.array, np.arange(3.0))


def test_buffers():
    t = Tensor(np.arange(6.0).reshape(2, 3))
    assert memoryview(t).shape == (2, 3)
    assert hashlib.sha256(t).digest() == hashlib.sha256(t.array).digest()
    assert bytes(t) == t.array.tobytes()
    assert np.frombuffer(t).tolist() == list(range(6))
    assert t.__array_interface__ == t.array.__array_interface__
    with pytest.raises((BufferError, ValueError)):
        hashlib.sha256(t.T)     # which NumPy refuses, too
    for dtype in ("M8[D]", object, "U3", "f2", "c16", bool):
        values = np.zeros(2, dtype)
        np.testing.assert_array_equal(np.asarray(Tensor(values)), values, strict=True)


def test_classes_with_an_array_of_their_own_are_asked_for_it():
    class Scaled(Tensor):
        def __array__(self, dtype=None, copy=None):
            return 10.0 * self.array

    np.testing.assert_array_equal(np.asarray(Scaled(np.arange(3.0))), [0.0, 10.0, 20.0])


def test_special_methods_exist_from_the_first_import_on():
    code = """
import math, numpy
from pydispatch import Tensor
t = Tensor(numpy.array([1.26]))[0]
assert float(round(t, 1)) == 1.3 and round(t) == 1 and math.trunc(t) == 1 and math.floor(t) == 1
assert math.ceil(t) == 2
assert complex(t) == 1.26 and f"{t:.1f}" == "1.3" and divmod(t, 1)[0].item() == 1.0
assert [*reversed(Tensor(numpy.ones(2)))]
"""
    for line in ("round(t, 1)", "math.trunc(t)", "divmod(t, 1)", "memoryview(t)"):     # each as the first thing done
        alone = code.partition("assert")[0] + line
        subprocess.run([sys.executable, "-c", alone], check=True, capture_output=True)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# --- other objects ---------------------------------------------------------------------------------------------------

T = Tensor(np.array([[1.0, 2.0], [0.5, 4.0]]))
OTHERS = {"None": None, "a text": "a", "bytes": b"a", "a Fraction": Fraction(1, 2), "a third": Fraction(1, 3),
          "a Decimal": Decimal("0.5"), "a list": [1.0, 2.0]}


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "pow"])
@together("other", OTHERS)
def test_operators_with_other_objects_are_those_of_numpy(other, name):
    function = getattr(operator, name)
    for left, right in ((T, OTHERS[other]), (OTHERS[other], T)):
        raw = [value.array if value is T else value for value in (left, right)]
        try:
            expected = function(*raw)
        except TypeError:
            with pytest.raises(TypeError):
                function(left, right)
        else:
            np.testing.assert_array_equal(function(left, right).array, expected.astype(
                float if expected.dtype == object else expected.dtype), strict=True)


def test_objects_that_compare_themselves_are_asked():
    class Any:
        __array_ufunc__ = None

        def __eq__(self, other):
            return "asked"

        __hash__ = None

    asking = Any()
    assert (asking == T) == (asking == T) == "asked"
    assert func.grad(lambda x: x.sum() if not (x == None).any() else 0.0)(X).tolist() == [1.0, 1.0]  # noqa: E711


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_the_product_with_a_matrix_is_refused():
    matrix = np.matrix(np.eye(2))
    for product in (lambda: matrix * T, lambda: T * matrix, lambda: T ** matrix):
        with pytest.raises(DispatchTypeError, match="elementwise"):
            product()
    np.testing.assert_array_equal((matrix @ T).array, T.array)
    np.testing.assert_array_equal((matrix + T).array, T.array + np.eye(2))
    np.testing.assert_array_equal((T.sum() * matrix).array, 7.5 * np.eye(2))
    np.testing.assert_array_equal(np.multiply(matrix, T).array, T.array * np.eye(2))


def square(x):
    return x * x


EYE = np.eye(2)
MATRIX_TAKERS = {
    "Tensor": Tensor,
    "grad": func.grad(lambda x: (x * x).sum()),
    "value_and_grad": lambda m: func.value_and_grad(lambda x, y: (x @ y).sum(), argnums=(0, 1))(EYE, m),
    "vjp": lambda m: func.vjp(square, m),
    "cotangent": lambda m: func.vjp(square, EYE)[1](m),
    "jvp": lambda m: func.jvp(square, (m,), (EYE,)),
    "tangent": lambda m: func.jvp(square, (EYE,), (m,)),
    "linearize": lambda m: func.linearize(square, m),
    "jacfwd": func.jacfwd(square),
    "jacrev": func.jacrev(square),
    "hessian": func.hessian(lambda x: (x * x).sum()),
    "vmap": func.vmap(square),
    "functionalize": func.functionalize(square),
    "compile": compile(square),
    "make_fx": make_fx(square),
    "map": lambda m: higher_order.map(square, m),
    "scan": lambda m: higher_order.scan(lambda c, x: (c + x.sum(), x * x), 0.0, m),
    "while_loop": lambda m: higher_order.while_loop(lambda x: x.sum() < 9, lambda x: (x * x,), (m,)),
    "cond in grad": lambda m: func.grad(
        lambda w: higher_order.cond(w > 0, lambda x, w: x * x * w, lambda x, w: x * w, (m, w)).sum())(1.0),
    "cond in a trace": lambda m: make_fx(
        lambda p: higher_order.cond(p, lambda x: x * x, lambda x: x + x, (m,)))(np.array(True)),
    "backward": lambda m: Tensor(EYE, requires_grad=True).backward(m),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("name", MATRIX_TAKERS)
def test_a_matrix_does_not_become_a_tensor(name):
    # The product of the matrix would become elementwise.
    for cls in (np.matrix, type("Sub", (np.matrix,), {})):
        with pytest.raises(DispatchError, match=r"\npass numpy\.asarray\(matrix\)"):
            MATRIX_TAKERS[name](np.array([[1.0, 2.0], [3.0, 4.0]]).view(cls))
    MATRIX_TAKERS[name](np.array([[1.0, 2.0], [3.0, 4.0]]))


def test_array_ufunc_is_callable_on_objects_but_for_masked_arrays():
    np.testing.assert_array_equal(T.__array_ufunc__(np.add, "__call__", T, 1.0).array, T.array + 1.0)
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    for found in (masked + T, T + masked):
        assert isinstance(found, Tensor)
        np.testing.assert_array_equal(found.array.filled(-1.0), (masked + T.array).filled(-1.0))


@pytest.mark.parametrize("convert", [int, float, complex, bool])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2,)], ids=str)
def test_numbers_of_arrays_are_numpys_under_functionalize(convert, shape):
    def outcome(f):
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)      # of NumPy before 2.4
            try:
                return f(np.ones(shape))
            except (TypeError, ValueError, DeprecationWarning) as error:
                return type(error)

    assert outcome(func.functionalize(lambda x: convert(x))) == outcome(convert)


def test_universal_functions_of_users():
    twice = np.frompyfunc(lambda x: x * 2, 1, 1)
    found = twice(T)
    assert isinstance(found, Tensor)
    np.testing.assert_array_equal(found.array, twice(T.array))
    with pytest.raises(ConversionError, match=r"your universal function: its gradient would be lost.*\n.*custom_op"):
        func.grad(lambda x: twice(x).sum())(X)
    numba = pytest.importorskip("numba")
    np.testing.assert_array_equal(numba.vectorize(lambda x: x + 1)(T).array, T.array + 1)


IN_TRACES = {
    "math": (lambda x: math.atan2(x[0], 2.0) * x, "write np.arctan2 instead of math.atan2"),
    "library": (lambda x: scipy.stats.norm.logpdf(x), "scipy.stats computes with NumPy arrays: use pydispatch.scipy"),
    "branch": (lambda x: x if x[0] > 0 else -x, "np.where(condition, a, b) or pydispatch.higher_order.cond"),
    "array": (lambda x: np.array([x[0], x[1]]), "numpy.stack([...]), not numpy.array([...])"),
    "sum": (lambda x: np.sum([x[0], x[1]]), "use pydispatch.numpy.sum"),
    "index": (lambda x: x[int(x[0])], "use NumPy's functions"),
    "item": (lambda x: x[0].item() * x, "use NumPy's functions"),
    "count": (lambda x: sum(x[i] for i in range(x.sum().astype(int))), "compute it before tracing"),
}


@pytest.mark.parametrize("trace", [make_fx, lambda f: make_fx(f, tracing_mode="fake"), compile],
                         ids=["make_fx", "fake", "compile"])
@pytest.mark.parametrize("mistake", IN_TRACES)
def test_traces_name_the_place_and_the_remedy_in_words_of_numpy(mistake, trace):
    function, way = IN_TRACES[mistake]
    with pytest.raises(DispatchError) as caught:
        trace(function)(X)
    first, second = str(caught.value).splitlines()
    assert f"(at {__file__}:{function.__code__.co_firstlineno})" in first
    assert way in second
    assert not re.search(r"ops\.|operators", second)


SCALARS = [np.float64(0.5), np.float32(0.1), np.int8(3), np.True_, np.complex128(1j), np.str_("a"),
           np.datetime64("2000-01-01"), np.float16(-0.0)]


@pytest.mark.parametrize("scalar", SCALARS, ids=repr)
def test_scalars_hash_by_value_as_numpys(scalar):
    tensors = Tensor(np.array([scalar, scalar]))
    assert hash(tensors[0]) == hash(scalar)
    assert len(set(tensors)) == 1
    assert {scalar: "found"}[tensors[1]] == {tensors[0]: "found"}[scalar] == "found"


def test_other_tensors_hash_by_identity():
    for made in (lambda: Tensor(1.0), lambda: Tensor(X), lambda: Tensor(X)[0, ...],
                 lambda: Tensor(1.0, requires_grad=True)):
        first, second = made(), made()
        assert len({first, second, first}) == 2


def test_constants_are_keys_in_every_transform():
    def f(x):
        labels = pnp.array([0, 1, 0, 2])
        groups = {}
        for label in labels:
            groups[label] = groups.get(label, 0.0) + x
        return groups[labels[2]] * len(groups)

    for transform in (func.grad(f), func.functionalize(func.grad(f)), compile(func.grad(f)),
                      lambda x: func.vmap(func.grad(f))(np.array([x]))[0], lambda x: func.jvp(f, (x,), (1.0,))[1]):
        assert transform(2.0) == 6.0
