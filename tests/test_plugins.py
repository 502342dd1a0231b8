"""Libraries that look a backend up by name learn about Tensors, whichever is imported first."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

from pydispatch import Tensor, compile, func, plugins

X = np.arange(6.0).reshape(2, 3)


def test_autoray():
    do = pytest.importorskip("autoray").do
    assert do("sum", Tensor(X)).item() == 15.0
    np.testing.assert_allclose(do("linalg.svd", Tensor(X))[1].array, np.linalg.svd(X)[1])
    np.testing.assert_array_equal(func.grad(lambda x: do("sum", do("square", x)))(X), 2 * X)
    np.testing.assert_array_equal(func.vmap(lambda x: do("sum", x))(X), X.sum(1))
    assert compile(lambda x: do("sum", x))(X) == 15.0


def test_einops():
    einops = pytest.importorskip("einops")
    np.testing.assert_array_equal(einops.rearrange(Tensor(X), "a b -> b a").array, X.T)
    np.testing.assert_array_equal(einops.rearrange([Tensor(X[0]), Tensor(X[1])], "a b -> b a").array, X.T)
    np.testing.assert_array_equal(einops.repeat(Tensor(X), "a b -> a b c", c=2).array, np.stack([X, X], -1))
    np.testing.assert_array_equal(einops.einsum(Tensor(X), Tensor(X), "a b, c b -> a c").array, X @ X.T)
    np.testing.assert_allclose(func.grad(lambda x: einops.reduce(x * x, "a b -> ", "mean"))(X), X / 3)
    np.testing.assert_array_equal(func.vmap(lambda x: einops.rearrange(x, "(a b) -> b a", a=1))(X), X[:, :, None])


def test_opt_einsum():
    contract = pytest.importorskip("opt_einsum").contract
    np.testing.assert_allclose(contract("ij,kj,kl->il", *[Tensor(X)] * 3).array, X @ X.T @ X)
    np.testing.assert_array_equal(func.grad(lambda x: contract("ij,ij->", x, x))(X), 2 * X)
    np.testing.assert_array_equal(func.vmap(lambda x: contract("i,i->", x, x))(X), (X * X).sum(1))


@pytest.mark.parametrize("first", ["pydispatch", "library", "a look"])
def test_in_either_order(first, tmp_path):
    (tmp_path / "autoray").mkdir()
    (tmp_path / "autoray" / "__init__.py").write_text("from autoray import autoray\n")
    (tmp_path / "autoray" / "autoray.py").write_text(
        "aliases = {}\ndef register_module_alias(alias, module): aliases[alias] = module\n")
    (tmp_path / "einops").mkdir()
    (tmp_path / "einops" / "__init__.py").write_text("from einops import _backends\n")
    (tmp_path / "einops" / "_backends.py").write_text("class AbstractBackend: pass\n")
    (tmp_path / "opt_einsum" / "backends").mkdir(parents=True)
    (tmp_path / "opt_einsum" / "__init__.py").write_text("from opt_einsum.backends import dispatch\n")
    (tmp_path / "opt_einsum" / "backends" / "__init__.py").write_text("")
    (tmp_path / "opt_einsum" / "backends" / "dispatch.py").write_text("")      # without _aliases
    imports = ["import pydispatch", "import autoray, einops, opt_einsum"]
    look = "import importlib.util; assert importlib.util.find_spec('autoray')"
    code = "\n".join([
        "import sys", f"sys.path.insert(0, {str(tmp_path)!r})", *{
            "pydispatch": imports, "library": imports[::-1], "a look": [imports[0], look, imports[1]]}[first],
        "assert autoray.autoray.aliases == {'pydispatch': 'pydispatch.numpy'}",
        "backend, = einops._backends.AbstractBackend.__subclasses__()",
        "assert backend.framework_name == 'pydispatch'",
        "assert autoray.__spec__.name == 'autoray' and autoray.__file__",
    ])
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_is_imported_for_it():
    code = "import sys, pydispatch; assert not {'autoray', 'einops', 'opt_einsum'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_it_registers_exists():
    assert import_module(plugins.FACE).einsum
