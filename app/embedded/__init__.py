"""Postgres and a broker of one's own, from wheels alone, for development and tests.

What it promises:

- One pair of servers for a home. A second start there raises `AlreadyRunning`, which says where the first one is.
- Data, passwords and (where still free) ports are kept in the home; without a home everything is gone at the end.
- The servers end with their owner, however it ends. Nothing a killed owner leaves behind hinders the next start, and
  nothing that was committed is lost.
- Only this machine can connect, only with a password, and only the home's account can read the password: it is on no
  command line, in no log and in no `repr`.
- Ctrl-C reaches the owner only, so that it can stop its workers before their servers.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.embedded import home as homes
from app.embedded.broker import Broker
from app.embedded.home import Byte, Lock, State
from app.embedded.postgres import Postgres
from app.embedded.process import polls
from app.embedded.server import PortTaken, Server, free_port
from app.errors import AlreadyRunning, EmbeddedError

__all__ = ["OwnServers", "Servers", "running", "servers"]

# How long a start waits for another process that is just starting or stopping servers in the same home.
TURN_LIMIT = 60.0
PORT_TRIES = 5


@dataclass(frozen=True)
class Servers:
    """`admin_url` is the superuser's; the others are meant for applications."""

    home: Path
    owner_pid: int
    database_url: str = field(repr=False)
    admin_url: str = field(repr=False)
    broker_url: str = field(repr=False)


@dataclass(frozen=True)
class OwnServers(Servers):
    """As their owner has them, who can stop, kill and restart each in place."""

    postgres: Postgres = field(repr=False)
    broker: Broker = field(repr=False)


def running(home: Path | str) -> Servers | None:
    """The servers of `home` if a process, this or another, owns them now and they are ready."""
    place = Path(home).absolute()
    if sys.platform != "linux":
        return None
    try:
        state = homes.load(place) if homes.held(place, Byte.READY) else None
    except PermissionError as error:
        raise EmbeddedError(
            f"{error.filename} belongs to another user: run as that user, or set TIDEMILL_HOME"
        ) from None
    return None if state is None else Servers(place, state.owner_pid, **state.urls())


@contextmanager
def servers(
    home: Path | str | None = None,
    *,
    postgres_options: Mapping[str, str] | None = None,
    postgres_version: int = 18,
) -> Iterator[OwnServers]:
    """Starts both and stops both; without a `home`, in a temporary directory."""
    if sys.platform != "linux":
        raise EmbeddedError("the embedded servers need Linux: set TIDEMILL_DATABASE_URL and TIDEMILL_BROKER_URL")
    owner = os.getpid()
    with ExitStack() as stack:
        try:
            place = _make_home(home, stack)
            lock = _own(place)
            stack.callback(lock.close)
            own = _start(place, postgres_version, postgres_options or {}, stack)
            lock.take(Byte.READY)
            stack.callback(lock.give_back, Byte.READY)
            yield own
        finally:
            if os.getpid() != owner:  # a fork left the block: nothing in it is its own
                stack.pop_all()


def _make_home(home: Path | str | None, stack: ExitStack) -> Path:
    if home is None:
        place = Path(tempfile.mkdtemp(prefix="tidemill-"))
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        return place
    place = Path(home).absolute()
    try:
        place.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        return place
    except OSError as error:
        raise EmbeddedError(f"{place} cannot be made ({error}): choose a home that you can write to") from error
    (place / ".gitignore").write_text("*\n")  # it lies in a project, and holds passwords
    return place


def _own(place: Path) -> Lock:
    try:
        lock = Lock(place)
    except (PermissionError, NotADirectoryError) as error:
        raise EmbeddedError(f"{place} cannot be used as a home ({error}): choose one that you can write to") from error
    for _ in polls(TURN_LIMIT):
        if lock.take(Byte.OWNER):
            return lock
        if (found := running(place)) is not None:
            lock.close()
            raise AlreadyRunning(_told(found), found)
    lock.close()
    raise AlreadyRunning(f"another process has been starting or stopping servers in {place} for {TURN_LIMIT:g} s", None)


def _told(found: Servers) -> str:
    urls = " and ".join(_masked(url) for url in (found.database_url, found.broker_url))
    return (
        f"the embedded servers of {found.home} are already run by process {found.owner_pid}, at {urls}: "
        "use those, end that process first, or choose another home"
    )


def _masked(url: str) -> str:
    scheme, _, rest = url.partition("://")
    credentials, _, address = rest.rpartition("@")
    return f"{scheme}://{credentials.partition(':')[0]}:***@{address}"


def _start(place: Path, version: int, options: Mapping[str, str], stack: ExitStack) -> OwnServers:
    state = homes.load(place)
    if state is None:
        if (place / "postgres").exists():
            raise EmbeddedError(
                f"{place} has data but no servers.json with its passwords: restore it, or remove {place}"
            )
        state = State.new()
    state = replace(state, owner_pid=os.getpid())
    homes.save(place, state)
    broker = Broker(state.name, state.broker_port, place, state.broker_password)
    postgres = Postgres(state.name, state.postgres_port, place, state.admin_password, version, options)
    postgres.initialise()
    for server in (broker, postgres):
        stack.callback(server.stop)
        _start_on_some_port(server)
    postgres.create_database(state.password)
    state = replace(state, postgres_port=postgres.port, broker_port=broker.port)
    homes.save(place, state)
    return OwnServers(place, state.owner_pid, **state.urls(), postgres=postgres, broker=broker)


def _start_on_some_port(server: Server) -> None:
    server.settle()
    for _ in range(PORT_TRIES):
        try:
            return server.start()
        except PortTaken:  # between looking and binding
            server.port = free_port()
    return server.start()
