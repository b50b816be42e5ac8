"""Stages, visits and what belongs to them, for the pages that show them; what a producer may write is hostile."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import limits
from app.db import engine
from app.outbox.model import EVENT
from app.proto.tidemill.v1.stage_pb2 import JsonState
from stages.definition import RESWEEP, queue_of
from stages.model import PART, Resweep, Stage
from tests.kit.visit_rows import guard, register, state, visit

JSON_STATE = "type.googleapis.com/tidemill.v1.JsonState"
#: Of which no test has a model: pages show what the database knows.
KIND = "voucher"
CHAIN = "predict → publish → predict"


def soon(seconds: float) -> Any:
    return sa.func.now() + timedelta(seconds=seconds)


def fill(evil: str) -> dict[str, Any]:
    with Session(engine()) as session:
        register(
            session, "predict", "publish", "watchless", declared={"rate_limit": "5/s"}, watches=["price"], kind=KIND
        )
        session.execute(sa.update(Stage).where(Stage.name == "publish").values(ask_failures=3, ask_failure=evil))
        limits.configure(session, "stage.voucher.predict", rate="100/s", burst=20, max_parallel=8)
        limits.configure(session, "stage.voucher.publish", paused=True)
        limits.rest(session, "stage.voucher.watchless", evil)
        _visits(session, evil)
        state(
            session,
            "e1",
            "predict",
            JSON_STATE,
            JsonState(json='{"seen": "secret-of-e1"}').SerializeToString(),
            7,
            KIND,
        )
        state(session, "e1", "publish", "type.googleapis.com/shop.Unknown", b"\x0bnot-to-be-read", 3, KIND)
        state(session, evil, "predict", JSON_STATE, JsonState(json=f'["{evil}"]').SerializeToString(), kind=KIND)
        walk(session, "predict", evil)
        walk(session, "watchless", evil)
        for entity_id in ("e1", evil):
            values = {"kind": KIND, "entity_id": entity_id, "stage": "predict", "version": 41, "fields": ["price"]}
            session.execute(sa.insert(EVENT).values(**values, entity={}, state_version=7))
        session.commit()
    return {"entity": "e1"}


def _visits(session: Session, evil: str) -> None:
    visit(session, "e1", claimed_by="w-1/7", state="running", claimed_at=soon(-2), kind=KIND)
    guard(session, "e1", kind=KIND)
    visit(
        session,
        "e1",
        "publish",
        due_at=soon(3600),
        low_at=soon(5),
        attempts=2,
        not_before=soon(60),
        error=evil,
        kind=KIND,
    )
    visit(session, "e2", due_at=soon(-90), kind=KIND)
    visit(session, "e3", due_at=None, low_at=soon(-30), kind=KIND)
    visit(
        session,
        "e4",
        "publish",
        state="parked",
        error="ValueError: no price of 'e4'",
        traceback=f"Trace\n{evil}",
        kind=KIND,
    )
    visit(session, "e5", "publish", state="parked", error="ValueError: no price of 'e5'", again_at=soon(0), kind=KIND)
    visit(session, "e6", state="parked", error="it goes round in circles", hops=32, chain=CHAIN, kind=KIND)
    visit(session, evil, "publish", state="parked", error=evil, traceback=evil, chain=evil, hops=4, kind=KIND)


def walk(session: Session, stage: str, evil: str | None) -> None:
    """Half done."""
    values = {"kind": KIND, "stage": stage, "total": 1000, "rate": 50.0, "requested_by": evil}
    made = session.execute(sa.insert(Resweep).values(**values).returning(Resweep.id)).scalar_one()
    part = {"resweep_id": made, "queue": queue_of(KIND, RESWEEP), "asked": 300, "wanted": 12}
    session.execute(sa.insert(PART), [part | {"part": number, "error": evil} for number in range(2)])
