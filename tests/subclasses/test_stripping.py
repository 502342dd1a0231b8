"""Handlers do not get what equals its default. Tables and the model are those of kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError
from pydispatch.schema.user_types import register_opaque_type, unregister_opaque_type
from pydispatch.testing import LoggingTensor
from pydispatch.tree import tree_map
from tests.core import test_stripping as kernels
from tests.core.test_stripping import call, plain, spelled, strip

got: list[tuple[tuple[object, ...], dict[str, object]]] = []


class Seen(Tensor):
    """Writes down what its handler gets, and returns None."""

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        got.append((args, kwargs))


S = Seen(np.arange(3.0))


@pytest.fixture(autouse=True)
def forget():
    got.clear()


@pytest.fixture(scope="module", autouse=True)
def color():
    register_opaque_type(kernels.Color, "StrippedColor")
    yield
    unregister_opaque_type(kernels.Color)


def seen(value):
    """Return the same values, with S in place of the arrays that the tables of kernels use."""
    return tree_map(lambda leaf: S if leaf is kernels.X or leaf is kernels.Y else leaf, value)


@pytest.mark.parametrize(("argument", "value", "stripped"), kernels.EQUALITY, ids=str)
@pytest.mark.parametrize("kw_only", [False, True], ids=["positional", "keyword"])
def test_what_equals_a_default(fresh, define, argument, value, stripped, kw_only):
    op = define(fresh, f"f(Tensor x, {'*, ' if kw_only else ''}{argument}) -> ()")
    name = argument.partition("=")[0].split()[-1]
    op(S, **{name: value})
    if not kw_only:
        op(S, value)
    converted = op.bind((S,), {name: value})[1]
    for args, kwargs in got:
        assert args[0] is S
        delivered = [*args[1:], *kwargs.values()]
        assert plain(delivered) == plain([] if stripped else [converted])
        assert list(kwargs) == ([name] if kw_only and not stripped else [])


class Rows(Seen):
    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        super().__pydispatch__(func, types, args, kwargs)
        return func(*tree_map(lambda leaf: leaf.array if leaf is Y else leaf, args), **kwargs)


Y = Rows(np.ones((2, 3)))
LIBRARY = [
    *kernels.LIBRARY_EXAMPLES,
    ("cumprod", call(kernels.Y, 0, np.float32), call(kernels.Y, 0, np.dtype(np.float32))),
    ("zeros_like", call(kernels.Y, dtype=np.int8), call(kernels.Y, dtype=np.dtype(np.int8))),
    ("concatenate", call([kernels.Y, kernels.Y]), call((kernels.Y, kernels.Y))),
    ("concatenate", call([kernels.Y, kernels.Y], 0), call((kernels.Y, kernels.Y))),
    ("clip", call(kernels.Y, min=0.0), call(kernels.Y, min=0.0)),
]


@pytest.mark.parametrize(("name", "spelling", "expected"), LIBRARY, ids=str)
def test_operators_of_the_library(name, spelling, expected):
    def rows(value):
        return tree_map(lambda leaf: Y if leaf is kernels.Y else leaf, value)

    args, kwargs = rows(spelling)
    getattr(ops.np, name)(*args, **kwargs)
    assert plain(got[:1]) == plain([rows(expected)])


@pytest.mark.parametrize(("scalar", "expected"), [(1, "1"), (1.0, "1.0"), (True, "True"), (1j, "1j")], ids=str)
def test_numbers_stay_numbers(fresh, define, scalar, expected):
    op = define(fresh, "f(Tensor x, Tensor y) -> ()")
    op(S, scalar)
    assert repr(got[0][0][1]) == expected


def test_promotion_is_kept():
    x = LoggingTensor(np.ones(2, np.float32))
    assert (x + 1).dtype == np.float32
    assert (x + 1.5).elem.dtype == np.float32
    assert ops.np.add(x, np.float64(1.5)).dtype == np.float64


def test_required_and_out_are_always_there(fresh, define):
    op = define(fresh, "f(Tensor x, int a=1, *, int k, Tensor(a!)? out=None) -> ()")
    op(S, k=1)
    op(S, k=1, out=S)
    assert plain(got) == plain([((S,), {"k": 1}), ((S,), {"k": 1, "out": S})])


def test_an_array_is_not_compared_with_a_default(fresh, define):
    # Comparing would call the handler.
    define(fresh, "f(Tensor x, Tensor? t=None, Any? a=None) -> ()")(S, S, S)
    assert plain(got) == plain([((S, S, S), {})])


@given(st.data())
@settings(max_examples=200)
def test_laws_of_stripping(new_library, define, data):
    schema, arguments, values = data.draw(kernels.operators())
    values = seen(values)
    args, kwargs = data.draw(spelled(arguments, values))
    with new_library() as library:
        op = define(library, schema)
        expected = strip(arguments, values)
        stripped = op.strip_defaults(op.bind(args, kwargs))
        filled, by_name = op.fill_defaults(args, kwargs), op.fill_defaults(args, kwargs, by_name=True)
        forms = [(args, kwargs), stripped, filled, by_name, op.fill_defaults(*stripped)]
        got.clear()
        for form_args, form_kwargs in forms:
            op(*form_args, **form_kwargs)
        assert plain(got) == plain([expected] * len(forms))

        for handed in got:
            assert plain(op.strip_defaults(op.bind(*handed))) == plain(expected), "stripping again changes nothing"
            assert plain(op.fill_defaults(*handed)) == plain(filled), "fill after strip is fill"
            assert plain(op.strip_defaults(op.bind(*op.fill_defaults(*handed)))) == plain(expected)
            assert plain(op.bind(*handed)) == plain(values)


@given(st.data())
@settings(max_examples=50)
def test_kwargs_and_args_are_fresh(new_library, define, data):
    schema, arguments, values = data.draw(kernels.operators())
    args, kwargs = data.draw(spelled(arguments, seen(values)))
    with new_library() as library:
        op = define(library, schema)
        got.clear()
        op(*args, **kwargs)
        op(*args, **kwargs)
        (first_args, first_kwargs), (_, second_kwargs) = got
    assert type(first_args) is tuple
    assert type(first_kwargs) is dict
    assert first_kwargs is not kwargs
    assert first_kwargs is not second_kwargs


@pytest.mark.parametrize(
    "wrong", [call(S), call(S, 1, 2, 3, 4), call(S, 1, z=1), call(S, 1, a=1), call(S, "text")], ids=range(5))
def test_a_call_that_cannot_be_made_reaches_no_handler(fresh, define, wrong):
    op = define(fresh, kernels.Q)
    with pytest.raises(DispatchTypeError, match="::q"):
        op(*wrong[0], **wrong[1])
    assert got == []
