"""A million processes, fifty thousand of them broken: what is searched for is read by an index, whatever it is."""

from __future__ import annotations

import time

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from tests.kit import process_crowd
from tests.kit.process_crowd import BROKEN, found_by_index, groups_by_index

ROWS = 1_000_000


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_searching_a_million_processes(session: Session, engine: Engine, subtests: pytest.Subtests) -> None:
    # R10
    process_crowd.fill(engine, ROWS)
    for name, (filters, index) in process_crowd.searches(session, ROWS).items():
        with subtests.test(name):
            began = time.monotonic()
            found, used = found_by_index(session, engine, filters)
            print(f"{name}: {found} found and explained in {time.monotonic() - began:.3f} s", flush=True)
            assert found
            assert index in used
    sizes, used = groups_by_index(session, engine)
    assert sum(sizes) == ROWS // BROKEN
    assert "broken_task_fingerprint" in used
