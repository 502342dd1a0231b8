"""Data parallelism: one array for each worker, and programs that do not notice.

A Parallel array holds a list of arrays of one shape. An operator runs on the first arrays of all arguments, then on
the second ones, and so on. What is not Parallel goes to every worker. Numbers that come out have to agree, since the
program branches on them once for all.
"""

import numpy as np

from pydispatch import Tensor, ops
from pydispatch.subclasses import Shell, return_and_correct_aliasing
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

ARRAYS = (Tensor, np.ndarray, np.generic)


class Parallel(Tensor):
    """As many arrays as there are workers. It looks like one of them."""

    def __init__(self, pieces, *, requires_grad=False):
        if len({(piece.shape, piece.dtype) for piece in pieces}) != 1:
            raise ValueError(f"pieces differ: {[piece.shape for piece in pieces]}\nsplit the batch evenly")
        super().__init__(Shell(pieces[0]), requires_grad=requires_grad)
        self.pieces = list(pieces)

    def __repr__(self):
        return f"Parallel({', '.join(map(str, self.pieces))})"

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        numbers = {len(leaf.pieces) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls)}
        if len(numbers) != 1:
            raise ValueError(f"{func.name}: arrays for {sorted(numbers)} workers in one call")
        calls = [tree_map(piece_of(worker), (args, kwargs)) for worker in range(numbers.pop())]
        results = [func(*inner_args, **inner_kwargs) for inner_args, inner_kwargs in calls]
        leaves = [join(func, of_workers) for of_workers in zip(*map(tree_leaves, results), strict=True)]
        result = tree_unflatten(leaves, tree_flatten(results[0])[1])
        return return_and_correct_aliasing(func, args, kwargs, result)


def piece_of(worker):
    return lambda leaf: leaf.pieces[worker] if isinstance(leaf, Parallel) else leaf


def join(func, results):
    """Join the results of the workers for one output."""
    if isinstance(results[0], ARRAYS):
        return Parallel(results)
    if len(set(results)) != 1:
        raise ValueError(f"{func.name}: the workers disagree: {results}\nall_reduce it first")
    return results[0]


def scatter(array, n):
    """Deal out the rows of an array."""
    return Parallel(np.split(array, n))


def replicate(array, n):
    """Give every worker the same parameters."""
    return Parallel([array.copy() for _ in range(n)], requires_grad=True)


def all_reduce(parallel):
    """Average over workers, for each worker."""
    mean = sum(parallel.pieces) / len(parallel.pieces)
    return Parallel([mean] * len(parallel.pieces))


def main():
    """Fit a linear regression by three workers. The gradients are averaged, so the weights stay the same."""
    random = np.random.default_rng(0)
    truth, x = np.array([[2.0], [-1.0]]), random.normal(size=(60, 2))
    inputs, targets = scatter(x, 3), scatter(x @ truth, 3)
    weights = replicate(np.zeros((2, 1)), 3)
    for _ in range(100):
        ops.np.square(inputs @ weights - targets).mean().backward()
        gradient, weights.grad = all_reduce(weights.grad), None
        for piece, step in zip(weights.pieces, gradient.pieces, strict=True):
            piece -= 0.2 * step
    print(f"weights of each worker: {[piece.ravel().round(3).tolist() for piece in weights.pieces]}")
    try:
        float(ops.np.square(inputs).mean())
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    main()
