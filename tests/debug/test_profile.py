"""Profiles, compared with counts by hand, and their views, read by the rules of other programs."""

from __future__ import annotations

import contextvars
import inspect
import io
import json
import re
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import DispatchKeySet, DispatchMode, Tensor, debug, higher_order, ops
from pydispatch.debug.profile import Profile
from pydispatch.exceptions import StateOrderError
from pydispatch.func import functionalize, grad, hessian, jacfwd, jvp, vmap
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.library import Library, custom_op
from pydispatch.testing import LoggingTensor
from tests.functions import Stateless

X = np.arange(6.0).reshape(2, 3)
LARGE = np.ones(5000)               # 40 kB: more than the core keeps of small arrays to use them again


def counts(profile: Profile) -> Counter[str]:
    return Counter(event.name for event in profile.events)


def tracked(array):
    return Tensor(array, requires_grad=True)


def backward():
    ops.np.sum(ops.np.sin(tracked(X)) * 2.0).backward()


def gradient_of_gradient():
    return grad(lambda x: grad(lambda y: y * y * y)(x))(np.array(2.0))


# What these call was counted by hand.
PROGRAMS = {
    "nothing": (lambda: X + X, {}),
    "plain arrays": (lambda: ops.np.add(ops.np.exp(X), X), {"np::exp": 1, "np::add": 1}),
    "numpy's names": (lambda: pnp.sin(X), {"np::sin": 1}),
    "Tensors": (lambda: -Tensor(X) * Tensor(X), {"np::negative": 1, "np::multiply": 1}),
    "factory": (lambda: ops.np.zeros(3), {"np::zeros": 1}),
    "view of a constant": (lambda: Tensor(X)[0] + 1, {"np::getitem": 1, "np::add": 1}),
    "written": (lambda: ops.np.add_(Tensor(X.copy()), 1.0), {"np::add_": 1}),
    "list of arrays": (lambda: ops.np.concatenate([X, X]), {"np::concatenate": 1}),
    "several results": (lambda: ops.np.linalg_qr(np.eye(2)), {"np::linalg_qr": 1}),
    "loop": (lambda: [ops.np.sin(X) for _ in range(7)], {"np::sin": 7}),
    "tape": (lambda: ops.np.sin(tracked(X)), {"np::sin": 1}),
    "backward": (backward, {
        "np::sin": 1, "np::multiply": 1, "np::sum": 1, "SumBackward": 1, "MultiplyBackward": 1, "SinBackward": 1}),
    "grad": (lambda: grad(lambda x: ops.np.sum(ops.np.sin(x)))(X), {
        "np::sin": 1, "np::sum": 1, "SumBackward": 1, "SinBackward": 1}),
    "jvp": (lambda: jvp(lambda x: ops.np.sin(x) * 2.0, (X,), (X,)), {
        "np::sin": 1, "np::multiply": 1, "SinTangent": 1, "MultiplyTangent": 1}),
    "vmap": (lambda: vmap(lambda x: ops.np.sin(x) * 2.0)(X), {"np::sin": 1, "np::multiply": 1}),
    "vmap of vmap": (lambda: vmap(vmap(ops.np.sin))(X), {"np::sin": 1}),
    "vmap of grad": (lambda: vmap(grad(lambda x: ops.np.sum(ops.np.sin(x))))(X), {
        "np::sin": 1, "np::sum": 1, "SumBackward": 1, "SinBackward": 1}),
}


@pytest.mark.parametrize(("program", "expected"), PROGRAMS.values(), ids=PROGRAMS)
def test_counts_are_those_of_a_program_counted_by_hand(program, expected):
    with debug.profile() as profile:
        program()
    outside = [event.name for event in profile.events       # formulas may call operators too
               if not (event.around >= 0 and profile.events[event.around].name.endswith(("Backward", "Tangent")))]
    assert Counter(outside) == expected


