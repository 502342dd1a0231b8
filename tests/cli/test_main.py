"""The command line, as its users meet it: in a pipe, on a terminal, with mistakes in what they typed."""

import json
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import version

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch._registry import registrations
from pydispatch.backends.meta import MetaArray
from pydispatch.cli import bench, demo
from pydispatch.cli.console import has_rich
from pydispatch.cli.explain import parse_value
from pydispatch.cli.main import main
from pydispatch.debug import dump_table
from pydispatch.exceptions import DispatchError

COMMAND = [sys.executable, "-m", "pydispatch"]
ESCAPES = re.compile(r"\x1b\[[\d;?]*[a-zA-Z]")


def on_a_terminal(columns, *words):
    """Return the output of a command on a terminal of that width."""
    ours, theirs = os.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "24"}
    with subprocess.Popen([*COMMAND, *words], stdout=theirs, stderr=theirs, env=variables) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:     # Linux says so at the end
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    assert process.returncode == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


# --- demo ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown():
    """Provide the output of the demo in a pipe."""
    completed = subprocess.run([*COMMAND, "demo"], capture_output=True, text=True, encoding="utf-8", check=False)
    assert completed.returncode == 0, completed.stderr
    assert completed.stderr == ""
    return completed.stdout


def test_demo_shows_every_step(shown):
    titles = re.findall(r"^(\d) · (.*)\n─+$", shown, re.MULTILINE)
    assert [int(number) for number, _ in titles] == list(range(1, 9))


@pytest.mark.parametrize("step", [
    demo.kernel_first, demo.call_it, demo.second_backend, demo.override, demo.meta_kernel,
    demo.blur_numpy, demo.blur_masked, demo.blur_meta,
])
def test_demo_shows_the_code_that_it_runs(shown, step):
    code = demo.source(step) if step.__name__.startswith("blur") else demo.body(step)
    assert "".join(f"    {line}\n" if line else "\n" for line in code.splitlines()) in shown
    assert "type: ignore" not in code


def test_demo_tells_what_happened(shown):
    assert "OverrideWarning: operator demo::blur: the kernel" in shown
    for passed, returned, kernel in [
        ("ndarray uint8[26, 38]", "ndarray uint8[26, 38]", "blur_bytes"),
        ("Tensor float64[26, 38]", "Tensor float64[26, 38]", "blur_bytes"),
        ("MaskedArray float64[26, 38]", "MaskedArray float64[26, 38]", "blur_masked"),
        ("MetaArray float64[40000, 60000]", "MetaArray float64[40000, 60000]", "blur_meta"),
    ]:
        assert re.search(rf"^{re.escape(passed)}  +{re.escape(returned)}  +{kernel}$", shown, re.MULTILINE)
    assert re.search(r"^Masked  +blur_masked  +kernel$", shown, re.MULTILINE)
    assert "├─ dispatched on CPU, the highest of {CPU}" in shown
    assert re.search(r"^blur\(picture\)  +[\d.]+ µs  +[+-][\d.]+%  █+", shown, re.MULTILINE)
    assert re.search(r"^second\(t, t\)  +\d+ ns  +\+\d+ ns  █+", shown, re.MULTILINE)


def test_demo_repairs_the_picture():
    picture = demo.mandelbrot()
    holes = np.random.default_rng(0).random(picture.shape) < 0.12
    repaired = demo.blur_masked(np.ma.masked_array(picture, holes))
    assert not repaired.mask.any()
    assert abs(repaired - demo.blur_numpy(picture)).mean() < abs(np.where(holes, 0, picture) - picture).mean()
    np.testing.assert_allclose(demo.blur_masked(np.ma.masked_array(picture)), demo.blur_numpy(picture))


@pytest.mark.slow       # which runs the demo anew
def test_demo_needs_neither_unicode_nor_a_clever_terminal():
    variables = {**os.environ, "PYTHONIOENCODING": "ascii", "TERM": "dumb"}
    completed = subprocess.run([*COMMAND, "demo"], capture_output=True, check=False, env=variables)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.isascii()
    assert b"|- dispatched on CPU" in completed.stdout


@pytest.mark.slow       # which runs the demo anew
def test_demo_fits_a_terminal_and_is_in_colour_where_rich_is_installed():
    output = on_a_terminal(80, "demo")
    assert ("\x1b[" in output) == has_rich
    lines = [line.rstrip() for line in ESCAPES.sub("", output).splitlines()]
    paths = [line for line in lines if "demo.py:" in line]
    assert max(len(line) for line in lines if line not in paths) <= 80
    assert not any("…" in line for line in lines)


