"""Registrations commute: the cases of PyTorch's own tests, and further ones, in all orders.

A case is a list of actions, each one registration in a library of its own. Its actions are registered in
every order and undone in every order. Whenever the same actions are in force, everything that can be seen
must be the same: registrations, *live* table, masks, counts, indices, and what calls do. A refused action
must be refused with the same words in every order, and leave nothing behind.

PyTorch's cases use keys that pydispatch lacks. They are mapped as follows. CUDA, XLA, Lazy, PrivateUse1: the
run-time backends A, B, C. QuantizedCPU and FPGA: SparseCPU and SparseA. Tracer: a run-time functionality.
FB, the autograd fallback of the framework, is a fall-through. Cases that register a schema with several
kernels in one call, or look an operator up by its native signature, have no counterpart.
"""

from __future__ import annotations

import itertools
import math
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from pydispatch import DispatchKey, DispatchKeySet, Tensor, _core, below_autograd, exceptions, include_keys
from pydispatch._registry import kernels, registrations
from pydispatch._registry.operators import find, find_or_raise
from pydispatch._registry.tables import Label, build_table
from pydispatch.debug import check_invariants, dump_state, dump_table
from pydispatch.keys import ALIASES, parse_key
from pydispatch.library import Library, Stack, fallthrough_kernel, register_kernel
from pydispatch.schema import OperatorName, parse_schema
from tests.registry.listing import dangling, names_with_kernel

S1 = "foo(Tensor x) -> Tensor"
S2 = "foo(Tensor x, Tensor y) -> Tensor"
INFERRED = "foo(Tensor _0) -> Tensor"

pytestmark = pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")


# --- actions ------------------------------------------------------------------------------------------------


class Action(NamedTuple):
    """One registration: its text, how it is made. The kernel that it brings, if any, and the key of that."""

    text: str
    register: Callable[[Library], object]
    kernel: str = ""
    key: str = "CompositeImplicitAutograd"
    everywhere: bool = False        # a fallback: not in the namespace of the run


def token_kernel(name: str) -> Callable[[Tensor], Tensor]:
    """Return a kernel from one Tensor to one Tensor, which returns its name."""
    token = np.array(name)

    def kernel(x: Tensor) -> Tensor:
        return token

    kernel.__name__ = kernel.__qualname__ = name
    return kernel


def define(schema: str, kind: str = "") -> Action:
    return Action(f"define {schema} {kind}", lambda lib: lib.define(schema, alias_analysis=kind))


def define_unset(schema: str) -> Action:
    """Return a definition that leaves its alias-analysis kind unset."""

    def register(library: Library) -> None:
        parsed = parse_schema(schema).with_namespace(library.namespace)
        library.handles.append(registrations.add_definition(parsed, "somewhere", alias_analysis=None))

    return Action(f"define {schema} with its kind unset", register)


def define_by_name() -> Action:
    kernel = token_kernel("math")
    return Action("define foo by name", lambda lib: lib.define("foo", kernel), "math")


def only_name() -> Action:
    def register(library: Library) -> None:
        library.handles.append(registrations.add_name(OperatorName(library.namespace, "foo")))

    return Action("name", register)


def impl(key: str = "CompositeImplicitAutograd", name: str = "impl_t_t") -> Action:
    kernel = token_kernel(name)
    return Action(f"impl {key} {name}", lambda lib: lib.impl("foo", kernel, key), name, parse_key(key).name)


def impl_fallthrough(key: str) -> Action:
    return Action(f"impl {key} fallthrough", lambda lib: lib.impl("foo", fallthrough_kernel, key))


def fallback(key: str, name: str = "fallback") -> Action:
    token = np.array(name)

    def kernel(op, *args):
        return token

    kernel.__qualname__ = name
    return Action(f"fallback {key} {name}", lambda lib: lib.fallback(kernel, key), name, key, everywhere=True)


# --- looking ------------------------------------------------------------------------------------------------


COLUMNS = ("Undefined", "CPU", "A", "B", "AutogradOther", "AutogradCPU", "AutogradA", "AutogradB")
PROBED_KEYS = (*COLUMNS, "SparseCPU", "SparseA", "Meta")
REGISTERED_KEYS = (*PROBED_KEYS, "Autograd", "CIA", "CEA", "CEANF")
LABELS = {
    "CompositeExplicitAutogradNonFunctional": Label.DEFAULT_BACKEND,
    "CompositeExplicitAutograd": Label.DEFAULT_BACKEND,
    "CompositeImplicitAutograd": Label.COMPOSITE,
    "Autograd": Label.AUTOGRAD,
}
FALLS_THROUGH = f"fallthrough fallthrough_kernel [{Label.FALLBACK}]"
AMBIGUOUS = f"_raise_ambiguous [{Label.AMBIGUOUS}]"


class Snapshot(NamedTuple):
    """Everything that can be seen of the operator `foo` of a run."""

    state: str
    table: str
    masks: tuple[int, ...]
    counts: tuple[int, int]             # definitions, registrations
    names: tuple[str, ...]              # the indices that know it
    fallbacks: tuple[str, ...]
    calls: tuple[tuple[str, str], ...]  # probe -> outcome


NOTHING = Snapshot("", "", (), (0, 0), (), (), ())


def observe(namespace: str) -> Snapshot:
    """Look at the operator, its live table, and what calls of it do."""
    name = f"{namespace}::foo"
    op = find(name)
    fallbacks = tuple(sorted(f"{handle.key.name}: {handle.kernel.name}" for handle in registrations.fallbacks))
    if op is None:
        return NOTHING._replace(state=dump_state(name), fallbacks=fallbacks)
    check_invariants(op)                        # of the table that the last change left behind
    is_defined = registrations.definition_of(op) is not None
    calls = tuple(probes(op)) if is_defined else (("call", outcome(lambda: op(ARRAYS["CPU"]))),)
    table, masks = "", ()
    if is_defined:
        table, masks = dump_table(op, "live"), build_table(op).masks_by_backend()
        assert table == dump_table(op, "computed")
        assert {probe: summary(text) for probe, text in calls} == dict(predictions(entries(table)))
        check_invariants(op)
    definitions = sum(isinstance(handle, registrations.DefinitionHandle) for handle in op.registrations)
    return Snapshot(
        dump_state(op).replace(f"{namespace}::", ""), table, masks, (definitions, len(op.registrations)),
        tuple(indices(op)), fallbacks, tuple((probe, text.replace(f"{namespace}::", "")) for probe, text in calls))


