"""Which images teach a network most? The gradient of the loss for each image by itself.

    python examples/transforms/per_sample_gradients.py [--plot FILE]

The network is that of examples/digits. Its convolution is a custom operator with a backward formula and no batching
rule: `vmap(grad)` makes one. A product with the Hessian is `jvp` of `grad`. Needs `pip install -e '.[examples]'`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pydispatch import func, ops
from pydispatch.exceptions import PerformanceWarning

Parameters = tuple[np.ndarray, ...]


def load_digits() -> Any:
    """The example of the digits."""
    spec = spec_from_file_location("digits_example", Path(__file__).parents[1] / "digits" / "train.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.convolve.register_autograd(module.gradients, setup_context=module.save)
    return module


class Problem:
    """The network's first parameters, and a few of the images with their labels."""

    def __init__(self, images: int, seed: int = 0) -> None:
        self.digits = load_digits()
        data = self.digits.load(seed)
        self.images, self.labels = data.images[:images], data.labels[:images]
        self.targets = np.eye(self.digits.CLASSES)[self.labels]
        strokes, thresholds, digits = self.digits.Network.initial(np.random.default_rng(seed))
        thresholds = thresholds + 0.1       # blank places are not where max(., 0) has its kink
        self.parameters: Parameters = tuple(array.detach().numpy() for array in (strokes, thresholds, digits))

    def loss(self, parameters: Any, image: Any, target: Any) -> Any:
        """Of one image: -log(probability of the right class)."""
        scores = self.digits.Network(*parameters).scores(image[None])[0]
        return ops.np.log(ops.np.exp(scores).sum()) - (scores * target).sum()

    def mean_loss(self, parameters: Any) -> Any:
        """Of all images."""
        scores = self.digits.Network(*parameters).scores(self.images)
        return (ops.np.log(ops.np.exp(scores).sum(axis=1)) - (scores * self.targets).sum(axis=1)).mean()

    def gradients(self) -> Parameters:
        """The gradient for each image, of each parameter: by vmap of grad."""
        return func.vmap(func.grad(self.loss), (None, 0, 0))(self.parameters, self.images, self.targets)

    def gradients_by_a_loop(self) -> Parameters:
        """The same, image by image."""
        gradient = func.grad(self.loss)
        each = [gradient(self.parameters, *one) for one in zip(self.images, self.targets, strict=True)]
        return tuple(map(np.stack, zip(*each, strict=True)))

    def hessian_product(self, vectors: Parameters) -> Parameters:
        """The Hessian of the mean loss times a vector, by jvp of grad: it is never formed."""
        return func.jvp(func.grad(self.mean_loss), (self.parameters,), (vectors,))[1]

    def hessian_product_by_differences(self, vectors: Parameters, step: float = 1e-6) -> Parameters:
        """The same by two gradients."""
        moved = ([p + sign * step * v for p, v in zip(self.parameters, vectors, strict=True)] for sign in (1, -1))
        after, before = (func.grad(self.mean_loss)(tuple(parameters)) for parameters in moved)
        return tuple((a - b) / (2 * step) for a, b in zip(after, before, strict=True))


def difference(left: Parameters, right: Parameters) -> float:
    """The largest."""
    return max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))


def plot(problem: Problem, norms: np.ndarray, file: Path) -> None:
    """The images with the largest gradients above, those with the smallest below."""
    order = np.argsort(-norms)
    figure = Figure(figsize=(8, 3), layout="constrained")
    figure.suptitle("Digits and the norms of their gradients: the largest, and the smallest")
    for place, number in zip(figure.subplots(2, 8).flat, (*order[:8], *order[-8:]), strict=True):
        place.imshow(problem.images[number, ..., 0], cmap="gray_r")
        place.set(title=f"{problem.labels[number]}: {norms[number]:.2f}", xticks=[], yticks=[])
    figure.savefig(file, dpi=120)


def main(words: list[str] | None = None) -> None:
    """Compare both ways, and show the images."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=64, help="how many")
    parser.add_argument("--plot", type=Path, default=Path("gradients.png"), metavar="FILE", help="where the plot goes")
    options = parser.parse_args(words)
    warnings.simplefilter("ignore", PerformanceWarning)     # the kernel is called image by image
    problem = Problem(options.images)
    start = time.perf_counter()
    gradients = problem.gradients()
    middle = time.perf_counter()
    by_a_loop = problem.gradients_by_a_loop()
    end = time.perf_counter()
    vectors = tuple(np.random.default_rng(1).standard_normal(array.shape) for array in problem.parameters)
    products, by_differences = problem.hessian_product(vectors), problem.hessian_product_by_differences(vectors)
    norms = np.sqrt(sum((array.reshape(len(array), -1) ** 2).sum(axis=1) for array in gradients))
    print(f"gradients for {options.images} images   vmap(grad) {1e3 * (middle - start):.1f} ms, "
          f"a loop {1e3 * (end - middle):.1f} ms, difference {difference(gradients, by_a_loop):.1e}\n"
          "as long as the loop: the convolution has no batching rule, so its kernel takes one image at a time")
    print(f"Hessian times a vector: jvp(grad) is off finite differences by {difference(products, by_differences):.1e}")
    plot(problem, norms, options.plot)
    print(f"norms of the gradients from {norms.min():.3f} to {norms.max():.3f}; picture: {options.plot}")


if __name__ == "__main__":
    main()
