"""Inference of schemas from the annotations of functions."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from pydispatch.exceptions import SchemaError
from pydispatch.schema.annotations import Evaluate, UnmappedError, evaluator, type_of, types_of_results
from pydispatch.schema.base_types import TENSOR, TensorType, Type
from pydispatch.schema.checks import tags_of, written_names
from pydispatch.schema.compound_types import DictType, ListType, OptionalType, TupleType, UnionType, without_none
from pydispatch.schema.frozen import described, same_value, short_repr
from pydispatch.schema.model import MAX_ARGUMENTS, AliasInfo, Argument, Return, Schema, alias_of_list
from pydispatch.schema.names import OperatorName
from pydispatch.schema.parser import parse_signature
from pydispatch.schema.scanner import RESERVED_WORDS, is_identifier

_KINDS_REFUSED: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "positional-only",
    inspect.Parameter.VAR_POSITIONAL: "variadic",
    inspect.Parameter.VAR_KEYWORD: "variadic",
}


def infer_schema(
    fn: Callable[..., Any], *, mutates_args: Iterable[str] = (), name: OperatorName | str | None = None,
    tags: Iterable[str] = (),
) -> Schema:
    """Return the schema of a fully annotated function.

    Results are assumed to share no memory with the arguments, unless a tag specifies otherwise.

    Parameters
    ----------
    fn
        The function.
    mutates_args
        The names of the parameters that the function writes to, which are arrays or lists of arrays. "unknown" means
        all of them.
    name
        The name of the schema. Without it, the schema has no name.
    tags
        Tags of the operator. With "inplace", the first argument is written to and returned. With "out", the
        keyword-only arguments are.

    Returns
    -------
    Schema
        The inferred schema.

    Raises
    ------
    SchemaError
        If a parameter or return has no annotation, or one without a schema type. Also if a schema cannot express a
        default.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch.library import infer_schema
    >>> def scale(x: np.ndarray, by: float = 2.0) -> np.ndarray:
    ...     return x * by
    >>> print(infer_schema(scale, mutates_args=(), name="ns::scale"))
    ns::scale(Tensor x, float by=2.0) -> Tensor
    """
    where = f"function {getattr(fn, '__qualname__', None) or repr(fn)}"
    signature = _signature(where, fn)
    mutates_args = written_names(where, mutates_args, signature.parameters)
    if len(signature.parameters) > MAX_ARGUMENTS:
        raise SchemaError(f"{where}: more than {MAX_ARGUMENTS} parameters\nTake a list: `xs: list[np.ndarray]`")
    evaluate = evaluator(fn)
    arguments = [
        _argument(where, position, parameter, mutates_args, evaluate)
        for position, parameter in enumerate(signature.parameters.values())
    ]
    returns = _returns(where, signature, evaluate)
    for tag in tags_of(where, tags):
        returns = _tagged_returns(where, tag, arguments, returns)
    schema = Schema(None, arguments, returns)
    return schema if name is None else schema.with_name(name)


def _signature(where: str, fn: Any) -> inspect.Signature:
    if not callable(fn):
        raise SchemaError(
            f"infer_schema: argument fn is {described(fn)}, expected a function\n"
            "Pass one with annotations: `def f(x: np.ndarray) -> np.ndarray`"
        )
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        raise SchemaError(f"{where}: Python finds no signature\nGive the schema as a string") from None


def _tagged_returns(where: str, tag: str, arguments: list[Argument], returns: list[Return]) -> list[Return]:
    """Return the returns that this tag implies: the arguments that are written to."""
    if tag == "inplace":
        written = _written_in_place(f"{where} is tagged `inplace`", arguments)
    elif tag == "out":
        written = _written_as_out(f"{where} is tagged `out`", arguments)
    else:
        return returns
    array = "np.ndarray"
    expected = array if len(written) == 1 else f"tuple[{', '.join([array] * len(written))}]"
    if [result.type for result in returns] != [TENSOR] * len(written):
        raise SchemaError(
            f"{where} is tagged `{tag}`, but its return annotation is not that of the arguments written to\n"
            f"Annotate it: `-> {expected}`"
        )
    return [Return("", TENSOR, None, argument.alias) for argument in written]


def _written_in_place(where: str, arguments: list[Argument]) -> list[Argument]:
    if not arguments or arguments[0].kw_only:
        raise SchemaError(f"{where}, but has no positional parameter\nTake the array first: `x: np.ndarray`")
    first = arguments[0]
    if first.type != TENSOR:
        raise SchemaError(
            f"{where}, but its first positional argument {first.name!r} is {first.type}\n"
            f"Annotate it: `{first.name}: np.ndarray`"
        )
    if [argument for argument in arguments if argument.mutable] != [first]:
        raise SchemaError(
            f"{where}, but mutates_args does not name exactly its first argument\nPass mutates_args=({first.name!r},)"
        )
    return [first]


def _written_as_out(where: str, arguments: list[Argument]) -> list[Argument]:
    written = [argument for argument in arguments if argument.mutable]
    if not written:
        raise SchemaError(f"{where}, but writes to nothing, expected at least one argument\nName it in mutates_args")
    for argument in written:
        if not argument.kw_only:
            raise SchemaError(
                f"{where}, but {argument.name!r}, which it writes to, is not keyword-only\nPut a `*` before it"
            )
        if argument.type != TENSOR:
            raise SchemaError(
                f"{where}, but {argument.name!r} is {argument.type}: the tag only supports Tensor\n"
                f"Annotate it: `{argument.name}: np.ndarray`"
            )
    return written


def _argument(
    where: str, position: int, parameter: inspect.Parameter, mutates_args: Collection[str], evaluate: Evaluate
) -> Argument:
    name = parameter.name
    where = f"{where}: parameter {name!r}"
    if parameter.kind in _KINDS_REFUSED:
        remedy = "Write out each parameter, without `/`, `*args` and `**kwargs`"
        raise SchemaError(f"{where} is {_KINDS_REFUSED[parameter.kind]}\n{remedy}")
    if not is_identifier(name) or name in RESERVED_WORDS:
        raise SchemaError(f"{where} is not a name that a schema can spell\nGive it another name")
    if parameter.annotation is parameter.empty:
        raise SchemaError(f"{where} has no annotation\nAnnotate it: `{name}: np.ndarray`")
    try:
        type = type_of(parameter.annotation, evaluate)
    except UnmappedError as error:
        raise _unmapped(where, parameter.annotation, error) from None
    alias = None
    if _holds_tensors(type) if mutates_args == "unknown" else name in mutates_args:
        alias = _written(where, type, f"a{position}")
    kw_only = parameter.kind is parameter.KEYWORD_ONLY
    argument = Argument(name, type, kw_only=kw_only, alias=alias)
    if parameter.default is parameter.empty:
        return argument
    return Argument(name, type, None, _default(where, argument, parameter.default), kw_only, alias)


def _default(where: str, argument: Argument, default: Any) -> Any:
    """Return the default, converted to the argument's type. Raise SchemaError if a schema cannot express it."""
    try:
        value = argument.convert(default)
    except (TypeError, ValueError) as error:
        remedy = "Change the annotation or the default"
        raise SchemaError(f"{where} cannot have its default: {error}\n{remedy}") from None
    text = str(Argument(argument.name, argument.type, None, value))
    try:
        is_spelled = same_value(parse_signature(f"({text}) -> ()").arguments[0].default, value)
    except SchemaError:
        is_spelled = False
    if not is_spelled:
        raise SchemaError(
            f"{where} has the default {short_repr(default)}, which a schema cannot express\n"
            f"Write `{argument.name}=None`, and choose the value inside the function"
        )
    return value


