"""The subclasses and modes of examples/subclasses: they run, they fit on a page, and each does what it says."""

import gc
import importlib.util
import re
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pydispatch import DispatchMode, Tensor, autograd, func, library, ops
from pydispatch.exceptions import AutogradError
from pydispatch.subclasses import flatten, unflatten
from pydispatch.testing import LoggingMode, capture_logs

FOLDER = Path(__file__).parents[2] / "examples" / "subclasses"
FILES = sorted(FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def zoo():
    """Provide all examples as modules. Their rules are removed afterwards."""
    handles, modules = [], {}
    register = library.register_pydispatch

    def keeping_handles(*args):
        handles.append(register(*args))
        return handles[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "register_pydispatch", keeping_handles)
        for file in FILES:
            spec = importlib.util.spec_from_file_location(f"zoo_{file.stem}", file)
            modules[file.stem] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(modules[file.stem])
    yield SimpleNamespace(**modules)
    for handle in handles:
        handle.remove()


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def close(actual, desired, rtol=1e-12):
    """Check that values are equal, and dtypes and shapes identical."""
    actual = actual.numpy() if isinstance(actual, Tensor) else actual
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=rtol, strict=True)


# --- all of them ---

PRINTED = {
    "complex_pair": "lengths [5. 5. 5.]",
    "data_parallel": "[[2.0, -1.0], [2.0, -1.0], [2.0, -1.0]]",
    "deferred_init": "Deferred(float64[36000, 36000]): 10,368,000,000 bytes to come, in 7 calls",
    "error_context": "in np::matmul(Tensor:float64[8, 16], Tensor:float64[15, 2])",
    "flat_view": "4 parameters share memory with one buffer: True",
    "inner_autograd": "gradient [0. 0. 0.] becomes [ -6.   4. -14.]",
    "max_memory": "(a b) v: at most 1,204,000 bytes, in np::matmul",
    "nan_detector": "length: np::divide(Tensor(1.), Tensor(0.)) gave Tensor(inf)",
    "negative": "with 0 negated arrays",
    "nested_forward_ad": "[1. 1. 1.], and not 2",
    "numerical_consistency": "subtract    1.5e-01 ######",
    "quantized": "largest error: 0.38",
    "shape_only": "result float32[8, 50, 32], gradient of query float32[8, 50, 64]",
    "speculating_verifier": "[0.18232156], predicted",
    "tracer": "v5 = np.max(v4)",
    "trivial_composition": "'np::tanh': 1",
    "trivial_inheritance": "slope 1.98: ['calibration', 'clock', 'voltmeter']",
    "uint4": "(4, 8) of uint8, in 16 bytes",
}


def test_every_example_is_tested():
    assert [file.stem for file in FILES] == sorted(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_it_prints_what_it_is_about(zoo, name, capsys):
    getattr(zoo, name).main()
    output = capsys.readouterr()
    assert PRINTED[name] in output.out
    assert output.err == ""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_fits_on_a_page_and_is_listed(zoo, file):
    module = getattr(zoo, file.stem)
    assert len(file.read_text().splitlines()) <= (80 if file.stem == "quantized" else 100)
    assert module.__doc__
    assert module.main.__doc__
    assert f"[{file.name}]({file.name})" in (FOLDER / "README.md").read_text()


def test_the_tutorial_builds_the_quantized_array(zoo):
    text = (FOLDER / "quantized.py").read_text()
    source = text.removeprefix(f'"""{zoo.quantized.__doc__}"""').partition("def main")[0]
    page = (FOLDER.parents[1] / "docs" / "quantized-array.md").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if not block.startswith(">>>")]
    assert [line for block in blocks for line in block.splitlines() if line] == list(filter(None, source.splitlines()))


# --- one by one ---


def test_trivial_inheritance(zoo):
    sourced = zoo.trivial_inheritance.Sourced
    a, b = sourced(np.array([1.0, 2.0]), {"a"}), sourced(np.array([3.0, 4.0]), {"b"})
    total = ops.np.sum(a * b, where=sourced(np.array([True, False]), {"mask"}))
    assert (type(total), total.sources) == (sourced, {"a", "b", "mask"})
    close(total, np.array(3.0))
    first, second = ops.np.split(a, 2)
    assert first.sources == second.sources == {"a"}
    target = b
    b += a
    assert b is target
    assert b.sources == {"a", "b"}
    close(b, np.array([4.0, 6.0]))
    assert (a + 1).sources == {"a"}


