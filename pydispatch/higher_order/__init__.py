"""Operators that take functions: control flow that modes, transforms and traces see as one call each.

Rules for them are registered as for any HigherOrderOperator: `cond.py_impl(MyMode)`.
"""

from pydispatch._core import Grad, Jvp, Vmap
from pydispatch._loading import only_public
from pydispatch.func.functionalize import Functionalize
from pydispatch.higher_order.associative_scan import ASSOCIATIVE_SCAN, associative_scan
from pydispatch.higher_order.cond import COND, cond
from pydispatch.higher_order.map import MAP, map
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.scan import SCAN, scan
from pydispatch.higher_order.while_loop import WHILE, while_loop

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
__dir__ = only_public(globals())

for _function, _operator in (
    (associative_scan, ASSOCIATIVE_SCAN), (cond, COND), (map, MAP), (scan, SCAN), (while_loop, WHILE),
):
    _operator.trust_rules()
    _function.__dict__.update(operator=_operator, py_impl=_operator.py_impl)
