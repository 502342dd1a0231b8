"""Tables: which kernel an operator runs under each key, as a pure function of the registrations in force."""

from __future__ import annotations

import gc
import itertools
import re
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from pydispatch import DispatchKey, DispatchKeySet, Tensor, below_autograd, force_keys, include_keys
from pydispatch._core import Signature, simple_signature
from pydispatch._registry import tables
from pydispatch._registry.operators import find_or_raise
from pydispatch._registry.registrations import derivative_of, operators
from pydispatch._registry.tables import PRECEDENCE, Label, build_table, choices_for, compute_table, table_of_declaration
from pydispatch.exceptions import AmbiguousKernelError, NoKernelError
from pydispatch.keys import ALIASES, backend_keys_of, covers, parse_key, runtime_keys
from pydispatch.library import Library, fallthrough_kernel
from pydispatch.operators.declare import PACKS
from pydispatch.schema import parse_signature
from tests.precedence import COLUMNS, EXAMPLES

examples = pytest.mark.parametrize(
    ("registered", "row"), EXAMPLES.items(), ids=[keys or "nothing" for keys in EXAMPLES])


@pytest.fixture
def operator(fresh, token):
    """Return `operator`: `operator("CPU CIA")` has kernels under these keys, which return their keys' names."""
    numbers = itertools.count()

    def make(keys: str):
        name = f"f{next(numbers)}"
        fresh.define(f"{name}(Tensor? x=None) -> str")
        for key in keys.split():
            fresh.impl(name, token(key), key)
        return find_or_raise(f"{fresh.namespace}::{name}")

    return make


def word(entry) -> str:
    """Return a table entry as it stands in EXAMPLES."""
    if entry is None:
        return "-"
    if entry.is_fallthrough:
        return "FB" if entry.label is Label.FALLBACK else "fallthrough"
    if entry.label is Label.AMBIGUOUS:
        return "ambiguous"
    return entry.kernel.name.removeprefix("token_")


def live(op, *keys: str) -> str:
    """Return these entries of the operator's live table."""
    rows = build_table(op).rows
    return " ".join(word(rows[parse_key(key).slot]) for key in keys)


# --- one entry ----------------------------------------------------------------------------------------------


@examples
def test_the_computed_table(operator, registered, row):
    op = operator(registered)
    assert live(op, *COLUMNS) == row
    calls = []
    for key in COLUMNS:
        try:
            calls.append(op.redispatch(parse_key(key).keyset, np.ones(1)))
        except AmbiguousKernelError:
            calls.append("ambiguous")
        except NoKernelError as error:
            calls.append("FB" if "falls through" in str(error) else "-")
    assert " ".join(calls) == row


@examples
def test_labels_of_the_computed_table(operator, registered, row):
    rows = build_table(operator(registered)).rows
    labels = {"CIA": Label.COMPOSITE, "CEA": Label.DEFAULT_BACKEND, "CEANF": Label.DEFAULT_BACKEND,
              "Autograd": Label.AUTOGRAD, "FB": Label.FALLBACK, "ambiguous": Label.AMBIGUOUS}
    for key, expected in zip(COLUMNS, row.split(), strict=True):
        if expected != "-":
            assert rows[parse_key(key).slot].label == labels.get(expected, Label.KERNEL)


@pytest.mark.parametrize(("registered", "key", "runs"), [
    ("CPU CEANF CEA CIA", "CPU", "CPU"),
    ("CEANF CEA CIA", "CPU", "CEANF"),
    ("CEA CIA", "CPU", "CEA"),
    ("CIA Autograd", "CPU", "CIA"),
    ("AutogradCPU Autograd CIA", "AutogradCPU", "AutogradCPU"),
    ("Autograd CIA", "AutogradCPU", "CIA"),
    ("Autograd CEA CIA", "AutogradCPU", "Autograd"),
    ("CEANF CEA", "SparseCPU", "CEA"),
    ("CEANF CIA", "SparseCPU", "CIA"),
    ("CEANF", "SparseCPU", "-"),
    ("CEANF CEA", "Meta", "-"),
    ("CEANF CEA CIA", "Meta", "CIA"),
    ("CEANF CEA CIA Meta", "Meta", "Meta"),
    ("CEA", "SparseMeta", "-"),
    ("CEA CIA", "SparseMeta", "CIA"),
    ("CIA CEA CEANF Autograd", "BackendSelect", "_select_backend"),
    ("CIA CEA CEANF Autograd", "Python", "_handlers_of_classes"),
    ("CIA CEA CEANF Autograd", "Tracer", "FB"),
])
def test_a_kernel_beats_an_alias_which_beats_a_fallback(operator, token, registered, key, runs):
    with Library("_", "IMPL") as everywhere:
        if parse_key(key).functionality in ("Dense", "Sparse", "Autograd"):
            everywhere.fallback(token("fallback"), key)
            runs = "fallback" if runs == "-" else runs
        assert live(operator(registered), key) == runs
    assert live(operator(registered), key) == runs.replace("fallback", "-")


