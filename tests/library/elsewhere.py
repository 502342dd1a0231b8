"""Another process, and functions and an operator that it can import from here."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

from pydispatch import higher_order, ops
from pydispatch.library import custom_op

CHECKOUT = Path(__file__).parents[2]
RECEIVER = """
import pickle, struct, sys, warnings
pipe, sys.stdout = sys.stdout.buffer, sys.stderr
while header := sys.stdin.buffer.read(8):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            function, args = pickle.loads(sys.stdin.buffer.read(*struct.unpack("q", header)))
            answer = function(*args), None
        except Exception as error:
            answer = None, f"{type(error).__name__}: {error}"
    data = pickle.dumps((*answer, [str(warning.message) for warning in caught]))
    pipe.write(struct.pack("q", len(data)) + data)
    pipe.flush()
"""


class Process:
    """A fresh process, which calls what it gets."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", RECEIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
        self.warnings: list[str] = []

    def send(self, data: bytes):
        """Return the result of a call, pickled as (function, arguments). RuntimeError with the error that it raised."""
        self.process.stdin.write(struct.pack("q", len(data)) + data)
        self.process.stdin.flush()
        (size,) = struct.unpack("q", self.process.stdout.read(8))
        result, error, self.warnings = pickle.loads(self.process.stdout.read(size))
        if error is not None:
            raise RuntimeError(error)
        return result

    def call(self, function, *args, by=pickle):
        """Return the result of a call of a function that is pickled by this module."""
        return self.send(by.dumps((function, args)))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def energy(x):
    return ops.np.sum(ops.np.sin(x) * x)


def made_here():
    """Return an operator that the import of this module defines, though not in the module's own lines."""
    @custom_op("elsewhere::double", mutates_args=())
    def double(x: np.ndarray) -> np.ndarray:
        return x * 2

    return double


double = made_here()

TWICE = higher_order.HigherOrderOperator("elsewhere_twice")


@TWICE.py_impl("CompositeImplicitAutograd")
def twice(f, x):
    return 2 * f(x)


def twice_energy(x):
    """Return a function that calls an operator on functions."""
    return TWICE(energy, x)
