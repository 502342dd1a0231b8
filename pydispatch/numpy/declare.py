"""The functions of `pydispatch.numpy`, and of other faces: their kinds, and how an operator becomes a function.

Each public function of NumPy is exactly one of

- an operator: simple calls go directly to it; `Adapter` converts lists and handles the arguments that only NumPy has;
- a function written with operators, whose derivatives, batching rules and meta kernels serve it: `@array_function`;
- a constant function, of one kind or the other, that has no gradient by nature;
- passed on: it neither takes nor returns arrays (`passed_on.py` lists these);
- refused for Tensors, with the reason (`REFUSED`).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import (
    ArrayFunction,
    BatchedTensor,
    Grad,
    Jvp,
    MetaArray,
    OpOverloadPacket,
    Tensor,
    Vmap,
    is_array,
    known_array,
)
from pydispatch._registry.conversions import storing_error
from pydispatch._registry.operators import packet
from pydispatch._registry.tables import build_table
from pydispatch._sites import caller_site
from pydispatch.exceptions import ConversionError, DataDependentError, DispatchTypeError, VmapError
from pydispatch.func.concrete import concrete_value
from pydispatch.func.functionalize import Functionalize
from pydispatch.func.linearize import Linearize
from pydispatch.memory import axes_in_memory
from pydispatch.operators.declare import PACKS
from pydispatch.operators.layouts import in_c_order, layout_of
from pydispatch.operators.meta import broadcastable
from pydispatch.ops import ops
from pydispatch.schema.fitting import signature_of
from pydispatch.tensor import in_place_of
from pydispatch.tree import tree_map

F = TypeVar("F", bound=Callable[..., Any])

OPERATOR, COMPOSITE, CONSTANT, REFUSED = "operator", "written with operators", "constant", "refused"
OF_NUMPY: dict[Any, ArrayFunction] = {}
"""The array function for each function that NumPy calls with Tensors, universal functions of others included."""

OF_UNIVERSAL = ("nin", "nout", "nargs", "ntypes", "types", "identity", "signature")
"""The attributes that an array function has if NumPy's function is universal."""

UNKNOWN = (ConversionError, DataDependentError, DispatchTypeError, VmapError)
"""The errors that the conversion of an array to a number raises if its value is unknown."""