def test_trivial_inheritance_keeps_gradients(zoo):
    x = zoo.trivial_inheritance.Sourced(np.array([1.0, 2.0]), {"x"}, requires_grad=True)
    y = x * x
    y.sum().backward()
    assert y.sources == {"x"}
    close(x.grad, np.array([2.0, 4.0]))


def test_trivial_composition(zoo):
    wrapper = zoo.trivial_composition.Wrapper
    plain = [Tensor(random(3, 2), requires_grad=True), Tensor(random(5, 3, seed=1), requires_grad=True)]
    wrapped = [wrapper(x.detach(), requires_grad=True) for x in plain]
    for weights, inputs in (plain, wrapped):
        ops.np.tanh(inputs @ weights).sum().backward()
    for ours, theirs in zip(wrapped, plain, strict=True):
        assert type(ours.grad) is wrapper
        close(ours.grad.inner, theirs.grad.numpy())


@pytest.mark.parametrize("wrap", [
    lambda zoo, x: zoo.trivial_composition.Wrapper(Tensor(x), requires_grad=True),
    lambda zoo, x: zoo.data_parallel.Parallel([x], requires_grad=True),
], ids=["trivial_composition", "data_parallel"])
def test_gradients_are_not_lost_in_views_of_wrappers(zoo, wrap):
    x = wrap(zoo, np.ones(3))
    y = x * 1.0
    view = y[1:]
    with pytest.raises(AutogradError, match="cannot be written to in place"):
        view *= 10.0
    saved = ops.np.sin(y)
    with autograd.no_grad():
        view += 1.0
    saved.sum().backward()
    close(x.grad.sum().detach().item(), 3 * np.cos(1.0))


def test_trivial_composition_makes_no_cycles(zoo):
    gc.disable()
    try:
        result = zoo.trivial_composition.Wrapper(Tensor(np.ones(3)), requires_grad=True) * 2
        reference = weakref.ref(result)
        del result
        assert reference() is None
    finally:
        gc.enable()


class TestQuantized:
    def test_the_error_is_at_most_half_a_step(self, zoo):
        x = random(100)
        q = zoo.quantized.Quantize.apply(x)
        assert abs(zoo.quantized.dequantize(q) - x).max() <= q.scale / 2 * (1 + 1e-12)
        assert (q.shape, q.dtype, q.codes.dtype) == ((100,), np.float64, np.int8)

    def test_matrices_are_multiplied_as_integers(self, zoo):
        left, right = (zoo.quantized.Quantize.apply(random(8, 8, seed=seed)) for seed in (1, 2))
        integers = left.codes.astype(int) @ right.codes.astype(int)
        np.testing.assert_array_equal((left @ right).numpy(), integers * (left.scale * right.scale))
        close(left @ np.eye(8), left.codes * left.scale)

    @pytest.mark.parametrize("move", [
        lambda x: x.T, lambda x: x[1:, ::-1], lambda x: x.reshape(-1), lambda x: ops.np.swapaxes(x, 0, 1),
    ], ids=["transpose", "getitem", "reshape", "swapaxes"])
    def test_what_moves_elements_moves_codes(self, zoo, move):
        q = zoo.quantized.Quantize.apply(random(4, 6))
        moved = move(q)
        assert type(moved) is zoo.quantized.Quantized
        np.testing.assert_array_equal(moved.codes, move(q.codes), strict=True)
        assert np.shares_memory(moved.codes, q.codes)

    def test_other_operators_run_on_floats(self, zoo):
        q = zoo.quantized.Quantize.apply(random(4))
        result = ops.np.exp(q) + q
        assert type(result) is Tensor
        close(result, np.exp(q.codes * q.scale) + q.codes * q.scale)

    def test_the_gradient_is_that_of_the_rounded_values(self, zoo):
        x = random(5)
        rounded = zoo.quantized.dequantize(zoo.quantized.Quantize.apply(x))
        leaf = Tensor(x, requires_grad=True)
        ops.np.exp(zoo.quantized.Quantize.apply(leaf)).sum().backward()
        close(leaf.grad, np.exp(rounded))
        close(func.grad(lambda x: ops.np.exp(zoo.quantized.Quantize.apply(x)).sum())(x), np.exp(rounded))

    def test_writing_is_refused(self, zoo):
        q = zoo.quantized.Quantize.apply(random(5))
        with pytest.raises(TypeError, match="np::add_: Quantized arrays are not written to\nwrite to an array"):
            q += 1


