"""What a probe of one service saw, and whether starting that service again would help."""

from __future__ import annotations

from dataclasses import dataclass

from app.health.finding import Finding, Level, fail, ok


@dataclass(frozen=True)
class Sign:
    """`curable`: by a restart of the service; an outage of its servers is not."""

    finding: Finding
    curable: bool

    @property
    def good(self) -> bool:
        return self.finding.level is not Level.FAIL


def well(check: str, detail: str) -> Sign:
    return Sign(ok(check, detail), False)


def broken(check: str, detail: str, advice: str) -> Sign:
    """The service itself does not do its work."""
    return Sign(fail(check, detail, advice), True)


def away(check: str, detail: str, advice: str) -> Sign:
    """What it works with does not answer."""
    return Sign(fail(check, detail, advice), False)
