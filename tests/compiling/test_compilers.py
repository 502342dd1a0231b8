"""Other compilers: registered by name or by an entry point, on threads, and with results that are never shared."""

import pickle
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from pydispatch import Tensor, compile, ops, register_compiler
from pydispatch.compiling import compilers
from pydispatch.exceptions import CompilationError, RegistrationError
from pydispatch.func import grad, vmap
from pydispatch.tracing import Graph
from tests.compiling.same import check_same

X = np.random.default_rng(0).standard_normal((2, 3))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Remove the compilers that a test registers."""
    monkeypatch.setattr(compilers, "_compilers", {name: compilers._compilers[name] for name in ("plan", "python")})


def interpreted(graph):
    """Return a compiler that runs a graph node by node."""
    return graph.interpret


def test_a_compiler_gets_a_graph_once_for_each_kind_of_arguments():
    graphs = []
    register_compiler("mine", lambda graph: graphs.append(graph) or interpreted(graph))
    compiled = compile(lambda x: ops.np.sin(x) * 2, backend="mine")
    for x in (X, X, X[0], X):
        check_same(compiled(x), np.sin(x) * 2)
    assert [type(graph) for graph in graphs] == [Graph, Graph]
    spec = graphs[0].placeholders[0].meta["val"]
    assert (spec.shape, spec.dtype) == ((2, 3), np.float64)
    assert compiled.cache_info() == (2, 2, 2)


def test_transforms_and_tensors_go_to_the_compiler_too():
    calls = []

    def lower(graph):
        calls.append(graph)
        return lambda *arrays: tuple(graph(*arrays))

    register_compiler("mine", lower)
    compiled = compile(lambda x: (ops.np.sin(x) * x).sum(), backend="mine")
    expected = grad(lambda x: (ops.np.sin(x) * x).sum())(X)
    np.testing.assert_allclose(grad(compiled)(X), expected, rtol=1e-14)
    assert len(calls) == 2      # forward and backward
    np.testing.assert_allclose(vmap(compiled)(X), [(np.sin(x) * x).sum() for x in X], rtol=1e-14)
    leaf = Tensor(X, requires_grad=True)
    compiled(leaf).backward()
    np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("result", [
    lambda x: x, lambda x: x.T, lambda x: x[:1], lambda x: np.broadcast_to(x[0, 0], (2, 3)),
    lambda x: np.asfortranarray(x), lambda x: x.astype(">f8"),
], ids=["argument", "transposed", "view", "read-only", "another order", "another byte order"])
def test_results_are_new_arrays_in_c_order(result):
    register_compiler("mine", lambda graph: lambda x: (result(x), result(x)))
    compiled = compile(lambda x: (x + 1, x), backend="mine")
    x = X.copy()
    first, second = compiled(x)
    np.testing.assert_array_equal(first, result(x))
    for array, others in ((first, (x, second)), (second, (x, first))):
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.dtype.isnative
        assert not any(np.may_share_memory(array, other) for other in others)


def test_threads():
    seen = []

    def with_threads(graph, threads=1):
        seen.append(threads)
        return interpreted(graph)

    register_compiler("with threads", with_threads)
    register_compiler("with options", lambda graph, **options: seen.append(options) or interpreted(graph))
    register_compiler("without", interpreted)
    for backend, n_threads in (("with threads", None), ("with threads", 3), ("with options", 2), ("without", 1)):
        check_same(compile(lambda x: (x * 2,), backend=backend, threads=n_threads)(X), (X * 2,))
    assert seen == [1, 3, {"threads": 2}]
    with pytest.raises(CompilationError, match="threads is 2, and the compiler 'without' uses one\nleave threads out"):
        compile(lambda x: x * 2, backend="without", threads=2)(X)


def test_entry_points(monkeypatch):
    loaded = []

    class Point(EntryPoint):
        def load(self):
            loaded.append(self.name)
            return interpreted

    points = [Point("theirs", "package:lower", compilers.GROUP), Point("another", "package:other", compilers.GROUP)]

    def entry_points(group, name=None):
        assert group == "pydispatch.compilers"
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(compilers, "entry_points", entry_points)
    with pytest.raises(CompilationError, match=r"expected one of 'another', .*'plan', 'python', 'theirs'\n"):
        compile(lambda x: x, backend="nobodys")
    assert loaded == []
    for _ in range(2):
        check_same(compile(lambda x: (x * 2,), backend="theirs")(X), (X * 2,))
    assert loaded == ["theirs"]


@pytest.mark.parametrize(("name", "lower", "message"), [
    ("plan", interpreted, "there is a compiler 'plan' already\nchoose another name"),
    ("python", interpreted, "there is a compiler 'python' already"),
    ("numba", interpreted, "there is a compiler 'numba' already"),
    ("mine", None, "lower is a NoneType, expected a function\npass"),
    ("mine", "graph", "lower is a str"),
    (3, interpreted, "name is 3, expected a str\n"),
    (None, interpreted, "name is None, expected a str\n"),
], ids=["plan", "python", "numba", "None", "text", "number", "no name"])
def test_wrong_registrations(name, lower, message):
    with pytest.raises(RegistrationError, match=message):
        register_compiler(name, lower)
    assert set(compilers._compilers) >= {"plan", "python"}
    assert "mine" not in compilers._compilers


def test_errors_of_a_compiler_are_its_own():
    def lower(graph):
        raise ZeroDivisionError("of the compiler")

    register_compiler("mine", lower)
    compiled = compile(lambda x: x * 2, backend="mine")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="of the compiler"):
            compiled(X)
    check_same(compiled.graph(X)(X), (X * 2,))


def test_plan_and_explain_of_another_compiler():
    compiled = compile(lambda x: ops.np.sin(x) * 2, backend="python")
    assert "sin = np_sin(x_1)" in compiled.plan(X)
    assert "backend python" in compiled.explain(X)


# --- packages --------------------------------------------------------------------------------------------------------


def install(folder, name, module, text):
    """Write a package like an installer, with a compiler among its entry points."""
    (folder / f"{module}.py").write_text(text)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[pydispatch.compilers]\n{name} = {module}:lower\n")


def test_an_installed_package_is_imported_when_its_compiler_is_named(tmp_path, monkeypatch):
    source = "def lower(graph):\n    return lambda *arrays: graph(*arrays)\n"
    install(tmp_path, "installed", "compiler_of_a_package", source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(CompilationError, match="expected one of 'installed', 'numba', 'plan', 'python'"):
        compile(lambda x: (x * 2,), backend="nothing")
    assert "compiler_of_a_package" not in sys.modules
    check_same(compile(lambda x: (x * 2,), backend="installed")(X), (X * 2,))
    assert compilers._compilers["installed"] is sys.modules["compiler_of_a_package"].lower
    del sys.modules["compiler_of_a_package"]


@pytest.mark.parametrize("missing", ["numba", "llvmlite"])
def test_a_missing_package_is_named_with_its_extra(missing, monkeypatch):
    if missing == "llvmlite":
        pytest.importorskip("numba")
    for module in ("numba_backend", "numba_functions"):
        monkeypatch.delitem(sys.modules, f"pydispatch.compiling.{module}", raising=False)
    compilers._compilers.pop("numba", None)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(CompilationError, match=f"backend 'numba' needs the package {missing}, which is not installed\n"
                                               r"install it: pip install 'pydispatch-numpy\[numba\]'"):
        compile(lambda x: x, backend="numba")


def product(x):
    return (ops.np.sin(x) * 2).sum()


def test_pickles_compile_again():
    graphs = []
    register_compiler("mine", lambda graph: graphs.append(graph) or interpreted(graph))
    compiled = compile(product, backend="mine")
    np.testing.assert_array_equal(compiled(X), product(X))
    again = pickle.loads(pickle.dumps(compiled))
    np.testing.assert_array_equal(again(X), product(X))
    assert len(graphs) == 2
    assert again.cache_info().currsize == 1


@pytest.mark.parametrize("transform", [grad, vmap], ids=["grad", "vmap"])
def test_the_straight_line_inside_and_around_of_transforms(transform):
    for found in (compile(transform(product), backend="python")(X), transform(compile(product, backend="python"))(X)):
        np.testing.assert_allclose(found, transform(product)(X), rtol=1e-14)
