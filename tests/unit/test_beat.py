"""`app.beat`: the file that shows that beat lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import beat
from app.beat import Sign


def test_a_message_touches_the_file(tmp_path: Path) -> None:
    Sign(tmp_path / "beat").show(sender="tidemill.control.dispatch")
    assert (tmp_path / "beat").exists()


def test_it_is_touched_once_in_a_while_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, now = tmp_path / "beat", [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    sign = Sign(file)
    sign.show()
    file.unlink()
    sign.show()
    assert not file.exists()
    now[0] += beat.EVERY_SECONDS
    sign.show()
    assert file.exists()


def test_a_file_that_cannot_be_written_does_not_stop_beat(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Sign(tmp_path / "none" / "beat").show()
    assert "TIDEMILL_BEAT_FILE" in caplog.text
