"""What a check says."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """`advice` says what to do; empty where all is well."""

    check: str
    level: Level
    detail: str
    advice: str = ""


def ok(check: str, detail: str) -> Finding:
    return Finding(check, Level.OK, detail)


def warn(check: str, detail: str, advice: str) -> Finding:
    return Finding(check, Level.WARN, detail, advice)


def fail(check: str, detail: str, advice: str) -> Finding:
    return Finding(check, Level.FAIL, detail, advice)
