"""The dispatcher against the one of `docs/tiny_dispatcher.py`, after random registrations, removals and guards.

After every step both must hold the same registrations and the same tables, and the same calls must run the
same kernels with the same arguments, or be refused for the same reason.
"""

import inspect
import itertools
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st

from pydispatch import DispatchKeySet, OpOverload, Tensor, default_backend, exclude_keys, force_keys, include_keys
from pydispatch._registry import registrations
from pydispatch._registry.operators import find
from pydispatch._registry.tables import Label
from pydispatch.backends.meta import MetaArray
from pydispatch.debug import check_invariants, dump_state, dump_table
from pydispatch.exceptions import (
    AmbiguousKernelError,
    DispatchError,
    DispatchTypeError,
    NoKernelError,
    OverrideWarning,
    RegistrationError,
    StaleOperatorError,
    StateOrderError,
    UnknownKeyError,
    UnsupportedArgumentError,
)
from pydispatch.library import Library, fallthrough_kernel
from tests.properties.tiny_dispatcher_model import load
from tests.warning_filters import all_warnings

CIA, CEA = "CompositeImplicitAutograd", "CompositeExplicitAutograd"
CEANF = CEA + "NonFunctional"
ALIASES = ("Autograd", CIA, CEA, CEANF)
PAIRS_OF_ALIASES = tuple(itertools.combinations(ALIASES, 2))
RUNTIME_KEYS = ("CPU", "A", "Meta", "SparseCPU", "SparseA", "BackendSelect", "Python", "Tracer", "AutogradOther",
                "AutogradCPU", "AutogradA", "AutogradMeta")
LABELS = {"Autograd": Label.AUTOGRAD, CIA: Label.COMPOSITE} | dict.fromkeys((CEA, CEANF), Label.DEFAULT_BACKEND)

# The schemas that each operator may get, how to call it with two values, the parameters that a kernel may have,
# each of which fits some schemas and not others.
SCHEMAS = {
    "f": ("(Tensor x) -> str", "(Tensor x, Tensor y) -> str"),
    "f.list": ("(Tensor[] xs, *, int n=1) -> str",),
    "g": ("(Tensor? x=None, int a=1) -> str",),
    "h": ("(int n) -> str",),
}
CALLS = {
    None: lambda v, w: ((v,), {}),
    "(Tensor x) -> str": lambda v, w: ((v,), {}),
    "(Tensor x, Tensor y) -> str": lambda v, w: ((v,), {"y": w}),
    "(Tensor[] xs, *, int n=1) -> str": lambda v, w: (([v, w],), {} if v is w else {"n": 2}),
    "(Tensor? x=None, int a=1) -> str": lambda v, w: ((v,), {"a": 1 if v is w else 2}),
    "(int n) -> str": lambda v, w: ((3,), {}),
}
PARAMETERS = {
    "anything": lambda *args, **kwargs: None,
    "one": lambda x: None,
    "two": lambda x, y: None,
    "list": lambda xs, *, n=1: None,
    "defaults": lambda x=None, a=1: None,
}
# Kernels without a default that the schema has get it filled in, and defaults that differ are refused: the model
# does neither.
LEFT_OUT = {("g", "one"), ("g", "two"), ("g", "list")}
KERNELS = [(operator, name) for operator in SCHEMAS for name in PARAMETERS if (operator, name) not in LEFT_OUT]
KINDS = ("plain", "plain", "keyset", "delegating", "fall-through")

