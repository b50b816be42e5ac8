"""Sessions of people at the console: opened with a token, and over when it is.

Promises:
- The secret is known to the browser alone; what is stored is its SHA-256, as of a token.
- A session ends with its token, by being idle, at its end, or by signing out, whichever comes first, and at
  once.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, Session, mapped_column

from app.db import Model
from app.tokens.holder import Holder
from app.tokens.model import Token
from app.tokens.store import digest

BYTES = 32
#: So often at most it is noted that somebody is there.
NOTED = timedelta(minutes=1)
#: Of one token; the oldest make room.
MOST = 100


class ConsoleSession(Model):
    __tablename__ = "console_session"
    __table_args__ = (
        sa.Index("console_session_token", "token"),
        sa.Index("console_session_expires_at", "expires_at"),
    )

    hash: Mapped[bytes] = mapped_column(primary_key=True)
    token: Mapped[str] = mapped_column(sa.ForeignKey(Token.name, ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    seen_at: Mapped[datetime] = mapped_column(server_default=sa.func.now())
    expires_at: Mapped[datetime]
    #: What the next page says, once.
    told: Mapped[Any | None] = mapped_column(JSONB(none_as_null=True))


@dataclass(frozen=True)
class Signed:
    """Somebody who has signed in."""

    holder: Holder
    secret: str
    told: Any = None

    @property
    def proof(self) -> str:
        """Which a form carries: who does not know the secret does not know it either."""
        return proof(self.secret)

    def __repr__(self) -> str:
        return f"Signed({self.holder!r})"


def proof(secret: str) -> str:
    return sha256(f"form:{secret}".encode(errors="replace")).hexdigest()


def is_proof(secret: str, given: str) -> bool:
    return hmac.compare_digest(proof(secret).encode(), given.encode(errors="replace"))


def sign_in(session: Session, holder: Holder, lifetime: timedelta) -> Signed:
    """Also removes what is over."""
    now = sa.func.now()
    session.execute(sa.delete(ConsoleSession).where(ConsoleSession.expires_at < now))
    older = sa.select(ConsoleSession.hash).where(ConsoleSession.token == holder.name)
    older = older.order_by(ConsoleSession.created_at.desc()).offset(MOST - 1)
    session.execute(sa.delete(ConsoleSession).where(ConsoleSession.hash.in_(older)))
    secret = secrets.token_urlsafe(BYTES)
    values = {"hash": digest(secret), "token": holder.name, "expires_at": now + lifetime}
    session.execute(sa.insert(ConsoleSession).values(**values))
    return Signed(holder, secret)


def check(session: Session, secret: str, idle: timedelta, *, there: bool = True) -> Signed | None:
    """Whose session this is, by the clock of the database. `there`: somebody did something, not a page by itself."""
    now = sa.func.now()
    query = (
        sa.select(
            *(Token.name, Token.role, Token.scope, ConsoleSession.told),
            (ConsoleSession.seen_at < now - NOTED).label("long"),
        )
        .join(Token, Token.name == ConsoleSession.token)
        .where(
            ConsoleSession.hash == digest(secret),
            ConsoleSession.expires_at > now,
            ConsoleSession.seen_at > now - idle,
            Token.revoked_at.is_(None),
            sa.or_(Token.expires_at.is_(None), Token.expires_at > now),
        )
    )
    row = session.execute(query).first()
    if row is None:
        return None
    if there and row.long:
        session.execute(_own(secret).values(seen_at=now))
    scope = None if row.scope is None else tuple(row.scope)
    return Signed(Holder(row.name, row.role, scope), secret, row.told)


def _own(secret: str) -> sa.Update:
    return sa.update(ConsoleSession).where(ConsoleSession.hash == digest(secret))


def sign_out(session: Session, secret: str) -> None:
    session.execute(sa.delete(ConsoleSession).where(ConsoleSession.hash == digest(secret)))


def tell(session: Session, secret: str, told: Any) -> None:
    """On the next page; None: nothing any more."""
    session.execute(_own(secret).values(told=told))
