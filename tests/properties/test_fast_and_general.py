"""A fast path computes what its general path computes: each call takes both, and every visible effect is compared.

These detours send a call down the general path and change nothing else:

- a tracer that does nothing. The fast paths of calls, of the tape and of `vmap`, and fused formulas, run only without
  a tracer.
- the name of an argument, not interned. `bind_directly` compares names by identity.
- a mode that passes every call on, composite operators in one piece. Under it `autograd/forward.py` computes tangents.
- an entry point that returns NOT_FLAT, or a position counted from the end, which it leaves to Python.
- a Function whose parts are marked as not simple. `autograd/function.py` and `autograd/custom_derivatives.py` run it.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pydispatch import Tensor, _core, autograd, func, library, ops
from pydispatch.autograd.backward import grad_in_general
from pydispatch.autograd.function import UserFunction, _parts_of
from pydispatch.backends import MetaArray
from pydispatch.modes import Guard
from pydispatch.operators import VARIANTS
from pydispatch.tree import tree_leaves, tree_map
from tests.comparing import raw, to_tensor
from tests.core.test_elementwise import operands
from tests.functions import FUNCTIONS
from tests.modes.recorders import Passing
from tests.operators.oracles import DIFFERENTIABLE, IN_PLACE, NAMES, UNDEFINED, WITH_OUT, to_meta
from tests.operators.samples import Sample, call, samples, schema_of, smooth_samples
from tests.operators.test_batching import mapped_calls
from tests.together import together
from tests.warning_filters import all_warnings

# --- general paths ----------------------------------------------------------------------------------------------------


class Silent:
    """A tracer that does nothing but count."""

    seen = 0

    def enter(self, how, op, key, entry):
        Silent.seen += 1

    def leave(self):
        pass


class PassedOn(Passing):
    """A mode that passes every call on, composite operators in one piece."""

    decompose_composites = False


def traced():
    return Guard("traced", tracer=Silent())


def not_interned(name):
    return "".join(["_", name])[1:]


def bound_in_general(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the call with all that has a name passed by that, and no name interned. One that does not bind as it is.
    """
    try:
        names = [argument.name for argument in op.default.schema.arguments if not argument.kw_only]
    except AttributeError:
        names = []
    if len(args) <= len(names) and not set(names[:len(args)]) & kwargs.keys():
        args, kwargs = (), {**dict(zip(names, args, strict=False)), **kwargs}
    return op(*args, **{not_interned(name): value for name, value in kwargs.items()})


# --- what can be seen of a call ---------------------------------------------------------------------------------------


class Near:
    """An array, equal to those whose elements are nearly the same."""

    def __init__(self, array):
        self.array = array

    def __eq__(self, other):
        one, other = self.array, other.array
        precision = 1e-4 if one.dtype in (np.float16, np.float32, np.complex64) else 1e-9
        finite = np.abs(other[np.isfinite(other)]) if other.dtype.kind in "fc" else 0
        tolerance = precision * np.max(finite, initial=0)
        return np.array_equal(one, other) or bool(
            np.allclose(one, other, rtol=precision, atol=tolerance, equal_nan=True))

    def __repr__(self):
        return repr(self.array)


def described_array(array: Any, known: list[Any], exactly: bool) -> Any:
    """Return type, dtype, shape, layout and bits, and the known arrays that it shares memory with or that are near."""
    if not exactly and isinstance(array, (np.ndarray, np.generic)):
        return type(array).__name__, array.dtype.str, array.shape, Near(np.asarray(array))
    if not isinstance(array, np.ndarray):
        return type(array).__name__, repr(array), str(getattr(array, "dtype", None)), getattr(array, "shape", None)
    layout = [stride for stride, n in zip(array.strides, array.shape, strict=True) if n > 1] if array.size else []
    return (
        type(array).__name__, array.dtype.str, array.shape, tuple(layout), array.flags.writeable,
        repr(array.tolist()) if array.dtype.hasobject else array.tobytes(),
        [i for i, other in enumerate(known) if isinstance(raw(other), np.ndarray)
         and np.may_share_memory(array, raw(other))],
    )


PLACES = re.compile(r"(?<=\.py:)\d+|(?<=0x)[0-9a-f]+|\bt\d+(?=::)")
"""Parts of messages that differ: lines of this file, addresses of objects, namespaces that fixtures make."""


def described_tape(node: Any, numbers: dict[int, int]) -> Any:
    """Return the nodes that can be reached, by name. Each one's edges, in order."""
    if node is None or not hasattr(node, "next_functions"):
        return type(node).__name__
    if id(node) in numbers:
        return numbers[id(node)]
    numbers[id(node)] = len(numbers)
    edges = [(described_tape(following, numbers), k) for following, k in node.next_functions]
    return PLACES.sub("", node.name), node.n_results, node.tracked_arguments, edges


def described(value: Any, known: list[Any], exactly: bool = True) -> Any:
    """Return the visible properties of a result. Treat NumPy scalars, which a mode does not get, as arrays."""
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [described(item, known, exactly) for item in value]
    if isinstance(value, dict):
        return {key: described(item, known, exactly) for key, item in value.items()}
    which = [i for i, other in enumerate(known) if value is other and isinstance(value, (Tensor, np.ndarray))]
    if not isinstance(value, Tensor):
        return which, described_array(value, known, exactly)
    return (which, type(value).__name__, described_array(raw(value), known, exactly), value._version,
            value.requires_grad, value.is_leaf, described_tape(value.grad_fn, {}),
            value.is_leaf and described(value.grad, [], exactly), exactly and _core.is_view(value))


def described_after_error(value: Any, known: list[Any], exactly: bool) -> Any:
    """Return the same without the elements of an array that the call may write to: NumPy leaves them undefined."""
    array = raw(value)
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        return described(value, known, exactly)
    seen = type(value).__name__, array.dtype.str, array.shape
    if not isinstance(value, Tensor):
        return seen
    return *seen, value._version, value.requires_grad, value.is_leaf, described_tape(value.grad_fn, {})


