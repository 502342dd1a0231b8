"""Random nonsense for every operator, function, method and special method: no crash, and where NumPy agrees to
compute, either an error or NumPy's result.

    python -m tests.properties.nonsense SECONDS TURNS SEED NOTES

calls until the seconds or the turns are over, in a process of its own, which a crash ends. NOTES is a file for the call
that runs. What is printed at the end is JSON.
"""

import functools
import inspect
import json
import operator
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pydispatch
from pydispatch import Tensor, ops
from pydispatch.numpy.declare import FUNCTIONS
from pydispatch.operators import VARIANTS
from pydispatch.tensor import LATER, METHODS
from pydispatch.tree import tree_map
from tests.comparing import to_tensor
from tests.operators.oracles import IN_PLACE, NAMES, UNDEFINED, numpy_in_place
from tests.operators.samples import Sample, numpy_function, samples

MEMORY = 4 << 30
"""Bytes of address space for the process that calls: nonsense asks for huge arrays."""
LONG = 5.0
"""Seconds of the processor that no call takes that NumPy has made in a tenth of that."""
ENDLESS = 10.0
"""Seconds of the processor after which a call is given up: Python's own powers of huge numbers never end."""
FEW = 100_000
"""Elements that are compared one by one; of more, shape and dtype are."""
INTERNAL = (SystemError, AssertionError, NameError, RecursionError, NotImplementedError, AttributeError, KeyError)
"""Errors that no wrong argument explains, unless NumPy raises the same."""


# --- arguments --------------------------------------------------------------------------------------------------------

DTYPES = ("?", "i1", "i8", "u1", "u8", "f2", "f4", "f8", "g", "c8", "c16", ">f8", ">i4", "U3", "S2", "M8[D]", "m8[s]",
          "O")
SHAPES = ((), (0,), (1,), (3,), (2, 3), (3, 2), (3, 3), (0, 3), (2, 1, 3), (1,) * 6)
NUMBERS = (0, 1, -1, 2, 3, 7, 64, 2**31, -2**63, 2**64, 2**70, 0.5, -0.0, 1e300, float("nan"), float("-inf"), True,
           False, 1j, np.float32(1.5), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.complex64(1 - 1j))
REST = (None, None, Ellipsis, "", "f4", "same_kind", "wrap", "C", "F", "i,i->i", "valid", b"x", (), (0,), (1, 0),
        (0, 0),
        (None,), [], [0, 1],
        [[1], [2, 3]], [True, False], {}, slice(None), slice(5, -9, -2), slice("a"), int, float,
        str,
        object, np.dtype("f4"), np.dtype([("x", "f4")]), object(), range(3), len, np.add)
NAMES_OF_ARGUMENTS = ("axis", "axes", "dtype", "out", "keepdims", "where", "initial", "order", "ddof", "casting",
                      "mode",
                      "copy", "k", "n", "side", "decimals", "shape", "subok", "like")


def array_of(choose: random.Random) -> np.ndarray:
    """Return an array of any dtype, shape and layout."""
    shape = choose.choice(SHAPES)
    size = int(np.prod(shape, dtype=int))
    common = ("f8", "f8", "f8", "f4", "i8", "?")
    dtype = np.dtype(choose.choice(DTYPES) if choose.random() < 0.5 else choose.choice(common))
    values = [choose.choice((0, 1, 2, 3, 1, 5, 100)) for _ in range(size)]
    if dtype.kind in "fc" and choose.random() < 0.7:
        values = [choose.choice((0.5, -1.5, 2.0, -0.0, float("nan"), float("inf"), 1e30)) for _ in range(size)]
    with np.errstate(all="ignore"):
        array = np.array(values, dtype=object).reshape(shape).astype(dtype)
    layout = choose.randrange(8)
    if layout == 0 and array.ndim:
        array = array[::-1]
    elif layout == 1:
        array = array.T
    elif layout == 2 and array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    elif layout == 3:
        array = np.asfortranarray(array)
    elif layout == 4 and array.ndim and array.shape[0]:
        array = np.broadcast_to(array[:1], array.shape)
    return array


def anything(choose: random.Random) -> Any:
    """Return an argument: an array, a number, a container of arguments, or what no operator expects."""
    kind = choose.randrange(10)
    if kind < 5:
        return array_of(choose)
    if kind < 7:
        return choose.choice(NUMBERS)
    if kind < 9:
        return choose.choice(REST)
    return choose.choice((list, tuple))(anything(choose) for _ in range(choose.randrange(3)))


