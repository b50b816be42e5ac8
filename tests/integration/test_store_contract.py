"""What every storage of entities promises (S9, S20), on SQLAlchemy models of all shapes and on a store of documents."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.db import new_engine
from app.errors import BadOutcome, BadRequest
from stages import Change, Loaded
from stages.sql_arrays import array
from stages.sql_store import SqlStore
from stages.store import Together
from tests.kit import entities
from tests.kit.database import Databases
from tests.kit.entities import CASES, Case, exported
from tests.kit.plans import captured
from tests.kit.waiting import wait_until


@pytest.fixture(scope="module")
def stored(_databases: Databases) -> Iterator[Engine]:
    url = _databases.clone()
    engine = new_engine(url, pool_size=3)
    entities.create_all(engine)
    yield engine
    engine.dispose()
    _databases.drop(url)


@pytest.fixture
def session(stored: Engine) -> Iterator[Session]:
    with Session(stored) as found:
        yield found
    entities.clear(stored)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """Each store in turn. One of models has few of its statements prepared: each test begins with none."""
    found = CASES[request.param]
    store = found.store
    return replace(found, store=SqlStore(store._shape.entity_class)) if isinstance(store, SqlStore) else found


def change(case: Case, loaded: Loaded, **values: Any) -> Change:
    for name, value in values.items():
        setattr(loaded.entity, name, value)
    return Change(loaded.id, loaded.version, case.store.changes(loaded, loaded.entity))


def rows(case: Case, session: Session, ids: list[str]) -> list[tuple[str, int, int]]:
    """Title, amount and version, as they are now."""
    session.rollback()
    found = case.store.load(session, ids)
    return [(found[each].entity.title, found[each].entity.amount, found[each].version) for each in ids]


def test_a_batch_is_loaded_by_one_query(case: Case, session: Session) -> None:
    ids = case.put(session, 6)
    with captured(session.get_bind()) as statements:  # type: ignore[arg-type]
        found = case.store.load(session, ids[1:5])
    assert len(statements) == 1
    assert found.keys() == set(ids[1:5])
    for i in range(1, 5):
        loaded = found[ids[i]]
        assert (loaded.id, loaded.version) == (ids[i], 1)
        assert (loaded.entity.title, loaded.entity.amount, loaded.entity.version) == (f"title {i}", i, 1)


def test_what_there_is_not_is_not_loaded(case: Case, session: Session) -> None:
    ids = case.put(session, 4)
    gone = case.store.loaded(case.make(9)).id
    for unknown in (gone, "no id/of\\any table", "99999999999999999999", "nul\0"):
        assert case.store.load(session, [ids[0], unknown, ids[3]]).keys() == {ids[0], ids[3]}
    assert case.store.load(session, []) == {}


def test_what_is_loaded_belongs_to_no_session(case: Case, session: Session) -> None:
    ids = case.put(session, 2)
    found = case.store.load(session, ids)
    found[ids[0]].entity.title = "not saved"
    session.commit()
    assert rows(case, session, ids) == [("title 0", 0, 1), ("title 1", 1, 1)]
    assert case.store.load(session, ids)[ids[0]].entity is not found[ids[0]].entity


def test_changes_are_what_differs_by_field(case: Case, session: Session) -> None:
    (id_,) = case.put(session, 1)
    loaded = case.store.load(session, [id_])[id_]
    assert case.store.changes(loaded, loaded.entity) == {}
    loaded.entity.title = "".join(["title", " 0"])
    assert case.store.changes(loaded, loaded.entity) == {}
    loaded.entity.title, loaded.entity.amount = "new", 7
    assert case.store.changes(loaded, loaded.entity) == {"heading": "new", "amount": 7}
    loaded.entity.title = "title 0"
    assert case.store.changes(loaded, loaded.entity) == {"amount": 7}


def test_an_entity_in_memory_has_changes_too(case: Case) -> None:
    entity = case.make(3)
    loaded = case.store.loaded(entity)
    assert (loaded.entity, loaded.version) == (entity, 1)
    entity.amount += 1
    assert case.store.changes(loaded, entity) == {"amount": 4}


def test_changes_of_something_else_are_refused(case: Case, session: Session) -> None:
    ids = case.put(session, 2)
    found = case.store.load(session, ids)
    one, other = found[ids[0]], found[ids[1]]
    with pytest.raises(BadOutcome):
        case.store.changes(one, object())
    with pytest.raises(BadOutcome):
        case.store.changes(one, other.entity)
    one.entity.version = 2
    with pytest.raises(BadOutcome):
        case.store.changes(one, one.entity)


def test_a_patch_sets_and_says_what_it_changed(case: Case, session: Session) -> None:
    (id_,) = case.put(session, 1)
    loaded = case.store.load(session, [id_])[id_]
    assert case.store.patched(loaded, {"title": "new", "amount": 0}) == {"heading": "new"}
    assert loaded.entity.title == "new"
    for name in ("heading", "nonsense", "version", "__dict__"):
        with pytest.raises(BadOutcome):
            case.store.patched(loaded, {"title": "newer", name: 1})
    assert loaded.entity.title == "new"


def test_others_are_asked_about_what_will_be_saved(case: Case, session: Session) -> None:
    (id_,) = case.put(session, 1)
    loaded = case.store.load(session, [id_])[id_]
    loaded.entity.title = "new"
    renewed = case.store.renewed(loaded, loaded.entity)
    assert (renewed.title, renewed.version) == ("new", loaded.version + 1)


def test_reading_gives_what_was_loaded(case: Case, session: Session) -> None:
    (id_,) = case.put(session, 1)
    loaded = case.store.load(session, [id_])[id_]
    loaded.entity.title = "new"
    assert case.store.read(loaded, ["title", "amount"]) == {"title": "title 0", "amount": 0}
    with pytest.raises(BadOutcome):
        case.store.read(loaded, ["heading"])


def test_fields_are_the_names_of_columns(case: Case) -> None:
    assert case.store.fields(["title", "amount"]) == {"heading", "amount"}
    assert case.store.fields([]) == frozenset()
    for name in ("heading", "version", "id" if case.name != "int" else "number"):
        with pytest.raises(BadRequest):
            case.store.fields(["title", name])


def test_a_batch_is_saved_by_one_statement(case: Case, session: Session) -> None:
    ids = case.put(session, 60)
    found = case.store.load(session, ids)
    changes = [change(case, found[each], amount=1000 + i) for i, each in enumerate(ids)]
    with captured(session.get_bind()) as statements:  # type: ignore[arg-type]
        assert case.store.save(session, changes) == set(ids)
    assert len([each for each in statements if not each.text.startswith("PREPARE ")]) == 1
    session.commit()
    assert rows(case, session, ids) == [(f"title {i}", 1000 + i, 2) for i in range(60)]


def test_each_entity_has_changes_of_its_own(case: Case, session: Session) -> None:
    ids = case.put(session, 5)
    found = case.store.load(session, ids)
    changes = [
        change(case, found[ids[0]], title="a"),
        change(case, found[ids[3]], amount=-1),
        change(case, found[ids[2]], title="c", amount=-2),
        Change(ids[4], 1, {}),
    ]
    # Not in what is written: neither what lies in memory, nor what somebody else has written into other columns.
    found[ids[0]].entity.amount = 99
    assert case.store.save(session, changes) == {ids[0], ids[2], ids[3], ids[4]}
    session.commit()
    assert rows(case, session, ids) == [
        *(("a", 0, 2), ("title 1", 1, 1), ("c", -2, 2)),
        *(("title 3", -1, 2), ("title 4", 4, 2)),
    ]
    assert case.store.save(session, []) == set()


@pytest.mark.parametrize("alike", [True, False])
def test_a_save_can_be_a_part_of_a_larger_statement(case: Case, session: Session, *, alike: bool) -> None:
    if not isinstance(case.store, Together):
        assert case.name == "document", "which saves by itself"
        return
    ids = case.put(session, 20)
    changes = [Change(each, 1, {"amount": 7} if alike or i % 2 else {"heading": "x"}) for i, each in enumerate(ids)]
    changes[3].version = 2
    made = case.store.writing(changes)
    assert made is not None
    writing, parameters = made
    saved = writing.written(writing.held(("id", sa.Text)))
    rows = session.execute(sa.select(*(saved.c[name] for name in ("id", "version")), sa.cast(saved.c.entity, sa.Text)),
                           parameters | {"p_id": array(ids)}).all()  # fmt: skip
    assert {row.id: row.version for row in rows} == dict.fromkeys([*ids[:3], *ids[4:]], 2)
    documents = exported(case.store, session, ids)
    assert {row.id: row.entity for row in rows} == {each: documents[each] for each in ids if each != ids[3]}


def test_a_version_that_is_not_the_loaded_one_is_not_saved(case: Case, session: Session) -> None:  # S9
    ids = case.put(session, 3)
    found = case.store.load(session, ids)
    changes = [change(case, found[each], amount=50) for each in ids]
    assert case.store.save(session, changes[1:2]) == {ids[1]}
    gone = case.store.loaded(case.make(9)).id
    assert case.store.save(session, [*changes, Change(gone, 1, {"amount": 50})]) == {ids[0], ids[2]}
    session.commit()
    assert [row[2] for row in rows(case, session, ids)] == [2, 2, 2]


def test_two_changes_of_one_entity_are_refused(case: Case, session: Session) -> None:
    (id_,) = case.put(session, 1)
    with pytest.raises(BadRequest):
        case.store.save(session, [Change(id_, 1, {"amount": 1}), Change(id_, 1, {"amount": 2})])


def held(case: Case, other: Session, id_: str) -> None:
    """By a transaction that stays open, with a new version."""
    loaded = case.store.load(other, [id_])[id_]
    assert case.store.save(other, [change(case, loaded, title="the other's")]) == {id_}


def test_what_somebody_holds_is_skipped(case: Case, session: Session, stored: Engine) -> None:
    ids = case.put(session, 3)
    found = case.store.load(session, ids)
    changes = [change(case, found[each], amount=50) for each in ids]
    with Session(stored) as other:
        held(case, other, ids[1])
        assert case.store.save(session, changes) == {ids[0], ids[2]}
        session.commit()
        other.rollback()
    assert case.store.save(session, changes[1:2]) == {ids[1]}


def test_who_waits_waits_as_long_as_he_said(case: Case, session: Session, stored: Engine) -> None:
    ids = case.put(session, 2)
    found = case.store.load(session, ids)
    changes = [change(case, found[each], amount=50) for each in ids]
    with Session(stored) as other:
        held(case, other, ids[1])
        session.execute(sa.select(sa.func.set_config("lock_timeout", "10ms", True)))
        with pytest.raises(OperationalError, match="lock timeout"):
            case.store.save(session, changes, wait=True)
    session.rollback()
    assert case.store.save(session, changes, wait=True) == set(ids)


@pytest.mark.parametrize("commits", [True, False])
def test_who_waited_compares_with_what_came_of_it(
    case: Case,
    session: Session,
    stored: Engine,
    commits: bool,  # noqa: FBT001
) -> None:
    ids = case.put(session, 2)
    found = case.store.load(session, ids)
    changes = [change(case, found[each], amount=50) for each in ids]
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    with Session(stored) as other, Session(stored) as looking, ThreadPoolExecutor(1) as thread:
        held(case, other, ids[1])
        saved = thread.submit(case.store.save, session, changes, wait=True)
        wait_until(lambda: looking.execute(waiting).scalar_one())
        other.commit() if commits else other.rollback()
        assert saved.result() == (set(ids[:1]) if commits else set(ids))
    session.commit()
    assert rows(case, session, ids[1:]) == [("the other's", 1, 2) if commits else ("title 1", 50, 2)]


def test_the_triggers_of_the_table_know_that_a_stage_saves(case: Case, session: Session) -> None:
    setting = sa.select(sa.func.coalesce(sa.func.nullif(sa.func.current_setting("tidemill.saving", True), ""), "off"))
    session.execute(sa.text("CREATE TABLE public.fired (name text, saving text)"))
    session.execute(
        sa.text(
            """
            CREATE FUNCTION public.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO public.fired VALUES (TG_LEVEL || TG_WHEN, current_setting('tidemill.saving', true));
                RETURN NEW;
            END $$
            """
        )
    )
    for when in ("AFTER UPDATE", "BEFORE UPDATE"):
        level = "STATEMENT" if when.startswith("AFTER") else "ROW"
        name = f"public.{case.table} FOR EACH {level} EXECUTE FUNCTION public.fire()"
        session.execute(sa.text(f"CREATE TRIGGER fire_{level} {when} ON {name}"))
    session.commit()
    try:
        ids = case.put(session, 2)
        found = case.store.load(session, ids)
        assert session.execute(setting).scalar_one() == "off"
        assert case.store.save(session, [change(case, found[each], amount=50) for each in ids]) == set(ids)
        saving = session.execute(setting).scalar_one()
        assert saving in ("on", '["amount"]'), "all that can change, or which fields"
        fired = session.execute(sa.text("SELECT name, saving FROM public.fired ORDER BY name")).all()
        assert fired == [("ROWBEFORE", saving), ("ROWBEFORE", saving), ("STATEMENTAFTER", saving)]
        session.commit()
        assert session.execute(setting).scalar_one() == "off"
    finally:
        session.rollback()
        session.execute(sa.text("DROP FUNCTION public.fire() CASCADE"))
        session.execute(sa.text("DROP TABLE public.fired"))
        session.commit()


def test_versions_of_those_that_exist(case: Case, session: Session) -> None:
    ids = case.put(session, 3)
    found = case.store.load(session, ids)
    case.store.save(session, [change(case, found[ids[1]], amount=50)])
    gone = case.store.loaded(case.make(9)).id
    assert case.store.versions(session, [*ids, gone]) == {ids[0]: 1, ids[1]: 2, ids[2]: 1}
    assert case.store.versions(session, []) == {}


def test_pages_go_through_all_in_order(case: Case, session: Session) -> None:
    ids = case.put(session, 20)
    seen: list[str] = []
    while page := case.store.page(session, seen[-1] if seen else None, None, 6):
        assert len(page) <= 6
        seen += [each.id for each in page]
    assert seen == ids
    assert [each.id for each in case.store.page(session, ids[3], ids[6], 10)] == ids[4:7]
    assert [each.id for each in case.store.page(session, None, ids[2], 10)] == ids[:3]
    assert case.store.page(session, ids[5], ids[5], 10) == []
    (one,) = case.store.page(session, ids[5], None, 1)
    assert (one.entity.title, one.version) == ("title 6", 1)
    assert case.store.changes(one, one.entity) == {}


def test_ids_are_those_of_the_page(case: Case, session: Session) -> None:
    ids = case.put(session, 20)
    for after, until, limit in ((None, None, 6), (ids[3], ids[6], 10), (None, ids[2], 10), (ids[5], ids[5], 10)):
        page = case.store.page(session, after, until, limit)
        assert case.store.ids(session, after, until, limit) == [each.id for each in page]


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 40])
def test_cuts_make_about_equal_ranges(case: Case, session: Session, parts: int) -> None:
    assert case.store.split(session, parts) == []
    ids = case.put(session, 30)
    cuts = case.store.split(session, parts)
    assert cuts == sorted(set(cuts), key=ids.index)
    bounds = [None, *cuts, None]
    sizes = [len(case.store.page(session, after, until, 100)) for after, until in pairwise(bounds)]
    assert sum(sizes) == 30
    assert len(sizes) == min(parts, 30)
    assert max(sizes) - min(sizes) <= 1


def test_few_are_counted_exactly(case: Case, session: Session) -> None:
    assert case.store.count(session) == 0
    case.put(session, 13)
    assert case.store.count(session) == 13
