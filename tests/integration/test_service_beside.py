"""The polling pass, the service, and both side by side start the same work with the same windows (T17, T18)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.kit import reactive as kit
from tests.kit import service as services
from tests.kit.reactive import World, day
from tests.kit.service import Follower
from triggers import All, Any, Delta
from triggers.model import RUN, TASK
from triggers.trigger import Trigger


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    with kit.world() as found:
        yield found


def _scenario(world: World, seed: int, act: list[str]) -> list[tuple[str, str]]:
    """The same changes and the same work; who evaluates differs. What was started with what windows."""
    chosen = random.Random(seed)
    for number in range(8):
        leaves = [Delta(f"e{each}", "p", f"{chosen.randint(1, 3)}d") for each in chosen.sample(range(4), 2)]
        of_many: list[Trigger] = [leaves[0], All(*leaves), Any(*leaves)]
        trigger = chosen.choice(of_many)
        world.declare(f"t{number}", trigger, first_run=chosen.choice(["fire", "baseline"]))
    world.sync()
    follower, values = Follower(), dict.fromkeys(range(4), 0)
    if "service" in act:
        follower.rest()
    for _ in range(30):
        each = chosen.randrange(4)
        values[each] += chosen.randint(1, 2)
        kit.advance(day(values[each]), (f"e{each}", "p"))
        for one in act:
            world.poll() if one == "poll" else follower.rest()
        if chosen.random() < 0.6:
            world.serve()
            for one in act:
                world.poll() if one == "poll" else follower.rest()
    world.serve()
    return services.launches()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_service_the_pass_and_both_at_once_start_the_same(world: World, seed: int) -> None:
    # T17, T18
    found = []
    for act in (["poll"], ["service"], ["poll", "service"], ["service", "poll"]):
        with kit.world() as own:
            found.append(_scenario(own, seed, act))
        assert kit.violations() == []
        for table in (RUN, TASK):
            kit.execute(sa.delete(table))
        kit.empty("ctl", "ctl_seen")
    assert len(found[0]) > 20
    assert found[1:] == [found[0]] * 3
