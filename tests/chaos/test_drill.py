"""Everything is killed at random; every process finishes, every job is done, every entity comes to rest."""

from __future__ import annotations

import os

import pytest

from app.embedded import servers as embedded_servers
from tests.chaos.disaster import DURABLE
from tests.chaos.drill import Drill
from tests.conftest import child_environment, using
from tests.kit.database import Databases
from tests.kit.process import Processes


def _drill(seed: int, seconds: float, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Drill:
    with embedded_servers(postgres_options=DURABLE) as servers:
        databases = Databases(servers.admin_url, servers.database_url)
        url = databases.clone()
        monkeypatch.setenv("TIDEMILL_BROKER_URL", servers.broker_url)
        with using(monkeypatch, url):
            drill = Drill(seed, seconds, servers, processes, child_environment(url, servers.broker_url))
            drill.run()
            drill.calm()
            drill.judge()
            processes.end()
        databases.close()
    return drill


def test_everything_is_killed_for_half_a_minute(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    # R1 R2 R12 J3 P4 S10
    drill = _drill(20261101, 30, processes, monkeypatch)
    assert min(drill.told[way] for way in ("crash_postgres", "flush_the_broker", "kill_a_worker")) > 0, drill.told


@pytest.mark.chaos
def test_everything_is_killed_for_long(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make chaos SECONDS=600 SEED=7`"""
    seed = int(os.environ.get("SEED") or int.from_bytes(os.urandom(4)))
    print(f"seed {seed}", flush=True)
    drill = _drill(seed, float(os.environ.get("SECONDS") or 600), processes, monkeypatch)
    print(f"seed {seed}: {dict(drill.told)}", flush=True)