class Log(DispatchMode):
    """Lists the operators that it sees: another way to the same names."""

    def __init__(self):
        self.names = Counter()

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.names[str(func.name)] += 1
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("function", [
    lambda x: ops.np.sum(ops.np.tanh(x @ x.T)),
    lambda x: ops.np.sum(vmap(lambda row: ops.np.exp(row) / ops.np.sum(ops.np.exp(row)))(x)),
    lambda x: jvp(lambda y: ops.np.sum(ops.np.cos(y) * y), (x,), (x,))[0],
    functionalize(lambda x: ops.np.sum(ops.np.add_(ops.np.copy(x), 1.0))),
], ids=["matmul", "vmap", "jvp", "functionalize"])
def test_a_mode_sees_the_same_operators(function):
    log = Log()
    with log:
        function(Tensor(X))
    with debug.profile() as profile:
        function(Tensor(X))
    found = Counter(event.name for event in profile.events if not event.name.endswith("Tangent"))
    assert all(log.names[name] >= count for name, count in found.items())
    assert set(found) <= set(log.names)


def test_higher_orders_are_recorded():
    with debug.profile() as profile:
        hessian(lambda x: ops.np.sum(ops.np.sin(x) * x))(np.ones(2))
        assert gradient_of_gradient() == 12.0
    assert {"np::sin", "SinBackward", "MultiplyBackward"} <= set(counts(profile))


def test_a_composite_has_its_operators_inside():
    with Library("composed", "DEF") as lib:
        lib.define("twice(Tensor x) -> Tensor")
        lib.impl("twice", lambda x: ops.np.add(ops.np.sin(x), x), "CompositeImplicitAutograd")
        with debug.profile() as profile:
            ops.composed.twice(Tensor(LARGE))
    assert [(event.name, event.around) for event in profile.events] == [
        ("composed::twice", -1), ("np::sin", 0), ("np::add", 0)]
    outer, *inner = profile.events
    assert all(outer.start <= event.start <= event.stop <= outer.stop for event in inner)
    rows = {row.name: row for row in profile.rows()}
    assert rows["composed::twice"].own == (outer.stop - outer.start) - sum(e.stop - e.start for e in inner)
    assert rows["composed::twice"].total == outer.stop - outer.start
    assert (outer.allocated, rows["composed::twice"].allocated) == (2 * LARGE.nbytes, 0)


def test_what_calls_itself_takes_its_time_once():
    with Library("recursive", "DEF") as lib:
        lib.define("down(Tensor x, int n) -> Tensor")
        lib.impl("down", lambda x, n: ops.recursive.down(x, n - 1) if n else x, "CompositeImplicitAutograd")
        with debug.profile() as profile:
            ops.recursive.down(Tensor(X), 4)
    row, = profile.rows()
    first = profile.events[0]
    assert (row.calls, row.total, row.own) == (5, first.stop - first.start, first.stop - first.start)


def test_redispatch_goes_on_with_the_same_call():
    with Library("redispatched", "DEF") as lib:
        lib.define("f(Tensor x) -> Tensor")
        lib.impl("f", np.sin, "CPU")
        lib.impl("f", lambda keys, x: ops.redispatched.f.default.redispatch(
            keys & DispatchKeySet.full_after("AutogradCPU"), x), "AutogradCPU", with_keyset=True)
        with debug.profile() as profile:
            result = ops.redispatched.f(Tensor(X))
    np.testing.assert_array_equal(result.numpy(), np.sin(X))        # so it has been redispatched
    assert counts(profile) == {"redispatched::f": 1}


def test_operators_of_users_and_handlers_are_recorded():
    @custom_op("profiled::slow", mutates_args=())
    def slow(x: np.ndarray) -> np.ndarray:
        time.sleep(0.02)
        return ops.np.sin(x)

    with debug.profile() as profile:
        slow(X)
        LoggingTensor(X) + 1
    assert counts(profile)["profiled::slow"] == 1
    assert profile.events[1].around == 0
    assert next(row for row in profile.rows() if row.name == "profiled::slow").own >= 15e6
    assert profile.elapsed >= 20e6