def spoiled(sample: Sample, choose: random.Random) -> Sample:
    """Return a call that makes sense, with an argument or two replaced, dropped or added."""
    args, kwargs = list(sample.args), dict(sample.kwargs)
    for _ in range(choose.randrange(3)):
        change = choose.randrange(8)
        if change < 4 and args:
            args[choose.randrange(len(args))] = anything(choose)
        elif change == 4 and kwargs:
            kwargs[choose.choice([*kwargs])] = anything(choose)
        elif change == 5 and args:
            del args[choose.randrange(len(args))]
        elif change == 6:
            args.append(anything(choose))
        else:
            kwargs[choose.choice(NAMES_OF_ARGUMENTS)] = anything(choose)
    return Sample(tuple(args), kwargs)


def nonsense(choose: random.Random, least: int = 0) -> Sample:
    args = tuple(anything(choose) for _ in range(choose.randrange(least, least + 3)))
    names = choose.sample(NAMES_OF_ARGUMENTS, choose.choice((0, 0, 0, 1, 1, 2)))
    return Sample(args, {name: anything(choose) for name in names})


# --- what is called ---------------------------------------------------------------------------------------------------


@dataclass
class Target:
    """Something of ours, what it has to agree with, and how its calls are drawn."""

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    draw: Callable[[random.Random], Sample]
    on_tensors: bool = True
    """Are arrays passed as Tensors?"""
    exactly: bool = True
    """Is the result NumPy's to the last bit?"""
    values: bool = True
    """Has the result values?"""
    compared: bool = True
    """Is the result NumPy's?"""


def drawn(name: str, choose: random.Random) -> Sample:
    known = samples(name)
    return spoiled(choose.choice(known), choose) if known and choose.random() < 0.7 else nonsense(choose)


def with_self(choose: random.Random) -> Sample:
    sample = nonsense(choose)
    return Sample((array_of(choose), *sample.args), sample.kwargs)


def of_operators() -> Iterator[Target]:
    for name in NAMES:
        if name in WITHOUT_END:
            continue
        function, reference, draw = getattr(ops.np, name), numpy_function(name), functools.partial(drawn, name)
        values = name not in UNDEFINED
        for on_tensors in (False, True):
            yield Target(f"ops.np.{name}", function, reference, draw, on_tensors, values=values)
        yield Target(f"compile(ops.np.{name})", compiled(function), reference, draw, False, values=values,
                     exactly=name not in ROUNDED)
    for name in IN_PLACE:
        yield Target(f"ops.np.{VARIANTS[name].in_place}", getattr(ops.np, VARIANTS[name].in_place),
                     functools.partial(written_by_numpy, name), functools.partial(drawn, name))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: pydispatch.compile(lambda *a, **k: function(*a, **k))(*args, **kwargs)


def written_by_numpy(name: str, *args: Any, **kwargs: Any) -> Any:
    args[0][...] = numpy_in_place(name, Sample(args, kwargs))
    return args[0]


def of_methods() -> Iterator[Target]:
    for name in sorted({*METHODS, *LATER, "reshape", "transpose", "item", "tolist"} - NOT_NUMPYS):
        def call(self: Any, *args: Any, name: str = name, **kwargs: Any) -> Any:
            return getattr(self, name)(*args, **kwargs)
        yield Target(f"Tensor.{name}", call, call, with_self, compared=name not in NOT_COMPARED)


def of_special_methods() -> Iterator[Target]:
    for name in SPECIAL:
        function = getattr(operator, name)
        n = len(inspect.signature(function).parameters)
        for place in range(n):
            def draw(choose: random.Random, n: int = n, place: int = place) -> Sample:
                return Sample(tuple(array_of(choose) if i == place else anything(choose) for i in range(n)), {})
            yield Target(f"operator.{name}", function, function, draw)


def of_functions() -> Iterator[Target]:
    for name, function in FUNCTIONS.items():
        module, _, last = name.rpartition(".")
        reference = getattr(operator.attrgetter(module)(np) if module else np, last, None)
        if reference is not None and last not in NOT_NUMPYS:        # None: it came with a later NumPy
            yield Target(f"numpy.{name}", function, reference, with_self, exactly=False, values=name not in UNDEFINED,
                         compared=name not in NOT_COMPARED)


