"""The function API: defining, kernels, fakes, and formulas whose gradients go by name."""

from __future__ import annotations

import collections
import re

import numpy as np
import pytest

from pydispatch import Tensor, autograd, exceptions, func, library, ops
from pydispatch._registry import registrations
from pydispatch._registry.operators import find
from pydispatch.backends import MetaArray
from pydispatch.compat import custom_ops
from pydispatch.compat.custom_ops import custom_op, impl, impl_abstract, impl_backward, impl_save_for_backward
from pydispatch.keys import parse_key
from pydispatch.library import Library
from pydispatch.tree import tree_map

ONE = np.ones(3)
HERE = re.escape(__file__)


@pytest.fixture
def ns(new_library):
    """Provide a namespace of the test's own. What is registered in it goes with the test."""
    namespace = new_library().namespace
    yield namespace
    for name in list(custom_ops._known):
        if name.startswith(f"{namespace}::"):
            destroy(name)
    for name, op in list(registrations.operators.items()):
        if name.startswith(f"{namespace}::"):
            registrations.call_each([handle.remove for handle in op.registrations])


def destroy(name):
    """Undo the definition of an operator, and what was registered for it through custom_ops."""
    custom_ops._known.pop(name).remove()


def tracked(*values):
    return Tensor(np.array(values or (1, 2, 3), float), requires_grad=True)


def defined(ns, schema="(Tensor x) -> Tensor", kernel=None, name="foo"):
    """Define an operator and its CPU kernel, and return the packet."""
    custom_op(f"{ns}::{name}", schema)
    if kernel is not None:
        impl(f"{ns}::{name}", func=kernel)
    return getattr(getattr(ops, ns), name)


def differentiate(qualname, save, backward, output_differentiability=None):
    impl_save_for_backward(qualname, func=save)
    impl_backward(qualname, output_differentiability, func=backward)


def copy(x):
    return x.copy()


def save_nothing(inputs, output):
    return None


# --- defining ----------------------------------------------------------------------------------------------


def test_decorator_returns_the_function_and_takes_its_annotations(ns):
    def foo(x: np.ndarray, n: int = 2, *, by: float) -> tuple[np.ndarray, int]:
        raise AssertionError("a prototype is never run")

    assert custom_op(f"{ns}::foo")(foo) is foo
    schema = getattr(ops, ns).foo.default.schema
    assert str(schema) == f"{ns}::foo(Tensor x, int n=2, *, float by) -> (Tensor, int)"


def test_schema_form_returns_nothing(ns):
    assert custom_op(f"{ns}::foo", "(Tensor x) -> Tensor") is None
    assert str(getattr(ops, ns).foo.default.schema) == f"{ns}::foo(Tensor x) -> Tensor"


BAD_SCHEMAS = {
    "1": ("(", "expected"),
    "4": ("(Tensor(a!) x) -> Tensor(a)", "only supports functional operators.*non-functional"),
    "5": ("(Tensor(a) x) -> Tensor(a)", "only supports functional operators.*view functions"),
    "6": ("(Tensor x) -> ()", "only supports functional operators.*no outputs"),
    "7": ("(Tensor self) -> Tensor", "arguments named 'self'"),
    "39 asdf": ("(asdf x) -> Tensor", "asdf"),
    "39 int64_t": ("(int64_t x) -> Tensor", "int64_t"),
    "40": ("foo(Tensor x) -> Tensor", "expected schema to look like"),
    "no arrow": ("(Tensor x)", "expected '->'"),
    "duplicate": ("(Tensor x, int x) -> Tensor", "two arguments are named 'x'"),
}


@pytest.mark.parametrize(("schema", "pattern"), BAD_SCHEMAS.values(), ids=BAD_SCHEMAS)
def test_schemas_refused(ns, schema, pattern):
    before = set(registrations.operators)
    with pytest.raises(exceptions.SchemaError, match=pattern):
        custom_op(f"{ns}::bar", schema)
    assert set(registrations.operators) == before


def test_a_schema_with_a_name_leaves_no_junk_operator(ns):
    with pytest.raises(exceptions.SchemaError):
        custom_op(f"{ns}::bar", "foo(Tensor x) -> Tensor")
    assert find(f"{ns}::barfoo") is None
    assert find(f"{ns}::bar") is None


@pytest.mark.parametrize("schema", [
    "(Tensor x, int n=1) -> Tensor", "(Tensor x, *, Tensor y) -> Tensor", "() -> Tensor", "(int[2] x) -> Tensor",
    "(Tensor x) -> Tensor?", "(Tensor x) -> str", "(Tensor x) -> int[]", "(Tensor x) -> Scalar",
    "(Tensor(a) x) -> Tensor",
])
def test_schemas_accepted(ns, schema):
    custom_op(f"{ns}::foo", schema)
    assert find(f"{ns}::foo") is not None


@pytest.mark.parametrize(("name", "pattern"), [
    pytest.param("foo", "expected there to be a namespace", id="no namespace"),
    pytest.param("a::b::c", "c", id="two namespaces"),
    pytest.param("{ns}::foo.Tensor", "do not handle overloads", id="2"),
    pytest.param("::foo", "expected the name of an operator, found '::'", id="empty namespace"),
    pytest.param("{ns}::", "expected the name of an operator after '::'", id="empty name"),
    pytest.param("{ns}::foo-1", "foo-1", id="no identifier"),
    pytest.param("{ns}::def", "def", id="reserved word"),
    pytest.param("{ns}::f\u00f6", "expected the end of the name", id="not ASCII"),
    pytest.param("{ns}::foo_", "ends in _", id="promises to write"),
    pytest.param("{ns}::__iadd__", "ends in _", id="promises to write in place"),
    pytest.param("{ns}::foo_out", "ends in _out", id="promises out"),
    pytest.param(3, "must be a string, not int", id="no text"),
])
def test_names_refused_before_a_decorator_is_returned(ns, name, pattern):
    with pytest.raises(exceptions.SchemaError, match=pattern):
        custom_op(name.format(ns=ns) if isinstance(name, str) else name)


