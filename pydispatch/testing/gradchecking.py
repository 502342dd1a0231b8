"""gradcheck and gradgradcheck: compare a function's derivatives with finite differences of its values.

Here every array counts as a vector of real numbers, its *components*. For a complex array these are its real parts,
then its imaginary parts. There is therefore one real Jacobian, for real and complex functions alike. In reverse mode a
cotangent of 1 at an element gives the gradient of its real part, and a cotangent of 1j that of its imaginary part. A
gradient is dL/dRe + i dL/dIm of a real L.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pydispatch._core import Context, OpOverload, OpOverloadPacket, Tensor, is_array
from pydispatch.autograd.backward import grad
from pydispatch.autograd.function import Function
from pydispatch.autograd.grad_modes import enable_grad
from pydispatch.exceptions import AutogradError, GradcheckError, PerformanceWarning
from pydispatch.func.grad import vjp
from pydispatch.func.jvp import jvp
from pydispatch.memory import overlaps_itself
from pydispatch.tree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]      # numpy.typing is slow to import
Matrix: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
LARGE = 36      # messages show a matrix of at most this many elements whole


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
    check_batched_grad: bool = False, check_forward_ad: bool = False, check_backward_ad: bool = True,
    fast_mode: bool = False, raise_exception: bool = True,
) -> bool:
    """Compare the derivatives of `func(*inputs)` with central differences.

    Only copies of the inputs are used, with elements spaced in memory like theirs. The check also requires that
    backward gives the same result twice, returns zeros for zeros, and does not change the gradient that it receives.
    Warns about inputs that are not in double precision.

    Parameters
    ----------
    func : callable
        A function that returns arrays, possibly in pytrees. Results that require grad are checked. If none does, no
        result may depend on a checked input.
    inputs : Tensor or sequence
        The arguments, which may be pytrees. Tensors that require grad are checked. Everything else is passed unchanged.
    eps : float, optional
        The step of the central differences.
    atol, rtol : float, optional
        The tolerances: `|found - numerical| <= atol + rtol * |numerical|` for each element.
    nondet_tol : float, optional
        How much the results of two backward passes may differ.
    check_undefined_grad : bool, optional
        Whether to check that backward handles results that received no gradient.
    check_grad_dtypes : bool, optional
        Whether to check that gradients are as precise as the inputs.
    check_batched_grad : bool, optional
        Whether to check that backward on a batch of gradients (`autograd.grad` with `is_grads_batched`) gives the same
        as backward on each of them.
    check_forward_ad, check_backward_ad : bool, optional
        Whether to check forward mode and reverse mode.
    fast_mode : bool, optional
        With True, compare one random projection of each Jacobian. Only if that differs, all elements are compared, and
        these decide.
    raise_exception : bool, optional
        With False, return False instead of raising GradcheckError.

    Returns
    -------
    bool
        True if the derivatives agree.

    Raises
    ------
    GradcheckError
        If a check fails.
    ValueError
        If nothing requires grad or there is nothing to check.
    AutogradError
        If elements of an input share memory.

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor, testing
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> testing.gradcheck(np.sin, x)
    True
    """
    options = _Options(
        eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad, check_forward_ad,
        check_backward_ad, fast_mode,
    )
    _check_options("gradcheck", check_forward_ad, check_backward_ad)
    with enable_grad():
        case = _read_case(f"gradcheck: {_name_of(func)}", func, _as_arguments(inputs))
        _refuse_overlaps(case)
        _warn_of_single_precision(case)
        return _verdict([partial(_check, _with_outputs(case), options)], raise_exception)


def gradgradcheck(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5,
    rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
    check_batched_grad: bool = False, check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
    fast_mode: bool = False,
) -> bool:
    """Compare the second derivatives of `func(*inputs)` with central differences of its gradient.

    This is `gradcheck` of (inputs, grad_outputs) ↦ gradients of the inputs. Parameters that are not listed are those of
    `gradcheck`, and so are the errors.

    Parameters
    ----------
    func : callable
        A function that returns arrays, possibly in pytrees.
    inputs : Tensor or sequence
        The arguments, which may be pytrees.
    grad_outputs : Tensor or sequence of Tensors, optional
        A Tensor for each result of `func` that requires grad. By default they are drawn from [-1, 1].
    gen_non_contig_grad_outputs : bool, optional
        Whether drawn Tensors have gaps between their elements.
    check_fwd_over_rev, check_rev_over_rev : bool, optional
        Whether to take the second derivative in forward mode and in reverse mode.

    Returns
    -------
    bool
        True if the derivatives agree.

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor, testing
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> testing.gradgradcheck(np.sin, x)
    True
    """
    options = _Options(
        eps, atol, rtol, nondet_tol, check_undefined_grad, check_grad_dtypes, check_batched_grad, False, True,
        fast_mode,
    )
    _check_options("gradgradcheck", check_fwd_over_rev, check_rev_over_rev)
    with enable_grad():
        first = _read_case(f"gradgradcheck: {_name_of(func)}", func, _as_arguments(inputs))
        _refuse_overlaps(first)
        _warn_of_single_precision(first)
        first = _with_outputs(first)
        if not first.outputs:
            return _verdict([partial(_check_independence, first, options)], raise_exception)
        cotangents = _cotangents(first, grad_outputs, gen_non_contig_grad_outputs)
        checks = []
        if check_rev_over_rev:
            checks.append(partial(_check, _gradient_case(first, _gradient_by_tape(first), cotangents), options))
        if check_fwd_over_rev:
            forward = options._replace(check_forward=True, check_backward=False)
            checks.append(partial(_check, _gradient_case(first, _gradient_byvjp(first), cotangents), forward))
        return _verdict(checks, raise_exception)


class _Options(NamedTuple):
    """The checks to make, and their tolerances."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float
    check_undefined: bool
    check_dtypes: bool
    check_batches: bool
    check_forward: bool
    check_backward: bool
    fast: bool


