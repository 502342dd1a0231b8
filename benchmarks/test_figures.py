"""The figures show the rows that the benchmarks write, as small files for light and dark pages."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.cases.dispatch import ADD
from benchmarks.cases.gradients import GRADIENTS
from benchmarks.cases.interpreters import INTERPRETER
from benchmarks.cases.large import LARGE, MODULES, NUMBA, OVER_NUMBA, SIZES, WITH_NUMBA
from benchmarks.cases.large_tasks import TASKS
from benchmarks.cases.programs import programs
from benchmarks.cases.python_dispatch import ADDED
from benchmarks.cases.scan_tasks import SCAN_TASKS
from benchmarks.cases.scans import SCANS


def row(group, name, value, **times):
    return {"group": group, "name": name, "value": value, "times": times}


LARGE_ROWS = [
    row(LARGE.format(task, size), f"{way}{threads}", 0.5, **{way: 0.5 * size, "numpy": 1.0 * size})
    for task in TASKS for size in SIZES for way in MODULES for threads in ("", ", 2 threads")
] + [
    row(LARGE.format(task, size), OVER_NUMBA, 1.0, **{WITH_NUMBA: 9.0, NUMBA: 9.0}) for task in TASKS for size in SIZES
]
SMALL_ROWS = [
    row(group, name, value)
    for group in (*map(GRADIENTS.format, (program.title for program in programs())), *map(SCANS.format, SCAN_TASKS))
    for name, value in (("compile", 0.1), ("plan", 0.1), ("func.grad", 0.9), ("jax.lax.scan", 0.5), ("jax.grad", 300))
]
SCANNED = [f"scan: {title}" for title in SCAN_TASKS]
COST_ROWS = [
    *[row(group, name, 0.5, **{way: 100.0, "plain": 50.0}) for group, name, way, _ in figures.CALLS[1:]],
    *[row(figures.STACK, f"{transform}, {operator}", 0.2, **{f"depth {n}": 200.0 * n for n in (1, 2, 3, 4)})
      for transform in figures.STACK_COLOURS for operator in ("sin", "sum")],
]
COST_ROWS[0]["times"]["add(x, y)"] = 250.0
OTHER_ROWS = [row("Small calls, more than NumPy", "x[0]", 0.1)]


def test_times_with_one_thread_and_numpys_are_points():
    points = figures.points_of(LARGE_ROWS + OTHER_ROWS)
    assert {point.task for point in points} == set(TASKS)
    assert {point.way for point in points} == {*MODULES, "NumPy"} == set(figures.COLOURS)
    assert len(points) == len(TASKS) * len(SIZES) * (len(MODULES) + 1)
    assert {(point.way == "NumPy", point.nanoseconds / point.size) for point in points} == {(True, 1), (False, 0.5)}


def test_gradients_and_scans_are_bars():
    bars = figures.bars_of(SMALL_ROWS + OTHER_ROWS)
    assert list(bars) == [program.title for program in programs()] + SCANNED
    assert all(values == {"compiled": 0.1, "func.grad": 0.9, "JAX": 0.5} for values in bars.values())


def test_calls_through_layers_and_nested_transforms_are_found():
    calls = figures.calls_of(COST_ROWS + OTHER_ROWS)
    assert list(calls) == [title for *_, title in figures.CALLS]
    assert list(calls.values()) == [250.0, *[100.0] * 6]
    added = figures.stacks_of(COST_ROWS + OTHER_ROWS)
    lines = {transform: [0.2, 0.4, 0.6, 0.8] for transform in ("vmap", "grad", "jvp")}
    assert added == {"sin": lines, "sum": lines}


def test_the_groups_of_costs_are_measured():
    assert (figures.ADD, figures.HANDLERS, figures.STACK) == (ADD, ADDED, INTERPRETER)


def test_costs_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    call, stack = figures.draw(COST_ROWS, tmp_path)
    assert (call.name, stack.name) == ("costs-call.svg", "costs-stack.svg")
    for path, names in ((call, [title for *_, title in figures.CALLS]), (stack, ["sin", "sum", "vmap", "grad", "jvp"])):
        shown = {"".join(element.itertext()).strip() for element in ElementTree.fromstring(path.read_text()).iter()}
        assert set(names) <= shown


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("figures")
    (folder / "rows.json").write_text(json.dumps({"rows": LARGE_ROWS}))
    (folder / "more.json").write_text(json.dumps({"rows": SMALL_ROWS}))
    command = [sys.executable, figures.__file__, folder / "rows.json", folder / "more.json", folder]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {Path(line).name: Path(line).read_text() for line in output.splitlines()}


def test_a_figure_is_drawn_for_what_was_measured(drawn, tmp_path):
    assert list(drawn) == ["compile-large.svg", "compile-small.svg"]
    assert figures.draw(OTHER_ROWS, tmp_path) == []


def test_a_figure_names_all_that_it_shows(drawn):
    for text, names in ((drawn["compile-large.svg"], [*TASKS, *figures.COLOURS]),
                        (drawn["compile-small.svg"], [*SCANNED, "compiled", "func.grad", "JAX"])):
        shown = {"".join(element.itertext()).strip() for element in ElementTree.fromstring(text).iter()}
        assert set(names) <= shown


def test_figures_are_small_and_have_no_background(drawn):
    for text in drawn.values():
        assert len(text) < 100_000
        assert "#ffffff" not in text
        assert "#000000" not in text


def test_figures_are_the_same_each_time(drawn, tmp_path):
    for path in figures.draw(LARGE_ROWS + SMALL_ROWS, tmp_path):
        assert path.read_text() == drawn[path.name]
