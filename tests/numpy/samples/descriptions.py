"""Samples of what arrays are. Functions that write files are in test_descriptions.py."""

import numpy as np

from tests.numpy.samples.sample import grid, sample

X = grid(2, 3)
for name in ("shape", "ndim", "size"):
    sample(name, X)
    sample(name, [[1, 2], [3, 4]])
sample("size", X, 1)
sample("result_type", X, 1, np.float32)
sample("result_type", grid(2, dtype=int), np.float32(1))
sample("can_cast", np.int8, np.int16)
sample("finfo", np.float32)
sample("common_type", X, grid(2, dtype=np.float32), batches=False, has_shape=False)     # a type is no array
sample("common_type", grid(2, dtype=int), batches=False, has_shape=False)
for name in ("may_share_memory", "shares_memory"):
    sample(name, X, grid(3), batches=False, has_shape=False)       # a MetaArray has no memory
sample("asfortranarray", X, smooth=True)
sample("require", X, np.float32)
sample("array_str", X, batches=False, has_shape=False)         # text shows values
sample("array2string", X, batches=False, has_shape=False)
sample("array2string", X, precision=2, separator=",", batches=False, has_shape=False)
