"""The ambient state: guards and modes that change how every call inside a `with` block is dispatched.

The state is an immutable chain in a context variable, so threads and asyncio tasks never see each other's guards.
Guards may be left out of order. Leaving one removes exactly its entry, and raises StateOrderError.
"""

# tests: tests/modes/test_dispatch_mode.py
from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar

from pydispatch import _core
from pydispatch._core import DispatchKeySet, OpOverload, State, Tensor
from pydispatch._loading import only_public
from pydispatch._sites import frames_to_caller
from pydispatch.exceptions import DispatchTypeError, UntrackedResultWarning
from pydispatch.keys import DispatchKey, parse_backend, parse_key
from pydispatch.tree import tree_leaves

__all__ = ["Guard", "current_mode", "mode_stack"]       # the modes and guards themselves are in `pydispatch`
__dir__ = only_public(globals())

F = TypeVar("F", bound=Callable[..., Any])


class Guard(_core.Guard):
    """A change of the ambient state: a context manager, and a decorator of functions, generators and coroutines.

    A decorated generator or coroutine has the guard on while it runs, not while it is suspended.
    """

    def __call__(self, function: F) -> F:
        guarded: F = _around_each_step(self, function)
        return guarded


def _around_each_step(guard: Guard | DispatchMode, function: Any) -> Any:
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def stepped(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            generator = function(*args, **kwargs)
            step = generator.asend(None)
            while True:
                try:
                    item = await _Steps(guard, step)
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    await _Steps(guard, generator.aclose())
                    raise
                except BaseException as error:
                    step = generator.athrow(error)
                else:
                    step = generator.asend(sent)

    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def stepped(*args: Any, **kwargs: Any) -> Any:
            return await _Steps(guard, function(*args, **kwargs))

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def stepped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            return (yield from _steps(guard, function(*args, **kwargs)))

    else:

        @functools.wraps(function)
        def stepped(*args: Any, **kwargs: Any) -> Any:
            with guard:
                return function(*args, **kwargs)

    return stepped


class _Steps:
    """An awaitable that enters the guard around each step of another awaitable."""

    def __init__(self, guard: Guard | DispatchMode, awaitable: Any) -> None:
        self.guard, self.awaitable = guard, awaitable

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from _steps(self.guard, self.awaitable.__await__()))


def _steps(guard: Guard | DispatchMode, generator: Any) -> Generator[Any, Any, Any]:
    step: Callable[[], Any] = functools.partial(next, generator)
    while True:
        try:
            with guard:
                item = step()
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield item
        except GeneratorExit:
            with guard:
                generator.close()
            raise
        except BaseException as error:
            step = functools.partial(generator.throw, error)
        else:
            step = functools.partial(next, generator) if sent is None else functools.partial(generator.send, sent)


def include_keys(*keys: str | DispatchKey | DispatchKeySet) -> Guard:
    """Add these keys to every call inside.

    Parameters
    ----------
    `*keys` : str, DispatchKey or DispatchKeySet
        The keys to add.

    Returns
    -------
    Guard
        A context manager, and a decorator of functions.
    """
    return Guard(f"include_keys({_names(keys)})", added=DispatchKeySet(*keys))


def exclude_keys(*keys: str | DispatchKey | DispatchKeySet) -> Guard:
    """Remove these keys from every call inside. An alias means its members.

    Exclusion takes precedence over inclusion. Excluding CPU excludes its dense kernels, and leaves those of other
    backends.

    Parameters
    ----------
    `*keys` : str, DispatchKey or DispatchKeySet
        The keys to remove.

    Returns
    -------
    Guard
        A context manager, and a decorator of functions.

    Examples
    --------
    >>> from pydispatch import Tensor, modes
    >>> x = Tensor([1.0, 1.0], requires_grad=True)
    >>> with modes.exclude_keys("Autograd"):
    ...     print((x * 2).requires_grad)
    False
    """
    return Guard(f"exclude_keys({_names(keys)})", removed=_slots(keys))


def force_keys(include: tuple[str | DispatchKey, ...] = (), exclude: tuple[str | DispatchKey, ...] = ()) -> Guard:
    """Replace the inclusions and exclusions of the surrounding guards, including the initial BackendSelect.

    Parameters
    ----------
    include : tuple of str or DispatchKey, optional
        The keys to add to every call inside.
    exclude : tuple of str or DispatchKey, optional
        The keys to remove from every call inside.

    Returns
    -------
    Guard
        A context manager, and a decorator of functions.
    """
    return Guard(
        f"force_keys(include=({_names(include)}), exclude=({_names(exclude)}))",
        added=DispatchKeySet(*include), removed=_slots(exclude), replace=True,
    )


def below_autograd() -> Guard:
    """Exclude every autograd key."""
    return Guard("below_autograd()", removed=_slots((DispatchKey.Autograd,)))


def default_backend(name: str) -> Guard:
    """Set the backend of calls without arrays and without a `device`, such as `ops.np.zeros(3)`.

    Outside of guards it is CPU.

    Parameters
    ----------
    name : str
        The name of the backend.

    Returns
    -------
    Guard
        A context manager, and a decorator of functions.

    Examples
    --------
    >>> from pydispatch import modes, ops
    >>> with modes.default_backend("Meta"):
    ...     print(ops.np.zeros(3))
    MetaArray(shape=(3,), dtype=float64)
    """
    return Guard(f"default_backend({name!r})", default_backend=parse_backend(name))


