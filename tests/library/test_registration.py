"""Libraries and the module-level functions: kinds, namespaces, keys, decorators, delegating, fallbacks, closing."""

from __future__ import annotations

import numpy as np
import pytest

from pydispatch import DispatchKey, DispatchKeySet, Tensor, exceptions, include_keys, library, ops
from pydispatch._registry import registrations
from pydispatch._registry.operators import find, find_or_raise, find_packet
from pydispatch._registry.tables import build_table
from pydispatch.debug import dump_state
from pydispatch.func import grad, jvp, vmap
from pydispatch.keys import all_keys
from pydispatch.library import (
    Library,
    fallthrough_kernel,
    get_kernel,
    register_autograd,
    register_kernel,
    register_vmap,
)
from pydispatch.modes import DispatchMode
from pydispatch.schema import parse_schema
from tests.together import together

S1 = "foo(Tensor x) -> str"
ONE = np.ones(1)


@pytest.fixture
def namespace(new_library):
    """Provide a namespace that no other test has."""
    return new_library().namespace


def kernel(x):
    return "kernel"


def refused(call, *parts: str, error=exceptions.RegistrationError) -> None:
    """Check that the call raises an error with all of these texts, and a remedy on the second line."""
    with pytest.raises(error) as raised:
        call()
    for part in parts:
        assert part in str(raised.value)
    assert len(str(raised.value).splitlines()) >= 2


# --- kinds -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "may_define"), [("DEF", True), ("FRAGMENT", True), ("IMPL", False)])
def test_kinds(namespace, kind, may_define):
    with Library(namespace, kind) as lib:
        if may_define:
            lib.define(S1)
            assert find_or_raise(f"{namespace}::foo").site.startswith(f"{__file__}:")
        else:
            refused(
                lambda: lib.define(S1), "cannot define 'foo'", f"the IMPL library {namespace!r}",
                f"opened at {__file__}:", f'open Library({namespace!r}, "FRAGMENT")')
        lib.impl("foo", kernel, "CPU")
        assert find(f"{namespace}::foo").has_kernel("CPU")
    assert find(f"{namespace}::foo") is None


@pytest.mark.parametrize("kind", ["", "def", "FULL", None])
def test_unknown_kind(namespace, kind):
    refused(lambda: Library(namespace, kind), f"a library is DEF, FRAGMENT or IMPL, not {kind!r}")


def test_one_def_library_per_namespace(namespace):
    first = Library(namespace, "DEF")
    for _ in range(2):
        refused(
            lambda: Library(namespace, "DEF"), f"the namespace {namespace!r} has a DEF library already",
            f"the one opened at {__file__}:", f"the first was opened at {first.site}",
            f'Library({namespace!r}, "FRAGMENT")')
    others = [Library(namespace, kind) for kind in ("FRAGMENT", "FRAGMENT", "IMPL", "IMPL")]
    for other in others:
        other.close()
    first.close()
    with Library(namespace, "DEF"):
        refused(lambda: Library(namespace, "DEF"), "has a DEF library already")
    first.close()                                           # does not free what is no longer its own
    with Library(namespace, "DEF") as third:
        first.close()
        refused(lambda: Library(namespace, "DEF"), third.site)


@pytest.mark.parametrize("kind", ["FRAGMENT", "IMPL"])
def test_other_libraries_do_not_block_a_def_library(namespace, kind):
    with Library(namespace, kind), Library(namespace, "DEF") as lib:
        lib.define(S1)


@pytest.mark.parametrize("kind", ["DEF", "FRAGMENT"])
def test_a_default_key_is_for_impl_libraries(namespace, kind):
    refused(lambda: Library(namespace, kind, "CPU"), f"the {kind} library {namespace!r}", "default key 'CPU'")
    Library(namespace, "DEF").close()                       # nothing was claimed


def test_a_library_refused_claims_nothing(namespace):
    for arguments in (("DEF", "CPU"), ("IMPL", "Nowhere")):
        with pytest.raises((exceptions.RegistrationError, exceptions.UnknownKeyError)):
            Library(namespace, *arguments)
    Library(namespace, "DEF").close()


def test_repr(namespace):
    with Library(namespace, "DEF") as lib:
        assert repr(lib) == f"<Library {namespace!r} DEF, opened at {lib.site}>"


