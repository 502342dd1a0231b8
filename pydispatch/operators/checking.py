"""Checks of the declarations of packs, run before the declarations are registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydispatch import _core
from pydispatch.exceptions import RegistrationError
from pydispatch.schema import parse_schema

if TYPE_CHECKING:
    from pydispatch.operators.declare import Declaration


def check(declaration: Declaration) -> None:
    """Raise RegistrationError for a declaration that no call could use."""
    full = f"{declaration.namespace}::{declaration.name}"
    arguments = parse_schema(declaration.schema_text).arguments
    for role in ("kernel", "meta"):
        function = getattr(declaration, role)
        if not callable(function):
            raise RegistrationError(f"operator {full}: {role} is {_core.a_type(function)}, expected a function\n"
                                    "pass one that takes the operator's arguments")
    n_arrays = sum(argument.type.contains_arrays for argument in arguments)
    for role in ("vjp", "jvp"):
        given = getattr(declaration, role)
        if given is None or isinstance(given, str):
            continue
        formulas = given if isinstance(given, tuple) else (given,)        # a Joint is a tuple of one formula
        if len(formulas) > n_arrays:
            raise RegistrationError(f"operator {full}: {role} has {len(formulas)} formulas, but the schema has "
                                    f"{n_arrays} arrays among its arguments\ngive one for each of them")
        for formula in formulas:
            if formula is not None and not callable(formula):
                raise RegistrationError(f"operator {full}: a formula of {role} is {_core.a_type(formula)}, expected "
                                        "a function or None\nwrite lambda g, x: ...")
