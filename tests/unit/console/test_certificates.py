"""The certificate of the console is read again when its files change, whatever happens to them meanwhile."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from app.console.certificates import Certificates
from app.errors import SettingsError
from tests.kit.certificates import Authority


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return Authority().pair().write(tmp_path, "server")


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().partition(",")[0] for record in caplog.records]


def test_files_that_are_gone_for_a_moment_are_missed_once_and_then_read(
    files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kept = Certificates(*files)
    for each in files:
        each.unlink()
    kept.look()
    kept.look()
    assert _said(caplog) == ["the changed certificate cannot be used"]
    Authority().pair().write(files[0].parent, "server")
    kept.look()
    kept.look()
    assert _said(caplog) == ["the changed certificate cannot be used", "the certificate was read again"]


def test_half_of_a_change_is_told_of_once_and_leaves_what_was(
    files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    kept = Certificates(*files)
    files[0].write_bytes(Authority().pair().cert)
    kept.look()
    kept.look()
    (record,) = caplog.records
    assert "its key does not belong to it" in record.getMessage()


def test_what_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"the certificate of the server cannot be used: .*server\.pem"):
        Certificates(tmp_path / "server.pem", tmp_path / "server.key")
