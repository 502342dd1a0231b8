"""The functions of `pydispatch.numpy`, and of other faces: what each is, and how an operator becomes one.

Each public function of NumPy is exactly one of

- an operator: simple calls go straight to it; `Adapter` converts lists and handles the arguments that only NumPy has;
- a function written with operators, whose derivatives, batching rules and meta kernels serve it: `@array_function`;
- a constant function, of one kind or the other, that has no gradient by nature;
- passed on: no array comes in or goes out (`passed_on.py` lists them);
- refused where a Tensor comes in, with the reason (`REFUSED`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import ArrayFunction, MetaArray, OpOverloadPacket, Tensor, is_array, known_array
from pydispatch.exceptions import ConversionError, DataDependentError, DispatchTypeError, VmapError
from pydispatch.operators.declare import PACKS
from pydispatch.operators.meta import broadcastable
from pydispatch.ops import ops
from pydispatch.registry.operators import packet
from pydispatch.registry.sites import caller_site
from pydispatch.registry.tables import build_table

F = TypeVar("F", bound=Callable[..., Any])

OPERATOR, COMPOSITE, CONSTANT, REFUSED = "operator", "written with operators", "constant", "refused"
OF_NUMPY: dict[Any, ArrayFunction] = {}
"""The function that stands for each one that NumPy calls with Tensors: its own, and the universal ones of others."""

UNKNOWN = (ConversionError, DataDependentError, DispatchTypeError, VmapError)
"""What the conversion of an array to a number raises where its value is unknown."""


class Face:
    """The functions of a library, by the names that they have there, for Tensors too.

    `module` is the name of ours, `namespace` that of the operators; `functions` has each by its name in the library,
    such as "sum" and "linalg.solve", `kinds` what it is, and `reasons` why a refused one is refused. `on_error` gets
    the name of a function and what its call raises.
    """

    def __init__(self, module: str, namespace: str, library: ModuleType,
                 on_error: Callable[[str, Exception], None] | None = None):
        self.module = module
        self.namespace = namespace
        self.library = library
        self.on_error = on_error
        self.functions: dict[str, ArrayFunction] = {}
        self.kinds: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def packet(self, name: str) -> OpOverloadPacket:
        """The operator of this name, the same object that formulas of its pack find; it may be declared later."""
        return PACKS[self.namespace].operators(name)[0]

    def original(self, name: str) -> Any:
        """The library's function of this name, None where the installed version has none."""
        found: Any = self.library
        for part in name.split("."):
            found = getattr(found, part, None)
        return found

    def declare(
        self, name: str, implementation: Callable[..., Any], kind: str, *, takes_more: bool = False, **of_operator: Any
    ) -> ArrayFunction:
        """Declare the function of this name; with `takes_more` the library's own is never called in its place."""
        original = self.original(name)
        if self.on_error is not None:
            of_operator["on_error"] = partial(self.on_error, name)
        function = ArrayFunction(None if takes_more else original, implementation, **of_operator)
        module, _, base = name.rpartition(".")
        function.__dict__.update(
            __name__=base, __qualname__=base, __module__=f"{self.module}.{module}".rstrip("."),
            __doc__=getattr(original, "__doc__", None) or implementation.__doc__,
            __wrapped__=original if isinstance(implementation, Adapter) or kind == REFUSED else implementation,
        )
        if of_operator.get("keeps"):
            _core.as_builtin(function, signature_without_types(implementation))
        self.functions[name] = function
        self.kinds[name] = kind
        if original is not None:
            OF_NUMPY[original] = function
        return function

    def array_function(
        self, module: str = "", *, constant: bool = False, added: Iterable[str] = (), takes_more: bool = False,
        keeps: str | None = None, operator: tuple[int, int, tuple[str, ...]] | None = None, joins: bool = False,
        creates: bool = False, of_vectors: bool = False, after_text: bool = False,
    ) -> Callable[[F], F]:
        """Declare a function written with operators, with the signature of the library's function of that name.

        The function gets whatever the library's takes, and is called if an argument is a Tensor, if a transform, mode
        or guard is active, or if a keyword of `added`, which the library's does not have, is passed; always with
        `takes_more`, if it takes values that the library's refuses. `keeps` is the memory layout of arrays that are
        their own results: "C", "F", or "K" for any; users get a builtin in place of such a function, since CPython
        calls builtins more quickly. `operator` says which calls with Tensors the operator of
        the same name takes as they are: how many leading arguments have to be arrays for that, how many it takes by
        position, and which by keyword; with `joins` the first is a list of arrays, `of_vectors` they must have one
        axis, `after_text` they follow a text. A function that `creates` arrays of shapes and numbers makes them on the
        default backend.
        """
        def declared(implementation: F) -> F:
            name = f"{module}.{implementation.__name__}".lstrip(".")
            kind = CONSTANT if constant else COMPOSITE
            of_operator: dict[str, Any] = {}
            if operator is not None:
                n_arrays, n_positional, keywords = operator
                of_operator = {"operator": self.packet(name.replace(".", "_")), "n_arrays": n_arrays,
                               "n_positional": n_positional, "keywords": frozenset(keywords), "numpy_first": True,
                               "joins": joins, "of_vectors": of_vectors, "after_text": after_text}
            return self.declare(  # type: ignore[return-value]
                name, implementation, kind, takes_more=takes_more, added=frozenset(added) or None, keeps=keeps,
                creates=creates, **of_operator).public
        return declared

    def declare_operator(
        self, name: str, n_arrays: int, n_positional: int, keywords: Iterable[str] = (), *, constant: bool = False,
        operator: str | None = None, adapter: type[Adapter] | None = None,
    ) -> ArrayFunction:
        """Declare the function of an operator; `operator` is the name of that if it is not the library's.

        The operator is called as it is where the first `n_arrays` arguments are arrays or numbers, at most
        `n_positional` come by position, and `keywords` are all that come by keyword.
        """
        operator = operator or name.replace(".", "_")
        adapter = adapter or Adapter
        return self.declare(name, adapter(self, operator, self.original(name)), CONSTANT if constant else OPERATOR,
                            operator=self.packet(operator), n_arrays=n_arrays, n_positional=n_positional,
                            keywords=frozenset(keywords), added=adapter.added)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Declare functions that take no Tensors; `reasons` says why, and what to write instead."""
        for name, reason in reasons.items():
            self.reasons[name] = reason
            self.declare(name, self.refusal(name, reason), REFUSED)

    def refusal(self, name: str, reason: str) -> Callable[..., Any]:
        """What a refused function does with Tensors, and under transforms and modes."""
        def refused(*args: Any, **kwargs: Any) -> Any:
            raise DispatchTypeError(f"{self.library.__name__}.{name} takes no Tensor\n{reason}")
        return refused


NUMPY = Face("pydispatch.numpy", "np", np)
FUNCTIONS, KINDS, REASONS = NUMPY.functions, NUMPY.kinds, NUMPY.reasons
declare, array_function, declare_operator = NUMPY.declare, NUMPY.array_function, NUMPY.declare_operator
numpys, refuse, refusal = NUMPY.original, NUMPY.refuse, NUMPY.refusal


def signature_without_types(function: Callable[..., Any]) -> str:
    """Its parameters with their defaults, in parentheses."""
    parameters = inspect.signature(function).parameters.values()
    return str(inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters]))


# --- arguments -------------------------------------------------------------------------------------------------------


def as_array(value: Any) -> Any:
    """The array that NumPy would make of an argument; arrays, Tensors and numbers stay what they are.

    A sequence with Tensors in it is stacked. A number stays one, so that it takes on the dtype of what it meets.
    """
    if is_array(value) or isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, (list, tuple)) and holds_arrays_of_others(value):
        return stacked(value)
    return np.asarray(value)


def as_nonscalar(value: Any) -> Any:
    """`as_array`, but a number becomes a 0-d array: for code that reads shape or dtype."""
    if is_array(value):
        return value
    value = as_array(value)
    return value if is_array(value) else np.asarray(value)


def maker_beside(value: Any) -> Any:
    """Where the functions are that make arrays beside this value.

    An array brings its own backend, and NumPy's arrays join that; beside numbers, operators make those of the default.
    """
    return np if is_array(value) else ops.np


def as_key(key: Any) -> Any:
    """A key in which sequences have become arrays of indices, or masks."""
    return tuple([as_index(item) for item in key]) if isinstance(key, tuple) else as_index(key)


def as_index(item: Any) -> Any:
    """An item of a key; a sequence becomes an array of indices or a mask."""
    if not isinstance(item, (list, tuple)):
        return item
    found = as_array(item)
    return found if found.size or not isinstance(found, np.ndarray) else found.astype(np.intp)


def known_values(x: Any) -> np.ndarray | None:
    """The elements of an array or Tensor, to decide by; None where they are unknown.

    They are unknown under `vmap` and modes, in a trace and on Meta, but not under `grad` and `jvp`. A raw array is a
    constant everywhere: what operators make in traces and under modes are Tensors.
    """
    x = known_array(x)
    return np.asarray(x) if isinstance(x, (np.ndarray, np.generic)) else None


def number_if_known(number: Any) -> int | None:
    """A number, which a lazy array computes; None under vmap, in a trace and on Meta, where it is unknown."""
    try:
        return int(number)
    except UNKNOWN:
        return None


def decided_by(number: Any, what: str, remedy: str) -> int:
    """A number on which the shape or dtype of a result depends; DataDependentError where it is unknown."""
    try:
        return int(number)
    except UNKNOWN as error:
        raise DataDependentError(f"{what} depends on values, which are unknown under vmap, in a trace and on Meta "
                                 f"(at {caller_site()})\n{remedy}") from error


def read_off(x: Any) -> np.ndarray:
    """The elements of an array or Tensor as NumPy's, which a lazy array computes; ConversionError if it has none."""
    array = known_array(x)
    is_of_numpy = array is None or isinstance(array, (np.ndarray, np.generic, MetaArray))
    return np.asarray(x.tolist() if is_of_numpy and isinstance(x, Tensor) else array)