def test_an_autograd_kernel_replaces_the_composite(operator):
    assert live(operator("CPU CIA Autograd"), "AutogradCPU", "AutogradA") == "Autograd CIA"


def test_a_default_kernel_switches_the_composite_off_for_autograd_keys(operator):
    op = operator("CEA CIA Autograd")
    assert live(op, "AutogradCPU", "AutogradA", "AutogradOther") == "Autograd Autograd Autograd"
    assert live(op, "Meta", "AutogradMeta") == "CIA CIA"


def test_a_nonfunctional_default_kernel_keeps_the_composite(operator):
    op = operator("CEANF CIA")
    assert live(op, "CPU", "AutogradCPU", "AutogradA", "AutogradOther") == "CEANF CIA CIA CIA"
    assert live(operator("CEANF CIA Autograd"), "CPU", "AutogradCPU") == "CEANF CIA"


def test_a_fallthrough_counts_as_a_kernel(operator, fresh):
    op = operator("CIA Autograd")
    with fresh.impl(op, fallthrough_kernel, "CPU"):
        assert live(op, "CPU", "AutogradCPU", "AutogradA") == "fallthrough Autograd CIA"
    op = operator("CIA")
    with fresh.impl(op, fallthrough_kernel, "CPU"):
        assert live(op, "CPU", "AutogradCPU", "AutogradA") == "fallthrough FB CIA"
    with fresh.impl(op, fallthrough_kernel, "SparseCPU"):
        assert live(op, "AutogradOther") == "ambiguous"


def test_ambiguity_is_an_error_with_remedies(operator, backends):
    op = operator("CIA SparseCPU CEA Autograd")
    with pytest.raises(AmbiguousKernelError) as raised:
        op(Tensor(backends.SparseArray(1)))
    first, second, *dump = str(raised.value).splitlines()
    assert first.startswith(f"operator {op.name}: AutogradOther is claimed both by ")
    assert first.endswith("its CompositeImplicitAutograd kernel and by SparseCPU")
    assert f'lib.impl("{op.name}", kernel, "AutogradOther")' in second
    assert "below_autograd()" in second
    assert dump[0] == f"name: {op.name}"
    assert any(line.startswith("SparseCPU: token_SparseCPU") for line in dump)


def test_remedies_of_ambiguity_work(operator, backends, fresh, token):
    op = operator("CIA SparseCPU")
    sparse = Tensor(backends.SparseArray(1))
    with below_autograd():
        assert op(sparse) == "SparseCPU"
    with fresh.impl(op, token("own"), "AutogradOther"):
        assert op(sparse) == "own"


def test_sparse_arrays_carry_autograd_other(operator, backends):
    sparse, dense = backends.SparseArray(1), np.ones(1)
    assert Tensor(sparse).keys == DispatchKeySet("SparseCPU", "AutogradOther")
    op = operator("CIA SparseCPU")
    assert op(sparse) == "SparseCPU"
    with pytest.raises(AmbiguousKernelError):
        op(Tensor(sparse))
    assert op(Tensor(dense)) == "CIA"
    op = operator("CPU SparseCPU AutogradCPU AutogradOther")
    assert op(Tensor(sparse)) == "AutogradOther"
    assert op(Tensor(dense)) == "AutogradCPU"


def test_default_kernels_exclude_meta(operator):
    assert live(operator("CEA CEANF"), "Meta", "SparseMeta") == "- -"
    assert live(operator("CIA"), "Meta", "SparseMeta", "AutogradMeta") == "CIA CIA CIA"


@pytest.mark.parametrize(
    ("registered", "runs"), [("CEANF CEA CIA", "CEANF"), ("CEA CIA", "CEA"), ("CIA", "CIA"), ("CPU A Autograd", None)])
