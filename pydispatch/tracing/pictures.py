"""The picture of a graph that notebooks show: an SVG that needs no program and no script."""

from __future__ import annotations

from html import escape

from pydispatch.tracing.drawing import label_of
from pydispatch.tracing.graph import Graph, Node

MOST_NODES = 150
"""A larger graph is shown as the listing of its program."""
CHARACTER, LINE, GAP, STEP = 6.6, 14.0, 16.0, 34.0
"""The width of a character, the height of a line, the room between boxes and between layers."""
SWEEPS = 4


def graph_in_notebook(graph: Graph) -> str:
    """The picture of a graph, or its listing."""
    if len(graph.nodes) > MOST_NODES:
        return f"<pre>{escape(str(graph))}</pre>"
    return f'<div style="overflow-x:auto">{layered_svg(graph)}</div>'


def layered_svg(graph: Graph) -> str:
    """The nodes in layers, each below what it uses, with lines from there."""
    labels = {node: label_of(node) for node in graph.nodes}
    sizes = {node: (max(map(len, label)) * CHARACTER + 12, len(label) * LINE + 8) for node, label in labels.items()}
    layers = _layers(graph)
    centres: dict[Node, tuple[float, float]] = {}
    widest = max((sum(sizes[node][0] + GAP for node in layer) for layer in layers), default=0.0)
    top = 4.0
    for layer in layers:
        left = (widest - sum(sizes[node][0] + GAP for node in layer)) / 2 + GAP / 2
        height = max(sizes[node][1] for node in layer)
        for node in layer:
            centres[node] = left + sizes[node][0] / 2, top + height / 2
            left += sizes[node][0] + GAP
        top += height + STEP
    lines = [_line(centres[used], sizes[used], centres[node], sizes[node])
             for node in graph.nodes for used in node.all_input_nodes]
    boxes = [_box(node, labels[node], centres[node], sizes[node]) for node in graph.nodes]
    width, height = max(widest, 1.0), max(top - STEP + 4, 1.0)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11" fill="none" '
            f'stroke="currentColor">{"".join(lines)}{"".join(boxes)}</svg>')


def _layers(graph: Graph) -> list[list[Node]]:
    """The nodes by the longest way to them, those of each layer near what they use."""
    depths: dict[Node, int] = {}
    layers: list[list[Node]] = []
    for node in graph.nodes:
        depth = depths[node] = max((depths[used] + 1 for used in node.all_input_nodes), default=0)
        if depth == len(layers):
            layers.append([])
        layers[depth].append(node)
    for _ in range(SWEEPS):
        places = {node: i / len(layer) for layer in layers for i, node in enumerate(layer)}
        for layer in layers[1:]:
            layer.sort(key=lambda node: _mean([places[used] for used in node.all_input_nodes]))
            places |= {node: i / len(layer) for i, node in enumerate(layer)}
    return layers


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _line(
    source: tuple[float, float], source_size: tuple[float, float], target: tuple[float, float],
    target_size: tuple[float, float],
) -> str:
    x, y = source[0], source[1] + source_size[1] / 2
    to_x, to_y = target[0], target[1] - target_size[1] / 2
    middle = (y + to_y) / 2
    return (f'<path d="M{x:.1f},{y:.1f} C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}" '
            'stroke-opacity="0.6"/>')


def _box(node: Node, label: list[str], centre: tuple[float, float], size: tuple[float, float]) -> str:
    left, top = centre[0] - size[0] / 2, centre[1] - size[1] / 2
    corner = 3 if node.op == "call_function" else size[1] / 2
    texts = "".join(
        f'<text x="{centre[0]:.1f}" y="{top + 4 + LINE * (i + 0.75):.1f}" text-anchor="middle" fill="currentColor" '
        f'stroke="none" fill-opacity="{0.75 if i else 1}">{escape(line)}</text>'
        for i, line in enumerate(label))
    return (f'<g><rect x="{left:.1f}" y="{top:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" rx="{corner:.1f}"/>'
            f"{texts}</g>")
