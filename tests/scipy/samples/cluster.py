"""Vector quantization."""

from tests.scipy.samples.sample import between, sample

POINTS, CODES = between(-2, 2, 5, 2), between(-2, 2, 3, 2, seed=1)
sample("cluster.vq.vq", POINTS, CODES, smooth=True, tolerance=1e-13)
sample("cluster.vq.vq", POINTS[:, 0].copy(), CODES[:, 0] + 0.017, smooth=True, tolerance=1e-13)
sample("cluster.vq.whiten", POINTS, smooth=True, has_shape=False, tolerance=1e-13)
sample("cluster.vq.kmeans", POINTS, CODES, has_shape=False, tolerance=1e-13)
sample("cluster.vq.kmeans2", POINTS, POINTS[:2].copy(), minit="matrix", has_shape=False, tolerance=1e-13)
