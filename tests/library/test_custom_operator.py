"""`library.custom_op`: definitions, kernels, fakes, formulas by position, redefinition."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import numbers
import pickle
import re
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, func, library, ops, testing
from pydispatch._registry import registrations
from pydispatch._registry.operators import find
from pydispatch.backends import MetaArray
from pydispatch.exceptions import (
    AliasingError,
    AutogradError,
    DispatchTypeError,
    NoDerivativeError,
    NoKernelError,
    OperatorNotFoundError,
    OverrideWarning,
    RegistrationError,
    SchemaError,
    StaleOperatorError,
    UnknownKeyError,
    UnsupportedError,
)
from pydispatch.keys import parse_key
from pydispatch.library import CustomOpDef, Library, custom_op
from pydispatch.library.batching import batching_of
from pydispatch.library.custom_operator import definitions
from pydispatch.testing import LoggingTensor
from pydispatch.tracing import make_fx

ONE, VALUES = np.ones(3), np.array([1.0, 2.0, 3.0])
HERE = re.escape(__file__)


@pytest.fixture
def ns(new_library):
    """Provide a namespace of the test's own. What is registered in it goes with the test."""
    namespace = new_library().namespace
    yield namespace
    for name, op in list(registrations.operators.items()):
        if name.startswith(f"{namespace}::"):
            if name in definitions:
                definitions[name].remove()
            registrations.call_each([handle.remove for handle in op.registrations])


def tracked(*values):
    return Tensor(np.array(values or (1, 2, 3), float), requires_grad=True)


def copy(x: np.ndarray) -> np.ndarray:
    return x.copy()


def twice(x: np.ndarray) -> np.ndarray:
    return 2 * x


def gradients(result, *inputs, grad=None, **options):
    found = autograd.grad(result, inputs, Tensor(ONE if grad is None else grad), allow_unused=True, **options)
    return [None if gradient is None else gradient.numpy() for gradient in found]


# --- defining ----------------------------------------------------------------------------------------------


def test_a_definition_is_called_like_its_function(ns):
    @custom_op(f"{ns}::scale", mutates_args=())
    def scale(x: np.ndarray, by: float = 2.0) -> np.ndarray:
        """Scale."""
        return x * by

    assert isinstance(scale, CustomOpDef)
    assert repr(scale) == f"<CustomOpDef({ns}::scale)>"
    assert scale.__doc__ == "Scale."
    assert scale.__name__ == "scale"
    assert list(inspect.signature(scale).parameters) == ["x", "by"]
    assert str(scale.operator.schema) == f"{ns}::scale(Tensor x, float by=2.0) -> Tensor"
    assert scale.operator.site.startswith(f"{__file__}:")
    packet = getattr(ops, ns).scale
    for call in (scale, scale.operator, packet):
        assert np.array_equal(call(ONE), 2 * ONE)
        assert np.array_equal(call(ONE, by=3), 3 * ONE)
        assert isinstance(call(Tensor(ONE)), Tensor)
        with pytest.raises(DispatchTypeError, match=f"{ns}::scale"):
            call()
    assert pickle.loads(pickle.dumps(scale)) is scale


def test_the_function_as_an_argument_and_any_name(ns):
    scale = custom_op(f"{ns}::other_name", twice, mutates_args=())
    assert np.array_equal(scale(ONE), 2 * ONE)
    assert np.array_equal(getattr(ops, ns).other_name(ONE), 2 * ONE)


def test_overloads(ns):
    custom_op(f"{ns}::f", twice, mutates_args=())
    named = custom_op(f"{ns}::f.named", lambda x, n: x * n, mutates_args=(), schema="(Tensor x, int n) -> Tensor")
    assert np.array_equal(named(ONE, 3), 3 * ONE)
    assert np.array_equal(getattr(ops, ns).f.named(ONE, 3), 3 * ONE)


class Scale:
    def __call__(self, x, by):
        return x * by


@pytest.mark.parametrize("fn", [Scale(), functools.partial(lambda a, x, by: x * by, 0)], ids=["instance", "partial"])
def test_any_callable_with_a_schema(ns, fn):
    scale = custom_op(f"{ns}::f", fn, mutates_args=(), schema="(Tensor x, int by) -> Tensor")
    assert np.array_equal(scale(ONE, 2), 2 * ONE)


@pytest.mark.parametrize("name", [
    pytest.param("foo", id="no namespace"), pytest.param("a::b::c", id="two"), pytest.param("::foo", id="empty"),
    pytest.param("{ns}::foo-1", id="no identifier"), pytest.param(None, id="no text"),
    pytest.param("np::foo", id="29 reserved"),
])
def test_names_refused_before_a_decorator_is_returned(name, ns):
    with pytest.raises(SchemaError):
        custom_op(name and name.format(ns=ns), mutates_args=())


def missing_return(x: np.ndarray): ...
def unannotated(x) -> np.ndarray: ...
def variadic(*xs: np.ndarray) -> np.ndarray: ...
def keywords(**xs: np.ndarray) -> np.ndarray: ...
def only_in_inference(x: "UnmappedError") -> np.ndarray: ...  # noqa: F821, UP037
def takes_callable(f: Callable, x: np.ndarray) -> np.ndarray: ...
def with_int(x: np.ndarray, n: int) -> np.ndarray: ...
def text_default(x: np.ndarray, n: int = "1") -> np.ndarray: ...


@pytest.mark.parametrize(("fn", "mutates_args", "pattern"), [
    pytest.param(variadic, (), "variadic", id="17"),
    pytest.param(keywords, (), "variadic", id="18"),
    pytest.param(unannotated, (), "'x' has no annotation", id="19"),
    pytest.param(missing_return, (), "the return has no annotation", id="23"),
    pytest.param(with_int, ("n",), "can be mutated", id="24"),
    pytest.param(only_in_inference, (), "'UnmappedError'.*no schema type matches", id="25"),
    pytest.param(takes_callable, (), "no schema type matches", id="26"),
    pytest.param(with_int, {"y"}, r"\{'y'\} in mutates_args were not found", id="33"),
    pytest.param(with_int, "x", "is a string", id="34"),
    pytest.param(text_default, (), "cannot have its default", id="text default"),
])
def test_inference_refused(ns, fn, mutates_args, pattern):
    with pytest.raises(SchemaError, match=pattern):
        custom_op(f"{ns}::f", fn, mutates_args=mutates_args)
    assert find(f"{ns}::f") is None


def test_mutates_args_is_required(ns):
    with pytest.raises(TypeError, match="mutates_args"):
        custom_op(f"{ns}::f", twice)
    for schema in (None, "(Tensor x) -> Tensor"):
        with pytest.raises(TypeError, match="mutates_args is None"):
            custom_op(f"{ns}::f", twice, mutates_args=None, schema=schema)


def pair(x: np.ndarray, n: tuple[int, int], m: tuple[int, float]) -> np.ndarray:
    return x * n[0] * m[1]


def test_tuples_are_types_here(ns):
    f = custom_op(f"{ns}::f", pair, mutates_args=())
    assert str(f.operator.schema) == f"{ns}::f(Tensor x, (int, int) n, (int, float) m) -> Tensor"
    assert np.array_equal(f(ONE, (2, 3), (1, 5.0)), 10 * ONE)


@pytest.mark.parametrize(("schema", "mutates_args", "pattern"), [
    pytest.param("(Tensor(a!) x) -> ()", (), r"the op mutates \{'x'\}", id="32"),
    pytest.param("(Tensor x) -> ()", ("x",), r"the op mutates \{\}, but mutates_args names \{'x'\}", id="not mutated"),
    pytest.param("(Tensor(a!) x) -> ()", "x", "mutates_args is a string", id="name of an argument"),
    pytest.param("(Tensor(a!) x, Tensor y) -> ()", "unknown", r"mutates_args names \{'x', 'y'\}", id="unknown"),
    pytest.param("f(Tensor x) -> ()", (), "expected schema to look like", id="schema with a name"),
    pytest.param("(asdf x) -> ()", (), "asdf", id="39"),
])
def test_explicit_schemas_refused_without_a_trace(ns, schema, mutates_args, pattern):
    with pytest.raises(SchemaError, match=pattern):
        custom_op(f"{ns}::f", lambda x: None, mutates_args=mutates_args, schema=schema)
    assert not [name for name in registrations.operators if name.startswith(f"{ns}::")]


def test_unknown_with_an_explicit_schema_is_all_arrays(ns):
    f = custom_op(
        f"{ns}::f", lambda x, ys, n: None, mutates_args="unknown", schema="(Tensor(a!) x, Tensor(b!)[] ys, int n) -> ()"
    )
    assert f(ONE.copy(), [], 1) is None


@pytest.mark.parametrize(("schema", "fn"), [
    ("(Tensor x, int n) -> Tensor", lambda x: x), ("(Tensor x) -> Tensor", lambda x, n: x),
    ("(Tensor x, *, int n) -> Tensor", lambda x, *, m: x), ("(Tensor x, int n=1) -> Tensor", lambda x, n=2: x),
])
def test_the_function_has_to_fit_the_schema(ns, schema, fn):
    with pytest.raises(RegistrationError, match="does not fit the schema"):
        custom_op(f"{ns}::f", fn, mutates_args=(), schema=schema)
    assert find(f"{ns}::f") is None


def keyword_array(x: np.ndarray, *, y: np.ndarray) -> np.ndarray: ...
def keyword_optional(x: np.ndarray, *, y: np.ndarray | None) -> np.ndarray: ...
def keyword_list(x: np.ndarray, *, y: list[np.ndarray]) -> np.ndarray: ...
def keyword_dict(x: np.ndarray, *, y: dict[str, np.ndarray]) -> np.ndarray: ...


@pytest.mark.parametrize("fn", [
    pytest.param(keyword_array, id="35"), pytest.param(keyword_optional, id="36"),
    pytest.param(keyword_list, id="37"), pytest.param(keyword_dict, id="37 dict"),
])
def test_keyword_only_arrays(ns, fn):
    with pytest.raises(NotImplementedError, match="kwarg-only Tensor args, such as 'y'"):
        custom_op(f"{ns}::f", fn, mutates_args=())
    assert find(f"{ns}::f") is None


