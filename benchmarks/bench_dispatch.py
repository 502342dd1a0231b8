"""The dispatches of `python -m benchmarks` under pytest-benchmark, for its tables, histories and plots.

    python -m pytest benchmarks                           time all
    python -m pytest benchmarks --benchmark-disable       run each once

Calls are timed a thousand at a time.
"""

from __future__ import annotations

import itertools

import pytest

from benchmarks.cases import dispatch, once
from benchmarks.cases.peers import NAMESPACE, PEERS
from pydispatch.cli.timing import make_loop
from pydispatch.library import Library


def calls_of(rows):
    """Return the calls in the rows, each once."""
    return dict.fromkeys(itertools.chain.from_iterable(row[2:] for row in rows))


@pytest.fixture(scope="module")
def library():
    with Library(NAMESPACE, "FRAGMENT") as library:
        yield library


@pytest.fixture(scope="module")
def floor_names(library):
    return dispatch.floor_cases(library)[0].names


@pytest.fixture(scope="module")
def peer_cases(library):
    left_out = {}
    return {case.name: case for case in dispatch.peer_cases(library, left_out)}, left_out


@pytest.mark.parametrize("call", calls_of(dispatch.FLOOR_ROWS))
def test_floor(benchmark, floor_names, call):
    benchmark.group = dispatch.FLOOR
    benchmark(make_loop(call, floor_names), 1000)


@pytest.mark.parametrize("call", calls_of(dispatch.ADD_ROWS))
def test_add(benchmark, call):
    benchmark.group = dispatch.ADD
    benchmark(make_loop(call, dispatch.add_cases()[0].names), 1000)


@pytest.mark.parametrize("name", [*PEERS, "pydispatch", "no dispatch"])
def test_peer(benchmark, peer_cases, name):
    cases, left_out = peer_cases
    if name in left_out:
        pytest.skip(left_out[name])
    benchmark.group = "The same Python kernel everywhere"
    call = {"pydispatch": "op(x, y)", "no dispatch": "kernel(x, y)"}.get(name, "peer(a, b)")
    names = cases[name].names if name in cases else cases["__array_function__"].names
    benchmark(make_loop(call, names), 1000)


@pytest.mark.parametrize("name", [row[0] for row in once.ONCE_ROWS])
def test_once(benchmark, name):
    benchmark.group = once.ONCE
    values = {row[0]: row[3] for row in once.ONCE_ROWS}[name]
    benchmark.extra_info["values"] = benchmark.pedantic(values, (1,))
