"""`@reactive(…)`: every option, and every refusal with its sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FunctionType
from typing import Any

import pytest
from celery import shared_task

from app.errors import BadRequest
from tests.kit import reactive as kit
from triggers import All, ChunkDelta, Delay, Delta, Run, reactive, registration
from triggers import Any as AnyOf
from triggers.definition import Definition, fingerprint, queue_of

DAILY = ChunkDelta("dds.orders", "loaded_to", "day")
FRESH = Delay("dds.orders", "loaded_to", "2h")
TASK = f"{kit.MODULE}.a"


@pytest.fixture(autouse=True)
def world() -> Iterator[kit.World]:
    with kit.world() as found:
        yield found


def _declare(world: kit.World, trigger: Any = DAILY, **options: Any) -> Definition:
    return registration.declared[world.declare("a", trigger, **options)]


def with_run(run: Run) -> None: ...


def with_nothing() -> None: ...


def with_an_optional_run(run: Run | None = None) -> None: ...


def with_another_option(day: str = "today") -> None: ...


def with_anything(*args: Any, **kwargs: Any) -> None: ...


def with_two(run: Run, more: int) -> None: ...


def with_a_keyword(*, run: Run) -> None: ...


async def asynchronous(run: Run) -> None: ...


def generator(run: Run) -> Iterator[int]:
    yield 1


class Holder:
    @staticmethod
    def static(run: Run) -> None: ...


@shared_task
def celery_task(run: Run) -> None: ...


@shared_task(bind=True)
def bound_celery_task(self: Any, run: Run) -> None: ...


@shared_task
def celery_task_without() -> None: ...


def test_what_is_usual(world: kit.World) -> None:
    found = _declare(world)
    assert (found.name, found.module, found.trigger) == (TASK, kit.MODULE, DAILY)
    assert (found.pool, found.queue, found.priority, found.produces) == ("default", "reactive.default", 0, None)
    assert (found.min_interval, found.first_run, found.on_lapse) == (None, "fire", "drop")
    assert (found.max_failures, found.backoff, found.time_limit) == (5, timedelta(seconds=5), None)


@pytest.mark.parametrize(
    ("option", "value", "read"),
    [
        ("pool", "marts", "marts"),
        ("priority", -1000, -1000),
        ("priority", 1000, 1000),
        ("produces", [("a", "b"), ("a", "b"), ("c", "d")], (("a", "b"), ("c", "d"))),
        ("produces", (pair for pair in [("a", "b")]), (("a", "b"),)),
        ("produces", [], ()),
        ("min_interval", "90s", timedelta(seconds=90)),
        ("min_interval", 90, timedelta(seconds=90)),
        ("min_interval", timedelta(0), timedelta(0)),
        ("first_run", "baseline", "baseline"),
        ("on_lapse", "run", "run"),
        ("max_failures", 1, 1),
        ("backoff", "0s", timedelta(0)),
        ("time_limit", "5min", timedelta(minutes=5)),
    ],
)
def test_every_option_is_taken(world: kit.World, option: str, value: object, read: object) -> None:
    assert getattr(_declare(world, **{option: value}), option) == read


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pool": ""}, "pool='' must be printable text of 1 to 100 characters"),
        ({"pool": 5}, "pool=5 must be printable text"),
        ({"priority": 1001}, f"{TASK}: priority=1001 must be a whole number from -1000 to 1000"),
        ({"priority": True}, "priority=True must be a whole number"),
        ({"priority": 1.0}, "priority=1.0 must be a whole number"),
        (
            {"produces": "mart.orders"},
            "produces='mart.orders': list pairs, as in produces=[('mart.orders', 'built_to')]",
        ),
        ({"produces": ("mart.orders", "built_to")}, "produces='mart.orders': list pairs"),
        ({"produces": 5}, "produces=5: list pairs"),
        ({"produces": [("mart.orders", "")]}, "parameter='' must be text of 1 to 200 characters"),
        ({"min_interval": "soon"}, f"{TASK}: min_interval: 'soon' is not a duration: write a number and ms, s, min"),
        ({"min_interval": -1}, "min_interval=-1 must be 0s or more, and less than a hundred years"),
        ({"min_interval": "40000d"}, "min_interval='40000d' must be 0s or more"),
        ({"min_interval": float("nan")}, "min_interval: nan is not a duration"),
        ({"first_run": "maybe"}, f"{TASK}: first_run='maybe' must be one of fire, baseline"),
        ({"on_lapse": None}, f"{TASK}: on_lapse=None must be one of drop, run"),
        ({"max_failures": 0}, f"{TASK}: max_failures=0 must be a whole number from 1 to 1000"),
        ({"backoff": None}, f"{TASK}: backoff: None is not a duration"),
        ({"time_limit": "10ms"}, f"{TASK}: time_limit='10ms' must be 1s or more"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_makes_no_sense_is_refused(world: kit.World, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest) as error:
        _declare(world, **options)
    assert said in str(error.value)
    assert registration.declared == {}, "nothing of it is kept"


@pytest.mark.parametrize("trigger", [None, "dds.orders", Delta, lambda: True])
def test_a_trigger_is_a_trigger(world: kit.World, trigger: object) -> None:
    with pytest.raises(BadRequest, match=r"is not a trigger: write one such as new_day\('dds.orders', 'loaded_to'\)"):
        _declare(world, trigger)


@pytest.mark.parametrize("trigger", [FRESH, All(FRESH, FRESH), AnyOf(DAILY, FRESH)])
def test_a_trigger_that_is_not_latched_wants_min_interval(world: kit.World, trigger: object) -> None:
    # T10
    with pytest.raises(BadRequest) as error:
        _declare(world, trigger)
    for words in ("would start again as soon as it ends", "min_interval='1h'", "min_interval='0s'", "add a Delta"):
        assert words in str(error.value)
    assert _declare(world, trigger, min_interval="0s").min_interval == timedelta(0)


@pytest.mark.parametrize("trigger", [DAILY, All(DAILY, FRESH), AnyOf(DAILY, Delta("a", "b", "1d"))])
def test_a_latched_trigger_wants_none(world: kit.World, trigger: object) -> None:
    # T10
    assert _declare(world, trigger).min_interval is None


@pytest.mark.parametrize(
    ("function", "takes_run"),
    [
        (with_run, True),
        (with_nothing, False),
        (with_an_optional_run, True),
        (with_another_option, False),
        (with_anything, True),
        (celery_task, True),
        (bound_celery_task, True),
        (celery_task_without, False),
        (Holder.static, True),
    ],
)
def test_a_task_is_called_with_its_run_or_with_nothing(function: Any, takes_run: bool) -> None:  # noqa: FBT001
    assert _decorate(function).takes_run is takes_run


def _decorate(function: Any, **options: Any) -> Definition:
    with kit.without_warning():
        assert reactive(DAILY, **options)(function) is function, "the function stays what it is"
    (found,) = registration.declared.values()
    return found


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (with_two, "a reactive task is called with its run, or with nothing: it takes 2 arguments"),
        (with_a_keyword, "a reactive task is called with its run, or with nothing: it takes 1 arguments"),
        (asynchronous, "asynchronous is an async function: calling it does nothing; write a plain function with 'def'"),
        (generator, "generator is a generator: calling it does nothing"),
        (lambda _: None, "a lambda of "),
        (5, "5 is neither a function nor a Celery task: @reactive(…) stands above 'def'"),
        (Holder, "is neither a function nor a Celery task"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_cannot_be_called_so_is_refused(function: Any, said: str) -> None:
    with pytest.raises(BadRequest) as error:
        _decorate(function)
    assert said in str(error.value)
    assert registration.declared == {}


def test_a_function_within_a_function_is_refused() -> None:
    def inner(run: Run) -> None: ...

    with pytest.raises(BadRequest, match="lies within a function: workers find reactive tasks by importing a module"):
        _decorate(inner)


def test_a_function_has_one_trigger() -> None:
    with kit.without_warning():
        reactive(DAILY)(with_run)
        with pytest.raises(BadRequest, match=r"with_run stands under @reactive twice: join its triggers with Any"):
            reactive(DAILY)(with_run)


def test_of_two_functions_of_one_name_the_first_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def one(run: Run) -> None: ...

    def other(run: Run) -> None: ...

    with kit.without_warning():
        for each in (one, other, FunctionType(other.__code__, globals())):
            each.__name__ = each.__qualname__ = "named"
            reactive(DAILY)(each)
    lines = [each.__code__.co_firstlineno for each in (one, other)]
    (told,) = [each.getMessage() for each in caplog.records]
    assert f"named is declared in lines {lines[0]} and {lines[1]} of its module: only the latter counts" in told


def test_a_decorator_without_a_trigger_is_refused_at_once() -> None:
    bare: Any = reactive
    with pytest.raises(BadRequest, match=r"is not a trigger: write one such as new_day"):
        bare(with_run)


def test_a_pool_whose_name_celery_would_split_is_refused() -> None:
    with pytest.raises(BadRequest, match="pool='a,b' must be printable text of 1 to 100 characters without a comma"):
        reactive(DAILY, pool="a,b")(with_run)


def test_a_function_of_a_script_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_run, "__module__", "__main__")
    with pytest.raises(BadRequest, match="lies in a script: workers find reactive tasks by importing a module"):
        _decorate(with_run)


def test_a_celery_task_keeps_its_name() -> None:
    assert _decorate(celery_task).name == celery_task.name


def test_the_fingerprint_changes_with_the_source() -> None:
    # T22
    functions: list[Callable[..., None]] = [with_run, with_nothing, with_two]
    assert len({fingerprint(each) for each in functions}) == 3
    assert fingerprint(with_run) == fingerprint(with_run)
    first, second, third = (eval(text) for text in ("lambda: 1", "lambda: 1", "lambda: 2"))  # noqa: S307
    assert fingerprint(first) == fingerprint(second) != fingerprint(third)


def test_the_queue_of_a_pool() -> None:
    assert queue_of("marts") == "reactive.marts"
