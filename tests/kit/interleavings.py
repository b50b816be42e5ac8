"""All orders of the statements of some sessions, by depth first search: each is played from the same rows.

    with interleavings(engine, admin_url) as every:
        claim = seed()                                   # by the code of the product
        every.start_from_here(record.JOB)                # the rows, and whose invariants must hold at each end
        found = every.order({"finish": lambda: …, "time out": lambda: …}, look, nothing={"time out": 0})

`look` tells what is there in the end. Together with what each session returned, that must be what comes of them one
after the other, in some order. Those named in `nothing` pass over what another one has locked: they may also come to
that instead. A session that raises fails its order.

`found` says how many orders there are; that none is left out is proved by their shares: where n turns are possible,
each gets an n-th, and the shares of all orders sum up to one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain, combinations, permutations
from math import factorial, prod
from typing import Any
from unittest.mock import patch

import psycopg2
import sqlalchemy as sa
from psycopg2 import sql
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Engine, make_url

from app import doorbell
from app.claims import keeper, saving
from recovery.invariants import chosen
from recovery.invariants.entry import selecting
from stages import batch
from tests.kit.footprints import Footprints
from tests.kit.stepping import Hooks, Play, Turn, What

Acts = Mapping[str, Callable[[], Hashable]]
Look = Callable[[], Hashable]
Path = list[tuple[list[Turn], int]]
_TABLES = """
    SELECT n.nspname, c.relname, array_agg(a.attname::text)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    WHERE c.relkind = 'r' AND n.nspname IN ('tidemill', 'public') AND c.relname NOT IN ('alembic_version', 'sharding')
    GROUP BY 1, 2 ORDER BY 1, 2
