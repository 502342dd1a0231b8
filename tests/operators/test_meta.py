"""Meta rules beyond single samples: no memory however large, mixtures with arrays, masks without values."""

import tracemalloc

import numpy as np
import pytest

from pydispatch import default_backend, ops
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import DataDependentError, DispatchTypeError
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.tree import tree_leaves
from tests.operators.samples import Sample, call, functional_names, schema_of

HUGE = (1000, 10**6)
META = MetaArray(HUGE)
META_ROWS = MetaArray((10**5,), np.int64)

CALLS_BY_TAG = {
    "pointwise": lambda n: call(*[MetaArray(HUGE, np.int64)] * n),
    "reduction": lambda n: call(META, axis=1),
    "accumulation": lambda n: call(META, axis=0),
    "sorting": lambda n: call(META),
    "like": lambda n: call(META, *[1] * (n - 1)),
}
CALLS = {
    "clip": call(META, 0, META),
    "matmul": call(MetaArray((10**6, 1000)), META),
    "covariance": call(MetaArray((10**5, 10**5)), 2.0),
    "reshape": call(META, (10**9,)),
    "ravel": call(META),
    "transpose": call(META),
    "swapaxes": call(META, 0, 1),
    "moveaxis": call(META, 0, 1),
    "expand_dims": call(META, 1),
    "squeeze": call(MetaArray((1, 10**9))),
    "broadcast_to": call(META, (5, *HUGE)),
    "flip": call(META),
    "diagonal": call(META, 5),
    "sliding_window_view": call(META, (10, 10)),
    "read_only": call(META),
    "split": call(META, 10),
    "concatenate": call((META, META)),
    "stack": call((META, META)),
    "repeat": call(META, 3),
    "tile": call(META, (2, 3)),
    "roll": call(META, 5),
    "take": call(META, META_ROWS, 0),
    "take_along_axis": call(META, MetaArray((1000, 10**5), np.int64)),
    "getitem": call(META, (slice(None, None, 2), None)),
    "setitem": call(META, (slice(None), slice(5)), 1.0),
    "index": call(META, (slice(None), META_ROWS)),
    "index_put": call(META, META_ROWS, MetaArray((10**5, 10**6))),
    "scatter_add": call(META, MetaArray((1000, 10**5), np.int64), 1.0, 1),
    "argpartition": call(META, (5,)),
    "slice_sums": call(META, MetaArray((10,), int)),
    "slices_filled": call(META, MetaArray((HUGE[0],), int), 10**12),
    "interp": call(META, MetaArray((10**6,), float), MetaArray((10**6,), float)),
    "interval": call(META, MetaArray((10**6,), float)),
    "searchsorted": call(MetaArray((10**6,), float), META),
    "convolve": call(META, MetaArray((10**6,), float)),
    "einsum": call("ij,kj->ik", META, META),
    "zeros": call(HUGE, device="Meta"),
    "ones": call(HUGE, device="Meta"),
    "empty": call(HUGE, device="Meta"),
    "full": call(HUGE, 1, device="Meta"),
    "arange": call(10**9, device="Meta"),
    "linspace": call(0, META, 5),
    "eye": call(10**6, device="Meta"),
    "astype": call(META, np.float32),
    "copy": call(META),
    "detach": call(META),
    "real": call(META),
    "imag": call(META),
}


def huge_call(name: str) -> Sample:
    """Return a call of the operator on meta arrays that would take gigabytes."""
    if name in CALLS:
        return CALLS[name]
    n_arrays = sum(str(argument.type) == "Tensor" for argument in schema_of(name).arguments)
    return next(CALLS_BY_TAG[tag](n_arrays) for tag in DECLARATIONS[name].tags if tag in CALLS_BY_TAG)


