"""Each module of the package names its tests, by its path or in a line `# tests: path` of its header.

The path is without the underscores of private names.
"""

import re
from pathlib import Path

from tests.together import together

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pydispatch"
TESTS = ROOT / "tests"
SMALL = 50      # lines
HEADER = re.compile(r"^# tests: (\S+)$", re.MULTILINE)
FOLDERS = {     # of declarations that the tests of a table cover
    "numpy": "numpy/test_functions.py",
    "operators": "operators/test_declarations.py",
    "backends/dask": "backends/dask/test_arrays.py",
    "backends/sparse": "backends/sparse/test_sparse.py",
}
PARTS = {       # of the core, by the name of the part
    "arrays": "test_keys.py",
    "binding": "core/test_calls.py",
    "buffer_cache": "core/test_kept_memory.py",
    "c_functions": "library/test_c_functions.py",
    "chains": "core/test_loops.py",
    "compiled": "compiling/test_functions.py",
    "contexts": "modes/test_context.py",
    "engine": "autograd/test_tape.py",
    "entry_points": "properties/test_fast_and_general.py",
    "free_list": "core/test_kept_arrays.py",
    "functions": "autograd/test_function.py",
    "fused_loops": "core/test_plans.py",
    "grad": "func/test_grad.py",
    "guards": "modes/test_guards.py",
    "in_place": "autograd/test_in_place.py",
    "interpreters": "func/test_levels.py",
    "jvp": "func/test_jvp.py",
    "jacobians": "func/test_jacobians.py",
    "keys": "test_keys.py",
    "modes": "modes/test_dispatch_mode.py",
    "operators": "registry/test_registrations.py",
    "plan_checks": "core/test_plans.py",
    "profiling": "debug/test_profile.py",
    "pytrees": "test_tree.py",
    "queue": "autograd/test_tape.py",
    "recording": "autograd/test_tape.py",
    "registrations": "registry/test_registrations.py",
    "residuals": "autograd/test_saved_tensors.py",
    "results": "core/test_calls.py",
    "scans": "compiling/test_control_flow.py",
    "shapes": "core/test_loops.py",
    "signature": "core/test_stripping.py",
    "special_methods": "test_tensor.py",
    "stack": "func/test_levels.py",
    "state": "modes/test_stack.py",
    "steps": "core/test_plans.py",
    "subclasses": "subclasses/test_handler.py",
    "substitution": "compiling/test_captures.py",
    "table": "registry/test_tables.py",
    "tape": "autograd/test_tape.py",
    "tensor": "test_tensor.py",
    "thread_pool": "compiling/test_large_arrays.py",
    "transform": "func/test_transform.py",
    "values": "core/test_calls.py",
    "vmap": "func/test_vmap.py",
}
MODULES = [path for ending in ("py", "pyx") for path in sorted(PACKAGE.rglob(f"*.{ending}"))
           if path.name != "_core.pyx" and len(path.read_text().splitlines()) > SMALL]


def find_tests(path: Path) -> Path | None:
    """Return the test file of a module: named in its header, at its path, at its folder's, or in a table above."""
    named = HEADER.search(path.read_text())
    if named:
        return ROOT / named[1]
    if path.suffix == ".pyx":
        mirrored = TESTS / "core" / f"test_{path.stem}.py"
        return mirrored if mirrored.exists() else TESTS / PARTS[path.stem] if path.stem in PARTS else None
    folder = Path(*[part.removeprefix("_") for part in path.parent.relative_to(PACKAGE).parts])
    mirrored = [TESTS / folder / f"test_{path.stem.removeprefix('_')}.py"]
    mirrored += [TESTS / above.parent / f"test_{above.name}.py" for above in (folder, *folder.parents) if above.name]
    mirrored += [TESTS / FOLDERS[str(folder)]] if str(folder) in FOLDERS else []
    return next((found for found in mirrored if found.exists()), None)


@together("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_module_has_tests(path):
    tests = find_tests(path)
    assert tests is not None, f"write `# tests: tests/...` below the docstring of {path.relative_to(ROOT)}"
    assert tests.exists(), f"{path.relative_to(ROOT)} names {tests.relative_to(ROOT)}, which does not exist"


def test_the_tables_name_parts_that_exist():
    assert set(PARTS) <= {path.stem for path in PACKAGE.rglob("*.pyx")}
    assert all((PACKAGE / folder).is_dir() for folder in FOLDERS)
