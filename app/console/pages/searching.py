"""What processes are searched by on pages: the fields of the form, and what they mean."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from app.console.web.fields import Fields
from app.errors import BadRequest
from processes import templates
from processes.filters import NAMES, TEXTS, TIMES, Filters, read

#: A name and a value of an attribute.
ATTRIBUTE = "attribute"
#: Before the name of a parameter of a template.
PARAMETER = "set-"


def words_of(fields: Fields) -> dict[str, Any]:
    """What was written, and nothing of what was not; as `processes.filters` reads it."""
    found: dict[str, Any] = {word: text for word in (*NAMES, *TEXTS, *TIMES) if (text := fields.text(word))}
    if states := fields.texts("state"):
        found["states"] = [each.upper() for each in states]
    if attributes := fields.texts(ATTRIBUTE):
        found["attributes"] = dict(_pair(each) for each in attributes)
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise BadRequest(f"attribute {text!r:.100} must be written as name=value")
    return name.strip(), value.strip()


def filters_of(session: Session, fields: Fields) -> Filters:
    """With those of a template, which what is written beside it replaces."""
    words = words_of(fields)
    given = read(words, datetime.now(UTC))
    template = fields.text("template")
    if template is None:
        return given
    parameters = {
        name.removeprefix(PARAMETER): value for name, value in fields.pairs if name.startswith(PARAMETER) and value
    }
    return replace(templates.filters(session, template, parameters), **{word: getattr(given, word) for word in words})
