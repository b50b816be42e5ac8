"""Logs: text for people, or one JSON object a line (`TIDEMILL_LOG_FORMAT=json`), with what the line is about.

- `with about(run_id=7):` says it for whatever is logged inside, by us and by the code of users.
- A record carries it as its attribute `tidemill`, for handlers of one's own too, also those of another thread.
- Passwords in URLs and our tokens are blotted out, whoever wrote them. What a task was called with is no field.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from app.settings import settings

JSON = "json"
ATTRIBUTE = "tidemill"
_about: ContextVar[Mapping[str, Any]] = ContextVar("tidemill_about", default=MappingProxyType({}))
_SECRETS = re.compile(r"(?P<before>\w://[^\s:/@]*:)[^\s/@]+(?=@)|(?P<token>\btdm_)[\w-]+")


class about:  # noqa: N801 - read as a word of the with statement
    """Quick enough for every visit."""

    __slots__ = ("_token", "_words")

    def __init__(self, **words: Any) -> None:
        self._words = words

    def __enter__(self) -> None:
        self._token: Token[Mapping[str, Any]] = _about.set({**_about.get(), **self._words})

    def __exit__(self, *_: object) -> None:
        _about.reset(self._token)


def note(**words: Any) -> None:
    """For the rest of this thread's, or this asynchronous task's, work."""
    _about.set({**_about.get(), **words})


def known() -> Mapping[str, Any]:
    """What the next line would be about."""
    return _about.get()


def without_secrets(text: str) -> str:
    return _SECRETS.sub(lambda found: f"{found['before'] or found['token']}***", text)


class Text(logging.Formatter):
    """As ever, but for secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(record))


class Json(logging.Formatter):
    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        words: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "service": self._service,
            "pid": record.process,
            "message": without_secrets(record.getMessage()),
            **getattr(record, ATTRIBUTE, {}),
        }
        if record.exc_info and (error := record.exc_info[1]) is not None:
            told = {"type": type(error).__name__, "message": str(error), "traceback": self._trace(record)}
            words["error"] = {name: without_secrets(text) for name, text in told.items()}
        return json.dumps(words, ensure_ascii=False, default=str)

    def _trace(self, record: logging.LogRecord) -> str:
        return self.formatException(record.exc_info) if record.exc_info else ""


_plain = logging.getLogRecordFactory()


def _record(*args: Any, **words: Any) -> logging.LogRecord:
    found = _plain(*args, **words)
    setattr(found, ATTRIBUTE, _about.get())
    return found


def note_ids() -> None:
    """From now on, every record of this process says what it is about."""
    logging.setLogRecordFactory(_record)


def formatter(service: str, text: str) -> logging.Formatter:
    if settings().log_format != JSON:
        return Text(text)
    logging.captureWarnings(capture=True)
    return Json(service)


def set_up(service: str, text: str, level: str | int, *, force: bool = False) -> None:
    """For a program of ours: on stderr. `force`: whatever was set up before."""
    note_ids()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(service, text))
    logging.basicConfig(level=level, handlers=[handler], force=force)


def set_up_others(logger: logging.Logger, service: str) -> None:
    """For a program of Celery's, which has its own format for people."""
    note_ids()
    if settings().log_format != JSON:
        return
    for handler in logger.handlers:
        handler.setFormatter(formatter(service, ""))
