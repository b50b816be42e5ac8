"""Items that are processes to be looked at, and put right where they are wrong."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.arrays import Array
from processes import statements
from processes.model import PROCESS
from recovery import healing
from recovery.findings import Finding, Verdict
from recovery.healing import Healed
from recovery.operations.model import ItemState
from recovery.operations.outcome import Acted, Item, Outcome, Task, text


def check(session: Session, items: Sequence[Item]) -> Acted:
    """What seems to be wrong is looked at again while nobody can change it."""
    connection, ids = session.connection(), sorted({item.process_id for item in items})
    found = {each.process_id: each for each in healing.examine(connection, ids)}
    if wrong := sorted(each.process_id for each in found.values() if each.wrong):
        statements.locking().execute(connection, {"p_ids": wrong})
        found |= {each.process_id: each for each in healing.examine(connection, wrong)}
    there = _there(session, ids)
    acted = Acted()
    for item in items:
        findings = found[item.process_id].findings if item.process_id in found else ()
        if not findings and item.process_id not in there:
            acted.outcomes[item.position] = Outcome.skipped(_GONE)
        else:
            acted.outcomes[item.position] = Outcome.done(_words(findings))
    return acted


def heal(session: Session, task: Task, items: Sequence[Item]) -> Acted:
    """What somebody else changes just now is left to the next batch."""
    ids = sorted({item.process_id for item in items})
    healed = {
        each.process_id: each
        for each in healing.heal(session.connection(), ids, operation_id=task.operation_id)
        if not each.busy
    }
    there, acted = _there(session, ids), Acted()
    for item in items:
        if (each := healed.get(item.process_id)) is None:
            continue
        if each.failed is not None:
            acted.outcomes[item.position] = Outcome(ItemState.FAILED, text(each.failed))
        elif item.process_id not in there and not each.repaired:
            acted.outcomes[item.position] = Outcome.skipped(_GONE)
        else:
            acted.outcomes[item.position] = Outcome.done(_healed(each))
    acted.actors = {name for each in healed.values() for name in each.ready}
    return acted


_GONE = "it is not there any more"


def _there(session: Session, ids: Sequence[int]) -> set[int]:
    these = PROCESS.c.id == sa.any_(sa.cast(list(ids), Array(sa.BigInteger)))
    return set(session.execute(sa.select(PROCESS.c.id).where(these)).scalars())


def _healed(each: Healed) -> str:
    if not each.repaired:
        return _words(each.left)
    verb = "restarted" if each.restarted else "repaired"
    left = _words(each.left)
    return f"{verb}: {_names(each.repaired)}" + (f"; {left}" if left != _WELL else "")


_WELL = "well"


def _words(findings: Sequence[Finding]) -> str:
    """Alike for all that are alike, so that they can be counted."""
    wrong = [each for each in findings if each.verdict is not Verdict.DIAGNOSIS]
    if wrong:
        return f"wrong: {_names(wrong)}"
    return f"{_WELL}: {_names(findings)}" if findings else _WELL


def _names(findings: Sequence[Finding]) -> str:
    return ", ".join(sorted({each.case.value for each in findings}))
