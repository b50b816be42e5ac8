"""Ways to break a cluster: its programs, servers and connections, as power failures, networks and people do.

Each is a context: whatever is broken in it is well again behind it.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import redis

from app.embedded import OwnServers
from tests.chaos import skew
from tests.chaos.plan import Blow
from tests.kit.process import Process
from tests.kit.proxy import Proxy
from tests.kit.waiting import pause

Way = Callable[[Blow], AbstractContextManager[None]]
#: What is broken next should meet work: so much of it, if it comes in that time.
WORK, PATIENCE_SECONDS = 8, 4.0
#: Seconds by which a clock may be off.
CLOCKS = (-3600, -30, 0, 30, 3600)


@dataclass
class Havoc:
    servers: OwnServers
    #: Before Postgres and the broker; everybody else goes through them.
    database: Proxy
    broker: Proxy
    #: Started by `skew`.
    workers: Sequence[Process]
    scheduler: Process
    #: Ways that only the caller knows.
    more: Mapping[str, Way]
    #: How much work has been done, as told by Postgres itself.
    done: Callable[[], int]
    #: How often each was done.
    told: Counter[str]
    _lasting: list[tuple[float, int, ExitStack]] = field(default_factory=list)

    def wreak(self, plan: Sequence[Blow]) -> None:
        before = 0.0
        try:
            for number, blow in enumerate(plan):
                self._wait(time.monotonic() + blow.at - before)
                self._let_work()
                before = blow.at
                stack = ExitStack()
                way: Way = self.more.get(blow.way) or getattr(self, blow.way)
                stack.enter_context(way(blow))
                self.told[blow.way] += 1
                heapq.heappush(self._lasting, (time.monotonic() + blow.seconds, number, stack))
            while self._lasting:
                self._mend()
        finally:
            for _, _, stack in self._lasting:
                stack.close()

    def _wait(self, until: float) -> None:
        while self._lasting and self._lasting[0][0] <= until:
            self._mend()
        pause(max(0.0, until - time.monotonic()))

    def _let_work(self) -> None:
        enough, end = self.done() + WORK, time.monotonic() + PATIENCE_SECONDS
        while self.done() < enough and time.monotonic() < end:
            self._wait(time.monotonic() + 0.1)
        self.told["blows that met work"] += self.done() >= enough

    def _mend(self) -> None:
        due, _, stack = self._lasting[0]
        pause(max(0.0, due - time.monotonic()))
        heapq.heappop(self._lasting)
        stack.close()

    @contextmanager
    def kill_a_worker(self, blow: Blow) -> Iterator[None]:
        worker = blow.among(self.workers)
        worker.kill()
        worker.start()
        yield

    @contextmanager
    def kill_a_child(self, blow: Blow) -> Iterator[None]:
        if children := blow.among(self.workers).children():
            Process.kill_one(blow.among(children))
        yield

    @contextmanager
    def freeze_a_worker(self, blow: Blow) -> Iterator[None]:
        """Past its lease: what it holds is somebody else's when it goes on."""
        with _frozen(blow.among(self.workers)):
            yield

    @contextmanager
    def kill_the_scheduler(self, _: Blow) -> Iterator[None]:
        self.scheduler.kill()
        self.scheduler.start()
        yield

    @contextmanager
    def freeze_the_scheduler(self, _: Blow) -> Iterator[None]:
        with _frozen(self.scheduler):
            yield

    @contextmanager
    def set_a_clock(self, blow: Blow) -> Iterator[None]:
        """Of one program, until it is set again: which takes a new start."""
        program = blow.among([*self.workers, self.scheduler])
        program.kill()
        skew.set_clock(program.command, CLOCKS[int(blow.dice * 1000) % len(CLOCKS)])
        program.start()
        yield

    @contextmanager
    def kill_the_broker(self, _: Blow) -> Iterator[None]:
        self.servers.broker.kill()
        self.servers.broker.start()
        yield

    @contextmanager
    def flush_the_broker(self, _: Blow) -> Iterator[None]:
        """Under its clients, who stay connected."""
        with redis.Redis.from_url(self.servers.broker_url, socket_timeout=5) as broker, suppress(redis.ConnectionError):
            broker.flushall()  # which may be away just now
        yield

    @contextmanager
    def wipe_the_broker(self, _: Blow) -> Iterator[None]:
        self.servers.broker.wipe()
        yield
        self.servers.broker.start()

    @contextmanager
    def cut_the_broker(self, _: Blow) -> Iterator[None]:
        self.broker.cut()
        yield

    @contextmanager
    def silence_the_broker(self, _: Blow) -> Iterator[None]:
        with _silent(self.broker):
            yield

    @contextmanager
    def lose_the_broker(self, _: Blow) -> Iterator[None]:
        """Its clients have to find out by themselves."""
        self.broker.half_open()
        yield

    @contextmanager
    def crash_postgres(self, _: Blow) -> Iterator[None]:
        self.servers.postgres.kill()
        self.servers.postgres.start()
        yield

    @contextmanager
    def cut_the_database(self, _: Blow) -> Iterator[None]:
        self.database.cut()
        yield

    @contextmanager
    def silence_the_database(self, _: Blow) -> Iterator[None]:
        with _silent(self.database):
            yield

    @contextmanager
    def lose_the_database(self, _: Blow) -> Iterator[None]:
        """Behind a proxy, its clients cannot find out what the kernel would tell them in the end."""
        self.database.half_open()
        yield
        self.database.cut_half_open()

    @contextmanager
    def slow_network(self, blow: Blow) -> Iterator[None]:
        self.database.latency, self.broker.latency = blow.between(0.001, 0.02), blow.between(0.001, 0.2)
        yield
        self.database.latency = self.broker.latency = 0.0

    @contextmanager
    def lossy_network(self, blow: Blow) -> Iterator[None]:
        self.database.loss = self.broker.loss = blow.between(0.001, 0.01)
        yield
        self.database.loss = self.broker.loss = 0.0


@contextmanager
def _frozen(program: Process) -> Iterator[None]:
    program.stop()
    yield
    program.cont()


@contextmanager
def _silent(proxy: Proxy) -> Iterator[None]:
    proxy.silence()
    yield
    proxy.speak()