# --- namespaces --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["define", "define_with_kernel", "define_by_name", "impl"])
@pytest.mark.parametrize(
    ("name", "result"),
    [("foo", "{ns}::foo"), ("{ns}::foo", "{ns}::foo"), ("{ns} :: foo . ov", "{ns}::foo.ov"), ("other::foo", None)],
    ids=["unqualified", "redundant", "blanks", "foreign"])
def test_namespace_of_a_name(fresh, verb, name, result):
    def annotated(x: Tensor) -> str:
        return "annotated"

    name = name.format(ns=fresh.namespace)
    register = {
        "define": lambda: fresh.define(f"{name}(Tensor x) -> str"),
        "define_with_kernel": lambda: fresh.define(f"{name}(Tensor x) -> str", kernel, "CPU"),
        "define_by_name": lambda: fresh.define(name, annotated),
        "impl": lambda: fresh.impl(name, kernel, "CPU"),
    }[verb]
    if result is None:
        refused(register, f"cannot {verb.partition('_')[0]} other::foo", f"the FRAGMENT library {fresh.namespace!r}",
                f"opened at {fresh.site}", "the name has namespace 'other'")
        assert find("other::foo") is None
    else:
        register()
        assert find(result.format(ns=fresh.namespace)) is not None


@pytest.mark.parametrize("name", ["foo", "b::foo", "foo.ov"])
def test_the_wildcard_namespace_takes_fallbacks_only(name):
    with Library("_", "IMPL") as lib:
        refused(lambda: lib.impl(name, kernel, "CPU"), f"cannot impl {name}", "the namespace _", "takes fallbacks only")
    assert find("_::foo") is None
    assert find("b::foo") is None


@pytest.mark.parametrize("kind", ["DEF", "FRAGMENT"])
def test_no_defining_library_on_the_wildcard(kind):
    refused(lambda: Library("_", kind), f"a {kind} library cannot define anything in it", "the namespace _")


@pytest.mark.parametrize("kind", ["DEF", "FRAGMENT", "IMPL"])
@together("namespace", ["", "a::b", "has space", "1x", "a.b", "for", "é", "a\n"])
def test_the_namespace_of_a_library_is_an_identifier(namespace, kind):
    with pytest.raises(exceptions.SchemaError) as raised:
        Library(namespace, kind)
    assert repr(namespace) in str(raised.value)


# --- define ------------------------------------------------------------------------------------------------


def test_define_with_kernel_and_key(fresh):
    fresh.define(S1, kernel, "CPU")
    op = find_or_raise(f"{fresh.namespace}::foo")
    assert [key.name for key in registrations.kernels_of(op)] == ["CPU"]
    assert op(ONE) == "kernel"


def test_define_with_kernel_defaults_to_composite_implicit(fresh):
    fresh.define(S1, kernel)
    op = find_or_raise(f"{fresh.namespace}::foo")
    assert op.has_kernel("CompositeImplicitAutograd")


def test_define_by_name_infers_the_schema(fresh):
    def annotated(x: Tensor, n: int, *, by: float) -> tuple[Tensor, int]:
        return x, n

    fresh.define("foo.two", annotated)
    op = find_or_raise(f"{fresh.namespace}::foo.two")
    assert str(op.schema) == f"{op.name}(Tensor _0, int _1, *, float by) -> (Tensor, int)"
    assert op.alias_analysis == "CONSERVATIVE"


@pytest.mark.parametrize(
    ("given", "kind"),
    [("", "FROM_SCHEMA"), ("FROM_SCHEMA", "FROM_SCHEMA"), ("CONSERVATIVE", "CONSERVATIVE"), ("PURE_FUNCTION",) * 2])
@pytest.mark.parametrize("schema", [S1, "foo(Tensor(a!) x) -> str"], ids=["plain", "annotated"])
def test_alias_analysis(fresh, schema, given, kind):
    fresh.define(schema, alias_analysis=given)
    op = find_or_raise(f"{fresh.namespace}::foo")
    assert op.alias_analysis == kind
    assert f"alias analysis kind: {kind}\n" in dump_state(op)


