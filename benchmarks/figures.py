"""The figures of docs/compile.md and docs/performance.md, drawn from what `python -m benchmarks` has measured.

    python -m benchmarks --rows "large arrays" --json large.json
    python -m benchmarks --rows "a step of a scan" --json scans.json
    python -m benchmarks --rows "gradient of a*" --json gradients.json
    python -m benchmarks.figures large.json scans.json gradients.json docs

draws compile-large.svg and compile-small.svg into docs/, of all rows in the files; `--rows "np.add on"` and
`--rows "what an interpreter adds"` give those of costs-call.svg and costs-stack.svg. Needs matplotlib, which is in the
extra `examples`. Colours and lines are those that light and dark pages show equally well.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

GREY = "#808080"
COLOURS = {
    "NumPy": GREY, "plan": "#e0532d", "numba": "#2a9d5c", "jax.jit": "#3d7fd9", "numexpr": "#b8860b",
    "backend numba": "#7fc8a0", "roofline": GREY,
}
DASHED = {"roofline": (0, (1, 2))}
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "pydispatch", "font.size": 9, "text.color": GREY, "axes.edgecolor": GREY,
    "axes.labelcolor": GREY, "axes.titlecolor": GREY, "xtick.color": GREY, "ytick.color": GREY, "axes.titlesize": 9,
    "axes.spines.top": False, "axes.spines.right": False,
}
LARGE = re.compile(r"Large arrays: (.+), ([\d,]+) elements, over NumPy")
SCAN = re.compile(r"A step of a scan: (.+), over NumPy")
GRADIENT = re.compile(r"Gradient of (.+)")
ADD = "np.add on 4-element arrays"
HANDLERS = "What handlers in Python add to np.add on 4-element Tensors, each"
STACK = "Transforms: what an interpreter adds to an operator"
BARS = {        # name of a row -> what the legend says
    "Tensor.backward": "tape", "func.grad": "func.grad", "compile": "compiled", "plan": "compiled",
    "jax.jit of jax.grad": "JAX", "jax.lax.scan": "JAX", "numba, by hand": "numba", "numba": "numba",
}
BAR_COLOURS = {"tape": "#8a63d2", "func.grad": "#c77d9b", "compiled": COLOURS["plan"], "JAX": COLOURS["jax.jit"],
               "numba": COLOURS["numba"]}
CALLS = [       # group, row, which of its times, what the figure says
    (ADD, "raw arrays", "add(x, y)", "np.add of NumPy's"),
    (ADD, "raw arrays", "op(x, y)", "operator, arrays"),
    (ADD, "Tensors", "op(X, Y)", "operator, Tensors"),
    (HANDLERS, "mode ×1", "×1", "under a mode"),
    (HANDLERS, "mode ×2", "×2", "under two modes"),
    (HANDLERS, "wrapper subclass ×1", "×1", "a wrapper subclass"),
    (HANDLERS, "wrapper subclass ×2", "×2", "two around one another"),
]
STACK_COLOURS = {"vmap": COLOURS["plan"], "grad": COLOURS["jax.jit"], "jvp": COLOURS["numba"]}


class Point(NamedTuple):
    """A measured time: of which task, in which way, at which size."""

    task: str
    way: str
    size: int
    nanoseconds: float


def points_of(rows: Iterable[dict[str, Any]]) -> list[Point]:
    """Return the times of all ways on large arrays with one thread, NumPy's too."""
    found: dict[tuple[str, str, int], Point] = {}
    for row in rows:
        match = LARGE.fullmatch(row["group"])
        if match and row["name"] in COLOURS:
            task, size = match[1], int(match[2].replace(",", ""))
            times = row["times"]
            for way, time in ((row["name"], times[row["name"]]), ("NumPy", times["numpy"])):
                found[task, way, size] = Point(task, way, size, time)
    return sorted(found.values())


