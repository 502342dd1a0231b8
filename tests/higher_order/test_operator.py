"""HigherOrderOperator: rules by key, transform, mode and class, the order of a call, and what is missing."""

import copy
import pickle

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, WrapperTensor, _core, exclude_keys, include_keys, ops
from pydispatch.autograd import Function, no_grad
from pydispatch.exceptions import NoDerivativeError, NoHandlerError, NoKernelError, RegistrationError, UnknownKeyError
from pydispatch.func import functionalize, grad, jvp, vmap
from pydispatch.func.transform import Transform
from pydispatch.higher_order import (
    Functionalize,
    Grad,
    HigherOrderOperator,
    Jvp,
    Vmap,
    associative_scan,
    cond,
    scan,
    while_loop,
)
from pydispatch.higher_order import map as map_slices
from pydispatch.higher_order.rules import record
from pydispatch.modes import below_autograd
from pydispatch.testing import LoggingTensor, capture_logs
from tests.higher_order import compositions

X = np.array([[0.3, -1.2], [2.0, 0.4], [0.9, -0.7]])


def below(value, interpreter):
    return _core.value_below(value, interpreter)


def make_mysum():
    """Make the smallest operator: the sum along an axis, with a rule for each transform."""
    mysum = HigherOrderOperator("mysum")

    @mysum.py_impl("CompositeExplicitAutograd")
    def base(x, axis):
        return ops.np.sum(x, axis)

    @mysum.py_impl(Vmap)
    def batched(interpreter, x, axis):
        return _core.wrap_value_at(interpreter, mysum(below(x, interpreter), axis + 1 if axis >= 0 else axis))

    class Sum(Function):
        """One interpreter alone: forward runs below, backward spreads the gradient."""

        @staticmethod
        def forward(x, axis):
            with below_autograd():
                return mysum(x, axis)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.shape, ctx.axis = inputs[0].shape, inputs[1]

        @staticmethod
        def backward(ctx, g):
            return ops.np.broadcast_to(ops.np.expand_dims(g, ctx.axis), ctx.shape) * 1.0, None

    @mysum.py_impl("Autograd")
    def on_tape(x, axis):
        return Sum.apply(x, axis)

    @mysum.py_impl(Grad)
    def differentiated(interpreter, x, axis):
        shape = x.shape
        result = _core.wrap_value_at(interpreter, mysum(below(x, interpreter), axis))

        def pull(saved, wanted, grads):
            return (ops.np.broadcast_to(ops.np.expand_dims(grads[0], axis), shape) * 1.0,)

        record(mysum, interpreter, (x,), (result,), (), pull)
        return result

    @mysum.py_impl(Jvp)
    def pushed(interpreter, x, axis):
        return _core.wrap_value_at(interpreter, mysum(below(x, interpreter), axis), mysum(_core.tangent_of(x), axis))

    return mysum


@pytest.fixture
def mysum():
    return make_mysum()


class Seen(DispatchMode):
    """Notes the higher-order operators that it sees, and the shapes of their arrays."""

    def __init__(self):
        self.calls = []

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        if isinstance(func, HigherOrderOperator):
            self.calls.append((func.name, [tuple(leaf.shape) for leaf in _leaves(args) if _core.is_array(leaf)]))
        return func(*args, **kwargs or {})


def _leaves(value):
    return [leaf for item in value for leaf in (_leaves(item) if isinstance(item, tuple) else [item])]


# --- mysum -----------------------------------------------------------------------------------------------------------


def test_operator_without_transforms(mysum):
    compositions.same(mysum(X, 0), X.sum(0))
    assert type(mysum(Tensor(X), 0)) is Tensor


def test_operator_under_vmap(mysum):
    compositions.same(vmap(lambda x: mysum(x, 0))(X), X.sum(1))


def test_operator_under_vmap_of_vmap(mysum):
    cube = np.stack([X, X * 2])
    compositions.same(vmap(vmap(lambda x: mysum(x, 0)))(cube), cube.sum(2))


def test_operator_under_grad(mysum):
    compositions.same(grad(lambda x: (mysum(x * x, 0) * np.array([1.0, 2.0])).sum())(X), 2 * X * [1.0, 2.0])


