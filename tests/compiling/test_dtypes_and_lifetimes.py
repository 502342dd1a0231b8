"""Compiled functions of arrays whose elements are not numbers, and what outlives a call of one."""

import gc
import threading
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, _core, compile, ops
from pydispatch.exceptions import CompilationError
from tests.together import together

NP = ops.np

OBJECTS = np.array([object(), object()], dtype=object)
STRINGS = np.array(["a" * 100, "b" * 200], dtype=np.dtypes.StringDType())
MOVES = {
    "same": lambda x: x,
    "reversed": lambda x: x[::-1],
    "where": lambda x: NP.where(np.array([True, False]), x, x[::-1]),
    "concatenate": lambda x: NP.concatenate([x, x]),
    "stack": lambda x: NP.stack([x, x[::-1]]),
    "take": lambda x: NP.take(x, np.array([1, 0]), 0),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("x", [OBJECTS, STRINGS, np.zeros(2, [("a", "O")])], ids=["objects", "strings", "fields"])
def test_a_plan_takes_no_arrays_that_refer_to_objects(x, move):
    with pytest.raises(CompilationError, match=(
            r"^compile: the argument x\w* has dtype .*, expected one without objects\n"
            r'.*compile\(f, backend="python"\)')):
        compile(move)(x)


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_the_straight_line_moves_objects(move):
    assert compile(move, backend="python")(OBJECTS).tolist() == np.asarray(move(OBJECTS)).tolist()


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@together("x", [
    np.array(["abc", "d"]), np.array([b"abcde", b"fghij"]), np.frombuffer(b"xabcdefghijklmnop", "S8", offset=1),
    np.array([(1.0, 2), (3.0, 4)], [("a", "f8"), ("b", "i4")]), np.array(["", ""]), np.array([1, 2], "m8[s]"),
    np.array(["2020-01-01", "NaT"], "M8[D]"), np.array([1, 2], np.longdouble), np.array([1, 2], np.clongdouble),
    np.array([1, 2], np.half),
], ids=lambda x: str(x.dtype))
def test_elements_of_any_size_are_moved(x, move):
    expected = np.asarray(move(x))
    compiled = compile(move)
    for _ in range(2):
        np.testing.assert_array_equal(compiled(x), expected, strict=True)
    assert compiled.hits == 1


@pytest.mark.parametrize("wrapped", [np.asarray, Tensor], ids=["array", "Tensor"])
@pytest.mark.parametrize("backend", ["plan", "python"])
def test_no_argument_is_held_after_the_call(wrapped, backend):
    class Array(np.ndarray):
        """One that can be referred to weakly, as the others can, too."""

    compiled = compile(lambda given: given["x"] * 2.0 + given["y"][0], backend=backend)
    x, y = np.ones(3).view(Array).view(np.ndarray), np.ones(3)
    alive = [weakref.ref(x), weakref.ref(y)]
    compiled({"x": wrapped(x), "y": (wrapped(y),)})
    compiled({"x": wrapped(x), "y": (wrapped(y),)})
    del x, y
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_a_function_that_could_not_be_compiled_holds_no_argument():
    def fails(x):
        raise ValueError("no")

    compiled = compile(fails)
    x = np.ones(3)
    alive = weakref.ref(x)
    with pytest.raises(ValueError, match="no"):
        compiled(x)
    del x
    gc.collect()
    assert alive() is None


def test_an_exception_while_a_variant_is_made_leaves_a_program(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    compiled = compile(lambda x: x * 2.0)
    with monkeypatch.context() as patch:
        patch.setattr(_core, "Variant", interrupted)
        with pytest.raises(KeyboardInterrupt):
            compiled(np.ones(3))
    assert compiled.cache_info() == (0, 1, 1)
    assert len(compiled.variants) == 0
    assert [compiled(np.ones(3)).tolist() for _ in range(2)] == [[2.0] * 3] * 2
    assert compiled.cache_info() == (2, 1, 1)
    assert len(compiled.variants) == 1


def test_threads_that_call_at_once_trace_once():
    traced = []

    def f(x):
        traced.append(x)
        return NP.exp(x) * 2.0

    compiled, x, wrong = compile(f), np.ones(5), []
    start = threading.Barrier(6)

    def call():
        start.wait()
        wrong.extend(i for i in range(200) if not np.array_equal(compiled(x + i), np.exp(x + i) * 2.0))

    threads = [threading.Thread(target=call) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert (len(traced), len(compiled.variants)) == (1, 1)


TRUTHS = {
    "sum": np.sum, "count_nonzero": np.count_nonzero, "int": lambda x: x.astype(int),
    "float32": lambda x: x.astype("f4"), "complex": lambda x: x.astype(complex), "add": lambda x: x + 1,
    "scaled": lambda x: x * 2.0, "chosen": lambda x: np.where(x, 1, 2), "equal": lambda x: x == True,  # noqa: E712
    "or": lambda x: x | x, "xor": lambda x: x ^ True,
}


@pytest.mark.parametrize("name", TRUTHS)
def test_any_byte_but_zero_is_true(name):
    function, x = TRUTHS[name], np.array([3, 0, 255, 1, 2], np.uint8).view(bool)
    np.testing.assert_array_equal(compile(function)(x), function(x))
