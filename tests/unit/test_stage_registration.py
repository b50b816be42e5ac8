"""`@stage(…)`: every option, and every refusal with its sentence."""

from __future__ import annotations

import types
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import Int64Value

from app.errors import BadRequest
from app.registry import Function, Registry
from stages import Kind, Untouched, registration, stage
from stages.definition import Definition
from stages.kind import NAME_LIMIT
from tests.kit.stages_memory import MemoryStore, Parcel, nothing_declared, parcels

PATH = __name__


class Weigh:
    def should_process(self, parcel: Parcel, state: None) -> bool:
        return parcel.weight == 0

    def process(self, parcel: Parcel, state: None) -> Untouched:
        return Untouched()


class HTTPCheckV2(Weigh):
    pass


class Lenient(Weigh):
    def __init__(self, scale: str = "fine") -> None:
        self.scale = scale

    @staticmethod
    def should_process(*anything: Any) -> bool:
        return len(anything) == 2


class Needy(Weigh):
    def __init__(self, scale: str) -> None:
        self.scale = scale


class Idle:
    def should_process(self, parcel: Parcel, state: None) -> bool:
        return True


class Unasked:
    def process(self, parcel: Parcel, state: None) -> Untouched:
        return Untouched()


class Narrow(Weigh):
    def process(self, parcel: Parcel) -> Untouched:  # type: ignore[override]
        return Untouched()


class Wide(Weigh):
    def should_process(self, parcel: Parcel, state: None, more: int) -> bool:  # type: ignore[override]
        return True


class Asynchronous(Weigh):
    async def process(self, parcel: Parcel, state: None) -> Untouched:  # type: ignore[override]
        return Untouched()


class Yielding(Weigh):
    def process(self, parcel: Parcel, state: None) -> Iterator[int]:  # type: ignore[override]
        yield 1


class Telling(Weigh):
    def saved(self, parcel: Parcel, state: None) -> None: ...


class Mumbling(Weigh):
    def saved(self, parcel: Parcel) -> None: ...


class _Hidden(Weigh):
    pass


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with nothing_declared() as found:
        yield found


@pytest.fixture
def kind() -> Kind:
    return parcels()


def declared(kind: Kind, cls: Any = Weigh, **options: Any) -> Definition:
    assert stage(kind, **options)(cls) is cls, "the class stays what it is"
    (found,) = registration.declared.values()
    return found


def test_what_is_usual(kind: Kind, registry: Registry) -> None:
    found = declared(kind)
    assert (found.kind, found.name, found.task) == (kind, "weigh", f"{PATH}.weigh")
    assert (found.rate_limit, found.max_parallel, found.watches, found.state) == (None, None, None, None)
    assert (found.batch, found.max_attempts, found.time_limit) == (100, 10, timedelta(seconds=30))
    assert isinstance(found.stage, Weigh)
    assert found.queue == "stage.parcel.weigh"
    told = "a change of parcel starts it; by hand: stages.queue.offer(entity, Weigh)"
    assert registry.functions == {found.task: Function(found.task, found.stage.process, found.queue, 30.0, told)}


def test_every_option(kind: Kind) -> None:
    found = declared(
        kind,
        name="scales",
        watches=["weight", "status"],
        rate_limit="100/s",
        max_parallel=3,
        batch=20,
        time_limit="2min",
        max_attempts=4,
        state=Int64Value,
    )
    assert (found.name, found.task, found.queue) == ("scales", f"{PATH}.scales", "stage.parcel.scales")
    assert found.watches == frozenset({"grams", "status"}), "fields, not attributes"
    assert (found.rate_limit, found.max_parallel, found.batch, found.max_attempts) == ("100/s", 3, 20, 4)
    assert (found.time_limit, found.state) == (timedelta(minutes=2), Int64Value)


