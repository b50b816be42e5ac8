"""What is found as what JSON has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from processes.promise import Failure


def words(found: object, names: Iterable[str]) -> dict[str, Any]:
    """These of its attributes."""
    return {name: plain(getattr(found, name)) for name in names}


def plain(value: Any) -> Any:
    """Spans in seconds; an accepted failure as it is among the arguments of a task."""
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case Failure():
            return {"$failure": {"type": value.type, "message": value.message}}
        case list() | tuple():
            return [plain(each) for each in value]
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case _:
            return value