@pytest.mark.parametrize("reserved", ["np", "pydispatch"])
@pytest.mark.parametrize("form", [(), ("(Tensor x) -> Tensor",)], ids=["decorator", "schema"])
def test_reserved_namespaces(reserved, form):
    with pytest.raises(exceptions.SchemaError, match="is a reserved namespace"):
        custom_op(f"{reserved}::foo", *form)


def test_the_function_has_the_name_of_the_operator(ns):
    def baz(x: np.ndarray) -> np.ndarray: ...

    with pytest.raises(exceptions.SchemaError, match="to have name 'foo', found 'baz'"):
        custom_op(f"{ns}::foo")(baz)
    assert find(f"{ns}::foo") is None


class Callable_:  # noqa: N801
    def __call__(self, x: np.ndarray) -> np.ndarray: ...


@pytest.mark.parametrize("prototype", [Callable_, Callable_(), len, 3], ids=["class", "instance", "builtin", "int"])
def test_only_plain_functions(ns, prototype):
    with pytest.raises(exceptions.SchemaError, match="Python function, got"):
        custom_op(f"{ns}::foo")(prototype)


def unannotated(x, y: np.ndarray) -> np.ndarray: ...
def unknown_name(x: Nowhere) -> np.ndarray: ...  # noqa: F821
def array_default(x: np.ndarray, y: np.ndarray = ONE) -> np.ndarray: ...


@pytest.mark.parametrize(("prototype", "pattern"), [
    (unannotated, "'x' has no annotation"), (unknown_name, "'Nowhere'.*could not be evaluated"),
    (array_default, "default"),
])
def test_inference_refused(ns, prototype, pattern):
    prototype.__name__ = "foo"
    with pytest.raises(exceptions.SchemaError, match=f"(?s){pattern}"):
        custom_op(f"{ns}::foo")(prototype)
    assert find(f"{ns}::foo") is None


def lists(x: list[int | None], y: tuple[int, int]) -> tuple[np.ndarray, ...]: ...


def test_types_that_upstream_refuses(ns):
    lists.__name__ = "foo"
    custom_op(f"{ns}::foo")(lists)
    assert str(getattr(ops, ns).foo.default.schema) == f"{ns}::foo(int?[] x, (int, int) y) -> Tensor[]"


def test_the_constructor_is_private():
    with pytest.raises(exceptions.RegistrationError, match="constructor is private"):
        custom_ops.CustomOp(None, None)


def test_defining_twice_names_both_lines(ns):
    custom_op(f"{ns}::foo", "(Tensor x) -> Tensor")
    with pytest.raises(exceptions.RegistrationError, match=rf"(?s)is defined already.*{HERE}:\d+.*{HERE}:\d+"):
        custom_op(f"{ns}::foo", "(Tensor x) -> Tensor")
    destroy(f"{ns}::foo")
    custom_op(f"{ns}::foo", "(Tensor x, Tensor y) -> Tensor")
    assert len(getattr(ops, ns).foo.default.schema.arguments) == 2


def test_destroyed_operators_raise(ns):
    foo = defined(ns, kernel=copy)
    overload = foo.default
    destroy(f"{ns}::foo")
    for call in (foo, overload):
        with pytest.raises(exceptions.StaleOperatorError, match=f"{ns}::foo"):
            call(ONE)
    with pytest.raises(exceptions.OperatorNotFoundError):
        _ = getattr(ops, ns).foo
    assert find(f"{ns}::foo") is None


@pytest.mark.parametrize(("schema", "field"), [
    ("(Tensor _x) -> Tensor", "_x"), ("(Tensor x, int lambda) -> Tensor", "lambda"),
    ("(Tensor from) -> Tensor", "from"),
])
def test_names_that_cannot_be_fields_are_refused_when_defining(ns, schema, field):
    with pytest.raises(exceptions.SchemaError, match=f"argument '{field}'"):
        custom_op(f"{ns}::foo", schema)
    assert find(f"{ns}::foo") is None


def test_for_operators_that_were_defined_by_other_means(fresh):
    fresh.define("foo(Tensor _x) -> Tensor")
    qualname = f"{fresh.namespace}::foo"
    impl_save_for_backward(qualname, func=save_nothing)
    with pytest.raises(exceptions.SchemaError, match="argument '_x'"):
        impl_backward(qualname, func=lambda ctx, saved, g: {"_x": g})
    destroy(qualname)


@pytest.mark.parametrize("register", [impl, impl_abstract, impl_save_for_backward, impl_backward])
def test_unknown_operators_are_looked_up_when_the_decorator_is_applied(ns, register):
    decorator = register(f"{ns}::nowhere")
    with pytest.raises(exceptions.OperatorNotFoundError, match=f"{ns}::nowhere"):
        decorator(copy)
    defined(ns, name="nowhere")
    assert register(f"{ns}::nowhere")(lambda *args: None) is not None


# --- kernels, fakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device_types", ["hip", "xla", ["cpu", "hip"], ["CPU", 3]], ids=str)
def test_unknown_devices_register_nothing(ns, device_types):
    foo = defined(ns)
    with pytest.raises(exceptions.UnknownKeyError, match="unknown backend"):
        impl(f"{ns}::foo", device_types=device_types, func=copy)
    assert not foo.default.has_kernel()


