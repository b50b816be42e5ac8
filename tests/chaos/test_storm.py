"""Producers, workers, scheduler, broker and Postgres die at random; every committed job is done, and reactive tasks
process all that is new: none of it twice where they commit with the end of the run, and nothing in between left out."""

from __future__ import annotations

import os

import pytest

from app.embedded import servers as embedded_servers
from tests.chaos.disaster import DURABLE
from tests.chaos.storm import Storm
from tests.conftest import child_environment, using
from tests.kit.database import Databases
from tests.kit.process import Processes


def _storm(seed: int, seconds: float, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Storm:
    with embedded_servers(postgres_options=DURABLE) as servers:
        databases = Databases(servers.admin_url, servers.database_url)
        url = databases.clone()
        monkeypatch.setenv("TIDEMILL_BROKER_URL", servers.broker_url)
        with using(monkeypatch, url):
            storm = Storm(seed, seconds, servers, processes, child_environment(url, servers.broker_url))
            storm.rage()
            storm.calm()
            storm.judge()
            processes.end()
        databases.close()
    return storm


def test_a_minute_of_storm(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:  # J1 J3 J5 T11 T16 T25
    storm = _storm(20260701, 60, processes, monkeypatch)
    assert storm.told["crash_postgres"], "the seed must break Postgres too"
    assert storm.told["wipe_the_broker"]
    assert storm.told["kill_a_worker"]


@pytest.mark.chaos
def test_a_long_storm(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make chaos SECONDS=600 SEED=7`"""
    seed = int(os.environ.get("SEED") or int.from_bytes(os.urandom(4)))
    print(f"seed {seed}", flush=True)
    storm = _storm(seed, float(os.environ.get("SECONDS") or 300), processes, monkeypatch)
    print(f"seed {seed}: {dict(storm.told)}", flush=True)
