"""Views that `reshape` and `ravel` return: those of NumPy's results, whose axes lie in memory in a certain order.

Each function is called with arguments that lie in memory in several ways. Its results are reshaped, and each of these
arrays is overwritten, one after the other. Oracle: the arrays that change when NumPy does this.
"""

import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import pytest

import pydispatch.numpy as face
from pydispatch import Tensor, _core, compile, func
from pydispatch.exceptions import CompilationError, DataDependentError
from pydispatch.higher_order import cond, scan
from pydispatch.higher_order import map as control_flow_map
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves
from tests.numpy.calls import is_array, mapped
from tests.numpy.test_aliasing import CALLS, NOT_APPLICABLE, WAYS, check, is_numeric
from tests.numpy.test_functions import numpys, ours

LAYOUTS: dict[str, Callable[[Any, Any], Any]] = {
    "C": lambda np, x: x,
    "F": lambda np, x: np.asfortranarray(x),
    "first axis innermost": lambda np, x: np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 0, -1)), -1, 0),
    "gaps": lambda np, x: np.stack([x, x], -1)[..., 0],
    "F with gaps": lambda np, x: np.stack([x.T, x.T], -1)[..., 0].T,
    "F, backwards": lambda np, x: np.flip(np.asfortranarray(np.flip(x))),
}
READ_ONLY_ZEROS = ("imag",)
"""Functions whose results, of some arguments, have no elements that a write could change."""
REAL_OR_COMPLEX = ("linalg.eig", "linalg.eigvals")
"""Functions that return complex numbers where values are unknown; NumPy's real ones are views of complex ones."""
NAMES = [name for name in CALLS if name not in (*READ_ONLY_ZEROS, *REAL_OR_COMPLEX)]


def reshaped(np: Any, function: Callable[..., Any], layout: str) -> Callable[..., list[Any]]:
    """Return the results of more than one axis, and what their elements are in other shapes, of arguments in a layout.
    """
    def of_arrays(*arrays: Any) -> list[Any]:
        results = tree_leaves(function(*[LAYOUTS[layout](np, x) if x.ndim > 1 else x for x in arrays]))
        return [(y, y.reshape(-1), y.T.reshape(-1), y.ravel("K"), y.ravel("A"), y.reshape(y.shape[0], -1),
                 y.reshape(-1, y.shape[-1]))
                for y in results if getattr(y, "ndim", 0) > 1 and is_numeric(y)]
    return of_arrays


def with_more_axes(name: str, calls: list[Any]) -> Iterator[Any]:
    """Sample calls, and the same with more axes and along others: NumPy refuses some."""
    takes_axis = "axis" in parameters_of(name)
    for call in calls:
        yield call
        larger = [type(call)(*mapped(lambda x, axis=axis: numpy.stack([x, x], axis) if x.ndim else x, call[:2]), 0.0)
                  for axis in (0, -1)]
        yield from larger
        if takes_axis and len(call.args) <= parameters_of(name).index("axis"):
            for each in (call, larger[0]):
                yield from [type(call)(each.args, {**each.kwargs, "axis": axis}, 0.0) for axis in (0, -1, (0, 2))]


def parameters_of(name: str) -> list[str]:
    try:
        return list(inspect.signature(numpys(name)).parameters)
    except ValueError:
        return []


def check_function(name: str, calls: Iterable[Any], layouts: Iterable[str], ways: Iterable[str]) -> None:
    for call in calls:
        arrays = [leaf for leaf in tree_leaves(call[:2]) if is_array(leaf)]

        def calling(function: Callable[..., Any], call: Any = call) -> Callable[..., Any]:
            def of_arrays(*values: Any) -> Any:
                left = list(values)
                args, kwargs = mapped(lambda leaf: left.pop(0), call[:2])
                return function(*args, **kwargs)
            return of_arrays

        for layout in layouts if max(x.ndim for x in arrays) > 1 else ["C"]:
            expected = reshaped(numpy, calling(numpys(name)), layout)
            try:
                with numpy.errstate(all="ignore"):
                    has_results = bool(expected(*arrays))
            except Exception:       # a call that NumPy refuses
                continue
            if has_results:
                check(expected, reshaped(face, calling(ours(name)), layout), arrays, ways,
                      (*NOT_APPLICABLE, numpy.linalg.LinAlgError))


TRACED = ["make_fx", "compile"]
EAGER = [way for way in WAYS if way not in TRACED]
SOME_LAYOUTS = ["F", "first axis innermost"]
OTHER_LAYOUTS = [layout for layout in LAYOUTS if layout not in SOME_LAYOUTS]


@pytest.mark.parametrize("name", NAMES)
def test_every_function(name):
    first, *others = with_more_axes(name, CALLS[name][:1])
    check_function(name, [first], SOME_LAYOUTS, EAGER)
    check_function(name, others, ["first axis innermost"], EAGER)


