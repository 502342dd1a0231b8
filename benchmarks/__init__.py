"""Measure what pydispatch costs, beside NumPy and other libraries: docs/performance.md."""