FOUR_BITS = arrays.arrays(np.uint8, (3, 8), elements=st.integers(0, 15))


class TestUInt4:
    @given(FOUR_BITS)
    def test_packing_loses_nothing(self, zoo, values):
        packed = zoo.uint4.pack(values)
        assert packed.packed.nbytes == values.nbytes // 2
        assert packed.shape == values.shape
        np.testing.assert_array_equal(packed.unpack(), values, strict=True)

    @given(FOUR_BITS, FOUR_BITS)
    def test_rules_agree_with_numpy(self, zoo, x, y):
        a, b = zoo.uint4.pack(x), zoo.uint4.pack(y)
        for ours, theirs in [
            (a & b, x & y), (a | b, x | y), (a ^ b, x ^ y), (a[1], x[1]), (a[::2], x[::2]),
            (ops.np.concatenate([a, b]), np.concatenate([x, y])),
            (ops.np.concatenate([a, b], 1), np.concatenate([x, y], 1)),
            (ops.np.concatenate([a, b], -1), np.concatenate([x, y], -1)),
        ]:
            assert type(ours) is zoo.uint4.UInt4
            np.testing.assert_array_equal(ours.unpack(), theirs, strict=True)
        for ours, theirs in [(a + b, x + y), (a[:, 3], x[:, 3]), (a == b, x == y), (a.sum(), x.sum()), (a & 1, x & 1)]:
            assert type(ours) is Tensor
            close(ours, np.asarray(theirs))

    def test_rows_are_written_packed_and_all_else_is_refused(self, zoo):
        x = np.arange(16).reshape(2, 8)
        a = zoo.uint4.pack(x)
        a[0] = a[1]
        np.testing.assert_array_equal(a.unpack(), x[[1, 1]])
        with pytest.raises(NotImplementedError, match="np::setitem_: no rule"):
            a[0, 1] = 3
        with pytest.raises(NotImplementedError, match="np::add_: no rule"):
            a += 1


@given(st.lists(st.sampled_from(["negate", "add", "multiply", "divide", "reflected"]), max_size=8))
def test_negative_agrees_with_numpy_and_negates_nothing(zoo, steps):
    signed = zoo.negative.Signed
    made = signed.made
    x, y = np.array([1.5, -2.0, 0.25]), np.array([3.0, 0.5, -1.0])
    ours, other = signed(x), signed(y, -1)
    theirs, another = x, -y
    for step in steps:
        match step:
            case "negate":
                ours, theirs = -ours, -theirs
            case "add":
                ours, theirs = ours + other, theirs + another
            case "multiply":
                ours, theirs = ours * other, theirs * another
            case "divide":
                ours, theirs = ours / other, theirs / another
            case "reflected":
                ours, theirs = 2.0 * ours, 2.0 * theirs
    assert signed.made == made
    close(ours.sign * ours.magnitude, theirs)
    close(abs(ours), abs(theirs))
    close(ops.np.tanh(-ours), np.tanh(-theirs))


@pytest.mark.parametrize("function", [
    lambda x, y: x @ y, lambda x, y: (x.sum(axis=0) > 0), lambda x, y: ops.np.concatenate([x, y.T]),
    lambda x, y: ops.np.split(x, 2)[1], lambda x, y: x[0] * 1j, lambda x, y: x.astype(np.float32) + 1,
], ids=["matmul", "greater", "concatenate", "split", "complex", "astype"])
def test_shape_only_gives_the_shapes_and_dtypes_of_results(zoo, function):
    real = function(Tensor(np.ones((4, 3))), Tensor(np.ones((3, 4))))
    shapes = function(zoo.shape_only.ShapeOnly((4, 3)), zoo.shape_only.ShapeOnly((3, 4)))
    assert (shapes.shape, shapes.dtype) == (real.shape, real.dtype)


