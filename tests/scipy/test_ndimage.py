"""Filters and interpolation of images: closed forms, adjoints, batches, other libraries, errors."""

import numpy as np
import pytest
from scipy import ndimage as theirs

from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func import grad, jvp, vjp, vmap
from pydispatch.scipy import ndimage
from pydispatch.testing import opcheck
from tests.scipy.samples.sample import between
from tests.together import together

MODES = ["reflect", "constant", "nearest", "mirror", "wrap"]
IMAGE = between(-1, 1, 5, 6)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (1, 5), (9, 13)], ids=str)
@pytest.mark.parametrize("origin", ["first", "middle", "last"])
@together("mode", MODES)
def test_gradients_are_adjoints(shape, mode, origin):
    sign = {"first": -1, "middle": 0, "last": 1}[origin]
    shifts = [sign * ((m - 1) // 2) for m in shape]
    weights = between(-1, 1, *shape, seed=1)
    y, pull = vjp(lambda image, weights: ndimage.convolve(image, weights, mode=mode, origin=shifts), IMAGE, weights)
    np.testing.assert_allclose(y, theirs.convolve(IMAGE, weights, mode=mode, origin=shifts), atol=1e-13)
    g = between(-1, 1, *IMAGE.shape, seed=2)
    of_image, of_weights = pull(g)
    np.testing.assert_allclose(np.vdot(y, g), np.vdot(of_image, IMAGE), rtol=1e-11)
    np.testing.assert_allclose(np.vdot(y, g), np.vdot(of_weights, weights), rtol=1e-11)


@pytest.mark.parametrize("mode", MODES)
def test_gradient_is_the_transposed_matrix(mode):
    weights = between(-1, 1, 7)
    for n in (1, 2, 5):
        matrix = np.stack([theirs.convolve1d(row, weights, mode=mode, origin=2) for row in np.eye(n)], 1)
        _, pull = vjp(lambda x: ndimage.convolve1d(x, weights, mode=mode, origin=2), np.ones(n))
        np.testing.assert_allclose(np.stack([pull(row)[0] for row in np.eye(n)]), matrix, atol=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_weights_counts_what_is_outside(mode):
    weights = between(-1, 1, 3)
    direction = between(-1, 1, 3, seed=1)
    _, slope = jvp(lambda w: ndimage.correlate1d(IMAGE, w, mode=mode, cval=2.0), (weights,), (direction,))
    np.testing.assert_allclose(slope, theirs.correlate1d(IMAGE, direction, mode=mode, cval=2.0), atol=1e-13)
    gradient = grad(lambda w: ops.np.sum(ndimage.correlate1d(IMAGE, w, mode=mode, cval=2.0)))(weights)
    expected = [theirs.correlate1d(IMAGE, unit, mode=mode, cval=2.0).sum() for unit in np.eye(3)]
    np.testing.assert_allclose(gradient, expected, atol=1e-12)


def test_many_weights_have_the_gradient_of_few():
    weights = between(-1, 1, 9, 9)
    gradient = grad(lambda w: ops.np.sum(ops.np.sin(ndimage.convolve(IMAGE, w))))(weights)
    slopes = np.cos(theirs.convolve(IMAGE, weights))
    for place in [(0, 0), (4, 4), (8, 3)]:
        unit = np.zeros((9, 9))
        unit[place] = 1
        np.testing.assert_allclose(gradient[place], (theirs.convolve(IMAGE, unit) * slopes).sum(), atol=1e-12)


@pytest.mark.parametrize("batched", [(0, None), (None, 0), (0, 0)], ids=["images", "weights", "both"])
@pytest.mark.parametrize("shape", [(3, 2), (1, 3), (9, 8)], ids=str)
@together("mode", MODES)
def test_gradients_of_batches_are_those_of_a_loop(shape, batched, mode):
    values = [between(-1, 1, *(3,) * (dim == 0), *each, seed=seed)
              for seed, (dim, each) in enumerate(zip(batched, (IMAGE.shape, shape), strict=True))]

    def loss(image, weights):
        return ops.np.sum(ops.np.sin(ndimage.convolve(image, weights, mode=mode, cval=0.5)))

    found = vmap(grad(loss, (0, 1)), in_dims=batched)(*values)
    for i in range(3):
        examples = [value if dim is None else value[i] for value, dim in zip(values, batched, strict=True)]
        for one, expected in zip(found, grad(loss, (0, 1))(*examples), strict=True):
            np.testing.assert_allclose(one[i], expected, atol=1e-11)


def test_a_gaussian_keeps_sums_and_its_derivative_slopes():
    image = np.zeros(41)
    image[20] = 1
    found = ndimage.gaussian_filter(Tensor(image), 3.0).numpy()
    np.testing.assert_allclose(found.sum(), 1)
    x = np.arange(-12, 13)
    np.testing.assert_allclose(found[8:33], np.exp(-x**2 / 18) / np.exp(-x**2 / 18).sum(), atol=1e-15)
    ramp = np.arange(41.0)
    np.testing.assert_allclose(ndimage.gaussian_filter1d(Tensor(ramp), 2.0, order=1).numpy()[8:33], 1, rtol=1e-3)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_gaussians_have_gradients_in_sigma(order):
    sigma = np.float64(1.3)
    _, slope = jvp(lambda sigma: ndimage.gaussian_filter1d(IMAGE, sigma, order=order, radius=4), (sigma,),
                   (np.float64(1.0),))
    ahead, behind = [theirs.gaussian_filter1d(IMAGE, sigma + step, order=order, radius=4) for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, (ahead - behind) / 2e-6, atol=1e-8)
    sigmas = np.array([0.8, 1.3])
    found = vmap(lambda sigma: ndimage.gaussian_filter1d(IMAGE, sigma, order=order, radius=4))(sigmas)
    np.testing.assert_allclose(found, [theirs.gaussian_filter1d(IMAGE, s, order=order, radius=4) for s in sigmas],
                               atol=1e-13)
    widths = Tensor(np.array([0.8, 1.3]))
    np.testing.assert_allclose(ndimage.gaussian_filter(Tensor(IMAGE), widths, order).numpy(),
                               theirs.gaussian_filter(IMAGE, [0.8, 1.3], order), atol=1e-13)


def test_sigma_of_a_batch_needs_a_radius():
    with pytest.raises(DispatchTypeError, match=r"gaussian_filter1d: the radius .*\npass radius="):
        vmap(lambda sigma: ndimage.gaussian_filter1d(IMAGE, sigma))(np.array([0.8, 1.3]))


@pytest.mark.parametrize("output", [np.float32, np.float64, np.int32, "float32"])
@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
def test_output_may_be_a_dtype_or_an_array(dtype, output):
    image = (IMAGE * 100).astype(dtype)
    expected = theirs.gaussian_filter1d(image, 1.0, output=output)
    found = ndimage.gaussian_filter1d(Tensor(image), 1.0, output=output)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    target = Tensor(np.zeros(image.shape, output))
    assert ndimage.gaussian_filter1d(Tensor(image), 1.0, output=target) is target
    np.testing.assert_allclose(target.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_integers_are_averaged_as_scipy_does(size):
    image = np.random.default_rng(0).integers(-50, 50, (7, 8))
    found = ndimage.uniform_filter(Tensor(image), size)
    np.testing.assert_array_equal(found.numpy(), theirs.uniform_filter(image, size))


@pytest.mark.parametrize("n", [4, 39, 41, 60])
@together("mode", [*MODES, "grid-constant", "grid-wrap", "grid-mirror"])
def test_gradient_of_spline_coefficients_is_the_transposed_matrix(mode, n):
    for order in (2, 3, 4, 5):
        g = between(-1, 1, n)
        _, pull = vjp(lambda x: ndimage.spline_filter1d(x, order, mode=mode), np.ones(n))  # noqa: B023
        matrix = theirs.spline_filter1d(np.eye(n), order, 0, mode=mode)
        np.testing.assert_allclose(pull(g)[0], matrix.T @ g, atol=1e-11)


EVERY_MODE = [*MODES, "grid-constant", "grid-wrap", "grid-mirror"]


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("n", [1, 2, 5])
@together("mode", EVERY_MODE)
def test_what_is_differentiated_is_what_is_interpolated(mode, order, n):
    row = between(-1, 1, n)
    points = np.concatenate([np.linspace(-3 * n - 0.013, 4 * n + 0.017, 101), np.arange(-3 * n, 4 * n)])[None]
    found, _ = vjp(lambda image: ndimage.map_coordinates(image, points, order=order, mode=mode, cval=0.3), row)
    expected = theirs.map_coordinates(row, points, order=order, mode=mode, cval=0.3)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_linear_image_has_its_slopes_as_gradients():
    i, j = np.mgrid[:5, :6]
    image = 2.0 * i - 3.0 * j
    points = np.stack([between(0, 4, 7), between(0, 5, 7, seed=1)])
    gradient = grad(lambda points: ops.np.sum(ndimage.map_coordinates(image, points, order=1)))(points)
    np.testing.assert_allclose(gradient, np.stack([np.full(7, 2.0), np.full(7, -3.0)]))
    of_image = grad(lambda image: ops.np.sum(ndimage.map_coordinates(image, points, order=1)))(image)
    np.testing.assert_allclose(of_image.sum(), 7)


@pytest.mark.parametrize("batched", [(0, None), (None, 0), (0, 0)], ids=["images", "points", "both"])
@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_interpolation_of_a_batch_is_a_loop(batched, mode):
    points = np.stack([between(-2, 6, 3, 4), between(-2, 6, 3, 4, seed=1)], 1) + 0.0123
    values = [np.stack([IMAGE, IMAGE * 0.5, IMAGE + 1]) if batched[0] == 0 else IMAGE,
              points if batched[1] == 0 else points[0]]

    def loss(image, points):
        return ops.np.sum(ops.np.sin(ndimage.map_coordinates(image, points, order=1, mode=mode)))

    for function in (loss, grad(loss, (0, 1))):
        found = vmap(function, in_dims=batched)(*values)
        for i in range(3):
            one = function(*[value if dim is None else value[i] for value, dim in zip(values, batched, strict=True)])
            for batch, expected in zip(found, one, strict=True) if isinstance(one, tuple) else [(found, one)]:
                np.testing.assert_allclose(batch[i], expected, atol=1e-12)


def test_an_example_with_nan_does_not_reach_its_neighbours():
    images = np.stack([IMAGE, np.full_like(IMAGE, np.nan)])
    points = np.array([[0.0, 1.5], [2.0, 0.5]])
    found = vmap(lambda image: ndimage.map_coordinates(image, points, order=1))(images)
    np.testing.assert_allclose(found[0], theirs.map_coordinates(IMAGE, points, order=1))


def test_interpolation_is_that_of_jax():
    jax = pytest.importorskip("jax")
    jndimage = pytest.importorskip("jax.scipy.ndimage")
    points = np.stack([between(-2, 6, 8), between(-2, 7, 8, seed=1)]) + 0.0123
    for mode in MODES:
        def loss(image, points, mode=mode):
            return (jndimage.map_coordinates(image, points, 1, mode) ** 2).sum()

        def ours(image, points, mode=mode):
            return ops.np.sum(ops.np.square(ndimage.map_coordinates(image, points, order=1, mode=mode)))

        if mode in ("constant", "wrap"):        # where JAX does otherwise than SciPy between the ends of the image
            continue
        expected = jax.grad(loss, (0, 1))(IMAGE.astype(np.float32), points.astype(np.float32))
        for one, other in zip(grad(ours, (0, 1))(IMAGE, points), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_filters_are_those_of_torch():
    torch = pytest.importorskip("torch")
    weights = between(-1, 1, 3, 3)

    def loss(image, weights):
        return ops.np.sum(ops.np.sin(ndimage.correlate(image, weights, mode="mirror")))

    image, kernel = [torch.tensor(value, requires_grad=True) for value in (IMAGE, weights)]
    wide = torch.nn.functional.pad(image[None, None], (1, 1, 1, 1), mode="reflect")
    torch.nn.functional.conv2d(wide, kernel[None, None]).sin().sum().backward()
    for found, expected in zip(grad(loss, (0, 1))(IMAGE, weights), (image.grad, kernel.grad), strict=True):
        np.testing.assert_allclose(found, expected.numpy(), atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (1, 5), (1, 1), (9, 13)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("is_one_image", [True, False])
@together("mode", [*MODES, "grid-wrap", "grid-constant"])
def test_each_example_has_weights_of_its_own(shape, mode, dtype, is_one_image):
    weights, images = between(-1, 1, 3, *shape).astype(dtype), between(-1, 1, 3, 5, 6).astype(dtype)
    images = images[[0, 0, 0]] if is_one_image else images
    shifts = [(m - 1) // 2 for m in shape]
    expected = [theirs.convolve(image, w, mode=mode, cval=0.5, origin=shifts)
                for image, w in zip(images, weights, strict=True)]
    found = vmap(lambda image, w: ndimage.convolve(image, w, mode=mode, cval=0.5, origin=shifts),
                 in_dims=(None if is_one_image else 0, 0))(images[0] if is_one_image else images, weights)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype == np.float32 else 1e-12, atol=1e-6)


def test_weights_of_0_leave_out_what_is_not_finite():
    images = np.stack([IMAGE, np.where(IMAGE > 0.9, np.nan, IMAGE)])
    weights = np.stack([between(-1, 1, 3, 3) * np.eye(3)] * 2)
    found = vmap(ndimage.convolve)(images, weights)
    expected = [theirs.convolve(image, w) for image, w in zip(images, weights, strict=True)]
    assert np.isnan(found).any()
    np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@together("mode", [*MODES, "grid-wrap", "grid-constant", "grid-mirror"])
def test_many_images_have_points_of_their_own(mode, order, dtype):
    images = (10 * between(-1, 1, 12, 5, 6)).astype(dtype)
    points = between(-7, 13, 12, 2, 4)
    found = vmap(lambda image, points: ndimage.map_coordinates(image, points, order=order, mode=mode))(images, points)
    expected = [theirs.map_coordinates(image, each, order=order, mode=mode)
                for image, each in zip(images, points, strict=True)]
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


BAD_CALLS = {
    "weights": (lambda x: ndimage.convolve(x, np.ones(3)), RuntimeError, r"ndimage.convolve: weights.ndim \(1\)"),
    "origin": (lambda x: ndimage.correlate(x, np.ones((3, 3)), origin=2), ValueError, "ndimage.*Invalid origin"),
    "mode": (lambda x: ndimage.convolve(x, np.ones((3, 3)), mode="edge"), RuntimeError, "ndimage.convolve: boundary"),
    "modes": (lambda x: ndimage.convolve(x, np.ones((3, 3)), mode=["wrap", "wrap"]), RuntimeError, "sequence of modes"),
    "no weights": (lambda x: ndimage.correlate1d(x, np.ones(0)), RuntimeError, "ndimage.correlate1d: no filter"),
    "axis": (lambda x: ndimage.convolve1d(x, np.ones(2), axis=2), ValueError, "axis 2 is out of bounds"),
    "radius": (lambda x: ndimage.gaussian_filter1d(x, 1.0, radius=-1), ValueError, "gaussian_filter1d: radius"),
    "sigmas": (lambda x: ndimage.gaussian_filter(x, [1.0, 1.0, 1.0]), RuntimeError, "length equal to input rank"),
    "size": (lambda x: ndimage.uniform_filter1d(x, 0), RuntimeError, "uniform_filter1d: incorrect filter size"),
    "coordinates": (lambda x: ndimage.map_coordinates(x, np.ones((3, 4)), order=1), RuntimeError,
                    "ndimage.map_coordinates: invalid shape"),
    "order": (lambda x: ndimage.map_coordinates(x, np.ones((2, 4)), order=6), RuntimeError, "spline order not"),
}
WAYS = {
    "eager": lambda function, x: function(Tensor(x)),
    "vmap": lambda function, x: vmap(function)(np.stack([x, x])),
    "grad": lambda function, x: grad(lambda x: ops.np.sum(function(x)))(x),
    "jvp": lambda function, x: jvp(function, (x,), (x,)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@together("function, error, message", BAD_CALLS.values(), ids=BAD_CALLS)
def test_errors_name_the_function(function, error, message, way):
    with pytest.raises(error, match=message):
        way(function, IMAGE)


OPERATORS = {
    "transposed": ("ndimage_transposed", (IMAGE, between(-1, 1, 2, 3)), {"mode": "mirror", "origin": (0, 1)}),
    "weigh": ("ndimage_weigh", (IMAGE, between(-1, 1, 5, 6, seed=1), (2, 3)), {"mode": "nearest", "cval": 0.5}),
    "batch": ("ndimage_convolve", (between(-1, 1, 2, 3, 4), between(-1, 1, 2, 2, 2)), {"cval": 1.0, "batch_ndim": 1}),
}


@pytest.mark.parametrize(("name", "args", "kwargs"), OPERATORS.values(), ids=OPERATORS)
def test_operators_of_the_formulas_pass_opcheck(name, args, kwargs):
    args = tuple([Tensor(x, requires_grad=True) if isinstance(x, np.ndarray) else x for x in args])
    assert set(opcheck(getattr(ops.scipy, name), args, kwargs).values()) == {"SUCCESS"}


@together("dtype", [np.uint8, np.int16, np.float32])
def test_splines_of_integers_are_rounded_like_scipys(dtype):
    image = (255 * (between(0, 1, 6, 7) > 0.5)).astype(dtype)
    points = between(0, 5, 2, 20)
    for name, *args in (("zoom", 1.7), ("shift", (0.3, -0.6)), ("rotate", 20), ("map_coordinates", points)):
        np.testing.assert_allclose(getattr(ndimage, name)(Tensor(image), *args).numpy(),
                                   getattr(theirs, name)(image, *args), rtol=1e-6)


@together("order", [0, 1, 3])
def test_coordinates_between_two_elements_are_rounded_like_scipys(order):
    image = between(-1, 1, 32, 32)
    for name, argument in (("rotate", 45), ("rotate", 90), ("zoom", 1.5), ("zoom", 0.37), ("shift", 0.5)):
        np.testing.assert_allclose(getattr(ndimage, name)(Tensor(image), argument, order=order).numpy(),
                                   getattr(theirs, name)(image, argument, order=order), atol=1e-12)


def test_labels_of_a_batch_have_a_count_for_each_example():
    images = (between(-1, 1, 3, 6, 7) > 0).astype(float)
    labels, counts = vmap(ndimage.label)(images)
    expected = [theirs.label(image) for image in images]
    np.testing.assert_array_equal(labels, [found for found, _ in expected])
    np.testing.assert_array_equal(counts, [count for _, count in expected])
    assert len(set(counts.tolist())) > 1
