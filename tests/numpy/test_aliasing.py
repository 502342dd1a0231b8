"""Arrays that a write changes: views are views and copies are copies, wherever they are in NumPy.

Each function is called, then each of its arguments and results is overwritten, one after the other. Oracle: the arrays
that change when NumPy does this.
"""

import itertools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy
import pytest

import pydispatch.numpy as face
from pydispatch import Tensor, _core, compile, func
from pydispatch.exceptions import (
    AutogradError,
    CompilationError,
    ConversionError,
    DataDependentError,
    DispatchTypeError,
    FunctionalizationError,
    NoDerivativeError,
    UnsupportedError,
    VmapError,
)
from pydispatch.numpy.declare import FUNCTIONS, KINDS
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves
from tests.numpy.calls import case_named, is_array, mapped
from tests.numpy.test_calls import calls_of
from tests.numpy.test_functions import TOLD, numpys, ours
from tests.together import together

Call = Callable[..., Any]
REFUSALS = (ValueError, TypeError, AutogradError, FunctionalizationError)
"""Errors of a write to an array that is read-only or whose elements overlap."""
NOT_APPLICABLE = (AutogradError, CompilationError, ConversionError, DataDependentError, DispatchTypeError,
                  NoDerivativeError, UnsupportedError, VmapError)
"""Errors of a function in a transform that it does not fit, such as one whose shapes depend on values."""
MARK = 77


# --- what a call changes ----------------------------------------------------------------------------------------------


def written(call: Call, *arrays: Any) -> tuple[str, list[list[Any]]]:
    """Return what the arguments and results are and which refuse writes, and their elements after each write.

    The first is a letter for each: "w" of what was written to, "r" of what refused, "s" of a scalar, "-" of the rest.
    """
    # of some functions, older versions return an int in place of a scalar
    leaves = [numpy.intp(leaf) if type(leaf) is int else leaf for leaf in tree_leaves(call(*arrays))]
    results = [leaf for leaf in leaves if not isinstance(leaf, type) and hasattr(leaf, "dtype")]
    found = [*arrays, *results]
    kinds, shown = "", [[face.copy(leaf) for leaf in found]]
    for leaf in found:
        if isinstance(leaf, numpy.generic) or (isinstance(leaf, Tensor) and _core.is_scalar(leaf)):
            kinds += "s"
            continue
        if not is_numeric(leaf):
            kinds += "-"
            continue
        try:
            leaf[...] = MARK
            kinds += "w"
        except REFUSALS:
            kinds += "r"
        shown.append([face.copy(each) for each in found])
    return kinds, shown


def is_numeric(leaf: Any) -> bool:
    return bool(leaf.dtype.kind in "iufc" and leaf.size)


def changes(shown: list[list[Any]]) -> list[list[bool]]:
    """Return which arrays each write has changed."""
    values = [[elements(leaf) for leaf in row] for row in shown]
    return [[one.tobytes() != other.tobytes() for one, other in zip(before, after, strict=True)]
            for before, after in itertools.pairwise(values)]


def elements(leaf: Any) -> Any:
    return numpy.asarray(leaf.detach().numpy() if isinstance(leaf, Tensor) else leaf)


# --- ways to run it ---------------------------------------------------------------------------------------------------

Written = tuple[str, list[list[Any]]]


def inside(way: Callable[[Call, list[Any]], Any]) -> Callable[[Call, list[Any]], Written]:
    """Return a transform of the whole, in which the arguments are copies made inside."""
    def run(call: Call, arrays: list[Any]) -> Written:
        kinds = ""

        def program(*values: Any) -> list[list[Any]]:
            nonlocal kinds
            kinds, shown = written(call, *map(copied, values))
            return shown

        found = way(program, arrays)
        return kinds, found

    return run


def copied(value: Any) -> Any:
    """Return a copy that lies in memory as the value does."""
    return face.copy(value)


def batched(axis: int) -> Callable[[Call, list[Any]], Any]:
    def way(program: Call, arrays: list[Any]) -> Any:
        stacks = [numpy.stack([x, x], axis if x.ndim else 0) for x in arrays]
        dims = tuple(axis if x.ndim else 0 for x in arrays)
        found = func.vmap(program, dims, randomness="same")(*stacks)
        return [[leaf[1] for leaf in row] for row in found]
    return way


