"""Carries in place. The oracle is the repetition itself, run step by step."""

import numpy as np
import pytest

from pydispatch import compile
from pydispatch.higher_order import scan, while_loop
from tests.compiling.same import check_same

N = 5


def written_first(state, i):
    state = state.copy()
    state[i] = 2.0 * state[(i + 1) % N]
    return state.copy(), state[i]


def read_after_the_write(state, i):
    new = state.copy()
    new[i] = 3.0
    return new, state[i] - new[i]


def written_by_its_own_elements(state, i):
    new = state.copy()
    new[1:] += state[:-1]
    return new, new[i]


def unchanged(state, i):
    return state.copy(), state[i]


@pytest.mark.parametrize(("body", "n_copies"), [
    (written_first, 0), (read_after_the_write, 1), (written_by_its_own_elements, 1), (unchanged, 0)])
def test_a_carry_is_copied_only_if_its_old_value_is_read_after_a_write(body, n_copies):
    def function(x, positions):
        return scan(body, x, positions)

    x, positions = np.arange(N) + 0.5, np.array([3, 1, 1, 4])
    compiled = compile(function)
    check_same(compiled(x, positions), function(x, positions))
    inside = [line for line in compiled.plan(x, positions).splitlines() if line.startswith(" ")]
    assert sum("copy" in line for line in inside) == n_copies
    assert x.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]


def random_body(seed, n_carries):
    """Return a body that reads and writes elements and slices of several carries, copies them and swaps them."""
    made = np.random.default_rng(seed).integers(0, 1 << 30, (12, 4)).tolist()

    def body(carries, i):
        carries, row = list(carries), np.zeros(())
        old = list(carries)
        copied = [False] * n_carries
        for kind, first, second, place in made:
            one, other = first % n_carries, second % n_carries
            match kind % 6:
                case 0 | 1:
                    if not copied[one]:
                        carries[one], copied[one] = carries[one].copy(), True
                    carries[one][(i + place) % N] = 0.5 * carries[other][i] + place % 3
                case 2 if copied[one]:
                    carries[one][place % N:] *= 0.5
                case 3:
                    row = row + (old, carries)[place % 2][one][(i + second) % N]
                case 4 if place % 3 == 0:
                    carries[one], carries[other] = carries[other], carries[one]
                    copied[one], copied[other] = copied[other], copied[one]
                case 5 if place % 4 == 0:
                    carries[one], copied[one] = carries[one] + old[other], True
        return tuple([x if is_new else x.copy() for x, is_new in zip(carries, copied, strict=True)]), row * 1.0
    return body


@pytest.mark.parametrize("seed", range(20, 34))
@pytest.mark.parametrize("n_carries", [1, 3])
def test_random_repetitions(seed, n_carries):
    random, body = np.random.default_rng(seed), random_body(seed, n_carries)
    init = tuple(random.standard_normal((n_carries, N)))
    positions = random.integers(0, N, 6)

    def function(init, positions):
        return scan(body, init, positions)

    def loop(init, positions):
        return while_loop(lambda k, *carries: k < 4, lambda k, *carries: (k + 1, *body(carries, k)[0]), (0, *init))

    for each in (function, loop):
        check_same(compile(each)(init, positions), each(init, positions))
