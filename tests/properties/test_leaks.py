"""No call, however spelled and however it ends, keeps memory or references.

By default each row runs a thousand times and the blocks that Python has allocated are counted. The slow run
repeats it 100,000 times, and looks at the resident memory of the process as well.
"""

import contextlib
import copy
import gc
import io
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from pydispatch import (
    DispatchKey,
    DispatchKeySet,
    Tensor,
    below_autograd,
    debug,
    default_backend,
    exclude_keys,
    include_keys,
    ops,
)
from pydispatch.backends import MetaArray
from pydispatch.exceptions import StateOrderError
from pydispatch.library import Library, Stack, get_kernel
from pydispatch.tree import register_pytree_node
from tests.properties.test_errors import ROWS as ERRORS

REPETITIONS, MANY = 1000, 10_000
SLACK = 60  # blocks, references: what the interpreter's own caches may take
SLACK_BYTES = 300_000   # a block of malloc has 32 bytes or more, so that many calls which leak one are found


def stays_flat(call, watched, repetitions):
    """Assert that repeating a call leaves memory and the reference counts of the watched objects as they were.

    Caches fill up sooner or later, and a leak never stops: one flat round of four will do.
    """
    for _ in range(4):
        before = measure(watched)
        run(call, repetitions)
        after = measure(watched)
        growth = {name: after[name] - before[name] for name in before}
        moved = {name: grown for name, grown in growth.items() if not is_flat(name, grown)}
        if not moved:
            break
    assert not moved


def is_flat(name, grown):
    """Return whether no references leaked or were lost. Memory may shrink."""
    if name == "resident":
        return grown < SLACK_BYTES
    return grown < SLACK and (grown > -SLACK or name == "blocks")


def run(call, repetitions):
    for _ in range(repetitions):
        with contextlib.suppress(BaseException):
            call()


# The interpreter's cache of attributes holds on to strings that C made for a look-up. Thousands fit.
forget_attributes = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache    # from 3.13 on, before


def measure(watched):
    gc.collect()
    forget_attributes()
    counts = {f"references to {name}": sys.getrefcount(value) for name, value in watched.items()}
    return counts | {"blocks": sys.getallocatedblocks(), "resident": psutil.Process().memory_info().rss}


# --- calls --------------------------------------------------------------------------------------------------

X = np.arange(3.0)
CALLS = {}


def spelled(prepare):
    """Add a row: a function that prepares a call, and gives it with the objects to watch."""
    CALLS[prepare.__name__.strip("_").replace("_", " ")] = prepare
    return prepare


class Bag:
    def __init__(self, content):
        self.content = content


@pytest.fixture(scope="module", autouse=True)
def bag():
    register_pytree_node(Bag, lambda bag: ((bag.content,), None), lambda children, _: Bag(children[0]))


