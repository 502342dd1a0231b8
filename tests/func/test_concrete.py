"""Numbers from values of transforms: conversions of integers, `concrete_value`, and what is refused."""

import operator

import numpy as np
import pytest

from pydispatch import Tensor
from pydispatch.exceptions import AutogradError, ConversionError, DataDependentError, NoDataError, VmapError
from pydispatch.func import concrete_value, functionalize, grad, jacfwd, jacrev, jvp, linearize, vjp, vmap
from pydispatch.modes import DispatchMode
from pydispatch.testing import LoggingTensor
from pydispatch.tracing import make_fx
from pydispatch.tracing.fake import FakeMode
from tests.together import together

X = np.array([3.0, 1.0, 2.0])
TABLE = np.array([10.0, 20.0, 30.0])

INSIDE = {
    "grad": lambda f: grad(lambda x: f(x) or x.sum())(X),
    "vjp": lambda f: vjp(lambda x: f(x) or x, X),
    "jvp": lambda f: jvp(lambda x: f(x) or x, (X,), (X,)),
    "linearize": lambda f: linearize(lambda x: f(x) or x, X),
    "jacrev": lambda f: jacrev(lambda x: f(x) or x)(X),
    "jacfwd": lambda f: jacfwd(lambda x: f(x) or x)(X),
    "grad of jvp": lambda f: grad(lambda x: jvp(lambda x: f(x) or x.sum(), (x,), (X,))[1])(X),
    "jvp of grad": lambda f: jvp(grad(lambda x: f(x) or x.sum()), (X,), (X,)),
    "grad of grad": lambda f: grad(lambda x: grad(lambda x: f(x) or x.sum())(x).sum())(X),
    "tape": lambda f: f(Tensor(X, requires_grad=True)),
    "grad on the tape": lambda f: grad(lambda x: f(x) or x.sum())(Tensor(X, requires_grad=True)),
}
IN_A_BATCH = {
    "vmap": lambda f: vmap(lambda x: f(x) or x)(X[None]),
    "vmap of grad": lambda f: vmap(grad(lambda x: f(x) or x.sum()))(X[None]),
    "grad of vmap": lambda f: grad(lambda x: vmap(lambda x: f(x) or x)(x[None]).sum())(X),
    "vmap of jvp": lambda f: vmap(lambda x: jvp(lambda x: f(x) or x, (x,), (x,))[1])(X[None]),
}

CONVERSIONS = {
    "int": (lambda x: int(x.argmax()), 0), "bool": (lambda x: bool((x > 0).all()), True),
    "float": (lambda x: float(x.argmin()), 1.0), "complex": (lambda x: complex(x.argmin()), 1.0 + 0.0j),
    "index": (lambda x: operator.index(x.argmin()), 1), "list": (lambda x: [5, 6, 7][x.argmin()], 6),
    "range": (lambda x: list(range(x.argmin())), [0]), "slice": (lambda x: "abc"[: x.argmin()], "a"),
    "raw by number": (lambda x: TABLE[x.argmin()], 20.0),
    "raw by array": (lambda x: TABLE[x.astype(int) - 1].tolist(), [30, 10, 20]),
    "raw by mask": (lambda x: TABLE[x > 1.5].tolist(), [10, 30]),
    "asarray": (lambda x: np.asarray(x > 1.5).tolist(), [True, False, True]),
    "numpy": (lambda x: x.astype(int).numpy().tolist(), [3, 1, 2]),
    "tolist": (lambda x: x.astype(int).tolist(), [3, 1, 2]),
    "item": (lambda x: x.argmin().item(), 1),
}


@pytest.mark.parametrize("call", INSIDE.values(), ids=INSIDE)
@together("convert, expected", CONVERSIONS.values(), ids=CONVERSIONS)
def test_integers_and_bools_can_be_converted(call, convert, expected):
    found = []
    call(lambda x: found.append(convert(x)))
    assert found
    assert found == [expected] * len(found)


@pytest.mark.parametrize("call", IN_A_BATCH.values(), ids=IN_A_BATCH)
@together("convert", [convert for convert, _ in CONVERSIONS.values()], ids=CONVERSIONS)
def test_not_those_of_a_batch(call, convert):
    with pytest.raises((DataDependentError, ConversionError)):
        call(lambda x: convert(x) and None)


@pytest.mark.parametrize("name", sorted(INSIDE.keys() - {"tape"}))
@together("convert", [lambda x: float(x[0]), lambda x: complex(x[0]), np.asarray, lambda x: x.numpy()],
          ids=["float", "complex", "asarray", "numpy"])
