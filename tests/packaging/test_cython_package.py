"""The package of examples/cython-package: built against a wheel, its tests run, another version refused."""

import shutil
from pathlib import Path

import pytest

from tests.packaging.conftest import CHECKOUT, NOT_SOURCE, Environment

pytestmark = pytest.mark.slow

WITH_ANOTHER_VERSION = """
import ctypes
import pydispatch._core

class Start(ctypes.Structure):
    _fields_ = [("major", ctypes.c_int), ("minor", ctypes.c_int)]

new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi))
found, name = Start(MAJOR, MINOR), b"pydispatch._core.C_API"
pydispatch._core.C_API = new_capsule(ctypes.addressof(found), name, None)
import distances_pack.kernels
"""


def test_the_package_is_built_and_passes_its_tests(tmp_path: Path, environment: Environment, wheel: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(CHECKOUT / "examples/cython-package", package, ignore=NOT_SOURCE)
    environment.pip("install", "pytest", "cython>=3.0", "setuptools>=77", wheel)
    environment.pip("install", "--no-build-isolation", package)
    done = environment.python("-m", "pytest", "-q", str(package / "tests"))
    assert done.returncode == 0, done.stdout + done.stderr
    for major, minor, is_refused in ((2, 0, True), (0, 9, True), (1, 0, False), (1, 7, False)):
        program = WITH_ANOTHER_VERSION.replace("MAJOR", str(major)).replace("MINOR", str(minor))
        done = environment.python("-c", program)
        assert (done.returncode != 0) == is_refused, done.stdout + done.stderr
        if is_refused:
            assert "ImportError: this module was compiled with version 1.0 of the C API of pydispatch" in done.stderr
            assert f"has version {major}.{minor}" in done.stderr
