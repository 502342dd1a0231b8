"""Functions in C are kernels: what their signatures say, how NumPy's rules apply to them, and what is refused."""

import ctypes
import gc
import sys

import numpy as np
import pytest

from pydispatch import Tensor, _core, func, library, ops
from pydispatch import compile as compile_function
from pydispatch.exceptions import RegistrationError
from pydispatch.library import c_function, custom_op
from pydispatch.packs import Pack
from pydispatch.testing import opcheck
from tests.together import together

D, F, P, N = ctypes.c_double, ctypes.c_float, ctypes.c_void_p, ctypes.c_ssize_t
new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, P, P, P)(("PyCapsule_New", ctypes.pythonapi))
set_context = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, P)(("PyCapsule_SetContext", ctypes.pythonapi))
KEPT = []
"""The functions that capsules point to."""


def capsule(function, signature, user_data=None):
    name, address = ctypes.create_string_buffer(signature.encode()), ctypes.cast(function, P)
    made = new_capsule(address, ctypes.addressof(name), None)
    if user_data is not None:
        set_context(made, ctypes.addressof(user_data))
    KEPT.append((function, name, user_data))
    return made


def blocks(function, element, n_in, user_data=()):
    """Return a function in C that is called with addresses, and does what one of NumPy arrays does."""
    def call(*args):
        n, given = args[n_in + 1], args[n_in + 2:]
        arrays = [np.ctypeslib.as_array(ctypes.cast(x, ctypes.POINTER(element)), (n,)) for x in args[:n_in + 1]]
        arrays[-1][:] = function(*arrays[:-1], *given)
    return ctypes.CFUNCTYPE(None, *[P] * (n_in + 1), N, *user_data)(call)


def at(address):
    return D.from_address(address).value


THREE = D(3.0)
FUNCTIONS = {
    "double (double)": (capsule(ctypes.CFUNCTYPE(D, D)(lambda x: x * x + 1), "double (double)"), lambda x: x * x + 1),
    "float (float)": (capsule(ctypes.CFUNCTYPE(F, F)(lambda x: x * x + 1), "float (float)"), lambda x: x * x + 1),
    "double (double, double)": (
        capsule(ctypes.CFUNCTYPE(D, D, D)(lambda x, y: x - 2 * y), "double (double, double)"), lambda x, y: x - 2 * y),
    "double (double, double, double)": (
        capsule(ctypes.CFUNCTYPE(D, D, D, D)(lambda x, y, z: x - y * z), "double(double,double,double)"),
        lambda x, y, z: x - y * z),
    "float (float, float, void *)": (
        capsule(ctypes.CFUNCTYPE(F, F, F, P)(lambda x, y, p: x + y * at(p)), "float (float, float, void*)", THREE),
        lambda x, y: x + 3 * y),
    "double (double, void *)": (
        capsule(ctypes.CFUNCTYPE(D, D, P)(lambda x, p: x * at(p)), "double (double, void *)", THREE), lambda x: x * 3),
    "void (double *, double *, intptr_t)": (
        capsule(blocks(np.negative, D, 1), "void (double const *, double *, Py_ssize_t)"), lambda x: -x),
    "void (float *, float *, intptr_t)": (
        capsule(blocks(np.negative, F, 1), "void (float *, float *, npy_intp)"), lambda x: -x),
    "void (double *, double *, double *, intptr_t)": (
        capsule(blocks(np.subtract, D, 2), "void (double *, double *, double *, intptr_t)"), lambda x, y: x - y),
    "void (double *, double *, double *, double *, intptr_t)": (
        capsule(blocks(lambda x, y, z: x - y * z, D, 3),
                "void (const double*, const double*, const double*, double*, long)"),
        lambda x, y, z: x - y * z),
    "void (double *, double *, intptr_t, void *)": (
        capsule(blocks(lambda x, p: x * at(p), D, 1, [P]), "void (double *, double *, intptr_t, void *)", THREE),
        lambda x: x * 3),
    "void (float *, float *, float *, intptr_t, void *)": (
        capsule(blocks(lambda x, y, p: x + y * F(at(p)).value, F, 2, [P]),
                "void (float *, float *, float *, intptr_t, void *)", THREE), lambda x, y: x + 3 * y),
    "void (double *, double *, double *, double *, intptr_t, void *)": (
        capsule(blocks(lambda x, y, z, p: x - y * z * at(p), D, 3, [P]),
                "void (double *, double *, double *, double *, intptr_t, void *)", THREE),
        lambda x, y, z: x - y * z * 3),
}
each_function = pytest.mark.parametrize(("source", "formula"), FUNCTIONS.values(), ids=list(FUNCTIONS))

