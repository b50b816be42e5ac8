"""The stage `score` as the service that Tidemill calls: reads what it is sent, and says what is to be saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from threading import Lock
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import Message

from app.proto.tidemill.v1 import stage_pb2 as pb
from app.proto.tidemill.v1.stage_pb2_grpc import StageServicer
from remote_python.score import READS, Rated

STAGE = "score"
M = TypeVar("M", bound=Message)


class Unreadable(Exception):
    """It is not what this service has to do with; the entity alone fails."""


class Score(StageServicer):
    def __init__(self) -> None:
        #: The last sequence of each entity. A real service keeps it where its effects are, in the same transaction.
        self._saved: dict[tuple[str, str], int] = {}
        self._lock = Lock()

    def ShouldProcess(  # noqa: N802 - so it is called in the .proto
        self, request: pb.ShouldProcessRequest, context: grpc.ServicerContext
    ) -> pb.ShouldProcessResponse:
        _check_stage(request.stage, context)
        return _one(should_process, request, context)

    def ShouldProcessBatch(  # noqa: N802
        self, request: pb.ShouldProcessBatchRequest, context: grpc.ServicerContext
    ) -> pb.ShouldProcessBatchResponse:
        if request.items:
            _check_stage(request.stage, context)
        answers = [
            pb.ShouldProcessBatchResponse.Answer(id=each.entity.id, **_each(should_process, each, request.now))
            for each in request.items
        ]
        return pb.ShouldProcessBatchResponse(answers=answers)

    def Process(self, request: pb.ProcessRequest, context: grpc.ServicerContext) -> pb.ProcessResponse:  # noqa: N802
        _check_stage(request.stage, context)
        return _one(process, request, context)

    def ProcessBatch(  # noqa: N802
        self, request: pb.ProcessBatchRequest, context: grpc.ServicerContext
    ) -> pb.ProcessBatchResponse:
        if request.items:
            _check_stage(request.stage, context)
        answers = [
            pb.ProcessBatchResponse.Answer(id=each.entity.id, **_each(process, each, request.now))
            for each in request.items
        ]
        return pb.ProcessBatchResponse(answers=answers)

    def Saved(self, request: pb.SavedRequest, context: grpc.ServicerContext) -> pb.SavedResponse:  # noqa: N802
        """Says it, once: a call may come again, and one of before after it."""
        _check_stage(request.stage, context)
        key, sequence = (request.entity.kind, request.entity.id), request.sequence
        with self._lock:
            new = sequence > self._saved.get(key, 0)
            if new:
                self._saved[key] = sequence
        if new:
            quality = _offer(request.entity)["quality"]
            print(f"saved {request.entity.kind} {request.entity.id} at {sequence}: quality {quality}", flush=True)
        return pb.SavedResponse()


def should_process(entity: pb.Entity, state: pb.State, now: datetime) -> pb.ShouldProcessResponse:
    """What it would be rated by is another thing than what it was rated by; or when it will be."""
    offer, before = _offer(entity), _state(state)
    rated = Rated.of(offer, now)
    if rated is None:
        return pb.ShouldProcessResponse(wanted=before is not None)
    if rated != before:
        return pb.ShouldProcessResponse(wanted=True)
    at = rated.until(offer)
    return pb.ShouldProcessResponse(wanted=False) if at is None else pb.ShouldProcessResponse(at=at)


def process(entity: pb.Entity, state: pb.State, now: datetime) -> pb.ProcessResponse:
    """Looks for itself: it may be called though nothing has changed, and again for any reason."""
    offer, before = _offer(entity), _state(state)
    rated = Rated.of(offer, now)
    quality = None if rated is None else rated.quality
    if rated == before and offer["quality"] == quality:
        response = pb.ProcessResponse(untouched=pb.ProcessResponse.Untouched())
    else:
        patch = pb.ProcessResponse.Patch(json=json.dumps({"quality": quality}), reads=READS)
        response = pb.ProcessResponse(patch=patch)
    if rated is None:
        if before is not None:
            response.no_state = True
        return response
    if rated != before:
        response.state.Pack(pb.JsonState(model="Rated", json=json.dumps(asdict(rated))))
    if (at := rated.until(offer)) is not None:
        # Left out, it would not be armed any more.
        response.at.FromDatetime(at)
    return response


def _offer(entity: pb.Entity) -> dict[str, Any]:
    if entity.WhichOneof("body") != "json":
        raise Unreadable(f"{entity.kind} {entity.id!r} comes without its columns as JSON")
    found: dict[str, Any] = json.loads(entity.json)
    if missing := {*READS, "quality"} - set(found):
        raise Unreadable(f"{entity.kind} {entity.id!r} has no column {', '.join(sorted(missing))}")
    return found


def _state(state: pb.State) -> Rated | None:
    if state.version == 0:
        return None
    kept = pb.JsonState()
    if not state.value.Unpack(kept):
        raise Unreadable(f"a state of this service is a {kept.DESCRIPTOR.full_name}, not a {state.value.TypeName()}")
    return Rated(**json.loads(kept.json))


def _check_stage(stage: str, context: grpc.ServicerContext) -> None:
    if stage != STAGE:
        context.abort(grpc.StatusCode.NOT_FOUND, f"there is no stage {stage!r:.100} here, but {STAGE}")


def _one(answer: Callable[[pb.Entity, pb.State, datetime], M], request: Any, context: grpc.ServicerContext) -> M:
    try:
        return answer(request.entity, request.state, request.now.ToDatetime(tzinfo=UTC))
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller is told
        _refuse(context, error)


def _refuse(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, _words(error))


def _each(answer: Callable[[pb.Entity, pb.State, datetime], Message], item: Any, now: Any) -> dict[str, Any]:
    """Of a batch: what one entity comes to, or why it has failed."""
    try:
        return {"answer": answer(item.entity, item.state, now.ToDatetime(tzinfo=UTC))}
    except Exception as error:  # noqa: BLE001 - one bad entity fails no other
        return {"failure": pb.Failure(message=_words(error))}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
