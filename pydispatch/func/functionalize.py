"""`functionalize`: turn a function that writes to arrays into one that computes new values and writes only at the end.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import ActiveMode, OpOverload, PythonInterpreter, PythonWrapper, Shell, Tensor, below_python
from pydispatch._sites import caller_site
from pydispatch.autograd.function import AnyFunction
from pydispatch.autograd.views import MAY_BE_A_COPY
from pydispatch.exceptions import FunctionalizationError, ReadOnlyError
from pydispatch.func import storages
from pydispatch.func.functions import returned_by
from pydispatch.func.values import as_passed, check_no_wrapper
from pydispatch.memory import addresses, items_of, overlaps_itself, positions_among
from pydispatch.operators.declare import Declaration, declaration_of, written_result
from pydispatch.ops import ops
from pydispatch.tree import is_pytree_node_type, tree_flatten, tree_leaves, tree_map, tree_unflatten


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """Return a function that computes the results of `func` with operators that write to no array.

    The new contents of arguments that `func` writes to are written at the end. If `func` raises, nothing is written.
    Arguments may share memory.

    Parameters
    ----------
    func : callable
        A function of arrays or pytrees of arrays, which may write to its arguments.
    remove : {"mutations", "mutations_and_views"}, optional
        With "mutations_and_views", values inside the function do not share memory with each other either.

    Returns
    -------
    callable
        A function of the same arguments, with the same results.

    Raises
    ------
    FunctionalizationError
        For another value of `remove`, or in a call for a write that cannot be replaced.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import func
    >>> def double_first(x):
    ...     x[0] *= 2
    ...     return x + 1
    >>> x = numpy.ones(3)
    >>> func.functionalize(double_first)(x)
    array([3., 2., 2.])
    >>> x
    array([2., 1., 1.])
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
            interpreter.inputs.clear()        # the inputs refer back to the interpreter
        for array, value in written:
            ops.np.setitem_(array, Ellipsis, value)
        return tree_unflatten(results, output_spec)

    return functional


