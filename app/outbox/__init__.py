"""The outbox (S14): what stages have saved, on its way to the broker.

A save writes a row of `event` in its transaction. The relay (`run_once`) publishes the rows to the topic exchange
`tidemill.saved`, once or more, each entity's in the order of their sequence; `replay` publishes some again; `restored`
is for a database that comes from a backup. Who subscribes is in `app.events`.
"""

from __future__ import annotations

from app.outbox.relay import Report, run_once
from app.outbox.replay import replay, restored

__all__ = ["Report", "replay", "restored", "run_once"]
