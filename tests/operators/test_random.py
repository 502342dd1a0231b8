"""Operators that draw, against the methods of numpy.random.Generator from the same seed."""

import ast
import inspect
import pickle
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, default_backend, ops
from pydispatch.autograd import grad
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import DispatchTypeError, NoDerivativeError
from pydispatch.func import functionalize, jvp
from pydispatch.func import grad as func_grad
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.testing import gradcheck, gradgradcheck
from pydispatch.tracing import FakeMode, FakeTensor, make_fx
from pydispatch.tree import tree_leaves, tree_map
from tests.operators.oracles import identical, is_error, outcome
from tests.operators.samples import Sample, call, random_names, schema_of

SEED = 20
FLOATS = np.array([0.25, 0.5, 0.75])
COLUMN = np.array([[1.0], [2.0]])
COUNTS = np.array([3, 10, 7])
INT32, FLOAT32 = np.dtype(np.int32), np.dtype(np.float32)
MATRIX = np.arange(12.0).reshape(3, 4)

SIZES = [call(size=size) for size in ((), 3, (3,), (2, 3), (0, 2), None)]
TWO = [
    *SIZES, call(FLOATS), call(None, FLOATS), call(FLOATS, 2 * FLOATS), call(COLUMN - 2, FLOATS), call(0.5, 2),
    call(FLOATS, 3.0, (2, 3)), call(-1, 2.5, size=(2, 1)), call(np.float32(0.5)), call(FLOATS.astype(np.float32)),
    call(np.array([1, 2]), np.array([2, 4])), call(np.array(0.5), size=2), call(np.ones((0, 3))),
    call(False, np.array([True, True])), call(size=(2, 2), dtype=FLOAT32), call(FLOATS, dtype=FLOAT32),
    call(size=3, dtype=np.dtype(complex)), call(dtype=FLOAT32),
]
SCALE = [*SIZES, call(FLOATS), call(COLUMN, (2, 3)), call(2), call(np.array(0.5), 3), call(FLOATS, size=(0, 3)),
         call(np.float32(2), (2,))]
SAMPLES: dict[str, list[Sample]] = {
    "random_uniform": TWO,
    "random_normal": TWO,
    "random_exponential": [*SCALE, call(FLOATS, dtype=FLOAT32)],
    "random_poisson": [*SCALE, call(FLOATS, dtype=FLOAT32), call(5.0, dtype=np.dtype(int))],
    "random_binomial": [call(1, 0.5), call(5, 0.5, 4), call(COUNTS, 0.25), call(3, FLOATS / 2, (2, 3)),
                        call(COUNTS, COLUMN / 4), call(10, 0.5, (0, 2)), call(np.int8(4), np.float32(0.5), size=()),
                        call(1, 0.5, 3, dtype=FLOAT32)],
    "random_integers": [call(5), call(2, 7), call(5, size=(2, 3)), call(COUNTS), call(0, COUNTS, (2, 3)),
                        call(COLUMN.astype(int), 9), call(0, 1, 5, endpoint=True), call(0, COUNTS, endpoint=True),
                        call(9, size=3, dtype=INT32), call(0, 2, 4, np.dtype(bool)), call(9, dtype=np.dtype(np.uint8)),
                        call(5, size=(0,))],
    "random_permutation": [
        call(5), call(0), call(-2), call(FLOATS), call(MATRIX), call(MATRIX, 1),
        call(MATRIX, axis=-1), call(MATRIX[:, ::2]), call(np.zeros((0, 2))), call(MATRIX > 5),
        call(MATRIX.astype(complex), 0),
    ],
}
"""Calls that succeed, without the generator."""
LIKE: dict[str, list[Sample]] = {
    name: [
        *(call(array, *parameters)
          for array in (np.zeros(3), MATRIX[:2, :3], np.zeros(3, FLOAT32), np.zeros((2, 3), complex))
          for parameters in ((), (FLOATS,), (0.5, 2.0), (None, FLOATS), (FLOATS, 3))),
        call(np.zeros(())), call(np.zeros((0, 3)), FLOATS), call(np.zeros((2, 3)).T), call(np.zeros((2, 3)), -COLUMN),
    ] for name in ("random_uniform_like", "random_normal_like")
}
ERRORS: dict[str, list[Sample]] = {
    "random_uniform": [call(1j), call(MATRIX, size=(2,)), call(FLOATS, np.ones(2)), call(np.array([1j])),
                       call(size=2, dtype=np.dtype(int))],
    "random_normal": [call(1j), call(MATRIX, size=(4,)), call(FLOATS, np.ones(2)), call(dtype=np.dtype(bool))],
    "random_exponential": [call(1j), call(MATRIX, ()), call(dtype=INT32)],
    "random_poisson": [call(1j), call(FLOATS, (2,)), call(dtype=np.dtype(np.uint8))],
    "random_binomial": [call(5, 1j), call(COUNTS, np.ones(2)), call(COUNTS, 0.5, (2,))],
    "random_integers": [call(COUNTS, size=(2,)), call(5, dtype=FLOAT32), call(0, COUNTS, (4,))],
    "random_permutation": [call(MATRIX, 2), call(np.array(3)), call(2.5), call(FLOATS, -2)],
    "random_uniform_like": [call(np.zeros(3, int)), call(np.zeros(2), FLOATS), call(FLOATS, 1j)],
    "random_normal_like": [call(np.zeros(3, bool)), call(np.zeros(()), FLOATS), call(FLOATS, None, np.array([1j]))],
}
"""Calls that NumPy refuses for shapes and dtypes; arrays without data are refused likewise."""
NAMES = random_names()
DRAWS, FILLS = list(SAMPLES), list(LIKE)


