"""A check that stubtest lacks: methods of Tensor that forward take the arguments of their operators."""

import ast
from pathlib import Path

import pytest

from pydispatch import _core, ops
from pydispatch.tensor import METHODS

STUB = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text())
TENSOR = next(node for node in STUB.body if isinstance(node, ast.ClassDef) and node.name == "Tensor")
STUBBED = {node.name: node.args for node in TENSOR.body if isinstance(node, ast.FunctionDef)}


def parameters(arguments: ast.arguments) -> list[tuple[str, bool, bool]]:
    """Return (name, keyword-only, has a default) of the parameters after self."""
    required = len(arguments.args) - len(arguments.defaults)
    positional = [(argument.arg, False, i >= required) for i, argument in enumerate(arguments.args)]
    by_keyword = [
        (argument.arg, True, default is not None)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return (positional + by_keyword)[1:]


@pytest.mark.parametrize("method", METHODS)
def test_a_forwarded_method_has_the_arguments_of_its_operator(method):
    schema = getattr(ops.np, METHODS[method]).default.schema
    expected = [(argument.name, argument.kw_only, argument.has_default) for argument in schema.arguments[1:]]
    assert parameters(STUBBED[method]) == expected
