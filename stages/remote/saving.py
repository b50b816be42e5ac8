"""`Saved` of a stage that lives in another service: called after a commit, by whoever relays what was saved (S14)."""

from __future__ import annotations

from app.errors import BadRequest
from app.proto.tidemill.v1 import stage_pb2
from stages.definition import Definition
from stages.remote import wire
from stages.remote.client import client_of
from stages.state import Stored


def remote_saved(
    definition: Definition, entity_id: str, sequence: int, version: int, document: str, state: Stored | None
) -> None:
    """Once; it may have side effects, so nobody here tries again: `RemoteFailed` says that the caller may."""
    remote = definition.remote
    if remote is None or not remote.saved:
        raise BadRequest(f"{definition.task} has no Saved: set saved = true in the file of remote stages")
    given = wire.sent(remote, definition.kind.name, entity_id, version, document)
    request = stage_pb2.SavedRequest(
        stage=definition.name, entity=given.entity, state=wire.state_of(state), sequence=sequence
    )
    client_of(remote).call("Saved", request, definition.time_limit.total_seconds(), pure=False)