class DispatchMode(_core.Mode):
    """The base of modes, which handle every call of an operator inside a `with` block, for any arguments.

    A subclass defines `__pydispatch__(self, func, types, args=(), kwargs=None)`. `func` is the operator (OpOverload).
    `types` are the classes with a handler among the arguments. `args` and `kwargs` are the arguments without those that
    equal their defaults.

    The mode is disabled in its own handler, so `func(*args, **kwargs)` passes the call on to the next mode, or to the
    tape and the kernels. Returning `NotImplemented` also passes the call on. A composite operator arrives as the calls
    that it makes, or as one call if the class sets `decompose_composites = False`. The innermost mode comes first. A
    mode may be entered again while it is active. With `enters_anew = False`, that changes nothing.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import modes, ops
    >>> class Log(modes.DispatchMode):
    ...     def __pydispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func.name)
    ...         return func(*args, **kwargs or {})
    >>> with Log():
    ...     y = ops.np.sin(numpy.zeros(2)) + 1
    np::sin
    """

    decompose_composites = True
    _records_functions = False      # whether it sees a Function as one call, by `_record_function`
    _record_function: Callable[..., Any]
    _inlines: Callable[..., bool]   # whether it sees the operators of a Function whose forward takes ctx
    _knows_bodies = False           # whether it makes graphs of the bodies of control flow, by `_body_of`
    _body_of: Callable[..., Any]
    _follows_tensors = False        # whether it distinguishes a Tensor from its array
    enters_anew = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(cls.__dict__.get("__pydispatch__"), (classmethod, staticmethod)):
            raise DispatchTypeError(
                f"{cls.__name__}.__pydispatch__ is {_core.a_type(cls.__dict__['__pydispatch__'])}, expected a plain "
                "method\nwrite def __pydispatch__(self, func, types, args=(), kwargs=None)"
            )
        if type(cls.decompose_composites) is not bool:
            raise DispatchTypeError(
                f"{cls.__name__}.decompose_composites is {cls.decompose_composites!r}, expected True or False\n"
                "write decompose_composites = False to see composite operators themselves"
            )

    def __pydispatch__(
        self, func: OpOverload, types: tuple[type, ...], args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Handle a call of `func` under this mode, or return NotImplemented to pass it on."""
        raise NotImplementedError(f"{type(self).__name__} defines no __pydispatch__\n"
                                  "define __pydispatch__(self, func, types, args=(), kwargs=None)")

    def on_conversion(self, tensor: Tensor, what: str) -> Any:
        """Check a conversion of a Tensor's values for NumPy, which `what` describes. Override it to raise.

        Return None, or the NumPy array of a Tensor that has no data.
        """

    def follows(self, tensor: Tensor) -> bool:
        """Return whether the mode follows values computed from a Tensor, for `func.is_traced`."""
        return False

    def on_no_dispatch(self) -> None:
        """Check whether `no_dispatch` may disable this mode, before it does. Override it to raise."""

    def __call__(self, function: F) -> F:
        """Return the function with this mode on while it runs, or while its generator or coroutine is not suspended."""
        guarded: F = _around_each_step(self, function)
        return guarded


def mode_stack() -> tuple[DispatchMode, ...]:
    """Return the active modes, outermost first."""
    return tuple(reversed(_core.active_modes()))


def current_mode() -> DispatchMode | None:
    """Return the innermost active mode, which handles a call first, or None."""
    modes = _core.active_modes()
    return modes[0] if modes else None


def no_dispatch() -> Guard:
    """Disable the active modes and the handlers of subclasses. Modes entered inside are active.

    Modes are notified by `on_no_dispatch`, and may raise an error, as the mode of `make_fx` does. A wrapper without
    memory has no data for a kernel, which raises: the library's kernels raise NoDataError if they read it,
    DispatchTypeError if they write.

    Returns
    -------
    Guard
        A context manager, and a decorator of functions.
    """
    return _NoDispatch("no_dispatch()", removed=_slots((DispatchKey.Python,)), without_modes=True)


class _NoDispatch(Guard):
    def inside(self, state: State) -> State:
        for mode in _core.active_modes():
            mode.on_no_dispatch()
        return super().inside(state)


def restore_entry_state() -> Guard:
    """Restore the state of the call that is handled, in a subclass's handler.

    Autograd then records operators on the inner Tensors.

    Returns
    -------
    Guard
        A context manager. Entering it raises StateOrderError outside of a handler.
    """
    return _EntryState("restore_entry_state()")


class _EntryState(Guard):
    def inside(self, state: State) -> State:
        return _core.entry_state(state, self)


def _names(keys: tuple[Any, ...]) -> str:
    return ", ".join(key.name if isinstance(key, DispatchKey) else str(key) for key in keys)


def _slots(keys: tuple[str | DispatchKey | DispatchKeySet, ...]) -> tuple[int, ...]:
    slots: list[int] = []
    for key in keys:
        members = key if isinstance(key, DispatchKeySet) else parse_key(key).members
        slots += [member.slot for member in members if member.slot is not None]
    return tuple(slots)


_warned: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()


def warn_untracked(op: OpOverload, mode: Any, result: Any) -> None:
    """Warn, once per class and operator, if a mode returned a constant for a call that has a gradient."""
    leaves = [leaf for leaf in tree_leaves(result) if _core.is_array(leaf) and leaf.dtype.kind in "fc"]
    names = _warned.setdefault(type(mode), set())
    if str(op.name) in names or not leaves or any(map(_core.is_tracked_anywhere, leaves)):
        return
    if mode._follows_tensors:       # a trace without data, whose values are used only there
        return
    names.add(str(op.name))
    warnings.warn(
        f"operator {op.name}: an argument requires grad, but {type(mode).__name__}.__pydispatch__ returned a "
        "constant: the gradient ends here\n"
        "return the result of func(*args, **kwargs) or a value computed from it, or call it inside no_grad()",
        UntrackedResultWarning, stacklevel=frames_to_caller(),
    )


_core.connect(warn_untracked=warn_untracked)
