"""Registering classes that schemas can name."""

import enum

import pytest

from pydispatch.exceptions import RegistrationError
from pydispatch.schema import parse_schema
from pydispatch.schema.frozen import REQUIRED
from pydispatch.schema.user_types import OpaqueType, register_opaque_type, unregister_opaque_type
from tests.schema.samples import assert_says, message_of


def test_registering_a_type():
    class Local:
        pass

    register_opaque_type(Local, "Elsewhere")
    try:
        register_opaque_type(Local, "Elsewhere")  # again: nothing happens
        schema = parse_schema("f(Elsewhere x) -> Elsewhere[]")
        assert schema.arguments[0].type == OpaqueType("Elsewhere", Local)
        with pytest.raises(RegistrationError, match=r"registered as 'Elsewhere'\n.*unregister_opaque_type"):
            register_opaque_type(Local, "Other")
        with pytest.raises(RegistrationError, match=r"'Elsewhere': the name is taken by .*Local\n.*unregister"):
            register_opaque_type(int, "Elsewhere")
    finally:
        unregister_opaque_type("Elsewhere")
    assert_says(message_of("f(Elsewhere x) -> ()"), "unknown type 'Elsewhere'")
    assert isinstance(schema.arguments[0].convert(Local()), Local)
    with pytest.raises(RegistrationError, match=r"not registered\nRegistered types: .*Color"):
        unregister_opaque_type(Local)


@pytest.mark.parametrize("name", ["Tensor", "int", "Dict", "Union", "SymInt", "for", "1x", "é", "", "a.", ".a", "a..b",
                                  "a.for", "a.1x", "Tensor.x", "Dict.x", "__torch__.A", "a b", 3, int])
def test_names_that_types_cannot_have(name):
    with pytest.raises(RegistrationError) as raised:
        register_opaque_type(int, name)
    assert_says(str(raised.value), repr(name), "register_opaque_type(int, name=")


class Shade(enum.Enum):
    DARK = 1


@pytest.mark.parametrize("name", ["package.module.Name", "a.b"])
@pytest.mark.parametrize("cls", [Shade, type("Local", (), {})])
def test_dotted_names(name, cls):
    register_opaque_type(cls, name)
    try:
        default = f"={name}.DARK" if cls is Shade else ""
        text = f"ns::f({name} x{default}, {name}[] y, *, Dict(str, {name})? z=None) -> ({name}, {name}?)"
        schema = parse_schema(text)
        assert str(schema) == text
        assert parse_schema(str(schema)) == schema
        assert schema.arguments[0].type.cls is cls
        assert schema.arguments[0].default is (Shade.DARK if cls is Shade else REQUIRED)
        assert_says(message_of(f"f({name}.more x) -> ()"), f"unknown type '{name}.more'", name)
    finally:
        unregister_opaque_type(name)
    assert_says(message_of(f"f({name} x) -> ()"), f"unknown type {name!r}")


@pytest.mark.parametrize("cls", [None, 3, "Name", len], ids=repr)
def test_only_classes_are_types(cls):
    with pytest.raises(RegistrationError, match=r"register_opaque_type: argument cls is .*, expected a class\n"):
        register_opaque_type(cls, "Name")