def test_devices_in_any_case_and_once_each(ns, backends):
    foo = defined(ns)
    assert impl(f"{ns}::foo", device_types=["cpu", "CPU", "a", "meta"])(copy) is copy
    assert [foo.default.has_kernel(key) for key in ("CPU", "A", "Meta", "B")] == [True, True, True, False]
    assert np.array_equal(foo(ONE), ONE)


def test_no_kernel(ns):
    with pytest.raises(NotImplementedError, match="no kernel for the key CPU"):
        defined(ns)(ONE)


def test_no_fake(ns):
    with pytest.raises(NotImplementedError, match="no fake kernel"):
        defined(ns, kernel=copy)(MetaArray((3,), float))


def test_no_arrays_choose_the_default_backend(ns):
    foo = defined(ns, "(int[] xs) -> Tensor")
    with pytest.raises(exceptions.NoKernelError, match="no argument is an array"):
        foo([1, 2])
    impl(f"{ns}::foo", func=lambda xs: np.array(xs))
    assert np.array_equal(foo([1, 2]), [1, 2])


def test_second_fake(ns):
    defined(ns)
    impl_abstract(f"{ns}::foo")(copy)
    with pytest.raises(exceptions.RegistrationError, match=rf"already has a abstract impl.* at .*{HERE}:\d+"):
        impl_abstract(f"{ns}::foo")(copy)


def test_data_dependent_shapes(ns):
    foo = defined(ns, kernel=copy)

    @impl_abstract(f"{ns}::foo")
    def fake(x):
        return MetaArray((custom_ops.get_ctx().new_dynamic_size(),), x.dtype)

    line = fake.__code__.co_firstlineno
    with pytest.raises(RuntimeError, match=rf"(?s){ns}::foo.*{HERE}:{line}.*data-dependent output shape"):
        foo(MetaArray((3,), float))
    assert custom_ops.get_ctx() is None


def test_contexts_nest(ns):
    outer = defined(ns, name="outer")
    inner = defined(ns, name="inner")
    seen = []
    impl_abstract(f"{ns}::inner", func=lambda x: MetaArray(x.shape, x.dtype))

    @impl_abstract(f"{ns}::outer")
    def fake(x):
        result = inner(x)
        with pytest.raises(RuntimeError, match=f"operator {ns}::outer"):
            custom_ops.get_ctx()
        seen.append(result.shape)
        return result

    outer(MetaArray((3,), float))
    assert seen == [(3,)]


KERNEL_KEYS = ["CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd"]


@pytest.mark.parametrize("key", KERNEL_KEYS)
def test_there_is_an_implementation(fresh, define, key):
    op = define(fresh, "foo(Tensor x) -> Tensor", **{key: copy})
    with pytest.raises(exceptions.RegistrationError, match="already has an implementation for CPU"):
        impl(str(op.name), func=copy)
    with pytest.raises(exceptions.RegistrationError, match=r"already has an implementation for (CPU|Meta)"):
        impl(str(op.name), device_types=["meta", "cpu"], func=copy)
    assert str(op.name) not in custom_ops._known
    assert set(registrations.kernels_of(op)) == {parse_key(key)}


def test_there_is_an_implementation_by_this_api(ns):
    defined(ns, kernel=copy)
    message = rf"already has a CPU impl: copy at .*, registered at {HERE}:\d+"
    with pytest.raises(exceptions.RegistrationError, match=message):
        impl(f"{ns}::foo", func=copy)


@pytest.mark.parametrize(("key", "pattern"), [
    pytest.param("Meta", "already has .*Meta implementation", id="70"),
    pytest.param("CompositeImplicitAutograd", "CompositeImplicitAutograd", id="71"),
])
def test_fakes_that_would_have_no_effect(fresh, define, key, pattern):
    op = define(fresh, "foo(Tensor x) -> Tensor", **{key: copy})
    with pytest.raises(exceptions.RegistrationError, match=pattern):
        impl_abstract(str(op.name), func=copy)
    assert [handle.key.name for handle in op.registrations if isinstance(handle, registrations.KernelHandle)] == [key]
    assert str(op.name) not in custom_ops._known


def test_a_fake_beside_a_default_of_backends_is_used(fresh, define):
    op = define(fresh, "foo(Tensor x) -> Tensor", CompositeExplicitAutograd=copy)
    impl_abstract(str(op.name), func=lambda x: MetaArray((7,), x.dtype))
    assert op(MetaArray((3,), float)).shape == (7,)
    destroy(str(op.name))


def test_non_callables_leave_no_trace(ns):
    foo = defined(ns)
    for register in (impl, impl_abstract, impl_save_for_backward, impl_backward):
        with pytest.raises(exceptions.RegistrationError, match="must be a function, not int"):
            register(f"{ns}::foo")(3)
    assert len(foo.default.registrations) == 1
    impl(f"{ns}::foo", func=copy)
    impl_abstract(f"{ns}::foo", func=copy)


def test_kernels_are_registered_all_or_none(ns):
    foo = defined(ns)
    impl(f"{ns}::foo", device_types="Meta", func=copy)
    with pytest.raises(exceptions.RegistrationError, match="already has a Meta impl"):
        impl(f"{ns}::foo", device_types=["CPU", "Meta"], func=copy)
    assert not foo.default.has_kernel("CPU")
    with pytest.raises(exceptions.RegistrationError, match="'y'"):
        impl(f"{ns}::foo", func=lambda x, y: x)
    impl(f"{ns}::foo", func=copy)


