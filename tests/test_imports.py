"""Imports inside the package go one way: nobody imports what stands further right, and nothing goes in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pydispatch
from tests.together import together

ROOT = Path(pydispatch.__file__).parent
LAYERS = [
    {"_core"},
    {"keys", "tree", "exceptions", "memory", "_sites", "_loading", "missing_core", "deprecation", "_stubs"},
    {"schema"},
    {"_registry"},
    {"modes", "tensor", "ops", "subclasses", "plugins"},
    {"autograd"},
    {"library"},
    {"func", "operators"},
    {"higher_order"},
    {"tracing"},
    {"backends", "numpy", "compiling", "packs", "compat"},
    {"scipy"},
    {"testing", "debug", "cli", "__main__", "__init__"},
]
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


SOURCES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def tree_of(module: str) -> ast.Module:
    return ast.parse(SOURCES[module].read_text())


@cache
def imported_names(module: str, *, by_checkers: bool = False) -> set[str]:
    """Return the modules of the package that a module imports when it is run, without the name of the package.

    `by_checkers` adds those that type checkers alone import.
    """
    tree = tree_of(module)
    for_checkers = set() if by_checkers else {
        id(inner) for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in for_checkers or not (
                node.module == "pydispatch" or str(node.module).startswith("pydispatch.")):
            continue
        base = str(node.module).removeprefix("pydispatch").removeprefix(".")
        for alias in node.names:
            full = f"{base}.{alias.name}".removeprefix(".")
            known = full in SOURCES or full == "_core"
            found.add(full if known else base or "__init__")
    return found - {module}


@together("module", SOURCES)
def test_imports_go_one_way(module):
    rank = RANKS[module.partition(".")[0]]
    assert [name for name in imported_names(module) if RANKS[name.partition(".")[0]] > rank] == []


def test_there_is_no_circle():
    TopologicalSorter({module: imported_names(module) for module in SOURCES}).prepare()


def test_type_checkers_find_no_circle_in_tracing():
    modules = [module for module in SOURCES if module.startswith("tracing")]
    TopologicalSorter({module: imported_names(module, by_checkers=True) for module in modules}).prepare()


@together("module", SOURCES)
def test_no_import_inside_a_function(module):
    functions = [node for node in ast.walk(tree_of(module)) if isinstance(node, (ast.FunctionDef, ast.Lambda))]
    inside = [ast.unparse(node) for function in functions for node in ast.walk(function)
              if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert inside == []


def test_dtypes_that_other_packages_add_to_numpys_are_no_obstacle():
    program = """
import numpy as np
class Float8:
    dtype = np.dtype([("bits", "u1")])
np.sctypeDict["float8"] = Float8
import pydispatch
assert pydispatch.ops.np.zeros(2, dtype="float32").dtype == np.float32
"""
    subprocess.run([sys.executable, "-c", program], check=True)
