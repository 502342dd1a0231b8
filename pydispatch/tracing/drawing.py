"""Draw a graph: as text for Mermaid and Graphviz, or as SVG by Graphviz."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable

from pydispatch._core import OpOverload
from pydispatch.exceptions import GraphError
from pydispatch.tracing.codegen import what_is_known
from pydispatch.tracing.graph import Graph, Node
from pydispatch.tracing.literals import expression, literal
from pydispatch.tracing.targets import name_of

LONGEST = 60
"""The number of characters of a call that a picture shows."""


def draw_graph(graph: Graph, format: str = "mermaid") -> str:
    r"""Draw the graph as text.

    Parameters
    ----------
    graph : Graph
        The graph.
    format : {"mermaid", "dot", "svg"}, optional
        The language. "dot" is that of Graphviz. "svg" needs the program `dot` of Graphviz.

    Returns
    -------
    str
        The picture.

    Raises
    ------
    ValueError
        For another format.
    GraphError
        If Graphviz is needed and not installed.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch.tracing import make_fx
    >>> print(make_fx(np.sin)(numpy.zeros(2)).draw("dot"))
    digraph {
        node [fontname="Helvetica"];
        n0 [shape=ellipse, label="x_1\nfloat64[2]"];
        n1 [shape=box, label="sin\nnp::sin\nfloat64[2]"];
        n2 [shape=ellipse, label="output"];
        n0 -> n1;
        n1 -> n2;
    }
    """
    drawers: dict[str, Callable[[Graph], str]] = {"mermaid": mermaid, "dot": dot, "svg": svg}
    if format not in drawers:
        raise ValueError(f"draw: argument format is {format!r}, expected one of {', '.join(drawers)}\n"
                         "leave it out for 'mermaid'")
    return drawers[format](graph)


def mermaid(graph: Graph) -> str:
    """Return the graph as a Mermaid flow chart."""
    shapes = {"placeholder": '(["{}"])', "get_attr": '[("{}")]', "call_function": '["{}"]', "output": '(["{}"])'}
    lines = ["flowchart TD"]
    ids = _ids(graph)
    for node, name in ids.items():
        label = "<br/>".join(map(_escaped_for_mermaid, label_of(node)))
        lines.append(f"    {name}{shapes[node.op].format(label)}")
    lines += [f"    {ids[used]} --> {name}" for node, name in ids.items() for used in node.all_input_nodes]
    return "\n".join(lines) + "\n"


def dot(graph: Graph) -> str:
    """Return the graph in the language of Graphviz."""
    shapes = {"placeholder": "ellipse", "get_attr": "cylinder", "call_function": "box", "output": "ellipse"}
    lines = ["digraph {", '    node [fontname="Helvetica"];']
    ids = _ids(graph)
    for node, name in ids.items():
        label = r"\n".join(map(_escaped_for_dot, label_of(node)))
        lines.append(f'    {name} [shape={shapes[node.op]}, label="{label}"];')
    lines += [f"    {ids[used]} -> {name};" for node, name in ids.items() for used in node.all_input_nodes]
    return "\n".join([*lines, "}"]) + "\n"


def svg(graph: Graph) -> str:
    """Return the SVG that the program `dot` draws."""
    program = shutil.which("dot")
    if program is None:
        raise GraphError("draw: the program `dot`, which makes the SVG, is not installed\n"
                         'install Graphviz, or draw text: graph.draw("dot"), graph.draw("mermaid")')
    done = subprocess.run([program, "-Tsvg"], input=dot(graph), capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise GraphError(f"draw: {program} failed: {done.stderr.strip()}\n"
                         'check its input: graph.draw("dot")')
    return done.stdout


def label_of(node: Node) -> list[str]:
    """Return the label of a node: its name, the call, and the known properties of its value."""
    lines = [node.name]
    if node.op == "call_function":
        lines.append(call_of(node))
    known = what_is_known(node)
    return [*lines, known] if known else lines


def call_of(node: Node) -> str:
    """Return a call on one line, with _ for nodes, whose edges are drawn."""
    name = str(node.target.name) if isinstance(node.target, OpOverload) else name_of(node.target)
    values = [(name, value) for name, value in (*((None, value) for value in node.args), *node.kwargs.items())]
    if all(isinstance(value, Node) for _, value in values):
        return name
    texts = [f"{key}={_text(value)}" if key else _text(value) for key, value in values]
    text = f"{name}({', '.join(texts)})"
    return text if len(text) <= LONGEST else f"{text[:LONGEST - 3]}..."


def _text(value: object) -> str:
    return expression(value, lambda leaf: "_" if isinstance(leaf, Node) else literal(leaf, _name), _name)


def _name(name: str, value: object) -> str:
    return name


def _ids(graph: Graph) -> dict[Node, str]:
    # numbers, since names such as `end` have a meaning in Mermaid, and others, such as `node`, in Graphviz
    return {node: f"n{i}" for i, node in enumerate(graph.nodes)}


def _escaped_for_mermaid(text: str) -> str:
    """Quote text: replace each character that is markup in Mermaid or HTML with its number."""
    return re.sub(r"[^\w .,:=+\-()\[\]{}/]", lambda found: f"#{ord(found[0])};", text)


def _escaped_for_dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
