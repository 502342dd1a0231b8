"""Sites: the places in users' code that registrations, warnings, errors and transforms come from."""

# tests: tests/registry/test_running_again.py
from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Hashable
from itertools import count
from types import CodeType, FrameType
from typing import Any

from pydispatch import _core
from pydispatch._core import Interpreter
from pydispatch.exceptions import OverrideWarning

PACKAGE = __name__.partition(".")[0]
MOST_NAMES = 1 << 12
MAIN_MODULES = frozenset({"__main__", "__mp_main__"})
_process = os.urandom(16).hex()
_numbers = count()
SESSION = "session"
NO_CELL = f"{SESSION} "     # the file of a cell in a session that does not identify its cells
MOST_FRAMES = 50


class RegistrationSite(str):
    """The site of a registration, from which other processes can make the registration, too.

    The import of `module` makes the registration. `module` is "" if no import does. `process` and `number` identify the
    registration. Later registrations of a process have higher numbers. `run` is the code that made the registration in
    this process.
    """

    __slots__ = ("module", "number", "process", "run")

    def __new__(cls, site: str, module: str, process: str, number: int) -> RegistrationSite:
        """Make a site from its parts. The process may be another one."""
        made = super().__new__(cls, site)
        made.module, made.process, made.number, made.run = module, process, number, None
        return made

    module: str
    process: str
    number: int
    run: CodeRun | None

    def __reduce__(self) -> tuple[type[RegistrationSite], tuple[str, str, str, int]]:
        return RegistrationSite, (str(self), self.module, self.process, self.number)


def this_process() -> str:
    """Return a name that is unique to this process."""
    return f"{_process}-{os.getpid()}"      # a fork shares the first part


def registration_site() -> RegistrationSite:
    """Return the site of the user's call that registers something."""
    site = RegistrationSite(caller_site(), _module_in_execution(), this_process(), next(_numbers))
    site.run = CodeRun()
    return site


def _module_in_execution() -> str:
    """Return the innermost module whose body runs, or an empty string if other processes cannot import it."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None:
        return ""
    name = frame.f_globals.get("__name__")
    is_importable = frame.f_globals.get("__spec__") is not None and name not in MAIN_MODULES and name in sys.modules
    return str(name) if is_importable else ""


def caller_site(n_ours: int = 0) -> str:
    """Return the site of the user's call: file:line of the innermost frame outside this package.

    The first `n_ours` frames, from the caller's on, are known to be the package's and are skipped.
    """
    frame = sys._getframe(frames_to_caller(2 + n_ours) - 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class CallerSites:
    """Finds the `caller_site` of many calls. Calls by the same instruction share one text."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[CodeType, str]] = {}      # which keeps the code, and so its id

    def find(self, n_ours: int) -> str:
        """Return the site, like `caller_site`."""
        frame = sys._getframe(frames_to_caller(2 + n_ours) - 1)
        code = frame.f_code
        key = id(code), frame.f_lasti
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = code, f"{code.co_filename}:{frame.f_lineno}"
        return known[1]


def calling_code() -> tuple[str, str]:
    """Return the file and function of the user's call, which stay the same when that code runs again, even if edited.

    All cells of a notebook, and all lines typed at a prompt, count as one file.
    """
    frame = sys._getframe(frames_to_caller() - 1)
    return SESSION if _is_session(frame) else frame.f_code.co_filename, frame.f_code.co_qualname


def _is_session(frame: FrameType) -> bool:
    """Return whether a frame runs a cell of a notebook or a line typed at a prompt."""
    return frame.f_globals.get("__name__") == "__main__" and "__file__" not in frame.f_globals


