"""The derivatives of operators that are differentiated by users' functions.

There are two kinds. `NamedDerivative` returns gradients by name, with the residuals as one object. `ContextDerivative`
returns them by position, with a context.
"""

# tests: tests/library/test_custom_operator.py
from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import Any, NoReturn

from pydispatch import _core
from pydispatch._core import OpOverload, Tensor
from pydispatch._registry import registrations
from pydispatch._registry.derivatives import CustomDerivative, node_name
from pydispatch._registry.operators import schema_of
from pydispatch.autograd.examples import split_for_numpy
from pydispatch.autograd.transposing import Results, refuse_once_differentiable, transposed
from pydispatch.autograd.values import as_tensor
from pydispatch.exceptions import AutogradError, NoDerivativeError, SchemaError
from pydispatch.library.checks import check_role, gradient_names, is_list_of_arrays
from pydispatch.schema import OperatorName, Schema
from pydispatch.schema.base_types import ANY
from pydispatch.schema.compound_types import without_none
from pydispatch.tree import is_pytree_node_type, tree_flatten, tree_leaves, tree_map, tree_unflatten


class DifferentiableArguments:
    """The arguments of an operator, sorted by how they take part in differentiation."""

    def __init__(self, op: OpOverload) -> None:
        self.operator = op
        self.definition = registrations.definition_of(op)
        schema = schema_of(op)
        self.names = [argument.name for argument in schema.arguments]
        self.n_positional = sum(not argument.kw_only for argument in schema.arguments)
        self.holds_arrays = [argument.type.contains_arrays for argument in schema.arguments]
        self.lists = {i for i, argument in enumerate(schema.arguments) if is_list_of_arrays(argument.type)}
        self.n_returns = len(schema.returns)
        self.has_defaults = any(argument.has_default and not argument.kw_only for argument in schema.arguments)

    def check(self) -> None:
        """Raise AutogradError if the operator has another schema now."""
        if self.definition is None or not self.definition.active:
            raise AutogradError(
                f"operator {self.operator.name} was redefined after its autograd formula was registered\n"
                "register the formula again, for the new definition"
            )


class MissingDerivative(CustomDerivative):
    """The derivative of an operator that has no formula. It raises when a formula is needed."""

    def __init__(self, op: OpOverload, missing: str, *, refuses_calls: bool) -> None:
        self.name = node_name(op.name)
        self.missing = missing
        self.refuses_calls = refuses_calls

    def jvp(self, ctx: Any, tangents: Sequence[Any]) -> NoReturn:
        """Raise NoDerivativeError."""
        raise NoDerivativeError(self.missing)


class _Nothing:
    """The `ctx` of formulas by name. It has no attributes, and none can be set."""

    __slots__ = ()


NO_CONTEXT = _Nothing()
ARRAY, PYTREE = "array", "pytree"
_TENSOR = object()      # replaces a saved Tensor, which the tape keeps


