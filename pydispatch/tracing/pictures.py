"""The picture of a graph that notebooks show: an SVG that needs no program and no script."""

# tests: tests/tracing/test_drawing.py
from __future__ import annotations

from html import escape
from typing import NamedTuple

from pydispatch.tracing.drawing import label_of
from pydispatch.tracing.graph import Graph, Node

MOST_NODES = 150
"""The size above which a graph is shown as the listing of its program."""
CHARACTER, LINE, GAP, STEP = 6.6, 14.0, 16.0, 34.0
"""The width of a character, the height of a line, the space between boxes and between layers."""
SWEEPS = 4


def graph_in_notebook(graph: Graph) -> str:
    """Return the picture of a graph, or its listing."""
    if len(graph.nodes) > MOST_NODES:
        return f"<pre>{escape(str(graph))}</pre>"
    return f'<div style="overflow-x:auto">{layered_svg(graph)}</div>'


def layered_svg(graph: Graph) -> str:
    """Draw the nodes in layers, each below its inputs and joined to them by lines that pass between other boxes."""
    labels = {node: label_of(node) for node in graph.nodes}
    sizes = {node: (max(map(len, label)) * CHARACTER + 12, len(label) * LINE + 8) for node, label in labels.items()}
    layers, above = _layers(graph)
    heights = [max(sizes[place.node][1] for place in layer if place.is_box) for layer in layers]
    widths = {place: sizes[place.node][0] if place.is_box else 0.0 for place in above}
    areas: dict[_Place, _Area] = {}
    widest = max((sum(widths[place] + GAP for place in layer) for layer in layers), default=0.0)
    top = 4.0
    for layer, height in zip(layers, heights, strict=True):
        left = (widest - sum(widths[place] + GAP for place in layer)) / 2 + GAP / 2
        for place in layer:
            own = sizes[place.node][1] if place.is_box else height
            areas[place] = _Area(left + widths[place] / 2, top + (height - own) / 2, top + (height + own) / 2)
            left += widths[place] + GAP
        top += height + STEP
    lines = [_line(areas[source], areas[place]) for place, sources in above.items() for source in sources]
    lines += [_passage(areas[place]) for place in above if not place.is_box]
    boxes = [_box(place.node, labels[place.node], areas[place], widths[place]) for place in above if place.is_box]
    width, height = max(widest, 1.0), max(top - STEP + 4, 1.0)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11" fill="none" '
            f'stroke="currentColor">{"".join(lines)}{"".join(boxes)}</svg>')


class _Place(NamedTuple):
    """The position in a layer of a node's box, or of a line from the node to one further down."""

    node: Node
    depth: int
    is_box: bool


class _Area(NamedTuple):
    """The middle of a place, its top and its bottom."""

    x: float
    top: float
    bottom: float


def _layers(graph: Graph) -> tuple[list[list[_Place]], dict[_Place, list[_Place]]]:
    """Return the layers of nodes by their longest paths, each node near its inputs, and the places above each place."""
    depths: dict[Node, int] = {}
    for node in graph.nodes:
        depths[node] = max((depths[used] + 1 for used in node.all_input_nodes), default=0)
    layers: list[list[_Place]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    above: dict[_Place, list[_Place]] = {}

    def place_of(node: Node, depth: int) -> _Place:
        return _Place(node, depth, depths[node] == depth)

    for node, depth in depths.items():
        end = max((depths[user] for user in node.users), default=depth + 1)
        for level in range(depth, max(end, depth + 1)):
            place = place_of(node, level)
            layers[level].append(place)
            above[place] = [place_of(used, level - 1) for used in (node.all_input_nodes if place.is_box else [node])]
    for _ in range(SWEEPS):
        positions = {place: i / len(layer) for layer in layers for i, place in enumerate(layer)}
        for layer in layers[1:]:
            layer.sort(key=lambda place: _mean([positions[source] for source in above[place]]))
            positions |= {place: i / len(layer) for i, place in enumerate(layer)}
    return layers, above


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _line(source: _Area, target: _Area) -> str:
    """Draw a line from the bottom of a place to the top of one below."""
    middle = (source.bottom + target.top) / 2
    return (f'<path d="M{source.x:.1f},{source.bottom:.1f} C{source.x:.1f},{middle:.1f} {target.x:.1f},{middle:.1f} '
            f'{target.x:.1f},{target.top:.1f}" stroke-opacity="0.6"/>')


def _passage(area: _Area) -> str:
    """Draw a line through a layer, between its boxes."""
    return f'<path d="M{area.x:.1f},{area.top:.1f} V{area.bottom:.1f}" stroke-opacity="0.6"/>'


def _box(node: Node, label: list[str], area: _Area, width: float) -> str:
    height = area.bottom - area.top
    corner = 3 if node.op == "call_function" else height / 2
    texts = "".join(
        f'<text x="{area.x:.1f}" y="{area.top + 4 + LINE * (i + 0.75):.1f}" text-anchor="middle" fill="currentColor" '
        f'stroke="none" fill-opacity="{0.75 if i else 1}">{escape(line)}</text>'
        for i, line in enumerate(label))
    return (f'<g><rect x="{area.x - width / 2:.1f}" y="{area.top:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{corner:.1f}"/>{texts}</g>')
