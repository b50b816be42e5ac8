"""How much processor time processes have taken, from the kernel's own account."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Worked:
    """What a side has done in a second."""

    rate: float
    #: Microseconds of processor time each; None where that cannot be known.
    cost: float | None = None

    def __str__(self) -> str:
        return f"{self.rate:,.0f}/s" + ("" if self.cost is None else f", {self.cost:.0f} µs of processor time each")


def _stat(pid: int) -> list[str]:
    """From the third field on: what stands before may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def of_session(leader: int) -> float:
    """Seconds, of all living processes of a session that the benchmark has started."""
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                fields = _stat(int(entry.name))
                if int(fields[3]) == leader:
                    found += int(fields[11]) + int(fields[12])
    return found / _TICK


def of_processes(pids: Iterable[int]) -> float:
    """Seconds, of those that live."""
    found = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            fields = _stat(pid)
            found += int(fields[11]) + int(fields[12])
    return found / _TICK


def is_postgres(pid: int) -> bool:
    """Whether a backend of this number runs on this machine, and not on another or in a container."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("postgres")
    except FileNotFoundError:
        return False
