"""Writes the data of an earlier release: `python -m tests.kit.upgrade.make first 6bbe492`, in a clone with history.

Its own worker does some of the work and is killed over some; then its producers put in more. What the database is then
is dumped, with its schema as the old migrations made it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from app.embedded import binaries, servers
from tests.conftest import child_environment
from tests.kit.database import Databases
from tests.kit.process import ROOT, Processes
from tests.kit.upgrade import releases
from tests.kit.upgrade.releases import HERE, PARCELS, RIVERS
from tests.kit.waiting import wait_until

CODE = ("app", "recovery", "tidemill", "triggers", "celeryconfig.py")
MIGRATE = "from app import db, migrate; migrate.migrate(db.engine())"
#: Until the worker of the old release is killed.
JOBS_STAND = "SELECT array_agg(state || ' ' || task ORDER BY id)::text FROM tidemill.job"
RUNS_STAND = "SELECT array_agg(task || ' ' || state ORDER BY id)::text FROM tidemill.run"
QUARANTINED = "SELECT count(quarantined_at) FROM tidemill.reactive_task"


def main(name: str, commit: str) -> None:
    with tempfile.TemporaryDirectory() as scratch, servers() as own:
        directory = Path(scratch)
        code = directory / "code"
        code.mkdir()
        packed = subprocess.run(["git", "archive", commit, *CODE], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "x", "-C", str(code)], input=packed, check=True)
        url = Databases(own.admin_url, own.database_url).empty()
        reactive = (code / "triggers" / "ctl.py").exists()
        modules = f"{PARCELS},{RIVERS}" if reactive else PARCELS
        env = releases.environment(code, child_environment(url, own.broker_url), modules)
        processes = Processes(directory)
        try:
            _write(processes, env, directory, url, reactive=reactive)
        finally:
            processes.end()
        # Of this machine, in tracebacks.
        text = _dump(url, commit).replace(str(code), "/srv/tidemill").replace(str(ROOT), "/srv/shop")
        (HERE / f"{name}.dump").write_text(text)


def _write(processes: Processes, env: dict[str, str], directory: Path, url: str, *, reactive: bool) -> None:
    assert processes.python(MIGRATE, env).wait() == 0
    releases.run("tables", env, directory / "tables.log")
    worker = processes.celery_worker(env, concurrency=4)
    scheduler = processes.scheduler(env) if reactive else None
    releases.run("worked", env, directory / "worked.log")
    stand = "{waiting ,parked ,running }"
    wait_until(lambda: _kinds(url, JOBS_STAND) == {"parked stumble", "waiting postpone", "running stand"}, 60, stand)
    if reactive:
        wait_until(lambda: "running" not in _ask(url, RUNS_STAND) and _ask(url, QUARANTINED) == "1", 60)
        releases.run("more", env, directory / "more.log")
        wait_until(lambda: "hold_up running" in _ask(url, RUNS_STAND), 60)
        wait_until(lambda: _ask(url, "SELECT count(*) FROM public.flowed") == "5", 60)
    worker.kill()
    if scheduler is not None:
        scheduler.kill()
    releases.run("waiting", env, directory / "waiting.log")


def _kinds(url: str, query: str) -> set[str]:
    return {word.strip('"').replace(f"{PARCELS}.", "") for word in _ask(url, query).strip("{}").split(",")}


def _ask(url: str, query: str) -> str:
    with releases._connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        found = cursor.fetchone()[0]
    connection.close()
    return str(found)


def _dump(url: str, commit: str) -> str:
    program = binaries.postgres(18) / "pg_dump"
    words = ["--no-owner", "--no-privileges", "--rows-per-insert=100", "--column-inserts"]
    plain = url.replace("postgresql+psycopg2", "postgresql")
    env = {"PGTZ": "UTC", "PATH": ""}
    said = subprocess.run([program, *words, plain], env=env, capture_output=True, text=True, check=True).stdout
    # Words of psql, and a default of newer servers that older ones do not know.
    kept = [line for line in said.split("\n") if not line.startswith(("\\", "SET transaction_timeout"))]
    head = f"-- Written at {datetime.now(UTC).isoformat()} by the code of commit {commit}; see tests/kit/upgrade."
    return "\n".join([head, *kept]) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:])
