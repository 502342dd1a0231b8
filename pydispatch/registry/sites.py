"""The site of the user's call, for registrations, warnings and errors; that of a transform."""

from __future__ import annotations

import os
import sys
from itertools import count
from types import FrameType

from pydispatch import _core
from pydispatch._core import Interpreter

PACKAGE = __name__.partition(".")[0]
_users: tuple[str, ...] = ()    # modules of the package that count as users of it; names end in a dot
_ours: dict[str, bool] = {}     # by the name of a module that was asked for: is it the package's?
MOST_NAMES = 1 << 12
MAIN_MODULES = frozenset({"__main__", "__mp_main__"})
_process = os.urandom(16).hex()
_numbers = count()


class RegistrationSite(str):
    """The site of a registration, which tells other processes how to make it too.

    The import of `module` makes the registration; it is "" where no import does. `process` and `number` tell it from
    all others, and the higher number of a process is the later one.
    """

    __slots__ = ("module", "number", "process")

    def __new__(cls, site: str, module: str, process: str, number: int) -> RegistrationSite:
        """One that was made in some process."""
        made = super().__new__(cls, site)
        made.module, made.process, made.number = module, process, number
        return made

    module: str
    process: str
    number: int

    def __reduce__(self) -> tuple[type[RegistrationSite], tuple[str, str, str, int]]:
        return RegistrationSite, (str(self), self.module, self.process, self.number)


def this_process() -> str:
    """A name for the process that no other has."""
    return f"{_process}-{os.getpid()}"      # of which a fork has the same first part


def registration_site() -> RegistrationSite:
    """The site of the user's call that registers something."""
    return RegistrationSite(caller_site(), _module_in_execution(), this_process(), next(_numbers))


def _module_in_execution() -> str:
    """The innermost module whose body runs, if it is one that other processes can import; else ""."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None:
        return ""
    name = frame.f_globals.get("__name__")
    is_importable = frame.f_globals.get("__spec__") is not None and name not in MAIN_MODULES and name in sys.modules
    return str(name) if is_importable else ""


def count_as_user(module: str) -> None:
    """Treat the code of this module and its submodules as a user's from now on."""
    global _users
    _users += (f"{module}.",)
    _ours.clear()


def caller_site() -> str:
    """The site of the user's call: file:line of the innermost frame outside this package."""
    frame = sys._getframe(frames_to_caller() - 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def caller_place() -> tuple[str, str]:
    """File and function of the user's call: the same whenever that code runs, also after an edit.

    Cells of a notebook, and what is typed at a prompt, are one file.
    """
    frame = sys._getframe(frames_to_caller() - 1)
    scope = frame.f_globals
    is_session = scope.get("__name__") == "__main__" and "__file__" not in scope
    return "session" if is_session else frame.f_code.co_filename, frame.f_code.co_qualname


def is_ours(frame: FrameType) -> bool:
    """Does a frame run code of the package, other than modules that count as users?"""
    module = frame.f_globals.get("__name__", "")
    try:
        return _ours[module]
    except KeyError:
        pass
    if len(_ours) >= MOST_NAMES:
        _ours.clear()
    found = _ours[module] = module.partition(".")[0] == PACKAGE and not f"{module}.".startswith(_users)
    return found


def frames_to_caller() -> int:
    """The `stacklevel` that makes a warning point at the user's call."""
    depth = 1
    try:
        while is_ours(sys._getframe(depth)):     # f_back does not raise MemoryError when it fails
            depth += 1
    except ValueError:      # all frames are ours
        depth -= 1
    return depth


def describe_interpreter(interpreter: Interpreter) -> str:
    """The name of a transform and the site where it was called."""
    where = ""
    if interpreter.site is not None:
        code, offset = interpreter.site
        line = next((line for start, end, line in code.co_lines() if start <= offset < end), code.co_firstlineno)
        where = f", called at {code.co_filename}:{line}"
    return f"{interpreter.name}{where}{'' if interpreter.alive else ', which no longer runs'}"


_core.connect(describe_interpreter=describe_interpreter)
