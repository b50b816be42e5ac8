"""What a measure gets: the servers, the size of the run, and a way to start processes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.children import Children
from bench.peers_venv import peers_python
from bench.servers import Servers

T = TypeVar("T")
BENCH = Path(__file__).parent
REPO = BENCH.parent
PEERS = BENCH / "peers"


@dataclass(frozen=True)
class Context:
    servers: Servers
    children: Children
    quick: bool

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def say(self, line: str) -> None:
        print(f"  {line[:200]}", file=sys.stderr, flush=True)

    def rounds(self, sides: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
        """All sides in turn, in each round: a noisy neighbour of the machine meets all of them."""
        taken: dict[str, list[T]] = {name: [] for name in sides}
        count = 1 if self.quick else 3
        for number in range(1, count + 1):
            for name, side in sides.items():
                value = side()
                self.say(f"round {number}/{count}  {name}: {value}")
                taken[name].append(value)
        return taken

    @property
    def peers_env(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": "",
            "BENCH_DATABASE_URL": self.servers.plain_database_url,
            "BENCH_BROKER_URL": self.servers.peers_broker_url,
        }

    def peer(self, script: str, *, timeout: float = 300, **arguments: object) -> dict[str, Any]:
        """Run a script of `bench/peers/` with the peers' interpreter; its last line is the answer, in JSON."""
        argv = [peers_python(), str(PEERS / f"{script}.py"), json.dumps(arguments)]
        output = self.children.run(script, argv, self.peers_env, PEERS, timeout=timeout)
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        return answer


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest sample at or above; no interpolation between a slow sample and a fast one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
