"""An operator dispatcher for NumPy."""

__distribution__ = "pydispatch-numpy"   # what _core checks: PyDispatcher installs an import package of the same name