def test_a_value_with_a_derivative_is_refused_with_what_to_write(name, convert):
    with pytest.raises(ConversionError, match=r"\n.*pydispatch\.func\.concrete_value\(tensor\)"):
        INSIDE[name](lambda x: convert(x) and None)


def test_a_gradient_goes_on_beside_the_converted_index():
    np.testing.assert_array_equal(grad(lambda x: x[int(x.argmax())] * TABLE[x.argmax()])(X), [10.0, 0.0, 0.0])


# --- concrete_value --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", INSIDE.values(), ids=INSIDE)
def test_concrete_value_of_every_level(call):
    found = []
    call(lambda x: found.append(concrete_value(x * 2.0)))
    assert found
    for value in found:
        assert type(value) is np.ndarray
        assert not value.flags.writeable
        np.testing.assert_array_equal(value, 2 * X)


@pytest.mark.parametrize("call", IN_A_BATCH.values(), ids=IN_A_BATCH)
def test_concrete_value_of_a_batch_is_refused_unless_asked_for(call):
    with pytest.raises(DataDependentError, match=r"vmap.*\n.*concrete_value\(value, batches=True\)"):
        call(concrete_value)
    found = []
    call(lambda x: found.append(concrete_value(x, batches=True)))
    np.testing.assert_array_equal(found[0], X[None])


def test_the_axis_of_the_outermost_batch_comes_first():
    found = []
    vmap(vmap(lambda x: found.append(concrete_value(x, batches=True)) or x), in_dims=1)(np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(found[0], np.arange(6.0).reshape(2, 3).T)


def test_concrete_value_in_containers_and_of_what_is_no_tensor():
    found = concrete_value({"a": Tensor(X), "b": [X, 1.5, None, "text"]})
    assert type(found["a"]) is np.ndarray
    assert found["b"][0] is X
    assert found["b"][1:] == [1.5, None, "text"]


@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
def test_a_trace_does_not_bake_it_in(tracing_mode):
    with pytest.raises((DataDependentError, NoDataError)):
        make_fx(lambda x: x * concrete_value(x)[0], tracing_mode=tracing_mode)(X)
    with pytest.raises((DataDependentError, NoDataError)):
        make_fx(grad(lambda x: x.sum() * concrete_value(x)[0]), tracing_mode=tracing_mode)(X)


def test_a_trace_gives_that_of_a_constant():
    constant = Tensor(TABLE)
    graph = make_fx(lambda x: x * concrete_value(constant)[1])(X)
    np.testing.assert_array_equal(np.asarray(graph(2 * X)), 40 * X)


def test_modes_are_told():
    class Told(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

        def on_conversion(self, tensor, what):
            told.append(what)

    told = []
    with Told():
        concrete_value(Tensor(X))
    assert told == ["a concrete value"]


def test_in_functionalize_it_is_up_to_date():
    found = []

    def doubled(x):
        view = x[1:]
        x *= 2
        found.append(concrete_value(view))
        return x

    functionalize(doubled)(X.copy())
    np.testing.assert_array_equal(found[0], 2 * X[1:])


def test_what_has_no_data_has_none():
    with FakeMode() as mode, pytest.raises(NoDataError):
        concrete_value(mode.from_array(X))
    with pytest.raises(NoDataError):
        concrete_value(LoggingTensor(X))


def test_a_value_of_a_transform_that_is_over():
    kept = []
    grad(lambda x: kept.append(x) or x.sum())(X)
    np.testing.assert_array_equal(concrete_value(kept[0]), X)
    vmap(lambda x: kept.append(x) or x)(X)
    with pytest.raises(VmapError, match="escaped"):
        concrete_value(kept[1])


# --- messages --------------------------------------------------------------------------------------------------------

WRITES = {
    "setitem": lambda x: operator.setitem(x, 0, 1.0), "view": lambda x: operator.setitem(x[1:], 0, 1.0),
    "in place": lambda x: operator.imul(x, 2.0),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("name", ["grad", "vjp"])
def test_a_write_to_the_argument_of_grad_names_the_transform(write, name):
    with pytest.raises(AutogradError, match=rf"an argument that {name}.* differentiates with respect to.*\n.*copy\(\)"):
        INSIDE[name](lambda x: write(x) and None)


def test_on_the_tape_the_message_speaks_of_leaves():
    with pytest.raises(AutogradError, match="a leaf Tensor that requires grad"):
        Tensor(X.copy(), requires_grad=True)[0] = 1.0


def test_the_tape_does_not_recommend_item_for_arrays():
    with pytest.raises(AutogradError, match=r"\n.*tensor\.detach\(\)") as caught:
        np.asarray(Tensor(X, requires_grad=True))
    assert "item()" not in str(caught.value)
