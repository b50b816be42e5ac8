"""The catalogue of the site, which is now and then made anew, and what it says of an offer. Pure."""

from __future__ import annotations

#: From each version to the next: categories that have another name there.
CHANGES = (
    {"auto": "cars", "truck": "trucks", "moto": "motorcycles"},
    {"cars": "vehicles/cars", "trucks": "vehicles/trucks", "motorcycles": "vehicles/motorcycles"},
)
CURRENT = len(CHANGES) + 1
#: Of each version.
CATEGORIES = {version: tuple(changes) for version, changes in enumerate(CHANGES, 1)} | {
    CURRENT: tuple(CHANGES[-1].values())
}
NEW_PRICES = {"vehicles/cars": 30_000, "vehicles/trucks": 90_000, "vehicles/motorcycles": 9_000}
BUILT_LAST = 2026
ANGLES = ("front", "side", "back", "inside")


def evolved(category: str, version: int) -> str:
    """The category in the current catalogue."""
    for changes in CHANGES[version - 1 :]:
        category = changes.get(category, category)
    return category


def predicted(category: str, year: int, mileage: int) -> int:
    """What stands for a model that somebody has trained."""
    age, distance = max(0, BUILT_LAST - year), mileage / 10_000
    return round(NEW_PRICES.get(category, 10_000) / (1 + age / 6) / (1 + distance / 20))


def place(angle: str | None) -> int:
    """Of a photo among the others; those that nobody has looked at yet come last."""
    return ANGLES.index(angle) if angle in ANGLES else len(ANGLES)
