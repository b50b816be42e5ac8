"""The target mode of reactive triggers: launches within milliseconds, at a cost that follows what changed."""

from __future__ import annotations

from triggers.service.service import LIMIT, Report, Service, own, run_once

__all__ = ["LIMIT", "Report", "Service", "own", "run_once"]