REASONS = (     # type of an error, words in it, what the model says
    (NoKernelError, "falls through", "fall-through"),
    (NoKernelError, "", "no kernel"),
    (AmbiguousKernelError, "", "ambiguous"),
    (DispatchTypeError, "backends", "mixed backends"),
    (StaleOperatorError, "no schema", "no schema"),
    (UnknownKeyError, "", "unknown key"),
    (RegistrationError, "defined already", "duplicate definition"),
    (RegistrationError, "does not fit", "schema mismatch"),
    (UnsupportedArgumentError, "", "schema mismatch"),
    (RegistrationError, "fallback already", "fallback taken"),
)
# Pairs of the values that calls are tried with.
PROBES = [(name, name) for name in (
    "array", "subclass", "meta", "scalar", "sparse", "tensor", "meta tensor", "A tensor", "sparse tensor")] + [
    ("A", "B"), ("B", "C"), ("array", "meta"), ("sparse tensor", "meta"), ("tensor", "sparse A"),
    ("scalar", "tensor"), ("A tensor", "sparse tensor"),
]

operators = st.sampled_from(sorted(SCHEMAS))
keys = st.sampled_from(RUNTIME_KEYS + 2 * ALIASES + ("CPU", "CPU", "SparseCPU"))
namespaces = (f"model{n}" for n in itertools.count())


class Subclass(np.ndarray):
    """Not registered itself."""


class Real:
    """A way to call the dispatcher."""

    Tensor = Tensor

    def call(self, operator, args, kwargs):
        return find(operator)(*args, **kwargs)

    def redispatch(self, keys, operator, args, kwargs):
        return find(operator).redispatch(keys, *args, **kwargs)

    def below(self, keys):
        """Return the keys with which a kernel passes the call on."""
        return keys & DispatchKeySet.full_after(keys.highest)

    def reason(self, error):
        return next(reason for kind, words, reason in REASONS if isinstance(error, kind) and words in str(error))


class Model:
    """A way to call the model."""

    def __init__(self, backends):
        self.tiny = load()
        self.Tensor = self.tiny.Tensor
        keys = {MetaArray: "Meta", backends.ArrayA: "A", backends.ArrayB: "B", backends.ArrayC: "C",
                backends.SparseArray: "SparseCPU", backends.SparseArrayA: "SparseA"}
        self.tiny.ARRAY_TYPES |= {array_type: self.tiny.keyset(key) for array_type, key in keys.items()}

    def call(self, operator, args, kwargs):
        return self.tiny.call(operator, *args, **kwargs)

    def redispatch(self, keys, operator, args, kwargs):
        return self.tiny.redispatch(keys, operator, *args, **kwargs)

    def below(self, keys):
        highest = self.tiny.KEYS[self.tiny.ladder(keys)[0]][0]
        return keys.difference(self.tiny.FUNCTIONALITIES[self.tiny.FUNCTIONALITIES.index(highest):])

    def reason(self, error):
        return "schema mismatch" if isinstance(error, TypeError) else error.args[0]


