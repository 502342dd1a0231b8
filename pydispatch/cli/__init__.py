"""The command line, `python -m pydispatch`: demo, bench, ops, backends, explain, profile, stubs, doctor."""
