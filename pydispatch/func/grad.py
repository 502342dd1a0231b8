"""`grad`, `value_and_grad` and `vjp`: reverse mode as a transform.

Each call is a separate interpreter. Its values record on the tape of that interpreter, and the backward pass runs at
the interpreter below. Transforms therefore nest in any order and never see each other's tapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

from pydispatch import _core
from pydispatch._core import Grad
from pydispatch._registry.backends import dtype_of
from pydispatch.autograd.backward import edges_at, gradients_of_inputs
from pydispatch.autograd.values import as_raw_constant, enter_arrays, one_beside
from pydispatch.exceptions import AutogradError
from pydispatch.func.functions import returned_by
from pydispatch.func.values import (
    are_raw,
    as_array,
    as_passed,
    check_arguments,
    check_aux,
    check_differentiable,
    check_no_wrapper,
    enter_arguments,
    fitted_to,
    flatten_arguments,
    flatten_like,
    flatten_outputs,
    leave_aux,
    scalar_or_array,
    unflatten_arguments,
    zeros_for,
)
from pydispatch.tree import LEAF, TreeSpec, path_of_leaf, tree_unflatten

P = ParamSpec("P")
R = TypeVar("R")


def grad(func: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[P, Any]:
    """Return a function that computes the gradient of `func`.

    Parameters
    ----------
    func : callable
        A function that returns one real number, or an array of one. With `has_aux` it returns (value, aux).
    argnums : int or tuple of int, optional
        The positional arguments to differentiate with respect to. They are arrays or pytrees of arrays. A tuple gives a
        tuple of gradients.
    has_aux : bool, optional
        With True, the result is (gradient, aux).

    Returns
    -------
    callable
        A function of the same arguments. The gradient of a pytree is a pytree of the same structure. Each gradient has
        the shape and dtype of its argument, and is a raw array if the argument is one. The gradient of a number or
        scalar is a scalar.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import func
    >>> func.grad(lambda x: np.sum(x ** 2))(numpy.array([1.0, 2.0]))
    array([2., 4.])
    >>> func.grad(lambda x, y: x * y, argnums=(0, 1))(2.0, 3.0)
    (np.float64(3.0), np.float64(2.0))
    """
    @returned_by(grad, func, argnums, has_aux)
    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        return _core.differentiate(func, args, kwargs, argnums, has_aux, False)

    return gradient_of


def value_and_grad(
    func: Callable[P, R], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, tuple[R, Any]]:
    """Return a function that computes the value and the gradient of `func`.

    Parameters
    ----------
    func : callable
        A function that returns one real number, or an array of one. With `has_aux` it returns (value, aux).
    argnums : int or tuple of int, optional
        The positional arguments to differentiate with respect to: see `grad`.
    has_aux : bool, optional
        With True, the result is ((value, aux), gradient).

    Returns
    -------
    callable
        A function of the same arguments that returns (value, gradient).

    Examples
    --------
    >>> from pydispatch import func
    >>> func.value_and_grad(lambda x: x ** 3)(2.0)
    (np.float64(8.0), np.float64(12.0))
    """
    @returned_by(value_and_grad, func, argnums, has_aux)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        return _core.differentiate(func, args, kwargs, argnums, has_aux, True)

    return value_and_gradient


def _differentiate_in_general(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Any, has_aux: bool, site: Any
) -> tuple[Any, Any, Any]:
    """Return (value, aux, gradients) for calls that the core does not handle: pytrees, and positions to check."""
    positions = positions_of(argnums, len(args))
    interpreter = Grad("grad", site)
    leaves, spec = flatten_arguments(tuple([args[i] for i in positions]))
    run = record(interpreter, func, args, kwargs, positions, leaves, spec, has_aux, as_scalar)
    found = run.pull((one_beside(run.outputs[0]),), keep=False)
    of_raw = are_raw(run.outputs)
    handed = [as_gradient(gradient, leaf, of_raw) for gradient, leaf in zip(found, leaves, strict=True)]
    gradients = tree_unflatten(handed, spec)
    aux = leave_aux(run.aux, interpreter, args) if has_aux else None
    return run.outputs[0], aux, gradients[0] if isinstance(argnums, int) else gradients


class Recorded(NamedTuple):
    """A recorded run of a function at an interpreter of `grad`, as values of the interpreter below."""

    interpreter: Grad
    outputs: list[Any]
    spec: TreeSpec              # of the output
    roots: list[Any]            # the edge of each output, None for one that depends on no input
    inputs: tuple[Any, ...]     # the edges that are differentiated with respect to
    aux: Any

    def pull(self, cotangents: Iterable[Any], *, keep: bool) -> list[Any]:
        """Return the gradient of each input, None if the outputs do not depend on it. `keep` retains the graph."""
        return gradients_of_inputs(self.interpreter, self.roots, cotangents, self.inputs, keep=keep)


def record(
    interpreter: Grad, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    positions: Sequence[int], leaves: list[Any], spec: TreeSpec, has_aux: bool,
    convert: Callable[[Any], Any] | None = None,
) -> Recorded:
    """Run a function at an interpreter of `grad`, tracking the `leaves` of the arguments at these positions.

    `spec` describes the tuple of these arguments. `convert` returns the output as an array, or raises.
    """
    check_arguments(interpreter.name, leaves, spec, positions)

    def run() -> Recorded:
        interpreter.arguments = args
        tracked = [_core.tracked_leaf(interpreter, leaf) for leaf in leaves]
        entered = enter_arguments(interpreter, args, positions, unflatten_arguments(tracked, spec))
        output, aux = check_aux(interpreter.name, func(*entered, **enter_arrays(interpreter, kwargs)), has_aux)
        outputs = _outputs(interpreter.name, output) if convert is None else ([convert(output)], LEAF)
        return _recorded(interpreter, *outputs, tracked, aux, for_later=convert is None)

    return _core.run_under(interpreter, run)


def _recorded(
    interpreter: Grad, outputs: list[Any], spec: TreeSpec, tracked: list[Any], aux: Any, *, for_later: bool
) -> Recorded:
    """Return the tape from the tracked values to the outputs. Call it while the interpreter is active.

    With `for_later`, users may write to the arrays that they passed and received. The tape then copies what it needs of
    them.
    """
    for value in (*tracked, *outputs) if for_later else ():
        _core.keep_for_later(value)
    inputs = tuple([_core.edge_of_tensor(leaf) for leaf in tracked])
    below = _core.results_below(outputs, interpreter)
    return Recorded(interpreter, below, spec, edges_at(interpreter, outputs), inputs, aux)


def positions_of(argnums: Any, n: int) -> tuple[int, ...]:
    """Return the positions in `argnums`, none of them negative.

    Raise AutogradError for a position that does not exist or occurs twice.
    """
    if type(argnums) is int and 0 <= argnums < n:
        return (argnums,)
    given = (argnums,) if isinstance(argnums, int) and not isinstance(argnums, bool) else argnums
    if not isinstance(given, tuple) or not all(type(i) is int for i in given):
        raise AutogradError(f"argnums is {argnums!r}, expected an int or a tuple of ints\nwrite argnums=0")
    if not given:
        raise AutogradError("argnums is an empty tuple, expected at least one position\nwrite argnums=(0,)")
    if any(not -n <= i < n for i in given):
        raise AutogradError(f"argnums is {argnums!r}, but the call has {n} positional argument{'s'[n == 1:]}\n"
                            "pass the arguments to differentiate by position")
    positions = tuple([i % n for i in given])
    if len(set(positions)) < len(positions):
        raise AutogradError(f"argnums {argnums!r} selects an argument twice\nselect each argument once")
    return positions


def as_scalar(output: Any) -> Any:
    """Return the output of a function as an array of one real number, or raise AutogradError if it is not one."""
    output = as_array(_core.unwrap_dead_result(output))
    check_no_wrapper("grad", output)
    if not _core.is_array(output):
        raise AutogradError(f"grad: the function returned {_core.a_type(output)}, expected one real number\n"
                            "return a Tensor, or pass has_aux=True and return (value, aux)")
    if math.prod(output.shape) != 1:
        raise AutogradError(f"grad: the function returned an array of shape {tuple(output.shape)}, expected one real "
                            "number\nreturn a sum, or use vjp")
    if dtype_of(output).kind != "f":
        raise AutogradError(f"grad: the function returned a value of dtype {output.dtype}, expected a real "
                            "floating-point one\nreturn abs(value) ** 2 if the value is complex, or use vjp")
    return output


def as_gradient(gradient: Any, argument: Any, of_raw: bool) -> Any:
    """Return the gradient as the user gets it: a raw array for a raw argument, zeros for None."""
    if gradient is None:
        gradient = zeros_for(argument)
    return scalar_or_array(as_passed(gradient, (argument,), of_raw=of_raw, is_new=True), argument)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Compute `func(*primals)`, and return it with a function that computes gradients from cotangents.

    Parameters
    ----------
    func : callable
        A function that returns arrays or pytrees of arrays. With `has_aux` it returns (output, aux).
    `*primals` : arrays or pytrees of arrays
        The arguments of `func`.
    has_aux : bool, optional
        With True, the result is (output, vjp_fn, aux).

    Returns
    -------
    output : array or pytree of arrays
        The value of `func(*primals)`.
    vjp_fn : callable
        Each call of `vjp_fn(cotangents)` computes one gradient per primal, as a tuple. The cotangents have the
        structure of the output, each with the shape of its output. The gradients have the structure of the primals.
        Writing later to raw primals or outputs of more than 64 KiB changes the results of `vjp_fn`.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import func
    >>> output, vjp_fn = func.vjp(np.sin, numpy.zeros(2))
    >>> vjp_fn(numpy.array([1.0, 2.0]))
    (array([1., 2.]),)
    """
    site = _core.calling_site()
    if not has_aux:
        flat: tuple[Any, ...] = _core.run_vjp(func, primals, site)
        if flat is not _core.NOT_FLAT:
            return flat
    interpreter = Grad("vjp", site)
    leaves, spec = flatten_arguments(primals)
    run = record(interpreter, func, primals, {}, range(len(primals)), leaves, spec, has_aux)
    result = _output_and_vjp_fn(run, primals, leaves, spec)
    return (*result, leave_aux(run.aux, interpreter, primals)) if has_aux else result