def holds_arrays_of_others(values: Iterable[Any]) -> bool:
    """Is there a Tensor, or an array that is not NumPy's, somewhere in these lists?"""
    return any(holds_arrays_of_others(value) if isinstance(value, (list, tuple)) else
               is_array(value) and not isinstance(value, (np.ndarray, np.generic)) for value in values)


def stacked(values: Iterable[Any]) -> Any:
    """Nested sequences of arrays and numbers, stacked as `numpy.array` stacks them; ValueError where shapes differ."""
    parts = [as_nonscalar(value) for value in values]
    shapes = {tuple(part.shape) for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"array: the parts of a nested sequence have different shapes, {sorted(shapes)}\n"
                         "pass parts of one shape, or join them with concatenate")
    dtype = np.result_type(*[part.dtype for part in parts])
    return ops.np.stack([part if part.dtype == dtype else ops.np.astype(part, dtype) for part in parts])


def into(out: Any, result: Any, casting: Any = "unsafe", *, repeats: bool = False) -> Any:
    """`result`, written into `out` unless that is None, and maybe `repeats` until it fills that.

    Raises DispatchTypeError for an array that cannot hold a Tensor.
    """
    if out is None:
        return result
    if isinstance(out, tuple):
        out, = out
        return into(out, result, casting, repeats=repeats)
    if not is_array(out):
        raise TypeError(f"out is {_core.a_type(out)}, expected an array\npass an array or a Tensor to write to")
    if casting != "unsafe" and not np.can_cast(result.dtype, out.dtype, casting):
        raise TypeError(f"out has dtype {out.dtype}, to which the result, of {result.dtype}, is not cast by the rule "
                        f"{casting!r}\npass an out of dtype {result.dtype}, or casting='unsafe'")
    shape, found = tuple(getattr(result, "shape", ())), tuple(out.shape)
    if not (broadcastable(shape, found) if repeats else shape == found):
        raise ValueError(f"out has shape {found}, the result has shape {shape}\npass out=np.empty({shape}, ...)")
    if isinstance(result, Tensor) and not isinstance(out, Tensor):
        if carries_something(result):
            raise DispatchTypeError(
                "an array was passed as out for a Tensor that is tracked, or belongs to a transform or mode, which an "
                "array cannot hold\nwrite result = f(...) without out, or pass a Tensor as out")
        out[...] = result.numpy()
        return out
    ops.np.setitem_(out, ..., result)
    return out


