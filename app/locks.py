"""The advisory locks of Postgres that Tidemill takes: each has a number of its own, and no other module has one.

They keep to themselves: the user's programs may take such locks too, and the numbers are not such as come by chance.
"""

from __future__ import annotations

import enum
from typing import Any

import sqlalchemy as sa

#: Of the locks with two numbers, by which somebody leads a duty (`app.duties`).
DUTIES = 0x71DE


@enum.unique
class Lock(enum.IntEnum):
    """What only one transaction does at a time. The numbers of two releases that run side by side are the same."""

    MIGRATION = 0x71DE_0001
    REACTIVE_TASKS = 0x71DE_0002
    STAGES = 0x71DE_0003
    PROCESSES = 0x71DE_0006
    FIRST_TOKEN = 0x71DE_0007


def take(executor: Any, lock: Lock) -> None:
    """Waits for it, and has it to the end of the transaction."""
    executor.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.literal(int(lock), sa.BigInteger))))


def take_of(executor: Any, name: str) -> None:
    """The same for one of many things, by its name."""
    executor.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(name, 0))))
