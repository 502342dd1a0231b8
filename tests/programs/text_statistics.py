"""Letters of a text, as numbers: how often each occurs, which follow which, and the entropy."""

import numpy as np


def main(letters, smoothing, n=5):
    counts = np.bincount(letters, minlength=n)
    pairs = np.bincount(letters[:-1] * n + letters[1:], minlength=n * n).reshape((n, n))
    shares = (counts + smoothing) / np.sum(counts + smoothing)
    entropy = -np.sum(shares * np.log2(shares))
    likely = np.argmax(pairs, axis=1)
    ranks = np.argsort(-counts, stable=True)
    return counts, pairs, entropy, likely, np.unique(letters), ranks


def example():
    return np.array([0, 1, 0, 2, 2, 1, 0, 4, 1, 1, 0, 2]), np.array(0.5)
