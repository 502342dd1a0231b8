"""Calls that NumPy refuses: the functions refuse them on Tensors with an error of the same class."""

import operator
import warnings

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor
from pydispatch.numpy import fft, linalg  # noqa: F401  they are loaded on first use
from pydispatch.tree import tree_map

V, M, C = np.arange(3.0), np.arange(6.0).reshape(2, 3), np.ones((2, 2, 2))
BAD = [
    ("sum", (V, 3), {}), ("sum", (V,), {"nothing": 1}), ("mean", (M, (0, 0)), {}), ("max", (np.zeros(0),), {}),
    ("concatenate", ([V, M],), {}), ("concatenate", ([],), {}), ("stack", ([V, np.ones(2)],), {}),
    ("reshape", (V, (2, 2)), {}), ("transpose", (M, (0, 0)), {}), ("squeeze", (M, 0), {}), ("split", (V, 2), {}),
    ("vsplit", (V, 1), {}), ("tile", (), {}), ("repeat", (V, [1, 2]), {}), ("roll", (M, 1, 5), {}),
    ("pad", (V, 1, "nowhere"), {}), ("pad", (V, -1), {}), ("insert", (V, 9, 1.0), {}), ("delete", (V, 9), {}),
    ("append", (M, V, 0), {}), ("moveaxis", (M, 0, 7), {}), ("broadcast_to", (V, (2,)), {}), ("take", (V, 9), {}),
    ("take_along_axis", (V, M.astype(int), 0), {}), ("where", (V > 0, V), {}), ("choose", (np.array([7]), [V]), {}),
    ("select", ([V > 0], [V, V]), {}), ("select", ([V], [V]), {}), ("piecewise", (V, [V > 0], [1, 2, 3]), {}),
    # NumPy 2.0 only warns of the next
    ("compress", (M > 0, M, 0), {}), *[("nonzero", (np.array(3.0),), {})] * (not np.__version__.startswith("2.0.")),
    ("digitize", (V, np.array([0.0, 2.0, 1.0])), {}),
    ("partition", (V, 9), {}), ("searchsorted", (M, V), {}), ("searchsorted", (V, V, "middle"), {}),
    ("quantile", (V, 1.5), {}), ("quantile", (V, 0.5), {"method": "guess"}), ("percentile", (V, -1), {}),
    ("quantile", (V + 1j, 0.5), {}), ("quantile", (V, 0.5), {"weights": -V, "method": "inverted_cdf"}),
    ("nanquantile", (V, 0.5, 0), {"method": "x"}),
    ("lexsort", ((V, np.ones(2)),), {}), ("choose", (V, [V] * 3), {}),
    ("concatenate", ([V, V],), {"out": np.ones(6), "dtype": float}), ("pad", (V, 1, "edge"), {"constant_values": 1}),
    ("average", (M,), {"weights": V}), ("average", (V,), {"weights": np.zeros(3)}),
    ("average", (M, 0), {"weights": V}), ("cov", (C,), {}), ("cov", (M,), {"ddof": 0.5}),
    ("bincount", (M.astype(int),), {}), ("bincount", (V,), {}), ("bincount", (np.array([-1]),), {}),
    ("bincount", (np.array([2, -1]),), {"minlength": 3}),
    ("bincount", (np.array([1]),), {"minlength": -1}), ("histogram", (V, 0), {}), ("histogram", (V, [2.0, 1.0]), {}),
    ("histogram", (V, 2), {"range": (2, 1)}), ("histogram", (V, 2), {"weights": np.ones(2)}),
    ("histogram2d", (V, np.ones(2)), {}), ("cumulative_sum", (M,), {}), ("nanargmin", (np.array([np.nan]),), {}),
    ("diff", (np.array(1.0),), {}), ("diff", (V, -1), {}), ("gradient", (V, 1.0, 2.0), {}),
    ("gradient", (np.ones(1),), {}), ("gradient", (V,), {"edge_order": 3}), ("interp", (V, V, np.ones(2)), {}),
    ("interp", (V, V, V), {"period": 0}), ("convolve", (V, np.zeros(0)), {}), ("convolve", (M, V), {}),
    ("convolve", (V, V, "other"), {}), ("correlate", (np.array(1.0), V), {}), ("trapezoid", (V, np.ones(5)), {}),
    ("polyval", (np.array(1.0), V), {}), ("polyder", (V, -1), {}), ("polyint", (V, 2), {"k": [1.0, 2.0, 3.0][:0]}),
    ("polyfit", (V, V, -1), {}), ("polyfit", (M, V, 1), {}), ("polyfit", (V, np.ones(2), 1), {}), ("poly", (C,), {}),
    ("roots", (M,), {}), ("einsum", ("ij,jk", M, M), {}), ("einsum", ("i", M), {}), ("dot", (M, M), {}),
    ("tensordot", (M, M, 1), {}), ("cross", (np.ones(4), V), {}), ("vecdot", (V, np.ones(2)), {}), ("kron", (), {}),
    ("trace", (V,), {}), ("diagonal", (M,), {"axis1": 0, "axis2": 0}), ("diag", (C,), {}), ("vander", (M,), {}),
    ("ix_", (M,), {}), ("meshgrid", (V, V), {"indexing": "up"}), ("unravel_index", (np.array([9]), (2, 3)), {}),
    ("ravel_multi_index", ((np.array([3]), np.array([0])), (2, 3)), {}), ("packbits", (V,), {}),
    ("unpackbits", (np.ones(2, int),), {}), ("add", (V, np.ones(2)), {}), ("add", (V,), {}),
    ("linalg.inv", (M,), {}), ("linalg.inv", (np.zeros((2, 2)),), {}), ("linalg.inv", (V,), {}),
    ("linalg.solve", (np.eye(2), V), {}), ("linalg.solve", (np.zeros((2, 2)), np.ones(2)), {}),
    ("linalg.cholesky", (-np.eye(2),), {}), ("linalg.cholesky", (M,), {}), ("linalg.eigh", (M,), {}),
    ("linalg.eigh", (np.eye(2), "X"), {}), ("linalg.eig", (np.array([[np.nan, 1], [1, 1]]),), {}),
    ("linalg.svd", (V,), {}), ("linalg.qr", (M, "other"), {}), ("linalg.det", (M,), {}), ("linalg.slogdet", (V,), {}),
    ("linalg.matrix_power", (M, 2), {}), ("linalg.multi_dot", ([M],), {}), ("linalg.multi_dot", ([M, C, M],), {}),
    ("linalg.norm", (M, "what"), {}), ("linalg.norm", (C, None, (0, 1, 2)), {}), ("linalg.norm", (V, "fro"), {}),
    ("linalg.norm", (M, 3, (0, 1)), {}), ("linalg.norm", (M, None, (0, 0)), {}), ("linalg.norm", (V, 2, 1.5), {}),
    ("linalg.lstsq", (V, V), {}), ("linalg.lstsq", (M, V), {}), ("linalg.pinv", (V,), {}),
    ("linalg.cond", (np.zeros((0, 2)),), {}), ("linalg.cond", (M, 1), {}), ("linalg.tensorinv", (C, 0), {}),
    ("linalg.tensorsolve", (C, V), {}), ("linalg.outer", (M, V), {}), ("linalg.cross", (np.ones(2), np.ones(2)), {}),
    ("linalg.matrix_transpose", (V,), {}), ("linalg.matrix_rank", (M,), {"tol": 1, "rtol": 1}),
    ("fft.fft", (V, 0), {}), ("fft.fft", (V, 3, 2), {}), ("fft.fft", (V,), {"norm": "loud"}),
    ("fft.hfft", (V,), {"norm": "loud"}), ("fft.rfft", (V + 1j,), {}), ("fft.fftn", (M, (2, 3), (0,)), {}),
    ("fft.fft", (np.array(1.0),), {}), ("fft.fftshift", (M, 4), {}),
]
BLOCKS = [[V, []], [[V], []], [[V, []], [V]], [[V], V], [V, [V]], [[], V], [[[V]], [[V], V]], (V,), [[V], (V,)]]


@pytest.mark.parametrize("blocks", BLOCKS, ids=range(len(BLOCKS)))
def test_blocks_are_refused_in_numpys_words(blocks):
    with pytest.raises((ValueError, TypeError)) as expected:
        np.block(blocks)
    with pytest.raises(expected.type) as found:
        pnp.block(tree_map(Tensor, blocks))
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(("name", "args", "kwargs"), [
    pytest.param(*call, id=f"{i}-{call[0]}") for i, call in enumerate(BAD) if hasattr(np, call[0].partition(".")[0])])
def test_what_numpy_refuses_is_refused_with_the_same_class(name, args, kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as expected:  # noqa: PT011  the class is what this is about
            operator.attrgetter(name)(np)(*args, **kwargs)
        tensors = tree_map(lambda leaf: Tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, (args, kwargs))
        with pytest.raises(expected.type.__mro__[-3] if expected.type is np.exceptions.AxisError else expected.type):
            operator.attrgetter(name)(pnp)(*tensors[0], **tensors[1])
