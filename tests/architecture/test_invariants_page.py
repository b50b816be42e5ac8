"""The page of invariants says what the catalogue says. `python -m tests.architecture.test_invariants_page` writes its
tables anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recovery.findings import Verdict
from recovery.invariants import ALL, DOMAINS, Invariant

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "invariants.md"
HEAD = "| what holds | verdict | recorded as | what is done |\n|---|---|---|---|\n"


def row(each: Invariant) -> str:
    recorded = f"`{each.finding}`" if each.repair is not None else ""
    mark = "" if each.bound is None else " ¹"
    return f"| {each.name}{mark} | {each.verdict} | {recorded} | {each.cure} |\n"


def tables() -> Iterator[tuple[str, str]]:
    for domain in DOMAINS:
        yield domain, HEAD + "".join(row(each) for each in ALL if each.domain == domain)


def written() -> str:
    text = PAGE.read_text()
    for domain, table in tables():
        before, mark, rest = text.partition(f"<!-- {domain} -->\n")
        text = before + mark + table + rest[rest.index("<!-- end -->") :]
    return text


def test_the_page_is_that_of_the_catalogue() -> None:
    assert PAGE.read_text() == written(), "run: python -m tests.architecture.test_invariants_page"
    for domain, table in tables():
        assert table in PAGE.read_text(), domain


def test_each_verdict_is_used_and_explained() -> None:
    assert {each.verdict for each in ALL} == set(Verdict)
    for verdict in Verdict:
        assert f"**{verdict}**" in PAGE.read_text()


def test_names_and_counters_are_told_apart() -> None:
    assert len({each.name for each in ALL}) == len(ALL)
    own = [each.counter for each in ALL if each.domain != "process"]
    assert len(own) == len(set(own))


if __name__ == "__main__":
    PAGE.write_text(written())