def indices(op: object) -> Iterator[str]:
    """Yield each place that knows the operator, and its entry."""
    namespace, name = op.name.namespace, str(op.name)
    if find(name) is op:
        yield "by name"
    if outcome(lambda: find_or_raise(name) and np.array("found")) == "found":
        yield "with schema"
    packet = registrations.packets.get(namespace, {}).get("foo")
    yield f"overloads: {packet and [overload.name.overload for overload in packet.overloads]}"
    yield f"kernels: {[key for key in REGISTERED_KEYS if op.has_kernel(key)]}"


def outcome(call: Callable[[], object]) -> str:
    """Return the token that a call returned, or the error that it raised: its type, a colon, its text."""
    try:
        result = call()
    except exceptions.DispatchError as error:
        return f"{type(error).__name__}: {error}"
    return str((result.array if isinstance(result, Tensor) else result).item())


def summary(outcome: str) -> str:
    """Return the token, or the type of the error."""
    return outcome.partition(":")[0]


ARRAYS: dict[str, object] = {"CPU": np.ones(2)}         # by key. The fixture below adds the other backends'
CHAINS = {                                              # probe: the keys that such a call tries, in order
    "array of CPU": ("CPU",),
    "array of A": ("A",),
    "array of B": ("B",),
    "array of SparseCPU": ("SparseCPU",),
    "Tensor of CPU": ("AutogradCPU", "CPU"),
    "Tensor of A": ("AutogradA", "A"),
    "Tensor of B": ("AutogradB", "B"),
    "Tensor of SparseCPU": ("AutogradOther", "SparseCPU"),
}


@pytest.fixture(autouse=True, scope="module")
def _arrays(backends):
    ARRAYS.update(
        A=backends.ArrayA(1), B=backends.ArrayB(1), SparseCPU=backends.SparseArray(1), SparseA=backends.SparseArrayA(1))


def probes(op: object) -> Iterator[tuple[str, str]]:
    """Call in every way of interest, and redispatch to every key of interest."""
    n = len(op.schema.arguments)
    for probe in CHAINS:
        kind, _, key = probe.partition(" of ")
        value = Tensor(ARRAYS[key]) if kind == "Tensor" else ARRAYS[key]
        yield probe, outcome(partial(op, *[value] * n))
    with include_keys("Tracer"):
        yield "under Tracer", outcome(partial(op, *[ARRAYS["CPU"]] * n))
    for key in PROBED_KEYS:
        yield f"redispatch to {key}", outcome(partial(op.redispatch, DispatchKeySet(key), *[ARRAYS["CPU"]] * n))


def entries(table: str) -> dict[str, str]:
    """Return a printed table, by key, without the definition sites."""
    lines = (line.partition(": ") for line in table.splitlines())
    return {key: re.sub(r" at \S+:\d+ ", " ", entry) for key, _, entry in lines}