@pytest.fixture
def kit(fresh, define, backends, tracer):
    """Provide operators of every kind, and arguments for them."""

    def kernel(x, y, a=1, *, k=2):
        return x

    def boxed(op, stack):
        x, *_ = stack.pop_arguments(4)
        stack.push(x)

    def boxed_with_keyset(op, keys, stack):
        boxed(op, stack)

    def with_keyset(keys, x, y, a=1, *, k=2):
        return x

    def hand_on(keys, x, y, a=1, *, k=2):
        return made["chain"].redispatch(keys & DispatchKeySet.full_after("AutogradCPU"), x, y, a, k=k)

    def raises(*args, **kwargs):
        raise ValueError("a kernel's own")

    def interrupts(*args, **kwargs):
        raise KeyboardInterrupt

    def recurses(x, y, a=1, *, k=2):
        return made["recurses"](x, y)

    schema = "(Tensor x, Tensor y, int a=1, *, int k=2) -> Tensor"
    made = {
        "plain": define(fresh, f"plain{schema}", CPU=kernel, A=kernel),
        "composite": define(fresh, f"composite{schema}", CIA=kernel),
        "filled": define(fresh, f"filled{schema}", CPU=lambda x, y, a, *, k: x),
        "raises": define(fresh, f"raises{schema}", CPU=raises),
        "interrupts": define(fresh, f"interrupts{schema}", CPU=interrupts),
        "recurses": define(fresh, f"recurses{schema}", CPU=recurses),
        "chain": define(fresh, f"chain{schema}", CPU=kernel),
        "boxed": define(fresh, f"boxed{schema}"),
        "boxed_with_keyset": define(fresh, f"boxed_with_keyset{schema}"),
        "with_keyset": define(fresh, f"with_keyset{schema}"),
        "containers": define(
            fresh,
            "containers(Tensor[] xs, Dict(str, Tensor) d, (int, Tensor) p, Any a, *, Tensor?[] o) -> Any",
            CPU=lambda xs, d, p, a, *, o: (xs, d, a)),
        "several": define(fresh, "several(Tensor x) -> (Tensor, Tensor[], int)", CPU=lambda x: (x, [x], 1)),
        "nothing": define(fresh, "nothing(Tensor x) -> ()", CPU=lambda x: None),
        "view": define(fresh, "view(Tensor(a) x) -> Tensor(a)", CPU=lambda x: x[1:]),
        "mutated": define(
            fresh,
            "mutated_(Tensor(a!) x, *, Tensor(b!) out) -> (Tensor(a!), Tensor(b!))",
            CPU=lambda x, *, out: (x, out)),
        "bad_result": define(fresh, "bad_result(Tensor x) -> Tensor", CPU=lambda x: 1),
        "bad_results": define(fresh, "bad_results(Tensor x) -> (Tensor, Tensor)", CPU=lambda x: (x, "a")),
        "make": define(fresh, "make(int n, *, Device? device=None) -> Tensor", CPU=lambda n, *, device=None: X),
    }
    fresh.impl("boxed", boxed, "CPU", boxed=True)
    fresh.impl("boxed_with_keyset", boxed_with_keyset, "CPU", boxed=True, with_keyset=True)
    fresh.impl("with_keyset", with_keyset, "CPU", with_keyset=True)
    fresh.impl("chain", hand_on, "AutogradCPU", with_keyset=True)
    define(fresh, "over.a(Tensor x, int y) -> Tensor", CPU=lambda x, y: x)
    define(fresh, "over.b(Tensor x, str y) -> Tensor", CPU=lambda x, y: x)
    return SimpleNamespace(
        **made,
        over=getattr(ops, fresh.namespace).over,
        library=fresh,
        kernel=kernel,
        x=np.ones(3),
        t=Tensor(np.ones(3)),
        a=backends.ArrayA(X),
        keys=DispatchKeySet("CPU", "AutogradCPU"),
        i=np.array([0, 1]),
        fallback=lambda op, x, y, *args, **kwargs: x,
    )


@spelled
def raw_positional(kit):
    return lambda: kit.plain(kit.x, kit.x)


@spelled
def tensors(kit):
    return lambda: kit.plain(kit.t, kit.t)


@spelled
def a_tensor_and_a_scalar(kit):
    return lambda: kit.plain(kit.t, 2.5)


@spelled
def by_keyword(kit):
    return lambda: kit.plain(x=kit.t, y=kit.x)


@spelled
def every_argument(kit):
    return lambda: kit.plain(kit.t, kit.x, 5, k=7)


@spelled
def defaults_passed(kit):
    return lambda: kit.plain(kit.t, kit.x, 1, k=2)


@spelled
def converted_arguments(kit):
    return lambda: kit.plain(kit.t, kit.x, np.int64(700), k=np.int64(900))


@spelled
def another_backend(kit):
    return lambda: kit.plain(Tensor(kit.a), kit.a)


@spelled
def composite(kit):
    return lambda: kit.composite(kit.t, kit.x, k=5)


@spelled
def filled_defaults(kit):
    return lambda: kit.filled(kit.t, kit.x)


@spelled
def packet_of_one(kit):
    packet = getattr(ops, kit.library.namespace).plain
    return lambda: packet(kit.t, y=kit.x)


@spelled
def packet_of_several(kit):
    return lambda: (kit.over(kit.t, "b"), kit.over(kit.x, y=1), kit.over.resolve(kit.t, "b"))


@spelled
def boxed_call(kit):
    return lambda: (kit.plain.call_boxed([kit.t, kit.x, 1, 2]), kit.boxed.call_boxed(Stack([kit.t, kit.x, 5, 6])))


@spelled
def boxed_kernels(kit):
    return lambda: (kit.boxed(kit.t, kit.x), kit.boxed_with_keyset(kit.x, kit.x, 1000))


@spelled
def kernel_with_keyset(kit):
    return lambda: kit.with_keyset(kit.t, kit.x, k=1000)


