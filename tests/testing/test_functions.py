"""The sample Functions: each is what its entry says, by value, by finite differences, and under every transform."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops
from pydispatch.exceptions import VmapError
from pydispatch.func import grad, jvp, value_and_grad, vjp, vmap
from pydispatch.testing import gradcheck, gradgradcheck
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten
from tests import functions
from tests.functions import FUNCTIONS
from tests.together import together
from tests.warning_filters import loops_allowed

STEP = 1e-5


def cases(**flags):
    """Return one case for each tuple of arguments of each sample that has these flags."""
    return [
        pytest.param(sample, number, id=f"{sample.name}-{number}")
        for sample in FUNCTIONS if all(getattr(sample, flag) == value for flag, value in flags.items())
        for number, _ in enumerate(sample.arguments())
    ]


def each(**flags):
    return pytest.mark.parametrize(("sample", "number"), cases(**flags))


def close(actual, desired, rtol=1e-12):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(desired), rtol=rtol, atol=rtol, strict=True)


def all_close(actual, desired, rtol=1e-12):
    for left, right in zip(tree_leaves(actual), tree_leaves(desired), strict=True):
        close(left, right, rtol)


def is_float(value):
    """Return an array that can be differentiated."""
    return hasattr(value, "dtype") and value.dtype.kind in "fc"


class Case:
    """A sample on one of its tuples of arguments, as a function of the arrays that can be differentiated."""

    def __init__(self, sample, number):
        self.sample = sample
        self.number = number
        self.arrays = [leaf for leaf in tree_leaves(self.arguments()) if is_float(leaf)]

    def arguments(self):
        return next(itertools.islice(self.sample.arguments(), self.number, None))

    def __call__(self, *arrays):
        """Return the results of the Function for these arrays."""
        return self.apply(self.sample.function.apply, arrays)

    def reference(self, *arrays):
        return self.apply(self.sample.reference, arrays)

    def apply(self, function, arrays):
        remaining = iter([array * 1.0 for array in arrays] if self.sample.in_place else arrays)
        leaves, spec = tree_flatten(self.arguments())
        return function(*tree_unflatten([next(remaining) if is_float(leaf) else leaf for leaf in leaves], spec))

    def outputs(self, *arrays):
        """Return the outputs that can be differentiated."""
        return tuple(leaf for leaf in tree_leaves(self(*arrays)) if is_float(leaf))

    def loss(self, *arrays):
        return sum((weigh(output, n)).sum() for n, output in enumerate(self.outputs(*arrays)))

    def true_loss(self, *arrays):
        """Return the same of the reference, for finite differences."""
        outputs = [leaf for leaf in tree_leaves(self.reference(*arrays)) if is_float(leaf)]
        return sum(float(np.sum(weigh(output, n))) for n, output in enumerate(outputs))

    def tangents(self):
        """Return some direction for each array."""
        return tuple(random_like(array, n) for n, array in enumerate(self.arrays))


def weigh(output, n):
    weights = np.random.default_rng(n).uniform(0.5, 2.0, output.shape)
    if output.dtype.kind == "c":
        return (output * (weights + 0.5j)).real
    return output * weights


def random_like(array, seed):
    generator = np.random.default_rng(100 + seed)
    values = generator.normal(size=array.shape)
    return values + 1j * generator.normal(size=array.shape) if array.dtype.kind == "c" else values


def directional(f, arrays, tangents):
    """Return the derivative of f along the tangents, by central differences. Tuples of outputs one by one."""
    above, below = (f(*[array + sign * STEP * t for array, t in zip(arrays, tangents, strict=True)])
                    for sign in (1, -1))
    return [(a - b) / (2 * STEP) for a, b in zip(tree_leaves(above), tree_leaves(below), strict=True)]


def dot(gradients, tangents):
    """Return the derivative along the tangents that these gradients stand for: real parts, by PyTorch's convention."""
    return sum(float(np.sum(np.conj(np.asarray(g)) * t).real) for g, t in zip(gradients, tangents, strict=True))


def argnums(case):
    return tuple(range(len(case.arrays)))


# --- the list -----------------------------------------------------------------------------------------------