@pytest.mark.parametrize("spelling", ["decorator", "function"])
@pytest.mark.parametrize("register", [impl, impl_abstract, impl_save_for_backward, impl_backward])
def test_locations_are_the_users_lines_in_both_spellings(ns, register, spelling):
    defined(ns)
    function = (lambda x: x) if register in (impl, impl_abstract) else (lambda *args: {})
    if spelling == "decorator":
        register(f"{ns}::foo")(function)
    else:
        register(f"{ns}::foo", func=function)
    line = test_locations_are_the_users_lines_in_both_spellings.__code__.co_firstlineno
    (site,) = {site for _, site in custom_ops._known[f"{ns}::foo"].functions.values()}
    path, _, number = site.rpartition(":")
    assert path == __file__
    assert 0 < int(number) - line < 12


def test_kernels_for_operators_that_were_defined_by_other_means(fresh):
    fresh.define("foo_(Tensor(a!) x) -> Tensor(a!)")

    def add_one(x):
        x += 1
        return x

    impl(f"{fresh.namespace}::foo_", func=add_one)
    array = np.zeros(2)
    assert getattr(ops, fresh.namespace).foo_(array) is array
    assert np.array_equal(array, [1, 1])
    destroy(f"{fresh.namespace}::foo_")
    assert not getattr(ops, fresh.namespace).foo_.default.has_kernel()


def test_what_was_registered_for_a_definition_goes_with_it(new_library):
    # Upstream, fakes survived (#110137).
    with new_library() as lib:
        lib.define("foo(Tensor x) -> Tensor")
        qualname = f"{lib.namespace}::foo"
        impl(qualname, func=copy)
    with Library(lib.namespace, "FRAGMENT") as again:
        again.define("foo(Tensor x) -> Tensor")
        impl(qualname, func=lambda x: x * 2)
        assert np.array_equal(getattr(ops, lib.namespace).foo(ONE), 2 * ONE)
    destroy(qualname)


# --- without a formula -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("schema", "arguments"), [
    pytest.param("(Tensor x) -> Tensor", lambda: [tracked()], id="92"),
    pytest.param("(Tensor[] xs) -> Tensor", lambda: [[Tensor(ONE), tracked()]], id="93"),
    pytest.param("(Tensor x, Tensor y) -> Tensor", lambda: [ONE, tracked()], id="94"),
    pytest.param("(Dict(str, Tensor) d) -> Tensor", lambda: [{"a": tracked()}], id="dict"),
    pytest.param("(Tensor[][] xs) -> Tensor", lambda: [[[tracked()]]], id="nested list"),
])
def test_a_missing_formula_is_an_error_that_names_the_operator(ns, schema, arguments):
    foo = defined(ns, schema)
    with pytest.raises(exceptions.NoDerivativeError, match=f"Autograd has not been implemented for operator {ns}::foo"):
        foo(*arguments())


def test_no_formula_needed(ns):
    foo = defined(ns, kernel=copy)
    with autograd.no_grad():
        result = foo(tracked())
    assert result.requires_grad is False
    assert foo(Tensor(ONE)).requires_grad is False
    assert type(foo(ONE)) is np.ndarray


HALVES = [
    (impl_save_for_backward, save_nothing, "backward", "save_for_backward"),
    (impl_backward, lambda ctx, saved, g: {"x": g}, "save_for_backward", "backward"),
]


@pytest.mark.parametrize(("register", "function", "missing", "found"), HALVES, ids=["96", "96 mirrored"])
def test_half_a_formula_fails_every_call_with_a_tensor(ns, register, function, missing, found):
    foo = defined(ns, kernel=copy)
    register(f"{ns}::foo", func=function)
    pattern = rf"(?s){ns}::foo: unable to find a '{missing}'.*its '{found}' is .*{HERE}:\d+.*impl_{missing}"
    for argument in (tracked(), Tensor(ONE)):
        with pytest.raises(RuntimeError, match=pattern):
            foo(argument)
    with autograd.no_grad(), pytest.raises(RuntimeError, match=pattern):
        foo(tracked())
    assert np.array_equal(foo(ONE), ONE)        # an array is a constant


@pytest.mark.parametrize("order", [1, -1])
def test_either_half_first(ns, order):
    foo = defined(ns, kernel=copy)
    overload = foo.default
    for register, function, *_ in HALVES[::order]:
        register(f"{ns}::foo", func=function)
    x = tracked()
    (gradient,) = autograd.grad(overload(x), x, Tensor(2 * ONE))
    assert np.array_equal(gradient.numpy(), 2 * ONE)
    assert not overload.has_kernel("Autograd")


@pytest.mark.parametrize(("register", "function", "missing", "found"), HALVES)
def test_each_half_once(ns, register, function, missing, found):
    defined(ns)
    register(f"{ns}::foo", func=function)
    with pytest.raises(exceptions.RegistrationError, match=rf"already has a {found} impl.* at {HERE}:\d+"):
        register(f"{ns}::foo", func=function)


# --- eligibility -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("register", [impl_save_for_backward, impl_backward])
@pytest.mark.parametrize(("schema", "pattern"), [
    pytest.param("foo(Tensor(a) x) -> Tensor(a)", "operator that returns views", id="107 view"),
    pytest.param("foo(Tensor(a!) x) -> Tensor", "non-functional", id="107 mutable"),
    pytest.param("foo(Tensor x) -> ()", "no returns", id="107 nothing"),
    pytest.param("foo(Tensor x) -> Scalar", "return not in", id="Scalar"),
    pytest.param("foo(Tensor x) -> (Tensor, str)", "return not in", id="str"),
    pytest.param("foo(Tensor x) -> Tensor?", "return not in", id="Tensor?"),
    pytest.param("foo(Tensor x) -> int[]", "return not in", id="int[]"),
])
def test_operators_that_cannot_have_a_formula(fresh, register, schema, pattern):
    fresh.define(schema)
    with pytest.raises(exceptions.RegistrationError, match=pattern):
        register(f"{fresh.namespace}::foo")(lambda *args: {})
    assert f"{fresh.namespace}::foo" not in custom_ops._known


