"""`tidemill.watch` puts the triggers of S7 on a table; `tidemill.saving` speaks for one statement."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from app.db import engine, transaction
from app.errors import BadRequest, NotFound
from stages import Watched
from stages.installing import install
from stages.sql_store import SqlStore
from stages.store import Change
from tests.kit.stages_rows import Lot, Offer, Stages, execute, visits, world

EVERYTHING = ["*"]


@pytest.fixture(autouse=True)
def stages(database_url: str, broker_url: str) -> Iterator[Stages]:
    with world() as found:
        yield found


def changed() -> dict[tuple[str, str], list[str]]:
    """By kind and entity; the system stage hears anew from here on."""
    found = {(row.kind, row.entity_id): row.fields for row in visits("system")}
    execute("DELETE FROM tidemill.stage_visit")
    return found


def kinds() -> dict[str, str | None]:
    rows = execute("SELECT kind, relation FROM tidemill.entity_kind")
    return {row.kind: row.relation for row in rows if row.kind not in ("offer", "lot")}


@pytest.fixture
def own() -> Iterator[None]:
    execute("CREATE TABLE public.own (id int PRIMARY KEY, x int, version bigint NOT NULL DEFAULT 1)")
    yield
    execute("DROP TABLE IF EXISTS public.own CASCADE")


# Which tables


def test_a_partitioned_table() -> None:
    # S7
    execute(
        "CREATE TABLE public.part (id int, region text, x int, version bigint NOT NULL DEFAULT 1, "
        "PRIMARY KEY (id, region)) PARTITION BY LIST (region)"
    )
    execute("CREATE TABLE public.part_eu PARTITION OF part FOR VALUES IN ('eu')")
    execute("SELECT tidemill.watch('part')")
    execute("CREATE TABLE public.part_us PARTITION OF part FOR VALUES IN ('us')")
    execute("INSERT INTO part (id, region) VALUES (1, 'eu'), (2, 'us')")
    assert changed() == {("part", "1/eu"): EVERYTHING, ("part", "2/us"): EVERYTHING}
    execute("UPDATE part SET x = 1")
    assert changed() == {("part", "1/eu"): ["x"], ("part", "2/us"): ["x"]}
    execute("UPDATE part SET region = 'us' WHERE id = 1")
    assert changed() == {("part", "1/us"): EVERYTHING}
    assert [row.version for row in execute("SELECT version FROM part ORDER BY id")] == [3, 2]
    execute("DELETE FROM part WHERE id = 2")
    execute("TRUNCATE part")
    assert changed() == {}
    execute("DROP TABLE part")


def test_a_row_that_moves_to_another_partition_is_the_same_entity() -> None:
    # S7
    execute(
        "CREATE TABLE public.part (id int, x int, version bigint NOT NULL DEFAULT 1, PRIMARY KEY (id)) "
        "PARTITION BY RANGE (id)"
    )
    for name, first, last in (("low", 0, 10), ("high", 10, 20)):
        execute(f"CREATE TABLE public.part_{name} PARTITION OF part FOR VALUES FROM ({first}) TO ({last})")
    execute("SELECT tidemill.watch('part')")
    execute("INSERT INTO part VALUES (1, 1), (12, 2)")
    changed()
    execute("UPDATE part SET id = id + 10 WHERE id = 1")
    assert changed() == {("part", "11"): EVERYTHING}
    execute("DROP TABLE part")


def test_a_table_of_another_schema_with_a_name_in_quotes() -> None:
    # S7
    execute("CREATE SCHEMA \"My 'shop'\"")
    execute(
        'CREATE TABLE "My \'shop\'"."Of ""fers" '
        '("The \'id\'" text PRIMARY KEY, "a b" int, version bigint NOT NULL DEFAULT 1)'
    )
    with pytest.raises(sa.exc.DBAPIError, match="kind 'Of \"fers' must begin with a letter"):
        execute("SELECT tidemill.watch('\"My ''shop''\".\"Of \"\"fers\"')")
    execute("SELECT tidemill.watch('\"My ''shop''\".\"Of \"\"fers\"', 'quoted')")
    execute('INSERT INTO "My \'shop\'"."Of ""fers" VALUES (\'a\', 1)')
    assert changed() == {("quoted", "a"): EVERYTHING}
    execute('UPDATE "My \'shop\'"."Of ""fers" SET "a b" = 2')
    assert changed() == {("quoted", "a"): ["a b"]}
    execute('DELETE FROM "My \'shop\'"."Of ""fers"')
    execute("SELECT tidemill.watch('\"My ''shop''\".\"Of \"\"fers\"', 'quoted')")
    assert kinds() == {"quoted": '"My \'shop\'"."Of ""fers"'}
    execute("DROP SCHEMA \"My 'shop'\" CASCADE")


class Own(DeclarativeBase):
    pass


class Warehouse(Watched, Own):
    __tablename__ = "stock"
    __table_args__ = ({"schema": "depot"},)

    id: Mapped[int] = mapped_column(primary_key=True)


class Owned(Watched, Own):
    __tablename__ = "own"

    id: Mapped[int] = mapped_column(primary_key=True)


class Shout(Watched, Own, kind="shout"):
    __tablename__ = "Stock"
    __table_args__ = ({"schema": "My depot"},)

    id: Mapped[int] = mapped_column(primary_key=True)


class Dotted(Watched, Own, kind="dotted"):
    __tablename__ = "my.50%"

    id: Mapped[int] = mapped_column(primary_key=True)


def test_models_whose_names_must_be_quoted() -> None:
    # S7
    execute("CREATE TABLE stock (id int PRIMARY KEY, version bigint NOT NULL DEFAULT 1)")
    execute('CREATE SCHEMA "My depot"')
    with engine().begin() as connection:
        Own.metadata.create_all(connection, [Shout.__table__, Dotted.__table__])  # type: ignore[list-item]
        install(connection, Shout, Dotted)
    with transaction() as session:
        session.add_all([Shout(id=7), Dotted(id=8)])
    assert changed() == {("shout", "7"): EVERYTHING, ("dotted", "8"): EVERYTHING}
    assert kinds() == {"shout": '"My depot"."Stock"', "dotted": 'public."my.50%"'}
    execute('DROP SCHEMA "My depot" CASCADE')
    execute('DROP TABLE "my.50%", stock')


def test_a_model_of_another_schema() -> None:
    # S7
    with engine().begin() as connection:
        connection.execute(sa.schema.CreateSchema("depot"))
        Warehouse.__table__.create(connection)  # type: ignore[attr-defined]
        install(connection, Warehouse)
    with transaction() as session:
        session.add(Warehouse(id=7))
    assert changed() == {("stock", "7"): EVERYTHING}
    assert kinds() == {"stock": "depot.stock"}
    execute("DROP SCHEMA depot CASCADE")


def test_a_table_that_is_not_there_is_to_be_created_first(database_url: str) -> None:
    class Later(Watched, DeclarativeBase):
        pass

    class Nope(Later):
        __tablename__ = "nope"
        id: Mapped[int] = mapped_column(primary_key=True)

    missing = '^relation "nope" does not exist: create it first$'
    with pytest.raises(NotFound, match=missing), transaction() as session:
        install(session, Nope)
    for name in ("nope", "nowhere.nope"):
        with (
            pytest.raises(NotFound, match=f'^relation "{name}" does not exist: create it first'),
            transaction() as session,
        ):
            session.execute(sa.select(sa.func.tidemill.watch(name)))
    with sa.create_engine(database_url).begin() as theirs, pytest.raises(BadRequest, match=missing):
        install(theirs, Nope)


# Again


@pytest.mark.usefixtures("own")
def test_watched_twice_it_is_watched_once() -> None:
    # S7
    for _ in range(2):
        execute("SELECT tidemill.watch('own')")
    execute("INSERT INTO own VALUES (1)")
    execute("UPDATE own SET x = 1")
    assert [row.version for row in execute("SELECT version FROM own")] == [2]
    assert changed() == {("own", "1"): EVERYTHING}
    with engine().begin() as connection:
        install(connection, Offer, Offer)


@pytest.mark.usefixtures("own")
def test_watched_again_after_its_key_was_renamed() -> None:
    execute("SELECT tidemill.watch('own')")
    execute("ALTER TABLE own RENAME id TO number")
    execute("SELECT tidemill.watch('own')")
    execute("INSERT INTO own VALUES (1)")
    assert changed() == {("own", "1"): EVERYTHING}


@pytest.mark.usefixtures("own")
def test_a_column_that_is_added_is_watched_too() -> None:
    # S8
    execute("SELECT tidemill.watch('own')")
    execute("INSERT INTO own VALUES (1)")
    changed()
    execute("ALTER TABLE own ADD y int")
    execute("UPDATE own SET y = 1")
    assert changed() == {("own", "1"): ["y"]}


@pytest.mark.usefixtures("own")
def test_a_table_is_of_one_kind() -> None:
    execute("SELECT tidemill.watch('own')")
    with pytest.raises(sa.exc.DBAPIError, match=r"own is watched as kind 'own'[^$]*tidemill\.unwatch\('own'\)"):
        execute("SELECT tidemill.watch('own', 'another')")
    execute("SELECT tidemill.unwatch('own')")
    execute("SELECT tidemill.watch('own', 'another')")
    execute("INSERT INTO own VALUES (1)")
    assert changed() == {("another", "1"): EVERYTHING}
    assert kinds() == {"another": "public.own"}


@pytest.mark.usefixtures("own")
def test_what_is_watched_no_more_leaves_nothing_behind() -> None:
    execute("SELECT tidemill.watch('own')")
    execute("INSERT INTO own VALUES (1), (2)")
    execute("SELECT tidemill.unwatch('own')")
    execute("INSERT INTO own VALUES (3)")
    execute("UPDATE own SET version = 7")
    assert (changed(), kinds()) == ({}, {})
    with pytest.raises(sa.exc.DBAPIError, match="no kind 'own' is watched"):
        execute("SELECT tidemill.unwatch('own')")
    execute("SELECT tidemill.watch('own')")
    execute("INSERT INTO own VALUES (4)")
    execute("DROP TABLE own")
    execute("SELECT tidemill.unwatch('own')")
    assert (changed(), kinds()) == ({}, {})


@pytest.mark.usefixtures("own")
def test_a_kind_is_of_one_table() -> None:
    execute("SELECT tidemill.watch('own')")
    with pytest.raises(sa.exc.DBAPIError, match=r"kind 'own' is that of table public\.own"):
        execute("SELECT tidemill.watch('lot', 'own')")
    execute("CREATE TABLE other (id int PRIMARY KEY, version bigint NOT NULL DEFAULT 1)")
    execute("DROP TABLE own")
    execute("SELECT tidemill.watch('other', 'own')")
    assert kinds() == {"own": "public.other"}


# Refused


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("id int, version bigint NOT NULL", "its primary key is missing"),
        ("id numeric PRIMARY KEY, version bigint NOT NULL", "its primary key holds id numeric"),
        ("id char(3) PRIMARY KEY, version bigint NOT NULL", r"its primary key holds id character\(3\)"),
        ("id date, x int, PRIMARY KEY (x, id), version bigint NOT NULL", "its primary key holds id date"),
        ("id int PRIMARY KEY", 'it has no column "version bigint not null default 1"'),
        ("id int PRIMARY KEY, version bigint", "it has no column"),
        ("id int PRIMARY KEY, version text NOT NULL", "it has no column"),
        ("id int PRIMARY KEY, version smallint NOT NULL", "it has no column"),
    ],
)
def test_a_table_that_cannot_be_watched_is_refused(columns: str, said: str) -> None:
    execute(f"CREATE TABLE public.odd ({columns})")
    with pytest.raises(sa.exc.DBAPIError, match=said):
        execute("SELECT tidemill.watch('odd')")
    assert kinds() == {}
    execute("DROP TABLE odd")


@pytest.mark.usefixtures("own")
def test_what_is_not_a_table_of_its_own_is_refused() -> None:
    execute("CREATE VIEW public.seen AS SELECT * FROM own")
    execute("CREATE TABLE public.child (PRIMARY KEY (id)) INHERITS (own)")
    execute("CREATE TABLE public.part (LIKE own, PRIMARY KEY (id)) PARTITION BY RANGE (id)")
    execute("CREATE TABLE public.part_1 PARTITION OF part FOR VALUES FROM (0) TO (9)")
    for name in ("seen", "child", "own", "part_1"):
        with pytest.raises(sa.exc.DBAPIError, match=f"{name} is not a table of its own"):
            execute("SELECT tidemill.watch(:name)", name=name)
    execute("DROP TABLE part")


@pytest.mark.parametrize("kind", ["", "Own", "9own", "o.wn", "o wn", "x" * 61])
@pytest.mark.usefixtures("own")
def test_a_kind_that_is_no_name_is_refused(kind: str) -> None:
    with pytest.raises(sa.exc.DBAPIError, match="must begin with a letter"):
        execute("SELECT tidemill.watch('own', :kind)", kind=kind)


@pytest.mark.parametrize("whole", [True, False])
def test_install_over_a_connection_in_autocommit(own: None, *, whole: bool) -> None:
    """Of the whole engine, or of this connection."""
    used = sa.create_engine(engine().url, **({"isolation_level": "AUTOCOMMIT"} if whole else {}))
    with used.connect().execution_options(**({} if whole else {"isolation_level": "AUTOCOMMIT"})) as connection:
        install(connection, Owned)
        with Session(connection) as session:
            install(session, Owned)
    used.dispose()
    assert kinds() == {"own": "public.own"}
    execute("INSERT INTO public.own (id) VALUES (1)")
    assert changed() == {("own", "1"): EVERYTHING}


def test_install_says_what_is_wrong_and_leaves_the_transaction_as_it_was() -> None:
    execute("ALTER TABLE lot RENAME version TO was")
    with engine().begin() as connection:
        connection.execute(sa.text("INSERT INTO offer (id) VALUES ('a')"))
        with pytest.raises(BadRequest, match=r"cannot be watched: it has no column .*: Add it; a model gets it with"):
            install(connection, Lot)
    assert changed() == {("offer", "a"): EVERYTHING}


# What a stage saves


def save(session: Session, *ids: str) -> None:
    store = SqlStore(Offer)
    versions = store.versions(session, ids)
    assert store.save(session, [Change(each, versions[each], {"price": 5}) for each in ids]) == set(ids)


def put(*ids: str) -> None:
    with transaction() as session:
        session.add_all([Offer(id=each) for each in ids])
    changed()


def test_what_a_stage_saves_is_left_to_its_caller() -> None:
    # S7
    put("a", "b")
    with transaction() as session:
        save(session, "a", "b")
    assert changed() == {}
    assert [row.version for row in execute("SELECT version FROM offer")] == [2, 2]


def test_a_save_speaks_for_one_statement() -> None:
    # S7
    put("a", "b")
    with transaction() as session:
        save(session, "a")
        session.execute(sa.text("UPDATE offer SET status = 'x' WHERE id = 'b'"))
        save(session, "a")
    assert changed() == {("offer", "b"): ["status"]}


def test_a_save_that_is_undone_speaks_for_none() -> None:
    # S7
    put("a", "b")
    with transaction() as session:
        with session.begin_nested() as savepoint:
            session.execute(sa.text("SELECT set_config('tidemill.saving', 'on', true)"))
            savepoint.rollback()
        session.execute(sa.text("UPDATE offer SET status = 'x' WHERE id = 'b'"))
    assert changed() == {("offer", "b"): ["status"]}


def test_what_a_trigger_writes_while_a_stage_saves_is_a_change_like_any_other() -> None:
    # S7
    put("a", "b")
    execute(
        "CREATE FUNCTION public.follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "UPDATE offer SET status = 'follows' WHERE id = 'b' AND new.id = 'a'; RETURN new; END $$"
    )
    for when in ("BEFORE", "AFTER"):
        execute(
            f"CREATE OR REPLACE TRIGGER follow {when} UPDATE ON offer FOR EACH ROW EXECUTE FUNCTION public.follow()"
        )
        execute("UPDATE offer SET status = 'new' WHERE id = 'b'")
        changed()
        with transaction() as session:
            save(session, "a")
        assert changed() == {("offer", "b"): ["status"]}, when
    execute("DROP FUNCTION public.follow CASCADE")
