"""What is mutated, and by which tests it is proven. In Python only tests without a server: each mutant takes about a
second."""

from __future__ import annotations

_UNIT, _PROPERTY = "tests/unit/", "tests/property/"
_TRIGGERS = (
    f"{_UNIT}test_trigger.py",
    f"{_UNIT}test_trigger_json.py",
    f"{_UNIT}test_verdict.py",
    f"{_PROPERTY}test_triggers.py",
)
_INDEX = (f"{_UNIT}test_index.py", f"{_PROPERTY}test_index.py")
_PROCESSES = (
    f"{_UNIT}processes",
    f"{_PROPERTY}test_process_graph.py",
    f"{_PROPERTY}test_process_programs.py",
    f"{_PROPERTY}test_process_restarting.py",
)

CORES: dict[str, tuple[str, ...]] = {
    "triggers.instants": (f"{_UNIT}test_chunks.py", f"{_UNIT}test_trigger.py", f"{_UNIT}test_verdict.py"),
    "triggers.days": (f"{_UNIT}test_chunks.py", f"{_PROPERTY}test_chunks.py"),
    "triggers.chunks": (f"{_UNIT}test_chunks.py", f"{_PROPERTY}test_chunks.py"),
    "triggers.exact": _TRIGGERS,
    "triggers.chunked": _TRIGGERS,
    "triggers.leaves": _TRIGGERS,
    "triggers.aggregates": _TRIGGERS,
    "triggers.trigger": _TRIGGERS,
    "triggers.verdict": _TRIGGERS,
    "triggers.index.index": _INDEX,
    "triggers.index.groups": _INDEX,
    "triggers.index.keys": _INDEX,
    "triggers.index.timers": (f"{_UNIT}test_index_timers.py",),
    "triggers.holding": (f"{_UNIT}test_holding.py",),
    "triggers.cycles": (f"{_UNIT}test_checks.py",),
    "stages.asking": (f"{_UNIT}test_stage_asking.py",),
    "stages.comparing": (f"{_UNIT}test_stage_comparing.py",),
    "stages.identity": (f"{_UNIT}test_stage_identity.py", f"{_PROPERTY}test_stage_identity.py"),
    "stages.moments": (f"{_UNIT}test_stage_asking.py", f"{_UNIT}test_stage_testing.py"),
    "processes.graph": _PROCESSES,
    "processes.restarting": _PROCESSES,
    "recovery.diagnose": (f"{_UNIT}recovery",),
    "recovery.mending": (f"{_UNIT}recovery",),
    "recovery.findings": (f"{_UNIT}recovery",),
}

#: The merge rule of the stage queue (docs/adr/0028-*), which is in the database; by its functions.
MERGE_RULE, OF_SQL, IN_SQL = "merge_rule", "app/migrations/sql/0004_stages.sql", ("offer_visits", "joined_fields")
#: Not by those of the queue as a whole: they notice no more, and take half a minute for each mutant that is left.
OF_MERGE_RULE = (f"{_PROPERTY}test_merge_rule.py",)
