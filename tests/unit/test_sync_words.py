"""What a migration and a service say of the reactive tasks and the stages that they have found."""

from __future__ import annotations

import pytest

from stages.sync import Synced as SyncedStages
from triggers.checks import Finding, FindingKind
from triggers.sync import Synced


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "  1 parameter has no value and no producer yet, named by: tidemill doctor"),
        (2, "  2 parameters have no value and no producer yet, named by: tidemill doctor"),
    ],
)
def test_what_has_no_value_yet_is_counted_in_one_line(count: int, said: str) -> None:
    findings = tuple(Finding(FindingKind.NO_VALUE, (f"task_{n}",), "") for n in range(count))
    assert Synced(new=("task",), findings=findings, tasks=1).told()[-1] == said


def test_a_table_that_is_not_watched_is_told_with_the_call_that_puts_the_trigger_on_it() -> None:
    assert SyncedStages(stages=1, unwatched=("orders",)).told()[1:] == [
        "  table orders is not watched, so that its stages hear of no change: "
        "put the trigger on it with stages.install(session, …)"
    ]
