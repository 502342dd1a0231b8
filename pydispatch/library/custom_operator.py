"""Custom operators: operators that users define from Python functions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ContextDecorator
from functools import partial, update_wrapper
from typing import Any, TypeVar, overload

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch.exceptions import RegistrationError, SchemaError, StaleOperatorError, UnsupportedError
from pydispatch.keys import DispatchKey
from pydispatch.library.batching import add_batching
from pydispatch.library.checks import is_array, is_in_place, is_view, keyword_only_array
from pydispatch.library.derivatives import ContextDerivative, MissingDerivative
from pydispatch.library.derived import BATCHABLE
from pydispatch.library.fakes import FakeKernel, add_fake, check_may_fake
from pydispatch.library.targets import Target, as_decorator, keys_of_devices, name_of, require_namespace
from pydispatch.loading import deferred
from pydispatch.registry import registrations
from pydispatch.registry.c_functions import universal
from pydispatch.registry.kernels import (
    Kernel,
    check_function,
    check_kernel,
    is_c_function,
    kernel_function,
    make_kernel,
)
from pydispatch.registry.operators import find_or_raise, schema_of
from pydispatch.registry.registrations import (
    Handle,
    HandleGroup,
    KernelHandle,
    SwitchHandle,
    all_or_none,
    backend_of,
    definition_of,
    install,
    kernels_of,
    operators,
    switched_off,
)
from pydispatch.registry.sites import caller_site, is_again, registration_site, warn_again
from pydispatch.schema import (
    OperatorName,
    Schema,
    check_tags,
    described,
    infer_schema,
    parse_name,
    parse_signature,
    tags_of,
    written_names,
)

F = TypeVar("F", bound=Callable[..., Any])

RESERVED_NAMESPACES = ("np", "pydispatch")
logger = logging.getLogger("pydispatch.library")
reduce_custom_operator = deferred("library.pickling", "reduce_custom_operator")
definitions: dict[str, CustomOpDef] = {}       # by full name; keeps operators alive whose object was dropped


@_core.keep_vectorcall
class CustomOpDef(_core.Callee):
    """What `custom_op` returns: call it like its function, register more for it.

    What is registered through it, or for it by `pydispatch.library`, replaces what was registered before. All of it
    goes with `remove()`, and when `custom_op` defines an operator of the same name anew; the object then raises
    StaleOperatorError, and graphs recorded before keep their formula.
    """

    def __init__(self, operator: OpOverload, function: Callable[..., Any], schema: Schema) -> None:
        update_wrapper(self, function)
        self.operator = operator
        self.function = function
        self._original = _kernel(function, schema)
        self._handles: dict[object, Handle] = {}             # by what they can be replaced by
        self._replaced_at: str | None = None
        self.target = operator

    @property
    def name(self) -> OperatorName:
        """The operator's name."""
        name: OperatorName = self.operator.name
        return name

    @overload
    def register_kernel(self, device_types: str | Iterable[str] | None, fn: F, /) -> F: ...

    @overload
    def register_kernel(self, device_types: str | Iterable[str] | None, fn: None = ..., /) -> Callable[[F], F]: ...

    def register_kernel(
        self, device_types: str | Iterable[str] | None, fn: Callable[..., Any] | None = None, /
    ) -> Any:
        """Register a kernel for one or more backends, named in any case; None: for all that have none of their own.

        Returns the function; without `fn`, a decorator. Raises UnknownKeyError for a name that is no backend's, and
        RegistrationError for a function that cannot take the operator's arguments; then nothing is registered.
        """
        keys = keys_of_devices(self.name, device_types)
        if fn is None:
            return as_decorator(lambda function: self.add_kernels(keys, function, registration_site()))
        self.add_kernels(keys, fn, registration_site())
        return fn

    def register_fake(self, fn: F, /) -> F:
        """Register what runs on arrays without data: same arguments, results of the right shapes and dtypes."""
        register_fake(self, fn)
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
        jvp: Callable[..., Any] | None = None,
    ) -> None:
        """Register its derivative; see `pydispatch.library.register_autograd`."""
        register_autograd(self, backward, setup_context=setup_context, jvp=jvp)

    @overload
    def register_vmap(self, fn: F, /) -> F: ...

    @overload
    def register_vmap(self, fn: None = ..., /) -> Callable[[F], F]: ...

    def register_vmap(self, fn: Callable[..., Any] | None = None, /) -> Any:
        """Register its batching rule; see `pydispatch.library.register_vmap`. Without `fn`, a decorator."""
        if fn is None:
            return register_vmap(self)
        register_vmap(self, fn)
        return fn

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> KernelSwitch:
        """Switch the kernel of a backend off: inside, its calls run the function that was decorated. Or on again.

        For every thread. On leaving, the state is what it was on entering; a kernel that was registered meanwhile is
        off until then. What changes nothing is logged as a warning.
        """
        return KernelSwitch(self, device_type, enabled)

    def remove(self) -> None:
        """Undo the definition, and all that was registered for it through this object or by `pydispatch.library`."""
        self.retire(caller_site())

    def retire(self, site: str) -> None:
        """Undo everything, because of the call at `site`; doing so twice is harmless."""
        with registrations.lock:
            if self._replaced_at is not None:
                return
            switches = [handle for handle in self.operator.registrations if isinstance(handle, SwitchHandle)]
            handles = [*switches, *reversed(self._handles.values())]
            errors = registrations.errors_of([handle.remove for handle in handles])
            if any(handle.active for handle in handles):
                registrations.raise_first(errors)        # interrupted: nothing is undone
            registrations.lock.note(partial(definitions.__setitem__, str(self.name), self))
            definitions.pop(str(self.name), None)
            registrations.assign(self, "target", self._refuse_call)
            registrations.assign(self, "_replaced_at", site)
        registrations.raise_first(errors)        # of listeners

    def add_kernels(self, keys: Collection[DispatchKey], fn: Callable[..., Any], site: str) -> Handle:
        """Register the function under these keys, in place of those that were registered before."""
        with registrations.lock:
            definition = self._definition()
            fn = kernel_function(f"operator {self.name}: argument fn", fn, 'write op.register_kernel("CPU", fn)')
            kernel = _kernel(fn, definition.schema)
            check_kernel(definition.schema, definition.site, kernel)
            return self.replace({key: partial(registrations.add_kernel, self.name, key, kernel, site) for key in keys})

    def replace(self, registering: Mapping[object, Callable[[], Handle]]) -> Handle:
        """Register these by kind, in place of the previous ones, which are back when one is refused."""
        with registrations.lock:
            self._definition()
            for kind in registering:
                if kind in self._handles:
                    self._handles[kind].remove()
            made = all_or_none(registering.values())
            handles = made.handles if isinstance(made, HandleGroup) else [made]
            registrations.assign(self, "_handles", self._handles | dict(zip(registering, handles, strict=True)))
            return made

    def owns(self, handle: object) -> bool:
        """Was this registered for this definition?"""
        return any(handle is ours for ours in self._handles.values())

    def _definition(self) -> registrations.DefinitionHandle:
        definition = None if self._replaced_at is not None else definition_of(self.operator)
        if definition is None:
            raise self._stale()
        return definition

    def _stale(self) -> StaleOperatorError:
        where = f"defined anew, or removed, at {self._replaced_at}" if self._replaced_at else "removed"
        attribute = str(self.name).replace("::", ".")
        return StaleOperatorError(
            f"{self!r} is stale: the operator was {where}\n"
            f"use what that custom_op returned, or look the operator up: pydispatch.ops.{attribute}"
        )

    def _refuse_call(self, *args: Any, **kwargs: Any) -> Any:
        raise self._stale()

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = reduce_custom_operator(self)
        return reduced

    def __repr__(self) -> str:
        return f"<CustomOpDef({self.name})>"


