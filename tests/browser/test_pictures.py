"""The pictures of pages in the docs, made by the same run: `make test-browser PICTURES=yes` puts them there anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser.conftest import Visitor
from tests.kit.process import ROOT

pytestmark = pytest.mark.browser

DOCS = ROOT / "docs"
PICTURES = {
    "console-process.png": ("/processes/{broken}", 900),
    "console-task.png": ("/reactive/task?task={mart}", 900),
    "console-map.png": ("/map?entity=mart.orders&depth=1", 560),
    "console-stage.png": ("/stage?name=voucher.predict", 548),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_docs_show_the_page(name: str, visitor: Visitor, tmp_path: Path) -> None:
    path, height = PICTURES[name]
    page = visitor.open(path, live=False, viewport={"width": 1200, "height": height})
    kept = DOCS / "pictures" / name
    made = kept if os.environ.get("PICTURES") == "yes" else tmp_path / name
    page.screenshot(path=made)
    assert size(made) == size(kept) == (1200, height)


def size(picture: Path) -> tuple[int, int]:
    """As the head of a PNG file has it."""
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