@pytest.mark.parametrize("register", [impl_save_for_backward, impl_backward])
@pytest.mark.parametrize("key", ["CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradMeta", "AutogradA"])
def test_kernels_that_would_hide_the_formula(fresh, define, register, key):
    op = define(fresh, "foo(Tensor x) -> Tensor", **{key: copy})
    with pytest.raises(exceptions.RegistrationError, match=rf"has a kernel under {key}, registered at .*:\d+"):
        register(str(op.name))(lambda *args: {})
    assert str(op.name) not in custom_ops._known


def test_a_formula_for_an_operator_that_was_defined_by_other_means(fresh, define):
    op = define(fresh, "foo(Tensor x) -> Tensor", CPU=np.sin)
    differentiate(str(op.name), lambda inputs, output: inputs.x, lambda ctx, x, g: {"x": g * ops.np.cos(x)})
    x = tracked()
    (gradient,) = autograd.grad(op(x), x, Tensor(ONE))
    np.testing.assert_allclose(gradient.numpy(), np.cos(x.detach().numpy()))
    destroy(str(op.name))


@pytest.mark.parametrize("flags", [True, (True,), [1], [None], [True, False], []], ids=str)
def test_output_differentiability_is_a_list_of_bools(ns, flags):
    foo = defined(ns)
    with pytest.raises(RuntimeError, match="output_differentiability"):
        impl_backward(f"{ns}::foo", output_differentiability=flags)(lambda ctx, saved, g: {})
    assert len(foo.default.registrations) == 1


@pytest.mark.parametrize(("register", "function", "pattern"), [
    (impl_save_for_backward, lambda inputs: None, "save_for_backward .* it has no parameter for 'output'"),
    (impl_save_for_backward, lambda inputs, output, more: None, "save_for_backward .* 'more'"),
    (impl_backward, lambda ctx, saved: {}, "backward .* it has no parameter for 'grad'"),
    (impl_backward, lambda ctx, saved, g, *, extra: {}, "backward .* 'extra'"),
    (impl_abstract, lambda: None, "positional arguments"),
])
def test_functions_that_cannot_be_called_are_refused_at_registration(ns, register, function, pattern):
    foo = defined(ns)
    with pytest.raises(exceptions.RegistrationError, match=pattern):
        register(f"{ns}::foo")(function)
    assert len(foo.default.registrations) == 1
    assert custom_ops._known[f"{ns}::foo"].functions == {}


# --- what save and backward get ----------------------------------------------------------------------------


def test_inputs_of_save(ns):
    foo = defined(
        ns, "(Tensor x, int[] n, Tensor? y=None, *, float by=2.0) -> Tensor", lambda x, n, y=None, *, by: x * by)
    calls = []

    def save(inputs, output):
        calls.append((inputs, output, output.requires_grad, autograd.is_grad_enabled()))
        return inputs.by

    differentiate(f"{ns}::foo", save, lambda ctx, by, g: {"x": g * by, "y": None})
    x = tracked()
    result = foo(x, [1, 2])
    ((inputs, output, was_tracked, enabled),) = calls
    assert isinstance(inputs, tuple)
    assert type(inputs).__name__ == "foo_args"
    assert inputs._fields == ("x", "n", "y", "by")
    assert inputs.x is x
    assert inputs[1:] == ((1, 2), None, 2.0)
    assert enabled is False
    assert was_tracked is False
    assert np.array_equal(output.detach().numpy(), 2 * x.detach().numpy())
    (gradient,) = autograd.grad(result, x, Tensor(ONE))
    assert np.array_equal(gradient.numpy(), 2 * ONE)
    assert len(calls) == 1


def test_save_does_not_run_when_nothing_needs_a_gradient(ns):
    foo = defined(ns, kernel=copy)

    def save(inputs, output):
        raise AssertionError("not needed")

    differentiate(f"{ns}::foo", save, lambda ctx, saved, g: {"x": g})
    assert np.array_equal(foo(Tensor(ONE)).numpy(), ONE)
    with autograd.no_grad():
        assert foo(tracked()).requires_grad is False
    with pytest.raises(AssertionError, match="not needed"):
        foo(tracked())


def test_keyword_only_arguments_and_defaults(ns):
    foo = defined(
        ns, "(Tensor x, int n=3, *, Tensor weight, float by=2.0) -> Tensor",
        lambda x, n=3, *, weight, by=2.0: x * n * weight * by)

    def save(inputs, output):
        return inputs

    def backward(ctx, saved, g):
        return {"x": g * saved.weight * saved.n * saved.by, "weight": g * saved.x * saved.n * saved.by}

    differentiate(f"{ns}::foo", save, backward)
    for keywords, factor in (({}, 6.0), ({"by": 5.0}, 15.0), ({"n": 1, "by": 2.0}, 2.0)):
        x, weight = tracked(1, 2, 3), tracked(4, 5, 6)
        gradients = autograd.grad(foo(x, weight=weight, **keywords), (x, weight), Tensor(ONE))
        np.testing.assert_array_equal(gradients[0].numpy(), factor * np.array([4, 5, 6]))
        np.testing.assert_array_equal(gradients[1].numpy(), factor * np.array([1, 2, 3]))


Triple = collections.namedtuple("Triple", "a b c")


class Opaque:
    pass


