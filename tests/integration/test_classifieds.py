"""The stages of the classifieds site: each alone, and the whole chain, in memory; and the outside service over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue

from app.embedded.server import free_port
from stages.testing import Visited, World
from stages.testing import visit as visit_now
from tests.kit.stages_memory import nothing_declared
from tidemill import Patch, Untouched

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
#: Taken from the back and from the front, says the service.
FIRST, SECOND = {"url": "https://photos.example/2.jpg"}, {"url": "https://photos.example/5.jpg"}


@pytest.fixture(scope="module")
def site() -> Iterator[ModuleType]:
    """Imported here, so that no other test has its stages."""
    with nothing_declared():
        from classifieds import stages

        yield stages


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from classifieds.outside import Outside

    monkeypatch.setenv("CLASSIFIEDS_OUTSIDE", f"127.0.0.1:{free_port()}")
    found = Outside(slow=0, fails=0)
    server = found.serve()
    yield found
    server.shutdown()
    server.server_close()


def offer(**values: Any) -> Any:
    from classifieds.models import Offer

    usual: dict[str, Any] = {
        "id": "o-1",
        "seller": "alice",
        "category": "vehicles/cars",
        "catalogue": 3,
        "year": 2020,
        "mileage": 60_000,
        "price": 12_000,
        "predicted_price": None,
        "status": "on air",
        "published_at": NOW,
        "photos": [],
        "video": None,
        "version": 1,
    }
    return Offer(**usual | values)


def visit(stage: type, entity: Any, state: Any = None, now: datetime = NOW) -> Visited:
    return visit_now(stage, entity, state, now)


def test_take_down_waits_for_180_days(site: ModuleType) -> None:
    seen = visit(site.TakeDown, offer())
    assert seen.wanted == seen.timer == NOW + 180 * DAY
    assert not seen.changed
    later = visit(site.TakeDown, offer(), now=NOW + 180 * DAY)
    assert (later.entity.status, later.timer) == ("taken down", None)
    assert visit(site.TakeDown, offer(status="draft")).wanted is False


def test_a_timer_of_the_first_publication_is_set_anew(site: ModuleType) -> None:
    seen = visit(site.TakeDown, offer(published_at=NOW + 100 * DAY), now=NOW + 180 * DAY)
    assert seen.entity.status == "on air"
    assert seen.timer == NOW + 280 * DAY


@pytest.mark.parametrize(("version", "category"), [(1, "auto"), (2, "cars"), (3, "vehicles/cars")])
def test_an_offer_evolves_from_each_catalogue(site: ModuleType, version: int, category: str) -> None:
    seen = visit(site.EvolveCatalogue, offer(catalogue=version, category=category))
    assert seen.wanted is (version < 3)
    assert (seen.entity.catalogue, seen.entity.category) == (3, "vehicles/cars")


def test_a_price_is_predicted_once(site: ModuleType) -> None:
    first = visit(site.PredictPrice, offer())
    assert first.entity.predicted_price > 0
    assert isinstance(first.state, StringValue)
    again = visit(site.PredictPrice, first.entity, first.state)
    assert (again.wanted, again.outcome, again.state) == (False, Untouched(), first.state)
    first.entity.mileage += 50_000
    older = visit(site.PredictPrice, first.entity, first.state)
    assert older.wanted is True
    assert older.changed == {"predicted_price"}


def test_photos_are_sorted_by_angle(site: ModuleType) -> None:
    photos = [{"url": "1"}, {"url": "2", "angle": "inside"}, {"url": "3", "angle": "front"}]
    seen = visit(site.SortPhotos, offer(photos=photos))
    assert seen.wanted is True
    assert [each["url"] for each in seen.entity.photos] == ["3", "2", "1"]
    sorted_ = visit(site.SortPhotos, seen.entity)
    assert (sorted_.wanted, sorted_.changed) == (False, frozenset())


def test_photos_are_fetched(site: ModuleType, outside: Any) -> None:
    seen = visit(site.FetchPhotos, offer(photos=[FIRST, SECOND | {"stored": "store/2.jpg", "angle": "side"}]))
    assert seen.wanted is True
    assert isinstance(seen.outcome, Patch)
    assert all("stored" in each and "angle" in each for each in seen.entity.photos)
    assert (outside.photos, outside.most_at_once) == (1, 1)
    assert visit(site.FetchPhotos, seen.entity).outcome == Untouched()


def test_a_service_that_refuses_fails_the_visit(site: ModuleType, outside: Any) -> None:
    outside.fails = 1
    entity = offer(photos=[FIRST])
    with pytest.raises(site.outside.Busy, match="503"):
        visit(site.FetchPhotos, entity)
    assert entity.photos == [FIRST]


def test_a_service_that_is_not_there_fails_the_visit(site: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLASSIFIEDS_OUTSIDE", f"127.0.0.1:{free_port()}")
    with pytest.raises(site.outside.Busy, match="does not answer"):
        visit(site.CheckVideo, offer(video="https://videos.example/there/1"))


def test_a_video_is_checked_again_and_again(site: ModuleType, outside: Any) -> None:
    first = visit(site.CheckVideo, offer(video="https://videos.example/there/1"))
    assert isinstance(first.state, Struct)
    assert (first.wanted, first.timer) == (True, NOW + site.VIDEO_EVERY)
    early = visit(site.CheckVideo, first.entity, first.state, NOW + timedelta(seconds=1))
    assert (early.wanted, early.timer, early.state) == (False, NOW + site.VIDEO_EVERY, first.state)
    second = visit(site.CheckVideo, first.entity, first.state, NOW + site.VIDEO_EVERY)
    assert second.timer == NOW + 2 * site.VIDEO_EVERY
    first.entity.video = "https://videos.example/gone/1"
    changed = visit(site.CheckVideo, first.entity, second.state, NOW + timedelta(seconds=1))
    assert (changed.wanted, changed.entity.video, changed.state, changed.timer) == (True, None, None, None)


def test_an_offer_without_a_video_is_forgotten(site: ModuleType) -> None:
    state = Struct()
    state.update({"video": "https://videos.example/there/1", "at": NOW.timestamp()})
    seen = visit(site.CheckVideo, offer(), state)
    assert (seen.wanted, seen.state, seen.timer) == (True, None, None)


def test_the_chain_comes_to_rest(site: ModuleType, outside: Any) -> None:
    world = World(NOW)
    entity = offer(category="auto", catalogue=1, photos=[FIRST, SECOND], video="https://videos.example/there/1")
    world.add(entity)
    # What is due at once, by name; then what follows from it.
    assert [each.stage for each in world.run()] == [
        "check_video",
        "evolve_catalogue",
        "fetch_photos",
        "predict_price",
        "sort_photos",
    ]
    assert [each["angle"] for each in entity.photos] == ["front", "back"]
    assert (entity.catalogue, entity.category) == (3, "vehicles/cars")
    assert entity.predicted_price > 0
    assert not world.failures
    assert world.check(entity) == {"check_video": NOW + site.VIDEO_EVERY, "take_down": NOW + 180 * DAY}


def test_an_offer_is_taken_down_in_the_end(site: ModuleType, outside: Any) -> None:
    world = World(NOW)
    entity = offer()
    world.add(entity)
    world.advance("100d")
    world.change(entity, published_at=world.now)
    world.advance("179d")
    assert entity.status == "on air"
    world.advance("1d")
    assert entity.status == "taken down"
    assert [each.at - NOW for each in world.visits if each.stage == "take_down"] == [180 * DAY, 280 * DAY]
    assert world.check(entity) == {}


def test_users_edit_while_stages_work(site: ModuleType, outside: Any) -> None:
    world = World(NOW)
    entity = offer(photos=[FIRST])
    world.add(entity)
    world.run()
    before = entity.predicted_price
    world.change(entity, mileage=200_000, photos=[*entity.photos, SECOND])
    assert {each.stage for each in world.run()} >= {"predict_price", "fetch_photos"}
    assert entity.predicted_price < before
    world.change(entity, price=1)
    assert world.run() == []