class Face:
    """The functions of a library, by their names in it, for Tensors too.

    `module` is the name of the module of array functions, `namespace` the namespace of the operators. `functions` maps
    the names in the library, such as "sum" and "linalg.solve", to array functions, `kinds` maps them to their kinds,
    and `reasons` to the reason of a refused one. `on_error` is called with the name of a function and the exception
    that its call raises.
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
        """Return the operator of this name, the same object that formulas of its pack find.

        It may be declared later.
        """
        return PACKS[self.namespace].operators(name)[0]

    def original(self, name: str) -> Any:
        """Return the library's function of this name, or None if the installed version has none."""
        found: Any = self.library
        for part in name.split("."):
            found = getattr(found, part, None)
        return found

    def declare(
        self, name: str, implementation: Callable[..., Any], kind: str, *, takes_more: bool = False, **of_operator: Any
    ) -> ArrayFunction:
        """Declare the function of this name. With `takes_more`, the library's own function is never called instead."""
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
        if isinstance(original, np.ufunc):
            function.__dict__.update({name: getattr(original, name) for name in OF_UNIVERSAL})
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

        The function takes all arguments of the library's function. It is called if an argument is a Tensor, if a
        transform, mode or guard is active, or if a keyword of `added`, which the library's function does not have, is
        passed. With `takes_more`, for a function that takes values that the library's refuses, it is always called.

        `keeps` is the memory layout of arrays that are their own results: "C", "F", or "K" for any. Users get a builtin
        instead of such a function, since CPython calls builtins more quickly.

        `operator` specifies which calls with Tensors go directly to the operator of the same name: how many leading
        arguments have to be arrays, how many arguments it takes by position, and which by keyword. With `joins` the
        first argument is a list of arrays, with `of_vectors` they must have one axis, with `after_text` they follow a
        text. A function that `creates` arrays from shapes and numbers makes them on the default backend.
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
        """Declare the function of an operator. `operator` is its name if it differs from the library's.

        The operator is called directly if the first `n_arrays` arguments are arrays or numbers, at most `n_positional`
        are passed by position, and all that are passed by keyword are in `keywords`.
        """
        operator = operator or name.replace(".", "_")
        adapter = adapter or Adapter
        return self.declare(name, adapter(self, operator, self.original(name)), CONSTANT if constant else OPERATOR,
                            operator=self.packet(operator), n_arrays=n_arrays, n_positional=n_positional,
                            keywords=frozenset(keywords), added=adapter.added)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Declare functions that do not take Tensors. `reasons` specifies the reason, and what to write instead."""
        for name, reason in reasons.items():
            self.reasons[name] = reason
            self.declare(name, self.refusal(name, reason), REFUSED)

    def refusal(self, name: str, reason: str) -> Callable[..., Any]:
        """Return the implementation of a refused function, for Tensors and under transforms and modes."""
        def refused(*args: Any, **kwargs: Any) -> Any:
            raise DispatchTypeError(f"{self.library.__name__}.{name} does not take a Tensor\n{reason}")
        return refused


NUMPY = Face("pydispatch.numpy", "np", np)
FUNCTIONS, KINDS, REASONS = NUMPY.functions, NUMPY.kinds, NUMPY.reasons
declare, array_function, declare_operator = NUMPY.declare, NUMPY.array_function, NUMPY.declare_operator
numpys, refuse, refusal = NUMPY.original, NUMPY.refuse, NUMPY.refusal


def signature_without_types(function: Callable[..., Any]) -> str:
    """Return the parameters of a function with their defaults, in parentheses."""
    parameters = inspect.signature(function).parameters.values()
    return str(inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters]))


# --- arguments -------------------------------------------------------------------------------------------------------


def as_array(value: Any) -> Any:
    """Return the array that NumPy would make of an argument. Arrays, Tensors and numbers are unchanged.

    A sequence that contains Tensors is stacked. A number is not converted, so that it takes on the dtype of the other
    operand.
    """
    if isinstance(value, np.matrix):
        return np.asarray(value)        # formulas of derivatives multiply elementwise
    if is_array(value) or isinstance(value, (bool, int, float, complex)):
        return value
    if isinstance(value, (list, tuple)) and holds_arrays_of_others(value):
        return stacked(value)
    return np.asarray(value)


def as_nonscalar(value: Any) -> Any:
    """Convert a value like `as_array`, but a number to a 0-d array, for code that reads shape or dtype."""
    value = as_array(value)
    return value if is_array(value) else np.asarray(value)


def entered(made: Any) -> Any:
    """Return new NumPy arrays as values of the active transform or trace, to which its values can be written.

    Arrays in a tuple are entered, and anything else is unchanged.
    """
    if not (_core.innermost_transform_now() or _core.operators_are_watched()):
        return made
    return tree_map(lambda leaf: ops.np.copy(leaf) if type(leaf) is np.ndarray and leaf.dtype.kind in "biufc" else leaf,
                    made)


def entered_in_transform(made: Any) -> Any:
    """Return new NumPy arrays as values of the active transform, if there is one."""
    return entered(made) if _core.innermost_transform_now() else made


def as_scalar(x: Any) -> Any:
    """Return a 0-d array as the scalar that NumPy returns for it. Other arrays are unchanged."""
    return x if x.shape else ops.np.getitem(x, ())


def as_zero_d(x: Any) -> Any:
    """Return a scalar as a 0-d array, as NumPy's functions do that convert it. Other arrays are unchanged."""
    return x if x.shape else ops.np.reshape(x, ())


def as_elements(values: Any, dtype: np.dtype[Any], casting: Any = "unsafe") -> Any:
    """Convert values to elements of a dtype, as NumPy writes them. Raise for values that the dtype cannot hold.

    Raises TypeError for an array that the rule does not cast.
    """
    if not is_array(values) and not (isinstance(values, (list, tuple)) and holds_arrays_of_others(values)):
        return np.asarray(values, dtype)
    values = as_array(values)
    if not np.can_cast(values.dtype, dtype, casting):
        raise TypeError(f"Cannot cast array data from {values.dtype!r} to {dtype!r} according to the rule '{casting}'")
    return ops.np.astype(values, dtype, copy=False)


def as_copied(value: Any, dtype: np.dtype[Any], casting: Any = "same_kind") -> Any:
    """Convert a value to elements of a dtype, as `copyto` writes it. Raise TypeError if the rule forbids it."""
    value = as_array(value)
    if is_array(value):
        return as_elements(value, dtype, casting)
    element = np.empty((), dtype)
    np.copyto(element, value, casting)
    return element


