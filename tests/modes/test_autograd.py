"""Modes and derivatives: the tape below every mode, transforms where they were entered."""

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, autograd, below_autograd, func, ops
from pydispatch._core import Wrapper, is_array
from pydispatch.autograd import Function, inference_mode, no_grad
from pydispatch.autograd.values import bottom_of
from pydispatch.exceptions import AutogradError, UntrackedResultWarning
from pydispatch.modes import mode_stack
from pydispatch.tree import tree_leaves
from tests.modes.recorders import Declining, Polite, Recorder, Whole, wrapper_class
from tests.together import together
from tests.warning_filters import all_warnings

NP = ops.np
X = np.array([0.5, -1.5, 2.0])
W = np.array([3.0, 1.0, -2.0])


def leaf(value=X):
    return Tensor(value.copy(), requires_grad=True)


def close(actual, desired):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(desired), rtol=1e-14, atol=0)


class SinIsCos(Recorder):
    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.note(func, types, args, kwargs)
        return NP.cos(*args) if func is NP.sin.default else func(*args, **kwargs)


# --- where the way back starts ---------------------------------------------------------------------------------------


class Follower(DispatchMode):
    """Knows the arrays that it was given and those that seen operators have made, and collects any others."""

    def __init__(self, *given):
        self.known = {}
        self.others = []
        for value in given:
            self.learn(value)

    def learn(self, value):
        array = bottom_of(value)
        while isinstance(array, np.ndarray):
            self.known[id(array)] = array
            array = array.base

    def knows(self, value):
        array = bottom_of(value)
        while isinstance(array, np.ndarray):
            if id(array) in self.known:
                return True
            array = array.base
        return False

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.others += [func for leaf in tree_leaves((args, kwargs)) if is_array(leaf) and not self.knows(leaf)]
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if is_array(made):
                self.learn(made)
        return result


def cubes(x):
    return (x * x * x).sum()


def square_and_sum(x):
    return x * x, x.sum()


def tracked(function):
    return lambda x: function(Tensor(bottom_of(x), requires_grad=True))


STARTS = {
    "backward": tracked(lambda x: cubes(x).backward()),
    "backward of one element": tracked(lambda x: (x * x).sum(keepdims=True).backward()),
    "backward, create_graph": tracked(lambda x: cubes(x).backward(create_graph=True)),
    "backward in some": tracked(lambda x: autograd.backward(cubes(x), inputs=[x])),
    "autograd.grad": tracked(lambda x: autograd.grad(cubes(x), x)),
    "autograd.grad, create_graph": tracked(lambda x: autograd.grad(cubes(x), x, create_graph=True)),
    "autograd.grad inside of grad": lambda x: func.grad(
        lambda x: autograd.grad(cubes(x), x, create_graph=True)[0].sum())(x),
    "grad": func.grad(cubes),
    "value_and_grad": func.value_and_grad(cubes),
    "grad, containers": lambda x: func.grad(lambda xs: cubes(xs["a"]))({"a": x}),
    "grad of grad": func.grad(lambda x: func.grad(cubes)(x).sum()),
    "grad in vmap": lambda x: func.vmap(func.grad(cubes))(ops.np.reshape(x, (1, 3))),
    "grad of vmap": lambda x: func.grad(lambda x: func.vmap(cubes)(x).sum())(ops.np.reshape(x, (1, 3))),
    "grad in jvp": lambda x: func.jvp(func.grad(cubes), (x,), (x,)),
    "grad by what is not used": lambda x: func.grad(lambda x, y: cubes(x), argnums=1)(x, x),
    "linearize": lambda x: func.linearize(square_and_sum, x)[1](x),
    "vjp of what is not used": lambda x: func.vjp(lambda x, y: x * x, x, x)[1](x),
    "jacrev": func.jacrev(square_and_sum),
    "jacrev of one element": func.jacrev(cubes),
    "jacrev in chunks": func.jacrev(square_and_sum, chunk_size=2),
    "jacrev row by row": func.jacrev(square_and_sum, chunk_size=1),
    "jacrev by what is not used": lambda x: func.jacrev(lambda x, y: x * x, argnums=(0, 1))(x, x),
    "jacrev in vmap": lambda x: func.vmap(func.jacrev(square_and_sum))(ops.np.reshape(x, (1, 3))),
    "jacfwd": func.jacfwd(square_and_sum),
    "jacfwd by two": lambda x: func.jacfwd(lambda x, y: x * y, argnums=(0, 1))(x, x),
    "jacfwd in vmap": lambda x: func.vmap(func.jacfwd(square_and_sum))(ops.np.reshape(x, (1, 3))),
    "hessian": func.hessian(cubes),
    "jacrev of jacrev": func.jacrev(func.jacrev(cubes)),
    "jvp to a constant": lambda x: func.jvp(lambda x: ops.np.ones(3), (x,), (x,))[1] * x,
}