def outcome(call: Callable[..., Any], values: Any, exactly: bool = True) -> Any:
    """Return the result or error of a call, the warnings, and the state of its arguments and ambient state afterwards.
    """
    known = [leaf for leaf in tree_leaves(values) if isinstance(leaf, (Tensor, np.ndarray))]
    state = _core.current_state()
    describe = described
    with all_warnings() as caught:
        try:
            found = described(call(values), known, exactly)
        except Exception as error:
            found = type(error), PLACES.sub("", str(error))
            describe = described_after_error
    told = [(warning.category, PLACES.sub("", str(warning.message))) for warning in caught]
    if not exactly:
        told = {category for category, _ in told}
    return found, told, [describe(value, known, exactly) for value in known], _core.current_state() is state


def guarded(call: Callable[[Any], Any], *guards: Callable[[], Any]) -> Callable[[Any], Any]:
    def inside(values):
        with ExitStack() as stack:
            for guard in guards:
                stack.enter_context(guard())
            return call(values)
    return inside


def compare(
    fast: Callable[[Any], Any], general: Callable[[Any], Any], make: Callable[[], Any], what: Any = "",
    exactly: bool = True,
) -> None:
    """Make a call in both ways, on arguments made anew for each, in the fast one twice, as much is remembered then.

    `exactly=False` leaves out how results lie in memory, and the last bits: on Tensors, sums run in other orders.
    """
    expected = outcome(general, make(), exactly)
    for _ in range(2):
        assert outcome(fast, make(), exactly) == expected, what


@pytest.mark.parametrize("call", [
    lambda x: ops.np.add(x, x),
    lambda x: ops.np.add(Tensor(x, requires_grad=True), x),
    lambda x: func.grad(lambda x: ops.np.sum(x))(x),
    lambda x: func.vmap(lambda x: x * x)(x),
    lambda x: func.jvp(lambda x: x * x, (x,), (x,)),
], ids=["plain", "on the tape", "grad", "vmap", "jvp"])
def test_the_tracer_sees_every_call(call):
    # Without a tracer that sees them, the comparisons below would compare a path with itself.
    before = Silent.seen
    call(np.ones(3))
    assert Silent.seen == before
    with traced():
        call(np.ones(3))
    assert Silent.seen > before


