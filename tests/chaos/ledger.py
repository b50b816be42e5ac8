"""What the database itself writes down of claims and limits in a storm, by triggers, and what must be true of it.

A claim never passes from one holder to another without having been given up. No queue has more claims than its
`max_parallel` at any time. Over any time t, no more than `burst + rate·t` calls are handed out, and those of the
horizon.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.limits import HORIZON

CLAIMABLE = ("job", "run", "decision", "stage_visit")
_TABLES = """
CREATE TABLE public.stolen (what text, before uuid, after uuid);
CREATE TABLE public.crowded (queue text, claims int, allowed int);
CREATE TABLE public.handed_out (queue text, tx xid8);
CREATE TABLE public.spent (queue text, tx xid8, at timestamptz, rate float8, burst float8);
CREATE FUNCTION public.note_theft() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.stolen VALUES (to_jsonb(old)::text, old.pass_key, new.pass_key);
    RETURN new;
END $$;
CREATE FUNCTION public.note_claim() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.handed_out SELECT name, pg_current_xact_id() FROM tidemill.queue
    WHERE name = new.queue AND rate IS NOT NULL;
    RETURN new;
END $$;
CREATE FUNCTION public.note_crowd() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format($query$
        INSERT INTO public.crowded SELECT * FROM (
            SELECT name, (SELECT count(DISTINCT pass_key) FROM tidemill.%%I WHERE queue = name) AS claims, max_parallel
            FROM tidemill.queue WHERE max_parallel IS NOT NULL
        ) AS each WHERE claims > max_parallel
    $query$, tg_table_name);
    RETURN NULL;
END $$;
CREATE FUNCTION public.note_spending() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.spent VALUES (new.name, pg_current_xact_id(), new.refilled_at, new.rate, new.burst);
    RETURN new;
END $$;
CREATE TRIGGER note_spending AFTER UPDATE OF tokens ON tidemill.queue FOR EACH ROW
    WHEN (new.rate IS NOT NULL) EXECUTE FUNCTION public.note_spending();
"""
_OF_EACH = """
CREATE TRIGGER note_theft AFTER UPDATE ON tidemill.{table} FOR EACH ROW
    WHEN (old.pass_key IS NOT NULL AND new.pass_key IS NOT NULL AND old.pass_key <> new.pass_key)
    EXECUTE FUNCTION public.note_theft();
CREATE TRIGGER note_claim AFTER UPDATE ON tidemill.{table} FOR EACH ROW
    WHEN (old.pass_key IS NULL AND new.pass_key IS NOT NULL) EXECUTE FUNCTION public.note_claim();
CREATE TRIGGER note_crowd AFTER UPDATE OF pass_key ON tidemill.{table} FOR EACH STATEMENT
    EXECUTE FUNCTION public.note_crowd();
"""
SCHEMA = _TABLES + "".join(_OF_EACH.format(table=table) for table in CLAIMABLE)
_SPENT = sa.text(
    "SELECT at, rate, burst, coalesce(calls, 0) AS calls FROM public.spent LEFT JOIN "
    "(SELECT queue, tx, count(*) AS calls FROM public.handed_out GROUP BY queue, tx) AS each USING (queue, tx) "
    "WHERE queue = :queue ORDER BY at"
)
_HELD = " UNION ALL ".join(f"SELECT '{table}' FROM tidemill.{table} WHERE pass_key IS NOT NULL" for table in CLAIMABLE)  # noqa: S608


def judge(session: Session) -> None:
    assert session.execute(sa.text("SELECT * FROM public.stolen")).all() == [], "two valid claims on one row"
    assert session.execute(sa.text("SELECT * FROM public.crowded")).all() == [], "more claims than max_parallel"
    assert session.execute(sa.text(_HELD)).all() == [], "a claim is left over"
    assert session.execute(sa.text("SELECT * FROM tidemill.entity_guard")).all() == [], "a guard is left over"
    queues = session.execute(sa.text("SELECT name FROM tidemill.queue WHERE rate IS NOT NULL")).scalars().all()
    assert queues, "no queue has a rate"
    for queue in queues:
        rows = session.execute(_SPENT, {"queue": queue}).all()
        assert sum(row.calls for row in rows), f"nothing was handed out from {queue}"
        rate, burst = rows[0].rate, rows[0].burst
        most = most_in_any_time([(row.at.timestamp(), row.calls) for row in rows], rate)
        assert most <= burst + rate * HORIZON + 0.01, f"{queue}: {most:.2f} more than its rate of {rate}"


def most_in_any_time(calls: Sequence[tuple[float, int]], rate: float) -> float:
    """By how many the calls between two moments, both included, are more than `rate` allows for the time between."""
    most, before, least = 0.0, 0, float("inf")
    for at, count in calls:
        least = min(least, before - rate * at)
        before += count
        most = max(most, before - rate * at - least)
    return most


def judge_calls(moments: Sequence[float], rate: float) -> None:
    """Seconds since nothing was called yet: a call comes after it was handed out, however much later."""
    for number, at in enumerate(sorted(moments), 1):
        assert number <= 1 + rate * at * 1.001, f"{number} calls within {at:.2f} s, at {rate}/s"