def test_shape_only_has_no_values(zoo):
    with pytest.raises(ValueError, match=r"bool\[\] has no value"):
        bool(zoo.shape_only.ShapeOnly(()) > 0)


class TestComplexPair:
    @pytest.fixture
    def pair(self, zoo):
        def make(z):
            return zoo.complex_pair.ComplexPair(z.real.copy(), z.imag.copy())

        return make

    @pytest.mark.parametrize("function", [
        lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x @ y.T, lambda x, y: -x,
        lambda x, y: x.conj(), lambda x, y: x.sum(axis=0), lambda x, y: x[1:], lambda x, y: x.reshape(6),
        lambda x, y: x * 2.0, lambda x, y: (1 - 2j) * x, lambda x, y: x - np.array([1j, 2.0, 3.0]),
    ])
    def test_rules_agree_with_numpy(self, pair, function):
        x, y = (random(2, 3, seed=seed) + 1j * random(2, 3, seed=seed + 1) for seed in (1, 3))
        ours = function(pair(x), pair(y))
        close(np.asarray(ours.re) + 1j * np.asarray(ours.im), function(x, y))
        assert ours.dtype == np.complex128

    def test_the_absolute_value_is_real(self, pair):
        x = random(4) + 1j * random(4, seed=1)
        close(abs(pair(x)), abs(x))

    def test_it_can_be_taken_apart_and_put_together(self, pair):
        x = pair(np.array([1 + 2j, 3j]))
        inner, context = flatten(x)
        assert list(inner) == ["re", "im"]
        again = unflatten(type(x), inner, context, x.shape, x.strides)
        assert again.re is x.re
        assert again.im is x.im

    def test_what_has_no_rule_says_how_to_add_one(self, pair):
        with pytest.raises(NotImplementedError, match=r"np::exp has no rule for ComplexPair\ncall register_pydispatch"):
            ops.np.exp(pair(np.array([1j])))


def test_flat_view_trains_like_separate_parameters(zoo):
    start = [random(2, 3), random(3, seed=1)]
    x = random(10, 2, seed=2)
    buffer, flat = zoo.flat_view.flatten_parameters(*start)
    separate = [Tensor(array.copy(), requires_grad=True) for array in start]
    for _ in range(3):
        for weights, bias in (flat, separate):
            ops.np.tanh(x @ weights + bias).sum().backward()
        buffer -= 0.1 * zoo.flat_view.flat_gradient(flat)
        for parameter in separate:
            parameter.array[...] -= 0.1 * parameter.grad.array
            parameter.grad = None
    np.testing.assert_array_equal(buffer, np.concatenate([p.array.ravel() for p in separate]), strict=True)
    assert all(np.shares_memory(parameter.part, buffer) for parameter in flat)
    assert type(flat[0] * 2.0) is Tensor
    assert not flat[0].dispatches_to_python
    inner, context = flatten(flat[1])
    assert unflatten(type(flat[1]), inner, context, flat[1].shape, None).start == 6


class TestNestedForwardAD:
    def test_derivatives_of_any_order(self, zoo):
        derivative, x = zoo.nested_forward_ad.derivative, np.array([0.3, 1.0])
        nth = ops.np.sin
        for expected in (np.cos(x), -np.sin(x), -np.cos(x), np.sin(x)):
            nth = derivative(nth)
            close(nth(x), expected)

    @pytest.mark.parametrize("function", [
        lambda x: x * x - 3.0 / x, lambda x: ops.np.exp(-x) / x, lambda x: (2.0 - x) * ops.np.cos(x), lambda x: x + x,
    ], ids=["rational", "exponential", "cosine", "sum"])
    def test_formulas_agree_with_the_library(self, zoo, function):
        x = np.array([0.5, 2.0])
        close(zoo.nested_forward_ad.derivative(function)(x), func.grad(lambda x: function(x).sum())(x))

    def test_nested_derivatives_are_not_mixed_up(self, zoo):
        derivative, x = zoo.nested_forward_ad.derivative, np.array([2.0])
        close(derivative(lambda x: x * derivative(lambda y: x + y)(x))(x), np.array([1.0]))
        close(derivative(lambda x: x * derivative(lambda y: x * y)(x))(x), 2 * x)
        close(derivative(lambda x: x * derivative(lambda y: x)(x))(x), np.array([0.0]))

    def test_an_operator_without_a_formula_says_how_to_add_one(self, zoo):
        with pytest.raises(NotImplementedError, match="np::tan has no formula\nadd one"):
            zoo.nested_forward_ad.derivative(ops.np.tan)(np.ones(1))


