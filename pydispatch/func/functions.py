"""The functions that transforms return: called without an extra frame, and pickled as the call that made them."""

# tests: tests/func/test_grad.py
from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from pydispatch import _core
from pydispatch.exceptions import DispatchTypeError

NAMES = tuple([name for name in functools.WRAPPER_ASSIGNMENTS if name != "__doc__"])


class DocOfWrapped:
    """The `__doc__` of a class whose objects wrap functions: an object's is that of its function, computed on demand.

    Computing it may take long: operators describe themselves, with an example that runs.
    """

    def __init__(self, doc_of_class: str | None) -> None:
        self.doc_of_class = doc_of_class

    def __get__(self, instance: Any, owner: Any = None) -> str | None:
        return self.doc_of_class if instance is None else instance.__wrapped__.__doc__


@_core.keep_vectorcall
class TransformedFunction(_core.Callee):
    """The function that `transform(func, *args, **options)` returns. It calls `target` but has the name of `func`.

    Its signature is also that of `func`. It can be pickled and copied if `func` and the other arguments can.
    """

    __doc__ = DocOfWrapped(__doc__)

    def __init__(
        self, target: Callable[..., Any], transform: Callable[..., Any], func: Any,
        args: tuple[Any, ...], options: dict[str, Any],
    ) -> None:
        if not callable(func):
            name = transform.__name__
            raise DispatchTypeError(f"{name}: the first argument is {_core.a_type(func)}, expected a function\n"
                                    f"write {name}(f)(x), not {name}(f(x))")
        functools.update_wrapper(self, func, NAMES)
        self.target = target
        self._made_by = transform, func, args, options

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def reachable(self) -> tuple[Any, ...]:
        """The functions that a call may reach."""
        return (self.target,)

    def __reduce__(self) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
        if is_found_by_name(self):      # used as a decorator: the name of `func` leads to this object
            return str(vars(self)["__qualname__"])
        return _made_again, self._made_by

    def __repr__(self) -> str:
        transform, func, *_ = self._made_by
        return f"<{transform.__name__} of {getattr(func, '__qualname__', func)}>"


def is_found_by_name(wrapper: Any) -> bool:
    """Return whether the name of a wrapped function leads to its wrapper, as it does after decorating."""
    found: Any = sys.modules.get(str(getattr(wrapper, "__module__", None)))
    for name in str(getattr(wrapper, "__qualname__", "")).split("."):
        found = getattr(found, name, None)
    return found is wrapper


def returned_by(
    transform: Callable[..., Any], func: Callable[..., Any], *args: Any, **options: Any
) -> Callable[[Callable[..., Any]], TransformedFunction]:
    """Return a decorator for the function that the transform returns when called with these arguments."""
    return lambda target: TransformedFunction(target, transform, func, args, options)


def _made_again(
    transform: Callable[..., Any], func: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    return transform(func, *args, **options)
