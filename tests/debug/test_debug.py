"""Dumps, invariants, explanations, traces."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import (
    DispatchKey,
    DispatchKeySet,
    Tensor,
    WrapperTensor,
    _core,
    below_autograd,
    debug,
    default_backend,
    exceptions,
    exclude_keys,
    force_keys,
    include_keys,
    no_dispatch,
    ops,
)
from pydispatch._registry import registrations
from pydispatch._registry.kernels import Kernel
from pydispatch._registry.operators import find, find_packet
from pydispatch._registry.registrations import DefinitionHandle, KernelHandle
from pydispatch._registry.tables import Label, build_table, compute_table
from pydispatch.autograd import no_grad
from pydispatch.backends import MetaArray
from pydispatch.func import functionalize, grad, jvp
from pydispatch.keys import backend_names
from pydispatch.library import (
    Library,
    custom_op,
    fallthrough_kernel,
    get_kernel,
    register_autograd,
    register_pydispatch,
)
from tests.modes.recorders import Passing

X = np.arange(3.0)


def normal(text, library):
    """Return a dump without what differs from run to run: namespace, file and line."""
    return re.sub(r"\S+[/\\](\w+\.py):\d+", r"\1", text.replace(f"{library.namespace}::", "ns::"))


def on_cpu(x: np.ndarray) -> np.ndarray:
    return x


def newer(x: np.ndarray) -> np.ndarray:
    return x


def plain(x):
    return x


def boxed(op, stack):
    pass


# --- dumps --------------------------------------------------------------------------------------------------

DEFINED = """\
name: ns::f
schema: ns::f(Tensor x) -> Tensor
debug: test_debug.py
alias analysis kind: FROM_SCHEMA
"""
NOT_DEFINED = """\
name: ns::f
schema: (none)
"""
SHADOWED = """\
CPU: newer at test_debug.py :: (Tensor _0) -> Tensor [ boxed unboxed ]
CPU (inactive): on_cpu at test_debug.py :: (Tensor _0) -> Tensor [ boxed unboxed ]
CompositeExplicitAutograd[alias]: plain at test_debug.py :: (none) [ boxed unboxed ]
"""
IN_ORDER = """\
CPU: plain at test_debug.py :: (none) [ boxed unboxed ]
A: plain at test_debug.py :: (none) [ boxed unboxed ]
SparseCPU: plain at test_debug.py :: (none) [ boxed unboxed ]
Tracer: plain at test_debug.py :: (none) [ boxed unboxed ]
AutogradCPU: plain at test_debug.py :: (none) [ boxed unboxed ]
Autograd[alias]: plain at test_debug.py :: (none) [ boxed unboxed ]
CompositeImplicitAutograd[alias]: plain at test_debug.py :: (none) [ boxed unboxed ]
"""
STATES = {
    "def": (lambda lib: lib.define("f(Tensor x) -> Tensor"), DEFINED),
    "alias analysis": (
        lambda lib: lib.define("f(Tensor x) -> Tensor", alias_analysis="PURE_FUNCTION"),
        DEFINED.replace("FROM_SCHEMA", "PURE_FUNCTION")),
    "def with kernel": (
        lambda lib: lib.define("f(Tensor x) -> Tensor", on_cpu, "CPU"),
        DEFINED + "CPU: on_cpu at test_debug.py :: (Tensor _0) -> Tensor [ boxed unboxed ]\n"),
    "def by name": (
        lambda lib: lib.define("f", on_cpu, "CPU"),
        DEFINED.replace("Tensor x", "Tensor _0").replace("FROM_SCHEMA", "CONSERVATIVE")
        + "CPU: on_cpu at test_debug.py :: (Tensor _0) -> Tensor [ boxed unboxed ]\n"),
    "impl only": (
        lambda lib: lib.impl("f", plain, "CPU"),
        NOT_DEFINED + "CPU: plain at test_debug.py :: (none) [ boxed unboxed ]\n"),
    "boxed": (
        lambda lib: lib.impl("f", boxed, "CPU", boxed=True),
        NOT_DEFINED + "CPU: boxed at test_debug.py :: (none) [ boxed ]\n"),
    "fall-through": (
        lambda lib: lib.impl("f", fallthrough_kernel, "Tracer"),
        NOT_DEFINED + "Tracer: fallthrough_kernel at kernels.py :: (none) [ fallthrough boxed ]\n"),
    "shadowed": (
        lambda lib: [lib.impl("f", *row) for row in ((plain, "CEA"), (on_cpu, "CPU"), (newer, "CPU"))],
        NOT_DEFINED + SHADOWED),
    "keys in order": (
        lambda lib: [
            lib.impl("f", plain, key)
            for key in ("Autograd", "AutogradCPU", "Tracer", "SparseCPU", "A", "CIA", "CPU")
        ],
        NOT_DEFINED + IN_ORDER,
    ),
}


@pytest.mark.parametrize(("register", "expected"), STATES.values(), ids=STATES)
@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")
def test_dump_state(fresh, tracer, register, expected):
    register(fresh)
    text = debug.dump_state(f"{fresh.namespace}::f")
    assert normal(text, fresh) == expected
    op = find(f"{fresh.namespace}::f")
    assert text == debug.dump_state(op)
    assert text in debug.dump_state()
    fresh.close()
    assert debug.dump_state(f"{fresh.namespace}::f") == debug.dump_state(op) == ""


def test_fallbacks_are_in_no_state_dump(fresh, tracer):
    fresh.define("f(Tensor x) -> Tensor")
    before = debug.dump_state()
    with Library("_", "IMPL") as everything:
        everything.fallback(lambda op, *args: None, "Tracer")
        assert debug.dump_state() == before


def test_dump_state_of_a_packet_is_that_of_its_overloads(fresh):
    fresh.define("f.a(Tensor x) -> Tensor")
    assert debug.dump_state(getattr(ops, fresh.namespace).f) == debug.dump_state(f"{fresh.namespace}::f.a")


def test_dump_table(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu, CIA=plain, Tracer=fallthrough_kernel)
    lines = normal(debug.dump_table(op), fresh).splitlines()
    assert lines[:3] == [
        "Undefined: plain at test_debug.py [math kernel]",
        "CPU: on_cpu at test_debug.py [kernel]",
        "A: plain at test_debug.py [math kernel]",
    ]
    assert "Tracer: fallthrough fallthrough_kernel at kernels.py [kernel]" in lines
    assert "AutogradCPU: fallthrough fallthrough_kernel at kernels.py [backend fallback]" in lines
    assert "AutogradA: plain at test_debug.py [math kernel]" in lines
    names = [line.partition(":")[0] for line in lines]
    assert names == sorted(names, key=lambda name: DispatchKey(name).slot)


def test_keys_without_entry_are_not_in_the_table(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    names = [line.partition(":")[0] for line in debug.dump_table(op).splitlines()]
    assert "CPU" in names
    assert not {"Undefined", "A", "Meta", "SparseCPU"} & set(names)


def test_live_computed_and_difference(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    assert debug.dump_table(op, "live") == debug.dump_table(op, "difference") == ""
    op(X)
    assert debug.dump_table(op, "live") == debug.dump_table(op, "computed") == debug.dump_table(str(op.name))
    stale = op.live_table
    fresh.impl("f", plain, "Meta")
    assert debug.dump_table(op, "live") == ""
    op.install_table(stale)
    assert normal(debug.dump_table(op, "difference"), fresh) == "+ Meta: plain at test_debug.py [kernel]\n"
    with pytest.raises(ValueError, match="computed"):
        debug.dump_table(op, "dead")


def test_tables_of_what_has_none(fresh):
    fresh.impl("f", plain, "CPU")
    for which in ("computed", "live", "difference"):
        assert debug.dump_table(f"{fresh.namespace}::f", which) == ""
        assert debug.dump_table(f"{fresh.namespace}::nothing", which) == ""


def test_dumping_computes_nothing_that_lasts(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    debug.dump_state(op), debug.dump_table(op)
    assert op.live_table is None


# --- invariants ---------------------------------------------------------------------------------------------

BROKEN = {}


def broken(name, *invariants):
    """Add a row: a function that breaks an operator, and the invariants of which one must be named."""

    def add(function):
        BROKEN[name] = function, invariants
        return function

    return add


@broken("schema of another name", "I1")
def _(op, other, patch):
    patch.setattr(registrations.definition_of(op), "_schema", other.schema)


@broken("table that dispatches on other arguments", "I1")
def _(op, other, patch):
    op.install_table(compute_table(other))


@broken("table without schema", "I1", "I7")
def _(op, other, patch):
    op.install_table(compute_table(op))
    patch.setattr(op, "registrations", [r for r in op.registrations if isinstance(r, KernelHandle)])


@broken("kernel under Undefined", "I2")
def _(op, other, patch):
    patch.setattr(op, "registrations", [*op.registrations, handle(op, DispatchKey.Undefined, plain)])


@broken("no registrations", "I3", "I7")
def _(op, other, patch):
    patch.setattr(op, "registrations", [])


@broken("table that a registration has overtaken", "I4")
def _(op, other, patch):
    table = compute_table(op)
    patch.setattr(op, "registrations", [*op.registrations, handle(op, DispatchKey.CPU, newer)])
    op.install_table(table)


@broken("masks of another table", "I5")
def _(op, other, patch):
    table = compute_table(op)
    op.install_table(_core.Table(_core.Signature(op.schema), table.rows, True))


@broken("registration that is inactive", "I6")
def _(op, other, patch):
    patch.setattr(op.registrations[0], "active", False)


@broken("registration of another operator", "I6")
def _(op, other, patch):
    patch.setattr(op, "registrations", [*op.registrations, *other.registrations[1:]])


@broken("fallback that is inactive", "I6")
def _(op, other, patch):
    registrations.mark_all_stale()      # tables that earlier calls have left lack the fallback, which is I11
    patch.setattr(
        registrations, "fallbacks", [registrations.FallbackHandle(DispatchKey("Tracer"), Kernel(plain), "here")])
    registrations.fallbacks[0].active = False


@broken("name that leads elsewhere", "I7")
def _(op, other, patch):
    patch.setitem(registrations.operators, str(other.name), op)


@broken("operator that is not in its packet", "I7")
def _(op, other, patch):
    packet = find_packet(op.name.qualified)
    patch.setitem(registrations.packets[op.name.namespace], op.name.name, _core.OpOverloadPacket(packet.name))


@broken("Undefined slot", "I8")
def _(op, other, patch):
    op.install_table(_core.Table(_core.Signature(op.schema), (None, *compute_table(op).rows[1:]), False))


@broken("two definitions", "I10")
def _(op, other, patch):
    second = DefinitionHandle(op.schema, "here", "FROM_SCHEMA", (), {})
    second.operator, second.active = op, True
    patch.setattr(op, "registrations", [*op.registrations, second])


@broken("fallback that is in no table", "I4", "I11")
def _(op, other, patch):
    build_table(op)
    fallback = registrations.FallbackHandle(DispatchKey("Tracer"), Kernel(plain), "here")
    fallback.active = True
    registrations.fallbacks.append(fallback)
    patch.callback(registrations.fallbacks.remove, fallback)


@broken("kernel that does not fit", "I12")
def _(op, other, patch):
    patch.setattr(op, "registrations", [*op.registrations, handle(op, DispatchKey.CPU, lambda: None)])


def handle(op, key, function):
    """Return a registration that nobody checked."""
    unchecked = KernelHandle(key, Kernel(function), "here")
    unchecked.operator, unchecked.active = op, True
    return unchecked


@pytest.mark.parametrize(("break_it", "invariants"), BROKEN.values(), ids=BROKEN)
def test_broken_states_are_named(fresh, define, tracer, monkeypatch, break_it, invariants):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu, CIA=plain)
    other = define(fresh, "g(Tensor x, Tensor y) -> Tensor", CPU=lambda x, y: x)
    debug.check_invariants()
    debug.check_invariants(op)
    with contextlib.ExitStack() as stack, monkeypatch.context() as patch:
        patch.callback = stack.callback
        break_it(op, other, patch)
        with pytest.raises(AssertionError, match="|".join(rf"violates {name}: " for name in invariants)):
            debug.check_invariants()
    op.install_table(None)
    other.install_table(None)
    debug.check_invariants()


def test_invariants_of_one_operator(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    debug.check_invariants(str(op.name))
    with pytest.raises(ValueError, match="no operator"):
        debug.check_invariants(f"{fresh.namespace}::nothing")


# --- explain ------------------------------------------------------------------------------------------------

EXPLAINED = """\
ns::f(Tensor x, Tensor? y=None, *, int k=1) -> Tensor
├─ keys
│  ├─ argument x (ndarray float64[3]): CPU
│  ├─ argument y (Tensor float64[2, 2]): CPU, AutogradCPU
│  ├─ the initial state: BackendSelect
│  ├─ the guard include_keys(Tracer): Tracer
│  ├─ excluded by exclude_keys(Python): Python
│  ├─ passed over: BackendSelect, an argument names the backend
│  ├─ passed over: Tracer, its kernel falls through (backend fallback)
│  └─ passed over: AutogradCPU, its kernel falls through (backend fallback)
├─ dispatched on CPU, the highest of {CPU}
├─ kernel test_explain_reads_as_a_tree.<locals>.kernel at test_debug.py
├─ chosen because it is registered under CPU itself [kernel]
├─ the tape: not recorded, since no argument is differentiated
└─ gets raw arrays: (ndarray float64[3], ndarray float64[2, 2], k=5)"""


def test_explain_reads_as_a_tree(fresh, define, tracer):
    def kernel(x, y=None, *, k=1):
        raise AssertionError("explain must not call anything")

    op = define(fresh, "f(Tensor x, Tensor? y=None, *, int k=1) -> Tensor", CPU=kernel)
    with include_keys("Tracer"), exclude_keys("Python"):
        explanation = op.explain(X, Tensor(np.ones((2, 2))), k=5)
        packet = getattr(ops, fresh.namespace).f.explain(X, Tensor(np.ones((2, 2))), k=5)
    assert normal(str(explanation), fresh) == EXPLAINED.replace("excluded by exclude", "excluded by the guard exclude")
    assert str(packet) == str(explanation) == repr(explanation)


WHY = [
    ({"CPU": "kernel"}, "registered under CPU itself"),
    ({"CEA": "kernel"}, "CompositeExplicitAutograd"),
    ({"CEANF": "kernel"}, "all backends"),
    ({"CIA": "kernel"}, "CompositeImplicitAutograd"),
    ({"CPU": "kernel", "Autograd": "kernel"}, "alias Autograd"),
    ({}, "no kernel: the call raises NoKernelError"),
]


@pytest.mark.parametrize(("kernels", "reason"), WHY, ids=[row[1] for row in WHY])
def test_explain_says_why(fresh, define, kernels, reason):
    op = define(fresh, "f(Tensor x) -> Tensor", **dict.fromkeys(kernels, plain))
    assert reason in str(op.explain(Tensor(X)))


TRACKED = Tensor(X, requires_grad=True)


def explained_inside(transform, call):
    """Return the explanation of `call(value)` for a value of a running transform."""
    shown = []

    def function(value):
        shown.append(call(value).interpreters)
        return ops.np.sum(value)

    transform(function)
    return re.sub(r"called at [^;:]*:\d+", "called at SITE", shown[0])


LEVELS = [
    (lambda: ops.np.multiply.explain(TRACKED, 2.0).interpreters,
     "the tape: recorded by the library's formulas, for x1"),
    (lambda: ops.np.multiply.explain(X, Tensor(X)).interpreters,
     "the tape: not recorded, since no argument is differentiated"),
    (lambda: no_grad(ops.np.sin.explain)(TRACKED).interpreters, "the tape: not recorded, since recording is off"),
    (lambda: ops.np.isnan.explain(TRACKED).interpreters, "the tape: not recorded, since the results are constants"),
    (lambda: ops.np.sin.out.explain(TRACKED, out=X.copy()).interpreters,
     "the tape: the call raises, since the operator writes to an argument and has no formula"),
    (lambda: explained_inside(lambda f: grad(f)(X), lambda x: ops.np.multiply.explain(x, TRACKED)),
     ("grad, called at SITE: recorded by the library's formulas, for x1; "
     "the tape: recorded by the library's formulas, for x2")),
    (lambda: explained_inside(lambda f: grad(f)(X), lambda x: ops.np.sin.explain(TRACKED)),
     ("grad, called at SITE: passed down, since no argument is one of its values; "
     "the tape: recorded by the library's formulas, for x")),
    (lambda: explained_inside(lambda f: jvp(f, (X,), (X,)), lambda x: ops.np.sin.explain(x)),
     ("jvp, called at SITE: with tangents by the library's formulas, for x; "
     "the tape: not recorded, since no argument is differentiated")),
]


@pytest.mark.parametrize(("explain", "expected"), LEVELS, ids=[row[1] for row in LEVELS])
def test_explain_says_what_transforms_and_the_tape_do(explain, expected):
    assert explain() == expected


@pytest.mark.parametrize(("kernels", "expected"), [
    ({"CPU": "kernel"}, "the tape: the call raises, since the operator has no formula"),
    ({"CIA": "kernel"}, "the tape sees what the kernel calls, not the call itself"),
])
def test_explain_without_a_formula(fresh, define, kernels, expected):
    op = define(fresh, "f(Tensor x) -> Tensor", **dict.fromkeys(kernels, plain))
    assert op.explain(TRACKED).interpreters == expected


def test_explain_names_the_registered_formula(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=plain)
    with register_autograd(op, lambda ctx, grad: grad) as handle:
        expected = f"the tape: recorded by the derivative registered at {handle.site}, for x"
        assert op.explain(TRACKED).interpreters == expected


def test_explain_of_a_custom_operator_without_a_formula(fresh):
    op = custom_op(f"{fresh.namespace}::f", plain, mutates_args=(), schema="(Tensor x) -> Tensor")
    try:
        assert op.operator.explain(TRACKED).interpreters == (
            "the tape: recorded, but the operator has no formula, and its gradients will raise")
    finally:
        op.remove()


class Whole(Passing):
    decompose_composites = False


class Wrapped(WrapperTensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return cls(func(*[arg.inner if isinstance(arg, cls) else arg for arg in args], **kwargs))


class Derived(Wrapped):
    pass


class Declining(WrapperTensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def decline(*args):
    return NotImplemented


UNTRACKED = "the tape: not recorded, since no argument is differentiated"
HANDLES = "its __pydispatch__ handles the call and can pass it on"
PROCESSES = "functionalize, called at SITE: its process handles the call and can pass it on"
PYTHON_LEVELS = {
    "a mode": (lambda: Passing()(ops.np.sin.explain)(X), f"the mode Passing: {HANDLES}; {UNTRACKED}"),
    "a mode over the tape": (
        lambda: Passing()(ops.np.sin.explain)(TRACKED),
        f"the mode Passing: {HANDLES}; the tape: recorded by the library's formulas, for x"),
    "two modes": (
        lambda: Passing()(Whole()(ops.np.zeros.explain))(3),
        f"the mode Whole: {HANDLES}; the mode Passing: {HANDLES}; {UNTRACKED}"),
    "a mode that is off": (lambda: Passing()(no_dispatch()(ops.np.sin.explain))(X), UNTRACKED),
    "a mode in grad": (
        lambda: within(lambda f: grad(f)(X), lambda x: Passing()(ops.np.sin.explain)(x)),
        f"the mode Passing: {HANDLES}; grad, called at SITE: recorded by the library's formulas, for x; {UNTRACKED}"),
    "functionalize": (
        lambda: within(lambda f: functionalize(f)(X), lambda x: ops.np.sin.explain(x)), f"{PROCESSES}; {UNTRACKED}"),
    "functionalize, a write to another array": (
        lambda: within(lambda f: functionalize(f)(X), lambda x: ops.np.add_.explain(X.copy(), 1.0)),
        f"{PROCESSES}; {UNTRACKED}"),
    "functionalize, a factory": (
        lambda: within(lambda f: functionalize(f)(X), lambda x: ops.np.zeros.explain(3)), f"{PROCESSES}; {UNTRACKED}"),
    "functionalize, none of its values": (
        lambda: within(lambda f: functionalize(f)(X), lambda x: ops.np.sin.explain(X)),
        f"functionalize, called at SITE: passed down, since no argument is one of its values; {UNTRACKED}"),
    "functionalize in a mode": (
        lambda: within(Passing()(lambda f: functionalize(f)(X)), lambda x: ops.np.sin.explain(x)),
        f"{PROCESSES}; the mode Passing: {HANDLES}; {UNTRACKED}"),
}


def within(transform, call):
    """Return the explanation `call(value)`, where the value is one of a running transform."""
    found = []

    def function(value):
        found.append(call(value))
        return ops.np.sum(value)

    transform(function)
    return found[0]


@pytest.mark.parametrize("row", PYTHON_LEVELS)
def test_explain_says_what_modes_and_transforms_in_python_do(row):
    explain, expected = PYTHON_LEVELS[row]
    assert re.sub(r"called at [^;:]*:\d+", "called at SITE", explain().interpreters) == expected


@pytest.mark.parametrize("value", [X, TRACKED, Wrapped(X)], ids=["raw", "tracked", "with a handler"])
def test_explain_of_a_composite_under_a_mode(fresh, define, value):
    op = define(fresh, "f(Tensor x) -> Tensor", CIA=lambda x: ops.np.sin(x))
    with Passing():
        assert op.explain(value).interpreters == "the mode Passing sees what the kernel calls, not the call itself"
    with Whole():
        assert op.explain(value).interpreters.startswith(f"the mode Whole: {HANDLES}; the tape")
    interpreters = within(lambda f: functionalize(f)(X), lambda x: op.explain(x)).interpreters
    assert interpreters.endswith(" sees what the kernel calls, not the call itself")
    with register_pydispatch(op, Passing, decline) as rule, Passing():
        assert op.explain(value).interpreters == (
            f"the mode Passing: the rule for Passing registered at {rule.site} handles the call. "
            "If it declines, the mode sees what the kernel calls"
        )


HANDLERS = {
    "one": ((Wrapped(X), 1.0), ["Wrapped"]),
    "left to right, each once": ((Wrapped(X), Declining(X)), ["Wrapped", "Declining"]),
    "equal classes": ((Wrapped(X), Wrapped(X)), ["Wrapped"]),
    "subclasses first": ((Wrapped(X), Derived(X)), ["Derived", "Wrapped"]),
    "beside a plain Tensor": ((Tensor(X), Derived(X)), ["Derived"]),
}


@pytest.mark.parametrize("row", HANDLERS)
def test_explain_names_the_handlers_in_the_order_in_which_they_are_asked(row):
    arguments, classes = HANDLERS[row]
    explanation = ops.np.add.explain(*arguments)
    assert explanation.key is DispatchKey.Python
    assert explanation.handlers == tuple(f"{name}.__pydispatch__" for name in classes)
    assert f"├─ calls {', then '.join(explanation.handlers)}\n" in str(explanation)


def test_explain_without_handlers():
    assert ops.np.sin.explain(X).handlers == ()
    with include_keys("Python"):        # which only arguments bring
        assert ops.np.sin.explain(X).handlers == ()
        assert ops.np.sin.explain(X).key is DispatchKey.CPU


def test_explain_sees_handlers_below_a_transform():
    explanation = within(lambda f: grad(f)(Wrapped(X)), lambda x: ops.np.sin.explain(x))
    assert explanation.key is DispatchKey.Python
    assert explanation.handlers == ("Wrapped.__pydispatch__",)
    assert str(explanation).endswith("└─ gets the arguments as passed: (Wrapped float64[3])")


def test_explain_names_rules_for_classes():
    with (register_pydispatch("np::sin", Wrapped, decline) as of_class,
          register_pydispatch("np::sin", Passing, decline) as of_mode):
        with Passing():
            explanation = ops.np.sin.explain(Wrapped(X))
        text = debug.dump_state("np::sin")
    assert explanation.handlers == (f"the rule for Wrapped registered at {of_class.site}", "Wrapped.__pydispatch__")
    assert explanation.interpreters == (
        f"the mode Passing: the rule for Passing registered at {of_mode.site}, then {HANDLES.replace('__ ', '__, ')}; "
        f"{UNTRACKED}"
    )
    assert text.splitlines()[-2:] == [
        f"rule for Passing: registered at {of_mode.site}",
        f"rule for Wrapped: registered at {of_class.site}",
    ]
    assert "rule" not in debug.dump_state("np::sin")


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")
def test_dump_state_marks_shadowed_rules():
    def register():
        return register_pydispatch("np::sin", Wrapped, decline)

    with register() as old, register() as new:
        lines = debug.dump_state("np::sin").splitlines()[-2:]
    assert lines == [
        f"rule for Wrapped: registered at {new.site}", f"rule for Wrapped (inactive): registered at {old.site}"]


def test_explain_inside_of_a_handler_says_what_is_off_there():
    found = []

    class Explaining(WrapperTensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            found.append(func.explain(TRACKED))
            return func(*[arg.inner for arg in args], **kwargs)

    ops.np.sin(Explaining(X))
    (guard, keys), = found[0].excluded
    assert guard == "the handler that is running"
    assert DispatchKey.AutogradCPU in keys
    assert DispatchKey.Python not in keys
    assert (DispatchKey.AutogradCPU, "excluded") in found[0].passed_over


def test_explain_of_a_packet_and_of_refused_arguments(fresh, define):
    op = define(fresh, "f.a(Tensor x, int y) -> Tensor", CPU=lambda x, y: x)
    define(fresh, "f.b(Tensor x, str y) -> Tensor", CPU=lambda x, y: x)
    packet = getattr(ops, fresh.namespace).f
    assert packet.explain(X, "a").operator is packet.b
    assert packet.explain(X, 1).operator is op
    for explain in (packet.explain, op.explain):
        with pytest.raises(exceptions.DispatchTypeError):
            explain(X, [])
    fresh.close()
    with pytest.raises(exceptions.StaleOperatorError):
        op.explain(X, 1)


KEYS = ["CPU", "A", "B", "C", "Meta", "SparseCPU", "BackendSelect", "Python", "Tracer", "AutogradOther", "AutogradCPU",
        "AutogradA", "Autograd", "CIA", "CEA", "CEANF"]
GUARDS = {
    "include Tracer": lambda: include_keys("Tracer"),
    "include Python": lambda: include_keys("Python"),
    "include A": lambda: include_keys("A"),
    "include Meta": lambda: include_keys("Meta"),
    "include AutogradB": lambda: include_keys("AutogradB"),
    "exclude CPU": lambda: exclude_keys("CPU"),
    "exclude AutogradCPU": lambda: exclude_keys("AutogradCPU"),
    "exclude BackendSelect": lambda: exclude_keys("BackendSelect"),
    "exclude Tracer": lambda: exclude_keys("Tracer", "AutogradA"),
    "exclude CIA": lambda: exclude_keys("CEA"),
    "below": below_autograd,
    "backend A": lambda: default_backend("A"),
    "force": force_keys,
    "force Tracer": lambda: force_keys(("Tracer",), ("Autograd",)),
    "force B": lambda: force_keys(("B", "BackendSelect")),
}
VALUES = {
    "scalar": lambda b: 1.0,
    "raw": lambda b: X,
    "np.float64": lambda b: np.float64(1),
    "A": lambda b: b.ArrayA(X),
    "B": lambda b: b.ArrayB(X),
    "C": lambda b: b.ArrayC(X),
    "Meta": lambda b: MetaArray(3),
    "Sparse": lambda b: b.SparseArray(X),
}


@st.composite
def situations(draw):
    """Draw registrations (key, whether it falls through), keys with a fallback, guards, and arguments."""
    some = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 4).map(lambda n: n == 0)), max_size=6)
    fallbacks = st.lists(
        st.sampled_from(["Tracer", "Python", "AutogradCPU", "A", "CPU", "BackendSelect"]), unique=True, max_size=2)
    argument = st.tuples(st.sampled_from(sorted(VALUES)), st.booleans())
    return (draw(some), draw(fallbacks), draw(st.lists(st.sampled_from(sorted(GUARDS)), max_size=4)),
            draw(st.lists(argument, min_size=1, max_size=3)), draw(st.sampled_from([None, None, "A", "CPU"])))


@given(situations())
@settings(max_examples=200)
@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")
def test_explain_names_the_kernel_that_runs(new_library, backends, tracer, situation):
    registrations, fallbacks, guards, arguments, device = situation
    with new_library() as library, Library("_", "IMPL") as everything, contextlib.ExitStack() as stack:
        library.define("f(Tensor x, Tensor[] ys, *, Device? device=None) -> str")
        for i, (key, falls_through) in enumerate(registrations):
            library.impl("f", fallthrough_kernel if falls_through else named(f"{key} {i}"), key)
        for key in fallbacks:
            everything.fallback(named(f"fallback {key}"), key)
        for name in guards:
            stack.enter_context(GUARDS[name]())
        values = [Tensor(array(VALUES[kind](backends))) if wrap else VALUES[kind](backends) for kind, wrap in arguments]
        op = getattr(ops, library.namespace).f.default
        call = (values[0], values[1:])
        log = io.StringIO()
        with debug.trace(log):
            answer = outcome(op, *call, device=device)
        if answer is exceptions.DispatchTypeError:
            with pytest.raises(exceptions.DispatchTypeError, match="one call mixes"):
                op.explain(*call, device=device)
            return
        explanation = op.explain(*call, device=device)

        first = log.getvalue().partition("\n")[0]
        if explanation.entry is None:
            assert (first, answer) == ("", exceptions.NoKernelError)
            assert "no kernel" in str(explanation)
        else:
            entry = explanation.entry
            assert first == f"call {op.name} on {explanation.key.name}: {entry.kernel.debug} [{entry.label}]"
            assert entry.kernel.debug in str(explanation)
            if entry.label is Label.AMBIGUOUS:
                assert answer is exceptions.AmbiguousKernelError
            elif getattr(entry.kernel.function, "token", None):
                assert answer == entry.kernel.function.token
        assert explanation.kernel is (explanation.entry and explanation.entry.kernel)

        brought = set(DispatchKeySet(*(keys for _, keys in explanation.brought)))
        passed_over = {key for key, _ in explanation.passed_over}
        excluded = {key for _, keys in explanation.excluded for key in keys}
        assert set(explanation.keyset) == brought - passed_over, "every key is accounted for"
        backend = max((key.backend for key in brought if key.backend), key=backend_names().index, default=None)
        assert not {key for key in set(explanation.keyset) & excluded if key.backend in (None, backend)}
        assert all((key in excluded) == (reason == "excluded") for key, reason in explanation.passed_over)
        assert explanation.key is explanation.keyset.highest


def named(token):
    """Return a kernel, or fallback, that takes anything and says its name."""

    def kernel(*args, **kwargs):
        return token

    kernel.token = token
    return kernel


def array(value):
    return np.float64(value) if isinstance(value, float) else value


def outcome(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except (exceptions.NoKernelError, exceptions.AmbiguousKernelError, exceptions.DispatchTypeError) as error:
        return type(error)


# --- traces -------------------------------------------------------------------------------------------------


def test_a_trace_is_a_line_per_kernel(fresh, define, tracer):
    def hand_on(keys, x):
        return op.redispatch(keys & DispatchKeySet.full_after("AutogradCPU"), x)

    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    fresh.impl("f", hand_on, "AutogradCPU", with_keyset=True)
    whole = define(fresh, "g(Tensor x) -> Tensor", CIA=lambda x: op(op(x)))
    log = io.StringIO()
    with debug.trace(log):
        whole(Tensor(X))
        op.call_boxed([X])
        get_kernel(op, "CPU")(X)
    op(X)
    layers = [
        "call ns::f on AutogradCPU: HAND_ON [kernel]",
        "  redispatch ns::f on CPU: on_cpu at test_debug.py [kernel]",
    ]
    name = "test_a_trace_is_a_line_per_kernel.<locals>"
    expected = [
        f"call ns::g on AutogradCPU: {name}.<lambda> at test_debug.py [math kernel]",
        *[f"  {line}" for line in layers * 2],
        "boxed ns::f on CPU: on_cpu at test_debug.py [kernel]",
        "kernel ns::f on CPU: on_cpu at test_debug.py [kernel]",
    ]
    text = normal(log.getvalue(), fresh).replace(f"{name}.hand_on at test_debug.py", "HAND_ON")
    assert text.splitlines() == expected


def test_a_trace_shows_handlers_and_what_they_call(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    log = io.StringIO()
    with debug.trace(log), Passing():
        op(X)
        op(Wrapped(X))
        with pytest.raises(exceptions.NoHandlerError):
            op(Declining(X))
    kernel = "ns::f on CPU: on_cpu at test_debug.py [kernel]"
    asked = "ns::f on Python: _handlers_of_classes at tables.py [backend fallback]"
    assert normal(log.getvalue(), fresh).splitlines() == [
        f"call {kernel}", f"call {asked}", f"  call {kernel}", f"call {asked}"]


def test_a_trace_shows_what_a_transform_in_python_calls():
    log = io.StringIO()
    with debug.trace(log):
        functionalize(lambda x: ops.np.add_(x, 1.0))(X.copy())
    calls = [line.rpartition(" on CPU:")[0] for line in log.getvalue().splitlines()]
    assert calls == ["call np::add", "call np::setitem_"]


def test_a_trace_goes_to_standard_error(fresh, define, capsys):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    with debug.trace():
        op(X)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert normal(captured.err, fresh) == "call ns::f on CPU: on_cpu at test_debug.py [kernel]\n"


def test_indentation_survives_exceptions(fresh, define):
    def fails(x):
        op(np.float32(1)) if isinstance(x, np.ndarray) else 1 / 0

    op = define(fresh, "f(Tensor x) -> ()", CPU=fails)
    log = io.StringIO()
    with debug.trace(log):
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                op(X)
    assert [len(line) - len(line.lstrip()) for line in log.getvalue().splitlines()] == [0, 2, 0, 2]


def test_a_trace_is_of_its_own_thread(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    log = io.StringIO()
    with debug.trace(log):
        thread = threading.Thread(target=op, args=(X,))
        thread.start()
        thread.join()
    assert log.getvalue() == ""


def test_the_inner_trace_wins(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=on_cpu)
    outer, inner = io.StringIO(), io.StringIO()
    with debug.trace(outer):
        with debug.trace(inner):
            op(X)
        op(X)
    assert outer.getvalue() == inner.getvalue() != ""


@pytest.mark.parametrize(("value", "lines"), [("1", 2), ("0", 0), ("", 0), (None, 0)], ids=repr)
def test_the_environment_variable(value, lines):
    program = (
        "import threading, numpy, pydispatch; x = numpy.ones(2)\n"
        "thread = threading.Thread(target=pydispatch.ops.np.add, args=(x, x)); thread.start(); thread.join()\n"
        "pydispatch.ops.np.sum(x)"
    )
    environment = {name: text for name, text in os.environ.items() if name != "PYDISPATCH_TRACE"}
    if value is not None:
        environment["PYDISPATCH_TRACE"] = value
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == lines
    if lines:
        assert [
            line.partition(":")[0] + "::" + line.split("::")[1].partition(":")[0]
            for line in finished.stderr.splitlines()
        ] == ["call np::add on CPU", "call np::sum on CPU"]


@pytest.mark.parametrize("absence", ["sys.stderr = None", "sys.stderr.close()"])
@pytest.mark.parametrize("traced", ["environment", "block"])
def test_tracing_without_a_standard_error(absence, traced):
    block = "debug.trace()" if traced == "block" else "contextlib.nullcontext()"
    program = (
        f"import contextlib, sys, numpy; from pydispatch import debug, ops\n{absence}\n"
        f"with {block}: print(ops.np.sum(numpy.ones(2)))"
    )
    environment = {**os.environ, "PYDISPATCH_TRACE": "1" if traced == "environment" else "0"}
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "2.0\n", "")
