"""The repair of processes, which is that of `recovery.healing`: under the locks of their graphs, recorded there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from processes.model import GRAPH, PROCESS
from processes.states import ProcessState
from recovery import healing, record
from recovery.diagnose import INCONSISTENT
from recovery.findings import WORDS, Case, verdict
from recovery.invariants.claims import newest
from recovery.invariants.entry import Done, Invariant, Key, selecting


def heal(session: Session, keys: Sequence[Key]) -> Done:
    healed = healing.heal(session.connection(), {key[0] for key in keys})
    done = {each.process_id: each.repaired[0] for each in healed if each.repaired and each.failed is None}
    actions = {key: done[key[0]].cure for key in keys if key[0] in done}
    return Done(actions, after=lambda: healing.ring(healed), recorded=True)


def of_process(name: str, case: Case, query: Any, *, bound: int | None = None) -> Invariant:
    cure = WORDS[case][1]
    return Invariant(name, record.PROCESS, verdict(case), case, selecting(query), cure, heal, bound=bound)


def _state(*states: ProcessState) -> sa.ColumnElement[bool]:
    return PROCESS.c.state.in_([sa.literal_column(f"'{each}'") for each in states])


LIVE = _state(ProcessState.ACTIVE, ProcessState.BROKEN)
ENDED = _state(ProcessState.FINISHED, ProcessState.ABORTED)
REGISTERED = PROCESS.c.state == sa.literal_column(f"'{ProcessState.REGISTERED}'")
#: What has lost a part is broken, and told; nobody can say how its rows should agree.
_DECLARED = sa.and_(
    PROCESS.c.state == ProcessState.BROKEN, sa.func.coalesce(PROCESS.c.error, "").startswith(INCONSISTENT)
)
GOES_ON = sa.and_(LIVE, ~_DECLARED)
FINISHED = newest(PROCESS, _state(ProcessState.FINISHED))
ABORTED = newest(PROCESS, _state(ProcessState.ABORTED))
OVER = newest(PROCESS, ENDED)


def has_graph(process: Any) -> sa.ColumnElement[bool]:
    return sa.exists().where(GRAPH.c.process_id == process.c.id)