def test_which_kernel_undefined_runs(operator, registered, runs):
    op = operator(registered)
    with force_keys():                                      # not even BackendSelect is left
        if runs:
            assert op() == runs
        else:
            with pytest.raises(NoKernelError, match="no array argument was given"):
                op()


def test_backend_select_catches_calls_without_arrays(operator):
    assert operator("BackendSelect CPU")() == "BackendSelect"
    assert operator("CPU CEA")() == "CPU"                   # its fallback chooses the default backend
    with pytest.raises(NoKernelError, match="no kernel for the key CPU"):
        operator("A")()


# --- the whole of it, against a second statement of the rules -----------------------------------------------


def expected(key: DispatchKey, keys: frozenset[str]) -> str:
    """Return the precedence once more, in the words of the design."""
    sparse_kernels = [name for name in keys if name.startswith("Sparse")]
    is_backend_key = key.functionality in ("Dense", "Sparse") and key.backend != "Meta"
    is_autograd_key = key.functionality in ("Autograd", "AutogradOther")
    claimed = is_autograd_key and (
        key.backend in keys or ("CEA" in keys and key.backend != "Meta")
        or (key.name == "AutogradOther" and bool(sparse_kernels)))
    if key.name in keys:
        return key.name
    if "CEANF" in keys and (key.name == "Undefined" or (is_backend_key and key.functionality == "Dense")):
        return "CEANF"
    if "CEA" in keys and (key.name == "Undefined" or is_backend_key):
        return "CEA"
    if key.name == "AutogradOther" and "CIA" in keys and sparse_kernels:
        return "ambiguous"
    if "CIA" in keys and key.functionality not in ("BackendSelect", "Python", "Tracer") and not claimed:
        return "CIA"
    if "Autograd" in keys and is_autograd_key:
        return "Autograd"
    return "fallback"


REGISTERABLE = ("CPU", "A", "Meta", "SparseCPU", "SparseMeta", "AutogradCPU", "AutogradMeta", "AutogradOther",
                "Autograd", "CIA", "CEA", "CEANF")


def test_choices_are_the_precedence_for_every_set_of_keys():
    short = {parse_key(name): name for name in REGISTERABLE}
    others = ("Undefined", "SparseA", "AutogradA", "Tracer", "Python")
    watched = [parse_key(name) for name in (*REGISTERABLE[:8], *others)]
    for size in range(len(REGISTERABLE) + 1):
        for names in itertools.combinations(REGISTERABLE, size):
            choices = {choice.key: choice for choice in choices_for(frozenset(map(parse_key, names)))}
            for key in watched:
                _, source, label = choices[key]
                found = "ambiguous" if label is Label.AMBIGUOUS else short.get(source, "fallback")
                assert found == expected(key, frozenset(names)), (key, names)


def test_the_page_on_architecture_shows_the_precedence():
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| \d+ \| .* \| (.*) \| `(.*)` \|$", page, re.MULTILINE)
    labels = [str(label) for label, _ in PRECEDENCE]
    assert [label for _, label in rows] == labels + [str(Label.FALLBACK)] * 2
    label_of = {DispatchKey(entry): label for entry, label in rows if entry.isidentifier()}
    assert label_of.keys() == set(ALIASES)
    served = {
        alias: {choice.key: str(choice.label) for choice in choices_for(frozenset({alias})) if choice.source is alias}
        for alias in label_of}
    assert {alias: set(labels.values()) for alias, labels in served.items()} == {a: {b} for a, b in label_of.items()}
    for upper, lower in itertools.combinations(label_of, 2):
        both = choices_for(frozenset({upper, lower}))
        assert {choice.source for choice in both if choice.key in served[upper].keys() & served[lower]} <= {upper}


def test_plan_is_pure():
    keys = frozenset({DispatchKey.CPU, DispatchKey.CompositeImplicitAutograd})
    before = choices_for(keys)
    choices_for.cache_clear()
    assert choices_for(keys) == before
    assert [choice.key for choice in before] == list(runtime_keys())


def test_compute_table_is_pure(operator):
    op = operator("CPU CIA Autograd")
    published = build_table(op)
    first, second = compute_table(op), compute_table(op)
    assert op.live_table is published
    for rows in (published.rows, first.rows):
        assert [word(row) for row in rows] == [word(row) for row in second.rows]


# --- fall-through -------------------------------------------------------------------------------------------


