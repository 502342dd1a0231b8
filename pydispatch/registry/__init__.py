"""Registrations (operators, kernels, derivatives), the tables computed from them, and messages about both."""

from pydispatch.registry.registrations import Handle

__all__ = ["Handle"]
