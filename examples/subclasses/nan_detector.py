"""Stop at the first operator that makes a NaN or an infinity of finite numbers.

A mode is off inside of its own handler, so it can call operators to look at what it got. Results that are not finite
because an argument was not are let through: the culprit was earlier.
"""

import numpy as np

from pydispatch import DispatchMode, Tensor, ops
from pydispatch.tree import tree_leaves

ARRAYS = (Tensor, np.ndarray, np.generic)
UNSET = (ops.np.empty.default, ops.np.empty_like.default)       # their results hold anything


class NanDetector(DispatchMode):
    """Raises FloatingPointError where a NaN or an infinity appears, also on the way back."""

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        with np.errstate(all="ignore"):
            result = func(*args, **kwargs)
        if not is_finite(result) and is_finite((args, kwargs)) and func not in UNSET:
            arguments = ", ".join(map(repr, args))
            raise FloatingPointError(f"{func.name}({arguments}) gave {result!r}")
        return result


def is_finite(value):
    """Return whether all numbers in all arrays of a container are finite."""
    return all(
        bool(ops.np.isfinite(leaf.detach() if isinstance(leaf, Tensor) else leaf).all())
        for leaf in tree_leaves(value) if isinstance(leaf, ARRAYS) and leaf.dtype.kind in "fc"
    )


def softmax(x):
    """Compute a softmax as it should not be written."""
    exponentials = ops.np.exp(x)
    return exponentials / exponentials.sum()


def main():
    """Show an overflow on the way forth, and a division by zero on the way back."""
    for name, function, values in [
        ("softmax", softmax, [10.0, 1000.0]),
        ("length", lambda x: ops.np.sqrt(ops.np.square(x).sum()), [0.0, 0.0]),
    ]:
        x = Tensor(np.array(values), requires_grad=True)
        try:
            with NanDetector():
                result = function(x)
                print(f"{name} is {result}")
                result.sum().backward()
        except FloatingPointError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main()
