"""The shape of the code: small files, short functions, one place that sleeps, nothing of one machine."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from functools import cache
from pathlib import Path
from statistics import median

import pytest

import tidemill
from app import faults
from app.duties import number_of
from app.locks import Lock
from app.registry import registry

ROOT = Path(__file__).parents[2]
#: A function with its head and what it says of itself; and of the product, what it does.
FILE_LINES, FUNCTION_LINES, BODY_LINES = 400, 60, 40
#: Their statements are the schema, table by table.
LONG_FUNCTIONS = {
    "app/migrations/versions/0001_durable_jobs.py:upgrade",
    "app/migrations/versions/0002_reactive_triggers.py:upgrade",
    "app/migrations/versions/0003_reactive_service.py:upgrade",
    "app/migrations/versions/0004_stages.py:upgrade",
    "app/migrations/versions/0005_events.py:upgrade",
    "app/migrations/versions/0006_processes.py:upgrade",
}
#: One statement of SQL each.
LONG_STATEMENTS = {"app/claims/statements.py:claiming", "stages/statements.py:failing"}
PRODUCT = ("app", "recovery", "triggers", "stages", "processes", "tidemill", "website")
PACKAGES = ("app", "recovery", "triggers", "stages", "processes", "tidemill", "tests", "bench", "examples", "website")
#: Words of the machines on which this was written; put together here, so that this file holds none.
OF_A_MACHINE = re.compile(
    "|".join(
        ("/" + "work/", "/" + "home/" + r"\w", "/" + "Users/", "artifact" + "ory", r"nexus" + r"\.", "--index" + "-url")
    ),
)
NOT_READ = {".lock", ".png", ".svg"}


@cache
def tracked() -> tuple[Path, ...]:
    """What is in the repository, or is about to be."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return tuple(path for name in listed.split("\0") if name and (path := ROOT / name).is_file())


def modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    for path in tracked():
        name = str(path.relative_to(ROOT))
        if path.suffix == ".py" and name.split("/")[0] in packages:
            yield name, ast.parse(path.read_text())


def test_no_file_is_too_long() -> None:
    lines = {
        str(path.relative_to(ROOT)): path.read_text().count("\n")
        for path in tracked()
        if path.suffix in (".py", ".sql") and path.relative_to(ROOT).parts[0] in PACKAGES
    }
    assert len(lines) > 80
    assert {name: count for name, count in lines.items() if count > FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    long = {
        f"{name}:{node.name}": node.end_lineno - node.lineno + 1
        for name, module in modules(*PACKAGES)
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    }
    assert {name for name, lines in long.items() if lines > FUNCTION_LINES} == LONG_FUNCTIONS


def _body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[1 if ast.get_docstring(function) and len(function.body) > 1 else 0]
    return (function.end_lineno or 0) - first.lineno + 1


def test_no_function_of_the_product_does_too_much() -> None:
    long = {
        f"{name}:{node.name}"
        for name, module in modules(*PRODUCT)
        if not name.startswith("app/migrations/versions/")
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _body_lines(node) > BODY_LINES
    }
    assert long - LONG_STATEMENTS == set()


def test_half_of_the_files_are_short() -> None:
    lines = [path.read_text().count("\n") for path in tracked() if path.suffix == ".py"]
    assert median(lines) <= 130


def _sleeps(module: ast.Module) -> bool:
    """Calls `time.sleep`, or takes it by name."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node.value) == "time")
        or (
            isinstance(node, ast.ImportFrom) and node.module == "time" and "sleep" in [each.name for each in node.names]
        )
        for node in ast.walk(module)
    )


def _pure() -> set[str]:
    """The modules that `.importlinter` calls pure, as the beginnings of paths."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    names = contracts["importlinter:contract:pure"]["source_modules"].split()
    return {name.replace(".", "/") + end for name in names for end in ("/", ".py")}


def test_pure_modules_ask_no_clock_and_throw_no_dice() -> None:
    """T1 of triggers, and the same of all that is called pure: imports alone do not say it."""
    found = {
        f"{name}: {asked}"
        for name, module in modules("app", "recovery", "triggers", "stages", "processes")
        if name.startswith(tuple(_pure()))
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute)
        and (asked := ast.unparse(node)).startswith(("datetime.now", "datetime.utcnow", "datetime.today", "random."))
    }
    # It says so itself: outside of a visit there is no other time.
    assert found == {"stages/present.py: datetime.now"}


def test_tests_sleep_in_one_place_only() -> None:
    assert [name for name, module in modules("tests") if _sleeps(module)] == ["tests/kit/waiting.py"]


