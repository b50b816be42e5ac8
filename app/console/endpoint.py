"""What a route of the API is: where it lies, who may call it, what it takes and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.console.schemas import INTEGER, NAME, Schema, record
from app.console.status import Refused
from app.tokens import Action, Holder

PREFIX = "/api/v1"
#: What stands in paths.
PLACES: Mapping[str, Schema] = {
    "name": NAME,
    "process_id": {**INTEGER, "minimum": 1, "maximum": 2**63 - 1},
    "job_id": {**INTEGER, "minimum": 1, "maximum": 2**63 - 1},
    "task": {**INTEGER, "minimum": 1, "maximum": 2**31 - 1},
}
#: The header by which a request that is sent again is known.
KEY_HEADER = "Idempotency-Key"
KEY: Schema = {"type": "string", "minLength": 1, "maxLength": 500, "pattern": "^[!-~]([ -~]*[!-~])?$"}


@dataclass(frozen=True)
class Asked:
    """One request, when it was found good."""

    holder: Holder
    path: Mapping[str, Any]
    body: Mapping[str, Any]
    query: Mapping[str, Any] = field(default_factory=dict)

    def allow(self, action: Action, name: str) -> None:
        """`Refused` unless the token may do this for that name."""
        if not self.holder.may(action, name):
            raise denied(self.holder, action, name)


@dataclass(frozen=True)
class Answer:
    data: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True)
class Endpoint:
    method: str
    path: str
    #: By which OpenAPI, and the programs that are made from it, name it.
    name: str
    summary: str
    #: What the role of the token must allow; None: every token will do.
    action: Action | None
    #: Does it, in a thread of the server's. None: nothing yet, where it `waits`.
    run: Callable[[Asked], Answer | None]
    #: By status.
    answers: Mapping[int, Schema]
    #: For which of the names of a scope it is. None: `run` finds out, and asks with `Asked.allow`.
    subject: Callable[[Asked], str] | None = lambda _: ""
    #: Whether whoever asks has said this name, and so may be told it.
    named: bool = True
    body: Schema | None = None
    query: Schema = field(default_factory=record)
    #: The field of the body that the header `Idempotency-Key` is another way to give.
    key: str | None = None
    #: What it may answer besides errors that every request may get.
    errors: tuple[int, ...] = ()
    #: For how many seconds it may be run again and again until there is an answer; only while the client is there.
    waits: Callable[[Asked], float] | None = None
    nothing: Answer = field(default_factory=lambda: Answer({}))

    def admit(self, holder: Holder) -> None:
        """Whether the role may do this for any name: what can be said before anything was read."""
        if self.action is not None and not Holder(holder.name, holder.role).may(self.action, ""):
            raise denied(holder, self.action)

    def allow(self, asked: Asked) -> None:
        if self.action is None or self.subject is None:
            return
        name = self.subject(asked)
        if not asked.holder.may(self.action, name):
            raise denied(asked.holder, self.action, name if self.named else "")


def denied(holder: Holder, action: Action, name: str = "") -> Refused:
    return Refused(403, "denied", holder.denial(action, name))
