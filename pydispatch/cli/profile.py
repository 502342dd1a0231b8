"""`python -m pydispatch profile SCRIPT`: the operators that a program calls, and their times."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from pydispatch.cli.console import Plain, Rich
from pydispatch.debug import profile
from pydispatch.exceptions import DispatchError


def run_profile(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """Run a script like `python SCRIPT ARG ...`, then print the table, even if the script raises or exits."""
    if not os.path.isfile(arguments.script):
        raise DispatchError(f"{arguments.script!r} is not a file\nwrite the path of a Python program")
    sys.argv = [arguments.script, *arguments.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(arguments.script))
    recorded = profile()
    try:
        with recorded:
            runpy.run_path(arguments.script, run_name="__main__")
    finally:
        out.line(recorded.table(arguments.sort, arguments.by, arguments.limit))
        if arguments.trace:
            recorded.to_chrome_trace(arguments.trace)
        if arguments.flamegraph:
            recorded.flamegraph(arguments.flamegraph)
