"""Kernels that come from the namespace of a backend, from decompositions, and from the backend's pack."""

import numpy as np
import pytest

from pydispatch import ops
from pydispatch._registry.tables import table_entry
from pydispatch.exceptions import NoKernelError, UnsupportedArgumentError
from pydispatch.library import impl
from tests.backends.lone import CALLS, LONE, LoneArray

X = np.array([[1.0, 4.0, 2.0], [3.0, 0.5, 6.0]])
SQUARE = np.array([[2.0, 1.0], [1.0, 3.0]])
I = np.array([[1, 0, 1]])  # noqa: E741

FOUND = {
    "NumPy's name": ("negative", (X,), {}, "negative"),
    "name of the Array API": ("power", (X, 2.0), {}, "pow"),
    "name in a family": ("linalg_inv", (SQUARE,), {}, "linalg.inv"),
    "everything at its default": ("sum", (X,), {}, "sum"),
    "argument by keyword only": ("sum", (X, 0), {}, "sum"),
    "arguments of another order": ("sum", (X, (0, 1), np.float32), {"keepdims": True}, "sum"),
    "list of arrays": ("concatenate", ((X, X), 1), {}, "concat"),
    "one number for a tuple": ("expand_dims", (X, (1,)), {}, "expand_dims"),
    "default that the function requires": ("transpose", (X,), {}, "permute_dims"),
    "default of another value": ("take_along_axis", (X, I), {"axis": 0}, "take_along_axis"),
    "without a device": ("zeros", (3,), {"device": "Lone"}, "zeros"),
    "indexing": ("getitem", (X, (0, slice(1, None))), {}, None),
    "decomposition": ("mean", (X, 0), {}, "sum"),
    "decomposition of decompositions": ("std", (X,), {}, "sum"),
    "what a derivative is taken of": ("sort", (X,), {}, "argsort"),
    "kernel of the pack": ("cumsum", (X, 1), {}, "cumsum"),
}


def lone(value):
    if isinstance(value, tuple):
        return tuple(map(lone, value))
    return LoneArray(value) if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize(("name", "args", "kwargs", "called"), FOUND.values(), ids=list(FOUND))
def test_a_kernel_is_found(name, args, kwargs, called):
    CALLS.clear()
    op = getattr(ops.np, name).default
    found = op(*lone(args), **kwargs)
    expected = op(*args, **{key: value for key, value in kwargs.items() if key != "device"})
    assert type(found) is LoneArray
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.hidden, expected, rtol=1e-15)
    assert called is None or CALLS[called] >= 1


LABELS = {"add": "namespace kernel", "getitem": "namespace kernel", "mean": "decomposition", "sort": "decomposition",
          "cumsum": "pack kernel"}


@pytest.mark.parametrize(("name", "label"), LABELS.items(), ids=list(LABELS))
def test_the_table_tells_where_a_kernel_comes_from(name, label):
    op = getattr(ops.np, name).default
    entry = table_entry(op, LONE)
    assert str(entry.label) == label
    assert f"[{label}]" in str(op.explain(*[LoneArray(X)] * 2 if name == "add" else [LoneArray(X), 0][:1 + (
        name == "getitem")]))


def test_a_registered_kernel_wins():
    kernel = impl("np::negative", "Lone", lambda x: LoneArray([7.0]))
    with kernel:
        assert ops.np.negative(LoneArray(X)).hidden == [7.0]
    assert np.array_equal(ops.np.negative(LoneArray(X)).hidden, -X)


UNSUPPORTED = {
    "where": ("sum", (X,), {"where": X > 1}, "initial, where"),
    "dtype of a universal function": ("add", (X, X), {"dtype": np.float32}, "dtype, casting"),
}


@pytest.mark.parametrize(("name", "args", "kwargs", "unsupported"), UNSUPPORTED.values(), ids=list(UNSUPPORTED))
def test_what_a_function_does_not_take_is_named(name, args, kwargs, unsupported):
    op = getattr(ops.np, name).default
    argument, = kwargs
    message = rf"operator np::{name}: argument '{argument}'.*for Lone.*\n.*impl"
    with pytest.raises(UnsupportedArgumentError, match=message):
        op(*lone(args), **kwargs)
    assert f"does not take {unsupported}" in str(op.explain(*lone(args)))


MISSING = {
    "no function": ("arctan2", (X, X), "lone has no arctan2 or atan2"),
    "decomposition into what is missing": ("linalg_eigvalsh", (SQUARE,), "np::linalg_eigh, which is also missing"),
    "in place, arrays that cannot be written to": ("add_", (X, X), "arrays of Lone are read-only"),
}


@pytest.mark.parametrize(("name", "args", "reason"), MISSING.values(), ids=list(MISSING))
def test_what_is_missing_is_named(name, args, reason):
    op = getattr(ops.np, name).default
    with pytest.raises(NoKernelError, match=rf"np::{name}: no kernel for the key Lone.*\n.*\n.*{reason}.*\n.*impl"):
        op(*lone(args))
