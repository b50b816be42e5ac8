"""Who may call what; nothing is done for others, and no log has a secret in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from grpc import StatusCode
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app import tokens
from app.db import transaction
from app.rpc.gate import Gate
from app.rpc.status import Refused
from app.tokens import Token, memory
from tests.kit import rpc
from tests.kit.rpc import CTL, METHODS, Client, code, refusal, state
from tests.kit.waiting import wait_until

OK, UNAUTHENTICATED, DENIED = StatusCode.OK, StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def address(engine: Engine) -> Iterator[str]:
    rpc.shop(engine, "a")
    with rpc.serving() as found:
        yield found


@pytest.fixture
def as_(address: str) -> Iterator[Callable[..., Client]]:
    with rpc.client(address) as plain:
        numbers = iter(range(1000))

        def made(role: str, *scope: str, lifetime: timedelta | None = None) -> Client:
            name = f"{role}-{next(numbers)}"
            return Client(plain.channel, rpc.token(name, role, *scope, lifetime=lifetime))

        yield made


def said(call: Callable[[], object]) -> StatusCode:
    try:
        call()
    except Exception:  # noqa: BLE001 - whatever it is, it is looked at again
        return code(call)
    return OK


def four(caller: Client) -> tuple[StatusCode, ...]:
    """Reading and updating a state, advancing, getting."""
    return (
        said(lambda: caller.read("a")),
        said(lambda: caller.update("a", caller_version(), state(1))),
        said(lambda: caller.advance("dds.orders", loaded_to=NOW)),
        said(lambda: caller.get("dds.orders", "loaded_to")),
    )


def caller_version() -> int:
    with transaction() as session:
        return int(session.execute(sa.text("SELECT coalesce(max(version), 0) FROM tidemill.stage_state")).scalar_one())


def test_roles(as_: Callable[..., Client]) -> None:
    assert four(as_("operator")) == (OK, OK, OK, OK)
    assert four(as_("viewer")) == (DENIED, DENIED, DENIED, OK)
    assert four(as_("producer")) == (DENIED, DENIED, OK, OK)
    assert four(as_("actor")) == (OK, OK, DENIED, DENIED)


def test_scopes(as_: Callable[..., Client]) -> None:  # S19
    for scope in ("parcel.weigh", "parcel.*", "parc*", "*"):
        assert four(as_("actor", "other", scope)) == (OK, OK, DENIED, DENIED)
    for scope in ("parcel.price", "parcel", "parcel.weig", "parcel.weighs", "door.*", "weigh", "Parcel.*"):
        assert four(as_("actor", scope)) == (DENIED,) * 4
    for scope in ("dds.orders", "dds.*", "*"):
        assert four(as_("producer", scope)) == (DENIED, DENIED, OK, OK)
    for scope in ("dds", "dds.order", "mart.*", "loaded_to"):
        assert four(as_("producer", scope)) == (DENIED,) * 4


def test_a_refusal_does_not_say_what_there_is(as_: Callable[..., Client]) -> None:
    caller = as_("actor", "door.*")
    for kind, stage, entity in (("parcel", "weigh", "a"), ("parcel", "weigh", "nobody"), ("nothing", "x", "a")):
        assert code(lambda e=entity, s=stage, k=kind: caller.read(e, s, k)) is DENIED  # type: ignore[misc]


@pytest.mark.parametrize(
    "words",
    [
        [],
        [("authorization", "")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", "Basic dTpw")],
        [("authorization", "{token}")],
        [("authorization", "Bearer {token}x")],
        [("authorization", "Bearer tdm_" + "A" * 43)],
        [("authorization", "Bearer " + "A" * 4000)],
        [("authorization", "Bearer {token}"), ("authorization", "Bearer {token}")],
        [("x-authorization", "Bearer {token}")],
        [("authorization-bin", b"Bearer \xff")],
    ],
    ids=str,
)
def test_without_a_good_token(address: str, as_: Callable[..., Client], words: list[tuple[str, Any]]) -> None:
    caller = as_("operator")
    given = [(name, each.format(token=caller.token) if isinstance(each, str) else each) for name, each in words]
    for method in METHODS:
        assert code(lambda method=method: caller.raw(method, b"", given)) is UNAUTHENTICATED  # type: ignore[misc]
    # It would be malformed, but nobody has looked.
    assert code(lambda: caller.raw(METHODS[0], b"\xff\xff", given)) is UNAUTHENTICATED


def test_the_scheme_has_no_case(as_: Callable[..., Client]) -> None:
    caller = as_("viewer")
    caller.raw(f"{CTL}Get", b"\n\x01a\x12\x01b", [("authorization", f"bearer {caller.token}")])
    assert caller.get("a", "b") is not None


def test_expired_and_revoked(as_: Callable[..., Client], session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BELIEVED_SECONDS", 0.0)
    expired, revoked = as_("operator", lifetime=timedelta(days=1)), as_("operator")
    assert (four(expired), four(revoked)) == ((OK,) * 4, (OK,) * 4)
    session.execute(sa.update(Token).where(Token.expires_at.is_not(None)).values(expires_at=sa.func.now()))
    session.execute(sa.update(Token).where(Token.expires_at.is_(None)).values(revoked_at=sa.func.now()))
    session.commit()
    assert (four(expired), four(revoked)) == ((UNAUTHENTICATED,) * 4, (UNAUTHENTICATED,) * 4)


def test_a_revoked_token_is_believed_for_a_moment_at_most(as_: Callable[..., Client], session: Session) -> None:
    caller = as_("viewer")
    assert caller.get("a", "b") is not None
    tokens.revoke(session, "viewer-0")
    session.commit()
    wait_until(lambda: said(lambda: caller.get("a", "b")) is UNAUTHENTICATED, 60, "it is refused")


def test_the_gate_forgets(engine: Engine, session: Session) -> None:
    time = 0.0
    mine, text = Gate(lambda: time), rpc.token("short", "viewer")
    given = [("authorization", f"Bearer {text}")]
    assert mine.admit(given).name == "short"
    assert text not in repr(vars(mine._memory))
    tokens.revoke(session, "short")
    session.commit()
    time = memory.BELIEVED_SECONDS - 0.01
    assert mine.admit(given).name == "short"
    time = memory.BELIEVED_SECONDS
    with pytest.raises(Refused, match="revoked"):
        mine.admit(given)


def test_one_line_for_each_refusal_and_no_secret_in_it(
    as_: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    viewer, actor = as_("viewer"), as_("actor", "door.*")
    wrong = Client(viewer.channel, f"{viewer.token}x")
    for caller, word in ((viewer, "PERMISSION_DENIED"), (actor, "PERMISSION_DENIED"), (wrong, "UNAUTHENTICATED")):
        caplog.clear()
        error = refusal(lambda caller=caller: caller.update("a", 0, state(1)))  # type: ignore[misc]
        lines = [each.getMessage() for each in caplog.records if each.name.startswith("app.rpc")]
        assert len(lines) == 1
        assert lines[0].startswith("tidemill.v1.StageState/Update from ipv4:127.0.0.1:")
        assert lines[0].endswith(f": {word}")
        assert ("token viewer-0" in lines[0]) == (caller is viewer)
        for secret in (viewer.token, actor.token):
            assert secret is not None
            assert secret not in caplog.text + error.details() + str(error)
