"""`tidemill token`: the secret goes to stdout once, and nowhere else."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import tokens
from app.audit import Audit
from app.tokens import Holder, Token
from tests.kit.cli import Tidemill, one_sentence


def test_the_token_is_alone_on_stdout_and_nowhere_else(tidemill: Tidemill, session: Session) -> None:
    said = tidemill("token create scoring --role actor --scope offer.score --scope lot.* --expires 30d")
    assert said.code == 0
    text = said.out.strip()
    assert said.out == f"{text}\n"
    assert tokens.check(session, text) == Holder("scoring", "actor", ("lot.*", "offer.score"))
    assert "scoring: actor of lot.*, offer.score, valid until" in said.err
    listed = tidemill("token list").out + tidemill("token list --json").out
    audited = session.scalars(sa.select(Audit).where(Audit.action == "token.create")).one()
    for words in (said.err, listed, repr(vars(audited))):
        assert text not in words
        assert sha256(text.encode()).hexdigest() not in words
    assert (audited.subject, (audited.detail or {})["role"]) == ("scoring", "actor")


def test_its_life_on_the_command_line(tidemill: Tidemill, session: Session) -> None:
    assert "no tokens" in tidemill("token list").out
    long = tidemill("token create long --role viewer --expires 99999d")
    assert "a lifetime of 99999d must be more than nothing and at most" in long.err
    first = tidemill("token create first --role viewer --expires never").out.strip()
    tidemill("token create second --role producer")
    found = {each["name"]: each for each in tidemill("token list --json").data["tokens"]}
    assert found["first"]["expires_at"] is None
    assert (found["second"]["state"], found["second"]["scope"]) == ("valid", None)
    assert tidemill("token revoke first").out == "token first is revoked\n"
    assert tidemill("token revoke first").out == "token first was revoked already\n"
    assert tokens.check(session, first) is None
    assert "revoked" in tidemill("token list").out
    assert session.scalars(sa.select(Audit.action).order_by(Audit.id)).all()[-1] == "token.revoke"
    session.execute(sa.update(Token).values(expires_at=sa.func.now() - timedelta(1), revoked_at=None))
    session.commit()
    assert {each["state"] for each in tidemill("token list --json").data["tokens"]} == {"expired"}


@pytest.mark.parametrize(
    ("words", "told", "code"),
    [
        ("create a --role king", "king", 2),
        ("create a", "--role", 2),
        ("create a/b --role viewer", "letters, digits", 1),
        ("create a --role viewer --scope b", "has no scope", 1),
        ("create a --role actor --scope *b", "* at its end", 1),
        ("create a --role actor --expires soon", "not a duration", 2),
        ("create a --role actor --expires 0s", "lifetime", 1),
        ("create a --role actor --expires 99999999d", "lifetime", 1),
        ("revoke nobody", "no token", 1),
    ],
)
def test_what_is_refused(tidemill: Tidemill, session: Session, words: str, told: str, code: int) -> None:
    said = tidemill(f"token {words}")
    assert (said.code, said.out) == (code, "")
    assert one_sentence(said, told), said.err
    assert tokens.listed(session) == []
