"""Who calls: the bearer token of a request. A token that was found good is believed for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from app.console.status import Refused
from app.tokens import Holder, bearer
from app.tokens.memory import Memory

_SEND = "send one header 'Authorization: Bearer tdm_…'"


class Gate:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._memory = Memory(monotonic)

    def known(self, given: Sequence[str]) -> Holder | None:
        """Who it is, if that is known without asking the database; `Refused` if it is no token at all."""
        return self._memory.known(_text(given))

    def admit(self, given: Sequence[str]) -> Holder:
        """The holder of the token in these headers, or `Refused`."""
        found = self._memory.look_up(_text(given))
        if found is None:
            raise Refused(401, "unauthenticated", "the token is unknown, expired or revoked")
        return found


def _text(given: Sequence[str]) -> str:
    if not given:
        raise Refused(401, "unauthenticated", f"no token: {_SEND}")
    if (found := bearer.secret(given)) is None:
        raise Refused(401, "unauthenticated", f"{_SEND}, and no other")
    return found
