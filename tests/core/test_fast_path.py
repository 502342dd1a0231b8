"""Common calls take a short cut once an operator's table is there. It must not be seen.

A trace keeps calls off the short cut, so whatever a call does under one is what it has to do without.
"""

import gc
import io
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, _core, autograd, below_autograd, debug, default_backend, include_keys, ops
from pydispatch.backends import MetaArray
from pydispatch.exceptions import DispatchTypeError, NoKernelError, StaleOperatorError
from pydispatch.library import Library
from pydispatch.tree import tree_map
from tests.together import together


class Sub(Tensor):
    """A subclass, which is no exact Tensor."""


class Whole(int):
    """A subclass, which is no exact int."""


def known_values(backends):
    """Return values for arguments, fitting or not, by name, so that failures can be read."""
    array, matrix = np.arange(3.0), np.ones((2, 3))
    return {
        "array": array,
        "matrix": matrix,
        "Tensor": Tensor(array),
        "Tensor of matrix": Tensor(matrix),
        "Sub": Sub(array),
        "masked": np.ma.masked_array([1, 2]),
        "np.float64": np.float64(2),
        "np.int64": np.int64(2),
        "A": backends.ArrayA(array),
        "Tensor of A": Tensor(backends.ArrayA(array)),
        "B": backends.ArrayB(array),
        "Sparse": backends.SparseArray(array),
        "Meta": MetaArray(3),
        "Tensor of Meta": Tensor(MetaArray(3)),
        "1": 1, "True": True, "2.5": 2.5, "1j": 1j, "5": 5,
        "Whole": Whole(7),
        "None": None,
        "s": "s",
        "t": "".join(["t"]),
        "list": [array],
        "Tensors": (Tensor(array), array),
        "ints": [1, 2],
        "dict": {"a": Tensor(array)},
        "object": object(),
    }


TYPES = {"Tensor": [None], "Tensor?": ["None"], "int": ["1", "5"], "float": ["2.5"], "bool": ["True"],
         "str": ["'s'", "'t'"], "Scalar": ["1", "2.5"], "Any": [None], "Tensor[]": [None], "int[]": ["[1, 2]"],
         "int?": ["None", "5"]}
FITTING = {
    "Tensor": ["array", "Tensor", "Tensor", "matrix", "Tensor of matrix", "2.5", "1", "A", "Tensor of A", "Sub",
               "np.float64", "Meta"],
    "Tensor?": ["array", "Tensor", "None", "Tensor of A", "1"],
    "int": ["1", "5", "True", "Whole", "np.int64"],
    "float": ["2.5", "1", "np.float64"],
    "bool": ["True", "1"],
    "str": ["s", "t"],
    "Scalar": ["1", "2.5", "True", "1j"],
    "Any": ["array", "Tensor", "dict", "ints", "None", "1"],
    "Tensor[]": ["list", "Tensors"],
    "int[]": ["ints"],
    "int?": ["5", "None"],
}
ARRAY_RESULTS = ["new", "new", "Tensor", "0-d", "scalar"]
RETURNS = {  # and what kernels mostly return there
    "Tensor": ARRAY_RESULTS,
    "Tensor?": [*ARRAY_RESULTS, "None"],
    "(Tensor, Tensor)": ["pair"],
    "()": ["None"],
    "str": ["str"],
    "Tensor[]": ["list"],
    "Any": [*ARRAY_RESULTS, "pair", "str", "first"],
    "Tensor(a)": [*ARRAY_RESULTS, "first"],
    "Tensor(a!)": [*ARRAY_RESULTS, "first"],
}
RESULTS = {
    "new": lambda args: np.ones(2),
    "Tensor": lambda args: Tensor(np.ones(2)),
    "scalar": lambda args: np.float64(3),
    "0-d": lambda args: np.array(3),
    "first": lambda args: args[0],
    "view": lambda args: args[0][:1],
    "pair": lambda args: (np.ones(1), args[0]),
    "None": lambda args: None,
    "str": lambda args: "answer",
    "number": lambda args: 1.0,
    "list": lambda args: [np.ones(1)],
    "A": lambda args: "later",
}
KEYS = ["CPU", "CPU", "CPU", "CIA", "CEA", "A", "Meta", "AutogradCPU", "Autograd", "SparseCPU"]
GUARDS = {
    "none": include_keys,
    "Tracer": lambda: include_keys("Tracer"),
    "below": below_autograd,
    "backend": lambda: default_backend("A"),
}


