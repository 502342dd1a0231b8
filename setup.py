"""Build the extension. pyproject.toml has everything else about the package."""

import gc
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy
from Cython.Build import cythonize
from Cython.Compiler.Code import modifier_output_mapper
from Cython.Compiler.ModuleNode import ModuleNode
from Cython.Compiler.Nodes import CFuncDefNode, DefNode
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import PlatformError

# PYDISPATCH_PORTABLE=1 builds with public parts of CPython and NumPy only, in standard C11, by Cython as it is: slower,
# and what another compiler or a new CPython begins with. core/src/seam.h has both ways beside each other.
# A free-threaded CPython gets this build: most private parts and fast paths need the GIL.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
PORTABLE = FREE_THREADED or os.environ.get("PYDISPATCH_PORTABLE", "0") not in ("", "0")

# Here the generated C goes, so that neither the source tree nor the sdist ever holds any.
BUILD = "build/portable" if PORTABLE else "build"

core = Extension(
    "pydispatch._core",
    ["pydispatch/_core.pyx"],
    depends=[*map(str, Path("pydispatch").glob("*/src/*.h"))],
    include_dirs=["pydispatch", numpy.get_include()],
    define_macros=[
        ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
        ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
        ("CYTHON_VECTORCALL_TPNEW", "0"),   # objects are made by a direct call of tp_new
        ("CYTHON_UNPACK_METHODS", "0"),     # what the core calls is hardly ever a bound method
        ("NDEBUG", None),                   # among Python's own flags, but CFLAGS in the environment replace those
    ],
    extra_compile_args=[
        "-O3", "-fno-plt",                  # some loops over large arrays take four times as long with -O2
        "-fno-math-errno",                  # a square root is one operation of the processor, not a call as well
        "-ffp-contract=off",                # x * y + z rounds twice, as in NumPy
        "-fwrapv",                          # likewise
        "-g0",                              # debug information is nine tenths of the file otherwise
    ],
)

if PORTABLE:
    core.define_macros += [
        ("PYDISPATCH_PORTABLE", None),
        # What Cython uses of CPython's private parts where nothing else is said.
        ("CYTHON_USE_PYTYPE_LOOKUP", "0"), ("CYTHON_USE_PYLONG_INTERNALS", "0"), ("CYTHON_USE_PYLIST_INTERNALS", "0"),
        ("CYTHON_USE_UNICODE_INTERNALS", "0"), ("CYTHON_USE_UNICODE_WRITER", "0"), ("CYTHON_USE_DICT_VERSIONS", "0"),
        ("CYTHON_FAST_THREAD_STATE", "0"), ("CYTHON_FAST_GIL", "0"), ("CYTHON_FALLTHROUGH", ""),
    ]

# Importing the core enables the GIL of a free-threaded CPython. With PYDISPATCH_FREE_THREADED=1 the core declares that
# it needs none. docs/threads.md lists what is missing for that.
if FREE_THREADED and os.environ.get("PYDISPATCH_FREE_THREADED", "0") not in ("", "0"):
    core.define_macros.append(("CYTHON_FREETHREADING_COMPATIBLE", "1"))

ARGUMENTS_FOR_PORTABLE = [
    "-std=c11", "-pedantic-errors",
    "-Wno-overlength-strings",          # the text of the module, which Cython writes as one
    "-fno-strict-aliasing", "-fno-tree-vectorize",      # plans read numbers of any type wherever they lie
    # NumPy's headers convert void* to functions.
    "-isystem", sysconfig.get_path("include"), "-isystem", numpy.get_include(),
]
MACROS_FOR_GCC = [
    ("CYTHON_SMALL_CODE", '__attribute__((cold, optimize("Os")))'),     # what sets up the module, and RUN_ONCE
]
ARGUMENTS_FOR_GCC = [
    "-frecord-gcc-switches",            # in the file, where `python -m pydispatch doctor` finds them
    # Passes that take two fifths of GCC's time and bring little: no call of benchmarks/instructions.py takes 1 % more
    # instructions than with them and without the order to inline below.
    "-fno-tree-pta", "-fno-gcse", "-fno-tree-pre", "-fno-schedule-insns2", "-fno-tree-vectorize",
    "-fno-code-hoisting", "-fno-gcse-after-reload", "-fno-rerun-cse-after-loop", "-fno-forward-propagate",
    "-fira-region=one", "-fno-split-paths", "-fno-tree-tail-merge", "-fno-tree-vrp", "-fno-predictive-commoning",
    "-fno-tree-slsr", "-fno-tree-dominator-opts",
    # What -O3 inlines and clones beyond -O2 makes the wheel's copy 2.5 % larger, and calls less than 2 % faster.
    # Nothing throws through the core, and code need not begin at multiples of 16: a twentieth of the wheel.
    "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-align-functions", "-fno-align-jumps",
    "-fno-align-loops", "-fno-align-labels",
    "--param=max-goto-duplication-insns=16",        # each operation of fused loops jumps to the next by itself
    "-fno-ipa-cp-clone", "--param=max-inline-insns-auto=15", "--param=inline-min-speedup=30",
    "--param=max-inline-insns-single=40", "-fno-inline-small-functions", "-fno-inline-functions",
]

