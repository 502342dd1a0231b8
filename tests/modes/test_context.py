"""A copy of the context, wherever it is made, finds the state of the code that made it, and no other state."""

import asyncio
import contextvars
import threading

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, _core, autograd, func, library, ops
from pydispatch.func import Transform, grad, jvp, vmap
from pydispatch.higher_order import cond, scan
from pydispatch.library import Library, custom_op, register_pydispatch
from pydispatch.modes import exclude_keys, mode_stack
from pydispatch.testing import LoggingTensor
from tests.together import together

X = np.ones(3)

pytestmark = pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")    # kernels in a loop


# --- what is seen, and from where ------------------------------------------------------------------------------------


def seen():
    """Return the state as far as a program can read it."""
    state = _core.current_state()
    return state.stack, state.grad, state.forward, state.inference, state.excluded, autograd.is_grad_enabled()


def in_copy():
    return contextvars.copy_context().run(seen)


def in_thread_with_copy():
    found, context = [], contextvars.copy_context()
    thread = threading.Thread(target=lambda: found.append(context.run(seen)))
    thread.start()
    thread.join()
    return found[0]


def in_task():
    async def work():
        return await asyncio.create_task(_seen())

    async def _seen():
        return seen()

    return asyncio.run(work())


def in_to_thread():
    async def work():
        return await asyncio.to_thread(seen)

    return asyncio.run(work())


def in_executor():
    async def work():
        return await asyncio.get_running_loop().run_in_executor(None, contextvars.copy_context().run, seen)

    return asyncio.run(work())


def in_greenlet():
    import greenlet
    child = greenlet.greenlet(seen)
    child.gr_context = contextvars.copy_context()
    return child.switch()


WAYS = {way.__name__: way for way in (in_copy, in_thread_with_copy, in_task, in_to_thread, in_executor, in_greenlet)}


# --- users' code, and who calls it ---------------------------------------------------------------------------------