def differentiated(way: Callable[[Call, list[Any]], Any]) -> Callable[[Call, list[Any]], Any]:
    """Return a way to differentiate a program by those of its arrays that have a derivative."""
    def run(program: Call, arrays: list[Any]) -> Any:
        smooth = [i for i, x in enumerate(arrays) if x.dtype.kind in "fc"]

        def of_smooth(*values: Any) -> Any:
            left = iter(values)
            return program(*[next(left) if i in smooth else x for i, x in enumerate(arrays)])
        return way(of_smooth, [arrays[i] for i in smooth])[0] if smooth else program(*arrays)
    return run


WAYS: dict[str, Callable[[Call, list[Any]], Written]] = {
    "raw": lambda call, arrays: written(call, *arrays),
    "tensors": lambda call, arrays: written(call, *map(Tensor, arrays)),
    "functionalize": inside(lambda program, arrays: func.functionalize(program)(*arrays)),
    "make_fx": inside(lambda program, arrays: make_fx(program)(*arrays)(*arrays)),
    "vjp": inside(differentiated(lambda program, arrays: func.vjp(program, *arrays))),
    "jvp": inside(differentiated(lambda program, arrays: func.jvp(program, tuple(arrays), tuple(arrays)))),
    "vmap": inside(batched(0)),
    "vmap, batch innermost": inside(batched(-1)),
    "compile": inside(lambda program, arrays: compile(program)(*arrays)),
}


def check(call: Call, ours: Call, arrays: list[Any], ways: Iterable[str], not_applicable: tuple[Any, ...] = ()) -> None:
    """Assert that writes to the same arrays succeed, and change the same, in each way that the call fits."""
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        kinds, shown = written(call, *map(same_layout, arrays))
        expected = changes(shown)
        for way in ways:
            try:
                found, shown = WAYS[way](ours, list(map(same_layout, arrays)))
            except not_applicable:
                continue
            except Exception as error:
                error.add_note(way)
                raise
            with case_named(way):
                assert found == kinds
                assert changes(shown) == expected


def same_layout(x: Any) -> Any:
    return x.copy(order="K")


# --- all functions ----------------------------------------------------------------------------------------------------

TRUTHS = ("allclose", "array_equal", "array_equiv")
"""Functions whose bool is an array under transforms."""
CONSTANTS = ("diag_indices_from", "from_dlpack", "histogram", "histogram2d", "histogram_bin_edges", "ix_",
             "tril_indices_from", "triu_indices_from")
"""Functions with results that depend on no argument: transforms refuse to write to arrays from outside."""
OTHERS = {
    "broadcast_arrays": "NumPy warns that writes to what it has repeated will be errors; here they are",
    "imag": "a plan can write to the zeros of real numbers",
    "nanpercentile": "NumPy gives an array without axes for a quantile with weights",
}
LEFT_OUT = (*TRUTHS, *CONSTANTS, *OTHERS, *TOLD)
CALLS = {
    name: calls for name in FUNCTIONS
    if KINDS[name] != "refused" and numpys(name) is not None and name not in LEFT_OUT and (calls := calls_of(name))}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("ways", [
    pytest.param([way for way in WAYS if way not in ("make_fx", "compile")], id="eager"),
    pytest.param(["make_fx", "compile"], id="traced")])
def test_every_function(name, ways):
    for call in CALLS[name][:2 if "compile" in ways else 3]:
        arrays = [leaf for leaf in tree_leaves(call[:2]) if is_array(leaf)]

        def calling(function: Call, call: Any = call) -> Call:
            def of_arrays(*values: Any) -> Any:
                left = list(values)
                args, kwargs = mapped(lambda leaf: left.pop(0), call[:2])
                return function(*args, **kwargs)
            return of_arrays

        try:
            calling(numpys(name))(*map(same_layout, arrays))
        except Exception:       # a sample of an error
            continue
        check(calling(numpys(name)), calling(ours(name)), arrays, ways, NOT_APPLICABLE)


