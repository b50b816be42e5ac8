"""Sessions of real code that stop before each statement, so that one at a time can be let through.

Each session is a function in a thread of its own. What stops it is SQLAlchemy: before a statement, a COMMIT and a
ROLLBACK. What none of the others can notice does not stop it (`_LOCAL`, and `tests.kit.footprints`).

- Whether a session waits for a lock is for Postgres to say (`pg_blocking_pids`), and only of a lock that another of the
  sessions holds. As these stand still, it stays so until one of them goes on.
- Where several wait for what one lets go of, the server does not say who has it next: their backends are stopped, and
  go on one after the other.
- No time runs out by itself. A `lock_timeout` is taken out of the statement that sets it; that the patience of a
  session ends while it waits, once in an order, and which of several ends a deadlock, are turns like any other.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import psycopg2.errors
import psycopg2.extensions
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from tests.kit.commuting import Effect
from tests.kit.footprints import Footprints

#: How often Postgres is asked about a session that does not come back; and when that is a failure of the test.
POLL_SECONDS, STUCK_SECONDS = 0.002, 120.0
_LOCAL = re.compile(r"\s*(SAVEPOINT|RELEASE SAVEPOINT|PREPARE|DEALLOCATE|SELECT set_config\()", re.IGNORECASE)
_PATIENCE = re.compile(r"('lock_timeout', ')\d+ms(')")
_EXECUTED = re.compile(r"EXECUTE \w+")
_IDLE = psycopg2.extensions.TRANSACTION_STATUS_IDLE
_COMMITTED = (None, psycopg2.extensions.ISOLATION_LEVEL_READ_COMMITTED)
_FAILED = psycopg2.extensions.TRANSACTION_STATUS_INERROR
_GAVE_UP = psycopg2.errors.LockNotAvailable, "55P03", "canceling statement due to lock timeout"
_VICTIM = psycopg2.errors.DeadlockDetected, "40P01", "deadlock detected"
_BLOCKING = "SELECT pid, pg_blocking_pids(pid) FROM unnest(%s::int[]) AS pid"


class Abandoned(BaseException):
    """The order is not played to its end."""


class State(StrEnum):
    STOPPED = "stopped"
    RUNNING = "running"
    BLOCKED = "blocked"
    ENDED = "ended"


class What(StrEnum):
    STEPS = "steps"
    GIVES_UP = "gives up waiting"
    IS_VICTIM = "is the victim of a deadlock"


class Turn(NamedTuple):
    who: str
    what: What
    #: The statement, in a few words.
    at: str

    def __str__(self) -> str:
        return f"{self.who} {self.what}: {self.at}"


class Actor:
    def __init__(self, name: str, act: Callable[[], Any], reports: SimpleQueue[tuple[Actor, State]]) -> None:
        self.name, self.act, self.reports = name, act, reports
        self.state, self.at, self.pid = State.RUNNING, "", 0
        #: It waits for a lock no longer than so many milliseconds; and after its present statement.
        self.impatient = False
        #: The present transaction has done what others can notice; and has a savepoint.
        self.noticed = self.saved = False
        #: What is told instead of the cancellation that is on its way.
        self.told: tuple[type[psycopg2.Error], str, str] | None = None
        #: It gave up waiting; from now on it waits as long as it takes.
        self.gave_up = False
        #: It has just come to wait, or somebody for it: at any other moment it makes no difference that it gives up.
        self.in_question = False
        #: Of its present turn; and what its present transaction has written.
        self.effect, self.written = Effect(), set[str]()
        self.result: Any = None
        self.abandoned = False
        self._go = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        _local.actor = self
        try:
            self.result = self.act()
        except BaseException as error:  # noqa: BLE001 - told to whoever plays the order
            self.result = error
        self.reports.put((self, State.ENDED))

    def stop(self, at: str) -> None:
        if self.abandoned:
            raise Abandoned
        self.at = at
        self.reports.put((self, State.STOPPED))
        self._go.acquire()
        if self.abandoned:
            raise Abandoned

    def does(self, named: set[str], written: set[str], driver: Any) -> None:
        """Comes now: a statement that names and perhaps writes these."""
        # Whoever reads the clock and sees all that is published at the same moment, cannot tell who else read it when.
        self.effect.begun |= driver.info.transaction_status == _IDLE and not driver.autocommit
        self.effect.unknown |= driver.isolation_level not in _COMMITTED
        self.effect.named |= named
        self.effect.written |= written
        self.written |= written
        if driver.autocommit:
            self.publishes()

    def publishes(self) -> None:
        self.effect.published |= self.written
        self.written = set()

    def go_on(self) -> None:
        self.state = State.RUNNING
        self._go.release()


_local = threading.local()


def _actor() -> Actor | None:
    return getattr(_local, "actor", None)


class Hooks:
    """On the engine of the product."""

    def __init__(self, footprints: Footprints) -> None:
        self.footprints = footprints
        #: Whose statements are those that come from no session.
        self.learning: str | None = None

    @contextmanager
    def on(self, engine: Engine) -> Iterator[None]:
        heard: list[tuple[str, Any, dict[str, bool]]] = [
            ("before_cursor_execute", self._before, {"retval": True}),
            ("commit", self._commit, {}),
            ("rollback", self._rollback, {}),
            ("handle_error", self._failed, {"retval": True}),
        ]
        for name, listener, options in heard:
            event.listen(engine, name, listener, **options)
        try:
            yield
        finally:
            for name, listener, _ in heard:
                event.remove(engine, name, listener)

    def _before(
        self, connection: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: Any
    ) -> tuple[str, Any]:
        text = self.footprints.text(statement)
        impatient = "lock_timeout" in text or (
            isinstance(parameters, Mapping) and "lock_timeout" in parameters.values()
        )
        statement, parameters = _for_ever(statement, parameters)
        actor, local = _actor(), _LOCAL.match(statement)
        if actor is None and self.learning is not None and not local:
            self.footprints.learn(self.learning, text)
        if actor is not None:
            driver: Any = connection.connection.driver_connection
            actor.pid = driver.info.backend_pid
            own = impatient and not statement.startswith("PREPARE")
            actor.impatient = own or (actor.impatient and not driver.autocommit)
            actor.saved = actor.saved or statement.startswith("SAVEPOINT")
            if not local and self.footprints.noticed(actor.name, text):
                actor.noticed = not driver.autocommit
                actor.stop(_in_words(statement))
            named, written = self.footprints.touched("" if local else text)
            actor.effect.unknown |= not (local or named)
            actor.does(named, written, driver)
        return statement, parameters

    def _commit(self, connection: Connection) -> None:
        self._end(connection, "COMMIT")

    def _rollback(self, connection: Connection) -> None:
        self._end(connection, "ROLLBACK")

    def _end(self, connection: Connection, word: str) -> None:
        actor = _actor()
        driver: Any = connection.connection.driver_connection
        if actor is None or driver.info.transaction_status == _IDLE or (actor.abandoned and word == "ROLLBACK"):
            return
        # What has failed has let go of its locks already, but for those from before a savepoint.
        if actor.noticed and (actor.saved or driver.info.transaction_status != _FAILED):
            actor.stop(word)
        actor.publishes()
        actor.noticed = actor.saved = actor.impatient = False

    def _failed(self, context: Any) -> BaseException | None:
        actor = _actor()
        if actor is not None:
            # It may have let go of its locks.
            actor.effect.unknown = True
        if actor is None or actor.told is None:
            return None
        (kind, code, said), actor.told = actor.told, None
        found: Any = kind(said)
        found.__setstate__({"pgcode": code, "pgerror": said})
        return sa.exc.OperationalError(context.statement, context.parameters, found)


def _for_ever(statement: str, parameters: Any) -> tuple[str, Any]:
    statement = _PATIENCE.sub(r"\g<1>0\g<2>", statement)
    if isinstance(parameters, Mapping) and "lock_timeout" in parameters.values():
        parameters = {name: "0" if str(value).endswith("ms") else value for name, value in parameters.items()}
    return statement, parameters


def _in_words(statement: str) -> str:
    prepared = _EXECUTED.search(statement)
    return prepared[0] if prepared else " ".join(statement.split())[:100]


class Play:
    """One order, from the first statement of any to the last end of all."""

    def __init__(self, acts: Mapping[str, Callable[[], Any]], watch: Any) -> None:
        """`watch`: a connection of psycopg2 in autocommit, which may look at the others and cancel them."""
        self._watch = watch
        self._reports: SimpleQueue[tuple[Actor, State]] = SimpleQueue()
        self.actors = [Actor(name, act, self._reports) for name, act in acts.items()]
        self.blocked, self.taken = False, 0
        self._blockers: dict[Actor, set[Actor]] = {}
        #: Their backends do nothing at all.
        self._held: list[Actor] = []

    def begin(self) -> None:
        """One after the other, up to their first statements."""
        for actor in self.actors:
            actor.thread.start()
            self._settle([actor])

    def turns(self) -> list[Turn]:
        """What may come next."""
        ready = [Turn(each.name, What.STEPS, each.at) for each in self.actors if each.state is State.STOPPED]
        waiting = [each for each in self.actors if each.state is State.BLOCKED]
        tired = [each for each in waiting if each.impatient and (not ready or (each.in_question and not each.gave_up))]
        victims = [each for each in waiting if not each.impatient and self._in_circle(each)]
        return [
            *ready,
            *(Turn(each.name, What.GIVES_UP, each.at) for each in tired),
            *(Turn(each.name, What.IS_VICTIM, each.at) for each in victims),
        ]

    def take(self, turn: Turn, effect: Effect) -> None:
        """Says what came of it."""
        self.taken += 1
        actor = next(each for each in self.actors if each.name == turn.who)
        actor.effect = effect
        waits = self._who_waits()
        before = {each: by for each, by in self._blockers.items() if each is not actor}
        woken = [each for each, by in waits.items() if actor in by]
        for each in woken if len(woken) > 1 else []:
            self._hold(each)
        if turn.what is What.STEPS:
            actor.go_on()
        else:
            actor.told = _GAVE_UP if turn.what is What.GIVES_UP else _VICTIM
            actor.gave_up = turn.what is What.GIVES_UP
            actor.state = State.RUNNING
            self._ask("SELECT pg_cancel_backend(%s)", actor.pid)
        self._settle([each for each in self.actors if each not in self._held])
        for last in (False, True):
            for each in [*self._held]:
                self._wake(each, last=last)
        for each in self.actors:
            each.in_question = False
        for each in self.actors:
            if each.state is State.BLOCKED and (new := self._blockers[each] - before.get(each, set())):
                for one in (each, *new):
                    one.in_question = True
        effect.unknown |= turn.what is not What.STEPS or self._who_waits() != waits

    def _hold(self, actor: Actor) -> None:
        os.kill(actor.pid, signal.SIGSTOP)
        self._held.append(actor)

    def _let_go(self, actor: Actor) -> None:
        self._held.remove(actor)
        os.kill(actor.pid, signal.SIGCONT)

    def _wake(self, actor: Actor, *, last: bool) -> None:
        """Who waits for another one that does nothing comes after him."""
        self._let_go(actor)
        self._settle([each for each in self.actors if each not in self._held])
        if not last and self._blockers.get(actor, set()) & {*self._held}:
            self._hold(actor)

    def _who_waits(self) -> dict[Actor, set[Actor]]:
        return {each: {*self._blockers[each]} for each in self.actors if each.state is State.BLOCKED}

    def results(self) -> dict[str, Any]:
        left = [f"{each.name} is {each.state}: {each.at}" for each in self.actors if each.state is not State.ENDED]
        assert not left, left
        return {each.name: each.result for each in self.actors}

    def abandon(self) -> None:
        for each in [*self._held]:
            self._let_go(each)
        for each in self.actors:
            each.abandoned = True
            if each.state is State.BLOCKED:
                self._ask("SELECT pg_cancel_backend(%s)", each.pid)
            each._go.release()
        for each in self.actors:
            if each.thread.ident is not None:
                each.thread.join(STUCK_SECONDS)

    def _settle(self, actors: Sequence[Actor]) -> None:
        """Until each of them stands still: it is stopped, has ended, or waits for one that stands still."""
        begun = time.monotonic()
        while True:
            if any(each.state is State.RUNNING for each in actors):
                try:
                    actor, state = self._reports.get(timeout=POLL_SECONDS)
                except Empty:
                    pass
                else:
                    actor.state = state
                    self._blockers.pop(actor, None)
                    continue
            if waiting := [each for each in actors if each.state in (State.RUNNING, State.BLOCKED)]:
                self._look(waiting)
            if not any(each.state is State.RUNNING for each in actors):
                return
            if time.monotonic() - begun > STUCK_SECONDS:
                raise AssertionError([f"{each.name} is {each.state}: {each.at}" for each in self.actors])

    def _look(self, waiting: Sequence[Actor]) -> None:
        # Of one that has ended, another may have the connection now.
        of = {each.pid: each for each in self.actors if each.state is not State.ENDED}
        asked = [each.pid for each in waiting if each.pid and each.told is None]
        found = {of[pid]: {of[each] for each in by if each in of} for pid, by in self._ask(_BLOCKING, asked)}
        blocked = {each for each, by in found.items() if by}
        while moving := {each for each in blocked if any(self._moves(by, blocked) for by in found[each])}:
            blocked -= moving
        for each in waiting:
            # Who waits for one that moves may go on, or not: that is asked again.
            if each in blocked or each not in found or not found[each]:
                each.state = State.BLOCKED if each in blocked else State.RUNNING
            self._blockers[each] = found.get(each, set())
        self.blocked = self.blocked or bool(blocked)

    def _moves(self, actor: Actor, blocked: set[Actor]) -> bool:
        return actor.state is not State.STOPPED and actor not in blocked and actor not in self._held

    def _in_circle(self, actor: Actor) -> bool:
        """Whether it waits, by way of others, for itself."""
        reached, left = set[Actor](), [actor]
        while left:
            for by in self._blockers[left.pop()]:
                if by.state is State.BLOCKED and by not in reached:
                    reached.add(by)
                    left.append(by)
        return actor in reached

    def _ask(self, query: str, parameter: Any) -> list[Any]:
        with self._watch.cursor() as cursor:
            cursor.execute(query, [parameter])
            found: list[Any] = cursor.fetchall()
            return found
