"""Sums of products over named axes: `einsum`.

A *term* names the axes of one operand, a letter each. Results that depend only on subscripts and shapes are computed
once and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from numpy._core.multiarray import c_einsum

from pydispatch._core import MetaArray, is_of_numpy
from pydispatch.operators.batching import rank, reshaped
from pydispatch.operators.declare import declare, operators, range_like
from pydispatch.operators.meta import dtype_of, shape_of

einsum, ones_like = operators("einsum", "ones_like")

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The names of axes. The module `string`, which has them too, takes a while to import."""

SMALL = 600
"""Up to this number of products, NumPy's loop over all axes is faster than the preparation of a product of matrices."""
LOOKED_UP = 4096
"""Up to this product of the numbers of elements, nothing is looked up. It is that of two matrices of 8x8."""
OF_VECTORS = 10_000
"""From this number of products on, BLAS is faster than that loop if an operand is a vector."""
OF_BLAS = "fdFD"
"""The dtypes whose matrices BLAS multiplies."""


class Terms:
    """Subscripts with a letter for each axis, without an ellipsis or implicit axes."""

    __slots__ = ("operands", "result")

    def __init__(self, operands: tuple[str, ...], result: str):
        self.operands = operands
        self.result = result

    def __str__(self):
        return f"{','.join(self.operands)}->{self.result}"


@lru_cache(maxsize=1024)
def terms_of(subscripts: str, ranks: tuple[int, ...]) -> Terms:
    """Return the terms of operands with `ranks` axes. Raise ValueError if subscripts and axes do not agree."""
    left, arrow, result = [part.replace(" ", "") for part in subscripts.partition("->")]
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"einsum: {subscripts!r} names {len(terms)} operands, but {len(ranks)} were passed\n"
                         "separate the axes of operands by commas, as in 'ij,jk->ik'")
    for letter in left.replace("...", "").replace(",", "") + result.replace("...", ""):
        if letter not in LETTERS:
            raise ValueError(f"einsum: {letter!r} in {subscripts!r} names no axis\n"
                             "name each axis by a letter, as in 'ij,jk->ik'")
    free = [letter for letter in LETTERS if letter not in left + result]
    most = max([ndim - len(term) + 3 for term, ndim in zip(terms, ranks, strict=True) if "..." in term], default=0)
    if most > len(free) or most < 0:
        raise ValueError(f"einsum: the ellipsis in {subscripts!r} covers {most} axes of operands with {ranks} axes, "
                         f"expected 0 to {len(free)}\nname fewer axes")
    ellipsis = "".join(free[:most])
    expanded = []
    for term, ndim in zip(terms, ranks, strict=True):
        n = ndim - len(term) + 3
        term = term.replace("...", ellipsis[most - n:] if n > 0 else "") if "..." in term else term
        if len(term) != ndim:
            raise ValueError(f"einsum: {term!r} of {subscripts!r} names {len(term)} axes, the operand has {ndim}\n"
                             "name all of them, or write ... for the others")
        expanded.append(term)
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        result = ellipsis + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    elif "..." in result:
        result = result.replace("...", ellipsis)
    elif ellipsis:
        raise ValueError(f"einsum: the result of {subscripts!r} lacks the ellipsis of the operands\n"
                         f"write ->...{result}")
    if len(set(result)) < len(result) or not set(result) <= set("".join(expanded)):
        raise ValueError(f"einsum: the axes of the result of {subscripts!r} are not axes of operands, once each\n"
                         "after ->, use only axes from before it, each once")
    return Terms(tuple(expanded), result)


def extents_of(terms: Terms, shapes) -> dict[str, int]:
    """Return the length of each axis. Raise ValueError if operands disagree.

    An axis of one element is repeated.
    """
    extents: dict[str, int] = {}
    for term, shape in zip(terms.operands, shapes, strict=True):
        for letter, extent in zip(term, shape, strict=True):
            known = extents.setdefault(letter, extent)
            if known != extent and 1 not in (known, extent):
                raise ValueError(f"einsum: axis {letter!r} has {known} elements in one operand, {extent} in another\n"
                                 "name them by two letters, or pass operands that agree")
            if known == 1:
                extents[letter] = extent
    return extents


# --- the kernel ------------------------------------------------------------------------------------------------------


