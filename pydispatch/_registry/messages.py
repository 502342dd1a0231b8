"""Texts: dumps of registrations and tables, and the errors of the call path.

The first line of an error names the operator and the argument, and shows the value that was found and the one that was
expected. The second line is the remedy, as the call to write.
"""

# tests: tests/properties/test_errors.py
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydispatch import _core
from pydispatch._core import BatchedTensor, DispatchKeySet, Interpreter, OpOverload, OpOverloadPacket, TableEntry
from pydispatch._registry.backends import BACKENDS, Missing, backend_of_key, kernel_provided
from pydispatch._registry.kernels import Kernel
from pydispatch._registry.registrations import RuleHandle, definition_of, kernels_of, operators, switched_off
from pydispatch._sites import describe_interpreter
from pydispatch.exceptions import (
    AliasingError,
    AutogradError,
    DispatchTypeError,
    NoDerivativeError,
    NoHandlerError,
    NoKernelError,
    OperatorNotFoundError,
    StaleOperatorError,
    UnsupportedArgumentError,
    VmapError,
)
from pydispatch.keys import DispatchKey, all_keys, backend_bit, backend_names, runtime_keys
from pydispatch.schema import Schema
from pydispatch.schema.frozen import described

UNKNOWN = "unknown keyword"


def describe(op: OpOverload) -> str:
    """Return the registrations of one operator as text, without anything that is computed from them."""
    if not op.registrations:
        return ""
    definition = definition_of(op)
    lines = [f"name: {op.name}"]
    if definition is None:
        lines.append("schema: (none)")
    else:
        kind = definition.alias_analysis or "CONSERVATIVE"
        lines += [
            f"schema: {definition.schema}",
            f"debug: {definition.site}",
            f"alias analysis kind: {kind}{'' if definition.alias_analysis else ' (default)'}",
        ]
    kernels = kernels_of(op)
    for key in all_keys():
        for i, handle in enumerate(kernels.get(key, ())):
            kernel = handle.kernel
            inferred = "(none)" if kernel.inferred is None else kernel.inferred
            lines.append(
                f"{key.name}{'[alias]' if key.is_alias else ''}{' (inactive)' if i else ''}: "
                f"{kernel.debug} :: {inferred} [ {_flags(kernel)}]"
            )
    lines += [
        f"kernels of {backend} are switched off at {switch.site}: {switch.kernel.debug} runs instead"
        for backend, switch in switched_off(op).items()
    ]
    rules: dict[type, list[RuleHandle]] = {}
    for registration in reversed(op.registrations):
        if isinstance(registration, RuleHandle):
            rules.setdefault(registration.cls, []).append(registration)
    for cls, handles in rules.items():
        lines += [
            f"rule for {cls.__qualname__}{' (inactive)' if i else ''}: registered at {rule.site}"
            for i, rule in enumerate(handles)
        ]
    return "\n".join(lines) + "\n"


def _flags(kernel: Kernel) -> str:
    if kernel.fallthrough:
        return "fallthrough boxed "
    return "boxed " if kernel.boxed else "boxed unboxed "


def aliasing_error(schema: Schema, kernel: Kernel, i: int, argument: str | None) -> AliasingError:
    """Return the error for result `i` of a kernel, which must not share the memory of `argument`.

    If `argument` is None, the kernel did not return the mutable argument that the schema requires.
    """
    if argument is None:
        mutable = [a for a in schema.arguments if a.mutable]
        which = "mutable keyword-only arguments" if mutable and mutable[0].kw_only else "first argument"
        return AliasingError(
            f"operator {schema.name}: the kernel {kernel.debug} must return its {which}, but result {i} is another "
            "object\nreturn the array that was passed"
        )
    return AliasingError(
        f"operator {schema.name}: result {i} of the kernel {kernel.debug} must not alias {argument}, but shares its "
        "memory\nreturn a copy, or declare it in the schema: Tensor(a) x -> Tensor(a)"
    )


def describe_table(rows: Iterable[_core.TableEntry | None]) -> str:
    """Return a table as text, with one line for each runtime key that has an entry."""
    lines = []
    for key, entry in zip(_slots(), rows, strict=True):
        if entry is not None and key is not None:
            mark = "fallthrough " if entry.is_fallthrough else ""
            without = f", without {', '.join(entry.unsupported_names)}" if entry.unsupported_names else ""
            lines.append(f"{key.name}: {mark}{entry.kernel.debug} [{entry.label}{without}]\n")
    return "".join(lines)


