"""`python -m pydispatch demo`: an operator, from its first kernel to the cost of a call.

Each step is a function: its docstring is the printed text, and its body is the code that is shown and then run.
"""

# tests: tests/cli/test_main.py
from __future__ import annotations

import inspect
import re
import statistics
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch._registry.backends import register_backend
from pydispatch._registry.registrations import Handle
from pydispatch._registry.tables import table_entry
from pydispatch.backends.meta import MetaArray
from pydispatch.cli.console import Cell, Column, Plain, Rich, bar
from pydispatch.cli.timing import make_loop, quiet, time_in_rounds
from pydispatch.keys import runtime_keys
from pydispatch.library import Library, get_kernel
from pydispatch.ops import ops

Function = Callable[..., Any]

ROWS, COLUMNS = 26, 38      # size of the pictures. A character shows two rows
LINTERS = re.compile(r"  # (type: ignore|noqa).*")


# --- data and kernels ------------------------------------------------------------------------------------


def mandelbrot(rows=ROWS, columns=COLUMNS, steps=24):  # type: ignore[no-untyped-def]
    """Return how long z*z + c stays bounded for each point c, from 0 to 1, in the shape (rows, columns)."""
    c = np.linspace(-2.1, 0.7, columns) + 1j * np.linspace(1.2, -1.2, rows)[:, np.newaxis]
    z, count = np.zeros_like(c), np.zeros(c.shape)
    for _ in range(steps):
        near = abs(z) < 2
        z = np.where(near, z * z + c, z)
        count += near
    return (count - 1) / (steps - 1)


def blur_numpy(image, radius=1):  # type: ignore[no-untyped-def]
    width = 2 * radius + 1
    padded = np.pad(image, radius, mode="edge")
    windows = sliding_window_view(padded, (width, width))
    return windows.mean((-2, -1))


def blur_masked(image, radius=1):  # type: ignore[no-untyped-def]
    valid = blur_numpy(~np.ma.getmaskarray(image), radius)  # type: ignore[no-untyped-call]
    total = blur_numpy(image.filled(0), radius)  # type: ignore[no-untyped-call]
    mean = total / np.where(valid, valid, 1)
    return np.ma.masked_array(mean, mask=valid == 0)


def blur_meta(image, radius=1):  # type: ignore[no-untyped-def]
    return MetaArray(image.shape, np.float64)


# --- steps -----------------------------------------------------------------------------------------------


def kernel_first() -> Library:
    """1 · A kernel, and later its operator

    A kernel is a NumPy function. You can register it before its operator exists: the order does not matter.
    """
    lib = Library("demo", "DEF")
    lib.impl("blur", blur_numpy, "CPU")
    lib.define("blur(Tensor image, int radius=1) -> Tensor")
    return lib


def call_it(picture: Any) -> Any:
    """2 · A call

    NumPy arrays have the key CPU, so our kernel runs on this picture of the Mandelbrot set.
    """
    blurred = ops.demo.blur(picture, radius=2)
    return blurred  # noqa: RET504


def second_backend(lib: Library, picture: Any) -> tuple[Any, Any]:
    """3 · A second backend

    Masked arrays have holes, which the kernel above ignores. They become a backend with a separate kernel.
    """
    register_backend("Masked", np.ma.MaskedArray)
    lib.impl("blur", blur_masked, "Masked")
    holes = np.random.default_rng(0).random(picture.shape) < 0.12
    damaged = np.ma.masked_array(picture, holes)
    repaired = ops.demo.blur(damaged)
    return damaged, repaired


def override(lib: Library) -> Handle:
    """4 · Wrap and delegate

    The mean of bytes is not a byte. This override returns bytes without a change to the first kernel.
    """
    previous = get_kernel("demo::blur", "CPU")

    def blur_bytes(image, radius=1):  # type: ignore[no-untyped-def]
        if image.dtype != np.uint8:
            return previous(image, radius)
        return np.rint(previous(image, radius)).astype(np.uint8)

    handle = lib.impl("blur", blur_bytes, "CPU")
    return handle  # noqa: RET504


def meta_kernel(lib: Library) -> None:
    """5 · What you pass is what you get

    Arrays in, arrays out. A Tensor in, Tensors out. A MetaArray has a shape and no data. This one describes a picture
    of 19 gigabytes, and its kernel computes the shape of the result.
    """
    lib.impl("blur", blur_meta, "Meta")


# --- showing ---------------------------------------------------------------------------------------------