def common_dtype(values: Iterable[Any]) -> np.dtype[Any]:
    """Return the dtype that arrays are promoted to. Python numbers adapt to the dtypes of the others."""
    return np.result_type(*[value.dtype if is_array(value) else value for value in values])


ORDERS = ("C", "F", "A", "K")


def as_order(order: Any, allowed: Iterable[str] = ORDERS, default: str = "C") -> str:
    """Return the name of a memory order in capitals. Raise the same errors as NumPy for other values."""
    if order is None:
        return default
    if not isinstance(order, str):
        raise TypeError(f"order must be str, not {type(order).__name__}")
    if order.upper() not in ORDERS:
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    if order.upper() not in allowed:
        raise ValueError(f"order {order!r} is not permitted here, pass one of {', '.join(map(repr, allowed))}")
    return order.upper()


def chosen_order(order: str, arrays: Iterable[Any]) -> str:
    """Return the order, "C" or "F", that "A" means for an array made of these. Other orders are unchanged."""
    if order != "A":
        return order
    known = [layout for layout in map(layout_of, filter(is_array, arrays)) if layout is not None]
    return "F" if known and all(layout.flags.f_contiguous for layout in known) else "C"


def axes_in_order(x: Any, order: Any, allowed: Iterable[str] = ORDERS) -> tuple[int, ...] | None:
    """Return the axes in the order of reading, the slowest first, or None for their own order."""
    order = chosen_order(as_order(order, allowed), [x])
    ndim = len(x.shape)
    layout = layout_of(x) if order == "K" else None
    if layout is not None and not layout.flags.c_contiguous:
        axes = axes_in_memory(layout)
        return None if axes == sorted(axes) else (*[axis for axis in range(ndim) if axis not in axes], *axes)
    return tuple(range(ndim))[::-1] if order == "F" else None


def in_order(x: Any, order: str | None, *, copy: bool | None = None) -> Any:
    """Return `x` with its elements in memory in `order`: itself or a view if they already are, else a copy.

    With `copy` it is always a copy. "K" keeps the layout, "A" that of a view. Backends without layouts keep theirs.
    """
    order = as_order(order, default="K")
    if copy:
        return ops.np.copy(in_order(x, chosen_order(order, [x])))
    array = _core.bottom_array(x) if isinstance(x, Tensor) else x
    is_hidden = isinstance(array, MetaArray) and isinstance(x, Tensor) and type(x) is not Tensor
    if order in ("A", "K") or not (is_hidden or isinstance(array, np.ndarray)):
        return x
    if not is_hidden and array.flags[f"{order}_CONTIGUOUS"]:
        return x
    if order == "F":
        return ops.np.transpose(in_order(ops.np.transpose(x), "C", copy=copy))
    found = ops.np.reshape(ops.np.ravel(x), tuple(x.shape))     # if `ravel` has to copy, the copy is in order
    if copy is False and not _core.have_one_memory(found, x):
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    return found


def maker_beside(value: Any) -> Any:
    """Return the namespace of the functions that make arrays to combine with this value.

    An array has its own backend, and NumPy arrays adapt to it. For numbers, operators make arrays of the default
    backend.
    """
    return np if is_array(value) else ops.np


def as_key(key: Any) -> Any:
    """Convert the items of a key to the numbers and arrays that NumPy reads them as."""
    return tuple([as_index(item) for item in key]) if isinstance(key, tuple) else as_index(key)


def as_index(item: Any) -> Any:
    """Convert an item of a key: an object with `__index__` to a number, other sequences and objects to arrays.

    A single integer of a Tensor becomes a number if its value is known.
    """
    if isinstance(item, Tensor):
        return item if item.ndim or item.dtype.kind not in "iu" else number_of(item)
    if item is None or item is Ellipsis or isinstance(item, (slice, str, bytes)) or is_array(item) or is_number(item):
        return item
    if hasattr(type(item), "__index__"):
        return operator.index(item)
    found = as_array(item)
    if not isinstance(found, np.ndarray):
        return found
    # an empty array has an arbitrary dtype, and an object that holds no indices is refused later
    return found.astype(np.intp) if not found.size else found if found.dtype.kind in "iub" else item


