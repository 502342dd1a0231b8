"""Samples of `numpy.linalg`. Test_linalg.py has decompositions whose vectors or triangles need more care."""

import numpy as np

from tests.numpy.samples.sample import grid, sample

CLOSE = 1e-10


def regular(*shape: int, dtype: type = np.float64, seed: int = 0) -> np.ndarray:
    """Return matrices that are far from singular, as they are when they are rolled by one element or flipped."""
    n = shape[-1]
    values = grid(*shape, seed=seed) * 0.2
    values = values + np.eye(n) * 1.5 + np.roll(np.eye(n), 1, 1) * 0.3
    if np.dtype(dtype).kind == "c":
        return (values + 0.1j * grid(*shape, seed=seed + 1)).astype(dtype)
    return values.astype(dtype)


SINGLE = {np.float32: 1e-4, np.complex64: 1e-4}

for name in ("inv", "det"):
    for dtype in (np.float64, np.complex128, np.float32):
        sample(f"linalg.{name}", regular(3, 3, dtype=dtype), smooth=True, tolerance=SINGLE.get(dtype, CLOSE))
    sample(f"linalg.{name}", regular(2, 3, 3), smooth=True, tolerance=CLOSE)
    sample(f"linalg.{name}", np.zeros((0, 0)))
    sample(f"linalg.{name}", np.array([[2, 1], [1, 3]]), tolerance=CLOSE)
    sample(f"linalg.{name}", [[2.0, 1.0], [1.0, 3.0]])
    sample(f"linalg.{name}", np.zeros((0, 3, 3)))
sample("linalg.slogdet", regular(3, 3), smooth=True, tolerance=CLOSE)
sample("linalg.slogdet", regular(2, 3, 3, dtype=complex), smooth=True, tolerance=CLOSE)
sample("linalg.solve", regular(3, 3), grid(3), smooth=True, tolerance=CLOSE)
sample("linalg.solve", regular(3, 3), grid(3, 2), smooth=True, tolerance=CLOSE)
sample("linalg.solve", regular(2, 3, 3), grid(3, 2), smooth=True, tolerance=CLOSE)
sample("linalg.solve", regular(2, 3, 3), grid(3), smooth=True, tolerance=CLOSE)
sample("linalg.solve", regular(3, 3, dtype=complex), grid(3, dtype=complex), smooth=True, tolerance=CLOSE)
sample("linalg.solve", regular(3, 3, dtype=np.float32), grid(3, dtype=np.float32), tolerance=1e-4)
sample("linalg.solve", np.array([[2, 1], [1, 3]]), [1, 2], tolerance=CLOSE)
sample("linalg.tensorsolve", regular(4, 4).reshape(2, 2, 4), grid(2, 2), smooth=True, tolerance=CLOSE)
sample("linalg.tensorsolve", regular(4, 4).reshape(2, 4, 2).transpose(1, 0, 2), grid(2, 2), axes=(0,), smooth=True,
       tolerance=CLOSE)
sample("linalg.tensorinv", regular(4, 4).reshape(2, 2, 4), smooth=True, tolerance=CLOSE)
sample("linalg.tensorinv", regular(4, 4).reshape(4, 2, 2), ind=1, smooth=True, tolerance=CLOSE)

# rolled or flipped matrices are not symmetric: test_linalg.py differentiates and batches these
for name in ("eigh", "eigvalsh"):
    for dtype in (float, complex, np.float32):
        symmetric = regular(3, 3, dtype=dtype)
        sample(f"linalg.{name}", symmetric + symmetric.conj().T, tolerance=SINGLE.get(dtype, CLOSE))
    sample(f"linalg.{name}", regular(2, 3, 3), UPLO="U", tolerance=CLOSE)
    sample(f"linalg.{name}", np.array([[2, 1], [1, 3]]), tolerance=CLOSE)
    sample(f"linalg.{name}", np.zeros((0, 0)))
for dtype in (float, complex, np.float32):
    positive = regular(3, 3, dtype=dtype)
    sample("linalg.cholesky", positive @ positive.conj().T, batches=False, has_shape=False,   # rolled: not positive
           tolerance=SINGLE.get(dtype, CLOSE))
sample("linalg.cholesky", np.array([[2, 1], [1, 3]]), batches=False, has_shape=False, tolerance=CLOSE)
sample("linalg.cholesky", np.zeros((0, 2, 2)), batches=False)

# where values cannot be looked at, the results are complex
for name in ("eig", "eigvals"):
    sample(f"linalg.{name}", regular(3, 3, dtype=complex), batches=False, tolerance=CLOSE)
    sample(f"linalg.{name}", np.array([[2.0, 1.0], [0.5, 3.0]]), batches=False, has_shape=False, tolerance=CLOSE)
    sample(f"linalg.{name}", np.array([[0.0, 1.0], [-1.0, 0.0]]), batches=False, has_shape=False, tolerance=CLOSE)
sample("linalg.eigvals", regular(3, 3, dtype=complex), smooth=True, tolerance=CLOSE)

