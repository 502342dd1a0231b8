"""The model that the real dispatcher is compared with: its tables and calls, by examples."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import func, ops
from tests.precedence import COLUMNS, EXAMPLES
from tests.properties.tiny_dispatcher_model import FILE, load

ARRAY = np.ones(2)
ALIASES = {
    "CIA": "CompositeImplicitAutograd", "CEA": "CompositeExplicitAutograd",
    "CEANF": "CompositeExplicitAutogradNonFunctional",
}
# Unlike in PyTorch, explicit composites leave Meta to its own kernel or to an implicit composite.
META_COLUMNS = ("Meta", "SparseMeta", "SparseCPU", "AutogradMeta", "AutogradCPU")
META_TABLE = {
    "CEA": "- - CEA FB FB",
    "CEANF": "- - - FB FB",
    "CEA CIA": "CIA CIA CEA CIA FB",
    "CEANF CIA": "CIA CIA CIA CIA CIA",
    "Meta CEA CIA": "Meta CIA CEA FB FB",
    "Meta CEA CIA Autograd": "Meta CIA CEA Autograd Autograd",
}


@pytest.fixture
def tiny():
    return load()


def says(text):
    """Return a kernel that takes anything and returns the text."""
    return lambda *args, **kwargs: text


def outcome(tiny, call, *args):
    """Return the result of a call, or the reason of its refusal."""
    try:
        return call(*args)
    except tiny.DispatchError as error:
        return error.args[0]


@pytest.fixture
def operator(tiny):
    """Return `operator`: `operator("CPU CIA")` defines f with kernels under these keys, each of which returns its key.
    """

    def make(keys):
        tiny.define("f(Tensor x) -> str")
        for key in keys.split():
            tiny.register("f", ALIASES.get(key, key), says(key))

    return make


rows = [(keys, COLUMNS, row) for keys, row in EXAMPLES.items()]
rows += [(keys, META_COLUMNS, row) for keys, row in META_TABLE.items()]


@pytest.mark.parametrize(("keys", "columns", "row"), rows, ids=[keys or "nothing" for keys, _, _ in rows])
def test_what_the_table_holds(tiny, operator, keys, columns, row):
    operator(keys)
    special = {tiny.MISSING: "-", tiny.FALLTHROUGH: "FB", tiny.AMBIGUOUS: "ambiguous"}
    held = [tiny.entry("f", key).kernel for key in columns]
    assert [kernel() if callable(kernel) else special[kernel] for kernel in held] == row.split()


def test_a_fall_through_kernel_claims_its_backend(tiny, operator):
    operator("CIA")
    tiny.register("f", "CPU", tiny.FALLTHROUGH)
    assert tiny.entry("f", "AutogradCPU").kernel == tiny.FALLTHROUGH
    assert tiny.call("f", ARRAY) == "CIA"  # through Undefined


def test_a_fallback_is_below_everything_but_the_framework(tiny, operator):
    operator("CIA SparseA")
    for key in ("CPU", "Meta", "Python"):
        tiny.register("*", key, says("fallback of " + key))
    assert tiny.entry("f", "CPU").kernel() == "CIA"
    assert tiny.entry("f", "Python").kernel() == "fallback of Python"
    assert tiny.entry("g", "CPU").kernel() == "fallback of CPU"


# --- states -------------------------------------------------------------------------------------------------

ONE, TWO = "f(Tensor x) -> Tensor", "f(Tensor x, Tensor y) -> Tensor"


def kernel_of_one(x):
    return x


def test_an_implementation_needs_no_definition(tiny):
    tiny.register("f", "CPU", kernel_of_one)
    assert tiny.active("f", "schema") is None
    assert tiny.entry("f", "CPU").kernel is kernel_of_one
    assert outcome(tiny, tiny.call, "f", ARRAY) == "no schema"


@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
def test_the_second_of_a_bad_pair_is_refused(tiny, order):
    actions = [lambda: tiny.define(TWO), lambda: tiny.register("f", "CPU", kernel_of_one)]
    first = actions[order[0]]()
    with pytest.raises(TypeError, match=r"too many|missing"):
        actions[order[1]]()
    assert tiny.registrations == [first]


def test_inactive_kernels_are_checked_too(tiny):
    tiny.register("f", "CPU", kernel_of_one)
    tiny.register("f", "CPU", lambda x, y: x)
    with pytest.raises(TypeError):
        tiny.define(TWO)


def test_two_kernels_that_disagree_coexist_without_a_schema(tiny):
    tiny.register("f", "CPU", kernel_of_one)
    tiny.register("f", "A", lambda x, y: x)
    assert len(tiny.registrations) == 2


def test_what_is_dropped_leaves_the_rest(tiny):
    definition, kernel = tiny.define(ONE), tiny.register("f", "CPU", kernel_of_one)
    tiny.registrations.remove(kernel)
    assert outcome(tiny, tiny.call, "f", ARRAY) == "no kernel"
    tiny.registrations.remove(definition)
    assert tiny.registrations == []
    tiny.define(TWO)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_newest_kernel_in_force_is_active(tiny, order):
    kernels = [tiny.register("f", "CPU", says(token)) for token in range(3)]
    for index in order:
        assert tiny.active("f", "CPU") is [k for k in kernels if k in tiny.registrations][-1]
        tiny.registrations.remove(kernels[index])
    assert tiny.active("f", "CPU") is None


@pytest.mark.parametrize(("reason", "first", "second"), [
    ("duplicate definition", lambda t: t.define(ONE), lambda t: t.define(ONE)),
    ("duplicate definition", lambda t: t.define(ONE), lambda t: t.define(TWO)),
    ("unknown key", lambda t: t.define(ONE), lambda t: t.register("f", "Dense", kernel_of_one)),
    ("fallback taken", lambda t: t.register("*", "A", says(1)), lambda t: t.register("*", "A", says(2))),
    ("fallback taken", lambda t: t.register("*", "AutogradA", says(1)), lambda t: t.register("*", "Autograd", says(2))),
])
def test_what_is_refused_leaves_no_trace(tiny, reason, first, second):
    registration = first(tiny)
    assert outcome(tiny, second, tiny) == reason
    assert tiny.registrations == [registration]


def test_a_removed_registration_cannot_be_removed_again(tiny):
    kernel = tiny.register("f", "CPU", kernel_of_one)
    tiny.registrations.remove(kernel)
    with pytest.raises(ValueError, match="not in list"):
        tiny.registrations.remove(kernel)


# --- key sets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("names", "highest"), [
    ("", "Undefined"),
    ("CPU Meta", "Meta"),
    ("CPU SparseCPU", "SparseCPU"),
    ("SparseCPU Meta", "SparseMeta"),
    ("CPU A AutogradCPU", "AutogradA"),
    ("CPU BackendSelect", "BackendSelect"),
    ("AutogradOther AutogradCPU", "AutogradCPU"),
    ("CPU Python Tracer", "Tracer"),
])
def test_the_highest_key(tiny, names, highest):
    assert next(iter(tiny.ladder(tiny.keyset(*names.split()))), "Undefined") == highest


def test_a_functionality_without_backend_is_undefined(tiny):
    assert tiny.ladder(frozenset({"Dense"})) == []


class Subclass(np.ndarray):
    pass


def test_keys_of_values(tiny):
    class Sparse:
        pass

    tiny.ARRAY_TYPES[Sparse] = tiny.keyset("SparseCPU")
    assert tiny.keys_of(ARRAY.view(Subclass)) == tiny.keyset("CPU")
    assert tiny.keys_of(np.float64(1)) == tiny.keyset("CPU")
    assert tiny.keys_of(tiny.Tensor(ARRAY)) == tiny.keyset("CPU", "AutogradCPU")
    assert tiny.keys_of(tiny.Tensor(Sparse())) == tiny.keyset("SparseCPU", "AutogradOther")
    assert tiny.keys_of([ARRAY, (tiny.MetaArray((2,)), None, 1.0)]) == tiny.keyset("CPU", "Meta")
    assert tiny.keys_of("text") == frozenset()


def test_added_backends_mix_only_as_declared(tiny, operator):
    class ArrayA(list):
        pass

    class ArrayB(list):
        pass

    class ArrayC(list):
        pass

    tiny.ARRAY_TYPES |= {ArrayA: tiny.keyset("A"), ArrayB: tiny.keyset("B"), ArrayC: tiny.keyset("C")}
    tiny.define("f(Tensor x, Tensor y) -> str")
    for key in ("A", "B", "C", "Meta"):
        tiny.register("f", key, says(key))
    assert outcome(tiny, tiny.call, "f", ArrayA(), ArrayB()) == "mixed backends"
    assert tiny.call("f", ArrayB(), ArrayC()) == "C"
    assert tiny.call("f", ArrayA(), ARRAY) == "A"
    assert tiny.call("f", ArrayA(), tiny.MetaArray()) == "Meta"


# --- calls --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("include", "exclude", "runs"), [
    ((), (), "AutogradCPU"), ((), ("Autograd",), "CPU"), ((), ("AutogradCPU",), "CPU"),
    ((), ("AutogradA", "A"), "AutogradCPU"), ((), ("Autograd", "CPU"), "Undefined"),
    (("Meta",), ("Autograd",), "Meta"),
    (("Tracer",), ("Autograd",), "Tracer"),
    (("Tracer",), ("Autograd", "Tracer"), "CPU"),
])
def test_what_is_included_and_excluded(tiny, operator, include, exclude, runs):
    operator("CPU A AutogradCPU Meta Tracer Undefined")
    excluded = [key for name in exclude for key in tiny.MEMBERS[name]]
    with tiny.guard(include=tiny.state["include"] | tiny.keyset(*include), exclude=excluded):
        assert tiny.call("f", tiny.Tensor(ARRAY)) == runs
    assert tiny.call("f", tiny.Tensor(ARRAY)) == "AutogradCPU"


def test_without_arrays_the_state_says_the_backend(tiny):
    tiny.define("f(int n) -> str")
    for key in ("CPU", "A"):
        tiny.register("f", key, says(key))
    assert tiny.call("f", 3) == "CPU"
    with tiny.guard(backend="A"):
        assert tiny.call("f", 3) == "A"
    with tiny.guard(exclude=["BackendSelect"]):
        assert outcome(tiny, tiny.call, "f", 3) == "no kernel"


def test_redispatch_takes_the_key_set_as_it_is(tiny, operator):
    operator("CPU Autograd")
    tensor = tiny.Tensor(ARRAY)
    assert tiny.redispatch(tiny.keyset("CPU"), "f", tensor) == "CPU"
    assert outcome(tiny, tiny.redispatch, tiny.keyset("A"), "f", tensor) == "no kernel"
    assert outcome(tiny, tiny.redispatch, tiny.keyset("Python"), "f", tensor) == "fall-through"
    assert outcome(tiny, tiny.redispatch, tiny.keyset(), "f", tensor) == "no kernel"


def test_a_kernel_gets_the_keys_below_and_a_fallback_the_operator(tiny):
    tiny.define(ONE)

    def autograd(keys, x):
        seen.append(keys)
        return tiny.redispatch(keys - {"Autograd"}, "f", x)

    seen = []
    tiny.register("f", "Autograd", autograd, with_keyset=True)
    tiny.register("*", "CPU", lambda name, x: seen.append((name, type(x))) or x)
    result = tiny.call("f", tiny.Tensor(ARRAY))
    assert seen == [tiny.keyset("CPU", "AutogradCPU"), ("f", np.ndarray)]
    assert type(result) is tiny.Tensor
    assert result.array is ARRAY


@pytest.mark.parametrize(
    ("key", "sees_raw"),
    [("CPU", True), ("CEA", True), ("CEANF", True), ("CIA", False), ("Autograd", False), ("AutogradCPU", False)])
def test_kernels_of_backends_see_raw_arrays(tiny, key, sees_raw):
    seen = []
    tiny.define("f(Tensor[] x, *, Tensor? y=None) -> Tensor[]")
    tiny.register("f", ALIASES.get(key, key), lambda x, *, y=None: seen.extend([*x, y]) or [*x, y])
    tensor = tiny.Tensor(ARRAY)
    result = tiny.call("f", [tensor, ARRAY], y=tensor)
    assert [type(value) is tiny.Tensor for value in seen] == [not sees_raw, False, not sees_raw]
    assert all(type(value) is tiny.Tensor for value in result)


def test_raw_in_raw_out(tiny):
    tiny.define(ONE)
    tiny.register("f", ALIASES["CIA"], kernel_of_one)
    assert tiny.call("f", ARRAY) is ARRAY


@pytest.mark.parametrize(("args", "kwargs", "delivered"), [
    ((1,), {}, ((1,), {})),
    ((1, 2, 2.0), {}, ((1,), {})),
    ((1, 2, 3.0), {}, ((1, 2, 3.0), {})),
    ((1,), {"b": 2}, ((1, 2, 2), {})),
    ((1,), {"c": [1, 2], "k": 1}, ((1,), {})),
    ((1,), {"c": [], "k": True}, ((1, 2, 2.0, ()), {"k": True})),
    ((), {"a": 3, "x": 1}, ((1, 3), {})),
])
def test_defaults_are_not_delivered(tiny, args, kwargs, delivered):
    tiny.define("f(Scalar x, int a=2, Scalar b=2.0, int[] c=[1, 2], *, Scalar k=1) -> Scalar")
    tiny.register("f", "CPU", lambda *args, **kwargs: (args, kwargs))
    assert tiny.call("f", *args, **kwargs) == delivered


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_arguments_that_do_not_bind(tiny, args, kwargs):
    tiny.define("f(Scalar x, *, Scalar k=1) -> Scalar")
    tiny.register("f", "CPU", says(1))
    with pytest.raises(TypeError):
        tiny.call("f", *args, **kwargs)


# --- autograd -----------------------------------------------------------------------------------------------

# functions of Python: the ufuncs of NumPy 2.0 do not tell their signature
ADD, MULTIPLY = (lambda x, y: np.add(x, y)), (lambda x, y: np.multiply(x, y))


@pytest.fixture
def arithmetic(tiny):
    """Provide the model with `add` and `mul`, their formulas, and the layer that records."""
    for name, kernel in (("add", ADD), ("mul", MULTIPLY)):
        tiny.define(f"{name}(Tensor x, Tensor y) -> Tensor")
        tiny.register(name, "CPU", kernel)
    tiny.register("add", "formulas", (lambda g, x, y: g, lambda g, x, y: g))
    tiny.register("mul", "formulas", (lambda g, x, y: g * y, lambda g, x, y: g * x))
    tiny.register("*", "Autograd", tiny.record, with_keyset=True)
    return tiny


def leaf(tiny, value):
    return tiny.Tensor(np.array(value), tiny.Node())


def test_gradients_of_all_orders(arithmetic):
    x = leaf(arithmetic, 2.0)
    derivative, found = x * x * x * x, []
    for _ in range(5):
        (derivative,) = arithmetic.grad(derivative, [x], create_graph=True)
        found.append(float(derivative.array))
        if derivative.node is None:
            break
    assert found == [32.0, 48.0, 48.0, 24.0]


def test_gradients_of_several_arguments_and_of_constants(arithmetic):
    x, y, unused = (leaf(arithmetic, value) for value in (2.0, 3.0, 5.0))
    result = x * y + x * np.array(7.0)
    assert arithmetic.grad(result, [x, y, unused]) == [10.0, 2.0, None]


def test_each_node_runs_once(arithmetic):
    runs = []
    arithmetic.define("same(Tensor x) -> Tensor")
    arithmetic.register("same", "CPU", lambda x: x * 1.0)
    arithmetic.register("same", "formulas", (lambda g, x: runs.append(float(x)) or g,))
    x = leaf(arithmetic, 1.0)
    value = x
    for _ in range(30):
        value = arithmetic.call("same", value)
        value = value + value
    assert arithmetic.grad(value, [x]) == [2.0**30]
    assert runs == [2.0**n for n in reversed(range(30))]


def test_nothing_is_recorded_for_constants_and_where_autograd_is_excluded(arithmetic):
    x, constant = leaf(arithmetic, 2.0), arithmetic.Tensor(np.array(3.0))
    assert (constant * constant).node is None
    with arithmetic.guard(exclude=arithmetic.MEMBERS["Autograd"]):
        assert (x * x).node is None
    assert (x * constant).node is not None


def test_an_operator_without_formulas_is_refused_where_a_gradient_would_be_lost(arithmetic):
    arithmetic.define("sine(Tensor x) -> Tensor")
    arithmetic.register("sine", "CPU", lambda x: np.sin(x))
    assert arithmetic.call("sine", arithmetic.Tensor(np.array(0.0))).array == 0.0
    assert outcome(arithmetic, arithmetic.call, "sine", leaf(arithmetic, 0.0)) == "no formulas"
    formulas = arithmetic.register("sine", "formulas", (lambda g, x: g * np.cos(x),))
    x = leaf(arithmetic, 0.0)
    assert arithmetic.grad(arithmetic.call("sine", x), [x]) == [1.0]
    arithmetic.registrations.remove(formulas)
    assert outcome(arithmetic, arithmetic.call, "sine", x) == "no formulas"


def test_formulas_get_what_kernels_get(arithmetic):
    seen = []
    arithmetic.define("scale(Tensor x, float by=2.0, *, bool fast=False) -> Tensor")
    arithmetic.register("scale", "CPU", lambda x, by=2.0, *, fast=False: x * by)
    arithmetic.register("scale", "formulas", (lambda g, *args, **kwargs: seen.append((args, kwargs)) or g,))
    x = leaf(arithmetic, 1.0)
    arithmetic.grad(arithmetic.call("scale", x, by=2.0, fast=True), [x])
    assert seen == [((1.0,), {"fast": True})]


# --- vmap ---------------------------------------------------------------------------------------------------

BATCH = np.arange(1.0, 7.0).reshape(3, 2)


@pytest.fixture
def batches(arithmetic):
    """Provide the model with arithmetic, a sum, and the two operators of which the loop of vmap is made."""
    arithmetic.define("total(Tensor x) -> Tensor")
    arithmetic.register("total", "CPU", np.sum)
    arithmetic.register("total", "formulas", (lambda g, x: g * np.ones(x.shape),))
    arithmetic.define("pick(Tensor x, int i) -> Tensor")
    arithmetic.register("pick", "CPU", lambda x, i: x[i])
    arithmetic.register("pick", "formulas", (lambda g, x, i: arithmetic.call("place", g, i, x.shape[0]),))
    arithmetic.define("place(Tensor x, int i, int n) -> Tensor")
    arithmetic.register("place", "CPU", lambda x, i, n: np.stack([x * (i == row) for row in range(n)]))
    arithmetic.register("place", "formulas", (lambda g, x, i, n: arithmetic.call("pick", g, i),))
    return arithmetic


def test_a_loop_over_the_examples(batches):
    calls = []
    batches.define("norm(Tensor x, float power=2.0) -> Tensor")
    batches.register("norm", "CPU", lambda x, power=2.0: calls.append(x.shape) or np.sum(x**power))
    assert batches.vmap(lambda x: batches.call("norm", x, power=3.0), BATCH).tolist() == [9.0, 91.0, 341.0]
    assert calls == [(2,)] * 3


@pytest.mark.parametrize("tracked", [False, True])
def test_a_batching_rule_is_one_call_below(batches, tracked):
    seen = []

    def rule(owned, x, y):
        seen.append((owned, type(x), x.shape, y.shape, batches.state["stack"]))
        return x * y if tracked else np.multiply(x, y)

    batches.register("mul", "batching", rule)
    x, weights = leaf(batches, BATCH) if tracked else BATCH, np.array([10.0, 100.0])
    result = batches.vmap(lambda row: row * weights, x)
    assert seen == [([True, False], batches.Tensor if tracked else np.ndarray, (3, 2), (2,), [])]
    assert np.array_equal(batches.unwrap(result), BATCH * weights)
    assert type(result) is (batches.Tensor if tracked else np.ndarray)


def test_what_concerns_no_example_runs_once(batches):
    calls = []
    batches.define("sine(Tensor x) -> Tensor")
    batches.register("sine", "CPU", lambda x: calls.append(x) or np.sin(x))
    batches.vmap(lambda row: row * batches.call("sine", ARRAY), BATCH)
    assert calls == [ARRAY]


def test_batches_in_batches(batches):
    products = batches.vmap(lambda row: batches.vmap(lambda other: batches.call("total", row * other), BATCH), BATCH)
    assert np.array_equal(products, BATCH @ BATCH.T)
    both = batches.vmap(lambda row: batches.vmap(lambda x, y: x * y + row.shape[0], row, row), BATCH)
    assert np.array_equal(both, BATCH * BATCH + 2)


def test_gradients_of_batches(batches):
    x = leaf(batches, BATCH)
    result = batches.call("total", batches.vmap(lambda row: batches.call("total", row * row * row), x))
    (first,) = batches.grad(result, [x], create_graph=True)
    assert np.array_equal(first.array, 3 * BATCH**2)
    (second,) = batches.grad(batches.call("total", first), [x])
    assert np.array_equal(second, 6 * BATCH)


VECTOR, MATRIX = np.array([2.0, -3.0]), np.array([[5.0, 7.0], [11.0, 13.0]])     # as many rows as columns
NUMBERS = st.recursive(
    st.sampled_from(["first", "last"]),
    lambda number: st.tuples(st.sampled_from(["add", "mul"]), number, number)
    | st.tuples(st.just("total of"), st.sampled_from(["add", "mul"]), st.tuples(st.just("of each"), number), number),
    max_leaves=8,
)
"""Programs that compute a number from two numbers, some of them by way of a vector, in a vmap of its own."""


def run(program, add_mul, total, vmap, first, last):
    if isinstance(program, str):
        return {"first": first, "last": last}[program]
    what, *parts = program
    if what == "of each":       # for each number of a vector, what a program makes of it and of a number from outside
        return vmap(lambda x: add_mul["add"](run(parts[0], add_mul, total, vmap, x, last), x), VECTOR)
    if what == "total of":
        left, right = (run(part, add_mul, total, vmap, first, last) for part in parts[1:])
        return total(add_mul[parts[0]](left, right))
    return add_mul[what](*[run(part, add_mul, total, vmap, first, last) for part in parts])


@settings(max_examples=50)
@given(NUMBERS)
def test_vmap_in_the_model_and_in_the_dispatcher_is_a_loop(program):
    tiny = load()
    for name, kernel in (("add", ADD), ("mul", MULTIPLY), ("total", np.sum), ("pick", lambda x, i: x[i])):
        arguments = {"total": "Tensor x", "pick": "Tensor x, int i"}.get(name, "Tensor x, Tensor y")
        tiny.define(f"{name}({arguments}) -> Tensor")
        tiny.register(name, "CPU", kernel)
    tiny.define("place(Tensor x, int i, int n) -> Tensor")
    tiny.register("place", "CPU", lambda x, i, n: np.stack([x * (i == row) for row in range(n)]))

    def everywhere(add, mul, total, vmap):
        def of_row(row):
            return run(program, {"add": add, "mul": mul}, total, vmap, total(row), total(mul(row, row)))
        return vmap(of_row, MATRIX)

    model = everywhere(*[functools.partial(tiny.call, name) for name in ("add", "mul", "total")], tiny.vmap)
    real = everywhere(ops.np.add, ops.np.multiply, ops.np.sum, lambda f, x: func.vmap(f)(x))
    loop = everywhere(np.add, np.multiply, np.sum, lambda f, x: np.stack([f(row) for row in x]))
    np.testing.assert_allclose(model, loop, rtol=1e-12)
    np.testing.assert_allclose(real, loop, rtol=1e-12)


def test_a_value_belongs_to_its_own_vmap(batches):
    kept = []
    batches.vmap(lambda row: kept.append(row) or row, BATCH)
    for call in (lambda: kept[0] + BATCH, lambda: batches.vmap(lambda row: row + kept[0], BATCH)):
        assert outcome(batches, call) == "its vmap is not running here"


def test_an_error_leaves_no_interpreter_behind(batches):
    assert outcome(batches, batches.vmap, lambda row: batches.call("sine", row), BATCH) == "no schema"
    assert batches.state["stack"] == []


def test_a_batching_rule_must_fit_the_schema(batches):
    with pytest.raises(TypeError, match="too many"):
        batches.register("total", "batching", lambda owned: owned)


def test_it_stays_small():
    assert len(FILE.read_text().splitlines()) <= 300