def is_number(value: Any) -> bool:
    """Return whether the value is a Python or NumPy number."""
    return isinstance(value, (bool, int, float, complex, np.generic))


def number_of(item: Tensor) -> Any:
    """Return a single integer as a number, or the Tensor itself if its value is unknown."""
    known = known_values(item)
    if known is not None:
        return int(known)
    number = None if isinstance(item, _core.Wrapper) else number_if_known(item)
    return item if number is None else number


def known_values(x: Any) -> np.ndarray | None:
    """Return the elements of an array or Tensor to decide by, or None if they are unknown.

    They are unknown under `vmap` and modes, in a trace and on Meta, but not under `grad`, `jvp` and `functionalize`. A
    raw array is a constant everywhere, since operators return Tensors in traces and under modes.
    """
    known = known_array(x)
    if known is None and x is not None and all(map(_runs_on_values, _core.current_state().stack)):
        try:
            known = concrete_value(x)
        except UNKNOWN:
            return None
    return np.asarray(known) if isinstance(known, (np.ndarray, np.generic)) else None


def _runs_on_values(interpreter: _core.Interpreter) -> bool:
    """Return whether a function under this interpreter runs again for other values, unlike under a mode."""
    return isinstance(interpreter, (Functionalize, Grad, Jvp, Linearize, Vmap))


def number_if_known(number: Any) -> int | None:
    """Return a number, computed if it is a lazy array's, or None if it is unknown.

    It is unknown under vmap, in a trace and on Meta.
    """
    try:
        return int(number)
    except UNKNOWN:
        return None


def decided_by(number: Any, what: str, remedy: str) -> int:
    """Return a number on which the shape or dtype of a result depends.

    Raises DataDependentError if it is unknown.
    """
    try:
        return int(number)
    except UNKNOWN as error:
        raise DataDependentError(f"{what} depends on values, which are unknown under vmap, in a trace and on Meta "
                                 f"(at {caller_site()})\n{remedy}") from error


def numbers_that_decide(numbers: Any, what: str, remedy: str) -> np.ndarray:
    """Return the elements of an array on which the shape of a result depends.

    Raises DataDependentError if they are unknown.
    """
    numbers = as_array(numbers)
    known = known_values(numbers)
    if known is not None or not is_array(numbers):
        return np.asarray(numbers if known is None else known)
    try:
        return read_off(numbers)
    except UNKNOWN as error:
        raise DataDependentError(f"{what} depends on values, which are unknown under vmap, in a trace and on Meta "
                                 f"(at {caller_site()})\n{remedy}") from error


def as_indices(indices: Any) -> Any:
    """Return an argument that holds indices, or counts, as an array or Tensor.

    Of lists, NumPy also takes [] and [1.0].
    """
    found = as_nonscalar(indices)
    is_list_of_numbers = (isinstance(indices, (list, tuple)) and isinstance(found, np.ndarray)
                          and found.dtype.kind != "b")
    return found.astype(np.intp) if is_list_of_numbers else found


def read_off(x: Any) -> np.ndarray:
    """Return the elements of an array or Tensor as a NumPy array, computed if it is lazy.

    Raises ConversionError if it has none.
    """
    array = known_array(x)
    is_of_numpy = array is None or isinstance(array, (np.ndarray, np.generic, MetaArray))
    return np.asarray(concrete_value(x) if is_of_numpy else array)


def holds_arrays_of_others(values: Iterable[Any]) -> bool:
    """Return whether these lists contain a Tensor, or an array that is not NumPy's, at any depth."""
    return any(holds_arrays_of_others(value) if isinstance(value, (list, tuple)) else
               is_array(value) and not isinstance(value, (np.ndarray, np.generic)) for value in values)


def columns_of(arrays: list[Any]) -> tuple[Any, ...]:
    """Return indices for each axis. As in NumPy, they are views of the columns of one table."""
    if len(arrays) < 2 or not arrays[0].ndim:       # numbers are scalars
        return tuple(arrays)
    table = ops.np.stack(arrays, -1)
    return tuple([ops.np.getitem(table, (..., i)) for i in range(len(arrays))])


