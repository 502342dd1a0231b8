"""The names that `explain`, `ops` and `stubs` take, and what they say about others."""

import pytest

from pydispatch import compile, ops
from pydispatch.cli import names
from pydispatch.cli.main import main
from pydispatch.debug import dump_table


@compile
def doubled(x):
    return x * 2


@pytest.mark.parametrize(("name", "operator"), [
    ("add", "np.add"), ("np.add", "np.add"), ("np::add", "np.add"), ("numpy.add", "np.add"),
    ("pydispatch.numpy.add", "np.add"), ("pydispatch.ops.np.add", "np.add"), ("add.out", "np.add.out"),
    ("numpy.linalg.svd", "np.linalg_svd"), ("linalg.svd", "np.linalg_svd"), ("svd", "np.linalg_svd"),
    ("np.fft.fft", "np.fft_fft"),
])
def test_a_name_of_an_operator_or_of_the_function_of_numpy(name, operator):
    expected = ops
    for part in operator.split("."):
        expected = getattr(expected, part)
    assert names.object_named(name) is expected


def test_names_of_scipys_functions():
    pytest.importorskip("scipy")
    assert names.object_named("scipy.special.gammaln") is ops.scipy.special_gammaln
    assert names.object_named("special.gammaln") is ops.scipy.special_gammaln
    assert names.object_named("gammaln") is ops.scipy.special_gammaln


@pytest.mark.parametrize(("words", "problem"), [
    (["explain", "np.ad"], "no operator np::ad\ndid you mean np::add"),
    (["explain", "numpy.linalg.swd"], "np::linalg_svd"),
    (["explain", "numpy.diff"], "numpy.diff is a function that calls operators"),
    (["ops", "arctn2"], "no operator matches 'arctn2'\ndid you mean np::arctan2"),
    (["stubs", "arctn2"], "no operator arctn2\ndid you mean np::arctan2"),
    (["explain", "nothing_like_it"], "--import MODULE"),
])
def test_a_wrong_name_gets_a_suggestion(capsys, words, problem):
    assert main(words) == 1
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("name", ["numpy.linalg.svd", "svd"])
def test_ops_takes_the_names_of_functions(capsys, name):
    assert main(["ops", name]) == 0
    assert "np::linalg_svd " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["fresh_stubs", "fresh_stubs.twice"])
def test_stubs_takes_a_namespace_or_an_operator(capsys, tmp_path, name):
    with ops_library("fresh_stubs"):
        assert main(["stubs", name, "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "fresh_stubs.pyi").exists()


def ops_library(namespace):
    from pydispatch.library import Library
    lib = Library(namespace, "DEF")
    lib.define("twice(Tensor x) -> Tensor", lambda x: 2 * x, "CPU")
    return lib


def test_explain_takes_the_path_of_a_compiled_function(capsys):
    assert main(["explain", f"{__name__}.doubled", "float64[3]"]) == 0
    assert "plan: 1 loop" in capsys.readouterr().out


def test_explain_lists_the_parts_of_an_operator(capsys):
    assert main(["explain", "np.add.out"]) == 0
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines()[3:7]] == [
        "derivative", "batching rule", "fake", "backends"]
    assert "derivative: of x1, x2, of every order" in out
    assert dump_table(ops.np.add.out).strip() in out
    with ops_library("fresh_parts"):
        assert main(["explain", "fresh_parts.twice"]) == 0
    out = capsys.readouterr().out
    assert "derivative: none is registered" in out
    assert "batching rule: none, and vmap calls the kernel once per example" in out
    assert "fake: none" in out
    assert "backends: CPU" in out
