"""Tables and JSON of `python -m benchmarks`."""

import json
import re

from benchmarks import cases as bench
from benchmarks.__main__ import main


def test_bench_prints_a_table_per_group(capsys):
    for pattern in ("raw arrays", "__array_function__"):
        assert main(["--quick", "--rows", pattern]) == 0
    output = capsys.readouterr().out
    assert re.search(r"^two raw arrays +\d+/\d+ +\d+\.\d\d× +≤ 2\.5×  .{10}  (ok|over)$", output, re.MULTILINE)
    assert re.search(r"^raw arrays +\d+/\d+ +\d+\.\d\d× +≤ 1\.15×  .{10}  (ok|over)$", output, re.MULTILINE)
    assert re.search(r"^__array_function__ +\d+/\d+/\d+ +[\d.]+× +≥ 5×  .{10}  (ok|low)$", output, re.MULTILINE)
    assert max(map(len, output.splitlines())) <= 80


def test_bench_names_the_peers_that_it_leaves_out(capsys, monkeypatch):
    monkeypatch.setattr(
        bench, "measure", lambda effort, pattern, left_out: iter(left_out.update(plum="not there") or ()))
    assert main([]) == 0
    assert capsys.readouterr().out.strip() == "left out: plum: not there"


def test_bench_writes_json_beside_the_tables_or_in_their_place(capsys, tmp_path):
    words = ["--quick", "--rows", "two raw", "--json"]
    assert main([*words, str(tmp_path / "bench.json")]) == 0
    assert "two raw arrays" in capsys.readouterr().out
    assert main([*words, "-"]) == 0
    for text in ((tmp_path / "bench.json").read_text(), capsys.readouterr().out):
        (row,) = json.loads(text)["rows"]
        assert (row["name"], row["bound"], row["unit"]) == ("two raw arrays", 2.5, "×")
        assert row["ok"] == (row["value"] <= 2.5)
        assert row["times"].keys() == {"op(x, y)", "kernel(x, y)"}


def test_bench_says_when_no_row_matches(capsys):
    assert main(["--rows", "nothing of the kind"]) == 1
    assert "no row matches 'nothing of the kind'" in capsys.readouterr().err
