"""Every single allocation of a call fails in turn: MemoryError or the right result, and nothing is left behind."""

from __future__ import annotations

import builtins
import functools
import gc
import itertools
import sys
from contextvars import Context, ContextVar, copy_context

import numpy as np
import pytest

import pydispatch.numpy
from pydispatch import (
    DispatchKeySet,
    Tensor,
    WrapperTensor,
    _core,
    autograd,
    below_autograd,
    compile,
    func,
    higher_order,
    include_keys,
    library,
    ops,
)
from pydispatch._registry import registrations
from pydispatch.debug import check_invariants
from pydispatch.tracing import make_fx, source
from tests.comparing import raw
from tests.modes.recorders import Passing

testcapi = pytest.importorskip("_testcapi")

pytestmark = [
    pytest.mark.slow, pytest.mark.usefixtures("no_other_thread"),
    pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning"),
]
# From 3.12 CPython releases the code of a function twice where it fails to make the function.
releases_code_twice = pytest.mark.skipif(sys.version_info >= (3, 12), reason="CPython fails at making functions")

NP = ops.np
X, Y, M = np.arange(1.0, 4.0), np.arange(2.0, 5.0), np.arange(1.0, 10.0).reshape(3, 3)
TX, TY, TM = Tensor(X), Tensor(Y), Tensor(M)
LEAF, OTHER = Tensor(X.copy(), requires_grad=True), Tensor(Y.copy(), requires_grad=True)


class Setting(Passing):
    """After its handler the state cannot be put back but by writing the context variable, which takes memory."""

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        VARIABLE.set(object())
        return super().__pydispatch__(func, types, args, kwargs)


def branch_of(variable):
    """Return the branch, one of 32, where a context keeps this variable, by its address."""
    return (hash(variable) ^ hash(variable) >> 32) % 32


def variable_apart():
    """Return a variable on another branch than those of a context inside of a mode: see the test of CPython alone."""
    def variables_in_a_mode():
        with Passing():
            return list(copy_context())

    taken = {branch_of(variable) for variable in Context().run(variables_in_a_mode)}
    assert taken
    made = []       # kept until one is apart, so that each has another address
    while not made or branch_of(made[-1]) in taken:
        made.append(ContextVar("variable"))
    return made[-1]


VARIABLE = variable_apart()


