"""Calls over the floor and over NumPy, and what other dispatchers add: the calls are what the rows say."""

import numpy as np
import pytest

from benchmarks.cases import dispatch, kinds
from benchmarks.cases.peers import PEERS, kernel
from pydispatch import Tensor, _core, ops
from tests.comparing import raw


@pytest.mark.parametrize("row", dispatch.FLOOR_ROWS, ids=lambda row: row[0])
def test_a_call_over_the_floor_returns_its_argument(library, row):
    case = next(case for case in dispatch.floor_cases(library) if case.name == row[0])
    expected = case.names["x" if "four" in case.call or "named" in case.call else "y"]
    result = eval(case.call, case.names)
    assert raw(result) is expected
    assert isinstance(result, Tensor) == ("X" in case.call)
    assert eval(case.over, case.names) is expected


def test_the_floor_is_the_kernel_itself(library):
    names = dispatch.floor_cases(library)[0].names
    assert names["kernel"] is _core.second_argument
    assert names["op"].explain(names["x"], names["y"]).kernel.function is _core.second_argument


@pytest.mark.parametrize(("call", "expected"), [
    ("four(x, 5)", (5, 0, 0, 0)), ("four(x, c=5)", (0, 0, 5, 0)), ("named(x, c=5)", (0, 0, 5, 0))])
def test_one_argument_of_four_reaches_the_kernel(library, monkeypatch, call, expected):
    received = []

    def spy(x, a=0, b=0, c=0, d=0):
        received.append((a, b, c, d))
        return x

    monkeypatch.setattr(dispatch._core, "first_of_five", spy)
    eval(call, dispatch.floor_cases(library)[0].names)
    assert received == [expected]


@pytest.mark.parametrize("row", dispatch.BACKEND_ROWS, ids=lambda row: row[0])
def test_a_call_on_masked_arrays_returns_its_argument(library, row):
    case = next(case for case in dispatch.backend_cases(library) if case.name == row[0])
    for call, name, key in ((case.call, "a", "Masked"), (case.over, "x", "CPU")):
        result = eval(call, case.names)
        assert raw(result) is case.names[name]
        assert isinstance(result, Tensor) == ("X" in case.over)
        found = case.names["op"].explain(*[case.names[name]] * 2)
        assert (found.key.name, found.kernel.function) == (key, kernel)


@pytest.mark.parametrize("row", dispatch.ADD_ROWS, ids=lambda row: row[0])
def test_a_sum_is_a_sum(row):
    case = next(case for case in dispatch.add_cases() if case.name == row[0])
    result = eval(case.call, case.names)
    assert isinstance(result, Tensor) == ("X" in case.call)
    np.testing.assert_array_equal(raw(result), eval(case.over, case.names))
    assert case.names["op"] is ops.np.add
    assert case.names["x"].shape == case.names["y"].shape == (4,)


def test_peers_and_we_call_the_same_kernel(library):
    left_out = {}
    found = list(dispatch.peer_cases(library, left_out))
    assert [case.name for case in found] == [name for name in PEERS if name not in left_out]
    for case in found:
        direct, ours, theirs = (eval(call, case.names) for call in case.calls)
        assert direct is ours is case.names["x"], case.name
        assert theirs is case.names["a"], case.name
        assert case.names["kernel"] is kernel
        assert case.names["op"].explain(case.names["x"], case.names["y"]).kernel.function is kernel


def test_a_peer_that_is_not_installed_is_named(library, monkeypatch):
    def refuse(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(kinds.importlib, "import_module", refuse)
    left_out = {}
    assert list(dispatch.peer_cases(library, left_out)) == []
    assert left_out == {name: f"No module named {peer.module!r}" for name, peer in PEERS.items()}
