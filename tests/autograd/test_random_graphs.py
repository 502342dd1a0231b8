"""Random programs of operators, views and in-place writes: the tape against the model of single numbers.

A program runs on Tensors and on the model's arrays side by side. The model knows nothing of nodes, versions or views:
NumPy's own views of arrays of objects say which number is where. A backward pass may end in the error that a saved
value was written to, but only where a value that a formula needs has been written to.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from pydispatch.autograd import backward, grad, no_grad
from pydispatch.exceptions import AutogradError
from tests.autograd import scalar_model as model
from tests.autograd.leaves import leaf

NP = ops.np
LIMIT = 100.0       # no value gets larger, so that rounding stays small


def elementwise(function):
    return np.frompyfunc(function, function.__code__.co_argcount, 1)


MODEL_IDENTITY = elementwise(model.identity)

# Name -> (operator on Tensors, on the model's arrays, what its formulas need of: argument x, argument y, result r).
UNARY = {
    "sin": (NP.sin, elementwise(model.sin), "x"),
    "cos": (NP.cos, elementwise(model.cos), "x"),
    "tanh": (NP.tanh, elementwise(model.tanh), "r"),
    "exp": (NP.exp, elementwise(model.exp), "r"),
    "negative": (NP.negative, elementwise(lambda x: -x), ""),
    "square": (NP.square, elementwise(lambda x: x * x), "x"),
    "triple": (lambda x: x * 3.0, elementwise(lambda x: x * 3.0), ""),
}
BINARY = {
    "add": (NP.add, elementwise(lambda x, y: x + y), ""),
    "subtract": (NP.subtract, elementwise(lambda x, y: x - y), ""),
    "multiply": (NP.multiply, elementwise(lambda x, y: x * y), "xy"),
    "maximum": (NP.maximum, elementwise(model.maximum), "xyr"),
}
SHAPING = {
    "sum of rows": (lambda x: x.sum(0, keepdims=True), lambda x: MODEL_IDENTITY(np.sum(x, axis=0, keepdims=True))),
    "sum of columns": (lambda x: x.sum(1, keepdims=True), lambda x: MODEL_IDENTITY(np.sum(x, axis=1, keepdims=True))),
    "copy": (NP.copy, MODEL_IDENTITY),
    "roll": (lambda x: NP.roll(x, 1, axis=1), lambda x: MODEL_IDENTITY(np.roll(x, 1, axis=1))),
    "two rows": (lambda x: x.take(np.array([0, 0]), axis=0), lambda x: MODEL_IDENTITY(x.take([0, 0], axis=0))),
}
VIEWS = {
    "transpose": lambda x: x.T,
    "reversed": lambda x: x[::-1],
    "flip": lambda x: x[:, ::-1],
    "first row": lambda x: x[:1],
    "last column": lambda x: x[:, -1:],
    "reshape": lambda x: x.reshape(x.shape[::-1]),
    "row": lambda x: x.reshape(1, -1),
}
IN_PLACE = {
    "sin_": (NP.sin_, UNARY["sin"][1], ""),
    "tanh_": (NP.tanh_, UNARY["tanh"][1], "r"),
    "negative_": (NP.negative_, UNARY["negative"][1], ""),
}
IN_PLACE_WITH = {
    "add_": (NP.add_, BINARY["add"][1], ""),
    "multiply_": (NP.multiply_, BINARY["multiply"][1], "y"),
    "setitem_": (lambda x, y: NP.setitem_(x, ..., y), None, ""),
}


class Memory:
    """Memory that views share: the number of writes to it, and whether it belongs to a leaf."""

    def __init__(self, is_leaf=False):
        self.writes = 0
        self.is_leaf = is_leaf


class Value:
    """A Tensor and the model's array beside it."""

    def __init__(self, tensor, array, memory, kind=""):
        self.tensor = tensor
        self.array = array
        self.memory = memory
        self.kind = kind                # "part" of a split, "broadcast": not to be written to

        self.name = ""

    def __repr__(self):
        return self.name

    @property
    def shape(self):
        return self.array.shape


