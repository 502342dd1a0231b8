"""`Library` and its functions, rules for classes, and `get_kernel`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar, overload

from pydispatch import _core
from pydispatch._core import Interpreter, OpOverload, Tensor
from pydispatch._registry import registrations
from pydispatch._registry.kernels import Kernel, check_function, kernel_function, make_kernel
from pydispatch._registry.operators import find_or_raise
from pydispatch._registry.registrations import FallbackHandle, Handle, HandleGroup
from pydispatch._registry.tables import table_entry
from pydispatch._sites import is_again, registration_site, warn_again
from pydispatch.autograd.function import Function, add_interpreter_rule
from pydispatch.exceptions import RegistrationError, SchemaError, StaleOperatorError, UnknownKeyError
from pydispatch.keys import DispatchKey
from pydispatch.library.custom_operator import read_signature
from pydispatch.library.targets import Target, as_decorator, key_of, name_of, require_namespace
from pydispatch.modes import DispatchMode
from pydispatch.ops import drop_namespace
from pydispatch.schema import OperatorName, Schema, parse_name, parse_schema, parse_schema_or_name
from pydispatch.schema.checks import check_tags, tags_of
from pydispatch.schema.frozen import described
from pydispatch.schema.names import validate_namespace

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Handle)
ALIAS_ANALYSIS = ("FROM_SCHEMA", "CONSERVATIVE", "PURE_FUNCTION")
_definers: weakref.WeakValueDictionary[str, Library] = weakref.WeakValueDictionary()  # namespace -> its DEF library
_used: set[Library] = set()             # DEF libraries that have registered something, which must not be dropped


class Library:
    """The registrations of one namespace, undone together.

    A namespace has at most one `Library("ns", "DEF")`. Any number of `"FRAGMENT"` libraries may also define operators.
    An `"IMPL"` library only registers implementations and fallbacks, and may have a default key. Close it, or use it as
    a context manager, to undo everything that was registered through it. Dropping the object undoes nothing.

    The code that opened a DEF library may run again, like a cell of a notebook. It then closes the former one, with an
    OverrideWarning.

    Raises
    ------
    RegistrationError
        If the namespace has another DEF library, the kind does not exist, or a library that is not IMPL has a key.
    SchemaError
        If the namespace is not an identifier.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import library, ops
    >>> with library.Library("example", "FRAGMENT") as lib:
    ...     handle = lib.define("double(Tensor x) -> Tensor")
    ...     handle = lib.impl("double", lambda x: 2 * x, "CPU")
    ...     print(ops.example.double(np.arange(3.0)))
    [0. 2. 4.]
    """

    def __init__(self, namespace: str, kind: str, key: str | DispatchKey | None = None) -> None:
        self.namespace = namespace
        self.kind = kind
        self.site = registration_site()
        self.handles: list[Handle] = []
        self._crowded = 16      # at more handles than this, drop the removed ones
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise RegistrationError(
                f"a library is DEF, FRAGMENT or IMPL, not {kind!r}\nwrite Library({namespace!r}, \"FRAGMENT\")"
            )
        if key is not None and kind != "IMPL":
            raise RegistrationError(
                f"the {kind} library {namespace!r} cannot have the default key {key!r}: only IMPL libraries can\n"
                f"write Library({namespace!r}, \"IMPL\", {key!r}), or name the key at each impl"
            )
        if namespace == "_" and kind != "IMPL":
            raise RegistrationError(
                f"the namespace _ means all operators, so a {kind} library cannot define anything in it\n"
                'register fallbacks in Library("_", "IMPL"). To define operators, name a namespace'
            )
        if namespace != "_":
            validate_namespace(namespace)
        self.key = None if key is None else key_of(
            f"library {namespace!r}", key, f'write Library({namespace!r}, "IMPL", "CPU")')
        if kind == "DEF":
            self._claim_namespace()

    def _claim_namespace(self) -> None:
        with registrations.lock:
            first = _definers.get(self.namespace)
            if first is not None and is_again(self.site, first.site):
                warn_again(f"the DEF library {self.namespace!r}", self.site, first.site)
                first.close()
            elif first is not None:
                raise RegistrationError(
                    f"the namespace {self.namespace!r} has a DEF library already\n"
                    f"the one opened at {self.site} is the second, the first was opened at {first.site}. Close that "
                    f'one, or open Library({self.namespace!r}, "FRAGMENT"), which can also define operators'
                )
            _definers[self.namespace] = self

    def define(
        self, schema: str, fn: Callable[..., Any] | None = None, key: str | DispatchKey | None = None, *,
        alias_analysis: str = "", tags: Iterable[str] = (),
    ) -> Handle:
        """Define an operator: `lib.define("scale(Tensor x, float by=2.0) -> Tensor")`.

        Nothing is registered if the schema or the function is refused.

        Parameters
        ----------
        schema
            The schema. With `fn`, a bare name is enough, and the schema is inferred from the annotations.
        fn
            A kernel to register for the operator.
        key
            The dispatch key of the kernel: this one, else the library's, else CompositeImplicitAutograd.
        alias_analysis
            FROM_SCHEMA, CONSERVATIVE or PURE_FUNCTION. The default is FROM_SCHEMA for a given schema and CONSERVATIVE
            for an inferred one.
        tags
            Tags to keep with the operator. "inplace" and "out" are checked against the schema.

        Returns
        -------
        Handle
            A handle that undoes the definition and the kernel.
        """
        site = registration_site()
        if self.kind == "IMPL":
            raise RegistrationError(
                f"cannot define {schema.partition('(')[0].strip()!r} in the IMPL library {self.namespace!r}, opened at "
                f'{self.site}\nopen Library({self.namespace!r}, "FRAGMENT")'
            )
        if not isinstance(schema, str):
            raise SchemaError(f"define: argument schema is {described(schema)}, expected a schema as a string\n"
                              'write lib.define("f(Tensor x) -> Tensor")')
        parsed = parse_schema_or_name(schema) if fn is not None else parse_schema(schema)
        what = f"operator {parsed if isinstance(parsed, OperatorName) else parsed.name}"
        _check_alias_analysis(what, alias_analysis)
        tags = tags_of(what, tags)
        if fn is not None:
            fn = kernel_function(f"{what}: argument fn", fn, 'write lib.define("f(Tensor x) -> Tensor", fn, key)')
        kernel = None if fn is None else make_kernel(fn)
        kind = alias_analysis or "FROM_SCHEMA"
        if isinstance(parsed, OperatorName):
            assert kernel is not None       # otherwise a schema was parsed
            parsed = _inferred_schema(parsed, kernel, site)
            kind = alias_analysis or "CONSERVATIVE"
        assert parsed.name is not None
        name = self._in_namespace(parsed.name, "define")
        parsed = parsed.with_name(name)
        check_tags(parsed, tags)
        chosen = self._key_for(key, name, f'write lib.define("{name}(...) -> ...", fn, "CPU")')
        handle: Handle | None = None
        was_used = self in _used
        try:
            with registrations.lock:
                definition = registrations.add_definition(parsed, site, alias_analysis=kind, tags=tags)
                handle = self._keep(definition if kernel is None else HandleGroup(
                    [definition, registrations.add_kernel(name, chosen, kernel, site)]))
            return handle       # noqa: RET504 what handles an interrupt behind the block needs it
        except BaseException:
            if handle is not None:
                handle.remove()
                if not was_used:
                    _used.discard(self)
            raise

    @overload
    def impl(
        self, name: Target, fn: Callable[..., Any],
        key: str | DispatchKey | None = ..., *, with_keyset: bool = ..., boxed: bool = ...,
        composite: bool | Callable[..., bool] = ..., allow_override: bool = ...,
    ) -> Handle: ...

    @overload
    def impl(
        self, name: Target, fn: None = ...,
        key: str | DispatchKey | None = ..., *, with_keyset: bool = ..., boxed: bool = ...,
        composite: bool | Callable[..., bool] = ..., allow_override: bool = ...,
    ) -> Callable[[F], F]: ...

    def impl(
        self, name: Target, fn: Callable[..., Any] | None = None,
        key: str | DispatchKey | None = None, *, with_keyset: bool = False, boxed: bool = False,
        composite: bool | Callable[..., bool] = False, allow_override: bool = True,
    ) -> Any:
        """Register a kernel: `lib.impl("scale", scale_cpu, "CPU")`.

        Parameters
        ----------
        name
            The operator, or its name.
        fn
            The kernel. Without it, `impl` returns a decorator.
        key
            The dispatch key: this one, else the library's, else CompositeImplicitAutograd.
        with_keyset
            Whether the kernel takes the key set of the call as its first argument.
        boxed
            Whether the kernel is called as `(op, stack)`, or `(op, keyset, stack)` with `with_keyset=True`.
        composite
            Whether a kernel of an autograd key is made of operators. Transforms and the tape then differentiate the
            calls that it makes, instead of the operator. A function of the arguments selects the calls for which the
            kernel is composite. The operator's formula serves the others.
        allow_override
            Whether the kernel may shadow an older one under the same key (OverrideWarning). Otherwise it is refused.

        Returns
        -------
        Handle
            A handle that undoes the registration, or a decorator that returns its function.
        """
        target = self._in_namespace(name_of(name), "impl")
        remedy = f'write lib.impl("{target}", fn, "CPU"): the function comes before the key'
        chosen = self._key_for(key, target, remedy)
        if fn is None:

            def decorate(function: F) -> F:
                check_function(f"operator {target}: argument fn", "a kernel", function, remedy)
                self.impl(name, function, key, with_keyset=with_keyset, boxed=boxed, composite=composite,
                          allow_override=allow_override)
                return function

            return decorate
        site = registration_site()
        fn = kernel_function(f"operator {target}: argument fn", fn, remedy)
        if composite and not (chosen.is_autograd or chosen is DispatchKey.Autograd):
            raise RegistrationError(f"operator {target}: a kernel for {chosen.name} cannot be composite=True, which is "
                                    "for autograd keys\nleave it out, or register for CompositeImplicitAutograd")
        kernel = make_kernel(fn, with_keyset=with_keyset, boxed=boxed, is_composite=bool(composite),
                             applies=composite if callable(composite) else None)
        with registrations.lock:
            return self._keep(registrations.add_kernel(target, chosen, kernel, site, allow_override=allow_override))

    def fallback(
        self, fn: Callable[..., Any], key: str | DispatchKey | None = None, *, with_keyset: bool = False,
        boxed: bool = False,
    ) -> FallbackHandle:
        """Register a kernel for every operator under one key. Only `Library("_", "IMPL")` can do so.

        The kernel is called as `(op, *args, **kwargs)`, or `(keyset, op, *args, **kwargs)` with `with_keyset=True`.
        Pass `fallthrough_kernel` to skip the key.
        """
        site = registration_site()
        if self.kind != "IMPL":
            raise RegistrationError(
                f"a fallback cannot be registered in the {self.kind} library {self.namespace!r}, "
                f"opened at {self.site}\n"
                'write Library("_", "IMPL").fallback(fn, key)'
            )
        if self.namespace != "_":
            raise RegistrationError(
                f"a fallback applies to all operators, not only to those of namespace {self.namespace!r}\n"
                'write Library("_", "IMPL").fallback(fn, key)'
            )
        if key is None and self.key is None:
            raise RegistrationError("a fallback needs a key\nwrite lib.fallback(fn, key)")
        remedy = 'write lib.fallback(fn, "AutogradCPU"): the function comes before the key'
        check_function("fallback: argument fn", "a fallback", fn, remedy)
        chosen = self._key_for(key, None, remedy)
        kernel = make_kernel(fn, with_keyset=with_keyset, boxed=boxed)
        with registrations.lock:
            return self._keep(registrations.add_fallback(chosen, kernel, site))

    def close(self) -> None:
        """Undo everything registered through this library, and free its namespace. A second call does nothing."""
        try:
            registrations.call_each(handle.remove for handle in self.handles)
        finally:
            with registrations.lock:
                self.handles = [handle for handle in self.handles if handle.active]
                if not self.handles and _definers.get(self.namespace) is self:
                    _used.discard(self)
                    del _definers[self.namespace]
                if not self.handles:
                    drop_namespace(self.namespace)

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Library {self.namespace!r} {self.kind}, opened at {self.site}>"

    def _keep(self, handle: H) -> H:
        # Drop removed handles: the newest ones now, others only when there are many.
        while self.handles and not self.handles[-1].active:
            self.handles.pop()
        self.handles.append(handle)
        if self.kind == "DEF" and self not in _used:
            registrations.lock.note(partial(_used.discard, self))
            _used.add(self)
        if len(self.handles) > self._crowded:
            self.handles = [handle for handle in self.handles if handle.active]
            self._crowded = 2 * len(self.handles) + 16
        return handle

    def _in_namespace(self, name: OperatorName, verb: str) -> OperatorName:
        if self.namespace == "_":
            raise RegistrationError(
                f"cannot {verb} {name} in the library of the namespace _, opened at {self.site}: "
                "it takes fallbacks only\n"
                f'open Library({name.namespace or "<namespace>"!r}, "IMPL")'
            )
        if name.namespace not in (None, self.namespace):
            raise RegistrationError(
                f"cannot {verb} {name} in the {self.kind} library {self.namespace!r}, opened at {self.site}: the name "
                f"has namespace {name.namespace!r}\n"
                f'leave the namespace out, or open Library({name.namespace!r}, "FRAGMENT")'
            )
        return name.with_namespace(self.namespace)

    def _key_for(self, key: str | DispatchKey | None, name: OperatorName | None, remedy: str) -> DispatchKey:
        if key is None:
            return self.key or DispatchKey.CompositeImplicitAutograd
        chosen = key_of("fallback" if name is None else f"operator {name}", key, remedy)
        if self.key is not None and chosen is not self.key:
            raise RegistrationError(
                f"{'a fallback' if name is None else f'impl of {name}'} names the key {chosen.name}, but the library "
                f"{self.namespace!r}, opened at {self.site}, is for {self.key.name}\n"
                "leave the key out, or open a library without a key"
            )
        return chosen


def _inferred_schema(name: OperatorName, kernel: Kernel, site: str) -> Schema:
    """Return the schema inferred from a kernel's annotations. Raise RegistrationError if these are incomplete."""
    if kernel.inferred is None:
        raise RegistrationError(
            f"cannot infer a schema for {name} from {kernel.debug} (at {site}): its parameters are not all annotated\n"
            f'give the schema: lib.define("{name}(...) -> ...", fn), or annotate the function'
        )
    return kernel.inferred.with_name(name)