def _slots() -> list[DispatchKey | None]:
    by_slot = {key.slot: key for key in runtime_keys()}
    return [by_slot.get(slot) for slot in range(len(_core.slots()))]


def _type_name(value: Any) -> str:
    return type(value).__name__


def shorten(value: Any) -> str:
    """Return the repr of a value on one line, cut to 60 characters."""
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong_type(op: OpOverload, schema: Schema, position: int, value: Any, reason: Any) -> Exception:
    """Return the error for a value that the type of an argument refuses."""
    argument = schema.arguments[position]
    found, _, remedy = str(reason).partition("\n")
    return _binding_error(
        op, schema, f"argument {argument.name!r} (position {position + 1}): {found}\n"
        f"{remedy or _remedy(op, argument)}")


def _missing_argument(op: OpOverload, schema: Schema, position: int) -> Exception:
    argument = schema.arguments[position]
    return _binding_error(
        op, schema, f"argument {argument.name!r} (position {position + 1}, {argument.type}) is missing\n"
        f"pass it: {_example(schema)}")


def _too_many_arguments(op: OpOverload, schema: Schema, given: int) -> Exception:
    n = sum(not argument.kw_only for argument in schema.arguments)
    keywords = [argument.name for argument in schema.arguments if argument.kw_only]
    return _binding_error(
        op, schema, f"{given} positional arguments were given, expected at most {n}\n"
        + (f"pass {', '.join(keywords)} by keyword" if keywords else f"call it as {_example(schema)}"))


def _unknown_keyword(op: OpOverload, schema: Schema, name: str, value: Any) -> Exception:
    definition = definition_of(op)
    if definition is not None and name in definition.left_out:
        return _binding_error(
            op, schema, f"the parameter {name!r} of the NumPy function is not supported, "
            f"found {name}={shorten(value)}\n{definition.left_out[name]}")
    return _binding_error(
        op, schema, f"{UNKNOWN} {name!r}, found {name}={shorten(value)}\n"
        f"its arguments: {', '.join(argument.name for argument in schema.arguments)}")


def _given_twice(op: OpOverload, schema: Schema, position: int, value: Any) -> Exception:
    argument = schema.arguments[position]
    return _binding_error(
        op, schema, f"argument {argument.name!r} was given twice, by position {position + 1} and by name "
        f"(found {shorten(value)})\npass it once")


def _short_stack(op: OpOverload, schema: Schema, found: int) -> Exception:
    return _binding_error(
        op, schema, f"the stack holds {found} values, expected at least {len(schema.arguments)}\n"
        "push one value per schema argument, defaults included: op.bind(args, kwargs) returns them")


def _wrong_number_of_values(op: OpOverload, schema: Schema, found: int) -> Exception:
    return _binding_error(
        op, schema, f"found {found} values, expected {len(schema.arguments)}, one per schema argument\n"
        "op.bind(args, kwargs) returns them")


def _binding_error(op: OpOverload, schema: Schema, text: str) -> Exception:
    return DispatchTypeError(f"operator {op.name}: {text}\nschema: {schema}")


def unwritable_error(op: OpOverload, value: object, expected: type) -> Exception:
    """Return the error for a mutable argument of a type that the kernel cannot write to."""
    where = next(i for i, argument in enumerate(op.schema.arguments) if argument.mutable)
    reason = f"expected a {expected.__name__} to write into, found {described(value)}\n{_call_functional(op)}"
    return _wrong_type(op, op.schema, where, value, reason)


def _call_functional(op: OpOverload) -> str:
    functional = op.name.qualified.rstrip("_")
    return f"call ops.{functional.replace('::', '.')}, which returns a new one" if functional in operators else ""


def _remedy(op: OpOverload, argument: Any) -> str:
    kind = str(argument.type)
    if argument.mutable:
        other = _call_functional(op)
        return "pass an array, such as np.empty(shape, dtype)" + f", or {other}" * bool(other)
    if kind.startswith("Tensor["):
        return f"pass a list or tuple of arrays for {argument.name!r}"
    if kind.startswith("Tensor"):
        return f"pass an array: numpy.asarray({argument.name})"
    return f"pass {_in_words(argument.type, argument.size)} for {argument.name!r}"