def functions_run(call: Callable[[], Any]) -> set[str]:
    """Return the Python functions that a call runs, as `forward.propagate`."""
    found = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found.add(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")

    call()      # loads what the first call loads
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def gradient_on_the_tape(function: Callable[..., Any], x: np.ndarray) -> Any:
    leaf = Tensor(x, requires_grad=True)
    return autograd.grad(ops.np.sum(function(leaf)), leaf)


DETOURS: dict[str, tuple[Callable[[], Any], str, Callable[[Any], Any]]] = {
    "mode, jvp": (PassedOn, "forward.propagate", lambda x: func.jvp(lambda x: ops.np.sin(x) * x, (x,), (x,))),
    "mode, tape": (PassedOn, "backward.grad_in_general", lambda x: gradient_on_the_tape(ops.np.sin, x)),
    "entry point, vjp": (lambda: never_flat(), "grad.record", lambda x: func.vjp(ops.np.sin, x)),
    "entry point, jvp": (lambda: never_flat(), "jvp.propagate", lambda x: func.jvp(ops.np.sin, (x,), (x,))),
    "entry point, vmap": (lambda: never_flat(), "vmap._batch_size", lambda x: func.vmap(ops.np.sin)(x)),
    "Function, tape": (lambda: general_function(GIVEN["products"])(), "custom_derivatives.attach_node",
                       lambda x: gradient_on_the_tape(lambda x: GIVEN["products"].apply(x, x), x)),
    "Function, vjp": (lambda: general_function(GIVEN["products"])(), "custom_derivatives.attach_node",
                      lambda x: func.vjp(lambda x: GIVEN["products"].apply(x, x), x)),
}


@pytest.mark.parametrize("detour", DETOURS)
def test_detours_lead_through_the_general_path(detour):
    guard, general, call = DETOURS[detour]
    assert general not in functions_run(lambda: call(np.ones(3)))
    with guard():
        assert general in functions_run(lambda: call(np.ones(3)))


@pytest.mark.parametrize("entry_point", ["grad", "value_and_grad", "grad, positions"])
def test_positions_from_the_end_lead_through_the_general_path(entry_point):
    of_squares = {"value_and_grad": lambda x: (ops.np.sum(x * x), x)}.get(entry_point, lambda x: ops.np.sum(x * x))
    fast, general = (functions_run(lambda way=way: way(of_squares)(np.ones(3))) for way in ENTRY_POINTS[entry_point])
    assert "grad._differentiate_in_general" in general - fast


# --- calls of the library ---------------------------------------------------------------------------------------------


def few(found: Any, n: int) -> list[Any]:
    """Select at most `n` of them, from all over."""
    found = list(found)
    return found[::max(1, -(-len(found) // n))]


ALL = 10**9
AMOUNT = [pytest.param(8, id="some"), pytest.param(ALL, id="all", marks=pytest.mark.slow)]
DEFINED = [name for name in NAMES if name not in UNDEFINED]


def is_inexact(leaf):
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fc"


def replica(leaf):
    """Return a copy with the same strides."""
    if not isinstance(leaf, np.ndarray):
        return leaf
    copy = np.empty_like(leaf) if leaf.flags.forc else np.repeat(leaf[..., None], 2, -1)[..., 1]
    copy[...] = leaf
    copy.flags.writeable = leaf.flags.writeable
    return copy


def as_leaf(leaf):
    return Tensor(leaf, requires_grad=True) if is_inexact(leaf) else to_tensor(leaf)


def as_view(leaf):
    return Tensor(leaf)[...] if isinstance(leaf, np.ndarray) else leaf


KINDS = {"raw": lambda leaf: leaf, "Tensor": to_tensor, "view": as_view, "tracked": as_leaf, "meta": to_meta}


@pytest.mark.parametrize("name", DEFINED)
@pytest.mark.parametrize("amount", AMOUNT)
def test_calls_of_operators(name, amount):
    op = getattr(ops.np, name)
    for sample in few(samples(name), amount):
        for kind, convert in KINDS.items():
            compare(lambda call: op(*call.args, **call.kwargs),
                    guarded(lambda call: bound_in_general(op, call.args, call.kwargs), traced),
                    lambda sample=sample, convert=convert: tree_map(convert, sample), (kind, sample))


ON_BACKENDS: dict[str, Callable[..., Any]] = {
    "new": lambda x, y=None: type(x)([4.0, 5.0]),
    "the first": lambda x, y=None: x,
    "the last": lambda x, y=None: x if y is None else y,
    "a view": lambda x, y=None: x[:1] if isinstance(x, np.ndarray) else type(x)([4.0]),
    "of NumPy": lambda x, y=None: np.ones(3),
    "number": lambda x, y=None: 1.0,
    "raising": lambda x, y=None: 1 / 0,
}


@pytest.mark.parametrize("checked", [False, True], ids=["as it is", "checked for shared memory"])
@pytest.mark.parametrize("kernel", ON_BACKENDS)
def test_calls_on_arrays_of_backends(kernel, checked, new_library, backends):
    with new_library() as lib:
        name, schema = f"{lib.namespace}::f", "(Tensor x, Tensor? y=None, *, int n=1) -> Tensor"
        function = ON_BACKENDS[kernel]

        def with_number(x, y=None, *, n=1):
            return function(x, y)

        Tensor(np.ma.masked_array([1.0]))       # loads the pack
        if checked:
            operator = library.custom_op(name, with_number, mutates_args=(), schema=schema, device_types="CPU")
            for key in ("A", "C", "Masked"):
                operator.register_kernel(key)(with_number)
        else:
            lib.define(f"f{schema}")
            for key in ("CPU", "A", "C", "Masked"):
                lib.impl("f", with_number, key)
        op = getattr(ops, lib.namespace).f
        makers = [backends.ArrayA, backends.ArrayC, np.ma.masked_array, np.array]
        for first, second in product(makers, [*makers, None]):
            for wrap_first, wrap_second, kwargs in product((False, True), (False, True), ({}, {"n": 2})):
                def make(first=first, second=second, wrap_first=wrap_first, wrap_second=wrap_second):
                    x, y = first([1.0, 2.0]), second and second([3.0, 4.0])
                    return [Tensor(x) if wrap_first else x, Tensor(y) if wrap_second and second else y]
                compare(lambda values, kwargs=kwargs: op(*values, **kwargs),
                        guarded(lambda values, kwargs=kwargs: bound_in_general(op, tuple(values), kwargs), traced),
                        make, (first, second, wrap_first, wrap_second, kwargs))


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("amount", AMOUNT)
def test_calls_of_in_place_variants(name, amount):
    op = getattr(ops.np, VARIANTS[name].in_place)
    for sample in few(samples(name), amount):
        for kind in ("raw", "Tensor", "view"):
            compare(lambda call: op(*call.args, **call.kwargs),
                    guarded(lambda call: bound_in_general(op, call.args, call.kwargs), traced),
                    lambda sample=sample, kind=kind: tree_map(KINDS[kind], tree_map(replica, sample)), (kind, sample))


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if VARIANTS[name].in_place])
def test_in_place_variants_on_the_tape(name):
    op = getattr(ops.np, VARIANTS[name].in_place)

    def gradients(call):
        leaf = call.args[0]
        written = leaf * 1.0
        result = op(written, *call.args[1:], **call.kwargs)
        return result, written, autograd.grad(ops.np.sum(abs(result)), leaf, allow_unused=True)

    for sample in few(smooth_samples(name), 4):
        compare(gradients, guarded(gradients, traced), lambda sample=sample: tree_map(as_leaf, sample), sample)


@pytest.mark.parametrize("name", WITH_OUT)
@pytest.mark.parametrize("amount", AMOUNT)
def test_calls_with_out(name, amount):
    op = getattr(ops.np, name)
    n = len(schema_of(name).returns)
    for sample in few(samples(name), amount):
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = op(*sample.args, **sample.kwargs)
        except Exception:
            continue
        results = [np.asarray(result) for result in (results if n > 1 else [results])]

        def make(sample=sample, results=results, convert=to_tensor):
            out = [convert(np.zeros_like(result)) for result in results]
            return Sample(sample.args, {**sample.kwargs, "out": out[0] if n == 1 else tuple(out)})

        compare(lambda call: op(*call.args, **call.kwargs),
                guarded(lambda call: bound_in_general(op, call.args, call.kwargs), traced), make, sample)


# --- derivatives ------------------------------------------------------------------------------------------------------


def cotangents(results):
    return [np.asarray(np.linspace(0.5, 1.5, raw(result).size).reshape(result.shape), result.dtype)
            for result in results]


def gradients_of(op: Any) -> Callable[[Any], Any]:
    """Return the results of a call and the gradients of all that is tracked in it."""
    def gradients(call):
        results = op(*call.args, **call.kwargs)
        tracked = [leaf for leaf in tree_leaves(call) if isinstance(leaf, Tensor) and leaf.requires_grad]
        recorded = [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not tracked or not recorded:
            return results
        return results, autograd.grad(recorded, tracked, cotangents(recorded), allow_unused=True)
    return gradients


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("amount", AMOUNT)
def test_gradients(name, amount):
    gradients = gradients_of(getattr(ops.np, name))
    for sample in few(smooth_samples(name), amount):
        def make(sample=sample):
            return tree_map(as_leaf, sample)
        compare(gradients, guarded(gradients, traced), make, sample)
        compare(gradients, guarded(gradients, PassedOn), make, sample, exactly=False)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_loops_of_any_type_and_layout(data):
    name = data.draw(st.sampled_from(["add", "multiply", "subtract", "maximum", "where", "tanh", "exp", "square", "sum",
                                      "max", "mean", "clip"]))
    op = getattr(ops.np, name)
    types = [np.dtype("f4"), np.dtype("f8")]
    n = {"where": 3, "add": 2, "multiply": 2, "subtract": 2, "maximum": 2}.get(name, 1)
    values = data.draw(operands(n, types))
    if name == "where":
        values[0] = values[0] > 0
    elif name == "clip":
        values += [-0.5, 1.0]
    kind = data.draw(st.sampled_from(["raw", "Tensor", "view", "tracked", "in grad"]))

    def call(values):
        if kind == "in grad":
            return values_in_grad(op, Sample(tuple(values), {}))
        result = op(*values)
        tracked = [leaf for leaf in values if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not tracked:
            return result
        return result, autograd.grad([result, result * 2.0], tracked, cotangents([result, result]))

    convert = KINDS["raw" if kind == "in grad" else kind]
    compare(call, guarded(call, traced), lambda: [convert(replica(value)) for value in values], (name, kind, values))


def as_function(op: Any, sample: Sample) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a call as a function of the arrays in it that have derivatives."""
    values = tuple([leaf for leaf in tree_leaves(sample) if is_inexact(leaf)])

    def function(*given):
        turns = iter(given)
        call = tree_map(lambda leaf: next(turns) if is_inexact(leaf) else leaf, sample)
        results = op(*call.args, **call.kwargs)
        return tuple(results) if isinstance(results, (list, tuple)) else results

    return function, values


def values_in_grad(op: Any, sample: Sample) -> Any:
    """Return the results of a call under `vjp`, and the cotangents of what is differentiable in it."""
    function, values = as_function(op, sample)
    return with_vjp(function)(values) if values else function()


def with_vjp(function: Callable[..., Any]) -> Callable[..., Any]:
    def gradients(values):
        output, pull = func.vjp(function, *values)
        sent = cotangents(output if isinstance(output, tuple) else [output])
        return output, pull(tuple(sent) if isinstance(output, tuple) else sent[0])
    return gradients


def with_jvp(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda values: func.jvp(function, values, tuple(cotangents(values)))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("amount", AMOUNT)
@pytest.mark.parametrize("transform", [with_vjp, with_jvp], ids=["vjp", "jvp"])
def test_derivatives_by_transforms(name, transform, amount):
    for sample in few(smooth_samples(name), amount):
        function, values = as_function(getattr(ops.np, name), sample)
        if values:
            call = transform(function)
            for kind in (lambda leaf: leaf, to_tensor):
                def make(kind=kind, values=values):
                    return tuple(map(kind, values))
                compare(call, guarded(call, traced), make, sample)
                compare(call, guarded(call, PassedOn), make, sample, exactly=False)


def without_signs_of_zeros(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return gradients with 0.0 for -0.0, which adding up parts from zeros makes of it."""
    return lambda values: tree_map(lambda leaf: leaf + 0.0 if isinstance(leaf, np.ndarray) else leaf, function(values))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_of_derivatives(name):
    for sample in few(smooth_samples(name), 2):
        function, values = as_function(getattr(ops.np, name), sample)
        if not values:
            continue
        for outer, inner in ((with_jvp, with_vjp), (with_vjp, with_jvp), (with_jvp, with_jvp)):
            def second(*given, inner=inner, function=function):
                derivative = inner(function)(given)[1]
                return derivative if isinstance(derivative, tuple) else (derivative,)
            call = without_signs_of_zeros(outer(second))
            compare(call, guarded(call, traced), lambda values=values: values, sample)


# --- batches ----------------------------------------------------------------------------------------------------------

BATCHABLE = [name for name in DEFINED if any(argument.type.contains_arrays for argument in schema_of(name).arguments)]


@pytest.mark.parametrize("name", BATCHABLE)
@pytest.mark.parametrize("amount", AMOUNT)
def test_batches(name, amount):
    op = getattr(ops.np, name)
    for mapped in few(islice(mapped_calls(name, samples(name)), 2000), amount):
        def call(values, mapped=mapped):
            return mapped.batched(op)(*values)
        for kind in (lambda leaf: leaf, to_tensor):
            def make(kind=kind, mapped=mapped):
                return [kind(value) for value in mapped.values]
            compare(call, guarded(call, traced), make, mapped)


@pytest.mark.parametrize("name", ["add", "divide", "less", "arctan2", "matmul"])
def test_batches_as_long_as_axes(name):
    op = getattr(ops.np, name)
    for x, y in product([np.arange(1.0, 3**n + 1).reshape((3,) * n) for n in range(4)], repeat=2):
        for dims in product([None, 0, -1], repeat=2):
            compare(lambda values, dims=dims: func.vmap(op, in_dims=dims)(*values),
                    guarded(lambda values, dims=dims: func.vmap(op, in_dims=dims)(*values), traced),
                    lambda x=x, y=y: (x, y), (x.shape, y.shape, dims))


# --- arguments of all sorts, right and wrong --------------------------------------------------------------------------


class Sub(Tensor):
    """A subclass, which is no exact Tensor."""


class SubArray(np.ndarray):
    """A subclass, which is no exact ndarray."""


def read_only():
    array = np.arange(3.0)
    array.flags.writeable = False
    return array


def made_in_inference_mode():
    with autograd.inference_mode():
        return Tensor(np.arange(3.0))


OPERANDS: dict[str, Callable[[], Any]] = {
    "array": lambda: np.arange(3.0),
    "Tensor": lambda: Tensor(np.arange(3.0)),
    "leaf": lambda: Tensor(np.arange(3.0), requires_grad=True),
    "result": lambda: Tensor(np.arange(3.0), requires_grad=True) * 2.0,
    "view": lambda: Tensor(np.arange(4.0))[1:],
    "view of a leaf": lambda: Tensor(np.arange(4.0), requires_grad=True)[1:],
    "of Tensor's subclass": lambda: Sub(np.arange(3.0)),
    "of ndarray's subclass": lambda: np.arange(3.0).view(SubArray),
    "in inference mode": made_in_inference_mode,
    "0-d": lambda: np.array(2.0),
    "0-d Tensor": lambda: Tensor(np.array(2.0)),
    "empty": lambda: np.empty((0, 3)),
    "matrix": lambda: np.arange(6.0).reshape(2, 3),
    "read-only": read_only,
    "non-contiguous": lambda: np.arange(6.0)[::2],
    "backwards": lambda: np.arange(3.0)[::-1],
    "other byte order": lambda: np.arange(3).astype(">f8"),
    "float32": lambda: np.arange(3, dtype="f4"),
    "float16": lambda: np.arange(3, dtype="f2"),
    "complex": lambda: np.arange(3) * (1 + 1j),
    "complex leaf": lambda: Tensor(np.arange(3) * (1 + 1j), requires_grad=True),
    "int64": lambda: np.arange(3),
    "bool": lambda: np.array([True, False, True]),
    "objects": lambda: np.array([1, None, "s"]),
    "strings": lambda: np.array(["a", "b"]),
    "nan": lambda: np.array([np.nan, np.inf, -0.0]),
    "without data": lambda: Tensor(MetaArray((3,))),
    "NumPy scalar": lambda: np.float64(2),
    "int": lambda: 2,
    "float": lambda: 2.5,
    "complex number": lambda: 1j,
    "large int": lambda: 10**30,
    "True": lambda: True,
    "None": lambda: None,
    "str": lambda: "text",
    "list": lambda: [1.0, 2.0],
    "list of Tensors": lambda: [Tensor(np.arange(3.0)), np.arange(3.0)],
    "object": object,
    "uninitialized": lambda: Sub.__new__(Sub),
}
EDGE_CALLS: dict[str, tuple[str, Callable[..., Sample]]] = {
    "add": ("add", lambda x, y: call(x, y)),
    "add, names": ("add", lambda x, y: call(x2=x, x1=y)),
    "add, name twice": ("add", lambda x, y: call(x, y, x1=x)),
    "add, unknown name": ("add", lambda x, y: call(x, x2=y, nonsense=1)),
    "add, missing": ("add", lambda x, y: call(x)),
    "add, too many": ("add", lambda x, y: call(x, y, x)),
    "add, out": ("add", lambda x, y: call(x, np.arange(3.0), out=y)),
    "add, dtype": ("add", lambda x, y: call(x, np.arange(3.0), dtype=y)),
    "add, float32": ("add", lambda x, y: call(x, y, dtype=np.float32)),
    "add_": ("add_", lambda x, y: call(x, y)),
    "divide": ("divide", lambda x, y: call(x, y)),
    "matmul": ("matmul", lambda x, y: call(x, y)),
    "where": ("where", lambda x, y: call(np.array([True, False, True]), x, y)),
    "sum, where": ("sum", lambda x, y: call(x, where=y)),
    "sum, axis": ("sum", lambda x, y: call(x, y)),
    "sum, initial": ("sum", lambda x, y: call(x, initial=y)),
    "clip": ("clip", lambda x, y: call(x, y, max=3.0)),
    "concatenate": ("concatenate", lambda x, y: call([x, y])),
    "stack, a tuple": ("stack", lambda x, y: call((x, y), -1)),
    "getitem": ("getitem", lambda x, y: call(x, y)),
    "index": ("index", lambda x, y: call(x, y)),
    "setitem_": ("setitem_", lambda x, y: call(x, 0, y)),
    "reshape": ("reshape", lambda x, y: call(x, y)),
    "full": ("full", lambda x, y: call(x, y)),
    "detach": ("detach", lambda x, y: call(x)),
    "item": ("item", lambda x, y: call(x)),
}
SURROUNDINGS = {
    "plain": nullcontext,
    "no_grad": autograd.no_grad,
    "inference_mode": autograd.inference_mode,
    "raising": lambda: np.errstate(all="raise"),
    "checking": autograd.detect_anomaly,
}


@pytest.mark.parametrize(("surroundings", "step"), [
    pytest.param("plain", 5, id="plain, some"),
    *[pytest.param(name, 1 if name == "plain" else 6, id=name, marks=pytest.mark.slow) for name in SURROUNDINGS]])
@together("edge_call", EDGE_CALLS)
def test_arguments_of_all_sorts(edge_call, surroundings, step):
    name, arguments = EDGE_CALLS[edge_call]
    op = getattr(ops.np, name)
    for turn, (one, first) in enumerate(OPERANDS.items()):
        for other, second in islice(OPERANDS.items(), turn % step, None, step):
            compare(guarded(lambda call: op(*call.args, **call.kwargs), SURROUNDINGS[surroundings]),
                    guarded(lambda call: bound_in_general(op, call.args, call.kwargs), traced,
                            SURROUNDINGS[surroundings]),
                    lambda first=first, second=second: arguments(first(), second()), (one, other))


@pytest.mark.parametrize("name", DEFINED)
def test_floating_point_errors(name):
    op = getattr(ops.np, name)
    for sample in few(samples(name), 5):
        def made(call):
            told = []
            with np.errstate(all="call", call=lambda kind, flag: told.append((kind, flag))):
                return op(*call.args, **call.kwargs), told

        def raised(call):
            with np.errstate(all="raise"):
                return op(*call.args, **call.kwargs)

        for way in (made, raised):
            compare(way, guarded(way, traced), lambda sample=sample: tree_map(to_tensor, sample), sample)

        def raised_in_grad(call):
            with np.errstate(all="raise"):
                return values_in_grad(op, call)

        compare(raised_in_grad, guarded(raised_in_grad, traced), lambda sample=sample: sample, sample)


INEXACT = ["float32", "float64", "complex64", "complex128"]
UNARY = ["negative", "exp", "sin", "square", "absolute", "sqrt", "sum", "max", "cumsum", "transpose", "copy", "isnan"]
BINARY = ["add", "multiply", "divide", "power", "maximum", "matmul", "arctan2", "less", "where"]


@st.composite
def laid_out(draw):
    dtype = draw(st.sampled_from([*INEXACT, "int8", "uint16", "int64", "bool", "float16"]))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    values = draw(arrays.arrays(dtype, shape, elements=arrays.from_dtype(np.dtype(dtype), allow_subnormal=False)))
    if draw(st.booleans()):
        values = values.T
    if values.ndim and draw(st.booleans()):
        values = np.repeat(values, 2, -1)[..., ::draw(st.sampled_from([2, -2]))]
    if draw(st.booleans()):
        values = np.broadcast_to(values, (2, *values.shape))
    return values


@given(st.sampled_from([*UNARY, *BINARY]), laid_out(), laid_out() | st.sampled_from([2, -1, 0.5, 1j, True]),
       st.booleans())
@settings(max_examples=120)
def test_arrays_of_any_layout(name, x, y, reverse):
    op = getattr(ops.np, name)
    values = (x,) if name in UNARY else (y, x) if reverse else (x, y)
    sample = call(np.arange(3) > 0, *values) if name == "where" else call(*values)
    for kind, convert in KINDS.items():
        def make(convert=convert):
            return tree_map(convert, sample)
        compare(gradients_of(op), guarded(gradients_of(op), traced), make, kind)
        compare(lambda call: op(*call.args), guarded(lambda call: bound_in_general(op, call.args, {}), traced), make,
                kind)
    for mapped in islice(mapped_calls(name, [sample]), 3):
        def batched(values, mapped=mapped):
            return mapped.batched(op)(*values)
        compare(batched, guarded(batched, traced), lambda mapped=mapped: list(mapped.values), mapped)


# --- results that share memory with arguments -------------------------------------------------------------------------

KERNELS: dict[str, Callable[..., Any]] = {
    "new": lambda x, y: np.ones(2),
    "scalar": lambda x, y: np.float64(1),
    "argument": lambda x, y: x,
    "other argument": lambda x, y: y,
    "view": lambda x, y: x[:1],
    "view of a view": lambda x, y: x[:][..., ::1],
    "read-only view": lambda x, y: np.broadcast_to(x, (2, *x.shape)),
    "view of something else": lambda x, y: np.arange(4.0)[1:],
    "buffer": lambda x, y: np.frombuffer(bytes(16)),
    "as buffer": lambda x, y: np.frombuffer(x),
    "element": lambda x, y: y[0],
    "number": lambda x, y: 1.0,
    "None": lambda x, y: None,
    "subclass": lambda x, y: np.ones(2).view(SubArray),
    "subclass of the argument": lambda x, y: x.view(SubArray),
    "Tensor": lambda x, y: Tensor(np.ones(2)),
    "raising": lambda x, y: 1 / 0,
}
SCHEMAS = {
    "arrays": ("(Tensor x, Tensor y) -> Tensor", lambda x: call(x, np.arange(3.0))),
    "optional": ("(Tensor x, Tensor? y=None) -> Tensor", lambda x: call(x)),
    "optional, given": ("(Tensor x, Tensor? y=None) -> Tensor", lambda x: call(x, Tensor(np.arange(3.0)))),
    "list": ("(Tensor x, Tensor[] y) -> Tensor", lambda x: call(x, [np.arange(3.0), Tensor(np.arange(3.0))])),
    "by name": ("(Tensor x, Tensor y) -> Tensor", lambda x: call(y=np.arange(3.0), x=x)),
    "two": ("(Tensor x, Tensor y) -> (Tensor, Tensor)", lambda x: call(x, np.arange(3.0))),
}


@pytest.mark.parametrize("schema", SCHEMAS)
@together("kernel", KERNELS)
def test_results_are_fresh(schema, kernel, new_library):
    text, arguments = SCHEMAS[schema]

    def run(x, y=None):
        result = KERNELS[kernel](x, y)
        return (result, np.ones(1)) if schema == "two" else result

    with new_library() as lib:
        op = library.custom_op(f"{lib.namespace}::f", run, mutates_args=(), schema=text)
        op = getattr(ops, lib.namespace).f
        for name in ("array", "Tensor", "view", "leaf", "0-d", "non-contiguous", "matrix", "float", "NumPy scalar"):
            compare(lambda call: op(*call.args, **call.kwargs),
                    guarded(lambda call: bound_in_general(op, call.args, call.kwargs), traced),
                    lambda name=name: arguments(OPERANDS[name]()), name)


# --- entry points -----------------------------------------------------------------------------------------------------


@contextmanager
def never_flat() -> Iterator[None]:
    """Have the entry points of transforms leave every call to Python."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("run_vjp", "run_jvp", "map_flat", "jacobian_by_columns", "jacobian_by_rows"):
            patch.setattr(_core, name, lambda *args: _core.NOT_FLAT)
        yield


CAPTURED = Tensor(np.arange(3.0))
TRANSFORMED: dict[str, Callable[..., Any]] = {
    "sum of squares": lambda x: ops.np.sum(x * x),
    "squares": lambda x: x * x,
    "itself": lambda x: x,
    "constant": lambda x: np.ones(3),
    "constant Tensor": lambda x: CAPTURED,
    "with captured": lambda x: ops.np.sum(x * CAPTURED),
    "number": lambda x: 3.0,
    "int result": lambda x: ops.np.argmax(x),
    "tuple": lambda x: (x * 2, ops.np.sum(x)),
    "tuple with a constant": lambda x: (x * 2, np.ones(2)),
    "list": lambda x: [x * 2],
    "dict": lambda x: {"a": x * x, "b": (x,)},
    "None": lambda x: None,
    "str": lambda x: "text",
    "view": lambda x: x[..., :1],
    "element": lambda x: x[0] * x[0],
    "shared": lambda x: x + 1,
    "twice": lambda x: (x, x),
    "in place": lambda x: ops.np.add_(x * 1, x),
    "writes to it": lambda x: ops.np.add_(x, 1.0),
    "asks": lambda x: x * 2 if x else -x,
    "converts": lambda x: np.asarray(x),
    "raises": lambda x: 1 / 0,
    "wrong shape": lambda x: x + np.ones(7),
    "a transform": lambda x: func.grad(lambda y: ops.np.sum(y * y * x))(x),
    "detached": lambda x: ops.np.sum(ops.np.detach(x) * x),
}


def total(value: Any) -> Any:
    return sum(ops.np.sum(leaf) for leaf in tree_leaves(value))


def twice(pair):
    """Return the output of `vjp`, and what the function gives for ones, each time that it is called."""
    output, pull = pair
    ones = tree_map(lambda leaf: np.ones(leaf.shape, leaf.dtype), output)
    return output, pull(ones), pull(ones)


ENTRY_POINTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "grad": (lambda f: lambda x: func.grad(f)(x), lambda f: lambda x: func.grad(f, argnums=-1)(x)),
    "value_and_grad": (lambda f: lambda x: func.value_and_grad(f, 0, True)(x),
                       lambda f: lambda x: func.value_and_grad(f, -1, True)(x)),
    "grad, positions": (lambda f: lambda x: func.grad(lambda x, y, z: f(x * y), (0, 1))(x, x, x),
                        lambda f: lambda x: func.grad(lambda x, y, z: f(x * y), (0, -2))(x, x, x)),
    "vjp": (lambda f: lambda x: twice(func.vjp(f, x)),) * 2,
    "jvp": (lambda f: lambda x: func.jvp(f, (x,), (x,)),) * 2,
    "jvp, two": (lambda f: lambda x: func.jvp(lambda x, y: (f(x), f(y)), (x, x), (x, np.ones(3))),) * 2,
    **{name: (lambda f, make=make: lambda x: make(f)(x),) * 2
       for name, make in (("jacfwd", func.jacfwd), ("jacrev", func.jacrev), ("hessian", func.hessian))},
    "jacobians, two": (lambda f: lambda x: (func.jacfwd(lambda x, y: f(x * y), 1)(x, x),
                                            func.jacrev(lambda x, y: f(x * y), 1)(x, x)),) * 2,
    "vmap": (lambda f: lambda x: func.vmap(f)(x),) * 2,
    "vmap, two": (lambda f: lambda x: func.vmap(lambda x, y: f(x * y), in_dims=(-1, None))(x, x),) * 2,
}
AROUND: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "nothing": lambda transformed: transformed,
    "vjp": lambda transformed: lambda x: twice(func.vjp(transformed, x)),
    "jvp": lambda transformed: lambda x: func.jvp(transformed, (x,), (x,)),
    "vmap": lambda transformed: func.vmap(transformed),
}
PRIMALS = [name for name in OPERANDS if name not in ("uninitialized", "objects", "strings")]


@pytest.mark.parametrize("around", AROUND)
@together("entry_point", ENTRY_POINTS)
def test_entry_points(entry_point, around):
    fast, general = ENTRY_POINTS[entry_point]
    for name, function in TRANSFORMED.items():
        for primal in PRIMALS if around == "nothing" else PRIMALS[::3]:
            compare(AROUND[around](fast(function)), guarded(AROUND[around](general(function)), never_flat),
                    OPERANDS[primal], (name, primal))


COTANGENTS = {
    "none": lambda x: None,
    "ones": lambda x: np.ones(x.shape, x.dtype),
    "Tensor": lambda x: Tensor(np.ones(x.shape, x.dtype)),
    "tracked": lambda x: Tensor(np.ones(x.shape, x.dtype), requires_grad=True),
    "0-d": lambda x: np.array(1.0),
    "number": lambda x: 1.0,
    "int64": lambda x: np.ones(x.shape, int),
    "float32": lambda x: np.ones(x.shape, np.float32),
    "other shape": lambda x: np.ones((7,)),
    "str": lambda x: "text",
}
ROOTS = {
    "sum": lambda x: ops.np.sum(x * x),
    "squares": lambda x: x * x,
    "itself": lambda x: x,
    "view": lambda x: (x * 2)[..., :1],
    "independent": lambda x: Tensor(np.ones(3), requires_grad=True) * 2.0,
    "constant": lambda x: Tensor(np.ones(3)),
}
OPTIONS = [{}, {"retain_graph": True}, {"create_graph": True}, {"allow_unused": True}, {"materialize_grads": True}]
BACKWARD = [name for name in OPERANDS if isinstance(OPERANDS[name](), Tensor) and name != "uninitialized"]


@pytest.mark.parametrize("way", ["grad", "backward"])
@pytest.mark.parametrize("root", ROOTS)
def test_backward_passes(root, way):
    def run(function):
        def both(x):
            output, seen = ROOTS[root](x), []
            for _ in range(2):
                try:
                    seen.append(function(output, x))
                except Exception as error:
                    seen.append(PLACES.sub("", repr(error)))
            return seen, output
        return both

    for operand in BACKWARD:
        for name, cotangent in COTANGENTS.items():
            if way == "grad":
                for options in OPTIONS:
                    defaults = {"retain_graph": None, "create_graph": False, "allow_unused": None,
                                "materialize_grads": False}
                    compare(run(lambda y, x, g=cotangent, o=options: autograd.grad(y, x, g(y), **o)),
                            run(lambda y, x, g=cotangent, o={**defaults, **options}: grad_in_general(y, x, g(y), **o)),
                            OPERANDS[operand], (operand, name, options))
            else:
                for options in OPTIONS[:3]:
                    compare(run(lambda y, x, g=cotangent, o=options: y.backward(g(y), **o)),
                            run(lambda y, x, g=cotangent, o=options: autograd.backward(y, g(y), **o)),
                            OPERANDS[operand], (operand, name, options))


# --- users' functions -----------------------------------------------------------------------------------------------


def wrong(backward, *, jvp=None, forward=None, setup=None):
    """Return a Function of two arguments, by its parts."""
    return type("Given", (autograd.Function,), {
        "forward": staticmethod(forward or (lambda x, y: x * y)),
        "setup_context": staticmethod(setup or (lambda ctx, inputs, output: ctx.save_for_backward(*inputs))),
        "backward": staticmethod(backward),
        **({"jvp": staticmethod(jvp)} if jvp else {}),
    })


def products(ctx, g):
    x, y = ctx.saved_tensors
    return g * y, g * x


def marks_dirty(ctx, inputs, output):
    ctx.mark_dirty(inputs[0])


def marks_constant(ctx, inputs, output):
    ctx.mark_non_differentiable(output)


def does_not_materialize(ctx, inputs, output):
    ctx.set_materialize_grads(False)


GIVEN = {
    "products": wrong(products, jvp=lambda ctx, s, t: s + t),
    "None": wrong(lambda ctx, g: None),
    "one": wrong(lambda ctx, g: g),
    "one and None": wrong(lambda ctx, g: (g, None)),
    "three": wrong(lambda ctx, g: (g, g, g)),
    "surplus None": wrong(lambda ctx, g: (g, g, None)),
    "list": wrong(lambda ctx, g: [g, g]),
    "raw": wrong(lambda ctx, g: (np.ones(3), g)),
    "other shape": wrong(lambda ctx, g: (Tensor(np.ones(7)), g)),
    "larger": wrong(lambda ctx, g: (Tensor(np.ones((2, 3))), g)),
    "number": wrong(lambda ctx, g: (1.0, g)),
    "str": wrong(lambda ctx, g: ("text", g)),
    "complex": wrong(lambda ctx, g: (g * 1j, g)),
    "float32": wrong(lambda ctx, g: (ops.np.astype(g, np.float32), g)),
    "raising": wrong(lambda ctx, g: 1 / 0),
    "keeps output": wrong(lambda ctx, g: (g * ctx.saved_tensors[0], g),
                          setup=lambda ctx, inputs, output: ctx.save_for_backward(output)),
    "saves a number": wrong(products, setup=lambda ctx, inputs, output: ctx.save_for_backward(1.0)),
    "asks what needs": wrong(lambda ctx, g: tuple(g if needs else None for needs in ctx.needs_input_grad)),
    "dirty": wrong(lambda ctx, g: (g, g), forward=lambda x, y: ops.np.add_(x, y), setup=marks_dirty),
    "dirty, not returned": wrong(lambda ctx, g: (g, g), setup=marks_dirty),
    "constant": wrong(lambda ctx, g: (g, g), setup=marks_constant),
    "two outputs": wrong(lambda ctx, g, h: (g, h), forward=lambda x, y: (x * 2.0, y * 3.0), setup=does_not_materialize),
    "an output and a constant": wrong(lambda ctx, g, h: (g, h), forward=lambda x, y: (x * 2.0, ops.np.argmax(y))),
    "returns its argument": wrong(lambda ctx, g: (g, None), forward=lambda x, y: x),
    "returns a view": wrong(lambda ctx, g: (g, None), forward=lambda x, y: x[:]),
    "returns a raw array": wrong(lambda ctx, g: (g, None), forward=lambda x, y: np.ones(3)),
    "returns None": wrong(lambda ctx, g: (g, None), forward=lambda x, y: None),
    "returns a number": wrong(lambda ctx, g: (g, None), forward=lambda x, y: 1.0),
    "forward raises": wrong(lambda ctx, g: (g, None), forward=lambda x, y: 1 / 0),
    "setup raises": wrong(lambda ctx, g: (g, None), setup=lambda ctx, inputs, output: 1 / 0),
}


def general_function(function: type[autograd.Function]) -> Callable[[], Any]:
    """Return a guard: calls of the Function go through `autograd/function.py` and `autograd/custom_derivatives.py`."""
    @contextmanager
    def inside():
        _parts_of(function)     # makes them. Private: public calls would run the fast path that this guard avoids
        rule = UserFunction(function)
        parts = _core.FunctionParts(
            rule, function, function.forward, function.setup_context, rule._n_parameters(), False)
        rule.parts = parts
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(function, "_parts", parts)
            patch.setattr(_core, "is_flat_call", lambda values, output: False)
            yield
    return inside


def uses_of_function(apply: Callable[..., Any]) -> dict[str, Callable[[Any], Any]]:
    def recorded(values):
        result = apply(*values)
        tracked = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.requires_grad]
        roots = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not tracked or not roots:
            return result
        return result, autograd.grad(roots, tracked, cotangents(roots), allow_unused=True)

    def transformed(values):
        places = [i for i, value in enumerate(values) if is_inexact(raw(value))]

        def of_arrays(*given):
            args = list(values)
            for i, value in zip(places, given, strict=True):
                args[i] = value
            return apply(*args)

        inexact = [values[i] for i in places]
        return of_arrays, inexact

    def by_vjp(values):
        function, inexact = transformed(values)
        return twice(func.vjp(function, *inexact))

    def by_jvp(values):
        function, inexact = transformed(values)
        return func.jvp(function, tuple(inexact), tuple(inexact))

    def by_vmap(values):
        function, inexact = transformed(values)
        return func.vmap(function)(*[np.stack([raw(value)] * 2) for value in inexact])

    return {"tape": recorded, "vjp": by_vjp, "jvp": by_jvp, "vmap": by_vmap}


USES = list(uses_of_function(len))
SAMPLES = {sample.name: (sample.function, sample.arguments) for sample in FUNCTIONS if sample.deterministic}


@pytest.mark.parametrize("name", [*SAMPLES, *GIVEN])
@together("use", USES)
def test_functions_of_users(name, use):
    if name in SAMPLES:
        function, arguments = SAMPLES[name]
        made = [lambda i=i: next(islice(arguments(), i, None)) for i in range(len(list(arguments())))]
    else:
        function = GIVEN[name]
        made = [lambda: (np.arange(3.0), np.arange(1.0, 4.0)), lambda: (np.arange(3.0), 2.0),
                lambda: (np.arange(3.0), [np.arange(3.0)]), lambda: (np.arange(3.0),)]
    run = uses_of_function(function.apply)[use]
    for make in made:
        for kind in ("raw", "Tensor", "view", "tracked"):
            compare(run, guarded(run, general_function(function)),
                    lambda make=make, kind=kind: tree_map(KINDS[kind], make()), (kind, make()))


BACKWARD_OF_OPERATORS: dict[str, Callable[..., Any]] = {
    "products": lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0], None),
    "None": lambda ctx, g: None,
    "one": lambda ctx, g: g,
    "too few": lambda ctx, g: (g, g),
    "one and None": lambda ctx, g: (g * 2.0, None, None),
    "needless": lambda ctx, g: (g, g, g),
    "raw": lambda ctx, g: (np.ones(3), None, None),
    "other shape": lambda ctx, g: (Tensor(np.ones(7)), None, None),
    "larger": lambda ctx, g: (Tensor(np.ones((2, 3))), None, None),
    "number": lambda ctx, g: (1.0, None, None),
    "complex": lambda ctx, g: (g * 1j, None, None),
    "float32": lambda ctx, g: (ops.np.astype(g, np.float32), None, None),
    "raising": lambda ctx, g: 1 / 0,
    "asks what needs": lambda ctx, g: (*(g if needs else None for needs in ctx.needs_input_grad[:2]), None),
}
SETUPS: dict[str, Callable[..., Any]] = {
    "saves": lambda ctx, inputs, output: ctx.save_for_backward(*inputs[:2]),
    "saves its result": lambda ctx, inputs, output: ctx.save_for_backward(output, output),
    "constant": lambda ctx, inputs, output: ctx.mark_non_differentiable(output),
    "raises": lambda ctx, inputs, output: 1 / 0,
}


@pytest.mark.parametrize("setup", SETUPS)
@together("backward", BACKWARD_OF_OPERATORS)
def test_custom_operators(backward, setup, new_library):
    with new_library() as lib:
        op = library.custom_op(f"{lib.namespace}::f", lambda x, y, other: x * y, mutates_args=(),
                               schema="(Tensor x, Tensor y, Any other) -> Tensor")
        op.register_autograd(BACKWARD_OF_OPERATORS[backward], setup_context=SETUPS[setup])
        call = getattr(ops, lib.namespace).f
        flat, general = (uses_of_function(lambda x, y, other=other: call(x, y, other)) for other in (None, ()))
        for use in USES:
            for kind, y in product(("raw", "Tensor", "view", "tracked"), (np.arange(1.0, 4.0), 2.0)):
                def make(kind=kind, y=y):
                    return tuple(map(KINDS[kind], (np.arange(3.0), y)))
                compare(flat[use], general[use], make, (use, kind, y))