def _check_alias_analysis(what: str, kind: str) -> None:
    if kind and kind not in ALIAS_ANALYSIS:
        raise RegistrationError(
            f"{what}: unknown alias analysis kind {kind!r}\npass one of {', '.join(ALIAS_ANALYSIS)}, or leave it out"
        )


def _fragment(name: OperatorName) -> Library:
    return Library(require_namespace(name), "FRAGMENT")


def define(qualname: str, schema: str | None = None, *, alias_analysis: str = "", tags: Iterable[str] = ()) -> Handle:
    """Define an operator: `define("ns::scale", "(Tensor x) -> Tensor")`, or the whole schema in one string.

    Returns
    -------
    Handle
        A handle that undoes the definition.

    Examples
    --------
    >>> from pydispatch import library, ops
    >>> handle = library.define("example::triple", "(Tensor x) -> Tensor")
    >>> print(ops.example.triple.default.schema)
    example::triple(Tensor x) -> Tensor
    >>> handle.remove()
    """
    parsed = parse_schema(qualname) if schema is None else read_signature(parse_name(qualname), schema)
    assert parsed.name is not None
    return _fragment(parsed.name).define(str(parsed), alias_analysis=alias_analysis, tags=tags)


def impl(
    qualname: Target, key: str | DispatchKey | None, fn: Callable[..., Any] | None = None,
    *, with_keyset: bool = False, boxed: bool = False, composite: bool | Callable[..., bool] = False,
    allow_override: bool = True,
) -> Any:
    """Register a kernel under a dispatch key: `impl("ns::scale", "CPU", fn)`.

    The other parameters are those of `Library.impl`.

    Returns
    -------
    Handle
        A handle that undoes the registration. Without `fn`, a decorator that returns its function.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import library, ops
    >>> definition = library.define("example::quarter", "(Tensor x) -> Tensor")
    >>> kernel = library.impl("example::quarter", "CPU", lambda x: x / 4)
    >>> ops.example.quarter(np.ones(2))
    array([0.25, 0.25])
    >>> kernel.remove()
    >>> definition.remove()
    """
    name = name_of(qualname)
    remedy = f'write library.impl("{name}", "CPU", fn): the key comes before the function'
    if key is not None:
        key = key_of(f"operator {name}", key, remedy)
    if fn is not None:
        fn = kernel_function(f"operator {name}: argument fn", fn, remedy)
    return _fragment(name).impl(str(name), fn, key, with_keyset=with_keyset, boxed=boxed, composite=composite,
                                allow_override=allow_override)


