"""Each rule is named by a test that proves it; and what tests name are rules."""

from __future__ import annotations

import re
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
RULE = re.compile(r"\b[JPRST]\d{1,2}\b")


def _rules() -> set[str]:
    return set(re.findall(r"^### ([A-Z]\d+)$", (ROOT / "docs" / "reference" / "rules.md").read_text(), re.MULTILINE))


def _named() -> dict[str, set[str]]:
    """By rule, the tests that name it in a comment."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        with path.open("rb") as text:
            for token in tokenize.tokenize(text.readline):
                for rule in RULE.findall(token.string) if token.type == tokenize.COMMENT else ():
                    found[rule].add(path.name)
    return found


def test_every_rule_is_named_by_a_test() -> None:
    assert sorted(_rules() - _named().keys()) == []


def test_what_tests_name_are_rules() -> None:
    # Those of the linter have three digits.
    assert {rule: files for rule, files in _named().items() if rule not in _rules()} == {}


def test_the_guide_says_where_things_are() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(r"^## Where to change what$.*?(?=^## )", guide, re.MULTILINE | re.DOTALL)
    assert section is not None
    named = {name for name in re.findall(r"`([^`]+)`", section[0]) if "/" in name}
    assert len(named) > 60
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
