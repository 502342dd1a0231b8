"""Ranks of pages that link to each other, by power iteration."""

import numpy as np


def main(weights, damping, iterations=30):
    n = len(weights)
    outgoing = np.sum(weights, axis=1, keepdims=True)
    transition = np.where(outgoing > 0, weights / np.where(outgoing > 0, outgoing, 1.0), 1.0 / n)
    rank = np.full(n, 1.0 / n)
    for _ in range(iterations):
        rank = (1 - damping) / n + damping * rank @ transition
    return rank, np.argsort(rank)[::-1]


def example():
    links = np.array([[0, 1, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [1, 3, 0, 0]], float)
    return links, np.array(0.85)