WORDS = {
    "int": "an int", "float": "a float", "bool": "True or False", "str": "a str", "complex": "a complex number",
    "Scalar": "a number", "ScalarType": "a dtype, such as numpy.float64 or 'float64'",
    "Device": "the name of a backend, such as 'CPU'", "Generator": "a generator: pydispatch.numpy.random.default_rng()",
    "int[]": "a tuple of ints", "float[]": "a tuple of floats", "bool[]": "a tuple of bools",
}
"""Descriptions of schema types in terms of Python, for readers who have never seen a schema."""


def _in_words(type: Any, size: int | None) -> str:
    """Describe the values that an argument of this type accepts. A size hint allows a single item, too."""
    kind = str(type)
    plain = kind.removesuffix("?")
    words = WORDS.get(plain, f"a value of type {plain}")
    alone = f"{WORDS[plain[:-2]]} or " if size is not None and plain[:-2] in WORDS else ""
    return f"{alone}{words}{', or None' if kind != plain else ''}"


def _example(schema: Schema) -> str:
    parts = [
        f"{argument.name}=..." if argument.kw_only else argument.name
        for argument in schema.arguments if not argument.has_default
    ]
    return f"{schema.name}({', '.join(parts)})"


def _wrong_number_left(op: OpOverload, schema: Schema, kernel: Kernel, results: tuple[Any, ...]) -> Exception:
    """Return the error for a boxed kernel that left a wrong number of results on its stack."""
    return _result_error(
        op, schema, kernel, f"the boxed kernel left {len(results)} values on its stack, expected {len(schema.returns)}",
        "pop all arguments, then push one value per return: stack.push(result)")


def _wrong_number_returned(op: OpOverload, schema: Schema, maker: Any, result: Any) -> Exception:
    n = len(schema.returns)
    expected = {0: "None", 1: "one value, not in a tuple"}.get(n, f"a tuple of {n} values")
    is_sequence = isinstance(result, (tuple, list))
    found = f"{len(result)} values" if is_sequence else f"{_type_name(result)} {shorten(result)}"
    who = "the kernel" if isinstance(maker, Kernel) else "the handler"
    return _result_error(op, schema, maker, f"{who} returned {found}, expected {expected}", f"return {expected}")


def _wrong_type_returned(op: OpOverload, schema: Schema, maker: Any, position: int, reason: Any) -> Exception:
    types = ", ".join(str(item.type) for item in schema.returns)
    remedy = f"return {'a value' if len(schema.returns) == 1 else 'values'} of type {types}"
    if "Tensor" in remedy:
        remedy += ". To make an array of a list: numpy.asarray(...)"
    if len(schema.returns) == 1:
        remedy += ". A schema that returns several values ends in -> (Tensor, Tensor), one that returns none in -> ()"
    return _result_error(op, schema, maker, f"result {position + 1}: {reason}", remedy)


def _result_error(op: OpOverload, schema: Schema, maker: Any, text: str, remedy: str) -> Exception:
    return DispatchTypeError(f"operator {op.name}: {text} ({_maker(maker)})\n{remedy}\nschema: {schema}")


def _maker(maker: Any) -> str:
    """Describe the kernel, or the handler of a class or mode, that returned a result."""
    if isinstance(maker, Kernel):
        return f"kernel {maker.debug}"
    return f"the handler of {maker.__qualname__ if isinstance(maker, type) else repr(maker)}"


def _no_handler(op: OpOverload, modes: tuple[Any, ...], types: tuple[type, ...]) -> Exception:
    tried = [f"  mode {mode!r}" for mode in modes]
    tried += [f"  subclass {cls.__module__}.{cls.__qualname__}" for cls in types]
    return NoHandlerError(
        f"operator {op.name}: every handler declined (returned NotImplemented), in this order:\n"
        + "\n".join(tried)
        + f"\nhandle it in one of them, or register a rule: library.register_pydispatch({str(op.name)!r}, cls, rule)"
    )


