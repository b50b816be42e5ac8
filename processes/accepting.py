"""Accepting what actors answer: a decision, and all that follows from it, in one transaction (P4).

Under the locks of the graphs: whoever changes tasks of a process takes its graph's first. Any number of answers, also
several of one process, cost the same handful of statements.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from app import doorbell
from app.errors import BadRequest
from app.jobs.endings import storable
from processes import graph, statements
from processes.answers import Again, Answer, Break, Failed, Refuse, Standing, Take, Value, failure, judge
from processes.arguments import FAILURE, renumbered
from processes.definition import Retry, declared
from processes.graph import Arrow, Decided, Graph, Node, Touched
from processes.model import BROKEN_TASK, ROOT, queue_of
from processes.states import DecisionState, ProcessState, TaskState

Key = tuple[int, int]
Judgement = Take | Again | Break | Refuse

_DEFAULT_RETRY = Retry().words()


@dataclass
class Accepted:
    """What became of each answer, in their order; and how many tasks became ready, by their actors."""

    judgements: list[Judgement]
    ready: dict[str, int] = field(default_factory=dict)


def accept(connection: Connection, answers: Sequence[Answer]) -> Accepted:
    """Takes what is to be taken, and records what is not. At most one answer for each task."""
    return _Acceptance(connection, answers).made()


@dataclass
class _Work:
    """What is known of one process, and what is to be written of it."""

    graph: Graph
    priority: int
    state: ProcessState
    #: Whether the process was broken by something else than its tasks.
    broken_by_time: bool
    error: str | None = None
    #: Of the tasks that may become ready: actor, moment, delay.
    waiting: dict[int, tuple[str, Any, Any]] = field(default_factory=dict)


class _Acceptance:
    def __init__(self, connection: Connection, answers: Sequence[Answer]) -> None:
        self.connection, self.answers = connection, answers
        self.works: dict[int, _Work] = {}
        self.rows: dict[Key, Row[Any]] = {}
        self.writes: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        #: Own values of tasks that finish here.
        self.results: dict[Key, tuple[str | None, bool]] = {}
        self.broken: list[tuple[Any, ...]] = []
        self.healed: list[Key] = []
        self.recorded: list[tuple[Any, ...]] = []
        self.again: list[tuple[Any, ...]] = []
        self.touched: set[int] = set()
        self.known: Collection[int] = ()
        self.accepted = Accepted([])

    def made(self) -> Accepted:
        graphs = self._lock()
        self.known = graphs.keys()
        self._load()
        judged = [(answer, self._judged(answer, graphs)) for answer in self.answers]
        for answer, verdict in judged:
            if isinstance(verdict, Take | Break):
                self._begin_work(answer, graphs)
        self._load_touched([answer for answer, verdict in judged if isinstance(verdict, Take)])
        for answer, verdict in judged:
            self.accepted.judgements.append(self._apply(answer, verdict))
        self._end_processes()
        self._write()
        return self.accepted

    def _lock(self) -> dict[int, Row[Any]]:
        ids = sorted({answer.handed.process_id for answer in self.answers})
        return {row.process_id: row for row in statements.locking().execute(self.connection, {"p_ids": ids})}

    def _load(self) -> None:
        keys = sorted(answer.handed.key for answer in self.answers)
        found = statements.standing().execute(self.connection, statements.keyed(keys))
        self.rows = {(row.process_id, row.number): row for row in found}

    def _judged(self, answer: Answer, graphs: dict[int, Row[Any]]) -> Judgement:
        row = self.rows.get(answer.handed.key)
        if row is None or answer.handed.process_id not in graphs:
            return Refuse("there is no such task")
        policy = row.policy or {}
        standing = Standing(
            process=ProcessState(row.process),
            decision=DecisionState(row.decision),
            epoch=row.epoch,
            pass_key=row.pass_key,
            failures=row.failures,
            broken=row.state == TaskState.BROKEN,
            accept_first=True if row.accept_first is None else row.accept_first,
            retry=policy.get("retry") or row.retry or _DEFAULT_RETRY,
            fail_types=policy.get("fail_types", row.fail_types or ()),
            handed_out=row.attempts > 0,
            troubled=row.troubled,
            made_at=row.created_at,
        )
        return judge(answer, standing)

    def _begin_work(self, answer: Answer, graphs: dict[int, Row[Any]]) -> None:
        row, counts = self.rows[answer.handed.key], graphs[answer.handed.process_id]
        work = self.works.get(row.process_id)
        if work is None:
            state = ProcessState(row.process)
            loaded = Graph(counts.tasks, counts.unfinished, counts.broken)
            by_time = state is ProcessState.BROKEN and not counts.broken
            work = self.works[row.process_id] = _Work(loaded, row.priority, state, by_time)
        work.graph.nodes[row.number] = Node(TaskState(row.state), row.pending, row.value_of)

    def _load_touched(self, answers: Sequence[Answer]) -> None:
        """The part of each graph that the answers touch."""
        touched = [(answer.handed.key, _touched(answer)) for answer in answers]
        keys = [(*key, of is Touched.EVERYTHING) for key, of in touched if of is not Touched.NOTHING]
        if keys:
            self._load_arrows(keys)
        self._load_named(answers)

    def _load_arrows(self, keys: Sequence[tuple[int, int, bool]]) -> None:
        parameters = statements.keyed(keys, ("process_id", "number", "deep"))
        seen = set[tuple[int, Arrow]]()
        for row in statements.touched().execute(self.connection, parameters):
            work = self.works[row.process_id]
            arrow = Arrow(row.source, row.target, row.value)
            if (row.process_id, arrow) in seen:
                continue
            seen.add((row.process_id, arrow))
            work.graph.arrows.setdefault(row.source, []).append(arrow)
            work.graph.nodes.setdefault(row.target, Node(TaskState(row.state), row.pending, row.value_of))
            work.waiting[row.target] = (row.actor, row.not_before, row.delay)

    def _load_named(self, answers: Iterable[Answer]) -> None:
        """What deciders have named by promises that were passed to them."""
        named = sorted({(answer.handed.process_id, number) for answer in answers for number in _named(answer)})
        if named:
            for row in self.connection.execute(statements.nodes(), statements.keyed(named)):
                nodes = self.works[row.process_id].graph.nodes
                nodes.setdefault(row.number, Node(TaskState(row.state), row.pending, row.value_of))

    def _apply(self, answer: Answer, verdict: Judgement) -> Judgement:
        match verdict:
            case Take():
                return self._take(answer)
            case Again(wait):
                self._record(answer)
                failed = _failure_of(answer)
                self.again.append((*answer.handed.key, wait.total_seconds(), storable(failed.told)))
            case Break():
                self._break(answer, _failure_of(answer))
            case Refuse(why):
                # Of a process that is forgotten nothing is kept: nobody would ever forget that.
                if not answer.by_time and answer.handed.process_id in self.known:
                    self._record(answer, why)
        return verdict

    def _take(self, answer: Answer) -> Judgement:
        key, outcome = answer.handed.key, answer.outcome
        work = self.works[key[0]]
        if isinstance(outcome, Failed):
            told = {FAILURE: {"type": outcome.types[0], "message": storable(outcome.message)}}
            decided, self.results[key] = Decided(), (json.dumps(told, ensure_ascii=False), True)
        else:
            if wrong := self._unknown(work, answer, outcome):
                self._break(answer, wrong)
                return Break()
            decided, self.results[key] = Decided(outcome.planned, outcome.value_of), (outcome.text, False)
        was_broken = work.graph.nodes[key[1]].state is TaskState.BROKEN
        first = work.graph.tasks + 1
        try:
            step = graph.apply(work.graph, key[1], decided)
        except BadRequest as error:
            self._break(answer, failure(error))
            return Break()
        if was_broken:
            self.healed.append(key)
        self._note(key, work, decided, step, first)
        if isinstance(outcome, Failed):
            self._record(answer)
        return Take()

    def _unknown(self, work: _Work, answer: Answer, outcome: Value) -> Failed | None:
        missing = [number for number in _named(answer) if number not in work.graph.nodes]
        if missing:
            return failure(BadRequest(f"process {answer.handed.process_id} has no task {missing[0]}"))
        unknown = sorted({call.actor for call in outcome.planned if call.actor not in declared})
        return failure(BadRequest(f"there is no actor {unknown[0]!r}")) if unknown else None

    def _note(self, key: Key, work: _Work, decided: Decided, step: graph.Step, first: int) -> None:
        process_id, _ = key
        self.touched.add(process_id)
        self.writes["ended"].append((*key, None))
        for number, call in zip(step.created, decided.planned, strict=True):
            numbers = {reference: graph.numbered(reference, first) for reference in call.waits_for}
            node = work.graph.nodes[number]
            delay = None if call.delay is None else call.delay.total_seconds()
            work.waiting[number] = (call.actor, call.not_before, delay)
            self.writes["created"].append(
                (
                    *(process_id, number, call.actor, node.state.value, node.pending),
                    renumbered(call.arguments, lambda reference: graph.numbered(reference, first)),
                    "{" + ",".join(str(numbers[each]) for each in call.uses) + "}" if call.uses else None,
                    *(key[1], json.dumps(call.policy) if call.policy else None, call.not_before, delay),
                )
            )
        self.writes["arrows"] += [(process_id, *arrow) for arrow in step.arrows]
        for number in step.finished:
            node = work.graph.nodes[number]
            own = self.results.get((process_id, number)) if node.value_of is None else None
            text, failed = own or (None, False)
            self.writes["finished"].append((process_id, number, node.value_of, text, failed))
        for number in step.changed - set(step.finished):
            self.writes["changed"].append((process_id, number))
        for number in step.ready:
            actor, moment, delay = work.waiting[number]
            self.writes["ready"].append((process_id, number, actor, -work.priority, moment, delay))
            self.accepted.ready[actor] = self.accepted.ready.get(actor, 0) + 1

    def _break(self, answer: Answer, failed: Failed) -> None:
        key, row = answer.handed.key, self.rows[answer.handed.key]
        work = self.works[key[0]]
        graph.broken(work.graph, key[1])
        self.touched.add(key[0])
        message, trace = storable(failed.message), failed.traceback and storable(failed.traceback)
        work.error = work.error or storable(f"task {key[1]}, {row.actor}: {failed.told}")
        self.writes["ended"].append((*key, storable(failed.told)))
        self.writes["changed"].append(key)
        self.broken.append((*key, row.actor, failed.types[0], message, trace))
        self._record(answer, failed=failed)

    def _record(self, answer: Answer, refused: str | None = None, failed: Failed | None = None) -> None:
        """P5: what came and was not simply taken."""
        found = failed or (answer.outcome if isinstance(answer.outcome, Failed) else None)
        self.recorded.append(
            (
                *(*answer.handed.key, answer.handed.worker, refused),
                storable(found.told) if found else None,
                storable(found.traceback) if found and found.traceback else None,
            )
        )

    def _end_processes(self) -> None:
        for process_id in sorted(self.touched):
            work = self.works[process_id]
            state = _state_of(work)
            if work.error is None and work.graph.broken and any(key[0] == process_id for key in self.healed):
                work.error = self._error_left(process_id)
            if state is work.state and work.error is None:
                continue
            value = self._value_of(process_id, work.graph) if state is ProcessState.FINISHED else None
            self.writes["processes"].append((process_id, state.value, value, work.error))

    def _error_left(self, process_id: int) -> str | None:
        """Of a task that is still broken, where others have healed."""
        healed = [key[1] for key in self.healed if key[0] == process_id]
        of = BROKEN_TASK.c
        left = sa.select(of.number, of.actor, of.type, of.message).where(of.process_id == process_id)
        row = self.connection.execute(left.where(of.number.not_in(healed)).order_by(of.at.desc())).first()
        return f"task {row.number}, {row.actor}: {row.type}: {row.message}" if row else None

    def _value_of(self, process_id: int, of: Graph) -> str | None:
        """That of the first task, which may have finished long before the last one."""
        root = of.nodes.get(ROOT)
        held_by = (root.value_of or ROOT) if root is not None and root.state is TaskState.FINISHED else None
        if held_by is None:
            row = self.connection.execute(statements.nodes(), statements.keyed([(process_id, ROOT)])).one()
            held_by = row.value_of or ROOT
        if (own := self.results.get((process_id, held_by))) is not None and own[0] is not None:
            return own[0]
        found = self.connection.execute(statements.results(), statements.keyed([(process_id, held_by)])).one()
        return None if found.result is None else str(found.result)

    def _write(self) -> None:
        if self.touched:
            self._complete()
            statements.writing().execute(self.connection, statements.parameters(self.writes, statements.WRITTEN))
        if self.again:
            self.connection.execute(statements.again(), _columns("again", _AGAIN, self.again))
        if self.broken:
            self.connection.execute(statements.broken(self.broken))
        if self.healed:
            self.connection.execute(statements.healed(), statements.keyed(self.healed))
        if self.recorded:
            rows = statements.parameters({"recorded": self.recorded}, {"recorded": statements.RECORDED})
            self.connection.execute(statements.recorded(), rows)

    def _complete(self) -> None:
        """Each row once, with what it has come to in the end; what was made here is made as it is in the end."""
        created = {row[:2] for row in self.writes["created"]}
        finished = {row[:2] for row in self.writes["finished"]}
        changed = {row[:2] for row in self.writes["changed"]} - finished - created
        self.writes["changed"] = [(*key, *self._node(key)) for key in sorted(changed)]
        self.writes["created"] = [(*row[:3], *self._node(row[:2])[:2], *row[5:]) for row in self.writes["created"]]
        graphs = ((each, self.works[each].graph) for each in sorted(self.touched))
        self.writes["graphs"] = [(each, of.tasks, of.unfinished, of.broken) for each, of in graphs]

    def _node(self, key: Any) -> tuple[str, int, int | None]:
        node = self.works[key[0]].graph.nodes[key[1]]
        return node.state.value, node.pending, node.value_of


_AGAIN = ("process_id", "number", "wait", "error")


def _columns(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    by_column = zip(*rows, strict=True)
    return {f"p_{name}_{column}": list(values) for column, values in zip(columns, by_column, strict=True)}


def _named(answer: Answer) -> list[int]:
    """The tasks that a decider has named and not asked for itself."""
    outcome = answer.outcome
    return sorted(graph.named(outcome.planned, outcome.value_of)) if isinstance(outcome, Value) else []


def _touched(answer: Answer) -> Touched:
    outcome = answer.outcome
    decided = Decided(outcome.planned, outcome.value_of) if isinstance(outcome, Value) else Decided()
    return graph.touched(decided)


def _failure_of(answer: Answer) -> Failed:
    assert isinstance(answer.outcome, Failed)  # noqa: S101 - a value is taken or refused
    return answer.outcome


def _state_of(work: _Work) -> ProcessState:
    if work.graph.finished:
        return ProcessState.FINISHED
    if work.graph.broken or work.broken_by_time:
        return ProcessState.BROKEN
    return ProcessState.ACTIVE


def ring(actors: Iterable[str]) -> None:
    """After the commit: for whoever works for these actors."""
    for name in actors:
        of = declared.get(name)
        if of is not None and of.outside:
            continue
        doorbell.ring(queue_of(name), of.task if of is not None else doorbell.GENERIC)