class Program:
    """The part of a program that has run."""

    def __init__(self):
        self.values = []
        self.leaves = []
        self.leaf_arrays = []
        self.needed = []                # (memory, how often it had been written to)
        self.alone = []                 # results that no view, write or leaf has to do with
        self.log = []

    def __repr__(self):
        return "\n".join(["", *self.log, ""])

    def add(self, value, text):
        value.name = f"v{len(self.log)}"
        self.log.append(f"{value} = {text}")
        self.agree(value)
        self.values.append(value)

    def add_input(self, numbers, tracked):
        tensor = leaf(numbers) if tracked else Tensor(np.array(numbers))
        array = model.array_of(numbers)
        self.add(Value(tensor, array, Memory(is_leaf=tracked)), f"input{numbers.shape}, tracked: {tracked}")
        if tracked:
            self.leaves.append(tensor)
            self.leaf_arrays.append(array.copy())

    def add_result(self, name, tensor, array, arguments, needs):
        """Add the result of an operator that makes new memory."""
        result = Value(tensor, laid_out_like(tensor.array, array), Memory())
        self.add(result, f"{name}{(*arguments,)}")
        self.alone.append(result)
        self.note_needs(needs, *arguments, result=result)

    def note_needs(self, needs, *arguments, result=None):
        by_name = dict(zip("xy", arguments, strict=False)) | {"r": result}
        self.needed += [(by_name[name].memory, by_name[name].memory.writes) for name in needs]

    def add_view(self, name, source, tensor, array, kind=""):
        """Add a view, or a copy where NumPy had to copy."""
        shares = np.shares_memory(tensor.array, source.tensor.array)
        if shares:
            self.alone = [value for value in self.alone if value is not source]
        view = Value(tensor, array, source.memory if shares else Memory(), kind or source.kind if shares else "")
        self.add(view, f"{name} of {source}")

    def write(self, name, target, tensor_write, array, needs=(), *arguments):
        """Write in place, by `tensor_write()` and the model's numbers `array`."""
        self.log.append(f"{name}{(target, *arguments)}")
        target.memory.writes += 1
        self.note_needs(needs, target, *arguments, result=target)
        tensor_write()
        target.array[...] = array
        self.alone = [value for value in self.alone if value.memory is not target.memory]
        self.values = [value for value in self.values if value.kind != "part" or value.memory is not target.memory]
        self.agree(target)

    def agree(self, value):
        """Assert equality but for rounding, and copy the values to the model: ties must be ties in both."""
        found = value.tensor.detach().array
        np.testing.assert_allclose(found, model.values_of(value.array), rtol=1e-9, atol=1e-9, err_msg=repr(self))
        for index in np.ndindex(value.shape):
            value.array[index].value = found[index]

    @property
    def may_complain(self):
        return any(memory.writes != writes for memory, writes in self.needed)

    def candidates(self, *, writable=False, fits=None):
        found = self.values
        if writable:
            found = [value for value in found if not value.memory.is_leaf and not value.kind]
        if fits is not None:
            found = [value for value in found if broadcasts_to(value.shape, fits)]
        return found


def laid_out_like(array, scalars):
    """Return the same numbers in the same order in memory, since that decides whether reshape gives a view."""
    return np.asfortranarray(scalars) if array.flags.f_contiguous and not array.flags.c_contiguous else scalars


def broadcasts_to(shape, target):
    return all(mine in (1, theirs) for mine, theirs in zip(shape, target, strict=True))


def broadcast_together(one, other):
    return all(a == b or 1 in (a, b) for a, b in zip(one, other, strict=True))


def is_small(tensor):
    return np.abs(tensor.detach().array).max() < LIMIT


# --- the steps of a program ------------------------------------------------------------------------------------------


def apply_unary(draw, program):
    x = draw(st.sampled_from(program.values))
    name = draw(st.sampled_from(sorted(UNARY)))
    operator, on_model, needs = UNARY[name]
    if np.abs(x.tensor.detach().array).max() < 3.0:
        program.add_result(name, operator(x.tensor), on_model(x.array), [x], needs)


