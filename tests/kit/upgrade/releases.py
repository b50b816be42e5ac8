"""Programs of an earlier release, from its archive or a checkout; and its data, brought to the present."""

from __future__ import annotations

import re
import sys
import tarfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
import sqlalchemy as sa
from alembic import command
from sqlalchemy.engine import Engine, make_url

from app import migrate
from app.db import SCHEMA
from tests.kit.process import ROOT, Process

HERE = Path(__file__).parent
PARCELS, RIVERS = f"{__package__}.parcels", f"{__package__}.rivers"
#: In a dump: what the program wrote, not the values of its control table, which lie years before.
_MOMENT = re.compile(r"(?<=')20(?:2[6-9]|[3-8]\d)-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+00(?=')")
_WRITTEN = re.compile(r"^-- Written at (\S+)", re.MULTILINE)


def unpack(archive: str, directory: Path) -> Path:
    with tarfile.open(HERE / archive) as tar:
        tar.extractall(directory, filter="data")
    return directory


def environment(code: Path, plain: Mapping[str, str], modules: str) -> dict[str, str]:
    """That of a program of the release whose code lies there: what is ours comes after it, also in our directory."""
    own = {"PYTHONPATH": f"{code}:{ROOT}", "PYTHONSAFEPATH": "1", "RELEASE_CODE": str(code)}
    return {**plain, **own, "TIDEMILL_MODULES": modules}


def start(what: str, env: Mapping[str, str], log: Path) -> Process:
    """`write`, under the code that the environment names."""
    return Process(what, [sys.executable, "-m", f"{__package__}.write", what], env, log)


def run(what: str, env: Mapping[str, str], log: Path) -> None:
    """To its end."""
    program = start(what, env, log)
    try:
        if program.wait(120):
            raise AssertionError(f"{what} failed; its log:\n{program.log}")
    finally:
        program.end()


def upgrade_to(engine: Engine, revision: str) -> None:
    """Only so far."""
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(SCHEMA, if_not_exists=True))
        config = migrate.config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def load(name: str, url: str, ago: timedelta = timedelta(0)) -> None:
    """Into an empty database; its moments are moved, as if it had been written so long ago."""
    text = (HERE / name).read_text()
    found = _WRITTEN.search(text)
    assert found, "the dump says when it was written"
    gone = datetime.now(UTC) - datetime.fromisoformat(found[1]) - ago
    with _connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(_MOMENT.sub(lambda moment: _later(moment[0], gone), text))
    connection.close()


def _later(moment: str, span: timedelta) -> str:
    return (datetime.fromisoformat(f"{moment}:00") + span).isoformat(" ")


def _connected(url: str) -> Any:
    return psycopg2.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))
