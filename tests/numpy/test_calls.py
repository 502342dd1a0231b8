"""Every function in every form of a call that NumPy takes: lists, names, out, warnings, errors, memory.

The calls are the samples of the functions, and those of the operators that are functions of NumPy's.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import pydispatch
from pydispatch import Tensor
from pydispatch.numpy.declare import FUNCTIONS, KINDS
from pydispatch.operators import DECLARATIONS
from pydispatch.operators.declare import IS_NUMPY_2_0
from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.samples import SAMPLES
from tests.numpy.test_functions import CONVERSIONS, IN_PLACE, TOLD, check_same, is_array, mapped, numpys, ours
from tests.operators.oracles import agreeing, identical
from tests.operators.samples import numpy_function
from tests.operators.samples import samples as samples_of_operator
from tests.together import together
from tests.warning_filters import all_warnings


class Call(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tolerance: float


MOST_OF_AN_OPERATOR = 40


def calls_of(name: str) -> list[Call]:
    """Return the sample calls with an array among the arguments."""
    found = [Call(sample.args, sample.kwargs, sample.tolerance) for sample in SAMPLES.get(name, ())]
    operator = FUNCTIONS[name].operator
    declared = None if operator is None else operator.name.removeprefix("np::")
    if declared in DECLARATIONS and numpy_function(declared) is numpys(name):
        calls = [Call(*sample, 0.0) for sample in samples_of_operator(declared)]
        found += calls[::max(1, len(calls) // MOST_OF_AN_OPERATOR)]
    return [call for call in found if any(map(is_array, tree_leaves(call[:2])))]


CALLS = {
    name: calls for name in FUNCTIONS
    if KINDS[name] != "refused" and numpys(name) is not None and name not in (*IN_PLACE, *TOLD, "empty", "empty_like")
    and (calls := calls_of(name))}

every_function = together("name", CALLS)


def outcome(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, set[type]]:
    """Return the result or the error, and the classes of the warnings."""
    with all_warnings() as caught:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            result = error
    return result, {warning.category for warning in caught}


def check(found: Any, expected: Any, tolerance: float) -> None:
    """Assert the same values in arrays of the same dtypes and shapes, or an error of the same class."""
    if isinstance(found, Exception) or isinstance(expected, Exception):
        if not isinstance(expected, Exception):
            raise found
        assert isinstance(found, agreeing(type(expected))), f"found {found!r}, expected {expected!r}"
        return
    found = tree_map(lambda leaf: leaf.numpy() if isinstance(leaf, Tensor) else leaf, found)
    for left, right in zip(tree_leaves(found), tree_leaves(expected), strict=True):
        if not identical(left, right):
            check_same(left, right, max(tolerance, 1e-15))


def same_as(x: np.ndarray) -> np.ndarray:
    return x.copy(order="K")


def as_tensor(x: np.ndarray) -> Tensor:
    return Tensor(same_as(x))


def forms(name: str, form: Callable[[Call], tuple[Any, Any]] = lambda call: call[:2]) -> Iterator[tuple[Any, ...]]:
    """Yield for each call in a form: NumPy's result, arguments with Tensors, and the tolerance."""
    for call in CALLS[name]:
        args, kwargs = form(call)
        yield (outcome(numpys(name), *mapped(same_as, (args, kwargs))), mapped(as_tensor, (args, kwargs)),
               call.tolerance)


@every_function
def test_results_errors_and_warnings(name):
    for (expected, warned), tensors, tolerance in forms(name):
        for function in (numpys(name), ours(name)):
            if function is numpys(name) and name in CONVERSIONS:
                continue
            found, warned_by_us = outcome(function, *tensors)
            check(found, expected, tolerance)
            if not isinstance(expected, Exception):
                assert warned_by_us == warned


