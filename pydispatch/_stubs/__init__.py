"""Stubs of the operators for type checkers, one per namespace, written by `python -m pydispatch stubs`."""
