"""Every function of `pydispatch.numpy` against NumPy's: values, gradients, batches, shapes, traces, by each way in."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydispatch.numpy
from pydispatch import Tensor
from pydispatch.autograd import gradcheck, gradgradcheck
from pydispatch.backends import MetaArray
from pydispatch.func import functionalize, vmap
from pydispatch.numpy.declare import FUNCTIONS, KINDS
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.samples import SAMPLES
from tests.numpy.samples.sample import Sample


def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def has_arrays(call: Any) -> bool:
    return any(map(is_array, tree_leaves(call.values[0][1:3])))


CALLS = [pytest.param(sample, id=repr(sample)) for samples in SAMPLES.values() for sample in samples
         if operator.attrgetter(sample.name)(pydispatch.numpy).numpy_function is not None]      # older NumPys lack some
WITH_ARRAYS = [call for call in CALLS if has_arrays(call)]
SMOOTH = [call for call in WITH_ARRAYS if call.values[0].smooth]
BATCHED = [call for call in WITH_ARRAYS if call.values[0].batches]
WITH_SHAPE = [call for call in WITH_ARRAYS if call.values[0].has_shape]


def numpys(name: str) -> Callable[..., Any]:
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def ours(name: str) -> Callable[..., Any]:
    found: Any = pydispatch.numpy
    for part in name.split("."):
        found = getattr(found, part)
    return found


def mapped(function: Callable[[np.ndarray], Any], tree: Any) -> Any:
    """The arguments with their arrays replaced."""
    return tree_map(lambda leaf: function(leaf) if is_array(leaf) else leaf, tree)


def quietly(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result, without warnings of NumPy's."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*args, **kwargs)


def copies(sample: Sample) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that a function may write to."""
    return mapped(np.copy, (sample.args, sample.kwargs))


def check_same(found: Any, expected: Any, tolerance: float) -> None:
    """The same structure, shapes, dtypes and values."""
    found_leaves, expected_leaves = tree_leaves(found), tree_leaves(expected)
    assert len(found_leaves) == len(expected_leaves)
    assert isinstance(found, (list, tuple)) == isinstance(expected, (list, tuple))
    for left, right in zip(found_leaves, expected_leaves, strict=True):
        left, right = np.asarray(left), np.asarray(right)
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        if left.dtype.kind in "OUSMm":
            assert left.tolist() == right.tolist()
        else:
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


WAYS_IN = {
    "numpy": numpys,
    "pydispatch.numpy": ours,
    "array_namespace": lambda name: getattr(Tensor(np.ones(1)).__array_namespace__(), name) if "." not in name else
        ours(name),
    "on_tensors": lambda name: ours(name).on_tensors,
}


IN_PLACE = ("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask")
"""Functions that give nothing back: test_in_place.py has them."""
TOLD = ("array_repr", "save", "savetxt", "savez", "savez_compressed")
"""Functions that tell what an array is, or write it to a file: test_descriptions.py has them."""


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - IN_PLACE - set(TOLD)))
def test_every_function_has_a_sample(name):
    if numpys(name) is None:
        pytest.skip("newer versions of NumPy have it, and its samples")
    assert KINDS[name] == "refused" or name in SAMPLES or FUNCTIONS[name].operator is not None


@pytest.mark.parametrize("sample", CALLS)
def test_arrays_go_in_and_out(sample):
    expected = quietly(numpys(sample.name), *copies(sample))
    for function in (ours(sample.name), ours(sample.name).on_tensors):
        found = quietly(function, *copies(sample))
        assert not any(isinstance(leaf, Tensor) for leaf in tree_leaves(found))
        check_same(found, expected, sample.tolerance)


CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asarray_chkfinite", "full", "asfortranarray",
               "require", "kaiser")
"""Functions of NumPy that make an array of what they get, a Tensor too, without asking it."""
BY_ALL_WAYS = [pytest.param(call.values[0], way, id=f"{call.id}-{way}") for call in WITH_ARRAYS for way in WAYS_IN
               if not (way == "numpy" and call.values[0].name in CONVERSIONS)]


@pytest.mark.parametrize(("sample", "way"), BY_ALL_WAYS)
def test_tensors_go_in_and_out(sample, way):
    args, kwargs = mapped(lambda x: Tensor(x.copy()), (sample.args, sample.kwargs))
    expected = quietly(numpys(sample.name), *copies(sample))
    found = quietly(WAYS_IN[way](sample.name), args, kwargs)
    assert all(isinstance(leaf, Tensor) for leaf, other in
               zip(tree_leaves(found), tree_leaves(expected), strict=True) if is_array(other))
    check_same(tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf, found), expected,
               sample.tolerance)