class _Case(NamedTuple):
    """A function at the point where its derivatives are checked."""

    title: str                          # the start of its errors' messages
    func: Callable[..., Any]
    leaves: tuple[Any, ...]             # of the arguments
    spec: TreeSpec                      # the structure of the arguments
    checked: tuple[int, ...]            # the leaves that require grad
    labels: tuple[str, ...]             # their names in errors
    points: tuple[Array, ...]           # their values
    notes: tuple[str, ...] = ()         # on each leaf of the result, possibly empty
    outputs: tuple[int, ...] = ()       # the leaves of the result that require grad
    output_labels: tuple[str, ...] = ()
    values: tuple[Array, ...] = ()      # the values of these leaves


class _Probes(NamedTuple):
    """The projection of the Jacobians to compare: rows of weights of components, or None for the whole."""

    directions: tuple[Matrix | None, ...]       # per input
    cotangents: tuple[Matrix | None, ...]       # per output


def _verdict(checks: Iterable[Callable[[], None]], raise_exception: bool) -> bool:
    try:
        for check in checks:
            check()
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(case: _Case, options: _Options) -> None:
    """Run all checks, that of the values first."""
    if not case.outputs:
        _check_independence(case, options)
        return
    _check_jacobians(case, options)
    if options.check_forward:
        _check_zero_tangents(case)
        _check_joint_tangents(case, options)
    if options.check_backward:
        _check_zero_cotangents(case)
        if options.check_undefined:
            _check_undefined_cotangents(case)
        if options.check_dtypes:
            _check_dtypes(case)
        if options.check_batches:
            _check_batches(case, options)


# --- the function and its point --------------------------------------------------------------------------------------


def _check_options(check: str, forward: bool, backward: bool) -> None:
    if not (forward or backward):
        raise ValueError(f"{check}: neither forward nor reverse mode is selected\nselect at least one")


def _name_of(func: Callable[..., Any]) -> str:
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        return str(func.name)
    owner = getattr(func, "__self__", None)
    if isinstance(owner, type):
        return f"{owner.__qualname__}.{func.__name__}"
    name: str = getattr(func, "__qualname__", None) or type(func).__qualname__
    return name.rpartition("<locals>.")[2]


def _as_arguments(inputs: Any) -> tuple[Any, ...]:
    return (inputs,) if is_array(inputs) else tuple(inputs)


