"""Every write of a watched table moves the version and enqueues the system stage, whoever makes it (S7)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from app.db import engine, transaction
from stages.identity import Codec
from stages.sql_store import SqlStore
from stages.store import Change
from tests.kit.stages_rows import Offer, Stages, entity, execute, visits, waiting, world

EVERYTHING = ["*"]


@pytest.fixture(autouse=True)
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def changed() -> dict[str, list[str]]:
    """Of which entities the system stage has heard, and what it knows of them; it hears anew from here on."""
    found = {row.entity_id: row.fields for row in visits("system")}
    execute("DELETE FROM tidemill.stage_visit")
    return found


def put(*ids: str, **values: Any) -> None:
    with transaction() as session:
        session.add_all([Offer(id=each, **values) for each in ids])
    changed()


def versions(table: str = "offer") -> list[int]:
    return [row.version for row in execute(" ".join(["SELECT version FROM", table, "ORDER BY id"]))]


# By whatever way


def test_a_flush_of_the_orm() -> None:
    # S7
    with transaction() as session:
        offers = [Offer(id=each) for each in "ab"]
        session.add_all(offers)
    assert changed() == {"a": EVERYTHING, "b": EVERYTHING}
    with transaction() as session:
        found = session.get_one(Offer, "a")
        found.price, found.status = 7, "sold"
        session.flush()
        assert found.version == 2, "the mapper knows that the database has moved it"
    assert changed() == {"a": ["price", "status"]}
    with transaction() as session:
        session.delete(session.get(Offer, "a"))
    assert changed() == {}
    assert versions() == [1]


def test_a_bulk_update() -> None:
    # S7
    put("a", "b", "c")
    with transaction() as session:
        session.execute(sa.update(Offer).where(Offer.id != "c").values(price=1))
        session.execute(sa.update(Offer), [{"id": "c", "status": "x"}])
    assert changed() == {"a": ["price"], "b": ["price"], "c": ["status"]}
    assert versions() == [2, 2, 2]


def test_an_upsert() -> None:
    # S7
    put("a")
    insert = postgresql.insert(Offer).values([{"id": "a", "price": 1}, {"id": "b", "price": 1}])
    with transaction() as session:
        session.execute(insert.on_conflict_do_update(index_elements=["id"], set_={"price": 1}))
        session.execute(insert.on_conflict_do_nothing())
    assert changed() == {"a": ["price"], "b": EVERYTHING}
    assert versions() == [2, 1]


def test_copy() -> None:
    # S7
    with engine().connect() as connection:
        raw: Any = connection.connection
        raw.cursor().copy_expert("COPY offer (id, price) FROM STDIN", io.StringIO("a\t1\nb\t2\n"))
        raw.commit()
    assert changed() == {"a": EVERYTHING, "b": EVERYTHING}


def test_plain_sql_of_another_program() -> None:
    # S7
    with engine().connect() as connection:
        raw: Any = connection.connection
        cursor = raw.cursor()
        cursor.executemany("INSERT INTO offer (id) VALUES (%s)", [("a",), ("b",), ("c",)])
        raw.commit()
        assert changed() == dict.fromkeys("abc", EVERYTHING)
        cursor.executemany("UPDATE offer SET price = %s WHERE id = %s", [(1, "a"), (2, "b"), (3, "a")])
        raw.commit()
    assert changed() == {"a": ["price"], "b": ["price"]}
    assert versions() == [3, 2, 1]


def test_merge() -> None:
    # S7
    put("a", "b", "c")
    execute(
        "MERGE INTO offer USING (VALUES ('a', 1), ('b', 2), ('d', 4)) AS new (id, price) ON offer.id = new.id "
        "WHEN MATCHED AND new.price = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET price = new.price "
        "WHEN NOT MATCHED THEN INSERT (id, price) VALUES (new.id, new.price)"
    )
    assert changed() == {"a": ["price"], "d": EVERYTHING}
    assert versions() == [2, 1, 1]


def test_one_statement_enqueues_all_that_it_writes() -> None:
    # S7
    execute("INSERT INTO offer (id) SELECT 'e' || i FROM generate_series(1, 1000) i")
    assert len(changed()) == 1000
    execute("UPDATE offer SET price = 1 WHERE id LIKE 'e1%'")
    assert set(changed()) == {row.id for row in execute("SELECT id FROM offer WHERE version = 2")}


def test_what_matches_nothing_enqueues_nothing() -> None:
    execute("UPDATE offer SET price = 1")
    execute("DELETE FROM offer")
    execute("INSERT INTO offer (id) SELECT 'a' WHERE false")
    assert waiting() == []


def test_a_write_within_the_trigger_of_another_table() -> None:
    # S7
    put("a")
    execute("CREATE TABLE public.line (offer text REFERENCES offer ON DELETE CASCADE ON UPDATE CASCADE)")
    execute(
        "CREATE FUNCTION public.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "UPDATE offer SET price = 1 WHERE id = new.offer; RETURN new; END $$"
    )
    execute("CREATE TRIGGER touch AFTER INSERT ON line FOR EACH ROW EXECUTE FUNCTION public.touch()")
    try:
        execute("INSERT INTO line VALUES ('a')")
        assert changed() == {"a": ["price"]}
    finally:
        execute("DROP TABLE public.line")
        execute("DROP FUNCTION public.touch")


# Gone, or another


def test_deleted_it_is_forgotten(stages: Stages) -> None:
    put("a", "b")
    execute("UPDATE offer SET price = 1")
    for each in "ab":
        execute("INSERT INTO tidemill.stage_state VALUES ('offer', :id, 'publish', 'url', '')", id=each)
        execute("INSERT INTO tidemill.entity_guard VALUES ('offer', :id, 'publish', gen_random_uuid(), now())", id=each)
    execute("DELETE FROM offer WHERE id = 'a'")
    for table in ("stage_visit", "stage_state", "entity_guard"):
        rows = execute(sa.select(sa.column("entity_id")).select_from(sa.table(table, schema="tidemill")))
        assert [row.entity_id for row in rows] == ["b"], table


def test_truncated_all_are_forgotten() -> None:
    put("a", "b")
    execute("UPDATE offer SET price = 1")
    execute("INSERT INTO tidemill.stage_state VALUES ('offer', 'z', 'publish', 'url', '')")
    execute("INSERT INTO lot (id) VALUES ('a')")
    execute("TRUNCATE offer")
    assert [(row.kind, row.entity_id) for row in visits()] == [("lot", "a")]
    assert execute("SELECT * FROM tidemill.stage_state") == []


def test_a_changed_id_is_another_entity() -> None:
    put("a", "b")
    execute("UPDATE offer SET price = 1")
    execute("INSERT INTO tidemill.stage_state VALUES ('offer', 'a', 'publish', 'url', '')")
    execute("UPDATE offer SET id = 'c' WHERE id = 'a'")
    assert changed() == {"b": ["price"], "c": EVERYTHING}
    assert execute("SELECT * FROM tidemill.stage_state") == []


def test_swapped_ids_are_changes_of_both() -> None:
    execute(
        "CREATE TABLE public.swap (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, x int, version bigint NOT NULL)"
    )
    execute("SELECT tidemill.watch('swap')")
    execute("INSERT INTO swap VALUES (1, 10, 1), (2, 20, 1), (3, 30, 1)")
    changed()
    execute("UPDATE swap SET id = 3 - id WHERE id < 3")
    assert changed() == {"1": ["x"], "2": ["x"]}
    execute("DROP TABLE swap")


# What has changed


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ("price = price", []),
        ("price = 5, status = 'b'", ["price", "status"]),
        ("price = null", ["price"]),
        ("note = null", ["note"]),
        ("note = '{\"a\": 1}'", []),
        ("note = '{\"a\": 1.0}'", []),
        ('note = \'{"a": "1"}\'', ["note"]),
        ("note = 'null'", ["note"]),
        ("version = 17", []),
        ("version = 17, status = 'z'", ["status"]),
    ],
)
def test_the_changed_fields_are_exact(change: str, fields: list[str]) -> None:
    # S8
    execute("INSERT INTO offer (id, price, status, note) VALUES ('a', 1, 'a', '{\"a\": 1}')")
    changed()
    execute(" ".join(["UPDATE offer SET", change]))
    assert changed() == {"a": fields}


def test_several_changes_before_anybody_looked_are_put_together() -> None:
    # S8
    put("a", "b")
    for change in ("price = 1", "status = 'x'", "price = 2", "note = '1'"):
        execute(" ".join(["UPDATE offer SET", change, "WHERE id = 'a'"]))
    execute("INSERT INTO offer (id) VALUES ('c')")
    execute("UPDATE offer SET price = 1 WHERE id = 'c'")
    assert changed() == {"a": ["note", "price", "status"], "c": EVERYTHING}


@pytest.mark.parametrize("kind", ["json", "point", "int4range", "float8", "numeric", "bytea", "inet"])
def test_columns_of_any_type_are_compared(kind: str) -> None:
    values = {"json": ["{}", "[1]"], "point": ["(1,2)", "(1,3)"]}
    values |= {"int4range": ["[1,2)", "[1,3)"], "float8": ["NaN", "1e300"], "numeric": ["NaN", "1e-30"]}
    values |= {"bytea": ["\\x00", "\\x01"], "inet": ["10.0.0.1", "10.0.0.2"]}
    execute(" ".join(["CREATE TABLE public.odd (id int PRIMARY KEY, version int NOT NULL DEFAULT 1, x", kind, ")"]))
    execute("SELECT tidemill.watch('odd')")
    first, second = values[kind]
    insert = f"INSERT INTO odd (id, x) VALUES (1, '{first}')"  # noqa: S608
    execute(insert)
    changed()
    for value, fields in ((first, []), (second, ["x"])):
        change = f"UPDATE odd SET x = '{value}'"  # noqa: S608
        execute(change)
        assert changed() == {"1": fields}
    execute("DROP TABLE odd")


@pytest.mark.parametrize("value", ['{"a": "\\u0000"}', "[1e400000]"])
def test_json_that_no_jsonb_can_be_made_of_is_taken_to_have_changed(value: str) -> None:
    # S7
    execute(
        'CREATE TABLE public.odd (b int, "A" text, note json, version int NOT NULL DEFAULT 1, PRIMARY KEY (b, "A"))'
    )
    execute("SELECT tidemill.watch('odd')")
    execute("INSERT INTO odd VALUES (1, 'x/', :note), (2, 'y\\', '1')", note=value)
    assert changed() == {"1/x\\/": EVERYTHING, "2/y\\\\": EVERYTHING}
    execute("UPDATE odd SET note = '2' WHERE b = 1")
    assert changed() == {"1/x\\/": EVERYTHING}
    execute("UPDATE odd SET b = 3, note = :note WHERE b = 1", note=value)
    assert changed() == {"3/x\\/": EVERYTHING}
    execute("DELETE FROM odd")
    assert changed() == {}
    execute("DROP TABLE odd")


# Versions


def test_a_writer_that_sets_the_version_itself_does_not_matter() -> None:
    # S7
    put("a")
    for words in ("version = 99", "version = 1", "version = null", "version = version + 1", "version = version - 1"):
        execute(" ".join(["UPDATE offer SET", words]))
    assert versions() == [6]
    with transaction() as session:
        session.get_one(Offer, "a").version = 3
    assert versions() == [7]


def test_a_version_never_comes_again_whoever_writes(stages: Stages) -> None:
    # S7
    put("a", "b")
    seen: list[int] = []

    def by_sql(number: int) -> None:
        with engine().connect() as connection:
            raw: Any = connection.connection
            cursor = raw.cursor()
            cursor.execute("UPDATE offer SET price = %s WHERE id = 'a' RETURNING version", (number,))
            seen.append(cursor.fetchone()[0])
            raw.commit()

    def by_orm(number: int) -> None:
        with transaction() as session:
            found = session.get_one(Offer, "a", with_for_update=True)
            found.status = f"orm {number}"
            session.flush()
            seen.append(found.version)

    def in_bulk(number: int) -> None:
        with transaction() as session:
            change = sa.update(Offer).values(note=number).returning(Offer.id, Offer.version)
            seen.extend(row.version for row in session.execute(change) if row.id == "a")

    store = SqlStore(Offer)

    def by_a_stage(number: int) -> None:
        with transaction() as session:
            version = store.versions(session, ["a"])["a"]
            if store.save(session, [Change("a", version, {"price": -number % 7})], wait=True):
                seen.append(version + 1)

    ways = (by_sql, by_orm, in_bulk, by_a_stage)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda way: [way(number) for number in range(40)], ways))
    assert sorted(seen) == list(range(2, len(seen) + 2))
    assert entity("a").version == len(seen) + 1
    assert set(changed()["a"]) == {"note", "price", "status"}


# In the same transaction


def test_rolled_back_nothing_is_left() -> None:
    # S7
    with Session(engine()) as session:
        session.add(Offer(id="a"))
        session.flush()
        session.rollback()
    assert waiting() == []


def test_a_savepoint_that_is_rolled_back_leaves_what_was_before() -> None:
    # S7
    put("a", "b")
    with Session(engine()) as session:
        session.execute(sa.text("UPDATE offer SET price = 1 WHERE id = 'a'"))
        with session.begin_nested() as savepoint:
            session.execute(sa.text("UPDATE offer SET status = 'x'"))
            savepoint.rollback()
        session.commit()
    assert changed() == {"a": ["price"]}
    assert versions() == [2, 1]


# Ids


KEYS: dict[str, tuple[Codec, list[Any]]] = {
    "id text PRIMARY KEY": (Codec((str,)), ["a/b", "\\", "ж 'x'", '"', "{a,b}", "null", "*", "a\nb"]),
    "id varchar(20) PRIMARY KEY": (Codec((str,)), ["a ", "A"]),
    "id bigint PRIMARY KEY": (Codec((int,)), [0, -5, 2**63 - 1, -(2**63)]),
    "id smallint PRIMARY KEY": (Codec((int,)), [-32768]),
    "id uuid PRIMARY KEY": (Codec((UUID,)), [UUID(int=0), UUID("ABCDEF00-0000-4000-8000-0000000000FF")]),
    'b text, "A" int, c uuid, PRIMARY KEY (b, "A", c)': (
        Codec((str, int, UUID)),
        [("a/b\\c", -1, UUID(int=7)), ("", 0, UUID(int=8)), ("\\/", 3, UUID(int=9))],
    ),
    "a text, b text, PRIMARY KEY (b, a)": (Codec((str, str)), [("x/", "y"), ("x", "/y"), ("", "")]),
    "id int, x int, PRIMARY KEY (id) INCLUDE (x)": (Codec((int,)), [5]),
}


@pytest.mark.parametrize("key", KEYS)
def test_ids_have_the_text_that_python_gives_them(key: str, engine: Engine) -> None:
    # S20
    codec, ids = KEYS[key]
    execute(f"CREATE TABLE public.keyed ({key}, version int NOT NULL DEFAULT 1)")
    execute("SELECT tidemill.watch('keyed')")
    table = sa.Table("keyed", sa.MetaData(), autoload_with=engine)
    names = [column.name for column in table.primary_key]
    rows = [dict(zip(names, each if isinstance(each, tuple) else (each,), strict=True)) for each in ids]
    with transaction() as session:
        session.execute(sa.insert(table), rows)
    assert set(changed()) == {codec.text_of(each) for each in ids}
    execute("UPDATE keyed SET version = 1")
    assert set(changed()) == {codec.text_of(each) for each in ids}
    execute("DROP TABLE keyed")


@pytest.mark.parametrize("wrong", ["", "x" * 501])
def test_an_id_that_is_no_id_is_refused(wrong: str) -> None:
    with pytest.raises(sa.exc.DBAPIError, match="must have 1 to 500 characters"):
        put(wrong)
