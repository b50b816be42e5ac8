"""A reactive task that writes when it began."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from bench import stamps
from tidemill import Delta, Run, reactive

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)


@reactive(Delta("bench.table", "loaded_to", "1s"), pool="bench")
def stamp_run(run: Run) -> None:
    now = time.time_ns()
    value = run.value("bench.table", "loaded_to")
    assert value is not None
    stamps.stamp(int((value - BEGIN).total_seconds()), now)
