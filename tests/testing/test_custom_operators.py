"""The sample custom operators: each is what its entry says, in both namespaces, by every rule that it has."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest

from pydispatch import Tensor, autograd, func
from pydispatch._registry.operators import find
from pydispatch.backends import MetaArray
from pydispatch.exceptions import NoDerivativeError
from pydispatch.library.batching import batching_of
from pydispatch.library.fakes import fake_of
from pydispatch.testing import gradcheck, gradgradcheck, opcheck
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from tests import custom_operators
from tests.custom_operators import CUSTOM_OPERATORS
from tests.together import together

NAMESPACES = ("samples", "samples_by_name")
BY_NAME = {sample.name: sample for sample in CUSTOM_OPERATORS}


def cases(chosen=lambda sample: True, namespaces=NAMESPACES):
    """Return one case for each tuple of arguments of each sample, in each namespace."""
    return [
        pytest.param(sample, number, namespace, id=f"{namespace}-{sample.name}-{number}")
        for sample in CUSTOM_OPERATORS if chosen(sample)
        for number, _ in enumerate(sample.arguments())
        for namespace in namespaces
    ]


def each(*chosen, **options):
    return pytest.mark.parametrize(("sample", "number", "namespace"), cases(*chosen, **options))


def has_formula(sample):
    return any(sample.differentiable)


def arguments_of(sample, number):
    return next(itertools.islice(sample.arguments(), number, None))


def operator_of(sample, namespace):
    return sample.operator if namespace == "samples" else sample.by_name


def is_float(leaf):
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"


def close(actual, desired, rtol=1e-12):
    for left, right in zip(tree_leaves(actual), tree_leaves(desired), strict=True):
        np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=rtol, atol=rtol)


def without_data(leaf):
    return MetaArray(leaf.shape, leaf.dtype) if isinstance(leaf, np.ndarray) else leaf


class Case:
    """An operator on one tuple of arguments, as a function of its floating-point arrays."""

    def __init__(self, sample, number, namespace):
        self.operator = operator_of(sample, namespace)
        self.differentiable = sample.differentiable
        arguments, self.keywords = arguments_of(sample, number)
        self.leaves, self.spec = tree_flatten(arguments)
        self.places = [i for i, leaf in enumerate(self.leaves) if is_float(leaf)]
        self.arrays = [self.leaves[i] for i in self.places]

    def all_results(self, *arrays):
        leaves = list(self.leaves)
        for i, array in zip(self.places, arrays, strict=True):
            leaves[i] = array
        return self.operator(*tree_unflatten(leaves, self.spec), **self.keywords)

    def __call__(self, *arrays):
        """Return the results that are differentiable, as a flat tuple."""
        result = self.all_results(*arrays)
        results = (result,) if len(self.differentiable) == 1 else result
        chosen = [value for value, flag in zip(results, self.differentiable, strict=True) if flag]
        return tuple(tree_leaves(chosen))


# --- values --------------------------------------------------------------------------------------------------


def test_all_of_the_database():
    assert list(BY_NAME) == [
        "numpy_cube", "numpy_mul", "numpy_mul_scalar", "numpy_sort", "numpy_take", "numpy_view_copy", "numpy_cat",
        "numpy_split_copy", "numpy_split_copy_with_int", "numpy_nonzero", "numpy_nms",
    ]


@each()
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["array", "Tensor"])
def test_values(sample, number, namespace, wrap):
    arguments, keywords = arguments_of(sample, number)
    before = tree_map(np.copy, arguments)
    given = tree_map(lambda leaf: wrap(leaf) if isinstance(leaf, np.ndarray) else leaf, arguments)
    result = operator_of(sample, namespace)(*given, **keywords)
    close(result, sample.reference(*arguments, **keywords))
    kinds = {type(leaf) for leaf in tree_leaves(result) if not isinstance(leaf, int)}
    assert kinds == {Tensor if wrap is Tensor else np.ndarray}
    close(arguments, before, rtol=0)


@each(lambda sample: sample.name != "numpy_nms")
@together("dtype", ["i1", "i2", "i4", "i8", "u1", "f2", "f4", "f8", "?"])
def test_values_of_other_dtypes(sample, number, namespace, dtype):
    arguments, keywords = arguments_of(sample, number)
    arguments = tree_map(lambda leaf: (3 * leaf).astype(dtype) if is_float(leaf) else leaf, arguments)
    if sample.name == "numpy_sort":     # ties: no reference tells one permutation from another
        (result, ind, inverse), (x, dim) = operator_of(sample, namespace)(*arguments), arguments
        np.testing.assert_array_equal(result, np.sort(x, dim), strict=True)
        np.testing.assert_array_equal(np.take_along_axis(x, ind, dim), result, strict=True)
        np.testing.assert_array_equal(np.take_along_axis(result, inverse, dim), x, strict=True)
        return
    if sample.name == "numpy_take":
        x, ind, _, dim = arguments
        lines, orders = (np.moveaxis(array, dim, -1).reshape(-1, x.shape[dim]) for array in (x, ind))
        taken = np.array([line[order] for line, order in zip(lines, orders, strict=True)])
        expected = np.moveaxis(taken.reshape(np.moveaxis(x, dim, -1).shape), -1, dim)
    else:
        expected = sample.reference(*arguments, **keywords)
    result = operator_of(sample, namespace)(*arguments, **keywords)
    rtol = 1e-2 if dtype == "f2" else 1e-6
    for left, right in zip(tree_leaves(result), tree_leaves(expected), strict=True):
        np.testing.assert_allclose(left, np.asarray(right).astype(np.asarray(left).dtype), rtol=rtol)


@each(lambda sample: sample.has_fake)
def test_fakes(sample, number, namespace):
    arguments, keywords = arguments_of(sample, number)
    operator = operator_of(sample, namespace)
    metas = tree_map(without_data, arguments)
    real, fake = operator(*arguments, **keywords), operator(*metas, **keywords)
    assert tree_flatten(fake)[1] == tree_flatten(real)[1]
    for left, right in zip(tree_leaves(fake), tree_leaves(real), strict=True):
        if isinstance(right, np.ndarray):
            assert isinstance(left, MetaArray)
            assert (left.shape, left.dtype) == (right.shape, right.dtype)
        else:
            assert left == right


@each(lambda sample: not sample.has_fake)
def test_fakes_of_data_dependent_operators(sample, number, namespace):
    arguments, keywords = arguments_of(sample, number)
    metas = tree_map(without_data, arguments)
    with pytest.raises(RuntimeError, match=f"{namespace}::{sample.name}.*data-dependent output shape"):
        operator_of(sample, namespace)(*metas, **keywords)


# --- registrations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", CUSTOM_OPERATORS, ids=lambda sample: sample.name)
def test_sites_are_lines_of_the_database(sample):
    path = re.escape(custom_operators.__file__)
    records = [*sample.operator.registrations, *sample.by_name.registrations]
    assert [record.site for record in records if not re.fullmatch(rf"{path}:\d+", record.site)] == []
    assert re.fullmatch(rf"{path}:\d+", fake_of(sample.operator).site)


# --- derivatives -----------------------------------------------------------------------------------------------


def tracked(case):
    return [Tensor(array.copy(), requires_grad=True) for array in case.arrays]


@each(has_formula)
def test_gradients_and_tangents_by_finite_differences(sample, number, namespace):
    case = Case(sample, number, namespace)
    assert gradcheck(case, tracked(case), check_forward_ad=namespace == "samples")


@each()
def test_opcheck(sample, number, namespace):
    arguments, keywords = arguments_of(sample, number)
    tracks = has_formula(sample)
    arguments = tree_map(
        lambda leaf: Tensor(leaf, requires_grad=tracks and is_float(leaf)) if isinstance(leaf, np.ndarray) else leaf,
        arguments)
    checks = opcheck(operator_of(sample, namespace), arguments, keywords)
    assert set(checks.values()) == {"SUCCESS"}


@each(has_formula)
def test_second_derivatives_by_finite_differences(sample, number, namespace):
    case = Case(sample, number, namespace)
    assert gradgradcheck(case, tracked(case))


@each(has_formula)
def test_what_is_tracked(sample, number, namespace):
    case = Case(sample, number, namespace)
    result = case.all_results(*tracked(case))
    results = (result,) if len(sample.differentiable) == 1 else result
    for value, flag in zip(results, sample.differentiable, strict=True):
        assert {leaf.requires_grad for leaf in tree_leaves(value) if isinstance(leaf, Tensor)} <= {flag}


@each(has_formula, namespaces=("samples",))
def test_both_formulas_give_the_same(sample, number, namespace):
    found = []
    for each_namespace in NAMESPACES:
        case = Case(sample, number, each_namespace)
        inputs = tracked(case)
        weighted = sum((result * (i + 1.5)).sum() for i, result in enumerate(case(*inputs)))
        found.append(autograd.grad(weighted, inputs))
    for left, right in zip(*found, strict=True):
        np.testing.assert_array_equal(left.numpy(), right.numpy(), strict=True)


@each(has_formula)
def test_functional_gradients(sample, number, namespace):
    case = Case(sample, number, namespace)

    def weighted(*arrays):
        return sum((result * (i + 1.5)).sum() for i, result in enumerate(case(*arrays)))

    inputs = tracked(case)
    expected = autograd.grad(weighted(*inputs), inputs)
    argnums = tuple(range(len(inputs)))
    close(func.grad(weighted, argnums)(*case.arrays), [gradient.numpy() for gradient in expected])


@each(lambda sample: not has_formula(sample))
def test_operators_without_a_formula(sample, number, namespace):
    case = Case(sample, number, namespace)
    inputs = tracked(case)
    if namespace == "samples":
        assert case.all_results(*inputs).requires_grad is False
    else:
        with pytest.raises(NoDerivativeError, match=f"Autograd has not been implemented for operator .*{sample.name}"):
            case.all_results(*inputs)


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)], ids=["x", "y", "both"])
def test_multiply_with_some_gradients_needed(namespace, needed):
    # Upstream uses the flag of x for both gradients.
    multiply = operator_of(BY_NAME["numpy_mul"], namespace)
    x, y = (Tensor(np.array(values), requires_grad=flag)
            for values, flag in zip(([1.0, 2.0], [3.0, 4.0]), needed, strict=True))
    multiply(x, y).backward(Tensor(np.array([1.0, 10.0])))
    expected = [[3, 40], [1, 20]]
    for tensor, flag, gradient in zip((x, y), needed, expected, strict=True):
        assert tensor.grad is None if not flag else np.array_equal(tensor.grad.numpy(), gradient)


@each(lambda sample: sample.has_fake)
def test_checks_of_arrays_without_data_are_refused(sample, number, namespace):
    # Upstream calls them a success.
    arguments, keywords = arguments_of(sample, number)
    with pytest.raises(ValueError, match="data"):
        opcheck(operator_of(sample, namespace), tree_map(without_data, arguments), keywords)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_one_result_or_none_is_fine(namespace):
    # Upstream asserts that there are at least two.
    nonzero, nms = (operator_of(BY_NAME[name], namespace) for name in ("numpy_nonzero", "numpy_nms"))
    assert nonzero(np.array([0.0, 3.0])).tolist() == [[1]]
    assert nonzero(np.zeros((2, 2))).shape == (0, 2)
    assert nms(np.array([[0.0, 0, 1, 1], [0, 0, 1, 1]]), np.array([0.1, 0.9]), 0.5).tolist() == [1]


# --- batching rules --------------------------------------------------------------------------------------------


BATCH = 3


def batched(leaf, dim, seed):
    """Return examples that differ, stacked along `dim`, and those examples."""
    if dim is None or not isinstance(leaf, np.ndarray):
        return leaf, [leaf] * BATCH
    generator = np.random.default_rng(seed)
    if leaf.dtype.kind == "f":
        examples = [leaf + generator.uniform(-0.1, 0.1, leaf.shape) for _ in range(BATCH)]
    else:
        examples = [leaf[::-1] if i % 2 else leaf for i in range(BATCH)]
    return np.stack(examples, dim), examples


@each(lambda sample: sample.has_fake, namespaces=("samples",))
@together("pattern", ["front", "behind", "mixed", "some"])
def test_batching_rules_agree_with_a_loop(sample, number, namespace, pattern):
    arguments, keywords = arguments_of(sample, number)
    leaves, spec = tree_flatten(arguments)
    arrays = [i for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)]
    dims = [None] * len(leaves)
    for k, i in enumerate(arrays):
        last = leaves[i].ndim
        mixed, some = (last, 0, min(1, last))[k % 3], (1, None)[k % 2]
        dims[i] = {"front": 0, "behind": last, "mixed": mixed, "some": some}[pattern]
    stacked, examples = zip(*(batched(leaf, dim, i) for i, (leaf, dim) in enumerate(zip(leaves, dims, strict=True))),
                            strict=True)
    rule = batching_of(sample.operator).kernel.function
    info = SimpleNamespace(batch_size=BATCH, randomness="error")
    output, out_dims = rule(info, tree_unflatten(dims, spec), *tree_unflatten(stacked, spec), **keywords)
    loop = [
        sample.operator(*tree_unflatten([column[b] for column in examples], spec), **keywords) for b in range(BATCH)]
    for left, dim, *right in zip(
        tree_leaves(output), spread(out_dims, output), *(tree_leaves(one) for one in loop), strict=True):
        if dim is None:
            assert {left} == set(right)
        else:
            np.testing.assert_allclose(left, np.stack(right, dim))


def spread(out_dims, output):
    """Return one entry per array of the output: a prefix stands for all that is below."""
    if isinstance(out_dims, (tuple, list)):
        return [dim for one, value in zip(out_dims, output, strict=True) for dim in spread(one, value)]
    return [out_dims] * len(tree_leaves(output))


@pytest.mark.parametrize(("name", "arguments", "dims"), [
    ("numpy_take", lambda x: (x, np.argsort(x, -1), np.argsort(np.argsort(x, -1), -1), -1), (2, 2, 2)),
    ("numpy_split_copy", lambda x: (x, (1,), -1), (1,)), ("numpy_split_copy", lambda x: (x, (1,), -2), (2,)),
    ("numpy_split_copy_with_int", lambda x: (x, (1,), -1), (0,)),
    ("numpy_sort", lambda x: (x, -1), (1,)), ("numpy_cat", lambda x: ([x, 2 * x], -1), (1, 2)),
])
def test_negative_axes_with_a_batch_axis_anywhere(name, arguments, dims):
    # Upstream wraps the axis by the position of the batch axis, or not at all, or cannot be called.
    sample = BY_NAME[name]
    generator = np.random.default_rng(0)
    calls = [arguments(generator.uniform(size=(2, 4))) for _ in range(BATCH)]
    specs = [tree_flatten(call) for call in calls]
    leaves, spec = specs[0]
    in_dims = iter(dims)
    all_dims = [next(in_dims) if isinstance(leaf, np.ndarray) else None for leaf in leaves]
    stacked = [
        leaf if dim is None else np.stack([other[i] for other, _ in specs], dim)
        for i, (leaf, dim) in enumerate(zip(leaves, all_dims, strict=True))
    ]
    output, out_dims = batching_of(sample.operator).kernel.function(
        SimpleNamespace(batch_size=BATCH, randomness="error"), tree_unflatten(all_dims, spec),
        *tree_unflatten(stacked, spec))
    loop = [tree_leaves(sample.operator(*call)) for call in calls]
    for left, dim, *right in zip(tree_leaves(output), spread(out_dims, output), *loop, strict=True):
        expected = right[0] if dim is None else np.stack(right, dim)
        np.testing.assert_array_equal(left, expected)


@pytest.mark.parametrize("name", ["numpy_nonzero", "numpy_nms"])
def test_data_dependent_operators_cannot_be_batched(name):
    record = batching_of(BY_NAME[name].operator)
    n = len(BY_NAME[name].operator.schema.arguments)
    with pytest.raises(NotImplementedError, match=name):
        record.kernel.function(None, (0,) * n, *(None,) * n)


def test_registrations_last_for_the_life_of_the_process():
    assert find("samples::numpy_mul") is BY_NAME["numpy_mul"].operator
