"""The commands of `docs/howto/use-http.md`, as they are written there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import outside_actor.purchases  # noqa: F401 - declares what the page starts
import pytest
from sqlalchemy.engine import Engine

from app.db import transaction
from app.jobs import known
from app.jobs.known import Known
from processes import preferences
from tests.kit import console
from tests.kit.process import ROOT

PAGE = (ROOT / "docs" / "howto" / "use-http.md").read_text()
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVER = "http://127.0.0.1:8765"
TOKEN = re.compile(r"tidemill token create (\w+) --role (\w+) > \1.token")
CALL = re.compile(r"^call ", re.MULTILINE)


@pytest.fixture
def shop(engine: Engine) -> None:
    """What a worker of it has made known."""
    preferences.synchronize()
    with transaction() as session:
        known.register(session, [Known("shop.send_mail", "mail", 4)])


def ran(script: str, folder: Path) -> list[Any]:
    """What each call was answered."""
    with console.serving() as url:
        words = CALL.sub("echo; call ", script.replace(SERVER, url))
        found = subprocess.run(
            ["sh", "-euc", words], cwd=folder, capture_output=True, text=True, timeout=100, check=False
        )
    assert (found.returncode, found.stderr) == (0, ""), found.stdout
    return [json.loads(line) for line in found.stdout.splitlines() if line]


@pytest.mark.usefixtures("shop")
def test_its_commands(tmp_path: Path) -> None:
    lines = "".join(SHELL.findall(PAGE)).splitlines()
    # The server runs in this process, and its tokens are made here.
    for name, role in TOKEN.findall(PAGE):
        (tmp_path / f"{name}.token").write_text(console.token(name, role) + "\n")
    script = "\n".join(line for line in lines if not line.startswith("tidemill "))
    told = ran(script, tmp_path)
    assert len(told) == len(CALL.findall(script)) == 15
    (
        moved,
        value,
        values,
        history,
        dry,
        job,
        jobs,
        shown,
        cancelled,
        started,
        process,
        searched,
        broken,
        saved,
        status,
    ) = told
    assert moved["values"][0]["moved"]
    assert value["value"] == values["values"][0]["value"] == history["history"][0]["value"]
    assert (dry["dry_run"], dry["would_start"]) == (True, [])
    assert (job, jobs) == ({"job_id": 1}, {"job_ids": [2, 3]})
    assert (shown["job"]["key"], cancelled) == ("mail:17", {"cancelled": True})
    assert started["process_id"] == process["id"] == searched["processes"][0]["id"]
    assert (broken["processes"], saved["templates"]) == ([], [])
    assert {each["name"]: each["ready"] for each in status["queues"]}["mail"] == 2
