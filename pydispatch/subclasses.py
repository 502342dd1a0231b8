"""Help for subclasses of Tensor that hold other Tensors: flattening them, and results that are arguments or views."""

# tests: tests/subclasses/test_wrappers.py
from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydispatch import _core
from pydispatch._core import OpOverload, Shell, Tensor
from pydispatch._loading import only_public
from pydispatch._registry.operators import schema_of
from pydispatch.exceptions import DispatchTypeError
from pydispatch.schema import Schema
from pydispatch.tree import tree_leaves

__all__ = ["Shell", "flatten", "is_traceable_wrapper", "return_and_correct_aliasing", "unflatten"]
__dir__ = only_public(globals())

T = TypeVar("T", bound=Tensor)


# --- flattening and unflattening -------------------------------------------------------------------------------------


def is_traceable_wrapper(value: object) -> bool:
    """Return whether this is a Tensor whose class defines `__tensor_flatten__` and `__tensor_unflatten__`."""
    cls = type(value)
    return isinstance(value, Tensor) and hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def flatten(tensor: Tensor) -> tuple[dict[str, Any], Any]:
    """Return the inner arrays of a Tensor by name, and the context that `unflatten` also needs.

    Parameters
    ----------
    tensor : Tensor
        An object of a class that defines `__tensor_flatten__` and `__tensor_unflatten__`.

    Returns
    -------
    inner : dict
        The arrays by the names of their attributes.
    context : object
        Everything else that `__tensor_unflatten__` needs.

    Raises
    ------
    DispatchTypeError
        For a class without the protocol, and for one that names an attribute that does not hold an array.
    """
    if not is_traceable_wrapper(tensor):
        raise _no_protocol(type(tensor))
    names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    inner = {name: getattr(tensor, name) for name in names}
    for name, value in inner.items():
        if not _core.is_array(value):
            raise DispatchTypeError(
                f"{type(tensor).__name__}.__tensor_flatten__: the attribute {name} must hold an array, found "
                f"{type(value).__name__}\n"
                "put other values into the context"
            )
    return inner, context


