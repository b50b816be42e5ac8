"""The OpenAPI document, made of the routes themselves: it cannot say what they do not do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from app.console.endpoint import KEY, KEY_HEADER, PLACES, Endpoint
from app.console.schemas import TEXT, Schema, record
from app.console.status import AGAIN_SECONDS

#: That any request may be answered with, and those that have a body.
OF_ALL, OF_BODIES = (400, 401, 403, 429, 500, 503), (408, 413, 415)
ERROR_STATUSES = {
    400: "The request is not as it must be.",
    401: "No token, or one that is unknown, expired or revoked.",
    403: "The role or the scope of the token is another.",
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "It cannot be done as things stand.",
    413: "The body, or what it holds, is too large.",
    415: "The body is not JSON.",
    422: "The request is as it must be, and cannot be done.",
    429: "There are too many requests at once: try again.",
    500: "It failed inside of the server, whose log says why.",
    503: "The database does not answer, or the server stops: try again.",
}
_REQUEST_ID = {"description": "By which the log of the server knows the request.", "schema": TEXT}
_HEADERS: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "The scheme.", "schema": {**TEXT, "enum": ["Bearer"]}}},
    **{
        status: {"Retry-After": {"description": "Seconds.", "schema": {**TEXT, "enum": [str(AGAIN_SECONDS)]}}}
        for status in (429, 503)
    },
}
_ERROR = {"$ref": "#/components/schemas/Error"}


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidemill", "version": version("tidemill")},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {str(status): _response(status, words, _ERROR) for status, words in ERROR_STATUSES.items()},
            "schemas": {
                "Error": record("error", error=record("code", "message", code=TEXT, message=TEXT)),
            },
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    places = re.findall(r"{(\w+)}", endpoint.path)
    fields, wanted = endpoint.query["properties"], endpoint.query.get("required", ())
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [
            *(_parameter("path", name, PLACES[name], required=True) for name in places),
            *(_parameter("query", name, each, required=name in wanted) for name, each in fields.items()),
            *([_parameter("header", KEY_HEADER, KEY)] if endpoint.key else []),
        ],
        "responses": _responses(endpoint),
    }
    if endpoint.action is not None:
        found["description"] = f"The role of the token must allow: {endpoint.action}."
    if endpoint.key is not None:
        found["description"] += f" {KEY_HEADER} is another way to give {endpoint.key}."
    if endpoint.body is not None:
        content = {"application/json": {"schema": endpoint.body}}
        found["requestBody"] = {"required": "required" in endpoint.body, "content": content}
    return found


def _parameter(where: str, name: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema}


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    statuses = {*OF_ALL, *endpoint.errors, *(OF_BODIES if endpoint.body is not None else ())}
    found = {status: {"$ref": f"#/components/responses/{status}"} for status in statuses}
    for status, schema in endpoint.answers.items():
        if status in ERROR_STATUSES:
            found[status] = _response(status, ERROR_STATUSES[status], {"anyOf": [schema, _ERROR]})
        else:
            found[status] = _response(status, "Done.", schema)
    return {str(status): each for status, each in sorted(found.items())}


def _response(status: int, words: str, schema: Any) -> dict[str, Any]:
    headers = {"X-Request-Id": _REQUEST_ID, **_HEADERS.get(status, {})}
    return {"description": words, "headers": headers, "content": {"application/json": {"schema": schema}}}
