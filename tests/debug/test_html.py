"""The HTML for notebooks is well formed, shows what the text shows, and loads nothing."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from pydispatch import DispatchKeySet, Tensor, autograd, debug, func, ops
from pydispatch.backends import MetaArray
from pydispatch.testing import LoggingTensor
from pydispatch.tracing import make_fx
from pydispatch.tracing.pictures import MOST_NODES


def shown(value):
    """Return the elements of what a notebook shows. It must parse as XML, which is stricter than HTML."""
    text = re.sub(r"<details open>", "<details>", value._repr_html_())
    root = ElementTree.fromstring(f"<div>{text}</div>")
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not tags & {"script", "link", "img", "iframe", "style"}
    for element in root.iter():
        assert not [name for name in element.attrib if name.startswith("on") or name.endswith(("src", "href"))]
    return root


def text_of(value):
    return "".join(shown(value).itertext())


def test_a_tensor_shows_what_it_is_above_its_values():
    leaf = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    text = text_of(leaf)
    assert "Tensor · shape (2, 3) · float64 · CPU · requires_grad=True" in text
    assert repr(leaf) in text
    assert "grad_fn=<MultiplyBackward>" in text_of(leaf * 2)
    assert "requires_grad=False" in text_of(leaf.detach())


class Hostile(Tensor):
    def __repr__(self):
        return "<script>alert(1)</script>&"


@pytest.mark.parametrize("tensor", [
    Tensor(np.array(1.0)), Tensor(np.zeros((0, 3))), Tensor(np.ones((200, 200), complex)), Tensor(MetaArray((2,))),
    Tensor(np.ma.masked_array([1.0, 2.0], [0, 1])), Tensor(np.array(["<b>", "&"])), LoggingTensor(np.ones(2)),
    Hostile(np.ones(1)),
], ids=["number", "empty", "large", "meta", "masked", "markup", "subclass", "hostile"])
def test_every_tensor_can_be_shown(tensor):
    assert repr(tensor) in text_of(tensor)


def test_values_of_transforms_can_be_shown():
    seen = []

    def look(x):
        seen.append((text_of(x), repr(x), x))
        return (x * x).sum()

    func.grad(look)(np.ones(2))
    func.vmap(func.grad(look))(np.ones((2, 2)))
    func.jvp(look, (np.ones(2),), (np.ones(2),))
    assert len(seen) == 3
    for text, expected, dead in seen:
        assert expected in text
        assert "no longer runs" in text_of(dead) or "GradTensor" in text_of(dead) or "JvpTensor" in text_of(dead)


def test_a_view_that_may_not_be_used_can_be_shown():
    base = Tensor(np.ones(2), requires_grad=True) * 1.0
    with autograd.no_grad():
        view = base[:1]
    base *= 2.0
    assert "Invalid" in text_of(view)


def test_a_key_set_shows_its_highest_key_first():
    boxes = [box.text for box in shown(Tensor(np.ones(1)).keys).iter("span")][1:]
    assert boxes == ["AutogradCPU", "CPU"]
    assert "empty" in text_of(DispatchKeySet())


def test_an_explanation_is_a_tree_that_can_be_closed():
    explanation = ops.np.add.explain(Tensor(np.ones(2), requires_grad=True), 1.0)
    root = shown(explanation)
    lines = [re.sub(r"^[│├└─ ]+", "", line) for line in str(explanation).splitlines()]
    assert [code.text for code in root.iter("code")] == lines
    summaries = [details.find("summary/code").text for details in root.iter("details")]
    assert summaries == [lines[0], "keys"]
    inner = [li for details in root.iter("details") if details.find("summary/code").text == "keys"
             for li in details.find("ul")]
    assert len(inner) == sum(line.startswith("│  ") for line in str(explanation).splitlines())


def points_of(path):
    """Return points along a line of a picture, from its beginning to its end."""
    x, y, kind, rest = re.fullmatch(r"M([\d.]+),([\d.]+) ([CV])(.*)", path).groups()
    start = np.array([float(x), float(y)])
    if kind == "V":
        return np.linspace(start, (start[0], float(rest)), 50)
    (a, b, end), t = np.array(re.findall(r"([\d.]+),([\d.]+)", rest), float), np.linspace(0, 1, 50)[:, None]
    return (1 - t) ** 3 * start + 3 * (1 - t) ** 2 * t * a + 3 * (1 - t) * t ** 2 * b + t ** 3 * end


def gradient_of_two_layers(x, w, v):
    return func.grad(lambda w, v: ops.np.sum(ops.np.tanh(ops.np.tanh(x @ w) @ v) * x), argnums=(0, 1))(w, v)


@pytest.mark.parametrize(("function", "n"), [
    (lambda x, w: ops.np.tanh(ops.np.matmul(x, w)) + x.sum(), 2), (gradient_of_two_layers, 3)], ids=["few", "many"])
def test_a_graph_is_a_picture_of_its_nodes_and_edges(function, n):
    graph = make_fx(function)(*[np.ones((2, 2))] * n)
    root = shown(graph)
    svg = "{http://www.w3.org/2000/svg}"
    boxes = list(root.iter(f"{svg}g"))
    assert [box.find(f"{svg}text").text for box in boxes] == [node.name for node in graph.nodes]
    rectangles = {box.find(f"{svg}text").text: tuple(
        float(box.find(f"{svg}rect").attrib[name]) for name in ("x", "y", "width", "height")) for box in boxes}
    for i, (x, y, width, height) in enumerate(rectangles.values()):
        for a, b, wide, high in list(rectangles.values())[:i]:
            assert x + width <= a or a + wide <= x or y + height <= b or b + high <= y
    lines = [points_of(path.attrib["d"]) for path in root.iter(f"{svg}path")]
    for points in lines:                # none crosses a box
        for x, y, width, height in rectangles.values():
            inside = (points > [x + 0.2, y + 0.2]) & (points < [x + width - 0.2, y + height - 0.2])
            assert not inside.all(axis=1).any()
    # the lines that begin at a box lead to the boxes of those that use it, and only down
    following = {}
    for points in lines:
        assert (np.diff(points[:, 1]) >= 0).all()
        following.setdefault(tuple(points[0].round(1)), []).append(tuple(points[-1].round(1)))
    tops = {(round(x + width / 2, 1), y): name for name, (x, y, width, _) in rectangles.items()}

    def reached(point):
        for end in following.get(point, ()):
            yield from [tops[end]] if end in tops else reached(end)

    for node in graph.nodes:
        x, y, width, height = rectangles[node.name]
        users = {user.name for user in node.users}
        found = {name for a, b in following if abs(a - x - width / 2) < 0.2 and abs(b - y - height) < 0.2
                 for name in reached((a, b))}
        assert found == users


def test_a_large_graph_is_shown_as_its_program():
    def long(x):
        for _ in range(MOST_NODES):
            x = ops.np.sin(x)
        return x

    graph = make_fx(long)(np.ones(2))
    assert "<svg" not in graph._repr_html_()
    assert str(graph).strip() in text_of(graph)


def test_a_profile_is_a_table_with_bars():
    x = Tensor(np.ones((20, 20)), requires_grad=True)
    with debug.profile() as profile:
        ops.np.sin(x @ x).sum().backward()
    root = shown(profile)
    rows = [[cell.text for cell in row.iter("td")] for row in root.iter("tr")][1:]
    found = {row[0]: int(row[1]) for row in rows}
    assert found == {row.name: row.calls for row in profile.rows()}
    bars = [float(re.search(r"width:([\d.]+)%", bar.attrib["style"])[1]) for bar in root.iter("div")
            if "width:" in bar.attrib.get("style", "")]
    assert bars == sorted(bars, reverse=True)
    assert sum(bars) == pytest.approx(100, abs=1)
    with debug.profile() as nothing:
        pass
    assert "0 calls" in text_of(nothing)