def test_shapes_and_lines_are_those_of_the_user():
    with debug.profile() as profile:
        here = inspect.currentframe().f_lineno
        ops.np.matmul(Tensor(X), np.ones((3, 4)))
        ops.np.concatenate([X, np.ones((1, 3))])
        Tensor(X).sum()
    assert [(event.name, event.shapes) for event in profile.events] == [
        ("np::matmul", ((2, 3), (3, 4))), ("np::concatenate", ((2, 3), (1, 3))), ("np::sum", ((2, 3),))]
    assert [event.line for event in profile.events] == [f"{__file__}:{here + i}" for i in (1, 2, 3)]


def test_allocated_bytes_are_those_of_the_results():
    with debug.profile() as profile:
        y = ops.np.add(LARGE, LARGE)
        ops.np.add.out(y, LARGE, out=y)
        Tensor(y)[1:]
        del y
        ops.np.multiply(LARGE, LARGE)
    assert [event.allocated for event in profile.events] == [LARGE.nbytes, 0, 0, LARGE.nbytes]
    assert profile.memory.allocated == 2 * LARGE.nbytes
    assert profile.memory.peak == LARGE.nbytes == max(event.peak for event in profile.events)


def test_an_error_ends_the_call_that_raised_it():
    profile = debug.profile()
    with pytest.raises(ValueError, match="matmul"), profile:
        ops.np.matmul(X, X)
    with profile:       # a second block adds to the first
        ops.np.sin(X)
    assert counts(profile) == {"np::matmul": 1, "np::sin": 1}
    assert [event.around for event in profile.events] == [-1, -1]


def test_profiles_nest_and_each_sees_its_block():
    with debug.profile() as outer:
        ops.np.sin(X)
        with debug.profile() as inner:
            ops.np.cos(Tensor(X))
            with outer:         # is active already
                ops.np.exp(tracked(X))
        backward()
    assert counts(inner) == {"np::cos": 1, "np::exp": 1}
    assert counts(outer) == counts(inner) + Counter(PROGRAMS["backward"][1]) + Counter({"np::sin": 1})


def test_a_trace_around_is_printed_too():
    text = io.StringIO()
    with debug.trace(text), debug.profile() as profile:
        ops.np.sin(X)
    assert "call np::sin on CPU" in text.getvalue()
    assert counts(profile) == {"np::sin": 1}


def test_nothing_is_recorded_outside():
    with debug.profile() as profile:
        pass
    ops.np.sin(X)
    thread = threading.Thread(target=ops.np.sin, args=(X,))
    with profile:       # threads begin without it
        thread.start()
        thread.join()
    assert profile.events == []
    assert "0 calls" in str(profile)


def test_a_thread_in_a_copy_of_the_context_nests_by_itself():
    with debug.profile() as profile:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(backward,))
        thread.start()
        backward()
        thread.join()
    assert counts(profile) == {name: 2 * count for name, count in PROGRAMS["backward"][1].items()}
    assert {event.around for event in profile.events} == {-1}


def test_a_profile_is_refused_in_two_threads_at_once():
    profile = debug.profile()
    errors = []

    def enter():
        try:
            with profile:
                pass
        except StateOrderError as error:
            errors.append(str(error))

    with profile:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert "is already active in another thread or task" in errors[0]


def test_it_decorates_functions():
    profile = debug.profile()
    double = profile(lambda x: ops.np.multiply(x, 2.0))
    double(X), double(X)
    assert counts(profile) == {"np::multiply": 2}


def test_results_are_the_same_as_without():
    def program(x):
        return grad(lambda y: ops.np.sum(vmap(lambda row: ops.np.exp(row) @ row)(ops.np.tanh(y))))(x)

    expected = program(X)
    with debug.profile():
        found = program(X)
    np.testing.assert_array_equal(found, expected)


# --- views ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def profile():
    with debug.profile() as profile:
        for _ in range(3):
            backward()
        ops.np.sort(LARGE)
    return profile


