"""Derivatives: formulas and functions that users register, and how they are compiled for the tape.

The names of a formula's parameters determine the values that it gets:

    parameter             value
    the first one         The gradient of the result. In `jvp`, the tangent of the formula's argument.
    <argument>            That argument of the schema, or its default if it was not passed.
    <argument>_shape      The shape of that argument. For a list, one shape per element.
    <argument>_dtype      The dtype of that argument. For a list, one dtype per element.
    result                The result of the operator. A tuple of several results.

The gradient of several results is a tuple, with None for a result without a gradient. The gradient of a list of arrays
has zeros there. Each parameter that an operator's formulas name, except the first one, is a residual of its nodes.
"""

# tests: tests/operators/test_derivatives.py
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydispatch import _core
from pydispatch._core import Derivative, OpOverload
from pydispatch._registry.fused_formulas import fused_formulas_of
from pydispatch.exceptions import NoDerivativeError
from pydispatch.schema import OperatorName, Schema
from pydispatch.schema.base_types import Type

VALUE, RESULT, SHAPE, DTYPE = range(4)
METADATA = {"_shape": SHAPE, "_dtype": DTYPE}

Residual = tuple[int, int]      # (kind, position of the argument)


class Joint(NamedTuple):
    """A formula that returns the gradients of all arguments as a tuple, for gradients that share work."""

    formula: Callable[..., Any]


_IDENTITY: Any = (lambda g: g).__code__


class CustomDerivative:
    """A derivative of one operator by users' functions.

    `name` is the name of its nodes. An incomplete derivative has a `missing` message, which is raised at the call if
    `refuses_calls` is set, and else in the backward pass.
    """

    name = "CustomBackward"
    missing: str | None = None
    refuses_calls = True
    functions: tuple[Any, ...] = ()         # the functions of the user
    direct: tuple[Any, Any] | None = None   # (setup, backward) of the user, where they can be called directly
    derived: Any = None     # the derived operators for a batch of calls, made by library.derived

    # ctx is a Context, or an autograd.examples.ExampleContext, which replaces it for one example of a batch

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Save the residuals after the forward call. `values` has one entry per argument, with defaults filled in."""

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> Sequence[Any]:
        """Return one gradient per argument, given one gradient per result."""
        raise NoDerivativeError(self.missing or f"{self.name} has no backward function")

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        """Return one tangent per result, given one tangent per argument. None is a zero tangent."""
        raise NoDerivativeError(
            f"{self.name.removesuffix('Backward')} has no jvp\n"
            "give it one by register_autograd(..., jvp=...) or a jvp staticmethod, or differentiate in reverse mode"
        )

    def check(self) -> None:
        """Raise an error if the derivative no longer fits its operator."""


def compile_derivative(op: OpOverload, schema: Schema, source: Any) -> Any:
    """Compile a declaration to a Derivative, or return a CustomDerivative unchanged.

    Returns None if the results are never tracked. Raises NoDerivativeError if the operator has no derivative.
    """
    if source is None:
        return _without_derivative(op, schema)
    if isinstance(source, CustomDerivative):
        if source.missing and source.refuses_calls:
            raise NoDerivativeError(source.missing)
        source.check()
        return source
    if not source.differentiable:
        return None
    if source.vjp is None or source.variant == "out":       # out= variants are differentiated as composites only
        raise NoDerivativeError(f"operator {op.name} has no derivative\n"
                                "detach the argument that requires grad: tensor.detach()")
    return make_derivative(op, schema, source)


def _without_derivative(op: OpOverload, schema: Schema) -> None:
    if not any(result.type.contains_arrays for result in schema.returns) and not any(
        argument.mutable for argument in schema.arguments
    ):
        return
    name = str(op.name)
    raise NoDerivativeError(
        f"Autograd has not been implemented for operator {name}: an argument requires grad and there is no formula\n"
        f'register one: pydispatch.library.register_autograd("{name}", backward), or pass tensor.detach()'
    )


def make_derivative(op: OpOverload, schema: Schema, source: Any) -> Derivative:
    """Compile the formulas of a declaration into a Derivative."""
    names = [argument.name for argument in schema.arguments]
    arrays = [i for i, argument in enumerate(schema.arguments) if argument.type.contains_arrays]
    forward = source.jvp
    if forward is None:
        forward = "transposed" if is_transposed(source) else None
    elif not isinstance(forward, str):
        forward = _laid_out(op, names, arrays, forward, schema, source)
    return _laid_out(op, names, arrays, source.vjp, schema, source, forward)


def is_transposed(source: Any) -> bool:
    """Return whether tangents are computed by transposing the formulas for gradients.

    Formulas that broadcast serve for both modes as they are.
    """
    return source.jvp is None and (isinstance(source.vjp, Joint) or not source.broadcasts)


def _laid_out(
    op: OpOverload, names: list[str], arrays: list[int], given: Any, schema: Schema, source: Any, forward: Any = None
) -> Derivative:
    joint = isinstance(given, Joint)
    formulas = dict.fromkeys(arrays, given.formula) if joint else dict(zip(arrays, _as_tuple(given), strict=False))
    residuals: list[Residual] = []
    inputs: list[tuple[int, ...]] = []
    for i in range(len(names)):
        formula = formulas.get(i)
        wanted = [] if formula is None else [_residual_of(op, name, names) for name in parameters_of(formula)[1:]]
        residuals += [residual for residual in wanted if residual not in residuals]
        inputs.append(tuple(residuals.index(residual) for residual in wanted))
    return Derivative(
        name=node_name(op.name), operator=op, formulas=tuple(_known(formulas.get(i)) for i in range(len(names))),
        inputs=tuple(inputs), residuals=tuple(residuals), broadcasts=source.broadcasts,
        in_place=source.variant == "inplace",
        lists=sum(1 << i for i in arrays if _is_list(schema.arguments[i].type)), source=source,
        fused=fused_formulas_of(str(op.name), tuple(formulas.get(i) for i in range(len(names)))), forward=forward,
        joint=joint, materializes=len(schema.returns) == 1, is_checked=op.name.namespace != "np",
    )


def _known(formula: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Return the formula, or `_core.identity` for one that returns its argument. The engine does not call it."""
    code = getattr(formula, "__code__", None)
    same = code is not None and code.co_code == _IDENTITY.co_code and code.co_argcount == 1
    return _core.identity if same else formula