def test_nothing_names_a_machine_or_a_private_registry() -> None:
    found = {
        str(path.relative_to(ROOT)): match.group()
        for path in tracked()
        if path.suffix not in NOT_READ and (match := OF_A_MACHINE.search(path.read_text(errors="replace")))
    }
    assert found == {}


def test_the_lock_names_no_index_and_pins_hashes() -> None:
    for lock in (path for path in tracked() if path.suffix == ".lock"):
        text = lock.read_text()
        assert "://" not in re.sub(r"#.*", "", text), lock.name
        pinned = re.findall(r"^[\w.\[\]-]+==\S+", text, re.MULTILINE)
        assert pinned
        assert text.count("--hash=sha256:") >= len(pinned)


def test_every_package_opens_with_what_it_is() -> None:
    silent = [
        name for name, module in modules("app", "recovery", "tidemill", "website") if not ast.get_docstring(module)
    ]
    assert silent == []


def test_tests_name_what_they_prove() -> None:
    """No test without an assertion: of its own, or one of a helper that it calls."""
    parsed = list(modules("tests"))
    functions = {
        node.name: node for _, module in parsed for node in ast.walk(module) if isinstance(node, ast.FunctionDef)
    }
    empty = [
        f"{name}:{test.name}"
        for name, module in parsed
        for test in ast.walk(module)
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_") and not _asserts(test, functions, set())
    ]
    assert empty == []


CLAIMS = re.compile(r"raises|warns|expect|assert_\w+|wait_until|wait_for|run_state_machine_as_test|never_within")


def _asserts(function: ast.FunctionDef, functions: dict[str, ast.FunctionDef], seen: set[str]) -> bool:
    seen.add(function.name)
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).split(".")[-1]
            if CLAIMS.fullmatch(called):
                return True
            if called in functions and called not in seen and _asserts(functions[called], functions, seen):
                return True
    return False


@pytest.mark.parametrize("name", tidemill.__all__)
def test_the_facade_only_passes_on(name: str) -> None:
    found = getattr(tidemill, name)
    if inspect.ismodule(found):
        assert not found.__name__.startswith("tidemill")
        return
    assert found.__module__ != "tidemill"
    assert getattr(importlib.import_module(found.__module__), name) is found


def test_every_fault_point_is_reached_somewhere() -> None:
    used = {
        str(node.args[0].value)
        for _, module in modules("app", "recovery", "triggers", "stages", "processes")
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "faults.reach"
        and isinstance(node.args[0], ast.Constant)
    }
    assert used == set(faults.POINTS)


def test_every_advisory_lock_has_a_number_of_its_own() -> None:
    """They are given in one place: two that were one number made programs wait for each other that need not."""
    assert len({lock.value for lock in Lock}) == len(Lock.__members__)
    assert len({number_of(name) for name in registry.passes}) == len(registry.passes) > 10
    taking = {
        name
        for name, module in modules("app", "recovery", "triggers", "stages", "processes", "tidemill")
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute | ast.Constant) and "advisory_" in ast.unparse(node)
    }
    assert taking == {"app/locks.py", "app/duties.py"}


#: Put into commands as they are: numbers, and words that are quoted where they are put together.
PLAIN_WORDS = re.compile(
    r"shlex\.(quote|join)\(.*\)|quoted|(\w+\.)*(\w*id|made|copy|number)|self\.finding\.tasks\[0\]|words|settings|service|"
    r"reason|_reason\(rule\)|rule\.proposes|_precise\(to\)|current\.isoformat\(\).*"
)


def _commands(module: ast.Module) -> Iterator[str]:
    """What is put into commands that people copy."""
    for node in ast.walk(module):
        command = False
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.Constant):
                text = re.split(r"[;:(#'\n]", str(part.value))[-1] if command else str(part.value)
                command = bool(re.search(r"(tidemill [a-z]+ [a-z]|celery -A app)[^;:(#'\n]*$", text)) or (
                    command and text == str(part.value)
                )
            elif command and isinstance(part, ast.FormattedValue):
                yield ast.unparse(part.value)


def test_commands_to_copy_are_quoted_for_a_shell() -> None:
    """Names of queues, tasks and entities may hold anything."""
    found = {
        (name, word)
        for name, module in modules("app", "recovery", "triggers", "stages", "processes")
        for word in _commands(module)
    }
    assert len([word for _, word in found if word.startswith("shlex.")]) > 20
    assert {each for each in found if not PLAIN_WORDS.fullmatch(each[1])} == set()
