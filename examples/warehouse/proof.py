"""Whether every increment was processed exactly once; `python -m warehouse.proof` says it, and exits with 1 if not.

Two things are looked at, for each task and each data set that it takes from: where one increment ends, the next one
begins; and what it made is as much as there was to make it from.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tidemill import transaction
from warehouse.models import Fact, Figure, Increment


@dataclass(frozen=True)
class Proof:
    increments: int
    wrong: tuple[str, ...]


def prove() -> Proof:
    with transaction() as session:
        # All that is compared is of one moment.
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        rows = session.scalars(sa.select(Increment).order_by(Increment.task, Increment.source, Increment.id)).all()
        chains: dict[tuple[str, str], list[Increment]] = {}
        for row in rows:
            chains.setdefault((row.task, row.source), []).append(row)
        wrong = [line for chain in chains.values() for line in (*_gaps(chain), *_missing(session, chain))]
        wrong += _surplus(session, rows)
        return Proof(len(rows), tuple(wrong))


def _gaps(chain: Sequence[Increment]) -> Iterator[str]:
    for one, next_ in pairwise(chain):
        if one.until != next_.since:
            yield f"{one.task}: {one.source} was taken up to {one.until}, and then from {next_.since} on"


def _missing(session: Session, chain: Sequence[Increment]) -> Iterator[str]:
    first, last = chain[0], chain[-1]
    there = sa.select(sa.func.count()).where(Fact.dataset == first.source, Fact.at <= last.until)
    if first.since is not None:
        there = there.where(Fact.at > first.since)
    taken, found = sum(each.facts for each in chain), session.scalar(there)
    if taken != found:
        yield f"{first.task}: {taken} facts were taken from {first.source}, which has {found}"


def _surplus(session: Session, rows: Sequence[Increment]) -> Iterator[str]:
    facts = _counted(session, sa.select(Fact.dataset, sa.func.count()).group_by(Fact.dataset))
    lines = _counted(session, sa.select(Figure.mart, sa.func.sum(Figure.facts)).group_by(Figure.mart))
    for target in sorted({row.target for row in rows}):
        made = facts.get(target, 0) + lines.get(target, 0)
        taken = sum(row.facts for row in rows if row.target == target)
        if made != taken:
            yield f"{target} has {made} facts, and {taken} were taken for it"


def _counted(session: Session, query: sa.Select[str, int]) -> dict[str, int]:
    return {row[0]: row[1] for row in session.execute(query)}


def main() -> None:
    proof = prove()
    print("\n".join(proof.wrong) or f"{proof.increments} increments, each of them once")
    sys.exit(bool(proof.wrong))


if __name__ == "__main__":
    main()
