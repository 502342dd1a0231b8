"""The tables of docs/numpy.md."""

import numpy as np

from pydispatch.numpy import fft, lib, linalg, passed_on, random
from pydispatch.numpy.declare import FUNCTIONS, KINDS, REASONS
from tests.pages import with_tables

NAMESPACES = {"": np, "linalg": np.linalg, "fft": np.fft, "lib.stride_tricks": np.lib.stride_tricks}
WRITTEN_FOR = "2.4"
"""The version of NumPy whose functions the tables have."""
KINDS_IN_ORDER = ("operator", "written with operators", "constant")


def names(namespace: str, kind: str) -> list[str]:
    """Return the functions of one kind in one namespace."""
    return sorted(name.rpartition(".")[2] for name in FUNCTIONS
                  if KINDS[name] == kind and name.rpartition(".")[0] == namespace)


def table() -> list[str]:
    rows = ["| namespace | what it is | functions |", "|---|---|---|"]
    for namespace in NAMESPACES:
        for kind in KINDS_IN_ORDER:
            found = " ".join(f"`{name}`" for name in names(namespace, kind))
            if found:
                rows.append(f"| `{'numpy.' + namespace if namespace else 'numpy'}` | {kind} | {found} |")
    methods = " ".join(sorted(
        f"`{name}`" for name, value in vars(random.Generator).items() if isinstance(value, random.GeneratorMethod)))
    rows.append(f"| `numpy.random` | operators, methods of `default_rng()` | {methods} |")
    passed = " ".join(f"`{name}`" for name in sorted(passed_on.FUNCTIONS))
    rows.append(f"| `numpy` | passed on | {passed}; types, constants and dtypes |")
    return rows


def reasons() -> list[str]:
    """Return every refused function, with the reason. Those with the same reason together."""
    groups: dict[str, list[str]] = {}
    for name, reason in sorted(REASONS.items()):
        groups.setdefault(" ".join(reason.split()), []).append(f"`{name}`")
    rows = [f"| {' '.join(found)} | {reason} |" for reason, found in groups.items()]
    return ["| function | why, and what to write |", "|---|---|", *rows]


def renewed(text: str) -> str:
    """Return the text of the page with its tables as they should be."""
    return with_tables(text, {"functions": table(), "refused": reasons()})


assert all((fft, lib, linalg))   # they are loaded on first use
