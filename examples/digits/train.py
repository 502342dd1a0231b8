"""Handwritten digits, read by a small network whose convolution is a custom operator.

    python examples/digits/train.py                    train, print a summary, save a plot of the loss
    python examples/digits/train.py --zero-gradient    the same, but the operator's gradient is all zeros

Every parameter is trained through the operator, so the second run learns nothing. Needs `pip install -e '.[examples]'`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

from pydispatch import Tensor, ops
from pydispatch.autograd import no_grad
from pydispatch.library import custom_op

CLASSES = 10
CHANNELS = 16

exp, flip, log, maximum, swapaxes = ops.np.exp, ops.np.flip, ops.np.log, ops.np.maximum, ops.np.swapaxes


# --- the operator: a kernel in NumPy, and a formula for its gradient ---------------------------------------


@custom_op("digits::convolve", mutates_args=())
def convolve(images: Tensor, kernels: Tensor, padding: int = 0) -> Tensor:
    """Slide kernels over images, with so many zeros around these: the sums of products at each place.

    Images have the shape (n, height, width, channels in), kernels (height, width, channels in, channels out).
    """
    around = (padding, padding)
    padded = np.pad(images, ((0, 0), around, around, (0, 0)))
    places = sliding_window_view(padded, kernels.shape[:2], axis=(1, 2))    # (n, y, x, channel, kernel y, kernel x)
    return np.tensordot(places, kernels, axes=((4, 5, 3), (0, 1, 2)))


def save(ctx, inputs, output):
    """Save what the formula needs when the operator is called."""
    images, kernels, ctx.padding = inputs
    ctx.save_for_backward(images, kernels)


def gradients(ctx, gradient):
    """Return the gradients of images and kernels: convolutions too, so that they have gradients in turn."""
    images, kernels = ctx.saved_tensors
    height, width = kernels.shape[:2]
    assert height == width, "square kernels only"
    turned = swapaxes(flip(kernels, (0, 1)), 2, 3)
    of_images = convolve(gradient, turned, height - 1 - ctx.padding)
    # each channel as an image, whose channels are the images: what is summed over is n, y and x
    of_kernels = convolve(images.transpose(3, 1, 2, 0), gradient.transpose(1, 2, 0, 3), ctx.padding)
    return of_images, of_kernels.transpose(1, 2, 0, 3), None


def zeros(ctx, gradient):
    """Return zeros: a wrong formula, to show that the gradient matters."""
    return *(saved * 0.0 for saved in ctx.saved_tensors), None


# --- the network -------------------------------------------------------------------------------------------


class Network(NamedTuple):
    """3x3 kernels find strokes. 6x6 kernels, as large as what is left, find digits."""

    strokes: Tensor
    thresholds: Tensor
    digits: Tensor

    @classmethod
    def initial(cls, random: np.random.Generator) -> Network:
        """Return random kernels, of a scale that keeps the variance."""
        strokes = random.normal(0, np.sqrt(2 / 9), (3, 3, 1, CHANNELS))
        digits = random.normal(0, np.sqrt(1 / (36 * CHANNELS)), (6, 6, CHANNELS, CLASSES))
        return cls(*(Tensor(array, requires_grad=True) for array in (strokes, np.zeros(CHANNELS), digits)))

    def scores(self, images: np.ndarray) -> Tensor:
        """Return a score per class, for images of shape (n, 8, 8, 1)."""
        strokes = maximum(convolve(images, self.strokes) + self.thresholds, 0.0)
        return convolve(strokes, self.digits).reshape(len(images), CLASSES)


def cross_entropy(scores: Tensor, labels: np.ndarray) -> Tensor:
    """Compute the mean of -log(probability of the right class)."""
    scores = scores - scores.detach().max(axis=1, keepdims=True)
    of_labels = (scores * np.eye(CLASSES)[labels]).sum(axis=1)
    return (log(exp(scores).sum(axis=1)) - of_labels).mean()


def accuracy(network: Network, images: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of images that are classified correctly."""
    with no_grad():
        guesses = network.scores(images).argmax(axis=1)
    return float(np.mean(guesses.numpy() == labels))


