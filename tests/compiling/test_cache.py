"""Plans from files: other processes load them, anything that could change a plan misses, and no file does harm."""

from __future__ import annotations

import functools
import hashlib
import json
import operator
import os
import pickle
import random
import re
import subprocess
import sys
import time
import types
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pydispatch
import pydispatch.numpy as pnp
from pydispatch import compile, func, library, ops
from pydispatch._registry import registrations
from pydispatch.compiling import cache, fingerprints
from pydispatch.exceptions import DispatchTypeError, OverrideWarning, PerformanceWarning
from tests.compiling.cached_programs import PROGRAMS
from tests.compiling.same import check_same

X = np.array([1.0, 2.0, 3.0])
ROOT = Path(__file__).parents[2]


def start(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "tests.compiling.cached_programs", directory], cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)})


def lines(process: subprocess.Popen[str]) -> list[list[str]]:
    found = [line.split("\t") for line in process.communicate()[0].splitlines()]
    assert process.returncode == 0
    return found


def how(compiled: Any, *args: Any) -> str:
    """Return what became of the last program: "loaded", "stored" or "not cached: ..."."""
    compiled(*args)
    return compiled._reasons[-1].rpartition(", ")[2] if "not cached" not in compiled._reasons[-1] else (
        compiled._reasons[-1][compiled._reasons[-1].index("not cached"):])


def is_loaded(f: Any, directory: Path, *args: Any, **options: Any) -> bool:
    """Return whether a plan was found, and check its results."""
    compiled = compile(f, cache=directory, **options)
    check_same(compiled(*args), f(*args))
    check_same(compiled(*args), f(*args))
    found = compiled._reasons[-1]
    assert "loaded from" in found or "stored in" in found, found
    return "loaded from" in found


@pytest.fixture(autouse=True)
def registrations_of_other_tests(monkeypatch):
    """Ignore operators of the library that tests before these have changed for good."""
    monkeypatch.setattr(registrations, "outside", set())


# --- other processes --------------------------------------------------------------------------------------------------


def test_processes_load_what_others_have_stored(tmp_path):
    first = [start(tmp_path), start(tmp_path)]      # at once
    one, other = map(lines, first)
    again = lines(start(tmp_path))
    assert [line[:2] for line in one] == [line[:2] for line in other] == [line[:2] for line in again]
    assert [line[0] for line in again] == list(PROGRAMS)
    assert [line for line in again if "loaded from" not in line[2]] == []
    assert all(re.fullmatch(r"[0-9a-f]{40}\.plan", name) for name in os.listdir(tmp_path))


@pytest.mark.parametrize("name", PROGRAMS)
def test_loaded_plans_have_the_bits_of_others(name, tmp_path):
    function, arguments, options = PROGRAMS[name]

    def copies():
        return [arg.copy() if "donate" in options else arg for arg in arguments]

    expected = compile(function, **options)(*copies())
    for found in ("stored", "loaded"):
        compiled = compile(function, cache=tmp_path, **options)
        check_same(compiled(*copies()), expected)
        check_same(compiled(*copies()), expected)
        assert how(compiled, *copies()).startswith(found)


# --- what a plan is for -----------------------------------------------------------------------------------------------

SOURCE = """
import math
import numpy as np
import pydispatch.numpy as pnp
import settings
FACTOR = 2.0
TABLE = {"a": np.array([1.0, 2.0, 3.0])}

class Layer:
    scale = 1.5
    def __init__(self):
        self.w = [1.0, {"b": 2.0}]
    def __call__(self, x):
        return x * self.scale * self.w[0] + self.w[1]["b"]
    @property
    def half(self):
        return self.scale / 2.0
    @staticmethod
    def twice(x):
        return x + x

LAYER = Layer()

def helper(x, power=2):
    return x ** power

def make(offset):
    def inner(x, *, bias=1.0):
        y = helper(x) * FACTOR + offset + bias
        y = pnp.sin(y) + TABLE["a"] * settings.RATE + settings.shifted(x)
        return Layer.twice(LAYER(y)) * LAYER.half + math.sqrt(4.0)
    return inner

f = make(0.25)
"""
SETTINGS = "RATE = 0.5\ndef shifted(x):\n    return x - 1.0\n"

