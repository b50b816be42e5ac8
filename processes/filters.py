"""What processes are searched by; and the same as words, with the parameters of a template in them. Pure.

Words are what a person writes: `{"states": ["BROKEN"], "since": "2h", "attributes": {"shop": "{shop}"}}`. They are kept
as they are, so that a span counts back from the moment at which they are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from app.clock import moment
from app.errors import BadRequest, TooLarge
from processes.fingerprint import FORM
from processes.fingerprint import words as words_of
from processes.states import ProcessState

ATTRIBUTES_MOST, TEXT_LIMIT, WORDS_LIMIT = 20, 500, 16 * 1024
#: A parameter, or a brace that stands for itself.
_MARK = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]{0,49})\}")


@dataclass(frozen=True)
class Filters:
    """Everything that is given must hold; what is said of errors, of one and the same broken task."""

    states: tuple[ProcessState, ...] = ()
    #: The decider that it began with: its type.
    name: str | None = None
    #: Without anything about errors, a task of this actor is broken, waits or is in work; else the broken one is its.
    actor: str | None = None
    custom_id: str | None = None
    #: How the custom id begins.
    custom_id_prefix: str | None = None
    idempotency_key: str | None = None
    #: A value is what it is, or the text of it.
    attributes: Mapping[str, Any] = field(default_factory=dict)
    #: Of the error of a broken task.
    error_class: str | None = None
    fingerprint: str | None = None
    #: Words, all of which are in the error of the process, or of a broken task.
    text: str | None = None
    #: At this time or later, and before that one: registered, begun, ended, a task broke.
    since: datetime | None = None
    until: datetime | None = None
    begun_since: datetime | None = None
    begun_until: datetime | None = None
    ended_since: datetime | None = None
    ended_until: datetime | None = None
    broken_since: datetime | None = None
    broken_until: datetime | None = None
    #: Older than this one, which the page before ended with.
    before_id: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", tuple(state(each) for each in _listed(self.states)))
        for word in TEXTS:
            if getattr(self, word) is not None:
                comparable(word, getattr(self, word))
        for word in NAMES:
            if not isinstance(getattr(self, word), str | None):
                raise BadRequest(f"{word}={getattr(self, word)!r:.100} must be a name")
        for word in TIMES:
            _check_moment(word, getattr(self, word))
        _check_attributes(self.attributes)
        if self.before_id is not None and (type(self.before_id) is not int or not 0 < self.before_id < 2**63):
            raise BadRequest(f"before_id={self.before_id!r:.100} must be the id of a process")
        if self.fingerprint is not None and not FORM.fullmatch(self.fingerprint):
            told = "must be 16 hexadecimal digits: 'tidemill process errors' shows them"
            raise BadRequest(f"fingerprint={self.fingerprint!r:.100} {told}")
        if self.text is not None and not words_of(self.text):
            raise BadRequest(f"text={self.text!r:.100} has no word to search for")

    @property
    def of_errors(self) -> bool:
        """Asks for a broken task, more than of which actor it is."""
        return any(
            each is not None for each in (self.error_class, self.fingerprint, self.broken_since, self.broken_until)
        )


TIMES = tuple(each.name for each in fields(Filters) if each.name.endswith(("since", "until")))
#: Looked up among those that there are.
NAMES = ("name", "actor")
TEXTS = ("custom_id", "custom_id_prefix", "idempotency_key", "error_class", "fingerprint", "text")


def _listed(states: Any) -> tuple[Any, ...]:
    return (states,) if isinstance(states, str) else tuple(states)


def state(word: Any) -> ProcessState:
    try:
        return ProcessState(str(word).upper())
    except ValueError:
        raise BadRequest(f"{word!r:.100} is no state: a process is {', '.join(ProcessState)}") from None


def comparable(what: str, value: Any) -> str:
    """What Postgres can compare with."""
    if type(value) is not str or "\x00" in value or any("\ud800" <= each <= "\udfff" for each in value):
        raise BadRequest(f"{what}={value!r:.100} must be text without NUL, and such as UTF-8 can write")
    if len(value) > TEXT_LIMIT:
        raise TooLarge(f"{what} is {len(value)} characters long, more than {TEXT_LIMIT}")
    return value


def _check_moment(what: str, value: Any) -> None:
    if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
        raise BadRequest(f"{what}={value!r:.100} must be a datetime with a time zone, such as datetime(…, tzinfo=UTC)")


def _check_attributes(attributes: Any) -> None:
    if not isinstance(attributes, Mapping):
        raise BadRequest(f"attributes={attributes!r:.200} must be a dict")
    if len(attributes) > ATTRIBUTES_MOST:
        raise TooLarge(f"{len(attributes)} attributes are asked for, more than {ATTRIBUTES_MOST}")
    for name, value in attributes.items():
        comparable("attribute", name)
        if isinstance(value, str):
            comparable(f"attribute {name}", value)


def read(words: Mapping[str, Any], now: datetime) -> Filters:
    """Words without parameters. Spans count back from `now`."""
    if unknown := words.keys() - {*NAMES, *TEXTS, *TIMES, "states", "attributes"}:
        raise BadRequest(f"{sorted(unknown)[0]!r:.100} is nothing that processes are searched by")
    times = {word: _past(word, words[word], now) for word in TIMES if word in words}
    return Filters(**{**words, **times})


def _past(word: str, text: Any, now: datetime) -> datetime:
    try:
        found = moment(str(text))
        # In UTC: Postgres does not read every offset that Python can have.
        return (now - found if isinstance(found, timedelta) else found).astimezone(UTC)
    except ValueError as error:
        raise BadRequest(f"{word}: {error}") from None
    except OverflowError:
        raise BadRequest(f"{word}: {text!r:.100} is further away than time goes") from None


def checked_words(words: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """As a template keeps them. What has parameters in it is read when they are known."""
    if len(json.dumps(words, ensure_ascii=False).encode()) > WORDS_LIMIT:
        raise TooLarge(f"a template takes no more than {WORDS_LIMIT} bytes of JSON")
    plain = {word: value for word, value in words.items() if not parameters_of({word: value})}
    read({word: fill(value, {}) for word, value in plain.items()}, now)
    return dict(words)


def parameters_of(words: Mapping[str, Any]) -> list[str]:
    """Their names."""
    return sorted({mark[1] for text in _texts(words) for mark in _MARK.finditer(text) if mark[1]})


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from _texts(each)
        case list() | tuple():
            for each in value:
                yield from _texts(each)
        case _:
            pass


def filled(words: Mapping[str, Any], parameters: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """With values for all parameters, and for nothing else."""
    wanted = parameters_of(words)
    if missing := [each for each in wanted if each not in parameters]:
        raise BadRequest(f"{whose} needs {', '.join(missing)}: give each a value, such as {missing[0]}=…")
    if unknown := [each for each in parameters if each not in wanted]:
        has = f"it has {', '.join(wanted)}" if wanted else "it has none"
        raise BadRequest(f"{whose} has no parameter {unknown[0]!r:.100}: {has}")
    given = {
        name: value.isoformat() if isinstance(value, datetime) else str(value) for name, value in parameters.items()
    }
    return {word: fill(value, given) for word, value in words.items()}


def fill(value: Any, parameters: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _MARK.sub(lambda mark: parameters[mark[1]] if mark[1] else mark[0][0], value)
        case Mapping():
            return {name: fill(each, parameters) for name, each in value.items()}
        case list() | tuple():
            return [fill(each, parameters) for each in value]
        case _:
            return value
