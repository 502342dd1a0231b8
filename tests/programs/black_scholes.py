"""Prices of European options, with the normal distribution by Abramowitz and Stegun's polynomial."""

import numpy as np


def normal_cdf(x):
    t = 1 / (1 + 0.2316419 * np.abs(x))
    powers = t[..., None] ** np.arange(1, 6)
    polynomial = powers @ np.array([0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429])
    tail = np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * polynomial
    return np.where(x > 0, 1 - tail, tail)


def main(spot, strike, maturity, rate, volatility):
    spread = volatility * np.sqrt(maturity)
    d1 = (np.log(spot / strike) + (rate + volatility ** 2 / 2) * maturity) / spread
    d2 = d1 - spread
    discounted = strike * np.exp(-rate * maturity)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    return call, call - spot + discounted


def example():
    return (np.array([90.0, 100.0, 117.0]), np.array([100.0, 97.0, 100.0]), np.array([0.5, 1.0, 2.0]),
            np.array(0.03), np.array([0.2, 0.3, 0.25]))
