"""What a command loads, and a worker, and this before its children are forked: each holds what it loads by itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

OF_OTHER_COMMANDS = ("alembic", "grpc", "recovery", "starlette", "stages", "triggers", "uvicorn")
#: Of services beside workers, and of commands.
NOT_OF_A_WORKER = ("alembic", "grpc", "jinja2", "mako", "starlette", "uvicorn", "app.cli", "app.console", "app.rpc")
_WORKER = """
import os, sys
from billiard.util import set_pdeathsig
import app.celery as worker
import celery.bin.celery
worker.app.loader.import_default_modules()
worker._warm_up()
"""
_LOADED = _WORKER + "print(*sys.modules)"
#: What Celery does first of all in a child.
_CHILD = (
    _WORKER
    + """
before = set(sys.modules)
if os.fork() == 0:
    set_pdeathsig(9)
    print(*(set(sys.modules) - before), flush=True)
    os._exit(0)
os.wait()
"""
)


def printed(program: str) -> set[str]:
    # Nobody listens there: it is built all the same.
    servers = {
        "TIDEMILL_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
        "TIDEMILL_BROKER_URL": "redis://127.0.0.1:1",
    }
    argv = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(argv, env={**os.environ, **servers}, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_command_loads_nothing_that_only_others_need() -> None:
    loaded = printed("from app.cli.root import tidemill; import sys; tidemill.commands['token']; print(*sys.modules)")
    assert "app.cli.token" in loaded
    assert not [each for each in OF_OTHER_COMMANDS if each in loaded]


def test_a_worker_loads_nothing_that_it_does_not_need() -> None:
    loaded = printed(_LOADED)
    assert "app.worker" in loaded
    assert not [each for each in NOT_OF_A_WORKER if each in loaded]


def test_what_a_child_needs_to_end_with_its_parent_is_loaded_before_it_is_made() -> None:
    pytest.importorskip("cffi", reason="without it there is nothing to load")
    assert printed(_CHILD) == set()
