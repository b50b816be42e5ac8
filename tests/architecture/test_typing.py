"""The public names are typed, and all of them: `tests/typed` uses each, well and wrongly, and mypy says so."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import zipfile
from pathlib import Path

import tidemill
from website.promised import BESIDE, NAMES

ROOT = Path(__file__).parents[2]
TYPED = ROOT / "tests" / "typed"


def test_what_is_used_well_is_right_and_what_is_used_wrongly_is_an_error() -> None:
    # With the settings and the cache of `make check`. An error that is missing is an `ignore` too many.
    words = [sys.executable, "-m", "mypy", "tests/typed"]
    checked = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_programs_use_every_public_name() -> None:
    tree = ast.parse((TYPED / "well.py").read_text())
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used |= {f"{ast.unparse(node.value)}.{node.attr}" for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    of_modules = {f"{place.removeprefix('triggers.')}.{name}" for place, names in NAMES.items() for name in names}
    beside = {name for place, names in BESIDE.items() for name in (names or importlib.import_module(place).__all__)}
    promised = {*tidemill.__all__, *of_modules, *beside}
    assert promised - used == FOR_OTHER_PROGRAMS


#: An actor in another program comes by HTTP: `tidemill.outside`.
FOR_OTHER_PROGRAMS = {f"processes.outside.{name}" for name in NAMES["processes.outside"]}


#: Names of the facade are also where their package is.
OF_PACKAGES = {
    "app": ("transaction", "enqueue", "enqueue_many", "Base"),
    "app.jobs": ("cancel", "snooze", "wait", "this_job", "periodic"),
    "triggers": (
        *("ctl", "reactive", "pool", "Run", "Delta", "Delay", "RefDelay", "ChunkDelta", "ChunkDelay", "ChunkRefDelay"),
        *("All", "Any"),
    ),
    "stages": ("Watched", "stage", "Untouched", "Updated", "Patch"),
    "processes": ("actor", "decider", "start", "Flow", "Retry", "Failure"),
}


def test_the_packages_have_the_names_of_the_facade() -> None:
    for package, names in OF_PACKAGES.items():
        for name in names:
            assert getattr(importlib.import_module(package), name) is getattr(tidemill, name), (package, name)


def test_what_is_installed_says_that_it_is_typed(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        files = set(opened.namelist())
    packages = {name.split("/")[0] for name in files if name.count("/") == 1 and name.endswith("/__init__.py")}
    assert packages == {"app", "triggers", "stages", "processes", "recovery", "tidemill"}
    assert {f"{package}/py.typed" for package in packages} - files == set()