CHANGES = {
    "a constant": ("math.sqrt(4.0)", "math.sqrt(9.0)"),
    "a global": ("FACTOR = 2.0", "FACTOR = 2.5"),
    "the type of a global": ("FACTOR = 2.0", "FACTOR = 2"),
    "the sign of zero": ("offset + bias", "offset * -0.0 + bias"),
    "an array": ("[1.0, 2.0, 3.0]", "[1.0, 2.0, 4.0]"),
    "a dtype": ("[1.0, 2.0, 3.0]", "[1.0, 2.0, 3.0], np.float32"),
    "a key": ('"a"', '"aa"'),
    "a closure": ("make(0.25)", "make(0.5)"),
    "a default": ("power=2", "power=3"),
    "a default by keyword": ("bias=1.0", "bias=2.0"),
    "a helper": ("x ** power", "x + power"),
    "an operator": ("pnp.sin", "pnp.cos"),
    "an attribute": ('"b": 2.0', '"b": 3.0'),
    "an attribute of a class": ("scale = 1.5", "scale = 1.0"),
    "a method": ("+ self.w[1]", "- self.w[1]"),
    "a property": ("/ 2.0", "/ 3.0"),
    "a static method": ("return x + x", "return x - x"),
    "a value of a module": ("RATE = 0.5", "RATE = 0.75"),
    "a function of a module": ("x - 1.0", "x - 2.0"),
    "a line": ("import math", "# messages name lines\nimport math"),
}


def made_of(monkeypatch: pytest.MonkeyPatch, old: str = "", new: str = "") -> Any:
    """Return `f` of the source, with these words replaced."""
    assert old in SOURCE + SETTINGS
    settings, scope = types.ModuleType("settings"), types.ModuleType("user_of_settings")
    monkeypatch.setitem(sys.modules, "settings", settings)
    monkeypatch.setitem(sys.modules, "user_of_settings", scope)
    for module, source in ((settings, SETTINGS), (scope, SOURCE)):
        exec(builtin_compile(source.replace(old, new), f"{module.__name__}.py"), vars(module))
    return scope.f


def builtin_compile(source: str, name: str) -> Any:
    return __builtins__["compile"](source, name, "exec")    # type: ignore[index]


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_is_not_for_another_function(change, tmp_path, monkeypatch):
    assert not is_loaded(made_of(monkeypatch), tmp_path, X)
    assert is_loaded(made_of(monkeypatch), tmp_path, X)
    assert not is_loaded(made_of(monkeypatch, *CHANGES[change]), tmp_path, X)
    assert is_loaded(made_of(monkeypatch), tmp_path, X)


def test_what_changes_later_counts(tmp_path, monkeypatch):
    f = made_of(monkeypatch)
    assert not is_loaded(f, tmp_path, X)
    f.__globals__["TABLE"]["a"][0] = 7.0
    assert not is_loaded(f, tmp_path, X)
    f.__globals__["LAYER"].w[0] = 3.0
    assert not is_loaded(f, tmp_path, X)
    f.__globals__["pnp"] = np
    assert not is_loaded(f, tmp_path, X)
    sys.modules["settings"].shifted = lambda x: x * 3.0      # type: ignore[attr-defined]
    assert not is_loaded(f, tmp_path, X)
    assert is_loaded(f, tmp_path, X)


def twice(x: Any, n: Any = 1) -> Any:
    return x * 2.0 * n + x


GRID = np.arange(6.0).reshape(2, 3)
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((X,), {}), ((X[:2],), {}), ((X.astype(np.float32),), {}), ((X.astype(int),), {}), ((X, 2), {}), ((X, 2.0), {}),
    ((X, True), {}), ((X, np.float64(2.0)), {}), ((X, np.array(2.0)), {}), ((X, X), {}), ((GRID,), {}),
    ((GRID.T.copy(),), {}), ((GRID.T,), {}), ((X, 3), {"static_argnums": 1}), ((X,), {"threads": 2}),
    ((X[:, None],), {}), ((X + 0j,), {}),
]


