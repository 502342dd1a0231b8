"""The simple types of the schema language, and the conversion of values to them."""

# tests: tests/schema/test_types.py
from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, ClassVar, Final

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import DispatchError
from pydispatch.keys import backend_names
from pydispatch.schema.frozen import MISSING, Frozen, described
from pydispatch.schema.literals import literal
from pydispatch.schema.scanner import is_identifier

PYTHON_SCALARS: Final = (bool, int, float, complex)
NUMBERS: Final = (*PYTHON_SCALARS, np.number, np.bool_)
Number = bool | int | float | complex | np.unsignedinteger[Any] | np.longdouble | np.clongdouble
_INTEGERS: Final = (int, np.integer, np.bool_)
_REALS: Final = (int, float, np.integer, np.floating, np.bool_)


class Type(Frozen):
    """A type of the schema language."""

    __slots__ = ()

    @property
    def contains_arrays(self) -> bool:
        """Return whether a value of this type can hold an array, and so choose a kernel."""
        return False

    def convert(self, value: Any) -> Any:
        """Convert a value to this type.

        Raises TypeError or ValueError with the message "expected <type>, found <type name> <short repr>". A second line
        has the remedy if the type does not make it obvious.
        """
        raise NotImplementedError

    def word(self, text: str) -> object:
        """Return the value of a bare word in a default, or MISSING."""
        return MISSING

    def literal(self, value: Any) -> str:
        """Return the text of a converted value as a default."""
        return literal(value)

    def __str__(self) -> str:
        raise NotImplementedError


def as_dtype(value: Any) -> np.dtype[Any]:
    """Return `numpy.dtype(value)`. For a class of dtypes, such as `numpy.dtypes.Float32DType`, return its dtype."""
    is_class = isinstance(value, type) and issubclass(value, np.dtype)
    dtype: np.dtype[Any] = value() if is_class else np.dtype(value)
    return dtype


def found_instead(expected: Type, value: object) -> str:
    return f"expected {expected}, found {described(value)}"


def refusal(expected: Type, value: object) -> TypeError:
    return TypeError(found_instead(expected, value))


def holds_numbers(value: object) -> bool:
    """Return whether the value is an array of numbers."""
    return isinstance(value, (np.ndarray, Tensor)) and value.dtype.kind in "biufc"


def numbers_in(expected: Type, array: Any) -> Any:
    """Return the values of an array as Python numbers, in nested lists. Raise TypeError if they cannot be read."""
    return _taken(expected, array, "tolist")


def convert_element(expected: Type, value: Any) -> Any:
    """Convert the number in an array of one element. Raise TypeError for any other value."""
    if not holds_numbers(value) or value.size != 1 or np.ma.is_masked(value):
        raise refusal(expected, value)
    number = _taken(expected, value, "item")
    try:
        return expected.convert(number)
    except (TypeError, ValueError):
        raise refusal(expected, value) from None


def _taken(expected: Type, array: Any, method: str) -> Any:
    try:
        if isinstance(array, Tensor):
            _core.refuse_conversion(array, "a number")
        return getattr(array, method)()
    except DispatchError as error:
        raise TypeError(f"{found_instead(expected, array)}: {error}") from None


class _BaseType(Type):
    """A type without parameters. Its spelling is an attribute of the class."""

    __slots__ = ()
    spelling: ClassVar[str]

    def __str__(self) -> str:
        return self.spelling


class TensorType(_BaseType):
    """An array. Python scalars pass unchanged."""

    __slots__ = ()
    spelling = "Tensor"

    @property
    def contains_arrays(self) -> bool:
        return True

    def convert(self, value: Any) -> Any:
        if _core.is_array(value) or isinstance(value, PYTHON_SCALARS):
            return value
        if isinstance(value, (list, tuple)):
            raise TypeError(f"{found_instead(self, value)}: lists are not arrays, pass np.asarray(...)")
        raise refusal(self, value)


class IntType(_BaseType):
    """A Python int."""

    __slots__ = ()
    spelling = "int"

    def convert(self, value: Any) -> int:
        if isinstance(value, _INTEGERS):
            return int(value)
        if isinstance(value, float) and math.isnan(value):      # Dask uses nan for an unknown length
            raise TypeError(f"{found_instead(self, value)}\na length of nan is unknown until the array is computed: "
                            "call array.compute_chunk_sizes() first")
        converted: int = convert_element(self, value)
        return converted


class FloatType(_BaseType):
    """A Python float."""

    __slots__ = ()
    spelling = "float"

    def convert(self, value: Any) -> float:
        if isinstance(value, _REALS):
            try:
                return float(value)
            except OverflowError:
                raise ValueError(found_instead(self, value)) from None
        converted: float = convert_element(self, value)
        return converted


