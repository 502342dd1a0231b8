"""Every function of `pydispatch.numpy` against NumPy's: values, gradients, batches, shapes, traces, by each way in."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pydispatch
import pydispatch.numpy
from pydispatch import Tensor, ops
from pydispatch._core import ArrayFunction
from pydispatch.backends import MetaArray
from pydispatch.exceptions import CompilationError
from pydispatch.func import functionalize, grad, vmap
from pydispatch.numpy.declare import FUNCTIONS, KINDS
from pydispatch.testing import gradcheck, gradgradcheck
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.calls import (
    case_named,
    check_same,
    check_stacked,
    copies,
    examples,
    for_each_sample,
    function_of_arrays,
    function_of_tensors,
    is_array,
    is_differentiable,
    mapped,
    quietly,
)
from tests.numpy.samples import SAMPLES
from tests.numpy.samples.sample import Sample
from tests.together import together


def array_function(name: str) -> ArrayFunction:
    """Return the function of a public name, or what the builtin of that name stands for."""
    found = operator.attrgetter(name)(pydispatch.numpy)
    return found if isinstance(found, ArrayFunction) else FUNCTIONS[name]


def has_arrays(call: Any) -> bool:
    return any(map(is_array, tree_leaves(call.values[0][1:3])))


CALLS = [pytest.param(sample, id=repr(sample)) for samples in SAMPLES.values() for sample in samples
         if array_function(sample.name).numpy_function is not None]      # older NumPys lack some
WITH_ARRAYS = [call for call in CALLS if has_arrays(call)]
SMOOTH = [call for call in WITH_ARRAYS if call.values[0].smooth]
FULLY_CHECKED = {id(call.values[0]) for call in {call.values[0].name: call for call in reversed(SMOOTH)}.values()}
"""Samples whose Jacobians are compared element by element. Of others, and of second derivatives, a projection is."""
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


WAYS_IN = {
    "numpy": numpys,
    "pydispatch.numpy": ours,
    "array_namespace": lambda name: getattr(Tensor(np.ones(1)).__array_namespace__(), name) if "." not in name else
        ours(name),
    "on_tensors": lambda name: array_function(name).on_tensors,
}


IN_PLACE = ("copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask")
"""Functions that give nothing back: test_in_place.py has them."""
TOLD = ("array_repr", "einsum_path", "iinfo", "ndenumerate", "save", "savetxt", "savez", "savez_compressed")
"""Functions that tell what an array is, or write it to a file: tests of descriptions, of the standard and of selection
have them."""


@together("name", sorted(FUNCTIONS.keys() - IN_PLACE - set(TOLD)))
def test_every_function_has_a_sample(name):
    is_newer = numpys(name) is None         # than this NumPy, and so are its samples
    assert is_newer or KINDS[name] == "refused" or name in SAMPLES or FUNCTIONS[name].operator is not None


@for_each_sample(CALLS)
def test_arrays_go_in_and_out(sample):
    expected = quietly(numpys(sample.name), *copies(sample))
    for function in (ours(sample.name), array_function(sample.name), array_function(sample.name).on_tensors):
        found = quietly(function, *copies(sample))
        assert not any(isinstance(leaf, Tensor) for leaf in tree_leaves(found))
        check_same(found, expected, sample.tolerance)


CONVERSIONS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asarray_chkfinite", "full", "asfortranarray",
               "require", "kaiser", "from_dlpack", "finfo", "iinfo")
"""Functions of NumPy that make an array of what they get, a Tensor too, without asking it."""

@for_each_sample(WITH_ARRAYS)
def test_tensors_go_in_and_out(sample):
    expected = quietly(numpys(sample.name), *copies(sample))
    for way, function_by_way in WAYS_IN.items():
        if way == "numpy" and sample.name in CONVERSIONS:
            continue
        args, kwargs = mapped(lambda x: Tensor(x.copy()), (sample.args, sample.kwargs))
        with case_named(way):
            found = quietly(function_by_way(sample.name), args, kwargs)
            assert all(isinstance(leaf, Tensor) for leaf, other in
                       zip(tree_leaves(found), tree_leaves(expected), strict=True) if is_array(other))
            check_same(tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf, found), expected,
                       sample.tolerance)


def of_reals(dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return the array with floating-point numbers in another precision."""
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
"""Calls that NumPy rejects and operators compute."""
FIRST_OF_EACH = [next(iter(samples)) for samples in
                 ([call.values[0] for call in WITH_ARRAYS if call.values[0].name == name] for name in SAMPLES)
                 if samples]


@pytest.mark.parametrize("sample", FIRST_OF_EACH, ids=lambda sample: sample.name)
def test_layouts_and_precisions_are_numpys(sample):
    for layout in LAYOUTS:
        with case_named(layout):
            check_in_layout(sample, layout)


def check_in_layout(sample, layout):
    args, kwargs = mapped(LAYOUTS[layout], (sample.args, sample.kwargs))
    tensors = mapped(Tensor, (args, kwargs))
    try:
        expected = quietly(numpys(sample.name), args, kwargs)
    except (TypeError, BufferError) as error:
        if (sample.name, layout) not in COMPUTED:
            with pytest.raises(TypeError if isinstance(error, TypeError) else BufferError):
                quietly(ours(sample.name), *tensors)
        return
    found = tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf,
                     quietly(ours(sample.name), *tensors))
    if layout == "byte-swapped":        # operators may give the machine's byte order
        found, expected = [mapped(lambda x: x.astype(x.dtype.newbyteorder("=")), each) for each in (found, expected)]
    check_same(found, expected, max(sample.tolerance, LOOSE.get(layout, 1e-12)))


