"""Where our tasks write when they began, and the program that has started them reads it: the peers' broker."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

import redis

LIST = "bench.stamps"


@cache
def _client() -> Any:
    """Made in the child on its first call, like the peers'."""
    return redis.Redis.from_url(os.environ["BENCH_STAMPS_URL"])


def stamp(number: int, at: int) -> None:
    _client().rpush(LIST, f"{number}:{at}")


def began(number: int, what: str) -> int:
    """When the task with this number began, in nanoseconds; waits for it."""
    answer = _client().blpop([LIST], timeout=30)
    if answer is None:
        sys.exit(f"{what} {number} started nothing within 30 s")
    which, at = answer[1].decode().split(":")
    assert int(which) == number
    return int(at)
