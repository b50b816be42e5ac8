"""A service in which a stage lives, as small as can be: it counts the visits of each entity. Run as a process."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from app.proto.tidemill.v1 import stage_pb2, stage_pb2_grpc


class Counting(stage_pb2_grpc.StageServicer):
    def ProcessBatch(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        response = stage_pb2.ProcessBatchResponse()
        for item in request.items:
            visits = json.loads(item.entity.json)["visits"] + 1
            answer = response.answers.add(id=item.entity.id).answer
            answer.patch.json = json.dumps({"visits": visits})
            answer.patch.reads.append("visits")
        return response


def main(port: int) -> None:
    server = grpc.server(ThreadPoolExecutor(8))
    stage_pb2_grpc.add_StageServicer_to_server(Counting(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(int(sys.argv[1]))