@pytest.mark.parametrize("name", NAMES)
def test_every_function_in_traces(name):
    check_function(name, CALLS[name][:2], ["F"], TRACED)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_function_in_every_layout(name):
    first, *others = with_more_axes(name, CALLS[name][:1])
    check_function(name, [first], OTHER_LAYOUTS, EAGER)
    check_function(name, others, ["F", *OTHER_LAYOUTS], EAGER)
    check_function(name, with_more_axes(name, CALLS[name][1:2]), [*SOME_LAYOUTS, "F with gaps"], EAGER)
    check_function(name, CALLS[name][:1], ["first axis innermost", "F with gaps"], TRACED)


# --- methods of universal functions, and functions of functions -------------------------------------------------------

BLOCK = numpy.arange(1.0, 25.0).reshape(2, 3, 4) / 10
OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    **{f"{name}.{method}, axis {axis}": lambda np, x, name=name, method=method, axis=axis, rest=rest:
       getattr(getattr(np, name), method)(x, *rest, axis=axis)
       for name in ("add", "maximum", "hypot") for method, rest in (
           ("reduce", ()), ("accumulate", ()), ("reduceat", ([0, 1],))) for axis in (0, 1, 2)},
    "outer": lambda np, x: np.hypot.outer(x[0], x),
    "vectorize": lambda np, x: np.vectorize(lambda value: value * 2.0)(x),
    "vectorize of two": lambda np, x: np.vectorize(lambda one, other: one * other)(x[0].T, x[0].T[:, :1]),
    "vectorize with a signature": lambda np, x: np.vectorize(lambda row: row * 2.0, signature="(n)->(n)")(x),
    "median of two axes": lambda np, x: np.median(x[None], axis=(0, 2)),
    "delete at a Tensor": lambda np, x: np.delete(x, np.array([1]), 1),
    "delete a slice": lambda np, x: np.delete(x, slice(1, 2), 2),
    "array of arrays": lambda np, x: np.array([x[0], x[1]]),
    "array of arrays in lists": lambda np, x: np.asarray([[x[0]], [x[1]]]),
    "round to no digits": lambda np, x: np.round(x),
    "round": lambda np, x: x.round(1),
    "sort in place": lambda np, x: in_place(np, x, "sort", 1),
    "partition in place": lambda np, x: in_place(np, x, "partition", 1, 0),
    "index arrays": lambda np, x: x[:, [0, 2]],
    "index arrays apart": lambda np, x: x[[0, 1], :, [1, 2]],
    "mask": lambda np, x: x[:, [True, False, True]],
}


def in_place(np: Any, x: Any, method: str, *args: Any) -> Any:
    copy = np.copy(x)
    getattr(copy, method)(*args)
    return copy


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("layouts", [
    pytest.param(SOME_LAYOUTS, id="some"), pytest.param(OTHER_LAYOUTS, id="others", marks=pytest.mark.slow)])
def test_others(name, layouts):
    for layout in layouts:
        check(*[reshaped(np, lambda x, np=np: OTHERS[name](np, x), layout) for np in (numpy, face)], [BLOCK], WAYS)


# --- compiled functions -----------------------------------------------------------------------------------------------

MATRIX = numpy.array([[0.1, -0.2, 0.3], [0.4, 0.5, -0.6]])
LAID_OUT: dict[str, Any] = {
    "C": MATRIX,
    "F": numpy.asfortranarray(MATRIX),
    "gaps": numpy.repeat(MATRIX, 2, 1)[:, ::2],
    "F with gaps": numpy.repeat(MATRIX, 2, 0).copy("F")[::2],
    "backwards": MATRIX[:, ::-1].copy()[:, ::-1],
    "F, backwards": MATRIX[::-1, ::-1].copy("F")[::-1, ::-1],
    "rows that are one": numpy.broadcast_to(MATRIX[0], (2, 3)),
}


def through_ravel(m: Any) -> Any:
    y = face.exp(m)
    y.ravel()[::2] = 5.0
    return y


def through_columns(m: Any) -> Any:
    y = face.copy(m)
    y.T.reshape(-1)[1:] *= 2.0
    return y * y


def through_rows(m: Any) -> Any:
    y = face.copy(m, order="A")
    y[1].ravel()[:] = m[0]
    return y


def with_axes_turned(m: Any) -> Any:
    y = face.percentile(m.T[:, :, None] * m, [20.0, 70.0], axis=1)
    y.reshape(-1)[::3] = 0.0
    return y.sum(0)


def in_order_of_memory(m: Any) -> Any:
    return m.ravel("K") * face.arange(6.0)


def slopes(m: Any) -> Any:
    return func.grad(lambda m: (through_ravel(m) ** 2).sum())(m)