@pytest.mark.parametrize("sort", ["own", "total", "calls", "allocated", "peak", "name"])
def test_tables_are_sorted(profile, sort):
    lines = profile.table(sort).splitlines()
    names = [line.split()[0] for line in lines[2:-1]]
    rows = {row.name: row for row in profile.rows()}
    keys = [name if sort == "name" else -getattr(rows[name], sort) for name in names]
    assert keys == sorted(keys)
    assert sorted(names) == sorted(rows)
    assert lines[-1].startswith("19 calls, ")


def test_tables_by_line_and_shapes_tell_these(profile):
    assert re.search(r"^np::sort +\S+test_profile\.py:\d+ +1 ", profile.table(by="line"), re.MULTILINE)
    assert re.search(r"^np::sort +\[5000\] +1 ", profile.table(by="shapes"), re.MULTILINE)
    assert "... and 6 more" in profile.table(limit=1)
    assert print_of(profile) == profile.table() + "\n"


def print_of(value):
    text = io.StringIO()
    print(value, file=text)
    return text.getvalue()


@pytest.mark.parametrize(("options", "message"), [
    ({"sort": "speed"}, "sort is 'speed', expected one of 'own', 'total'"),
    ({"by": "file"}, "by is 'file', expected one of 'operator', 'line', 'shapes'"),
], ids=["sort", "by"])
def test_unknown_options_are_refused(profile, options, message):
    with pytest.raises(ValueError, match=message):
        profile.table(**options)


def test_own_times_add_up_to_the_time_of_the_outermost(profile):
    outermost = sum(event.stop - event.start for event in profile.events if event.around < 0)
    assert sum(row.own for row in profile.rows()) == outermost <= profile.elapsed


def test_the_chrome_trace_nests(tmp_path):
    with Library("traced", "DEF") as lib:
        lib.define("twice(Tensor x) -> Tensor")
        lib.impl("twice", lambda x: ops.np.add(ops.np.sin(x), x), "CompositeImplicitAutograd")
        with debug.profile() as profile:
            ops.traced.twice(tracked(X))
            backward()
    profile.to_chrome_trace(tmp_path / "trace.json")
    document = json.loads((tmp_path / "trace.json").read_text())
    events = document["traceEvents"]
    assert Counter(event["name"] for event in events) == counts(profile)
    open_until = []
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        assert event["ph"] == "X"
        assert {type(event[key]) for key in ("pid", "tid")} == {int}
        assert min(event["ts"], event["dur"]) >= 0
        while open_until and open_until[-1] <= event["ts"]:
            open_until.pop()
        stop = event["ts"] + event["dur"]
        assert not open_until or stop <= open_until[-1] + 1e-3      # in microseconds, written to the nanosecond
        open_until.append(stop)
    sine = next(event for event in events if event["name"] == "np::sin")
    assert sine["args"]["shapes"] == "[2,3]"
    assert sine["args"]["line"].startswith(__file__)


def test_the_flame_graph_is_one_picture_without_a_script(profile, tmp_path):
    profile.flamegraph(tmp_path / "flames.svg")
    text = (tmp_path / "flames.svg").read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not re.search(r"<script|href|url\(", text)
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    for name in {event.name for event in profile.events} | {event.line for event in profile.events}:
        assert any(title.startswith(f"{name}: ") for title in titles), name
    boxes = [{key: float(box.get(key)) for key in ("x", "y", "width")}
             for box in root.findall(".//{http://www.w3.org/2000/svg}g/{http://www.w3.org/2000/svg}rect")]
    for box in boxes[1:]:
        around = [outer for outer in boxes if outer["y"] == box["y"] - 20 and outer["x"] <= box["x"] + 0.02
                  and box["x"] + box["width"] <= outer["x"] + outer["width"] + 0.02]
        assert len(around) >= 1


def test_names_in_a_flame_graph_cannot_be_markup(tmp_path):
    with debug.profile() as profile:
        exec(compile("ops.np.sin(X)", "<b>&\"", "exec"), {"ops": ops, "X": X})
    profile.flamegraph(tmp_path / "flames.svg")
    assert "<b>&\":1" in "".join(ET.parse(tmp_path / "flames.svg").getroot().itertext())


