"""`autograd.Function`: a differentiable function that defines its own forward and backward, outside all schemas.

`apply` goes through the same interpreters as an operator. A running `grad` or `jvp` applies the Function again to the
values of the interpreter below and records its own node. Under all of them the tape runs `forward`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from pydispatch import _core
from pydispatch._core import ActiveMode, Context, FunctionBase, FunctionParts, Jvp, Tensor, Vmap
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch._registry.registrations import Handle, lock
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.backward import gradients_in_interpreter
from pydispatch.autograd.batched_derivatives import BatchedDerivative
from pydispatch.autograd.batches import BatchedArguments, Dims, call_batching_rule, counterpart, entered_results
from pydispatch.autograd.captures import captured_by, may_capture
from pydispatch.autograd.custom_derivatives import attach_node, function_is_used, needs_grad, seal_for_forward
from pydispatch.autograd.examples import ExampleContext, split_for_numpy
from pydispatch.autograd.forward import give_tangents, nested_tangents
from pydispatch.autograd.transposing import Results, refuse_once_differentiable, transposed
from pydispatch.autograd.values import as_raw_constant, as_tensor, values_below
from pydispatch.exceptions import AutogradError, ConversionError, NoDerivativeError, VmapError
from pydispatch.ops import ops
from pydispatch.schema.fitting import signature_of
from pydispatch.tree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten


class Function(FunctionBase):
    """The base of differentiable functions that users write. Subclass it and call `apply`.

    Define `forward(*args)` with `setup_context(ctx, inputs, output)`, or `forward(ctx, *args)`. `backward(ctx, *grads)`
    returns one gradient per argument of forward, `jvp(ctx, *tangents)` one tangent per output. Arrays inside lists,
    tuples and dicts are arguments and outputs too.

    Only the first style works inside transforms. There, captured values are passed along as arguments. backward and jvp
    differentiate with respect to the arguments of forward. Captured values have the derivative that forward's
    operators give.

    Without `jvp`, forward mode transposes backward, which then has to be linear in the gradients, as derivatives are.

    Inside `vmap` a Function needs one of two definitions. The first is `vmap(info, in_dims, *args) -> (output,
    out_dims)`. It computes all `info.batch_size` examples from arguments whose batch axis is 0, or that have none
    (None). It usually calls `apply` again. The second is `generate_vmap_rule = True`. Then forward, setup_context,
    backward and jvp each run on all examples at once, or one by one if they convert values to NumPy arrays.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import autograd, func
    >>> class Exp(autograd.Function):
    ...     @staticmethod
    ...     def forward(x):
    ...         return np.exp(x)
    ...     @staticmethod
    ...     def setup_context(ctx, inputs, output):
    ...         ctx.save_for_backward(output)
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         y, = ctx.saved_tensors
    ...         return grad * y
    >>> func.grad(lambda x: np.sum(Exp.apply(x)))(numpy.zeros(2))
    array([1., 1.])
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AutogradError(f"{type(self).__name__} cannot be instantiated\ncall {type(self).__name__}.apply(...)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError("a Function must define a forward staticmethod")

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the values that backward and jvp need."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Context, *grad_outputs: Any) -> Any:
        """Return one gradient per argument of forward."""
        raise NotImplementedError

    @staticmethod
    def jvp(ctx: Context, *grad_inputs: Any) -> Any:
        """Return one tangent per output."""
        raise NotImplementedError

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        """Return (output, out_dims) of all examples."""
        raise NotImplementedError


class UserFunction(CustomDerivative):
    """The definitions in a subclass of Function: its derivative, its forward, and its rules for transforms."""

    def __init__(self, cls: type[Function]) -> None:
        self.cls = cls
        self.label: str = cls.__name__
        self.name = f"{cls.__name__}Backward"
        self.functions = tuple([getattr(cls, name) for name in _STATIC])
        self.separate = cls.setup_context is not Function.setup_context
        self._parameters = signature_of(cls.forward) if self.separate else None
        if not _defines(cls, "forward"):
            raise NotImplementedError(f"{cls.__name__} has no forward staticmethod\ndefine forward(*args)")
        self._is_complete = _defines(cls, "backward")
        self._backward = split_for_numpy(f"backward of {self.label}", cls.backward)
        self._jvp = split_for_numpy(f"jvp of {self.label}", cls.jvp) if _defines(cls, "jvp") else None
        self.once: bool = getattr(cls.backward, "once_differentiable", False)
        self.direct = (None, self._backward) if self._is_complete else None
        self.may_capture = self.separate and may_capture(self.functions)
        self.parts = FunctionParts(self, cls, cls.forward, cls.setup_context, self._n_parameters(),
                             self.separate and not self.once and not self.may_capture)
        self.batched_functions: dict[tuple[Dims, str], BatchedFunction] = {}
        self.interpreter_rules: list[FunctionRuleHandle] = []

    def rule_for(self, cls: type) -> Callable[..., Any] | None:
        """Return the newest rule for interpreters of exactly this class of transforms, or None."""
        return next((handle.rule for handle in reversed(self.interpreter_rules) if handle.cls is cls),
                    None)

    def __reduce__(self) -> tuple[Any, ...]:
        return _derivative_of, (self.cls,)

    def _n_parameters(self) -> int:
        parameters = self._parameters.parameters.values() if self._parameters is not None else ()
        fixed = all(parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
                    for parameter in parameters)
        return len(parameters) if fixed and self._parameters is not None else -1

    def bind(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments with the defaults of forward filled in."""
        if self._parameters is None:
            return args
        bound = self._parameters.bind(*args)
        bound.apply_defaults()
        return bound.args

    def forward(self, *args: Any) -> Any:
        """Call the user's forward, of the style with a separate setup_context."""
        return self.cls.forward(*args)

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Call the user's setup_context."""
        self.cls.setup_context(ctx, values, output)
        if self._jvp is None and ctx._is_forward:
            ctx._results = Results(output, ctx.non_differentiable)

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call the user's backward, and return one entry per argument without surplus None."""
        if not self._is_complete:
            raise NoDerivativeError(f"{self.cls.__name__} has no backward staticmethod\n"
                                    "define backward(ctx, *grad_outputs)")
        return self.entries(ctx, self._backward(ctx, *grads))

    def entries(self, ctx: Any, found: Any) -> tuple[Any, ...]:
        """Check the result of backward, and return it as one entry per argument."""
        entries = found if isinstance(found, tuple) else (found,)
        n = len(ctx.needs_input_grad)
        if len(entries) < n or any(entry is not None for entry in entries[n:]):
            raise AutogradError(f"{self.name} returned an incorrect number of gradients: expected {n}, "
                                f"got {len(entries)}\n"
                                "return one per argument of forward, None for those without a gradient")
        return entries[:n]

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        """Call the user's jvp, or without one, the transpose of backward."""
        if self._jvp is not None:
            return self._jvp(ctx, *tangents)
        if not self._is_complete:
            raise NoDerivativeError(f"{self.cls.__name__} has no jvp staticmethod, but is used in forward mode\n"
                                    "define jvp(ctx, *tangents), or define backward(ctx, *grad_outputs) to derive "
                                    "the jvp from it")
        if self.once:
            raise refuse_once_differentiable(self.label)
        return transposed(
            self.label, lambda grads: self.backward(ctx, grads if isinstance(grads, tuple) else (grads,)), ctx._results,
            tangents, ctx.materialize,
        )

    def batched(self, interpreter: Vmap, args: tuple[Any, ...], captured: bool) -> Any:
        """Call under vmap, by the user's batching rule or by one generated from the other functions."""
        own = _defines(self.cls, "vmap")
        if own and self.cls.generate_vmap_rule:
            raise VmapError(f"{self.label} has both a vmap staticmethod and generate_vmap_rule = True\n"
                            "remove one of the two")
        if not own and not self.cls.generate_vmap_rule:
            raise VmapError(
                f"{self.label} has no batching rule, but is used under {describe_interpreter(interpreter)}\n"
                "set generate_vmap_rule = True in the class, or define vmap(info, in_dims, *args) -> (output, "
                "out_dims)"
            )
        if not any(_core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(args)):
            return _core.lowered(interpreter, apply_custom, self, args, captured)
        if own:
            what = f"the vmap staticmethod of {self.label}"
            return _core.lowered(interpreter, call_batching_rule, what, self.cls.vmap, interpreter, args, {})
        return _apply_batched(self, interpreter, args, captured)


class LiftedFunction(CustomDerivative):
    """A Function whose captured values are arguments too, after its own arguments.

    For its functions, these replace the captured Tensors. Its own arguments have the derivative that the Function
    defines, captured values that of its forward.
    """

    separate = True

    def __init__(self, function: UserFunction, captured: tuple[Tensor, ...]) -> None:
        self.function = function
        self.captured = captured
        self.label: str = function.label
        self.name = function.name
        self.functions = function.functions
        self.once: bool = function.once
        self.may_capture = False
        self.parts = FunctionParts(self, None, self.forward, self.setup, -1, not self.once)
        self.batched_functions: dict[tuple[Dims, str], BatchedFunction] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return LiftedFunction, (self.function, self.captured)

    def rule_for(self, cls: type) -> Callable[..., Any] | None:
        """Return the rule of the Function, which receives only its own arguments."""
        rule = self.function.rule_for(cls)
        if rule is None:
            return None

        def on_own(interpreter: Any, call: FunctionCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            own, given = self._split(args)
            below = values_below(given, interpreter)
            return self._meaning(given, rule, interpreter, call.with_last(below), own, kwargs)

        return on_own

    def _split(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        n = len(values) - len(self.captured)
        return tuple(values[:n]), tuple(values[n:])

    def _meaning(self, given: Sequence[Any], function: Callable[..., Any], *args: Any) -> Any:
        """Call a function with the captured Tensors replaced by the given ones."""
        meanings = {id(tensor): as_tensor(value) for tensor, value in zip(self.captured, given, strict=True)}
        result = _core.substituting(_core.Substitution(meanings), function, *args)
        return tree_map(lambda leaf: meanings.get(id(leaf), leaf), result)

    def forward(self, *args: Any) -> Any:
        """Call the user's forward."""
        own, given = self._split(args)
        output = self._meaning(given, self.function.forward, *own)
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(args)):
            return output
        return tree_map(lambda leaf: leaf.array if type(leaf) is Tensor else leaf, output)

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Call the user's setup_context, and save all arguments too."""
        own, given = self._split(values)
        inner = self._context(ctx, ())
        self._meaning(given, self.function.setup, inner, own, output)
        leaves, spec = tree_flatten((own, given))
        arrays = [leaf if _core.is_array(leaf) else None for leaf in leaves]
        for_backward, for_forward = inner.for_backward or (), inner.for_forward
        ctx.save_for_backward(*arrays, *for_backward)
        if for_forward is not None:
            ctx.save_for_forward(*arrays, *for_forward)
        ctx.mark_dirty(*inner.dirty)
        ctx.mark_non_differentiable(*inner.non_differentiable)
        ctx.set_materialize_grads(inner.materialize)
        constants = [None if _core.is_array(leaf) else leaf for leaf in leaves]
        ctx.n_arguments, ctx.arguments = len(leaves), functools.partial(_with_constants, spec, constants)
        ctx.attributes = dict(vars(inner))

    def _context(self, ctx: Any, saved: Sequence[Any]) -> ExampleContext:
        """Return the context as the user's functions receive it."""
        inner = ExampleContext(ctx, saved)
        inner.needs_input_grad = self._split(ctx.needs_input_grad)[0]
        return inner

    def _restored(self, ctx: Any) -> tuple[ExampleContext, tuple[Any, ...], tuple[Any, ...]]:
        """Return the user's context, the arguments, and the values of the captured Tensors."""
        saved = ctx.saved_tensors
        inner = self._context(ctx, saved[ctx.n_arguments:])
        vars(inner).update(ctx.attributes)
        own, given = ctx.arguments(saved[:ctx.n_arguments])
        return inner, tree_map(self._told_apart, own), given

    def _told_apart(self, value: Any) -> Any:
        """Return an alias of an argument that is also a captured Tensor, since forward gets another value for that."""
        return ops.np.getitem(value, Ellipsis) if any(value is tensor for tensor in self.captured) else value

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call the user's backward, and compute the gradients of the values that forward captures."""
        inner, own, given = self._restored(ctx)
        needs_own, needs = self._split(ctx.needs_input_grad)
        found: tuple[Any, ...] = (None,) * len(own)
        if any(tree_leaves(needs_own)):
            found = self._meaning(given, self.function.backward, inner, grads)
        if not any(needs):
            return (*found, *(None,) * len(needs))

        def run_again(*tracked: Any) -> list[tuple[Any, Any]]:
            outputs = tree_leaves(self._meaning(_placed(tracked, needs, given), self.function.forward, *own))
            return [pair for pair in zip(outputs, tree_leaves(grads), strict=True) if pair[1] is not None]

        moving = [value for value, need in zip(given, needs, strict=True) if need]
        return (*found, *_placed(gradients_in_interpreter(self.label, run_again, moving), needs, (None,) * len(needs)))

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        """Call the user's jvp, and add the tangents that come from the values that forward captures."""
        inner, own, given = self._restored(ctx)
        needs_own, needs = self._split(ctx.needs_input_grad)
        own_tangents, given_tangents = self._split(tangents)
        found = self._meaning(given, self.function.jvp, inner, own_tangents) if any(tree_leaves(needs_own)) else None
        if not any(needs):
            return found
        level = Jvp(self.label)

        def run() -> Any:
            entered = [_core.wrap_value_at(level, value, tangent) if need else value
                       for value, tangent, need in zip(given, given_tangents, needs, strict=True)]
            return tree_map(lambda leaf: _tangent_or_zeros(leaf, level), self._meaning(
                entered, self.function.forward, *own))

        return _sum_of(found, _core.run_under(level, run))

    def batched(self, interpreter: Vmap, args: tuple[Any, ...], captured: bool) -> Any:
        """Call under vmap. A batching rule of the user must not use captured values of the interpreter."""
        own, given = self._split(args)
        if not any(_core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(args)):
            return _core.lowered(interpreter, apply_custom, self, args, captured)
        if self.function.cls.generate_vmap_rule:
            return _apply_batched(self, interpreter, args, captured)
        known = [tensor if _core.is_owned_by(value, interpreter) else value
                 for tensor, value in zip(self.captured, given, strict=True)]
        return self._meaning(known, self.function.batched, interpreter, own, captured)


def _with_constants(spec: TreeSpec, constants: list[Any], arrays: Sequence[Any]) -> Any:
    """Return the pytree of this spec with these arrays, and the constants where there is no array."""
    return tree_unflatten([constant if array is None else array
                           for array, constant in zip(arrays, constants, strict=True)], spec)


def _placed(values: Sequence[Any], flags: Sequence[Any], others: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values where the flag is set, and the others elsewhere."""
    rest = iter(values)
    return tuple([next(rest) if flag else other for flag, other in zip(flags, others, strict=True)])


def _tangent_or_zeros(leaf: Any, level: Jvp) -> Any:
    """Return the tangent of an output at an interpreter of jvp, or None for an output that cannot have one."""
    if not _core.is_array(leaf) or leaf.dtype.kind not in "fc":
        return None
    tangent = _core.tangent_of(leaf) if _core.is_owned_by(leaf, level) else None
    return ops.np.zeros_like(_core.value_below(leaf, level)) if tangent is None else tangent


def _sum_of(left: Any, right: Any) -> Any:
    """Return the sum of two tangents, or of pytrees of them. None is zeros."""
    if left is None:
        return right
    leaves, spec = tree_flatten(left)
    return tree_unflatten([one if other is None else other if one is None else one + other
                           for one, other in zip(leaves, tree_leaves(right), strict=True)], spec)


class BatchedFunction(BatchedDerivative):
    """A batch of calls of a Function as one call, which is how the interpreters below its vmap see it."""

    separate = True

    def __init__(self, function: AnyFunction, dims: Dims, randomness: str) -> None:
        super().__init__(function, BatchedArguments(
            function.label, dims, randomness,
            "write its forward with operators, or define vmap(info, in_dims, *args) -> (output, out_dims) instead of "
            "generate_vmap_rule"))
        self.label: str = f"vmap({function.label})"
        self.once: bool = function.once
        self.parts = FunctionParts(self, None, self.forward, self.setup, -1, not self.once)
        self.batched_functions: dict[tuple[Dims, str], BatchedFunction] = {}
        self._function = function
        self._loops = False     # whether forward converted its arguments to NumPy arrays

    def forward(self, *args: Any) -> Any:
        """Run the user's forward on all examples."""
        if not self._loops:
            try:
                return self.batch.at_once(self._function.forward, args)
            except ConversionError:
                self._loops = True
        return self._one_by_one(args)

    def _one_by_one(self, args: tuple[Any, ...]) -> Any:
        """Run the user's forward on each example, which is a Tensor, like the batch of all examples."""
        leaves, spec = tree_flatten(args)
        tensors = [
            leaf if dim is None or leaf is None else as_tensor(leaf)
            for leaf, dim in zip(leaves, self.batch.dims, strict=True)
        ]
        output = self.batch.one_by_one(self._function.forward, tree_unflatten(tensors, spec))

        def given(leaf: Any) -> Any:
            if _core.is_any_of(leaf, leaves):
                return leaf
            argument = counterpart(leaf, tensors, leaves)
            return as_raw_constant(leaf) if argument is None else argument

        return tree_map(given, output)

    def rule_for(self, cls: type) -> None:
        """Return None, because a batch of calls has no rules."""

    def batched(self, interpreter: Vmap, args: tuple[Any, ...], captured: bool) -> Any:
        """Call under another vmap."""
        if not any(_core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(args)):
            return _core.lowered(interpreter, apply_custom, self, args, captured)
        return _apply_batched(self, interpreter, args, captured)


_STATIC = ("forward", "setup_context", "backward", "jvp", "vmap")


class FunctionCall:
    """A Function as the rule of a transform calls it, on the values below."""

    schema = None

    def __init__(self, function: AnyFunction, captured: bool = False, last: tuple[Any, ...] = ()) -> None:
        self.name = self.__name__ = function.label
        self._function = function
        self._captured = captured
        self._last = last
        self.writes = False     # whether it writes to its arguments, as far as a trace has seen

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function, self._captured, self._last)

    def __call__(self, *args: Any) -> Any:
        return apply_custom(self._function, (*args, *self._last), self._captured)

    def with_last(self, last: tuple[Any, ...]) -> FunctionCall:
        """Return the call with these as the last arguments."""
        return FunctionCall(self._function, self._captured, last)


class FunctionRuleHandle(Handle):
    """The handle of a Function's rule for a class of transforms."""

    __slots__ = ("_rules", "cls", "rule")

    def __init__(self, cls: type, rule: Callable[..., Any], rules: list[FunctionRuleHandle], site: str) -> None:
        super().__init__(site)
        self.cls = cls
        self.rule = rule
        self._rules = rules

    def _undo(self) -> None:
        if self in self._rules:
            self._rules.remove(self)
        self.active = False     # last, so that an interrupted call can be repeated


def add_interpreter_rule(
    function: type[Function], cls: type, rule: Callable[..., Any], site: str
) -> FunctionRuleHandle:
    """Register the rule of a Function for interpreters of exactly this class. The newest rule is in force."""
    rules = _parts_of(function).derivative.interpreter_rules
    with lock:
        handle = FunctionRuleHandle(cls, rule, rules, site)
        handle.active = True
        lock.note(handle.remove)
        rules.append(handle)
        return handle


AnyFunction: TypeAlias = UserFunction | LiftedFunction | BatchedFunction


def _defines(cls: type[Function], name: str) -> bool:
    return getattr(cls, name) is not getattr(Function, name)


def _parts_of(cls: type[Function]) -> FunctionParts:
    parts: FunctionParts | None = cls.__dict__.get("_parts")
    if parts is None:
        parts = cls._parts = UserFunction(cls).parts    # type: ignore[attr-defined]
    return parts


def _derivative_of(cls: type[Function]) -> UserFunction:
    derivative: UserFunction = _parts_of(cls).derivative
    return derivative


def apply_custom(function: AnyFunction, args: tuple[Any, ...], captured: bool = False) -> Any:
    """Call a Function at the innermost interpreter.

    With `captured`, an interpreter above owns no argument, so none may be written to.
    """
    return _core.apply_function(function.parts, args, captured)


def _apply_in_general(function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """Call a Function with arguments of any kind at any interpreter."""
    state = _core.current_state()
    if state.substitute is not None:
        function_is_used(function)
    args = tree_map(_core.unwrap_dead_value, args)
    if isinstance(function, UserFunction) and function.may_capture:
        found = captured_by(function.functions)
        if found:
            function, args = LiftedFunction(function, found), (*args, *map(_core.live_value, found))
    innermost = state.innermost
    if isinstance(innermost, ActiveMode) and innermost.mode._records_functions and (
            function.separate or not innermost.mode._inlines(function.label, args)):
        return _apply_in_trace(innermost, function, args, captured)
    interpreter = _core.innermost_transform_now()
    if interpreter is None:
        return _apply_on_tape(function, args, captured)
    if not function.separate:
        raise AutogradError(
            f"{function.label} is used under {interpreter.name}, but its forward takes ctx: override setup_context\n"
            "define forward(*args) and setup_context(ctx, inputs, output) separately"
        )
    return interpreter.apply_function(function, args, captured)


def _apply_in_trace(innermost: ActiveMode, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """Call a Function as one call for a mode. For a tape in the trace, setup_context calls operators."""
    output = _core.lowered(innermost, innermost.mode._record_function, FunctionCall(function, captured), args)
    records = _core.current_state().grad and any(_core.is_tracked_at(leaf, None) for leaf in tree_leaves(args))
    return attach_results(function, args, output, None, None, captured) if records and function.separate else output


def _apply_in_interpreter(interpreter: Any, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """Call a Function at the interpreter below, and wrap its outputs as values of this one.

    This is `Interpreter.apply_function`.
    """
    output, wrapped = _apply_below(interpreter, function, args, captured)
    return output if wrapped is None else attach_results(function, args, wrapped, interpreter)


def _apply_in_jvp(interpreter: Any, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """Call a Function at the interpreter below and set the tangents of its outputs, as `Jvp.apply_function`."""
    output, wrapped = _apply_below(interpreter, function, args, captured)
    return output if wrapped is None else _with_tangents(function, args, wrapped, interpreter)


def _apply_in_vmap(interpreter: Vmap, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """Call a Function on a batch, as `Vmap.apply_function`."""
    leaves, spec = tree_flatten(args)
    if not any(map(_core.is_uniform_value, leaves)):
        return function.batched(interpreter, args, captured)
    arrays = [_core.uniform_below(leaf, interpreter) for leaf in leaves]
    output = function.batched(interpreter, tree_unflatten(arrays, spec), captured)

    def passed(leaf: Any) -> Any:
        argument = counterpart(leaf, arrays, leaves)
        return leaf if argument is None else argument

    return tree_map(passed, output)


def _apply_below(interpreter: Any, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> tuple[Any, Any]:
    """Return the outputs below, and the outputs wrapped by the interpreter, or None if it owns no argument."""
    if not any(_core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(args)):
        return _core.lowered(interpreter, apply_custom, function, args, True), None
    below = values_below(args, interpreter)
    output = _core.lowered(interpreter, apply_custom, function, below, captured)
    return output, wrap_outputs(output, below, args, interpreter)


def _apply_batched(function: AnyFunction, interpreter: Vmap, args: tuple[Any, ...], captured: bool) -> Any:
    """Process a batch of calls as one call at the interpreter below, of which every output is a batch."""
    leaves, spec = tree_flatten(args)
    kind = _core.dims_of_leaves(leaves, interpreter), interpreter.randomness
    if kind not in function.batched_functions:
        function.batched_functions[kind] = BatchedFunction(function, *kind)
    below = _core.leaves_below(leaves, interpreter)
    parts = function.batched_functions[kind].parts
    output = _core.lowered(interpreter, _core.apply_function, parts, tree_unflatten(below, spec), captured)
    return entered_results(interpreter, output, below, leaves)


def wrap_outputs(output: Any, below: tuple[Any, ...], args: tuple[Any, ...], interpreter: Any) -> Any:
    """Wrap outputs of the interpreter below as values of this one. An argument stays that argument."""
    pairs = list(zip(tree_leaves(below), tree_leaves(args), strict=True))

    def wrap(leaf: Any) -> Any:
        if not _core.is_array(leaf):
            return leaf
        for lower, upper in pairs:
            if lower is leaf and _core.is_owned_by(upper, interpreter):
                return upper
        wrapper = _core.wrap_value_at(interpreter, leaf)
        for _, upper in () if isinstance(interpreter, Vmap) else pairs:
            if _core.is_owned_by(upper, interpreter) and _core.have_one_memory(leaf, upper):
                _core.share_through_function(wrapper, upper)
        return wrapper

    return tree_map(wrap, output)


def _apply_on_tape(function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    ctx = _context(args, None)
    leaves = tree_leaves(args)
    if isinstance(function, UserFunction) and not function.separate:
        output = _core.with_grad_mode(False, function.cls.forward, ctx, *args)
    else:
        output = _core.with_grad_mode(False, function.forward, *args)
    if any(isinstance(leaf, Tensor) for leaf in leaves):
        output = tree_map(lambda leaf: Tensor(leaf) if _core.is_array(leaf) and not isinstance(leaf, Tensor) else leaf,
                          output)
    if function.separate and _is_new_constant(output, leaves, captured):
        return output       # there is nothing to save, and no argument may have been written to
    return attach_results(function, args, output, None, ctx, captured)


def _is_new_constant(output: Any, leaves: list[Any], captured: bool) -> bool:
    """Return whether the output is one array that the tape does not depend on."""
    if not isinstance(output, Tensor):
        return type(output) is np.ndarray and not captured
    recorded = _core.current_state().grad and any(_core.is_tracked_at(leaf, None) for leaf in leaves)
    return not recorded and not _core.is_tracked_at(output, None) and not _core.is_any_of(output, leaves)


def _context(args: tuple[Any, ...], interpreter: Any) -> Context:
    needs = tuple([needs_grad(arg, interpreter) for arg in args])
    return Context(needs if _core.current_state().grad else tree_map(lambda need: False, needs), interpreter)


def attach_results(
    derivative: Any, args: tuple[Any, ...], output: Any, interpreter: Any, ctx: Context | None = None,
    captured: bool = False,
) -> Any:
    """Call the user's setup_context, then make the outputs results of a node if an argument is tracked."""
    ctx = ctx or _context(args, interpreter)
    if derivative.separate:
        if interpreter is None:
            _core.with_grad_mode(False, derivative.setup, ctx, args, output)
        else:
            derivative.setup(ctx, args, output)
    return _finish_in_general(derivative, ctx, args, output, interpreter, captured)


def _finish_in_general(
    derivative: Any, ctx: Context, args: tuple[Any, ...], output: Any, interpreter: Any, captured: bool
) -> Any:
    """Make outputs of any kind results of a node if an argument is tracked."""
    _check_dirty(derivative, ctx, output, interpreter, captured)
    if derivative.once:
        ctx.keep_dependencies(tuple([leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]))
    output = _distinct(ctx, args, output, interpreter)
    if not _core.current_state().grad:
        return output
    if _core.is_flat_call(args, output):
        _core.attach_custom(derivative, ctx, args, output if isinstance(output, tuple) else (output,), interpreter)
    else:
        attach_node(derivative, ctx, args, output, not isinstance(output, tuple), interpreter)
    return output


def _check_dirty(derivative: Any, ctx: Context, output: Any, interpreter: Any, captured: bool = False) -> None:
    outputs = tree_leaves(output)
    for tensor in ctx.dirty:
        if not _core.is_any_of(tensor, outputs):
            raise AutogradError(f"{derivative.label} marked an input as dirty that forward does not return\n"
                                "return every input that forward writes to")
        if captured or (interpreter is not None and not _core.is_owned_by(tensor, interpreter)):
            where = "the function" if interpreter is None else interpreter.name
            raise AutogradError(
                f"{derivative.label} wrote to an argument from outside {where}\n"
                "make a copy inside and write to that, or pass the array to the transformed function as an argument"
            )
        if not isinstance(tensor, Tensor):
            continue
        if _core.is_leaf_memory(tensor) and _core.current_state().grad:
            raise AutogradError(f"{derivative.label} wrote in place to a leaf that requires grad, or to a view of "
                                "one\npass a copy: tensor.copy()")
        _core.note_write_of_function(tensor)


def _distinct(ctx: Context, args: tuple[Any, ...], output: Any, interpreter: Any) -> Any:
    """Return the outputs with aliases for some: inputs that were not written to, and outputs of another history."""
    inputs = tree_leaves(args)

    def distinct(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or _core.is_any_of(leaf, ctx.dirty):
            return leaf
        if not _core.is_any_of(leaf, inputs) and not (leaf.requires_grad and _core.is_owned_by(leaf, interpreter)):
            return leaf
        alias = _core.detach_at(leaf, interpreter)
        ctx.non_differentiable = tuple([alias if tensor is leaf else tensor for tensor in ctx.non_differentiable])
        return alias

    return tree_map(distinct, output)


def _with_tangents(function: AnyFunction, args: tuple[Any, ...], output: Any, interpreter: Any) -> Any:
    """Set the tangents of outputs at an interpreter of `jvp` by the user's jvp."""
    leaves, spec = tree_flatten(args)
    tangents = [_core.tangent_of(leaf) if _core.is_owned_by(leaf, interpreter) else None for leaf in leaves]
    ctx = Context(tree_unflatten([tangent is not None for tangent in tangents], spec), interpreter)
    function.setup(ctx, args, output)
    _check_dirty(function, ctx, output, interpreter)
    output = _distinct(ctx, args, output, interpreter)
    if all(tangent is None for tangent in tangents) or not _core.current_state().forward:
        return output
    seal_for_forward(ctx, interpreter)
    return _core.lowered(interpreter, _core.as_tangents_of, function.name, output, _run_jvp, function, ctx, args,
                         tangents, output, interpreter)


def _run_jvp(
    function: AnyFunction, ctx: Context, args: tuple[Any, ...], tangents: list[Any], output: Any, interpreter: Any
) -> Any:
    given = nested_tangents(args, tangents, interpreter, ctx.materialize)
    found = _core.deriving(function.jvp, ctx, given)
    give_tangents(function.name.removesuffix("Backward"), ctx, output, found, interpreter)
    return output


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a backward function whose result cannot be differentiated again.

    Parameters
    ----------
    backward : callable
        The backward function of a Function or a custom operator.

    Returns
    -------
    callable
        The function, which runs with recording off. Differentiating its result raises AutogradError.
    """

    @functools.wraps(backward)
    def once(ctx: Context, *grads: Any) -> Any:
        found = _core.with_grad_mode(False, backward, ctx, *grads)
        dependencies = [
            leaf for leaf in (*tree_leaves(grads), *ctx.saved_tensors, *ctx.dependencies) if isinstance(leaf, Tensor)
        ]
        name = getattr(backward, "__qualname__", "backward")
        return tree_map(
            lambda leaf: _Undifferentiable.apply(leaf, name, *dependencies) if _core.is_array(leaf) else leaf, found
        )

    once.once_differentiable = True     # type: ignore[attr-defined]
    return once


class _Undifferentiable(Function):
    """The identity on its first argument, which raises an error if differentiated with respect to any argument."""

    @staticmethod
    def forward(value: Any, name: str, *dependencies: Any) -> Any:
        return value.copy()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.name = inputs[1]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise _twice_error(ctx.name)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise _twice_error(ctx.name)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], value: Any, name: str, *dependencies: Any) -> tuple[Any, Any]:
        return _Undifferentiable.apply(value, name, *dependencies), in_dims[0]


def _twice_error(name: str) -> AutogradError:
    return AutogradError(f"trying to differentiate twice a function that was marked with @once_differentiable: {name}\n"
                         "write its backward with operators and remove the decorator")


_core.extend(_core.Interpreter, apply_function=_apply_in_interpreter)
_core.extend(_core.Jvp, apply_function=_apply_in_jvp)
_core.extend(Vmap, apply_function=_apply_in_vmap)
_core.connect(parts_of_function=_parts_of, apply_in_general=_apply_in_general, finish_in_general=_finish_in_general,
              wrap_outputs=wrap_outputs)
