"""pytest-celery without Docker: its containers are processes of this machine.

pytest-celery asks of a container what the Docker library's object has; `LocalContainer` has that much of it over a
process of the kit. The broker is the embedded one, the application is ours, there is no result backend. Whoever names
one of pytest-celery's own container fixtures gets Docker, as ever.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from pytest_celery import (  # type: ignore[import-untyped]
    CeleryBrokerCluster,
    CeleryTestBroker,
    CeleryTestWorker,
    CeleryWorkerCluster,
    CeleryWorkerContainer,
    RedisContainer,
)

from app.celery import app as celery_app
from app.embedded import OwnServers
from tests.kit.process import ROOT, Process, Processes

WORKERS = 2


def _attributes() -> dict[str, Any]:
    return {
        "NetworkSettings": {"Networks": {}, "Ports": {}},
        "HostConfig": {"PortBindings": {}},
        "Config": {"Hostname": "localhost", "Env": []},
    }


class LocalContainer:
    """A process, as a container of the Docker library."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.id, self.attrs = uuid.uuid4().hex, _attributes()
        self.starts = 1

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def status(self) -> str:
        return "running" if self.process.status is None else "exited"

    def reload(self) -> None:
        """What is asked is always fresh."""

    def logs(self) -> bytes:
        return self.process.log.encode()

    def kill(self, signal: str | int = "SIGKILL") -> None:
        number = _number(signal)
        if number == 9:
            self.process.kill()  # as a container's: the whole tree
        else:
            self.process.terminate() if number == 15 else self.process.stop()
            self.process.wait(60)

    def restart(self, timeout: float = 60) -> None:
        if self.status == "running":
            self.process.terminate()
            try:
                self.process.wait(timeout)
            except AssertionError:
                self.process.kill()
        self.process.start()
        self.starts += 1

    def exec_run(self, command: str | list[str]) -> tuple[int, bytes]:
        words = shlex.split(command) if isinstance(command, str) else command
        ran = subprocess.run(words, capture_output=True, env=self.process.env, cwd=ROOT, check=False, timeout=60)
        return ran.returncode, ran.stdout + ran.stderr


def _number(name: str | int) -> int:
    return int(signal.Signals[name]) if isinstance(name, str) else name


class LocalWorker(CeleryWorkerContainer):  # type: ignore[misc]
    """Ready when its log says so as often as it was started: the log of a container goes on over a restart."""

    def ready(self) -> bool:
        container: LocalContainer = self._container
        if container.status != "running":
            return False
        return bool(container.process.wait_for(lambda log: log.count(self.ready_prompt) >= container.starts))


class EmbeddedBroker(RedisContainer):  # type: ignore[misc]
    """The embedded broker, which runs already; its life is not that of one test."""

    def __init__(self, servers: OwnServers) -> None:
        self._container, self.servers = _Running(), servers

    def ready(self) -> bool:
        self.servers.broker.start()
        return True

    @property
    def url(self) -> str:
        return self.servers.broker_url

    host_url = url

    @property
    def port(self) -> int:
        return self.servers.broker.port

    @property
    def hostname(self) -> str:
        return "127.0.0.1"


class _Running:
    id, name, status = uuid.uuid4().hex, "embedded-broker", "running"
    attrs = _attributes()

    def reload(self) -> None: ...


@pytest.fixture
def celery_broker_cluster(servers: OwnServers, broker_url: str) -> Iterator[CeleryBrokerCluster]:
    cluster = CeleryBrokerCluster(CeleryTestBroker(EmbeddedBroker(servers)))
    assert cluster.ready()
    yield cluster
    cluster.teardown()


@pytest.fixture
def celery_backend_cluster() -> None:
    """Results are in the job log."""


@pytest.fixture
def celery_setup_app() -> Celery[Any]:
    return celery_app


@pytest.fixture
def celery_worker_cluster(
    env: dict[str, str], processes: Processes, celery_setup_app: Celery[Any]
) -> Iterator[CeleryWorkerCluster]:
    started = [processes.celery_worker(env, 1, name=f"local{i}", ready=False) for i in range(WORKERS)]
    nodes = [CeleryTestWorker(LocalWorker(LocalContainer(process)), app=celery_setup_app) for process in started]
    cluster = CeleryWorkerCluster(*nodes)
    assert cluster.ready()
    yield cluster
    cluster.teardown()
