"""The calls that NumPy's own tests make: a fixed budget of them replayed on Tensors, compiled, batched, differentiated.

What may differ is in `KNOWN`, and on the page docs/numpy.md with its reason.
"""

import pickle
import signal
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

import pydispatch.numpy as face
from pydispatch import Tensor
from tests.numpy import recorded_calls

BUDGET = 4000

KNOWN = {
    "array": "lists of Tensors and other objects do not become arrays of objects, and structures do not take Tensors",
    "asarray": "the same",
    "partition value": "all elements are sorted",
    "argpartition value": "all elements are sorted",
    "pad value": "mode='empty' is filled with zeros",
    "add value": "elements that where= leaves out are undefined",
    "linalg.lstsq value": "from the pseudo-inverse, whose rounding is another",
    "isin passes": "kind='table' makes no table, which could be too large",
    "isin raises": "of objects that have no order",
    "linalg.qr raises": "the modes 'full' and 'f', which NumPy deprecates",
    "quantile type": "of fractions, which are computed as floats",
    "quantile passes": "weights that overflow",
    "percentile warnings": "nan of float16",
    "dot warnings": "inf - inf does not warn",
    "maximum warnings": "`out` by position",
    "minimum warnings": "`out` by position",
    "row_stack warnings": "the old name",
    "fft.": "axes=None with s=, which NumPy deprecates",
    "add raises": "sig=, the old name of signature=",
    "divmod raises": "out=...",
    "einsum raises": "`out` of another dtype, with a path",
    "histogram passes": "more bins than there are numbers between the edges",
    "histogramdd raises": "another class of error",
    "reshape passes": "truth values as extents",
    "subtract dtype": "classes of dtypes as dtype=",
    "take passes": "an array as the axis",
    "unpackbits raises": "another class of error",
    "matmul raises": "of objects with an `__array_ufunc__` of their own",
    "count_nonzero raises": "of bytes without a type",
    "count_nonzero value": "of bytes without a type",
    "apply_along_axis raises": "functions that look into objects",
    "kron value": "of masked arrays",
    "broadcast_to value": "of objects, which have another address",
    "concatenate value": "of objects, which have another address",
    "add.at raises": "another class of error",
    "nanargmin passes": "rows of nan alone, unknown in traces and batches",
    "nanargmax passes": "rows of nan alone, unknown in traces and batches",
    "poly dtype": "real results of conjugate roots, unknown in traces and batches",
    "ravel_multi_index passes": "indices that are out of range, unknown in traces and batches",
    "searchsorted passes": "a sorter that is out of range, unknown in traces and batches",
    "percentile raises": "nan as q, unknown in traces and batches",
    "cov passes": "fractions as fweights, unknown in traces and batches",
    "place raises": "no values for a mask that selects nothing, unknown in traces and batches",
    "linalg.eig dtype": "real eigenvalues, unknown in traces and batches",
    "linalg.eigvals dtype": "real eigenvalues, unknown in traces and batches",
    "linalg.lstsq shape": "no residuals of matrices without full rank, unknown in traces and batches",
    **{f"linalg.{name} slopes": "of functions that read one triangle the derivative is symmetric"
       for name in ("cholesky", "eigh", "eigvalsh", "pinv")},
    "negative.at raises": "of objects with an `__array_ufunc__` of their own",
    "nanvar warnings": "an imaginary part that is 0 is discarded",
    "nanstd warnings": "an imaginary part that is 0 is discarded",
}
"""Why calls differ, by the function and the first word of the kind of difference, or by the function alone."""


def is_known(call: recorded_calls.Call, kind: str) -> bool:
    name = call.name
    return kind == "refused" or any(
        key in KNOWN for key in (name, f"{name} {kind.split()[0]}")) or (name.startswith("fft.") and "warnings" in kind)


MARKERS = ("leaks_references", "slow_pypy", "thread_unsafe", "valgrind_error")
"""Markers in NumPy's tests. Unpickling a function that such a test defines imports its module."""


@pytest.mark.slow
def test_calls_of_numpys_tests(tmp_path, request):
    for marker in MARKERS:
        request.config.addinivalue_line("markers", f"{marker}: of NumPy's own tests")
    calls = recorded_calls.spread_out(recorded_calls.record(tmp_path / "calls", ("lib", "linalg", "fft")))
    assert len(calls) > BUDGET
    different = [f"{way}: {call}: {kind}" for way, call, kind, _, _ in recorded_calls.replay(calls[:BUDGET])
                 if not is_known(call, kind)]
    assert not different