def bars_of(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return for each small program and scan the time over NumPy's, by its name in the legend."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        gradient, scan = GRADIENT.fullmatch(row["group"]), SCAN.fullmatch(row["group"])
        if (gradient or scan) and row["name"] in BARS:
            title = gradient[1] if gradient else f"scan: {scan[1]}"
            found.setdefault(title, {})[BARS[row["name"]]] = row["value"]
    return found


def calls_of(rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Return nanoseconds of one addition of four numbers, by the layers that it goes through."""
    times = {(row["group"], row["name"]): row["times"] for row in rows}
    return {title: times[group, name][way] for group, name, way, title in CALLS if (group, name) in times}


def stacks_of(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """Return for each operator and transform what 1, 2, ... of them add to a call, in microseconds."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["group"] == STACK:
            transform, operator = row["name"].split(", ")
            found.setdefault(operator, {})[transform] = [time / 1000 for time in row["times"].values()]
    return found


def draw_large(pyplot: Any, points: Sequence[Point]) -> Any:
    """Draw a panel for each task: nanoseconds for each element, over the number of elements."""
    tasks = list(dict.fromkeys(point.task for point in points))
    columns = 3
    figure, grid = pyplot.subplots(-(-len(tasks) // columns), columns, figsize=(9, 5.4), squeeze=False)
    for axes, task in zip(grid.flat, tasks, strict=False):
        for way, colour in COLOURS.items():
            line = [(point.size, point.nanoseconds / point.size) for point in points
                    if (point.task, point.way) == (task, way)]
            if line:
                axes.loglog(*zip(*line, strict=True), color=colour, linestyle=DASHED.get(way, "-"), label=way,
                            linewidth=2.5 if way == "plan" else 1.3, marker=None if way in DASHED else ".")
        axes.set_title(task)
        axes.minorticks_off()
    for axes in grid.flat[len(tasks):]:
        axes.axis("off")
    for axes in grid[:, 0]:
        axes.set_ylabel("ns for each element")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower right", frameon=False, bbox_to_anchor=(0.97, 0.12))
    return figure


def draw_small(pyplot: Any, bars: dict[str, dict[str, float]]) -> Any:
    """Draw a group of bars for each program: time over NumPy's, which is the line at 1."""
    figure, axes = pyplot.subplots(figsize=(9, 0.75 * len(bars) + 0.8))
    height = 0.8 / len(BAR_COLOURS)
    for i, (name, colour) in enumerate(BAR_COLOURS.items()):
        rows = [(-n - i * height, values[name]) for n, values in enumerate(bars.values()) if name in values]
        if rows:
            axes.barh(*zip(*rows, strict=True), height=height * 0.9, color=colour, label=name)
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_yticks([-n - 0.4 + height / 2 for n in range(len(bars))], list(bars))
    axes.set_xlabel("time over that of hand-written NumPy, which is 1")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def draw_calls(pyplot: Any, calls: dict[str, float]) -> Any:
    """Draw a bar for each way to call, with its nanoseconds."""
    figure, axes = pyplot.subplots(figsize=(7, 0.36 * len(calls) + 0.6))
    colours = [GREY if "NumPy" in title else COLOURS["plan"] for title in calls]
    bars = axes.barh(list(calls), list(calls.values()), height=0.7, color=colours)
    axes.bar_label(bars, fmt="{:.0f}", padding=4, color=GREY)
    axes.invert_yaxis()
    axes.set_xlabel("ns for one addition of four numbers")
    return figure


def draw_stacks(pyplot: Any, stacks: dict[str, dict[str, list[float]]]) -> Any:
    """Draw a panel for each operator, a line for each transform, over how many of it are nested."""
    figure, grid = pyplot.subplots(1, len(stacks), figsize=(9, 2.6), sharey=True, squeeze=False)
    for axes, (operator, lines) in zip(grid.flat, stacks.items(), strict=True):
        for transform, added in lines.items():
            axes.plot(range(1, len(added) + 1), added, marker=".", color=STACK_COLOURS[transform], label=transform)
        axes.set(title=operator, ylim=(0, 4), xticks=[1, 2, 3, 4])
    grid[0, 0].set_ylabel("µs that they add to a call")
    grid[0, len(stacks) // 2].set_xlabel("nested transforms")
    grid[0, -1].legend(frameon=False, loc="upper left")
    return figure


def draw(rows: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Draw all figures that the rows are for, and return their files."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    drawn = []
    with mpl.rc_context(STYLE):
        figures = [("compile-large", draw_large, points_of(rows)), ("compile-small", draw_small, bars_of(rows)),
                   ("costs-call", draw_calls, calls_of(rows)), ("costs-stack", draw_stacks, stacks_of(rows))]
        for name, function, data in figures:
            if data:
                figure = function(pyplot, data)
                figure.tight_layout()
                drawn.append(folder / f"{name}.svg")
                figure.savefig(drawn[-1], transparent=True, metadata={"Date": None}, bbox_inches="tight")
                pyplot.close(figure)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="what `python -m benchmarks --json FILE` wrote")
    parser.add_argument("folder", type=Path, help="where the figures go")
    arguments = parser.parse_args()
    for path in draw([row for file in arguments.files for row in json.loads(file.read_text())["rows"]],
                     arguments.folder):
        print(path)


if __name__ == "__main__":
    main()
