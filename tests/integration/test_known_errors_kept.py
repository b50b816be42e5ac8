"""Known errors in the database: added once, within limits, listed, removed; and each step in the audit."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.audit import Audit
from app.errors import BadRequest, NotFound, TooLarge
from recovery import known
from recovery.known import KNOWN
from recovery.rules import Action, Rule
from tests.kit.process_kiosk import declare

GOOD = Rule("bank-down", "the bank was down", Action.RESTART_TASK, "kiosk_pay", "ApiError", "0" * 16, "503", {})


@pytest.fixture(autouse=True)
def _declared(session: Session, broker_url: str) -> None:
    declare()


def test_rules_are_kept_until_they_are_removed(session: Session) -> None:
    # R10
    other = Rule("a", "says", Action.ABORT, text="gone", parameters={"reason": "not there"})
    for each in (GOOD, other):
        known.add(session, each)
    assert known.listed(session) == [other, GOOD]
    known.remove(session, "a")
    assert known.listed(session) == [GOOD]
    actions = session.scalars(sa.select(Audit.action).order_by(Audit.id)).all()
    assert actions == ["known_error.add", "known_error.add", "known_error.remove"]


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"actor": None, "type": None, "fingerprint": None, "text": None}, BadRequest, "needs an actor, a class"),
        ({"actor": "kiosk_pai"}, NotFound, "did you mean kiosk_pa"),
        ({"fingerprint": "0f3"}, BadRequest, "must be 16 hexadecimal digits"),
        ({"text": ""}, BadRequest, "text='' must be printable"),
        ({"text": "x" * 501}, TooLarge, "text is 501 characters long, more than 500"),
        ({"name": "a\nb"}, BadRequest, "name="),
        ({"name": "x" * 101}, TooLarge, "name is 101"),
        ({"says": "\x1b[31m"}, BadRequest, "says="),
        ({"parameters": {"rate": 1}}, BadRequest, "may hold a reason"),
        ({"parameters": {"reason": "\x00"}}, BadRequest, "reason="),
    ],
    ids=str,
)
def test_nonsense_is_refused(session: Session, words: dict[str, Any], error: type[Exception], told: str) -> None:
    rule = Rule(**{**{name: getattr(GOOD, name) for name in GOOD.__dataclass_fields__}, **words})
    with pytest.raises(error, match=told) as caught:
        known.add(session, rule)
    assert len(str(caught.value)) < 400


def test_a_name_is_taken_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    known.add(session, GOOD)
    with pytest.raises(BadRequest, match="there is a known error 'bank-down' already"):
        known.add(session, GOOD)
    with pytest.raises(NotFound, match="did you mean bank-down"):
        known.remove(session, "bank-dwn")
    monkeypatch.setattr(known, "MOST", 1)
    with pytest.raises(TooLarge, match="there are 1 known errors already"):
        known.add(session, Rule("other", "says", Action.NONE, text="x"))


@pytest.mark.parametrize(
    "words", [{"proposes": "pray"}, {"text": None}, {"name": "there"}], ids=["unknown", "everything", "twice"]
)
def test_the_database_refuses_senseless_rules(session: Session, words: dict[str, Any]) -> None:
    row = {"says": "says", "proposes": "none", "text": "x", "created_by": "me"}
    session.execute(sa.insert(KNOWN).values(row | {"name": "there"}))
    with pytest.raises(IntegrityError, match="known_error_"):
        session.execute(sa.insert(KNOWN).values(row | {"name": "new"} | words))
