"""Builds the extension. Everything else about the package stands in pyproject.toml."""

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

core = Extension(
    "pydispatch._core",
    ["pydispatch/_core.pyx"],
    include_dirs=[numpy.get_include()],
    define_macros=[
        ("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"),
        ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION"),
        ("CYTHON_VECTORCALL_TPNEW", "0"),   # objects are made by a direct call of tp_new
    ],
    extra_compile_args=["-O3", "-g0", "-fno-plt"],      # debug information is nine tenths of the file otherwise
)

# The generated C goes to build/, so that neither the source tree nor the sdist ever holds any.
setup(ext_modules=cythonize([core], build_dir="build", compiler_directives={"language_level": 3}))
