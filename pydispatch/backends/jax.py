"""JAX: its arrays, and the tracers that replace them under its transforms, with the functions of `jax.numpy`."""

# tests: tests/backends/test_array_api.py
from types import SimpleNamespace

import jax

from pydispatch._registry.backends import register_backend
from pydispatch.keys import register_array_type


class JaxFunctions(SimpleNamespace):
    """The functions of `jax.numpy`, except those here, which take NumPy's arguments."""

    __name__ = "jax.numpy"

    def __getattr__(self, name):
        return getattr(jax.numpy, name)

    def take(self, a, indices, axis=None):
        """Take elements along an axis. For an index out of bounds, JAX fills in nan where NumPy raises."""
        return jax.numpy.take(a, jax.numpy.asarray(indices), axis)

    def setitem(self, x, key, value):
        """Return a copy of the array with assigned elements."""
        return jax.numpy.asarray(x).at[key].set(value)

    def index_put(self, x, key, values, accumulate=False):
        """Return a copy of the array with assigned or added elements."""
        at = jax.numpy.asarray(x).at[key]
        return at.add(values) if accumulate else at.set(values)

    def repeat(self, a, repeats, axis=None):
        """Repeat elements. A tuple of repeats becomes an array, because JAX does not accept a tuple."""
        return jax.numpy.repeat(a, jax.numpy.asarray(repeats), axis)

    def clip(self, a, a_min=None, a_max=None, min=None, max=None):
        """Clip an array. NumPy has two names for each bound."""
        return jax.numpy.clip(a, a_min if min is None else min, a_max if max is None else max)

    def searchsorted(self, a, v, side="left"):
        """Find positions in a sorted array, in NumPy's dtype for positions if JAX has it."""
        return jax.numpy.searchsorted(a, v, side=side).astype(int)

    def einsum(self, subscripts, x1, x2=None, others=None, optimize=False):
        """Sum products over subscripts. `optimize` is ignored, because JAX finds the order of products itself."""
        operands = [each for each in (x1, x2, *(others or ())) if each is not None]
        return jax.numpy.einsum(subscripts, *operands)


register_backend("JAX", jax.Array, namespace=JaxFunctions())
register_array_type(jax.core.Tracer, "JAX")