ROW = np.array([1.0, -2.0, 3.0])
LAYOUTS = {
    "contiguous": ROW, "strided": np.arange(6.0)[::2], "reversed": ROW[::-1], "matrix": np.arange(6.0).reshape(2, 3),
    "turned": np.arange(6.0).reshape(3, 2).T, "long": np.arange(3000.0).reshape(1000, 3)[:, ::-1],
    "many": np.arange(15000.0).reshape(5000, 3), "swapped": ROW.astype(">f8"), "float32": ROW.astype("f4"),
    "ints": np.arange(3), "bools": np.array([True, False, True]), "0-d": np.array(2.0), "number": 2.0, "int": 3,
    "empty": np.empty((0, 3)), "unaligned": np.frombuffer(b"." + ROW.tobytes(), "u1")[1:].view("f8"),
}


@each_function
@together("layout", LAYOUTS)
def test_every_layout_and_type_comes_out_as_by_the_rules_of_numpy(source, formula, layout):
    ufunc = c_function(source)
    x = LAYOUTS[layout]
    args = (x, *[ROW[::-1], 2.0][:ufunc.nin - 1])
    is_single = ufunc.types[0].startswith("f")
    if is_single and not np.can_cast(np.result_type(*args), "f4"):
        with pytest.raises(TypeError, match="could not be safely coerced"):
            ufunc(*args)
        return
    expected = np.asarray(formula(*[np.asarray(a, "f4" if is_single else "f8") for a in args]))
    loop = _core.loop_result(ufunc, *args)
    for found in (ufunc(*args), ufunc(*args) if loop is NotImplemented else loop):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)


@each_function
def test_small_arrays_of_its_type_take_the_loop_directly(source, formula):
    ufunc = c_function(source)
    x = np.arange(6.0).reshape(2, 3).astype(ufunc.types[0][0])
    np.testing.assert_array_equal(_core.loop_result(ufunc, *[x] * ufunc.nin), formula(*[x] * ufunc.nin))


SQUARE, SQUARE_OF_FLOAT = FUNCTIONS["double (double)"][0], FUNCTIONS["float (float)"][0]
SUBTRACT = FUNCTIONS["void (double *, double *, double *, intptr_t)"][0]


def test_the_result_may_lie_where_an_input_does():
    x = np.arange(3000.0)
    c_function(SUBTRACT)(x, 1.0, out=x)
    np.testing.assert_array_equal(x, np.arange(3000.0) - 1)


@pytest.mark.parametrize("order", [(SQUARE, SQUARE_OF_FLOAT), (SQUARE_OF_FLOAT, SQUARE)], ids=["double first", "last"])
def test_functions_of_both_types_are_one_kernel(order):
    ufunc = c_function(*order, name="square_plus_one")
    assert ufunc.__name__ == "square_plus_one"
    assert [ufunc(np.ones(2, dtype)).dtype for dtype in ("f4", "f8", "i8")] == [np.float32, float, float]
    assert ufunc(np.ones(2, "f4"), dtype=float).dtype == float


# --- registering -----------------------------------------------------------------------------------------------------

SCHEMA = "(Tensor x) -> Tensor"


def by_custom_op(name):
    custom_op(name, SQUARE, mutates_args=(), schema=SCHEMA)


def by_method_of_custom_op(name):
    custom_op(name, lambda x: x, mutates_args=(), schema=SCHEMA).register_kernel("CPU", SQUARE)


def by_functions(register):
    def registering(name):
        library.define(name, SCHEMA)
        register(name)
    return registering


def by_library(register):
    def registering(name):
        register(library.Library(name.partition("::")[0], "FRAGMENT"), name)
    return registering


REGISTERING = {
    "custom_op": by_custom_op, "CustomOpDef.register_kernel": by_method_of_custom_op,
    "library.impl": by_functions(lambda name: library.impl(name, "CPU", SQUARE)),
    "library.register_kernel": by_functions(lambda name: library.register_kernel(name, "CPU", SQUARE)),
    "Library.define": by_library(lambda lib, name: lib.define(name + SCHEMA, SQUARE, "CPU")),
    "Library.impl": by_library(lambda lib, name: (lib.define(name + SCHEMA), lib.impl(name, SQUARE, "CPU"))),
}


@pytest.mark.parametrize("register", REGISTERING.values(), ids=list(REGISTERING))
def test_every_way_to_register_kernels_takes_functions_in_c(fresh, register):
    register(f"{fresh.namespace}::f")
    op = getattr(ops, fresh.namespace).f
    assert op(ROW).tolist() == [2.0, 5.0, 10.0]
    assert type(op(Tensor(ROW))) is Tensor
    assert "double (double)" in str(op.default.explain(ROW))


