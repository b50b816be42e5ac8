"""What a service answers and cannot be saved fails that entity, and no other (S5, S17)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from stages.definition import Definition
from tests.kit.remote import Service
from tests.kit.stages_rows import Stages, entity, visit, world


@pytest.fixture
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def _stage(stages: Stages, service: Service, **more: Any) -> Definition:
    found = service.stage(**more)
    stages.sync()
    return found


def _visited(stages: Stages, service: Service, *ids: str, **way: Any) -> None:
    """New entities, each visited once, and answered so."""
    service.behaves(process={"*": way})
    stages.put(*(ids or ("a",)), price=7)
    for name in ("system", "score.ask", "score"):
        stages.serve(name)


NONSENSE = {
    "has 'colour', and the entity has no such column": {"set": {"colour": "red"}},
    "lacks the column": {"raw": '{"id": "a"}'},
    "'id' cannot be changed": {"patch": {"id": "b"}},
    "'version' cannot be changed": {"set": {"version": 9}},
    "'id' cannot be changed: the key": {"set": {"id": "b"}},
    "'colour' cannot be changed": {"patch": {"colour": 1}},
    "must be a JSON object": {"raw": "[1]"},
    "is no JSON": {"raw_patch": "{"},
    "has no NaN": {"raw_patch": '{"price": NaN}'},
    "cannot be made of JSON": {"patch": {"price": "many"}},
    "cannot be used here": {"patch": {"price": 1}, "reads": ["colour"]},
    "has no outcome": {"no_outcome": True},
    "more than 100 years away": {"after": 10**10},
    "its time of": {"at": 10**14},
    "lies more than a day in the past": {"at": 1},
    "its state is an Any with type_url=''": {"state": ["", "00"]},
    "type_url='a/": {"state": ["a/\0b", "00"]},
    "unsupported Unicode": {"raw_patch": '{"status": "x\\u0000"}'},
    "out of range": {"set": {"price": 10**400}},
    "its state takes": {"state": ["example.com/large", "00" * (1024 * 1024 + 1)]},
    "was answered twice": {"times": 2},
    "was not answered": {"left_out": True},
    "answer is empty": {"no_result": True},
    "that it failed: it rains": {"failure": "it rains"},
}


@pytest.mark.parametrize("why", NONSENSE)
def test_nonsense_about_one_entity_fails_it_alone(stages: Stages, service: Service, why: str) -> None:
    # S17 S5: as what a local stage returns
    _stage(stages, service, max_attempts=2)
    service.behaves(process={"a": NONSENSE[why], "*": {"set": {"status": "fine"}}})
    stages.put("a", "b", "c", price=1)
    for name in ("system", "score.ask", "score"):
        stages.serve(name)
    assert [entity(each).status for each in "abc"] == ["new", "fine", "fine"]
    row = visit("a", "score")
    assert (row.state, row.attempts, row.alone) == ("waiting", 1, False)
    assert why in row.error
    assert row.not_before is not None
    stages.all_due()
    stages.serve("score")
    assert visit("a", "score").state == "parked"


def test_an_answer_about_a_stranger_changes_nothing(stages: Stages, service: Service) -> None:
    _stage(stages, service)
    stages.put("z", price=1)
    stages.forget()
    service.behaves(process={"a": {"times": 0, "strangers": ["z"], "set": {"status": "wrong"}}})
    stages.put("a")
    for name in ("system", "score.ask", "score"):
        stages.serve(name)
    assert entity("z").status == "new"
    assert "'z' was, which was not asked about" in visit("a", "score").error
