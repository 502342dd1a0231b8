"""Custom operators: operators that users define from Python functions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ContextDecorator
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch._loading import deferred
from pydispatch._registry import registrations
from pydispatch._registry.c_functions import is_c_function, universal
from pydispatch._registry.kernels import Kernel, check_function, check_kernel, kernel_function, make_kernel
from pydispatch._registry.operators import find_or_raise, schema_of
from pydispatch._sites import caller_site, is_again, registration_site, warn_again
from pydispatch.exceptions import RegistrationError, SchemaError, StaleOperatorError, UnsupportedError
from pydispatch.keys import DispatchKey
from pydispatch.library.batching import add_batching
from pydispatch.library.checks import is_array, is_in_place, is_view, keyword_only_array
from pydispatch.library.derivatives import ContextDerivative, MissingDerivative
from pydispatch.library.derived import BATCHABLE
from pydispatch.library.fakes import FakeKernel, add_fake, check_may_fake
from pydispatch.library.targets import Target, as_decorator, keys_of_devices, name_of, require_namespace
from pydispatch.schema import OperatorName, Schema, parse_name, parse_signature
from pydispatch.schema.checks import check_tags, tags_of, written_names
from pydispatch.schema.frozen import described
from pydispatch.schema.inference import infer_schema

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
R = TypeVar("R")

RESERVED_NAMESPACES = ("np", "pydispatch")
logger = logging.getLogger("pydispatch.library")
reduce_custom_operator = deferred("library.pickling", "reduce_custom_operator")
definitions: dict[str, CustomOpDef[..., Any]] = {}
"""By full name. Keeps an operator alive after its CustomOpDef is dropped."""


@_core.keep_vectorcall
class CustomOpDef(_core.Callee, Generic[P, R]):
    """An operator that `custom_op` has defined: call it like its function, and register more for it.

    A registration through this object, or for it by `pydispatch.library`, replaces the previous one of its kind.
    `remove()` undoes them all, and so does defining an operator of the same name by `custom_op`. The object then raises
    StaleOperatorError. Graphs recorded before keep their formula.
    """

    if TYPE_CHECKING:
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __init__(self, operator: OpOverload, function: Callable[P, R], schema: Schema) -> None:
        update_wrapper(self, function)
        self.operator = operator
        self.function = function
        self._original = _kernel(function, schema)
        self._handles: dict[object, registrations.Handle] = {}      # by kind: a registration replaces one of its kind
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
        """Register a kernel for one or more backends.

        Parameters
        ----------
        device_types
            The names of the backends, in any case. None registers the kernel for every backend that has no kernel for
            this operator.
        fn
            The kernel. Without it, `register_kernel` returns a decorator.

        Returns
        -------
        function
            `fn`, or a decorator that returns its function.

        Raises
        ------
        UnknownKeyError
            If a name is not the name of a backend. Nothing is registered then.
        RegistrationError
            If the function cannot take the operator's arguments. Nothing is registered then.
        """
        keys = keys_of_devices(self.name, device_types)
        if fn is None:
            return as_decorator(lambda function: self.add_kernels(keys, function, registration_site()))
        self.add_kernels(keys, fn, registration_site())
        return fn

    def register_fake(self, fn: F, /) -> F:
        """Register a fake: a function that computes the shapes and dtypes of the results on arrays without data."""
        register_fake(self, fn)
        return fn

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
        jvp: Callable[..., Any] | None = None,
    ) -> None:
        """Register the operator's derivative. See `pydispatch.library.register_autograd`."""
        register_autograd(self, backward, setup_context=setup_context, jvp=jvp)

    @overload
    def register_vmap(self, fn: F, /) -> F: ...

    @overload
    def register_vmap(self, fn: None = ..., /) -> Callable[[F], F]: ...

    def register_vmap(self, fn: Callable[..., Any] | None = None, /) -> Any:
        """Register the operator's batching rule. See `pydispatch.library.register_vmap`.

        Without `fn`, returns a decorator.
        """
        if fn is None:
            return register_vmap(self)
        register_vmap(self, fn)
        return fn

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> KernelSwitch:
        """Return a context manager that disables the kernel of a backend, or enables it again.

        While the kernel is disabled, calls on that backend run the function that `custom_op` decorated. The switch
        applies to every thread. On exit, the state is the same as on entry. A kernel that was registered in between
        stays disabled until then. A switch that changes nothing logs a warning.
        """
        return KernelSwitch(self, device_type, enabled)

    def remove(self) -> None:
        """Undo the definition, and everything registered for it through this object or by `pydispatch.library`."""
        self.retire(caller_site())

    def retire(self, site: str) -> None:
        """Undo everything, because of the call at `site`. A second call does nothing."""
        with registrations.lock:
            if self._replaced_at is not None:
                return
            switches = [handle for handle in self.operator.registrations
                        if isinstance(handle, registrations.SwitchHandle)]
            handles = [*switches, *reversed(self._handles.values())]
            errors = registrations.errors_of([handle.remove for handle in handles])
            if any(handle.active for handle in handles):
                registrations.raise_first(errors)        # interrupted: nothing is undone
            registrations.lock.note(partial(definitions.__setitem__, str(self.name), self))
            definitions.pop(str(self.name), None)
            registrations.assign(self, "target", self._refuse_call)
            registrations.assign(self, "_replaced_at", site)
        registrations.raise_first(errors)        # an interrupt that came when all was undone

    def add_kernels(self, keys: Collection[DispatchKey], fn: Callable[..., Any], site: str) -> registrations.Handle:
        """Register the function under these keys, and replace the kernels that were registered there before."""
        with registrations.lock:
            definition = self._definition()
            fn = kernel_function(f"operator {self.name}: argument fn", fn, 'write op.register_kernel("CPU", fn)')
            kernel = _kernel(fn, definition.schema)
            check_kernel(definition.schema, definition.site, kernel)
            return self.put_kernel(keys, kernel, site)

    def put_kernel(self, keys: Collection[DispatchKey], kernel: Kernel, site: str) -> registrations.Handle:
        """Register a checked kernel, as `add_kernels` does."""
        return self.replace({key: partial(registrations.add_kernel, self.name, key, kernel, site) for key in keys})

    def replace(self, registering: Mapping[object, Callable[[], registrations.Handle]]) -> registrations.Handle:
        """Register by kind and replace the previous registrations. If one is refused, restore the previous ones."""
        with registrations.lock:
            self._definition()
            for kind in registering:
                if kind in self._handles:
                    self._handles[kind].remove()
            made = registrations.all_or_none(registering.values())
            handles = made.handles if isinstance(made, registrations.HandleGroup) else [made]
            registrations.assign(self, "_handles", self._handles | dict(zip(registering, handles, strict=True)))
            return made

    def owns(self, handle: object) -> bool:
        """Return whether this handle was registered for this definition."""
        return any(handle is ours for ours in self._handles.values())

    def _definition(self) -> registrations.DefinitionHandle:
        definition = None if self._replaced_at is not None else registrations.definition_of(self.operator)
        if definition is None:
            raise self._stale()
        return definition

    def _stale(self) -> StaleOperatorError:
        where = f"redefined or removed at {self._replaced_at}" if self._replaced_at else "removed"
        attribute = str(self.name).replace("::", ".")
        return StaleOperatorError(
            f"{self!r} is stale: the operator was {where}\n"
            f"use the return value of that custom_op, or look the operator up: pydispatch.ops.{attribute}"
        )

    def _refuse_call(self, *args: Any, **kwargs: Any) -> Any:
        raise self._stale()

    def __reduce__(self) -> tuple[Any, ...]:
        reduced: tuple[Any, ...] = reduce_custom_operator(self)
        return reduced

    def __repr__(self) -> str:
        return f"<CustomOpDef({self.name})>"


