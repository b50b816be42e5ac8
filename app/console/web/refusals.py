"""What a person is told when there is nothing to be shown."""

from __future__ import annotations

from app.console.status import Told

_TITLES = {
    400: "That cannot be asked for",
    403: "Not for you",
    404: "There is nothing here",
    405: "Not in this way",
    413: "Too large",
    429: "Too many at once",
    500: "That went wrong here",
    503: "The database does not answer",
}
_HINTS = {
    403: "An operator may do more than a viewer: sign in with another token, or ask somebody for one.",
    404: "It may have ended and been cleared away, or the address is mistyped.",
    500: "Nothing of the inside is shown here: the log of the console has it, with the time.",
    503: "It is tried again when this page is loaded again.",
}


def words(told: Told) -> dict[str, object]:
    text = told.text[:1].upper() + told.text[1:]
    return {
        "title": _TITLES.get(told.status, "That was refused"),
        "status": told.status,
        "text": text if text.endswith(".") else f"{text}.",
        "hint": _HINTS.get(told.status),
    }
