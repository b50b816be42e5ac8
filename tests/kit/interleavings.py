"""All orders of the statements of some sessions, by depth first search: each is played from the same rows.

    found = every.order(Jobs(), "late", "finish", "time out")      # `every`: a fixture

`Jobs` is a `World`: it makes the rows `late`, knows what `finish` and `time out` are, and what to look at in the end.
That, together with what each session returned, must be what comes of them one after the other, in some order. Where a
session passes over what another one has locked (`NOTHING`), it may also have come to that. One that raises fails its
order, and so does an invariant of the catalogue that does not hold at its end, or a promise (`keep`).

`found` says how many orders there are; that none is left out is proved by their shares: where n turns are possible,
each gets an n-th, and the shares of all orders sum up to one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from functools import partial
from itertools import chain, combinations, permutations
from math import factorial, prod
from typing import Any, ClassVar, Protocol
from unittest.mock import patch

import psycopg2
from psycopg2 import sql
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Engine, make_url

from app import doorbell
from app.claims import keeper, lost, saving
from processes import lapsing
from recovery import restarting
from recovery.invariants import chosen
from recovery.invariants.entry import selecting
from stages import batch, visits
from tests.kit.commuting import Path
from tests.kit.footprints import Footprints
from tests.kit.stepping import Hooks, Play, Turn, What

Acts = Mapping[str, Callable[[], Hashable]]
Orders = Path[Turn]
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
    #: Of those that are like one that was played.
    left_out: Fraction = Fraction(0)
    #: How often this was seen only after some turns.
    in_vain: int = 0
    steps: dict[str, set[int]] = field(default_factory=dict)
    waited: int = 0
    gave_up: int = 0
    deadlocks: int = 0
    #: Each order, to be told from the others; and what came of them.
    seen: set[tuple[Turn, ...]] = field(default_factory=set)
    outcomes: set[Hashable] = field(default_factory=set)

    def add(self, played: Orders, names: list[str], outcome: Hashable, *, waited: bool) -> None:
        turns = tuple(played)
        self.orders += 1
        self.seen.add(turns)
        self.outcomes.add(outcome)
        self.share += played.share
        for name in names:
            self.steps.setdefault(name, set()).add(sum(t.who == name and t.what is What.STEPS for t in turns))
        self.waited += waited
        self.gave_up += any(turn.what is What.GIVES_UP for turn in turns)
        self.deadlocks += any(turn.what is What.IS_VICTIM for turn in turns)

    def check(self) -> None:
        """All of them, each once; and as many as can be counted without playing them, where nobody was in the way."""
        assert self.share + self.left_out == 1, self
        assert len(self.seen) == self.orders, self
        if not self.waited and not self.left_out and all(len(each) == 1 for each in self.steps.values()):
            lengths = [min(each) for each in self.steps.values()]
            assert self.orders == factorial(sum(lengths)) // prod(factorial(each) for each in lengths), self

    def __str__(self) -> str:
        lengths = ", ".join(f"{name} {'/'.join(map(str, sorted(each)))}" for name, each in self.steps.items())
        of_all = f", and {float(self.left_out):.0%} are like these ({self.in_vain} begun in vain)" * bool(self.left_out)
        return (
            f"{self.orders} orders ({lengths}){of_all}; {self.waited} with a wait, "
            f"{self.gave_up} where one gave up waiting; {len(self.outcomes)} outcomes"
        )


class World(Protocol):
    """What sessions do, and to which rows."""

    #: Whose invariants must hold.
    DOMAIN: ClassVar[str]
    #: What these come to where somebody else is in their way, by their first words.
    NOTHING: ClassVar[Mapping[str, Hashable]]

    def begin(self, rows: str) -> None:
        """Makes the rows from which every order begins, by the code of the product."""

    def act(self, name: str) -> Hashable:
        """What a session does; `claim 1` and `claim 2` do the same."""

    def look(self) -> Hashable:
        """What is there, in words that are the same whenever it is made."""

    def keep(self, results: Mapping[str, Any]) -> None:
        """Asserts what is promised, by what is there and what each session returned."""


class Interleavings:
    def __init__(self, hooks: Hooks, watch: Any) -> None:
        self._hooks, self._watch = hooks, watch

    def order(self, world: World, rows: str, *names: str, alike: bool = False) -> Found:
        """Every order of these; `alike`: of those that differ only in what commutes, one (`tests.kit.commuting`)."""
        world.begin(rows)
        self._start_from_here(world.DOMAIN)
        return self.again(world, *names, alike=alike)

    def again(self, world: World, *names: str, alike: bool = False) -> Found:
        """From the same rows."""
        acts = {name: partial(world.act, name) for name in names}
        nothing = {name: world.NOTHING[word] for name in names if (word := name.split()[0]) in world.NOTHING}
        return self._order(world, acts, nothing, alike=alike)

    def _start_from_here(self, domain: str) -> None:
        """Every order begins with the rows that are there now."""
        with self._watch.cursor() as cursor:
            cursor.execute("DROP SCHEMA IF EXISTS seed CASCADE; CREATE SCHEMA seed")
            cursor.execute(_TABLES)
            parts: list[sql.Composable] = [
                sql.SQL("CREATE FUNCTION seed.restore() RETURNS void LANGUAGE plpgsql AS $restore$ BEGIN\n")
            ]
            kept = []
            for schema, name, columns in cursor.fetchall():
                table = sql.Identifier(schema, name)
                parts.append(sql.SQL("DELETE FROM {};\n").format(table))
                cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(table))
                if cursor.fetchone()[0]:
                    kept.append(self._kept(cursor, table, sql.Identifier("seed", f"{schema}_{name}"), columns))
            cursor.execute(sql.SQL("").join([*parts, *kept, sql.SQL("END $restore$")]))
            cursor.execute(_detector(domain))

    @staticmethod
    def _kept(cursor: Any, table: Any, copy: Any, columns: list[str]) -> Any:
        cursor.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(copy, table))
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {};\n").format(table, names, names, copy)

    def _order(self, world: World, acts: Acts, nothing: Mapping[str, Hashable], *, alike: bool) -> Found:
        found, path, footprints = Found(), Orders(alike=alike), self._hooks.footprints
        footprints.forget()
        allowed = self._one_after_the_other(world, acts, nothing)
        while True:
            if (played := self._play(acts, path)) is not None:
                results, waited = played
                with _told(path):
                    violated = self._violated()
                    assert not violated, violated
                    came_to = _in_all(world, acts, results)
                    assert came_to in allowed, (came_to, "is not among", *allowed)
                found.add(path, list(acts), came_to, waited=waited)
            if footprints.grown:
                # The orders so far rest on less than is known now.
                footprints.grown, found, path = False, Found(), Orders(alike=alike)
            elif not path.next():
                found.left_out, found.in_vain = path.left_out, path.in_vain
                found.check()
                return found

    def _one_after_the_other(self, world: World, acts: Acts, nothing: Mapping[str, Hashable]) -> set[Hashable]:
        """What may come of them, by what comes of them without anybody else in between."""
        some = chain.from_iterable(combinations(sorted(nothing), size) for size in range(len(nothing) + 1))
        return {
            self._serial(world, acts, each, nothing) for passed in some for each in permutations({*acts} - {*passed})
        }

    def _serial(self, world: World, acts: Acts, order: Sequence[str], nothing: Mapping[str, Hashable]) -> Hashable:
        self._run("SELECT seed.restore()")
        results = dict(nothing)
        for name in order:
            self._hooks.learning = name
            results[name] = acts[name]()
        self._hooks.learning = None
        return _in_all(world, acts, results)

    def _play(self, acts: Acts, path: Orders) -> tuple[dict[str, Any], bool] | None:
        """As the path says, which must be possible again; and on from its end, where the first goes on each time.
        None: what is left of it was played elsewhere."""
        self._run("SELECT seed.restore()")
        play, told = Play(acts, self._watch), len(path.nodes)
        with _told(path):
            try:
                play.begin()
                while options := play.turns():
                    number = play.taken
                    if number < told:
                        before = path.nodes[number].turns
                        assert options == before, (before, options, "the same turns led elsewhere")
                    elif not path.reach(options):
                        return None
                    node = path.nodes[number]
                    play.take(node.turn, node.effect)
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


def _in_all(world: World, acts: Acts, results: Mapping[str, Any]) -> Hashable:
    for each in results.values():
        if isinstance(each, BaseException):
            raise each
    found = world.look()
    world.keep({name: results[name] for name in acts})
    return (*((name, results[name]) for name in acts), found)


@contextmanager
def _told(path: Orders) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note("in this order:\n" + "\n".join(map(str, path)))
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


def _detector(domain: str) -> str:
    """A function of the database with all detectors of damage in it: asked one by one, they would take longer than an
    order. Two kinds ask several times, of numbers and of deleted entities: no order changes these."""
    texts = []
    for each in chosen([domain]):
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
        hooks = Hooks(Footprints(watch.cursor()))
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
    """However slow the machine is: a pause is none at all, or outlasts the test."""
    long, level = timedelta(minutes=5), logging.root.manager.disable
    logging.disable(logging.WARNING)
    with ExitStack() as stack:
        stack.enter_context(patch.object(doorbell, "ring"))
        stack.enter_context(patch.object(keeper.Keeper, "keeping", _not_kept))
        for module, name, value in (
            (lost, "DELAY", timedelta(0)),
            (saving, "PAUSE_SECONDS", 0.0),
            (saving, "BLOCKED_SECONDS", 1e9),
            (batch, "PATIENCE_SECONDS", 1e9),
            (batch, "BLOCKED", long),
            (visits, "BLOCKED", long),
            (visits, "LATER_SECONDS", (300.0, 300.0)),
            (lapsing, "DELAY_SECONDS", 300.0),
        ):
            stack.enter_context(patch.object(module, name, value))
        _build_anew()
        try:
            yield
        finally:
            logging.disable(level)
            _build_anew()


def _build_anew() -> None:
    """The statements in which that pause is written."""
    statements: tuple[Any, ...] = (lapsing.restarting, restarting._sweeping)
    for each in statements:
        each.cache_clear()


@contextmanager
def _not_kept(_self: Any, holding: Any) -> Iterator[Any]:
    yield holding
