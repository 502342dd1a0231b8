"""The memory that a program with views and writes would use, as values that are never written to.

A `Storage` represents one memory. It holds the value of the whole, called the base, and the writes that are not applied
yet. A `View` represents one array in that memory. It holds the steps that lead to it from the base, and its layout: the
array that NumPy would have there. Only the layout's address, strides and flags matter, since values have other layouts.
Steps and writes are calls of operators, so gradients and tracing work through them.
"""

# tests: tests/func/test_functionalize.py
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch.autograd.values import bottom_of
from pydispatch.memory import addresses, axes_in_memory, items_of, positions_among
from pydispatch.operators.declare import declaration_of
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves

MAX_WORK = 10_000
"""The work that NumPy may do to find out whether arrays of unusual strides share an element.

Beyond it, they count as sharing one.
"""


class ViewStep(Protocol):
    """A step from an array to a view of it, and back."""

    def take(self, source: Any) -> Any:
        """Return the view of this source."""

    def put(self, source: Any, part: Any) -> Any:
        """Return the source after its view has been replaced by `part`."""

    @property
    def can_put(self) -> bool:
        """Return whether a changed view can be put back into its source."""

    @property
    def is_read_only(self) -> bool:
        """Return whether NumPy refuses to write to such a view of any source."""

    @property
    def place(self) -> Any:
        """A hashable key, equal for steps that are known to select the same elements of the same source."""


@dataclass(eq=False, slots=True)
class Replay:
    """The step of an operator whose first argument is the source. `piece` is the position among several views."""

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    piece: int
    copies: bool

    def take(self, source: Any) -> Any:
        return self.kept(tree_leaves(self.func(source, *self.args, **self.kwargs))[self.piece])

    def put(self, source: Any, part: Any) -> Any:
        rule = _put_rule(self.func)
        wanted = rule.__code__.co_varnames[2:rule.__code__.co_argcount]
        names = [argument.name for argument in self.func.schema.arguments]
        known = dict(zip(names, self.func.bind((source, *self.args), self.kwargs), strict=True))
        known["piece"] = self.piece
        changed = rule(source, part, *[known[name] for name in wanted])
        return self.kept(changed) if _core.have_one_memory(changed, part) else changed

    def kept(self, view: Any) -> Any:
        """Return the view, or a copy of it if views are not allowed."""
        return ops.np.copy(view) if self.copies else view

    @property
    def can_put(self) -> bool:
        return _put_rule(self.func) is not None

    @property
    def is_read_only(self) -> bool:
        return "read_only" in self.func.tags

    @property
    def place(self) -> Any:
        return items_of(self.args[0]) if self.func is ops.np.getitem.default else self


@dataclass(eq=False, slots=True)
class Elements:
    """The step to the elements at constant positions, among those of the source in C order."""

    positions: np.ndarray[Any, Any]
    copies: bool

    def take(self, source: Any) -> Any:
        return ops.np.index(self.reshaped(source, (-1,)), self.positions)

    def put(self, source: Any, part: Any) -> Any:
        changed = ops.np.index_put(self.reshaped(source, (-1,)), self.positions, part)
        return self.reshaped(changed, tuple(source.shape))

    def reshaped(self, value: Any, shape: tuple[int, ...]) -> Any:
        if value.ndim == len(shape) == 1:
            return value
        return ops.np.reshape(value, shape, copy=True) if self.copies else ops.np.reshape(value, shape)

    @property
    def can_put(self) -> bool:
        return True

    @property
    def is_read_only(self) -> bool:
        return False

    @property
    def place(self) -> Any:
        return self


def _put_rule(func: OpOverload) -> Any:
    declaration = declaration_of(func)
    return None if declaration is None else declaration.put


