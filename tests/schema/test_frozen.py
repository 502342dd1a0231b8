"""Frozen values. Equality of converted ones."""

import copy
import itertools
import pickle

import pytest

from pydispatch.schema import parse_schema
from pydispatch.schema.frozen import same_value
from tests.schema.samples import ACCEPTED, ARRAY
from tests.together import together


def test_values_are_frozen():
    schema = parse_schema("ns::f(Tensor(a!) x, int? n=1) -> Tensor(a!)")
    for value in (schema, schema.name, schema.arguments[0], schema.arguments[0].alias, schema.returns[0]):
        with pytest.raises(AttributeError, match="is frozen"):
            value.name = "other"
        with pytest.raises(AttributeError, match="is frozen"):
            del value.name
        with pytest.raises(AttributeError):
            value.new = 1
        assert value != 1
        assert str(value) in repr(value)


@together("text", [text for text, _ in ACCEPTED], ids=str)
def test_pickle_and_copy(text):
    schema = parse_schema(text)
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert copy.deepcopy(schema) == schema
    assert copy.copy(schema) == schema


def test_same_value():
    nan = float("nan")
    assert same_value(nan, float("nan"))
    assert same_value((1, (nan,)), (1, (float("nan"),)))
    assert same_value({"a": nan}, {"a": float("nan")})
    assert same_value(0.0, -0.0)
    assert not same_value({"a": 1}, {"b": 1})
    assert not same_value((), None)
    assert not same_value((1,), (1, 1))
    assert same_value(ARRAY, ARRAY)
    assert not same_value(ARRAY, ARRAY.copy())
    for a, b in itertools.combinations([1, 1.0, True, 1 + 0j, "1"], 2):
        assert not same_value(a, b)
