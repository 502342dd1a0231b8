"""The calls that a mode's handler sees, their order, and its results."""

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, ops
from pydispatch.backends import MetaArray
from pydispatch.exceptions import DispatchError, DispatchTypeError, NoHandlerError
from pydispatch.modes import mode_stack
from pydispatch.subclasses import Shell
from tests.modes.recorders import Declining, Polite, Recorder, Whole, unwrap, wrapper_class

NP = ops.np
X = np.array([1.0, 2.0])


class Adding(Recorder):
    """Adds a number to every result, by an operator."""

    def __init__(self, number, **how):
        super().__init__(f"add {number}", **how)
        self.number = number

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.note(func, types, args, kwargs)
        return NP.add(func(*args, **kwargs), self.number)


class Answering(DispatchMode):
    """Returns one and the same answer to every call."""

    def __init__(self, answer):
        self.answer = answer

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        return self.answer


class Failing(Recorder):
    """Raises its error, for one operator or for all."""

    def __init__(self, error, operator=None):
        super().__init__("failing")
        self.error, self.operator = error, operator

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        if func is self.operator or self.operator is None:
            raise self.error
        return super().__pydispatch__(func, types, args, kwargs)


# --- which calls are seen ---------------------------------------------------------------------------------------

SEEN = {
    "raw arrays": (lambda: NP.add(X, X), ["np::add"]),
    "a raw array and a number": (lambda: NP.add(X, 1), ["np::add"]),
    "numbers alone": (lambda: NP.add(1, 2), ["np::add"]),
    "numpy scalars": (lambda: NP.exp(np.float64(1.0)), ["np::exp"]),
    "Tensors": (lambda: NP.add(Tensor(X), Tensor(X)), ["np::add"]),
    "meta arrays": (lambda: NP.exp(Shell(X)), ["np::exp"]),
    "the language": (lambda: 1 - Tensor(X) * 2, ["np::multiply", "np::subtract"]),
    "comparison": (lambda: Tensor(X) == Tensor(X), ["np::equal"]),
    "methods": (lambda: Tensor(X).sum(), ["np::sum"]),
    "out=": (lambda: NP.add(X, X, out=X.copy()), ["np::add.out"]),
    "in place": (lambda: NP.add_(X.copy(), X), ["np::add_"]),
    "zeros": (lambda: NP.zeros(2), ["np::zeros"]),
    "arange": (lambda: NP.arange(3), ["np::arange"]),
    "full": (lambda: NP.full((2,), 1.0), ["np::full"]),
    "zeros_like": (lambda: NP.zeros_like(X), ["np::zeros_like"]),
    "boxed": (lambda: NP.add.default.call_boxed(list(NP.add.default.bind((X, X), {}))), ["np::add"]),
    "packets with one overload": (lambda: NP.zeros.default(2), ["np::zeros"]),
    "detach": (lambda: Tensor(X).detach(), ["np::detach"]),
    "item": (lambda: Tensor(X[0]).item(), ["np::item"]),
    "float": (lambda: float(Tensor(X[0])), ["np::item"]),
    "bool": (lambda: bool(Tensor(X[0])), ["np::item"]),
}


@pytest.mark.parametrize(("run", "operators"), SEEN.values(), ids=SEEN)
def test_operators_are_seen_and_their_results_are_what_they_are_without_a_mode(run, operators):
    expected = run()
    with Recorder() as mode:
        result = run()
    assert mode.operators == operators
    assert type(result) is type(expected)
    if isinstance(expected, MetaArray):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    else:
        np.testing.assert_array_equal(np.asarray(result), np.asarray(expected), strict=True)


UNSEEN = {
    "making a Tensor": lambda: Tensor(X),
    "shape": lambda: Tensor(X).shape,
    "dtype": lambda: Tensor(X).dtype,
    "size and ndim": lambda: (Tensor(X).size, Tensor(X).ndim),
    "requires_grad": lambda: Tensor(X).requires_grad,
    "requires_grad_": lambda: Tensor(X).requires_grad_(),
    "hash": lambda: hash(Tensor(X)),
    "NumPy itself": lambda: np.add(X, X),
}


@pytest.mark.parametrize("run", UNSEEN.values(), ids=UNSEEN)
def test_what_is_no_operator_is_not_seen(run):
    with Recorder() as mode:
        run()
    assert mode.calls == []


# --- what the handler is given ----------------------------------------------------------------------------------