def unflatten(
    cls: type[T], inner: Mapping[str, Any], context: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> T:
    """Return an object of `cls` that holds these inner arrays, as the inverse of `flatten`.

    Parameters
    ----------
    cls : type
        A class that defines `__tensor_unflatten__`.
    inner : mapping
        The arrays by name.
    context : object
        The context that `flatten` returned.
    shape, strides : tuple of int
        Those of the whole.

    Returns
    -------
    Tensor
        The object.

    Raises
    ------
    DispatchTypeError
        For a class without the protocol, and for a result of another class.
    """
    rebuild = getattr(cls, "__tensor_unflatten__", None)
    if rebuild is None:
        raise _no_protocol(cls)
    result = rebuild(inner, context, shape, strides)
    if type(result) is not cls:
        raise DispatchTypeError(
            f"{cls.__name__}.__tensor_unflatten__: expected a {cls.__name__}, found {type(result).__name__}\n"
            f"return {cls.__name__}(...)"
        )
    return result


def _no_protocol(cls: type) -> DispatchTypeError:
    return DispatchTypeError(
        f"{cls.__name__} cannot be flattened\n"
        "define __tensor_flatten__(self) -> (names, context) and, as a static method, __tensor_unflatten__(inner, "
        f"context, shape, strides) -> {cls.__name__}"
    )


# --- results that are arguments, or views of arguments ---------------------------------------------------------------


def return_and_correct_aliasing(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
    """Return `out`, the result of a handler of `func`, with arguments and views as the schema declares them.

    A result that the schema declares to be an argument is replaced by that argument itself. A view shares its memory
    with the argument, for the version counter and for the tape. This also holds if both have a Shell instead of memory.

    Parameters
    ----------
    func : OpOverload
        The operator. If it has no schema, `out` is returned unchanged.
    args, kwargs : tuple, mapping
        The arguments that the handler received.
    out : object
        The computed result.

    Returns
    -------
    object
        The result for the handler to return.

    Raises
    ------
    DispatchTypeError
        For a view whose class differs from that of its argument, if either is a traceable wrapper.
    """
    results = _aliased_results(func)
    if not results:
        return out
    if results[0].alone:
        return results[0].corrected(func, args, kwargs, out)
    values = list(out)
    for result in results:
        values[result.place] = result.corrected(func, args, kwargs, values[result.place])
    return tuple(values)


class _AliasedResult:
    """A result that is an argument, or may share memory with some arguments."""

    __slots__ = ("alone", "arguments", "is_argument", "place")

    def __init__(self, place: int, alone: bool, is_argument: bool, arguments: tuple[tuple[int, str], ...]) -> None:
        self.place = place
        self.alone = alone                  # whether it is the only result
        self.is_argument = is_argument
        self.arguments = arguments          # by position and by name

    def corrected(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> Any:
        place, name = self.arguments[0]
        argument = args[place] if place < len(args) else kwargs.get(name)
        if self.is_argument:
            return value if argument is None else argument
        if len(self.arguments) == 1 and isinstance(argument, Tensor) and type(argument) is type(value):
            _share(value, (argument,))      # the common case
            return value
        sources = self.sources(args, kwargs)
        if sources:
            for view in tree_leaves(value):
                self.check_class(func, view, sources)
                _share(view, sources)
        return value

    def sources(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """Return the Tensors whose memory this result may share."""
        values = [args[place] if place < len(args) else kwargs.get(name) for place, name in self.arguments]
        return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]

    def check_class(self, func: OpOverload, view: Any, sources: list[Tensor]) -> None:
        classes = dict.fromkeys(map(type, sources))
        if type(view) in classes or not any(map(is_traceable_wrapper, (view, *sources))):
            return
        names = " or ".join(name for _, name in self.arguments)
        expected = " or ".join(cls.__name__ for cls in classes)
        raise DispatchTypeError(
            f"operator {func.name}: expected its result, a view of {names}, to be of class {expected}, "
            f"found {type(view).__name__}\nwrap it in the handler: {expected}(...)"
        )


# By the identity of the operator. Its entry is removed with it. A WeakKeyDictionary is four times slower.
_analyses: dict[int, tuple[Schema, tuple[_AliasedResult, ...], weakref.ref[OpOverload]]] = {}


def _aliased_results(func: OpOverload) -> tuple[_AliasedResult, ...]:
    """Return the results that are not fresh, computed once for each schema."""
    known = _analyses.get(id(func))
    if known is not None:
        table = func.live_table
        if table is not None and table.schema is known[0]:
            return known[1]
    if getattr(func, "schema", func) is None:       # a higher-order operator
        return ()
    if not isinstance(func, OpOverload):
        raise DispatchTypeError(
            f"return_and_correct_aliasing: func must be an OpOverload, found {func!r}\n"
            "pass the one that the handler got, such as pydispatch.ops.np.add.default"
        )
    schema, key = schema_of(func), id(func)
    results = tuple(_analyse(schema))
    _analyses[key] = schema, results, weakref.ref(func, lambda _: _analyses.pop(key, None))
    return results


def _analyse(schema: Schema) -> Iterator[_AliasedResult]:
    arguments = schema.arguments
    alone = len(schema.returns) == 1
    for place, result in enumerate(schema.returns):
        written = _core.mutated_argument(arguments, result)
        viewed = _core.aliased_arguments(arguments, result)
        if written >= 0 or viewed:
            places = viewed if written < 0 else (written,)
            yield _AliasedResult(place, alone, written >= 0, tuple((i, arguments[i].name) for i in places))


def _share(view: Any, sources: Sequence[Tensor]) -> None:
    """Set the owner of a view's memory in its Shell. Real arrays know their owner."""
    shell = view.array if isinstance(view, Tensor) else None
    if not isinstance(shell, Shell) or shell.base is not None:
        return
    for source in sources:
        if view is source:
            return
    for source in sources:
        if _may_share(view, source):
            array = source.array
            owner = getattr(array, "base", None)
            shell.base = array if owner is None else owner
            return
    shell.base = object()       # separate memory (None would count as a view, to be safe)


def _may_share(view: Tensor, source: Tensor) -> bool:
    """Return whether two wrappers may share memory: traceable ones by inner arrays of the same name, others always."""
    if not is_traceable_wrapper(view) or (type(source) is not type(view) and not is_traceable_wrapper(source)):
        return True
    for name in view.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
        theirs = getattr(source, name, None)
        if theirs is not None and _core.have_one_memory(getattr(view, name), theirs):
            return True
    return False