@st.composite
def schemas(draw):
    """Draw (text, types of the arguments, number of positional ones)."""
    n_positional, n_by_keyword = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    returns = draw(st.just("Tensor") | st.sampled_from(sorted(RETURNS)))
    types = [draw(st.sampled_from(list(TYPES))) for _ in range(n_positional + n_by_keyword)]
    if not types or "(" in returns[1:]:
        types, n_positional = ["Tensor", *types], n_positional + 1
        types[0] = "Tensor"
    first = returns[6:] if returns in ("Tensor(a)", "Tensor(a!)") else ""
    parts, optional = [], False
    for i, type_name in enumerate(types):
        if i == n_positional:
            parts.append("*")
            optional = False
        default = draw(st.sampled_from(TYPES[type_name])) if i and (optional or draw(st.booleans())) else None
        if optional and i < n_positional and default is None:
            type_name, default = "int", "1"
            types[i] = "int"
        optional = default is not None
        mark = first if i == 0 else ""
        parts.append(f"{type_name}{mark} a{i}" + (f"={default}" if default is not None else ""))
    return f"f({', '.join(parts)}) -> {returns}", types, n_positional


@st.composite
def calls(draw, types, n_positional):
    """Draw names of values by position and by keyword. Mostly of the right types and number."""
    chosen = [
        draw(st.sampled_from(FITTING[type_name]) if draw(st.integers(0, 9)) else st.sampled_from(sorted(NAMES)))
        for type_name in types
    ]
    n = draw(st.integers(0, n_positional)) if draw(st.booleans()) else n_positional
    kwargs = {f"a{i}": name for i, name in enumerate(chosen) if i >= n and draw(st.integers(0, 4))}
    order = draw(st.permutations(sorted(kwargs)))
    args = chosen[:n] + (["1"] if draw(st.integers(0, 19)) == 0 else [])
    if draw(st.integers(0, 19)) == 0:
        kwargs[draw(st.sampled_from(["a0", "nonsense"]))] = "1"
        order = sorted(kwargs)
    return args, {name: kwargs[name] for name in order}


NAMES = ["array", "matrix", "Tensor", "Tensor of matrix", "Sub", "masked", "np.float64", "np.int64", "A", "Tensor of A",
         "B", "Sparse", "Meta", "Tensor of Meta", "1", "True", "2.5", "1j", "5", "Whole", "None", "s", "t", "list",
         "Tensors", "ints", "dict", "object"]


@st.composite
def situations(draw):
    """Draw a schema, kernels for it (key, convention, result), calls and the guards they are under."""
    schema, types, n_positional = draw(schemas())
    fitting = RETURNS[schema.partition(" -> ")[2]]
    kernels = []
    for key in (draw(st.sampled_from(["CPU", "CIA", "CEA"])), *draw(st.lists(st.sampled_from(KEYS), max_size=2))):
        convention = draw(st.sampled_from([{}, {}, {}, {"with_keyset": True}, {"boxed": True}]))
        kernels.append(
            (key, convention, draw(st.sampled_from(fitting if draw(st.integers(0, 9)) else sorted(RESULTS)))))
    call = st.tuples(calls(types, n_positional), st.sampled_from(sorted(GUARDS)))
    return schema, kernels, draw(st.lists(call, min_size=1, max_size=4))


def kernel_for(seen, convention, result):
    """Return a kernel that notes what it gets, however it is called."""

    def note(args, kwargs):
        seen.append((args, kwargs))
        return RESULTS[result]([*args, *kwargs.values()])

    def boxed(op, stack):
        args = stack.pop_arguments(len(op.schema.arguments))
        answer = note(args, {})
        n = len(op.schema.returns)
        stack.push(*(answer if n > 1 and isinstance(answer, tuple) else [answer][:n]))

    if convention.get("boxed"):
        return boxed
    if convention.get("with_keyset"):
        return lambda keys, *args, **kwargs: note((keys, *args), kwargs)
    return lambda *args, **kwargs: note(args, kwargs)


def told(value, names):
    """Return a value that can be compared: known objects by name, others by type and content."""

    def tell(leaf):
        if id(leaf) in names:
            return f"<{names[id(leaf)]}>"
        if isinstance(leaf, Tensor):
            return type(leaf).__name__, tell(leaf.array), leaf._version
        return type(leaf).__name__, np.asarray(leaf).tolist() if isinstance(
            leaf, (np.ndarray, np.generic)) else repr(leaf)

    return repr(tree_map(tell, value))


