"""What type checkers see of the operators of each namespace: a stub per namespace, by `python -m pydispatch stubs`."""
