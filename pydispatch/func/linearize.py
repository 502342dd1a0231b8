"""`linearize`: the derivative of a function at a point, as a function that can be called repeatedly.

The function runs once, at an interpreter of `jvp` inside a separate interpreter, `Linearize`. The values of `Linearize`
are the tangents and everything computed from them. `Linearize` therefore sees, operator by operator, what `jvp`
computes with tangents, and keeps a list of these steps. The derivative runs the list with other tangents. Values that
do not depend on tangents are constants in the list.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import Jvp, OpOverload, PythonInterpreter, PythonWrapper
from pydispatch._registry.backends import dtype_of
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.function import AnyFunction, apply_custom
from pydispatch.autograd.views import write_error
from pydispatch.exceptions import AutogradError
from pydispatch.func.jvp import Propagated, handed_out_tangent, inexact_error, is_inexact_array, propagate
from pydispatch.func.values import are_raw, as_array, as_passed, flatten_arguments, flatten_like, zeros_for
from pydispatch.ops import ops
from pydispatch.tree import (
    TreeSpec,
    is_pytree_node_type,
    path_to_leaf_number,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Compute `func(*primals)`, and return it with a function that computes derivatives without running `func` again.

    Parameters
    ----------
    func : callable
        A function that returns arrays or pytrees of arrays.
    `*primals` : arrays or pytrees of arrays
        The arguments of `func`.

    Returns
    -------
    output : array or pytree of arrays
        The value of `func(*primals)`.
    jvp_fn : callable
        `jvp_fn(*tangents)` returns the derivative, in the structure of the output. Tangents have the structure of the
        primals, each with the shape and dtype of its primal. Tangents that do not fit raise AutogradError. Writing
        later to raw primals or outputs changes the results of `jvp_fn`.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import func
    >>> output, jvp_fn = func.linearize(np.sin, numpy.zeros(2))
    >>> jvp_fn(numpy.array([1.0, 2.0]))
    array([1., 2.])
    """
    site = _core.calling_site()
    leaves, spec = flatten_arguments(primals)
    if not leaves:
        raise AutogradError("linearize: no primals were given\nwrite linearize(f, x)")
    for n, leaf in enumerate(leaves):
        if not is_inexact_array(leaf):
            raise inexact_error("linearize", f"primal {path_to_leaf_number(spec, n)}", leaf)
    tape = Linearize(site)

    def record() -> Propagated:
        tangents = [tape.new_value(zeros_for(leaf)) for leaf in leaves]
        return propagate(Jvp("linearize", site), func, primals, range(len(primals)), leaves, tangents, spec, False)

    run = _core.run_under(tape, record)
    outputs = run.outputs
    numbers = [tape.number_of(tangent) for tangent in run.tangents]
    constants = [None if _core.is_owned_by(tangent, tape) else tangent for tangent in run.tangents]
    steps = tape.steps_to([number for number in numbers if number is not None])
    writes, n_values, of_raw = tape.writes, tape.n_values, are_raw(outputs)

    def jvp_fn(*tangents: Any) -> Any:
        sent = _tangents(tangents, leaves, spec)
        values = _gone_through(steps, list(map(ops.np.copy, sent)) if writes else sent, n_values)
        results = [
            _constant_tangent(constant, output) if number is None else as_array(values[number])
            for number, constant, output in zip(numbers, constants, outputs, strict=True)
        ]
        given = (*primals, *tangents)
        return tree_unflatten([handed_out_tangent(result, output, given, of_raw)
                               for result, output in zip(results, outputs, strict=True)], run.spec)

    return tree_unflatten([as_passed(output, primals) for output in outputs], run.spec), jvp_fn


class LinearStep(NamedTuple):
    """A recorded call with tangents."""

    call: Callable[..., Any]
    leaves: list[Any]                       # of the arguments: constants, and None for each tangent
    spec: TreeSpec | None                   # of (args, kwargs), None if the leaves are the positional arguments
    inputs: tuple[tuple[int, int], ...]     # (position among the leaves, number of the tangent)
    results: tuple[int | None, ...]         # the numbers of the results' leaves, None for one that is not an array
    # False: the function switched off recording for the interpreters around it and for the tape
    records: bool


