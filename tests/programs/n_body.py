"""Planets that attract each other, moved by the leapfrog method."""

import numpy as np


def accelerations(positions, masses):
    apart = positions[np.newaxis, :, :] - positions[:, np.newaxis, :]
    squares = np.sum(apart ** 2, axis=-1) + 1e-2
    return np.einsum("ijk,ij,j->ik", apart, squares ** -1.5, masses)


def main(positions, velocities, masses, steps=20, dt=0.01):
    for _ in range(steps):
        velocities = velocities + 0.5 * dt * accelerations(positions, masses)
        positions = positions + dt * velocities
        velocities = velocities + 0.5 * dt * accelerations(positions, masses)
    kinetic = 0.5 * np.sum(masses[:, None] * velocities ** 2)
    i, j = np.triu_indices(len(masses), k=1)
    distances = np.linalg.norm(positions[i] - positions[j], axis=1)
    return positions, kinetic - np.sum(masses[i] * masses[j] / distances)


def example():
    rng = np.random.default_rng(0)
    return rng.standard_normal((4, 3)), 0.1 * rng.standard_normal((4, 3)), rng.uniform(0.5, 1.5, 4)
