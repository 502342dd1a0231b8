"""Copies and pickles of subclasses."""

import copy
import pickle

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import AutogradError
from pydispatch.subclasses import Shell
from pydispatch.testing import LoggingTensor
from tests.subclasses.classes import Around, Is, Two, Wrapped, bottom
from tests.together import together


class Plain(Tensor):
    """No handler, no attributes of its own."""


class Named(Tensor):
    """No handler. What it is made of is not what its constructor takes."""

    def __init__(self, name, size):
        super().__init__(np.arange(float(size)))
        self.name = name
        self.notes = [name]


class Slotted(Tensor):
    __slots__ = ("empty", "unit")

    def __init__(self, array, unit="m"):
        super().__init__(array)
        self.unit = [unit]


class MoreSlots(Slotted):
    __slots__ = ("__private",)

    def __init__(self, array):
        super().__init__(array, "km")
        self.__private = {"kept": 1}

    @property
    def private(self):
        return self.__private


class SlotsAndDict(Slotted):
    def __init__(self, array):
        super().__init__(array, "s")
        self.note = "in the dict"


class IsSlotted(Is):
    __slots__ = ("unit",)

    def __init__(self, array, unit=None):
        super().__init__(array)
        self.unit = unit


class HasSlotted(Tensor):
    __slots__ = ("inner",)

    def __init__(self, inner):
        super().__init__(Shell(inner))
        self.inner = inner

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class AroundSlotted(Around):
    __slots__ = ("unit",)

    def __init__(self, inner, unit="m"):
        super().__init__(inner)
        self.unit = [unit]


def values_of(tensor):
    """Return the arrays that it consists of."""
    if isinstance(tensor, (Wrapped, HasSlotted, Around)):
        return values_of(tensor.inner)
    if isinstance(tensor, Two):
        return [*values_of(tensor.a), *values_of(tensor.b)]
    if isinstance(tensor, LoggingTensor):
        return values_of(tensor.elem)
    return [tensor.array if isinstance(tensor, Tensor) else tensor]


ARRAY = np.arange(6, dtype=np.float32).reshape(2, 3).T
OBJECTS = {
    "no handler": lambda: Plain(ARRAY.copy()),
    "own constructor": lambda: Named("length", 3),
    "slots": lambda: Slotted(ARRAY.copy()),
    "slots of bases": lambda: MoreSlots(ARRAY.copy()),
    "slots and dict": lambda: SlotsAndDict(ARRAY.copy()),
    "is-a": lambda: Is(ARRAY.copy()),
    "is-a with slots": lambda: IsSlotted(ARRAY.copy(), "kg"),
    "has-a": lambda: Wrapped(ARRAY.copy()),
    "has-a with slots": lambda: HasSlotted(ARRAY.copy()),
    "has a Tensor": lambda: Wrapped(Tensor(ARRAY.copy())),
    "has has-a": lambda: Wrapped(Wrapped(ARRAY.copy())),
    "two": lambda: Two(ARRAY.copy(), ARRAY.copy() + 1),
    "WrapperTensor": lambda: Around(ARRAY.copy()),
    "WrapperTensor of a Tensor": lambda: Around(Tensor(ARRAY.copy())),
    "WrapperTensor with slots": lambda: AroundSlotted(ARRAY.copy(), "s"),
    "LoggingTensor": lambda: LoggingTensor(ARRAY.copy()),
}
COPY = {
    "deepcopy": copy.deepcopy,
    **{f"pickle {protocol}": lambda x, protocol=protocol: pickle.loads(pickle.dumps(x, protocol))
       for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)},
}


def state_of(tensor):
    """Return the values of its attributes and slots that are no arrays."""
    names = {*vars(tensor)} if hasattr(tensor, "__dict__") else set()
    for cls in type(tensor).__mro__:
        slots = vars(cls).get("__slots__", ())
        names.update(f"_{cls.__name__}{slot}" if slot.startswith("__") else slot for slot in slots
                     if slot not in ("__dict__", "__weakref__"))
    found = {name: getattr(tensor, name) for name in names if hasattr(tensor, name)}
    return {name: value for name, value in found.items() if not isinstance(value, (Tensor, np.ndarray))}


@pytest.mark.parametrize("copied", COPY.values(), ids=COPY.keys())
@together("make", OBJECTS.values(), ids=OBJECTS.keys())
def test_class_values_and_state_are_kept(make, copied):
    x = make()
    y = copied(x)
    assert y is not x
    assert type(y) is type(x)
    assert (y.shape, y.dtype, y.strides, y.device) == (x.shape, x.dtype, x.strides, x.device)
    assert y.dispatches_to_python is x.dispatches_to_python
    for one, other in zip(values_of(y), values_of(x), strict=True):
        assert one is not other
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
        assert not np.shares_memory(one, other)
    before, after = state_of(x), state_of(y)
    assert after == before
    assert all(after[name] is not value for name, value in before.items() if isinstance(value, (list, dict)))
    assert y.requires_grad is False
    assert y._version == 0