for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2)):
    for name in ("svdvals", "pinv"):
        sample(f"linalg.{name}", grid(*shape), smooth=True, tolerance=CLOSE)
        sample(f"linalg.{name}", grid(*shape, dtype=complex), smooth=True, tolerance=CLOSE)
    sample("linalg.svd", grid(*shape), full_matrices=False, smooth=True, tolerance=CLOSE)
    sample("linalg.svd", grid(*shape), compute_uv=False, smooth=True, tolerance=CLOSE)
    sample("linalg.qr", grid(*shape), smooth=True, tolerance=CLOSE)
    sample("linalg.qr", grid(*shape, dtype=complex), smooth=True, tolerance=CLOSE)
    sample("linalg.qr", grid(*shape), mode="r", smooth=True, tolerance=CLOSE)
    sample("linalg.qr", grid(*shape), mode="complete", tolerance=CLOSE)
sample("linalg.svd", grid(3, 3), smooth=True, tolerance=CLOSE)
sample("linalg.svd", grid(4, 2), tolerance=CLOSE)
sample("linalg.svd", grid(3, 3, dtype=complex), full_matrices=False, tolerance=CLOSE)
sample("linalg.svd", grid(3, 3, dtype=int), tolerance=CLOSE)
sample("linalg.svd", grid(3, 3, dtype=np.float32), compute_uv=False, tolerance=1e-4)
sample("linalg.pinv", grid(3, 3), rcond=1e-3, smooth=True, tolerance=CLOSE)
sample("linalg.pinv", grid(3, 3), rtol=None, smooth=True, tolerance=CLOSE)
for b in (grid(4), grid(4, 2)):
    sample("linalg.lstsq", grid(4, 2), b, smooth=True, batches=False, has_shape=False,    # residuals depend on the rank
           tolerance=1e-8)
sample("linalg.lstsq", grid(2, 4), grid(2), batches=False, has_shape=False, tolerance=1e-8)
sample("linalg.lstsq", np.ones((3, 2)), grid(3), rcond=1e-6, batches=False, has_shape=False, tolerance=1e-8)

for n in (0, 1, 2, 3, 5, -1, -3):
    sample("linalg.matrix_power", regular(3, 3), n, smooth=n != 0, tolerance=CLOSE)
sample("linalg.matrix_power", np.array([[1, 2], [3, 4]]), 4)
sample("linalg.multi_dot", [grid(2, 3), grid(3, 4)], smooth=True, tolerance=CLOSE)
sample("linalg.multi_dot", [grid(2, 3), grid(3, 4), grid(4, 2)], smooth=True, tolerance=CLOSE)
sample("linalg.multi_dot", [grid(3), grid(3, 4), grid(4, 2), grid(2, 5), grid(5)], smooth=True, tolerance=CLOSE)
sample("linalg.multi_dot", [grid(3), grid(3, 4), grid(4, 2)], smooth=True, tolerance=CLOSE)
sample("linalg.matmul", grid(2, 3), grid(3, 2), smooth=True, tolerance=CLOSE)
sample("linalg.vecdot", grid(2, 3, dtype=complex), grid(3, dtype=complex), smooth=True, tolerance=CLOSE)
sample("linalg.tensordot", grid(2, 3), grid(3, 2), axes=1, smooth=True, tolerance=CLOSE)
sample("linalg.outer", grid(2), grid(3), smooth=True)
sample("linalg.cross", grid(3), grid(3, seed=1), smooth=True, tolerance=CLOSE)
sample("linalg.trace", grid(2, 3, 3), smooth=True, tolerance=CLOSE)
sample("linalg.trace", grid(3, 3), offset=1, smooth=True, tolerance=CLOSE)
sample("linalg.diagonal", grid(2, 3, 3), offset=-1, smooth=True)
sample("linalg.matrix_transpose", grid(2, 3, 2), smooth=True)

for ord in (2, 1, 3, 0.5, -1, np.inf, -np.inf):
    sample("linalg.vector_norm", grid(2, 3), ord=ord, smooth=True, tolerance=CLOSE)
    sample("linalg.vector_norm", grid(2, 3), axis=1, ord=ord, keepdims=True, smooth=True, tolerance=CLOSE)
    sample("linalg.norm", grid(3, dtype=complex, seed=3), ord, smooth=True, tolerance=CLOSE)
sample("linalg.vector_norm", grid(2, 3), ord=0)
sample("linalg.vector_norm", grid(2, 3, dtype=int), tolerance=CLOSE)
sample("linalg.vector_norm", grid(2, 3, dtype=np.float32), axis=0, tolerance=1e-5)
sample("linalg.norm", grid(2, 3), smooth=True, tolerance=CLOSE)
sample("linalg.norm", grid(2, 2, 3), smooth=True, tolerance=CLOSE)
sample("linalg.norm", grid(2, 3), axis=0, smooth=True, tolerance=CLOSE)
sample("linalg.norm", [3.0, 4.0])
for ord in (None, "fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf):
    sample("linalg.norm", grid(2, 3), ord, (0, 1), smooth=True, tolerance=CLOSE)
    sample("linalg.norm", grid(2, 3, 2), ord, (2, 0), keepdims=True, smooth=True, tolerance=CLOSE)
    if ord is not None:
        sample("linalg.matrix_norm", grid(2, 3, 2, seed=5), ord=ord, smooth=True, tolerance=CLOSE)
for p in (None, 2, -2, 1, -1, "fro", np.inf):
    sample("linalg.cond", regular(3, 3), p, smooth=True, tolerance=CLOSE)
sample("linalg.matrix_rank", np.ones((3, 3)))
sample("linalg.matrix_rank", regular(2, 3, 3), tol=0.1)
sample("linalg.matrix_rank", regular(2, 3, 3), rtol=np.array([0.1, 0.9]))
