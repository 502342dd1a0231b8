"""Higher-order operators and what the tape has besides: fakes, checkpoints, hooks, anomaly detection, threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pydispatch import Tensor
from pydispatch.autograd import checkpoint, detect_anomaly, saved_tensors_hooks
from pydispatch.func import grad, vmap
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import FakeMode, FakeTensor
from tests.higher_order.compositions import same

X = np.array([1.0, 2.0, 3.0])
PROGRAMS = {
    "cond": (lambda x: cond(x.sum() > 0, lambda x: x * x, lambda x: x + 1, (x,)), 2 * X),
    "map": (lambda x: map_slices(lambda n: n * n, x), 2 * X),
    "scan": (lambda x: scan(lambda c, x: (c * x, c + x), 1.0, x)[1], np.array([4.0, 2.0, 1.0])),
    "while_loop": (lambda x: while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x * x), (0, x))[1], 4 * X**3),
    "associative_scan": (lambda x: associative_scan(lambda a, b: a * b, x), np.array([9.0, 4.0, 2.0])),
}
programs = pytest.mark.parametrize("name", PROGRAMS)


@programs
def test_checkpoint(name):
    f, gradient = PROGRAMS[name]
    x = Tensor(X, requires_grad=True)
    checkpoint(f, x).sum().backward()
    same(x.grad, gradient)


@programs
def test_saved_tensors_hooks(name):
    f, gradient = PROGRAMS[name]
    packed = []

    def pack(tensor):
        packed.append(tensor.detach().numpy().copy())
        return len(packed) - 1

    x = Tensor(X, requires_grad=True)
    with saved_tensors_hooks(pack, lambda place: Tensor(packed[place])):
        result = f(x)
    result.sum().backward()
    assert packed
    same(x.grad, gradient)


@programs
def test_anomaly_detection(name):
    f, gradient = PROGRAMS[name]
    x = Tensor(X, requires_grad=True)
    with detect_anomaly():
        f(x).sum().backward()
    same(x.grad, gradient)


@programs
def test_one_node(name):
    f, _ = PROGRAMS[name]
    result = f(Tensor(X, requires_grad=True))
    assert result.grad_fn.name == f"{name.title().replace('_', '')}Backward"
    assert [edge[0].is_leaf for edge in result.grad_fn.next_functions if edge[0] is not None] == [True]


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "while_loop"])
def test_fakes(name):
    f, gradient = PROGRAMS[name]
    x = FakeMode(allow_real_inputs=True).from_array(Tensor(X, requires_grad=True))
    f(x).sum().backward()
    assert type(x.grad) is FakeTensor
    assert x.grad.shape == gradient.shape


@programs
def test_threads(name):
    f, _ = PROGRAMS[name]

    def per_example(factor):
        return vmap(grad(lambda x: f(x).sum()))(np.stack([X * factor, X]))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(per_example, range(1, 9)))
    for factor, rows in enumerate(found, 1):
        same(rows[0], grad(lambda x: f(x).sum())(X * factor))