@pytest.mark.parametrize("register", [
    lambda name: library.register_autograd(name, lambda ctx, g: g),
    lambda name: library.register_vmap(name, lambda info, in_dims, x, *, y: (x, 0)),
], ids=["register_autograd", "register_vmap"])
def test_keyword_only_arrays_of_other_operators(fresh, register):
    fresh.define("f(Tensor x, *, Tensor y) -> Tensor")
    with pytest.raises(UnsupportedError, match="kwarg-only Tensor args"):
        register(f"{fresh.namespace}::f")
    assert len(find(f"{fresh.namespace}::f").registrations) == 1


@pytest.mark.parametrize(("call", "error", "pattern"), [
    pytest.param(lambda ns: library.define(f"{ns}::f", "(asdf x) -> ()"), SchemaError, "asdf", id="39"),
    pytest.param(lambda ns: library.define(f"{ns}::f", "(int64_t x) -> ()"), SchemaError, "int64_t", id="39 int64_t"),
    pytest.param(lambda ns: library.define(f"{ns}::f", "(double x) -> ()"), SchemaError, "double", id="39 double"),
    pytest.param(
        lambda ns: library.define(f"{ns}::f", "g(Tensor x) -> ()"), SchemaError, "expected schema to look like",
        id="40"),
    pytest.param(lambda ns: library.define("f", "(Tensor x) -> ()"), RegistrationError, "namespace", id="41"),
    pytest.param(lambda ns: Library(ns, "BLA"), RegistrationError, "DEF, FRAGMENT or IMPL", id="42"),
    pytest.param(lambda ns: library.impl(f"{ns}::f", "CPU", 3), RegistrationError, "must be a function", id="76"),
    pytest.param(
        lambda ns: Library(ns, "IMPL").impl("other::f", copy, "CPU"), RegistrationError, "has namespace 'other'",
        id="77"),
    pytest.param(
        lambda ns: Library(ns, "IMPL", "CPU").impl("f", copy, "Meta"), RegistrationError, "is for CPU", id="78"),
    pytest.param(
        lambda ns: library.register_kernel(f"{ns}::f", "somethingsomething", copy), UnknownKeyError, "CPU", id="79"),
    pytest.param(lambda ns: library.register_fake(3, copy), SchemaError, "unexpected type for op: int", id="2.3.3"),
    pytest.param(
        lambda ns: library.register_fake(f"{ns}::f", copy), OperatorNotFoundError, "no operator", id="unknown"),
    pytest.param(
        lambda ns: library.register_autograd(f"{ns}::f", copy), OperatorNotFoundError, "no operator", id="4.1.3"),
])
def test_library_level_refusals(ns, call, error, pattern):
    with pytest.raises(error, match=pattern):
        call(ns)
    assert find(f"{ns}::f") is None


def test_second_def_library(ns):
    with Library(ns, "DEF"), pytest.raises(RegistrationError, match=rf"first was opened at {HERE}:\d+"):
        Library(ns, "DEF")


# --- tags --------------------------------------------------------------------------------------------------


def add_one_(x: np.ndarray, n: int = 1) -> np.ndarray:
    x += n
    return x


def double_into(x: np.ndarray, *, out: np.ndarray) -> np.ndarray:
    np.multiply(x, 2, out=out)
    return out


