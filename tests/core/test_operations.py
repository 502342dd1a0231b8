"""The table of elementary operations: one line makes an operation, in every kind of loop and in numba's sources."""

import ctypes
import itertools
import math
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import pydispatch
from pydispatch import _core, compile, ops
from pydispatch.compiling.arithmetic import ELEMENTARY, read_columns
from pydispatch.compiling.expressions import in_python
from tests.compiling.same import check_same
from tests.needs import needs
from tests.warning_filters import quiet

PACKAGE = Path(pydispatch.__file__).parent
NAMES = {name: kind for name, kind, *_ in _core.ELEMENTARY_OPERATIONS}

# --- one line --------------------------------------------------------------------------------------------------------

NEW_LINES = {       # by the list that they are added to
    "OF_TWO_NUMBERS": "OPERATION(plus, TWO, vadd, fiu, x + y, ON(b, x || y), ARITHMETIC, 1, EITHER(7))",
    "OF_ONE_NUMBER": "OPERATION(bump, ONE, , f, x * x + x, ON(u, !x ? T(0) : x * x + x), ARITHMETIC, 1, )",
    "IN_LIBRARY": "OPERATION(gamma, LIBRARY, tgamma, f, gamma(x), , CALLS, 8, )",
}
PROGRAM = r"""
#ifdef NARROW
#define __builtin_cpu_supports(feature) (feature[3] != '5')     /* as if AVX-512 was not there */
#endif
#include "core/src/loops.h"
#include "plans/src/steps.h"
#include "plans/src/operations.h"
#include "plans/src/fused_loops.h"
#include "plans/src/wide_loops.h"
#include "plans/src/trigonometric_loops.h"

const char* text_of_table(void) { return TABLE_OF_ARITHMETIC; }
int number_of_plus(void) { return DO_plus; }
int number_of_bump(void) { return DO_bump; }
double run_gamma(double x) { return library_function(DO_gamma)(x); }

void run_small(int operation, int form, int n_in, npy_intp n, double* x, double* y, double* result) {
    CodeWord code[5], *w = code;
    put_operation(w++, CODE(OF_FLOAT64, operation, form), n);
    (w++)->address = (char*)x;
    if (n_in == 2) (w++)->address = (char*)y;
    (w++)->address = (char*)result;
    put_operation(w, END_OF_CODE, 0);
    run_operations(code, 1, NULL, 0, NULL);
}

int run_fused(int operation, npy_intp n, double* x, double* y, double* result) {
    FusedWay way = fused_way(operation, OF_FLOATS);
    FusedWord words[4] = {
        {TAKE_ROW, (char*)x, 8}, {CODE_OF_ROWS(OF_FLOATS, operation, way == BY_FORMS ? RM : VV), (char*)y, 8},
        {LEAVE_ROW, (char*)result, 8}, {END_OF_CODE, NULL, 0}};
    if (way == NOT_FUSED || !bytes_of_fused()) return 0;
    run_fused_words(words, 4, 1, n, 8);
    return 1;
}

int run_on_pairs(int is_choice, npy_intp n, void* one, void* other, void* result, void* bools, int size) {
    FusedWord words[5] = {
        {TAKE_ROW, one, size}, {OTHER_ROW, other, size}, {is_choice ? CHOOSE_PAIRS : MULTIPLY_PAIRS, bools},
        {LEAVE_ROW, result, size}, {END_OF_CODE}};
    if (!bytes_of_fused()) return 0;
    run_fused_words(words, 4, 1, n, size);
    return width_of_fused(size);
}

int run_apart(int size, npy_intp n, void* one, void* result) {
    FusedWord words[3] = {{TAKE_APART, one, 2 * size}, {LEAVE_ROW, result, size}, {END_OF_CODE}};
    if (!bytes_of_fused()) return 0;
    run_fused_words(words, 2, 1, n, size);
    return width_of_fused(size);
}

#define EACH(name) LOOP_NAMED(each_##name) { \
    for (npy_intp i = 0; i < *extents; i++) ((double*)args[1])[i] = name(((double*)args[0])[i]); }
EACH(sin) EACH(cos)

int run_trigonometric(int is_cosine, npy_intp n, double* x, double* result) {
    char* args[2] = {(char*)x, (char*)result};
    npy_intp strides[2] = {8, 8};
    LoopFunction of_library = is_cosine ? each_cos : each_sin;
    LoopFunction loop = trigonometric_loop(is_cosine ? DO_cos : DO_sin, of_library);
    if (loop != NULL) loop(args, &n, strides, of_library);
    return loop != NULL;
}

int run_wide(int operation, npy_intp n, double* x, double* y, double* result) {
    char* args[3] = {(char*)x, (char*)y, (char*)result};
    npy_intp strides[3] = {8, 8, 8};
    LoopFunction loop = wide_loop(operation, 1);
    if (loop != NULL) loop(args, &n, strides, NULL);
    return loop != NULL;
}
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a folder with the C of plans, and three more lines in its table."""
    folder = tmp_path_factory.mktemp("table")
    for chapter in ("core", "plans"):
        shutil.copytree(PACKAGE / chapter / "src", folder / chapter / "src")
    table = folder / "plans" / "src" / "arithmetic.h"
    for name, line in NEW_LINES.items():
        before, list_of_class, after = table.read_text().partition(f"#define {name}(OPERATION) \\\n")
        assert list_of_class, name
        table.write_text(f"{before}{list_of_class}    {line} \\\n{after}")
    (folder / "program.c").write_text(PROGRAM)
    return folder


