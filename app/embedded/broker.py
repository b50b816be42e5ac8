"""The embedded broker, Valkey: messages survive its restart, but for the last second before a crash of the machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import IO

from app.embedded import binaries
from app.embedded.home import HOST
from app.embedded.process import myself, spawn
from app.embedded.server import Server

CONFIG = """\
bind {host}
port {port}
requirepass {password}
dir ./
appendonly yes
appendfsync everysec
maxmemory-policy noeviction
save ""
# Keep the arguments in the process list, by which our processes are told from others.
set-proc-title no
"""


class Broker(Server):
    title = "the embedded broker"
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL  # also ends it when paused; what it has acknowledged is in the page cache

    def __init__(self, name: str, port: int, home: Path, password: str) -> None:
        super().__init__(name, port, home / "valkey", home / "valkey.log")
        self._password = password
        self._program = binaries.valkey()

    def wipe(self) -> None:
        """Killed, and its data gone; `start` brings it back empty."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)

    def _launch(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        self.data.mkdir(mode=0o700, exist_ok=True)
        # By a pipe: the password is neither on a command line nor in one more file.
        read, write = os.pipe()
        with open(read, "rb") as stdin, open(write, "wb") as config:
            config.write(CONFIG.format(host=HOST, port=self.port, password=self._password).encode())
            config.close()
            return spawn(
                # It logs to stdout; the identity for a system log it does not write to serves as a mark.
                [self._program, "--syslog-ident", self.name, "-"],
                cwd=self.data,
                stdin=stdin.fileno(),
                log=log,
                account=myself(),
                death_signal=self.death_signal,
            )

    def _greet(self) -> None:
        with socket.create_connection((HOST, self.port), timeout=1) as connection:
            connection.sendall(f"AUTH {self._password}\r\nPING\r\n".encode())
            answer = b""
            while not answer.endswith(b"+PONG\r\n"):
                if not (part := connection.recv(1024)) or part.startswith(b"-"):
                    raise ConnectionError(part.decode(errors="replace"))
                answer += part

    def _is_mine(self, command: bytes) -> bool:
        return b"\0--syslog-ident\0" + self.name.encode() + b"\0" in command
