"""Processes as the kernel shows them, and how a server's process is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import IO, NamedTuple

POLL = 0.01
LAUNCH = Path(__file__).with_name("launch.py")


class Account(NamedTuple):
    uid: int
    gid: int


def myself() -> Account:
    return Account(os.geteuid(), os.getegid())


def command_of(pid: int) -> bytes:
    """Its arguments, each ended by a zero byte; empty for a process that is dead, reaped or not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def pids_where(matches: Callable[[bytes], bool]) -> list[int]:
    """By command line, the one thing of another user's process that everybody may read (in a container even root may
    not read more)."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and matches(command_of(int(name)))]


def send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def polls(limit: float) -> Iterator[float]:
    """Yields the seconds that are left, a short pause between any two, until there are none."""
    end = time.monotonic() + limit
    while (left := end - time.monotonic()) > 0:
        yield left
        time.sleep(POLL)


class _Launcher:
    """The kernel's "signal me when my parent dies" means the parent *thread*: one that lives as long as the process."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
        self._jobs = SimpleQueue()
        threading.Thread(target=self._serve, name="tidemill-embedded", daemon=True).start()

    def _serve(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except Exception as error:  # noqa: BLE001 - it belongs to the thread that asked
                future.set_exception(error)

    def run(self, job: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        future: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((job, future))
        return future.result()


@cache
def _launcher(_pid: int) -> _Launcher:
    """One per process: a fork has no threads of its parent."""
    return _Launcher()


def spawn(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    stdin: int,
    log: IO[bytes],
    account: Account,
    death_signal: signal.Signals,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts `command` under `account`; it gets `death_signal` if this process dies, and no Ctrl-C of its terminal.
    Without `env` it gets no environment of ours."""
    keep = "bare" if env is None else "given"
    arguments = [str(part) for part in (os.getpid(), int(death_signal), *account, keep, *command)]
    return _launcher(os.getpid()).run(
        lambda: subprocess.Popen(  # noqa: S603 - our own program and arguments
            [sys.executable, "-I", "-S", str(LAUNCH), *arguments],
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    )
