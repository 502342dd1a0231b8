"""Builds the extension. Everything else about the package stands in pyproject.toml."""

import gc
import shutil
import subprocess
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

core = Extension(
    "pydispatch._core",
    ["pydispatch/_core.pyx"],
    include_dirs=[numpy.get_include()],
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
        "-fwrapv",                          # likewise
        "-g0",                              # debug information is nine tenths of the file otherwise
    ],
)

MACROS_FOR_GCC = [
    ("CYTHON_SMALL_CODE", '__attribute__((cold, optimize("O1")))'),     # what sets up the module, and RUN_ONCE
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
    "-fno-ipa-cp-clone", "--param=max-inline-insns-auto=15", "--param=inline-min-speedup=30",
    "--param=max-inline-insns-single=40", "-fno-inline-small-functions", "-fno-inline-functions",
]

# Cython would export each function that a header declares, for other extensions to import. They have the C API instead
# (core/exports.pyx), and GCC can inline the last call of a function, and leave out the function, only where nothing
# takes its address.
ModuleNode.generate_c_function_export_code = lambda module, env, code: None

# What the core declares as inline is inlined, which a function that calls itself cannot be. Left to GCC, a call takes
# up to 9 % more instructions, and another number of them whenever something changes elsewhere.
modifier_output_mapper.__self__["inline"] = "inline __attribute__((always_inline))"


def header_of(generate: Callable) -> Callable:
    """How Cython writes the beginning of a function, with a mark for those of the parts that run once."""
    def generate_function_header(node, code, *args, **options) -> None:
        runs_once = Path(node.pos[0].filename or "").stem in RUN_ONCE and "inline" not in node.entry.func_modifiers
        if runs_once and not options.get("proto_only"):
            code.put("CYTHON_SMALL_CODE ")
        generate(node, code, *args, **options)
    return generate_function_header


# Functions of these parts run when an operator is registered or a plan is made, never in a call: not worth the time in
# which GCC optimizes them.
RUN_ONCE = {"plan_checks", "registrations", "signature"}
for node in (CFuncDefNode, DefNode):
    node.generate_function_header = header_of(node.generate_function_header)

# Nearly all that Cython allocates lives to its end, so a garbage collector only walks through it, again and again: two
# fifths of Cython's time, for 7 % less memory.
gc.disable()


class BuildWithCompiler(build_ext):
    """Builds the core, or says what to install."""

    def build_extensions(self) -> None:
        command = getattr(self.compiler, "compiler", None)      # MSVC finds its own
        if command and shutil.which(command[0]) is None:
            raise PlatformError(
                f"pydispatch-numpy has a core in C, and its build needs a C compiler: {command[0]!r} is not there\n"
                "install one: apt install build-essential python3-dev (Debian, Ubuntu), dnf install gcc python3-devel "
                "(Fedora), xcode-select --install (macOS); or install a wheel: pip install --only-binary "
                "pydispatch-numpy pydispatch-numpy")
        if command and is_gcc(command):
            core.define_macros += MACROS_FOR_GCC
            core.extra_compile_args += ARGUMENTS_FOR_GCC
        super().build_extensions()


def is_gcc(command: list[str]) -> bool:
    """Is this compiler GCC, by the macros that it defines? clang, which macOS calls gcc, refuses arguments of GCC."""
    preprocess = [*command, "-dM", "-E", "-x", "c", "/dev/null"]
    macros = subprocess.run(preprocess, capture_output=True, text=True, check=False).stdout
    return "__GNUC__" in macros and "__clang__" not in macros


# The generated C goes to build/, so that neither the source tree nor the sdist ever holds any. Without the lines of the
# sources as comments it is a third shorter, which GCC need not read.
setup(cmdclass={"build_ext": BuildWithCompiler}, ext_modules=cythonize(
    [core], build_dir="build", compiler_directives={"language_level": 3, "emit_code_comments": False}))
