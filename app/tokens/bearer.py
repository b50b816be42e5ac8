"""How a token is sent, over HTTP and gRPC alike: one header, `Authorization: Bearer …`."""

from __future__ import annotations

from collections.abc import Sequence

_SCHEME = "bearer "


def secret(given: Sequence[str | bytes]) -> str | None:
    """What the headers of that name hold; None where they are several, or something else."""
    match given:
        case [str(text)] if text[: len(_SCHEME)].lower() == _SCHEME:
            return text[len(_SCHEME) :].strip()
        case _:
            return None
