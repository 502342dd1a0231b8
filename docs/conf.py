"""Sphinx reads the Markdown pages of this folder: `python -m sphinx -W -b html docs docs/_build`."""

from __future__ import annotations

import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

import pydispatch

sys.path.insert(0, str(Path(__file__).parent))

project = "pydispatch"
author = "The pydispatch authors"
version = release = pydispatch.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "extensions.accessibility",
              "extensions.examples", "extensions.reference"]
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"      # the docstrings have what matters, the stubs the rest
default_role = "code"           # a single backtick in a docstring
myst_heading_anchors = 3        # `page.md#a-section` works, as it does on the web
exclude_patterns = ["_build"]
html_theme = "furo"             # light and dark, wide and narrow
html_title = "pydispatch"
html_show_copyright = False    # there is no year to show
html_favicon = "static/icon.svg"
html_static_path = ["static"]
html_theme_options = {"light_logo": "logo-light.svg", "dark_logo": "logo-dark.svg", "sidebar_hide_name": True}
html_css_files = ["site.css"]


def strip_blank_lines(_: Sphinx, page: nodes.document) -> None:
    """Examples that run end in an empty line, by which their last output ends: readers need not see it."""
    for block in page.findall(nodes.literal_block):
        text = nodes.Text(block.astext().rstrip("\n"))
        block.rawsource = text
        block.children = [text]
        text.parent = block


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", strip_blank_lines)
