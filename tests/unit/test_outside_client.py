"""The client of outside actors, against a server that says what the test tells it to."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from tidemill import outside
from tidemill.outside import Fail, Lost, Refused, Task, Unreachable, Worker

SOURCE = Path(outside.__file__)


def handed(number: int = 1, **more: Any) -> dict[str, Any]:
    found = {
        "process_id": number,
        "task": 2,
        "actor": "a",
        "epoch": 0,
        "pass_key": f"key-{number}",
        "attempt": 1,
        "args": [number],
        "kwargs": {"more": True},
        "until": "2026-07-01T12:00:00+00:00",
        "remaining": 60.0,
        "custom_id": None,
        "idempotency_key": f"{number}",
    }
    return found | more


def refusal(code: str, message: str = "no") -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


class Fake:
    """Answers in the order in which it was told to, by the last word of the path; without a word, it is as if nothing
    were there. Everything that came is kept."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {"poll": [], "heartbeat": [], "release": []}
        self.came: list[tuple[str, Any]] = []
        #: The bytes of each.
        self.sizes: list[int] = []
        self.tokens: set[str] = set()
        self.url = ""

    def of(self, what: str) -> list[Any]:
        return [body for path, body in list(self.came) if path.endswith(what)]

    def answer(self, path: str, body: Any, token: str) -> tuple[int, Any]:
        self.came.append((path, body))
        self.tokens.add(token)
        what = path.rpartition("/")[2]
        waiting = self.answers[what]
        if waiting:
            return waiting.pop(0)
        usual = {"poll": {"tasks": []}, "heartbeat": {"until": "later", "remaining": 60.0}}
        return 200, usual.get(what, {"outcome": "accepted", "why": None})


@pytest.fixture
def fake() -> Iterator[Fake]:
    found = Fake()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(size))
            found.sizes.append(size)
            status, data = found.answer(self.path, body, self.headers["Authorization"])
            text = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}/behind/a/proxy/"
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(outside, "MOST_PAUSE", 0.05)


def run(worker: Worker, function: Callable[..., Any], until: Callable[[], object]) -> None:
    """The loop, until that is so; then it is stopped."""
    failed: list[BaseException] = []

    def body() -> None:
        try:
            worker.run(function)
        except Exception as error:  # noqa: BLE001 - it belongs to the test
            failed.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        wait_until(lambda: until() or failed, 60)
    finally:
        worker.stop()
        thread.join(60)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


def mirror(number: int, *, more: bool) -> int:
    return number if more else -1


def test_single_requests(fake: Fake) -> None:
    worker = Worker(fake.url, "tdm_x", "an/actor")
    fake.answers["poll"] = [(200, {"tasks": [handed(7, newer="field")]})]
    (task,) = worker.poll(limit=3, wait=1.5)
    assert (task.process_id, task.args, task.kwargs, task.lost) == (7, [7], {"more": True}, False)
    assert worker.heartbeat(task) == "later"
    assert worker.release(task, {"a": 1}) == "accepted"
    assert fake.came == [
        ("/behind/a/proxy/api/v1/actors/an%2Factor/poll", {"limit": 3, "wait": "1500ms"}),
        ("/behind/a/proxy/api/v1/tasks/7/2/heartbeat", {"pass_key": "key-7"}),
        ("/behind/a/proxy/api/v1/tasks/7/2/release", {"pass_key": "key-7", "epoch": 0, "value": {"a": 1}}),
    ]
    assert fake.tokens == {"Bearer tdm_x"}
    assert "tdm_x" not in repr(task)


def test_what_the_server_says(fake: Fake) -> None:
    worker, task = Worker(fake.url, "t", "a"), Task(**handed())
    for status, data, raised in (
        (401, refusal("unauthenticated"), Refused),
        (403, refusal("denied"), Refused),
        (409, refusal("claim_lost"), Lost),
        (429, refusal("too_many"), Unreachable),
        (503, refusal("unavailable"), Unreachable),
        (502, b"<html>", Unreachable),
        (200, b"<html>", Unreachable),
        (404, b"{}", Unreachable),
    ):
        fake.answers["heartbeat"] = [(status, data)]
        with pytest.raises(raised) as error:
            worker.heartbeat(task)
        assert type(error.value) is raised
    with pytest.raises(Unreachable):
        Worker("http://127.0.0.1:1", "t", "a").poll()
    for url in ("tidemill.example.org", "ftp://x", "http://"):
        with pytest.raises(ValueError, match="must begin with http"):
            Worker(url, "t", "a")


