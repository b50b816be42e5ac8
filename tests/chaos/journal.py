"""What was done outside of the database: a line each, whoever is killed, by a clock that nobody sets."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from pathlib import Path

#: Names the file; without it, nothing is noted.
PLACE = "CHAOS_JOURNAL"
#: When, on the monotonic clock of the machine, and what, by its kind.
Notes = dict[str, list[tuple[float, str]]]


def note(kind: str, what: object = "") -> None:
    if path := os.environ.get(PLACE):
        with open(path, "ab", buffering=0) as out:
            out.write(f"{time.monotonic()} {kind} {what}\n".encode())


def read(path: Path) -> Notes:
    notes: Notes = defaultdict(list)
    for line in path.read_text().splitlines():
        at, kind, what = line.split(" ", 2)
        notes[kind].append((float(at), what))
    return notes


def told(notes: Notes, kind: str) -> set[str]:
    return {what for _, what in notes[kind]}
