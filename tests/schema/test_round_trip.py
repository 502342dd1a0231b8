"""Every schema reads back as it prints: laws over generated schemas and damaged texts."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pydispatch.exceptions import SchemaError
from pydispatch.schema import (
    AliasInfo,
    Argument,
    OperatorName,
    Return,
    Schema,
    parse_name,
    parse_schema,
    parse_schema_or_name,
    parse_signature,
)
from pydispatch.schema.base_types import BASE_TYPES, AnyType
from pydispatch.schema.compound_types import DictType, ListType, OptionalType, TupleType, UnionType, optional, union
from pydispatch.schema.frozen import REQUIRED
from pydispatch.schema.scanner import RESERVED_WORDS
from tests.schema.samples import Color, argument

ASCII = st.characters(codec="ascii")     # of others, Hypothesis would list all
identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True, alphabet=ASCII).filter(
    lambda text: text not in RESERVED_WORDS and text != "default" and not text.startswith("__"))
alias_names = st.one_of(st.just("*"), identifiers)
alias_sets = st.frozensets(alias_names, min_size=1, max_size=3)
own_aliases = st.one_of(st.builds(AliasInfo, alias_sets, st.booleans(), st.one_of(st.none(), alias_sets)),
                        st.just(AliasInfo(frozenset(), True)))
named_types = st.sampled_from([*BASE_TYPES, "Color", "Plan"]).map(lambda text: argument(f"{text} x").type)
types = st.recursive(named_types, lambda inner: st.one_of(
    inner.map(optional),
    inner.map(ListType),
    st.lists(inner, max_size=3).map(TupleType),
    st.builds(DictType, inner, inner),
    st.lists(inner, min_size=1, max_size=3).map(union),
), max_leaves=5)


@st.composite
def annotations(draw, type):
    """Draw an alias annotation that fits the type, or None."""
    if isinstance(type, OptionalType):
        return draw(annotations(type.inner))
    if isinstance(type, TupleType) or draw(st.booleans()):
        return None if not isinstance(type, ListType) else draw(st.none())
    if not isinstance(type, ListType):
        return draw(own_aliases)
    contained = draw(annotations(type.inner))
    own = draw(st.one_of(st.none(), own_aliases))
    if own is not None:
        return AliasInfo(own.before, own.write, own.after, contained)
    return contained and AliasInfo(frozenset(), contained.write, frozenset(), contained)


numbers_64 = st.integers(-(2**63), 2**63 - 1)
values = {
    "int": numbers_64,
    "float": st.floats(),
    "bool": st.booleans(),
    "str": st.text(max_size=8),
    "complex": st.complex_numbers(allow_nan=True),
    "Scalar": st.one_of(numbers_64, st.floats(), st.booleans(), st.complex_numbers()),
    # Quoted dtypes are in the table above: in a Union with str, the quoted text is a str.
    "ScalarType": st.sampled_from(["float32", "int8", "bool", "object"]).map(np.dtype),
    "Device": st.sampled_from(["CPU", "Meta"]),
    "Any": st.one_of(st.none(), numbers_64, st.text(max_size=3), st.lists(st.booleans(), max_size=2).map(tuple)),
    "Color": st.sampled_from(Color),
}


def defaults(type):
    """Return values that a default of this type can have. Nothing if there are none."""
    match type:
        case OptionalType():
            return st.one_of(st.none(), defaults(type.inner))
        case AnyType():
            return values["Any"]
        case _ if type.contains_arrays:
            return st.nothing()
        case ListType():
            inner = defaults(type.inner)
            return st.just(()) if inner.is_empty else st.lists(inner, max_size=3).map(tuple)
        case TupleType():
            return st.tuples(*map(defaults, type.items))
        case UnionType():
            return st.one_of(*map(defaults, type.members))
    return values.get(str(type), st.nothing())


@st.composite
def arguments(draw, name, kw_only):
    declared = draw(types)
    outer = declared.inner if isinstance(declared, OptionalType) else declared
    size = draw(st.one_of(st.none(), st.integers(0, 4))) if isinstance(outer, ListType) else None
    bare = Argument(name, declared, size, REQUIRED, kw_only, draw(annotations(declared)))
    possible = defaults(declared)
    if possible.is_empty or draw(st.booleans()):
        return bare
    return Argument(name, declared, size, bare.convert(draw(possible)), kw_only, bare.alias)


@st.composite
def schemas(draw):
    name = OperatorName(draw(st.one_of(st.none(), identifiers)), draw(identifiers), draw(st.just("") | identifiers))
    names = draw(st.lists(identifiers, max_size=5, unique=True))
    n_positional = draw(st.integers(0, len(names)))
    made = [draw(arguments(text, i >= n_positional)) for i, text in enumerate(names)]
    # arguments without a default come first
    made.sort(key=lambda a: (a.kw_only, not a.kw_only and a.has_default))
    returns = []
    for text in draw(st.lists(st.just("") | identifiers, max_size=3, unique_by=lambda text: text or object())):
        declared = draw(types)
        outer = declared.inner if isinstance(declared, OptionalType) else declared
        size = draw(st.none() | st.integers(0, 4)) if isinstance(outer, ListType) else None
        returns.append(Return(text, declared, size, draw(annotations(declared))))
    return Schema(name, made, returns)


@given(schemas())
def test_round_trip(schema):
    text = str(schema)
    again = parse_schema(text)
    assert again == schema
    assert hash(again) == hash(schema)
    assert str(again) == text
    assert pickle.loads(pickle.dumps(again)) == again


@given(st.text(alphabet=" ab:.()[],*=?!|->'\"1.5j\n#\\Tensorinst", max_size=40))
def test_any_text_parses_or_is_a_schema_error(text):
    for parse in (parse_name, parse_schema, parse_schema_or_name, parse_signature):
        try:
            value = parse(text)
        except SchemaError:
            continue
        assert (parse_signature if parse is parse_signature else parse_schema_or_name)(str(value)) == value


@given(st.data())
def test_damaged_schemas_are_schema_errors(data):
    text = str(data.draw(schemas()))
    i = data.draw(st.integers(0, len(text)))
    j = data.draw(st.integers(i, len(text)))
    damaged = text[:i] + text[j:]
    try:
        schema = parse_schema(damaged)
    except SchemaError as error:
        assert "^" in str(error)  # noqa: PT017
    else:
        assert parse_schema(str(schema)) == schema
