"""Function: styles, context, what apply takes and returns, errors, interpreters."""

import gc
import itertools
import weakref
from collections import namedtuple

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops
from pydispatch.autograd import Function, once_differentiable
from pydispatch.exceptions import DispatchError, NoDerivativeError
from pydispatch.func import grad, jvp, vjp
from pydispatch.testing import gradcheck, gradgradcheck
from tests.comparing import close, is_raw

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.5, -0.7])
ONE, TWO, THREE = np.array(1.0), np.array(2.0), np.array(3.0)
Pair = namedtuple("Pair", ["first", "second"])


def tracked(array=X):
    return Tensor(np.array(array), requires_grad=True)


def not_a_leaf(array=X):
    return tracked(array) * 1.0


def define_function(forward, backward=None, jvp=None, setup=None, name="Sample", **attributes):
    """Return a Function of the new style out of functions."""
    body = {"forward": forward, "backward": backward, "jvp": jvp, "setup_context": setup or (lambda *_: None)}
    methods = {method: staticmethod(function) for method, function in body.items() if function is not None}
    return type(name, (Function,), methods | attributes)


def copied(x):
    return np.array(x)


class Sine(Function):
    """Of the new style: forward knows nothing of a context."""

    @staticmethod
    def forward(x):
        return np.sin(np.asarray(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * Cosine.apply(x)

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * Cosine.apply(x)


class Cosine(Sine):
    """The derivative of Sine."""

    @staticmethod
    def forward(x):
        return np.cos(np.asarray(x))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -g * Sine.apply(x)

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return -tangent * Sine.apply(x)


class SineOldStyle(Function):
    """Of the old style: forward gets the context."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return np.sin(np.asarray(x))

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ops.np.cos(x)

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * ops.np.cos(x)


STYLES = {"new": Sine, "old": SineOldStyle}


# --- both styles, eager -------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", STYLES.values(), ids=STYLES)
def test_eager_value_and_gradient(function):
    x = tracked()
    y = function.apply(x)
    assert type(y) is Tensor
    assert y.requires_grad
    y.sum().backward()
    close(y.detach(), np.sin(X))
    close(x.grad, np.cos(X))


@pytest.mark.parametrize("function", STYLES.values(), ids=STYLES)
def test_eager_checks(function):
    assert gradcheck(function.apply, (tracked(),))
    assert gradgradcheck(function.apply, (tracked(),))


@pytest.mark.parametrize("function", STYLES.values(), ids=STYLES)
def test_what_you_pass_is_what_you_get(function):
    assert is_raw(function.apply(X))
    untracked = function.apply(Tensor(X))
    assert type(untracked) is Tensor
    assert not untracked.requires_grad
    assert untracked.grad_fn is None
    with autograd.no_grad():
        assert not function.apply(tracked()).requires_grad


@pytest.mark.parametrize("function", STYLES.values(), ids=STYLES)
def test_name_of_the_node(function):
    assert function.apply(tracked()).grad_fn.name == f"{function.__name__}Backward"


@pytest.mark.parametrize("function", STYLES.values(), ids=STYLES)
def test_edges_of_the_node(function):
    x = not_a_leaf()
    ((node, index),) = function.apply(x).grad_fn.next_functions
    assert node is x.grad_fn
    assert index == 0


def test_node_has_one_edge_per_argument():
    function = define_function(lambda x, n, y: np.asarray(x) * n * np.asarray(y), lambda ctx, g: (g, None, g))
    x = not_a_leaf()
    edges = function.apply(x, 2, X).grad_fn.next_functions
    assert edges[0][0] is x.grad_fn
    assert all(node is None for node, _ in edges[1:])


def test_inherited_function_has_its_own_name_and_rules():
    x = tracked()
    y = Cosine.apply(x)
    assert y.grad_fn.name == "CosineBackward"
    y.sum().backward()
    close(x.grad, -np.sin(X))


def test_gradient_accumulates_with_that_of_operators():
    x = tracked()
    (Sine.apply(x) * x + Sine.apply(x)).sum().backward()
    close(x.grad, np.cos(X) * X + np.sin(X) + np.cos(X))


# --- how apply is called ------------------------------------------------------------------------------------


def test_instance_is_not_called():
    with pytest.raises((TypeError, RuntimeError), match="apply"):
        Sine()(X)


def test_keyword_arguments_are_refused():
    with pytest.raises(TypeError):
        Sine.apply(x=X)


def test_without_forward():
    empty = type("Empty", (Function,), {})
    with pytest.raises(NotImplementedError, match=r"Empty.*forward"):
        empty.apply(X)


def test_backward_has_no_other_name():
    # PyTorch's alias `vjp` is not a derivative here.
    function = type("ByVjp", (Function,), {
        "forward": staticmethod(lambda x: np.asarray(x) * 2), "setup_context": staticmethod(lambda *_: None),
        "vjp": staticmethod(lambda ctx, g: g * 2),
    })
    y = function.apply(tracked()).sum()
    with pytest.raises(NoDerivativeError, match=r"(?s)ByVjp has no backward staticmethod.*define backward\(ctx"):
        y.backward()


def test_arguments_that_are_no_arrays_are_passed_on():
    seen = []

    def forward(x, *others):
        seen.append(others)
        return np.asarray(x) * 2

    others = ("text", 3, None, {"k": (1, 2)}, np.sin)
    function = define_function(forward, lambda ctx, g: (g, *[None] * 5))
    x = tracked()
    function.apply(x, *others).sum().backward()
    assert seen == [others]
    close(x.grad, np.ones(3))


def test_defaults_of_forward_are_among_the_inputs():
    seen = []

    def forward(x, index=(2,)):
        return np.array(np.asarray(x)[index])

    def setup(ctx, inputs, output):
        seen.append(inputs[1:])
        ctx.shape, ctx.index = inputs[0].shape, inputs[1]

    def backward(ctx, g):
        result = ops.np.zeros_like(g, shape=ctx.shape)
        result[ctx.index] = g
        return result, None

    function = define_function(forward, backward, setup=setup)
    x = tracked()
    function.apply(x).backward()
    function.apply(x, (1,)).backward()
    close(x.grad, [0.0, 1.0, 1.0])
    assert seen == [((2,),), ((1,),)]


def test_number_of_arguments_is_that_of_forward():
    with pytest.raises(TypeError):
        Sine.apply(X, Y)
    with pytest.raises(TypeError):
        Sine.apply()


# --- grad mode ----------------------------------------------------------------------------------------------


def test_grad_mode_in_each_method():
    modes = {}

    def note(name, result=None):
        modes[name] = autograd.is_grad_enabled()
        return result

    function = define_function(
        lambda x: note("forward", np.asarray(x) * 2), lambda ctx, g: note("backward", g * 2),
        setup=lambda ctx, inputs, output: note("setup_context"))
    x = tracked()
    y = function.apply(x).sum()
    y.backward(retain_graph=True)
    assert modes == {"forward": False, "setup_context": False, "backward": False}
    y.backward(create_graph=True)
    assert modes["backward"] is True
    x.grad = None


def test_grad_mode_is_restored_after_an_error():
    def fail(x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        define_function(fail).apply(tracked())
    assert autograd.is_grad_enabled()


def test_recursion_inner_apply_is_not_recorded():
    inside = []

    def forward(x, depth):
        if depth == 0:
            return x * 2
        y = function.apply(x, depth - 1)
        inside.append(y.requires_grad)
        return y + 1

    function = define_function(forward, lambda ctx, g: (g * 2, None))
    x = tracked()
    y = function.apply(x, 3)
    assert inside == [False] * 3
    assert y.grad_fn.next_functions[0][0] is not None
    y.sum().backward()
    close(y.detach(), 2 * X + 3)
    close(x.grad, np.full(3, 2.0))


def test_values_made_in_forward_are_not_tracked():
    inside = []

    def forward(x):
        y = x * 2
        inside.append(y.requires_grad)
        return y

    define_function(forward, lambda ctx, g: g * 2).apply(tracked())
    assert inside == [False]


# --- needs_input_grad ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("needs", list(itertools.product([True, False], repeat=2)), ids=repr)
def test_needs_input_grad(needs):
    seen = []

    def setup(ctx, inputs, output):
        seen.append(ctx.needs_input_grad)
        ctx.save_for_backward(inputs[0], inputs[2])

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        x, y = ctx.saved_tensors
        return g * y, None, g * x

    function = define_function(lambda x, n, y: np.asarray(x) * n * np.asarray(y), backward, setup=setup)
    x, y = Tensor(X, requires_grad=needs[0]), Tensor(Y, requires_grad=needs[1])
    product = function.apply(x, 1, y)
    if not any(needs):
        assert not product.requires_grad
        return
    product.sum().backward()
    assert seen == [(needs[0], False, needs[1])] * 2
    assert (x.grad is not None, y.grad is not None) == needs


def test_needs_input_grad_of_raw_arrays_is_false():
    seen = []
    function = define_function(
        lambda x, y: np.asarray(x) + np.asarray(y), setup=lambda ctx, *_: seen.append(ctx.needs_input_grad))
    function.apply(tracked(), Y)
    assert seen == [(True, False)]


@pytest.mark.parametrize("names", list(itertools.product(["grad", "vjp"], repeat=2)), ids=" of ".join)
def test_needs_input_grad_at_each_level(names):
    seen = []

    def setup(ctx, inputs, output):
        seen.append(ctx.needs_input_grad)
        ctx.save_for_backward(*inputs)

    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

    product = define_function(lambda x, y: np.asarray(x) * np.asarray(y), backward, setup=setup)
    derivatives = {"grad": grad, "vjp": lambda f: lambda x: vjp(f, x)[1](ONE)[0]}
    outer, inner = map(derivatives.get, names)
    close(outer(lambda a: inner(lambda b: product.apply(a, b) * b)(THREE))(TWO), 6.0)
    assert (True, False) in seen
    assert (False, True) in seen
    assert (True, True) not in seen


# --- saving -------------------------------------------------------------------------------------------------


def saving(*values, output=lambda x: np.asarray(x) * 2):
    """Return a Function whose setup_context saves what `values` makes of (inputs, output)."""
    def setup(ctx, inputs, output):
        ctx.save_for_backward(*[value(inputs, output) if callable(value) else value for value in values])

    def backward(ctx, g):
        ctx.saved_tensors       # noqa: B018  the access is what matters
        return g * 2

    return define_function(output, backward, setup=setup)


@pytest.mark.parametrize("value", [1.0, "x", [X], object()], ids=["float", "str", "list", "object"])
def test_only_arrays_are_saved(value):
    with pytest.raises(TypeError) as caught:
        saving(value).apply(tracked())
    assert isinstance(caught.value, DispatchError)


def test_none_is_saved():
    seen = []

    def backward(ctx, g):
        seen.append(ctx.saved_tensors)
        return g

    function = define_function(copied, backward, setup=lambda ctx, *_: ctx.save_for_backward(None, None))
    function.apply(tracked()).sum().backward()
    assert seen == [(None, None)]


def test_nothing_saved_is_an_empty_tuple():
    seen = []
    function = define_function(copied, lambda ctx, g: seen.append(ctx.saved_tensors) or g)
    function.apply(tracked()).sum().backward()
    assert seen == [()]


def test_saving_twice_is_an_error():
    def setup(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_backward(output)

    with pytest.raises(RuntimeError, match="save_for_backward"):
        define_function(copied, lambda ctx, g: g, setup=setup).apply(tracked())


def test_formulas_get_tensors():
    kinds = []

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, g):
        kinds.extend(map(type, (g, *ctx.saved_tensors)))
        return g, None

    function = define_function(lambda x, y: np.array(x), backward, setup=setup)
    function.apply(tracked(), Y).sum().backward()
    assert kinds == [Tensor] * 3
    kinds.clear()
    grad(lambda x: function.apply(x, Y).sum())(X)
    assert all(issubclass(kind, Tensor) for kind in kinds)
    assert len(kinds) == 3


def test_saved_input_is_the_object_itself():
    seen = []
    function = define_function(copied, lambda ctx, g: seen.append(ctx.saved_tensors[0]) or g,
                               setup=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    x = tracked()
    function.apply(x).sum().backward()
    assert seen[0] is x


@pytest.mark.parametrize("value", [lambda inputs, output: inputs[0], lambda inputs, output: output],
                         ids=["input", "output"])
def test_access_after_release(value):
    y = saving(value).apply(tracked()).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph"):
        y.backward()


def test_retained_graph_runs_again():
    x = tracked()
    y = saving(lambda inputs, output: output).apply(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    close(x.grad, np.full(3, 4.0))


def test_nothing_saved_runs_again_without_retaining():
    x = tracked()
    y = define_function(copied, lambda ctx, g: g * 2).apply(x)
    y.backward(Tensor(Y))
    y.backward(Tensor(Y))
    close(x.grad, 4 * Y)


def test_saved_values_outside_of_backward():
    contexts = []
    function = define_function(copied, lambda ctx, g: contexts.append(ctx) or g,
                               setup=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))
    function.apply(tracked()).sum().backward()
    with pytest.raises(RuntimeError):
        contexts[0].saved_tensors       # noqa: B018


@pytest.mark.parametrize("which", ["input", "output"])
def test_saved_value_changed_in_place(which):
    x = not_a_leaf()
    function = saving(lambda inputs, output: inputs[0] if which == "input" else output)
    expected, = autograd.grad(function.apply(x).sum(), x)
    y = function.apply(x)
    with autograd.no_grad():
        ops.np.add_(x if which == "input" else y, 1.0)
    close(autograd.grad(y.sum(), x)[0], expected)


def test_intermediate_saved_gives_the_first_derivative():
    function = define_function(
        lambda x: (np.asarray(x) ** 3), lambda ctx, g: g * ctx.saved_tensors[0],
        setup=lambda ctx, inputs, output: ctx.save_for_backward(3 * inputs[0] ** 2))
    x = tracked()
    function.apply(x).sum().backward()
    close(x.grad, 3 * X**2)


def test_intermediate_saved_is_a_constant_of_the_second_derivative():
    function = define_function(
        lambda x: (np.asarray(x) ** 3), lambda ctx, g: g * ctx.saved_tensors[0],
        setup=lambda ctx, inputs, output: ctx.save_for_backward(3 * inputs[0] ** 2))
    x = tracked()
    (slope,) = autograd.grad(function.apply(x).sum(), x, create_graph=True)
    assert not slope.requires_grad


def test_attributes_are_kept_as_they_are():
    marker = object()
    seen = []

    def setup(ctx, inputs, output):
        ctx.marker, ctx.numbers = marker, [1, 2]

    function = define_function(copied, lambda ctx, g: seen.append((ctx.marker, ctx.numbers)) or g, setup=setup)
    function.apply(tracked()).sum().backward()
    assert seen == [(marker, [1, 2])]


def test_saved_output_makes_no_cycle():
    class Exponential(Function):
        forward = staticmethod(lambda x: np.exp(np.asarray(x)))
        setup_context = staticmethod(lambda ctx, inputs, output: ctx.save_for_backward(output))
        backward = staticmethod(lambda ctx, g: g * ctx.saved_tensors[0])

    gc.collect()
    gc.disable()
    try:
        contents = X.copy().view(Watched)
        y = Exponential.apply(Tensor(contents, requires_grad=True))
        alive = weakref.ref(contents)
        del contents, y
        assert alive() is None
    finally:
        gc.enable()


class Watched(np.ndarray):
    """An array that can be watched dying."""


def test_second_derivative_through_a_saved_output():
    exponential = define_function(
        lambda x: np.exp(np.asarray(x)), lambda ctx, g: g * ctx.saved_tensors[0],
        setup=lambda ctx, inputs, output: ctx.save_for_backward(output))
    x = tracked()
    for _ in range(3):
        y = exponential.apply(x).sum()
        (first,) = autograd.grad(y, x, create_graph=True)
        (second,) = autograd.grad(first.sum(), x, create_graph=True)
        (third,) = autograd.grad(second.sum(), x)
        close(third, np.exp(X))


# --- what backward returns ----------------------------------------------------------------------------------


def returning(*results, arguments=1):
    """Return a Function of `arguments` arguments whose backward returns results made of g."""
    def backward(ctx, g):
        made = tuple(result(g) if callable(result) else result for result in results)
        return made[0] if len(made) == 1 else made

    return define_function(lambda *args: np.array(args[0]), backward)


def test_too_few_gradients():
    with pytest.raises(RuntimeError, match="Sample"):
        returning(lambda g: g).apply(tracked(), tracked()).sum().backward()


def test_trailing_nones_are_allowed():
    x = tracked()
    returning(lambda g: g, None, None).apply(x).sum().backward()
    close(x.grad, np.ones(3))


def test_extra_gradients_are_an_error():
    with pytest.raises(RuntimeError):
        returning(lambda g: g, lambda g: g).apply(tracked()).sum().backward()


@pytest.mark.parametrize("gradient", ["x", 1.0j, object(), {"a": X}], ids=["str", "complex", "object", "dict"])
def test_gradient_that_is_no_array(gradient):
    with pytest.raises((TypeError, RuntimeError)) as caught:
        returning(gradient).apply(tracked()).sum().backward()
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("kind", [np.ones, lambda shape: Tensor(np.ones(shape))], ids=["raw", "Tensor"])
def test_gradient_that_is_an_array(kind):
    x = tracked()
    returning(kind(3)).apply(x).sum().backward()
    close(x.grad, np.ones(3))


@pytest.mark.parametrize("shape", [(2, 3), (4, 1, 3)], ids=repr)
def test_oversize_gradient_is_summed(shape):
    x = tracked()
    returning(np.ones(shape)).apply(x).sum().backward()
    close(x.grad, np.full(3, float(np.prod(shape[:-1]))))


def test_oversize_gradient_is_summed_over_an_axis_of_one():
    x = tracked(np.ones((3, 1)))
    returning(np.ones((2, 3, 5))).apply(x).sum().backward()
    close(x.grad, np.full((3, 1), 10.0))


@pytest.mark.parametrize("shape", [(2,), (3, 1), (4,), (3, 2)], ids=repr)
def test_gradient_of_another_shape(shape):
    with pytest.raises(RuntimeError, match="Sample") as caught:
        returning(np.ones(shape)).apply(tracked()).sum().backward()
    assert str(shape) in str(caught.value)
    assert "(3,)" in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "given"), [(np.float64, np.float32), (np.float32, np.float64), (np.float64, np.int64)])
def test_gradient_is_cast(dtype, given):
    x = tracked(np.ones(3, dtype))
    returning(np.array([1, 2, 3], given)).apply(x).sum().backward()
    close(x.grad, np.array([1, 2, 3], dtype))


def test_complex_gradient_of_a_real_argument():
    with pytest.raises(RuntimeError, match="complex"):
        returning(np.ones(3) * 1j).apply(tracked()).sum().backward()


def test_gradient_of_an_argument_that_does_not_need_one_is_ignored():
    x = tracked()
    returning(lambda g: g, lambda g: np.ones((7, 7))).apply(x, Tensor(Y)).sum().backward()
    close(x.grad, np.ones(3))
    y = Tensor(Y)
    assert y.grad is None


def test_none_leaves_grad_alone():
    x, y = tracked(), tracked(Y)
    returning(lambda g: g, None).apply(x, y).sum().backward()
    close(x.grad, np.ones(3))
    assert y.grad is None


def test_none_is_zeros_at_the_boundary_of_grad():
    function = returning(lambda g: g, None)
    by_x, by_y = grad(lambda x, y: function.apply(x, y).sum(), argnums=(0, 1))(X, Y)
    close(by_x, np.ones(3))
    close(by_y, np.zeros(3))


def test_without_backward_only_backward_fails():
    function = define_function(copied)
    y = function.apply(tracked())
    assert y.requires_grad
    with pytest.raises(NotImplementedError, match="Sample") as caught:
        y.sum().backward()
    assert isinstance(caught.value, DispatchError)


def test_cotangent_that_is_returned_is_not_aliased():
    x, y = tracked(), tracked(Y)
    g = Tensor(np.ones(3))
    define_function(lambda x, y: np.asarray(x) + np.asarray(y), lambda ctx, g: (g, g)).apply(x, y).backward(g)
    arrays = [x.grad.array, y.grad.array, g.array]
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2))


# --- several outputs ----------------------------------------------------------------------------------------


def sine_and_cosine(seen, materialize=None):
    """Return a Function of two outputs that notes the cotangents that backward gets."""
    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        if materialize is not None:
            ctx.set_materialize_grads(materialize)

    def backward(ctx, *gs):
        seen.append(gs)
        (x,) = ctx.saved_tensors
        slopes = (ops.np.cos(x), -ops.np.sin(x))
        return sum(g * slope for g, slope in zip(gs, slopes, strict=True) if g is not None)

    return define_function(lambda x: (np.sin(np.asarray(x)), np.cos(np.asarray(x))), backward, setup=setup)


@pytest.mark.parametrize("materialize", [None, True])
def test_unused_output_has_a_cotangent_of_zeros(materialize):
    seen = []
    x = tracked()
    sine, cosine = sine_and_cosine(seen, materialize).apply(x)
    assert sine.requires_grad
    assert cosine.requires_grad
    cosine.sum().backward()
    close(x.grad, -np.sin(X))
    close(seen[0][0], np.zeros(3))
    close(seen[0][1], np.ones(3))


def test_unused_output_without_materializing():
    seen = []
    x = tracked()
    _, cosine = sine_and_cosine(seen, materialize=False).apply(x)
    cosine.sum().backward()
    close(x.grad, -np.sin(X))
    assert seen[0][0] is None


def test_both_outputs():
    seen = []
    x = tracked()
    sine, cosine = sine_and_cosine(seen).apply(x)
    assert sine.grad_fn is cosine.grad_fn
    (2 * sine + 3 * cosine).sum().backward()
    close(x.grad, 2 * np.cos(X) - 3 * np.sin(X))
    assert len(seen) == 1


def test_zeros_have_the_dtype_and_shape_of_the_output():
    seen = []

    def backward(ctx, *gs):
        seen.extend((g.shape, g.dtype) for g in gs)
        return gs[1]

    function = define_function(lambda x: (np.zeros((2, 2), np.float32), np.array(x), np.zeros(4, complex)), backward)
    function.apply(tracked())[1].sum().backward()
    assert seen == [((2, 2), np.float32), ((3,), np.float64), ((4,), np.complex128)]


def test_tuple_of_one_output_stays_a_tuple():
    (y,) = define_function(lambda x: (np.array(x),), lambda ctx, g: g).apply(tracked())
    assert y.requires_grad


def test_mark_non_differentiable():
    seen = []

    def backward(ctx, g, g_constant):
        seen.append(g_constant)
        return g

    function = define_function(lambda x: (np.array(x), np.array(x) * 2), backward,
                               setup=lambda ctx, inputs, output: ctx.mark_non_differentiable(output[1]))
    x = tracked()
    y, constant = function.apply(x)
    assert y.requires_grad
    assert not constant.requires_grad
    assert constant.grad_fn is None
    (y * constant).sum().backward()
    close(x.grad, 2 * X)
    close(seen[0], np.zeros(3))


def test_only_output_is_non_differentiable():
    function = define_function(copied, setup=lambda ctx, inputs, output: ctx.mark_non_differentiable(output))
    assert not function.apply(tracked()).requires_grad
    close(grad(lambda x: (function.apply(x) * x).sum())(X), X)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_])
def test_outputs_of_integers_are_not_differentiable(dtype):
    seen = []

    def backward(ctx, g, g_whole):
        seen.append(g_whole)
        return g

    function = define_function(lambda x: (np.array(x), np.asarray(x).astype(dtype)), backward)
    x = tracked()
    y, whole = function.apply(x)
    assert not whole.requires_grad
    y.sum().backward()
    close(x.grad, np.ones(3))


def test_two_outputs_one_non_differentiable_under_grad():
    function = define_function(
        lambda x: (np.asarray(x) ** 2, np.argsort(np.asarray(x))), lambda ctx, g, _: 2 * g * ctx.saved_tensors[0],
        setup=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

    def f(x):
        square, order = function.apply(x)
        assert not order.requires_grad
        return (square * ops.np.take(X, order)).sum()

    close(grad(f)(X), 2 * X * X[np.argsort(X)])


def test_output_that_is_no_array_passes_through():
    function = define_function(lambda x: (np.array(x), "label", 3), lambda ctx, g, *_: g)
    x = tracked()
    y, label, number = function.apply(x)
    assert (label, number) == ("label", 3)
    y.sum().backward()
    close(x.grad, np.ones(3))


# --- containers ---------------------------------------------------------------------------------------------

CONTAINERS = {
    "tuple": lambda a, b: (a, b), "list": lambda a, b: [a, b], "dict": lambda a, b: {"a": a, "b": b},
    "namedtuple": Pair, "nested": lambda a, b: [(a,), {"b": b}],
}


def leaves(container):
    if isinstance(container, dict):
        return leaves(list(container.values()))
    if isinstance(container, (list, tuple)):
        return [leaf for child in container for leaf in leaves(child)]
    return [container]


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_arrays_in_containers_of_arguments_are_tracked(make):
    def forward(container, z):
        a, b = map(np.asarray, leaves(container))
        return a * b * np.asarray(z)

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*leaves(inputs[0]), inputs[1])

    def backward(ctx, g):
        a, b, z = ctx.saved_tensors
        return make(g * b * z, g * a * z), g * a * b

    function = define_function(forward, backward, setup=setup)
    x, y, z = tracked(X), tracked(Y), tracked(X + 3)
    function.apply(make(x, y), z).sum().backward()
    close(x.grad, Y * (X + 3))
    close(y.grad, X * (X + 3))
    close(z.grad, X * Y)
    close(grad(lambda x: function.apply(make(x, Y), X).sum())(X), Y * X)


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_arrays_in_containers_of_outputs_are_tracked(make):
    def forward(x):
        return make(np.asarray(x) * 2, np.asarray(x) * 3)

    def backward(ctx, *gs):
        a, b = leaves(gs)
        return 2 * a + 3 * b

    function = define_function(forward, backward)
    x = tracked()
    output = function.apply(x)
    assert type(output) is type(make(X, X))
    a, b = leaves(output)
    assert a.requires_grad
    assert b.requires_grad
    (a + 10 * b).sum().backward()
    close(x.grad, np.full(3, 32.0))
    close(grad(lambda x: leaves(function.apply(x))[1].sum())(X), np.full(3, 3.0))


def test_container_of_arguments_that_needs_no_gradient():
    function = define_function(lambda x, others: np.asarray(x) * np.asarray(others[0]), lambda ctx, g: (g, None))
    x = tracked()
    function.apply(x, [Y]).sum().backward()
    close(x.grad, np.ones(3))


def test_containers_forward_mode():
    function = define_function(
        lambda arrays: [np.asarray(arrays[0]) * 2, np.asarray(arrays[1]) * 3],
        jvp=lambda ctx, tangents: [2 * tangents[0], 3 * tangents[1]])
    _, (a, b) = jvp(lambda x, y: function.apply([x, y]), (X, Y), (Y, X))
    close(a, 2 * Y)
    close(b, 3 * X)


# --- outputs that are inputs --------------------------------------------------------------------------------


def test_input_returned_unchanged_is_another_object():
    function = define_function(lambda x: x, lambda ctx, g: 3 * g, name="Identity")
    for x in (tracked(), not_a_leaf()):
        y = function.apply(x)
        assert y is not x
        assert y.grad_fn.name == "IdentityBackward"
        (gradient,) = autograd.grad(y.sum(), x)
        close(gradient, np.full(3, 3.0))


def test_one_of_two_inputs_returned():
    function = define_function(lambda x, y: (y, np.asarray(x) * 2), lambda ctx, g_y, g: (2 * g, 5 * g_y))
    x, y = tracked(), tracked(Y)
    first, second = function.apply(x, y)
    (first + second).sum().backward()
    close(x.grad, np.full(3, 2.0))
    close(y.grad, np.full(3, 5.0))


def test_saving_an_input_that_is_returned_unchanged():
    function = define_function(lambda x: x, lambda ctx, g: g * ctx.saved_tensors[0],
                               setup=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    close(grad(lambda x: function.apply(x).sum())(X), X)
    # The claimed derivative of F(x) = x is x: (F·x)' = F + x·x, and of that F' + 2x = 3x.
    close(grad(grad(lambda x: function.apply(x) * x))(THREE), 9.0)
    x = tracked(3.0)
    (first,) = autograd.grad(function.apply(x) * x, x, create_graph=True)
    first.backward()
    close(x.grad, 9.0)


def test_the_same_output_twice():
    def forward(x):
        doubled = np.asarray(x) * 2
        return doubled, doubled

    function = define_function(forward, lambda ctx, g, h: 2 * (g + h), lambda ctx, t: (2 * t, 2 * t))

    def f(x):
        first, second = function.apply(x)
        return (first + 10 * second).sum()

    x = tracked()
    f(x).backward()
    close(x.grad, np.full(3, 22.0))
    close(grad(f)(X), np.full(3, 22.0))
    close(jvp(f, (X,), (Y,))[1], 22 * Y.sum())


LAST_TWO = {
    "forward": lambda x: x[1:], "backward": lambda ctx, g: ops.np.concatenate([ops.np.zeros_like(g[:1]), g]),
    "jvp": lambda ctx, t: t[1:],
}


def test_view_of_an_input_is_returned():
    function = define_function(**LAST_TWO)
    x = tracked()
    (function.apply(x * 1.0) ** 2).sum().backward()
    close(x.grad, [0.0, *2 * X[1:]])
    close(grad(lambda x: (function.apply(x) ** 2).sum())(X), [0.0, *2 * X[1:]])
    close(jvp(lambda x: function.apply(x) ** 2, (X,), (Y,))[1], 2 * X[1:] * Y[1:])


@pytest.mark.parametrize("run", [
    lambda f: f(tracked()), lambda f: grad(f)(X), lambda f: vjp(f, X), lambda f: jvp(f, (X,), (Y,)),
    lambda f: grad(lambda a: grad(f)(a).sum())(X),
], ids=["eager", "grad", "vjp", "jvp", "grad of grad"])
def test_view_returned_by_a_function_is_not_written_to(run):
    function = define_function(**LAST_TWO)

    def f(x):
        base = x * 1.0
        view = function.apply(base)
        view *= 2
        return (base * base).sum()

    with pytest.raises(RuntimeError, match="view"):
        run(f)


# --- mark_dirty ---------------------------------------------------------------------------------------------


class DoubleInPlace(Function):
    """Doubles its argument where it is."""

    @staticmethod
    def forward(x):
        array = x.numpy() if isinstance(x, Tensor) else x
        array *= 2
        return x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return 2 * g

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * tangent


class DoubleInPlaceOldStyle(Function):
    """The same in the old style."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return DoubleInPlace.forward(x)

    backward = DoubleInPlace.backward


IN_PLACE = {"new": DoubleInPlace, "old": DoubleInPlaceOldStyle}


@pytest.mark.parametrize("function", IN_PLACE.values(), ids=IN_PLACE)
def test_dirty_input_is_the_result(function):
    leaf = tracked()
    x = leaf * 3
    before = x._version
    y = function.apply(x)
    assert y is x
    assert x._version > before
    assert x.grad_fn.name == f"{function.__name__}Backward"
    y.sum().backward()
    close(x.detach(), 6 * X)
    close(leaf.grad, np.full(3, 6.0))


@pytest.mark.parametrize("function", IN_PLACE.values(), ids=IN_PLACE)
def test_dirty_raw_array_is_the_result(function):
    x = X.copy()
    assert function.apply(x) is x
    close(x, 2 * X)


def test_dirty_untracked_tensor_is_the_result():
    x = Tensor(X.copy())
    before = x._version
    assert DoubleInPlace.apply(x) is x
    assert x._version > before
    assert not x.requires_grad


@pytest.mark.parametrize(("forward", "argument", "grad_mode", "n_setups"), [
    (lambda x: x * 2, lambda: Tensor(X), True, 0),
    (lambda x: np.asarray(x) * 2, lambda: Tensor(X), True, 0),
    (lambda x: x * 2, tracked, False, 0),
    (lambda x: x[1:], lambda: Tensor(X), True, 0),
    (lambda x: x * 2, tracked, True, 1),
    (lambda x: x, lambda: Tensor(X), True, 1),
    (lambda x: (x * 2, x), lambda: Tensor(X), True, 1),
], ids=["untracked", "untracked, raw output", "no_grad", "view", "tracked", "the argument itself", "among outputs"])
def test_setup_context_runs_where_there_is_something_to_save_for_or_mark(forward, argument, grad_mode, n_setups):
    seen = []
    function = define_function(forward, lambda ctx, g: 2 * g, setup=lambda ctx, inputs, output: seen.append(inputs))
    x = argument()
    with autograd.set_grad_enabled(grad_mode):
        output = function.apply(x)
    assert len(seen) == n_setups
    result = output[0] if isinstance(output, tuple) else output
    assert type(result) is Tensor
    assert result.requires_grad == (x.requires_grad and grad_mode)
    expected = forward(X)
    close(result.detach(), expected[0] if isinstance(output, tuple) else expected)


def test_dirty_untracked_argument_becomes_tracked_by_another():
    def forward(x, y):
        x.numpy()[...] *= np.asarray(y)
        return x

    def setup(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])

    function = define_function(forward, lambda ctx, g: (None, g * X), setup=setup)
    x, y = Tensor(X.copy()), tracked(Y)
    assert function.apply(x, y) is x
    assert x.requires_grad
    x.sum().backward()
    close(y.grad, X)


def test_earlier_users_of_a_dirty_value_keep_their_gradient():
    leaf = tracked()
    x = leaf * 3
    earlier = x + 1
    DoubleInPlace.apply(x)
    (earlier + 10 * x).sum().backward()
    close(leaf.grad, np.full(3, 3 + 10 * 6.0))


def test_dirty_value_saved_by_somebody_else():
    x = not_a_leaf()
    y = x * x
    DoubleInPlace.apply(x)
    with pytest.raises(RuntimeError, match="modified in-place by a Function"):
        y.sum().backward()


def test_dirty_value_that_operators_wrote_to():
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return ops.np.multiply_(x, 2.0)

        @staticmethod
        def backward(ctx, g):
            return 2.0 * g

    leaf = tracked()
    x = leaf * 1.0
    y = x * x
    Doubled.apply(x)
    (y + x).sum().backward()
    close(leaf.grad, 2 * X + 2.0)


def test_dirty_input_must_be_returned():
    def forward(x):
        x.numpy()[...] *= 2
        return np.array(x)

    function = define_function(forward, lambda ctx, g: g, setup=lambda ctx, inputs, output: ctx.mark_dirty(*inputs))
    with pytest.raises(RuntimeError, match="dirty"):
        function.apply(not_a_leaf())


def test_dirty_leaf_is_refused():
    with pytest.raises(RuntimeError, match="leaf") as caught:
        DoubleInPlace.apply(tracked())
    assert isinstance(caught.value, DispatchError)


def test_dirty_leaf_under_no_grad():
    x = tracked()
    with autograd.no_grad():
        assert DoubleInPlace.apply(x) is x
    assert x.is_leaf
    close(x.detach(), 2 * X)


def test_dirty_view_of_a_leaf_is_refused():
    with pytest.raises(RuntimeError):
        DoubleInPlace.apply(tracked()[1:])


def test_dirty_view_changes_the_gradient_of_its_base():
    leaf = tracked()
    base = leaf * 3
    DoubleInPlace.apply(base[1:])
    base.sum().backward()
    close(leaf.grad, [3.0, 6.0, 6.0])


def test_dirty_view_at_every_level():
    def f(x):
        base = x * 3
        DoubleInPlace.apply(base[1:])
        return (base * base).sum()

    factors = 2 * np.array([9.0, 36.0, 36.0])
    close(grad(f)(X), factors * X)
    close(jvp(f, (X,), (Y,))[1], (factors * X * Y).sum())
    close(jvp(grad(f), (X,), (Y,))[1], factors * Y)
    close(grad(lambda x: (grad(f)(x) * Y).sum())(X), factors * Y)


def test_dirty_input_that_is_saved():
    def forward(x):
        array = x.numpy() if isinstance(x, Tensor) else x
        np.exp(array, out=array)
        return x

    def setup(ctx, inputs, output):
        ctx.mark_dirty(*inputs)
        ctx.save_for_backward(*inputs)

    function = define_function(forward, lambda ctx, g: g * ctx.saved_tensors[0], setup=setup)

    def f(x):
        return function.apply(x * 1.0).sum()

    x = tracked()
    f(x).backward()
    close(x.grad, np.exp(X))
    close(grad(f)(X), np.exp(X))
    close(grad(lambda x: grad(f)(x).sum())(X), np.exp(X))


def test_dirty_under_nested_grads():
    def f(x):
        y = x**3
        assert DoubleInPlace.apply(y) is y
        return y

    close(grad(grad(f))(TWO), 24.0)
    close(jvp(grad(f), (TWO,), (ONE,))[1], 24.0)


def test_dirty_capture_is_refused_under_grad():
    for captured in (X.copy(), Tensor(X.copy())):
        def f(x, captured=captured):
            DoubleInPlace.apply(captured)
            return x.sum()

        with pytest.raises(RuntimeError):
            grad(f)(X)


# --- forward mode -------------------------------------------------------------------------------------------


def test_tangent_of_a_function_with_jvp():
    output, tangent = jvp(Sine.apply, (X,), (Y,))
    close(output, np.sin(X))
    close(tangent, np.cos(X) * Y)
    assert is_raw(tangent)


def test_without_jvp_rule():
    function = define_function(copied, lambda ctx, g: 5 * g)
    close(jvp(function.apply, (X,), (Y,))[1], 5 * Y)        # backward, transposed


def test_without_jvp_rule_and_backward():
    function = define_function(copied)
    with pytest.raises(NotImplementedError, match="Sample") as caught:
        jvp(function.apply, (X,), (Y,))
    assert isinstance(caught.value, DispatchError)


def with_tangents(jvp, outputs=1, setup=None):
    """Return a Function of any arguments with this rule of forward mode."""
    def forward(*args):
        results = tuple(np.array(args[0]) * n for n in range(1, outputs + 1))
        return results[0] if outputs == 1 else results

    return define_function(forward, jvp=jvp, setup=setup)


@pytest.mark.parametrize("rule", [
    lambda ctx, t: (t, t), lambda ctx, t: (t, t, t, t), lambda ctx, t: (), lambda ctx, t: t,
], ids=["2", "4", "0", "bare"])
def test_wrong_number_of_tangents(rule):
    with pytest.raises(RuntimeError, match="Sample"):
        jvp(with_tangents(rule, outputs=3).apply, (X,), (Y,))


@pytest.mark.parametrize("result", [np.ones(2), np.ones((2, 3)), np.ones(())], ids=["(2,)", "(2, 3)", "()"])
def test_tangent_of_another_shape(result):
    with pytest.raises(RuntimeError, match="Sample"):
        jvp(with_tangents(lambda ctx, t: result).apply, (X,), (Y,))


@pytest.mark.parametrize("result", ["x", 1.0, object()], ids=["str", "float", "object"])
def test_tangent_that_is_no_array(result):
    with pytest.raises((TypeError, RuntimeError)):
        jvp(with_tangents(lambda ctx, t: result).apply, (X,), (Y,))


def test_complex_tangent_of_a_real_output():
    with pytest.raises(RuntimeError, match="complex"):
        jvp(with_tangents(lambda ctx, t: t * 1j).apply, (X,), (Y,))


def test_tangent_is_cast_to_the_dtype_of_the_output():
    function = with_tangents(lambda ctx, t: t.astype(np.float32))
    close(jvp(function.apply, (X,), (X,))[1], X.astype(np.float32).astype(float))


def test_no_tangent_for_a_differentiable_output():
    with pytest.raises(RuntimeError, match="None"):
        jvp(with_tangents(lambda ctx, t: (t, None), outputs=2).apply, (X,), (Y,))


def test_no_tangent_for_a_non_differentiable_output():
    function = with_tangents(lambda ctx, t: (t, None), outputs=2,
                             setup=lambda ctx, inputs, output: ctx.mark_non_differentiable(output[1]))
    _, (first, second) = jvp(function.apply, (X,), (Y,))
    close(first, Y)
    close(second, np.zeros(3))


@pytest.mark.parametrize("materialize", [True, False])
def test_tangent_of_a_constant_argument(materialize):
    seen = []

    def rule(ctx, x_tangent, n, y_tangent):
        seen.append((n, y_tangent))
        return x_tangent

    function = with_tangents(rule, setup=lambda ctx, inputs, output: ctx.set_materialize_grads(materialize))
    close(jvp(lambda x: function.apply(x, 3, X), (X,), (Y,))[1], Y)
    ((number_tangent, constant_tangent),) = seen
    assert number_tangent is None
    if materialize:
        close(constant_tangent, np.zeros(3))
    else:
        assert constant_tangent is None


def test_rule_is_not_asked_for_constants():
    calls = []
    function = with_tangents(lambda ctx, t: calls.append(t))
    close(jvp(lambda x: function.apply(X) * x, (X,), (Y,))[1], X * Y)
    assert calls == []


@pytest.mark.parametrize("value", [1.0, "x"], ids=["float", "str"])
def test_only_arrays_are_saved_for_forward(value):
    function = with_tangents(lambda ctx, t: t, setup=lambda ctx, inputs, output: ctx.save_for_forward(value))
    with pytest.raises((TypeError, RuntimeError)) as caught:
        jvp(function.apply, (X,), (Y,))
    assert isinstance(caught.value, DispatchError)


def test_tangents_and_saved_values_are_tensors():
    kinds = []

    def rule(ctx, tangent):
        kinds.extend(map(type, (tangent, *ctx.saved_tensors)))
        return tangent

    function = with_tangents(rule, setup=lambda ctx, inputs, output: ctx.save_for_forward(*inputs))
    jvp(function.apply, (X,), (Y,))
    assert len(kinds) == 2
    assert all(issubclass(kind, Tensor) for kind in kinds)


# --- under transforms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [
    lambda f: grad(lambda x: f(x).sum())(X), lambda f: vjp(f, X), lambda f: jvp(f, (X,), (Y,)),
    lambda f: grad(lambda x: (x * f(X)).sum())(X),
], ids=["grad", "vjp", "jvp", "constant argument"])
def test_old_style_names_setup_context(run):
    with pytest.raises(RuntimeError, match="setup_context") as caught:
        run(SineOldStyle.apply)
    assert isinstance(caught.value, DispatchError)
    assert "SineOldStyle" in str(caught.value)