def generator() -> np.random.Generator:
    return np.random.default_rng(SEED)


def state_of(rng: np.random.Generator) -> Any:
    return rng.bit_generator.state


def ours(name: str, rng: np.random.Generator, sample: Sample, variant: str = "") -> Any:
    operator = getattr(ops.np, name + variant)
    if name in LIKE:
        return operator(sample.args[0], rng, *sample.args[1:], **sample.kwargs)
    return operator(rng, *sample.args, **sample.kwargs)


def theirs(name: str, rng: np.random.Generator, sample: Sample) -> Any:
    """Return the method of Generator, with defaults in place of None, and converted to the dtype that is asked for."""
    method = getattr(rng, name.removeprefix("random_").removesuffix("_like"))
    args, kwargs = sample.args, dict(sample.kwargs)
    if name in LIKE:
        target, *args = args
        kwargs["size"] = target.shape
    names = [name for name in numpy_defaults(method) if name not in ("size", "dtype")]
    passed = dict(zip(numpy_defaults(method), args, strict=False)) | kwargs
    for parameter in names:
        if passed.get(parameter, ...) is None:
            del passed[parameter]
    dtype = None if name == "random_integers" else passed.pop("dtype", None)
    drawn = np.asarray(method(**passed))
    return drawn.astype(target.dtype if name in LIKE else dtype or drawn.dtype)


def numpy_defaults(method: Any) -> dict[str, Any]:
    """Return the parameters of a method of Generator, by the first line of its docstring, with their defaults."""
    lines = map(str.strip, method.__doc__.splitlines())
    text = next(line for line in lines if line.startswith(f"{method.__name__}("))
    arguments = ast.parse(f"def {text.split(')')[0]}): pass").body[0].args
    missing = len(arguments.args) - len(arguments.defaults)
    defaults = [inspect.Parameter.empty] * missing + [ast.unparse(default) for default in arguments.defaults]
    return dict(zip([argument.arg for argument in arguments.args], defaults, strict=True))


CASES = [pytest.param(name, sample, id=f"{name}-{i}") for name, samples in (SAMPLES | LIKE).items()
         for i, sample in enumerate(samples)]
FILL_CASES = [case for case in CASES if case.values[0] in LIKE]
ERROR_CASES = [pytest.param(name, sample, id=f"{name}-{i}") for name, samples in ERRORS.items()
               for i, sample in enumerate(samples)]


# --- values ----------------------------------------------------------------------------------------------------------