@together("start", STARTS.values(), ids=list(STARTS))
def test_what_derivatives_start_from_is_made_by_operators(start):
    x = Tensor(X.copy())
    with Follower(x) as follower:
        results = start(x)
        for array in filter(is_array, tree_leaves(results)):        # the zeros, too, that are handed out
            ops.np.negative(array)
    assert follower.others == []


@together("start", STARTS.values(), ids=list(STARTS))
def test_of_a_raw_array_too(start):
    x = X.copy()
    with Follower(x) as follower:
        start(x)
    assert follower.others == []


# --- above the tape ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_what_a_handler_calls_is_recorded(depth):
    x, modes = leaf(), [Recorder() for _ in range(depth)]
    for mode in modes:
        mode.__enter__()
    y = x * x
    for mode in reversed(modes):
        mode.__exit__(None, None, None)
    assert all(mode.operators == ["np::multiply"] for mode in modes)
    assert all(mode.calls[0].args[0] is x for mode in modes)
    assert "Multiply" in repr(y.grad_fn)
    y.backward(Tensor(W))
    close(x.grad, 2 * X * W)


def test_the_gradient_is_that_of_what_the_handler_did():
    # In PyTorch modes are below autograd, and the derivative is still that of the operator that was called.
    x = leaf()
    with SinIsCos():
        y = NP.sin(x)
    close(y.array, np.cos(X))
    y.backward(Tensor(W))
    close(x.grad, -np.sin(X) * W)


def test_several_operators_in_a_handler():
    class Squaring(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **kwargs)
            return NP.multiply(result, result)

    x = leaf()
    with Squaring():
        y = NP.exp(x)
    y.backward(Tensor(W))
    close(x.grad, 2 * np.exp(2 * X) * W)


