"""Samples of a distribution by the Metropolis algorithm, from numbers drawn beforehand."""

import numpy as np


def log_density(x, scale):
    return -np.sum((x / scale) ** 2) / 2 + np.sum(np.cos(3 * x))


def main(start, scale, proposals, uniforms):
    x, current = start, log_density(start, scale)
    samples, accepted = [], 0
    for step, u in zip(proposals, uniforms, strict=True):
        candidate = x + step
        proposed = log_density(candidate, scale)
        if np.log(u) < proposed - current:
            x, current = candidate, proposed
            accepted += 1
        samples.append(x)
    return np.mean(np.stack(samples), axis=0), np.array(accepted)


def example():
    rng = np.random.default_rng(7)
    return np.zeros(2), np.array([1.0, 2.0]), rng.normal(0, 0.7, (25, 2)), rng.uniform(size=25)
