"""Every operator of the library against NumPy: values, dtypes, shapes and errors, over sample calls."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import DataDependentError
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.operators.pointwise import round_of_numpy_2_0
from pydispatch.operators.shapes import reshape_of_numpy_2_0
from pydispatch.tree import tree_leaves, tree_map
from tests.comparing import to_tensor
from tests.operators.oracles import (
    ABOUT_VALUES,
    IN_PLACE,
    NAMES,
    UNDEFINED,
    WITH_OUT,
    check,
    copied,
    is_error,
    numpy_in_place,
    numpy_out,
    outcome,
    outs_for,
    to_meta,
    unless_mask,
)
from tests.operators.samples import DTYPES, Sample, array, every_other_sample, numpy_function, samples, schema_of
from tests.together import together


def with_metas(name: str, sample: Sample) -> Sample:
    """Return the call on meta arrays.

    Masks in a key stay arrays, since the shape of the result depends on their values.
    """
    args = dict(zip((argument.name for argument in schema_of(name).arguments), sample.args, strict=False))
    metas = tree_map(to_meta, args)
    if "key" in args:
        metas["key"] = tree_map(unless_mask, args["key"])
    return Sample(tuple(metas.values()), tree_map(to_meta, sample.kwargs))


@pytest.mark.parametrize("name", NAMES)
def test_raw_arrays(name):
    operator, reference = getattr(ops.np, name), numpy_function(name)
    for sample in samples(name):
        expected = outcome(reference, *sample)
        found = outcome(operator, *sample)
        check(found, expected, (name, sample), values=name not in UNDEFINED)
        assert not any(isinstance(leaf, Tensor) for leaf in tree_leaves(found)), (name, sample)


@pytest.mark.parametrize("name", NAMES)
def test_tensors(name):
    operator, reference = getattr(ops.np, name), numpy_function(name)
    for sample in samples(name):
        wrapped = tree_map(to_tensor, tuple(sample))
        expected, found = outcome(reference, *sample), outcome(operator, *wrapped)
        if not is_error(found) and any(isinstance(leaf, Tensor) for leaf in tree_leaves(wrapped)):
            assert all(isinstance(leaf, Tensor) for leaf in tree_leaves(found)), (name, sample)
            found = tree_map(lambda leaf: leaf.array, found)
        check(found, expected, (name, sample), values=name not in UNDEFINED)


@pytest.mark.parametrize("name", NAMES)
def test_meta(name):
    operator, reference = getattr(ops.np, name), numpy_function(name)
    for sample in samples(name):
        metas = with_metas(name, sample)
        if not any(isinstance(leaf, MetaArray) for leaf in tree_leaves(metas)):
            continue
        expected, found = outcome(reference, *sample), outcome(operator, *metas)
        if is_error(expected) and not is_error(found) and (name, expected) in ABOUT_VALUES:
            continue
        check(found, expected, (name, sample), values=False)
        assert is_error(found) or all(isinstance(leaf, MetaArray) for leaf in tree_leaves(found)), (name, sample)


@pytest.mark.parametrize("name", NAMES)
def test_meta_views(name):
    operator = getattr(ops.np, name)
    for sample in samples(name):
        source = sample.args[0]
        if not isinstance(source, np.ndarray) or not source.flags.c_contiguous or source.ndim == 0:
            continue
        metas = with_metas(name, sample)
        expected, found = outcome(operator, *sample), outcome(operator, *metas)
        if is_error(expected) or is_error(found):
            continue
        for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            is_view = one is metas.args[0] or one.base is metas.args[0]
            assert other.size == 0 or is_view == np.may_share_memory(other, source), (name, sample)


@pytest.mark.parametrize("name", WITH_OUT)
def test_out(name):
    operator = getattr(ops.np, name)
    for sample in every_other_sample(name):
        result = outcome(numpy_function(name), *sample)
        for out in [] if is_error(result) else outs_for(result):
            theirs, ours, tensor = out.copy(), out.copy(), Tensor(out.copy())
            expected = outcome(numpy_out, (name, *sample, theirs), {})
            for target in (ours, tensor):
                what = (name, sample, target)
                found = outcome(operator, sample.args, {**sample.kwargs, "out": target})
                if is_error(expected):
                    check(found, expected, what)
                else:
                    assert found is target, what
                    check(ours if target is ours else tensor.array, theirs, what)


@pytest.mark.parametrize("name", WITH_OUT)
def test_meta_out(name):
    operator = getattr(ops.np, name)
    for sample in every_other_sample(name):
        metas = with_metas(name, sample)
        result = outcome(numpy_function(name), *sample)
        for out in [] if is_error(result) else outs_for(result):
            expected = outcome(numpy_out, (name, *sample, out), {})
            target = to_meta(out)
            found = outcome(operator, metas.args, {**metas.kwargs, "out": target})
            if is_error(expected) and out.shape == np.shape(result):
                check(found, expected, (name, metas, target))
            else:   # of an out that fits in neither shape nor dtype, either error may come first
                agrees = is_error(found) if is_error(expected) else found is target
                assert agrees, (name, metas, target, found)


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    operator = getattr(ops.np, VARIANTS[name].in_place)
    for sample in samples(name):
        if not isinstance(sample.args[0], np.ndarray):
            continue
        expected = outcome(numpy_in_place, (name, sample), {})
        for wrap in (copied, lambda x: Tensor(copied(x))):
            what = (operator, sample)
            target = wrap(sample.args[0])
            found = outcome(operator, (target, *sample.args[1:]), sample.kwargs)
            if is_error(expected):
                check(found, expected, what)
            else:
                assert found is target, what
                check(found.array if isinstance(found, Tensor) else found, expected, what)


@pytest.mark.parametrize("name", IN_PLACE)
def test_meta_in_place(name):
    operator = getattr(ops.np, VARIANTS[name].in_place)
    for sample in samples(name):
        metas = with_metas(name, sample)
        target = metas.args[0]
        if not isinstance(target, MetaArray):
            continue
        expected, found = outcome(numpy_in_place, (name, sample), {}), outcome(operator, *metas)
        if not is_error(expected) or (name, expected) in ABOUT_VALUES:
            assert found is target or is_error(expected), (operator, metas, found)
        else:
            check(found, expected, (operator, metas))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_item(dtype):
    for value in (array((), dtype), array((1, 1), dtype, 1)):
        for found in (ops.np.item(value), ops.np.item(Tensor(value))):
            assert type(found) is type(value.item())
            assert found == value.item()
    with pytest.raises(ValueError, match="size 1"):
        ops.np.item(array((2,), dtype))
    with pytest.raises(DataDependentError, match=r"np::item.*without data.*\n.*ops\.np\.where"):
        ops.np.item(MetaArray((), dtype))


LONG = np.longdouble(1) / 3
CREATED = [name for name, declaration in DECLARATIONS.items() if "creation" in declaration.tags]


@pytest.mark.parametrize(("name", "args", "kwargs"), [
    ("arange", (9 * LONG,), {}), ("arange", (0, 3 * LONG), {}), ("arange", (0, 1, LONG), {}), ("arange", (LONG, 3), {}),
    ("arange", (3,), {"dtype": np.longdouble}),
    ("linspace", (0, LONG), {}), ("linspace", (LONG * 1j, 1), {}), ("full", ((2,), LONG), {}),
    ("full", ((2,), LONG * 1j), {}), ("full_like", (np.ones(2, np.longdouble), LONG), {}),
    ("zeros", (2,), {"dtype": np.longdouble}), ("eye", (2,), {"dtype": np.clongdouble}),
    ("sum", (np.ones(2, np.longdouble),), {"initial": LONG}), ("max", (np.zeros(2, "g"),), {"initial": LONG}),
    ("prod", (np.ones(2, np.clongdouble),), {"initial": LONG}),
    ("var", (np.arange(2, dtype=np.longdouble),), {"ddof": LONG}),
], ids=str)
def test_numbers_of_extended_precision(name, args, kwargs):
    expected = getattr(np, name)(*args, **kwargs)
    check(getattr(ops.np, name)(*args, **kwargs), expected, (name, args, kwargs))
    metas = tree_map(to_meta, (args, kwargs | ({"device": "Meta"} if name in CREATED else {})))
    check(getattr(ops.np, name)(*metas[0], **metas[1]), expected, (name, *metas), values=False)


BOOL_KINDS = (bool, np.bool_)        # of them alone NumPy makes no range
REAL_KINDS = (int, float, *[np.dtype(char).type for char in "bhilqBHILQefdg"])
# NumPy counts the numbers of a range in the precision of its scalars, and those of complex ranges otherwise for its own
# scalars than for Python's. An operator gets Python's where Python has the kind.
EXACT_KINDS = (int, float, np.longdouble, complex, np.complex128, np.clongdouble)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@together("kind, others", [
    *[(kind, REAL_KINDS) for kind in BOOL_KINDS], *[(kind, BOOL_KINDS + REAL_KINDS) for kind in REAL_KINDS],
    *[(kind, EXACT_KINDS) for kind in EXACT_KINDS],
], ids=lambda kind: getattr(kind, "__name__", ""))
def test_ranges_of_numbers_of_every_kind(kind, others):
    for args in [(kind(2),), (kind(0), 2), (0, kind(2)), (0, 2, kind(1)), *[(kind(0), other(2)) for other in others],
                 *[(0, other(2), kind(1)) for other in others]]:
        expected = np.arange(*args)
        check(ops.np.arange(*args), expected, args)
        check(ops.np.arange(*args, device="Meta"), expected, args, values=False)


@pytest.mark.parametrize("args", [(2**63, 2**63 + 3), (-2**64, -2**64 + 2), (0, 2**64, 2**63)], ids=str)
def test_ranges_of_large_numbers(args):
    expected = np.arange(*args)
    check(ops.np.arange(*args), expected, args)
    check(ops.np.arange(*args, device="Meta"), expected, args, values=False)


@pytest.mark.parametrize("reshaped", [ops.np.reshape, reshape_of_numpy_2_0], ids=["operator", "of NumPy 2.0"])
@pytest.mark.parametrize(("source", "copy", "shares"), [
    (np.ones((2, 3)), None, True), (np.ones((2, 3)), True, False), (np.ones((2, 3)), False, True),
    (np.ones((3, 2)).T, None, False), (np.ones((3, 2)).T, True, False), (np.ones((3, 2)).T, False, None),
    (np.ones((0, 6)), False, False),
], ids=lambda value: str(value) if not isinstance(value, np.ndarray) else f"{value.shape}{value.strides}")
def test_reshape_copies_when_told_to(reshaped, source, copy, shares):
    if shares is None:
        with pytest.raises(ValueError, match="Unable to avoid creating a copy"):
            reshaped(source, -1, copy=copy)
        return
    found = reshaped(source, -1, copy=copy)
    assert np.shares_memory(found, source) == shares
    assert found.flags.c_contiguous
    assert np.array_equal(found, source.ravel())


@pytest.mark.parametrize("rounded", [ops.np.round, round_of_numpy_2_0], ids=["operator", "of NumPy 2.0"])
@pytest.mark.parametrize("dtype", [int, float])
def test_round_makes_a_new_array(rounded, dtype):
    source = np.arange(3, dtype=dtype)
    assert not np.shares_memory(rounded(source), source)
    assert np.array_equal(rounded(source), source)