def test_a_handler_may_use_the_switches_of_the_tape():
    class Quiet(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            with no_grad():
                assert mode_stack() == ()
                return func(*args, **kwargs)

    x = leaf()
    with Quiet(), pytest.warns(UntrackedResultWarning, match="Quiet"):
        y = x * x
    assert not y.requires_grad


@pytest.mark.parametrize("guard", [no_grad, inference_mode, below_autograd], ids=lambda guard: guard.__name__)
def test_switches_outside_hold_in_a_handler(guard):
    x = leaf()
    with Recorder() as mode, guard():
        y = x * x
    with guard(), mode:
        z = x * x
    assert mode.operators == ["np::multiply"] * 2
    assert not y.requires_grad
    assert not z.requires_grad


def test_declined_calls_are_recorded():
    x = leaf()
    with Declining() as mode:
        y = x * x
    assert mode.operators == ["np::multiply"]
    y.backward(Tensor(W))
    close(x.grad, 2 * X * W)


def test_writes_in_place_are_recorded_and_keep_their_object():
    x = leaf()
    with Recorder() as mode:
        y = kept = x * 1.0
        y *= x
    assert y is kept
    assert mode.operators == ["np::multiply", "np::multiply_"]
    y.backward(Tensor(W))
    close(x.grad, 2 * X * W)


def test_composites_are_recorded_in_pieces_and_whole(fresh, define):
    op = define(
        fresh, "cube(Tensor x) -> Tensor", CompositeImplicitAutograd=lambda x: NP.multiply(NP.multiply(x, x), x))
    for make in (Recorder, Whole):
        x = leaf()
        with make():
            y = op(x)
        y.backward(Tensor(W))
        close(x.grad, 3 * X**2 * W)


def test_subclasses_are_below_the_tape_and_modes_above_it():
    log = []
    Holder = wrapper_class("Holder", log)
    x = Holder(X, requires_grad=True)
    with Recorder("mode", log) as mode:
        y = NP.multiply(x, 2.0)
        assert log == ["mode np::multiply", "Holder np::multiply"]
        assert y.requires_grad
        assert mode.calls[0].types == (Holder,)


def test_functions_of_authors_run_under_the_modes_of_their_call():
    seen = []

    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append(mode_stack())
            return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            seen.append(mode_stack())
            return gradient * 2.0

    x = leaf()
    forward, backward = Recorder("forward"), Recorder("backward")
    with forward:
        y = Double.apply(x)
    with backward:
        y.backward(Tensor(W))
    assert seen == [(forward,), (backward,)]
    assert forward.operators == ["np::multiply"]
    assert "np::multiply" in backward.operators
    close(x.grad, 2 * W)


# --- results that the tape knows nothing of ---------------------------------------------------------------------


def constant_mode(name="Constant", base=DispatchMode):
    """Return a mode whose handler returns a constant of the shape of its first argument."""

    def __pydispatch__(self, func, types, args=(), kwargs=None):  # noqa: N807
        return Tensor(np.ones(np.shape(args[0].array if isinstance(args[0], Tensor) else args[0])))

    return type(name, (base,), {"__pydispatch__": __pydispatch__})


def untracked(run):
    """Return how many UntrackedResultWarnings a function gives, with their texts."""
    with all_warnings() as caught:
        run()
    assert all(warning.category is UntrackedResultWarning for warning in caught)
    return [str(warning.message) for warning in caught]


def test_a_result_that_did_not_come_from_func_warns_once_per_mode_class_and_operator():
    First, Second = constant_mode("First"), constant_mode("Second")
    x = leaf()

    def run(mode, op):
        with mode:
            assert not op(x).requires_grad

    text, = untracked(lambda: run(First(), NP.exp))
    assert "np::exp" in text.splitlines()[0]
    assert "First" in text.splitlines()[0]
    assert len(text.splitlines()) >= 2
    assert untracked(lambda: run(First(), NP.exp)) == []                # another object of the same class
    assert len(untracked(lambda: run(First(), NP.sin))) == 1            # another operator
    assert len(untracked(lambda: run(Second(), NP.exp))) == 1           # another class
    assert len(untracked(lambda: run(constant_mode("Third", First)(), NP.exp))) == 1
    assert untracked(lambda: run(First(), NP.exp) or run(Second(), NP.exp)) == []


QUIET = {
    "nothing is tracked": lambda mode: NP.exp(Tensor(X)),
    "a raw array": lambda mode: NP.exp(X),
    "no_grad": lambda mode: no_grad()(NP.exp)(leaf()),
    "an integer result": lambda mode: NP.argmax(leaf()),
    "a result without arrays": lambda mode: NP.item(Tensor(np.array(1.0), requires_grad=True)),
}


@pytest.mark.parametrize("run", QUIET.values(), ids=QUIET)
def test_no_warning_where_no_gradient_is_lost(run):
    class Answering(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            with no_grad():
                result = func(*args, **kwargs)
            return Tensor(np.array(result.array)) if isinstance(result, Tensor) else result

    with Answering() as mode:
        run(mode)


def test_no_warning_for_results_that_are_tracked():
    class Other(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return NP.multiply(args[0], 3.0)

    x = leaf()
    with Other():
        y = NP.exp(x)
    y.backward(Tensor(W))
    close(x.grad, 3 * W)


def test_no_warning_for_a_constant_of_one_level_that_is_tracked_in_another():
    class Passing(Recorder):
        pass

    def outer(x):
        def inner(y):
            with Passing():
                # a constant of the inner interpreter, over a tracked value of the outer one
                z = NP.add(NP.ones(3), x)
            return (y * z).sum()

        return func.grad(inner)(X).sum()

    close(func.grad(outer)(X), np.ones(3))


@pytest.mark.parametrize("key", ["CompositeImplicitAutograd", "CPU"])
def test_a_constant_for_an_operator_that_has_no_formula(fresh, define, key):
    op = define(fresh, "f(Tensor x) -> Tensor", **{key: lambda x: NP.exp(NP.negative(x))})
    mode = constant_mode("Whole", Whole)()
    with mode, pytest.warns(UntrackedResultWarning, match="Whole"):
        assert not op(leaf()).requires_grad


def test_a_lost_gradient_in_a_transform_warns_too():
    mode = constant_mode("Losing")()

    def function(x):
        with mode:
            y = NP.exp(x)
        return (x + y).sum()

    results = []
    assert len(untracked(lambda: results.append(func.grad(function)(X)))) == 1
    close(results[0], np.ones(3))


# --- the way back -----------------------------------------------------------------------------------------------


def test_backward_sees_the_modes_that_are_active_when_it_is_called():
    x, w = leaf(), leaf(W)
    with Recorder() as forward:
        y = x * w
    with Recorder() as backward:
        y.backward(Tensor(np.ones(3)))
    assert forward.operators == ["np::multiply"]
    assert backward.operators.count("np::multiply") == 2
    close(x.grad, W)
    close(w.grad, X)


def test_without_a_mode_at_backward_the_modes_of_forward_are_not_called():
    x = leaf()
    with Recorder() as mode:
        y = (x * x).sum()
    y.backward()
    assert mode.operators == ["np::multiply", "np::sum"]
    close(x.grad, 2 * X)


def test_forward_and_backward_in_one_block():
    x = leaf()
    with Recorder() as mode:
        y = (x * x).sum()
        count = len(mode.calls)
        y.backward()
    assert mode.operators[:count] == ["np::multiply", "np::sum"]
    assert "np::multiply" in mode.operators[count:]
    close(x.grad, 2 * X)


def test_a_mode_changes_what_backward_computes():
    x = leaf()
    y = NP.negative(NP.cos(x))
    with SinIsCos() as mode:
        y.backward(Tensor(np.ones(3)))
    assert "np::sin" in mode.operators
    close(x.grad, np.cos(X))


def test_gradients_of_gradients_are_recorded_under_modes():
    from_mode = Recorder()
    x = leaf()
    with from_mode:
        y = (x * x * x).sum()
        y.backward(create_graph=True)
    first = x.grad
    x.grad = None
    assert from_mode.operators.count("np::multiply") > 3
    close(first.array, 3 * X**2)
    first.sum().backward()
    close(x.grad, 6 * X)


def test_handlers_that_decline_leave_backward_as_it_is():
    x = leaf()
    y = (NP.exp(x) * x).sum()
    with Declining():
        y.backward()
    close(x.grad, np.exp(X) * (1 + X))


def test_every_array_that_a_mode_sees_was_made_under_it():
    known = []

    class Closed(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            self.note(func, types, args, kwargs)
            for value in args:
                assert not isinstance(value, Tensor) or any(value.array is array for array in known), func
            result = func(*args, **kwargs)
            known.append(result.array)
            return result

    x, w, cotangent = leaf(), leaf(W), Tensor(np.ones(3))
    known += [x.array, w.array, cotangent.array]
    with Closed() as mode:
        y = x * w
        y.backward(cotangent)
    assert mode.operators.count("np::multiply") == 3
    close(x.grad, W)
    close(w.grad, X)


# --- the order of entering decides ------------------------------------------------------------------------------


def inside(transform, f, mode):
    """Enter the mode in the function, so that it is further in than the transform."""

    def function(x):
        with mode:
            return f(x)

    return transform(function)


def outside(transform, f, mode):
    def run(x):
        with mode:
            return transform(f)(x)

    return run


def by_vjp(f):
    def gradient(x):
        _, pull = func.vjp(f, x)
        return pull(np.ones(()))[0]

    return gradient


def by_jvp(f):
    def gradient(x):
        basis = np.eye(len(x))
        return np.array([np.asarray(func.jvp(f, (x,), (basis[i],))[1]) for i in range(len(x))])

    return gradient


DERIVATIVES = {"grad": func.grad, "vjp": by_vjp, "jvp": by_jvp}
BOTH = pytest.mark.parametrize("transform", DERIVATIVES.values(), ids=DERIVATIVES)


@BOTH
def test_a_mode_inside_of_a_transform_sees_the_function(transform):
    mode = Recorder()
    runs = []

    def function(x):
        runs.append(x)
        return (x * x).sum()

    close(inside(transform, function, mode)(X), 2 * X)
    assert mode.operators == ["np::multiply", "np::sum"] * len(runs)
    assert all(mode.calls[2 * i].args[0] is x for i, x in enumerate(runs))


@BOTH
def test_a_mode_outside_of_a_transform_sees_what_it_computes_on_values_below(transform):
    mode = Recorder()
    close(outside(transform, lambda x: (x * x).sum(), mode)(X), 2 * X)
    assert mode.operators.count("np::multiply") > 1
    assert mode.operators[0] == "np::multiply"
    assert mode.calls[0].args[0] is X
    assert not any(isinstance(value, Wrapper) for call in mode.calls for value in call.args)


@BOTH
def test_inside_the_derivative_is_that_of_the_replacement(transform):
    close(inside(transform, lambda x: NP.sin(x).sum(), SinIsCos())(X), -np.sin(X))


@BOTH
def test_outside_the_transform_differentiates_what_was_written(transform):
    mode = SinIsCos()
    close(outside(transform, lambda x: NP.sin(x).sum(), mode)(X), np.cos(X))
    assert "np::sin" in mode.operators
    assert "np::cos" in mode.operators


def test_counts_of_one_operator_in_and_around_grad():
    log = []
    outer, inner = Recorder("outer", log), Recorder("inner", log)

    def function(x):
        with inner:
            return NP.exp(x).sum()

    with outer:
        close(func.grad(function)(X), np.exp(X))
    assert log[:4] == ["inner np::exp", "outer np::exp", "inner np::sum", "outer np::sum"]
    assert not any(line.startswith("inner") for line in log[4:])
    assert log.count("outer np::exp") == 1


def test_between_two_transforms():
    log = []
    mode = Recorder("between", log)

    def cube(x):
        return x * x * x

    def first(x):
        with mode:
            return func.grad(cube)(x)

    x = np.array(2.0)
    close(func.grad(first)(x), 12.0)
    assert log[:2] == ["between np::multiply"] * 2
    assert len(log) > 2                             # the way back of the inner one
    assert mode_stack() == ()


def test_jvp_computes_tangents_outside_of_the_mode_in_the_function():
    log = []
    outer, inner = Recorder("outer", log), Recorder("inner", log)

    def function(x):
        with inner:
            return NP.negative(x)

    with outer:
        value, tangent = func.jvp(function, (X,), (W,))
    close(value, -X)
    close(tangent, -W)
    assert log == ["inner np::negative", "outer np::negative", "outer np::negative"]


@BOTH
def test_declining_inside_and_outside(transform):
    for arrange in (inside, outside):
        close(arrange(transform, lambda x: (x * NP.exp(x)).sum(), Declining())(X), np.exp(X) * (1 + X))


@BOTH
def test_exceptions_in_the_function_and_in_handlers(transform):
    class Failing(Recorder):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            raise ZeroDivisionError

    for arrange in (inside, outside):
        with Recorder() as around:
            with pytest.raises(ZeroDivisionError):
                arrange(transform, lambda x: (x * x).sum(), Failing())(X)
            assert mode_stack() == (around,)
        close(transform(lambda x: (x * x).sum())(X), 2 * X)


@BOTH
def test_transforms_of_wrappers_of_a_subclass_inside_the_function(transform):
    log = []
    Holder = wrapper_class("Holder", log)

    def function(x):
        return NP.multiply(Holder(x), 2.0).inner.sum()

    close(transform(function)(X), 2 * np.ones(3))
    assert set(log) == {"Holder np::multiply"}


def test_a_mode_around_a_transform_and_wrappers_of_its_values():
    Holder = wrapper_class("Holder")

    def function(x):
        return NP.multiply(Holder(x), 2.0).inner.sum()

    with Recorder(), pytest.raises(AutogradError, match=r"value of grad[\s\S]*not active here"):
        func.grad(function)(X)
    with Polite() as mode:
        close(func.grad(function)(X), 2 * np.ones(3))
    assert mode.operators[:3] == ["np::multiply", "np::multiply", "np::sum"]    # declined, and then on raw arrays


def test_factories_are_seen_on_both_sides():
    log = []
    outer, inner = Recorder("outer", log), Recorder("inner", log)

    def function(x):
        with inner:
            return (NP.ones(3) * x).sum()

    with outer:
        close(func.grad(function)(X), np.ones(3))
    assert log[:2] == ["inner np::ones", "outer np::ones"]
