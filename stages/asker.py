"""Asking the stages of a kind about entities that were loaded: for a limited time, failing open, and counted (S4)."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from traceback import format_exception_only
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from app.alarm import OutOfTime, Stopped, alarm
from app.db import autocommit, remaining_time
from app.errors import DatabaseError
from app.jobs.endings import storable
from stages.asking import ask
from stages.definition import Definition
from stages.ending import ERROR_MOST
from stages.kind import Kind
from stages.model import Stage
from stages.state import Stored

log = logging.getLogger(__name__)

#: Asking must be quick (S4); what takes longer than this is a yes.
ASKING = timedelta(seconds=5)
#: Optimistic mode: visits by several stages are spread over this time, so that they do not all meet (S8).
SPREAD = timedelta(seconds=1)

Wanted = list[tuple[str, datetime]]


class Limit:
    """Calls a function of the user for at most so long. A query that hangs is ended by the database."""

    def __init__(self, span: timedelta) -> None:
        self.seconds = span.total_seconds()
        self._end = 0.0

    def __call__(self, function: Callable[[Any, Any], Any], entity: Any, state: Any) -> Any:
        self._end = time.monotonic() + self.seconds
        token = remaining_time.set(self._remaining)
        try:
            return alarm.call(self._end, self._over, function, entity, state)
        except OutOfTime:
            raise TimeoutError(f"over its time limit of {self.seconds:g} s") from None
        except Exception:
            if self._remaining() <= 0:
                raise TimeoutError(f"over its time limit of {self.seconds:g} s") from None
            raise
        except (Stopped, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            # No Exception, such as asyncio's CancelledError, but a failure of this call, not of the worker.
            raise RuntimeError(f"it raised {''.join(format_exception_only(error)).strip()}") from error
        finally:
            remaining_time.reset(token)

    def _over(self) -> OutOfTime:
        return OutOfTime(self.seconds)

    def _remaining(self) -> float:
        return self._end - time.monotonic()


class Asker:
    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._ask = Limit(ASKING)
        #: That this release does not know, and what they watch: they are taken to want what touches it (S4).
        self.strangers: Mapping[str, frozenset[str] | None] = {}
        #: How often which stage could not say whether it wants an entity, and why last.
        self._unanswered: dict[str, tuple[int, str]] = {}

    def wanted(
        self,
        definitions: Iterable[Definition],
        entity: Any,
        states: Mapping[str, Stored],
        fields: frozenset[str] | None,
        now: datetime,
    ) -> Wanted:
        """Which stages want the entity after a change of these fields, and when (S8)."""
        found = []
        for wish in ask(definitions, entity, states, fields, now, self._ask):
            found.append((wish.stage, wish.at))
            if wish.failure is not None:
                self.unanswered(wish.stage, wish.failure)
        for name, watches in self.strangers.items():
            if fields is None or watches is None or not watches.isdisjoint(fields):
                found.append((name, now))
        return self.spread(found)

    def spread(self, wanted: Wanted) -> Wanted:
        if self._kind.mode == "exclusive" or len(wanted) < 2:
            return wanted
        return [(stage, at + random.random() * SPREAD) for stage, at in wanted]  # noqa: S311

    def unanswered(self, stage: str, why: str) -> None:
        self._unanswered[stage] = (self._unanswered.get(stage, (0, ""))[0] + 1, why)

    def count_failures(self) -> None:
        """S4: failed open, and counted."""
        for stage, (times, why) in self._unanswered.items():
            log.warning("should_process of %s in stage %s failed %d times: %s", self._kind.name, stage, times, why)
            values = {"ask_failures": Stage.ask_failures + times, "ask_failure": storable(why)[:ERROR_MOST]}
            counted = sa.update(Stage).where(Stage.kind == self._kind.name, Stage.name == stage).values(values)
            with suppress(SQLAlchemyError, DatabaseError), autocommit() as connection:
                connection.execute(counted)
        self._unanswered.clear()
