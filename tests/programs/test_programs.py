"""Ordinary NumPy programs, on arrays, on Tensors, with gradients and in batches, none of them changed."""

import importlib
import warnings
from pathlib import Path

import numpy
import pytest

import pydispatch.numpy
from pydispatch import Tensor
from pydispatch.func import vmap
from pydispatch.testing import gradcheck
from pydispatch.tree import tree_leaves

PROGRAMS = sorted(path.stem for path in Path(__file__).parent.glob("*.py")
                  if path.stem not in ("__init__", "test_programs"))
SMOOTH = dict.fromkeys(PROGRAMS, (0,)) | {
    "n_body": (0, 1, 2), "lotka_volterra": (0, 1), "black_scholes": (0, 1, 2, 3, 4), "kalman_filter": (0, 1, 2),
    "page_rank": (0, 1), "heat_equation": (0, 1), "convolution_by_fft": (0, 1), "ray_marching": (0, 1, 2),
    "metropolis": (0, 1), "ridge_regression": (0, 1, 2), "hidden_markov_model": (0, 1, 2),
    "principal_components": (0, 1), "text_statistics": (1,), "spectral_clustering": (0, 1), "k_means": (0, 1),
}
"""The arguments that the results depend on smoothly."""
WITHOUT_GRADIENT = {"game_of_life": "of integers", "forest_fire": "of integers", "mandelbrot": "counts steps"}
BRANCHES = {"metropolis": "accepts by the value", "lu_by_hand": "swaps rows by the value",
            "forest_fire": "counts with Python integers", "text_statistics": "has as many letters as the values say"}
"""Programs that decide by values, which an example of a batch cannot."""

smooth = pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in WITHOUT_GRADIENT])


@pytest.fixture(params=["numpy", "pydispatch.numpy"])
def namespace(request):
    """Provide the program's np: NumPy itself, or ours in its place."""
    return {"numpy": numpy, "pydispatch.numpy": pydispatch.numpy}[request.param]


@pytest.fixture
def program(name, namespace, monkeypatch):
    module = importlib.import_module(f"tests.programs.{name}")
    monkeypatch.setattr(module, "np", namespace)
    return module


def as_arrays(result):
    return [leaf.detach().numpy() if isinstance(leaf, Tensor) else numpy.asarray(leaf) for leaf in tree_leaves(result)]


def check_same(found, expected):
    for left, right in zip(as_arrays(found), as_arrays(expected), strict=True):
        assert left.dtype == right.dtype
        numpy.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_tensors_as_on_arrays(name, program):
    arguments = program.example()
    expected = importlib.import_module(f"tests.programs.{name}").main(*arguments)
    found = program.main(*map(Tensor, arguments))
    assert any(isinstance(leaf, Tensor) for leaf in tree_leaves(found))
    check_same(found, expected)


@smooth
def test_gradients_are_those_of_finite_differences(name, program):
    arguments = program.example()
    places = SMOOTH[name]
    tensors = [Tensor(arguments[i], requires_grad=True) for i in places]

    def results(*values):
        call = list(map(Tensor, arguments))
        for i, value in zip(places, values, strict=True):
            call[i] = value
        return [leaf for leaf in tree_leaves(program.main(*call))
                if isinstance(leaf, Tensor) and leaf.dtype.kind == "f" and leaf.requires_grad]

    assert results(*tensors)
    gradcheck(results, tensors, eps=1e-6, atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in BRANCHES])
def test_in_a_batch_as_in_a_loop(name, program):
    first, *others = program.example()
    batch = numpy.stack([first, first[::-1] if name != "floyd_warshall" else first.T, first])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = vmap(lambda x: program.main(x, *others))(batch)
        expected = [program.main(x, *others) for x in batch]
    for i, leaf in enumerate(tree_leaves(found)):
        loop = numpy.stack([as_arrays(each)[i] for each in expected])
        numpy.testing.assert_allclose(numpy.asarray(leaf), loop, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_knows_numpy_alone(name):
    text = (Path(__file__).parent / f"{name}.py").read_text()
    assert [line for line in text.splitlines() if line.startswith(("import", "from"))] == ["import numpy as np"]
    assert len(text.splitlines()) <= 100


def test_there_are_twenty():
    assert len(PROGRAMS) == 20
