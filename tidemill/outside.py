"""An actor that lives in another program: it polls for tasks over HTTP, and brings their results (P10).

    def approve(order_id: str, amount: int) -> dict:
        if amount > 1000:
            raise Fail("Declined", f"{amount} is too much", final=True)
        return {"by": "the example"}

    Worker("https://tidemill.example.org:8765", token, "approve").run(approve)

This file needs nothing but Python: it may be copied into any program, or imported from `tidemill.outside` where
Tidemill is installed. It speaks to no database.
"""

from __future__ import annotations

import http.client
import json
import logging
import random
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import quote, urlsplit

__all__ = ["Fail", "Lost", "Refused", "Task", "Unreachable", "Worker"]

log = logging.getLogger(__name__)

#: What the server may take to answer, beyond what it was asked to wait.
ANSWER_SECONDS = 30.0
FIRST_PAUSE, MOST_PAUSE = 0.5, 30.0
#: The share of the time that is left after which a sign of life is given, and the least that is waited for it.
BEAT_SHARE, LEAST_BEAT = 1 / 3, 0.05
_AGAIN = (408, 429, 500, 502, 503, 504)
#: What the server refuses of an answer, and not of whoever brings it.
_UNFIT = (400, 413, 422)
TYPE_LIMIT, MESSAGE_LIMIT, TRACE_LIMIT = 100, 2_000, 20_000