def test_recorder_writes_calls_down(monkeypatch):
    monkeypatch.setattr(recorded_calls.Recorder, "calls", {})
    monkeypatch.setattr(recorded_calls.Recorder, "alike", Counter())
    x = np.arange(3.0)
    assert recorded_calls.Recorder("apply_along_axis", np.apply_along_axis)(lambda row: row.sum(), 0, x) == 3
    assert recorded_calls.Recorder("add", np.add).reduce(x, dtype="f4") == 3
    x[:] = 0        # after the call, whose arguments have been written down
    along, total = map(recorded_calls.Call, recorded_calls.Recorder.calls)
    assert (along.name, total.name, total.kwargs) == ("apply_along_axis", "add.reduce", {"dtype": "f4"})
    assert recorded_calls.by_numpy(along)[0] == recorded_calls.by_numpy(total)[0] == 3


def test_judge_tells_of_differences():
    call = recorded_calls.Call(pickle.dumps(("sum", (np.ones(3, "f4"),), {})))
    ones = recorded_calls.by_numpy(call)
    assert recorded_calls.differences(ones, recorded_calls.on_tensors(call)) is None
    for other, kind in ((np.float64(3), "dtype float64 for float32"), (np.float32(4), "value"),
                        (np.ones(1, "f4"), "shape"), ([np.float32(3)] * 2, "shape")):
        assert recorded_calls.differences(ones, (other, *ones[1:])) == kind
    assert recorded_calls.differences(ones, (None, ValueError(), *ones[2:])) == "raises ValueError"
    assert recorded_calls.differences((None, ValueError(), *ones[2:]), ones) == "passes where NumPy raises ValueError"
    assert recorded_calls.differences(ones, (*ones[:3], [np.zeros(3, "f4")])) == "arguments"
    assert recorded_calls.differences(ones, (*ones[:2], frozenset(["RuntimeWarning"]), ones[3])).startswith("warnings")


