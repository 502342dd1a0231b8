"""Write every generated file of the repository: `python tools/regenerate.py`.

`--check` writes nothing: it names the stale files, and fails if there are any. Measurements, such as
benchmarks/instructions.json, are not generated files.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))       # a script finds only what lies beside it

import tests.backends.page
import tests.numpy.page
import tests.numpy.stub
import tests.operators.page
import tests.packaging.api
import tests.scipy.page
import tools.draw
from pydispatch._registry.operators import load_all
from pydispatch.cli.stubs import stub

ROOT = Path(__file__).resolve().parents[1]
Generator = Callable[[str], str]
"""From the text of a file to the text that it should have."""


def whole(generate: Callable[[str], str], name: str) -> Generator:
    """Return the generator of a file that has nothing written by hand."""
    return lambda _: generate(name)


def operators_of(namespace: str) -> str:
    """Return the stub of the operators of a namespace."""
    load_all(namespace)
    return stub(namespace, tests.numpy.stub.helpers() if namespace == "scipy" else ())


GENERATED: Mapping[str, Generator] = {
    "tests/packaging/api.txt": lambda _: tests.packaging.api.text(),
    "docs/architecture.svg": lambda _: tools.draw.poster(),
    "docs/backends.md": tests.backends.page.renewed,
    "docs/numpy.md": tests.numpy.page.renewed,
    "docs/operators.md": tests.operators.page.renewed,
    "docs/scipy.md": tests.scipy.page.renewed,
    "docs/static/icon.svg": lambda _: tools.draw.icon(),
    "docs/static/logo-dark.svg": lambda _: tools.draw.logo(tools.draw.LIGHT_BLUE, tools.draw.PAPER),
    "docs/static/logo-light.svg": lambda _: tools.draw.logo(tools.draw.BLUE, tools.draw.INK),
    **{f"pydispatch/_stubs/{name}.pyi": whole(operators_of, name) for name in ("masked", "np", "scipy", "sparse")},
    **{f"pydispatch/_stubs/{name.replace('.', '_')}.pyi": whole(tests.numpy.stub.hidden_in, name)
       for name in tests.numpy.stub.HIDDEN},
    "pydispatch/_stubs/universal.pyi": lambda _: tests.numpy.stub.universal(),
    "pydispatch/numpy/__init__.pyi": lambda _: tests.numpy.stub.text(),
    **{f"pydispatch/numpy/{name}.pyi": whole(tests.numpy.stub.of_module, f"numpy.{name}")
       for name in ("fft", "linalg")},
}
VERSIONS = {"numpy": tests.numpy.page.WRITTEN_FOR, "scipy": tests.scipy.page.WRITTEN_FOR}
"""The releases whose functions the files list."""


def wrong_versions() -> list[str]:
    """Return what keeps this environment from writing the files, a line for each library."""
    found = {name: importlib.metadata.version(name) for name in VERSIONS}
    return [f"the files list the functions of {name} {VERSIONS[name]}, and {version} is installed: "
            f"pip install '{name}=={VERSIONS[name]}.*'"
            for name, version in found.items() if version.split(".")[:2] != VERSIONS[name].split(".")]


def regenerate(root: Path, generated: Mapping[str, Generator], check: bool) -> list[str]:
    """Return the files that are stale, and write them unless this is a check."""
    stale = []
    for name, generate in generated.items():
        old = (root / name).read_text(encoding="utf-8")
        new = generate(old)
        if new != old:
            stale.append(name)
            if not check:
                (root / name).write_text(new, encoding="utf-8")
    return stale


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python tools/regenerate.py", description="Write every generated file.")
    parser.add_argument("--check", action="store_true", help="only name the stale files, and fail if there are any")
    check = parser.parse_args(arguments).check
    if wrong := wrong_versions():
        print(*wrong, sep="\n", file=sys.stderr)
        return 2
    stale = regenerate(ROOT, GENERATED, check)
    for name in stale:
        print(f"{name} is stale: run python tools/regenerate.py" if check else f"{name}: written")
    for name in tests.backends.page.not_installed((ROOT / "docs/backends.md").read_text(encoding="utf-8")):
        print(f"docs/backends.md: left out the table of {name}, whose library is not installed", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
