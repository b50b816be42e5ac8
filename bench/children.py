"""The processes that a run starts, and the promise that none of them outlives it.

Each one leads a session of its own: Ctrl-C reaches the benchmark alone, and ending one ends its own children too.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.errors import BenchError

GRACE = 10.0


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask first; then whatever is left of the group goes, in particular pool children of a worker that hangs."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


class Children:
    """Starts processes whose output goes to files of the run's scratch folder."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._count = 0

    def _log(self, name: str) -> Path:
        self._count += 1
        return self._scratch / f"{self._count:03d}-{name}.log"

    @contextmanager
    def running(self, name: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Iterator[Service]:
        """A process that runs until the block is left."""
        log = self._log(name)
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        try:
            yield Service(name, process, log)
        finally:
            _end(process)

    def run(self, name: str, argv: Sequence[str], env: Mapping[str, str], cwd: Path, *, timeout: float) -> str:
        """A process that ends by itself; its standard output is the answer."""
        log = self._log(name)
        with log.open("wb") as errors:
            process = subprocess.Popen(
                argv, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                start_new_session=True,
            )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{name} did not end within {timeout:g} s:\n{tail(log)}") from None
        finally:
            _end(process)
        if process.returncode != 0:
            raise BenchError(f"{name} ended with code {process.returncode}:\n{tail(log)}")
        return output.decode()


class Service:
    """A running process, as a measure sees it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._log = log

    def check(self) -> None:
        """Waiting for a process that is dead would only end with a timeout that names no reason."""
        if self._process.poll() is not None:
            raise BenchError(f"{self.name} died with code {self._process.returncode}:\n{tail(self._log)}")

    def failed(self, complaint: str) -> BenchError:
        return BenchError(f"{self.name} {complaint}:\n{tail(self._log)}")
