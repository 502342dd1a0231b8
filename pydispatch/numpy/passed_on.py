"""Objects that `pydispatch.numpy` passes on from NumPy, since they neither take nor return arrays."""

from __future__ import annotations

import numpy as np

PUBLIC = set(np.__all__)
LOADED = {name: value for name, value in vars(np).items() if name in PUBLIC}    # getattr loads modules on demand

TYPES = tuple(name for name, value in LOADED.items() if isinstance(value, type))
"""Types of arrays, scalars and dtypes, and of NumPy's tools: `float64`, `dtype`, `finfo`, `errstate`, `nditer`, ..."""

CONSTANTS = (
    *[name for name, value in LOADED.items()
      if isinstance(value, (bool, float, str, tuple, dict, np.bool, type(None)))],
    "s_", "index_exp",
)
"""`pi`, `e`, `inf`, `nan`, `newaxis`, `True_`, `False_`, `typecodes`, ..., and keys between brackets."""

FUNCTIONS = (
    # dtypes
    "issubdtype", "isdtype", "mintypecode", "promote_types", "typename", "min_scalar_type",
    # configuration
    "seterr", "geterr", "seterrcall", "geterrcall", "setbufsize", "getbufsize", "set_printoptions", "get_printoptions",
    "printoptions", "show_config", "show_runtime", "get_include", "info", "test",
    # numbers as text
    "base_repr", "binary_repr", "format_float_positional", "format_float_scientific",
    # files and memory, which give arrays
    "load", "loadtxt", "genfromtxt", "fromfile", "fromregex", "fromstring", "frombuffer",
    # shapes and indices
    "broadcast_shapes", "iterable", "isfortran", "diag_indices", "tril_indices",
    "triu_indices", "mask_indices",
    # dates
    "busday_count", "busday_offset", "is_busday", "datetime_as_string", "datetime_data",
    # Python functions made universal
    "frompyfunc", "nested_iters",
)

MODULES = (
    "char", "core", "ctypeslib", "dtypes", "emath", "exceptions", "f2py", "ma", "rec", "strings",
    "testing", "typing",
)
"""NumPy's modules. Those with functions of arrays (`linalg`, `fft`, `polynomial`, `random`) are our own."""
