"""`jvp`: forward mode as a transform. The values of its interpreter have tangents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, TypeVarTuple, overload

from pydispatch import _core
from pydispatch._core import Jvp
from pydispatch._registry.backends import dtype_of
from pydispatch.exceptions import AutogradError, NotDifferentiableError
from pydispatch.func.values import (
    are_raw,
    as_passed,
    check_aux,
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
from pydispatch.ops import ops
from pydispatch.tree import TreeSpec, path_of_leaf, path_to_leaf_number, tree_unflatten

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


@overload
def jvp(
    func: Callable[[*Ts], R], primals: tuple[*Ts], tangents: tuple[Any, ...], *, strict: bool = ...,
    has_aux: Literal[False] = ...,
) -> tuple[R, R]: ...


@overload
def jvp(
    func: Callable[[*Ts], Any], primals: tuple[*Ts], tangents: tuple[Any, ...], *, strict: bool = ...,
    has_aux: bool,
) -> tuple[Any, ...]: ...


def jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """Compute `func(*primals)` and its derivative along `tangents`.

    Parameters
    ----------
    func : callable
        A function that returns arrays or pytrees of arrays. With `has_aux` it returns (output, aux).
    primals : tuple
        The arguments of `func`: arrays or pytrees of arrays.
    tangents : tuple
        The direction, in the structure of the primals. Each tangent has the shape of its primal.
    strict : bool, optional
        With True, an output that depends on no primal raises AutogradError. By default its tangent is zeros.
    has_aux : bool, optional
        With True, the result is (output, tangent, aux).

    Returns
    -------
    output : array or pytree of arrays
        The value of `func(*primals)`.
    tangent : array or pytree of arrays
        The derivative, in the structure of the output. The tangent of an output that is an argument is the passed
        tangent itself, not a copy.

    Examples
    --------
    >>> from pydispatch import func
    >>> func.jvp(lambda x: x ** 2, (3.0,), (1.0,))
    (np.float64(9.0), np.float64(6.0))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise AutogradError(f"jvp: primals and tangents are {_core.a_type(primals)} and "
                            f"{_core.a_type(tangents)}, expected tuples\nwrite jvp(f, (x,), (t,))")
    site = _core.calling_site()
    if not has_aux and not strict:
        flat: tuple[Any, ...] = _core.run_jvp(func, primals, tangents, site)
        if flat is not _core.NOT_FLAT:
            return flat
    leaves, spec = flatten_arguments(primals)
    sent = _tangents(tangents, leaves, spec)
    interpreter = Jvp("jvp", site)
    run = propagate(interpreter, func, primals, range(len(primals)), leaves, sent, spec, has_aux)
    if strict:
        _check_dependence(run)
    given = (*primals, *tangents)
    result = _output_and_tangent(run, given)
    return (*result, leave_aux(run.aux, interpreter, given)) if has_aux else result


def _shares_memory(value: Any, arrays: Iterable[Any]) -> bool:
    """Return whether this array shares memory with one of the others."""
    return any(_core.is_array(array) and _core.have_one_memory(value, array) for array in arrays)


