"""Registrations (operators, kernels, derivatives), the tables computed from them, and messages about both."""

from pydispatch.loading import only_public
from pydispatch.registry.registrations import Handle

__all__ = ["Handle"]
__dir__ = only_public(globals())
