"""What makes no sense is an error of the process that it came from: clear, and everything else goes on (P9)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy.orm import Session

import processes
from app.calling import CeleryCalls
from app.celery import app as celery_app
from app.errors import BadRequest
from processes import outside
from processes.definition import declared
from processes.promise import Promise
from processes.states import ProcessState
from tests.kit import process_rows as r
from tests.kit import process_world as w
from tidemill import Flow


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


class Traced(CeleryCalls):
    """Calls through Celery's tracer, as a worker does."""

    def consumes(self, queue: str) -> bool:
        return queue.startswith("actor.")


@pytest.fixture(params=["plainly", "traced"])
def calls(request: pytest.FixtureRequest) -> Any:
    return r.Calls() if request.param == "plainly" else Traced(celery_app, "host")


def _raise(error: BaseException) -> Any:
    raise error


class Silent(Exception):
    def __str__(self) -> str:
        raise ValueError("has no words")

    __repr__ = __str__


class Endless(Exception):
    def __str__(self) -> str:
        raise Endless

    __repr__ = __str__


class Strange(Exception):
    """Half of a surrogate pair, and what Postgres has no place for."""

    def __str__(self) -> str:
        return "half \ud800 of \x00 it"


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def endless() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


class Hostile(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


def wrongdoer(flow: Flow, what: str) -> Any:
    """Does one thing that cannot be."""
    done = flow.call(w.stride, 1)
    match what:
        case "promise inside":
            return {"a": [done]}
        case "of another flow":
            return flow.call(w.stride, Flow(flow.process_id).call(w.stride, 1))
        case "after of another flow":
            return flow.call(w.stride, 1, after=[Flow(flow.process_id).call(w.stride, 1)])
        case "value of another flow":
            return Flow(flow.process_id).call(w.stride, 1)
        case "its own value":
            return flow.promise(1)
        case "waits for itself":
            return flow.call(w.stride, flow.promise(1))
        case "unknown task":
            return flow.promise(99)
        case "argument of unknown task":
            return flow.call(w.stride, flow.promise(99))
        case "later call":
            # Each waits for the other.
            flow.call(w.stride, 1, after=[Promise(flow, -2)])
            return flow.call(w.stride, 1, after=[Promise(flow, -1)])
        case "this very call":
            return flow.call(w.stride, Promise(flow, -1))
        case "call that is not made":
            return flow.call(w.stride, 1, after=[Promise(flow, -7)])
        case "value of a call that is not made":
            return Promise(flow, -7)
        case "task zero":
            flow.planned.clear()
            return flow.promise(0)
        case "huge task":
            return flow.promise(2**70)
        case "no number":
            return flow.promise("1")  # type: ignore[arg-type]
        case "half a number":
            return flow.call(w.stride, flow.promise(1.5))  # type: ignore[arg-type]
        case "no actor":
            return flow.call(len, [])
        case "wrong arguments":
            return flow.call(w.stride, 1, 2)
        case "no promise":
            return flow.call(w.stride, 1, after=[7])  # type: ignore[list-item, arg-type]
        case "too many":
            for _ in range(20_001):
                flow.call(w.stride, 1)
        case "looks at it":
            return 1 if done else 2
        case _:
            return VALUES[what]()
    return None


VALUES: dict[str, Any] = {
    "object": object,
    "nan": lambda: float("nan"),
    "infinite": lambda: {"a": [float("-inf")]},
    "bytes": lambda: b"b",
    "too large": lambda: "x" * 1_100_000,
    "endless": endless,
    "surrogate": lambda: {"a": "\ud800"},
    "key": lambda: {("a", "b"): 1},
    "hostile": lambda: Hostile(a=1),
    "silent": lambda: _raise(Silent()),
    "endlessly silent": lambda: _raise(Endless()),
    "strange": lambda: _raise(Strange()),
    "deep": lambda: nested(100_000),
}
FORGED = ("later call", "this very call", "call that is not made", "value of a call that is not made", "task zero")
NUMBERS = ("huge task", "no number", "half a number")
WHY = {
    "promise inside": "inside of something else",
    "of another flow": "belongs to another process",
    "after of another flow": "belongs to another process",
    "value of another flow": "belongs to another process",
    "its own value": "neither would ever end",
    "waits for itself": "neither would ever end",
    "unknown task": "has no task 99",
    "argument of unknown task": "has no task 99",
    **dict.fromkeys(FORGED, "no task|no call|number"),
    **dict.fromkeys(NUMBERS, "number"),
    "no actor": "neither an actor nor a decider",
    "wrong arguments": "cannot be called so",
    "no promise": "is no promise",
    "too many": "more than 20000 calls",
    "looks at it": "no value yet",
    "object": "no JSON form",
    "nan": "no JSON form",
    "infinite": "no JSON form",
    "bytes": "no JSON form",
    "too large": "bytes of JSON, more than",
    "endless": "contain themselves",
    "surrogate": "no JSON form",
    "key": "no JSON form",
    "hostile": "no items",
    "silent": "",
    "endlessly silent": "",
    "strange": "half .* of  it",
    "deep": "contain themselves",
}


@pytest.mark.parametrize("what", WHY)
def test_a_decider_that_makes_no_sense(what: str, session: Session) -> None:
    # P9: and the others of its batch are fine.
    with r.actors(wrongdoer, retry=processes.Retry(max_attempts=1)):
        before = processes.start(w.journey, 1)
        wrong = processes.start(wrongdoer, what)
        beside = [processes.start(wrongdoer, each) for each in ("nan", "promise inside")]
        r.serve("wrongdoer", "journey")
        assert r.state(session, wrong) is ProcessState.BROKEN
        ((number, (_, message)),) = r.broken(session, wrong).items()
        assert number == 1
        assert _matches(WHY[what], message), message
        assert r.tasks(session, wrong) == {1: "BROKEN"}
        assert {r.state(session, each) for each in beside} == {ProcessState.BROKEN}
        assert r.process(session, before).value == w.value_of(1)
        assert "task 1, wrongdoer" in r.process(session, wrong).error
        assert r.check(session) == {}


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def worker(what: str) -> Any:
    return VALUES[what]() if what in VALUES else Promise(Flow(), 1) if what == "promise" else what


@pytest.mark.parametrize("what", [*VALUES, "promise"])
def test_an_actor_that_makes_no_sense(what: str, calls: Any, session: Session) -> None:
    def among(flow: Flow, what: str) -> int:
        for each in ("fine", what, "\x00 is fine", "fine"):
            flow.call(worker, each)
        return 1

    with r.actors(worker, among, retry=processes.Retry(max_attempts=1)):
        found = processes.start(among, what)
        r.serve("among", calls=calls)
        assert r.tasks(session, found) == {1: "FINISHED", 2: "FINISHED", 3: "BROKEN", 4: "FINISHED", 5: "FINISHED"}
        ((number, (kind, message)),) = r.broken(session, found).items()
        assert number == 3
        assert _matches(WHY.get(what, "inside of something else"), message), message
        if what in ("silent", "endlessly silent", "strange"):
            assert kind == {"silent": "Silent", "endlessly silent": "Endless", "strange": "Strange"}[what]
        assert r.task(session, found, 4).result == "\x00 is fine"
        assert r.check(session) == {}


def test_an_error_is_known_by_its_type_even_without_words(calls: Any, session: Session) -> None:
    # P9
    def only(flow: Flow) -> Any:
        return flow.call(worker, "silent", fail_types=[Silent])

    with r.actors(worker, only):
        found = processes.start(only)
        r.serve("only", calls=calls)
        assert r.process(session, found).state == "FINISHED"
        assert r.process(session, found).value["$failure"]["type"] == "Silent"


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_a_decider_that_asks_for_much(count: int, session: Session) -> None:
    def many(flow: Flow, count: int) -> Any:
        found = [flow.call(worker, "fine") for _ in range(count)]
        return flow.call(total, found)

    def total(values: list[str]) -> int:
        return len(values)

    with r.actors(worker, total, many):
        found = processes.start(many, count)
        r.serve("many")
        if r.state(session, found) is not ProcessState.FINISHED:
            for _ in range(100):
                if not r.serve("worker", "total"):
                    break
        assert r.process(session, found).value == count
        assert r.check(session) == {}


# Code that has changed since.


def test_a_signature_that_does_not_fit_any_more(session: Session) -> None:
    with r.actors(older):
        found = [processes.start(older, 1), processes.start(older, 2)]
    with r.actors(changed(), retry=processes.Retry(max_attempts=1)):
        r.serve("older")
        for each in found:
            assert "missing a required argument" in r.process(session, each).error
        fine = processes.start("older", 1, 2)
        r.serve("older")
        assert r.process(session, fine).value == 3
        assert r.check(session) == {}


def older(flow: Flow, one: int) -> int:
    return one


def changed() -> Any:
    def older(flow: Flow, one: int, two: int) -> int:
        return one + two

    return older


def test_an_actor_that_is_not_declared_any_more(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """Its tasks wait for a worker that knows it; everything else goes on."""
    found = r.begin(processes.start(w.crowd, ["x"]))
    r.well_with(r.handed_out("crowd"), ["x"])
    known = declared.pop("toil")
    try:
        assert r.serve("toil") == 0
        assert "waits for a worker that knows it" in caplog.text or "wait for a worker that knows it" in caplog.text
        assert (r.state(session, found), r.decided(session, found, 2)) == (ProcessState.ACTIVE, "QUEUED")
        beside = processes.start(w.journey, 1)
        r.serve("journey")
        assert r.process(session, beside).state == "FINISHED"
    finally:
        declared["toil"] = known
    r.serve("toil")
    assert r.process(session, found).state == "FINISHED"


def test_a_call_of_an_actor_that_was_known_a_moment_ago(session: Session) -> None:
    """A decider whose decision names an actor that this program does not declare."""
    found = r.begin(processes.start(w.crowd, ["x"]))
    beside = r.begin(processes.start(w.crowd, ["x"]))
    assert r.word(r.well_with(r.handed_out("crowd"), ["x"], actor="nobody")) == "broken"
    assert r.broken(session, found)[1][1] == "there is no actor 'nobody'"
    assert r.word(r.well_with(r.handed_out("crowd"), ["x"])) == "taken"
    assert r.state(session, beside) is ProcessState.ACTIVE
    assert r.check(session) == {}


def test_arguments_as_deep_as_they_may_be(session: Session) -> None:
    """Whatever can be written can be read again: what is too deep is refused where it is asked for."""

    def digs(flow: Flow, levels: int) -> Any:
        return flow.call(depth, [nested(levels), flow.call(worker, "x")])

    def depth(value: Any) -> int:
        found, value = 0, value[0]
        while isinstance(value, list):
            found, value = found + 1, value[0]
        return found

    with r.actors(worker, depth, digs, retry=processes.Retry(max_attempts=1)):
        levels = [*range(380, 500, 4)]
        found = [processes.start(digs, each) for each in levels]
        r.serve("digs", calls=Traced(celery_app, "host"))
        for each, level in zip(found, levels, strict=True):
            row = r.process(session, each)
            assert row.value == level or (row.state == "BROKEN" and "contain themselves" in row.error), (level, row)
        assert r.check(session) == {}


def far(value: Any) -> Any: ...


def test_an_actor_elsewhere_that_makes_no_sense(session: Session) -> None:
    # P10: refused with a clear error, and the task is still its own.
    def asks(flow: Flow) -> Any:
        return flow.call(far, 1)

    with r.actors(asks), r.actors(far, outside=True):
        found = processes.start(asks)
        r.serve("asks")
        for worker in ("", "w\x00", "\ud800", "w" * 101, 7):
            with pytest.raises(BadRequest, match="worker="):
                outside.poll("far", worker=worker)  # type: ignore[arg-type]
        (held,) = outside.poll("far", worker="w")
        answer: dict[str, Any] = {"pass_key": held.pass_key, "epoch": held.epoch, "worker": "w"}
        for wrong in (
            {"worker": "w\x00"},
            {"value": "\ud800"},
            {"value": float("nan")},
            {"value": "x" * 1_100_000},
            {"error": {}, "worker": ""},
            {"error": {"type": ""}},
            {"error": {"type": "a\x00"}},
            {"error": {"type": "Bad", "message": 7}},
            {"error": {"type": "Bad", "why": "?"}},
            {"error": "Bad"},
        ):
            with pytest.raises(BadRequest):
                outside.release(found, held.task, **answer | wrong)
        assert r.decided(session, found, held.task) == "WORK"
        strange = {"error": {"type": "Bad", "message": "half \ud800 of \x00 it", "traceback": "\x00\ud800"}}
        assert outside.release(found, held.task, **answer | strange).outcome == "again"
        assert r.recorded(session, found) == [(None, "Bad: half \\ud800 of  it")]
        r.due_again()
        (held,) = outside.poll("far", worker="w")
        fine = answer | {"pass_key": held.pass_key, "value": "\x00 is fine"}
        assert outside.release(found, held.task, **fine).outcome == "accepted"
        assert r.process(session, found).value == "\x00 is fine"
        assert r.check(session) == {}