def register_pydispatch(op: Target, cls: type, rule: Callable[..., Any] | None = None) -> Any:
    """Register a rule for an operator and a class of Tensors, modes or transforms.

    Parameters
    ----------
    op
        The operator, or its name. For transforms written in Python, also a subclass of `autograd.Function`.
    cls
        The class. The rule applies to objects of exactly this class.
    rule
        `rule(cls_or_mode, func, types, args, kwargs)` is called instead of the handler of the class. If it returns
        NotImplemented, the handler is called. For a transform, the rule is `rule(transform, func, args, kwargs)`.
        Without it, `register_pydispatch` returns a decorator.

    Returns
    -------
    Handle
        A handle that undoes the registration, or a decorator that returns its function.

    Raises
    ------
    RegistrationError
        If the class is not a class of Tensors, modes or transforms.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import DispatchMode, library, ops
    >>> class Shifted(DispatchMode):
    ...     def __pydispatch__(self, func, types, args=(), kwargs=None):
    ...         return func(*args, **kwargs or {})
    >>> handle = library.register_pydispatch(
    ...     ops.np.sin, Shifted, lambda mode, func, types, args, kwargs: ops.np.cos(*args))
    >>> with Shifted():
    ...     print(ops.np.sin(np.zeros(2)))
    [1. 1.]
    >>> handle.remove()
    """
    function = op if isinstance(op, type) and issubclass(op, Function) else None
    if function is not None and not (isinstance(cls, type) and issubclass(cls, _core.PythonInterpreter)):
        raise RegistrationError(
            f"Function {function.__name__}: a rule must be for a subclass of func.Transform, not for {cls!r}\n"
            "modes and subclasses get the operators in its forward"
        )
    if function is None and not _can_have_rules(cls):
        raise RegistrationError(
            f"operator {name_of(op)}: {cls!r} neither defines __pydispatch__ nor is a transform\n"
            "register the rule for a subclass of Tensor that defines __pydispatch__, of DispatchMode, or a transform"
        )
    if rule is None:
        return as_decorator(partial(register_pydispatch, op, cls))
    if function is None:
        return registrations.add_rule(name_of(op), cls, rule, registration_site())
    check_function(f"Function {function.__name__}: argument rule", "a rule", rule,
                   f"write library.register_pydispatch({function.__name__}, {cls.__name__}, rule)")
    return add_interpreter_rule(function, cls, rule, registration_site())


