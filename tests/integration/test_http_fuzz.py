"""The whole surface of HTTP, with requests that are as the document says, and with requests that are not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from schemathesis import GenerationMode
from sqlalchemy.engine import Engine

from app.db import transaction
from app.jobs import known
from app.jobs.known import Known
from processes import templates
from tests.kit import console, outside_world
from tests.kit.console import Caller
from tests.kit.http_fuzz import Fuzzer
from tests.kit.outside_world import asking

TASK = "shop.send_mail"
#: For each operation.
GOOD, BAD = 10, 6


@pytest.fixture
def fuzzer(engine: Engine) -> Iterator[Fuzzer]:
    outside_world.make_known()
    asking("x")
    with transaction() as session:
        known.register(session, [Known(TASK, "jobs", 4), Known("shop.charge", "money", 1)])
        templates.save(session, "of-type", {"name": "ask_outside", "custom_id": "{id}"})
    with console.serving() as url:
        token = console.token("root", "operator")
        caller = Caller(url, token)
        advanced = caller.post(
            "/api/v1/ctl/advance", {"entity": "dds.orders", "values": {"loaded_to": "2026-07-01T00:00:00Z"}}
        )
        assert advanced.status == 200, advanced
        jobs = [caller.post("/api/v1/jobs", {"task": TASK, "args": [number]}).data["job_id"] for number in range(3)]
        (task,) = caller.poll("answer_outside")
        real: dict[str, list[Any]] = {
            "name": ["ask_outside", "answer_outside", "told_outside"],
            "actor": ["answer_outside"],
            "process_id": [1],
            "pass_key": [task["pass_key"]],
            "epoch": [0],
            "job_id": jobs,
            "task": [2, TASK, "shop.charge"],
            "kwargs": [{}],
            "custom_id": ["o-1"],
            "idempotency_key": ["o-1", "o-2"],
            "Idempotency-Key": ["o-1"],
            "entity": ["dds.orders", "dds.*"],
            "parameter": ["loaded_to"],
            "template": ["of-type"],
            "parameters": [{"id": "o-1"}],
            "queue": ["jobs", "money"],
            "key": ["mail:1", "mail:2"],
        }
        yield Fuzzer(url, caller.get("/api/v1/openapi.json").data, token, real)


def test_requests_as_the_document_says(fuzzer: Fuzzer, caplog: pytest.LogCaptureFixture) -> None:
    fuzzer.run(GenerationMode.POSITIVE, GOOD)
    # All that is offered was reached.
    assert fuzzer.failures == []
    assert [label for label, answers in fuzzer.answers.items() if not answers[200]] == []
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_requests_that_are_otherwise(fuzzer: Fuzzer, caplog: pytest.LogCaptureFixture) -> None:
    fuzzer.run(GenerationMode.NEGATIVE, BAD)
    assert fuzzer.failures == []
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
