"""Errors about the structure of a graph's arguments."""

from __future__ import annotations

from pydispatch.exceptions import DispatchTypeError
from pydispatch.tree import TreeSpec, children_in_order_of, described_structure, is_alike, is_same_node


def structure_error(expected: TreeSpec, found: TreeSpec) -> DispatchTypeError:
    """Return the error, naming the argument, for arguments whose structure differs from what the graph takes."""
    n, m = len(expected.children), len(found.children)
    if n != m:
        arguments = ", ".join(map(described_structure, expected.children))
        return DispatchTypeError(
            f"the graph takes {n} argument{'' if n == 1 else 's'}, but {m} {'was' if m == 1 else 'were'} given\n"
            f"write graph({arguments}), with a value for each *")
    i = next(i for i, pair in enumerate(zip(expected.children, found.children, strict=True)) if not is_alike(*pair))
    where, wanted, given = _difference(f"argument {i}", expected.children[i], found.children[i])
    return DispatchTypeError(f"the graph's {where} is {described_structure(given)}, expected "
                             f"{described_structure(wanted)}\n"
                             "pass the structure that the graph was made for: "
                             f"{described_structure(expected.children[i])}")


def _difference(where: str, expected: TreeSpec, found: TreeSpec) -> tuple[str, TreeSpec, TreeSpec]:
    """Return the path to the innermost difference between two specs, and the specs there."""
    if is_same_node(expected, found):
        keys = expected.context if expected.type is dict else range(len(expected.children))
        for key, wanted, given in zip(keys, expected.children, children_in_order_of(expected, found), strict=True):
            if not is_alike(wanted, given):
                return _difference(f"{where}[{key!r}]", wanted, given)
    return where, expected, found
