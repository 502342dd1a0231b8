"""Help for subclasses of Tensor that hold other Tensors: taking them apart, and results that are arguments or views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from pydispatch import _core
from pydispatch._core import OpOverload, Tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.registry import schema_of
from pydispatch.schema import Schema
from pydispatch.tree import tree_leaves

T = TypeVar("T", bound=Tensor)


# --- taking apart and putting together -------------------------------------------------------------------------------


def is_traceable_wrapper(value: object) -> bool:
    """Is it a Tensor whose class says how to take it apart: `__tensor_flatten__` and `__tensor_unflatten__`?"""
    cls = type(value)
    return isinstance(value, Tensor) and hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def flatten(tensor: Tensor) -> tuple[dict[str, Any], Any]:
    """The inner arrays by name, and the context that `unflatten` needs beside them.

    DispatchTypeError for a class without the protocol, and for one that names an attribute that holds no array.
    """
    if not is_traceable_wrapper(tensor):
        raise _no_protocol(type(tensor))
    names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    inner = {name: getattr(tensor, name) for name in names}
    for name, value in inner.items():
        if not _core.is_array(value):
            raise DispatchTypeError(
                f"{type(tensor).__name__}.__tensor_flatten__: the attribute {name} is to hold an array, "
                f"found {type(value).__name__}\nput what is no array into the context"
            )
    return inner, context


def unflatten(
    cls: type[T], inner: Mapping[str, Any], context: Any, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> T:
    """An object of `cls` of these inner arrays, the inverse of `flatten`; `shape` and `strides` are those of the whole.

    DispatchTypeError for a class without the protocol, and for a result of another class.
    """
    if not hasattr(cls, "__tensor_unflatten__"):
        raise _no_protocol(cls)
    result = cls.__tensor_unflatten__(inner, context, shape, strides)
    if type(result) is not cls:
        raise DispatchTypeError(
            f"{cls.__name__}.__tensor_unflatten__: expected a {cls.__name__}, found {type(result).__name__}\n"
            f"return {cls.__name__}(...)"
        )
    return result


def _no_protocol(cls: type) -> DispatchTypeError:
    return DispatchTypeError(
        f"{cls.__name__} does not say how to take it apart\ndefine __tensor_flatten__(self) -> (names, context) and, "
        f"as a static method, __tensor_unflatten__(inner, context, shape, strides) -> {cls.__name__}"
    )


# --- results that are arguments, or views of arguments ---------------------------------------------------------------


def return_and_correct_aliasing(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Any:
    """What a handler of `func` that computed `out` is to return; `args` and `kwargs` are those that it got.

    A result that the schema says is an argument is that very object. A view shares its memory with the argument, for
    the count of writes and for the tape, also where both hold no memory of their own but a Shell.

    DispatchTypeError for a view whose class differs from that of its argument, if either is a traceable wrapper.
    """
    results = _aliased_results(func)
    if not results:
        return out
    if results[0].alone:
        return _corrected(func, results[0], args, kwargs, out)
    values = list(out)
    for result in results:
        values[result.index] = _corrected(func, result, args, kwargs, values[result.index])
    return tuple(values)


class _AliasedResult(NamedTuple):
    """A result that is an argument, or may share memory with one."""

    index: int
    alone: bool                             # is it the only result?
    written: tuple[int, str] | None         # the argument that it is, by position and by name
    viewed: tuple[tuple[int, str], ...]     # the arguments that it may be a view of


_analyses: WeakKeyDictionary[OpOverload, tuple[Schema, tuple[_AliasedResult, ...]]] = WeakKeyDictionary()


def _aliased_results(func: OpOverload) -> tuple[_AliasedResult, ...]:
    """The results that are not fresh, found out once for each schema."""
    if not isinstance(func, OpOverload):
        raise DispatchTypeError(
            f"return_and_correct_aliasing: func is to be an operator with its overload, found {func!r}\n"
            "pass on what the handler got, such as pydispatch.ops.np.add.default"
        )
    table = func.live_table
    schema = schema_of(func) if table is None else table.schema
    known = _analyses.get(func)
    if known is None or known[0] is not schema:
        known = _analyses[func] = (schema, tuple(_analyse(schema)))
    return known[1]


def _analyse(schema: Schema) -> Iterator[_AliasedResult]:
    arguments = schema.arguments
    alone = len(schema.returns) == 1
    for index, result in enumerate(schema.returns):
        written = _core.mutated_argument(arguments, result)
        viewed = _core.aliased_arguments(arguments, result)
        if written >= 0:
            yield _AliasedResult(index, alone, (written, arguments[written].name), ())
        elif viewed:
            yield _AliasedResult(index, alone, None, tuple((position, arguments[position].name) for position in viewed))


def _corrected(
    func: OpOverload, result: _AliasedResult, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any
) -> Any:
    if result.written is not None:
        argument = _argument(result.written, args, kwargs)
        return value if argument is None else argument
    sources = [
        leaf for place in result.viewed for leaf in _leaves(_argument(place, args, kwargs)) if isinstance(leaf, Tensor)
    ]
    if sources:
        for view in _leaves(value):
            _check_class(func, view, sources, result.viewed)
            _share(view, sources)
    return value


def _argument(place: tuple[int, str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    position, name = place
    return args[position] if position < len(args) else kwargs.get(name)


def _leaves(value: Any) -> tuple[Any, ...] | list[Any]:
    """The arrays of an argument or a result, containers apart."""
    return (value,) if isinstance(value, Tensor) else tree_leaves(value)


def _check_class(func: OpOverload, view: Any, sources: list[Tensor], viewed: tuple[tuple[int, str], ...]) -> None:
    classes = {type(source): None for source in sources}
    if type(view) in classes or not (is_traceable_wrapper(view) or any(map(is_traceable_wrapper, sources))):
        return
    names = " or ".join(name for _, name in viewed)
    expected = " or ".join(cls.__name__ for cls in classes)
    raise DispatchTypeError(
        f"operator {func.name}: expected its result, a view of {names}, to be of class {expected}, "
        f"found {type(view).__name__}\nwrap it in the handler: {expected}(...)"
    )


def _share(view: Any, sources: list[Tensor]) -> None:
    """Say in the Shell of a view whose memory it is; arrays that are real say so themselves."""
    shell = getattr(view, "array", None)
    if not isinstance(shell, _core.Shell) or shell.base is not None:
        return
    for source in sources:
        if view is source:
            return
        if _may_share(view, source):
            owner = getattr(source.array, "base", None)
            owner = source.array if owner is None else owner
            if owner is not shell:
                shell.base = owner
            return


def _may_share(view: Tensor, source: Tensor) -> bool:
    """Wrappers that can be taken apart share memory when two inner arrays of the same name do; others may, always."""
    if not (is_traceable_wrapper(view) and is_traceable_wrapper(source)):
        return True
    ours, theirs = flatten(view)[0], flatten(source)[0]
    return any(_core.have_one_memory(ours[name], theirs[name]) for name in ours.keys() & theirs.keys())
