"""Measurements of `debug.memory`, compared with those of tracemalloc, to which NumPy reports every allocation."""

import contextvars
import sys
import threading
import tracemalloc

import numpy as np
import pytest

from pydispatch import Tensor, debug, ops
from pydispatch.debug.memory import in_bytes

N = 100_000


def chain():
    a = np.ones(N)
    b = a + 1
    del a
    return b * 2 + b


def operators():
    x = Tensor(np.ones(N), requires_grad=True)
    ops.np.sum(ops.np.tanh(x) * x).backward()
    return x


def resized():
    a = np.zeros(N)
    a.resize(3 * N, refcheck=False)
    a.resize(N // 2, refcheck=False)
    return a


@pytest.mark.parametrize(("program", "counted_twice"), [
    (chain, 0), (operators, 0),
    (resized, 8 * N if sys.version_info >= (3, 13) else 0),     # its tracemalloc counts the old memory until it is gone
])
def test_it_finds_what_tracemalloc_finds(program, counted_twice):
    program()
    with debug.memory() as used:
        kept = program()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept_again = program()
    live, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    small = 40_000      # objects of Python's, which tracemalloc counts too
    assert abs(used.live - (live - before)) < small
    assert abs(used.peak + counted_twice - (peak - before)) < small
    assert kept is not kept_again


def test_numbers_are_exact():
    with debug.memory() as used:
        a = np.empty(1000)
        assert (used.live, used.peak, used.allocated) == (8000, 8000, 8000)
        b = np.empty(500)
        del a
        assert (used.live, used.peak, used.allocated) == (4000, 12000, 12000)
    del b
    assert (used.live, used.peak, used.allocated, used.allocations) == (4000, 12000, 12000, 2)
    assert repr(used) == "peak 12.0 kB, live 4.0 kB, allocated 12.0 kB in 2 allocations"


def test_what_was_allocated_before_does_not_count():
    a = np.ones(1000)
    with debug.memory() as used:
        del a
        b = np.ones(10)
    assert used.live == b.nbytes


def test_blocks_nest():
    with debug.memory() as outer:
        a = np.empty(1000)
        with debug.memory() as inner:
            b = np.empty(200)
            del b
        c = np.empty(100)
        with outer:
            d = np.empty(100)
    assert inner.peak == 1600
    assert outer.peak == 9600
    assert (a.size, c.size, d.size) == (1000, 100, 100)


def test_arrays_outlive_the_block_and_its_thread():
    found = []

    def program():
        with debug.memory():
            found.append(np.arange(1000.0))
            found.append(np.zeros((0, 3)))
            found.append(np.array(["text", None], dtype=object))

    thread = threading.Thread(target=contextvars.copy_context().run, args=(program,))
    thread.start()
    thread.join()
    found[0].resize(2000, refcheck=False)
    assert found[0].sum() == 499500.0
    found.clear()


@pytest.mark.parametrize("shape", [(0,), (), (3,), (17, 5), (1 << 18,)], ids=str)
@pytest.mark.parametrize("make", [np.empty, np.zeros, np.ones])
def test_arrays_are_aligned(make, shape):
    with debug.memory():
        array = make(shape, np.complex128)
    assert array.ctypes.data % 16 == 0


def test_sizes_that_no_memory_has_are_refused():
    with debug.memory() as used:
        for make in (np.empty, np.zeros):
            with pytest.raises((MemoryError, ValueError)):
                make(2**60 - 1, np.float64)
    assert used.live == 0


@pytest.mark.parametrize(("number", "text"), [
    (0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2e6, "2.0 MB"), (3.21e9, "3.2 GB"), (-1500, "-1.5 kB")])
def test_bytes_are_told_in_the_unit_that_suits_them(number, text):
    assert in_bytes(number) == text
