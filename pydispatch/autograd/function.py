"""`autograd.Function`: a differentiable function with a forward and a backward of its own, outside all schemas.

`apply` goes through the same interpreters as an operator: a running `grad` or `jvp` applies the Function again to the
values of the interpreter below and records a node of its own; under all of them the tape runs `forward`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from pydispatch import _core
from pydispatch._core import Context, FunctionBase, FunctionParts, Tensor, Vmap
from pydispatch.autograd.batched_derivatives import BatchedDerivative
from pydispatch.autograd.batches import (
    BatchedArguments,
    Dims,
    call_batching_rule,
    counterpart,
    entered_results,
)
from pydispatch.autograd.custom_derivatives import (
    attach_node,
    function_is_used,
    needs_grad,
    seal_for_forward,
)
from pydispatch.autograd.examples import split_for_numpy
from pydispatch.autograd.forward import give_tangents, nested_tangents
from pydispatch.autograd.transposing import Results, refuse_once_differentiable, transposed
from pydispatch.autograd.values import as_raw_constant, as_tensor, values_below
from pydispatch.exceptions import AutogradError, ConversionError, NoDerivativeError, VmapError
from pydispatch.registry.derivatives import CustomDerivative
from pydispatch.registry.registrations import Handle, lock
from pydispatch.registry.sites import describe_interpreter
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten


class Function(FunctionBase):
    """Subclass it and call `apply`.

    `forward(*args)` with `setup_context(ctx, inputs, output)`, or `forward(ctx, *args)`; `backward(ctx, *grads)` gives
    one gradient per argument of forward, `jvp(ctx, *tangents)` one tangent per output. Arrays inside lists, tuples and
    dicts are arguments and outputs too. Only the first style works inside of transforms.

    Without `jvp`, forward mode transposes backward, which then has to be linear in the gradients, as derivatives are.

    Inside of `vmap` a Function needs one of two: `vmap(info, in_dims, *args) -> (output, out_dims)`, which computes all
    `info.batch_size` examples from arguments whose batch axis is 0, or that have none (None); usually it calls `apply`
    again. Or `generate_vmap_rule = True`: forward, setup_context, backward and jvp are each run on all examples at
    once, one by one only where they convert values to NumPy arrays.
    """

    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise AutogradError(f"{type(self).__name__} is never instantiated\ncall {type(self).__name__}.apply(...)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs."""
        raise NotImplementedError("a Function has to define a forward staticmethod")

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what backward and jvp need."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Context, *grad_outputs: Any) -> Any:
        """One gradient per argument of forward."""
        raise NotImplementedError

    @staticmethod
    def vjp(ctx: Context, *grad_outputs: Any) -> Any:
        """Another name of backward."""
        raise NotImplementedError

    @staticmethod
    def jvp(ctx: Context, *grad_inputs: Any) -> Any:
        """One tangent per output."""
        raise NotImplementedError

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        """(output, out_dims) of all examples."""
        raise NotImplementedError