def test_old_style_works_after_a_transform():
    close(grad(lambda x: x.sum())(X), np.ones(3))
    assert gradcheck(SineOldStyle.apply, (tracked(),))


def test_class_is_not_kept_alive():
    function = define_function(copied, lambda ctx, g: g)
    function.apply(tracked()).sum().backward()
    grad(function.apply)(TWO)
    alive = weakref.ref(function)
    del function
    gc.collect()
    assert alive() is None


def test_forward_runs_once_however_many_levels():
    calls = []

    def forward(x):
        calls.append(isinstance(x, Tensor) and x.requires_grad)
        return np.asarray(x) ** 2

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    square = define_function(forward, lambda ctx, g: 2 * g * ctx.saved_tensors[0],
                             lambda ctx, t: 2 * t * ctx.saved_tensors[0], setup)
    close(jvp(grad(lambda x: square.apply(x) * x), (THREE,), (ONE,))[1], 18.0)
    assert calls == [False]


def test_dead_wrapper_as_argument():
    kept = []
    grad(lambda x: kept.append(x) or x.sum())(X)
    close(Sine.apply(kept[0]), np.sin(X))
    close(grad(lambda y: (Sine.apply(kept[0]) * y).sum())(X), np.sin(X))


def test_closing_over_a_live_value():
    def f(x):
        scaled = define_function(lambda y: x * y, lambda ctx, g: g * x)
        return (scaled.apply(Y) * scaled.apply(x)).sum()

    close(grad(f)(X), 3 * X**2 * Y)
    close(grad(lambda x: grad(f)(x).sum())(X), 6 * X * Y)


