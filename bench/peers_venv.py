"""The peers live in a venv of the benchmark's own, made on first use from `peers.lock`, never among our dependencies.

Bare Celery lives there too: in the product's venv its command line would load our `scheduler` command, and with it
the whole product, into the worker whose memory we compare with ours.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from bench.errors import BenchError

HERE = Path(__file__).parent
LOCK = HERE / "peers.lock"
VENV = HERE / ".venv"
STAMP = VENV / "peers.lock.sha256"


def _same_celery(lock: str) -> None:
    for package in ("celery", "kombu", "redis"):
        locked = re.search(rf"^{package}==(\S+)", lock, re.MULTILINE)
        if locked is None or locked[1] != version(package):
            theirs = locked[1] if locked else "none"
            raise BenchError(f"peers.lock has {package} {theirs}, the product runs {version(package)}: make bench-lock")


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"The peers' venv could not be made:\n{done.stderr[-2000:]}")


def peers_python() -> str:
    """The peers' interpreter; makes their venv where it is missing or older than the lock file."""
    lock = LOCK.read_text()
    _same_celery(lock)
    wanted = hashlib.sha256(lock.encode()).hexdigest()
    python = VENV / "bin" / "python"
    if not (STAMP.exists() and STAMP.read_text() == wanted):
        print("making the peers' venv …", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(VENV))
        _run(str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", str(LOCK))
        STAMP.write_text(wanted)
    return str(python)