class UserFunction(CustomDerivative):
    """What a subclass of Function defines: its derivative, its forward, and its rules for transforms."""

    def __init__(self, cls: type[Function]) -> None:
        self.cls = cls
        self.label: str = cls.__name__
        self.name = f"{cls.__name__}Backward"
        self.functions = tuple([getattr(cls, name) for name in _STATIC])
        self.separate = cls.setup_context is not Function.setup_context
        self._parameters = _with_defaults(cls.forward) if self.separate else None
        if _defines(cls, "backward") and _defines(cls, "vjp"):
            raise AutogradError(f"{cls.__name__} defines both backward and vjp, two names for one function\n"
                                "remove one of them")
        if not _defines(cls, "forward"):
            raise NotImplementedError(f"{cls.__name__} has no forward staticmethod\ndefine forward(*args)")
        backward = cls.vjp if _defines(cls, "vjp") else cls.backward
        self._is_complete = backward is not Function.backward
        self._backward = split_for_numpy(f"backward of {self.label}", backward)
        self._jvp = split_for_numpy(f"jvp of {self.label}", cls.jvp) if _defines(cls, "jvp") else None
        self.once: bool = getattr(backward, "once_differentiable", False)
        self.direct = (None, self._backward) if self._is_complete else None
        self.parts = FunctionParts(self, cls, cls.forward, cls.setup_context, self._n_parameters(),
                             self.separate and not self.once)
        self.batched_functions: dict[tuple[Dims, str], BatchedFunction] = {}
        self.interpreter_rules: list[FunctionRuleHandle] = []

    def rule_for(self, cls: type) -> Callable[..., Any] | None:
        """The newest rule for interpreters of exactly this class of transforms; None without one."""
        return next((handle.rule for handle in reversed(self.interpreter_rules) if handle.cls is cls),
                    None)

    def _n_parameters(self) -> int:
        parameters = self._parameters.parameters.values() if self._parameters is not None else ()
        fixed = all(parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
                    for parameter in parameters)
        return len(parameters) if fixed and self._parameters is not None else -1

    def bind(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with the defaults of forward filled in."""
        if self._parameters is None:
            return args
        bound = self._parameters.bind(*args)
        bound.apply_defaults()
        return bound.args

    def forward(self, *args: Any) -> Any:
        """The user's forward, of the style that is separate from setup_context."""
        return self.cls.forward(*args)

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """The user's setup_context."""
        self.cls.setup_context(ctx, values, output)
        if self._jvp is None and ctx._is_forward:
            ctx._results = Results(output, ctx.non_differentiable)

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """The user's backward: one entry per argument, and surplus None."""
        if not self._is_complete:
            raise NoDerivativeError(f"{self.cls.__name__} has no backward staticmethod\n"
                                    "define backward(ctx, *grad_outputs)")
        return self.entries(ctx, self._backward(ctx, *grads))

    def entries(self, ctx: Any, found: Any) -> tuple[Any, ...]:
        """What backward returned, checked, as one entry per argument."""
        entries = found if isinstance(found, tuple) else (found,)
        n = len(ctx.needs_input_grad)
        if len(entries) < n or any(entry is not None for entry in entries[n:]):
            raise AutogradError(f"{self.name} returned an incorrect number of gradients: expected {n}, "
                                f"got {len(entries)}\n"
                                "return one per argument of forward, None for those without a gradient")
        return entries[:n]

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        """The user's jvp; without one, the transpose of backward."""
        if self._jvp is not None:
            return self._jvp(ctx, *tangents)
        if not self._is_complete:
            raise NoDerivativeError(f"{self.cls.__name__} has no jvp staticmethod, but is used in forward mode\n"
                                    "define jvp(ctx, *tangents), or backward(ctx, *grad_outputs), from which one is "
                                    "derived")
        if self.once:
            raise refuse_once_differentiable(self.label)
        return transposed(
            self.label, lambda grads: self.backward(ctx, grads if isinstance(grads, tuple) else (grads,)), ctx._results,
            tangents, ctx.materialize,
        )

    def batched(self, interpreter: Vmap, args: tuple[Any, ...], captured: bool) -> Any:
        """The call under vmap: by the user's batching rule, or by the one generated from the other functions."""
        own = _defines(self.cls, "vmap")
        if own and self.cls.generate_vmap_rule:
            raise VmapError(f"{self.label} has both a vmap staticmethod and generate_vmap_rule = True\n"
                            "remove one of the two")
        if not own and not self.cls.generate_vmap_rule:
            raise VmapError(
                f"{self.label} has no batching rule, used under {describe_interpreter(interpreter)}\n"
                "set generate_vmap_rule = True in the class, or define vmap(info, in_dims, *args) -> (output, "
                "out_dims)"
            )
        if not any(_core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(args)):
            return _core.lowered(interpreter, apply_custom, self, args, captured)
        if own:
            what = f"the vmap staticmethod of {self.label}"
            return _core.lowered(interpreter, call_batching_rule, what, self.cls.vmap, interpreter, args, {})
        return _apply_batched(self, interpreter, args, captured)


class BatchedFunction(BatchedDerivative):
    """A batch of calls of a Function as one call: what the interpreters below its vmap see."""

    separate = True

    def __init__(self, function: AnyFunction, dims: Dims, randomness: str) -> None:
        super().__init__(function, BatchedArguments(
            function.label, dims, randomness,
            "write its forward with operators, or define vmap(info, in_dims, *args) -> (output, out_dims) in place of "
            "generate_vmap_rule"))
        self.label: str = f"vmap({function.label})"
        self.once: bool = function.once
        self.parts = FunctionParts(self, None, self.forward, self.setup, -1, not self.once)
        self.batched_functions: dict[tuple[Dims, str], BatchedFunction] = {}
        self._function = function
        self._loops = False     # has forward converted its arguments to NumPy arrays?

    def forward(self, *args: Any) -> Any:
        """The user's forward on all examples."""
        if not self._loops:
            try:
                return self.batch.at_once(self._function.forward, args)
            except ConversionError:
                self._loops = True
        return self._one_by_one(args)

    def _one_by_one(self, args: tuple[Any, ...]) -> Any:
        """The user's forward on each example, which is a Tensor, as all of them at once are."""
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
        """None: a batch of calls has no rules of its own."""

    def batched(self, interpreter: Vmap, args: tuple[Any, ...], captured: bool) -> Any:
        """The call under another vmap."""
        if not any(_core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(args)):
            return _core.lowered(interpreter, apply_custom, self, args, captured)
        return _apply_batched(self, interpreter, args, captured)


_STATIC = ("forward", "setup_context", "backward", "vjp", "jvp", "vmap")


class FunctionCall:
    """A Function as the rule of a transform calls it, on the values below."""

    schema = None

    def __init__(self, function: AnyFunction, captured: bool) -> None:
        self.name = function.label
        self._function = function
        self._captured = captured

    def __repr__(self) -> str:
        return f"<Function {self.name}>"

    def __call__(self, *args: Any) -> Any:
        return apply_custom(self._function, args, self._captured)


class FunctionRuleHandle(Handle):
    """The rule of a Function for a class of transforms."""

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


AnyFunction: TypeAlias = UserFunction | BatchedFunction


def _defines(cls: type[Function], name: str) -> bool:
    return getattr(cls, name) is not getattr(Function, name)


def _with_defaults(forward: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(forward)
    except (TypeError, ValueError):
        return None


def _parts_of(cls: type[Function]) -> FunctionParts:
    parts: FunctionParts | None = cls.__dict__.get("_parts")
    if parts is None:
        parts = cls._parts = UserFunction(cls).parts    # type: ignore[attr-defined]
    return parts


def apply_custom(function: AnyFunction, args: tuple[Any, ...], captured: bool = False) -> Any:
    """The call, at the innermost interpreter. `captured`: one above owns no argument, so none may be written to."""
    return _core.apply_function(function.parts, args, captured)


def _apply_in_general(function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """`apply_custom` for arguments of any kind at any interpreter."""
    if _core.current_state().substitute is not None:
        function_is_used(function)
    args = tree_map(_core.unwrap_dead_value, args)
    interpreter = _core.innermost_transform_now()
    if interpreter is None:
        return _apply_on_tape(function, args, captured)
    if not function.separate:
        raise AutogradError(
            f"{function.label} is used under {interpreter.name}, but its forward takes ctx: override setup_context\n"
            "define forward(*args) and setup_context(ctx, inputs, output) separately"
        )
    return interpreter.apply_function(function, args, captured)


def _apply_in_interpreter(interpreter: Any, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """`Interpreter.apply_function`: the call one interpreter below, and its outputs as values of this one."""
    output, wrapped = _apply_below(interpreter, function, args, captured)
    return output if wrapped is None else attach_results(function, args, wrapped, interpreter)


def _apply_in_jvp(interpreter: Any, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """`Interpreter.apply_function` of `jvp`: outputs get tangents."""
    output, wrapped = _apply_below(interpreter, function, args, captured)
    return output if wrapped is None else _with_tangents(function, args, wrapped, interpreter)


def _apply_in_vmap(interpreter: Vmap, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
    """`Interpreter.apply_function` of `vmap`: a batch of calls."""
    return function.batched(interpreter, args, captured)


def _apply_below(interpreter: Any, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> tuple[Any, Any]:
    """The outputs below, and as values of the interpreter; None where no argument is one."""
    if not any(_core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(args)):
        return _core.lowered(interpreter, apply_custom, function, args, True), None
    below = values_below(args, interpreter)
    output = _core.lowered(interpreter, apply_custom, function, below, captured)
    return output, wrap_outputs(output, below, args, interpreter)


def _apply_batched(function: AnyFunction, interpreter: Vmap, args: tuple[Any, ...], captured: bool) -> Any:
    """A batch of calls as one call at the interpreter below, of which every output is a batch."""
    leaves, spec = tree_flatten(args)
    kind = _core.dims_of_leaves(leaves, interpreter), interpreter.randomness
    if kind not in function.batched_functions:
        function.batched_functions[kind] = BatchedFunction(function, *kind)
    below = _core.leaves_below(leaves, interpreter)
    parts = function.batched_functions[kind].parts
    output = _core.lowered(interpreter, _core.apply_function, parts, tree_unflatten(below, spec), captured)
    return entered_results(interpreter, output, below, leaves)


def wrap_outputs(output: Any, below: tuple[Any, ...], args: tuple[Any, ...], interpreter: Any) -> Any:
    """Outputs of the interpreter below as values of this one; what is an argument there is the same argument here."""
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
        return output       # nothing to save for, and no argument that may have been written to
    return attach_results(function, args, output, None, ctx, captured)


def _is_new_constant(output: Any, leaves: list[Any], captured: bool) -> bool:
    """Is it one array, and nothing that it is made of on the tape?"""
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
    """Let the user save, then make the outputs results of a node where an argument is tracked."""
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
    """Make the outputs, of any kind, results of a node where an argument is tracked."""
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
                                "return every input that is written to")
        if captured or (interpreter is not None and not _core.is_owned_by(tensor, interpreter)):
            where = "the function" if interpreter is None else interpreter.name
            raise AutogradError(
                f"{derivative.label} wrote to an argument that {where} does not own\n"
                "pass a copy made inside, or pass it as an argument of the transformed function"
            )
        if not isinstance(tensor, Tensor):
            continue
        if _core.is_leaf_memory(tensor) and _core.current_state().grad:
            raise AutogradError(f"{derivative.label} wrote in place to a leaf that requires grad, or to a view of "
                                "one\npass a copy: tensor.copy()")
        _core.note_write(tensor)


def _distinct(ctx: Context, args: tuple[Any, ...], output: Any, interpreter: Any) -> Any:
    """Outputs that are inputs, unless they were written to, and outputs of another history, as Tensors of their own."""
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
    """At an interpreter of `jvp`: the user's jvp gives the tangents of the outputs."""
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
    """Mark a backward function whose result cannot be differentiated again: doing so raises AutogradError."""

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
    """The identity on its first argument, which refuses to be differentiated with respect to any argument."""

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
                         "write its backward with operators and drop the mark")


_core.extend(_core.Interpreter, apply_function=_apply_in_interpreter)
_core.extend(_core.Jvp, apply_function=_apply_in_jvp)
_core.extend(Vmap, apply_function=_apply_in_vmap)
_core.connect(parts_of_function=_parts_of, apply_in_general=_apply_in_general, finish_in_general=_finish_in_general,
              wrap_outputs=wrap_outputs)
