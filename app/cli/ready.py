"""Whether all that `tidemill up` started is there, and what to say then."""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from app import figures
from app.cli.supervise import Stage, Supervisor
from app.db import transaction
from app.embedded.home import HOST
from app.errors import DatabaseError
from app.settings import settings
from app.workers import Worker

LIMIT_SECONDS = 90.0
#: Of queues.
MOST_NAMES = 8


@dataclass(frozen=True)
class Ports:
    flower: int
    console: int

    @property
    def url(self) -> str:
        """Of the console."""
        return f"http://{HOST}:{self.console}"

    @property
    def flower_url(self) -> str:
        return f"http://{HOST}:{self.flower}"

    def links(self) -> dict[str, str]:
        """By which the console and Flower lead to each other, unless somebody has said where people find them."""
        return {
            "TIDEMILL_CONSOLE_URL": settings().console_url or self.url,
            "TIDEMILL_FLOWER_URL": settings().flower_url or self.flower_url,
        }


class Readiness:
    def __init__(self, supervisor: Supervisor, ports: Ports) -> None:
        self._supervisor, self._ports = supervisor, ports
        self._until = time.monotonic() + LIMIT_SECONDS
        self.told = False
        #: What has not shown itself in time.
        self.late: Sequence[str] = ()

    def became(self) -> bool:
        """True once: when all are there, or have had time enough."""
        if self.told:
            return False
        self.late = self._missing()
        self.told = not self.late or time.monotonic() > self._until
        return self.told

    def _missing(self) -> Sequence[str]:
        workers = {
            child.pid: child.spec.name for child in self._supervisor.children if child.spec.stage is Stage.WORKER
        }
        try:
            with transaction() as session:
                reported = set(session.scalars(sa.select(Worker.pid).where(Worker.pid.in_(list(workers)))))
        except (DatabaseError, SQLAlchemyError):
            reported = set()
        missing = [name for pid, name in workers.items() if pid not in reported]
        # What listens there in the place of one that has ended is somebody else.
        alive = {child.spec.name for child in self._supervisor.children if child.pid is not None}
        ports = {"flower": self._ports.flower, "console": self._ports.console}
        return missing or [name for name, port in ports.items() if name not in alive or not self._listens(port)]

    @staticmethod
    def _listens(port: int) -> bool:
        try:
            socket.create_connection((HOST, port), timeout=0.2).close()
        except OSError:
            return False
        return True


def summary(late: Sequence[str], ports: Ports) -> str:
    from app.passes import CONTROL  # reads the settings

    home = shlex.quote(str(settings().home.absolute()))
    with transaction() as session:
        queues = [each.name for each in figures.queues(session) if each.slots and each.name != CONTROL]
    code = "; what needs your code: with the same TIDEMILL_MODULES" if settings().modules else ""
    lines = [
        ("database", _shown(settings().resolved_database_url(), given=settings().database_url is not None)),
        ("broker", _shown(settings().resolved_broker_url(), given=settings().broker_url is not None)),
        ("console", ports.url),
        ("Flower", ports.flower_url),
        ("queues", _few(queues)),
        (
            "other terminals",
            f"'tidemill status' and all else in this directory; elsewhere: export TIDEMILL_HOME={home}{code}",
        ),
        ("to stop", "Ctrl-C"),
    ]
    if settings().database_url and settings().broker_url:
        lines[5] = ("other terminals", f"with the same TIDEMILL_DATABASE_URL and TIDEMILL_BROKER_URL{code}")
    title = f"Tidemill runs, but {', '.join(late)} has not reported yet" if late else "Tidemill is ready"
    return "\n".join([title, *(f"  {name:16} {text}" for name, text in lines)])


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _shown(url: str, *, given: bool) -> str:
    """Without the password. A broker's URL may be one that SQLAlchemy cannot read: nothing of it is shown then."""
    try:
        text = make_url(url).render_as_string(hide_password=True)
    except (SQLAlchemyError, ValueError):
        text = "as TIDEMILL_BROKER_URL says"
    return text if given else f"{text} (embedded)"