def test_inner_autograd_tracks_what_is_inside(zoo):
    leaf = Tensor(np.array([0.4, 1.6]), requires_grad=True)
    result = (zoo.inner_autograd.InnerGrad(leaf) * 3.0).sum()
    assert (result.requires_grad, result.inner.requires_grad) == (False, True)
    result.inner.backward()
    close(leaf.grad, np.array([3.0, 3.0]))


class TestTracer:
    def test_a_program_is_what_was_called(self, zoo):
        def function(x, y):
            first, second = ops.np.split(x, 2)
            return {"sum": first + second, "constant": 5, "scaled": ops.np.sum(y, keepdims=True) * np.array([2.0])}

        program = zoo.tracer.Program(function, [np.arange(4.0), np.ones(2)])
        assert str(program).splitlines() == [
            "def program(v0, v1):",
            "    (v2, v3) = np.split(v0, 2)",
            "    v4 = np.add(v2, v3)",
            "    v5 = np.sum(v1, keepdims=True)",
            "    v6 = np.multiply(v5, array([2.]))",
            "    return {'sum': v4, 'constant': 5, 'scaled': v6}",
        ]
        x, y = random(4), random(2, seed=1)
        result, expected = program(x, y), function(x, y)
        assert list(result) == list(expected)
        assert result["constant"] == 5
        close(result["sum"], expected["sum"])
        close(result["scaled"], expected["scaled"])

    def test_writes_are_replayed(self, zoo):
        def function(x):
            x = x * 1.0
            x[0] += 10.0
            x *= 2.0
            return x

        program = zoo.tracer.Program(function, [np.zeros(2)])
        close(program(np.array([1.0, 2.0])), np.array([22.0, 4.0]))


def test_speculation_is_right_whether_or_not_it_was(zoo):
    def function(x):
        return ops.np.sqrt(x) if float(x.sum()) > 0 else -x

    speculated = zoo.speculating_verifier.speculate(function)
    for x in ([1.0], [4.0], [-1.0], [-2.0], [9.0]):
        close(speculated(np.array(x)), function(np.array(x)))
    assert [entry.split(": ")[0] for entry in speculated.log] == [
        "<OpOverload np::sum> where nothing more was recorded", "predicted",
        "<OpOverload np::negative> where <OpOverload np::sqrt> was recorded", "predicted",
        "<OpOverload np::sqrt> where <OpOverload np::negative> was recorded",
    ]


def test_speculation_sees_another_constant(zoo):
    factor = 2.0
    speculated = zoo.speculating_verifier.speculate(lambda x: x * factor)
    for factor in (2.0, 2.0, 3.0, 3.0):
        close(speculated(np.ones(1)), np.array([factor]))
    assert [entry == "predicted" for entry in speculated.log] == [False, True, False, True]


class TestMaxMemory:
    def test_what_is_given_back_does_not_count(self, zoo):
        with zoo.max_memory.MaxMemory() as memory:
            x = ops.np.zeros(1000)
            y = ops.np.ones(500)
            del y
            z = ops.np.add(x, 1.0)
            assert memory.now == 16_000
            del x, z
        assert memory.peak == 16_000
        assert memory.now == 0
        assert memory.peak_in is ops.np.add.default

    def test_views_arguments_and_writes_take_no_memory(self, zoo):
        given = Tensor(np.zeros((100, 10)))
        with zoo.max_memory.MaxMemory() as memory:
            views = [given.T, given[2:], given.reshape(-1)]
            given += 1.0
            ops.np.add(given, 1.0, out=given)
        assert len(views) == 3
        assert memory.peak == 0

    def test_what_the_tape_keeps_counts(self, zoo):
        x = Tensor(np.ones(1000), requires_grad=True)
        with zoo.max_memory.MaxMemory() as memory:
            y = ops.np.sin(ops.np.exp(x))
            assert memory.now == 16_000
            y = y.detach()
            assert memory.now == 8_000
            del y
        assert memory.now == 0