class KernelSwitch(_core.RegistrationGuard, ContextDecorator):
    """Disables or enables the kernels of a backend inside a `with` block, or while a decorated function runs."""

    def __init__(self, definition: CustomOpDef[..., Any], device_type: str, enabled: bool) -> None:
        super().__init__(registrations.operators, str(definition.name))
        self.definition = definition
        self.device_type = device_type
        self.enabled = enabled

    def register(self) -> registrations.SwitchHandle:
        """Install the switch."""
        owner, device = self.definition, self.device_type.lower()
        owner._definition()
        if all(registrations.backend_of(key) != device for key in registrations.kernels_of(owner.operator)):
            logger.warning(
                "operator %s: no kernel was registered for this device type: %s", owner.name, self.device_type)
        elif (device not in registrations.switched_off(owner.operator)) is self.enabled:
            word = "enabled" if self.enabled else "disabled"
            logger.warning("operator %s: the kernel of %s is already %s", owner.name, self.device_type, word)
        switch = registrations.SwitchHandle(device, self.enabled, owner._original, registration_site())
        return registrations.install(owner.name, switch)


def _kernel(function: Callable[..., Any], schema: Schema) -> Kernel:
    """Return the function as a kernel, whose results must not share memory with arguments unless they are views."""
    return make_kernel(function, checks_aliasing=not is_view(schema))


