"""Random stacks of modes, interpreters and subclasses: which handlers run, in which order, against a model."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pydispatch import DispatchMode, Tensor, _core, func, ops
from pydispatch._registry.operators import find_or_raise
from pydispatch.exceptions import AutogradError, NoDataError, NoHandlerError
from pydispatch.library import register_pydispatch
from pydispatch.modes import mode_stack, no_dispatch
from pydispatch.subclasses import Shell
from tests.modes import stack_model as model

X = np.array([1.0, 2.0])
CLASSES = {
    "A": model.Class("ClassA", "pass"),
    "ShyA": model.Class("ClassShyA", "decline", model.Class("ClassA", "pass")),
    "DeepA": model.Class("ClassDeepA", "pass", model.Class("ClassA", "pass")),
    "B": model.Class("ClassB", "pass"),
    "ShyB": model.Class("ClassShyB", "decline"),
    "BadB": model.Class("ClassBadB", "raise", model.Class("ClassB", "pass")),
}
DEPTH_OF_BUSY = 5
"""Each busy mode doubles the number of calls, so they are found only in the outer part of a stack."""
OPERATORS = {"np::add": 2, "np::multiply": 2, "np::negative": 1, "np::ones": 0, model.COMPOSITE: 2}
"""Operators and how many arrays they take."""
RULED = ["np::add", "np::multiply", model.COMPOSITE]
"""Operators that rules are made for; a rule that passes calls another one, np::subtract."""


# --- what the model describes, for real -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def composite(new_library):
    with new_library() as library:
        library.define("composite(Tensor x, Tensor y) -> Tensor")
        library.impl("composite", lambda x, y: ops.np.add(ops.np.add(x, x), y), "CompositeImplicitAutograd")
        yield find_or_raise(f"{library.namespace}::composite")


class RealMode(DispatchMode):
    """Behaves as a mode of the model says."""

    def __init__(self, description, run):
        self.description, self.run = description, run

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        mode = self.description
        self.run.note(mode.name, func)
        if mode.behaviour == "raise":
            raise model.Raised(mode.name)
        if mode.behaviour == "decline" or (mode.behaviour == "polite" and types):
            return NotImplemented
        result = func(*args, **kwargs)
        return ops.np.maximum(result, result) if mode.behaviour == "busy" else result

    def __repr__(self):
        return f"<{self.description.name}>"


def real_classes(run):
    """Return a Python class for each class of the model."""
    made = {}

    def real(description):
        if description.name not in made:
            base = Tensor if description.base is None else real(description.base)
            body = {"__init__": make, "__pydispatch__": classmethod(handler(description)), "description": description}
            made[description.name] = type(description.name, (base,), body)
        return made[description.name]

    def make(self, inner):
        Tensor.__init__(self, Shell(inner))
        self.inner = inner

    def handler(description):
        def __pydispatch__(cls, func, types, args=(), kwargs=None):  # noqa: N807
            run.note(description.name, func)
            if description.behaviour == "raise":
                raise model.Raised(description.name)
            if description.behaviour == "decline":
                return NotImplemented
            inner = [value.inner if hasattr(value, "inner") else value for value in args]
            return cls(func(*inner, **kwargs))

        return __pydispatch__

    return {name: real(description) for name, description in CLASSES.items()}


@dataclass
class Run:
    """One program, run for real and by the model side by side. `values` are pairs (real, of the model)."""

    composite: object
    calls: list
    notes: list = field(default_factory=list)
    values: list = field(default_factory=lambda: [(X, X)])
    interpreters: dict = field(default_factory=dict)
    modes: list = field(default_factory=list)
    stack: tuple = ()

    rules: dict = field(default_factory=dict)
    quiet: bool = False

    def __post_init__(self):
        """Make new classes for each run, since rules and warnings go by class."""
        self.classes = real_classes(self)
        self.mode_classes = {
            kind: type(f"RealMode{kind}", (RealMode,), {"decompose_composites": kind == "decomposed"})
            for kind in ("decomposed", "whole")
        }

    def note(self, name, func):
        op = model.COMPOSITE if func is self.composite else str(func.name)
        self.notes.append((name, op, tuple(mode.description.name for mode in mode_stack())))

    def enter(self, entries):
        """Do the entries one by one, each around the rest. At the end, the calls."""
        if not entries:
            for call in self.calls:
                self.compare(*call)
            return
        (kind, *details), *rest = entries
        getattr(self, kind)(rest, *details)

    def mode(self, rest, behaviour, whole):
        description = model.Mode(f"mode{len(self.modes)}", behaviour, whole)
        self.modes.append(self.mode_classes[description.kind](description, self))
        self.push(rest, self.modes[-1])

    def again(self, rest, number):
        if self.modes:
            self.push(rest, self.modes[number % len(self.modes)])
        else:
            self.enter(rest)

    def push(self, rest, mode):
        outside = self.stack
        if mode.description.behaviour == "busy" and len(outside) >= DEPTH_OF_BUSY:
            return self.enter(rest)
        self.stack += (mode.description,)
        with mode:
            self.enter(rest)
        self.stack = outside
        return None

    def interpreter(self, rest, number):
        real, expected = self.values[number % len(self.values)]
        outside, count = self.stack, len(self.values)
        interpreter = model.Interpreter(len(self.interpreters))

        def function(x):
            self.interpreters[x.interpreter] = interpreter
            self.stack += (interpreter,)
            self.values.append((x, model.Owned(interpreter, expected)))
            self.enter(rest)
            return x

        func.vjp(function, real)
        del self.values[count:]
        self.stack = outside

    def wrap(self, rest, name, number):
        real, expected = self.values[number % len(self.values)]
        self.values.append((self.classes[name](real), model.Instance(CLASSES[name], expected)))
        self.enter(rest)

    def rule(self, rest, op, owner, behaviour):
        """Register a rule for a class of modes or a subclass, for what is inside."""
        key = (CLASSES.get(owner, owner), op)
        if key in self.rules:
            return self.enter(rest)

        def rule(mode_or_class, func, types, args, kwargs):
            self.note(f"rule of {mode_or_class.description.name}", func)
            if behaviour == "decline":
                return NotImplemented
            if isinstance(mode_or_class, type):
                return mode_or_class(ops.np.subtract(*(getattr(value, "inner", value) for value in args)))
            return ops.np.subtract(*args)

        self.rules[key] = behaviour
        with register_pydispatch(self.operator(op), self.mode_classes.get(owner) or self.classes[owner], rule):
            self.enter(rest)
        del self.rules[key]
        return None

    def no_dispatch(self, rest):
        outside = self.stack, self.quiet
        self.stack = tuple(entry for entry in self.stack if isinstance(entry, model.Interpreter))
        self.quiet = True
        with no_dispatch():
            self.enter(rest)
        self.stack, self.quiet = outside

    def operator(self, name):
        return self.composite if name == model.COMPOSITE else find_or_raise(name)

    def compare(self, op, numbers):
        chosen = [self.values[number % len(self.values)] for number in numbers[: OPERATORS[op]]]
        if op == model.COMPOSITE and any(is_deep(expected) for _, expected in chosen):
            return
        names = tuple(mode.description.name for mode in mode_stack())
        reference = model.Model(self.rules, self.quiet)
        try:
            args = tuple(expected for _, expected in chosen) or ((2,),)
            expected = "value", reference.call(op, args, self.stack)
        except (model.Raised, model.AllDeclined, model.Misplaced, model.NoData) as error:
            expected = type(error).__name__, error.args
        self.notes.clear()
        real = None
        try:
            args = tuple(real for real, _ in chosen) or ((2,),)
            real = self.operator(op)(*args)
            found = "value", real
        except model.Raised as error:
            found = "Raised", error.args
        except NoHandlerError as error:
            found = "AllDeclined", tuple(re.findall(r"mode\d+|Class\w+", str(error).partition("\n")[2]))
        except AutogradError:
            found = "Misplaced", ()
        except NoDataError:
            found = "NoData", ()
        assert self.notes == reference.notes
        assert found[0] == expected[0]
        if found[0] == "value":
            self.check_value(real, expected[1])
            self.values.append((real, expected[1]))
        else:
            assert found == expected
        assert tuple(mode.description.name for mode in mode_stack()) == names

    def check_value(self, real, expected):
        """Assert that interpreters, classes and numbers are those of the model."""
        if isinstance(expected, model.Owned):
            assert self.interpreters[real.interpreter] is expected.interpreter
            self.check_value(_core.value_below(real, real.interpreter), expected.below)
        elif isinstance(expected, model.Instance):
            assert type(real) is self.classes[expected.cls.name.removeprefix("Class")]
            self.check_value(real.inner, expected.inner)
        else:
            assert type(real) is np.ndarray
            np.testing.assert_array_equal(real, expected)


def is_deep(value):
    """Return whether a value of an interpreter is inside a subclass."""
    if isinstance(value, model.Owned):
        return is_deep(value.below)
    return isinstance(value, model.Instance) and (isinstance(value.inner, model.Owned) or is_deep(value.inner))


# --- random programs --------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 7)
BEHAVIOURS = ["pass", "pass", "pass", "decline", "polite", "busy", "raise"]
ENTRIES = st.one_of(
    st.tuples(st.just("mode"), st.sampled_from(BEHAVIOURS), st.booleans()),
    st.tuples(st.just("again"), NUMBERS),
    st.tuples(st.just("interpreter"), NUMBERS),
    st.tuples(st.just("wrap"), st.sampled_from(list(CLASSES)), NUMBERS),
    st.tuples(st.just("rule"), st.sampled_from(RULED), st.sampled_from(["decomposed", "whole", *CLASSES]),
              st.sampled_from(["pass", "decline"])),
    st.just(("no_dispatch",)),
)
CALLS = st.lists(st.tuples(st.sampled_from(list(OPERATORS)), st.tuples(NUMBERS, NUMBERS)), min_size=1, max_size=4)
POLITE = [("mode", "polite", False), ("mode", "polite", False), ("wrap", "A", 0)]


def run_program(composite, entries, calls):
    Run(composite, calls).enter(list(entries))
    assert mode_stack() == ()


@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(entries=st.lists(ENTRIES, max_size=7), calls=CALLS)
@example(entries=POLITE, calls=[("np::add", (1, 0))])
@example(entries=[("wrap", "A", 0), ("wrap", "DeepA", 0)], calls=[("np::add", (1, 2)), ("np::add", (2, 1))])
@example(entries=[("interpreter", 0), ("mode", "pass", False)], calls=[("np::ones", (0, 0)), ("np::add", (1, 2))])
@example(entries=[("mode", "busy", True)] * 2, calls=[(model.COMPOSITE, (0, 0))])
@example(entries=[("wrap", "ShyA", 0), ("wrap", "A", 0), ("mode", "decline", False)], calls=[("np::add", (1, 1))])
def test_handlers_run_as_the_model_says(composite, entries, calls):
    run_program(composite, entries, calls)


@pytest.mark.slow
@settings(max_examples=1000, suppress_health_check=list(HealthCheck))
@given(entries=st.lists(ENTRIES, max_size=10), calls=CALLS)
def test_handlers_run_as_the_model_says_at_length(composite, entries, calls):
    run_program(composite, entries, calls)


# --- the model itself -------------------------------------------------------------------------------------------


def notes_of(op, args, *stack):
    """Return the model's notes of a call, without namespaces. The call may end with all declining."""
    reference = model.Model()
    with suppress(model.AllDeclined):
        reference.call(op, args, stack)
    return [(name, operator.removeprefix("np::"), " ".join(modes)) for name, operator, modes in reference.notes]


def mode(name, behaviour="pass", whole=False):
    return model.Mode(name, behaviour, whole)


A_VALUE = model.Instance(CLASSES["A"], X)


def test_the_model_itself():
    assert notes_of("np::negative", (A_VALUE,), mode("polite", "polite")) == [
        ("polite", "negative", ""), ("ClassA", "negative", "polite"), ("polite", "negative", "")]


def test_the_model_itself_order_and_absence():
    assert notes_of("np::negative", (X,), mode("outer"), mode("inner", "busy")) == [
        ("inner", "negative", "outer"), ("outer", "negative", ""), ("outer", "maximum", "")]


def test_the_model_itself_classes():
    derived = model.Instance(CLASSES["ShyA"], X)
    assert notes_of("np::add", (A_VALUE, derived)) == [("ClassShyA", "add", ""), ("ClassA", "add", "")]
    assert notes_of("np::add", (derived, X)) == [("ClassShyA", "add", "")]
