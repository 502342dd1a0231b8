"""Large results of plans lie in memory that is used again once they are gone."""

import gc
import pickle
import threading

import numpy as np
import pytest

from pydispatch import _core, compile

LARGE, SMALL = (1 << 16) // 8, 100      # elements of float64


@pytest.fixture(autouse=True)
def nothing_is_kept():
    gc.collect()
    _core.clear_buffer_cache()
    yield
    gc.collect()
    _core.clear_buffer_cache()


@pytest.fixture
def doubled():
    return compile(lambda x: x * 2.0)


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again(doubled):
    x = np.arange(float(LARGE))
    first = address(doubled(x))
    assert _core.clear_buffer_cache() == LARGE * 8
    before = address(doubled(x))
    assert address(doubled(x + 1.0)) == before
    assert first % 64 == before % 64 == 0


def test_results_that_are_alive_share_no_memory(doubled):
    x = np.arange(float(LARGE))
    found = [doubled(x + i) for i in range(20)]
    del found[::2]
    found += [doubled(x - i) for i in range(20)]
    expected = [2.0 * (x + i) for i in range(1, 20, 2)] + [2.0 * (x - i) for i in range(20)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("n", "kept"), [(SMALL, 0), (LARGE - 1, 0), (LARGE, LARGE * 8), ((1 << 25) + 1, 0)],
                         ids=["small", "just below", "large", "beyond the bound"])
def test_what_is_kept(doubled, n, kept):
    doubled(np.ones(n))
    assert _core.clear_buffer_cache() == kept
    assert _core.clear_buffer_cache() == 0


def test_the_oldest_memory_goes_first(doubled):
    n = (1 << 28) // 8 // 4             # a quarter of what is kept at most
    for k in range(6):
        doubled(np.ones(n + 64 * (8 << k)))     # each too far from the others in size
    assert 0 < _core.clear_buffer_cache() <= 1 << 28


def test_smaller_results_do_not_take_much_larger_memory(doubled):
    doubled(np.ones(2 * LARGE))
    result = doubled(np.ones(LARGE))
    assert _core.clear_buffer_cache() == 2 * LARGE * 8
    assert result.sum() == 2.0 * LARGE


def test_results_are_ordinary_arrays(doubled):
    result = doubled(np.arange(float(LARGE)))
    expected = 2.0 * np.arange(float(LARGE))
    assert result.flags.owndata
    assert result.flags.writeable
    assert result.base is None
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(result)), expected)
    result.resize(2 * LARGE, refcheck=False)
    np.testing.assert_array_equal(result[:LARGE], expected)
    assert not result[LARGE:].any()
    result.resize(SMALL, refcheck=False)
    np.testing.assert_array_equal(result, expected[:SMALL])


def test_arrays_of_the_user_are_numpys_own(doubled):
    doubled(np.ones(LARGE))
    assert _core.clear_buffer_cache() == LARGE * 8
    np.ones(LARGE)
    assert _core.clear_buffer_cache() == 0


def test_cache_clear_gives_it_back(doubled):
    doubled(np.ones(LARGE))
    doubled.cache_clear()
    assert _core.clear_buffer_cache() == 0


def test_threads_take_and_give_at_once(doubled):
    x, wrong = np.arange(float(LARGE)), []

    def run(i):
        wrong.extend(k for k in range(50) if not np.array_equal(doubled(x + (i + k)), 2.0 * (x + (i + k))))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
