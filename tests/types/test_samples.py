"""Each sample call gives what the stubs of `pydispatch.numpy` say, whichever of its arrays are Tensors."""

import ast
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor
from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.calls import for_each_sample, is_array, mapped, quietly
from tests.numpy.page import WRITTEN_FOR
from tests.numpy.samples import SAMPLES
from tests.numpy.samples.sample import Sample

FOLDER = Path(pnp.__file__).parent
STUBS = {"": "__init__.pyi", "linalg": "linalg.pyi", "fft": "fft.pyi"}
CLASSES = {"Tensor": Tensor, "complex": (int, float, complex), "np.generic": np.generic, "int": int, "str": str,
           "builtins.bool": bool, "_Out": (Tensor, np.ndarray), "NDArray[Any]": np.ndarray}


@functools.cache
def calls_of_universal() -> dict[str, list[ast.FunctionDef]]:
    """Return the calls of each class of universal functions, without `self`."""
    found = {}
    for node in ast.parse((FOLDER.parent / "_stubs" / "universal.pyi").read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Function"):
            calls = [call for each in node.body if isinstance(each, ast.FunctionDef) for call in constrained(each)]
            for call in calls:
                del call.args.posonlyargs[0]
            found[node.name.replace("Function", "Universal")] = calls
    return found


@functools.cache
def overloads_in(module: str) -> dict[str, list[ast.FunctionDef]]:
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse((FOLDER / STUBS[module]).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).extend(constrained(node))
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) in calls_of_universal():
            found[ast.unparse(node.target)] = calls_of_universal()[ast.unparse(node.annotation)]
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in found:  # an alias
            found[ast.unparse(node.targets[0])] = found[node.value.id]
    return found


def constrained(overload: ast.FunctionDef) -> list[ast.FunctionDef]:
    """Return the overload with each constraint of its type variable: `_Array` is a Tensor or a NumPy array."""
    text = ast.unparse(overload)
    return [ast.parse(re.sub(r"\b_Array\b", kind, text)).body[0] for kind in ("Tensor", "NDArray[Any]")]


def is_of(value: Any, hint: ast.expr) -> bool:
    """Return whether a value has the annotated type."""
    text = ast.unparse(hint)
    if text in CLASSES:
        return isinstance(value, CLASSES[text])
    match hint:
        case ast.Name("Any"):
            return True
        case ast.Constant(None):
            return value is None
        case ast.Name("_Raw"):
            return isinstance(value, (np.ndarray, np.generic, int, float, complex))
        case ast.BinOp(left, ast.BitOr(), right):
            return is_of(value, left) or is_of(value, right)
        case ast.Subscript(ast.Name("Literal"), values):
            literal = ast.literal_eval(values)
            return value in (literal if isinstance(literal, tuple) else (literal,))
        case ast.Subscript(ast.Name("Sequence"), item):
            return isinstance(value, (list, tuple)) and all(is_of(each, item) for each in value)
        case ast.Subscript(ast.Name("list"), item):
            return isinstance(value, list) and all(is_of(each, item) for each in value)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([item, ast.Constant(value=dots)])) if dots is ...:
            return isinstance(value, tuple) and all(is_of(each, item) for each in value)
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(items)):
            return isinstance(value, tuple) and len(value) == len(items) and all(map(is_of, value, items))
        case ast.Subscript(ast.Name("tuple"), item):
            return isinstance(value, tuple) and len(value) == 1 and is_of(value[0], item)
        case ast.Subscript(ast.Name(name), item):       # a named tuple
            return type(value).__name__ == name and all(is_of(each, item) for each in value)
    raise AssertionError(f"the stubs have a new kind of type: {text}")


@functools.cache
def binder_of(overload: ast.FunctionDef) -> Callable[..., dict[str, Any]]:
    """Return a function of the same parameters that gives the arguments of a call by name."""
    namespace: dict[str, Any] = {}
    exec(f"from __future__ import annotations\ndef bind({ast.unparse(overload.args)}): return locals()", namespace)
    return namespace["bind"]


def hints_of(overload: ast.FunctionDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Return (argument, its hint). Raise TypeError if the function does not take these arguments."""
    arguments = overload.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    hints: dict[str, Any] = {each.arg: each.annotation for each in every}
    for name, value in binder_of(overload)(*args, **kwargs).items():
        if arguments.vararg is not None and name == arguments.vararg.arg:
            yield from [(each, arguments.vararg.annotation) for each in value]
        elif name in hints and value is not ...:
            yield value, hints[name]


def result_of(overloads: list[ast.FunctionDef], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ast.expr:
    """Return the result of the first one that takes these arguments."""
    for overload in overloads:
        try:
            if all(is_of(value, hint) for value, hint in hints_of(overload, args, kwargs)):
                assert overload.returns is not None
                return overload.returns
        except TypeError:
            continue
    raise AssertionError("the stubs refuse the call")


def ways(sample: Sample) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield the call with arrays, with Tensors, and with each one of its arrays as a Tensor."""
    n = sum(map(is_array, tree_leaves((sample.args, sample.kwargs))))
    for chosen in [set(), set(range(n)), *[{i} for i in range(n)]]:
        numbers = iter(range(n))
        yield mapped(lambda x: Tensor(x.copy()) if next(numbers) in chosen else x.copy(),  # noqa: B023  called at once
                     (sample.args, sample.kwargs))


def without_axes(value: Any) -> Any:
    """Convert NumPy numbers to arrays without axes, which the stubs do not tell apart."""
    return np.asarray(value) if isinstance(value, np.generic) else value


@pytest.mark.skipif(np.__version__.split(".")[:2] != WRITTEN_FOR.split("."), reason="versions add functions")
@for_each_sample([pytest.param(sample) for name, samples in SAMPLES.items() for sample in samples
                  if name.rpartition(".")[0] in STUBS])
def test_calls_give_what_the_stubs_say(sample):
    module, _, name = sample.name.rpartition(".")
    function = getattr(getattr(pnp, module) if module else pnp, name)
    for args, kwargs in ways(sample):
        says = result_of(overloads_in(module)[name], args, kwargs)
        found = quietly(function, args, kwargs)
        arrays = [leaf for leaf in tree_leaves((args, kwargs)) if is_array(leaf)]
        if not any(array.ndim for array in arrays):
            found = tree_map(without_axes, found)
        assert is_of(found, says), (f"{ast.unparse(says)} expected, {type(found).__name__} found, of "
                                    f"{[type(leaf).__name__ for leaf in tree_leaves((args, kwargs))]}")
