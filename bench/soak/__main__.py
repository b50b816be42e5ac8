"""`python -m bench.soak [--minutes 60] [--every 10] [--part 0.5] [--json FILE]`: run, judge, print, write."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psycopg2
import redis

from bench.__main__ import ENDINGS, _stop
from bench.children import Children
from bench.context import BENCH, Context
from bench.errors import BenchError
from bench.machine import machine
from bench.servers import servers
from bench.soak.judge import LEAST, judge
from bench.soak.report import table
from bench.soak.world import World


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, metavar="SECONDS", help="between samples; a 360th of the time")
    parser.add_argument("--part", type=float, default=0.5, help="of what it can do")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: bench/results/soak-<date>.json")
    return parser.parse_args()


def main() -> int:
    for ending in ENDINGS:
        signal.signal(ending, _stop)
    chosen = _arguments()
    every = chosen.every or max(1.0, chosen.minutes / 6)
    if chosen.minutes * 60 / every < 2 * LEAST:
        print(f"soak: fewer than {2 * LEAST} samples say nothing: --minutes or --every", file=sys.stderr)
        return 2
    begun, keep = datetime.now(UTC), f"{max(60, round(chosen.minutes * 60 / 12))}s"
    try:
        with tempfile.TemporaryDirectory(prefix="soak-") as scratch, servers() as running:
            world = World(Context(running, Children(Path(scratch)), quick=False), Path(scratch), keep)
            about = machine(running)
            soaked = world.soak(chosen.minutes, every, chosen.part)
    except (BenchError, psycopg2.Error, redis.RedisError, OSError) as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    verdicts = judge(soaked.samples)
    path = chosen.json or BENCH / "results" / f"soak-{begun:%Y-%m-%dT%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "begun": begun.isoformat(timespec="seconds"), **about, "minutes": chosen.minutes, "kept": keep,
        **asdict(soaked), "verdicts": [{**asdict(each), "flat": each.flat} for each in verdicts],
    }  # fmt: skip
    path.write_text(json.dumps(result) + "\n")
    print(table(soaked.rates, soaked.capacity, verdicts))
    print(f"written to {path}", file=sys.stderr)
    return 0 if verdicts and all(each.flat for each in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
