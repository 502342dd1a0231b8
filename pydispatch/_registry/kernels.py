"""Kernels: registered functions, with the checks that they fit a schema."""

# tests: tests/registry/test_registrations.py
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch import schema
from pydispatch._registry.c_functions import is_c_function, universal
from pydispatch.exceptions import RegistrationError
from pydispatch.schema import Schema
from pydispatch.schema.fitting import EXACT, Fit, compare_signature, first_difference
from pydispatch.schema.frozen import described

# needed for users' kernels only


class Kernel:
    """A registered function, with its calling convention.

    `fitting` specifies how the function takes the schema's arguments. If it is None, the function's signature does.
    """

    __slots__ = (
        "_inferred", "applies", "boxed", "checks_aliasing", "fallthrough", "fits", "fitting", "function",
        "is_composite", "is_of_user", "with_keyset", "written",
    )
    is_fake = False     # the function computes the metadata of the results only

    def __init__(
        self, function: Callable[..., Any], *, with_keyset: bool = False, boxed: bool = False,
        fallthrough: bool = False, checks_aliasing: bool = False, is_of_user: bool = True, is_composite: bool = False,
        applies: Callable[..., bool] | None = None, fitting: Fit | None = None,
    ) -> None:
        self.function = self.written = function     # `function` may be replaced by a wrapper of the user's function
        self.with_keyset = with_keyset
        self.boxed = boxed
        self.fallthrough = fallthrough
        self.checks_aliasing = checks_aliasing      # refuse results that share memory with arguments
        self.is_of_user = is_of_user                # the function is a user's, not the library's
        self.is_composite = is_composite            # transforms and the tape see the calls that it makes
        self.applies = applies                      # used only if applies(*args), or None for all calls
        self.fitting = fitting
        self.fits: Schema | None = None             # the schema that it was last checked for
        self._inferred: Schema | bool | None = False

    @property
    def name(self) -> str:
        """The qualified name of the function."""
        return str(getattr(self.written, "__qualname__", None) or getattr(self.written, "__name__", None)
                   or repr(self.written))

    @property
    def site(self) -> str:
        """The file and line of the definition, or the module of a function in C."""
        code = getattr(self.written, "__code__", None)
        if code:
            return f"{code.co_filename}:{code.co_firstlineno}"
        is_numpys = vars(np).get(self.name) is self.written    # ufuncs have a __module__ since NumPy 2.1
        return getattr(self.written, "__module__", None) or ("numpy" if is_numpys else "C")

    @property
    def inferred(self) -> Schema | None:
        """The schema inferred from annotations, or None for boxed kernels and if annotations are missing."""
        if self._inferred is False:
            opaque = self.boxed or self.fallthrough
            self._inferred = None if opaque else schema.infer_kernel_schema(self.function, with_keyset=self.with_keyset)
        return self._inferred  # type: ignore[return-value]

    @property
    def debug(self) -> str:
        """The qualified name and the site of the definition."""
        return f"{self.name} at {self.site}"

    def fit(self, schema: Schema) -> Fit:
        """Return how the function takes the schema's arguments. Raise ValueError if it cannot take them."""
        if self.fitting is not None:
            return self.fitting
        if self.boxed or self.fallthrough:
            return EXACT
        return compare_signature(schema, self.function, with_keyset=self.with_keyset)

    def __repr__(self) -> str:
        return f"<Kernel {self.debug}>"


def check_function(what: str, role: str, function: Any, remedy: str) -> None:
    """Raise RegistrationError for a value that is not callable, with `what` and `role` in the message."""
    if not callable(function):
        raise RegistrationError(f"{what}: {role} must be a function, not {described(function)}\n{remedy}")


def kernel_function(what: str, function: Any, remedy: str) -> Callable[..., Any]:
    """Return the function that a kernel calls: the given one, or the universal function of a function in C.

    Raises RegistrationError for anything else.
    """
    if is_c_function(function):
        function = universal(what, (function,))
    check_function(what, "a kernel", function, remedy)
    return function  # type: ignore[no-any-return]


def fallthrough_kernel(*args: Any, **kwargs: Any) -> Any:
    """Mark a key that falls through. Register this for one operator with `impl`, for all with `fallback`.

    It is never called.
    """
    raise AssertionError("a fall-through kernel is a marker and cannot be called")


def make_kernel(
    function: Callable[..., Any], *, with_keyset: bool = False, boxed: bool = False, checks_aliasing: bool = False,
    is_composite: bool = False, applies: Callable[..., bool] | None = None,
) -> Kernel:
    """Make a kernel of a function, or a fall-through kernel of `fallthrough_kernel`."""
    if function is fallthrough_kernel:
        return Kernel(function, fallthrough=True)
    return Kernel(function, with_keyset=with_keyset, boxed=boxed, checks_aliasing=checks_aliasing,
                  is_composite=is_composite, applies=applies)


def check_kernel(schema: Schema, site: str, kernel: Kernel) -> None:
    """Raise RegistrationError if a kernel cannot take the arguments of a schema or its annotations contradict it."""
    if kernel.fits is schema:
        return
    inferred = kernel.inferred
    reason = None if inferred is None else first_difference(schema, inferred)
    if reason is None:
        try:
            kernel.fit(schema)
            kernel.fits = schema
            return
        except ValueError as error:
            reason = str(error)
    raise RegistrationError(
        f"operator {schema.name}: the kernel does not fit the schema: {reason}\n"
        f"expected: {schema}, defined at {site}\n"
        f"inferred: {'(none)' if inferred is None else inferred}, kernel {kernel.debug}"
    )
