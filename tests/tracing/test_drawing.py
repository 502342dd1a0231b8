"""Pictures of graphs."""

import html
import re
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydispatch import ops
from pydispatch.exceptions import GraphError
from pydispatch.tracing import ArraySpec, Graph
from pydispatch.tracing.drawing import _escaped_for_mermaid


@pytest.fixture
def graph():
    """sum(x_1 * 2.0 + weight)."""
    graph = Graph()
    x = graph.placeholder("x_1")
    x.meta["val"] = ArraySpec((2, 3), np.dtype("float64"))
    double = graph.call_function(ops.np.multiply, (x, 2.0))
    total = graph.call_function(ops.np.add, (double, graph.add_constant(np.ones(3), "weight")))
    graph.output([graph.call_function(ops.np.sum, (total, (0,)), {"dtype": np.dtype("float32")}), x])
    return graph


def test_mermaid(graph):
    assert graph.draw() == graph.draw("mermaid") == """\
flowchart TD
    n0(["x_1<br/>float64[2, 3]"])
    n1["multiply<br/>np::multiply(_, 2.0)"]
    n2[("weight")]
    n3["add<br/>np::add"]
    n4["sum_1<br/>np::sum(_, (0,), dtype=np.dtype(#39;float32#39;))"]
    n5(["output"])
    n0 --> n1
    n1 --> n3
    n2 --> n3
    n3 --> n4
    n4 --> n5
    n0 --> n5
"""


def test_dot(graph):
    assert graph.draw("dot") == """\
digraph {
    node [fontname="Helvetica"];
    n0 [shape=ellipse, label="x_1\\nfloat64[2, 3]"];
    n1 [shape=box, label="multiply\\nnp::multiply(_, 2.0)"];
    n2 [shape=cylinder, label="weight"];
    n3 [shape=box, label="add\\nnp::add"];
    n4 [shape=box, label="sum_1\\nnp::sum(_, (0,), dtype=np.dtype('float32'))"];
    n5 [shape=ellipse, label="output"];
    n0 -> n1;
    n1 -> n3;
    n2 -> n3;
    n3 -> n4;
    n4 -> n5;
    n0 -> n5;
}
"""


@given(st.text())
def test_no_character_of_a_label_is_markup_to_mermaid(text):
    escaped = _escaped_for_mermaid(text)
    assert not re.search(r"[\"<>&`|\\\n;]", re.sub(r"#\d+;", "", escaped))
    assert not re.search(r"#(?!\d+;)", escaped)
    decoded = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), escaped)
    assert decoded == text


@pytest.mark.parametrize("text", ['"', "<b>", "a & b", "`md`", "#35;", 'end"]', "é\n"])
def test_texts_of_the_user_are_escaped(text):
    graph = Graph()
    graph.output(graph.call_function(print, (graph.placeholder("x"), text)))
    line = graph.draw("mermaid").splitlines()[2]
    label = re.fullmatch(r'    n1\["print_1<br/>print\(_, (.*)\)"\]', line)[1]
    assert html.unescape(label.replace("#", "&#")) == repr(text)
    assert repr(text).replace("\\", "\\\\").replace('"', '\\"') in graph.draw("dot")


def test_long_calls_are_cut():
    graph = Graph()
    graph.output(graph.call_function(print, (graph.placeholder("x"), "a" * 200)))
    label = graph.draw("dot").splitlines()[3]
    assert "print(_, 'aaa" in label
    assert label.count("a") < 70
    assert label.endswith('..."];')


def test_svg_is_made_by_the_program_dot(graph, tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "<svg $1>"; exec /bin/cat\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert graph.draw("svg") == "<svg -Tsvg>\n" + graph.draw("dot")


def test_svg_that_fails_says_why(graph, tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "no fonts" >&2; exit 3\n')
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GraphError, match="failed: no fonts\n"):
        graph.draw("svg")


def test_svg_without_graphviz_says_what_to_do(graph, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GraphError, match=r"`dot`, .* is not installed\n.*install Graphviz.*graph\.draw\(\"dot\"\)"):
        graph.draw("svg")


def test_other_formats_are_refused(graph):
    with pytest.raises(ValueError, match="format is 'png', expected one of mermaid, dot, svg"):
        graph.draw("png")
