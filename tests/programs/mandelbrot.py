"""The number of steps that points of the complex plane take to leave the disc of radius 2."""

import numpy as np


def main(real, imaginary, limit=20):
    c = real[None, :] + 1j * imaginary[:, None]
    z = np.zeros_like(c)
    steps = np.zeros(c.shape, dtype=int)
    inside = np.ones(c.shape, dtype=bool)
    for _ in range(limit):
        z = np.where(inside, z * z + c, z)
        inside = inside & (np.abs(z) <= 2)
        steps = steps + inside
    return steps, np.mean(inside)


def example():
    return np.linspace(-2, 0.5, 11), np.linspace(-1.1, 1.1, 9)
