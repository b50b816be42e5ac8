"""Where pages and acts of reactive tasks lead when they are done, and moments as people write them in forms."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlencode

from app.clock import instant
from app.errors import BadRequest

HINT = "A time such as 2026-07-01T12:00:00Z, now, or 2h ago."


def task(name: str) -> str:
    return f"/reactive/task?{urlencode({'task': name})}"


def dataset(entity: str) -> str:
    return f"/dataset?{urlencode({'entity': entity})}"


def moment(text: str, name: str) -> datetime:
    try:
        return instant(text, datetime.now(UTC))
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from None


def written(moment: datetime) -> str:
    """As it may be written again."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