class Functionalize(PythonInterpreter):
    """The interpreter of `functionalize`. Its values may be stale, and `process` updates them before use.

    The note of a value is its View, or None for a value that has no views and was never written to.
    """

    def __init__(self, func: Callable[..., Any], site: Any, *, copies: bool) -> None:
        super().__init__("functionalize", site, follows_values=False, takes_new=True)
        self.func = func
        self.copies = copies
        self.inputs: list[tuple[Any, PythonWrapper]] = []
        self.may_turn = False       # whether an array without a layout was viewed with its axes in another order

    sees_functions = makes_new_values = True

    # entering and leaving the interpreter

    def enter_inputs(self, leaves: list[Any]) -> list[Any]:
        """Wrap the arrays as values of this interpreter, one value per object, and leave other leaves unchanged."""
        leaves = [_core.live_value(leaf) for leaf in leaves]    # here, where captured values are substituted
        arrays = {id(leaf): leaf for leaf in leaves if _core.is_array(leaf)}
        values = {key: _core.lowered(self, _kept_apart, array) for key, array in arrays.items()}
        wrappers = {key: _core.wrap_value_at(self, value) for key, value in values.items()}
        views = storages.views_of_inputs(
            [_as_array(array) for array in arrays.values()], list(values.values()), copies=self.copies)
        for (key, array), view in zip(arrays.items(), views, strict=True):
            if _core.is_scalar(array):
                wrappers[key] = _core.to_scalar(wrappers[key])
            _attach(wrappers[key], view)
            self.inputs.append((array, wrappers[key]))
        return [wrappers.get(id(leaf), leaf) for leaf in leaves]

    def results(self, outputs: list[Any], given: tuple[Any, ...]) -> list[Any]:
        """Return the outputs as the user gets them, one object per value.

        An output that is an input becomes the caller's array. Other outputs are raw if the arguments are.
        """
        known = {id(wrapper): array for array, wrapper in self.inputs}
        for output in outputs:
            if id(output) not in known:
                check_no_wrapper(self.name, output)
                value = self.result(output) if _core.is_owned_by(output, self) else output
                known[id(output)] = as_passed(value, given)
        return [known[id(output)] for output in outputs]

    def result(self, output: PythonWrapper) -> Any:
        """Return the value of an output, or a view of the caller's array if nothing was written to that array."""
        view = output.note
        if _core.is_scalar(output):
            return _core.to_scalar(self.value_of(output))
        if view is None or view.root is None or view.storage.generation:
            return self.array_of(output)
        array, wrapper = self.inputs[view.root]
        return output.array if wrapper.array is _as_array(array) else view.taken_from(array, len(wrapper.note.steps))

    def written_inputs(self) -> list[tuple[Any, Any]]:
        """Return (array, new value) for each input that was written to."""
        return [
            (array, self.value_of(wrapper)) for number, (array, wrapper) in enumerate(self.inputs)
            if number in wrapper.note.storage.written_inputs
        ]

    # calls

    def process(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the operator on the values below, or call the operators that replace it."""
        if func.schema.is_mutable:
            return self.write(func, args, kwargs)
        sources = self.sources_of(func, args, kwargs)
        if sources:
            return self.view(func, args, kwargs, sources)
        below_args, below_kwargs = self.arguments_below(args, kwargs)
        return self.fresh(func(*below_args, **below_kwargs))

    def apply_function(self, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
        """Call a Function below. A trace that would record the operators of its forward must not see it write."""
        if not _core.lowered(self, _records_operators) or any(
                _core.is_tracked_at(self.below(leaf), None) for leaf in tree_leaves(args)):
            return super().apply_function(function, args, captured)
        output = _core.with_grad_mode(False, function.forward, *args)
        return tree_map(lambda leaf: leaf if _core.is_owned_by(leaf, self) else self.fresh(leaf), output)

    def value_of(self, wrapper: PythonWrapper) -> Any:
        """Return the value below, after all writes."""
        view = wrapper.note
        if view is not None and view.is_stale:
            _replace(wrapper, view.regenerated())
        return wrapper.array

    def array_of(self, wrapper: PythonWrapper) -> Any:
        """Return the value below a wrapper that is not a scalar, converted to an array if a write left a scalar there.

        Only results and possible views need the distinction.
        """
        value = self.value_of(wrapper)
        if _core.is_scalar(value):
            _replace(wrapper, ops.np.copy(value))
        return wrapper.array

    def view_of(self, wrapper: PythonWrapper) -> storages.View:
        """Return the View of a value, creating one in a new storage if it has none."""
        if wrapper.note is None:
            storage = storages.Storage(wrapper.array, copies=self.copies)
            _attach(wrapper, storages.View(storage, (), storages.layout_of(wrapper.array), None))
        view: storages.View = wrapper.note
        return view

    def on_given_out(self, tensor: Tensor, reference: weakref.ref[Any]) -> None:
        """Note an array that NumPy has of a value: it would not see a write, which is refused while it is alive."""
        if type(tensor) is PythonWrapper and tensor.interpreter is self:
            self.view_of(tensor).storage.given_out.append((reference, caller_site()))

    def below(self, value: Any) -> Any:
        """Replace each value of this interpreter in an argument by the value below."""
        if type(value) is PythonWrapper:
            return self.value_of(value) if value.interpreter is self else value
        return tree_map(self.below, value) if is_pytree_node_type(type(value)) else value

    def arguments_below(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Replace each value of this interpreter in the arguments of a call by the value below."""
        return tuple([self.below(value) for value in args]), {name: self.below(value) for name, value in kwargs.items()}

    def fresh(self, result: Any) -> Any:
        """Wrap the arrays of a result as values of this interpreter that share no memory with other values."""
        if _core.is_array(result):
            return _core.wrap_value_at(self, result)
        return tree_map(self.fresh, result) if is_pytree_node_type(type(result)) else result

    # views

    def sources_of(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[PythonWrapper]:
        """Return the values of this interpreter, scalars excluded, whose memory the results may share."""
        schema = func.schema
        places = {place for result in schema.returns for place in _core.aliased_arguments(schema.arguments, result)}
        if not places:
            return []
        bound = func.bind(args, kwargs)
        return [leaf for place in sorted(places) for leaf in tree_leaves(bound[place])
                if _core.is_owned_by(leaf, self) and not _core.is_scalar(leaf)]

    def view(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], sources: list[PythonWrapper]
    ) -> Any:
        """Call an operator whose results may be views. The layouts determine which results are views."""
        for source in sources:
            self.array_of(source)
        below_args, below_kwargs = self.arguments_below(args, kwargs)
        layouts = self.layouts(func, args, kwargs)
        if layouts is not None and "view" in func.tags:
            below_kwargs.pop("copy", None)      # by the layouts, because the values are laid out differently
        leaves, spec = tree_flatten(func(*below_args, **below_kwargs))
        if layouts is not None and len(layouts) != len(leaves):
            raise _depends_on_elements(func)
        results = []
        for piece, value in enumerate(leaves):
            replay = storages.Replay(func, below_args[1:], below_kwargs, piece, self.copies)
            layout = None if layouts is None else layouts[piece]
            results.append(self.piece(value, layout, replay, sources) if _core.is_array(value) else value)
        return tree_unflatten(results, spec)

    def layouts(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
        """Return the results of the call on the layouts of its arguments, or None if an argument has no layout."""
        arrays = [leaf for leaf in tree_leaves((args, kwargs)) if _core.is_owned_by(leaf, self)]
        if any(self.view_of(array).layout is None for array in arrays):
            return None
        args, kwargs = tree_map(
            lambda leaf: leaf.note.layout if _core.is_owned_by(leaf, self) else leaf, (args, kwargs))
        if "conversion" in func.tags:
            # converting the layouts' contents would take as long as the call itself, for nothing
            tried = _on_layouts(func, args[0][np.newaxis][:0], *args[1:], **kwargs)
            if not _core.have_one_memory(tried, args[0]):
                return [tried]
        return tree_leaves(_on_layouts(func, *args, **kwargs))

    def piece(self, value: Any, layout: Any, replay: storages.Replay, sources: list[PythonWrapper]) -> Any:
        """Wrap one result, as a view of the first source that it shares memory with, or else with its own memory."""
        for source in sources:
            below = self.value_of(source)
            origin = self.view_of(source)
            shared = _core.have_one_memory(value, below) if layout is None else _core.have_one_memory(
                layout, origin.layout)
            if shared:
                if layout is not None and layout.shape != tuple(value.shape):
                    raise _depends_on_elements(replay.func)
                if layout is None:
                    self.may_turn = self.may_turn or _turns_axes(replay.func)
                    if _may_be_a_copy(replay.func, below, origin.steps, may_be_turned=self.may_turn):
                        origin.storage.obstacle = MAY_BE_A_COPY
                step = _step(replay, layout, origin)
                wrapper = _core.wrap_value_at(self, storages.laid_out(replay.kept(value), layout, copies=self.copies))
                view = storages.View(origin.storage, (*origin.steps, step), layout, origin.root)
                _attach(wrapper, view)
                return wrapper
        if any(_core.have_one_memory(value, self.value_of(source)) for source in sources):
            value = storages.laid_out(ops.np.copy(value), layout, copies=self.copies)
        return _core.wrap_value_at(self, value)

    # writes

    def write(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Replace a call that writes to arguments by operators that do not write."""
        targets = self.written_arguments(func, args, kwargs)
        declaration = declaration_of(func)
        if declaration is None:
            return self.write_to_copies(func, args, kwargs, targets)
        if self.is_written_back(func, args):
            return targets[0]
        self.store(targets[0], self.functional_result(declaration, args, kwargs, targets[0]))
        return targets[0]

    def written_arguments(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[PythonWrapper]:
        """Return the arrays that the call writes to, or raise if it cannot write to one."""
        targets = []
        for argument, value in zip(func.schema.arguments, func.bind(args, kwargs), strict=True):
            for leaf in tree_leaves(value) if argument.mutable else ():
                if _core.is_array(leaf):
                    self.check_writable(func, argument.name, leaf)
                    targets.append(leaf)
        return targets

    def is_written_back(self, func: OpOverload, args: tuple[Any, ...]) -> bool:
        """Return whether the call is `x[key] = x[key]`, with which Python ends `x[key] += 1`."""
        if func is not ops.np.setitem_.default or not _core.is_owned_by(args[2], self):
            return False
        target, view = self.view_of(args[0]), self.view_of(args[2])
        return target.storage is view.storage and self.place_at(target, args[1]) == view.place

    def place_at(self, view: storages.View, key: Any) -> Any:
        """Return the place of the part of the view that a key selects."""
        step = storages.Replay(ops.np.getitem.default, (key,), {}, 0, self.copies)
        layout = None if view.layout is None else _on_layouts(ops.np.getitem.default, view.layout, key)
        return storages.place_of(layout, (*view.steps, step))

    def store(self, wrapper: PythonWrapper, value: Any) -> None:
        """Make `value` the new value of the wrapper."""
        _replace(wrapper, self.view_of(wrapper).write(value))

    def functional_result(
        self, declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any], target: PythonWrapper
    ) -> Any:
        """Return the value that a declared operator would write, computed by its functional variant."""
        old = self.value_of(target)
        below_args, below_kwargs = self.arguments_below(args, kwargs)
        return written_result(declaration, below_args, below_kwargs, old)

    def write_to_copies(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[PythonWrapper]
    ) -> Any:
        """Call an operator without a declaration on copies of the arguments that it writes to."""
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

    # checks

    def check_writable(self, func: OpOverload, argument: str, target: Any) -> None:
        """Raise unless the target belongs to this interpreter and NumPy would write to it."""
        what = f"operator {func.name}: argument {argument!r}, of shape {tuple(target.shape)},"
        if not _core.is_owned_by(target, self):
            name = _name_in(self.func, target)
            captured = "a captured array" if name is None else f"the captured array {name!r}"
            raise FunctionalizationError(
                f"{what} is {captured}, which is not an argument of the function under {self.name}\n"
                "pass it as an argument, or write to a copy made inside: ops.np.copy(array)"
            )
        view = self.view_of(target)
        for reference, site in view.storage.given_out:
            if reference() is not None:
                raise FunctionalizationError(f"{what} cannot be written to: NumPy has an array of it, made at {site}, "
                                             "which would not see it\nconvert a copy: numpy.asarray(x.copy())")
        if view.storage.obstacle:
            raise FunctionalizationError(f"{what} cannot be written to: {view.storage.obstacle}\n"
                                         "use copies instead of views: array.copy()")
        if any(step.is_read_only for step in view.steps) or (view.layout is not None and (
                not view.layout.flags.writeable or overlaps_itself(view.layout))):
            raise ReadOnlyError(f"{what} is read-only, or some of its elements share memory\n"
                                "write to a copy: ops.np.copy(array)")
        if not all(step.can_put for step in view.steps):
            raise FunctionalizationError(f"{what} is a view made by an operator without put=\n"
                                         "write to a copy: ops.np.copy(array)")

    def check_separate(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[PythonWrapper]
    ) -> None:
        """Raise if a written argument shares memory with another one, because their copies would not."""
        owned = {id(leaf): leaf for leaf in tree_leaves((args, kwargs)) if _core.is_owned_by(leaf, self)}
        for target in targets:
            for other in owned.values():
                if other is not target and _overlap(self.view_of(target), self.view_of(other)):
                    raise FunctionalizationError(
                        f"operator {func.name} writes to an argument that shares memory with another argument\n"
                        "pass a copy of one of them: ops.np.copy(array)"
                    )


def _records_operators() -> bool:
    """Return whether the innermost mode is a trace that records the operators of a Function, not its call."""
    innermost = _core.current_state().innermost
    return isinstance(innermost, ActiveMode) and innermost.mode._knows_bodies and not innermost.mode._records_functions


def _kept_apart(array: Any) -> Any:
    """Return the value of an input, copied if nodes of a tape would save the array that is written to at the end."""
    is_saved = isinstance(array, Tensor) and array.requires_grad and not array.is_leaf
    if not is_saved:
        return _as_array(array)
    return storages.laid_out(ops.np.copy(array), storages.layout_of(array), copies=False)


def _attach(wrapper: PythonWrapper, view: storages.View) -> None:
    wrapper.note = view
    wrapper.layout = view.layout


def _replace(wrapper: PythonWrapper, value: Any) -> None:
    """Replace the value below the wrapper."""
    _core.replace_value(wrapper, _as_array(value))


def _on_layouts(func: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Call an operator outside all modes and transforms, on raw arrays whose elements do not matter."""
    return _core.below_transforms(functools.partial(below_python, func, *args, **kwargs))


def _step(replay: storages.Replay, layout: Any, origin: storages.View) -> storages.ViewStep:
    """Return the step from a source to a view of it, by its operator if that has `put=`, or else by positions."""
    if layout is None or replay.can_put or layout.dtype != origin.layout.dtype:
        return replay
    return storages.Elements(positions_among(addresses(layout), addresses(origin.layout)), replay.copies)


def _overlap(view: storages.View, other: storages.View) -> bool:
    if view.storage is not other.storage:
        return False
    return view.layout is None or other.layout is None or storages.share_elements(view.layout, other.layout)


def _may_be_a_copy(func: OpOverload, source: Any, steps: tuple[storages.ViewStep, ...], *, may_be_turned: bool) -> bool:
    """Return whether the call may have copied the elements of a wrapper, as NumPy does when strides require it.

    The strides of a fake do not show how the steps to it, from an array in C order, changed the order in memory. They
    do not show the memory order of results computed from arrays with turned axes either.
    """
    if func not in (ops.np.reshape.default, ops.np.ravel.default):
        return False
    shell = _core.bottom_array(source) if isinstance(source, Tensor) else None
    if not isinstance(shell, Shell):
        return False
    in_order = Shell(shape=shell.shape, dtype=shell.dtype).strides
    is_turned = may_be_turned and sum(extent > 1 for extent in shell.shape) > 1
    return is_turned or shell.strides != in_order or not all(map(_keeps_order, steps))


TURNING = frozenset({"transpose", "swapaxes", "moveaxis", "broadcast_to", "diagonal", "sliding_window_view"})


def _turns_axes(func: OpOverload) -> bool:
    """Return whether the view orders axes differently, an order that arrays computed from it then have in memory."""
    return func.namespace == "np" and func.name.name in TURNING


def _keeps_order(step: storages.ViewStep) -> bool:
    """Return whether the elements that the step selects in an array in C order are adjacent in memory."""
    if not isinstance(step, storages.Replay):
        return False
    if step.func is ops.np.getitem.default:
        items = list(itertools.dropwhile(lambda item: isinstance(item, int), items_of(step.args[0])))
        return items in ([], [Ellipsis]) or (
            len(items) == 1 and isinstance(items[0], tuple) and items[0][2] in (None, 1))
    return step.func in (ops.np.reshape.default, ops.np.ravel.default, ops.np.expand_dims.default,
                         ops.np.squeeze.default)


def _as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _depends_on_elements(func: OpOverload) -> FunctionalizationError:
    return FunctionalizationError(f"operator {func.name}: the views that it returns depend on the elements of an "
                                  "argument and cannot be recomputed\n"
                                  "return copies")


def _check_own_memory(func: OpOverload, result: Any, arguments: list[Any]) -> None:
    for leaf in tree_leaves(result):
        if _core.is_array(leaf) and any(_core.have_one_memory(leaf, array) for array in arguments):
            raise FunctionalizationError(
                f"operator {func.name} writes to an argument and returns a view of one\n"
                "return a copy, or make the view with a separate operator"
            )


def _name_in(function: Callable[..., Any], target: Any) -> str | None:
    """Return the name of the variable through which a function captures an array, or the array that it is a view of."""
    try:
        captured = inspect.getclosurevars(function)
    except TypeError:
        return None
    for name, value in [*captured.nonlocals.items(), *captured.globals.items()]:
        if _core.is_array(value) and _core.have_one_memory(value, target):
            return name
    return None
