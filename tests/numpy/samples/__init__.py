"""Sample calls of the functions of `pydispatch.numpy`, by area. `SAMPLES` has those of each function."""

from importlib import import_module
from pathlib import Path

from tests.numpy.samples.sample import SAMPLES

for area in sorted(Path(__file__).parent.glob("*.py")):
    if area.stem != "__init__":
        import_module(f"{__name__}.{area.stem}")

__all__ = ["SAMPLES"]