def observe(op, call, guard, values, names, seen):
    """Record everything that a caller can see of a call."""
    args, kwargs = call
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    before = [t._version for t in tensors]
    seen.clear()
    try:
        with GUARDS[guard]():
            answer = told(
                op(*(values[name] for name in args), **{key: values[name] for key, name in kwargs.items()}), names)
    except Exception as error:
        answer = type(error), str(error)
    written = [t._version - version for t, version in zip(tensors, before, strict=True)]
    return answer, told(seen, names), written


@given(situations())
@settings(max_examples=300)
def test_the_short_cut_is_not_seen(new_library, backends, tracer, situation):
    schema, kernels, spellings = situation
    values = known_values(backends)
    names = {id(value): name for name, value in values.items()}
    names |= {
        id(value.array): f"array of {name}"
        for name, value in values.items()
        if type(value) is Tensor and name != "Tensor"
    }
    seen = []
    with new_library() as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.define(schema)
        for key, convention, result in kernels:
            library.impl("f", kernel_for(seen, convention, result), key, **convention)
        packet = getattr(ops, library.namespace).f
        op = packet.default
        with debug.trace(io.StringIO()):
            expected = [observe(op, call, guard, values, names, seen) for call, guard in spellings]
        for callee in (op, packet, op):
            for (call, guard), outcome in zip(spellings, expected, strict=True):
                assert observe(callee, call, guard, values, names, seen) == outcome
        for (call, guard), outcome in reversed(list(zip(spellings, expected, strict=True))):
            for _ in range(2):
                assert observe(op, call, guard, values, names, seen) == outcome


# --- what is remembered from call to call -------------------------------------------------------------------


def test_the_kernel_found_last_is_not_run_for_other_arguments(fresh, define, token, backends):
    keys = ("CPU", "A", "Meta", "SparseCPU", "AutogradCPU", "AutogradA")
    op = define(fresh, "f(Tensor x, Tensor? y=None) -> str", **{key: token(key) for key in keys})
    x, a = np.ones(2), backends.ArrayA(1)
    sparse, meta = backends.SparseArray(1), MetaArray(2)
    rows = [
        ((x,), "CPU"),
        ((Tensor(x),), "AutogradCPU"),
        ((a,), "A"),
        ((Tensor(a),), "AutogradA"),
        ((x, a), "A"),
        ((1.0,), "CPU"),
        ((sparse,), "SparseCPU"),
        ((meta,), "Meta"),
        ((x, Tensor(a)), "AutogradA"),
        ((np.float32(1),), "CPU"),
        ((x, meta), "Meta"),
    ]
    for first, second in [(one, other) for one in rows for other in rows]:
        for args, expected in (first, first, second, first):
            assert op(*args) == expected


def test_what_is_remembered_goes_with_the_registration(fresh, define, token, tracer):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"))
    x = np.ones(2)
    for _ in range(3):
        assert op(x) == "CPU"
    with fresh.impl("f", token("Tracer"), "Tracer"):
        assert op(x) == "CPU"
        with include_keys("Tracer"):
            assert [op(x), op(x)] == ["Tracer"] * 2
        assert op(x) == "CPU"
    with include_keys("Tracer"):
        assert op(x) == "CPU"
        with Library("_", "IMPL") as everything:
            everything.fallback(lambda op, x: "fallback", "Tracer")
            assert op(x) == "fallback"
        assert op(x) == "CPU"
    with default_backend("A"), pytest.raises(NoKernelError):
        op(1.0)
    assert op(1.0) == "CPU"


def test_another_definition_is_another_signature(fresh, token):
    x = np.ones(2)
    for schema, call, expected in (("f(Tensor x) -> str", lambda f: f(x), "ran"),
                                   ("f(Tensor x, Tensor y) -> str", lambda f: f(x, Tensor(x)), "ran"),
                                   ("f(Tensor x) -> str", lambda f: f(x), "ran"),
                                   ("f(*, Tensor x) -> str", lambda f: f(x=x), "ran")):
        with fresh.define(schema), fresh.impl("f", token("ran"), "CPU"):
            f = getattr(ops, fresh.namespace).f
            assert [call(f) for _ in range(3)] == [expected] * 3


# --- kernels that remove what they run in -------------------------------------------------------------------