# --- training ----------------------------------------------------------------------------------------------


class Digits(NamedTuple):
    """The images, with brightness from 0 to 1, and their labels. A fifth is kept for the test."""

    images: np.ndarray
    test_images: np.ndarray
    labels: np.ndarray
    test_labels: np.ndarray


def load(seed: int) -> Digits:
    """Load scikit-learn's digits: 1,797 images of 8x8 pixels."""
    data = load_digits()
    images = data.images[..., None] / data.images.max()
    return Digits(*train_test_split(images, data.target, test_size=0.2, stratify=data.target, random_state=seed))


def train(network: Network, data: Digits, random: np.random.Generator, options: argparse.Namespace) -> list[float]:
    """Descend by the gradient with momentum on small batches, in place, and return the loss of each batch."""
    losses = []
    velocities = [np.zeros(parameter.shape) for parameter in network]
    epochs = tqdm(range(options.epochs), "training", unit="epoch")
    for _ in epochs:
        order = random.permutation(len(data.images))
        for batch in np.array_split(order, len(order) // options.batch):
            loss = cross_entropy(network.scores(data.images[batch]), data.labels[batch])
            loss.backward()
            for parameter, velocity in zip(network, velocities, strict=True):
                velocity *= options.momentum
                velocity += parameter.grad.numpy()
                with no_grad():
                    ops.np.subtract_(parameter, options.rate * velocity)
                parameter.grad = None
            losses.append(loss.detach().item())
        epochs.set_postfix(loss=f"{np.mean(losses[-len(order) // options.batch:]):.4f}")
    return losses


def plot(losses: list[float], title: str, file: Path) -> None:
    """Plot the loss of each batch, and its running mean."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    window = max(1, len(losses) // 40)
    running = np.convolve(losses, np.full(window, 1 / window), "valid")
    axes.plot(losses, color="0.8", label="batch")
    axes.plot(np.arange(len(running)) + window - 1, running, color="tab:blue", label=f"mean of {window} batches")
    axes.set(title=title, xlabel="batch", ylabel="cross-entropy", yscale="log")
    axes.legend()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


# --- the command -------------------------------------------------------------------------------------------


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--zero-gradient", action="store_true", help="give the custom operator a gradient of zeros")
    parser.add_argument("--epochs", type=int, default=20, help="times to go through the images")
    parser.add_argument("--batch", type=int, default=32, help="images per step")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate")
    parser.add_argument("--momentum", type=float, default=0.9, help="momentum")
    parser.add_argument("--seed", type=int, default=0, help="of the split, the first parameters and the order")
    parser.add_argument("--plot", type=Path, default=Path("digits.png"), metavar="FILE", help="where the plot goes")
    return parser.parse_args()


def main() -> None:
    """Train, and say how it went."""
    options = parse()
    convolve.register_autograd(zeros if options.zero_gradient else gradients, setup_context=save)
    data = load(options.seed)
    random = np.random.default_rng(options.seed)
    network = Network.initial(random)

    before = accuracy(network, data.test_images, data.test_labels)
    start = time.perf_counter()
    losses = train(network, data, random, options)
    seconds = time.perf_counter() - start
    after = accuracy(network, data.test_images, data.test_labels)

    formula = "zeros" if options.zero_gradient else "right"
    plot(losses, f"Digits, gradient of the convolution: {formula}", options.plot)
    summary = {
        "gradient": f"of digits::convolve: {formula}",
        "images": f"{len(data.images)} to train, {len(data.test_images)} to test",
        "parameters": f"{sum(parameter.size for parameter in network):,}",
        "training": f"{seconds:.1f} s, {len(losses)} steps of {1e3 * seconds / len(losses):.2f} ms",
        "loss": f"{losses[0]:.3f} -> {np.mean(losses[-40:]):.3f}",
        "test accuracy": f"{before:.1%} -> {after:.1%}",
        "plot": options.plot,
    }
    print(*(f"{name:<14} {text}" for name, text in summary.items()), sep="\n")


if __name__ == "__main__":
    main()
