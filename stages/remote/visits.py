"""Visits by a stage that lives in another service: `ProcessBatch` for what was claimed together, `Process` for what is
visited by itself, or by a service without batches; then as any other visit.

What a failed call costs (S17): nothing, where the service is away; then its queue rests. Where one of several entities
may be to blame, they are handed out one by one. One that fails by itself is charged an attempt. A queue that rests is
tried with an empty batch first, so what is charged to its trial is the fault of the entity, or the service answers
nobody's but empty batches; then each trial is that of another entity, as the last one waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.engine import Row
from sqlalchemy.orm import Session

from app.claims import Claim
from app.db import autocommit
from app.errors import BadOutcome, BadRequest, RemoteFailed
from app.proto.tidemill.v1 import stage_pb2
from stages.batch import Server
from stages.definition import Definition
from stages.ending import Failed, Place
from stages.kind import Kind
from stages.outcomes import Outcome, Patch, Untouched, Updated
from stages.remote import wire
from stages.remote.calls import AWAY, SLOW, RemoteBatch, failure_of, told_twice, unanswered
from stages.remote.client import DEADLINE, UNAVAILABLE, client_of
from stages.remote.service import Remote
from stages.remote.wire import Answer, Sent
from stages.visits import CONFLICT, VisitBatch

AT_ONCE = timedelta(0)
_MOVING = BadOutcome(CONFLICT)
#: An entity is read twice, as an object and as JSON; somebody who writes it in between is waited for so often.
READS = 3


class RemoteVisitBatch(RemoteBatch, VisitBatch):
    def __init__(
        self, server: Server, kind: Kind, place: Place, claim: Claim, definition: Definition, remote: Remote
    ) -> None:
        super().__init__(server, kind, place, claim, definition)
        self.remote, self.stage = remote, definition.name
        self._sent: dict[str, Sent | Exception] = {}
        self._answers: dict[str, Answer | Exception] = {}
        #: Typed, by attribute.
        self._values: dict[str, dict[str, Any]] = {}
        #: Claimed together and begun together; None: each is begun when its turn comes.
        self._begun: deque[Row[Any]] | None = None
        self._current = ""
        #: What a visit took of the time that the service was asked.
        self._share = 0.0
        self._call = self._outcome

    def _visit(self) -> None:
        singly = bool(self.claim.pace) or client_of(self.remote).lacks("ProcessBatch")
        if self.claim.trial or not singly:
            # Begun, so that the keeper does not hand them to somebody else while the service is at work.
            begun = list(iter(super().next, None))
            if self.claim.trial and not self.is_there():
                self.hand_back([row.entity_id for row in begun], AT_ONCE)
                return
            self._begun = deque(begun if singly else self._ask_all(begun))
        super()._visit()

    def next(self) -> Row[Any] | None:
        if self._begun is None:
            return None if self.given_up else super().next()
        return self._begun.popleft() if self._begun else None

    def _load(self, ids: Sequence[str]) -> None:
        """Entities, and the JSON of the very same versions."""
        super()._load(ids)
        names = [each for each in ids if each in self.loaded]
        for _ in range(READS):
            self._sent |= self.sent(names)
            names = [each for each in names if self._has_moved(each)]
            if not names:
                return
            for each in names:
                del self.loaded[each]
            seen = self.seen
            super()._load(names)
            seen.states.update({each: self.seen.of(each) for each in names})
            self.seen = seen
            names = [each for each in names if each in self.loaded]
        self._sent |= dict.fromkeys(names, _MOVING)

    def _has_moved(self, entity_id: str) -> bool:
        sent = self._sent.get(entity_id)
        version = sent.version if isinstance(sent, Sent) else None
        return sent is None or (version is not None and version != self.loaded[entity_id].version)

    # Calls

    def _ask_all(self, rows: list[Row[Any]]) -> list[Row[Any]]:
        """Those that are to be visited: answered, or in no need of an answer."""
        moving = [each for each in self.loaded if self._sent.get(each) is _MOVING]
        self._later(moving)
        rows = [row for row in rows if row.entity_id not in set(moving)]
        wanted = [row for row in rows if row.entity_id in self.loaded and row.hops < self.kind.max_hops]
        ids = [row.entity_id for row in wanted]
        asked = time.monotonic()
        try:
            self._ask(ids)
        except RemoteFailed as failed:
            left = [row for row in wanted if row.entity_id not in self._answers]
            if len(ids) == 1:
                if (failure := self._lone(wanted[0], failed)) is not None:
                    self.fail([failure])
            else:
                self._together_failed([row.entity_id for row in left], failed)
            gone = {row.entity_id for row in left}
            return [row for row in rows if row.entity_id not in gone]
        finally:
            self._share = (time.monotonic() - asked) / max(1, len(ids))
        return rows

    def _together_failed(self, ids: Sequence[str], failed: RemoteFailed) -> None:
        away = failed.status in AWAY
        if away or failed.status in SLOW:
            self._leave(failed)
        self.hand_back(ids, AT_ONCE, str(failed), alone=not away)

    def _lone(self, row: Row[Any], failed: RemoteFailed) -> Failed | None:
        """None: it waits as before."""
        if failed.status in AWAY or failed.status in SLOW:
            elsewhere = self._leave(failed)
            # Who has just answered, and dies at this one, dies of it.
            dies = self.claim.trial and failed.status == UNAVAILABLE
            hangs = failed.status in SLOW and (row.alone or not elsewhere)
            if not dies and not hangs:
                self.hand_back([row.entity_id], AT_ONCE, str(failed), alone=failed.status in SLOW)
                return None
        return self.failed(row, failed)

    def _leave(self, failed: RemoteFailed) -> bool:
        """No more calls for now, and none of others where there is nobody else to call; whether there is."""
        if elsewhere := failed.status == DEADLINE and client_of(self.remote).elsewhere():
            self.given_up = True
        else:
            self.rest(failed)
        return elsewhere

    def _ask(self, ids: Sequence[str]) -> None:
        """What the service answers about each of these; `RemoteFailed` leaves some without."""
        items = []
        for each in ids:
            given = self._sent[each]
            if isinstance(given, Exception):
                self._answers[each] = given
                continue
            state = wire.state_of(self._stored(each))
            items.append(stage_pb2.ProcessBatchRequest.Item(entity=given.entity, state=state))
        try:
            for chunk in self.chunks(items):
                self._ask_chunk(chunk)
                self.refuse_lost()
        finally:
            self._convert([each for each in ids if each in self._answers])

    def _ask_chunk(self, items: Sequence[stage_pb2.ProcessBatchRequest.Item]) -> None:
        request = stage_pb2.ProcessBatchRequest(stage=self.stage, items=items, now=wire.moment_of(self.now()))
        if (response := self.batched("ProcessBatch", request, self.definition.time_limit)) is None:
            # Each is asked about when its visit comes.
            return
        answers = response.answers
        asked = {each.entity.id for each in items}
        twice = told_twice(answers)
        for each in answers:
            if each.id in asked:
                self._answers[each.id] = self._checked(each.id, each, each.id in twice)
        for each in sorted(asked - self._answers.keys()):
            self._answers[each] = unanswered(self.remote, each, answers, asked)

    def _ask_one(self, entity_id: str) -> None:
        """By itself: in its turn, once more after a conflict, or by a service without batches."""
        given = self._sent[entity_id]
        if isinstance(given, Exception):
            self._answers[entity_id] = given
            return
        request = stage_pb2.ProcessRequest(
            stage=self.stage,
            entity=given.entity,
            state=wire.state_of(self._stored(entity_id)),
            now=wire.moment_of(self.now()),
        )
        response = self.call("Process", request, self.definition.time_limit)
        self._answers[entity_id] = self._read(given, response)
        self.refuse_lost()
        self._convert([entity_id])

    # Answers

    def _checked(
        self,
        entity_id: str,
        told: stage_pb2.ProcessBatchResponse.Answer,
        twice: bool,  # noqa: FBT001
    ) -> Answer | Exception:
        given = self._sent[entity_id]
        match told.WhichOneof("result"):
            case _ if twice or isinstance(given, Exception):
                return self._nonsense(entity_id, "it was answered twice")
            case "answer":
                return self._read(given, told.answer)
            case "failure":
                return failure_of(self.remote, told.failure)
            case _:
                return self._nonsense(entity_id, "its answer is empty: it must be an answer or a failure")

    def _read(self, given: Sent, response: stage_pb2.ProcessResponse) -> Answer | Exception:
        try:
            return wire.answer(given, response)
        except BadOutcome as error:
            return self._nonsense(given.id, str(error))

    def _nonsense(self, entity_id: str, what: str) -> BadOutcome:
        return BadOutcome(f"{self.definition.whose(entity_id)}: {what}")

    def _convert(self, ids: Sequence[str]) -> None:
        """Values of columns become those of attributes, by the database: all together if it can read them all."""
        found: dict[str, tuple[Sent, dict[str, Any]]] = {}
        for each in ids:
            answer, given = self._answers[each], self._sent.get(each)
            if isinstance(answer, Answer) and answer.values and isinstance(given, Sent):
                found[each] = given, answer.values
        if not found:
            return
        try:
            self._read_back(found)
        except (BadRequest, RecursionError):
            for each, (given, values) in found.items():
                try:
                    self._read_back({each: (given, values)})
                except (BadRequest, RecursionError) as error:
                    self._answers[each] = self._nonsense(each, str(error))

    def _read_back(self, found: dict[str, tuple[Sent, dict[str, Any]]]) -> None:
        names = self.kind.store.attributes()
        for _, values in found.values():
            if unknown := sorted(values.keys() - names.keys()):
                raise BadRequest(
                    f"the column {unknown[0]!r:.100} cannot be changed: the key and the version of an entity stay as "
                    f"they are, and there are {', '.join(sorted(names))}"
                )
        documents = [wire.document_of(given, values) for given, values in found.values()]
        with autocommit() as connection, Session(connection) as session:
            entities = self.kind.store.entities(session, documents)
        for (each, (_, values)), entity in zip(found.items(), entities, strict=True):
            self._values[each] = {names[field]: getattr(entity, names[field], None) for field in values}

    # The visit

    def _make(self, row: Row[Any]) -> Failed | None:
        self._current = row.entity_id
        if self._sent.get(row.entity_id) is _MOVING:
            self._later([row.entity_id])
            return None
        if row.entity_id not in self._answers and row.hops < self.kind.max_hops:
            if self.given_up:
                self.hand_back([row.entity_id], AT_ONCE)
                return None
            asked = time.monotonic()
            try:
                self._ask_one(row.entity_id)
            except RemoteFailed as failed:
                return self._lone(row, failed)
            finally:
                self._share = time.monotonic() - asked
        return super()._make(row)

    def _timed(self, outcome: str, seconds: float) -> None:
        super()._timed(outcome, seconds + self._share)

    def _outcome(self, _function: Any, entity: Any, _state: Any) -> Outcome:
        """In the place of a call of `process`."""
        answer = self._answers.pop(self._current)
        if isinstance(answer, Exception):
            raise answer
        values = self._values.pop(self._current, {})
        more: dict[str, Any] = {"timer": answer.timer, "state": answer.state}
        if answer.values is None:
            return Untouched(**more)
        if answer.patch:
            names = self.kind.store.attributes()
            return Patch(values, [names.get(each, each) for each in answer.reads], **more)
        for name, value in values.items():
            setattr(entity, name, value)
        return Updated(entity, **more)
