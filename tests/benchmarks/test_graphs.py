"""Nodes are measured with what they keep. A backward pass goes through the whole chain."""

import sys

import numpy as np
import pytest

from benchmarks.cases import graphs
from pydispatch import Tensor
from pydispatch.autograd import TapeNode


def test_a_node_keeps_within_its_bytes():
    (size,) = graphs.size_of_node(1)
    assert size == sys.getsizeof((Tensor(np.ones(2), requires_grad=True) * 2.0).grad_fn)
    assert 40 < size <= 300


def test_what_recording_adds_is_at_least_the_node():
    (size,), (traced,) = graphs.size_of_node(1), graphs.traced_size_of_node(1)
    assert size <= traced * 1.04        # some come from a free list
    assert traced <= 300


def test_what_a_chain_takes_is_its_results():
    array = np.ones(100)
    kept = graphs.traced_size_of_chain(lambda y: Tensor(array + 1.0), Tensor(array), 500)
    assert 800 + sys.getsizeof(Tensor(array)) < kept < 1200


def test_the_backward_pass_is_timed_per_operator(monkeypatch):
    now = [0.0]
    lengths = []

    def count(y, x, ones):
        node, length = y.grad_fn, 0
        while isinstance(node, TapeNode):
            (node, _), *_ = node.next_functions
            length += 1
        lengths.append(length)
        now[0] += length * 1e-6

    monkeypatch.setattr(graphs, "clock", lambda: now[0])
    monkeypatch.setattr(graphs, "grad", count)
    assert graphs.backward_times(40)(6) == [pytest.approx(1000), pytest.approx(1000)]
    assert graphs.slowdown(50, 10)(1) == [pytest.approx(1)]
    assert lengths == [40, 40, 50, 10]