def carries_something(tensor: Tensor) -> bool:
    """Is this Tensor more than its array: tracked, or a value of a transform or mode?"""
    return type(tensor) is not Tensor or tensor.requires_grad


# --- operators -------------------------------------------------------------------------------------------------------

IGNORED: dict[str, tuple[Any, ...]] = {
    "order": ("K", "C", "A", None), "subok": (True, False), "like": (None,), "signature": (None,), "extobj": (None,),
    "axes": ([(-2, -1)] * 3, [(-1,), (-2, -1), (-1,)]),
}
"""Arguments of NumPy's functions that operators do not have, with the values that do not change the result.

Those of `axes` are what `array @= tensor` passes to `matmul`.
"""
ABSENT = getattr(np, "_NoValue", None)
INSTEAD: dict[str, float] = {"arcsin": 0, "arccos": 0, "arctanh": 0, "arccosh": 2}
"""For functions that are not smooth at 1: a point where they are."""


class Adapter:
    """An operator that takes what the library's function takes: lists, its arguments by position, its defaults."""

    added: frozenset[str] | None = None
    """Keywords that the library's function does not have."""

    def __init__(self, face: Face, name: str, original: Any):
        self.face = face
        self.name = name
        self.original = original
        self.parameters: tuple[str, ...] = ()       # until the first call

    def prepare(self) -> None:
        """Read the signature; on the first call, since most functions are never called."""
        self.operator = packet(self.face.namespace, self.name)
        signature = build_table(self.operator.overloads[0]).signature
        declaration = PACKS[self.face.namespace].declaration(self.name)
        assert declaration is not None
        self.writes = declaration.operation.variants.out is not None
        is_universal = isinstance(self.original, np.ufunc)
        self.takes_out = (self.writes or "out" in positional_names(self.original)
                          or (is_universal and self.original.nout == 1))
        self.repeats = is_universal and self.original.signature is None
        self.parameters = signature.names
        self.positional = signature.names[:signature.n_positional]
        self.arrays, self.lists = signature.array_arguments, signature.array_lists
        self.left_out = declaration.left_out
        self.in_order = positional_names(self.original) or [*self.positional, "out"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.parameters:
            self.prepare()
        if len(args) > len(self.in_order):
            raise TypeError(f"{self.name}() takes at most {len(self.in_order)} positional arguments, "
                            f"{len(args)} were given")
        named = dict(zip(self.in_order, args, strict=False))
        for key in kwargs:
            if key in named:
                raise TypeError(f"{self.name}() got multiple values for argument {key!r}")
        named.update(kwargs)
        if "out" in named and not self.takes_out:
            raise TypeError(f"{self.name}() got an unexpected keyword argument 'out'")
        out, mask = named.pop("out", None), None
        if "where" in named and "where" not in self.parameters:
            mask = named.pop("where")
        passed = {key: self.converted(key, value) for key, value in named.items() if self.has(key, value)}
        if mask is not None and mask is not True:
            return self.call_where(as_array(mask), passed, out)
        return self.call(passed, out)

    def has(self, key: str, value: Any) -> bool:
        """Does the operator take this argument? Raises for one that it lacks and whose value is not the default."""
        if value is ABSENT:
            return False
        if key in self.parameters:
            return True
        if value in IGNORED.get(key, ()) if not is_array(value) else False:
            return False
        if key not in self.left_out and key not in IGNORED:
            raise TypeError(f"{self.name}() got an unexpected keyword argument {key!r}")
        library = self.face.library.__name__
        raise DispatchTypeError(f"{library}.{self.name} was called with a Tensor and {key}={value!r}\n"
                                f"{self.left_out.get(key, 'leave it out')}")

    def converted(self, key: str, value: Any) -> Any:
        """An argument as the operator takes it."""
        if key not in self.arrays or value is None:
            return tuple(value) if type(value) is list else value
        if key in self.lists:
            return [as_nonscalar(item) for item in value]
        found = as_array(value)
        if key == "indices" and isinstance(value, (list, tuple)) and isinstance(found, np.ndarray):
            return found.astype(np.intp)        # of lists NumPy takes [] and [1.0] too, of arrays integers alone
        return found

    def call(self, passed: dict[str, Any], out: Any) -> Any:
        """Call the operator; it writes into `out` unless that is None."""
        if isinstance(out, tuple):
            out, = out
        if out is not None:
            if not self.writes or not isinstance(out, Tensor) or any(
                    isinstance(value, Tensor) and carries_something(value) for value in (out, *passed.values())):
                casting = passed.get("casting", "same_kind" if self.writes else "unsafe")
                return into(out, self.call(passed, None), casting, repeats=self.repeats)
            passed["out"] = out
        n = next((i for i, name in enumerate(self.positional) if name not in passed), len(self.positional))
        return self.operator(*[passed.pop(name) for name in self.positional[:n]], **passed)

    def call_where(self, mask: Any, passed: dict[str, Any], out: Any) -> Any:
        """`where=` of a universal function: elements outside of it keep the values that `out` has, or are undefined.

        The function is not evaluated there: it may be singular, and zero times an infinite slope is nan.
        """
        instead = INSTEAD.get(self.name, 1)
        for name in self.positional:
            if name in passed:
                passed[name] = ops.np.where(mask, passed[name],
                                            np.full((), instead, as_nonscalar(passed[name]).dtype))
        casting = passed.get("casting", "same_kind")
        result = self.call(passed, None)
        if out is None:
            return result
        target = out[0] if isinstance(out, tuple) else out
        return into(out, ops.np.where(mask, result, target), casting)


def positional_names(function: Any) -> list[str]:
    """The arguments that a function of NumPy's takes by position; [] if its signature is unknown."""
    if isinstance(function, np.ufunc):
        return []
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


_core.connect(as_array=as_array, as_key=as_key)