def _no_kernel(
    op: OpOverload, table: _core.Table, key: DispatchKey | None, keyset: DispatchKeySet,
    arguments: tuple[tuple[str, Any], ...],
) -> Exception:
    real = [k.name for k in all_keys() if k in kernels_of(op)]
    have = f"kernels are registered under: {', '.join(real)}" if real else "no kernel is registered for it"
    if key is None or key is DispatchKey.Undefined:
        return NoKernelError(
            f"operator {op.name}: the call has no key: no array argument was given, or guards and fall-throughs "
            f"removed every key\n"
            f"{have}\n"
            f'pass an array (is a list empty?), or register a default: lib.impl("{op.name}", kernel, '
            '"CompositeExplicitAutograd")'
        )
    brought, convert = _who_brought(table.schema, key, arguments), ""
    if not brought:
        brought, convert = _brought_together(arguments), "convert an argument, or "
    meta = (key.is_dense or key.is_sparse) and key.backend == "Meta"
    what = f"no fake kernel: no kernel for the key {key.name}" if meta else f"no kernel for the key {key.name}"
    remedy = f'library.register_fake("{op.name}", fake)' if meta else f'lib.impl("{op.name}", kernel, "{key.name}")'
    backend = backend_of_key(key)
    if backend is not None and backend.provides:
        found = kernel_provided(op, backend)
        reason = found.reason if isinstance(found, Missing) else "its kernel was registered during this call"
        have += f"\n{backend.name} provides none: {reason}"
    return NoKernelError(f"operator {op.name}: {what}, {brought}\n{have}\n{convert}register one: {remedy}")


def unsupported_argument(
    op: OpOverload, schema: Schema, key: DispatchKey, entry: TableEntry, position: int, value: Any
) -> UnsupportedArgumentError:
    """Return the error for an unsupported argument that is not at its default."""
    argument = schema.arguments[position]
    return UnsupportedArgumentError(
        f"operator {op.name}: argument {argument.name!r} (position {position + 1}): the kernel for {key.name}, "
        f"{entry.kernel.debug}, does not take it, found {shorten(value)}, expected the default, "
        f"{shorten(argument.default)}\n"
        f'leave it out, or register a kernel that takes it: lib.impl("{op.name}", kernel, "{key.name}")'
    )


def _who_brought(schema: Schema, key: DispatchKey, arguments: tuple[tuple[str, Any], ...]) -> str:
    """Describe the one argument, guard or default that brings the key. Return "" if arguments bring it together."""
    for i, (name, value) in enumerate(arguments):
        if key.keyset.word & _core.keys_of(value).word == key.keyset.word and key.keyset.word:
            fake = isinstance(value, _core.Shell) and value.fake        # kernels get the Shell of a FakeTensor
            kind = "FakeTensor" if fake else _type_name(value)
            return f"which comes from argument {name!r} (position {i + 1}, {kind})"
    devices = {argument.name for argument in schema.arguments if str(argument.type).startswith("Device")}
    for name, value in arguments:
        if name in devices and value == key.backend:
            return f"which argument {name!r} specifies"
    state = _core.current_state()
    if key in state.included:
        return "which a guard includes"
    if not any(_core.keys_of(value) for _, value in arguments):
        return f"chosen because no argument is an array (default backend {state.default_backend})"
    return ""


def _brought_together(arguments: tuple[tuple[str, Any], ...]) -> str:
    brought = [f"{name!r} has {_core.keys_of(value).highest.name}" for name, value in arguments
               if _core.keys_of(value)]
    return f"the highest of the arguments' combined keys: {', '.join(brought)}"


def _mixed_backends(op: OpOverload, keyset: DispatchKeySet) -> Exception:
    found = [name for name in backend_names() if backend_bit(name) & keyset.word and name not in ("CPU", "Meta")]
    return DispatchTypeError(
        f"operator {op.name}: one call mixes arrays of the backends {' and '.join(found)}, and neither ranks above "
        f"the other\nconvert one of them, or rank one above the other: "
        f"register_backend({found[-1]!r}, {_array_type_of(found[-1])}, above=({found[0]!r},))"
    )


def _array_type_of(name: str) -> str:
    array_type = BACKENDS[name].array_type
    return f"{array_type.__module__}.{array_type.__qualname__}"


