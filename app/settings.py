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

from app.checks import encodable
from app.clock import duration
from app.errors import SettingsError

PREFIX = "TIDEMILL_"
#: `TIDEMILL_DATABASE_URL_FILE` names a file that holds what `TIDEMILL_DATABASE_URL` would say.
FILE = "_FILE"
#: Redis and RabbitMQ are tested; the others are kombu's, and not.
BROKERS = (
    *("redis", "rediss", "sentinel", "amqp", "amqps", "pyamqp", "memory", "filesystem", "sqs", "gcpubsub", "kafka"),
    *("confluentkafka", "azureservicebus", "azurestoragequeues", "zookeeper", "consul", "etcd", "mongodb", "qpid"),
)
_WITH_PORT, _WITH_NUMBER = ("redis", "rediss", "sentinel", "amqp", "amqps", "pyamqp"), ("redis", "rediss")
LOG_FORMATS = ("text", "json")
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


def _yes_or_no(value: str) -> bool:
    words = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if (found := words.get(value.strip().lower())) is None:
        raise ValueError("it must be yes or no")
    return found


def _path(value: str) -> Path:
    return Path(_text(value))


def _level(value: str) -> str:
    if value.upper() not in LEVELS:
        raise ValueError(f"it must be one of {', '.join(LEVELS)}")
    return value.upper()


def _log_format(value: str) -> str:
    if value.lower() not in LOG_FORMATS:
        raise ValueError(f"it must be {' or '.join(LOG_FORMATS)}")
    return value.lower()


def _broker_url(value: str) -> str:
    scheme, found, _ = value.strip().partition("://")
    if not found or scheme.partition("+")[0] not in BROKERS:
        raise ValueError("it must begin with redis://, rediss:// or amqp://, or another scheme that kombu knows")
    # Several may stand there, of which one is up.
    for url in value.strip().split(";") if scheme in _WITH_PORT else ():
        _check_port(url)
        number = urlsplit(url).path.strip("/")
        if scheme in _WITH_NUMBER and number and not (number.isascii() and number.isdecimal()):
            raise ValueError("after the host stands the number of a database of Redis, such as /0")
    return value.strip()


def _check_port(url: str) -> None:
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise ValueError("its port is no number up to 65535; in a password, / : @ are written as %2F %3A %40") from None


def _database_url(value: str) -> str:
    scheme, found, rest = value.strip().partition("://")
    if not found or scheme not in ("postgres", "postgresql", "postgresql+psycopg2"):
        raise ValueError("it must begin with postgresql://")
    _check_port(value.strip())
    return f"postgresql+psycopg2://{rest}"


def _web_url(value: str) -> str:
    parts = urlsplit(value.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise ValueError("it must begin with http:// or https://, name a host, and hold no password")
    return value.strip().rstrip("/")


def _setting(parse: Callable[[str], Any], default: Any, *, secret: bool = False, filed: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"parse": parse, "filed": filed})


