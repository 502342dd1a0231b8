"""The functions that transforms return: called without a frame in between, pickled as the call that made them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from pydispatch import _core
from pydispatch.exceptions import DispatchTypeError

NAMES = tuple([name for name in functools.WRAPPER_ASSIGNMENTS if name != "__doc__"])


class DocOfWrapped:
    """The `__doc__` of a class whose objects wrap functions: theirs is the function's, which may take long to make.

    Operators describe themselves, with an example that runs.
    """

    def __init__(self, doc_of_class: str | None) -> None:
        self.doc_of_class = doc_of_class

    def __get__(self, instance: Any, owner: Any = None) -> str | None:
        return self.doc_of_class if instance is None else instance.__wrapped__.__doc__


@_core.keep_vectorcall
class TransformedFunction(_core.Callee):
    """What `transform(func, *args, **options)` returns. It calls `target`; its name and signature are those of `func`.

    It can be pickled, and copied, where `func` and the other arguments can.
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

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _made_again, self._made_by

    def __repr__(self) -> str:
        transform, func, *_ = self._made_by
        return f"<{transform.__name__} of {getattr(func, '__qualname__', func)}>"


def returned_by(
    transform: Callable[..., Any], func: Callable[..., Any], *args: Any, **options: Any
) -> Callable[[Callable[..., Any]], TransformedFunction]:
    """A decorator for the function that the transform returns when it is called with these arguments."""
    return lambda target: TransformedFunction(target, transform, func, args, options)


def _made_again(
    transform: Callable[..., Any], func: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    return transform(func, *args, **options)
