"""What Postgres and the broker have in common: one process with a port, a log and a directory, and how it fails.

The methods are meant for one thread at a time. `pause`, `resume` and `kill` are for tests of what happens then.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO, ClassVar

from app.embedded import process
from app.embedded.home import HOST
from app.errors import EmbeddedError

START_LIMIT = 60.0
STOP_LIMIT = 15.0
# Below the range from which the kernel takes the ports of outgoing connections: such a connection could take the port
# of a server that is down for a moment.
PORTS = range(15_000, 32_000)


class PortTaken(EmbeddedError):
    pass


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as both servers do
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """One that nobody listens on now; whoever binds it first has it, see `PortTaken`."""
    for port in random.sample(PORTS, 1000):
        if is_free(port):
            return port
    raise EmbeddedError(f"no free port between {PORTS.start} and {PORTS.stop} on {HOST}")


class Server(ABC):
    title: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]
    death_signal: ClassVar[signal.Signals]
    # Reasons to end, as the log has them, that go away by themselves.
    passing: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, port: int, data: Path, log: Path) -> None:
        self.name = name
        self.port = port
        self.data = data
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._refusal = ""

    @abstractmethod
    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]: ...

    @abstractmethod
    def _greet(self) -> None:
        """Returns if the server takes a connection; else raises OSError with the reason."""

    @abstractmethod
    def _is_mine(self, command: bytes) -> bool:
        """Whether a command line is that of a process of this server, from this run or an earlier one."""

    @property
    def pid(self) -> int:
        if self._process is None or self._process.poll() is not None:
            raise EmbeddedError(f"{self.title} is not running: it was stopped, killed, or never started")
        return self._process.pid

    def settle(self) -> None:
        """Before the first start: nothing is left of a killed owner's server, and the port is free."""
        self._end_all()
        if not self.port or not is_free(self.port):
            self.port = free_port()

    def start(self, limit: float = START_LIMIT) -> None:
        """On the same port and data; returns when it accepts connections. Does nothing if it already does."""
        launched = False
        for left in process.polls(limit):
            if not self._alive():
                # What is left of a killed run; Postgres refuses to start beside its own orphans.
                self._end_all()
                with self.log.open("ab") as log:
                    self._log_start = log.tell()
                    self._process = self._launch(log)
                launched = True
            if self._answers(left):
                return
            # One that was there before may have been killed a moment ago, and says nothing about the next.
            if launched and not any(phrase in self._said() for phrase in self.passing):
                raise self._failure(f"ended with status {self._process.poll() if self._process else None}")
        raise self._failure(f"does not accept connections after {limit:g} s")

    def stop(self, limit: float = STOP_LIMIT) -> None:
        """In good order; by force if that takes longer than `limit`."""
        if self._process is not None and self._alive():
            self._process.send_signal(self.stop_signal)
            self.resume()  # a paused process takes no other signal
            try:
                self._process.wait(limit)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._end_all()  # if it was killed from outside, its children are still on their way out

    def kill(self) -> None:
        """As a power failure would: no process of the server sees it coming, none is left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._end_all()

    def pause(self) -> None:
        """Connections stay open and nothing answers, as on a machine that hangs."""
        process.send([self.pid], signal.SIGSTOP)  # first the one that could start others
        process.send(process.pids_where(self._is_mine), signal.SIGSTOP)

    def resume(self) -> None:
        process.send(process.pids_where(self._is_mine), signal.SIGCONT)

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _answers(self, limit: float) -> bool:
        """False if it ended instead."""
        for _ in process.polls(limit):
            if not self._alive():
                return False
            try:
                self._greet()
            except OSError as error:
                self._refusal = str(error).strip()
            else:
                return True
        raise self._failure(f"does not accept connections after {limit:g} s ({self._refusal})")

    def _end_all(self) -> None:
        for _ in process.polls(STOP_LIMIT):
            if not (left := process.pids_where(self._is_mine)):
                return
            process.send(left, signal.SIGKILL)
        raise EmbeddedError(f"processes {left} of an earlier {self.title} in {self.data} do not end: end them by hand")

    def _said(self) -> str:
        """What the log says since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _failure(self, what: str) -> EmbeddedError:
        tail = "\n".join(self._said().splitlines()[-20:])
        kind = PortTaken if "Address already in use" in tail else EmbeddedError
        return kind(f"{self.title} on port {self.port} {what}. The end of {self.log}:\n{tail}")
