"""The gRPC server under calls of nonsense: only proper statuses, nothing is written by what is refused, it lives on."""

from __future__ import annotations

import os

import pytest
from sqlalchemy.engine import Engine

from tests.kit import rpc
from tests.kit.process import Processes
from tests.kit.rpc_fuzz import fuzz


def _tokens() -> dict[str, str]:
    return {
        "operator": rpc.token("all"),
        "actor": rpc.token("act", "actor", "parcel.*"),
        "producer": rpc.token("produce", "producer"),
        "viewer": rpc.token("look", "viewer"),
        "other": rpc.token("other", "actor", "door.*"),
    }


def test_some_seconds_of_nonsense(engine: Engine) -> None:
    rpc.shop(engine, "a", "b")
    tokens = _tokens()
    with rpc.serving() as address, rpc.client(address) as caller:
        told = fuzz(caller, tokens, 5, 20260801)
        assert rpc.Client(caller.channel, tokens["operator"]).read("a") is not None
    assert {"OK", "INVALID_ARGUMENT", "UNAUTHENTICATED", "PERMISSION_DENIED"} <= told.keys(), told


@pytest.mark.chaos
def test_nonsense_for_long(env: dict[str, str], engine: Engine, processes: Processes) -> None:
    """`make chaos SECONDS=600 SEED=7`"""
    seed = int(os.environ.get("SEED") or int.from_bytes(os.urandom(4)))
    print(f"seed {seed}", flush=True)
    rpc.shop(engine, "a", "b")
    tokens = _tokens()
    process, address = rpc.program(processes, env)
    with rpc.client(address) as caller:
        told = fuzz(caller, tokens, float(os.environ.get("SECONDS") or 120), seed)
        assert rpc.Client(caller.channel, tokens["operator"]).read("a") is not None
    process.terminate()
    assert process.wait(60) == 0, process.log
    assert "Traceback" not in process.log
    for secret in tokens.values():
        assert secret not in process.log
    print(f"seed {seed}: {dict(told)}", flush=True)
