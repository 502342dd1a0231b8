"""Custom operators by functions: define one, register its kernels, its fake, and the two halves of its formula.

    custom_op("my::f")(prototype)           the operator, with the prototype's annotations as schema.
    impl("my::f")(kernel)                   the kernel.
    impl_abstract("my::f")(fake)            shapes and dtypes of its results.
    impl_save_for_backward("my::f")(save)   save(inputs, output) returns what backward needs.
    impl_backward("my::f")(backward)        backward(ctx, saved, *grads) returns a dict: argument -> gradient.

Each kind can be registered once. With `func=`, the functions register directly and return the given function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar, overload

from pydispatch._core import OpOverload
from pydispatch._loading import only_public
from pydispatch._registry import registrations
from pydispatch._registry.kernels import Kernel, check_function, check_kernel, make_kernel
from pydispatch._registry.operators import find_or_raise, schema_of
from pydispatch._registry.registrations import Handle, all_or_none, definition_of, kernels_of
from pydispatch._registry.tables import table_entry
from pydispatch._sites import is_again, registration_site, warn_again
from pydispatch.exceptions import NoDerivativeError, RegistrationError, SchemaError
from pydispatch.keys import DispatchKey
from pydispatch.library.checks import check_role, gradient_names, is_view
from pydispatch.library.custom_operator import parse_custom_name, read_signature
from pydispatch.library.derivatives import NamedDerivative, inputs_type
from pydispatch.library.fakes import add_fake, check_may_fake, get_ctx
from pydispatch.library.targets import as_decorator, keys_of_devices, name_of
from pydispatch.schema import OperatorName, Schema
from pydispatch.schema.base_types import BOOL, FLOAT, INT, TENSOR
from pydispatch.schema.compound_types import ListType
from pydispatch.schema.inference import infer_schema

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["custom_op", "get_ctx", "impl", "impl_abstract", "impl_backward", "impl_save_for_backward"]
__dir__ = only_public(globals())

SAVE, BACKWARD, ABSTRACT, FORMULA, HALF = "save_for_backward", "backward", "abstract", "autograd", "half"
DIFFERENTIABLE_RETURNS = (TENSOR, ListType(TENSOR), INT, FLOAT, BOOL)
_private = object()


class CustomOp:
    """The registrations of one operator through this module, by kind: backends, the fake, halves of the formula."""

    def __init__(self, token: object, operator: OpOverload) -> None:
        if token is not _private:
            raise RegistrationError(
                "the constructor is private: custom_op makes CustomOp objects\n"
                'write custom_op("ns::name")(function)'
            )
        self.operator = operator
        self.definition = definition_of(operator)
        self.functions: dict[str, tuple[Kernel, str]] = {}      # by kind: the function, and its site
        self.handles: dict[str, Handle] = {}
        self.output_differentiability: Sequence[bool] | None = None

    def check_free(self, kind: str, site: str, article: str = "a") -> None:
        """Raise RegistrationError if this kind was registered before, unless the same code registers it again."""
        if kind in self.functions:
            kernel, former = self.functions[kind]
            if is_again(site, former):
                self._take_back(kind, site, former)
                return
            raise RegistrationError(
                f"operator {self.operator.name} already has {article} {kind} impl: {kernel.debug}, registered at "
                f"{former}\n"
                "register only one of each kind, or define the operator by library.custom_op to replace one"
            )

    def _take_back(self, kind: str, site: str, former: str) -> None:
        warn_again(f"operator {self.operator.name}: its {kind} impl", site, former)
        handle = self.handles.get(kind)
        if handle is None:      # only half of a formula, which the new half replaces
            registrations.assign(self, "functions", {k: f for k, f in self.functions.items() if k != kind})
            return
        handle.remove()
        gone = [each for each, other in self.handles.items() if other is handle]
        registrations.assign(self, "handles", {k: h for k, h in self.handles.items() if k not in gone})
        registrations.assign(self, "functions", {k: f for k, f in self.functions.items() if k not in gone})

    def remove(self) -> None:
        """Undo all registrations."""
        registrations.call_each([handle.remove for handle in reversed(self.handles.values())])


_known: dict[str, CustomOp] = {}        # by full name


@overload
def custom_op(qualname: str, func_or_schema: str) -> None: ...
@overload
def custom_op(qualname: str, func_or_schema: F) -> F: ...
@overload
def custom_op(qualname: str, func_or_schema: None = ...) -> Callable[[F], F]: ...
def custom_op(qualname: str, func_or_schema: Callable[..., Any] | str | None = None) -> Any:
    """Define an operator that writes to none of its arguments: `@custom_op("ns::scale")`.

    Without a formula, the operator raises NoDerivativeError when an argument requires grad.

    Parameters
    ----------
    qualname
        The operator's name with its namespace.
    func_or_schema
        A prototype, whose annotations define the schema, or the schema, as in "(Tensor x) -> Tensor". The prototype
        never runs, and must have the operator's name. Without either, `custom_op` returns a decorator for a prototype.

    Returns
    -------
    function or None
        The prototype, or a decorator that returns it, or None for a schema.

    Raises
    ------
    SchemaError
        If the name or the schema is not valid.
    RegistrationError
        If the name is taken.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import ops
    >>> from pydispatch.compat import custom_ops
    >>> @custom_ops.custom_op("example_prototypes::twice")
    ... def twice(x: np.ndarray) -> np.ndarray: ...
    >>> @custom_ops.impl("example_prototypes::twice")
    ... def twice_kernel(x):
    ...     return 2 * x
    >>> ops.example_prototypes.twice(np.ones(2))
    array([2., 2.])
    """
    name = _parse_name(qualname)
    if isinstance(func_or_schema, str):
        _define(read_signature(name, func_or_schema), registration_site())
        return None
    if func_or_schema is None:
        return as_decorator(partial(_define_by_prototype, name))
    _define_by_prototype(name, func_or_schema)
    return func_or_schema


@overload
def impl(qualname: str, *, device_types: str | Iterable[str] = ..., func: F) -> F: ...
@overload
def impl(qualname: str, *, device_types: str | Iterable[str] = ..., func: None = ...) -> Callable[[F], F]: ...
def impl(
    qualname: str, *, device_types: str | Iterable[str] = "CPU", func: Callable[..., Any] | None = None
) -> Any:
    """Register a kernel for one or more backends: `@impl("ns::scale")`.

    Parameters
    ----------
    qualname
        The operator's name. The operator may have been defined by other means.
    device_types
        The names of the backends, in any case.
    func
        The kernel. Without it, `impl` returns a decorator.

    Returns
    -------
    function
        `func`, or a decorator that returns its function.

    Raises
    ------
    RegistrationError
        If the operator has a kernel for one of the backends, its own or a composite. No kernel is registered then.
    UnknownKeyError
        If a name is not the name of a backend. No kernel is registered then.
    """
    keys = keys_of_devices(name_of(qualname), device_types)
    return _register_now_or_later(qualname, partial(_add_kernel, qualname, keys), func)


@overload
def impl_abstract(qualname: str, *, func: F) -> F: ...
@overload
def impl_abstract(qualname: str, *, func: None = ...) -> Callable[[F], F]: ...
def impl_abstract(qualname: str, *, func: Callable[..., Any] | None = None) -> Any:
    """Register a fake: a function that computes the shapes and dtypes of an operator's results on arrays without data.

    Parameters
    ----------
    qualname
        The operator's name.
    func
        The fake, which takes the operator's arguments. Without it, `impl_abstract` returns a decorator.

    Returns
    -------
    function
        `func`, or a decorator that returns its function.

    Raises
    ------
    RegistrationError
        If the operator has a fake, or a CompositeImplicitAutograd kernel, which runs without data itself.
    """
    return _register_now_or_later(qualname, partial(_add_abstract, qualname), func)


@overload
def impl_save_for_backward(qualname: str, *, func: F) -> F: ...
@overload
def impl_save_for_backward(qualname: str, *, func: None = ...) -> Callable[[F], F]: ...
def impl_save_for_backward(qualname: str, *, func: Callable[..., Any] | None = None) -> Any:
    """Register the first half of a formula: `save(inputs, output)` returns what backward needs, in any pytree.

    Until the other half is registered by `impl_backward`, every call with a Tensor raises.

    Parameters
    ----------
    qualname
        The operator's name.
    func
        The function. `inputs` is a named tuple of all arguments, `output` the result of the operator. It runs after the
        operator if an argument requires grad. Without it, `impl_save_for_backward` returns a decorator.

    Returns
    -------
    function
        `func`, or a decorator that returns its function.
    """
    return _register_now_or_later(qualname, partial(_add_half, qualname, SAVE, None), func)


@overload
def impl_backward(
    qualname: str, output_differentiability: Sequence[bool] | None = ..., *, func: F
) -> F: ...
@overload
def impl_backward(
    qualname: str, output_differentiability: Sequence[bool] | None = ..., *, func: None = ...
) -> Callable[[F], F]: ...
def impl_backward(
    qualname: str, output_differentiability: Sequence[bool] | None = None, *, func: Callable[..., Any] | None = None
) -> Any:
    """Register the second half of a formula: `backward(ctx, saved, *grads)` returns a dict: array argument -> gradient.

    Parameters
    ----------
    qualname
        The operator's name.
    output_differentiability
        Whether each result is differentiable. Without it, every result that can be is.
    func
        The function. `saved` is the result of `save`. There is a gradient per result: zeros for an unused one, a tuple
        for a list, None for a number. A list of arrays has a list of gradients. Without `func`, `impl_backward` returns
        a decorator.

    Returns
    -------
    function
        `func`, or a decorator that returns its function.
    """
    return _register_now_or_later(qualname, partial(_add_half, qualname, BACKWARD, output_differentiability), func)


def _register_now_or_later(
    qualname: str, register: Callable[[Any], object], func: Callable[..., Any] | None
) -> Any:
    name_of(qualname)       # raises now if this is not a name
    decorate = as_decorator(register)
    return decorate if func is None else decorate(func)


# --- defining --------------------------------------------------------------------------------------------------------


def _parse_name(qualname: str) -> OperatorName:
    name = parse_custom_name(qualname)
    if name.overload:
        raise SchemaError(
            f"operator {qualname}: custom_ops do not handle overloads\n"
            f"leave {name.overload!r} out: {name.qualified}, or define it by library.custom_op"
        )
    if name.name.endswith("_"):
        raise SchemaError(
            f"operator {qualname}: a name that ends in _ is reserved for operators that write to their first argument\n"
            "choose another name, or define it by library.custom_op"
        )
    if name.name.endswith("_out"):
        raise SchemaError(
            f"operator {qualname}: a name that ends in _out is reserved for operators that write to `out`\n"
            "choose another name, or define it by library.custom_op"
        )
    return name


def _define_by_prototype(name: OperatorName, prototype: Callable[..., Any]) -> None:
    if not inspect.isfunction(prototype):
        raise SchemaError(
            f"operator {name}: expected a Python function, got {type(prototype).__name__}\n"
            f'decorate one, or give the schema: custom_op("{name}", "(Tensor x) -> Tensor")'
        )
    if prototype.__name__ != name.name:
        raise SchemaError(
            f"operator {name}: expected the function to have name {name.name!r}, found {prototype.__name__!r}\n"
            "give both the same name"
        )
    _define(infer_schema(prototype, name=name), registration_site())


def _define(schema: Schema, site: str) -> None:
    _check_functional(schema)
    assert schema.name is not None
    inputs_type(schema.name, schema)
    with registrations.lock:
        stale = _known.get(str(schema.name))
        if stale is not None and stale.definition is not None and not stale.definition.active:
            stale.remove()
        keeper = None
        if stale is not None and stale.definition is not None and is_again(site, stale.definition.site):
            warn_again(f"operator {schema.name}", site, stale.definition.site)
            keeper = registrations.add_name(schema.name)
            stale.remove()
        definition = registrations.add_definition(schema, site)
        if keeper is not None:
            keeper.remove()
        known = CustomOp(_private, definition.operator)
        known.handles = {"definition": definition}
        registrations.assign_item(_known, str(schema.name), known)


def _check_functional(schema: Schema) -> None:
    if schema.is_mutable:
        problem = "this operator is non-functional: it writes to an argument"
    elif is_view(schema):
        problem = "this is one of the view functions: its result can share memory with an argument"
    elif not schema.returns:
        problem = "this operator has no outputs"
    elif any(argument.name == "self" for argument in schema.arguments):
        raise SchemaError(
            f"{schema}: custom_ops do not support arguments named 'self'\nchoose another name, such as `Tensor x`"
        )
    else:
        return
    raise SchemaError(
        f"{schema}: custom_ops.custom_op only supports functional operators, and {problem}\n"
        "define it by library.custom_op, or return new arrays"
    )


# --- finding ---------------------------------------------------------------------------------------------------------


def _find(qualname: str) -> CustomOp:
    """Return the CustomOp of an operator, even of one that was defined by other means."""
    operator = find_or_raise(name_of(qualname))
    name = str(operator.name)
    known = _known.get(name)
    if known is not None and known.definition is not definition_of(operator):
        known.remove()       # it belonged to a definition that was removed
        known = None
    if known is None:
        known = CustomOp(_private, operator)
        registrations.assign_item(_known, name, known)
    return known


# --- registering -----------------------------------------------------------------------------------------------------


def _add_kernel(qualname: str, keys: tuple[DispatchKey, ...], function: Callable[..., Any]) -> None:
    site = registration_site()
    with registrations.lock:
        known = _find(qualname)
        op = known.operator
        check_function(f"operator {op.name}: argument func", "a kernel", function,
                       f'write compat.custom_ops.impl("{op.name}", func=func)')
        kernel = make_kernel(function)
        for key in keys:
            known.check_free(key.name, site, "an" if key.name[0] in "AEIOU" else "a")
            _check_no_implementation(op, key)
        assert known.definition is not None
        check_kernel(known.definition.schema, known.definition.site, kernel)
        handle = all_or_none(partial(registrations.add_kernel, op.name, key, kernel, site) for key in keys)
        names = [key.name for key in keys]
        registrations.assign(known, "handles", known.handles | dict.fromkeys(names, handle))
        registrations.assign(known, "functions", known.functions | dict.fromkeys(names, (kernel, site)))


def _check_no_implementation(op: OpOverload, key: DispatchKey) -> None:
    entry = table_entry(op, key)
    if entry is not None and not entry.is_fallthrough:
        raise RegistrationError(
            f"operator {op.name} already has an implementation for {key.name}: {entry.kernel.debug} [{entry.label}]\n"
            f'to replace it, write library.impl("{op.name}", "{key.name}", fn)'
        )


def _add_abstract(qualname: str, function: Callable[..., Any]) -> None:
    site = registration_site()
    with registrations.lock:
        known = _find(qualname)
        known.check_free(ABSTRACT, site)
        check_may_fake(known.operator, allow_override=False, word=ABSTRACT)
        handle = add_fake(known.operator, function, site)
        registrations.assign(known, "handles", known.handles | {ABSTRACT: handle})
        registrations.assign(known, "functions", known.functions | {ABSTRACT: (handle.kernel, site)})


def _add_half(
    qualname: str, kind: str, output_differentiability: Sequence[bool] | None, function: Callable[..., Any]
) -> None:
    site = registration_site()
    with registrations.lock:
        known = _find(qualname)
        op = known.operator
        schema = schema_of(op)
        _check_output_differentiability(op, output_differentiability, len(schema.returns))
        _check_eligible(op, schema, kind)
        if HALF not in known.handles and FORMULA not in known.handles:
            _check_no_autograd_kernel(op)
        known.check_free(kind, site)
        takes = ["inputs", "output"] if kind is SAVE else ["ctx", "saved", *gradient_names(schema)]
        kernel = check_role(op, kind, function, takes)
        functions = known.functions | {kind: (kernel, site)}
        if kind is BACKWARD:
            registrations.assign(known, "output_differentiability", output_differentiability)
        handles = dict(known.handles)
        if SAVE in functions and BACKWARD in functions:
            former = [handles.pop(each) for each in (HALF, FORMULA) if each in handles]
            handles[FORMULA] = registrations.add_derivative(op.name, _whole_formula(known, functions), site)
        else:
            former = []
            if HALF in handles:     # the same half, which is registered again
                handles.pop(HALF).remove()
            half = make_kernel(_half_formula(op, kind, kernel, site))
            handles[HALF] = registrations.add_kernel(op.name, DispatchKey.Autograd, half, site)
        for handle in former:
            handle.remove()
        registrations.assign(known, "handles", handles)
        registrations.assign(known, "functions", functions)


def _whole_formula(known: CustomOp, functions: dict[str, tuple[Kernel, str]]) -> NamedDerivative:
    (save, _), (backward, site) = functions[SAVE], functions[BACKWARD]
    return NamedDerivative(known.operator, save.function, backward.function, known.output_differentiability, site)


def _half_formula(op: OpOverload, kind: str, kernel: Kernel, site: str) -> Callable[..., Any]:
    """Return the kernel that runs on Tensors as long as one half is missing."""
    missing = BACKWARD if kind is SAVE else SAVE

    def half_formula(*args: Any, **kwargs: Any) -> NoReturn:
        raise NoDerivativeError(
            f"operator {op.name}: unable to find a {missing!r} function; its {kind!r} is {kernel.debug}, registered at "
            f'{site}\nregister the other half: pydispatch.compat.custom_ops.impl_{missing}("{op.name}")(function)'
        )

    return half_formula


def _check_output_differentiability(op: OpOverload, flags: Any, n_returns: int) -> None:
    if flags is None:
        return
    if not isinstance(flags, list) or len(flags) != n_returns or not all(type(flag) is bool for flag in flags):
        raise RegistrationError(
            f"operator {op.name}: output_differentiability is {flags!r}, expected a list of {n_returns} bools, one per "
            f"result\nwrite impl_backward(..., output_differentiability={[True] * n_returns})"
        )


def _check_eligible(op: OpOverload, schema: Schema, kind: str) -> None:
    strange = [str(result.type) for result in schema.returns if result.type not in DIFFERENTIABLE_RETURNS]
    if schema.is_mutable:
        problem = "that is non-functional: it writes to its arguments"
    elif not schema.returns:
        problem = "with no returns"
    elif is_view(schema):
        problem = "that returns views"
    elif strange:
        known = ", ".join(map(str, DIFFERENTIABLE_RETURNS))
        problem = f"with a return not in {{{known}}}: {strange[0]}"
    else:
        return
    raise RegistrationError(
        f"operator {op.name}: cannot register {kind} for an operator {problem}\n"
        "define an operator that returns new arrays, and register its formula"
    )


def _check_no_autograd_kernel(op: OpOverload) -> None:
    for key in kernels_of(op):
        if key is DispatchKey.CompositeImplicitAutograd:
            remedy = "it needs no formula, since the operators that it calls are differentiated"
        elif key is DispatchKey.Autograd or key.is_autograd:
            remedy = "remove that kernel first: it would hide the formula"
        else:
            continue
        raise RegistrationError(
            f"operator {op.name} has a kernel under {key.name}, registered at {kernels_of(op)[key][0].site}\n{remedy}"
        )
