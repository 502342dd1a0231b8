"""Imperative programs mean the same in every way to run them. Oracles: NumPy, and finite differences of it.

Values, the arrays that a program returns, its arguments as it leaves them, and derivatives of first and second order.
"""

from textwrap import dedent

import pytest

from tests.properties.imperative import text_of
from tests.properties.imperative_ways import CHECKS, Case, differences

BLOCK = 5
FEW, MANY = 5, 16
"""Blocks of random programs, in a run and in a long one."""
QUICK = [name for name in CHECKS if name != "numba"]

FOUND = {
    "a Fortran array of an array in C order is a copy": """
        c = np.asfortranarray(m)
        c[0, 1] = np.sin(c[1, 0])
        return np.sum(c * m), [c]
    """,
    "a contiguous array of a transposed array is a copy": """
        c = np.ascontiguousarray(m.T)
        c[0, 1] *= a[0]
        return np.sum(c * m), [c]
    """,
    "a contiguous array of a contiguous array is the array": """
        c = np.ascontiguousarray(m[1])
        c[:] *= a
        return np.sum(c * m[1]), [c]
    """,
    "the method copy lies in C order": """
        c = m.T.copy()
        c.reshape(-1)[1:3] = a[:2]
        return np.sum(np.sin(c) * m), [c]
    """,
    "the function copy keeps the order": """
        c = np.copy(m.T)
        c.reshape(-1)[1:3] = a[:2]
        return np.sum(np.sin(c) * m), [c]
    """,
    "a slice of flat is a copy": """
        c = m.flat[:4]
        c *= a
        return np.sum(c * m[0]), [c]
    """,
    "a row by a computed position, of an array made inside": """
        c = np.empty(4)
        c[:] = a
        m[np.argmax(c)] = b[np.argmin(c)]
        return np.sum(m * m), []
    """,
    "a view by reshape, and a write to its source": """
        c = m.reshape(-1)[::4]
        np.matmul(np.outer(b, c), m, out=m)
        return np.sum(c * m[0]), [c]
    """,
    "rows of an array made inside, written in a loop": """
        c = np.zeros((4, 4))
        for row in c: row[0] = a[1]
        return np.sum(c * m), [c]
    """,
    "a median, and a running total": """
        c = np.median(a)
        d = c
        c += b[0]
        return c * d + np.nanmax(b) * np.linalg.norm(m, 1), []
    """,
    "an array that is computed from a transposed one, and a reshape": """
        c = np.sin(m.T)
        d = c.reshape(-1)
        d[1:3] = a[:2]
        return np.sum(c * m), [c, d]
    """,
    "a product of transposed arrays lies in C order": """
        c = np.tensordot(m.T, m.T, 1)
        c.reshape(-1)[1:3] = a[:2]
        return np.sum(c * m), [c]
    """,
    "a number put by a mask": """
        c = np.cumsum(b)
        c[b > 0.1] = a[1]
        m[:, m[0] > 0.0] = c[2]
        m[m > 0.5] = a[0]
        return np.sum(c * m[1]), [c]
    """,
    "an array of numbers, written": """
        c = np.array([1.5, 0.5, 2.0, 1.0])
        c[0] = a[1]
        c *= b
        d = np.asarray([0.0, 0.0, 0.0, 0.0])
        d[1:3] = c[:2]
        return np.sum(c * d * m), [c, d]
    """,
    "a reshape that copies, and a write to its source": """
        c = m[1:3, :2].reshape(-1)
        m[1:3] -= c
        return np.sum(c * m[0]), [c]
    """,
}


@pytest.mark.parametrize("name", FOUND)
def test_what_random_programs_found(name):
    check(Case(0, text_of(dedent(FOUND[name]).strip())), QUICK)


@pytest.mark.parametrize("block", [
    pytest.param(block, marks=[pytest.mark.slow] * (block >= FEW)) for block in range(MANY)])
def test_random_programs(block):
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        check(Case(seed), QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_by_numba(seed):
    pytest.importorskip("numba")
    check(Case(seed), ["numba"])


def test_the_programs_are_worth_running():
    cases = [Case(seed) for seed in range(FEW * BLOCK)]
    assert all(case.is_comparable for case in cases)
    assert sum(case.slopes is not None and case.curvature is not None for case in cases) > 0.8 * len(cases)


def check(case, names):
    for name, error in differences(case, names):
        error.add_note(f"{name}, seed {case.seed}:\n{case.source[case.source.index('def program'):]}")
        raise error