def stacked(values: Iterable[Any]) -> Any:
    """Stack nested sequences of arrays and numbers like `numpy.array`. Raise ValueError if shapes differ."""
    parts = [as_nonscalar(value) for value in values]
    shapes = {tuple(part.shape) for part in parts}
    if len(shapes) > 1:
        raise ValueError(f"array: the parts of a nested sequence have different shapes, {sorted(shapes)}\n"
                         "pass parts of one shape, or join them with concatenate")
    dtype = np.result_type(*[part.dtype for part in parts])
    return in_c_order(ops.np.stack([part if part.dtype == dtype else ops.np.astype(part, dtype) for part in parts]))


def check_cast(out: Any, result: Any, casting: Any) -> None:
    """Raise TypeError if the rule forbids writing a result into `out`."""
    dtype = as_nonscalar(result).dtype
    if casting != "unsafe" and not np.can_cast(dtype, out.dtype, casting):
        raise TypeError(f"out has dtype {out.dtype}, but the result has dtype {dtype}, and the rule {casting!r} "
                        f"does not allow the cast\npass an out of dtype {dtype}")


def into(out: Any, result: Any, casting: Any = "same_kind", *, repeats: bool = False) -> Any:
    """Write `result` into `out`, and return that. With `out` None, return `result`.

    With `repeats`, the result is repeated to fill `out`. Raises TypeError if the rule forbids the cast, and
    DispatchTypeError for an array that cannot hold the result.
    """
    if out is None:
        return result
    if out is Ellipsis:         # requests an array where NumPy would return a scalar
        return ops.np.copy(result) if _core.is_scalar(result) else result
    if isinstance(out, tuple):
        out, = out
        return into(out, result, casting, repeats=repeats)
    if not is_array(out):
        raise TypeError(f"out is {_core.a_type(out)}, expected an array\npass an array or a Tensor to write to")
    shape, found = tuple(getattr(result, "shape", ())), tuple(out.shape)
    if not (broadcastable(shape, found) if repeats else shape == found):
        raise ValueError(f"out has shape {found}, the result has shape {shape}\npass out=np.empty({shape}, ...)")
    check_cast(out, result, casting)
    if isinstance(result, Tensor) and not isinstance(out, Tensor):
        check_stored(result)
        out[...] = result.numpy()
        return out
    ops.np.setitem_(out, ..., result)
    return out


def into_alike(out: Any, result: Any) -> Any:
    """Write into `out` like `into`, for functions that copy elements, or positions, to `out`.

    NumPy requires that the dtype of `out` can be cast to theirs.
    """
    if is_array(out) and not np.can_cast(out.dtype, result.dtype):
        raise TypeError(f"Cannot cast array data from {out.dtype!r} to {result.dtype!r} according to the rule 'safe'")
    return into(out, result, "unsafe")


def carries_something(tensor: Tensor) -> bool:
    """Return whether this Tensor is more than its array: tracked, or a value of a transform or mode."""
    return type(tensor) is not Tensor or tensor.requires_grad


def check_stored(value: Any) -> None:
    """Raise DispatchTypeError for a value that a NumPy array to be written to cannot hold.

    Constants of `grad`, `jvp` and `functionalize` can be written. Results of `vmap` cannot, since a loop would write
    once per example.
    """
    if isinstance(value, Tensor):
        value = in_place_of(value)
    below = value
    while isinstance(below, Tensor) and not isinstance(below, BatchedTensor):
        below = _core.array_of(below)
    if isinstance(value, Tensor) and (
            not isinstance(below, np.ndarray) or value.dispatches_to_python or _core.is_followed(value)
            or any(mode.follows(value) for mode in _core.active_modes())):
        raise storing_error(value)


# --- operators -------------------------------------------------------------------------------------------------------

IGNORED: dict[str, tuple[Any, ...]] = {
    "order": (None,), "subok": (True, False), "like": (None,), "signature": (None,), "extobj": (None,),
    "axes": ([(-2, -1)] * 3, [(-1,), (-2, -1), (-1,)]),
}
"""Arguments of NumPy's functions that operators do not have, with the values that do not change the result.

`array @= tensor` passes those of `axes` to `matmul`.
"""
ABSENT = getattr(np, "_NoValue", None)
INSTEAD: dict[str, float] = {"arcsin": 0, "arccos": 0, "arctanh": 0, "arccosh": 2}
"""For functions that are not smooth at 1: a point where they are."""


