"""Operators that take functions: control flow that modes, transforms and traces see as one call each."""

from pydispatch._core import Grad, Jvp, Vmap
from pydispatch.func.functionalization import Functionalize
from pydispatch.higher_order.associative_scan import associative_scan
from pydispatch.higher_order.cond import cond
from pydispatch.higher_order.map import map
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.scan import scan
from pydispatch.higher_order.while_loop import while_loop

__all__ = [
    "Functionalize",
    "Grad",
    "HigherOrderOperator",
    "Jvp",
    "Vmap",
    "associative_scan",
    "cond",
    "map",
    "scan",
    "while_loop",
]
