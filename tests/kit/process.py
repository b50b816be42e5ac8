"""Programs as processes of their own, each with its log; none outlives its test."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[2]


class Process:
    """A program and its children, in a process group of their own."""

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name, self.command, self.env, self.path = name, list(command), dict(env), log
        self.start()

    def start(self) -> None:
        """Again, after it has ended; the log goes on."""
        with self.path.open("ab") as out:
            self._process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self.path.read_text(errors="replace")

    @property
    def status(self) -> int | None:
        """What it ended with; None while it runs."""
        return self._process.poll()

    def children(self) -> list[int]:
        """The processes it has started, also indirectly."""
        with suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(self.pid).children(recursive=True)]
        return []

    def _signal(self, number: signal.Signals) -> None:
        """To the whole tree: the group, and those that left it."""
        tree = self.children()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
        for pid in tree:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """As a power failure would: the whole tree, at once."""
        self._signal(signal.SIGKILL)
        self._process.wait(60)

    @staticmethod
    def kill_one(pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def cont(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Asks the program, not its children."""
        if self.status is None:
            self._process.terminate()

    def wait(self, timeout: float = 300.0) -> int:
        """Its exit status, when it has ended by itself."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} still runs after {timeout:g} s; its log:\n{self.log}") from None

    def wait_for(self, what: str | Callable[[str], object], timeout: float = 300.0) -> str:
        """Until its log matches, or a predicate of it holds; fails at once if the process ends instead."""
        found = what if callable(what) else lambda text: re.search(what, text)

        def seen() -> bool:
            ended = self.status is not None
            if found(self.log):
                return True
            if ended:
                raise AssertionError(f"{self.name} ended with {self.status} before {what!r}; its log:\n{self.log}")
            return False

        try:
            wait_until(seen, timeout)
        except AssertionError as error:
            if str(error).startswith(self.name):
                raise
            raise AssertionError(f"{self.name}: no {what!r} within {timeout:g} s; its log:\n{self.log}") from None
        return self.log

    def end(self) -> None:
        """At the end of a test: at once, whatever state it is in."""
        self._signal(signal.SIGKILL)
        self._process.wait(60)


class Processes:
    """Those that a test has started."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)
        self.started: list[Process] = []

    def start(self, command: Sequence[str], env: Mapping[str, str], name: str = "process") -> Process:
        log = self._directory / f"{next(self._numbers):02}-{name}.log"
        process = Process(name, command, env, log)
        self.started.append(process)
        return process

    def python(self, code: str, env: Mapping[str, str], name: str = "python") -> Process:
        return self.start([sys.executable, "-c", code], env, name)

    def celery(
        self, env: Mapping[str, str], *arguments: str, name: str, program: Sequence[str] = ("celery",)
    ) -> Process:
        return self.start([sys.executable, "-m", *program, "-A", "app", *arguments], env, name)

    def celery_worker(
        self,
        env: Mapping[str, str],
        concurrency: int = 2,
        queues: Sequence[str] | None = None,
        modules: str | None = None,
        name: str | None = None,
        options: Sequence[str] = (),
        *,
        ready: bool = True,
        program: Sequence[str] = ("celery",),
    ) -> Process:
        """`program`: a module that runs Celery, with what it is to be told before Celery's own arguments."""
        name = name or f"worker{next(self._numbers)}"
        taken = [] if queues is None else ["-Q", ",".join(queues)]
        plain = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        env = dict(env) if modules is None else {**env, "TIDEMILL_MODULES": modules}
        arguments = ["worker", "-c", str(concurrency), "-n", f"{name}@%h", *taken, *plain, *options]
        worker = self.celery(env, *arguments, name=name, program=program)
        if ready:
            worker.wait_for(rf"{name}@\S+ ready\.")
        return worker

    def scheduler(
        self, env: Mapping[str, str], *options: str, ready: bool = True, program: Sequence[str] = ("celery",)
    ) -> Process:
        process = self.celery(env, "scheduler", *options, name="scheduler", program=program)
        if ready:
            process.wait_for("scheduler runs")
        return process

    def beat(self, env: Mapping[str, str], *options: str, ready: bool = True) -> Process:
        process = self.celery(env, "beat", *options, name="beat")
        if ready:
            process.wait_for("beat: Starting")
        return process

    def end(self) -> None:
        for process in reversed(self.started):
            process.end()
