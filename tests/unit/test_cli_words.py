"""What may be written on the command line, and how it answers: no database, no process."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from app import words
from app.cli import output
from app.cli.arguments import NONE, Moment, OrNone, Past, RateText
from app.cli.modules import refuse_names_of_ours
from app.cli.root import run, tidemill
from app.cli.services import environment, specs
from app.cli.supervise import Stage
from app.errors import SettingsError
from app.settings import settings


def commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            found += commands(each, (*path, name))
    return found


ALL = commands(tidemill)


@pytest.mark.parametrize("path", [path for path, _ in ALL], ids=" ".join)
def test_every_command_has_help(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0
    assert "Usage: tidemill" in capsys.readouterr().out


@pytest.mark.parametrize(("path", "command"), ALL[1:], ids=[" ".join(path) for path, _ in ALL[1:]])
def test_every_option_is_described_and_the_summary_fits(path: tuple[str, ...], command: click.Command) -> None:
    assert command.help
    assert not command.get_short_help_str(65).endswith("..."), path
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, (path, parameter.name)


#: All else reads.
CHANGES = {
    *("up", "migrate", "rpc", "console", "start", "run", "set", "create", "revoke", "replay", "subscribe"),
    *("pause", "resume", "limit", "block", "unblock", "reset", "offer", "priority", "snooze", "release", "restate"),
    *("cancel", "remove", "delete", "forget", "rewind", "abort", "retry", "rerun", "redrive"),
    *("unsubscribe", "restored"),
}


@pytest.mark.parametrize(("path", "command"), ALL[1:], ids=[" ".join(path) for path, _ in ALL[1:]])
def test_what_reads_has_json(path: tuple[str, ...], command: click.Command) -> None:
    changes = path[-1] in CHANGES or path[:-1] == ("recover", "operation", "start")
    if not changes and not isinstance(command, click.Group):
        assert any("--json" in parameter.opts for parameter in command.params)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tidemill, version ")


@pytest.mark.parametrize(
    "words",
    [
        "nonsense",
        "job log --since yesterday",
        "job log --since 2026-07-01T12:00:00",
        "job log --outcome good",
        "job list --state lost",
        "job list --limit 0",
        "job show x",
        "job show 9223372036854775808",
        "job retry",
        "job rerun",
        "job rerun --task t --log-id 1",
        "job snooze 1",
        "job snooze 1 --until soon",
        "job priority 1 40000",
        "job periodic remove report",
        "queue limit jobs",
        "queue limit jobs --rate 10",
        "queue limit jobs --parallel 0",
        "queue limit jobs --burst 0.5",
        "migrate --check --grant someone",
        "up --workers 0",
    ],
)
def test_wrong_usage_is_one_sentence_and_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1
    assert "(see 'tidemill" in said.err


def converted(kind: click.ParamType[Any], text: str) -> Any:
    return kind.convert(text, None, None)


@pytest.mark.parametrize("text", ["2h", " 2h ago", "in 2h", "120min"])
def test_a_moment_may_be_a_span(text: str) -> None:
    assert converted(Moment(), text) == timedelta(hours=2)
    assert abs(datetime.now(UTC) - timedelta(hours=2) - converted(Past(), text)) < timedelta(minutes=1)


def test_a_moment_may_be_a_time_with_its_zone() -> None:
    assert converted(Past(), "2026-07-01T12:00:00+03:00") == datetime(2026, 7, 1, 9, tzinfo=UTC)
    assert converted(Moment(), "2026-07-01T12:00:00Z") == datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "2", "2x", "-2h", "2026-07-01", "2026-13-01T00:00:00Z", "999999999w"])
def test_a_moment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises((click.BadParameter, OverflowError)) as error:
        converted(Past(), text)
    assert isinstance(error.value, click.BadParameter)


def test_limits_may_be_taken_away() -> None:
    assert converted(RateText(), NONE) == NONE
    assert converted(OrNone(1), NONE) == NONE
    assert converted(OrNone(1), "3") == 3


def test_examples_of_words_hold() -> None:
    found = doctest.testmod(words)
    assert found.attempted > 0
    assert found.failed == 0


def test_a_table_has_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("a", "b"), [(1, "two\nlines"), (None, True), (2.0, timedelta(seconds=90))])
    assert capsys.readouterr().out == "a  b\n1  two lines\n-  yes\n2  1min 30s\n"


def test_no_url_is_on_a_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_DATABASE_URL", "postgresql://user:secret@db.example/x")
    monkeypatch.setenv("TIDEMILL_BROKER_URL", "redis://:secret@broker.example")
    settings.cache_clear()
    try:
        found, env = specs(2, ["jobs", "mail"], 5555, 8765), environment()
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    assert [spec.name for spec in found] == [
        "worker-1",
        "worker-2",
        "control",
        "scheduler",
        "beat",
        "flower",
        "console",
    ]
    assert [spec.stage for spec in found].count(Stage.WORKER) == 3
    assert not [word for spec in found for word in spec.command if ".example" in word]
    assert env["TIDEMILL_BROKER_URL"] == "redis://:secret@broker.example"
    assert "jobs,mail" in found[0].command


def test_a_module_that_hides_ours_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="hides Tidemill's own module 'app'"):
        refuse_names_of_ours()
    (tmp_path / "app.py").unlink()
    refuse_names_of_ours()


@pytest.mark.parametrize(
    "arguments", [["job", "show", "x"], ["up", "--flower-port", "x"], ["job", "list", "--limit", "x"]]
)
def test_what_is_no_number_is_called_so(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "'x' is not a whole number" in capsys.readouterr().err
