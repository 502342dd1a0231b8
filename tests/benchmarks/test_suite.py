"""The rows and their bounds, chosen by a pattern. The report is JSON that tells all."""

import datetime
import importlib
import json

from benchmarks import cases as bench
from benchmarks.cases import kinds
from benchmarks.cases.compilation import CALL, FIRST, PER_OPERATOR, THOUSANDTH
from benchmarks.cases.custom import APIS, DERIVED, FUNCTION, FUNCTION_ROWS
from benchmarks.cases.differentiators import COMPILERS, THEIRS
from benchmarks.cases.filling import MODULES as FILLING_MODULES
from benchmarks.cases.interpreters import INTERPRETER, LINE, LINE_BOUND, OPERATORS
from benchmarks.cases.kinds import Effort, Row
from benchmarks.cases.large import MODULES
from benchmarks.cases.loops import GRADIENT, STEP
from benchmarks.cases.peers import NAMESPACE, PEERS
from benchmarks.cases.python_dispatch import ADDED, COMPILED, PEER, TRACED
from benchmarks.cases.scans import MODULES as SCAN_MODULES
from benchmarks.cases.small import small_cases
from benchmarks.cases.transforms import BY_HAND, OVER_TAPE, TRANSFORMS
from benchmarks.cases.transforms import THEIRS as LIBRARIES
from pydispatch._registry import registrations

OF_DISPATCHES = {
    "Operators over a C function that returns its second argument": {
        "two raw arrays": 2.5, "two Tensors": 3.5, "both by keyword": 2, "one by keyword": 2,
        "one of 4 by position": 1.5, "one of 4 by keyword": 1.5, "one of 4 keyword-only": 1.5,
    },
    "A Python kernel on masked arrays, over the same on NumPy's": {"raw arrays": 1.3, "Tensors": 1.3},
    "np.add on 4-element arrays": {"raw arrays": 1.15, "Tensors": 1.2, "Tensors, as X + Y": 1.2},
    "Small calls, more than NumPy": {case.name: 0.3 for case in small_cases()},
    "What other dispatchers add to a Python kernel, over what we add": {
        "ovld": 2.5, "__array_function__": 5, "functools.singledispatch": 5, "uarray": 5, "plum": 5,
        "multipledispatch": 5, "torch.library": 20,
    },
}
PROGRAMS = {        # bounds of the tape, of the transform, compiled
    "a polynomial of a 4-vector": (0.75, 0.9, 0.15), "a perceptron, 8x4 inputs, 16 hidden": (0.6, 0.7, 0.2),
    "100 steps of Euler's method, 4-vector": (0.5, 0.55, 0.05), "a logistic regression, 20,000x50": (1.05, 1.05, 0.95),
}
NOT_COMPILED = "100 steps of Euler's method, 4-vector", "torch.compile"
OF_GRADIENTS = {
    f"Gradient of {program}":
        dict(zip(("Tensor.backward", "func.grad", "compile"), bounds, strict=True))
        | {name: None for name in THEIRS if (program, name) != NOT_COMPILED}
    for program, bounds in PROGRAMS.items()
}
OF_COMPILATION = {
    CALL: {"arguments: 1": 0.13, "arguments: 2": 0.16, "arguments: 5": 0.25},
    PER_OPERATOR: {f"{program}{what}": 80 for program in PROGRAMS for what in ("", ", gradient")},
} | {
    group: {
        f"{program}, {library}": longest if (program[:12], library) == ("a perceptron", "compile") else None
        for program in PROGRAMS for library in COMPILERS if (program, library) != NOT_COMPILED
    } for group, longest in ((FIRST, 10), (THOUSANDTH, None))
}
OF_THE_REST = {
    "Custom operators, over operators of the library; the kernel does nothing": {"raw arrays": 1.5, "Tensors": 1.5},
    FUNCTION: dict.fromkeys([row[0] for row in FUNCTION_ROWS], 1.5),
    DERIVED: dict.fromkeys(("operator, call", "operator, vmap", "Function, vmap"), 10)
    | dict.fromkeys(("operator, grad(vmap)", "Function, grad(vmap)"), 30),
    "PyTorch's custom operators, forward and backward, over ours": {
        "torch.library.custom_op": 10, "torch._custom_ops": 10,
    },
    "Recorded operators": {
        "node, sys.getsizeof": 300, "node and saved, tracemalloc": 300, "backward, 10,000 in a chain": None,
        "backward, 100,000": None, "backward, 1,000,000": None, "1,000,000 over 10,000": 3,
    },
    "Sizes and one-off costs": {
        "import pydispatch, over import numpy": 0.35, "a process that imports both, over one of NumPy": None,
        "Tensor, sys.getsizeof": 80, "Tensor, tracemalloc": 80, "first call of an operator": 100,
        "register 1,000 operators": 0.5,
    },
}
DEPTHS = (1, 2, 3, 4)
HANDLERS = ("mode", "wrapper subclass")
OTHER_HANDLERS = ("wrapper made in Python", "subclass, super()", "subclass, a constant", "mode over a wrapper",
                  "mode declines, subclass", "factory under a mode", "LoggingMode", "enter and leave a mode")