ARGUMENTS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "an element": lambda x: (x[0],), "two elements": lambda x: (x[0], x[1]), "an element, all": lambda x: (x[1], x),
    "an element, a number": lambda x: (x[0], 1), "an array without axes": lambda x: (x[0, ...],),
}
NAMES = [name for name in FUNCTIONS if KINDS[name] != "refused" and numpys(name) is not None and name not in TRUTHS]


def kinds_of(value: Any) -> list[int | None]:
    """Return the number of axes of each array, None for each scalar or number."""
    return [None if isinstance(leaf, Tensor) and _core.is_scalar(leaf) else getattr(leaf, "ndim", None)
            if isinstance(leaf, (Tensor, numpy.ndarray)) else None for leaf in tree_leaves(value)]


@pytest.mark.parametrize("arguments", ARGUMENTS)
@together("name", NAMES)
def test_results_of_scalars_are_what_they_are_in_numpy(name, arguments):
    for x in (numpy.array([0.3, 0.5, 0.7]), numpy.array([1, 2, 3])):
        with warnings.catch_warnings(), numpy.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                expected = kinds_of(numpys(name)(*ARGUMENTS[arguments](x.copy())))
            except Exception:       # a function of other arguments
                continue
            for way in ("tensors", "jvp" if x.dtype.kind == "f" else "functionalize", "vmap", "compile"):
                found = []

                def program(x: Any, found: list[Any] = found) -> Any:
                    result = ours(name)(*ARGUMENTS[arguments](x))
                    found[:] = [kinds_of(result)]
                    return result

                try:
                    returned = RUNS[way](program, x)
                except (*NOT_APPLICABLE, BufferError, TypeError, ValueError):   # other tests compare what is refused
                    continue
                with case_named(way):
                    assert found == [expected]
                    assert way == "vmap" or kinds_of(returned) == expected


RUNS: dict[str, Callable[[Call, Any], Any]] = {
    "tensors": lambda program, x: program(Tensor(x)), "jvp": lambda program, x: func.jvp(program, (x,), (x,))[0],
    "functionalize": lambda program, x: func.functionalize(program)(x),
    "vmap": lambda program, x: func.vmap(lambda x: (program(x), x)[1])(x[None]),
    "compile": lambda program, x: compile(program)(x),
}