@pytest.mark.parametrize("make", [
    lambda x, out: None, lambda x, out: 3, lambda x, out: x, lambda x, out: out, lambda x, out: (x, 3, out),
    lambda x, out: [x, x.shape, "text"], lambda x, out: {"x": x, "n": {"deep": [out]}},
    lambda x, out: Triple(1, x, None),
    lambda x, out: [], lambda x, out: (x, x), lambda x, out: np.arange(3),
], ids=["None", "number", "input", "output", "tuple", "list", "dict", "namedtuple", "empty", "twice", "array"])
def test_any_container_can_be_saved(ns, make):
    foo = defined(ns, kernel=lambda x: x * 2)
    seen = []

    def backward(ctx, saved, g):
        seen.append(saved)
        return {"x": g}

    differentiate(f"{ns}::foo", lambda inputs, output: make(inputs.x, output), backward)
    x = tracked()
    out = foo(x)
    autograd.grad(out, x, Tensor(ONE))

    def plain(value):
        return tree_map(lambda leaf: leaf.detach().numpy().tolist() if isinstance(leaf, Tensor) else leaf, value)

    (saved,) = seen
    expected = make(x, out)
    assert type(saved) is type(expected)
    np.testing.assert_equal(plain(saved), plain(expected))


def test_saved_inputs_and_opaque_objects_are_the_same_objects(ns):
    foo = defined(ns, kernel=copy)
    opaque = Opaque()
    seen = []

    def backward(ctx, saved, g):
        seen.extend(saved)
        return {"x": g}

    differentiate(f"{ns}::foo", lambda inputs, output: (inputs.x, opaque), backward)
    x = tracked()
    autograd.grad(foo(x), x, Tensor(ONE))
    assert seen[0] is x
    assert seen[1] is opaque


def test_saved_tensors_survive_writes_and_are_freed(ns):
    foo = defined(ns, kernel=copy)
    differentiate(f"{ns}::foo", lambda inputs, output: inputs.x, lambda ctx, x, g: {"x": g * x})
    x = tracked()
    result = foo(x)
    for _ in range(2):
        autograd.grad(result, x, Tensor(ONE), retain_graph=True)
    autograd.grad(result, x, Tensor(ONE))
    with pytest.raises(RuntimeError):
        autograd.grad(result, x, Tensor(ONE))
    y = x * 1.0
    result = foo(y)
    with autograd.no_grad():
        ops.np.add_(y, 1.0)
    assert autograd.grad(result, x, Tensor(ONE))[0].tolist() == [1, 2, 3]


def test_the_context_is_empty(ns):
    foo = defined(ns, kernel=copy)

    def backward(ctx, saved, g):
        assert not hasattr(ctx, "needs_input_grad")
        with pytest.raises(AttributeError):
            ctx.anything = 1
        return {"x": g}

    differentiate(f"{ns}::foo", save_nothing, backward)
    x = tracked()
    autograd.grad(foo(x), x, Tensor(ONE))


def test_one_gradient_per_result(ns):
    foo = defined(ns, "(Tensor x) -> (Tensor, Tensor[], int, Tensor)", lambda x: (x * 1, [x * 2, x * 3], 4, x * 5))
    seen = []

    def backward(ctx, saved, *grads):
        seen.extend(grads)
        first, pieces, _, last = grads
        return {"x": first + 2 * pieces[0] + 3 * pieces[1] + 5 * last}

    differentiate(f"{ns}::foo", save_nothing, backward)
    x = tracked()
    first, (_, second), number, _ = foo(x)
    assert number == 4
    (gradient,) = autograd.grad((first, second), x, (Tensor(ONE), Tensor(ONE)))
    assert np.array_equal(gradient.numpy(), 4 * ONE)
    assert [type(grad) for grad in seen[1]] == [Tensor, Tensor]
    assert seen[2] is None
    assert np.array_equal(seen[3].numpy(), 0 * ONE)
    assert np.array_equal(seen[1][0].numpy(), 0 * ONE)


def test_operators_of_numbers(ns):
    foo = defined(ns, "(Tensor x) -> float", lambda x: float(x.sum()))
    differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g: {"x": None})
    assert foo(tracked()) == 6.0


def test_reading_by_numpy_while_a_graph_is_built_is_an_error(ns):
    foo = defined(ns, kernel=lambda x: x**2)
    differentiate(f"{ns}::foo", lambda inputs, output: inputs.x, lambda ctx, x, g: {"x": 2 * g * Tensor(np.array(x))})
    x = tracked()
    (gradient,) = autograd.grad(foo(x), x, Tensor(ONE))
    assert np.array_equal(gradient.numpy(), [2, 4, 6])
    with pytest.raises((exceptions.AutogradError, TypeError), match=r"requires grad|tracked"):
        autograd.grad(foo(x), x, Tensor(ONE), create_graph=True)


# --- the dict of gradients ---------------------------------------------------------------------------------

LIST = "(Tensor[] xs, int n=1) -> Tensor"


@pytest.mark.parametrize("schema", ["(Tensor[] xs) -> Tensor", "(Tensor?[] xs) -> Tensor", "(Tensor[]? xs) -> Tensor"])
@pytest.mark.parametrize("by_name", [True, False], ids=["by name", "by position"])
@pytest.mark.parametrize("given", [0, 2])
def test_none_is_no_gradient_of_a_list(ns, schema, by_name, given):
    schema = schema.replace(")", ", Tensor y)", 1)
    foo = defined(ns, schema, lambda xs, y: y * 1.0)
    if by_name:
        differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g: {"xs": None, "y": g * 3})
    else:
        library.register_autograd(f"{ns}::foo", lambda ctx, g: (None, g * 3))
    xs, y = [tracked() for _ in range(given)], tracked()
    foo(xs, y).sum().backward()
    assert y.grad.tolist() == (3 * ONE).tolist()
    assert [x.grad for x in xs] == [None] * given
    assert func.grad(lambda y: foo(xs, y).sum())(ONE).tolist() == (3 * ONE).tolist()

OPTIONALS = "(Tensor x, Tensor? y=None, Tensor?[]? zs=None) -> Tensor"