def _cell() -> str:
    """Return the id of the cell that runs, or an empty string. Jupyter provides ids. nbclient and terminals do not."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    tell: Any = getattr(shell, "get_parent", dict)      # in Jupyter's shells: the request to run this cell
    message = tell()
    metadata = message.get("metadata") if isinstance(message, dict) else None
    return str(metadata.get("cellId") or "") if isinstance(metadata, dict) else ""


class CodeRun:
    """One run of the code that registers something: the user's call, its callers, and the module or cell around them.

    The same code runs again when a cell is run twice or a module is reloaded. Files and functions are then the same,
    but Python has compiled some of the code again. Two calls in one run have the same code objects.
    """

    __slots__ = ("codes", "names", "piece")

    def __init__(self) -> None:
        names: list[tuple[str, str]] = []
        codes: list[CodeType] = []
        frame: FrameType | None = sys._getframe(frames_to_caller() - 1)
        self.piece: tuple[str, int] | None = None       # file and line, for code that is not a whole file
        while frame is not None and len(codes) < MOST_FRAMES:
            code, scope = frame.f_code, frame.f_globals
            file = f"{SESSION} {_cell()}" if _is_session(frame) else code.co_filename
            names.append((file, code.co_qualname))
            codes.append(code)
            if code.co_name == "<module>":
                if scope.get("__file__") != code.co_filename:
                    self.piece = (code.co_filename, frame.f_lineno)
                break
            frame = frame.f_back
        self.names = tuple(names)
        self.codes = tuple(codes)

    def is_again(self, former: CodeRun) -> bool:
        """Return whether this is another run of the same code.

        Two statements of one cell, or of one page of examples, are different code.
        """
        if self.names != former.names or all(map(operator.is_, self.codes, former.codes)):
            return False
        if self.piece is None or former.piece is None:
            return True
        return self.piece[0] != former.piece[0] or self.piece[1] == former.piece[1]

    def is_beside(self, other: CodeRun) -> bool:
        """Return whether the other run is of the same module or session."""
        ours, theirs = self.names[-1][0], other.names[-1][0]
        return ours == theirs or (ours.startswith(SESSION) and theirs.startswith(SESSION))


def is_again(site: str, former: str, *, has_its_name: bool = True) -> bool:
    """Return whether the code of a former registration has run again and made this one.

    All lines at a prompt count as one place, and so do the cells of a notebook that does not identify them. There, a
    function with another name (`has_its_name` is False) is a different registration.
    """
    run, before = getattr(site, "run", None), getattr(former, "run", None)
    return (run is not None and before is not None and run.is_again(before)
            and (has_its_name or run.names[-1][0] != NO_CELL))


def warn_again(what: str, site: str, former: str) -> None:
    """Warn that a registration replaces a former one by the same code."""
    warnings.warn(f"{what}: registered again at {site}, replacing the registration at {former}", OverrideWarning,
                  stacklevel=frames_to_caller())


_sites: dict[tuple[str, Hashable], RegistrationSite] = {}


def remember(kind: str, name: Hashable) -> None:
    """Note the code that registers something without a handle. Call this just before the registration itself."""
    _sites[kind, name] = registration_site()


def replaces_former(kind: str, name: Hashable) -> bool:
    """Return whether the code that registered something registers it again, and warn if so."""
    former = _sites.get((kind, name))
    site = registration_site()
    if former is None or not is_again(site, former):
        return False
    shown = name.__name__ if isinstance(name, type) else name
    warn_again(f"{kind} {shown}", site, former)
    return True


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame runs code of the package."""
    return _ours[frame.f_globals.get("__name__", "")]


class _Ours(dict[str, bool]):
    """A cache: whether the module of a name is the package's."""

    def __missing__(self, module: str) -> bool:
        if len(self) >= MOST_NAMES:
            self.clear()
        found = self[module] = module.partition(".")[0] == PACKAGE
        return found


_ours = _Ours()


def frames_to_caller(depth: int = 1) -> int:
    """Return the `stacklevel` for warnings at the user's call. Frames below `depth` are known to be the package's."""
    frame_at, known = sys._getframe, _ours      # f_back can fail without raising MemoryError
    try:
        while known[frame_at(depth).f_globals["__name__"]]:     # quick: a trace needs its caller at each operator
            depth += 1
    except KeyError:        # code without a module, which is not ours
        pass
    except ValueError:      # all frames are ours
        depth -= 1
    return depth


def describe_interpreter(interpreter: Interpreter) -> str:
    """Describe a transform by its name and the site where it was called."""
    where = ""
    if interpreter.site is not None:
        code, offset = interpreter.site
        line = next((line for start, end, line in code.co_lines() if start <= offset < end), code.co_firstlineno)
        where = f", called at {code.co_filename}:{line}"
    return f"{interpreter.name}{where}{'' if interpreter.alive else ', which no longer runs'}"


_core.connect(describe_interpreter=describe_interpreter)
