"""Methods and attributes of `ndarray` on Tensors, against ndarray itself."""

import io
import pickle
from contextlib import nullcontext

import numpy as np
import pytest

from pydispatch import Tensor, compile, func, ops
from pydispatch.autograd import grad
from pydispatch.exceptions import AutogradError, ConversionError, DispatchTypeError
from pydispatch.numpy import methods
from pydispatch.tracing import make_fx
from tests.together import together

ARRAY = np.array([[3.0, 1.0, 2.0], [2.0, 5.0, 4.0]])
RESULTS = {
    "flatten": lambda x: x.flatten(), "flatten, F": lambda x: x.flatten("F"), "argsort": lambda x: x.argsort(axis=0),
    "view": lambda x: x.view(), "view, dtype": lambda x: x.view(np.int64), "flat": lambda x: x.flat[1:4],
    "flat, list": lambda x: x.flat[[0, -1]], "flat, all": lambda x: np.asarray(x.flat),
    "flat.copy": lambda x: x.flat.copy(),
}


@pytest.mark.parametrize("call", RESULTS.values(), ids=list(RESULTS))
def test_results_are_numpys(call):
    found = call(Tensor(ARRAY.copy()))
    np.testing.assert_array_equal(found.array if isinstance(found, Tensor) else found, call(ARRAY.copy()), strict=True)


def set_flat(x):
    x.flat = [7.0, 8.0]


