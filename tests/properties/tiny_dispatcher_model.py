"""The dispatcher of `docs/rebuild.md`, loaded from its file: the model that the real one is compared with."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

FILE = Path(__file__).parents[2] / "docs" / "tiny_dispatcher.py"


def load():
    """Return a new copy of the model, without registrations."""
    spec = spec_from_file_location("tiny_dispatcher", FILE)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
