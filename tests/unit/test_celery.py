"""How the application behaves as Celery's beat, and what stops the start of any of its commands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from celery import signals
from click import ClickException
from kombu.asynchronous.timer import Timer

import app.celery
from app.cli import modules
from app.errors import SettingsError
from app.settings import settings


class Beat:
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield request.param
    for each, handler in before.items():
        signal.signal(each, handler)


def test_beat_is_stopped_between_two_messages_and_at_the_second_signal_at_once(number: int) -> None:
    beat = Beat()
    signals.beat_init.send(sender=beat)
    signal.raise_signal(number)
    assert beat.stopped == 1
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_timers_that_were_cancelled_are_forgotten_and_the_others_kept() -> None:
    timer, called = Timer(), list[int]()
    for number in (3, 1, 2):
        timer.call_at(number, called.append, (number,))
    timer.call_at(1.5, called.append, (15,)).cancel()
    timer.call_after(10_000_000, called.append, (0,)).cancel()
    app.celery.forget_cancelled(timer)
    assert [(each.eta, each.entry.canceled) for each in timer.queue] == [(1, False), (2, False), (3, False)]
    for each in timer.queue:
        timer.apply_entry(each.entry)
    assert called == [1, 2, 3]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the user that cannot be imported here, and says when that is tried."""
    found = tmp_path / "lacking"
    found.mkdir()
    (found / "__init__.py").write_text("open(__file__ + '.imported', 'w').close()\nimport no_such_package_at_all\n")
    (found / "tasks.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return found


def test_a_module_is_found_without_being_imported(package: Path) -> None:
    """What its package lacks is another matter; and its timetables are not written by whoever only looks."""
    assert app.celery._is_there("lacking")
    assert app.celery._is_there("lacking.tasks")
    assert not (package / "__init__.py.imported").exists()


@pytest.mark.parametrize(
    "name", ["no_such", "lacking.none", "lacking.tasks.more", "app.settings.more", "", ".", "lacking.", "a b", "/"]
)
@pytest.mark.usefixtures("package")
def test_a_module_that_is_not_there(name: str) -> None:
    assert not app.celery._is_there(name)


def test_what_a_module_lacks_is_told_as_what_it_is(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_MODULES", "lacking.tasks")
    settings.cache_clear()
    monkeypatch.setattr(app.celery.app.loader, "import_default_modules", lambda: import_module("lacking.tasks"))
    with pytest.raises(SettingsError, match=r"'lacking\.tasks' cannot be imported: .*No module named 'no_such_package"):
        modules.application()
    assert (package / "__init__.py.imported").exists()
    settings.cache_clear()


@pytest.mark.parametrize("name", ["TIDEMILL_BROKER_URL", "TIDEMILL_EVENTS_URL"])
def test_a_broker_that_nothing_here_can_speak_to_stops_the_start(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = {"TIDEMILL_DATABASE_URL": "postgresql://h/d", "TIDEMILL_BROKER_URL": "redis://h"}
    for each, value in (urls | {name: "sqs://h"}).items():
        monkeypatch.setenv(each, value)
    settings.cache_clear()
    with pytest.raises(ClickException, match=f"^{name}: what speaks to such a broker is not here"):
        app.celery._check_settings("beat")
    settings.cache_clear()


SERVERS = {"TIDEMILL_DATABASE_URL": "postgresql://h/d", "TIDEMILL_BROKER_URL": "redis://127.0.0.1:1"}
LACKS: list[tuple[str, dict[str, str], str]] = [
    *((command, {}, "BROKER_URL is not set and no") for command in ("worker", "beat", "scheduler", "flower")),
    *((command, SERVERS, "MODULES: there is no module 'no_such'") for command in ("worker", "flower")),
    ("scheduler", {"TIDEMILL_BROKER_URL": "redis://127.0.0.1:1"}, "DATABASE_URL is not set and no"),
    *(
        (command, SERVERS | {"TIDEMILL_POLL_INTERVAL": "soon"}, "POLL_INTERVAL='soon': 'soon' is not a duration")
        for command in ("worker", "beat", "scheduler", "flower")
    ),
]


@pytest.mark.parametrize(("command", "given", "why"), LACKS, ids=lambda each: each if isinstance(each, str) else "")
def test_what_lacks_is_told_in_one_sentence(command: str, given: dict[str, str], why: str, tmp_path: Path) -> None:
    """By the command itself, before it does anything: Celery would go on with a broker of its own choice."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    words = [sys.executable, "-m", "celery", "-A", "app", command]
    env |= {"TIDEMILL_MODULES": "no_such", "C_FORCE_ROOT": "1", "FLOWER_BASIC_AUTH": "a:b"} | given
    ended = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"Error: TIDEMILL_{why}"), ended.stderr
    assert ended.stderr.count("\n") == 1
