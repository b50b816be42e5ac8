"""What is said of errors that somebody knows: `tidemill recover known`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from processes.shown import Shown
from processes.wording import clean, listed
from recovery.rules import Broken, Rule, command, known, operation

#: Of a process with very many kinds of errors, no more are told.
MOST = 20


def told(rule: Rule, broken: Broken) -> str:
    """`known: NAME, what it says → proposed: what to run`"""
    proposed = command(rule, broken)
    text = f"known: {clean(rule.name)}, {clean(rule.says)}"
    return text if proposed is None else f"{text} → proposed: {proposed}"


def told_of_all(rule: Rule, broken: Broken, count: int, narrowed: Sequence[str]) -> str:
    """The same, and what to run for all that broke so."""
    text, for_all = told(rule, broken), operation(rule, broken, narrowed)
    return text if for_all is None or count == 1 else f"{text}; for all {count}: {for_all}"


def data_of(rule: Rule | None, broken: Broken) -> dict[str, Any] | None:
    if rule is None:
        return None
    return {"name": rule.name, "says": rule.says, "proposes": rule.proposes, "command": command(rule, broken)}


def data_of_all(rule: Rule | None, broken: Broken, narrowed: Sequence[str]) -> dict[str, Any] | None:
    found = data_of(rule, broken)
    return found if found is None or rule is None else found | {"operation": operation(rule, broken, narrowed)}


def data(shown: Shown, rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """Each broken task that is known."""
    found = [(each, known(rules, each)) for each in _broken(shown)]
    return [{"number": each.number, **(data_of(rule, each) or {})} for each, rule in found if rule is not None]


def tell(shown: Shown, rules: Sequence[Rule]) -> None:
    """Each rule once, with the command for the first of its tasks."""
    by_rule: dict[str, tuple[Rule, list[Broken]]] = {}
    for each in _broken(shown) if rules else ():
        if (rule := known(rules, each)) is not None:
            by_rule.setdefault(rule.name, (rule, []))[1].append(each)
    for rule, tasks in list(by_rule.values())[:MOST]:
        click.secho(f"! task {listed([each.number for each in tasks])}: {told(rule, tasks[0])}", fg="yellow")


def _broken(shown: Shown) -> list[Broken]:
    return [
        Broken(shown.id, task.number, task.actor, task.broken.type, task.broken.message, task.broken.fingerprint)
        for task in shown.tasks
        if task.broken is not None
    ]