WRITES = {
    "sort": lambda x: x.sort(), "sort, axis": lambda x: x.sort(0), "fill": lambda x: x.fill(7), "flat": set_flat,
    "flat[0]": lambda x: x.flat.__setitem__(0, 9), "flat[list]": lambda x: x.flat.__setitem__([0, 4], [9, 8]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_writes_are_numpys(write):
    array, t = ARRAY.copy(), Tensor(ARRAY.copy())
    write(array), write(t)
    np.testing.assert_array_equal(t.array, array)


def test_a_sort_in_place_has_a_gradient():
    x = Tensor(np.array([3.0, 1.0, 2.0]), requires_grad=True)
    y = x * 1.0
    y.sort()
    assert grad((y * np.array([1.0, 10.0, 100.0])).sum(), x)[0].tolist() == [100, 1, 10]


def test_numbers_leave_as_from_numpys_array():
    t = Tensor(ARRAY)
    assert t.tobytes() == ARRAY.tobytes()
    assert pickle.loads(t.dumps()).tolist() == ARRAY.tolist()
    file = io.BytesIO()
    t.dump(file)
    assert pickle.loads(file.getvalue()).tolist() == ARRAY.tolist()
    assert t.flags.writeable
    assert not t[0, 0].flags.writeable
    assert not ops.np.read_only(t).flags.writeable


BASES = {
    "a slice": lambda x: x[1:], "a row": lambda x: x[0], "a transpose": lambda x: x.T, "all": lambda x: x[:],
    "a reshape": lambda x: x.reshape(-1), "a view of a view": lambda x: x.T[1:][::-1], "itself": lambda x: x,
    "a scalar": lambda x: x[0, 0],
    "a copy": lambda x: x[[0, 1]], "a result": lambda x: x * 2.0, "a view of a result": lambda x: (x * 2.0)[1:],
}


@pytest.mark.parametrize("view", BASES.values(), ids=list(BASES))
def test_a_view_has_a_base_where_numpys_has(view):
    expected, t = view(ARRAY.copy()).base, Tensor(ARRAY.copy())
    seen = view(t)
    found = seen.base
    assert (found is None) == (expected is None)
    if found is not None:
        np.testing.assert_array_equal(found.array, expected, strict=True)
        assert found.base is None
        assert np.shares_memory(found, seen)
    followed = []
    f = lambda x: (followed.append(view(x * 1.0).base), (x * x).sum())[1]      # noqa: E731
    func.grad(f)(ARRAY), func.jvp(f, (ARRAY,), (ARRAY,)), func.vmap(f)(ARRAY[None]), func.functionalize(f)(ARRAY)
    compile(f)(ARRAY)
    assert [base is None for base in followed] == [expected is None] * len(followed)
    tracked = view(Tensor(ARRAY.copy(), requires_grad=True)).base
    with pytest.raises(DispatchTypeError, match="no data") if tracked is not None else nullcontext():
        np.asarray(tracked)


def test_a_write_to_a_base_keeps_a_gradient():
    x = Tensor(ARRAY.copy())
    weights = Tensor(np.ones(3), requires_grad=True)
    product = (x[0] * weights).sum()
    x[0].base[0] = 0.0
    product.backward()
    assert weights.grad.tolist() == ARRAY[0].tolist()
    assert x.array[0].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", methods.REFUSED)
def test_methods_that_cannot_be_say_why(name):
    with pytest.raises(DispatchTypeError, match=rf"Tensor\.{name} was called\n.*use "):
        getattr(Tensor(ARRAY), name)()


@pytest.mark.parametrize("name", ["data", "ctypes"])
def test_attributes_that_cannot_be_say_why(name):
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'.*\n.*numpy\.asarray"):
        getattr(Tensor(ARRAY), name)


def test_bytes_of_a_tracked_tensor_have_no_derivative():
    with pytest.raises(ConversionError, match=r"astype"):
        Tensor(ARRAY, requires_grad=True).view(np.int64)


def test_dlpack_shares_memory():
    t = Tensor(ARRAY.copy())
    array = np.from_dlpack(t)
    t[0, 0] = 9
    assert array[0, 0] == 9
    assert t.__dlpack_device__() == (1, 0)
    with pytest.raises(AutogradError, match="its gradient would be lost"):
        np.from_dlpack(Tensor(ARRAY, requires_grad=True))


@pytest.mark.parametrize("device", ["cpu", "CPU", None], ids=str)
def test_tensors_are_on_one_device(device):
    t = Tensor(ARRAY)
    assert t.to_device(t.device if device is None else device) is t
    with pytest.raises(ValueError, match=r"to_device: argument device is 'cuda'"):
        t.to_device("cuda")


LENIENT = {
    "sum-axis": lambda x: x.sum([0, 1][1]), "sum-out": lambda x: x.sum(axis=0, out=type(x)(np.zeros(3)) if
                                                                      isinstance(x, Tensor) else np.zeros(3)),
    "sum-dtype": lambda x: x.sum(0, np.float32), "mean-positional": lambda x: x.mean(0, None, None),
    "max-where": lambda x: x.max(initial=-9.0, where=[[True, False, True]]),
    "take-list": lambda x: x.take([2, 0], axis=1), "take-mode": lambda x: x.take([5], mode="wrap"),
    "repeat-list": lambda x: x.repeat([1, 2], axis=0), "clip-list": lambda x: x.clip([0, 1, 2], [3.0, 2.0, 5.0]),
    "argmax-out": lambda x: x.argmax(0, keepdims=True), "cumsum": lambda x: x.cumsum(None, float),
    "std": lambda x: x.std(axis=(0, 1), ddof=1), "ravel": lambda x: x.ravel("F"), "copy": lambda x: x.copy("C"),
    "round": lambda x: x.round(decimals=1), "all": lambda x: x.all(axis=(0,), keepdims=True),
    "swapaxes": lambda x: x.swapaxes(0, 1), "squeeze": lambda x: x.squeeze(), "prod": lambda x: x.prod(axis=[1][0]),
}


@pytest.mark.parametrize("name", LENIENT)
def test_methods_take_what_numpys_take(name):
    x = np.array([[0.5, 2.25, -1.0], [3.0, 1.5, 4.75]])
    found, expected = LENIENT[name](Tensor(x)), LENIENT[name](x)
    assert isinstance(found, Tensor)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert found.dtype == expected.dtype


WRITING = {"sum": (0,), "mean": (1,), "prod": (), "max": (0,), "std": (0,), "cumsum": (1,), "round": (),
           "clip": (1.0, 2.0), "take": ([2, 0],), "trace": (), "dot": (np.arange(3.0),)}


@pytest.mark.parametrize("name", WRITING)
def test_methods_write_to_tensors_what_is_tracked(name):
    x = Tensor(ARRAY, requires_grad=True)
    expected = getattr(x, name)(*WRITING[name])
    target = Tensor(np.full(expected.shape, np.nan))
    assert getattr(x, name)(*WRITING[name], out=target) is target
    assert np.array_equal(target.array, expected.array)
    assert np.array_equal(*[grad(ops.np.sum(result * 2.0), x)[0].array for result in (target, expected)])


@pytest.mark.parametrize(("x", "as_out"), [
    (ARRAY, np.asarray), (Tensor(ARRAY), np.asarray), (Tensor(ARRAY), Tensor),
    (Tensor(ARRAY, requires_grad=True), Tensor),
], ids=["array", "tensor into an array", "tensor", "tracked"])
def test_only_universal_functions_repeat_what_they_write(x, as_out):
    for call in (lambda out: np.sum(x, 0, out=out), lambda out: np.trace(x, out=out)):
        with pytest.raises(ValueError, match=r"shape|dimensions"):
            call(as_out(np.zeros((4, *ARRAY.shape[1:]))))
    found = np.sqrt(x, out=as_out(np.zeros((4, *ARRAY.shape))))
    assert np.array_equal(getattr(found, "array", found), np.broadcast_to(np.sqrt(ARRAY), found.shape))


@pytest.mark.parametrize("call", [lambda x: x.sum("0"), lambda x: x.sum(nothing=1), lambda x: x.take(None)])
def test_methods_refuse_what_numpys_refuse(call):
    with pytest.raises(DispatchTypeError, match="operator np::"):
        call(Tensor(np.ones(3)))


def test_one_number_is_rounded_as_numpys_scalars_are():
    x = Tensor(np.array(2.567), requires_grad=True)
    assert round(x.detach()) == 3
    assert round(x, 1).array == round(np.float64(2.567), 1)
    assert type(round(x, 1)) is Tensor
    with pytest.raises(TypeError, match=r"round\(decimals\)"):
        round(Tensor(np.ones(2)))


def test_compress_takes_the_condition_after_the_tensor():
    for condition, axis in (([True, False, True], 1), (np.array([False, True]), 0), ([False, True, True], None)):
        np.testing.assert_array_equal(Tensor(ARRAY).compress(condition, axis).array, ARRAY.compress(condition, axis),
                                      strict=True)


def test_elements_cannot_be_deleted():
    with pytest.raises(ValueError, match="cannot delete elements"):
        del Tensor(ARRAY)[0]


SMALL = {
    "triu of a vector": lambda x: np.triu(x[0]), "tril of a vector": lambda x: np.tril(x[0], 1),
    "triu of nothing": lambda x: np.triu(x[0, :0]), "ix_ of no numbers": lambda x: np.ix_(x[0, :0])[0],
    "corrcoef of no rows": lambda x: np.corrcoef(x[:0] * 1j),
}


@pytest.mark.parametrize("name", SMALL)
def test_functions_of_vectors_and_of_nothing(name):
    np.testing.assert_array_equal(SMALL[name](Tensor(ARRAY)).array, SMALL[name](ARRAY), strict=True)


def test_subscripts_that_are_no_numbers_are_a_type_error():
    with pytest.raises(TypeError):
        np.einsum(Tensor(ARRAY), "ij")


@pytest.mark.parametrize("dtype", [bool, np.int8, float, complex])
def test_conjugates_have_the_dtype_of_what_they_are_of(dtype):
    x = np.array([1, 0]).astype(dtype)
    for found, expected in ((Tensor(x).conj(), x.conj()), (Tensor(x).conjugate(), x.conjugate())):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("dtype", [bool, int, float, complex, object])
@together("value", [None, (None,), [1], [1, 2], True, 2.5, 1j, "3", "a", np.array([1, 2]), np.array(1)], ids=repr)
def test_fill_reads_a_value_as_numpy_does(dtype, value):
    array, tensor = np.zeros(2, dtype), Tensor(np.zeros(2, dtype))
    try:
        array.fill(value)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            tensor.fill(value)
    else:
        tensor.fill(value)
    assert tensor.dtype == array.dtype
    assert repr(tensor.numpy()) == repr(array)


def test_fill_takes_a_tensor_of_one_number():
    tensor, number = Tensor(np.zeros(2)), Tensor(np.array(3.0), requires_grad=True)
    tensor.fill(number)
    np.testing.assert_array_equal(grad(tensor.sum(), number)[0].numpy(), 2.0)
    with pytest.raises(ValueError, match="sequence"):
        tensor.fill(Tensor(np.zeros(2)))


COMPLEX = np.array([[1 + 2j, 3 - 1j], [0.5j, 4.0]])
PART_WRITES = {
    "real": lambda z, v: setattr(z, "real", v), "imag": lambda z, v: setattr(z, "imag", v),
    "real of a row": lambda z, v: setattr(z[1], "real", v[0]),
    "imag of a view": lambda z, v: setattr(z.T[:1], "imag", 7),
    "real of a list": lambda z, v: setattr(z, "real", [1.0, 2.0]),
}
PART_WRITERS = {
    "Tensor": lambda f: lambda z, v: f(Tensor(z), Tensor(v)).numpy(),
    "functionalize": func.functionalize,
    "vmap": lambda f: lambda z, v: func.vmap(f)(np.stack([z, z]), np.stack([v, v]))[1],
    "jvp": lambda f: lambda z, v: func.jvp(f, (z, v), (z, v))[0],
    "vjp": lambda f: lambda z, v: func.vjp(f, z, v)[0],
    "make_fx": lambda f: lambda z, v: make_fx(f)(z, v)(z, v),
    "compile": compile,
}


@pytest.mark.parametrize("write", PART_WRITES)
@together("transform", PART_WRITERS)
def test_parts_of_complex_numbers_are_written_by_assignment(write, transform):
    def written(z, v):
        z = z.copy()
        PART_WRITES[write](z, v)
        return z

    values = np.array([[8.0, 9.0], [-1.0, -2.0]])
    found = PART_WRITERS[transform](written)(COMPLEX, values)
    np.testing.assert_array_equal(found, written(COMPLEX, values), strict=True)


def test_gradients_of_parts_that_are_written():
    def loss(z, v):
        z = z * 1.0
        z.real = v * v
        z.imag = z.imag * 3.0
        return (z * z.conj()).real.sum()

    values = np.array([[8.0, 9.0], [-1.0, -2.0]])
    of_z, of_v = func.grad(loss, argnums=(0, 1))(COMPLEX, values)
    np.testing.assert_allclose(of_v, 4.0 * values ** 3)
    np.testing.assert_allclose(of_z, 18.0j * COMPLEX.imag)


def test_assignments_to_parts_that_are_not_there():
    t = Tensor(ARRAY.copy())
    t.real = 5.0            # of real numbers, the numbers themselves
    assert (t.numpy() == 5.0).all()
    with pytest.raises(TypeError, match=r"imaginary part of a Tensor of dtype float64 was assigned(.|\n)*astype"):
        t.imag = 5.0
    with pytest.raises(DispatchTypeError, match="scalar"):
        t[0, 0].real = 5.0


def test_flags_are_read_but_not_set():
    t, array = Tensor(ARRAY.T), ARRAY.T
    assert t.flags.f_contiguous
    assert t.flags["F_CONTIGUOUS"]
    assert t.flags == array.flags
    assert t.flags == Tensor(ARRAY.T).flags
    assert t.flags != Tensor(ARRAY).flags
    assert repr(t.flags) == repr(array.flags)
    for assign in (lambda: setattr(t.flags, "writeable", False), lambda: t.flags.__setitem__("WRITEABLE", False)):
        with pytest.raises(AttributeError, match=r"(?i)flag writeable of a Tensor was set to False(.|\n)*read_only"):
            assign()


def test_attributes_that_are_not_set_name_a_remedy():
    t = Tensor(ARRAY)
    with pytest.raises(AttributeError, match=r"shape cannot be replaced\n.*y = y\.reshape\(\(3, 2\)\)"):
        t.shape = (3, 2)
    with pytest.raises(AttributeError, match=r"dtype cannot be replaced\n.*y = y\.view\(dtype\)"):
        t.dtype = np.int64