def test_a_live_value_that_is_closed_over_is_not_converted():
    def f(x):
        scaled = define_function(lambda y: np.asarray(x) * np.asarray(y), lambda ctx, g: g)
        return scaled.apply(X).sum()

    with pytest.raises(DispatchError):
        grad(f)(X)


def test_attribute_set_at_one_level_is_not_seen_at_another():
    contexts = []
    function = define_function(
        lambda x: np.asarray(x) ** 2, lambda ctx, g: 2 * g * ctx.x,
        setup=lambda ctx, inputs, output: contexts.append(ctx) or setattr(ctx, "x", inputs[0]))
    close(grad(grad(lambda x: function.apply(x) * x))(TWO), 12.0)
    assert len(set(map(id, contexts))) == len(contexts) >= 2


# --- once_differentiable ------------------------------------------------------------------------------------


class CubeOnce(Function):
    """x³ with a backward that cannot be differentiated."""

    @staticmethod
    def forward(x):
        return np.asarray(x) ** 3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x**2

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * 3 * x**2


def test_once_differentiable_first_derivative():
    assert gradcheck(CubeOnce.apply, (tracked(),))
    close(grad(CubeOnce.apply)(TWO), 12.0)
    close(vjp(CubeOnce.apply, X)[1](Y)[0], 3 * X**2 * Y)


