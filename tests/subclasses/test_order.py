"""Whose handler is tried first, and NEP 18's rule written out as a model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError, NoHandlerError

tried: list[type] = []
told: list[tuple[type, ...]] = []


class Declines(Tensor):
    """Declines every call, and writes down that it was asked."""

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        tried.append(cls)
        told.append(types)
        return NotImplemented


class A(Declines):
    pass


class A1(A):
    pass


class A2(A1):
    pass


class B(Declines):
    pass


class Plain(Tensor):
    """No handler."""


@pytest.fixture(autouse=True)
def forget():
    tried.clear()
    told.clear()


def make(cls):
    return cls(np.ones(2))


a, a1, a2, b, other_a = map(make, (A, A1, A2, B, A))
plain, raw = Tensor(np.ones(2)), np.ones(2)
ROWS = {
    "add(A, B)": (lambda: ops.np.add(a, b), (A, B)),
    "add(B, A)": (lambda: ops.np.add(b, a), (B, A)),
    "add(A, A1)": (lambda: ops.np.add(a, a1), (A1, A)),
    "add(A, A')": (lambda: ops.np.add(a, other_a), (A,)),
    "cat([A, B, A1, A2, A])": (lambda: ops.np.concatenate([a, b, a1, a2, a]), (A2, A1, A, B)),
    "cat([B, A2, A, A1])": (lambda: ops.np.concatenate([b, a2, a, a1]), (B, A2, A1, A)),
    "sum of both, out=A2": (lambda: ops.np.add(a, b, out=a2), (A2, A, B)),
    "add(plain, plain, out=A)": (lambda: ops.np.add(plain, plain, out=a), (A,)),
    "add(raw, raw, out=A)": (lambda: ops.np.add(raw, raw, out=a), (A,)),
    "index(plain, (B, A))": (lambda: ops.np.index(plain, (b, a)), (B, A)),
    "where(plain, A, B)": (lambda: ops.np.where(plain, a, b), (A, B)),
    "a subclass without a handler of its own": (lambda: ops.np.add(make(Plain), b), (B,)),
    "operators of the language": (lambda: a + b, (A, B)),
    "operators of the language, reflected": (lambda: a + a1, (A1, A)),
    "raw on the left": (lambda: raw * b, (B,)),
    "a method": (lambda: a.sum(), (A,)),
}


@pytest.mark.parametrize(("call", "order"), ROWS.values(), ids=ROWS.keys())
def test_order_of_handlers(call, order):
    with pytest.raises(NoHandlerError):
        call()
    assert tuple(tried) == order
    assert told == [order] * len(order), "each handler is told all types, in this order"


def test_order_with_a_keyword_only_argument_after_a_list(fresh, define):
    op = define(fresh, "cat(Tensor[] xs, *, Tensor(a!) out) -> Tensor(a!)", CPU=lambda xs, *, out: out)
    with pytest.raises(NoHandlerError):
        op([a, b, a1], out=a2)
    assert tuple(tried) == (A2, A1, A, B)


def test_order_of_arguments_by_name(fresh, define):
    op = define(fresh, "f(Tensor x, Tensor y, *, Tensor k, Tensor l) -> Tensor")
    with pytest.raises(NoHandlerError):
        op(l=make(A1), y=raw, k=b, x=plain)
    assert tuple(tried) == (B, A1)


def test_order_in_containers(fresh, define):
    op = define(fresh, "f(Any x, Tensor?[] ys, Dict(str, Tensor) z) -> Tensor")
    with pytest.raises(NoHandlerError):
        op({"k": [b, (a,)]}, [None, a2, raw], {"z": a1})
    assert tuple(tried) == (B, A2, A1, A)


def test_message_when_all_decline():
    with pytest.raises(NoHandlerError) as caught:
        ops.np.concatenate([a, b, a1, a2, a])
    first, *rest = str(caught.value).splitlines()
    assert "np::concatenate" in first
    listed = [name for line in rest for name in ("A2", "A1", "A", "B") if line.rstrip(">'").endswith(f".{name}")
              or line.split()[-1:] == [name]]
    assert listed == ["A2", "A1", "A", "B"]
    assert isinstance(caught.value, DispatchTypeError)
    assert isinstance(caught.value, TypeError)


def test_message_names_the_overload():
    with pytest.raises(NoHandlerError, match=r"np::add\.out"):
        ops.np.add(a, b, out=raw)


class Complains(Tensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        raise TypeError("foobar")


LANGUAGE = {
    "x + x": lambda x: x + x,
    "x + 1": lambda x: x + 1,
    "1 + x": lambda x: 1 + x,
    "raw @ x": lambda x: raw @ x,
    "-x": lambda x: -x,
    "x < x": lambda x: x < x,
    "x == 1": lambda x: x == 1,
    "x += 1": lambda x: x.__iadd__(1),
    "divmod": lambda x: divmod(x, 2),
    "x[0]": lambda x: x[0],
}


@pytest.mark.parametrize("expression", LANGUAGE.values(), ids=LANGUAGE.keys())
def test_a_type_error_of_a_handler_arrives(expression):
    with pytest.raises(TypeError, match=r"^foobar$") as caught:
        expression(make(Complains))
    assert type(caught.value) is TypeError
    with pytest.raises(NoHandlerError):
        expression(b)


@pytest.mark.parametrize("error", [KeyboardInterrupt, StopIteration, NotImplementedError, GeneratorExit, ValueError])
@pytest.mark.parametrize("call", [lambda x: x + x, lambda x: ops.np.add(x, x)], ids=["x + x", "add"])
def test_other_errors_arrive(error, call):
    class Raises(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            raise raised

    raised = error("as it is")
    with pytest.raises(error) as caught:
        call(make(Raises))
    assert caught.value is raised
    frames = []
    trace = caught.tb
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert frames[-1] == "__pydispatch__"


class Answers(Tensor):
    """A class, and its subclass, whose handlers raise errors of their own."""

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        raise cls.error()


class AError(RuntimeError):
    pass


class BError(RuntimeError):
    pass


class FirstA(Answers):
    error = AError


class FirstB(FirstA):
    error = BError


@pytest.mark.parametrize(
    ("left", "right", "error"),
    [(FirstA, FirstA, AError), (FirstA, FirstB, BError), (FirstB, FirstA, BError), (FirstB, FirstB, BError)],
    ids=["13-aa", "13-ab", "13-ba", "13-bb"])
def test_subclass_priority(left, right, error):
    with pytest.raises(error):
        ops.np.add(make(left), make(right))
    with pytest.raises(error):
        make(left) + make(right)


def test_the_first_that_answers_ends_it():
    class AnswersFive(Declines):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            tried.append(cls)
            return Tensor(np.full(2, 5.0))

    result = ops.np.concatenate([b, make(AnswersFive), a])
    assert tried == [B, AnswersFive]
    assert type(result) is Tensor
    np.testing.assert_array_equal(result.array, np.full(2, 5.0))


def test_kwargs_are_not_shared():
    seen = []

    class Spoils(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            kwargs["keepdims"] = False
            kwargs["extra"] = 1
            return NotImplemented

    class Reads(Spoils):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            seen.append((cls, kwargs))
            return super().__pydispatch__(func, types, args, kwargs)

    class ReadsAfter(Reads):
        pass

    with pytest.raises(NoHandlerError):
        ops.np.sum(make(Reads), where=make(ReadsAfter), keepdims=True)
    (first, first_kwargs), (second, second_kwargs) = seen
    assert (first, second) == (ReadsAfter, Reads)
    assert first_kwargs is not second_kwargs
    assert "extra" in first_kwargs
    seen.clear()

    class OnlyReads(Reads):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            seen.append((cls, dict(kwargs)))
            return NotImplemented

    with pytest.raises(NoHandlerError):
        ops.np.sum(make(Spoils), where=make(OnlyReads), keepdims=True)
    with pytest.raises(NoHandlerError):
        ops.np.add(make(Spoils), make(OnlyReads), casting="no")
    assert [set(kwargs) for _, kwargs in seen] == [{"where", "keepdims"}, {"casting"}]


# --- the model -------------------------------------------------------------------------------------------------------


def order_of(types):
    """Order by NEP 18: by appearance, each type once, but a subclass goes in front of the first of its bases."""
    order = []
    for cls in types:
        if cls in order:
            continue
        bases = [position for position, earlier in enumerate(order) if issubclass(cls, earlier)]
        order.insert(bases[0] if bases else len(order), cls)
    return tuple(order)


SCHEMA = "f(Tensor? a, Tensor?[] b, Tensor? c, Any d=None, *, Tensor? e=None, Tensor?[] g, Tensor(o!)? out=None) -> ()"
numbers = itertools.count()


@st.composite
def families(draw):
    """Draw classes of which each has up to two of the former as bases."""
    family = []
    for _ in range(draw(st.integers(1, 6))):
        bases = draw(st.lists(st.sampled_from(family), max_size=2, unique=True)) if family else []
        bases = [base for base in bases if not any(other is not base and issubclass(other, base) for other in bases)]
        family.append(derive(tuple(bases) or (Declines,)))
    return family


def derive(bases):
    try:
        return type(f"Class{next(numbers)}", bases, {})
    except TypeError:  # the bases contradict each other in their order
        return derive(bases[:1])


@pytest.fixture(scope="module")
def takes_all(new_library, define):
    with new_library() as library:
        yield define(library, SCHEMA)


@given(st.data())
@settings(max_examples=300)
def test_order_is_that_of_the_model(takes_all, data):
    family = data.draw(families())
    value = st.sampled_from([None, raw, plain, *map(make, family)])
    values = st.lists(value, max_size=4)
    first, second, third, anything = data.draw(value), data.draw(values), data.draw(value), data.draw(values)
    fourth, fifth, out = data.draw(value), data.draw(values), data.draw(value)
    given_types = [
        type(leaf) for leaf in (first, *second, third, *anything, fourth, *fifth, out) if isinstance(leaf, Declines)]
    call = [first, second, third, {"nested": [anything]}], {"g": fifth, "out": out, "e": fourth}
    tried.clear()
    told.clear()
    expected = order_of(given_types)
    if not expected:
        return
    with pytest.raises(NoHandlerError) as caught:
        takes_all(*call[0], **call[1])
    assert tuple(tried) == expected
    assert set(told) == {expected}
    positions = [str(caught.value).rindex(cls.__name__) for cls in expected]
    assert positions == sorted(positions)


@given(st.data())
@settings(max_examples=300)
def test_what_the_model_promises(data):
    family = data.draw(families())
    types = data.draw(st.lists(st.sampled_from(family), max_size=8))
    order = order_of(types)
    assert sorted(order, key=id) == sorted(set(types), key=id)
    for earlier, later in itertools.combinations(order, 2):
        assert not issubclass(later, earlier)
    related = any(issubclass(one, other) for one, other in itertools.permutations(set(types), 2))
    if not related:
        assert order == tuple(dict.fromkeys(types))
