"""`Run`: what a reactive task is given (T25)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, NoReturn

from sqlalchemy.orm import Session

from app.alarm import Ended
from app.errors import BadRequest, MovesBack, TidemillError
from triggers.ctl import Parameter, checked_name, checked_value

Window = tuple[datetime | None, datetime]


class Run:
    """One run of a task: the values that were checked when a worker took it, and those that its last run had seen.

    In a test of a task, make one: `Run({("dds.orders", "loaded_to"): (since, until)})`; `outputs` is what it advanced.
    """

    def __init__(
        self,
        windows: Mapping[Parameter, tuple[datetime | None, datetime | None]],
        *,
        id: int = 0,  # noqa: A002
        task: str = "",
        attempt: int = 1,
        queue: str = "",
        manual: bool = False,
        produces: Sequence[Parameter] | None = None,
    ) -> None:
        self.id, self.task, self.attempt, self.queue, self.manual = id, task, attempt, queue, manual
        #: For Celery's side of the call: whether and when it is tried again is decided here.
        self.max_attempts = 0
        self.restart_limits: Any = None
        self.windows = dict(windows)
        self.outputs: dict[Parameter, datetime] = {}
        self.cancelled: str | None = None
        self.ended = False
        self._produces = produces
        self._ending: Callable[[], AbstractContextManager[Session]] | None = None
        self._still_ours: Callable[[], None] | None = None

    def attach(self, ending: Callable[[], AbstractContextManager[Session]], still_ours: Callable[[], None]) -> None:
        """For the worker: how it ends within a transaction of the task, and how to ask whether it is still ours."""
        self._ending, self._still_ours = ending, still_ours

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this run."""
        return f"run-{self.id}"

    def window(self, entity: str, parameter: str) -> Window:
        """What is new of a parameter: from what the last regular run saw (None: there was none) to the value that was
        checked. What lies between the two is this run's to process."""
        since, until = self._pair(entity, parameter)
        if until is None:
            raise BadRequest(f"{entity}.{parameter} had no value when {self.task} was started")
        return since, until

    def value(self, entity: str, parameter: str) -> datetime | None:
        """The value that was checked; None where there was none."""
        return self._pair(entity, parameter)[1]

    def _pair(self, entity: str, parameter: str) -> tuple[datetime | None, datetime | None]:
        try:
            return self.windows[(entity, parameter)]
        except KeyError:
            known = ", ".join(".".join(each) for each in self.windows) or "none"
            raise BadRequest(f"{self.task} does not rest on {entity}.{parameter}; its trigger names: {known}") from None

    def advance(self, entity: str, **values: datetime) -> None:
        """Moves a parameter forward when this run ends well, in the same transaction."""
        if self.ended:
            raise TidemillError(f"{self.task} has ended with its run.transaction(): advance {entity} before that")
        for parameter, value in values.items():
            name = checked_name(entity, parameter)
            if self._produces is not None and name not in self._produces:
                raise BadRequest(
                    f"{self.task} does not say that it produces {entity}.{parameter}: add it to produces=[…]"
                )
            found = checked_value(name, value)
            if name in self.outputs and found < self.outputs[name]:
                raise MovesBack(
                    f"{self.task} has advanced {entity}.{parameter} to {self.outputs[name].isoformat()} and cannot "
                    f"advance it back to {found.isoformat()}"
                )
            self.outputs[name] = found

    def cancel(self, reason: str) -> NoReturn:
        """Ends this run without remembering what it saw; the task waits until its input moves, or for an operator."""
        self.cancelled = str(reason)[:1000]
        raise Ended(self.cancelled)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Commits what is done in the block together with the end of the run, and only if the claim still holds.

        Once a run: after it the run has ended, whatever the task does then.
        """
        ending = self._ending
        if ending is None:
            raise TidemillError("this run has none: it was made by hand, or has ended")
        self._ending = None
        try:
            with ending() as session:
                yield session
        except BaseException:
            # Nothing was saved, and the run goes on.
            self._ending = None if self.ended else ending
            raise

    def heartbeat(self) -> None:
        """Starts the time limit of this call anew; raises `ClaimLost` if the run is somebody else's now, or was
        cancelled."""
        if self._still_ours is not None:
            self._still_ours()
        if self.restart_limits is not None:
            self.restart_limits()
