"""The explanation of a missing compiled core, for an import of the package. `doctor` cannot run without the core."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


def reason(folder: Path) -> str | None:
    """Explain why the core is missing and what to do. Return None if the folder has a core for this interpreter."""
    if any((folder / f"_core{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        return None
    others = sorted(path.name for path in folder.glob("_core.*") if path.suffix in (".so", ".pyd"))
    version = ".".join(map(str, sys.version_info[:2]))
    found = f"found {', '.join(others)}, built for another Python or platform" if others else "found none"
    return (f"pydispatch: the compiled core is missing in {folder}: {found}, "
            f"expected _core{EXTENSION_SUFFIXES[0]} for CPython {version}\n"
            f"install it with this Python: {sys.executable} -m pip install --force-reinstall pydispatch-numpy, "
            "or in a checkout: pip install -e .")