def _holds_tensors(type: Type) -> bool:
    match type:
        case TensorType():
            return True
        case OptionalType() | ListType():
            return _holds_tensors(type.inner)
        case DictType():
            return _holds_tensors(type.value)
        case UnionType():
            return any(map(_holds_tensors, type.members))
        case TupleType():
            return any(map(_holds_tensors, type.items))
    return False


def _written(where: str, type: Type, name: str) -> AliasInfo | None:
    """Return the alias annotation of an argument whose arrays are written to."""
    inner = without_none(type)
    if isinstance(inner, ListType):
        return alias_of_list(_written(where, inner.inner, name))
    if not _holds_tensors(inner) or isinstance(inner, TupleType):
        remedy = "Annotate it as np.ndarray or list[np.ndarray]"
        problem = f"is in mutates_args, but its type is {type}: only arrays and lists of arrays can be mutated"
        raise SchemaError(f"{where} {problem}\n{remedy}")
    return AliasInfo(frozenset((name,)), True)


def _returns(where: str, signature: inspect.Signature, evaluate: Evaluate) -> list[Return]:
    if signature.return_annotation is signature.empty:
        raise SchemaError(f"{where}: the return has no annotation\nAnnotate it: `-> np.ndarray`, or `-> None`")
    try:
        return [Return("", type) for type in types_of_results(signature.return_annotation, evaluate)]
    except UnmappedError as error:
        raise _unmapped(f"{where}: the return", signature.return_annotation, error) from None


def _unmapped(where: str, annotation: Any, error: UnmappedError) -> SchemaError:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return SchemaError(f"{where} is annotated {text!r}: no schema type matches\n{error}")


def infer_kernel_schema(fn: Callable[..., Any], *, with_keyset: bool = False) -> Schema | None:
    """Infer the schema of a kernel from its annotations: arguments ``_0``, ``_1``, ..., without defaults.

    Keyword-only parameters keep their names, because kernels may order them freely. Returns None if an annotation is
    missing or has no schema type. With `with_keyset`, the first parameter is the key set and is not counted.
    """
    function = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if not isinstance(function, types.FunctionType):
        return None
    try:
        annotations = function.__annotations__
    except NameError:  # CPython 3.14 and later evaluate annotations here
        return None
    code = function.__code__
    if "return" not in annotations or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return None
    first = (function is not fn) + with_keyset
    positional = code.co_varnames[first : code.co_argcount]
    keywords = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    if not annotations.keys() >= {*positional, *keywords}:
        return None
    evaluate = evaluator(function)
    try:
        types_of = {name: type_of(annotations[name], evaluate) for name in (*positional, *keywords)}
        returns = [Return("", type) for type in types_of_results(annotations["return"], evaluate)]
    except UnmappedError:
        return None
    arguments = [Argument(f"_{i}", types_of[name]) for i, name in enumerate(positional)]
    arguments += [Argument(name, types_of[name], kw_only=True) for name in keywords]
    return Schema(None, arguments, returns)