TRACES = ("np.add, out of their mode", "make_fx", "make_fx, fake")
ON_FAKES = ("np.add of fakes", "perceptron of fakes")
OF_PYTHON_DISPATCH = {
    ADDED: {f"{name} ×{n}": bound for name, bound in zip(HANDLERS, (0.35, 0.7), strict=True) for n in DEPTHS}
    | dict.fromkeys(OTHER_HANDLERS) | {f"{name}, off a line": 0.25 for name in HANDLERS},
    TRACED: dict.fromkeys(ON_FAKES, 2) | dict.fromkeys(TRACES),
    PEER: {f"{name} ×{n}": bound for name, bound in zip(HANDLERS, (10, 7), strict=True) for n in DEPTHS}
    | dict.fromkeys(OTHER_HANDLERS + TRACES + ON_FAKES),
    COMPILED: dict.fromkeys([
        "a polynomial of a 4-vector", "a perceptron, 8x4 inputs, 16 hidden", "100 steps of Euler's method, 4-vector",
    ], 1.05),
}
EXAMPLES = ("a polynomial of a 4-vector", "a perceptron, 8x4 inputs, 4 hidden", "100 explicit Euler steps, 4-vector")
OF_TRANSFORMS = {
    f"Transforms of {example}, theirs over ours": dict.fromkeys(
        (f"{transform}, {library}" for transform in TRANSFORMS for library in ("torch.func", "HIPS")), 5)
    for example in EXAMPLES
} | {
    BY_HAND: {
        f"{example.partition(',')[0]}, batch of {length}": bound
        for length, bound in {"8": 3, "2,500": 1.2}.items() for example in EXAMPLES
    },
    OVER_TAPE: dict.fromkeys((example.partition(",")[0] for example in EXAMPLES), 1.3),
    INTERPRETER: {
        f"{transform}, {operator}": 0.4 if operator == "sin" else 1.0
        for transform in ("vmap", "grad", "jvp") for operator in OPERATORS
    },
    LINE: dict.fromkeys(
        (f"{transform}, {operator}" for transform in ("vmap", "grad", "jvp") for operator in OPERATORS), LINE_BOUND),
}
LOOPS = [f"{loop}, {cell}" for cell in ("2 units", "64x64") for loop in ("scan", "while_loop", "map")]
OF_LOOPS = {
    STEP: dict.fromkeys(LOOPS, 1),
    GRADIENT: dict.fromkeys((f"{loop}, {how}" for loop in LOOPS for how in ("func.grad", "Tensor.backward")), 1.2),
}
WAYS = ("plan", "backend numba", "numexpr", "numba", "jax.jit", "roofline", "backend numba, over numba")
OF_LARGE = {
    f"Large arrays: {task}, {size} elements, over NumPy": {
        f"{way}{threads}": {"plan": bound, "backend numba, over numba": 1.1}.get(way)
        for way in WAYS for threads in ("", ", 2 threads")
        if (task[:5], way) != ("cross", "numexpr")
    }
    for task, bound in {"15 cheap operators": 0.5, "a step of the heat equation": 0.5, "Adam on 50 arrays": 0.5,
                        "Black-Scholes with greeks": 0.7, "cross-entropy with gradient, 100 classes": 0.7}.items()
    for size in ("10,000", "100,000", "1,000,000", "10,000,000")
}
OF_SCANS = {
    f"A step of a scan: {task}{what}, over NumPy":
        dict.fromkeys(("plan", "jax.lax.scan", "numba")) | {"plan, over jax.lax.scan": 1}
    for task in ("a pendulum", "exponential smoothing", "a Kalman filter with 4 states") for what in ("", ", gradient")
} | {"A step of a compiled scan, more than its loops": dict.fromkeys(("a pendulum", "exponential smoothing"), 0.05)}
OF_FILLING = {
    f"The gradient of a loop that fills {n} elements, an element, over NumPy by hand": dict.fromkeys(
        ("func.grad", "Tensor.backward", *(["compile(func.grad)"] if n == "100" else []),
         "autograd with stack", "torch with stack", "jax.lax.scan"))
    for n in ("100", "10,000")
}
OF_SOLVERS = {"Solvers, compiled, over SciPy's by hand": {
    "odeint": 0.05, "odeint, gradient": 0.05, "quad": 4.0, "root": 0.5, "root, gradient": 0.5, "minimize": 0.05}}
