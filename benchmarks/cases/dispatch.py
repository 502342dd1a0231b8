"""The cost of a call of an operator, over its kernel and against other dispatchers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.cases.kinds import Added, Ratio, import_or_note, matches
from benchmarks.cases.peers import NAMESPACE, PEERS, kernel
from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.library import Library
from pydispatch.ops import ops

FLOOR = "Operators over a C function that returns its second argument"
FLOOR_ROWS = (
    ("two raw arrays", 2.5, "op(x, y)", "kernel(x, y)"),
    ("two Tensors", 3.5, "op(X, Y)", "kernel(x, y)"),
    ("both by keyword", 2.0, "op(first=x, second=y)", "op(x, y)"),
    ("one by keyword", 2.0, "op(x, second=y)", "op(x, y)"),
    ("one of 4 by position", 1.5, "four(x, 5)", "four(x)"),
    ("one of 4 by keyword", 1.5, "four(x, c=5)", "four(x)"),
    ("one of 4 keyword-only", 1.5, "named(x, c=5)", "named(x)"),
)
ADD = "np.add on 4-element arrays"
ADD_ROWS = (
    ("raw arrays", 1.15, "op(x, y)", "add(x, y)"),
    ("Tensors", 1.2, "op(X, Y)", "add(x, y)"),
    ("Tensors, as X + Y", 1.2, "X + Y", "add(x, y)"),
)
BACKENDS = "A Python kernel on masked arrays, over the same on NumPy's"
BACKEND_ROWS = (
    ("raw arrays", 1.3, "op(a, b)", "op(x, y)"),
    ("Tensors", 1.3, "op(A, B)", "op(X, Y)"),
)
OTHERS = "What other dispatchers add to a Python kernel, over what we add"


def arrays() -> dict[str, Any]:
    """Return two raw arrays x, y of shape (4,), and Tensors X, Y over them."""
    x, y = np.arange(4.0), np.ones(4)
    return {"x": x, "y": y, "X": Tensor(x), "Y": Tensor(y)}


def floor_cases(library: Library) -> list[Ratio]:
    """Return operators over kernels that cost next to nothing."""
    library.define("second(Tensor first, Tensor second) -> Tensor", _core.second_argument, "CPU")
    library.define("four(Tensor x, int a=0, int b=0, int c=0, int d=0) -> Tensor", _core.first_of_five, "CPU")
    library.define("named(Tensor x, *, int a=0, int b=0, int c=0, int d=0) -> Tensor", _core.first_of_five, "CPU")
    family = getattr(ops, NAMESPACE)
    names = arrays() | {
        "op": family.second, "kernel": _core.second_argument, "four": family.four, "named": family.named,
    }
    return [Ratio(FLOOR, *row, names) for row in FLOOR_ROWS]


def add_cases() -> list[Ratio]:
    """Return the library's own addition."""
    names = arrays() | {"add": np.add, "op": ops.np.add}
    return [Ratio(ADD, *row, names) for row in ADD_ROWS]


def backend_cases(library: Library) -> list[Ratio]:
    """Return an operator with the same Python kernel for NumPy arrays and those of a run-time backend."""
    a, b = np.ma.masked_array(np.arange(4.0)), np.ma.masked_array(np.ones(4))
    names = arrays() | {"a": a, "b": b, "A": Tensor(a), "B": Tensor(b)}      # the first Tensor loads the pack
    library.define("either(Tensor x, Tensor y) -> Tensor", kernel, "CPU")
    library.impl("either", kernel, "Masked")
    names["op"] = getattr(ops, NAMESPACE).either
    return [Ratio(BACKENDS, *row, names) for row in BACKEND_ROWS]


def peer_cases(library: Library, left_out: dict[str, str], pattern: str = "") -> Iterator[Added]:
    """Yield the peers that are installed. The others are noted in `left_out`."""
    library.define("first(Tensor x, Tensor y) -> Tensor", kernel, "CPU")
    names = arrays() | {"op": getattr(ops, NAMESPACE).first, "kernel": kernel}
    for name, peer in PEERS.items():
        if matches(OTHERS, name, pattern):
            module = import_or_note(peer.module, name, left_out)
            if module is not None:
                set_up = {"a": names["x"], "b": names["y"], **peer.set_up(module)}
                yield Added(OTHERS, name, peer.bound, names | set_up)