def _ran_fallthrough(op: OpOverload, key: DispatchKey, entry: _core.TableEntry) -> Exception:
    return NoKernelError(
        f"operator {op.name}: redispatched to the key {key.name}, whose kernel falls through "
        f"({entry.kernel.debug} [{entry.label}])\n"
        f"mask it first: keyset & DispatchKeySet.full_after(DispatchKey.{key.name})"
    )


def _no_overload(packet: OpOverloadPacket, refusals: list[Exception]) -> Exception:
    if not packet.overloads:
        known = any(op.name.qualified == packet.name for op in list(operators.values()))
        return StaleOperatorError(
            f"operator {packet.name} {'no longer has a definition' if known else 'is no longer registered'}\n"
            f"look it up again after registering it: pydispatch.ops.{packet.name.replace('::', '.')}"
        )
    tried = list(zip(packet.overloads, refusals, strict=False))
    # the caller meant one of the overloads that have all of these keywords, such as out=
    tried = [row for row in tried if not _reason(row[1]).startswith(UNKNOWN)] or tried
    by_reason: dict[str, list[str]] = {}
    for op, error in tried:
        by_reason.setdefault(_reason(error), []).append(str(op.name))
    (_, *alike), *others = by_reason.values()
    text = str(tried[0][1])
    if alike:
        text += f"\nthe same holds for {', '.join(alike)}"
    for reason, names in zip(list(by_reason)[1:], others, strict=True):
        text += f"\nnor does {', '.join(names)} take these arguments: {reason}"
    return DispatchTypeError(text)


def _reason(error: Exception) -> str:
    """Return the first line of an error's message, without the operator's name."""
    return str(error).partition("\n")[0].partition(": ")[2]


def _no_such_overload(packet: OpOverloadPacket, attribute: str) -> Exception:
    names = ", ".join(op.name.overload or "default" for op in packet.overloads)
    return OperatorNotFoundError(f"operator {packet.name} has no overload {attribute!r}\nits overloads: {names}")


def inactive_error(op: OpOverload | None, argument: str | None, value: Any) -> AutogradError | VmapError:
    """Return the error for a value of a transform that is used where that transform is not active."""
    what = "a value" if op is None else f"operator {op.name}: argument {argument!r} is a value"
    if isinstance(value, BatchedTensor) and not value.interpreter.alive:
        return VmapError(f"{what} of {describe_interpreter(value.interpreter)}: it escaped from the function under "
                         "vmap\nreturn it from that function")
    why = ", which is not active here" if value.interpreter.alive else ""      # else the description has the reason
    return AutogradError(
        f"{what} of {describe_interpreter(value.interpreter)}{why}\n"
        "use it in the transformed function, in the same thread, or return it from there. To use it in a kernel, "
        "Function or rule that runs below, pass it as an argument"
    )


def opaque_autograd_kernel(op: OpOverload, entry: TableEntry, interpreter: Interpreter) -> NoDerivativeError:
    """Return the error for a transform that differentiates an operator with a registered autograd kernel."""
    return NoDerivativeError(
        f"operator {op.name} has an Autograd kernel, which {interpreter.name} cannot differentiate: "
        f"{entry.kernel.debug}\n"
        f'register a formula instead: pydispatch.library.register_autograd("{op.name}", backward)'
    )


_core.connect(
    inactive_error=inactive_error,
    opaque_autograd_kernel=opaque_autograd_kernel,
    aliasing_error=aliasing_error,
    wrong_type=_wrong_type,
    missing_argument=_missing_argument,
    too_many_arguments=_too_many_arguments,
    unknown_keyword=_unknown_keyword,
    given_twice=_given_twice,
    short_stack=_short_stack,
    wrong_number_of_values=_wrong_number_of_values,
    wrong_number_left=_wrong_number_left,
    wrong_number_returned=_wrong_number_returned,
    wrong_type_returned=_wrong_type_returned,
    no_handler=_no_handler,
    no_kernel=_no_kernel,
    mixed_backends=_mixed_backends,
    ran_fallthrough=_ran_fallthrough,
    unsupported_argument=unsupported_argument,
    no_overload=_no_overload,
    no_such_overload=_no_such_overload,
)
