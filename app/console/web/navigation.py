"""What the navigation shows, in its order. An entry is there as soon as its page is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    label: str
    page: str
    #: The key that leads there after `g`.
    key: str
    group: str = ""


NAVIGATION = (
    Entry("Overview", "overview", "o"),
    Entry("Break it", "demo", "b"),
    Entry("Reactive tasks", "reactive", "r", "Work"),
    Entry("Stages", "stages", "s", "Work"),
    Entry("Processes", "processes", "p", "Work"),
    Entry("Jobs", "jobs", "j", "Work"),
    Entry("Operations", "operations", "e", "Cure"),
    Entry("Actors", "actors", "a", "Settings"),
    Entry("Queues", "queues", "q", "Settings"),
    Entry("Audit", "audit", "u", "Settings"),
)
