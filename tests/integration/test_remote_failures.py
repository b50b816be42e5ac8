"""Services that are away, slow or broken: nothing is lost, nobody else waits, and no entity pays for it (S17, S18)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Row

from app import limits
from app.db import transaction
from app.limits import Queue
from stages import lookup, operate
from stages.definition import Definition
from stages.model import Stage
from stages.remote import asks
from tests.kit.process import Processes
from tests.kit.remote import Service, free_port
from tests.kit.stages_rows import Stages, entity, execute, visit, visits, waiting, world

NAMES = ("a", "b", "c")
#: Of a call that hangs. A loaded machine answers others within it.
LIMIT = timedelta(seconds=3)


@pytest.fixture
def stages(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stages]:
    # However slow the machine is: a queue rests, and nobody is asked, until the test says that this is over.
    monkeypatch.setattr(limits, "REST", limits.REST_MOST)
    monkeypatch.setattr(asks, "QUIET", timedelta(hours=1))
    with world() as found:
        yield found


def _ready(stages: Stages, service: Service, *ids: str, **more: Any) -> Definition:
    """Entities that the stage wants, and that wait for it."""
    found = service.stage(**more)
    stages.sync()
    stages.put(*(ids or NAMES), price=1)
    for name in ("system", "score.ask"):
        stages.serve(name)
    return found


def _rests(stage: str = "score") -> Row[Any]:
    (row,) = execute(
        sa.select(Queue.rests_why, Queue.rests_until, Queue.rests).where(Queue.name == f"stage.offer.{stage}")
    )
    return row


def _rested(stage: str = "score") -> None:
    """As if the pause were over."""
    execute(sa.update(Queue).where(Queue.name == f"stage.offer.{stage}").values(rests_until=sa.func.now()))


def _told(stage: str = "score") -> list[tuple[str, int, bool, str]]:
    return [(row.entity_id, row.attempts, row.alone, row.state) for row in visits(stage)]


AWAY = ("UNAVAILABLE", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED")


@pytest.mark.parametrize("status", AWAY)
def test_a_service_that_is_away_costs_nobody_an_attempt(stages: Stages, service: Service, status: str) -> None:
    # S17 S18
    _ready(stages, service, max_attempts=1)
    service.behaves(status={"ProcessBatch": status, "Process": status})
    stages.serve("score")
    assert _told() == [(each, 0, False, "waiting") for each in NAMES]
    row = _rests()
    assert row.rests == 1
    assert f"offer.score at {service.address}" in row.rests_why
    assert status in row.rests_why
    before = len(service.calls())
    assert stages.serve("score") == 0, "it rests"
    assert len(service.calls()) == before
    for _ in range(3):
        _rested()
        assert stages.serve("score") == 1
    assert _rests().rests == 4
    assert _told() == [(each, 0, False, "waiting") for each in NAMES]
    service.behaves(process={"*": {"set": {"status": "done"}}})
    _rested()
    stages.serve("score")
    assert [entity(each).status for each in NAMES] == ["done"] * 3
    assert tuple(_rests()) == (None, None, 0)
    assert waiting() == []


def test_a_trial_takes_one_row_and_wakes_the_rest(stages: Stages, service: Service) -> None:
    _ready(stages, service)
    service.behaves(status={"ProcessBatch": "UNAVAILABLE"})
    stages.serve("score")
    service.behaves()
    _rested()
    stages.serve("score")
    assert [call["ids"] for call in service.calls("ProcessBatch")][-2:] == [["a"], ["b", "c"]]


def test_two_trials_do_not_meet(stages: Stages, service: Service) -> None:
    # One claim at a time, for the whole cluster.
    _ready(stages, service)
    with transaction() as session:
        limits.rest(session, "stage.offer.score", "away")
    _rested()
    execute(
        "UPDATE tidemill.stage_visit SET state = 'running', pass_key = gen_random_uuid(), claimed_by = 'x', "
        "claimed_at = now(), recovery_time = now() + interval '1 min' WHERE entity_id = 'c'"
    )
    assert stages.serve("score") == 0
    execute(
        "UPDATE tidemill.stage_visit SET state = 'waiting', pass_key = NULL, recovery_time = NULL, claimed_by = NULL, "
        "claimed_at = NULL WHERE entity_id = 'c'"
    )
    assert stages.serve("score") == 3


@pytest.mark.parametrize("status", ["DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"])
def test_what_is_too_much_together_is_tried_one_by_one(stages: Stages, service: Service, status: str) -> None:
    # S17: nobody knows whose fault it was.
    _ready(stages, service)
    service.behaves(status={"ProcessBatch": status})
    stages.serve("score")
    assert _told() == [(each, 0, True, "waiting") for each in NAMES]
    assert status in _rests().rests_why
    service.behaves(process={"b": {"abort": status}, "*": {"set": {"status": "done"}}})
    _rested()
    stages.serve("score")
    assert [entity(each).status for each in NAMES] == ["done", "new", "new"], "it rests again when it comes to b"
    assert _told() == [("b", 1, True, "waiting"), ("c", 0, True, "waiting")]
    _rested()
    stages.serve("score")
    assert waiting() == [("b", "score")], "the trial was that of another"


def test_a_trial_that_takes_too_long_is_the_fault_of_the_entity(stages: Stages, service: Service) -> None:
    # S17: the service has just answered an empty batch.
    _ready(stages, service, "a", max_attempts=1)
    service.behaves(process={"*": {"abort": "DEADLINE_EXCEEDED"}})
    with transaction() as session:
        limits.rest(session, "stage.offer.score", "away")
    _rested()
    stages.serve("score")
    assert _told() == [("a", 1, False, "parked")]
    assert _rests().rests == 2


def test_one_at_which_the_service_dies_holds_up_no_others(stages: Stages, service: Service) -> None:
    # S17: it dies alone, of a service that has just answered an empty batch.
    _ready(stages, service, max_attempts=2)
    service.behaves(process={"a": {"abort": "UNAVAILABLE"}, "*": {"set": {"status": "done"}}})
    stages.serve("score")
    assert _told() == [(each, 0, False, "waiting") for each in NAMES]
    before = len(service.calls("ProcessBatch"))
    _rested()
    stages.serve("score")
    assert [call["ids"] for call in service.calls("ProcessBatch")][before:] == [["a"]], "not of others too"
    assert _told() == [("a", 1, False, "waiting"), *((each, 0, False, "waiting") for each in NAMES[1:])]
    assert "UNAVAILABLE" in visit("a", "score").error
    _rested()
    stages.serve("score")
    assert [entity(each).status for each in NAMES] == ["new", "done", "done"], "the trial was that of another"
    with transaction() as session:
        limits.rest(session, "stage.offer.score", "away")
    _rested()
    stages.all_due()
    stages.serve("score")
    assert _told() == [("a", 2, False, "parked")]


def test_one_address_that_hangs_holds_up_nobody(stages: Stages, processes: Processes, tmp_path: Path) -> None:
    # S17 S18: others answer.
    hangs, well = (Service(processes, tmp_path / name).start() for name in ("hangs", "well"))
    hangs.behaves(process={"*": {"abort": "DEADLINE_EXCEEDED"}})
    well.behaves(process={"*": {"set": {"status": "done"}}})
    _ready(stages, hangs, addresses=(hangs.address, well.address), max_attempts=1)
    for _ in range(2):
        stages.serve("score")
    for name in ("x", "y", "z"):
        stages.put(name)
        for queue in ("system", "score.ask", "score", "score"):
            stages.serve(queue)
    assert [entity(each).status for each in (*NAMES, "x", "y", "z")] == ["done"] * 6
    assert _rests().rests_why is None
    assert hangs.calls("ProcessBatch")
    well.behaves(process={"*": {"abort": "DEADLINE_EXCEEDED"}})
    stages.put("slow", price=1)
    for queue in ("system", "score.ask", "score", "score"):
        stages.serve(queue)
    slow = visit("slow", "score")
    assert (slow.attempts, slow.state) == (1, "parked"), "nobody answers"
    assert "DEADLINE_EXCEEDED" in _rests().rests_why
    for each in (hangs, well):
        each.end()


def test_a_lone_one_that_takes_too_long_is_parked_in_the_end(stages: Stages, service: Service) -> None:
    # S17
    _ready(stages, service, "a", max_attempts=2, time_limit=LIMIT)
    service.behaves(process={"a": {"hang": True}})
    for _ in range(2):
        _rested()
        stages.all_due()
        stages.serve("score")
    assert _told() == [("a", 2, False, "parked")]
    assert "DEADLINE_EXCEEDED" in visit("a", "score").error


@pytest.mark.parametrize("status", ["INTERNAL", "UNKNOWN", "INVALID_ARGUMENT"])
def test_an_error_of_a_batch_is_looked_for_one_by_one(stages: Stages, service: Service, status: str) -> None:
    # S17: one bad entity never fails the others.
    _ready(stages, service, max_attempts=1)
    service.behaves(process={"b": {"abort": status, "why": "b"}, "*": {"set": {"status": "done"}}})
    stages.serve("score")
    assert [entity(each).status for each in NAMES] == ["done", "new", "done"]
    assert _told() == [("b", 1, True, "parked")]
    assert f"offer.score at {service.address} answered {status}: because of b" in visit("b", "score").error
    assert execute(sa.select(Queue.rests_why).where(Queue.rests_why.is_not(None))) == []


def test_a_trial_that_is_answered_by_an_error_wakes_the_queue(stages: Stages, service: Service) -> None:
    _ready(stages, service)
    service.behaves(process={"a": {"abort": "INTERNAL"}})
    with transaction() as session:
        limits.rest(session, "stage.offer.score", "away")
    _rested()
    stages.serve("score")
    assert _told() == [("a", 1, False, "waiting")]
    assert _rests().rests_why is None


def test_a_rate_limited_stage_stops_at_the_first_failure(stages: Stages, service: Service) -> None:
    # S15 S17
    _ready(stages, service, rate_limit="20/s")
    service.behaves(status={"Process": "UNAVAILABLE"})
    stages.serve("score")
    # Found away twice, once more as the client tries again; and nothing after that.
    assert service.ids("Process") == ["a", "a"]
    assert _told() == [(each, 0, False, "waiting") for each in NAMES]
    service.behaves(process={"b": {"abort": "INTERNAL"}})
    _rested()
    for _ in range(3):
        stages.serve("score")
    assert _told() == [("b", 1, False, "waiting")]


@pytest.mark.parametrize("status", ["UNAVAILABLE", "DEADLINE_EXCEEDED"])
def test_asking_fails_open_and_is_quiet_for_a_while(stages: Stages, service: Service, status: str) -> None:
    # S4 S18
    service.stage()
    stages.sync()
    service.behaves(status={"ShouldProcessBatch": status}, should={"*": False})
    stages.put(*NAMES)
    stages.serve()
    stages.serve("score.ask")
    assert waiting() == [(each, "score") for each in NAMES]
    (failures,) = execute(sa.select(Stage.ask_failures).where(Stage.name == "score"))
    assert failures[0] == 3
    stages.forget()
    execute("UPDATE offer SET price = 1 + coalesce(price, 1)")
    stages.serve()
    service.behaves(should={"*": False})
    assert stages.serve("score.ask") == 3
    assert waiting() == [(each, "score") for each in NAMES], "it was not asked"
    stages.forget()
    asks._refusals.clear()
    execute("UPDATE offer SET price = 1 + coalesce(price, 1)")
    stages.serve()
    stages.serve("score.ask")
    assert waiting() == []


def test_asking_fails_open_without_rest_on_other_errors(stages: Stages, service: Service) -> None:
    # S4
    service.stage()
    stages.sync()
    service.behaves(status={"ShouldProcessBatch": "INTERNAL"})
    stages.put(*NAMES)
    stages.serve()
    stages.serve("score.ask")
    assert waiting() == [(each, "score") for each in NAMES]
    assert _rests("score.ask").rests_why is None


def test_a_service_that_hangs_is_left_at_its_time_limit(stages: Stages, service: Service) -> None:
    _ready(stages, service, time_limit=LIMIT)
    service.behaves(hang=["ProcessBatch"])
    stages.serve("score")
    assert "does not answer in time (DEADLINE_EXCEEDED)" in _rests().rests_why
    assert _told() == [(each, 0, True, "waiting") for each in NAMES]
    calls = len(service.calls())
    _rested()
    stages.serve("score")
    assert len(service.calls()) == calls, "the trial begins with an empty batch"
    assert _told() == [(each, 0, True, "waiting") for each in NAMES]


def test_killed_and_started_again(stages: Stages, processes: Processes, tmp_path: Path) -> None:
    service = Service(processes, tmp_path / "service").start()
    _ready(stages, service)
    service.kill()
    stages.serve("score")
    assert "does not answer (UNAVAILABLE)" in _rests().rests_why
    assert _told() == [(each, 0, False, "waiting") for each in NAMES]
    service.start()
    _rested()
    stages.serve("score")
    assert waiting() == []
    service.end()


def test_another_address_takes_over(stages: Stages, service: Service) -> None:
    _ready(stages, service, addresses=(f"127.0.0.1:{free_port()}", service.address))
    for number in range(4):
        stages.put(f"x{number}")
        for name in ("system", "score.ask", "score"):
            stages.serve(name)
    assert waiting() == []
    assert _rests().rests_why is None
    (failed,) = execute(sa.select(Stage.ask_failures).where(Stage.name == "score"))
    assert failed[0] == 0


def _known() -> lookup.Known:
    with transaction() as session:
        return lookup.stage(session, "offer.score")


def test_an_operator_who_resumes_tries_at_once(stages: Stages, service: Service) -> None:
    _ready(stages, service)
    with transaction() as session:
        limits.rest(session, "stage.offer.score", "away")
    assert stages.serve("score") == 0
    assert [operate.resume(_known()) for _ in range(2)] == [True, False]
    assert stages.serve("score") == 3