def built(folder, name, *options):
    includes = [folder, np.get_include(), sysconfig.get_path("include")]
    subprocess.run(
        ["gcc", "-O0", "-fno-math-errno", "-ffp-contract=off", "-fwrapv", "-w", "-shared", "-fPIC", "program.c",
         "-o", name, *options,
         "-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION", *[f"-I{include}" for include in includes], "-lm"],
        cwd=folder, check=True)
    loaded = ctypes.CDLL(str(folder / name))
    loaded.run_on_pairs.argtypes = [ctypes.c_int, ctypes.c_ssize_t, *[ctypes.c_void_p] * 4, ctypes.c_int]
    loaded.run_trigonometric.argtypes = [ctypes.c_int, ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p]
    loaded.run_apart.argtypes = [ctypes.c_int, ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_void_p]
    return loaded


@pytest.fixture(scope="module")
def library(sources):
    """Return that C, compiled."""
    loaded = built(sources, "program.so")
    loaded.text_of_table.restype = ctypes.c_char_p
    loaded.run_gamma.restype, loaded.run_gamma.argtypes = ctypes.c_double, [ctypes.c_double]
    for name, n_numbers in (("run_small", 3), ("run_fused", 1), ("run_wide", 1)):
        getattr(loaded, name).argtypes = [*[ctypes.c_int] * n_numbers, ctypes.c_ssize_t, *[ctypes.c_void_p] * 3]
    return loaded


MM, VV = 0, 4       # forms: single numbers, vectors
X, Y = np.random.default_rng(0).normal(size=(2, 128))


@needs("gcc")
@pytest.mark.parametrize(("name", "n_in", "expected"), [("plus", 2, X + Y), ("bump", 1, X * X + X)])
def test_a_line_makes_an_operation_of_small_and_fused_loops(library, name, n_in, expected):
    number = getattr(library, f"number_of_{name}")()
    addresses = X.ctypes.data, Y.ctypes.data
    for form, n in ((MM, 1), (VV, 13)):
        found = np.zeros_like(X)
        library.run_small(number, form, n_in, n, *addresses, found.ctypes.data)
        np.testing.assert_array_equal(found, np.where(np.arange(X.size) < n, expected, 0))
    found = np.zeros_like(X)
    if library.run_fused(number, X.size, *addresses, found.ctypes.data):        # else the processor has no AVX2
        np.testing.assert_array_equal(found, expected)