NOT_NUMPYS = {
    "dump", "tofile",                                                   # write files
    "resize", "setflags", "setfield", "getfield", "byteswap",           # refused
    "partition", "argpartition",                                        # any order will do
    "view", "to_device", "__dlpack__", "__dlpack_device__",             # of NumPy's memory
}
ROUNDED = {"power", "arctan2"}          # NumPy's loops round an element by its place in a row
CRASHING = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
"""NumPy 2.4 crashes in `np.less(300, np.ones(3, np.int8), where=np.ones(3, bool))`."""
WITHOUT_END = {"sinc_derivative"}       # takes time in proportion to its order
NOT_COMPARED = {
    "setxor1d", "intersect1d", "setdiff1d", "union1d", "in1d",          # of elements wrongly said to be unique
    "asfortranarray",                                                   # NumPy's has an axis at least
    "unique_values",                                                    # in any order
    "histogram_bin_edges", "histogramdd", "bartlett",                   # float64, also of objects and of longdouble
    "quantile", "percentile", "nanquantile", "nanpercentile",           # q=True is another weight than 1.0 to NumPy
    "conj", "conjugate",                                                # of bools: the method differs
    "geomspace",                                                        # beyond the largest number anything will do
    "tri",                                                              # counts diagonals in fractions
    "polyval",                                                          # coefficients in objects are Python numbers
}
"""Functions that need not give NumPy's result, but do not crash."""
SPECIAL = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift",
           "lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert", "getitem", "setitem", "delitem",
           "contains", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior",
           "ixor", "ilshift", "irshift", "index", "truth", "concat", "iconcat", "countOf", "length_hint")


# --- calls ------------------------------------------------------------------------------------------------------------


def outcome(function: Callable[..., Any], sample: Sample) -> tuple[Any, BaseException | None]:
    signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS)
    try:
        return function(*sample.args, **sample.kwargs), None
    except Exception as error:
        return None, error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def give_up(*_: Any) -> None:
    raise TimeoutError


def untensored(leaf: Any) -> Any:
    return leaf.array if isinstance(leaf, Tensor) else leaf


def as_number(leaf: Any) -> Any:
    return leaf.item() if isinstance(leaf, np.ndarray) and leaf.size == 1 and leaf.dtype.kind in "biufc" else leaf


def copied(leaf: Any) -> Any:
    return leaf.copy(order="K") if isinstance(leaf, np.ndarray) and 0 not in leaf.strides else leaf


def is_internal(ours: BaseException, theirs: BaseException | None, target: Target) -> bool:
    """Return whether no argument explains an error."""
    if isinstance(ours, AttributeError) and ours.name == target.name.rpartition(".")[2]:
        return False        # a ufunc of NumPy's looks for a method of an object by its own name
    if isinstance(ours, KeyError) and target.name.startswith("operator."):
        return False        # a Tensor is a key that a dictionary lacks
    return isinstance(ours, INTERNAL) and not (theirs is not None and isinstance(theirs, type(ours)))


def agree(found: Any, expected: Any, target: Target) -> bool:
    if isinstance(expected, np.ndenumerate):
        found, expected = tree_map(untensored, (list(found), list(expected)))
    if isinstance(expected, (tuple, list)):
        return (isinstance(found, (tuple, list)) and len(found) == len(expected)
                and all(agree(one, other, target) for one, other in zip(found, expected, strict=True)))
    if not isinstance(expected, (np.ndarray, np.generic, int, float, complex)):
        return type(found) is type(expected)
    one, other = np.asarray(found), np.asarray(expected)
    if one.dtype.hasobject and not one.ndim and not isinstance(expected, (np.ndarray, np.generic)):
        one = np.asarray(one.item())        # what NumPy takes out of an array of one object, a Tensor holds
    if one.dtype.kind == other.dtype.kind and one.dtype.kind in "SU":
        other = other.astype(one.dtype)     # NumPy's texts forget how wide the array was that they are out of
    if (one.dtype.newbyteorder("="), one.shape) != (other.dtype.newbyteorder("="), other.shape):
        return False
    if not target.values or one.size > FEW:
        return True
    if one.dtype.kind not in "fc":
        return bool(one.dtype.hasobject or np.array_equal(one, other) or one.tobytes() == other.tobytes())
    if target.exactly:
        return np.array_equal(one, other, equal_nan=True)
    tolerance = float(np.sqrt(np.finfo(one.dtype).eps))
    return np.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)


