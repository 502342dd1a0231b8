"""Position and velocity from noisy positions."""

import numpy as np


def main(measurements, noise, drift):
    transition = np.array([[1.0, 1.0], [0.0, 1.0]])
    observation = np.array([[1.0, 0.0]])
    state, covariance = np.zeros(2), np.eye(2) * 10.0
    states, likelihood = [], 0.0
    for z in measurements:
        state = transition @ state
        covariance = transition @ covariance @ transition.T + drift * np.eye(2)
        innovation = z - observation @ state
        variance = observation @ covariance @ observation.T + noise
        gain = np.linalg.solve(variance, observation @ covariance).T
        state = state + gain @ innovation
        covariance = (np.eye(2) - gain @ observation) @ covariance
        likelihood = likelihood - 0.5 * (innovation @ np.linalg.solve(variance, innovation)
                                         + np.linalg.slogdet(variance)[1])
        states.append(state)
    return np.stack(states), likelihood


def example():
    rng = np.random.default_rng(3)
    return np.arange(8) * 0.7 + rng.normal(0, 0.3, 8), np.array([[0.09]]), np.array(0.01)