class TestNanDetector:
    def test_finite_programs_pass(self, zoo):
        x = Tensor(random(4), requires_grad=True)
        with zoo.nan_detector.NanDetector():
            ops.np.sin(x).sum().backward()
        close(x.grad, np.cos(x.array))

    @pytest.mark.parametrize("make", [lambda like: ops.np.empty(like.shape), ops.np.empty_like], ids=["empty", "like"])
    def test_what_is_not_set_yet_may_be_anything(self, zoo, make):
        class Unlucky(DispatchMode):
            def __pydispatch__(self, func, types, args=(), kwargs=None):
                return np.full(8, np.nan)

        with Unlucky(), zoo.nan_detector.NanDetector():
            assert np.isnan(make(np.zeros(8))).all()

    @pytest.mark.parametrize(("function", "name"), [
        (lambda x: ops.np.log(x - 1.0), "np::log"), (lambda x: x / (x - 1.0), "np::divide"),
        (lambda x: ops.np.exp(x * 1000.0), "np::exp"),
    ], ids=["log", "divide", "exp"])
    def test_the_operator_is_named(self, zoo, function, name):
        with pytest.raises(FloatingPointError, match=name), zoo.nan_detector.NanDetector():
            function(Tensor(np.array([1.0, 2.0])))

    def test_what_was_there_before_is_let_through(self, zoo):
        with zoo.nan_detector.NanDetector():
            result = ops.np.add(np.array([np.nan, np.inf]), 1.0)
        close(result, np.array([np.nan, np.inf]))

    def test_the_way_back_is_looked_at(self, zoo):
        x = Tensor(np.array([0.0]), requires_grad=True)
        result = ops.np.sqrt(x)
        with pytest.raises(FloatingPointError, match="np::divide"), zoo.nan_detector.NanDetector():
            result.backward()


def test_numerical_consistency_reports_the_error_of_each_operator(zoo):
    x = Tensor((1000.0 + random(100)).astype(np.float32))
    with zoo.numerical_consistency.Shadowed() as report:
        result = zoo.numerical_consistency.naive_variance(x)
    high = x.numpy().astype(np.float64)
    expected = (high * high).mean() - high.mean() ** 2
    assert [row.operator for row in report.rows] == ["square", "mean", "mean", "square", "subtract"]
    np.testing.assert_allclose(report.rows[-1].error, abs(result.item() - expected) / abs(expected), rtol=1e-6)
    assert report.rows[0].error < 1e-7
    assert result.dtype == np.float32


class TestErrorContext:
    def test_the_error_passes_through_with_notes(self, zoo):
        with pytest.raises(ValueError, match="broadcast") as plain:
            ops.np.add(np.ones(2), np.ones(3))
        with zoo.error_context.ErrorContext():
            ops.np.concatenate([ops.np.ones(2), np.ones(1)], axis=-1)
            with pytest.raises(ValueError, match="broadcast") as caught:
                ops.np.add(np.ones(2), np.ones(3))
        assert type(caught.value) is type(plain.value)
        assert str(caught.value) == str(plain.value)
        assert caught.value.__notes__ == [
            "in np::add(ndarray:float64[2], ndarray:float64[3])",
            "after np::concatenate((ndarray:float64[2], ndarray:float64[1]), -1) = ndarray:float64[3]",
            "after np::ones((2,)) = ndarray:float64[2]",
        ]

    def test_the_operator_that_was_called_is_named(self, zoo, fresh):
        fresh.define("squared_sum(Tensor x, Tensor y) -> Tensor")
        fresh.impl("squared_sum", lambda x, y: ops.np.square(x + y), "CompositeImplicitAutograd")
        with zoo.error_context.ErrorContext(), pytest.raises(ValueError, match="broadcast") as caught:
            getattr(ops, fresh.namespace).squared_sum(Tensor(np.ones(2)), Tensor(np.ones(3)))
        assert caught.value.__notes__ == [f"in {fresh.namespace}::squared_sum(Tensor:float64[2], Tensor:float64[3])"]

    def test_no_operator_runs_for_it(self, zoo):
        with capture_logs(is_mode=True) as log, LoggingMode(), zoo.error_context.ErrorContext():
            ops.np.exp(Tensor(np.ones(2)))
        assert log == ["$1: f64[2] = np.exp($0)"]