def _read_case(title: str, func: Callable[..., Any], arguments: tuple[Any, ...]) -> _Case:
    leaves, spec = tree_flatten(arguments)
    checked = tuple([i for i, leaf in enumerate(leaves) if _requires_grad(leaf)])
    if not checked:
        raise ValueError(f"{title}: no input requires grad\npass one as Tensor(array, requires_grad=True)")
    names = _leaf_names(func, arguments)
    return _Case(
        title, func, tuple(leaves), spec, checked,
        labels=tuple([f"input {i}{names[i]}" for i in checked]),
        points=tuple([leaves[i].array for i in checked]),
    )


def _leaf_names(func: Callable[..., Any], arguments: tuple[Any, ...]) -> list[str]:
    """Return for every leaf of the arguments " (argument x)", " (argument xs[1])", or "" if the name is not known."""
    names = []
    for name, argument in zip(_parameter_names(func, len(arguments)), arguments, strict=True):
        leaves = tree_leaves(argument)
        is_leaf = len(leaves) == 1 and leaves[0] is argument
        names += [f" (argument {name}{'' if is_leaf else f'[{k}]'})" if name else "" for k in range(len(leaves))]
    return names


def _parameter_names(func: Callable[..., Any], count: int) -> list[str]:
    owner = getattr(func, "__self__", None)
    forward = owner.forward if isinstance(owner, type) and issubclass(owner, Function) else None
    try:
        parameters = list(inspect.signature(forward or func).parameters.values())
    except (TypeError, ValueError):     # `func` may be written in C
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if forward is not None and names[:1] == ["ctx"]:
        del names[0]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    names += [f"{rest}[{i}]" if rest else "" for i in range(count - len(names))]
    return names[:count]


def _refuse_overlaps(case: _Case) -> None:
    for label, point in zip(case.labels, case.points, strict=True):
        if overlaps_itself(point):
            raise AutogradError(
                f"{case.title}: elements of {label} share memory, so they cannot be perturbed separately\n"
                "pass a copy: Tensor(array.copy(), requires_grad=True)"
            )


def _warn_of_single_precision(case: _Case) -> None:
    for label, point in zip(case.labels, case.points, strict=True):
        if point.dtype not in (np.float64, np.complex128):
            warnings.warn(
                f"{case.title}: {label} has dtype {point.dtype}, but finite differences need float64 or complex128",
                stacklevel=3,
            )


def _like(array: Array) -> Array:
    """Return an array of zeros whose elements are spaced in memory like those of another."""
    if array.size == 0 or array.dtype.hasobject:
        return np.zeros_like(array)
    spans = [stride * (extent - 1) for stride, extent in zip(array.strides, array.shape, strict=True)]
    start = -sum(span for span in spans if span < 0)
    memory = np.zeros(start + sum(span for span in spans if span > 0) + array.itemsize, np.uint8)
    return np.ndarray(array.shape, array.dtype, memory, start, array.strides)


def copy_with_layout(array: Array) -> Array:
    """Copy an array so that the elements of the copy are spaced in memory like its own."""
    result = _like(array)
    result[...] = array
    return result


def _call(case: _Case, variables: Sequence[Any]) -> list[Any]:
    """Return the leaves of the result for these values of the checked inputs."""
    leaves = list(case.leaves)
    for position, variable in zip(case.checked, variables, strict=True):
        leaves[position] = variable
    return tree_leaves(case.func(*tree_unflatten(leaves, case.spec)))


def _variables(points: Iterable[Array]) -> list[Tensor]:
    return [Tensor(copy_with_layout(point), requires_grad=True) for point in points]


def _with_outputs(case: _Case) -> _Case:
    """Return the case with those results that require grad."""
    result = _call(case, _variables(case.points))
    return _select(case, result, _requires_grad)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _select(case: _Case, result: list[Any], wanted: Callable[[Any], bool]) -> _Case:
    outputs = tuple([i for i, leaf in enumerate(result) if wanted(leaf)])
    return case._replace(
        outputs=outputs,
        output_labels=tuple([f"output {i}{case.notes[i] if case.notes else ''}" for i in outputs]),
        values=tuple([_array(result[i]) for i in outputs]),
    )


