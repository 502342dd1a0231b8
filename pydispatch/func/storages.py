"""The memory that a program with views and writes would use, as values that are never written to.

A `Storage` stands for one memory. It holds the value of the whole, the base, and the writes that have not been put into
it yet. A `View` stands for one array in that memory: the steps that lead to it from the base, and its layout, which is
the array that NumPy would have there; only its address, strides and flags are looked at, since values have layouts of
their own. Steps and writes are calls of operators, so what holds for operators (gradients, tracing) holds for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload, Tensor
from pydispatch.addresses import addresses, positions_among
from pydispatch.operators import DECLARATIONS
from pydispatch.operators.declare import NAMESPACE
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves

MAX_WORK = 10_000
"""What NumPy may try to find out whether arrays of strange strides share an element; beyond it, they do."""


class Step(Protocol):
    """From an array to a view of it, and back."""

    def take(self, source: Any) -> Any:
        """The view of this source."""

    def put(self, source: Any, part: Any) -> Any:
        """The source as it is when its view has become `part`."""

    @property
    def can_put(self) -> bool:
        """Is there a way back?"""


class Replay(NamedTuple):
    """The step of an operator whose first argument is the source; `piece` is the position among several views."""

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    piece: int
    copies: bool

    def take(self, source: Any) -> Any:
        part = tree_leaves(self.func(source, *self.args, **self.kwargs))[self.piece]
        return ops.np.copy(part) if self.copies else part

    def put(self, source: Any, part: Any) -> Any:
        rule = _put_rule(self.func)
        wanted = rule.__code__.co_varnames[2:rule.__code__.co_argcount]
        names = [argument.name for argument in self.func.schema.arguments]
        known = dict(zip(names, self.func.bind((source, *self.args), self.kwargs), strict=True))
        known["piece"] = self.piece
        return rule(source, part, *[known[name] for name in wanted])

    @property
    def can_put(self) -> bool:
        return _put_rule(self.func) is not None


class Elements(NamedTuple):
    """The step to the elements at constant positions, among those of the source in C order."""

    positions: np.ndarray[Any, Any]

    def take(self, source: Any) -> Any:
        return ops.np.index(_flat(source), self.positions)

    def put(self, source: Any, part: Any) -> Any:
        changed = ops.np.index_put(_flat(source), self.positions, part)
        return changed if source.ndim == 1 else ops.np.reshape(changed, tuple(source.shape))

    @property
    def can_put(self) -> bool:
        return True


def _flat(source: Any) -> Any:
    return source if source.ndim == 1 else ops.np.reshape(source, (-1,))


def is_library_operator(func: OpOverload) -> bool:
    """Is there a declaration of it?"""
    return func.namespace == NAMESPACE and str(func.name).partition("::")[2] in DECLARATIONS


def declaration_of(func: OpOverload) -> Any:
    """The declaration of an operator of the library."""
    return DECLARATIONS[str(func.name).partition("::")[2]]


def _put_rule(func: OpOverload) -> Any:
    return declaration_of(func).put if is_library_operator(func) else None


class View:
    """An array in a storage; `root` is the number of the input that it was made from, None for an array made inside."""

    __slots__ = ("generation", "layout", "root", "steps", "storage")

    def __init__(self, storage: Storage, steps: tuple[Step, ...], layout: Any, root: int | None) -> None:
        self.storage = storage
        self.steps = steps
        self.layout = layout
        self.root = root
        self.generation = storage.generation    # of the value that its owner knows

    @property
    def is_stale(self) -> bool:
        """Has the storage been written to since?"""
        return self.generation != self.storage.generation

    def write(self, value: Any) -> None:
        """Let this be the new value."""
        self.storage.write(self.steps, value)
        self.generation = self.storage.generation
        if self.root is not None:
            self.storage.written_inputs[self.root] = None

    def regenerated(self) -> Any:
        """The value, after all writes to the storage."""
        self.generation = self.storage.generation
        value = self.storage.settled()
        for step in self.steps:
            value = step.take(value)
        return value


class Storage:
    """One memory: the value of the whole, the writes that are not in it yet, and how many there have been.

    `parts`, (positions, value) each, make up a base that is not there yet. `obstacle` says why it cannot be written to.
    """

    __slots__ = ("base", "generation", "obstacle", "parts", "pending", "written_inputs")

    def __init__(self, base: Any, *, parts: Sequence[tuple[Any, Any]] = (), obstacle: str | None = None) -> None:
        self.base = base
        self.parts = parts
        self.obstacle = obstacle
        self.pending: list[tuple[tuple[Step, ...], Any]] = []
        self.generation = 0
        self.written_inputs: dict[int, None] = {}

    def write(self, steps: tuple[Step, ...], value: Any) -> None:
        """Queue a write: the view that these steps lead to becomes `value`."""
        if not steps:
            self.pending.clear()
        elif self.pending and self.pending[-1][0] is steps:
            self.pending.pop()
        self.pending.append((steps, value))
        self.generation += 1

    def settled(self) -> Any:
        """The value of the whole, after all writes."""
        if self.parts:
            size = 1 + max(int(positions.max()) for positions, _ in self.parts)
            self.base = ops.np.zeros_like(self.parts[0][1], shape=(size,))
        for positions, value in self.parts:
            self.base = ops.np.index_put(self.base, positions, value)
        for steps, value in self.pending:
            self.base = changed_through(self.base, steps, value)
        self.parts = ()
        self.pending.clear()
        return self.base


def changed_through(source: Any, steps: tuple[Step, ...], part: Any) -> Any:
    """The source as it is when the view that the steps lead to has become `part`."""
    sources = [source]
    for step in steps[:-1]:
        sources.append(step.take(sources[-1]))
    for step, whole in zip(reversed(steps), reversed(sources), strict=False):
        part = step.put(whole, part)
    return part


def layout_of(value: Any) -> Any:
    """The ndarray at the bottom of a value; None where there is none of the value's shape."""
    bottom = _core.bottom_array(value) if isinstance(value, Tensor) else value
    return bottom if isinstance(bottom, np.ndarray) and bottom.shape == tuple(value.shape) else None