# --- defining --------------------------------------------------------------------------------------------------------


@overload
def custom_op(
    name: str, fn: Callable[P, R], /, *, mutates_args: Iterable[str],
    device_types: str | Iterable[str] | None = ..., schema: str | None = ..., tags: Iterable[str] | None = ...,
    batchable: bool = ...,
) -> CustomOpDef[P, R]: ...
@overload
def custom_op(
    name: str, fn: None = ..., /, *, mutates_args: Iterable[str],
    device_types: str | Iterable[str] | None = ..., schema: str | None = ..., tags: Iterable[str] | None = ...,
    batchable: bool = ...,
) -> Callable[[Callable[P, R]], CustomOpDef[P, R]]: ...
def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Iterable[str],
    device_types: str | Iterable[str] | None = None, schema: str | None = None, tags: Iterable[str] | None = None,
    batchable: bool = False,
) -> Any:
    """Define an operator from a Python function: `@custom_op("ns::scale", mutates_args=())`.

    `vmap` runs kernels once per example, with a PerformanceWarning. To avoid this, pass `batchable=True` or register a
    batching rule.

    Parameters
    ----------
    name
        The operator's name with its namespace, as in "ns::scale".
    fn
        The function, which becomes a kernel. Without it, `custom_op` returns a decorator.
    mutates_args
        The names of the arguments that the function writes to. "unknown" means all arrays.
    device_types
        The names of the backends that the function is the kernel of, in any case. None registers it for every backend
        that has no kernel for this operator.
    schema
        The schema, as in "(Tensor x) -> Tensor". Without it, the schema is inferred from the annotations of the
        function.
    tags
        An operator with the tag "inplace" returns its first argument, one with the tag "out" its keyword-only
        arguments. The results of other operators share no memory with arguments or each other. Every call checks this.
    batchable
        Whether all kernels are made of operators, and so can run on the values of a transform. `vmap` then runs them
        once for the whole batch. Equivalent to the tag "batchable".

    Returns
    -------
    CustomOpDef
        The operator, or a decorator that returns it. Defining an operator of the same name again replaces the first
        one, with an OverrideWarning if the same code runs again.

    Raises
    ------
    SchemaError
        If the name or the schema is not valid.
    UnknownKeyError
        If a name in `device_types` is not the name of a backend.
    UnsupportedError
        If the schema has keyword-only arrays without the tag "out".
    RegistrationError
        If an operator of this name was defined otherwise. Nothing has changed after any of these errors.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import library, ops
    >>> @library.custom_op("example::scale", mutates_args=())
    ... def scale(x: np.ndarray, by: float = 2.0) -> np.ndarray:
    ...     return by * x
    >>> scale(np.ones(3))
    array([2., 2., 2.])
    >>> print(ops.example.scale.default.schema)
    example::scale(Tensor x, float by=2.0) -> Tensor
    >>> scale.remove()
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
    """Return the name of a custom operator. Raise SchemaError if it has no namespace, or a reserved one."""
    if not isinstance(name, str):
        raise SchemaError(f"an operator's name must be a string, not {type(name).__name__}\nwrite \"ns::name\"")
    parsed = parse_name(name)
    if parsed.namespace is None:
        raise SchemaError(f"operator {name}: expected there to be a namespace\nwrite it as ns::{name}")
    if parsed.namespace in RESERVED_NAMESPACES:
        raise SchemaError(
            f"operator {name}: {parsed.namespace!r} is a reserved namespace for pydispatch's own operators\n"
            f"choose another namespace: my_package::{parsed.name}"
        )
    return parsed


def read_signature(name: OperatorName, schema: str) -> Schema:
    """Parse a schema without a name, and give it this operator's name."""
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
        expected = ", ".join(sorted(map(repr, written)))
        found = ", ".join(sorted(map(repr, given)))
        raise SchemaError(
            f"{schema}: by its schema the op mutates {{{expected}}}, but mutates_args names {{{found}}}\n"
            "make them agree: an argument that is written to is `Tensor(a!) x`"
        )


