"""`functionalize`: turn a function that writes to arrays into one that makes new values and writes at the very end."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import MetaArray, OpOverload, PythonInterpreter, PythonWrapper, Shell, Tensor, below_python
from pydispatch.exceptions import FunctionalizationError, ReadOnlyError
from pydispatch.func.functions import returned_by
from pydispatch.func.storages import (
    Elements,
    Replay,
    Storage,
    View,
    ViewStep,
    laid_out,
    layout_of,
    place_of,
    share_elements,
    views_of_inputs,
)
from pydispatch.func.values import as_passed, check_no_wrapper
from pydispatch.memory import addresses, items_of, overlaps_itself, positions_among
from pydispatch.moves import Move, move_over
from pydispatch.operators.declare import Declaration, declaration_of
from pydispatch.ops import ops
from pydispatch.tree import is_pytree_node_type, tree_flatten, tree_leaves, tree_map, tree_unflatten


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function that computes what `func` computes, by operators that write to no array.

    The new contents of arguments that `func` writes to are written at the end, and not at all if it raises. Arguments
    may share memory. With `remove="mutations_and_views"` no value inside shares memory with another one either.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise FunctionalizationError(f"functionalize: remove is {remove!r}, expected 'mutations' or "
                                     "'mutations_and_views'\nwrite functionalize(f, remove=\"mutations\")")

    @returned_by(functionalize, func, remove=remove)
    def functional(*args: Any, **kwargs: Any) -> Any:
        interpreter = Functionalize(func, _core.calling_site(), copies=remove == "mutations_and_views")
        leaves, spec = tree_flatten((args, kwargs))

        def run() -> tuple[Any, ...]:
            inner_args, inner_kwargs = tree_unflatten(interpreter.enter_inputs(leaves), spec)
            outputs, output_spec = tree_flatten(func(*inner_args, **inner_kwargs))
            results = _core.lowered(interpreter, interpreter.results, outputs, tuple(leaves))
            return results, output_spec, _core.lowered(interpreter, interpreter.written_inputs)

        try:
            results, output_spec, written = _core.run_under(interpreter, run)
        finally:
            interpreter.inputs.clear()        # they lead back to the interpreter
        for array, value in written:
            ops.np.setitem_(array, Ellipsis, value)
        return tree_unflatten(results, output_spec)

    return functional


class Functionalize(PythonInterpreter):
    """The interpreter of `functionalize`. Its values may be out of date; `process` updates them before use.

    The note of a value is its View; None for a value without views that was never written to.
    """

    def __init__(self, func: Callable[..., Any], site: Any, *, copies: bool) -> None:
        super().__init__("functionalize", site)
        self.func = func
        self.copies = copies
        self.inputs: list[tuple[Any, PythonWrapper]] = []

    sees_functions = makes_new_values = True

    # into the interpreter and out of it

    def enter_inputs(self, leaves: list[Any]) -> list[Any]:
        """The arrays as values of this interpreter, one value per object; other leaves unchanged."""
        leaves = [_core.live_value(leaf) for leaf in leaves]    # here, where captured values have their substitutes
        arrays = {id(leaf): leaf for leaf in leaves if _core.is_array(leaf)}
        values = {key: _core.lowered(self, _kept_apart, array) for key, array in arrays.items()}
        wrappers = {key: _core.wrap_value_at(self, value) for key, value in values.items()}
        views = views_of_inputs(
            [_as_array(array) for array in arrays.values()], list(values.values()), copies=self.copies)
        for (key, array), view in zip(arrays.items(), views, strict=True):
            _attach(wrappers[key], view)
            self.inputs.append((array, wrappers[key]))
        return [wrappers.get(id(leaf), leaf) for leaf in leaves]

    def results(self, outputs: list[Any], given: tuple[Any, ...]) -> list[Any]:
        """The outputs as the user gets them, one object per value: an input itself, else the value, raw if they are."""
        known = {id(wrapper): array for array, wrapper in self.inputs if not _is_written_scalar(array, wrapper)}
        for output in outputs:
            if id(output) not in known:
                check_no_wrapper(self.name, output)
                value = self.result(output) if _core.is_owned_by(output, self) else output
                known[id(output)] = as_passed(value, given)
        return [known[id(output)] for output in outputs]

    def result(self, output: PythonWrapper) -> Any:
        """The value of an output; a view of the caller's array where nothing was written to that."""
        view = output.note
        if view is None or view.root is None or view.storage.generation:
            return self.value_of(output)
        array, wrapper = self.inputs[view.root]
        return output.array if wrapper.array is _as_array(array) else view.taken_from(array, len(wrapper.note.steps))

    def written_inputs(self) -> list[tuple[Any, Any]]:
        """(array, new value) of the inputs that were written to."""
        return [
            (array, self.value_of(wrapper)) for number, (array, wrapper) in enumerate(self.inputs)
            if number in wrapper.note.storage.written_inputs and not isinstance(array, np.generic)
        ]

    # calls

    def process(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the operator on the values below, or the operators that replace it."""
        if func.schema.is_mutable:
            return self.write(func, args, kwargs)
        sources = self.sources_of(func, args, kwargs)
        if sources:
            return self.view(func, args, kwargs, sources)
        below_args, below_kwargs = self.arguments_below(args, kwargs)
        return self.fresh(func(*below_args, **below_kwargs))

    def value_of(self, wrapper: PythonWrapper) -> Any:
        """The value below, up to date."""
        view = wrapper.note
        if view is not None and view.is_stale:
            _replace(wrapper, view.regenerated())
        return wrapper.array

    def view_of(self, wrapper: PythonWrapper) -> View:
        """The View of a value; a value without one gets one of a new storage."""
        if wrapper.note is None:
            storage = Storage(wrapper.array, copies=self.copies)
            _attach(wrapper, View(storage, (), layout_of(wrapper.array), None))
        view: View = wrapper.note
        return view

    def below(self, value: Any) -> Any:
        """An argument with values below in place of the values of this interpreter."""
        if type(value) is PythonWrapper:
            return self.value_of(value) if value.interpreter is self else value
        return tree_map(self.below, value) if is_pytree_node_type(type(value)) else value

    def arguments_below(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call with values below in place of the values of this interpreter."""
        return tuple([self.below(value) for value in args]), {name: self.below(value) for name, value in kwargs.items()}

    def fresh(self, result: Any) -> Any:
        """A result with its arrays as values of this interpreter with memory of their own."""
        if _core.is_array(result):
            return _core.wrap_value_at(self, result)
        return tree_map(self.fresh, result) if is_pytree_node_type(type(result)) else result

    # views

    def sources_of(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[PythonWrapper]:
        """The values of this interpreter whose memory the results may share."""
        schema = func.schema
        places = {place for result in schema.returns for place in _core.aliased_arguments(schema.arguments, result)}
        if not places:
            return []
        bound = func.bind(args, kwargs)
        return [leaf for place in sorted(places) for leaf in tree_leaves(bound[place]) if _core.is_owned_by(leaf, self)]

    def view(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], sources: list[PythonWrapper]
    ) -> Any:
        """The call of an operator whose results may be views, which the layouts tell."""
        below_args, below_kwargs = self.arguments_below(args, kwargs)
        layouts = self.layouts(func, args, kwargs)
        if layouts is not None and "view" in func.tags:
            below_kwargs.pop("copy", None)      # answered by the layouts; values have others
        leaves, spec = tree_flatten(func(*below_args, **below_kwargs))
        if layouts is not None and len(layouts) != len(leaves):
            raise _depends_on_elements(func)
        results = []
        for piece, value in enumerate(leaves):
            replay = Replay(func, below_args[1:], below_kwargs, piece, self.copies)
            layout = None if layouts is None else layouts[piece]
            results.append(self.piece(value, layout, replay, sources) if _core.is_array(value) else value)
        return tree_unflatten(results, spec)

    def layouts(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """The results of the call on the layouts of its arguments; None if one of them has none."""
        arrays = [leaf for leaf in tree_leaves((args, kwargs)) if _core.is_owned_by(leaf, self)]
        if any(self.view_of(array).layout is None for array in arrays):
            return None
        args, kwargs = tree_map(
            lambda leaf: leaf.note.layout if _core.is_owned_by(leaf, self) else leaf, (args, kwargs))
        if "conversion" in func.tags:
            # a conversion of what is in the layouts would be as long as the call itself, and as useless
            tried = _on_layouts(func, args[0][np.newaxis][:0], *args[1:], **kwargs)
            if not _core.have_one_memory(tried, args[0]):
                return [tried]
        return tree_leaves(_on_layouts(func, *args, **kwargs))

    def piece(self, value: Any, layout: Any, replay: Replay, sources: list[PythonWrapper]) -> Any:
        """One result: a view of the first source that it shares memory with, else an array of its own."""
        for source in sources:
            below = self.value_of(source)
            origin = self.view_of(source)
            shared = _core.have_one_memory(value, below) if layout is None else _core.have_one_memory(
                layout, origin.layout)
            if shared:
                if layout is not None and layout.shape != tuple(value.shape):
                    raise _depends_on_elements(replay.func)
                if layout is None and _may_be_a_copy(replay.func, below, origin.steps):
                    origin.storage.obstacle = MAY_BE_A_COPY
                step = _step(replay, layout, origin)
                wrapper = _core.wrap_value_at(self, laid_out(replay.kept(value), layout, copies=self.copies))
                view = View(origin.storage, (*origin.steps, step), layout, origin.root)
                _attach(wrapper, view)
                origin.storage.moves = {}
                return wrapper
        if any(_core.have_one_memory(value, self.value_of(source)) for source in sources):
            value = ops.np.copy(value)
        return _core.wrap_value_at(self, value)

    # writes

    def write(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call of an operator that writes to arguments, by operators that do not."""
        targets = self.written_arguments(func, args, kwargs)
        declaration = declaration_of(func)
        if declaration is None:
            return self.write_to_copies(func, args, kwargs, targets)
        if self.is_move(func, args):
            return self.move(declaration, args, kwargs)
        self.store(targets[0], self.functional_result(declaration, args, kwargs, targets[0]))
        return targets[0]

    def written_arguments(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[PythonWrapper]:
        """The arrays that the call writes to; raises if it cannot."""
        targets = []
        for argument, value in zip(func.schema.arguments, func.bind(args, kwargs), strict=True):
            for leaf in tree_leaves(value) if argument.mutable else ():
                if _core.is_array(leaf):
                    self.check_writable(func, argument.name, leaf)
                    targets.append(leaf)
        return targets

    def is_move(self, func: OpOverload, args: tuple[Any, ...]) -> bool:
        """Is the call `x[key] = y`, of a view y of the memory of x?"""
        return func is ops.np.setitem_.default and _core.is_owned_by(args[2], self) and (
            self.view_of(args[0]).storage is self.view_of(args[2]).storage)

    def move(self, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """That call; as for a Tensor, it may be a part of `t[i], t[j] = t[j], t[i]`."""
        x, key, y = args
        view, before, is_element = self.view_of(y), self.value_of(x), y.ndim == 0
        storage, here, there = view.storage, self.place_at(self.view_of(x), key), view.place
        over = move_over(there, here, storage.moves, is_element=is_element) if view.is_stale else None
        if over is None and here == there:      # as Python ends `x[key] += 1`
            return x
        moves = storage.moves if is_element else {}
        if is_element or over is None:
            moves.setdefault(here, Move(there, (before, key)))
        value = y if over is None else self.selected(*over.before)
        self.store(x, self.functional_result(declaration, (x, key, value), kwargs, x))
        storage.moves = moves
        return x

    def place_at(self, view: View, key: Any) -> Any:
        """The place of the view that a key selects."""
        step = Replay(ops.np.getitem.default, (key,), {}, 0, self.copies)
        layout = None if view.layout is None else _on_layouts(ops.np.getitem.default, view.layout, key)
        return place_of(layout, (*view.steps, step))

    def selected(self, whole: Any, key: Any) -> Any:
        """What a key selects of a value below."""
        part = ops.np.getitem(whole, key)
        return ops.np.copy(part) if self.copies else part

    def store(self, wrapper: PythonWrapper, value: Any) -> None:
        """Let this be the new value."""
        _replace(wrapper, self.view_of(wrapper).write(value))

    def functional_result(
        self, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any], target: PythonWrapper
    ) -> Any:
        """What a declared operator would have written, by its functional variant."""
        old = self.value_of(target)
        below_args, below_kwargs = self.arguments_below(args, kwargs)
        options = {name: value for name, value in below_kwargs.items() if name != "out"}
        variants = declaration.operation.variants
        twin = getattr(getattr(ops, declaration.namespace), variants.functional).default
        is_ufunc = isinstance(declaration.operation.kernel, np.ufunc)
        if variants.out is not None and not is_ufunc:
            _check_fit(declaration, below_args, below_kwargs)
        if "out" in kwargs and {"reduction", "accumulation"} & set(declaration.tags):
            # NumPy computes in a dtype that holds both
            below_args = (_promoted(below_args[0], old.dtype), *below_args[1:])
        result = twin(*below_args, **options)
        if result.dtype == old.dtype and tuple(result.shape) == tuple(old.shape):
            return result
        if is_ufunc:
            _check_fit(declaration, below_args, below_kwargs)
        if tuple(result.shape) != tuple(old.shape):
            return ops.np.setitem(old, Ellipsis, result)
        return ops.np.astype(result, old.dtype)

    def write_to_copies(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[PythonWrapper]
    ) -> Any:
        """Call any other operator on copies of the arguments that it writes to."""
        self.check_separate(func, args, kwargs, targets)
        copies = {id(target): ops.np.copy(self.value_of(target)) for target in targets}
        below_args, below_kwargs = tree_map(
            lambda leaf: copies[id(leaf)] if id(leaf) in copies else self.below(leaf), (args, kwargs))
        result = func(*below_args, **below_kwargs)
        arrays = [leaf for leaf in tree_leaves((below_args, below_kwargs)) if _core.is_array(leaf)]
        returned = (result,) if len(func.schema.returns) == 1 else result or ()
        for declared, value in zip(func.schema.returns, returned, strict=True):
            if not declared.mutable:
                _check_own_memory(func, value, arrays)
        for target in targets:
            self.store(target, copies[id(target)])
        return self.fresh(result)

    # what is refused

    def check_writable(self, func: OpOverload, argument: str, target: Any) -> None:
        """Raise unless the target belongs to this interpreter, and NumPy would write to it."""
        what = f"operator {func.name}: argument {argument!r}, of shape {tuple(target.shape)},"
        if not _core.is_owned_by(target, self):
            name = _name_in(self.func, target)
            captured = "a captured array" if name is None else f"the captured array {name!r}"
            raise FunctionalizationError(
                f"{what} is {captured}, which is not an argument of the function under {self.name}\n"
                "pass it as an argument, or write to a copy made inside: ops.np.copy(array)"
            )
        view = self.view_of(target)
        if view.storage.obstacle:
            raise FunctionalizationError(f"{what} cannot be written to: {view.storage.obstacle}\n"
                                         "use copies in place of views: array.copy()")
        if view.layout is not None and (not view.layout.flags.writeable or overlaps_itself(view.layout)):
            raise ReadOnlyError(f"{what} is read-only, or its elements share addresses\n"
                                "write to a copy: ops.np.copy(array)")
        if not all(step.can_put for step in view.steps):
            raise FunctionalizationError(f"{what} is a view by an operator without put=\n"
                                         "write to a copy: ops.np.copy(array)")

    def check_separate(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[PythonWrapper]
    ) -> None:
        """Raise if a written argument shares memory with another one: their copies would not."""
        owned = {id(leaf): leaf for leaf in tree_leaves((args, kwargs)) if _core.is_owned_by(leaf, self)}
        for target in targets:
            for other in owned.values():
                if other is not target and _overlap(self.view_of(target), self.view_of(other)):
                    raise FunctionalizationError(
                        f"operator {func.name} writes to an argument that shares memory with another argument\n"
                        "pass a copy of one of them: ops.np.copy(array)"
                    )


def _kept_apart(array: Any) -> Any:
    """The value of an input: a copy where nodes of a tape would save the array that is written to at the end."""
    is_saved = isinstance(array, Tensor) and array.requires_grad and not array.is_leaf
    return laid_out(ops.np.copy(array), layout_of(array), copies=False) if is_saved else _as_array(array)


def _is_written_scalar(array: Any, wrapper: PythonWrapper) -> bool:
    """Is this a NumPy scalar, which is read-only, whose wrapper has been written to?"""
    return isinstance(array, np.generic) and wrapper.note.storage.generation > 0


def _attach(wrapper: PythonWrapper, view: View) -> None:
    wrapper.note = view
    wrapper.layout = view.layout


def _replace(wrapper: PythonWrapper, value: Any) -> None:
    """Put a new value below; one without memory lies where the old one did, so that interpreters inside see swaps."""
    old, value = _core.bottom_array(wrapper), _as_array(value)
    _core.replace_value(wrapper, value)
    new = _core.bottom_array(wrapper)
    if isinstance(old, Shell) and isinstance(new, Shell) and old.place is not None:
        new.place = old.place


def _on_layouts(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Call an operator outside all modes and transforms, on raw arrays whose elements do not matter."""
    return _core.below_transforms(functools.partial(below_python, func, *args, **kwargs))


def _step(replay: Replay, layout: Any, origin: View) -> ViewStep:
    """The step from a source to a view of it: by its operator if that has `put=`, else by positions."""
    if layout is None or replay.can_put or layout.dtype != origin.layout.dtype:
        return replay
    return Elements(positions_among(addresses(layout), addresses(origin.layout)), replay.copies)


def _overlap(view: View, other: View) -> bool:
    if view.storage is not other.storage:
        return False
    return view.layout is None or other.layout is None or share_elements(view.layout, other.layout)


MAY_BE_A_COPY = "an operator returned a view or a copy of it, and a wrapper without memory cannot tell which"


def _may_be_a_copy(func: OpOverload, source: Any, steps: tuple[ViewStep, ...]) -> bool:
    """May the call have copied the elements of a wrapper, as NumPy does when strides require it?

    The strides of a fake do not tell what the steps to it, from an array in C order, do to the order in memory.
    """
    if func not in (ops.np.reshape.default, ops.np.ravel.default):
        return False
    shell = _core.bottom_array(source) if isinstance(source, Tensor) else None
    return isinstance(shell, Shell) and (
        shell.strides != Shell(shape=shell.shape, dtype=shell.dtype).strides or not all(map(_keeps_order, steps)))


def _keeps_order(step: ViewStep) -> bool:
    """Do the elements that the step selects in an array in C order follow each other in memory?"""
    if not isinstance(step, Replay):
        return False
    if step.func is ops.np.getitem.default:
        items = list(itertools.dropwhile(lambda item: isinstance(item, int), items_of(step.args[0])))
        return items in ([], [Ellipsis]) or (
            len(items) == 1 and isinstance(items[0], tuple) and items[0][2] in (None, 1))
    return step.func in (ops.np.reshape.default, ops.np.ravel.default, ops.np.expand_dims.default,
                         ops.np.squeeze.default)


def _as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _promoted(value: Any, dtype: np.dtype[Any]) -> Any:
    """An array in the dtype that holds its own one and this one."""
    common = np.result_type(value.dtype, dtype) if _core.is_array(value) else None
    return value if common is None or common == value.dtype else ops.np.astype(value, common)


def _check_fit(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what NumPy raises for a result that does not fit its target."""
    args, kwargs = tree_map(
        lambda leaf: MetaArray(tuple(leaf.shape), leaf.dtype) if _core.is_array(leaf) else leaf, (args, kwargs))
    declaration.kernels["Meta"](*args, **kwargs)


def _depends_on_elements(func: OpOverload) -> FunctionalizationError:
    return FunctionalizationError(f"operator {func.name}: which views it returns depends on elements of an argument, "
                                  "so they cannot be recomputed\n"
                                  "return copies")


def _check_own_memory(func: OpOverload, result: Any, arguments: list[Any]) -> None:
    for leaf in tree_leaves(result):
        if _core.is_array(leaf) and any(_core.have_one_memory(leaf, array) for array in arguments):
            raise FunctionalizationError(
                f"operator {func.name} writes to an argument and returns a view of one\n"
                "return a copy, or make the view by an operator of its own"
            )


def _name_in(function: Callable[..., Any], target: Any) -> str | None:
    """The variable through which a function captures an array, or the array that it is a view of."""
    try:
        captured = inspect.getclosurevars(function)
    except TypeError:
        return None
    for name, value in [*captured.nonlocals.items(), *captured.globals.items()]:
        if _core.is_array(value) and _core.have_one_memory(value, target):
            return name
    return None
