"""What the domains have, told by each when it is imported; the roof turns it into Celery tasks and passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from app.claims import Claimable, Lane


class Server(Protocol):
    """Works off the queues of a domain, in one process."""

    def serve(self, queue: str, take: int, shards: tuple[int, int] | None) -> tuple[int, bool]:
        """For the time of one ticket, within these shards where the queue has any; how much it did, and whether there
        may be more."""
        ...


@dataclass(frozen=True)
class Function:
    """A function of the user that is to be a Celery task under this name; its tickets come by this queue.
    Without `function`, it is a Celery task already."""

    name: str
    function: Callable[..., Any] | None
    queue: str
    time_limit: float | None = None
    #: What starts it, as a sentence for whoever tries to send or enqueue it.
    started_by: str = ""
    #: Its domain says what became of an error, which may be a result: Celery need not tell of it as of an accident.
    quiet: bool = False


@dataclass(frozen=True)
class Hook:
    """A function of the user that is to be a Celery task under this name, whose jobs a domain puts in. What raises is
    tried again."""

    name: str
    function: Callable[..., Any]
    queue: str
    time_limit: float
    max_attempts: int


@dataclass(frozen=True)
class Pass:
    """A plain function that does one bounded pass, and how often it is worth calling."""

    name: str
    run_once: Callable[..., Any]
    #: A function where a setting says it: these are read, and refused, by commands, and not where modules are imported.
    interval: timedelta | Callable[[], timedelta]
    #: Which services make it: beat, the scheduler, or both.
    beat: bool = True
    scheduler: bool = True
    #: Made at once when the database gives a hint.
    hinted: bool = False
    #: Made by each scheduler for its share, not by the leader of a duty.
    shared: bool = False
    #: Made by the scheduler in a thread of its own, as it may wait for somebody else than the database.
    apart: bool = False

    @property
    def every(self) -> timedelta:
        return self.interval() if callable(self.interval) else self.interval

    def run(self, seconds: float) -> Any:
        """Again at once after a full batch (`more`), for at most so long; the last report."""
        end = time.monotonic() + seconds
        while True:
            report = self.run_once()
            if not getattr(report, "more", False) or time.monotonic() > end:
                return report


@dataclass(frozen=True)
class Waiting:
    """A table whose rows are rung for."""

    model: type[Claimable]
    lanes: tuple[Lane, ...] = (Lane.MAIN,)


@dataclass
class Registry:
    waiting: list[Waiting] = field(default_factory=list)
    passes: dict[str, Pass] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    #: Queues that begin with this word are worked off by what this makes; all others hold jobs.
    servers: dict[str, Callable[..., Server]] = field(default_factory=dict)
    #: Called when a service starts: tells the database what the modules declare, and says what that changed.
    declarations: list[Callable[[], list[str]]] = field(default_factory=list)
    hooks: dict[str, Hook] = field(default_factory=dict)
    _listeners: list[Callable[[Function], None]] = field(default_factory=list)
    _hook_listeners: list[Callable[[Hook], None]] = field(default_factory=list)

    def add_waiting(self, waiting: Waiting) -> None:
        self.waiting.append(waiting)

    def add_pass(
        self, name: str, run_once: Callable[..., Any], every: timedelta | Callable[[], timedelta], **where: bool
    ) -> None:
        self.passes[name] = Pass(name, run_once, every, **where)

    def add_server(self, word: str, make: Callable[..., Server]) -> None:
        self.servers[word] = make

    def add_function(self, function: Function) -> None:
        self.functions[function.name] = function
        for listener in self._listeners:
            listener(function)

    def add_hook(self, hook: Hook) -> None:
        self.hooks[hook.name] = hook
        for listener in self._hook_listeners:
            listener(hook)

    def on_hook(self, listener: Callable[[Hook], None]) -> None:
        """For every hook there is, and every one to come."""
        self._hook_listeners.append(listener)
        for hook in self.hooks.values():
            listener(hook)

    def on_function(self, listener: Callable[[Function], None]) -> None:
        """For every function there is, and every one to come."""
        self._listeners.append(listener)
        for function in self.functions.values():
            listener(function)

    def server_of(self, queue: str) -> str:
        """The word of the server of this queue; empty for jobs."""
        word, dot, _ = queue.partition(".")
        return word if dot and word in self.servers else ""


registry = Registry()
