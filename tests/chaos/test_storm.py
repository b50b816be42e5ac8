"""All paths together, and everything is broken by a plan: every committed unit of work is done, what commits with its
end once, no limit is passed, no invariant is violated, and nothing is left over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.embedded import servers as embedded_servers
from tests.chaos import ledger
from tests.chaos.disaster import DURABLE
from tests.chaos.plan import WAYS, planned
from tests.chaos.storm import Storm
from tests.conftest import child_environment, using
from tests.kit.database import Databases
from tests.kit.process import Processes
from tests.kit.proxy import Proxy, rerouted


def _storm(seed: int, seconds: float, processes: Processes, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(seed, seconds)
    again = f"SEED={seed} SECONDS={seconds:g} .venv/bin/pytest -m chaos -s tests/chaos/test_storm.py"
    print(f"again by {again}", *plan, sep="\n", flush=True)
    with (
        embedded_servers(postgres_options=DURABLE) as servers,
        Proxy(servers.postgres.port) as database,
        Proxy(servers.broker.port) as broker,
    ):
        databases = Databases(servers.admin_url, servers.database_url)
        url, broker_url = rerouted(databases.clone(), database.port), rerouted(servers.broker_url, broker.port)
        monkeypatch.setenv("TIDEMILL_BROKER_URL", broker_url)
        monkeypatch.setenv("TIDEMILL_POOL_SIZE", "20")
        env = child_environment(url, broker_url)
        with using(monkeypatch, url):
            storm = Storm(seed, plan, servers, database, broker, processes, env, home / "journal")
            try:
                storm.rage()
                storm.calm()
                storm.judge()
            except BaseException as error:
                done = sum(storm.told[way] for way in WAYS)
                error.add_note(f"after {done} of {len(plan)} blows; again by {again}; {dict(storm.told)}")
                raise
            finally:
                processes.end()
        databases.admin.dispose()
    print(f"seed {seed}: {dict(storm.told)}", flush=True)


def test_a_storm_of_one_round(processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # J1 J3 J5 P4 R1 R2 R12 S6 S10 S14 S15 T11 T16 T19 T20 T25
    _storm(20261101, 0, processes, tmp_path, monkeypatch)


@pytest.mark.chaos
def test_a_long_storm(processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make chaos SECONDS=600 SEED=7`"""
    seed = int(os.environ.get("SEED") or int.from_bytes(os.urandom(4)))
    _storm(seed, float(os.environ.get("SECONDS") or 600), processes, tmp_path, monkeypatch)


def test_the_plan_is_a_function_of_the_seed() -> None:
    plan = planned(7, 600)
    assert plan == planned(7, 600)
    assert plan != planned(8, 600)
    assert planned(7, 90) == plan[: len(planned(7, 90))], "a shorter run is the beginning of a longer one"
    assert {blow.way for blow in planned(7, 1)} == WAYS.keys(), "a short one tries every way"
    assert 590 < plan[-1].at < 600


def test_a_rate_is_judged_over_any_time() -> None:
    paced = [(second / 10, 1) for second in range(100)]
    assert ledger.most_in_any_time(paced, 10) == pytest.approx(1.0)
    assert ledger.most_in_any_time([*paced, (20.0, 3), (20.1, 3)], 10) == pytest.approx(5.0)
    with pytest.raises(AssertionError):
        ledger.judge_calls([0.1, 0.11, 0.12], 10)
