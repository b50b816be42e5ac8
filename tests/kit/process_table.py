"""A process in memory: the tasks of a program of `tests.kit.process_programs` as `processes.graph` has them, in any
order of completion, with restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from processes import Failure, graph, restarting
from processes.answers import Failed, Value, failure
from processes.arguments import FAILURE, renumbered, written
from processes.definition import declared
from processes.graph import Arrow, Decided, Graph, Node, Step
from processes.loading import Input
from processes.model import ROOT
from processes.restarting import Plan
from processes.states import TaskState
from tests.kit.process_programs import TRIES, Accepted, Gone, Script


@dataclass
class Row:
    """A task in memory."""

    actor: str
    arguments: str
    uses: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    created_by: int | None = None
    #: As it is stored.
    result: str | None = None
    #: How often it was called since the beginning, or since it was restarted.
    calls: int = 0

    @property
    def label(self) -> str:
        return str(json.loads(self.arguments)["args"][0]["label"])


class Table:
    """The whole graph of one process, and its tasks, in memory."""

    def __init__(self, script: Script) -> None:
        arguments = json.dumps({"args": [script, []], "kwargs": {}})
        self.rows: dict[int, Row] = {ROOT: Row("program.plan", arguments)}
        self.graph = Graph(1, 1, 0, {ROOT: Node(TaskState.READY)})
        #: May be handed out now, in the order in which they became so.
        self.ready: list[int] = [ROOT]

    @property
    def arrows(self) -> list[Arrow]:
        return [arrow for each in self.graph.arrows.values() for arrow in each]

    def given(self, number: int) -> Input:
        """What its function is called with."""
        row = self.rows[number]
        values = {each: json.loads(self.stored(each)) for each in row.uses}
        return Input(row.actor, row.arguments, datetime.now(UTC), None, "{}", values)

    def call(self, number: int) -> Value | Failed:
        """What the function answers."""
        return answered(self.rows[number].actor, self.given(number))

    def stored(self, number: int) -> str:
        """The value of a task that has finished, wherever it is."""
        node = self.graph.nodes[number]
        assert node.state is TaskState.FINISHED, f"task {number} is {node.state}: nobody can want its value"
        result = self.rows[node.value_of or number].result
        assert result is not None
        return result

    def take(self, number: int, outcome: Value | Failed) -> Step | None:
        """Accepts the answer: what it changed; None: it is to be tried again, or broken."""
        row = self.rows[number]
        row.calls += 1
        if isinstance(outcome, Failed):
            if "Accepted" in outcome.types:
                row.result = json.dumps({FAILURE: {"type": "Accepted", "message": outcome.message}})
                return self._decide(number, Decided())
            if row.calls >= TRIES.max_attempts:
                graph.broken(self.graph, number)
                self.ready.remove(number)
            return None
        row.result = outcome.text
        return self._decide(number, Decided(outcome.planned, outcome.value_of))

    def _decide(self, number: int, decided: Decided) -> Step:
        first = self.graph.tasks + 1
        step = graph.apply(self.graph, number, decided)
        self.ready.remove(number)
        for made, call in zip(step.created, decided.planned, strict=True):
            arguments = renumbered(call.arguments, lambda reference: graph.numbered(reference, first))
            uses, after = (tuple(graph.numbered(each, first) for each in refs) for refs in (call.uses, call.after))
            self.rows[made] = Row(call.actor, arguments, uses, after, number)
        self.ready += step.ready
        return step

    def go_on(self, pick: Any) -> None:
        """Until nothing can be handed out; `pick` says which of those that are ready answers next."""
        while self.ready:
            number = pick(tuple(self.ready))
            self.take(number, self.call(number))

    def restart(self, numbers: list[int]) -> Plan:
        """As an operator's restart has it: see `processes.operate`."""
        creators = {number: row.created_by for number, row in self.rows.items()}
        planned = restarting.plan(creators, self.arrows, numbers)
        after = restarting.applied(self.graph.nodes, self.arrows, planned)
        kept = restarting.kept_arrows(self.arrows, planned)
        for number in planned.forgotten:
            del self.rows[number]
        for number in planned.again:
            self.rows[number].calls = 0
        for number in planned.again | planned.follows:
            self.rows[number].result = None
        unfinished = [node for node in after.values() if node.state is not TaskState.FINISHED]
        broken = sum(node.state is TaskState.BROKEN for node in unfinished)
        self.graph = Graph(self.graph.tasks, len(unfinished), broken, after)
        for arrow in kept:
            self.graph.arrows.setdefault(arrow.source, []).append(arrow)
        self.ready = [number for number, node in after.items() if node.state is TaskState.READY]
        return planned

    def by_label(self) -> Mapping[str, Node]:
        return {row.label: self.graph.nodes[number] for number, row in self.rows.items()}

    def values(self) -> dict[str, Any]:
        """By label, as functions get them."""
        finished = [number for number in self.rows if self.graph.nodes[number].state is TaskState.FINISHED]
        return {self.rows[number].label: told(json.loads(self.stored(number))) for number in finished}


def answered(name: str, given: Input) -> Value | Failed:
    """As a worker has it."""
    function = declared[name].function
    try:
        if not declared[name].decider:
            args, kwargs = given.call()
            return Value(written(name, function(*args, **kwargs)))
        flow, args, kwargs = given.decide(1)
        value = function(flow, *args, **kwargs)
        number = flow.number_of_value(value)
        return Value(None if number is not None else written(name, value), tuple(flow.planned), number)
    except (Accepted, Gone) as error:
        return failure(error)


def told(value: Any) -> Any:
    match value:
        case {"$failure": {"type": kind, "message": message}}:
            return Failure(kind, message)
        case _:
            return value
