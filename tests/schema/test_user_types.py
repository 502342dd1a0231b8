"""Registering classes that schemas can name."""

from __future__ import annotations

import pytest

from pydispatch.exceptions import RegistrationError
from pydispatch.schema import OpaqueType, parse_schema, register_opaque_type, unregister_opaque_type
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
    with pytest.raises(RegistrationError, match=r"not registered\nThese are: .*Color"):
        unregister_opaque_type(Local)


@pytest.mark.parametrize("name", ["Tensor", "int", "Dict", "Union", "SymInt", "for", "1x", "a.b", "é", ""])
def test_names_that_types_cannot_have(name):
    with pytest.raises(RegistrationError) as raised:
        register_opaque_type(int, name)
    assert_says(str(raised.value), repr(name), "register_opaque_type(int, name=")