class View:
    """An array in a storage. `root` is the number of the input that it derives from, None for an array made inside."""

    __slots__ = ("generation", "layout", "root", "steps", "storage")

    def __init__(self, storage: Storage, steps: tuple[ViewStep, ...], layout: Any, root: int | None) -> None:
        self.storage = storage
        self.steps = steps
        self.layout = layout
        self.root = root
        self.generation = storage.generation    # of the value that the owner of this view holds

    @property
    def place(self) -> Any:
        """A key for the elements that it holds: see `place_of`."""
        return place_of(self.layout, self.steps)

    @property
    def is_stale(self) -> bool:
        """Return whether the storage has been written to since the value was computed."""
        return self.generation != self.storage.generation

    def write(self, value: Any) -> Any:
        """Make this the new value, and return it laid out as it is used."""
        value = laid_out(value, self.layout, copies=self.storage.copies)
        self.storage.write(self.steps, value)
        self.generation = self.storage.generation
        if self.root is not None:
            self.storage.written_inputs[self.root] = None
        return value

    def regenerated(self) -> Any:
        """Return the value after all writes to the storage."""
        self.generation = self.storage.generation
        return laid_out(self.taken_from(self.storage.current_value()), self.layout, copies=self.storage.copies)

    def taken_from(self, source: Any, first: int = 0) -> Any:
        """Return the view of an array other than the base, by the steps from number `first` on."""
        for step in self.steps[first:]:
            source = step.take(source)
        return source


def place_of(layout: Any, steps: tuple[ViewStep, ...]) -> Any:
    """Return a hashable key, equal for arrays of a memory known to hold the same elements in the same order."""
    if layout is None:
        return tuple([step.place for step in steps])
    return _core.address(layout), layout.shape, layout.strides, layout.dtype, layout.flags.writeable


class Storage:
    """One memory: the value of the whole, the pending writes, and the number of writes so far.

    `parts`, (positions, value) each, make up a base that does not exist yet. `obstacle` is the reason why the memory
    cannot be written to. With `copies`, no value may share memory with another one.
    """

    __slots__ = ("base", "copies", "generation", "given_out", "obstacle", "parts", "pending", "written_inputs")

    def __init__(
        self, base: Any, *, copies: bool, parts: Sequence[tuple[Any, Any]] = (), obstacle: str | None = None
    ) -> None:
        self.base = base
        self.copies = copies
        self.parts = parts
        self.obstacle = obstacle
        self.pending: list[tuple[tuple[ViewStep, ...], Any]] = []
        self.generation = 0
        self.given_out: list[tuple[Any, str]] = []      # weak references to arrays of NumPy, and where they were made
        self.written_inputs: dict[int, None] = {}

    def write(self, steps: tuple[ViewStep, ...], value: Any) -> None:
        """Queue a write that replaces the view that these steps lead to by `value`."""
        if not steps:
            self.pending.clear()
        elif self.pending and self.pending[-1][0] is steps:
            self.pending.pop()
        self.pending.append((steps, value))
        self.generation += 1

    def current_value(self) -> Any:
        """Return the value of the whole after all writes."""
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


def changed_through(source: Any, steps: tuple[ViewStep, ...], part: Any) -> Any:
    """Return the source after the view that the steps lead to has been replaced by `part`."""
    sources = [source]
    for step in steps[:-1]:
        sources.append(step.take(sources[-1]))
    for step, whole in zip(reversed(steps), reversed(sources), strict=False):
        part = step.put(whole, part)
    return part


def layout_of(value: Any) -> Any:
    """Return the ndarray at the bottom of a value, or None if there is none of the value's shape."""
    bottom = bottom_of(value)
    return bottom if isinstance(bottom, np.ndarray) and bottom.shape == tuple(value.shape) else None


# --- layouts ---------------------------------------------------------------------------------------------------------
#
# The memory layout of an array decides whether NumPy reshapes it without a copy, and the layouts of arguments decide
# those of results. A value may therefore have no gaps where the layout has some, but its axes are in the order of the
# layout.


def laid_out(value: Any, layout: Any, *, copies: bool) -> Any:
    """Rearrange the value so that its axes lie in memory in the order of the layout.

    Elements that the layout repeats are repeated too, unless `copies` is true.
    """
    found = layout_of(value)
    if layout is None or found is None or layout.size == 0:
        return value
    changed = value
    repeated = () if copies else repeated_axes(layout)
    if not copies and repeated != repeated_axes(found):
        key = tuple([slice(0, 1 if axis in repeated else None) for axis in range(layout.ndim)])
        changed = ops.np.getitem(value, key)
        found = layout_of(changed)
    order = axes_in_memory(layout)
    if axes_in_memory(found) != [axis for axis in order if found.shape[axis] > 1]:
        order += [axis for axis in range(layout.ndim) if axis not in order]
        turned = ops.np.transpose(changed, tuple(order))
        rows = ops.np.reshape(ops.np.reshape(turned, (-1,)), tuple(turned.shape))
        changed = ops.np.transpose(rows, tuple(np.argsort(order).tolist()))
    if tuple(changed.shape) != layout.shape:
        changed = ops.np.broadcast_to(changed, layout.shape)
    return ops.np.copy(changed) if copies and changed is not value else changed


