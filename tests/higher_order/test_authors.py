"""Users' functions that run later, inside of bodies: what they capture means what it does without control flow."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from pydispatch import Tensor, autograd, library, ops
from pydispatch.autograd import checkpoint
from pydispatch.exceptions import AutogradError
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import make_fx
from tests.functions import Stateless
from tests.higher_order.compositions import same
from tests.together import together

X, K = np.array([0.3, -1.2]), np.array(0.7)
TRUE = np.array(True)


# --- what runs later: each is a square, whose slope is said to be x times the captured value -------------------------


class Square(autograd.Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)


def by_backward(k):
    class Slope(Square):
        generate_vmap_rule = True

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x * k

    return Slope.apply


def by_backward_of_an_object(k):
    weights = SimpleNamespace(k=[k])

    class Slope(Square):
        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x * weights.k[0]

        @staticmethod
        def vmap(info, in_dims, x):
            return Slope.apply(x), 0

    return Slope.apply


def by_attribute_of_ctx(k):
    class Slope(autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.slope = lambda x: x * k

        @staticmethod
        def backward(ctx, g):
            return g * ctx.slope(*ctx.saved_tensors)

    return Slope.apply


numbers = itertools.count()


def by_formula(k):
    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    op = library.custom_op(f"test_authors::square{next(numbers)}", lambda x: ops.np.multiply(x, x), mutates_args=(),
                           schema="(Tensor x) -> Tensor", batchable=True)
    op.register_fake(lambda x: ops.np.empty_like(x))
    op.register_autograd(lambda ctx, g: g * ctx.saved_tensors[0] * k, setup_context=save)
    return op


def by_checkpoint(k):
    return lambda x: checkpoint(lambda x: x * x * k, x)


def by_checkpoint_of_a_backward(k):
    square = by_backward(k)
    return lambda x: checkpoint(lambda x: square(x) * 1.0, x)


AUTHORS = [by_backward, by_backward_of_an_object, by_attribute_of_ctx, by_formula, by_checkpoint,
           by_checkpoint_of_a_backward]


# --- control flow, and the same in Python ----------------------------------------------------------------------------


def in_cond(f, x):
    return cond(TRUE, lambda x: f(x) * 1.0, lambda x: x * 1.0, (x,))


def in_map(f, x):
    return map_slices(f, x)


def in_scan(f, x):
    return scan(lambda carry, x: (carry + f(x), f(carry)), x[0] * 0.5, x)[1]


def scan_in_python(f, x):
    carry, ys = x[0] * 0.5, []
    for i in range(2):
        ys.append(f(carry))
        carry = carry + f(x[i])
    return ops.np.stack(ys)


def in_a_while_loop(f, x):
    return while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, f(y) + x), (np.array(0), x * 1.0))[1]


def in_nested_bodies(f, x):
    return cond(TRUE, lambda x: map_slices(lambda y: cond(TRUE, lambda y: f(y) * 1.0, lambda y: y * 2.0, (y,)), x),
                lambda x: x * 1.0, (x,))


def twice(f, x):
    return f(f(x * 1.0) + x) + x


BODIES = {
    "cond": (in_cond, lambda f, x: f(x) * 1.0),
    "map": (in_map, lambda f, x: ops.np.stack([f(x[0]), f(x[1])])),
    "scan": (in_scan, scan_in_python),
    "while_loop": (in_a_while_loop, twice),
    "nested": (in_nested_bodies, lambda f, x: ops.np.stack([f(x[0]), f(x[1])])),
}


def on_the_tape(f):
    def gradients(x, k):
        x, k = Tensor(x, requires_grad=True), Tensor(k, requires_grad=True)
        (first,) = autograd.grad(f(x, k), (x,), create_graph=True)
        return first.detach(), *autograd.grad((first * first).sum() + f(x, k), (x, k), allow_unused=True)

    return gradients


TRANSFORMS = {
    "grad": lambda f: grad(f, argnums=(0, 1)),
    "vjp": lambda f: lambda x, k: vjp(f, x, k)[1](np.array(2.0)),
    "grad(grad)": lambda f: grad(lambda x, k: (grad(f)(x, k) ** 2).sum(), argnums=(0, 1)),
    "grad(grad(grad))": lambda f: grad(lambda x, k: (grad(lambda x, k: (grad(f)(x, k) ** 2).sum())(x, k) ** 2).sum(),
                                       argnums=(0, 1)),
    "jvp(grad)": lambda f: lambda x, k: jvp(grad(f), (x, k), (np.ones(2), np.array(3.0)))[1],
    "hessian": lambda f: hessian(f, argnums=1),
    "jacrev(grad)": lambda f: jacrev(grad(f), argnums=1),
    "vmap(grad)": lambda f: lambda x, k: vmap(lambda x: grad(f)(x, k))(np.stack([x, 2 * x])),
    "jacfwd(grad)": lambda f: jacfwd(grad(f), argnums=1),
    "functionalize(grad)": lambda f: functionalize(grad(f, argnums=(0, 1))),
    "tape": on_the_tape,
}


def programs(author, body):
    inside, outside = BODIES[body]
    return [lambda x, k, run=run: ops.np.sum(run(author(k), x)) for run in (inside, outside)]


@together("transform", TRANSFORMS)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("author", AUTHORS, ids=lambda author: author.__name__)
def test_as_without_control_flow(author, body, transform):
    inside, outside = programs(author, body)
    found, expected = TRANSFORMS[transform](inside)(X, K), TRANSFORMS[transform](outside)(X, K)
    for one, other in zip(found if isinstance(found, tuple) else (found,),
                          expected if isinstance(expected, tuple) else (expected,), strict=True):
        same(0.0 if one is None else one, np.zeros_like(other) if other is None else other)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("author", AUTHORS, ids=lambda author: author.__name__)
def test_a_value_of_a_trace_is_no_constant(author, body):
    inside, outside = programs(author, body)
    outside = grad(outside)(2 * X, K + 1)
    same(make_fx(grad(inside))(X, K)(2 * X, K + 1), outside)
    same(make_fx(vmap(grad(inside), in_dims=(0, None)))(np.stack([X, X]), K)(np.stack([2 * X, X]), K + 1)[0], outside)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("author", AUTHORS, ids=lambda author: author.__name__)
def test_on_a_batch_that_is_differentiated(author, body):
    def of_batch(run):
        return grad(lambda x, k: vmap(lambda x: run(x, k))(ops.np.stack([x, 2 * x])).sum(), argnums=(0, 1))

    inside, outside = programs(author, body)
    same(of_batch(inside)(X, K), of_batch(outside)(X, K))


def test_hook_in_a_body():
    def program(run):
        def f(x, k):
            def body(x):
                y = x * x
                if y.requires_grad:
                    y.register_hook(lambda g: g * k)
                return y * k

            return run(body, x).sum()

        return lambda x, k: grad(lambda x, k: (grad(f)(x, k) ** 2).sum(), argnums=(0, 1))(x, k)

    found = program(lambda body, x: map_slices(body, x))(X, K)
    same(found, (8 * X * K**4, np.array(16 * (X * X).sum() * K**3)))


def scaled_by(k):
    """Scale by a value that the forward function captures, whose derivative is that of the operators of forward."""
    class Scaled(Stateless):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * k

        @staticmethod
        def backward(ctx, g):
            return g * k

    return Scaled.apply


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("body", BODIES)
def test_forward_that_captures_a_tracked_value(body, transform):
    inside, outside = BODIES[body]
    found = TRANSFORMS[transform](lambda x, k: ops.np.sum(inside(scaled_by(k), x * x)))(X, K)
    expected = TRANSFORMS[transform](lambda x, k: ops.np.sum(outside(lambda x: x * k, x * x)))(X, K)
    for one, other in zip(found if isinstance(found, tuple) else (found,),
                          expected if isinstance(expected, tuple) else (expected,), strict=True):
        same(0.0 if one is None else one, np.zeros_like(other) if other is None else other)


HIDDEN = {}


def by_what_nobody_sees(k):
    HIDDEN["k"] = k

    class Slope(Stateless):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * eval("HIDDEN['k']")

    return Slope.apply


def test_what_cannot_be_found_is_an_error():
    def f(x, k):
        square = by_what_nobody_sees(k)
        return map_slices(lambda x: square(x), x).sum()

    with pytest.raises(AutogradError, match=r"map: f captures a value of grad(.|\n)*become a constant"):
        grad(f, argnums=(0, 1))(X, K)