# --- views and copies that users know ---------------------------------------------------------------------------------

ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "ascontiguousarray, transposed": lambda np, m: np.ascontiguousarray(m.T),
    "ascontiguousarray": lambda np, m: np.ascontiguousarray(m),
    "ascontiguousarray, every other": lambda np, m: np.ascontiguousarray(m[0, ::2]),
    "ascontiguousarray, another dtype": lambda np, m: np.ascontiguousarray(m, "f4"),
    "asfortranarray": lambda np, m: np.asfortranarray(m),
    "asfortranarray, transposed": lambda np, m: np.asfortranarray(m.T),
    "asfortranarray, vector": lambda np, m: np.asfortranarray(m[0]),
    "asarray": lambda np, m: np.asarray(m),
    "asarray, C": lambda np, m: np.asarray(m.T, order="C"),
    "asarray, F": lambda np, m: np.asarray(m, order="F"),
    "asanyarray, F": lambda np, m: np.asanyarray(m, order="F"),
    "asarray, copy": lambda np, m: np.asarray(m, copy=True),
    "array": lambda np, m: np.array(m),
    "array, no copy": lambda np, m: np.array(m, copy=False),
    "array, a copy if needed": lambda np, m: np.array(m.T, copy=None, order="C"),
    "array, F, of a view by transpose and ravel": lambda np, m: np.array(m, order="F").T.ravel(),
    "require, F": lambda np, m: np.require(m, requirements="F"),
    "require, C": lambda np, m: np.require(m.T, requirements=["C", "A"]),
    "require, owner": lambda np, m: np.require(m[0], requirements="O"),
    "flat, slice": lambda np, m: m.flat[:],
    "flat, array": lambda np, m: m.flat[[0, 1]],
    "ravel": lambda np, m: m.ravel(),
    "ravel, transposed": lambda np, m: m.T.ravel(),
    "ravel, columns": lambda np, m: m[:, :2].ravel(),
    "ravel, every other": lambda np, m: m[0, ::2].ravel(),
    "ravel, every other column": lambda np, m: m.reshape(1, 6)[:, ::2].reshape(1, 3).ravel(),
    "ravel, a column": lambda np, m: m[:, :1].ravel(),
    "ravel, F": lambda np, m: m.T.ravel(order="F"),
    "reshape, F": lambda np, m: m.T.reshape(-1, order="F"),
    "reshape, copy": lambda np, m: np.reshape(m, (3, 2), copy=True),
    "reshape, every other": lambda np, m: m[:, ::2].reshape(2, 1, 2),
    "flatten": lambda np, m: m.flatten(),
    "copy, transposed, reshape": lambda np, m: m.T.copy().reshape(-1),
    "broadcast_to": lambda np, m: np.broadcast_to(m, (2, 2, 3)),
    "broadcast_to, its own shape": lambda np, m: np.broadcast_to(m, m.shape),
    "broadcast_arrays, one shape": lambda np, m: np.broadcast_arrays(m, m),
    "real": lambda np, m: np.real(m),
    "real, method": lambda np, m: m.real,
    "real of complex": lambda np, m: np.real(m + 1j),
    "split": lambda np, m: np.split(m, 3, 1),
    "array_split": lambda np, m: np.array_split(m, 2, 1),
    "hsplit": lambda np, m: np.hsplit(m, 3),
    "unstack": lambda np, m: np.unstack(m),
    "atleast_1d": lambda np, m: np.atleast_1d(m[0]),
    "atleast_1d, scalar": lambda np, m: np.atleast_1d(m[0, 0]),
    "atleast_2d": lambda np, m: np.atleast_2d(m[0]),
    "atleast_3d": lambda np, m: np.atleast_3d(m),
    "nan_to_num": lambda np, m: np.nan_to_num(m),
    "nan_to_num, no copy": lambda np, m: np.nan_to_num(m, copy=False),
    "squeeze": lambda np, m: np.squeeze(m[None]),
    "expand_dims": lambda np, m: np.expand_dims(m, 0),
    "swapaxes": lambda np, m: np.swapaxes(m, 0, 1),
    "moveaxis": lambda np, m: np.moveaxis(m, 0, 1),
    "rollaxis": lambda np, m: np.rollaxis(m, 1),
    "permute_dims": lambda np, m: np.permute_dims(m, (1, 0)),
    "T": lambda np, m: m.T,
    "mT": lambda np, m: m.mT,
    "flip": lambda np, m: np.flip(m),
    "fliplr": lambda np, m: np.fliplr(m),
    "rot90": lambda np, m: np.rot90(m),
    "meshgrid": lambda np, m: np.meshgrid(m[0], m[:, 0]),
    "meshgrid of one, no copy": lambda np, m: np.meshgrid(m[0], copy=False),
    "meshgrid, sparse, no copy": lambda np, m: np.meshgrid(m[0], m[:, 0], sparse=True, copy=False),
    "diag of a vector": lambda np, m: np.diag(m[0]),
    "diagflat": lambda np, m: np.diagflat(m),
    "astype": lambda np, m: m.astype(float),
    "astype, no copy": lambda np, m: m.astype(float, copy=False),
    "view": lambda np, m: m.view(),
    "an element": lambda np, m: m[0, 1],
    "an element, as an array": lambda np, m: m[0, 1, ...],
    "a row": lambda np, m: m[1],
    "rows by an array": lambda np, m: m[[0, 1]],
    "a mask": lambda np, m: m[[True, False]],
    "ix_": lambda np, m: m[np.ix_([0], [1])],
    "apply_along_axis, itself": lambda np, m: np.apply_along_axis(lambda x: x, 0, m),
    "apply_over_axes, none": lambda np, m: np.apply_over_axes(np.sum, m, []),
    "concatenate of one": lambda np, m: np.concatenate([m]),
    "tile once": lambda np, m: np.tile(m, 1),
    "repeat once": lambda np, m: np.repeat(m, 1),
    "roll by nothing": lambda np, m: np.roll(m, 0),
    "pad by nothing": lambda np, m: np.pad(m, 0),
    "diff of no order": lambda np, m: np.diff(m, n=0),
    "resize": lambda np, m: np.resize(m, (3, 2)),
    "block of one": lambda np, m: np.block(m),
    "insert nothing": lambda np, m: np.insert(m, [], []),
    "delete nothing": lambda np, m: np.delete(m, [], 0),
    "real_if_close": lambda np, m: np.real_if_close(m),
    "positive": lambda np, m: np.positive(m),
    "conj": lambda np, m: np.conj(m),
    "conj, method": lambda np, m: m.conj(),
    "conjugate, method, of complex": lambda np, m: (m + 1j).conjugate(),
    "resize to an array without axes": lambda np, m: np.resize(m, ()),
    "nan_to_num, no copy, without axes": lambda np, m: np.nan_to_num(m[0, 1, ...], copy=False),
    "asfortranarray, without axes": lambda np, m: np.asfortranarray(m[0, 1, ...]),
    "round": lambda np, m: m.round(),
    "matrix_power": lambda np, m: np.linalg.matrix_power(m[:, :2], 1),
    "median": lambda np, m: np.median(m),
    "nanmax": lambda np, m: np.nanmax(m),
    "norm": lambda np, m: np.linalg.norm(m, 1),
    "cond": lambda np, m: np.linalg.cond(m[:, :2]),
    "slogdet": lambda np, m: np.linalg.slogdet(m[:, :2]),
    "einsum, transposed": lambda np, m: np.einsum("ij->ji", m),
    "diagonal": lambda np, m: np.diagonal(m),
    "diagonal, method": lambda np, m: m.diagonal(1),
    "diagonal, below": lambda np, m: np.diagonal(m, -1, 1, 0),
    "diagonal, beyond": lambda np, m: np.diagonal(m, 5),
    "diagonal of three axes": lambda np, m: np.diagonal(m.reshape(1, 2, 3), 0, 2, 1),
    "diagonal of a transposed array": lambda np, m: m.T.diagonal(),
    "diagonal, a view of it": lambda np, m: np.diagonal(m)[::-1],
    "diagonal, reshaped": lambda np, m: np.diagonal(m).reshape(1, 2),
    "diagonal, flattened": lambda np, m: np.diagonal(m).ravel(),
    "diagonal, copied": lambda np, m: np.diagonal(m).copy(),
    "diagonal of a copy": lambda np, m: np.diagonal(m.T.copy()),
    "diag": lambda np, m: np.diag(m),
    "diag, above": lambda np, m: np.diag(m, 1),
    "linalg.diagonal": lambda np, m: np.linalg.diagonal(m, offset=1),
    "sliding_window_view": lambda np, m: np.lib.stride_tricks.sliding_window_view(m, (2, 2)),
    "sliding_window_view, one axis": lambda np, m: np.lib.stride_tricks.sliding_window_view(m, 2, axis=0),
    "sliding_window_view, an axis twice": lambda np, m: np.lib.stride_tricks.sliding_window_view(m, (2, 2), (1, 1)),
    "einsum, diagonal": lambda np, m: np.einsum("ii->i", m[:, :2]),
    "einsum, diagonals": lambda np, m: np.einsum("...ii->...i", m.reshape(3, 1, 2)[:, :, 1:]),
    "einsum, diagonal and transposed": lambda np, m: np.einsum("iji->ji", m.reshape(1, 6, 1)),
    "einsum, diagonal of three axes": lambda np, m: np.einsum("iii->i", m.reshape(1, 2, 3)[:, :1, :1]),
    "einsum, unchanged": lambda np, m: np.einsum("...", m),
    "einsum, another dtype": lambda np, m: np.einsum("ij->ji", m, dtype="f4"),
    "einsum, optimized": lambda np, m: np.einsum("ii->i", m[:, :2], optimize=True),
    "einsum, lists": lambda np, m: np.einsum(m[:, :2], [0, 0], [0]),
    "einsum, into an array": lambda np, m: np.einsum("ij->ji", m, out=np.zeros((3, 2))),
    "einsum, summed diagonal": lambda np, m: np.einsum("ii", m[:, :2]),
    "einsum, summed": lambda np, m: np.einsum("ij->i", m),
    "tensordot": lambda np, m: np.tensordot(m, m, 2),
    "choose": lambda np, m: np.choose(1, [m[0, 0], m[1, 1]]),
}
if not hasattr(numpy, "unstack"):       # before NumPy 2.1
    del ROWS["unstack"], ROWS["reshape, copy"]