def test_derivatives_and_batches_come_by_the_declaration_and_plans_call_no_python():
    pack = Pack("c_functions_demo")
    pack.pointwise("square_plus_one", c_function(SQUARE), "Tensor x", vjp=lambda g, x: g * 2.0 * x)
    pack.install()
    op = ops.c_functions_demo.square_plus_one
    assert set(opcheck(op, (Tensor(ROW, requires_grad=True),)).values()) == {"SUCCESS"}
    np.testing.assert_array_equal(func.vmap(func.grad(op))(ROW), 2 * ROW)
    compiled = compile_function(lambda x: op(x) * 2.0)
    np.testing.assert_array_equal(compiled(ROW), 2 * (ROW * ROW + 1))
    assert "is called" not in str(compiled.explain(ROW))


def test_floating_point_errors_are_reported_as_errstate_says():
    libm = ctypes.CDLL("libm.so.6")
    ufunc = c_function(capsule(libm.exp, "double (double)"), name="exp")
    with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow encountered in exp"):
        _core.loop_result(ufunc, np.array([1000.0, 1.0]))


def test_functions_of_scipys_low_level_callables_are_kernels():
    low_level = pytest.importorskip("scipy").LowLevelCallable
    triple = ctypes.CFUNCTYPE(D, D, P)(lambda x, p: x * at(p))
    found = c_function(low_level(triple, ctypes.cast(ctypes.pointer(THREE), P)))
    assert found(ROW).tolist() == [3.0, -6.0, 9.0]
    assert c_function(low_level(SQUARE))(ROW).tolist() == [2.0, 5.0, 10.0]


def test_functions_that_numba_compiles_to_c_are_kernels():
    numba, low_level = pytest.importorskip("numba"), pytest.importorskip("scipy").LowLevelCallable
    compiled = numba.cfunc("float64(float64, float64)")(lambda x, y: x - 2 * y)
    assert c_function(low_level(compiled.ctypes))(ROW, 1.0).tolist() == [-1.0, -4.0, 1.0]


def test_the_universal_function_holds_the_function_and_nothing_holds_it():
    class Callable(tuple):
        """As SciPy's class of that name."""

    Callable.__name__ = "LowLevelCallable"
    source = Callable((SQUARE,))
    before = sys.getrefcount(source)
    ufunc = c_function(source)
    assert sys.getrefcount(source) == before + 1
    del ufunc
    gc.collect()
    assert sys.getrefcount(source) == before


# --- what is refused -------------------------------------------------------------------------------------------------

OTHER_SIGNATURES = [
    "", "double", "double ()", "int (int)", "double (float)", "float (double)", "double (double *)", "double (void *)",
    "double (double, double, double, double)", "double (double, void *, double)", "void (double)", "void (intptr_t)",
    "void (double *, intptr_t)", "void (double *, float *, intptr_t)", "void (double *, double *, int)",
    "void (double *, double *)", "long double (long double)", "double _Complex (double _Complex)",
    "double (double) except",
]


def named_capsule(signature):
    name = ctypes.create_string_buffer(signature.encode())
    KEPT.append(name)
    return new_capsule(ctypes.addressof(name), ctypes.addressof(name), None)


@pytest.mark.parametrize("signature", OTHER_SIGNATURES)
def test_other_signatures_are_refused(fresh, signature):
    fresh.define("f(Tensor x) -> Tensor")
    with pytest.raises(RegistrationError) as caught:
        fresh.impl("f", named_capsule(signature), "CPU")
    assert str(caught.value).startswith(
        f"operator {fresh.namespace}::f: argument fn: the C function has the signature {signature!r}, expected one")


REFUSED = {
    "no function": ((len,), r"c_function: found builtin_function_or_method .*, expected a C function: a PyCapsule"),
    "none": ((), r"expected one for double or float, or one for each"),
    "one type twice": ((SQUARE, SQUARE), r"found C functions with the signatures \['double \(double\)', "),
    "other inputs": ((SUBTRACT, SQUARE_OF_FLOAT), r"or one for each with the same number of inputs"),
}


@pytest.mark.parametrize(("functions", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_makes_no_universal_function_is_refused(functions, message):
    with pytest.raises(RegistrationError, match=message):
        c_function(*functions)


def test_a_schema_of_other_inputs_does_not_fit(fresh):
    fresh.define("f(Tensor x) -> Tensor")
    with pytest.raises(RegistrationError, match="it requires a parameter 'x1' that the schema does not pass"):
        fresh.impl("f", SUBTRACT, "CPU")


def test_types_without_a_loop_are_refused_by_numpy():
    with pytest.raises(TypeError, match="could not be safely coerced"):
        c_function(SQUARE)(np.ones(3, complex))
