"""Whether a result without axes is a scalar is what NumPy decides, and is known without data."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, _core, compile, func
from pydispatch.higher_order import scan, while_loop
from pydispatch.ops import ops
from pydispatch.tracing import FakeMode
from pydispatch.tree import tree_leaves, tree_map
from tests.operators.samples import functional_names, samples
from tests.together import together


def with_arrays(change, sample):
    return tree_map(lambda leaf: change(leaf) if isinstance(leaf, np.ndarray) else leaf, tuple(sample))


def outcome(function, args, kwargs):
    with np.errstate(all="ignore"):
        try:
            return tree_leaves(function(*args, **kwargs))
        except Exception:
            return []


def as_tensor(array):
    return _core.to_scalar(Tensor(np.asarray(array))) if isinstance(array, np.generic) else Tensor(array)


def as_fake(mode, array):
    fake = mode.from_array(np.asarray(array))
    return _core.to_scalar(fake) if isinstance(array, np.generic) else fake


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("elements", [np.copy, lambda array: array.flat[0] if array.size else array],
                         ids=["arrays", "scalars"])
@pytest.mark.parametrize("name", functional_names())
def test_tensors_fakes_and_numpy_agree(name, elements):
    operator = getattr(ops.np, name)
    for sample in samples(name):
        kernels = outcome(operator, *with_arrays(elements, sample))
        found = outcome(operator, *with_arrays(lambda array: as_tensor(elements(array)), sample))
        mode = FakeMode(allow_real_inputs=True)
        with mode:
            fakes = outcome(operator, *with_arrays(lambda array, mode=mode: as_fake(mode, elements(array)), sample))
        for kernel, tensor, *fake in zip(kernels, found, *[fakes] * bool(fakes), strict=bool(found)):
            if isinstance(tensor, Tensor) and tensor.ndim == 0 and kernel.dtype.kind != "O":
                assert _core.is_scalar(tensor) == isinstance(kernel, np.generic), sample
                assert [_core.is_scalar(value) for value in fake] in ([], [_core.is_scalar(tensor)]), sample


ELEMENTS = {
    "getitem": lambda x: x[1], "sum": lambda x: x.sum(), "sin of an element": lambda x: np.sin(x[0]),
    "iteration": lambda x: next(iter(x)), "astype": lambda x: x[0].astype("f4"), "detach": lambda x: x.sum().real,
    "squeeze": lambda x: x[0].squeeze(), "dot": lambda x: x @ x, "empty key": lambda x: x.sum()[()],
    "copy of an element": lambda x: x[0].copy(), "kron": lambda x: pnp.kron(x[0], x[1]),
    "unravel_index": lambda x: pnp.unravel_index(pnp.argmax(x), (3, 1))[0], "lexsort": lambda x: pnp.lexsort((x[0],)),
    "isposinf": lambda x: pnp.isposinf(pnp.argmax(x)),
}
ARRAYS = {
    "Ellipsis": lambda x: x[1, ...], "index and Ellipsis": lambda x: x[pnp.argmin(x), ...],
    "array and Ellipsis": lambda x: x[np.array(1), ...], "zeros": lambda x: ops.np.zeros_like(x, shape=()),
    "reshape of an element": lambda x: x[0].reshape(()), "reshape": lambda x: x[:1].reshape(()),
    "copy": lambda x: ops.np.copy(x[0]), "where": lambda x: ops.np.where(x[0] > 0.0, x[0], 1.0),
}
WAYS = {
    "Tensor": lambda f, x: f(Tensor(x)), "grad": lambda f, x: func.value_and_grad(lambda x: (f(x) * 1.0).sum())(x)[0],
    "jvp": lambda f, x: func.jvp(f, (x,), (x,))[0], "vmap": lambda f, x: func.vmap(f)(x[None])[0],
    "functionalize": lambda f, x: func.functionalize(f)(x),
}


def seen(f, way):
    """Return whether what `f` returns is a scalar where it is called, and its value."""
    found = []

    def noting(x):
        value = f(x)
        found.append(_core.is_scalar(value))
        return value

    value = WAYS[way](noting, np.array([1.0, 2.0, 3.0]))
    return found[0], float(value)


@pytest.mark.parametrize("name", [*ELEMENTS, *ARRAYS])
@together("way", WAYS)
def test_every_way_to_run(name, way):
    f = (ELEMENTS | ARRAYS)[name]
    assert seen(f, way) == (name in ELEMENTS, float(f(Tensor(np.array([1.0, 2.0, 3.0])))))


@pytest.mark.parametrize("view", [lambda s: s.reshape(1), lambda s: s[None], lambda s: s[...], np.atleast_1d, np.ravel])
@together("way", WAYS)
def test_a_view_of_a_scalar_is_a_copy(view, way):
    def f(x):
        scalar = x[0]
        part = view(scalar)
        part[...] = 7.0
        return scalar + part.sum()

    assert seen(f, way)[1] == 8.0


WRITES = {
    "assignment": lambda s: s.__setitem__(Ellipsis, 1.0), "empty key": lambda s: s.__setitem__((), 1.0),
    "out": lambda s: np.add(1.0, 2.0, out=s), "operator": lambda s: ops.np.add_(s, 1.0),
    "at": lambda s: np.add.at(s, (), 1.0), "fill": lambda s: s.fill(1.0), "copyto": lambda s: np.copyto(s, 1.0),
}


@pytest.mark.parametrize("way", WAYS)
@together("write", WRITES.values(), ids=list(WRITES))
def test_a_scalar_is_not_written_to(write, way):
    def f(x):
        scalar = x[0]
        with pytest.raises(TypeError, match=r"is a scalar, which is immutable(.|\n)*y\[0, \.\.\.\]"):
            write(scalar)
        return scalar

    assert seen(f, way) == (True, 1.0)


@pytest.mark.parametrize("way", WAYS)
def test_augmented_assignment_binds_the_name(way):
    def f(x):
        total = first = x[0]
        total += x[1]
        total *= 2.0
        return total + 100.0 * first

    assert seen(f, way)[1] == 106.0


def test_what_a_user_makes_can_be_written_to():
    ones = Tensor(np.ones(2))
    for t in (Tensor(np.array(1.0)), Tensor(np.float64(1.0)), Tensor(ones[0]), ones[0, ...]):
        t += 1.0
        assert t == 2.0
        assert not _core.is_scalar(t)


KEYS = {
    "argmax": (lambda x: ops.np.argmax(x), True),
    "unravel_index": (lambda x: pnp.unravel_index(ops.np.argmax(x), (3, 1))[0], True),
    "NumPy's scalar": (lambda x: np.int64(2), True), "NumPy's array": (lambda x: np.array(2), False),
    "Tensor": (lambda x: Tensor(np.array(2)), True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KEYS)
def test_an_integer_selects_a_view_and_an_array_of_numpys_a_copy(name, way):
    key, is_view = KEYS[name]

    def f(x):
        rows = (x * 1.0).reshape(3, 1)
        row = rows[key(x)]
        row += 10.0
        return rows.sum()

    assert seen(f, way)[1] == (16.0 if is_view else 6.0)


def test_loops_whose_bodies_make_arrays_return_scalars():
    def step(total, v):
        pair = ops.np.zeros(2)
        pair[0] = v
        return total + pair[0] + ops.np.ones(2)[1], None

    for loop in (lambda x: scan(step, 0.5, x)[0],
                 lambda x: while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, step(t, x[i])[0]), (0, 0.5))[1]):
        found = compile(loop)(np.array([1.0, 2.0, 3.0]))
        assert type(found) is np.float64
        assert found == 9.5
