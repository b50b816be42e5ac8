"""Claims: taking work from a table, keeping it, giving it back, losing it. Written once, for every claimable table.

Promises, over any table that mixes in `Claimable` (any primary key, also composite):

- A row is taken by one claim only, and a claim is a fresh random `pass_key` and a `recovery_time`. Every later write
  says `WHERE pass_key = mine`: a late worker matches nothing, and learns by it that it lost.
- Best first: by `rank` (smaller first), then by the time from which a row may start.
- A paused queue gives nothing; a queue with limits gives what they allow, exactly, for the whole cluster
  (`app.limits`); a queue without limits takes no lock.
- A row that lost its worker while it was claimed together with others is handed out alone the next time, and only a
  row that dies alone is charged an attempt.
- Time is the database's.
"""

from __future__ import annotations

from app.claims.cursor import Cursor
from app.claims.hold import extend, finish, finishing, give_back, park
from app.claims.lost import finding_overdue, orphan, overdue, time_out, up_for_a_lease
from app.claims.model import (
    Claimable,
    Executor,
    Key,
    Lane,
    PassKey,
    among,
    bound_keys,
    claim_indexes,
    distinct_prefix,
    key_columns,
    key_of,
    when,
)
from app.claims.statements import SIZES, Form, prepared
from app.claims.taking import Claim, take

__all__ = [
    "SIZES",
    "Claim",
    "Claimable",
    "Cursor",
    "Executor",
    "Form",
    "Key",
    "Lane",
    "PassKey",
    "among",
    "bound_keys",
    "claim_indexes",
    "distinct_prefix",
    "extend",
    "finding_overdue",
    "finish",
    "finishing",
    "give_back",
    "key_columns",
    "key_of",
    "orphan",
    "overdue",
    "park",
    "prepared",
    "take",
    "time_out",
    "up_for_a_lease",
    "when",
]
