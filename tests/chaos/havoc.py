"""Ways to break a cluster: its workers, scheduler, broker and Postgres, as a power failure would.

What is broken next, and how long nothing is, are said by the dice of a seed. Whatever is broken is started again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import redis

from app.embedded import OwnServers
from tests.kit.process import Process
from tests.kit.waiting import pause

LEASE_SECONDS = 2


@dataclass
class Havoc:
    dice: random.Random
    servers: OwnServers
    workers: list[Process]
    scheduler: Process
    #: How often each was done.
    told: Counter[str]

    def __post_init__(self) -> None:
        self.ways: list[Callable[[], None]] = [
            self.kill_a_worker,
            self.kill_a_child,
            self.freeze_a_worker,
            self.kill_the_scheduler,
            self.kill_the_broker,
            self.flush_the_broker,
            self.wipe_the_broker,
            self.crash_postgres,
        ]

    def do(self, way: Callable[[], None]) -> None:
        self.told[way.__name__.strip("_")] += 1
        way()

    def rest(self) -> None:
        pause(self.dice.uniform(0.3, 2.0))

    def _some_worker(self) -> Process:
        return self.dice.choice(self.workers)

    def kill_a_worker(self) -> None:
        worker = self._some_worker()
        worker.kill()
        worker.start()

    def kill_a_child(self) -> None:
        worker = self._some_worker()
        if children := worker.children():
            Process.kill_one(self.dice.choice(children))

    def freeze_a_worker(self) -> None:
        worker = self._some_worker()
        worker.stop()
        pause(LEASE_SECONDS * 1.5)
        worker.cont()

    def kill_the_scheduler(self) -> None:
        self.scheduler.kill()
        self.scheduler.start()

    def kill_the_broker(self) -> None:
        self.servers.broker.kill()
        self.servers.broker.start()

    def flush_the_broker(self) -> None:
        """Under its clients, who stay connected."""
        with redis.Redis.from_url(self.servers.broker_url, socket_timeout=5) as broker:
            broker.flushall()

    def wipe_the_broker(self) -> None:
        self.servers.broker.wipe()
        self.servers.broker.start()

    def crash_postgres(self) -> None:
        self.servers.postgres.kill()
        self.servers.postgres.start()
