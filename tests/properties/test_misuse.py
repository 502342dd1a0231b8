"""Wrong arguments, wrong selves and unfinished objects are errors: nothing that Python code does kills the process."""

from __future__ import annotations

import copy
import os
import random
import signal

import numpy as np
import pytest

import pydispatch
from pydispatch import DispatchKeySet, DispatchMode, Tensor, _core, autograd, func, modes, ops, tree
from pydispatch.backends import MetaArray
from pydispatch.exceptions import DispatchTypeError
from pydispatch.tracing import make_fx
from tests.modes.recorders import Passing
from tests.together import together

NP = ops.np
X = np.arange(3.0)
CLASSES = [cls for cls in vars(_core).values() if isinstance(cls, type) and cls.__module__ == "pydispatch._core"]
MADE_BY_THE_CORE = [_core.Memory, _core.State, _core.InterpreterStack, _core.GradientSlot, _core.TapeNode,
                    _core.BackwardPass, _core.VjpFunction, _core.Wrapper, _core.GradTensor, _core.JvpTensor,
                    _core.BatchedTensor, _core.PythonWrapper]
FILLED_AT_ONCE = [_core.Signature, _core.TableEntry, _core.Table, _core.Derivative, _core.UfuncChain, _core.Product,
                  _core.BatchingRule, _core.Context, _core.OpOverload, _core.OpOverloadPacket, _core.Reduction,
                  _core.Method, _core.ArrayMethod, _core.OutKernel, _core.AnyDevice, _core.GuardedCall]


def test_classes_of_the_core_are_its_own():
    # NumPy's classes that the core compares with would crash where somebody makes objects of them by `__new__`
    foreign = {name for name, value in vars(_core).items()
               if isinstance(value, type) and value.__module__.partition(".")[0] != "pydispatch"}
    assert foreign == set()


# --- more axes than an array has ---


@pytest.mark.parametrize("call", [
    pytest.param(lambda: NP.broadcast_to(X, (1,) * 100 + (3,)), id="an array"),
    pytest.param(lambda: NP.broadcast_to(1.0, (1,) * 65), id="a number"),
    pytest.param(lambda: NP.broadcast_to(Tensor(X), (0x41414141,) * 300 + (3,)), id="a Tensor"),
    pytest.param(lambda: func.grad(lambda x: NP.broadcast_to(x, (1,) * 100 + (3,)).sum())(X), id="in grad"),
    pytest.param(lambda: func.vmap(lambda x: NP.broadcast_to(x, (1,) * 64))(X), id="in vmap, with the batch"),
    pytest.param(lambda: func.vmap(lambda x: NP.add(x, np.ones((1,) * 64)))(X), id="beside a batch"),
    pytest.param(lambda: MetaArray((1,) * 65), id="a MetaArray"),
    pytest.param(lambda: _core.Shell(shape=(1,) * 65), id="a Shell"),
    pytest.param(lambda: NP.broadcast_to(MetaArray((3,)), (1,) * 100 + (3,)), id="on the Meta backend"),
    pytest.param(lambda: _core.expand(X, (1,) * 65 + (3,)), id="the gradient of a sum"),
])
def test_more_axes_than_an_array_has(call):
    with pytest.raises(ValueError, match=r"allows at most 64|currently 64"):
        call()


def test_as_many_axes_as_an_array_has():
    shape = (1,) * 63 + (3,)
    assert NP.broadcast_to(X, shape).shape == MetaArray(shape).shape == shape
    value = func.vmap(lambda x: NP.broadcast_to(x, (1,) * 63))(X)
    assert value.shape == (3, *(1,) * 63)


# --- a number where an array is written to ---

WRITES = {
    "add": lambda x, out: NP.add(x, 1.0, out=out),
    "add.out": lambda x, out: NP.add.out(x, 1.0, out=out),
    "sum": lambda x, out: NP.sum(x, out=out),
    "round": lambda x, out: NP.round(x, out=out),
    "where": lambda x, out: NP.where(np.array(True), x, 0.0, out=out),
    "concatenate": lambda x, out: NP.concatenate([x, x], out=out),
    "add_": lambda x, out: NP.add_(out, x),
    "setitem_": lambda x, out: NP.setitem_(out, 0, x),
}
PLACES = {
    "raw": lambda f: f(X),
    "Tensor": lambda f: f(Tensor(X)),
    "tape": lambda f: f(Tensor(X, requires_grad=True)),
    "meta": lambda f: f(MetaArray((3,))),
    "grad": lambda f: func.grad(lambda x: f(x).sum())(X),
    "vmap": lambda f: func.vmap(f)(np.ones((2, 3))),
    "jvp": lambda f: func.jvp(f, (X,), (X,)),
    "functionalize": lambda f: func.functionalize(f)(X),
    "make_fx": lambda f: make_fx(f)(X),
    "make_fx, fake": lambda f: make_fx(f, tracing_mode="fake")(X),
}