REMOVALS = {"kernel": lambda lib, kernel: kernel.remove(), "library": lambda lib, kernel: lib.close()}
CALLEES = {
    "overload": lambda lib: getattr(ops, lib.namespace).f.default,
    "packet": lambda lib: getattr(ops, lib.namespace).f,
}
SPELLINGS = {
    "positional": lambda f, x: f(x),
    "keyword": lambda f, x: f(x=x),
    "default": lambda f, x: f(x, 1),
    "by name": lambda f, x: f(x, k=5),
}
ANSWERS = {
    "array": (lambda x: np.ones(2), None),
    "0-d": (lambda x: np.float64(1), None),
    "wrong": (lambda x: "wrong", DispatchTypeError),
    "raises": (lambda x: 1 / 0, ZeroDivisionError),
    "the argument": (lambda x: x, None),
}


@pytest.mark.parametrize("removal", REMOVALS.values(), ids=REMOVALS)
@pytest.mark.parametrize("callee", CALLEES.values(), ids=CALLEES)
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize(("answer", "error"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_a_kernel_removes_itself_in_the_short_cut(new_library, removal, callee, spelling, answer, error, wrap):
    library, calls = new_library(), []

    def kernel(x, a=1, *, k=2):
        calls.append(x)
        if len(calls) <= 2:
            return np.ones(2)
        removal(library, handle)
        gc.collect()
        made = [object() for _ in range(200)]
        assert len(made) == 200
        return answer(x)

    library.define("f(Tensor x, int a=1, *, int k=2) -> Tensor")
    handle = library.impl("f", kernel, "CPU")
    x, f = wrap(np.ones(3)), callee(library)
    spelling(f, x), spelling(f, x)
    if error is None:
        assert type(spelling(f, x)) is (Tensor if wrap is Tensor else type(answer(x)))
    else:
        with pytest.raises(error):
            spelling(f, x)
    with pytest.raises((NoKernelError, StaleOperatorError)):
        spelling(f, x)
    library.close()


def test_names_that_are_not_interned(fresh, define, spy):
    kernel = spy(np.ones(1))
    op = define(fresh, "f(Tensor first, int second=1, *, int third=2) -> Tensor", CPU=kernel)
    x = np.ones(2)
    for _ in range(3):
        names = ["".join(["fir", "st"]), "".join(["sec", "ond"]), "".join(["thi", "rd"])]
        assert all(name is not sys.intern(name) for name in names)
        op(**dict(zip(names, (x, 5, 6), strict=True)))
        op(x, **{names[2]: 6})
    assert kernel.calls == [((x, 5), {"third": 6}), ((x,), {"third": 6})] * 3


# --- operators of the library: views, writes, and Tensors that are neither plain nor tracked ------------------


def leaf():
    return Tensor(np.arange(1.0, 7.0).reshape(2, 3), requires_grad=True)


def constant():
    return Tensor(np.arange(1.0, 7.0).reshape(2, 3))


def with_view(tensor):
    tensor[0]
    return tensor


def view_without_tape(tensor):
    with autograd.no_grad():
        return tensor[:]


def written_through_view(tensor):
    """Return a Tensor whose view was given a gradient since."""
    view = tensor[0]
    view[...] = leaf()[0]
    return tensor


def written_through_base(tensor):
    view = tensor[:]
    tensor[...] = leaf()
    return view


def ambiguous():
    """Return a view that was made without the tape of what was written to with it."""
    base = leaf() * 2.0
    view = view_without_tape(base)
    base[...] = leaf()
    return view


def made_in_inference_mode():
    with autograd.inference_mode():
        return constant()


OPERANDS = {
    "array": lambda: constant().array,
    "constant": constant,
    "Sub": lambda: Sub(constant().array),
    "constant with a view": lambda: with_view(constant()),
    "view of a constant": lambda: constant()[:],
    "view of a view": lambda: constant()[:][:, ::1],
    "detached": lambda: leaf().detach(),
    "view of a detached": lambda: leaf().detach()[:],
    "leaf": leaf,
    "leaf with a view": lambda: with_view(leaf()),
    "view of a leaf": lambda: leaf()[:],
    "result": lambda: leaf() * 2.0,
    "result with a view": lambda: with_view(leaf() * 2.0),
    "view of a result": lambda: (leaf() * 2.0)[:],
    "view without the tape": lambda: view_without_tape(leaf()),
    "view of a constant without the tape": lambda: view_without_tape(constant()),
    "written through a view": lambda: written_through_view(constant()),
    "view of what was written": lambda: written_through_base(constant()),
    "ambiguous": ambiguous,
    "made in inference mode": made_in_inference_mode,
    "view of what was made there": lambda: made_in_inference_mode()[:],
    "without data": lambda: Tensor(MetaArray((2, 3))),
    "NumPy scalar": lambda: np.float64(2.0),
    "int": lambda: 2,
}
F32 = np.dtype("float32")
MASK = np.array([True, False])
LIBRARY_CALLS = {
    "add": lambda x: ops.np.add(x, x),
    "add, 1": lambda x: ops.np.add(x, 1.0),
    "add, constant": lambda x: ops.np.add(x, constant()),
    "sum": lambda x: ops.np.sum(x),
    "sum, axis": lambda x: ops.np.sum(x, axis=-1),
    "getitem, 0": lambda x: ops.np.getitem(x, 0),
    "getitem, -1": lambda x: ops.np.getitem(x, -1),
    "getitem, ints": lambda x: ops.np.getitem(x, (1, -2)),
    "getitem, slice": lambda x: ops.np.getitem(x, slice(1)),
    "getitem, mixed": lambda x: ops.np.getitem(x, (slice(None), None, 1)),
    "getitem, ...": lambda x: ops.np.getitem(x, ...),
    "getitem, ... and 0": lambda x: ops.np.getitem(x, (..., 0)),
    "getitem, None": lambda x: ops.np.getitem(x, None),
    "getitem, NumPy int": lambda x: ops.np.getitem(x, np.int64(1)),
    "getitem, too far": lambda x: ops.np.getitem(x, 2),
    "getitem, array": lambda x: ops.np.getitem(x, np.array([0])),
    "getitem, list": lambda x: ops.np.getitem(x, [0]),
    "getitem, str": lambda x: ops.np.getitem(x, "field"),
    "index": lambda x: ops.np.index(x, np.array([0, 0])),
    "index, mask": lambda x: ops.np.index(x, MASK),
    "index, tuple": lambda x: ops.np.index(x, (slice(None), np.array([0, 2]))),
    "index, Tensor": lambda x: ops.np.index(x, Tensor(np.array([1]))),
    "index, 0": lambda x: ops.np.index(x, 0),
    "[0]": lambda x: x[0],
    "[NumPy int]": lambda x: x[np.int64(0)],
    "[bool]": lambda x: x[True],
    "[list]": lambda x: x[[0]],
    "[mask]": lambda x: x[MASK],
    "setitem_, number": lambda x: ops.np.setitem_(x, 0, 5.0),
    "setitem_, array": lambda x: ops.np.setitem_(x, (slice(None), 1), np.array([5.0, 6.0])),
    "setitem_, Tensor": lambda x: ops.np.setitem_(x, slice(None), constant()),
    "setitem_, leaf": lambda x: ops.np.setitem_(x, slice(None), leaf()),
    "setitem_, wrong shape": lambda x: ops.np.setitem_(x, 0, np.ones(2)),
    "setitem_, mask": lambda x: ops.np.setitem_(x, MASK, 5.0),
    "index_put_": lambda x: ops.np.index_put_(x, MASK, 5.0),
    "index_put_, accumulate": lambda x: ops.np.index_put_(x, np.array([0, 0]), 5.0, accumulate=True),
    "setitem": lambda x: ops.np.setitem(x, 0, 5.0),
    "add_": lambda x: ops.np.add_(x, 1.0),
    "add_, dtype": lambda x: ops.np.add_(x, 1.0, dtype=F32),
    "add_, itself": lambda x: ops.np.add_(x, x),
    "add_, too large": lambda x: ops.np.add_(x, np.ones((4, 2, 3))),
    "reshape": lambda x: ops.np.reshape(x, (3, 2)),
    "reshape, int": lambda x: ops.np.reshape(x, -1),
    "reshape, list": lambda x: ops.np.reshape(x, [6]),
    "reshape, copy": lambda x: ops.np.reshape(x, (6,), copy=True),
    "transpose": lambda x: ops.np.transpose(x),
    "ravel": lambda x: ops.np.ravel(x),
    "ravel of a transpose": lambda x: ops.np.ravel(ops.np.transpose(x)),
    "astype, the same": lambda x: ops.np.astype(x, np.dtype(float), copy=False),
    "detach": lambda x: ops.np.detach(x),
    "split": lambda x: ops.np.split(x, 2),
    "item": lambda x: ops.np.item(x),
    "add, out": lambda x: ops.np.add(x, x, out=np.empty((2, 3))),
    "add, out is a Tensor": lambda x: ops.np.add(x, 1.0, out=constant()),
    "add, out is an operand": lambda x: ops.np.add(x, 1.0, out=x),
    "add, out is a leaf": lambda x: ops.np.add(x, 1.0, out=leaf()),
    "add, out too small": lambda x: ops.np.add(x, 1.0, out=np.zeros(2)),
    "add, out and dtype": lambda x: ops.np.add(x, 1.0, dtype=F32, out=np.empty((2, 3), "f4")),
    "add, out is a number": lambda x: ops.np.add(x, 1.0, out=2.0),
    "add, all by keyword": lambda x: ops.np.add(x2=x, x1=1.0, out=constant()),
    "add, dtype": lambda x: ops.np.add(x, 1.0, dtype=F32),
    "add, dtype is a type": lambda x: ops.np.add(x, 1.0, dtype=np.float32),
    "add, dtype is float": lambda x: ops.np.add(x, 1.0, dtype=float),
    "add, dtype is a str": lambda x: ops.np.add(x, 1.0, dtype="f4"),
    "add, dtype of another order": lambda x: ops.np.add(x, 1.0, dtype=">f8"),
    "add, dtype is none": lambda x: ops.np.add(x, 1.0, dtype="nonsense"),
    "add, dtype is an array": lambda x: ops.np.add(x, 1.0, dtype=np.ones(2)),
    "sum, dtype": lambda x: ops.np.sum(x, dtype=np.float32),
    "sum, out": lambda x: ops.np.sum(x, axis=0, out=np.empty(3)),
    "sum, where": lambda x: ops.np.sum(x, where=np.array([True, False, True])),
    "sum, axes as a list": lambda x: ops.np.sum(x, [0, 1]),
    "max, keepdims": lambda x: ops.np.max(x, axis=1, keepdims=True),
    "mean": lambda x: ops.np.mean(x, 0),
    "var": lambda x: ops.np.var(x, ddof=1),
    "var, correction": lambda x: ops.np.var(x, correction=1),
    "var, both": lambda x: ops.np.var(x, ddof=1, correction=1),
    "std, mean": lambda x: ops.np.std(x, 1, mean=ops.np.mean(x, 1, keepdims=True), keepdims=True),
    "concatenate": lambda x: ops.np.concatenate((x, x)),
    "concatenate, list": lambda x: ops.np.concatenate([x, constant()], 1),
    "concatenate, axis": lambda x: ops.np.concatenate([x, x], axis=None),
    "concatenate, dtype": lambda x: ops.np.concatenate([x, x], dtype=np.float32),
    "concatenate, out": lambda x: ops.np.concatenate([x, x], out=np.empty((4, 3))),
    "concatenate, other shapes": lambda x: ops.np.concatenate([x, np.ones(2)]),
    "concatenate, nothing": lambda x: ops.np.concatenate([]),
    "concatenate, numbers": lambda x: ops.np.concatenate([1, 2]),
    "stack": lambda x: ops.np.stack([x, x], -1),
    "zeros_like": lambda x: ops.np.zeros_like(x),
    "zeros_like, dtype": lambda x: ops.np.zeros_like(x, dtype=int),
    "zeros_like, shape": lambda x: ops.np.zeros_like(x, shape=5),
    "ones_like, device": lambda x: ops.np.ones_like(x, device="Meta"),
    "full_like": lambda x: ops.np.full_like(x, x),
    "full": lambda x: ops.np.full((2, 3), x),
    "full, device": lambda x: ops.np.full((2, 3), x, device="CPU"),
    "repeat": lambda x: ops.np.repeat(x, 2),
    "repeat, each": lambda x: ops.np.repeat(x, [1, 2], axis=0),
    "repeat, wrongly": lambda x: ops.np.repeat(x, (1, 2, 3), axis=0),
    "clip": lambda x: ops.np.clip(x, 2.0, 3.0),
    "clip, min": lambda x: ops.np.clip(x, min=x),
    "astype, type": lambda x: ops.np.astype(x, np.float32),
    "copy": lambda x: ops.np.copy(x),
    "take": lambda x: ops.np.take(x, np.array([0, 5])),
    "where": lambda x: ops.np.where(ops.np.greater(x, 2.0), x, 0.0),
    "zeros": lambda x: ops.np.zeros(4),
    "zeros, shape": lambda x: ops.np.zeros((2, 3), dtype=F32),
    "zeros, list": lambda x: ops.np.zeros([2, 3], dtype=bool),
    "zeros, negative": lambda x: ops.np.zeros(-1),
    "ones, device": lambda x: ops.np.ones(2, device="meta"),
    "ones, no device": lambda x: ops.np.ones(2, device="nowhere"),
    "empty, of nothing": lambda x: ops.np.empty((0, 3)),
    "arange": lambda x: ops.np.arange(4),
    "arange, floats": lambda x: ops.np.arange(0.0, 1.0, 0.25),
    "arange, dtype": lambda x: ops.np.arange(4, dtype=float),
    "arange, too much": lambda x: ops.np.arange(1, 2, 3, 4),
    "eye": lambda x: ops.np.eye(3, k=1),
    "linspace": lambda x: ops.np.linspace(0.0, x, 3),
}
BACKENDS = {"CPU": include_keys, "Meta": lambda: default_backend("Meta")}
TAPES = {"recording": autograd.enable_grad, "no_grad": autograd.no_grad, "inference": autograd.inference_mode}


def described(value, operand):
    """Return the visible properties of a result: its type, its memory, where its gradient goes."""
    if isinstance(value, (list, tuple)):
        return [described(item, operand) for item in value]
    if not isinstance(value, Tensor):
        array = isinstance(value, np.ndarray)
        return type(value), elements(value), array and np.shares_memory(value, operand_array(operand))
    return (
        type(value), elements(value), value.dtype, value._version, value.requires_grad, str(value.grad_fn),
        _core.is_view(value), isinstance(operand, Tensor) and _core.have_one_memory(value, operand), value is operand)


def elements(value):
    """Return what an array consists of, which NumPy takes longer to print, or the text of another value."""
    while isinstance(value, Tensor):
        value = value.array
    return (value.dtype, value.shape, value.tobytes()) if type(value) is np.ndarray else str(value)


def operand_array(operand):
    while isinstance(operand, Tensor):
        operand = operand.array
    return operand if isinstance(operand, np.ndarray) else np.asarray(0)


def outcome(call, operand, tape, backend="CPU"):
    """Return the results of two equal calls, the second served by caches, and the state of the operand."""
    seen = []
    for _ in range(2):
        try:
            with TAPES[tape](), BACKENDS[backend]():
                result = call(operand)
            seen.append(described(result, operand))
        except Exception as error:
            seen.append((type(error), str(error)))
        try:
            seen.append(described(operand, operand))
        except Exception as error:
            seen.append((type(error), str(error)))
    return seen


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", LIBRARY_CALLS)
def test_fast_paths_of_library_operators_are_not_seen(call):
    def outcomes():
        return {(operand, tape): outcome(LIBRARY_CALLS[call], OPERANDS[operand](), tape)
                for operand in OPERANDS for tape in TAPES}

    with debug.trace(io.StringIO()):
        expected = outcomes()
    assert outcomes() == expected


@pytest.mark.parametrize("backend", BACKENDS)
@together("call", [
    name for name in LIBRARY_CALLS if name.startswith(("zeros", "ones", "full", "empty", "arange", "eye", "linspace"))])
def test_every_fast_path_chooses_the_backend(call, backend):
    for operand in ("array", "constant", "without data"):
        with debug.trace(io.StringIO()):
            expected = outcome(LIBRARY_CALLS[call], OPERANDS[operand](), "recording", backend)
        assert outcome(LIBRARY_CALLS[call], OPERANDS[operand](), "recording", backend) == expected


def test_without_arrays_the_device_is_asked_for_in_every_call():
    for _ in range(2):
        assert type(ops.np.zeros(2)) is np.ndarray
        assert type(ops.np.zeros(2, device="Meta")) is MetaArray
        with default_backend("Meta"):
            assert type(ops.np.zeros(2)) is MetaArray
            assert type(ops.np.zeros(2, device="CPU")) is np.ndarray
            assert type(ops.np.zeros_like(np.ones(2))) is np.ndarray
        assert type(ops.np.zeros_like(MetaArray((2,)), device="CPU")) is np.ndarray
