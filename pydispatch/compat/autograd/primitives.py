"""Primitives: functions of raw arrays with derivatives that users define, each as an `autograd.Function`.

A call with a value that is being differentiated applies the Function. Its rules run in the backward pass, at the level
below, and get raw arrays unless that is itself being differentiated.
"""

# tests: tests/compat/autograd/test_primitives.py
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import count
from typing import Any, NoReturn

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.autograd.function import Function
from pydispatch.compat.autograd.derivatives import conjugate, subval
from pydispatch.compat.autograd.spaces import vspace
from pydispatch.exceptions import AutogradError, UnsupportedError
from pydispatch.func.concrete import concrete_value, is_traced
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = [
    "ArrayBox", "Box", "DictBox", "JVPNode", "Node", "SequenceBox", "SparseObject", "VJPNode", "def_linear", "defjvp",
    "defjvp_argnum", "defjvp_argnums", "defvjp", "defvjp_argnum", "defvjp_argnums", "getval", "isbox", "new_box",
    "notrace_primitive", "primitive", "primitive_jvps", "primitive_vjps", "register_notrace", "trace_stack",
]
Callback = Callable[..., Any]
primitive_vjps: dict[Callback, Callback] = {}
primitive_jvps: dict[Callback, Callback] = {}


# --- questions about values ------------------------------------------------------------------------------------------


def isbox(x: Any) -> bool:
    """Return whether a value depends on a value that is being differentiated."""
    return is_traced(x)


def getval(x: Any) -> Any:
    """Return the value without derivatives: arrays and numbers of NumPy."""
    return tree_map(lambda leaf: _number(concrete_value(leaf)) if isinstance(leaf, Tensor) else leaf, x)


def untraced(x: Any) -> Any:
    """Return the arrays of the Tensors in a value that nothing is differentiating."""
    return _untraced_leaf(x) if isinstance(x, Tensor) else tree_map(_untraced_leaf, x)


def _untraced_leaf(leaf: Any) -> Any:
    return leaf if not isinstance(leaf, Tensor) or is_traced(leaf) else _number(concrete_value(leaf))


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
        leaves = tree_leaves((args, kwargs))
        if not any(isinstance(leaf, Tensor) for leaf in leaves):
            return f_raw(*args, **kwargs)
        if not is_traced(leaves):
            return f_raw(*untraced(args), **untraced(kwargs))
        return (_PrimitiveWithJvp if call in primitive_jvps else _Primitive).apply(call, kwargs, args)

    call.__name__ = call.__qualname__ = getattr(f_raw, "__name__", "primitive")
    call.__doc__, call.__module__ = f_raw.__doc__, getattr(f_raw, "__module__", __name__)
    vars(call).update(fun=f_raw, _is_autograd_primitive=True, **_former_rules(call))
    return call