PROGRAMS = [through_ravel, through_columns, through_rows, with_axes_turned, in_order_of_memory, slopes]
TRANSFORMS: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "alone": lambda f, m: f(m),
    "Tensor": lambda f, m: f(Tensor(m)).numpy(),
    "grad": lambda f, m: func.grad(lambda m: (f(m) ** 3).sum())(m),
    "grad of grad": lambda f, m: func.grad(lambda m: func.grad(lambda m: (f(m) ** 3).sum())(m).sum())(m),
    "jvp": lambda f, m: func.jvp(f, (m,), (m,))[1],
    "vmap": lambda f, m: func.vmap(f)(numpy.moveaxis(numpy.stack([m.T, m.T + 1.0]).T, -1, 0)),
    "vmap of grad": lambda f, m: func.vmap(func.grad(lambda m: (f(m) ** 3).sum()), -1)(numpy.stack([m, m + 1.0], -1)),
    "compiled": lambda f, m: compile(lambda m: 2.0 * f(m))(m) / 2.0,
    "make_fx": lambda f, m: make_fx(f)(m)(m),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled_functions_see_how_arguments_lie(program):
    compiled, straight = compile(program), compile(program, backend="python")
    for layout, m in LAID_OUT.items():
        for name, transform in TRANSFORMS.items():
            expected = transform(program, m)
            for _ in range(2):
                numpy.testing.assert_allclose(transform(compiled, m), expected, 1e-12, err_msg=f"{layout}, {name}")
        numpy.testing.assert_allclose(straight(m), program(m), 1e-12)
    restored = pickle.loads(pickle.dumps(compiled))
    for m in LAID_OUT.values():
        numpy.testing.assert_allclose(func.grad(lambda m: restored(m).sum())(m),
                                      func.grad(lambda m: program(m).sum())(m), 1e-12)


def test_the_core_finds_the_plan_for_a_layout():
    compiled = compile(through_ravel)
    for _ in range(3):
        for m in LAID_OUT.values():
            numpy.testing.assert_array_equal(compiled(m), through_ravel(m))
    assert compiled.cache_info() == (14, 7, 7)
    assert compiled.hits == 14
    assert "lie in memory" in compiled.explain(LAID_OUT["F"])


@pytest.mark.parametrize("program", [
    lambda m: face.exp(m).reshape(-1), lambda m: face.exp(m).ravel() + through_vector(m[0]), face.sin])
def test_a_layout_that_does_not_matter_makes_no_plan(program):
    compiled = compile(program)
    for m in LAID_OUT.values():
        numpy.testing.assert_array_equal(compiled(m), program(m))
    assert compiled.cache_info().misses == 1


def through_vector(v: Any) -> Any:
    y = face.exp(v)
    y.reshape(-1)[0] = 1.0
    return y.sum()


def test_a_trace_without_data_cannot_tell_the_plan():
    with pytest.raises(DataDependentError, match=r"order of the elements(.|\n)*trace it with data"):
        make_fx(compile(through_ravel), tracing_mode="fake")(MATRIX)


def test_a_guard_has_a_stride_for_each_axis():
    compiled = compile(through_ravel)
    compiled(MATRIX)
    variant, = compiled.variants
    (*item, strides), = variant.guard
    assert strides == MATRIX.strides
    for wrong in (strides[:1], (*strides, 8), ()):
        with pytest.raises(ValueError, match="a stride for each axis"):
            _core.Variant(variant.plan, 1, ((*item, wrong),), variant.output)
    with pytest.raises(ValueError, match="a stride for each axis"):
        _core.Variant(variant.plan, 1, ((*item, strides, strides),), variant.output)


BODIES: dict[str, Callable[[Callable[..., Any], Any], Any]] = {
    "cond": lambda body, m: cond(numpy.array(True), body, lambda h: h * 1.0, (m,)),
    "scan": lambda body, m: scan(lambda h, x: (body(h) * x, h.sum()), m, numpy.array([0.5, 2.0]))[0],
    "map": lambda body, m: control_flow_map(body, face.stack([m, m]))[1],
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_of_compiled_control_flow_take_operands_in_c_order(name):
    compiled = compile(lambda m: BODIES[name](through_ravel, m))
    numpy.testing.assert_allclose(compiled(MATRIX), BODIES[name](through_ravel, MATRIX), 1e-12)
    with pytest.raises(CompilationError, match=r"not in C order(.|\n)*ascontiguousarray"):
        compiled(LAID_OUT["F"])
    compiled = compile(lambda m: BODIES[name](through_ravel, face.ascontiguousarray(m)))
    numpy.testing.assert_allclose(compiled(LAID_OUT["F"]), BODIES[name](through_ravel, MATRIX), 1e-12)
    others = compile(lambda m: BODIES[name](face.exp, m))
    numpy.testing.assert_allclose(others(LAID_OUT["F"]), BODIES[name](face.exp, MATRIX), 1e-12)
