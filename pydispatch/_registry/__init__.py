"""Registrations of operators, kernels and derivatives, dispatch tables computed from them, and error messages."""
