"""`Transform`: the base of transforms that users write, whose rules say what operators do with their values."""

from __future__ import annotations

from typing import Any

from pydispatch import _core
from pydispatch._core import OpOverload, PythonWrapper
from pydispatch.autograd.function import AnyFunction, FunctionCall
from pydispatch.exceptions import DispatchTypeError, NoKernelError
from pydispatch.tree import tree_leaves


class Transform(_core.PythonInterpreter):
    """A transform of your own: a subclass is the transform, an object of it one run, active in its `with` block.

    `wrap` makes values of the interpreter. A call with such values goes to the rule that
    `library.register_pydispatch(operator, TheSubclass, rule)` registered, `rule(transform, func, args, kwargs)`, else
    to `process`. Both run with the interpreter absent, so what they call is up to the interpreters around. Composite
    operators are decomposed. An `autograd.Function` arrives as one call, like an operator; its `func` has a `name`, but
    no schema.
    """

    def __init__(self) -> None:
        super().__init__(type(self).__name__, _core.calling_site())

    def wrap(self, value: Any, note: Any = None) -> PythonWrapper:
        """A value of this interpreter: `.array` is the value below, whose shape and dtype it has; `.note` is free."""
        if not _core.is_array(value):
            raise DispatchTypeError(f"{self.name}: wrap got {_core.a_type(value)}, expected an array\n"
                                    "pass numpy.asarray(...)")
        wrapped = _core.wrap_value_at(self, value)
        wrapped.note = note
        return wrapped

    def owns(self, value: object) -> bool:
        """Does this value belong to this interpreter?"""
        return _core.is_owned_by(value, self)

    def apply_function(self, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
        """The call of a Function, as that of any operator."""
        return _core.lowered(self, self._apply_below, function, args, captured)

    def _apply_below(self, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
        call = FunctionCall(function, captured)
        if not any(map(self.owns, tree_leaves(args))):
            return call(*args)
        rule = function.rule_for(type(self))
        return self.process(call, args, {}) if rule is None else rule(self, call, args, {})

    def process(self, func: OpOverload | FunctionCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handle a call that has no rule: one that makes an array from others goes on, any other is refused."""
        kind = type(self).__name__
        if isinstance(func, FunctionCall):
            raise NoKernelError(f"Function {func.name} has no rule for {kind}, and {self.name} defines no process "
                                "method\n"
                                f"register one: library.register_pydispatch({func.name}, {kind}, rule)")
        if not any(map(self.owns, tree_leaves((args, kwargs)))) and not func.schema.is_mutable:
            return func(*args, **kwargs)
        raise NoKernelError(f"operator {func.name} has no rule for {kind}, and {self.name} defines no process method\n"
                            f"register one: library.register_pydispatch('{func.name}', {kind}, rule)")
