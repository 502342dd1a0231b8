"""Universal functions of anybody, and functions that Numba compiles, are kernels as they are."""

import numpy as np
import pytest

from pydispatch import Tensor, _core, func, ops
from pydispatch import compile as compile_function
from pydispatch.library import custom_op

numba = pytest.importorskip("numba")


def product_plus_one(x, y):
    return x * y + 1


def fill_with_products(x, y, result):
    for i in range(len(x)):
        result[i] = x[i] * y[i] + 1


KERNELS = {
    "np.frompyfunc": np.frompyfunc(product_plus_one, 2, 1),
    "np.vectorize": np.vectorize(product_plus_one, otypes=[float]),
    "vectorize, types on demand": numba.vectorize(product_plus_one),
    "vectorize, types given": numba.vectorize(["int64(int64,int64)", "float64(float64,float64)"])(product_plus_one),
    "guvectorize": numba.guvectorize(["(float64[:],float64[:],float64[:])"], "(n),(n)->(n)")(fill_with_products),
    "njit": numba.njit(product_plus_one),
}
ROW, ROWS = np.array([1.0, 2.0, 3.0]), np.arange(6.0).reshape(2, 3)
ARGUMENTS = {"rows": (ROW, ROW), "broadcast": (ROWS, ROW), "strided": (np.arange(6.0)[::2], ROW),
             "ints": (np.arange(3), np.arange(3)), "0-d": (np.array(2.0), np.array(3.0)), "a number": (ROW, 2.0)}
TAKES_NO_NUMBERS = "guvectorize"


@pytest.fixture(scope="module", params=KERNELS)
def kernel(request):
    return request.param


@pytest.fixture(scope="module")
def op(kernel):
    op = custom_op("compiled_kernels::f", KERNELS[kernel], mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor")
    op.register_fake(ops.np.add)
    op.register_autograd(lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
                         setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    op.register_vmap(lambda info, in_dims, x, y: (op(x, y), 0))
    return op


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_the_result_is_the_kernels(kernel, op, arguments):
    args = ARGUMENTS[arguments]
    if kernel == TAKES_NO_NUMBERS and (arguments in ("0-d", "a number")):
        with pytest.raises(ValueError, match="does not have enough dimensions"):
            op(*args)
        return
    expected = np.asarray(KERNELS[kernel](*args))
    np.testing.assert_array_equal(expected.astype(float), args[0] * args[1] + 1)
    found, of_tensors = op(*args), op(Tensor(args[0]), args[1])
    assert type(of_tensors) is Tensor
    for array in (np.asarray(found), of_tensors.numpy()):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(array, expected)


def test_derivatives_and_batches_come_by_the_declarations(kernel, op):
    if kernel == "np.frompyfunc":       # its results are objects, which are not differentiated
        return
    gradient = func.grad(lambda x: op(x, ROW).sum())
    np.testing.assert_array_equal(gradient(ROW), ROW)
    np.testing.assert_array_equal(func.vmap(gradient)(np.ones((2, 3))), np.tile(ROW, (2, 1)))
    np.testing.assert_array_equal(func.vmap(op)(np.ones((2, 3)), np.ones((2, 3))), np.full((2, 3), 2.0))
    compiled = compile_function(lambda x, y: op(x, y) * 2.0)
    np.testing.assert_array_equal(compiled(ROW, ROW), 2.0 * (ROW * ROW + 1))


# --- ufuncs of Numba, and of SciPy -----------------------------------------------------------------------------------


def test_loops_of_numba_are_called_directly():
    ufunc = KERNELS["vectorize, types given"]
    np.testing.assert_array_equal(_core.loop_result(ufunc, ROW, ROW), ROW * ROW + 1)
    assert _core.loop_result(ufunc, np.arange(3), np.arange(3)).dtype == int


def test_a_loop_that_numba_adds_later_is_found():
    ufunc = numba.vectorize(lambda x: x + 1)
    assert _core.loop_result(ufunc, ROW) is NotImplemented
    ufunc.add("int64(int64)")
    assert _core.loop_result(ufunc, np.arange(3)).tolist() == [1, 2, 3]
    assert _core.loop_result(ufunc, ROW) is NotImplemented
    ufunc.add("float64(float64)")
    assert _core.loop_result(ufunc, ROW).tolist() == [2.0, 3.0, 4.0]
    assert _core.loop_result(ufunc, np.arange(3)).dtype == int


@numba.vectorize(["float32(float32)", "float64(float64)"])
def root(x):
    if x < 0:
        raise ValueError("a negative number")
    return x ** 0.5


LOOPS = {
    "float64": lambda x: _core.loop_result(root, x), "strided": lambda x: _core.loop_result(root, x[::2]),
    "float32": lambda x: _core.loop_result(root, x.astype("f4")), "NumPy": root,
    "operator": lambda x: ops.compiled_kernels.root(x),
    "tape": lambda x: ops.compiled_kernels.root(Tensor(x, requires_grad=True)),
    "vmap": lambda x: func.vmap(ops.compiled_kernels.root)(x[:, None]),
    "plan": compile_function(lambda x: ops.compiled_kernels.root(x) + 1.0),
}


@pytest.fixture(scope="module", autouse=True)
def operator_of_root():
    op = custom_op("compiled_kernels::root", root, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_fake(lambda x: ops.np.sqrt(x))
    op.register_autograd(lambda ctx, g: g)
    op.register_vmap(lambda info, in_dims, x: (op(x), 0))


@pytest.mark.parametrize("call", LOOPS.values(), ids=list(LOOPS))
def test_what_a_loop_raises_is_raised(call):
    call(np.array([4.0, 1.0, 9.0]))
    with pytest.raises(ValueError, match="a negative number"):
        call(np.array([-4.0, 1.0, 9.0]))
    call(np.array([4.0, 1.0, 9.0]))
