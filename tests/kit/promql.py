"""The names in an expression of PromQL, as far as alert rules and dashboards need it; not its grammar."""

from __future__ import annotations

import re
from dataclasses import dataclass

_STRING = r"\"(?:[^\"\\]|\\.)*\""
_SELECTOR = re.compile(rf"([a-zA-Z_:][\w:]*)\{{((?:[^{{}}\"]|{_STRING})*)\}}")
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_STRING})")
_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"(?<![\w.$])[a-zA-Z_:][\w:]*")
WORDS = {"and", "or", "unless", "bool", "offset"} | {
    *(
        "sum",
        "max",
        "min",
        "avg",
        "count",
        "topk",
        "rate",
        "increase",
        "histogram_quantile",
        "clamp_min",
        "label_values",
    ),
}


@dataclass(frozen=True)
class Asked:
    metrics: frozenset[str]
    #: Of each metric: label and value, where it is matched by `=` or `=~`.
    matched: frozenset[tuple[str, str, str]]
    grouped: frozenset[str]


def asked(expression: str) -> Asked:
    matched = {
        (metric, label, value.strip('"'))
        for metric, inside in _SELECTOR.findall(expression)
        for label, _, value in _MATCHER.findall(inside)
    }
    grouped = {
        label for _, inside in _GROUPING.findall(expression) for each in inside.split(",") if (label := each.strip())
    }
    plain = _RANGE.sub("", _GROUPING.sub("", re.sub(r"\{[^{}]*\}", "", expression)))
    names = {name for name in _NAME.findall(plain) if name not in WORDS}
    return Asked(frozenset(names), frozenset(matched), frozenset(grouped))
