"""A fixture that tests of interpreters share."""

import numpy as np
import pytest

from pydispatch import Tensor


def check_no_level_is_active():
    """Assert that no transform is active, by eager autograd, which refuses to work inside one."""
    leaf = Tensor(np.arange(3.0), requires_grad=True)
    (leaf * leaf).sum().backward()
    np.testing.assert_array_equal(leaf.grad, 2 * np.arange(3.0))


@pytest.fixture
def levels_are_left_as_they_were():
    check_no_level_is_active()
    yield
    check_no_level_is_active()
