"""Errors and warnings: one small hierarchy, each error also the built-in that users would catch."""

# tests: tests/properties/test_errors.py

class DispatchError(Exception):
    """Base of every error that pydispatch raises on purpose."""


class SchemaError(DispatchError, ValueError):
    """A name or schema does not parse, or a type, default or annotation in it is not valid."""


class RegistrationError(DispatchError, RuntimeError):
    """A registration was refused. The registry is unchanged."""


class UnknownKeyError(DispatchError, ValueError):
    """A string or object does not name a dispatch key or backend."""


class DispatchTypeError(DispatchError, TypeError):
    """Arguments do not fit the schema, results do not fit it, or backends do not mix."""


class KeyTypeError(DispatchTypeError, IndexError):
    """A key holds a value that cannot index an array, such as a float or a string."""


class NoHandlerError(DispatchTypeError):
    """Every `__pydispatch__` handler of a call declined it."""


class NoKernelError(DispatchError, NotImplementedError):
    """The chosen dispatch key has no kernel."""


class UnsupportedArgumentError(DispatchError, NotImplementedError):
    """A call passes an argument that the kernel does not support, and not its default."""


class AmbiguousKernelError(DispatchError, RuntimeError):
    """Two registrations claim AutogradOther and the dispatcher refuses to guess."""


class OperatorNotFoundError(DispatchError, AttributeError, LookupError):
    """No operator of that name, or only implementations without a definition."""


class PackError(DispatchError, ImportError):
    """A pack of operators cannot be loaded."""


class StaleOperatorError(DispatchError, RuntimeError):
    """An operator, kernel or schema is used after its registration was removed."""


class StateOrderError(DispatchError, RuntimeError):
    """A guard was left that is not the innermost one, or not in the context in which it was entered."""


class AutogradError(DispatchError, RuntimeError):
    """A call would lose or falsify a gradient, or needs a graph that was released."""


class NoDerivativeError(DispatchError, NotImplementedError):
    """An operator without a derivative is differentiated."""


class ConversionError(AutogradError):
    """NumPy or Python would convert a value of a running transform, which could not follow the result."""


class VmapError(DispatchError, RuntimeError):
    """A call has no meaning for a whole batch: a branch on data, a shared draw, a write to an unbatched array."""


class UnsupportedError(RegistrationError, NotImplementedError):
    """The request is not supported."""


class AliasingError(DispatchError, RuntimeError):
    """A kernel returned memory that its schema does not declare as shared."""


class DataDependentError(DispatchError, RuntimeError):
    """A shape depends on data that is not available."""


class NoDataError(DispatchTypeError, DataDependentError):
    """A program reads the values of an array that has a shape and a dtype, but no data."""


class NotDifferentiableError(DispatchTypeError, ValueError):
    """An argument to differentiate is not an array."""


class FunctionalizationError(DispatchError, RuntimeError):
    """A write cannot be replaced by a new value."""


class ReadOnlyError(FunctionalizationError, ValueError):
    """A write to an array that NumPy would not write to either."""


class GraphError(DispatchError, RuntimeError):
    """A graph is not well-formed, or the request would make it so."""


class CompilationError(DispatchError, RuntimeError):
    """A function cannot be compiled in this form."""


class ConvergenceError(DispatchError, RuntimeError):
    """An iteration did not converge: of an equation, a minimization or a differential equation."""


class NaNError(DispatchError, FloatingPointError):
    """An operator made a NaN from arguments without one, inside of `debug.nan_detector`."""


class GradcheckError(DispatchError, RuntimeError):
    """A gradient differs from finite differences."""


class OpCheckError(DispatchError, AssertionError):
    """An operator does not match its schema and registrations."""


class OverrideWarning(UserWarning):
    """A kernel was shadowed by a newer one under the same key."""


class PerformanceWarning(UserWarning):
    """Something works, but by a slow path."""


class UntrackedResultWarning(UserWarning):
    """A handler returned a result that carries no gradient although an argument is tracked."""
