"""What the batches that call a service have in common: what they send, and what a failed call means for the queue.

A service that cannot be reached, refuses us, is overloaded or too slow makes the queue rest (`app.limits`). The claim
after the rest is a trial of one row; the first call that is answered wakes the queue.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from app import limits
from app.alarm import ClaimIsLost
from app.claims.model import built_once
from app.db import autocommit, transaction
from app.errors import BadOutcome, DatabaseError, RemoteFailed
from app.proto.tidemill.v1 import stage_pb2
from stages.asker import ASKING, Limit
from stages.batch import Batch
from stages.remote import wire
from stages.remote.client import DEADLINE, UNAUTHENTICATED, UNAVAILABLE, UNIMPLEMENTED, client_of
from stages.remote.service import Remote
from stages.remote.wire import Sent
from stages.store import Store

log = logging.getLogger(__name__)

#: The service is away, or is not what it should be: no entity is to blame.
AWAY = (UNAVAILABLE, UNAUTHENTICATED, "PERMISSION_DENIED", UNIMPLEMENTED)
#: It, or one of the entities, is too much.
SLOW = (DEADLINE, "RESOURCE_EXHAUSTED")
_WORDS = {
    UNAVAILABLE: "does not answer",
    DEADLINE: "does not answer in time",
    "RESOURCE_EXHAUSTED": "has too much to do",
    UNAUTHENTICATED: "does not know us",
    "PERMISSION_DENIED": "refuses us",
    UNIMPLEMENTED: "does not have this call",
}
#: What is said beside the entities, and around each.
_OVERHEAD = 16 * 1024
#: gRPC ends a call at its time; should it not, this process does.
SLACK = timedelta(seconds=2)

Item = TypeVar("Item", stage_pb2.ProcessBatchRequest.Item, stage_pb2.ShouldProcessBatchRequest.Item)


class RemoteBatch(Batch):
    """`stage`: whose state is sent, and who is called."""

    remote: Remote
    stage: str
    #: The calls of this batch were of no use to anybody: nothing more is begun.
    given_up = False
    _awake = False

    @property
    def queue(self) -> str:
        return str(self.claim.rows[0].queue)

    def call(self, method: str, request: Any, span: timedelta, *, wakes: bool = True) -> Any:
        """Within the alarm of the worker, so that it can be stopped. In a trial, to whoever has just answered."""
        seconds, there = span.total_seconds(), self.claim.trial and wakes

        def called(_entity: Any, _state: Any) -> Any:
            return client_of(self.remote).call(method, request, seconds, there=there)

        try:
            response = Limit(span + SLACK)(called, None, None)
        except TimeoutError as error:
            raise RemoteFailed(self.remote.whole_name, ", ".join(self.remote.addresses), DEADLINE, str(error)) from None
        except RemoteFailed as failed:
            if wakes and failed.status not in (*AWAY, *SLOW):
                # Whatever it said, it is there.
                self._wake()
            raise
        if wakes:
            self._wake()
        return response

    def batched(self, method: str, request: Any, span: timedelta) -> Any | None:
        """None: the service has no such call; then each entity is a call by itself."""
        if client_of(self.remote).lacks(method):
            return None
        try:
            return self.call(method, request, span)
        except RemoteFailed as failed:
            if failed.status == UNIMPLEMENTED:
                return None
            raise

    def is_there(self) -> bool:
        """Before a trial: asks with an empty batch, which costs nobody an attempt. Who has no batches is there too."""
        request = stage_pb2.ProcessBatchRequest(stage=self.stage, now=wire.moment_of(self.now()))
        try:
            self.call("ProcessBatch", request, min(self.remote.time_limit, ASKING), wakes=False)
        except RemoteFailed as failed:
            if failed.status in (*AWAY, *SLOW) and failed.status != UNIMPLEMENTED:
                self.rest(failed)
                return False
        return True

    def _wake(self) -> None:
        if not self.claim.trial or self._awake:
            return
        self._awake = True
        self._note(lambda session: limits.awake(session, self.queue))
        log.warning("%s answers again: its queue %s is worked off", self.remote.whole_name, self.queue)

    def rest(self, failed: RemoteFailed) -> timedelta:
        """Nobody claims from this queue for a moment; how long."""
        self.given_up = True
        why = f"{failed.stage} at {failed.address} {_WORDS[failed.status]} ({failed.status})"
        log.warning("queue %s rests: %s", self.queue, failed)
        pause = self._note(lambda session: limits.rest(session, self.queue, why))
        return limits.REST if pause is None else pause

    @staticmethod
    def _note(write: Callable[[Session], timedelta | None]) -> timedelta | None:
        try:
            with transaction() as session:
                return write(session)
        except (SQLAlchemyError, DatabaseError) as error:
            # The next call finds the same out.
            log.warning("could not write whether a queue rests: %s", error)
            return None

    # What is sent

    def exported(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Version and JSON of the entities as they are now."""
        if not ids:
            return {}
        store, names = self.kind.store, list(ids)
        with autocommit() as connection:
            found = connection.execute(_exporting(store), store.named(names)).all()
        return {names[place - 1]: (version, text) for place, version, text in found}

    def sent(self, ids: Sequence[str]) -> dict[str, Sent | Exception]:
        """What is to be sent of each of these; of those that are no more, nothing."""
        found: dict[str, Sent | Exception] = {}
        for each, (version, document) in self.exported(ids).items():
            try:
                found[each] = given = wire.sent(self.remote, self.kind.name, each, version, document)
                if (size := given.entity.ByteSize()) > self.remote.max_message - _OVERHEAD:
                    raise BadOutcome(
                        f"{self.kind.name} {each!r} takes {size} bytes, more than a message of "
                        f"{self.remote.whole_name} may have ({self.remote.max_message}): raise max_message, here and "
                        "there"
                    )
            except BadOutcome as error:
                found[each] = error
        return found

    def chunks(self, items: Sequence[Item]) -> Iterator[list[Item]]:
        """As many together as one message holds."""
        chunk: list[Item] = []
        room = self.remote.max_message - _OVERHEAD
        for each in items:
            size = each.ByteSize() + 8
            if chunk and size > room:
                yield chunk
                chunk, room = [], self.remote.max_message - _OVERHEAD
            chunk.append(each)
            room -= size
        if chunk:
            yield chunk

    def refuse_lost(self) -> None:
        """A call may have taken long."""
        if self.holding.lost:
            raise ClaimIsLost("another worker has it now")


@built_once
def _exporting(store: Store) -> sa.Select[Any]:
    rows = store.exporting().subquery()
    return sa.select(rows.c.place, rows.c.version, sa.cast(rows.c.entity, sa.Text))


def told_twice(answers: Iterable[Any]) -> set[str]:
    """Ids that were answered more than once."""
    counts = Counter(each.id for each in answers)
    return {each for each, times in counts.items() if times > 1}


def unanswered(remote: Remote, entity_id: str, answers: Sequence[Any], known: set[str]) -> BadOutcome:
    stranger = next((each.id for each in answers if each.id not in known), None)
    more = "" if stranger is None else f", but {stranger!r:.100} was, which was not asked about"
    return BadOutcome(f"{remote.whole_name}: {entity_id!r} was not answered{more}")


def failure_of(remote: Remote, failure: stage_pb2.Failure) -> RemoteFailed:
    addresses = ", ".join(remote.addresses)
    return RemoteFailed(remote.whole_name, addresses, "that it failed", f"{failure.message:.2000}")
