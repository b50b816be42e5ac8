"""What holds of walks over all entities (S16), which are cut into parts."""

from __future__ import annotations

from typing import cast

import sqlalchemy as sa

from recovery import record
from recovery.findings import Verdict
from recovery.invariants.claims import Claims, of_claims
from recovery.invariants.entry import Invariant, selecting
from recovery.invariants.setting import setting
from stages.model import PART, PartState, Resweep, ResweepPart, ResweepState

WALKS = Claims(ResweepPart, "a part of a walk", "part", record.VISIT, {})
_WALK = cast(sa.Table, Resweep.__table__)
_waits = PART.c.state == sa.literal_column("'waiting'")
_of = PART.c.resweep_id == _WALK.c.id
_timeless = sa.and_(
    _waits, PART.c.due_at.is_(None), sa.exists().where(_of, _WALK.c.state == ResweepState.RUNNING).correlate(PART)
)
_left = sa.and_(_waits, sa.exists().where(_of, _WALK.c.ended_at.is_not(None)).correlate(PART))
_walked = sa.and_(_WALK.c.ended_at.is_(None), ~sa.exists().where(_of, PART.c.state != PartState.DONE).correlate(_WALK))
_part = (PART.c.resweep_id, PART.c.part)

OF_WALKS: tuple[Invariant, ...] = (
    *of_claims(WALKS),
    Invariant(
        "a part of a walk that goes on has a time",
        record.VISIT,
        Verdict.REPAIRABLE,
        "part_timeless",
        selecting(sa.select(*_part).where(_timeless)),
        "walked on now",
        setting(PART, _timeless, {"due_at": sa.func.now()}, "made ready"),
    ),
    Invariant(
        "a walk that has ended has no part left",
        record.VISIT,
        Verdict.REPAIRABLE,
        "part_of_ended_walk",
        selecting(sa.select(*_part).where(_left)),
        "ended",
        setting(PART, _left, {"state": PartState.DONE}, "ended"),
    ),
    Invariant(
        "a walk goes on while a part of it is left",
        record.VISIT,
        Verdict.REPAIRABLE,
        "walk_without_part",
        selecting(sa.select(_WALK.c.id).where(_walked)),
        "ended",
        setting(_WALK, _walked, {"state": ResweepState.DONE, "ended_at": sa.func.now()}, "ended"),
    ),
)
