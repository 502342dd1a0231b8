"""Fake implementations: functions that compute the shapes and dtypes of results from those of the arguments."""

# tests: tests/library/test_custom_operator.py
from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn

from pydispatch._core import MetaArray, OpOverload, Setting, Shell, Tensor
from pydispatch._registry import registrations
from pydispatch._registry.kernels import Kernel, check_function
from pydispatch._registry.registrations import KernelHandle, kernels_of
from pydispatch.exceptions import DataDependentError, RegistrationError
from pydispatch.keys import DispatchKey
from pydispatch.tree import tree_map

META, CIA = DispatchKey.Meta, DispatchKey.CompositeImplicitAutograd
_running: ContextVar[FakeKernel | None] = ContextVar("pydispatch_fake", default=None)
in_fake_mode: ContextVar[bool] = ContextVar("pydispatch_in_fake_mode", default=False)
"""True while a FakeMode runs the kernels on arrays without data."""


class FakeKernel(Kernel):
    """A fake implementation as a kernel that runs on arrays without data."""

    __slots__ = ("operator", "registered_at")
    is_fake = True

    def __init__(self, fake: Callable[..., Any], operator: OpOverload, registered_at: str) -> None:
        check_function(f"operator {operator.name}: argument fn", "a fake", fake,
                       f'write library.register_fake("{operator.name}", fn)')
        super().__init__(fake)
        self._inferred = self.inferred      # inferred from the function itself, before it is wrapped
        self.operator = operator
        self.registered_at = registered_at
        self.function = self._in_context(fake)

    def __str__(self) -> str:
        return f"operator {self.operator.name}: its fake (registered at {self.registered_at})"

    def _in_context(self, fake: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fake)
        def run(*args: Any, **kwargs: Any) -> Any:
            originals: dict[int, Any] = {}
            args, kwargs = tree_map(partial(as_operand, originals), (args, kwargs))
            with Setting(_running, self):
                return tree_map(partial(as_result, originals), fake(*args, **kwargs))

        return run


def as_operand(originals: dict[int, Any], value: Any) -> Any:
    """Wrap an array without data in a Tensor, which has methods, operators and derivatives. Note the array it holds."""
    if not isinstance(value, MetaArray):
        return value
    is_shell = isinstance(value, Shell)     # a Shell belongs to a fake, and only the fake may hold it
    array = MetaArray(value.shape, value.dtype, strides=value.strides) if is_shell else value
    originals[id(array)] = value
    return Tensor(array)


def as_result(originals: dict[int, Any], value: Any) -> Any:
    """Unwrap a Tensor. Return the array that the kernel was given if the Tensor holds that one."""
    return originals.get(id(value.array), value.array) if isinstance(value, Tensor) else value


class FakeContext:
    """The context of a fake that runs in a FakeMode, for sizes that depend on data. Such sizes are not supported."""

    __slots__ = ("_fake",)

    def __init__(self, fake: FakeKernel) -> None:
        self._fake = fake

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """Raise DataDependentError, since sizes are numbers. Raise ValueError for bounds that no size meets."""
        return self._refuse_size(min, max, 0)

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> int:
        """Raise like `new_dynamic_size`. This is the older name, and its sizes are at least 2."""
        return self._refuse_size(min, max, 2)

    def _refuse_size(self, min: int, max: int | None, least: int) -> NoReturn:
        for name, bound in ("min", min), ("max", max):
            if type(bound) is not int and (bound is not None or name == "min"):
                raise ValueError(f"{self._fake}: {name}={bound!r} of a dynamic size, expected an int\n"
                                 f"call new_dynamic_size(min={least}, max=None)")
        if min < least:
            raise ValueError(f"{self._fake}: min={min} of a dynamic size, expected it to be greater than or equal to "
                             f"{least}\ncall new_dynamic_size(min={least})")
        if max is not None and max < min:
            raise ValueError(f"{self._fake}: max={max} of a dynamic size, expected it to be greater than or equal to "
                             f"min={min}\ncall new_dynamic_size(min={min}, max={min})")
        raise _data_dependent(self._fake)


def get_ctx() -> FakeContext | None:
    """Return the context of the fake that runs in a FakeMode, or None outside of a fake.

    Returns
    -------
    FakeContext or None
        The context.

    Raises
    ------
    DataDependentError
        If the fake runs on other arrays without data.
    """
    fake = _running.get()
    if fake is None:
        return None
    if in_fake_mode.get():
        return FakeContext(fake)
    raise _data_dependent(fake)


def _data_dependent(fake: FakeKernel) -> DataDependentError:
    return DataDependentError(
        f"{fake} requires a size that depends on data: data-dependent output shape\n"
        f"call {fake.operator.name} on arrays with data"
    )


def fake_of(op: OpOverload) -> KernelHandle | None:
    """Return the operator's registered kernel for arrays without data: a fake, or a kernel under Meta."""
    return next(iter(kernels_of(op).get(META, ())), None)


def check_may_fake(op: OpOverload, *, allow_override: bool, word: str = "fake") -> None:
    """Raise RegistrationError if a fake would have no effect, or would replace one that it must not replace."""
    if CIA in kernels_of(op):
        raise RegistrationError(
            f"operator {op.name} has a CompositeImplicitAutograd kernel, which also runs on arrays without data: "
            f"it needs no {word} impl\n"
            f'leave it out, or register its kernel as the default of backends, under "CompositeExplicitAutograd"'
        )
    taken = fake_of(op)
    if taken is None or allow_override:
        return
    if isinstance(taken.kernel, FakeKernel):
        raise RegistrationError(
            f"operator {op.name} already has a {word} impl, {taken.kernel.debug}, registered at {taken.site}\n"
            "remove that one first: handle.remove()"
        )
    raise RegistrationError(
        f"operator {op.name} already has a Meta implementation, {taken.kernel.debug}, registered at {taken.site}\n"
        "it serves as the fake. Remove it first: handle.remove()"
    )


def add_fake(op: OpOverload, fake: Callable[..., Any], site: str) -> KernelHandle:
    """Register a fake, which becomes the one in use.

    Raises RegistrationError if the fake cannot take the operator's arguments.
    """
    return registrations.add_kernel(op.name, META, FakeKernel(fake, op, site), site)
