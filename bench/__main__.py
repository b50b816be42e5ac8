"""`python -m bench [--only B2,B9] [--json FILE] [--quick] [--page]`: measure, print the table, write the figures, and
the page that is made of them."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import psycopg2
import redis

from bench import measures, page
from bench.children import Children
from bench.context import BENCH, Context
from bench.errors import BenchError
from bench.machine import machine
from bench.rows import Failure, Row, table
from bench.servers import servers

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _names(text: str) -> list[str]:
    wanted = [name.strip().upper() for name in text.split(",")]
    known = measures.found()
    if unknown := [name for name in wanted if name not in known]:
        raise argparse.ArgumentTypeError(f"no measure {', '.join(unknown)}; there are {', '.join(known)}")
    return wanted


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Us, the peers and the floors, in one run.")
    parser.add_argument("--only", type=_names, default=list(measures.found()), metavar="B2,B9", help="these measures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: bench/results/<date>.json")
    parser.add_argument("--quick", action="store_true", help="once and smaller: does it run? Not a result.")
    parser.add_argument("--page", action="store_true", help="take the figures into docs/benchmarks.md")
    return parser.parse_args()


@dataclass(frozen=True)
class Measured:
    """`seconds`: what each measure took."""

    rows: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def _measure(context: Context, name: str, done: Measured) -> None:
    module = measures.found()[name]
    print(f"{name} {module[4:].replace('_', ' ')}", file=sys.stderr, flush=True)
    begun = time.monotonic()
    try:
        done.rows.extend(measures.load(module)(context))
    except (BenchError, AssertionError, psycopg2.Error, redis.RedisError) as error:
        # One side that does not run must not cost the figures of the other measures.
        print(f"  failed: {error}", file=sys.stderr, flush=True)
        done.failures.append(Failure(name, str(error)))
    else:
        done.seconds[name] = round(time.monotonic() - begun, 1)


def _write(path: Path, begun: datetime, about: dict[str, object], done: Measured) -> None:
    result = {
        "begun": begun.isoformat(timespec="seconds"),
        **about,
        "seconds": done.seconds,
        "rows": [row.as_json() for row in done.rows],
        "failed": {failure.measure: failure.reason for failure in done.failures},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def _stop(number: int, _: FrameType | None) -> None:
    """The first signal unwinds the run, which ends all that it started; a second one must not interrupt that."""
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    print("stopping …", file=sys.stderr, flush=True)
    raise SystemExit(128 + number)


def main() -> int:
    for ending in ENDINGS:
        signal.signal(ending, _stop)
    chosen = _arguments()
    begun, done = datetime.now(UTC), Measured()
    path: Path = chosen.json or BENCH / "results" / f"{begun:%Y-%m-%dT%H%M%S}.json"
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch, servers() as running:
            context = Context(running, Children(Path(scratch)), chosen.quick)
            about = {**machine(running), "quick": chosen.quick}
            for name in chosen.only:
                _measure(context, name, done)
                _write(path, begun, about, done)  # what is measured is kept, should the next one be stopped
    except (BenchError, psycopg2.Error, redis.RedisError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table(done.rows, done.failures))
    if chosen.quick:
        print("quick: once and smaller, not a result")
    print(f"written to {path}", file=sys.stderr)
    if chosen.page:
        page.take([path])
        print(f"made: {page.DOCS / page.PAGE}", file=sys.stderr)
    return 1 if done.failures else 0


if __name__ == "__main__":
    sys.exit(main())
