"""The registry: handles that undo exactly themselves, counts, stacks of kernels. Failures leave no trace."""

from __future__ import annotations

import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest

from pydispatch import DispatchKey, DispatchKeySet, Tensor, ops
from pydispatch._registry import registrations
from pydispatch._registry.kernels import Kernel
from pydispatch._registry.operators import find, find_or_raise
from pydispatch._registry.registrations import add_name
from pydispatch.debug import check_invariants, dump_state, dump_table
from pydispatch.exceptions import (
    NoKernelError,
    OperatorNotFoundError,
    OverrideWarning,
    RegistrationError,
    SchemaError,
    StaleOperatorError,
)
from pydispatch.library import Library, Stack, fallthrough_kernel, get_kernel, register_kernel
from pydispatch.schema import parse_name, parse_schema
from tests.registry.listing import dangling, names_with_kernel

S1 = "foo(Tensor x) -> Tensor"
S2 = "foo(Tensor x, Tensor y) -> Tensor"
ONE = np.ones(1)
overrides = pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")


def tensor_to_tensor(x: Tensor) -> Tensor:
    return x


def two_to_tensor(x: Tensor, y: Tensor) -> Tensor:
    return x


class Run:
    """A namespace with an operator `foo`: registers, finds, and tells everything that can be seen of it."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.name = f"{library.namespace}::foo"

    @property
    def op(self):
        return find(self.name)

    def define(self, schema: str = S1, *arguments, **options):
        return self.library.define(schema, *arguments, **options)

    def impl(self, key="CPU", fn=tensor_to_tensor, **options):
        return self.library.impl("foo", fn, key, **options)

    @property
    def counts(self) -> tuple[int, int]:
        handles = [] if self.op is None else self.op.registrations
        return sum(isinstance(handle, registrations.DefinitionHandle) for handle in handles), len(handles)

    def seen(self) -> tuple[object, ...]:
        """Return the state that registrations can change."""
        check_invariants()
        return (dump_state(self.name), dump_table(self.name), self.counts, sorted(registrations.operators), dir(ops),
                [handle.key for handle in registrations.fallbacks], list(self.library.handles))


@pytest.fixture
def foo(fresh):
    return Run(fresh)


# --- handles -----------------------------------------------------------------------------------------------


def registrations_of_each_kind(foo):
    everywhere = Library("_", "IMPL")
    return {
        "define": lambda: foo.define(),
        "define_with_kernel": lambda: foo.define(S1, tensor_to_tensor, "CPU"),
        "define_by_name": lambda: foo.define("foo", tensor_to_tensor),
        "impl": lambda: foo.impl(),
        "impl_alias": lambda: foo.impl("Autograd"),
        "name": lambda: add_name(parse_name(foo.name)),
        "fallback": lambda: everywhere.fallback(fallthrough_kernel, "A"),
        "fallback_alias": lambda: everywhere.fallback(fallthrough_kernel, "Autograd"),
    }


KINDS = list(registrations_of_each_kind(Run.__new__(Run)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["remove", "with", "with_error"])
def test_a_handle_undoes_exactly_itself(foo, kind, how):
    before = foo.seen()
    handle = registrations_of_each_kind(foo)[kind]()
    assert handle.active
    if how == "remove":
        handle.remove()
    elif how == "with":
        with handle as entered:
            assert entered is handle
            assert handle.active
    else:
        with pytest.raises(KeyError), handle:
            raise KeyError
    assert not handle.active
    handle.remove()                                     # twice is harmless
    foo.library.handles.clear()
    assert foo.seen() == before


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_undone_by_garbage_collection(foo, kind):
    handle = registrations_of_each_kind(foo)[kind]()
    after = foo.seen()
    undo = handle.remove                                # keeps the handle, in a form that the test can call
    library, foo.library = foo.library, Library(foo.library.namespace, "FRAGMENT")
    del handle
    gc.collect()
    foo.library = library
    assert foo.seen() == after
    undo()


def test_an_unreferenced_library_undoes_nothing(fresh):
    namespace = fresh.namespace
    Library(namespace, "FRAGMENT").define(S1)
    Library(namespace, "IMPL", "CPU").impl("foo", tensor_to_tensor)
    gc.collect()
    op = find_or_raise(f"{namespace}::foo")
    assert op(ONE) is ONE
    for handle in list(op.registrations):
        handle.remove()
    assert find(f"{namespace}::foo") is None


@overrides
def test_the_same_function_registered_twice_is_two_registrations(foo):
    first, second = foo.impl(), foo.impl()
    first.remove()
    assert foo.counts == (0, 1)
    assert second.active
    second.remove()
    assert foo.op is None


def test_a_removed_kernel_is_released(foo):
    def kernel(x):
        return x

    foo.define()
    handle = foo.impl(fn=kernel)
    foo.op(ONE)
    reference = weakref.ref(kernel)
    handle.remove()
    foo.library.handles.remove(handle)
    del kernel, handle
    gc.collect()
    assert reference() is None


def test_a_handle_says_where_it_was_made(foo):
    handle = foo.impl()
    assert handle.site.startswith(f"{__file__}:")


# --- counts ------------------------------------------------------------------------------------------------


def test_counts(foo):
    assert foo.counts == (0, 0)
    definition = foo.define()
    assert foo.counts == (1, 1)
    kernels = [foo.impl("CPU"), foo.impl("Autograd")]
    assert foo.counts == (1, 3)
    definition.remove()
    assert foo.counts == (0, 2)
    kernels[0].remove()
    assert foo.counts == (0, 1)
    kernels[1].remove()
    assert foo.counts == (0, 0)
    assert foo.op is None


def test_an_entry_without_registrations_does_not_exist(foo):
    before = sorted(registrations.operators)
    for register in (foo.define, foo.impl, lambda: foo.define(S1, tensor_to_tensor)):
        with register():
            assert foo.op is not None
        assert sorted(registrations.operators) == before
        assert dump_state(foo.name) == ""


def test_name_only(foo):
    name = add_name(parse_name(foo.name))
    assert foo.counts == (0, 1)
    assert dump_state(foo.name) == f"name: {foo.name}\nschema: (none)\n"
    assert foo.op not in dangling()
    op = foo.op
    definition = foo.define()
    definition.remove()
    assert foo.op is op                                 # the same object all the time
    name.remove()
    assert foo.op is None


# --- impl without def --------------------------------------------------------------------------------------


def test_impl_before_def(foo):
    foo.impl()
    with pytest.raises(StaleOperatorError, match="has no schema: it has implementations, but no definition"):
        foo.op(ONE)
    foo.define()
    assert foo.op(ONE) is ONE


def test_impls_outlive_their_definition_and_take_another(foo):
    definition = foo.define("foo(Tensor x) -> Tensor")
    foo.impl(fn=lambda *xs: xs[0])
    op = foo.op
    definition.remove()
    assert foo.op is op
    foo.define("foo(Tensor x, Tensor y, int n=1) -> Tensor")
    assert op(ONE, ONE) is ONE


@pytest.mark.parametrize("schema", [S2, "foo(int x) -> Tensor", "foo(Tensor x) -> int", "foo(Tensor x) -> ()"])
def test_a_late_definition_must_fit_the_kernels(foo, schema):
    foo.impl()
    before = foo.seen()
    with pytest.raises(RegistrationError, match="the kernel does not fit the schema"):
        foo.define(schema)
    assert foo.seen() == before


@pytest.mark.parametrize(("schema", "kernel", "reason"), [
    (S2, tensor_to_tensor, "number of arguments: expected 2, inferred 1"),
    ("foo(int x) -> Tensor", tensor_to_tensor, "argument 1: expected int, inferred Tensor"),
    ("foo(Tensor x) -> ()", tensor_to_tensor, "number of returns: expected 0, inferred 1"),
    ("foo(Tensor x) -> int", tensor_to_tensor, "return 1: expected int, inferred Tensor"),
    (S2, lambda x: x, "it takes 1 positional arguments (x), the schema passes 2 (x, y)"),
    ("foo(Tensor x, *, int n) -> Tensor", lambda x: x, "it does not take a keyword argument 'n'"),
    (S1, lambda x, y: x, "it requires a parameter 'y' that the schema does not pass"),
    ("foo(Tensor x, int n=1) -> Tensor", lambda x, n=2: x, "its default for 'n' is 2, the schema's is 1"),
], ids=["arguments", "type", "returns", "return", "arity", "keyword", "too_many", "default"])
@pytest.mark.parametrize("first", ["define", "impl"])
def test_the_message_is_the_same_whichever_came_second(foo, schema, kernel, reason, first):
    steps = {"define": lambda: foo.define(schema), "impl": lambda: foo.impl(fn=kernel)}
    steps.pop(first)()
    (second,) = steps.values()
    with pytest.raises(RegistrationError) as raised:
        second()
    first_line, expected, inferred = str(raised.value).splitlines()
    assert first_line == f"operator {foo.name}: the kernel does not fit the schema: {reason}"
    assert expected.startswith(f"expected: {schema.replace('foo', foo.name)}, defined at {__file__}:")
    assert f"kernel {kernel.__qualname__} at {__file__}:" in inferred


@overrides
def test_inactive_kernels_are_checked_too(foo):
    foo.impl(fn=two_to_tensor)
    foo.impl(fn=tensor_to_tensor)                       # active, and fits
    with pytest.raises(RegistrationError, match="number of arguments: expected 1, inferred 2"):
        foo.define(S1)


@pytest.mark.parametrize("kernel", [fallthrough_kernel, np.add, print])
def test_kernels_without_an_inferred_schema_fit_anything_they_can_be_called_with(foo, kernel):
    foo.impl(fn=kernel)
    assert Kernel(kernel).inferred is None
    foo.define("foo(Tensor x, Tensor y) -> Tensor")


def test_a_boxed_kernel_has_no_inferred_schema(foo):
    def boxed(op: Tensor, stack: Tensor) -> Tensor:
        raise AssertionError

    foo.impl(fn=boxed, boxed=True)
    foo.define("foo(Tensor x, int a, int b, int c) -> (Tensor, Tensor)")


# --- stacks of kernels under one key -----------------------------------------------------------------------


def active(foo) -> str:
    return foo.op(ONE).item()


@overrides
@pytest.mark.parametrize(("dropped", "actives"), [
    ([], ["k3"]),
    ([2, 1, 0], ["k3", "k2", "k1", None]),
    ([0, 1, 2], ["k3", "k3", "k3", None]),
    ([1, 2, 0], ["k3", "k3", "k1", None]),
    ([1, 0, 2], ["k3", "k3", "k3", None]),
    ([2, 0, 1], ["k3", "k2", "k2", None]),
    ([0, 2, 1], ["k3", "k3", "k2", None]),
])
def test_the_newest_is_active_and_the_older_comes_back(foo, dropped, actives):
    foo.define()
    handles = [foo.impl(fn=self_naming(name)) for name in ("k1", "k2", "k3")]
    assert active(foo) == "k3"
    for i, expected in zip(dropped, actives[1:], strict=True):
        handles[i].remove()
        if expected is None:
            with pytest.raises(NoKernelError):
                active(foo)
        else:
            assert active(foo) == expected


def self_naming(name: str):
    def kernel(x):
        return np.array(name)

    kernel.__qualname__ = name
    return kernel


@overrides
def test_a_dump_shows_the_stack_newest_first(foo):
    for name in ("k1", "k2", "k3"):
        foo.impl(fn=self_naming(name))
    lines = [line.partition(" at ")[0] for line in dump_state(foo.name).splitlines()[2:]]
    assert lines == ["CPU: k3", "CPU (inactive): k2", "CPU (inactive): k1"]


# --- overriding --------------------------------------------------------------------------------------------


def test_shadowing_warns_naming_operator_key_and_both_kernels(foo):
    foo.impl("CPU", self_naming("first"))
    foo.impl("A", self_naming("other"))
    for previous, new in (("first", "second"), ("second", "third")):
        with pytest.warns(OverrideWarning) as warned:
            foo.impl("CPU", self_naming(new))
        (warning,) = warned
        assert str(warning.message).startswith(f"operator {foo.name}: the kernel {new} at {__file__}:")
        assert f"shadows {previous} at {__file__}:" in str(warning.message)
        assert str(warning.message).endswith("under CPU")


def test_the_previous_kernel_is_the_one_that_was_active(foo):
    handles = [foo.impl("CPU", self_naming("first"))]
    with pytest.warns(OverrideWarning):
        handles.append(foo.impl("CPU", self_naming("second")))
    handles[1].remove()
    with pytest.warns(OverrideWarning, match=r"shadows first at"):
        foo.impl("CPU", self_naming("third"))


@pytest.mark.parametrize("key", ["Meta", "SparseMeta", "AutogradMeta"])
def test_meta_is_overridden_without_a_word(foo, key):
    foo.impl(key)
    foo.impl(key)
    assert foo.counts == (0, 2)


def test_no_warning_for_different_keys_or_after_removal(foo):
    foo.impl("CPU").remove()
    for key in ("CPU", "A", "Autograd", "AutogradCPU", "CIA", "CEA"):
        foo.impl(key)
    foo.library.impl("foo.overload", tensor_to_tensor, "CPU")


@pytest.mark.parametrize("register", [
    lambda foo: foo.library.impl("foo", tensor_to_tensor, "CPU"),
    lambda foo: foo.library.impl("foo", key="CPU")(tensor_to_tensor),
    lambda foo: register_kernel(foo.name, "CPU", tensor_to_tensor),
    lambda foo: foo.library.define(S1, tensor_to_tensor, "CPU"),
], ids=["impl", "decorator", "register_kernel", "define"])
def test_the_warning_points_to_the_users_line(foo, register):
    foo.impl()
    with pytest.warns(OverrideWarning) as warned:
        handle = register(foo)
    assert warned[0].filename == __file__
    for registration in [*foo.op.registrations]:
        registration.remove()
    assert handle is not None


@pytest.mark.parametrize("key", ["CPU", "Meta", "CIA"])
def test_overriding_can_be_refused(foo, key):
    foo.impl(key, self_naming("first"))
    before = foo.seen()
    with pytest.raises(RegistrationError, match=r"has a kernel under .* already: first at") as raised:
        foo.impl(key, allow_override=False)
    assert "allow_override=True" in str(raised.value)
    assert foo.seen() == before
    foo.impl("A", allow_override=False)


# --- a failed registration leaves no trace -----------------------------------------------------------------


def failures(foo):
    """Return for each failing registration: what is registered before, the call that fails, its error."""
    everywhere = Library("_", "IMPL")

    def fallback_on_alias():
        with everywhere.fallback(fallthrough_kernel, "AutogradA"):
            everywhere.fallback(lambda op: None, "Autograd")

    return {
        "mismatching_kernel": ((), lambda: foo.define(S2, tensor_to_tensor), RegistrationError),
        "unknown_key_of_kernel": ((), lambda: foo.define(S1, tensor_to_tensor, "Nowhere"), ValueError),
        "no_inferable_kernel": ((), lambda: foo.define("foo", lambda x: x), RegistrationError),
        "too_many_arguments": (
            (), lambda: foo.define(f"foo({', '.join(f'int a{i}' for i in range(65))}) -> ()"), SchemaError),
        "fallback_on_alias": ((), fallback_on_alias, RegistrationError),
        "override_as_error": (("impl",), foo.impl, OverrideWarning),
        "override_by_define_as_error": (("impl",), lambda: foo.define(S1, tensor_to_tensor, "CPU"), OverrideWarning),
        "override_by_register_kernel_as_error": (
            ("impl",), lambda: register_kernel(foo.name, ["A", "B", "CPU"], tensor_to_tensor), OverrideWarning),
        "unknown_backend_of_several": (
            (), lambda: register_kernel(foo.name, ["A", "Nowhere"], tensor_to_tensor), ValueError),
        "duplicate_definition": (("define",), foo.define, RegistrationError),
        "duplicate_definition_with_kernel": (
            ("define",), lambda: foo.define(S1, tensor_to_tensor, "CPU"), RegistrationError),
        "definition_against_kernel": (("impl",), lambda: foo.define(S2), RegistrationError),
        "kernel_against_definition": (("define",), lambda: foo.impl(fn=two_to_tensor), RegistrationError),
        "no_function": ((), lambda: foo.library.impl("foo", 3, "CPU"), RegistrationError),
        "bad_name": ((), lambda: foo.library.impl("foo bar", tensor_to_tensor, "CPU"), SchemaError),
        "schema_for_a_name": ((), lambda: foo.library.impl(S1, tensor_to_tensor, "CPU"), SchemaError),
        "name_for_a_schema": ((), lambda: foo.define("foo"), SchemaError),
        "bad_alias_analysis": ((), lambda: foo.define(S1, alias_analysis="GUESS"), RegistrationError),
        "bad_tag": ((), lambda: foo.define(S1, tags="out"), SchemaError),
    }


class Nothing:
    """Stands for a Run where only the names of the failures are wanted."""

    name = "nothing::foo"
    library = Library("nothing", "FRAGMENT")
    define = impl = None


@pytest.mark.filterwarnings("error::pydispatch.exceptions.OverrideWarning")
@pytest.mark.parametrize("case", list(failures(Nothing)))
def test_a_failed_registration_leaves_no_trace(foo, case):
    before_it, fail, error = failures(foo)[case]
    for verb in before_it:
        getattr(foo, verb)()
    before = foo.seen()
    with pytest.raises(error):
        fail()
    assert foo.seen() == before
    with warnings.catch_warnings(action="ignore", category=OverrideWarning):    # not wedged
        if "define" not in before_it:
            foo.define()
        foo.impl()
    assert foo.op(ONE) is ONE


# --- finding operators -------------------------------------------------------------------------------------

FOUND = {                           # by state: what each query answers
    "absent": {"find": False, "find_or_raise": "no operator {name}", "attribute": False, "names": False,
               "dangling": False, "at CPU": False, "at CIA": False},
    "impl_only": {"find": True, "find_or_raise": "has implementations, but no definition",
                  "attribute": False, "names": True, "dangling": True, "at CPU": True, "at CIA": True},
    "defined": {"find": True, "find_or_raise": None, "attribute": True, "names": True, "dangling": False,
                "at CPU": False, "at CIA": False},
    "both": {"find": True, "find_or_raise": None, "attribute": True, "names": True, "dangling": False,
             "at CPU": True, "at CIA": True},
}


@pytest.mark.parametrize("case", FOUND)
def test_finding_operators(foo, case):
    if case in ("impl_only", "both"):
        foo.impl("CPU")
        foo.impl("CIA")
    if case in ("defined", "both"):
        foo.define()
    expected = FOUND[case]
    assert (foo.op is not None) == expected["find"]
    if expected["find_or_raise"] is None:
        assert find_or_raise(foo.name) is foo.op
    else:
        with pytest.raises(OperatorNotFoundError) as raised:
            find_or_raise(foo.name)
        assert expected["find_or_raise"].format(name=foo.name) in str(raised.value)
    assert hasattr(getattr(ops, foo.library.namespace), "foo") == expected["attribute"]
    assert (foo.name in names_with_kernel()) == expected["names"]
    assert (foo.op in dangling()) == expected["dangling"]
    assert (foo.name in names_with_kernel("CPU")) == expected["at CPU"]
    assert (foo.name in names_with_kernel(DispatchKey.CompositeImplicitAutograd)) == expected["at CIA"]


def test_schema_of_an_operator_without_one(foo):
    foo.impl()
    with pytest.raises(StaleOperatorError, match=f"operator {foo.name} has no schema"):
        foo.op.schema                                   # noqa: B018
    foo.define()
    assert str(foo.op.schema) == S1.replace("foo", foo.name)


def test_not_found_says_what_there_is(foo):
    foo.define()
    with pytest.raises(OperatorNotFoundError, match=f"did you mean {foo.name}"):
        find_or_raise(f"{foo.library.namespace}::fo")
    with pytest.raises(OperatorNotFoundError, match="no operator is registered in namespace 'nowhere'"):
        find_or_raise("nowhere::foo")


def test_names_are_found_in_canonical_form(foo):
    foo.define("foo.two(Tensor x, Tensor y) -> Tensor")
    assert find(f"{foo.library.namespace} :: foo . two") is find(f"{foo.name}.two")
    assert find(foo.name) is None


# --- stale operators and kernels ---------------------------------------------------------------------------


@pytest.mark.parametrize("use", [
    lambda op: op(ONE),
    lambda op: op.schema,
    lambda op: op.redispatch(DispatchKeySet("CPU"), ONE),
    lambda op: op.call_boxed([ONE]),
    lambda op: op.bind((ONE,)),
    lambda op: op.strip_defaults((ONE,)),
    lambda op: op.fill_defaults((ONE,)),
    lambda op: op.explain(ONE),
    lambda op: op.has_computed_kernel("CPU"),
    lambda op: get_kernel(op, "CPU"),
], ids=["call", "schema", "redispatch", "call_boxed", "bind", "strip", "fill", "explain", "has", "get_kernel"])
def test_a_stale_operator_says_so(foo, use):
    handle = foo.define(S1, tensor_to_tensor, "CPU")
    op = foo.op
    use(op)
    handle.remove()
    with pytest.raises(StaleOperatorError) as raised:
        use(op)
    first, second = str(raised.value).splitlines()
    assert first.startswith(f"operator {foo.name} is no longer registered: ")
    assert f"its last registration was removed at {__file__}:" in first
    assert second == f"look it up again after registering it: pydispatch.ops.{foo.name.replace('::', '.')}"


def test_a_stale_operator_stays_stale(foo):
    foo.define(S1, tensor_to_tensor, "CPU").remove()
    with foo.define():
        old = foo.op
    foo.define(S2, two_to_tensor, "CPU")
    assert foo.op is not old
    assert foo.op(ONE, ONE) is ONE
    with pytest.raises(StaleOperatorError):
        old(ONE)


def test_what_can_be_asked_of_a_stale_operator(foo):
    with foo.define(S1, tensor_to_tensor, "CPU"):
        op = foo.op
    assert str(op.name) == foo.name
    assert repr(op) == f"<OpOverload {foo.name}>"
    assert not op.has_kernel()
    assert dump_state(op) == ""
    assert op.removed_at.startswith(f"{__file__}:")


def test_a_stale_packet_says_so(foo):
    with foo.define(S1, tensor_to_tensor, "CPU"):
        packet = getattr(ops, foo.library.namespace).foo
        assert packet(ONE) is ONE
    for use in (lambda: packet(ONE), lambda: packet.resolve(ONE)):
        with pytest.raises(StaleOperatorError, match=f"operator {foo.name} is no longer registered"):
            use()
    with pytest.raises(AttributeError):
        packet.default                                  # noqa: B018
    with foo.define(S1, tensor_to_tensor, "CPU"):
        assert getattr(ops, foo.library.namespace).foo is not packet


def test_operators_pickle_by_name(foo):
    foo.define()
    foo.define("foo.two(Tensor x, Tensor y) -> Tensor")
    packet = getattr(ops, foo.library.namespace).foo
    for op in (packet, packet.default, packet.two):
        assert pickle.loads(pickle.dumps(op)) is op


def test_an_operator_that_is_gone_does_not_unpickle(foo):
    with foo.define():
        text = pickle.dumps(foo.op)
    with pytest.raises(OperatorNotFoundError, match=f"no operator {foo.name}"):
        pickle.loads(text)


# --- registrations -> state --------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["DCA", "CDA", "CAD", "DAC", "ADC", "ACD"])
def test_whichever_completes_a_bad_pair_raises(foo, order):
    register = {"D": lambda: foo.define(S2), "C": lambda: foo.impl("CPU"), "A": lambda: foo.impl("A")}
    there = ""
    for letter in order:
        if there and "D" in there + letter:
            with pytest.raises(RegistrationError):
                register[letter]()
        else:
            register[letter]()
            there += letter
    assert there == ("D" if order[0] == "D" else order.replace("D", ""))


def test_def_by_name(foo):
    foo.define("foo", tensor_to_tensor)
    lines = dump_state(foo.name).splitlines()
    assert lines[1] == f"schema: {foo.name}(Tensor _0) -> Tensor"
    assert lines[3] == "alias analysis kind: CONSERVATIVE"
    assert lines[4].startswith("CompositeImplicitAutograd[alias]: tensor_to_tensor at ")


def test_def_by_name_with_a_kernel_that_tells_no_schema(foo):
    before = foo.seen()
    for kernel in (lambda x: x, np.add, fallthrough_kernel):
        with pytest.raises(RegistrationError, match="cannot infer a schema for foo"):
            foo.define("foo", kernel)
    assert foo.seen() == before


def test_def_by_name_under_a_key(foo):
    foo.define("foo", tensor_to_tensor, "CPU")
    assert [key.name for key in registrations.kernels_of(foo.op)] == ["CPU"]
    assert str(foo.op.schema) == f"{foo.name}(Tensor _0) -> Tensor"


# --- what is independent -----------------------------------------------------------------------------------


def test_overloads_are_independent_operators(foo):
    foo.define(S1, self_naming("one"), "CPU")
    two = foo.define("foo.two(Tensor x, Tensor y) -> Tensor", lambda x, y: np.array("two"), "CPU")
    packet = getattr(ops, foo.library.namespace).foo
    assert (packet(ONE).item(), packet(ONE, ONE).item()) == ("one", "two")
    assert [op.name.overload for op in packet.overloads] == ["", "two"]
    two.remove()
    assert packet.overloads == (foo.op,)
    assert find(f"{foo.name}.two") is None
    assert packet(ONE).item() == "one"


def test_boxed_calls_after_changes(foo):
    foo.define(S1, self_naming("first"), "CIA")
    stack = Stack([ONE])
    foo.op.call_boxed(stack)
    assert stack[0].item() == "first"
    with foo.impl("CPU", self_naming("second")):
        stack = Stack([ONE])
        foo.op.call_boxed(stack)
        assert stack[0].item() == "second"
        assert foo.op.redispatch(DispatchKeySet("CPU"), ONE).item() == "second"
    assert foo.op.redispatch(DispatchKeySet("CPU"), ONE).item() == "first"


@pytest.mark.parametrize("overload", ["name", "overloads", "resolve", "explain"])
def test_an_overload_is_not_named_like_an_attribute_of_packets(foo, overload):
    with pytest.raises(RegistrationError, match=f"overload name '{overload}'.*\nchoose another"):
        foo.define(f"foo.{overload}(Tensor x) -> Tensor")
    assert find(f"{foo.name}.{overload}") is None


def test_two_threads_parse_a_schema_at_once():
    schema = parse_schema("race::f(Tensor x) -> Tensor")

    class Unparsed:
        """A schema that another thread parses while this one looks at it."""

        @property
        def __class__(self):
            definition._schema = schema
            return Unparsed

        def __call__(self):
            return schema

    definition = registrations.DefinitionHandle(Unparsed(), "here", None, (), {})
    assert definition.schema is schema
