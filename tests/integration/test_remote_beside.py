"""Remote stages beside others: chains, conflicts, guards (S8 to S12)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from app.db import engine, transaction
from stages import Patch, Updated, queue
from stages.definition import Definition
from stages.model import GUARD
from stages.remote.visits import RemoteVisitBatch
from tests.kit.remote import Service
from tests.kit.stages_rows import Lot, Stages, entity, execute, visit, visits, waiting, world


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def _stage(stages: Stages, service: Service, **more: Any) -> Definition:
    found = service.stage(**more)
    stages.sync()
    return found


def _visited(stages: Stages, service: Service, *ids: str, **way: Any) -> None:
    """New entities, each visited once, and answered so."""
    service.behaves(process={"*": way})
    stages.put(*(ids or ("a",)), price=7)
    for name in ("system", "score.ask", "score"):
        stages.serve(name)


# Beside others


def test_chains_of_local_and_remote_stages_come_to_rest(stages: Stages, service: Service) -> None:
    # S8 S11: a local stage changes what the remote one watches, and the other way round.
    _stage(stages, service, watches=("price",))
    stages.stage("price", watches={"note"}, wants=lambda o, _: o.price is None, does=Patch({"price": 3}))
    stages.stage("after", watches={"status"}, wants=lambda o, _: o.status == "scored", does=Patch({"note": [9]}))
    service.behaves(process={"*": {"set": {"status": "scored"}}}, should={"*": False})
    stages.asked("a")
    for name in ("score.ask", "price"):
        stages.serve(name)
    assert waiting() == [("a", "score.ask")]
    assert (visit("a", "score.ask").hops, visit("a", "score.ask").chain) == (1, "price")
    service.behaves(process={"*": {"set": {"status": "scored"}}})
    stages.serve("score.ask")
    assert (visit("a", "score").hops, visit("a", "score").chain) == (1, "price")
    stages.serve("score")
    assert visit("a", "after").chain == "price → score"
    stages.serve("after")
    assert (entity("a").price, entity("a").status, entity("a").note) == (3, "scored", [9])
    assert waiting() == []


def test_a_circle_through_a_remote_stage_is_parked(stages: Stages, service: Service) -> None:
    # S11
    _stage(stages, service, watches=("price",))
    stages.stage("price", watches={"status"}, does=lambda o, _: Patch({"price": (o.price or 0) + 1}))
    stages.put("a")
    for round_ in range(40):
        service.behaves(process={"*": {"patch": {"status": f"s{round_}"}}})
        for name in ("system", "price", "score.ask", "score"):
            stages.serve(name)
    (row,) = [each for each in visits() if each.state == "parked"]
    assert "in a circle" in row.error
    assert "price → score" in row.error


def test_a_conflict_is_made_again(stages: Stages, service: Service) -> None:
    # S9: the answer rests on a version that somebody has overtaken.
    _stage(stages, service)
    _overtaken(stages, service, {"set": {"status": "done"}})
    assert (entity("a").status, entity("a").price, entity("a").version) == ("done", 99, 3)
    assert service.ids("Process") == ["a"]
    assert service.calls("Process")[0]["entities"][0]["price"] == 99


def test_a_patch_is_applied_to_what_has_changed_elsewhere(stages: Stages, service: Service) -> None:
    # S9
    _stage(stages, service)
    _overtaken(stages, service, {"patch": {"status": "done"}, "reads": ["note"]})
    assert (entity("a").status, entity("a").price) == ("done", 99)
    assert service.ids("Process") == []


def test_a_patch_that_rests_on_what_changed_is_made_again(stages: Stages, service: Service) -> None:
    # S9
    _stage(stages, service)
    _overtaken(stages, service, {"patch": {"status": "done"}, "reads": ["price"]})
    assert (entity("a").status, entity("a").price) == ("done", 99)
    assert service.ids("Process") == ["a"]


def _overtaken(stages: Stages, service: Service, way: dict[str, Any]) -> None:
    service.behaves(process={"*": way})
    stages.put("a", price=1)
    for name in ("system", "score.ask"):
        stages.serve(name)
    ask = RemoteVisitBatch._ask_chunk

    def overtaken(self: RemoteVisitBatch, items: Any) -> None:
        ask(self, items)
        with engine().begin() as connection:
            connection.execute(sa.text("UPDATE offer SET price = 99"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteVisitBatch, "_ask_chunk", overtaken)
        stages.serve("score")


def test_what_was_offered_while_it_was_visited_is_visited_again(stages: Stages, service: Service) -> None:
    # S10
    _stage(stages, service)
    stages.put("a", price=1)
    for name in ("system", "score.ask"):
        stages.serve(name)
    ask = RemoteVisitBatch._ask_chunk

    def offering(self: RemoteVisitBatch, items: Any) -> None:
        ask(self, items)
        if len(service.calls("ProcessBatch")) == 1:
            queue.offer("a", "offer.score")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteVisitBatch, "_ask_chunk", offering)
        stages.serve("score")
    assert service.ids("ProcessBatch") == ["a", "a"]
    assert waiting() == []


def test_the_guard_keeps_others_out_and_asking_needs_none(stages: Stages, service: Service) -> None:
    # S12
    _stage(stages, service)
    stages.stage("local", does=Updated)
    stages.asked("a")
    with transaction() as session:
        held = {"kind": "offer", "entity_id": "a", "stage": "local", "pass_key": sa.func.gen_random_uuid()}
        session.execute(sa.insert(GUARD).values(**held, until=sa.func.now() + timedelta(minutes=1)))
    assert stages.serve("score.ask") == 1
    assert stages.serve("score") == 0, "somebody works on it"
    execute("UPDATE tidemill.entity_guard SET until = now()")
    assert stages.serve("score") == 1


def test_an_optimistic_kind_has_remote_stages_too(stages: Stages, service: Service) -> None:
    # S12
    _stage_of_lots(stages, service)
    service.behaves(process={"*": {"set": {"status": "done"}}})
    stages.put("a", of=Lot)
    for name in ("system", "score.ask", "score"):
        stages.serve(name, "lot")
    assert entity("a", Lot).status == "done"


def _stage_of_lots(stages: Stages, service: Service) -> None:
    service.stage(kind="lot")
    stages.sync()