def einsum_kernel(subscripts, x1, x2=None, others=None, *, dtype=None, casting="safe", optimize=False):
    """Compute the sum of products.

    Two operands are multiplied as matrices where possible. More operands are contracted two at a time if that takes far
    fewer products, or with `optimize`.
    """
    if x2 is None:
        result = c_einsum(subscripts, x1, dtype=dtype, casting=casting)
        return result.copy() if isinstance(result, np.ndarray) and result.base is not None else result
    if dtype is not None or casting != "safe":
        return c_einsum(subscripts, x1, x2, *(others or ()), dtype=dtype, casting=casting)
    if others is None:
        if type(x1) is type(x2) is np.ndarray and x1.size * x2.size > LOOKED_UP:
            product = product_of_two(subscripts, x1.shape, x2.shape)
            if product is not None and x1.dtype is x2.dtype and x1.dtype.char in OF_BLAS:
                return product.of(x1, x2)
        return c_einsum(subscripts, x1, x2)
    operands = [np.asarray(x) for x in (x1, x2, *others)]
    shapes = tuple([x.shape for x in operands])
    if not optimize and not is_shortened(subscripts, shapes):
        return c_einsum(subscripts, *operands)
    for positions, names, product in steps_of(subscripts, shapes):
        chosen = taken_off(operands, positions)
        operands.append(c_einsum(names, *chosen) if product is None else product.of(*chosen))
    return operands[0]


@lru_cache(maxsize=1024)
def is_shortened(subscripts, shapes):
    """Return whether contractions of two operands at a time take far fewer products than a loop over all axes."""
    terms = terms_of(subscripts, tuple(map(len, shapes)))
    extents = extents_of(terms, shapes)
    n = prod(extents.values())
    return n > OF_VECTORS and 2 * sum([prod([extents[letter] for letter in {*names} - {*",->"}])
                                       for _, names, _ in steps_of(subscripts, shapes)]) < n


def products_of_call(
    subscripts: str, operands: Sequence[Any], dtype: Any = None, casting: str = "safe", optimize: Any = False
) -> list[tuple[Any, MatrixProduct]] | None:
    """Return the contractions of a call as (positions, product of matrices), or None if the kernel has other loops."""
    shapes = tuple([x.shape for x in operands])
    if (dtype is not None or casting != "safe" or len({x.dtype for x in operands}) != 1 or len(operands) < 2
            or operands[0].dtype.char not in OF_BLAS
            or (prod([x.size for x in operands]) <= LOOKED_UP if len(operands) == 2 else
                not optimize and not is_shortened(subscripts, shapes))):
        return None
    steps = [(positions, product) for positions, _, product in steps_of(subscripts, shapes)]
    return None if any(product is None for _, product in steps) else steps


Axes = tuple[int, ...] | None


class MatrixProduct:
    """A sum of products of two arrays as a product of stacks of matrices.

    `left` and `right` are the order and the shape of an operand. None means that nothing is to be done.
    """

    __slots__ = ("left", "order", "right", "shape")

    def __init__(self, left: tuple[Axes, Axes], right: tuple[Axes, Axes], shape: Axes, order: Axes):
        self.left = left
        self.right = right
        self.shape = shape
        self.order = order

    def of(self, left, right):
        result = np.matmul(arranged(left, *self.left), arranged(right, *self.right))
        if self.shape is not None:
            result = result.reshape(self.shape)
        return result if self.order is None else result.transpose(self.order)


def arranged(x: Any, order: Any, shape: Any) -> Any:
    x = x if order is None else x.transpose(order)
    return x if shape is None else x.reshape(shape)


@lru_cache(maxsize=1024)
def steps_of(subscripts, shapes):
    """List the contractions in order: positions of operands, subscripts, and the product of matrices or None."""
    terms = terms_of(subscripts, tuple(map(len, shapes)))
    extents = extents_of(terms, shapes)
    known = [(term, shape) for term, shape in zip(terms.operands, shapes, strict=True)]
    steps = []
    for positions in path_of(str(terms), shapes):
        chosen = taken_off(known, positions)
        names = Terms(tuple([term for term, _ in chosen]), result_of_step(chosen, known, terms.result))
        product = matrix_product(names, [shape for _, shape in chosen], extents) if len(chosen) == 2 else None
        steps.append((positions, str(names), product))
        known.append((names.result, tuple([extents[letter] for letter in names.result])))
    return steps


def taken_off(operands: list[Any], positions: Sequence[int]) -> list[Any]:
    """Remove the operands at these descending positions from the list, and return them in the list's order."""
    return [operands.pop(i) for i in positions][::-1]


@lru_cache(maxsize=1024)
def product_of_two(subscripts, *shapes):
    """Return the product of matrices that computes a sum of products of two arrays.

    Returns None if it is not such a product, or would be slower as one.
    """
    (_, _, product), = steps_of(subscripts, shapes)
    return product


def result_of_step(chosen: Sequence[tuple[str, Any]], rest: Sequence[tuple[str, Any]], result: str) -> str:
    """Return the axes that are needed after a step.

    After the last step, these are the axes of the result, in its order.
    """
    if not rest:
        return result
    needed = set(result).union(*[term for term, _ in rest])
    return "".join(dict.fromkeys(letter for term, _ in chosen for letter in term if letter in needed))


