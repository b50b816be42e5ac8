"""Names that are no UTF-8, as arguments, the environment and files may hold them: told in a sentence."""

from __future__ import annotations

import getpass
import sys

import pytest
from click import ClickException

from app import audit
from app.celery import _check_settings
from app.cli.root import run

HALF = b"mail-\xff".decode(errors="surrogateescape")


@pytest.mark.parametrize("words", [["job", "list", "--task", HALF], [HALF], ["ctl", "advance", HALF, "a=now"]])
def test_an_argument(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert capsys.readouterr() == ("", "Error: 'mail-\\udcff' is not UTF-8\n")


def test_an_argument_of_celery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["celery", "-A", "app", "worker", "-Q", HALF])
    with pytest.raises(ClickException, match=r"^'mail-\\udcff' is not UTF-8$"):
        _check_settings("worker")


def test_an_account_is_audited_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: HALF)
    assert audit.actor().startswith("mail-\\xff@")
