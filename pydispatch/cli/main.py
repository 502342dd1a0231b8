"""The command line: parse the arguments and run a command."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence

import pydispatch
from pydispatch.cli import demo
from pydispatch.cli.backends import run_backends
from pydispatch.cli.bench import run_bench
from pydispatch.cli.console import console
from pydispatch.cli.doctor.printing import run_doctor
from pydispatch.cli.explain import run_explain
from pydispatch.cli.ops import run_ops
from pydispatch.cli.profile import run_profile
from pydispatch.cli.stubs import run_stubs
from pydispatch.cli.timing import on_one_core
from pydispatch.debug.profile import GROUPINGS, SORTS
from pydispatch.exceptions import DispatchError


def parse_command_line(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line: the command, its arguments and options."""
    parser = argparse.ArgumentParser(
        prog="python -m pydispatch", description="An operator dispatcher for NumPy."
    )
    version = f"{pydispatch.__distribution__} {pydispatch.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("demo", help="an operator, from its first kernel to its cost")
    command.set_defaults(run=lambda out, _: demo.main(out), modules=[])

    command = commands.add_parser("bench", help="measure dispatch, gradients and compiled functions")
    command.add_argument(
        "--json", metavar="FILE", help="write the results to FILE as JSON, or print JSON instead of tables if FILE is -"
    )
    command.add_argument(
        "--rows", metavar="PATTERN", default="", help="only tables whose title contains PATTERN, where * is a wildcard"
    )
    command.add_argument("--quick", action="store_true", help="measure only a few rounds, for a first impression")
    command.set_defaults(run=run_bench, modules=[])

    command = commands.add_parser("ops", help="list operators")
    command.add_argument("pattern", nargs="?", default="", help="a part of the name, where * is a wildcard")
    command.set_defaults(run=run_ops)
    add_import_option(command)

    command = commands.add_parser("backends", help="show which of NumPy's operators backends have")
    command.add_argument("name", nargs="?", default="", metavar="NAME", help="list every operator of this backend")
    command.set_defaults(run=run_backends)
    add_import_option(command)

    command = commands.add_parser("stubs", help="write stubs of a namespace's operators for type checkers")
    command.add_argument("names", nargs="*", metavar="NAME", default=[], help="a namespace, or an operator of it")
    command.add_argument("--pack", metavar="NAME", dest="packs", action="append", default=[],
                         help="only this namespace (default: those of all installed packs)")
    command.add_argument("--folder", metavar="DIR", default=".", help="where to write NAME.pyi (default: .)")
    command.set_defaults(run=run_stubs)
    add_import_option(command)

    command = commands.add_parser("doctor", help="examine and test the installation, with remedies")
    command.set_defaults(run=run_doctor, modules=[])

    command = commands.add_parser(
        "profile", help="run a script and show which operators it calls and how long they take"
    )
    command.add_argument("script", metavar="SCRIPT", help="the file of a Python program, run as python would run it")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help="arguments for the script")
    command.add_argument("--sort", choices=SORTS, default="own", help="what the table is sorted by (default: own)")
    command.add_argument(
        "--by", choices=GROUPINGS, default="operator", help="one row per operator, or per operator and line or shapes"
    )
    command.add_argument("--limit", type=int, metavar="N", help="only the first N rows")
    command.add_argument("--trace", metavar="FILE", help="write a trace for Perfetto (ui.perfetto.dev) to FILE")
    command.add_argument("--flamegraph", metavar="FILE", help="write a flame graph, an SVG, to FILE")
    command.set_defaults(run=run_profile, modules=[])

    command = commands.add_parser(
        "explain", help="show which kernel a call would run and why, or without arguments, the kernel of each key",
        epilog="example: python -m pydispatch explain np.add Tensor:float64[2,3] 1.5",
    )
    command.add_argument("operator", help="namespace.operator[.overload], numpy.FUNCTION, or MODULE.compiled")
    command.add_argument(
        "values", nargs="*", metavar="ARG", default=[],      # without a default, argparse requires it
        help="ARG or name=ARG: a Python literal, or float64[2,3], Tensor:float64[3], meta:float64[3]",
    )
    command.set_defaults(run=run_explain)
    add_import_option(command)
    return parser.parse_args(words)


def add_import_option(command: argparse.ArgumentParser) -> None:
    """Add --import, for operators that other modules define."""
    command.add_argument(
        "--import", metavar="MODULE", dest="modules", action="append", default=[],
        help="import this module first, to register its operators and kernels",
    )


def main(words: Sequence[str]) -> int:
    """Run a command, and return the exit status."""
    arguments = parse_command_line(words)
    try:
        for module in arguments.modules:
            importlib.import_module(module)
        arguments.run(console(), arguments)
    except (DispatchError, ModuleNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def run_process() -> int:
    """Run `python -m pydispatch` with its command-line arguments, and return the exit status."""
    if hasattr(signal, "SIGPIPE"):
        # `python -m pydispatch ops | head` must not end in an error
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if sys.argv[1:2] == ["bench"]:
        on_one_core()
    return main(sys.argv[1:])
