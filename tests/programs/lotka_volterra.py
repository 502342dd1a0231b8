"""Foxes and rabbits by the classical Runge-Kutta method."""

import numpy as np


def slope(state, rates):
    rabbits, foxes = state[0], state[1]
    return np.stack([rates[0] * rabbits - rates[1] * rabbits * foxes, rates[3] * rabbits * foxes - rates[2] * foxes])


def main(state, rates, steps=40, dt=0.05):
    trajectory = [state]
    for _ in range(steps):
        k1 = slope(state, rates)
        k2 = slope(state + dt / 2 * k1, rates)
        k3 = slope(state + dt / 2 * k2, rates)
        k4 = slope(state + dt * k3, rates)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        trajectory.append(state)
    return np.stack(trajectory)


def example():
    return np.array([10.0, 5.0]), np.array([1.1, 0.4, 0.4, 0.1])
