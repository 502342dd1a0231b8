"""Measure every case: `python -m benchmarks`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.printing import run_bench
from pydispatch.cli.console import console
from pydispatch.cli.timing import on_one_core
from pydispatch.exceptions import DispatchError


def main(words: Sequence[str]) -> int:
    """Run the command, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="write JSON to FILE too; - prints it instead of tables")
    parser.add_argument(
        "--rows", metavar="PATTERN", default="", help="only rows whose group/name contains this; * is a wildcard"
    )
    parser.add_argument("--quick", action="store_true", help="measure a few rounds only, for a first impression")
    try:
        run_bench(console(), parser.parse_args(words))
    except DispatchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    on_one_core()
    sys.exit(main(sys.argv[1:]))