def _array(value: Any) -> Array:
    return value.array if isinstance(value, Tensor) else np.asarray(value)


def _record(case: _Case) -> tuple[list[Tensor], list[Tensor]]:
    """Return new variables, and the results that were recorded from them."""
    variables = _variables(case.points)
    result = _call(case, variables)
    return variables, [result[i] for i in case.outputs]


# --- components ------------------------------------------------------------------------------------------------------


def _components(array: Array) -> Matrix:
    if array.dtype.kind == "c":
        return np.concatenate([array.real.ravel(), array.imag.ravel()]).astype(np.float64)
    return array.ravel().astype(np.float64)


def _from_components(vector: Matrix, like: Array) -> Array:
    if like.dtype.kind == "c":
        vector = vector[: like.size] + 1j * vector[like.size :]
    return vector.reshape(like.shape).astype(like.dtype)


def _n_components(array: Array) -> int:
    return 2 * array.size if array.dtype.kind == "c" else array.size


def _vectors(weights: Matrix | None, array: Array) -> Matrix:
    return np.eye(_n_components(array)) if weights is None else weights


def _project(weights: Matrix | None, rows: Matrix) -> Matrix:
    """Return the weighted sums of the rows. Without weights return the rows, so that a NaN stays in its row."""
    return rows if weights is None else weights @ rows


def _elementwise(case: _Case) -> _Probes:
    return _Probes((None,) * len(case.points), (None,) * len(case.values))


def _random(case: _Case) -> _Probes:
    return _Probes(_random_weights(case.points, 2718), _random_weights(case.values, 3141))


def _random_weights(arrays: tuple[Array, ...], seed: int) -> tuple[Matrix, ...]:
    """Return one row for each array, of positive weights and length 1, the same on every call."""
    generator = np.random.default_rng(seed)
    rows = [generator.uniform(0.25, 1.0, (1, _n_components(array))) for array in arrays]
    return tuple([row / max(float(np.linalg.norm(row)), 1e-300) for row in rows])


# --- Jacobians -------------------------------------------------------------------------------------------------------
# A Jacobian is a list of lists: per output, per input, a matrix with a row per cotangent and a column per direction.


def _numerical(case: _Case, probes: _Probes, eps: float) -> list[list[Matrix]]:
    return _by_columns(case, probes, lambda k, direction: _central_difference(case, k, direction, eps))


def _by_columns(
    case: _Case, probes: _Probes, derivative: Callable[[int, Array], list[Array]]
) -> list[list[Matrix]]:
    """Return the Jacobians from the derivatives of all outputs along each direction of each input."""
    jacobians: list[list[Matrix]] = [[] for _ in case.values]
    for k, point in enumerate(case.points):
        columns = [
            derivative(k, _from_components(vector, point)) for vector in _vectors(probes.directions[k], point)
        ]
        for i, value in enumerate(case.values):
            rows = np.array([_components(column[i]) for column in columns]).reshape(len(columns), _n_components(value))
            jacobians[i].append(_project(probes.cotangents[i], rows.T))
    return jacobians


def _central_difference(case: _Case, k: int, direction: Array, eps: float) -> list[Array]:
    above, below = (_moved(case, k, step * direction) for step in (eps, -eps))
    with np.errstate(invalid="ignore"):     # from infinities
        return [(high - low) / (2 * eps) for high, low in zip(above, below, strict=True)]


def _moved(case: _Case, k: int, step: Array) -> list[Array]:
    """Return the values of the outputs after moving one input."""
    variables = _variables(case.points)
    variables[k].array[...] += step
    result = _call(case, variables)
    for i, label, value in zip(case.outputs, case.output_labels, case.values, strict=True):
        if i >= len(result) or np.shape(_array(result[i])) != value.shape:
            found = "is missing" if i >= len(result) else f"has shape {np.shape(_array(result[i]))}"
            raise AutogradError(
                f"{case.title}: {label} has shape {value.shape}, but {found} when {case.labels[k]} is perturbed\n"
                "check at a point where a small change of the inputs does not change the shapes of the results"
            )
    return [_array(result[i]) for i in case.outputs]