def _is_list(kind: Type) -> bool:
    """Return whether an argument of this type can hold several arrays."""
    return str(kind).rstrip("?") not in ("Tensor", "Any")


def _as_tuple(formulas: Any) -> tuple[Callable[..., Any] | None, ...]:
    return formulas if isinstance(formulas, tuple) else (formulas,)


def parameters_of(formula: Any) -> tuple[str, ...]:
    """Return the names of the parameters of a Python function, or of a C function that has a text signature."""
    code: Any = getattr(formula, "__code__", None)
    if code is None:
        return tuple(str(formula.__text_signature__)[1:-1].split(", "))
    return tuple(code.co_varnames[:code.co_argcount])


def _residual_of(op: OpOverload, name: str, names: list[str]) -> Residual:
    if name in names:
        return VALUE, names.index(name)
    if name == "result":
        return RESULT, 0
    for suffix, kind in METADATA.items():
        if name.endswith(suffix) and name.removesuffix(suffix) in names:
            return kind, names.index(name.removesuffix(suffix))
    raise NoDerivativeError(
        f"operator {op.name}: a formula takes {name!r}, expected an argument ({', '.join(names)}) or `result`\n"
        "name its parameters after what it needs: arguments, their shapes and dtypes as in x_shape, or result"
    )


def node_name(operator: OperatorName) -> str:
    """Return the name of an operator's nodes, such as "BroadcastToBackward" for broadcast_to."""
    words = f"{operator.name}_{operator.overload}".split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + "Backward"


_core.connect(compile_derivative=compile_derivative)