def test_a_plan_is_not_for_other_arguments_or_options(tmp_path):
    for args, options in CALLS:
        assert not is_loaded(twice, tmp_path, *args, **options), (args, options)
    for args, options in CALLS:
        assert is_loaded(twice, tmp_path, *args, **options), (args, options)
    donating = compile(twice, cache=tmp_path, donate=0)
    assert how(donating, X.copy()).startswith("stored")


@pytest.mark.parametrize("name", ["__version__", "version of NumPy", "version of Python", "processor"])
def test_a_plan_is_not_for_other_versions(name, tmp_path, monkeypatch):
    assert not is_loaded(twice, tmp_path, X)
    fingerprints.versions.cache_clear()
    if name == "__version__":
        monkeypatch.setattr(pydispatch, name, "0.0.0")
    elif name == "version of NumPy":
        monkeypatch.setattr(np, "__version__", "9.9.9")
    elif name == "version of Python":
        monkeypatch.setattr(sys, "version", "9")
    else:
        monkeypatch.setattr(fingerprints.platform, "machine", lambda: "other")
    try:
        assert not is_loaded(twice, tmp_path, X)
    finally:
        fingerprints.versions.cache_clear()


def test_numbers_that_vary_are_arguments_in_later_processes(tmp_path):
    def scaled(x, a):
        return x * (1.0 - a)

    for expected in ("stored", "loaded"):
        compiled = compile(scaled, cache=tmp_path)
        for a in (0.5, 0.25, 0.125):
            check_same(compiled(X, a), scaled(X, a))
        assert [expected in reason for reason in compiled._reasons] == [True, True]


def test_numbers_that_decide_are_part_of_the_key(tmp_path):
    def chosen(x, n):
        return x * 2.0 if n > 1.5 else x - 1.0

    for _ in range(2):
        compiled = compile(chosen, cache=tmp_path)
        for n in (1.0, 2.0, 3.0, 1.0):
            check_same(compiled(X, n), chosen(X, n))
    assert "loaded" in compiled._reasons[1]


# --- what is not cached -----------------------------------------------------------------------------------------------

GENERATOR = np.random.default_rng(0)
COUNT = [0]
CACHED = functools.lru_cache(lambda: 2.0)
LOCAL = random.Random(0)


def counting(x):
    COUNT[0] += 1
    return x * COUNT[0]


def importing(x):
    import math
    return x * math.pi


def by_special_name(x):
    return x * counting.__globals__["X"]


def reading(x):
    with open(__file__) as file:
        return x * len(file.readline())


def depending_on_layout(x):
    y = pnp.transpose(x * 2.0)
    z = y.reshape(-1)
    z[0] = 7.0
    return y


NOT_CACHED = {
    "getattr": (lambda x: getattr(pnp, "si" + "n")(x), "getattr"),
    "attrgetter": (lambda x: operator.attrgetter("sin")(pnp)(x), "attrgetter"),
    "globals": (lambda x: x * globals()["X"], "globals"),
    "special names": (by_special_name, "__globals__"),
    "import": (importing, "imports a module"),
    "open": (reading, "open"),
    "time": (lambda x: x * (time.time() > 0.0), "time"),
    "environment": (lambda x: x * len(os.environ), "environ"),
    "file of an array": (lambda x: x * np.load(__file__), "load"),
    "file by another name": (lambda x: x * pnp.fromfile(__file__), "fromfile"),
    "function in C": (lambda x: x * zlib.crc32(b""), "crc32"),
    "generator": (lambda x: x + ops.np.random_normal(GENERATOR, size=3), "Generator"),
    "memory of a function": (lambda x: x * CACHED(), "lru_cache"),
    "object of C": (lambda x: x * LOCAL.random(), "LOCAL|Random"),
    "counter": (counting, "changes what it reaches"),
    "layout": (depending_on_layout, "how arrays lie in memory"),
}