def _by_backward(case: _Case, probes: _Probes, nondet_tol: float) -> list[list[Matrix]]:
    variables, outputs = _record(case)
    jacobians = []
    for i, value in enumerate(case.values):
        rows: list[list[Matrix]] = [[] for _ in case.points]
        for vector in _vectors(probes.cotangents[i], value):
            cotangent = _from_components(vector, value)
            first, again = (_backward_pass(case, outputs[i], variables, cotangent, i) for _ in range(2))
            for k, row in enumerate(rows):
                if not _all_close(np.nan_to_num(first[k]), np.nan_to_num(again[k]), nondet_tol):
                    raise _not_deterministic(case, i, k, first[k], again[k])
                row.append(first[k])
        matrices = [np.array(row).reshape(len(row), _n_components(p)) for row, p in zip(rows, case.points, strict=True)]
        jacobians.append([_project(w, m.T).T for w, m in zip(probes.directions, matrices, strict=True)])
    return jacobians


def _backward_pass(case: _Case, output: Tensor, variables: list[Tensor], cotangent: Array, i: int) -> list[Matrix]:
    """Return the components of the gradients of all checked inputs."""
    given = cotangent.copy()
    gradients = grad((output,), variables, (Tensor(given),), retain_graph=True, allow_unused=True)
    if not np.array_equal(given, cotangent):
        raise GradcheckError(
            f"{case.title}: backward wrote to the gradient of {case.output_labels[i]} in place\n"
            "return a new array: other nodes can use the same gradient"
        )
    return [
        np.zeros(_n_components(point)) if gradient is None else _components(_array(gradient))
        for gradient, point in zip(gradients, case.points, strict=True)
    ]


def _not_deterministic(case: _Case, i: int, k: int, first: Matrix, again: Matrix) -> GradcheckError:
    c = int(np.argmax(np.abs(np.nan_to_num(first) - np.nan_to_num(again))))
    return GradcheckError(
        f"{case.title}: backward is not deterministic: {case.output_labels[i]} with respect to {case.labels[k]}: "
        f"{_element(c, case.points[k])}: first {first[c]:.10g}, then {again[c]:.10g}\n"
        "make backward depend only on its arguments, or pass nondet_tol="
    )


def _by_forward(case: _Case, probes: _Probes) -> list[list[Matrix]]:
    def derivative(k: int, direction: Array) -> list[Array]:
        return _forward_mode(case, (k,), (direction,))

    return _by_columns(case, probes, derivative)


def _forward_mode(case: _Case, moved: tuple[int, ...], tangents: tuple[Array, ...]) -> list[Array]:
    """Return the tangents of the outputs for tangents of some of the inputs."""
    constants = [Tensor(copy_with_layout(point)) for point in case.points]

    def function(*primals: Any) -> tuple[Any, ...]:
        variables = list(constants)
        for k, primal in zip(moved, primals, strict=True):
            variables[k] = primal
        result = _call(case, variables)
        return tuple([result[i] for i in case.outputs])

    primals = tuple([constants[k] for k in moved])
    given = tuple([Tensor(copy_with_layout(tangent)) for tangent in tangents])
    _, pushed = jvp(function, primals, given)
    return [_array(tangent) for tangent in pushed]


# --- the checks ------------------------------------------------------------------------------------------------------


def _check_jacobians(case: _Case, options: _Options) -> None:
    if options.fast and next(_mismatches(case, _random(case), options), None) is None:
        return
    for mismatch in _mismatches(case, _elementwise(case), options):
        raise mismatch


def _mismatches(case: _Case, probes: _Probes, options: _Options) -> Iterator[GradcheckError]:
    numerical = _numerical(case, probes, options.eps)
    if options.check_backward:
        found = _by_backward(case, probes, options.nondet_tol)
        yield from _compare(case, probes, options, "analytic", found, numerical)
    if options.check_forward:
        found = _by_forward(case, probes)
        yield from _compare(case, probes, options, "forward mode", found, numerical)


