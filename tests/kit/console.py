"""The HTTP server in this process or as a program, and a client of it that sends what it is told to.

`with serving() as url:` serves from here; `Caller(url, token).post(path, body)` calls.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlsplit

from app import tokens
from app.console.server import Options, Server
from app.db import transaction
from tests.kit.cli import SCRIPT
from tests.kit.process import Process, Processes

SECONDS = 60.0
PLAIN = Options("127.0.0.1", 0, None, False, 4, 100)


@contextmanager
def serving(**options: Any) -> Iterator[str]:
    """The URL."""
    server = Server(replace(PLAIN, **options))
    url = server.start()
    try:
        yield url
    finally:
        assert server.stop(20)


def program(processes: Processes, env: Mapping[str, str], *options: str) -> tuple[Process, str]:
    """`tidemill console`, and its URL."""
    words = [str(SCRIPT), "console", *([] if "--port" in options else ["--port", "0"]), *options]
    process = processes.start(words, env, "console")
    log = process.wait_for(r"listening on https?://\S+\n", timeout=60)
    return process, log.rpartition("listening on ")[2].split()[0]


def token(name: str = "caller", role: str = "actor", *scope: str) -> str:
    with transaction() as session:
        return tokens.create(session, name, role, scope or None)


@dataclass(frozen=True)
class Said:
    status: int
    data: Any
    headers: Mapping[str, str]

    @property
    def error(self) -> tuple[str, str]:
        """Its code and its message."""
        assert set(self.data["error"]) == {"code", "message"}, self.data
        return self.data["error"]["code"], self.data["error"]["message"]


@dataclass(frozen=True)
class Caller:
    url: str
    token: str | None = None
    tls: ssl.SSLContext | None = None

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.netloc, timeout=SECONDS, context=self.tls)
        return http.client.HTTPConnection(parts.netloc, timeout=SECONDS)

    def send(self, connection: http.client.HTTPConnection, path: str, body: Any) -> None:
        words = self.headers() | {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body).encode(), words)

    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def raw(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Said:
        connection = self.connect()
        try:
            connection.request(method, path, body, dict(headers if headers is not None else self.headers()))
            return answer(connection)
        finally:
            connection.close()

    def get(self, path: str) -> Said:
        return self.raw("GET", path)

    def post(self, path: str, body: Any) -> Said:
        connection = self.connect()
        try:
            self.send(connection, path, body)
            return answer(connection)
        finally:
            connection.close()

    def poll(self, actor: str, **body: Any) -> list[Any]:
        said = self.post(poll_path(actor), body)
        assert said.status == 200, said
        return list(said.data["tasks"])

    def heartbeat(self, task: Any) -> Said:
        return self.post(f"{task_path(task)}/heartbeat", {"pass_key": task["pass_key"]})

    def release(self, task: Any, **body: Any) -> Said:
        both = {"pass_key": task["pass_key"], "epoch": task["epoch"]}
        return self.post(f"{task_path(task)}/release", both | body)


def answer(connection: http.client.HTTPConnection) -> Said:
    found = connection.getresponse()
    text = found.read()
    return Said(
        found.status, json.loads(text) if text else None, {name.lower(): word for name, word in found.getheaders()}
    )


def poll_path(actor: str) -> str:
    return f"/api/v1/actors/{quote(actor, safe='')}/poll"


def task_path(task: Any) -> str:
    return f"/api/v1/tasks/{task['process_id']}/{task['task']}"