def test_values_and_errors_are_released(fake: Fake) -> None:
    fake.answers["poll"] = [(200, {"tasks": [handed(number) for number in range(5)]})]

    def work(number: int, *, more: bool) -> Any:
        match number:
            case 0:
                return {"more": more}
            case 1:
                raise Fail("Declined", "too much", final=True)
            case 2:
                raise ZeroDivisionError("half \ud800")
            case 3:
                return {1, 2}
            case _:
                return float("nan")

    run(Worker(fake.url, "t", "a", limit=5), work, lambda: len(fake.of("release")) == 5)
    value, declined, division, no_json, nan = fake.of("release")
    assert value == {"pass_key": "key-0", "epoch": 0, "value": {"more": True}}
    assert declined["error"] | {"traceback": ""} == {
        "type": "Declined",
        "message": "too much",
        "traceback": "",
        "final": True,
    }
    assert (division["error"]["type"], division["error"]["message"]) == ("ZeroDivisionError", "half ?")
    assert "in work" in division["error"]["traceback"]
    assert (no_json["error"]["type"], nan["error"]["type"]) == ("TypeError", "ValueError")


def test_a_server_that_is_away_is_tried_again(fake: Fake) -> None:
    away = (503, refusal("unavailable"))
    fake.answers["poll"] = [away, away, (200, {"tasks": [handed()]})]
    fake.answers["release"] = [away, (500, refusal("internal")), away]
    run(Worker(fake.url, "t", "a"), mirror, lambda: len(fake.of("release")) == 4)
    # The same answer each time: it was made once.
    assert fake.of("release") == [{"pass_key": "key-1", "epoch": 0, "value": 1}] * 4


def test_an_answer_that_is_not_wanted_ends_nothing(fake: Fake) -> None:
    for status in (409, 404):
        fake.answers["poll"].append((200, {"tasks": [handed(status)]}))
        fake.answers["release"].append((status, refusal("refused")))
    fake.answers["poll"].append((200, {"tasks": [handed(1)]}))
    run(Worker(fake.url, "t", "a"), mirror, lambda: len(fake.of("release")) == 3)
    assert [body["value"] for body in fake.of("release")] == [409, 404, 1]


def test_a_value_that_cannot_be_taken_becomes_an_error(fake: Fake) -> None:
    fake.answers["poll"] = [(200, {"tasks": [handed()]})]
    fake.answers["release"] = [(413, refusal("too_large", "it is too large"))]
    run(Worker(fake.url, "t", "a"), mirror, lambda: len(fake.of("release")) == 2)
    assert fake.of("release")[1]["error"] == {"type": "BadValue", "message": "it is too large", "final": True}


@pytest.mark.parametrize("status", [400, 413, 422])
def test_an_error_that_cannot_be_taken_is_replaced_once(fake: Fake, status: int) -> None:
    fake.answers["poll"] = [(200, {"tasks": [handed()]}), (200, {"tasks": [handed(2)]})]
    fake.answers["release"] = [(status, refusal("bad_request", "of no use"))]

    def work(number: int, *, more: bool) -> int:
        if number == 1:
            raise ZeroDivisionError
        return number

    run(Worker(fake.url, "t", "a"), work, lambda: len(fake.of("release")) == 3)
    _, replaced, next_one = fake.of("release")
    assert replaced["error"] == {"type": "BadValue", "message": "of no use", "final": True}
    assert next_one["value"] == 2


def test_what_is_refused_in_its_new_form_too_is_raised(fake: Fake) -> None:
    fake.answers["poll"] = [(200, {"tasks": [handed()]})]
    fake.answers["release"] = [(422, refusal("bad_request", "of no use"))] * 2
    with pytest.raises(Refused, match="of no use"):
        run(Worker(fake.url, "t", "a"), mirror, lambda: False)
    assert [*fake.of("release")[1]["error"]] == ["type", "message", "final"]


