"""All that runs in production, as processes of their own, and what they can do."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from psycopg2.extensions import cursor as Cursor  # noqa: N812 - a class with the name of a function

from bench import product
from bench.children import Service
from bench.context import REPO, Context
from bench.soak import sampling
from bench.soak.judge import Sample
from bench.soak.report import line
from bench.waiting import wait_until

MODULES = "bench.tasks,bench.things,bench.flows,bench.soak.work"
#: How many of each path at once, for what it can do.
BURSTS = {"jobs": 1_000, "visits": 1_500, "processes": 100, "changes": 60}
QUIET = {"C_FORCE_ROOT": "1", "PYTHONWARNINGS": "ignore", "TIDEMILL_LOG_LEVEL": "WARNING", "PYTHONUNBUFFERED": "1"}
_CELERY = (sys.executable, "-m", "celery", "--quiet", "--app", "app")
_PLAIN = ("--without-gossip", "--without-mingle", "--loglevel", "WARNING")
_TIDEMILL = str(Path(sys.executable).parent / "tidemill")
_PENDING = """
select (select count(*) from tidemill.job) + (select count(*) from tidemill.stage_visit)
    + (select count(*) from tidemill.process where ended_at is null)
    + (select count(*) from tidemill.run where state in ('waiting', 'running'))
"""


@dataclass(frozen=True)
class Soaked:
    samples: list[Sample]
    #: Units a second of each path: what it can do alone, and what it was given.
    capacity: dict[str, float]
    rates: dict[str, float]


class World:
    """`keep`: how long logs, events and processes that ended are kept."""

    def __init__(self, context: Context, scratch: Path, keep: str) -> None:
        self.context, self._scratch = context, scratch
        own = {"TIDEMILL_LOG_RETENTION": keep, "TIDEMILL_EVENT_RETENTION": keep, "SOAK_KEEP": keep}
        self.env = {**product.env(context, MODULES), **own, **QUIET}

    def soak(self, minutes: float, every: float, part: float) -> Soaked:
        self._tidemill("migrate")
        self._run("prepare", _driver("prepare"))
        token = self._tidemill("token", "create", "soak", "--role", "viewer").split()[-1]
        with self._services() as (services, url), product.cursor_of(self.context) as cursor:
            _rest(cursor, services)
            capacity = self._capacity(cursor, services)
            rates = {path: rate * part / len(capacity) for path, rate in capacity.items()}
            with self._running("producer", _driver("drive", rates=rates)) as producer:
                samples: list[Sample] = []
                begun = time.monotonic()
                while (at := time.monotonic() - begun) < minutes * 60:
                    found = sampling.sample(self.context, cursor, {**services, "producer": producer})
                    samples.append(Sample(at, found))
                    sampling.scrape(url, token)
                    if len(samples) % 12 == 1:
                        self.context.say(line(samples[-1]))
                    time.sleep(max(0.0, every - (time.monotonic() - begun - at)))
            _rest(cursor, services)
            self._tidemill("recover", "check")
            return Soaked(samples, capacity, rates)

    @contextmanager
    def _services(self) -> Iterator[tuple[dict[str, Service], str]]:
        """All that runs, and the console's address."""
        port = _free_port()
        commands = {
            "worker": [*_CELERY, "worker", "-n", "soak@%h", "-X", "control", "-c", "2", *_PLAIN],
            "control": [*_CELERY, "worker", "-n", "control@%h", "-Q", "control", "-c", "1", *_PLAIN],
            "scheduler-1": [*_CELERY, "scheduler"],
            "scheduler-2": [*_CELERY, "scheduler"],
            "beat": [*_CELERY, "beat", "--loglevel", "WARNING", "--schedule", str(self._scratch / "beat")],
            "console": [_TIDEMILL, "console", "--port", str(port)],
        }
        with ExitStack() as stack:
            found = {name: stack.enter_context(self._running(name, argv)) for name, argv in commands.items()}
            wait_until(lambda: _answers(port), found["console"], "a console that answers", timeout=120, every=0.2)
            yield found, f"http://127.0.0.1:{port}"

    def _capacity(self, cursor: Cursor, services: dict[str, Service]) -> dict[str, float]:
        """Of the second burst: the first one warms."""
        found = {}
        for path, count in BURSTS.items():
            for size in (max(1, count // 5), count):
                begun = float(self._run(f"burst-{path}", _driver("burst", path=path, count=size)))
                _rest(cursor, services)
                found[path] = size / (time.time() - begun)
            self.context.say(f"{path}: {found[path]:,.0f}/s")
        return found

    def _running(self, name: str, argv: list[str]) -> AbstractContextManager[Service]:
        return self.context.children.running(name, argv, self.env, REPO)

    def _run(self, name: str, argv: list[str]) -> str:
        return self.context.children.run(name, argv, self.env, REPO, timeout=300)

    def _tidemill(self, *words: str) -> str:
        return self._run(words[0], [_TIDEMILL, *words])


def _driver(what: str, **arguments: object) -> list[str]:
    return [sys.executable, "-m", "bench.soak.drive", what, json.dumps(arguments)]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _rest(cursor: Cursor, services: dict[str, Service]) -> None:
    wait_until(lambda: not product.number(cursor, _PENDING), services["worker"], "rest", timeout=600, every=0.05)
