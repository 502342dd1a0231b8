"""A rod that cools, by finite differences. Every step is written into a new array."""

import numpy as np


def main(temperature, conductivity, steps=50, dt=0.1):
    for _ in range(steps):
        after = np.zeros_like(temperature)
        flow = conductivity * np.diff(temperature)
        after[1:-1] = temperature[1:-1] + dt * (flow[1:] - flow[:-1])
        after[0] = temperature[0]
        after[-1] = temperature[-1]
        temperature = after
    return temperature, np.trapezoid(temperature)


def example():
    x = np.linspace(0, 1, 12)
    return np.sin(np.pi * x) + x, np.linspace(0.5, 1.5, 11)
