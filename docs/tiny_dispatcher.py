"""A dispatcher in plain Python: short, slow, obviously right. It caches nothing."""

from __future__ import annotations

import inspect
import re
from functools import partial, reduce
from itertools import count
from unittest.mock import patch

import numpy as np

# 1. keys and key sets

BACKENDS = ["CPU", "A", "B", "C", "Meta"]  # ascending priority; A, B and C stand for users' backends
ABOVE = {("C", "B")}  # of two added backends in one call, one must have been declared above the other
FUNCTIONALITIES = ["Dense", "Sparse", "BackendSelect", "Python", "Tracer", "AutogradOther", "Autograd"]
PREFIX = {"Dense": "", "Sparse": "Sparse", "Autograd": "Autograd"}  # these have one key for each backend
KEYS = {"Undefined": ("", "")} | {  # every key that has a slot in a table, ascending, with its two halves
    PREFIX.get(f, f) + b: (f, b) for f in FUNCTIONALITIES for b in (BACKENDS if f in PREFIX else [""])
}
CIA, CEA = "CompositeImplicitAutograd", "CompositeExplicitAutograd"
CEANF = CEA + "NonFunctional"
ALIASES = {  # names that stand for many keys
    CEANF: [key for key, (f, b) in KEYS.items() if f in ("", "Dense") and b != "Meta"],
    CEA: [key for key, (f, b) in KEYS.items() if f in ("", "Dense", "Sparse") and b != "Meta"],
    CIA: [key for key, (f, b) in KEYS.items() if f in ("", "Dense", "Sparse", "AutogradOther", "Autograd")],
    "Autograd": [key for key, (f, b) in KEYS.items() if f in ("AutogradOther", "Autograd")],
}
MEMBERS = {key: [key] for key in KEYS} | ALIASES
RAW = {CEANF, CEA} | {key for key, (f, b) in KEYS.items() if f in ("Dense", "Sparse")}  # their kernels get raw arrays


def keyset(*names):
    """A key set holds functionalities and backends; it forgets which came with which."""
    return frozenset(half for name in names for key in MEMBERS[name] for half in KEYS[key] if half)


def ladder(keys):
    """The runtime keys in a key set, highest first: each functionality on the highest backend of all."""
    backend = max(keys.intersection(BACKENDS), key=BACKENDS.index, default=None)
    return [key for key, (f, b) in reversed(KEYS.items()) if f in keys and b in ("", backend)]


# 2. values


class MetaArray(tuple):
    """The shape of an array that has no data."""


class Tensor:
    """An array with the autograd key and, if it is tracked, a node. Under vmap it hides the first axis."""

    def __init__(self, array, node=None, owner=None):
        self.array, self.node, self.owner, self.shape = array, node, owner, np.shape(array)[owner is not None:]

    def __add__(self, other):
        return call("add", self, other)

    def __mul__(self, other):
        return call("mul", self, other)


ARRAY_TYPES = {np.ndarray: keyset("CPU"), np.generic: keyset("CPU"), MetaArray: keyset("Meta")}


def keys_of(value):
    """The key set of an array, by its nearest registered base class; that of a sequence is the union."""
    if type(value) in (list, tuple):
        return frozenset().union(*map(keys_of, value))
    if getattr(value, "owner", None) is not None:
        raise DispatchError("its vmap is not running here", value)
    if isinstance(value, Tensor):
        raw = keys_of(value.array)
        return raw | {"AutogradOther" if "Sparse" in raw else "Autograd"}
    return next((ARRAY_TYPES[base] for base in type(value).__mro__ if base in ARRAY_TYPES), frozenset())


def tree_map(value, function=lambda leaf: leaf):
    """Apply a function to every leaf of nested sequences and dictionaries. Sequences become tuples."""
    if isinstance(value, dict):
        return {name: tree_map(item, function) for name, item in value.items()}
    if type(value) in (list, tuple):
        return tuple(tree_map(item, function) for item in value)
    return function(value)


def unwrap(value):
    return value.array if isinstance(value, Tensor) else value


def wrap(value):
    return Tensor(value) if keys_of(value) and not isinstance(value, Tensor) else value


# 3. schemas


def parse(schema):
    """Name and arguments. Without their types, the arguments are those of a Python `lambda`."""
    name, arguments = re.fullmatch(r"(\S+?)\((.*)\) -> .*", schema).groups()
    untyped = re.sub(r"[^\s,]+ (\w+)", r"\1", arguments)
    return name, inspect.signature(eval(f"lambda {untyped}: None"))