def refuse_keyword_only_arrays(schema: Schema, what: str) -> None:
    """Raise UnsupportedError for a schema with keyword-only arrays."""
    argument = keyword_only_array(schema)
    if argument is not None:
        raise UnsupportedError(
            f"operator {schema.name}: {what} does not support kwarg-only Tensor args, such as {argument.name!r}\n"
            f"make it positional: put {argument.name!r} before the `*`"
        )


def define_custom(
    schema: Schema, fn: Callable[..., Any], keys: tuple[DispatchKey, ...], tags: tuple[str, ...], site: str
) -> CustomOpDef[..., Any]:
    """Define an operator from a checked schema and tags, and replace a custom operator of the same name."""
    name = schema.name
    assert name is not None
    kernel = _kernel(fn, schema)
    check_kernel(schema, site, kernel)
    with registrations.lock:
        previous = definitions.get(str(name))
        if previous is not None:
            _check_others(schema, site, previous)
            defined_before = registrations.definition_of(previous.operator)
            if defined_before is not None and is_again(site, defined_before.site):
                warn_again(f"operator {name}", site, defined_before.site)
            previous.retire(site)
        defined = registrations.add_definition(schema, site, tags=tags)
        op = defined.operator
        definition = CustomOpDef(op, fn, schema)
        definition.replace({"definition": lambda: defined})
        definition.put_kernel(keys, kernel, site)
        missing = _missing_derivative(op, schema, tags)
        definition.replace({"no formula": partial(registrations.add_derivative, op.name, missing, site)})
        registrations.assign_item(definitions, str(name), definition)
        return definition


def _check_others(schema: Schema, site: str, previous: CustomOpDef[..., Any]) -> None:
    """Check that kernels that other modules registered for the operator fit its new schema."""
    for registration in previous.operator.registrations:
        if isinstance(registration, registrations.KernelHandle) and not previous.owns(registration):
            check_kernel(schema, site, registration.kernel)


def _missing_derivative(op: OpOverload, schema: Schema, tags: tuple[str, ...]) -> MissingDerivative:
    if "out" in tags:
        return MissingDerivative(
            op, f"operator {op.name}: out variants don't support automatic differentiation, but an argument requires "
            "grad\ncall it inside no_grad(), or call an operator that returns new arrays", refuses_calls=True,
        )
    if schema.is_mutable:
        written = ", ".join(argument.name for argument in schema.arguments if argument.mutable)
        remedy = f'register one: pydispatch.library.register_autograd("{op.name}", backward, setup_context=...)'
        if not is_in_place(schema):
            remedy = ("call an operator that returns a new array and has a formula, and use that array, or call this "
                      "operator inside no_grad()")
        return MissingDerivative(
            op, f"operator {op.name}: there is no autograd formula for it, and it writes to {written}. An argument "
            f"requires grad, so gradients would be lost\n{remedy}", refuses_calls=True,
        )
    return MissingDerivative(
        op, f"operator {op.name}: there is no autograd formula for it, and backward needs one\n"
        f'register one: pydispatch.library.register_autograd("{op.name}", backward, setup_context=...)',
        refuses_calls=False,
    )


# --- registering for an operator -------------------------------------------------------------------------------------


def register_for(op: OpOverload, kind: str, register: Callable[[], registrations.Handle]) -> registrations.Handle:
    """Register. For a custom operator, replace the previous registration of this kind."""
    owner = definitions.get(str(op.name))
    return register() if owner is None else owner.replace({kind: register})


def _operator(op: Target) -> OpOverload:
    if isinstance(op, CustomOpDef):
        op._definition()
    return find_or_raise(name_of(op))


