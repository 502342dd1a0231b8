"""Rules for an operator and a class: of modes, subclasses, transforms. `py_impl`."""

import numpy as np
import pytest

from pydispatch import DispatchKey, DispatchMode, Tensor, _core, exclude_keys, func, ops
from pydispatch.exceptions import DispatchTypeError, NoHandlerError, OverrideWarning, RegistrationError
from pydispatch.library import Library, register_pydispatch
from pydispatch.modes import mode_stack
from pydispatch.subclasses import Shell
from tests.modes.recorders import Declining, Recorder, Whole, wrapper_class

NP = ops.np
ADD = NP.add.default
X = np.array([1.0, 2.0])


class Noted:
    """A rule that notes what it was given, and answers."""

    def __init__(self, answer=NotImplemented):
        self.answer = answer
        self.given = []

    def __call__(self, owner, func, types, args, kwargs):
        self.given.append((owner, func, types, args, kwargs))
        return self.answer


@pytest.fixture
def op(fresh, define):
    """Provide `twice(x, *, times=2)`, with a kernel for NumPy arrays."""
    return define(fresh, "twice(Tensor x, *, int times=2) -> Tensor", CPU=lambda x, times=2: x * times)


# --- rules of modes ---------------------------------------------------------------------------------------------


def test_a_rule_replaces_the_handler_of_its_mode_for_its_operator(op):
    answer = X.copy()
    rule = Noted(answer)
    with register_pydispatch(op, Recorder, rule), Recorder() as mode:
        assert op(X, times=3) is answer
        NP.exp(X)
    owner, given_func, types, args, kwargs = rule.given[0]
    assert owner is mode
    assert given_func is op
    assert types == ()
    assert type(args) is tuple
    assert args[0] is X
    assert kwargs == {"times": 3}
    assert mode.operators == ["np::exp"]


def test_an_operator_may_be_given_by_name(op):
    rule = Noted(X.copy())
    with register_pydispatch(str(op.name), Recorder, rule), Recorder():
        op(X)
    assert len(rule.given) == 1


def test_as_a_decorator(op):
    calls = []

    @register_pydispatch(op, Recorder)
    def rule(mode, func, types, args, kwargs):
        calls.append(mode)
        return func(*args, **kwargs)

    with Recorder() as mode:
        op(X)
    assert (calls, mode.operators) == ([mode], [])
    assert rule.__name__ == "rule"


def test_a_mode_is_off_in_its_rule(op):
    seen = []

    def rule(mode, func, types, args, kwargs):
        seen.append(mode_stack())
        return func(*args, **kwargs)

    with register_pydispatch(op, Recorder, rule), Whole("outer") as outer, Recorder("inner"):
        op(X)
    assert seen == [(outer,)]
    assert outer.operators == [str(op.name)]


def test_a_rule_is_of_the_exact_class(op):
    class Derived(Recorder):
        pass

    rule = Noted(X.copy())
    with register_pydispatch(op, Recorder, rule), Derived() as derived:
        op(X)
    assert rule.given == []
    assert derived.operators == [str(op.name)]
    with register_pydispatch(op, Derived, rule), Recorder() as base:
        op(X)
        assert rule.given == []
        assert base.operators == [str(op.name)]
        with derived:
            op(X)
    assert len(rule.given) == 1


def test_a_rule_that_declines_leaves_the_call_to_the_handler_of_its_mode(op):
    rule = Noted()
    with register_pydispatch(op, Recorder, rule), Recorder() as mode:
        np.testing.assert_array_equal(op(X), 2 * X)
    assert len(rule.given) == 1
    assert mode.operators == [str(op.name)]


def test_rule_then_handler_then_the_next_entry_then_subclasses(op):
    log = []
    Wrapper = wrapper_class("Wrapper", log)

    def declining(text):
        def rule(owner, func, types, args, kwargs):
            log.append(text)
            return NotImplemented

        return rule

    with (register_pydispatch(op, Declining, declining("rule of the modes")),
          register_pydispatch(op, Wrapper, declining("rule of the class")), Declining("outer", log),
          Declining("inner", log)):
        op(Wrapper(X))
    called = f" {op.name}"
    assert log[:6] == ["rule of the modes", "inner" + called, "rule of the modes", "outer" + called,
                       "rule of the class", "Wrapper" + called]
    assert log[6:] == ["rule of the modes", "inner" + called, "rule of the modes", "outer" + called]


