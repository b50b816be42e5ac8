"""An operation over a hundred thousand processes: chosen at once, worked off by several, cancelled in a moment (R9)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.orm import Session

from recovery import operations
from recovery.operations import running
from tests.kit import operation_rows as o
from tests.kit import process_rows as r
from tests.kit.waiting import wait_until

COUNT = 100_000
#: Generous: the machine may be busy with other things.
CHOSEN_SECONDS, CANCELLED_SECONDS = 60, 10


@pytest.fixture(autouse=True)
def _world(database_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with r.world(monkeypatch):
        yield


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_a_hundred_thousand_are_cancelled_in_a_moment(session: Session) -> None:
    o.broken(session, COUNT)
    begun = time.monotonic()
    found = o.over_broken()
    chosen = time.monotonic() - begun
    stop = threading.Event()

    def service() -> None:
        while not stop.is_set():
            running.run_once()

    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(service) for _ in range(2)]
        try:
            wait_until(lambda: operations.show(found).done > 1000, 300)
            asked = time.monotonic()
            operations.cancel(found)
            done = operations.show(found).done
            took = time.monotonic() - asked
        finally:
            stop.set()
        for each in both:
            each.result(120)
    print(f"chosen in {chosen:.2f} s, cancelled in {took:.3f} s, {operations.show(found).done} done")
    assert chosen < CHOSEN_SECONDS
    assert took < CANCELLED_SECONDS
    assert operations.show(found).done <= done + 2 * 100
    assert o.epochs(session)  # those that were left alone
    assert r.check(session) == {}