@pytest.mark.parametrize("name", NOT_CACHED)
def test_what_no_key_covers_is_not_cached(name, tmp_path):
    f, reason = NOT_CACHED[name]
    arg = GRID.T if name == "layout" else X
    compiled = compile(f, cache=tmp_path)
    try:
        compiled(arg)
    except Exception:       # not all of these can be compiled
        assert not list(tmp_path.iterdir())
        return
    assert re.search(f"not cached: .*({reason})", compiled._reasons[0]), compiled._reasons
    assert "not cached" in compiled.explain(arg)
    assert not list(tmp_path.iterdir())


def test_operators_of_users_are_not_cached(tmp_path):
    with library.Library("cached_ops", "DEF") as lib:
        lib.define("double(Tensor x) -> Tensor")
        lib.impl("double", lambda x: x * 2.0, "CompositeImplicitAutograd")
        double = ops.cached_ops.double
        assert "not cached" in how(compile(lambda x: ops.cached_ops.double(x), cache=tmp_path), X)
        assert "not cached" in how(compile(lambda x: double(x), cache=tmp_path), X)


def test_nothing_is_cached_while_kernels_replace_those_of_the_library(tmp_path):
    assert not is_loaded(twice, tmp_path, X)
    with library.Library("np", "IMPL") as lib:
        with pytest.warns(OverrideWarning):
            lib.impl("multiply", lambda x, y: np.add(x, y), "CPU")
        compiled = compile(twice, cache=tmp_path)
        assert how(compiled, X).startswith("not cached: np::multiply")
        np.testing.assert_array_equal(compiled(X), (X + 2.0) + 1 + X)
    assert is_loaded(twice, tmp_path, X)


@pytest.mark.parametrize("backend", ["python"])
def test_other_backends_are_not_cached(backend, tmp_path):
    assert "not cached: plans of the backend python" in how(compile(twice, cache=tmp_path, backend=backend), X)


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    compiled = compile(twice, cache=tmp_path / "file" / "plans")
    check_same(compiled(X), twice(X))
    assert "cannot be" in compiled.explain(X)
    with pytest.raises(DispatchTypeError, match="cache is an int"):
        compile(twice, cache=3)


# --- files ------------------------------------------------------------------------------------------------------------


def signed(rest: bytes) -> bytes:
    return cache.FORMAT + hashlib.blake2b(rest, digest_size=cache.DIGEST).digest() + rest


def parts_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    rest = data[len(cache.FORMAT) + cache.DIGEST:]
    length = int.from_bytes(rest[:8], "little")
    return json.loads(rest[8:8 + length]), rest[8 + length + -length % cache.ALIGNMENT:]


def joined(header: Any, blob: bytes) -> bytes:
    text = json.dumps(header).encode()
    return signed(len(text).to_bytes(8, "little") + text + bytes(-len(text) % cache.ALIGNMENT) + blob)


def stored(f: Any, directory: Path, *args: Any) -> Path:
    compile(f, cache=directory)(*args)
    file, = directory.glob("*.plan")
    return file


