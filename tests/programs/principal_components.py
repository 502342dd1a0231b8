"""Principal components by power iteration with deflation."""

import numpy as np


def main(samples, start, components=2, iterations=40):
    centered = samples - samples.mean(axis=0)
    covariance = centered.T @ centered / (len(samples) - 1)
    found, variances = [], []
    for _ in range(components):
        direction = start / np.linalg.norm(start)
        for _ in range(iterations):
            direction = covariance @ direction
            direction = direction / np.linalg.norm(direction)
        variance = direction @ covariance @ direction
        covariance = covariance - variance * np.outer(direction, direction)
        found.append(direction)
        variances.append(variance)
    return np.stack(found), np.stack(variances)


def example():
    rng = np.random.default_rng(10)
    return rng.standard_normal((20, 4)) * np.array([3.0, 1.5, 0.5, 0.2]), np.ones(4)