# --- arrays that share memory ----------------------------------------------------------------------------------------


def views_of_inputs(values: Sequence[Any]) -> list[View]:
    """A view for each value, in its order; those that share memory are in one storage."""
    views: list[View | None] = [None] * len(values)
    for members in groups_by_memory(values):
        if len(members) == 1:
            views[members[0]] = View(Storage(values[members[0]]), (), layout_of(values[members[0]]), members[0])
        else:
            for member, view in zip(members, _views_of_one_memory(values, members), strict=True):
                views[member] = view
    return [view for view in views if view is not None]


def groups_by_memory(values: Sequence[Any]) -> list[list[int]]:
    """The positions of the values, those that share memory with one another together."""
    groups: list[list[int]] = []
    for i, value in enumerate(values):
        sharing = [group for group in groups if any(share_elements(values[k], value) for k in group)]
        groups = [group for group in groups if group not in sharing]
        groups.append([*(k for group in sharing for k in group), i])
    return groups


def share_elements(left: Any, right: Any) -> bool:
    """Is there memory that belongs to both? Of values without a layout: are they of one owner?"""
    one, other = layout_of(left), layout_of(right)
    if one is None or other is None:
        return one is other and _core.have_one_memory(left, right)
    try:
        return np.shares_memory(one, other, max_work=MAX_WORK)      # type: ignore[arg-type]    # any int does
    except np.exceptions.TooHardError:
        return True


def _views_of_one_memory(values: Sequence[Any], members: list[int]) -> list[View]:
    layouts = [layout_of(values[member]) for member in members]
    obstacle = _obstacle(layouts)
    if obstacle:
        return [View(Storage(values[member], obstacle=obstacle), (), layout, member)
                for member, layout in zip(members, layouts, strict=True)]
    storage, positions = _common_storage([values[member] for member in members], layouts)
    return [
        View(storage, () if _is_everything(where, storage.base) else (Elements(where),), layout, member)
        for where, layout, member in zip(positions, layouts, members, strict=True)
    ]


def _obstacle(layouts: list[Any]) -> str | None:
    """Why arrays that share memory cannot be written to; None where they can."""
    if any(layout is None for layout in layouts):
        return "share memory, and are no NumPy arrays whose addresses would tell which elements they share"
    dtypes = list(dict.fromkeys(str(layout.dtype) for layout in layouts))
    if len(dtypes) > 1:
        return f"share memory as different dtypes, {' and '.join(dtypes)}"
    starts = {int(layout.__array_interface__["data"][0]) % layout.itemsize for layout in layouts}
    strides = {stride % layout.itemsize for layout in layouts for stride in layout.strides}
    if len(starts) > 1 or strides - {0}:
        return "share memory, and elements of one lie across elements of another"
    return None


def _common_storage(values: list[Any], layouts: list[Any]) -> tuple[Storage, list[np.ndarray[Any, Any]]]:
    """A storage for all values, and for each the positions of its elements among those of the base.

    The base is the value that covers all, where one does, else a vector that is made of all.
    """
    found = [addresses(layout) for layout in layouts]
    places = np.unique(np.concatenate([where.ravel() for where in found]))
    for value, layout, where in zip(values, layouts, found, strict=True):
        if where.size == len(places) == len(np.unique(where)):
            return Storage(value), [positions_among(other, layout) for other in found]
    positions = [np.searchsorted(places, where) for where in found]
    return Storage(None, parts=list(zip(positions, values, strict=True))), positions


def _is_everything(positions: Any, base: Any) -> bool:
    return base is not None and positions.shape == tuple(base.shape) and np.array_equal(
        positions.ravel(), np.arange(positions.size))
