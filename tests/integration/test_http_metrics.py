"""`/metrics` over HTTP: for holders of a token that may read, and nobody else."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from sqlalchemy.engine import Engine

from tests.kit import console, scrape
from tests.kit.console import Caller
from tests.kit.scrape import Scrape


@pytest.fixture
def url(engine: Engine) -> Iterator[str]:
    scrape.forget()
    with console.serving() as found:
        yield found


def get(url: str, token: str | None, path: str = "/metrics", method: str = "GET") -> tuple[int, str, str]:
    """Status, type and text."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=console.SECONDS)
    try:
        connection.request(method, path, headers=Caller(url, token).headers())
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(("role", "expected"), [("viewer", 200), ("operator", 200), ("producer", 200), ("actor", 403)])
def test_who_may_read_them(url: str, role: str, expected: int) -> None:
    assert get(url, console.token("prometheus", role))[0] == expected


def test_nobody_else(url: str) -> None:
    assert get(url, None)[0] == 401
    assert get(url, "tdm_wrong")[0] == 401
    assert get(url, None, "/metrics?token=x")[0] == 401
    assert get(url, console.token("narrow", "producer", "dds.*"))[0] == 403
    assert get(url, console.token("viewer", "viewer"), method="POST")[0] == 405
    assert get(url, None, "/healthz")[0] == 200


def test_what_prometheus_reads(url: str) -> None:
    status, kind, text = get(url, console.token("prometheus", "viewer"))
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert Scrape(text).value("workers") == 0
    assert Scrape(text).value("scrape_errors", part="queues") == 0
