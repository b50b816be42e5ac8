"""A home on disk: who owns it, and the state that outlives its owner.

- `lock` is held by the owner, by the kernel's book, so a crash frees it. Its first byte means "mine", its second
  "my servers accept connections"; both are open file description locks, which can be asked about without being taken:
  a reader never stands in the way of a starting owner.
- `servers.json` (0600) keeps passwords and ports. It is complete before any server is started with it.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import struct
import weakref
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypedDict

from app.errors import EmbeddedError

HOST = "127.0.0.1"
ROLE = DATABASE = "tidemill"
ADMIN = "postgres"
# struct flock of 64-bit Linux: type, whence, start, length, pid, padding.
FLOCK = struct.Struct("hhqqi4x")


class Byte(IntEnum):
    OWNER = 0
    READY = 1


def _flock(kind: int, byte: Byte) -> bytes:
    return FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)


class Lock:
    """The owner's hold on a home."""

    def __init__(self, home: Path) -> None:
        self._fd = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _locks.add(self)

    def take(self, byte: Byte) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, byte))
        except (BlockingIOError, PermissionError):  # EAGAIN and EACCES, both mean "held"
            return False
        return True

    def give_back(self, byte: Byte) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, byte))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _close_in_child() -> None:
    """A fork shares the lock; if it outlived a killed owner, the home would stay locked."""
    for lock in _locks:
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)


def held(home: Path, byte: Byte) -> bool:
    try:
        fd = os.open(home / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, byte))
    finally:
        os.close(fd)
    kind: int = FLOCK.unpack(answer)[0]
    return kind != fcntl.F_UNLCK


class Urls(TypedDict):
    database_url: str
    admin_url: str
    broker_url: str


@dataclass(frozen=True)
class State:
    """`name` marks the processes of this home in the system's process list."""

    name: str
    owner_pid: int
    postgres_port: int
    broker_port: int
    admin_password: str = field(repr=False)
    password: str = field(repr=False)
    broker_password: str = field(repr=False)

    @classmethod
    def new(cls) -> State:
        return cls(
            name=f"tidemill-{secrets.token_hex(6)}",
            owner_pid=0,
            postgres_port=0,
            broker_port=0,
            admin_password=secrets.token_urlsafe(24),
            password=secrets.token_urlsafe(24),
            broker_password=secrets.token_urlsafe(24),
        )

    def urls(self) -> Urls:
        postgres = f"{HOST}:{self.postgres_port}"
        return {
            "database_url": f"postgresql+psycopg2://{ROLE}:{self.password}@{postgres}/{DATABASE}",
            "admin_url": f"postgresql+psycopg2://{ADMIN}:{self.admin_password}@{postgres}/{ADMIN}",
            "broker_url": f"redis://:{self.broker_password}@{HOST}:{self.broker_port}/0",
        }


def load(home: Path) -> State | None:
    path = home / "servers.json"
    try:
        return State(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise EmbeddedError(f"{path} is damaged ({error}): restore it, or remove {home} with its data") from error


def save(home: Path, state: State) -> None:
    path = home / "servers.json"
    draft = home / "servers.json.new"
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(state), file, indent=1)
        file.flush()
        os.fsync(file.fileno())  # it holds the only copy of the passwords
    draft.replace(path)
