"""Pages that take a reader by the hand: he writes their files, types their commands, and sees what they say."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kit import doc_pages
from tests.kit.cli import Tidemill
from tests.kit.doc_pages import Reader
from tests.kit.process import ROOT, Process, Processes

#: Of the quick start; its commands are typed beside the demo: tests/acceptance/test_up.py.
OF_THE_DEMO = "Break it and watch it heal"
#: Below howto.
FOLLOWED = ("move-from-celery", "move-from-beat")


class Services:
    """In the place of `tidemill up`, which has tests of its own: the servers here are those of all tests.

    All modules that the page will name are served from the first time on, so that nothing has to be started twice.
    """

    def __init__(self, processes: Processes, env: dict[str, str], page: str) -> None:
        self._processes, self._env, self._running = processes, env, False
        named = [line.split()[0] for commands, _ in doc_pages.typed(page) for line in commands if "tidemill up" in line]
        self.modules = max((each.removeprefix("TIDEMILL_MODULES=") for each in named), key=len)

    def __call__(self, modules: str) -> None:
        assert set(modules.split(",")) <= set(self.modules.split(","))
        if not self._running:
            env = self._env | {"TIDEMILL_MODULES": self.modules}
            self._processes.scheduler(env, ready=False)
            self._processes.celery_worker(env)
            self._running = True


def at(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(map(str, (ROOT, folder)))
    return {**env, "TIDEMILL_MODULES": "", "PYTHONPATH": path, "TIDEMILL_SWEEP_INTERVAL": "1s"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tearoom"
    folder.mkdir()
    return folder


def test_the_quick_start(env: dict[str, str], folder: Path, processes: Processes, tidemill: Tidemill) -> None:
    env = at(folder, env)
    page = "quickstart.md"
    reader = Reader(folder, env, tidemill, Services(processes, env, page))
    reader.follow(page, without=OF_THE_DEMO)
    assert reader.done > 20


def test_the_first_page(env: dict[str, str], folder: Path, processes: Processes, tidemill: Tidemill) -> None:
    env = at(folder, env)
    page = "../README.md"
    reader = Reader(folder, env, tidemill, Services(processes, env, page))
    reader.follow(page)
    assert reader.done > 5


def test_moving_from_celery(env: dict[str, str], folder: Path, processes: Processes, tidemill: Tidemill) -> None:
    """Two workers of two applications import one module, and neither takes what is the other's."""
    url = urlsplit(env["TIDEMILL_BROKER_URL"])
    env = at(folder, env) | {"SHOP_BROKER_URL": url._replace(path="/9").geturl()}

    def celery(settings: Mapping[str, str], words: list[str]) -> Process:
        command = [sys.executable, "-m", "celery", *words, "-c", "1", "--without-gossip", "--without-mingle"]
        process = processes.start(command, {**env, **settings}, "celery")
        if "--drain" in words:
            assert process.wait() == 0
        else:
            process.wait_for(r"@\S+ ready\.")
        return process

    reader = Reader(folder, env, tidemill, celery=celery)
    reader.follow("howto/move-from-celery.md")
    old, new, last = reader.beside
    assert "mail for order 17" in old.log
    assert "mail for order 17" not in new.log
    assert "mail for order 18" in new.log
    assert "mail for order" not in last.log


def test_moving_from_beat(env: dict[str, str], folder: Path, tidemill: Tidemill) -> None:
    reader = Reader(folder, at(folder, env), tidemill)
    reader.follow("howto/move-from-beat.md")
    assert "prices" not in tidemill("job periodic").out
    assert reader.done == 4


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("1 …done …brew", "log id  job\n1       1    failed  brew"),
        ("2 …done\n2 …failed", "2 failed x\n2 done x"),
        ("4 tasks: 4 FINISHED", "4 tasks: 3 FINISHED"),
    ],
)
def test_the_reader_notices_what_is_not_said(wanted: str, said: str) -> None:
    assert not doc_pages.printed(wanted, said)
    assert doc_pages.printed(wanted, wanted.replace("…", "  and more "))
