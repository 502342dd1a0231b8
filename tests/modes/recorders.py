"""Modes, and subclasses, that tests share: each passes calls on, and tells what it was given."""

from typing import NamedTuple

from pydispatch import DispatchMode, OpOverload, Tensor
from pydispatch._core import is_array
from pydispatch.subclasses import Shell
from pydispatch.tree import tree_map


class Call(NamedTuple):
    """The arguments of a call of a handler."""

    func: OpOverload
    types: tuple[type, ...]
    args: tuple
    kwargs: dict


class Passing(DispatchMode):
    def __pydispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


class Recorder(DispatchMode):
    """Passes every call on. Keeps each in `calls`, and writes "name operator" into a log that may be shared."""

    def __init__(self, name="mode", log=None):
        self.name = name
        self.calls = []
        self.log = [] if log is None else log

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.note(func, types, args, kwargs)
        return func(*args, **kwargs)

    def note(self, func, types, args, kwargs):
        self.calls.append(Call(func, types, args, kwargs))
        self.log.append(f"{self.name} {func.name}")

    @property
    def operators(self):
        """The names of the operators that were seen, in order."""
        return [str(call.func.name) for call in self.calls]

    def __repr__(self):
        return f"<{self.name}>"


class Whole(Recorder):
    """A recorder that wants composite operators in one piece."""

    decompose_composites = False


class Declining(Recorder):
    """Declines every call, after it has been noted."""

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.note(func, types, args, kwargs)
        return NotImplemented


class Polite(Recorder):
    """Declines calls with an array of a class of its own. `accepted` counts the others."""

    accepted = 0

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.note(func, types, args, kwargs)
        if types:
            return NotImplemented
        result = func(*args, **kwargs)
        self.accepted += 1
        return result


def wrapper_class(name="W", log=None, base=Tensor):
    """Return a subclass that has an array, `inner`, and passes calls on to it. It writes "name operator" into the log.
    """
    log = [] if log is None else log

    def __init__(self, inner, *, requires_grad=False):  # noqa: N807
        Tensor.__init__(self, Shell(inner), requires_grad=requires_grad)
        self.inner = inner

    def __pydispatch__(cls, func, types, args=(), kwargs=None):  # noqa: N807
        log.append(f"{cls.__name__} {func.name}")
        result = func(*tree_map(unwrap, args), **tree_map(unwrap, kwargs))
        return tree_map(lambda value: cls(value) if is_array(value) else value, result)

    return type(name, (base,), {"__init__": __init__, "__pydispatch__": classmethod(__pydispatch__)})


def unwrap(value):
    """Return the array that an instance of a wrapper class has, and anything else unchanged."""
    return getattr(value, "inner", value)
