"""Child processes: started, shown, started again when they die, stopped in order.

- Each leads a session of its own: Ctrl-C on the terminal reaches us alone. It ends when we end, however we end.
- What dies takes its whole process group along, and is started again after a pause that doubles while it keeps dying.
- `stop` ends stage after stage; whoever does not end in time is killed, with its group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from app.cli.pids import Pids
from app.cli.screen import Screen
from app.embedded.process import myself, polls, spawn

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
#: One that lived this long has not failed to start.
STEADY = 30.0


class Stage(IntEnum):
    """What is stopped first: who makes work, who does it, who watches."""

    PRODUCER = 0
    WORKER = 1
    SERVICE = 2


@dataclass(frozen=True)
class Spec:
    name: str
    command: Sequence[str]
    stage: Stage


class Child:
    def __init__(self, spec: Spec, env: Mapping[str, str], screen: Screen, pids: Pids) -> None:
        self.spec = spec
        self._env, self._screen, self._pids = env, screen, pids
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._pause = FIRST_PAUSE
        self.again_at: float | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        read, write = os.pipe()
        with open(write, "wb") as output:
            self._process = spawn(
                self.spec.command,
                cwd=Path.cwd(),
                stdin=subprocess.DEVNULL,
                log=output,
                account=myself(),
                death_signal=signal.SIGKILL,
                env=self._env,
            )
        self._pids.note(self.spec.name, self._process.pid)
        self._screen.follow(self.spec.name, open(read, "rb"))  # noqa: SIM115 - closed by its thread
        self._started, self.again_at = time.monotonic(), None

    def ended(self) -> bool:
        """Reaps it only after its group is gone, while its number cannot be anybody else's."""
        if self._process is None:
            return True
        if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        self._send_group(signal.SIGKILL)
        status = self._process.wait()
        self._process = None
        self._pids.forget(self.spec.name)
        self._told = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return True

    def plan_restart(self) -> None:
        now = time.monotonic()
        if now - self._started > STEADY:
            self._pause = FIRST_PAUSE
        self.again_at = now + self._pause
        self._screen.say(f"{self.spec.name} {self._told}; it is started again in {self._pause:g} s")
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def terminate(self) -> None:
        """Its main process only: a worker's own children are told by it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._send_group(signal.SIGKILL)

    def _send_group(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


class Supervisor:
    def __init__(self, specs: Sequence[Spec], env: Mapping[str, str], screen: Screen, pids: Pids) -> None:
        self.children = [Child(spec, env, screen, pids) for spec in specs]
        self._screen = screen

    def start(self) -> None:
        for child in self.children:
            child.start()

    def named(self, name: str) -> Child:
        return next(child for child in self.children if child.spec.name == name)

    def look(self) -> None:
        """Once in a while: who has died, who is due again."""
        for child in self.children:
            if child.again_at is not None:
                if time.monotonic() >= child.again_at:
                    child.start()
            elif child.ended():
                child.plan_restart()

    def stop(self, seconds: Mapping[Stage, float], hurry: Callable[[], bool]) -> None:
        for stage in Stage:
            alive = [child for child in self.children if child.spec.stage is stage and not child.ended()]
            for child in alive:
                child.terminate()
            for _ in polls(seconds[stage]):
                alive = [child for child in alive if not child.ended()]
                if not alive or hurry():
                    break
            for child in alive:
                self._screen.say(f"{child.spec.name} has not ended: it is killed")
                child.kill()
            for _ in polls(5):
                alive = [child for child in alive if not child.ended()]
                if not alive:
                    break