@pytest.mark.parametrize("copied", COPY.values(), ids=COPY.keys())
@together("make", OBJECTS.values(), ids=OBJECTS.keys())
def test_leaves_stay_leaves(make, copied):
    x = make().requires_grad_()
    y = copied(x)
    assert y.requires_grad
    assert y.is_leaf
    assert y.grad is None


class Slotless(Is):
    pass


SELF = {
    "dict": lambda: (Slotless(np.ones(2)), "me"),
    "slots": lambda: (IsSlotted(np.ones(2)), "unit"),
    "no handler": lambda: (Named("a", 2), "name"),
    "has-a": lambda: (Wrapped(np.ones(2)), "me"),
    "WrapperTensor": lambda: (Around(np.ones(2)), "me"),
}


@pytest.mark.parametrize("copied", COPY.values(), ids=COPY.keys())
@together("make", SELF.values(), ids=SELF.keys())
def test_an_object_that_refers_to_itself(make, copied):
    x, name = make()
    setattr(x, name, [x])
    y = copied(x)
    assert y is not x
    assert getattr(y, name)[0] is y
    np.testing.assert_array_equal(bottom(y), bottom(x))


@pytest.mark.parametrize("copied", COPY.values(), ids=COPY.keys())
def test_two_that_refer_to_each_other(copied):
    x, y = Named("x", 2), IsSlotted(np.ones(3))
    x.name, y.unit = y, x
    again, = copied([x])
    assert type(again.name) is IsSlotted
    assert again.name.unit is again


@pytest.mark.parametrize("copied", COPY.values(), ids=COPY.keys())
def test_what_is_shared_stays_shared(copied):
    inner = Tensor(np.ones(2))
    first, second = copied((Wrapped(inner), Wrapped(inner)))
    assert first.inner is second.inner
    ops.np.add_(first, 1)
    np.testing.assert_array_equal(second.inner.array, [2, 2])


@pytest.mark.parametrize("copied", COPY.values(), ids=COPY.keys())
def test_the_copy_is_independent(copied):
    x = Wrapped(np.ones(2))
    y = copied(x)
    ops.np.add_(y, 1)
    np.testing.assert_array_equal(x.inner, [1, 1])
    np.testing.assert_array_equal(y.inner, [2, 2])
    np.testing.assert_array_equal(ops.np.exp(y).inner, np.exp([2, 2]))


@pytest.mark.parametrize("copied", COPY.values(), ids=COPY.keys())
def test_what_a_call_recorded_is_refused(copied):
    x = Wrapped(np.ones(2), requires_grad=True) * 2
    with pytest.raises(AutogradError, match="detach"):
        copied(x)


def test_copying_needs_no_operator():
    class Spoils(Is):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return Tensor(np.zeros(1))

    class Declines(Is):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    for cls in (Spoils, Declines):
        y = copy.deepcopy(cls(ARRAY))
        assert type(y) is cls
        np.testing.assert_array_equal(y.array, ARRAY)


def test_a_class_may_say_itself_how_it_is_copied():
    class Counts(Wrapped):
        copies = 0

        def __deepcopy__(self, memo):
            Counts.copies += 1
            return Counts(copy.deepcopy(self.inner, memo))

    y = copy.deepcopy([Counts(ARRAY)])[0]
    assert type(y) is Counts
    assert Counts.copies == 1


# --- shallow copies, and detach --------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS.keys())
def test_copy_keeps_class_and_state(make):
    x = make()
    y = copy.copy(x)
    assert y is not x
    assert type(y) is type(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    before, after = state_of(x), state_of(y)
    assert after == before
    assert all(after[name] is value for name, value in before.items()), "shallow"
    for one, other in zip(values_of(y), values_of(x), strict=True):
        np.testing.assert_array_equal(one, other)


def test_copy_of_an_array_copies_it():
    x = Is(ARRAY.copy())
    assert not np.shares_memory(copy.copy(x).array, x.array)
    w = Wrapped(ARRAY)
    assert copy.copy(w).inner is w.inner
    assert copy.copy(w).array is not w.array


@pytest.mark.parametrize("name", ["no handler", "own constructor", "slots", "slots of bases", "slots and dict"])
def test_detach_keeps_class_and_state(name):
    x = OBJECTS[name]().requires_grad_()
    y = x.detach()
    assert y is not x
    assert type(y) is type(x)
    assert y.array is x.array
    assert not y.requires_grad
    assert state_of(y) == state_of(x)
    ops.np.add_(y, 1)
    assert x._version == 1, "memory and count of writes are shared"