def _can_have_rules(cls: Any) -> bool:
    if not isinstance(cls, type):
        return False
    if issubclass(cls, Tensor):
        return _core.has_own_handler(cls)
    return issubclass(cls, (DispatchMode, Interpreter))


def py_impl(op: OpOverload, key: Any) -> Callable[[F], F]:
    """Return a decorator that registers a kernel of an operator under a key. See OpOverload.py_impl."""
    remedy = f'write @pydispatch.ops.{op.name.qualified.replace("::", ".")}.py_impl("CPU")'
    if isinstance(key, type) or key_of(f"operator {op.name}", key, remedy) is DispatchKey.Python:
        cls = key.__name__ if isinstance(key, type) else "cls"
        raise RegistrationError(
            f"operator {op.name}: py_impl takes neither a class nor the key Python, which runs handlers of classes\n"
            f"register the rule of a class: library.register_pydispatch({str(op.name)!r}, {cls}, rule)")
    parsed = key_of(f"operator {op.name}", key, remedy)

    def register(function: F) -> F:
        check_function(f"operator {op.name}: what py_impl decorates", "a kernel", function, remedy)
        registrations.add_kernel(op.name, parsed, make_kernel(function), registration_site())
        return function

    return register


_core.connect(py_impl=py_impl)


class BoundKernel:
    """The kernel that an operator runs under one key when `get_kernel` is called. Call it like the operator.

    An override can fetch the kernel that it replaces and delegate to it. Once that kernel is no longer registered,
    calling the object raises StaleOperatorError.
    """

    __slots__ = ("_entry", "_handles", "key", "operator")

    def __init__(self, operator: OpOverload, key: DispatchKey) -> None:
        if key.is_alias:
            member = next(member for member in key.members if member.backend is not None)
            raise UnknownKeyError(
                f"{key.name} is an alias key, but get_kernel requires the runtime key of a call\n"
                f'write get_kernel("{operator.name}", "{member.name}")'
            )
        with registrations.lock:
            entry = table_entry(operator, key)
            handles = [                     # the kernel's (unless it is pydispatch's own), and the schema's
                handle for handle in (*operator.registrations, *registrations.fallbacks)
                if getattr(handle, "kernel", None) is getattr(entry, "kernel", handle)
                or handle is registrations.definition_of(operator)
            ]
        if entry is None or entry.is_fallthrough:
            found = "only a fall-through" if entry else "nothing"
            raise RegistrationError(
                f"operator {operator.name}: there is {found} under the key {key.name}\n"
                f'register a kernel: lib.impl("{operator.name}", kernel, "{key.name}")'
            )
        self.operator = operator
        self.key = key
        self._entry = entry
        self._handles = handles

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not all(handle.active for handle in self._handles):
            raise StaleOperatorError(
                f"operator {self.operator.name}: the kernel {self._entry.kernel.debug} is no longer registered\n"
                f'get the current one: get_kernel("{self.operator.name}", "{self.key.name}")'
            )
        return self.operator.call_entry(self._entry, self.key.keyset, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<BoundKernel {self.operator.name} {self.key.name}: {self._entry.kernel.debug}>"


def get_kernel(op: str | OpOverload, key: str | DispatchKey) -> BoundKernel:
    """Return the kernel that a call of `op` with this runtime key runs now. See BoundKernel.

    Returns
    -------
    BoundKernel
        The kernel, to be called like the operator.

    Raises
    ------
    OperatorNotFoundError
        If the operator does not exist.
    UnknownKeyError
        If the key is an alias.
    RegistrationError
        If there is no kernel.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import library
    >>> kernel = library.get_kernel("np::negative", "CPU")
    >>> kernel(np.ones(2))
    array([-1., -1.])
    """
    operator = op if isinstance(op, OpOverload) else find_or_raise(name_of(op))
    name = operator.name
    return BoundKernel(operator, key_of(f"operator {name}", key, f'write get_kernel("{name}", "CPU")'))
