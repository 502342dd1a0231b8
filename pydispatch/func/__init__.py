"""Transforms: functions of functions of arrays, each a level on the one stack."""

from pydispatch.func.forward import jvp
from pydispatch.func.reverse import grad, value_and_grad, vjp

__all__ = ["grad", "jvp", "value_and_grad", "vjp"]