F4 = np.array([15, 20, 35, 40, 50], "f4")
I1, MASK = np.array([1, 2, 3, 2], "i1"), np.array([True, False, True, False])
SQUARE = np.array([[0.0, 1.0], [2.0, 3.0]])
EXAMPLES = [
    ("quantile", (F4, 0.4), {"method": "inverted_cdf"}),
    *[(name, (F4, np.array(q, "f4")), {"method": method}) for name, q in (("quantile", 0.4), ("nanpercentile", 40))
      for method in ("inverted_cdf", "closest_observation", "linear", "weibull", "averaged_inverted_cdf")],
    ("quantile", (F4.astype("f2"), 0.3), {}), ("quantile", (I1, 1), {}), ("nanquantile", (F4, [0.2, 0.4]), {}),
    *[(name, args, {"order": order}) for name, args in (("ravel", (SQUARE,)), ("reshape", (SQUARE, (4,))))
      for order in ("C", "f", "a", "nonsense", 3)],
    ("ravel", (np.asfortranarray(SQUARE),), {"order": "K"}), ("reshape", (SQUARE, 4), {"order": "K"}),
    ("ravel_multi_index", (np.array([[0, 1], [1, 0]]), (2, 2)), {"order": "f"}),
    ("ravel_multi_index", (np.array([[0, 1], [1, 0]]), (2, 2)), {"order": "A"}),
    *[("concatenate", ((SQUARE, SQUARE),), {"out": np.zeros((4, 2), dtype)}) for dtype in ("i1", "f4", "D")],
    *[("einsum", ("ij->i", SQUARE), {"out": np.zeros(2, dtype)}) for dtype in ("i1", "f4", "D")],
    *[(name, (I1, *args), {}) for name, args in (
        ("put", ([0], 300)), ("putmask", (MASK, 300)), ("place", (MASK, [300])), ("insert", (1, 300)),
        ("piecewise", ([MASK], [float("nan")])), ("copyto", (0.1,)), ("pad", (1, "constant")))],
    ("fill_diagonal", (np.zeros((2, 2), "i1"), 300), {}), ("put_along_axis", (I1, np.array([0]), 300, 0), {}),
    ("isclose", (np.array(0.1, "f4"), 0.1), {"rtol": 0, "atol": 0}), ("choose", ([0, 1, 0, 1], [I1, 1]), {}),
    *[("linalg.norm", (np.array([[100, 100], [29, 1]], "i1"), order), {}) for order in (1, -1, np.inf, -np.inf)],
    ("logspace", (1, 2, 5), {"base": np.array([2.0, 3.0])}), ("logspace", (1, 2, 5), {"base": np.ones(2), "axis": 1}),
    *[("vecdot", (np.ones((3, 2)), np.ones((3, 2))), {"axes": axes, "keepdims": keepdims})
      for axes in ([0, 0, 0], [0, 0], [0, 0, ()], [-1]) for keepdims in (False, True)],
    ("vecdot", (np.ones((3, 2)), np.ones((3, 2))), {"axis": 0, "keepdims": True}),
    *[("linalg.cond", (matrices, p), {}) for p in (None, 1, "fro", -np.inf)
      for matrices in (np.zeros((2, 2)), np.stack([np.ones((2, 2)), SQUARE]))],
    ("linalg.cond", (SQUARE * 1e-200, 1), {}),
    *[("insert", (F4, obj, 1), {}) for obj in ([1.0], [1.0, 2.0], 1.0, F4[:0], [], np.array([1, 2]), F4 > 18)],
    ("quantile", (MASK, np.array([True, False])), {}), ("quantile", (F4, np.array([1, 0])), {}),
    ("unique", (np.array([np.nan, 0, np.nan]),), {"axis": 0}),
    ("histogram", (np.array([1.0, np.inf]),), {}), ("histogram", (SQUARE,), {"range": (np.nan, 1)}),
    ("cov", (SQUARE,), {"aweights": np.array([-1.0, 1.0])}), ("cov", (SQUARE,), {"fweights": np.array([0.5, 1.0])}),
    ("searchsorted", (I1, 2), {"sorter": np.array([0])}), ("searchsorted", (I1, 2), {"side": "nonsense"}),
    ("pad", (I1, 1, "mean"), {"stat_length": -1}), ("pad", (I1, 1.5), {}), ("pad", (I1[:0], 1, "edge"), {}),
    ("tensordot", (SQUARE, SQUARE), {"axes": ([0, 0], [0, 1])}), ("tensordot", (SQUARE, SQUARE), {"axes": 3}),
    ("isin", (SQUARE, SQUARE), {"kind": "table"}), ("isin", (I1, I1), {"kind": "nonsense"}),
    ("partition", (I1, 1), {"kind": "nonsense"}), ("nanvar", (SQUARE,), {"ddof": 1, "correction": 1}),
    ("linalg.matrix_power", (SQUARE, 1.5), {}), ("array_equal", (np.array("text"), I1), {}),
    ("piecewise", (np.array(3), np.False_, [4, 0]), {}), ("trim_zeros", (I1, "x"), {}),
    ("clip", (I1, 2), {}), ("clip", (I1,), {"a_max": 2}), ("clip", (I1, None, 2), {}),
    ("convolve", (F4, F4, "f"), {}), ("convolve", (F4, F4, None), {}), ("correlate", (F4, F4, 1), {}),
    ("dot", (SQUARE, SQUARE), {"out": np.zeros((2, 2), order="F")}), ("geomspace", (np.array([0.0, 1.0]), 2), {}),
]
UNKNOWN_IN_BATCHES = ("cov", "histogram", "piecewise", "geomspace", "unique", "searchsorted", "dot", "array_equal")
"""Functions that decide by values, which are unknown under vmap and in traces, as memory layouts are."""


def example_calls() -> Iterator[recorded_calls.Call]:
    for name, args, options in EXAMPLES:
        yield recorded_calls.Call(pickle.dumps((name, args, options)))


@pytest.mark.parametrize("way", recorded_calls.WAYS)
def test_examples(way):
    old = signal.signal(signal.SIGALRM, recorded_calls.stop)
    different = []
    for call in example_calls():
        decides = call.name in UNKNOWN_IN_BATCHES or call.kwargs.get("order") == "K"
        if way in ("compiled", "vmap") and decides:
            continue
        expected = recorded_calls.by_numpy(call)
        run = recorded_calls.WAYS[way]
        kind = recorded_calls.differences(expected, run(call, expected) if way == "vmap" else run(call), way)
        if kind is not None and kind != "refused":
            different.append(f"{call}: {kind}")
    signal.signal(signal.SIGALRM, old)
    assert not different


def test_slopes_of_examples():
    assert not [(call, kind) for call in example_calls() if recorded_calls.by_numpy(call)[1] is None
                for kind in [recorded_calls.slopes_differ(call)] if kind]


def test_gradient_goes_to_the_element_that_is_the_quantile():
    x = Tensor(F4.copy(), requires_grad=True)
    face.quantile(x, 0.4, method="inverted_cdf").backward()
    assert x.grad.tolist() == [0, 1, 0, 0, 0]