def test_alias_analysis_of_an_inferred_schema(fresh):
    def annotated(x: Tensor) -> str:
        return "annotated"

    fresh.define("foo", annotated)
    fresh.define("bar", annotated, alias_analysis="FROM_SCHEMA")
    kinds = [find_or_raise(f"{fresh.namespace}::{name}").alias_analysis for name in ("foo", "bar")]
    assert kinds == ["CONSERVATIVE", "FROM_SCHEMA"]


def test_alias_analysis_unset(fresh):
    schema = parse_schema(f"{fresh.namespace}::{S1}")
    with registrations.add_definition(schema, "somewhere", alias_analysis=None):
        op = find_or_raise(f"{fresh.namespace}::foo")
        assert op.alias_analysis == "CONSERVATIVE"
        assert "alias analysis kind: CONSERVATIVE (default)\n" in dump_state(op)


@pytest.mark.parametrize("kind", ["INTERNAL_SPECIAL_CASE", "from_schema", "X"])
def test_unknown_alias_analysis(fresh, kind):
    refused(lambda: fresh.define(S1, alias_analysis=kind), f"unknown alias analysis kind {kind!r}", "FROM_SCHEMA")


def test_tags_are_kept_with_the_schema(fresh):
    fresh.define(S1, tags=("pointwise", "core"))
    fresh.define("bar(Tensor x) -> str", tags="pointwise")
    assert find_or_raise(f"{fresh.namespace}::foo").tags == ("pointwise", "core")
    assert find_or_raise(f"{fresh.namespace}::bar").tags == ("pointwise",)


@pytest.mark.parametrize("tag", ["out", "inplace"])
def test_tags_that_say_something_are_checked(fresh, tag):
    with pytest.raises(exceptions.SchemaError, match=f"tagged `{tag}`"):
        fresh.define(S1, tags=tag)
    fresh.define("foo_(Tensor(a!) x) -> Tensor(a!)", tags="inplace")
    fresh.define("foo.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", tags="out")


# --- impl and keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("library_key", "key", "registered"), [
    (None, None, "CompositeImplicitAutograd"),
    (None, "CPU", "CPU"),
    (None, "CIA", "CompositeImplicitAutograd"),
    (None, "Undefined", "CompositeImplicitAutograd"),
    (None, DispatchKey.AutogradCPU, "AutogradCPU"),
    ("CPU", None, "CPU"), ("CPU", "CPU", "CPU"),
    (DispatchKey.Autograd, None, "Autograd"),
    ("CPU", "Meta", None), ("CPU", "CIA", None),
])
def test_the_key_of_a_kernel(namespace, library_key, key, registered):
    with Library(namespace, "IMPL", library_key) as lib:
        if registered is None:
            refused(
                lambda: lib.impl("foo", kernel, key), f"impl of {namespace}::foo",
                f"names the key {DispatchKey(key).name}", "is for CPU", f"opened at {lib.site}")
            assert find(f"{namespace}::foo") is None
        else:
            lib.impl("foo", kernel, key)
            assert [key.name for key in registrations.kernels_of(find(f"{namespace}::foo"))] == [registered]


@pytest.mark.parametrize("key", ["Nowhere", "Dense", "Sparse", "cpu", ""])
def test_impl_under_what_is_no_key(fresh, key):
    with pytest.raises(exceptions.UnknownKeyError):
        fresh.impl("foo", kernel, key)
    assert find(f"{fresh.namespace}::foo") is None


def test_every_key_can_be_registered_under(fresh):
    fresh.define(S1)
    op = find_or_raise(f"{fresh.namespace}::foo")
    for key in all_keys():
        with fresh.impl("foo", kernel, key):
            assert kernel in [entry.kernel.function for entry in build_table(op).rows if entry]


def test_impl_takes_operators_and_packets(fresh):
    fresh.define(S1)
    packet = getattr(ops, fresh.namespace).foo
    with fresh.impl(packet, kernel, "CPU"):
        assert packet(ONE) == "kernel"
    with fresh.impl(packet.default, kernel, "CPU"):
        assert packet(ONE) == "kernel"