def _compare(
    case: _Case, probes: _Probes, options: _Options, kind: str, found: list[list[Matrix]],
    numerical: list[list[Matrix]],
) -> Iterator[GradcheckError]:
    for i, outer in enumerate(probes.cotangents):
        for k, inner in enumerate(probes.directions):
            # a projection sums the errors of all elements, so the sum of their tolerances is allowed
            n_errors = (1.0 if outer is None else outer.sum()) * (1.0 if inner is None else inner.sum())
            allowed = options.atol * n_errors + options.rtol * np.abs(numerical[i][k])
            if not _all_close(found[i][k], numerical[i][k], allowed):
                yield _mismatch(case, i, k, kind, found[i][k], numerical[i][k], allowed)


def _excess(found: Matrix, expected: Matrix, allowed: Any) -> Matrix:
    """Return how much each difference exceeds the allowed one, or infinity if one of the two elements is NaN."""
    with np.errstate(invalid="ignore"):
        excess = np.abs(found - expected) - allowed
    excess = np.where(np.isnan(excess), np.inf, excess)
    return np.where(found == expected, -np.inf, excess)


def _all_close(found: Matrix, expected: Matrix, allowed: Any) -> bool:
    return bool(np.all(_excess(found, expected, allowed) <= 0))


def _mismatch(
    case: _Case, i: int, k: int, kind: str, found: Matrix, numerical: Matrix, allowed: Matrix
) -> GradcheckError:
    row, column = np.unravel_index(int(np.argmax(_excess(found, numerical, allowed))), found.shape)
    return GradcheckError(
        f"{case.title}: {case.output_labels[i]} with respect to {case.labels[k]}: "
        f"{_element(int(row), case.values[i])} by {_element(int(column), case.points[k])}: "
        f"{kind} {found[row, column]:.10g}, numerical {numerical[row, column]:.10g}\n"
        "correct that derivative (below, a row per element of the output and a column per element of the input)\n"
        f"{kind}:\n{_show(found)}\nnumerical:\n{_show(numerical)}"
    )


def _element(component: int, array: Array) -> str:
    index = tuple(map(int, np.unravel_index(component % max(array.size, 1), array.shape)))
    if array.dtype.kind != "c":
        return f"element {index}"
    return f"{'imaginary' if component >= array.size else 'real'} part of element {index}"


def _show(matrix: Matrix) -> str:
    return np.array2string(matrix, threshold=LARGE, precision=6, max_line_width=120)


def _check_independence(case: _Case, options: _Options) -> None:
    """Check that no result depends on a checked input, if no result requires grad."""
    result = _call(case, _variables(case.points))
    case = _select(case, result, lambda leaf: is_array(leaf) and np.dtype(leaf.dtype).kind in "fc")
    labels = [f"{label}, which does not require grad," for label in case.output_labels]
    case = case._replace(output_labels=tuple(labels))
    probes = _elementwise(case)
    numerical = _numerical(case, probes, options.eps)
    zeros = [[np.zeros_like(matrix) for matrix in matrices] for matrices in numerical]
    for mismatch in _compare(case, probes, options, "analytic", zeros, numerical):
        raise mismatch


def _check_zero_cotangents(case: _Case) -> None:
    variables, outputs = _record(case)
    zeros = [Tensor(np.zeros_like(value)) for value in case.values]
    gradients = grad(outputs, variables, zeros, allow_unused=True)
    for label, gradient in _not_zero(case, gradients):
        raise GradcheckError(
            f"{case.title}: backward does not multiply by the gradient of the output: if that is zero, the gradient "
            f"of {label} is\n{_show(gradient)}\nmultiply by the gradient of the output"
        )


def _not_zero(case: _Case, gradients: Iterable[Any]) -> Iterator[tuple[str, Array]]:
    for label, gradient in zip(case.labels, gradients, strict=True):
        if gradient is not None and np.any(_array(gradient) != 0):
            yield label, _array(gradient)


class _Undefined(Function):
    """The identity, whose backward returns no gradient."""

    @staticmethod
    def forward(ctx: Context, x: Tensor) -> Any:
        return x.copy()

    @staticmethod
    def backward(ctx: Context, gradient: Any) -> None:
        return None