def test_operator_under_grad_of_grad(mysum):
    x = X[:, 0]
    compositions.same(grad(lambda x: grad(lambda x: mysum(ops.np.sin(x), 0))(x).sum())(x), -np.sin(x))


def test_operator_under_vmap_of_grad(mysum):
    compositions.same(vmap(grad(lambda x: mysum(ops.np.sin(x), 0)))(X), np.cos(X))


def test_operator_under_grad_of_vmap(mysum):
    compositions.same(grad(lambda x: vmap(lambda row: mysum(ops.np.sin(row), 0))(x).sum())(X), np.cos(X))


def test_operator_under_jvp(mysum):
    out, tangent = jvp(lambda x: mysum(x * x, 0), (X,), (np.ones_like(X),))
    compositions.same((out, tangent), ((X * X).sum(0), 2 * X.sum(0)))


def test_operator_under_jvp_of_grad(mysum):
    x = X[:, 0]
    compositions.same(jvp(grad(lambda x: mysum(ops.np.sin(x), 0)), (x,), (x,))[1], -np.sin(x) * x)


def test_operator_under_tape(mysum):
    x = Tensor(X, requires_grad=True)
    (mysum(x * x, 0) * np.array([1.0, 2.0])).sum().backward()
    compositions.same(x.grad, 2 * X * [1.0, 2.0])


def test_operator_under_no_grad_inside(mysum):
    def f(x):
        with no_grad():
            constant = mysum(x * x, 0)
        return (constant * x).sum()

    compositions.same(grad(f)(X), np.broadcast_to((X * X).sum(0), X.shape))


def test_operator_under_no_grad_outside(mysum):
    with no_grad():
        compositions.same(grad(lambda x: mysum(x * x, 0).sum())(X), 2 * X)


def test_operator_under_no_grad_on_the_tape(mysum):
    x = Tensor(X, requires_grad=True)
    with no_grad():
        assert not mysum(x, 0).requires_grad


def test_a_level_that_owns_nothing_is_passed(mysum):
    compositions.same(grad(lambda y: (mysum(X, 0) * y).sum())(np.ones(2)), X.sum(0))
    compositions.same(vmap(lambda y: mysum(X, 0) * y)(np.ones((3, 2))), np.stack([X.sum(0)] * 3))


# --- what is missing -------------------------------------------------------------------------------------------------

TRANSFORMS = {
    "vmap": (vmap, NoKernelError, "Vmap"),
    "grad": (lambda f: grad(lambda x: f(x).sum()), NoDerivativeError, "Grad"),
    "jvp": (lambda f: lambda x: jvp(f, (x,), (x,)), NoDerivativeError, "Jvp"),
    "functionalize": (functionalize, NoKernelError, "Functionalize"),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_missing_rule_of_a_transform(name):
    transform, error, cls = TRANSFORMS[name]
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda x: x * 2)
    with pytest.raises(error) as raised:
        transform(bare)(X)
    message = str(raised.value)
    assert isinstance(raised.value, NotImplementedError)
    assert message.startswith(f"operator bare has no rule for {name}, called at {__file__}:")
    assert "rules are registered for: CPU" in message
    assert message.endswith(f"@bare.py_impl(higher_order.{cls})")


def test_the_message_names_a_transform_of_a_user():
    class Doubling(Transform):
        pass

    bare = HigherOrderOperator("bare")
    message = r"bare has no rule for Doubling, called at (.|\n)*@bare.py_impl\(Doubling\)"
    with Doubling() as interpreter, pytest.raises(NoKernelError, match=message):
        bare(interpreter.wrap(X))


def test_missing_rule_of_the_tape():
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda x: x * 2)
    with pytest.raises(NoDerivativeError, match=r'bare has no rule for the tape(.|\n)*@bare.py_impl\("Autograd"\)'):
        bare(Tensor(X, requires_grad=True))
    compositions.same(bare(Tensor(X)), X * 2)


def test_missing_rule_of_a_backend(backends):
    bare = HigherOrderOperator("bare")
    with pytest.raises(NoKernelError, match=r"bare: no rule for the key CPU\nno rules are registered for it"):
        bare(X)
    bare.py_impl("CPU")(lambda x: x)
    with pytest.raises(NoKernelError, match=r'no rule for the key A\nrules are registered for: CPU(.|\n)*impl\("A"\)'):
        bare(backends.ArrayA([1.0]))


