"""All settings, in one typed object; nothing else in Tidemill reads the environment.

A wrong value stops the start with a message that names it. A URL that is not set means the embedded server of
`TIDEMILL_HOME`, found through the state that its owner keeps there.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.clock import duration
from app.errors import SettingsError

PREFIX = "TIDEMILL_"
#: Redis and RabbitMQ are tested; the others are kombu's, and not.
BROKERS = (
    *("redis", "rediss", "sentinel", "amqp", "amqps", "pyamqp", "memory", "filesystem", "sqs", "gcpubsub", "kafka"),
    *("confluentkafka", "azureservicebus", "azurestoragequeues", "zookeeper", "consul", "etcd", "mongodb", "qpid"),
)
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def _names(value: str) -> tuple[str, ...]:
    return tuple(name for part in value.split(",") if (name := part.strip()))


def _at_least(least: int, most: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not value.strip().lstrip("+-").isdecimal():
            raise ValueError("it must be a whole number")
        number = int(value)
        if not least <= number <= most:
            raise ValueError(f"it must lie between {least} and {most}")
        return number

    return parse


def _span(least: str, most: str = "1d") -> Callable[[str], timedelta]:
    def parse(value: str) -> timedelta:
        span = duration(value)
        if not duration(least) <= span <= duration(most):
            raise ValueError(f"it must lie between {least} and {most}")
        return span

    return parse


def _level(value: str) -> str:
    if value.upper() not in LEVELS:
        raise ValueError(f"it must be one of {', '.join(LEVELS)}")
    return value.upper()


def _broker_url(value: str) -> str:
    scheme, found, _ = value.strip().partition("://")
    if not found or scheme.partition("+")[0] not in BROKERS:
        raise ValueError("it must begin with redis://, rediss:// or amqp://, or another scheme that kombu knows")
    return value.strip()


def _database_url(value: str) -> str:
    scheme, found, rest = value.strip().partition("://")
    if not found or scheme not in ("postgres", "postgresql", "postgresql+psycopg2"):
        raise ValueError("it must begin with postgresql://")
    try:
        _ = urlsplit(value.strip()).port
    except ValueError:
        raise ValueError("its port is not a number; in a password, / : @ are written as %2F %3A %40") from None
    return f"postgresql+psycopg2://{rest}"


def _setting(parse: Callable[[str], Any], default: Any, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"parse": parse})


@dataclass(frozen=True)
class Settings:
    """Field `x_y` is read from `TIDEMILL_X_Y`. URLs hold passwords: they are never shown."""

    database_url: str | None = _setting(_database_url, None, secret=True)
    broker_url: str | None = _setting(_broker_url, None, secret=True)
    events_url: str | None = _setting(_broker_url, None, secret=True)
    modules: tuple[str, ...] = _setting(_names, ())
    home: Path = _setting(lambda text: Path(_text(text)), Path(".tidemill"))
    shards: int = _setting(_at_least(1, 4096), 16)
    poll_interval: timedelta = _setting(_span("100ms"), timedelta(seconds=10))
    sweep_interval: timedelta = _setting(_span("100ms"), timedelta(seconds=10))
    log_level: str = _setting(_level, "INFO")
    # How long a claim lives without a sign of life; short in tests of what happens when none comes.
    lease: timedelta = _setting(_span("1s"), timedelta(seconds=60))
    # Connections that a program (not a worker child, which has one) may hold at once.
    pool_size: int = _setting(_at_least(1, 1000), 5)
    # How long running work may take to end when its worker is told to stop; then it is handed back.
    grace: timedelta = _setting(_span("0s"), timedelta(seconds=30))
    log_retention: timedelta = _setting(_span("1s", "36500d"), timedelta(days=30))

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        values: dict[str, Any] = {}
        known = {PREFIX + f.name.upper(): f for f in fields(cls)}
        for name in sorted(name for name in environment if name.startswith(PREFIX) and name not in known):
            logging.getLogger(__name__).warning("%s is not a setting of Tidemill and is ignored", name)
        for name, f in known.items():
            if (text := environment.get(name)) is not None:
                try:
                    values[f.name] = f.metadata["parse"](text)
                except ValueError as error:
                    shown = "" if not f.repr else f"={text!r}"
                    raise SettingsError(f"{name}{shown}: {error}") from None
        return cls(**values)

    def resolved_database_url(self) -> str:
        return self.database_url or self._embedded("database_url", "TIDEMILL_DATABASE_URL")

    def resolved_broker_url(self) -> str:
        return self.broker_url or self._embedded("broker_url", "TIDEMILL_BROKER_URL")

    def known_broker_url(self) -> str | None:
        try:
            return self.resolved_broker_url()
        except SettingsError:
            return None

    def _embedded(self, attribute: str, variable: str) -> str:
        from app import embedded

        found = embedded.running(self.home)
        if found is None:
            raise SettingsError(
                f"{variable} is not set and no embedded servers run in {self.home}: "
                f"set it, or start them with 'tidemill up'"
            )
        return str(getattr(found, attribute))


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings.read(os.environ)
