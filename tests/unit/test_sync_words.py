"""What a migration and a service say of the reactive tasks that they have found."""

from __future__ import annotations

import pytest

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
