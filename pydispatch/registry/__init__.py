"""What is registered: operators, kernels, derivatives; the tables that are made of them, and what is said of them."""

from pydispatch.registry.registrations import Handle

__all__ = ["Handle"]
