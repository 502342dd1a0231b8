"""Builds the extension. Everything else about the package stands in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(ext_modules=cythonize(
    [Extension("distances_pack.kernels", ["distances_pack/kernels.pyx"])], compiler_directives={"language_level": 3}))
