"""Pages of jobs, their log, timetables and queues: what they say, refuse and escape, and what is done on them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import db
from app.audit import Audit
from app.console.web import memory
from app.embedded import OwnServers
from app.jobs.model import JOB, PeriodicJob
from app.limits import Queue
from tests.kit import console, pages_jobs, standing
from tests.kit.database import Databases
from tests.kit.pages import Person, Seen
from tests.kit.pages_world import EVIL

World = dict[str, Any]


@pytest.fixture(scope="module")
def url(_servers: OwnServers, _databases: Databases) -> Iterator[str]:
    with standing.console_at(_servers, _databases) as found:
        yield found


@pytest.fixture(scope="module")
def world(url: str) -> World:
    return pages_jobs.fill(EVIL)


@pytest.fixture(scope="module")
def person(url: str, world: World) -> Person:
    found = Person(url)
    found.sign_in(console.token("olga", "operator"))
    return found


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with Session(db.engine()) as found:
        yield found


def act(person: Person, path: str, **fields: str) -> Seen:
    return person.get(path).form(path.partition("?")[0]).send(**fields)


def ids(page: Seen, what: str) -> list[int]:
    return [int(each.partition('"')[0]) for each in page.html.split(f'<tr id="{what}-')[1:]]


def job(session: Session, job_id: int) -> Any:
    session.rollback()
    return session.execute(sa.select(*JOB.c).where(JOB.c.id == job_id)).one_or_none()


def new_job(session: Session, **values: Any) -> int:
    made = pages_jobs.job(session, "shop.own", **values)
    session.commit()
    memory.forget_all()
    return made


def audited(session: Session, action: str) -> tuple[str, str, str | None]:
    session.rollback()
    query = sa.select(Audit.actor, Audit.subject, Audit.reason).where(Audit.action == action)
    row = session.execute(query.order_by(Audit.id.desc()).limit(1)).one()
    return row[0], row[1], row[2]


# What they say


def test_jobs_are_searched_for(person: Person, world: World) -> None:
    page = person.get("/jobs")
    for words in ("shop.mail", "the bank says 503", "10/s burst 5", "mail-7"):
        assert words in page.text, words
    form = page.form("/jobs")
    assert world["running_job"] in ids(form.send(state="running"), "job")
    assert ids(form.send(key="mail-7"), "job") == [world["hostile_job"] + 1]
    assert ids(form.send(task="shop.charge", state="parked"), "job") == [world["parked_job"]]
    assert ids(form.send(queue=EVIL), "job") == [world["hostile_job"]]
    assert ids(form.send(arguments="secret-less"), "job") == [world["waiting_job"]]
    assert "No such job is in the queue" in form.send(error="odd").text
    assert world["waiting_job"] not in ids(person.get(f"/jobs?after={world['waiting_job']}"), "job")


def test_a_job(person: Person, world: World) -> None:
    waiting = person.get(f"/jobs/{world['waiting_job']}")
    for words in ("shop.mail", "secret-less", "waiting", "0 of 4", "It has not run yet"):
        assert words in waiting.text, words
    ended = person.get(f"/jobs/{world['ended_job']}")
    for words in ("not in the queue any more", "failed", "Traceback", "worker-1@host"):
        assert words in ended.text, words
    assert "worker-1@host/7.x" in person.get(f"/jobs/{world['running_job']}").text


def test_arguments_that_are_long_or_odd(person: Person, session: Session) -> None:
    odd = new_job(session, args=sa.literal_column("'" + "[" * 3000 + "]" * 3000 + "'::json"))
    long = new_job(session, args=["x" * 100_000])
    assert person.get(f"/jobs/{odd}").status == 200
    assert person.get("/jobs?task=shop.own").status == 200
    assert len(person.get(f"/jobs/{long}").html) < 60_000


def test_the_log_is_searched(person: Person, world: World) -> None:
    form = person.get("/log").form("/log")
    assert "the bank says 503" in form.send(job=str(world["parked_job"])).text
    assert len(ids(form.send(outcome="failed", task="shop.charge", since="2h"), "entry")) == 2
    assert len(ids(form.send(worker="worker-1", error="503"), "entry")) == 1
    assert "No such execution" in form.send(until="1d").text
    assert "since" in form.send(since="yesterday").text
    assert "is no place in the log" in person.get("/log?before=x").text


def test_the_log_goes_on_where_a_page_ended(person: Person, session: Session) -> None:
    made = [pages_jobs.entry(session, 700_000 + number, "shop.paged", "done") for number in range(120)]
    session.commit()
    memory.forget_all()
    seen, path = list[int](), "/log?task=shop.paged"
    while path:
        page = person.get(path)
        seen += ids(page, "entry")
        path = next((f"/log{link}" for link in page.links if "before=" in link), "")
    assert sorted(seen) == made
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/jobs/999999999", 404),
        ("/jobs/999999999/cancel", 404),
        ("/jobs?state=odd", 400),
        ("/jobs?after=x", 400),
        ("/log/999999999/rerun", 404),
        ("/log/rerun", 400),
        ("/periodic/pause?name=nobody", 404),
        ("/queue/pause?name=nobody", 404),
        ("/queue/limit", 400),
    ],
)
def test_refused(person: Person, path: str, status: int) -> None:
    assert person.get(path).status == status


def test_queues_workers_and_services(person: Person) -> None:
    page = person.get("/queues")
    for words in ("10/s burst 5", "worker-2@host", "scheduler-1/9.abc", "alive", "no leader now"):
        assert words in page.text, words
    assert "There is no such queue" in page.form("/queues").send(name="odd").text


def test_what_a_producer_wrote_is_escaped(person: Person, world: World) -> None:
    names = ("waiting_job", "hostile_job", "ended_job")
    paths = ["/jobs", "/log", "/periodic", "/queues", *(f"/jobs/{world[name]}" for name in names), "/jobs/900002"]
    paths += [f"/jobs/{world['hostile_job']}/cancel", f"/jobs/{world['hostile_job']}/retry"]
    paths += [f"{path}?{urlencode({'name': EVIL})}" for path in ("/periodic/resume", "/queue/resume", "/queue/limit")]
    paths += [f"{path}?{urlencode({'task': EVIL, 'key': EVIL})}" for path in ("/jobs", "/log", "/log/rerun")]
    for path in paths:
        page = person.get(path)
        assert page.status == 200, path
        for word in ("<script>alert", "<img", ">49<"):
            assert word not in page.html, path


# What is done


def test_cancel_and_put_in_again(person: Person, session: Session) -> None:
    made = new_job(session, args=[7])
    page = act(person, f"/jobs/{made}/cancel", reason="not now")
    assert f"Job {made} is cancelled." in page.text
    assert job(session, made) is None
    assert audited(session, "job.cancel") == ("olga@console", f"job {made}", "not now")
    again = page.form("/rerun").send()
    new = int(again.path.rpartition("/")[2])
    assert job(session, new).args == [7]
    assert audited(session, "job.rerun")[1] == f"job {new}"
    assert "is cancelled" in again.form("/cancel").send().text


def test_to_undo_a_snooze_keeps_the_backoff(person: Person, session: Session) -> None:
    made = new_job(session, attempts=1)
    session.execute(sa.update(JOB).where(JOB.c.id == made).values(not_before=sa.func.now() + timedelta(hours=5)))
    session.commit()
    before = job(session, made).not_before
    page = act(person, f"/jobs/{made}/snooze", until="2h")
    assert job(session, made).not_before is None
    page.form("/snooze").send()
    assert job(session, made).due_at == before


def test_snooze_and_undo(person: Person, session: Session) -> None:
    made = new_job(session)
    before = job(session, made).due_at
    page = act(person, f"/jobs/{made}/snooze", until="2h")
    assert job(session, made).due_at > before
    assert audited(session, "job.snooze")[:2] == ("olga@console", f"job {made}")
    page.form("/snooze").send()
    assert job(session, made).due_at == before
    assert act(person, f"/jobs/{made}/snooze", until="soon").status == 400


def test_priority_and_undo(person: Person, session: Session) -> None:
    made = new_job(session)
    page = act(person, f"/jobs/{made}/priority", priority="10")
    assert job(session, made).rank == -10
    page.form("/priority").send()
    assert job(session, made).rank == 0
    assert act(person, f"/jobs/{made}/priority", priority="99999").status == 400
    assert act(person, f"/jobs/{made}/priority", priority="").status == 400


def test_a_parked_one_is_tried_again(person: Person, session: Session) -> None:
    made = new_job(session, state="parked", error="no", attempts=4)
    act(person, f"/jobs/{made}/retry", reason="mended")
    row = job(session, made)
    assert (row.state, row.attempts, row.error) == ("waiting", 0, None)
    assert audited(session, "job.retry") == ("olga@console", f"job {made}", "mended")
    assert "only a waiting job can" in person.get(f"/jobs/{new_job(session, state='parked')}/snooze").text


def test_what_runs_is_left_alone(person: Person, world: World) -> None:
    for deed in ("cancel", "retry", "snooze", "priority"):
        assert person.get(f"/jobs/{world['running_job']}/{deed}").forms[-1].method != "post", deed


def test_what_is_found_in_the_log_is_put_in_again(person: Person, session: Session) -> None:
    for number in (1, 1, 2):
        pages_jobs.entry(session, 800_000 + number, "shop.again", "failed", args=[number])
    session.commit()
    memory.forget_all()
    page = person.get("/log?task=shop.again&outcome=failed")
    question = person.get(next(each for each in page.links if "/log/rerun" in each))
    assert "Put 2 jobs in again" in question.text
    question.form("/log/rerun").send(reason="mended")
    session.rollback()
    found = session.scalars(sa.select(JOB.c.args).where(JOB.c.task == "shop.again").order_by(JOB.c.id))
    assert list(found) == [[1], [2]]
    assert audited(session, "job.rerun") == ("olga@console", "jobs", "mended")


def test_timetables_are_paused_and_resumed(person: Person, session: Session) -> None:
    def paused() -> bool:
        session.rollback()
        query = sa.select(PeriodicJob.paused).where(PeriodicJob.name == "shop.report")
        return bool(session.execute(query).scalar_one())

    page = act(person, "/periodic/pause?name=shop.report", reason="stock-taking")
    assert paused()
    assert audited(session, "periodic.pause") == ("olga@console", "shop.report", "stock-taking")
    assert "It is paused already" in person.get("/periodic/pause?name=shop.report").text
    page.form("/periodic/resume").send()
    assert not paused()


def test_queues_are_paused_and_limited(person: Person, session: Session) -> None:
    def queue() -> Any:
        session.rollback()
        return session.execute(sa.select(*Queue.__table__.c).where(Queue.name == "mail")).one()

    page = act(person, "/queue/pause?name=mail", reason="too many")
    assert queue().paused
    assert audited(session, "queue.pause") == ("olga@console", "mail", "too many")
    page.form("/queue/resume").send()
    assert not queue().paused
    page = act(person, "/queue/limit?name=mail", rate="2/s", parallel="3")
    assert "rate 2/s, at once 3" in page.text
    assert (queue().rate, queue().max_parallel) == (2, 3)
    page.form("/queue/limit").send()
    assert (queue().rate, queue().max_parallel) == (None, None)
    assert act(person, "/queue/limit?name=mail", rate="fast").status == 400


def test_a_viewer_may_not(url: str, world: World) -> None:
    viewer = Person(url)
    viewer.sign_in(console.token("vera", "viewer"))
    for path in (f"/jobs/{world['waiting_job']}/cancel", "/queue/pause?name=mail", "/log/rerun?task=x"):
        assert viewer.get(path).status == 403
    page = viewer.get(f"/jobs/{world['waiting_job']}")
    assert [form.action for form in page.forms if form.method == "post"] == ["/sign-out"]