class KernelSwitch(_core.RegistrationGuard, ContextDecorator):
    """Switches the kernels of a backend off or on inside a `with` block, or while a function that it decorates runs."""

    def __init__(self, definition: CustomOpDef, device_type: str, enabled: bool) -> None:
        super().__init__(operators, str(definition.name))
        self.definition = definition
        self.device_type = device_type
        self.enabled = enabled

    def register(self) -> SwitchHandle:
        """Put the switch in force."""
        owner, device = self.definition, self.device_type.lower()
        owner._definition()
        if all(backend_of(key) != device for key in kernels_of(owner.operator)):
            logger.warning(
                "operator %s: no kernel was registered for this device type: %s", owner.name, self.device_type)
        elif (device not in switched_off(owner.operator)) is self.enabled:
            word = "enabled" if self.enabled else "disabled"
            logger.warning("operator %s: the kernel of %s is already %s", owner.name, self.device_type, word)
        return install(owner.name, SwitchHandle(device, self.enabled, owner._original, registration_site()))


def _kernel(function: Callable[..., Any], schema: Schema) -> Kernel:
    """The function as a kernel whose results are checked not to share memory with its arguments."""
    return make_kernel(function, checks_aliasing=not is_view(schema))


# --- defining --------------------------------------------------------------------------------------------------------


