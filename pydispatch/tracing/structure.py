"""The structure of a graph's arguments, and what is wrong with one that differs."""

from __future__ import annotations

from pydispatch.exceptions import DispatchTypeError
from pydispatch.tree import TreeSpec, described_structure


def check_structure(expected: TreeSpec, found: TreeSpec) -> None:
    """DispatchTypeError, naming the argument, unless the structures of two argument tuples are the same."""
    n, m = len(expected.children), len(found.children)
    if n != m:
        raise DispatchTypeError(f"the graph takes {n} argument{'' if n == 1 else 's'}, {m} were given\n"
                                f"pass {described_structure(expected)}")
    for i, (wanted, given) in enumerate(zip(expected.children, found.children, strict=True)):
        _compare(wanted, given, f"argument {i}", wanted)


def _compare(expected: TreeSpec, found: TreeSpec, where: str, whole: TreeSpec) -> None:
    if expected == found:
        return
    is_same_kind = expected.type is found.type and len(expected.children) == len(found.children)
    if is_same_kind and expected.context == found.context:
        for key, wanted, given in zip(_keys(expected), expected.children, found.children, strict=True):
            _compare(wanted, given, f"{where}[{key!r}]", whole)
    raise DispatchTypeError(f"the graph's {where} is {described_structure(found)}, expected "
                            f"{described_structure(expected)}\n"
                            f"pass the structure that the graph was made for: {described_structure(whole)}")


def _keys(spec: TreeSpec) -> tuple[object, ...]:
    return spec.context if spec.type is dict else tuple(range(len(spec.children)))