def test_once_differentiable_runs_without_grad_mode():
    modes = []

    def backward(ctx, g):
        modes.append(autograd.is_grad_enabled())
        return g

    function = define_function(copied, once_differentiable(backward))
    function.apply(tracked()).sum().backward(create_graph=True)
    assert modes == [False]


@pytest.mark.parametrize("loss", [lambda slope, x: slope.sum(), lambda slope, x: (slope * x).sum()],
                         ids=["alone", "with another path"])
@pytest.mark.parametrize("tracked_cotangent", [False, True])
def test_once_differentiable_twice_by_the_eager_tape(loss, tracked_cotangent):
    x = tracked()
    g = Tensor(Y.copy(), requires_grad=tracked_cotangent)
    (slope,) = autograd.grad(CubeOnce.apply(x), x, g, create_graph=True)
    close(slope.detach(), 3 * X**2 * Y)
    with pytest.raises(RuntimeError, match="once_differentiable") as caught:
        autograd.grad(loss(slope, x), x)
    assert isinstance(caught.value, DispatchError)


F = CubeOnce.apply
TWICE = {
    "grad(grad)": lambda: grad(grad(F))(TWO), "grad(a·grad)": lambda: grad(lambda a: a * grad(F)(a))(TWO),
    "jvp(grad)": lambda: jvp(grad(F), (TWO,), (ONE,)), "grad(vjp)": lambda: grad(lambda a: vjp(F, a)[1](ONE)[0])(TWO),
    "jvp(vjp)": lambda: jvp(lambda a: vjp(F, a)[1](ONE)[0], (TWO,), (ONE,)),
    "grad(grad(grad))": lambda: grad(grad(grad(F)))(TWO),
    "by the cotangent": lambda: grad(lambda g: vjp(F, TWO)[1](g)[0])(ONE),
    "jvp(a·grad)": lambda: jvp(lambda a: a * grad(F)(a), (TWO,), (ONE,)),
    "grad of a tracked Tensor": lambda: grad(F)(tracked(2.0)).backward(),
    "gradgradcheck": lambda: gradgradcheck(F, (tracked(),)),
}