@together("row", ROWS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_views_and_copies(row, order):
    matrix = numpy.array([[1.0, -2.0, 0.5], [4.0, 3.0, -1.0]], order=order)
    check(lambda m: ROWS[row](numpy, m), lambda m: ROWS[row](face, m), [matrix], WAYS)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "compile"])
def test_a_writeable_array_is_required(way):
    check(lambda m: numpy.require(numpy.diagonal(m), requirements="W"),
          lambda m: face.require(face.diagonal(m), requirements="W"), [numpy.ones((2, 3))], [way])


WRITES_TO_IT: dict[str, Callable[[Any, Any], Any]] = {
    "[...] =": lambda np, d: d.__setitem__(..., 5.0),
    "[0] =": lambda np, d: d.__setitem__(0, 5.0),
    "out": lambda np, d: np.sin(np.ones(d.shape), out=d),
    "fill": lambda np, d: d.fill(5.0),
    "copyto": lambda np, d: np.copyto(d, 1.0),
    "put": lambda np, d: np.put(d, [0], [1.0]),
    "sort": lambda np, d: d.sort(),
    "+=": lambda np, d: d.__iadd__(1.0),
}
READ_ONLY: dict[str, Callable[[Any, Any], Any]] = {
    "diagonal": lambda np, m: np.diagonal(m),
    "diag": lambda np, m: np.diag(m, 1),
    "linalg.diagonal": lambda np, m: np.linalg.diagonal(m),
    "sliding_window_view": lambda np, m: np.lib.stride_tricks.sliding_window_view(m, 2, 0),
    "broadcast_to": lambda np, m: np.broadcast_to(m, (2, 2, 3)),
    "a view of a diagonal": lambda np, m: m.diagonal()[::-1],
}


