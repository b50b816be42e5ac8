"""One JSON object a line, with what it is about, and without secrets."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app import logs
from app.logs import Json, Text, about, known, without_secrets


@pytest.fixture(autouse=True)
def _factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    logs.note_ids()
    yield
    logging.setLogRecordFactory(before)


def line(message: str, *args: Any, error: BaseException | None = None, **more: Any) -> dict[str, Any]:
    """As a program writes it, and a collector of logs reads it."""
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.getLogger("shop.mails").makeRecord(
        "shop.mails", logging.WARNING, __file__, 1, message, args, exc_info, **more
    )
    text = Json("worker").format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line() -> None:
    with about(job_id=7, task="shop.send"):
        found = line("sent %s\nto %s", 1, "Zoë")
    time = found.pop("time")
    assert time.endswith("+00:00")
    assert found.pop("pid") > 0
    assert found == {
        "level": "WARNING",
        "logger": "shop.mails",
        "service": "worker",
        "message": "sent 1\nto Zoë",
        "job_id": 7,
        "task": "shop.send",
    }


def test_what_is_inside_is_about_both() -> None:
    with about(queue="jobs", job_id=1):
        with about(job_id=2, attempt=1):
            assert known() == {"queue": "jobs", "job_id": 2, "attempt": 1}
        assert known() == {"queue": "jobs", "job_id": 1}
        with pytest.raises(RuntimeError), about(job_id=3):
            raise RuntimeError
        assert known() == {"queue": "jobs", "job_id": 1}
    assert known() == {}


def test_another_thread_is_about_something_else() -> None:
    seen: list[Any] = []
    with about(job_id=1):
        thread = threading.Thread(target=lambda: seen.append(dict(known())))
        thread.start()
        thread.join()
    assert seen == [{}]


def test_an_error_has_its_parts() -> None:
    try:
        raise ValueError("no such order")
    except ValueError as error:
        found = line("failed", error=error)["error"]
    assert (found["type"], found["message"]) == ("ValueError", "no such order")
    assert "raise ValueError" in found["traceback"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at postgresql://me:s3cr3t@db:5432/x", "at postgresql://me:***@db:5432/x"),
        ("at redis://:s3cr3t@broker/0, retry", "at redis://:***@broker/0, retry"),
        ("two a://b:c@d and e://f:g@h", "two a://b:***@d and e://f:***@h"),
        ("Bearer tdm_AbC-1_2 was refused", "Bearer tdm_*** was refused"),
        ("http://host:8080/path?x=a@b", "http://host:8080/path?x=a@b"),
        ("at 12:30 me@example.com wrote", "at 12:30 me@example.com wrote"),
    ],
)
def test_secrets_are_blotted_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert line("%s", text)["message"] == shown
    record = logging.LogRecord("a", logging.INFO, "", 1, text, (), None)
    assert Text("%(message)s").format(record) == shown


def test_secrets_of_an_error_are_too() -> None:
    error = ConnectionError("redis://:s3cr3t@broker refused tdm_secret")
    text = json.dumps(line("failed", error=error))
    assert "s3cr3t" not in text
    assert "tdm_secret" not in text
    assert "***" in text


def test_what_a_program_gave_beside_its_message_is_no_field() -> None:
    """Celery gives the arguments of its tasks."""
    assert "hidden" not in json.dumps(line("done", extra={"data": {"args": "hidden"}}))


def test_ids_are_there_for_handlers_of_ones_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), about(run_id=3):
        logging.getLogger("own").info("x")
    assert [getattr(record, logs.ATTRIBUTE) for record in caplog.records] == [{"run_id": 3}]


def test_an_id_that_json_does_not_know_is_told_as_text() -> None:
    with about(entity_id=object):
        assert line("x")["entity_id"] == str(object)


def test_text_is_as_ever_unless_json_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[bool] = []
    monkeypatch.setattr(logging, "captureWarnings", lambda capture: captured.append(capture))
    logger = logging.Logger("own")
    logger.addHandler(logging.StreamHandler(sys.stderr))
    plain = logging.Formatter("%(message)s")
    logger.handlers[0].setFormatter(plain)
    logs.set_up_others(logger, "worker")
    assert logger.handlers[0].formatter is plain
    monkeypatch.setattr(logs, "settings", lambda: type("S", (), {"log_format": "json"}))
    logs.set_up_others(logger, "worker")
    assert isinstance(logger.handlers[0].formatter, Json)
    assert captured == [True]


def test_a_program_of_ours_writes_json_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    monkeypatch.setattr(logs, "settings", lambda: type("S", (), {"log_format": "json"}))
    monkeypatch.setattr(logging, "captureWarnings", lambda **_: None)
    root.handlers.clear()
    try:
        logs.set_up("scheduler", "%(message)s", "INFO")
        with about(duty="relay"):
            logging.getLogger("app.scheduler").info("leader of %s", "relay")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    found = json.loads(capsys.readouterr().err)
    words = {name: found[name] for name in ("service", "message", "duty")}
    assert words == {"service": "scheduler", "message": "leader of relay", "duty": "relay"}
