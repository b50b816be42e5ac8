"""What a seller is told about a save of a stage. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TAKEN_DOWN, NO_VIDEO, PRICED_HIGH = "taken down", "no video", "priced high"
#: So many times what it should cost.
HIGH = 1.5


@dataclass(frozen=True)
class Words:
    seller: str
    about: str
    text: str


def words(stage: str, fields: Sequence[str], offer: Mapping[str, Any]) -> Words | None:
    """None: nothing that a seller would want to know. `offer`: as it was saved, by the names of its columns."""
    name, seller = f"offer {offer['id']} ({offer['category']}, {offer['year']})", offer["seller"]
    match stage:
        case "take_down" if "status" in fields:
            return Words(seller, TAKEN_DOWN, f"Your {name} has been on air for 180 days and was taken down.")
        case "check_video" if "video" in fields and offer["video"] is None:
            return Words(seller, NO_VIDEO, f"The video of your {name} is not there any more.")
        case "predict_price" if "predicted_price" in fields and (usual := offer["predicted_price"]) is not None:
            if offer["price"] <= HIGH * usual:
                return None
            return Words(
                seller, PRICED_HIGH, f"Your {name} costs {offer['price']}; others of its kind cost about {usual}."
            )
        case _:
            return None
