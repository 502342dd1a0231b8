"""Sphinx reads the Markdown pages of this folder: `python -m sphinx -W -b html docs docs/_build`."""

from __future__ import annotations

import pydispatch

project = "pydispatch"
author = "The pydispatch authors"
version = release = pydispatch.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"      # the docstrings say what matters, the stubs the rest
default_role = "code"           # a single backtick in a docstring
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"page_width": "1200px"}       # tables and diagrams are wide
