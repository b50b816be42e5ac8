"""`tidemill.offer_visits` against its rule in a few lines of Python (S2, S10, S16): what an offer does to every column
of an entry, and whether it is written at all. What becomes of entries otherwise: `test_stage_queue_model.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.engine import Engine

from stages.identity import shard_of
from stages.model import VISIT

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
EVERYTHING = ("*",)
Fields = tuple[str, ...] | None
Key = tuple[str, str]


@dataclass(frozen=True)
class Asked:
    """For one visit: the time in each lane, what has changed, and how long the chain of changes is that led to it."""

    due: int | None = None
    low: int | None = None
    fields: Fields = None
    hops: int = 0
    chain: str | None = None

    def joined(self, new: Asked) -> Asked:
        further = new.hops > self.hops
        return Asked(
            _earlier(self.due, new.due),
            _earlier(self.low, new.low),
            _fields(self.fields, new.fields),
            max(self.hops, new.hops),
            new.chain if further else self.chain,
        )


@dataclass(frozen=True)
class Entry:
    state: str
    asked: Asked
    #: While it was not waiting.
    again: Asked = Asked()

    def offered(self, new: Asked) -> Entry:
        if self.state == "waiting":
            return replace(self, asked=self.asked.joined(new))
        return replace(self, again=self.again.joined(new))


@dataclass(frozen=True)
class Offer:
    key: Key
    time: int
    fields: Fields
    hops: int
    chain: str


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _fields(known: Fields, new: Fields) -> Fields:
    if known is None or new is None:
        return new if known is None else known
    return EVERYTHING if EVERYTHING in (known, new) else tuple(sorted({*known, *new}))


def as_one(offers: Sequence[Offer], *, low: bool) -> Asked:
    """Those of one call for one visit."""
    time, longest = min(each.time for each in offers), max((each.hops, each.chain) for each in offers)
    fields = {each.fields for each in offers if each.fields is not None}
    changed = EVERYTHING if len(fields) > 1 else next(iter(fields), None)
    return Asked(None if low else time, time if low else None, changed, *longest)


# As rows

PARTS = ("due_at", "low_at", "fields", "hops", "chain")
_RUNNING = {"pass_key": sa.func.gen_random_uuid(), "recovery_time": BEGIN, "claimed_by": "w"}
_OFFER = sa.text(
    "SELECT tidemill.offer_visits('offer', :ids, :stages, :times, :low, :fields, :hops, :chains)"
).bindparams(
    sa.bindparam("ids", type_=ARRAY(sa.Text)),
    sa.bindparam("stages", type_=ARRAY(sa.Text)),
    sa.bindparam("times", type_=ARRAY(sa.DateTime(timezone=True))),
    sa.bindparam("fields", type_=ARRAY(sa.Text)),
    sa.bindparam("hops", type_=ARRAY(sa.SmallInteger)),
    sa.bindparam("chains", type_=ARRAY(sa.Text)),
)


def _columns(asked: Asked, prefix: str) -> dict[str, Any]:
    values = (
        *(None if each is None else BEGIN + timedelta(seconds=each) for each in (asked.due, asked.low)),
        None if asked.fields is None else list(asked.fields),
        asked.hops,
        asked.chain,
    )
    names = PARTS if not prefix else ("again_at", "again_low_at", "again_fields", "again_hops", "again_chain")
    return dict(zip(names, values, strict=True))


def _row(key: Key, entry: Entry) -> dict[str, Any]:
    entity, stage = key
    return {
        "kind": "offer",
        "entity_id": entity,
        "stage": stage,
        "shard": shard_of(entity, 16),
        "queue": f"stage.offer.{stage}",
        "state": entry.state,
        **_columns(entry.asked, ""),
        **_columns(entry.again, "again"),
    }


def _offer(offers: Sequence[Offer], *, low: bool, plain: bool) -> dict[str, Any]:
    fields = [None if each.fields is None else "{" + ",".join(each.fields) + "}" for each in offers]
    return {
        "ids": [each.key[0] for each in offers],
        "stages": [each.key[1] for each in offers],
        "times": [BEGIN + timedelta(seconds=each.time) for each in offers],
        "low": low,
        "fields": None if plain else fields,
        "hops": None if plain else [each.hops for each in offers],
        "chains": None if plain else [each.chain for each in offers],
    }


# The property

times, lengths, words = st.integers(0, 2), st.integers(0, 2), st.sampled_from(["x", "y"])
changes: st.SearchStrategy[Fields] = st.sampled_from([None, EVERYTHING, ("note",), ("price",), ("note", "price")])
keys = st.tuples(st.sampled_from(["a", "B"]), st.sampled_from(["one", "Two"]))
calls = st.lists(st.builds(Offer, keys, times, changes, lengths, words), min_size=1, max_size=5)


def _asked(due: st.SearchStrategy[Any], low: st.SearchStrategy[Any]) -> st.SearchStrategy[Asked]:
    return st.builds(Asked, due, low, changes, lengths, st.none() | words)


perhaps = st.none() | times
waiting = st.builds(Entry, st.just("waiting"), _asked(times, perhaps) | _asked(perhaps, times))
others = st.builds(Entry, st.sampled_from(["running", "parked"]), _asked(times, perhaps), _asked(perhaps, perhaps))
A = ("a", "one")


@given(st.none() | waiting | others, calls, st.booleans(), st.booleans())
@example(Entry("waiting", Asked(1)), [Offer(A, 1, None, 0, "x")], False, True)
@example(Entry("parked", Asked(1), Asked(1)), [Offer(A, 1, None, 0, "x")], False, True)
@example(Entry("waiting", Asked(1)), [Offer(A, 1, None, 0, "x")], True, True)
@example(Entry("waiting", Asked(low=1)), [Offer(A, 1, None, 0, "x")], True, True)
@example(Entry("parked", Asked(1), Asked(low=1)), [Offer(A, 1, None, 0, "x")], True, True)
@example(Entry("parked", Asked(1)), [Offer(A, 1, None, 0, "x")], True, True)
@example(Entry("waiting", Asked(low=1)), [Offer(A, 1, None, 0, "x")], False, True)
@example(Entry("parked", Asked(1)), [Offer(A, 1, None, 0, "x")], False, True)
@example(Entry("waiting", Asked(1, hops=2)), [Offer(A, 1, None, 1, "x")], False, False)
@example(Entry("parked", Asked(1), Asked(1, hops=2)), [Offer(A, 1, None, 1, "x")], False, False)
# One thing alone is new.
@example(Entry("waiting", Asked(1)), [Offer(A, 0, None, 0, "x")], False, True)
@example(Entry("waiting", Asked(low=1)), [Offer(A, 0, None, 0, "x")], True, True)
@example(Entry("waiting", Asked(1)), [Offer(A, 1, ("note",), 0, "x")], False, False)
@example(Entry("waiting", Asked(1)), [Offer(A, 1, None, 1, "x")], False, False)
@example(Entry("parked", Asked(1), Asked(1)), [Offer(A, 0, None, 0, "x")], False, True)
@example(Entry("parked", Asked(1), Asked(low=1)), [Offer(A, 0, None, 0, "x")], True, True)
@example(Entry("parked", Asked(1), Asked(1)), [Offer(A, 1, ("note",), 0, "x")], False, False)
@example(Entry("parked", Asked(1), Asked(1)), [Offer(A, 1, None, 1, "x")], False, False)
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
def test_an_offer_does_what_the_rule_says(
    engine: Engine,
    before: Entry | None,
    offers: list[Offer],
    low: bool,  # noqa: FBT001
    plain: bool,  # noqa: FBT001
) -> None:
    # S2 S10 S16
    there = {} if before is None else {A: before}
    expected = dict(there)
    for key in {each.key for each in offers}:
        new = as_one([each for each in offers if each.key == key], low=low)
        if plain:
            new = Asked(new.due, new.low)
        expected[key] = expected[key].offered(new) if key in expected else Entry("waiting", new)
    with engine.begin() as connection:
        connection.execute(sa.delete(VISIT))
        for key, entry in there.items():
            running = _RUNNING if entry.state == "running" else {}
            connection.execute(sa.insert(VISIT).values(_row(key, entry) | running))
        marked = sa.select(VISIT, sa.literal_column("xmin").label("xmin"))
        old = {(row.entity_id, row.stage): row.xmin for row in connection.execute(marked)}
    with engine.begin() as connection:
        moved = connection.execute(_OFFER, _offer(offers, low=low, plain=plain)).scalar_one()
        found = {(row.entity_id, row.stage): row._asdict() for row in connection.execute(marked)}
    wanted = {key: _row(key, entry) for key, entry in expected.items()}
    assert {key: {name: row[name] for name in wanted[key]} for key, row in found.items()} == wanted
    written = {key for key, row in found.items() if old.get(key) != row["xmin"]}
    assert written == {key for key, entry in expected.items() if entry != there.get(key)}
    assert moved == len(written)


@pytest.mark.parametrize(
    ("entity", "fits"), [("a", True), ("a" * 500, True), ("a" * 501, False), ("", False), (None, False)]
)
def test_an_id_has_a_length(engine: Engine, entity: str | None, fits: bool) -> None:  # noqa: FBT001
    call = sa.text("SELECT tidemill.offer_visits('offer', ARRAY['b', :entity], '{one,one}', ARRAY[now(), now()])")
    with engine.begin() as connection:
        if fits:
            assert connection.execute(call, {"entity": entity}).scalar_one() == 2
        else:
            with pytest.raises(sa.exc.DBAPIError, match="must have 1 to 500 characters"):
                connection.execute(call, {"entity": entity})