def apply_binary(draw, program):
    x = draw(st.sampled_from(program.values))
    y = draw(st.sampled_from([value for value in program.values if broadcast_together(x.shape, value.shape)]))
    name = draw(st.sampled_from(sorted(BINARY)))
    operator, on_model, needs = BINARY[name]
    with no_grad():
        small = is_small(operator(x.tensor, y.tensor))
    if small:
        program.add_result(name, operator(x.tensor, y.tensor), on_model(x.array, y.array), [x, y], needs)


def multiply_matrices(draw, program):
    x = draw(st.sampled_from(program.values))
    y = draw(st.sampled_from([value for value in program.values if value.shape[0] == x.shape[1]] or [None]))
    if y is None:
        return
    with no_grad():
        small = is_small(x.tensor @ y.tensor)
    if small:
        program.add_result("matmul", x.tensor @ y.tensor, MODEL_IDENTITY(x.array @ y.array), [x, y], "xy")


def change_shape(draw, program):
    x = draw(st.sampled_from(program.values))
    name = draw(st.sampled_from(sorted(SHAPING)))
    on_tensor, on_model = SHAPING[name]
    program.add_result(name, on_tensor(x.tensor), on_model(x.array), [x], "")


def join(draw, program):
    x = draw(st.sampled_from(program.values))
    y = draw(st.sampled_from([value for value in program.values if value.shape[1] == x.shape[1]]))
    if x.shape[0] + y.shape[0] <= 6:
        joined = np.concatenate([x.array, y.array])
        program.add_result("concatenate", NP.concatenate([x.tensor, y.tensor]), MODEL_IDENTITY(joined), [x, y], "")


def choose_where(draw, program):
    x = draw(st.sampled_from(program.values))
    y = draw(st.sampled_from(program.candidates(fits=x.shape)))
    mask = np.arange(x.array.size).reshape(x.shape) % 2 == 0
    chosen = MODEL_IDENTITY(np.where(mask, x.array, y.array))
    program.add_result("where", NP.where(mask, x.tensor, y.tensor), chosen, [x, y], "")


def take_view(draw, program):
    source = draw(st.sampled_from(program.values))
    name = draw(st.sampled_from(sorted(VIEWS)))
    view = VIEWS[name]
    program.add_view(name, source, view(source.tensor), view(source.array))


def take_parts(draw, program):
    source = draw(st.sampled_from(program.values))
    tensors = NP.split(source.tensor, source.shape[0])
    for tensor, array in zip(tensors, np.split(source.array, source.shape[0]), strict=True):
        program.add_view("part", source, tensor, array, kind="part")


def take_broadcast(draw, program):
    source = draw(st.sampled_from(program.values))
    if source.shape[0] == 1:
        shape = (2, source.shape[1])
        array = np.broadcast_to(source.array, shape)
        program.add_view("broadcast", source, NP.broadcast_to(source.tensor, shape), array, kind="broadcast")


def write(draw, program, target=None):
    target = target or draw(st.sampled_from(program.candidates(writable=True) or [None]))
    if target is None:
        return
    name = draw(st.sampled_from(sorted(IN_PLACE)))
    operator, on_model, needs = IN_PLACE[name]
    program.write(name, target, lambda: operator(target.tensor), on_model(target.array), needs)


def write_with(draw, program, target=None):
    target = target or draw(st.sampled_from(program.candidates(writable=True) or [None]))
    if target is None:
        return
    other = draw(st.sampled_from(program.candidates(fits=target.shape) or [None]))
    if other is None:
        return
    name = draw(st.sampled_from(sorted(IN_PLACE_WITH)))
    operator, on_model, needs = IN_PLACE_WITH[name]
    new = np.broadcast_to(other.array, target.shape).copy() if on_model is None else on_model(target.array, other.array)
    if np.abs(model.values_of(new)).max() < LIMIT:
        if "y" in needs and other.memory is not target.memory:      # else it is copied, since the write changes it
            program.note_needs("x", other)
        program.write(name, target, lambda: operator(target.tensor, other.tensor), new, "", other)


