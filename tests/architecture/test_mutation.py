"""The list of mutants that are the same program names mutants that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation import sql
from tests.mutation.cores import CORES, IN_SQL, MERGE_RULE, OF_MERGE_RULE, OF_SQL
from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.mutants import keys, mutants

ROOT = Path(__file__).parents[2]
SOURCE = """
class Shelf:
    def room(self, books: int, least: int = 3) -> bool:
        \"\"\"Text is left alone.\"\"\"
        if books < least and self.full:
            return not self.full
        raise ValueError(f"{books + 1} books")
"""


def found_in(module: str) -> set[str]:
    if module == MERGE_RULE:
        source = (ROOT / OF_SQL).read_text()
        return {key for name in IN_SQL for key, _ in sql.mutants(source, name)}
    assert module in CORES
    return keys(Path(ROOT, *module.split(".")).with_suffix(".py").read_text())


@pytest.mark.parametrize("module", EQUIVALENT)
def test_what_is_said_to_be_equivalent_is_a_mutant(module: str) -> None:
    assert EQUIVALENT[module].keys() - found_in(module) == set()
    assert all(EQUIVALENT[module].values())


def test_every_core_has_its_tests() -> None:
    assert [each for tests in (*CORES.values(), OF_MERGE_RULE) for each in tests if not (ROOT / each).exists()] == []


def test_a_mutant_is_one_change_of_one_function() -> None:
    found = list(mutants(SOURCE, "shelf.py"))
    assert [each.key.removeprefix("Shelf.room: ") for each in found] == [
        "books < least and self.full → books < least or self.full",
        "books < least and self.full → not (books < least and self.full)",
        "books < least → books <= least",
        "books < least → books >= least",
        "return not self.full → return None",
        "not self.full → self.full",
        "raise ValueError(f'{books + 1} books') → pass",
    ]
    assert {each.function for each in found} == {"Shelf.room"}
    assert [each.codes.keys() for each in found] == [{("Shelf.room", 3)}] * len(found)
    assert len({code.co_code for each in found for code in each.codes.values()}) == len(found)


RULE = """
create function tidemill.earlier(due_at timestamptz) returns timestamptz as $$
    -- min( is a word here.
    select case when old.state = 'waiting' then least(old.due_at, due_at) end
$$;
create function tidemill.other() returns int as $$ select least(1, 2) $$;
"""


def test_a_mutant_in_sql_is_one_change_of_one_function() -> None:
    found = dict(sql.mutants(RULE, "earlier"))
    assert [each.partition("[")[2] for each in found] == [
        "least(]old.due_at, due_at) end → greatest(",
        "=]'waiting' then least(old → <>",
        "old.]due_at, due_at) end → excluded.",
        "due_at], due_at) end → low_at",
        "due_at]) end → low_at",
    ]
    assert len(set(found.values())) == len(found)
    assert all("other" not in each and "create or replace function" in each for each in found.values())