class Comparison(stateful.RuleBasedStateMachine):
    """Does everything on both sides."""

    handles = stateful.Bundle("handles")
    guards = stateful.Bundle("guards")

    def __init__(self, backends):
        super().__init__()
        self.namespace = next(namespaces)
        self.real, self.model = Real(), Model(backends)
        self.tiny = self.model.tiny
        self.libraries = {kind: Library(self.namespace, kind) for kind in ("DEF", "FRAGMENT")}
        self.libraries["_"] = Library("_", "IMPL")
        self.brought = {kind: [] for kind in self.libraries}    # by each library, in the model
        self.schemas = {}           # the texts of those in force, by the model's registration
        self.tokens = (f"k{n}" for n in itertools.count())
        self.entered = []           # guards, with what each does to the model's state
        array = np.ones(2)
        raw = {"array": array, "subclass": array.view(Subclass), "meta": MetaArray((2,)), "scalar": 1.0,
               "A": backends.ArrayA(array), "B": backends.ArrayB(array), "C": backends.ArrayC(array),
               "sparse": backends.SparseArray(array), "sparse A": backends.SparseArrayA(array)}
        tensors = {"tensor": "array", "meta tensor": "meta", "A tensor": "A", "sparse tensor": "sparse"}
        self.values = {
            side: raw | {name: side.Tensor(raw[inner]) for name, inner in tensors.items()}
            for side in (self.real, self.model)
        }

    # --- the same on both sides

    def kernel(self, operator, parameters, kind):
        """Return a kernel that notes what it gets and returns a token of its own. Without an operator, a fallback."""
        if kind == "fall-through":
            return fallthrough_kernel
        token = next(self.tokens)
        lead = (kind != "plain") + (operator is None)

        def note(*args, **kwargs):
            note.__signature__.bind(*args, **kwargs)
            self.log.append((token, self.plain(args), self.plain(kwargs)))
            if kind == "delegating" and self.plain(args[0]):
                name = self.full(operator) if operator else self.plain(args[1])
                self.side.redispatch(self.side.below(args[0]), name, args[lead:], kwargs)
            return token

        note.__name__ = note.__qualname__ = token
        keys = [inspect.Parameter("keys", inspect.Parameter.POSITIONAL_ONLY)] * (kind != "plain")
        given = inspect.signature(PARAMETERS[parameters]).parameters.values()
        note.__signature__ = inspect.Signature([*keys, *given])
        return note

    def plain(self, value):
        """Return a kernel's arguments, in words that are the same on both sides."""
        if isinstance(value, DispatchKeySet):
            value = self.tiny.keyset(*(key.name for key in value if key.name in self.tiny.KEYS))
        if isinstance(value, frozenset):
            return tuple(self.tiny.ladder(value))
        if isinstance(value, (tuple, list)):
            return type(value).__name__, *map(self.plain, value)
        if isinstance(value, dict):
            return {name: self.plain(item) for name, item in value.items()}
        if isinstance(value, (Tensor, self.tiny.Tensor)):
            return "Tensor", self.plain(value.array)
        if isinstance(value, OpOverload):
            return str(value.name)
        return value if isinstance(value, (int, float, str)) else type(value).__name__

    def on(self, side, action, *args):
        """Return the result of an action, or the reason of its refusal, and the kernels that ran."""
        self.side, self.log = side, []
        errors = (self.tiny.DispatchError, TypeError) if side is self.model else DispatchError
        try:
            return action(*args), None, self.log
        except errors as error:
            return None, side.reason(error), self.log

    def agree(self, on_real, on_model):
        """Do the same registration on both sides. A handle if both accept it."""
        with all_warnings() as caught:
            handle, why_not, _ = self.on(self.real, on_real)
        registrations, expected, _ = self.on(self.model, on_model)
        assert why_not == expected
        return handle, registrations, [warning.category for warning in caught]

    def full(self, operator):
        return f"{self.namespace}::{operator}"

    def keep(self, library, handle, registrations):
        """Return the registrations for a bundle: none if they were refused."""
        if handle is None:
            return ()
        self.brought[library] += registrations
        return ((handle, registrations),)

    def shadows(self, operator, key):
        """Return whether registering a kernel here warns that it shadows another one."""
        return [OverrideWarning] * (self.tiny.active(self.full(operator), key) is not None and "Meta" not in key)

    def drop(self, registrations):
        for registration in registrations:
            if registration in self.tiny.registrations:
                self.tiny.registrations.remove(registration)

    # --- registrations

    def define_in_model(self, operator, schema, *kernel):
        definition = self.tiny.define(self.full(operator) + schema)
        try:
            added = [self.tiny.register(self.full(operator), *kernel)] if kernel else []
        except (self.tiny.DispatchError, TypeError):
            self.tiny.registrations.remove(definition)
            raise
        self.schemas[definition] = schema
        return [definition, *added]

    def in_model(self, function):
        return self.tiny.FALLTHROUGH if function is fallthrough_kernel else function

    @stateful.initialize(target=handles, names=st.lists(operators, unique=True))
    def begin(self, names):
        """Empty, or with definitions."""
        return stateful.multiple(*itertools.chain(*(self.define_one(name, 0, "FRAGMENT") for name in names)))

    @stateful.rule(target=handles, names=st.lists(operators, min_size=1, max_size=3), which=st.integers(0, 1),
                   library=st.sampled_from(("DEF", "FRAGMENT")))
    def define(self, names, which, library):
        return stateful.multiple(*itertools.chain(*(self.define_one(name, which, library) for name in names)))

    def define_one(self, operator, which, library):
        schema = SCHEMAS[operator][which % len(SCHEMAS[operator])]
        handle, registrations, _ = self.agree(
            lambda: self.libraries[library].define(operator + schema), lambda: self.define_in_model(operator, schema))
        return self.keep(library, handle, registrations)

    @stateful.rule(target=handles, kernel=st.sampled_from(KERNELS), which=st.integers(0, 1), key=keys,
                   library=st.sampled_from(("DEF", "FRAGMENT")))
    def define_with_kernel(self, kernel, which, key, library):
        operator, parameters = kernel
        schema = SCHEMAS[operator][which % len(SCHEMAS[operator])]
        function, warned = self.kernel(operator, parameters, "plain"), self.shadows(operator, key)
        handle, registrations, caught = self.agree(
            lambda: self.libraries[library].define(operator + schema, function, key),
            lambda: self.define_in_model(operator, schema, key, function))
        assert caught == (warned if handle else [])
        return stateful.multiple(*self.keep(library, handle, registrations))

    @stateful.rule(
        target=handles, library=st.sampled_from(("DEF", "FRAGMENT")),
        kernels=st.lists(st.tuples(st.sampled_from(KERNELS), keys, st.sampled_from(KINDS)), min_size=1, max_size=5))
    def implement(self, kernels, library):
        return stateful.multiple(*itertools.chain(*(self.implement_one(*kernel, library) for kernel in kernels)))

    def implement_one(self, kernel, key, kind, library):
        operator, parameters = kernel
        function, warned = self.kernel(operator, parameters, kind), self.shadows(operator, key)
        with_keyset = kind in ("keyset", "delegating")
        handle, registrations, caught = self.agree(
            lambda: self.libraries[library].impl(operator, function, key, with_keyset=with_keyset),
            lambda: [self.tiny.register(self.full(operator), key, self.in_model(function), with_keyset)])
        assert caught == (warned if handle else [])
        return self.keep(library, handle, registrations)

    @stateful.precondition(lambda self: any(map(self.schema_of, SCHEMAS)))
    @stateful.rule(target=handles, data=st.data(), aliases=st.sampled_from(PAIRS_OF_ALIASES), key=st.none() | keys,
                   library=st.sampled_from(("DEF", "FRAGMENT")))
    def implement_under_two_aliases(self, data, aliases, key, library):
        """Implement a defined operator under two aliases between which the precedence decides."""
        operator = data.draw(st.sampled_from(list(filter(self.schema_of, SCHEMAS))))
        chosen = (*aliases, key) if key else aliases
        return stateful.multiple(*itertools.chain(*(
            self.implement_one((operator, "anything"), alias, "plain", library) for alias in chosen)))

    @stateful.rule(target=handles, key=keys, kind=st.sampled_from(KINDS))
    def fall_back(self, key, kind):
        function, with_keyset = self.kernel(None, "anything", kind), kind in ("keyset", "delegating")
        handle, registrations, _ = self.agree(
            lambda: self.libraries["_"].fallback(function, key, with_keyset=with_keyset),
            lambda: [self.tiny.register("*", key, self.in_model(function), with_keyset)])
        return stateful.multiple(*self.keep("_", handle, registrations))

    @stateful.rule(handle=handles)
    def remove(self, handle):
        """Remove a registration, maybe for the second time, which changes nothing."""
        real, registrations = handle
        real.remove()
        self.drop(registrations)

    @stateful.rule(library=st.sampled_from(("DEF", "FRAGMENT", "_")))
    def close(self, library):
        self.libraries[library].close()
        self.drop(self.brought[library])
        self.brought[library] = []
        namespace = "_" if library == "_" else self.namespace
        self.libraries[library] = Library(namespace, "IMPL" if library == "_" else library)

    @stateful.rule(operator=operators, library=st.sampled_from(("DEF", "FRAGMENT")))
    def refuse_what_is_wrong(self, operator, library):
        lib, schema = self.libraries[library], SCHEMAS[operator][0]
        function = self.kernel(operator, "anything", "plain")
        with pytest.raises(UnknownKeyError):
            lib.impl(operator, function, "Dense")
        with pytest.raises(RegistrationError, match="elsewhere"):
            lib.impl(f"elsewhere::{operator}", function, "CPU")
        with pytest.raises(RegistrationError, match="elsewhere"):
            lib.define(f"elsewhere::{operator}{schema}")
        with pytest.raises(UnknownKeyError):
            lib.define(f"unheard_of{schema}", function, "Dense")
        with pytest.raises(RegistrationError, match="fallback"):
            lib.fallback(function, "CPU")
        with pytest.raises(RegistrationError, match="DEF library already"):
            Library(self.namespace, "DEF")
        assert find(self.full("unheard_of")) is None

    # --- ambient state

    def set_model_state(self):
        state = {"include": self.tiny.keyset("BackendSelect"), "exclude": [], "backend": "CPU"}
        for _, change in self.entered:
            change(state)
        self.tiny.state.update(state)

    @stateful.rule(target=guards, how=st.sampled_from(("include", "exclude", "force", "backend")), one=keys,
                   other=st.sampled_from(RUNTIME_KEYS))
    def enter(self, how, one, other):
        members, keyset = self.tiny.MEMBERS, self.tiny.keyset

        def include(state):
            state["include"] |= keyset(other)

        def exclude(state):
            state["exclude"] = [*state["exclude"], *members[one]]

        def force(state):
            state |= {"include": keyset(other), "exclude": members[one]}

        def choose(state):
            state["backend"] = "A"

        guard, change = {
            "include": (include_keys(other), include),
            "exclude": (exclude_keys(one), exclude),
            "force": (force_keys((other,), (one,)), force),
            "backend": (default_backend("A"), choose),
        }[how]
        guard.__enter__()
        self.entered.append((guard, change))
        self.set_model_state()
        return guard

    @stateful.rule(guard=stateful.consumes(guards))
    def leave(self, guard):
        """Leave in any order. Leaving out of order is an error that leaves all the same."""
        index = next(i for i, (entered, _) in enumerate(self.entered) if entered is guard)
        if index == len(self.entered) - 1:
            guard.__exit__(None, None, None)
        else:
            with pytest.raises(StateOrderError):
                guard.__exit__(None, None, None)
        del self.entered[index]
        self.set_model_state()

    # --- what must be the same

    def schema_of(self, operator):
        return self.schemas.get(self.tiny.active(self.full(operator), "schema"))

    def known(self, operator):
        return any(r.operator == self.full(operator) for r in self.tiny.registrations)

    def compare_call(self, operator, values, keys=None):
        """Call with two of the values, or redispatch on these keys."""
        outcomes = []
        for side in (self.real, self.model):
            args, kwargs = CALLS[self.schema_of(operator)](*(self.values[side][value] for value in values))
            if keys is None:
                outcomes.append(self.on(side, side.call, self.full(operator), args, kwargs))
            else:
                key_set = DispatchKeySet(*keys) if side is self.real else self.tiny.keyset(*keys)
                outcomes.append(self.on(side, side.redispatch, key_set, self.full(operator), args, kwargs))
        assert outcomes[0] == outcomes[1], (operator, values, keys)

    @stateful.precondition(lambda self: any(map(self.schema_of, SCHEMAS)))
    @stateful.rule(data=st.data(), names=st.sets(st.sampled_from(RUNTIME_KEYS), max_size=4))
    def redispatch(self, data, names):
        operator = data.draw(st.sampled_from(list(filter(self.schema_of, SCHEMAS))))
        self.compare_call(operator, data.draw(st.sampled_from(PROBES)), sorted(names))

    @stateful.invariant()
    def calls_agree(self):
        for operator in filter(self.known, SCHEMAS):
            takes_arrays = "Tensor" in (self.schema_of(operator) or "")
            for values in PROBES if takes_arrays else PROBES[:1]:
                self.compare_call(operator, values)

    @stateful.invariant()
    def states_agree(self):
        for operator in SCHEMAS:
            name, schema = self.full(operator), self.schema_of(operator)
            lines = dump_state(name).splitlines()
            expected = []
            for key in (*self.tiny.KEYS, *ALIASES):
                found = [r.kernel for r in reversed(self.tiny.registrations) if (r.operator, r.key) == (name, key)]
                expected += [
                    f"{key}{'[alias]' * (key in ALIASES)}{' (inactive)' * (i > 0)}: {self.token(kernel)}"
                    for i, kernel in enumerate(found)
                ]
            heads = [line.partition(" at ")[0] for line in lines if " [ " in line]
            assert heads == expected
            shown = [line for line in lines if line.startswith(("name", "schema"))]
            if self.known(operator):
                assert shown == [f"name: {name}", f"schema: {name + schema if schema else '(none)'}"]
            else:
                assert lines == []
                assert find(name) is None

    def token(self, kernel):
        return "fallthrough_kernel" if kernel == self.tiny.FALLTHROUGH else kernel.__name__

    @stateful.invariant()
    def tables_agree(self):
        for operator in filter(self.schema_of, SCHEMAS):
            name = self.full(operator)
            live = dump_table(name, "live")
            assert live == dump_table(name, "computed")
            entries = dict(re.findall(r"^(\w+): (.*)$", live, flags=re.MULTILINE))
            for key in self.tiny.KEYS:
                assert self.line(entries.get(key)) == self.expected_line(name, key), key

    def line(self, text):
        """Return token and label of an entry, or only the label if no user registered it."""
        if text is None:
            return None
        kernel, label = re.fullmatch(r"(?:fallthrough )?(\w+) at .* \[([\w ]+)(?:, without .*)?\]", text).groups()
        return (kernel, label) if re.fullmatch(r"k\d+|fallthrough_kernel", kernel) else label

    def expected_line(self, name, key):
        found = self.tiny.entry(name, key)
        if found.kernel == self.tiny.MISSING:
            return None
        if found.kernel == self.tiny.AMBIGUOUS:
            return str(Label.AMBIGUOUS)
        if found.kernel is self.tiny.choose_backend:
            return str(Label.FALLBACK)
        if key == "Python" and not any(found is registration for registration in self.tiny.registrations):
            return str(Label.FALLBACK)       # what calls the handlers of subclasses, skipped without any
        label = Label.FALLBACK if found.operator == "*" else LABELS.get(found.key, Label.KERNEL)
        return self.token(found.kernel), str(label)

    @stateful.invariant()
    def nothing_is_contradictory(self):
        for operator in filter(self.known, SCHEMAS):
            check_invariants(self.full(operator))

    def teardown(self):
        for guard, _ in reversed(self.entered):
            guard.__exit__(None, None, None)
        for library in self.libraries.values():
            library.close()
        assert [name for name in registrations.operators if name.startswith(self.namespace + "::")] == []


def compare(backends, **how):
    stateful.run_state_machine_as_test(
        partial(Comparison, backends), settings=settings(suppress_health_check=list(HealthCheck), **how))
    check_invariants()      # of every operator of the process


def test_the_dispatcher_does_what_the_model_does(backends):
    compare(backends, max_examples=40, stateful_step_count=40)


@pytest.mark.slow
def test_the_dispatcher_does_what_the_model_does_for_long(backends):
    compare(backends, max_examples=80, stateful_step_count=60)