@pytest.mark.parametrize("register", [
    lambda lib, packet: lib.impl(packet, kernel, "CPU"),
    lambda lib, packet: library.impl(packet, "CPU", kernel),
    lambda lib, packet: register_kernel(packet, "CPU", kernel),
])
def test_impl_for_a_packet_without_a_default_overload(fresh, register):
    # It would make a dangling operator that no call reaches.
    definition = fresh.define("foo.two(Tensor x) -> str")
    packet = getattr(ops, fresh.namespace).foo
    refused(
        lambda: register(fresh, packet), f"{fresh.namespace}::foo has no overload without a name (its overloads: two)",
        f"pydispatch.ops.{fresh.namespace}.foo.two")
    definition.remove()
    refused(lambda: register(fresh, packet), "its overloads: none, it is no longer registered")
    assert find(f"{fresh.namespace}::foo") is None


def test_impl_as_a_decorator_returns_the_function(fresh):
    fresh.define(S1)

    @fresh.impl("foo", key="CPU")
    def on_cpu(x):
        return "cpu"

    @fresh.impl("foo", key="Meta", with_keyset=True)
    def on_meta(keys, x):
        return f"meta of {len(keys)}"

    @fresh.impl("foo", key="Autograd", boxed=True)
    def on_autograd(op, stack):
        stack.push(f"boxed {len(stack.pop_arguments(1))}")

    assert on_cpu(ONE) == "cpu"
    op = find_or_raise(f"{fresh.namespace}::foo")
    assert op(ONE) == "cpu"
    assert op(Tensor(ONE)) == "boxed 1"
    assert op.redispatch(DispatchKeySet("Meta"), ONE) == "meta of 1"


def test_the_debug_string_of_a_kernel_is_its_name_and_definition_site(fresh):
    fresh.impl("foo", kernel, "CPU")
    fresh.impl("foo", np.add, "A")
    fresh.impl("foo", fallthrough_kernel, "B")
    lines = dump_state(f"{fresh.namespace}::foo").splitlines()[2:]
    assert lines[0] == f"CPU: kernel at {__file__}:{kernel.__code__.co_firstlineno} :: (none) [ boxed unboxed ]"
    assert lines[1].startswith("A: add at ")
    assert lines[2].startswith("B: fallthrough_kernel at ")
    assert lines[2].endswith(" :: (none) [ fallthrough boxed ]")


def test_a_fallthrough_kernel_cannot_be_called():
    with pytest.raises(AssertionError, match="cannot be called"):
        fallthrough_kernel(1)


# --- module-level functions --------------------------------------------------------------------------------


def test_define_impl_register_kernel(namespace):
    name = f"{namespace}::foo"
    with library.define(name, "(Tensor x) -> str") as definition:
        assert definition.active
        assert ops.__getattr__(namespace).foo is find_packet(name)
        with library.impl(name, "CPU", kernel):
            assert find_or_raise(name)(ONE) == "kernel"
        with register_kernel(name, "cpu", lambda x: "registered"):
            assert find_or_raise(name)(ONE) == "registered"
        assert not find_or_raise(name).has_kernel()
    assert find(name) is None


def test_define_takes_the_whole_schema_too(namespace):
    with library.define(f"{namespace}::foo.two(Tensor x, int n=1) -> str", tags="core", alias_analysis="CONSERVATIVE"):
        op = find_or_raise(f"{namespace}::foo.two")
        assert op.tags == ("core",)
        assert op.alias_analysis == "CONSERVATIVE"


@pytest.mark.parametrize("call", [
    lambda: library.define("foo", "(Tensor x) -> str"),
    lambda: library.impl("foo", "CPU", kernel),
    lambda: register_kernel("foo", "CPU", kernel),
], ids=["define", "impl", "register_kernel"])
def test_module_level_functions_want_a_namespace(call):
    refused(call, "the operator name foo has no namespace", "write it as ns::foo")


def test_impl_as_a_module_level_decorator(namespace):
    library.define(f"{namespace}::foo", "(Tensor x) -> str")
    op = find_or_raise(f"{namespace}::foo")

    @library.impl(op, "CPU")
    def on_cpu(x):
        return "cpu"

    @library.impl(getattr(ops, namespace).foo, "AutogradCPU", with_keyset=True)
    def on_autograd(keys, x):
        return "autograd"

    assert (op(ONE), op(Tensor(ONE))) == ("cpu", "autograd")
    assert on_cpu(ONE) == "cpu"
    for handle in list(op.registrations):
        handle.remove()