class TestDeferredInit:
    @staticmethod
    def build(n=3):
        weights = ops.np.arange(n * n, dtype=np.float32).reshape(n, n)
        diagonal = ops.np.eye(n)
        row = weights[1]
        before = weights + 0.0
        row += 10.0
        weights[0] = 5.0
        parts = ops.np.split(weights * diagonal, n, axis=1)
        return weights, before, ops.np.concatenate(parts, 1), row

    def test_it_makes_what_would_have_been_made(self, zoo):
        with zoo.deferred_init.DeferredInit() as init:
            deferred = self.build()
        for ours, theirs in zip(deferred, self.build(), strict=True):
            assert type(ours) is zoo.deferred_init.Deferred
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            close(init.materialize(ours), theirs)

    def test_arrays_that_are_there_are_not_deferred(self, zoo):
        with zoo.deferred_init.DeferredInit() as init:
            result = ops.np.zeros_like(np.ones(2)) + ops.np.exp(np.ones(2))
        assert type(result) is np.ndarray
        assert init.calls == []

    def test_calls_after_the_mode_are_deferred_too(self, zoo):
        with zoo.deferred_init.DeferredInit() as init:
            x = ops.np.ones(2, device="CPU")
        y = x * 3.0 + np.array([1.0, 2.0])
        close(init.materialize(y), np.array([4.0, 5.0]))

    def test_it_has_no_values(self, zoo):
        message = r"Deferred\(float64\[\]\) has no values yet\nmaterialize it first"
        with zoo.deferred_init.DeferredInit(), pytest.raises(ValueError, match=message):
            float(ops.np.ones(3).sum())


class TestDataParallel:
    def test_the_gradient_is_that_of_the_whole_batch(self, zoo):
        parallel, x, start = zoo.data_parallel, random(12, 3), random(3, 2, seed=1)
        weights = parallel.replicate(start, 4)
        ops.np.square(ops.np.tanh(parallel.scatter(x, 4) @ weights)).mean().backward()
        whole = Tensor(start, requires_grad=True)
        ops.np.square(ops.np.tanh(x @ whole)).mean().backward()
        assert len(weights.grad.pieces) == 4
        for piece in parallel.all_reduce(weights.grad).pieces:
            close(piece, whole.grad.numpy())

    def test_lists_and_scalars_of_all_workers(self, zoo):
        x = zoo.data_parallel.scatter(np.arange(12.0).reshape(6, 2), 3)
        left, right = ops.np.split(x, 2, axis=1)
        for worker, piece in enumerate((left + right).pieces):
            close(piece, np.array([[1.0], [5.0]]) + 8 * worker)
        assert bool((x >= 0.0).all()) is True

    def test_workers_that_disagree_are_an_error(self, zoo):
        x = zoo.data_parallel.scatter(np.arange(3.0), 3)
        with pytest.raises(ValueError, match=r"np::item: the workers disagree: \(0.0, 1.0, 2.0\)\nall_reduce it first"):
            float(x.sum())
        assert float(zoo.data_parallel.all_reduce(x).sum()) == 1.0

    def test_numbers_of_workers_have_to_agree(self, zoo):
        with pytest.raises(ValueError, match=r"np::add: arrays for \[2, 3\] workers in one call"):
            zoo.data_parallel.scatter(np.arange(6.0), 2) + zoo.data_parallel.scatter(np.arange(6.0), 3)