# --- bench -----------------------------------------------------------------------------------------------


def test_bench_prints_tables_and_what_is_not_installed(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["bench", "--quick", "--rows", "*of a poly*"]) == 0
    output = capsys.readouterr().out
    assert output.strip().startswith("Gradient of a polynomial of 4 numbers\n")
    assert re.search(r"^func\.grad +[\d.,]+ +1\.00×$", output, re.MULTILINE)
    assert re.search(r"^compile\(func\.grad\) +[\d.,]+ +\d\.\d\d×$", output, re.MULTILINE)
    assert re.search(r"^left out: torch: ", output, re.MULTILINE)
    assert max(map(len, output.splitlines())) <= 80


def test_bench_writes_json_beside_the_tables_or_in_their_place(capsys, tmp_path):
    words = ["bench", "--quick", "--rows", "dispatch", "--json"]
    assert main([*words, str(tmp_path / "bench.json")]) == 0
    assert "ops.np.add of Tensors" in capsys.readouterr().out
    assert main([*words, "-"]) == 0
    for text in ((tmp_path / "bench.json").read_text(), capsys.readouterr().out):
        first, *rest = json.loads(text)["rows"]
        assert (first["group"], first["name"], first["ratio"]) == ("Dispatch", "numpy.add(x, y)", 1.0)
        assert all(row["ratio"] == row["nanoseconds"] / first["nanoseconds"] for row in rest)


def test_bench_says_when_no_table_matches(capsys):
    assert main(["bench", "--rows", "nothing of the kind"]) == 1
    assert "no table matches 'nothing of the kind'" in capsys.readouterr().err


@pytest.mark.parametrize(("program", "x"), bench.PROGRAMS.values(), ids=bench.PROGRAMS)
def test_gradients_of_bench_agree(program, x):
    ways = dict(bench.gradient_calls(program, x, {}))
    step = 1e-6 * np.random.default_rng(0).normal(size=x.shape)
    slope = (program(np, x + step) - program(np, x - step)) / 2
    for call in ways.values():
        gradient = call()
        assert gradient.shape == x.shape
        np.testing.assert_allclose(np.sum(np.asarray(gradient) * step), slope, rtol=1e-5)


def test_compiled_functions_of_bench_agree():
    results = [np.asarray(call()) for _, call in bench.compiled_calls({})]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-12, atol=1e-12)


