"""Derivatives: what users write as formulas or functions, and how it is compiled for the tape.

The names of a formula's parameters say what it needs:

    parameter             means
    the first one         the gradient of the result; in `jvp`, the tangent of the formula's argument
    <argument>            that argument of the schema, or its default if it was not passed
    <argument>_shape      the shape of that argument; of a list, one shape per element
    <argument>_dtype      its dtype, likewise
    result                what the operator returned, a tuple of several results

The gradient of several results is a tuple, with None for a result that took no part; the gradient of a list of arrays
has zeros there. Everything that the formulas of an operator name, except their first parameters, is a residual of its
nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydispatch import _core
from pydispatch._core import Derivative, OpOverload
from pydispatch.exceptions import AutogradError, NoDerivativeError
from pydispatch.registry.fused_formulas import fused_formulas_of
from pydispatch.schema import OperatorName, Schema, Type

VALUE, RESULT, SHAPE, DTYPE = range(4)
METADATA = {"_shape": SHAPE, "_dtype": DTYPE}

Residual = tuple[int, int]      # (kind, position of the argument)


class Joint(NamedTuple):
    """One formula for the gradients of all arguments, which it returns as a tuple: for gradients that share work."""

    formula: Callable[..., Any]


_IDENTITY: Any = (lambda g: g).__code__


class CustomDerivative:
    """How one operator is differentiated by functions of users.

    `name` is the name of its nodes. An incomplete derivative has a `missing` message, which is raised at the call if it
    `refuses_calls`, else at backward.
    """

    name = "CustomBackward"
    missing: str | None = None
    refuses_calls = True
    functions: tuple[Any, ...] = ()         # the functions of the user
    direct: tuple[Any, Any] | None = None   # (setup, backward) of the user, where they can be called directly
    derived: Any = None     # operators for a batch of calls, which library.derived makes

    # ctx is a Context, or an autograd.examples.ExampleContext, which replaces it for one example of a batch

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Save the residuals, after the forward call. `values` has one entry per argument, defaults filled in."""

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> Sequence[Any]:
        """From one gradient per result to one per argument."""
        raise NoDerivativeError(self.missing or f"{self.name} has no backward function")

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        """From one tangent per argument to one per result; None is zero."""
        raise NoDerivativeError(
            f"{self.name.removesuffix('Backward')} has no jvp\n"
            "give it one: register_autograd(..., jvp=...), or a jvp staticmethod; or differentiate in reverse mode"
        )

    def check(self) -> None:
        """Raise when the derivative no longer fits its operator."""


def compile_derivative(op: OpOverload, schema: Schema, source: Any) -> Any:
    """The Derivative of a declaration, or the CustomDerivative itself; None if the results are never tracked.

    Raises NoDerivativeError when the operator has none.
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
    if source.variant == "out":
        raise AutogradError(
            f"operator {op.name}: variants with out= don't support automatic differentiation, and an argument requires "
            f"grad\ncall ops.np.{op.name.name}(...), which returns a new Tensor, or write inside of no_grad()"
        )
    if source.vjp is None:
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
    if forward is not None and not isinstance(forward, str):
        forward = _laid_out(op, names, arrays, forward, schema, source)
    return _laid_out(op, names, arrays, source.vjp, schema, source, forward)


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
        joint=joint, materializes=len(schema.returns) == 1,
    )


def _known(formula: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """The formula, or `_core.identity` for one that returns its argument: the engine need not call that."""
    code = getattr(formula, "__code__", None)
    same = code is not None and code.co_code == _IDENTITY.co_code and code.co_argcount == 1
    return _core.identity if same else formula


def _is_list(kind: Type) -> bool:
    """Does an argument of this type hold several arrays?"""
    return str(kind).rstrip("?") not in ("Tensor", "Any")


def _as_tuple(formulas: Any) -> tuple[Callable[..., Any] | None, ...]:
    return formulas if isinstance(formulas, tuple) else (formulas,)


def parameters_of(formula: Any) -> tuple[str, ...]:
    """The names of the parameters of a function in Python, or of one in C whose documentation begins with them."""
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
        f"operator {op.name}: a formula takes {name!r}, which is no argument ({', '.join(names)}), and not `result`\n"
        "name its parameters after what it needs: arguments, their shapes and dtypes as in x_shape, or result"
    )


def node_name(operator: OperatorName) -> str:
    """The name of an operator's nodes: "BroadcastToBackward" for broadcast_to."""
    words = f"{operator.name}_{operator.overload}".split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + "Backward"


_core.connect(compile_derivative=compile_derivative)
