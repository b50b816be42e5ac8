"""What a worker's log says of answers that are no results."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from processes import working
from processes.accepting import Accepted
from processes.answers import Again, Answer, Failed


def test_the_pause_before_the_next_try_is_told_as_people_write_it(caplog: pytest.LogCaptureFixture) -> None:
    row: Any = SimpleNamespace(queue="actor.ship", process_id=7, number=2)
    handed: Any = None
    answer = Answer(handed, Failed(("CourierBusy",), "no car"))
    working._say([(answer, row)], Accepted([Again(timedelta(seconds=0.2))]))
    assert caplog.messages == ["actor.ship 7/2 is tried again in 0.2s: CourierBusy: no car"]