@needs("gcc")
def test_a_line_with_an_instruction_makes_a_wide_loop(library):
    found = np.zeros_like(X)
    if library.run_wide(library.number_of_plus(), X.size, X.ctypes.data, Y.ctypes.data, found.ctypes.data):
        np.testing.assert_array_equal(found, X + Y)
    assert not library.run_wide(library.number_of_bump(), X.size, X.ctypes.data, Y.ctypes.data, found.ctypes.data)


@needs("gcc")
def test_a_line_with_a_function_makes_a_call_of_it(library):
    assert library.run_gamma(5.0) == math.gamma(5.0)


@needs("gcc")
@pytest.mark.parametrize("width", ["wide", "narrow"])
@pytest.mark.parametrize("function", [math.sin, math.cos], ids=["sin", "cos"])
def test_trigonometric_loops_have_the_bits_of_the_library(sources, library, function, width):
    loaded = library if width == "wide" else built(sources, "narrow.so", "-DNARROW")
    random = np.random.default_rng(0)
    quarters = random.integers(-10**6, 10**6, 5000) * (np.pi / 2)
    x = np.concatenate([
        *(random.uniform(-scale, scale, 5000) for scale in (1e-3, 0.1, 0.8, 3, 10, 1000, 2.0**20, 1e9, 1e300)),
        quarters, np.nextafter(quarters, np.inf), quarters * (1 + random.uniform(-1e-9, 1e-9, quarters.size)),
        random.permutation(np.array([0.0, -0.0, np.nan, 5e-324, 2.0**-24, 2.0**20, 1e-300, np.pi / 4] * 40))])
    found = np.zeros_like(x)
    if loaded.run_trigonometric(function is math.cos, x.size, x.ctypes.data, found.ctypes.data):
        expected = np.array([*map(function, x.tolist())])
        np.testing.assert_array_equal(found.view(np.int64), expected.view(np.int64))


@needs("gcc")
def test_a_line_tells_python_costs_identities_and_expressions(library):
    rows = [line.split("\t") for line in library.text_of_table().decode().splitlines()]
    read = {row[0]: (row[1:3], read_columns(*row[3:])) for row in rows}
    assert set(read) == {*NAMES, "plus", "bump", "gamma"}
    assert read["plus"] == (["TWO", "ARITHMETIC"], (1, (7, 2), dict.fromkeys("fiu", "x + y") | {"b": "x || y"}))
    assert read["bump"] == (["ONE", "ARITHMETIC"], (1, None, {"f": "x * x + x", "u": "!x ? T(0) : x * x + x"}))
    assert read["gamma"] == (["LIBRARY", "CALLS"], (8, None, {"f": "gamma(x)"}))
    assert in_python("x || y") == "{0} | {1}"
    assert in_python("!x ? T(0) : x * x + x") == "T(0) if (not {0}) else {0} * {0} + {0}"


# --- no other place --------------------------------------------------------------------------------------------------

NAMED = {           # what is particular about an operation, beside what it computes
    "operations.h": {"add", "subtract", "multiply"},            # links
    "wide_loops.h": {"add"},                                    # sums
    "trigonometric_loops.h": {"sin", "cos"},
    "fused_loops.h": {"invert"} | {                             # of integers too, and of complex numbers as two floats
        "add", "subtract", "multiply", "square", "negative", "conjugate", "bitwise_xor"},
    "plans.pyx": {"add", "maximum", "minimum"},                 # sums and extremes of rows
    "operations.pyx": {"power"},                                # of integers, which may raise
    "small_loops.pyx": {"floor_divide", "remainder"},           # of integers
    "expressions.py": {"add"},                                  # sums
    "fusion.py": {"add"},                                       # sums
    "builder.py": {"add", "conjugate", "subtract", "multiply", "negative", "power"},    # rewriting of x + -y
}
LOWERING = {"rules.py", "array_rules.py", "control_flow.py", "positions.py"}      # operators by universal functions


