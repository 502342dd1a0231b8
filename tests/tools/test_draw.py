"""The pictures that `tools/draw.py` draws are well formed, and show every part of the core and every package."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tools import draw

ROOT = Path(__file__).parents[2]
TEXT = "{http://www.w3.org/2000/svg}text"


def texts():
    return [element.text for element in ET.fromstring(draw.poster()).iter(TEXT)]


def test_the_poster_has_each_part_of_the_core_once():
    parts = [path.stem for folder in ("core", "plans") for path in (ROOT / "pydispatch" / folder).rglob("*.pyx")]
    assert sorted(name for _, _, rows in draw.chapters() for name, _ in rows) == sorted(parts)
    assert set(parts) <= set(texts())


def test_the_poster_has_the_steps_of_a_call_and_the_packages():
    assert [name for name, _ in draw.steps()] == ["bind", "keys", "table", "strip", "kernel", "finish"]
    assert {"func", "numpy", "tracing", *(about for _, about in draw.packages())} <= set(texts())


def test_no_text_of_the_poster_lies_outside():
    wide, high = map(float, ET.fromstring(draw.poster()).attrib["viewBox"].split()[2:])
    for element in ET.fromstring(draw.poster()).iter(TEXT):
        assert float(element.attrib["x"]) < wide
        assert float(element.attrib["y"]) < high


@pytest.mark.parametrize("drawing", [draw.icon(), draw.logo("red", "blue")])
def test_the_logo_is_well_formed(drawing):
    root = ET.fromstring(drawing)
    assert root.attrib["viewBox"].startswith("0 0 ")


def test_the_logo_spells_the_name():
    root = ET.fromstring(draw.logo("red", "blue"))
    strokes = [path.attrib["d"] for path in root.iter("{http://www.w3.org/2000/svg}path") if "transform" in path.attrib]
    assert strokes == [draw.LETTERS[letter][0] for letter in "pydispatch"]