class Fuzzer:
    """Calls targets in turn, and notes what becomes of the calls."""

    def __init__(self, targets: list[Target], seed: int, notes: int) -> None:
        self.targets, self.seed, self.notes = targets, seed, notes
        self.counts: Counter[str] = Counter()
        self.failures: dict[str, str] = {}

    def run(self, seconds: float, turns: int) -> None:
        end = time.monotonic() + seconds
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for turn in range(turns):
                for target in self.targets:
                    if time.monotonic() > end:
                        return
                    seed = f"{self.seed} {turn} {target.name} {target.on_tensors}"
                    os.pwrite(self.notes, seed.ljust(200).encode(), 0)
                    self.call(target, seed)

    def call(self, target: Target, seed: str) -> None:
        sample = target.draw(random.Random(seed))
        if "where" in sample.kwargs and target.name.rpartition(".")[2].rstrip(")") in CRASHING:
            return
        given, reference = tree_map(copied, tuple(sample)), tree_map(copied, tuple(sample))
        if target.on_tensors:
            given = tree_map(to_tensor, given)
        start = time.process_time()
        expected, theirs = outcome(target.theirs, Sample(*reference))
        if isinstance(theirs, TimeoutError):
            return
        middle = time.process_time()
        found, ours = outcome(target.ours, Sample(*given))
        if time.process_time() - middle > LONG > 10 * (middle - start):
            self.note(target, seed, sample, f"took {time.process_time() - middle:.1f} s")
        self.counts["calls"] += 1
        if ours is None and theirs is None:
            self.counts["computed by both"] += 1
            if not self.is_comparable(target, sample):
                pass
            elif not (agree(*tree_map(untensored, (found, expected)), target)
                      or self.agrees_for_numbers(target, sample, untensored(found))):
                self.note(target, seed, sample, f"found {found!r}, expected {expected!r}")
            elif not agree(*tree_map(untensored, ([*given[0]], [*reference[0]])), replace(target, values=True)):
                self.note(target, seed, sample, f"wrote {given!r}, expected {reference!r}")
        elif ours is not None and theirs is not None:
            self.counts["refused by both"] += 1
        else:
            self.counts["refused by one"] += 1
        if ours is not None and is_internal(ours, theirs, target):
            self.note(target, seed, sample, "".join(traceback.format_exception(ours)))

    def agrees_for_numbers(self, target: Target, sample: Sample, found: Any) -> bool:
        """Return whether NumPy has this result if arrays of one element, after the first argument, are numbers.

        Schemas make numbers of them where they ask for one.
        """
        args, kwargs = tree_map(copied, tuple(sample))
        expected, theirs = outcome(target.theirs, Sample((*args[:1], *tree_map(as_number, args[1:])),
                                                         tree_map(as_number, kwargs)))
        return theirs is None and agree(found, untensored(expected), target)

    def is_comparable(self, target: Target, sample: Sample) -> bool:
        if "where" in sample.kwargs and sample.kwargs.get("out") is None:
            return False        # elements that are not written are arbitrary, and None is a mask for NumPy
        if target.name.rpartition(".")[2] in ("eq", "ne", "lt", "le", "gt", "ge"):
            # Python's answer, where Tensors have none
            return all(isinstance(x, (np.ndarray, np.generic, int, float, complex)) for x in sample.args)
        return target.compared

    def note(self, target: Target, seed: str, sample: Sample, what: str) -> None:
        self.failures.setdefault(target.name, f"{target.name}(*{sample.args!r}, **{sample.kwargs!r}) [{seed}]\n{what}")


TARGETS = [*of_operators(), *of_methods(), *of_special_methods(), *of_functions()]


if __name__ == "__main__":
    seconds, turns, seed, notes = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGVTALRM, give_up)
    fuzzer = Fuzzer(TARGETS, int(seed), os.open(notes, os.O_WRONLY | os.O_CREAT))
    fuzzer.run(float(seconds), int(turns))
    print(json.dumps({"counts": fuzzer.counts, "failures": fuzzer.failures}))