@pytest.mark.parametrize(("device_types", "keys"), [
    ("CPU", ["CPU"]),
    ("cpu", ["CPU"]),
    ("default", ["CompositeExplicitAutograd"]),
    (None, ["CompositeExplicitAutograd"]),
    (["CPU", "a", "Meta"], ["CPU", "A", "Meta"]),
    (("B", None), ["B", "CompositeExplicitAutograd"]),
])
def test_register_kernel(namespace, device_types, keys):
    handle = register_kernel(f"{namespace}::foo", device_types, kernel)
    op = find(f"{namespace}::foo")
    assert sorted(key.name for key in registrations.kernels_of(op)) == sorted(keys)
    handle.remove()
    assert find(f"{namespace}::foo") is None

    @register_kernel(f"{namespace}::foo", device_types)
    def decorated(x):
        return "decorated"

    op = find(f"{namespace}::foo")
    assert sorted(key.name for key in registrations.kernels_of(op)) == sorted(keys)
    assert decorated(ONE) == "decorated"
    for registration in list(op.registrations):
        registration.remove()


def test_register_kernel_on_what_is_no_backend(namespace):
    with pytest.raises(exceptions.UnknownKeyError, match="unknown backend 'Autograd'"):
        register_kernel(f"{namespace}::foo", ["CPU", "Autograd"], kernel)
    assert find(f"{namespace}::foo") is None


def test_infer_schema():
    def scale(x: Tensor, by: float = 2.0) -> Tensor:
        return x

    assert str(library.infer_schema(scale)) == "(Tensor x, float by=2.0) -> Tensor"


# --- get_kernel --------------------------------------------------------------------------------------------


@pytest.fixture
def foo(fresh):
    fresh.define(S1, kernel, "CIA")
    return find_or_raise(f"{fresh.namespace}::foo")


def test_get_kernel_wraps_and_delegates(foo, fresh):
    previous = get_kernel(foo, "CPU")
    fresh.impl("foo", lambda x: f"wrapped {previous(x)}", "CPU")
    assert foo(ONE) == "wrapped kernel"
    again = get_kernel(str(foo.name), DispatchKey.CPU)
    with pytest.warns(exceptions.OverrideWarning):
        fresh.impl("foo", lambda x: f"wrapped {again(x)}", "CPU")
    assert foo(ONE) == "wrapped wrapped kernel"


@pytest.mark.parametrize(
    ("registered", "key"),
    [("CIA", "CPU"), ("CIA", "AutogradCPU"), ("CIA", "Undefined"), ("CIA", "Meta"), ("CPU", "CPU"), ("CEA", "SparseA"),
     ("Autograd", "AutogradOther")])
def test_get_kernel_gives_the_computed_entry(fresh, token, registered, key):
    fresh.define("g(Tensor x) -> str", token("it"), registered)
    bound = get_kernel(f"{fresh.namespace}::g", key)
    assert bound(ONE) == "it"
    assert bound.key is DispatchKey(key)
    assert bound.operator is find_or_raise(f"{fresh.namespace}::g")
    assert repr(bound).startswith(f"<BoundKernel {fresh.namespace}::g {key}: token_it at ")


def test_get_kernel_of_a_fallback(foo):
    with Library("_", "IMPL") as everywhere:
        everywhere.fallback(lambda op, *args: f"fallback of {op.name}", "Python")
        bound = get_kernel(foo, "Python")
        assert bound(ONE) == f"fallback of {foo.name}"
    with pytest.raises(exceptions.StaleOperatorError):
        bound(ONE)


def test_a_bound_kernel_is_called_like_the_operator(fresh, spy):
    function = spy("done")
    fresh.define("g(Tensor x, int n=1, *, str s='a') -> str", function, "CPU")
    bound = get_kernel(f"{fresh.namespace}::g", "CPU")
    array = np.ones(2)
    assert bound(Tensor(array), 1, s="b") == "done"
    ((args, kwargs),) = function.calls
    assert args == (array,)                                 # raw, stripped
    assert kwargs == {"s": "b"}
    with pytest.raises(TypeError, match="unknown keyword 'm'"):
        bound(array, m=1)


