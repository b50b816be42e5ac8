"""The routes under `/api/v1`: from JSON to calls of Python, and back."""

from __future__ import annotations

from app.console.api import actors, ctl, glance, jobs, processes
from app.console.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *actors.ENDPOINTS,
    *ctl.ENDPOINTS,
    *jobs.ENDPOINTS,
    *processes.ENDPOINTS,
    *glance.ENDPOINTS,
)

__all__ = ["ENDPOINTS"]
