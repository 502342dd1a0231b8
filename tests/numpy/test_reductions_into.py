"""Reductions into `out` of another dtype. NumPy is the oracle: of values and of errors."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile, func
from pydispatch.tracing import make_fx
from tests.together import together

REDUCTIONS = ("sum", "prod", "mean", "std", "max", "ptp", "nansum", "any", "argmax", "cumsum", "cumprod", "nancumsum",
              "median")
DTYPES = ("i4", "i8", "u1", "?", "f4", "f8", "c16")
WAYS = {
    "tensors": lambda f, x: f(Tensor(x)),
    "jvp": lambda f, x: func.jvp(f, (x,), (x,))[0],
    "vmap": lambda f, x: func.vmap(f)(x[None])[0],
    "make_fx": lambda f, x: make_fx(f)(x)(x),
    "functionalize": lambda f, x: func.functionalize(f)(x),
    "compile": lambda f, x: compile(f)(x),
}


def into(library, name, dtype, x):
    out = library.zeros(3 if "cum" in name else (), dtype)
    getattr(library, name)(x, out=out)
    return out * 1


@pytest.mark.filterwarnings("ignore")       # complex numbers become real ones
@pytest.mark.parametrize("x", [np.array([1.5, 2.5, 3.0]), np.array([1.5 + 1j, 2.5, 3.0])], ids=["real", "complex"])
@pytest.mark.parametrize("name", REDUCTIONS)
@together("way", WAYS.values(), ids=WAYS)
def test_out_of_another_dtype(name, x, way):
    for dtype in DTYPES:
        try:
            expected = into(np, name, dtype, x)
        except TypeError:
            with pytest.raises(TypeError):
                way(lambda x: into(pnp, name, dtype, x), x)     # noqa: B023
        else:
            found = np.asarray(way(lambda x: into(pnp, name, dtype, x), x))     # noqa: B023
            np.testing.assert_allclose(found, expected, err_msg=dtype)
            assert found.dtype == expected.dtype
