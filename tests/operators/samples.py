"""Sample calls of every operator in the library: by category where the arguments tell what to try, else listed here."""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, product
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pydispatch.memory import overlaps_itself
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.operators.declare import IS_NUMPY_2_0
from pydispatch.operators.special import i0_derivative_of_double, sinc_derivative_of_double
from pydispatch.schema import Schema, parse_schema
from pydispatch.tree import tree_map

DTYPES = [np.dtype(name) for name in ("bool", "int8", "int64", "uint8", "float32", "float64", "complex128")]
FLOATS = [0.5, -1.25, 0.0, 2.0, -0.75, 3.0, np.nan, np.inf, 1.0]
INTS = [3, 1, 0, -2, 5, 2, -7]
BOOLS = [True, False, True, True, False]


NUMBERS = ("item",)
"""The operators whose results are numbers."""


class Sample(NamedTuple):
    """A call that our operator and NumPy's function understand alike."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Sample:
    return Sample(args, kwargs)


def array(shape: tuple[int, ...], dtype: Any = np.float64, shift: int = 0) -> np.ndarray:
    """Return an array of a few telling values, in an order that `shift` turns."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        values = np.array(BOOLS)
    elif dtype.kind in "iu":
        values = np.abs(INTS) if dtype.kind == "u" else np.array(INTS)
    else:
        values = np.array(FLOATS)
    values = np.resize(np.roll(values, shift), shape).astype(dtype)
    return values + np.resize([1j, -2j, 0], shape) if dtype.kind == "c" else values


def ints(*values: Any) -> np.ndarray:
    return np.array(values)


def strided(dtype: Any = np.float64) -> np.ndarray:
    """Return an array of shape (3, 2) that is contiguous in no order."""
    return array((2, 6), dtype)[:, ::2].T


def functional_names() -> list[str]:
    """Return the operators that are functions from arrays to arrays, in the order of declaration.

    Those that draw random numbers are not: test_random.py has their samples.
    """
    return [name for name, variants in VARIANTS.items()
            if name == variants.functional and name not in NUMBERS and "random" not in DECLARATIONS[name].tags]


def random_names() -> list[str]:
    """Return the operators that draw random numbers, without their variants."""
    return [name for name, variants in VARIANTS.items()
            if name == variants.functional and "random" in DECLARATIONS[name].tags]


def schema_of(name: str) -> Schema:
    return parse_schema(DECLARATIONS[name].schema_text)


# --- by category -----------------------------------------------------------------------------------------------------


def pointwise_samples(name: str) -> Iterator[Sample]:
    n_arrays = sum(str(argument.type) == "Tensor" for argument in schema_of(name).arguments)
    if n_arrays == 1:
        yield from (call(array(shape, dtype)) for shape in ((), (0,), (9,)) for dtype in DTYPES)
        yield from (call(strided(dtype)) for dtype in DTYPES)
        yield from (call(scalar) for scalar in (True, 2, 0.5, 1j, np.float32(0.5)))
    else:
        yield from binary_samples(name)
    numbers = [array((3,), np.float64, i) for i in range(n_arrays)]
    bits = [array((3,), np.int8, i) for i in range(n_arrays)]
    if any(argument.name == "dtype" for argument in schema_of(name).arguments):
        yield from (call(*values, dtype=dtype) for values in (numbers, bits) for dtype in DTYPES)
        yield from (call(*values, dtype=INT8, casting="unsafe") for values in (numbers, bits))
        yield from (call(*values, casting="no") for values in (numbers, bits))


