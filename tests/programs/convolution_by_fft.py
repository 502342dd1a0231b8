"""A signal smoothed by multiplying spectra."""

import numpy as np


def main(signal, kernel):
    n = len(signal) + len(kernel) - 1
    smooth = np.fft.irfft(np.fft.rfft(signal, n) * np.fft.rfft(kernel, n), n)
    spectrum = np.abs(np.fft.fft(smooth)) ** 2
    return smooth, spectrum, np.allclose(smooth, np.convolve(signal, kernel))


def example():
    rng = np.random.default_rng(6)
    return rng.standard_normal(16), np.hanning(5) / 2