def handler_of_mode(look):
    class Mode(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            look()
            return func(*args, **(kwargs or {}))

    with Mode(), Mode():
        ops.np.add(X, 1)


def rule_of_mode(look):
    class Mode(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def rule(mode, func, types, args, kwargs):
        look()
        return func(*args, **kwargs)

    with register_pydispatch("np::add", Mode, rule), Mode():
        ops.np.add(X, 1)


def declined_by_mode(look):
    class Mode(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with Mode():
        handler_of_mode(look)


class Wrapped(LoggingTensor):
    look = None

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if cls.look is not None:
            cls.look()
        return super().__pydispatch__(func, types, args, kwargs)


def handler_of_subclass(look):
    Wrapped.look = look
    try:
        ops.np.add(Wrapped(X), 1)
    finally:
        Wrapped.look = None


def handler_of_subclass_under_mode(look):
    class Mode(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with Mode():
        handler_of_subclass(look)


def kernel(look, key, call, **options):
    with Library("contexts", "FRAGMENT") as lib:
        lib.define("twice(Tensor x) -> Tensor")

        def twice(*args):
            look()
            if options.get("boxed"):
                args[-1].append(args[-1].pop() * 2)
                return None
            return args[-1] * 2

        lib.impl("twice", twice, key, **options)
        with library.register_autograd("contexts::twice", lambda ctx, g: g * 2):
            call(ops.contexts.twice)


def tracked(op):
    op(Tensor(X, requires_grad=True))


def in_grad(op):
    grad(lambda x: op(x).sum())(X)


def in_jvp(op):
    jvp(lambda x: x + op(np.ones(3)), (X,), (X,))


def in_vmap(op):
    vmap(op)(np.ones((2, 3)))


def in_mode(op):
    class Mode(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode():
        op(Tensor(X))


def custom_formulas(look):
    @custom_op("contexts::triple", mutates_args=())
    def triple(x: Tensor) -> Tensor:
        look()
        return x * 3

    def setup(ctx, inputs, output):
        look()

    def backward(ctx, g):
        look()
        return g * 3

    try:
        triple.register_autograd(backward, setup_context=setup)
        triple(Tensor(X, requires_grad=True)).sum().backward()
        grad(lambda x: triple(x).sum())(X)
    finally:
        triple.remove()


def function_of(look, **attributes):
    class Square(autograd.Function):
        @staticmethod
        def forward(x):
            look()
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            look()
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            look()
            (x,) = ctx.saved_tensors
            return 2 * x * g

        @staticmethod
        def jvp(ctx, t):
            look()
            (x,) = ctx.saved_tensors
            return 2 * x * t

    for name, value in attributes.items():
        setattr(Square, name, value)
    return Square.apply


def function_on_tape(look):
    function_of(look)(Tensor(X, requires_grad=True)).sum().backward()


def function_in_grad(look):
    square = function_of(look)
    grad(lambda x: square(x).sum())(X)


def function_in_jvp(look):
    jvp(function_of(look), (X,), (X,))


def function_in_vmap(look):
    def rule(info, in_dims, x):
        look()
        return x * x, in_dims[0]

    vmap(function_of(look, vmap=staticmethod(rule)))(np.ones((2, 3)))


def function_in_generated_vmap(look):
    square = function_of(look, generate_vmap_rule=True)
    vmap(grad(lambda x: square(x).sum()))(np.ones((2, 3)))


def hooks(look):
    leaf = Tensor(X, requires_grad=True)
    value = leaf * 2
    leaf.register_hook(lambda g: look())
    leaf.register_post_accumulate_grad_hook(lambda t: look())
    value.register_hook(lambda g: look())
    value.grad_fn.register_hook(lambda sent, given: look())
    value.grad_fn.register_prehook(lambda given: look())
    autograd.register_multi_grad_hook([leaf, value], lambda grads: look())
    value.sum().backward()


def saved_hooks(look):
    def pack(value):
        look()
        return value

    def unpack(value):
        look()
        return value

    leaf = Tensor(X, requires_grad=True)
    with autograd.saved_tensors_hooks(pack, unpack):
        value = leaf * leaf
    value.sum().backward()


def transform(look):
    class Interpreter(Transform):
        def process(self, func, args, kwargs):
            look()
            return self.wrap(func(*[arg.array if self.owns(arg) else arg for arg in args], **kwargs))

    with Interpreter() as interpreter:
        ops.np.add(interpreter.wrap(X), 1)


def transformed_functions(look):
    def function(x):
        look()
        return (x * x).sum()

    vmap(grad(function))(np.ones((2, 3)))
    func.jacrev(function)(X)
    func.jacfwd(function)(X)
    func.hessian(function)(X)
    func.functionalize(function)(X)


def control_flow(look):
    def step(carry, x):
        look()
        return carry * x, carry * 2

    def branch(x):
        look()
        return x * 2

    scan(step, X[0], X)
    grad(lambda x: scan(step, x[0], x)[0])(X)
    cond(np.array(True), branch, branch, (X,))
    vmap(lambda p, x: cond(p, branch, branch, (x,)))(np.array([True, False]), np.ones((2, 3)))


def guard_inside_handler(look):
    class Mode(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            with autograd.no_grad():
                look()
                with exclude_keys("SparseCPU"):
                    look()
            look()
            return func(*args, **(kwargs or {}))

    with Mode():
        ops.np.add(X, 1)


PLACES = {
    "handler of a mode": handler_of_mode,
    "rule of a mode": rule_of_mode,
    "declined by a mode": declined_by_mode,
    "handler of a subclass": handler_of_subclass,
    "handler of a subclass under a mode": handler_of_subclass_under_mode,
    **{
        f"kernel, {key}, {call.__name__}": lambda look, key=key, call=call: kernel(look, key, call)
        for key in ("CPU", "CompositeExplicitAutograd") for call in (tracked, in_grad, in_jvp, in_vmap, in_mode)
    },
    "boxed kernel": lambda look: kernel(look, "CPU", in_grad, boxed=True),
    "kernel with key set": lambda look: kernel(look, "CPU", in_grad, with_keyset=True),
    "formulas of a custom operator": custom_formulas,
    "Function on the tape": function_on_tape,
    "Function in grad": function_in_grad,
    "Function in jvp": function_in_jvp,
    "Function in vmap": function_in_vmap,
    "Function in a generated vmap": function_in_generated_vmap,
    "hooks": hooks,
    "hooks on what is saved": saved_hooks,
    "transform": transform,
    "functions that are transformed": transformed_functions,
    "control flow": control_flow,
    "guards inside of a handler": guard_inside_handler,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@together("place", PLACES.values(), ids=PLACES)
def test_a_copy_of_the_context_finds_the_same_state(place, way):
    before, looks = _core.current_state(), []

    def look():
        here = seen()
        looks.append((here, way(), seen() == here))

    place(look)
    assert looks
    assert all(here == there and same for here, there, same in looks)
    assert _core.current_state() is before


@together("place", PLACES.values(), ids=PLACES)
def test_an_exception_leaves_the_state_as_it_was(place):
    before = _core.current_state()

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        place(fail)
    assert _core.current_state() is before


@together("place", PLACES.values(), ids=PLACES)
def test_other_context_variables_are_the_users(place):
    variable = contextvars.ContextVar("users", default=0)

    def change():
        variable.set(variable.get() + 1)

    place(change)
    assert variable.get() > 0


def test_a_handler_that_goes_on_in_a_copy_is_not_called_again():
    calls = []

    class Forwarding(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            calls.append(func)
            return contextvars.copy_context().run(func, *args)

    with Forwarding(), Forwarding():
        assert ops.np.add(X, 1).tolist() == [2.0, 2.0, 2.0]
    assert calls == [ops.np.add.default] * 2


def test_hooks_of_a_pass_do_not_end_its_state():
    seen_by_hooks = []
    value = leaf = Tensor(X, requires_grad=True)
    for _ in range(3):
        value = value * 2
        value.register_hook(lambda g: seen_by_hooks.append((autograd.is_grad_enabled(), g.requires_grad)))
    leaf.register_hook(lambda g: seen_by_hooks.append((autograd.is_grad_enabled(), g.requires_grad)))
    value.sum().backward()
    assert seen_by_hooks == [(False, False)] * 4


# --- what is not seen ------------------------------------------------------------------------------------------------


class Calling(DispatchMode):
    def __init__(self, function):
        self.function = function
        self.result = None

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.result = self.function()
        return func(*args, **(kwargs or {}))


def test_a_context_copied_before_the_call_does_not_see_the_handlers_state():
    mode = Calling(lambda: context.run(mode_stack))
    with mode:
        context = contextvars.copy_context()
        ops.np.add(X, 1)
    assert mode.result == (mode,)


def test_a_context_copied_in_the_handler_keeps_its_state_afterwards():
    mode = Calling(contextvars.copy_context)
    with mode:
        ops.np.add(X, 1)
        assert mode.result.run(mode_stack) == ()
        assert mode_stack() == (mode,)


def test_a_task_from_before_the_handler_that_is_resumed_in_it_sees_its_own_modes():
    async def work():
        await _Pause()
        return mode_stack()

    def resume():
        with pytest.raises(StopIteration) as stop:
            context.run(coroutine.send, None)
        return stop.value.value

    mode = Calling(resume)
    with mode:
        coroutine, context = work(), contextvars.copy_context()
        context.run(coroutine.send, None)
        ops.np.add(X, 1)
    assert mode.result == (mode,)


class _Pause:
    def __await__(self):
        yield


@pytest.mark.parametrize("copies", [False, True], ids=["plain thread", "thread with a copy"])
def test_a_thread_from_before_the_handler_sees_its_own_modes(copies):
    asked, found = threading.Event(), []

    def look():
        asked.wait()
        found.append(mode_stack())

    def ask():
        asked.set()
        thread.join()

    mode = Calling(ask)
    with mode:
        run = contextvars.copy_context().run if copies else lambda function: function()
        thread = threading.Thread(target=run, args=(look,))
        thread.start()
        ops.np.add(X, 1)
    assert found == [(mode,) if copies else ()]


def test_a_generator_that_a_handler_began_is_where_it_goes_on():
    def steps():
        while True:
            yield mode_stack()

    generator = steps()
    mode = Calling(lambda: next(generator))
    with mode:
        ops.np.add(X, 1)
        assert mode.result == ()
        assert next(generator) == (mode,)
    assert next(generator) == ()


def test_handlers_in_tasks_that_take_turns_see_their_own_modes():
    class Note(DispatchMode):
        def __init__(self):
            self.inside = []

        def __pydispatch__(self, func, types, args=(), kwargs=None):
            self.inside.append(mode_stack())
            return func(*args, **(kwargs or {}))

    async def work(mode):
        with mode:
            for _ in range(20):
                ops.np.add(X, 1)
                await asyncio.sleep(0)
                assert mode_stack() == (mode,)

    async def main():
        await asyncio.gather(*map(work, modes))

    modes = [Note() for _ in range(5)]
    asyncio.run(main())
    assert all(mode.inside == [()] * 20 for mode in modes)


def test_greenlets_that_switch_inside_of_handlers_see_their_own_modes():
    import greenlet
    seen_by = {}

    def work(name):
        mode = Calling(greenlet.getcurrent().parent.switch)
        with mode:
            for _ in range(5):
                ops.np.add(Tensor(X, requires_grad=True), 1)
                seen_by.setdefault(name, []).append(mode_stack() == (mode,))

    children = [greenlet.greenlet(work) for _ in range(4)]
    for child, name in zip(children, "abcd", strict=True):
        child.gr_context = contextvars.copy_context()
        child.switch(name)
    while any(not child.dead for child in children):
        for child in reversed(children):
            if not child.dead:
                child.switch()
    assert seen_by == {name: [True] * 5 for name in "abcd"}
    assert mode_stack() == ()