def test_an_empty_profile_has_views(tmp_path):
    profile = debug.profile()
    profile.to_chrome_trace(tmp_path / "trace.json")
    profile.flamegraph(tmp_path / "flames.svg")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == []
    ET.parse(tmp_path / "flames.svg")


# --- counts -----------------------------------------------------------------------------------------------


def test_counted_operators_are_those_of_a_profile():
    with debug.count_operators() as found:
        backward()
    assert found == PROGRAMS["backward"][1]


def test_counts_are_kept_when_the_block_raises():
    with pytest.raises(ValueError, match="matmul"), debug.count_operators() as found:
        ops.np.matmul(ops.np.sin(X), X)
    assert found == {"np::sin": 1, "np::matmul": 1}


class Doubled(Stateless):
    @staticmethod
    def forward(x):
        return ops.np.multiply(x, 2.0)

    @staticmethod
    def jvp(ctx, tangent):
        return ops.np.multiply(tangent, 2.0)


def scaled(x):
    return cond(ops.np.sum(x) > 0.0, lambda x: ops.np.tanh(x), lambda x: ops.np.sin(x), (x,))


TANGENTS = {
    "nested": (lambda: jvp(lambda x: jvp(ops.np.sin, (x,), (X,))[1], (X,), (X,)), {
        # of sin at both levels, and at the outer one of cos(x) * X, the tangent at the inner one
        "SinTangent": 2, "CosTangent": 1, "MultiplyTangent": 1}),
    "jacfwd": (lambda: jacfwd(lambda x: ops.np.sin(x) * 2.0)(X[0]), {"SinTangent": 1, "MultiplyTangent": 1}),
    "hessian": (lambda: hessian(lambda x: ops.np.sum(ops.np.sin(x)))(X[0]), {"SinTangent": 1, "SumTangent": 1}),
    "list of arrays": (lambda: jvp(lambda x: ops.np.concatenate([x, x]), (X,), (X,)), {"ConcatenateTangent": 1}),
    "several results": (lambda: jvp(lambda x: ops.np.linalg_qr(x), (np.eye(2),), (np.eye(2),)), {"LinalgQrTangent": 1}),
    "written": (lambda: jvp(lambda x: ops.np.sin_(ops.np.copy(x)), (X,), (X,)), {"CopyTangent": 1, "SinTangent": 1}),
    "Function": (lambda: jvp(Doubled.apply, (X,), (X,)), {"DoubledTangent": 1}),
    "cond": (lambda: jvp(scaled, (X,), (X,)), {"SumTangent": 1, "TanhTangent": 1}),
    "scan": (lambda: jvp(lambda x: scan(lambda carry, y: (carry * y, carry + y), x[0], x), (X,), (X,)), {
        "GetitemTangent": 1, "MultiplyTangent": 2, "AddTangent": 2}),
    "map": (lambda: jvp(lambda x: higher_order.map(ops.np.sin, x), (X,), (X,)), {"SinTangent": 2}),
    "while_loop": (lambda: jvp(lambda x: while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, ops.np.sin(x)), (0, x)), (X,), (X,)), {"SinTangent": 3}),
}


@pytest.mark.parametrize(("program", "expected"), TANGENTS.values(), ids=TANGENTS)
def test_tangents_are_those_of_a_program_counted_by_hand(program, expected):
    with debug.profile() as profile:
        program()
    found = Counter(event.name for event in profile.events if event.name.endswith("Tangent"))
    assert expected.items() <= found.items()


def test_tangents_of_jvp_have_rows_of_their_own():
    x = np.linspace(0.0, 1.0, 50_000)
    with debug.profile() as profile:
        jvp(lambda v: ops.np.sum(ops.np.tanh(v)), (x,), (x,))
    rows = {row.name: row for row in profile.rows()}
    assert (rows["TanhTangent"].calls, rows["SumTangent"].calls, rows["np::tanh"].calls) == (1, 1, 1)
    assert rows["TanhTangent"].own > 0
    assert "TanhTangent" in profile.table()