def test_every_operator_has_samples():
    assert set(NAMES) == (SAMPLES | LIKE).keys() == ERRORS.keys()
    for name in NAMES:
        arguments = schema_of(name).arguments
        positional = [argument.name for argument in arguments if argument.name != "generator" and not argument.kw_only]
        passed = {key for sample in (SAMPLES | LIKE)[name]
                  for key in (*dict(zip(positional, sample.args, strict=False)), *sample.kwargs)}
        assert {argument.name for argument in arguments} - passed <= {"generator", "device"}, name


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_draws_are_those_of_numpy(name, sample):
    one, other = generator(), generator()
    result = ours(name, one, sample)
    assert type(result) in (np.ndarray, np.float64, np.float32, np.int64, np.uint8, np.complex128)
    assert identical(result, theirs(name, other, sample))
    assert state_of(one) == state_of(other)


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_tensors_give_tensors(name, sample):
    tensors = tree_map(lambda leaf: Tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, sample)
    result = ours(name, generator(), tensors)
    expected = theirs(name, generator(), sample)
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves(tuple(tensors))):
        assert type(result) is Tensor
        result = result.array
    assert identical(result, expected)


@pytest.mark.parametrize(("name", "sample"), ERROR_CASES)
def test_what_numpy_refuses_is_refused_and_nothing_is_drawn(name, sample):
    expected = TypeError if casts(name, sample) else outcome(theirs, (name, generator(), sample), {})
    assert is_error(expected)
    rng = generator()
    found = outcome(ours, (name, rng, sample), {})
    assert issubclass(found, expected)
    if not casts(name, sample):
        assert state_of(rng) == state_of(generator())


def casts(name: str, sample: Sample) -> bool:
    """Return whether NumPy's draws are converted to another kind of number."""
    return "dtype" in sample.kwargs or (name in LIKE and sample.args[0].dtype.kind in "ib")


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_those_of_numpy(name):
    method = getattr(np.random.Generator, name.removeprefix("random_").removesuffix("_like"))
    parameters = numpy_defaults(method)
    arguments = [
        argument for argument in schema_of(name).arguments if argument.name not in ("a", "generator", "device")]
    if name in LIKE:
        del parameters["size"]
    if "dtype" not in parameters:
        arguments = [argument for argument in arguments if argument.name != "dtype"]
    assert [argument.name for argument in arguments] == list(parameters)
    for argument in arguments:
        assert argument.has_default == (parameters[argument.name] is not inspect.Parameter.empty)


@pytest.mark.parametrize("name", NAMES)
def test_the_generator_is_an_argument_by_name(name):
    args = {"random_permutation": (5,), "random_binomial": (3, 0.5), "random_integers": (9,)}.get(name, ())
    operator = getattr(ops.np, name)
    if name in LIKE:
        found = operator(np.zeros(3), generator=generator())
        assert identical(found, operator(np.zeros(3), generator()))
        return
    names = [argument.name for argument in schema_of(name).arguments][1:]
    found = operator(generator=generator(), **dict(zip(names, args, strict=False)))
    assert identical(found, operator(generator(), *args))


def test_the_number_to_permute_may_be_one_of_numpy():
    assert identical(ops.np.random_permutation(generator(), np.int8(4)), generator().permutation(4))


@pytest.mark.parametrize(
    "wrong", [None, 3, np.random.RandomState(0), np.random.PCG64(0)], ids=lambda value: type(value).__name__)
def test_what_is_no_generator_is_refused_by_name(wrong):
    with pytest.raises(DispatchTypeError, match=r"argument 'generator'.*Generator"):
        ops.np.random_normal(wrong)


# --- in place --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "sample"), FILL_CASES)
def test_fills_write_the_same_draw(name, sample):
    target = np.array(sample.args[0])
    result = ours(name, generator(), sample._replace(args=(target, *sample.args[1:])), "_")
    assert result is target
    assert identical(target, ours(name, generator(), sample))


@pytest.mark.parametrize("name", FILLS)
def test_fills_leave_what_they_are_like(name):
    array = np.zeros(3)
    getattr(ops.np, name)(array, generator())
    assert array.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", FILLS)
def test_fills_count_as_writes(name):
    tensor = Tensor(np.zeros(3))
    assert getattr(ops.np, name + "_")(tensor, generator()) is tensor
    assert tensor._version == 1
    x = Tensor(np.ones(3), requires_grad=True)
    y = x * 1
    square = y * y
    getattr(ops.np, name + "_")(y, generator())
    assert grad(square.sum(), x)[0].tolist() == [2, 2, 2]


@pytest.mark.parametrize("name", FILLS)
def test_fills_refuse_what_cannot_hold_the_draw(name):
    array = np.zeros(3, int)
    with pytest.raises(TypeError, match=r"float64.*int64"):
        getattr(ops.np, name + "_")(array, generator())
    assert array.tolist() == [0, 0, 0]
    with pytest.raises(DispatchTypeError, match=f"{name}_: .*expected an array to write into, found float64"):
        getattr(ops.np, name + "_")(np.float64(1), generator())


