"""Builds the extension. Everything else about the package stands in pyproject.toml."""

import gc
import shutil

import numpy
from Cython.Build import cythonize
from Cython.Compiler.ModuleNode import ModuleNode
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
        ("NDEBUG", None),                   # among Python's own flags, but CFLAGS in the environment replace those
    ],
    extra_compile_args=[
        "-O3", "-fno-plt",                  # some loops over large arrays take four times as long with -O2
        "-fno-math-errno",                  # a square root is one operation of the processor, not a call as well
        "-fwrapv",                          # likewise
        "-g0",                              # debug information is nine tenths of the file otherwise
        # Passes that take a fifth of GCC's time and bring little: without them op(x, y) takes 1.2 % more instructions,
        # most other calls fewer.
        "-fno-tree-pta", "-fno-gcse", "-fno-tree-pre", "-fno-schedule-insns2", "-fno-tree-vectorize",
        # What -O3 inlines and clones beyond -O2 makes the wheel's copy 2.5 % larger, and calls less than 2 % faster.
        "-fno-ipa-cp-clone", "--param=max-inline-insns-auto=15", "--param=inline-min-speedup=30",
        "--param=max-inline-insns-single=300",
    ],
)

# Cython would export each function that a header declares, for other extensions to import. They have the C API instead
# (core/exports.pyx), and GCC can inline the last call of a function, and leave out the function, only where nothing
# takes its address.
ModuleNode.generate_c_function_export_code = lambda module, env, code: None

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
        super().build_extensions()


# The generated C goes to build/, so that neither the source tree nor the sdist ever holds any. Without the lines of the
# sources as comments it is a third shorter, which GCC need not read.
setup(cmdclass={"build_ext": BuildWithCompiler}, ext_modules=cythonize(
    [core], build_dir="build", compiler_directives={"language_level": 3, "emit_code_comments": False}))
