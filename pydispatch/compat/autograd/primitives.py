"""Primitives: functions of raw arrays with derivatives that users define.

A call with a value that is being differentiated is applied as an `autograd.Function` is. Its rules run in the backward
pass, at the level below, and get raw arrays unless that is itself being differentiated.
"""

# tests: tests/compat/autograd/test_primitives.py
from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import count, islice
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from pydispatch import _core
from pydispatch._core import FunctionParts, Tensor
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch.autograd.custom_derivatives import leaf_gradients
from pydispatch.autograd.examples import split_for_numpy
from pydispatch.autograd.function import BatchedFunction
from pydispatch.autograd.transposing import Results, transposed
from pydispatch.compat.autograd import LazyModule
from pydispatch.compat.autograd.derivatives import as_floats, conjugate, make_vjp, subval, subvals
from pydispatch.compat.autograd.spaces import match_complex, vspace
from pydispatch.exceptions import AutogradError, ConversionError, DataDependentError, UnsupportedError
from pydispatch.func.concrete import concrete_value, is_traced
from pydispatch.tree import n_leaves, tree_flatten, tree_map, tree_unflatten

__all__ = [
    "ArrayBox", "Box", "DictBox", "JVPNode", "Node", "SequenceBox", "SparseObject", "VJPNode", "def_linear", "defjvp",
    "defjvp_argnum", "defjvp_argnums", "defvjp", "defvjp_argnum", "defvjp_argnums", "getval", "isbox", "new_box",
    "notrace_primitive", "primitive", "primitive_jvps", "primitive_vjps", "register_notrace", "trace_stack",
]
Callback = Callable[..., Any]
primitive_vjps: dict[Callback, Callback] = {}
primitive_jvps: dict[Callback, Callback] = {}
replaced: dict[Callback, Callback] = {}     # the primitives that replace functions of the namespaces


# --- questions about values ------------------------------------------------------------------------------------------


def isbox(x: Any) -> bool:
    """Return whether a value depends on a value that is being differentiated."""
    return is_traced(x)


def getval(x: Any) -> Any:
    """Return the value without derivatives: arrays and numbers of NumPy.

    Raise ConversionError for a batched value. A rule that asks for one then runs on each example.
    """
    try:
        return tree_map(lambda leaf: _number(concrete_value(leaf)) if isinstance(leaf, Tensor) else leaf, x)
    except DataDependentError as error:
        raise ConversionError(*error.args) from error


def untraced(x: Any) -> Any:
    """Return the arrays of the Tensors in a value that nothing is differentiating."""
    return _untraced_leaf(x) if isinstance(x, Tensor) else tree_map(_untraced_leaf, x)


def _untraced_leaf(leaf: Any) -> Any:
    return leaf if isinstance(leaf, Tensor) and is_traced(leaf) else _number(concrete_value(leaf))


def _untraced_leaves(leaves: tuple[Any, ...]) -> list[Any]:
    """Return a list with the values of the Tensors that nothing is differentiating: arrays, or scalars of NumPy."""
    found = _core.arrays_of_constants(leaves)
    for i, leaf in enumerate(found):
        if isinstance(leaf, Tensor):
            found[i] = _untraced_leaf(leaf)
    return found


def _number(array: Any) -> Any:
    return array[()] if isinstance(array, np.ndarray) and not array.ndim else array


class _BoxType(type):
    """The class of Box, which asks about values instead of their classes."""

    of: Any = object

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.of) and isbox(instance)

    def __setattr__(cls, name: str, value: Any) -> NoReturn:
        raise _unsupported(f"{cls.__name__}.{name}", "the methods of values are those of pydispatch.Tensor")


class Box(metaclass=_BoxType):
    """The class of values that are being differentiated, for `isinstance`."""

    def __init__(self, *args: Any) -> None:
        raise _unsupported(f"{type(self).__name__}(...)", "call a primitive")

    @classmethod
    def register(cls, value_type: type) -> None:
        """Accept a class of arrays or containers, which needs no registration. Raise UnsupportedError for any other."""
        if not issubclass(value_type, (np.ndarray, np.generic, float, complex, list, tuple, dict)):
            raise _unsupported(f"{cls.__name__}.register({value_type.__name__})",
                               "register a container of arrays: pydispatch.tree.register_pytree_node")


class ArrayBox(Box):
    """The class of arrays and numbers that are being differentiated, for `isinstance`."""

    of = Tensor