def write_to_copy(draw, program):
    """Write to a copy that nothing has saved, and to a view of it, so that many writes spoil nothing."""
    source = draw(st.sampled_from(program.values))
    program.add_result("copy", NP.copy(source.tensor), MODEL_IDENTITY(source.array), [source], "")
    copy = program.values[-1]
    name = draw(st.sampled_from(sorted(VIEWS)))
    view = VIEWS[name]
    program.add_view(name, copy, view(copy.tensor), view(copy.array))
    through, then = draw(st.sampled_from([(0, 1), (1, 0), (1, 1)]))
    targets = [copy, program.values[-1]]
    draw(st.sampled_from([write, write_with]))(draw, program, targets[through])
    write_with(draw, program, targets[then])


def write_at_indices(draw, program):
    """Write the first row to every row, or to one, of a possible view."""
    target = draw(st.sampled_from(program.candidates(writable=True) or [None]))
    if target is None:
        return
    source = draw(st.sampled_from(program.values))
    if source.shape[1] != target.shape[1] or source.memory is target.memory:
        return
    rows = np.arange(draw(st.integers(1, target.shape[0])))[::-1]
    new = target.array.copy()
    new[rows] = source.array[:1]
    program.write("index_put_", target, lambda: NP.index_put_(target.tensor, rows, source.tensor[:1]), new, "", source)


def write_silently(draw, program):
    """Write under no_grad: the numbers change, and gradients pass unchanged."""
    target = draw(st.sampled_from([value for value in program.values if value.kind == ""]))
    halved = elementwise(lambda x: model.Scalar(x.value * 0.5, ((x, model.ONE),)))(target.array)

    def halve():
        with no_grad():
            target.tensor.__imul__(0.5)

    program.write("halve under no_grad", target, halve, halved)


STEPS = (apply_unary, apply_unary, apply_binary, apply_binary, apply_binary, multiply_matrices, change_shape, join,
         choose_where, take_view, take_view, take_parts, take_broadcast, write, write_with, write_to_copy,
         write_to_copy, write_to_copy, write_at_indices, write_silently)
NUMBERS = np.array([[0.5, -1.0, 0.25], [1.5, 0.75, -0.5]])


@st.composite
def programs(draw):
    program = Program()
    program.add_input(NUMBERS, tracked=True)
    program.add_input(NUMBERS[::-1, ::-1] * 0.8, tracked=True)
    program.add_input(NUMBERS[:, 1:] + 0.1, tracked=False)
    program.add_input(NUMBERS[:1] - 0.3, tracked=False)
    for _ in range(draw(st.integers(4, 18))):
        draw(st.sampled_from(STEPS))(draw, program)
    tracked = [value for value in program.values if value.tensor.requires_grad]
    outputs = draw(st.lists(st.sampled_from(tracked), min_size=1, max_size=3))
    return program, outputs + draw(st.lists(st.sampled_from(program.values), max_size=1))


class Run:
    """A program and its outputs, with cotangents for those that are tracked."""

    def __init__(self, program, outputs):
        self.program = program
        self.tracked = [value for value in outputs if value.tensor.requires_grad]
        self.untracked = [value for value in outputs if not value.tensor.requires_grad]
        self.outputs = [value.tensor for value in self.tracked]
        self.arrays = [value.array for value in self.tracked]
        self.cotangents = [weights(np.cos, array.shape) for array in self.arrays]

    def expected(self, inputs=None):
        return model.gradients_of(self.arrays, self.cotangents, self.program.leaf_arrays if inputs is None else inputs)

    def gradients(self, inputs=None, **options):
        return grad(self.outputs, self.program.leaves if inputs is None else inputs, self.cotangents,
                    retain_graph=True, materialize_grads=True, **options)

    def complains(self):
        """Return whether backward raises because a saved value was written to, which needs a reason."""
        error = error_of(self.gradients)
        if error is None:
            return False
        assert "in-place" in str(error)
        assert self.program.may_complain
        return True


def weights(function, shape):
    return function(np.arange(1.0, 1.0 + np.prod(shape, dtype=int))).reshape(shape)


def error_of(function):
    try:
        function()
    except AutogradError as error:
        return error
    return None


def assert_close(found, expected):
    found = found.detach().array
    values = model.values_of(expected)
    scale = max(1.0, np.abs(values).max(initial=0.0))
    np.testing.assert_allclose(found, values, rtol=1e-8, atol=1e-9 * scale)