def repeated_axes(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """Return the axes along which all elements are the same element in memory."""
    return tuple([axis for axis in range(array.ndim) if array.strides[axis] == 0 and array.shape[axis] > 1])


# --- arrays that share memory ----------------------------------------------------------------------------------------


def views_of_inputs(arrays: Sequence[Any], values: Sequence[Any], *, copies: bool) -> list[View]:
    """Return for each array, in order, a view with its value. Arrays that share memory share a storage.

    With `copies`, each step to a view makes a copy.
    """
    views: list[View | None] = [None] * len(arrays)
    for members in groups_by_memory(arrays):
        layouts = [layout_of(arrays[member]) for member in members]
        found = [values[member] for member in members]
        for member, view in zip(members, _views_of_one_memory(found, layouts, members, copies), strict=True):
            views[member] = view
    return [view for view in views if view is not None]


def groups_by_memory(arrays: Sequence[Any]) -> list[list[int]]:
    """Return the positions of the arrays, grouped so that arrays that share memory are together."""
    groups: list[list[int]] = []
    for i, array in enumerate(arrays):
        sharing = [group for group in groups if any(share_elements(arrays[k], array) for k in group)]
        groups = [group for group in groups if group not in sharing]
        groups.append([*(k for group in sharing for k in group), i])
    return groups


def share_elements(left: Any, right: Any) -> bool:
    """Return whether arrays share some memory, or if they have no layout, whether they have one owner."""
    one, other = layout_of(left), layout_of(right)
    if one is None or other is None:
        return one is other and _core.have_one_memory(left, right)
    try:
        return np.shares_memory(one, other, max_work=MAX_WORK)      # type: ignore[arg-type]    # any int does
    except np.exceptions.TooHardError:
        return True


def _views_of_one_memory(values: list[Any], layouts: list[Any], roots: list[int], copies: bool) -> list[View]:
    if len(roots) == 1:
        return [View(Storage(values[0], copies=copies), (), layouts[0], roots[0])]
    obstacle = _obstacle(layouts)
    if obstacle:
        return [View(Storage(value, copies=copies, obstacle=obstacle), (), layout, root)
                for value, layout, root in zip(values, layouts, roots, strict=True)]
    storage, positions = _common_storage(values, layouts, copies)
    return [
        View(storage, () if _is_everything(where, storage.base) else (Elements(where, copies),), layout, root)
        for where, layout, root in zip(positions, layouts, roots, strict=True)
    ]


def _obstacle(layouts: list[Any]) -> str | None:
    """Return why arrays that share memory cannot be written to, or None if they can."""
    if any(layout is None for layout in layouts):
        return "arguments of the function share memory, and the shared elements are known only for NumPy arrays"
    dtypes = list(dict.fromkeys(str(layout.dtype) for layout in layouts))
    if len(dtypes) > 1:
        return f"arguments of the function share memory but have different dtypes, {' and '.join(dtypes)}"
    starts = {_core.address(layout) % layout.itemsize for layout in layouts}
    strides = {stride % layout.itemsize for layout in layouts for stride in layout.strides}
    if len(starts) > 1 or strides - {0}:
        return "arguments of the function share memory, and elements of one partly overlap elements of another"
    return None


def _common_storage(
    values: list[Any], layouts: list[Any], copies: bool
) -> tuple[Storage, list[np.ndarray[Any, Any]]]:
    """Return a storage for all values, and for each value the positions of its elements among those of the base.

    The base is the value that covers all others if there is one, or else a vector that is made of all values.
    """
    found = [addresses(layout) for layout in layouts]
    places = np.unique(np.concatenate([where.ravel() for where in found]))
    for value, where in zip(values, found, strict=True):
        if where.size == len(places) == len(np.unique(where)):
            return Storage(value, copies=copies), [positions_among(other, where) for other in found]
    positions = [np.asarray(np.searchsorted(places, where)) for where in found]
    return Storage(None, copies=copies, parts=list(zip(positions, values, strict=True))), positions


def _is_everything(positions: Any, base: Any) -> bool:
    return base is not None and positions.shape == tuple(base.shape) and np.array_equal(
        positions.ravel(), np.arange(positions.size))
