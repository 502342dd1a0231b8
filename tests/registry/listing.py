"""Lists of registered operators, for tests."""

from pydispatch._registry.registrations import definition_of, kernels_of, operators
from pydispatch.keys import parse_key


def dangling():
    """Return the operators that have kernels but no definition."""
    return [op for op in list(operators.values()) if definition_of(op) is None and kernels_of(op)]


def names_with_kernel(key=None):
    """Return the names of the operators with a kernel under exactly this key, or of all operators."""
    wanted = None if key is None else parse_key(key)
    return sorted(name for name, op in list(operators.items()) if wanted is None or wanted in kernels_of(op))
