"""The compose file as Compose would read it: variables filled in, every service with its command and health check."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tests.kit.process import ROOT

FILE = ROOT / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::([-?])([^}]*))?\}")


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """As Compose does: `${NAME:-default}`, `${NAME:?why}`, and `$$` for a dollar."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        given = variables.get(found[1])
        if not given and found[2] == "?":
            raise KeyError(found[1])
        return given or (found[3] if found[2] == "-" else "")

    return _VARIABLE.sub(value, text)


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    match value:
        case str():
            return fill_in(value, variables)
        case dict():
            return {key: _filled(each, variables) for key, each in value.items()}
        case list():
            return [_filled(each, variables) for each in value]
        case _:
            return value


@dataclass(frozen=True)
class Service:
    name: str
    data: Mapping[str, Any]

    @property
    def command(self) -> list[str]:
        return [str(word) for word in self.data.get("command", [])]

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.data.get("environment", {}).items()}

    @property
    def health(self) -> list[str]:
        """As words of a process; empty where there is none."""
        test: Sequence[str] = self.data.get("healthcheck", {}).get("test", [])
        match list(test):
            case ["CMD", *words]:
                return words
            case ["CMD-SHELL", text]:
                return ["sh", "-c", text]
            case []:
                return []
            case other:
                raise AssertionError(f"{self.name}: {other} is not a health check")

    @property
    def replicas(self) -> int:
        return int(self.data["deploy"].get("replicas", 1))

    @property
    def ours(self) -> bool:
        """Of our own image."""
        return "build" in self.data


def document(**variables: str) -> dict[str, Any]:
    found: dict[str, Any] = _filled(yaml.safe_load(FILE.read_text()), variables)
    return found


def services(**variables: str) -> dict[str, Service]:
    return {name: Service(name, data) for name, data in document(**variables)["services"].items()}