def test_a_bound_kernel_goes_stale_with_its_registration(foo, fresh):
    handle = fresh.impl("foo", lambda x: "cpu", "CPU")
    bound = get_kernel(foo, "CPU")
    other = get_kernel(foo, "Meta")
    handle.remove()
    with pytest.raises(exceptions.StaleOperatorError) as raised:
        bound(ONE)
    first, second = str(raised.value).splitlines()
    assert first.startswith(f"operator {foo.name}: the kernel ")
    assert first.endswith("is no longer registered")
    assert second == f'get the current one: get_kernel("{foo.name}", "CPU")'
    assert other(ONE) == "kernel"                           # that of another registration


def test_a_bound_kernel_goes_stale_with_its_own_registration_only(foo, fresh):
    on_cpu = fresh.impl("foo", kernel, "CPU")
    fresh.impl("foo", kernel, "A")
    bound = get_kernel(foo, "A")
    on_cpu.remove()
    assert bound(ONE) == "kernel"


def test_a_bound_kernel_goes_stale_with_the_definition_that_it_was_found_under(fresh):
    definition = fresh.define("g(Tensor x, int n=1) -> str")
    fresh.impl("g", lambda x, n: f"{n}", "CPU")
    bound = get_kernel(f"{fresh.namespace}::g", "CPU")
    assert bound(ONE) == "1"
    definition.remove()
    fresh.define("g(Tensor x, int m=3) -> str")
    with pytest.raises(exceptions.StaleOperatorError):
        bound(ONE)
    assert get_kernel(f"{fresh.namespace}::g", "CPU")(ONE) == "3"


def test_a_bound_kernel_outlives_being_shadowed(foo, fresh):
    fresh.impl("foo", lambda x: "first", "CPU")
    bound = get_kernel(foo, "CPU")
    with pytest.warns(exceptions.OverrideWarning):
        fresh.impl("foo", lambda x: "second", "CPU")
    assert (foo(ONE), bound(ONE)) == ("second", "first")


@pytest.mark.parametrize("alias", ["CIA", "CEA", "Autograd"])
def test_get_kernel_refuses_aliases(foo, alias):
    with pytest.raises(exceptions.UnknownKeyError, match=f"{DispatchKey(alias).name} is an alias key"):
        get_kernel(foo, alias)


@pytest.mark.parametrize(("key", "found"), [("CPU", "nothing"), ("AutogradCPU", "only a fall-through")])
def test_get_kernel_where_there_is_none(fresh, key, found):
    fresh.define(S1)
    refused(lambda: get_kernel(f"{fresh.namespace}::foo", key), f"there is {found} under the key {key}")


def test_get_kernel_of_what_is_not_defined(fresh):
    with pytest.raises(exceptions.OperatorNotFoundError):
        get_kernel(f"{fresh.namespace}::foo", "CPU")
    fresh.impl("foo", kernel, "CPU")
    with pytest.raises(exceptions.OperatorNotFoundError, match="no definition"):
        get_kernel(f"{fresh.namespace}::foo", "CPU")


# --- closing -----------------------------------------------------------------------------------------------


def test_close_undoes_all_and_only_its_own(namespace):
    mine, other = Library(namespace, "FRAGMENT"), Library(namespace, "IMPL", "CPU")
    mine.define(S1)
    mine.impl("foo", kernel, "CIA")
    mine.define("bar(Tensor x) -> str", kernel, "CPU")
    other.impl("foo", lambda x: "other")
    foo = find_or_raise(f"{namespace}::foo")
    assert foo(ONE) == "other"
    mine.close()
    assert find(f"{namespace}::bar") is None
    assert find(f"{namespace}::foo") is foo
    assert [key.name for key in registrations.kernels_of(foo)] == ["CPU"]
    mine.close()                                            # twice is harmless
    other.close()
    assert find(f"{namespace}::foo") is None


def test_close_in_order_of_registration(namespace, monkeypatch):
    order = []
    undo = registrations.OperatorHandle._undo
    lib = Library(namespace, "FRAGMENT")
    for name in ("a", "b", "c"):
        lib.define(f"{name}(Tensor x) -> str")
    monkeypatch.setattr(
        registrations.OperatorHandle, "_undo", lambda handle: [order.append(handle.operator.name.name), undo(handle)])
    lib.close()
    assert order == ["a", "b", "c"]


def test_a_closed_library_can_be_used_again(namespace):
    lib = Library(namespace, "DEF")
    lib.define(S1)
    lib.close()
    lib.define(S1, kernel, "CPU")
    assert find_or_raise(f"{namespace}::foo")(ONE) == "kernel"
    lib.close()
    assert find(f"{namespace}::foo") is None


