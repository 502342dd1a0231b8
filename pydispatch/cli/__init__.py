"""The command line, `python -m pydispatch`: demo, bench, ops, explain."""