@spelled
def redispatch(kit):
    return lambda: kit.plain.redispatch(DispatchKeySet("CPU"), kit.t, y=kit.x)


@spelled
def chain(kit):
    return lambda: kit.chain(kit.t, kit.x)


@spelled
def kernel_fetched(kit):
    return lambda: get_kernel(kit.plain, "CPU")(kit.t, kit.x, k=5)


@spelled
def containers(kit):
    return lambda: kit.containers(
        [kit.t, kit.x], {"a": kit.t}, (1, kit.t), Bag({"b": [kit.t, (kit.x, 1)]}), o=[None, kit.t])


@spelled
def several_results(kit):
    return lambda: (kit.several(kit.t), kit.several(kit.x), kit.nothing(kit.t))


@spelled
def views(kit):
    return lambda: (kit.view(kit.t), kit.view(kit.x), kit.t[1:], kit.t.T, kit.t.reshape(3, 1))


@spelled
def mutation(kit):
    return lambda: (kit.mutated(kit.t, out=kit.x), kit.mutated(Tensor(kit.x), out=Tensor(kit.x)))


@spelled
def no_arrays(kit):
    return lambda: (kit.make(3), kit.make(3, device="cpu"), ops.np.zeros((2,), dtype="f4"), ops.np.add(1, 2.5))


@spelled
def under_guards(kit):
    def call():
        with include_keys("Tracer"), exclude_keys("A"), below_autograd(), default_backend("CPU"):
            kit.plain(kit.t, kit.x)

    return call


@spelled
def guards_out_of_order(kit):
    outer, inner = include_keys("Tracer"), below_autograd()

    def call():
        outer.__enter__()
        inner.__enter__()
        with pytest.raises(StateOrderError):
            outer.__exit__(None, None, None)
        inner.__exit__(None, None, None)

    return call


@spelled
def decorated_generator(kit):
    @include_keys("Tracer")
    def generator():
        yield kit.plain(kit.t, kit.x)
        yield kit.plain(kit.x, kit.x)

    return lambda: (list(generator()), next(generator()))


@spelled
def fallbacks(kit):
    everything = Library("_", "IMPL")
    everything.fallback(kit.fallback, "Tracer")
    kit.library.handles.append(SimpleNamespace(remove=everything.close, active=True))

    def call():
        with include_keys("Tracer"):
            kit.plain(kit.t, kit.x, 1000, k=3000)

    return call


@spelled
def explained(kit):
    return lambda: str(kit.plain.explain(kit.t, kit.x, k=3))


@spelled
def traced(kit):
    def call():
        with debug.trace(io.StringIO()):
            kit.plain(kit.t, kit.x)

    return call


@spelled
def bound_and_stripped(kit):
    def call():
        values = kit.plain.bind((kit.t, 2.5), {"k": 1000})
        args, kwargs = kit.plain.strip_defaults(values)
        kit.plain.fill_defaults(args, kwargs)
        kit.plain.fill_defaults(args, kwargs, by_name=True)

    return call


@spelled
def kernel_raises(kit):
    return lambda: kit.raises(kit.t, kit.x, 1000)


@spelled
def kernel_raises_by_keyword(kit):
    return lambda: kit.raises(x=kit.t, y=kit.x, a=np.int64(1000))


@spelled
def kernel_is_interrupted(kit):
    return lambda: kit.interrupts(kit.t, kit.x)


@spelled
def boxed_call_raises(kit):
    return lambda: kit.raises.call_boxed([kit.t, kit.x, np.int64(1000), 2])


@spelled
def bad_results(kit):
    def call():
        for op in (kit.bad_result, kit.bad_results):
            with pytest.raises(TypeError):
                op(kit.t)

    return call


@spelled
def operators_of_the_language(kit):
    def call():
        t = kit.t
        (t + t, t - 1, 2.5 * t, np.float64(2) / t, kit.x // t, -t, abs(t), t == t, t < 5, divmod(t, 2), t @ t, t**2)
        t += 1
        t *= kit.x
        t /= t

    return call


@spelled
def unsupported_operands(kit):
    def call():
        for other in ("a", [1.0], object()):
            with pytest.raises(TypeError):
                kit.t + other

    return call


@spelled
def indexing(kit):
    def call():
        t = kit.t
        t[0], t[1:], t[kit.i], t[t > 0], list(t), 2 in t, "a" in t
        t[0] = 1.0
        t[kit.i] = t[0]
        t[1:] += 1

    return call


@spelled
def protocols(kit):
    def call():
        t = kit.t
        (repr(t), str(t), f"{t}", hash(t), len(t), float(t[0]), t.tolist(), np.asarray(t), t.keys, t._version, t.device)
        copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t)), t.detach(), t.sum(), t.astype("f4")

    return call