@overload
def custom_op(
    name: str, fn: Callable[..., Any], /, *, mutates_args: Iterable[str],
    device_types: str | Iterable[str] | None = ..., schema: str | None = ..., tags: Iterable[str] | None = ...,
    batchable: bool = ...,
) -> CustomOpDef: ...


@overload
def custom_op(
    name: str, fn: None = ..., /, *, mutates_args: Iterable[str],
    device_types: str | Iterable[str] | None = ..., schema: str | None = ..., tags: Iterable[str] | None = ...,
    batchable: bool = ...,
) -> Callable[[Callable[..., Any]], CustomOpDef]: ...


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Iterable[str],
    device_types: str | Iterable[str] | None = None, schema: str | None = None, tags: Iterable[str] | None = None,
    batchable: bool = False,
) -> Any:
    """Define an operator from a Python function: `@custom_op("ns::scale", mutates_args=())`.

    The function is the kernel of the backends `device_types`, named in any case; None: of every backend that has none
    of its own. Its annotations say the schema, unless one is given: `schema="(Tensor x) -> Tensor"`. `mutates_args`
    names the arguments that it writes to, "unknown" stands for all arrays. With the tag "inplace" it returns its first
    argument, with "out" its keyword-only ones. Else results share no memory with arguments or each other; every call
    checks it.

    vmap runs kernels once per example, with a PerformanceWarning. Where all of them are made of operators, and so can
    run on the values of a transform, `batchable=True` says so, and they run once for the whole batch. It is the same as
    the tag "batchable". Or register a batching rule.

    Returns a CustomOpDef; without `fn`, a decorator that does. Defining an operator of the same name again replaces the
    first, with OverrideWarning where the same code runs again. Raises SchemaError, UnknownKeyError, UnsupportedError
    for keyword-only arrays that are not tagged "out", and RegistrationError when the name is taken by an operator that
    was defined otherwise; then nothing has changed.
    """
    operator_name = parse_custom_name(name)
    keys = keys_of_devices(operator_name, device_types)
    if fn is None:
        return lambda function: custom_op(
            name, function, mutates_args=mutates_args, device_types=device_types, schema=schema, tags=tags,
            batchable=batchable,
        )
    if is_c_function(fn):
        fn = universal(f"operator {operator_name}: argument fn", (fn,))
    check_function(f"operator {operator_name}: argument fn", "what becomes an operator", fn,
                   f'write custom_op("{operator_name}", fn, mutates_args=(), schema="(Tensor x) -> Tensor")')
    tags = tags_of(f"operator {operator_name}", tags or ())
    if batchable and BATCHABLE not in tags:
        tags = (*tags, BATCHABLE)
    if schema is None:
        parsed = infer_schema(fn, mutates_args=mutates_args, name=operator_name, tags=tags)
    else:
        parsed = read_signature(operator_name, schema)
        _check_mutates_args(parsed, mutates_args)
    check_tags(parsed, tags)
    if "out" not in tags:
        refuse_keyword_only_arrays(parsed, "library.custom_op")
    return define_custom(parsed, fn, keys, tags, registration_site())