# --- duplicates and places that are none -----------------------------------------------------------------------------


class Plain(DispatchMode):
    def __pydispatch__(self, func, types, args=(), kwargs=None):
        return NotImplemented


class Wrapped(WrapperTensor):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


@pytest.mark.parametrize("place", ["CPU", "Autograd", "CompositeExplicitAutograd", Vmap, Grad, Jvp, Functionalize,
                                   Plain, Wrapped], ids=str)
def test_duplicate_rules(place):
    bare = HigherOrderOperator("bare")
    bare.py_impl(place)(len)
    with pytest.raises(RegistrationError, match=f"a rule for .* is already registered, at {__file__}"):
        bare.py_impl(place)(max)
    assert bare.rule_for(place) is len


@pytest.mark.parametrize(("place", "error", "message"), [
    ("Python", RegistrationError, "covers all modes and classes"),
    (int, RegistrationError, "got the class int, expected one of a transform, a mode or a Tensor"),
    ("Nonsense", UnknownKeyError, "Nonsense"),
], ids=["Python", "class", "text"])
def test_rules_for_what_takes_none(place, error, message):
    with pytest.raises(error, match=message):
        HigherOrderOperator("bare").py_impl(place)


@pytest.mark.parametrize("name", ["", None, 3])
def test_name(name):
    with pytest.raises(RegistrationError, match="HigherOrderOperator: the name is"):
        HigherOrderOperator(name)


def test_py_impl_returns_the_function():
    assert HigherOrderOperator("bare").py_impl("CPU")(len) is len


# --- keys ------------------------------------------------------------------------------------------------------------


def test_keys_follow_the_precedence_of_operators(backends):
    bare = HigherOrderOperator("bare")
    bare.py_impl("CompositeExplicitAutograd")(lambda x: "explicit")
    bare.py_impl("A")(lambda x: "A")
    assert bare(X) == "explicit"
    assert bare(backends.ArrayA([1.0])) == "A"
    assert bare(backends.ArrayB([1.0])) == "explicit"
    assert bare.rule_for("Meta") is None


def test_composite_runs_at_every_level():
    twice = HigherOrderOperator("twice")
    twice.py_impl("CompositeImplicitAutograd")(lambda f, x: f(f(x)))
    compositions.same(grad(lambda x: twice(ops.np.sin, x).sum())(X), np.cos(np.sin(X)) * np.cos(X))
    compositions.same(vmap(lambda x: twice(ops.np.cumsum, x))(X), np.cumsum(np.cumsum(X, 1), 1))


def test_without_arrays_the_default_backend_runs():
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda n: n + 1)
    assert bare(3) == 4


def test_arrays_in_containers_count(backends):
    bare = HigherOrderOperator("bare")
    bare.py_impl("A")(lambda items, **named: "A")
    assert bare([{"x": (backends.ArrayA([1.0]), 3)}]) == "A"
    assert bare([], other=backends.ArrayA([1.0])) == "A"


def test_a_key_that_falls_through_until_there_is_a_rule(tracer):
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda x: "CPU")
    with include_keys(tracer):
        assert bare(X) == "CPU"

    @bare.py_impl(tracer)
    def traced(x):
        with exclude_keys(tracer):
            return "traced", bare(x)

    with include_keys(tracer):
        assert bare(X) == ("traced", "CPU")
    assert bare(X) == "CPU"


def test_autograd_rule_of_one_backend_comes_before_the_alias(backends):
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda x: x)
    bare.py_impl("Autograd")(lambda x: "alias")
    bare.py_impl("AutogradCPU")(lambda x: "own")
    assert bare(Tensor(X, requires_grad=True)) == "own"


# --- modes -----------------------------------------------------------------------------------------------------------


def program(x):
    return cond(x.sum() > 0, ops.np.sin, lambda x: x * 2.0, (x,))


def test_mode_inside_sees_one_example():
    def f(x):
        with mode:
            return program(x)

    mode = Seen()
    vmap(f)(X)
    assert mode.calls == [("cond", [(), (2,)])]


def test_mode_outside_sees_what_the_level_makes_of_it():
    with Seen() as mode:
        vmap(lambda x: cond(np.array(True), ops.np.sin, lambda x: x * 2.0, (x,)))(X)
    assert mode.calls == [("cond", [(), (3, 2)])]


