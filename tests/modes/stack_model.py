"""A model of the stack in plain Python: who handles a call, in which order, under which stack.

A stack is a tuple of modes and interpreters, outermost first. An interpreter stands for a running `vjp`: it takes calls
that own one of its values, or make an array, and does them below. A value of another interpreter that comes of a call
which it passes on becomes a value of it. A mode takes every call. Whoever declines is passed
over. Classes of arguments come last, under the stack of the call. Every handler that runs is noted, with the modes that
are on in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

KERNELS = {"np::add": np.add, "np::maximum": np.maximum, "np::multiply": np.multiply, "np::negative": np.negative,
           "np::subtract": np.subtract, "np::ones": np.ones}
MAKES = {"np::ones"}
COMPOSITE = "composite"
"""x + x + y, made of two calls of np::add; tests give it a name of its own."""


@dataclass(frozen=True, eq=False)
class Mode:
    """An entry whose handler passes, declines, is polite, is busy (calls one operator more), or raises."""

    name: str
    behaviour: str
    whole: bool

    @property
    def kind(self):
        return "whole" if self.whole else "decomposed"


@dataclass(frozen=True, eq=False)
class Interpreter:
    number: int


@dataclass(frozen=True)
class Class:
    """A subclass that has an array. It passes, declines, or raises."""

    name: str
    behaviour: str
    base: Class | None = None

    def is_subclass(self, other):
        return self == other or (self.base is not None and self.base.is_subclass(other))


@dataclass(frozen=True)
class Instance:
    cls: Class
    inner: object


@dataclass(frozen=True)
class Owned:
    """A value of an interpreter."""

    interpreter: Interpreter
    below: object


class Raised(Exception):  # noqa: N818
    """A handler raised. The argument is its name."""


class AllDeclined(Exception):  # noqa: N818
    """Nobody took the call. The arguments are the names of all who were asked, in order."""


class Misplaced(Exception):  # noqa: N818
    """A value of an interpreter is used where the interpreter is not on the stack."""


class NoData(Exception):  # noqa: N818
    """A kernel got an array of a subclass, since handlers are off."""


class Model:
    """Calls operators, and notes each handler: (name, operator, names of the modes that are on).

    `rules` are behaviours by (class of a mode, or a Class, operator), with `quiet`, handlers of subclasses are off.
    """

    def __init__(self, rules=(), quiet=False):
        self.notes = []
        self.rules = dict(rules)
        self.quiet = quiet

    def call(self, op, args, stack):
        if any(isinstance(value, Owned) and value.interpreter not in stack for value in args):
            raise Misplaced
        declined, passed = [], []
        for position in reversed(range(len(stack))):
            entry = stack[position]
            below, here = stack[:position], stack[: position + 1]
            if isinstance(entry, Interpreter):
                if op in MAKES or any(isinstance(value, Owned) and value.interpreter is entry for value in args):
                    result = self.composite(args, here) if op == COMPOSITE else self.run_under(entry, op, args, below)
                    return taken(result, passed)
                passed.append(entry)
            else:
                result = self.by_rule(entry.kind, entry.name, op, args, below)
                if result is NotImplemented and op == COMPOSITE and not entry.whole:
                    return taken(self.composite(args, here), passed)
                if result is NotImplemented:
                    result = self.handle(entry, op, args, below)
                if result is not NotImplemented:
                    return taken(result, passed)
                declined.append(entry.name)
        return taken(self.bottom(op, args, stack, declined), passed)

    def composite(self, args, stack):
        x, y = args
        return self.call("np::add", (self.call("np::add", (x, x), stack), y), stack)

    def run_under(self, interpreter, op, args, below):
        lowered = tuple(value.below if isinstance(value, Owned) and value.interpreter is interpreter else value
                        for value in args)
        return Owned(interpreter, self.call(op, lowered, below))

    def handle(self, mode, op, args, below):
        self.note(mode.name, op, below)
        if mode.behaviour == "raise":
            raise Raised(mode.name)
        if mode.behaviour == "decline" or (mode.behaviour == "polite" and classes_of(args)):
            return NotImplemented
        result = self.call(op, args, below)
        return self.call("np::maximum", (result, result), below) if mode.behaviour == "busy" else result

    def by_rule(self, owner, name, op, args, stack):
        """Return the answer of the rule for an owner and an operator, if there is one."""
        behaviour = self.rules.get((owner, op))
        if behaviour is None:
            return NotImplemented
        self.note(f"rule of {name}", op, stack)
        return self.call("np::subtract", args, stack) if behaviour == "pass" else NotImplemented

    def bottom(self, op, args, stack, declined):
        if op == COMPOSITE:
            return self.composite(args, ())
        classes = classes_of(args)
        if classes and self.quiet:
            raise NoData
        for cls in classes:
            inner = tuple(value.inner if isinstance(value, Instance) else value for value in args)
            result = self.by_rule(cls, cls.name, op, inner, stack)
            if result is not NotImplemented:
                return Instance(cls, result)
            self.note(cls.name, op, stack)
            if cls.behaviour == "raise":
                raise Raised(cls.name)
            if cls.behaviour == "pass":
                return Instance(cls, self.call(op, inner, stack))
        if classes:
            raise AllDeclined(*declined, *(cls.name for cls in classes))
        return KERNELS[op](*args)

    def note(self, name, op, stack):
        self.notes.append((name, op, tuple(entry.name for entry in stack if isinstance(entry, Mode))))


def taken(result, passed):
    """Return a result as the interpreters make it theirs that the call has passed, the innermost one first."""
    for interpreter in reversed(passed):
        if isinstance(result, Owned):
            result = Owned(interpreter, result)
    return result


def classes_of(args):
    """Return each class once, derived ones before their bases, else in the order of the arguments."""
    found = []
    for value in args:
        if isinstance(value, Instance) and value.cls not in found:
            bases = [i for i, other in enumerate(found) if value.cls.is_subclass(other)]
            found.insert(bases[0] if bases else len(found), value.cls)
    return found