def properties(function):
    """Return a property of programs: few by default, many in the slow run."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

    @pytest.mark.parametrize("n", [100, pytest.param(200, marks=pytest.mark.slow)])
    def test(n):
        settings(max_examples=n, suppress_health_check=checks)(given(programs())(lambda drawn: function(Run(*drawn))))()

    test.__name__ = test.__qualname__ = function.__name__
    test.__doc__ = function.__doc__
    return test


@properties
def test_gradients_are_those_of_the_model(run):
    nothing = model.gradients_of([value.array for value in run.untracked],
                                 [np.ones(value.shape) for value in run.untracked], run.program.leaf_arrays)
    for gradient in nothing:
        assert not model.values_of(gradient).any(), "a result lost its gradient"
    if not run.outputs or run.complains():
        return
    for found, expected in zip(run.gradients(), run.expected(), strict=True):
        assert_close(found, expected)


@properties
def test_backward_twice_gives_twice_the_gradients(run):
    if not run.outputs or run.complains():
        return
    for _ in range(2):
        backward(run.outputs, run.cotangents, retain_graph=True)
    for tensor, expected in zip(run.program.leaves, run.expected(), strict=True):
        if tensor.grad is None:
            assert not model.values_of(expected).any()
        else:
            assert_close(tensor.grad, expected * model.Scalar(2.0))


@properties
def test_asking_for_some_inputs_gives_the_same_gradients(run):
    if not run.outputs or run.complains():
        return
    inside = [value for value in run.program.alone if value.tensor.requires_grad]
    inputs = [*run.program.leaves, *(value.tensor for value in inside)]
    arrays = [*run.program.leaf_arrays, *(value.array for value in inside)]
    for tensor, array in zip(inputs, arrays, strict=True):
        (found,) = run.gradients([tensor])
        (expected,) = run.expected([array])
        assert_close(found, expected)
    for found, expected in zip(run.gradients(inputs), run.expected(arrays), strict=True):
        assert_close(found, expected)


@properties
def test_hooks_and_retained_gradients_are_those_of_the_model(run):
    if not run.outputs or run.complains():
        return
    inside = [value for value in run.program.alone if value.tensor.requires_grad]
    seen = [[] for _ in inside]
    for value, gradients in zip(inside, seen, strict=True):
        value.tensor.register_hook(gradients.append)
        value.tensor.retain_grad()
    backward(run.outputs, run.cotangents, retain_graph=True)
    for value, gradients, expected in zip(inside, seen, run.expected([value.array for value in inside]), strict=True):
        if value.tensor.grad is None:
            assert all(gradient is None for gradient in gradients)
            assert not model.values_of(expected).any()
        else:
            (gradient,) = gradients
            assert_close(gradient, expected)
            assert_close(value.tensor.grad, expected)


@properties
def test_second_derivatives_are_those_of_the_model(run):
    if not run.outputs or run.complains():
        return
    first = run.gradients(create_graph=True)
    expected = run.expected()
    for found, reference in zip(first, expected, strict=True):
        assert_close(found, reference)
    tracked = [gradient for gradient in first if gradient.requires_grad]
    arrays = [array for gradient, array in zip(first, expected, strict=True) if gradient.requires_grad]
    if not tracked:
        return
    cotangents = [weights(np.sin, array.shape) for array in arrays]
    second = grad(tracked, run.program.leaves, cotangents, retain_graph=True, materialize_grads=True)
    for found, reference in zip(second, model.gradients_of(arrays, cotangents, run.program.leaf_arrays), strict=True):
        assert_close(found, reference)


@properties
def test_what_is_consumed_is_released(run):
    # Without retain_graph the first pass is right, and a second one either is right too or raises.
    if not run.outputs or run.complains():
        return
    backward(run.outputs, run.cotangents)
    for tensor, expected in zip(run.program.leaves, run.expected(), strict=True):
        if tensor.grad is not None:
            assert_close(tensor.grad, expected)
            tensor.grad = None
    error = error_of(lambda: backward(run.outputs, run.cotangents))
    if error is not None:
        assert "retain_graph=True" in str(error)
        return
    for tensor, expected in zip(run.program.leaves, run.expected(), strict=True):
        if tensor.grad is not None:
            assert_close(tensor.grad, expected)