def test_undefined_when_masking_removes_everything(operator, fresh):
    op = operator("CIA")
    fresh.impl(op, fallthrough_kernel, "CPU")
    assert op(np.ones(1)) == op(Tensor(np.ones(1))) == "CIA"


def test_masks_are_kept_per_backend(operator, fresh, backends):
    op = operator("CPU A AutogradA")
    fresh.impl(op, fallthrough_kernel, "AutogradCPU")
    assert op(Tensor(np.ones(1))) == "CPU"
    assert op(Tensor(backends.ArrayA(1))) == "AutogradA"


def test_the_backend_is_that_of_arguments_and_included_keys(operator, fresh):
    # PyTorch once used only the keys of arguments (#141120).
    op = operator("CPU CIA")
    fresh.impl(op, fallthrough_kernel, "A")
    assert op(np.ones(1)) == "CPU"
    with include_keys("A"):
        assert op(np.ones(1)) == "CIA"


def test_a_fallthrough_never_runs(operator, fresh):
    op = operator("CIA")
    fresh.impl(op, fallthrough_kernel, "CPU")
    with pytest.raises(NoKernelError, match="redispatched to the key CPU, whose kernel falls through"):
        op.redispatch(DispatchKeySet("CPU"), np.ones(1))


def test_own_kernel_beats_fallthrough_fallback(operator):
    with Library("_", "IMPL") as everywhere:
        everywhere.fallback(fallthrough_kernel, "AutogradCPU")
        assert operator("CPU AutogradCPU")(Tensor(np.ones(1))) == "AutogradCPU"


def test_fallback_of_a_key_that_falls_through_by_itself(operator, token):
    op = operator("CPU")
    assert op(Tensor(np.ones(1))) == "CPU"
    with Library("_", "IMPL") as everywhere:
        everywhere.fallback(token("fallback"), "AutogradCPU")
        assert op(Tensor(np.ones(1))) == "fallback"
    assert op(Tensor(np.ones(1))) == "CPU"


def test_operators_share_the_entries_of_fallbacks_while_these_are_in_force(operator, token):
    def entries(key: str) -> set[object]:
        return {build_table(op).rows[parse_key(key).slot] for op in ops}

    ops = operator("CPU"), operator("CPU"), operator("CPU")
    kernel = token("fallback")
    gone = weakref.ref(kernel)
    before = entries("AutogradCPU")
    assert len(before) == len(entries("BackendSelect")) == 1
    assert len(entries("CPU")) == 3
    with Library("_", "IMPL") as everywhere:
        everywhere.fallback(kernel, "AutogradCPU")
        assert [entry.kernel.function for entry in entries("AutogradCPU")] == [kernel]
    assert {entry.label for entry in entries("AutogradCPU")} == {entry.label for entry in before}
    del kernel, everywhere
    gc.collect()
    assert gone() is None


# --- keeping fresh ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("registered", "added", "key", "before", "after"), [
    pytest.param("", "CPU", "CPU", "-", "CPU", id="key_to_itself"),
    pytest.param("", "Autograd", "AutogradA", "FB", "Autograd", id="alias_to_members"),
    pytest.param("", "CIA", "Undefined", "-", "CIA", id="alias_to_Undefined"),
    pytest.param("CIA", "CPU", "AutogradCPU", "CIA", "FB", id="backend_to_its_autograd"),
    pytest.param("CIA", "CEA", "AutogradCPU", "CIA", "FB", id="default_to_every_autograd"),
    pytest.param("CIA", "CEA", "AutogradOther", "CIA", "FB", id="default_to_AutogradOther"),
    pytest.param("CIA", "SparseA", "AutogradOther", "CIA", "ambiguous", id="sparse_to_AutogradOther"),
])
def test_a_change_reaches_every_entry_that_depends_on_it(operator, fresh, token, registered, added, key, before, after):
    op = operator(registered)
    assert live(op, key) == before
    handle = fresh.impl(op, token(added), added)
    assert live(op, key) == after
    handle.remove()
    assert live(op, key) == before


def test_a_table_is_published_whole_and_never_patched(operator, fresh, token):
    op = operator("CIA")
    old = build_table(op)
    rows = old.rows
    assert build_table(op) is old
    fresh.impl(op, token("CEA"), "CEA")
    assert op.live_table is None
    assert build_table(op) is not old
    assert old.rows is rows
    assert word(rows[DispatchKey.CPU.slot]) == "CIA"


