"""What `pydispatch.numpy` passes on from NumPy as it is: no array comes in or goes out."""

from __future__ import annotations

import numpy as np

LOADED = {name: value for name, value in vars(np).items() if name in np.__all__}    # getattr loads modules on demand

TYPES = tuple(name for name, value in LOADED.items() if isinstance(value, type))
"""Types of arrays, scalars and dtypes, and of NumPy's tools: `float64`, `dtype`, `finfo`, `errstate`, `nditer`, ..."""

CONSTANTS = tuple(name for name, value in LOADED.items() if isinstance(value, (float, str, np.bool, type(None))))
"""`pi`, `e`, `inf`, `nan`, `euler_gamma`, `newaxis`, `True_`, `False_`, ..."""

FUNCTIONS = (
    # dtypes
    "issubdtype", "isdtype", "mintypecode", "promote_types", "typename", "min_scalar_type",
    # configuration
    "seterr", "geterr", "seterrcall", "geterrcall", "setbufsize", "getbufsize", "set_printoptions", "get_printoptions",
    "printoptions", "show_config", "show_runtime", "get_include", "info", "test",
    # numbers as text
    "base_repr", "binary_repr", "format_float_positional", "format_float_scientific",
    # files and memory, which give arrays
    "load", "loadtxt", "genfromtxt", "fromfile", "fromregex", "fromstring", "frombuffer", "fromiter",
    # shapes and indices
    "broadcast_shapes", "iterable",
    # dates
    "busday_count", "busday_offset", "is_busday", "datetime_as_string", "datetime_data",
    # Python functions made universal
    "frompyfunc", "einsum_path", "nested_iters",
)

MODULES = (
    "char", "core", "ctypeslib", "dtypes", "emath", "exceptions", "f2py", "lib", "ma", "polynomial", "rec", "strings",
    "testing", "typing",
)
"""NumPy's modules; those with functions of arrays (`linalg`, `fft`, `random`) are our own."""
