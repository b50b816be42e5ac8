"""Which processes `tidemill up` runs, with which commands and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.cli.supervise import Spec, Stage
from app.settings import file_names, settings

_ROOT_WARNING = "ignore:You're running the worker with superuser privileges"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def worker_names(count: int) -> list[str]:
    return [f"worker-{number}" for number in range(1, count + 1)]


def node(name: str) -> str:
    """On servers of others somebody else may run workers on this machine too: a name must be one worker's."""
    ours_alone = settings().database_url is None and settings().broker_url is None
    return f"{name}@%h" if ours_alone else f"{name}.{os.getpid()}@%h"


def specs(workers: int, queues: Sequence[str], flower_port: int, console_port: int, level: str = "INFO") -> list[Spec]:
    from app.passes import CONTROL  # reads the settings

    found = [_worker(name, queues, cores(), level) for name in worker_names(workers)]
    # Control tasks run every second: at INFO they would drown everything else.
    found.append(_worker(CONTROL, [CONTROL], 1, "WARNING"))
    for name, *more in (
        ("scheduler",),
        ("beat", "-l", "WARNING"),
        ("flower", "--address=127.0.0.1", f"--port={flower_port}", "--logging=error"),
    ):
        found.append(Spec(name, _celery(name, *more), Stage.SERVICE))
    console = [sys.executable, "-m", "app.cli", "console", "--host", "127.0.0.1", "--port", str(console_port)]
    found.append(Spec("console", console, Stage.SERVICE))
    return found


def _worker(name: str, queues: Sequence[str], slots: int, level: str) -> Spec:
    quiet = ("--without-gossip", "--without-mingle")
    command = _celery("worker", "-n", node(name), "-Q", ",".join(queues), "-c", str(slots), "-l", level, *quiet)
    return Spec(name, command, Stage.WORKER)


def _celery(command: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "celery", "--quiet", "--no-color", "-A", "app", command, *more]


def environment(*, paths: Sequence[Path] = (), more: Mapping[str, str] | None = None) -> dict[str, str]:
    """URLs hold passwords: they go by the environment, which only this account can read."""
    python_path = [str(path) for path in (Path.cwd(), *paths)] + os.environ.get("PYTHONPATH", "").split(os.pathsep)
    ours = {
        "TIDEMILL_DATABASE_URL": settings().resolved_database_url(),
        "TIDEMILL_BROKER_URL": settings().resolved_broker_url(),
        "TIDEMILL_HOME": str(settings().home.absolute()),
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
        "PYTHONUNBUFFERED": "1",
    }
    if os.geteuid() == 0:
        warnings = filter(None, (os.environ.get("PYTHONWARNINGS"), _ROOT_WARNING))
        ours |= {"C_FORCE_ROOT": "1", "PYTHONWARNINGS": ",".join(warnings)}
    # Of a URL that came from a file, the children would have two.
    return {**{name: value for name, value in os.environ.items() if name not in file_names()}, **ours, **(more or {})}
