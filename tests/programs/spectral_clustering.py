"""Two clusters by the second eigenvector of a graph's Laplacian."""

import numpy as np


def main(points, width):
    squares = np.sum((points[:, None] - points[None, :]) ** 2, axis=-1)
    affinity = np.exp(-squares / (2 * width ** 2)) * (1 - np.eye(len(points)))
    degrees = np.sum(affinity, axis=1)
    scale = 1 / np.sqrt(degrees)
    laplacian = np.eye(len(points)) - scale[:, None] * affinity * scale[None, :]
    values, vectors = np.linalg.eigh(laplacian)
    side = vectors[:, 1] * scale
    return values, side > np.median(side), values[2] - values[1]


def example():
    rng = np.random.default_rng(12)
    return np.concatenate([rng.normal(-1.5, 0.4, (5, 2)), rng.normal(1.5, 0.4, (6, 2))]), np.array(1.0)
