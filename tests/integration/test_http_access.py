"""Who may call what over HTTP; nothing is done for others, and no log has a secret in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import tokens
from app.console.gate import Gate
from app.console.site import endpoints
from app.console.status import Refused
from app.tokens import Holder, memory
from tests.kit import console, outside_world
from tests.kit.console import Caller, poll_path, task_path
from tests.kit.outside_world import asking
from tests.kit.waiting import wait_until

PATHS = [(each.method, each.path.format(name="answer_outside", process_id=1, task=1, job_id=1)) for each in endpoints()]


@pytest.fixture
def url(engine: Engine) -> Iterator[str]:
    outside_world.make_known()
    with console.serving() as found:
        yield found


@pytest.fixture
def as_(url: str) -> Callable[..., Caller]:
    numbers = iter(range(1000))
    return lambda role, *scope: Caller(url, console.token(f"{role}-{next(numbers)}", role, *scope))


def four(caller: Caller) -> list[int]:
    """Polling, a heartbeat, an error that nobody takes, starting."""
    key = {"pass_key": "00000000-0000-0000-0000-000000000000"}
    task = {"process_id": 1, "task": 2}
    calls = [
        (poll_path("answer_outside"), {}),
        (f"{task_path(task)}/heartbeat", key),
        (f"{task_path(task)}/release", {**key, "epoch": 0, "error": {"type": "Odd"}}),
        ("/api/v1/processes", {"name": "told_outside", "args": [1]}),
    ]
    return [caller.post(path, body).status for path, body in calls]


def test_roles(as_: Callable[..., Caller]) -> None:
    assert asking("x") == 1
    assert four(as_("operator")) == [200, 409, 409, 200]
    assert four(as_("actor")) == [200, 409, 409, 403]
    assert four(as_("producer")) == [403, 403, 403, 200]
    assert four(as_("viewer")) == [403] * 4
    shows = {role: as_(role).get("/api/v1/processes/1").status for role in ("operator", "actor", "producer", "viewer")}
    assert shows == {"operator": 200, "actor": 403, "producer": 200, "viewer": 200}
    for role in ("operator", "actor", "producer", "viewer"):
        assert as_(role).get("/api/v1/openapi.json").status == 200


def test_scopes(as_: Callable[..., Caller]) -> None:  # P10
    assert asking("x") == 1
    for scope in ("answer_outside", "answer_*", "*"):
        assert four(as_("actor", "other", scope)) == [200, 409, 409, 403]
    for scope in ("answer", "answer_outsid", "Answer_outside", "actor.answer_outside", "an/other one?"):
        assert four(as_("actor", scope)) == [403] * 4
    assert four(as_("producer", "told_*")) == [403, 403, 403, 200]
    assert four(as_("producer", "ask_*")) == [403] * 4


def test_a_token_of_another_actor_gets_nothing_of_a_task(as_: Callable[..., Caller]) -> None:
    asking("x")
    mine, other = as_("actor", "answer_outside"), as_("actor", "an/other one?")
    (task,) = mine.poll("answer_outside")
    said = other.heartbeat(task)
    assert (said.status, said.error[0]) == (403, "denied")
    assert said.error[1] == "the token actor-1 of the role actor with this scope may not do this (act)"
    assert other.release(task, value="stolen").status == 403
    assert mine.release(task, value="mine").status == 200


@pytest.mark.parametrize(
    "words",
    [
        [],
        [("Authorization", "")],
        [("Authorization", "Bearer")],
        [("Authorization", "Basic dTpw")],
        [("Authorization", "{token}")],
        [("Authorization", "Bearer {token}x")],
        [("Authorization", "Bearer tdm_" + "A" * 43)],
        [("Authorization", "Bearer " + "A" * 4000)],
        [("Authorization", "Bearer {token}"), ("Authorization", "Bearer {token}")],
        [("X-Authorization", "Bearer {token}")],
        [("Cookie", "token={token}")],
    ],
    ids=str,
)
def test_without_a_good_token(url: str, as_: Callable[..., Caller], words: list[tuple[str, str]]) -> None:
    caller = as_("operator")
    for method, path in PATHS:
        connection = caller.connect()
        connection.putrequest(method, f"{path}?token={caller.token}")
        for name, each in words:
            connection.putheader(name, each.format(token=caller.token))
        # A body that was promised and never comes: nobody looks for it.
        connection.putheader("Content-Length", "10")
        connection.endheaders()
        said = console.answer(connection)
        connection.close()
        assert (said.status, said.error[0]) == (401, "unauthenticated"), path
        assert said.headers["www-authenticate"] == "Bearer"


def test_health_alone_is_open(url: str) -> None:
    nobody = Caller(url)
    said = nobody.get("/healthz")
    assert (said.status, said.data) == (200, {"status": "ok"})
    assert len(PATHS) == 17
    for method, path in PATHS:
        assert nobody.raw(method, path).status == 401
    assert nobody.get("/metrics").status == 401
    for path in ("/none", "/api", "/api/v1", "/docs", "/metrics/", "/healthz/", "/api/v1/processes/"):
        said = nobody.get(path)
        assert (said.status, said.error[0]) == (404, "not_found")
    for method, path, allowed in (
        ("GET", "/api/v1/processes", "POST"),
        ("GET", "/api/v1/processes/search", "POST"),
        ("DELETE", "/api/v1/processes/1", "GET, HEAD"),
        ("PUT", poll_path("a/b"), "POST"),
        ("BREW", "/api/v1/ctl", "GET, HEAD"),
    ):
        said = nobody.raw(method, path)
        assert (said.status, said.error[0], said.headers["allow"]) == (405, "method_not_allowed", allowed), path


def test_each_route_is_for_the_roles_that_may(as_: Callable[..., Caller]) -> None:
    """Said before anything of a body is read: what is sent here is none."""
    callers = {role: as_(role) for role in ("viewer", "producer", "actor", "operator")}
    for each, (method, path) in zip(endpoints(), PATHS, strict=True):
        for role, caller in callers.items():
            status = caller.raw(method, path, b"{", caller.headers() | JSON).status
            may = each.action is None or Holder("x", role).may(each.action, "")
            assert (status == 403) == (not may), (each.name, role, status)


def test_the_id_of_a_request(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "app.console")
    nobody = Caller(url)
    for given, kept in (("order-7.a_B", True), ("a" * 64, True), ("a" * 65, False), ("a b", False), ("", False)):
        said = nobody.raw("GET", "/api/v1/ctl", headers={"X-Request-Id": given})
        told = said.headers["x-request-id"]
        assert (told == given) == kept
        wait_until(lambda: any(line.endswith(f"request {told}") for line in _lines(caplog)), 60, "it is in the log")  # noqa: B023


def test_a_revoked_token_is_believed_for_a_moment_at_most(as_: Callable[..., Caller], session: Session) -> None:
    caller = as_("actor")
    assert caller.poll("answer_outside") == []
    tokens.revoke(session, "actor-0")
    session.commit()
    wait_until(lambda: caller.post(poll_path("answer_outside"), {}).status == 401, 60, "it is refused")


def test_the_gate_forgets(engine: Engine, session: Session) -> None:
    time = 0.0
    mine, text = Gate(lambda: time), console.token("short", "viewer")
    given = [f"bearer {text}"]
    assert mine.known(given) is None
    assert mine.admit(given).name == "short"
    assert text not in repr(vars(mine._memory))
    tokens.revoke(session, "short")
    session.commit()
    time = memory.BELIEVED_SECONDS - 0.01
    assert mine.known(given) is not None
    time = memory.BELIEVED_SECONDS
    assert mine.known(given) is None
    with pytest.raises(Refused, match="revoked"):
        mine.admit(given)


def test_one_line_for_each_request_and_no_secret_in_it(
    as_: Callable[..., Caller], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    good, denied = as_("actor"), as_("actor", "door.*")
    wrong = Caller(good.url, f"{good.token}x")
    path = poll_path("answer_outside")
    for caller, query, who, status in (
        (good, "", "token actor-0", 200),
        (good, f"?access_token={good.token}", "token actor-0", 400),
        (denied, "", "token actor-1", 403),
        (wrong, f"?access_token={good.token}", "no token", 401),
    ):
        caplog.clear()
        said = caller.raw("POST", path + query, b"{}", caller.headers() | JSON)
        assert said.status == status
        wait_until(lambda: _lines(caplog), 60, "it is in the log")
        (line,) = _lines(caplog)
        assert line.startswith(f"POST {path} from 127.0.0.1, {who}: {status} in ")
        for secret in (good.token, denied.token):
            assert secret is not None
            assert secret not in caplog.text + str(said)


def test_a_path_cannot_forge_a_line_of_the_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert Caller(url).get("/x%0aGET%20/forged").status == 404
    wait_until(lambda: _lines(caplog), 60, "it is in the log")
    assert [line.partition(" from ")[0] for line in _lines(caplog)] == ["GET /x%0aGET%20/forged"]


JSON = {"Content-Type": "application/json"}


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "app.console.front"]
