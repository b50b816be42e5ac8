"""`tidemill up`: starts everything, keeps it running, and leaves nothing behind, however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from app.embedded.home import load
from app.embedded.process import pids_where
from app.embedded.server import free_port
from tests.kit import doc_pages
from tests.kit.doc_pages import Reader
from tests.kit.pages import Person, Seen
from tests.kit.process import ROOT, Process, Processes
from tests.kit.waiting import wait_until

SCRIPT = Path(sys.executable).with_name("tidemill")
MODULE = """
import time
from celery import shared_task

@shared_task(queue="naps")
def nap(seconds):
    time.sleep(seconds)
    return "rested"
"""
ENQUEUE = """
import sys
from naps import nap
from tidemill import enqueue, wait
job = enqueue(nap.s(float(sys.argv[1])))
print(wait(job, 60).outcome if len(sys.argv) > 2 else job)
"""


def port() -> list[str]:
    """Tests run side by side, and 5555 is one port."""
    return ["--flower-port", str(free_port()), "--console-port", str(free_port())]


class Up:
    """One `tidemill up` in a directory with a module of its own."""

    def __init__(self, processes: Processes, directory: Path) -> None:
        self.directory = directory
        (directory / "naps.py").write_text(MODULE)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
        self.env |= {"TIDEMILL_MODULES": "naps", "TIDEMILL_GRACE": "2s", "PYTHONPATH": str(directory)}
        self.env["TIDEMILL_HOME"] = str(directory / "home")  # the kit starts programs in the repository
        self.process: Process = processes.start([str(SCRIPT), "up", *port()], self.env, "up")
        self.family: list[int] = []

    def ready(self) -> Up:
        self.process.wait_for("Tidemill is ready", 300)
        return self

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another terminal, in the directory of the user's module."""
        return subprocess.run(
            words, env=self.env, cwd=self.directory, capture_output=True, text=True, check=False, timeout=120
        )

    def enqueue(self, seconds: float, *more: str) -> str:
        done = self.run(sys.executable, "-c", ENQUEUE, str(seconds), *more)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def left(self) -> list[int]:
        """What runs of all that `up` has started: those remembered, and servers, known by the name of the home."""
        state = load(self.directory / "home")
        servers = [] if state is None else pids_where(lambda command: state.name.encode() in command)
        return [pid for pid in self.family if _alive(pid)] + servers

    def remember(self) -> None:
        self.family = [self.process.pid, *self.process.children()]


def _alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.fixture
def up(processes: Processes, tmp_path: Path) -> Iterator[Up]:
    found = Up(processes, tmp_path)
    yield found
    found.process.kill()