@dataclass(frozen=True)
class Settings:
    """Field `x_y` is read from `TIDEMILL_X_Y`. URLs hold passwords: they are never shown."""

    database_url: str | None = _setting(_database_url, None, secret=True, filed=True)
    broker_url: str | None = _setting(_broker_url, None, secret=True, filed=True)
    events_url: str | None = _setting(_broker_url, None, secret=True, filed=True)
    modules: tuple[str, ...] = _setting(_names, ())
    # The file that names the stages that live in other services.
    remote_stages: Path | None = _setting(_path, None)
    home: Path = _setting(_path, Path(".tidemill"))
    shards: int = _setting(_at_least(1, 4096), 16)
    poll_interval: timedelta = _setting(_span("100ms"), timedelta(seconds=10))
    sweep_interval: timedelta = _setting(_span("100ms"), timedelta(seconds=10))
    log_level: str = _setting(_level, "INFO")
    log_format: str = _setting(_log_format, "text")
    tracing: bool = _setting(_yes_or_no, False)
    # How long a claim lives without a sign of life; short in tests of what happens when none comes.
    lease: timedelta = _setting(_span("1s"), timedelta(seconds=60))
    # Connections that a program (not a worker child, which has one) may hold at once.
    pool_size: int = _setting(_at_least(1, 1000), 5)
    # How long running work may take to end when its worker is told to stop; then it is handed back.
    grace: timedelta = _setting(_span("0s"), timedelta(seconds=30))
    log_retention: timedelta = _setting(_span("1s", "36500d"), timedelta(days=30))
    # Of `tidemill rpc`.
    rpc_listen: str = _setting(_text, "127.0.0.1:7233")
    rpc_tls_cert: Path | None = _setting(_path, None)
    rpc_tls_key: Path | None = _setting(_path, None)
    rpc_client_ca: Path | None = _setting(_path, None)
    rpc_plaintext: bool = _setting(_yes_or_no, False)
    # In bytes, of a message that a client sends.
    rpc_max_message: int = _setting(_at_least(1024, 256 * 1024 * 1024), 4 * 1024 * 1024)
    # Calls that work at once, with a connection each; and calls that there may be, with those that wait for a thread.
    rpc_threads: int = _setting(_at_least(1, 1000), 10)
    rpc_max_calls: int = _setting(_at_least(1, 100_000), 100)
    # What a call has that says no deadline of its own.
    rpc_deadline: timedelta = _setting(_span("100ms", "60s"), timedelta(seconds=10))
    rpc_reflection: bool = _setting(_yes_or_no, False)
    # Of `tidemill console`.
    console_host: str = _setting(_text, "127.0.0.1")
    console_port: int = _setting(_at_least(0, 65535), 8765)
    console_tls_cert: Path | None = _setting(_path, None)
    console_tls_key: Path | None = _setting(_path, None)
    console_plaintext: bool = _setting(_yes_or_no, False)
    # Requests that work at once, with a connection each; and requests that there may be, with polls that wait.
    console_threads: int = _setting(_at_least(1, 1000), 10)
    console_max_calls: int = _setting(_at_least(1, 100_000), 1000)
    # How long somebody stays signed in: without doing anything, and at most.
    console_idle: timedelta = _setting(_span("1s", "36500d"), timedelta(hours=8))
    console_session: timedelta = _setting(_span("1s", "36500d"), timedelta(days=7))
    # Where people find them, for the links between the two. A wrong value may hold a password.
    console_url: str | None = _setting(_web_url, None, secret=True)
    flower_url: str | None = _setting(_web_url, None, secret=True)
    # Whether the console has the page that says how to break the demo.
    demo: bool = _setting(_yes_or_no, False)
    # Of rows that recovery puts back into one queue, a second.
    repair_rate: int = _setting(_at_least(1, 1_000_000), 1000)
    event_retention: timedelta = _setting(_span("1s", "36500d"), timedelta(days=7))
    # How far back events are published again when a broker has lost everything.
    events_replay: timedelta = _setting(_span("0s", "36500d"), timedelta(hours=1))
    # What beat touches to show that it lives: nothing else tells of it.
    beat_file: Path | None = _setting(_path, None)

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        values: dict[str, Any] = {}
        known = {PREFIX + f.name.upper(): f for f in fields(cls)}
        files = file_names()
        ours = (*known, *files)
        for name in sorted(name for name in environment if name.startswith(PREFIX) and name not in ours):
            logging.getLogger(__name__).warning("%s is not a setting of Tidemill and is ignored", name)
        for name, f in known.items():
            if (text := _given(environment, name, filed=name + FILE in files)) is not None:
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

    def resolved_events_url(self) -> str:
        return self.events_url or self.resolved_broker_url()

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


def file_names() -> tuple[str, ...]:
    """The variables that name a file with a secret."""
    return tuple(PREFIX + f.name.upper() + FILE for f in fields(Settings) if f.metadata["filed"])


def _given(environment: Mapping[str, str], name: str, *, filed: bool) -> str | None:
    file = environment.get(name + FILE) if filed else None
    if file is None:
        if (text := environment.get(name)) is not None and not encodable(text):
            raise SettingsError(f"{name}: it is not UTF-8")
        return text
    if name in environment:
        raise SettingsError(f"{name} and {name}{FILE} are both set: leave one out")
    try:
        return Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise SettingsError(f"{name}{FILE}: {file!r} cannot be read: {why}") from None


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings.read(os.environ)
