"""The mutants of functions of the database: their text, changed in one place each. Pure.

A mutant that Postgres refuses is noticed as well: nothing here knows SQL.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_CHANGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\bleast\(", ("greatest(",)),
    (r"\bgreatest\(", ("least(",)),
    (r"\bmin\(", ("max(",)),
    (r"\bmax\(", ("min(",)),
    (r"\bbool_or\(", ("bool_and(",)),
    (r" < ", (" <= ", " >= ")),
    (r" > ", (" >= ", " <= ")),
    (r"(?<=state|field|known|. new) = ", (" <> ",)),
    (r" <> ", (" = ",)),
    (r" is distinct from ", (" is not distinct from ",)),
    (r" is not false", (" is true",)),
    (r" is not null", (" is null",)),
    (r" is null", (" is not null",)),
    (r" and ", (" or ",)),
    (r" or ", (" and ",)),
    (r"\bnot low\b", ("low",)),
    (r"\bwhen low\b", ("when not low",)),
    (r"coalesce\((\w+), \w+\)", (r"\1",)),
    (r"\bunion\b", ("union all",)),
    (r"\bold\.(?!state)", ("excluded.",)),
    (r"\bexcluded\.", ("old.",)),
    (r"\bdue_at\b(?! = )", ("low_at",)),
    (r"\blow_at\b(?! = )", ("due_at",)),
    (r"\bagain_at\b(?! = )", ("again_low_at",)),
    (r"\bagain_low_at\b(?! = )", ("again_at",)),
    (r"\b(?<=old\.)(fields|hops|chain)\b", (r"again_\1",)),
    (r"\b(?<=old\.)again_(fields|hops|chain)\b", (r"\1",)),
    (r"(?<![\w'\[:])\d+(?![\w'\]])", ("{more}",)),
)
_FUNCTION = r"create function tidemill\.{}\(.*?\n\$\$;"
_SHOWN = 24


def function(source: str, name: str) -> str:
    """As it stands in a migration; to be put in the place of what is there."""
    found = re.search(_FUNCTION.format(name), source, re.DOTALL)
    assert found, name
    return found[0].replace("create function", "create or replace function", 1)


def mutants(source: str, name: str) -> Iterator[tuple[str, str]]:
    """What is changed, and the function with that change."""
    text = function(source, name)
    begin, met = text.index("as $$"), Counter[str]()
    for pattern, instead in _CHANGES:
        for match in re.finditer(pattern, text):
            line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
            if match.start() < begin or "--" in line or "raise exception" in line:
                continue
            for template in instead:
                more = str(int(match[0]) + 1) if template == "{more}" else ""
                new = more or match.expand(template)
                key = f"{name}: {_shown(text, match)} → {new.strip()}"
                met[key] += 1
                changed = f"{text[: match.start()]}{new}{text[match.end() :]}"
                yield (key if met[key] == 1 else f"{key} #{met[key]}"), changed


def _shown(text: str, match: re.Match[str]) -> str:
    """With what stands before and after it in its line."""
    before, after = text[: match.start()].rpartition("\n")[2], text[match.end() :].partition("\n")[0]
    return f"{before[-_SHOWN:].lstrip()}[{match[0].strip()}]{after[:_SHOWN].rstrip()}"
