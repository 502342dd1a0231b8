"""The pack of examples/pack: built, installed beside a wheel of pydispatch, found, listed, and its own tests run."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import CHECKOUT, NOT_SOURCE, Environment, run

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import numpy as np
from pydispatch import Tensor, func, ops
from pydispatch.tracing import make_fx

assert "smoothing" in dir(ops) and "smoothing_pack" not in sys.modules
x, rows = np.arange(-1.0, 2.0), np.ones((2, 3))
assert np.allclose(ops.smoothing.softplus(x), np.log1p(np.exp(x))) and "smoothing_pack" in sys.modules
assert np.allclose(func.grad(lambda x: ops.smoothing.softplus(x).sum())(x), 1 / (1 + np.exp(-x)))
assert np.allclose(func.vmap(lambda x: ops.smoothing.moving_sum(x, 2))(rows), 2.0)
leaf = Tensor(x, requires_grad=True)
ops.smoothing.moving_sum(leaf, 2).sum().backward()
assert leaf.grad.array.tolist() == [1.0, 2.0, 1.0]
assert [str(node.target) for node in make_fx(ops.smoothing.softplus)(x).find_nodes(op="call_function")]
"""


def test_pack_is_built_installed_found_and_passes_its_tests(
    tmp_path: Path, environment: Environment, wheel: Path
) -> None:
    pack = tmp_path / "pack"
    shutil.copytree(CHECKOUT / "examples/pack", pack, ignore=NOT_SOURCE)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, pack)
    environment.pip("install", "pytest", wheel, *tmp_path.glob("smoothing_pack*.whl"))
    for words in (("-c", PROGRAM), ("-m", "pytest", "-q", str(pack / "tests"))):
        done = environment.python(*words)
        assert done.returncode == 0, done.stdout + done.stderr
    listed = environment.python("-m", "pydispatch", "ops", "smoothing").stdout
    assert all(f"smoothing::{name}" in listed for name in ("huber", "moving_sum", "softplus"))