# --- ops -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["np::sum", "np.su?", "*::sum*"])
def test_ops_lists_what_matches(capsys, pattern):
    assert main(["ops", pattern]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert {line.split()[0] for line in lines} >= {"np::sum", "np::sum.out"}
    schema = str(ops.np.sum.default.schema).removeprefix("np::sum")
    (line,) = (line for line in lines if line.startswith("np::sum "))
    keys = re.fullmatch(rf"np::sum  +(.+?)  +{re.escape(schema)} \[reduction\]", line)[1].split(", ")
    assert [key for key in keys if key in {"CPU", "Meta"}] == ["CPU", "Meta"]      # tests may have loaded backends


def test_ops_lists_all(capsys):
    assert main(["ops"]) == 0
    names = {line.partition(" ")[0] for line in capsys.readouterr().out.splitlines()}
    assert names >= set(registrations.operators)


def test_ops_shows_operators_without_definition_and_without_kernels(capsys, fresh):
    fresh.impl("dangling", lambda x: x, "CPU")
    fresh.define("bare(Tensor x) -> Tensor")
    assert main(["ops", f"{fresh.namespace}::"]) == 0
    bare, dangling = (line.split() for line in capsys.readouterr().out.splitlines()[3:])
    assert bare == [f"{fresh.namespace}::bare", "(Tensor", "x)", "->", "Tensor"]
    assert dangling == [f"{fresh.namespace}::dangling", "CPU", "no", "definition"]


def test_ops_ends_quietly_when_its_reader_does():
    with subprocess.Popen([*COMMAND, "ops"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in (0, -signal.SIGPIPE)


# --- explain ---------------------------------------------------------------------------------------------


def test_explain_prints_what_explain_says(capsys):
    assert main(["explain", "np.add", "float64[2,3]", "Tensor:float32[3]", "casting=unsafe"]) == 0
    expected = ops.np.add.explain(np.ones((2, 3)), Tensor(np.ones(3, np.float32)), casting="unsafe")
    assert capsys.readouterr().out == f"{expected}\n"


@pytest.mark.parametrize("name", ["np.add.out", "np::add.out"])
def test_explain_takes_names_in_both_forms_with_overloads(capsys, name):
    assert main(["explain", name, "float64[3]", "1", "out=float64[3]"]) == 0
    assert capsys.readouterr().out.startswith("np::add.out(")


@pytest.mark.parametrize(("name", "overloads"), [("np.add", ["default", "out"]), ("np::add.out", ["out"])])
def test_explain_without_arguments_prints_the_dispatch_table(capsys, name, overloads):
    assert main(["explain", name]) == 0
    parts = re.split(r"^(np::.*)\n─+\n", capsys.readouterr().out, flags=re.MULTILINE)[1:]
    expected = [getattr(ops.np.add, overload) for overload in overloads]
    assert parts[::2] == [str(op.schema) for op in expected]
    assert [part.partition("\n\n")[2].strip() for part in parts[1::2]] == [dump_table(op).strip() for op in expected]
    assert all("CPU: add at numpy [kernel]" in part for part in parts[1::2])


@pytest.mark.parametrize(("text", "expected"), [
    ("2", 2), ("-1.5", -1.5), ("None", None), ("(2, 3)", (2, 3)), ("[1, [2]]", [1, [2]]), ("{'a': (1,)}", {"a": (1,)}),
    ("'text'", "text"), ("unsafe", "unsafe"), ("two words", "two words"), ("a-b", "a-b"),
    ("__import__('os').getpid()", "__import__('os').getpid()"), ("9**9", "9**9"),
])
def test_a_value_is_a_literal_or_a_text(text, expected):
    value = parse_value(text)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(("text", "kind", "dtype", "shape"), [
    ("float64[2,3]", np.ndarray, "float64", (2, 3)),
    ("int8[ 4 ]", np.ndarray, "int8", (4,)),
    ("bool[]", np.ndarray, "bool", ()),
    ("Tensor:float32[3]", Tensor, "float32", (3,)),
    ("meta:complex128[1000000,1000000]", MetaArray, "complex128", (1000000, 1000000)),
    ("Tensor:meta:float64[2]", Tensor, "float64", (2,)),
])
def test_a_description_makes_an_array(text, kind, dtype, shape):
    array = parse_value(text)
    assert type(array) is kind
    assert (array.dtype, array.shape) == (np.dtype(dtype), shape)
    if "meta" in text:
        assert isinstance(getattr(array, "array", array), MetaArray)


def test_arrays_stand_in_containers():
    first, (second, number) = parse_value("[Tensor:float64[2], (meta:int8[3], 4)]")
    assert (type(first), type(second), number) == (Tensor, MetaArray, 4)
    assert parse_value("{'a': float64[2]}")["a"].shape == (2,)


@pytest.mark.parametrize("text", ["floaty[2]", "float64[2] +", "float64[2] * 2"])
def test_a_description_that_makes_no_sense_is_refused(text):
    with pytest.raises(DispatchError, match=r"float64\[2,3\]"):
        parse_value(text)


@pytest.mark.parametrize(("words", "problem"), [
    (["explain", "np.nothing", "1"], "no operator np::nothing"),
    (["explain", "np.add.nothing", "1"], "no overload 'nothing'"),
    (["explain", "np", "1"], "np"),
    (["explain", "np.nothing"], "no operator np::nothing"),
    (["explain", "np.add", "[1]", "2"], "lists are not arrays"),
    (["explain", "np.add", "floaty[2]", "2"], "'floaty' is not a dtype of NumPy"),
    (["ops", "nothing of the kind"], "no operator matches 'nothing of the kind'"),
    (["ops", "--import", "no_such_module"], "No module named 'no_such_module'"),
])
def test_mistakes_are_told_on_standard_error(capsys, words, problem):
    assert main(words) == 1
    captured = capsys.readouterr()
    assert problem in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_import_brings_operators_of_others(capsys, monkeypatch, tmp_path):
    (tmp_path / "brought_by_import.py").write_text(
        "from pydispatch.library import Library\n"
        "lib = Library('brought_by_import', 'DEF')\n"
        "lib.define('twice(Tensor x) -> Tensor', lambda x: 2 * x, 'CPU')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["explain", "--import", "brought_by_import", "brought_by_import.twice", "float64[2]"]) == 0
    assert "dispatched on CPU" in capsys.readouterr().out
    sys.modules.pop("brought_by_import").lib.close()


def test_version_is_that_of_the_distribution(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"pydispatch-numpy {version('pydispatch-numpy')}\n"


@pytest.mark.parametrize("words", [[], ["no-such-command"], ["bench", "--no-such-option"]])
def test_usage_is_told(capsys, words):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert "usage: python -m pydispatch" in capsys.readouterr().err
