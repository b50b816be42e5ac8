"""`python -m bench.page [FILE.json …]`: take the runs that are in these files into the record, and make
`docs/benchmarks.md`, its pictures and the figures of the README of it.

What a page says follows from the samples of the record and the words at the top of each measure.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench import bars, record
from bench.record import Record, Taken
from bench.rows import AtLeast, Row, figure, of_ratio, spread

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
README = HERE.parent / "README.md"
PAGE = "benchmarks.md"
#: Between these the README has what `figures` makes.
BEGIN, END = "<!-- Made by `python -m bench.page`. -->\n", "<!-- The end of what is made. -->\n"
HEAD = """# Benchmarks

Tidemill, its peers, and what the same Postgres does bare: all sides of a measure in one run on the same servers, one
after the other, in three rounds, of which the medians count. What is judged are ratios. The other figures are of a
machine and a day. For your own:

```sh
make bench
```

That measures everything and makes this page anew{minutes}. The command below a measure takes it alone and prints it.
[How the benchmark is built](../bench/README.md).

<!-- Made by `python -m bench.page` from `bench/record.json`. -->
"""
QUICK = "A quick run, once and smaller: it shows that everything runs, and is no result. Nothing is judged by it."


def measures() -> dict[str, str]:
    """What each says of itself at its top: a title, and what is measured how."""
    found = {}
    for path in sorted((HERE / "measures").glob("b[0-9]*.py")):
        found[f"B{int(path.name[1:3])}"] = ast.get_docstring(ast.parse(path.read_text())) or ""
    return found


def made(given: Record, about: Mapping[str, str]) -> dict[str, str]:
    """The files below `docs`, with what they are to hold. `about`: of all measures, those too that were not taken."""
    files = {f"pictures/{_file(name)}": drawn for name, taken in given.items() if (drawn := _picture(name, taken))}
    judged = [row for taken in given.values() for row in taken.rows if row.goal and not taken.quick]
    if judged:
        files["pictures/bench-goals.svg"] = bars.goals("How far each goal is reached", [_mark(row) for row in judged])
    parts = [HEAD.format(minutes=_minutes(given)), _goals(given, about, judged)]
    parts += [_section(name, text, given.get(name), files) for name, text in about.items()]
    return {PAGE: "\n".join([*parts, _machines(given)]), **files}


def _minutes(given: Record) -> str:
    seconds = sum(taken.seconds for taken in given.values() if not taken.quick)
    return f", in {seconds / 60:.0f} minutes there" if seconds else ""


def _goals(given: Record, about: Mapping[str, str], judged: Sequence[Row]) -> str:
    missed = sum(not row.reached for row in judged)
    told = f"{len(judged) - missed} of {len(judged)} goals are reached" + f", {missed} missed" * bool(missed)
    lines = ["## Goals\n", f"{told}.\n" if judged else "None has been judged yet.\n"]
    if judged:
        lines.append("![Every goal and how far it is reached, as in the table](pictures/bench-goals.svg)\n")
    lines += ["| | what | goal | ratio | of the rounds | |", "|---|---|---|---|---|---|"]
    for name, text in about.items():
        link = f"[{name}](#{_anchor(_title(text))})"
        rows = [row for row in given[name].rows if row.goal] if name in given else []
        if not rows:
            lines.append(f"| {link} | {_title(text).partition(': ')[2]} | | | | not measured |")
        for row in rows:
            verdict = _verdict(row, given[name])
            lines.append(
                f"| {link} | {row.what} | {row.goal} {row.against} | {_ratio(row)} | {_rounds(row)} | {verdict} |"
            )
    return "\n".join(lines) + "\n"


def figures(given: Record, about: Mapping[str, str]) -> str:
    """The table of the README: of each measure what is judged first, and how many of all its goals are reached."""
    lines = ["| | Tidemill | in the same run | goals reached |", "|---|---|---|---|"]
    for name, text in about.items():
        rows = [row for row in given[name].rows if row.goal and not given[name].quick] if name in given else []
        if not rows:
            continue
        same = [row for row in rows if row.what == rows[0].what]
        ratios = ", ".join(f"{_ratio(row)} {row.against}" for row in same)
        link = f"[{_title(text).partition(': ')[2]}](docs/{PAGE}#{_anchor(_title(text))})"
        own = f"{rows[0].what}: {figure(rows[0].value)} {rows[0].unit}".strip()
        lines.append(f"| {link} | {own} | {ratios} | {sum(bool(row.reached) for row in rows)} of {len(rows)} |")
    return "\n".join(lines if len(lines) > 2 else ["Nothing has been measured yet."]) + "\n"


def readme(text: str, made_of: str) -> str:
    """The text of the README, with this between the marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, "the README has lost the marks of its figures"
    return f"{before}{begin}\n{made_of}\n{end}{after}"


