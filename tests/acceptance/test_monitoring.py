"""What monitoring sees of real processes: Flower beside them, and how long work took."""

from __future__ import annotations

import base64
import gzip
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import sqlalchemy as sa
from sqlalchemy.orm import Session

from app import timings
from app.embedded.server import free_port
from tests.kit import tasks
from tests.kit.process import Process, Processes
from tests.kit.waiting import wait_until
from tidemill import enqueue

PASSWORD = "let-me-in"


def get(url: str, password: str | None = None) -> tuple[int, str]:
    """Status and text."""
    request = urllib.request.Request(url)  # noqa: S310 - our own
    if password is not None:
        request.add_header("Authorization", f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_flower_beside_our_workers(env: dict[str, str], processes: Processes, session: Session) -> None:
    processes.celery(env, "worker", "-E", "-c", "1", "-n", "shown@%h", name="shown").wait_for("ready")
    url = f"http://127.0.0.1:{(port := free_port())}"
    more = {"FLOWER_BASIC_AUTH": f"me:{PASSWORD}", "TIDEMILL_CONSOLE_URL": "https://ops.example/tidemill"}
    flower = processes.celery(env | more, "flower", f"--port={port}", "--address=0.0.0.0", name="flower")
    flower.wait_for("Visit me at")
    for path in ("/", "/workers", "/tasks", "/metrics", "/api/workers", "/api/tasks"):
        assert get(url + path)[0] == 401, path
        assert get(url + path, "wrong")[0] == 401, path
    assert get(f"{url}/healthcheck") == (200, "OK")
    assert get(f"{url}/metrics", PASSWORD)[0] == 200
    wait_until(lambda: "shown@" in get(f"{url}/workers?refresh=1&json=1", PASSWORD)[1], 300)
    assert 'href="https://ops.example/tidemill">Tidemill console</a>' in get(f"{url}/workers", PASSWORD)[1]

    query = "draw=1&start=0&length=100&search[value]=&order[0][column]=0&order[0][dir]=asc&columns[0][data]=name"

    def shown(name: str) -> bool:
        if name == tasks.noop.name:
            enqueue(tasks.noop.s())
        else:
            # Nobody rings for it, until the worker looks by itself.
            session.execute(sa.text("SELECT tidemill.enqueue(:task, '[]')"), {"task": tasks.noop.name})
            session.commit()
        return f'"{name}"' in get(f"{url}/tasks/datatable?{query}", PASSWORD)[1]

    for name in (tasks.noop.name, "work of jobs"):
        wait_until(partial(shown, name), 60, f"a ticket is called {name}")
    assert PASSWORD not in flower.log


def test_flower_does_not_start_open(env: dict[str, str], processes: Processes) -> None:
    flower = processes.celery(env, "flower", f"--port={free_port()}", "--address=0.0.0.0", name="flower")
    assert flower.wait() == 1
    assert "Error: Flower would be open to whoever reaches 0.0.0.0: set FLOWER_BASIC_AUTH" in flower.log
    assert "Traceback" not in flower.log


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Takes spans, as they are sent."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", received
        finally:
            server.shutdown()


def test_workers_tell_how_long_work_took_and_what_a_line_is_about(
    env: dict[str, str], processes: Processes, session: Session
) -> None:
    with collector() as (endpoint, received):
        more = {"TIDEMILL_LOG_FORMAT": "json", "TIDEMILL_TRACING": "yes", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
        _tells(processes.celery_worker(env | more, 2), session)
    # They were sent when its children ended, if not before.
    spans = b"".join(received)
    assert [name in spans for name in (b"wait jobs", tasks.say.name.encode(), b"tidemill.job_id")] == [True] * 3


def _tells(worker: Process, session: Session) -> None:

    def counted(measure: str, name: str) -> int:
        session.rollback()
        found = timings.read(session, 1000)
        return sum(each.times for each in found if (each.series.measure, each.series.name) == (measure, name))

    said = enqueue(tasks.say.s("hello"))
    for _ in range(20):
        enqueue(tasks.noop.s())
    wait_until(lambda: counted("work", tasks.noop.name) == 20, 60, "the heartbeat has told")
    assert counted("wait", "jobs") == 21
    enqueue(tasks.sleep_for.s(1.5))
    wait_until(lambda: counted("wait", "jobs") == 22 or worker.status is not None, 60, "it was taken and done")
    worker.terminate()
    assert worker.wait() == 0
    assert counted("work", tasks.sleep_for.name) == 1
    # Before them comes Celery's banner, which is for people, and its last word is too.
    lines = [json.loads(line) for line in worker.log.splitlines() if line.startswith("{")]
    assert {line["service"] for line in lines} == {"worker"}
    assert [line["message"] for line in lines if line["message"].endswith(" ready.")]
    (own,) = [line for line in lines if line["logger"] == tasks.__name__]
    assert (own["message"], own["job_id"], own["task"]) == ("said 'hello'", said, tasks.say.name)
    first = worker.log.index('{"time"')
    others = [line for line in worker.log[first:].splitlines() if line and not line.startswith("{")]
    assert others == ["worker: Warm shutdown (MainProcess)"]