# --- without data ----------------------------------------------------------------------------------------------------


def without_data(sample: Sample) -> Sample:
    return tree_map(
        lambda leaf: MetaArray(leaf.shape, leaf.dtype) if isinstance(leaf, (np.ndarray, np.generic)) else leaf, sample)


@pytest.mark.parametrize(("name", "sample"), CASES)
def test_on_meta_and_on_fakes_nothing_is_drawn(name, sample):
    expected, rng = np.asarray(theirs(name, generator(), sample)), generator()
    with default_backend("Meta"):
        found = ours(name, rng, without_data(sample))
    assert type(found) is MetaArray
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    with FakeMode() as mode:
        fakes = tree_map(lambda leaf: mode.from_array(leaf) if isinstance(leaf, np.ndarray) else leaf, sample)
        found = ours(name, rng, fakes)
    assert type(found) is FakeTensor
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert state_of(rng) == state_of(generator())


@pytest.mark.parametrize(("name", "sample"), ERROR_CASES)
def test_on_meta_the_same_is_refused(name, sample):
    with default_backend("Meta"):
        found = outcome(ours, (name, generator(), without_data(sample)), {})
    assert is_error(found)
    assert found is outcome(ours, (name, generator(), sample), {})


@pytest.mark.parametrize("name", FILLS)
def test_fills_of_meta_arrays(name):
    target = MetaArray((2, 3))
    assert getattr(ops.np, name + "_")(target, generator(), MetaArray((3,))) is target
    with pytest.raises(DispatchTypeError, match="expected a MetaArray to write into, found ndarray"):
        getattr(ops.np, name + "_")(np.zeros(3), generator(), MetaArray((3,)))


@pytest.mark.parametrize("name", [name for name in DRAWS if name != "random_permutation"])
def test_device_says_where_the_draw_is(name):
    rng, sample = generator(), SAMPLES[name][0]
    found = ours(name, rng, sample._replace(kwargs={**sample.kwargs, "size": (2, 2), "device": "Meta"}))
    assert type(found) is MetaArray
    assert found.shape == (2, 2)
    assert state_of(rng) == state_of(generator())


# --- derivatives -----------------------------------------------------------------------------------------------------

SMOOTH = {
    "random_uniform": [np.array([0.5, -1.0, 1.0]), np.array([[1.5], [4.0]])],
    "random_normal": [np.array([0.5, -1.0, 2.0]), np.array([[1.5], [0.5]])],
    "random_exponential": [np.array([[1.5], [0.5]])],
}
"""Parameters at which draws depend on them smoothly, the generator's state being the same."""


def drawn(name: str, values: Any, size: Any = (4, 2, 3)) -> Any:
    return getattr(ops.np, name)(generator(), *values, size)


def filled(name: str, values: Any) -> Any:
    """Return a draw into an array that depends on the parameters itself, which the draw makes forget them."""
    target = ops.np.zeros((4, 2, 3)) + values[0]
    return getattr(ops.np, f"{name}_like_")(target, generator(), *values)


def like(name: str, values: Any) -> Any:
    return getattr(ops.np, f"{name}_like")(np.zeros((4, 2, 3)), generator(), *values)


FORMS = [pytest.param(name, draw, id=f"{name}-{draw.__name__}") for name in SMOOTH for draw in (drawn, filled, like)
         if draw is drawn or f"{name}_like" in LIKE]
WEIGHTS = np.random.default_rng(3).normal(size=(4, 2, 3))


def differences(name: str, values: list[np.ndarray], directions: list[np.ndarray]) -> np.ndarray:
    """Return the change of a draw of NumPy's from one seed along `directions`, which is linear in the parameters."""
    method = name.removeprefix("random_")
    ends = [getattr(generator(), method)(
        *[value + step * along for value, along in zip(values, directions, strict=True)], size=(4, 2, 3))
        for step in (0.125, -0.125)]
    return (ends[0] - ends[1]) / 0.25


