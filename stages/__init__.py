"""Stages: work that starts because an entity changed, or its timer came.

The names that stages are written with are here; how a stage is asked and called is in `stages.asking` and
`stages.calling`, how it is tested without a database in `stages.testing`.
"""

from __future__ import annotations

from app.proto.tidemill.v1.stage_pb2 import JsonState
from stages import bells as bells
from stages import queue, testing
from stages.identity import Codec
from stages.installing import install
from stages.outcomes import Patch, Untouched, Updated
from stages.present import now
from stages.registration import stage
from stages.store import Change, Loaded, Store
from stages.watched import Kind, Watched

__all__ = [
    "Change",
    "Codec",
    "JsonState",
    "Kind",
    "Loaded",
    "Patch",
    "Store",
    "Untouched",
    "Updated",
    "Watched",
    "install",
    "now",
    "queue",
    "stage",
    "testing",
]
