"""The first token of an operator: made once, shown on a terminal, in no log (and the console says how to make one)."""

from __future__ import annotations

import logging
import sys

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import tokens
from app.audit import Audit
from app.cli import console, first_token
from app.tokens import Token

URL = "http://127.0.0.1:8765"


def says(capsys: pytest.CaptureFixture[str]) -> str:
    console._welcome(URL)
    return capsys.readouterr().out


def terminal(monkeypatch: pytest.MonkeyPatch, *, there: bool) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: there)


def test_it_is_shown_once_on_a_terminal(
    session: Session,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    terminal(monkeypatch, there=True)
    out = says(capsys)
    (text,) = [word for word in out.split() if word.startswith("tdm_")]
    assert URL in out
    assert text not in caplog.text
    holder = tokens.check(session, text)
    assert holder is not None
    assert (holder.name, holder.role) == ("first-operator", "operator")
    made = session.get_one(Token, "first-operator")
    assert made.expires_at is not None
    assert session.scalars(sa.select(Audit.action)).all() == ["token.create"]
    assert says(capsys) == ""
    tokens.revoke(session, "first-operator")
    session.commit()
    # Who had one knows how to make another.
    assert says(capsys) == ""


def test_no_log_gets_one(
    session: Session,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    terminal(monkeypatch, there=False)
    assert says(capsys) == ""
    assert "make a token with 'tidemill token create NAME --role operator'" in caplog.text
    assert session.scalars(sa.select(Token)).all() == []
    tokens.create(session, "mine", "operator")
    session.commit()
    caplog.clear()
    says(capsys)
    assert caplog.text == ""


def test_a_name_that_is_taken(session: Session) -> None:
    tokens.create(session, "first-operator", "viewer")
    text = first_token.make(session)
    assert text is not None
    holder = tokens.check(session, text)
    assert holder is not None
    assert holder.name == "first-operator-1"


def test_without_a_database_it_serves_all_the_same(
    empty_database_url: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert says(capsys) == ""
    assert "not migrated" in caplog.text
