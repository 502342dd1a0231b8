"""Samples of `numpy.fft`."""

import numpy as np

from tests.numpy.samples.sample import grid, sample

CLOSE = 1e-12

for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    dtype = float if name in ("rfft", "ihfft") else complex
    for n in (4, 5):
        sample(f"fft.{name}", grid(n, dtype=dtype), smooth=True, tolerance=CLOSE)
        for length in (3, 6, 7):
            sample(f"fft.{name}", grid(n, dtype=dtype), length, smooth=True, tolerance=CLOSE)
        for norm in ("ortho", "forward", "backward"):
            sample(f"fft.{name}", grid(n, dtype=dtype), norm=norm, smooth=True, tolerance=CLOSE)
    sample(f"fft.{name}", grid(3, 4, dtype=dtype), axis=0, smooth=True, tolerance=CLOSE)
    sample(f"fft.{name}", grid(3, 4), smooth=True, tolerance=CLOSE)
    sample(f"fft.{name}", grid(4, dtype=int), tolerance=CLOSE)
    sample(f"fft.{name}", grid(4, dtype=np.float32), tolerance=1e-6)
    sample(f"fft.{name}", [1.0, 2.0, 3.0], tolerance=CLOSE)
for name in ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"):
    dtype = float if name.startswith("r") else complex
    sample(f"fft.{name}", grid(3, 4, dtype=dtype), smooth=True, tolerance=CLOSE)
    sample(f"fft.{name}", grid(2, 3, 2, dtype=dtype), norm="ortho", smooth=True, tolerance=CLOSE)
    sample(f"fft.{name}", grid(2, 3, 2, dtype=dtype), (4, 2), (0, 2), smooth=True, tolerance=CLOSE)
    sample(f"fft.{name}", grid(2, 3, dtype=dtype), (-1, 4), (0, 1), smooth=True, tolerance=CLOSE)
for name in ("fftshift", "ifftshift"):
    sample(f"fft.{name}", grid(3, 4), smooth=True)
    sample(f"fft.{name}", grid(3, 4), axes=1, smooth=True)
    sample(f"fft.{name}", grid(5, dtype=int))
for name in ("fftfreq", "rfftfreq"):
    sample(f"fft.{name}", 5)
    sample(f"fft.{name}", 6, 0.5)
    sample(f"fft.{name}", 6, d=np.array(0.5), smooth=True, tolerance=CLOSE)