def three():
    return [tracked(), tracked(), tracked()]


GRADIENTS = {
    "98": ("(Tensor x) -> Tensor", lambda: [tracked()], lambda g: g, "to be a dict"),
    "98 None": ("(Tensor x) -> Tensor", lambda: [tracked()], lambda g: None, "to be a dict"),
    "98 tuple": ("(Tensor x) -> Tensor", lambda: [tracked()], lambda g: (g,), "to be a dict"),
    "98 mapping": ("(Tensor x) -> Tensor", lambda: [tracked()], lambda g: collections.UserDict(x=g), "to be a dict"),
    "99": ("(Tensor x) -> Tensor", lambda: [tracked()], lambda g: {"x": g, "y": g}, r"to have keys \{'x'\}"),
    "100": (
        "(Tensor x, int n) -> Tensor", lambda: [tracked(), 1], lambda g: {"x": g, "n": None}, "non-Tensor-like types"),
    "101": (
        "(Tensor x, Tensor y) -> Tensor", lambda: [tracked(), ONE], lambda g: {"x": g}, r"to have keys \{.*'y'.*\}"),
    "101 optional": (
        "(Tensor x, Tensor? y) -> Tensor", lambda: [tracked(), None], lambda g: {"x": g}, r"to have keys \{.*'y'.*\}"),
    "102": ("(Tensor x) -> Tensor", lambda: [tracked()], lambda g: {"x": (g, g)}, "either None or a Tensor"),
    "102 number": ("(Tensor x) -> Tensor", lambda: [tracked()], lambda g: {"x": 1.0}, "either None or a Tensor"),
    "103 count": (LIST, lambda: [three()], lambda g: {"xs": [g, g]}, "3 gradients but got 2"),
    "103 element": (LIST, lambda: [three()], lambda g: {"xs": [g, (g,), g]}, "None or Tensor.*|at index 1"),
    "103 Tensor": (LIST, lambda: [three()], lambda g: {"xs": g}, "list of gradients"),
    "3.6.6": (
        OPTIONALS, lambda: [tracked(), None, [None]], lambda g: {"x": g, "y": None, "zs": [g]},
        "expected None because"),
    "3.6.8": (OPTIONALS, lambda: [tracked()], lambda g: {"x": g, "y": g, "zs": []}, "was not a Tensor"),
    "list": (
        "(Tensor x, Tensor[]? ys=None) -> Tensor", lambda: [tracked()], lambda g: {"x": g, "ys": [g]},
        "was not a Tensor"),
}


@pytest.mark.parametrize(("schema", "arguments", "backward", "pattern"), GRADIENTS.values(), ids=GRADIENTS)
def test_gradients_refused(ns, schema, arguments, backward, pattern):
    foo = defined(ns, schema, lambda *args: np.zeros(3))
    differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g: backward(g))
    result = foo(*arguments())
    with pytest.raises(RuntimeError, match=rf"(?s)operator {ns}::foo: .*{HERE}:\d+.*({pattern})"):
        result.backward(Tensor(ONE))


def test_gradients_that_are_accepted(ns):
    foo = defined(ns, "(Tensor x, Tensor y, Tensor[] zs, Tensor? w) -> Tensor", lambda x, y, zs, w: x * 1)
    result_of = collections.OrderedDict

    def backward(ctx, saved, g):
        return result_of(w=None, zs=(None, g, None), y=Tensor(np.zeros((7, 7))), x=None)

    differentiate(f"{ns}::foo", save_nothing, backward)
    x, z = tracked(), tracked()
    foo(x, Tensor(ONE), [Tensor(ONE), z, 2.0], None).backward(Tensor(ONE))
    assert x.grad is None
    assert np.array_equal(z.grad.numpy(), ONE)


@pytest.mark.parametrize("other", [2.0, np.float64(2), np.array(2.0), Tensor(np.array(2.0))], ids=type)
def test_gradients_of_numbers_and_constants_are_dropped(ns, other):
    foo = defined(ns, "(Tensor x, Tensor y, Tensor[] zs) -> Tensor", lambda x, y, zs: x * y)
    differentiate(
        f"{ns}::foo", lambda inputs, output: (inputs.x, inputs.y),
        lambda ctx, saved, g: {"x": g * saved[1], "y": g * saved[0], "zs": [g, g]})
    x = tracked()
    foo(x, other, [other, other]).backward(Tensor(ONE))
    assert np.array_equal(x.grad.numpy(), 2 * ONE)


def test_an_empty_list_has_an_empty_list_of_gradients(ns):
    foo = defined(ns, "(Tensor x, Tensor[] zs) -> Tensor", lambda x, zs: x * 1)
    differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g: {"x": g, "zs": []})
    x = tracked()
    foo(x, []).backward(Tensor(ONE))
    assert np.array_equal(x.grad.numpy(), ONE)


def test_lists_with_holes(ns):
    foo = defined(ns, "(Tensor?[] xs) -> Tensor", lambda xs: sum(x for x in xs if x is not None))
    differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g: {"xs": [g, None, 3 * g]})
    x, y = tracked(), tracked()
    foo([x, None, y]).backward(Tensor(ONE))
    assert np.array_equal(x.grad.numpy(), ONE)
    assert np.array_equal(y.grad.numpy(), 3 * ONE)