class Refused(Exception):
    """The server has said no, and would say it again."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{message} ({code}, {status})")
        self.status, self.code, self.message = status, code, message


class Lost(Refused):
    """The task was taken back, or its answer is not wanted any more."""


class Unreachable(Exception):
    """The server does not answer, or says that it cannot now: trying again may help."""


class Fail(Exception):
    """For a function to raise: an error of this type. `final`: it would fail again, so it is not tried again."""

    #: Of a class made of it that does not say.
    type, message, final = "Fail", "", False

    def __init__(self, type: str, message: str = "", *, final: bool = False) -> None:  # noqa: A002
        super().__init__(message)
        self.type, self.message, self.final = type, message, final


@dataclass
class Task:
    process_id: int
    task: int
    actor: str
    epoch: int
    pass_key: str
    attempt: int
    args: list[Any]
    kwargs: dict[str, Any]
    until: str
    #: Seconds until then, when it was handed out.
    remaining: float
    custom_id: str | None
    #: The same however often it is handed out: for effects that must happen once.
    idempotency_key: str
    #: Whether it was taken back. Its result may be taken all the same; whatever else is done for it may be done twice.
    lost: bool = False
    #: On the monotonic clock: when the next sign of life is due.
    beat_at: float = field(default=0.0, repr=False)

    @property
    def path(self) -> str:
        return f"/api/v1/tasks/{self.process_id}/{self.task}"

    def plan(self, remaining: float) -> None:
        self.beat_at = time.monotonic() + max(LEAST_BEAT, remaining * BEAT_SHARE)


_FIELDS = {each.name for each in fields(Task)} - {"lost", "beat_at"}


class Worker:
    """`poll`, `heartbeat` and `release` are single requests; `run` is the loop around them, and `stop` ends it.

    `tls`: for a server whose certificate this machine does not trust by itself. `grace`: how long results are still
    brought after `stop`, when the server does not answer.
    """

    def __init__(
        self,
        url: str,
        token: str,
        actor: str,
        *,
        limit: int = 1,
        wait: float = 20.0,
        grace: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} must begin with http:// or https://, and name a host")
        self.actor, self.limit, self.wait, self.grace = actor, limit, wait, grace
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._prefix, self._token = parts.path.rstrip("/"), token
        self._tls = tls if tls is not None else ssl.create_default_context() if self._secure else None
        self._stopping = threading.Event()
        self._polling: http.client.HTTPConnection | None = None
        #: The task that `run` works on now.
        self.task: Task | None = None

    def poll(self, limit: int | None = None, wait: float | None = None) -> list[Task]:
        """Up to `limit` tasks that are ready now, or become so within `wait` seconds."""
        seconds = self.wait if wait is None else wait
        asked = {"limit": self.limit if limit is None else limit, "wait": f"{round(seconds * 1000)}ms"}
        path = f"/api/v1/actors/{quote(self.actor, safe='')}/poll"
        found = [_task(each) for each in self._post(path, asked, seconds, polling=True)["tasks"]]
        for each in found:
            each.plan(each.remaining)
        return found

    def heartbeat(self, task: Task) -> str:
        """Until when it is to be answered now; `Lost` if it was taken back."""
        said = self._post(f"{task.path}/heartbeat", {"pass_key": task.pass_key})
        task.plan(said["remaining"])
        return str(said["until"])

    def release(self, task: Task, value: Any = None) -> str:
        """The result: `accepted`, or `broken` where it cannot be one. `Lost` if it is not wanted."""
        return self._answer(task, {"value": value})

    def fail(self, task: Task, error: BaseException) -> str:
        """What went wrong: `accepted` where the actor's `fail_types` say so, else `again` or `broken`."""
        return self._answer(task, {"error": _told(error)})

    def _answer(self, task: Task, body: dict[str, Any]) -> str:
        said = self._post(f"{task.path}/release", {"pass_key": task.pass_key, "epoch": task.epoch, **body})
        return str(said["outcome"])

    def stop(self) -> None:
        """`run` takes nothing more, ends what it works on, and returns. It may be called by a signal's handler."""
        self._stopping.set()
        if (polling := self._polling) is not None and (found := polling.sock) is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    def run(self, function: Callable[..., Any]) -> None:
        """Until `stop`: each task is a call of the function, and what it returns or raises is the answer.

        What the server refuses for good (the token, the name of the actor) is raised."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                tasks = self.poll()
            except Unreachable as error:
                if not self._stopping.is_set():
                    log.warning("%s; it is tried again", error)
                    self._stopping.wait(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads who comes back
                    pause = min(pause * 2, MOST_PAUSE)
                continue
            pause = FIRST_PAUSE
            self._work(tasks, function)

    def _work(self, tasks: list[Task], function: Callable[..., Any]) -> None:
        held = list(tasks)
        with self._beating(held):
            for each in tasks:
                # One that was taken back before its turn is somebody else's now.
                if not each.lost:
                    self.task = each
                    self._bring(each, _called(function, each))
                held.remove(each)
        self.task = None

    def _bring(self, task: Task, body: dict[str, Any]) -> None:
        """Until the server has answered; it may be away for long, and the result is worth more than the time. What it
        does not take as an answer becomes an error that says so."""
        pause, gave_up, replaced = FIRST_PAUSE, 0.0, False
        while True:
            try:
                outcome = self._answer(task, body)
                log.info("task %s of process %s: %s", task.task, task.process_id, outcome)
                return
            except Lost as error:
                log.warning("the answer of task %s of process %s is not wanted: %s", task.task, task.process_id, error)
                return
            except Refused as error:
                if error.status == 404:
                    log.warning("task %s of process %s is there no more: %s", task.task, task.process_id, error)
                    return
                if error.status not in _UNFIT or replaced:
                    raise
                log.warning("the answer of task %s of process %s is refused: %s", task.task, task.process_id, error)
                body, replaced = {"error": {"type": "BadValue", "message": error.message, "final": True}}, True
            except Unreachable as error:
                log.warning("%s; the answer of task %s of process %s waits", error, task.task, task.process_id)
                if not self._stopping.wait(pause):
                    pause = min(pause * 2, MOST_PAUSE)
                    continue
                gave_up = gave_up or time.monotonic() + self.grace
                if time.monotonic() > gave_up:
                    raise
                time.sleep(FIRST_PAUSE)

    @contextmanager
    def _beating(self, held: list[Task]) -> Any:
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(held, ended), name="tidemill-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(ANSWER_SECONDS)

    def _beat(self, held: list[Task], ended: threading.Event) -> None:
        """For the one that is worked on, and for those that wait for their turn."""
        while not ended.is_set():
            for each in [task for task in held if not task.lost and task.beat_at <= time.monotonic()]:
                try:
                    self.heartbeat(each)
                except Unreachable as error:
                    log.warning("no sign of life for task %s of process %s: %s", each.task, each.process_id, error)
                    each.beat_at = time.monotonic() + FIRST_PAUSE
                except Refused as error:
                    each.lost = each in held
                    if each.lost:
                        log.warning("task %s of process %s was taken back: %s", each.task, each.process_id, error)
            due = min((task.beat_at for task in list(held) if not task.lost), default=time.monotonic() + MOST_PAUSE)
            ended.wait(max(LEAST_BEAT, due - time.monotonic()))

    def _post(self, path: str, body: Mapping[str, Any], seconds: float = 0.0, *, polling: bool = False) -> Any:
        # Half of a surrogate pair goes as JSON's own escape: it is for the server to refuse.
        text = json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")
        connection = self._connection(ANSWER_SECONDS + seconds)
        if polling:
            self._polling = connection
        try:
            # Connected before it is looked whether to stop: whoever stops finds either the word or the connection.
            connection.connect()
            if polling and self._stopping.is_set():
                return {"tasks": []}
            headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            connection.request("POST", self._prefix + path, text, headers)
            response = connection.getresponse()
            status, content = response.status, response.read()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"{self._host} does not answer: {str(error) or type(error).__name__}") from error
        finally:
            self._polling = None if polling else self._polling
            connection.close()
        return _read(status, content)

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)


def _task(data: Mapping[str, Any]) -> Task:
    """A newer server may say more."""
    return Task(**{name: value for name, value in data.items() if name in _FIELDS})


def _read(status: int, content: bytes) -> Any:
    try:
        data = json.loads(content)
        error = {} if status == 200 else data["error"]
    except (ValueError, KeyError, TypeError):
        # Not ours: something between here and the server.
        data, error = None, {"code": "no_answer", "message": f"the answer is not Tidemill's: {content[:100]!r}"}
    if status == 200 and data is not None:
        return data
    if status in _AGAIN or data is None:
        raise Unreachable(f"{error['message']} ({status})")
    raise (Lost if status == 409 else Refused)(status, error["code"], error["message"])


def _called(function: Callable[..., Any], task: Task) -> dict[str, Any]:
    """What the function's end is to the server."""
    try:
        value = function(*task.args, **task.kwargs)
        json.dumps(value, allow_nan=False)
    except Exception as error:  # noqa: BLE001 - whatever the function raises is its answer
        return {"error": _told(error)}
    return {"value": value}


def _told(error: BaseException) -> dict[str, Any]:
    """In a form that the server takes, whatever the error is."""
    kind, final = (error.type, error.final) if isinstance(error, Fail) else (type(error).__name__, False)
    shown = "".join(each if each.isprintable() else "?" for each in _said(lambda: str(kind)))[:TYPE_LIMIT]
    return {
        "type": shown if shown.strip() else "Error",
        "message": _said(lambda: str(error))[:MESSAGE_LIMIT],
        "traceback": _said(lambda: "".join(traceback.format_exception(error)))[-TRACE_LIMIT:],
        "final": bool(final),
    }


def _said(by: Callable[[], str]) -> str:
    """What an error says of itself, which may fail too; half of a surrogate pair has no place in UTF-8."""
    try:
        text = by()
    except Exception as error:  # noqa: BLE001 - it is the user's code
        text = f"it cannot be told: {type(error).__name__}"
    return text.encode(errors="replace").decode()
