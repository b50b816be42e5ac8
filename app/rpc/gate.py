"""Who calls: the bearer token of a call. A token that was found good is believed for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from grpc import StatusCode

from app.rpc.status import Refused
from app.tokens import Holder, bearer
from app.tokens.memory import Memory

HEADER = "authorization"


class Gate:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._memory = Memory(monotonic)

    def admit(self, metadata: Iterable[tuple[str, str | bytes]]) -> Holder:
        """The holder of the token, or `Refused`."""
        given = [value for name, value in metadata if name == HEADER]
        if not given:
            raise Refused(StatusCode.UNAUTHENTICATED, f"no token: send '{HEADER}: Bearer …' in the metadata")
        if (secret := bearer.secret(given)) is None:
            raise Refused(StatusCode.UNAUTHENTICATED, f"send one '{HEADER}: Bearer …' in the metadata, and no other")
        holder = self._memory.known(secret) or self._memory.look_up(secret)
        if holder is None:
            raise Refused(StatusCode.UNAUTHENTICATED, "the token is unknown, expired or revoked")
        return holder