@pytest.mark.parametrize("option", ["--flower-port", "--console-port"])
def test_a_port_that_is_taken_is_refused_before_anything_starts(up_env: dict[str, str], option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = str(taken.getsockname()[1])
        said = subprocess.run(
            [str(SCRIPT), "up", option, number], env=up_env, capture_output=True, text=True, check=False, timeout=120
        )
    assert said.returncode == 1
    assert said.stderr == (
        f"Error: {option}: port {number} of this machine is taken by another program: give another one\n"
    )
    assert said.stdout == ""
    assert not Path(up_env["TIDEMILL_HOME"]).exists()


@pytest.fixture
def up_env(tmp_path: Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    return plain | {"TIDEMILL_HOME": str(tmp_path / "home")}


def test_up_runs_jobs_of_other_processes_and_stops_cleanly(up: Up) -> None:
    log = up.ready().process.log
    _somebody_can_sign_in(up)
    assert up.enqueue(0.1, "wait") == "done"
    _others_find_it(up)
    _links_lead_to_and_fro(up)
    assert "embedded" in log
    assert "; what needs your code: with the same TIDEMILL_MODULES\n" in log
    state = load(up.directory / "home")
    assert state is not None
    assert not [secret for secret in (state.password, state.broker_password, state.admin_password) if secret in log]
    _child_comes_back(up)
    _stops_with_work_handed_back(up)


def _others_find_it(up: Up) -> None:
    status = json.loads(up.run(str(SCRIPT), "status", "--json").stdout)
    assert {queue["name"] for queue in status["queues"]} == {"control", "jobs", "naps"}
    assert all(worker["alive"] for worker in status["workers"])
    doctor = up.run(str(SCRIPT), "doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout
    second = up.run(str(SCRIPT), "up")
    assert second.returncode == 1
    assert second.stderr.count("\n") == 1
    assert f"already run by process {up.process.pid}" in second.stderr
    assert "***" in second.stderr


def _somebody_can_sign_in(up: Up) -> None:
    person, overview = signed_in(up.process)
    assert overview.path == "/"
    assert person.get("/demo").status == 404, "this is not the demo"


def signed_in(process: Process) -> tuple[Person, Seen]:
    """With the token that it has printed; and the page that is seen then."""
    log = process.wait_for(r"it is shown this once:\n.*\n.*tdm_\S+")
    (url,) = re.findall(r"sign in at (\S+) with this token", log)
    (token,) = re.findall(r"tdm_\S+", log)
    person = Person(url)
    return person, person.sign_in(token)


def _links_lead_to_and_fro(up: Up) -> None:
    person, overview = signed_in(up.process)
    flower = re.search(r"Flower +(http://127\.0\.0\.1:\d+)", up.process.log)
    assert flower is not None
    assert flower[1] in overview.links
    with urlopen(flower[1], timeout=60) as answer:  # noqa: S310 - our own
        assert f'href="{person.url}">Tidemill console' in answer.read().decode()


def _child_comes_back(up: Up) -> None:
    [scheduler] = [
        child.pid
        for child in psutil.Process(up.process.pid).children()
        if child.is_running() and "scheduler" in child.cmdline()
    ]
    os.kill(scheduler, signal.SIGKILL)
    up.process.wait_for("scheduler was killed by SIGKILL; it is started again in 1 s")
    up.process.wait_for(lambda log: log.count("scheduler runs") == 2, 300)


def _stops_with_work_handed_back(up: Up) -> None:
    """The nap is longer than the grace of two seconds."""
    job = up.enqueue(60)
    running = f'"id": {job}'
    wait_until(lambda: running in up.run(str(SCRIPT), "job", "list", "--state", "running", "--json").stdout, 300)
    up.remember()
    up.process.terminate()
    assert up.process.wait() == 0, up.process.log
    assert wait_until(lambda: not up.left(), 300)
    last_words = up.process.log.partition("stopping: ")[2]
    assert "the grace is over: what still runs is handed back" in last_words
    assert "it is killed" not in last_words
    assert last_words.endswith("now the servers\nthe embedded servers have ended\n")


def test_up_killed_leaves_nothing(up: Up) -> None:
    up.ready()
    up.enqueue(60)
    up.remember()
    assert len(up.left()) > 10
    assert int((up.directory / "home" / "worker-1.pid").read_text()) in up.family
    os.kill(up.process.pid, signal.SIGKILL)
    assert wait_until(lambda: not up.left(), 300)


def test_up_ends_while_it_starts(up: Up) -> None:
    up.process.wait_for("starting the embedded servers")
    up.remember()
    up.process.terminate()
    assert up.process.wait() in (0, 130)
    assert wait_until(lambda: not up.left(), 300)
    assert "Traceback" not in up.process.log


def test_up_on_servers_of_others(env: dict[str, str], processes: Processes) -> None:
    """It starts none, and stops none; a second signal does not wait for what runs."""
    env = env | {"TIDEMILL_GRACE": "60s"}
    process = processes.start([str(SCRIPT), "up", "--workers", "2", *port()], env, "up")
    process.wait_for("Tidemill is ready", 300)
    assert "embedded" not in process.log
    assert "worker-2" in process.log
    children = process.children()
    processes.python(
        "from tests.kit.tasks import sleep_for; from tidemill import enqueue; enqueue(sleep_for.s(60))", env
    )
    wait_until(lambda: "sleep_for" in process.log, 300)
    process.terminate()
    process.wait_for("stopping: ")
    process.terminate()
    assert process.wait() == 0
    assert wait_until(lambda: not any(map(_alive, children)), 300)


EXPERIMENTS = "quickstart.md#Break it and watch it heal"
#: What has been done so far, for each of the reasons that work starts for.
DONE = sa.text("""
    SELECT (SELECT count(*) FROM tidemill.job_log WHERE outcome = 'done'),
           (SELECT count(*) FROM tidemill.run WHERE state = 'done'),
           (SELECT count(*) FROM tidemill.event),
           (SELECT count(*) FROM tidemill.process WHERE state = 'FINISHED')
""")
RESTARTED = "worker-1 was killed by SIGKILL; it is started again"
#: The same on the overview: of runs, processes and jobs.
FIGURES = ("runs done", "finished,", "done,")
#: What the world outside finds when it looks at all that came of it.
PROOFS = (
    r"[1-9]\d* increments, each of them once",
    r"are at rest, each as it should be",
    r"each is there once, and each order as it should be",
    r"rolled back; 0 mails were sent for those",
)


@pytest.mark.timeout(1800)
def test_the_demo_shows_work_and_recovery(processes: Processes, tmp_path: Path) -> None:
    """The one thing it must show: a worker is killed, and its job is done all the same. Then somebody breaks what the
    quick start and the console say, as they say it, and it heals."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
    home = tmp_path / ".tidemill"
    more = {"TIDEMILL_HOME": str(home), "TIDEMILL_LEASE": "2s", "TIDEMILL_SWEEP_INTERVAL": "500ms"}
    process = processes.start([str(SCRIPT), "up", "--demo", *port()], env | more, "demo")
    process.wait_for(r"jobs: [1-9]\d* done")
    process.wait_for(r"rolled back; 0 mails were sent for those")
    process.wait_for(r"is killed with -9, while it runs job")
    process.wait_for(r"lost its worker, was recovered and is done")
    _the_console_shows_the_same(process, home)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    work = Work(process, home)
    reader = Reader(tmp_path, env, again=work.lost_nothing, after=work.goes_on)
    reader.follow(EXPERIMENTS)
    assert work.kills == 3
    assert reader.done >= 17
    work.is_as_it_should_be()
    process.terminate()
    assert process.wait() == 0, process.log


def _the_console_shows_the_same(process: Process, home: Path) -> None:
    person, overview = signed_in(process)
    assert f"{person.url}/demo says what" in process.log
    assert "/demo" in overview.links
    wait_until(lambda: all(re.search(rf"[1-9]\d* {each}", person.get("/").text) for each in FIGURES), 300)
    page = person.get("/demo").text
    for commands, _ in doc_pages.typed(EXPERIMENTS):
        for command in commands:
            shown = command.replace(".tidemill", str(home))
            assert shown in page or command.endswith(".venv/bin/activate"), command


#: Who holds what is put back when its lease is over; and how much was.
HELD = sa.text("""
    SELECT claimed_by FROM tidemill.job WHERE state = 'running'
    UNION ALL SELECT claimed_by FROM tidemill.stage_visit WHERE state = 'running'
    UNION ALL SELECT claimed_by FROM tidemill.run WHERE state = 'running'
""")
PUT_BACK = sa.text("SELECT coalesce(sum(value), 0) FROM tidemill.counter WHERE name = 'repaired.lost_claim'")


class Work:
    """Of a demo that somebody breaks."""

    def __init__(self, demo: Process, home: Path) -> None:
        self._demo, self._home = demo, home
        state = load(home)
        assert state is not None
        self._engine = sa.create_engine(state.urls()["database_url"], poolclass=sa.NullPool)
        self.kills = 0
        #: Of the worker: by the demo itself, and by the reader.
        self.workers_killed = demo.log.count("is killed with -9")
        self._put_back = self._settled()

    def _settled(self) -> int:
        """How much was put back, when nobody that is dead holds anything."""

        def all_alive() -> bool:
            with self._engine.connect() as connection:
                holders = [str(each) for each in connection.execute(HELD).scalars()]
            return all(_alive(int(each.rpartition("/")[2].partition(".")[0])) for each in holders)

        wait_until(all_alive, 120, "what the dead held is put back")
        with self._engine.connect() as connection:
            return int(connection.execute(PUT_BACK).scalar_one())

    def lost_nothing(self, commands: list[str]) -> bool:
        """Whether the worker that was killed held nothing; when it is back and works."""
        if "worker-1.pid" not in commands[0]:
            return False
        self.workers_killed += 1
        before, self._put_back = self._put_back, self._settled()
        wait_until(lambda: self._demo.log.count(RESTARTED) == self.workers_killed, 60, "its end was seen")
        wait_until((self._home / "worker-1.pid").exists, 60, "it was started again")
        return self._put_back == before

    def _done(self) -> list[int]:
        """Nothing while Postgres is away."""
        with suppress(OperationalError), self._engine.connect() as connection:
            return list(connection.execute(DONE).one())
        return []

    def goes_on(self, commands: list[str]) -> None:
        """Something was killed: work goes on for all of its reasons."""
        if not any(each.startswith("kill ") for each in commands):
            return
        self.kills += 1
        before = wait_until(self._done, 300)
        wait_until(
            lambda: [now for now, then in zip(self._done(), before, strict=False) if now > then][3:], 120, "more"
        )

    def is_as_it_should_be(self) -> None:
        """In what is said from now on."""
        said = len(self._demo.log)
        self._demo.wait_for(lambda log: all(re.search(each, log[said:]) for each in PROOFS), 300)
        assert self._demo.log.count(RESTARTED) == self.workers_killed
        assert self._demo.log.count("the embedded broker has died; it is started again") == 1
        assert self._demo.log.count("the embedded Postgres has died; it is started again") == 1
