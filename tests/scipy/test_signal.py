"""Convolutions and linear filters: closed forms, adjoints, batches, other libraries, errors."""

import numpy as np
import pytest
from scipy import signal as theirs

from pydispatch import Tensor, ops
from pydispatch.func import grad, jvp, vjp, vmap
from pydispatch.scipy import signal
from pydispatch.testing import opcheck
from tests.scipy.samples.sample import between
from tests.together import together

MODES = ["full", "same", "valid"]
METHODS = ["direct", "fft"]
SHAPES = {"vectors": ((7,), (3,)), "longer kernel": ((3,), (6,)), "matrices": ((5, 4), (2, 3)),
          "even kernel": ((5, 6), (2, 4)), "cubes": ((3, 4, 3), (2, 2, 2)),
          "large kernel": ((10, 9), (8, 8))}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_convolution_with_a_delta_is_the_array(shapes, mode):
    shape, other = shapes
    delta = np.zeros(other)
    delta[tuple([(m - 1) // 2 for m in other])] = 1
    x = between(-1, 1, *shape)
    found = signal.convolve(Tensor(x), Tensor(delta), mode).numpy()
    np.testing.assert_allclose(found, theirs.convolve(x, delta, mode, "direct"), atol=1e-14)
    if mode == "same":
        np.testing.assert_allclose(found, x, atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", MODES)
@together("shapes", SHAPES.values(), ids=SHAPES)
def test_gradients_are_adjoints(shapes, mode, method):
    # <conv(x, k), g> = <x, gradient of x> = <k, gradient of k>.
    x, k = [between(-1, 1, *shape, seed=seed) for seed, shape in enumerate(shapes)]
    y, pull = vjp(lambda x, k: signal.convolve(x, k, mode, method), x, k)
    g = between(-1, 1, *y.shape, seed=2)
    expected = np.vdot(theirs.convolve(x, k, mode, method), g)
    for value, gradient in zip((x, k), pull(g), strict=True):
        assert gradient.shape == value.shape
        np.testing.assert_allclose(np.vdot(value, gradient), expected, rtol=1e-11)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batched", [(0, None), (None, 0), (0, 0)], ids=["first", "second", "both"])
@together("shapes", SHAPES.values(), ids=SHAPES)
def test_gradients_of_batches_are_those_of_a_loop(shapes, batched, mode, method):
    values = [between(-1, 1, *(4,) * (dim == 0), *shape, seed=seed)
              for seed, (dim, shape) in enumerate(zip(batched, shapes, strict=True))]

    def loss(x, k):
        y = signal.convolve(x, k, mode, method)
        return ops.np.sum(ops.np.multiply(y, ops.np.sin(y)))

    found = vmap(grad(loss, (0, 1)), in_dims=batched)(*values)
    for i in range(4):
        examples = [value if dim is None else value[i] for value, dim in zip(values, batched, strict=True)]
        for one, expected in zip(found, grad(loss, (0, 1))(*examples), strict=True):
            np.testing.assert_allclose(one[i], expected, atol=1e-11)


def test_a_batch_is_one_call_of_the_kernel():
    x, k = between(-1, 1, 2, 3, 5), between(-1, 1, 3, 2)
    found = vmap(vmap(signal.convolve), in_dims=(0, None))(x, k)
    np.testing.assert_allclose(found, [[np.convolve(one, other) for one, other in zip(row, k, strict=True)]
                                       for row in x])
    op = ops.scipy.signal_convolve
    np.testing.assert_allclose(op(x, k[None], batch_ndim=2), found)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.complex64])
@pytest.mark.parametrize("method", METHODS)
def test_batches_have_the_dtype_of_an_example(dtype, method):
    x, k = np.arange(12).reshape(3, 4).astype(dtype), np.array([1, 2]).astype(dtype)
    found = vmap(lambda x: signal.convolve(x, k, "full", method))(x)
    expected = np.stack([theirs.convolve(row, k, "full", method) for row in x])
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_long_vectors_are_transformed_as_scipy_does():
    x, k = between(-1, 1, 6000), between(-1, 1, 3000)
    assert theirs.choose_conv_method(x, k) == "fft"
    np.testing.assert_array_equal(signal.convolve(Tensor(x), k).numpy(), theirs.convolve(x, k))


POLES, ZEROS = np.array([2.0, -0.6, 0.4]), np.array([1.0, 0.5])


def test_impulse_response_of_one_pole_is_a_geometric_series():
    impulse = np.eye(1, 8)[0]
    found = signal.lfilter(np.ones(1), Tensor(np.array([1.0, -0.5])), impulse)
    np.testing.assert_allclose(found.numpy(), 0.5 ** np.arange(8))
    slopes = jvp(lambda pole: signal.lfilter(np.ones(1), ops.np.stack([1.0, ops.np.negative(pole)]), impulse),
                 (np.float64(0.5),), (np.float64(1.0),))[1]
    n = np.arange(8)
    np.testing.assert_allclose(slopes, n * 0.5 ** np.maximum(n - 1, 0))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradient_of_a_filter_is_its_adjoint(axis):
    x = between(-1, 1, 5, 6)
    y, pull = vjp(lambda x: signal.lfilter(ZEROS, POLES, x, axis), x)
    g = between(-1, 1, 5, 6, seed=1)
    np.testing.assert_allclose(np.vdot(y, g), np.vdot(x, pull(g)[0]))


@pytest.mark.parametrize("batched", [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0), (0, None, 0)])
@pytest.mark.parametrize("with_state", [False, True], ids=["from rest", "from a state"])
def test_filters_of_a_batch_are_those_of_a_loop(batched, with_state):
    values = [ZEROS, POLES, between(-1, 1, 3, 5)]
    values = [value if dim is None else np.stack([value, value * 1.1, value + 0.05])
              for value, dim in zip(values, batched, strict=True)]
    state = np.array([[0.3, -0.2]])

    def loss(b, a, x):
        if not with_state:
            return ops.np.sum(ops.np.sin(signal.lfilter(b, a, x)))
        y, final = signal.lfilter(b, a, x, zi=state)
        return ops.np.add(ops.np.sum(ops.np.sin(y)), ops.np.sum(ops.np.square(final)))

    for function in (loss, grad(loss, (0, 1, 2))):
        found = vmap(function, in_dims=batched)(*values)
        for i in range(3):
            one = function(*[value if dim is None else value[i] for value, dim in zip(values, batched, strict=True)])
            pairs = zip(found, one, strict=True) if isinstance(one, tuple) else [(found, one)]
            for batch, expected in pairs:
                np.testing.assert_allclose(batch[i], expected, atol=1e-11)


def test_a_signal_filtered_in_two_parts_is_filtered_as_a_whole():
    x = Tensor(between(-1, 1, 9), requires_grad=True)
    first, state = signal.lfilter(ZEROS, POLES, x[:4], zi=np.zeros(2))
    second, _ = signal.lfilter(ZEROS, POLES, x[4:], zi=state)
    found = ops.np.detach(ops.np.concatenate([first, second])).numpy()
    np.testing.assert_allclose(found, theirs.lfilter(ZEROS, POLES, between(-1, 1, 9)))


def test_sections_are_filters_in_a_row():
    sections = theirs.butter(4, 0.3, output="sos")
    x = between(-1, 1, 12)
    np.testing.assert_allclose(signal.sosfilt(Tensor(sections), x).numpy(), theirs.sosfilt(sections, x), atol=1e-13)
    direction = between(-1, 1, *sections.shape) * (np.arange(6) != 3)
    _, slope = jvp(lambda sos: signal.sosfilt(sos, x), (sections,), (direction,))
    ahead, behind = [theirs.sosfilt(sections + step * direction, x) for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("shapes", [((2, 3), (4, 5)), ((4, 5), (2, 3)), ((2, 3), (2, 3))], ids=str)
@pytest.mark.parametrize("function", ["correlate2d", "convolve2d", "correlate", "convolve"])
def test_the_smaller_matrix_may_come_first(function, shapes):
    rng = np.random.default_rng(0)
    first, second = [rng.normal(size=shape) + 1j * rng.normal(size=shape) for shape in shapes]
    expected = getattr(theirs, function)(first, second, mode="valid")
    np.testing.assert_allclose(getattr(signal, function)(Tensor(first), Tensor(second), mode="valid").array, expected)
    step = rng.normal(size=shapes[0])
    found = jvp(lambda x: getattr(signal, function)(x, second, mode="valid"), (first,), (step + 0j,))[1]
    np.testing.assert_allclose(found, getattr(theirs, function)(step, second, mode="valid"))


def test_convolutions_are_those_of_torch():
    torch = pytest.importorskip("torch")
    x, k = between(-1, 1, 2, 3, 8), between(-1, 1, 3, 3)

    def loss(x, k):
        return ops.np.sum(ops.np.sin(vmap(vmap(lambda x, k: signal.convolve(x, k, "valid")), in_dims=(0, None))(x, k)))

    tx, tk = [torch.tensor(value, requires_grad=True) for value in (x, k)]
    torch.nn.functional.conv1d(tx, tk.flip(-1)[:, None], groups=3).sin().sum().backward()
    for found, expected in zip(grad(loss, (0, 1))(x, k), (tx.grad, tk.grad), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)


def test_convolutions_are_those_of_jax():
    jax = pytest.importorskip("jax")
    jsignal = pytest.importorskip("jax.scipy.signal")
    x, k = between(-1, 1, 5, 6).astype(np.float32), between(-1, 1, 3, 3).astype(np.float32)
    for mode in MODES:
        expected = jax.grad(lambda x, k: (jsignal.convolve(x, k, mode) ** 2).sum(), (0, 1))(x, k)  # noqa: B023
        found = grad(lambda x, k: ops.np.sum(ops.np.square(signal.convolve(x, k, mode))), (0, 1))(x, k)  # noqa: B023
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


FILTERS = {     # coefficients b and a, and how many there are of each
    "recursive": (3, 4), "longer b": (5, 2), "no recursion": (4, 1), "a factor": (1, 1), "one pole": (1, 2)}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("shape", [(3,), (4, 2), (2, 40)], ids=str)
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("dtype", [float, np.float32, complex])
@pytest.mark.parametrize("from_state", [False, True])
def test_many_filters_are_those_of_each(name, shape, axis, dtype, from_state):
    n_b, n_a = FILTERS[name]
    b, x = between(-1, 1, 9, n_b).astype(dtype), between(-1, 1, 9, *shape, seed=1).astype(dtype)
    a = np.concatenate([between(1, 2, 9, 1), 0.2 * between(-1, 1, 9, n_a - 1)], 1).astype(dtype)
    state = list(shape)
    state[axis] = max(n_b, n_a) - 1
    zi = between(-1, 1, 9, *state, seed=2).astype(dtype)
    if from_state:
        found = vmap(lambda b, a, x, zi: signal.lfilter(b, a, x, axis, zi))(b, a, x, zi)
        expected = [theirs.lfilter(*each[:3], axis, each[3]) for each in zip(b, a, x, zi, strict=True)]
        expected = [np.stack(each) for each in zip(*expected, strict=True)]
    else:
        found = [vmap(lambda b, a, x: signal.lfilter(b, a, x, axis))(b, a, x)]
        expected = [np.stack([theirs.lfilter(*each, axis) for each in zip(b, a, x, strict=True)])]
    for ours, other in zip(found, expected, strict=True):
        assert ours.dtype == other.dtype
        np.testing.assert_allclose(ours, other, rtol=1e-4 if dtype is np.float32 else 1e-11, atol=1e-6)


BAD_CALLS = {
    "dimensions": (lambda x: signal.convolve(x, np.ones((2, 2))), "signal.convolve: volume and kernel should have"),
    "mode": (lambda x: signal.convolve(x, np.ones(2), "half"), "signal.convolve: .*mode"),
    "method": (lambda x: signal.convolve(x, np.ones(2), "full", "fast"), "signal.convolve: .*method"),
    "empty": (lambda x: signal.convolve(x, np.ones(0)), "signal.convolve: .*cannot be empty"),
    "correlation": (lambda x: signal.correlate(x, np.ones((2, 2))), "signal.correlate: in1 and in2 should have"),
    "axes": (lambda x: signal.fftconvolve(x, np.ones(2), axes=[]), "signal.fftconvolve: .*cannot be empty"),
    "matrices": (lambda x: signal.convolve2d(x, np.ones((2, 2))), "signal.convolve2d: .*2-D"),
    "no coefficients": (lambda x: signal.lfilter(np.ones(0), np.ones(1), x), "signal.lfilter: .*b"),
    "first coefficient": (lambda x: signal.lfilter(np.ones(1), np.array([0.0, 1.0]), x), r"signal.lfilter: .*a\[0\]"),
    "state": (lambda x: signal.lfilter(ZEROS, POLES, x, zi=np.ones(3)), "signal.lfilter: .*zi"),
    "sections": (lambda x: signal.sosfilt(np.ones((2, 5)), x), "signal.sosfilt: sos array must be shape"),
}
WAYS = {
    "eager": lambda function, x: function(Tensor(x)),
    "vmap": lambda function, x: vmap(function)(np.stack([x, x])),
    "grad": lambda function, x: grad(lambda x: ops.np.sum(function(x)))(x),
    "jvp": lambda function, x: jvp(function, (x,), (x,)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@together("function, message", BAD_CALLS.values(), ids=BAD_CALLS)
def test_errors_name_the_function(function, message, way):
    with pytest.raises(ValueError, match=message):
        way(function, np.ones(4))


def test_the_failing_example_is_named():
    poles = np.stack([POLES, POLES - POLES[0]])
    with pytest.raises(ValueError, match=r"signal.lfilter: .*a\[0\]") as caught:
        vmap(lambda a: signal.lfilter(ZEROS, a, np.ones(4)))(poles)
    assert caught.value.__notes__ == ["in example 1 of a batch of 2"]


OPERATORS = {
    "from a state": ("signal_lfilter_from", (ZEROS, POLES, between(-1, 1, 4), np.array([0.3, -0.2])), {}),
    "filters": ("signal_lfilter", (np.stack([ZEROS, -ZEROS]), POLES[None], between(-1, 1, 2, 4)), {"batch_ndim": 1}),
    "images": ("signal_convolve", (between(-1, 1, 2, 3, 4), between(-1, 1, 1, 2, 2)), {"batch_ndim": 1}),
}


@pytest.mark.parametrize(("name", "args", "kwargs"), OPERATORS.values(), ids=OPERATORS)
def test_operators_on_batches_pass_opcheck(name, args, kwargs):
    args = tuple([Tensor(x, requires_grad=True) for x in args])
    assert set(opcheck(getattr(ops.scipy, name), args, kwargs).values()) == {"SUCCESS"}
