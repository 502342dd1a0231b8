"""JAX: its arrays, and the tracers that stand for them under its transforms, with the functions of `jax.numpy`."""

from types import SimpleNamespace

import jax

from pydispatch.keys import register_array_type
from pydispatch.registry.backends import register_backend


class JaxFunctions(SimpleNamespace):
    """The functions of `jax.numpy`, but for those here that take NumPy's arguments."""

    __name__ = "jax.numpy"

    def __getattr__(self, name):
        return getattr(jax.numpy, name)

    def take(self, a, indices, axis=None):
        """What NumPy refuses, an index out of bounds, JAX fills with nan."""
        return jax.numpy.take(a, jax.numpy.asarray(indices), axis)

    def setitem(self, x, key, value):
        """A changed array."""
        return jax.numpy.asarray(x).at[key].set(value)

    def index_put(self, x, key, values, accumulate=False):
        """A changed array."""
        at = jax.numpy.asarray(x).at[key]
        return at.add(values) if accumulate else at.set(values)

    def repeat(self, a, repeats, axis=None):
        """Numbers in a tuple are an array for JAX."""
        return jax.numpy.repeat(a, jax.numpy.asarray(repeats), axis)

    def clip(self, a, a_min=None, a_max=None, min=None, max=None):
        """NumPy has two names for each bound."""
        return jax.numpy.clip(a, a_min if min is None else min, a_max if max is None else max)

    def searchsorted(self, a, v, side="left"):
        """Positions are of NumPy's dtype, where JAX has it."""
        return jax.numpy.searchsorted(a, v, side=side).astype(int)

    def einsum(self, subscripts, x1, x2=None, others=None, optimize=False):
        """JAX finds its own order of products."""
        operands = [each for each in (x1, x2, *(others or ())) if each is not None]
        return jax.numpy.einsum(subscripts, *operands)


register_backend("JAX", jax.Array, namespace=JaxFunctions())
register_array_type(jax.core.Tracer, "JAX")