@pytest.mark.parametrize(("name", "draw"), FORMS)
def test_gradients_are_those_for_the_numbers_that_were_drawn(name, draw):
    values = [Tensor(value, requires_grad=True) for value in SMOOTH[name]]
    found = grad((draw(name, values) * WEIGHTS).sum(), values)
    by_transform = func_grad(
        lambda *values: (draw(name, values) * WEIGHTS).sum(), argnums=tuple(range(len(values))))(*SMOOTH[name])
    for i, value in enumerate(values):
        for place in np.ndindex(value.shape):
            directions = [np.zeros(value.shape) for value in values]
            directions[i][place] = 1.0
            expected = (differences(name, SMOOTH[name], directions) * WEIGHTS).sum()
            assert np.isclose(found[i].array[place], expected, rtol=1e-12)
            assert np.isclose(by_transform[i][place], expected, rtol=1e-12)


@pytest.mark.parametrize(("name", "draw"), FORMS)
def test_tangents_are_those_for_the_numbers_that_were_drawn(name, draw):
    directions = [np.cos(value) for value in SMOOTH[name]]
    result, tangent = jvp(lambda *values: draw(name, values), tuple(SMOOTH[name]), tuple(directions))
    assert identical(result, getattr(generator(), name.removeprefix("random_"))(*SMOOTH[name], size=(4, 2, 3)))
    np.testing.assert_allclose(tangent, differences(name, SMOOTH[name], directions), rtol=1e-12)


@pytest.mark.parametrize(("name", "draw"), FORMS)
def test_gradcheck(name, draw):
    values = [Tensor(value, requires_grad=True) for value in SMOOTH[name]]
    gradcheck(lambda *values: draw(name, values), values, check_forward_ad=True)
    gradgradcheck(lambda *values: draw(name, values) ** 2, values, check_fwd_over_rev=True)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("transform", ["tape", "grad", "jvp"])
def test_derivatives_do_not_draw(name, transform):
    rng, expected = generator(), generator()
    getattr(expected, name.removeprefix("random_"))(*SMOOTH[name], size=(2, 3))

    def draw(*values: Any) -> Any:
        return (getattr(ops.np, name)(rng, *values, (2, 3)) ** 2).sum()

    if transform == "tape":
        values = [Tensor(value, requires_grad=True) for value in SMOOTH[name]]
        first = grad(draw(*values), values, create_graph=True)
        grad(sum(value.sum() for value in first), values)
    elif transform == "grad":
        func_grad(lambda value: func_grad(draw)(value, *SMOOTH[name][1:]).sum())(SMOOTH[name][0])
    else:
        jvp(draw, tuple(SMOOTH[name]), tuple(SMOOTH[name]))
    assert state_of(rng) == state_of(expected)


@pytest.mark.parametrize(("name", "values", "expected"), [
    ("random_normal", [2.0, 0.0], [4, 0]), ("random_uniform", [2.0, 2.0], [2, 2]), ("random_exponential", [0.0], [4]),
], ids=["normal of scale 0", "uniform between equal limits", "exponential of scale 0"])
def test_a_draw_that_does_not_tell_what_made_it_has_the_expected_gradient(name, values, expected):
    tensors = [Tensor(np.array(value), requires_grad=True) for value in values]
    found = grad(getattr(ops.np, name)(generator(), *tensors, 4).sum(), tensors)
    assert [gradient.array.item() for gradient in found] == expected


def test_gradients_have_the_dtypes_of_the_parameters():
    loc, scale = Tensor(np.ones(3, np.float32), requires_grad=True), Tensor(np.ones(()), requires_grad=True)
    result = ops.np.random_normal(generator(), loc, scale, (2, 3), dtype=FLOAT32)
    found = grad(result.sum(), (loc, scale))
    assert [(gradient.shape, gradient.dtype) for gradient in found] == [((3,), np.float32), ((), np.float64)]


@pytest.mark.parametrize("draw", [
    lambda x: ops.np.random_poisson(generator(), x), lambda x: ops.np.random_binomial(generator(), 3, x / 3),
    lambda x: ops.np.random_integers(generator(), x, 9),
], ids=["poisson", "binomial", "integers"])
def test_draws_of_integers_are_constants(draw):
    x = Tensor(np.ones(3), requires_grad=True)
    assert not draw(x).requires_grad
    assert np.array_equal(func_grad(lambda x: (draw(x) * x).sum())(np.ones(3)), draw(np.ones(3)))


