"""The arithmetic of docs/scale.md is right, and its figures are those of its table."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from tests.kit.process import ROOT

TEXT = (ROOT / "docs" / "scale.md").read_text()
SUMS = re.findall(r"`([\d_ .*+/()-]+) = ([\d_.]+)`", TEXT)
OPERATIONS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.BinOp(left=left, op=op, right=right):
            return OPERATIONS[type(op)](value(left), value(right))
        case other:
            raise AssertionError(ast.unparse(other))


def test_what_is_reckoned_is_right() -> None:
    assert len(SUMS) > 10
    wrong = [
        (sum_, said)
        for sum_, said in SUMS
        if abs(value(ast.parse(sum_, mode="eval").body) - float(said)) > 0.005 * float(said)
    ]
    assert wrong == []


def test_figures_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| [^|]+ \| ([\d,-]+) \| ([\d,]+) \| [\w, ]+ \|$", TEXT, re.MULTILINE)
    measured = {figure.replace(",", "") for row in rows for figure in row}
    # Of work and bytes, not of connections.
    used = {word for sum_, _ in SUMS if "_" in sum_ for word in re.findall(r"(?<![\d_])\d{3,4}(?![\d_])", sum_)}
    assert {each for each in used - measured if int(each) % 100} == set()
    assert len(used & measured) > 3
