"""How much of the warehouse works at once, in the whole cluster."""

from __future__ import annotations

from tidemill import pool

STAGING, DETAIL, MARTS, WATCH = "staging", "detail", "marts", "watch"

pool(STAGING, max_parallel=4)
pool(DETAIL, max_parallel=3, max_hold="30s")
#: What waits for long overtakes what is more important.
pool(MARTS, max_parallel=2, rate_limit="240/min", ageing="10s")
pool(WATCH, max_parallel=1, rate_limit="60/min")