def test_permutations_of_what_is_tracked_have_no_derivative():
    x = Tensor(np.ones(3), requires_grad=True)
    with pytest.raises(NoDerivativeError, match="random_permutation"):
        ops.np.random_permutation(generator(), x)
    order = generator().permutation(3)
    weights = np.array([1.0, 2.0, 3.0])
    found, = grad((ops.np.take(x, ops.np.random_permutation(generator(), 3), 0) * weights).sum(), x)
    assert found.array[order].tolist() == weights.tolist()


def test_draws_inside_of_a_level_can_be_written_to():
    def f(x: Any) -> Any:
        y = ops.np.random_normal(generator(), size=3)
        ops.np.multiply_(y, x)
        return y.sum()

    np.testing.assert_array_equal(func_grad(f)(np.ones(3)), generator().normal(size=3))


# --- tracing ---------------------------------------------------------------------------------------------------------


def two_draws(rng: Any, x: Any) -> Any:
    """Return an unused draw and a used one."""
    ops.np.random_normal(rng, size=2)
    return x + ops.np.random_normal(rng, size=x.shape)


def second_draw(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rng.normal(size=2)
    return 1 + rng.normal(size=3)


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_a_generator_among_the_arguments_of_a_trace_is_an_argument_of_the_graph(mode):
    graph = make_fx(two_draws, tracing_mode=mode)(generator(), np.ones(3))
    graph.eliminate_dead_code()
    graph.lint()
    for run in (graph, graph.compile(), pickle.loads(pickle.dumps(graph))):
        for seed in (1, 2):
            assert identical(run(np.random.default_rng(seed), np.ones(3)), second_draw(seed))
    with pytest.raises(DispatchTypeError, match="Generator"):
        graph(3, np.ones(3))


def test_tracing_fakes_draws_nothing():
    rng = generator()
    make_fx(two_draws, tracing_mode="fake")(rng, np.ones(3))
    assert state_of(rng) == state_of(generator())


def test_a_generator_that_is_captured_goes_on_in_each_run_of_the_graph():
    rng, expected = generator(), generator()
    graph = make_fx(lambda x: two_draws(rng, x))(np.ones(3))
    graph.eliminate_dead_code()
    assert len(graph.find_nodes(op="call_function")) == 3
    for run in (None, graph, graph, graph.compile()):
        expected.normal(size=2)
        drawn = 1 + expected.normal(size=3)
        assert run is None or identical(run(np.ones(3)), drawn)
    assert state_of(rng) == state_of(expected)


def test_one_generator_for_two_arguments_is_refused():
    rng = generator()
    with pytest.raises(DispatchTypeError, match="arguments a_1 and b_1 are the same Generator"):
        make_fx(lambda a, b: ops.np.random_normal(a) + ops.np.random_normal(b))(rng, rng)


def test_what_was_drawn_is_no_constant_of_a_trace():
    rng = generator()
    with pytest.raises(RuntimeError, match="make_fx"):
        make_fx(lambda x: x if ops.np.random_uniform(rng) < 0.5 else -x)(np.ones(3))


def test_a_pattern_with_a_draw_is_refused():
    pattern = make_fx(lambda g: ops.np.random_normal(g))(generator())
    graph = make_fx(two_draws)(generator(), np.ones(3))
    with pytest.raises(RuntimeError, match="random_normal"):
        graph.replace(pattern, pattern)


def fills_twice(rng: Any) -> Any:
    def f(x: Any) -> Any:
        y = ops.np.zeros(3)
        ops.np.random_normal_like_(y, rng)
        ops.np.random_uniform_like_(x, rng, -1.0)
        return y - x

    return f


def test_functionalize_draws_in_the_same_order():
    one, other, x, y = generator(), generator(), np.ones(3), np.ones(3)
    assert identical(functionalize(fills_twice(one))(x), fills_twice(other)(y))
    assert identical(x, y)
    assert state_of(one) == state_of(other)
    graph = make_fx(functionalize(fills_twice(generator())))(np.ones(3))
    targets = [node.target.name.name for node in graph.find_nodes(op="call_function")]
    assert [name for name in targets if "random" in name] == ["random_normal_like", "random_uniform_like"]


def test_tags():
    for name in NAMES:
        assert DECLARATIONS[name].tags[0] == "random"
        assert VARIANTS[name].out is None
        assert "random" in getattr(ops.np, name).default.tags