def of_reals(dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    """The array with floating-point numbers in another precision."""
    return lambda x: x.astype(np.result_type(dtype, np.complex64) if x.dtype.kind == "c" else dtype
                              ) if x.dtype.kind in "fc" else x.copy()


LAYOUTS = {
    "byte-swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "strided": lambda x: np.repeat(x, 2, -1)[..., ::2] if x.ndim else x.copy(),
    "backwards": lambda x: x[::-1].copy()[::-1] if x.ndim else x.copy(),
    "column by column": lambda x: x.copy(order="F"),
    "float32": of_reals(np.float32), "float16": of_reals(np.float16), "longdouble": of_reals(np.longdouble),
}
LOOSE = {"float32": 1e-4, "float16": 2e-2}
COMPUTED = {("digitize", "longdouble"), ("polyfit", "float16")}
"""What NumPy refuses, and operators compute."""
FIRST_OF_EACH = [next(iter(samples)) for samples in
                 ([call.values[0] for call in WITH_ARRAYS if call.values[0].name == name] for name in SAMPLES)
                 if samples]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sample", FIRST_OF_EACH, ids=lambda sample: sample.name)
def test_layouts_and_precisions_are_numpys(sample, layout):
    args, kwargs = mapped(LAYOUTS[layout], (sample.args, sample.kwargs))
    tensors = mapped(Tensor, (args, kwargs))
    try:
        expected = quietly(numpys(sample.name), args, kwargs)
    except TypeError:
        if (sample.name, layout) not in COMPUTED:
            with pytest.raises(TypeError):
                quietly(ours(sample.name), *tensors)
        return
    found = tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf,
                     quietly(ours(sample.name), *tensors))
    if layout == "byte-swapped":        # operators may give the machine's byte order
        found, expected = [mapped(lambda x: x.astype(x.dtype.newbyteorder("=")), each) for each in (found, expected)]
    check_same(found, expected, max(sample.tolerance, LOOSE.get(layout, 1e-12)))


def is_differentiable(leaf: Any) -> bool:
    return is_array(leaf) and leaf.dtype.kind in "fc"


@pytest.mark.parametrize("sample", SMOOTH)
def test_gradients_are_those_of_finite_differences(sample):
    places = [leaf for leaf in tree_leaves((sample.args, sample.kwargs)) if is_differentiable(leaf)]
    tensors = [Tensor(leaf.astype(complex if leaf.dtype.kind == "c" else float), requires_grad=True)
               for leaf in places]

    def function(*values: Any) -> Any:
        left = list(values)
        args, kwargs = tree_map(lambda leaf: left.pop(0) if is_differentiable(leaf) else leaf,
                                (sample.args, sample.kwargs))
        found = ours(sample.name)(*args, **kwargs)
        return [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor) and leaf.dtype.kind in "fc"]

    gradcheck(function, tensors, check_forward_ad=True)
    gradgradcheck(function, tensors)


@pytest.mark.parametrize("sample", BATCHED)
def test_vmap_is_a_loop(sample):
    arrays = [leaf for leaf in tree_leaves((sample.args, sample.kwargs)) if is_array(leaf)]
    first = arrays[0]
    batch = np.stack([first, np.roll(first, 1), np.flip(first)])

    def function(value: Any) -> Any:
        args, kwargs = mapped(lambda leaf: value if leaf is first else leaf, (sample.args, sample.kwargs))
        found = ours(sample.name)(*args, **kwargs)
        return [leaf for leaf in tree_leaves(found) if hasattr(leaf, "dtype")]

    found = quietly(vmap(function), (batch,), {})
    expected = [quietly(function, (x,), {}) for x in batch]
    for i, leaf in enumerate(found):
        check_same(leaf, np.stack([np.asarray(each[i]) for each in expected]), max(sample.tolerance, 1e-12))


@pytest.mark.parametrize("sample", WITH_SHAPE)
def test_meta_arrays_have_the_shape_and_dtype_of_the_result(sample):
    args, kwargs = mapped(lambda x: MetaArray(x.shape, x.dtype), (sample.args, sample.kwargs))
    expected = tree_leaves(quietly(numpys(sample.name), *copies(sample)))
    found = tree_leaves(ours(sample.name)(*args, **kwargs))
    assert [(leaf.shape, leaf.dtype) for leaf in found if hasattr(leaf, "dtype")] == [
        (np.shape(leaf), np.asarray(leaf).dtype) for leaf in expected if hasattr(leaf, "dtype")]


@pytest.mark.parametrize("transform", [make_fx, functionalize], ids=["make_fx", "functionalize"])
@pytest.mark.parametrize("sample", WITH_SHAPE)
def test_traced_and_functionalized_is_eager(sample, transform):
    arrays = [leaf for leaf in tree_leaves((sample.args, sample.kwargs)) if is_array(leaf)]

    def function(*values: Any) -> Any:
        left = list(values)
        args, kwargs = mapped(lambda leaf: left.pop(0), (sample.args, sample.kwargs))
        found = ours(sample.name)(*args, **kwargs)
        return [leaf for leaf in tree_leaves(found) if hasattr(leaf, "dtype")]

    other = [np.roll(x, 1) for x in arrays]
    expected = quietly(function, mapped(np.copy, other), {})
    if transform is make_fx:
        graph = quietly(make_fx(function), mapped(np.copy, arrays), {})
        found = quietly(graph, mapped(np.copy, other), {})
    else:
        found = quietly(functionalize(function), mapped(np.copy, other), {})
    check_same([np.asarray(leaf) for leaf in found], [np.asarray(leaf) for leaf in expected],
               max(sample.tolerance, 1e-12))