@lru_cache(maxsize=1024)
def path_of(subscripts, shapes, optimize="greedy"):
    """Return the operands to contract in each step, as positions from the last to the first."""
    if len(shapes) == 2:
        return ((1, 0),)
    stands = [np.broadcast_to(np.empty(()), shape) for shape in shapes]
    path, _ = np.einsum_path(subscripts, *stands, optimize=list(optimize) if type(optimize) is tuple else optimize)
    return tuple([tuple(sorted(positions, reverse=True)) for positions in path[1:]])


def matrix_product(terms, shapes, extents):
    """Return how these two operands are multiplied as matrices, or None if they are not."""
    left, right = terms.operands

    def lengths_of(letters):
        return tuple([extents[letter] for letter in letters])

    if (len(set(left)) < len(left) or len(set(right)) < len(right) or list(shapes) != [*map(lengths_of, terms.operands)]
            or prod(extents[letter] for letter in {*left, *right}) <= SMALL):
        return None
    stack = [letter for letter in terms.result if letter in left and letter in right]
    summed = [letter for letter in left if letter in right and letter not in terms.result]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]
    if not summed or not set(rows + columns) <= set(terms.result):
        return None
    if not (rows and columns) and prod(lengths_of([*rows, *summed, *columns])) < OF_VECTORS:
        return None
    names = [*stack, *rows, *columns]

    def order(letters, term):
        found = tuple([term.index(letter) for letter in letters])
        return None if found == tuple(range(len(found))) else found

    def shape(letters, *groups):
        wanted = lengths_of(stack) + tuple([prod(lengths_of(group)) for group in groups])
        return None if wanted == lengths_of(letters) else wanted

    result_order = tuple([names.index(letter) for letter in terms.result])
    return MatrixProduct(
        (order([*stack, *rows, *summed], left), shape([*stack, *rows, *summed], rows, summed)),
        (order([*stack, *summed, *columns], right), shape([*stack, *summed, *columns], summed, columns)),
        None if len(rows) == len(columns) == 1 else lengths_of(names),
        None if result_order == tuple(range(len(names))) else result_order)


def einsum_meta(subscripts, x1, x2=None, others=None, *, dtype=None, casting="safe", optimize=False):
    """Infer the metadata: the shape from the terms, the dtype by NumPy on scalars."""
    operands = [x1, *([] if x2 is None else [x2]), *(others or ())]
    shapes = [shape_of(x) for x in operands]
    terms = terms_of(subscripts, tuple(map(len, shapes)))
    extents = extents_of(terms, shapes)
    probes = [np.empty((), dtype_of(x)) for x in operands]
    result = c_einsum(f"{',' * (len(probes) - 1)}->", *probes, dtype=dtype, casting=casting)
    return MetaArray(tuple([extents[letter] for letter in terms.result]), dtype_of(result))


# --- derivatives and batches -----------------------------------------------------------------------------------------


class Transposed:
    """The computation of one operand's gradient: subscripts for the gradient of the result and the other operands.

    `constants` are operands that follow: (extent, 1) for ones where the gradient is repeated, (extent, 2) for the
    identity, which puts it on a diagonal. Axes of one element that were repeated are summed, and added by `shape`.
    `multiply` is a function of two raw arrays, where nothing else is to be done.
    """

    __slots__ = ("constants", "multiply", "optimize", "shape", "subscripts")

    def __init__(self, subscripts: str, constants: tuple[tuple[int, int], ...], shape: Axes, optimize: bool,
                 multiply: Callable | None):
        self.subscripts = subscripts
        self.constants = constants
        self.shape = shape
        self.optimize = optimize
        self.multiply = multiply


@lru_cache(maxsize=1024)
def transposed(subscripts, i, *shapes):
    """Plan the gradient of operand `i`, for operands of these shapes."""
    terms = terms_of(subscripts, tuple(map(len, shapes)))
    extents = extents_of(terms, shapes)
    own, own_shape = terms.operands[i], shapes[i]
    others = [term for k, term in enumerate(terms.operands) if k != i]
    other_shapes = [shape for k, shape in enumerate(shapes) if k != i]
    whole = set(terms.result).union(*[
        [letter for letter, extent in zip(term, shape, strict=True) if extent == extents[letter]]
        for term, shape in zip(others, other_shapes, strict=True)])
    free = iter([letter for letter in LETTERS if letter not in str(terms)])
    result, constants, constant_terms, seen = "", [], [], set()
    for letter, extent in zip(own, own_shape, strict=True):
        if extent != extents[letter]:
            continue
        if letter in seen:
            other = next(free)
            constants.append((extent, 2))
            constant_terms.append(letter + other)
            letter = other
        elif letter not in whole:
            constants.append((extent, 1))
            constant_terms.append(letter)
        seen.add(letter)
        result += letter
    names = Terms((terms.result, *others, *constant_terms), result)
    is_whole = len(result) == len(own)
    multiply = None
    if len(others) == 1 and not constants and is_whole:
        multiply = multiplication(names, [tuple([extents[letter] for letter in terms.result]), *other_shapes], extents)
    return Transposed(str(names), tuple(constants), None if is_whole else own_shape,
                      prod(extents.values()) > SMALL, multiply)


