"""Declarations of the sample calls of a family, and their arrays."""

import numpy as np

from tests.numpy.samples.sample import Samples

SAMPLES = Samples()
sample = SAMPLES.add


def between(low: float, high: float, *shape: int, seed: int = 0) -> np.ndarray:
    """Return different numbers in an open interval, evenly spread, in random order."""
    n = int(np.prod(shape))
    spread = np.linspace(low, high, 2 * n + 1)[1::2]
    return np.random.default_rng([seed, *shape]).permutation(spread).reshape(shape)
