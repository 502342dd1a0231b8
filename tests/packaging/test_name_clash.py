"""Two other projects install an import package of our name, and pip lets the later `__init__.py` win."""

from pathlib import Path
from zipfile import ZipFile

import pytest

pytestmark = pytest.mark.slow

SEND_A_SIGNAL = """
from pydispatch import dispatcher
received = []
def receiver(sender, value):
    received.append((sender, value))
dispatcher.connect(receiver, signal="stored")
dispatcher.send("stored", "spider", value=3)
assert received == [("spider", 3)], received
"""
ENTRIES = [("-c", "import pydispatch.library"), ("-c", "import pydispatch.ops"), ("-m", "pydispatch", "ops"),
           ("-m", "pydispatch", "doctor")]


def assert_works(environment, *arguments: str) -> None:
    completed = environment.python(*arguments)
    assert completed.returncode == 0, completed.stderr


def assert_clash_is_explained(environment) -> None:
    for entry in ENTRIES:
        completed = environment.python(*entry)
        assert completed.returncode != 0
        explanation = completed.stderr.partition("ImportError: ")[2]
        assert "PyDispatcher" in explanation, completed.stderr
        assert "pip install --force-reinstall" in explanation
        assert "pydispatch-numpy" in explanation


@pytest.mark.parametrize("theirs", ["PyDispatcher", "python-dispatch"])
def test_only_the_init_file_is_shared(environment, wheel: Path, theirs: str) -> None:
    environment.pip("install", "--no-deps", "--target", environment.folder, theirs)
    installed = {path.relative_to(environment.folder).as_posix() for path in environment.folder.rglob("*.py")}
    with ZipFile(wheel) as archive:
        assert installed & set(archive.namelist()) == {"pydispatch/__init__.py"}


def test_ours_second_serves_both(environment, wheel: Path) -> None:
    environment.pip("install", "PyDispatcher")
    environment.pip("install", wheel)
    assert_works(environment, "-c", SEND_A_SIGNAL)
    for entry in ENTRIES:
        assert_works(environment, *entry)


@pytest.mark.parametrize("theirs", ["PyDispatcher", "python-dispatch"])
def test_theirs_second_is_explained_and_the_remedy_works(environment, wheel: Path, theirs: str) -> None:
    environment.pip("install", wheel)
    environment.pip("install", theirs)
    assert_clash_is_explained(environment)
    environment.pip("uninstall", "--yes", theirs)
    assert_clash_is_explained(environment)
    environment.pip("install", "--force-reinstall", "--no-deps", wheel)
    for entry in ENTRIES:
        assert_works(environment, *entry)


def test_the_remedy_serves_both_while_theirs_stays(environment, wheel: Path) -> None:
    environment.pip("install", wheel)
    environment.pip("install", "PyDispatcher")
    environment.pip("install", "--force-reinstall", "--no-deps", wheel)
    assert_works(environment, "-c", SEND_A_SIGNAL)
    for entry in ENTRIES:
        assert_works(environment, *entry)
