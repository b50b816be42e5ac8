"""The list of mutants that are the same program names mutants that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.cores import CORES
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


@pytest.mark.parametrize("module", EQUIVALENT)
def test_what_is_said_to_be_equivalent_is_a_mutant(module: str) -> None:
    assert module in CORES
    assert EQUIVALENT[module].keys() - keys(Path(ROOT, *module.split(".")).with_suffix(".py").read_text()) == set()
    assert all(EQUIVALENT[module].values())


def test_every_core_has_its_tests() -> None:
    assert [each for tests in CORES.values() for each in tests if not (ROOT / each).exists()] == []


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