class BoolType(_BaseType):
    """A Python bool. 0 and 1 are also accepted."""

    __slots__ = ()
    spelling = "bool"

    def convert(self, value: Any) -> bool:
        if isinstance(value, _INTEGERS):
            if value == 0 or value == 1:
                return bool(value)
            raise refusal(self, value)
        converted: bool = convert_element(self, value)
        return converted


class StrType(_BaseType):
    """A Python str."""

    __slots__ = ()
    spelling = "str"

    def convert(self, value: Any) -> str:
        if isinstance(value, str):
            return str(value)
        raise refusal(self, value)


class ComplexType(_BaseType):
    """A Python complex."""

    __slots__ = ()
    spelling = "complex"

    def convert(self, value: Any) -> complex:
        if isinstance(value, NUMBERS):
            try:
                return complex(value)
            except OverflowError:
                raise ValueError(found_instead(self, value)) from None
        converted: complex = convert_element(self, value)
        return converted


class ScalarType(_BaseType):
    """A Python number of any kind, which keeps its kind.

    NumPy's longdouble, clongdouble and uint64 are also kept, since Python has no counterpart.
    """

    __slots__ = ()
    spelling = "Scalar"

    def convert(self, value: Any) -> Number:
        if isinstance(value, PYTHON_SCALARS) and not isinstance(value, np.generic):
            return value
        number: Number = value.item() if isinstance(value, (np.number, np.bool_)) else convert_element(self, value)
        return value.dtype.type(number) if value.dtype == np.uint64 else number


class DtypeType(_BaseType):
    """A NumPy dtype, spelled ``ScalarType``."""

    __slots__ = ()
    spelling = "ScalarType"

    def convert(self, value: Any) -> np.dtype[Any]:
        if isinstance(value, np.dtype):
            return value
        # np.dtype would convert None to float64 and an array to its dtype.
        if value is None or _core.is_array(value):
            raise refusal(self, value)
        try:
            dtype = as_dtype(value)
        except (TypeError, ValueError):
            if type(value).__name__ in ("dtype", "DType"):      # other libraries' dtypes have the names of NumPy's
                with suppress(TypeError):
                    return np.dtype(str(value).rpartition(".")[2])
            raise refusal(self, value) from None
        return dtype

    def word(self, text: str) -> object:
        """Return the dtype of that name. Refuse aliases such as `double` or `f8`."""
        try:
            dtype = np.dtype(text)
        except TypeError:
            return MISSING
        return dtype if dtype.name == text else MISSING

    def literal(self, value: Any) -> str:
        """Return the name of the dtype, or its quoted code if the name does not specify it fully."""
        is_word = is_identifier(value.name) and self.word(value.name) == value
        return value.name if is_word else literal(value.str)


class DeviceType(_BaseType):
    """The name of a backend, in upper or lower case."""

    __slots__ = ()
    spelling = "Device"

    def convert(self, value: Any) -> str:
        if not isinstance(value, str):
            raise refusal(self, value)
        names = backend_names()
        for name in names:
            if name.lower() == value.lower():
                return name
        raise ValueError(f"{found_instead(self, value)} (backends: {', '.join(names)})")


class GeneratorType(_BaseType):
    """A numpy.random.Generator."""

    __slots__ = ()
    spelling = "Generator"

    def convert(self, value: Any) -> np.random.Generator:
        if isinstance(value, np.random.Generator):
            return value
        raise refusal(self, value)


class AnyType(_BaseType):
    """Any value. Lists become tuples."""

    __slots__ = ()
    spelling = "Any"

    @property
    def contains_arrays(self) -> bool:
        return True

    def convert(self, value: Any) -> Any:
        return tuple(map(self.convert, value)) if type(value) in (list, tuple) else value


TENSOR: Final[TensorType] = TensorType()
INT: Final[IntType] = IntType()
FLOAT: Final[FloatType] = FloatType()
BOOL: Final[BoolType] = BoolType()
STR: Final[StrType] = StrType()
COMPLEX: Final[ComplexType] = ComplexType()
SCALAR: Final[ScalarType] = ScalarType()
DTYPE: Final[DtypeType] = DtypeType()
DEVICE: Final[DeviceType] = DeviceType()
GENERATOR: Final[GeneratorType] = GeneratorType()
ANY: Final[AnyType] = AnyType()

NUMERIC_TYPES: Final = (INT, FLOAT, BOOL, COMPLEX, SCALAR)
BASE_TYPES: Final[dict[str, Type]] = {
    base.spelling: base for base in (TENSOR, INT, FLOAT, BOOL, STR, COMPLEX, SCALAR, DTYPE, DEVICE, GENERATOR, ANY)
}