@pytest.mark.parametrize(("schema", "wrap"), [
    ("(Tensor x, Dict(str, Tensor) d) -> Tensor", lambda value: {"a": value}),
    ("(Tensor x, (Tensor, int) d) -> Tensor", lambda value: (value, None if type(value) is not Tensor else 1)),
    ("(Tensor x, Tensor[][] d) -> Tensor", lambda value: [[value], []]),
], ids=["dict", "tuple", "nested list"])
def test_arrays_in_other_containers_have_gradients_of_the_same_structure(ns, schema, wrap):
    foo = defined(ns, schema, lambda x, d: x * 1)
    differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g: {"x": g, "d": wrap(3 * g.numpy())})
    x, y = tracked(), tracked()
    foo(x, wrap(y)).backward(Tensor(ONE))
    assert np.array_equal(x.grad.numpy(), ONE)
    assert np.array_equal(y.grad.numpy(), 3 * ONE)


def test_arrays_of_undeclared_type_do_not_lose_gradients_silently(ns):
    foo = defined(ns, "(Tensor x, Any d) -> Tensor", lambda x, d: x * 1)
    differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g: {"x": g})
    x = tracked()
    foo(x, {"deep": [Tensor(ONE)]}).backward(Tensor(ONE))
    assert np.array_equal(x.grad.numpy(), ONE)
    with pytest.raises(exceptions.AutogradError, match="argument 'd', of type Any, holds an array that requires grad"):
        foo(x, {"deep": [tracked()]})
    with pytest.raises(exceptions.AutogradError, match="argument 'd', of type Any, holds an array that requires grad"):
        func.grad(lambda y: foo(x, {"deep": [y]}).sum())(ONE)


# --- output_differentiability ------------------------------------------------------------------------------


def test_results_that_are_not_differentiable(ns):
    foo = defined(ns, "(Tensor x) -> (Tensor[], Tensor)", lambda x: ([x * 2, x * 3], x * 4))
    seen = []

    def backward(ctx, saved, pieces, last):
        seen.extend(pieces)
        return {"x": 4 * last}

    differentiate(f"{ns}::foo", save_nothing, backward, [False, True])
    x = tracked()
    pieces, last = foo(x)
    assert [piece.requires_grad for piece in pieces] == [False, False]
    assert last.requires_grad is True
    last.backward(Tensor(ONE))
    assert np.array_equal(x.grad.numpy(), 4 * ONE)
    assert all(np.array_equal(piece.numpy(), 0 * ONE) for piece in seen)


def test_a_number_is_not_differentiable(ns):
    foo = defined(ns, "(Tensor x) -> (Tensor, int)", lambda x: (x * 2, 3))
    differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g, _: {"x": 2 * g}, [True, True])
    with pytest.raises(RuntimeError, match="is not a Tensor"):
        foo(tracked())
    assert foo(Tensor(ONE))[1] == 3


@pytest.mark.parametrize("flags", [None, [True, False]], ids=str)
def test_integer_results_are_never_differentiable(ns, flags):
    foo = defined(ns, "(Tensor x) -> (Tensor, Tensor)", lambda x: (x * 2, np.arange(3)))
    seen = []

    def backward(ctx, saved, g, g_int):
        seen.append(g_int)
        return {"x": 2 * g}

    differentiate(f"{ns}::foo", save_nothing, backward, flags)
    x = tracked()
    first, second = foo(x)
    assert (first.requires_grad, second.requires_grad) == (True, False)
    first.backward(Tensor(ONE))
    assert np.array_equal(seen[0].numpy(), np.zeros(3, int))


# --- across --------------------------------------------------------------------------------------------------


def test_forward_mode_is_not_zero(ns):
    foo = defined(ns, kernel=copy)

    def save(inputs, output):
        assert inputs.x.requires_grad
        return inputs.x

    differentiate(f"{ns}::foo", save, lambda ctx, saved, g: {"x": 5 * g * saved})
    np.testing.assert_array_equal(func.jvp(foo, (2 * ONE,), (3 * ONE,))[1], 30 * ONE)
    rows = np.stack([ONE, 2 * ONE])
    with pytest.warns(exceptions.PerformanceWarning):
        np.testing.assert_array_equal(func.jvp(func.vmap(foo), (rows,), (rows,))[1], 5 * rows**2)
    with pytest.warns(exceptions.PerformanceWarning):
        np.testing.assert_array_equal(func.vmap(lambda x: func.jvp(foo, (x,), (x,))[1])(rows), 5 * rows**2)


def test_forward_mode_of_a_black_box(ns):
    foo = defined(ns, kernel=copy)
    differentiate(f"{ns}::foo", save_nothing, lambda ctx, saved, g: {"x": Tensor(np.asarray(g))})
    with pytest.raises(exceptions.NoDerivativeError, match=f"{ns}::foo has no jvp"):
        func.jvp(foo, (ONE,), (ONE,))


def test_functional_gradients(ns):
    foo = defined(ns, kernel=lambda x: x**3)
    differentiate(f"{ns}::foo", lambda inputs, output: inputs.x, lambda ctx, x, g: {"x": 3 * g * x * x})
    first = func.grad(lambda x: foo(x).sum())
    np.testing.assert_allclose(first(np.array([1.0, 2.0])), [3, 12])
    np.testing.assert_allclose(func.grad(lambda x: first(x).sum())(np.array([1.0, 2.0])), [6, 12])


def test_a_formula_of_an_earlier_definition_is_not_used(new_library):
    with new_library() as lib:
        lib.define("foo(Tensor x) -> Tensor")
        qualname = f"{lib.namespace}::foo"
        differentiate(qualname, save_nothing, lambda ctx, saved, g: {"x": g})
    with Library(lib.namespace, "FRAGMENT") as again:
        again.define("foo(Tensor x, Tensor y) -> Tensor")
        again.impl("foo", lambda x, y: x * y, "CPU")
        with pytest.raises(exceptions.AutogradError, match="redefined after its autograd formula was registered"):
            getattr(ops, lib.namespace).foo(tracked(), ONE)
    destroy(qualname)