def predictions(table: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the predictions of a table for the probes."""
    for probe, keys in CHAINS.items():
        yield probe, prediction(table, *keys, "Undefined")
    yield "under Tracer", prediction(table, "Tracer", "CPU", "Undefined")
    for key in PROBED_KEYS:
        entry = table.get(key, "")
        yield f"redispatch to {key}", "NoKernelError" if "fallthrough" in entry else prediction(table, key)


def prediction(table: dict[str, str], *keys: str) -> str:
    for key in keys:
        entry = table.get(key)
        if entry is None:
            return "NoKernelError"
        if entry == AMBIGUOUS:
            return "AmbiguousKernelError"
        if not entry.startswith("fallthrough"):
            return entry.partition(" ")[0]
    return "NoKernelError"


# --- running in all orders ----------------------------------------------------------------------------------


class Findings:
    """Observations by the set of actions in force, and refusals by that set and the refused action."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self.actions = tuple(actions)
        self.snapshots = {frozenset(): (NOTHING, "(nothing registered)")}
        self.refusals: dict[tuple[frozenset[int], int], tuple[str, str]] = {}
        self._paths: set[str] = set()

    def __getitem__(self, active: Iterable[int]) -> Snapshot:
        """Return the observations with these actions in force."""
        return self.snapshots[frozenset(active)][0]

    @property
    def full(self) -> Snapshot:
        """The observations with all actions in force. Split a case in which that never happened."""
        return self[range(len(self.actions))]

    def run(self, arrivals: Sequence[int], departures: Sequence[int], namespace: str) -> None:
        """Register in one order, undo in another. Look after each step."""
        with ExitStack() as stack:
            libraries = [
                stack.enter_context(Library(*("_", "IMPL") if action.everywhere else (namespace, "FRAGMENT")))
                for action in self.actions
            ]
            self._run(libraries, arrivals, departures, namespace)

    def _run(
        self, libraries: list[Library], arrivals: Sequence[int], departures: Sequence[int], namespace: str
    ) -> None:
        active: frozenset[int] = frozenset()
        path = ""
        self._look(active, path, namespace)
        for i in arrivals:
            path += f" +{i} {self.actions[i].text};"
            try:
                self.actions[i].register(libraries[i])
            except exceptions.RegistrationError as error:
                self._refuse(active, i, path, str(error).replace(f"{namespace}::", ""))
                self._look(active, path, namespace)
                self._is_not_wedged(namespace)
                self._look(active, path + " (then another)", namespace)
                break
            active |= {i}
            self._look(active, path, namespace)
        for i in departures:
            libraries[i].close()
            active -= {i}
            path += f" -{i} {self.actions[i].text};"
            self._look(active, path, namespace)

    def _look(self, active: frozenset[int], path: str, namespace: str) -> None:
        if path in self._paths:         # this step was taken before: build the table, as was done then
            op = find(f"{namespace}::foo")
            if op is not None and registrations.definition_of(op) is not None:
                build_table(op)
            return
        self._paths.add(path)
        snapshot = observe(namespace)
        expected, earlier = self.snapshots.setdefault(active, (snapshot, path))
        for field, old, new in zip(Snapshot._fields, expected, snapshot, strict=True):
            assert old == new, f"{field} depends on the order\n---{earlier}\n{old}\n---{path}\n{new}"

    def _refuse(self, active: frozenset[int], i: int, path: str, message: str) -> None:
        expected, earlier = self.refusals.setdefault((active, i), (message, path))
        assert expected == message, f"the message depends on the order\n---{earlier}\n---{path}"

    @staticmethod
    def _is_not_wedged(namespace: str) -> None:
        with Library(namespace, "FRAGMENT") as library:
            library.impl("foo", lambda op, stack: None, "Tracer", boxed=True)
            name = f"{namespace}::foo"
            if registrations.definition_of(find(name)) is None:
                library.define(S1)
            assert find_or_raise(name).has_kernel("Tracer")


Orders = tuple[Sequence[int], Sequence[int]]
"""An order of registration, and one of deregistration."""


def one_of(part: int, pairs: list[Orders]) -> list[Orders]:
    """Return one of `part` pairs, with each order of registration and each of deregistration among them."""
    return [pairs[i * 7 % len(pairs)] for i in range(len(pairs) // part)]


@pytest.fixture(params=[4, pytest.param(1, marks=pytest.mark.slow)], ids=["a quarter", "all"])
def explore(new_library, request):
    """Run a case in many orders, and return its Findings.

    Up to 4 actions, every order of registration is combined with every order of deregistration. By default, 4 actions
    take a quarter of these, and with `thorough` 5 actions take a twelfth. Else every order of registration is combined
    with one or two of deregistration. Of 6 actions only a third of the orders run without `thorough`.
    """

    def run_all(
        *actions: Action, refused: bool = False, arrivals: Iterable[Sequence[int]] | None = None,
        departures: Iterable[Sequence[int]] | None = None, thorough: bool = False,
    ) -> Findings:
        findings = Findings(actions)
        every = list(itertools.permutations(range(len(actions))))
        pairs = list(itertools.product(arrivals or every, departures or every))
        if len(actions) == 4 and arrivals is departures is None:
            pairs = one_of(request.param, pairs)
        elif len(actions) == 5 and thorough:
            pairs = one_of(12, pairs)
        if len(actions) > (5 if thorough else 4) and arrivals is departures is None:
            strides = [stride for stride in range(2, len(every)) if math.gcd(stride, len(every)) == 1]
            strides = strides[: 2 if len(actions) == 5 else 1]
            pairs = [
                (order, every[i * stride % len(every)])     # so that every order of deregistration occurs too
                for stride in strides for i, order in enumerate(every)
            ]
            if len(actions) > 5 and not thorough:
                pairs = [pairs[i * strides[0] % len(pairs)] for i in range(len(pairs) // 3)]    # spread over them
        for arrival, departure in pairs:
            findings.run(arrival, departure, new_library().namespace)
        assert bool(findings.refusals) == refused
        return findings

    return run_all


# --- what is expected ---------------------------------------------------------------------------------------


def state(schema: str, kind: str, *kernels: str) -> str:
    """Return the expected dump, less the sites."""
    head = ["name: foo", f"schema: {schema}"]
    if schema != "(none)":
        head += ["debug: <site>", f"alias analysis kind: {kind}"]
    lines = [f"{kernel} :: (Tensor _0) -> Tensor [ boxed unboxed ]" for kernel in kernels]
    return "\n".join(head + lines) + "\n"


def without_sites(text: str) -> str:
    """Return a dump or message without the places that it names."""
    return re.sub(r"\S+\.py:\d+|somewhere", "<site>", re.sub(r" at \S+\.py:\d+(?= ::)", "", text))


def assert_table(findings: Findings, row: str, active: Iterable[int] | None = None) -> None:
    """Check a table against a row with a word per column: the name of a kernel, FB, ambiguous, or -, nothing."""
    active = range(len(findings.actions)) if active is None else active
    table, actions = entries(findings[active].table), [findings.actions[i] for i in active]
    for column, word in zip(COLUMNS, row.split(), strict=True):
        assert table.get(column) == expected_entry(actions, column, word), column


def expected_entry(actions: Iterable[Action], column: str, word: str) -> str | None:
    """Return a word of a row as a table prints it: with the label of the rule, as the kernel's key tells."""
    if word in ("-", "FB", "ambiguous"):
        return {"-": None, "FB": FALLS_THROUGH, "ambiguous": AMBIGUOUS}[word]
    keys = {action.key: action.everywhere for action in actions if action.kernel == word}
    key = column if column in keys else next(iter(keys))
    return f"{word} [{Label.FALLBACK if keys[key] else LABELS.get(key, Label.KERNEL)}]"


def assert_error(findings: Findings, *parts: str) -> None:
    """Check that all refusals have the same message, with all of these texts."""
    messages = {without_sites(message) for message, _ in findings.refusals.values()}
    assert len(messages) == 1
    for part in parts:
        assert part in next(iter(messages))


class Row(NamedTuple):
    """A case: what is registered, and the state and the table when all of it is in force."""

    actions: list[Action]
    state: str
    table: str = ""
    others: str = ""        # further entries, as in `SparseCPU=sparse`


def rows(table: dict[str, Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", table.values(), ids=table.keys())


def check_row(row: Row, findings: Findings) -> None:
    assert without_sites(findings.full.state) == row.state
    if row.table:
        assert_table(findings, row.table)
    table = entries(findings.full.table)
    for word in row.others.split():
        key, _, name = word.partition("=")
        assert table.get(key) == expected_entry(row.actions, key, name), key


AUTOGRAD, CIA, CEA, CEANF = (f"{key.name}[alias]" for key in ALIASES)


# --- PyTorch's tests of 2020 --------------------------------------------------------------------------------


def test_invariants_of_all_operators():
    for op in list(registrations.operators.values()):
        build_table(op)
    check_invariants()


TABLE_9_4 = {
    "def": Row(
        [define(S1), impl(), impl("Autograd")], state(S1, "FROM_SCHEMA", f"{AUTOGRAD}: impl_t_t", f"{CIA}: impl_t_t")),
    "def_with_inference": Row(
        [define_by_name(), impl("Autograd")], state(INFERRED, "CONSERVATIVE", f"{AUTOGRAD}: impl_t_t", f"{CIA}: math")),
    "def_only": Row([define(S2)], state(S2, "FROM_SCHEMA")),
    "impl_only": Row([impl(), impl("Autograd")], state("(none)", "", f"{AUTOGRAD}: impl_t_t", f"{CIA}: impl_t_t")),
    "def_with_explicit_alias": Row([define(S2, "PURE_FUNCTION")], state(S2, "PURE_FUNCTION")),
}


@rows(TABLE_9_4)
def test_registrations_of_2020(explore, row):
    check_row(row, explore(*row.actions))


def test_def_intermediate_states(explore):
    findings = explore(define(S1), impl(), impl("Autograd"))
    assert without_sites(findings[{1, 2}].state) == state("(none)", "", f"{AUTOGRAD}: impl_t_t", f"{CIA}: impl_t_t")
    assert without_sites(findings[{0}].state) == state(S1, "FROM_SCHEMA")
    assert findings[{0}].names == ("by name", "with schema", "overloads: ['']", "kernels: []")
    assert findings[{1, 2}].names == ("by name", "overloads: None", "kernels: ['Autograd', 'CIA']")
    assert summary(dict(findings[{0}].calls)["array of CPU"]) == "NoKernelError"
    assert summary(dict(findings[{1, 2}].calls)["call"]) == "StaleOperatorError"


def test_def_impl_schema_mismatch_of_2020(explore):
    findings = explore(define(S2), impl(), refused=True)
    assert_error(findings, "operator foo", f"expected: {S2}, defined at <site>",
                 "inferred: (Tensor _0) -> Tensor, kernel impl_t_t", "number of arguments: expected 2, inferred 1")
    assert without_sites(findings[{0}].state) == state(S2, "FROM_SCHEMA")
    assert without_sites(findings[{1}].state) == state("(none)", "", f"{CIA}: impl_t_t")


def test_multiple_def_schema_mismatch(explore):
    for order, new, old in (((0, 1), S1, S2), ((1, 0), S2, S1)):
        findings = explore(define(S2), define(S1), refused=True, arrivals=[order])
        assert_error(findings, "operator foo is defined already", f"the schema {new}, defined at <site>")
        assert without_sites(findings[{order[0]}].state) == state(old, "FROM_SCHEMA")


def test_overwrite_catchall(explore):
    findings = explore(impl(name="fn1"), impl(name="fn2"), arrivals=[(0, 1)])
    assert without_sites(findings.full.state) == state("(none)", "", f"{CIA}: fn2", f"{CIA} (inactive): fn1")
    assert without_sites(findings[{0}].state) == state("(none)", "", f"{CIA}: fn1")
    assert without_sites(findings[{1}].state) == state("(none)", "", f"{CIA}: fn2")


# --- PyTorch's tests of today -------------------------------------------------------------------------------


FOUR_KERNELS = ("CPU: impl_t_t", "AutogradCPU: impl_t_t", f"{AUTOGRAD}: impl_t_t", f"{CIA}: impl_t_t")

TABLE_9_5 = {
    "def": Row([define(S1), impl(), impl("CPU"), impl("Autograd"), impl("AutogradCPU")],
               state(S1, "FROM_SCHEMA", *FOUR_KERNELS)),
    "def_with_inference": Row([define_by_name(), impl("CPU"), impl("Autograd"), impl("AutogradCPU")],
                              state(INFERRED, "CONSERVATIVE", *FOUR_KERNELS[:3], f"{CIA}: math")),
    "def_only": Row([define(S2)], state(S2, "FROM_SCHEMA"), "- - - - FB FB FB FB"),
    "impl_only": Row([impl(), impl("CPU"), impl("Autograd"), impl("AutogradCPU")], state("(none)", "", *FOUR_KERNELS)),
    "computed_table": Row(
        [define_by_name(), impl("CPU", "cpu"), impl("B", "b"), impl("Autograd", "ag"), impl("AutogradCPU", "agcpu")],
        state(INFERRED, "CONSERVATIVE", "CPU: cpu", "B: b", "AutogradCPU: agcpu", f"{AUTOGRAD}: ag", f"{CIA}: math"),
        "math cpu math b math agcpu math ag"),
    "computed_table_with_cpu_math_autogradcpu_fallthrough": Row(
        [define_by_name(), impl("CPU")],
        state(INFERRED, "CONSERVATIVE", "CPU: impl_t_t", f"{CIA}: math"),
        "math impl_t_t math math math FB math math"),
    "computed_table_with_math": Row([define(S1), impl("CIA", "math")], state(S1, "FROM_SCHEMA", f"{CIA}: math"),
                                    "math math math math math math math math"),
    "computed_table_with_cpu_math": Row([define(S1), impl("CPU", "cpu"), impl("CIA", "math")],
                                        state(S1, "FROM_SCHEMA", "CPU: cpu", f"{CIA}: math"),
                                        "math cpu math math math FB math math"),
    "computed_table_with_autograd": Row(
        [define(S1), impl("Autograd", "ag")], state(S1, "FROM_SCHEMA", f"{AUTOGRAD}: ag"), "- - - - ag ag ag ag"),
    "computed_table_with_cpu_autograd_math": Row(
        [define(S1), impl("CPU", "cpu"), impl("Autograd", "ag"), impl("CIA", "math")],
        state(S1, "FROM_SCHEMA", "CPU: cpu", f"{AUTOGRAD}: ag", f"{CIA}: math"),
        "math cpu math math math ag math math"),
    "computed_table_with_ambiguous_autogradother": Row(
        [define(S1), impl("CIA", "math"), impl("SparseCPU", "sparse")],
        state(S1, "FROM_SCHEMA", "SparseCPU: sparse", f"{CIA}: math"),
        "math math math math ambiguous math math math",
        "SparseCPU=sparse",
    ),
    "computed_table_with_cpu_defaultbackend": Row(
        [define(S1), impl("CPU", "cpu"), impl("CEA", "default")],
        state(S1, "FROM_SCHEMA", "CPU: cpu", f"{CEA}: default"),
        "default cpu default default FB FB FB FB"),
    "computed_table_with_cpu_autograd_defaultbackend": Row(
        [define(S1), impl("CPU", "cpu"), impl("Autograd", "ag"), impl("CEA", "default")],
        state(S1, "FROM_SCHEMA", "CPU: cpu", f"{AUTOGRAD}: ag", f"{CEA}: default"),
        "default cpu default default ag ag ag ag",
        "SparseCPU=default Meta=- SparseMeta=-",
    ),
    "computed_table_with_cpu_autograd_math_defaultbackend": Row(
        [define(S1), impl("CPU", "cpu"), impl("Autograd", "ag"), impl("CIA", "math"), impl("CEA", "default")],
        state(S1, "FROM_SCHEMA", "CPU: cpu", f"{AUTOGRAD}: ag", f"{CIA}: math", f"{CEA}: default"),
        "default cpu default default ag ag ag ag",
        "SparseCPU=default Meta=math",      # a default kernel does not cover Meta
    ),
    "def_with_explicit_alias": Row([define(S2, "PURE_FUNCTION")], state(S2, "PURE_FUNCTION")),
    "helper_basic": Row([define(S1), impl("CPU", "cpu"), impl("A", "a"), impl("B", "b"), impl("CIA", "math")],
                        state(S1, "FROM_SCHEMA", "CPU: cpu", "A: a", "B: b", f"{CIA}: math"),
                        "math cpu a b math FB FB FB", "SparseCPU=math"),
    "helper_math_autogradcpu": Row(
        [define(S1), impl("CPU", "cpu"), impl("A", "a"), impl("B", "b"), impl("CIA", "math"),
         impl("AutogradCPU", "agcpu")],
        state(S1, "FROM_SCHEMA", "CPU: cpu", "A: a", "B: b", "AutogradCPU: agcpu", f"{CIA}: math"),
        "math cpu a b math agcpu FB FB",
    ),
    "helper_defaultbackend_autogradcpu": Row(
        [define(S1), impl("CPU", "cpu"), impl("A", "a"), impl("B", "b"), impl("CEA", "default"),
         impl("AutogradCPU", "agcpu")],
        state(S1, "FROM_SCHEMA", "CPU: cpu", "A: a", "B: b", "AutogradCPU: agcpu", f"{CEA}: default"),
        "default cpu a b FB agcpu FB FB",
        "SparseCPU=default",
    ),
    "helper_autogradother": Row([define(S1), impl("CPU", "cpu"), impl("SparseCPU", "sparse"), impl("CIA", "math")],
                                state(S1, "FROM_SCHEMA", "CPU: cpu", "SparseCPU: sparse", f"{CIA}: math"),
                                "math cpu math math ambiguous FB math math"),
    "helper_defaultbackend_math": Row(      # refused by the helper upstream, not by the dispatcher
        [define(S1), impl("CIA", "math"), impl("CEA", "default")],
        state(S1, "FROM_SCHEMA", f"{CIA}: math", f"{CEA}: default"),
        "default default default default FB FB FB FB",
    ),
}


@rows(TABLE_9_5)
def test_registrations_of_today(explore, row):
    check_row(row, explore(*row.actions))


@pytest.mark.slow
@pytest.mark.parametrize("explore", [1], indirect=True, ids=["all"])
@rows({name: row for name, row in TABLE_9_5.items() if len(row.actions) > 4})
def test_all_orders(explore, row):
    check_row(row, explore(*row.actions, thorough=True))


def test_def_impl_schema_mismatch(explore):
    findings = explore(define(S2), impl(), impl("CPU"), refused=True)
    assert_error(findings, "operator foo", f"expected: {S2}, defined at <site>",
                 "inferred: (Tensor _0) -> Tensor, kernel impl_t_t", "number of arguments: expected 2, inferred 1")


@pytest.mark.parametrize("first", [define(S1), define(S1, "PURE_FUNCTION")], ids=["FROM_SCHEMA", "PURE"])
@pytest.mark.parametrize(
    "second", [define(S1), define_unset(S1), define(S1, "PURE_FUNCTION"), define(S1, "CONSERVATIVE")],
    ids=["multiple_def_error", "alias_defaulting", "alias_same", "alias_mismatch"])
def test_multiple_def(explore, first, second):
    findings = explore(first, second, refused=True)
    assert_error(findings, f"the schema {S1}, defined at <site>, repeats the one defined at <site>")


def test_multiple_fallback(explore):
    findings = explore(fallback("B"), fallback("B"), refused=True)
    assert_error(findings, "the key B has a fallback already",
                 "fallback at <site>, registered at <site>, repeats fallback at <site>, registered at <site>")


def test_overwrite_math(explore):
    orders = [(0, 1, 2), (1, 0, 2), (1, 2, 0)]
    findings = explore(define(S1), impl(name="fn1"), impl(name="fn2"), arrivals=orders)
    dump = state(S1, "FROM_SCHEMA", f"{CIA}: fn2", f"{CIA} (inactive): fn1")
    assert without_sites(findings.full.state) == dump
    assert_table(findings, "fn2 fn2 fn2 fn2 fn2 fn2 fn2 fn2")
    assert_table(findings, "fn1 fn1 fn1 fn1 fn1 fn1 fn1 fn1", {0, 1})
    assert_table(findings, "fn2 fn2 fn2 fn2 fn2 fn2 fn2 fn2", {0, 2})


def test_helper_duplicate_registrations(explore):
    # In PyTorch the test's helper refuses this, not the dispatcher: the newer kernel shadows the older.
    findings = explore(define(S1), impl("CPU", "fn1"), impl("CPU", "fn2"), arrivals=[(0, 1, 2), (1, 2, 0)])
    assert_table(findings, "- fn2 - - FB FB FB FB")


def test_find_dangling_impls():
    program = (
        "import pydispatch\n"
        "from tests.registry.listing import dangling, names_with_kernel\n"
        "assert names_with_kernel() and not dangling()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2], timeout=60)


def test_find_dangling_impls_ext(tmp_path, fresh):
    extension = tmp_path / "extension.py"
    extension.write_text("def bar(x):\n    return x\n\n\nlibrary.impl('bar', bar, 'CPU')\n")
    runpy.run_path(str(extension), {"library": fresh})
    (op,) = [op for op in dangling() if op.name.namespace == fresh.namespace]
    assert dump_state(op).splitlines() == [
        f"name: {fresh.namespace}::bar", "schema: (none)",
        f"CPU: bar at {extension}:1 :: (none) [ boxed unboxed ]",
    ]


def test_print_registrations_for_dispatch_key():
    every, on_cpu = set(names_with_kernel()), set(names_with_kernel("CPU"))
    assert on_cpu
    assert on_cpu <= every
    with pytest.raises(exceptions.UnknownKeyError, match="unknown dispatch key 'Bogus'"):
        names_with_kernel("Bogus")


# --- further cases ------------------------------------------------------------------------------------------


@pytest.fixture
def foo(fresh):
    """Provide the operator foo(Tensor x) -> Tensor, and what registers for it."""
    definition = fresh.define(S1)
    op = find_or_raise(f"{fresh.namespace}::foo")
    return SimpleNamespace(
        op=op, library=fresh, definition=definition,
        impl=lambda key=None, name="kernel", **options: fresh.impl("foo", token_kernel(name), key, **options),
        run=lambda *values: summary(outcome(lambda: op(*values))))


def test_schema_without_kernel_is_found_and_calls_raise(foo):
    assert find_or_raise(str(foo.op.name)) is foo.op
    with pytest.raises(exceptions.NoKernelError, match="no kernel is registered for it"):
        foo.op(np.ones(2))
    foo.impl("CPU").remove()
    with pytest.raises(exceptions.NoKernelError, match="no kernel is registered for it"):
        foo.op(np.ones(2))


@pytest.mark.parametrize("key", ["CPU", "CompositeImplicitAutograd"])
@pytest.mark.parametrize(("first_dropped", "left"), [("newer", "older"), ("older", "newer")])
def test_the_kernel_that_is_left_is_called(foo, key, first_dropped, left):
    handles = {name: foo.impl(key, name) for name in ("older", "newer")}
    assert foo.run(np.ones(2)) == "newer"
    handles[first_dropped].remove()
    assert foo.run(np.ones(2)) == left
    handles[left].remove()
    assert foo.run(np.ones(2)) == "NoKernelError"


def test_same_key_twice_in_one_call(foo):
    register_kernel(foo.op, ["CPU", "A", "CPU"], token_kernel("kernel")).remove()
    assert not foo.op.has_kernel()


def test_a_warning_as_an_error_undoes_the_whole_call(foo):
    with register_kernel(foo.op, "CPU", token_kernel("older")), warnings.catch_warnings():
        warnings.simplefilter("error", exceptions.OverrideWarning)
        with pytest.raises(exceptions.OverrideWarning):
            register_kernel(foo.op, ["A", "CPU"], token_kernel("newer"))
        assert not foo.op.has_kernel("A")
        assert foo.run(np.ones(2)) == "older"


def test_by_name_without_inferable_kernel(fresh):
    with pytest.raises(exceptions.RegistrationError, match="cannot infer a schema for foo"):
        fresh.define("foo", lambda x: x)
    assert find(f"{fresh.namespace}::foo") is None


def test_mismatching_kernel_in_one_call(fresh):
    with pytest.raises(exceptions.RegistrationError, match="number of arguments: expected 2, inferred 1"):
        fresh.define(S2, token_kernel("kernel"))
    assert find(f"{fresh.namespace}::foo") is None


FALLBACKS = {
    "used_when_no_kernel": ([fallback("A")], "- - fallback - FB FB FB FB"),
    "loses_to_own_kernel": ([fallback("A"), impl("A", "own")], "- - own - FB FB FB FB"),
    "loses_to_catchall": ([fallback("A"), impl("CIA", "math")], "math math math math math math math math"),
    "loses_to_default": ([fallback("A"), impl("CEA", "cea")], "cea cea cea cea FB FB FB FB"),
    "of_autograd": ([fallback("AutogradA"), impl("A", "a")], "- - a - FB FB fallback FB"),
    "of_autograd_loses_to_alias": ([fallback("AutogradA"), impl("Autograd", "ag")], "- - - - ag ag ag ag"),
    "one_per_key": ([fallback("A", "for_a"), fallback("B", "for_b")], "- - for_a for_b FB FB FB FB"),
    "of_an_alias_is_one_of_each_member": (
        [fallback("Autograd"), impl("AutogradCPU", "agcpu")], "- - - - fallback agcpu fallback fallback"),
}


@pytest.mark.parametrize(("actions", "row"), FALLBACKS.values(), ids=FALLBACKS)
def test_keys_and_fallbacks(explore, actions, row):
    assert_table(explore(define(S1), *actions), row)


AUTOGRAD_CASES = {
    "autograd_first": ("CPU Autograd", "Tensor of CPU", "Autograd"),
    "raw_arrays_carry_no_autograd": ("CPU Autograd", "array of CPU", "CPU"),
    "own_autograd_beats_generic": ("A Autograd AutogradA", "Tensor of A", "AutogradA"),
    "AutogradCPU_beats_Autograd": ("CPU Autograd AutogradCPU", "Tensor of CPU", "AutogradCPU"),
    "AutogradCPU_and_CIA_on_CPU": ("AutogradCPU CIA", "Tensor of CPU", "AutogradCPU"),
    "AutogradCPU_and_CIA_on_A": ("AutogradCPU CIA", "Tensor of A", "CIA"),
    "Tracer_off": ("Tracer CPU AutogradCPU", "Tensor of CPU", "AutogradCPU"),
    "Tracer_on": ("Tracer CPU", "under Tracer", "Tracer"),
}


@pytest.mark.parametrize(("kernels", "probe", "runs"), AUTOGRAD_CASES.values(), ids=AUTOGRAD_CASES)
def test_keys_and_autograd(explore, kernels, probe, runs):
    findings = explore(define(S1), *[impl(key, key) for key in kernels.split()])
    assert dict(findings.full.calls)[probe] == runs


def test_below_autograd_reaches_the_backend_kernel(foo):
    foo.impl("CPU", "cpu")
    foo.impl("Autograd", "autograd")
    assert foo.run(Tensor(np.ones(2))) == "autograd"
    with below_autograd():
        assert foo.run(Tensor(np.ones(2))) == "cpu"


def test_two_arguments_of_two_backends(fresh, backends, define, token):
    op = define(fresh, "two(Tensor x, Tensor y) -> str", CPU=token("cpu"), A=token("a"))
    x, y = np.ones(2), backends.ArrayA(1)
    assert op(x, x) == "cpu"
    assert op(x, y) == op(y, x) == op(y, y) == "a"
    with Library("_", "IMPL") as everywhere:
        everywhere.fallback(fallthrough_kernel, "AutogradA")
        assert op(Tensor(x), Tensor(y)) == "a"
    fresh.impl("two", token("autograd a"), "AutogradA")
    assert op(Tensor(x), Tensor(y)) == op(x, Tensor(y)) == op(Tensor(x), y) == "autograd a"
    assert op(x, y) == "a"


def test_backend_select_gets_the_key_set_and_redispatches(fresh):
    fresh.define("choose(Tensor? x=None) -> str")
    op = find_or_raise(f"{fresh.namespace}::choose")
    ran = []

    def select(keyset, x=None):
        ran.append(("BackendSelect", DispatchKey("BackendSelect") is keyset.highest))
        return op.redispatch(keyset & DispatchKeySet.full_after("BackendSelect") | DispatchKeySet("CPU"), x)

    def on_cpu(x=None):
        ran.append(("CPU", x is None))
        return "cpu"

    fresh.impl("choose", select, "BackendSelect", with_keyset=True)
    fresh.impl("choose", on_cpu, "CPU")
    assert op() == "cpu"
    assert ran == [("BackendSelect", True), ("CPU", True)]


@pytest.mark.parametrize("convention", ["plain", "boxed", "mixed"])
@pytest.mark.parametrize("how", ["call", "call_boxed"])
def test_chain_by_key_sets(foo, convention, how):
    ran = []

    def link(key):
        def plain(keyset, x):
            ran.append([k.name for k in keyset if k.name != "BackendSelect"])
            return foo.op.redispatch(keyset & DispatchKeySet.full_after(key), x)

        def boxed(op, keyset, stack):
            stack.push(plain(keyset, *stack.pop_arguments(1)))

        return boxed if convention == "boxed" or (convention == "mixed" and key == "Tracer") else plain

    for key in ("AutogradCPU", "Tracer"):
        kernel = link(key)
        foo.library.impl("foo", kernel, key, with_keyset=True, boxed=kernel.__name__ == "boxed")
    foo.impl("CPU", "cpu")
    with include_keys("Tracer"):
        if how == "call":
            result = foo.op(Tensor(np.ones(2)))
        else:
            stack = Stack(["below", Tensor(np.ones(2))])
            foo.op.call_boxed(stack)
            below, result = stack
            assert below == "below"
    assert result.array.item() == "cpu"
    assert ran == [["CPU", "Tracer", "AutogradCPU"], ["CPU", "Tracer"]]


def test_def_library_twice(new_library):
    namespace = new_library().namespace
    with Library(namespace, "DEF"), pytest.raises(exceptions.RegistrationError, match="has a DEF library already"):
        Library(namespace, "DEF")
    Library(namespace, "DEF").close()


def test_foreign_namespace_in_def(fresh):
    with pytest.raises(exceptions.RegistrationError, match="the name has namespace 'elsewhere'"):
        fresh.define("elsewhere::foo(Tensor x) -> Tensor")
    assert find("elsewhere::foo") is None


ROUND_TRIPS = [
    ("int", 3), ("float", 2.5), ("bool", True), ("str", "text"), ("str", ""), ("complex", 1j), ("Scalar", 2),
    ("Tensor", np.ones(2)), ("Device", "CPU"), ("ScalarType", np.dtype("float32")), ("Any", (1, "a", None)),
    ("int?", 3), ("int?", None), ("str?", "text"), ("str?", None), ("Tensor?", np.ones(2)), ("Tensor?", None),
    ("int[]", (1, 2)), ("int[]", ()), ("float[]", (1.5,)), ("bool[]", (True, False)), ("str[]", ("a", "b")),
    ("str[]", ()), ("int[2]", (4, 5)), ("int[0]", ()), ("int[][]", ((1,), ())), ("int?[]", (1, None)),
    ("Tensor[]", (np.ones(1), np.zeros(2))), ("Tensor[]", ()), ("Tensor[3]", (np.ones(1),) * 3),
    ("Tensor?[]", (None, np.ones(1))), ("Tensor?[]", ()), ("int[]?", (1,)), ("int[]?", ()), ("int[]?", None),
    ("Tensor[]?", (np.ones(1),)), ("Tensor[]?", None), ("Dict(str, int)", {"a": 1}), ("Dict(str, int)", {}),
    ("Dict(str, Tensor)", {"a": np.ones(1)}), ("Dict(str, int[])[]", ({"a": (1, 2)}, {})),
    ("(int, str)", (1, "a")), ("(Tensor, Dict(int, Tensor?[]))", (np.ones(1), {1: (None,)})),
    ("Union(int, str)", "text"), ("Union(int, str)", 1),
]


@pytest.mark.parametrize(("kind", "value"), ROUND_TRIPS)
def test_boxed_round_trip(fresh, kind, value):
    def same(op, stack):
        stack.push(*stack.pop_arguments(1))

    fresh.define(f"same({kind} x) -> ({kind})")
    fresh.impl("same", same, "CompositeImplicitAutograd", boxed=True)
    op = find_or_raise(f"{fresh.namespace}::same")
    stack = Stack([value])
    op.call_boxed(stack)
    assert len(stack) == 1
    assert_same(stack[0], value)
    assert_same(op(value), value)


def assert_same(left: object, right: object) -> None:
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert left is right
    elif isinstance(left, tuple):
        for a, b in zip(left, right, strict=True):
            assert_same(a, b)
    elif isinstance(left, dict):
        assert_same(tuple(left.items()), tuple(right.items()))
    else:
        assert left == right


# --- beyond the tables --------------------------------------------------------------------------------------


BEYOND = {
    "all_four_aliases": [
        define(S1), impl("CIA", "math"), impl("CEA", "default"), impl("CEANF", "nf"), impl("Autograd", "ag")],
    "ambiguous_and_resolved": [
        define(S1), impl("CIA", "math"), impl("SparseA", "sparse"), impl("AutogradOther", "other")],
    "ambiguous_with_autograd": [define(S1), impl("CIA", "math"), impl("SparseA", "sparse"), impl("Autograd", "ag")],
    "ambiguous_with_default": [define(S1), impl("CIA", "math"), impl("SparseA", "sparse"), impl("CEA", "default")],
    "fallthrough_counts_as_kernel": [define(S1), impl("CIA", "math"), impl_fallthrough("CPU")],
    "fallthrough_and_fallback": [define(S1), impl_fallthrough("Tracer"), fallback("Tracer"), impl("CPU", "cpu")],
    "meta": [define(S1), impl("CEA", "default"), impl("Meta", "meta"), impl("CIA", "math")],
    "name_only": [only_name(), define(S1), impl("CPU")],
    "composite_registrations": [
        Action("define with kernel", lambda lib: lib.define(S1, token_kernel("cpu"), "CPU")),
        impl("CIA", "math"), impl("Autograd", "ag"),
    ],
}


@pytest.mark.parametrize("actions", BEYOND.values(), ids=BEYOND)
def test_commutes(explore, actions):
    explore(*actions)


def keep_table_of_kernels(monkeypatch):
    """Break the marking of tables as stale by kernels."""
    install = registrations.install

    def broken(name, handle, *others):
        op = find(name)
        table = op and op.live_table
        installed = install(name, handle, *others)
        if table is not None and isinstance(handle, registrations.KernelHandle):
            op.install_table(table)
        return installed

    monkeypatch.setattr(registrations, "install", broken)


def keep_table_of_removed_kernels(monkeypatch):
    """Break the marking of tables as stale by the removal of kernels."""
    undo = registrations.OperatorHandle._undo

    def broken(handle):
        table = handle.operator.live_table
        undo(handle)
        if registrations.definition_of(handle.operator) is not None:
            handle.operator.install_table(table)

    monkeypatch.setattr(registrations.KernelHandle, "_undo", broken)


def keep_tables_of_fallbacks(monkeypatch):
    """Break the marking of tables as stale by fallbacks."""
    monkeypatch.setattr(registrations, "mark_all_stale", lambda: None)


def leave_overloads(monkeypatch):
    put_out_of_force = _core.put_out_of_force

    def broken(operators, packets, name, handle, packet, site):
        put_out_of_force(operators, packets, name, handle, None, site)

    monkeypatch.setattr(_core, "put_out_of_force", broken)


def check_too_late(monkeypatch):
    """Check a definition against recorded kernels only after it was installed."""
    check = kernels.check_kernel

    def broken(schema, site, kernel):
        if registrations.definition_of(find(schema.name)) is None:
            registrations.install(schema.name, registrations.DefinitionHandle(schema, site, None, (), {}))
        check(schema, site, kernel)

    monkeypatch.setattr(registrations, "check_kernel", broken)


@pytest.mark.parametrize(("sabotage", "actions"), [
    (keep_table_of_kernels, [define(S1), impl("CIA", "math"), impl("CEA", "default")]),
    (keep_table_of_removed_kernels, [define(S1), impl("CIA", "math"), impl("CEA", "default")]),
    (keep_tables_of_fallbacks, [define(S1), impl("CPU"), fallback("A")]),
    (leave_overloads, [define(S1), impl("CPU")]),
    (check_too_late, [define(S2), impl("CPU")]),
])
def test_a_defect_would_be_seen(explore, monkeypatch, sabotage, actions):
    sabotage(monkeypatch)
    before = dict(registrations.operators), {name: dict(family) for name, family in registrations.packets.items()}
    try:
        with pytest.raises(AssertionError):
            explore(*actions, refused=sabotage is check_too_late)
    finally:
        for known, now in zip(before, (registrations.operators, registrations.packets), strict=True):
            for name in set(now) - set(known):
                del now[name]


def test_stale_operators_of_former_runs_stay_stale(new_library):
    library = new_library()
    library.define(S1)
    old = find_or_raise(f"{library.namespace}::foo")
    library.close()
    library.define(S1)
    assert find_or_raise(f"{library.namespace}::foo") is not old
    with pytest.raises(exceptions.StaleOperatorError, match=f"operator {old.name} is no longer registered"):
        old(np.ones(2))
    library.close()
