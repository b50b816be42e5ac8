"""Stages in other services through real workers: whatever happens to the service, local stages go on, and nothing is
lost (S18)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from recovery import invariants
from stages.model import Stage
from tests.kit import remote_world as w
from tests.kit.cli import Tidemill, script
from tests.kit.process import Processes
from tests.kit.remote import Service
from tests.kit.waiting import wait_until

SECONDS = 300
#: As good as nothing: so long may a machine be busy with something else.
LITTLE = 2.0


@pytest.fixture
def service(processes: Processes, tmp_path: Path) -> Iterator[Service]:
    found = Service(processes, tmp_path / "service").start()
    found.behaves(process=w.SCORED)
    yield found
    found.end()


@pytest.fixture
def env(env: dict[str, str], engine: Engine, service: Service, tmp_path: Path) -> dict[str, str]:
    w.create(engine)
    return env | {
        "TIDEMILL_MODULES": w.MODULES,
        "TIDEMILL_REMOTE_STAGES": str(w.file(tmp_path, service.address)),
        "TIDEMILL_SWEEP_INTERVAL": "200ms",
        "TIDEMILL_LEASE": "3s",
    }


def _names(word: str, count: int = 150) -> list[str]:
    return [f"{word}{number}" for number in range(count)]


def _count(session: Session, word: str) -> float:
    """How long the local stage takes for new adverts."""
    begun = time.monotonic()
    w.put(session, _names(word))
    wait_until(lambda: w.counted(session, f"counted = number AND id LIKE '{word}%'") == 150, SECONDS, "all are counted")
    return time.monotonic() - begun


def _at_rest(session: Session, count: int) -> None:
    wait_until(lambda: w.counted(session, "scored = 'yes' AND counted = number") == count, SECONDS, f"{count} are done")
    wait_until(lambda: not w.left(session), SECONDS, "no queue holds anything")
    assert invariants.check(session) == []


def _break(service: Service, how: str) -> None:
    match how:
        case "killed":
            service.kill()
        case "hung":
            service.behaves(hang=["ProcessBatch", "ShouldProcessBatch"])
        case "slow":
            service.behaves(slow=1, process=w.SCORED)
        case "nonsense":
            service.behaves(process={"*": {"raw": "[]"}}, should={"*": "empty"})
        case _:
            service.behaves(status={"ProcessBatch": how, "ShouldProcessBatch": how})


@pytest.mark.parametrize("how", ["killed", "hung", "slow", "nonsense", "INTERNAL"])
def test_local_stages_go_on_and_nothing_is_lost(
    how: str, env: dict[str, str], processes: Processes, session: Session, service: Service
) -> None:
    # S17 S18
    processes.celery_worker(env)
    processes.scheduler(env)
    _count(session, "warm")
    good = _count(session, "good")
    _at_rest(session, 300)
    _break(service, how)
    bad = _count(session, "bad")
    again = _count(session, "more")
    assert max(bad, again) < 15 * max(good, LITTLE), (good, bad, again)
    if how == "killed":
        service.start()
    service.behaves(process=w.SCORED)
    _at_rest(session, 600)
    assert w.left(session, "state = 'parked'") == 0


def test_a_worker_that_dies_while_the_service_hangs(
    env: dict[str, str], processes: Processes, session: Session, service: Service
) -> None:
    # S17
    service.behaves(hang=["ProcessBatch"])
    worker = processes.celery_worker(env | {"TIDEMILL_REMOTE_STAGES": env["TIDEMILL_REMOTE_STAGES"]})
    processes.scheduler(env)
    w.put(session, _names("a", 20))
    wait_until(lambda: w.left(session, "stage = 'score' AND state = 'running'"), SECONDS, "a call is under way")
    worker.kill()
    service.behaves(process=w.SCORED)
    processes.celery_worker(env)
    _at_rest(session, 20)


def test_a_worker_that_is_stopped_does_not_wait_for_the_service(
    env: dict[str, str], processes: Processes, session: Session, service: Service, tmp_path: Path
) -> None:
    # J8
    w.file(tmp_path, service.address, "plaintext = true\nmax_parallel = 1\nasks = false").write_text(
        (tmp_path / "remote.toml").read_text().replace('"1500ms"', '"10min"')
    )
    service.behaves(hang=["ProcessBatch"])
    worker = processes.celery_worker(env | {"TIDEMILL_GRACE": "300ms", "TIDEMILL_LEASE": "10min"})
    processes.scheduler(env)
    w.put(session, _names("a", 3))
    wait_until(lambda: service.calls("ProcessBatch"), SECONDS, "a call is under way")
    worker.terminate()
    # The call alone would take ten minutes.
    worker.wait()
    wait_until(lambda: not w.left(session, "state = 'running'"), SECONDS, "they were handed back")
    assert w.left(session, "stage = 'score' AND attempts = 0") == 3


def test_a_service_at_rest_is_shown(
    env: dict[str, str], processes: Processes, session: Session, service: Service, tidemill: Tidemill
) -> None:
    service.kill()
    processes.celery_worker(env)
    processes.scheduler(env)
    w.put(session, _names("a", 3))
    words = f"paused: advert.score at {service.address} does not answer (UNAVAILABLE), next try "
    wait_until(lambda: words in tidemill("stage list").out, SECONDS, "its queue rests")
    for command in ("queue list", "status"):
        assert f"stage.advert.score: {words}" in tidemill(command).out
    (found,) = [each for each in tidemill("stage list --json").data["stages"] if each["name"] == "score"]
    assert found["rests_why"] in words
    assert found["rests_until"] is not None
    (found,) = [each for each in tidemill("queue list --json").data["queues"] if each["name"] == "stage.advert.score"]
    assert found["rests_why"] in words
    services = [each for each in tidemill("doctor --json").data["findings"] if each["check"] == "services"]
    assert [each["level"] for each in services] == ["warn"]
    assert f"advert.score at {service.address}" in services[0]["detail"]
    names = [each["name"] for each in tidemill("stage list --kind advert --json").data["stages"]]
    assert names == ["count", "score", "score.ask", "system"]
    assert tidemill("stage peek score").code == tidemill("stage peek score.ask").code == 0
    service.start()
    _at_rest(session, 3)
    assert "advert.score: paused" not in tidemill("stage list").out


def test_what_is_wrong_in_the_file_stops_the_start(env: dict[str, str], tmp_path: Path, processes: Processes) -> None:
    # One sentence, whichever service it is.
    path = w.file(tmp_path, "nowhere")
    told = f"TIDEMILL_REMOTE_STAGES={path}: stage 1 (advert.score): addresses: 'nowhere' is no address"
    said = script("migrate", env)
    assert said.code == 1
    assert said.err.startswith(f"Error: {told}")
    worker = processes.celery_worker(env, ready=False)
    assert worker.wait() == 1
    assert told in worker.log
    assert "Traceback" not in worker.log


def test_migrate_registers_them_and_forgets_those_that_are_gone(
    env: dict[str, str], tmp_path: Path, session: Session
) -> None:
    def known() -> dict[str, tuple[bool, bool]]:
        session.rollback()
        rows = session.execute(sa.select(Stage.name, Stage.asked, Stage.removed_at.is_(None)))
        return {name: (asked, there) for name, asked, there in rows}

    assert script("migrate", env).code == 0
    assert known() == {"count": (True, True), "score": (False, True), "score.ask": (True, True)}
    without = {name: value for name, value in env.items() if name != "TIDEMILL_REMOTE_STAGES"}
    assert script("migrate", without).code == 0
    assert known()["score"] == (False, True), "they belong to whoever has the file"
    (tmp_path / "remote.toml").write_text("")
    assert script("migrate", env).code == 0
    assert known() == {"count": (True, True), "score": (False, False), "score.ask": (True, False)}