def test_as_a_context_manager_also_when_the_block_raises(namespace):
    with pytest.raises(ZeroDivisionError), Library(namespace, "DEF") as lib:
        1 / len(lib.handles)
    with pytest.raises(exceptions.SchemaError), Library(namespace, "DEF") as lib:
        lib.define(f"{S1}, and what does not parse", lib.define(S1) and kernel)
    assert find(f"{namespace}::foo") is None
    Library(namespace, "DEF").close()


def test_a_library_does_not_pile_up_what_was_removed(namespace):
    with Library(namespace, "FRAGMENT") as lib:
        for _ in range(1000):
            lib.define(S1, kernel).remove()
        assert len(lib.handles) < 100


def test_removing_a_handle_before_its_library_closes(namespace):
    with Library(namespace, "FRAGMENT") as lib:
        lib.define(S1).remove()
        lib.define(S1)
        assert find_or_raise(f"{namespace}::foo")
    assert find(f"{namespace}::foo") is None


# --- fallbacks ---------------------------------------------------------------------------------------------


def test_three_distinct_errors(namespace):
    with Library(namespace, "FRAGMENT") as lib:
        refused(lambda: lib.fallback(kernel, "CPU"), f"in the FRAGMENT library {namespace!r}", f"opened at {lib.site}")
    with Library(namespace, "IMPL") as lib:
        refused(lambda: lib.fallback(kernel, "CPU"), f"not only to those of namespace {namespace!r}", 'Library("_", ')
    with Library("_", "IMPL") as lib:
        refused(lambda: lib.fallback(kernel), "a fallback needs a key")
    assert registrations.fallbacks == []


def test_the_key_is_that_of_the_library_or_named():
    with Library("_", "IMPL", "A") as lib:
        lib.fallback(kernel)
        assert [handle.key.name for handle in registrations.fallbacks] == ["A"]
        refused(lambda: lib.fallback(kernel, "B"), "a fallback names the key B", "is for A")
    assert registrations.fallbacks == []


@pytest.mark.parametrize(("first", "second"), [("A", "A"), ("AutogradA", "Autograd"), ("Autograd", "AutogradA")])
def test_one_fallback_per_key(first, second):
    with Library("_", "IMPL") as lib:
        handle = lib.fallback(kernel, first)
        taken = f"the key {'A' if first == 'A' else 'AutogradA'} has a fallback already"
        refused(lambda: lib.fallback(kernel, second), taken, f"registered at {handle.site}", f"kernel at {__file__}:")
        assert registrations.fallbacks == [handle]
        handle.remove()
        lib.fallback(kernel, second)
    assert registrations.fallbacks == []


@pytest.mark.parametrize("key", ["Nowhere", "Dense", "Sparse"])
def test_unknown_key(key):
    with Library("_", "IMPL") as lib, pytest.raises(exceptions.UnknownKeyError):
        lib.fallback(kernel, key)
    assert registrations.fallbacks == []


def test_a_fallback_sees_raw_arrays_under_a_backend_key_only(fresh, backends):
    seen = []
    fresh.define(S1)
    op = find_or_raise(f"{fresh.namespace}::foo")
    with Library("_", "IMPL") as everywhere:
        everywhere.fallback(lambda op, x: seen.append(type(x)) or "", "A")
        everywhere.fallback(lambda op, x: seen.append(type(x)) or "", "Tracer")
        op(Tensor(backends.ArrayA(1)))
        with include_keys("Tracer"):
            op.redispatch(DispatchKeySet("Tracer", "A"), Tensor(backends.ArrayA(1)))
    assert seen == [backends.ArrayA, Tensor]


def test_a_fallback_may_redispatch(fresh, token):
    ran = []

    def profile(keys, op, *args, **kwargs):
        ran.append(op.name.name)
        return op.redispatch(keys & DispatchKeySet.full_after("Tracer"), *args, **kwargs)

    for name in ("f", "g"):
        fresh.define(f"{name}(Tensor x) -> str", token(name), "CPU")
    with Library("_", "IMPL", "Tracer") as everywhere:
        everywhere.fallback(profile, with_keyset=True)
        with include_keys("Tracer"):
            results = [find_or_raise(f"{fresh.namespace}::{name}")(ONE) for name in ("f", "g")]
    assert results == ran == ["f", "g"]