def test_other_files_name_operations_only_for_what_is_particular():
    names = "|".join(NAMES)
    pattern = re.compile(rf"\b(?:DO_|numpy\.|np\.|umath\.|does\(\d, )({names})\b(?!\()")
    files = [path for folder in ("plans", "compiling") for path in (PACKAGE / folder).rglob("*.*")
             if path.suffix in (".py", ".pyx", ".pxd", ".h") and path.name not in LOWERING]
    assert len(files) > 30
    code = {path.name: re.sub(r'"""[\s\S]*?"""|#(?!define).*', "", path.read_text()) for path in files}
    assert {name: set(pattern.findall(text)) for name, text in code.items() if pattern.search(text)} == NAMED


def test_each_line_is_a_universal_function_of_numpy():
    assert {function.__name__ for function in ELEMENTARY} == set(NAMES)
    assert all(type(function) is np.ufunc for function in ELEMENTARY)
    assert [name for name, *_, expressions in _core.ELEMENTARY_OPERATIONS if expressions == "_ ;"] == ["cbrt"]


@pytest.mark.parametrize("function", [function for function in ELEMENTARY if ELEMENTARY[function].identity],
                         ids=lambda function: function.__name__)
def test_identities_change_no_bit(function):
    x = np.array([0.0, -0.0, 1.5, -1 / 3, np.inf, -np.inf, np.nan, 5e-324, 1e308])
    number, n_operands = ELEMENTARY[function].identity
    assert function(x, float(number)).tobytes() == x.tobytes()
    if n_operands == 2:
        assert function(float(number), x).tobytes() == x.tobytes()


# --- fused loops -----------------------------------------------------------------------------------------------------


@needs("gcc")
def test_complex_numbers_in_vectors_of_each_width(sources, library):
    random = np.random.default_rng(0)
    for loaded, dtype, n in itertools.product((library, built(sources, "narrow.so", "-DNARROW")), "DF", (20, 300)):
        x, y = random.normal(size=(2, 2 * n)).astype(dtype.lower()).view(dtype)
        bools, found, size = random.normal(size=n) > 0, np.empty_like(x), x.itemsize // 2
        for is_choice, expected in enumerate((x * y, np.where(bools, x, y))):
            width = loaded.run_on_pairs(
                is_choice, 2 * n, *[a.ctypes.data for a in (x, y, found, bools)], size)
            if width:           # the processor has AVX2
                done = (2 * n - 2 * n % width) // 2
                np.testing.assert_array_equal(found[:done], expected[:done])
        for part in (x.real, x.imag):
            found = np.zeros_like(part)
            width = loaded.run_apart(size, n, part.ctypes.data, found.ctypes.data)
            if width:
                np.testing.assert_array_equal(found, np.where(np.arange(n) < n - n % width, part, 0))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [name for name in NAMES if NAMES[name] in ("TWO", "TWO_FLOATS")])
def test_fused_loops_of_each_form(name, dtype):
    function = getattr(ops.np, name)
    x, y = np.random.default_rng(0).normal(size=(2, 9001)).astype(dtype)
    x[5], x[-1], y[7], y[8] = np.inf, 0, np.nan, -0.0

    def every_form(x, y):
        row_left = function(function(x, y), x)
        row_right = function(y, row_left)
        numbers = function(1.5, function(row_right, 0.7))
        return function(numbers, numbers), row_left

    with quiet():
        check_same(compile(every_form)(x, y), every_form(x, y))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [name for name in NAMES if NAMES[name] in ("ONE", "ROOT", "ONE_BY_ONE")])
def test_fused_loops_of_one_operand(name, dtype):
    function = getattr(ops.np, name)
    x = np.random.default_rng(0).normal(size=9001).astype(dtype)
    x[5], x[6], x[-1] = np.inf, np.nan, -0.0
    with quiet():
        check_same(compile(lambda x: function(function(x * 2.0) - 1.0))(x), function(function(x * 2.0) - 1.0))
