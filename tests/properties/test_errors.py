"""The error catalogue: what raises, what it raises, and what the message must tell.

A row is a function that prepares a library and returns the call that raises, with what the message must
contain: `{ns}` is the namespace of that library, a fragment given twice must be there twice. test_leaks
repeats every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from pydispatch import (
    DispatchKeySet,
    Tensor,
    debug,
    default_backend,
    exceptions,
    exclude_keys,
    include_keys,
    ops,
    register_array_type,
    register_backend,
    register_functionality,
)
from pydispatch._registry.operators import find, find_or_raise
from pydispatch.backends import MetaArray
from pydispatch.exceptions import (
    AmbiguousKernelError,
    DispatchError,
    DispatchTypeError,
    NoKernelError,
    OperatorNotFoundError,
    OverrideWarning,
    RegistrationError,
    SchemaError,
    StaleOperatorError,
    StateOrderError,
    UnknownKeyError,
)
from pydispatch.library import Library, get_kernel, register_kernel
from pydispatch.schema import parse_name
from pydispatch.tree import register_pytree_node
from tests.warning_filters import all_warnings

X = np.arange(3.0)
HERE = "test_errors.py:"


class Row(NamedTuple):
    name: str
    error: type[BaseException]
    fragments: tuple[str, ...]
    prepare: Callable[[Library, Any], Callable[[], Any]]


ROWS: list[Row] = []


def row(name: str, error: type[BaseException], *fragments: str):
    """Add a row to the catalogue."""

    def add(prepare):
        ROWS.append(Row(name, error, fragments, prepare))
        return prepare

    return add


def kernel(x):
    return x


def binary_kernel(x: np.ndarray, y: int) -> np.ndarray:
    return x


def int_kernel(x: int) -> np.ndarray:
    return np.zeros(x)


def fallback_kernel(op, *args, **kwargs):
    return None


# --- schemas and names --------------------------------------------------------------------------------------


def refused_schema(name, text, *fragments):
    row(name, SchemaError, *fragments, *text.splitlines())(lambda lib, backends: lambda: lib.define(text))


refused_schema(
    "syntax error in a schema", "f(Tensor x -> Tensor", "expected ',' or ')'", "found '->'", "\n    " + " " * 11 + "^")
refused_schema("name where a schema is expected", "f", "expected a schema", "found a name")
refused_schema("illegal overload name", "f.default(Tensor x) -> Tensor", "'default' is not a legal overload name")
refused_schema("overload name with dunder", "f.__x(Tensor x) -> Tensor", "'__x' is not a legal overload name")
refused_schema(
    "unknown type", "f(Foo x) -> Tensor", "unknown type 'Foo'", "Tensor, int, float, bool, str", "\n      ^"[:-1])
refused_schema("double", "f(double x) -> Tensor", "unknown type 'double'", "`float`")
refused_schema("int64_t", "f(int64_t x) -> Tensor", "unknown type 'int64_t'", "`int`")
refused_schema("a type of other dispatchers", "f(SymInt x) -> Tensor", "'SymInt' is not supported", "`int`")
refused_schema("bad default", "f(int x=1.5) -> Tensor", "'x' of type int", "found float 1.5", "\n    " + " " * 8 + "^")
refused_schema("default of a Tensor", "f(Tensor x=1) -> Tensor", "'x' of type Tensor", "Tensor? x=None")
refused_schema("non-default after default", "f(int x=1, int y) -> Tensor", "'y' has no default", "'x'")


@row("syntax error in a name", SchemaError, "found '::'", "a::b::c", "\n        ^")
def _(lib, backends):
    return lambda: parse_name("a::b::c")


@row("schema where a name is expected", SchemaError, "expected a name, found a schema", "f(Tensor x) -> Tensor")
def _(lib, backends):
    return lambda: lib.impl("f(Tensor x) -> Tensor", kernel, "CPU")


# --- registration -------------------------------------------------------------------------------------------


@row("namespace mismatch in define", RegistrationError, "define other::f", "'{ns}'", "'other'", "FRAGMENT",
     "conftest.py:")
def _(lib, backends):
    return lambda: lib.define("other::f(Tensor x) -> Tensor")


@row("namespace mismatch in impl", RegistrationError, "impl other::f", "'{ns}'", "'other'", "IMPL library", HERE)
def _(lib, backends):
    implementations = Library(lib.namespace, "IMPL")
    return lambda: implementations.impl("other::f", kernel, "CPU")


@row("def in an IMPL library", RegistrationError, "define 'f'", "IMPL library '{ns}'", HERE)
def _(lib, backends):
    implementations = Library(lib.namespace, "IMPL")
    return lambda: implementations.define("f(Tensor x) -> Tensor")


@row("def by name without inferable schema", RegistrationError, "infer a schema for f", "kernel at", HERE, HERE)
def _(lib, backends):
    return lambda: lib.define("f", kernel)


@row("duplicate def", RegistrationError, "{ns}::f", "{ns}::f(Tensor x) -> Tensor", HERE, HERE, "remove")
def _(lib, backends):
    lib.define("f(Tensor y) -> Tensor")
    return lambda: lib.define("f(Tensor x) -> Tensor")


@row("kernel does not fit the schema: number", RegistrationError, "{ns}::f(Tensor x) -> Tensor, defined at", HERE,
     "inferred: (Tensor _0, int _1) -> Tensor", "binary_kernel at", HERE, "number of arguments: expected 1, inferred 2")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor")
    return lambda: lib.impl("f", binary_kernel, "CPU")


@row("schema does not fit the kernel: number", RegistrationError, "{ns}::f(Tensor x) -> Tensor, defined at", HERE,
     "inferred: (Tensor _0, int _1) -> Tensor", "binary_kernel at", HERE, "number of arguments: expected 1, inferred 2")
def _(lib, backends):
    lib.impl("f", binary_kernel, "CPU")
    return lambda: lib.define("f(Tensor x) -> Tensor")


@row("kernel does not fit the schema: type", RegistrationError, "{ns}::f", "argument 1: expected Tensor, inferred int",
     HERE)
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor")
    return lambda: lib.impl("f", int_kernel, "CPU")


@row("kernel without annotations does not fit", RegistrationError, "{ns}::f", "takes 1 positional", "passes 2", HERE,
     HERE)
def _(lib, backends):
    lib.define("f(Tensor x, int y) -> Tensor")
    return lambda: lib.impl("f", kernel, "CPU")


@row("kernel with another default", RegistrationError, "{ns}::f", "default for 'a' is 2", "the schema's is 1", HERE,
     HERE)
def _(lib, backends):
    lib.define("f(Tensor x, int a=1) -> Tensor")
    return lambda: lib.impl("f", lambda x, a=2: x, "CPU")


@row("def with a kernel that does not fit", RegistrationError, "{ns}::f", "expected 1, inferred 2", HERE)
def _(lib, backends):
    return lambda: lib.define("f(Tensor x) -> Tensor", binary_kernel)


@row("kernel that cannot be called", RegistrationError, "a kernel must be a function, not int", "impl(")
def _(lib, backends):
    return lambda: lib.impl("f", 3, "CPU")


@row("key conflict with the library", RegistrationError, "impl of {ns}::f", "Meta", "CPU", HERE)
def _(lib, backends):
    implementations = Library(lib.namespace, "IMPL", "CPU")
    return lambda: implementations.impl("f", kernel, "Meta")


@row("key conflict of a fallback", RegistrationError, "a fallback", "Meta", "CPU", HERE)
def _(lib, backends):
    everything = Library("_", "IMPL", "CPU")
    return lambda: everything.fallback(fallback_kernel, "Meta")


@row("second DEF library", RegistrationError, "'{ns}_def'", HERE, HERE, "FRAGMENT")
def _(lib, backends):
    first = Library(f"{lib.namespace}_def", "DEF")
    lib.handles.append(Closing(first))
    return lambda: Library(first.namespace, "DEF")


class Closing:
    """A handle that closes a library, so that it is closed together with another one."""

    active = True

    def __init__(self, library):
        self.remove = library.close


@row("fallback in a library of the wrong kind", RegistrationError, "FRAGMENT library '{ns}'", 'Library("_", "IMPL")')
def _(lib, backends):
    return lambda: lib.fallback(fallback_kernel, "CPU")


@row("fallback in a named namespace", RegistrationError, "namespace '{ns}'", 'Library("_", "IMPL")')
def _(lib, backends):
    implementations = Library(lib.namespace, "IMPL")
    return lambda: implementations.fallback(fallback_kernel, "CPU")


@row("fallback without key", RegistrationError, "a fallback needs a key", "fallback(fn, key)")
def _(lib, backends):
    everything = Library("_", "IMPL")
    return lambda: everything.fallback(fallback_kernel)


@row("second fallback", RegistrationError, "Tracer", "fallback_kernel at", "fallback_kernel at", HERE, HERE, "remove()")
def _(lib, backends):
    everything = Library("_", "IMPL")
    everything.fallback(fallback_kernel, "Tracer")
    lib.handles.append(Closing(everything))
    return lambda: everything.fallback(fallback_kernel, "Tracer")


@row("defining library on the wildcard", RegistrationError, "namespace _", "FRAGMENT", 'Library("_", "IMPL")')
def _(lib, backends):
    return lambda: Library("_", "FRAGMENT")


@row("impl in the wildcard library", RegistrationError, "impl f", "namespace _", HERE, "fallbacks only")
def _(lib, backends):
    everything = Library("_", "IMPL")
    return lambda: everything.impl("f", kernel, "CPU")


@row("library of an unknown kind", RegistrationError, "DEF, FRAGMENT or IMPL, not 'PART'",
     "Library('{ns}', \"FRAGMENT\")")
def _(lib, backends):
    return lambda: Library(lib.namespace, "PART")


@row("default key of a defining library", RegistrationError, "DEF library '{ns}'", "'CPU'", "only IMPL")
def _(lib, backends):
    return lambda: Library(lib.namespace, "DEF", "CPU")


@row("namespace that is no identifier", SchemaError, "'a b' is not an identifier")
def _(lib, backends):
    return lambda: Library("a b", "FRAGMENT")


@row("namespace that is a reserved word", SchemaError, "'for' is a reserved word")
def _(lib, backends):
    return lambda: Library("for", "FRAGMENT")


@row("unknown dispatch key", UnknownKeyError, "'Nonsense'", "CPU, ", "register_backend")
def _(lib, backends):
    return lambda: lib.impl("f", kernel, "Nonsense")


@row("functionality in place of a key", UnknownKeyError, "Dense is a functionality", "CPU")
def _(lib, backends):
    return lambda: lib.impl("f", kernel, "Dense")


@row("alias in a key set", UnknownKeyError, "CompositeImplicitAutograd is an alias", "members")
def _(lib, backends):
    return lambda: DispatchKeySet("CIA")


@row("unknown backend", UnknownKeyError, "'nowhere'", "backends: CPU, ")
def _(lib, backends):
    return lambda: register_kernel(f"{lib.namespace}::f", "nowhere", kernel)


@row("unknown alias-analysis kind", RegistrationError, "'ODD'", "CONSERVATIVE")
def _(lib, backends):
    return lambda: lib.define("f(Tensor x) -> Tensor", alias_analysis="ODD")


@row("tag that the schema does not bear out", SchemaError, "{ns}::f", "`inplace`", "Tensor(a!)")
def _(lib, backends):
    return lambda: lib.define("f(Tensor x) -> Tensor", tags=("inplace",))


@row("override", OverrideWarning, "{ns}::f", "CPU", "binary_kernel at", "new_kernel at", HERE, HERE)
def _(lib, backends):
    def new_kernel(x, y):
        return x

    lib.impl("f", binary_kernel, "CPU")
    return lambda: lib.impl("f", new_kernel, "CPU")


@row("override that is not allowed", RegistrationError, "{ns}::f", "CPU", "binary_kernel at", HERE,
     "allow_override=True")
def _(lib, backends):
    lib.impl("f", binary_kernel, "CPU")
    return lambda: lib.impl("f", kernel, "CPU", allow_override=False)


@row("backend name taken", RegistrationError, "'CPU' is taken")
def _(lib, backends):
    return lambda: register_backend("CPU", type("Array", (), {}))


@row("backend of a type that has one", RegistrationError, "ndarray is registered already", "CPU", "subclass")
def _(lib, backends):
    return lambda: register_backend("Fresh", np.ndarray)


@row("array type registered twice", RegistrationError, "MetaArray is registered already", "Meta")
def _(lib, backends):
    return lambda: register_array_type(MetaArray, "CPU", "Sparse")


@row("array type of no layout", RegistrationError, "'Striped'", "Sparse")
def _(lib, backends):
    return lambda: register_array_type(MetaArray, "CPU", "Striped")


@row("functionality name taken", RegistrationError, "'Tracer' is taken")
def _(lib, backends):
    return lambda: register_functionality("Tracer")


@row("container class registered twice", RegistrationError, "list is already a pytree node", "subclass")
def _(lib, backends):
    return lambda: register_pytree_node(list, iter, list)


# --- finding ------------------------------------------------------------------------------------------------


@row("schema of a schema-less operator", StaleOperatorError, "{ns}::f", "no schema", "define(")
def _(lib, backends):
    lib.impl("f", kernel, "CPU")
    op = find(f"{lib.namespace}::f")
    return lambda: op.schema


@row("call of a schema-less operator", StaleOperatorError, "{ns}::f", "no schema", "define(")
def _(lib, backends):
    lib.impl("f", kernel, "CPU")
    op = find(f"{lib.namespace}::f")
    return lambda: op(X)


@row("operator not found", OperatorNotFoundError, "{ns}::nope", "{ns}::there")
def _(lib, backends):
    lib.define("there(Tensor x) -> Tensor")
    return lambda: find_or_raise(f"{lib.namespace}::nope")


@row("attribute not found", OperatorNotFoundError, "{ns}::nope", "{ns}::there")
def _(lib, backends):
    lib.define("there(Tensor x) -> Tensor")
    return lambda: getattr(ops, lib.namespace).nope


@row("namespace not found", OperatorNotFoundError, "nothing_here::nope", "'nothing_here'", "import the module")
def _(lib, backends):
    return lambda: ops.nothing_here.nope


@row("found only an impl", OperatorNotFoundError, "{ns}::f", "no definition", "define(")
def _(lib, backends):
    lib.impl("f", kernel, "CPU")
    return lambda: find_or_raise(f"{lib.namespace}::f")


@row("attribute found only an impl", OperatorNotFoundError, "{ns}::f", "no definition", "define(")
def _(lib, backends):
    lib.impl("f", kernel, "CPU")
    return lambda: getattr(ops, lib.namespace).f


@row("overload not found", OperatorNotFoundError, "{ns}::f", "'nope'", "default")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor")
    packet = getattr(ops, lib.namespace).f
    return lambda: packet.nope


@row("get_kernel of an alias", UnknownKeyError, "CompositeImplicitAutograd is an alias", "get_kernel(")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor")
    return lambda: get_kernel(f"{lib.namespace}::f", "CIA")


@row("get_kernel of nothing", RegistrationError, "{ns}::f", "nothing under the key CPU", "impl(")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor")
    return lambda: get_kernel(f"{lib.namespace}::f", "CPU")


# --- calls --------------------------------------------------------------------------------------------------


def refused_call(name, call, *fragments):
    schema = "f(Tensor x, int n, float r=0.5, *, str k='k') -> Tensor"

    @row(name, DispatchTypeError, "{ns}::f", *fragments, "schema: {ns}::" + schema.replace("'k'", '"k"'))
    def _(lib, backends):
        lib.define(schema, lambda x, n, r=0.5, *, k="k": x)
        op = getattr(ops, lib.namespace).f
        return lambda: call(op)


refused_call("argument missing", lambda f: f(X), "'n'", "position 2", "int", "missing")
refused_call("all arguments missing", lambda f: f(), "'x'", "position 1", "Tensor", "missing")
refused_call("too many positional", lambda f: f(X, 1, 2, 3, 4), "5 positional", "at most 3", "k")
refused_call("keyword-only by position", lambda f: f(X, 1, 2, "k"), "4 positional", "at most 3", "pass k by keyword")
refused_call("argument twice", lambda f: f(X, 1, n=2), "'n'", "twice", "position 2", "2")
refused_call("unknown keyword", lambda f: f(X, 1, q=[7]), "'q'", "[7]", "x, n, r, k")
refused_call("wrong type", lambda f: f(X, "one"), "'n'", "position 2", "expected int", "found str 'one'")
refused_call("wrong type by keyword", lambda f: f(X, 1, k=5), "'k'", "position 4", "expected str", "found int 5")
refused_call("wrong type of a default", lambda f: f(X, 1, "r"), "'r'", "position 3", "expected float", "found str 'r'")
refused_call(
    "list for a Tensor", lambda f: f([1, 2], 1), "'x'", "position 1", "expected Tensor", "list [1, 2]", "asarray")
refused_call(
    "None for a Tensor", lambda f: f(None, 1), "'x'", "position 1", "expected Tensor", "found NoneType None", "asarray")
refused_call("None for an int", lambda f: f(X, None), "'n'", "expected int", "found NoneType None")
refused_call("float for an int", lambda f: f(X, 1.0), "'n'", "expected int", "found float 1.0")
refused_call("array for an int", lambda f: f(X, X), "'n'", "expected int", "found ndarray")
refused_call(
    "wrong type in redispatch", lambda f: f.default.redispatch(DispatchKeySet("CPU"), X, "one"), "'n'", "found str")
refused_call("too short a stack", lambda f: f.default.call_boxed([X]), "stack holds 1 values", "at least 4")
refused_call("wrong type on the stack", lambda f: f.default.call_boxed([X, "one", 0.5, "k"]), "'n'", "found str 'one'")
refused_call("too few values to strip", lambda f: f.default.strip_defaults([X]), "found 1 values", "expected 4")
refused_call("wrong arguments to explain", lambda f: f.explain(X), "'n'", "missing")


@row("wrong type in a list", DispatchTypeError, "{ns}::f", "'xs'", "element 1", "expected Tensor", "str 'a'",
     "schema: {ns}::f(")
def _(lib, backends):
    lib.define("f(Tensor[] xs) -> Tensor")
    return lambda: getattr(ops, lib.namespace).f([X, "a"])


@row("no overload fits", DispatchTypeError, "{ns}::f.a", "{ns}::f.b", "found str 'a'", "found str 'a'", "int", "float")
def _(lib, backends):
    lib.define("f.a(Tensor x, int y) -> Tensor")
    lib.define("f.b(Tensor x, float y) -> Tensor")
    return lambda: getattr(ops, lib.namespace).f(X, "a")


@row("parameter of NumPy that is left out", DispatchTypeError, "np::sin", "'where'", "is not supported", "np.where")
def _(lib, backends):
    return lambda: ops.np.sin(X, where=True)


@row("unrelated backends", DispatchTypeError, "{ns}::f", "A and B", "above=")
def _(lib, backends):
    lib.define("f(Tensor[] xs) -> str", lambda xs: "ran", "CEA")
    arrays = [backends.ArrayA(X), backends.ArrayB(X)]
    return lambda: getattr(ops, lib.namespace).f(arrays)


@row("no kernel for the key", NoKernelError, "{ns}::f", "key CPU", "argument 'y' (position 2, ndarray)",
     "Meta, AutogradCPU", "impl(")
def _(lib, backends):
    lib.define("f(int x, Tensor y) -> Tensor")
    lib.impl("f", lambda x, y: y, "Meta")
    lib.impl("f", lambda x, y: y, "AutogradCPU")
    return lambda: getattr(ops, lib.namespace).f(1, X)


@row("no kernel for the key of a Tensor", NoKernelError, "{ns}::f", "key CPU", "argument 'x' (position 1, Tensor)",
     "Meta")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor", kernel, "Meta")
    return lambda: getattr(ops, lib.namespace).f(Tensor(X))


@row("no kernel at all", NoKernelError, "{ns}::f", "key CPU", "no kernel is registered")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor")
    return lambda: getattr(ops, lib.namespace).f(X)


@row("no kernel for the default backend", NoKernelError, "{ns}::f", "key CPU", "no argument is an array",
     "default backend CPU")
def _(lib, backends):
    lib.define("f(Tensor[] xs) -> Tensor", lambda xs: xs[0], "Meta")
    return lambda: getattr(ops, lib.namespace).f([])


@row("no kernel for the device", NoKernelError, "{ns}::f", "key Meta", "'device'", "CPU")
def _(lib, backends):
    lib.define("f(*, Device? device=None) -> Tensor", lambda *, device=None: X, "CPU")
    return lambda: getattr(ops, lib.namespace).f(device="meta")


@row("no kernel for a key that a guard includes", NoKernelError, "{ns}::f", "key A", "guard", "CPU")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor", kernel, "CPU")
    return lambda: within(include_keys("A"), lambda: getattr(ops, lib.namespace).f(X))


@row("no fake kernel", NoKernelError, "{ns}::f", "no fake kernel", "key Meta", "CompositeExplicitAutograd",
     "library.register_fake(")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor", kernel, "CEA")
    return lambda: getattr(ops, lib.namespace).f(MetaArray(3))


@row("no key is left", NoKernelError, "{ns}::f", "no array argument", "CPU", "list empty?", "CompositeExplicitAutograd")
def _(lib, backends):
    lib.define("f(Tensor[] xs) -> Tensor", lambda xs: xs[0], "CPU")
    return lambda: within(exclude_keys("BackendSelect"), lambda: getattr(ops, lib.namespace).f([]))


@row("redispatch to a fall-through", NoKernelError, "{ns}::f", "AutogradCPU", "falls through", "full_after(")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor", kernel, "CPU")
    op = getattr(ops, lib.namespace).f.default
    return lambda: op.redispatch(DispatchKeySet("AutogradCPU"), X)


def within(guard, call):
    with guard:
        return call()


@row("ambiguous AutogradOther", AmbiguousKernelError, "{ns}::f", "AutogradOther", "CompositeImplicitAutograd",
     "SparseCPU", "impl(", "below_autograd()", "name: {ns}::f", "schema: {ns}::f(Tensor x) -> Tensor",
     "SparseCPU: kernel at")
def _(lib, backends):
    lib.define("f(Tensor x) -> Tensor", kernel)
    lib.impl("f", kernel, "SparseCPU")
    sparse = Tensor(backends.SparseArray(X))
    return lambda: getattr(ops, lib.namespace).f(sparse)


def bad_result(name, returns, result, *fragments):
    @row(name, DispatchTypeError, "{ns}::f", "kernel", HERE, *fragments, "schema: {ns}::f(Tensor x) -> " + returns)
    def _(lib, backends):
        lib.define(f"f(Tensor x) -> {returns}", lambda x: result)
        return lambda: getattr(ops, lib.namespace).f(X)


bad_result("result of the wrong type", "Tensor", [1], "expected Tensor", "found list [1]", "asarray")
bad_result("number for an argument", "Tensor(a!)", 1, "expected Tensor", "found int 1")
bad_result("None for a Tensor result", "Tensor", None, "expected Tensor", "found NoneType None")
bad_result("results too few", "(Tensor, int)", (X,), "1 values", "tuple of 2 values")
bad_result("results too many", "(Tensor, int)", (X, 1, 2), "3 values", "tuple of 2 values")
bad_result("results not in a tuple", "(Tensor, int)", 1, "returned int 1", "tuple of 2 values")
bad_result("second result of the wrong type", "(Tensor, int)", (X, X), "result 2", "expected int", "found ndarray")
bad_result("result where none is declared", "()", X, "ndarray", "expected None")


@row(
    "boxed kernel that miscounts", DispatchTypeError, "{ns}::f", "boxed_kernel at", HERE, "left 2 values", "expected 1")
def _(lib, backends):
    def boxed_kernel(op, stack):
        stack.push(X)

    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", boxed_kernel, "CPU", boxed=True)
    return lambda: getattr(ops, lib.namespace).f(X)


# --- what is gone -------------------------------------------------------------------------------------------


def removed(lib):
    """Return an operator whose library is closed, its packet, and its kernel."""
    library = Library(lib.namespace, "FRAGMENT")
    library.define("gone(Tensor x) -> Tensor", kernel)
    packet = getattr(ops, lib.namespace).gone
    op = packet.default
    bound = get_kernel(op, "CPU")
    library.close()
    return op, packet, bound


@row("stale operator", StaleOperatorError, "{ns}::gone", "no longer registered", HERE, "ops.{ns}.gone")
def _(lib, backends):
    op, _, _ = removed(lib)
    return lambda: op(X)


@row("stale packet", StaleOperatorError, "{ns}::gone", "no longer registered", "ops.{ns}.gone")
def _(lib, backends):
    _, packet, _ = removed(lib)
    return lambda: packet(X)


@row("stale kernel", StaleOperatorError, "{ns}::gone", "kernel at", HERE, "no longer registered", "get_kernel(")
def _(lib, backends):
    _, _, bound = removed(lib)
    return lambda: bound(X)


# --- Tensors and guards -------------------------------------------------------------------------------------


@row("Tensor of a string", DispatchTypeError, "not str", "asarray")
def _(lib, backends):
    return lambda: Tensor("1.0")


@row("Tensor of a list of objects", DispatchTypeError, "array of objects", "dtype=object")
def _(lib, backends):
    return lambda: Tensor([None])


@row("Tensor made twice", DispatchTypeError, "cannot be replaced", "Tensor(array)")
def _(lib, backends):
    tensor = Tensor(X)
    return lambda: tensor.__init__(X)


@row("array as out of NumPy's function for a tracked Tensor", DispatchTypeError, "a NumPy array cannot hold",
     "like=tensor")
def _(lib, backends):
    tensor = Tensor(X, requires_grad=True)
    return lambda: np.sum(tensor, out=np.empty(()))


@row("function that NumPy dispatches and pydispatch.numpy has not", DispatchTypeError, "numpy.smoothed", "numpy()")
def _(lib, backends):
    def smoothed(x):
        return x
    smoothed.__module__ = "numpy"
    tensor = Tensor(X)
    return lambda: tensor.__array_function__(smoothed, (Tensor,), (tensor,), {})


@row("NumPy array of another backend's Tensor", DispatchTypeError, "backend A", "ArrayA")
def _(lib, backends):
    tensor = Tensor(backends.ArrayA(X))
    return lambda: np.asarray(tensor)


@row("data of a meta array", DispatchTypeError, "MetaArray", "no data")
def _(lib, backends):
    return lambda: bool(MetaArray(3))


@row("guard never entered", StateOrderError, "include_keys(Tracer)", "not entered", "same thread or task")
def _(lib, backends):
    guard = include_keys("Tracer")
    return lambda: guard.__exit__(None, None, None)


@row("guard left out of order", StateOrderError, "include_keys(Tracer)", "default_backend('Meta')", "nest `with`")
def _(lib, backends):
    outer, inner = include_keys("Tracer"), default_backend("Meta")

    def leave():
        outer.__enter__()
        with inner:
            outer.__exit__(None, None, None)

    return leave


# --- the tests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_the_error_catalogue(fresh, backends, row):
    trigger = row.prepare(fresh, backends)
    before = debug.dump_state()
    with pytest.raises(row.error) as caught:
        trigger()
    text = str(caught.value)
    for fragment, times in Counter(row.fragments).items():
        assert text.count(fragment.format(ns=fresh.namespace)) >= times, text
    assert debug.dump_state() == before, "it left a trace"
    debug.check_invariants()
    if issubclass(row.error, DispatchError):
        first, *rest = text.splitlines()
        assert len(first) > 10
        assert rest, "no second line"
        assert caught.value.__cause__ is None


BUILTINS = {SchemaError: ValueError, RegistrationError: RuntimeError, UnknownKeyError: ValueError,
            DispatchTypeError: TypeError, NoKernelError: NotImplementedError, AmbiguousKernelError: RuntimeError,
            StaleOperatorError: RuntimeError, StateOrderError: RuntimeError, OperatorNotFoundError: LookupError}


@pytest.mark.parametrize(("error", "builtin"), BUILTINS.items(), ids=[error.__name__ for error in BUILTINS])
def test_every_error_is_also_what_users_would_catch(error, builtin):
    assert issubclass(error, DispatchError)
    assert issubclass(error, builtin)
    assert error in {row.error for row in ROWS}


def test_a_missing_operator_is_a_missing_attribute():
    assert not hasattr(ops.np, "no_such_operator")
    assert not hasattr(ops.np.add, "no_such_overload")


@pytest.mark.parametrize(
    "category", [exceptions.OverrideWarning, exceptions.PerformanceWarning, exceptions.UntrackedResultWarning])
def test_warnings_are_user_warnings(category):
    assert issubclass(category, UserWarning)


def test_the_override_warning_points_at_the_user(fresh):
    fresh.impl("f", kernel, "CPU")
    with all_warnings() as caught:
        fresh.impl("f", lambda x: x, "CPU")
        register_kernel(f"{fresh.namespace}::f", "CPU", lambda x: x).remove()
    assert [warning.filename for warning in caught] == [__file__] * 2
