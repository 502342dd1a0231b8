"""`Transform`: the base of transforms that users write. Its rules define how operators handle its values."""

from __future__ import annotations

from typing import Any

from pydispatch import _core
from pydispatch._core import OpOverload, PythonWrapper
from pydispatch.autograd.function import AnyFunction, FunctionCall
from pydispatch.exceptions import DispatchTypeError, NoKernelError
from pydispatch.tree import tree_leaves


class Transform(_core.PythonInterpreter):
    """The base of your transforms: a subclass is the transform, an instance is one run, active in its `with` block.

    `wrap` makes values of the interpreter. A call with such values goes to the rule that
    `library.register_pydispatch(operator, TheSubclass, rule)` registered, `rule(transform, func, args, kwargs)`, or
    else to `process`. Both run with the interpreter absent, so their calls go to the interpreters around it. Composite
    operators are decomposed. An `autograd.Function` arrives as one call, like an operator. Its `func` has a `name` but
    no schema.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import func, ops
    >>> class Count(func.Transform):
    ...     calls = 0
    ...     def process(self, func, args, kwargs):
    ...         self.calls += 1
    ...         return func(*[arg.array if self.owns(arg) else arg for arg in args], **kwargs)
    >>> with Count() as count:
    ...     result = ops.np.sin(count.wrap(numpy.zeros(2)))
    >>> count.calls
    1
    """

    def __init__(self) -> None:
        super().__init__(type(self).__name__, _core.calling_site())

    def wrap(self, value: Any, note: Any = None) -> PythonWrapper:
        """Return a value of this interpreter that wraps an array.

        Parameters
        ----------
        value : array
            The value below. The wrapper has its shape and dtype, and holds it as `.array`.
        note : object, optional
            Stored as `.note`, which is free for your use.

        Returns
        -------
        PythonWrapper
            A Tensor that belongs to this interpreter.

        Raises
        ------
        DispatchTypeError
            If `value` is not an array.
        """
        if not _core.is_array(value):
            raise DispatchTypeError(f"{self.name}: wrap got {_core.a_type(value)}, expected an array\n"
                                    "pass numpy.asarray(...)")
        wrapped = _core.wrap_value_at(self, value)
        wrapped.note = note
        return wrapped

    def owns(self, value: object) -> bool:
        """Return whether a value belongs to this interpreter."""
        return _core.is_owned_by(value, self)

    def apply_function(self, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
        """Process the call of a Function like that of an operator."""
        return _core.lowered(self, self._apply_below, function, args, captured)

    def _apply_below(self, function: AnyFunction, args: tuple[Any, ...], captured: bool) -> Any:
        call = FunctionCall(function, captured)
        if not any(map(self.owns, tree_leaves(args))):
            return call(*args)
        rule = function.rule_for(type(self))
        return self.process(call, args, {}) if rule is None else rule(self, call, args, {})

    def process(self, func: OpOverload | FunctionCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handle a call that has no rule.

        A call without values of this interpreter that writes to nothing is passed on. Any other call raises
        NoKernelError.
        """
        kind = type(self).__name__
        if isinstance(func, FunctionCall):
            raise NoKernelError(f"Function {func.name} has no rule for {kind}, and {self.name} defines no process "
                                "method\n"
                                f"register one: library.register_pydispatch({func.name}, {kind}, rule)")
        if not any(map(self.owns, tree_leaves((args, kwargs)))) and not func.schema.is_mutable:
            return func(*args, **kwargs)
        raise NoKernelError(f"operator {func.name} has no rule for {kind}, and {self.name} defines no process method\n"
                            f"register one: library.register_pydispatch('{func.name}', {kind}, rule)")