def parse_custom_name(name: str) -> OperatorName:
    """The name of a custom operator; SchemaError when it has no namespace, or one that is reserved."""
    if not isinstance(name, str):
        raise SchemaError(f"an operator's name must be a string, not {type(name).__name__}\nwrite \"ns::name\"")
    parsed = parse_name(name)
    if parsed.namespace is None:
        raise SchemaError(f"operator {name}: expected there to be a namespace\nwrite it as ns::{name}")
    if parsed.namespace in RESERVED_NAMESPACES:
        raise SchemaError(
            f"operator {name}: {parsed.namespace!r} is a reserved namespace: it holds pydispatch's own operators\n"
            f"take one of your own: my_package::{parsed.name}"
        )
    return parsed


def read_signature(name: OperatorName, schema: str) -> Schema:
    """A schema without a name, as that of this operator."""
    if not isinstance(schema, str) or not schema.lstrip().startswith("("):
        found = repr(schema) if isinstance(schema, str) else described(schema)
        raise SchemaError(
            f"operator {name}: expected schema to look like (Tensor x) -> Tensor, found {found}\n"
            "write it as a string, without the name"
        )
    try:
        return parse_signature(schema).with_name(name)
    except SchemaError as error:
        raise SchemaError(f"operator {name}: {error}") from None


def _check_mutates_args(schema: Schema, mutates_args: Iterable[str]) -> None:
    written = {argument.name for argument in schema.arguments if argument.mutable}
    given = written_names(str(schema), mutates_args, [argument.name for argument in schema.arguments])
    if given == "unknown":
        given = {argument.name for argument in schema.arguments if argument.type.contains_arrays}
    if given != written:
        says = ", ".join(sorted(map(repr, written)))
        found = ", ".join(sorted(map(repr, given)))
        raise SchemaError(
            f"{schema}: by its schema the op mutates {{{says}}}, mutates_args names {{{found}}}\n"
            "make them agree: an argument that is written to is `Tensor(a!) x`"
        )


def refuse_keyword_only_arrays(schema: Schema, what: str) -> None:
    """Raise UnsupportedError for a schema with keyword-only arrays."""
    argument = keyword_only_array(schema)
    if argument is not None:
        raise UnsupportedError(
            f"operator {schema.name}: {what} does not support kwarg-only Tensor args, and {argument.name!r} is one\n"
            f"make it positional: put {argument.name!r} before the `*`"
        )


def define_custom(
    schema: Schema, fn: Callable[..., Any], keys: tuple[DispatchKey, ...], tags: tuple[str, ...], site: str
) -> CustomOpDef:
    """Define an operator whose tags and schema are checked, in place of a custom operator of its name."""
    name = schema.name
    assert name is not None
    check_kernel(schema, site, _kernel(fn, schema))
    with registrations.lock:
        previous = definitions.get(str(name))
        if previous is not None:
            _check_others(schema, site, previous)
            defined_before = definition_of(previous.operator)
            if defined_before is not None and is_again(site, defined_before.site):
                warn_again(f"operator {name}", site, defined_before.site)
            previous.retire(site)
        defined = registrations.add_definition(schema, site, tags=tags)
        op = defined.operator
        definition = CustomOpDef(op, fn, schema)
        definition.replace({"definition": lambda: defined})
        definition.add_kernels(keys, fn, site)
        missing = _missing_derivative(op, schema, tags)
        definition.replace({"no formula": partial(registrations.add_derivative, op.name, missing, site)})
        registrations.assign_item(definitions, str(name), definition)
        return definition


def _check_others(schema: Schema, site: str, previous: CustomOpDef) -> None:
    """Will what others registered for the operator fit its new schema?"""
    for registration in previous.operator.registrations:
        if isinstance(registration, KernelHandle) and not previous.owns(registration):
            check_kernel(schema, site, registration.kernel)