DAMAGE = {
    "empty": lambda data: b"",
    "text": lambda data: b"plan",
    "half": lambda data: data[:len(data) // 2],
    "without its end": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "another byte": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "signed nothing": lambda data: signed(b""),
    "signed text": lambda data: signed(bytes(8) + b"{}"),
    "an endless text": lambda data: signed(b"\xff" * 8 + b"{}"),
    "deep text": lambda data: signed((10**5).to_bytes(8, "little") + b"[" * 10**5),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_named_and_written_again(name, tmp_path):
    file = stored(twice, tmp_path, X)
    good = file.read_bytes()
    file.write_bytes(DAMAGE[name](good))
    with pytest.warns(PerformanceWarning, match=re.escape(str(file))):
        check_same(compile(twice, cache=tmp_path)(X), twice(X))
    assert file.read_bytes() == good
    assert is_loaded(twice, tmp_path, X)


def test_a_file_by_the_name_of_another(tmp_path):
    file = stored(twice, tmp_path / "a", X)
    other = stored(lambda x: x - 1.0, tmp_path / "b", X)
    file.write_bytes(other.read_bytes())
    with pytest.warns(PerformanceWarning, match="belongs to another name"):
        check_same(compile(twice, cache=tmp_path / "a")(X), twice(X))


def other_values(value: Any, draw: random.Random) -> Any:
    """Return a description with some other numbers and words."""
    if isinstance(value, dict):
        return {key: item if key in ("key", "scipy") else other_values(item, draw) for key, item in value.items()}
    if isinstance(value, list):
        found = [other_values(item, draw) for item in value]
        if found and draw.random() < 0.01:
            found.pop(draw.randrange(len(found)))
        return found
    if isinstance(value, int) and draw.random() < 0.03:
        return draw.choice([0, 1, -1, 2, 7, value + 8, 2**31, 2**47, 2**53 + 1, 2**60, 2**63 - 1, -(2**63), 2**70, 0.5])
    if isinstance(value, str) and draw.random() < 0.02:
        return draw.choice(["O", "loop", "repeat", "native", "os", "ufunc", "frompyfunc", "U8", "tuple", "call", ""])
    return value


def test_no_file_does_harm(tmp_path):
    """Change numbers in a file, with the right digest: steps are refused or stay in their memory."""
    draw = random.Random(0)
    names = ["gradient", "branches", "scan", "calls", "gather", "large", "structure"]
    for name in names:
        function, arguments, options = PROGRAMS[name]
        file = stored(function, tmp_path / name, *arguments)
        good = file.read_bytes()
        header, blob = parts_of(good)
        at = header["plan"]["steps"][2]
        for k in range(40):
            steps = np.frombuffer(blob, np.int64, offset=at).copy()
            if k % 2:
                steps[draw.randrange(len(steps))] = draw.choice([-1, 0, 1, 5, 2**40, 2**62, -2**62])
            changed = other_values(header, draw) if k % 2 == 0 else header
            file.write_bytes(joined(changed, blob[:at] + steps.tobytes()))
            compiled = compile(function, cache=tmp_path / name, **options)
            with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
                patch.setattr(cache.warnings, "warn", lambda *args, **kwargs: None)
                try:
                    compiled(*arguments)
                except Exception:
                    continue


NO_TARGETS = ["system", "os"], ["system", "pydispatch.func..os"], ["cached::none"], ["scan", "subprocess"], ["np::none"]
NO_LOOPS = (["ufunc", "os", "system", [12, 12]], ["ufunc", "numpy", "load", [12, 12]], ["native", 0, 0],
            ["ufunc", "numpy", "frompyfunc", [12, 12]], ["ufunc", "numpy", "sin", [17, 17]])


@pytest.mark.parametrize("part", [*NO_TARGETS, *NO_LOOPS])
def test_no_file_names_a_function(part, tmp_path):
    def f(x):
        return pnp.linalg.pinv(pnp.sin(x) * pnp.eye(3))

    file = stored(f, tmp_path, X)
    header, blob = parts_of(file.read_bytes())
    if part in NO_LOOPS:
        header["plan"]["loops"] = [part]
    else:
        header["plan"]["calls"][0][0] = part
    file.write_bytes(joined(header, blob))
    with pytest.warns(PerformanceWarning, match="is damaged"):
        check_same(compile(f, cache=tmp_path)(X), f(X))


# --- lists that follow the rest of the package ------------------------------------------------------------------------


NOT_OURS = frozenset((
    "__init__", "__main__", "_registry", "_sites", "_stubs", "backends", "cli", "compat", "core", "debug",
    "deprecation", "keys", "library", "memory", "missing_core", "packs", "plans", "plugins", "schema", "subclasses",
    "testing", "tracing"))
"""The modules that traced functions do not call."""


def test_each_module_is_ours_or_not():
    modules = {path.stem for path in Path(pydispatch.__file__).parent.iterdir()
               if path.suffix == ".py" or (path.is_dir() and path.name != "__pycache__")}
    ours = {name.removeprefix("pydispatch.") for name in fingerprints.OURS}
    assert ours | NOT_OURS == modules | {"_core"}
    assert not ours & NOT_OURS


def test_files_can_name_each_kind_of_loop_except_addresses():
    plans = Path(pydispatch.__file__).parent / "plans"
    text = (plans / "plans.pyx").read_text()
    text = text[text.index("cdef int find_plan_loop("):text.index("cdef int find_row_loop(")]
    lists = (plans / "plan_checks.pyx").read_text()
    of_rows = re.findall(r"^cdef (?:dict CORE_OF_ROWS|tuple LAPACK_LOOPS) = (?s:.*?)[})]$", lists, re.MULTILINE)
    kinds = {kind for condition in re.findall(r"if kind (?:==|in) (.*)", text) + of_rows
             for kind in re.findall(r'"(\w+)"', condition)}
    assert len(of_rows) == 2
    assert kinds - {"native"} == cache.LOOPS


def test_files_can_name_each_universal_function_whose_elements_are_arrays():
    for module in cache.UFUNCS.values():
        import_module(module)
    known = {id(value) for module in sys.modules if module in cache.UFUNCS
             for value in vars(sys.modules[module]).values()}
    assert [function for function in pydispatch._core.CORE_LOOPS if id(function) not in known] == []


# --- a loaded plan as any other ---------------------------------------------------------------------------------------


@pytest.fixture
def loaded(tmp_path):
    def f(x):
        return pnp.sum(pnp.sin(x) * x)

    compile(f, cache=tmp_path)(X)
    compiled = compile(f, cache=tmp_path)
    assert how(compiled, X).startswith("loaded")
    return compiled


def test_transforms_of_a_loaded_plan(loaded):
    fresh = compile(loaded.__wrapped__)
    check_same(func.grad(loaded)(X), func.grad(fresh)(X))
    check_same(func.vmap(loaded)(np.stack([X, X + 1])), func.vmap(fresh)(np.stack([X, X + 1])))
    check_same(func.jvp(loaded, (X,), (X,)), func.jvp(fresh, (X,), (X,)))
    check_same(func.hessian(loaded)(X), func.hessian(fresh)(X))


def test_reports_on_a_loaded_plan(loaded):
    fresh = compile(loaded.__wrapped__)
    assert loaded.plan(X) == fresh.plan(X)
    assert str(loaded.graph(X)) == str(fresh.graph(X))
    assert "loaded from" in loaded.explain(X)
    assert loaded.explain(X).splitlines()[1:3] == fresh.explain(X).splitlines()[1:3]
    assert loaded.cache_info().misses == 1


def at_top(x):
    return pnp.cos(x) * 2.0


def test_a_compiled_function_takes_its_cache_along(tmp_path):
    compile(at_top, cache=tmp_path)(X)
    compiled = compile(at_top, cache=tmp_path)
    compiled(X)
    copy = pickle.loads(pickle.dumps(compiled))
    check_same(copy(X), at_top(X))
    copy.cache_clear()
    assert how(copy, X).startswith("loaded")


def test_a_function_that_an_operator_calls_otherwise(tmp_path):
    """Trace the graph of a function that an operator calls with other values than arrays, which its plan refuses."""
    function, arguments, _ = PROGRAMS["path"]
    compile(function, cache=tmp_path)(*arguments)
    compiled = compile(function, cache=tmp_path)
    compiled(*arguments)
    program, = compiled._programs.values()
    assert isinstance(program, cache.LoadedProgram)
    called, *_ = [arg for call, *_ in program.run.plan.described[6] for arg in call.args
                  if isinstance(arg, cache.FunctionOfOperator)]
    assert not called._plan.accepts(np.ones(2), np.float64(0.5))
    np.testing.assert_array_equal(np.asarray(called(np.array([1.0, 2.0]), np.float64(0.5))), [[2.0, -0.5]])


def test_the_memory_of_arguments_is_not_kept(tmp_path):
    for _ in range(2):
        x = np.ones(1000)
        before = sys.getrefcount(x)
        compiled = compile(twice, cache=tmp_path)
        compiled(x)
        assert sys.getrefcount(x) == before
