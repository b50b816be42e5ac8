"""A user's module that is the same under every release: jobs. What one delivers is committed with its end."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from celery import shared_task

from tests.kit.waiting import pause
from tidemill import Call, batched, this_job, transaction

#: The user's own tables. `mended`: what failed until now works from now on.
TABLES = (
    "CREATE TABLE public.delivered (what text NOT NULL, args json NOT NULL, kwargs json NOT NULL, job_id bigint)",
    "CREATE TABLE public.mended (at timestamptz NOT NULL)",
)
#: Arguments of all kinds that JSON has.
KINDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "nothing": ([], {}),
    "empty": (["", [], {}], {"none": None}),
    "flags": ([True, False, None], {}),
    "numbers": ([0, -1, 2**53 + 1, 10**30, 0.1, -2.5e-300, 1e300], {"zero": -0.0}),
    "words": (["grün 🚚 \u2028\u0085 \x7f", 'it\'s "quoted" \\ %s %(x)s {} $1 :name'], {"Straße": "\n\t"}),
    "nested": ([[1, [2, [3, {"deep": [{"er": None}]}]]]], {"tree": {"a": {"b": {"c": [1.5, "x"]}}, "": 1}}),
    "long": (["x" * 5_000], {}),
}
_DELIVERED = sa.text("INSERT INTO public.delivered VALUES (:what, CAST(:args AS json), CAST(:kwargs AS json), :job_id)")


def _deliver(session: Any, what: str, args: Any, kwargs: Any, job_id: int | None) -> None:
    row = {"what": what, "args": json.dumps(args), "kwargs": json.dumps(kwargs), "job_id": job_id}
    session.execute(_DELIVERED, row)


def _mended() -> bool:
    with transaction() as session:
        return bool(session.execute(sa.text("SELECT EXISTS (SELECT FROM public.mended)")).scalar_one())


@shared_task
def deliver(what: str, *args: Any, **kwargs: Any) -> str:
    with this_job().transaction() as session:
        _deliver(session, what, args, kwargs, this_job().id)
    return what


@shared_task(max_retries=0)
def stumble(what: str) -> None:
    """Parked, until somebody puts it in again after it was mended."""
    if not _mended():
        raise ValueError(f"{what} fell off the cart")
    with this_job().transaction() as session:
        _deliver(session, what, [], {}, this_job().id)


@shared_task(autoretry_for=(ConnectionError,), default_retry_delay=3600, retry_backoff=False, max_retries=5)
def postpone(what: str) -> None:
    """Tries again an hour later."""
    if this_job().attempt == 1:
        raise ConnectionError(f"nobody is at home for {what}")
    with this_job().transaction() as session:
        _deliver(session, what, [], {}, this_job().id)


@shared_task
def stand(what: str) -> None:
    """The first time, its worker is killed while it stands."""
    if this_job().attempt == 1:
        pause(3600)
    with this_job().transaction() as session:
        _deliver(session, what, [], {}, this_job().id)


@shared_task
@batched(size=10)
def bundle(calls: list[Call]) -> None:
    for call in calls:
        with transaction() as session:
            _deliver(session, "bundle", call.args, {}, None)
