"""Programs of deciders and actors: a strategy for any of them, and what one means.

A program is a tree of *scripts*, plain JSON. Each says what its task does: how it fails, and of a decider, which calls
it makes, with which promises among the arguments, and what it returns. `act` and `plan` are the only functions.

`meaning` says what comes out, from the rules alone (P1, P8, P9): recursion with a memory, without a graph.
`tests.kit.process_table` runs one in memory.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from processes import Failure, Flow, Promise, Retry, actor, decider

Script = dict[str, Any]
#: `["call", i]`: its own call i; `["given", i]`: the promise that it was given as i-th.
Ref = Sequence[Any]

WELL, ACCEPTED, BROKEN = "well", "accepted", "broken"
#: A task that fails so often is tried again.
FLAKY = 2
TRIES = Retry(max_attempts=FLAKY + 1, delay="0s")


class Accepted(Exception):
    """One of the `fail_types` of the two functions."""


class Gone(Exception):
    """Not one of them."""


#: How often each task, by its label, has failed in passing.
stumbled: Counter[str] = Counter()
#: How often the value of each was made another one.
editions: Counter[str] = Counter()


def begin() -> None:
    """Before a program is run."""
    stumbled.clear()
    editions.clear()


def _stumble(script: Script) -> None:
    label = script["label"]
    if stumbled[label] < script["stumbles"]:
        stumbled[label] += 1
        raise Gone(f"{label}, for the {stumbled[label]}th time")
    if script["end"] == ACCEPTED:
        raise Accepted(label)
    if script["end"] == BROKEN:
        raise Gone(label)


@actor(name="program.act", retry=TRIES, fail_types=[Accepted])
def act(script: Script, *values: Any) -> str:
    _stumble(script)
    return digest(script["label"], values)


@decider(name="program.plan", retry=TRIES, fail_types=[Accepted])
def plan(flow: Flow, script: Script, given: list[Promise[Any]], *values: Any) -> Any:
    _stumble(script)
    made: list[Promise[Any]] = []

    def promised(ref: Ref) -> Promise[Any]:
        return made[ref[1]] if ref[0] == "call" else given[ref[1]]

    for call in script["calls"]:
        uses, after = [promised(ref) for ref in call["uses"]], [promised(ref) for ref in call["after"]]
        if call["script"]["decider"]:
            passed = [flow.no_wait(promised(ref)) for ref in call["passes"]]
            made.append(flow.call(plan, call["script"], passed, *uses, after=after))
        else:
            made.append(flow.call(act, call["script"], *uses, after=after))
    return promised(script["returns"]) if script["returns"] else digest(script["label"], values)


def digest(label: str, values: Sequence[Any]) -> str:
    """A value that shows what it was made of."""
    plain = [{"failed": each.message} if isinstance(each, Failure) else each for each in values]
    return f"{label}#{editions[label]}:" + hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:8]


# What programs there are


@st.composite
def programs(draw: st.DrawFn, *, failing: bool = True, depth: int = 3, calls: int = 4) -> Script:
    """Any program. `failing`: also such that cannot end, since tasks of them break."""
    ends = st.sampled_from([WELL] * 6 + [ACCEPTED] + ([BROKEN] if failing else []))

    def script(label: str, depth: int, given: int) -> Script:
        found: Script = {
            "label": label,
            "decider": depth > 0,
            "end": WELL if label == "1" else draw(ends),
            "stumbles": draw(st.sampled_from([0, 0, 0, 1, FLAKY])),
        }
        if depth > 0:
            found["calls"] = []
            for number in range(draw(st.integers(0, calls))):
                found["calls"].append(call(f"{label}.{number}", depth, refs(number, given)))
            found["returns"] = draw(st.sampled_from([None, *refs(len(found["calls"]), given)]))
        return found

    def refs(own: int, given: int) -> list[Ref]:
        return [*(("call", each) for each in range(own)), *(("given", each) for each in range(given))]

    def call(label: str, depth: int, refs: list[Ref]) -> dict[str, Any]:
        some = st.lists(st.sampled_from(refs), max_size=3) if refs else st.just([])
        passes = draw(some)
        inner = script(label, draw(st.sampled_from([0, depth - 1])), len(passes))
        return {"script": inner, "uses": draw(some), "after": draw(some), "passes": passes}

    return script("1", depth, 0)


# What they mean


@dataclass(eq=False)
class Asked:
    """A call that was made."""

    script: Script
    uses: list[Asked]
    after: list[Asked]
    given: list[Asked]

    @property
    def label(self) -> str:
        return str(self.script["label"])


@dataclass
class Meaning:
    """By label. `values`: of the tasks that finish; `broken`; `waits`: those that can never be called, or have the
    value of one that never ends."""

    values: dict[str, Any] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    waits: set[str] = field(default_factory=set)


def meaning(script: Script) -> Meaning:
    found, asked = Meaning(), [Asked(script, [], [], [])]
    results: dict[Asked, Any] = {}

    def result(task: Asked) -> Any:
        if task not in results:
            results[task] = _called(task)
        return results[task]

    def _called(task: Asked) -> Any:
        """None: it never ends."""
        inputs = [result(each) for each in [*task.uses, *task.after]]
        if None in inputs:
            found.waits.add(task.label)
            return None
        if task.script["end"] == BROKEN:
            found.broken.add(task.label)
            return None
        if task.script["end"] == ACCEPTED:
            return Failure("Accepted", task.label)
        values = inputs[: len(task.uses)]
        own = _calls(task) if task.script["decider"] else []
        asked.extend(own)
        value_of = task.script.get("returns")
        if value_of is None:
            return digest(task.label, values)
        value = result(_referred(value_of, own, task))
        if value is None:
            found.waits.add(task.label)
        return value

    for task in asked:
        value = result(task)
        if value is not None:
            found.values[task.label] = value
    return found


def _calls(task: Asked) -> list[Asked]:
    made: list[Asked] = []
    for call in task.script["calls"]:
        uses, after, given = (
            [_referred(ref, made, task) for ref in call[word]] for word in ("uses", "after", "passes")
        )
        made.append(Asked(call["script"], uses, after, given))
    return made


def _referred(ref: Ref, own: list[Asked], task: Asked) -> Asked:
    return own[ref[1]] if ref[0] == "call" else task.given[ref[1]]