def test_a_rule_raises_what_it_raises(op):
    error = ZeroDivisionError("rule")

    def rule(mode, func, types, args, kwargs):
        raise error

    with register_pydispatch(op, Recorder, rule), Recorder() as mode:
        with pytest.raises(ZeroDivisionError) as caught:
            op(X)
        assert caught.value is error
        assert mode_stack() == (mode,)


def test_what_a_rule_returns_is_checked(op):
    with register_pydispatch(op, Recorder, Noted("text")), Recorder(), pytest.raises(DispatchTypeError, match="twice"):
        op(X)


def test_a_rule_of_a_mode_takes_a_composite_whole(fresh, define):
    composite = define(fresh, "f(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: NP.exp(NP.negative(x)))
    rule = Noted(X.copy())
    with Recorder() as mode:
        with register_pydispatch(composite, Recorder, rule):
            composite(X)
        assert (len(rule.given), mode.operators) == (1, [])
        composite(X)
        assert (len(rule.given), mode.operators) == (1, ["np::negative", "np::exp"])


def test_a_rule_that_declines_a_composite_leaves_its_pieces(fresh, define):
    composite = define(fresh, "f(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: NP.exp(NP.negative(x)))
    rule = Noted()
    with register_pydispatch(composite, Recorder, rule), Recorder() as mode:
        np.testing.assert_array_equal(composite(X), np.exp(-X))
    assert len(rule.given) == 1
    assert mode.operators == ["np::negative", "np::exp"]


def test_rules_make_records_on_the_tape():
    def rule(mode, func, types, args, kwargs):
        return NP.multiply(NP.add(*args, **kwargs), 10.0)

    x = Tensor(X, requires_grad=True)
    with register_pydispatch(ADD, Recorder, rule), Recorder():
        y = x + 1.0
    y.backward(Tensor(np.ones(2)))
    np.testing.assert_array_equal(x.grad.array, [10.0, 10.0])


# --- rules of subclasses ----------------------------------------------------------------------------------------


def test_a_rule_replaces_the_handler_of_its_subclass_for_its_operator(op):
    log = []
    Wrapper = wrapper_class("Wrapper", log)
    w = Wrapper(X)
    answer = Wrapper(X.copy())
    rule = Noted(answer)
    with register_pydispatch(op, Wrapper, rule):
        assert op(w, times=3) is answer
        NP.exp(w)
    assert rule.given == [(Wrapper, op, (Wrapper,), (w,), {"times": 3})]
    assert log == ["Wrapper np::exp"]


def test_a_rule_of_a_subclass_is_of_the_exact_class(op):
    log = []
    Base = wrapper_class("Base", log)
    Derived = wrapper_class("Derived", log, Base)
    rule = Noted(X.copy())
    with register_pydispatch(op, Base, rule):
        op(Derived(X))
        assert (rule.given, log) == ([], [f"Derived {op.name}"])
        op(Base(X))
    assert len(rule.given) == 1


def test_a_rule_that_declines_leaves_the_call_to_the_handler_of_its_subclass(op):
    # In PyTorch the rule is then called once more, with an argument missing.
    log = []
    Wrapper = wrapper_class("Wrapper", log)
    rule = Noted()
    with register_pydispatch(op, Wrapper, rule):
        result = op(Wrapper(X))
    assert (len(rule.given), log) == (1, [f"Wrapper {op.name}"])
    np.testing.assert_array_equal(result.inner, 2 * X)


def test_a_class_whose_rule_and_handler_decline_is_followed_by_the_next(fresh, define):
    add = define(fresh, "plus(Tensor x, Tensor y) -> Tensor", CPU=lambda x, y: x + y)
    log = []
    Other = wrapper_class("Other", log)

    class Shy(wrapper_class("Shy")):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            log.append("Shy")
            return NotImplemented

    rule = Noted()
    with register_pydispatch(add, Shy, rule):
        add(Shy(X), Other(X))
        assert log == ["Shy", f"Other {add.name}"]
        assert rule.given[0][2] == (Shy, Other)
        with pytest.raises(NoHandlerError, match="Shy"):
            add(Shy(X), X)


def test_rules_of_modes_go_before_rules_of_subclasses(op):
    log = []
    Wrapper = wrapper_class("Wrapper")
    answer = Wrapper(X)

    def of_mode(mode, func, types, args, kwargs):
        log.append("mode")
        return func(*args, **kwargs)

    def of_class(cls, func, types, args, kwargs):
        log.append("class")
        return answer

    with register_pydispatch(op, Recorder, of_mode), register_pydispatch(op, Wrapper, of_class), Recorder():
        assert op(Wrapper(X)) is answer
    assert log == ["mode", "class"]


def test_a_rule_of_a_subclass_is_below_the_tape_where_composites_are_taken_apart(fresh, define):
    composite = define(fresh, "f(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: NP.exp(NP.negative(x)))
    log = []
    Wrapper = wrapper_class("Wrapper", log)
    rule = Noted(Wrapper(X))
    with register_pydispatch(composite, Wrapper, rule):
        composite(Wrapper(X))
        assert (log, rule.given) == (["Wrapper np::negative", "Wrapper np::exp"], [])
        with exclude_keys("Autograd"):
            assert composite(Wrapper(X)) is rule.answer
    assert len(rule.given) == 1


def test_the_same_rule_object_for_several_classes(op):
    Wrapper = wrapper_class("Wrapper")
    rule = Noted(X.copy())
    with register_pydispatch(op, Wrapper, rule), register_pydispatch(op, Recorder, rule):
        op(Wrapper(X))
        with Recorder() as mode:
            op(X)
    assert [given[0] for given in rule.given] == [Wrapper, mode]


# --- registering ------------------------------------------------------------------------------------------------


def test_of_two_rules_for_a_pair_the_newest_is_in_force_until_it_is_removed(op):
    # In PyTorch a second `py_impl` for a class fails an assertion.
    first, second = Noted(X.copy()), Noted(X.copy())
    with register_pydispatch(op, Recorder, first), Recorder():
        with pytest.warns(OverrideWarning, match=rf"{op.name}[\s\S]*Recorder"):
            handle = register_pydispatch(op, Recorder, second)
        op(X)
        assert (len(first.given), len(second.given)) == (0, 1)
        handle.remove()
        op(X)
        assert (len(first.given), len(second.given)) == (1, 1)


def test_a_handle_undoes_exactly_its_own_rule(op):
    class Other(Recorder):
        pass

    rules = {cls: Noted(X.copy()) for cls in (Recorder, Other)}
    handles = {cls: register_pydispatch(op, cls, rule) for cls, rule in rules.items()}
    handles[Recorder].remove()
    handles[Recorder].remove()
    for cls in rules:
        with cls():
            op(X)
    assert {cls: len(rule.given) for cls, rule in rules.items()} == {Recorder: 0, Other: 1}
    handles[Other].remove()


def test_registering_and_removing_between_calls_takes_effect_at_once(op):
    with Recorder() as mode:
        for expected in range(1, 4):
            rule = Noted(X.copy())
            with register_pydispatch(op, Recorder, rule):
                op(X)
            assert len(rule.given) == 1
            op(X)
            assert len(mode.calls) == expected


REFUSED = {
    "a mode instead of its class": (lambda: (Recorder("some mode"), Noted()), "some mode"),
    "neither mode nor Tensor": (lambda: (int, Noted()), "int"),
    "Tensor itself": (lambda: (Tensor, Noted()), "Tensor"),
    "a subclass without a handler": (lambda: (type("Plain", (Tensor,), {}), Noted()), "Plain"),
    "no function": (lambda: (Recorder, "rule"), "rule"),
}


@pytest.mark.parametrize(("arguments", "text"), REFUSED.values(), ids=REFUSED)
def test_refused(op, arguments, text):
    with pytest.raises((RegistrationError, TypeError), match=rf"{text}"):
        register_pydispatch(op, *arguments())
    np.testing.assert_array_equal(op(X), 2 * X)


def test_a_rule_may_come_before_its_operator(fresh, define):
    name, rule = f"{fresh.namespace}::later", Noted("answer")
    with register_pydispatch(name, Recorder, rule):
        op = define(fresh, "later(Tensor x) -> str", CPU=lambda x: "kernel")
        with Recorder():
            assert op(X) == "answer"
    with Recorder():
        assert op(X) == "kernel"


# --- rules of transforms ----------------------------------------------------------------------------------------


class Counting(_core.PythonInterpreter):
    """A transform that passes every call on, and lists its operators."""

    def __init__(self, name, site=None):
        self.operators = []

    def process(self, func, args, kwargs):
        self.operators.append(str(func.name))
        result = func(*(value.array if isinstance(value, Tensor) else value for value in args), **kwargs)
        return _core.wrap_value_at(self, result)


def run_at(cls, function):
    """Call a function with a value of a new interpreter, which is returned."""
    interpreter = cls("counting")
    with interpreter:
        function(_core.wrap_value_at(interpreter, X))
    return interpreter


def test_a_rule_of_a_transform_is_looked_up_by_its_class(op):
    given = []

    def rule(interpreter, func, args, kwargs):
        given.append((interpreter, func, kwargs))
        return X.copy()

    with register_pydispatch(op, Counting, rule):
        interpreter = run_at(Counting, lambda x: (op(x, times=5), NP.exp(x)))
    assert given == [(interpreter, op, {"times": 5})]
    assert interpreter.operators == ["np::exp"]


def test_a_rule_of_a_transform_is_of_the_exact_class(op):
    class Derived(Counting):
        pass

    rule = Noted(X.copy())
    with register_pydispatch(op, Counting, rule):
        interpreter = run_at(Derived, op)
    assert (interpreter.operators, rule.given) == ([str(op.name)], [])


def test_a_composite_comes_to_a_transform_in_pieces_and_to_its_rule_whole(fresh, define):
    composite = define(fresh, "f(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: NP.exp(NP.negative(x)))
    given = []

    def rule(interpreter, func, args, kwargs):
        given.append(func)
        return X.copy()

    assert run_at(Counting, composite).operators == ["np::negative", "np::exp"]
    with register_pydispatch(composite, Counting, rule):
        assert run_at(Counting, composite).operators == []
    assert given == [composite]


# --- py_impl ----------------------------------------------------------------------------------------------------


def test_py_impl_for_a_key_is_an_ordinary_kernel(fresh, define):
    # In PyTorch it has no effect until a Python dispatcher is turned on.
    op = define(fresh, "f(Tensor x, *, int times=2) -> Tensor")

    @op.py_impl("CPU")
    def kernel(x, times=2):
        assert type(x) is np.ndarray
        return x * times

    np.testing.assert_array_equal(op(X), 2 * X)
    assert type(op(Tensor(X))) is Tensor
    assert op.has_kernel("CPU")
    np.testing.assert_array_equal(kernel(X), 2 * X)


def test_py_impl_for_a_key_object_and_an_alias(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor")
    op.py_impl(DispatchKey.CompositeImplicitAutograd)(lambda x: NP.exp(x))
    with Recorder() as mode:
        op(X)
    assert mode.operators == ["np::exp"]


PY_IMPL_REFUSED = {
    "the Python key r1.3": (lambda: "Python", r"Python[\s\S]*class"),
    "the Python key as an object": (lambda: DispatchKey.Python, r"Python[\s\S]*class"),
    "a class": (lambda: Recorder, r"takes neither a class(.|\n)*register_pydispatch\('t\w+::\w+', Recorder, rule\)"),
}


@pytest.mark.parametrize(("key", "text"), PY_IMPL_REFUSED.values(), ids=PY_IMPL_REFUSED)
def test_py_impl_refuses(op, key, text):
    with pytest.raises((RegistrationError, TypeError), match=text):
        op.py_impl(key())(lambda *args, **kwargs: None)
    np.testing.assert_array_equal(op(X), 2 * X)


def test_py_impl_twice_for_a_key_is_what_registering_twice_is(fresh, define):
    op = define(fresh, "f(Tensor x) -> str", CPU=lambda x: "first")
    with pytest.warns(OverrideWarning):
        op.py_impl("CPU")(lambda x: "second")
    assert op(X) == "second"


def test_a_kernel_that_calls_its_own_operator_goes_to_the_next_entry(op):
    # In PyTorch such a kernel recurses, unless it turns the Python dispatcher off.

    def rule(mode, func, types, args, kwargs):
        return op(*args, times=kwargs.get("times", 2) + 1)

    with register_pydispatch(op, Recorder, rule), Recorder("outer"), Recorder("inner"):
        np.testing.assert_array_equal(op(X), 4 * X)


def test_a_rule_outlives_no_definition(new_library, define):
    library = new_library()
    with library:
        op = define(library, "f(Tensor x) -> str", CPU=lambda x: "kernel")
        handle = register_pydispatch(op, Recorder, Noted("rule"))
        with Recorder():
            assert op(X) == "rule"
        handle.remove()
    with Library(library.namespace, "FRAGMENT") as again:
        op = define(again, "f(Tensor x) -> str", CPU=lambda x: "kernel")
        with Recorder():
            assert op(X) == "kernel"


def test_modes_with_rules_under_a_transform(op):
    rule = Noted()
    with register_pydispatch(op, Recorder, rule):
        def function(x):
            with Recorder():
                return NP.sum(NP.multiply(x, x))

        np.testing.assert_array_equal(func.grad(function)(X), 2 * X)
    assert rule.given == []


def test_shells_reach_rules(op):
    class Other(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **kwargs)

    shell = Shell(X)
    rule = Noted(shell)
    with register_pydispatch(op, Other, rule), Other():
        assert op(shell) is shell
