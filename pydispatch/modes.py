"""The ambient state: guards and modes that change how every call inside a `with` block is dispatched.

The state is an immutable chain in a context variable, so threads and asyncio tasks never see each other's guards.
Guards may be left out of order: exactly the entry of the guard that is left is taken out, and StateOrderError raised.
"""

from __future__ import annotations

import functools
import inspect
import warnings
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar

from pydispatch import _core
from pydispatch._core import DispatchKeySet, OpOverload, State, Tensor, below_python
from pydispatch.exceptions import DispatchTypeError, UntrackedResultWarning
from pydispatch.keys import DispatchKey, parse_backend, parse_key
from pydispatch.loading import only_public
from pydispatch.registry.sites import frames_to_caller
from pydispatch.tree import tree_leaves

__all__ = [
    "DispatchMode", "Guard", "below_autograd", "below_python", "current_mode", "default_backend", "exclude_keys",
    "force_keys", "include_keys", "mode_stack", "no_dispatch", "restore_entry_state",
]
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
    """An awaitable that enters the guard around each step of another."""

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
    """Add these keys to every call inside."""
    return Guard(f"include_keys({_names(keys)})", added=DispatchKeySet(*keys))


def exclude_keys(*keys: str | DispatchKey | DispatchKeySet) -> Guard:
    """Take these keys from every call inside; an alias stands for its members. Exclusion beats inclusion.

    Excluding CPU excludes the dense kernels of CPU, and those of no other backend.
    """
    return Guard(f"exclude_keys({_names(keys)})", removed=_slots(keys))


def force_keys(include: tuple[str | DispatchKey, ...] = (), exclude: tuple[str | DispatchKey, ...] = ()) -> Guard:
    """Replace what the surrounding guards include and exclude, the initial BackendSelect too."""
    return Guard(
        f"force_keys(include=({_names(include)}), exclude=({_names(exclude)}))",
        added=DispatchKeySet(*include), removed=_slots(exclude), replace=True,
    )


def below_autograd() -> Guard:
    """Exclude every autograd key."""
    return Guard("below_autograd()", removed=_slots((DispatchKey.Autograd,)))


def default_backend(name: str) -> Guard:
    """The backend of calls without arrays and without a `device`, such as `ops.np.zeros(3)`; CPU outside of guards."""
    return Guard(f"default_backend({name!r})", default_backend=parse_backend(name))


class DispatchMode(_core.Mode):
    """Handles every call of an operator inside a `with` block, whatever its arguments are.

    A subclass defines `__pydispatch__(self, func, types, args=(), kwargs=None)`: `func` is the operator (OpOverload),
    `types` the classes with a handler among the arguments, `args` and `kwargs` the arguments without those that equal
    their defaults. The mode is disabled in its own handler, so `func(*args, **kwargs)` goes on to the next mode, or
    to the tape and the kernels. `NotImplemented` passes the call on likewise. A composite operator arrives as the calls
    that it makes, or as one call if the class sets `decompose_composites = False`. The innermost mode comes first.
    A mode may be entered again while it is active; with `enters_anew = False` that changes nothing.
    """

    decompose_composites = True
    enters_anew = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(cls.__dict__.get("__pydispatch__"), (classmethod, staticmethod)):
            raise DispatchTypeError(
                f"{cls.__name__}.__pydispatch__ is {_core.a_type(cls.__dict__['__pydispatch__'])}, expected a plain "
                "method: a mode is an object\nwrite def __pydispatch__(self, func, types, args=(), kwargs=None)"
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
        """Do what a call of `func` means under this mode; NotImplemented passes it on."""
        raise NotImplementedError(f"{type(self).__name__} defines no __pydispatch__\n"
                                  "define __pydispatch__(self, func, types, args=(), kwargs=None)")

    def on_conversion(self, tensor: Tensor, what: str) -> None:
        """Called before the values of a Tensor leave for NumPy (`what` says how); raise to refuse."""

    def on_no_dispatch(self) -> None:
        """Called before `no_dispatch` switches this mode off; raise to refuse."""

    def __call__(self, function: F) -> F:
        """The function with this mode on while it runs; a generator or coroutine while it is not suspended."""
        guarded: F = _around_each_step(self, function)
        return guarded


def mode_stack() -> tuple[DispatchMode, ...]:
    """The active modes, outermost first."""
    return tuple(reversed(_core.active_modes()))


def current_mode() -> DispatchMode | None:
    """The innermost active mode, which gets a call first."""
    modes = _core.active_modes()
    return modes[0] if modes else None


def no_dispatch() -> Guard:
    """Disable the active modes and the handlers of subclasses; modes entered inside are active.

    Modes are told by `on_no_dispatch`, and may refuse, as that of `make_fx` does. A wrapper without memory has nothing
    for a kernel, which raises: the library's NoDataError where they read it, DispatchTypeError where they write.
    """
    return _NoDispatch("no_dispatch()", removed=_slots((DispatchKey.Python,)), without_modes=True)


class _NoDispatch(Guard):
    def inside(self, state: State) -> State:
        for mode in _core.active_modes():
            mode.on_no_dispatch()
        return super().inside(state)


def restore_entry_state() -> Guard:
    """In a subclass's handler: restore the state of the call that is handled.

    Autograd then records what is done with the inner Tensors. Raises StateOrderError elsewhere.
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
    """Warn, once per class and operator, of a mode that gave a constant for what has a gradient."""
    leaves = [leaf for leaf in tree_leaves(result) if _core.is_array(leaf) and leaf.dtype.kind in "fc"]
    names = _warned.setdefault(type(mode), set())
    if str(op.name) in names or not leaves or any(map(_core.is_tracked_anywhere, leaves)):
        return
    names.add(str(op.name))
    warnings.warn(
        f"operator {op.name}: an argument requires grad, but {type(mode).__name__}.__pydispatch__ returned a "
        "constant: the gradient ends here\n"
        "return what func(*args, **kwargs) returned or something computed from it, or call inside of no_grad()",
        UntrackedResultWarning, stacklevel=frames_to_caller(),
    )


_core.connect(warn_untracked=warn_untracked)