def first_an_array(call: Call) -> tuple[Any, Any]:
    """Return the arguments with lists in place of all arrays but the first."""
    arrays = iter(filter(is_array, tree_leaves(call[:2])))
    first = next(arrays)
    return mapped(lambda x: x if x is first else x.tolist(), call[:2])


ARRAYS_ALONE = ("take_along_axis", "common_type")
"""Functions of which NumPy asks dtypes of the arguments without making arrays of them."""


@together("name", [name for name in CALLS if name not in ARRAYS_ALONE])
def test_lists_beside_a_tensor(name):
    for (expected, _), tensors, tolerance in forms(name, first_an_array):
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(tensors)):
            continue
        check(outcome(ours(name), *tensors)[0], expected, tolerance)


SLICED = ("split", "array_split", "trim_zeros")
"""Functions that slice lists in NumPy."""


@together("name", [name for name in CALLS if name not in SLICED])
def test_lists_alone(name):
    for call in CALLS[name]:
        args, kwargs = mapped(lambda x: x.tolist(), call[:2])
        expected, _ = outcome(numpys(name), args, kwargs)
        if not isinstance(expected, Exception):
            check(outcome(FUNCTIONS[name].on_tensors, args, kwargs)[0], expected, call.tolerance)


def parameters(function: Any) -> list[str] | None:
    """Return the names of the arguments, None where they have none."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    unnamed = any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY) for parameter in found)
    return None if unnamed else [parameter.name for parameter in found]


RENAMED = ("reshape",)
"""Functions with an argument that has had another name."""


@together("name", [name for name in CALLS if name not in RENAMED and parameters(numpys(name))])
def test_arguments_by_name(name):
    names = parameters(numpys(name))

    def by_name(call: Call) -> tuple[Any, Any]:
        return (), {**dict(zip(names, call.args, strict=False)), **call.kwargs}

    for (expected, _), tensors, tolerance in forms(name, by_name):
        if not isinstance(expected, TypeError):     # of functions whose C code takes no names
            check(outcome(ours(name), *tensors)[0], expected, tolerance)


WITHOUT_OUT = ("fft.fft2", "fft.ifft2", "fft.fftn", "fft.ifftn", "fft.rfft2", "fft.rfftn", "fft.irfft2", "fft.irfftn",
               "fft.hfft", "piecewise", "apply_along_axis", "around", "linalg.multi_dot")
"""Functions whose `out` NumPy leaves unwritten, or refuses by the shapes of steps in between; piecewise and
apply_along_axis hand it on, around refuses to round integers into integers, multi_dot to write into 0 dimensions."""


@together("name", [name for name in CALLS if name not in WITHOUT_OUT])
def test_out(name):
    for call in CALLS[name]:
        result, _ = outcome(numpys(name), *mapped(same_as, call[:2]))
        if not isinstance(result, (np.ndarray, np.generic)) or "out" in call.kwargs:
            continue
        target = np.zeros(np.shape(result), np.asarray(result).dtype)
        tensor = Tensor(target.copy())
        args, kwargs = mapped(same_as, call[:2])
        expected, _ = outcome(numpys(name), args, {**kwargs, "out": target})
        args, kwargs = mapped(as_tensor, call[:2])
        found, _ = outcome(ours(name), args, {**kwargs, "out": tensor})
        if isinstance(expected, Exception):
            check(found, expected, 0)
        else:
            assert found is tensor
            check(tensor, target, call.tolerance)


@together("name", [name for name in CALLS if name not in ("piecewise", "clip")])
def test_a_keyword_that_is_none_is_refused(name):
    for call in CALLS[name][:3]:
        args, kwargs = mapped(as_tensor, call[:2])
        expected, _ = outcome(numpys(name), call.args, {**call.kwargs, "nonsense": 1})
        found, _ = outcome(ours(name), args, {**kwargs, "nonsense": 1})
        assert isinstance(expected, Exception)
        check(found, expected, 0)


NEW_ARRAYS = ("round",) if IS_NUMPY_2_0 else ()
"""Functions that give new arrays where NumPy gives views: in 2.0, of rounded integers."""
STEPS = ("atleast_2d", "atleast_3d")
"""Functions that add axes of one element, whose steps NumPy and operators count otherwise."""


@together("name", [name for name in CALLS if name not in (*NEW_ARRAYS, *CONVERSIONS)])
def test_views_are_numpys(name):
    for call in CALLS[name]:
        args, kwargs = mapped(same_as, call[:2])
        arrays = list(filter(is_array, tree_leaves((args, kwargs))))
        (expected, _), tensors = outcome(numpys(name), args, kwargs), mapped(Tensor, (args, kwargs))
        found, _ = outcome(ours(name), *tensors)
        if isinstance(expected, Exception) or isinstance(found, Exception):
            continue
        for left, right in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            if isinstance(right, np.ndarray) and right.size:
                shares = [np.shares_memory(right, array) for array in arrays]
                assert [np.shares_memory(left.array, array) for array in arrays] == shares
                assert not any(shares) or name in STEPS or left.strides == right.strides


@pytest.mark.parametrize("name", [name for name in CALLS if name not in SAMPLES])
def test_compiled_operators_are_eager(name):
    # One call in four, since each is traced and planned. test_functions.py covers all other functions.
    for call in CALLS[name][::4]:
        arrays = [same_as(leaf) for leaf in tree_leaves(call[:2]) if is_array(leaf)]
        if not all(array.dtype.isnative for array in arrays):
            continue

        def function(*values, call=call):
            left = list(values)
            args, kwargs = mapped(lambda leaf: left.pop(0), call[:2])
            found = ours(name)(*args, **kwargs)
            return [leaf for leaf in tree_leaves(found) if hasattr(leaf, "dtype")]

        expected, _ = outcome(function, arrays, {})
        found, _ = outcome(pydispatch.compile(function), arrays, {})
        if not isinstance(expected, Exception):
            check(found, [np.asarray(leaf) for leaf in expected], max(call.tolerance, 1e-12))


UNIVERSAL = [name for name in CALLS if isinstance(numpys(name), np.ufunc) and numpys(name).signature is None]
OPTIONS = {"dtype=float32": {"dtype": "f4"}, "dtype=complex128": {"dtype": "D"}, "dtype=int32": {"dtype": "i4"},
           "dtype=bool": {"dtype": "?"}, "dtype=float32, casting=unsafe": {"dtype": "f4", "casting": "unsafe"},
           "casting=no": {"casting": "no"}, "subok=False": {"subok": False}, "order=C": {"order": "C"},
           "where": {"where": np.array([True, False, True])}}
DTYPES = "? b h i q B H I Q e f d g F D G".split()      # noqa: SIM905  one letter each


def arguments(ufunc: np.ufunc, dtype: str) -> list[np.ndarray]:
    values = [np.array([[1.5, -0.25, 2.0], [0.5, 3.0, -1.0]]), np.array([[2.0, 3.0, -1.5], [1.0, -2.5, 0.5]])]
    values = [np.abs(value) if np.dtype(dtype).kind in "bui" else value for value in values[:ufunc.nin]]
    return [value.astype(dtype) for value in values]


@pytest.mark.parametrize("name", UNIVERSAL)
@together("option", ["", *OPTIONS])
def test_options_of_universal_functions(name, option):
    options = OPTIONS.get(option, {})
    for dtype in DTYPES:
        args = arguments(numpys(name), dtype)
        expected, _ = outcome(numpys(name), args, options)
        found, _ = outcome(ours(name), list(map(Tensor, args)), options)
        if option == "where" and not isinstance(expected, Exception) and not isinstance(found, Exception):
            found, expected = ([leaf[..., [0, 2]] for leaf in tree_leaves(tree)] for tree in (found, expected))
        check(found, expected, 1e-6 if dtype in "ef" or "float32" in option else 1e-15)
