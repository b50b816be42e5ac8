"""Tokens: who may do what from outside.

Promises:
- Nothing but `Holder.may` says what a role is allowed to do.
- The secret leaves `create` once and is stored nowhere; what is stored is its SHA-256, which is enough for 256 random
  bits: nobody guesses them, so nothing has to make guessing slow.
- A token that is unknown, expired or revoked is the same to whoever shows it: none. The look is one query by an index,
  whatever the text.
"""

from __future__ import annotations

from app.tokens.holder import Action, Holder
from app.tokens.model import ROLES, Token
from app.tokens.store import check, create, digest, listed, revoke

__all__ = ["ROLES", "Action", "Holder", "Token", "check", "create", "digest", "listed", "revoke"]
