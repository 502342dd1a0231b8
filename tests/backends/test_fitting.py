"""Arguments of operators that functions of other libraries receive, from the core and from us."""

import inspect

import numpy as np
import pytest

from pydispatch import ops
from pydispatch._registry.operators import find_or_raise
from pydispatch.backends.fitting import fitted
from pydispatch.schema.fitting import Fit

A, B = np.arange(6.0).reshape(2, 3), np.ones(3)



def recorder(signature):
    """Return a function of this signature that tells how it was called."""
    scope = {}
    exec(f"def function({signature}):\n    given = dict(locals())\n    return given", scope)
    return scope["function"]


def passed(name, function, *args, **kwargs):
    """Return the arguments that the function gets from a call of the operator, with its own defaults."""
    op = find_or_raise(f"np::{name}")
    kernel, fit = fitted(name, op.schema, function)
    values = op.bind(args, kwargs)
    args, kwargs = op.strip_defaults(values)
    for i, argument in enumerate(op.schema.arguments):
        if argument.name in fit.filled and argument.kw_only:
            kwargs[argument.name] = values[i]
        elif argument.name in fit.filled:
            args = values[: max(len(args), i + 1)]
    return kernel(*args, **kwargs)


PASSED = {
    "as they are": ("sum", "a, axis=None, dtype=None, keepdims=False", (A, 1), {"keepdims": True},
                    {"a": A, "axis": (1,), "dtype": None, "keepdims": True}),
    "other names of arrays": ("sum", "x, /, *, axis=None, dtype=None, keepdims=False", (A, 1, float), {},
                              {"x": A, "axis": (1,), "dtype": np.dtype(float), "keepdims": False}),
    "a parameter in between": ("sum", "a, out=None, axis=None", (A, 1), {}, {"a": A, "out": None, "axis": (1,)}),
    "an unsupported argument in between": ("sum", "a, *, dtype=None", (A, None, float), {}, {"a": A, "dtype": float}),
    "another default": ("take_along_axis", "x, indices, /, *, axis=None", (A, B), {},
                        {"x": A, "indices": B, "axis": -1}),
    "None for the function's own default": ("argsort", "x, /, *, axis=-1, stable=True", (A,), {},
                                            {"x": A, "axis": -1, "stable": True}),
    "required": ("take_along_axis", "x, indices, axis", (A, B), {}, {"x": A, "indices": B, "axis": -1}),
    "other names of arguments": ("clip", "x, /, min=None, max=None", (A, 0.0, 1.0), {},
                                 {"x": A, "min": 0.0, "max": 1.0}),
    "no device": ("zeros", "shape, *, dtype=None, device=None", (3,), {"device": "CPU"},
                  {"shape": (3,), "dtype": None, "device": None}),
    "one number": ("repeat", "x, repeats, /, *, axis=None", (A, (2,), 1), {}, {"x": A, "repeats": 2, "axis": 1}),
    "several numbers": ("repeat", "x, repeats, /, *, axis=None", (A, (2, 3), 0), {},
                        {"x": A, "repeats": (2, 3), "axis": 0}),
    "an order of axes": ("transpose", "x, /, axes", (A,), {}, {"x": A, "axes": (1, 0)}),
    "anything": ("sum", "*args, **kwargs", (A, 1), {"keepdims": True},
                 {"args": (A, (1,)), "kwargs": {"keepdims": True}}),
}


@pytest.mark.parametrize(("name", "signature", "args", "kwargs", "expected"), PASSED.values(), ids=list(PASSED))
def test_what_is_passed(name, signature, args, kwargs, expected):
    found = passed(name, recorder(signature), *args, **kwargs)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] is value or found[key] == value


FITS = {
    "everything": ("sum", "a, axis=None, dtype=None, *, keepdims=False, initial=None, where=None", "", ""),
    "no keywords": ("sum", "a, axis=None, dtype=None", "", "keepdims initial where"),
    "not in between": ("sum", "a, *, dtype=None", "", "axis keepdims initial where"),
    "another default": ("take_along_axis", "x, indices, /, *, axis=0", "axis", ""),
    "required": ("sum", "a, axis, dtype", "axis dtype", "keepdims initial where"),
    "a device, which is no kernel's": ("zeros", "shape, dtype=None", "", ""),
}


@pytest.mark.parametrize(("name", "signature", "filled", "unsupported"), FITS.values(), ids=list(FITS))
def test_what_is_filled_and_unsupported(name, signature, filled, unsupported):
    _, fit = fitted(name, find_or_raise(f"np::{name}").schema, recorder(signature))
    assert fit == Fit(frozenset(filled.split()), frozenset(unsupported.split()))


MISFITS = {
    "an argument": ("take_along_axis", "arr", "it has no parameter 'indices'"),
    "a parameter": ("sum", "a, axis=None, *, chunks", "it requires a parameter 'chunks'"),
    "a parameter by position": ("negative", "x, out, /", "it requires a parameter 'out'"),
}


@pytest.mark.parametrize(("name", "signature", "message"), MISFITS.values(), ids=list(MISFITS))
def test_what_does_not_fit(name, signature, message):
    with pytest.raises(ValueError, match=message):
        fitted(name, find_or_raise(f"np::{name}").schema, recorder(signature))


def test_a_function_that_fits_as_it_is_has_nothing_around_it():
    function = recorder("a, axis=None, dtype=None")
    assert fitted("sum", ops.np.sum.default.schema, function)[0] is function
    assert fitted("add", ops.np.add.default.schema, np.add)[0] is np.add


class Universal:
    """A function with the counts of a universal function, and a signature of its own."""

    nin, nout = 2, 1

    def __init__(self, call):
        self.__signature__ = inspect.signature(call)

    def __call__(self, *args, **options):
        raise NotImplementedError


@pytest.mark.parametrize(("call", "unsupported"), [
    (lambda *args, out=None: None, {"dtype", "casting"}), (lambda *args, dtype=None: None, {"casting"}),
    (lambda *args, **options: None, set()), (lambda x, y: None, set()),
], ids=["as JAX's", "one of them", "anything", "as Numba's"])
def test_universal_functions_of_other_classes_tell_what_they_take(call, unsupported):
    _, fit = fitted("add", ops.np.add.default.schema, Universal(call))
    assert fit.unsupported == unsupported
