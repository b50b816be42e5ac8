"""The file of remote stages (`TIDEMILL_REMOTE_STAGES`), read and checked: each refusal names the file, the entry and
the key.

    [[stage]]
    kind = "offer"
    name = "score"
    addresses = ["scoring.internal:443"]
    watches = ["price"]
    token_file = "score.token"
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from app.checks import check_limits, checked_count, checked_span
from app.errors import BadRequest, SettingsError
from app.near import nearest
from stages.definition import RESERVED
from stages.kind import checked_name
from stages.registration import ATTEMPTS, BATCHES
from stages.remote.addresses import checked_addresses, is_here
from stages.remote.service import Remote, Tls

VARIABLE = "TIDEMILL_REMOTE_STAGES"
#: One call occupies a worker child for as long.
LONGEST = timedelta(hours=1)
MESSAGES = range(64 * 1024, 1024**3)
#: Ends of queue names that mean something else.
_TAKEN = {**RESERVED, "low": "it is the lane of walks", "ask": "it is the entry that asks"}
_TLS = ("ca_file", "cert_file", "key_file", "server_name")
_KEYS = (
    *("kind", "name", "addresses", "watches", "rate_limit", "max_parallel", "batch", "time_limit", "max_attempts"),
    *("asks", "saved", "entity", "tls", "plaintext", "token_file", "max_message"),
)


def read(path: Path) -> list[Remote]:
    """What the file says; whether the kinds are there is found out when they are declared."""
    path = path.resolve()
    where = f"{VARIABLE}={path}"
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise SettingsError(f"{where}: it cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{where}: it is no TOML: {error}") from None
    _refuse_unknown(where, document, ("stage",))
    tables = document.get("stage", [])
    if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise SettingsError(f"{where}: stage must be a list of tables: write each as [[stage]]")
    found: list[Remote] = []
    for number, table in enumerate(tables, 1):
        made = _remote(path, Entry(f"{where}: stage {number} ({_told(table)})", table, path.parent))
        if any(each.whole_name == made.whole_name for each in found):
            raise SettingsError(
                f"{where}: stage {number}: there is a {made.whole_name} before it: give it another name"
            )
        found.append(made)
    return found


def _told(table: dict[str, Any]) -> str:
    return f"{table.get('kind', '?')!s:.60}.{table.get('name', '?')!s:.60}"


def _refuse_unknown(where: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            near = nearest(key, known)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
            raise SettingsError(f"{where}: {key} is no key: {hint}")


@dataclass(frozen=True)
class Entry:
    """A table of the file, key by key."""

    where: str
    table: dict[str, Any]
    #: What relative paths are counted from.
    directory: Path

    def wrong(self, key: str, problem: str) -> SettingsError:
        return SettingsError(f"{self.where}: {key}: {problem}")

    def text(self, key: str) -> str | None:
        value = self.table.get(key)
        if value is not None and (type(value) is not str or not value.strip()):
            raise self.wrong(key, f"{value!r:.100} must be text, and not empty")
        return value

    def needed(self, key: str) -> str:
        if (value := self.text(key)) is None:
            raise self.wrong(key, "it is missing")
        return value

    def flag(self, key: str, default: bool) -> bool:  # noqa: FBT001
        value = self.table.get(key, default)
        if type(value) is not bool:
            raise self.wrong(key, f"{value!r:.100} must be true or false")
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not value or not all(type(each) is str and each for each in value):
            raise self.wrong(key, f"{value!r:.100} must be a list of texts, as in {key} = ['…']")
        return tuple(value)

    def file(self, key: str) -> Path | None:
        if (text := self.text(key)) is None:
            return None
        path = (self.directory / text).resolve()
        try:
            path.read_bytes()
        except OSError as error:
            raise self.wrong(key, f"{path} cannot be read: {error.strerror or error}") from None
        return path

    def checked(self, key: str, check: Callable[..., Any], *arguments: Any) -> Any:
        """By a check that decorators use too."""
        try:
            return check(self.where, key, *arguments)
        except BadRequest as error:
            raise SettingsError(str(error)) from None

    def count(self, key: str, default: int, allowed: range) -> int:
        return int(self.checked(key, checked_count, self.table.get(key, default), allowed))


def _remote(path: Path, entry: Entry) -> Remote:
    _refuse_unknown(entry.where, entry.table, _KEYS)
    addresses = entry.names("addresses")
    if addresses is None:
        raise entry.wrong("addresses", "it is missing")
    try:
        checked_addresses(addresses)
    except ValueError as error:
        raise entry.wrong("addresses", str(error)) from None
    rate_limit, max_parallel = entry.table.get("rate_limit"), entry.table.get("max_parallel", 2)
    try:
        check_limits(entry.where, max_parallel, rate_limit)
    except BadRequest as error:
        raise SettingsError(str(error)) from None
    tls = _tls(entry)
    token_file = entry.file("token_file")
    if token_file is not None and tls is None and not all(map(is_here, addresses)):
        raise entry.wrong("token_file", "anybody could read the token on its way: use tls, or leave the token out")
    return Remote(
        source=str(path),
        kind=entry.needed("kind"),
        name=_name(entry),
        addresses=addresses,
        watches=entry.names("watches"),
        rate_limit=rate_limit,
        max_parallel=max_parallel,
        batch=entry.count("batch", 100, BATCHES),
        time_limit=_time_limit(entry),
        max_attempts=entry.count("max_attempts", 10, ATTEMPTS),
        asks=entry.flag("asks", True),
        saved=entry.flag("saved", False),
        message=_message(entry),
        tls=tls,
        token_file=token_file,
        max_message=entry.count("max_message", 16 * 1024**2, MESSAGES),
    )


def _name(entry: Entry) -> str:
    name: str = entry.checked("name", checked_name, entry.needed("name"))
    if name in _TAKEN:
        raise entry.wrong("name", f"{name} is taken: {_TAKEN[name]}")
    return name


def _time_limit(entry: Entry) -> timedelta:
    limit: timedelta = entry.checked("time_limit", checked_span, entry.table.get("time_limit", "10s"), "100ms")
    if limit > LONGEST:
        raise entry.wrong("time_limit", f"{limit} is longer than {LONGEST}")
    return limit


def _tls(entry: Entry) -> Tls | None:
    table = entry.table.get("tls")
    if entry.flag("plaintext", False):
        if table is not None:
            raise entry.wrong("tls", "it does not go with plaintext = true: leave one of them out")
        return None
    if table is None:
        return Tls()
    if not isinstance(table, dict):
        raise entry.wrong("tls", f"{table!r:.100} must be a table, as in tls = {{ca_file = 'ca.pem'}}")
    own = Entry(f"{entry.where}: tls", table, entry.directory)
    _refuse_unknown(own.where, table, _TLS)
    made = Tls(own.file("ca_file"), own.file("cert_file"), own.file("key_file"), own.text("server_name"))
    if (made.cert_file is None) != (made.key_file is None):
        raise entry.wrong("tls", "cert_file and key_file go together: give both, or neither")
    return made


def _message(entry: Entry) -> type[Message] | None:
    text = entry.text("entity") or "json"
    if text == "json":
        return None
    module, colon, name = text.partition(":")
    if not colon:
        raise entry.wrong("entity", f"{text!r} must be 'json', or the class of a message as in 'shop_pb2:Offer'")
    try:
        found = getattr(import_module(module), name, None)
    except Exception as error:  # noqa: BLE001 - whatever a module does when it is imported
        raise entry.wrong("entity", f"{module} cannot be imported: {type(error).__name__}: {error}") from None
    if not isinstance(found, type) or not issubclass(found, Message) or not hasattr(found.DESCRIPTOR, "full_name"):
        raise entry.wrong("entity", f"{text!r} is no class that protoc has made of a message")
    return found