def run(out: Plain | Rich, step: Function, *args: Any, kernel: Function | None = None) -> Any:
    """Show the kernel that a step registers and the step, run the step, and show its warnings."""
    title, _, text = inspect.cleandoc(step.__doc__ or "").partition("\n\n")
    out.heading(title)
    out.paragraph(" ".join(text.split()))
    out.line()
    out.code(body(step) if kernel is None else f"{source(kernel)}\n\n\n{body(step)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = step(*args)
    for warning in caught:
        out.line()
        out.paragraph(f"{warning.category.__name__}: {str(warning.message).splitlines()[0]}")
    return result


def source(function: Function) -> str:
    """Return the source of a function, without comments for linters."""
    return LINTERS.sub("", textwrap.dedent(inspect.getsource(function))).strip()


def body(function: Function) -> str:
    """Return the statements of a step, without its docstring and its return statement."""
    statements = textwrap.dedent(source(function).rpartition('"""\n')[2])
    return "\n".join(line for line in statements.splitlines() if not line.startswith("return ")).strip()


def show_kinds(out: Plain | Rich, picture: Any) -> None:
    """Print the result for each kind of array, and the kernel that computed it."""
    as_bytes = (255 * picture).astype(np.uint8)
    masked = np.ma.masked_array(picture)
    rows = []
    for value in (picture, as_bytes, Tensor(picture), masked, MetaArray((40_000, 60_000))):
        result = ops.demo.blur(value)
        kernel = ops.demo.blur.explain(value).kernel
        rows.append((describe(value), describe(result), Cell(short_name(kernel), "name")))
    out.table([Column("passed"), Column("came back"), Column("kernel")], rows)


def short_name(kernel: Any) -> str:
    """Return the name of a kernel, without the name of the enclosing function."""
    return str(kernel.name.rpartition(".")[2])


def describe(value: Any) -> str:
    """Return the type, dtype and shape of a value as text."""
    return f"{type(value).__name__} {value.dtype}{list(value.shape)}"


def show_table(out: Plain | Rich) -> None:
    """Print the table of the operator: the keys that run something, and those that fall through."""
    out.heading("6 · The resolved table")
    out.paragraph(
        "Computed from the registrations when the operator is first called. A call runs its highest key. Keys "
        "further down in the table are lower."
    )
    operator = ops.demo.blur.default
    entries = [(key, entry) for key in reversed(runtime_keys()) if (entry := table_entry(operator, key))]
    out.table([Column("key"), Column("kernel"), Column("chosen as")], [
        (Cell(key.name, "name"), short_name(entry.kernel), Cell(str(entry.label), "dim"))
        for key, entry in entries if not entry.is_fallthrough
    ])
    passed_over = ", ".join(key.name for key, entry in entries if entry.is_fallthrough)
    out.line()
    out.paragraph(f"Passed over: {passed_over}.")


def show_explanation(out: Plain | Rich, picture: Any) -> None:
    """Print what a call would do."""
    out.heading("7 · Why this kernel?")
    out.code("ops.demo.blur.explain(Tensor(picture), radius=2)")
    out.line()
    out.tree(str(ops.demo.blur.explain(Tensor(picture), radius=2)))


def show_cost(out: Plain | Rich, picture: Any, lib: Library) -> None:
    """Print what a dispatch adds to the time of a kernel."""
    lib.define("second(Tensor first, Tensor second) -> Tensor", _core.second_argument, "CPU")
    x = np.arange(4.0)
    names = {
        "blur_numpy": blur_numpy, "blur": ops.demo.blur, "picture": picture, "tensor": Tensor(picture),
        "c_function": _core.second_argument, "second": ops.demo.second, "x": x, "t": Tensor(x),
    }
    out.heading("8 · What it costs")
    out.paragraph(
        "The handle removes the override, and the first kernel is active again. Below, it is called directly, "
        "through the operator, and through the operator on a Tensor. A difference of one or two percent is noise. "
        "Then the same for a C function that only returns its second argument."
    )
    groups = (
        ("blur_numpy(picture)", "blur(picture)", "blur(tensor)"),
        ("c_function(x, x)", "second(x, x)", "second(t, t)"),
    )
    rows = [row for calls in groups for row in cost_rows(calls, names)]
    out.table([Column("call"), Column("time", right=True), Column("dispatch adds", right=True), Column("")], rows)


def cost_rows(calls: Sequence[str], names: dict[str, Any]) -> Iterator[tuple[str | Cell, ...]]:
    """Yield a row per call, compared with the first of them."""
    with quiet():
        rounds = time_in_rounds([make_loop(call, names) for call in calls], 61)
    direct = statistics.median(times[0] for times in rounds)
    for i, call in enumerate(calls):
        time = statistics.median(times[i] for times in rounds)
        # long times as a percentage, because the address of the stack changes them by more than a dispatch costs
        added = f"{time - direct:+.0f} ns" if direct < 1000 else f"{time / direct - 1:+.1%}"
        filled = bar(time, direct, width=20, mark_at=4)
        yield Cell(call, "name"), with_unit(time), added if i else "", filled


def with_unit(nanoseconds: float) -> str:
    """Format a time with its unit."""
    return f"{nanoseconds:.0f} ns" if nanoseconds < 1000 else f"{nanoseconds / 1000:.1f} µs"


def main(out: Plain | Rich) -> None:
    """Run the whole demonstration."""
    picture = mandelbrot()  # type: ignore[no-untyped-call]
    out.paragraph("An operator for pictures, from its first kernel to its cost. The code runs as shown.")
    with run(out, kernel_first, kernel=blur_numpy) as lib:
        blurred = run(out, call_it, picture)
        out.line()
        out.pictures({"picture": picture, "ops.demo.blur(picture, radius=2)": blurred})
        damaged, repaired = run(out, second_backend, lib, picture, kernel=blur_masked)
        out.line()
        out.pictures({"damaged": damaged.filled(np.nan), "ops.demo.blur(damaged)": repaired.filled(np.nan)})
        handle = run(out, override, lib)
        run(out, meta_kernel, lib, kernel=blur_meta)
        show_kinds(out, picture)
        show_table(out)
        show_explanation(out, picture)
        handle.remove()
        show_cost(out, picture, lib)