def _missing_derivative(op: OpOverload, schema: Schema, tags: tuple[str, ...]) -> MissingDerivative:
    if "out" in tags:
        return MissingDerivative(
            op, f"operator {op.name}: out variants don't support automatic differentiation, and an argument requires "
            "grad\ncall it inside no_grad(), or call an operator that returns new arrays", refuses_calls=True,
        )
    if schema.is_mutable:
        written = ", ".join(argument.name for argument in schema.arguments if argument.mutable)
        remedy = f'register one: pydispatch.library.register_autograd("{op.name}", backward, setup_context=...)'
        if not is_in_place(schema):
            remedy = ("call an operator that returns a new array and has a formula, and use that array; or call this "
                      "one inside no_grad()")
        return MissingDerivative(
            op, f"operator {op.name}: there is no autograd formula for it, and it writes to {written}; an argument "
            f"requires grad, and gradients would be lost\n{remedy}", refuses_calls=True,
        )
    return MissingDerivative(
        op, f"operator {op.name}: there is no autograd formula for it, and backward needs one\n"
        f'register one: pydispatch.library.register_autograd("{op.name}", backward, setup_context=...)',
        refuses_calls=False,
    )


# --- registering for an operator -------------------------------------------------------------------------------------


def register_for(op: OpOverload, kind: str, register: Callable[[], Handle]) -> Handle:
    """Register; for a custom operator, in place of the previous one."""
    owner = definitions.get(str(op.name))
    return register() if owner is None else owner.replace({kind: register})


def _operator(op: Target) -> OpOverload:
    if isinstance(op, CustomOpDef):
        op._definition()
    return find_or_raise(name_of(op))


@overload
def register_fake(op: Target, fn: Callable[..., Any], /, *, allow_override: bool = ...) -> Handle: ...


@overload
def register_fake(op: Target, fn: None = ..., /, *, allow_override: bool = ...) -> Callable[[F], F]: ...


def register_fake(op: Target, fn: Callable[..., Any] | None = None, /, *, allow_override: bool = True) -> Any:
    """Register what an operator does on arrays without data: results of the right shapes and dtypes.

    It gets the operator's arguments, MetaArrays in place of arrays. Returns a handle; without `fn`, a decorator that
    returns its function. The newest is in force, or a second is refused with `allow_override=False`. RegistrationError
    for an operator with a CompositeImplicitAutograd kernel, which runs without data as it is.
    """
    operator = _operator(op)
    if fn is None:
        return as_decorator(lambda function: _add_fake(operator, function, allow_override, registration_site()))
    return _add_fake(operator, fn, allow_override, registration_site())


def _add_fake(operator: OpOverload, fn: Callable[..., Any], allow_override: bool, site: str) -> Handle:
    with registrations.lock:
        check_may_fake(operator, allow_override=allow_override)
        definition = definition_of(operator)
        assert definition is not None
        check_kernel(definition.schema, definition.site, FakeKernel(fn, operator, site))
        return register_for(operator, "fake", partial(add_fake, operator, fn, site))


def register_autograd(
    op: Target, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
) -> Handle:
    """Register the derivative of an operator.

    `setup_context(ctx, inputs, output)` runs after the operator when something requires grad, and saves what backward
    needs; `inputs` are all positional arguments, with defaults. Where the schema has keyword-only ones it also takes
    `keyword_only_inputs`, a dict. It is called by keyword, so its parameters have these names.
    `backward(ctx, *grads)` gets a gradient per result (a tuple for a list), and returns one per positional argument, or
    per argument that was passed: None where there is none, a list or tuple for a list of arrays.
    `jvp(ctx, *tangents)` gets a tangent or None per positional argument, and returns one per result. Without one,
    forward mode transposes backward: it differentiates that with respect to its gradients, in which it has to be
    linear, as a derivative is (nothing can check it). NoDerivativeError where backward hands them to NumPy.

    Returns a handle; the newest formula is used, from the next call on. Raises RegistrationError for an operator that
    writes to arguments, returns nothing, or returns a view (unless of its only array), and for a function that cannot
    be called like this; UnsupportedError for keyword-only arrays.
    """
    operator = _operator(op)
    site = registration_site()
    with registrations.lock:
        _check_differentiable(operator)
        derivative = ContextDerivative(operator, backward, setup_context, jvp)
        register = partial(registrations.add_derivative, operator.name, derivative, site)
        return register_for(operator, "autograd", register)


