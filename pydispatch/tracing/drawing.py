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
    """A picture of the graph as text: "mermaid", "dot" (Graphviz), or "svg", which needs Graphviz.

    ValueError for another format, GraphError if Graphviz is not installed.
    """
    drawers: dict[str, Callable[[Graph], str]] = {"mermaid": mermaid, "dot": dot, "svg": svg}
    if format not in drawers:
        raise ValueError(f"draw: argument format is {format!r}, expected one of {', '.join(drawers)}\n"
                         "leave it out for 'mermaid'")
    return drawers[format](graph)


def mermaid(graph: Graph) -> str:
    """A Mermaid flow chart."""
    shapes = {"placeholder": '(["{}"])', "get_attr": '[("{}")]', "call_function": '["{}"]', "output": '(["{}"])'}
    lines = ["flowchart TD"]
    ids = _ids(graph)
    for node, name in ids.items():
        label = "<br/>".join(map(_escaped_for_mermaid, label_of(node)))
        lines.append(f"    {name}{shapes[node.op].format(label)}")
    lines += [f"    {ids[used]} --> {name}" for node, name in ids.items() for used in node.all_input_nodes]
    return "\n".join(lines) + "\n"


def dot(graph: Graph) -> str:
    """A graph in the language of Graphviz."""
    shapes = {"placeholder": "ellipse", "get_attr": "cylinder", "call_function": "box", "output": "ellipse"}
    lines = ["digraph {", '    node [fontname="Helvetica"];']
    ids = _ids(graph)
    for node, name in ids.items():
        label = r"\n".join(map(_escaped_for_dot, label_of(node)))
        lines.append(f'    {name} [shape={shapes[node.op]}, label="{label}"];')
    lines += [f"    {ids[used]} -> {name};" for node, name in ids.items() for used in node.all_input_nodes]
    return "\n".join([*lines, "}"]) + "\n"


def svg(graph: Graph) -> str:
    """The picture that the program `dot` makes."""
    program = shutil.which("dot")
    if program is None:
        raise GraphError("draw: the program `dot`, which makes the SVG, is not installed\n"
                         'install Graphviz, or draw text: graph.draw("dot"), graph.draw("mermaid")')
    done = subprocess.run([program, "-Tsvg"], input=dot(graph), capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise GraphError(f"draw: {program} failed: {done.stderr.strip()}\n"
                         'look at what it was given: graph.draw("dot")')
    return done.stdout


def label_of(node: Node) -> list[str]:
    """The label of a node: its name, what it calls, and what is known of its value."""
    lines = [node.name]
    if node.op == "call_function":
        lines.append(call_of(node))
    known = what_is_known(node)
    return [*lines, known] if known else lines


def call_of(node: Node) -> str:
    """A call on one line, with _ for nodes, whose edges are drawn."""
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
    # numbers, as names such as `end` mean something to Mermaid and others, such as `node`, to Graphviz
    return {node: f"n{i}" for i, node in enumerate(graph.nodes)}


def _escaped_for_mermaid(text: str) -> str:
    """Quoted, with every character that is markup to Mermaid or HTML replaced by its number."""
    return re.sub(r"[^\w .,:=+\-()\[\]{}/]", lambda found: f"#{ord(found[0])};", text)


def _escaped_for_dot(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
