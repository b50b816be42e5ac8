"""A service that has no batched calls is called for each entity by itself (S18)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from app import limits
from app.db import transaction
from app.errors import RemoteFailed
from app.limits import Queue
from app.proto.tidemill.v1 import stage_pb2
from stages.model import Stage
from stages.remote import asks
from stages.remote.client import client_of
from tests.kit.remote import Service
from tests.kit.stages_rows import Stages, entity, execute, visit, visits, waiting, world

NAMES = ("a", "b", "c")
THREE_CALLS = {"ShouldProcessBatch": "UNIMPLEMENTED", "ProcessBatch": "UNIMPLEMENTED"}
DONE = {"*": {"set": {"status": "done"}}}


@pytest.fixture
def stages(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stages]:
    # A queue rests, and nobody is asked, until the test says that this is over.
    monkeypatch.setattr(limits, "REST", limits.REST_MOST)
    monkeypatch.setattr(asks, "QUIET", timedelta(hours=1))
    with world() as found:
        yield found


def _serve(stages: Stages, *names: str) -> None:
    for name in names or ("system", "score.ask", "score"):
        stages.serve(name)


def _ready(stages: Stages, service: Service, **more: Any) -> None:
    """Entities that wait for the stage."""
    service.behaves(status=THREE_CALLS)
    service.stage(**more)
    stages.sync()
    stages.put(*NAMES, price=1)
    _serve(stages, "system", "score.ask")


def _behaves(service: Service, status: dict[str, str] | None = None, **ways: Any) -> None:
    service.behaves(status={**THREE_CALLS, **(status or {})}, **ways)


def _told() -> list[tuple[str, int, str]]:
    return [(row.entity_id, row.attempts, row.state) for row in visits("score")]


def _rests() -> str:
    (row,) = execute(sa.select(Queue.rests_why).where(Queue.name == "stage.offer.score"))
    return row.rests_why or ""


def _rested() -> None:
    execute(sa.update(Queue).where(Queue.name == "stage.offer.score").values(rests_until=sa.func.now()))


def test_each_is_asked_about_and_visited_by_itself(stages: Stages, service: Service) -> None:
    service.stage()
    stages.sync()
    _behaves(service, should={"b": False}, process={"*": {"set": {"status": "done"}, "count": True}})
    stages.put(*NAMES, price=1)
    _serve(stages)
    assert [entity(each).status for each in NAMES] == ["done", "new", "done"]
    assert (service.ids("ShouldProcess"), service.ids("Process")) == ([*NAMES], ["a", "c"])
    assert [call["ids"] for call in service.calls("ProcessBatch")] == [["a", "c"]]
    assert waiting() == []
    execute("UPDATE offer SET price = 2")
    _serve(stages)
    assert [call["state_version"] > 0 for call in service.calls("Process")] == [False, False, True, True]
    assert len(service.calls("ProcessBatch")) == len(service.calls("ShouldProcessBatch")) == 1, "it is known by then"
    (failures,) = execute(sa.select(Stage.ask_failures).where(Stage.name == "score"))
    assert failures[0] == 0


def test_what_cannot_be_asked_is_visited(stages: Stages, service: Service) -> None:
    # S4
    service.stage()
    stages.sync()
    _behaves(service, should={"a": "empty", "b": {"abort": "INTERNAL"}, "c": False})
    stages.put(*NAMES)
    _serve(stages, "system", "score.ask")
    assert waiting() == [("a", "score"), ("b", "score")]
    (failures,) = execute(sa.select(Stage.ask_failures).where(Stage.name == "score"))
    assert failures[0] == 2


def test_who_is_away_is_not_asked_about_the_others(stages: Stages, service: Service) -> None:
    # S4 S18
    service.stage()
    stages.sync()
    _behaves(service, should={"a": False, "b": {"abort": "RESOURCE_EXHAUSTED"}})
    stages.put(*NAMES)
    _serve(stages, "system", "score.ask")
    assert service.ids("ShouldProcess") == ["a", "b"]
    assert waiting() == [("b", "score"), ("c", "score")]


def test_one_that_fails_is_charged_and_no_other(stages: Stages, service: Service) -> None:
    # S17
    _ready(stages, service, max_attempts=1)
    _behaves(service, process={"b": {"abort": "INTERNAL", "why": "b"}, **DONE})
    stages.serve("score")
    assert [entity(each).status for each in NAMES] == ["done", "new", "done"]
    assert _told() == [("b", 1, "parked")]
    assert "answered INTERNAL: because of b" in visit("b", "score").error


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("status", ["UNIMPLEMENTED", "PERMISSION_DENIED"])
def test_who_is_away_costs_nobody_an_attempt(stages: Stages, service: Service, status: str, *, known: bool) -> None:
    # S17 S18
    _ready(stages, service, max_attempts=1)
    if known:
        remote = service.made[-1]
        with pytest.raises(RemoteFailed):
            client_of(remote).call("ProcessBatch", stage_pb2.ProcessBatchRequest(stage="score"), 20.0)
    _behaves(service, {"Process": status})
    stages.serve("score")
    assert service.ids("Process") == ["a"], "the others are not tried"
    assert _told() == [(each, 0, "waiting") for each in NAMES]
    assert status in _rests()
    _behaves(service, process=DONE)
    _rested()
    stages.serve("score")
    assert [entity(each).status for each in NAMES] == ["done"] * 3
    assert (_rests(), waiting()) == ("", [])


def test_a_trial_asks_first_whether_it_is_there(stages: Stages, service: Service) -> None:
    # S17
    _ready(stages, service, max_attempts=1)
    with transaction() as session:
        limits.rest(session, "stage.offer.score", "away")
    _behaves(service, {"ProcessBatch": "UNAVAILABLE"})
    _rested()
    stages.serve("score")
    assert (service.ids("Process"), _told()) == ([], [(each, 0, "waiting") for each in NAMES])
    _behaves(service, process=DONE)
    _rested()
    stages.serve("score")
    assert waiting() == []


def test_batches_are_asked_for_again_over_a_new_channel(stages: Stages, service: Service) -> None:
    _ready(stages, service)
    _behaves(service)
    stages.serve("score")
    client = client_of(service.made[-1])
    assert client.lacks("ProcessBatch")
    client._forget(service.address)
    assert not client.lacks("ProcessBatch")
    service.behaves(process=DONE)
    execute("UPDATE offer SET price = 2")
    _serve(stages)
    assert [entity(each).status for each in NAMES] == ["done"] * 3
    assert [call["ids"] for call in service.calls("ProcessBatch")][-1] == [*NAMES]
    assert len(service.calls("Process")) == 3
