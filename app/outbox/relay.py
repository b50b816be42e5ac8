"""The relay: publishes what was saved, once or more, in the order of ids (S14).

Promises:
- An event is published after its commit, and never within a transaction: read, then the broker's confirmation, then the
  row that says so. A relay that dies between the two publishes again; so do two relays at once. None skips.
- The broker is asked for its mark before and after each batch, and every second while there is nothing to publish. A
  broker without it has been wiped: its queues are made again, and what was published lately is published again before
  anything new. A batch during which the mark went does not count.
- What nobody would get is not read: it is passed over as a whole, where the broker says who listens (Redis does).
- While the broker is away, nothing is lost and nobody waits: the row says why, and the next try comes later.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from app import faults
from app.checks import limited
from app.outbox import cursor, reading
from app.outbox.broker import Broker, Refused, Wiped
from app.outbox.cursor import State

log = logging.getLogger(__name__)

BATCH = 500
#: How often the broker is asked for its mark while there is nothing to publish.
CHECK_SECONDS = 1.0
AWAY_SECONDS, AWAY_MOST_SECONDS = 0.5, 5.0


@dataclass(frozen=True)
class Report:
    """`away`: the broker did not take what there is. `lost`: another relay has moved the row meanwhile."""

    published: int = 0
    replayed: int = 0
    away: bool = False
    lost: bool = False
    wiped: bool = False
    more: bool = False


class Relay:
    """One connection to the broker, kept between passes."""

    def __init__(self, url: str | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._url, self._monotonic = url, monotonic
        self._broker: Broker | None = None
        self._checked = self._quiet_until = float("-inf")
        self._pause = AWAY_SECONDS

    def run_once(self, limit: int = BATCH) -> Report:
        """One batch of at most `limit` events."""
        state = cursor.poll()
        if state is None or not state.usable:
            if cursor.begin(state):
                log.warning(
                    "how far events were published is told in transactions of another database, as after a restore: "
                    "all that may not have been published is published, some of it once more"
                )
            return Report(more=True)
        now = self._monotonic()
        idle = not state.pending
        # Where there never was anything to publish, there may be no broker that takes it.
        if idle and (now - self._checked < CHECK_SECONDS or not (state.published or state.subscriptions)):
            return Report()
        if now < self._quiet_until:
            return Report(away=True)
        self._broker = self._broker or Broker(self._url)
        try:
            report = self._work(self._broker, state, limit)
        except Refused as error:
            return self._give_up(str(error))
        except self._broker.errors as error:
            # Without its text, in which some brokers repeat the URL.
            return self._give_up(f"the broker does not take events: {type(error).__name__}")
        self._pause, self._checked = AWAY_SECONDS, now
        if idle and state.failed:
            cursor.well()
        return report

    def _give_up(self, why: str) -> Report:
        self.close()
        log.warning("%s; the next try is in %.1f s", why, self._pause)
        self._quiet_until = self._monotonic() + self._pause
        self._pause = min(self._pause * 2, AWAY_MOST_SECONDS)
        cursor.failed(why)
        return Report(away=True)

    def close(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()

    def _work(self, broker: Broker, state: State, limit: int) -> Report:
        if not broker.marked():
            return self._restore(broker, state)
        if not broker.is_known():
            return Report(more=True)
        broker.agree(state.subscriptions)
        # What was refused is tried by itself, so that nothing behind it is published again and again.
        limit = 1 if state.failed else limit
        if state.replay_from is not None:
            return self._replay(broker, state, limit)
        if state.pending and not state.subscriptions and broker.is_unheard():
            return self._pass_over(broker, state)
        if state.target is not None:
            return self._targeted(broker, state, limit)
        return self._newest(broker, state, limit) if state.new else Report()

    def _restore(self, broker: Broker, state: State) -> Report:
        if not cursor.wiped(state):
            return Report(lost=True, more=True)
        faults.reach("outbox.wiped")
        if state.published:
            log.warning(
                "the broker has lost its queues: they are made again, and what was published lately is repeated"
            )
        broker.forget()
        broker.agree(state.subscriptions)
        faults.reach("outbox.declared")
        # From here on the row knows what is to be repeated: should the broker be wiped again meanwhile, the mark is
        # missing again.
        broker.mark()
        return Report(wiped=True, more=True)

    def _replay(self, broker: Broker, state: State, limit: int) -> Report:
        batch = reading.replayed(state, limit)
        whole = batch.upto >= (state.replay_to or 0)
        values = {"replay_from": None, "replay_to": None} if whole else {"replay_from": batch.upto + 1}
        report = self._publish(broker, state, batch, values, lambda upto: {"replay_from": upto + 1})
        return Report(replayed=report.published, lost=report.lost, more=True)

    def _targeted(self, broker: Broker, state: State, limit: int) -> Report:
        batch = reading.targeted(state, limit)
        whole = batch.upto >= (state.last_id or 0)
        values = {"done_id": batch.upto} | (cursor.through(state) if whole else {})
        return self._publish(broker, state, batch, values, lambda upto: {"done_id": upto})

    def _pass_over(self, broker: Broker, state: State) -> Report:
        """Whoever subscribes from now on wants what is saved from then on; of a broker that was wiped just now, nobody
        knows who had."""
        if not broker.marked() or not broker.is_known():
            return Report(more=True)
        faults.reach("outbox.before_move")
        lost = not cursor.passed_over(state)
        faults.reach("outbox.moved")
        return Report(lost=lost, more=lost)

    def _newest(self, broker: Broker, state: State, limit: int) -> Report:
        ids = reading.new(state, limit)
        if not ids:
            return Report()
        batch = None if len(ids) > limit else reading.these(ids)
        if batch is None or len(batch.messages) < len(ids):
            return Report(lost=not cursor.aim(state), more=True)
        values: dict[str, Any] = {"snapshot": cursor.at(state.now), "done_id": max(ids[-1], state.done_id)}
        report = self._publish(broker, state, batch, values, None)
        # All there was. While much is saved, there is always something new by now: publishing it at once, a few events
        # at a time, would cost more than the saves.
        return replace(report, more=False) if report.published else report

    def _publish(
        self,
        broker: Broker,
        state: State,
        batch: reading.Batch,
        values: dict[str, Any],
        part: Callable[[int], dict[str, Any]] | None,
    ) -> Report:
        """`values` say that the batch is published, `part` that it is up to an id."""
        faults.reach("outbox.read")
        ids = [message.id for message in batch.messages]
        try:
            broker.publish(batch.messages)
        except Wiped:
            log.info("the broker was emptied meanwhile: nothing of this batch was published")
            return Report(more=True)
        except Refused as error:
            if part is None:
                cursor.aim(state)
            elif error.index and broker.marked():
                cursor.published(state, ids[: error.index], **part(ids[error.index - 1]))
            raise
        faults.reach("outbox.published")
        if ids and not broker.marked():
            return Report(more=True)
        faults.reach("outbox.before_move")
        if not cursor.published(state, ids, **values):
            log.info("another relay has published meanwhile: it goes on")
            return Report(lost=True, more=True)
        faults.reach("outbox.moved")
        return Report(published=len(ids), more=True)


_own = Relay()


def _forked() -> None:
    global _own
    _own = Relay()


os.register_at_fork(after_in_child=_forked)


@limited
def run_once(limit: int = BATCH) -> Report:
    """One batch, over the connection of this process."""
    return _own.run_once(limit)
