"""Which images teach a network most? The gradient of the loss for each image by itself.

    python examples/transforms/per_sample_gradients.py [--plot FILE]

The network is that of examples/digits, untrained. Its convolution is a custom operator with a backward formula and no
batching rule: `vmap(grad)` makes one. `jvp(grad)` multiplies by the Hessian. Needs `pip install -e '.[examples]'`.
"""

import argparse
import timeit
import warnings

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from pydispatch import Tensor, exceptions, func, library, ops


@library.custom_op("samples::convolve", mutates_args=())
def convolve(images: Tensor, kernels: Tensor, padding: int = 0) -> Tensor:
    """Slide kernels (height, width, channels in, out) over images (n, height, width, channels in)."""
    padded = np.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernels.shape[:2], (1, 2))
    return np.tensordot(windows, kernels, ((4, 5, 3), (0, 1, 2)))


def save(ctx, inputs, output):
    images, kernels, ctx.padding = inputs
    ctx.save_for_backward(images, kernels)


def backward(ctx, gradient):
    """Return the gradients, which are convolutions too. examples/digits explains them."""
    images, kernels = ctx.saved_tensors
    turned = ops.np.swapaxes(ops.np.flip(kernels, (0, 1)), 2, 3)
    of_kernels = convolve(images.transpose(3, 1, 2, 0), gradient.transpose(1, 2, 0, 3), ctx.padding)
    return convolve(gradient, turned, len(kernels) - 1 - ctx.padding), of_kernels.transpose(1, 2, 0, 3), None


convolve.register_autograd(backward, setup_context=save)


class Problem:
    """The network's first parameters, and a few of the images with their labels."""

    def __init__(self, images: int) -> None:
        data, random = load_digits(), np.random.default_rng(0)
        self.images, self.labels = data.images[:images, ..., None] / data.images.max(), data.target[:images]
        self.targets = np.eye(10)[self.labels]
        strokes, digits = random.normal(0, np.sqrt(2 / 9), (3, 3, 1, 16)), random.normal(0, 1 / 24, (6, 6, 16, 10))
        self.parameters = strokes, np.full(16, 0.1), digits     # not 0, where max(., 0) has its kink

    def loss(self, parameters, image, target):
        """Compute -log(probability of the right class) of one image."""
        strokes, thresholds, digits = parameters
        scores = convolve(ops.np.maximum(convolve(image[None], strokes) + thresholds, 0.0), digits).reshape(10)
        return ops.np.log(ops.np.exp(scores).sum()) - (scores * target).sum()

    def mean_loss(self, parameters):
        """Compute the mean loss of all images."""
        return func.vmap(self.loss, (None, 0, 0))(parameters, self.images, self.targets).mean()

    def gradients(self):
        """Return the gradient for each image, of each parameter: by vmap of grad."""
        return func.vmap(func.grad(self.loss), (None, 0, 0))(self.parameters, self.images, self.targets)

    def gradients_by_a_loop(self):
        """Compute the same gradients image by image."""
        each = (func.grad(self.loss)(self.parameters, *one) for one in zip(self.images, self.targets, strict=True))
        return tuple(map(np.stack, zip(*each, strict=True)))

    def hessian_product(self, vectors):
        """Return the Hessian of the mean loss times a vector, by jvp of grad: it is never formed."""
        return func.jvp(func.grad(self.mean_loss), (self.parameters,), (vectors,))[1]

    def hessian_product_by_differences(self, vectors, step: float = 1e-6):
        """Compute the same product by two gradients."""
        moved = (map(np.add, self.parameters, (by * v for v in vectors)) for by in (step, -step))
        after, before = (func.grad(self.mean_loss)(tuple(parameters)) for parameters in moved)
        return tuple((a - b) / (2 * step) for a, b in zip(after, before, strict=True))


def plot(problem: Problem, norms: np.ndarray, file: str) -> None:
    """Plot the images with the largest gradients above, those with the smallest below."""
    order = np.argsort(-norms)
    figure = Figure(figsize=(8, 3), layout="constrained")
    figure.suptitle("Digits and the norms of their gradients: the largest, and the smallest")
    for place, number in zip(figure.subplots(2, 8).flat, (*order[:8], *order[-8:]), strict=True):
        place.imshow(problem.images[number, ..., 0], cmap="gray_r")
        place.set(title=f"{problem.labels[number]}: {norms[number]:.2f}", xticks=[], yticks=[])
    figure.savefig(file, dpi=120)


def difference(left, right):
    return max(np.abs(a - b).max() for a, b in zip(left, right, strict=True))


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=64, help="how many")
    parser.add_argument("--plot", default="gradients.png", metavar="FILE", help="where the plot goes")
    options = parser.parse_args(words)
    warnings.simplefilter("ignore", exceptions.PerformanceWarning)     # the kernel is called image by image
    problem = Problem(options.images)
    gradients, by_a_loop = problem.gradients(), problem.gradients_by_a_loop()
    batched, looped = (min(timeit.repeat(way, number=1)) for way in (problem.gradients, problem.gradients_by_a_loop))
    vectors = tuple(np.random.default_rng(1).standard_normal(array.shape) for array in problem.parameters)
    products, by_differences = problem.hessian_product(vectors), problem.hessian_product_by_differences(vectors)
    norms = np.sqrt(sum((array.reshape(len(array), -1) ** 2).sum(axis=1) for array in gradients))
    print(f"gradients for {options.images} images   vmap(grad) {1e3 * batched:.1f} ms, "
          f"a loop {1e3 * looped:.1f} ms (best of five), difference {difference(gradients, by_a_loop):.1e}\n"
          "as long as the loop: without a batching rule, the convolution's kernel takes one image at a time\n"
          f"Hessian times a vector: jvp(grad) is off finite differences by {difference(products, by_differences):.1e}\n"
          f"norms of the gradients from {norms.min():.3f} to {norms.max():.3f}; picture: {options.plot}")
    plot(problem, norms, options.plot)


if __name__ == "__main__":
    main()
