"""What a backend has of NumPy's operators: covered, partial, decomposed, missing."""

from __future__ import annotations

from typing import NamedTuple

from pydispatch._core import OpOverload
from pydispatch.backends.providing import kernel_provided
from pydispatch.exceptions import UnknownKeyError
from pydispatch.keys import parse_backend, parse_key
from pydispatch.operators import DECLARATIONS
from pydispatch.operators.declare import OF_FAMILIES
from pydispatch.registry.backends import BACKENDS, bring_into_use
from pydispatch.registry.operators import find_or_raise, load_all
from pydispatch.registry.tables import Label, ProvidedKernel, table_entry

COVERED, PARTIAL, DECOMPOSED, MISSING = "covered", "partial", "decomposed", "missing"
KINDS = (COVERED, PARTIAL, DECOMPOSED, MISSING)


class Coverage(NamedTuple):
    """What a backend runs for one operator: the kind, and in words the kernel or why there is none.

    `untaken` are the arguments that can be at their default only.
    """

    kind: str
    text: str
    untaken: tuple[str, ...] = ()


def coverage(backend: str) -> dict[str, Coverage]:
    """For each of NumPy's operators, without the variants that write, what a run-time backend runs for it.

    Raises UnknownKeyError for a backend that is not registered, or that the package brings along.
    """
    name = parse_backend(backend)
    if name not in BACKENDS:
        raise UnknownKeyError(f"backend {name} is no run-time backend: it has kernels of its own for every operator\n"
                              f"run-time backends: {', '.join(BACKENDS) or 'none is registered'}")
    bring_into_use(parse_key(name))
    load_all("np")
    names = sorted(each for each, declaration in {**DECLARATIONS, **OF_FAMILIES}.items()
                   if declaration.variant == "functional")
    return {each: _coverage_of(find_or_raise(f"np::{each}"), name) for each in names}


def _coverage_of(op: OpOverload, name: str) -> Coverage:
    entry = table_entry(op, parse_key(name))
    if entry is None:
        found = kernel_provided(op, BACKENDS[name])
        assert not isinstance(found, ProvidedKernel)
        return Coverage(MISSING, found.reason)
    kind = DECOMPOSED if entry.label is Label.DECOMPOSITION else PARTIAL if entry.untaken_names else COVERED
    return Coverage(kind, f"{entry.kernel.debug} [{entry.label}]", entry.untaken_names)


def counts(covered: dict[str, Coverage]) -> dict[str, int]:
    """How many operators are of each kind."""
    return {kind: sum(each.kind == kind for each in covered.values()) for kind in KINDS}
