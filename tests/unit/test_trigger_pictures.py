"""The pictures in the documentation are what the triggers do."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.timeline import ORDERS, PICTURES, at
from triggers.exact import Delta

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "triggers.md"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)\n```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [text for each, text in found if each == language]


def test_the_page_shows_the_pictures_that_check_draws() -> None:
    assert blocks("") == [picture.draw() for picture in PICTURES]


def test_the_explanation_on_the_page_is_a_real_one() -> None:
    seen, current = at("2021-04-23 03:51:16"), at("2021-04-25 03:27:33")
    assert blocks("text") == [Delta(*ORDERS, "2d").check(current, {ORDERS: current}, {ORDERS: seen}).explain()]


def test_every_picture_shows_both_sides() -> None:
    for picture in PICTURES:
        last = picture.draw().splitlines()[-1]
        assert "." in last, picture.said
        assert "#" in last, picture.said