class _Primitive(Function):
    """The call of a primitive, the first argument, with a dict of keyword arguments and a tuple of the others.

    Forward mode transposes its vjp.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(fun: Any, kwargs: dict[str, Any], args: tuple[Any, ...]) -> Any:
        """Call the function with raw arrays."""
        return fun.fun(*untraced(args), **untraced(kwargs))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save all arguments and the result, for the rules to use."""
        leaves, ctx.spec = tree_flatten((inputs, output))
        arrays = [leaf if _core.is_array(leaf) else None for leaf in leaves]
        ctx.constants = [None if _core.is_array(leaf) else leaf for leaf in leaves]
        ctx.save_for_backward(*arrays)
        ctx.save_for_forward(*arrays)


    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Return the gradients by the rules."""
        return _gradients(ctx, grads)


class _PrimitiveWithJvp(_Primitive):
    """The call of a primitive that has rules for forward mode."""

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        """Return the tangent by the rules."""
        return _tangent(ctx, tangents)


def _saved(ctx: Any) -> Any:
    """Return the arguments of a call, first the primitive and the dict of those by keyword, and its result."""
    leaves = [constant if array is None else _untraced_leaf(array)
              for array, constant in zip(ctx.saved_tensors, ctx.constants, strict=True)]
    return tree_unflatten(leaves, ctx.spec)


def _gradients(ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    (fun, kwargs, args), ans = _saved(ctx)
    _, by_keyword, by_position = ctx.needs_input_grad
    if any(tree_leaves(by_keyword)):
        raise NotImplementedError(f"VJP of {fun.__name__} wrt keyword arguments not defined\n"
                                  "pass what is differentiated by position")
    argnums = [i for i, need in enumerate(by_position) if need is True or (need and any(tree_leaves(need)))]
    if fun not in primitive_vjps:
        raise NotImplementedError(f"VJP of {fun.__name__} wrt argnums {tuple(argnums)} not defined\n"
                                  "define it: defvjp(fun, ...)")
    g = untraced(grads if isinstance(ans, tuple) else grads[0])
    found = primitive_vjps[fun](tuple(argnums), ans, args, kwargs)(conjugate(g))
    entries: list[Any] = [None] * len(args)
    for i, gradient in zip(argnums, found, strict=True):
        entries[i] = _checked(fun, i, gradient, args[i])
    return None, None, tuple(entries)


def _checked(fun: Callback, i: int, gradient: Any, arg: Any) -> Any:
    """Return the gradient that a rule returned as one of `func`. Raise AutogradError for one of another shape."""
    if gradient is None:
        return None
    if _core.is_array(arg) and np.shape(gradient) != np.shape(arg):
        raise AutogradError(f"the VJP of {fun.__name__} wrt argnum {i} returned a gradient of shape "
                            f"{np.shape(gradient)}, but the argument has shape {np.shape(arg)}\n"
                            "return a gradient of the argument's shape: numpy_vjps.unbroadcast_f sums one")
    if not _core.is_array(gradient):
        gradient = tree_map(lambda leaf: np.float64(leaf) if isinstance(leaf, (int, float)) else leaf, gradient)
    return conjugate(gradient)


def _tangent(ctx: Any, tangents: tuple[Any, ...]) -> Any:
    (fun, kwargs, args), ans = _saved(ctx)
    _, by_keyword, by_position = tangents
    if any(leaf is not None for leaf in tree_leaves(by_keyword)):
        raise NotImplementedError(f"JVP of {fun.__name__} wrt keyword arguments not defined\n"
                                  "pass what is differentiated by position")
    argnums = tuple([i for i, tangent in enumerate(by_position)
                     if any(leaf is not None for leaf in tree_leaves(tangent))])
    return primitive_jvps[fun](argnums, [untraced(by_position[i]) for i in argnums], ans, args, kwargs)


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
    primitive_vjps[_check_primitive(fun, "defvjp")] = vjpmaker


def defvjp_argnum(fun: Callback, vjpmaker: Callback) -> None:
    """Define the vjp: `vjpmaker(argnum, ans, args, kwargs)(g)` returns the gradient of one argument."""
    def maker(argnums: Sequence[int], *rest: Any) -> Callback:
        vjps = [vjpmaker(argnum, *rest) for argnum in argnums]
        return lambda g: [vjp(g) for vjp in vjps]

    defvjp_argnums(fun, maker)


def defvjp(fun: Callback, *vjpmakers: Callback | None, argnums: Iterable[int] | None = None) -> None:
    """Define the vjp by argument: `vjpmaker(ans, *args, **kwargs)(g)` returns its gradient. None is for zeros."""
    makers = dict(zip(_numbers(argnums), vjpmakers))        # noqa: B905  `argnums` may count without end

    def one(argnum: int, ans: Any, args: Any, kwargs: Any) -> Callback:
        maker = _rule(makers, argnum, "VJP", fun)
        return maker(ans, *args, **kwargs) if maker is not None else lambda g: None

    defvjp_argnum(fun, one)


def defjvp_argnums(fun: Callback, jvpmaker: Callback) -> None:
    """Define the jvp: `jvpmaker(argnums, tangents, ans, args, kwargs)` returns the tangent of the result."""
    primitive_jvps[_check_primitive(fun, "defjvp")] = jvpmaker


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


def _check_primitive(fun: Any, name: str) -> Any:
    if not getattr(fun, "_is_autograd_primitive", False):
        raise UnsupportedError(f"{name}: {getattr(fun, '__name__', fun)} is {_core.a_type(fun)}, expected a primitive, "
                               "because functions of pydispatch have their own derivatives\n"
                               "make one of it, and call that: f = primitive(f)")
    return fun