def test_args_is_a_tuple_kwargs_a_dict_and_arrays_keep_their_identity():
    raw, tensor = X.copy(), Tensor(X)
    with Recorder() as mode:
        NP.add(raw, tensor)
        NP.add(x1=raw, x2=tensor, dtype=np.float32)
    first, second = mode.calls
    for call in (first, second):
        assert call.func is NP.add.default
        assert type(call.args) is tuple
        assert call.args[0] is raw
        assert call.args[1] is tensor
        assert len(call.args) == 2
        assert type(call.kwargs) is dict
        assert call.types == ()
    assert first.kwargs == {}
    assert second.kwargs == {"dtype": np.dtype(np.float32)}


GIVEN = {
    "defaults are stripped": (lambda: NP.add(X, 1, dtype=None, casting="same_kind"), (X, 1), {}),
    "numbers stay numbers": (lambda: NP.add(X, 1.0), (X, 1.0), {}),
    "bools stay bools": (lambda: NP.add(X, True), (X, True), {}),
    "keyword-only arguments by name": (lambda: NP.sum(X, keepdims=True), (X,), {"keepdims": True}),
    "named positional ones by position": (lambda: NP.sum(X, axis=0), (X, (0,)), {}),
    "lists are tuples": (lambda: NP.sum(X, axis=[0]), (X, (0,)), {}),
    "lists of arrays are tuples": (lambda: NP.concatenate([X, X]), ((X, X),), {}),
    "integers beyond int64": (lambda: NP.full((1,), 2**63 + 5), ((1,), 2**63 + 5), {}),
}


@pytest.mark.parametrize(("run", "args", "kwargs"), GIVEN.values(), ids=GIVEN)
def test_what_the_handler_is_given(run, args, kwargs):
    with Recorder() as mode:
        run()
    call, = mode.calls
    assert len(call.args) == len(args)
    for given, expected in zip(call.args, args, strict=True):
        assert type(given) is type(expected)
        assert given is expected or np.array_equal(given, expected)
    assert call.kwargs == kwargs


def test_each_handler_of_one_call_gets_a_dict_of_its_own():
    # In PyTorch a handler that changes kwargs and declines changes the arguments of the next one.
    class Changing(Declining):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            self.note(func, types, args, dict(kwargs))
            kwargs["keepdims"] = False
            kwargs["nonsense"] = 1
            return NotImplemented

    inner, outer, last = Changing(), Changing(), Recorder()
    with last, outer, inner:
        assert NP.sum(X, keepdims=True).shape == (1,)
    assert [mode.calls[0].kwargs for mode in (inner, outer, last)] == [{"keepdims": True}] * 3


def test_types_are_those_of_subclasses_exact_and_once():
    A = wrapper_class("A")
    B = wrapper_class("B", base=A)
    a, b = A(X), B(X)
    with Recorder() as mode:
        NP.add(a, 1)
        NP.add(a, A(X))
        NP.add(a, b)
        NP.add(Tensor(X), b)
        NP.concatenate([a, X, b, a])
        NP.add(X, X, out=A(X.copy()))
    assert [call.types for call in mode.calls] == [(A,), (A,), (B, A), (B,), (B, A), (A,)]


# --- off inside its own handler ---------------------------------------------------------------------------------


def test_a_mode_is_off_in_its_own_handler():
    with Adding(1) as mode:
        np.testing.assert_array_equal(NP.multiply(X, X), X * X + 1)
    assert mode.operators == ["np::multiply"]


def test_the_innermost_goes_first_and_the_next_sees_what_its_handler_calls():
    log = []
    inner, outer = Adding(1, log=log), Recorder("outer", log)
    with outer, inner:
        NP.multiply(X, X)
    assert log == ["add 1 np::multiply", "outer np::multiply", "outer np::add"]


def test_nested_recorders_see_the_same_calls():
    with Recorder() as outer, Recorder() as inner:
        NP.exp(NP.add(X, X))
    assert inner.operators == outer.operators == ["np::add", "np::exp"]


def test_the_innermost_decides():
    class Layer(DispatchMode):
        def __init__(self, message):
            self.message = message

        def __pydispatch__(self, func, types, args=(), kwargs=None):
            raise RuntimeError(self.message)

    prepared = Layer("layer 1")
    for _ in range(2):
        with prepared:
            with pytest.raises(RuntimeError, match=r"^layer 1$"):
                NP.zeros(2)
            with Layer("layer 2"), pytest.raises(RuntimeError, match=r"^layer 2$"):
                NP.zeros(2)
            with pytest.raises(RuntimeError, match=r"^layer 1$"):
                NP.zeros(2)
    assert NP.zeros(2).shape == (2,)