def test_names_are_unique_and_every_function_is_listed():
    names = [sample.name for sample in FUNCTIONS]
    assert len(set(names)) == len(names)
    written = {value for value in vars(functions).values() if isinstance(value, type)
               and issubclass(value, autograd.Function) and value not in (autograd.Function, functions.Stateless)}
    assert {sample.function for sample in FUNCTIONS} == written


@pytest.mark.parametrize("sample", FUNCTIONS, ids=lambda sample: sample.name)
def test_entry_agrees_with_its_class(sample):
    function = sample.function
    assert function.__doc__
    assert getattr(function, "generate_vmap_rule", False) == (sample.vmap == "generated")
    assert ("vmap" in vars(function)) == (sample.vmap == "own")
    assert any("jvp" in vars(cls) for cls in function.__mro__[:-1] if cls is not autograd.Function) \
        == sample.forward_mode


@pytest.mark.parametrize("sample", FUNCTIONS, ids=lambda sample: sample.name)
def test_arguments_are_made_anew_and_are_the_same(sample):
    first, second = list(sample.arguments()), list(sample.arguments())
    assert len(first) > 0
    for left, right in zip(tree_leaves(first), tree_leaves(second), strict=True):
        if isinstance(left, np.ndarray) and left.ndim:
            assert left is not right
            np.testing.assert_array_equal(left, right)


# --- values -------------------------------------------------------------------------------------------------


@each()
def test_value_of_raw_arrays(sample, number):
    case = Case(sample, number)
    output = case(*case.arrays)
    assert all(isinstance(leaf, (np.ndarray, np.generic)) for leaf in tree_leaves(output))
    all_close(output, case.reference(*case.arrays))


@each()
def test_value_of_tensors(sample, number):
    case = Case(sample, number)
    output = case(*map(Tensor, case.arrays))
    for leaf in tree_leaves(output):
        assert type(leaf) is Tensor
        assert not leaf.requires_grad
    all_close(output, case.reference(*case.arrays))


@each()
def test_tracked_outputs_are_those_of_floats(sample, number):
    case = Case(sample, number)
    leaves = tree_leaves(case(*[Tensor(array, requires_grad=True) for array in case.arrays]))
    assert [leaf.requires_grad for leaf in leaves] == [is_float(leaf) for leaf in leaves]
    assert {leaf.grad_fn.name for leaf in leaves if leaf.requires_grad} == {f"{sample.name}Backward"}


@each(in_place=True)
def test_in_place_result_is_its_argument(sample, number):
    raw = Case(sample, number).arrays[0]
    expected = sample.reference(raw)
    tensor = Tensor(raw.copy())
    assert sample.function.apply(raw) is raw
    assert sample.function.apply(tensor) is tensor
    close(raw, expected)
    close(tensor, expected)


# --- the eager tape -----------------------------------------------------------------------------------------


@each(slope=None, deterministic=True)
def test_gradcheck(sample, number):
    case = Case(sample, number)
    tensors = [Tensor(array, requires_grad=True) for array in case.arrays]
    assert gradcheck(case.outputs, tensors, check_forward_ad=sample.forward_mode)


@each(slope=None, deterministic=True, double_backward=True)
def test_gradgradcheck(sample, number):
    case = Case(sample, number)
    assert gradgradcheck(case.outputs, [Tensor(array, requires_grad=True) for array in case.arrays])


