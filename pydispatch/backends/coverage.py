"""The way in which a backend runs each of NumPy's operators: covered, partial, decomposed or missing."""

from __future__ import annotations

from typing import NamedTuple

from pydispatch._core import OpOverload
from pydispatch._registry.backends import BACKENDS, bring_into_use, kernel_provided
from pydispatch._registry.operators import find_or_raise, load_all
from pydispatch._registry.tables import Label, ProvidedKernel, table_entry
from pydispatch.exceptions import UnknownKeyError
from pydispatch.keys import parse_backend, parse_key
from pydispatch.operators import DECLARATIONS
from pydispatch.operators.declare import OF_FAMILIES

COVERED, PARTIAL, DECOMPOSED, MISSING = "covered", "partial", "decomposed", "missing"
KINDS = (COVERED, PARTIAL, DECOMPOSED, MISSING)


class Coverage(NamedTuple):
    """The way in which a backend runs one operator: a kind, and the name of the kernel or the reason why there is none.

    `unsupported` are the arguments that the kernel does not take, and that can only be at their default.
    """

    kind: str
    text: str
    unsupported: tuple[str, ...] = ()


def coverage(backend: str) -> dict[str, Coverage]:
    """Return how a run-time backend runs each of NumPy's operators, without the variants that write.

    Parameters
    ----------
    backend
        Name of a registered backend.

    Returns
    -------
    dict of str to Coverage
        The coverage of each functional operator, by its name.

    Raises
    ------
    UnknownKeyError
        If the backend is not registered, or comes with the package.
    """
    name = parse_backend(backend)
    if name not in BACKENDS:
        raise UnknownKeyError(f"backend {name} is not a run-time backend: it has its own kernels for every operator\n"
                              f"run-time backends: {', '.join(BACKENDS) or 'none registered'}")
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
    kind = DECOMPOSED if entry.label is Label.DECOMPOSITION else PARTIAL if entry.unsupported_names else COVERED
    return Coverage(kind, f"{entry.kernel.debug} [{entry.label}]", entry.unsupported_names)


def counts(covered: dict[str, Coverage]) -> dict[str, int]:
    """Count the operators of each kind."""
    return {kind: sum(each.kind == kind for each in covered.values()) for kind in KINDS}