def _check_undefined_cotangents(case: _Case) -> None:
    """Check that gradients are None or zeros if all outputs are undefined, or one is and the others get zeros."""
    everything = range(len(case.outputs))
    for undefined in [everything, *([i] for i in everything if len(everything) > 1)]:
        which = "all outputs" if undefined is everything else case.output_labels[undefined[0]]
        variables, outputs = _record(case)
        ends = [_Undefined.apply(output) if i in undefined else output for i, output in enumerate(outputs)]
        zeros = [Tensor(np.zeros_like(value)) for value in case.values]
        try:
            gradients = grad(ends, variables, zeros, allow_unused=True)
        except Exception as error:
            raise GradcheckError(
                f"{case.title}: backward fails where the gradient of {which} is undefined: {type(error).__name__}: "
                f"{error}\ntreat a gradient of None as zeros, or call ctx.set_materialize_grads(True)"
            ) from error
        for label, gradient in _not_zero(case, gradients):
            raise GradcheckError(
                f"{case.title}: where the gradient of {which} is undefined, expected None or zeros for {label}, found\n"
                f"{_show(gradient)}\ntreat a gradient of None as zeros"
            )


def _check_zero_tangents(case: _Case) -> None:
    tangents = tuple([np.zeros_like(point) for point in case.points])
    pushed = _forward_mode(case, tuple(range(len(tangents))), tangents)
    for label, tangent in zip(case.output_labels, pushed, strict=True):
        if np.any(tangent != 0):
            raise GradcheckError(
                f"{case.title}: if all tangents of the inputs are zero, the tangent of {label} is\n{_show(tangent)}\n"
                "multiply by the tangents of the inputs"
            )


def _check_joint_tangents(case: _Case, options: _Options) -> None:
    """Check that the tangents of the outputs add up if all inputs have tangents at once."""
    everything = tuple(range(len(case.points)))
    weights = _random_weights(case.points, 2718)
    tangents = tuple([_from_components(row, point) for (row,), point in zip(weights, case.points, strict=True)])
    parts = [_forward_mode(case, (k,), (tangents[k],)) for k in everything]
    for i, joint in enumerate(_forward_mode(case, everything, tangents)):
        total = np.sum([part[i] for part in parts], axis=0)
        if not _all_close(joint, total, options.atol + options.rtol * np.abs(total)):
            raise GradcheckError(
                f"{case.title}: the tangent of {case.output_labels[i]} for all inputs together is not the sum of its "
                f"tangents for each input: found\n{_show(joint)}\nexpected\n{_show(total)}\n"
                "add the contributions of all inputs"
            )


def _check_dtypes(case: _Case) -> None:
    """Check that gradients have the dtype of their inputs, and were not cast to it from a less precise one."""
    generator = np.random.default_rng(3141)
    variables, outputs = _record(case)
    cotangents = [
        Tensor(_from_components(generator.uniform(-1, 1, _n_components(value)), value)) for value in case.values
    ]
    for label, point, gradient in zip(
        case.labels, case.points, grad(outputs, variables, cotangents, allow_unused=True), strict=True
    ):
        found = point.dtype if gradient is None else _precision(_array(gradient))
        if found != point.dtype:
            raise GradcheckError(
                f"{case.title}: the gradient of {label} was computed in {found}, expected {point.dtype}\n"
                f"return a gradient of the input's dtype from backward"
            )


def _check_batches(case: _Case, options: _Options) -> None:
    """Check that backward on two random gradients at once gives the same as backward on each of them."""
    generator = np.random.default_rng(5772)
    variables, outputs = _record(case)
    for i, value in enumerate(case.values):
        batch = np.stack([_draw(generator, value, gaps=False) for _ in range(2)])
        each = [_gradients(case, outputs[i], variables, Tensor(cotangent)) for cotangent in batch]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformanceWarning)
            try:
                together = _gradients(case, outputs[i], variables, Tensor(batch), is_grads_batched=True)
            except Exception as error:
                raise GradcheckError(
                    f"{case.title}: backward fails on a batch of gradients of {case.output_labels[i]}: "
                    f"{type(error).__name__}: {error}\nwrite it with operators that have batching rules, or pass "
                    "check_batched_grad=False"
                ) from error
        for k, (label, found) in enumerate(zip(case.labels, together, strict=True)):
            expected = np.stack([gradients[k] for gradients in each])
            found = np.broadcast_to(found, expected.shape)      # zeros, for an input that no gradient reached
            if not np.allclose(found, expected, options.rtol, options.atol, equal_nan=True):
                raise GradcheckError(
                    f"{case.title}: for a batch of gradients of {case.output_labels[i]}, the gradient of {label} is\n"
                    f"{_show(found)}\nexpected, from one gradient at a time,\n{_show(expected)}\n"
                    "correct the batching rules of the operators that backward calls"
                )