def _check_differentiable(op: OpOverload) -> None:
    schema = schema_of(op)
    if "out" in op.tags:
        raise RegistrationError(
            f"operator {op.name}: Out variants do not support autograd\nregister the formula for the variant that "
            "returns new arrays"
        )
    refuse_keyword_only_arrays(schema, "register_autograd")
    if schema.is_mutable and not is_in_place(schema):
        problem = "it writes to arguments, and not to one array that it returns"
    elif not schema.returns:
        problem = "it returns nothing"
    elif is_view(schema) and not _is_view_of_one(schema):
        problem = "it returns a view, and not one array for one array"
    else:
        return
    raise RegistrationError(
        f"operator {op.name}: cannot register an autograd formula for a non-functional operator: {problem}\n"
        "define an operator that returns new arrays, register the formula for that, and use these arrays"
    )


def _is_view_of_one(schema: Schema) -> bool:
    arrays = [argument for argument in schema.arguments if argument.type.contains_arrays]
    return len(arrays) == len(schema.returns) == 1 and is_array(arrays[0].type) and is_array(schema.returns[0].type)


@overload
def register_vmap(op: Target, fn: Callable[..., Any], /) -> Handle: ...


@overload
def register_vmap(op: Target, fn: None = ..., /) -> Callable[[F], F]: ...


def register_vmap(op: Target, fn: Callable[..., Any] | None = None, /) -> Any:
    """Register a batching rule: `rule(info, in_dims, *args, **kwargs) -> (output, out_dims)`.

    `info.batch_size` says how many calls are made as one, and `info.randomness` what draws are to do. `in_dims` has an
    entry per positional argument, nested as that is: 0 if its batch axis comes first, None if it has none.
    `out_dims` says the same of the output, nested as far as it matters, and may name any axis. The rule runs where the
    vmap is absent, on raw arrays, Tensors, or values of other transforms; so it is written with operators. It usually
    calls this very one on the whole batch: then its derivative is kept.

    Without a rule one is generated: an operator with a derivative becomes `vmap(ns::name)`, which runs kernel and
    derivative on all examples; others are called once per example.

    Returns a handle; without `fn`, a decorator that returns its function. RegistrationError for a function that cannot
    take these arguments; UnsupportedError for keyword-only arrays.
    """
    operator = _operator(op)
    if fn is None:
        return as_decorator(lambda function: _add_vmap(operator, function, registration_site()))
    return _add_vmap(operator, fn, registration_site())


def _add_vmap(operator: OpOverload, fn: Callable[..., Any], site: str) -> Handle:
    with registrations.lock:
        refuse_keyword_only_arrays(schema_of(operator), "register_vmap")
        return register_for(operator, "vmap", partial(add_batching, operator, fn, site))


@overload
def register_kernel(
    op: Target, device_types: str | Iterable[str] | None, fn: Callable[..., Any]
) -> Handle: ...


@overload
def register_kernel(
    op: Target, device_types: str | Iterable[str] | None, fn: None = ...
) -> Callable[[F], F]: ...


def register_kernel(op: Target, device_types: str | Iterable[str] | None, fn: Callable[..., Any] | None = None) -> Any:
    """Register a kernel for one or more backends; None or "default" is for all of them (CompositeExplicitAutograd).

    Returns one handle that undoes all; without `fn`, a decorator that returns its function. For a custom operator it
    replaces the previous kernel. The operator may be defined later.
    """
    name = name_of(op)
    require_namespace(name)
    keys = keys_of_devices(name, device_types)
    if fn is None:
        return as_decorator(lambda function: _register_kernel(name, keys, function, registration_site()))
    return _register_kernel(name, keys, fn, registration_site())


def _register_kernel(name: OperatorName, keys: tuple[DispatchKey, ...], fn: Callable[..., Any], site: str) -> Handle:
    fn = kernel_function(f"operator {name}: argument fn", fn,
                         f'write library.register_kernel("{name}", "CPU", fn)')
    owner = definitions.get(str(name))
    if owner is not None:
        return owner.add_kernels(keys, fn, site)
    kernel = make_kernel(fn)
    return all_or_none(partial(registrations.add_kernel, name, key, kernel, site) for key in keys)
