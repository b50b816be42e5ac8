"""What the sellers of the classifieds site are told, in `examples/notify`."""

from __future__ import annotations

from typing import Any

import pytest
from notify.words import words

OFFER: dict[str, Any] = {
    "id": "o-1",
    "seller": "alice",
    "category": "vehicles/cars",
    "year": 2020,
    "price": 15_001,
    "predicted_price": 10_000,
    "video": None,
    "status": "taken down",
}


@pytest.mark.parametrize(
    ("stage", "fields", "about", "text"),
    [
        ("take_down", ["status"], "taken down", "Your offer o-1 (vehicles/cars, 2020) has been on air for 180 days"),
        ("check_video", ["video"], "no video", "The video of your offer o-1 (vehicles/cars, 2020) is not there any"),
        ("predict_price", ["predicted_price"], "priced high", "costs 15001; others of its kind cost about 10000."),
    ],
)
def test_a_seller_is_told_what_matters(stage: str, fields: list[str], about: str, text: str) -> None:
    found = words(stage, fields, OFFER)
    assert found is not None
    assert (found.seller, found.about) == ("alice", about)
    assert text in found.text


@pytest.mark.parametrize(
    ("stage", "fields", "values"),
    [
        ("take_down", [], {}),
        ("check_video", [], {}),
        ("check_video", ["video"], {"video": "https://videos.example/1"}),
        ("predict_price", ["predicted_price"], {"price": 15_000}),
        ("predict_price", ["predicted_price"], {"predicted_price": None}),
        ("evolve_catalogue", ["category", "catalogue"], {}),
        ("a stage of another release", ["price"], {}),
    ],
)
def test_and_nothing_of_the_rest(stage: str, fields: list[str], values: dict[str, Any]) -> None:
    assert words(stage, fields, OFFER | values) is None