@pytest.mark.parametrize("status", [401, 403])
def test_an_answer_that_is_refused_for_good_is_raised(fake: Fake, status: int) -> None:
    fake.answers["poll"] = [(200, {"tasks": [handed()]})]
    fake.answers["release"] = [(status, refusal("denied", "of no use"))]
    with pytest.raises(Refused, match="of no use"):
        run(Worker(fake.url, "t", "a"), mirror, lambda: False)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Silent(Fail):
    def __init__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (Fail("x" * 101, "m"), "x" * 100, "m"),
        (Fail("two\nlines \ud800", "m"), "two?lines ?", "m"),
        (Fail(" ", "m"), "Error", "m"),
        (Silent(), "Fail", ""),
        (Fail(5, "m"), "5", "m"),  # type: ignore[arg-type]
        (Fail(Mute(), "m"), "it cannot be told: RuntimeError", "m"),  # type: ignore[arg-type]
        (type("E" * 101, (Exception,), {})("m"), "E" * 100, "m"),
        (type("E\n", (Exception,), {})("m" * 3000), "E?", "m" * 2000),
        (Mute(), "Mute", "it cannot be told: RuntimeError"),
    ],
    ids=["long", "unprintable", "blank", "silent", "number", "mute type", "long class", "class of lines", "mute"],
)
def test_whatever_an_error_is_the_server_takes_it(fake: Fake, error: Exception, kind: str, message: str) -> None:
    fake.answers["poll"] = [(200, {"tasks": [handed()]})]

    def work(number: int, *, more: bool) -> None:
        raise error

    run(Worker(fake.url, "t", "a"), work, lambda: fake.of("release"))
    (told,) = (body["error"] for body in fake.of("release"))
    assert (told["type"], told["message"], told["final"]) == (kind, message, False)
    assert "in work" in told["traceback"]


def test_values_are_sent_as_utf_8(fake: Fake) -> None:
    worker, task = Worker(fake.url, "t", "a"), Task(**handed())
    for value in ("é" * 1000, {"ключ": "👍"}, "half \ud800, and \\", "\ud83d\ud83d"):
        worker.release(task, value)
        assert fake.of("release")[-1]["value"] == value
        assert fake.sizes[-1] < 2200


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_is_refused_for_good_is_raised(fake: Fake, status: int) -> None:
    fake.answers["poll"] = [(status, refusal("code", "why"))]
    with pytest.raises(Refused, match="why"):
        Worker(fake.url, "t", "a").run(lambda: None)


def test_signs_of_life_for_all_that_it_holds(fake: Fake) -> None:
    tasks = [handed(number, remaining=0.1) for number in (1, 2)]
    fake.answers["poll"] = [(200, {"tasks": tasks})]
    fake.answers["heartbeat"] = [(200, {"until": "later", "remaining": 0.1})] * 4
    begun: list[int] = []

    def work(number: int, *, more: bool) -> int:
        begun.append(number)
        # The second waits for its turn, and is said to be alive all the same.
        wait_until(lambda: {body["pass_key"] for body in fake.of("heartbeat")} == {"key-1", "key-2"}, 60)
        return number

    run(Worker(fake.url, "t", "a", limit=2), work, lambda: len(fake.of("release")) == 2)
    assert begun == [1, 2]


def test_what_was_taken_back_is_told_or_not_begun(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    fake.answers["poll"] = [(200, {"tasks": [handed(1, remaining=0.1), handed(2, remaining=0.1)]})]
    fake.answers["heartbeat"] = [(409, refusal("claim_lost"))] * 2
    worker = Worker(fake.url, "t", "a", limit=2)

    def work(number: int, *, more: bool) -> int:
        assert number == 1
        wait_until(lambda: worker.task is not None and worker.task.lost and len(fake.of("heartbeat")) == 2, 60)
        wait_until(lambda: caplog.text.count("was taken back") == 2, 60)
        return number

    run(worker, work, lambda: len(fake.of("poll")) >= 2)
    # The first result counts, also that of an earlier hand-out.
    assert [body["value"] for body in fake.of("release")] == [1]


def test_stopping_while_it_waits_for_an_answer() -> None:
    hold = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.set()
            hold.wait(60)

        def log_message(self, *_: Any) -> None:
            pass

    asked = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    worker = Worker(f"http://127.0.0.1:{server.server_address[1]}", "t", "a", wait=60)
    thread = threading.Thread(target=worker.run, args=(print,))
    thread.start()
    assert asked.wait(60)
    worker.stop()
    thread.join(60)
    hold.set()
    server.shutdown()
    server.server_close()
    assert not thread.is_alive()


def test_the_file_alone_is_enough(tmp_path: Path) -> None:
    """Nothing but Python, and nothing of Tidemill's."""
    (tmp_path / "outside.py").write_text(SOURCE.read_text())
    code = "import sys; sys.path.insert(0, '.'); import outside; print(outside.Worker('http://x', 't', 'a').actor)"
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "a\n"), done.stderr
