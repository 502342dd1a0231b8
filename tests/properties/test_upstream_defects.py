"""Known defects of PyTorch's dispatcher do not exist here."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from pydispatch import DispatchKey, DispatchKeySet, Tensor, below_autograd, exclude_keys, force_keys
from pydispatch._registry import registrations
from pydispatch._registry.operators import find, find_or_raise, find_packet
from pydispatch.debug import check_invariants, dump_state, dump_table
from pydispatch.exceptions import (
    AmbiguousKernelError,
    DispatchTypeError,
    OverrideWarning,
    RegistrationError,
    SchemaError,
    StaleOperatorError,
    UnknownKeyError,
)
from pydispatch.keys import all_keys, parse_key
from pydispatch.library import Library, Stack, fallthrough_kernel, get_kernel
from pydispatch.schema import parse_schema
from tests.registry.listing import dangling, names_with_kernel

S1 = "foo(Tensor x) -> str"
ONE = np.ones(1)


def takes_one(x: Tensor) -> str:
    return "one"


@pytest.fixture
def name(fresh):
    return f"{fresh.namespace}::foo"


# --- the live table is the computed one --------------------------------------------------------------------


@pytest.mark.parametrize(("second", "after"), [("CEA", "CEA"), ("SparseCPU", "ambiguous"), ("SparseA", "ambiguous")])
def test_live_table_after_a_composite(fresh, name, backends, token, second, after):
    # CIA then CEA, CIA then Sparse: upstream keeps CIA at the autograd key, and depends on the order.
    sparse = {"SparseCPU": backends.SparseArray, "SparseA": backends.SparseArrayA}
    value = Tensor(sparse[second](1) if second in sparse else ONE)

    def run():
        try:
            return find(name)(value)
        except AmbiguousKernelError:
            return "ambiguous"

    fresh.define(S1)
    results = []
    for order in (("CIA", second), (second, "CIA")):
        handles = {}
        for each in order:
            handles[each] = fresh.impl("foo", token(each), each)
            run()                                       # the table is live from here on
        results.append(run())
        assert dump_table(name, "difference") == ""
        assert dump_table(name, "live") == dump_table(name, "computed")
        check_invariants(name)
        handles[second].remove()
        assert run() == "CIA"                           # and the reverse, on deregistration
        handles["CIA"].remove()
    assert results == [after, after]


# --- the harness looks -------------------------------------------------------------------------------------


def test_checking_invariants_of_an_unknown_name_is_an_error(fresh, name):
    # Upstream it is a silent no-op, and its harness passes the unqualified name.
    for unknown in ("foo", name):
        with pytest.raises(ValueError, match=f"no operator {unknown} is registered"):
            check_invariants(unknown)
    fresh.define(S1)
    check_invariants(name)


def test_a_wrong_live_table_is_found(fresh, name, token):
    fresh.define(S1, token("CIA"), "CIA")
    op = find_or_raise(name)
    op(ONE)
    wrong = op.live_table
    fresh.impl("foo", token("CEA"), "CEA")
    op.install_table(wrong)
    with pytest.raises(AssertionError, match=rf"operator {name} violates I8: Undefined is live token_CIA at "):
        check_invariants(name)
    difference = dump_table(name, "difference").splitlines()
    assert any(line.startswith("- CPU: token_CIA at ") and line.endswith("[math kernel]") for line in difference)
    assert any(line.startswith("+ CPU: token_CEA at ") for line in difference)
    op.install_table(None)
    assert op(ONE) == "CEA"


# --- definition with a kernel that does not fit ------------------------------------------------------------


def test_a_refused_kernel_takes_its_definition_along(fresh, name):
    with pytest.raises(RegistrationError, match="number of arguments: expected 2, inferred 1"):
        fresh.define("foo(Tensor x, Tensor y) -> str", takes_one)
    assert find(name) is None
    assert fresh.handles == []
    with Library(fresh.namespace, "FRAGMENT") as elsewhere:
        elsewhere.define("foo(Tensor x, Tensor y) -> str")


# --- too many arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [65, 1000])
def test_too_many_arguments_leave_nothing(fresh, name, count):
    with pytest.raises(SchemaError, match="64"):
        fresh.define(f"foo({', '.join(f'Tensor a{i}' for i in range(count))}) -> str")
    assert find(name) is None
    assert name not in names_with_kernel()
    assert dump_state(name) == ""
    assert dangling() == []


def test_as_many_as_there_may_be(fresh, name):
    fresh.define(f"foo({', '.join(f'Tensor a{i}' for i in range(64))}) -> str", lambda *xs: str(len(xs)), "CPU")
    assert find_or_raise(name)(*[ONE] * 64) == "64"


# --- crashes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["foo", "other::foo"])
def test_impl_in_the_wildcard_namespace(target):
    with Library("_", "IMPL") as lib, pytest.raises(RegistrationError, match="takes fallbacks only"):
        lib.impl(target, takes_one, "CPU")


@pytest.mark.parametrize("key", ["CPU", "Undefined", "SparseA", "BackendSelect"])
def test_call_for_a_key_without_a_kernel(fresh, name, key):
    fresh.define(S1)
    with pytest.raises((NotImplementedError, RegistrationError)):
        find_or_raise(name).redispatch(DispatchKeySet(key), ONE)
    if key != "BackendSelect":                          # which has one, our own
        with pytest.raises(RegistrationError, match=f"there is nothing under the key {key}"):
            get_kernel(name, key)


@pytest.mark.parametrize("declared", [0, 1, 2, 3])
@pytest.mark.parametrize("returned", [None, "a", (), ("a",), ("a",) * 2, ("a",) * 3, ["a"] * 4])
@pytest.mark.parametrize("boxed", [False, True])
def test_a_kernel_that_returns_too_many_values(fresh, name, declared, returned, boxed):
    def unboxed_kernel(x):
        return returned

    def boxed_kernel(op, stack):
        stack.pop_arguments(1)
        stack.push(*([returned] if returned is None or isinstance(returned, str) else returned))

    fresh.define(f"foo(Tensor x) -> ({', '.join(['str'] * declared)})")
    fresh.impl("foo", boxed_kernel if boxed else unboxed_kernel, "CPU", boxed=boxed)
    op = find_or_raise(name)
    pushed = len(returned) if isinstance(returned, (tuple, list)) else 1
    if boxed:
        fits = pushed == declared and not (declared == 1 and returned is None)
    else:
        fits = {0: returned is None, 1: returned == "a"}.get(
            declared, isinstance(returned, (tuple, list)) and len(returned) == declared)
    if fits:
        assert op(ONE) == {0: None, 1: "a"}.get(declared, ("a",) * declared)
        return
    kernel = "boxed_kernel" if boxed else "unboxed_kernel"
    with pytest.raises(DispatchTypeError, match=rf"operator {name}: .*kernel .*{kernel} at "):
        op(ONE)
    with pytest.raises(DispatchTypeError):
        op.call_boxed(Stack([ONE]))


def test_a_kernel_that_empties_its_stack_or_takes_too_much(fresh, name):
    def greedy(op, stack):
        stack.clear()

    def greedier(op, stack):
        stack.pop_arguments(2)

    fresh.define(S1)
    with fresh.impl("foo", greedy, "CPU", boxed=True), pytest.raises(DispatchTypeError, match="left 0 values"):
        find(name)(ONE)
    with fresh.impl("foo", greedier, "CPU", boxed=True), pytest.raises(IndexError, match="cannot pop 2 values"):
        find(name)(ONE)
    with fresh.impl("foo", greedy, "CPU", boxed=True):
        stack = Stack(["below", ONE])
        with pytest.raises(DispatchTypeError):
            find(name).call_boxed(stack)
        assert stack == ["below", ONE]                  # as it was


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")
def test_calls_while_kernels_come_and_go(fresh, name, token):
    # Upstream segfaults within seconds.
    fresh.define(S1, token("steady"), "CIA")
    op = find_or_raise(name)
    stop = threading.Event()
    answers: list[set[str]] = [set() for _ in range(4)]
    errors: list[BaseException] = []

    def call(seen):
        try:
            while not stop.is_set():
                seen.add(op(ONE))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(seen,)) for seen in answers]
    for thread in threads:
        thread.start()
    for i in itertools.count():
        with fresh.impl("foo", token(f"passing {i % 3}"), "CPU"), fresh.impl("foo", token("newer"), "CPU"):
            pass
        fresh.handles.clear()
        if errors or (i > 300 and all(answers)):
            break
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set().union(*answers) <= {"steady", "newer", "passing 0", "passing 1", "passing 2"}


# --- fallbacks ---------------------------------------------------------------------------------------------


def test_a_fallback_key_that_contradicts_its_library():
    with Library("_", "IMPL", "A") as lib, pytest.raises(RegistrationError, match="names the key B, but the library"):
        lib.fallback(fallthrough_kernel, "B")
    assert registrations.fallbacks == []


def test_a_fallback_on_an_alias_is_all_or_nothing(fresh, name, backends, token):
    fresh.define(S1, token("kernel"), "CEA")
    op = find_or_raise(name)
    with Library("_", "IMPL") as first, Library("_", "IMPL") as second:
        taken = first.fallback(token("first"), "AutogradB")
        with pytest.raises(RegistrationError, match="the key AutogradB has a fallback already"):
            second.fallback(token("second"), "Autograd")
        assert registrations.fallbacks == [taken]
        assert op(Tensor(ONE)) == op(Tensor(backends.ArrayA(1))) == "kernel"
        assert op(Tensor(backends.ArrayB(1))) == "first"


# --- keys that are dead, keys that do not parse ------------------------------------------------------------


@pytest.mark.parametrize("key", ["Dense", "Sparse", "Quantized", "AutogradFunctionality"])
def test_building_blocks_are_refused(fresh, name, key):
    with pytest.raises(UnknownKeyError):
        fresh.impl("foo", takes_one, key)
    assert find(name) is None


def test_every_key_that_prints_parses():
    for key in all_keys():
        assert parse_key(key.name) is key
    for key in DispatchKeySet.full():
        assert DispatchKey(str(key.name)) is key


# --- schemas -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", [
    "int[] x=[1,1]", "Tensor(a|b) x", "Tensor(a|*) x", "Tensor! x", "Tensor(a)?[] x", "Device x='cpu'",
    "Device? x='cpu'", "complex x=1j", "str x='a'", "Dict(str, Tensor(a)) x", "(Tensor(a), Tensor) x",
])
def test_printing_round_trips(argument):
    try:
        schema = parse_schema(f"ns::foo({argument}) -> ()")
    except SchemaError:
        assert argument in ("Dict(str, Tensor(a)) x", "(Tensor(a), Tensor) x")
        return
    assert parse_schema(str(schema)) == schema
    assert str(parse_schema(str(schema))) == str(schema)


@pytest.mark.parametrize("argument", [
    "int x=1.5", "int x='a'", "int x=None", "int x=0x10", "str x=1", "str x=None", "float x='a'", "bool x=2",
    "Tensor x=1", "int[] x=[1.5]", "int[1.5] x", "int x=99999999999999999999",
])
def test_a_default_is_a_value_of_its_type(argument):
    with pytest.raises(SchemaError):
        parse_schema(f"ns::foo({argument}) -> ()")


def test_duplicate_names():
    with pytest.raises(SchemaError, match="x"):
        parse_schema("ns::foo(Tensor x, Tensor x) -> ()")
    with pytest.raises(SchemaError, match="y"):
        parse_schema("ns::foo(Tensor x) -> (Tensor y, Tensor y)")


# --- namespaces --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["", "a::b", "has space", "1x", "def"])
@pytest.mark.parametrize("kind", ["DEF", "FRAGMENT", "IMPL"])
def test_the_namespace_of_a_library_is_validated(namespace, kind):
    with pytest.raises(SchemaError):
        Library(namespace, kind)


def test_a_redundantly_qualified_name_is_the_same_name(fresh, name):
    with fresh.define(f"{name}(Tensor x) -> str"):
        assert str(find_or_raise(name).name) == name
        assert [known for known in registrations.operators if known.startswith(f"{fresh.namespace}::")] == [name]
        with pytest.raises(RegistrationError, match=f"operator {name} is defined already"):
            fresh.define(S1)
    assert find(name) is None


# --- key sets without a backend, excluding one -------------------------------------------------------------


def test_a_functionality_without_a_backend_is_no_key(fresh, name, token):
    fresh.define(S1, token("CPU"), "CPU")
    dense = DispatchKeySet("CPU").remove_backend("CPU")
    assert dense.highest is DispatchKey.Undefined
    with pytest.raises(NotImplementedError, match="the call has no key"):
        find_or_raise(name).redispatch(dense, ONE)


def test_excluding_a_backend_excludes_that_backend(fresh, name, backends, token):
    for key in ("CPU", "A", "SparseCPU", "AutogradA", "CIA"):
        fresh.impl("foo", token(key), key)
    fresh.define(S1)
    op = find_or_raise(name)
    with exclude_keys("CPU"):
        assert op(ONE) == "CIA"
        assert op(backends.ArrayA(1)) == "A"
        assert op(backends.SparseArray(1)) == "SparseCPU"
        assert op(Tensor(backends.ArrayA(1))) == "AutogradA"
    assert op(ONE) == "CPU"


# --- sparse arrays with autograd ---------------------------------------------------------------------------


def test_a_composite_does_not_bypass_the_sparse_kernel(fresh, name, backends, token):
    fresh.define(S1, token("CIA"), "CIA")
    fresh.impl("foo", token("SparseCPU"), "SparseCPU")
    op = find_or_raise(name)
    sparse = backends.SparseArray(1)
    assert op(sparse) == "SparseCPU"
    with pytest.raises(AmbiguousKernelError):
        op(Tensor(sparse))
    with below_autograd():
        assert op(Tensor(sparse)) == "SparseCPU"
    with force_keys(exclude=("AutogradOther",)):
        assert op(Tensor(sparse)) == "SparseCPU"


# --- hashing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", ["int[2] x=[1, 2]", "float[] x=[]", "int[] x=[1, 1]", "Dict(str, int)? x=None"])
def test_schemas_hash_with_list_defaults(argument):
    text = f"ns::foo({argument}) -> ()"
    assert hash(parse_schema(text)) == hash(parse_schema(text))
    assert len({parse_schema(text), parse_schema(text)}) == 1


# --- warnings as errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["impl", "decorator", "define"])
def test_an_override_refused_by_the_warning_filter_has_no_effect(fresh, name, token, verb):
    fresh.impl("foo", token("first"), "CPU")
    before = dump_state(name)
    register = {
        "impl": lambda: fresh.impl("foo", token("second"), "CPU"),
        "decorator": lambda: fresh.impl("foo", key="CPU")(token("second")),
        "define": lambda: fresh.define(S1, token("second"), "CPU"),
    }[verb]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OverrideWarning):
            register()
    assert dump_state(name) == before
    fresh.define(S1)
    assert find_or_raise(name)(ONE) == "first"
    check_invariants(name)


def test_an_override_refused_under_the_option_of_the_interpreter():
    program = """
import numpy
from pydispatch import ops
from pydispatch.exceptions import OverrideWarning
from pydispatch.library import Library
lib = Library("ns", "DEF")
lib.define("f(Tensor x) -> str", lambda x: "first", "CPU")
try:
    lib.impl("f", lambda x: "second", "CPU")
except OverrideWarning as warning:
    assert "shadows" in str(warning)
else:
    raise AssertionError
assert ops.ns.f(numpy.ones(1)) == "first"
assert len(lib.handles) == 1
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


# --- retained operators ------------------------------------------------------------------------------------


def test_a_retained_operator_says_which_it_is_and_where_it_went(new_library):
    library = new_library()
    name = f"{library.namespace}::foo"
    library.define(S1, takes_one, "CPU")
    op, packet = find_or_raise(name), find_packet(name)
    library.close()
    with pytest.raises(StaleOperatorError) as raised:
        op(ONE)
    assert str(raised.value).startswith(f"operator {name} is no longer registered: ")
    assert f"its last registration was removed at {__file__}:" in str(raised.value)
    with pytest.raises(StaleOperatorError, match=f"operator {name} is no longer registered"):
        packet(ONE)
