"""All tasks of the warehouse: what TIDEMILL_MODULES names."""

from __future__ import annotations

from warehouse import dashboards, detail, marts, staging, watch

__all__ = ["dashboards", "detail", "marts", "staging", "watch"]
