"""The system stage: after an entity was written by anybody, asks every stage of its kind whether it wants it (S8).

One pass for all stages. It works on no entity, so it needs no guard: what it read may be old when its answers are
saved, but then the entity has been enqueued here again by whoever wrote it (S10).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.engine import Row

from app import faults
from app.alarm import HandBack
from app.db import autocommit
from stages.batch import BLOCKED, HELD, Batch
from stages.ending import Done, Failed, Offer, complete

EVERYTHING = ["*"]


class SystemBatch(Batch):
    def _visit(self) -> None:
        offers: dict[str, list[Offer]] = {}
        failures: list[Failed] = []
        try:
            while (row := self.next()) is not None:
                try:
                    offers[row.entity_id] = self._asked(row)
                except HandBack:
                    self.holding.put_back(row)
                    raise
                except Exception as error:  # noqa: BLE001 - one entity must not cost the others
                    failures.append(self.failed(row, error))
        finally:
            faults.reach("visits.processed")
            self.fail(failures)
            if offers:
                self._save(offers)
            self.asker.count_failures()

    def _asked(self, row: Row[Any]) -> list[Offer]:
        loaded = self.loaded.get(row.entity_id)
        if loaded is None:
            return []
        fields = None if row.fields == EVERYTHING else frozenset(row.fields or ())
        wanted = self.wanted(self.definitions, loaded.id, loaded.entity, fields, self.now())
        return [Offer(loaded.id, stage, at, row.hops, row.chain) for stage, at in wanted]

    def _save(self, offers: dict[str, list[Offer]]) -> None:
        def write(executor: Any, ids: Sequence[str], wait: bool) -> set[str]:  # noqa: FBT001
            done = [Done(each) for each in ids]
            return complete(executor, self.place, self.pass_key, done, [o for i in ids for o in offers[i]], wait=wait)

        left = self.save(list(offers), write, autocommit)
        self.hand_back(left, BLOCKED, HELD)
        now = self.now()
        for each in offers.keys() - set(left):
            self.offered.update(offer.stage for offer in offers[each] if offer.at <= now)
