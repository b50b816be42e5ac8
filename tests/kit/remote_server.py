"""A service that implements `tidemill.v1.Stage`, as a program: `python -m tests.kit.remote_server DIRECTORY PORT`.

What it answers stands in one file of the directory, what it was called for in another.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage

from app.proto.tidemill.v1 import stage_pb2, stage_pb2_grpc
from tests.kit.waiting import pause

BEHAVIOUR, CALLS, CERTIFICATE, KEY, TOKEN = "behaviour.json", "calls.jsonl", "server.pem", "server.key", "token"
Base: Any = cast(Any, stage_pb2_grpc).StageServicer


class Service(Base):  # type: ignore[misc]
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()

    # The calls

    def ShouldProcessBatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._begin("ShouldProcessBatch", request, [each.entity for each in request.items], context)
        response = stage_pb2.ShouldProcessBatchResponse()
        for item in request.items:
            way = self._way("should", item.entity.id, True)
            self._refuse(way, context)
            if way == "left out":
                continue
            answer = response.answers.add(id=item.entity.id)
            if isinstance(way, dict) and "failure" in way:
                answer.failure.message = way["failure"]
            elif way != "empty":
                answer.answer.SetInParent()
                _wish(answer.answer, way)
        return response

    def ShouldProcess(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._begin("ShouldProcess", request, [request.entity], context)
        way = self._way("should", request.entity.id, True)
        self._refuse(way, context)
        response = stage_pb2.ShouldProcessResponse()
        if way != "empty":
            _wish(response, way)
        return response

    def ProcessBatch(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._begin("ProcessBatch", request, [each.entity for each in request.items], context)
        response = stage_pb2.ProcessBatchResponse()
        for item in request.items:
            way = self._way("process", item.entity.id, {})
            self._refuse(way, context)
            if "left_out" in way:
                continue
            for name in [item.entity.id] * way.get("times", 1) + way.get("strangers", []):
                answer = response.answers.add(id=name)
                if "failure" in way:
                    answer.failure.message = way["failure"]
                elif "no_result" not in way:
                    answer.answer.CopyFrom(_outcome(way, item))
        return response

    def Process(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._begin("Process", request, [request.entity], context)
        way = self._way("process", request.entity.id, {})
        self._refuse(way, context)
        if "failure" in way:
            context.abort(grpc.StatusCode.INTERNAL, way["failure"])
        return _outcome(way, request)

    def Saved(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._begin("Saved", request, [request.entity], context)
        return stage_pb2.SavedResponse()

    # How it behaves

    def _behaviour(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._directory / BEHAVIOUR).read_text())
        return found

    def _way(self, what: str, entity_id: str, default: Any) -> Any:
        ways = self._behaviour().get(what, {})
        return ways.get(entity_id, ways.get("*", default))

    def _begin(self, method: str, request: Any, entities: Iterable[Any], context: Any) -> None:
        self._note(method, request, list(entities), context)
        told = self._directory / TOKEN
        if told.exists() and dict(context.invocation_metadata()).get("authorization") != f"Bearer {told.read_text()}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        behaviour = self._behaviour()
        pause(behaviour.get("slow", 0))
        while method in self._behaviour().get("hang", []) and context.is_active():
            pause(0.02)
        if (status := behaviour.get("status", {}).get(method)) is not None:
            context.abort(grpc.StatusCode[status], f"{method} is not for you")

    def _refuse(self, way: Any, context: Any) -> None:
        if not isinstance(way, dict):
            return
        if "abort" in way:
            context.abort(grpc.StatusCode[way["abort"]], f"because of {way.get('why', 'one of them')}")
        while way.get("hang") and context.is_active():
            pause(0.02)

    def _note(self, method: str, request: Any, entities: list[Any], context: Any) -> None:
        line = {
            "pid": os.getpid(),
            "method": method,
            "stage": request.stage,
            "ids": [each.id for each in entities],
            "versions": [each.version for each in entities],
            "entities": [json.loads(each.json) if each.json else _message(each) for each in entities],
            "sequence": getattr(request, "sequence", None),
            "state_version": request.state.version if method in ("ShouldProcess", "Process", "Saved") else None,
            "authorization": dict(context.invocation_metadata()).get("authorization"),
        }
        with self._lock, (self._directory / CALLS).open("a") as out:
            out.write(json.dumps(line) + "\n")


def _message(entity: Any) -> dict[str, Any]:
    # The class is in the pool where its module was imported.
    return {"type_url": entity.message.type_url, "bytes": len(entity.message.value)}


def _wish(answer: Any, way: Any) -> None:
    if isinstance(way, bool):
        answer.wanted = way
    elif "after" in way:
        answer.after.FromTimedelta(timedelta(seconds=way["after"]))
    elif "at" in way:
        answer.at.FromJsonString(way["at"])


def _outcome(way: dict[str, Any], item: Any) -> Any:
    made = stage_pb2.ProcessResponse()
    if "raw" in way:
        made.updated.json = way["raw"]
    elif "raw_patch" in way:
        made.patch.json = way["raw_patch"]
    elif "set" in way and item.entity.WhichOneof("body") == "message":
        made.updated.message.CopyFrom(item.entity.message)
        made.updated.message.value += bytes.fromhex(way["set"])
    elif "set" in way:
        made.updated.json = json.dumps(json.loads(item.entity.json) | way["set"])
    elif "patch" in way:
        made.patch.json = json.dumps(way["patch"])
        made.patch.reads.extend(way.get("reads", []))
    elif "no_outcome" not in way:
        made.untouched.SetInParent()
    if "after" in way:
        made.after.seconds = way["after"]
    if "at" in way:
        made.at.seconds = way["at"]
    if "state" in way:
        made.state.CopyFrom(AnyMessage(type_url=way["state"][0], value=bytes.fromhex(way["state"][1])))
    if way.get("count"):
        before = item.state.value.value if item.state.version else b""
        made.state.CopyFrom(AnyMessage(type_url="example.com/anything", value=before + b"x"))
    if "no_state" in way:
        made.no_state = way["no_state"]
    return made


def main(directory: Path, port: int) -> None:
    # Two of them must not share a port without a word.
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
    cast(Any, stage_pb2_grpc).add_StageServicer_to_server(Service(directory), server)
    if (directory / CERTIFICATE).exists():
        pair = ((directory / KEY).read_bytes(), (directory / CERTIFICATE).read_bytes())
        server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([pair]))
    else:
        server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    print("the service runs", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
