"""The published document against the routes, and against what they answer."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import Engine
from starlette.routing import Route

from app.console import schemas, status
from app.console.calls import Calls
from app.console.gate import Gate
from app.console.openapi import ERROR_STATUSES
from app.console.routes import NO_METHOD
from app.console.site import endpoints, site
from app.errors import BadRequest
from tests.kit import console, outside_world
from tests.kit.console import Caller
from tests.kit.outside_world import asking

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()


@pytest.fixture
def caller(engine: Engine) -> Iterator[Caller]:
    outside_world.make_known()
    with console.serving() as url:
        yield Caller(url, console.token("root", "operator"))


@pytest.fixture
def document(caller: Caller) -> Any:
    said = caller.get("/api/v1/openapi.json")
    assert said.status == 200
    return said.data


def test_it_has_the_routes_that_there_are(document: Any) -> None:
    stopping = asyncio.Event()
    served_by = site(Calls(Gate(), 1, stopping), stopping, 1).routes
    routes = [each for each in served_by if isinstance(each, Route) and each.name != NO_METHOD]
    served = {
        (each.path.replace(":path", ""), method) for each in routes for method in (each.methods or set()) - {"HEAD"}
    }
    served = {(path, method) for path, method in served if path.startswith("/api/")}
    found = {(path, method.upper()) for path, each in document["paths"].items() for method in each}
    assert found == served
    assert document["openapi"].startswith("3.1")
    names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
    assert len(names) == len(set(names)) == 17


def test_it_is_whole(document: Any) -> None:
    assert document["security"] == [{"token": []}]
    for path, methods in document["paths"].items():
        for each in methods.values():
            places = [one["name"] for one in each["parameters"] if one["in"] == "path"]
            assert places == re.findall(r"{(\w+)}", path)
            assert {"200", "400", "401", "403", "429", "500", "503"} <= each["responses"].keys()
            assert ("requestBody" in each) == ("415" in each["responses"])
    text = json.dumps(document)
    for reference in re.findall(r'"#/([^"]+)"', text):
        found = document
        for word in reference.split("/"):
            found = found[word]


def test_bodies_and_answers_are_as_it_says(caller: Caller, document: Any) -> None:
    def schema(path: str, code: str) -> Any:
        return document["paths"][path]["post"]["responses"][code]["content"]["application/json"]["schema"]

    asking("x", amount=1)
    (task,) = caller.poll("answer_outside")
    poll = schema("/api/v1/actors/{name}/poll", "200")
    schemas.check(poll["properties"]["tasks"]["items"], task)
    assert task.keys() == poll["properties"]["tasks"]["items"]["properties"].keys()
    tasks = "/api/v1/tasks/{process_id}/{task}"
    schemas.check(schema(f"{tasks}/heartbeat", "200"), caller.heartbeat(task).data)
    schemas.check(schema(f"{tasks}/release", "200"), caller.release(task, value=1).data)
    refused, _ = schema(f"{tasks}/release", "409")["anyOf"]
    schemas.check(refused, caller.release(task, value=1).data)
    shown = document["paths"]["/api/v1/processes/{process_id}"]["get"]["responses"]["200"]
    process = caller.get(f"/api/v1/processes/{task['process_id']}").data
    schemas.check(shown["content"]["application/json"]["schema"], process)
    schemas.check(shown["content"]["application/json"]["schema"]["properties"]["tasks"]["items"], process["tasks"][0])
    body = document["paths"]["/api/v1/processes"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schemas.check(body, {"name": "ask_outside", "args": [1], "priority": 1})
    with pytest.raises(BadRequest, match="has no field"):
        schemas.check(body, {"name": "ask_outside", "nothing": 1})


def test_the_reference_has_every_route_field_and_status() -> None:
    parts = re.split(r"^## (.+)$", REFERENCE, flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    for each in endpoints():
        text = sections[f"{each.method} {each.path}"]
        fields = {name for schema in (each.body or {}, each.query) for name in schema.get("properties", ())}
        cells = re.findall(r"^\|([^|]+)\|", text, re.MULTILINE)
        assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} >= fields, each.name
    documented = {int(code) for code in re.findall(r"^\| (\d{3}) \|", sections["Errors"], re.MULTILINE)}
    assert documented == set(ERROR_STATUSES) | {405}
    source = Path(status.__file__).parent
    codes = {
        code
        for path in source.glob("*.py")
        for code in re.findall(r'(?:Told|Refused)\((?:\d{3}|code), "(\w+)"', path.read_text())
    }
    assert codes
    assert sorted(code for code in codes if f"`{code}`" not in sections["Errors"]) == []