EVERYTHING = (
    OF_DISPATCHES | OF_GRADIENTS | OF_COMPILATION | OF_THE_REST | OF_PYTHON_DISPATCH | OF_TRANSFORMS | OF_LOOPS
    | OF_LARGE | OF_SCANS | OF_SOLVERS | OF_FILLING)
BOUNDS = {(group, name): bound for group, rows in EVERYTHING.items() for name, bound in rows.items()}
ALWAYS_INSTALLED = {"__array_function__", "functools.singledispatch"}


def test_bounds_are_those_agreed(library):
    left_out = {}
    found = {(case.group, case.name): case.bound for case in bench.cases(library, left_out)}
    assert found == {
        (group, name): bound for (group, name), bound in BOUNDS.items()
        if left_out.keys().isdisjoint((group, name.rpartition(" ")[2], *name.split(", ")))
    }
    libraries = (PEERS | THEIRS | APIS | LIBRARIES | MODULES | SCAN_MODULES | FILLING_MODULES).keys() | {PEER}
    assert left_out.keys() <= libraries - ALWAYS_INSTALLED


def test_a_pattern_chooses_rows_and_spares_the_import_of_other_peers(library, monkeypatch):
    imported = []
    monkeypatch.setattr(kinds.importlib, "import_module", lambda name: imported.append(name) or importlib)
    names = [case.name for case in bench.cases(library, {}, "operators*TWO")]
    assert names == ["two raw arrays", "two Tensors"]
    assert imported == []


def test_rows_come_one_by_one_and_leave_nothing_behind():
    rows = list(bench.measure(Effort(3, 1), "two raw", left_out := {}))
    assert [row.name for row in rows] == ["two raw arrays"]
    assert rows[0].value > 1
    assert left_out == {}
    assert not any(name.startswith(f"{NAMESPACE}::") for name in registrations.operators)


def test_the_report_is_json_with_everything_in_it():
    row = Row("group", "name", 1.5, 1.25, 1.75, "×", 2.0, at_least=False, times={"f(x)": 3.0, "g(x)": 2.0})
    report = bench.report([row], {"plum": "No module named 'plum'"}, Effort(5, 1))
    assert json.loads(json.dumps(report)) == report
    assert report["rows"] == [{
        "group": "group", "name": "name", "value": 1.5, "low": 1.25, "high": 1.75, "unit": "×", "bound": 2.0,
        "at_least": False, "times": {"f(x)": 3.0, "g(x)": 2.0}, "ok": True,
    }]
    assert report["left_out"] == {"plum": "No module named 'plum'"}
    assert report["effort"] == {"rounds": 5, "repetitions": 1, "seconds": 2}
    assert datetime.date.fromisoformat(report["date"])
    assert all(report[name] for name in ("pydispatch", "python", "numpy", "processor", "platform"))
