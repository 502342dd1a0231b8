"""Integrals of samples."""

from tests.scipy.samples.sample import between, sample

ROUNDED = 1e-12
Y, X = between(-2, 2, 5), [0.0, 0.4, 1.1, 1.5, 2.3]

for name in ("cumulative_simpson", "cumulative_trapezoid", "simpson", "trapezoid"):
    sample(f"integrate.{name}", Y, x=X, smooth=True, has_shape=False, tolerance=ROUNDED)
    sample(f"integrate.{name}", between(-2, 2, 5, 2), dx=0.5, axis=0, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("integrate.romb", Y, 0.5, smooth=True, has_shape=False, tolerance=ROUNDED)
