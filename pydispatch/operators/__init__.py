"""The operator library: namespace `np`, one entry per operator, by category."""

from __future__ import annotations

from pydispatch.operators import casting, creation, indexing, linalg, pointwise, reductions, shapes
from pydispatch.operators.declare import DECLARATIONS, NAMESPACE, VARIANTS, Variants
from pydispatch.registry import register_library

__all__ = ["DECLARATIONS", "VARIANTS", "Variants", "install"]

CATEGORIES = (pointwise, reductions, linalg, shapes, indexing, creation, casting)
"""The modules whose import declares the operators."""


def install() -> None:
    """Register every declared operator, once."""
    register_library(NAMESPACE, DECLARATIONS.values())


install()