@each(double_backward=False)
def test_second_derivative_is_an_error(sample, number):
    case = Case(sample, number)
    tensors = [Tensor(array, requires_grad=True) for array in case.arrays]
    gradients = autograd.grad(case.loss(*tensors), tensors, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        autograd.grad(sum((g * g).sum() for g in gradients), tensors)


@each()
def test_gradient_of_the_eager_tape(sample, number):
    case = Case(sample, number)
    tensors = [Tensor(array, requires_grad=True) for array in case.arrays]
    gradients = autograd.grad(case.loss(*tensors), tensors)
    check_gradients(case, gradients)


def check_gradients(case, gradients):
    """Compare with finite differences of the reference, or of the stated claim where that differs."""
    for gradient, array in zip(gradients, case.arrays, strict=True):
        assert (gradient.shape, gradient.dtype) == (array.shape, array.dtype)
    if case.sample.slope is None:
        tangents = case.tangents()
        (expected,) = directional(case.true_loss, case.arrays, tangents)
        close(np.array(dot(gradients, tangents)), np.array(expected), rtol=1e-7)
    else:
        (gradient,), (array,) = gradients, case.arrays
        close(gradient, case.sample.slope * weigh(np.ones_like(array), 0))


# --- grad, vjp, jvp -----------------------------------------------------------------------------------------


@each(transforms=True)
def test_value_and_grad(sample, number):
    case = Case(sample, number)
    value, gradients = value_and_grad(case.loss, argnums(case))(*case.arrays)
    close(value, np.array(case.true_loss(*case.arrays)))
    check_gradients(case, gradients)


@each(transforms=True)
def test_grad_of_tracked_tensors_equals_that_of_raw_arrays(sample, number):
    case = Case(sample, number)
    raw = grad(case.loss, argnums(case))(*case.arrays)
    tensors = grad(case.loss, argnums(case))(*[Tensor(array, requires_grad=True) for array in case.arrays])
    assert all(type(gradient) is Tensor for gradient in tensors)
    all_close([gradient.detach() for gradient in tensors], list(raw))


@each(transforms=True)
def test_vjp_equals_the_eager_tape(sample, number):
    case = Case(sample, number)
    outputs, pull = vjp(case.outputs, *case.arrays)
    cotangents = tuple(random_like(output, n) for n, output in enumerate(outputs))
    tensors = [Tensor(array, requires_grad=True) for array in case.arrays]
    expected = autograd.grad(case.outputs(*tensors), tensors, tuple(map(Tensor, cotangents)))
    all_close(list(pull(cotangents)), list(expected))


@each(transforms=True, forward_mode=True)
def test_jvp(sample, number):
    case = Case(sample, number)
    tangents = case.tangents()
    outputs, results = jvp(case.outputs, tuple(case.arrays), tangents)
    if sample.slope is None:
        floats = lambda *arrays: tuple(filter(is_float, tree_leaves(case.reference(*arrays))))  # noqa: E731
        expected = directional(floats, case.arrays, tangents)
    else:
        expected = [sample.slope * tangents[0]]
    for result, output, value in zip(results, outputs, expected, strict=True):
        close(result, np.asarray(value, output.dtype), rtol=1e-7)


@each(transforms=True, forward_mode=True)
def test_jvp_agrees_with_vjp(sample, number):
    case = Case(sample, number)
    tangents = case.tangents()
    outputs, results = jvp(case.outputs, tuple(case.arrays), tangents)
    cotangents = tuple(random_like(output, 7 + n) for n, output in enumerate(outputs))
    gradients = vjp(case.outputs, *case.arrays)[1](cotangents)
    close(np.array(dot(gradients, tangents)), np.array(dot(cotangents, map(np.asarray, results))))


@each(forward_mode=False)
def test_jvp_without_a_rule_is_an_error(sample, number):
    case = Case(sample, number)
    with pytest.raises((NotImplementedError, RuntimeError, TypeError)):
        jvp(case.outputs, tuple(case.arrays), case.tangents())


@each(transforms=False)
@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp"])
def test_transform_is_an_error_where_it_is_not_supported(sample, number, transform):
    case = Case(sample, number)
    run = {
        "grad": lambda: grad(case.loss, argnums(case))(*case.arrays), "vjp": lambda: vjp(case.outputs, *case.arrays),
        "jvp": lambda: jvp(case.outputs, tuple(case.arrays), case.tangents()),
    }[transform]
    with pytest.raises((RuntimeError, TypeError)):
        run()
    check_gradients(case, autograd.grad(*eager(case)))


def eager(case):
    tensors = [Tensor(array, requires_grad=True) for array in case.arrays]
    return case.loss(*tensors), tensors


# --- second derivatives -------------------------------------------------------------------------------------


def curved(case):
    """Return a loss that is not linear in the outputs, so that its second derivative is none of zeros."""
    return lambda *arrays: sum((weigh(output, n) ** 2).sum() for n, output in enumerate(case.outputs(*arrays)))


def hessian_vector_products(case, tangents):
    """Return H·t, with H the Hessian of `curved`, in each way that two transforms can be combined."""
    f, arrays, which = curved(case), tuple(case.arrays), argnums(case)

    def slope_by_grad(*arrays):
        return grad(f, which)(*arrays)

    def slope_by_vjp(*arrays):
        return vjp(f, *arrays)[1](np.ones(()))

    def slope_by_tape(*arrays):
        return autograd.grad(f(*arrays), arrays, create_graph=True)

    def along(gradients):
        return sum((g.conj() * t).real.sum() if t.dtype.kind == "c" else (g * t).sum()
                   for g, t in zip(gradients, tangents, strict=True))

    yield "grad(grad)", grad(lambda *arrays: along(slope_by_grad(*arrays)), which)(*arrays)
    yield "grad(vjp)", grad(lambda *arrays: along(slope_by_vjp(*arrays)), which)(*arrays)
    yield "vjp(grad)", vjp(slope_by_grad, *arrays)[1](tangents)
    tensors = [Tensor(array, requires_grad=True) for array in arrays]
    yield "tape(grad)", autograd.grad(along(slope_by_grad(*tensors)), tensors)
    tensors = [Tensor(array, requires_grad=True) for array in arrays]
    yield "tape(tape)", autograd.grad(along(slope_by_tape(*tensors)), tensors)
    if case.sample.forward_mode:
        yield "jvp(grad)", jvp(slope_by_grad, arrays, tangents)[1]
        yield "jvp(vjp)", jvp(slope_by_vjp, arrays, tangents)[1]
        yield "grad(jvp)", grad(lambda *arrays: jvp(f, arrays, tangents)[1], which)(*arrays)
        yield "vjp(jvp)", vjp(lambda *arrays: jvp(f, arrays, tangents)[1], *arrays)[1](np.ones(()))


@each(transforms=True, double_backward=True, deterministic=True, slope=None)
def test_second_derivatives_by_every_composition(sample, number):
    case = Case(sample, number)
    tangents = case.tangents()
    expected = directional(grad(curved(case), argnums(case)), case.arrays, tangents)
    products = dict(hessian_vector_products(case, tangents))
    assert len(products) == (9 if sample.forward_mode else 5)
    for composition, product in products.items():
        for actual, desired in zip(product, expected, strict=True):
            np.testing.assert_allclose(np.asarray(actual), desired, rtol=1e-6, atol=1e-6, err_msg=composition)


@each(transforms=True, double_backward=True, forward_mode=True, deterministic=True, slope=None)
def test_jvp_of_jvp(sample, number):
    case = Case(sample, number)
    arrays, tangents, others = tuple(case.arrays), case.tangents(), case.tangents()[::-1]
    if [t.shape for t in others] != [t.shape for t in tangents]:
        others = tuple(random_like(array, 50 + n) for n, array in enumerate(arrays))
    f = curved(case)
    _, actual = jvp(lambda *arrays: jvp(f, arrays, tangents)[1], arrays, others)
    (expected,) = directional(lambda *arrays: jvp(f, arrays, tangents)[1], arrays, others)
    close(actual, np.asarray(expected), rtol=1e-6)


@pytest.mark.parametrize(("sample", "number"), [case for slope in (0.0, 3.14) for case in cases(slope=slope)])
def test_claimed_gradients_are_those_of_every_level(sample, number):
    case = Case(sample, number)
    (x,), slope = case.arrays, sample.slope
    weights = weigh(np.ones_like(x), 0)

    def product(x):
        return (weigh(x, 0) * case(x)).sum()

    close(grad(product)(x), weights * (x + slope * x))
    _, tangent = jvp(grad(product), (x,), (x,))
    close(tangent, weights * 2 * slope * x)
    close(grad(lambda x: (grad(product)(x) * x).sum())(x), weights * (x + slope * x + 2 * slope * x))


# --- vmap ---------------------------------------------------------------------------------------------------

BATCH = 3


class Batch:
    """A sample with batches for arguments, and what each example is: `dims` has an entry per array."""

    def __init__(self, sample, number, pattern):
        self.case = Case(sample, number)
        self.n = len(self.case.arrays)
        indices = [leaf for leaf in tree_leaves(self.case.arguments()) if is_index(leaf)]
        arrays = [*self.case.arrays, *indices]
        self.dims = tuple({
            "front": (0,) * self.n + (None,) * len(indices), "behind": (-1,) * self.n + (None,) * len(indices),
            "first": (0,) + (None,) * (len(arrays) - 1), "all": (-1, 0, -1, 0)[:len(arrays)],
        }[pattern])
        self.examples = [tuple(map(self.example, arrays, self.dims, [number] * len(arrays))) for number in range(BATCH)]
        self.arrays = self.join(self.examples, self.dims)
        self.which = tuple(range(self.n))

    @staticmethod
    def example(array, dim, number):
        """Return an example. Mapped floats differ a little from example to example, integers in their order."""
        if dim is None:
            return array
        return array * (1 + number / 50) if is_float(array) else array if number % 2 == 0 else np.array(array)

    @staticmethod
    def join(rows, dims):
        """Return one batch per column. An unmapped argument is the same in every row."""
        columns = zip(*rows, strict=True)
        return [column[0] if dim is None else np.stack(column, dim) for column, dim in zip(columns, dims, strict=True)]

    def outputs(self, *arrays):
        """Return the outputs that can be differentiated, for these floats and these integers."""
        floats, indices = iter(arrays[:self.n]), iter(arrays[self.n:])
        leaves, spec = tree_flatten(self.case.arguments())
        sample = self.case.sample
        given = [
            (next(floats) * 1.0 if sample.in_place else next(floats)) if is_float(leaf)
            else next(indices) if is_index(leaf) else leaf for leaf in leaves
        ]
        return tuple(filter(is_float, tree_leaves(sample.function.apply(*tree_unflatten(given, spec)))))

    def loss(self, *arrays):
        return sum((weigh(output, n)).sum() for n, output in enumerate(self.outputs(*arrays)))

    def total_loss(self, *arrays):
        return sum(weigh_each(output, n).sum() for n, output in enumerate(vmap(self.outputs, self.dims)(*arrays)))

    def loop(self, function):
        """Return a function's results for each example, stacked leaf by leaf."""
        return [np.stack(column) for column in self.columns(function)]

    def columns(self, function):
        rows = [[np.asarray(leaf) for leaf in tree_leaves(function(*example))] for example in self.examples]
        return [list(column) for column in zip(*rows, strict=True)]

    def gradients_of_all(self, function):
        """Compute gradients of all examples with a function for one. Sum those of shared arguments."""
        return [
            sum(column) if dim is None else np.stack(column, dim)
            for column, dim in zip(self.columns(function), self.dims[:self.n], strict=True)
        ]

    def tangents(self, arrays):
        """Return some direction, the same for every example where it is the same."""
        return tuple(ops.np.cos(3 * array.real) + (0 if is_real(array) else 1j) for array in arrays[:self.n])

    def push(self, *arrays):
        floats, indices = arrays[:self.n], arrays[self.n:]
        return jvp(lambda *floats: self.outputs(*floats, *indices), floats, self.tangents(arrays))

    def pull(self, *arrays):
        floats, indices = arrays[:self.n], arrays[self.n:]
        outputs, pullback = vjp(lambda *floats: self.outputs(*floats, *indices), *floats)
        return pullback(tuple([cosine(output) for output in outputs]))

    def slope(self, *arrays):
        return grad(self.loss, self.which)(*arrays)

    def curvature(self, *arrays):
        """Return the gradient of a function of the gradient."""
        return grad(lambda *arrays: sum((slope * slope.conj()).sum().real if slope.dtype.kind == "c"
                                        else (slope * slope).sum() for slope in self.slope(*arrays)),
                    self.which)(*arrays)


def cosine(output):
    """Return a cotangent that depends on the output, and on nothing that differentiates."""
    return ops.np.cos(3 * output.real) + 0 * output if output.dtype.kind == "c" else ops.np.cos(3 * output)


def is_index(leaf):
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu"


def is_real(array):
    return array.dtype.kind == "f"


def weigh_each(output, n):
    """Apply `weigh` to every example of a batch."""
    weights = np.random.default_rng(n).uniform(0.5, 2.0, tuple(output.shape)[1:])
    return (output * (weights + 0.5j)).real if output.dtype.kind == "c" else output * weights


COMPOSITIONS = {
    "vmap": (lambda b: vmap(b.outputs, b.dims)(*b.arrays), lambda b: b.loop(b.outputs)),
    "vmap(grad)": (lambda b: vmap(b.slope, b.dims)(*b.arrays), lambda b: b.loop(b.slope)),
    "vmap(vjp)": (lambda b: vmap(b.pull, b.dims)(*b.arrays), lambda b: b.loop(b.pull)),
    "vmap(jvp)": (lambda b: vmap(b.push, b.dims)(*b.arrays), lambda b: b.loop(b.push)),
    "grad(vmap)": (lambda b: grad(b.total_loss, b.which)(*b.arrays), lambda b: b.gradients_of_all(b.slope)),
    "vjp(vmap)": (lambda b: pull_batch(b), lambda b: b.gradients_of_all(b.pull)),
    "jvp(vmap)": (lambda b: push_batch(b), lambda b: b.loop(b.push)),
    "vmap(vmap)": (
        lambda b: vmap(vmap(b.outputs, b.dims), nested(b))(*doubled(b)),
        lambda b: [np.stack([leaf, leaf]) for leaf in b.loop(b.outputs)]),
    "vmap(vmap(grad))": (
        lambda b: vmap(vmap(b.slope, b.dims), nested(b))(*doubled(b)),
        lambda b: [np.stack([leaf, leaf]) for leaf in b.loop(b.slope)]),
    "vmap(grad(vmap))": (
        lambda b: vmap(grad(b.total_loss, b.which), nested(b))(*doubled(b)),
        lambda b: [np.stack([leaf, leaf]) for leaf in b.gradients_of_all(b.slope)]),
    "grad(vmap(vmap))": (
        lambda b: grad(twice_total(b), b.which)(*doubled(b)),
        lambda b: [
            2 * gradient if dim is None else np.stack([gradient, gradient])
            for gradient, dim in zip(b.gradients_of_all(b.slope), b.dims[:b.n], strict=True)
        ]),
    "tape(vmap)": (lambda b: tape_of_batch(b), lambda b: b.gradients_of_all(b.slope)),
}
OF_SECOND_ORDER = {
    "vmap(grad(grad))": (lambda b: vmap(b.curvature, b.dims)(*b.arrays), lambda b: b.loop(b.curvature)),
    "grad(vmap(grad))": (lambda b: slope_of_slopes(b), lambda b: b.gradients_of_all(b.curvature)),
    "grad(grad(vmap))": (lambda b: curvature_of_batch(b), lambda b: expected_curvature_of_batch(b)),
}


def nested(b):
    """Return the in_dims of a vmap outside of another: mapped arrays get one more axis in front."""
    return tuple([None if dim is None else 0 for dim in b.dims])


def doubled(b):
    return [array if dim is None else np.stack([array, array]) for array, dim in zip(b.arrays, b.dims, strict=True)]


def twice_total(b):
    def total(*arrays):
        outputs = vmap(vmap(b.outputs, b.dims), nested(b))(*arrays)
        return sum(weigh_each(output.reshape((-1, *output.shape[2:])), n).sum() for n, output in enumerate(outputs))

    return total


def push_batch(b):
    floats, indices = b.arrays[:b.n], b.arrays[b.n:]
    return jvp(lambda *floats: vmap(b.outputs, b.dims)(*floats, *indices), tuple(floats), b.tangents(b.arrays))


def pull_batch(b):
    floats, indices = b.arrays[:b.n], b.arrays[b.n:]
    outputs, pullback = vjp(lambda *floats: vmap(b.outputs, b.dims)(*floats, *indices), *floats)
    return pullback(tuple([np.asarray(cosine(output)) for output in outputs]))


def tape_of_batch(b):
    tensors = [Tensor(array, requires_grad=True) for array in b.arrays[:b.n]]
    return autograd.grad(b.total_loss(*tensors, *b.arrays[b.n:]), tensors)


def squares(gradients):
    return sum((g * g.conj()).sum().real if g.dtype.kind == "c" else (g * g).sum() for g in gradients)


def slope_of_slopes(b):
    """Return the gradient of the sum over the examples of what `curvature` is the gradient of."""
    return grad(lambda *arrays: squares(vmap(b.slope, b.dims)(*arrays)), b.which)(*b.arrays)


def curvature_of_batch(b):
    gradients = grad(lambda *arrays: squares(grad(b.total_loss, b.which)(*arrays)), b.which)(*b.arrays)
    return np.array(dot(gradients, b.tangents(b.arrays)))


def expected_curvature_of_batch(b):
    """Differentiate the loop along a direction by central differences: shared arguments couple the examples."""
    def value(arrays):
        rows = [[array if dim is None else np.take(array, number, dim) for array, dim
                 in zip(arrays, b.dims, strict=True)] for number in range(BATCH)]
        columns = zip(*[[np.asarray(leaf) for leaf in b.slope(*row)] for row in rows], strict=True)
        return float(squares([sum(column) if dim is None else np.stack(column, dim)
                              for column, dim in zip(columns, b.dims[:b.n], strict=True)]))

    tangents = b.tangents(b.arrays)
    above, below = (value([*[array + sign * STEP * t for array, t in zip(b.arrays, tangents, strict=False)],
                           *b.arrays[b.n:]]) for sign in (1, -1))
    return [np.array((above - below) / (2 * STEP))]


def batches(sample):
    """Yield each tuple of arguments of a sample, in each way that it can be mapped."""
    for number, arguments in enumerate(sample.arguments()):
        leaves = tree_leaves(arguments)
        n_floats, n_indices = sum(map(is_float, leaves)), sum(map(is_index, leaves))
        for pattern in ["front", "behind"] + ["first"] * (n_floats > 1) + ["all"] * (n_indices > 0):
            yield Batch(sample, number, pattern)


def mappable(**flags):
    """Return the samples that can be mapped and have these flags."""
    flags |= {"transforms": True, "deterministic": True}
    return [sample for sample in FUNCTIONS if sample.vmap is not None
            and all(getattr(sample, flag) == value for flag, value in flags.items())]


@loops_allowed
@pytest.mark.parametrize("sample", mappable(), ids=lambda sample: sample.name)
@together("composition", COMPOSITIONS)
def test_compositions_with_vmap_against_a_loop(sample, composition):
    program, loop = COMPOSITIONS[composition]
    for batch in batches(sample):
        all_close(program(batch), loop(batch), rtol=1e-10)


@loops_allowed
@pytest.mark.parametrize("sample", mappable(double_backward=True), ids=lambda sample: sample.name)
@pytest.mark.parametrize("composition", OF_SECOND_ORDER)
def test_second_derivatives_with_vmap(sample, composition):
    program, expected = OF_SECOND_ORDER[composition]
    for batch in batches(sample):
        for actual, desired in zip(tree_leaves(program(batch)), expected(batch), strict=True):
            np.testing.assert_allclose(np.asarray(actual), desired, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("sample", [sample for sample in FUNCTIONS if sample.vmap is None], ids=lambda s: s.name)
def test_vmap_without_a_rule_is_an_error(sample):
    case = Case(sample, 0)
    with pytest.raises(VmapError, match=f"{sample.name}(.|\\n)*generate_vmap_rule = True"):
        vmap(case)(*[np.stack([array, array]) for array in case.arrays])


@loops_allowed
def test_random_mask_of_each_example_is_kept_for_its_gradient():
    x = np.arange(1.0, 61.0).reshape(3, 20)

    def f(x):
        generator = np.random.default_rng(0)
        masked, mask = vmap(lambda x: functions.RandomMask.apply(x, generator))(x)
        return masked.sum(), (masked, mask)

    gradient, (masked, mask) = grad(f, has_aux=True)(x)
    assert len({row.tobytes() for row in np.asarray(mask)}) == 3
    close(masked, x * mask)
    close(gradient, np.where(mask, 1.0, 0.0))


# --- one entry at a time ------------------------------------------------------------------------------------


def test_unused_output_of_sine_and_cosine():
    x = np.array([0.3, -1.2])
    for n, slope in enumerate((np.cos(x), -np.sin(x))):
        close(grad(lambda x, n=n: functions.SineCosine.apply(x)[n].sum())(x), slope)
        close(jvp(lambda x, n=n: functions.SineCosine.apply(x)[n], (x,), (x,))[1], slope * x)


def test_random_mask_is_kept_for_the_gradient():
    def f(x):
        masked, mask = functions.RandomMask.apply(x, np.random.default_rng(0))
        return masked.sum(), (masked, mask)

    x = np.arange(1.0, 21.0)
    gradient, (masked, mask) = grad(f, has_aux=True)(x)
    assert 0 < mask.sum() < 20
    close(masked, x * mask)
    close(gradient, np.where(mask, 1.0, 0.0))


@pytest.mark.parametrize("transform", ["grad", "jvp"])
def test_captured_live_value_is_an_error(transform, monkeypatch):
    def f(x):
        monkeypatch.setattr(functions.ScaleByCaptured, "captured", x)
        return functions.ScaleByCaptured.apply(np.ones(3)).sum()

    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="not active"):
        grad(f)(x) if transform == "grad" else jvp(f, (x,), (x,))


def test_list_with_constants_and_tracked_arrays():
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    close(grad(lambda y: functions.WeightedSum.apply([x, y, x]).sum())(y), [2.0, 2.0])
    tensor = Tensor(y, requires_grad=True)
    functions.WeightedSum.apply([x, tensor, tensor]).sum().backward()
    close(tensor.grad, [5.0, 5.0])


def test_multiply_returns_gradients_before_they_are_summed():
    x, y = np.arange(4.0), np.arange(12.0).reshape(3, 4)
    by_x, by_y = grad(lambda x, y: functions.Multiply.apply(x, y).sum(), (0, 1))(x, y)
    close(by_x, y.sum(0))
    close(by_y, np.tile(x, (3, 1)))


# --- batching rules, called as they stand -------------------------------------------------------------------

BATCH = 3


def batchings():
    """Yield each sample with a rule of its own, with a batch axis somewhere in each non-empty choice of its arrays."""
    for sample in FUNCTIONS:
        if sample.vmap != "own":
            continue
        for number, arguments in enumerate(sample.arguments()):
            arrays = [n for n, argument in enumerate(arguments) if isinstance(argument, np.ndarray)]
            for size in range(1, len(arrays) + 1):
                for batched in itertools.combinations(arrays, size):
                    for last in (False, True):
                        name = f"{sample.name}-{number}-{batched}-{'last' if last else 'first'}"
                        yield pytest.param(sample, number, batched, last, id=name)


@pytest.mark.parametrize(("sample", "number", "batched", "last"), list(batchings()))
def test_own_batching_rule_equals_the_loop(sample, number, batched, last):
    generator = np.random.default_rng(5)
    arguments = list(next(itertools.islice(sample.arguments(), number, None)))
    examples = [list(arguments) for _ in range(BATCH)]
    in_dims = [None] * len(arguments)
    for n in batched:
        for example in examples:
            example[n] = varied(arguments, n, generator)
        in_dims[n] = arguments[n].ndim if last else 0
        arguments[n] = np.stack([example[n] for example in examples], in_dims[n])
    expected = [sample.function.apply(*[copied(argument) for argument in example]) for example in examples]
    info = SimpleNamespace(batch_size=BATCH, randomness="error")
    outputs, out_dims = sample.function.vmap(info, tuple(in_dims), *map(copied, arguments))
    for i, example in enumerate(expected):
        pairs = zip(as_tuple(outputs), as_tuple(out_dims), strict=True)
        actual = [output if dim is None else np.take(output, i, axis=dim) for output, dim in pairs]
        all_close(actual, list(as_tuple(example)))


def varied(arguments, n, generator):
    """Return other values for the argument. Permutations stay permutations."""
    argument = arguments[n]
    if argument.dtype.kind in "fc":
        return generator.normal(size=argument.shape)
    return generator.permuted(argument, axis=arguments[-1])


def copied(argument):
    return argument.copy() if isinstance(argument, np.ndarray) else argument


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)