@pytest.mark.parametrize("differentiate", TWICE.values(), ids=TWICE)
def test_once_differentiable_twice_is_an_error(differentiate):
    with pytest.raises(RuntimeError, match="once_differentiable"):
        differentiate()


def test_once_differentiable_by_what_it_kept_as_an_attribute():
    def setup(ctx, inputs, output):
        ctx.x = inputs[0]

    function = define_function(lambda x: np.asarray(x) ** 2, once_differentiable(lambda ctx, g: 2 * g * ctx.x),
                               setup=setup)
    close(grad(function.apply)(TWO), 4.0)
    x = tracked()
    (slope,) = autograd.grad(function.apply(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (slope * x).sum().backward()
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad(lambda a: a * grad(function.apply)(a))(TWO)


def test_once_differentiable_of_several_arguments():
    function = define_function(
        lambda x, n, y: np.asarray(x) * np.asarray(y) * n,
        once_differentiable(lambda ctx, g: (g * ctx.saved_tensors[1], None, None)),
        setup=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0], inputs[2]))
    by_x, by_y = grad(lambda x, y: function.apply(x, 1, y).sum(), argnums=(0, 1))(X, Y)
    close(by_x, Y)
    close(by_y, np.zeros(3))
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad(lambda y: grad(lambda x: function.apply(x, 1, y).sum())(X).sum())(Y)