def test_the_same_mode_twice_sees_each_call_twice():
    mode = Adding(1)
    with mode, mode:
        np.testing.assert_array_equal(NP.multiply(X, X), X * X + 3)
    assert mode.operators == ["np::multiply", "np::multiply", "np::add"]    # the add of the inner entry's handler
    with mode:
        np.testing.assert_array_equal(NP.multiply(X, X), X * X + 1)


def test_entering_gives_the_mode_and_no_base_init_is_needed():
    mode = Recorder()
    with mode as entered:
        assert entered is mode


def test_a_mode_decorates_a_function():
    mode = Recorder()

    @mode
    def double(x, *, times=2):
        """Double it."""
        return NP.multiply(x, times)

    np.testing.assert_array_equal(double(X), X * 2)
    np.testing.assert_array_equal(double(X, times=3), X * 3)
    assert mode.operators == ["np::multiply"] * 2
    assert (double.__name__, double.__doc__) == ("double", "Double it.")
    assert mode_stack() == ()


# --- declining --------------------------------------------------------------------------------------------------


def test_a_polite_mode():
    log = []
    W = wrapper_class("W", log)
    w = W(X)
    with Polite("polite", log) as mode:
        result = NP.add(w, 1)
    assert log == ["polite np::add", "W np::add", "polite np::add"]
    assert len(mode.calls) == 2         # one before, one after the wrapper's handler
    assert mode.accepted == 1
    assert type(result) is W
    np.testing.assert_array_equal(result.inner, X + 1)


def test_two_polite_modes():
    log = []
    W = wrapper_class("W", log)
    with Polite("outer", log) as outer, Polite("inner", log) as inner:
        result = NP.add(W(X), 1)
    assert log == [
        "inner np::add", "outer np::add",       # both decline
        "W np::add",
        "inner np::add", "outer np::add",       # under the stack of the original call
    ]
    assert (inner.accepted, outer.accepted) == (1, 1)
    np.testing.assert_array_equal(result.inner, X + 1)


