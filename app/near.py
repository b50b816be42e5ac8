"""What is told of a name that there is not: the name, in bounds, and the nearest one that there is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: Longer ones are compared with nothing, and not repeated in full.
LONGEST = 200


def nearest(words: str, names: Iterable[str]) -> str | None:
    if len(words) > LONGEST:
        return None
    found = get_close_matches(words, list(names), 1, 0.6)
    return found[0] if found else None


def shown(words: str) -> str:
    """In quotes, on one line, and not too long."""
    text = ascii(words) if not words.isprintable() else repr(words)
    return text if len(text) <= LONGEST else f"{text[:40]}… ({len(words)} characters)"
