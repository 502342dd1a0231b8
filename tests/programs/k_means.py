"""Clusters by Lloyd's algorithm."""

import numpy as np


def main(points, centers, iterations=5):
    for _ in range(iterations):
        squares = np.sum((points[:, None, :] - centers[None, :, :]) ** 2, axis=-1)
        labels = np.argmin(squares, axis=1)
        members = labels[:, None] == np.arange(len(centers))
        counts = np.maximum(np.sum(members, axis=0), 1)
        centers = (members.T.astype(float) @ points) / counts[:, None]
    inertia = np.sum(np.min(np.sum((points[:, None, :] - centers[None, :, :]) ** 2, axis=-1), axis=1))
    return centers, labels, inertia


def example():
    rng = np.random.default_rng(2)
    points = np.concatenate([rng.normal(center, 0.3, (6, 2)) for center in (-2.0, 0.0, 2.0)])
    return points, points[[0, 7, 14]]