class Linearize(PythonInterpreter):
    """The interpreter of `linearize`. Its values are tangents, and the note of each is the number that steps refer to.

    A value computed from tangents other than by calls that this interpreter sees has no number, and raises an error.
    """

    def __init__(self, site: Any) -> None:
        super().__init__("linearize", site, watches=False)
        self.steps: list[LinearStep] = []
        self.n_values = 0
        self.writes = False
        self.grad = _core.current_state().grad

    def new_value(self, value: Any) -> PythonWrapper:
        """Return a value of this interpreter with the next number."""
        wrapper = _core.wrap_value_at(self, value)
        wrapper.note = self.n_values
        self.n_values += 1
        return wrapper

    def process(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the operator on the values below, and append the call to the list if an argument is a tangent."""
        if _writes(func):
            self.prepare_write(func, args, kwargs)
        return self.process_call(func, args, kwargs)

    def process_call(self, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Process a call of any callable, such as a Function or a higher-order operator."""
        leaves, spec = _flattened(args, kwargs)
        tangents = [(i, leaf) for i, leaf in enumerate(leaves) if _core.is_owned_by(leaf, self)]
        if not tangents:
            return call(*args, **kwargs)
        known = {}
        for i, tangent in tangents:
            if tangent.note is None:
                raise unknown_error(call, self)
            known[id(tangent.array)] = tangent
            leaves[i] = tangent.array
        with np.errstate(all="ignore"):         # the values of the tangents do not matter
            result = _called(call, leaves, spec)
        for i, _ in tangents:
            leaves[i] = None
        leaves = [_core.guarded_value(leaf) for leaf in leaves]
        wrapped = self.as_value(result, known) if _core.is_array(result) else tree_map(
            lambda leaf: self.as_value(leaf, known), result)
        self.steps.append(LinearStep(
            call, leaves, spec, tuple([(i, tangent.note) for i, tangent in tangents]),
            tuple([leaf.note if _core.is_owned_by(leaf, self) else None for leaf in _leaves_of(wrapped)]),
            _core.current_state().grad or not self.grad,
        ))
        return wrapped

    def apply_function(self, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
        """Process a call of a Function. It is known only after the run whether it writes to its arguments."""
        return _core.lowered(self, self._apply_below, function, args, captured)

    def _apply_below(self, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
        owned = [_core.is_owned_by(leaf, self) for leaf in tree_leaves(args)]
        self.writes = self.writes or any(owned)
        for leaf, is_tangent in zip(tree_leaves(args), owned, strict=True):
            if _core.is_array(leaf) and not is_tangent:
                self.keep_constants(leaf)
        return self.process_call(functools.partial(_applied, function, captured), args, {})

    def as_value(self, leaf: Any, known: dict[int, PythonWrapper]) -> Any:
        """Wrap a result as a value of this interpreter, or return the argument that it is."""
        if not _core.is_array(leaf):
            return leaf
        return known[id(leaf)] if id(leaf) in known else self.new_value(leaf)

    def prepare_write(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Copy the constants in the list that share memory with the target of a write.

        Raise AutogradError if the target is a constant and the value a tangent.
        """
        for argument, value in zip(func.schema.arguments, func.bind(args, kwargs), strict=True):
            for target in tree_leaves(value) if argument.mutable else ():
                if _core.is_owned_by(target, self):
                    self.writes = True
                elif any(_core.is_owned_by(leaf, self) for leaf in tree_leaves((args, kwargs))):
                    raise write_error(func, argument.name, "CAPTURED", target, self)
                elif _core.is_array(target):
                    self.keep_constants(target)

    def keep_constants(self, target: Any) -> None:
        """Replace the constants in the list that share memory with the target by copies."""
        for step in self.steps:
            for i, leaf in enumerate(step.leaves):
                if _core.is_array(leaf) and _core.have_one_memory(leaf, target):
                    step.leaves[i] = ops.np.copy(leaf)

    def number_of(self, tangent: Any) -> int | None:
        """Return the number of a tangent, or None for a constant."""
        if not _core.is_owned_by(tangent, self):
            return None
        if tangent.note is None:
            raise unknown_error(self.name, self)
        number: int = tangent.note
        return number

    def steps_to(self, numbers: list[int]) -> list[LinearStep]:
        """Return the steps that lead to these values, or all steps if one writes to a value."""
        if self.writes:
            return self.steps
        needed = set(numbers)
        steps = []
        for step in reversed(self.steps):
            if not needed.isdisjoint(step.results):
                needed.update([number for _, number in step.inputs])
                steps.append(step)
        return steps[::-1]


def unknown_error(call: Any, interpreter: Linearize) -> AutogradError:
    """Return the error for a value computed from tangents outside operators."""
    return AutogradError(
        f"{getattr(call, 'name', call)}: an argument was computed from tangents of {describe_interpreter(interpreter)} "
        "outside operators, so linearize cannot repeat it\n"
        "compute tangents with operators, or use jvp")


@functools.lru_cache(maxsize=1024)
def _writes(func: OpOverload) -> bool:
    return func.schema.is_mutable


def _applied(function: AnyFunction, captured: bool, *args: Any) -> Any:
    return apply_custom(function, args, captured)


def _gone_through(steps: list[LinearStep], tangents: list[Any], n_values: int) -> list[Any]:
    """Run the steps and return the values by their numbers, beginning with the tangents."""
    values = tangents + [None] * (n_values - len(tangents))
    for step in steps:
        leaves = step.leaves.copy()
        for position, number in step.inputs:
            leaves[position] = values[number]
        if step.records:
            result = _called(step.call, leaves, step.spec)
        else:
            result = _core.with_grad_mode(False, _called, step.call, leaves, step.spec)
        for name, leaf in zip(step.results, _leaves_of(result), strict=True):
            if name is not None:
                values[name] = leaf
    return values


def _flattened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], TreeSpec | None]:
    """Flatten the arguments. The spec is None if the leaves are the positional arguments themselves."""
    for arg in args:
        if not _core.is_array(arg) and is_pytree_node_type(type(arg)):
            return tree_flatten((args, kwargs))
    return tree_flatten((args, kwargs)) if kwargs else (list(args), None)


def _called(call: Callable[..., Any], leaves: list[Any], spec: TreeSpec | None) -> Any:
    if spec is None:
        return call(*leaves)
    args, kwargs = tree_unflatten(leaves, spec)
    return call(*args, **kwargs)


def _leaves_of(result: Any) -> list[Any]:
    return [result] if _core.is_array(result) else tree_leaves(result)


def _constant_tangent(tangent: Any, output: Any) -> Any:
    return zeros_for(output) if tangent is None else ops.np.copy(tangent)


def _tangents(tangents: tuple[Any, ...], primals: list[Any], spec: TreeSpec) -> list[Any]:
    """Return a tangent for each array in the primals, of its shape and dtype."""
    given = flatten_like("linearize", "tangents", tangents, spec, "pass one tangent per primal, in the same structure")
    for n, (primal, tangent) in enumerate(zip(primals, given, strict=True)):
        if not _core.is_array(tangent):
            raise AutogradError(f"linearize: tangent {path_to_leaf_number(spec, n)} is {_core.a_type(tangent)}, "
                                "expected an array\npass numpy.asarray(...)")
        if tuple(tangent.shape) != tuple(primal.shape) or dtype_of(tangent) != dtype_of(primal):
            raise AutogradError(
                f"linearize: tangent {path_to_leaf_number(spec, n)} has shape {tuple(tangent.shape)} and dtype "
                f"{tangent.dtype}, but its primal has shape {tuple(primal.shape)} and dtype {primal.dtype}\n"
                "pass a tangent of the primal's shape and dtype")
    return given
