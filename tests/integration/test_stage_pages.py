"""The code of the pages about stages runs as it stands there, in one module, as a reader would put it together."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.claims.taking import new_pass
from app.db import transaction
from app.errors import BadOutcome, BadRequest
from app.jobs import this_job
from app.jobs.current import ThisJob, running
from app.registry import Hook
from stages import Change, JsonState, registration
from stages.registration import declared
from stages.serving import VisitServer
from stages.sync import synchronize
from tests.architecture.test_docs import FENCE
from tests.kit.entities import exported
from tests.kit.process import ROOT
from tests.kit.stages_memory import nothing_declared

PAGES = ("watch-entities", "write-stages", "test-stages", "limit-stages")


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text()
    return [found[2] for found in FENCE.finditer(text) if found[1] == "python"]


def run(module: ModuleType, page: str) -> int:
    found = blocks(page)
    for number, block in enumerate(found, 1):
        exec(compile(block, str(Path(f"{page}.md:{number}")), "exec"), module.__dict__)  # noqa: S102
    return len(found)


@pytest.fixture
def offers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """What a reader has written by the end of the first two pages."""
    module = ModuleType("offers")
    monkeypatch.setitem(sys.modules, "offers", module)
    with nothing_declared():
        assert run(module, "watch-entities") == 3
        assert run(module, "write-stages") == 9
        yield module


class Calls:
    def consumes(self, queue: str) -> bool:
        return True


def work(*queues: str) -> None:
    server = VisitServer(Calls(), "worker", timedelta(minutes=1), lambda: False)
    for queue in queues:
        server.serve(queue, 100)


def test_the_stages_of_the_pages_work(offers: ModuleType, session: Session) -> None:
    synchronize()
    assert {name for _, name in declared} == {"expire", "predict", "discount", "round_price", "welcome"}
    now = session.execute(sa.select(sa.func.now())).scalar_one()
    old = offers.Offer(id="old", seller="a", status="on air", year=2020, price=9, published_at=now - offers.EXPOSURE)
    with transaction() as tx:
        tx.add(old)
    work("stage.offer.system", "stage.offer.predict", "stage.offer.expire")
    found = session.get_one(offers.Offer, "old")
    assert (found.status, found.predicted_price) == ("taken down", 18_000)


def test_the_side_effect_of_the_page_happens(
    offers: ModuleType, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:  # S14
    synchronize()
    sent: list[tuple[str, str, str]] = []
    monkeypatch.setattr(offers, "send", lambda *args, key: sent.append((*args, key)))
    with transaction() as tx:
        tx.add(offers.Offer(id="o", seller="ann", year=2020, price=9))
    work("stage.offer.system", "stage.offer.welcome")
    (job,) = session.execute(sa.text("SELECT id, queue, task, args FROM tidemill.job"))
    assert (job.queue, job.task) == ("saved.offer.welcome", "offers.welcome.saved")
    hooks: dict[str, Hook] = vars(registration)["registry"].hooks
    row = session.execute(sa.text("SELECT * FROM tidemill.job")).one()
    with running(ThisJob(row, new_pass())):
        hooks[job.task].function(*job.args)
        assert sent == [("ann", "o is on air", this_job().idempotency_key)]


def test_the_tests_of_the_page_pass(offers: ModuleType) -> None:
    assert run(offers, "test-stages") == 2
    tests = [name for name in vars(offers) if name.startswith("test_")]
    assert len(tests) == 3
    for name in tests:
        getattr(offers, name)()


def test_the_states_of_the_page_are_kept_and_converted(offers: ModuleType, session: Session) -> None:
    """S6: by the release that declares the model, by the one before it, and by the one between."""
    first, second = blocks("keep-state")
    exec(first, offers.__dict__)  # noqa: S102
    synchronize()
    with transaction() as tx:
        tx.add_all(offers.Offer(id=f"o-{n}", seller="a", year=2020, price=9) for n in range(2))
    work("stage.offer.system", "stage.offer.watch_price")
    old = offers.Timestamp(seconds=1_000_000).SerializeToString()
    url = "type.googleapis.com/google.protobuf.Timestamp"
    query = sa.text("update tidemill.stage_state set type_url = :url, value = :value where entity_id = 'o-1'")
    session.execute(query, {"url": url, "value": old})
    session.commit()
    del declared["offer", "watch_price"]
    exec(second, offers.__dict__)  # noqa: S102
    with transaction() as tx:
        tx.execute(sa.text("update offer set price = 10"))
    work("stage.offer.system", "stage.offer.watch_price")
    kept = session.execute(
        sa.text("select type_url, value from tidemill.stage_state where stage = 'watch_price' order by entity_id")
    ).all()
    assert [row.type_url for row in kept] == ["type.googleapis.com/tidemill.v1.JsonState"] * 2
    found = [offers.Seen.model_validate_json(JsonState.FromString(bytes(row.value)).json) for row in kept]
    # The first was seen within the hour.
    assert [each.prices for each in found] == [[9], [10]]


def test_the_limits_of_the_page_are_declared(offers: ModuleType) -> None:
    assert run(offers, "limit-stages") == 1
    assert declared["offer", "ask_the_bank"].rate_limit == "20/s"


def test_a_visit_that_fails_is_told(
    offers: ModuleType, session: Session, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S17: one line for all of a batch that are tried again, and one for those that are parked."""
    synchronize()
    with transaction() as tx:
        tx.add_all(offers.Offer(id=f"o-{n}", seller="a", year=2020, price=9) for n in range(3))
    monkeypatch.setattr(offers, "predicted", lambda _: 1 // 0)
    work("stage.offer.system", "stage.offer.predict")
    # Batches grow: the first is of one.
    told = re.fullmatch(
        r"offer o-\d in stage predict is tried again: ZeroDivisionError: .* by zero \(and \d more\)",
        caplog.records[-1].getMessage(),
    )
    assert told, caplog.text
    waits = (
        "update tidemill.stage_visit set attempts = 9, not_before = null where stage = 'predict' and entity_id = 'o-1'"
    )
    session.execute(sa.text(waits))
    session.commit()
    work("stage.offer.predict")
    assert caplog.records[-1].levelname == "ERROR"
    assert caplog.records[-1].getMessage().startswith("offer o-1 in stage predict is parked: ZeroDivisionError")


@pytest.fixture(params=["OneByOne", "Together"])
def store(request: pytest.FixtureRequest, offers: ModuleType) -> Any:
    return getattr(offers, request.param)()


def put(session: Session, *prices: int) -> list[str]:
    for number, price in enumerate(prices, 1):
        session.execute(sa.text("insert into car (id, price) values (:id, :price)"), {"id": number, "price": price})
    session.commit()
    return [str(number) for number in range(1, len(prices) + 1)]


def test_a_store_tells_of_its_entities(store: Any, session: Session, engine: Engine) -> None:  # S14, S18
    ids = put(session, 11, 22)
    found = exported(store, session, ["9", *ids])
    assert {each: store.entity(session, found[each]) for each in found} == {
        each: store.load(session, [each])[each].entity for each in ids
    }
    with Session(engine) as other:
        assert store.hold(other, ids[:1]) == {"1": 1}
        assert store.hold(session, ids) == {"2": 1}
    assert store.hold(session, ids, wait=True) == {"1": 1, "2": 1}
    with pytest.raises(BadRequest):
        store.entity(session, "[]")


def test_a_store_saves_what_rests_on_the_version(store: Any, session: Session) -> None:  # S20
    ids = put(session, 11, 22, 33)
    with transaction() as tx:
        tx.execute(sa.text("delete from tidemill.stage_visit"))
    with transaction() as tx:
        found = store.load(tx, [*ids, "99"])
        assert found.keys() == set(ids)
        changes = [Change(each, 7 if each == "2" else found[each].version, {"price": 5}) for each in ids]
        assert store.save(tx, changes) == {"1", "3"}
    session.rollback()
    assert session.execute(sa.text("select price, version from car order by id")).all() == [(5, 2), (22, 1), (5, 2)]
    # The other stages are asked by whoever saves.
    assert session.scalar(sa.text("select count(*) from tidemill.stage_visit")) == 0


def test_a_store_passes_over_what_somebody_holds(store: Any, session: Session) -> None:  # S20
    ids = put(session, 11, 22)
    session.execute(sa.text("update car set price = 12 where id = 1"))
    with transaction() as tx:
        found = store.load(tx, ids)
        assert store.save(tx, [Change(each, found[each].version, {"price": 5}) for each in ids]) == {"2"}
    session.rollback()
    with transaction() as tx:
        assert store.save(tx, [Change("1", 1, {"price": 6})], wait=True) == {"1"}


def test_a_store_walks_and_says_what_is_wrong(store: Any, session: Session) -> None:  # S20
    ids = put(session, *range(7))
    assert (store.count(session), store.versions(session, ids[:2])) == (7, {"1": 1, "2": 1})
    assert store.split(session, 3) == ["3", "5"]
    assert store.ids(session, "3", "5", 10) == ["4", "5"]
    assert [each.id for each in store.page(session, None, None, 2)] == ids[:2]
    loaded = store.page(session, None, None, 1)[0]
    assert store.read(loaded, ["price"]) == {"price": 0}
    assert store.patched(loaded, {"price": 3}) == {"price": 3}
    assert store.renewed(loaded, loaded.entity).version == 2
    with pytest.raises(BadRequest, match="color to watch"):
        store.fields({"color"})
    for method, *words in (("patched", {"color": 1}), ("read", ["color"]), ("changes", "a car")):
        with pytest.raises(BadOutcome):
            getattr(store, method)(loaded, *words)


def test_a_kind_with_a_store_of_its_own_is_visited(offers: ModuleType, session: Session) -> None:
    synchronize()
    put(session, 17, 20)
    work("stage.car.system", "stage.car.round_price")
    assert session.execute(sa.text("select price, version from car order by id")).all() == [(10, 2), (20, 1)]
    assert session.scalar(sa.text("select count(*) from tidemill.stage_visit")) == 0
