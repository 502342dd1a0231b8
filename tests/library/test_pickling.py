"""Operators and functions in other processes."""

from __future__ import annotations

import builtins
import copy
import os
import pickle
import sys

import numpy as np
import pytest

from pydispatch import compile, func, ops
from pydispatch.library import Library, custom_op, register_autograd, register_fake, register_vmap
from pydispatch.library.custom_operator import definitions
from pydispatch.library.pickling import arrived_operator, reduce_operator
from pydispatch.tracing import make_fx
from tests.library import elsewhere
from tests.library.elsewhere import Process, energy

X = np.arange(1.0, 4.0)


@pytest.fixture(scope="module")
def process():
    process = Process()
    yield process
    process.close()


@pytest.fixture
def ns(new_library):
    """Provide a namespace of the test's own. What is registered in it goes with the test."""
    namespace = new_library().namespace
    yield namespace
    for name in [name for name in definitions if name.startswith(f"{namespace}::")]:
        definitions[name].remove()


@pytest.fixture
def cloudpickle():
    return pytest.importorskip("cloudpickle")


# --- functions -------------------------------------------------------------------------------------------------------

TRANSFORMED = {
    "grad": func.grad, "value_and_grad": func.value_and_grad, "jacrev": func.jacrev, "jacfwd": func.jacfwd,
    "hessian": func.hessian, "functionalize": func.functionalize, "compile": compile,
    "vmap of grad": lambda f: func.vmap(func.grad(f), in_dims=0, out_dims=1),
    "grad of compile": lambda f: func.grad(compile(f)), "compile of grad": lambda f: compile(func.grad(f)),
    "grad, by position": lambda f: func.grad(f, argnums=(0,), has_aux=False),
    "graph": lambda f: make_fx(f)(X),
}


def argument_of(name):
    return np.stack([X, X + 1]) if "vmap" in name else X


def assert_same(found, expected):
    found, expected = (value if isinstance(value, tuple) else (value,) for value in (found, expected))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_function_that_can_be_imported_is_pickled_with_its_transforms(process, name):
    function = TRANSFORMED[name](energy)
    expected = function(argument_of(name))      # compiled and traced ones are pickled with what they know now
    assert_same(process.call(function, argument_of(name)), expected)


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_closure_is_pickled_by_cloudpickle_with_its_transforms(process, cloudpickle, name):
    factor = 3.0
    function = TRANSFORMED[name](lambda x: ops.np.sum(ops.np.exp(x) * factor))
    assert_same(process.call(function, argument_of(name), by=cloudpickle), function(argument_of(name)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))],
                         ids=["copy", "deepcopy", "pickle"])
def test_the_copy_of_a_transformed_function_is_transformed_in_the_same_way(copied):
    function = func.vmap(func.grad(energy), in_dims=1, out_dims=1, chunk_size=2)
    array = np.arange(6.0).reshape(2, 3)
    assert_same(copied(function)(array), function(array))
    assert repr(copied(function)) == repr(function) == "<vmap of energy>"


def test_a_transformed_function_is_a_method_of_a_class_that_holds_it():
    class Model:
        scale = 2.0

        def loss(self, x):
            return ops.np.sum(x * x) * self.scale

        slope = func.grad(loss, argnums=1)

    np.testing.assert_array_equal(Model().slope(X), 4 * X)
    assert Model.slope.__name__ == "loss"


def test_arrays_that_a_transformed_function_captures_are_found():
    weights = np.arange(1.0, 4.0)

    def total(w):
        inner = func.grad(lambda x: ops.np.sum(x * x * w))
        return ops.np.sum(func.vmap(inner)(np.ones((2, 3))))

    expected = func.grad(total)(weights)
    compiled = func.grad(compile(total))(weights)
    np.testing.assert_array_equal(compiled, expected)


# --- operators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", [ops.np.add, ops.np.add.default, ops.scipy.special_gammaln], ids=str)
def test_an_operator_of_a_pack_is_pickled_by_name(operator):
    assert pickle.loads(pickle.dumps(operator)) is operator
    assert len(pickle.dumps(operator)) < 150


