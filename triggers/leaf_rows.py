"""The conditions of a trigger as the rows of `reactive_leaf`. Pure."""

from __future__ import annotations

from typing import Any

from triggers.trigger import Trigger


def leaf_rows(task_id: int, trigger: Trigger) -> list[dict[str, Any]]:
    return [
        {
            "task_id": task_id,
            "position": position,
            "entity": leaf.entity,
            "parameter": leaf.parameter,
            "ref_entity": getattr(leaf, "ref_entity", None),
            "ref_parameter": getattr(leaf, "ref_parameter", None),
            "latched": leaf.latched,
        }
        for position, leaf in enumerate(trigger.leaves)
    ]