def test_once_differentiable_on_constants_of_the_outer_level():
    close(grad(lambda a: a * grad(F)(THREE))(TWO), 27.0)
    close(jvp(lambda a: a * grad(F)(THREE), (TWO,), (ONE,))[1], 27.0)


def test_once_differentiable_has_its_own_forward_mode():
    close(grad(lambda x: jvp(F, (x,), (ONE,))[1])(TWO), 12.0)


def test_once_differentiable_result_may_be_used_as_a_constant():
    x = tracked()
    (slope,) = autograd.grad(CubeOnce.apply(x).sum(), x, create_graph=True)
    (slope.detach() * x).sum().backward()
    close(x.grad, 3 * X**2)


@pytest.mark.parametrize("positions", [np.array([2, 0]), np.array([True, False, True]), np.array(1, np.uint8)],
                         ids=["int", "bool", "uint"])
def test_arrays_of_positions_come_back_as_they_were_saved(positions):
    class Taken(Function):
        @staticmethod
        def forward(x, positions):
            return x[positions]

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            x, saved = ctx.saved_tensors
            assert type(saved) is np.ndarray
            np.testing.assert_array_equal(saved, expected_positions)
            gradient = np.zeros(x.shape)
            gradient[saved] = 1.0
            return g.sum() * gradient, None

    expected_positions = positions.copy()
    expected = np.zeros(3)
    expected[positions] = np.size(np.zeros(3)[positions])
    x = Tensor(np.arange(3.0), requires_grad=True)
    Taken.apply(x, positions).sum().backward()
    np.testing.assert_array_equal(x.grad, expected)
    np.testing.assert_array_equal(grad(lambda x: Taken.apply(x, positions).sum())(np.arange(3.0)), expected)
