"""The object that owns the memory of a Tensor."""

import numpy as np

from pydispatch import Tensor, ops


class OwnBase:
    """An array like those of Cython, whose `base` is the object itself."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__

    @property
    def base(self):
        return self


def test_an_object_that_is_its_own_base_owns_the_memory():
    tensor = Tensor(np.asarray(OwnBase(np.arange(6.0).reshape(2, 3))))
    view = ops.np.swapaxes(tensor, 0, 1)
    view[0, 1] = 9.0
    assert tensor[1, 0] == 9.0
    assert view._version == tensor._version == 1
