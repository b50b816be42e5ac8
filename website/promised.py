"""What the page of the Python names shows beside the names of the facade themselves, and what it leaves out."""

from __future__ import annotations

#: Titles of groups, and where the names of each are defined; the first that fits.
GROUPS = {
    "Transactions": ("app.db", "app.errors"),
    "Jobs": ("app.jobs",),
    "Events": ("app.events",),
    "Stages": ("stages",),
    "Processes": ("processes",),
    "Data and triggers": ("triggers",),
}
#: What is documented by its full name; an empty tuple: all that the module names in `__all__`.
BESIDE: dict[str, tuple[str, ...]] = {
    "app.embedded": ("servers",),
    "tidemill.testing": ("call", "call_job"),
    "tidemill.outside": (),
}
#: What functions of the facade give, by where it is.
GIVEN = {"ThisJob": "app.jobs.current"}
#: Of modules that users see without an `__all__` for them.
NAMES: dict[str, tuple[str, ...]] = {
    "triggers.ctl": ("advance", "advance_many", "get", "values", "history", "restate", "restate_many", "dependents"),
    "stages.queue": ("offer", "offer_many", "peek", "delete", "check"),
    "stages.testing": ("visit",),
    "processes.outside": ("poll", "heartbeat", "release", "actor_of"),
}
#: Of classes with members that are for Tidemill itself.
MEMBERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("Delta", "Delay", "RefDelay", "ChunkDelta", "ChunkDelay", "ChunkRefDelay", "All", "Any"), ("__init__",)
    ),
    "CtlTrigger": ("parameters", "latched", "check", "to_json"),
    "Run": ("__init__", "idempotency_key", "window", "value", "advance", "cancel", "transaction", "heartbeat"),
    "ThisJob": (
        *("id", "key", "queue", "enqueued_at", "attempt", "max_attempts", "idempotency_key"),
        *("transaction", "heartbeat"),
    ),
    "Flow": ("process_id", "custom_id", "attributes", "call", "no_wait"),
    "tidemill.outside.Task": (
        *("process_id", "task", "actor", "attempt", "args", "kwargs", "custom_id", "idempotency_key", "lost"),
    ),
}