@together("found", [1.0, True, 2j, np.float64(1.0)], ids=repr)
@together("place", PLACES.values(), ids=list(PLACES))
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_number_cannot_be_written_into(write, place, found):
    with pytest.raises(DispatchTypeError, match=(
            r"^operator np::(\w|\.)+: argument '(out|x1|x)' \(position \d\): expected an array to write into, "
            fr"found {type(found).__name__} .*\npass an array, such as np.empty\(shape, dtype\), "
            r"or call ops\.np\.\w+, which returns a new one")):
        place(lambda x: write(x, found))


@pytest.mark.parametrize("found", [[1.0], (X,), None, "x"], ids=repr)
def test_what_is_no_array_as_out(found):
    with pytest.raises(DispatchTypeError, match=(
            r"^operator np::add.out: argument 'out' \(position 5\): expected Tensor, found .*\npass an array, such")):
        NP.add(X, 1.0, out=found)


@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
def test_a_number_among_arrays_that_are_written_into(fresh, place):
    fresh.define("fill(Tensor x, Tensor(a!)[] outs) -> ()")
    fill = getattr(ops, fresh.namespace).fill
    with pytest.raises(DispatchTypeError, match=(
            r"fill: argument 'outs' \(position 2\): expected an array to write into, found float 1.0\npass an array")):
        place(lambda x: fill(x, [X.copy(), 1.0]))


# --- objects ---


