"""Subscribing to what stages save (S14).

Promises:
- Whoever is subscribed gets every event, once or more, and those of one entity in the order of their sequence; what
  comes again may come late, so a sequence that is not higher than the last one of its entity is to be passed over.
- `first_time` does that in the transaction of the subscriber's own work: handled exactly once, in order.
- A subscriber that is killed loses nothing; one that fails gets the same event again.
"""

from __future__ import annotations

from app.events.event import Event
from app.events.seen import first_time
from app.events.subscriber import Subscriber
from app.events.subscriptions import subscribe, unsubscribe

__all__ = ["Event", "Subscriber", "first_time", "subscribe", "unsubscribe"]
