"""Failures that somebody knows: what a rule matches, and what it proposes. Pure."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from processes.fingerprint import kind_of


class Action(enum.StrEnum):
    """What is to be done about a broken task."""

    RESTART_TASK = "restart-task"
    RESTART = "restart"
    ABORT = "abort"
    NONE = "none"


@dataclass(frozen=True)
class Broken:
    """What a rule is held against."""

    process_id: int
    number: int
    actor: str
    #: The class of the error.
    type: str
    message: str
    fingerprint: str


@dataclass(frozen=True)
class Rule:
    """Everything that is given must hold of the broken task."""

    name: str
    says: str
    proposes: Action
    actor: str | None = None
    type: str | None = None
    fingerprint: str | None = None
    #: A part of class and message, in small or capital letters.
    text: str | None = None
    #: Of the action: its `reason`.
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, broken: Broken) -> bool:
        wanted = ((self.actor, broken.actor), (self.type, broken.type), (self.fingerprint, broken.fingerprint))
        if any(value is not None and value != found for value, found in wanted):
            return False
        return self.text is None or self.text.casefold() in f"{broken.type}: {broken.message}".casefold()

    @property
    def narrowness(self) -> tuple[bool, int]:
        given = (self.actor, self.type, self.fingerprint, self.text)
        return self.fingerprint is not None, sum(each is not None for each in given)


def known(rules: Iterable[Rule], broken: Broken) -> Rule | None:
    """The narrowest one that matches: one that names the fingerprint, else one that asks for more; of such as ask for
    the same, the first by name."""
    found = sorted((each for each in rules if each.matches(broken)), key=lambda each: each.name)
    return max(found, key=lambda each: each.narrowness, default=None)


def command(rule: Rule, broken: Broken) -> str | None:
    """What to run for this task; None where nothing is to be done."""
    reason = _reason(rule)
    match rule.proposes:
        case Action.RESTART_TASK:
            return f"tidemill process restart {broken.process_id} --from {broken.number}{reason}"
        case Action.RESTART:
            return f"tidemill process restart {broken.process_id}{reason}"
        case Action.ABORT:
            return f"tidemill process abort {broken.process_id}{reason}"
        case Action.NONE:
            return None
        case _:
            assert_never(rule.proposes)


def operation(rule: Rule, broken: Broken, narrowed: Sequence[str] = ()) -> str | None:
    """What to run for all tasks that broke as this one did, and are `narrowed` by these words besides; None where
    nothing is to be done, or where the rule is not sure to match what it would be done to."""
    text = _text_of_all(rule, broken)
    if rule.proposes is Action.NONE or text is None:
        return None
    words = ["--fingerprint", broken.fingerprint, *text, *narrowed]
    return f"tidemill recover operation start {rule.proposes} {shlex.join(words)}{_reason(rule)}"


def _text_of_all(rule: Rule, broken: Broken) -> list[str] | None:
    """The words that keep others of its fingerprint out, whose messages may differ where the rule looks; None: none
    would."""
    if rule.text is None:
        return []
    same = f"{broken.type}: {kind_of(broken.message)}"
    if "#" not in rule.text and rule.text.casefold() in same.casefold():
        return []
    # A search finds whole words, wherever they are.
    return ["--text", rule.text] if rule.text.isalnum() else None


def _reason(rule: Rule) -> str:
    why = rule.parameters.get("reason")
    return f" --reason {shlex.quote(str(why))}" if why else ""