# Functions of these parts run when an operator is registered, a plan is made, a call is recorded for a profile, a body
# of control flow sees captured Tensors, a guard is entered, a pytree is taken apart, a transform other than grad or a
# handler in Python sees a call, or Python asks for keys; never in a plain call, except those of RUN_OFTEN. They are not
# worth the time in which GCC optimizes them, nor the memory: a tenth of the wheel's copy.
RUN_ONCE = {"c_functions", "closed_classes", "contexts", "exports", "functions", "fused_loops", "gathered", "guards",
            "in_place", "jacobians", "jvp", "keys", "kinds", "modes", "operations", "plan_checks", "plans", "profiling",
            "pytrees", "registrations", "residuals", "scans", "shapes", "signature", "small_loops",
            "subclasses", "substitution", "tape", "transform", "upcalls", "vmap"}
RUN_OFTEN = {"run_batching_fast_path", "run_call", "run_choice", "run_ends_of_rows", "run_fused_loops", "run_jvp",
             "run_plan", "run_repeat", "run_small_loops", "run_steps", "run_steps_while", "run_while"}


def patch_cython() -> None:
    """Change what Cython writes, in its compiler: no function of its own says this."""
    # Cython would export each function that a header declares, for other extensions to import. They have the C API
    # instead (core/interface/exports.pyx). GCC can inline the last call of a function, and leave out the function,
    # only where nothing takes its address.
    ModuleNode.generate_c_function_export_code = lambda module, env, code: None

    # What the core declares as inline is inlined, which a function that calls itself cannot be. Left to GCC, a call
    # takes up to 9 % more instructions, and another number of them whenever something changes elsewhere.
    modifier_output_mapper.__self__["inline"] = "inline __attribute__((always_inline))"

    for node in (CFuncDefNode, DefNode):
        node.generate_function_header = header_of(node.generate_function_header)


def header_of(generate: Callable) -> Callable:
    """Return a function that writes the beginning of a C function, with a mark in the parts that run once."""
    def generate_function_header(node, code, *args, **options) -> None:
        runs_once = (Path(node.pos[0].filename or "").stem in RUN_ONCE and "inline" not in node.entry.func_modifiers
                     and node.entry.name not in RUN_OFTEN)
        if runs_once and not options.get("proto_only"):
            code.put("CYTHON_SMALL_CODE ")
        generate(node, code, *args, **options)
    return generate_function_header


if not PORTABLE:
    patch_cython()

# Nearly all that Cython allocates lives to its end, so a garbage collector only walks through it, again and again: two
# fifths of Cython's time, for 7 % less memory.
gc.disable()


class BuildWithCompiler(build_ext):
    """Build the core, or name what to install."""

    def build_extensions(self) -> None:
        command = getattr(self.compiler, "compiler", None)      # MSVC finds its own
        if command and shutil.which(command[0]) is None:
            raise PlatformError(
                f"pydispatch-numpy has a core in C, and its build needs a C compiler: {command[0]!r} is not there\n"
                "install one: apt install build-essential python3-dev (Debian, Ubuntu), dnf install gcc python3-devel "
                "(Fedora), xcode-select --install (macOS); or install a wheel: pip install --only-binary "
                "pydispatch-numpy pydispatch-numpy")
        # Not earlier, since an sdist needs no C. Without the lines of the sources as comments it is a third shorter,
        # which GCC need not read.
        core.sources = cythonize([core], build_dir=BUILD, compiler_directives={
            "language_level": 3, "emit_code_comments": False})[0].sources
        if PORTABLE and command:
            core.extra_compile_args += ARGUMENTS_FOR_PORTABLE
            change_file(Path(self.extensions[0].sources[0]), CHANGES_FOR_PORTABLE)
        elif command and is_gcc(command):
            core.define_macros += MACROS_FOR_GCC
            core.extra_compile_args += ARGUMENTS_FOR_GCC
            positions = POSITIONS if self.is_for_developers() else NO_POSITIONS
            change_file(Path(self.extensions[0].sources[0]), (*positions, *CHANGES_FOR_GCC))
            if sys.platform == "linux" and not self.is_for_developers():
                self.extensions[0].extra_link_args.append("-Wl,-s")       # names for profilers are 3 % of a wheel
        super().build_extensions()

    def is_for_developers(self) -> bool:
        """Return whether the core is built in place. Setuptools clears `inplace` during the build."""
        return self.editable_mode or "inplace" in self.distribution.get_option_dict("build_ext")


