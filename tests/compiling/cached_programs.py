"""Programs that test_cache.py runs in other processes: `python -m tests.compiling.cached_programs DIRECTORY`.

Prints a line for each program: its name, the bytes of its results, and why it was compiled or not.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np

import pydispatch.numpy as pnp
import pydispatch.scipy.special as special
from pydispatch import Tensor, compile, func, ops
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.scipy.integrate import odeint
from pydispatch.tree import tree_leaves

X = np.linspace(0.1, 2.0, 12).reshape(4, 3)
WEIGHTS = {"w": np.linspace(-1.0, 1.0, 9).reshape(3, 3), "b": np.float64(0.5)}


class Model:
    """A function with weights."""

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.layers = [np.eye(3), np.ones((3, 3))]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = pnp.tanh(x @ layer) * self.scale
        return x


def loss(params: dict[str, Any], x: Any) -> Any:
    return pnp.mean((pnp.tanh(x @ params["w"] + params["b"]) - WEIGHTS["w"][0]) ** 2)


def branches(x: Any) -> Any:
    return cond(pnp.sum(x) > 3.0, lambda x: x * 2.0, lambda x: x - 1.0, (x,))


def steps(x: Any) -> Any:
    return scan(lambda c, row: (pnp.tanh(c * row), pnp.sum(c)), x[0], x)


def until(x: Any) -> Any:
    return while_loop(lambda x: pnp.sum(x) < 100.0, lambda x: (x * 1.5 + 1.0,), (x,))


def velocity(y: Any, t: Any) -> Any:
    return pnp.stack([y[1], -y[0] * t])


def path(y: Any, t: Any) -> Any:
    return pnp.sum(odeint(velocity, y, t)[-1])


def written(x: Any) -> Any:
    y = pnp.copy(x)
    y[1:] += x[:-1]
    return y


PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "gradient": (func.value_and_grad(loss), (WEIGHTS, X), {}),
    "model": (Model(0.5).__call__, (X,), {}),
    "branches": (branches, (X,), {}),
    "scan": (func.grad(lambda x: pnp.sum(steps(x)[1])), (X,), {}),
    "until": (until, (X,), {}),
    "path": (func.grad(path), (np.array([1.0, 0.0]), np.linspace(0.0, 1.0, 5)), {}),
    "calls": (lambda x: (pnp.linalg.pinv(x)[::-1], np.linalg.eig(x[:3])[0]), (X,), {}),
    "rows": (lambda x: (pnp.sort(x), pnp.argsort(x), pnp.searchsorted(x[0], x[1]), pnp.linalg.solve(x[:3], x[3]),
                        pnp.fft.fft(x), pnp.convolve(x[0], x[1]), pnp.interp(x[0], x[1], x[2])), (X,), {}),
    "special": (lambda x: special.gammaln(x) + ops.scipy.special_erf(x), (X,), {}),
    "large": (lambda x: pnp.sum(pnp.exp(x) * 2.0 + x, axis=1), (np.ones((3000, 8)) / 3,), {"threads": 2}),
    "gather": (lambda x, i: (x[i], pnp.take_along_axis(x, i[:, None], axis=1)), (X, np.array([0, 2, 1, 0])), {}),
    "structure": (lambda p, k: {"a": [p["x"] * k, None], "b": (pnp.sum(p["x"]), "name", 1.5)}, ({"x": X}, 3), {}),
    "tensor": (lambda x: pnp.cumsum(x, axis=0), (Tensor(X),), {}),
    "scalars": (lambda x, y: (x * y, pnp.sqrt(x)), (np.float64(2.5), np.float32(3.0)), {}),
    "static": (lambda x, name: x * len(name), (X, ("a", "b")), {"static_argnums": 1}),
    "donated": (lambda x: x * 2.0 + 1.0, (X.copy(),), {"donate": 0}),
    "written": (written, (X,), {}),
    "dtypes": (lambda x: (x.astype(np.float32), x > 1.0, x * 1j, pnp.argmax(x, axis=1)), (X,), {}),
    "empty": (lambda x: pnp.concatenate([x, x]), (np.zeros((0, 3)),), {}),
}


def main(directory: str) -> None:
    for name, (function, arguments, options) in PROGRAMS.items():
        compiled = compile(function, cache=directory, **options)
        leaves = tree_leaves(compiled(*arguments))
        found = [(type(leaf).__name__, np.asarray(leaf).dtype.str, np.shape(leaf), np.asarray(leaf).tobytes())
                 for leaf in leaves if leaf is not None]
        print(name, hashlib.sha256(repr(found).encode()).hexdigest(), compiled._reasons[0], sep="\t")


if __name__ == "__main__":
    main(sys.argv[1])