def two_into(x: np.ndarray, *, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a[...], b[...] = x, 2 * x
    return a, b


def test_inplace_tag(ns):
    f = custom_op(f"{ns}::f_", add_one_, mutates_args=["x"], tags="inplace")
    assert str(f.operator.schema) == f"{ns}::f_(Tensor(a0!) x, int n=1) -> Tensor(a0!)"
    for array in (np.zeros(2), Tensor(np.zeros(2))):
        assert f(array, 3) is array
        assert np.array_equal(np.asarray(array), [3, 3])


def test_out_tag(ns):
    f = custom_op(f"{ns}::f", double_into, mutates_args=["out"], tags=("out",))
    g = custom_op(f"{ns}::g", two_into, mutates_args={"a", "b"}, tags=("out",))
    out, a, b = np.zeros(3), np.zeros(3), Tensor(np.zeros(3))
    assert f(ONE, out=out) is out
    assert np.array_equal(out, 2 * ONE)
    first, second = g(ONE, a=a, b=b)
    assert (first is a, second is b) == (True, True)
    assert np.array_equal(b.numpy(), 2 * ONE)


def no_positional(*, x: np.ndarray) -> np.ndarray: ...
def first_is_int(n: int, x: np.ndarray) -> np.ndarray: ...
def returns_none(x: np.ndarray) -> None: ...
def returns_two(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
def two_arrays(x: np.ndarray, y: np.ndarray) -> np.ndarray: ...
def optional_out(x: np.ndarray, *, out: np.ndarray | None) -> np.ndarray: ...
def list_out(x: np.ndarray, *, out: list[np.ndarray]) -> np.ndarray: ...
def out_none(x: np.ndarray, *, out: np.ndarray) -> None: ...


@pytest.mark.parametrize(("fn", "mutates_args", "tags", "schema", "pattern"), [
    pytest.param(add_one_, ("x",), ("inplace", "out"), None, "", id="45"),
    pytest.param(no_positional, ("x",), "inplace", None, "tagged `inplace`.*position", id="46"),
    pytest.param(first_is_int, ("x",), "inplace", None, "first positional argument", id="47"),
    pytest.param(two_arrays, ("y",), "inplace", None, "mutates_args", id="48"),
    pytest.param(two_arrays, ("x", "y"), "inplace", None, "mutates_args", id="48 both"),
    pytest.param(returns_none, ("x",), "inplace", None, "return annotation", id="49"),
    pytest.param(returns_two, ("x",), "inplace", None, "return annotation", id="50"),
    pytest.param(add_one_, ("x",), "inplace", "(Tensor(a!) x, int n=1) -> Tensor", "tagged `inplace`", id="51"),
    pytest.param(two_arrays, ("y",), "out", None, "keyword-only", id="52"),
    pytest.param(double_into, (), "out", None, "at least one", id="53"),
    pytest.param(optional_out, ("out",), "out", None, "only supports", id="54"),
    pytest.param(list_out, ("out",), "out", None, "only supports", id="55"),
    pytest.param(double_into, ("out",), "out", "(Tensor x, *, int(a!) out) -> Tensor(a!)", "", id="56"),
    pytest.param(out_none, ("out",), "out", None, "return annotation", id="57"),
    pytest.param(double_into, ("out",), "out", "(Tensor x, Tensor(a!) out) -> Tensor(a!)", "keyword-only", id="59"),
    pytest.param(two_into, ("a", "b"), "out", "(Tensor x, *, Tensor(a!) a, Tensor(b!) b) -> (Tensor(b!), Tensor(a!))",
                 "in order", id="order"),
])
def test_tags_refused(ns, fn, mutates_args, tags, schema, pattern):
    with pytest.raises(SchemaError, match=pattern or None):
        custom_op(f"{ns}::f", fn, mutates_args=mutates_args, tags=tags, schema=schema)
    assert find(f"{ns}::f") is None


def test_tags_exclude_each_other(ns):
    schema = "(Tensor(a!) x) -> Tensor(a!)"
    with pytest.raises(SchemaError, match="mutually exclusive"):
        custom_op(f"{ns}::f", add_one_, mutates_args=("x",), tags=("inplace", "out"), schema=schema)


def test_a_tuple_of_one_is_no_return(ns):
    def one_tuple(x: np.ndarray, *, out: np.ndarray) -> tuple[np.ndarray]: ...

    with pytest.raises(SchemaError, match="return"):
        custom_op(f"{ns}::f", one_tuple, mutates_args=("out",), tags="out")


def test_kernels_that_return_other_objects(ns):
    f = custom_op(
        f"{ns}::f_", lambda x: x + 1, mutates_args=["x"], tags="inplace", schema="(Tensor(a!) x) -> Tensor(a!)")
    with pytest.raises(RuntimeError, match="must return its first argument"):
        f(np.zeros(2))
    g = custom_op(
        f"{ns}::g", lambda x, *, out: x + 1, mutates_args=["out"], tags="out",
        schema="(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    for wrap in (np.asarray, Tensor):
        with pytest.raises(RuntimeError, match="must return its mutable keyword-only arguments"):
            g(wrap(ONE), out=wrap(np.zeros(3)))


@pytest.mark.parametrize(("fn", "mutates_args", "tag"), [
    pytest.param(add_one_, ["x"], "inplace", id="87"), pytest.param(double_into, ["out"], "out", id="88")])
def test_fakes_of_tagged_operators(ns, fn, mutates_args, tag):
    f = custom_op(f"{ns}::f", fn, mutates_args=mutates_args, tags=tag)
    meta = MetaArray((3,), float)
    written = {"out": meta} if tag == "out" else {}
    assert f(meta, **written) is meta
    calls = []

    def fake(x, *args, **kwargs):
        calls.append(x)
        return kwargs.get("out", x)

    f.register_fake(fake)
    assert f(meta, **written) is meta
    assert [x.array for x in calls] == [meta]


WRITTEN = {     # a schema, its tags, and which arguments come back
    "in place": ("(Tensor(a!) x) -> Tensor(a!)", (), lambda x, y: x),
    "tagged in place": ("(Tensor(a!) x) -> Tensor(a!)", "inplace", lambda x, y: x),
    "tagged out": ("(Tensor x, *, Tensor(a!) y) -> Tensor(a!)", "out", lambda x, y: y),
    "two": ("(Tensor(a!) x, Tensor(b!) y) -> (Tensor(b!), Tensor(a!))", (), lambda x, y: (y, x)),
    "nothing": ("(Tensor(a!) x) -> ()", (), lambda x, y: None),
}


@pytest.mark.parametrize(("schema", "tags", "returned"), WRITTEN.values(), ids=list(WRITTEN))
@pytest.mark.parametrize("defined", [True, False], ids=["define", "custom_op"])
def test_what_a_schema_tells_needs_no_fake(ns, schema, tags, returned, defined):
    name = f"{ns}::f"
    if defined:
        library.define(name, schema, tags=tags)
    else:
        written = [argument for argument in ("x", "y") if f"!) {argument}" in schema]
        custom_op(name, lambda *args, **kwargs: None, mutates_args=written, schema=schema, tags=tags)
    f = find(name)
    x, y = MetaArray((3,)), MetaArray((3,))

    def call():
        return f(x, y=y) if "y" in schema else f(x)

    def same(a, b):
        return all(map(same, a, b)) if isinstance(a, tuple) else a is b

    assert same(call(), returned(x, y))
    with library.register_fake(f, lambda x, y=None: returned(x, y)):
        assert same(call(), returned(x, y))
    assert same(call(), returned(x, y))


# --- kernels -----------------------------------------------------------------------------------------------


def on_cpu(x: np.ndarray) -> np.ndarray:
    return x * 10


def test_kernels_by_backend(ns, backends):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    assert f.register_kernel("cpu")(on_cpu) is on_cpu
    assert f.register_kernel(["A", "b"], lambda x: type(x)(x.data * 5)) is not None
    assert np.array_equal(f(ONE), 10 * ONE)
    assert np.array_equal(f(backends.ArrayA([1.0])).data, [5])
    assert np.array_equal(f(backends.ArrayB([1.0])).data, [5])
    with pytest.raises(TypeError):
        f(backends.ArrayC([1.0]))       # the default kernel cannot multiply it, but it was chosen
    f.register_kernel(None, lambda x: type(x)(x.data + 1))
    assert np.array_equal(f(backends.ArrayC([1.0])).data, [2])
    assert np.array_equal(f(ONE), 10 * ONE)


def test_device_types_of_the_function_itself(ns, backends):
    f = custom_op(f"{ns}::f", twice, mutates_args=(), device_types="cpu")
    assert np.array_equal(f(ONE), 2 * ONE)
    with pytest.raises(NoKernelError, match="no kernel for the key A"):
        f(backends.ArrayA([1.0]))


@pytest.mark.parametrize("order", [("cpu", "A"), ("A", "cpu")])
def test_every_backend_has_its_own_kernel(ns, backends, order):
    f = custom_op(f"{ns}::f", lambda x: x, mutates_args=(), device_types=order, schema="(Tensor x) -> Tensor")
    f.register_kernel("cpu", on_cpu)
    assert np.array_equal(f(ONE), 10 * ONE)
    f.register_kernel("A", lambda x: type(x)(x.data + 3))
    assert np.array_equal(f(ONE), 10 * ONE)
    assert np.array_equal(f(backends.ArrayA([1.0])).data, [4])


def test_registering_again_replaces_silently(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    for n in (3, 4):
        f.register_kernel(None, functools.partial(times, n))
        assert np.array_equal(f(ONE), n * ONE)
    before = list(f.operator.registrations)
    with pytest.raises(RegistrationError, match="does not fit the schema"):
        f.register_kernel(["cpu", None], lambda x, y: x)
    with pytest.raises(UnknownKeyError):
        f.register_kernel(["cpu", "nowhere"], on_cpu)
    assert f.operator.registrations == before


def times(n, x):
    return n * x


def test_library_level_functions_reach_the_definition(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    for target in (f, f.operator, getattr(ops, ns).f, f"{ns}::f"):
        handle = library.register_kernel(target, "cpu", on_cpu)
        assert np.array_equal(f(ONE), 10 * ONE)
    handle.remove()
    assert np.array_equal(f(ONE), 2 * ONE)
    n = len(f.operator.registrations)
    for target in (f, f.operator, f"{ns}::f"):
        library.register_fake(target, lambda x: MetaArray((7,), x.dtype))
        library.register_vmap(target, lambda info, in_dims, x: (x, 0))
        library.register_autograd(target, lambda ctx, g: g)
    assert len(f.operator.registrations) == n + 3
    assert f(MetaArray((3,), float)).shape == (7,)


def test_a_refused_replacement_leaves_the_previous_kernel(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_kernel("cpu", on_cpu)
    with pytest.warns(OverrideWarning):
        library.impl(f"{ns}::f", "CPU", lambda x: x * 100)
    before = sorted(map(id, f.operator.registrations))
    with pytest.raises(OverrideWarning):        # warnings are errors in this suite
        f.register_kernel("cpu", copy)
    assert sorted(map(id, f.operator.registrations)) == before


def test_overriding_can_be_refused(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=(), device_types="cpu")
    with pytest.raises(RegistrationError, match="has a kernel under CPU already"):
        library.impl(f.operator, "CPU", copy, allow_override=False)


def test_operators_without_arrays(ns, backends):
    f = custom_op(
        f"{ns}::f", lambda n, *, device: np.arange(n), mutates_args=(), device_types="cpu",
        schema="(int n, *, Device? device=None) -> Tensor")
    assert np.array_equal(f(3), np.arange(3))
    assert np.array_equal(f(3, device="cpu"), np.arange(3))
    with pytest.raises(NotImplementedError, match=r"no kernel for the key A.*'device' specifies"):
        f(3, device="A")
    f.register_kernel("A", lambda n, *, device: backends.ArrayA(np.arange(n) + 10))
    assert np.array_equal(f(2, device="A").data, [10, 11])
    without_device = custom_op(
        f"{ns}::g", lambda n: np.arange(n), mutates_args=(), device_types="cpu", schema="(int n) -> Tensor")
    assert np.array_equal(without_device(2), [0, 1])


def test_an_empty_list_runs_on_the_default_backend(ns):
    f = custom_op(f"{ns}::f", lambda xs: np.zeros(len(xs)), mutates_args=(), schema="(Tensor[] xs) -> Tensor")
    assert f([]).shape == (0,)


def test_switching_kernels_off(ns, caplog):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_kernel("cpu", on_cpu)
    with caplog.at_level(logging.WARNING, "pydispatch.library"):
        with f.set_kernel_enabled("gpu", enabled=False):
            assert "no kernel was registered for this device type" in caplog.messages[-1]
        with f.set_kernel_enabled("cpu"):
            assert "already enabled" in caplog.messages[-1]
            assert np.array_equal(f(ONE), 10 * ONE)
        with f.set_kernel_enabled("CPU", enabled=False):
            assert len(caplog.messages) == 2
            assert np.array_equal(f(ONE), 2 * ONE)
            with f.set_kernel_enabled("cpu", enabled=False):
                assert "already disabled" in caplog.messages[-1]
                assert np.array_equal(f(ONE), 2 * ONE)
            assert np.array_equal(f(ONE), 2 * ONE)
            with f.set_kernel_enabled("cpu", enabled=True):
                assert np.array_equal(f(ONE), 10 * ONE)
            f.register_kernel("cpu", lambda x: x * 100)
            assert np.array_equal(f(ONE), 2 * ONE)
        assert np.array_equal(f(ONE), 100 * ONE)
    assert len(caplog.messages) == 3


def test_the_state_is_restored_on_exceptions(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_kernel("cpu", on_cpu)
    before = list(f.operator.registrations)
    with pytest.raises(KeyError), f.set_kernel_enabled("cpu", enabled=False):
        raise KeyError
    assert np.array_equal(f(ONE), 10 * ONE)
    assert f.operator.registrations == before


def test_switching_off_an_operator_that_is_defined_anew_inside(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=(), device_types="cpu")
    with f.set_kernel_enabled("cpu", enabled=False):
        again = custom_op(f"{ns}::f", on_cpu, mutates_args=(), device_types="cpu")
    assert np.array_equal(again(ONE), 10 * ONE)
    assert len(again.operator.registrations) == 3


# --- returns, aliasing -------------------------------------------------------------------------------------


BUFFER = np.zeros(4)


@pytest.mark.parametrize(("schema", "kernel", "arguments"), [
    pytest.param("(Tensor x) -> Tensor", lambda x: x, [ONE], id="81 input"),
    pytest.param("(Tensor x) -> Tensor", lambda x: x[:1], [ONE], id="81 view"),
    pytest.param("(Tensor x) -> Tensor", lambda x: x[:0], [ONE], id="81 view of no elements"),
    pytest.param("(Tensor x) -> Tensor", lambda x: x[::-1][:, None], [ONE], id="81 view of a view"),
    pytest.param("(Tensor x) -> Tensor", lambda x: x, [ONE[1:]], id="81 input that is a view"),
    pytest.param("(int n, Tensor x) -> Tensor", lambda n, x: x, [1, ONE], id="81 second argument"),
    pytest.param("(Tensor[] xs) -> Tensor", lambda xs: xs[1], [[ONE, np.zeros(2)]], id="81 element of a list"),
    pytest.param("(Tensor x) -> Tensor[]", lambda x: [x + 1, x], [ONE], id="81 element of a result"),
    pytest.param("(Tensor x) -> (Tensor, Tensor)", lambda x: (x + 1, x.T), [ONE], id="81 second result"),
    pytest.param("(Tensor x) -> (Tensor, Tensor)", lambda x: [(y := x + 1), y], [ONE], id="81 same result twice"),
    pytest.param("(Tensor x) -> Tensor[]", lambda x: np.split(x + 1, 3), [ONE], id="81 pieces of one buffer"),
    pytest.param("(Tensor x) -> Tensor[]", lambda x: list(np.split(x + 1, 3)), [ONE], id="81 list of pieces"),
    pytest.param("(Tensor(a!) x) -> Tensor", lambda x: x, [np.ones(3)], id="81 mutated input"),
    pytest.param("(*, int n=1) -> (Tensor, Tensor)", lambda n=1: (BUFFER[:2], BUFFER[2:]), [], id="81 two of a buffer"),
])
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["array", "Tensor"])
def test_results_that_share_memory(ns, schema, kernel, arguments, wrap):
    mutates = ("x",) if "!" in schema else ()
    f = custom_op(f"{ns}::f", kernel, mutates_args=mutates, schema=schema)
    arguments = [
        [wrap(x) for x in value] if isinstance(value, list) else value if isinstance(value, int) else wrap(value)
        for value in arguments
    ]
    for guard in (autograd.enable_grad(), autograd.no_grad()):
        with guard, pytest.raises(RuntimeError, match=rf"operator {ns}::f: result .*{HERE}:\d+ must not alias"):
            f(*arguments)


@pytest.mark.parametrize("kernel", [
    lambda x: x.copy(), lambda x: BUFFER, lambda x: np.array(3.0), lambda x: x.sum(), lambda x: x[:0].copy()])
def test_results_that_share_no_memory_with_arguments(ns, kernel):
    f = custom_op(f"{ns}::f", kernel, mutates_args=(), schema="(Tensor x) -> Tensor")
    assert np.array_equal(f(ONE), kernel(ONE))
    assert np.array_equal(f(Tensor(ONE)).numpy(), kernel(ONE))


def test_views_that_the_schema_declares(ns):
    f = custom_op(f"{ns}::f", lambda x, n: x[n:], mutates_args=(), schema="(Tensor(a) x, int n) -> Tensor(a)")
    array = np.arange(3.0)
    f(array, 1)[0] = 10.0
    assert array[1] == 10


@pytest.mark.parametrize("result", [None, (1, 2), "text"], ids=["None", "tuple", "text"])
def test_what_is_no_array(ns, result):
    f = custom_op(f"{ns}::f", lambda x: result, mutates_args=(), schema="(Tensor x) -> Tensor")
    with pytest.raises(DispatchTypeError, match=f"operator {ns}::f"):
        f(ONE)


@pytest.mark.parametrize("result", [
    ONE, (ONE,), (ONE, VALUES, np.ones(1)), None, {}], ids=["array", "1", "3", "None", "dict"])
@pytest.mark.parametrize("wrap", [np.asarray, Tensor, lambda x: Tensor(x, requires_grad=True)])
def test_wrong_number_of_results(ns, result, wrap):
    f = custom_op(f"{ns}::f", lambda x: result, mutates_args=(), schema="(Tensor x) -> (Tensor, Tensor)")
    with pytest.raises(DispatchTypeError, match=rf"operator {ns}::f: the kernel returned .* expected a tuple of 2"):
        f(wrap(np.zeros(2)))


def test_nothing_is_returned(ns):
    f = custom_op(f"{ns}::f", lambda x: x, mutates_args=(), schema="(Tensor x) -> ()")
    with pytest.raises(DispatchTypeError, match="expected None"):
        f(ONE)


# --- fakes -------------------------------------------------------------------------------------------------


def test_no_fake(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    with pytest.raises(RuntimeError, match="no fake kernel"):
        f(MetaArray((3,), float))
    f.register_fake(lambda x: MetaArray(x.shape, x.dtype))
    assert f(MetaArray((3,), "f4")).dtype == np.float32


FAKES = {"ops": ops.np.empty_like, "an operator's function": pnp.empty_like, "a composite": pnp.tril}


@pytest.mark.parametrize("fake", FAKES.values(), ids=list(FAKES))
def test_a_fake_is_written_with_functions_of_arrays(ns, fake):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_fake(lambda x: fake(x))
    x = np.ones((2, 2))
    assert f(MetaArray(x.shape, "f4")).dtype == np.float32
    for call in (compile(f), make_fx(f, tracing_mode="fake")(x)):
        np.testing.assert_array_equal(call(x), twice(x))


FAKES_OF_TWICE = {
    "an operator of Python": lambda x: x * 2, "a method": lambda x: x.reshape(-1).sum() + x,
    "a function of NumPy": lambda x: np.exp(x), "grad": func.grad(lambda x: (x * x).sum()),
    "jvp": lambda x: func.jvp(lambda x: x * x, (x,), (x,))[1], "vmap": func.vmap(lambda x: x * 2),
    "the argument": lambda x: x,
}


@pytest.mark.parametrize("fake", FAKES_OF_TWICE.values(), ids=list(FAKES_OF_TWICE))
def test_a_fake_may_do_what_tensors_do(ns, fake):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_fake(fake)
    found = f(MetaArray((3,), "f4"))
    assert type(found) is MetaArray
    assert (found.shape, found.dtype) == ((3,), np.float32)
    found = f(Tensor(MetaArray((3,), "f4")))
    assert type(found.array) is MetaArray
    x = np.ones(3)
    for call in (compile(f), make_fx(f, tracing_mode="fake")(x)):
        np.testing.assert_array_equal(call(x), twice(x))


def test_trivial_fakes(ns):
    writes = custom_op(f"{ns}::writes", lambda x: None, mutates_args=["x"], schema="(Tensor(a!) x) -> ()")
    assert writes(MetaArray((3,), float)) is None
    reads = custom_op(f"{ns}::reads", lambda x: None, mutates_args=(), schema="(Tensor x) -> ()")
    with pytest.raises(NoKernelError, match="no fake kernel"):
        reads(MetaArray((3,), float))


def test_a_second_fake(ns, fresh):
    fresh.define("f(Tensor x) -> Tensor")
    name = f"{fresh.namespace}::f"
    first = library.register_fake(name, lambda x: MetaArray((1,), x.dtype))
    with pytest.raises(RegistrationError, match=rf"already has a fake impl.* at {HERE}:\d+"):
        library.register_fake(name, copy, allow_override=False)
    op = find(name)
    with library.register_fake(name, lambda x: MetaArray((2,), x.dtype)):
        assert op(MetaArray((3,), float)).shape == (2,)
    assert op(MetaArray((3,), float)).shape == (1,)
    first.remove()
    with pytest.raises(NoKernelError):
        op(MetaArray((3,), float))


@pytest.mark.parametrize(("key", "override", "pattern"), [
    pytest.param("Meta", False, "already has .*Meta implementation", id="70"),
    pytest.param("CompositeImplicitAutograd", False, "CompositeImplicitAutograd", id="71"),
    pytest.param("CompositeImplicitAutograd", True, "CompositeImplicitAutograd", id="71 override"),
])
def test_fakes_refused(fresh, define, key, override, pattern):
    op = define(fresh, "f(Tensor x) -> Tensor", **{key: copy})
    with pytest.raises(RegistrationError, match=pattern):
        library.register_fake(op, copy, allow_override=override)
    assert len(op.registrations) == 2


def test_a_fake_beside_an_explicit_composite(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor", CompositeExplicitAutograd=copy)
    with library.register_fake(op, lambda x: MetaArray((7,), x.dtype)):
        assert op(MetaArray((3,), float)).shape == (7,)


def test_data_dependent_shapes(ns):
    f = custom_op(f"{ns}::f", lambda x: np.flatnonzero(x), mutates_args=(), schema="(Tensor x) -> Tensor")
    f.register_fake(lambda x: MetaArray((library.get_ctx().new_dynamic_size(),), int))
    with pytest.raises(RuntimeError, match=rf"{ns}::f.*{HERE}:\d+.*data-dependent output shape"):
        f(MetaArray((3,), float))
    assert library.get_ctx() is None
    assert np.array_equal(f(np.array([0, 1, 2])), [1, 2])


def test_fakes_have_to_fit_the_schema(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    with pytest.raises(RegistrationError, match=rf"does not fit the schema(.|\n)*{HERE}:\d+"):
        f.register_fake(lambda x, y: x)
    f.register_fake(lambda x: MetaArray((1,), x.dtype))
    with pytest.raises(RegistrationError):
        f.register_fake(lambda: None)
    assert f(MetaArray((3,), float)).shape == (1,)


# --- autograd: without a formula ---------------------------------------------------------------------------


def test_without_a_formula_backward_raises(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    result = f(tracked())
    assert result.requires_grad is True
    with pytest.raises(RuntimeError, match=rf"{ns}::f.*no autograd formula(.|\n)*register_autograd"):
        result.backward(Tensor(ONE))
    with pytest.raises(NotImplementedError, match=f"{ns}::f.*no autograd formula"):
        func.grad(lambda x: f(x).sum())(ONE)


def test_inplace_without_a_formula_raises_at_the_call(ns):
    f = custom_op(f"{ns}::f_", add_one_, mutates_args=["x"], tags="inplace")
    x = tracked() * 1.0
    with pytest.raises(NoDerivativeError, match=f"{ns}::f_.*no autograd formula"):
        f(x)
    assert np.array_equal(x.detach().numpy(), [1, 2, 3])


def test_integer_results_need_no_formula(ns):
    f = custom_op(f"{ns}::f", lambda x: np.argsort(x), mutates_args=(), schema="(Tensor x) -> Tensor")
    assert f(tracked()).requires_grad is False
    g = custom_op(f"{ns}::g", lambda x: float(x.sum()), mutates_args=(), schema="(Tensor x) -> float")
    assert g(tracked()) == 6.0


@pytest.mark.parametrize("call", [
    lambda f: f(tracked()), lambda f: f(tracked() * 1.0), lambda f: f(Tensor(np.ones(3)), tracked()),
    lambda f: f(np.ones(3), tracked()),
], ids=["leaf", "result", "other argument", "written to raw"])
def test_writing_loses_no_gradient_silently(ns, call):
    def write(x, y=None):
        x += 1

    f = custom_op(f"{ns}::f", write, mutates_args=["x"], schema="(Tensor(a!) x, Tensor? y=None) -> ()")
    with pytest.raises(NoDerivativeError, match=rf"{ns}::f: .*it writes to x"):
        call(f)
    with autograd.no_grad():
        call(f)


def cube_(x: np.ndarray) -> np.ndarray:
    x[...] = x**3
    return x


def times_(x, y):
    x *= y
    return x


def save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def save_output(ctx, inputs, output):
    ctx.save_for_backward(output)


IN_PLACE = {    # kernel, schema, setup_context, backward, jvp, the same by library operators
    "by its input": (
        cube_, "(Tensor(a!) x) -> Tensor(a!)", save_inputs, lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2, None,
        lambda x, y: x**3),
    "by its output": (
        lambda x: np.exp(x, out=x), "(Tensor(a!) x) -> Tensor(a!)", save_output,
        lambda ctx, g: g * ctx.saved_tensors[0], None, lambda x, y: ops.np.exp(x)),
    "with a jvp": (
        cube_, "(Tensor(a!) x) -> Tensor(a!)", save_inputs, lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2,
        lambda ctx, t: t * 3 * ctx.saved_tensors[0] ** 2, lambda x, y: x**3),
    "of two": (
        times_, "(Tensor(a!) x, Tensor y) -> Tensor(a!)", save_inputs,
        lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]), None, lambda x, y: x * y),
    "of two, the second written": (
        lambda y, x: times_(x, y), "(Tensor y, Tensor(a!) x) -> Tensor(a!)", save_inputs,
        lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]), None, lambda x, y: x * y),
}
WAYS = {        # how a program gets to the array that is written to
    "result": lambda write, x: write(x * 1.0, x) * x,
    "view": lambda write, x: _after(x * 1.0, lambda y: write(y[1:], x[:-1])),
    "strided view": lambda write, x: _after(x * 2.0, lambda y: write(y[::2], x[::2])),
    "view before": lambda write, x: _view_before(write, x),
    "twice": lambda write, x: write(write(x * 0.5, x), x),
    "with itself": lambda write, x: _after(x * 1.0, lambda y: write(y, y)),
    "constant": lambda write, x: write(ops.np.ones_like(x), x) * x,
}
POINT = np.array([0.5, -1.0, 1.5])


def _after(array, write):
    write(array)
    return array * array


def _view_before(write, x):
    y = x * 1.0
    view = y[1:]
    write(y, x)
    return view * x[1:]


@pytest.fixture(params=["define", "custom_op"])
def in_place(request, ns):
    """Define an operator in place. Return (write, expected): functions of an array to write to and another one."""

    def make(kernel, schema, setup_context, backward, jvp, functional):
        name = f"{ns}::f_"
        if request.param == "define":
            library.define(name, schema)
            library.impl(name, "CPU", kernel)
        else:
            custom_op(name, kernel, mutates_args=["x"], schema=schema)
        library.register_autograd(name, backward, setup_context=setup_context, jvp=jvp)
        op = find(name)

        def write(x, y):
            result = op(x=x, y=y) if "y" in schema else op(x)
            assert result is x
            return result

        def expected(x, y):
            x[...] = functional(x * 1.0, y * 1.0)
            return x

        return write, expected

    return make


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")
@pytest.mark.parametrize(("row", "way"), [
    pytest.param(IN_PLACE[row], WAYS[way], id=f"{row}, {way}") for row in IN_PLACE for way in WAYS
    if (row, way) != ("by its output", "twice")     # where the second call overwrites what the first has saved
])
def test_operators_in_place_have_gradients(in_place, row, way):
    # The oracle is the same program with a library operator, and the result assigned.
    write, expected = in_place(*row)

    def found(x):
        return way(write, x).sum()

    def wanted(x):
        return way(expected, x).sum()

    x, y = Tensor(POINT, requires_grad=True), Tensor(POINT, requires_grad=True)
    found(x).backward()
    wanted(y).backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy())
    testing.gradgradcheck(found, [x])
    batch, direction = np.stack([POINT, POINT + 1.0]), np.array([1.0, 2.0, -1.0])
    for transform in (
        lambda f: func.grad(f)(POINT),
        lambda f: func.vjp(f, POINT)[1](np.array(2.0))[0],
        lambda f: func.hessian(f)(POINT),
        lambda f: func.functionalize(func.grad(f))(POINT),
        lambda f: func.grad(func.functionalize(f))(POINT),
        lambda f: func.vmap(func.grad(f))(batch),
        lambda f: func.grad(lambda x: func.vmap(f)(x).sum())(batch),
        lambda f: make_fx(func.grad(f))(POINT)(POINT),
    ):
        np.testing.assert_allclose(transform(found), transform(wanted))
    slope = func.grad(wanted)(POINT) @ direction
    np.testing.assert_allclose(func.jvp(found, (POINT,), (direction,))[1], slope, atol=1e-12)


def test_an_operator_in_place_with_a_list(ns):
    def times_all(x, ys):
        for y in ys:
            x *= y
        return x

    def backward(ctx, g):
        x, y, z = ctx.saved_tensors
        return g * y * z, [g * x * z, g * x * y]

    op = custom_op(f"{ns}::f_", times_all, mutates_args=["x"], schema="(Tensor(a!) x, Tensor[] ys) -> Tensor(a!)")
    op.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0], *inputs[1]))

    def cubed_twice(x):
        return op(x * 1.0, [x, 2.0 * x])

    assert gradients(cubed_twice(x := tracked()), x)[0].tolist() == [6, 24, 54]
    assert func.grad(lambda x: cubed_twice(x).sum())(VALUES).tolist() == [6, 24, 54]
    assert func.jvp(cubed_twice, (VALUES,), (ONE,))[1].tolist() == [6, 24, 54]
    own = VALUES * 1.0
    assert func.grad(lambda x: _after(x * 1.0, lambda y: op(y, [y[:], ONE])).sum())(own).tolist() == [4, 32, 108]


def test_an_operator_in_place_on_a_subclass(ns):
    op = custom_op(f"{ns}::f_", cube_, mutates_args=["x"], schema="(Tensor(a!) x) -> Tensor(a!)")
    op.register_autograd(IN_PLACE["by its input"][3], setup_context=save_inputs)
    x = LoggingTensor(VALUES, requires_grad=True)
    op(x * 1.0).sum().backward()
    assert x.grad.elem.tolist() == [3, 12, 27]


def test_a_saved_output_may_be_written_to_again(in_place):
    write, _ = in_place(*IN_PLACE["by its output"])
    leaf = tracked()
    x = leaf * 1.0
    write(write(x, None), None)
    x.sum().backward()
    np.testing.assert_allclose(leaf.grad.array, np.exp(np.exp(VALUES)) * np.exp(VALUES))


def test_a_leaf_is_not_written_to_in_place(in_place):
    write, _ = in_place(*IN_PLACE["by its input"])
    x = tracked()
    with pytest.raises(AutogradError, match=r"::f_: argument 'x'.*a leaf(.|\n)*tensor\.copy\(\)"):
        write(x, None)
    write(x.copy(), None).sum().backward()      # what the message says
    assert x.grad.tolist() == [3, 12, 27]
    with autograd.no_grad():
        write(x, None)
    assert x.detach().tolist() == [1, 8, 27]


def test_without_a_formula_the_message_leads_to_one(ns):
    f = custom_op(f"{ns}::f_", cube_, mutates_args=["x"], schema="(Tensor(a!) x) -> Tensor(a!)")
    x = tracked()
    for call in (lambda: f(x * 1.0), lambda: func.grad(lambda x: f(x * 1.0).sum())(ONE),
                 lambda: func.grad(func.functionalize(lambda x: f(x * 1.0).sum()))(ONE)):
        with pytest.raises(NoDerivativeError, match=r'f_: .*it writes to x(.|\n)*register_autograd\(".*::f_"'):
            call()
    library.register_autograd(f, IN_PLACE["by its input"][3], setup_context=save_inputs)
    f(x * 1.0).sum().backward()
    assert x.grad.tolist() == [3, 12, 27]


def test_what_cannot_have_a_formula_names_a_way_that_works(ns):
    f = custom_op(f"{ns}::f", lambda x: None, mutates_args=["x"], schema="(Tensor(a!) x) -> ()")
    cube = custom_op(f"{ns}::cube", lambda x: x**3, mutates_args=(), schema="(Tensor x) -> Tensor")
    cube.register_autograd(IN_PLACE["by its input"][3], setup_context=save_inputs)
    leaf = tracked()
    x = leaf * 1.0
    for call in (lambda: f(x), lambda: f.register_autograd(lambda ctx: None)):
        with pytest.raises((NoDerivativeError, RegistrationError), match=r"returns (a )?new arrays?(.|\n)*, and use"):
            call()
    x = cube(x)
    x.sum().backward()
    assert leaf.grad.tolist() == [3, 12, 27]


def test_out_variants(ns):
    f = custom_op(f"{ns}::f", double_into, mutates_args=["out"], tags="out")
    for x, out in ((tracked(), Tensor(np.zeros(3))), (Tensor(ONE), tracked())):
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            f(x, out=out)
        with autograd.no_grad():
            assert f(x, out=out) is out
        assert out.grad_fn is None
    for register in (f.register_autograd, functools.partial(library.register_autograd, f"{ns}::f")):
        with pytest.raises(RuntimeError, match="Out variants do not support autograd"):
            register(lambda ctx, g: g)


@pytest.mark.parametrize(("schema", "raised"), [
    pytest.param("(Tensor(a!) x, Tensor y) -> ()", {"x"}, id="118 Tensor"),
    pytest.param("(Tensor(a!)? x, Tensor y) -> ()", {"x"}, id="118 optional"),
    pytest.param("(Tensor(a!)[] xs, Tensor y) -> ()", {"xs"}, id="118 list"),
    pytest.param("(Tensor(a!)?[] xs, Tensor y) -> ()", {"xs"}, id="118 list of optional"),
    pytest.param("(Tensor(a!) x, Tensor(b!) y) -> ()", {"x", "y"}, id="118 unknown"),
])
def test_versions_rise_for_what_is_declared(ns, schema, raised):
    mutates = "unknown" if raised == {"x", "y"} else raised
    f = custom_op(f"{ns}::f", lambda first, y: None, mutates_args=mutates, schema=schema)
    first, second, y = (Tensor(np.ones(2)) for _ in range(3))
    before = [tensor._version for tensor in (first, second, y)]
    f([first, None, second] if "?[]" in schema else [first, second] if "xs" in schema else first, y)
    rises = [tensor._version - count for tensor, count in zip((first, second, y), before, strict=True)]
    assert rises == [1, int("xs" in schema), int("y" in raised)]


def test_an_omitted_optional_argument(ns):
    f = custom_op(f"{ns}::f", lambda x=None: None, mutates_args=["x"], schema="(Tensor(a!)? x=None) -> ()")
    assert f() is None
    assert f(None) is None


def test_what_is_saved_survives_writes(ns):
    f = custom_op(f"{ns}::f", lambda x: x.fill(7), mutates_args=["x"], schema="(Tensor(a!) x) -> ()")
    x, y = tracked(), Tensor(np.ones(3))
    product = x * y
    f(y)
    product.backward(Tensor(ONE))
    np.testing.assert_array_equal(x.grad.array, np.ones(3) * ONE)


# --- autograd: formulas ------------------------------------------------------------------------------------


def test_backward_alone(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_autograd(lambda ctx, g: 2 * g)
    x = tracked()
    result = f(x)
    assert result.grad_fn.name.endswith("Backward")
    assert np.array_equal(gradients(result, x)[0], 2 * ONE)


def test_what_setup_context_gets(ns):
    f = custom_op(f"{ns}::f", lambda x, n=3, *, by=2.0: x * n * by, mutates_args=(),
                  schema="(Tensor x, int n=3, *, float by=2.0) -> Tensor")
    calls = []

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        calls.append((inputs, keyword_only_inputs, output.requires_grad, autograd.is_grad_enabled()))
        ctx.factor = inputs[1] * keyword_only_inputs["by"]

    f.register_autograd(lambda ctx, g: (g * ctx.factor, None), setup_context=setup_context)
    x = tracked()
    for arguments, keywords, filled, factor in (
        ((x,), {}, (3, 2.0), 6), ((x, 4), {}, (4, 2.0), 8), ((x,), {"by": 5.0}, (3, 5.0), 15),
        ((x, 3), {}, (3, 2.0), 6),
    ):
        result = f(*arguments, **keywords)
        inputs, keyword_only, was_tracked, enabled = calls.pop()
        assert type(inputs) is tuple
        assert inputs[0] is x
        assert (inputs[1], keyword_only) == (filled[0], {"by": filled[1]})
        assert (was_tracked, enabled) == (False, False)
        assert np.array_equal(gradients(result, x)[0], factor * ONE)
    assert calls == []


def test_setup_context_runs_when_something_is_tracked(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    calls = []
    f.register_autograd(lambda ctx, g: 2 * g, setup_context=lambda ctx, inputs, output: calls.append(1))
    with autograd.no_grad():
        f(tracked())
    f(Tensor(ONE))
    f(ONE)
    assert calls == []
    f(tracked())
    assert calls == [1]


@pytest.mark.parametrize(("returns", "pattern"), [
    pytest.param((), r"expected 1, got 0", id="112"), pytest.param([], r"expected 1, got 0", id="112 list")])
def test_too_few_gradients(ns, returns, pattern):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_autograd(lambda ctx, g: returns)
    with pytest.raises(RuntimeError, match=rf"operator {ns}::f: .*incorrect number of gradients \({pattern}\)"):
        f(tracked()).backward(Tensor(ONE))


FOUR = "(Tensor x, int a=1, Tensor? b=None, float c=2.0) -> Tensor"


def test_counts_of_operators_with_defaults(ns):
    f = custom_op(f"{ns}::f", lambda x, a=1, b=None, c=2.0: x * c, mutates_args=(), schema=FOUR)
    needs = []

    def formula_of(n):
        def backward(ctx, g):
            needs.append(ctx.needs_input_grad)
            return (g, None, None, None)[:n]

        return backward

    for n, arguments in ((1, ()), (4, ()), (2, (5,)), (4, (5,)), (4, (1, None, 3.0))):
        f.register_autograd(formula_of(n))
        x = tracked()
        assert np.array_equal(gradients(f(x, *arguments), x)[0], ONE)
    for n, arguments, pattern in ((3, (), "expected 1 or 4, got 3"), (1, (5,), "expected 2 or 4, got 1"),
                                  (3, (1, None, 3.0), "expected 4, got 3")):
        f.register_autograd(formula_of(n))
        with pytest.raises(RuntimeError, match=pattern):
            f(tracked(), *arguments).backward(Tensor(ONE))
    assert needs[0] == (True, False, False, False)


@pytest.mark.parametrize(("entry", "pattern"), [
    (lambda g: (g, 1.0), "gradient different than None at position 1"),
    (lambda g: (g, g), "gradient different than None at position 1"),
    (lambda g: ({}, None), None), (lambda g: (1.0, None), None), (lambda g: ("text", None), None),
], ids=["number for an int", "Tensor for an int", "dict", "float", "text"])
def test_gradients_of_the_wrong_kind(ns, entry, pattern):
    f = custom_op(f"{ns}::f", lambda x, n: x * n, mutates_args=(), schema="(Tensor x, int n) -> Tensor")
    f.register_autograd(lambda ctx, g: entry(g))
    with pytest.raises(AutogradError, match=pattern):
        f(tracked(), 2).backward(Tensor(ONE))


def test_tuples_lists_and_bare_values(ns):
    f = custom_op(f"{ns}::f", lambda x, y: x * y, mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor")
    for kind in (tuple, list):
        f.register_autograd(functools.partial(as_kind, kind))
        x, y = tracked(), tracked()
        assert [g is None for g in gradients(f(x, y), x, y)] == [False, True]
    g = custom_op(f"{ns}::g", twice, mutates_args=())
    for wrap in (lambda it: it, lambda it: (it,), lambda it: [it]):
        g.register_autograd(functools.partial(wrapped, wrap))
        x = tracked()
        assert np.array_equal(gradients(g(x), x)[0], ONE)


def as_kind(kind, ctx, g):
    return kind([g, None])


def wrapped(wrap, ctx, g):
    return wrap(g)


@pytest.mark.parametrize("other", [2.0, np.float64(2), np.array(2.0), Tensor(np.array(2.0))], ids=type)
def test_gradients_of_numbers_and_constants_are_dropped(ns, other):
    f = custom_op(
        f"{ns}::f", lambda x, y, zs: x * y, mutates_args=(), schema="(Tensor x, Tensor y, Tensor[] zs) -> Tensor")

    def setup_context(ctx, inputs, output):
        ctx.y = inputs[1]

    f.register_autograd(lambda ctx, g: (g * ctx.y, g, [g, g]), setup_context=setup_context)
    x = tracked()
    assert np.array_equal(gradients(f(x, other, [other, other]), x)[0], 2 * ONE)


@pytest.mark.parametrize("wrap", [lambda g: g, lambda g: g.numpy()], ids=["Tensor", "array"])
def test_gradient_of_a_number_is_dropped(ns, wrap):
    f = custom_op(f"{ns}::f", lambda x, y: x * y, mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor")
    f.register_autograd(lambda ctx, g: (g, wrap(g)))
    x = tracked()
    assert np.array_equal(gradients(f(x, 2.0), x)[0], ONE)


def test_gradients_computed_by_numpy(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_autograd(lambda ctx, g: 2 * g.numpy())
    x = tracked()
    assert np.array_equal(gradients(f(x), x)[0], 2 * ONE)


def test_gradients_are_cast_and_summed(ns):
    f = custom_op(f"{ns}::f", lambda x, y: x * y, mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor")

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

    f.register_autograd(backward, setup_context=setup_context)
    x = Tensor(np.array([1, 2, 3], np.float32), requires_grad=True)
    y = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    found = autograd.grad(f(x, y), (x, y), Tensor(np.ones((2, 3))))
    assert found[0].dtype == np.float32
    assert np.array_equal(found[0].numpy(), [3, 5, 7])
    assert np.array_equal(found[1].numpy(), [[1, 2, 3]] * 2)


def test_gradients_of_another_shape(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_autograd(lambda ctx, g: Tensor(np.ones(4)))
    with pytest.raises(RuntimeError, match=r"expected shape compatible with \(3,\)"):
        f(tracked()).backward(Tensor(ONE))


def test_results_that_took_no_part(ns):
    f = custom_op(f"{ns}::f", lambda x: (x * 2, [x * 3, x * 4], 5, np.arange(3)), mutates_args=(),
                  schema="(Tensor x) -> (Tensor, Tensor[], int, Tensor)")
    seen = []

    def formula(ctx, *grads):
        seen.append(grads)

    for materialize in (True, False):
        f.register_autograd(formula, setup_context=functools.partial(sets_materialize, materialize))
        x = tracked()
        _, (piece, _), number, integers = f(x)
        assert number == 5
        assert integers.requires_grad is False
        piece.backward(Tensor(ONE))
        assert x.grad is None
    (first, pieces, _, integers), (first_none, pieces_none, *_) = seen
    assert np.array_equal(first.numpy(), 0 * ONE)
    assert [np.array_equal(piece.numpy(), expected) for piece, expected in zip(pieces, (ONE, 0 * ONE), strict=True)]
    assert integers.dtype.kind == "i"
    assert seen[0][2] is seen[1][2] is None
    assert first_none is None
    assert pieces_none[1] is None


def sets_materialize(flag, ctx, inputs, output):
    ctx.set_materialize_grads(flag)


def test_marking_results_non_differentiable(ns):
    f = custom_op(
        f"{ns}::f", lambda x: (x * 2, [x * 3, x * 4]), mutates_args=(), schema="(Tensor x) -> (Tensor, Tensor[])")

    def setup_context(ctx, inputs, output):
        first, pieces = output
        ctx.mark_non_differentiable(first, pieces[1])

    f.register_autograd(lambda ctx, g, pieces: 3 * pieces[0], setup_context=setup_context)
    x = tracked()
    first, pieces = f(x)
    assert [first.requires_grad, *(piece.requires_grad for piece in pieces)] == [False, True, False]
    assert np.array_equal(gradients(pieces[0], x)[0], 3 * ONE)


def test_saving_for_backward(ns):
    f = custom_op(f"{ns}::f", lambda x: x**2, mutates_args=(), schema="(Tensor x) -> Tensor")
    seen = []

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], None, output)
        ctx.anything = "anything"

    def backward(ctx, g):
        seen.append((*ctx.saved_tensors, ctx.anything))
        return 2 * g * ctx.saved_tensors[0]

    f.register_autograd(backward, setup_context=setup_context)
    x = tracked()
    out = f(x)
    gradients(out, x)
    (saved, nothing, output, anything), = seen
    assert saved is x
    assert nothing is None
    assert np.array_equal(output.detach().numpy(), out.detach().numpy())
    assert anything == "anything"
    with pytest.raises(RuntimeError):
        gradients(out, x)
    f.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward("text"))
    with pytest.raises(TypeError, match="expected an array or None"):
        f(x)


def test_saved_results_are_no_cycle(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_autograd(lambda ctx, g: g, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output))
    gc.collect()
    gc.disable()
    try:
        out = f(tracked())
        node = weakref.ref(out.grad_fn)
        del out
        assert node() is None
    finally:
        gc.enable()


def test_no_attribute_of_the_context_is_reserved(ns):
    f = custom_op(f"{ns}::f", lambda xs, n=1: xs[0] * 1, mutates_args=(), schema="(Tensor[] xs, int n=1) -> Tensor")

    def setup_context(ctx, inputs, output):
        ctx._pt_metadata = ctx.saved = ctx.given = ctx.n_passed = ctx.inputs = "mine"

    def backward(ctx, g):
        assert ctx._pt_metadata == ctx.saved == ctx.given == ctx.n_passed == ctx.inputs == "mine"
        return [[g]]

    f.register_autograd(backward, setup_context=setup_context)
    x = tracked()
    assert np.array_equal(gradients(f([x]), x)[0], ONE)


@pytest.mark.parametrize("interpreter", ["definition", "library"])
def test_keyword_only_arguments_and_defaults(ns, interpreter):
    f = custom_op(f"{ns}::f", lambda x, n=1, *, a, b=2: x * n * a * b, mutates_args=(),
                  schema="(Tensor x, int n=1, *, int a, int b=2) -> Tensor")
    seen = []

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        seen.append((inputs[1:], keyword_only_inputs))

    at_library = functools.partial(library.register_autograd, f"{ns}::f")
    register = f.register_autograd if interpreter == "definition" else at_library
    register(lambda ctx, g: (g, None), setup_context=setup_context)
    f(tracked(), a=5)
    f(tracked(), 3, a=5, b=7)
    assert seen == [((1,), {"a": 5, "b": 2}), ((3,), {"a": 5, "b": 7})]


@pytest.mark.parametrize(("backward", "setup_context", "jvp", "pattern"), [
    (lambda ctx: None, None, None, "backward .*it has no parameter for 'grad'"),
    (lambda g: None, None, None, "backward .*it has no parameter for 'grad'"),
    (lambda ctx, g, h: None, None, None, "backward .*'h'"),
    (lambda ctx, g: g, lambda ctx, inputs: None, None, "setup_context .*'output'"),
    (lambda ctx, g: g, lambda c, i, o: None, None, "setup_context"),
    (lambda ctx, g: g, lambda ctx, inputs, keyword_only_inputs, output: None, None, "'keyword_only_inputs'"),
    (lambda ctx, g: g, None, lambda ctx: None, "jvp .*it has no parameter for 'tangent_x'"),
    (3, None, None, "backward must be a function, not int"),
])
def test_functions_that_cannot_be_called_are_refused_at_registration(ns, backward, setup_context, jvp, pattern):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    f.register_autograd(lambda ctx, g: 5 * g)
    with pytest.raises(RegistrationError, match=f"operator {ns}::f: .*{pattern}"):
        f.register_autograd(backward, setup_context=setup_context, jvp=jvp)
    x = tracked()
    assert np.array_equal(gradients(f(x), x)[0], 5 * ONE)


def test_setup_context_is_keyword_only(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    with pytest.raises(TypeError):
        f.register_autograd(lambda ctx, g: g, lambda ctx, inputs, output: None)


def test_the_second_registration_replaces_both_functions(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    calls = []
    f.register_autograd(lambda ctx, g: g, setup_context=lambda ctx, inputs, output: calls.append(1))
    x = tracked()
    before = f(x)
    f.register_autograd(lambda ctx, g: 7 * g)
    assert np.array_equal(gradients(f(x), x)[0], 7 * ONE)
    assert calls == [1]
    assert np.array_equal(gradients(before, x)[0], ONE)      # graphs keep their formula


@pytest.mark.parametrize("schema", [
    pytest.param("(Tensor(a!) x) -> ()", id="writes"), pytest.param("(Tensor x) -> ()", id="nothing"),
    pytest.param("(Tensor(a) x, Tensor y) -> Tensor(a)", id="view of one of two"),
    pytest.param("(Tensor(a) x) -> Tensor(a)[]", id="several views"),
])
def test_operators_that_cannot_have_a_formula(fresh, schema):
    fresh.define(f"f{schema}")
    with pytest.raises(RegistrationError, match="non-functional operator"):
        library.register_autograd(f"{fresh.namespace}::f", lambda ctx, g: g)


def test_a_view_of_the_only_array(ns):
    f = custom_op(f"{ns}::f", lambda x, n: x[n:], mutates_args=(), schema="(Tensor(a) x, int n) -> Tensor(a)")

    def setup_context(ctx, inputs, output):
        ctx.n = inputs[1]

    def backward(ctx, g):
        zeros = np.zeros(3)
        zeros[ctx.n :] = g.numpy()
        return zeros, None

    f.register_autograd(backward, setup_context=setup_context)
    x = tracked()
    assert np.array_equal(gradients(f(x, 1), x, grad=np.ones(2))[0], [0, 1, 1])


# --- autograd: lists ---------------------------------------------------------------------------------------


def total(xs):
    return sum([x for x in xs if x is not None], np.zeros(3))


@pytest.mark.parametrize("wrap", [
    lambda gs: list(gs), lambda gs: tuple(gs), lambda gs: [list(gs)], lambda gs: (tuple(gs),), lambda gs: (list(gs),),
], ids=["list", "tuple", "list in a list", "tuple in a tuple", "list in a tuple"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_gradients_of_the_only_list(ns, wrap, n):
    f = custom_op(f"{ns}::f", total, mutates_args=(), schema="(Tensor[] xs) -> Tensor")
    f.register_autograd(lambda ctx, g: wrap([(i + 1) * g for i in range(n)]))
    xs = [tracked() for _ in range(n)]
    assert [gradient[0] for gradient in gradients(f(xs), *xs)] == list(range(1, n + 1))


def test_lists_beside_other_arguments(ns):
    f = custom_op(f"{ns}::f", lambda xs, n, y, ms: total(xs) * n + y, mutates_args=(),
                  schema="(Tensor[] xs, int n, Tensor y, int[] ms) -> Tensor")
    needs = []
    x, y = tracked(), tracked()
    for formula in (
        lambda ctx, g: ([None, 2 * g, None], None, g, None), lambda ctx, g: ((None, 2 * g, None), None, g, []),
        lambda ctx, g: needs.append(ctx.needs_input_grad) or [(None, 2 * g, None), None, g, [None, None]],
    ):
        f.register_autograd(formula)
        found = gradients(f([ONE, x, Tensor(ONE)], 2, y, [1, 2]), x, y)
        assert np.array_equal(found, [2 * ONE, ONE])
    assert needs == [((False, True, False), False, True, (False, False))]
    f.register_autograd(lambda ctx, g: (None, None, g, None))
    assert [g is None for g in gradients(f([ONE, x], 2, y, []), x, y)] == [True, False]


@pytest.mark.parametrize("entry", [
    lambda g: [g], lambda g: [g, g, g], lambda g: [[g], g], lambda g: g, lambda g: {"a": g, "b": g},
], ids=["too few", "too many", "nested", "Tensor", "dict"])
def test_the_structure_has_to_be_that_of_the_argument(ns, entry):
    f = custom_op(f"{ns}::f", lambda xs, n: total(xs), mutates_args=(), schema="(Tensor[] xs, int n) -> Tensor")
    f.register_autograd(lambda ctx, g: (entry(g), None))
    with pytest.raises(AutogradError, match="structure differs from that of the argument"):
        f([tracked(), tracked()], 1).backward(Tensor(ONE))


def test_gradients_of_a_dict_go_by_their_keys(ns):
    f = custom_op(f"{ns}::f", lambda d: np.asarray(d["a"] + 2 * d["b"]), mutates_args=(),
                  schema="(Dict(str, Tensor) d) -> Tensor")
    f.register_autograd(lambda ctx, g: ({"b": 2 * g, "a": g},))
    x, y = tracked(), tracked()
    assert np.array_equal(gradients(f({"a": x, "b": y}), x, y), [ONE, 2 * ONE])
    f.register_autograd(lambda ctx, g: ({"a": g, "c": g},))
    with pytest.raises(AutogradError, match=r"expected \{'a': \*, 'b': \*\}, found \{'a': \*, 'c': \*\}"):
        gradients(f({"a": x, "b": y}), x, y)


def test_lists_with_holes(ns):
    f = custom_op(f"{ns}::f", lambda xs, n: total(xs), mutates_args=(), schema="(Tensor?[] xs, int n) -> Tensor")
    f.register_autograd(lambda ctx, g: ([g, None, 3 * g], None))
    x, y = tracked(), tracked()
    assert np.array_equal(gradients(f([x, None, y], 1), x, y), [ONE, 3 * ONE])


@pytest.mark.parametrize(("schema", "make", "entry"), [
    ("(Dict(str, Tensor) d) -> Tensor", lambda x: {"a": x, "b": ONE}, lambda g: ({"a": 2 * g, "b": None},)),
    ("(Any d) -> Tensor", lambda x: {"a": [x, 3], "b": "text"}, lambda g: ({"a": [2 * g, None], "b": None},)),
    ("(Tensor[][] d) -> Tensor", lambda x: [[x], []], lambda g: [[[2 * g], []]]),
    ("((Tensor, int) d) -> Tensor", lambda x: (x, 1), lambda g: ((2 * g, None),)),
], ids=["dict", "Any", "nested list", "tuple"])
def test_arrays_in_other_containers_have_gradients(ns, schema, make, entry):
    f = custom_op(f"{ns}::f", lambda d: np.ones(3), mutates_args=(), schema=schema)
    f.register_autograd(lambda ctx, g: entry(g))
    x = tracked()
    assert np.array_equal(gradients(f(make(x)), x)[0], 2 * ONE)


def test_lists_of_results(ns):
    f = custom_op(f"{ns}::f", lambda x: [x * 2, x * 3], mutates_args=(), schema="(Tensor x) -> Tensor[]")
    f.register_autograd(lambda ctx, grads: 2 * grads[0] + 3 * grads[1])
    x = tracked()
    first, second = f(x)
    assert np.array_equal(gradients(first + second, x)[0], 5 * ONE)


# --- higher order, transforms ------------------------------------------------------------------------------


@pytest.fixture
def cube(ns):
    """Compute x³ with a formula for both modes."""
    f = custom_op(f"{ns}::cube", lambda x: x**3, mutates_args=(), schema="(Tensor x) -> Tensor")

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    def slope(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g

    f.register_autograd(slope, setup_context=setup_context, jvp=slope)
    return f


def test_functional_transforms(cube):
    np.testing.assert_allclose(func.grad(lambda x: cube(x).sum())(VALUES), 3 * VALUES**2)
    outputs, vjp = func.vjp(cube, VALUES)
    np.testing.assert_allclose(outputs, VALUES**3)
    np.testing.assert_allclose(vjp(ONE)[0], 3 * VALUES**2)


def test_forward_mode(ns, cube):
    outputs, tangents = func.jvp(cube, (VALUES,), (2 * ONE,))
    np.testing.assert_allclose(outputs, VALUES**3)
    np.testing.assert_allclose(tangents, 6 * VALUES**2)
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    with pytest.raises(NoDerivativeError, match=f"{ns}::f"):
        func.jvp(f, (ONE,), (ONE,))
    f.register_autograd(lambda ctx, g: 5 * g)
    np.testing.assert_array_equal(func.jvp(f, (ONE,), (VALUES,))[1], 5 * VALUES)    # backward, transposed
    f.register_autograd(autograd.once_differentiable(lambda ctx, g: 5 * g))
    with pytest.raises(NoDerivativeError, match=f"{ns}::f has no jvp"):
        func.jvp(f, (ONE,), (ONE,))


def test_jvp_of_several_results(ns):
    f = custom_op(f"{ns}::f", lambda x, n, y: (x * n, [y * 2, x * y]), mutates_args=(),
                  schema="(Tensor x, int n, Tensor y) -> (Tensor, Tensor[])")

    def setup_context(ctx, inputs, output):
        x, ctx.n, y = inputs
        ctx.save_for_forward(x, y)

    def jvp(ctx, x_tangent, n_tangent, y_tangent):
        assert n_tangent is None
        x, y = ctx.saved_tensors
        return x_tangent * ctx.n, [y_tangent * 2, x_tangent * y + x * y_tangent]

    f.register_autograd(lambda ctx, g, gs: None, setup_context=setup_context, jvp=jvp)
    _, (first, (second, third)) = func.jvp(lambda x, y: f(x, 5, y), (VALUES, 2 * ONE), (ONE, 3 * ONE))
    np.testing.assert_allclose(first, 5 * ONE)
    np.testing.assert_allclose(second, 6 * ONE)
    np.testing.assert_allclose(third, 2 * ONE + 3 * VALUES)


@pytest.mark.parametrize("has_jvp", [True, False], ids=["jvp", "transposed"])
@pytest.mark.parametrize(("program", "expected"), [
    (lambda f: func.jvp(f, (VALUES,), (ONE,))[1], 3 * VALUES**2),
    (lambda f: func.jvp(lambda x: func.jvp(f, (x,), (ONE,))[1], (VALUES,), (ONE,))[1], 6 * VALUES),
    (lambda f: func.jvp(func.grad(lambda x: f(x).sum()), (VALUES,), (ONE,))[1], 6 * VALUES),
    (lambda f: func.grad(lambda x: func.jvp(f, (x,), (ONE,))[1].sum())(VALUES), 6 * VALUES),
], ids=["jvp", "jvp jvp", "jvp grad", "grad jvp"])
def test_arrays_kept_as_attributes_in_forward_mode(ns, program, expected, has_jvp):
    f = custom_op(f"{ns}::f", lambda x: x**3, mutates_args=(), schema="(Tensor x) -> Tensor")

    def setup_context(ctx, inputs, output):
        ctx.kept = {"inputs": inputs}

    def derivative(ctx, g):
        (x,) = ctx.kept["inputs"]
        return 3 * g * x * x

    f.register_autograd(derivative, setup_context=setup_context, jvp=derivative if has_jvp else None)
    np.testing.assert_allclose(program(f), expected)


def test_jvp_returns_too_few(ns):
    f = custom_op(f"{ns}::f", lambda x: (x * 2, x * 3), mutates_args=(), schema="(Tensor x) -> (Tensor, Tensor)")
    f.register_autograd(lambda ctx, g, h: g, jvp=lambda ctx, t: t)
    with pytest.raises(AutogradError, match=rf"operator {ns}::f: jvp .* \(expected 2, got Tensor\)"):
        func.jvp(f, (ONE,), (ONE,))


# --- batching rules ----------------------------------------------------------------------------------------


def test_the_rule_is_kept_and_replaced(ns):
    f = custom_op(f"{ns}::f", lambda x, n=1, *, by=2.0: x, mutates_args=(),
                  schema="(Tensor x, int n=1, *, float by=2.0) -> Tensor")
    assert batching_of(f.operator) is None

    @f.register_vmap
    def first(info, in_dims, x, n, *, by=2.0):
        return x, 0

    record = batching_of(f.operator)
    assert record.kernel.function is first
    assert record.fill == {"n"}
    assert record.site.startswith(f"{__file__}:")
    second = f.register_vmap(lambda info, in_dims, x, n=1, **kwargs: (x, 0))
    assert batching_of(f.operator).kernel.function is second
    assert not record.active


@pytest.mark.parametrize(("rule", "pattern"), [
    (lambda info, in_dims: None, "'?x'?"), (lambda info, in_dims, x, n, y: None, "'y'"),
    (lambda info, in_dims, x, n=7: None, "default for 'n' is 7"), (3, "a batching rule must be a function, not int"),
])
def test_batching_rules_that_cannot_be_called(ns, rule, pattern):
    f = custom_op(f"{ns}::f", lambda x, n=1: x, mutates_args=(), schema="(Tensor x, int n=1) -> Tensor")
    with pytest.raises(RegistrationError, match=f"operator {ns}::f: .*{pattern}"):
        f.register_vmap(rule)
    assert batching_of(f.operator) is None


# --- redefinition, lifetime --------------------------------------------------------------------------------


def test_redefining_replaces_everything(ns):
    first = custom_op(f"{ns}::f", twice, mutates_args=())
    first.register_kernel("cpu", on_cpu)
    first.register_fake(lambda x: MetaArray((1,), x.dtype))
    first.register_autograd(lambda ctx, g: 5 * g)
    first.register_vmap(lambda info, in_dims, x: (x, 0))
    x = tracked()
    before = first(x)
    second = custom_op(f"{ns}::f", lambda x, y: x + y, mutates_args=(), schema="(Tensor x, Tensor y) -> Tensor")
    assert np.array_equal(second(ONE, ONE), 2 * ONE)
    assert np.array_equal(getattr(ops, ns).f(ONE, ONE), 2 * ONE)
    assert batching_of(second.operator) is None
    with pytest.raises(NoKernelError, match="no fake kernel"):
        second(MetaArray((3,), float), MetaArray((3,), float))
    assert np.array_equal(gradients(before, x)[0], 5 * ONE)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        second(x, ONE).backward(Tensor(ONE))


@pytest.mark.parametrize("use", [
    lambda f: f(ONE), lambda f: f.register_kernel("cpu", on_cpu), lambda f: f.register_fake(copy),
    lambda f: f.register_autograd(lambda ctx, g: g), lambda f: f.register_vmap(lambda info, in_dims, x: (x, 0)),
    lambda f: f.set_kernel_enabled("cpu").__enter__(), lambda f: library.register_fake(f, copy),
    lambda f: library.register_autograd(f, lambda ctx, g: g),
], ids=["call", "kernel", "fake", "autograd", "vmap", "enable", "library fake", "library autograd"])
@pytest.mark.parametrize("end", ["redefined", "removed"])
def test_stale_definitions_raise(ns, use, end):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    overload = f.operator
    if end == "redefined":
        again = custom_op(f"{ns}::f", twice, mutates_args=())
        before = list(again.operator.registrations)
    else:
        f.remove()
        f.remove()
        assert find(f"{ns}::f") is None
    with pytest.raises(StaleOperatorError, match=rf"CustomOpDef\({ns}::f\)> is stale: .* at {HERE}:\d+"):
        use(f)
    with pytest.raises(StaleOperatorError, match=f"{ns}::f"):
        overload(ONE)
    if end == "redefined":
        assert again.operator.registrations == before


def test_a_refused_redefinition_changes_nothing(ns):
    f = custom_op(f"{ns}::f", twice, mutates_args=())
    library.impl(f"{ns}::f", "AutogradA", lambda x: x)
    before = list(f.operator.registrations)
    for options, fn in (({"mutates_args": "x"}, twice), ({"mutates_args": (), "device_types": "nowhere"}, twice),
                        ({"mutates_args": (), "schema": "(Tensor x, Tensor y) -> Tensor"}, lambda x, y: x),
                        ({"mutates_args": (), "schema": "(Tensor x) -> Tensor"}, lambda x, y: x)):
        with pytest.raises((SchemaError, RegistrationError, UnknownKeyError)):
            custom_op(f"{ns}::f", fn, **options)
        assert f.operator.registrations == before
        assert np.array_equal(f(ONE), 2 * ONE)


def test_operators_that_were_defined_otherwise_are_not_replaced(fresh):
    fresh.define("f(Tensor x) -> Tensor")
    with pytest.raises(RegistrationError, match="is defined already"):
        custom_op(f"{fresh.namespace}::f", twice, mutates_args=())
    assert f"{fresh.namespace}::f" not in definitions


def test_operators_outlive_their_objects(ns):
    custom_op(f"{ns}::f", twice, mutates_args=())
    gc.collect()
    assert np.array_equal(getattr(ops, ns).f(ONE), 2 * ONE)


def test_what_others_registered_stays_when_it_fits(ns):
    custom_op(f"{ns}::f", twice, mutates_args=())
    with library.impl(f"{ns}::f", "CPU", lambda x: x * 100):
        again = custom_op(f"{ns}::f", twice, mutates_args=())
        assert np.array_equal(again(ONE), 100 * ONE)
    assert np.array_equal(again(ONE), 2 * ONE)


@pytest.mark.parametrize("spelling", ["decorator", "function", "library decorator", "library function"])
def test_sources_are_the_users_lines(ns, spelling):
    f = custom_op(f"{ns}::source", copy, mutates_args=())
    if spelling == "decorator":
        @f.register_fake
        def fake(x):
            return MetaArray(x.shape, x.dtype)
    elif spelling == "function":
        f.register_fake(lambda x: MetaArray(x.shape, x.dtype))
    elif spelling == "library decorator":
        @library.register_fake(f"{ns}::source")
        def fake_too(x):
            return MetaArray(x.shape, x.dtype)
    else:
        library.register_fake(f"{ns}::source", lambda x: MetaArray(x.shape, x.dtype))
    (handle,) = registrations.kernels_of(f.operator)[parse_key("Meta")]
    path, _, number = handle.site.rpartition(":")
    assert path == __file__
    first = test_sources_are_the_users_lines.__code__.co_firstlineno
    assert 0 < int(number) - first < 20


def all_types(
    a: np.ndarray, b: list[np.ndarray], c: Sequence[np.ndarray | None], d: np.ndarray | None, e: int, f: Sequence[int],
    g: float | None, h: bool, i: str, j: numbers.Number, k: np.dtype, l: list[int] | None,  # noqa: E741
) -> tuple[np.ndarray, list[np.ndarray], int, float, bool]:
    return a + 1, [b[0] + 1], e, 1.0, h


def test_types_of_annotations(ns):
    f = custom_op(f"{ns}::f", all_types, mutates_args="unknown")
    assert str(f.operator.schema) == (
        f"{ns}::f(Tensor(a0!) a, Tensor(a1!)[] b, Tensor(a2!)?[] c, Tensor(a3!)? d, int e, int[] f, float? g, bool h, "
        "str i, Scalar j, ScalarType k, int[]? l) -> (Tensor, Tensor[], int, float, bool)"
    )
    result = f(ONE, [ONE], [None], None, 1, (2,), None, True, "i", 2.5, np.dtype("f4"), None)
    assert result[2:] == (1, 1.0, True)


def test_aliasing_errors_are_their_own_class():
    assert issubclass(AliasingError, RuntimeError)
