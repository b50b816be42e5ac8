"""The figures of record, `record.json`: of each measure the last run that took it, with what it was taken on. Pure, but
for reading the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.rows import Row

FILE = Path(__file__).with_name("record.json")
OF_ONE = ("rows", "seconds", "failed")


@dataclass(frozen=True)
class Taken:
    """`run`: when and on what. `seconds`: how long it took."""

    run: Mapping[str, Any]
    seconds: float
    rows: tuple[Row, ...]

    @property
    def quick(self) -> bool:
        return bool(self.run["quick"])


Record = dict[str, Taken]


def of_run(result: Mapping[str, Any]) -> Record:
    """What `python -m bench` has written, by measure; what failed is not in it."""
    run = {name: value for name, value in result.items() if name not in OF_ONE}
    rows = [Row.of_json(row) for row in result["rows"]]
    return {
        name: Taken(run, seconds, tuple(row for row in rows if row.measure == name))
        for name, seconds in result["seconds"].items()
    }


def merged(record: Record, newer: Record) -> Record:
    """A quick run, which is no result, takes the place of nothing but a quick one."""
    wanted = {
        name: taken for name, taken in newer.items() if not taken.quick or name not in record or record[name].quick
    }
    return dict(sorted((record | wanted).items(), key=lambda item: int(item[0][1:])))


def read(file: Path = FILE) -> Record:
    return {
        name: Taken(each["run"], each["seconds"], tuple(Row.of_json(row) for row in each["rows"]))
        for name, each in json.loads(file.read_text()).items()
    }


def text(record: Record) -> str:
    given = {
        name: {"run": taken.run, "seconds": taken.seconds, "rows": [row.as_json() for row in taken.rows]}
        for name, taken in record.items()
    }
    return json.dumps(given, indent=1, ensure_ascii=False) + "\n"