"""
_DIALECT = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]


@dataclass
class Found:
    """What all orders of some sessions were like. `steps`: how many statements each of them had."""

    orders: int = 0
    share: Fraction = Fraction(0)
    steps: dict[str, set[int]] = field(default_factory=dict)
    waited: int = 0
    gave_up: int = 0
    deadlocks: int = 0
    #: Each order, to be told from the others.
    seen: set[tuple[Turn, ...]] = field(default_factory=set)

    def add(self, played: Path, names: list[str], *, waited: bool) -> None:
        turns = tuple(options[index] for options, index in played)
        self.orders += 1
        self.seen.add(turns)
        self.share += Fraction(1, prod(len(options) for options, _ in played))
        for name in names:
            self.steps.setdefault(name, set()).add(sum(t.who == name and t.what is What.STEPS for t in turns))
        self.waited += waited
        self.gave_up += any(turn.what is What.GIVES_UP for turn in turns)
        self.deadlocks += any(turn.what is What.IS_VICTIM for turn in turns)

    def check(self) -> None:
        """All of them, each once; and as many as can be counted without playing them, where nobody was in the way."""
        assert self.share == 1, self
        assert len(self.seen) == self.orders, self
        if not self.waited and all(len(each) == 1 for each in self.steps.values()):
            lengths = [min(each) for each in self.steps.values()]
            assert self.orders == factorial(sum(lengths)) // prod(factorial(each) for each in lengths), self

    def __str__(self) -> str:
        lengths = ", ".join(f"{name} {'/'.join(map(str, sorted(each)))}" for name, each in self.steps.items())
        return f"{self.orders} orders ({lengths}); {self.waited} with a wait, {self.gave_up} where one gave up waiting"


class Interleavings:
    def __init__(self, hooks: Hooks, watch: Any) -> None:
        self._hooks, self._watch = hooks, watch

    def start_from_here(self, *domains: str) -> None:
        """Every order begins with the rows that are there now."""
        with self._watch.cursor() as cursor:
            cursor.execute("DROP SCHEMA IF EXISTS seed CASCADE; CREATE SCHEMA seed")
            cursor.execute(_TABLES)
            parts = [sql.SQL("CREATE FUNCTION seed.restore() RETURNS void LANGUAGE plpgsql AS $restore$ BEGIN\n")]
            kept = []
            for schema, name, columns in cursor.fetchall():
                table = sql.Identifier(schema, name)
                parts.append(sql.SQL("DELETE FROM {};\n").format(table))
                cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table))
                if cursor.fetchone()[0]:
                    kept.append(self._kept(cursor, table, sql.Identifier("seed", f"{schema}_{name}"), columns))
            cursor.execute(sql.SQL("").join([*parts, *kept, sql.SQL("END $restore$")]))
            cursor.execute(_detector(domains))

    @staticmethod
    def _kept(cursor: Any, table: Any, copy: Any, columns: list[str]) -> Any:
        cursor.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(copy, table))
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {};\n").format(table, names, names, copy)

    def order(self, acts: Acts, look: Look, nothing: Mapping[str, Hashable] | None = None) -> Found:
        """Plays every order."""
        found, path = Found(), Path()
        self._hooks.footprints.of.clear()
        allowed = self._one_after_the_other(acts, look, nothing or {})
        while True:
            results, waited = self._play(acts, path)
            with _told(path):
                violated = self._violated()
                assert not violated, violated
                came_to = _in_all(acts, results, look)
                assert came_to in allowed, (came_to, "is not among", *allowed)
            found.add(path, list(acts), waited=waited)
            while path and path[-1][1] + 1 == len(path[-1][0]):
                path.pop()
            if not path:
                found.check()
                return found
            options, index = path[-1]
            path[-1] = options, index + 1

    def _one_after_the_other(self, acts: Acts, look: Look, nothing: Mapping[str, Hashable]) -> set[Hashable]:
        """What may come of them, by what comes of them without anybody else in between."""
        some = chain.from_iterable(combinations(sorted(nothing), size) for size in range(len(nothing) + 1))
        return {self._serial(acts, each, look, nothing) for passed in some for each in permutations({*acts} - {*passed})}

    def _serial(self, acts: Acts, order: Sequence[str], look: Look, nothing: Mapping[str, Hashable]) -> Hashable:
        self._run("SELECT seed.restore()")
        results = dict(nothing)
        for name in order:
            self._hooks.learning = name
            results[name] = acts[name]()
        self._hooks.learning = None
        return _in_all(acts, results, look)

    def _play(self, acts: Acts, path: Path) -> tuple[dict[str, Any], bool]:
        """As the path says, which must be possible again; and on from its end, where the first goes on each time."""
        self._run("SELECT seed.restore()")
        play, told = Play(acts, self._watch), len(path)
        with _told(path):
            try:
                play.begin()
                while options := play.turns():
                    number = play.taken
                    if number < told:
                        assert options == path[number][0], (path[number][0], options, "the same turns led elsewhere")
                    else:
                        path.append((options, 0))
                    play.take(options[path[number][1]])
                return play.results(), play.blocked
            finally:
                play.abandon()

    def _violated(self) -> list[str]:
        return [name for (name,) in self._run("SELECT seed.violated()")]

    def _run(self, statement: str) -> list[Any]:
        with self._watch.cursor() as cursor:
            cursor.execute(statement)
            found: list[Any] = cursor.fetchall()
            return found


def _in_all(acts: Acts, results: Mapping[str, Any], look: Look) -> Hashable:
    for each in results.values():
        if isinstance(each, BaseException):
            raise each
    return (*((name, results[name]) for name in acts), look())


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note("in this order:\n" + "\n".join(str(options[index]) for options, index in path))
        raise


class _Recorder:
    """In the place of a session: keeps the query that a detector asks."""

    def __init__(self) -> None:
        self.query: Any = None

    def execute(self, query: Any) -> _Recorder:
        self.query = query
        return self

    def all(self) -> list[Any]:
        return []


def _detector(domains: tuple[str, ...]) -> str:
    """A function of the database with all detectors of damage in it: asked one by one, they would take longer than an
    order. Two kinds ask several times, of numbers and of deleted entities: no order changes these."""
    texts = []
    for each in chosen(domains):
        if each.wrong and each.look.__qualname__.startswith(selecting.__name__):
            recorder: Any = _Recorder()
            each.look(recorder, 1)
            query = recorder.query.compile(dialect=_DIALECT, compile_kwargs={"literal_binds": True})
            texts.append(f"RETURN QUERY SELECT $name${each.name}$name$ WHERE EXISTS ({query});\n")
    body = "".join(texts)
    return f"CREATE FUNCTION seed.violated() RETURNS SETOF text LANGUAGE plpgsql AS $detect$ BEGIN\n{body}END $detect$"


@contextmanager
def interleavings(engine: Engine, admin_url: str) -> Iterator[Interleavings]:
    """On the engine of the product, where no time runs out by itself, nothing rings, and no keeper looks after claims:
    their leases are as long as their tests say."""
    url = make_url(admin_url).set(drivername="postgresql", database=engine.url.database)
    watch = psycopg2.connect(url.render_as_string(hide_password=False))
    watch.autocommit = True
    database = sql.Identifier(str(engine.url.database))
    with watch.cursor() as cursor:
        # What is restored was not done: no trigger tells of it.
        cursor.execute("SET session_replication_role = replica")
        # Deadlocks are found by who waits for whom, and not after a while.
        cursor.execute(sql.SQL("ALTER DATABASE {} SET deadlock_timeout = '1h'").format(database))
    engine.dispose()
    try:
        with watch.cursor() as cursor:
            hooks = Hooks(Footprints(cursor))
        with hooks.on(engine), _timeless():
            yield Interleavings(hooks, watch)
    finally:
        engine.dispose()
        with watch.cursor() as cursor:
            cursor.execute("DROP SCHEMA IF EXISTS seed CASCADE")
            cursor.execute(sql.SQL("ALTER DATABASE {} RESET deadlock_timeout").format(database))
        watch.close()


@contextmanager
def _timeless() -> Iterator[None]:
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with (
        patch.object(doorbell, "ring"),
        patch.object(keeper.Keeper, "keeping", _not_kept),
        patch.object(saving, "PAUSE_SECONDS", 0.0),
        patch.object(saving, "BLOCKED_SECONDS", 1e9),
        patch.object(batch, "PATIENCE_SECONDS", 1e9),
    ):
        try:
            yield
        finally:
            logging.disable(level)


@contextmanager
def _not_kept(_self: Any, holding: Any) -> Iterator[Any]:
    yield holding