deprecated = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@deprecated
@for_each_sample(SMOOTH)
def test_gradients_are_those_of_finite_differences(sample):
    function, tensors = function_of_tensors(ours(sample.name), sample)
    gradcheck(function, tensors, check_forward_ad=True, fast_mode=id(sample) not in FULLY_CHECKED)
    gradgradcheck(function, tensors, fast_mode=True)


@for_each_sample(BATCHED)
def test_vmap_is_a_loop(sample):
    function, arrays = function_of_arrays(ours(sample.name), sample)
    every = range(len(arrays))
    for batched in [{i} for i in every] + [set(every)] * (len(arrays) > 1):
        if 1 in batched and sample.name == "digitize":      # flipped bins are no bins
            continue
        calls = [[examples(x)[k] if i in batched else x for i, x in enumerate(arrays)] for k in range(3)]
        stacked = [np.stack(examples(x)) if i in batched else x for i, x in enumerate(arrays)]
        in_dims = tuple([0 if i in batched else None for i in every])
        found = quietly(vmap(function, in_dims=in_dims), stacked, {})
        check_stacked(found, [quietly(function, call, {}) for call in calls], sample.tolerance)


@for_each_sample(BATCHED)
def test_vmap_of_vmap_is_a_loop_of_loops(sample):
    function, (first, *others) = function_of_arrays(ours(sample.name), sample)
    alone = (None,) * len(others)
    grid = np.stack([np.stack(examples(first)), np.stack(examples(np.roll(first, 1)))], axis=-1)
    inner = vmap(function, in_dims=(0, *alone))
    found = quietly(vmap(inner, in_dims=(-1, *alone)), (grid, *others), {})
    expected = [[quietly(function, (np.copy(grid[k, ..., j]), *others), {}) for k in range(3)] for j in range(2)]
    for i, leaf in enumerate(found):
        loops = np.stack([np.stack([np.asarray(each[i]) for each in row]) for row in expected])
        check_same(leaf, loops, max(sample.tolerance, 1e-12))


@deprecated
@for_each_sample(WITH_SHAPE)
def test_meta_arrays_have_the_shape_and_dtype_of_the_result(sample):
    args, kwargs = mapped(lambda x: MetaArray(x.shape, x.dtype), (sample.args, sample.kwargs))
    expected = tree_leaves(quietly(numpys(sample.name), *copies(sample)))
    found = tree_leaves(ours(sample.name)(*args, **kwargs))
    assert [(leaf.shape, leaf.dtype) for leaf in found if hasattr(leaf, "dtype")] == [
        (np.shape(leaf), np.asarray(leaf).dtype) for leaf in expected if hasattr(leaf, "dtype")]


def traced(function: Callable[..., Any], arrays: list[np.ndarray]) -> Callable[..., Any]:
    """Return the graph of the function, which was traced with other values."""
    return quietly(make_fx(function), mapped(np.copy, arrays), {})


def is_in_place(sample: Sample) -> bool:
    """Return whether this call writes to its argument."""
    return sample.name == "nan_to_num" and sample.kwargs.get("copy") is False


TRANSFORMS = {
    "make_fx": traced, "functionalize": lambda function, arrays: functionalize(function),
    "compile": lambda function, arrays: pydispatch.compile(function),
}


@for_each_sample(WITH_SHAPE)
def test_traced_functionalized_and_compiled_is_eager(sample):
    function, arrays = function_of_arrays(ours(sample.name), sample)
    other = [np.roll(x, 1) for x in arrays]
    expected = [np.asarray(leaf) for leaf in quietly(function, mapped(np.copy, other), {})]
    for name, transform in TRANSFORMS.items():
        if name == "compile" and is_in_place(sample):
            with pytest.raises(CompilationError, match="writes to its argument"):
                pydispatch.compile(function)(*mapped(np.copy, other))
            continue
        with case_named(name):
            found = quietly(transform(function, arrays), mapped(np.copy, other), {})
            check_same([np.asarray(leaf) for leaf in found], expected, max(sample.tolerance, 1e-12))


FIRST_SMOOTH = list({call.values[0].name: call for call in reversed(SMOOTH) if call.values[0].has_shape}.values())
OF_COMPILED = {
    "grad of compiled": lambda function, argnums: grad(pydispatch.compile(function), argnums),
    "compiled grad": lambda function, argnums: pydispatch.compile(grad(function, argnums)),
    "vmap of compiled": lambda function, argnums: vmap(pydispatch.compile(grad(function, argnums))),
}


@pytest.mark.parametrize("transform", OF_COMPILED)
@pytest.mark.parametrize("sample", FIRST_SMOOTH)
def test_transforms_of_compiled_functions(sample, transform):
    function, arrays = function_of_arrays(ours(sample.name), sample)
    places = tuple([i for i, x in enumerate(arrays) if is_differentiable(x)])

    def loss(*values: Any) -> Any:
        call = list(arrays)
        for i, value in zip(places, values, strict=True):
            call[i] = value
        return sum(ops.np.sum(ops.np.real(leaf * ops.np.conjugate(leaf))) for leaf in function(*call)
                   if leaf.dtype.kind in "fc")

    values, argnums = [arrays[i] for i in places], tuple(range(len(places)))
    expected = quietly(grad(loss, argnums), values, {})
    if transform == "vmap of compiled":
        values, expected = ([np.stack([each, each]) for each in part] for part in (values, expected))
    check_same(quietly(OF_COMPILED[transform](loss, argnums), values, {}), tuple(expected), 1e-9)