Change = tuple[str, str | Callable[[re.Match[str]], str]]
"""A pattern in what Cython writes, and what takes the place of each match."""

# Tracebacks show functions of the core only in builds for developers, who have the sources. Without them a wheel is a
# tenth smaller.
NO_POSITIONS: tuple[Change, ...] = (
    (r"\{ __pyx_filename = __pyx_f\[f_index\]; \(void\) __pyx_filename; __pyx_lineno = lineno;",
     "{ (void) __pyx_filename;"),
    # A handler needs the traceback of what it handles.
    (r'(__Pyx_AddTraceback\("[^"]*", )__pyx_clineno, __pyx_lineno, __pyx_filename(\);\s*if \(__Pyx_GetException)',
     r"\g<1>0, 1, __pyx_f[0]\2"),
    (r'(__Pyx_AddTraceback\("init [^"]*", )__pyx_clineno, __pyx_lineno, __pyx_filename\);', r"\g<1>0, 1, __pyx_f[0]);"),
    (r'__Pyx_AddTraceback\("[^;]*, __pyx_filename\);', "(void) 0;"),
)
POSITIONS: tuple[Change, ...] = (
    # The file and the line of an error are kept in one number: 15,000 places store it.
    (r"\{ __pyx_filename = __pyx_f\[f_index\]; \(void\) __pyx_filename; __pyx_lineno = lineno;",
     "{ (void) __pyx_filename; __pyx_lineno = (lineno) | (f_index) << 16;"),
    (r"( +funcname, c_line, )py_line, filename\);", r"\1py_line & 0xffff, __pyx_f[py_line >> 16]);"),
    (r"(__Pyx_PyFrame_SetLineNumber\(py_frame, )py_line\);", r"\1py_line & 0xffff);"),
)
CHANGES_FOR_GCC: tuple[Change, ...] = (
    # The way out of a function after an error is rare: it releases values by calls, which are shorter.
    (r"^ *__pyx_L\d+_\w*error:;\n(?: *__Pyx_XDECREF\(.*\n)+",
     lambda found: found[0].replace("__Pyx_XDECREF(", "Py_DecRef(")),
)
CHANGES_FOR_PORTABLE: tuple[Change, ...] = (
    # CPython takes the functions in tables of slots as void*, for which ISO C has no way.
    (r"^static Py(?:Type|ModuleDef)_Slot \w+\[\] = \{$(?s:.*?)^\};$",
     '#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored "-Wpedantic"\n\\g<0>\n#pragma GCC diagnostic pop'),
)
CHANGED = "\n/* Changed by setup.py. */\n"


def change(generated: str, changes: tuple[Change, ...]) -> str:
    """Return the C that Cython generated, with changes for which Cython has no option.

    The changes depend on each other, so all apply or none. With a Cython that writes something else, none does, and
    tests/packaging/test_setup.py fails.
    """
    text = generated
    for pattern, replacement in changes:
        text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
        if not count:
            return generated
    return text + CHANGED


def change_file(generated: Path, changes: tuple[Change, ...]) -> None:
    """Change a file that Cython generated, unless an earlier build has."""
    text = generated.read_text()
    if not text.endswith(CHANGED):
        generated.write_text(change(text, changes))


def is_gcc(command: list[str]) -> bool:
    """Return whether this compiler is GCC, by its macros. clang, which macOS calls gcc, refuses arguments of GCC."""
    preprocess = [*command, "-dM", "-E", "-x", "c", "/dev/null"]
    macros = subprocess.run(preprocess, capture_output=True, text=True, check=False).stdout
    return "__GNUC__" in macros and "__clang__" not in macros


setup(cmdclass={"build_ext": BuildWithCompiler}, options={"build": {"build_base": BUILD}}, ext_modules=[core])
