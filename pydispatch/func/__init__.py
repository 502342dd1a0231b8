"""Function transforms, each of which runs as an interpreter on the stack."""

from pydispatch._loading import only_public
from pydispatch.func.concrete import concrete_value, is_traced
from pydispatch.func.functionalize import functionalize
from pydispatch.func.grad import grad, value_and_grad, vjp
from pydispatch.func.jacobians import hessian, jacfwd, jacrev
from pydispatch.func.jvp import jvp
from pydispatch.func.linearize import linearize
from pydispatch.func.transform import Transform
from pydispatch.func.vmap import vmap

__all__ = [
    "Transform", "concrete_value", "functionalize", "grad", "hessian", "is_traced", "jacfwd", "jacrev", "jvp",
    "linearize", "value_and_grad", "vjp", "vmap",
]
__dir__ = only_public(globals())