@pytest.mark.parametrize("name", functional_names())
def test_nothing_of_the_size_is_allocated(name):
    args, kwargs = huge_call(name)
    tracemalloc.start()
    try:
        results = tree_leaves(getattr(ops.np, name)(*args, **kwargs))
        if VARIANTS[name].out:
            getattr(ops.np, name).out(*args, **kwargs, out=MetaArray(results[0].shape, results[0].dtype))
        if VARIANTS[name].in_place and results[0].shape == args[0].shape:
            target = MetaArray(args[0].shape, results[0].dtype)
            assert getattr(ops.np, VARIANTS[name].in_place)(target, *args[1:], **kwargs) is target
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert all(isinstance(result, MetaArray) for result in results)
    assert peak < 200_000


def test_arrays_and_scalars_mix_with_meta_arrays():
    half = MetaArray((2, 1), np.float16)
    assert repr(ops.np.add(half, 1.5)) == "MetaArray(shape=(2, 1), dtype=float16)"
    assert repr(ops.np.add(np.ones((3,), np.float32), half)) == "MetaArray(shape=(2, 3), dtype=float32)"
    assert repr(ops.np.multiply(half, np.float64(2))) == "MetaArray(shape=(2, 1), dtype=float64)"
    assert repr(ops.np.concatenate([half, np.ones((1, 1))])) == "MetaArray(shape=(3, 1), dtype=float64)"
    assert repr(ops.np.setitem(np.ones((2, 3)), slice(2), half)) == "MetaArray(shape=(2, 3), dtype=float64)"


def test_calls_without_arrays_on_meta():
    with default_backend("Meta"):
        assert repr(ops.np.zeros((2, 3))) == "MetaArray(shape=(2, 3), dtype=float64)"
        assert repr(ops.np.add(1, 2.5)) == "MetaArray(shape=(), dtype=float64)"
        assert repr(ops.np.reshape(2, (1, 1))) == "MetaArray(shape=(1, 1), dtype=int64)"
    assert repr(ops.np.zeros_like(np.ones(3), device="meta")) == "MetaArray(shape=(3,), dtype=float64)"
    assert ops.np.ones_like(MetaArray((2,), np.int8), device="cpu").tolist() == [1, 1]


@pytest.mark.parametrize("key", [
    MetaArray((3,), bool), (slice(None), MetaArray((4,), bool)), (np.array([0]), MetaArray((4,), bool))])
def test_masks_without_values_tell_no_shape(key):
    with pytest.raises(DataDependentError, match=r"index.*mask on Meta, whose data(.|\n)*where\("):
        ops.np.index(MetaArray((3, 4)), key)


def test_masks_without_values_can_be_written_through():
    target = MetaArray((3, 4))
    assert ops.np.index_put_(target, MetaArray((3,), bool), 2.0) is target
    with pytest.raises(DataDependentError, match="mask on Meta"):
        ops.np.index_put_(target, MetaArray((3,), bool), np.ones((2, 4)))


def test_what_has_data_is_not_written_to_from_what_has_none():
    meta, array = MetaArray((3,)), np.ones(3)
    with pytest.raises(DispatchTypeError, match=(
            r"^operator np::add_: argument 'x1' \(position 1\): expected a MetaArray to write into, found ndarray .*\n"
            r"call ops\.np\.add, which returns a new one\nschema: np::add_")):
        ops.np.add_(array, meta)
    with pytest.raises(DispatchTypeError, match=r"add\.out: argument 'out' .* MetaArray to write into, found ndarray"):
        ops.np.add(meta, 1, out=array)
    with pytest.raises(DispatchTypeError, match=r"setitem_: .* MetaArray to write into, found ndarray"):
        ops.np.setitem_(array, 0, MetaArray(()))
    assert array.tolist() == [1, 1, 1]


def test_errors_name_the_operator():
    with pytest.raises(ValueError, match=r"add\.out: argument out has shape \(2,\), the result .*\(3,\)\npass out="):
        ops.np.add(MetaArray((3,)), 1, out=MetaArray((2,)))
    with pytest.raises(ValueError, match=r"add_: argument out has shape \(3,\), the result has .*\(2, 3\)"):
        ops.np.add_(MetaArray((3,)), MetaArray((2, 3)))
    with pytest.raises(ValueError, match=r"max: argument a has shape \(0, 3\)"):
        ops.np.max(MetaArray((0, 3)), axis=0)
