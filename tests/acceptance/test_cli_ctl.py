"""`tidemill ctl` on a real database: most of it in this process, and watching as the console script."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import IO

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app.audit import Audit
from tests.kit.cli import SCRIPT, Said, Tidemill, one_sentence
from tests.kit.process import ROOT
from triggers import ctl
from triggers.model import CtlChange, ReactiveLeaf, ReactiveTask

T = datetime(2026, 7, 1, tzinfo=UTC)
AT = "2026-07-01T00:00:00Z"


@pytest.fixture(autouse=True)
def _database(session: Session) -> None:
    """Each test on its own."""


def test_advance_says_what_moved(tidemill: Tidemill) -> None:
    said = tidemill(f"ctl advance dds.orders loaded_to={AT}")
    assert said == Said(0, f"dds.orders.loaded_to moved to {AT}\n", "")
    said = tidemill(f"ctl advance dds.orders loaded_to=2026-07-01T03:00:00+03:00 a=b={AT}")
    assert said.out == f"dds.orders.loaded_to was there already: {AT}\ndds.orders.a=b moved to {AT}\n"
    assert ctl.get("dds.orders", "a=b") == T


def test_advance_does_all_or_nothing(tidemill: Tidemill) -> None:
    ctl.advance("e", b=T)
    said = tidemill(f"ctl advance e a={AT} b=2026-06-30T00:00:00Z")
    assert (said.code, said.out) == (1, "")
    assert one_sentence(said, "e.b is at 2026-07-01", "cannot be advanced back to 2026-06-30", "restating")
    assert ctl.get("e", "a") is None


@pytest.mark.parametrize(("text", "ago"), [("now", 0), ("2h ago", 7200), ("in 30min", -1800)])
def test_now_and_spans_are_times(tidemill: Tidemill, text: str, ago: int) -> None:
    assert tidemill("ctl advance e", f"p={text}").code == 0
    found = ctl.get("e", "p")
    assert found is not None
    assert abs(datetime.now(UTC) - found - timedelta(seconds=ago)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("assignments", "parts"),
    [
        (["p=2026-07-01"], ("'2026-07-01' has no time zone", "write 2026-07-01T00:00:00Z")),
        (["p=2026-07-01T12:00"], ("has no time zone",)),
        (["p=2h"], ("'2h' has no direction", "'2h ago'", "'in 2h'")),
        (["p=9999999w ago"], ("further away than time goes",)),
        (["p=soon"], ("'soon' is neither a time",)),
        (["p=infinity"], ("'infinity' is neither a time",)),
        (["p"], ("'p' is no parameter with its value", "PARAM=TIME", "loaded_to=2026-07-01T00:00:00Z")),
        (["p="], ("is no parameter with its value",)),
        ([f"={AT}"], ("is no parameter with its value",)),
        ([f"p={AT}", f"p={AT}"], ("given twice",)),
        ([], ("Missing argument",)),
    ],
)
@pytest.mark.parametrize("command", ["advance", "restate --reason r --yes"])
def test_wrong_usage_is_one_sentence(
    tidemill: Tidemill, command: str, assignments: list[str], parts: tuple[str, ...]
) -> None:
    name, *options = command.split()
    said = tidemill(f"ctl {name}", "e", *assignments, *options)
    assert (said.code, said.out) == (2, "")
    assert one_sentence(said, *parts)
    assert ctl.values() == []


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["e", "p=9999-01-01T00:00:00Z"], ("e.p=9999-01-01", "lies after 9998-12-31")),
        (["e", "p=2990-01-01T00:00:00Z"], ("more than 10 years ahead",)),
        (["e", "p=0001-01-01T00:00:00Z"], ("before the year 2",)),
        (["", f"p={AT}"], ("entity=''", "1 to 200 characters")),
        (["e", f"{'p' * 5000}={AT}"], ("parameter=", "1 to 200 characters")),
        (["a\x1b[31m", f"p={AT}"], (r"a\x1b[31m", "control character")),
    ],
)
def test_what_cannot_be_is_refused(tidemill: Tidemill, words: list[str], parts: tuple[str, ...]) -> None:
    said = tidemill("ctl advance", *words)
    assert (said.code, said.out) == (1, "")
    assert one_sentence(said, *parts)
    assert "\x1b" not in said.err


def test_get(tidemill: Tidemill) -> None:
    ctl.advance("dds.orders", loaded_to=T, checked_to=T)
    assert tidemill("ctl get dds.orders loaded_to") == Said(0, f"{AT}\n", "")
    assert tidemill("ctl get dds.orders loaded_to --json").data["value"] == "2026-07-01T00:00:00+00:00"
    assert [each["parameter"] for each in tidemill("ctl get dds.orders --json").data["values"]] == [
        "checked_to",
        "loaded_to",
    ]
    assert "checked_to" in tidemill("ctl get dds.orders").out


@pytest.mark.parametrize("words", ["dds.orders", "dds.orders loaded_to", "dds.* loaded_to", "dds.orders --json"])
def test_get_of_what_has_no_value(tidemill: Tidemill, words: str) -> None:
    # T14
    ctl.advance("dds.items", loaded_to=T)
    said = tidemill(f"ctl get {words}")
    assert (said.code, said.out) == (1, "")
    assert one_sentence(said, "has no value", "tidemill ctl list")


def test_list(tidemill: Tidemill) -> None:
    assert tidemill("ctl list") == Said(0, "no such parameter has a value\n", "")
    ctl.advance_many({(name, "p"): T for name in ("mart.a", "mart.b", "dds.a")})

    def found(words: str) -> list[str]:
        return [each["entity"] for each in tidemill(f"ctl list --json {words}").data["values"]]

    assert found("") == ["dds.a", "mart.a", "mart.b"]
    assert found("mart.*") == ["mart.a", "mart.b"]
    assert "mart.a" in tidemill("ctl list mart.*").out
    assert "--limit shows more" in tidemill("ctl list --limit 1").err
    assert one_sentence(tidemill("ctl list", "a\nb"), "control character")


def test_history(tidemill: Tidemill, session: Session) -> None:
    assert tidemill("ctl history e p") == Said(0, "e.p has never changed\n", "")
    for days in range(3):
        ctl.advance("e", p=T + timedelta(days=days))
    last, before = tidemill("ctl history e p --json --limit 2").data["history"]
    assert (last["previous"], last["restated"]) == (before["value"], False)
    assert last["xid"] == int(session.scalars(sa.select(CtlChange.xid).order_by(CtlChange.id.desc())).first() or 0)
    assert "2026-07-03 00:00:00" in tidemill("ctl history e p").out


# Restating


def add_task(session: Session, name: str, *, latched: bool) -> None:
    columns = {"module": "m", "pool": "p", "priority": 0, "trigger": {}, "shape": "s", "produces": [], "code": "c"}
    columns |= {"first_run": "fire", "on_lapse": "drop", "max_failures": 5, "backoff": timedelta(seconds=1)}
    task_id = session.execute(
        sa.insert(ReactiveTask).values(name=name, **columns).returning(ReactiveTask.id)
    ).scalar_one()
    leaf = {"task_id": task_id, "position": 0, "entity": "e", "parameter": "p", "latched": latched}
    session.execute(sa.insert(ReactiveLeaf).values(leaf))
    session.commit()


RESTATE = "ctl restate e p=2026-06-30T00:00:00Z --reason empty"


def test_restate_previews_asks_and_says_what_to_do(
    tidemill: Tidemill, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # T15
    add_task(session, "m.delay", latched=False)
    add_task(session, "m.delta", latched=True)
    ctl.advance("e", p=T)
    nobody = tidemill(RESTATE)
    assert nobody.code == 2
    assert one_sentence(nobody, "--yes")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda _question: False)
    refused = tidemill(RESTATE)
    assert (refused.code, refused.out.splitlines()[-1]) == (1, "Nothing was changed.")
    assert ctl.get("e", "p") == T
    monkeypatch.setattr("click.confirm", lambda _question: True)
    said = tidemill(RESTATE)
    assert said.code == 0
    for part in ("2026-07-01 00:00:00", "2026-06-30 00:00:00", "tasks that rest on this: m.delay, m.delta"):
        assert part in said.out
        assert part in refused.out
    advice = [line.partition("   #")[0].strip() for line in said.out.splitlines() if "tidemill reactive" in line]
    assert advice == [
        "tidemill reactive run m.delay --record",
        "tidemill reactive rewind m.delta --to 2026-06-30T00:00:00Z",
        "tidemill reactive forget m.delta",
    ]
    assert ctl.get("e", "p") == T - timedelta(days=1)


def test_restate_of_many_with_yes(tidemill: Tidemill, session: Session) -> None:
    said = tidemill(f"ctl restate e p={AT} reason={AT} --yes --reason", "loaded by hand")
    assert said.code == 0
    assert "tasks that rest on this: none" in said.out
    assert [(each.subject, each.reason) for each in session.scalars(sa.select(Audit).order_by(Audit.id))] == [
        ("e.p", "loaded by hand"),
        ("e.reason", "loaded by hand"),
    ]


def test_restate_wants_a_reason(tidemill: Tidemill) -> None:
    said = tidemill(f"ctl restate e p={AT} --yes")
    assert said.code == 2
    assert one_sentence(said, "--reason")
    said = tidemill(f"ctl restate e p={AT} --yes --reason", " ")
    assert (said.code, said.out) == (1, "")
    assert one_sentence(said, "reason=' ' must say")


# Watching


@contextmanager
def watching(words: str, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([SCRIPT, *words.split()], env=env, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "watching; Ctrl-C ends it\n"
            yield process
        finally:
            process.kill()


def read(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_watch_shows_changes_as_they_are_committed(env: dict[str, str], session: Session) -> None:
    with watching("ctl watch mart.* --json", env) as process:
        ctl.advance("mart.late", session=session, p=T)
        ctl.advance("dds.orders", p=T)
        ctl.advance("mart.soon", p=T)
        assert json.loads(read(process.stdout))["entity"] == "mart.soon"
        session.commit()
        late = json.loads(read(process.stdout))
        assert (late["entity"], late["value"], late["previous"]) == ("mart.late", "2026-07-01T00:00:00+00:00", None)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert (process.communicate()) == ("", "")


def test_watch_speaks_to_people_and_outlives_its_connection(env: dict[str, str], session: Session) -> None:
    with watching("ctl watch", env) as process:
        ctl.advance("e", p=T)
        assert read(process.stdout).endswith(f"e.p began at {AT}\n")
        session.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
        session.commit()
        ctl.restate("e", p=T - timedelta(days=1), reason="because")
        assert read(process.stdout).endswith(f"e.p restated to 2026-06-30T00:00:00Z from {AT}\n")
        assert process.stdout is not None
        process.stdout.close()
        ctl.advance("e", p=T)
        assert process.wait() == 1