@overload
def register_fake(op: Target, fn: Callable[..., Any], /, *, allow_override: bool = ...) -> registrations.Handle: ...
@overload
def register_fake(op: Target, fn: None = ..., /, *, allow_override: bool = ...) -> Callable[[F], F]: ...
def register_fake(op: Target, fn: Callable[..., Any] | None = None, /, *, allow_override: bool = True) -> Any:
    """Register a fake: a function that computes the shapes and dtypes of an operator's results on arrays without data.

    Parameters
    ----------
    op
        The operator, or its name.
    fn
        The fake. It takes the operator's arguments, with a MetaArray for each array. Without it, `register_fake`
        returns a decorator.
    allow_override
        Whether the fake may replace one that is registered already. The newest is used.

    Returns
    -------
    Handle
        A handle that undoes the registration, or a decorator that returns its function.

    Raises
    ------
    RegistrationError
        If the operator has a CompositeImplicitAutograd kernel, which runs without data itself, or if there is a fake
        and `allow_override` is False.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import library
    >>> from pydispatch.backends import MetaArray
    >>> @library.custom_op("example::doubled", mutates_args=())
    ... def doubled(x: np.ndarray) -> np.ndarray:
    ...     return 2 * x
    >>> @library.register_fake(doubled)
    ... def doubled_fake(x):
    ...     return MetaArray(x.shape, x.dtype)
    >>> doubled(MetaArray((2, 3), np.float64)).shape
    (2, 3)
    >>> doubled.remove()
    """
    operator = _operator(op)
    if fn is None:
        return as_decorator(lambda function: _add_fake(operator, function, allow_override, registration_site()))
    return _add_fake(operator, fn, allow_override, registration_site())


def _add_fake(operator: OpOverload, fn: Callable[..., Any], allow_override: bool, site: str) -> registrations.Handle:
    with registrations.lock:
        check_may_fake(operator, allow_override=allow_override)
        definition = registrations.definition_of(operator)
        assert definition is not None
        check_kernel(definition.schema, definition.site, FakeKernel(fn, operator, site))
        return register_for(operator, "fake", partial(add_fake, operator, fn, site))