def _section(name: str, text: str, taken: Taken | None, files: Mapping[str, str]) -> str:
    title, _, story = text.partition("\n\n")
    lines = [f"## {title.rstrip('.')}\n", f"{story}\n"]
    command = f"`.venv/bin/python -m bench --only {name}`"
    if taken is None:
        return "\n".join([*lines, f"Not measured yet: {command}.\n"])
    if taken.quick:
        lines.append(f"**{QUICK}**\n")
    if f"pictures/{_file(name)}" in files:
        lines.append(f"![{title.rstrip('.')}: the figures of the table as bars](pictures/{_file(name)})\n")
    lines += ["| what | median | lowest … highest | ratio | of the rounds | goal | |", "|---|---|---|---|---|---|---|"]
    for _, same in groupby(taken.rows, key=lambda row: row.what):
        for number, row in enumerate(same):
            own = (row.what, f"{figure(row.value)} {row.unit}".strip(), spread(row.samples, figure))
            cells = own if number == 0 else ("", "", "")
            ratio = (f"{_ratio(row)} {row.against}".strip(), _rounds(row), str(row.goal or ""), _verdict(row, taken))
            lines.append(f"| {' | '.join(cells + ratio)} |".replace("|  |", "| |").replace("|  |", "| |"))
    run = taken.run
    took = f"{taken.seconds / 60:.1f} minutes" if taken.seconds >= 60 else f"{taken.seconds:.0f} seconds"
    lines.append(f"\nTaken on {run['begun'][:10]} at `{run['commit']}`, in {took}; again: {command}.\n")
    return "\n".join(lines)


def _ratio(row: Row) -> str:
    return "" if row.ratio is None else of_ratio(row.ratio)


def _rounds(row: Row) -> str:
    return spread(row.ratios, of_ratio) if row.ratios else ""


def _verdict(row: Row, taken: Taken) -> str:
    if row.goal is None or row.reached is None:
        return ""
    if taken.quick:
        return "not judged"
    return "reached" if row.reached else "**missed**"


def _machines(given: Record) -> str:
    """Each machine with its servers, and the runs on it, newest first."""
    runs: dict[str, dict[str, list[str]]] = {}
    for name, taken in sorted(given.items(), key=lambda item: str(item[1].run["begun"]), reverse=True):
        runs.setdefault(_machine(taken.run), {}).setdefault(_run(taken.run), []).append(name)
    parts = ["## On what\n"]
    for machine, on_it in runs.items():
        names = (sorted(each, key=list(given).index) for each in on_it.values())
        told = [f"- {run}: {', '.join(each)}" for run, each in zip(on_it, names, strict=True)]
        parts.append("\n".join([machine, "", *told, ""]))
    return "\n".join(parts if given else [*parts, "Nothing has been measured yet.\n"])


def _run(run: Mapping[str, Any]) -> str:
    quick = ", a quick run" if run["quick"] else ""
    when = run["begun"][:16].replace("T", " ")
    return f"{when} UTC at `{run['commit']}`, a load of {run['load_before']:g} before it began{quick}"


def _machine(run: Mapping[str, Any]) -> str:
    peers = ", ".join(f"{name} {version}" for name, version in run["peers"].items())
    return "\n".join(
        [
            f"{run['processors']} processors ({run['processor']}), {run['memory']} of memory; PostgreSQL "
            f"{run['postgres']['version']} with",
            f"`shared_buffers` {run['postgres']['shared_buffers']}, `fsync` and `synchronous_commit` on; "
            f"Redis or Valkey {run['redis']};",
            f"Python {run['python']}, Celery {run['celery']}, {peers}:",
        ]
    )


def _picture(name: str, taken: Taken) -> str | None:
    """The bars of each unit that has some to compare; a figure that is compared with several is one bar."""
    rows = {row.what: row for row in taken.rows}.values()
    units = dict.fromkeys(row.unit for row in rows)
    panels = [
        bars.Panel(_unit(unit), [_bar(row) for row in rows if row.unit == unit])
        for unit in units
        if sum(row.unit == unit for row in rows) > 1
    ]
    return bars.bars(f"{name}, median and range of the rounds", panels) if panels else None


def _unit(unit: str) -> str:
    return "a second: more is better" if unit == "/s" else f"{unit}: less is better"


def _bar(row: Row) -> bars.Bar:
    shown = f"{figure(row.value)} {row.unit}".strip()
    return bars.Bar(row.what, row.side, row.value, min(row.samples), max(row.samples), shown)


def _mark(row: Row) -> bars.Mark:
    assert row.goal is not None
    assert row.ratio is not None
    goal = row.goal.ratio
    ways = [ratio / goal if isinstance(row.goal, AtLeast) else goal / ratio for ratio in (row.ratio, *row.ratios)]
    label = f"{row.measure}: {row.what}, against {row.against}"
    return bars.Mark(label, ways[0], min(ways), max(ways), f"{of_ratio(row.ratio)} ({row.goal})")


def _file(name: str) -> str:
    return f"bench-{name.lower()}.svg"


def _title(text: str) -> str:
    return text.partition("\n")[0].rstrip(".")


def _anchor(title: str) -> str:
    return "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -").replace(" ", "-")


def current() -> dict[str, str]:
    return made(record.read(), measures())


def take(files: Sequence[Path]) -> None:
    """Takes these runs into the record, and makes the page."""
    found = record.read()
    for file in files:
        found = record.merged(found, record.of_run(json.loads(file.read_text())))
    record.FILE.write_text(record.text(found))
    for name, text in current().items():
        (DOCS / name).write_text(text)
    README.write_text(readme(README.read_text(), figures(found, measures())))


if __name__ == "__main__":
    take([Path(name) for name in sys.argv[1:]])
