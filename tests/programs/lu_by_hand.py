"""Gaussian elimination with pivots, one column after the other. The factors are written in place."""

import numpy as np


def main(a):
    n = len(a)
    upper, lower, order = a.copy(), np.zeros_like(a), np.arange(n)
    for k in range(n):
        pivot = k + int(np.argmax(np.abs(upper[k:, k])))
        swap = np.arange(n)
        swap[[k, pivot]] = swap[[pivot, k]]
        upper, lower, order = upper[swap], lower[swap], order[swap]
        row = upper[k].copy()
        factors = upper[k + 1:, k].copy() / row[k]
        lower[k, k] = 1.0
        lower[k + 1:, k] = factors
        upper[k + 1:] -= factors[:, None] * row
    return lower, np.triu(upper), order


def example():
    return (np.random.default_rng(5).standard_normal((5, 5)),)
