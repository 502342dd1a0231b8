"""Known defects of PyTorch's dispatcher do not exist here."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading

import numpy as np
import pytest

from pydispatch import DispatchKey, DispatchKeySet, Tensor, below_autograd, exclude_keys, force_keys
from pydispatch._registry import registrations
from pydispatch._registry.operators import find, find_or_raise
from pydispatch.debug import check_invariants, dump_table
from pydispatch.exceptions import AmbiguousKernelError, DispatchTypeError, RegistrationError
from pydispatch.library import Library, Stack, get_kernel

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


# --- too many arguments ------------------------------------------------------------------------------------


def test_as_many_as_there_may_be(fresh, name):
    fresh.define(f"foo({', '.join(f'Tensor a{i}' for i in range(64))}) -> str", lambda *xs: str(len(xs)), "CPU")
    assert find_or_raise(name)(*[ONE] * 64) == "64"


# --- crashes -----------------------------------------------------------------------------------------------


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


# --- warnings as errors ------------------------------------------------------------------------------------


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
