"""The how-tos are true: their code runs as it stands there, and their commands do what they say, or say why not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.acceptance import test_doc_pages
from tests.conftest import child_environment
from tests.integration import test_stage_pages
from tests.kit import doc_pages
from tests.kit.database import Databases
from tests.kit.howto_worlds import WORLDS

#: By whom else the code of a page is run.
ELSEWHERE = {*test_stage_pages.PAGES, "keep-state", *test_doc_pages.FOLLOWED}


def program(module: str, words: list[str], env: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=540)


def test_the_code_of_the_howtos_runs(databases: Databases, broker_url: str, tmp_path: Path) -> None:
    urls = {page: databases.clone() for page in WORLDS}
    env = child_environment(next(iter(urls.values())), broker_url, TIDEMILL_MODULES="")
    done = program("tests.kit.howto", [f"{page}={url}" for page, url in urls.items()], env, tmp_path)
    for url in urls.values():
        databases.drop(url)
    failed = [page for page in WORLDS if f"{page}: ok\n" not in done.stdout]
    assert not failed, f"{failed}\n{done.stdout}\n{done.stderr}"


def test_the_code_of_every_howto_is_run_by_somebody() -> None:
    with_code = {
        path.stem
        for path in (doc_pages.DOCS / "howto").glob("*.md")
        if any(block.language == "python" for block in doc_pages.blocks(f"howto/{path.name}"))
    }
    assert with_code <= {*WORLDS, *ELSEWHERE}, "say in tests/kit/howto_worlds.py what the page takes for granted"


def test_the_commands_of_the_howtos_can_be_typed(env: dict[str, str], tmp_path: Path) -> None:
    done = program("tests.kit.howto_commands", [], env | {"TIDEMILL_MODULES": ""}, tmp_path)
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) > 100
    refused = [each for each in said if each["code"] != 0]
    # What it is about may not be there, which is told in one sentence; the command itself is right.
    wrong = [each for each in refused if each["code"] != 1 or each["err"].count("\n") > 1]
    assert wrong == []
    assert len(refused) < len(said) / 4, [f"{each['command']}: {each['err']}" for each in refused]