def test_mode_outside_of_a_batched_predicate_sees_a_choice():
    with Seen() as mode:
        vmap(program)(X)
    assert mode.calls == []


def test_mode_between_two_levels():
    def f(x):
        with mode:
            return grad(lambda x: program(x).sum())(x)

    mode = Seen()
    vmap(f)(X)
    assert mode.calls == [("cond", [(), (2,)]), ("cond", [(), (2,), (2,)])]     # forward, and its gradient


def test_each_level_sees_one_operator():
    def step(c, x):
        return ops.np.tanh(c + x), c * x

    with Seen() as outside:
        def f(x):
            with inside:
                return scan(step, np.zeros(2), x)[0].sum()

        inside = Seen()
        grad(f)(X)
    assert [name for name, _ in inside.calls] == ["scan"]
    assert [name for name, _ in outside.calls] == ["scan", "scan"]


def test_rule_for_a_mode():
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda x: "CPU")
    bare.py_impl(Plain)(lambda mode, x: ("Plain", bare(x)))
    with Plain():
        assert bare(X) == ("Plain", "CPU")


def test_mode_that_declines():
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda x: "CPU")
    with Plain():
        assert bare(X) == "CPU"
    with Seen() as mode, Plain():
        assert bare(X) == "CPU"
    assert mode.calls == [("bare", [(3, 2)])]


# --- classes of Tensors ----------------------------------------------------------------------------------------------


def test_class_that_declines():
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda x: "CPU")
    with pytest.raises(NoHandlerError, match=r"bare: every handler declined .*, in this order: Wrapped"):
        bare(Wrapped(Tensor(X)))


def test_rule_for_a_class():
    bare = HigherOrderOperator("bare")
    bare.py_impl("CPU")(lambda x: "CPU")
    bare.py_impl(Wrapped)(lambda cls, x: (cls, bare(x.inner)))
    assert bare(Wrapped(Tensor(X))) == (Wrapped, "CPU")


def test_handler_of_a_class_gets_the_operator():
    class Unwrapping(WrapperTensor):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            return func(*[tuple([item.inner for item in arg]) if type(arg) is tuple else arg for arg in args])

    x = Unwrapping(Tensor(X))
    compositions.same(cond(np.array(True), lambda x: x * 2, lambda x: x * 3, (x,)), X * 2)


# --- Functions inside ------------------------------------------------------------------------------------------------


class Cube(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3.0 * x * x * g


def test_handler_that_corrects_aliasing():
    x = LoggingTensor(X)
    with capture_logs() as log:
        found = cond(x.sum() > 0, lambda x: x * 2, lambda x: x * 3, (x,))
    assert type(found) is LoggingTensor
    np.testing.assert_array_equal(found.elem.array, X * 2, strict=True)
    assert " = cond(" in log[-1]


def test_function_of_a_captured_value():
    def f(x):
        return cond(x.sum() > 0, lambda: Cube.apply(x), lambda: x * 2.0, ()).sum()

    compositions.same(grad(f)(X), 3 * X * X)
    compositions.same(vmap(grad(f))(np.stack([X, -X - 1])), np.stack([3 * X * X, np.full_like(X, 2.0)]))


# --- an object -------------------------------------------------------------------------------------------------------


def test_pickles_and_copies_are_the_operator_itself(mysum):
    assert pickle.loads(pickle.dumps(mysum)) is mysum
    assert copy.deepcopy(mysum) is mysum


def test_pickle_of_an_operator_that_is_gone():
    data = pickle.dumps(HigherOrderOperator("gone"))
    with pytest.raises(NoKernelError, match="there is no higher-order operator gone"):
        pickle.loads(data)


def test_repr(mysum):
    assert repr(mysum) == "<HigherOrderOperator mysum>"


def test_value_of_a_transform_elsewhere(mysum):
    kept = []
    vmap(lambda x: kept.append(x) or x * 1)(X)
    with pytest.raises(Exception, match="vmap"):
        mysum(kept[0], 0)


# --- the operators behind the functions ------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [cond, scan, while_loop, map_slices, associative_scan], ids=lambda f: f.__name__)
def test_the_functions_lead_to_their_operators(function):
    assert isinstance(function.operator, HigherOrderOperator)
    assert function.operator.name == function.__name__
    assert function.py_impl.__self__ is function.operator