class Adapter:
    """An operator with the interface of the library's function: its lists, positional arguments and defaults."""

    added: frozenset[str] | None = None
    """Keywords that the library's function does not have."""

    def __init__(self, face: Face, name: str, original: Any):
        self.face = face
        self.name = name
        self.original = original
        self.parameters: tuple[str, ...] = ()       # set by the first call

    def prepare(self) -> None:
        """Read the signature. This is done on the first call, since most functions are never called."""
        self.operator = packet(self.face.namespace, self.name)
        signature = build_table(self.operator.overloads[0]).signature
        declaration = PACKS[self.face.namespace].declaration(self.name)
        assert declaration is not None
        self.writes = declaration.operation.variants.out is not None
        self.is_universal = isinstance(self.original, np.ufunc)
        # NumPy casts what a reduction has computed to any dtype, except in std, whose square root is a function
        self.reduces = self.name != "std" and not {"reduction", "accumulation"}.isdisjoint(
            self.operator.overloads[0].tags)
        self.takes_out = (self.writes or "out" in positional_names(self.original)
                          or (self.is_universal and self.original.nout == 1))
        self.repeats = self.is_universal and self.original.signature is None
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
        order = as_order(named.pop("order", None), default="K") if self.is_universal else "K"
        if "out" in named and not self.takes_out:
            raise TypeError(f"{self.name}() got an unexpected keyword argument 'out'")
        out, mask = named.pop("out", None), None
        if "where" in named and "where" not in self.parameters:
            mask = named.pop("where")
        passed = {key: self.converted(key, value) for key, value in named.items() if self.has(key, value)}
        if order != "K" and out is None:
            order = chosen_order(order, passed.values())
        if mask is not None and mask is not True:
            result = self.call_where(as_array(mask), passed, out)
        else:
            result = self.call(passed, out)
        return result if order == "K" or out is not None else in_order(result, order)

    def has(self, key: str, value: Any) -> bool:
        """Return whether the operator takes this argument. Raise if it does not and the value is not the default."""
        if value is ABSENT or (value is None and key == "mode"):
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
        """Convert an argument to the form that the operator takes."""
        if key not in self.arrays or value is None:
            return tuple(value) if type(value) is list else value
        if key in self.lists:
            return [as_nonscalar(item) for item in value]
        found = as_array(value)
        if key == "indices" and isinstance(value, (list, tuple)) and isinstance(found, np.ndarray):
            return found.astype(np.intp)        # NumPy also takes the lists [] and [1.0], but only integer arrays
        return found

    def call(self, passed: dict[str, Any], out: Any) -> Any:
        """Call the operator, and write the result into `out` unless that is None."""
        if isinstance(out, tuple):
            out, = out
        if out is not None:
            if not self.writes or not isinstance(out, Tensor) or any(
                    isinstance(value, Tensor) and carries_something(value) for value in (out, *passed.values())):
                casting = passed.get("casting", "unsafe" if self.reduces else "same_kind")
                result = self.call(passed, None)
                if is_array(out) and "casting" in self.parameters:
                    check_cast(out, result, casting)    # before the shapes, as a universal function does
                if self.name in ("argmax", "argmin"):
                    return into_alike(out, result)
                return into(out, result, casting, repeats=self.repeats)
            passed["out"] = out
        n = next((i for i, name in enumerate(self.positional) if name not in passed), len(self.positional))
        return self.operator(*[passed.pop(name) for name in self.positional[:n]], **passed)

    def call_where(self, mask: Any, passed: dict[str, Any], out: Any) -> Any:
        """Call a universal function with `where=`. Other elements keep the values of `out`, or are undefined.

        The function is not evaluated at these elements. It may be singular there, and zero times an infinite slope is
        nan.
        """
        instead = INSTEAD.get(self.name, 1)
        for name in self.positional:
            if name in passed:
                passed[name] = ops.np.where(mask, passed[name],
                                            np.full((), instead, as_nonscalar(passed[name]).dtype))
        casting = passed.get("casting", "same_kind")
        result = self.call(passed, None)
        if out is None or out is Ellipsis:
            return into(out, result)
        target = out[0] if isinstance(out, tuple) else out
        return into(out, ops.np.where(mask, result, target), casting)


def positional_names(function: Any) -> list[str]:
    """Return the arguments that a function of NumPy takes by position, or [] if its signature is unknown."""
    signature = None if isinstance(function, np.ufunc) else signature_of(function)
    if signature is None:
        return []
    return [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


_core.connect(as_elements=as_elements, as_key=as_key, entered=entered_in_transform)
