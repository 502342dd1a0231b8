"""The cost of importing."""

import subprocess
import sys


def test_import_needs_nothing_slow():
    code = (
        "import sys, numpy; before = set(sys.modules); import pydispatch.schema; "
        "print(*(m for m in set(sys.modules) - before if not m.startswith('pydispatch')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"dataclasses", "difflib", "numpy.random", "numpy.typing"} & set(found)