def _recorded_run_of_arrays(interpreter: Grad, output: Any, tracked: list[Any]) -> Recorded:
    """Return the run of a function of arrays whose output is not one of its interpreter."""
    interpreter.arguments = tuple(tracked)
    return _recorded(interpreter, *_outputs(interpreter.name, output), tracked, None, for_later=True)


def _output_and_vjp_fn_of_arrays(run: Recorded, primals: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return (output, vjp_fn) if the primals are arrays and the output is not one of its interpreter."""
    return _output_and_vjp_fn(run, primals, *flatten_arguments(primals))


def _output_and_vjp_fn(run: Recorded, primals: tuple[Any, ...], leaves: list[Any], spec: TreeSpec) -> tuple[Any, Any]:
    """Return (output, vjp_fn) of a recorded function."""

    def vjp_fn(cotangents: Any) -> tuple[Any, ...]:
        sent = _cotangents(cotangents, run.outputs, run.spec)
        found = run.pull(sent, keep=True)
        of_raw = are_raw(run.outputs) and are_raw(sent)
        return unflatten_arguments(
            [as_gradient(gradient, leaf, of_raw) for gradient, leaf in zip(found, leaves, strict=True)], spec)

    return tree_unflatten([as_passed(leaf, primals) for leaf in run.outputs], run.spec), vjp_fn


def _outputs(name: str, output: Any) -> tuple[list[Any], TreeSpec]:
    """Flatten the output of a function, and raise AutogradError for arrays that cannot be differentiated."""
    leaves, spec = flatten_outputs(name, output)
    for n, leaf in enumerate(leaves):
        if dtype_of(leaf).kind not in "fc":
            raise AutogradError(f"{name}: the output{path_of_leaf(spec, n)} has dtype {leaf.dtype}, expected a "
                                "floating-point or complex one\nreturn it as aux: has_aux=True")
    return leaves, spec


def _cotangents(cotangents: Any, outputs: list[Any], spec: TreeSpec) -> list[Any]:
    leaves = flatten_like("vjp", "cotangents", cotangents, spec,
                          "pass one cotangent per output, in the same structure")
    return [_cotangent(leaf, output, spec, n) for n, (leaf, output) in enumerate(zip(leaves, outputs, strict=True))]


def _cotangent(cotangent: Any, output: Any, spec: TreeSpec, n: int) -> Any:
    """Convert one cotangent for the engine: to the dtype of the output, and to a raw array if it holds nothing more."""
    name = f"vjp: the cotangent{path_of_leaf(spec, n)}"
    if not _core.is_array(cotangent):
        raise AutogradError(f"{name} is {_core.a_type(cotangent)}, expected an array\npass numpy.asarray(...)")
    return as_raw_constant(fitted_to("the output", output, name, cotangent))


_core.connect(enter_constants=enter_arrays, check_differentiable=check_differentiable, check_aux=check_aux,
              as_scalar=as_scalar, one_beside=one_beside, differentiate_in_general=_differentiate_in_general,
              as_gradient=as_gradient, as_passed=as_passed, leave_aux=leave_aux, as_raw_constant=as_raw_constant,
              as_cotangent=lambda cotangent, output: _cotangents(cotangent, [output], LEAF)[0],
              recorded=_recorded_run_of_arrays, output_and_vjp_fn=_output_and_vjp_fn_of_arrays, zeros_for=zeros_for)
