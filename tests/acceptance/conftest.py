"""The fixtures of pytest-celery, over local processes; and the command line."""

from __future__ import annotations

from tests.kit.cli import tidemill
from tests.kit.containers import (
    celery_backend_cluster,
    celery_broker_cluster,
    celery_setup_app,
    celery_worker_cluster,
)

__all__ = ["celery_backend_cluster", "celery_broker_cluster", "celery_setup_app", "celery_worker_cluster", "tidemill"]
