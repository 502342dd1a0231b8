"""Linear algebra: well-conditioned matrices. Scaled by a number near 1 they stay triangular, definite or factored."""

import numpy as np

from tests.scipy.samples.sample import between, sample

CLOSE = 1e-11


def regular(*shape: int, dtype: type = float, seed: int = 0) -> np.ndarray:
    """Return matrices with a heavy diagonal."""
    x = between(-1, 1, *shape, seed=seed).astype(dtype)
    if dtype is complex:
        x = x + 1j * between(-1, 1, *shape, seed=seed + 1)
    return x + 3 * np.eye(*shape[-2:])


def definite(n: int, dtype: type = float) -> np.ndarray:
    x = regular(n, n, dtype=dtype)
    return x @ x.conj().T


def entries(*shape: int, dtype: type = float) -> np.ndarray:
    x = between(-2, 2, *shape, seed=5).astype(dtype)
    return x + 1j * between(-2, 2, *shape, seed=6) if dtype is complex else x


def factored(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return L and U in one matrix, and the exchanges of rows, without SciPy."""
    a, exchanges = a.copy(), []
    for i in range(len(a)):
        row = i + int(np.argmax(abs(a[i:, i])))
        exchanges.append(row)
        a[[i, row]] = a[[row, i]]
        a[i + 1:, i] /= a[i, i]
        a[i + 1:, i + 1:] -= np.outer(a[i + 1:, i], a[i, i + 1:])
    return a, np.array(exchanges, np.int32)


for dtype in (float, complex):
    a = regular(3, 3, dtype=dtype)
    for options in ({}, {"lower": True}, {"trans": 1}, {"trans": 2, "unit_diagonal": True}):
        sample("linalg.solve_triangular", a, entries(3, dtype=dtype), smooth=True, tolerance=CLOSE, **options)
    sample("linalg.solve_triangular", a, entries(3, 2, dtype=dtype), 1, True, smooth=True, tolerance=CLOSE)
    sample("linalg.cho_solve", (a, True), entries(3, dtype=dtype), smooth=True, tolerance=CLOSE)
    sample("linalg.cho_solve", (a, False), entries(3, 2, dtype=dtype), smooth=True, tolerance=CLOSE)
    sample("linalg.lu_factor", a, smooth=True, tolerance=CLOSE)
    for trans in (0, 1, 2):
        sample("linalg.lu_solve", factored(entries(3, 3, dtype=dtype)), entries(3, 2, dtype=dtype), trans, smooth=True,
               tolerance=CLOSE)
    sample("linalg.cho_factor", definite(3, dtype)[:1, :1] * 1.0, smooth=dtype is float, tolerance=CLOSE)
    sample("linalg.cho_factor", definite(3, dtype), True, tolerance=CLOSE)
    sample("linalg.cho_factor", definite(3, dtype), tolerance=CLOSE)
    sample("linalg.cholesky", definite(3, dtype)[:1, :1] * 1.0, smooth=dtype is float, tolerance=CLOSE)
    sample("linalg.cholesky", definite(3, dtype), lower=True, tolerance=CLOSE)
    sample("linalg.cholesky", definite(3, dtype), tolerance=CLOSE)
    sample("linalg.expm", entries(3, 3, dtype=dtype) * 0.3, smooth=True, tolerance=CLOSE)
    sample("linalg.sqrtm", definite(3, dtype), smooth=True, tolerance=CLOSE)
    sample("linalg.logm", definite(3, dtype), smooth=True, tolerance=CLOSE)
    sample("linalg.solve_sylvester", a, regular(2, 2, dtype=dtype), entries(3, 2, dtype=dtype), smooth=True,
           tolerance=CLOSE)
    sample("linalg.toeplitz", entries(3, dtype=dtype), smooth=True)
    sample("linalg.toeplitz", entries(3, dtype=dtype), entries(4, dtype=dtype), smooth=True)
    sample("linalg.inv", a, smooth=True, tolerance=CLOSE)
    sample("linalg.det", a, smooth=True, tolerance=CLOSE)
    sample("linalg.solve", a, entries(3, dtype=dtype), smooth=True, tolerance=CLOSE)
    sample("linalg.solve", a, entries(3, 2, dtype=dtype), smooth=True, tolerance=CLOSE)

sample("linalg.solve_triangular", [[2, 0], [1, 3]], [2, 1], "N", True, tolerance=CLOSE)
sample("linalg.solve_triangular", np.array([[2, 0], [1, 3]]), np.array([2, 1]), 0, True, tolerance=CLOSE)
sample("linalg.lu_factor", between(-0.9, 1.2, 4, 2), smooth=True, tolerance=CLOSE)
sample("linalg.lu_factor", between(-0.9, 1.2, 2, 4), smooth=True, tolerance=CLOSE)
for options in ({}, {"permute_l": True}, {"p_indices": True}):
    for a in (regular(3, 3)[::-1].copy(), entries(4, 2) + 0.1, entries(2, 4, dtype=complex)):
        sample("linalg.lu", a, smooth=True, tolerance=CLOSE, **options)
sample("linalg.expm", regular(2, 3, 3), smooth=True, tolerance=CLOSE)
sample("linalg.expm", np.array([[0, 1], [0, 0]]))
sample("linalg.solve", regular(3, 3), entries(3), transposed=True, smooth=True, tolerance=CLOSE)
for dtype in (float, complex):
    band = np.array([[1.0], [6.0], [2.0]]) + 0.5 * entries(3, 4, dtype=dtype)
    for b in (entries(4, dtype=dtype), entries(4, 2, dtype=dtype)):
        sample("linalg.solve_banded", (1, 1), band, b, smooth=True, tolerance=CLOSE)
        sample("linalg.solve_banded", (0, 2), band[[2, 0, 1]], b, smooth=True, tolerance=CLOSE)
    for lower, half in ((True, band[1:]), (False, band[:2])):
        half = np.where(half.real > 4, half.real, half)
        sample("linalg.cholesky_banded", half.real, lower=lower, smooth=True, tolerance=CLOSE)
        sample("linalg.solveh_banded", half, entries(4, dtype=dtype), lower=lower, smooth=True, tolerance=CLOSE)
sample("linalg.block_diag", entries(2, 3), entries(2), entries(1, 1), smooth=True)
sample("linalg.block_diag", np.ones((2, 2), int), entries(3, 2, dtype=complex), smooth=True)

ROUNDED = 1e-11
SQUARE, TALL = between(-2, 2, 3, 3) + 3 * np.eye(3), between(-2, 2, 4, 3)
SYMMETRIC = np.diag([1.0, 2.5, 4.0]) + 0.2 * (SQUARE + SQUARE.T)
for name in ("eigh", "eigvalsh"):
    sample(f"linalg.{name}", SYMMETRIC[:1, :1], smooth=True, tolerance=ROUNDED)     # of others one triangle is read
    sample(f"linalg.{name}", SYMMETRIC, tolerance=ROUNDED)
    sample(f"linalg.{name}", SYMMETRIC, lower=False, subset_by_index=[1, 2], tolerance=ROUNDED)
for kind in (1, 2, 3):
    sample("linalg.eigvalsh", SYMMETRIC, np.eye(3) + 0.1 * SYMMETRIC, type=kind, tolerance=ROUNDED)
sample("linalg.eigvals", SQUARE, smooth=True, tolerance=ROUNDED)
sample("linalg.eig", SQUARE, right=False, smooth=True, tolerance=ROUNDED)
sample("linalg.svd", TALL, compute_uv=False, smooth=True, tolerance=ROUNDED)
sample("linalg.svd", TALL, False, tolerance=ROUNDED)
sample("linalg.svdvals", TALL, smooth=True, tolerance=ROUNDED)
sample("linalg.qr", TALL, mode="economic", smooth=True, tolerance=ROUNDED)
sample("linalg.pinv", TALL, smooth=True, tolerance=ROUNDED)
sample("linalg.pinvh", SYMMETRIC, smooth=True, tolerance=ROUNDED)
sample("linalg.norm", TALL, smooth=True, tolerance=ROUNDED)
sample("linalg.norm", TALL, 1, 0, True, smooth=True, tolerance=ROUNDED)
sample("linalg.expm_frechet", SQUARE / 9, SYMMETRIC / 9, smooth=True, tolerance=1e-9)
sample("linalg.circulant", between(-2, 2, 4), smooth=True)
sample("linalg.hankel", between(-2, 2, 4), smooth=True)
sample("linalg.hankel", between(-2, 2, 4), between(-2, 2, 3), smooth=True)
sample("linalg.polar", SQUARE, smooth=True, tolerance=ROUNDED)
sample("linalg.companion", between(1, 3, 4), smooth=True, has_shape=False)
sample("linalg.leslie", between(1, 3, 4), between(0, 1, 3), smooth=True, has_shape=False)
sample("linalg.fiedler", between(-2, 2, 4), smooth=True)
sample("linalg.fiedler_companion", between(1, 3, 4), smooth=True, has_shape=False)
sample("linalg.convolution_matrix", between(-2, 2, 3), 4, smooth=True)
sample("linalg.khatri_rao", TALL, SQUARE, smooth=True)
for name in ("cosm", "sinm", "tanm", "coshm", "sinhm", "tanhm"):
    sample(f"linalg.{name}", SYMMETRIC / 4, smooth=True, tolerance=ROUNDED)
sample("linalg.orthogonal_procrustes", SQUARE, SYMMETRIC, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("linalg.solve_circulant", between(1, 3, 4), between(-2, 2, 4), smooth=True, has_shape=False, tolerance=ROUNDED)
sample("linalg.solve_discrete_lyapunov", SQUARE / 9, SYMMETRIC, smooth=True, tolerance=ROUNDED)
sample("linalg.expm_cond", SQUARE / 4, smooth=True, has_shape=False, tolerance=ROUNDED)
sample("linalg.diagsvd", between(1, 3, 3), 3, 4, smooth=True)
sample("linalg.subspace_angles", TALL[:, :1], TALL[:, 1:2], smooth=True, has_shape=False, tolerance=ROUNDED)
sample("linalg.orth", TALL[:, :1], smooth=True, has_shape=False, tolerance=ROUNDED)
sample("linalg.lstsq", TALL, between(-2, 2, 4), smooth=True, batches=False, has_shape=False, tolerance=ROUNDED)
sample("linalg.lstsq", TALL, between(-2, 2, 4, 2), smooth=True, batches=False, has_shape=False, tolerance=ROUNDED)
for name in ("solve_continuous_lyapunov", "solve_lyapunov"):
    sample(f"linalg.{name}", SQUARE, SYMMETRIC, smooth=True, tolerance=1e-10)
COLUMN = np.array([5.0, 1.0, -0.5, 0.3])
for name in ("solve_toeplitz", "matmul_toeplitz"):
    sample(f"linalg.{name}", COLUMN, between(-2, 2, 4), smooth=True, tolerance=1e-10)
    sample(f"linalg.{name}", (COLUMN, COLUMN[::-1] * 0.5), between(-2, 2, 4, 2), smooth=True, tolerance=1e-10)
sample("linalg.eigvalsh_tridiagonal", np.array([1.0, 3.0, 6.0]), np.array([0.5, 0.7]), smooth=True, tolerance=1e-10)
sample("linalg.eigvalsh_tridiagonal", np.array([1.0, 3.0, 6.0]), np.array([0.5, 0.7]), select="i", select_range=(0, 1),
       smooth=True, tolerance=1e-10)

GENERAL = np.array([[1.0, 0.7, -0.2], [-1.1, 0.8, 0.5], [0.3, -0.4, 3.0]])      # two of its eigenvalues are complex
TRIANGULAR = SQUARE + np.array([[0, 5, 1], [0, 4, 2], [0, 0, 9]])
for name in ("schur", "hessenberg", "ldl"):
    sample(f"linalg.{name}", TRIANGULAR, smooth=True, has_shape=name != "ldl", tolerance=1e-9)
    sample(f"linalg.{name}", GENERAL, smooth=True, has_shape=name != "ldl", tolerance=1e-9)
sample("linalg.hessenberg", between(-2, 2, 4, 4), True, smooth=True, tolerance=1e-9)
sample("linalg.ldl", np.array([[0.0, 2.0, 0.3], [2.0, 0.1, 0.4], [0.3, 0.4, 1.0]]), False, smooth=True, has_shape=False,
       tolerance=1e-9)
for options in ({}, {"mode": "r"}, {"mode": "economic"}):
    sample("linalg.rq", SQUARE, smooth=True, tolerance=ROUNDED, **options)
sample("linalg.rq", TALL.T, mode="economic", smooth=True, tolerance=ROUNDED)
sample("linalg.qr", SQUARE, pivoting=True, smooth=True, has_shape=False, tolerance=ROUNDED)
for options in ({}, {"pivoting": True}):
    sample("linalg.qr_multiply", TALL, TALL.T, smooth=True, has_shape=not options, tolerance=ROUNDED, **options)
    sample("linalg.qr_multiply", TALL, SQUARE, "left", smooth=True, has_shape=not options, tolerance=ROUNDED, **options)
for lower in (True, False):
    sample("linalg.cho_solve_banded", (np.array([[2.0, 3.0, 4.0], [0.3, 0.4, 0.5]])[:: 1 if lower else -1], lower),
           between(-2, 2, 3), smooth=True, tolerance=ROUNDED)
    sample("linalg.eigvals_banded", np.array([[2.0, 3.0, 4.0], [0.3, 0.4, 0.5]])[:: 1 if lower else -1], lower,
           smooth=True, tolerance=ROUNDED)
sample("linalg.funm", SYMMETRIC, np.exp, smooth=True, has_shape=False, tolerance=1e-9)
sample("linalg.funm", GENERAL, np.sin, smooth=True, has_shape=False, tolerance=1e-9)
sample("linalg.signm", SYMMETRIC - 2 * np.eye(3), smooth=True, has_shape=False, tolerance=1e-9)
sample("linalg.fractional_matrix_power", SYMMETRIC, 0.7, smooth=True, tolerance=1e-9)
sample("linalg.fractional_matrix_power", SQUARE, 3, smooth=True, tolerance=1e-9)
sample("linalg.eigh_tridiagonal", np.array([1.0, 3.0, 6.0]), np.array([0.5, 0.7]), smooth=True, tolerance=1e-10)
for name in ("solve_continuous_are", "solve_discrete_are"):
    sample(f"linalg.{name}", GENERAL, TALL[:3, :2], np.eye(3).tolist(), np.eye(2).tolist(), smooth=True, tolerance=1e-9)
    sample(f"linalg.{name}", SQUARE[:1, :1], TALL[:1, :1], TALL[1:2, 1:2] ** 2, SQUARE[2:, 2:], SQUARE[:1, :1] / 2,
           TALL[:1, :1] / 9, smooth=True, tolerance=1e-9)
for name in ("bandwidth", "ishermitian", "issymmetric"):
    sample(f"linalg.{name}", SYMMETRIC, batches=False, has_shape=False)
