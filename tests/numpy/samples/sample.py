"""One sample call, and how an area declares them."""

from typing import Any, NamedTuple

import numpy as np

from pydispatch.tree import tree_leaves


class Sample(NamedTuple):
    """A call with NumPy arrays, lists and numbers.

    `smooth`: its result has derivatives at these arguments, with respect to every floating-point and complex array.
    `batches`: `vmap` takes it over a batch of its first array. `has_shape`: the shape of its result does not depend on
    values, so that it runs on Meta and in a trace. `tolerance` is relative and absolute, for results that are computed
    in another order than the library's.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    smooth: bool
    batches: bool
    has_shape: bool
    tolerance: float

    def __repr__(self) -> str:
        shown = [*map(show, self.args), *[f"{key}={show(value)}" for key, value in self.kwargs.items()]]
        return f"{self.name}({', '.join(shown)})"


def show(value: Any) -> str:
    """Return an argument in few words."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(show, value))}]"
    return repr(value) if len(repr(value)) < 20 else type(value).__name__


class Samples(dict[str, list[Sample]]):
    """Sample calls by the function's name in its library: "sum", "linalg.solve"."""

    def add(self, name: str, *args: Any, smooth: bool = False, batches: bool = True, has_shape: bool = True,
            tolerance: float = 0.0, **kwargs: Any) -> None:
        """Declare a sample call. Its arrays become read-only: tests and other samples share them."""
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, np.ndarray):
                leaf.flags.writeable = False
        self.setdefault(name, []).append(Sample(name, args, kwargs, smooth, batches, has_shape, tolerance))


SAMPLES = Samples()
sample = SAMPLES.add


def grid(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Return different numbers between -2 and 2, far from corners of functions, ints from -9 to 9, or truth values."""
    generator = np.random.default_rng([seed, *shape])
    n = int(np.prod(shape))
    values = generator.permutation(np.linspace(-2, 2, 2 * n + 1)[1::2]) + 0.01
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return (values > 0).reshape(shape)
    if dtype.kind in "iu":
        return (values * 4.5).astype(dtype).reshape(shape)
    if dtype.kind == "c":
        return (values + 1j * generator.permutation(values)).astype(dtype).reshape(shape)
    return values.astype(dtype).reshape(shape)