def test_tables_of_other_operators_are_left_alone(operator, fresh, token):
    one, other = operator("CPU"), operator("CPU")
    table = build_table(other)
    fresh.impl(one, token("CIA"), "CIA")
    assert other.live_table is table


def test_a_fallback_refreshes_every_operator_and_later_ones(operator, token):
    early = operator("")
    assert live(early, "B") == "-"
    with Library("_", "IMPL") as everywhere:
        everywhere.fallback(token("fallback"), "B")
        assert live(early, "B") == live(operator(""), "B") == "fallback"
    assert live(early, "B") == "-"


def test_a_kernel_that_removes_itself_finishes_normally(operator, fresh):
    op = operator("CEA")
    alive = []

    def kernel(x=None):
        handle.remove()
        gc.collect()
        alive.append(reference() is not None)
        return "itself"

    handle = fresh.impl(op, kernel, "CPU")
    reference = weakref.ref(kernel)
    fresh.handles.remove(handle)
    del kernel
    assert op(np.ones(1)) == "itself"
    assert op(np.ones(1)) == "CEA"
    assert alive == [True]


NEW_KEYS = """
import numpy as np
from pydispatch import DispatchKey, Tensor, include_keys, register_backend, register_functionality
from pydispatch.library import Library
from pydispatch.operators.declare import PACKS
from pydispatch._registry.operators import find_or_raise

class Array:
    pass

with Library("_", "IMPL") as everywhere, Library("ns", "DEF") as lib:
    lib.define("f(Tensor x) -> str")
    f = find_or_raise("ns::f")
    lib.impl("f", lambda x: "CEA", "CEA")
    lib.impl("f", lambda x: "Autograd", "Autograd")
    everywhere.fallback(lambda op, x: "fallback", "Autograd")
    assert f(np.ones(1)) == "CEA"                                   # the table is live
    before = f.live_table
    register_backend("New", Array)
    register_functionality("Layer")
    assert f.live_table is not before
    assert (f(Array()), f(Tensor(Array()))) == ("CEA", "Autograd")
    lib.impl("f", lambda x: "New", "New")
    lib.impl("f", lambda x: "AutogradNew", "AutogradNew")
    lib.impl("f", lambda x: "Layer", "Layer")
    assert (f(Array()), f(Tensor(Array()))) == ("New", "AutogradNew")
    with include_keys("Layer"):
        assert f(np.ones(1)) == "Layer"
    lib.define("g(Tensor x) -> str")
    assert find_or_raise("ns::g")(Tensor(Array())) == "fallback"    # an alias reaches its new members
"""


def test_new_keys_refresh_every_table():
    subprocess.run([sys.executable, "-c", NEW_KEYS], check=True, timeout=60)


# --- conventions that depend on where a kernel is registered ------------------------------------------------


@pytest.mark.parametrize("key", ["CPU", "CEA", "CEANF"])
def test_backend_kernels_see_raw_arrays(fresh, define, spy, key):
    kernel = spy("done")
    op = define(fresh, "f(Tensor x, Tensor[] xs) -> str", **{key: kernel})
    array = np.ones(2)
    op(Tensor(array), [Tensor(array), array])
    (x, xs), _ = kernel.calls[0]
    assert x is array
    assert type(xs) is tuple
    assert xs[0] is xs[1] is array


@pytest.mark.parametrize("key", ["CIA", "Autograd", "AutogradCPU", "Tracer", "Python", "BackendSelect"])
def test_other_kernels_see_what_was_passed(fresh, define, spy, key):
    kernel = spy("done")
    op = define(fresh, "f(Tensor x, Tensor[] xs) -> str", **{key: kernel})
    array, tensor = np.ones(2), Tensor(np.ones(2))
    is_brought_by_tensors = key in ("CIA", "Autograd", "AutogradCPU")
    with force_keys() if is_brought_by_tensors else force_keys(include=(key,), exclude=("Autograd",)):
        op(tensor, [tensor, array])
    (x, xs), _ = kernel.calls[0]
    assert x is xs[0] is tensor
    assert xs[1] is array


# --- what aliases cover -------------------------------------------------------------------------------------


def test_every_autograd_key_fronts_its_dense_backend_and_autograd_other_all_sparse():
    for key in runtime_keys():
        if key.functionality == "Autograd":
            assert [fronted.name for fronted in backend_keys_of(key)] == [key.backend]
        elif key.name == "AutogradOther":
            assert {fronted.name for fronted in backend_keys_of(key)} == {
                other.name for other in runtime_keys() if other.functionality == "Sparse"}
        else:
            assert backend_keys_of(key) == ()


