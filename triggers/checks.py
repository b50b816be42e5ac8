"""What can be said of the triggers of all tasks without running anything.

What it promises:

- Pure: from facts about tasks and the set of parameters that have a value, findings; the same ones in the same order.
- `NEVER_FIRES` is certain: no advance that these tasks make can ever give the missing value, nor can any time.
- Each cycle is found once, however many tasks are on it, and shown from its first task by name.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from triggers.cycles import cycles
from triggers.instants import END, FIRST
from triggers.leaves import CtlTrigger
from triggers.trigger import Any, Trigger
from triggers.verdict import Parameter, dotted


@dataclass(frozen=True, slots=True)
class TaskFacts:
    name: str
    trigger: Trigger
    produces: frozenset[Parameter] = frozenset()
    min_interval: timedelta | None = None


class FindingKind(enum.StrEnum):
    FREE_RUNNING = "free-running"
    NEVER_FIRES = "never-fires"
    NO_VALUE = "no-value"
    CYCLE = "cycle"


@dataclass(frozen=True, slots=True)
class Finding:
    """`tasks`: whom it concerns; of a cycle, in its order."""

    kind: FindingKind
    tasks: tuple[str, ...]
    sentence: str


def check(tasks: Iterable[TaskFacts], valued: Collection[Parameter]) -> list[Finding]:
    """`valued`: the parameters that have a value now."""
    facts = sorted(tasks, key=lambda task: task.name)
    known = frozenset(valued)
    return [*_free_running(facts), *_never_fires(facts, known), *_no_value(facts, known), *_cycles(facts)]


def _free_running(facts: Sequence[TaskFacts]) -> Iterator[Finding]:
    for task in facts:
        if not task.trigger.latched and not task.min_interval:
            yield Finding(
                FindingKind.FREE_RUNNING,
                (task.name,),
                f"{task.name} runs again as soon as it ends, as long as its trigger holds: add a trigger that rests on "
                f"last seen, such as new_day, or give it a min_interval longer than 0s",
            )


def _never_fires(facts: Sequence[TaskFacts], known: frozenset[Parameter]) -> Iterator[Finding]:
    alive, obtainable = _fixpoint(facts, known)
    for task in facts:
        leaves = task.trigger.leaves
        if task.name not in alive:
            lacking = dict.fromkeys(each for leaf in leaves for each in leaf.parameters if each not in obtainable)
            yield Finding(
                FindingKind.NEVER_FIRES,
                (task.name,),
                f"{task.name} can never fire: {' and '.join(map(dotted, lacking))} {_has(lacking)} no value, and only "
                f"tasks that can never fire themselves produce {_it(lacking)}: advance {_it(lacking)} once from "
                f"outside, or break the circle",
            )
        elif not _passes(task.trigger, (not _endless(leaf) for leaf in leaves)):
            endless = next(leaf for leaf in leaves if _endless(leaf))
            yield Finding(
                FindingKind.NEVER_FIRES,
                (task.name,),
                f"{task.name} can never fire again after its first run: {dotted((endless.entity, endless.parameter))} "
                f"{endless.rule}, which is longer than time: write a smaller distance",
            )


def _endless(leaf: CtlTrigger) -> bool:
    """Even when the earliest value there is was seen, no value can be late enough."""
    earliest = leaf.threshold(FIRST, None, FIRST) if leaf.needs_seen else None
    return earliest is not None and earliest >= END


def _fixpoint(facts: Sequence[TaskFacts], known: frozenset[Parameter]) -> tuple[set[str], set[Parameter]]:
    """The tasks that can fire at some time, and the parameters that have a value or can get one.

    What no task produces is taken to come from outside: it is reported as a parameter without a value, not here."""
    produced = {parameter for task in facts for parameter in task.produces}
    watchers: dict[Parameter, list[TaskFacts]] = {}
    for task in facts:
        for parameter in task.trigger.parameters:
            watchers.setdefault(parameter, []).append(task)
    obtainable = set(known) | (watchers.keys() - produced)
    alive: set[str] = set()
    look = list(facts)
    while look:
        task = look.pop()
        if task.name in alive or not _can_fire(task.trigger, obtainable):
            continue
        alive.add(task.name)
        for parameter in task.produces - obtainable:
            obtainable.add(parameter)
            look += watchers.get(parameter, ())
    return alive, obtainable


def _can_fire(trigger: Trigger, obtainable: Collection[Parameter]) -> bool:
    return _passes(trigger, (all(each in obtainable for each in leaf.parameters) for leaf in trigger.leaves))


def _passes(trigger: Trigger, leaves: Iterable[bool]) -> bool:
    return any(leaves) if isinstance(trigger, Any) else all(leaves)


def _has(names: Collection[object]) -> str:
    return "has" if len(names) == 1 else "have"


def _it(names: Collection[object]) -> str:
    return "it" if len(names) == 1 else "them"


def _no_value(facts: Sequence[TaskFacts], known: frozenset[Parameter]) -> Iterator[Finding]:
    produced = {parameter for task in facts for parameter in task.produces}
    waiting: dict[Parameter, list[str]] = {}
    for task in facts:
        for parameter in task.trigger.parameters:
            if parameter not in known and parameter not in produced:
                waiting.setdefault(parameter, []).append(task.name)
    for parameter, names in sorted(waiting.items()):
        yield Finding(
            FindingKind.NO_VALUE,
            tuple(names),
            f"{dotted(parameter)} has no value and no task produces it, but {', '.join(names)} "
            f"{'waits' if len(names) == 1 else 'wait'} for it: check its spelling, or advance it from outside",
        )


def _cycles(facts: Sequence[TaskFacts]) -> Iterator[Finding]:
    watchers: dict[Parameter, list[str]] = {}
    for task in facts:
        for parameter in task.trigger.parameters:
            watchers.setdefault(parameter, []).append(task.name)
    graph = {task.name: {name for parameter in task.produces for name in watchers.get(parameter, ())} for task in facts}
    for cycle in cycles(graph):
        yield Finding(
            FindingKind.CYCLE,
            cycle,
            f"{' → '.join([*cycle, cycle[0]])}: what these tasks produce starts them again; leave a parameter out of a "
            f"trigger or of produces=, or split it in two",
        )
