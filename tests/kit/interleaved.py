"""The worlds of `tests.kit.interleavings`, by what is claimed in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import patch

import pytest

from app.alarm import alarm
from stages import ending
from tests.kit import process_rows, reactive
from tests.kit.interleaved_jobs import Jobs
from tests.kit.interleaved_processes import Processes
from tests.kit.interleaved_runs import Runs
from tests.kit.interleaved_visits import Visits
from tests.kit.interleavings import World
from tests.kit.stages_rows import world as shop


@contextmanager
def world(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    match name:
        case "job":
            yield Jobs()
        case "visit":
            with shop() as stages, patch.object(ending, "BACKOFF", timedelta(0)):
                # The signal is that of the main thread, and no session runs there.
                alarm._installed = False
                yield Visits(stages)
        case "run":
            with reactive.world() as declared:
                yield Runs(declared)
        case "process":
            with process_rows.world(monkeypatch):
                yield Processes()
        case _:
            raise ValueError(f"{name!r} is not claimed here")
