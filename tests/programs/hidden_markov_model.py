"""The forward pass of a hidden Markov model, in logarithms."""

import numpy as np


def log_sum_exp(x, axis):
    largest = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(largest, axis) + np.log(np.sum(np.exp(x - largest), axis=axis))


def main(start, transition, emission, observed):
    log_transition = np.log(transition / np.sum(transition, axis=1, keepdims=True))
    log_emission = np.log(emission / np.sum(emission, axis=1, keepdims=True))
    alpha = np.log(start / np.sum(start)) + log_emission[:, observed[0]]
    for symbol in observed[1:]:
        alpha = log_sum_exp(alpha[:, None] + log_transition, 0) + log_emission[:, symbol]
    total = log_sum_exp(alpha, 0)
    return total, np.exp(alpha - total)


def example():
    rng = np.random.default_rng(9)
    return rng.random(3) + 0.1, rng.random((3, 3)) + 0.1, rng.random((3, 4)) + 0.1, np.array([0, 3, 1, 1, 2, 0])
