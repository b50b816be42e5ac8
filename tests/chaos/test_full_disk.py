"""The drill of the full disk, as it is written in `docs/howto/disaster-drills.md`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.errors import Unavailable
from tests.chaos import caravan
from tests.chaos.disaster import Cluster, cluster
from tests.chaos.small_disk import SmallDisk, small_disk
from tests.kit.process import Processes
from tests.kit.waiting import pause
from tidemill import start, transaction

pytestmark = pytest.mark.chaos

BULK = sa.text("INSERT INTO public.hauled SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 3000)")
MOST = 2000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "small") as found:
        yield found


@pytest.fixture
def drill(disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with cluster(Processes(tmp_path), monkeypatch, home=disk.path) as found:
        yield found


def _start_until_it_is_full(first: int) -> set[int]:
    """Those that were committed for certain."""
    committed, refused = set[int](), 0
    for number in range(first, first + MOST):
        try:
            with transaction() as session:
                session.execute(BULK)
                start(caravan.travel, number, custom_id=str(number), session=session)
            committed.add(number)
        except Unavailable:
            refused += 1
            pause(0.5)
        if refused == 10:
            return committed
    raise AssertionError("the disk was never full")


def test_the_disk_is_full(drill: Cluster, disk: SmallDisk) -> None:
    # R6: what was committed before is there; what could not be saved is done when there is room again.
    drill.worker()
    drill.scheduler()
    drill.travel(0, 100)
    drill.wait_for_steps(100)
    disk.fill()
    committed = set(range(100)) | _start_until_it_is_full(100)
    for words in ("doctor", "status"):
        assert "Traceback" not in drill.say(words).err
    disk.free()
    drill.servers.broker.start()
    drill.servers.postgres.start()
    for program in drill.programs.started:
        if program.status is not None:
            # Celery ends when the broker cannot write; whatever supervises it starts it again.
            print(f"{program.name} has ended, and is started again", flush=True)
            program.start()
    drill.finish()
    started = {
        int(number) for number in str(drill.one("SELECT string_agg(custom_id, ' ') FROM tidemill.process")).split()
    }
    assert committed - started == set()
    drill.journeys(started)
    assert drill.one("SELECT count(*) FROM tidemill.broken_task") == 0
