"""What the code declares of stages, brought to the database when a service starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stages import operate
from stages.lookup import Known
from tests.kit.stages_rows import Stages, execute, world


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def test_a_release_that_changes_one_limit_leaves_the_other_as_it_was_set(stages: Stages) -> None:
    # S15
    stages.stage("publish")
    stages.sync()
    publish = Known("offer", "publish")
    operate.limit(publish, rate="10/s")
    stages.stage("publish", max_parallel=3)
    stages.sync()
    assert _limits() == (3, 10.0)
    operate.limit(publish, max_parallel=5)
    stages.stage("publish", max_parallel=3, rate_limit="2/s")
    stages.sync()
    assert _limits() == (5, 2.0)


def _limits() -> tuple[Any, ...]:
    (found,) = execute("SELECT max_parallel, rate FROM tidemill.queue WHERE name = 'stage.offer.publish'")
    return tuple(found)
