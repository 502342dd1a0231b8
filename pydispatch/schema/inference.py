"""The schema that a function's annotations say."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Collection
from typing import Any, Final

from pydispatch.exceptions import SchemaError
from pydispatch.schema.annotations import Evaluate, UnmappedError, evaluator, type_of, types_of_results
from pydispatch.schema.base_types import TensorType, Type
from pydispatch.schema.container_types import DictType, ListType, OptionalType, TupleType, UnionType, without_none
from pydispatch.schema.model import MAX_ARGUMENTS, AliasInfo, Argument, Return, Schema, alias_of_list
from pydispatch.schema.names import OperatorName
from pydispatch.schema.parser import parse_signature
from pydispatch.schema.scanner import RESERVED_WORDS, is_identifier
from pydispatch.schema.values import same_value, short_repr

_KINDS_REFUSED: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "positional-only",
    inspect.Parameter.VAR_POSITIONAL: "variadic",
    inspect.Parameter.VAR_KEYWORD: "variadic",
}


def infer_schema(
    fn: Callable[..., Any], *, mutates_args: Collection[str] = (), name: OperatorName | str | None = None
) -> Schema:
    """The schema of a fully annotated function; without `name` it has none.

    `mutates_args` names the parameters that the function writes to, arrays or lists of arrays; "unknown" stands for all
    of these. Results are taken to share no memory with the arguments. SchemaError for a parameter or return without an
    annotation, or with one that no schema type stands for, and for a default that no schema can spell.
    """
    where = f"function {getattr(fn, '__qualname__', None) or repr(fn)}"
    signature = inspect.signature(fn)
    _check_mutates_args(where, mutates_args, signature.parameters)
    if len(signature.parameters) > MAX_ARGUMENTS:
        raise SchemaError(f"{where}: more than {MAX_ARGUMENTS} parameters\nTake a list: `xs: list[np.ndarray]`")
    evaluate = evaluator(fn)
    arguments = [
        _argument(where, position, parameter, mutates_args, evaluate)
        for position, parameter in enumerate(signature.parameters.values())
    ]
    schema = Schema(None, arguments, _returns(where, signature, evaluate))
    return schema if name is None else schema.with_name(name)


def _check_mutates_args(where: str, mutates_args: Collection[str], parameters: Collection[str]) -> None:
    if mutates_args == "unknown":
        return
    if isinstance(mutates_args, str):
        raise SchemaError(f"{where}: mutates_args is a text, {mutates_args!r}\nPass a tuple: ({mutates_args!r},)")
    for written in mutates_args:
        if written not in parameters:
            known = ", ".join(parameters)
            raise SchemaError(f"{where}: mutates_args names {written!r}, not a parameter\nParameters: {known}")


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
    """The default as the argument's type, if a schema can spell it."""
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
            f"{where} has the default {short_repr(default)}, which a schema cannot spell\n"
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
    """The annotation of an argument whose arrays are written to."""
    inner = without_none(type)
    if isinstance(inner, ListType):
        return alias_of_list(_written(where, inner.inner, name))
    if not _holds_tensors(inner) or isinstance(inner, TupleType):
        remedy = "Only arrays and lists of arrays can be written to: annotate it np.ndarray or list[np.ndarray]"
        raise SchemaError(f"{where} is in mutates_args, but its type is {type}\n{remedy}")
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
    return SchemaError(f"{where} is annotated {text!r}, which no schema type stands for\n{error}")


def infer_kernel_schema(fn: Callable[..., Any], *, with_keyset: bool = False) -> Schema | None:
    """What the annotations of a kernel say: arguments ``_0``, ``_1``, ..., no defaults.

    Keyword-only parameters keep their names, because kernels may order them as they like. None when an
    annotation is missing, or no schema type stands for it. `with_keyset`: the first parameter is the key set
    and not counted.
    """
    function = fn.__func__ if isinstance(fn, types.MethodType) else fn
    if not isinstance(function, types.FunctionType):
        return None
    try:
        annotations = function.__annotations__
    except NameError:  # since CPython 3.14 they are evaluated here
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