@pytest.mark.parametrize(("cls", "name"), [(HTTPCheckV2, "http_check_v2"), (Lenient, "lenient")])
def test_a_stage_is_named_after_its_class(kind: Kind, cls: type, name: str) -> None:
    assert declared(kind, cls).name == name


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "system"}, "the name system is taken: it is the stage that asks all others"),
        ({"name": "Weigh"}, "name='Weigh' must be at most 60 small letters, digits and '_'"),
        ({"name": "a" * (NAME_LIMIT + 1)}, "must be at most 60 small letters"),
        ({"name": "a.low"}, "name='a.low' must be"),
        ({"name": ""}, "name='' must be"),
        ({"name": 5}, "name=5 must be"),
        ({"name": "1st"}, "the first of them a letter"),
        ({"watches": "status"}, "watches='status' must list the names of attributes, as in watches=['status']"),
        ({"watches": [1]}, "watches=[1] must list the names of attributes"),
        ({"watches": 5}, "watches=5 must list the names of attributes"),
        ({"watches": {"colour"}}, "Parcel has no attribute colour to watch"),
        ({"watches": {"version"}}, "Parcel has no attribute version to watch"),
        ({"rate_limit": "fast"}, "rate_limit: 'fast' is not a rate"),
        ({"rate_limit": 5}, "rate_limit=5 must be text such as '10/min', or None"),
        ({"max_parallel": 0}, "max_parallel=0 must be a whole number from 1 to 100000, or None for no limit"),
        ({"max_parallel": True}, "max_parallel=True must be a whole number"),
        ({"batch": 0}, "batch=0 must be a whole number from 1 to 1000"),
        ({"batch": None}, "batch=None must be a whole number from 1 to 1000"),
        ({"time_limit": "soon"}, "time_limit: 'soon' is not a duration"),
        ({"time_limit": "10ms"}, "time_limit='10ms' must be 1s or more"),
        ({"max_attempts": 0}, "max_attempts=0 must be a whole number from 1 to 1000"),
        (
            {"state": "Progress"},
            "state='Progress' must be a class that protoc has made of a message, a class of a pydantic",
        ),
        ({"state": Int64Value()}, "must be a class that protoc has made"),
        ({"state": Message}, "must be a class that protoc has made"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_makes_no_sense_is_refused(kind: Kind, registry: Registry, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest) as error:
        declared(kind, **options)
    assert said in str(error.value)
    assert str(error.value).startswith(f"{PATH}.Weigh: "), "it says whose option it is"
    assert registration.declared == {}, "nothing of it is kept"
    assert registry.functions == {}


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (Idle, "Idle has no process: write def process(self, entity, state)"),
        (Unasked, "Unasked has no should_process: write def should_process(self, entity, state)"),
        (Narrow, "Narrow.process is called with the entity and the state: too many positional arguments"),
        (Wide, "Wide.should_process is called with the entity and the state: missing a required argument: 'more'"),
        (Asynchronous, "Asynchronous.process is an async function: calling it does nothing"),
        (Yielding, "Yielding.process is a generator: calling it does nothing"),
        (Needy, "Needy() cannot be made: missing a required argument: 'scale': a stage is made without arguments"),
        (_Hidden, "name='_hidden' must be at most 60 small letters"),
        (lambda: None, "is not a class: @stage(…) stands above one with should_process and process"),
        (Mumbling, "Mumbling.saved is called with the entity and the state"),
        (5, "5 is not a class"),
    ],
)
def test_what_cannot_be_a_stage_is_refused(kind: Kind, cls: Any, said: str) -> None:
    with pytest.raises(BadRequest) as error:
        declared(kind, cls)
    assert said in str(error.value)
    assert registration.declared == {}


def test_a_hook_is_a_task_with_a_queue_of_its_own(kind: Kind, registry: Registry) -> None:
    # S14
    found = declared(kind, Telling, max_attempts=3, time_limit="5s")
    assert found.saved is not None
    hook = registry.hooks[f"{PATH}.telling.saved"]
    assert (hook.queue, hook.time_limit, hook.max_attempts) == ("saved.parcel.telling", 5.0, 3)
    assert registry.functions.keys() == {f"{PATH}.telling"}


def test_a_class_that_no_worker_finds_is_refused(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    class Inner(Weigh):
        pass

    with pytest.raises(BadRequest, match="lies within a function: workers find stages by importing a module"):
        declared(kind, Inner)
    monkeypatch.setattr(Weigh, "__module__", "__main__")
    with pytest.raises(BadRequest, match="Weigh lies in a script: workers find stages by importing a module"):
        declared(kind)


@pytest.mark.parametrize("entity", [Weigh, Parcel, "parcel", None])
def test_a_decorator_without_entities_is_refused_at_once(entity: Any) -> None:
    with pytest.raises(BadRequest, match=r"is not watched: write class Offer\(Watched, Base\) and @stage\(Offer\)"):
        stage(entity)


def test_two_classes_cannot_be_one_stage(kind: Kind) -> None:
    declared(kind)
    with pytest.raises(BadRequest, match=rf"{PATH}.HTTPCheckV2 and {PATH}.Weigh are both the stage weigh of parcel"):
        stage(kind, name="weigh")(HTTPCheckV2)


def test_a_module_that_is_imported_anew_takes_its_own_place(kind: Kind, registry: Registry) -> None:
    before = declared(kind)
    again = types.new_class("Weigh", (Weigh,), exec_body=lambda body: body.update(__module__=PATH))
    now = declared(kind, again, batch=7)
    assert (now.name, now.batch, type(now.stage)) == (before.name, 7, again)
    assert registry.functions[now.task].function == now.stage.process


def test_two_tasks_of_one_name_are_refused(kind: Kind) -> None:
    letters = Kind("letter", MemoryStore(Parcel), "letter")
    declared(kind)
    with pytest.raises(BadRequest, match=rf"there is a task {PATH}.weigh already: give the stage another name="):
        stage(letters)(Weigh)
    stage(letters, name="weigh_letter")(Weigh)
    assert list(registration.declared) == [("parcel", "weigh"), ("letter", "weigh_letter")]


def test_the_stages_of_a_kind_come_by_name(kind: Kind) -> None:
    letters = Kind("letter", MemoryStore(Parcel), "letter")
    for own, name in ((kind, "weigh"), (kind, "post"), (letters, "seal"), (kind, "stamp")):
        stage(own, name=name)(types.new_class(name, (Weigh,), exec_body=lambda body: body.update(__module__=PATH)))
    assert [each.name for each in registration.of_kind("parcel")] == ["post", "stamp", "weigh"]
    assert registration.of_kind("parrot") == ()
