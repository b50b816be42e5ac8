"""Tokens that were found good are believed for a moment, so that not every call asks the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from app.db import transaction
from app.tokens.holder import Holder
from app.tokens.store import check, digest

#: How long a token that was revoked may still be let in.
BELIEVED_SECONDS = 2.0
MOST = 1000


class Memory:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        #: By the hash: a secret does not stay in memory longer than its call.
        self._known: dict[bytes, tuple[Holder, float]] = {}

    def known(self, text: str) -> Holder | None:
        """Who it is, if that is known without asking the database."""
        with self._lock:
            found = self._known.get(digest(text))
        return found[0] if found is not None and self._monotonic() < found[1] else None

    def look_up(self, text: str) -> Holder | None:
        key, now = digest(text), self._monotonic()
        with transaction() as session:
            found = check(session, text)
        with self._lock:
            self._known.pop(key, None)
            if found is not None:
                if len(self._known) >= MOST:
                    self._known.clear()
                self._known[key] = (found, now + BELIEVED_SECONDS)
        return found
