"""Fourier transforms along one and several axes, cosine and sine transforms of each type and normalization."""

import numpy as np

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-12
VECTOR, MATRIX = between(-2, 2, 6), between(-2, 2, 3, 4)
COMPLEX = between(-2, 2, 6) * (1 + 0.5j)

for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    x = COMPLEX if name not in ("rfft", "ihfft") else VECTOR
    sample(f"fft.{name}", x, smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}", x.reshape(2, 3), 4, 0, "ortho", smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}2", x.reshape(2, 3), smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}n", x.reshape(2, 3), norm="forward", smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}n", x.reshape(2, 3), (4,), smooth=True, tolerance=ROUNDED)
for name in ("fftshift", "ifftshift"):
    sample(f"fft.{name}", MATRIX, smooth=True)
for name in ("dct", "idct", "dst", "idst"):
    for kind in (1, 2, 3, 4):
        sample(f"fft.{name}", VECTOR, kind, smooth=True, tolerance=ROUNDED)
        sample(f"fft.{name}", MATRIX, kind, 3, 0, "ortho", smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}", VECTOR, 2, 8, norm="forward", smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}", COMPLEX, smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}", VECTOR, 3, norm="ortho", orthogonalize=False, smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}", np.arange(6), tolerance=ROUNDED)
    sample(f"fft.{name}n", MATRIX, smooth=True, tolerance=ROUNDED)
    sample(f"fft.{name}n", MATRIX, 1, (4, 4), (0, 1), "ortho", smooth=True, tolerance=ROUNDED)
