"""Workers of the release before go on while the new schema is there: a migration adds, and takes nothing away."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.process import ROOT

VERSIONS = sorted((ROOT / "app" / "migrations" / "versions").glob("[0-9]*.py"))
#: What old code may rely on goes with these. An index is none of it: without one a query is slower.
TAKES_AWAY = {"drop_table", "drop_column", "rename_table", "alter_column"}

#: A computed column with another expression: under its name there is one before and after.
MADE_ANEW = {
    "0016_fingerprints": [
        "op.drop_column('broken_task', 'fingerprint', schema='tidemill')",
        "op.alter_column('broken_task', 'made', new_column_name='fingerprint', schema='tidemill')",
    ]
}


def calls(path: Path) -> Iterator[ast.Call]:
    """Those of `op` in `upgrade`, and in what else the module has, but for `downgrade`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name != "downgrade":
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("op."):
                    yield call


def test_there_are_migrations_that_do_something() -> None:
    assert len(VERSIONS) >= 10
    assert any(ast.unparse(call.func) == "op.add_column" for path in VERSIONS for call in calls(path))


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_a_migration_takes_nothing_away(path: Path) -> None:
    taken = [ast.unparse(call) for call in calls(path) if ast.unparse(call.func)[3:] in TAKES_AWAY]
    assert taken == MADE_ANEW.get(path.stem, [])


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_rows_of_old_workers_fit_into_new_columns(path: Path) -> None:
    """Who does not know a column does not fill it."""
    for call in calls(path):
        if ast.unparse(call.func) != "op.add_column":
            continue
        column = next(
            each for each in ast.walk(call) if isinstance(each, ast.Call) and "Column" in ast.unparse(each.func)
        )
        filled = any(word in ast.unparse(column) for word in ("server_default=", "Computed(", "Identity("))
        assert filled or "nullable=False" not in ast.unparse(column), ast.unparse(call)
