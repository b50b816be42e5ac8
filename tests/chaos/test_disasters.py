"""The drills of `docs/howto/disaster-drills.md`, each as it is written there."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import processes
from tests.chaos import exercise
from tests.chaos.disaster import LONG, Cluster, back_up, cluster, restore
from tests.kit.process import Processes
from tests.kit.waiting import wait_until, wait_while_it_moves
from tidemill import enqueue, start, transaction

pytestmark = pytest.mark.chaos


@pytest.fixture
def drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with cluster(Processes(tmp_path), monkeypatch) as found:
        yield found


def test_the_broker_is_wiped(drill: Cluster) -> None:
    # R12
    drill.worker(), drill.scheduler()
    drill.travel(0, 300)
    drill.wait_for_steps(300)
    drill.servers.broker.wipe()
    said = drill.say("doctor")
    assert said.code == 1
    assert "broker" in said.out
    assert drill.say("status").code == 0
    drill.travel(300, 20)
    drill.servers.broker.start()
    begun = time.monotonic()
    drill.wait_for_steps(20)
    print(f"work goes on {time.monotonic() - begun:.1f} s after the broker came back empty", flush=True)
    drill.journeys(range(320))
    assert int(str(drill.one("SELECT coalesce(sum(work_timeouts), 0) FROM tidemill.actor_preferences"))) == 0


def test_a_backup_is_restored_under_workers_that_hold_claims(drill: Cluster, tmp_path: Path) -> None:
    # J3 P5 R1: what they hold was never handed out, as the database has it; or belongs to something else by now.
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    kept = start(exercise.send, first, 1)
    enqueue(exercise.haul.s(first, 10))
    drill.travel(0, 20)
    backup = tmp_path / "backup"
    back_up(drill.servers, backup)
    old = drill.worker(concurrency=4)
    lost = start(exercise.send, first, 2)
    for number in (1, 2, 10):
        wait_until(Path(f"{first}.{number}").exists, LONG, f"{number} is at the gate")

    restore(drill.servers, backup)
    drill.scheduler()
    # The ids of what was lost are given out again.
    with transaction() as session:
        session.execute(sa.text("SELECT setval('tidemill.process_id_seq', :next, false)"), {"next": lost})
    again = start(exercise.send, second, 3)
    assert again == lost
    drill.worker(concurrency=4)
    wait_until(Path(f"{second}.3").exists, LONG, "another task of the same number is in work")
    Path(first).touch()
    wait_until(lambda: processes.show(kept).state == "FINISHED", LONG, old.log)
    wait_until(lambda: "refused" in old.log, LONG, old.log)
    assert processes.show(again).state == "ACTIVE"
    Path(second).touch()
    drill.journeys(range(20), also={kept: 1, again: 3})
    wait_until(lambda: drill.one("SELECT count(*) FROM tidemill.job") == 0, LONG, "the job is done")
    assert drill.one("SELECT string_agg(value, ',') FROM public.hauled") == "10"
    drill.sound()


@pytest.mark.parametrize("way", ["fails", "kills"])
def test_a_bad_release(drill: Cluster, way: str) -> None:
    # P9 R2 R9: what rests on the bad actor breaks, and nothing else; when that is mended, all of it is done again.
    bad, _ = drill.worker(EXERCISE_RELEASE=way), drill.scheduler()
    orders = [start(exercise.deliver, number) for number in range(10)]
    drill.travel(0, 10)
    wait_while_it_moves(drill.states, lambda states: states == {"BROKEN": 10, "FINISHED": 10}, LONG)
    (group,) = json.loads(drill.say("process errors --json").out)["errors"]
    assert (group["actor"], group["count"]) == ("ship", 10)
    assert drill.say("doctor").code == 0 or "broken" in drill.say("doctor").out

    assert drill.say("actor block ship").code == 0
    bad.kill()
    drill.worker()
    later = start(exercise.deliver, 10)
    wait_until(lambda: drill.waiting("ship") == 1, LONG, "the new one waits for the blocked actor")
    assert drill.say("actor unblock ship").code == 0
    words = ("--reason", "mended in the next release", "--yes", "--wait")
    said = drill.say("recover operation start restart-task --actor ship", *words)
    assert said.code == 0, said.err
    values: dict[int, object] = {process_id: number * 2 for number, process_id in enumerate([*orders, later])}
    drill.journeys(range(10), also=values)


def test_all_workers_are_gone(drill: Cluster) -> None:
    # R4 R6: lost claims are taken back once, and then nothing is repaired, however long nobody comes.
    workers = [drill.worker(), drill.worker()]
    drill.scheduler()
    drill.travel(0, 200)
    drill.wait_for_steps(200)
    for worker in workers:
        worker.kill()
    wait_until(lambda: "no live worker takes them" in drill.say("status").out, LONG, "status says so")
    wait_until(lambda: drill.one("SELECT count(*) FROM tidemill.decision WHERE state = 'WORK'") == 0, LONG)
    repaired = drill.one("SELECT count(*) FROM tidemill.repair")
    assert drill.say("recover sweep").code == 0
    (found, *_) = json.loads(drill.say("process search --state active --limit 1 --json").out)["processes"]
    assert drill.say(f"process show {found['id']}").code == 0
    assert drill.one("SELECT count(*) FROM tidemill.repair") == repaired
    drill.worker()
    drill.journeys(range(200))


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_the_clock_of_a_worker_is_off_by_an_hour(drill: Cluster, seconds: int) -> None:
    # Decisions about time are those of the database's clock. A ticket carries the time of whoever rang.
    right, wrong = drill.worker(), drill.worker(skew=seconds)
    drill.scheduler()
    drill.travel(0, 100)
    drill.finish()
    said = drill.say_skewed("doctor", seconds)
    assert re.search("differ by (3600|3599|3601)", said.out), said
    assert drill.one("SELECT count(*) FROM tidemill.repair") == 0
    # And with nobody else left.
    right.kill()
    drill.travel(100, 50)
    begun = time.monotonic()
    drill.journeys(range(150))
    print(f"50 journeys in {time.monotonic() - begun:.1f} s, by a worker that is off by {seconds} s", flush=True)
    assert wrong.status is None
