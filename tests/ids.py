"""Ids of parametrized tests."""

import re


def without_address(value):
    """Return a value as the id of a test, the same one in every process."""
    return getattr(value, "__name__", None) or re.sub(r" at 0x[0-9a-f]+", "", str(value))