class Own(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return super().__pydispatch__(func, types, args, kwargs or {})


class Doubling(WrapperTensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return 2 * func(*[a.inner if isinstance(a, cls) else a for a in args], **(kwargs or {}))


class Square(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g


MODE, SETTING, OWN, DOUBLING = Passing(), Setting(), Own(X.copy()), Doubling(X.copy())


def scaled(x, rate=0.1):
    return x * rate


def scaled_again(x, rate=0.1):
    return x * rate * 10


@pytest.fixture(scope="module", autouse=True)
def operators():
    with library.Library("failing", "DEF") as lib:
        lib.define("scale(Tensor x, float rate=0.1) -> Tensor")
        lib.define("rate(Tensor x, *, float rate=0.1) -> Tensor")
        lib.impl("scale", scaled, "CPU")
        lib.impl("rate", scaled, "CPU")
        scale = library.custom_op("failing::triple", mutates_args=())(triple)
        scale.register_autograd(lambda ctx, g: g * 3.0)
        yield


def triple(x: np.ndarray) -> np.ndarray:
    return x * 3.0


def sum_of_cubes(x):
    return (x * x * x).sum()


def exp_sum(x):
    return NP.exp(x * x).sum()


def step(carry, x):
    return carry + x, carry * x


def positive(carry):
    return (carry > 0.0).all()


def decremented(carry):
    return carry - 1.0


def product(a, b):
    return NP.exp(a) * b + 1.0


def looped(xs):
    return higher_order.scan(step, xs[0] * 0.0, xs)[1]


GRAPH = make_fx(product)(X, Y)
COMPILED = GRAPH.compile()
EXP = func.vmap(NP.exp)
SCALED = func.vmap(scaled)
GRADIENT = func.grad(exp_sum)
GRADIENTS = func.vmap(GRADIENT)
SINE = functools.partial(func.jvp, NP.sin)


def exp_and_sine(x):
    return {"exp": NP.exp(x) * 2.0, "sines": (NP.sin(x + 1.0),)}


def exp_and_sorted(x):
    return {"exp": NP.exp(x) * 2.0, "sines": (NP.sort(x + 1.0),)}


def copied_into(inputs, outputs):
    np.copyto(outputs[0], inputs[0])


@functools.cache
def plan_with_call():
    """Return a plan with a call of Python that makes no closures."""
    compiled = compile(NP.i0)
    compiled(X)
    *parts, calls, threads, donated = compiled.variants[0].plan.described
    return _core.Plan(*parts, ((copied_into, *calls[0][1:]),), threads, donated)


def nested_sums(given):
    x, (y, z) = given["x"], given["rest"]
    return x + y * z


def sum_of(result):
    return result["exp"] + result["sines"][0]


PLANNED, CALLING = compile(exp_and_sine), compile(exp_and_sorted)
NESTED = compile(nested_sums)
LOOPS = compile(looped)
PLAN_GRADIENT = func.grad(compile(exp_sum))
PLAN_BATCHED = func.vmap(compile(NP.exp))


def gradient_of(value):
    LEAF.grad = None
    value.sum().backward()
    return LEAF.grad


def twice_differentiated():
    g, = autograd.grad(sum_of_cubes(LEAF), [LEAF], create_graph=True)
    return autograd.grad(g.sum(), [LEAF])[0]


def hooked():
    value = LEAF * 2.0
    value.register_hook(NP.negative)
    return gradient_of(value)


def in_guards():
    with below_autograd(), include_keys("AutogradCPU"), autograd.no_grad(), autograd.enable_grad():
        return NP.add(TX, TY)


def in_mode():
    with MODE:
        return NP.add(TX, TY)


def in_setting_mode():
    with SETTING:
        return NP.add(NP.add(TX, TY), TY)


def written():
    t = Tensor(X.copy())
    NP.add_(t, 1.0)
    t *= 2
    return t


def written_view():
    t = Tensor(M.copy(), requires_grad=True)
    whole = t * 1.0
    view = whole[0]
    view *= 2.0
    whole.sum().backward()
    return t.grad


def copied_and_written(x):
    copy = NP.copy(x)
    NP.add_(copy, 1.0)
    return copy * 2.0


def boxed():
    stack = [X, 0.5]
    ops.failing.scale.default.call_boxed(stack)
    return stack[0]


def registered():
    handle = library.impl("failing::scale", "CPU", scaled_again)
    try:
        return ops.failing.scale(X, 0.5)
    finally:
        while handle.active:
            try:
                handle.remove()
            except MemoryError:
                continue        # it is still there, and can be removed later


def registered_in_library():
    lib = library.Library("failing2", "DEF")
    try:
        lib.define("scale(Tensor x, float rate=0.1) -> Tensor")
        lib.impl("scale", scaled, "CPU")
        return ops.failing2.scale(X, 3.0)
    finally:
        close(lib)


def close(lib):
    while True:
        try:
            return lib.close()
        except MemoryError:
            continue        # what could not be removed is still there, and can be removed later


def with_new_table():
    ops.failing.scale.default.install_table(None)
    return ops.failing.scale(X, 0.5)


CALLS = {
    "raw": lambda: NP.add(X, Y),
    "Tensor": lambda: NP.add(TX, TY),
    "keyword": lambda: NP.sum(TX, axis=0, keepdims=True),
    "keyword only": lambda: ops.failing.rate(X, rate=0.5),
    "container": lambda: NP.concatenate([TX, TY]),
    "out": lambda: NP.add(X, Y, out=np.empty(3)),
    "written": written,
    "written view": written_view,
    "method": lambda: TM.sum(axis=1),
    "dunder": lambda: -(TX + 1.0) ** 2 / TY - abs(TX),
    "index": lambda: TM[1:, ::2],
    "broadcast": lambda: NP.multiply(TM, TY),
    "matmul": lambda: TM @ TM,
    "boxed": boxed,
    "redispatch": lambda: ops.failing.scale.default.redispatch(DispatchKeySet("CPU"), X, 0.5),
    "backward": lambda: gradient_of(NP.exp(LEAF) * OTHER + LEAF),
    "autograd.grad": lambda: autograd.grad((LEAF * OTHER).sum(), [LEAF, OTHER])[0],
    "backward twice": twice_differentiated,
    "hook": hooked,
    "Function": lambda: gradient_of(Square.apply(LEAF)),
    "checkpoint": lambda: gradient_of(autograd.checkpoint(NP.exp, LEAF)),
    "custom": lambda: ops.failing.triple(TX),
    "custom backward": lambda: gradient_of(ops.failing.triple(LEAF)),
    "grad": lambda: GRADIENT(X),
    "vjp": lambda: func.vjp(sum_of_cubes, X)[1](1.0)[0],
    "jvp": lambda: SINE((X,), (Y,))[1],
    "hessian": lambda: func.hessian(sum_of_cubes)(X),
    "vmap": lambda: EXP(M),
    "vmap by loop": lambda: SCALED(M),
    "vmap grad": lambda: GRADIENTS(M),
    "vmap made": lambda: func.vmap(NP.exp)(M),
    "functionalize": lambda: func.functionalize(copied_and_written)(X),
    "guards": in_guards,
    "mode": in_mode,
    "mode that sets a variable": in_setting_mode,
    "subclass": lambda: NP.add(OWN, 1.0),
    "wrapper": lambda: DOUBLING + 1.0,
    "cond": lambda: higher_order.cond(np.array(True), NP.exp, NP.sin, (X,)),
    "scan": lambda: higher_order.scan(step, np.zeros(3), M)[1],
    "while_loop": lambda: higher_order.while_loop(positive, decremented, (X,))[0],
    "map": lambda: higher_order.map(NP.exp, M),
    "graph": lambda: GRAPH(X, Y),
    "compiled": lambda: COMPILED(X, Y),
    "plan": lambda: sum_of(PLANNED(X)),
    "plan with a call": lambda: plan_with_call().run(X)[0],
    "plan with a call of an operator": lambda: sum_of(CALLING(X)),
    "plan of Tensors": lambda: sum_of(PLANNED(TX)),
    "plan of a pytree": lambda: NESTED({"x": X, "rest": [TY, X]}),
    "plan of a loop": lambda: LOOPS(M),
    "grad of a plan": lambda: PLAN_GRADIENT(X),
    "vmap of a plan": lambda: PLAN_BATCHED(M),
    "plan on the tape": lambda: gradient_of(NESTED({"x": LEAF, "rest": [OTHER, LEAF]})),
    "make_fx": lambda: make_fx(product)(X, Y)(X, Y),
    "make_fx of grad": lambda: make_fx(func.grad(sum_of_cubes))(X)(X),
    "make_fx of a loop": lambda: make_fx(looped)(M)(M),
    "make_fx, compiled": lambda: make_fx(product)(X, Y).compile()(X, Y),
    "compile": lambda: compile(product)(X, Y),
    "array function": lambda: pydispatch.numpy.median(TM, axis=0),
    "function of NumPy's": lambda: np.concatenate([TX, TY]),
    "register": registered,
    "library": registered_in_library,
    "table": with_new_table,
}
# They lead through functions of Python whose arguments closures hold: when CPython 3.11 cannot make the cell of such
# an argument, it loses a reference to it, as `list` and `tuple` do. NumPy loses a Tensor that a ufunc is called with.
# Tests below show both.
LEAKING_ELSEWHERE = {"Function", "array function", "checkpoint", "compile", "cond", "functionalize", "grad of a plan",
                     "graph", "hessian", "make_fx", "make_fx of a loop", "make_fx of grad", "make_fx, compiled", "map",
                     "plan on the tape", "plan with a call of an operator", "scan", "vmap grad", "vmap of a plan",
                     "while_loop"}
# Python makes up for up to six failures in a row there, and goes on.
TRACING = {"make_fx", "make_fx of grad", "make_fx of a loop", "make_fx, compiled", "compile"}
WATCHED = (X, Y, M, TX, TY, TM, LEAF, OTHER, OWN, MODE, _core.current_state())


codes = {}


def compiled_once(text, filename, mode):
    """Return the code of a traced graph from an earlier call: CPython's compiler crashes if an allocation fails."""
    if text not in codes:
        codes[text] = builtins.compile(text, filename, mode)
    return codes[text]


def innermost(error):
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame


def is_of_numpy(error):
    """Return whether NumPy returned NULL without an exception, as its iterator does in the test of NumPy alone."""
    if "ufunc" in str(error):
        return "returned NULL without setting an exception" in str(error)
    frame = innermost(error)
    return not frame.f_code.co_filename.endswith(".pyx") and not any(
        isinstance(value, Tensor) for value in frame.f_locals.values())


def failing_at(n, call):
    """Return the result and the error of a call whose n-th allocation fails."""
    try:
        testcapi.set_nomemory(n, n + 1)
        return call(), None
    except (MemoryError, SystemError) as error:
        testcapi.remove_mem_hooks()
        return None, error
    finally:
        testcapi.remove_mem_hooks()


def depth_left():
    try:
        return 1 + depth_left()
    except RecursionError:
        return 0


def ambient():
    return (_core.current_state(), list(ops.failing.scale.default.registrations), len(registrations.operators),
            registrations.lock._is_owned())


def references():
    gc.collect()
    return [sys.getrefcount(value) for value in (*WATCHED, ops.failing.scale.default)]


def test_numpy_forgets_to_raise():
    # If this fails, the test below can stop accepting a SystemError of NumPy.
    np.add.reduce(X)
    assert any(isinstance(failing_at(n, lambda: np.add.reduce(X))[1], SystemError) for n in range(10))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it crashes, or is mended")
@pytest.mark.parametrize("function", [
    lambda x: lambda: x, lambda x: list((x, x)), lambda *x: tuple(filter(np.any, x)),  # noqa: C410
], ids=["closure", "list", "tuple"])
def test_cpython_loses_references(function):
    # If this fails, the test below can count references where calls lead through such functions.
    for _ in range(20):
        function(X)
    held = references()
    for n in range(20):
        failing_at(n, lambda: function(X))
    assert references() != held


class Overriding:
    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return None


def test_numpy_loses_references():
    # If this fails, the test below can count references where a ufunc is called with a Tensor.
    overriding = Overriding()
    np.add(overriding, X)
    held = sys.getrefcount(overriding)
    for n in range(20):
        gc.collect()                # it frees the tuples that CPython keeps, so NumPy's takes memory
        failing_at(n, lambda: np.add(overriding, X))
    assert sys.getrefcount(overriding) > held


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it may be mended")
def test_cpython_loses_references_to_context_variables():
    # If two variables share a node of the context's tree, which depends on their addresses, a value may be lost.
    by_branch = {}
    for n in itertools.count():
        variable = ContextVar(f"v{n}")
        other = by_branch.setdefault(branch_of(variable), variable)
        if other is not variable:
            break

    def set_both():
        other.set(None)
        for n in range(10):
            variable.set(None)
            failing_at(n, lambda: variable.set(X))

    held = references()
    Context().run(set_both)
    assert references() != held


@releases_code_twice
@pytest.mark.parametrize("kind", CALLS)
def test_every_allocation_fails_once(monkeypatch, kind, count):
    count("failed allocations", Context().run(check_with_failing_allocations, monkeypatch, kind))


def check_with_failing_allocations(monkeypatch, kind):
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)     # pytest's would keep what failed
    monkeypatch.setattr(source, "compile", compiled_once, raising=False)
    call = CALLS[kind]
    for _ in range(3):
        expected = np.array(raw(call()))
    before, held, depth = ambient(), references(), depth_left()
    n_right = 0
    for n in itertools.count():
        result, error = failing_at(n, call)
        if error is None:
            np.testing.assert_array_equal(raw(result), expected, err_msg=str(n))
            n_right += 1
        else:
            assert isinstance(error, MemoryError) or is_of_numpy(error), (n, error)
            n_right = 0
        result = error = None
        assert ambient() == before, n
        np.testing.assert_array_equal(raw(call()), expected, err_msg=str(n))
        if kind not in LEAKING_ELSEWHERE:
            assert references() == held, n
        if n_right == (10 if kind in TRACING else 3):       # no allocation is left that could fail
            break
    assert depth_left() == depth
    check_invariants("failing::scale")
    return n - n_right + 1
