"""Tokens: made once, stored as a hash, valid until they are not."""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app import tokens
from app.errors import BadRequest, NotFound
from app.tokens import Holder, Token
from tests.kit.plans import captured, explain

WRONG_NAMES = ["", " ", "a b", "-a", ".a", "ä", "a\n", "a/b", "x" * 101]
WRONG_SCOPES = ["", " ", "a\0", "*a", "a*b", "a**", "x" * 201]


def test_what_is_stored_is_a_hash(session: Session) -> None:
    text = tokens.create(session, "loader", "producer", ["dds.*", "mart.a", "dds.*"], None, "me@here")
    assert re.fullmatch(r"tdm_[\w-]{43}", text)
    row = session.get_one(Token, "loader")
    assert row.hash == sha256(text.encode()).digest()
    assert (row.role, row.scope, row.expires_at, row.created_by) == ("producer", ["dds.*", "mart.a"], None, "me@here")
    assert tokens.check(session, text) == Holder("loader", "producer", ("dds.*", "mart.a"))
    assert text != tokens.create(session, "another", "viewer")


@pytest.mark.parametrize("change", ["expires_at", "revoked_at"])
def test_expired_and_revoked_are_none(session: Session, change: str) -> None:
    text = tokens.create(session, "a", "viewer", None, timedelta(hours=1))
    assert tokens.check(session, text) is not None
    session.execute(sa.update(Token).values({change: sa.func.now()}))
    assert tokens.check(session, text) is None


def test_others_are_none(session: Session) -> None:
    text = tokens.create(session, "a", "viewer")
    for other in ("", "tdm_", text[:-1], f"{text}x", f" {text}", text.upper(), "x" * 100_000, "\0", "\ud800", "ä"):
        assert tokens.check(session, other) is None


def test_the_look_is_one_by_the_index(session: Session, engine: Engine) -> None:
    for number in range(500):
        tokens.create(session, f"t{number}", "viewer")
    session.commit()
    session.execute(sa.text("ANALYZE tidemill.token"))
    for text in ("tdm_x", "", "x" * 10_000):
        with captured(engine) as sent:
            assert tokens.check(session, text) is None
        assert len(sent) == 1
        assert explain(engine, sent[0]).indexes() == {"token_hash_key"}


def test_nonsense_is_refused(session: Session) -> None:
    for name in WRONG_NAMES:
        with pytest.raises(BadRequest, match="token name"):
            tokens.create(session, name, "viewer")
    with pytest.raises(BadRequest, match="role 'king'"):
        tokens.create(session, "a", "king")
    for scope in WRONG_SCOPES:
        with pytest.raises(BadRequest, match="scope"):
            tokens.create(session, "a", "actor", [scope])
    for role in ("viewer", "operator"):
        with pytest.raises(BadRequest, match="has no scope"):
            tokens.create(session, "a", role, ["b"])
    for number in (0, 101):
        with pytest.raises(BadRequest, match=f"scope of {number} names"):
            tokens.create(session, "a", "actor", [f"b{each}" for each in range(number)])
    with pytest.raises(BadRequest, match="must list names"):
        tokens.create(session, "a", "actor", "offer.score")
    for lifetime in (timedelta(0), timedelta(-1), timedelta(3651)):
        with pytest.raises(BadRequest, match="lifetime"):
            tokens.create(session, "a", "viewer", None, lifetime)
    assert tokens.listed(session) == []


def test_a_name_is_taken_for_good(session: Session) -> None:
    tokens.create(session, "a", "viewer")
    tokens.revoke(session, "a")
    with pytest.raises(BadRequest, match="choose another"):
        tokens.create(session, "a", "viewer")


def test_revoking(session: Session) -> None:
    tokens.create(session, "loader", "producer")
    assert (tokens.revoke(session, "loader"), tokens.revoke(session, "loader")) == (True, False)
    with pytest.raises(NotFound, match="did you mean loader"):
        tokens.revoke(session, "loder")
    with pytest.raises(NotFound):
        tokens.revoke(session, "nothing like it")


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"role": "king"}, "token_role_known"),
        ({"scope": ["a"]}, "token_scope_of_narrow_roles"),
        ({"hash": b"taken"}, "token_hash_key"),
    ],
)
def test_the_database_refuses_senseless_tokens(session: Session, values: dict[str, Any], constraint: str) -> None:
    session.execute(sa.insert(Token).values(name="a", hash=b"taken", role="viewer"))
    with pytest.raises(IntegrityError, match=constraint):
        session.execute(sa.insert(Token).values({"name": "b", "hash": b"b", "role": "viewer"} | values))