def test_an_operator_on_functions_comes_with_the_module_that_defines_it(process):
    np.testing.assert_array_equal(process.call(elsewhere.TWICE, energy, X), 2 * energy(X))
    np.testing.assert_array_equal(process.call(func.grad(elsewhere.twice_energy), X), 2 * func.grad(energy)(X))


def test_an_operator_comes_with_the_module_that_defines_it(process):
    for operator in (elsewhere.double, elsewhere.double.operator, ops.elsewhere.double):
        np.testing.assert_array_equal(process.call(operator, X), 2 * X)
        assert len(pickle.dumps(operator)) < 400
        assert pickle.loads(pickle.dumps(operator)) is operator


def defined(ns):
    """Return an operator with all that can be registered for one."""
    @custom_op(f"{ns}::scale", mutates_args=())
    def scale(x: np.ndarray, by: float = 2.0) -> np.ndarray:
        return x * by

    def setup_context(ctx, inputs, output):
        ctx.by = inputs[1]

    register_autograd(scale, lambda ctx, g: (g * ctx.by, None), setup_context=setup_context)
    register_fake(scale, lambda x, by=2.0: x)
    register_vmap(scale, lambda info, in_dims, x, by=2.0: (scale(x, by), 0))
    return scale


CALLS = {
    "kernel": lambda f: f(X, 3.0),
    "formula": lambda f: func.grad(lambda x: ops.np.sum(f(x, 3.0) * x))(X),
    "batching rule": lambda f: func.vmap(lambda x: f(x, 3.0))(np.stack([X, X])),
    "fake": lambda f: compile(lambda x: f(x) + 1)(X),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_operator_that_no_module_defines_travels_with_all_that_was_registered(process, cloudpickle, ns, name):
    scale = defined(ns)
    for operator in (scale, scale.operator, getattr(ops, ns).scale):
        np.testing.assert_array_equal(process.call(CALLS[name], operator, by=cloudpickle), CALLS[name](operator))


def test_operators_that_are_used_by_name_travel_with_ops(process, cloudpickle, ns):
    custom_op(f"{ns}::inc", lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor")
    custom_op(f"{ns}::inc2", lambda x: getattr(ops, ns).inc(getattr(ops, ns).inc(x)), mutates_args=(),
              schema="(Tensor x) -> Tensor")
    np.testing.assert_array_equal(process.call(lambda x: getattr(ops, ns).inc2(x), X, by=cloudpickle), X + 2)
    namespace = getattr(ops, ns)
    np.testing.assert_array_equal(process.call(lambda x: namespace.inc(x), X, by=cloudpickle), X + 1)
    assert pickle.loads(pickle.dumps(ops)) is ops


def test_a_kernel_may_call_its_own_operator(process, cloudpickle, ns):
    factorial = custom_op(f"{ns}::factorial", lambda n: n * 1 if n[0] <= 1 else n * factorial(n - 1), mutates_args=(),
                          schema="(Tensor n) -> Tensor")
    np.testing.assert_array_equal(process.call(factorial, np.array([5.0]), by=cloudpickle), [120.0])


def test_an_operator_of_a_library_travels_with_its_kernels_and_overloads(process, cloudpickle, ns):
    with Library(ns, "FRAGMENT") as library:
        library.define("power(Tensor x) -> Tensor")
        library.define("power.times(Tensor x, int n) -> Tensor")
        library.impl("power", lambda x: x * x, "CPU")
        library.impl("power.times", lambda keys, x, n: x ** n, "CPU", with_keyset=True)
        packet = getattr(ops, ns).power
        np.testing.assert_array_equal(process.call(packet, X, by=cloudpickle), X ** 2)
        np.testing.assert_array_equal(process.call(packet, X, 3, by=cloudpickle), X ** 3)


def test_an_operator_arrives_once(process, cloudpickle, ns):
    scale = defined(ns)

    def identity(operator):
        return id(operator), len(operator.operator.registrations)

    first = process.call(identity, scale, by=cloudpickle)
    assert process.call(identity, scale, by=cloudpickle) == first
    assert process.warnings == []


def test_an_operator_that_is_defined_anew_replaces_the_one_that_arrived(process, cloudpickle, ns):
    def define(factor):
        return custom_op(f"{ns}::f", lambda x: x * factor, mutates_args=(), schema="(Tensor x) -> Tensor")

    data = cloudpickle.dumps((define(2), (X,)))
    np.testing.assert_array_equal(process.send(data), 2 * X)
    np.testing.assert_array_equal(process.call(define(3), X, by=cloudpickle), 3 * X)
    np.testing.assert_array_equal(process.send(data), 3 * X)        # it is late
    assert process.warnings == []


def test_what_a_kernel_captures_is_sent_as_it_is_now(process, cloudpickle, ns):
    state = {"factor": 2}
    f = custom_op(f"{ns}::f", lambda x: x * state["factor"], mutates_args=(), schema="(Tensor x) -> Tensor")
    np.testing.assert_array_equal(process.call(f, X, by=cloudpickle), 2 * X)
    state["factor"] = 5
    np.testing.assert_array_equal(process.call(f, X, by=cloudpickle), 5 * X)


def test_the_definition_of_another_process_is_replaced_with_a_warning(process, cloudpickle, ns):
    def define_there(name):
        custom_op(name, lambda x: x * 10, mutates_args=(), schema="(Tensor x) -> Tensor")

    f = custom_op(f"{ns}::f", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    process.call(define_there, f"{ns}::f", by=cloudpickle)
    np.testing.assert_array_equal(process.call(f, X, by=cloudpickle), 2 * X)
    assert [f"operator {ns}::f: the definition made at {__file__}" in text for text in process.warnings] == [True]


def test_a_script_that_both_processes_have_run_is_replaced_without_a_warning(process, cloudpickle, ns):
    def run(name):
        script = "f = custom_op(name, lambda x: x * 2, mutates_args=(), schema='(Tensor x) -> Tensor')"
        scope = {"custom_op": custom_op, "name": name}
        exec(builtins.compile(script, "script.py", "exec"), scope)
        return scope["f"]

    process.call(lambda name: run(name) and None, f"{ns}::f", by=cloudpickle)
    np.testing.assert_array_equal(process.call(run(f"{ns}::f"), X, by=cloudpickle), 2 * X)
    assert process.warnings == []


def test_an_operator_comes_back_from_where_it_arrived(process, cloudpickle, ns):
    scale = defined(ns)
    data = process.call(cloudpickle.dumps, scale, by=cloudpickle)
    assert pickle.loads(data) is scale


def test_an_operator_whose_functions_cannot_be_pickled_is_found_by_name(process, cloudpickle, ns):
    lines = (line for line in ())
    f = custom_op(f"{ns}::f", lambda x: x if lines is None else x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    assert pickle.loads(pickle.dumps(f)) is f
    with pytest.raises(RuntimeError, match=rf"no operator {ns}::f: its definition could not be pickled, and this "
                                           r"process does not have it: TypeError: .*generator.*\n.*cloudpickle"):
        process.call(f, X, by=cloudpickle)


def test_without_cloudpickle_operators_are_found_by_name(monkeypatch, ns):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    scale = defined(ns)
    function, (name, modules, parcel) = reduce_operator(scale.operator)
    assert (function, name, modules, parcel.pickled) == (arrived_operator, f"{ns}::scale", (), b"")
    assert "cloudpickle" in parcel.problem
    assert pickle.loads(pickle.dumps(scale)) is scale


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <function _at_fork")      # of JAX, where it is imported
def test_a_fork_knows_what_was_defined_before_it_and_gets_what_came_later(cloudpickle, ns):
    def define(factor):
        return custom_op(f"{ns}::f", lambda x: x * factor, mutates_args=(), schema="(Tensor x) -> Tensor")

    before = cloudpickle.dumps(define(2))
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(sink)
        try:
            with open(source, "rb") as pipe:
                found = [pickle.loads(data)(X).tolist() for data in (before, pipe.read())]
            os._exit(0 if found == [(2 * X).tolist(), (3 * X).tolist()] else 1)
        finally:
            os._exit(2)
    os.close(source)
    with open(sink, "wb") as pipe:
        pipe.write(cloudpickle.dumps(define(3)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_copies_of_operators_are_the_operators(ns):
    scale = defined(ns)
    for operator in (scale.operator, getattr(ops, ns).scale, ops, ops.np):
        assert copy.copy(operator) is copy.deepcopy(operator) is operator
