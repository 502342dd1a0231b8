"""Transforms: functions of functions of arrays, each a level on the one stack."""

from pydispatch.func.batching import vmap
from pydispatch.func.concrete import concrete_value
from pydispatch.func.forward import jvp
from pydispatch.func.functionalization import functionalize
from pydispatch.func.jacobians import hessian, jacfwd, jacrev
from pydispatch.func.linearization import linearize
from pydispatch.func.reverse import grad, value_and_grad, vjp
from pydispatch.func.transform import Transform

__all__ = [
    "Transform", "concrete_value", "functionalize", "grad", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "value_and_grad", "vjp", "vmap",
]
