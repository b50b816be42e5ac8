"""Asking a stage that lives in another service (S4): changes enqueue the entities here, and those that the service
wants go on into the queue of the stage itself.

It works on no entity, so it needs no guard. What cannot be asked is wanted, and counted; it is done with here, whether
or not the service is there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from traceback import format_exception_only
from typing import Any

from sqlalchemy.engine import Row

from app import faults
from app.claims import Claim
from app.db import autocommit
from app.errors import BadOutcome, RemoteFailed
from app.proto.tidemill.v1 import stage_pb2
from stages.asker import ASKING
from stages.asking import time_of
from stages.batch import BLOCKED, HELD, Server
from stages.definition import Definition
from stages.ending import Done, Offer, Place, complete
from stages.kind import Kind
from stages.model import AT_ONCE
from stages.remote import wire
from stages.remote.calls import AWAY, SLOW, RemoteBatch, failure_of, told_twice, unanswered
from stages.remote.service import Remote
from stages.remote.wire import Sent

log = logging.getLogger(__name__)

Wishes = dict[str, bool | datetime | timedelta]
#: For so long a service that could not be asked is not asked again by this process: what it cannot answer goes on.
QUIET = timedelta(seconds=10)
#: Until when, and why, by stage.
_refusals: dict[str, tuple[float, RemoteFailed]] = {}


class AskBatch(RemoteBatch):
    def __init__(
        self, server: Server, kind: Kind, place: Place, claim: Claim, definition: Definition, remote: Remote
    ) -> None:
        super().__init__(server, kind, place, claim)
        self.remote, self.stage, self.max_attempts = remote, definition.asks_for or "", definition.max_attempts
        self._wishes: Wishes = {}

    def _visit(self) -> None:
        # Begun together, so that the keeper does not hand them to somebody else meanwhile.
        rows = list(iter(self.next, None))
        try:
            self._ask([row.entity_id for row in rows if row.entity_id in self.loaded])
            faults.reach("visits.processed")
            self._save({row.entity_id: self._offers(row) for row in rows})
        finally:
            self.asker.count_failures()

    def _ask(self, ids: Sequence[str]) -> None:
        items = []
        for each, given in self.sent(ids).items():
            if isinstance(given, Sent):
                state = wire.state_of(self.seen.of(each).get(self.stage))
                items.append(stage_pb2.ShouldProcessBatchRequest.Item(entity=given.entity, state=state))
            else:
                self._open(each, given)
        for chunk in self.chunks(items):
            asked = {each.entity.id for each in chunk}
            try:
                refusal = _refusals.get(self.remote.whole_name)
                if refusal is not None and time.monotonic() < refusal[0]:
                    raise refusal[1]
                self._ask_chunk(chunk, asked)
                _refusals.pop(self.remote.whole_name, None)
            except RemoteFailed as failed:
                for each in asked - self._wishes.keys():
                    self._open(each, failed)
                if failed.status in (*AWAY, *SLOW) and (refusal is None or refusal[1] is not failed):
                    log.warning("nobody is asked for %s: %s", QUIET, failed)
                    _refusals[self.remote.whole_name] = time.monotonic() + QUIET.total_seconds(), failed
            self.refuse_lost()

    def _ask_chunk(self, items: Sequence[stage_pb2.ShouldProcessBatchRequest.Item], asked: set[str]) -> None:
        request = stage_pb2.ShouldProcessBatchRequest(stage=self.stage, items=items, now=wire.moment_of(self.now()))
        if (response := self.batched("ShouldProcessBatch", request, ASKING)) is None:
            self._ask_singly(items)
            return
        answers = response.answers
        twice = told_twice(answers)
        for each in answers:
            if each.id in asked and each.id not in twice:
                try:
                    self._wishes[each.id] = self._wish(each)
                except (BadOutcome, RemoteFailed) as error:
                    self._open(each.id, error)
        for each in asked - self._wishes.keys():
            if each in twice:
                self._open(each, BadOutcome(f"{each!r} was answered twice"))
            else:
                self._open(each, unanswered(self.remote, each, answers, asked))

    def _ask_singly(self, items: Sequence[stage_pb2.ShouldProcessBatchRequest.Item]) -> None:
        for each in items:
            state = each.state if each.HasField("state") else None
            request = stage_pb2.ShouldProcessRequest(
                stage=self.stage, entity=each.entity, state=state, now=wire.moment_of(self.now())
            )
            try:
                self._wishes[each.entity.id] = self._at(self.call("ShouldProcess", request, ASKING))
            except (BadOutcome, RemoteFailed) as error:
                if isinstance(error, RemoteFailed) and error.status in (*AWAY, *SLOW):
                    raise
                self._open(each.entity.id, error)
            self.refuse_lost()

    def _at(self, answer: stage_pb2.ShouldProcessResponse) -> bool | datetime:
        found = wire.wish(answer)
        return found if isinstance(found, bool) else time_of(found, self.now())

    def _wish(self, told: stage_pb2.ShouldProcessBatchResponse.Answer) -> bool | datetime:
        match told.WhichOneof("result"):
            case "answer":
                return self._at(told.answer)
            case "failure":
                raise failure_of(self.remote, told.failure)
            case _:
                raise BadOutcome("its answer is empty: it must be an answer or a failure")

    def _open(self, entity_id: str, error: Exception) -> None:
        """S4: it fails open, and is counted."""
        self._wishes[entity_id] = True
        self.asker.unanswered(self.stage, "".join(format_exception_only(error)).strip())

    def _offers(self, row: Row[Any]) -> list[Offer]:
        if row.entity_id not in self.loaded:
            return []
        now = self.now()
        wish = self._wishes.get(row.entity_id, True)
        if wish is False:
            return []
        at = now if wish is True else time_of(wish, now)
        if at > now + AT_ONCE:
            # S11: what comes after a pause begins a chain of its own.
            return [Offer(row.entity_id, self.stage, at)]
        return [Offer(row.entity_id, self.stage, at, row.hops, row.chain)]

    def _save(self, offers: dict[str, list[Offer]]) -> None:
        def write(executor: Any, ids: Sequence[str], wait: bool) -> set[str]:  # noqa: FBT001
            done = [Done(each) for each in ids]
            return complete(executor, self.place, self.pass_key, done, [o for i in ids for o in offers[i]], wait=wait)

        if not offers:
            return
        left = self.save(list(offers), write, autocommit)
        self.hand_back(left, BLOCKED, HELD)
        now = self.now()
        for each in offers.keys() - set(left):
            self.offered.update(offer.stage for offer in offers[each] if offer.at <= now)
