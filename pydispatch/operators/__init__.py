"""The operator library: the pack of the namespace `np`, one declaration per operator, by category."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._loading import only_public
from pydispatch._registry.registrations import operators
from pydispatch.operators import (
    calculus,
    casting,
    creation,
    indexing,
    linalg,
    pointwise,
    products,
    random,
    reductions,
    searching,
    shapes,
    sorting,
    special,
)
from pydispatch.operators.declare import DECLARATIONS, Variants, install
from pydispatch.ops import ops

__all__ = ["DECLARATIONS", "VARIANTS", "Variants", "install"]
__dir__ = only_public(globals())

CATEGORIES = (
    pointwise, special, reductions, sorting, searching, linalg, products, calculus, shapes, indexing, creation, casting,
    random,
)
"""The modules whose import declares the operators."""
VARIANTS = {name: declaration.operation.variants for name, declaration in DECLARATIONS.items()}
"""The variants of each operation, by each name in DECLARATIONS."""


LANGUAGE = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "left_shift", "rshift": "right_shift", "matmul": "matmul",
    "square": "square", "sqrt": "sqrt", "reciprocal": "reciprocal",
}
"""Operators of the language with an in-place form, and special powers, with the operators of the library they call."""
PLAIN = {
    "neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert",
    "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal", "gt": "greater", "ge": "greater_equal",
    "getitem": "getitem", "index": "index", "setitem": "setitem_", "index_put": "index_put_",
}


def wire_language() -> None:
    """Connect `+`, `==`, `[]` and similar special methods of Tensor to the operators."""
    names = PLAIN | LANGUAGE | {f"i{method}": f"{name}_" for method, name in LANGUAGE.items()}
    _core.set_special_methods(**{method: operators[f"np::{name}"] for method, name in names.items()})


def wire_universal_functions() -> None:
    """Make NumPy universal functions call operators when an argument is a Tensor."""
    members = vars(np)      # has all of them. Asking NumPy for a name that it does not have takes longer
    universal = {name: function for name in DECLARATIONS if isinstance(function := members.get(name), np.ufunc)}
    _core.set_universal_functions({np.divmod: divide_with_remainder} | {
        function: operators[f"np::{name}"] for name, function in universal.items()})


def divide_with_remainder(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Return the quotient and the remainder of Tensors, as `numpy.divmod` does."""
    return ops.np.floor_divide(x1, x2), ops.np.remainder(x1, x2)


install()
wire_language()
wire_universal_functions()