@pytest.mark.parametrize("make", READ_ONLY)
@together("write", WRITES_TO_IT)
def test_read_only_views_refuse_writes(make, write):
    def program(np: Any, m: Any) -> Any:
        m = np.copy(m)
        WRITES_TO_IT[write](np, READ_ONLY[make](np, m))
        return m

    matrix = numpy.array([[1.0, -2.0, 0.5], [4.0, 3.0, -1.0]])
    with pytest.raises(ValueError, match="read-only"):
        program(numpy, matrix)
    for way, run in WAYS_TO_REFUSE.items():
        with case_named(way), pytest.raises((ValueError, AutogradError), match=r"read-only|several of its elements"):
            run(lambda m: program(face, m), matrix)


WAYS_TO_REFUSE: dict[str, Callable[[Call, Any], Any]] = {
    "raw": lambda f, m: f(m),
    "tensors": lambda f, m: f(Tensor(m)),
    "tape": lambda f, m: f(Tensor(m, requires_grad=True)),
    "vjp": lambda f, m: func.vjp(f, m),
    "jvp": lambda f, m: func.jvp(f, (m,), (m,)),
    "vmap": lambda f, m: func.vmap(f)(numpy.stack([m, m])),
    "vmap of grad": lambda f, m: func.vmap(func.grad(lambda m: f(m).sum()))(numpy.stack([m, m])),
    "functionalize": lambda f, m: func.functionalize(f)(m),
    "make_fx": lambda f, m: make_fx(f)(m),
    "compile": lambda f, m: compile(f)(m),
}


def test_trimming_an_array_without_axes_makes_a_view():
    t = Tensor(numpy.array(3.0))
    face.trim_zeros(t)[...] = 5.0
    assert t == 5.0
