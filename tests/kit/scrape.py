"""What a scrape of `/metrics` says, as Prometheus reads it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from app.metrics.exposition import sample, shared, text
from app.stopwatch import stopwatch


class Scrape:
    def __init__(self, found: str) -> None:
        self._values = {
            (each.name, frozenset(each.labels.items())): each.value
            for family in text_string_to_metric_families(found)
            for each in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """None where there is no such series. `name` without the word that all begin with."""
        return self._values.get((f"tidemill_{name}", frozenset(labels.items())))

    def series(self) -> set[tuple[str, frozenset[str]]]:
        """Names with the names of their labels."""
        return {(name, frozenset(label for label, _ in labels)) for name, labels in self._values}

    def names(self, name: str, label: str) -> set[str]:
        """The values of a label."""
        return {dict(labels)[label] for own, labels in self._values if own == f"tidemill_{name}"}


def scrape() -> Scrape:
    """Of this moment."""
    return Scrape(text(sample()).decode())


def forget() -> None:
    """What this process measured before, and what it read."""
    stopwatch.take()
    shared.forget()
