"""The benchmarks measure what they say: calls are right, bounds are those agreed, rows and JSON tell all.

Nothing here depends on time: where time matters it is that of a clock which only the measured calls move on.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os

import numpy as np
import pytest

from pydispatch import Tensor, _core, bench, ops, registry, timing
from pydispatch.bench import Absolute, Added, Case, Effort, Ratio, Row
from pydispatch.library import Library
from pydispatch.peers import NAMESPACE, PEERS, kernel

BOUNDS = {
    "two raw arrays": 2.5, "two Tensors": 3.5, "both by keyword": 2, "one by keyword": 2,
    "one of 4 by position": 1.5, "one of 4 by keyword": 1.5, "one of 4 keyword-only": 1.5,
    "raw arrays": 1.15, "Tensors": 1.2, "Tensors, as X + Y": 1.2,
    "ovld": 2.5, "__array_function__": 5, "functools.singledispatch": 5, "uarray": 5, "plum": 5,
    "multipledispatch": 5, "torch.library": 20,
    "import pydispatch": 30, "Tensor, sys.getsizeof": 80, "Tensor, tracemalloc": 80,
    "first call of an operator": 100, "register 1,000 operators": 0.5,
}
ALWAYS_INSTALLED = ("__array_function__", "functools.singledispatch")


@pytest.fixture
def library():
    with Library(NAMESPACE, "FRAGMENT") as library:
        yield library


@pytest.fixture
def work(monkeypatch):
    """A call that takes as many microseconds as it is told, on a clock that nothing else moves on."""
    now = [0.0]

    def work(microseconds):
        now[0] += microseconds * 1e-6

    monkeypatch.setattr(timing, "clock", lambda: now[0])
    return work


def raw(value):
    return value.array if isinstance(value, Tensor) else value


# --- the cases -------------------------------------------------------------------------------------------


def test_bounds_are_those_agreed(library):
    left_out = {}
    found = {case.name: case.bound for case in bench.cases(library, left_out)}
    assert found == {name: bound for name, bound in BOUNDS.items() if name not in left_out}
    assert left_out.keys() <= PEERS.keys() - set(ALWAYS_INSTALLED)


@pytest.mark.parametrize("row", bench.FLOOR_ROWS, ids=lambda row: row[0])
def test_a_call_over_the_floor_returns_its_argument(library, row):
    case = next(case for case in bench.floor_cases(library) if case.name == row[0])
    expected = case.names["x" if "four" in case.call or "named" in case.call else "y"]
    result = eval(case.call, case.names)
    assert raw(result) is expected
    assert isinstance(result, Tensor) == ("X" in case.call)
    assert eval(case.over, case.names) is expected


def test_the_floor_is_the_kernel_itself(library):
    names = bench.floor_cases(library)[0].names
    assert names["kernel"] is _core.second_argument
    assert names["op"].explain(names["x"], names["y"]).kernel.function is _core.second_argument


@pytest.mark.parametrize(("call", "expected"), [
    ("four(x, 5)", (5, 0, 0, 0)), ("four(x, c=5)", (0, 0, 5, 0)), ("named(x, c=5)", (0, 0, 5, 0)),
])
def test_one_argument_of_four_reaches_the_kernel(library, monkeypatch, call, expected):
    received = []

    def spy(x, a=0, b=0, c=0, d=0):
        received.append((a, b, c, d))
        return x

    monkeypatch.setattr(bench._core, "first_of_five", spy)
    eval(call, bench.floor_cases(library)[0].names)
    assert received == [expected]


@pytest.mark.parametrize("row", bench.ADD_ROWS, ids=lambda row: row[0])
def test_a_sum_is_a_sum(row):
    case = next(case for case in bench.add_cases() if case.name == row[0])
    result = eval(case.call, case.names)
    assert isinstance(result, Tensor) == ("X" in case.call)
    np.testing.assert_array_equal(raw(result), eval(case.over, case.names))
    assert case.names["op"] is ops.np.add
    assert case.names["x"].shape == case.names["y"].shape == (4,)


def test_peers_and_we_call_the_same_kernel(library):
    left_out = {}
    cases = list(bench.peer_cases(library, left_out))
    assert [case.name for case in cases] == [name for name in PEERS if name not in left_out]
    for case in cases:
        direct, ours, theirs = (eval(call, case.names) for call in case.calls)
        assert direct is ours is case.names["x"], case.name
        assert theirs is case.names["a"], case.name
        assert case.names["kernel"] is kernel
        assert case.names["op"].explain(case.names["x"], case.names["y"]).kernel.function is kernel


def test_a_peer_that_is_not_installed_is_named(library, monkeypatch):
    def refuse(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(bench.importlib, "import_module", refuse)
    left_out = {}
    assert list(bench.peer_cases(library, left_out)) == []
    assert left_out == {name: f"No module named {peer.module!r}" for name, peer in PEERS.items()}


def test_a_pattern_chooses_rows_and_spares_the_import_of_other_peers(library, monkeypatch):
    imported = []
    monkeypatch.setattr(bench.importlib, "import_module", lambda name: imported.append(name) or importlib)
    names = [case.name for case in bench.cases(library, {}, "operators*TWO")]
    assert names == ["two raw arrays", "two Tensors"]
    assert imported == []


# --- measuring -------------------------------------------------------------------------------------------


def test_a_ratio_is_that_of_the_calls(work):
    row = Ratio("group", "name", 2.5, "work(30)", "work(10)", {"work": work}).measure(Effort(5, 1))
    assert (row.low, row.value, row.high) == pytest.approx((3, 3, 3))
    assert row.times == pytest.approx({"work(30)": 30_000, "work(10)": 10_000})
    assert (row.unit, row.at_least, row.ok) == ("×", False, False)


def test_what_a_peer_adds_is_compared_with_what_we_add(work):
    names = {
        "kernel": lambda x, y: work(10), "op": lambda x, y: work(12), "peer": lambda a, b: work(18),
        "x": 0, "y": 0, "a": 0, "b": 0,
    }
    row = Added("group", "name", 3, names).measure(Effort(5, 1))
    assert row.value == pytest.approx(4)
    assert row.times == pytest.approx({"kernel(x, y)": 10_000, "op(x, y)": 12_000, "peer(a, b)": 18_000})
    assert (row.at_least, row.ok) == (True, True)


def test_an_absolute_value_is_the_median_of_the_repetitions():
    row = Absolute("group", "name", 3, "ms", lambda n: [2.0] * n + [100.0, 1.0]).measure(Effort(1, 3))
    assert (row.value, row.unit, row.times) == (2, "ms", {})


def test_rounds_that_were_disturbed_do_not_count():
    row = Case("group", "name", 1).row([2.0] * 8 + [50.0, 0.1], {})
    assert row.value == 2
    assert row.low <= row.value <= row.high


@pytest.mark.parametrize(("value", "at_most", "at_least"), [(1, True, False), (2, True, True), (3, False, True)])
def test_a_bound_is_a_bound(value, at_most, at_least):
    assert Row("", "", value, value, value, "×", 2, at_least=False).ok == at_most
    assert Row("", "", value, value, value, "×", 2, at_least=True).ok == at_least


# --- sizes and one-off costs -----------------------------------------------------------------------------


def test_a_tensor_keeps_within_its_bytes():
    (size,), (traced,) = bench.size_of_tensor(1), bench.traced_size_of_tensor(1)
    assert 40 < size <= 80
    assert traced == pytest.approx(size, rel=0.01)


def test_imports_are_timed_in_pairs_with_compiled_modules(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    ran = []

    def process_time(code, variables):
        assert os.path.isdir(variables["PYTHONPYCACHEPREFIX"])
        assert "PYTHONDONTWRITEBYTECODE" not in variables
        ran.append(code)
        return 0.25 if "pydispatch" in code else 0.125

    monkeypatch.setattr(bench, "process_time", process_time)
    assert bench.import_times(3) == [125, 125, 125]
    assert ran == ["import numpy, pydispatch"] + ["import numpy, pydispatch", "import numpy"] * 3


def test_the_time_of_a_process_is_that_of_its_processor():
    idle = bench.process_time("import time; time.sleep(0.4)", dict(os.environ))
    assert 0 < idle < 0.4
    assert bench.process_time("import time\nwhile time.process_time() < 0.4: pass", dict(os.environ)) >= 0.4


def test_first_calls_are_those_of_new_operators(monkeypatch):
    tables = []

    class Watched(Library):
        def impl(self, name, fn=None, key=None, **options):
            handle = super().impl(name, fn, key, **options)
            tables.append(handle.operator.live_table)
            return handle

    monkeypatch.setattr(bench, "Library", Watched)
    assert all(time > 0 for time in bench.first_call_times(1))
    assert tables == [None] * 40


def test_what_is_registered_for_timing_is_a_thousand_operators_with_five_kernels(monkeypatch):
    counted = []

    class Counting(Library):
        def close(self):
            counted.append((len({handle.operator for handle in self.handles}), len(self.handles)))
            super().close()

    monkeypatch.setattr(bench, "Library", Counting)
    assert len(bench.registration_times(6)) == 2
    assert counted == [(1000, 6000)] * 2


# --- the report ------------------------------------------------------------------------------------------


def test_rows_come_one_by_one_and_leave_nothing_behind():
    rows = list(bench.measure(Effort(3, 1), "two raw", left_out := {}))
    assert [row.name for row in rows] == ["two raw arrays"]
    assert rows[0].value > 1
    assert left_out == {}
    assert not any(name.startswith(NAMESPACE) for name in registry.operators)


def test_the_report_is_json_with_everything_in_it():
    row = Row("group", "name", 1.5, 1.25, 1.75, "×", 2.0, at_least=False, times={"f(x)": 3.0, "g(x)": 2.0})
    report = bench.report([row], {"plum": "No module named 'plum'"}, Effort(5, 1))
    assert json.loads(json.dumps(report)) == report
    assert report["rows"] == [{
        "group": "group", "name": "name", "value": 1.5, "low": 1.25, "high": 1.75, "unit": "×", "bound": 2.0,
        "at_least": False, "times": {"f(x)": 3.0, "g(x)": 2.0}, "ok": True,
    }]
    assert report["left_out"] == {"plum": "No module named 'plum'"}
    assert report["effort"] == {"rounds": 5, "repetitions": 1}
    assert datetime.date.fromisoformat(report["date"])
    assert all(report[name] for name in ("pydispatch", "python", "numpy", "processor", "platform"))