def multiplication(terms, shapes, extents) -> Callable:
    """Return the fastest function of two raw arrays that computes these terms."""
    if all(terms.result.endswith(term) for term in terms.operands):
        return np.multiply
    product = matrix_product(terms, shapes, extents)
    return partial(c_einsum, str(terms)) if product is None else product.of


def constant(g, extent, ndim):
    """Return a vector of ones or an identity matrix.

    It has truth values, which do not change the dtype of a product.
    """
    if ndim == 1:
        return np.broadcast_to(np.True_, (extent,)) if is_of_numpy(g) else ones_like(g, dtype=bool, shape=(extent,))
    positions = range_like(g, extent)
    return reshaped(positions, (extent, 1)) == positions


def einsum_vjp(g, found, others):
    """Compute the gradient of an operand as planned in `found`, from the other operands."""
    names, shape, optimize = found.subscripts, found.shape, found.optimize
    factors = (*others, *[constant(g, *each) for each in found.constants])
    if not factors:
        result = einsum(names, g)
    elif len(factors) == 1:
        result = einsum(names, g, factors[0], optimize=optimize)
    else:
        result = einsum(names, g, factors[0], factors[1:], optimize=optimize)
    return result if shape is None else reshaped(result, shape)


def shape(x):
    return tuple(getattr(x, "shape", ()))


def vjp_of_first(g, subscripts, x1_shape, x2, others):
    if others is None and type(x2) is np.ndarray:
        found = transposed(subscripts, 0, x1_shape, x2.shape)
        if found.multiply is not None and is_of_numpy(g):
            return found.multiply(g, x2)
        return einsum_vjp(g, found, (x2,))
    rest = () if x2 is None else (x2, *(others or ()))
    return einsum_vjp(g, transposed(subscripts, 0, x1_shape, *map(shape, rest)), rest)


def vjp_of_second(g, subscripts, x1, x2_shape, others):
    if others is None and type(x1) is np.ndarray:
        found = transposed(subscripts, 1, x1.shape, x2_shape)
        if found.multiply is not None and is_of_numpy(g):
            return found.multiply(g, x1)
        return einsum_vjp(g, found, (x1,))
    rest = (x1, *(others or ()))
    return einsum_vjp(g, transposed(subscripts, 1, shape(x1), x2_shape, *map(shape, rest[1:])), rest)


def vjp_of_others(g, subscripts, x1, x2, others):
    operands = (x1, x2, *others)
    shapes = tuple(map(shape, operands))
    return tuple([einsum_vjp(g, transposed(subscripts, i, *shapes), operands[:i] + operands[i + 1:])
                  for i in range(2, len(operands))])


def jvp_of_others(t, subscripts, x1, x2, others):
    """Return the sum over the operands of the product with the operand replaced by its tangent."""
    total = None
    for i, tangent in enumerate(t):
        if tangent is not None:
            term = einsum(subscripts, x1, x2, (*others[:i], tangent, *others[i + 1:]))
            total = term if total is None else total + term
    return total


def einsum_batch(op, info, in_dims, subscripts, x1, x2, others, dtype, casting, optimize):
    """Add a batch axis to the operands that are batches, and to the result."""
    operands = [x1, *([] if x2 is None else [x2]), *(others or ())]
    dims = [in_dims[1], *([] if x2 is None else [in_dims[2]]), *(in_dims[3] or (None,) * len(others or ()))]
    terms = terms_of(subscripts, tuple([rank(x) - (dim == 0) for x, dim in zip(operands, dims, strict=True)]))
    axis = next(letter for letter in LETTERS if letter not in str(terms))
    batched = [axis + term if dim == 0 else term for term, dim in zip(terms.operands, dims, strict=True)]
    names = str(Terms(tuple(batched), axis + terms.result))
    return op(names, x1, x2, others, dtype=dtype, casting=casting, optimize=optimize), 0


declare("einsum", "str subscripts, Tensor x1, Tensor? x2=None, Tensor[]? others=None, *, ScalarType? dtype=None, "
        'str casting="safe", bool optimize=False', einsum_kernel, einsum_meta, tags=("linalg",), vmap=einsum_batch,
        vjp=(vjp_of_first, vjp_of_second, vjp_of_others), jvp=(
            lambda t, subscripts, x2, others: einsum(subscripts, t, x2, others),
            lambda t, subscripts, x1, others: einsum(subscripts, x1, t, others),
            jvp_of_others))