@spelled
def tensors_made(kit):
    return lambda: (Tensor(kit.x), Tensor(kit.t), Tensor(np.float64(1)), Tensor(kit.a), Tensor(MetaArray((2, 3))))


@spelled
def subclasses_made(kit):
    class Sub(Tensor):
        pass

    def call():
        sub = Sub(kit.x)
        sub.me = sub
        sub += 1
        return sub[0] + sub

    return call


@spelled
def key_sets(kit):
    def call():
        keys = kit.keys | "Tracer"
        (keys - "CPU", keys & kit.keys, keys ^ kit.keys, list(keys), repr(keys), hash(keys), "CPU" in keys,
         keys.highest)
        (keys == kit.keys, pickle.loads(pickle.dumps(keys)), DispatchKeySet.full_after("Tracer"), DispatchKey("CPU"))

    return call


@spelled
def registration(kit):
    def call():
        with Library(kit.library.namespace, "FRAGMENT") as library:
            library.define("temporary(Tensor x, int a=1) -> Tensor")
            library.impl("temporary", kit.fallback, "CPU")
            with library.impl("temporary", lambda x, a=1: x, "A"):
                op = getattr(ops, library.namespace).temporary
                op(kit.a), op(Tensor(kit.a))
            debug.dump_state(op.default), debug.dump_table(op.default)

    return call


@spelled
def a_kernel_comes_and_goes(kit):
    def call():
        with kit.library.impl("plain", kit.kernel, "Tracer"), include_keys("Tracer"):
            kit.plain(kit.t, kit.x)
        kit.plain(kit.t, kit.x)

    return call


@pytest.mark.parametrize(
    "leak", [lambda kept: kept.append([]), lambda kept: kept.append(X)], ids=["blocks", "references"])
def test_a_leak_would_be_seen(leak):
    kept = []
    with pytest.raises(AssertionError, match=r"blocks|the array"):
        stays_flat(lambda: leak(kept), {"the array": X}, REPETITIONS)       # None has no count since CPython 3.12


def watched_in(kit):
    """Return the objects whose references are counted: arguments, kernels, key sets, operators, and common constants.
    """
    return {
        "the array": kit.x, "the Tensor": kit.t, "its array": kit.t.array, "the array of A": kit.a, "the index": kit.i,
        "the kernel": kit.kernel,
        "the fallback": kit.fallback,
        "the key set": kit.keys, "the operator": kit.plain, "None": None, "True": True, "Tensor": Tensor,
        "ndarray": np.ndarray,
        "()": (),
        "CPU": DispatchKey.CPU,
        "CPU's key set": DispatchKey.CPU.keyset,
        "float64": np.dtype(float),
        "the name": kit.plain.name,
    }


@pytest.mark.parametrize("prepare", CALLS.values(), ids=CALLS)
def test_calls_keep_nothing(kit, prepare):
    stays_flat(prepare(kit), watched_in(kit), REPETITIONS)


@pytest.mark.slow
@pytest.mark.parametrize("prepare", CALLS.values(), ids=CALLS)
def test_calls_keep_nothing_in_the_long_run(kit, prepare):
    stays_flat(prepare(kit), watched_in(kit), MANY)


def test_recursion_keeps_nothing(kit):
    stays_flat(lambda: kit.recurses(kit.t, kit.x), watched_in(kit), 20)


# --- errors -------------------------------------------------------------------------------------------------


def watched_constants():
    return {"None": None, "True": True, "Tensor": Tensor, "ndarray": np.ndarray, "CPU": DispatchKey.CPU}


@pytest.mark.parametrize("row", ERRORS, ids=[row.name for row in ERRORS])
def test_errors_keep_nothing(fresh, backends, row):
    stays_flat(row.prepare(fresh, backends), watched_constants(), REPETITIONS)


@pytest.mark.slow
@pytest.mark.parametrize("row", ERRORS, ids=[row.name for row in ERRORS])
def test_errors_keep_nothing_in_the_long_run(fresh, backends, row):
    stays_flat(row.prepare(fresh, backends), watched_constants(), MANY)