def _gradients(case: _Case, output: Tensor, variables: list[Tensor], cotangent: Tensor, **options: Any) -> list[Array]:
    gradients = grad(output, variables, cotangent, retain_graph=True, allow_unused=True, **options)
    return [
        np.zeros_like(point) if gradient is None else _array(gradient)
        for gradient, point in zip(gradients, case.points, strict=True)
    ]


def _precision(gradient: Array) -> np.dtype[Any]:
    """Return the least precise dtype that holds these values, considering only nonzero arrays."""
    for lower in (np.dtype(np.float32), np.dtype(np.complex64)):
        if lower.kind == gradient.dtype.kind and np.any(gradient != 0):
            with np.errstate(over="ignore"):
                if np.array_equal(gradient, gradient.astype(lower), equal_nan=True):
                    return lower
    return gradient.dtype


# --- second derivatives ----------------------------------------------------------------------------------------------


def _cotangents(case: _Case, given: Any, gaps: bool) -> tuple[Any, ...]:
    if given is not None:
        cotangents = _as_arguments(given)
        if len(cotangents) != len(case.outputs):
            raise ValueError(
                f"{case.title}: {len(cotangents)} grad_outputs were given, expected {len(case.outputs)}, one for each "
                "result that requires grad\n"
                "pass that many, or none for random ones"
            )
        return cotangents
    generator = np.random.default_rng(1618)
    return tuple([Tensor(_draw(generator, value, gaps), requires_grad=True) for value in case.values])


def _draw(generator: np.random.Generator, value: Array, gaps: bool) -> Array:
    drawn = _from_components(generator.uniform(-1, 1, _n_components(value)), value)
    return np.stack([drawn, drawn], -1)[..., 0] if gaps else drawn


def _gradient_case(case: _Case, gradient: Callable[..., Any], cotangents: tuple[Any, ...]) -> _Case:
    """Return the case of the gradient as a function of the inputs and of the cotangents."""
    arguments = tree_unflatten(case.leaves, case.spec)
    names = [f"grad_outputs[{i}]" for i, cotangent in enumerate(cotangents) if _requires_grad(cotangent)]
    gradients = _read_case(case.title, gradient, (*arguments, *cotangents))._replace(
        labels=(*case.labels, *names), notes=tuple([f" (the gradient of {label})" for label in case.labels]),
    )
    _refuse_overlaps(gradients)
    return _with_outputs(gradients)


def _gradient_by_tape(case: _Case) -> Callable[..., Any]:
    n_arguments = len(case.spec.children)

    def gradient(*arguments: Any) -> Any:
        leaves = tree_leaves(arguments[:n_arguments])
        variables = [leaves[i] for i in case.checked]
        result = _call(case, variables)
        outputs = [result[i] for i in case.outputs]
        return grad(outputs, variables, arguments[n_arguments:], create_graph=True, allow_unused=True)

    return gradient


def _gradient_byvjp(case: _Case) -> Callable[..., Any]:
    n_arguments = len(case.spec.children)

    def outputs(*variables: Any) -> tuple[Any, ...]:
        result = _call(case, variables)
        return tuple([result[i] for i in case.outputs])

    def gradient(*arguments: Any) -> Any:
        leaves = tree_leaves(arguments[:n_arguments])
        _, run_vjp = vjp(outputs, *[leaves[i] for i in case.checked])
        return run_vjp(arguments[n_arguments:])

    return gradient
