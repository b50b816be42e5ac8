"""The page of the benchmark says what the record says: what is reached, missed, and what nobody has measured."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from bench import page, record
from bench.record import Record
from bench.rows import AtLeast, AtMost, Failure, Row, table

ABOUT = {
    "B1": "B1: Fast work.\n\nHow fast it is.",
    "B2": "B2: Small work.\n\nHow small.",
    "B3": "B3: More.\n\nMuch more.",
}
FAST = Row("B1", "us", "fast <work>", "/s", (90.0, 100.0, 130.0), (50.0, 50.0, 50.0), "a peer", AtLeast(1.5))
SLOW = Row("B1", "us", "fast <work>", "/s", (90.0, 100.0, 130.0), (500.0, 400.0, 200.0), "the floor", AtLeast(0.5))
PEER = Row("B1", "peer", "a peer & its work", "/s", (50.0, 50.0, 50.0))
SMALL = Row("B2", "us", "small work", "MiB", (30.0,), (10.0,), "a peer", AtMost(1.5))


def run(*rows: Row, day: int = 1, quick: bool = False, failed: str = "") -> dict[str, Any]:
    """As `python -m bench` writes it."""
    return {
        "begun": f"2026-11-{day:02}T10:00:00+00:00",
        "commit": f"c0ffee{day}",
        "processor": "a fast one",
        "processors": 2,
        "memory": "8 GiB",
        "load_before": 0.5,
        "python": "3.13.1",
        "postgres": {"version": "18.1", "shared_buffers": "128MB"},
        "redis": "9.1",
        "celery": "5.7.0",
        "peers": {"pgqueuer": "1.2"},
        "quick": quick,
        "seconds": {row.measure: 90.0 for row in rows},
        "rows": [row.as_json() for row in rows],
        "failed": {failed: "it did not start"} if failed else {},
    }


def taken(*runs: dict[str, Any]) -> Record:
    found: Record = {}
    for each in runs:
        found = record.merged(found, record.of_run(each))
    return found


def text(*runs: dict[str, Any]) -> str:
    return page.made(taken(*runs), ABOUT)[page.PAGE]


def lines(found: str, *words: str) -> list[str]:
    return [line for line in found.splitlines() if all(word in line for word in words)]


def test_a_goal_is_reached_or_missed() -> None:
    found = text(run(FAST, SLOW, PEER, SMALL))
    assert "1 of 3 goals are reached, 2 missed." in found
    fast, slow, small = (lines(found, goal)[0] for goal in ("≥ 1.5× a peer", "≥ 0.5× the floor", "≤ 1.5× a peer"))
    assert fast.endswith("| 2.00× | 1.80× … 2.60× | reached |")
    assert slow.endswith("| 0.25× | 0.18× … 0.65× | **missed** |")
    assert small.endswith("| 3.00× | 3.00× | **missed** |")


def test_the_verdict_follows_from_the_samples() -> None:
    given = run(SLOW)
    given["rows"][0] |= {"reached": True, "ratio": 9.0, "value": 4000.0}
    assert "0 of 1 goals are reached, 1 missed." in text(given)


def test_a_measure_shows_its_figures_once_with_their_spread() -> None:
    found = text(run(FAST, SLOW, PEER))
    assert lines(found, "| 100 /s | 90 … 130 |") == [
        "| fast <work> | 100 /s | 90 … 130 | 2.00× a peer | 1.80× … 2.60× | ≥ 1.5× | reached |"
    ]
    assert lines(found, "| | | | 0.25× the floor |")
    assert "How fast it is." in found
    assert "`c0ffee1`, in 1.5 minutes; again: `.venv/bin/python -m bench --only B1`." in found


def test_what_was_not_measured_says_so() -> None:
    found = text(run(FAST, failed="B2"))
    assert lines(found, "[B2](#b2-small-work)", "not measured")
    assert "Not measured yet: `.venv/bin/python -m bench --only B2`." in found
    assert "None has been judged yet." in page.made({}, ABOUT)[page.PAGE]


def test_a_quick_run_is_no_result() -> None:
    found = text(run(FAST, SLOW, quick=True))
    assert page.QUICK in found
    assert len(lines(found, "not judged")) == 4
    assert lines(found, "reached") == lines(found, "missed") == []


def test_a_run_takes_the_place_of_what_it_has_measured() -> None:
    found = taken(run(FAST, SMALL, day=1), run(SLOW, day=2, failed="B2"), run(PEER, SMALL, day=3, quick=True))
    assert {name: each.run["begun"][:10] for name, each in found.items()} == {"B1": "2026-11-02", "B2": "2026-11-01"}
    assert found["B1"].rows == (SLOW,)
    shown = page.made(found, ABOUT)[page.PAGE]
    assert shown.endswith(
        "- 2026-11-02 10:00 UTC at `c0ffee2`, a load of 0.5 before it began: B1\n"
        "- 2026-11-01 10:00 UTC at `c0ffee1`, a load of 0.5 before it began: B2\n"
    )


def test_the_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = taken(run(FAST, SLOW, PEER, SMALL))
    (tmp_path / "record.json").write_text(record.text(found))
    assert record.read(tmp_path / "record.json") == found


def test_pictures_say_what_they_show() -> None:
    files = page.made(taken(run(FAST, SLOW, PEER, SMALL)), ABOUT)
    pictures = {name: ElementTree.fromstring(drawn) for name, drawn in files.items() if name.endswith(".svg")}  # noqa: S314
    assert set(pictures) == {"pictures/bench-b1.svg", "pictures/bench-goals.svg"}  # B2 has nothing to compare
    assert all(f"]({name})" in files[page.PAGE] for name in pictures)
    spoken = {name: drawn.findtext("{*}desc") or "" for name, drawn in pictures.items()}
    assert spoken["pictures/bench-b1.svg"] == "fast <work>: 100 /s; a peer & its work: 50 /s"
    assert spoken["pictures/bench-goals.svg"].count("missed") == 2
    # The range of the rounds ends where nothing is longer, and the peer's bar is half of ours.
    wide, half = re.findall(
        r'class="(?:us|peer)" x="16" y="[\d.]+" width="([\d.]+)" height="14"', files["pictures/bench-b1.svg"]
    )
    assert abs(float(wide) - 2 * float(half)) < 0.2


def test_the_readme_has_what_is_judged_first() -> None:
    found = page.figures(taken(run(FAST, SLOW, PEER, SMALL)), ABOUT)
    assert found.splitlines()[2:] == [
        "| [Fast work](docs/benchmarks.md#b1-fast-work) | fast <work>: 100 /s "
        "| 2.00× a peer, 0.25× the floor | 1 of 2 |",
        "| [Small work](docs/benchmarks.md#b2-small-work) | small work: 30 MiB | 3.00× a peer | 0 of 1 |",
    ]
    assert "Nothing" in page.figures(taken(run(FAST, quick=True)), ABOUT)
    text = f"a\n{page.BEGIN}old\n{page.END}b\n"
    assert page.readme(text, "new\n") == f"a\n{page.BEGIN}\nnew\n\n{page.END}b\n"


def test_every_measure_says_what_it_is() -> None:
    about = page.measures()
    assert {f"B{number}" for number in range(1, 14)} <= set(about)
    for name, words in about.items():
        title, _, story = words.partition("\n\n")
        assert re.fullmatch(rf"{name}: [^\n]+\.", title)
        assert story


def test_the_table_of_a_run_shows_spread_and_verdict() -> None:
    shown = table([FAST, SLOW], [Failure("B2", "it did not start")])
    assert re.search(r"≥ 1\.5× +100 /s +90 … 130 +2\.00× a peer +1\.80× … 2\.60× +yes$", shown, re.MULTILINE)
    assert lines(shown, "0.25× the floor")[0].endswith("NO")
    assert shown.endswith("B2 FAILED: it did not start")