def test_membership_is_what_covers_says():
    for alias in ("Autograd", "CIA", "CEA", "CEANF"):
        alias = parse_key(alias)
        assert alias.members == tuple(key for key in runtime_keys() if covers(alias, key))


# --- operators of the library ---------------------------------------------------------------------------------


def what_shows(table):
    """Return the contents of a table, but for the objects that differ from table to table."""
    rows = [entry and (entry.kernel, entry.label, entry.is_raw, entry.is_composite, entry.is_fallthrough,
                       entry.asks_handlers, entry.asks_device, entry.unsupported_names) for entry in table.rows]
    composite = table.differentiated_as
    return (rows, table.masks_by_backend(), table.schema, table.array_arguments, table.batching is None,
            table.derivative, composite and (composite.kernel.function, composite.label, composite.unsupported_names))


def test_a_declaration_alone_gives_the_table_that_its_registrations_give(monkeypatch):
    monkeypatch.setattr(tables, "BACKENDS", {})      # other tests may have brought some, which have kernels too
    of_numpy = [op for op in list(operators.values()) if op.name.namespace == "np"]
    found = [op for op in of_numpy if len(op.registrations) == 4]       # other tests may have registered more
    assert len(found) > len(of_numpy) / 2
    for op in found:
        assert op.sole_declaration is None      # its registrations were made when they were asked for
        alone = table_of_declaration(derivative_of(op).derivative)
        assert what_shows(alone) == what_shows(compute_table(op)), op.name
        assert alone.schema is op.schema
        assert alone.signature.layout() == Signature(op.schema).layout()


def test_a_signature_read_from_its_text_is_that_of_the_schema():
    texts = {str(op.schema)[len(str(op.name)):] for op in list(operators.values()) if op.registrations}
    texts |= {declaration.signature_text for pack in PACKS.values() for declaration in pack.declarations.values()}
    read = {text: simple_signature(text, lambda: None) for text in texts}
    assert sum(signature is not None for signature in read.values()) > len(read) // 2
    for text, signature in read.items():
        if signature is not None:
            layout, parsed = signature.layout(), Signature(parse_signature(text)).layout()
            assert layout == parsed, text
            assert [*map(type, layout[8])] == [*map(type, parsed[8])]


@pytest.mark.parametrize("text", [
    "(Tensor x) -> (Tensor, int)", "(Tensor x) -> Tensor(a)", "(Tensor(a!) x, Tensor(a) y) -> Tensor(a!)",
    "(Tensor x, int[2] n) -> Tensor", "(Tensor x, float f=1) -> Tensor",
    "(Tensor x, int n=None) -> Tensor", "(Tensor x, str s='a b') -> Tensor", "(Tensor x, bool b=1) -> Tensor",
    "(Tensor x, int n=1.5) -> Tensor", "(Tensor(b) x) -> Tensor", "(Tensor 1x) -> Tensor", "(Tensor x) -> Tensor[]",
    "(Union(int, float) n) -> Tensor",
])
def test_a_text_that_is_not_simple_is_left_to_the_parser(text):
    assert simple_signature(text, lambda: None) is None


FIRST_CALLS = """
import numpy as np
from pydispatch import Tensor, library, ops
x = Tensor(np.arange(3.0))
sin = ops.np.sin.overloads[0]
assert sin.sole_declaration.name == "sin"
ops.np.sin(x)
assert sin.sole_declaration.name == "sin"       # the call made no registrations
assert sin.live_table.schema is sin.schema
assert sin.sole_declaration is None
for name in ("cos", "tan"):         # of one signature
    try:
        getattr(ops.np, name)(x, nothing=1)
    except TypeError as error:
        assert f"np::{name}" in str(error), error
    else:
        raise AssertionError(name)
ops.np.exp(x)
with library.impl("np::exp", "CPU", lambda x: x - 1):
    assert ops.np.exp.overloads[0].sole_declaration is None
    assert (ops.np.exp(x).numpy() == x.numpy() - 1).all()
assert (ops.np.exp(x).numpy() == np.exp(x.numpy())).all()
"""


def test_the_first_call_of_an_operator_of_the_library_reads_its_declaration_only():
    subprocess.run([sys.executable, "-c", FIRST_CALLS], check=True)