class NamedDerivative(CustomDerivative):
    """A derivative by name, made of `save(inputs, output)` and `backward(ctx, saved, *grads)`.

    `save` returns the residuals. `backward` returns a dict: argument -> gradient. `inputs` is a named tuple of the
    arguments. `differentiable` specifies for each result whether it is differentiable. None means every result that
    can be. Forward mode transposes backward. Raises RegistrationError if a function cannot be called like this, and
    SchemaError if the name of an argument cannot be a field.
    """

    def __init__(
        self, op: OpOverload, save: Callable[..., Any], backward: Callable[..., Any],
        differentiable: Sequence[bool] | None, backward_site: str,
    ) -> None:
        self.name = node_name(op.name)
        schema = schema_of(op)
        self._arguments = DifferentiableArguments(op)
        self._inputs = inputs_type(op.name, schema)
        self._keys = [a.name for a in schema.arguments if a.type.contains_arrays and without_none(a.type) != ANY]
        self._untyped = [i for i, argument in enumerate(schema.arguments) if without_none(argument.type) == ANY]
        self._save = save
        self._backward = backward
        self._run_backward = split_for_numpy(f"backward of operator {op.name}", backward)
        self.functions = (save, backward)
        self.given = save, backward, differentiable, backward_site
        self._differentiable = differentiable
        self._backward_site = backward_site

    def setup(self, ctx: Any, values: Sequence[Any], output: Any) -> None:
        """Save the residuals that the user's `save` returns. The tape keeps those that are Tensors."""
        self._arguments.check()
        leaves, spec = self._saved(ctx, values, output)
        ctx.save_for_backward(*[leaf for leaf in leaves if isinstance(leaf, Tensor)])
        ctx.saved = [_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec
        ctx.given = [self._given(i, value) for i, value in enumerate(values)]
        self._mark(ctx, output)
        if ctx._is_forward:
            ctx._results = Results(output, ctx.non_differentiable)

    def _saved(self, ctx: Any, values: Sequence[Any], output: Any) -> tuple[list[Any], Any]:
        """Run the user's `save`, so that inputs report whether they require grad (in forward mode: have tangents)."""
        leaves, spec = tree_flatten(tuple(values))
        needs = tree_leaves(ctx.needs_input_grad)
        asked = [need and not leaf.requires_grad for need, leaf in zip(needs, leaves, strict=True)]
        if not any(asked):
            self._check_untyped(values)
            return tree_flatten(self._save(self._inputs(*values), output))
        interpreter = _core.Grad(f"what {self.name.removesuffix('Backward')} saves")

        def save() -> tuple[list[Any], Any]:
            pairs = zip(asked, leaves, strict=True)
            values = tree_unflatten([_core.tracked_leaf(interpreter, leaf) if ask else leaf for ask, leaf in pairs],
                                    spec)
            self._check_untyped(values)
            return tree_flatten(self._save(self._inputs(*values), output))

        saved, saved_spec = _core.run_under(interpreter, save)
        return _core.leaves_below(saved, interpreter), saved_spec

    def backward(self, ctx: Any, grads: Sequence[Any]) -> Sequence[Any]:
        """Return one gradient per argument of the schema."""
        leaves, spec = ctx.saved
        tensors = iter(ctx.saved_tensors)
        saved = tree_unflatten([next(tensors) if leaf is _TENSOR else leaf for leaf in leaves], spec)
        gradients = self._run_backward(NO_CONTEXT, saved, *grads)
        self._check_keys(gradients)
        entries = [
            self._gradient(name, gradients[name], given) if name in gradients else None
            for name, given in zip(self._arguments.names, ctx.given, strict=True)
        ]
        return _without_needless(entries, ctx.needs_input_grad)

    def jvp(self, ctx: Any, tangents: Sequence[Any]) -> Any:
        """Return the tangents of the results by transposing backward."""
        return _transposed(self, self._backward, self._arguments, ctx, tangents)

    def _check_untyped(self, values: Sequence[Any]) -> None:
        """Raise for an argument of type Any that requires grad: the dict has no gradient for it."""
        for i in self._untyped:
            for leaf in tree_leaves(values[i]):
                if isinstance(leaf, Tensor) and leaf.requires_grad:
                    name = self._arguments.names[i]
                    raise AutogradError(
                        f"operator {self._arguments.operator.name}: argument {name!r}, of type Any, holds an array "
                        "that requires grad, but by-name formulas give it no gradient\n"
                        "declare its type, as in `Tensor[]` or `Dict(str, Tensor)`, or pass a detached array"
                    )

    def _given(self, position: int, value: Any) -> Any:
        """Describe an argument: None, a bool for each element of a list, an array, or some other pytree."""
        if value is None:
            return None
        if position in self._arguments.lists:
            return [element is not None for element in value]
        return PYTREE if is_pytree_node_type(type(value)) else ARRAY

    def _mark(self, ctx: Any, output: Any) -> None:
        if self._differentiable is None:
            return
        outputs = (output,) if self._arguments.n_returns == 1 else output
        constants: list[Any] = []
        for i, (result, flag) in enumerate(zip(outputs, self._differentiable, strict=True)):
            arrays = result if isinstance(result, (tuple, list)) else (result,)
            if not flag:
                constants += [array for array in arrays if isinstance(array, Tensor)]
            elif not all(map(_core.is_array, arrays)):
                raise AutogradError(
                    f"operator {self._arguments.operator.name}: output_differentiability is True for result {i}, "
                    f"which is not a Tensor but {type(result).__name__}\n"
                    f"declare it False in the impl_backward at {self._backward_site}"
                )
        ctx.mark_non_differentiable(*constants)

    def _check_keys(self, gradients: Any) -> None:
        if not isinstance(gradients, dict):
            self._refuse(
                f"returned {type(gradients).__name__}, expected its result to be a dict: argument -> gradient",
                f"return {{{', '.join(f'{name!r}: ...' for name in self._keys)}}}",
            )
        if gradients.keys() != set(self._keys):
            expected = ", ".join(map(repr, self._keys))
            found = ", ".join(map(repr, gradients))
            self._refuse(
                f"returned a dict of {{{found}}}, expected it to have keys {{{expected}}}",
                "give every argument that holds arrays a gradient or None, but leave out non-Tensor-like types",
            )

    def _gradient(self, name: str, gradient: Any, given: Any) -> Any:
        if gradient is None:
            return None
        if isinstance(given, list):
            return self._gradients_of_list(name, gradient, given)
        if given is None:
            self._refuse(
                f"gave {name!r} a gradient, but the argument was None, so it was not a Tensor",
                f"return {{{name!r}: None}}",
            )
        if given == ARRAY and not _core.is_array(gradient):
            self._refuse(
                f"gave {name!r} a gradient of type {type(gradient).__name__}, expected either None or a Tensor",
                f"return {{{name!r}: gradient}}",
            )
        return _with_tensors(gradient)

    def _gradients_of_list(self, name: str, gradients: Any, given: list[bool]) -> Any:
        if not isinstance(gradients, (list, tuple)):
            self._refuse(
                f"gave {name!r} {type(gradients).__name__}, expected a list of gradients: the argument is a list",
                f"return {{{name!r}: [{', '.join(['...'] * min(len(given), 3))}]}}",
            )
        if len(gradients) != len(given):
            self._refuse(
                f"gave {name!r} a list of the wrong length: expected {len(given)} gradients but got {len(gradients)}",
                "give every element of the list a gradient or None",
            )
        for i, (gradient, is_given) in enumerate(zip(gradients, given, strict=True)):
            if gradient is None:
                continue
            if not _core.is_array(gradient):
                self._refuse(
                    f"gave {name!r} {type(gradient).__name__} at index {i}, expected None or Tensor gradients",
                    "give every element of the list a gradient or None",
                )
            if not is_given:
                self._refuse(
                    f"gave {name!r} a gradient at index {i}, expected None because the element is None",
                    "give it None",
                )
        return tuple([None if gradient is None else as_tensor(gradient) for gradient in gradients])

    def _refuse(self, message: str, remedy: str) -> NoReturn:
        raise AutogradError(
            f"operator {self._arguments.operator.name}: backward, registered at {self._backward_site}, {message}\n"
            f"{remedy}"
        )


class ContextDerivative(CustomDerivative):
    """A derivative by position: `setup_context(ctx, inputs, output)` saves, `backward(ctx, *grads)` computes gradients.

    `backward` returns a gradient per argument. `jvp(ctx, *tangents)` returns the tangents of the results. Without one,
    forward mode transposes backward. Keyword-only arguments of the schema have no gradients, and `setup_context` gets
    them as the dict `keyword_only_inputs`. Raises RegistrationError if a function cannot be called like this.
    """

    def __init__(
        self, op: OpOverload, backward: Callable[..., Any], setup_context: Callable[..., Any] | None,
        jvp: Callable[..., Any] | None,
    ) -> None:
        schema = schema_of(op)
        self.name = node_name(op.name)
        self._arguments = arguments = DifferentiableArguments(op)
        self._keywords = arguments.names[arguments.n_positional :]
        self._backward = check_role(op, "backward", backward, ["ctx", *gradient_names(schema)])
        self._setup_context = None
        if setup_context is not None:
            names = ["ctx", "inputs", *(["keyword_only_inputs"] if self._keywords else []), "output"]
            self._setup_context = check_role(op, "setup_context", setup_context, [], names)
        self._jvp = None
        self.functions = (setup_context, backward, jvp)
        self.given = backward, setup_context, jvp
        if jvp is not None:
            tangents = [f"tangent_{name}" for name in arguments.names[: arguments.n_positional]]
            self._jvp = check_role(op, "jvp", jvp, ["ctx", *tangents])
            self._run_jvp = split_for_numpy(f"jvp of operator {op.name}", jvp)
        self._writes = schema.is_mutable
        plain = not self._keywords and not arguments.lists and not arguments.has_defaults and not self._writes
        setup = None if self._setup_context is None else self._setup_context.function
        self._run_backward = split_for_numpy(
            f"backward of operator {op.name}", self._backward.function, arguments.n_returns)
        self.direct = (setup, self._run_backward) if plain else None

    def check(self) -> None:
        """Raise AutogradError if the operator has another schema now."""
        self._arguments.check()

    def setup(self, ctx: Any, values: Sequence[Any], output: Any) -> None:
        """Run the user's `setup_context`, which saves what backward needs."""
        arguments = self._arguments
        arguments.check()
        if arguments.has_defaults:
            ctx._n_passed = len(arguments.operator.strip_defaults(values)[0])
        self._save(ctx, values, output)
        if self._writes:
            ctx.mark_dirty(output)
        if self._jvp is None and ctx._is_forward:
            ctx._results = Results(output, ctx.non_differentiable)

    def _save(self, ctx: Any, values: Sequence[Any], output: Any) -> None:
        n = self._arguments.n_positional
        if self._setup_context is None:
            return
        inputs = tuple(values[:n])
        if self._keywords:
            named = dict(zip(self._keywords, values[n:], strict=True))
            self._setup_context.function(ctx=ctx, inputs=inputs, keyword_only_inputs=named, output=output)
        else:
            self._setup_context.function(ctx=ctx, inputs=inputs, output=output)

    def backward(self, ctx: Any, grads: Sequence[Any]) -> Sequence[Any]:
        """Return one gradient per argument of the schema: None for those omitted or passed by keyword."""
        return self.entries(ctx, self._run_backward(ctx, *grads))

    def entries(self, ctx: Any, result: Any) -> Sequence[Any]:
        """Check the result of backward, and return it as one gradient per argument."""
        n_passed = getattr(ctx, "_n_passed", self._arguments.n_positional)
        entries = self._entries(result, n_passed)
        entries += [None] * (len(self._arguments.names) - len(entries))
        return _without_needless([self._gradient(i, entry) for i, entry in enumerate(entries)], ctx.needs_input_grad)

    def jvp(self, ctx: Any, tangents: Sequence[Any]) -> Any:
        """Return one tangent per declared return, without a tuple if there is only one."""
        if self._jvp is None:
            return _transposed(self, self._backward.function, self._arguments, ctx, tangents)
        result = self._run_jvp(ctx, *tangents[: self._arguments.n_positional])
        n = self._arguments.n_returns
        if n == 1:
            return result
        if not isinstance(result, (tuple, list)) or len(result) != n:
            found = len(result) if isinstance(result, (tuple, list)) else type(result).__name__
            raise AutogradError(
                f"operator {self._arguments.operator.name}: jvp {self._jvp.debug} returned an incorrect number of "
                f"tangents (expected {n}, got {found})\nreturn a tuple with a tangent, or None, for each result"
            )
        return tuple(result)

    def _entries(self, result: Any, n_passed: int) -> list[Any]:
        """Return the result of backward as one entry per argument."""
        n = self._arguments.n_positional
        if n == 1 and (not isinstance(result, (tuple, list)) or self._is_bare_list(result)):
            return [result]
        entries = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(entries) not in (n, n_passed):
            wanted = f"{n}" if n == n_passed else f"{n_passed} or {n}"
            raise AutogradError(
                f"operator {self._arguments.operator.name}: backward {self._backward.debug} returned an incorrect "
                f"number of gradients (expected {wanted}, got {len(entries)})\n"
                f"return one for each of {', '.join(self._arguments.names[:n])}, or None"
            )
        return entries

    def _is_bare_list(self, result: Sequence[Any]) -> bool:
        """Return whether the result is the list of gradients for the only argument, and not a tuple of that list."""
        if 0 not in self._arguments.lists:
            return False
        return len(result) != 1 or not isinstance(result[0], (tuple, list))

    def _gradient(self, position: int, entry: Any) -> Any:
        if entry is None:
            return None
        if self._arguments.holds_arrays[position]:
            return _with_tensors(entry)
        if any(gradient is not None for gradient in tree_leaves(entry)):
            raise AutogradError(
                f"operator {self._arguments.operator.name}: backward {self._backward.debug} returned a gradient "
                f"different than None at position {position}, of {self._arguments.names[position]!r}, which holds no "
                "arrays\n"
                "return None there"
            )
        return None


def _without_needless(entries: list[Any], needs_input_grad: Sequence[Any]) -> list[Any]:
    """Remove the gradients of arguments that need none, such as Python numbers. Users may return them."""
    return [
        entry if need is True or (need and any(tree_leaves(need))) else None
        for entry, need in zip(entries, needs_input_grad, strict=True)
    ]


def _with_tensors(gradient: Any) -> Any:
    """Convert the arrays in a gradient, or in a pytree of gradients, to Tensors. NumPy may have computed them."""
    if isinstance(gradient, Tensor):
        return gradient
    return tree_map(lambda leaf: as_tensor(leaf) if _core.is_array(leaf) else leaf, gradient)


def _transposed(
    derivative: CustomDerivative, function: Callable[..., Any], arguments: DifferentiableArguments, ctx: Any,
    tangents: Sequence[Any],
) -> Any:
    """Return the tangents of the results by transposing a derivative's backward, which calls `function`."""
    name = f"operator {arguments.operator.name}"
    if getattr(function, "once_differentiable", False):
        raise refuse_once_differentiable(name)
    single = arguments.n_returns == 1
    return transposed(
        name, lambda grads: derivative.backward(ctx, (grads,) if single else grads), ctx._results, tangents,
        ctx.materialize,
    )


def inputs_type(name: OperatorName, schema: Schema) -> Any:
    """Return the named tuple class of an operator's arguments.

    Raises SchemaError if the name of an argument cannot be a field.
    """
    fields = [argument.name for argument in schema.arguments]
    for field in fields:
        if field.startswith("_") or iskeyword(field):
            why = "begins with an underscore" if field.startswith("_") else "is a keyword of Python"
            raise SchemaError(
                f"operator {name}: the argument {field!r} {why}, so it cannot be a field of the inputs of formulas\n"
                "choose another name for the argument"
            )
    return namedtuple(f"{name.name}_args", fields)