SHAPES = (((), ()), ((0,), ()), ((0,), (2, 1)), ((3,), (2, 1)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((2,), (3,)))


def binary_samples(name: str) -> Iterator[Sample]:
    yield from (call(array((3,), one), array((3,), other, 1)) for one, other in product(DTYPES, DTYPES))
    for dtype in (np.int64, np.float32):
        for one, other in SHAPES:
            yield call(array(one, dtype), array(other, dtype, 1))
        yield call(strided(dtype), array((3, 1), dtype, 2))
    for dtype, scalar in product(DTYPES, (True, 2, -1, 300, 0.5, 1j)):
        yield call(array((3,), dtype), scalar)
        yield call(scalar, array((3,), dtype))
    yield call(2, 0.5)
    yield call(np.float32(2), np.float64(0.5))


def reduction_samples(name: str) -> Iterator[Sample]:
    names = {argument.name: str(argument.type) for argument in schema_of(name).arguments}
    axes: list[Any] = [0, -1, 2, 3, -4]
    if names["axis"] == "int?":
        yield from (call(array(()), axis, **kept) for axis in (0, -1, 1) for kept in ({}, {"keepdims": True}))
    else:
        axes += [(0,), (0, 2), (-1, 1), (), (0, 0), (0, 3)]
    options = {
        "dtype": DTYPES if name != "std" else [dtype for dtype in DTYPES if dtype.kind in "fc"],
        "keepdims": [True],
        "initial": [2, -0.5, 1j],
        "where": [True, *(array(shape, bool) for shape in ((2, 3, 4), (3, 1), (4,), (5,), (1, 2, 3, 4)))],
        "ddof": [1, 0.5],
        "correction": [1, 0],
        "mean": [np.array(0.5), np.float32(2)],
    }
    taken = options.keys() & names.keys()
    for dtype in DTYPES:
        small = array((2, 3, 4), dtype, 1)
        yield from (call(values) for values in (small, array((), dtype), array((0,), dtype)))
        yield from (call(values, 1) for values in (small, strided(dtype)))
        yield from (call(small, axis=0, **{key: options[key][0]}) for key in taken)
    for values in (CUBE, array((2, 3, 4), np.int8), array((0, 3)), array((3, 0), np.int64), array((3, 0, 2), bool)):
        yield from (call(values, axis) for axis in axes)
        yield from (call(values, 0, **{key: value}) for key in taken for value in options[key])
        yield from (call(values, **{key: value}) for key in taken for value in options[key])
    yield from (call(2), call(0.5), call(True), call(np.float32(3)))
    if "where" in names:
        yield call(CUBE, (0, 2), keepdims=True, where=array((3, 1), bool))
    if "dtype" in names:
        yield call(CUBE, 0, FLOAT32)
    if "mean" in names:
        yield call(CUBE, mean=CUBE.mean(keepdims=True))
        yield call(CUBE, 1, mean=CUBE.mean(1, keepdims=True), ddof=1, keepdims=True)


def accumulation_samples(name: str) -> Iterator[Sample]:
    for dtype in DTYPES:
        yield from (call(array((2, 3), dtype), axis) for axis in (None, 0, -1, 2))
        yield from (call(array(shape, dtype)) for shape in ((), (0,), (0, 2)))
        yield from (call(array((2, 3), dtype), 1, other) for other in DTYPES)
        yield call(strided(dtype), axis=0)
    yield from (call(array(()), axis) for axis in (0, 1))
    yield from (call(array((2, 3)), dtype=np.dtype(np.complex128)), call(3), call(np.int8(3), 0))


def sorting_samples(name: str) -> Iterator[Sample]:
    for dtype in DTYPES:
        yield call(array((2, 3), dtype))
    for values in LAYOUTS:
        yield call(values)
        for axis in (None, 0, -2, 5):
            yield call(values, axis)
    yield call(array((2, 3)), 0, "stable")
    yield call(array((2, 3)), kind="heapsort")
    yield call(array((2, 3)), axis=None, stable=True)
    yield call(array((2, 3)), 0, "stable", stable=True)
    yield call(array((0, 3)))


BY_TAG: dict[str, Callable[[str], Iterator[Sample]]] = {
    "pointwise": pointwise_samples, "reduction": reduction_samples, "accumulation": accumulation_samples,
    "sorting": sorting_samples,
}

# --- one by one ------------------------------------------------------------------------------------------------------

CUBE = array((2, 3, 4))
WIDE = array((2, 3))
COMPLEX = array((2, 3), np.complex128)
EMPTY = array((0, 3))
SCALAR = array(())
MASK = array((2, 3), bool)
SHORT = array((2,))
BYTES = array((2,), np.int8)
LAYOUTS = (CUBE, strided(), EMPTY, SCALAR)
"""Contiguous, strided, empty, 0-d."""

INT8, FLOAT32 = np.dtype(np.int8), np.dtype(np.float32)
REAL = [dtype for dtype in DTYPES if dtype.kind != "c"]
ALL = slice(None)

KEYS = ((), 0, -1, 5, (1, 2), (1, 1, 1), (0, 0, 0, 0), np.int64(1), 0.5, slice(None, None, -1), slice(1, 9), (ALL, 1),
        (Ellipsis, 0), (0, Ellipsis, slice(0, 1)), None, (None, 1, None), Ellipsis, (Ellipsis, Ellipsis))
INDEX_KEYS = (
    ints(1, 0), ints([0, 1], [1, 1]), np.array(1), ints(5), ints(0.5),
    (ints(0, 1), ints(2, 0)), (ints(0, 1), ints(0, 1, 2)), (ints(1), ints([0], [2]), slice(0, 4, 2)),
    (ALL, ints(0, 2)), (ALL, np.array(1)), (ints(0, 1), ALL, ints(1, 3)), (ALL, ints(0, 1), ints(1, 3)),
    (0, ints(1, 2)), (0, ALL, ints(1, 2)), (ints(0), 5), (ints(0), 0.5), (ints(0), 0, 0, 0),
    (Ellipsis, ints(0, 3)), (ALL, ints(0, 1), Ellipsis, ints(1, 3)), (None, ints(0, 1)), (ints(0), None, ints(0, 1)),
    array((2,), bool), array((2, 3), bool), array((2, 3, 4), bool), array((3,), bool),
    (ALL, array((3, 4), bool)), (Ellipsis, array((4,), bool)), (array((2,), bool), ints(1)),
    (0, array((3, 4), bool), ints(0)), True, np.True_, (True, ints(0)), (ALL, False),
)
ASSIGNMENTS = ((0, 2), ((1, 2), 0.5), (5, 1), (0, array((2,))), ((), array((2, 3), complex)),
               ((None, 0), array((1, 3))), (ALL, array((3,))), ((ALL, 1), BYTES), (Ellipsis, array((1, 1, 1, 3), bool)))
INDEX_ASSIGNMENTS = ((ints(0, 0, 2), 1), (ints(0, 0, 2), array((3,), np.int8)), (ints(3, 3), array((2, 3), np.int8)),
                     (ints(9), 1), (ints(0), array((2,))), ((ints(0, 1), slice(None, 2)), 5), (array((4,), bool), 2),
                     (array((4,), bool), array((5, 3))), (array((4, 3), bool), array((8,), np.int8)))
CREATED = [*(call(shape) for shape in ((), 3, (2, 3), (0, 2), -1)), *(call((2,), dtype=dtype) for dtype in DTYPES)]
LIKE = [
    *(call(values) for values in (*LAYOUTS, MASK, COMPLEX, 2, np.int8(1))),
    *(call(CUBE, dtype=dtype) for dtype in DTYPES),
    call(CUBE, shape=(2,)), call(CUBE, shape=3, dtype=INT8),
]
EACH_DTYPE = [call(array((2, 3), dtype)) for dtype in DTYPES]
PARTS = [call(values) for values in (array((), complex), EMPTY, strided(complex), np.float32(2))]

LISTED: dict[str, list[Sample]] = {
    "float_power": [    # in double precision 1.6 ** 300 is finite, in the single precision of the gradient it is not
        sample for sample in pointwise_samples("float_power") if not any(type(x) is int and x == 300 for x in sample[0])
    ],
    "ldexp": [
        *pointwise_samples("ldexp"), call(array((3,)), ints(1, 0, -2), casting="no"),
        *(call(array((3,), dtype), ints(1, 0, -2), dtype=FLOAT32) for dtype in (np.float32, np.float64)),
    ],
    **{name: [*(call(array(shape, dtype), order) for shape, dtype, order in product(((), (0,), (9,)), REAL, (1, 2, 3))),
              call(strided(), order=1), call(0.5, 1),
              call(np.linspace(-7, 7, 9), 2)] for name in ("sinc_derivative", "i0_derivative")},
    "round": [
        *(call(array(shape, dtype), *decimals) for shape, dtype, decimals
          in product(((), (0,), (9,)), DTYPES, ((), (1,), (-1,)))),
        call(strided(), decimals=1), call(2.71828, 2), call(True),
    ],
    "clip": [
        *(call(array((9,), dtype), low, high) for dtype in DTYPES for low, high in (
            (0, 2), (0.5, None), (None, array((9,), dtype, 1)), (array((2, 1)), 1), (-1, 300), (None, None))),
        *(call(values, min=0, max=array((4,))) for values in (CUBE, EMPTY[:, :1], SCALAR, 7, True)),
        call(CUBE, min=1), call(CUBE, max=1),
        *(call(CUBE, 0, 1, **options) for options in ({"dtype": FLOAT32}, {"casting": "no"}, {"min": 2})),
        call(CUBE, array((3,)), 1), call(strided(), 0, 1), call(7, np.array(0, np.int8), 1),
    ],
    "where": [
        *(call(array((3,), bool), array((3,), one), array((3,), other, 1)) for one, other in product(DTYPES, DTYPES)),
        *(call(array((3,), dtype), array((2, 1)), 1) for dtype in DTYPES),
        *(call(MASK, array((3,), dtype), scalar) for dtype in DTYPES for scalar in (True, 2, 0.5, 1j)),
        call(True, 1, 2.5), call(SCALAR, SCALAR, EMPTY), call(MASK, array((4,)), 0), call(strided(bool), strided(), 0),
    ],
    "matmul": [
        *(call(array((2, 3), one), array((3, 2), other)) for one, other in product(DTYPES, DTYPES)),
        *(call(array(one), array(other, shift=1)) for one, other in (
            ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((3,), (4, 3, 2)), ((4, 2, 3), (3, 2)),
            ((4, 1, 2, 3), (5, 3, 2)), ((2, 0), (0, 3)), ((0, 3), (3, 2)),
            ((2, 3), (3, 3)), ((3,), (3, 3)), ((4, 2, 3), (3, 3)),      # their products fit into the first
            ((2, 3), (2, 3)), ((), (3,)), ((3,), (2,)), ((4, 2, 3), (5, 3, 2)))),
        *(call(WIDE, array((3, 2)), dtype=dtype) for dtype in DTYPES),
        call(WIDE, array((3, 2)), dtype=INT8, casting="unsafe"), call(BYTES, SHORT, casting="no"),
        call(strided(), strided().T), call(2, CUBE),
    ],
    "covariance": [
        *(call(array(shape, dtype), 2.0) for dtype in DTYPES for shape in ((2, 3), (2, 3, 2))),
        *(call(x, 3) for x in (EMPTY, strided(), strided(complex), WIDE.T, SHORT, SCALAR)),
    ],
    "einsum": [
        *(call("ij,jk->ik", array((2, 3), one), array((3, 2), other)) for one, other in product(DTYPES, DTYPES)),
        *(call(subscripts, array((2, 3)), array((3, 4))) for subscripts in (
            "ij,jk", "ij,jk->ki", "ij,jk->", "ij,jk->jik", "ij,kl->ik", "...i,i...", "i...,...", "ij,kj", "ij,jk->ii")),
        *(call(subscripts, array((3, 3))) for subscripts in (
            "ii", "ii->i", "ij->ji", "ij->", "ij->j", "...i->...", "ij", "...", "i", "i j - > i", "i1->i", "ij->k")),
        *(call(subscripts, array((1, 3)), array((2, 1, 3)))
          for subscripts in ("ij,kij->ki", "ab,cad->c", "...,...->...")),
        *(call(subscripts, array((2, 3)), array((3, 4)), [array((4, 2)), *more]) for subscripts, more in (
            ("ij,jk,kl->il", ()), ("ij,jk,ki", ()), ("ij,jk,kl,l->i", (array((2,)),)), ("ij,jk,kl,->ik", (2.5,)))),
        call("iij,ik->kij", array((2, 2, 3)), WIDE), call("iii->i", array((2, 2, 2))), call("iii", array((2, 2, 2))),
        call("aij,ajk->aik", CUBE, array((2, 4, 3))), call("aij,ajk->kia", CUBE, array((2, 4, 3)), optimize=True),
        call("ij,jk,kl->il", WIDE, array((3, 4)), [array((4, 2))], optimize=True),
        *(call("ij,j", WIDE, array((3,)), dtype=dtype) for dtype in DTYPES), call("i,i", SHORT, BYTES, casting="no"),
        call("ij,j", WIDE, array((3,)), dtype=INT8, casting="unsafe"), call(",", SCALAR, 2), call("->", SCALAR),
        call("ij,jk", EMPTY, array((3, 2))), call("ij,jk", strided(), strided().T), call("i,i->i", array((1,)), SHORT),
        call("i", 2.5), call("i,j", SHORT),
    ],
    # what NumPy finds between points that are not sorted depends on more than one element, and the tests roll arrays
    "interval": [
        *(call(x, xp) for x in (CUBE, ints([0, 4], [2, 1]), SCALAR, 0.5, EMPTY) for xp in (np.full(3, 0.5), ints(1))),
        call(0.5, np.array([0.0, 1.0])), call(0.5, ints(-1, 0, 1, 2)),
    ],
    "searchsorted": [
        call(np.full(n, 0.5, dtype), array(shape, dtype), *side) for n in (0, 1, 3)
        for shape, dtype in product(((), (0,), (9,), (2, 3)), (np.float32, np.float64, np.int64, np.complex128))
        for side in ((), ("right",))
    ],
    "interp": [
        *(call(array((2, 3), one), ints(-1, 0, 2), array((3,), other, 2)) for one, other in product(DTYPES, DTYPES)),
        *(call(CUBE, ints(-1, 0, 2), np.array([2.0, 3.0, -1.0]), *ends)
          for ends in ((), (0.5,), (None, 2.5), (SCALAR, np.array(1.5)))),
        *(call(WIDE, array((1,), dtype), np.array([2.0])) for dtype in DTYPES),
        call(SCALAR, ints(0, 1), ints(2, 5)), call(0.5, ints(0, 1), ints(2, 5)), call(EMPTY, ints(0, 1), ints(2, 5)),
        call(WIDE, np.array([0.75]), np.array([2.0]), -1, right=1), call(WIDE, SHORT, array((3,))),
        call(WIDE, array((0,)), array((0,))), call(WIDE, SCALAR, SCALAR),
        call(strided(), ints(-1, 0, 2), array((3,), np.float32), left=-1.0),
    ],
    "convolve": [
        *(call(array((5,), one), array((3,), other, 1)) for one, other in product(DTYPES, DTYPES)),
        *(call(array((n,)), array((m,), shift=2), mode) for n, m in ((5, 2), (2, 5), (4, 4), (1, 3), (6, 1), (6, 3))
          for mode in ("full", "same", "valid")),
        call(array((3,)), array((0,))), call(array((0,)), array((3,))), call(SHORT, SHORT, "other"),
        call(strided()[0], strided()[:, 0], mode="same"),
    ],
    "reshape": [
        *(call(values, shape) for values, shape in product(
            (*LAYOUTS, 2.5, np.float32(1)),
            ((4, 6), (6,), 6, -1, (2, -1), (3, 0), (1, 1), (), (0, -1), (-1, -1)))),
        *(call(array((2, 3), dtype), (3, 2)) for dtype in DTYPES),
        call(CUBE, (24,), copy=True), call(CUBE, (24,), copy=False), call(CUBE, shape=-1),
    ],
    "ravel": [call(values) for values in (*LAYOUTS, COMPLEX, MASK, 2, np.int8(1))],
    "transpose": [
        *(call(values) for values in (*LAYOUTS, COMPLEX, 2)),
        *(call(CUBE, axes) for axes in ((0, 2, 1), (-1, 0, 1), (0, 1), (0, 0, 1), (0, 1, 3))),
        call(CUBE, axes=(2, 1, 0)),
    ],
    "swapaxes": [call(values, *axes) for values, axes in product(LAYOUTS, ((0, 1), (-1, 0), (1, 2), (3, 0)))],
    "moveaxis": [
        call(values, *axes) for values, axes in product(
            LAYOUTS, ((0, 1), (-1, 0), ((0, 1), (2, 0)), ((0, 1), (0,)), (3, 0), ((0, 0), (0, 1))))
    ],
    "expand_dims": [
        call(values, axis) for values, axis in product((*LAYOUTS, 2.5), (0, -1, (0, 1), (0, -1), 4, (0, 0)))],
    "squeeze": [
        *(call(values) for values in (CUBE, array((1, 3, 1)), array((1, 0, 1)), SCALAR, 2.5)),
        *(call(array((1, 3, 1)), axis) for axis in (0, -1, (0, 2), (), 1, 3, (0, 0))),
        call(array((1, 3, 1))[:, ::2], axis=0),
    ],
    "broadcast_to": [
        call(values, shape) for values, shape in product(
            (array((3, 1)), array((3,)), EMPTY, SCALAR, strided(), 2.5),
            ((3, 4), (2, 3, 1), (3,), 3, (), (0, 3), (3, 2), (-1, 3)))
    ],
    "flip": [
        *(call(values) for values in (*LAYOUTS, MASK)),
        *(call(CUBE, axis) for axis in (0, -1, (0, 2), (), 3)), call(CUBE, axis=1),
    ],
    "diagonal": [
        *(call(values, *rest) for values, rest in product(
            (*LAYOUTS, array((3, 3)), array((2, 4), np.int8), COMPLEX), ((), (1,), (-1,), (9,), (0, 1, 0), (0, 0, 0)))),
        *(call(CUBE, *rest) for rest in ((1, 0, 2), (-1, -1, 0), (0, 2, 1), (0, 1, 3))), call(CUBE, axis2=2),
    ],
    "sliding_window_view": [
        *(call(values, *rest) for values, rest in product(
            (array((5,)), array((5,))[::2], array((3, 4)), array((3, 4)).T),
            (((2,),), ((2,), 0), ((1,), (-1,)), ((3, 2),), ((2, 2), (0, 0)), ((9,), 0), ((-1,), 0), ((0,), 0)))),
        call(CUBE, (2, 2), (2, 0)), call(SCALAR, ()), call(CUBE, (2,), 5),
    ],
    "read_only": [call(values) for values in (*LAYOUTS, COMPLEX, MASK, SCALAR, EMPTY)],
    "split": [
        *(call(values, sections) for values, sections in product(
            (array((6,)), array((6, 2)), array((6, 2))[::2], EMPTY), (2, 3, (1, 4), (2,), [1, 2, 9], 4, 0))),
        call(CUBE, 2, 2), call(CUBE, 3, axis=1), call(CUBE, 2, 3), call(SCALAR, 1),
    ],
    "concatenate": [
        *(call((array((2, 3), one), array((1, 3), other))) for one, other in product(DTYPES, DTYPES)),
        *(call([CUBE, CUBE[:, ::-1]], axis) for axis in (0, 1, -1, None, 3)),
        call((CUBE,), axis=1), call((EMPTY, WIDE)), call((SCALAR, CUBE), None),
        *(call(arrays) for arrays in ((), (SCALAR, SCALAR), (CUBE, EMPTY), (WIDE, array((2, 2))))),
        *(call((SHORT, BYTES), dtype=dtype) for dtype in DTYPES),
        call((SHORT, BYTES), dtype=INT8, casting="unsafe"), call((SHORT, BYTES), casting="no"),
    ],
    "stack": [
        *(call((array((2, 3), one), array((2, 3), other))) for one, other in product(DTYPES, DTYPES)),
        *(call([CUBE, CUBE[:, ::-1]], axis) for axis in (0, 1, -1, 3, 4, -5)),
        call((EMPTY, EMPTY), axis=1), call((SCALAR, 2)), call(()), call((CUBE, EMPTY)),
        *(call((SHORT, BYTES), dtype=dtype) for dtype in DTYPES),
        call((SHORT, BYTES), dtype=INT8, casting="unsafe"), call((SHORT, BYTES), casting="no"),
    ],
    "repeat": [
        *(call(values, repeats) for values, repeats in product((*LAYOUTS, 2.5), (0, 2, (3,)))),
        *(call(CUBE, repeats, axis) for repeats, axis
          in product((2, (1, 2), (1, 0, 2), (1, 2, 3, 4), (1, -1)), (0, 1, -1, 3))),
        call(CUBE, -1), call(CUBE, 2, axis=1), call(SCALAR, 2, 0),
    ],
    "tile": [
        call(values, reps) for values, reps in product(
            (*LAYOUTS, array((3,)), 2.5), (2, (2,), (2, 3), (0, 1), (), (2, 1, 1, 2)))
    ],
    "roll": [
        *(call(values, shift) for values, shift in product((*LAYOUTS, 2.5), (1, -2, 0, (1, 2)))),
        *(call(CUBE, shift, axis) for shift, axis in (
            (1, 0), (1, (0, 2)), ((1, -1), (0, 2)), ((1, 2), (1, 1)), ((1, 2), 1), (1, 3), ((1, 2), (0, 1, 2)))),
        call(CUBE, 1, axis=-1),
    ],
    "take": [
        *(call(array((4, 3), dtype), indices) for dtype, indices
          in product(DTYPES, (ints(0, 5, -1), ints(2), 3, ints([0, 1], [2, 3])))),
        *(call(CUBE, ints(0, 1, 1), axis) for axis in (0, 1, -1, 3)),
        *(call(CUBE, ints(7, -9), axis=1, mode=mode) for mode in ("raise", "wrap", "clip")),
        *(call(CUBE, indices) for indices in (ints(9), 24, ints(0.5))),
        *(call(EMPTY, indices, axis) for indices, axis in ((ints(0), 0), (array((0,), np.int64), 0), (ints(0), 1))),
        call(CUBE, 1, axis=1), call(CUBE, np.int8(1), 0), call(SCALAR, 0), call(SCALAR, 0, 0), call(2.5, ints(0)),
        call(strided(), ints(1, 0), 1),
    ],
    "take_along_axis": [
        *(call(array((2, 3), dtype), ints([0, 2], [1, -1])) for dtype in DTYPES),
        *(call(WIDE, indices) for indices in (ints([0.5]), ints([0], [1], [1]), ints([0, 9], [1, 1]))),
        *(call(CUBE, indices, axis) for indices, axis in (
            (ints(0, 1, 1), None), (ints([0], [1]), None), (ints([[0], [1], [2]]), 1), (ints([[1]]), -3),
            (ints([[0]]), 3))),
        call(CUBE, ints([[0, 1]]), axis=2), call(CUBE, ints(0, 1)),
        call(EMPTY, array((0, 2), np.int64)), call(strided(), ints([1], [0], [1])),
    ],
    "getitem": [call(values, key) for values, key in product((*LAYOUTS, COMPLEX), KEYS)],
    "setitem": [
        *(call(array((2, 3), dtype), *assignment) for dtype, assignment
          in product((np.int8, np.float32, np.complex128, bool), ASSIGNMENTS)),
        call(SCALAR, (), 3), call(EMPTY, 0, 1), call(EMPTY, ALL, 1), call(strided(), (ALL, 0), ints(1, 2, 3)),
        call(array((3,), np.uint8), 0, -1),
    ],
    "index": [*(call(CUBE, key) for key in INDEX_KEYS), *(call(array((4,), dtype), ints(0, 2)) for dtype in DTYPES),
              call(EMPTY, array((0,), np.int64)), call(EMPTY, array((0,), bool)), call(SCALAR, True),
              call(SCALAR, np.array(False)), call(strided(), ints(2, 0)), call(strided(), array((3, 2), bool))],
    "index_put": [
        *(call(array((4, 3), dtype), *assignment, accumulate=accumulate) for dtype, accumulate, assignment
          in product((np.float64, np.int8), (False, True), INDEX_ASSIGNMENTS)),
        call(array((3,)), ints(0), 1j, accumulate=True), call(array((3,), np.int8), ints(0), 0.5),
        call(array((6,)), ints([0, 1], [2, 3], [4, 5]), SHORT, accumulate=True),
        call(SCALAR, True, 2), call(EMPTY, array((0,), np.int64), 1), call(strided(), ints(0, 2), array((2, 2))),
    ],
    "scatter_add": [
        *(call(array((3, 4), dtype), ints([0, 2, 0, 0]), array((1, 4), np.int8), 0) for dtype in DTYPES),
        *(call(array((3, 4)), ints([0, 0], [1, 1], [2, 2]), values, axis) for values, axis in (
            (array((3, 2)), 1), (2.5, -1), (SHORT, 1), (1, 0), (1, 2), (array((5,)), 1))),
        *(call(array((3, 4)), indices, 1, 1) for indices in (ints(0), ints([9]), ints([0.5]), ints([0], [1]))),
        call(array((3, 4)), ints([0]), array((3, 1)), axis=1), call(EMPTY, array((0, 1), np.int64), 1, 1),
        call(strided(), ints([0], [0], [1]), 1, 1),
    ],
    "argpartition": [
        *(call(array((3, 4), dtype), (2,)) for dtype in DTYPES),
        *(call(CUBE, kth, axis) for kth, axis in (((1,), 0), ((0, -1), 1), ((5, 2), None), ((9,), 1), ((0,), 3))),
        call(strided(), (0,)), call(SCALAR, (0,)),
    ],
    "slice_sums": [
        *(call(array((6,), dtype), ints(0, 2, 3)) for dtype in DTYPES),
        *(call(CUBE, indices, axis) for indices, axis in (
            (ints(1, 0), 0), (ints(0, 1, 1), 1), (ints(1, 2, 0), -1), (ints(9), 1), (ints(0), 3))),
        call(strided(), ints(0, 2)),
    ],
    "slices_filled": [
        *(call(array((3,), dtype), ints(0, 2, 3), 5) for dtype in DTYPES),
        *(call(array((2, 3)), indices, 4, axis) for indices, axis in (
            (ints(1, 0), 0), (ints(0, 1, 1), 1), (ints(3, 2, 0), -1), (ints(0), 3))),
    ],
    "linalg_solve_with": [
        *(call(np.array([[2.0, 1.0], [1.0, 3.0]], dtype), array((2,), dtype), transposed=transposed, lower=lower)
          for dtype, transposed, lower in product((np.float32, float, complex), (False, True), (False, True))),
        call(np.array([[[2.0, 1.0], [1.0, 3.0]]]), array((2, 1)), transposed=True), call(array((2, 3)), array((2,))),
    ],
    "zeros": CREATED,
    "ones": CREATED,
    "empty": CREATED,
    "full": [
        *(call(shape, value) for shape, value in product(
            ((), 3, (2, 3), (0, 2)), (True, 2, 0.5, 1j, SCALAR, array((3,), np.int8), np.float32(2)))),
        *(call((2,), 1.5, dtype=dtype) for dtype in DTYPES),
        call((3,), fill_value=array((3,))), call(-1, 0), call((2,), 1j, dtype=FLOAT32),
    ],
    "arange": [
        *(call(*numbers) for numbers in (
            (5,), (2, 7), (2, 7, 2), (7, 2), (7, 2, -2), (0.5, 3), (3, 0.5, -0.5), (0,), (5, None, 2), (2, 2.5, 0.1),
            (np.int8(4),), (1, 4, 0), (2.5,), (0, 2.5), (1, 4.0, 2), (True, 3))),
        *(call(1, 4, dtype=dtype) for dtype in DTYPES), call(1, stop=4, step=2),
    ],
    "linspace": [
        *(call(*ends) for ends in ((0, 1), (0.5, 2j), (SHORT, 1), (array((2, 1)), array((3,), np.float32)),
                                   (ints(0, 1), ints(5, 6)), (SHORT, array((3,))))),
        *(call(0, 10, num) for num in (0, 1, 5, -1)), call(0, 10, 5, False), call(0, 10, endpoint=False, num=4),
        *(call(WIDE, 1, 4, axis=axis) for axis in (0, 1, -1, 3)), *(call(0, 10, 4, dtype=dtype) for dtype in DTYPES),
    ],
    "eye": [
        *(call(*numbers) for numbers in ((3,), (0,), (2, 3), (3, 2, 1), (3, None, -1), (-1,))),
        *(call(2, dtype=dtype) for dtype in DTYPES), call(3, k=1, M=4),
    ],
    "zeros_like": LIKE,
    "ones_like": LIKE,
    "empty_like": LIKE,
    "full_like": [
        *(call(values, value) for values, value in product((*LAYOUTS, MASK, 2), (True, 2, 0.5, SCALAR, array((4,))))),
        *(call(CUBE, 1, dtype=dtype) for dtype in DTYPES),
        call(CUBE, fill_value=2, shape=(2,)), call(CUBE, array((2,)), shape=3),
    ],
    "astype": [
        *(call(array((9,), one), other) for one, other in product(DTYPES, DTYPES)),
        *(call(array((2, 3), dtype), FLOAT32, copy=False) for dtype in DTYPES),
        *(call(values, INT8) for values in LAYOUTS),
    ],
    "detach": [*EACH_DTYPE, *(call(values) for values in (*LAYOUTS, 2, np.float32(1)))],
    "copy": [*EACH_DTYPE, *(call(values) for values in (*LAYOUTS, 2, np.float32(1)))],
    "real": [*EACH_DTYPE, *PARTS],
    "imag": [*EACH_DTYPE, *PARTS],
}


@cache
def samples(name: str) -> list[Sample]:
    """Return the sample calls of an operator. Empty for one that has none."""
    if name in LISTED:
        return LISTED[name]
    return [sample for tag in DECLARATIONS[name].tags if tag in BY_TAG for sample in BY_TAG[tag](name)]


def every_other_sample(name: str) -> list[Sample]:
    """Return every other sample call, or all of few. Neighbours, which have the same if of a kind, get other ones."""
    found = samples(name)
    return found if len(found) < 20 else found[[*DECLARATIONS].index(name) % 2::2]


# --- with values where the operators are smooth ----------------------------------------------------------------------

DOMAINS: dict[str, tuple[tuple[float, float], ...]] = {
    "arccos": ((-0.9, 0.9),), "arccosh": ((1.2, 3),), "arcsin": ((-0.9, 0.9),), "arctanh": ((-0.9, 0.9),),
    "log": ((0.3, 3),), "log10": ((0.3, 3),), "log1p": ((-0.7, 2),), "log2": ((0.3, 3),), "sqrt": ((0.3, 3),),
    "power": ((0.4, 1.6), (-1.5, 1.5)), "float_power": ((0.4, 1.6), (-1.5, 1.5)), "fmod": ((2.3, 2.9), (0.6, 0.7)),
}
"""Ranges of the elements of arrays. Elsewhere absolute values are from 0.3 to 1.4."""


def regular(leaf: Any, domain: tuple[float, float] | None, turn: int) -> np.ndarray:
    """Return an array of this shape, dtype and kind of layout, with values none of which is like another one."""
    shape, dtype = np.shape(leaf), leaf.dtype
    fractions = 0.6180339887498949 * np.arange(1 + 37 * turn, 1 + 37 * turn + leaf.size) % 1
    if domain is None:
        values = (0.3 + 1.1 * fractions) * np.resize([1, -1, -1, 1, 1], leaf.size)
    else:
        values = domain[0] + (domain[1] - domain[0]) * fractions
    if dtype.kind == "c":
        values = values + 1j * np.roll(values, 1)
    values = values.astype(dtype).reshape(shape)
    contiguous = not isinstance(leaf, np.ndarray) or leaf.flags.c_contiguous
    return values if contiguous else np.repeat(values[..., None], 2, -1)[..., 1]


def smoothed(name: str, sample: Sample) -> Sample:
    """Return the call with regular values in place of floats and complex numbers.

    Integers of pointwise operators get positive. Elsewhere they stay, since they may be indices, as do Python scalars.
    """
    domains = DOMAINS.get(name, (None,))
    turns = count()

    def replaced(leaf: Any) -> Any:
        if not isinstance(leaf, (np.ndarray, np.generic)) or leaf.dtype.kind == "b":
            return leaf
        if leaf.dtype.kind in "iu":
            return np.abs(leaf) + np.ones_like(leaf) if "pointwise" in DECLARATIONS[name].tags else leaf
        turn = next(turns)
        return regular(leaf, domains[min(turn, len(domains) - 1)], turn)

    return tree_map(replaced, sample)


def points(shape: tuple[int, ...], dtype: Any = np.float64, turn: int = 0) -> np.ndarray:
    return regular(np.empty(shape, dtype), None, turn)


LINE = np.array([0.8, -0.95, 0.3, 2.3])
ZEROS = np.array([[0.5, -2, 1.5], [0, 3, 0.7], [0, 2, 0], [0, 0, 0]])
"""Rows with no zero, with one, with two, with nothing else."""
LAYERS = np.array([[[0.3, -1.2]], [[0.8, 0.4]]])
SELECTION = ints([0, 2], [2, 2])

POINTS: dict[str, list[Sample]] = {
    "power": [
        *(call(LINE, exponent) for exponent in (0, 1, 2, 3, 4, -1, True, 2.0, 3.0, ints(0, 1, 2, -3))),
        *(call(np.array([0.0, -1.5]), exponent) for exponent in (0, 1, 2, 3, 2.0, np.array([2, 0], np.uint8))),
        call(np.array([0.0, -1.5]), np.array([True, False])), call(2, LAYERS), call(2.5, LAYERS), call(1j, LAYERS),
        call(np.array([100], np.int8), LAYERS), call(LAYERS + 0.2j, 3), call(LAYERS + 0.2j, LAYERS - 0.1j),
    ],
    "absolute": [call(LAYERS - 0.4j)],
    "sign": [call(LAYERS - 0.4j)],
    "arctan2": [
        *(call(np.array([one]), np.array([other])) for one, other in product((-1.3, 0.4), (-0.7, 2.1))),
        call(np.array([0.0, 0.5]), np.array([0.8, 0.0])), call(0, LAYERS), call(LAYERS, -1),
        call(ints(100, 50), np.array([3.0, -90.0])),
    ],
    "copysign": [call(np.array([0.4, -0.6]), ints(-1, 1)), call(LAYERS, -1), call(2.0, LAYERS)],
    "remainder": [call(np.array([5.3, -5.3, 5.3]), np.array([2.0, 2.0, -2.0])), call(7, LAYERS), call(LAYERS, -1)],
    "clip": [
        call(LINE, np.array([-0.3, 0.1, 2.5, 4.0]), np.array([0.7, 4, 3.6, 3.8])),
        *(call(np.array([0.1, 0.9]), *limits) for limits in ((LAYERS, None), (None, LAYERS), (LAYERS, LAYERS - 0.1))),
        call(np.array([0.1, 0.9]), min=0.5, max=LAYERS), call(np.array([0.1, 0.9]), min=LAYERS), call(LAYERS, 0, 1),
        call(2, LAYERS, 1), call(0.1, LAYERS, 1.5),
    ],
    "where": [call(LAYERS, 1.0, LAYERS), call(True, LAYERS, 2), call(ints(0, 5), LAYERS[0], 1j * LAYERS)],
    "prod": [*(call(ZEROS, axis) for axis in (None, 0, 1, (0, 1), ())), call(ZEROS, -1, keepdims=True, initial=2.5),
             call(ZEROS, 1, where=ZEROS < 1), call(ZEROS * (1 + 1j), 1), call(ZEROS * (1 + 1j), 1, np.dtype(float)),
             call(LAYERS, (0, 2)), call(LAYERS, (2, 0))],
    "cumprod": [
        *(call(ZEROS, axis) for axis in (None, 0, 1)), call(ZEROS * (1 + 1j), 1), call(np.resize(ZEROS[:2], 37))],
    "max": [call(LAYERS, initial=0.5), call(LAYERS, (0, 2), initial=0.35), call(LAYERS, 0, initial=9)],
    "min": [call(LAYERS, 2, initial=0.5), call(LAYERS, initial=-9)],
    **{name: [
        *(call(values, 2, mean=mean, keepdims=kept, ddof=ddof) for values, mean, kept, ddof in product(
            (LAYERS, LAYERS - 0.3j), (np.array(0.2), np.array([[[0.1]], [[0.7]]])), (True, False), (0, 1))),
        call(LAYERS, 0, where=np.array([[True, False]]), mean=np.array([[[0.1, 0.2]]])), call(LAYERS - 0.3j, 0),
        call(np.float32(LAYERS), mean=np.float32(0.1)), call(ints(1, 2, 4), mean=np.array([1.5])),
    ] for name in ("var", "std")},
    "matmul": [
        *(call(points(one, complex, 2), points(other, complex)) for one, other in (
            ((2, 3), (3, 2)), ((2,), (3, 2, 2)), ((3, 2, 2), (2,)), ((2,), (2,)), ((3, 2), (2, 2)))),
        call(points((3, 2)), points((3, 4, 2, 2))), call(points((1, 2, 2)), array((3, 2, 1), np.int8)),
        call(points((2, 2), np.float32), points((2, 2))),
    ],
    "covariance": [call(points((2, 3), complex), 2.0), call(points((2, 3, 2), complex), 2.0),
                   call(points((3, 2), np.float32), 2)],
    "repeat": [call(ZEROS, (1, 0, 3), 1), call(ZEROS, (2, 0, 1, 1), -2), call(ZEROS, 0, 1),
               call(ZEROS, tuple(range(12)))],
    "setitem": [call(ZEROS, (ALL, 1), np.ones((1, 1, 4))), call(ZEROS, (0, 1), 2.5), call(ZEROS, 0, np.array(3.0))],
    "index_put": [
        *(call(ZEROS, key, value, accumulate=accumulate) for accumulate in (False, True) for key, value in (
            (ints(2, 2, 0), ZEROS[:3]), (ints(2, 2, 0), np.array(1.5)), ((SELECTION, 1), np.ones((1, 2, 1))),
            ((ALL, ints(0, 0)), ZEROS[:, :2]), (ZEROS > 0, np.array(2.0)), (ZEROS == 0, np.arange(6.0)),
            ((ZEROS[:, 0] == 0, ints(1)), np.arange(3.0)))),
    ],
    "index": [call(ZEROS, SELECTION), call(ZEROS, (SELECTION, None, 1)), call(ZEROS, (ZEROS[:, 1] > 0, ints(1)))],
    "take": [call(ZEROS, SELECTION, 0), call(ZEROS, ints(14, -15), mode="wrap"),
             call(ZEROS, ints(14, -1), 1, mode="clip")],
    "scatter_add": [call(ZEROS, ints([0, 0, 2]), ZEROS[:, :3], 1), call(ZEROS, ints([0, 0, 2]), np.array([[2.0]]), 1)],
    "linspace": [
        *(call(LAYERS, np.array([0.5]), num, endpoint, axis=axis) for num, endpoint, axis in product(
            (0, 1, 4), (True, False), (0, -1))),
        call(LAYERS, 2 - 1j), call(np.float32(LAYERS), 1.5), call(0, LAYERS),
    ],
    "full": [call((2, 1, 3), np.array([0.4])), call((2, 2), LAYERS[0])],
    "full_like": [call(ZEROS, np.array([0.4, 1, 2])), call(ZEROS, LAYERS[0], shape=(2, 2))],
    "astype": [call(LAYERS, np.dtype(complex)), call(LAYERS + 0.1j, np.dtype(np.complex64))],
    "real": [call(LAYERS + 0.1j), call(LAYERS)],
    "imag": [call(LAYERS + 0.1j), call(LAYERS)],
    "concatenate": [call((LAYERS, 2j * LAYERS, ints([[1, 2]])), 0), call((LAYERS, np.float32(LAYERS)), None)],
    "interp": [
        *(call(LAYERS, np.array([-0.9, 0.2, 0.5]), values, *ends) for values in (LINE[:3], LINE[1:] * 1j)
          for ends in ((), (np.array(0.5), np.array(0.7)))),
        call(np.array(0.3), np.array([0.1, 0.4]), np.array([2.0, 3.0])), call(LAYERS, np.array([0.1]), np.array([0.4])),
        call(LAYERS, np.array([-2.0, 0.2, 0.2, 0.5]), LINE),
    ],
    "stack": [call((LAYERS, 1j * LAYERS), -1), call((np.float32(LAYERS), LAYERS, ints([[1, 2]], [[3, 4]])), 1)],
}
"""Calls whose values matter to derivatives, where the operators are smooth nevertheless."""


@cache
def smooth_samples(name: str) -> list[Sample]:
    """Sample calls at which the operator is smooth in its floating-point and complex arguments, or says so by nan."""
    return [*POINTS.get(name, ()), *(smoothed(name, sample) for sample in samples(name))]


# --- what NumPy does -------------------------------------------------------------------------------------------------


def as_key(key):
    """Return a key as operators take it: a list is a tuple, as it is in any of their arguments."""
    return tuple(key) if isinstance(key, list) else key


def setitem(x, key, value):
    x = np.array(x)
    x[as_key(key)] = value
    return x


def index_put(x, key, values, accumulate=False):
    x, key = np.array(x), as_key(key)
    if accumulate:
        np.add.at(x, key, values if np.ndim(values) == 0 else np.broadcast_to(values, x[key].shape))
    else:
        x[key] = values
    return x


def scatter_add(x, indices, values, axis):
    x = np.array(x, order="C")
    places = np.take_along_axis(np.arange(x.size).reshape(x.shape), indices, axis)
    np.add.at(x.reshape(-1), places, np.broadcast_to(values, places.shape))
    return x


def linalg_solve_with(a, b, transposed=False, lower=False):
    a = np.tril(a) if lower else a
    return np.linalg.solve(np.swapaxes(a, -1, -2) if transposed else a, b)


def argpartition(a, kth, axis=-1):
    """Sort a few elements, after NumPy's check of the positions."""
    np.argpartition(a, kth, axis)
    return np.argsort(a, axis)


def slices_filled(g, indices, n, axis=0):
    """Choose by the matrix of `slice_sums`."""
    if g.shape[axis] != len(indices):
        raise ValueError("a sum for each slice")
    rows = np.moveaxis(g, axis, -1)[..., None]
    chosen = np.where(np.add.reduceat(np.eye(n, dtype=int), indices, 0), rows, 0)
    return np.moveaxis(chosen.sum(-2), -1, axis).astype(g.dtype)


def complex_numbers(real: Any, imag: Any) -> Any:
    """Return pairs of real numbers, read as complex ones."""
    dtype = np.result_type(real, imag)
    if dtype.kind == "c":
        raise TypeError("parts of complex numbers are real")
    pairs = np.stack(np.broadcast_arrays(real, imag), -1).astype(np.result_type(dtype, np.float32))
    return pairs.view(np.result_type(dtype, np.complex64))[..., 0]


def einsum(subscripts, x1, x2=None, others=(), **kwargs):
    """Return a copy, where NumPy's result is a view, or a scalar where it is one."""
    return np.einsum(subscripts, *[x for x in (x1, x2) if x is not None], *others, **kwargs).copy()


def covariance(a, divisor):
    """Compute covariances by the definition, since np.cov takes no stacks."""
    apart = np.asarray(a) - np.mean(a, -1, keepdims=True)
    number = np.asarray(divisor)[()]
    products = np.matmul(apart, np.asarray(apart.conj()).mT)
    return products / (number if number.dtype == np.uint64 else number.item())      # as its schema says


def writeable_diagonal(a, offset=0, axis1=0, axis2=1):
    """Return NumPy's writable views of diagonals, which are those of einsum."""
    first, second = normalize_axis_tuple((axis1, axis2), np.ndim(a))
    key = [slice(None)] * a.ndim
    key[first], key[second] = slice(max(-offset, 0), None), slice(max(offset, 0), None)
    n = min(a[tuple(key)].shape[axis] for axis in (first, second))
    key[first], key[second] = (slice(key[axis].start, key[axis].start + n) for axis in (first, second))
    letters = list(range(2, 2 + a.ndim))
    letters[first] = letters[second] = 0
    return np.einsum(a[tuple(key)], letters, [*[letter for letter in letters if letter], 0])


def windows(x, window_shape, axis=None):
    """Return overlapping windows, read-only: which of two values goes into an element is undefined."""
    found = np.lib.stride_tricks.sliding_window_view(x, window_shape, axis, writeable=True)
    if overlaps_itself(found):
        found.flags.writeable = False
    return found


def read_only(a):
    view = np.asarray(a).view()
    view.flags.writeable = False
    return view


STATEMENTS: dict[str, Callable[..., Any]] = {
    "complex": complex_numbers,
    "detach": lambda a: np.asarray(a).view(),
    "diagonal": writeable_diagonal,
    "sliding_window_view": windows,
    "read_only": read_only,
    "getitem": lambda x, key: np.asarray(x[as_key(key)]),
    "index": lambda x, key: x[as_key(key)],
    "setitem": setitem,
    "index_put": index_put,
    "scatter_add": scatter_add,
    "argpartition": argpartition,
    "linalg_solve_with": linalg_solve_with,
    "slice_sums": np.add.reduceat,
    "slices_filled": slices_filled,
    "sinc_derivative": sinc_derivative_of_double,
    "i0_derivative": i0_derivative_of_double,
    "einsum": einsum,
    "covariance": covariance,
    "interval": lambda x, xp: np.clip(np.searchsorted(xp, x, "right") - 1, 0, max(len(xp) - 2, 0)),
    "frexp_mantissa": lambda x: np.frexp(x)[0],
    "frexp_exponent": lambda x: np.frexp(x)[1],
}
"""The operators that NumPy has no function for, or one with another signature, spelled in NumPy."""


def astype(x, dtype, /, *, copy=True, device=None):
    if device not in (None, "cpu"):
        raise ValueError(device)
    return np.astype(x, dtype, copy=copy)


def clip(a, a_min=None, a_max=None, *, min=None, max=None, **kwargs):
    if (a_min is not None or a_max is not None) and (min is not None or max is not None):
        raise ValueError("two pairs of limits")
    return np.clip(a, a_min if min is None else min, a_max if max is None else max, **kwargs)


def reshape(a, shape, order="C", *, copy=None):
    if copy is False:
        view = a.view()
        view.shape = shape
        return view
    reshaped = np.reshape(a, shape, order)
    return reshaped.copy() if copy else reshaped


def take_along_axis(arr, indices, axis=-1):
    return np.take_along_axis(arr, indices, axis)


def lacks(function: Callable[..., Any], later: Callable[..., Any]) -> bool:
    """Return whether a later version of the function has one more parameter or default."""
    present = inspect.signature(function).parameters
    return any(
        name not in present or (present[name].default is parameter.empty and parameter.default is not parameter.empty)
        for name, parameter in inspect.signature(later).parameters.items())


LATER: dict[str, Callable[..., Any]] = {
    later.__name__: later for later in (astype, clip, reshape, take_along_axis)
    if lacks(getattr(np, later.__name__), later)
}
"""Functions as later versions of NumPy have them, in terms of this one, which does not."""


def of_arrays(comparison: Callable[..., Any]) -> Callable[..., Any]:
    """Return a comparison for NumPy 2.0, which crashes in `np.equal(np.ones((3, 4), np.int8)[:, ::2], 300)`."""
    def compare(*args, **kwargs):
        exact = all(np.result_type(x).kind in "iu" for x in args)
        return comparison(*(map(np.asarray, args) if exact else args), **kwargs)
    return compare


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
UNHARMED = {name: of_arrays(getattr(np, name)) for name in COMPARISONS if IS_NUMPY_2_0}


def concatenate(arrays, axis=0, out=None, *, casting="same_kind", **kwargs):
    """Concatenate. Older versions of NumPy do not accept the default explicitly."""
    return np.concatenate(arrays, axis, out, casting=casting, **kwargs)


def numpy_function(name: str) -> Callable[..., Any]:
    """Return the function that the operator must agree with."""
    if name == "concatenate":
        return concatenate
    return STATEMENTS.get(name) or LATER.get(name) or UNHARMED.get(name) or getattr(np, name)