def strip(signature, args, kwargs):
    """Bind, then leave out defaults: positional arguments from the right, keyword-only ones one by one."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    values, parameters = tree_map(bound.arguments), signature.parameters
    spare = [n for n, v in values.items() if (type(v), v) == (type(d := tree_map(parameters[n].default)), d)]
    args = [n for n in values if parameters[n].kind is not inspect.Parameter.KEYWORD_ONLY]
    kwargs = {n: v for n, v in values.items() if n not in args and n not in spare}
    while args and args[-1] in spare:
        args.pop()
    return [values[n] for n in args], kwargs


# 4. registrations and the table

FALLTHROUGH, AMBIGUOUS, MISSING = "fall-through", "ambiguous", "no kernel"  # entries that are no kernels
registrations = []  # those in force, oldest first; every table is a function of this list


class DispatchError(Exception):
    """A call or registration is impossible; the first argument is the reason."""


class Registration:
    """A kernel of an operator under a key. Schemas, formulas and rules have their own keys, fallbacks operator "*"."""

    def __init__(self, operator, key, kernel, with_keyset=False):
        self.operator, self.key, self.kernel, self.with_keyset = operator, key, kernel, with_keyset


def register(operator, key, kernel, with_keyset=False):
    """Add a registration, if it agrees with those in force. To undo it, remove it from the list."""
    new = Registration(operator, key, kernel, with_keyset)
    peers = [r for r in registrations if r.operator == operator]
    schemas = [r.kernel for r in [*peers, new] if r.key == "schema"]
    if key not in ("schema", "formulas", "batching", *MEMBERS):
        raise DispatchError("unknown key", key)
    if len(schemas) > 1:
        raise DispatchError("duplicate definition", operator)
    if operator == "*" and any({*MEMBERS[r.key]} & {*MEMBERS[key]} for r in peers):
        raise DispatchError("fallback taken", key)
    for r in [*peers, new] if schemas else []:
        if callable(r.kernel):  # TypeError unless it takes every argument without a default
            a, k = strip(schemas[0], (), {n: ... for n, p in schemas[0].parameters.items() if p.default is p.empty})
            inspect.signature(r.kernel).bind(*[()] * (r.with_keyset or r.key == "batching"), *a, **k)
    registrations.append(new)
    return new


def define(schema):
    """Give an operator its schema; its kernels may be registered before."""
    operator, signature = parse(schema)
    return register(operator, "schema", signature)


def active(operator, key):
    """The newest registration of an operator under a key."""
    return next((r for r in reversed(registrations) if (r.operator, r.key) == (operator, key)), None)


def entry(operator, key):
    """The table entry of an operator for a runtime key, by the first row of the precedence that applies."""
    functionality, backend = KEYS[key]
    behind = {"Autograd": [backend], "AutogradOther": ["Sparse" + b for b in BACKENDS]}.get(functionality, [])
    direct = any(active(operator, k) for k in behind)
    claimed = direct or (active(operator, CEA) and {*behind} & {*MEMBERS[CEA]})
    for under in (key, *ALIASES):
        found = active(operator, under) if key in MEMBERS[under] else None
        if found and under == CIA and direct and key == "AutogradOther":
            return Registration("*", key, AMBIGUOUS)
        if found and not (under == CIA and claimed):
            return found
    for found in registrations:
        if found.operator == "*" and key in MEMBERS[found.key]:
            return found
    if key == "BackendSelect":
        return Registration("*", key, choose_backend, with_keyset=True)
    return Registration("*", key, MISSING if functionality in ("", "Dense", "Sparse") else FALLTHROUGH)


# 5. ambient state

state = {"include": keyset("BackendSelect"), "exclude": [], "backend": "CPU", "stack": []}  # of vmap, innermost last
guard = partial(patch.dict, state)  # `with guard(backend="Meta"):` changes the state inside the block


def usable(operator, keys):
    """The key set without functionalities whose runtime key is excluded or falls through. Backends stay."""
    passed = [k for k in ladder(keys) if k in state["exclude"] or entry(operator, k).kernel == FALLTHROUGH]
    return keys.difference(KEYS[k][0] for k in passed)


def choose_backend(keys, operator, *args, **kwargs):
    """The default kernel of BackendSelect: if no array brings a backend, the state does."""
    known = keys & {"Dense", "Sparse", *BACKENDS}
    chosen = known if ladder(known) else keyset(state["backend"])
    return redispatch(usable(operator, chosen), operator, *args, **kwargs)


# 6. calls


def call(operator, *args, **kwargs):
    """Run the kernel that the arguments and the state choose."""
    if state["stack"]:
        return call_under_vmap(operator, *args, **kwargs)
    keys = keys_of([*args, *kwargs.values()]) | state["include"]
    *lower, top = [backend for backend in BACKENDS[1:-1] if backend in keys] or [None]
    if any((top, backend) not in ABOVE for backend in lower):
        raise DispatchError("mixed backends", top, lower)
    if keys & {"Dense", "Sparse"} and entry(operator, "BackendSelect").kernel is choose_backend:
        keys -= {"BackendSelect"}  # the arrays have chosen
    return redispatch(usable(operator, keys), operator, *args, **kwargs)


def redispatch(keys, operator, *args, **kwargs):
    """Run the kernel for this key set. Kernels of backends see raw arrays; Tensors in, Tensors out."""
    key = next(iter(ladder(keys)), "Undefined")
    definition, found = active(operator, "schema"), entry(operator, key)
    if not definition:
        raise DispatchError("no schema", operator)
    if not callable(found.kernel):  # a fall-through without a key below is no kernel
        raise DispatchError(MISSING if key == "Undefined" else found.kernel, operator, key)
    has_tensor = {"Autograd", "AutogradOther"} & keys_of([*args, *kwargs.values()])
    if (key if found.operator == "*" else found.key) in RAW:
        args, kwargs = tree_map(args, unwrap), tree_map(kwargs, unwrap)
    args, kwargs = strip(definition.kernel, args, kwargs)
    first = [keys] * found.with_keyset + [operator] * (found.operator == "*")
    result = found.kernel(*first, *args, **kwargs)
    return tree_map(result, wrap) if has_tensor else result


# 7. autograd

numbers = count()


class Node:
    """A recorded call: its formulas, their arguments, and the nodes of these. The node of a leaf has none of them."""

    def __init__(self, targets=(), formulas=(), args=(), kwargs=None):
        self.targets, self.formulas, self.args, self.kwargs = targets, formulas, args, kwargs or {}
        self.number = next(numbers)


def record(keys, operator, *args, **kwargs):
    """A fallback for the Autograd keys: run the call below them, and record it if an argument has a node."""
    result = redispatch(keys - {"Autograd", "AutogradOther"}, operator, *args, **kwargs)
    targets = [getattr(value, "node", None) for value in args]
    if not any(targets) or not isinstance(result, Tensor):
        return result
    if not (found := active(operator, "formulas")):
        raise DispatchError("no formulas", operator)
    return Tensor(result.array, Node(targets, found.kernel, args, kwargs))


def grad(output, inputs, create_graph=False):
    """The gradients of a scalar. Later calls go first, so that a node which runs has all of its gradient."""
    value = (lambda saved: saved) if create_graph else unwrap  # calls of formulas on Tensors are recorded too
    arrived, complete = {output.node: value(Tensor(np.ones(())))}, {}
    while arrived:
        node = max(arrived, key=lambda node: node.number)
        complete[node] = gradient = arrived.pop(node)
        for target, formula in zip(node.targets, node.formulas, strict=False):
            if target and formula:
                share = formula(gradient, *map(value, node.args), **node.kwargs)
                arrived[target] = arrived[target] + share if target in arrived else share
    return [complete.get(tensor.node) for tensor in inputs]


# 8. vmap


def call_under_vmap(operator, *args, **kwargs):
    """Call as the innermost vmap does: once for all examples, by the operator's batching rule, or once for each."""
    *outer, examples = state["stack"]
    owned = [getattr(arg, "owner", None) is examples for arg in args]
    below = [arg.array if own else arg for arg, own in zip(args, owned, strict=True)]
    with guard(stack=outer):
        if not any(owned):
            return call(operator, *args, **kwargs)
        if rule := active(operator, "batching"):
            return Tensor(rule.kernel(owned, *below, **kwargs), owner=examples)
        rows = [[call("pick", arg, i) if own else arg for arg, own in zip(below, owned, strict=True)] for i in examples]
        results = [call("place", call(operator, *row, **kwargs), i, len(examples)) for i, row in enumerate(rows)]
        return Tensor(reduce(partial(call, "add"), results), owner=examples)


def vmap(function, *args):
    """Run a function of one example on a batch, along the first axis of the arguments."""
    examples = range(np.shape(args[0])[0])  # this very object identifies the running vmap
    with guard(stack=[*state["stack"], examples]):
        result = function(*[Tensor(arg, owner=examples) for arg in args])
    return result.array if getattr(result, "owner", None) is examples else result