def register_autograd(
    op: Target, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
) -> registrations.Handle:
    """Register the derivative of an operator.

    Parameters
    ----------
    op
        The operator, or its name.
    backward
        `backward(ctx, *grads)` takes a gradient per result (a tuple for a list). It returns one per positional
        argument, or one per argument that was passed: None if there is none, a list or tuple for a list of arrays.
    setup_context
        `setup_context(ctx, inputs, output)` runs after the operator if an argument requires grad, and saves what
        backward needs. `inputs` are all positional arguments, with defaults. If the schema has keyword-only arguments,
        it also takes `keyword_only_inputs`, a dict. It is called by keyword, so its parameters must have these names.
    jvp
        `jvp(ctx, *tangents)` takes a tangent or None per positional argument, and returns one per result. Without it,
        forward mode transposes backward: it differentiates backward with respect to its gradients. Backward must be
        linear in them, as a derivative is. This is not checked. NoDerivativeError is raised if backward passes them to
        NumPy.

    Returns
    -------
    Handle
        A handle that undoes the registration. The newest formula is used, from the next call on.

    Raises
    ------
    RegistrationError
        If the operator writes to arguments, returns nothing, or returns a view of an argument that is not its only
        array. Also if a function cannot be called as described.
    UnsupportedError
        If the schema has keyword-only arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import func, library
    >>> @library.custom_op("example::cube", mutates_args=())
    ... def cube(x: np.ndarray) -> np.ndarray:
    ...     return x**3
    >>> def setup_context(ctx, inputs, output):
    ...     ctx.save_for_backward(inputs[0])
    >>> def backward(ctx, grad):
    ...     x, = ctx.saved_tensors
    ...     return 3 * x**2 * grad
    >>> handle = library.register_autograd(cube, backward, setup_context=setup_context)
    >>> func.grad(lambda x: cube(x).sum())(np.array([1.0, 2.0]))
    array([ 3., 12.])
    >>> cube.remove()
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
        problem = "it writes to arguments other than a single array that it returns"
    elif not schema.returns:
        problem = "it returns nothing"
    elif is_view(schema) and not _is_view_of_one(schema):
        problem = "it returns views, but not one view of one array"
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
def register_vmap(op: Target, fn: Callable[..., Any], /) -> registrations.Handle: ...
@overload
def register_vmap(op: Target, fn: None = ..., /) -> Callable[[F], F]: ...
def register_vmap(op: Target, fn: Callable[..., Any] | None = None, /) -> Any:
    """Register a batching rule: `rule(info, in_dims, *args, **kwargs) -> (output, out_dims)`.

    The rule runs with the interpreter of `vmap` absent, on raw arrays, Tensors, or values of other transforms. Write it
    with operators. It usually calls the same operator on the whole batch, which keeps the operator's derivative.

    Without a rule, one is generated. An operator with a derivative becomes `vmap(ns::name)`, which runs kernel and
    derivative on all examples. Others are called once per example.

    Parameters
    ----------
    op
        The operator, or its name.
    fn
        The rule. `info.batch_size` is the number of examples, and `info.randomness` specifies how random numbers are
        drawn. `in_dims` has an entry per positional argument, nested like the argument: 0 if its batch axis comes
        first, None if it has none. `out_dims` describes the output in the same way, nested as needed, and may name any
        axis. Without `fn`, `register_vmap` returns a decorator.

    Returns
    -------
    Handle
        A handle that undoes the registration, or a decorator that returns its function.

    Raises
    ------
    RegistrationError
        If the function cannot take these arguments.
    UnsupportedError
        If the schema has keyword-only arrays.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import func, library
    >>> @library.custom_op("example::plus_one", mutates_args=())
    ... def plus_one(x: np.ndarray) -> np.ndarray:
    ...     return x + 1
    >>> @library.register_vmap(plus_one)
    ... def plus_one_batched(info, in_dims, x):
    ...     return plus_one(x), in_dims[0]
    >>> func.vmap(plus_one)(np.zeros((2, 3)))
    array([[1., 1., 1.],
           [1., 1., 1.]])
    >>> plus_one.remove()
    """
    operator = _operator(op)
    if fn is None:
        return as_decorator(lambda function: _add_vmap(operator, function, registration_site()))
    return _add_vmap(operator, fn, registration_site())


def _add_vmap(operator: OpOverload, fn: Callable[..., Any], site: str) -> registrations.Handle:
    with registrations.lock:
        refuse_keyword_only_arrays(schema_of(operator), "register_vmap")
        return register_for(operator, "vmap", partial(add_batching, operator, fn, site))


@overload
def register_kernel(
    op: Target, device_types: str | Iterable[str] | None, fn: Callable[..., Any]
) -> registrations.Handle: ...
@overload
def register_kernel(
    op: Target, device_types: str | Iterable[str] | None, fn: None = ...
) -> Callable[[F], F]: ...
def register_kernel(op: Target, device_types: str | Iterable[str] | None, fn: Callable[..., Any] | None = None) -> Any:
    """Register a kernel for one or more backends. The operator may be defined later.

    Parameters
    ----------
    op
        The operator, or its name.
    device_types
        The names of the backends. None or "default" means all of them (CompositeExplicitAutograd).
    fn
        The kernel. For a custom operator, it replaces the previous one. Without it, `register_kernel` returns a
        decorator.

    Returns
    -------
    Handle
        One handle that undoes all the registrations, or a decorator that returns its function.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import library, ops
    >>> definition = library.define("example::half(Tensor x) -> Tensor")
    >>> kernel = library.register_kernel("example::half", "CPU", lambda x: x / 2)
    >>> ops.example.half(np.ones(2))
    array([0.5, 0.5])
    >>> kernel.remove()
    >>> definition.remove()
    """
    name = name_of(op)
    require_namespace(name)
    keys = keys_of_devices(name, device_types)
    if fn is None:
        return as_decorator(lambda function: _register_kernel(name, keys, function, registration_site()))
    return _register_kernel(name, keys, fn, registration_site())


def _register_kernel(
    name: OperatorName, keys: tuple[DispatchKey, ...], fn: Callable[..., Any], site: str
) -> registrations.Handle:
    fn = kernel_function(f"operator {name}: argument fn", fn,
                         f'write library.register_kernel("{name}", "CPU", fn)')
    owner = definitions.get(str(name))
    if owner is not None:
        return owner.add_kernels(keys, fn, site)
    kernel = make_kernel(fn)
    return registrations.all_or_none(partial(registrations.add_kernel, name, key, kernel, site) for key in keys)
