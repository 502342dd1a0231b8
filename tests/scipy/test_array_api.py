"""SciPy's own functions with Tensors where SCIPY_ARRAY_API is set: they find `special` in the namespace of Tensors."""

import os
import subprocess
import sys

import numpy as np
import pytest

from pydispatch import Tensor

CODE = """
import numpy, scipy.special, scipy.ndimage, scipy.signal
from pydispatch import Tensor, func
x = numpy.array([0.3, 0.7])
for name, n in {"erf": 1, "gammaln": 1, "ndtr": 1, "expit": 1, "entr": 1, "i0": 1, "xlogy": 2}.items():
    function = getattr(scipy.special, name)
    def f(x):
        return function(*[x] * n).sum()
    step = 1e-6
    slopes = [(f(x + step * e) - f(x - step * e)) / (2 * step) for e in numpy.eye(2)]
    numpy.testing.assert_allclose(func.grad(f)(x), slopes, rtol=1e-7)
    numpy.testing.assert_allclose(func.vmap(lambda x: function(*[x] * n))(x), function(*[x] * n))
    assert isinstance(function(*[Tensor(x)] * n), Tensor)
numpy.testing.assert_allclose(func.grad(lambda x: scipy.special.logsumexp(x))(x), scipy.special.softmax(x))
out = Tensor(numpy.zeros((3, 3)))
scipy.ndimage.zoom(Tensor(numpy.eye(3)), 1, output=out)
numpy.testing.assert_allclose(out.array, numpy.eye(3), atol=1e-12)
image = scipy.ndimage.zoom(Tensor(numpy.arange(9.0).reshape(3, 3)), 2)
assert isinstance(image, Tensor) and numpy.asarray(image).flags.writeable
assert isinstance(scipy.signal.detrend(Tensor(numpy.arange(5.0))), Tensor)
"""


def test_gradients_and_batches_through_scipys_own_functions():
    done = subprocess.run([sys.executable, "-c", CODE], env=os.environ | {"SCIPY_ARRAY_API": "1"}, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_namespace_has_functions_of_ours_only():
    special = Tensor(np.ones(2)).__array_namespace__().special
    assert isinstance(special.erf(Tensor(np.ones(2))), Tensor)
    assert not hasattr(special, "ai_zeros")         # SciPy's own, which would ask the namespace again
    with pytest.raises(AttributeError):
        _ = Tensor(np.ones(2)).__array_namespace__().no_such_part