def test_a_fallback_is_not_in_the_state_of_an_operator(foo):
    before = dump_state(foo)
    with Library("_", "IMPL") as everywhere:
        everywhere.fallback(kernel, "Tracer")
        assert dump_state(foo) == before
    assert not foo.has_kernel("Tracer")


def test_dropping_the_older_fallback_leaves_the_newer(fresh, backends):
    # In PyTorch of 2020, dropping the older one removed the newer one.
    fresh.define(S1)
    op = find_or_raise(f"{fresh.namespace}::foo")
    with Library("_", "IMPL") as first, Library("_", "IMPL") as second:
        older = first.fallback(lambda op, x: "older", "A")
        older.remove()
        second.fallback(lambda op, x: "newer", "A")
        older.remove()
        first.close()
        assert op(backends.ArrayA(1)) == "newer"


# --- composite kernels of autograd keys ---


def test_the_calls_of_a_composite_kernel_are_differentiated(fresh):
    fresh.define("area(Tensor x) -> Tensor")
    fresh.impl("area", lambda x: x * x, "CPU")
    fresh.impl("area", lambda x: ops.np.multiply(ops.np.sin(x), x), "Autograd", composite=True)
    op = getattr(ops, fresh.namespace).area
    x = Tensor(np.array([0.5, 2.0]), requires_grad=True)
    op(x).sum().backward()
    expected = np.cos([0.5, 2.0]) * [0.5, 2.0] + np.sin([0.5, 2.0])
    np.testing.assert_allclose(x.grad.numpy(), expected)
    np.testing.assert_allclose(grad(lambda x: op(x).sum())(np.array([0.5, 2.0])), expected)
    np.testing.assert_allclose(jvp(op, (np.array([0.5, 2.0]),), (np.ones(2),))[1], expected)
    np.testing.assert_allclose(op(np.array([0.5, 2.0])), [0.25, 4.0])      # an array has no autograd key


class Seen(DispatchMode):
    def __init__(self):
        self.calls = []

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(str(func.name))
        return func(*args, **kwargs or {})


def test_a_composite_kernel_for_some_calls_alone(fresh):
    name = f"{fresh.namespace}::power"
    fresh.define("power(Tensor x, int n) -> Tensor")
    fresh.impl("power", lambda x, n: x ** n, "CPU")
    register_autograd(name, lambda ctx, g: (g * 100.0, None))
    register_vmap(name, lambda info, in_dims, x, n: (op(x, n), 0))
    fresh.impl("power", lambda x, n: ops.np.multiply(x, x), "AutogradCPU", composite=lambda x, n: n == 2)
    op = getattr(ops, fresh.namespace).power
    array = np.array([0.5, 2.0])
    for n, gradient, calls in ((2, 2 * array, ["np::multiply"]), (3, [100.0, 100.0], [name])):
        tracked = Tensor(array, requires_grad=True)
        op(tracked, n).sum().backward()
        np.testing.assert_allclose(tracked.grad.numpy(), gradient)
        np.testing.assert_allclose(op(Tensor(array), n).numpy(), array ** n)
        np.testing.assert_allclose(grad(lambda x, n=n: op(x, n).sum())(array), gradient)
        np.testing.assert_allclose(vmap(grad(lambda x, n=n: op(x, n)))(array), gradient)
        np.testing.assert_allclose(vmap(lambda x, n=n: op(x, n))(array), array ** n)
        for value in (array, tracked):
            with Seen() as mode:
                op(value, n)
            assert mode.calls == calls
        explanation = op.default.explain(tracked, n)
        assert explanation.key.is_autograd == (n == 2)
        assert ("by the derivative registered" in explanation.interpreters) == (n == 3)


@pytest.mark.parametrize("key", ["CPU", "CompositeImplicitAutograd"])
def test_only_kernels_of_autograd_keys_are_composite_by_request(fresh, key):
    fresh.define("area(Tensor x) -> Tensor")
    with pytest.raises(exceptions.RegistrationError, match="which is for autograd keys\nleave it out"):
        fresh.impl("area", lambda x: x, key, composite=True)
