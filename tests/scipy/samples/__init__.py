"""Sample calls of the functions of `pydispatch.scipy`, by family. `SAMPLES` has those of each function."""

from importlib import import_module
from pathlib import Path

from tests.scipy.samples.sample import SAMPLES

for family in sorted(Path(__file__).parent.glob("*.py")):
    if family.stem != "__init__":
        import_module(f"{__name__}.{family.stem}")

__all__ = ["SAMPLES"]