def _output_and_tangent(run: Propagated, given: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return (output, tangent) as the user gets them."""
    found: list[Any] = []
    of_raw = are_raw(run.outputs)
    for output, tangent in zip(run.outputs, run.tangents, strict=True):
        if tangent is None:
            tangent = zeros_for(output)
        elif _shares_memory(tangent, (*given, *found)) and not _shares_memory(output, given):
            tangent = ops.np.copy(tangent)      # the user already holds this array: the tangent of x + 1 is that of x
        found.append(tangent)
    tangents = [handed_out_tangent(tangent, output, given, of_raw)
                for tangent, output in zip(found, run.outputs, strict=True)]
    return (
        tree_unflatten([as_passed(output, given) for output in run.outputs], run.spec),
        tree_unflatten(tangents, run.spec),
    )


def handed_out_tangent(tangent: Any, output: Any, given: tuple[Any, ...], of_raw: bool) -> Any:
    """Return the tangent of an output as the user gets it. `given` are the primals and tangents."""
    is_new = not _shares_memory(tangent, given)
    return scalar_or_array(as_passed(tangent, given, of_raw=of_raw, is_new=is_new), output)


class Propagated(NamedTuple):
    """A run of a function at an interpreter of `jvp`, as values of the interpreter below."""

    outputs: list[Any]
    tangents: list[Any]         # of the outputs, None for one that depends on no primal
    spec: TreeSpec              # of the output
    aux: Any


def propagate(
    interpreter: Jvp, func: Callable[..., Any], args: tuple[Any, ...], positions: Sequence[int], leaves: list[Any],
    tangents: list[Any], spec: TreeSpec, has_aux: bool,
) -> Propagated:
    """Run a function at an interpreter of `jvp`, with tangents for the `leaves` of the arguments at these positions.

    `spec` describes the tuple of these arguments.
    """

    def run() -> Propagated:
        interpreter.arguments = args
        primals = [_core.wrap_value_at(interpreter, leaf, tangent)
                   for leaf, tangent in zip(leaves, tangents, strict=True)]
        entered = enter_arguments(interpreter, args, positions, unflatten_arguments(primals, spec))
        output, aux = check_aux(interpreter.name, func(*entered), has_aux)
        return _propagated(interpreter, output, aux)

    return _core.run_under(interpreter, run)


def _propagated(interpreter: Jvp, output: Any, aux: Any) -> Propagated:
    """Return the values and tangents of a function's outputs. Call it while the interpreter is active."""
    outputs, spec = flatten_outputs(interpreter.name, output)
    found = [_core.tangent_of(leaf) if _core.is_owned_by(leaf, interpreter) else None for leaf in outputs]
    return Propagated(_core.results_below(outputs, interpreter), found, spec, aux)


def _check_dependence(run: Propagated) -> None:
    for n, tangent in enumerate(run.tangents):
        if tangent is None:
            raise AutogradError(f"jvp: the output{path_of_leaf(run.spec, n)} does not depend on the primals, but "
                                "strict is True\npass strict=False to get zeros")


def _tangents(tangents: tuple[Any, ...], primals: list[Any], spec: TreeSpec) -> list[Any]:
    """Return a tangent for each array in the primals, of its shape and dtype."""
    if not primals:
        raise AutogradError("jvp: there are no primals\nwrite jvp(f, (x,), (t,))")
    given = flatten_like("jvp", "tangents", tangents, spec, "pass one tangent per primal, in the same structure")
    return [_tangent_for(primal, tangent, spec, n) for n, (primal, tangent) in enumerate(
        zip(primals, given, strict=True))]


def _tangent_for(primal: Any, tangent: Any, spec: TreeSpec, n: int) -> Any:
    for what, value in (("primal", primal), ("tangent", tangent)):
        if not is_inexact_array(value):
            raise inexact_error("jvp", f"{what} {path_to_leaf_number(spec, n)}", value)
    return fitted_to("the primal", primal, f"jvp: tangent {path_to_leaf_number(spec, n)}", tangent)


def is_inexact_array(value: Any) -> bool:
    """Return whether this is a floating-point or complex array."""
    return _core.is_array(value) and dtype_of(value).kind in "fc"


def inexact_error(name: str, what: str, value: Any) -> AutogradError | NotDifferentiableError:
    """Return the error for a value that is not a floating-point or complex array."""
    if not _core.is_array(value):
        remedy = f"pass a float: {float(value)}" if isinstance(value, int) else "pass numpy.asarray(...)"
        return AutogradError(f"{name}: {what} is of type {type(value).__name__}, expected a float or an array\n"
                             f"{remedy}")
    return NotDifferentiableError(f"{name}: {what} has dtype {value.dtype}, expected a floating-point or complex one\n"
                                  "convert it first: array.astype(float)")


_core.connect(propagated=lambda interpreter, output: _propagated(interpreter, output, None),
              output_and_tangent=_output_and_tangent)
