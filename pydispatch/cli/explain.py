"""`python -m pydispatch explain`: the kernel that a call would run, and why, or the dispatch table."""

# tests: tests/cli/test_main.py
from __future__ import annotations

import argparse
import ast
import re
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch.backends.meta import MetaArray
from pydispatch.cli.console import Plain, Rich
from pydispatch.cli.names import object_named
from pydispatch.debug import dump_table
from pydispatch.debug.describing import parts_of
from pydispatch.exceptions import DispatchError

ARRAY = re.compile(r"\b(?P<wrapper>(?:Tensor:)?(?:meta:)?)(?P<dtype>[a-z]\w*)\[(?P<shape>[\d, ]*)\]")


def run_explain(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """Explain a call with these arguments. Without arguments, print the kernels under each key."""
    op = object_named(arguments.operator)
    if not arguments.values and isinstance(op, (OpOverload, OpOverloadPacket)):
        print_tables(out, op)
        return
    positional, keywords = [], {}
    for text in arguments.values:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            keywords[name] = parse_value(value)
        else:
            positional.append(parse_value(text))
    out.tree(str(op.explain(*positional, **keywords)))


def print_tables(out: Plain | Rich, op: OpOverload | OpOverloadPacket) -> None:
    """Print what each overload has: derivative, batching rule, fake, backends, and the kernel under each key."""
    for overload in op.overloads if isinstance(op, OpOverloadPacket) else (op,):
        out.heading(str(overload.schema))
        for part in parts_of(overload):
            out.line(part)
        out.line("")
        out.line(dump_table(overload).rstrip())


def parse_value(text: str) -> Any:
    """Return the value of a Python literal in which `float64[2,3]` is an array. Other text is a string.

    The array holds ones. `Tensor:float64[3]` is a Tensor over one, `meta:float64[3]` a MetaArray.
    """
    arrays: dict[str, Any] = {}

    def name_of_array(match: re.Match[str]) -> str:
        name = f"array_{len(arrays)}"
        arrays[name] = make_array(**match.groupdict())
        return name

    source = ARRAY.sub(name_of_array, text)
    try:
        return evaluate(ast.parse(source.strip(), mode="eval").body, arrays)
    except (SyntaxError, ValueError):
        if arrays:
            hint = "write a Python literal, which can contain arrays such as float64[2,3]"
            raise DispatchError(f"cannot read {text!r}\n{hint}") from None
        return text


def make_array(wrapper: str, dtype: str, shape: str) -> Any:
    """Return the array for a description such as `float64[2,3]`."""
    extents = tuple(int(extent) for extent in shape.split(",") if extent.strip())
    try:
        array = MetaArray(extents, dtype) if "meta:" in wrapper else np.ones(extents, dtype)
    except TypeError:
        raise DispatchError(f"{dtype!r} is not a dtype of NumPy\nwrite arrays like float64[2,3]") from None
    return _core.Tensor(array) if "Tensor:" in wrapper else array


def evaluate(node: ast.expr, arrays: dict[str, Any]) -> Any:
    """Return the value of a literal that may contain names of arrays."""
    match node:
        case ast.Name(id=name) if name in arrays:
            return arrays[name]
        case ast.List(elts=items):
            return [evaluate(item, arrays) for item in items]
        case ast.Tuple(elts=items):
            return tuple(evaluate(item, arrays) for item in items)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            names = [ast.literal_eval(key) for key in keys if key is not None]
            return dict(zip(names, (evaluate(value, arrays) for value in values), strict=True))
    return ast.literal_eval(node)
