"""Requests that cannot be: each is answered with a clear 4xx, and the server goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.console import calls
from app.console.calls import BODY_LIMIT
from app.db import transaction
from processes.arguments import plainly
from tests.kit import console, outside_world
from tests.kit.console import Caller, Said, poll_path
from tests.kit.outside_world import asking, finished

POLL = poll_path("answer_outside")
TASK = "/api/v1/tasks/1/2"
KEY = "00000000-0000-0000-0000-000000000000"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def caller(engine: Engine) -> Iterator[Caller]:
    outside_world.make_known()
    asking("x")
    with console.serving() as url:
        yield Caller(url, console.token("root", "operator"))


def sent(caller: Caller, path: str, body: bytes, kind: str | None = "application/json", **more: str) -> Said:
    words = caller.headers() | ({} if kind is None else {"Content-Type": kind}) | more
    return caller.raw("POST", path, body, words)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff\xfe", "the body is not UTF-8"),
        ('{"limit": 1}'.encode("utf-16"), "the body is not"),
        (b"\xef\xbb\xbf{}", "the body is not JSON"),
        (b"[]", "the body must be an object, not a list ([])"),
        (b"null", "the body must be an object, not null"),
        (b'"poll"', "the body must be an object, not 'poll'"),
        (b'{"limit": NaN}', "NaN is no number"),
        (b'{"limit": 1e999}', "a number that is too large: 1e999"),
        (b'{"limit": ' + b"9" * 5000 + b"}", "a number in it has too many digits"),
        (b"[" * 100_000, "nested more than 100 deep"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "nested more than 100 deep"),
        (b'{"wait": "\\ud800"}', "half of a surrogate pair"),
        (b'{"\\ud800": 1}', "half of a surrogate pair"),
        (b'{"limits": 1}', "has no field 'limits': did you mean limit?"),
        (b'{"a": 1, "limit": 1}', "has no field 'a': there are limit, wait"),
        (b'{"limit": 0}', "limit must lie between 1 and 100"),
        (b'{"limit": 101}', "limit must lie between 1 and 100"),
        (b'{"limit": -1}', "limit must lie between 1 and 100"),
        (b'{"limit": 1.5}', "limit must be a whole number, not a number (1.5)"),
        (b'{"limit": true}', "limit must be a whole number, not true or false"),
        (b'{"limit": "1"}', "limit must be a whole number, not '1'"),
        (b'{"limit": 99999999999999999999999}', "limit must lie between 1 and 100"),
        (b'{"wait": 20}', "wait must be text"),
        (b'{"wait": "soon"}', "wait='soon' is not written as it must be. A number and ms, s or min, such as 20s."),
        (b'{"wait": "-1s"}', "such as 20s"),
    ],
)
def test_bodies_of_a_poll(caller: Caller, body: bytes, told: str) -> None:
    said = sent(caller, POLL, body)
    assert (said.status, said.error[0]) == (400, "bad_request"), said
    assert told in said.error[1]
    assert caller.poll("answer_outside") != []


def test_a_wait_that_is_too_long(caller: Caller) -> None:
    for wait in ("61s", "999999min"):
        said = caller.post(POLL, {"wait": wait})
        assert (said.status, said.error) == (422, ("unprocessable", f"wait={wait} is more than 60s"))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "the body lacks pass_key, epoch"),
        ({"pass_key": KEY, "epoch": 0}, "the body must have either value or error"),
        ({"pass_key": KEY, "epoch": 0, "value": 1, "error": {}}, "either value or error"),
        ({"pass_key": "x", "epoch": 0, "value": 1}, "pass_key='x' is no uuid"),
        ({"pass_key": 7, "epoch": 0, "value": 1}, "pass_key must be text"),
        ({"pass_key": KEY.replace("-", ""), "epoch": 0, "value": 1}, "is no uuid"),
        ({"pass_key": KEY, "epoch": -1, "value": 1}, "epoch must lie between"),
        ({"pass_key": KEY, "epoch": 2**31, "value": 1}, "epoch must lie between"),
        ({"pass_key": KEY, "epoch": "0", "value": 1}, "epoch must be a whole number"),
        ({"pass_key": KEY, "epoch": 0, "error": "no"}, "error must be an object"),
        ({"pass_key": KEY, "epoch": 0, "error": {"kind": "x"}}, "error has no field 'kind'"),
        ({"pass_key": KEY, "epoch": 0, "error": {"type": 1}}, "error.type must be text"),
        ({"pass_key": KEY, "epoch": 0, "error": {"final": 1}}, "error.final must be true or false"),
    ],
)
def test_bodies_of_a_release(caller: Caller, body: Any, told: str) -> None:
    said = caller.post(f"{TASK}/release", body)
    assert (said.status, said.error[0]) == (400, "bad_request"), said
    assert told in said.error[1]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "the body lacks name"),
        ({"name": ""}, "name is empty"),
        ({"name": "a\x00b"}, "has a control character"),
        ({"name": "n" * 101}, "is 101 characters long, more than 100"),
        ({"name": "told_outside", "args": {"0": 1}}, "args must be a list"),
        ({"name": "told_outside", "kwargs": [1]}, "kwargs must be an object"),
        ({"name": "ask_outside", "idempotency_key": "a\nb"}, "has a control character"),
        ({"name": "ask_outside", "priority": 1.5}, "priority must be a whole number"),
        ({"name": "ask_outside", "priority": 10**30}, "priority must lie between"),
        ({"name": "ask_outside", "session": 1}, "has no field 'session'"),
    ],
)
def test_bodies_of_a_start(caller: Caller, body: Any, told: str) -> None:
    said = caller.post("/api/v1/processes", body)
    assert (said.status, said.error[0]) == (400, "bad_request"), said
    assert told in said.error[1]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        (f"{TASK}/release", {"error": {"type": ""}}, "the type of an error is text of 1 to"),
        (f"{TASK}/release", {"error": {"type": "a\x00b"}}, "the type of an error is text"),
        (f"{TASK}/release", {"error": {"type": "E" * 200}}, "the type of an error is text"),
        ("/api/v1/processes", {"name": "told_outside", "args": [1, 2]}, "told_outside"),
        ("/api/v1/processes", {"name": "ask_outside", "custom_id": " "}, "must be printable text that is not empty"),
        ("/api/v1/processes", {"name": "ask_outside", "attributes": {"a": "\x00"}}, "NUL"),
    ],
)
def test_bodies_that_are_as_they_must_and_cannot_be(caller: Caller, path: str, body: Any, told: str) -> None:
    said = caller.post(path, body if "name" in body else {"pass_key": KEY, "epoch": 0, **body})
    assert (said.status, said.error[0]) == (422, "unprocessable"), said
    assert told in said.error[1]


@pytest.mark.parametrize("number", ["0", "-1", "1.0", "x", "%20", "9" * 19, "9" * 5000, "%D9%A3", "1e3", "0x1", "%00"])
def test_numbers_in_a_path(caller: Caller, number: str) -> None:
    for path in (f"/api/v1/tasks/{number}/1/heartbeat", f"/api/v1/tasks/1/{number}/heartbeat"):
        said = caller.post(path, {"pass_key": KEY})
        assert (said.status, said.error[0]) == (400, "bad_request"), said
        assert "must be a whole number from 1 to" in said.error[1]


@pytest.mark.parametrize("name", ["%00", "a%09b", "n" * 101, "%7f"])
def test_names_in_a_path(caller: Caller, name: str) -> None:
    assert caller.post(f"/api/v1/actors/{name}/poll", {}).status == 400


def test_paths_that_lead_elsewhere(caller: Caller) -> None:
    for path in (
        *("//api/v1/status", "/api//v1/status", "/api/v1/status/", "/api/v1/./status", "/api/v1/x/../status"),
        *("/api/v1/%2e%2e/v1/status", "/api/v1/status%00", "/api/v1/status;x=1", "/API/v1/status", "/api/v1/jobs/1%5c"),
        *("/api/v1/jobs/", "/api/v1/jobs/1/", "/api/v1/jobs/1/log", "/api/v1/processes/1%2F..", "/api/v1/ctl/value/x"),
        *("/api/v1/status?x=1", "/api/v1/status?%00", "/api/v1/ctl?entity=%ff%00", "/api/v1/ctl/value?entity=a"),
    ):
        said = caller.get(path)
        assert (said.status, said.error[0]) in ((400, "bad_request"), (404, "not_found")), path


def test_names_that_nothing_has(caller: Caller) -> None:
    for name in ("%ff", "..", "%2F", "'; drop table task", "a,b", "%E2%82%AC"):
        said = caller.post(f"/api/v1/actors/{name.replace(' ', '%20')}/poll", {})
        assert (said.status, said.error[0]) == (404, "not_found"), said


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (None, {}),
        ("text/plain", {}),
        ("application/x-www-form-urlencoded", {}),
        ("application/json; charset=latin1", {}),
        ("application/jsonp", {}),
        ("application/json", {"Content-Encoding": "gzip"}),
    ],
)
def test_bodies_of_another_kind(caller: Caller, kind: str | None, more: dict[str, str]) -> None:
    said = sent(caller, POLL, b'{"limit": 1}', kind, **more)
    assert (said.status, said.error[0]) == (415, "unsupported_media_type")


def test_what_is_as_good_as_json(caller: Caller) -> None:
    for kind in ("application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'):
        assert sent(caller, poll_path("an/other one?"), b" {} ", kind).status == 200
    assert sent(caller, poll_path("an/other one?"), b"", None).status == 200


def test_bodies_that_are_too_large(caller: Caller) -> None:
    words = caller.headers() | JSON
    connection = caller.connect()
    connection.putrequest("POST", POLL)
    for name, value in (words | {"Content-Length": str(BODY_LIMIT + 1)}).items():
        connection.putheader(name, value)
    connection.endheaders()
    # Refused by what it says of itself, before a byte of it has come.
    assert console.answer(connection).error[0] == "too_large"
    connection.close()
    parts = (b" " * 65536 for _ in range(BODY_LIMIT // 65536 + 1))
    connection = caller.connect()
    connection.request("POST", POLL, parts, words, encode_chunked=True)
    assert console.answer(connection).status == 413
    connection.close()


def test_values_up_to_the_limit(caller: Caller, session: Any) -> None:
    (task,) = caller.poll("answer_outside")
    said = caller.release(task, value="x" * (1024 * 1024))
    assert (said.status, said.error[0]) == (413, "too_large")
    value = "x" * (1024 * 1024 - 100)
    assert caller.release(task, value=value).status == 200
    assert len(value) < BODY_LIMIT


def test_a_body_that_does_not_come(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BODY_SECONDS", 0.2)
    connection = caller.connect()
    connection.putrequest("POST", POLL)
    for name, value in (caller.headers() | JSON | {"Content-Length": "10"}).items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(b"{")
    said = console.answer(connection)
    connection.close()
    assert (said.status, said.error[0]) == (408, "too_slow")


@pytest.mark.parametrize(
    "words",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"POST " + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
    ],
)
def test_what_is_no_http(caller: Caller, words: bytes) -> None:
    address = urlsplit(caller.url)
    with socket.create_connection((address.hostname or "", address.port or 0), 60) as raw:
        raw.sendall(words + b"\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 4")
    assert caller.get("/healthz").status == 200


def test_an_odd_value_goes_through_as_it_is(caller: Caller, session: Any) -> None:
    (task,) = caller.poll("answer_outside")
    value = {"$value": 1, "more": [{"$promise": 2}, {"$failure": {}}, "\x00", 1e308, -(2**70), {"": None}]}
    assert caller.release(task, value=value).status == 200
    assert plainly(finished(session, task["process_id"])) == {"value": value}


def test_too_many_requests(engine: Engine) -> None:
    outside_world.make_known()
    with console.serving(max_calls=2) as url:
        caller = Caller(url, console.token())
        waiting = [caller.connect() for _ in range(2)]
        for each in waiting:
            caller.send(each, POLL, {"wait": "60s"})
            assert caller.get("/healthz").status == 200
        said = caller.post(POLL, {})
        assert (said.status, said.error[0], said.headers["retry-after"]) == (429, "too_many", "1")
        for each in waiting:
            each.close()


def test_what_the_inside_does_wrong_stays_inside(caller: Caller) -> None:
    with transaction() as session:
        session.execute(sa.text("ALTER TABLE tidemill.decision RENAME TO hidden"))
    said = caller.post(POLL, {})
    assert said.status in (500, 503)
    assert "decision" not in json.dumps(said.data)
    with transaction() as session:
        session.execute(sa.text("ALTER TABLE tidemill.hidden RENAME TO decision"))
    assert len(caller.poll("answer_outside")) == 1