def test_the_decliner_is_off_for_the_next_entry_and_on_for_the_subclass():
    W = wrapper_class("W")
    seen = []

    class Looking(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            seen.append((self.name, mode_stack()))
            return NotImplemented

    class V(W):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(("V", mode_stack()))
            return args[0]

    outer, inner = Looking("outer"), Looking("inner")
    with outer, inner:
        NP.add(V(X), 1)
    assert seen == [("inner", (outer,)), ("outer", ()), ("V", (outer, inner))]


def test_a_mode_that_passes_on_is_off_in_the_subclass_and_those_above_it_too():
    seen = []

    class V(wrapper_class("W")):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(mode_stack())
            return args[0]

    with Declining("outer") as outer, Recorder("inner"):
        NP.add(V(X), 1)
    with Recorder("outer"), Recorder("inner"):
        NP.add(V(X), 1)
    assert seen == [(outer,), ()]


def test_a_declining_mode_without_subclasses_is_as_if_it_were_not_there():
    with Recorder("outer") as outer, Declining("inner") as inner:
        np.testing.assert_array_equal(NP.add(X, X), X + X)
        np.testing.assert_array_equal(NP.zeros(2), np.zeros(2))
    assert inner.operators == outer.operators == ["np::add", "np::zeros"]
    with Declining() as alone:
        np.testing.assert_array_equal(NP.add(X, X), X + X)
    assert alone.operators == ["np::add"]


def test_when_all_decline_the_error_names_them_in_the_order_tried():
    def declining_class(name, base=Tensor):
        def __pydispatch__(cls, func, types, args=(), kwargs=None):  # noqa: N807
            return NotImplemented

        def __init__(self, inner):  # noqa: N807
            Tensor.__init__(self, Shell(inner))

        return type(name, (base,), {"__init__": __init__, "__pydispatch__": classmethod(__pydispatch__)})

    Elder = declining_class("Elder")
    Younger = declining_class("Younger", Elder)
    with Declining("outer mode"), Declining("inner mode"), pytest.raises(NoHandlerError) as caught:
        NP.add(Elder(X), Younger(X))
    text = str(caught.value)
    assert isinstance(caught.value, DispatchTypeError)
    assert "np::add" in text.splitlines()[0]
    positions = [text.index(name) for name in ("<inner mode>", "<outer mode>", "Younger", "Elder")]
    assert positions == sorted(positions)


def test_nothing_turns_that_error_into_unsupported_operand():
    class Deaf(wrapper_class("W")):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with Declining("some mode"):
        for run in (lambda: Deaf(X) + 1, lambda: 1 + Deaf(X), lambda: Deaf(X) @ Deaf(X), lambda: Deaf(X) < 1):
            with pytest.raises(NoHandlerError, match=r"<some mode>[\s\S]*Deaf"):
                run()


# --- modes and subclasses ---------------------------------------------------------------------------------------


def test_modes_go_before_subclasses_and_derived_classes_before_their_bases():
    def raising(text, base=Tensor):
        def __pydispatch__(cls, func, types, args=(), kwargs=None):  # noqa: N807
            raise ErrorOf(text)

        def __init__(self, inner):  # noqa: N807
            Tensor.__init__(self, Shell(inner))

        return type(text, (base,), {"__init__": __init__, "__pydispatch__": classmethod(__pydispatch__)})

    class ErrorOf(Exception):  # noqa: N818
        pass

    A = raising("A")
    B = raising("B", A)
    a, b = A(X), B(X)
    for run, expected in [
        (lambda: NP.add(a, a), "A"), (lambda: NP.add(a, b), "B"), (lambda: NP.add(b, a), "B"),
        (lambda: NP.add(X, b), "B"), (lambda: NP.add(a, 1), "A"),
    ]:
        with pytest.raises(ErrorOf, match=f"^{expected}$"):
            run()
        with Failing(ErrorOf("mode")), pytest.raises(ErrorOf, match=r"^mode$"):
            run()
        with Failing(ErrorOf("outer")), Failing(ErrorOf("inner")), pytest.raises(ErrorOf, match=r"^inner$"):
            run()


def test_a_subclass_handler_may_open_a_mode():
    mode = Recorder()
    W = wrapper_class("W")

    class Opening(W):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            with mode:
                return super().__pydispatch__(func, types, args, kwargs)

    result = NP.add(Opening(X), 1)
    assert mode.operators == ["np::add"]
    assert mode.calls[0].args[0] is X
    assert type(result) is Opening
    assert mode_stack() == ()


def test_subclasses_are_made_as_ever_under_a_mode():
    W = wrapper_class("W")

    class IsA(Tensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return super().__pydispatch__(func, types, args, kwargs)

    with Recorder() as mode:
        made = [W(X), IsA(X), IsA(Tensor(X).array)]
    assert [type(value) for value in made] == [W, IsA, IsA]
    assert mode.calls == []


@pytest.mark.parametrize("passing", [0, 1, 2])
def test_a_mode_that_wraps_results_in_a_class(passing):
    log = []
    W = wrapper_class("W", log)

    class Wrapping(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            super().note(func, types, args, kwargs)
            return W(unwrap(func(*args, **kwargs)))

    inner, outer = Recorder("inner"), Recorder("outer")
    with Wrapping("wrapping") as mode:
        for other in (inner, outer)[:passing]:
            other.__enter__()
        made = NP.zeros(2)
        moved = NP.add(made, 1)
        for other in reversed((inner, outer)[:passing]):
            other.__exit__(None, None, None)
    assert (type(made), type(moved)) == (W, W)
    np.testing.assert_array_equal(moved.inner, np.ones(2))
    assert mode.operators == ["np::zeros", "np::add"]
    assert log == ["W np::add"]
    for other in (inner, outer)[:passing]:
        assert other.operators == ["np::zeros", "np::add"]


# --- what becomes of what a handler returns ---------------------------------------------------------------------

RETURNED = {
    "a raw array for raw ones": (lambda: NP.exp(X), np.array([5.0]), np.ndarray),
    "a raw array for Tensors": (lambda: NP.exp(Tensor(X)), np.array([5.0]), Tensor),
    "a Tensor for raw arrays": (lambda: NP.exp(X), Tensor(np.array([5.0])), Tensor),
    "a Tensor for Tensors": (lambda: NP.exp(Tensor(X)), Tensor(np.array([5.0])), Tensor),
}


@pytest.mark.parametrize(("run", "answer", "cls"), RETURNED.values(), ids=RETURNED)
def test_what_a_handler_returns(run, answer, cls):
    with Answering(answer):
        result = run()
    assert type(result) is cls
    assert result is answer or result.array is answer


REFUSED = {
    "None for an array": (lambda: NP.exp(X), None),
    "a text": (lambda: NP.exp(X), "text"),
    "a list": (lambda: NP.exp(X), [X]),
    "an array for several": (lambda: NP.split(X, 2), X),
}


@pytest.mark.parametrize(("run", "answer"), REFUSED.values(), ids=REFUSED)
def test_results_that_do_not_fit_the_schema_are_refused(run, answer):
    with Answering(answer), pytest.raises(DispatchTypeError, match=r"np::"):
        run()


COUNTS = [(0, False), (1, False), (2, True), (3, False)]


@pytest.mark.parametrize(("count", "fits"), COUNTS)
def test_the_number_of_results_is_checked(fresh, define, count, fits):
    # In PyTorch a handler that returns three tensors for two gives the caller three.
    op = define(fresh, "pair(Tensor x) -> (Tensor, Tensor)", CPU=lambda x: (x.copy(), x.copy()))
    with Answering((X.copy(),) * count):
        if fits:
            assert len(op(X)) == 2
        else:
            with pytest.raises(DispatchTypeError, match="pair"):
                op(X)


@pytest.mark.parametrize("container", [list, tuple])
def test_lists_of_results_may_be_lists_or_tuples(container):
    parts = container([X[:1].copy(), X[1:].copy()])
    with Answering(parts):
        result = NP.split(X, 2)
    assert all(part is expected for part, expected in zip(result, parts, strict=True))


@pytest.mark.parametrize("make", [lambda: X.copy(), lambda: Tensor(X.copy())], ids=["raw", "Tensor"])
def test_what_is_written_to_is_what_the_caller_gets(make):
    target = make()
    with Answering(np.array([7.0, 7.0])):
        assert NP.add_(target, 1) is target
        assert NP.add(X, X, out=target) is target
    np.testing.assert_array_equal(np.asarray(target), X)     # nobody ran the kernel


def test_in_place_language_keeps_its_object():
    tensor = kept = Tensor(X.copy())
    with Recorder() as mode:
        tensor += 1
    assert tensor is kept
    np.testing.assert_array_equal(tensor.array, X + 1)
    assert mode.operators == ["np::add_"]


def test_views_are_new_objects_under_a_mode():
    tensor = Tensor(X.copy())
    with Recorder():
        same = NP.reshape(tensor, (2,))
        NP.add_(same, 1)
    assert same is not tensor
    np.testing.assert_array_equal(tensor.array, X + 1)
    assert tensor._version == same._version == 1


def test_writes_are_counted_once_under_modes():
    tensor = Tensor(X.copy())
    with Recorder(), Recorder():
        NP.add_(tensor, 1)
    assert tensor._version == 1


def test_a_mode_may_skip_the_call_and_call_something_else():
    class Swap(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return NP.cos(*args) if func is NP.sin.default else func(*args, **kwargs)

    with Swap():
        np.testing.assert_array_equal(NP.sin(X), np.cos(X))
        np.testing.assert_array_equal(NP.exp(X), np.exp(X))


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [ValueError("v"), TypeError("t"), NotImplementedError("n"), StopIteration(3), KeyboardInterrupt(), SystemExit(2)],
    ids=lambda error: type(error).__name__)
def test_an_exception_of_a_handler_arrives_as_it_is(error):
    mode = Failing(error)
    for run in (lambda: NP.add(X, X), lambda: Tensor(X) + 1, lambda: 1 + Tensor(X), lambda: NP.zeros(2)):
        with Recorder("outer") as outer, mode:
            with pytest.raises(type(error)) as caught:
                run()
            assert caught.value is error
            assert mode_stack() == (outer, mode)
    assert mode_stack() == ()


def test_a_mode_stays_in_force_after_an_exception():
    with Failing(RuntimeError("no randomness"), NP.exp.default) as mode:
        with pytest.raises(RuntimeError, match="no randomness"):
            NP.exp(X)
        NP.zeros(2)
    assert mode.operators == ["np::zeros"]


def test_a_classmethod_handler_is_refused_when_the_class_is_made():
    with pytest.raises((TypeError, DispatchError), match=r"Bad[\s\S]*classmethod[\s\S]*self"):
        class Bad(DispatchMode):
            @classmethod
            def __pydispatch__(cls, func, types, args=(), kwargs=None):
                return func(*args, **kwargs)


def test_a_mode_without_a_handler_says_so():
    class Nothing(DispatchMode):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing[\s\S]*__pydispatch__"), Nothing():
        NP.add(X, X)
    assert mode_stack() == ()


@pytest.mark.parametrize("value", ["both", None, 1])
def test_other_values_of_decompose_composites_are_refused(value):
    with pytest.raises((TypeError, ValueError), match=r"decompose_composites[\s\S]*True or False"):
        type("Bad", (Recorder,), {"decompose_composites": value})


# --- composite operators ----------------------------------------------------------------------------------------


@pytest.fixture
def twice_plus(fresh, define):
    """Provide `twice_plus(x, y)`: x + x + y, as a composite of two calls of np::add."""
    return define(
        fresh, "twice_plus(Tensor x, Tensor y) -> Tensor",
        CompositeImplicitAutograd=lambda x, y: NP.add(NP.add(x, x), y))


@pytest.mark.parametrize("make", [lambda: X, lambda: Tensor(X)], ids=["raw", "Tensor"])
def test_composites_come_in_pieces(twice_plus, make):
    with Recorder() as mode:
        result = twice_plus(make(), 1)
    assert mode.operators == ["np::add", "np::add"]
    assert type(result) is type(make())
    np.testing.assert_array_equal(np.asarray(result), 2 * X + 1)


@pytest.mark.parametrize("make", [lambda: X, lambda: Tensor(X)], ids=["raw", "Tensor"])
def test_or_whole(twice_plus, make):
    with Whole() as mode:
        result = twice_plus(make(), 1)
    assert mode.operators == [str(twice_plus.name)]
    assert type(result) is type(make())
    np.testing.assert_array_equal(np.asarray(result), 2 * X + 1)


NESTED = {
    "pieces outside of whole": (Recorder, Whole, ["inner whole", "outer np::add", "outer np::add"]),
    "whole outside of pieces": (Whole, Recorder, ["inner np::add", "outer np::add"] * 2),
    "whole, whole": (Whole, Whole, ["inner whole", "outer whole"]),
    "pieces, pieces": (Recorder, Recorder, ["inner np::add", "outer np::add"] * 2),
}


@pytest.mark.parametrize(("outer", "inner", "expected"), NESTED.values(), ids=NESTED)
def test_each_mode_has_it_its_way(twice_plus, outer, inner, expected):
    log = []
    with outer("outer", log), inner("inner", log):
        twice_plus(X, 1)
    assert [line.replace(str(twice_plus.name), "whole") for line in log] == expected


def test_a_subclass_sees_the_pieces_of_what_a_mode_took_whole(twice_plus):
    log = []
    W = wrapper_class("W", log)
    with Whole("mode", log):
        result = twice_plus(W(X), 1)
    assert log == [f"mode {twice_plus.name}", "W np::add", "W np::add"]
    np.testing.assert_array_equal(result.inner, 2 * X + 1)


def test_an_operator_with_a_backend_kernel_is_not_taken_apart(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=lambda x: x + 1, CompositeImplicitAutograd=lambda x: NP.add(x, 1))
    with Recorder() as mode:
        op(X)
        op(Tensor(X))
    assert mode.operators == [str(op.name)] * 2


def test_a_composite_of_composites(fresh, define):
    inner = define(fresh, "g(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: NP.negative(NP.exp(x)))
    outer = define(fresh, "h(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: inner(NP.sin(x)))
    with Recorder() as pieces:
        outer(X)
    with Whole() as whole:
        outer(X)
    assert pieces.operators == ["np::sin", "np::exp", "np::negative"]
    assert whole.operators == [str(outer.name)]


# --- values that leave for NumPy --------------------------------------------------------------------------------

CONVERSIONS = {"numpy": lambda x: x.numpy(), "asarray": np.asarray, "tolist": lambda x: x.tolist()}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_a_mode_hears_of_values_that_leave_and_may_refuse(convert):
    class Listening(Recorder):
        refuses = False

        def __init__(self):
            super().__init__()
            self.heard = []

        def on_conversion(self, tensor, what):
            self.heard.append((tensor, what))
            if self.refuses:
                raise RuntimeError(f"no {what}")

    tensor = Tensor(X)
    with Listening() as mode:
        np.testing.assert_array_equal(convert(tensor), X)
        mode.refuses = True
        with pytest.raises(RuntimeError, match=r"^no "):
            convert(tensor)
    assert len(mode.heard) == 2
    assert all(heard is tensor and isinstance(what, str) for heard, what in mode.heard)
    np.testing.assert_array_equal(convert(tensor), X)


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_conversions_under_a_mode_that_does_not_care(convert):
    with Recorder() as mode:
        np.testing.assert_array_equal(convert(Tensor(X)), X)
    assert mode.calls == []