class SequenceBox(Box):
    """The class of lists and tuples that hold what is being differentiated, for `isinstance`."""

    of = list, tuple


class DictBox(Box):
    """The class of dicts that hold what is being differentiated, for `isinstance`."""

    of = dict


def _unsupported(name: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(f"pydispatch.compat.autograd has no {name}: its tape is not HIPS's\n{remedy}")


def _refused(name: str, remedy: str) -> Callback:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise _unsupported(name, remedy)

    refuse.__name__ = name
    return refuse


def _refused_attribute(name: str) -> property:
    def refuse(tensor: Tensor) -> NoReturn:
        raise AttributeError(f"a Tensor has no {name}: the tape of pydispatch.compat.autograd is not HIPS's\n"
                             "use isbox(x), getval(x), make_vjp and make_jvp")
    return property(refuse)


Node, VJPNode, JVPNode = [
    type(name, (), dict.fromkeys(("new_root", "__init__"), _refused(name, "define rules: defvjp, defjvp")))
    for name in ("Node", "VJPNode", "JVPNode")]
new_box = _refused("new_box", "call a primitive")
SparseObject = _refused("SparseObject", "return an array of zeros with the gradient added at its place")


class trace_stack:      # noqa: N801  HIPS's name
    """The name of HIPS's stack of traces, which does not exist here."""

    new_trace = staticmethod(_refused("trace_stack.new_trace", "call make_vjp or make_jvp"))


_core.extend(Tensor, _value=property(getval), _node=_refused_attribute("_node"), _trace=_refused_attribute("_trace"))


# --- primitives ------------------------------------------------------------------------------------------------------


def primitive(f_raw: Callback) -> Any:
    """Return a function that can be given derivatives, by defvjp and defjvp. `f_raw` gets raw arrays."""
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs and _core.are_flat_and_followed(args):
            return _core.apply_function(parts, args)
        found = [tree_flatten(value) for value in (*args, *kwargs.values())]
        leaves = [leaf for part, _ in found for leaf in part]
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            return f_raw(*args, **kwargs)
        if not any(map(is_traced, leaves)):
            return f_raw(*untraced(args), **untraced(kwargs))
        constants = [None if _core.is_array(leaf) else leaf for leaf in leaves]
        nested = PrimitiveCall(call, constants, [spec for _, spec in found], len(args), (*kwargs,))
        return _core.apply_function(nested.parts, tuple([leaf if _core.is_array(leaf) else None for leaf in leaves]))

    call.__name__ = call.__qualname__ = getattr(f_raw, "__name__", "primitive")
    call.__doc__, call.__module__ = f_raw.__doc__, getattr(f_raw, "__module__", __name__)
    vars(call).update(fun=f_raw, _is_autograd_primitive=True, **_former_rules(call))
    parts = PrimitiveCall(call).parts
    return call


class PrimitiveCall(CustomDerivative):
    """A call of a primitive as a function of the leaves of its arguments, as `autograd.Function` describes one.

    Forward mode transposes the vjp of a primitive without a jvp.
    """

    separate, once, may_capture = True, False, False
    batched, rule_for = BatchedFunction.batched, BatchedFunction.rule_for

    def __init__(self, fun: Any, constants: Any = None, specs: Any = None, n: int | None = None,
                 names: tuple[str, ...] = ()) -> None:
        self.fun = fun
        self.label: str = fun.__name__
        self.name = f"{self.label}Backward"
        self.batched_functions: dict[Any, Any] = {}
        self._constants = constants     # the leaves that are not arrays, or None if all leaves are passed
        self._specs = specs             # one for each argument, or None if no argument is a container
        self._n = n                     # the number of arguments by position, which those by keyword follow
        self._names = names

    @property
    def parts(self) -> FunctionParts:
        """The functions as the core calls them."""
        return FunctionParts(self, None, self.forward, self.setup, -1, True)

    def _arguments(self, leaves: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._specs is None:
            return (*leaves,), {}
        values = (*self._nested(_with_constants(leaves, self._constants)),)
        return values[:self._n], dict(zip(self._names, values[self._n:], strict=True))

    def _nested(self, leaves: Sequence[Any]) -> Any:
        """Return one entry per argument."""
        if self._specs is None:
            return leaves
        rest = iter(leaves)
        return [tree_unflatten([*islice(rest, n_leaves(spec))], spec) for spec in self._specs]

    def _argnums(self, flags: Sequence[bool], kind: str) -> tuple[int, ...]:
        """Return the numbers of the arguments that hold an array with a flag."""
        if self._specs is not None:
            rest = iter(flags)
            flags = [any([*islice(rest, n_leaves(spec))]) for spec in self._specs]
            if any(flags[self._n:]):
                raise NotImplementedError(f"{kind} of {self.label} wrt keyword arguments not defined\n"
                                          "pass what is differentiated by position")
        return (0,) if len(flags) == 1 else tuple([i for i, flag in enumerate(flags) if flag])

    def forward(self, *leaves: Any) -> Any:
        """Call the primitive with raw arrays."""
        raw = _untraced_leaves(leaves)
        if self._specs is None:
            output = self.fun.fun(*raw)
        else:
            args, kwargs = self._arguments(raw)
            output = self.fun.fun(*args, **kwargs)
        if (_core.is_array(output) and output.dtype.kind in "fc") or self.fun not in primitive_vjps:
            return output
        if isinstance(output, (int, np.ndarray, np.integer, np.bool)):
            output = as_floats(output)      # integers in a container are constants, such as positions
        return tree_map(lambda leaf: np.asarray(leaf)[()] if isinstance(leaf, (float, complex)) else leaf, output)

    def setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save all leaves of the arguments and the result, for the rules to use."""
        ctx.constants = ctx.spec = None
        saved = (*inputs, output)
        if not all(map(_core.is_array, saved)):
            leaves, ctx.spec = tree_flatten(output)
            leaves = [*inputs, *leaves]
            ctx.constants = [None if _core.is_array(leaf) else leaf for leaf in leaves]
            saved = tuple([leaf if _core.is_array(leaf) else None for leaf in leaves])
        ctx.save_for_backward(*saved)
        if ctx._is_forward:
            ctx.save_for_forward(*saved)
            ctx._results = Results(output, ())

    def _saved(self, ctx: Any, given: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]:
        """Return the result of the call, its arguments, and the given gradients or tangents, as the rules take them."""
        saved = ctx.saved_tensors
        n = len(saved)
        leaves = _untraced_leaves((*saved, *given))
        if ctx.spec is self._specs is None:
            return leaves[n - 1], (*leaves[:n - 1],), {}, leaves[n:]
        if ctx.spec is None:
            return (leaves[n - 1], *self._arguments(leaves[:n - 1]), leaves[n:])
        values = _with_constants(leaves[:n], ctx.constants)
        n -= n_leaves(ctx.spec)
        return (tree_unflatten(values[n:], ctx.spec), *self._arguments(values[:n]), [*untraced(given)])

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the gradients by the rules, one for each leaf."""
        try:
            return self._gradients(ctx, *grads)
        except ConversionError:
            each = split_for_numpy(f"the VJP of {self.label}", self._gradients, warns=False)    # as HIPS's jacobian
            found: tuple[Any, ...] = each(ctx, *grads)
            return found

    def _gradients(self, ctx: Any, *grads: Any) -> tuple[Any, ...]:
        argnums = self._argnums(ctx.needs_input_grad, "VJP")
        maker = primitive_vjps.get(self.fun)
        if maker is None:
            raise NotImplementedError(f"VJP of {self.label} wrt argnums {argnums} not defined\n"
                                      "define it: defvjp(fun, ...)")
        ans, args, kwargs, given = self._saved(ctx, grads)
        g = (*given,) if isinstance(ans, tuple) else given[0]
        found = maker(argnums, ans, args, kwargs)(conjugate(g))
        if self._specs is None and len(args) == 1:
            return (_checked(self.label, 0, found[0], args[0]),)
        entries = [None] * (len(args) + len(kwargs))
        for i, gradient in zip(argnums, found, strict=True):
            entries[i] = _checked(self.label, i, gradient, args[i])
        if self._specs is None:
            return (*entries,)
        return tuple([leaf for i, (entry, spec) in enumerate(zip(entries, self._specs, strict=True))
                      for leaf in leaf_gradients(entry, spec, i, self.name)])

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        """Return the tangent by the rules."""
        if self.fun not in primitive_jvps:
            return transposed(self.label, lambda grads: self.backward(
                ctx, grads if isinstance(grads, tuple) else (grads,)), ctx._results, tangents, ctx.materialize)
        argnums = self._argnums([tangent is not None for tangent in tangents], "JVP")
        ans, args, kwargs, given = self._saved(ctx, tangents)
        given = self._nested(given)
        return primitive_jvps[self.fun](argnums, [given[i] for i in argnums], ans, args, kwargs)


def _with_constants(leaves: list[Any], constants: list[Any]) -> list[Any]:
    return [constant if leaf is None else leaf for leaf, constant in zip(leaves, constants, strict=True)]


def _checked(name: str, i: int, gradient: Any, arg: Any) -> Any:
    """Return the gradient that a rule returned as one of `func`. Raise AutogradError for one of another shape."""
    if type(gradient) is np.ndarray and gradient.dtype.kind == "f" and gradient.shape == np.shape(arg):
        return Tensor(gradient)
    if gradient is None:
        return None
    if _core.is_array(arg) and np.shape(gradient) != np.shape(arg):
        raise AutogradError(f"the VJP of {name} wrt argnum {i} returned a gradient of shape "
                            f"{np.shape(gradient)}, but the argument has shape {np.shape(arg)}\n"
                            "return a gradient of the argument's shape: numpy_vjps.unbroadcast_f sums one")
    if not _core.is_array(gradient):
        gradient = tree_map(lambda leaf: np.float64(leaf) if isinstance(leaf, (int, float)) else leaf, gradient)
    if _core.is_array(gradient) and gradient.dtype.kind == "c":
        gradient = match_complex(arg, gradient)
    gradient = conjugate(gradient)
    return Tensor(gradient) if isinstance(gradient, (np.ndarray, np.generic)) else gradient


def notrace_primitive(f_raw: Callback) -> Callback:
    """Return a function that calls `f_raw` with the values of its arguments, without derivatives."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return f_raw(*map(getval, args), **kwargs)

    call.__name__ = getattr(f_raw, "__name__", "primitive")
    return call


def register_notrace(trace_type: Any, primitive_fun: Any) -> None:
    """Give a primitive zero derivatives."""
    defvjp_argnums(primitive_fun, lambda argnums, *rest: lambda g: [None] * len(argnums))
    defjvp_argnums(primitive_fun, lambda argnums, gs, ans, args, kwargs: vspace(ans).zeros())


# --- rules -----------------------------------------------------------------------------------------------------------


def defvjp_argnums(fun: Callback, vjpmaker: Callback) -> None:
    """Define the vjp: `vjpmaker(argnums, ans, args, kwargs)(g)` returns the gradients of these arguments."""
    primitive_vjps[_as_primitive(fun, "defvjp")] = vjpmaker


def defvjp_argnum(fun: Callback, vjpmaker: Callback) -> None:
    """Define the vjp: `vjpmaker(argnum, ans, args, kwargs)(g)` returns the gradient of one argument."""
    def maker(argnums: Sequence[int], *rest: Any) -> Callback:
        vjps = [vjpmaker(argnum, *rest) for argnum in argnums]
        return lambda g: [vjp(g) for vjp in vjps]

    defvjp_argnums(fun, maker)


def defvjp(fun: Callback, *vjpmakers: Callback | None, argnums: Iterable[int] | None = None) -> None:
    """Define the vjp by argument: `vjpmaker(ans, *args, **kwargs)(g)` returns its gradient. None is for zeros."""
    makers = dict(zip(_numbers(argnums), vjpmakers))        # noqa: B905  `argnums` may count without end

    def maker(argnums: Sequence[int], ans: Any, args: Any, kwargs: Any) -> Callback:
        only = makers.get(argnums[0]) if len(argnums) == 1 else None
        if only is not None:        # most calls
            vjp = only(ans, *args, **kwargs)
            return lambda g: (vjp(g),)
        found = [_rule(makers, argnum, "VJP", fun) for argnum in argnums]
        vjps = [one and one(ans, *args, **kwargs) for one in found]
        return lambda g: [vjp and vjp(g) for vjp in vjps]

    defvjp_argnums(fun, maker)


def defjvp_argnums(fun: Callback, jvpmaker: Callback) -> None:
    """Define the jvp: `jvpmaker(argnums, tangents, ans, args, kwargs)` returns the tangent of the result."""
    primitive_jvps[_as_primitive(fun, "defjvp")] = jvpmaker


def defjvp_argnum(fun: Callback, jvpmaker: Callback) -> None:
    """Define the jvp: `jvpmaker(argnum, tangent, ans, args, kwargs)` returns what one tangent adds to the result's."""
    def maker(argnums: Sequence[int], gs: Sequence[Any], *rest: Any) -> Any:
        tangents = [jvpmaker(argnum, g, *rest) for argnum, g in zip(argnums, gs, strict=True)]
        return reduce(partial(tree_map, lambda x, y: x + y), tangents)

    defjvp_argnums(fun, maker)


def defjvp(fun: Callback, *jvpfuns: Callback | str | None, argnums: Iterable[int] | None = None) -> None:
    """Define the jvp by argument: `jvpfun(g, ans, *args, **kwargs)`. "same": `fun` is linear in the argument."""
    rules = dict(zip(_numbers(argnums), jvpfuns))           # noqa: B905  `argnums` may count without end
    if any(isinstance(rule, str) and rule != "same" for rule in jvpfuns):
        raise ValueError(f"defjvp: the rules of {fun.__name__} are {jvpfuns}, expected functions, None or 'same'")

    def one(argnum: int, g: Any, ans: Any, args: Any, kwargs: Any) -> Any:
        rule = _rule(rules, argnum, "JVP", fun)
        if rule == "same":
            return fun(*subval(args, argnum, g), **kwargs)
        return vspace(ans).zeros() if rule is None else rule(g, ans, *args, **kwargs)

    defjvp_argnum(fun, one)


def def_linear(fun: Callback) -> None:
    """Define the jvp of a function that is linear in each of its arguments."""
    defjvp_argnum(fun, lambda argnum, g, ans, args, kwargs: fun(*subval(args, argnum, g), **kwargs))


def _former_rules(fun: Callback) -> dict[str, Callback]:
    """Return the methods by which primitives got their rules in early versions of HIPS autograd, one by argument."""
    rules: dict[int, Callback | None] = {}

    def add(argnum: int, rule: Callback | None) -> None:
        warnings.warn("the methods of primitives are deprecated, call defvjp(fun, ...)", stacklevel=3)
        rules[argnum] = rule
        defvjp(fun, *rules.values(), argnums=list(rules))

    def add_vjp(vjp: Callback, argnum: int = 0) -> None:
        add(argnum, lambda ans, *args, **kwargs: lambda g: vjp(
            g, ans, vspace(args[argnum]), vspace(g), *args, **kwargs))

    return {"defgrad": lambda gradfun, argnum=0: add(argnum, gradfun), "defvjp": add_vjp,
            "defvjp_is_zero": lambda argnums=(0,): list(map(partial(add, rule=None), argnums))}


def _numbers(argnums: Iterable[int] | None) -> Iterator[int]:
    return count() if argnums is None else iter(argnums)


def _rule(rules: dict[int, Any], argnum: int, kind: str, fun: Callback) -> Any:
    if argnum not in rules:
        raise NotImplementedError(f"{kind} of {fun.__name__} wrt argnum {argnum} not defined\n"
                                  f"add a rule for it to def{kind.lower()}")
    return rules[argnum]


def _as_primitive(fun: Any, name: str) -> Any:
    """Return what gets the rules of a function: for one of the namespaces here, the primitive that replaces it.

    The vjp of that primitive is the function's until it gets another one. As in HIPS, rules of a function that is not a
    primitive are not used, because what it calls is differentiated.
    """
    is_other = isinstance(fun, FunctionType) and str(fun.__module__).partition(".")[0] != "pydispatch"
    if is_other or getattr(fun, "_is_autograd_primitive", False):
        return fun
    places = [(module, key) for module in [*sys.modules.values()] if isinstance(module, LazyModule)
              for key, value in module.loaded().items() if value is fun]
    if not places and fun not in replaced:
        raise UnsupportedError(f"{name}: {getattr(fun, '__name__', fun)} is {_core.a_type(fun)}, expected a primitive "
                               f"or a function of compat.autograd's numpy or scipy\n"
                               "make a primitive of it, and call that: f = primitive(f)")
    if fun not in replaced:
        replaced[fun] = primitive(fun)
        primitive_vjps[replaced[fun]] = lambda argnums, ans, args, kwargs: make_vjp(
            lambda values: fun(*subvals(args, zip(argnums, values, strict=True)), **kwargs),
            tuple([args[i] for i in argnums]))[0]
    for module, key in places:
        setattr(module, key, replaced[fun])
    return replaced[fun]