@together("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_methods_check_self(cls):
    methods = [member for member in vars(cls).values() if type(member).__name__ == "method_descriptor"]
    for method in methods:
        for wrong in (None, 1, object()):
            with pytest.raises(TypeError):
                method(wrong)


@pytest.mark.parametrize("cls", MADE_BY_THE_CORE, ids=lambda cls: cls.__name__)
def test_objects_that_only_the_core_makes(cls):
    for make in (cls, lambda: cls.__new__(cls), lambda: object.__new__(cls)):
        with pytest.raises(TypeError):
            make()


@pytest.mark.parametrize("cls", FILLED_AT_ONCE, ids=lambda cls: cls.__name__)
def test_objects_are_never_empty(cls):
    with pytest.raises(TypeError):
        cls.__new__(cls)


@together("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_no_class_pickles_its_memory(cls):
    assert not hasattr(cls, "__reduce_cython__")
    assert not hasattr(cls, "__setstate_cython__")


@pytest.mark.parametrize("make", [
    lambda: a_node(), lambda: NP.add.default.live_table, _core.current_state,
    lambda: func.vjp(NP.sin, X)[1], lambda: _core.Product(0, 1, False, False),
])
def test_what_cannot_be_copied_says_so(make):
    NP.add(X, X)
    with pytest.raises(TypeError, match="cannot pickle"):
        copy.copy(make())


def test_a_node_is_made_once():
    node = pydispatch.autograd.custom_derivatives.CustomNode(None, None, (), (), None, None, None)
    with pytest.raises(TypeError, match="cannot be initialized twice"):
        node.__init__(None, None, (), (), None, None, None)


def test_a_wrapper_without_its_inner():
    class Around(pydispatch.WrapperTensor):
        __pydispatch__ = classmethod(lambda cls, func, types, args=(), kwargs=None: NotImplemented)

    wrapper = Around(X)
    del wrapper.inner
    assert repr(wrapper) == "Around(None)"
    wrapper.inner = X
    assert wrapper.inner is X


# --- the core's functions ---


def a_node():
    return (Tensor(X, requires_grad=True) * 2).grad_fn


def run_backward(root, inputs):
    return _core.run_backward((root,), (X,), create_graph=False, keep_graph=False, inputs=inputs, interpreter=None)


def a_chain(*steps):
    return lambda: _core.UfuncChain([(np.add, operands) for operands in steps])


ARGUMENT, CONSTANT, PREVIOUS = ("argument", 0), ("constant", 1.0), ("previous", None)


@pytest.mark.parametrize(("call", "error"), [
    pytest.param(lambda: _core.rank_backend(10**7, _core.DispatchKeySet()), ValueError, id="rank_backend"),
    pytest.param(lambda: _core.KeyLayout.slot(-1), ValueError, id="slot"),
    pytest.param(lambda: _core.current_state().derive(None, removed=(10**7,)), IndexError, id="derive"),
    pytest.param(lambda: _core.Table(_core.Signature(NP.add.default.schema), (), False), ValueError, id="Table"),
    pytest.param(a_chain((ARGUMENT, CONSTANT, CONSTANT)), ValueError, id="Chain of three operands"),
    pytest.param(a_chain((ARGUMENT, ("argument", -1))), IndexError, id="Chain on an argument before the first"),
    pytest.param(a_chain((ARGUMENT, ("argument", 99))), IndexError, id="Chain on the hundredth argument"),
    pytest.param(a_chain((ARGUMENT, PREVIOUS)), ValueError, id="Chain whose first step has a previous one"),
    pytest.param(lambda: _core.fused_result(a_chain((ARGUMENT, ("argument", 1)))(), X), IndexError, id="of a Chain"),
    pytest.param(lambda: _core.fused_result(_core.Product(0, 5, False, False), X, X), IndexError, id="of a Product"),
    pytest.param(lambda: _core.run_under(None, len, ()), TypeError, id="run_under"),
    pytest.param(lambda: _core.keep_vectorcall(int), TypeError, id="keep_vectorcall"),
    pytest.param(lambda: _core.make_directly_callable(1), TypeError, id="make_directly_callable"),
    pytest.param(lambda: _core.attach(Tensor(X), 1), TypeError, id="attach"),
    pytest.param(lambda: run_backward(1, None), TypeError, id="run_backward from a number"),
    pytest.param(lambda: run_backward(a_node(), (None,)), TypeError, id="run_backward to nothing"),
])
def test_wrong_arguments(call, error):
    with pytest.raises(error):
        call()


def test_formulas_fit_their_operator():
    def derivative(**changes):
        arguments = {"formulas": (_core.identity,), "inputs": ((0,),), "residuals": ((0, 0),), **changes}
        return _core.Derivative(
            name="F", operator=None, broadcasts=False, in_place=False, lists=0, source=None, **arguments)

    derivative()
    for changes in ({"inputs": ((1,),)}, {"inputs": ((-1,),)}, {"inputs": ((0,) * 17,)}, {"inputs": ()}, {"fused": ()},
                    {"formulas": (None,) * 65}, {"residuals": ((0, 0),) * 17}):
        with pytest.raises(ValueError, match=r"formula|residuals"):
            derivative(**changes)
    with pytest.raises(TypeError, match="not a fused formula"):
        derivative(fused=(1,))


def test_a_transform_that_was_never_entered_is_left():
    _core.PythonInterpreter("never").__exit__(None, None, None)
    assert NP.add(1.0, X).shape == (3,)


def test_a_value_cannot_lie_below_itself():
    class Same(_core.PythonInterpreter):
        def process(self, func, args, kwargs):
            tensor = args[0]
            with pytest.raises(ValueError, match="below itself"):
                _core.replace_value(tensor, tensor)
            return tensor

    with Same("same") as interpreter:
        NP.sin(_core.wrap_value_at(interpreter, X))


def test_a_mode_that_lost_its_handler():
    class Mode(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            del Mode.__pydispatch__, DispatchMode.__pydispatch__
            return func(*args, **kwargs or {})

    handler = DispatchMode.__pydispatch__
    try:
        with Mode():
            NP.sin(X)
            with pytest.raises(AttributeError, match="__pydispatch__"):
                NP.sin(X)
    finally:
        DispatchMode.__pydispatch__ = handler


# --- anything at all, in children that may die ---


def survives(function) -> bool:
    """Return whether a child that calls this ends."""
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            signal.alarm(60)
            function()
        except BaseException:
            pass
        finally:
            os._exit(0)
    return not os.WIFSIGNALED(os.waitpid(child, 0)[1])


def attempt(function, *args):
    try:
        return function(*args)
    except Exception:
        return None


def things():
    leaf = Tensor(X, requires_grad=True)
    return [
        None, None, 1, -1, 2**70, 10**7, 1.5, "a", "CPU", "np::add", (), (1,), (None,), [], {}, X, Tensor(X), leaf,
        leaf * 2, a_node(), DispatchKeySet("CPU"), NP.add.default, NP.add, NP.add.default.live_table,
        _core.current_state(), Passing(), object(), int, Tensor, MetaArray((2,)), Tensor.__new__(Tensor),
        MetaArray.__new__(MetaArray), _core.Grad("g"), _core.Vmap(3),
        _core.Stack([1]), (leaf,), [leaf], autograd.no_grad(), slice(1), lambda *args, **kwargs: None,
    ]


CHANGES_THE_PROCESS = {"connect", "extend", "set_special_methods", "trace_from_start"}
FUNCTIONS = {
    f"{module.__name__}.{name}": function
    for module in (_core, pydispatch, autograd, modes, func, tree)
    for name, function in vars(module).items()
    if callable(function) and not isinstance(function, type)
    and not name.startswith("_") and name not in CHANGES_THE_PROCESS
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_called_with_anything(name):
    def call_often():
        choose = random.Random(name)
        values = things()
        for value in values:
            attempt(FUNCTIONS[name], value)
        for _ in range(300):
            attempt(FUNCTIONS[name], *choose.choices(values, k=choose.randrange(6)))

    assert survives(call_often)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [*CLASSES, *(value for value in vars(pydispatch).values() if isinstance(value, type))],
                         ids=lambda cls: cls.__name__)
def test_classes_called_with_anything_and_all_that_their_objects_can_do(cls):
    def call_often():
        choose = random.Random(cls.__name__)
        values = things()
        names_of_list = dir(list) if issubclass(cls, list) else ()      # whose results can be very long
        made = [attempt(cls.__new__, cls), *(value for value in values if isinstance(value, cls))]
        made += [attempt(cls, *choose.choices(values, k=choose.randrange(4))) for _ in range(300)]
        for value in [value for value in made if value is not None][:20]:
            for name in set(dir(cls)).difference(names_of_list, {"__class__", "__init_subclass__"}):
                member = attempt(getattr, value, name)
                attempt(repr, value)
                if callable(member):
                    for _ in range(12):
                        attempt(member, *choose.choices([*values, value], k=choose.randrange(4)))

    assert survives(call_often)
