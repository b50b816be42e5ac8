"""The environment of what `tidemill up` starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import services
from app.settings import Settings, settings


def test_a_url_from_a_file_is_handed_on_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text("redis://h/0")
    monkeypatch.setenv("TIDEMILL_BROKER_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("TIDEMILL_DATABASE_URL", "postgresql://h/d")
    settings.cache_clear()
    found = Settings.read(services.environment())
    assert (found.broker_url, found.database_url) == ("redis://h/0", "postgresql+psycopg2://h/d")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    settings.cache_clear()
